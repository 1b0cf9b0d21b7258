//! The objects of a kind, by name and by group.
//!
//! There are many objects, so an entry has no more than what cannot be read from the object when it is needed. Names of
//! namespaces and groups are there many times: objects that are beside each other share them.
//!
//! Knows: names, groups, packed objects. Must not know: watches, who hears of a change.
//!
//! Invariants: an object is in those groups that the indexes say of its last state; one name has one object; what is
//! told of an object never takes it back to an earlier state, only a list does.

use super::kept::{Form, Kept};
use super::packed::Packer;
use super::{Index, Mirrored, version};
use crate::Key;
use kube::core::ObjectMeta;
use std::collections::hash_map::RandomState;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::hash::{BuildHasher, Hash, Hasher};
use std::ops::Bound;
use std::sync::{Arc, LazyLock};

/// Nobody outside of the process can foretell a number that stands for relations.
static RELATIONS: LazyLock<RandomState> = LazyLock::new(RandomState::new);

/// An object before and after; one of them is missing if it is new or gone.
pub(super) struct Replacement<K> {
    pub(super) before: Option<Kept<K>>,
    pub(super) after: Option<Kept<K>>,
    /// Whoever is found by the state before is found by the one after as well: both have the same groups, labels,
    /// owners and spec.
    pub(super) is_in_place: bool,
}

/// An object on its way into the mirror.
pub(super) struct Arrival<K> {
    key: Key,
    /// Its group, for each index.
    groups: Groups,
    entry: Entry<K>,
}

type Groups = Vec<Option<Arc<str>>>;

struct Entry<K> {
    /// Stands for all by which others find the object.
    relations: u64,
    /// Compared with each state that arrives, which would have to unpack the object otherwise.
    version: u64,
    object: Kept<K>,
}

/// An object as an index has it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Member {
    namespace: Arc<str>,
    group: Arc<str>,
    name: Arc<str>,
}

pub(super) struct Store<K: 'static> {
    objects: BTreeMap<Key, Entry<K>>,
    indexes: &'static [Index<K>],
    /// For each index.
    members: Vec<BTreeSet<Member>>,
}

impl<K: Mirrored> Store<K> {
    pub(super) fn new(indexes: &'static [Index<K>]) -> Self {
        Self { objects: BTreeMap::new(), indexes, members: vec![BTreeSet::new(); indexes.len()] }
    }

    /// What the mirror would keep of an object. It takes a while.
    pub(super) fn arrival(indexes: &[Index<K>], form: Form, packer: &Packer, object: Arc<K>) -> Arrival<K> {
        let (key, groups) = (Key::of(&*object), groups(indexes, &object));
        let (relations, version) = (relations(&groups, object.meta()), version(object.meta()));
        Arrival { key, groups, entry: Entry { relations, version, object: Kept::new(object, form, packer) } }
    }

    pub(super) fn len(&self) -> usize {
        self.objects.len()
    }

    pub(super) fn get(&self, key: &Key) -> Option<Kept<K>> {
        self.objects.get(key).map(|entry| entry.object.clone())
    }

    /// The key with the texts that the mirror has.
    pub(super) fn own_key(&self, key: &Key) -> Option<Key> {
        self.objects.get_key_value(key).map(|(known, _)| known.clone())
    }

    pub(super) fn keys(&self) -> Vec<Key> {
        self.objects.keys().cloned().collect()
    }

    pub(super) fn keys_of_namespace(&self, namespace: &str) -> Vec<Key> {
        let keys = from(&self.objects, namespace).map(|(key, _)| key);
        keys.take_while(|key| &*key.namespace == namespace).cloned().collect()
    }

    pub(super) fn list(&self) -> Vec<Kept<K>> {
        self.objects.values().map(|entry| entry.object.clone()).collect()
    }

    pub(super) fn has_namespace(&self, namespace: &str) -> bool {
        from(&self.objects, namespace).next().is_some_and(|(key, _)| &*key.namespace == namespace)
    }

    pub(super) fn of_namespace(&self, namespace: &str) -> Vec<Kept<K>> {
        from(&self.objects, namespace)
            .take_while(|(key, _)| &*key.namespace == namespace)
            .map(|(_, entry)| entry.object.clone())
            .collect()
    }

    pub(super) fn of_group(&self, index: &str, group: &Key) -> Vec<(Key, Kept<K>)> {
        let keys = self
            .members_of(index, group)
            .map(|Member { namespace, name, .. }| Key { namespace: Arc::clone(namespace), name: Arc::clone(name) });
        keys.filter_map(|key| self.get(&key).map(|object| (key, object))).collect()
    }

    /// How many objects a group has, and no more than `most` of them. None is looked at.
    pub(super) fn count_in_group(&self, index: &str, group: &Key, most: usize) -> usize {
        self.members_of(index, group).take(most).count()
    }

    fn members_of(&self, index: &str, group: &Key) -> impl Iterator<Item = &Member> {
        let all = self.indexes.iter().zip(&self.members);
        let members = all.filter(move |(known, _)| known.name == index).map(|(_, members)| members);
        members.flat_map(|members| of_group(members, &group.namespace, &group.name))
    }

    /// Adds or replaces an object. Another one of its name goes, and this one is new. An earlier state of the one that
    /// is there is left out: what was done since would look like something that nobody wants (rule call-5).
    pub(super) fn apply(&mut self, arrival: Arrival<K>) -> Vec<Replacement<K>> {
        if self.is_earlier(&arrival) { Vec::new() } else { self.put(arrival) }
    }

    /// Versions that are no numbers cannot be compared.
    fn is_earlier(&self, Arrival { key, entry, .. }: &Arrival<K>) -> bool {
        let known = self.objects.get(key).filter(|known| 0 < entry.version && entry.version < known.version);
        let uids = known.and_then(|known| uids(&known.object, &entry.object));
        uids.is_some_and(|(known, arrived)| known == arrived)
    }

    fn put(&mut self, arrival: Arrival<K>) -> Vec<Replacement<K>> {
        let Arrival { key, groups, entry } = arrival;
        // What is the same stays as it is: others may keep it, too.
        if self.objects.get(&key).is_some_and(|known| known.object.is_same(&entry.object)) {
            return Vec::new();
        }
        let key = self.sharing(key);
        let (relations, after) = (entry.relations, entry.object.clone());
        let before = self.objects.insert(key.clone(), entry);
        let is_in_place = before.as_ref().is_some_and(|before| before.relations == relations);
        let before = before.map(|entry| entry.object);
        if !is_in_place {
            if let Some(before) = &before {
                self.unindex(&key, before);
            }
            for (group, members) in groups.into_iter().zip(&mut self.members) {
                let member = group.map(|group| member(members, &key, group));
                members.extend(member);
            }
        }
        let is_another = !is_in_place && before.as_ref().is_some_and(|before| are_two(before, &after));
        if is_another {
            let gone = Replacement { before, after: None, is_in_place: false };
            return vec![gone, Replacement { before: None, after: Some(after), is_in_place: false }];
        }
        vec![Replacement { before, after: Some(after), is_in_place }]
    }

    /// Removes an object.
    pub(super) fn delete(&mut self, key: &Key) -> Vec<Replacement<K>> {
        let Some(Entry { object, .. }) = self.objects.remove(key) else { return Vec::new() };
        self.unindex(key, &object);
        vec![Replacement { before: Some(object), after: None, is_in_place: false }]
    }

    /// Replaces all objects (of a namespace) by a list, whatever versions it has: the API server may have been put back
    /// to an earlier state. An unreadable one stays as it is.
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
        changes.extend(listed.into_iter().flatten().flat_map(|arrival| self.put(arrival)));
        changes
    }

    /// The key with the texts that the mirror has already.
    fn sharing(&self, key: Key) -> Key {
        if let Some(known) = self.own_key(&key) {
            return known;
        }
        let neighbour = from(&self.objects, &key.namespace).next().map(|(known, _)| &known.namespace);
        let namespace = neighbour.filter(|namespace| **namespace == key.namespace).cloned();
        Key { namespace: namespace.unwrap_or(key.namespace), name: key.name }
    }

    /// Takes an object from the groups of this state of it.
    fn unindex(&mut self, key: &Key, object: &Kept<K>) {
        let groups = object.read_in_passing().map(|object| groups(self.indexes, &object));
        for (index, members) in self.members.iter_mut().enumerate() {
            match &groups {
                Some(groups) => {
                    if let Some(Some(group)) = groups.get(index) {
                        let (namespace, name) = (Arc::clone(&key.namespace), Arc::clone(&key.name));
                        members.remove(&Member { namespace, group: Arc::clone(group), name });
                    }
                }
                // What is kept can be read; if not, it takes longer.
                None => members.retain(|member| (&member.namespace, &member.name) != (&key.namespace, &key.name)),
            }
        }
    }
}

fn groups<K>(indexes: &[Index<K>], object: &K) -> Groups {
    indexes.iter().map(|index| (index.group)(object).map(Arc::from)).collect()
}

/// Whether these are not two states of one object.
fn are_two<K: Mirrored>(before: &Kept<K>, after: &Kept<K>) -> bool {
    uids(before, after).is_some_and(|(before, after)| before != after)
}

/// The uids of two states, if both have one.
fn uids<K: Mirrored>(one: &Kept<K>, other: &Kept<K>) -> Option<(String, String)> {
    let uid = |kept: &Kept<K>| kept.metadata().and_then(|meta| meta.uid);
    uid(one).zip(uid(other))
}

/// The object, groups, labels, owners, and the spec by its generation. Two states with the same number have the same:
/// it has 64 bits, and whoever makes the states does not know the key.
fn relations(groups: &Groups, meta: &ObjectMeta) -> u64 {
    let mut hasher = RELATIONS.build_hasher();
    (groups, &meta.uid, &meta.labels, meta.generation).hash(&mut hasher);
    for owner in meta.owner_references.iter().flatten() {
        (&owner.api_version, &owner.kind, &owner.name, &owner.uid, owner.controller).hash(&mut hasher);
    }
    hasher.finish()
}

/// The objects of a namespace, and those that come after them.
fn from<'a, V>(objects: &'a BTreeMap<Key, V>, namespace: &str) -> impl Iterator<Item = (&'a Key, &'a V)> {
    objects.range((Bound::Included(Key::new(namespace, "")), Bound::Unbounded))
}

/// The members of a group.
fn of_group<'a>(
    members: &'a BTreeSet<Member>,
    namespace: &Arc<str>,
    group: &Arc<str>,
) -> impl Iterator<Item = &'a Member> {
    let (namespace, group) = (Arc::clone(namespace), Arc::clone(group));
    let first = Member { namespace: Arc::clone(&namespace), group: Arc::clone(&group), name: "".into() };
    let members = members.range((Bound::Included(first), Bound::Unbounded));
    members.take_while(move |member| member.namespace == namespace && member.group == group)
}

/// An object of a group, with the texts that the mirror has already.
fn member(members: &BTreeSet<Member>, key: &Key, group: Arc<str>) -> Member {
    let known = of_group(members, &key.namespace, &group).next().map(|known| Arc::clone(&known.group));
    let group = if group == key.name { Arc::clone(&key.name) } else { known.unwrap_or(group) };
    Member { namespace: Arc::clone(&key.namespace), group, name: Arc::clone(&key.name) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::Service;

    static INDEXES: [Index<Service>; 2] = [
        Index { name: "job", group: |service| label(service, "job") },
        Index { name: "part", group: |service| label(service, "part") },
    ];

    fn label(service: &Service, name: &str) -> Option<String> {
        service.metadata.labels.as_ref()?.get(name).cloned()
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
        store.apply(Store::arrival(&INDEXES, Form::Packed, &Packer::default(), Arc::new(object)));
    }

    #[test]
    fn the_indexes_follow_the_labels() {
        let mut store = Store::new(&INDEXES);
        for (name, job, part) in [("a", "x", "x1"), ("b", "x", "x2"), ("c", "y", "y1")] {
            apply(&mut store, service(name, job, part));
        }
        let of = |store: &Store<Service>, index: usize, group: &str| {
            names_of(store.of_group(INDEXES[index].name, &Key::new("n", group)).into_iter().map(|(_, object)| object))
        };
        assert_eq!((of(&store, 0, "x"), of(&store, 0, "y")), ("a b".to_owned(), "c".to_owned()));
        assert_eq!(of(&store, 1, "x1"), "a");
        // Another label moves it, a deletion removes it.
        apply(&mut store, service("a", "y", "y1"));
        store.delete(&Key::new("n", "c"));
        assert_eq!((of(&store, 0, "x"), of(&store, 0, "y")), ("b".to_owned(), "a".to_owned()));
        assert_eq!((of(&store, 1, "x1"), of(&store, 1, "y1")), (String::new(), "a".to_owned()));
        store.replace(None, Vec::new());
        assert!(store.members.iter().all(BTreeSet::is_empty));
    }

    #[test]
    fn a_group_is_counted_by_its_members_and_no_further_than_it_matters() {
        let mut store = Store::new(&INDEXES);
        (0..20).for_each(|number| apply(&mut store, service(&format!("a{number}"), "x", "x1")));
        apply(&mut store, service("b", "y", "y1"));
        // None of them is looked at.
        store.objects.clear();
        for (job, most, expected) in [("x", 100, 20), ("x", 20, 20), ("x", 7, 7), ("x", 0, 0), ("y", 7, 1), ("z", 7, 0)]
        {
            assert_eq!(store.count_in_group("job", &Key::new("n", job), most), expected, "{job} {most}");
        }
    }

    #[test]
    fn another_object_of_the_name_is_one_that_goes_and_one_that_comes() {
        let with_uid = |uid: Option<&str>| {
            let mut object = service("a", "x", "x1");
            object.metadata.uid = uid.map(str::to_owned);
            Store::arrival(&INDEXES, Form::Packed, &Packer::default(), Arc::new(object))
        };
        // uid before, uid after -> what is told: whether there is a state before, and after
        let replaced: &[(bool, bool)] = &[(true, false), (false, true)];
        let changed: &[(bool, bool)] = &[(true, true)];
        let table = [
            (Some("1"), Some("2"), replaced),
            (Some("1"), None, changed),
            (None, Some("2"), changed),
            (Some("1"), Some("1"), changed),
        ];
        for (before, after, expected) in table {
            let mut store = Store::new(&INDEXES);
            store.apply(with_uid(before));
            let told = store.apply(with_uid(after));
            let told: Vec<_> = told.iter().map(|told| (told.before.is_some(), told.after.is_some())).collect();
            assert_eq!(told, expected, "{before:?} {after:?}");
            let group = store.of_group("job", &Key::new("n", "x"));
            assert_eq!((store.len(), group.len()), (1, 1), "{before:?} {after:?}");
        }
    }

    #[test]
    fn an_earlier_state_of_an_object_is_left_out_unless_a_list_has_it() {
        let state = |uid: Option<&str>, version: Option<&str>, job: &str| {
            let mut object = service("a", job, job);
            (object.metadata.uid, object.metadata.resource_version) =
                (uid.map(str::to_owned), version.map(str::to_owned));
            object
        };
        // uid and version that are told after uid 1 in version 20 -> changes that are told
        let table = [
            (Some("1"), Some("19"), 0),
            (Some("1"), Some("3"), 0),
            (Some("1"), Some("100"), 1),
            // They cannot be compared.
            (Some("1"), Some("x"), 1),
            (Some("1"), None, 1),
            (None, Some("19"), 1),
            (Some("2"), Some("19"), 2),
        ];
        let packer = Packer::default();
        for form in [Form::Packed, Form::PackedAtRest, Form::Unpacked] {
            for (uid, version, expected) in table {
                let arrival = |object: Service| Store::arrival(&INDEXES, form, &packer, Arc::new(object));
                let mut store = Store::new(&INDEXES);
                store.apply(arrival(state(Some("1"), Some("20"), "x")));
                let told = store.apply(arrival(state(uid, version, "y"))).len();
                let groups = ["x", "y"].map(|job| store.of_group("job", &Key::new("n", job)).len());
                let shown = store.get(&Key::new("n", "a")).and_then(|kept| kept.metadata()).unwrap();
                let shown_version = if expected == 0 { Some("20") } else { version };
                assert_eq!(
                    (told, groups, shown.resource_version.as_deref()),
                    (expected, [usize::from(expected == 0), usize::from(expected > 0)], shown_version),
                    "{uid:?} {version:?}"
                );
                // Once it is gone there is nothing to compare with.
                store.delete(&Key::new("n", "a"));
                assert_eq!(store.apply(arrival(state(uid, version, "y"))).len(), 1, "{uid:?} {version:?}");
                let mut store = Store::new(&INDEXES);
                store.apply(arrival(state(Some("1"), Some("20"), "x")));
                store.replace(None, vec![Ok(arrival(state(uid, version, "y")))]);
                let shown = store.get(&Key::new("n", "a")).and_then(|kept| kept.metadata()).unwrap();
                assert_eq!(shown.resource_version.as_deref(), version, "{uid:?} {version:?}: a list");
                assert_eq!(store.of_group("job", &Key::new("n", "x")).len(), 0, "{uid:?} {version:?}: a list");
            }
        }
    }

    #[test]
    fn an_unreadable_object_keeps_its_last_state() {
        let mut store = Store::new(&INDEXES);
        apply(&mut store, service("a", "x", "x1"));
        store.replace(None, vec![Err(Key::new("n", "a")), Err(Key::new("n", "b"))]);
        assert_eq!(names_of(store.list()), "a");
    }
}
