//! The objects of a kind, by name and by group.
//!
//! There are many objects, so an entry has no more than what cannot be read from the object when it is needed. Names of
//! namespaces and groups are there many times: objects that are beside each other share them.
//!
//! Who changes it keeps readers waiting, so no object is unpacked or compared then: large ones take long, and many may
//! vanish at once. What becomes of each object ([`Change`]) is found out before, while others read.
//!
//! Knows: names, groups, packed objects. Must not know: watches, who hears of a change.
//!
//! Invariants: an object is in those groups that the indexes say of its last state; one name has one object; what is
//! told of an object never takes it back to an earlier state, only a list does; what has the store to itself
//! ([`Store::carry_out`]) is not told that objects can be read, and so cannot unpack them.

use super::kept::{Form, Kept};
use super::packed::Packer;
use super::{Index, Mirrored, version};
use crate::Key;
use kube::core::ObjectMeta;
use std::collections::hash_map::RandomState;
use std::collections::{BTreeMap, BTreeSet};
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
    pub(super) key: Key,
    /// Its group, for each index.
    groups: Groups,
    entry: Entry<K>,
}

/// What becomes of one object, as long as nothing else has changed.
pub(super) struct Change<K> {
    key: Key,
    /// The groups that it leaves, for each index, unless it stays in all. `None`: its state before cannot be read.
    leaves: Option<Groups>,
    /// The groups that it joins, for each index, unless it stays in all.
    joins: Groups,
    /// `None`: it goes.
    after: Option<Entry<K>>,
    is_in_place: bool,
    /// The state before is one of another object.
    is_another: bool,
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

    /// An object is to be added or replaced. Another one of its name goes, and this one is new. An earlier state of the
    /// one that is there is left out: what was done since would look like something that nobody wants (rule call-5).
    pub(super) fn to_apply(&self, arrival: Arrival<K>) -> Vec<Change<K>> {
        if self.is_earlier(&arrival) { Vec::new() } else { self.to_put(arrival).into_iter().collect() }
    }

    /// Versions that are no numbers cannot be compared.
    fn is_earlier(&self, Arrival { key, entry, .. }: &Arrival<K>) -> bool {
        let known = self.objects.get(key).filter(|known| 0 < entry.version && entry.version < known.version);
        let uids = known.and_then(|known| uids(&known.object, &entry.object));
        uids.is_some_and(|(known, arrived)| known == arrived)
    }

    fn to_put(&self, Arrival { key, groups, entry }: Arrival<K>) -> Option<Change<K>> {
        let known = self.objects.get(&key);
        // What is the same stays as it is: others may keep it, too.
        if known.is_some_and(|known| known.is_same(&entry)) {
            return None;
        }
        let is_in_place = known.is_some_and(|known| known.relations == entry.relations);
        let moved = known.filter(|_| !is_in_place).map(|known| &known.object);
        Some(Change {
            leaves: moved.map_or_else(|| Some(Groups::new()), |before| self.groups_of(before)),
            joins: if is_in_place { Groups::new() } else { groups },
            is_another: moved.is_some_and(|before| are_two(before, &entry.object)),
            key,
            after: Some(entry),
            is_in_place,
        })
    }

    /// An object is to be removed.
    pub(super) fn to_delete(&self, key: &Key) -> Vec<Change<K>> {
        let known = self.objects.get_key_value(key);
        known.map(|(key, entry)| self.to_remove(key, entry)).into_iter().collect()
    }

    fn to_remove(&self, key: &Key, entry: &Entry<K>) -> Change<K> {
        Change {
            key: key.clone(),
            leaves: self.groups_of(&entry.object),
            joins: Groups::new(),
            after: None,
            is_in_place: false,
            is_another: false,
        }
    }

    /// All objects (of a namespace) are to be replaced by a list, whatever versions it has: the API server may have
    /// been put back to an earlier state. An unreadable one stays as it is. Of one that is listed twice the last state
    /// counts.
    pub(super) fn to_replace(&self, namespace: Option<&str>, listed: Vec<Result<Arrival<K>, Key>>) -> Vec<Change<K>> {
        let by_key = |object: Result<Arrival<K>, Key>| match object {
            Ok(arrival) => (arrival.key.clone(), Some(arrival)),
            Err(key) => (key, None),
        };
        let listed: BTreeMap<Key, Option<Arrival<K>>> = listed.into_iter().map(by_key).collect();
        let in_scope = |key: &Key| namespace.is_none_or(|namespace| &*key.namespace == namespace);
        let gone = self.objects.iter().filter(|(key, _)| in_scope(key) && !listed.contains_key(*key));
        let mut changes: Vec<_> = gone.map(|(key, entry)| self.to_remove(key, entry)).collect();
        changes.extend(listed.into_values().flatten().filter_map(|arrival| self.to_put(arrival)));
        changes
    }

    /// The groups of an object. What is kept can be read, so there are some.
    fn groups_of(&self, object: &Kept<K>) -> Option<Groups> {
        object.read_in_passing().map(|object| groups(self.indexes, &object))
    }
}

/// Without any bound of `K`: no object can be read here.
impl<K: 'static> Store<K> {
    /// The key with the texts that the mirror has.
    pub(super) fn own_key(&self, key: &Key) -> Option<Key> {
        self.objects.get_key_value(key).map(|(known, _)| known.clone())
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

    /// Carries out what was found out of this store, if nothing has changed since.
    pub(super) fn carry_out(&mut self, changes: Vec<Change<K>>) -> Vec<Replacement<K>> {
        changes.into_iter().flat_map(|change| self.make(change)).collect()
    }

    fn make(&mut self, change: Change<K>) -> Vec<Replacement<K>> {
        let Change { key, leaves, joins, after, is_in_place, is_another } = change;
        let key = self.sharing(key);
        self.unindex(&key, leaves);
        for (group, members) in joins.into_iter().zip(&mut self.members) {
            let member = group.map(|group| member(members, &key, group));
            members.extend(member);
        }
        let (before, after) = match after {
            Some(entry) => {
                let after = entry.object.clone();
                (self.objects.insert(key, entry), Some(after))
            }
            None => (self.objects.remove(&key), None),
        };
        let before = before.map(|entry| entry.object);
        if is_another {
            let gone = Replacement { before, after: None, is_in_place: false };
            return vec![gone, Replacement { before: None, after, is_in_place: false }];
        }
        vec![Replacement { before, after, is_in_place }]
    }

    /// Takes an object from these groups.
    fn unindex(&mut self, key: &Key, groups: Option<Groups>) {
        let Some(groups) = groups else {
            // What is kept can be read; if not, it takes longer.
            let is_other = |member: &Member| (&member.namespace, &member.name) != (&key.namespace, &key.name);
            self.members.iter_mut().for_each(|members| members.retain(is_other));
            return;
        };
        for (group, members) in groups.into_iter().zip(&mut self.members) {
            if let Some(group) = group {
                let (namespace, name) = (Arc::clone(&key.namespace), Arc::clone(&key.name));
                members.remove(&Member { namespace, group, name });
            }
        }
    }
}

impl<K: Mirrored> Entry<K> {
    /// Whether two states of an object are known to be the same: they are of one version. The relations have the uid.
    fn is_same(&self, other: &Self) -> bool {
        self.version > 0
            && (self.version, self.relations) == (other.version, other.relations)
            && self.object.has_content_of(&other.object)
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

    fn state(uid: Option<&str>, version: Option<&str>, job: &str) -> Service {
        let mut object = service("a", job, job);
        (object.metadata.uid, object.metadata.resource_version) = (uid.map(str::to_owned), version.map(str::to_owned));
        object
    }

    fn names_of(objects: impl IntoIterator<Item = Kept<Service>>) -> String {
        let names = objects.into_iter().map(|object| object.read().unwrap().metadata.name.clone().unwrap());
        names.collect::<Vec<_>>().join(" ")
    }

    fn arrival(object: Service, form: Form) -> Arrival<Service> {
        Store::arrival(&INDEXES, form, &Packer::default(), Arc::new(object))
    }

    fn apply(store: &mut Store<Service>, arrival: Arrival<Service>) -> Vec<Replacement<Service>> {
        store.carry_out(store.to_apply(arrival))
    }

    fn insert(store: &mut Store<Service>, object: Service) {
        apply(store, arrival(object, Form::Packed));
    }

    fn delete(store: &mut Store<Service>, name: &str) {
        store.carry_out(store.to_delete(&Key::new("n", name)));
    }

    fn replace(store: &mut Store<Service>, listed: Vec<Result<Arrival<Service>, Key>>) {
        store.carry_out(store.to_replace(None, listed));
    }

    #[test]
    fn the_indexes_follow_the_labels() {
        let mut store = Store::new(&INDEXES);
        for (name, job, part) in [("a", "x", "x1"), ("b", "x", "x2"), ("c", "y", "y1")] {
            insert(&mut store, service(name, job, part));
        }
        let of = |store: &Store<Service>, index: usize, group: &str| {
            names_of(store.of_group(INDEXES[index].name, &Key::new("n", group)).into_iter().map(|(_, object)| object))
        };
        assert_eq!((of(&store, 0, "x"), of(&store, 0, "y")), ("a b".to_owned(), "c".to_owned()));
        assert_eq!(of(&store, 1, "x1"), "a");
        // Another label moves it, a deletion removes it.
        insert(&mut store, service("a", "y", "y1"));
        delete(&mut store, "c");
        assert_eq!((of(&store, 0, "x"), of(&store, 0, "y")), ("b".to_owned(), "a".to_owned()));
        assert_eq!((of(&store, 1, "x1"), of(&store, 1, "y1")), (String::new(), "a".to_owned()));
        replace(&mut store, Vec::new());
        assert!(store.members.iter().all(BTreeSet::is_empty));
    }

    #[test]
    fn a_group_is_counted_by_its_members_and_no_further_than_it_matters() {
        let mut store = Store::new(&INDEXES);
        (0..20).for_each(|number| insert(&mut store, service(&format!("a{number}"), "x", "x1")));
        insert(&mut store, service("b", "y", "y1"));
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
            arrival(object, Form::Packed)
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
            apply(&mut store, with_uid(before));
            let told = apply(&mut store, with_uid(after));
            let told: Vec<_> = told.iter().map(|told| (told.before.is_some(), told.after.is_some())).collect();
            assert_eq!(told, expected, "{before:?} {after:?}");
            let group = store.of_group("job", &Key::new("n", "x"));
            assert_eq!((store.len(), group.len()), (1, 1), "{before:?} {after:?}");
        }
    }

    #[test]
    fn an_earlier_state_of_an_object_is_left_out_unless_a_list_has_it() {
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
        for form in [Form::Packed, Form::PackedAtRest, Form::Unpacked] {
            for (uid, version, expected) in table {
                let of = |uid, version, job| arrival(state(uid, version, job), form);
                let mut store = Store::new(&INDEXES);
                apply(&mut store, of(Some("1"), Some("20"), "x"));
                let told = apply(&mut store, of(uid, version, "y")).len();
                let groups = ["x", "y"].map(|job| store.of_group("job", &Key::new("n", job)).len());
                let shown = store.get(&Key::new("n", "a")).and_then(|kept| kept.metadata()).unwrap();
                let shown_version = if expected == 0 { Some("20") } else { version };
                assert_eq!(
                    (told, groups, shown.resource_version.as_deref()),
                    (expected, [usize::from(expected == 0), usize::from(expected > 0)], shown_version),
                    "{uid:?} {version:?}"
                );
                // Once it is gone there is nothing to compare with.
                delete(&mut store, "a");
                assert_eq!(apply(&mut store, of(uid, version, "y")).len(), 1, "{uid:?} {version:?}");
                let mut store = Store::new(&INDEXES);
                apply(&mut store, of(Some("1"), Some("20"), "x"));
                replace(&mut store, vec![Ok(of(uid, version, "y"))]);
                let shown = store.get(&Key::new("n", "a")).and_then(|kept| kept.metadata()).unwrap();
                assert_eq!(shown.resource_version.as_deref(), version, "{uid:?} {version:?}: a list");
                assert_eq!(store.of_group("job", &Key::new("n", "x")).len(), 0, "{uid:?} {version:?}: a list");
            }
        }
    }

    #[test]
    fn an_unreadable_object_keeps_its_last_state() {
        let mut store = Store::new(&INDEXES);
        insert(&mut store, service("a", "x", "x1"));
        replace(&mut store, vec![Err(Key::new("n", "a")), Err(Key::new("n", "b"))]);
        assert_eq!(names_of(store.list()), "a");
    }

    #[test]
    fn of_an_object_that_a_list_has_twice_the_last_state_counts() {
        let mut store = Store::new(&INDEXES);
        let listed = |job: &str| Ok(arrival(service("a", job, job), Form::Packed));
        replace(&mut store, vec![listed("x"), listed("y")]);
        assert_eq!(["x", "y"].map(|job| store.of_group("job", &Key::new("n", job)).len()), [0, 1]);
        replace(&mut store, Vec::new());
        assert!(store.members.iter().all(BTreeSet::is_empty));
    }

    #[test]
    fn states_of_one_version_are_the_same() {
        // uid, version and job of one state, of another one -> whether they are the same
        let table = [
            ((Some("u"), Some("1"), "x"), (Some("u"), Some("1"), "x"), true),
            ((Some("u"), Some("1"), "x"), (Some("u"), Some("2"), "x"), false),
            ((Some("u"), Some("1"), "x"), (Some("v"), Some("1"), "x"), false),
            ((Some("u"), None, "x"), (Some("u"), None, "x"), false),
            ((None, Some("1"), "x"), (None, Some("1"), "x"), true),
            // A mistake of whoever delivers it; looking again does no harm.
            ((Some("u"), Some("1"), "x"), (Some("u"), Some("1"), "y"), false),
        ];
        for form in [Form::Packed, Form::PackedAtRest, Form::Unpacked] {
            for (one, other, expected) in table {
                let [before, after] = [one, other].map(|(uid, version, job)| arrival(state(uid, version, job), form));
                assert_eq!(before.entry.is_same(&after.entry), expected, "{form:?} {one:?} {other:?}");
                let mut store = Store::new(&INDEXES);
                apply(&mut store, before);
                assert_eq!(store.to_replace(None, vec![Ok(after)]).is_empty(), expected, "{form:?} {one:?} {other:?}");
            }
        }
    }
}
