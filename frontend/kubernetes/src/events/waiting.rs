//! Events that wait to be published: a bounded number of them.
//!
//! Warnings go before Normal Events, and in both classes the objects that they are about take turns. When there are too
//! many, a Normal Event goes, if there is one; of the object that has most, the newest.
//!
//! Knows: what an Event is about. Must not know: how it is published.

use k8s_openapi::api::events::v1::Event;
use std::collections::{BTreeMap, VecDeque};

/// What an Event is about: kind, namespace, name and uid.
type About = [String; 4];

/// Events that wait.
#[derive(Debug, Default)]
pub(super) struct Waiting {
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
        let is_warning = event.type_.as_deref() == Some("Warning");
        let class = if is_warning { &mut self.warnings } else { &mut self.others };
        class.add(event);
        if self.warnings.count + self.others.count <= most {
            return None;
        }
        self.others.drop_one().or_else(|| self.warnings.drop_one())
    }

    /// The next Event to publish.
    pub(super) fn next(&mut self) -> Option<Event> {
        self.warnings.next().or_else(|| self.others.next())
    }
}

impl Class {
    fn add(&mut self, event: Event) {
        let about = about(&event);
        let events = self.by_object.entry(about.clone()).or_default();
        if events.is_empty() {
            self.turns.push_back(about);
        }
        events.push_back(event);
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

    /// Takes the newest Event of the object that has most.
    fn drop_one(&mut self) -> Option<Event> {
        let most = self.by_object.iter().max_by_key(|(_, events)| events.len());
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

    /// `w` or `n` for the type, then the object, then a number.
    fn event(text: &str) -> Event {
        let kind = if text.starts_with('w') { "Warning" } else { "Normal" };
        let name = text.get(1..2).map(str::to_owned);
        Event {
            type_: Some(kind.to_owned()),
            regarding: Some(ObjectReference { name, ..ObjectReference::default() }),
            note: Some(text.to_owned()),
            ..Event::default()
        }
    }

    #[test]
    fn warnings_go_first_objects_take_turns_and_the_loudest_loses() {
        // added, at most 4 -> dropped, published
        let table = [
            ("na1 na2 nb1", "", "na1 nb1 na2"),
            ("na1 wb1 na2 wa1", "", "wb1 wa1 na1 na2"),
            ("na1 na2 na3 nb1 wb1", "na3", "wb1 na1 nb1 na2"),
            ("na1 na2 na3 na4 nb1", "na4", "na1 nb1 na2 na3"),
            ("wa1 wa2 wa3 wb1 na1", "na1", "wa1 wb1 wa2 wa3"),
            ("wa1 wa2 wa3 wb1 wb2", "wa3", "wa1 wb1 wa2 wb2"),
        ];
        for (added, dropped, published) in table {
            let mut waiting = Waiting::default();
            let notes =
                |events: Vec<Event>| events.into_iter().filter_map(|event| event.note).collect::<Vec<_>>().join(" ");
            let gone = added.split(' ').filter_map(|text| waiting.add(event(text), 4)).collect();
            let told = std::iter::from_fn(|| waiting.next()).collect();
            assert_eq!((notes(gone), notes(told)), (dropped.to_owned(), published.to_owned()), "{added}");
        }
    }
}
