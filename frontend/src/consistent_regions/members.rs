//! PEs of consistent regions, their pods and what these have told (rule consistent-region-2).
//!
//! Objects are read once for each of their changes, not for each look at a region: there may be a thousand PEs in one.
//! A region that is not looked at between two changes of a PE would see only the last one. So when a PE was missed last
//! is kept with it.
//!
//! What somebody else has changed of a PE is restored by the job controller. Until then the PE is in the regions, and
//! of the job, that it was in before: a region would be reset for a change that does not last (rule
//! consistent-region-13).
//!
//! Knows: PEs, pods. Must not know: what regions make of it.
//!
//! Invariants: a PE is here as long as the mirror shows it and it says that it is in a region; a PE that is whole now
//! and was not at some moment since a look was missed later than that look.

use crate::mirrors::{Mirrors, pe_of};
use crate::of_job::OfJob;
use crate::pods_of_pe;
use crate::start_hash::Starts as _;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use parking_lot::{Mutex, MutexGuard, RwLock};
use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::Arc;
use streams_api::{Connectivity, ProcessingElement, names};
use streams_consistent_region::PeFacts;
use streams_consistent_region::health::PodFacts;
use streams_kubernetes::Key;
use streams_kubernetes::ownership::is_controlled_by;

/// When a PE was missed last: it was not there, did not run, or was not connected. Later moments are greater.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct MissedAt(u64);

/// A PE that is in regions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Member {
    uid: Option<String>,
    missed: MissedAt,
    /// The job that it is of.
    pub(crate) of_job: OfJob,
    /// Name of the job.
    pub(crate) job: String,
    /// Its number in the job.
    pub(crate) pe: u64,
    /// Indexes of its regions.
    pub(crate) regions: Vec<u64>,
    /// What its health follows from.
    pub(crate) facts: PeFacts,
    /// Where the pod of its launch is.
    pub(crate) address: Option<IpAddr>,
    /// When its pod was created.
    pub(crate) pod_created: Option<Timestamp>,
}

impl Member {
    /// Whether there are several regions that it is told of in one document.
    pub(crate) fn is_in_several(&self) -> bool {
        self.regions.len() > 1
    }

    /// The keys of its regions; its own is this.
    fn keys_of_regions(&self, pe: &Key) -> impl Iterator<Item = Key> {
        self.regions.iter().map(move |region| pe.sibling(&names::consistent_region(&self.job, *region)))
    }
}

/// What the health of a region follows from, at one moment.
pub(crate) struct MembersSeen {
    /// What is known of its PEs that are there.
    pub(crate) facts: HashMap<u64, PeFacts>,
    /// When one of these was missed last, and which.
    pub(crate) missed: Option<(MissedAt, u64)>,
    /// The moment: what is missed after it is missed later than that.
    pub(crate) at: MissedAt,
}

type Subscriber = Box<dyn Fn(&Key) + Send + Sync>;

/// The PEs of all regions. Cheap to clone; all clones are the same.
#[derive(Clone, Default)]
pub(crate) struct Members {
    known: Arc<Mutex<Known>>,
    subscribers: Arc<RwLock<Vec<Subscriber>>>,
}

#[derive(Default)]
struct Known {
    members: HashMap<Key, Member>,
    last_missed: MissedAt,
}

impl Members {
    /// Members that follow these mirrors.
    pub(crate) fn of(mirrors: &Mirrors) -> Self {
        let members = Self::default();
        let (to, of) = (members.clone(), mirrors.clone());
        mirrors.processing_elements.subscribe(move |pe: &ProcessingElement| {
            let key = Key::of(pe);
            if !pe.spec.consistent_regions.is_empty() || to.knows(&key) {
                to.look_at(&of, &key);
            }
        });
        let (to, of) = (members.clone(), mirrors.clone());
        mirrors.pods.subscribe(move |pod: &Pod| {
            if let Some(pe) = pe_of(pod).filter(|pe| to.knows(pe)) {
                to.look_at(&of, &pe);
            }
        });
        members
    }

    /// Calls `subscriber` with the key of each region of which a PE has become another one. It must not block.
    pub(crate) fn subscribe(&self, subscriber: impl Fn(&Key) + Send + Sync + 'static) {
        self.subscribers.write().push(Box::new(subscriber));
    }

    /// What is known of a PE.
    pub(crate) fn get(&self, pe: &Key) -> Option<Member> {
        self.known().members.get(pe).cloned()
    }

    /// The regions of these PEs. No object is read.
    pub(crate) fn regions_of(&self, pes: &[Key]) -> BTreeSet<Key> {
        let known = self.known();
        let members = pes.iter().filter_map(|pe| Some((pe, known.members.get(pe)?)));
        members.flat_map(|(pe, member)| member.keys_of_regions(pe)).collect()
    }

    /// This moment.
    pub(crate) fn now(&self) -> MissedAt {
        self.known().last_missed
    }

    /// What the health of these PEs of a job of this name follows from. Those of another job are left out.
    pub(crate) fn look(&self, job: &Key, of_job: &OfJob, pes: impl IntoIterator<Item = u64>) -> MembersSeen {
        let known = self.known();
        let mut look = MembersSeen { facts: HashMap::new(), missed: None, at: known.last_missed };
        for pe in pes {
            let member = known.members.get(&job.sibling(&names::processing_element(&job.name, pe)));
            if let Some(member) = member.filter(|member| member.of_job.is_same(of_job) && member.pe == pe) {
                look.facts.insert(pe, member.facts);
                look.missed = look.missed.max(Some((member.missed, pe)));
            }
        }
        look
    }

    /// Which of these PEs of a job are in other regions as well.
    pub(crate) fn in_several(&self, job: &Key, of_job: &OfJob, pes: impl IntoIterator<Item = u64>) -> BTreeSet<u64> {
        let known = self.known();
        let is_in_several = |pe: &u64| {
            let member = known.members.get(&job.sibling(&names::processing_element(&job.name, *pe)));
            member.is_some_and(|member| member.of_job.is_same(of_job) && member.pe == *pe && member.is_in_several())
        };
        pes.into_iter().filter(is_in_several).collect()
    }

    /// Whether the pod of one of these PEs of a job is older than this moment.
    pub(crate) fn ran_before(
        &self,
        job: &Key,
        of_job: &OfJob,
        pes: impl IntoIterator<Item = u64>,
        at: Timestamp,
    ) -> bool {
        let known = self.known();
        pes.into_iter().any(|pe| {
            let member = known.members.get(&job.sibling(&names::processing_element(&job.name, pe)));
            let member = member.filter(|member| member.of_job.is_same(of_job) && member.pe == pe);
            member.and_then(|member| member.pod_created).is_some_and(|created| created < at)
        })
    }

    fn knows(&self, pe: &Key) -> bool {
        self.known().members.contains_key(pe)
    }

    /// The mirrors are read under the lock, so that the last who looks sees the last state.
    fn look_at(&self, mirrors: &Mirrors, key: &Key) {
        let mut known = self.known();
        let before = known.members.remove(key);
        let mut now = mirrors.processing_elements.get(key).and_then(|pe| member(mirrors, key, &pe, before.as_ref()));
        if let Some(now) = &mut now {
            let known = &mut *known;
            now.missed = before.as_ref().map(|before| before.missed).unwrap_or_default();
            // One that was made anew under the name was not there in between.
            let was_there = |before: &Member| *before == *now || before.uid == now.uid && now.facts.are_healthy();
            if !before.as_ref().is_some_and(was_there) {
                known.last_missed = MissedAt(known.last_missed.0.saturating_add(1));
                now.missed = known.last_missed;
            }
            known.members.insert(key.clone(), now.clone());
        }
        drop(known);
        if before == now {
            return;
        }
        let subscribers = self.subscribers.read();
        for member in before.iter().chain(&now) {
            for region in member.keys_of_regions(key) {
                subscribers.iter().for_each(|subscriber| subscriber(&region));
            }
        }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock()
    }
}

/// A launch, as the machine counts it.
pub(crate) fn launch(count: u64) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

/// The member that a PE is, if it is in a region. A copy that somebody has made of a PE is none.
fn member(mirrors: &Mirrors, key: &Key, pe: &ProcessingElement, before: Option<&Member>) -> Option<Member> {
    let is_changed = |before: &Member| before.uid == pe.metadata.uid && pe.spec.is_changed_by_others(&pe.metadata);
    let before = before.filter(|before| is_changed(before));
    if before.is_none() && (pe.spec.consistent_regions.is_empty() || pe.is_copy()) {
        return None;
    }
    let (of_job, job, id, regions) = match before {
        Some(before) => (before.of_job.clone(), &before.job, before.pe, &before.regions),
        None => {
            let of_job = OfJob::of_child(&pe.metadata, pe.spec.job_id);
            (of_job, &pe.spec.job_name, pe.spec.id, &pe.spec.consistent_regions)
        }
    };
    let status = pe.status.as_ref();
    let now = launch(status.map_or(0, |status| status.launch_count));
    let reported = status.and_then(|status| status.connectivity.as_ref());
    let full = reported.filter(|reported| reported.state == Connectivity::Full);
    let interruptions = full.map_or(0, |reported| reported.interruptions);
    let pods = pods_of_pe::read(mirrors, key, pe).filter(|pod| is_controlled_by(&pod.metadata, pe));
    let pod = pods.filter_map(|pod| Some((launch_of(&pod, pe)?, pod))).max_by_key(|(of, _)| (*of == now, *of));
    let address = pod.as_ref().filter(|(of, _)| *of == now).and_then(|(_, pod)| crate::mirrors::address_of(pod));
    let pod_created = pod.as_ref().and_then(|(_, pod)| pod.metadata.creation_timestamp.as_ref()).map(|at| at.0);
    Some(Member {
        uid: pe.metadata.uid.clone(),
        missed: MissedAt::default(),
        of_job,
        job: job.clone(),
        pe: id,
        regions: regions.clone(),
        facts: PeFacts {
            launch: now,
            connected: full.map(|reported| launch(reported.launch_count)),
            interruptions,
            pod: pod.map(|(launch, pod)| pod_facts(launch, &pod)),
        },
        address,
        pod_created,
    })
}

/// The launch that a pod was made for: as the PE has recorded it, else as its label says, which anybody can change.
fn launch_of(pod: &Pod, pe: &ProcessingElement) -> Option<u32> {
    let recorded = pe.status.as_ref().and_then(|status| status.launch_of(pod.metadata.uid.as_deref()));
    recorded.map(launch).or_else(|| pod.labels().get(names::LABEL_LAUNCH_COUNT)?.parse().ok())
}

/// A pod that is about to go is not counted on.
fn pod_facts(launch: u32, pod: &Pod) -> PodFacts {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    let (runs, goes) = (phase == Some("Running"), pod.metadata.deletion_timestamp.is_some());
    PodFacts { launch, is_running: runs && !goes, is_taken_away: runs && goes }
}

#[cfg(test)]
mod tests {
    use super::*;
    use streams_api::ProcessingElementSpec;
    use streams_kubernetes::metrics::Metrics;

    #[test]
    fn a_copy_of_a_pe_is_no_member() {
        let mirrors = Mirrors::new(&Metrics::new("test"));
        // name, its regions -> the member that it is
        let table: [(&str, &[u64], Option<u64>); 4] =
            [("flow-3", &[0], Some(3)), ("flow-3", &[], None), ("flow-3b", &[0], None), ("flow-03", &[0], None)];
        for (name, regions, expected) in table {
            let (job_name, consistent_regions) = ("flow".to_owned(), regions.to_vec());
            let spec =
                ProcessingElementSpec { job_name, id: 3, consistent_regions, ..ProcessingElementSpec::default() };
            let found = member(&mirrors, &Key::new("n", name), &ProcessingElement::new(name, spec), None);
            assert_eq!(found.map(|member| member.pe), expected, "{name} {regions:?}");
        }
    }

    #[test]
    fn the_regions_of_pes_are_those_of_the_members_among_them() {
        let mirrors = Mirrors::new(&Metrics::new("test"));
        let members = Members::of(&mirrors);
        for (id, regions) in [(0, vec![0, 2]), (1, vec![2]), (2, vec![]), (3, vec![1])] {
            let (job_name, consistent_regions) = ("flow".to_owned(), regions);
            let spec = ProcessingElementSpec { job_name, id, consistent_regions, ..ProcessingElementSpec::default() };
            let mut pe = ProcessingElement::new(&names::processing_element("flow", id), spec);
            pe.metadata.namespace = Some("n".to_owned());
            mirrors.processing_elements.insert(pe);
        }
        // PEs -> indexes of regions
        let table: [(&[u64], &[u64]); 4] = [(&[0, 1], &[0, 2]), (&[2, 7], &[]), (&[3], &[1]), (&[], &[])];
        for (pes, expected) in table {
            let pes: Vec<_> = pes.iter().map(|pe| Key::new("n", &names::processing_element("flow", *pe))).collect();
            let region = |index: &u64| Key::new("n", &names::consistent_region("flow", *index));
            let expected: BTreeSet<_> = expected.iter().map(region).collect();
            assert_eq!(members.regions_of(&pes), expected, "{pes:?}");
        }
    }
}
