//! The objects of a kind, by name and by group.

use super::Index;
use crate::Key;
use kube::Resource;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::ops::Bound;
use std::sync::Arc;

/// An object before and after; one of them is missing if it is new or gone.
pub(super) struct Replacement<K> {
    pub(super) before: Option<Arc<K>>,
    pub(super) after: Option<Arc<K>>,
}

pub(super) struct Store<K> {
    objects: BTreeMap<Key, Arc<K>>,
    indexes: &'static [Index],
    /// The names in each group, for each index.
    groups: Vec<HashMap<Key, BTreeSet<Key>>>,
}

impl<K: Resource<DynamicType = ()>> Store<K> {
    pub(super) fn new(indexes: &'static [Index]) -> Self {
        Self { objects: BTreeMap::new(), indexes, groups: vec![HashMap::new(); indexes.len()] }
    }

    pub(super) fn len(&self) -> usize {
        self.objects.len()
    }

    pub(super) fn get(&self, key: &Key) -> Option<Arc<K>> {
        self.objects.get(key).cloned()
    }

    pub(super) fn list(&self) -> Vec<Arc<K>> {
        self.objects.values().cloned().collect()
    }

    pub(super) fn of_namespace(&self, namespace: &str) -> Vec<Arc<K>> {
        let from = Key::new(namespace, "");
        self.objects
            .range((Bound::Included(from), Bound::Unbounded))
            .take_while(|(key, _)| &*key.namespace == namespace)
            .map(|(_, object)| Arc::clone(object))
            .collect()
    }

    pub(super) fn of_group(&self, index: &Index, group: &Key) -> Vec<Arc<K>> {
        let all = self.indexes.iter().zip(&self.groups);
        let groups = all.filter(|(known, _)| known.name == index.name).map(|(_, groups)| groups);
        groups.filter_map(|groups| groups.get(group)).flatten().filter_map(|key| self.get(key)).collect()
    }

    /// Adds or replaces an object.
    pub(super) fn apply(&mut self, object: K) -> Vec<Replacement<K>> {
        let key = Key::of(&object);
        let after = Arc::new(object);
        let before = self.objects.insert(key.clone(), Arc::clone(&after));
        if let Some(before) = &before {
            self.unindex(&key, before);
        }
        for (index, groups) in self.indexes.iter().zip(&mut self.groups) {
            if let Some(group) = (index.group)(after.meta()) {
                groups.entry(group).or_default().insert(key.clone());
            }
        }
        let unchanged = before.as_ref().is_some_and(|before| is_same_version(&**before, &*after));
        if unchanged { Vec::new() } else { vec![Replacement { before, after: Some(after) }] }
    }

    /// Removes an object.
    pub(super) fn delete(&mut self, key: &Key) -> Vec<Replacement<K>> {
        let Some(before) = self.objects.remove(key) else { return Vec::new() };
        self.unindex(key, &before);
        vec![Replacement { before: Some(before), after: None }]
    }

    /// Replaces all objects (of a namespace) by a list; an unreadable one stays as it is.
    pub(super) fn replace(&mut self, namespace: Option<&str>, listed: Vec<Result<K, Key>>) -> Vec<Replacement<K>> {
        let kept: HashSet<Key> = listed
            .iter()
            .map(|object| match object {
                Ok(object) => Key::of(object),
                Err(key) => key.clone(),
            })
            .collect();
        let in_scope = |key: &Key| namespace.is_none_or(|namespace| &*key.namespace == namespace);
        let gone: Vec<Key> = self.objects.keys().filter(|key| in_scope(key) && !kept.contains(key)).cloned().collect();
        let mut changes: Vec<_> = gone.iter().flat_map(|key| self.delete(key)).collect();
        changes.extend(listed.into_iter().flatten().flat_map(|object| self.apply(object)));
        changes
    }

    fn unindex(&mut self, key: &Key, object: &K) {
        for (index, groups) in self.indexes.iter().zip(&mut self.groups) {
            let Some(group) = (index.group)(object.meta()) else { continue };
            if let Some(keys) = groups.get_mut(&group) {
                keys.remove(key);
                if keys.is_empty() {
                    groups.remove(&group);
                }
            }
        }
    }
}

fn is_same_version<K: Resource>(before: &K, after: &K) -> bool {
    let version = |object: &K| (object.meta().uid.clone(), object.meta().resource_version.clone());
    after.meta().resource_version.is_some() && version(before) == version(after)
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

    fn names_of(objects: &[Arc<Service>]) -> Vec<&str> {
        objects.iter().filter_map(|object| object.metadata.name.as_deref()).collect()
    }

    #[test]
    fn the_indexes_follow_the_labels() {
        let mut store = Store::new(&INDEXES);
        for (name, job, part) in [("a", "x", "x1"), ("b", "x", "x2"), ("c", "y", "y1")] {
            store.apply(service(name, job, part));
        }
        let of = |store: &Store<Service>, index: usize, group: &str| {
            names_of(&store.of_group(&INDEXES[index], &Key::new("n", group))).join(" ")
        };
        assert_eq!((of(&store, 0, "x"), of(&store, 0, "y")), ("a b".to_owned(), "c".to_owned()));
        assert_eq!(of(&store, 1, "x1"), "a");
        // Another label moves it, a deletion removes it.
        store.apply(service("a", "y", "y1"));
        store.delete(&Key::new("n", "c"));
        assert_eq!((of(&store, 0, "x"), of(&store, 0, "y")), ("b".to_owned(), "a".to_owned()));
        assert_eq!((of(&store, 1, "x1"), of(&store, 1, "y1")), (String::new(), "a".to_owned()));
        store.replace(None, Vec::new());
        assert!(store.groups.iter().all(HashMap::is_empty));
    }

    #[test]
    fn an_unreadable_object_keeps_its_last_state() {
        let mut store = Store::new(&INDEXES);
        store.apply(service("a", "x", "x1"));
        store.replace(None, vec![Err(Key::new("n", "a")), Err(Key::new("n", "b"))]);
        assert_eq!(names_of(&store.list()), ["a"]);
    }
}
