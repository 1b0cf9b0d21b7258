//! What one side of a board asks for in so many words: imports the trees of subscriptions, filters and streams by name,
//! exports to be found by their properties. There is one of each for all ports that ask for the same: channels of a
//! region mostly do, a tree takes up to forty times as much as its text, and a list of numbers ten times. And there is
//! room for so many only, because whoever may write imports and exports may write thousands, each of which asks for
//! something else (rule import-12).
//!
//! The smallest have the room, whatever came first. So what is kept depends on nothing but what is asked for, and is
//! the same in all replicas; and nobody who asks for little has to make way for somebody who asks for much.
//!
//! Thousands of ports may ask for the same, and each has to be looked at when there is no room for it any more, which
//! nobody does at once. Until the last of them has let go of it, it takes its room, and who has that now comes later.
//!
//! Knows: how much a text takes. Must not know: what matches.
//!
//! Invariants: what is kept takes no more than there is room for, at any time. Once all ports have been put again
//! that are to be, it is what has room, and what is next would not fit beside it. Of what is not kept there is a
//! digest, and of what no port asks for any more there is nothing.

use crate::fact::{Export, Import, KEYS_MAX, NamedStream, Subscription};
use crate::port::Port;
use sha2::{Digest as _, Sha256};
use spl_expression::{Expression, Needs, Properties};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;
use std::{fmt, mem};

/// Bytes that what the imports of a namespace ask for may take, and so many that what its exports ask for may.
pub(crate) const ROOM: usize = 32 << 20;
/// Bytes of a part beside its own: its digest, and which port has it.
const TEXT_BYTES: usize = 512;
/// Bytes of a text that is shared, beside its own.
const SHARED_BYTES: usize = 32;
/// Bytes of an entry by which a subscription is found, and of the set of those that are found by it.
const NEED_BYTES: usize = 400;

/// A part of what an import or export asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// Its subscription.
    Subscription,
    /// Its filter.
    Filter,
    /// The streams that it names.
    Named,
    /// The properties by which an export is to be found.
    Properties,
}

impl Part {
    /// What has the room together.
    fn all(self) -> &'static str {
        match self {
            Self::Subscription | Self::Filter | Self::Named => "subscriptions, filters and lists of streams of imports",
            Self::Properties => "lists of properties of exports",
        }
    }
}

impl fmt::Display for Part {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Subscription => "subscription",
            Self::Filter => "filter",
            Self::Named => "list of streams",
            Self::Properties => "list of properties",
        })
    }
}

/// There is no room for a part of what an import or export asks for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the {part} of {port} takes {bytes} bytes of memory, for which there is no room: all {} of the namespace have {} \
     together, and the smallest have it first",
    .part.all(),
    ROOM
)]
pub struct NoRoom {
    /// The input or output port.
    pub port: Port,
    /// What of it.
    pub part: Part,
    /// What it takes.
    pub bytes: usize,
}

/// What is asked for, the smallest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    bytes: usize,
    part: Part,
    digest: [u8; 32],
}

impl Rank {
    fn of<'a>(part: Part, texts: impl IntoIterator<Item = &'a str>, bytes: usize) -> Self {
        let mut digest = Sha256::new();
        texts.into_iter().for_each(|text| add(&mut digest, text));
        Self::with(part, digest, bytes)
    }

    fn with(part: Part, digest: Sha256, bytes: usize) -> Self {
        Self { bytes: TEXT_BYTES + bytes, part, digest: digest.finalize().into() }
    }

    /// Who asks for the same in another scope is found in other ways, and so takes as much again.
    fn of_subscription(Subscription { scope, expression }: &Subscription) -> Self {
        // Texts and names are in the text, and literals and needs have them again.
        let texts = scope.len() + expression.memory() + expression.text().len();
        let needs = match expression.needs() {
            Needs::Nothing => 0,
            Needs::OneOf(needs) => NEED_BYTES * needs.len(),
        };
        Self::of(Part::Subscription, [&**scope, expression.text()], texts + needs)
    }

    fn of_filter(filter: &str) -> Self {
        Self::of(Part::Filter, [filter], filter.len())
    }

    fn of_named(named: &[NamedStream]) -> Self {
        let texts = |named: &NamedStream| {
            let NamedStream { application, scope, stream } = named;
            [application.clone(), Some(scope.clone()), Some(stream.clone())]
        };
        let mut digest = Sha256::new();
        let mut bytes = 0;
        for text in named.iter().flat_map(texts) {
            digest.update([u8::from(text.is_some())]);
            text.iter().for_each(|text| add(&mut digest, text));
            bytes += text.map_or(0, |text| SHARED_BYTES + text.len());
        }
        let entries = size_of_val(named);
        Self::with(Part::Named, digest, entries + with_keys(bytes, named.len()))
    }

    /// Those that are found in another scope have other keys.
    fn of_properties(scope: &str, properties: &Properties) -> Self {
        let mut digest = Sha256::new();
        add(&mut digest, scope);
        properties.write(&mut |octets| digest.update(octets));
        let keys = properties.met().take(KEYS_MAX + 1).count();
        Self::with(Part::Properties, digest, scope.len() + with_keys(properties.memory(), keys))
    }
}

/// What takes so much, with the keys under which it is found: these are texts once more, if there are few.
fn with_keys(bytes: usize, keys: usize) -> usize {
    if keys <= KEYS_MAX { 2 * bytes } else { bytes }
}

fn add(digest: &mut Sha256, text: &str) {
    digest.update(text.len().to_le_bytes());
    digest.update(text);
}

/// Who asks for it.
#[derive(Debug, Default)]
struct Asking {
    /// There is nothing if nobody has it.
    kept: Option<Kept>,
    /// And whether they have it.
    ports: BTreeMap<Port, bool>,
    /// How many have it.
    holders: usize,
}

/// What all share that ask for the same.
#[derive(Clone, Debug)]
enum Kept {
    Subscription(Arc<Expression>),
    Filter(Arc<str>),
    Named(Arc<[NamedStream]>),
    Properties(Arc<Properties>),
}

/// Ports of others of the side for which something is otherwise than it was.
#[derive(Debug, Default)]
pub(crate) struct Moved {
    /// There is room now for a part of what they ask for, or none any more.
    pub(crate) ports: BTreeSet<Port>,
    /// They are to be put again as they are: they let go of what there is no room for, or get what there is room for.
    pub(crate) again: BTreeSet<Port>,
}

/// What the imports, or the exports, of a board ask for.
#[derive(Debug)]
pub(crate) struct Asked {
    asking: BTreeMap<Rank, Asking>,
    /// The parts of a port, by which it is found there.
    of_port: BTreeMap<Port, Vec<Rank>>,
    /// The first for which there is no room. All after it have none either.
    first_without: Option<Rank>,
    /// What those take for which there is.
    bytes: usize,
    /// What there is no room for, and some have nevertheless, because they have not been put again yet.
    leaving: BTreeSet<Rank>,
    /// What there is room for, and some have not, because of what is leaving.
    coming: BTreeSet<Rank>,
    /// What those take that somebody has.
    held: usize,
    room: usize,
}

impl Default for Asked {
    fn default() -> Self {
        Self::within(ROOM)
    }
}

impl Asked {
    /// There is room for so many bytes.
    pub(crate) fn within(room: usize) -> Self {
        Self {
            asking: BTreeMap::new(),
            of_port: BTreeMap::new(),
            first_without: None,
            bytes: 0,
            leaving: BTreeSet::new(),
            coming: BTreeSet::new(),
            held: 0,
            room,
        }
    }

    /// The import asks for this, and no longer for what its port asked for before. It gets what others share that ask
    /// for the same. Of what there is no room for nothing stays in it: it matches nothing by such a subscription or
    /// such streams, and nothing at all without its filter. So it is with what there is no room for yet; then it is put
    /// again. Returns what becomes of others.
    pub(crate) fn put_import(&mut self, import: &mut Import) -> Moved {
        let subscription = import.subscription.as_ref().map(Rank::of_subscription);
        let named = (!import.named.is_empty()).then(|| Rank::of_named(&import.named));
        let filter = import.filter.as_deref().map(Rank::of_filter);
        let ranks: Vec<Rank> = subscription.into_iter().chain(named).chain(filter).collect();
        let mut others = self.ask(&import.port, ranks);
        if let (Some(rank), Some(asked)) = (subscription, &mut import.subscription) {
            match self.take(&rank, &import.port, || Kept::Subscription(Arc::clone(&asked.expression))) {
                Some(Kept::Subscription(expression)) => asked.expression = expression,
                _ => import.subscription = None,
            }
        }
        if let Some(rank) = named {
            match self.take(&rank, &import.port, || Kept::Named(Arc::clone(&import.named))) {
                Some(Kept::Named(named)) => import.named = named,
                _ => import.named = Arc::default(),
            }
        }
        if let (Some(rank), Some(asked)) = (filter, &mut import.filter) {
            match self.take(&rank, &import.port, || Kept::Filter(Arc::clone(asked))) {
                Some(Kept::Filter(filter)) => *asked = filter,
                _ => get_nothing(import),
            }
        }
        self.let_come(&mut others);
        others
    }

    /// The export asks to be found by these properties, and no longer by what its port had before. It gets what others
    /// share that have the same, and none if there is no room for them. Returns what becomes of others.
    pub(crate) fn put_export(&mut self, export: &mut Export) -> Moved {
        let scope = &export.application.scope;
        let properties = export.properties.as_ref().map(|properties| Rank::of_properties(scope, properties));
        let mut others = self.ask(&export.port, properties.into_iter().collect());
        if let (Some(rank), Some(asked)) = (properties, &mut export.properties) {
            match self.take(&rank, &export.port, || Kept::Properties(Arc::clone(asked))) {
                Some(Kept::Properties(properties)) => *asked = properties,
                _ => export.properties = None,
            }
        }
        self.let_come(&mut others);
        others
    }

    /// The port asks for nothing any more. Returns what becomes of others.
    pub(crate) fn remove(&mut self, port: &Port) -> Moved {
        let mut others = self.ask(port, Vec::new());
        self.let_come(&mut others);
        others
    }

    /// The first part of what a port asks for that there is no room for.
    pub(crate) fn without_room(&self, port: &Port) -> Option<NoRoom> {
        let rank = self.of_port.get(port)?.iter().find(|rank| !self.has_room(rank))?;
        Some(NoRoom { port: port.clone(), part: rank.part, bytes: rank.bytes })
    }

    fn has_room(&self, rank: &Rank) -> bool {
        self.first_without.is_none_or(|first| *rank < first)
    }

    /// The port asks for these, and for nothing else. It lets go of what there is no room for.
    fn ask(&mut self, port: &Port, ranks: Vec<Rank>) -> Moved {
        for rank in &ranks {
            let asking = self.asking.entry(*rank).or_default();
            let is_new = asking.ports.is_empty();
            asking.ports.entry(port.clone()).or_default();
            if is_new && self.has_room(rank) {
                self.bytes += rank.bytes;
            }
        }
        let before =
            if ranks.is_empty() { self.of_port.remove(port) } else { self.of_port.insert(port.clone(), ranks.clone()) };
        for rank in before.into_iter().flatten().filter(|rank| !ranks.contains(rank)) {
            self.let_go(&rank, port);
            let Some(asking) = self.asking.get_mut(&rank) else { continue };
            asking.ports.remove(port);
            if asking.ports.is_empty() {
                self.asking.remove(&rank);
                self.coming.remove(&rank);
                if self.has_room(&rank) {
                    self.bytes -= rank.bytes;
                }
            }
        }
        let mut others = self.share_out();
        for rank in ranks.iter().filter(|rank| !self.has_room(rank)).collect::<Vec<_>>() {
            self.let_go(rank, port);
        }
        others.ports.remove(port);
        others.again.remove(port);
        others
    }

    /// Gives the room to the smallest. Who has had it lets go of it later.
    fn share_out(&mut self) -> Moved {
        let mut moved = Moved::default();
        while self.bytes > self.room {
            let largest = match self.first_without {
                Some(first) => self.asking.range(..first).next_back(),
                None => self.asking.iter().next_back(),
            };
            let Some((rank, asking)) = largest else { break };
            moved.ports.extend(asking.ports.keys().cloned());
            moved.again.extend(asking.those_that(true));
            if asking.holders > 0 {
                self.leaving.insert(*rank);
            }
            self.coming.remove(rank);
            self.bytes -= rank.bytes;
            self.first_without = Some(*rank);
        }
        while let Some(first) = self.first_without {
            // It may have gone.
            let Some((rank, asking)) = self.asking.range(first..).next() else {
                self.first_without = None;
                break;
            };
            if self.bytes + rank.bytes > self.room {
                self.first_without = Some(*rank);
                break;
            }
            self.bytes += rank.bytes;
            moved.ports.extend(asking.ports.keys().cloned());
            self.leaving.remove(rank);
            self.coming.insert(*rank);
            let after = self.asking.range((Bound::Excluded(*rank), Bound::Unbounded)).next();
            self.first_without = after.map(|(next, _)| *next);
        }
        moved
    }

    /// What the port gets of what it asks for: what others have, or else this.
    fn take(&mut self, rank: &Rank, port: &Port, this: impl FnOnce() -> Kept) -> Option<Kept> {
        if !self.has_room(rank) {
            return None;
        }
        let asking = self.asking.get_mut(rank)?;
        let has = asking.ports.get_mut(port)?;
        if asking.holders == 0 {
            if self.held + rank.bytes > self.room {
                self.coming.insert(*rank);
                return None;
            }
            self.held += rank.bytes;
        }
        asking.holders += usize::from(!mem::replace(has, true));
        Some(asking.kept.get_or_insert_with(this).clone())
    }

    /// The port has no longer what it may have had.
    fn let_go(&mut self, rank: &Rank, port: &Port) {
        let Some(asking) = self.asking.get_mut(rank) else { return };
        if !asking.ports.get_mut(port).is_some_and(mem::take) {
            return;
        }
        asking.holders -= 1;
        if asking.holders == 0 {
            asking.kept = None;
            self.held -= rank.bytes;
            self.leaving.remove(rank);
        }
    }

    /// If nothing is leaving any more, there is room for all that is to come.
    fn let_come(&mut self, moved: &mut Moved) {
        if self.leaving.is_empty() {
            let coming = mem::take(&mut self.coming);
            let asking = coming.iter().filter_map(|rank| self.asking.get(rank));
            moved.again.extend(asking.flat_map(|asking| asking.those_that(false)));
        }
    }
}

impl Asking {
    /// The ports that have it, or have not.
    fn those_that(&self, have: bool) -> impl Iterator<Item = Port> {
        self.ports.iter().filter(move |(_, has)| **has == have).map(|(port, _)| port.clone())
    }
}

/// Who has no filter any more must not get all tuples instead.
fn get_nothing(import: &mut Import) {
    (import.named, import.subscription, import.filter) = (Arc::default(), None, None);
}

#[cfg(test)]
impl Asked {
    /// Whether nothing at all is kept.
    pub(crate) fn is_empty(&self) -> bool {
        let is_nothing_moving = self.leaving.is_empty() && self.coming.is_empty();
        let is_nothing_asked = self.asking.is_empty() && self.of_port.is_empty() && self.first_without.is_none();
        is_nothing_moving && is_nothing_asked && (self.bytes, self.held) == (0, 0)
    }

    /// Whether what is kept is counted, and fits.
    pub(crate) fn is_within(&self) -> bool {
        let kept = self.asking.iter().filter(|(_, asking)| asking.kept.is_some());
        kept.map(|(rank, _)| rank.bytes).sum::<usize>() == self.held && self.held <= self.room
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::port::Pe;
    use proptest::prelude::*;
    use spl_expression::Limits;

    fn port(id: u64) -> Port {
        Port { pe: Pe { job: "in".into(), id }, id: 0 }
    }

    fn import(id: u64, subscription: Option<&str>, filter: Option<&str>) -> Import {
        let subscription = subscription.map(|text| Subscription {
            scope: "s".into(),
            expression: Expression::parse(text, &Limits::default()).unwrap().into(),
        });
        let filter = filter.map(Arc::from);
        Import { port: port(id), job_id: 1, port_index: 0, named: Arc::default(), subscription, filter }
    }

    /// Puts the import, and those again that are to be.
    fn put(asked: &mut Asked, all: &BTreeMap<Port, Import>, port: &Port) {
        put_all(asked, all, BTreeSet::from([port.clone()]));
    }

    fn put_all(asked: &mut Asked, all: &BTreeMap<Port, Import>, mut ports: BTreeSet<Port>) {
        let mut puts = 0;
        while let Some(port) = ports.pop_first() {
            ports.extend(asked.put_import(&mut all[&port].clone()).again);
            assert!(asked.is_within(), "{asked:?}");
            // Those that go, and those that come then.
            puts += 1;
            assert!(puts <= 2 * all.len() + 1, "{ports:?} are put again and again");
        }
        assert!(asked.leaving.is_empty() && asked.coming.is_empty() && asked.held == asked.bytes, "{asked:?}");
    }

    /// What is left of each.
    fn left(asked: &mut Asked, all: &BTreeMap<Port, Import>) -> Vec<(Option<String>, Option<String>, bool)> {
        let each = all.values().cloned().map(|mut import| {
            assert!(asked.put_import(&mut import).again.is_empty());
            let subscription = import.subscription.map(|asked| asked.expression.to_string());
            let has_room = asked.without_room(&import.port).is_none();
            (subscription, import.filter.as_deref().map(str::to_owned), has_room)
        });
        each.collect()
    }

    #[test]
    fn those_that_are_alike_are_one() {
        let mut asked = Asked::default();
        let mut of = |id, text| {
            let mut import = import(id, Some(text), Some("f"));
            asked.put_import(&mut import);
            (import.subscription.unwrap().expression, import.filter.unwrap())
        };
        let (first, like, other) = (of(0, "a == 1"), of(1, "a == 1"), of(2, "a  == 1"));
        assert!(Arc::ptr_eq(&first.0, &like.0) && !Arc::ptr_eq(&first.0, &other.0));
        assert!(Arc::ptr_eq(&first.1, &like.1) && Arc::ptr_eq(&first.1, &other.1));
    }

    #[test]
    fn who_asks_for_the_same_in_another_scope_takes_as_much_again() {
        let mut asked = Asked::default();
        let mut bytes = Vec::new();
        for (id, scope) in ["s", "s", "t", "u"].into_iter().enumerate() {
            let mut import = import(id as u64, Some("a == 1"), None);
            import.subscription.as_mut().unwrap().scope = scope.into();
            asked.put_import(&mut import);
            bytes.push(asked.bytes);
        }
        let one = bytes[0];
        assert_eq!(bytes, [one, one, 2 * one, 3 * one]);
    }

    #[test]
    fn the_smallest_have_the_room_and_what_goes_leaves_its_own_to_others() {
        // 1,000 trees of 330 kB each, of which there is room for about a hundred.
        let long = |id: u64| format!("{}n == {id}", "a|".repeat(4_000));
        let mut asked = Asked::default();
        let mut all = BTreeMap::new();
        let mut put_new = |asked: &mut Asked, import: Import| {
            let port = import.port.clone();
            all.insert(port.clone(), import);
            put(asked, &all, &port);
            asked.without_room(&port)
        };
        let refused: Vec<NoRoom> =
            (0..1_000).filter_map(|id| put_new(&mut asked, import(id, Some(&long(id)), None))).collect();
        let kept = asked.asking.values().filter(|asking| asking.kept.is_some()).count();
        assert!(asked.bytes <= ROOM && (80..120).contains(&kept), "{} {kept}", asked.bytes);
        let words = refused.last().unwrap().to_string();
        assert!(words.starts_with("the subscription of in-9") && words.contains("33554432"), "{words}");
        // Who asks for little has room all the same.
        for id in 1_000..2_000 {
            assert_eq!(put_new(&mut asked, import(id, Some(&format!("n == {id}")), None)), None, "{id}");
        }
        assert!(asked.bytes <= ROOM, "{}", asked.bytes);
        for id in 0..930 {
            asked.remove(&port(id));
        }
        assert!((0..2_000).all(|id| asked.without_room(&port(id)).is_none()));
        (930..2_000).for_each(|id| _ = asked.remove(&port(id)));
        assert!(asked.is_empty(), "nothing is kept of what nobody asks for any more");
    }

    #[test]
    fn without_its_filter_an_import_gets_nothing() {
        // There is room for the name of the stream.
        let mut asked = Asked::within(TEXT_BYTES + 199);
        let long = "x".repeat(200);
        let mut import = import(0, None, Some(&long));
        import.named = [NamedStream { application: None, scope: "s".into(), stream: "t".into() }].into();
        asked.put_import(&mut import);
        assert!(import.named.is_empty() && import.filter.is_none(), "{import:?}");
        let told = asked.without_room(&port(0)).map(|told| (told.part, told.bytes));
        assert_eq!(told, Some((Part::Filter, TEXT_BYTES + 200)));
    }

    proptest! {
        /// Replicas have seen it come in different orders.
        #[test]
        fn who_has_room_depends_on_nothing_but_what_is_asked_for(
            changes in prop::collection::vec(
                (0u64..6, prop::option::of(0usize..40), prop::option::of(0usize..40), any::<bool>()), 1..40
            )
        ) {
            const ROOM: usize = 8_000;
            let mut asked = Asked::within(ROOM);
            let mut all = BTreeMap::new();
            for (id, subscription, filter, is_removed) in changes {
                let port = port(id);
                if is_removed {
                    all.remove(&port);
                    let again = asked.remove(&port).again;
                    put_all(&mut asked, &all, again);
                } else {
                    let subscription = subscription.map(|length| "a|".repeat(length) + "b");
                    let filter = filter.map(|length| "f".repeat(100 * length));
                    all.insert(port.clone(), import(id, subscription.as_deref(), filter.as_deref()));
                    put(&mut asked, &all, &port);
                }
                let mut anew = Asked::within(ROOM);
                all.keys().rev().for_each(|port| put(&mut anew, &all, port));
                prop_assert_eq!(left(&mut asked, &all), left(&mut anew, &all));
                prop_assert!(asked.is_within() && asked.held == asked.bytes, "{asked:?}");
            }
            all.keys().for_each(|port| _ = asked.remove(port));
            prop_assert!(asked.is_empty());
        }
    }
}
