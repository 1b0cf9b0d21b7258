//! What imports ask for in so many words: the trees of subscriptions, and filters. There is one of each for all imports
//! that ask for the same: channels of a region mostly do, and a tree takes up to forty times as much as its text. And
//! there is room for so many only, because whoever may write imports may write thousands, each of which asks for
//! something else (rule import-12).
//!
//! The smallest have the room, whatever came first. So what is kept depends on nothing but what is asked for, and is
//! the same in all replicas; and nobody who asks for little has to make way for somebody who asks for much.
//!
//! Knows: how much a text takes. Must not know: what matches.
//!
//! Invariants: what is kept takes no more than there is room for, and what is next would not fit beside it. Of what is
//! not kept there is a digest, and of what no import asks for any more there is nothing.

use crate::fact::Import;
use crate::port::Port;
use sha2::{Digest as _, Sha256};
use spl_expression::Expression;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::Bound;
use std::sync::Arc;

/// Bytes that the subscriptions and filters of a namespace may take.
pub(crate) const ROOM: usize = 32 << 20;
/// Bytes of a text beside its own: its digest, and which import has it.
const TEXT_BYTES: usize = 512;
/// Bytes of an entry by which a subscription is found, beside the name of a property and its value.
const NEED_BYTES: usize = 160;
/// Entries by which a subscription is found, at most.
const NEEDS_MAX: usize = 256;

/// A part of what an import asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// Its subscription.
    Subscription,
    /// Its filter.
    Filter,
}

impl fmt::Display for Part {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Subscription => "subscription",
            Self::Filter => "filter",
        })
    }
}

/// There is no room for a part of what an import asks for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the {part} of {port} takes {bytes} bytes of memory, for which there is no room: all subscriptions and filters of \
     imports of the namespace have {} together, and the smallest go first",
    ROOM
)]
pub struct NoRoom {
    /// The input port.
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
    fn of(part: Part, text: &str, bytes: usize) -> Self {
        Self { bytes: TEXT_BYTES + bytes, part, digest: Sha256::digest(text).into() }
    }

    fn of_subscription(expression: &Expression) -> Self {
        // Texts and names are in the text, and literals and needs have them again.
        let texts = expression.memory() + expression.length();
        let needs = NEED_BYTES * expression.operands_at_most().min(NEEDS_MAX);
        Self::of(Part::Subscription, expression.text(), texts + needs)
    }

    fn of_filter(filter: &str) -> Self {
        Self::of(Part::Filter, filter, filter.len())
    }
}

/// Who asks for it.
#[derive(Debug, Default)]
struct Asking {
    /// None has it if there is no room, nor before the first of those that are asked again has been.
    kept: Option<Kept>,
    ports: BTreeSet<Port>,
}

/// What all share that ask for the same.
#[derive(Clone, Debug)]
enum Kept {
    Subscription(Arc<Expression>),
    Filter(Arc<str>),
}

/// Ports of imports for which something is otherwise than it was.
#[derive(Debug, Default)]
pub(crate) struct Moved {
    /// There is no room any more for a part of what they ask for ([`Asked::leave_out`]).
    pub(crate) without: BTreeSet<Port>,
    /// There is room now, for what has to be given again.
    pub(crate) with: BTreeSet<Port>,
}

/// What the imports of a board ask for.
#[derive(Debug)]
pub(crate) struct Asked {
    asking: BTreeMap<Rank, Asking>,
    /// The parts of a port, by which it is found there.
    of_port: BTreeMap<Port, Vec<Rank>>,
    /// The first for which there is no room. All after it have none either.
    first_without: Option<Rank>,
    /// What those take for which there is.
    bytes: usize,
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
        Self { asking: BTreeMap::new(), of_port: BTreeMap::new(), first_without: None, bytes: 0, room }
    }

    /// The import asks for this, and no longer for what its port asked for before. It gets what others share that ask
    /// for the same. Of what there is no room for nothing stays in it: it matches nothing by such a subscription, and
    /// nothing at all without its filter. Returns what becomes of others.
    pub(crate) fn put(&mut self, import: &mut Import) -> Moved {
        let subscription = import.subscription.as_ref().map(|asked| Rank::of_subscription(&asked.expression));
        let filter = import.filter.as_deref().map(Rank::of_filter);
        let ranks: Vec<Rank> = subscription.into_iter().chain(filter).collect();
        let mut others = self.ask(&import.port, ranks);
        others.without.remove(&import.port);
        others.with.remove(&import.port);
        if let (Some(rank), Some(asked)) = (subscription, &mut import.subscription) {
            match self.kept(&rank, || Kept::Subscription(Arc::clone(&asked.expression))) {
                Some(Kept::Subscription(expression)) => asked.expression = expression,
                _ => import.subscription = None,
            }
        }
        if let (Some(rank), Some(asked)) = (filter, &mut import.filter) {
            match self.kept(&rank, || Kept::Filter(Arc::clone(asked))) {
                Some(Kept::Filter(filter)) => *asked = filter,
                _ => get_nothing(import),
            }
        }
        others
    }

    /// Takes out of an import what there is no room for.
    pub(crate) fn leave_out(&self, import: &mut Import) {
        let ranks = self.of_port.get(&import.port).into_iter().flatten();
        for rank in ranks.filter(|rank| !self.has_room(rank)) {
            match rank.part {
                Part::Subscription => import.subscription = None,
                Part::Filter => get_nothing(import),
            }
        }
    }

    /// The port asks for nothing any more. Returns what becomes of others.
    pub(crate) fn remove(&mut self, port: &Port) -> Moved {
        self.ask(port, Vec::new())
    }

    /// The first part of what a port asks for that there is no room for.
    pub(crate) fn without_room(&self, port: &Port) -> Option<NoRoom> {
        let rank = self.of_port.get(port)?.iter().find(|rank| !self.has_room(rank))?;
        Some(NoRoom { port: port.clone(), part: rank.part, bytes: rank.bytes })
    }

    /// What is kept of this, if there is room for it: this one, if nothing is.
    fn kept(&mut self, rank: &Rank, this: impl FnOnce() -> Kept) -> Option<Kept> {
        if !self.has_room(rank) {
            return None;
        }
        let asking = self.asking.get_mut(rank)?;
        Some(asking.kept.get_or_insert_with(this).clone())
    }

    fn has_room(&self, rank: &Rank) -> bool {
        self.first_without.is_none_or(|first| *rank < first)
    }

    /// The port asks for these, and for nothing else.
    fn ask(&mut self, port: &Port, ranks: Vec<Rank>) -> Moved {
        for rank in &ranks {
            let asking = self.asking.entry(*rank).or_default();
            let is_new = asking.ports.is_empty();
            asking.ports.insert(port.clone());
            if is_new && self.has_room(rank) {
                self.bytes += rank.bytes;
            }
        }
        let before =
            if ranks.is_empty() { self.of_port.remove(port) } else { self.of_port.insert(port.clone(), ranks) };
        let now = self.of_port.get(port).map_or(&[][..], Vec::as_slice);
        let gone: Vec<Rank> = before.into_iter().flatten().filter(|rank| !now.contains(rank)).collect();
        for rank in gone {
            let Some(asking) = self.asking.get_mut(&rank) else { continue };
            asking.ports.remove(port);
            if asking.ports.is_empty() {
                self.asking.remove(&rank);
                if self.has_room(&rank) {
                    self.bytes -= rank.bytes;
                }
            }
        }
        self.share_out()
    }

    /// Gives the room to the smallest.
    fn share_out(&mut self) -> Moved {
        let mut others = Moved::default();
        while self.bytes > self.room {
            let largest = match self.first_without {
                Some(first) => self.asking.range_mut(..first).next_back(),
                None => self.asking.iter_mut().next_back(),
            };
            let Some((rank, asking)) = largest else { break };
            asking.kept = None;
            others.without.extend(asking.ports.iter().cloned());
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
            others.with.extend(asking.ports.iter().cloned());
            let after = self.asking.range((Bound::Excluded(*rank), Bound::Unbounded)).next();
            self.first_without = after.map(|(next, _)| *next);
        }
        others
    }
}

/// Who has no filter any more must not get all tuples instead.
fn get_nothing(import: &mut Import) {
    import.named.clear();
    (import.subscription, import.filter) = (None, None);
}

#[cfg(test)]
impl Moved {
    fn into_ports(self) -> BTreeSet<Port> {
        self.without.into_iter().chain(self.with).collect()
    }
}

#[cfg(test)]
impl Asked {
    /// Whether nothing at all is kept.
    pub(crate) fn is_empty(&self) -> bool {
        self.asking.is_empty() && self.of_port.is_empty() && self.first_without.is_none() && self.bytes == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fact::Subscription;
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
        Import { port: port(id), job_id: 1, port_index: 0, named: Vec::new(), subscription, filter }
    }

    /// Puts the import, and those again that are to be.
    fn put(asked: &mut Asked, all: &BTreeMap<Port, Import>, port: &Port) {
        let mut again = asked.put(&mut all[port].clone()).into_ports();
        while let Some(port) = again.pop_first() {
            let more = asked.put(&mut all[&port].clone()).into_ports();
            assert!(more.is_empty(), "{more:?} have to be put again, though nothing is asked for that was not");
        }
    }

    /// What is left of each.
    fn left(asked: &mut Asked, all: &BTreeMap<Port, Import>) -> Vec<(Option<String>, Option<String>, bool)> {
        let each = all.values().cloned().map(|mut import| {
            assert!(asked.put(&mut import).into_ports().is_empty());
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
            asked.put(&mut import);
            (import.subscription.unwrap().expression, import.filter.unwrap())
        };
        let (first, like, other) = (of(0, "a == 1"), of(1, "a == 1"), of(2, "a  == 1"));
        assert!(Arc::ptr_eq(&first.0, &like.0) && !Arc::ptr_eq(&first.0, &other.0));
        assert!(Arc::ptr_eq(&first.1, &like.1) && Arc::ptr_eq(&first.1, &other.1));
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
        let mut asked = Asked::within(TEXT_BYTES + 10);
        let long = "x".repeat(11);
        let mut import = import(0, None, Some(&long));
        import.named = vec![crate::fact::NamedStream { application: None, scope: "s".into(), stream: "t".into() }];
        asked.put(&mut import);
        assert!(import.named.is_empty() && import.filter.is_none(), "{import:?}");
        let told = asked.without_room(&port(0)).map(|told| (told.part, told.bytes));
        assert_eq!(told, Some((Part::Filter, TEXT_BYTES + 11)));
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
                    let again = asked.remove(&port).into_ports();
                    again.iter().for_each(|port| put(&mut asked, &all, port));
                } else {
                    let subscription = subscription.map(|length| "a|".repeat(length) + "b");
                    let filter = filter.map(|length| "f".repeat(100 * length));
                    all.insert(port.clone(), import(id, subscription.as_deref(), filter.as_deref()));
                    put(&mut asked, &all, &port);
                }
                let mut anew = Asked::within(ROOM);
                all.keys().rev().for_each(|port| put(&mut anew, &all, port));
                prop_assert_eq!(left(&mut asked, &all), left(&mut anew, &all));
                let kept = asked.asking.iter().filter(|(_, asking)| asking.kept.is_some());
                prop_assert_eq!(kept.map(|(rank, _)| rank.bytes).sum::<usize>(), asked.bytes);
                prop_assert!(asked.bytes <= ROOM);
            }
            all.keys().for_each(|port| _ = asked.remove(port));
            prop_assert!(asked.is_empty());
        }
    }
}
