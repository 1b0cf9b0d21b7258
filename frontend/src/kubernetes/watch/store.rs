//! The objects of a kind by name, job and PE.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    ops::Bound,
    sync::Arc,
};

use kube::Resource;

use super::{job_of, pe_of};
use crate::kubernetes::Key;

/// An object before and after; one of them is missing if it is new or gone.
pub(super) struct Change<K> {
    pub(super) before: Option<Arc<K>>,
    pub(super) after: Option<Arc<K>>,
}

pub(super) struct Store<K> {
    objects: BTreeMap<Key, Arc<K>>,
    by_job: HashMap<Key, BTreeSet<Key>>,
    by_pe: HashMap<Key, BTreeSet<Key>>,
}

impl<K: Resource<DynamicType = ()>> Store<K> {
    pub(super) fn new() -> Self {
        Self { objects: BTreeMap::new(), by_job: HashMap::new(), by_pe: HashMap::new() }
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

    pub(super) fn of_job(&self, job: &Key) -> Vec<Arc<K>> {
        self.of(self.by_job.get(job))
    }

    pub(super) fn of_pe(&self, pe: &Key) -> Vec<Arc<K>> {
        self.of(self.by_pe.get(pe))
    }

    fn of(&self, keys: Option<&BTreeSet<Key>>) -> Vec<Arc<K>> {
        keys.into_iter().flatten().filter_map(|key| self.get(key)).collect()
    }

    /// Adds or replaces an object.
    pub(super) fn apply(&mut self, object: K) -> Vec<Change<K>> {
        let key = Key::of(&object);
        let after = Arc::new(object);
        let before = self.objects.insert(key.clone(), Arc::clone(&after));
        if let Some(before) = &before {
            self.unindex(&key, before);
        }
        if let Some(job) = job_of(&*after) {
            self.by_job.entry(job).or_default().insert(key.clone());
        }
        if let Some(pe) = pe_of(&*after) {
            self.by_pe.entry(pe).or_default().insert(key);
        }
        let unchanged = before.as_ref().is_some_and(|before| is_same_version(&**before, &*after));
        if unchanged { Vec::new() } else { vec![Change { before, after: Some(after) }] }
    }

    /// Removes an object.
    pub(super) fn delete(&mut self, key: &Key) -> Vec<Change<K>> {
        let Some(before) = self.objects.remove(key) else { return Vec::new() };
        self.unindex(key, &before);
        vec![Change { before: Some(before), after: None }]
    }

    /// Replaces all objects (of a namespace) by a list; an unreadable one stays as it is.
    pub(super) fn replace(&mut self, namespace: Option<&str>, listed: Vec<Result<K, Key>>) -> Vec<Change<K>> {
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
        for (index, group) in [(&mut self.by_job, job_of(object)), (&mut self.by_pe, pe_of(object))] {
            let Some(group) = group else { continue };
            if let Some(keys) = index.get_mut(&group) {
                keys.remove(key);
                if keys.is_empty() {
                    index.remove(&group);
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
    use k8s_openapi::api::core::v1::Service;
    use kube::core::ObjectMeta;

    use super::*;
    use crate::api::names;

    fn service(name: &str, job: &str, pe: u64) -> Service {
        let metadata = ObjectMeta {
            namespace: Some("n".to_owned()),
            name: Some(name.to_owned()),
            labels: Some(names::pe_labels(job, pe)),
            ..ObjectMeta::default()
        };
        Service { metadata, ..Service::default() }
    }

    fn names_of(objects: &[Arc<Service>]) -> Vec<&str> {
        objects.iter().filter_map(|object| object.metadata.name.as_deref()).collect()
    }

    #[test]
    fn the_indexes_follow_the_labels() {
        let mut store = Store::new();
        for (name, job, pe) in [("a", "x", 1), ("b", "x", 2), ("c", "y", 1)] {
            store.apply(service(name, job, pe));
        }
        let of_job = |store: &Store<Service>, job: &str| names_of(&store.of_job(&Key::new("n", job))).join(" ");
        let of_pe = |store: &Store<Service>, pe: &str| names_of(&store.of_pe(&Key::new("n", pe))).join(" ");
        assert_eq!((of_job(&store, "x"), of_job(&store, "y")), ("a b".to_owned(), "c".to_owned()));
        assert_eq!(of_pe(&store, "x-1"), "a");
        // Another label moves it, a deletion removes it.
        store.apply(service("a", "y", 1));
        store.delete(&Key::new("n", "c"));
        assert_eq!((of_job(&store, "x"), of_job(&store, "y")), ("b".to_owned(), "a".to_owned()));
        assert_eq!((of_pe(&store, "x-1"), of_pe(&store, "y-1")), (String::new(), "a".to_owned()));
        store.replace(None, Vec::new());
        assert!(store.by_job.is_empty() && store.by_pe.is_empty());
    }

    #[test]
    fn an_unreadable_object_keeps_its_last_state() {
        let mut store = Store::new();
        store.apply(service("a", "x", 1));
        store.replace(None, vec![Err(Key::new("n", "a")), Err(Key::new("n", "b"))]);
        assert_eq!(names_of(&store.list()), ["a"]);
    }
}
