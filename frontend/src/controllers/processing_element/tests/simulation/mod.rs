//! A simulated cluster with a PE controller, and the invariants that hold once nothing changes any more.
//!
//! The reconciler is the real one, over a fake API server. The simulation decides when changes reach the mirrors, when
//! a call fails, and when the process dies.

mod events;
mod ground_truth;

use self::events::Surroundings;
use self::ground_truth::{host, is_of, read};
use super::super::counters::Counters;
use super::super::facts::is_restart_permitted;
use super::super::last_seen::LastSeen;
use super::super::metadata;
use super::super::observed::{ObservedPod, Policies};
use super::super::reconciler::PeReconciler;
use crate::controllers::known_launches::KnownLaunches;
use crate::controllers::placement_hash::placement_hash;
use crate::controllers::reconciler::reconcile;
use crate::controllers::resizing::RollOutTimes;
use crate::controllers::tests::LateMirrors;
use crate::mirrors::Mirrors;
use crate::settings::{JobSettings, PodSettings};
use futures::FutureExt;
use futures::executor::block_on;
use k8s_openapi::api::core::v1::{Pod, PodStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::ResourceExt as _;
use kube::core::{ObjectMeta, Status};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use streams_api::{
    AadlConfigMap, BundleReference, HostPool, HostPoolSpec, Job, JobSpec, JobStatus, PePhase, PoolLocation,
    ProcessingElement, ProcessingElementSpec, Rollout, names,
};
use streams_kubernetes::events::Notice;
use streams_kubernetes::leadership::Term;
use streams_kubernetes::metrics::Metrics;
use streams_kubernetes::ownership::{controlled_by, is_controlled_by};
use streams_kubernetes::queue::Outcome;
use streams_kubernetes::{Error, Key};
use streams_kubernetes_fake::{Connection, Fault, Server, Verb};

pub(super) use self::events::ClusterEvent;

const NAMESPACE: &str = "n";
const JOB: &str = "flow";
const PE: &str = "flow-3";
const TEXT: &str = "flow-3-text";
const POOL: &str = "flow-0";

/// A cluster with a controller.
pub(super) struct PeSimulation {
    surroundings: Surroundings,
    /// What all replicas remember of pods, because all of them hear of all pods.
    last_seen: Arc<LastSeen>,
    leader: ControllerProcess,
    /// A controller that does not know yet that it does not lead any more, and hears of nothing.
    deposed: Option<ControllerProcess>,
    /// The first try of each write of a status has its effect and is not answered, and the client tries again.
    writes_twice: bool,
}

/// A process with a controller, which lives until a call of it fails for good.
struct ControllerProcess {
    connection: Connection,
    reconciler: Arc<PeReconciler<Connection>>,
    known_launches: KnownLaunches,
    term: Term,
    mirrors: LateMirrors,
}

impl ControllerProcess {
    /// A controller whose mirrors are up to date.
    fn start(server: &Server, last_seen: &Arc<LastSeen>) -> Self {
        let metrics = Metrics::new("test");
        let mirrors = Mirrors::new(&metrics);
        let connection = server.connect();
        last_seen.follow(&mirrors);
        let counters = Counters::new(&metrics);
        let term = Term::endless();
        let known_launches = KnownLaunches::of(&mirrors.processing_elements, term.clone());
        let reconciler = PeReconciler::new(
            connection.clone(),
            &mirrors,
            PodSettings::default(),
            RollOutTimes::of(&JobSettings::default()),
            counters,
            Arc::clone(last_seen),
            known_launches.clone(),
        );
        Self {
            connection,
            reconciler: Arc::new(reconciler),
            known_launches,
            term,
            mirrors: LateMirrors::fill(server, mirrors),
        }
    }

    fn reconcile(&self) -> Result<Outcome, Error> {
        block_on(reconcile(&*self.reconciler, &key(PE)))
    }
}

fn key(name: &str) -> Key {
    Key::new(NAMESPACE, name)
}

fn meta(name: &str) -> ObjectMeta {
    ObjectMeta { namespace: Some(NAMESPACE.to_owned()), name: Some(name.to_owned()), ..ObjectMeta::default() }
}

impl PeSimulation {
    /// A job that has committed generation 0, and its PE.
    pub(super) fn new() -> Self {
        let surroundings = Surroundings::new();
        let server = &surroundings.server;
        let mut job = Job::new(JOB, JobSpec::of(BundleReference::default()));
        job.metadata = meta(JOB);
        let rollout = Rollout { started_at: Some(MicroTime(server.now())), ..Rollout::default() };
        job.status = Some(JobStatus { generation: Some(0), rollout: Some(rollout), ..JobStatus::default() });
        let job = server.create(&job);
        let spec = ProcessingElementSpec {
            job_name: JOB.to_owned(),
            id: 3,
            content_id: "0".repeat(64),
            runtime_id: "r0".to_owned(),
            config_map: AadlConfigMap { name: TEXT.to_owned(), compressed: false },
            restartable: true,
            ..ProcessingElementSpec::default()
        };
        let mut pe = ProcessingElement::new(PE, spec);
        pe.metadata = meta(PE);
        pe.metadata.labels = Some(names::pe_labels(JOB, 3));
        pe.metadata.owner_references = Some(vec![controlled_by(&job)]);
        server.create(&pe);
        surroundings.add_node("node");
        surroundings.add_text();
        let last_seen = Arc::default();
        let leader = ControllerProcess::start(server, &last_seen);
        Self { surroundings, last_seen, leader, deposed: None, writes_twice: false }
    }

    /// The process that leads has created the PE itself.
    pub(super) fn bear(&self) {
        self.leader.known_launches.note_applied(&self.pe());
    }

    /// Whether there are more calls than can be made.
    pub(super) fn crowd(&self, is_crowded: bool) {
        self.leader.connection.crowd(is_crowded);
    }

    /// The PE is in a consistent region.
    pub(super) fn join_region(&mut self) {
        self.surroundings.server.edit(&key(PE), |pe: &mut ProcessingElement| pe.spec.consistent_regions = vec![0]);
        self.deliver_all();
    }

    /// Another job of the namespace is yet to be committed, or is not any more; the mirrors hear of it.
    pub(super) fn submit_another(&mut self, is_uncommitted: bool) {
        let server = &self.surroundings.server;
        if server.get::<Job>(&key("another")).is_none() {
            let mut job = Job::new("another", JobSpec::of(BundleReference::default()));
            job.metadata = meta("another");
            server.create(&job);
        }
        let generation = (!is_uncommitted).then_some(0);
        server.edit(&key("another"), |job: &mut Job| job.status.get_or_insert_default().generation = generation);
        self.deliver_all();
    }

    /// The other job has committed its first generation, which has so many PEs; the mirrors hear of it.
    pub(super) fn launch_another(&mut self, pes: u32) {
        let started_at = Some(MicroTime(self.surroundings.server.now()));
        let rollout = Rollout { added: pes, started_at, ..Rollout::default() };
        self.surroundings.server.edit(&key("another"), |job: &mut Job| {
            let status = job.status.get_or_insert_default();
            (status.generation, status.rollout) = (Some(0), Some(rollout));
        });
        self.deliver_all();
    }

    /// The pod of this PE of the other job begins to run.
    pub(super) fn run_another(&self, pe: u64) {
        self.run_pod_of("another", pe);
    }

    /// The pod of another PE of the job begins to run.
    pub(super) fn run_beside(&self, pe: u64) {
        self.run_pod_of(JOB, pe);
    }

    fn run_pod_of(&self, job: &str, pe: u64) {
        let metadata = ObjectMeta { labels: Some(names::pe_labels(job, pe)), ..meta(&format!("{job}-{pe}-pod")) };
        let status = PodStatus { phase: Some("Running".to_owned()), ..PodStatus::default() };
        self.leader.mirrors.mirrors.pods.insert(Pod { metadata, status: Some(status), ..Pod::default() });
    }

    /// The status of the job becomes another one, and the mirrors hear of it.
    pub(super) fn edit_job(&mut self, edit: impl FnOnce(&mut JobStatus)) {
        self.surroundings.server.edit(&key(JOB), |job: &mut Job| edit(job.status.get_or_insert_default()));
        self.deliver_all();
    }

    /// The job controller has said of the PE that it was made again, and has committed another generation since.
    pub(super) fn commit_after_making_again(&mut self) {
        let server = &self.surroundings.server;
        server.edit(&key(PE), |pe: &mut ProcessingElement| {
            pe.annotations_mut().insert(names::ANNOTATION_MADE_AGAIN.to_owned(), "true".to_owned());
        });
        server.advance(Duration::from_secs(60));
        let started_at = Some(MicroTime(server.now()));
        self.edit_job(|status| status.rollout.get_or_insert_default().started_at = started_at);
    }

    /// The process dies at this call of its next reconcile, before or after the call has its effect.
    pub(super) fn crash_after(&self, calls: usize, has_effect: bool) {
        self.leader.connection.fail(Fault { after: calls, of_writes: false, has_effect, is_last: true });
    }

    /// A call of the next reconcile is not answered, and had its effect or not; the process and its mirrors go on.
    pub(super) fn lose_answer_after(&self, calls: usize, has_effect: bool) {
        self.leader.connection.fail(Fault { after: calls, of_writes: false, has_effect, is_last: false });
    }

    /// Something happens after so many calls of the next reconcile.
    pub(super) fn meanwhile(&self, calls: usize, event: ClusterEvent) {
        let (surroundings, connection) = (self.surroundings.clone(), self.leader.connection.clone());
        let known_launches = self.leader.known_launches.clone();
        let at = connection.calls() + calls;
        self.leader.connection.meanwhile(move |_| {
            if connection.calls() == at {
                happen(&surroundings, &known_launches, event);
            }
            std::future::ready(()).boxed()
        });
    }

    /// The kinds of the objects that the next reconcile asks the API server for, as it asks.
    pub(super) fn reads(&self) -> Arc<parking_lot::Mutex<Vec<String>>> {
        let reads = Arc::<parking_lot::Mutex<Vec<String>>>::default();
        let noted = Arc::clone(&reads);
        self.leader.connection.meanwhile(move |call| {
            if call.verb == Verb::Get {
                noted.lock().push(call.kind.clone());
            }
            std::future::ready(()).boxed()
        });
        reads
    }

    /// One reconcile; after a crash another process takes over, with mirrors that are up to date.
    pub(super) fn reconcile(&mut self) -> Option<Outcome> {
        self.surroundings.begin_reconcile();
        if self.writes_twice {
            self.write_twice();
        }
        let result = self.leader.reconcile();
        self.leader.connection.alone();
        self.leader.connection.stop_failing();
        if self.leader.connection.is_broken() {
            self.leader = self.successor();
        }
        result.ok()
    }

    /// The API server refuses every patch of a PE with this code from now on. How many there were.
    pub(super) fn refuse_patches(&self, code: u16) -> Arc<AtomicUsize> {
        let counted = Arc::<AtomicUsize>::default();
        let count = Arc::clone(&counted);
        self.surroundings.server.refuse(move |call| {
            let is_patch = call.verb == Verb::Merge && call.kind == "ProcessingElement";
            is_patch.then(|| {
                count.fetch_add(1, Ordering::Relaxed);
                *Status::failure("nobody may", "Refused").with_code(code).boxed()
            })
        });
        counted
    }

    /// Admission takes this annotation from pods from now on, whenever one is written; or none any more.
    pub(super) fn admission_drops(&self, annotation: Option<&str>) {
        self.surroundings.server.declares_everything();
        if let Some(annotation) = annotation {
            self.surroundings.server.does_not_declare::<Pod>(&["metadata", "annotations", annotation], false);
        }
    }

    /// From now on, the first try of each write of a status is not answered.
    pub(super) fn lose_first_tries(&mut self) {
        self.writes_twice = true;
    }

    fn write_twice(&self) {
        let server = self.surroundings.server.clone();
        self.leader.connection.meanwhile(move |call| {
            let sent = call.object::<ProcessingElement>().filter(|_| call.verb == Verb::ReplaceStatus);
            let version = server.get::<ProcessingElement>(&key(PE)).and_then(|pe| pe.metadata.resource_version);
            if let Some(sent) = sent.filter(|sent| sent.metadata.resource_version == version) {
                server.edit(&key(PE), |pe: &mut ProcessingElement| pe.status = sent.status);
            }
            std::future::ready(()).boxed()
        });
    }

    /// The replica that leads next. It did not lead before, but it has heard of everything.
    fn successor(&mut self) -> ControllerProcess {
        self.deliver_all();
        ControllerProcess::start(&self.surroundings.server, &self.last_seen)
    }

    /// No frontend runs while this happens. The one that is started then remembers nothing.
    pub(super) fn happen_unseen(&mut self, event: ClusterEvent) {
        self.surroundings.happen(event);
        self.surroundings.forget();
        self.last_seen = Arc::default();
        self.deposed = None;
        self.leader = ControllerProcess::start(&self.surroundings.server, &self.last_seen);
    }

    /// Another replica leads from now on.
    pub(super) fn depose(&mut self) {
        let leader = self.successor();
        let deposed = std::mem::replace(&mut self.leader, leader);
        deposed.term.over();
        self.deposed = Some(deposed);
    }

    /// One reconcile of the replica that led before.
    pub(super) fn reconcile_deposed(&self) {
        if let Some(deposed) = &self.deposed {
            self.surroundings.begin_reconcile();
            self.surroundings.truths().is_deposed = true;
            let _ = deposed.reconcile();
            self.surroundings.truths().is_deposed = false;
        }
    }

    /// One reconcile of the replica that led before. After so many of its writes of the status, before the next, the
    /// one that leads reconciles, too.
    ///
    /// Between other calls it would not prove anything: that no creation arrives late is a matter of deadlines
    /// (leadership).
    pub(super) fn reconcile_deposed_around(&self, writes: usize) {
        let Some(deposed) = &self.deposed else { return };
        let (leader, surroundings) = (Arc::clone(&self.leader.reconciler), self.surroundings.clone());
        let left = parking_lot::Mutex::new(Some(writes));
        deposed.connection.meanwhile(move |call| {
            let mut left = left.lock();
            if call.verb != Verb::ReplaceStatus || left.is_none() {
                return std::future::ready(()).boxed();
            }
            *left = left.and_then(|writes| writes.checked_sub(1));
            if left.is_some() {
                return std::future::ready(()).boxed();
            }
            let (leader, surroundings) = (Arc::clone(&leader), surroundings.clone());
            async move {
                surroundings.truths().is_deposed = false;
                let _ = reconcile(&*leader, &key(PE)).await;
                surroundings.truths().is_deposed = true;
            }
            .boxed()
        });
        self.reconcile_deposed();
        deposed.connection.alone();
    }

    /// The mirrors hear of so many changes of PEs and pods, and of everything else.
    pub(super) fn deliver(&mut self, pes: usize, pods: usize) {
        let mirrors = &mut self.leader.mirrors;
        mirrors.processing_elements.deliver(pes);
        mirrors.pods.deliver(pods);
        mirrors.jobs.deliver(usize::MAX);
        mirrors.config_maps.deliver(usize::MAX);
        mirrors.host_pools.deliver(usize::MAX);
    }

    /// The job's only host pool has this host alone from now on.
    pub(super) fn change_pool(&self, host: &str) {
        let server = &self.surroundings.server;
        if server.get::<HostPool>(&key(POOL)).is_none() {
            let mut pool = HostPool::new(POOL, HostPoolSpec { job_name: JOB.to_owned(), ..HostPoolSpec::default() });
            pool.metadata = meta(POOL);
            server.create(&pool);
        }
        server.edit(&key(POOL), |pool: &mut HostPool| pool.spec.hosts = vec![host.to_owned()]);
    }

    /// The job wants the PE to run in the pool as it is with this host.
    pub(super) fn place_in_pool(&self, host: &str) {
        let pool = HostPoolSpec { hosts: vec![host.to_owned()], ..HostPoolSpec::default() };
        self.surroundings.server.edit(&key(PE), |pe: &mut ProcessingElement| {
            pe.spec.placement.pool = Some(PoolLocation { index: 0, in_pool_index: None });
            pe.spec.placement_hash = Some(placement_hash(&pe.spec.placement, Some(&pool)));
        });
    }

    /// Where the pods must run.
    pub(super) fn hosts(&self) -> Vec<Option<String>> {
        self.pods().iter().map(host).collect()
    }

    pub(super) fn deliver_all(&mut self) {
        self.deliver(usize::MAX, usize::MAX);
    }

    /// Time passes. No watch that works lags behind for long.
    pub(super) fn wait(&mut self, seconds: u64) {
        if seconds > 1 {
            self.deliver_all();
        }
        self.surroundings.server.advance(Duration::from_secs(seconds));
    }

    pub(super) fn happen(&self, event: ClusterEvent) {
        happen(&self.surroundings, &self.leader.known_launches, event);
    }

    /// The same of something that must not come to nothing, as when there is no pod that it could happen to.
    pub(super) fn take_place(&self, event: ClusterEvent) {
        let took_place = happen(&self.surroundings, &self.leader.known_launches, event);
        assert!(took_place, "{event:?} came to nothing");
    }

    /// Everything is healthy from now on: until nothing changes any more.
    pub(super) fn calm_down(&mut self) {
        for event in [ClusterEvent::Commit, ClusterEvent::TextThere(true), ClusterEvent::Refuse(false)] {
            self.happen(event);
        }
        let mut quiet = 0;
        for _ in 0..200 {
            self.deliver_all();
            let before = self.version();
            let outcome = self.reconcile();
            let surroundings = &self.surroundings;
            let healthy = [ClusterEvent::Run, ClusterEvent::Finish { said: true, code: 0 }, ClusterEvent::Collect];
            while healthy.iter().any(|event| surroundings.happen(*event)) {}
            if self.version() != before || outcome.is_none() {
                quiet = 0;
                continue;
            }
            match outcome {
                Some(Outcome::Again(delay) | Outcome::Patiently(delay)) => {
                    // The longest pause between restorations, and as long as they count after it.
                    assert!(delay <= Duration::from_secs(1200), "it waits for {delay:?}");
                    self.wait(delay.as_secs() + 1);
                }
                _ => quiet += 1,
            }
            if quiet == 2 {
                return;
            }
        }
        panic!("it does not come to rest: {:?}", self.pe().status);
    }

    /// What must be so once nothing changes any more.
    pub(super) fn check_rest(&self) {
        let pe = self.pe();
        let status = pe.status.clone().unwrap();
        let objects = self.surroundings.server.list::<Pod>();
        let pods: Vec<ObservedPod> = objects.iter().map(read).collect();
        let stop = pe.annotations().get(names::ANNOTATION_STOP_REQUESTED);
        assert_eq!(stop, status.stop_requested.as_ref(), "a request to stop, or to go on, is met");
        // One that the mirror does not show stays with the PE, if its deletion has failed.
        let is_shown = |pod: &Pod| pod.labels().get(names::LABEL_APP).is_some_and(|app| app == names::APP);
        let shown: Vec<_> = objects.iter().zip(&pods).filter(|(pod, _)| is_shown(pod)).map(|(_, pod)| pod).collect();
        if status.stopped {
            assert!(stop.is_some() && shown.iter().all(|pod| pod.end().is_some()), "{pods:?}");
            assert!(matches!(status.phase, Some(PePhase::Stopped | PePhase::Completed)), "{status:?}");
            return;
        }
        assert!(status.launch_count > 0 && status.created_launch_count == status.launch_count, "{status:?}");
        let runs = status.runtime_id.as_ref() == Some(&pe.spec.runtime_id);
        assert!(runs || status.phase == Some(PePhase::Completed), "{status:?}");
        let live: Vec<_> = pods.iter().filter(|pod| pod.end().is_none()).collect();
        let ended = status.last_termination.as_ref().filter(|last| last.launch_count == status.launch_count);
        match ended {
            Some(last) => {
                assert!(!is_restart_permitted(policies(&pe), last), "it should have been restarted: {status:?}");
                assert!(live.is_empty(), "{live:?} {status:?}");
            }
            None => {
                assert_eq!(live.iter().map(|pod| pod.launch_count).collect::<Vec<_>>(), [status.launch_count]);
                assert_eq!(status.phase, Some(PePhase::Running), "{status:?}");
                let pod = objects.iter().find(|pod| pod.metadata.uid == status.pod_uid).unwrap();
                assert!(is_of(pod, &pe), "it is the pod of this PE object");
                assert_eq!(ground_truth::launch(pod), status.launch_count);
                let spoilt = metadata::spoilt(&pod.metadata, &pe, status.launch_count);
                assert_eq!(spoilt, None, "what others have made of it is restored");
                assert!(is_controlled_by(&pod.metadata, &pe));
                let pool =
                    pe.spec.placement.pool.as_ref().map(|_| self.surroundings.server.get::<HostPool>(&key(POOL)));
                let of_pool = pool.flatten().and_then(|pool| pool.spec.hosts.first().cloned());
                assert_eq!(host(pod), of_pool.or(pe.spec.placement.host), "it runs where it should");
            }
        }
        assert!(!shown.iter().any(|pod| pod.lingers()), "a pod whose PE has ended keeps its place: {pods:?}");
        let failed = shown.iter().filter(|pod| pod.has_failed()).count();
        let kept = if pe.spec.options.delete_failed_pod { 0 } else { 3 };
        assert!(failed <= kept, "{failed} failed pods are kept");
        let completed = pods.iter().filter(|pod| pod.end().is_some_and(|end| !end.failed)).count();
        assert!(completed <= 1, "{completed} completed pods are kept");
    }

    pub(super) fn pe(&self) -> ProcessingElement {
        self.surroundings.server.get(&key(PE)).unwrap()
    }

    /// Calls of the process that leads.
    pub(super) fn calls(&self) -> usize {
        self.leader.connection.calls()
    }

    /// The PE has recorded the uid of a pod that is there.
    pub(super) fn is_recorded(&self) -> bool {
        let recorded = self.pe().status.and_then(|status| status.pod_uid);
        self.pods().iter().any(|pod| pod.metadata.uid == recorded)
    }

    pub(super) fn pods(&self) -> Vec<Pod> {
        self.surroundings.server.list()
    }

    /// A number that is another one after every change.
    pub(super) fn version(&self) -> u64 {
        self.surroundings.server.version()
    }

    /// What people were told since the last time.
    pub(super) fn notices(&self) -> Vec<Notice> {
        self.surroundings.server.announced().into_iter().map(|announced| announced.notice).collect()
    }
}

/// Something happens. It is the process that leads which creates a PE again. Says whether anything happened.
fn happen(surroundings: &Surroundings, known_launches: &KnownLaunches, event: ClusterEvent) -> bool {
    let took_place = surroundings.happen(event);
    if took_place && event == ClusterEvent::MakeAgain {
        known_launches.note_applied(&surroundings.server.get(&key(PE)).unwrap());
    }
    took_place
}

fn policies(pe: &ProcessingElement) -> Policies {
    Policies::of(&pe.spec.options, pe.spec.restart_failed_pod())
}
