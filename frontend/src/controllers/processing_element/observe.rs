//! Observes a PE, in the mirrors and the answers of the API server.

use super::answers::{Answers, status};
use super::decide::needs_another_pod;
use super::facts::LeftBehind;
use super::last_seen::SeenPod;
use super::observed::{ObservedPod, Obstacle, OwnerJob, PeObject, PeObservation, Policies};
use super::reconciler::PeReconciler;
use super::{pod, pod_status};
use crate::controllers::job;
use crate::controllers::submissions::CROWD;
use crate::controllers::times::{Clocks, whole_seconds};
use crate::controllers::user_requests::remembered;
use crate::mirrors::ByOwner as _;
use crate::pods_of_pe::{self, FIRST_LAUNCH};
use crate::start_hash::{Starts as _, is_written_by_others};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::{Resource, ResourceExt};
use std::sync::Arc;
use std::time::Duration;
use streams_api::{HostPool, Job, OlderTexts, ProcessingElement, names};
use streams_kubernetes::cluster::Cluster;
use streams_kubernetes::ownership::is_controlled_by;
use streams_kubernetes::{Error, Key};

/// How long a PE that gets another pod waits for its newest text (rule pe-23).
const RENEWED_WITHIN: SignedDuration = SignedDuration::from_secs(5);

impl<C: Cluster> PeReconciler<C> {
    /// The observation of a PE. `None` if the PE is not known.
    pub(super) fn observed(&self, key: &Key, answers: &Answers) -> Option<PeObservation> {
        let pe = answers.pe.as_ref()?;
        let pool = self.pool(pe);
        let redis = self.redis(pe);
        let template = self.template(pe, pool.as_deref(), redis.as_deref());
        let (mut pods, mut predecessors) = (Vec::new(), Vec::new());
        for pod in pods_of_pe::read(&self.mirrors, key, pe) {
            if let Some(launch) = pod_status::launch_of(&pod, pe) {
                pods.push(pod_status::read_of(&pod, pe, launch));
            } else if pod_status::is_of_predecessor(&pod, pe) {
                predecessors.push(pod_status::read_predecessor(&pod, pe));
            }
        }
        add_unknown(&mut pods, &answers.pods);
        if let Some(created) = &answers.created {
            pods.iter_mut().filter(|pod| pod.uid == created.uid).for_each(|pod| pod.take_origin_of(created));
        }
        add_unknown(&mut predecessors, &answers.predecessors);
        let status = status(pe);
        let launch_count = status.launch_count.max(FIRST_LAUNCH);
        let unrecorded = (status.launch_count == 0 && pods.is_empty()).then(|| self.first_seen(key, pe)).flatten();
        let first_was_deleted = unrecorded.as_ref().is_some_and(|seen| seen.deletion_seen);
        pods.extend(unrecorded.map(|seen| seen.pod));
        for pod in pods.iter_mut().filter(|pod| pod.is_deleting() && pod.end().is_some()) {
            let seen = self.last_seen.pod(key, &pe.uid().unwrap_or_default(), pod.launch_count, Some(&pod.uid));
            pod.was_going |= seen.is_some_and(|seen| seen.pod.was_going);
        }
        let now = whole_seconds(self.cluster.now());
        let (is_crowd, is_unsaid) = (self.cluster.was_crowded(&key.namespace), status.launch_count == 0);
        let told = self.told_of_restorations(key, pe.uid().as_deref().unwrap_or_default(), now);
        let mut observed = PeObservation {
            now,
            wanted: PeObject { is_first: self.is_first(pe), ..wanted(pe) },
            job: self.owner(pe, answers),
            template: template.map(|template| template.hashes().clone()),
            pods,
            first_was_deleted,
            predecessors,
            vanished: answers
                .vanished
                .clone()
                .filter(|(launch, _)| *launch == launch_count)
                .map(|(_, vanished)| vanished),
            refusal: answers.refused.as_ref().map(refusal),
            renewed_by: None,
            min_ready: self.min_ready(pe),
            may_wait_long: is_crowd || (is_unsaid && self.is_one_of_many(pe)),
            others_go_first_until: if is_unsaid { self.others_go_first_until(pe, is_crowd, now) } else { None },
            unrestored_until: told.not_before,
            contention: told.contention,
            status,
        };
        observed.renewed_by = self.renewed_by(key, pe, &observed);
        Some(observed)
    }

    /// The first pod of a PE whose status does not have it yet, although the mirror does not show it: it is about to,
    /// or the pod is gone (rule pe-1).
    fn first_seen(&self, key: &Key, pe: &ProcessingElement) -> Option<SeenPod> {
        self.last_seen.pod(key, pe.uid().as_deref().unwrap_or_default(), FIRST_LAUNCH, None)
    }

    /// Whether no PE of the job has a smaller number; of interest for PEs that a job has left behind.
    fn is_first(&self, pe: &ProcessingElement) -> bool {
        if is_controlled(pe) {
            return false;
        }
        let job = Key::of(pe).sibling(&pe.spec.job_name);
        self.mirrors.processing_elements.of_job(&job).all(|other| other.spec.id >= pe.spec.id)
    }

    /// Until when pods of others go before what this PE says of its first one, at most (rule pe-20): in a crowd those
    /// of jobs of the namespace that are being submitted, and those of its own job if they are a crowd themselves.
    /// `None` if there are none, or if somebody waits for the PE: a consistent region does, and whoever has its job
    /// resized.
    pub(super) fn others_go_first_until(
        &self,
        pe: &ProcessingElement,
        is_crowd: bool,
        now: Timestamp,
    ) -> Option<Timestamp> {
        let (key, job) = (Key::of(pe), &pe.spec.job_name);
        let of_namespace = if is_crowd { self.submissions.until(&key.namespace, now) } else { None };
        let until = of_namespace.max(self.submissions.own_until(&key.namespace, job, now))?;
        let job = self.mirrors.jobs.get(&key.sibling(job));
        let is_waited_for = job.is_some_and(|job| self.times.are_pes_waited_for(&job, now));
        (pe.spec.consistent_regions.is_empty() && !is_waited_for).then_some(until)
    }

    /// Whether the job is about to get, or is getting, so many PEs that they wait for each other.
    fn is_one_of_many(&self, pe: &ProcessingElement) -> bool {
        let job = self.mirrors.jobs.get(&Key::of(pe).sibling(&pe.spec.job_name));
        let Some(status) = job.as_ref().and_then(|job| job.status.as_ref()) else { return false };
        let changes = status.proposal.as_ref().and_then(|proposal| proposal.changes);
        let rolls_out = status.rollout.as_ref().filter(|rollout| rollout.finished_at.is_none());
        let added = changes.map(|changes| changes.added).into_iter().chain(rolls_out.map(|rollout| rollout.added));
        added.max().is_some_and(|added| added >= CROWD)
    }

    /// By when a pod of the PE is made, although a newer text of it is to be written before (rule pe-23). `None` if
    /// there is no such text, or if the PE needs no other pod: then the time begins anew with the next that it needs.
    fn renewed_by(&self, key: &Key, pe: &ProcessingElement, observed: &PeObservation) -> Option<Timestamp> {
        let uid = &observed.wanted.uid;
        if !self.is_outdated(pe) || !needs_another_pod(observed) {
            self.last_seen.has_pod(key, uid);
            return None;
        }
        let (before, clocks) = (observed.status.created_launch_count, Clocks::of(&self.cluster));
        let since = self.last_seen.without_pod_since(key, uid, before, clocks);
        Some(since.checked_add(RENEWED_WITHIN).unwrap_or(since))
    }

    /// The job has a newer text for the PE than that which it refers to.
    fn is_outdated(&self, pe: &ProcessingElement) -> bool {
        let job = self.mirrors.jobs.get(&Key::of(pe).sibling(&pe.spec.job_name));
        let Some(job) = job.filter(|job| is_controlled_by(pe.meta(), &**job)) else { return false };
        let is_it = |listed: &&OlderTexts| (listed.first..=listed.last).contains(&pe.spec.id);
        let listed = job.status.as_ref().and_then(|status| status.older_texts.iter().find(is_it));
        // The object may not have been brought to the committed generation yet.
        let newest = listed.map(|listed| names::newest_text(listed.generation, &pe.spec.config_map.name));
        newest.is_some_and(|newest| pe.annotations().get(names::ANNOTATION_NEWEST_TEXT) != Some(&newest))
    }

    /// How long a pod must have been running until it counts as running: as its job says, else the frontend.
    fn min_ready(&self, pe: &ProcessingElement) -> Duration {
        let job = self.mirrors.jobs.get(&Key::of(pe).sibling(&pe.spec.job_name));
        let job = job.filter(|job| is_controlled_by(pe.meta(), &**job));
        self.times.min_ready(job.as_deref().map(|job| &job.spec))
    }

    /// The job. That somebody has taken the PE away from it is believed to the API server only, before it is said: when
    /// a job is deleted without its PEs, all of them may lose their owner references before that is shown of the job.
    fn owner(&self, pe: &ProcessingElement, answers: &Answers) -> OwnerJob {
        let job = self.job(pe);
        let is_told = pe
            .status
            .as_ref()
            .is_none_or(|status| status.launch_count == 0 || LeftBehind::ReferenceRemoved.is_said(status));
        if job == OwnerJob::Estranged && !is_told { answers.job.unwrap_or(OwnerJob::Doubtful) } else { job }
    }

    pub(super) fn job(&self, pe: &ProcessingElement) -> OwnerJob {
        let key = Key::of(pe).sibling(&pe.spec.job_name);
        let Some(job) = self.mirrors.jobs.get(&key) else { return OwnerJob::Missing };
        if !is_controlled_by(pe.meta(), &*job) {
            // No number is given to two jobs (rule job-5). One that is being deleted is about to leave its PEs behind.
            let number = job.status.as_ref().and_then(|status| status.job_id);
            let is_its_job = number == Some(pe.spec.job_id) && job.metadata.deletion_timestamp.is_none();
            return if is_its_job { OwnerJob::Estranged } else { OwnerJob::Missing };
        }
        if job.metadata.deletion_timestamp.is_some() {
            return OwnerJob::Deleting;
        }
        let status = job.status.as_ref();
        let rollout = status.and_then(|status| status.rollout.as_ref());
        OwnerJob::There {
            created_at: job.metadata.creation_timestamp.as_ref().map(|time| time.0),
            generation: status.and_then(|status| status.generation),
            committed_at: rollout.and_then(|rollout| rollout.started_at.as_ref()).map(|time| time.0),
            suspended: job.spec.suspend,
        }
    }

    /// The host pool that the PE is placed in.
    pub(super) fn pool(&self, pe: &ProcessingElement) -> Option<Arc<HostPool>> {
        let location = pe.spec.placement.pool.as_ref()?;
        let key = Key::of(pe).sibling(&names::host_pool(&pe.spec.job_name, location.index));
        let pool = self.mirrors.host_pools.get(&key)?;
        let of_job = pool.spec.job_name == pe.spec.job_name && pool.spec.index == location.index;
        (of_job && pool.metadata.deletion_timestamp.is_none()).then_some(pool)
    }

    pub(super) fn redis(&self, pe: &ProcessingElement) -> Option<String> {
        let job = self.mirrors.jobs.get(&Key::of(pe).sibling(&pe.spec.job_name))?;
        redis_configuration(&job).cloned()
    }

    pub(super) fn template<'a>(
        &'a self,
        pe: &'a ProcessingElement,
        pool: Option<&'a HostPool>,
        redis: Option<&'a str>,
    ) -> Result<pod::PodTemplate<'a>, Obstacle> {
        if let Some(obstacle) = changed_by_others(pe, pool) {
            return Err(obstacle);
        }
        if pe.is_copy() {
            return Err(of_copy(pe));
        }
        let name = &pe.spec.config_map.name;
        let text = self.mirrors.config_maps.get(&Key::of(pe).sibling(name));
        let text = text.filter(|text| text.metadata.deletion_timestamp.is_none());
        let Some(text) = text else {
            return Err(Obstacle { reason: "TextMissing", message: format!("there is no ConfigMap {name}") });
        };
        if is_written_by_others(&text.metadata, job::MANAGER) {
            return Err(of_others(&format!("ConfigMap {name}")));
        }
        let parts = pod::Parts { pe, pool: pool.map(|pool| &pool.spec), redis, settings: &self.settings };
        pod::PodTemplate::of(parts)
    }
}

/// Why the API server refused the pod (rule pe-4).
fn refusal(error: &Error) -> Obstacle {
    let reason = if error.is_of_quota() { "QuotaExceeded" } else { "PodRefused" };
    Obstacle { reason, message: error.to_string() }
}

/// The redis servers of a job's checkpoints: those that were found at its submission, else those that a user names.
pub(super) fn redis_configuration(job: &Job) -> Option<&String> {
    let found = job.status.as_ref().and_then(|status| status.redis_configuration.as_ref());
    found.or_else(|| job.annotations().get(names::ANNOTATION_REDIS_CONFIGURATION))
}

/// Somebody else has changed what pods are replaced for; it is about to be restored.
fn changed_by_others(pe: &ProcessingElement, pool: Option<&HostPool>) -> Option<Obstacle> {
    let of_pool = pool.filter(|pool| pool.spec.is_changed_by_others(&pool.metadata));
    let changed = match (pe.spec.is_changed_by_others(&pe.metadata), of_pool) {
        (true, _) => "its spec".to_owned(),
        (false, Some(pool)) => format!("host pool {}", pool.name_any()),
        (false, None) => return None,
    };
    Some(of_others(&changed))
}

/// Its pod would answer under the Service of the PE that it is a copy of, write into its volumes, and report as it.
fn of_copy(pe: &ProcessingElement) -> Obstacle {
    let original = names::processing_element(&pe.spec.job_name, pe.spec.id);
    let message = format!("it is a copy of {original}, and gets no pod, which would answer as that: delete it");
    Obstacle { reason: "JobMissing", message }
}

/// Somebody else has changed that.
fn of_others(changed: &str) -> Obstacle {
    let message = format!("somebody else than the operator changed {changed}; it has to be restored first");
    Obstacle { reason: "ChangedByOthers", message }
}

fn is_controlled(pe: &ProcessingElement) -> bool {
    pe.owner_references().iter().any(|owner| owner.controller == Some(true))
}

/// Adds the pods that are not there yet.
fn add_unknown(pods: &mut Vec<ObservedPod>, answered: &[ObservedPod]) {
    for pod in answered {
        if !pods.iter().any(|known| known.uid == pod.uid) {
            pods.push(pod.clone());
        }
    }
}

fn wanted(pe: &ProcessingElement) -> PeObject {
    PeObject {
        name: pe.name_any(),
        uid: pe.uid().unwrap_or_default(),
        object_generation: pe.metadata.generation,
        created_at: pe.metadata.creation_timestamp.as_ref().map(|time| time.0),
        made_again: pe.annotations().contains_key(names::ANNOTATION_MADE_AGAIN),
        deleting: pe.metadata.deletion_timestamp.is_some(),
        controlled: is_controlled(pe),
        is_first: false,
        generation: pe.spec.generation,
        runtime_id: pe.spec.runtime_id.clone(),
        restart_requested: pe.annotations().get(names::ANNOTATION_RESTART_REQUESTED).map(|text| remembered(text)),
        stop_requested: pe.annotations().get(names::ANNOTATION_STOP_REQUESTED).map(|text| remembered(text)),
        policies: Policies::of(&pe.spec.options, pe.spec.restart_failed_pod()),
    }
}
