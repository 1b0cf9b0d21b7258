//! How the pods of each PE were seen last (rule pe-9).
//!
//! Every replica keeps it, whether it leads or not, because only who was there knows how a pod ended that is gone
//! before anybody looks. It is safe to lose: a pod that is gone counts as lost then.
//!
//! Knows: states of pods, and which PE and launch each was made for. Must not know: what is decided by them.

use super::observed::ObservedPod;
use super::pod_status;
use super::unclaimed::Unclaimed;
use crate::controllers::remembered::Remembered;
use crate::controllers::times::{Clocks, whole_seconds};
use crate::mirrors::{Mirrors, pe_of};
use crate::uid::Uid;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use std::sync::Arc;
use std::time::Duration;
use streams_api::ProcessingElement;
use streams_kubernetes::Key;
use streams_kubernetes::watch::{Departure, Kept};
use tokio::time::Instant;

/// What is kept of pods takes so many bytes at most if their PEs are not known (rule fetch-6).
const UNCLAIMED_BYTES: usize = 16 << 20;
/// Longest uid that an object can have. A longer one in a reference names nothing.
const UID_MAX: usize = 128;

/// The last state of the newest pod of each PE. A pod may end and be deleted between two reconciles; then only this
/// state says how it ended (rule pe-9). Every replica keeps it, whether it leads or not: the next leader knows what
/// happened before it led.
///
/// As long as the mirror shows the same state, it takes no memory of its own.
///
/// Without it, a pod that is gone counts as lost.
#[derive(Debug)]
pub struct LastSeen {
    /// By [`object`]: pods of a deleted PE are told of as well while another PE of its name has pods.
    by_pe: Remembered<LastState>,
    /// Pods that are gone, of PEs that the mirror does not show: they are gone, or the mirror is behind.
    unclaimed: Unclaimed<LastState>,
    absences: Remembered<Absence>,
    /// PEs that are to have another pod, by the launch before it.
    without_pod: Remembered<Absence>,
}

impl Default for LastSeen {
    fn default() -> Self {
        Self {
            by_pe: Remembered::default(),
            unclaimed: Unclaimed::new(UNCLAIMED_BYTES),
            absences: Remembered::default(),
            without_pod: Remembered::default(),
        }
    }
}

/// Since when the pod of a launch is known to be absent.
#[derive(Clone, Debug)]
struct Absence {
    launch_count: u64,
    /// How much time had passed then.
    since: Duration,
}

/// Since when something is known of this launch.
fn first_known(known: &Remembered<Absence>, pe: &Key, uid: &str, launch_count: u64, clocks: Clocks) -> Timestamp {
    let new = || Absence { launch_count, since: clocks.passed };
    let since = known.with(pe, uid, new, |absence| {
        if absence.launch_count != launch_count {
            *absence = new();
        }
        absence.since
    });
    clocks.time_of(since)
}

/// A pod as it was seen last.
#[derive(Clone, Debug)]
pub(crate) struct SeenPod {
    /// Its last state.
    pub(crate) pod: ObservedPod,
    /// The API server has told of its deletion.
    pub(crate) deletion_seen: bool,
    /// Its deletion waited for nobody any more: its kubelet had ended it, or somebody deletes it by force.
    is_final: bool,
}

impl SeenPod {
    fn of(pod: &Pod, launch_count: u64, deletion_seen: bool) -> Self {
        let meta = &pod.metadata;
        let is_final = meta.deletion_timestamp.is_some()
            && meta.deletion_grace_period_seconds == Some(0)
            && meta.finalizers.as_ref().is_none_or(Vec::is_empty);
        Self { pod: pod_status::read(pod, launch_count), deletion_seen, is_final }
    }

    /// About how many bytes it takes.
    fn bytes(&self) -> usize {
        size_of::<Self>() + self.pod.texts().map(str::len).sum::<usize>()
    }

    /// The API server has told that it is gone, and there is no doubt (rule pe-5). A pod that only lost the label by
    /// which it is watched is told of in the same way, and goes on; be it that it is going, too, and its kubelet is
    /// still ending it.
    pub(crate) fn is_gone(&self) -> bool {
        self.deletion_seen && self.is_final
    }
}

/// The last state of a pod, as it is kept.
#[derive(Clone, Debug)]
struct LastState {
    uid: Uid,
    launch_count: u64,
    /// See [`SeenPod::deletion_seen`].
    deletion_seen: bool,
    /// See [`ObservedPod::was_going`].
    was_going: bool,
    state: State,
}

/// What a pod was made for.
struct Origin {
    pe: Key,
    /// That of the PE object.
    uid: String,
    launch_count: u64,
}

#[derive(Clone, Debug)]
enum State {
    /// What the mirror keeps of it.
    Mirrored(Kept<Pod>),
    /// A state that the mirror does not show.
    Read(Box<SeenPod>),
}

impl LastState {
    fn new(pod: &Pod, launch_count: u64, deletion_seen: bool, state: State) -> Self {
        let uid = pod.metadata.uid.as_deref().unwrap_or_default().into();
        Self { uid, launch_count, deletion_seen, was_going: pod_status::is_going(pod), state }
    }

    /// A state that the mirror does not show: few are kept at a time, and of each only what is read of it.
    fn read(pod: &Pod, launch_count: u64, deletion_seen: bool) -> Self {
        let state = State::Read(Box::new(SeenPod::of(pod, launch_count, deletion_seen)));
        Self::new(pod, launch_count, deletion_seen, state)
    }

    /// The same, whatever becomes of the mirror; and about how many bytes it takes.
    fn on_its_own(self) -> Option<(Self, usize)> {
        let seen = self.seen()?;
        let bytes = size_of::<Self>() + self.uid.bytes_beside() + seen.bytes();
        Some((Self { state: State::Read(Box::new(seen)), ..self }, bytes))
    }

    fn seen(&self) -> Option<SeenPod> {
        let seen = match &self.state {
            State::Mirrored(pod) => SeenPod::of(&*pod.read()?, self.launch_count, false),
            State::Read(seen) => SeenPod::clone(seen),
        };
        let pod = ObservedPod { was_going: self.was_going, ..seen.pod };
        Some(SeenPod { pod, deletion_seen: self.deletion_seen, ..seen })
    }
}

impl LastSeen {
    /// A memory that hears of the pods of these mirrors from now on.
    pub fn of(mirrors: &Mirrors) -> Arc<Self> {
        let seen = Arc::new(Self::default());
        seen.follow(mirrors);
        seen
    }

    /// Hears of the pods of these mirrors from now on. What belongs to a PE is kept until the PE is deleted, and a pod
    /// that outlives its PE, or is known before it, until some time after it is gone itself.
    pub(crate) fn follow(self: &Arc<Self>, mirrors: &Mirrors) {
        let (seen, there) = (Arc::clone(self), mirrors.clone());
        mirrors.pods.subscribe(move |pod| seen.note_and_forget(pod, false, &there));
        let (seen, there) = (Arc::clone(self), mirrors.clone());
        mirrors.pods.subscribe_to_departures(move |pod, departure| {
            seen.note_and_forget(pod, departure == Departure::Deleted, &there);
        });
        let seen = Arc::clone(self);
        mirrors.processing_elements.subscribe_to_departures(move |pe, _| {
            let uid = pe.uid().unwrap_or_default();
            seen.by_pe.forget(&object(&Key::of(pe), &uid), &uid);
        });
        self.absences.end_with(&mirrors.processing_elements);
        self.without_pod.end_with(&mirrors.processing_elements);
    }

    /// Remembers a pod that this process has created, or found created, before the mirror shows it.
    pub(crate) fn note_created(&self, pod: &Pod, there: &Mirrors) {
        self.note_and_forget(pod, false, there);
    }

    /// Remembers a pod of this launch that the API server has, although the mirror told of its deletion: it lost its
    /// labels.
    pub(crate) fn note_found(&self, pe: &Key, uid: &str, launch_count: u64, pod: &Pod) {
        self.by_pe.find(&object(pe, uid), uid, |seen| {
            if pod.metadata.uid.as_deref().is_some_and(|uid| seen.uid.is(uid)) {
                let found = LastState::read(pod, launch_count, false);
                *seen = LastState { was_going: found.was_going || seen.was_going, ..found };
            }
        });
    }

    /// The PE object and the launch that a pod was made for, whatever others have made of its labels and its owner
    /// references. `None` if that is not known, or not yet.
    fn origin(&self, pod: &Pod, find: impl Fn(&Key) -> Option<Arc<ProcessingElement>>) -> Option<Origin> {
        let owner = controller(pod).filter(|owner| owner.uid.len() <= UID_MAX);
        if let (Some(pe), Some(owner)) = (pe_of(pod), owner) {
            let (uid, pod_uid) = (owner.uid.clone(), pod.metadata.uid.as_deref());
            let known = || {
                let is_it = |seen: &LastState| pod_uid.is_some_and(|uid| seen.uid.is(uid));
                let launch = |seen: &mut LastState| is_it(seen).then_some(seen.launch_count);
                self.by_pe.find(&object(&pe, &uid), &uid, launch).flatten()
            };
            if let Some(launch_count) = pod_status::labelled_launch(pod, &pe.name, &uid).or_else(known) {
                return Some(Origin { pe, uid, launch_count });
            }
        }
        // The name of a pod begins with that of its PE.
        let key = Key::of(pod);
        let pe = key.sibling(key.name.rsplit_once('-')?.0);
        let element = find(&pe)?;
        let launch_count = pod_status::launch_of(pod, &element)?;
        Some(Origin { pe, uid: element.uid()?, launch_count })
    }

    /// Remembers the state of a pod, unless neither the pod nor its PE is there any more.
    fn note_and_forget(&self, pod: &Pod, deleted: bool, there: &Mirrors) {
        let Some(mut origin) = self.origin(pod, |pe| there.processing_elements.get(pe)) else { return };
        if let Some(key) = there.pods.own_key(&Key::of(pod)) {
            origin.pe.namespace = key.namespace;
        }
        let shown = there.pods.kept(&Key::of(pod)).and_then(|kept| Some((kept.metadata()?, kept)));
        let shown = shown.filter(|(meta, _)| meta.uid == pod.metadata.uid);
        let was_shown = shown.is_some();
        let version = pod.metadata.resource_version.as_ref();
        let same = shown.filter(|(meta, _)| version.is_some() && meta.resource_version.as_ref() == version);
        self.note(&origin, pod, deleted, same.map(|(_, kept)| kept));
        let Origin { pe, uid, .. } = origin;
        let metadata_of_pe = || there.processing_elements.kept(&pe)?.metadata();
        let has_pe = || metadata_of_pe().is_some_and(|meta| meta.uid.as_ref() == Some(&uid));
        // Asked again: somebody may have told of its deletion since, and what was noted now would stay. So it would
        // if the pod is told by now to be of another PE, or of none: its departure is that of such a pod.
        let has_pod = || {
            let shown = there.pods.get(&Key::of(pod));
            let origin = shown.and_then(|shown| self.origin(&shown, |pe| there.processing_elements.get(pe)));
            origin.is_some_and(|origin| origin.pe == pe && origin.uid == uid)
        };
        let is_kept = has_pe() || (was_shown && has_pod());
        if !is_kept {
            let object = object(&pe, &uid);
            let seen = self.by_pe.find(&object, &uid, |seen| seen.clone());
            if let Some((seen, bytes)) = seen.and_then(LastState::on_its_own) {
                self.unclaimed.insert(object.clone(), seen, bytes, Instant::now());
            }
            self.by_pe.forget(&object, &uid);
        }
    }

    /// Remembers the state of a pod, and that its deletion was told. `kept` is the same state, if the mirror shows it.
    fn note(&self, origin: &Origin, pod: &Pod, deleted: bool, kept: Option<Kept<Pod>>) {
        let Origin { pe, uid, launch_count } = origin;
        let now = match kept {
            Some(kept) => LastState::new(pod, *launch_count, deleted, State::Mirrored(kept)),
            None => LastState::read(pod, *launch_count, deleted),
        };
        let object = object(pe, uid);
        // The last state of a pod that is gone is told once more after its deletion.
        let unclaimed = || self.unclaimed.get(&object, Instant::now());
        let new = || unclaimed().unwrap_or_else(|| LastState { deletion_seen: false, ..now.clone() });
        self.by_pe.with(&object, uid, new, |seen| {
            if seen.launch_count > now.launch_count {
                return;
            }
            let is_same = seen.uid == now.uid;
            let deletion_seen = deleted || (seen.deletion_seen && is_same);
            let was_going = now.was_going || (seen.was_going && is_same);
            *seen = LastState { deletion_seen, was_going, ..now.clone() };
        });
    }

    /// The pod of a launch of this PE; the one with this uid if it is known.
    pub(crate) fn pod(&self, pe: &Key, uid: &str, launch_count: u64, pod_uid: Option<&str>) -> Option<SeenPod> {
        let object = object(pe, uid);
        let seen = self.by_pe.find(&object, uid, |seen| seen.clone());
        let is_it = |seen: &LastState| seen.launch_count == launch_count && pod_uid.is_none_or(|uid| seen.uid.is(uid));
        seen.into_iter().chain(self.unclaimed.get(&object, Instant::now())).find(is_it)?.seen()
    }

    /// The pod of a launch does not exist now. Returns since when this is known.
    pub(crate) fn absent_since(&self, pe: &Key, uid: &str, launch_count: u64, clocks: Clocks) -> Timestamp {
        first_known(&self.absences, pe, uid, launch_count, clocks)
    }

    /// The PE is to have another pod than that of this launch. Returns since when this is known, in whole seconds: the
    /// PE says so, in the same words at each look.
    pub(crate) fn without_pod_since(&self, pe: &Key, uid: &str, launch_count: u64, clocks: Clocks) -> Timestamp {
        whole_seconds(first_known(&self.without_pod, pe, uid, launch_count, clocks))
    }

    /// The PE needs no other pod than it has.
    pub(crate) fn has_pod(&self, pe: &Key, uid: &str) {
        self.without_pod.forget(pe, uid);
    }

    /// There is no PE of this name.
    pub(crate) fn forget(&self, pe: &Key) {
        self.absences.forget_all_of(pe);
        self.without_pod.forget_all_of(pe);
    }

    /// PEs of whose pods something is kept; PEs that are not known, the same; PEs of whose absent pods something is.
    #[cfg(test)]
    pub(crate) fn len(&self) -> (usize, usize, usize) {
        let Self { by_pe, unclaimed, absences, without_pod } = self;
        (by_pe.len(), unclaimed.len(), absences.len() + without_pod.len())
    }
}

/// A PE object, told from others of its name.
fn object(pe: &Key, uid: &str) -> Key {
    pe.sibling(uid)
}

fn controller(pod: &Pod) -> Option<&OwnerReference> {
    pod.owner_references().iter().find(|owner| owner.controller == Some(true))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pods_of_pe;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use kube::core::ObjectMeta;
    use serde_json::json;
    use streams_api::{ProcessingElementSpec, ProcessingElementStatus, names};
    use streams_kubernetes::metrics::Metrics;

    /// Hears of a pod while no PE is known.
    fn note(seen: &LastSeen, pod: &Pod, deleted: bool) {
        let origin = seen.origin(pod, |_| None).unwrap();
        seen.note(&origin, pod, deleted, None);
    }

    fn pod(launch_count: u64, phase: &str) -> Pod {
        serde_json::from_value(json!({
            "metadata": {
                "namespace": "n", "name": pods_of_pe::name("flow-3", "p", launch_count), "uid": "u",
                "labels": {
                    names::LABEL_JOB: "flow", names::LABEL_PE: "3", names::LABEL_LAUNCH_COUNT: launch_count.to_string(),
                },
                "ownerReferences": [{
                    "apiVersion": "streams.ibm.com/v1", "kind": "ProcessingElement", "name": "flow-3", "uid": "p",
                    "controller": true,
                }],
            },
            "status": {"phase": phase},
        }))
        .unwrap()
    }

    #[test]
    fn what_was_seen_last_of_the_newest_pod_is_kept_until_the_pe_is_gone() {
        let (seen, key) = (LastSeen::default(), Key::new("n", "flow-3"));
        for (launch_count, phase) in [(4, "Running"), (4, "Failed"), (3, "Running")] {
            note(&seen, &pod(launch_count, phase), false);
        }
        let found = |uid, launch_count, pod_uid| seen.pod(&key, uid, launch_count, pod_uid);
        assert!(found("p", 4, Some("u")).unwrap().pod.has_failed());
        assert!(!found("p", 4, None).unwrap().deletion_seen);
        assert!(found("p", 4, Some("another of its name")).is_none());
        assert!(found("p", 3, None).is_none());
        assert!(found("another uid", 4, None).is_none());
        // A pod of a PE that was deleted goes, while the one that was made again has its own.
        let mut of_another = pod(3, "Running");
        of_another.metadata.owner_references.iter_mut().flatten().for_each(|owner| owner.uid = "q".to_owned());
        of_another.metadata.name = Some(pods_of_pe::name("flow-3", "q", 3));
        note(&seen, &of_another, true);
        assert!(found("p", 4, Some("u")).unwrap().pod.has_failed());
        assert!(found("q", 3, None).unwrap().deletion_seen);
        // The mirror tells the state before once more.
        note(&seen, &pod(4, "Failed"), true);
        note(&seen, &pod(4, "Failed"), false);
        assert!(found("p", 4, None).unwrap().deletion_seen);
        assert!(!found("p", 4, None).unwrap().is_gone(), "it may only have lost its label");
        let at = |second| Timestamp::from_second(second).unwrap();
        let clocks = |now, passed| Clocks { now: at(now), passed: Duration::from_secs(passed) };
        // launch count, time of day, seconds that have passed -> absent since
        let table = [(4, 1_010, 10, 1_010), (4, 1_012, 12, 1_010), (4, 112, 12, 110), (5, 113, 13, 113)];
        for (launch_count, now, passed, since) in table {
            let found = seen.absent_since(&key, "p", launch_count, clocks(now, passed));
            assert_eq!(found, at(since), "{launch_count} {now} {passed}");
        }
        seen.forget(&key);
        assert_eq!(seen.absent_since(&key, "p", 5, clocks(20, 20)), at(20));
    }

    #[test]
    fn that_a_pod_was_going_before_its_pe_ended_is_kept_while_it_is_there_and_afterwards() {
        // states of the pod as they are told: it is being deleted, its phase -> it was going before its end
        let table: [(&[(bool, &str)], bool); 4] = [
            (&[(false, "Running"), (true, "Running"), (true, "Succeeded")], true),
            (&[(false, "Running"), (false, "Succeeded"), (true, "Succeeded")], false),
            (&[(true, "Succeeded")], false),
            (&[(true, "Running")], true),
        ];
        for (states, expected) in table {
            let (seen, key) = (LastSeen::default(), Key::new("n", "flow-3"));
            let told: Vec<Pod> = states
                .iter()
                .map(|(going, phase)| {
                    let mut told = pod(4, phase);
                    told.metadata.deletion_timestamp = going.then_some(Time(Timestamp::UNIX_EPOCH));
                    told
                })
                .collect();
            told.iter().for_each(|pod| note(&seen, pod, false));
            let was_going = || seen.pod(&key, "p", 4, Some("u")).unwrap().pod.was_going;
            assert_eq!(was_going(), expected, "{states:?}");
            note(&seen, told.last().unwrap(), true);
            assert_eq!(was_going(), expected, "{states:?}");
            // Another one of the name and the launch.
            let mut other = pod(4, "Succeeded");
            other.metadata.uid = Some("other".to_owned());
            note(&seen, &other, false);
            assert!(!seen.pod(&key, "p", 4, Some("other")).unwrap().pod.was_going);
        }
    }

    /// Pods of made-up PEs, with whatever somebody puts into them, come and go.
    #[test]
    fn pods_that_look_like_those_of_pes_take_little_and_nothing_from_other_namespaces() {
        let there = Mirrors::new(&Metrics::new("test"));
        let seen = LastSeen::of(&there);
        let comes_and_goes = |namespace: &str, uid: &str| {
            let mut pod = pod(1, "Failed");
            let meta = &mut pod.metadata;
            meta.namespace = Some(namespace.to_owned());
            meta.name = Some(pods_of_pe::name("flow-3", uid, 1));
            meta.owner_references.iter_mut().flatten().for_each(|owner| owner.uid = uid.to_owned());
            let long = (names::ANNOTATION_CONTENT_ID.to_owned(), "x".repeat(200_000));
            meta.annotations = Some([long].into());
            let key = Key::of(&pod);
            there.pods.insert(pod);
            there.pods.remove(&key);
        };
        comes_and_goes("victim", "p");
        // If each of them were kept as it is, a hundred would take all of the room.
        for number in 0..200 {
            comes_and_goes("n", &format!("made up {number}"));
        }
        // No object has such a uid.
        comes_and_goes("n", &"u".repeat(200_000));
        assert_eq!(seen.len(), (0, 201, 0));
        let kept = seen.pod(&Key::new("victim", "flow-3"), "p", 1, None).unwrap();
        assert!(kept.pod.has_failed() && kept.pod.content_id.unwrap().len() <= 128);
    }

    /// Its departure does not say any more whose it was.
    #[test]
    fn a_pod_that_others_take_from_an_unknown_pe_is_not_kept_for_ever() {
        type Change = fn(&mut ObjectMeta);
        let table: [Change; 4] = [
            |meta| meta.owner_references = None,
            |meta| meta.owner_references.iter_mut().flatten().for_each(|owner| owner.uid = "another".to_owned()),
            |meta| meta.labels = None,
            |meta| drop(meta.labels.get_or_insert_default().insert(names::LABEL_PE.to_owned(), "4".to_owned())),
        ];
        for (number, change) in table.into_iter().enumerate() {
            let there = Mirrors::new(&Metrics::new("test"));
            let seen = LastSeen::of(&there);
            let mut pod = pod(4, "Running");
            let key = Key::of(&pod);
            there.pods.insert(pod.clone());
            assert_eq!(seen.len(), (1, 0, 0), "{number}");
            change(&mut pod.metadata);
            pod.metadata.resource_version = Some("2".to_owned());
            there.pods.insert(pod);
            there.pods.remove(&key);
            assert_eq!(seen.len().0, 0, "{number}");
            // Its PE may be known later.
            assert!(seen.pod(&Key::new("n", "flow-3"), "p", 4, Some("u")).is_some(), "{number}");
        }
    }

    #[test]
    fn how_a_pod_ended_is_kept_whatever_others_have_made_of_its_labels_and_owners() {
        type Change = fn(&mut ObjectMeta);
        let mut pe = ProcessingElement::new("flow-3", ProcessingElementSpec::default());
        pe.metadata.uid = Some("p".to_owned());
        let (launch_count, pod_uid) = (4, Some("u".to_owned()));
        let status = ProcessingElementStatus { launch_count, created_launch_count: 4, pod_uid, ..Default::default() };
        pe.status = Some(status);
        let pe = Arc::new(pe);
        let table: [Change; 5] = [
            |meta| drop(meta.labels.get_or_insert_default().remove(names::LABEL_LAUNCH_COUNT)),
            |meta| {
                meta.labels.get_or_insert_default().insert(names::LABEL_LAUNCH_COUNT.to_owned(), "99".to_owned());
            },
            |meta| meta.labels = None,
            |meta| meta.owner_references = None,
            |meta| (meta.owner_references, meta.labels) = (None, None),
        ];
        for (number, change) in table.into_iter().enumerate() {
            // The process has seen it before, or has begun only then.
            for is_known in [true, false] {
                let (seen, key) = (LastSeen::default(), Key::new("n", "flow-3"));
                if is_known {
                    note(&seen, &pod(4, "Running"), false);
                }
                let mut spoilt = pod(4, "Failed");
                change(&mut spoilt.metadata);
                let origin = seen.origin(&spoilt, |asked| (*asked == key).then(|| Arc::clone(&pe))).unwrap();
                seen.note(&origin, &spoilt, true, None);
                let found = seen.pod(&key, "p", 4, Some("u")).unwrap();
                assert!(found.deletion_seen && found.pod.has_failed(), "{number} {is_known}");
                assert_eq!(found.pod.launch_count, 4, "{number} {is_known}");
            }
        }
    }

    #[test]
    fn a_pod_is_gone_without_doubt_if_its_deletion_waited_for_nobody() {
        // it is going, its grace period, finalizers, the API server has told of its deletion -> it is gone
        let table: [(bool, Option<i64>, &[&str], bool, bool); 7] = [
            (true, Some(0), &[], true, true),
            (true, Some(0), &[], false, false),
            (true, Some(30), &[], true, false),
            (true, None, &[], true, false),
            (true, Some(0), &["of.others/finalizer"], true, false),
            (false, Some(0), &[], true, false),
            (false, None, &[], true, false),
        ];
        for (going, grace, finalizers, told, expected) in table {
            let mut going_pod = pod(4, "Running");
            let meta = &mut going_pod.metadata;
            meta.deletion_timestamp = going.then_some(Time(Timestamp::UNIX_EPOCH));
            meta.deletion_grace_period_seconds = grace;
            meta.finalizers = Some(finalizers.iter().map(|finalizer| (*finalizer).to_owned()).collect());
            let seen = LastSeen::default();
            note(&seen, &going_pod, told);
            let seen = seen.pod(&Key::new("n", "flow-3"), "p", 4, None).unwrap();
            assert_eq!(seen.is_gone(), expected, "{going} {grace:?} {finalizers:?} {told}");
        }
    }
}
