//! Observes a PE, decides, and acts until nothing is left to do now.
//!
//! What is observed comes from mirrors, which lag behind, and from the answers to what was just written. So:
//! * the status is written by compare-and-swap; after a conflict the PE is read, and decided about again;
//! * a pod is created only for a PE that was read or written just now, so that no pod comes back whose end was recorded
//!   meanwhile; and only if the API server does not have the pod before it any more, or says that it has ended;
//! * that a pod is gone, or was not created yet, is believed to the API server only, not to the mirror (rule pe-9).
//!
//! Everything else is the same however often it is done.

use std::{collections::BTreeSet, fmt, future::Future, sync::Arc, time::Duration};

use k8s_openapi::{api::core::v1::Pod, jiff::Timestamp};
use kube::{Resource, ResourceExt};
use sha2::{Digest, Sha256};
use tracing::Instrument;

use crate::mirrors::ByOwner as _;
use crate::mirrors::Mirrors;
use crate::settings::PodSettings;
use streams_api::{HostPool, ProcessingElement, ProcessingElementStatus, names};
use streams_kubernetes::{Error, Key, apply::is_controlled_by, error::is_not_found, queue::Outcome};
use streams_process::telemetry;

use super::{
    decide::{Change, Decision, Deletion, Notice, Step, decide},
    figures::Figures,
    memory::{LastSeen, OwnWrites},
    observed::{self, Job, Observed, Policies, Vanished, Waiting, Wanted},
    pod, seen,
};

/// Steps of one turn; more would mean that two of them undo each other.
const STEPS_MAX: usize = 16;
/// How soon to look again at what is going away under the name of what should come.
const SOON: Duration = Duration::from_secs(1);
/// Longest request to restart that is kept as it is (schema).
const REQUEST_MAX: usize = 1024;

/// What the controller does to the cluster, and asks it.
pub(crate) trait Cluster: Send + Sync + 'static {
    /// The time.
    fn now(&self) -> Timestamp;

    /// The PE as it is now.
    fn processing_element(&self, key: &Key) -> impl Future<Output = Result<Option<ProcessingElement>, Error>> + Send;

    /// Writes the status, if nobody wrote the PE since it was read. Gives the PE as it is now.
    fn write_status(&self, pe: &ProcessingElement) -> impl Future<Output = Result<ProcessingElement, Error>> + Send;

    /// The pod as it is now.
    fn pod(&self, key: &Key) -> impl Future<Output = Result<Option<Pod>, Error>> + Send;

    /// Creates a pod, or finds the one that was created for the same launch of the same PE.
    fn create_pod(&self, pod: &Pod) -> impl Future<Output = Result<Pod, Error>> + Send;

    /// Deletes the pod with this uid, if it is still there.
    fn delete_pod(&self, key: &Key, uid: &str) -> impl Future<Output = Result<(), Error>> + Send;

    /// Whether the node exists; `None` if that may not be asked.
    fn node_exists(&self, name: &str) -> impl Future<Output = Result<Option<bool>, Error>> + Send;

    /// Tells people.
    fn announce(&self, pe: &ProcessingElement, notice: &Notice);
}

/// Brings PEs to what their specs want.
pub(crate) struct Reconciler<C> {
    cluster: C,
    mirrors: Mirrors,
    settings: PodSettings,
    min_ready: Duration,
    figures: Figures,
    last_seen: Arc<LastSeen>,
    own_writes: OwnWrites,
}

/// What is known of a PE in one turn beside the mirrors.
struct Turn {
    key: Key,
    pe: ProcessingElement,
    /// It came from the API server in this turn.
    fresh: bool,
    /// Pods that the API server showed and that the mirror may not have yet.
    pods: Vec<observed::Pod>,
    /// The launch count whose pod does not exist, as of the PE that was read or written last.
    vanished: Option<(u64, Vanished)>,
    refusal: Option<String>,
    /// The launch count before, once the API server was asked for its pod.
    previous: Option<u64>,
    /// Uids of pods that were deleted in this turn.
    deleted: BTreeSet<String>,
}

/// What became of a status.
enum Written {
    Yes,
    /// Somebody wrote the PE before; it is known as it is now.
    Outrun,
    /// There is no such PE any more.
    Gone,
}

impl Turn {
    fn now_is(&mut self, pe: ProcessingElement) {
        self.pe = pe;
        self.fresh = true;
    }

    /// Somebody else may have written it, and created the pod that did not exist when it was looked for.
    fn read_again(&mut self, pe: ProcessingElement) {
        self.vanished = None;
        self.now_is(pe);
    }

    fn status(&self) -> ProcessingElementStatus {
        self.pe.status.clone().unwrap_or_default()
    }
}

impl<C> fmt::Debug for Reconciler<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Reconciler")
    }
}

impl<C: Cluster> Reconciler<C> {
    /// A reconciler of the PEs of these mirrors. `min_ready`: how long a pod must have been running until it counts as
    /// running.
    pub(crate) fn new(
        cluster: C,
        mirrors: &Mirrors,
        settings: PodSettings,
        min_ready: Duration,
        figures: Figures,
    ) -> Self {
        let last_seen = Arc::new(LastSeen::default());
        let seen = Arc::clone(&last_seen);
        mirrors.pods.subscribe(move |pod| seen.note(pod));
        Self {
            cluster,
            mirrors: mirrors.clone(),
            settings,
            min_ready,
            figures,
            last_seen,
            own_writes: OwnWrites::default(),
        }
    }

    /// Does what is to be done for a PE now.
    ///
    /// # Errors
    /// A call failed, or the API server refuses the pod. The same turn later does the rest.
    pub(crate) async fn reconcile(&self, key: &Key) -> Result<Outcome, Error> {
        let Some(pe) = self.mirrors.processing_elements.get(key) else {
            self.last_seen.forget(key);
            self.own_writes.forget(key);
            return Ok(Outcome::Done);
        };
        let mut turn = Turn {
            key: key.clone(),
            pe: self.own_writes.newer(key, &pe),
            fresh: false,
            pods: Vec::new(),
            vanished: None,
            refusal: None,
            previous: None,
            deleted: BTreeSet::new(),
        };
        let mut refused = None;
        for _ in 0..STEPS_MAX {
            let observed = self.observe(&turn);
            let decision = decide(&observed);
            tracing::debug!(step = ?decision.step, deletions = decision.deletions.len(), "decided");
            self.delete(&mut turn, &decision.deletions).await?;
            match decision.step {
                Step::Rest => {
                    if decision.status != observed.status {
                        match self.write(&mut turn, &decision).await? {
                            Written::Yes => {}
                            Written::Outrun => continue,
                            Written::Gone => return Ok(Outcome::Done),
                        }
                    }
                    return match refused {
                        Some(error) => Err(error),
                        None => Ok(later(decision.wake_at, self.cluster.now())),
                    };
                }
                Step::Record(change) => match self.write(&mut turn, &decision).await? {
                    Written::Yes => self.count(change, &decision.status),
                    Written::Outrun => {}
                    Written::Gone => return Ok(Outcome::Done),
                },
                Step::Look => self.look(&mut turn).await?,
                Step::Create if !turn.fresh => match self.cluster.processing_element(key).await? {
                    Some(pe) => turn.read_again(pe),
                    None => return Ok(Outcome::Done),
                },
                Step::Create if self.is_previous_in_the_way(&mut turn).await? => {}
                Step::Create => match self.create(&mut turn).await {
                    Ok(()) => {}
                    Err(Error::Terminating { .. }) => return Ok(Outcome::Again(SOON)),
                    Err(error) if is_refusal(&error) => {
                        let message = error.to_string();
                        let note = Notice { warning: true, reason: "PodRefused", note: message.clone() };
                        self.cluster.announce(&turn.pe, &note);
                        turn.refusal = Some(message);
                        refused = Some(error);
                    }
                    Err(error) => return Err(error),
                },
            }
        }
        tracing::warn!(%key, "no end after {STEPS_MAX} steps");
        Ok(Outcome::Again(SOON))
    }

    /// Writes the status; if somebody else was faster, reads the PE.
    async fn write(&self, turn: &mut Turn, decision: &Decision) -> Result<Written, Error> {
        let mut pe = turn.pe.clone();
        pe.status = Some(decision.status.clone());
        match self.cluster.write_status(&pe).await {
            Ok(pe) => {
                self.own_writes.note(&turn.key, &pe);
                turn.now_is(pe);
                for notice in &decision.notices {
                    self.cluster.announce(&turn.pe, notice);
                }
                Ok(Written::Yes)
            }
            Err(error) if error.is_conflict() => Ok(match self.cluster.processing_element(&turn.key).await? {
                Some(pe) => {
                    turn.read_again(pe);
                    Written::Outrun
                }
                None => Written::Gone,
            }),
            Err(Error::Call(error)) if is_not_found(&error) => Ok(Written::Gone),
            Err(error) => Err(error),
        }
    }

    async fn look(&self, turn: &mut Turn) -> Result<(), Error> {
        let status = turn.status();
        let launch_count = status.launch_count;
        let uid = turn.pe.uid().unwrap_or_default();
        let name = pod::name(&turn.key.name, &uid, launch_count);
        let is_recorded = |pod: &Pod| status.pod_uid.is_none() || status.pod_uid == pod.uid();
        if let Some(pod) = self.cluster.pod(&turn.key.sibling(&name)).await?
            && is_controlled_by(pod.meta(), &turn.pe)
            && is_recorded(&pod)
        {
            turn.pods.push(seen::read(&pod));
            return Ok(());
        }
        let last_seen = self.last_seen.pod(&turn.key, &uid, launch_count, status.pod_uid.as_deref());
        let node = last_seen.as_ref().and_then(|pod| pod.node.clone()).or(status.node_name);
        let node_gone = match node {
            Some(node) => self.cluster.node_exists(&node).await? == Some(false),
            None => false,
        };
        turn.vanished = Some((launch_count, Vanished { last_seen, node_gone }));
        Ok(())
    }

    /// Whether the pod that was created last may still run although the mirror does not show it.
    async fn is_previous_in_the_way(&self, turn: &mut Turn) -> Result<bool, Error> {
        let status = turn.status();
        let previous = status.created_launch_count;
        if previous == 0 || turn.previous == Some(previous) {
            return Ok(false);
        }
        turn.previous = Some(previous);
        let name = pod::name(&turn.key.name, &turn.pe.uid().unwrap_or_default(), previous);
        let Some(pod) = self.cluster.pod(&turn.key.sibling(&name)).await? else { return Ok(false) };
        if !is_controlled_by(pod.meta(), &turn.pe) {
            return Ok(false);
        }
        turn.pods.push(seen::read(&pod));
        Ok(true)
    }

    async fn create(&self, turn: &mut Turn) -> Result<(), Error> {
        let launch_count = turn.status().launch_count;
        let pe = turn.pe.clone();
        let pool = self.pool(&pe);
        let redis = self.redis(&pe);
        let Ok(template) = self.template(&pe, pool.as_deref(), redis.as_deref()) else {
            return Ok(());
        };
        let pod = template.pod(launch_count);
        let span = tracing::info_span!("create pod", pod = pod.name_any(), launch_count);
        if let Some(trace) = pe.annotations().get(names::ANNOTATION_TRACE_PARENT) {
            telemetry::continue_trace(&span, trace);
        }
        let created = self.cluster.create_pod(&pod).instrument(span).await?;
        turn.pods.push(seen::read(&created));
        Ok(())
    }

    async fn delete(&self, turn: &mut Turn, deletions: &[Deletion]) -> Result<(), Error> {
        for Deletion { name, uid } in deletions {
            if turn.deleted.insert(uid.clone()) {
                self.cluster.delete_pod(&turn.key.sibling(name), uid).await?;
            }
        }
        Ok(())
    }

    fn count(&self, change: Change, status: &ProcessingElementStatus) {
        match change {
            Change::Launch(reason) => self.figures.launched(reason),
            Change::Ended => {
                if let Some(last) = &status.last_termination {
                    self.figures.ended(last.outcome);
                }
            }
            Change::Adopted | Change::Created | Change::Removed(_) | Change::RequestMet | Change::PutOff => {}
        }
    }

    fn observe(&self, turn: &Turn) -> Observed {
        let Turn { key, pe, .. } = turn;
        let pool = self.pool(pe);
        let redis = self.redis(pe);
        let template = self.template(pe, pool.as_deref(), redis.as_deref());
        let (mut pods, mut predecessors) = (Vec::new(), Vec::new());
        for pod in self.mirrors.pods.of_pe(key) {
            if is_controlled_by(pod.meta(), pe) {
                pods.push(seen::read(&pod));
            } else if seen::is_of_predecessor(&pod, pe) {
                predecessors.push(seen::read(&pod));
            }
        }
        for pod in &turn.pods {
            if !pods.iter().any(|known| known.uid == pod.uid) {
                pods.push(pod.clone());
            }
        }
        let status = turn.status();
        let launch_count = status.launch_count;
        Observed {
            now: whole_seconds(self.cluster.now()),
            wanted: wanted(pe),
            job: self.job(pe),
            template: template.map(|template| template.hashes().clone()),
            pods,
            predecessors,
            vanished: turn.vanished.clone().filter(|(launch, _)| *launch == launch_count).map(|(_, vanished)| vanished),
            refusal: turn.refusal.clone(),
            min_ready: self.min_ready,
            status,
        }
    }

    fn job(&self, pe: &ProcessingElement) -> Job {
        let key = Key::of(pe).sibling(&pe.spec.job_name);
        let Some(job) = self.mirrors.jobs.get(&key).filter(|job| is_controlled_by(pe.meta(), &**job)) else {
            return Job::Missing;
        };
        if job.metadata.deletion_timestamp.is_some() {
            return Job::Deleting;
        }
        let status = job.status.as_ref();
        let rollout = status.and_then(|status| status.rollout.as_ref());
        Job::There {
            generation: status.and_then(|status| status.generation),
            committed_at: rollout.and_then(|rollout| rollout.started_at.as_ref()).map(|time| time.0),
        }
    }

    /// The host pool that the PE is placed in.
    fn pool(&self, pe: &ProcessingElement) -> Option<Arc<HostPool>> {
        let location = pe.spec.placement.pool.as_ref()?;
        let key = Key::of(pe).sibling(&names::host_pool(&pe.spec.job_name, location.index));
        let pool = self.mirrors.host_pools.get(&key)?;
        let of_job = pool.spec.job_name == pe.spec.job_name && pool.spec.index == location.index;
        (of_job && pool.metadata.deletion_timestamp.is_none()).then_some(pool)
    }

    fn redis(&self, pe: &ProcessingElement) -> Option<String> {
        let job = self.mirrors.jobs.get(&Key::of(pe).sibling(&pe.spec.job_name))?;
        job.annotations().get(names::ANNOTATION_REDIS_CONFIGURATION).cloned()
    }

    fn template<'a>(
        &'a self,
        pe: &'a ProcessingElement,
        pool: Option<&'a HostPool>,
        redis: Option<&'a str>,
    ) -> Result<pod::Template<'a>, Waiting> {
        let name = &pe.spec.config_map.name;
        let text = self.mirrors.config_maps.get(&Key::of(pe).sibling(name));
        if text.is_none_or(|text| text.metadata.deletion_timestamp.is_some()) {
            return Err(Waiting { reason: "TextMissing", message: format!("there is no ConfigMap {name}") });
        }
        let parts = pod::Parts { pe, pool: pool.map(|pool| &pool.spec), redis, settings: &self.settings };
        pod::Template::of(parts)
    }
}

fn wanted(pe: &ProcessingElement) -> Wanted {
    Wanted {
        name: pe.name_any(),
        uid: pe.uid().unwrap_or_default(),
        object_generation: pe.metadata.generation,
        created_at: pe.metadata.creation_timestamp.as_ref().map(|time| time.0),
        deleting: pe.metadata.deletion_timestamp.is_some(),
        generation: pe.spec.generation,
        runtime_id: pe.spec.runtime_id.clone(),
        restart_requested: pe.annotations().get(names::ANNOTATION_RESTART_REQUESTED).map(|text| bounded(text)),
        policies: Policies::of(&pe.spec.options, pe.spec.restart_failed_pod()),
    }
}

/// The text, or something that stands for it and fits the status.
fn bounded(text: &str) -> String {
    if text.len() <= REQUEST_MAX { text.to_owned() } else { format!("sha256:{}", hex::encode(Sha256::digest(text))) }
}

/// What the status can hold: what is decided now is what will be read.
fn whole_seconds(time: Timestamp) -> Timestamp {
    Timestamp::from_second(time.as_second()).unwrap_or(time)
}

/// The API server does not want the pod as it is; the next one may be as unwelcome.
fn is_refusal(error: &Error) -> bool {
    let forbidden = matches!(error, Error::Call(kube::Error::Api(status)) if status.code == 403);
    error.is_permanent() || forbidden
}

fn later(wake_at: Option<Timestamp>, now: Timestamp) -> Outcome {
    match wake_at {
        None => Outcome::Done,
        Some(at) => Outcome::Again(
            Duration::try_from(at.duration_since(now)).unwrap_or_default().max(Duration::from_millis(10)),
        ),
    }
}
