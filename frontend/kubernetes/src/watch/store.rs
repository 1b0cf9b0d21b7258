//! The objects of a kind, by name and by group.
//!
//! Names of namespaces, jobs and groups are there many times: objects that are beside each other share them.

use super::kept::Kept;
use super::packed::Packer;
use super::{Index, Mirrored};
use crate::Key;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::ops::Bound;
use std::sync::Arc;

/// An object before and after; one of them is missing if it is new or gone.
pub(super) struct Replacement<K> {
    pub(super) before: Option<Kept<K>>,
    pub(super) after: Option<Kept<K>>,
    /// Whoever is found by the state before is found by the one after as well: both have the same groups and the same
    /// spec.
    pub(super) is_in_place: bool,
}

/// An object on its way into the mirror.
pub(super) struct Arrival<K> {
    key: Key,
    entry: Entry<K>,
}

struct Entry<K> {
    /// Its group, for each index.
    groups: Box<[Option<Key>]>,
    /// Of its spec, for kinds whose specs are counted.
    generation: Option<i64>,
    object: Kept<K>,
}

pub(super) struct Store<K> {
    objects: BTreeMap<Key, Entry<K>>,
    indexes: &'static [Index],
    /// Groups with the names in them, for each index.
    groups: Vec<BTreeSet<(Key, Key)>>,
}

impl<K: Mirrored> Store<K> {
    pub(super) fn new(indexes: &'static [Index]) -> Self {
        Self { objects: BTreeMap::new(), indexes, groups: vec![BTreeSet::new(); indexes.len()] }
    }

    /// What the mirror would keep of an object. It takes a while.
    pub(super) fn arrival(indexes: &[Index], packer: Option<&Packer>, object: Arc<K>) -> Arrival<K> {
        let groups = indexes.iter().map(|index| (index.group)(object.meta())).collect();
        let (key, generation) = (Key::of(&*object), object.meta().generation);
        Arrival { key, entry: Entry { groups, generation, object: Kept::new(object, packer) } }
    }

    pub(super) fn len(&self) -> usize {
        self.objects.len()
    }

    pub(super) fn get(&self, key: &Key) -> Option<Kept<K>> {
        self.objects.get(key).map(|entry| entry.object.clone())
    }

    pub(super) fn keys(&self) -> Vec<Key> {
        self.objects.keys().cloned().collect()
    }

    pub(super) fn list(&self) -> Vec<Kept<K>> {
        self.objects.values().map(|entry| entry.object.clone()).collect()
    }

    pub(super) fn of_namespace(&self, namespace: &str) -> Vec<Kept<K>> {
        from(&self.objects, namespace)
            .take_while(|(key, _)| &*key.namespace == namespace)
            .map(|(_, entry)| entry.object.clone())
            .collect()
    }

    pub(super) fn of_group(&self, index: &Index, group: &Key) -> Vec<(Key, Kept<K>)> {
        let all = self.indexes.iter().zip(&self.groups);
        let groups = all.filter(|(known, _)| known.name == index.name).map(|(_, groups)| groups);
        let keys = groups.flat_map(|groups| members(groups, group));
        keys.filter_map(|key| Some((key.clone(), self.get(key)?))).collect()
    }

    /// Adds or replaces an object.
    pub(super) fn apply(&mut self, arrival: Arrival<K>) -> Vec<Replacement<K>> {
        let Arrival { key, mut entry } = arrival;
        let key = self.sharing(key);
        for (group, known) in entry.groups.iter_mut().zip(&self.groups) {
            *group = group.take().map(|group| sharing(known, &key, group));
        }
        let (groups, generation, after) = (entry.groups.clone(), entry.generation, entry.object.clone());
        let before = self.objects.insert(key.clone(), entry);
        let has_same_groups = before.as_ref().is_some_and(|before| before.groups == groups);
        if !has_same_groups {
            if let Some(before) = &before {
                self.unindex(&key, &before.groups);
            }
            for (group, known) in groups.into_iter().zip(&mut self.groups) {
                known.extend(group.map(|group| (group, key.clone())));
            }
        }
        let is_in_place = has_same_groups && before.as_ref().is_some_and(|before| before.generation == generation);
        let before = before.map(|entry| entry.object);
        let unchanged = before.as_ref().is_some_and(|before| before.is_same(&after));
        if unchanged { Vec::new() } else { vec![Replacement { before, after: Some(after), is_in_place }] }
    }

    /// Removes an object.
    pub(super) fn delete(&mut self, key: &Key) -> Vec<Replacement<K>> {
        let Some(before) = self.objects.remove(key) else { return Vec::new() };
        self.unindex(key, &before.groups);
        vec![Replacement { before: Some(before.object), after: None, is_in_place: false }]
    }

    /// Replaces all objects (of a namespace) by a list; an unreadable one stays as it is.
    pub(super) fn replace(
        &mut self,
        namespace: Option<&str>,
        listed: Vec<Result<Arrival<K>, Key>>,
    ) -> Vec<Replacement<K>> {
        let kept: HashSet<&Key> = listed
            .iter()
            .map(|object| match object {
                Ok(arrival) => &arrival.key,
                Err(key) => key,
            })
            .collect();
        let in_scope = |key: &Key| namespace.is_none_or(|namespace| &*key.namespace == namespace);
        let gone: Vec<Key> = self.objects.keys().filter(|key| in_scope(key) && !kept.contains(key)).cloned().collect();
        let mut changes: Vec<_> = gone.iter().flat_map(|key| self.delete(key)).collect();
        changes.extend(listed.into_iter().flatten().flat_map(|arrival| self.apply(arrival)));
        changes
    }

    /// The key with the texts that the mirror has already.
    fn sharing(&self, key: Key) -> Key {
        if let Some((known, _)) = self.objects.get_key_value(&key) {
            return known.clone();
        }
        let neighbour = from(&self.objects, &key.namespace).next().map(|(known, _)| &known.namespace);
        let namespace = neighbour.filter(|namespace| **namespace == key.namespace).cloned();
        Key { namespace: namespace.unwrap_or(key.namespace), name: key.name }
    }

    fn unindex(&mut self, key: &Key, groups: &[Option<Key>]) {
        for (group, known) in groups.iter().zip(&mut self.groups) {
            if let Some(group) = group {
                known.remove(&(group.clone(), key.clone()));
            }
        }
    }
}

/// The objects of a namespace, and those that come after them.
fn from<'a, V>(objects: &'a BTreeMap<Key, V>, namespace: &str) -> impl Iterator<Item = (&'a Key, &'a V)> {
    objects.range((Bound::Included(Key::new(namespace, "")), Bound::Unbounded))
}

/// The names in a group.
fn members<'a>(groups: &'a BTreeSet<(Key, Key)>, group: &Key) -> impl Iterator<Item = &'a Key> {
    let first = (group.clone(), Key::new("", ""));
    let members = groups.range((Bound::Included(first), Bound::Unbounded));
    let group = group.clone();
    members.take_while(move |(of, _)| *of == group).map(|(_, key)| key)
}

/// The group of an object with the texts that the mirror has already.
fn sharing(groups: &BTreeSet<(Key, Key)>, key: &Key, group: Key) -> Key {
    if group == *key {
        return key.clone();
    }
    let first = (group.clone(), Key::new("", ""));
    match groups.range((Bound::Included(first), Bound::Unbounded)).next() {
        Some((known, _)) if *known == group => known.clone(),
        _ if group.namespace == key.namespace => Key { namespace: Arc::clone(&key.namespace), name: group.name },
        _ => group,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::Service;
    use kube::core::ObjectMeta;

    static INDEXES: [Index; 2] = [
        Index { name: "job", group: |meta| label(meta, "job") },
        Index { name: "part", group: |meta| label(meta, "part") },
    ];

    fn label(meta: &ObjectMeta, name: &str) -> Option<Key> {
        Some(Key::new(meta.namespace.as_deref()?, meta.labels.as_ref()?.get(name)?))
    }

    fn service(name: &str, job: &str, part: &str) -> Service {
        let labels = [("job", job), ("part", part)].map(|(name, value)| (name.to_owned(), value.to_owned()));
        let metadata = ObjectMeta {
            namespace: Some("n".to_owned()),
            name: Some(name.to_owned()),
            labels: Some(labels.into()),
            ..ObjectMeta::default()
        };
        Service { metadata, ..Service::default() }
    }

    fn names_of(objects: impl IntoIterator<Item = Kept<Service>>) -> String {
        let names = objects.into_iter().map(|object| object.read().unwrap().metadata.name.clone().unwrap());
        names.collect::<Vec<_>>().join(" ")
    }

    fn apply(store: &mut Store<Service>, object: Service) {
        store.apply(Store::arrival(&INDEXES, Some(&Packer::default()), Arc::new(object)));
    }

    #[test]
    fn the_indexes_follow_the_labels() {
        let mut store = Store::new(&INDEXES);
        for (name, job, part) in [("a", "x", "x1"), ("b", "x", "x2"), ("c", "y", "y1")] {
            apply(&mut store, service(name, job, part));
        }
        let of = |store: &Store<Service>, index: usize, group: &str| {
            names_of(store.of_group(&INDEXES[index], &Key::new("n", group)).into_iter().map(|(_, object)| object))
        };
        assert_eq!((of(&store, 0, "x"), of(&store, 0, "y")), ("a b".to_owned(), "c".to_owned()));
        assert_eq!(of(&store, 1, "x1"), "a");
        // Another label moves it, a deletion removes it.
        apply(&mut store, service("a", "y", "y1"));
        store.delete(&Key::new("n", "c"));
        assert_eq!((of(&store, 0, "x"), of(&store, 0, "y")), ("b".to_owned(), "a".to_owned()));
        assert_eq!((of(&store, 1, "x1"), of(&store, 1, "y1")), (String::new(), "a".to_owned()));
        store.replace(None, Vec::new());
        assert!(store.groups.iter().all(BTreeSet::is_empty));
    }

    #[test]
    fn an_unreadable_object_keeps_its_last_state() {
        let mut store = Store::new(&INDEXES);
        apply(&mut store, service("a", "x", "x1"));
        store.replace(None, vec![Err(Key::new("n", "a")), Err(Key::new("n", "b"))]);
        assert_eq!(names_of(store.list()), "a");
    }
}
