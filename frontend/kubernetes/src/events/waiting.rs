//! Events that wait to be published: a bounded number of them.
//!
//! Namespaces take turns: whatever happens in one, it delays those of the others by as many Events as there are
//! namespaces. Within a namespace Warnings go before Normal Events, and in both classes the objects that they are about
//! take turns. When there are too many, one goes of the namespace that has most: a Normal one, if there is one; of the
//! object that has most, the newest.
//!
//! Knows: what an Event is about. Must not know: how it is published.

use k8s_openapi::api::events::v1::Event;
use std::collections::{BTreeMap, VecDeque};

/// What an Event is about: kind, namespace, name and uid.
type About = [String; 4];

/// Events that wait.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    by_namespace: BTreeMap<String, OfNamespace>,
    /// The namespaces that have Events here, in the order of their turns.
    turns: VecDeque<String>,
    count: usize,
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
        let added = about(&event);
        let [_, namespace, ..] = &added;
        let of_namespace = self.by_namespace.entry(namespace.clone()).or_default();
        if of_namespace.count() == 0 {
            self.turns.push_back(namespace.clone());
        }
        let is_warning = event.type_.as_deref() == Some("Warning");
        let class = if is_warning { &mut of_namespace.warnings } else { &mut of_namespace.others };
        class.add(event);
        self.count += 1;
        if self.count <= most { None } else { self.drop_one(&added) }
    }

    /// The next Event to publish.
    pub(super) fn next(&mut self) -> Option<Event> {
        let namespace = self.turns.pop_front()?;
        let of_namespace = self.by_namespace.get_mut(&namespace)?;
        let event = of_namespace.warnings.next().or_else(|| of_namespace.others.next())?;
        if of_namespace.count() == 0 {
            self.by_namespace.remove(&namespace);
        } else {
            self.turns.push_back(namespace);
        }
        self.count -= 1;
        Some(event)
    }

    /// Takes an Event of the namespace that has most; of several, that of the one that was added.
    fn drop_one(&mut self, added: &About) -> Option<Event> {
        let [_, to, ..] = added;
        let most = self.by_namespace.iter().max_by_key(|(name, events)| (events.count(), *name == to));
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
            let told = std::iter::from_fn(|| waiting.next()).collect();
            assert_eq!((notes(gone), notes(told)), (dropped.to_owned(), published.to_owned()), "{added}");
        }
    }
}
