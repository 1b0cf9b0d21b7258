//! The world: what the API server has, what happens to it, and what must never happen.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use futures::executor::block_on;
use k8s_openapi::{
    api::core::v1::{Pod, PodCondition, PodStatus},
    apimachinery::pkg::apis::meta::v1::Time,
    jiff::Timestamp,
};
use kube::{ResourceExt, core::ObjectMeta};

use super::super::{
    decide::{Notice, is_restart_permitted},
    figures::Figures,
    observed::Policies,
    reconcile::{Cluster, Reconciler},
    seen,
};
use crate::{
    api::{
        AadlConfigMap, BundleReference, DeletedBy, Job, JobSpec, JobStatus, Placement, ProcessingElement,
        ProcessingElementSpec, Termination, TerminationOutcome, TraceLevel, names,
    },
    kubernetes::{
        Error, Key,
        apply::{controlled_by, is_controlled_by},
        mirrors::Mirrors,
        queue::Outcome,
        watch::ConfigMapMeta,
    },
    metrics::Metrics,
    settings::PodSettings,
};

/// Grace period of pods.
const GRACE: i64 = 30;
const NAMESPACE: &str = "n";
const JOB: &str = "flow";
const PE: &str = "flow-3";

/// How a pod really ended.
#[derive(Clone, Debug, Default)]
struct Truth {
    outcome: Option<TerminationOutcome>,
    /// Somebody other than the controller deleted it.
    by_other: bool,
    node_gone: bool,
    /// Where it had to run.
    host: Option<String>,
    /// The trace level it was made with.
    level: Option<String>,
}

/// A change that a mirror has not been told of yet.
#[derive(Clone, Debug)]
enum News {
    Pe(Box<ProcessingElement>),
    Pod(Box<Pod>),
    PodGone(Key),
}

/// Where a crash comes, counted in calls.
#[derive(Clone, Copy, Debug)]
struct Crash {
    calls_left: usize,
    after_effect: bool,
}

#[derive(Default)]
struct State {
    second: i64,
    version: u64,
    uids: u64,
    pe: Option<ProcessingElement>,
    job: Option<Job>,
    has_text: bool,
    pods: BTreeMap<String, Pod>,
    nodes: BTreeSet<String>,
    truth: BTreeMap<u64, Truth>,
    pe_news: VecDeque<News>,
    pod_news: VecDeque<News>,
    crash: Option<Crash>,
    crashed: bool,
    /// What a user does between two calls of the controller.
    meanwhile: Option<(usize, Deed)>,
    writes: usize,
    notices: Vec<Notice>,
    refused: bool,
}

/// Something that happens without the controller.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Deed {
    /// The newest pod starts to run.
    Run,
    /// The newest pod that runs ends.
    End { code: i32 },
    /// A kubelet ends a pod that is being deleted; it says so before the pod is gone, or not.
    Finish { said: bool, code: i32 },
    /// A user deletes a pod, the oldest or the newest.
    Delete { newest: bool },
    /// The newest pod is drained.
    Drain,
    /// The node of the newest pod runs out of memory.
    Evict,
    /// The node of the newest pod is gone, and the pod with it; it says so before, or not.
    LoseNode { said: bool },
    /// Somebody deletes the newest pod by force.
    Vanish,
    /// A user asks for a restart.
    Request(u8),
    /// A user changes the policies.
    Policies(u8),
    /// A user changes an option.
    Option(bool),
    /// A resize changes the text, in the same or the next generation.
    Text { generation: bool },
    /// A resize changes the place.
    Place(bool),
    /// The job commits its newest generation.
    Commit,
    /// The ConfigMap is there or not.
    TextThere(bool),
    /// The API server refuses pods or not.
    Refuse(bool),
}

/// The world, with a controller in it.
pub(super) struct World {
    state: Arc<Mutex<State>>,
    mirrors: Mirrors,
    reconciler: Reconciler<Calls>,
}

/// What the controller sees of the world.
struct Calls(Arc<Mutex<State>>);

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap()
}

fn key(name: &str) -> Key {
    Key::new(NAMESPACE, name)
}

fn meta(name: &str, uid: &str) -> ObjectMeta {
    ObjectMeta {
        namespace: Some(NAMESPACE.to_owned()),
        name: Some(name.to_owned()),
        uid: Some(uid.to_owned()),
        generation: Some(1),
        ..ObjectMeta::default()
    }
}

impl World {
    /// A job that has committed generation 0, and its PE.
    pub(super) fn new() -> Self {
        let mut job = Job::new(JOB, JobSpec::of(BundleReference::default()));
        job.metadata = meta(JOB, "job");
        job.status = Some(JobStatus { generation: Some(0), ..JobStatus::default() });
        let spec = ProcessingElementSpec {
            job_name: JOB.to_owned(),
            id: 3,
            content_id: "0".repeat(64),
            runtime_id: "r0".to_owned(),
            config_map: AadlConfigMap { name: "flow-3-text".to_owned(), compressed: false },
            restartable: true,
            ..ProcessingElementSpec::default()
        };
        let mut pe = ProcessingElement::new(PE, spec);
        pe.metadata = meta(PE, "pe");
        pe.metadata.labels = Some(names::pe_labels(JOB, 3));
        pe.metadata.owner_references = Some(vec![controlled_by(&job)]);
        let mut state = State { has_text: true, job: Some(job), ..State::default() };
        state.nodes.insert("node".to_owned());
        state.put_pe(pe);
        let state = Arc::new(Mutex::new(state));
        let (mirrors, reconciler) = start(&state);
        Self { state, mirrors, reconciler }
    }

    /// The controller crashes after so many calls of its next turn, before or after the effect of the last one.
    pub(super) fn crash_after(&self, calls_left: usize, after_effect: bool) {
        lock(&self.state).crash = Some(Crash { calls_left, after_effect });
    }

    /// Something happens after so many calls of the next turn.
    pub(super) fn meanwhile(&self, calls: usize, deed: Deed) {
        lock(&self.state).meanwhile = Some((calls, deed));
    }

    /// One turn of the controller; after a crash another one takes over, with mirrors that are up to date.
    pub(super) fn turn(&mut self) -> Option<Outcome> {
        let result = block_on(self.reconciler.reconcile(&key(PE)));
        let crashed = {
            let mut state = lock(&self.state);
            (state.crash, state.meanwhile) = (None, None);
            std::mem::take(&mut state.crashed)
        };
        if crashed {
            {
                let mut state = lock(&self.state);
                state.pe_news.clear();
                state.pod_news.clear();
            }
            (self.mirrors, self.reconciler) = start(&self.state);
        }
        result.ok()
    }

    /// The mirrors are told of so many changes.
    pub(super) fn deliver(&self, pes: usize, pods: usize) {
        let news: Vec<News> = {
            let mut state = lock(&self.state);
            let (pes, pods) = (pes.min(state.pe_news.len()), pods.min(state.pod_news.len()));
            let mut news: Vec<News> = state.pe_news.drain(..pes).collect();
            news.extend(state.pod_news.drain(..pods));
            news
        };
        for change in news {
            match change {
                News::Pe(pe) => self.mirrors.processing_elements.insert(*pe),
                News::Pod(pod) => self.mirrors.pods.insert(*pod),
                News::PodGone(key) => self.mirrors.pods.remove(&key),
            }
        }
        let state = lock(&self.state);
        if let Some(job) = &state.job {
            self.mirrors.jobs.insert(job.clone());
        }
        tell_text(&self.mirrors, state.has_text);
    }

    pub(super) fn wait(&self, seconds: i64) {
        lock(&self.state).second += seconds;
    }

    pub(super) fn happen(&self, deed: Deed) {
        lock(&self.state).happen(deed);
    }

    /// Everything is healthy from now on: until nothing changes any more.
    pub(super) fn calm_down(&mut self) {
        for deed in [Deed::Commit, Deed::TextThere(true), Deed::Refuse(false)] {
            self.happen(deed);
        }
        let mut quiet = 0;
        for _ in 0..200 {
            self.deliver(usize::MAX, usize::MAX);
            let before = lock(&self.state).version;
            let outcome = self.turn();
            while lock(&self.state).happen(Deed::Run) || lock(&self.state).happen(Deed::Finish { said: true, code: 0 })
            {
            }
            if lock(&self.state).version != before || outcome.is_none() {
                quiet = 0;
                continue;
            }
            match outcome {
                Some(Outcome::Again(delay)) => {
                    let seconds = i64::try_from(delay.as_secs()).unwrap() + 1;
                    assert!(seconds <= 400, "it waits for {seconds} s");
                    self.wait(seconds);
                }
                _ => quiet += 1,
            }
            if quiet == 2 {
                return;
            }
        }
        panic!("it does not come to rest: {:?}", lock(&self.state).pe.as_ref().unwrap().status);
    }

    /// What must be so once nothing changes any more.
    pub(super) fn check_rest(&self) {
        let state = lock(&self.state);
        let pe = state.pe.as_ref().unwrap();
        let status = pe.status.clone().unwrap();
        assert!(status.launch_count > 0 && status.created_launch_count == status.launch_count, "{status:?}");
        assert_eq!(status.runtime_id.as_ref(), Some(&pe.spec.runtime_id), "{status:?}");
        let live: Vec<_> = state.pods.values().map(seen::read).filter(|pod| pod.end().is_none()).collect();
        let ended = status.last_termination.as_ref().filter(|last| last.launch_count == status.launch_count);
        match ended {
            Some(last) => {
                assert!(!is_restart_permitted(policies(pe), last), "it should have been restarted: {status:?}");
                assert_eq!(live, [], "{status:?}");
            }
            None => {
                assert_eq!(live.iter().map(|pod| pod.launch_count).collect::<Vec<_>>(), [status.launch_count]);
                assert_eq!(status.phase, Some(crate::api::PePhase::Running), "{status:?}");
                let pod = state.pods.get(&live[0].name).unwrap();
                assert_eq!(host(pod), pe.spec.placement.host, "it runs where it should");
            }
        }
        let failed = state.pods.values().map(seen::read).filter(super::super::observed::Pod::has_failed).count();
        let kept = if pe.spec.options.delete_failed_pod { 0 } else { 3 };
        assert!(failed <= kept, "{failed} failed pods are kept");
        let completed =
            state.pods.values().map(seen::read).filter(|pod| pod.end().is_some_and(|end| !end.failed)).count();
        assert!(completed <= 1, "{completed} completed pods are kept");
    }

    pub(super) fn pe(&self) -> ProcessingElement {
        lock(&self.state).pe.clone().unwrap()
    }

    pub(super) fn pods(&self) -> Vec<super::super::observed::Pod> {
        lock(&self.state).pods.values().map(seen::read).collect()
    }

    pub(super) fn writes(&self) -> usize {
        lock(&self.state).writes
    }

    pub(super) fn notices(&self) -> Vec<Notice> {
        std::mem::take(&mut lock(&self.state).notices)
    }
}

/// A controller whose mirrors are up to date.
fn start(state: &Arc<Mutex<State>>) -> (Mirrors, Reconciler<Calls>) {
    let metrics = Metrics::new();
    let mirrors = Mirrors::new(&metrics);
    {
        let mut state = lock(state);
        state.pe_news.clear();
        state.pod_news.clear();
        if let Some(pe) = &state.pe {
            mirrors.processing_elements.insert(pe.clone());
        }
        for pod in state.pods.values() {
            mirrors.pods.insert(pod.clone());
        }
        if let Some(job) = &state.job {
            mirrors.jobs.insert(job.clone());
        }
        tell_text(&mirrors, state.has_text);
    }
    let figures = Figures::new(&metrics);
    let calls = Calls(Arc::clone(state));
    let reconciler = Reconciler::new(calls, &mirrors, PodSettings::default(), Duration::ZERO, figures);
    (mirrors, reconciler)
}

fn tell_text(mirrors: &Mirrors, there: bool) {
    if there {
        mirrors.config_maps.insert(ConfigMapMeta {
            types: None,
            metadata: meta("flow-3-text", "text"),
            _phantom: Default::default(),
        });
    } else {
        mirrors.config_maps.remove(&key("flow-3-text"));
    }
}

fn policies(pe: &ProcessingElement) -> Policies {
    Policies::of(&pe.spec.options, pe.spec.restart_failed_pod())
}

/// The node that a pod must run on.
fn host(pod: &Pod) -> Option<String> {
    let affinity = pod.spec.as_ref()?.affinity.as_ref()?.node_affinity.as_ref()?;
    let terms = &affinity.required_during_scheduling_ignored_during_execution.as_ref()?.node_selector_terms;
    terms.first()?.match_fields.as_ref()?.first()?.values.as_ref()?.first().cloned()
}

/// The trace level that a pod was made with.
fn level(pod: &Pod) -> Option<String> {
    let variables = pod.spec.as_ref()?.containers.first()?.env.as_ref()?;
    variables.iter().find(|variable| variable.name == "STREAMS_INITIAL_TRACE_LEVEL")?.value.clone()
}

impl State {
    fn now(&self) -> Timestamp {
        Timestamp::from_second(1_700_000_000 + self.second).unwrap()
    }

    fn next_version(&mut self) -> Option<String> {
        self.version += 1;
        Some(self.version.to_string())
    }

    fn put_pe(&mut self, mut pe: ProcessingElement) {
        pe.metadata.resource_version = self.next_version();
        self.pe_news.push_back(News::Pe(Box::new(pe.clone())));
        self.pe = Some(pe);
    }

    /// A change of the spec.
    fn edit(&mut self, edit: impl FnOnce(&mut ProcessingElement)) -> bool {
        let Some(mut pe) = self.pe.clone() else { return false };
        let before = pe.clone();
        edit(&mut pe);
        if pe == before {
            return false;
        }
        if pe.spec != before.spec {
            pe.metadata.generation = pe.metadata.generation.map(|generation| generation + 1);
        }
        self.put_pe(pe);
        true
    }

    fn put_pod(&mut self, mut pod: Pod) {
        pod.metadata.resource_version = self.next_version();
        self.pod_news.push_back(News::Pod(Box::new(pod.clone())));
        self.pods.insert(pod.name_any(), pod);
    }

    fn remove_pod(&mut self, name: &str) {
        if let Some(pod) = self.pods.remove(name) {
            self.version += 1;
            self.pod_news.push_back(News::PodGone(Key::of(&pod)));
            let pod = seen::read(&pod);
            let truth = self.truth.entry(pod.launch_count).or_default();
            if truth.outcome.is_none() {
                truth.outcome = Some(if pod.disruption.is_some() {
                    TerminationOutcome::Failed
                } else {
                    TerminationOutcome::Deleted
                });
            }
        }
    }

    fn newest(&self, wanted: impl Fn(&super::super::observed::Pod) -> bool) -> Option<Pod> {
        let pods = self.pods.values().filter(|pod| wanted(&seen::read(pod)));
        pods.max_by_key(|pod| seen::read(pod).launch_count).cloned()
    }

    fn set_phase(&mut self, mut pod: Pod, phase: &str, code: Option<i32>) {
        let start = pod.status.as_ref().and_then(|status| status.start_time.clone());
        let read = seen::read(&pod);
        let truth = self.truth.entry(read.launch_count).or_default();
        match phase {
            "Running" => {}
            "Failed" => truth.outcome = Some(TerminationOutcome::Failed),
            _ if read.disruption.is_some() => truth.outcome = Some(TerminationOutcome::Failed),
            _ => truth.outcome = Some(TerminationOutcome::Completed),
        }
        let now = self.now();
        let state = match code {
            None => serde_json::json!({"running": {"startedAt": now.to_string()}}),
            Some(code) => serde_json::json!({"terminated": {"exitCode": code, "reason": "R",
                "startedAt": start.as_ref().map(|start| start.0.to_string()), "finishedAt": now.to_string()}}),
        };
        let container = serde_json::json!([{"name": "pe", "image": "", "imageID": "", "ready": false, "restartCount": 0, "state": state}]);
        let before = pod.status.take().unwrap_or_default();
        pod.status = Some(PodStatus {
            phase: Some(phase.to_owned()),
            start_time: start.or(Some(Time(now))),
            container_statuses: serde_json::from_value(container).unwrap(),
            conditions: before.conditions,
            ..PodStatus::default()
        });
        self.put_pod(pod);
    }

    fn disrupt(&mut self, pod: &mut Pod, reason: &str) {
        let condition = PodCondition {
            type_: "DisruptionTarget".to_owned(),
            status: "True".to_owned(),
            reason: Some(reason.to_owned()),
            ..PodCondition::default()
        };
        pod.status.get_or_insert_default().conditions = Some(vec![condition]);
    }

    /// What the API server does with the request to delete a pod.
    fn delete(&mut self, mut pod: Pod, by_other: bool) {
        let read = seen::read(&pod);
        if by_other {
            self.truth.entry(read.launch_count).or_default().by_other = true;
        }
        let runs_somewhere = read.node.is_some() && read.end().is_none();
        if !runs_somewhere {
            return self.remove_pod(&read.name);
        }
        if pod.metadata.deletion_timestamp.is_none() {
            pod.metadata.deletion_timestamp =
                Some(Time(Timestamp::from_second(self.now().as_second() + GRACE).unwrap()));
            self.put_pod(pod);
        }
    }

    /// Says whether anything happened.
    fn happen(&mut self, deed: Deed) -> bool {
        match deed {
            Deed::Run => {
                let pending = |pod: &super::super::observed::Pod| pod.end().is_none() && pod.node.is_none();
                let Some(mut pod) = self.newest(pending) else { return false };
                let node = host(&pod).unwrap_or_else(|| "node".to_owned());
                self.nodes.insert(node.clone());
                pod.spec.get_or_insert_default().node_name = Some(node);
                self.set_phase(pod, "Running", None);
                true
            }
            Deed::End { code } => {
                let Some(pod) = self.newest(|pod| pod.node.is_some() && pod.end().is_none()) else { return false };
                self.set_phase(pod, if code == 0 { "Succeeded" } else { "Failed" }, Some(code));
                true
            }
            Deed::Finish { said, code } => {
                let Some(pod) = self.newest(super::super::observed::Pod::is_deleting) else { return false };
                let name = pod.name_any();
                if said && seen::read(&pod).end().is_none() {
                    self.set_phase(pod, if code == 0 { "Succeeded" } else { "Failed" }, Some(code));
                }
                self.remove_pod(&name);
                true
            }
            Deed::Delete { newest } => {
                let pod = if newest { self.newest(|_| true) } else { self.pods.values().next().cloned() };
                let Some(pod) = pod else { return false };
                self.delete(pod, true);
                true
            }
            Deed::Drain => {
                let Some(mut pod) = self.newest(|pod| pod.end().is_none() && !pod.is_deleting()) else { return false };
                self.disrupt(&mut pod, "EvictionByEvictionAPI");
                self.put_pod(pod.clone());
                self.delete(pod, true);
                true
            }
            Deed::Evict => {
                let Some(mut pod) = self.newest(|pod| pod.node.is_some() && pod.end().is_none()) else { return false };
                self.disrupt(&mut pod, "TerminationByKubelet");
                self.set_phase(pod, "Failed", Some(137));
                true
            }
            Deed::LoseNode { said } => {
                let Some(mut pod) = self.newest(|pod| pod.node.is_some()) else { return false };
                let read = seen::read(&pod);
                self.nodes.remove(read.node.as_deref().unwrap_or_default());
                let truth = self.truth.entry(read.launch_count).or_default();
                (truth.node_gone, truth.by_other) = (true, true);
                if said && read.end().is_none() {
                    self.disrupt(&mut pod, "DeletionByPodGC");
                    self.set_phase(pod, "Failed", None);
                }
                self.remove_pod(&read.name);
                true
            }
            Deed::Vanish => {
                let Some(pod) = self.newest(|_| true) else { return false };
                self.truth.entry(seen::read(&pod).launch_count).or_default().by_other = true;
                self.remove_pod(&pod.name_any());
                true
            }
            Deed::Request(value) => self.edit(|pe| {
                pe.annotations_mut().insert(names::ANNOTATION_RESTART_REQUESTED.to_owned(), value.to_string());
            }),
            Deed::Policies(bits) => self.edit(|pe| {
                let options = &mut pe.spec.options;
                options.restart_failed_pod = [None, Some(false), Some(true)][usize::from(bits & 3) % 3];
                options.restart_completed_pod = bits & 4 != 0;
                options.restart_deleted_pod = bits & 8 != 0;
                options.delete_failed_pod = bits & 16 != 0;
            }),
            Deed::Option(debug) => self.edit(|pe| {
                pe.spec.options.runtime_trace_level = if debug { TraceLevel::Debug } else { TraceLevel::Info };
            }),
            Deed::Text { generation } => {
                let number = self.version;
                self.edit(|pe| {
                    pe.spec.runtime_id = format!("r{number}");
                    pe.spec.generation += u64::from(generation);
                })
            }
            Deed::Place(other) => self.edit(|pe| {
                let host = other.then(|| "other".to_owned());
                pe.spec.placement = Placement { host, ..Placement::default() };
            }),
            Deed::Commit => {
                let generation = self.pe.as_ref().map(|pe| pe.spec.generation);
                let Some(status) = self.job.as_mut().and_then(|job| job.status.as_mut()) else { return false };
                status.generation = generation;
                true
            }
            Deed::TextThere(there) => {
                self.has_text = there;
                true
            }
            Deed::Refuse(refused) => {
                self.refused = refused;
                true
            }
        }
    }

    /// A call of the controller begins: says whether it has its effect; then whether it answers.
    fn call(&mut self) -> (bool, bool) {
        match &mut self.meanwhile {
            Some((0, deed)) => {
                let deed = *deed;
                self.meanwhile = None;
                self.happen(deed);
            }
            Some((calls, _)) => *calls -= 1,
            None => {}
        }
        match &mut self.crash {
            _ if self.crashed => (false, false),
            Some(Crash { calls_left: 0, after_effect }) => {
                self.crashed = true;
                (*after_effect, false)
            }
            Some(Crash { calls_left, .. }) => {
                *calls_left -= 1;
                (true, true)
            }
            None => (true, true),
        }
    }

    fn write_status(&mut self, pe: &ProcessingElement) -> Result<ProcessingElement, Error> {
        let Some(existing) = self.pe.clone() else { return Err(not_found()) };
        if existing.metadata.resource_version != pe.metadata.resource_version {
            return Err(Error::Conflict { kind: "ProcessingElement".to_owned(), name: PE.to_owned() });
        }
        self.check_launch(&existing, pe);
        self.writes += 1;
        self.put_pe(ProcessingElement { status: pe.status.clone(), ..existing });
        Ok(self.pe.clone().unwrap())
    }

    /// Another pod is asked for only if there is a reason.
    fn check_launch(&self, existing: &ProcessingElement, pe: &ProcessingElement) {
        let (before, after) = (existing.status.clone().unwrap_or_default(), pe.status.clone().unwrap());
        if before.launch_count == after.launch_count {
            return;
        }
        assert_eq!(after.launch_count, before.launch_count + 1, "one launch at a time");
        let job = self.job.as_ref().unwrap().status.as_ref().unwrap();
        assert!(job.generation >= Some(existing.spec.generation), "the generation is committed");
        let requested = existing.annotations().get(names::ANNOTATION_RESTART_REQUESTED);
        if before.launch_count == 0 || (requested.is_some() && requested != before.restart_requested.as_ref()) {
            return;
        }
        assert_eq!(before.created_launch_count, before.launch_count, "the pod before was created");
        if before.runtime_id.as_ref() != Some(&existing.spec.runtime_id) {
            return;
        }
        let truth = self.truth.get(&before.launch_count).cloned().unwrap_or_default();
        let is_recorded = before.last_termination.as_ref().is_some_and(|last| last.launch_count == before.launch_count);
        // The controller may not have heard yet that the pod is gone, or that it ran: what it knows permits these.
        let same_place = truth.host == existing.spec.placement.host;
        let same_options = truth.level.as_deref() == Some(existing.spec.options.runtime_trace_level.name());
        let is_current = same_place && same_options;
        if !is_recorded && !is_current {
            return;
        }
        let policies = policies(existing);
        let pod = self.pods.values().map(seen::read).find(|pod| pod.launch_count == before.launch_count);
        let unanswered = pod.as_ref().is_some_and(|pod| !pod.may_run(self.now()));
        let disrupted = pod.is_some_and(|pod| pod.disruption.is_some());
        let unsaid = if disrupted { TerminationOutcome::Failed } else { TerminationOutcome::Deleted };
        let outcome = truth.outcome.unwrap_or(unsaid);
        let deleted_by = truth.by_other.then_some(DeletedBy::Other);
        let permitted = is_restart_permitted(policies, &Termination { outcome, deleted_by, ..Termination::default() })
            || (truth.node_gone && policies.restart_failed);
        let ended = truth.outcome.is_some() || unanswered;
        assert!(ended && permitted, "launch {} is forbidden: {policies:?} {truth:?}", after.launch_count);
        if before.consecutive_restarts > 0 && after.consecutive_restarts > before.consecutive_restarts {
            let due = before.next_restart_time.as_ref().is_some_and(|time| time.0 <= self.now());
            assert!(due, "launch {} is early", after.launch_count);
        }
    }

    fn create_pod(&mut self, pod: &Pod) -> Result<Pod, Error> {
        if self.refused {
            return Err(Error::Refused { kind: "Pod".to_owned(), name: pod.name_any(), message: "no".to_owned() });
        }
        let pe = self.pe.clone().expect("a pod is created for a PE that exists");
        assert!(is_controlled_by(&pod.metadata, &pe));
        let launch_count = seen::read(pod).launch_count;
        let status = pe.status.clone().unwrap_or_default();
        assert_eq!(launch_count, status.launch_count, "a pod is created for the launch that was asked for");
        if let Some(existing) = self.pods.get(&pod.name_any()) {
            if existing.metadata.deletion_timestamp.is_some() {
                return Err(Error::Terminating { kind: "Pod".to_owned(), name: pod.name_any() });
            }
            return Ok(existing.clone());
        }
        assert!(status.created_launch_count < launch_count, "a pod that is known to have been created comes back");
        for other in self.pods.values().map(seen::read) {
            assert!(!other.may_run(self.now()), "{} still runs while {} is created", other.name, pod.name_any());
        }
        self.uids += 1;
        let mut pod = pod.clone();
        pod.metadata.uid = Some(format!("pod {}", self.uids));
        // What an unnoticed pod of the same launch came to does not count any more.
        let truth = Truth { host: host(&pod), level: level(&pod), ..Truth::default() };
        self.truth.insert(launch_count, truth);
        self.put_pod(pod.clone());
        Ok(self.pods.get(&pod.name_any()).cloned().unwrap())
    }

    fn delete_pod(&mut self, key: &Key, uid: &str) {
        let Some(pod) = self.pods.get(&*key.name).filter(|pod| pod.uid().as_deref() == Some(uid)).cloned() else {
            return;
        };
        let read = seen::read(&pod);
        let pe = self.pe.clone().unwrap();
        let status = pe.status.unwrap_or_default();
        let recorded = status.last_termination.as_ref().is_some_and(|last| last.launch_count == read.launch_count);
        assert!(
            read.launch_count < status.launch_count || recorded,
            "how {} ended is recorded before it is deleted",
            read.name
        );
        self.delete(pod, false);
    }
}

fn not_found() -> Error {
    Error::Call(kube::Error::Api(kube::core::Status::failure("gone", "NotFound").with_code(404).boxed()))
}

impl Calls {
    fn call<T>(&self, effect: impl FnOnce(&mut State) -> Result<T, Error>) -> Result<T, Error> {
        let mut state = lock(&self.0);
        let (has_effect, answers) = state.call();
        let result = if has_effect { effect(&mut state) } else { Err(not_found()) };
        if answers { result } else { Err(Error::Call(kube::Error::Service("crashed".into()))) }
    }
}

impl Cluster for Calls {
    fn now(&self) -> Timestamp {
        lock(&self.0).now()
    }

    async fn processing_element(&self, _: &Key) -> Result<Option<ProcessingElement>, Error> {
        self.call(|state| Ok(state.pe.clone()))
    }

    async fn write_status(&self, pe: &ProcessingElement) -> Result<ProcessingElement, Error> {
        self.call(|state| state.write_status(pe))
    }

    async fn pod(&self, key: &Key) -> Result<Option<Pod>, Error> {
        self.call(|state| Ok(state.pods.get(&*key.name).cloned()))
    }

    async fn create_pod(&self, pod: &Pod) -> Result<Pod, Error> {
        self.call(|state| state.create_pod(pod))
    }

    async fn delete_pod(&self, key: &Key, uid: &str) -> Result<(), Error> {
        self.call(|state| {
            state.delete_pod(key, uid);
            Ok(())
        })
    }

    async fn node_exists(&self, name: &str) -> Result<Option<bool>, Error> {
        self.call(|state| Ok(Some(state.nodes.contains(name))))
    }

    fn announce(&self, _: &ProcessingElement, notice: &Notice) {
        lock(&self.0).notices.push(notice.clone());
    }
}
