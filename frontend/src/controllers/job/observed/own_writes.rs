//! Objects of a job that were written, or deleted, and that the mirrors do not show like that yet (rule job-1). Pure.
//!
//! A mirror lags behind. Without this, whatever was just written would be written again by the next turn, and whatever
//! was just deleted would count as there: a generation that wants it again would be committed without it.
//!
//! What is kept of an object ends when the mirror shows it as new as it was written, or that it is being deleted, when
//! it leaves the mirror, and after 30 s: a mirror that takes longer may have missed that the object came and went.
//!
//! Knows: what was written, versions, time. Must not know: mirrors, why something was written.

use super::{Children, ObservedObject, ObservedPe, ObservedRegion, PodState, is_place_known, must_move};
use crate::controllers::job::child::Child;
use crate::controllers::job::owned::Owned;
use crate::controllers::times::{after, distance};
use k8s_openapi::jiff::Timestamp;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use streams_api::{PeOptions, ProcessingElementSpec};

/// How long a write or a deletion counts while the mirror does not show it.
const COUNTS: Duration = Duration::from_secs(30);

/// The newest write of each object, or its deletion.
#[derive(Debug, Default)]
pub(crate) struct OwnWrites {
    writes: BTreeMap<Owned, OwnWrite>,
    deletions: BTreeMap<Owned, OwnDeletion>,
    /// Of the PE that was written last.
    options: Option<Arc<PeOptions>>,
}

/// A write.
#[derive(Debug)]
pub(crate) struct OwnWrite {
    /// Version of the object that came of it.
    pub(crate) version: u64,
    /// When.
    pub(crate) at: Timestamp,
    /// Hash of what was applied.
    pub(crate) applied: String,
    /// Of a PE, what was written of it.
    pub(crate) pe: Option<WrittenPe>,
}

/// A deletion that the API server has confirmed.
#[derive(Debug)]
struct OwnDeletion {
    /// Of the object that was deleted: another one of its name is not concerned.
    uid: String,
    /// When.
    at: Timestamp,
}

/// What was written of a PE.
#[derive(Clone, Debug, Default)]
pub(crate) struct WrittenPe {
    generation: u64,
    /// Name of the ConfigMap that it refers to.
    config_map: String,
    runtime_id: String,
    placement_hash: Option<String>,
    options: Arc<PeOptions>,
}

impl WrittenPe {
    /// Of the PE with this spec.
    pub(crate) fn of(spec: &ProcessingElementSpec) -> Self {
        let (runtime_id, placement_hash) = (spec.runtime_id.clone(), spec.placement_hash.clone());
        let (config_map, options) = (spec.config_map.name.clone(), Arc::new(spec.options.clone()));
        Self { generation: spec.generation, config_map, runtime_id, placement_hash, options }
    }
}

impl OwnWrites {
    /// The object was written.
    pub(crate) fn note(&mut self, owned: Owned, mut write: OwnWrite) {
        // PEs that are written with each other have the same options, which are kept once.
        if let Some(pe) = &mut write.pe {
            match &self.options {
                Some(options) if *options == pe.options => pe.options = Arc::clone(options),
                _ => self.options = Some(Arc::clone(&pe.options)),
            }
        }
        self.writes.insert(owned, write);
    }

    /// The object with this uid was deleted. What was written of it before does not count any more.
    pub(crate) fn note_deletion(&mut self, owned: Owned, uid: String, at: Timestamp) {
        self.writes.remove(&owned);
        self.deletions.insert(owned, OwnDeletion { uid, at });
    }

    /// The object is gone.
    pub(crate) fn forget(&mut self, owned: &Owned) {
        self.writes.remove(owned);
    }

    /// Whether the object with this uid was deleted, and the mirror did not show that at the last look.
    pub(crate) fn has_deleted(&self, owned: &Owned, uid: Option<&str>) -> bool {
        self.deletions.get(owned).is_some_and(|deletion| Some(deletion.uid.as_str()) == uid)
    }

    /// ConfigMaps with texts and chunks of which that is so, by name.
    pub(crate) fn deleted_config_maps(&self) -> impl Iterator<Item = &str> {
        self.deletions.keys().filter_map(|owned| match owned {
            Owned::ConfigMap(name) => Some(name.as_str()),
            Owned::Child(_) => None,
        })
    }

    /// Whether the object was written and is not shown yet.
    pub(crate) fn has(&self, owned: &Owned) -> bool {
        self.writes.contains_key(owned)
    }

    /// The version that came of the last write of the object, if that is not shown yet.
    pub(crate) fn version(&self, owned: &Owned) -> Option<u64> {
        self.writes.get(owned).map(|write| write.version)
    }

    /// Hashes of what was applied to objects, of those that the mirror shows as they became, or as others have made
    /// them since. `mirrored` is the version that it shows of an object. They are only known until
    /// [`OwnWrites::add_to`] is told the same.
    pub(crate) fn applied(&self, mirrored: impl Fn(&Owned) -> Option<u64>) -> BTreeMap<Owned, Arc<str>> {
        let is_shown =
            |owned: &Owned, write: &OwnWrite| mirrored(owned).is_some_and(|version| version >= write.version);
        let shown = self.writes.iter().filter(|(owned, write)| is_shown(owned, write));
        shown.map(|(owned, write)| (owned.clone(), Arc::from(write.applied.as_str()))).collect()
    }

    /// PEs that were written and are not shown yet.
    pub(crate) fn processing_elements(&self) -> impl Iterator<Item = u64> {
        self.writes.keys().filter_map(|owned| match owned {
            Owned::Child(Child::ProcessingElement(id)) => Some(*id),
            Owned::Child(_) | Owned::ConfigMap(_) => None,
        })
    }

    /// The options with which a PE was last written, of those that were not long ago and that the mirror does not show
    /// as they became. `is_member` says which PEs count, `mirrored` is the version that the mirror shows of one.
    pub(crate) fn unseen_options(
        &self,
        now: Timestamp,
        is_member: impl Fn(u64) -> bool,
        mirrored: impl Fn(u64) -> Option<u64>,
    ) -> Option<Arc<PeOptions>> {
        let unseen = self.writes.iter().filter_map(|(owned, write)| match owned {
            Owned::Child(Child::ProcessingElement(id)) => {
                let is_unseen = counts(write.at, now) && mirrored(*id).is_none_or(|version| version < write.version);
                write.pe.as_ref().filter(|_| is_unseen && is_member(*id)).map(|pe| (write.version, &pe.options))
            }
            Owned::Child(_) | Owned::ConfigMap(_) => None,
        });
        unseen.max_by_key(|(version, _)| *version).map(|(_, options)| Arc::clone(options))
    }

    /// When the first of the writes or deletions does not count any more.
    pub(crate) fn until(&self) -> Option<Timestamp> {
        let deleted = self.deletions.values().map(|deletion| deletion.at);
        self.writes.values().map(|write| write.at).chain(deleted).min().map(|at| after(at, COUNTS))
    }

    /// Says of those of `children` that were deleted, and of which the mirror does not show that yet, that they are
    /// being deleted. `shown` is the uid of the object that it shows.
    pub(crate) fn delete_from(
        &mut self,
        children: &mut Children,
        now: Timestamp,
        shown: impl Fn(&Owned) -> Option<String>,
    ) {
        self.deletions.retain(|owned, deletion| {
            let object = children.object(owned).filter(|object| !object.deleting && counts(deletion.at, now));
            let Some(object) = object.filter(|_| shown(owned).as_ref() == Some(&deletion.uid)) else { return false };
            (object.deleting, object.just_deleted) = (true, true);
            true
        });
        if self.deletions.is_empty() {
            // A map that was emptied keeps its memory, of each job.
            self.deletions = BTreeMap::new();
        }
    }

    /// Puts into `children` what the mirror does not show yet. `mirrored` is the version that it shows of an object.
    pub(crate) fn add_to(&mut self, children: &mut Children, now: Timestamp, mirrored: impl Fn(&Owned) -> Option<u64>) {
        self.writes.retain(|owned, write| {
            counts(write.at, now) && mirrored(owned).is_none_or(|version| version < write.version)
        });
        if self.writes.is_empty() {
            // The same.
            self.writes = BTreeMap::new();
            self.options = None;
        }
        for (owned, write) in &self.writes {
            let object = ObservedObject { applied: write.applied.clone(), ..ObservedObject::default() };
            match children.object(owned) {
                Some(existing) if existing.deleting => {}
                Some(existing) => {
                    *existing = object;
                    show(children, owned, write);
                }
                None => insert(children, owned, object, write),
            }
        }
    }
}

/// What was written of a PE that is there. The mirror may show a status that was written just before, by which the next
/// pod is on its way, and the write later: without this, the PE would be brought back to its older text meanwhile (rule
/// job-51). And its pod, which the mirror shows running as it should, is about to be replaced: without this, it would
/// not count as taken down when a newer generation is rolled out (rule job-49). One that is down gets a pod again if
/// its text is another one.
fn show(children: &mut Children, owned: &Owned, write: &OwnWrite) {
    let Owned::Child(Child::ProcessingElement(id)) = owned else { return };
    let Some(written) = &write.pe else { return };
    let Some(pe) = children.processing_elements.get_mut(id) else { return };
    pe.generation = written.generation;
    pe.config_map.clone_from(&written.config_map);
    pe.placement_hash.clone_from(&written.placement_hash);
    pe.is_behind = pe.has_running_pod || pe.is_starting;
    let has_same_text = pe.runtime_id.as_ref() == Some(&written.runtime_id);
    let stays = has_same_text && !must_move(pe.pod_placement_hash.as_ref(), written.placement_hash.as_ref());
    pe.runs_another = pe.has_running_pod && !stays;
    let is_placed = is_place_known(pe.pod_placement_hash.as_ref(), written.placement_hash.as_ref());
    let gets_other = match pe.run {
        PodState::Ready => pe.runs_another || !is_placed,
        PodState::Down => !has_same_text && !pe.is_stopped,
        PodState::Pending | PodState::Completed | PodState::Suspended => false,
    };
    if gets_other {
        pe.run = PodState::Pending;
    }
}

fn insert(children: &mut Children, owned: &Owned, object: ObservedObject, write: &OwnWrite) {
    match owned {
        Owned::Child(Child::ProcessingElement(id)) => {
            let WrittenPe { generation, config_map, .. } = write.pe.clone().unwrap_or_default();
            let pe = ObservedPe { object, generation, config_map, ..ObservedPe::default() };
            children.processing_elements.insert(*id, pe);
        }
        Owned::Child(Child::Service(id)) => drop(children.services.insert(*id, object)),
        Owned::Child(Child::Region(index)) => {
            children.regions.insert(*index, ObservedRegion { object, ..ObservedRegion::default() });
        }
        Owned::Child(Child::HostPool(index)) => drop(children.host_pools.insert(*index, object)),
        Owned::Child(Child::JobConfigMap) => children.job_config_map = Some(object),
        Owned::Child(
            child @ (Child::Export(_) | Child::Import(_) | Child::ConsistentRegion(_) | Child::ConsistentRegionService),
        ) => drop(children.interfaces.insert(*child, object)),
        // It is read again after each write.
        Owned::Child(Child::TransportSecret) => {}
        // Long work writes them.
        Owned::ConfigMap(_) => {}
    }
}

/// Whether what was done at this time counts.
fn counts(at: Timestamp, now: Timestamp) -> bool {
    distance(at, now) < COUNTS
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controllers::job::child::Port;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn write(version: u64) -> OwnWrite {
        OwnWrite { version, at: at(0), applied: "new".to_owned(), pe: None }
    }

    #[test]
    fn a_write_counts_until_the_mirror_shows_it_or_for_a_while() {
        let owned = Owned::Child(Child::Service(3));
        // version that the mirror shows, now -> hash that counts
        let table = [
            (None, 0, Some("new")),
            (None, 29, Some("new")),
            (None, 30, None),
            (None, -29, Some("new")),
            (None, -30, None),
            (Some(6), 0, Some("new")),
            (Some(7), 0, Some("old")),
            (Some(8), 0, Some("old")),
        ];
        for (mirrored, now, expected) in table {
            let (mut writes, mut children) = (OwnWrites::default(), Children::default());
            writes.note(owned.clone(), write(7));
            if mirrored.is_some() {
                let object = ObservedObject { applied: "old".to_owned(), ..ObservedObject::default() };
                children.services.insert(3, object);
            }
            writes.add_to(&mut children, at(now), |_| mirrored);
            let counts = children.services.get(&3).map(|object| object.applied.as_str());
            assert_eq!(counts, expected, "{mirrored:?} {now}");
            assert_eq!(writes.writes.is_empty(), expected != Some("new"), "it is kept no longer than it counts");
        }
    }

    #[test]
    fn a_pe_refers_to_what_was_written_last_until_the_mirror_shows_it() {
        let owned = Owned::Child(Child::ProcessingElement(3));
        let shown =
            ObservedPe { generation: 1, config_map: "older".to_owned(), launched: true, ..ObservedPe::default() };
        // what the mirror shows, its version -> what counts
        let table = [
            (None, None, (2, "newest", false)),
            (Some(&shown), Some(6), (2, "newest", true)),
            (Some(&shown), Some(8), (1, "older", true)),
        ];
        for (mirrored, version, expected) in table {
            let (mut writes, mut children) = (OwnWrites::default(), Children::default());
            children.processing_elements.extend(mirrored.map(|pe| (3, pe.clone())));
            let pe = WrittenPe { generation: 2, config_map: "newest".to_owned(), ..WrittenPe::default() };
            writes.note(owned.clone(), OwnWrite { pe: Some(pe), ..write(7) });
            writes.add_to(&mut children, at(0), |_| version);
            let pe = &children.processing_elements[&3];
            assert_eq!((pe.generation, pe.config_map.as_str(), pe.launched), expected, "{version:?}");
            let unseen: Vec<u64> = writes.processing_elements().collect();
            assert_eq!(unseen == [3], version != Some(8), "{version:?}");
        }
    }

    #[test]
    fn options_are_those_of_the_newest_write_that_is_not_seen_yet() {
        let options = |sab: &str| PeOptions { sab_name: Some(sab.to_owned()), ..PeOptions::default() };
        let mut writes = OwnWrites::default();
        // PE, version of its write, second, options
        for (id, version, second, sab) in [(1, 7, 0, "a"), (2, 8, 1, "b"), (3, 9, 2, "c"), (4, 10, 3, "c")] {
            let pe = Some(WrittenPe { options: Arc::new(options(sab)), ..WrittenPe::default() });
            let write = OwnWrite { version, at: at(second), applied: String::new(), pe };
            writes.note(Owned::Child(Child::ProcessingElement(id)), write);
        }
        // second, PEs that count, version that the mirror shows of all -> options
        let table: [(i64, &[u64], u64, Option<&str>); 7] = [
            (3, &[1, 2, 3, 4], 6, Some("c")),
            (3, &[1, 2], 6, Some("b")),
            (3, &[1, 2], 7, Some("b")),
            (3, &[1, 2], 8, None),
            (30, &[1, 2], 6, Some("b")),
            (31, &[1, 2], 6, None),
            (3, &[], 6, None),
        ];
        for (now, members, shown, expected) in table {
            let found = writes.unseen_options(at(now), |id| members.contains(&id), |_| Some(shown));
            assert_eq!(found.as_deref(), expected.map(options).as_ref(), "{now} {members:?} {shown}");
        }
        let of = |id| &writes.writes[&Owned::Child(Child::ProcessingElement(id))].pe.as_ref().unwrap().options;
        assert!(!Arc::ptr_eq(of(2), of(3)) && Arc::ptr_eq(of(3), of(4)));
    }

    #[test]
    fn a_pe_that_runs_is_about_to_be_replaced_once_something_else_was_written() {
        let owned = Owned::Child(Child::ProcessingElement(3));
        let runs = |run, place: Option<&str>| ObservedPe {
            run,
            has_running_pod: run == PodState::Ready,
            runtime_id: Some("r0".to_owned()),
            pod_placement_hash: place.map(str::to_owned),
            ..ObservedPe::default()
        };
        let (p0, p1) = (Some("p0"), Some("p1"));
        // what its pod does, its place, text and place that were written -> what it does for the job, it is about to be
        // replaced
        let table = [
            (PodState::Ready, p0, "r0", p0, PodState::Ready, false),
            (PodState::Ready, p0, "r1", p0, PodState::Pending, true),
            (PodState::Ready, p0, "r0", p1, PodState::Pending, true),
            (PodState::Ready, p0, "r0", None, PodState::Ready, false),
            (PodState::Ready, None, "r0", None, PodState::Ready, false),
            // An earlier frontend has made its pod: the PE controller finds out whether it must move.
            (PodState::Ready, None, "r0", p1, PodState::Pending, false),
            (PodState::Down, p0, "r0", p1, PodState::Down, false),
            (PodState::Down, p0, "r1", p0, PodState::Pending, false),
            (PodState::Completed, p0, "r1", p1, PodState::Completed, false),
            (PodState::Pending, p0, "r1", p1, PodState::Pending, false),
        ];
        for (run, pod, text, place, expected, replaced) in table {
            let (mut writes, mut children) = (OwnWrites::default(), Children::default());
            children.processing_elements.insert(3, runs(run, pod));
            let (runtime_id, placement_hash) = (text.to_owned(), place.map(str::to_owned));
            let pe = WrittenPe { runtime_id, placement_hash, ..WrittenPe::default() };
            writes.note(owned.clone(), OwnWrite { pe: Some(pe), ..write(7) });
            writes.add_to(&mut children, at(0), |_| Some(6));
            let pe = &children.processing_elements[&3];
            assert_eq!((pe.run, pe.runs_another), (expected, replaced), "{run:?} {pod:?} {text} {place:?}");
        }
    }

    #[test]
    fn what_is_gone_or_going_does_not_come_back() {
        let owned = Owned::Child(Child::Service(3));
        let (mut writes, mut children) = (OwnWrites::default(), Children::default());
        children.services.insert(3, ObservedObject { deleting: true, ..ObservedObject::default() });
        writes.note(owned.clone(), write(7));
        writes.add_to(&mut children, at(0), |_| Some(6));
        assert!(children.services[&3].deleting);
        writes.forget(&owned);
        writes.add_to(&mut Children::default(), at(0), |_| None);
        assert!(writes.writes.is_empty() && writes.until().is_none());
    }

    #[test]
    fn what_was_deleted_counts_as_going_until_the_mirror_shows_it_or_for_a_while() {
        let of_child = Owned::Child(Child::Export(Port { pe: 3, id: 0 }));
        // uid of what the mirror shows, whether it shows that it is being deleted, now -> it counts
        let table = [
            (Some("a"), false, 0, true),
            (Some("a"), false, 29, true),
            (Some("a"), false, 30, false),
            (Some("a"), true, 0, false),
            (Some("b"), false, 0, false),
            (None, false, 0, false),
        ];
        for owned in [of_child, Owned::ConfigMap("text".to_owned())] {
            for (shown, deleting, now, counts) in table {
                let (mut writes, mut children) = (OwnWrites::default(), Children::default());
                let object = ObservedObject { deleting, ..ObservedObject::default() };
                match &owned {
                    Owned::Child(child) => children.interfaces.extend(shown.map(|_| (*child, object))),
                    Owned::ConfigMap(name) => children.texts.extend(shown.map(|_| (name.clone(), object))),
                }
                writes.note(owned.clone(), write(7));
                writes.note_deletion(owned.clone(), "a".to_owned(), at(0));
                assert!(writes.has_deleted(&owned, Some("a")) && !writes.has_deleted(&owned, Some("b")));
                writes.delete_from(&mut children, at(now), |_| shown.map(str::to_owned));
                writes.add_to(&mut children, at(now), |_| None);
                let found = children.object(&owned).map(|object| (object.deleting, object.just_deleted));
                assert_eq!(found, shown.map(|_| (deleting || counts, counts)), "{shown:?} {deleting} {now}");
                assert_eq!(writes.has_deleted(&owned, Some("a")), counts, "it is kept no longer than it counts");
                assert_eq!(writes.until(), counts.then(|| at(30)));
            }
        }
    }
}
