//! The journal of a simulation: widths, generations, writes, and states to go on from.

use super::services::{NOT_RESTARTABLE, ServiceState};
use super::{JOB, JobSimulation, NAMESPACE, key};
use crate::controllers::job::documents::chunks::{Document, join};
use crate::controllers::job::generation::Generation;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use streams_api::{Job, ParallelRegion, RequestedWidths, Resize, StoredPlan, condition};
use streams_kubernetes::Key;
use streams_kubernetes_fake::{Server, Verb};

/// How long the controller believes what it was answered, and mirrors do not show.
const BELIEVED: SignedDuration = SignedDuration::from_secs(30);

/// A state of the cluster, to go on from.
pub(in super::super) struct Snapshot {
    pub(super) server: Server,
    pub(super) services: ServiceState,
    pub(super) journal: Journal,
    /// What was written next, or what else happened.
    pub(in super::super) before: String,
    /// How many of the user's actions had begun.
    pub(in super::super) actions: usize,
}

#[derive(Clone, Default)]
pub(super) struct Journal {
    /// All sets of widths that were wanted at some time, as a whole.
    pub(super) wanted: BTreeSet<BTreeMap<String, u32>>,
    /// Requests that were admitted, by number; they may have been deleted since.
    pub(super) admitted: BTreeMap<u64, Resize>,
    /// Numbers of requests that a generation has committed.
    pub(super) committed: BTreeSet<u64>,
    /// Uids of the regions that were there when a generation was committed, by that generation.
    pub(super) regions_at_commits: BTreeMap<u64, BTreeSet<String>>,
    /// Generations by the digest of their plan.
    pub(super) generations: BTreeMap<String, Arc<Generation>>,
    /// What was written.
    pub(super) writes: Vec<String>,
    /// A write of a leader that was deposed is on its way: what must hold is not its business.
    pub(super) is_late: bool,
    /// Mirrors of the controller have been behind, and until then it may believe that something is there which is gone;
    /// longer, if they do not catch up.
    pub(super) behind_until: Option<Timestamp>,
    /// PEs that must not run again, and that a user has deleted once the controller knew that they were submitted; each
    /// with the uid of its job.
    pub(super) gone: BTreeSet<(Option<String>, u64)>,
    /// PEs that the mirrors do not show as they are.
    pub(super) unseen: BTreeSet<u64>,
    /// How many of the user's actions have begun.
    pub(super) actions: usize,
    /// States to go on from; `None` unless they are kept.
    pub(super) snapshots: Option<Arc<Mutex<Vec<Snapshot>>>>,
}

impl Journal {
    /// What the controller believes to be there may be gone.
    pub(super) fn is_behind(&self) -> bool {
        self.behind_until.is_some()
    }

    /// A stored generation. Its chunks must be there when it is asked for first.
    pub(super) fn generation(&mut self, server: &Server, plan: &StoredPlan) -> Arc<Generation> {
        let StoredPlan { generation, sha256, chunks, .. } = plan;
        let read = || {
            let document = Document::Plan { generation: *generation };
            let chunk = |index| {
                let name = document.chunk_name(JOB, sha256, index);
                let chunk: Option<ConfigMap> = server.get(&Key::new(NAMESPACE, &name));
                chunk.unwrap_or_else(|| panic!("chunk {name} of a plan in the status is missing"))
            };
            let chunks: Vec<_> = (0..*chunks).map(chunk).collect();
            Arc::new(Generation::decode(&join(sha256, &chunks).unwrap().unpack(sha256, u64::MAX).unwrap()).unwrap())
        };
        Arc::clone(self.generations.entry(sha256.clone()).or_insert_with(read))
    }

    /// The same without snapshots.
    pub(super) fn without_snapshots(&self) -> Self {
        Self { snapshots: None, ..self.clone() }
    }
}

impl JobSimulation {
    /// Somebody may have changed which widths are wanted.
    pub(super) fn note_wanted(&self) {
        note_wanted(&self.server, &mut self.journal.lock());
    }

    /// The generation that the status has committed.
    pub(in super::super) fn generation(&self) -> Arc<Generation> {
        let plan = self.status().plan.expect("a plan is committed");
        self.journal.lock().generation(&self.server, &plan)
    }

    /// The widths that are wanted now.
    pub(in super::super) fn wanted(&self) -> BTreeMap<String, u32> {
        wanted(&self.server).unwrap_or_default()
    }

    /// The state that the cluster is in.
    pub(in super::super) fn snapshot(&self) -> Snapshot {
        let journal = self.journal.lock();
        let (services, before) = (self.services.state(), String::new());
        Snapshot { server: self.server.fork(), services, journal: journal.without_snapshots(), before, actions: 0 }
    }

    /// Keeps every state that something is written in from now on, whoever writes it.
    pub(in super::super) fn keep_snapshots(&self) {
        self.journal.lock().snapshots = Some(Arc::default());
    }

    /// The states that were kept.
    pub(in super::super) fn snapshots(&self) -> Vec<Snapshot> {
        let kept = self.journal.lock().snapshots.take();
        kept.map_or_else(Vec::new, |kept| std::mem::take(&mut *kept.lock()))
    }

    /// Writes of the controller until now.
    pub(in super::super) fn writes(&self) -> usize {
        self.journal.lock().writes.len()
    }

    /// Writes of the status of a job until now.
    pub(in super::super) fn status_writes(&self) -> usize {
        let (journal, of_job) = (self.journal.lock(), format!("{:?} Job ", Verb::ReplaceStatus));
        journal.writes.iter().filter(|write| write.starts_with(&of_job)).count()
    }

    /// A user deletes this PE.
    pub(super) fn note_deletion(&self, id: u64) {
        let Some(job) = self.leader.known() else { return };
        let status = job.status.clone().unwrap_or_default();
        let is_submitted = status.generation.is_some() && condition::is_true(&status.conditions, condition::SUBMITTED);
        if id == NOT_RESTARTABLE && is_submitted && self.pe(id).is_some() {
            self.journal.lock().gone.insert((job.metadata.uid.clone(), id));
        }
    }

    /// The user begins with the next action.
    pub(in super::super) fn begin_action(&self) {
        self.note_state();
        self.journal.lock().actions += 1;
    }

    /// From now on a write of a deposed leader is on its way, or is not any more.
    pub(in super::super) fn set_late(&self, is_late: bool) {
        self.journal.lock().is_late = is_late;
    }

    /// The mirrors of the controller are behind, and do not show these PEs as they are.
    pub(super) fn set_behind(&self, unseen: BTreeSet<u64>) {
        let mut journal = self.journal.lock();
        let until = self.server.now() + BELIEVED;
        (journal.behind_until, journal.unseen) = (Some(until), unseen);
    }

    /// The mirrors have caught up. What the controller remembers beside them may be wrong for a while.
    pub(super) fn has_caught_up(&self) {
        let mut journal = self.journal.lock();
        journal.behind_until = journal.behind_until.filter(|until| self.server.now() < *until);
    }

    /// Another frontend leads, which has mirrors of its own and remembers nothing.
    pub(super) fn knows_nothing(&self) {
        self.journal.lock().behind_until = None;
    }

    /// Keeps the state before something that is not a write of the controller.
    pub(super) fn note_state(&self) {
        let mut journal = self.journal.lock();
        keep(&self.server, self.services.state(), &mut journal, "something else");
    }
}

/// The widths that are wanted of the regions of the committed generation: of a region that is there the width that a
/// request wants of it, else that of its spec; of others, and where the job permits no such width, the one that is
/// applied.
fn wanted(server: &Server) -> Option<BTreeMap<String, u32>> {
    let job: Job = server.get(&key())?;
    let status = job.status.as_ref().filter(|status| status.generation.is_some())?;
    let regions = server.list::<ParallelRegion>();
    let request = RequestedWidths::read(&regions);
    let width = |name: &str, applied: u32| {
        let is_meant =
            |region: &&ParallelRegion| region.spec.name == name && region.metadata.deletion_timestamp.is_none();
        let Some(region) = regions.iter().find(is_meant) else { return applied };
        let width = request.as_ref().and_then(|request| request.pending(region)).unwrap_or(region.spec.width);
        let bounds = job.spec.parallel_regions.iter().find(|bounds| bounds.name() == name);
        let is_permitted = bounds.and_then(|bounds| bounds.max_width).is_none_or(|most| width <= most);
        if is_permitted { width } else { applied }
    };
    let applied = status.applied_widths.iter();
    Some(applied.map(|applied| (applied.region.clone(), width(&applied.region, applied.width))).collect())
}

/// Notes what is wanted, and which requests are admitted or committed.
pub(super) fn note_wanted(server: &Server, journal: &mut Journal) {
    if let Some(wanted) = wanted(server) {
        journal.wanted.insert(wanted);
    }
    for request in server.list::<Resize>() {
        if let Some(number) = request.status.as_ref().and_then(|status| status.number) {
            journal.admitted.insert(number, request);
        }
    }
    let committed = server.get::<Job>(&key()).and_then(|job| job.status).map(|status| status.committed_resizes);
    journal.committed.extend(committed.into_iter().flatten().flat_map(|committed| committed.resizes));
}

/// Keeps a snapshot, if they are kept.
pub(super) fn keep(server: &Server, services: ServiceState, journal: &mut Journal, before: &str) {
    let Some(snapshots) = &journal.snapshots else { return };
    let mut snapshots = snapshots.lock();
    if snapshots.last().is_some_and(|last: &Snapshot| {
        last.server.version() == server.version()
            && last.server.now() == server.now()
            && last.actions == journal.actions
    }) {
        return;
    }
    snapshots.push(Snapshot {
        server: server.fork(),
        services,
        journal: journal.without_snapshots(),
        before: before.to_owned(),
        actions: journal.actions,
    });
}
