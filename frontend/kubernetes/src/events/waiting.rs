//! Events that wait to be published: a bounded number of them.
//!
//! Namespaces take turns: whatever happens in one, it delays those of the others by as many Events as there are
//! namespaces. Within a namespace Warnings go before Normal Events, and in both classes the objects that they are about
//! take turns. When there are too many, one goes of the namespace that has most: a Normal one, if there is one; of the
//! object that has most, the newest.
//!
//! A namespace has one turn at a time, and rests after one that failed: an admission webhook of it may be down, and
//! each turn take seconds. Until one succeeds, it also loses Events before all others. Of several turns in a row that
//! failed, the Event of the first one is published again: a single failure costs none.
//!
//! Knows: what an Event is about. Must not know: how it is published.

use k8s_openapi::api::events::v1::Event;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;
use tokio::time::Instant;

/// How long a namespace rests after a turn that failed; doubled with each further one.
const FIRST_REST: Duration = Duration::from_secs(1);
/// At most. A namespace whose last failure was longer ago than this after its rest is like all others.
const LONGEST_REST: Duration = Duration::from_secs(60);

/// What an Event is about: kind, namespace, name and uid.
type About = [String; 4];

/// Events that wait.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    by_namespace: BTreeMap<String, OfNamespace>,
    /// The namespaces that have Events here, in the order of their turns.
    turns: VecDeque<String>,
    count: usize,
    /// The namespaces that have their turn now.
    having_turn: BTreeSet<String>,
    /// The namespaces whose last turn failed.
    failing: BTreeMap<String, Failing>,
}

/// Turns of a namespace that failed, one after the other.
#[derive(Clone, Copy, Debug)]
struct Failing {
    rest: Duration,
    until: Instant,
}

/// How the turn of a namespace ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TurnEnd {
    /// The Event was published, or refused.
    Answered,
    /// It could not be published, and perhaps nothing of this namespace can.
    Failed,
}

/// Where an Event is added.
#[derive(Clone, Copy, Debug)]
enum End {
    Back,
    Front,
}

/// The Events of one namespace, by class.
#[derive(Debug, Default)]
struct OfNamespace {
    warnings: Class,
    others: Class,
}

/// The Events of one class, by object.
#[derive(Debug, Default)]
struct Class {
    by_object: BTreeMap<About, VecDeque<Event>>,
    /// The objects that have Events here, in the order of their turns.
    turns: VecDeque<About>,
    count: usize,
}

impl Waiting {
    /// Adds an Event. Returns the one that goes because more than `most` would wait.
    pub(super) fn add(&mut self, event: Event, most: usize) -> Option<Event> {
        self.add_at(event, End::Back, most)
    }

    fn add_at(&mut self, event: Event, end: End, most: usize) -> Option<Event> {
        let added = about(&event);
        let [_, namespace, ..] = &added;
        let of_namespace = self.by_namespace.entry(namespace.clone()).or_default();
        if of_namespace.count() == 0 {
            self.turns.push_back(namespace.clone());
        }
        let is_warning = event.type_.as_deref() == Some("Warning");
        let class = if is_warning { &mut of_namespace.warnings } else { &mut of_namespace.others };
        class.add(event, end);
        self.count += 1;
        if self.count <= most { None } else { self.drop_one(&added) }
    }

    /// The next Event to publish, if there is one that may be. Its namespace has its turn until it [ends](Self::end).
    pub(super) fn next(&mut self, now: Instant) -> Option<(String, Event)> {
        self.failing.retain(|_, failing| now < failing.until + LONGEST_REST);
        let (having_turn, failing) = (&self.having_turn, &self.failing);
        let may = |namespace: &String| {
            !having_turn.contains(namespace) && failing.get(namespace).is_none_or(|failing| failing.until <= now)
        };
        let at = self.turns.iter().position(may)?;
        let namespace = self.turns.remove(at)?;
        let of_namespace = self.by_namespace.get_mut(&namespace)?;
        let event = of_namespace.warnings.next().or_else(|| of_namespace.others.next())?;
        if of_namespace.count() == 0 {
            self.by_namespace.remove(&namespace);
        } else {
            self.turns.push_back(namespace.clone());
        }
        self.count -= 1;
        self.having_turn.insert(namespace.clone());
        Some((namespace, event))
    }

    /// The turn of a namespace has ended.
    pub(super) fn end(&mut self, namespace: &str, how: TurnEnd, now: Instant) {
        self.having_turn.remove(namespace);
        let before = self.failing.remove(namespace);
        if how == TurnEnd::Failed {
            let rest = before.map_or(FIRST_REST, |before| (2 * before.rest).min(LONGEST_REST));
            self.failing.insert(namespace.to_owned(), Failing { rest, until: now + rest });
        }
    }

    /// Whether turns of a namespace have failed lately, and none has succeeded since.
    pub(super) fn fails(&self, namespace: &str) -> bool {
        self.failing.contains_key(namespace)
    }

    /// Adds an Event again that was the next one and could not be published: it is the next one of its class and
    /// object. Returns the one that goes because more than `most` would wait.
    pub(super) fn put_back(&mut self, event: Event, most: usize) -> Option<Event> {
        self.add_at(event, End::Front, most)
    }

    /// When the first rest ends of a namespace that has Events here and no turn.
    pub(super) fn next_due(&self) -> Option<Instant> {
        let waits = |namespace: &String| !self.having_turn.contains(namespace);
        let rests = self.turns.iter().filter(|namespace| waits(namespace));
        rests.filter_map(|namespace| self.failing.get(namespace)).map(|failing| failing.until).min()
    }

    /// How many wait.
    pub(super) fn len(&self) -> usize {
        self.count
    }

    /// Takes an Event of a namespace whose turns fail, and of several, or none, of that which has most; of several of
    /// these, that of the one that was added.
    fn drop_one(&mut self, added: &About) -> Option<Event> {
        let [_, to, ..] = added;
        let order =
            |(name, events): &(&String, &OfNamespace)| (self.failing.contains_key(*name), events.count(), *name == to);
        let most = self.by_namespace.iter().max_by_key(order);
        let namespace = most.map(|(name, _)| name.clone())?;
        let of_namespace = self.by_namespace.get_mut(&namespace)?;
        let event = of_namespace.others.drop_one(added).or_else(|| of_namespace.warnings.drop_one(added))?;
        if of_namespace.count() == 0 {
            self.by_namespace.remove(&namespace);
            self.turns.retain(|turn| *turn != namespace);
        }
        self.count -= 1;
        Some(event)
    }
}

impl OfNamespace {
    fn count(&self) -> usize {
        self.warnings.count + self.others.count
    }
}

impl Class {
    fn add(&mut self, event: Event, end: End) {
        let about = about(&event);
        let events = self.by_object.entry(about.clone()).or_default();
        match end {
            End::Back => {
                if events.is_empty() {
                    self.turns.push_back(about);
                }
                events.push_back(event);
            }
            End::Front => {
                self.turns.retain(|turn| *turn != about);
                self.turns.push_front(about);
                events.push_front(event);
            }
        }
        self.count += 1;
    }

    fn next(&mut self) -> Option<Event> {
        let about = self.turns.pop_front()?;
        let events = self.by_object.get_mut(&about)?;
        let event = events.pop_front()?;
        if events.is_empty() {
            self.by_object.remove(&about);
        } else {
            self.turns.push_back(about);
        }
        self.count -= 1;
        Some(event)
    }

    /// Takes the newest Event of the object that has most; of several, of the one to which one was added.
    fn drop_one(&mut self, added: &About) -> Option<Event> {
        let most = self.by_object.iter().max_by_key(|(about, events)| (events.len(), *about == added));
        let about = most.map(|(about, _)| about.clone())?;
        let events = self.by_object.get_mut(&about)?;
        let event = events.pop_back()?;
        if events.is_empty() {
            self.by_object.remove(&about);
            self.turns.retain(|turn| *turn != about);
        }
        self.count -= 1;
        Some(event)
    }
}

fn about(event: &Event) -> About {
    let of = event.regarding.clone().unwrap_or_default();
    [of.kind, of.namespace, of.name, of.uid].map(Option::unwrap_or_default)
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::ObjectReference;

    /// `w` or `n` for the type, then the object, then a number. The namespace is `x`, or before a slash.
    fn event(text: &str) -> Event {
        let (namespace, event) = text.split_once('/').unwrap_or(("x", text));
        let kind = if event.starts_with('w') { "Warning" } else { "Normal" };
        let (name, namespace) = (event.get(1..2).map(str::to_owned), Some(namespace.to_owned()));
        Event {
            type_: Some(kind.to_owned()),
            regarding: Some(ObjectReference { name, namespace, ..ObjectReference::default() }),
            note: Some(text.to_owned()),
            ..Event::default()
        }
    }

    /// The next Event, whose turn ends at once like this.
    fn next(waiting: &mut Waiting, now: Instant, end: TurnEnd) -> Option<Event> {
        let (namespace, event) = waiting.next(now)?;
        waiting.end(&namespace, end, now);
        Some(event)
    }

    #[test]
    fn a_namespace_has_one_turn_at_a_time() {
        let (mut waiting, now) = (Waiting::default(), Instant::now());
        ["a/na1", "a/na2", "b/na1", "b/na2"].iter().for_each(|text| drop(waiting.add(event(text), 9)));
        let note = |waiting: &mut Waiting| waiting.next(now).and_then(|(_, event)| event.note);
        assert_eq!([note(&mut waiting), note(&mut waiting)], ["a/na1", "b/na1"].map(|note| Some(note.to_owned())));
        assert_eq!((note(&mut waiting), waiting.next_due(), waiting.len()), (None, None, 2));
        waiting.end("b", TurnEnd::Answered, now);
        assert_eq!([note(&mut waiting), note(&mut waiting)], [Some("b/na2".to_owned()), None]);
    }

    #[test]
    fn a_namespace_whose_turns_fail_rests_and_loses_events_first() {
        let (mut waiting, start) = (Waiting::default(), Instant::now());
        let second = Duration::from_secs(1);
        (0..20).for_each(|number| drop(waiting.add(event(&format!("a/wa{number}")), 99)));
        let mut now = start;
        for seconds in [1, 2, 4, 8, 16, 32, 60, 60] {
            assert!(next(&mut waiting, now, TurnEnd::Failed).is_some());
            assert_eq!(waiting.next_due(), Some(now + seconds * second));
            assert!(waiting.next(now + seconds * second - Duration::from_millis(1)).is_none());
            now += seconds * second;
        }
        // Others do not wait for it, and what is too much is its.
        (0..3).for_each(|number| drop(waiting.add(event(&format!("b/na{number}")), 99)));
        assert!(next(&mut waiting, now, TurnEnd::Failed).is_some());
        assert_eq!(next(&mut waiting, now, TurnEnd::Answered).and_then(|event| event.note).as_deref(), Some("b/na0"));
        for left in (0..waiting.len() - 2).rev() {
            let dropped = waiting.add(event("c/na1"), 3 + left).and_then(|event| event.note);
            assert!(dropped.is_some_and(|note| note.starts_with("a/")), "{left}");
            assert!(next(&mut waiting, now, TurnEnd::Answered).is_some());
        }
        // One that succeeds, or a while without any, and it is like all others.
        for forgets in [true, false] {
            let (mut waiting, now) = (Waiting::default(), start);
            ["a/na1", "a/na2", "a/na3"].iter().for_each(|text| drop(waiting.add(event(text), 9)));
            let first = if forgets { TurnEnd::Failed } else { TurnEnd::Answered };
            next(&mut waiting, now, first);
            let now = if forgets { now + second + LONGEST_REST } else { now };
            next(&mut waiting, now, TurnEnd::Failed);
            assert_eq!(waiting.next_due(), Some(now + FIRST_REST), "{forgets}");
        }
    }

    #[test]
    fn what_is_put_back_is_the_next_of_its_class() {
        // added before the first one is taken, and before it is put back, at most 4 -> dropped, published
        let table = [
            ("na1 na2 nb1", "", "", "na1 nb1 na2"),
            ("na1", "", "", "na1"),
            ("wa1 na1 wa2 wb1", "", "", "wa1 wb1 wa2 na1"),
            ("na1 nb1 wa1 na2", "", "", "wa1 na1 nb1 na2"),
            ("na1 na2", "na3 wb1", "", "wb1 na1 na2 na3"),
            ("na1 na2", "na3 nb1 wb1", "na3", "wb1 na1 nb1 na2"),
        ];
        for (before, meanwhile, dropped, published) in table {
            let (mut waiting, now) = (Waiting::default(), Instant::now());
            let add_all = |waiting: &mut Waiting, texts: &str| {
                texts.split_whitespace().for_each(|text| assert_eq!(waiting.add(event(text), 4), None));
            };
            add_all(&mut waiting, before);
            let (namespace, taken) = waiting.next(now).unwrap();
            add_all(&mut waiting, meanwhile);
            let gone = waiting.put_back(taken, 4).and_then(|event| event.note).unwrap_or_default();
            waiting.end(&namespace, TurnEnd::Answered, now);
            let told = std::iter::from_fn(|| next(&mut waiting, now, TurnEnd::Answered)?.note).collect::<Vec<_>>();
            assert_eq!((&*gone, &*told.join(" ")), (dropped, published), "{before} {meanwhile}");
        }
    }

    #[test]
    fn namespaces_and_objects_take_turns_warnings_go_first_and_the_loudest_loses() {
        // added, at most 4 -> dropped, published
        let table = [
            ("na1 na2 nb1", "", "na1 nb1 na2"),
            ("na1 wb1 na2 wa1", "", "wb1 wa1 na1 na2"),
            ("na1 na2 na3 nb1 wb1", "na3", "wb1 na1 nb1 na2"),
            ("na1 na2 na3 na4 nb1", "na4", "na1 nb1 na2 na3"),
            ("wa1 wa2 wa3 wb1 na1", "na1", "wa1 wb1 wa2 wa3"),
            ("wa1 wa2 wa3 wb1 wb2", "wa3", "wa1 wb1 wa2 wb2"),
            ("wa1 wb1 wc1 wd1 we1", "we1", "wa1 wb1 wc1 wd1"),
            // Whatever its neighbours are called, and whatever it tells, nobody takes the place of others.
            ("a/wa1 a/wb1 a/wc1 z/na1", "", "a/wa1 z/na1 a/wb1 a/wc1"),
            ("a/wa1 a/wb1 a/wc1 z/na1 a/wd1", "a/wd1", "a/wa1 z/na1 a/wb1 a/wc1"),
            ("z/wa1 z/wb1 z/wc1 z/wd1 a/na1", "z/wd1", "z/wa1 a/na1 z/wb1 z/wc1"),
            ("a/na1 b/na1 c/na1 d/na1 a/wa1", "a/na1", "a/wa1 b/na1 c/na1 d/na1"),
        ];
        for (added, dropped, published) in table {
            let mut waiting = Waiting::default();
            let notes =
                |events: Vec<Event>| events.into_iter().filter_map(|event| event.note).collect::<Vec<_>>().join(" ");
            let gone = added.split(' ').filter_map(|text| waiting.add(event(text), 4)).collect();
            let told = std::iter::from_fn(|| next(&mut waiting, Instant::now(), TurnEnd::Answered)).collect();
            assert_eq!((notes(gone), notes(told)), (dropped.to_owned(), published.to_owned()), "{added}");
        }
    }
}
