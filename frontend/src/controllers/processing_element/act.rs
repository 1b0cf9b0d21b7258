//! Carries decisions out: writes the status, asks the API server for pods, creates and deletes them.
//!
//! Knows: the cluster, what a call is for. Must not know: why something is decided.
//!
//! Invariant: a status is written over the state that was looked at, and over no other.

use super::answers::{Answers, status};
use super::decide::{Deletion, PeAction, PeDecision, PeStatusChange};
use super::facts::{OUTDATED, was_created};
use super::memory::DELETION_COUNTS;
use super::observed::{AbsentPod, ObservedPod, OwnerJob, PeObservation};
use super::pod_status;
use super::reconciler::PeReconciler;
use crate::controllers::reconciler::Next;
use crate::controllers::resizing::is_in_roll_out;
use crate::controllers::times::{Clocks, after, up_to_second};
use crate::controllers::traces;
use crate::pods_of_pe::{self, FIRST_LAUNCH};
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use kube::api::{ListParams, PropagationPolicy};
use serde_json::json;
use std::cmp::Reverse;
use std::time::Duration;
use streams_api::{Job, ProcessingElement, ProcessingElementStatus, condition, names};
use streams_kubernetes::cluster::{Cluster, SMALL_PAGE};
use streams_kubernetes::error::is_no_status;
use streams_kubernetes::events::Notice;
use streams_kubernetes::gate::Priority;
use streams_kubernetes::ownership::{controller, is_controlled_by};
use streams_kubernetes::queue::Outcome;
use streams_kubernetes::writer::{Ensured, StatusWrite};
use streams_kubernetes::{Error, Key};
use streams_process::telemetry;
use tracing::{Instrument, field};

/// Nothing is left to do.
const DONE: Next = Next::Rest(Outcome::Done);
/// The API server says that the PE is gone. If that is so, the next look finds none; else nothing but this look would
/// wake the controller.
const GONE: Next = Next::Rest(Outcome::Conflict);

/// The result of writing a status.
enum Written {
    Yes,
    /// Another client has written the PE since it was read. It was read again.
    Outrun,
    /// The PE does not exist any more, or cannot be read.
    Gone,
}

impl<C: Cluster> PeReconciler<C> {
    /// A pod that cannot be deleted holds up nothing but what waits for its end.
    pub(super) async fn carry_out(
        &self,
        key: &Key,
        answers: &mut Answers,
        observed: &PeObservation,
        decision: PeDecision,
    ) -> Result<Next, Error> {
        Priority::Freeing.of(self.delete(key, answers, &decision.deletions)).await;
        let next = self.take_action(key, answers, observed, decision).await?;
        if let Next::Rest(_) = next
            && let Some((_, error)) = answers.undeleted.pop_first()
        {
            return Err(error);
        }
        Ok(next)
    }

    async fn take_action(
        &self,
        key: &Key,
        answers: &mut Answers,
        observed: &PeObservation,
        decision: PeDecision,
    ) -> Result<Next, Error> {
        let Some(pe) = answers.pe.clone() else { return Ok(DONE) };
        match decision.action {
            PeAction::Describe => {
                let is_told = answers.refused.is_some()
                    && is_same_but_for_words(&decision.status, &observed.status)
                    && self.refusals.is_told(key, pe.uid().as_deref().unwrap_or_default(), self.cluster.passed());
                if decision.status != observed.status && !is_told {
                    match self.write(key, answers, pe.clone(), &decision).await? {
                        Written::Yes => {}
                        Written::Outrun => return Ok(Next::Observe),
                        Written::Gone => return Ok(GONE),
                    }
                }
                match answers.refused.take() {
                    Some(refused) => {
                        if !is_told {
                            self.refusals.tell(key, pe.uid().as_deref().unwrap_or_default(), self.cluster.passed());
                        }
                        Err(refused)
                    }
                    None => self.rest(key, answers, observed, &decision).await,
                }
            }
            PeAction::Record(fact) => match self.write(key, answers, pe, &decision).await? {
                Written::Yes => {
                    self.count(fact, &decision.status);
                    Ok(Next::Observe)
                }
                Written::Outrun => Ok(Next::Observe),
                Written::Gone => Ok(GONE),
            },
            PeAction::Look => {
                self.look(key, answers, &pe).await?;
                Ok(Next::Observe)
            }
            PeAction::LookForJob => {
                answers.job = Some(self.look_for_job(key, &pe).await?);
                Ok(Next::Observe)
            }
            PeAction::Create if !answers.is_fresh && !self.known_launches.has(&pe) => {
                match self.cluster.get(key).await? {
                    Some(pe) => {
                        answers.read(pe);
                        Ok(Next::Observe)
                    }
                    None => Ok(GONE),
                }
            }
            PeAction::Create if self.is_previous_blocking(key, answers, &pe).await? => Ok(Next::Observe),
            PeAction::Create => match self.create(key, answers, &pe).await {
                Ok(()) => Ok(Next::Observe),
                Err(error) if is_refusal(&error) => {
                    self.cluster.announce(&pe, &Notice::warning("PodRefused", error.to_string()));
                    answers.refused = Some(error);
                    Ok(Next::Observe)
                }
                Err(error) => Err(error),
            },
        }
    }

    /// Nothing is left to do but to restore what others have changed of the pod, and to take back what nobody needs any
    /// more.
    async fn rest(
        &self,
        key: &Key,
        answers: &Answers,
        observed: &PeObservation,
        decision: &PeDecision,
    ) -> Result<Next, Error> {
        if let (Some(pod), Some(pe)) = (&decision.restored, &answers.pe)
            && Priority::Normal.of(self.restore(key, pe, pod)).await?
        {
            // Perhaps it was restored too often by now, and that is to be told.
            return Ok(Next::Observe);
        }
        if let Some(pe) = answers.pe.as_ref().filter(|_| decision.lets_others_go_first)
            && !self.keep_waiting(key, pe, observed.now)
        {
            return Ok(Next::Observe);
        }
        if observed.wanted.made_again && decision.status.launch_count > 0 {
            Priority::Telling.of(self.forget_made_again(key, answers)).await;
        }
        Ok(Next::Rest(later(decision, self.cluster.now())))
    }

    /// The PE lets others go first, and hears from now on of what becomes of them. Returns whether it still has to let
    /// them: they may have gone meanwhile, or somebody waits for the PE.
    fn keep_waiting(&self, key: &Key, pe: &ProcessingElement, now: Timestamp) -> bool {
        self.submissions.wait(key, &pe.spec.job_name)
            && self.others_go_first_until(pe, self.cluster.was_crowded(&key.namespace), now).is_some()
    }

    /// Takes back that the PE was made again: its launch count says from now on how far it has come (rule pe-6). It
    /// does no harm where it is, so that it cannot be taken back is no failure; it is tried again a while later, when
    /// the PE is looked at.
    async fn forget_made_again(&self, key: &Key, answers: &Answers) {
        let uid = answers.pe.as_ref().and_then(ResourceExt::uid).unwrap_or_default();
        if self.unforgotten.is_told(key, &uid, self.cluster.passed()) {
            return;
        }
        let patch = json!({"metadata": {"uid": uid, "annotations": {(names::ANNOTATION_MADE_AGAIN): null}}});
        match self.cluster.merge::<ProcessingElement>(self.writer(key).manager, key, &patch).await {
            Ok(mut pe) => {
                pe.metadata.managed_fields = None;
                self.own_writes.note(key, &pe);
            }
            Err(error) => {
                tracing::debug!(pe = %key, %error, "it cannot be taken back that the PE was made again");
                self.unforgotten.tell(key, &uid, self.cluster.passed());
            }
        }
    }

    /// What the decision is for (rule call-22).
    pub(super) fn priority(&self, key: &Key, decision: &PeDecision) -> Priority {
        let pe = self.mirrors.processing_elements.get(key);
        let job = pe.and_then(|pe| self.mirrors.jobs.get(&key.sibling(&pe.spec.job_name)));
        if job.is_some_and(|job| self.times.are_pes_waited_for(&job, self.cluster.now())) {
            return Priority::Urgent;
        }
        priority_of(decision)
    }

    /// Writes the status. If another client has written the PE since it was read, reads it again.
    async fn write(
        &self,
        key: &Key,
        answers: &mut Answers,
        mut pe: ProcessingElement,
        decision: &PeDecision,
    ) -> Result<Written, Error> {
        let is_ready = |pe: &ProcessingElement| {
            pe.status.as_ref().is_some_and(|status| condition::is_true(&status.conditions, condition::READY))
        };
        let was_ready = is_ready(&pe);
        pe.status = Some(decision.status.clone());
        // Before, because the answer may be lost.
        self.known_launches.forget(&pe);
        let written = self.writer(key).replace_status_or_find(&pe).await?;
        let is_own = matches!(written, StatusWrite::Done(_));
        match written {
            StatusWrite::Done(mut pe) | StatusWrite::Found(mut pe) => {
                // Large, and the mirror does not have them either.
                pe.metadata.managed_fields = None;
                self.own_writes.note(key, &pe);
                for notice in &decision.notices {
                    self.cluster.announce(&pe, notice);
                }
                // Perhaps another leader has recorded the launch, and created its pod.
                if is_own {
                    self.known_launches.note_recorded(&pe);
                }
                self.submissions.forget(key, &pe.spec.job_name);
                if !was_ready && is_ready(&pe) {
                    self.show_start(key, &pe);
                }
                answers.wrote(pe);
                Ok(Written::Yes)
            }
            StatusWrite::Outrun { found: Some(pe), .. } => {
                answers.read(pe);
                Ok(Written::Outrun)
            }
            StatusWrite::Outrun { found: None, .. } | StatusWrite::Gone(_) => Ok(Written::Gone),
        }
    }

    /// Asks the API server for the pod of the launch count and, if it does not exist, for its node.
    async fn look(&self, key: &Key, answers: &mut Answers, pe: &ProcessingElement) -> Result<(), Error> {
        let status = status(pe);
        let launch_count = status.launch_count.max(FIRST_LAUNCH);
        let uid = pe.uid().unwrap_or_default();
        let name = pods_of_pe::name(&key.name, &uid, launch_count);
        if let Some(pod) = self.pod_of_launch(key, pe, &name, launch_count).await? {
            self.last_seen.note_found(key, &uid, launch_count, &pod);
            answers.pods.push(pod_status::read_of(&pod, pe, launch_count));
            return Ok(());
        }
        let is_created = was_created(&status);
        let last_seen = self.last_seen.pod(key, &uid, launch_count, status.pod_uid.as_deref());
        let node = last_seen.as_ref().and_then(|seen| seen.pod.node.clone()).or(status.node_name);
        let node_gone = match node {
            Some(node) => self.node_exists(&node).await? == Some(false),
            None => false,
        };
        let clocks = Clocks::of(&self.cluster);
        // That there was none before its creation was recorded says nothing of how long it has been gone.
        let since = if is_created { self.last_seen.absent_since(key, &uid, launch_count, clocks) } else { clocks.now };
        let deletion_seen = last_seen.as_ref().is_some_and(|seen| seen.deletion_seen);
        answers.vanished = Some((
            launch_count,
            AbsentPod { last_seen: last_seen.map(|seen| seen.pod), deletion_seen, since, node_gone },
        ));
        Ok(())
    }

    /// The pod of this name, as the API server has it, if it is that of this launch: the one with the recorded uid, if
    /// there is one.
    async fn pod_of_launch(
        &self,
        key: &Key,
        pe: &ProcessingElement,
        name: &str,
        launch_count: u64,
    ) -> Result<Option<Pod>, Error> {
        let recorded = pe.status.as_ref().and_then(|status| status.pod_uid.as_ref());
        let is_recorded = |pod: &Pod| recorded.is_none_or(|uid| Some(uid) == pod.metadata.uid.as_ref());
        let found = self.cluster.get::<Pod>(&key.sibling(name)).await?;
        Ok(found.filter(|pod| is_recorded(pod) && pod_status::launch_of(pod, pe) == Some(launch_count)))
    }

    /// What the job is to a PE that it does not control any more, as the API server says.
    async fn look_for_job(&self, key: &Key, pe: &ProcessingElement) -> Result<OwnerJob, Error> {
        let job = key.sibling(&pe.spec.job_name);
        let shown = self.mirrors.jobs.get(&job).and_then(|shown| shown.uid());
        let found = self.cluster.get_metadata::<Job>(&job).await?;
        let stays = found.is_some_and(|found| found.deletion_timestamp.is_none() && found.uid == shown);
        Ok(if stays { OwnerJob::Estranged } else { OwnerJob::Missing })
    }

    /// Whether the node exists; `None` if that may not be asked.
    async fn node_exists(&self, name: &str) -> Result<Option<bool>, Error> {
        match self.cluster.get_metadata::<Node>(&Key::new("", name)).await {
            Ok(node) => Ok(Some(node.is_some())),
            Err(kube::Error::Api(status)) if status.code == 403 => {
                tracing::debug!(node = name, "nodes may not be read");
                Ok(None)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Whether the API server has a pod that the new one may have to wait for (rule pe-5): that of the launch before,
    /// or one of an earlier PE object of the name. Asks once, and not if the API server has told by itself that the pod
    /// is gone; the next observation has what it answers.
    async fn is_previous_blocking(
        &self,
        key: &Key,
        answers: &mut Answers,
        pe: &ProcessingElement,
    ) -> Result<bool, Error> {
        let previous = status(pe).created_launch_count;
        if answers.previous == Some(previous) {
            return Ok(false);
        }
        answers.previous = Some(previous);
        if previous == 0 {
            answers.predecessors = self.predecessors(key, pe).await?;
            return Ok(!answers.predecessors.is_empty());
        }
        let uid = pe.uid().unwrap_or_default();
        if self.last_seen.pod(key, &uid, previous, None).is_some_and(|seen| seen.is_gone()) {
            return Ok(false);
        }
        let name = pods_of_pe::name(&key.name, &uid, previous);
        let Some(pod) = self.cluster.get::<Pod>(&key.sibling(&name)).await? else { return Ok(false) };
        let Some(launch) = pod_status::launch_of(&pod, pe) else { return Ok(false) };
        answers.pods.push(pod_status::read_of(&pod, pe, launch));
        Ok(true)
    }

    /// Pods of an earlier PE object of the name. Only a PE that was made again has any, and it does not begin with
    /// launch 1 (rule pe-6), unless it was made so soon after a commit that clocks do not tell. Anybody may label as
    /// many pods as he likes: of the answer a small page is there at a time, and of all pages few pods are kept, those
    /// that may run, which are waited for, before others, and then those of the last launches (rule call-24).
    pub(super) async fn predecessors(&self, key: &Key, pe: &ProcessingElement) -> Result<Vec<ObservedPod>, Error> {
        if status(pe).launch_count <= FIRST_LAUNCH && !self.is_younger_than_commit(pe) {
            return Ok(Vec::new());
        }
        let labels = format!("{}={},{}={}", names::LABEL_JOB, pe.spec.job_name, names::LABEL_PE, pe.spec.id);
        let selection = ListParams::default().labels(&labels).limit(SMALL_PAGE);
        let (mut kept, now) = (Vec::new(), self.cluster.now());
        let keep = |page: Vec<Pod>| {
            let before = page.iter().filter(|pod| pod_status::is_of_predecessor(pod, pe));
            kept.extend(before.map(|pod| pod_status::read_predecessor(pod, pe)));
            kept.sort_by_key(|pod: &ObservedPod| Reverse((pod.may_run(now), pod.launch_count)));
            kept.truncate(pods_of_pe::READ_MAX);
        };
        self.cluster.each_page(Some(&key.namespace), &selection, keep).await?;
        Ok(kept)
    }

    /// The PE was created after the newest commit of its job, as far as clocks tell. That they may differ costs a
    /// question at most; the number of its first launch, which its operators see, must not follow from that.
    fn is_younger_than_commit(&self, pe: &ProcessingElement) -> bool {
        let OwnerJob::There { committed_at: Some(committed), .. } = self.job(pe) else { return false };
        pe.creation_timestamp().is_some_and(|created| created.0.as_second() > committed.as_second())
    }

    /// Creates the pod of the launch count (of the first launch, if there was none), or finds the one that was created
    /// for the same launch.
    async fn create(&self, key: &Key, answers: &mut Answers, pe: &ProcessingElement) -> Result<(), Error> {
        let launch_count = status(pe).launch_count.max(FIRST_LAUNCH);
        let pool = self.pool(pe);
        let redis = self.redis(pe);
        let Ok(template) = self.template(pe, pool.as_deref(), redis.as_deref()) else {
            return Ok(());
        };
        let mut pod = template.pod(launch_count);
        let span = tracing::info_span!(
            "create pod",
            k8s.pod.name = pod.name_any(),
            k8s.namespace.name = %key.namespace,
            launch_count,
            trace_id = field::Empty,
        );
        if let Some(trace) = pe.annotations().get(names::ANNOTATION_TRACE_PARENT) {
            if self.is_of_roll_out(key, pe) {
                traces::continue_trace(&span, trace);
            } else {
                telemetry::link_trace(&span, trace);
                let annotations = pod.annotations_mut();
                annotations.remove(names::ANNOTATION_TRACE_PARENT);
                let own = span.in_scope(telemetry::trace_parent);
                annotations.extend(own.map(|own| (names::ANNOTATION_TRACE_PARENT.to_owned(), own)));
            }
        }
        let is_same_launch = |existing: &Pod| pod_status::launch_of(existing, pe) == Some(launch_count);
        let created = match self.writer(key).create_or_match(&pod, is_same_launch).instrument(span).await {
            Ok(Ensured::Created(created)) => {
                answers.created = Some(pod_status::read_created(&created, &pod, pe, launch_count));
                created
            }
            Ok(Ensured::Found(found)) => found,
            Err(error @ (Error::Foreign { .. } | Error::Terminating { .. })) => {
                // It was created before, and somebody has deleted it, or taken the owner reference from it.
                let is_free =
                    |created: &Pod| controller(&created.metadata).is_none() || is_controlled_by(&created.metadata, pe);
                let created = self.pod_of_launch(key, pe, &pod.name_any(), launch_count).await?;
                created.filter(is_free).ok_or(error)?
            }
            Err(error) => return Err(error),
        };
        self.last_seen.note_created(&created, &self.mirrors);
        answers.pods.push(pod_status::read_of(&created, pe, launch_count));
        Ok(())
    }

    /// Whether the next pod belongs to the trace of the request for the PE's generation (rule name-11): the roll-out is
    /// not over, and the pod does not replace one that has ended.
    fn is_of_roll_out(&self, key: &Key, pe: &ProcessingElement) -> bool {
        let job = self.mirrors.jobs.get(&key.sibling(&pe.spec.job_name));
        let in_roll_out = job
            .as_ref()
            .and_then(|job| job.status.as_ref())
            .is_none_or(|status| is_in_roll_out(status, pe.spec.generation));
        in_roll_out && status(pe).consecutive_restarts == 0
    }

    /// Shows in the trace of the request how long the pod of the PE took from its creation until it was ready. The API
    /// server tells the beginning to the second.
    fn show_start(&self, key: &Key, pe: &ProcessingElement) {
        let Some(trace) = pe.annotations().get(names::ANNOTATION_TRACE_PARENT) else { return };
        let uid = pe.uid().unwrap_or_default();
        let status = status(pe);
        let seen = self.last_seen.pod(key, &uid, status.launch_count, status.pod_uid.as_deref());
        let Some(created_at) = seen.and_then(|seen| seen.pod.created_at) else { return };
        if self.is_of_roll_out(key, pe) {
            telemetry::add_to_trace(trace, || {
                tracing::info_span!(
                    "pod ready",
                    took_ns = traces::took_ns(created_at, self.cluster.now()),
                    k8s.pod.name = status.pod_name,
                    k8s.namespace.name = %key.namespace,
                    launch_count = status.launch_count,
                )
            });
        }
    }

    /// Deletes these pods. What cannot be deleted is noted in the answers, and people are told of what is refused.
    async fn delete(&self, key: &Key, answers: &mut Answers, deletions: &[Deletion]) {
        let Some(pe) = answers.pe.clone() else { return };
        let of_pe = pe.uid().unwrap_or_default();
        for Deletion { name, uid } in self.deleted_pods.not_going(key, &of_pe, deletions, self.cluster.passed()) {
            if answers.undeleted.contains_key(uid) {
                continue;
            }
            if !answers.undeleted.values().all(is_answer) {
                // Nobody answers: to ask for each of them takes long.
                return;
            }
            match self.writer(key).delete::<Pod>(name, Some(uid), PropagationPolicy::Background).await {
                Ok(()) => self.deleted_pods.note(key, &of_pe, uid, self.cluster.passed()),
                Err(error) => {
                    if is_answer(&error) && !is_busy(&error) {
                        let note = format!("pod {name} cannot be deleted: {error}");
                        self.cluster.announce(&pe, &Notice::warning("PodNotDeleted", note));
                    }
                    answers.undeleted.insert(uid.clone(), error);
                }
            }
        }
    }

    fn count(&self, fact: PeStatusChange, status: &ProcessingElementStatus) {
        match fact {
            PeStatusChange::Launch(reason) => self.counters.launched(reason),
            PeStatusChange::Ended => {
                if let Some(last) = &status.last_termination {
                    self.counters.ended(last.outcome);
                }
            }
            PeStatusChange::Adopted
            | PeStatusChange::Created
            | PeStatusChange::Removed(_)
            | PeStatusChange::RequestMet
            | PeStatusChange::Stopped
            | PeStatusChange::Continued
            | PeStatusChange::PutOff => {}
        }
    }
}

/// What the decision is for, if no resize is going on.
fn priority_of(decision: &PeDecision) -> Priority {
    let asks = || condition::get(&decision.status.conditions, condition::READY).is_some_and(|it| it.reason == OUTDATED);
    match decision.action {
        PeAction::Record(PeStatusChange::Ended | PeStatusChange::Removed(_)) => Priority::Freeing,
        // The job does not only hear of it: it writes the text that the next pod waits for, for a few seconds only.
        PeAction::Describe if asks() => Priority::Normal,
        PeAction::Describe | PeAction::LookForJob => Priority::Telling,
        // A job that is committed runs before others are prepared.
        PeAction::Create if decision.status.launch_count == 0 => Priority::Launching,
        PeAction::Record(_) | PeAction::Look | PeAction::Create => Priority::Normal,
    }
}

/// Whether two statuses say the same, in other words perhaps. Who refuses a pod may say it in other words each time.
fn is_same_but_for_words(one: &ProcessingElementStatus, other: &ProcessingElementStatus) -> bool {
    let [one, other] = [one, other].map(|status| {
        let mut status = status.clone();
        status.conditions.iter_mut().for_each(|condition| condition.message.clear());
        status
    });
    one == other
}

/// Whether the API server refused the pod, and may refuse the next one, too; or a pod that is none of the PE has its
/// name, and is being deleted, which may take for ever.
fn is_refusal(error: &Error) -> bool {
    let forbidden = matches!(error, Error::Call(kube::Error::Api(status)) if status.code == 403);
    error.is_permanent() || forbidden || matches!(error, Error::Terminating { .. })
}

/// Whether the API server has answered, if only with a refusal.
fn is_answer(error: &Error) -> bool {
    !matches!(error, Error::Call(failure) if !matches!(failure, kube::Error::Api(_)))
}

/// Whether the API server has too much to do, or something else has answered for it. That passes, and is not about what
/// was asked for.
fn is_busy(error: &Error) -> bool {
    match error {
        Error::Call(error @ kube::Error::Api(status)) => {
            is_no_status(error) || matches!(status.code, 429 | 502 | 503 | 504)
        }
        _ => false,
    }
}

/// When to look again. A deletion that was answered and that the mirror does not show is to be repeated by then
/// (rule pe-11): if it had no effect, nothing else would wake the controller.
fn later(decision: &PeDecision, now: Timestamp) -> Outcome {
    let repeated_at = (!decision.deletions.is_empty()).then(|| after(now, DELETION_COUNTS));
    let Some(at) = decision.wake_at.into_iter().chain(repeated_at).min() else { return Outcome::Done };
    let due = up_to_second(at).duration_since(now);
    let delay = Duration::try_from(due).unwrap_or_default().max(Duration::from_millis(10));
    if decision.wakes_to_tell && decision.wake_at == Some(at) {
        Outcome::Patiently(delay)
    } else {
        Outcome::Again(delay)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use streams_kubernetes::error::NOT_A_STATUS;

    fn decision(action: PeAction, status: ProcessingElementStatus) -> PeDecision {
        PeDecision {
            action,
            status,
            deletions: Vec::new(),
            restored: None,
            wake_at: None,
            wakes_to_tell: false,
            lets_others_go_first: false,
            notices: Vec::new(),
        }
    }

    #[test]
    fn only_the_api_server_refuses_to_delete_a_pod() {
        // code, reason -> whether that passes
        let table = [
            (403, "Forbidden", false),
            (500, "InternalError", false),
            (429, "TooManyRequests", true),
            (502, "", true),
            (503, "ServiceUnavailable", true),
            (403, NOT_A_STATUS, true),
        ];
        for (code, reason, expected) in table {
            let status = kube::core::Status::failure("no", reason).with_code(code).boxed();
            assert_eq!(is_busy(&Error::Call(kube::Error::Api(status))), expected, "{code} {reason}");
        }
    }

    #[test]
    fn first_pods_go_before_all_others() {
        for (launch_count, expected) in [(0, Priority::Launching), (1, Priority::Normal), (2, Priority::Normal)] {
            let status = ProcessingElementStatus { launch_count, ..ProcessingElementStatus::default() };
            assert_eq!(priority_of(&decision(PeAction::Create, status)), expected, "{launch_count}");
        }
    }

    #[test]
    fn a_deletion_that_the_mirror_does_not_show_is_looked_at_again() {
        let now = Timestamp::UNIX_EPOCH;
        let pod = || vec![Deletion { name: "flow-3-x".to_owned(), uid: "u".to_owned() }];
        let seconds = Duration::from_secs;
        // deletions, when to look again, only to tell something -> when it is
        let table = [
            (Vec::new(), None, false, Outcome::Done),
            (Vec::new(), Some(40), false, Outcome::Again(seconds(40))),
            (Vec::new(), Some(40), true, Outcome::Patiently(seconds(40))),
            (pod(), None, false, Outcome::Again(seconds(30))),
            (pod(), Some(40), true, Outcome::Again(seconds(30))),
            (pod(), Some(20), true, Outcome::Patiently(seconds(20))),
        ];
        for (deletions, wake_at, wakes_to_tell, expected) in table {
            let mut decision = decision(PeAction::Describe, ProcessingElementStatus::default());
            decision.deletions = deletions;
            decision.wake_at = wake_at.map(|second| after(now, seconds(second)));
            decision.wakes_to_tell = wakes_to_tell;
            assert_eq!(later(&decision, now), expected, "{decision:?}");
        }
    }

    #[test]
    fn a_look_comes_when_an_observation_has_the_time() {
        // when to look again, now -> how long until then, in milliseconds
        for (wake_at, now, expected) in [(5_000, 2_000, 3_000), (5_010, 2_000, 4_000), (5_010, 5_200, 800)] {
            let [wake_at, now] = [wake_at, now].map(|at| Timestamp::from_millisecond(at).unwrap());
            let mut decision = decision(PeAction::Describe, ProcessingElementStatus::default());
            decision.wake_at = Some(wake_at);
            assert_eq!(later(&decision, now), Outcome::Again(Duration::from_millis(expected)), "{wake_at} {now}");
        }
    }

    #[test]
    fn a_status_that_asks_for_a_text_does_not_go_last() {
        let describing = |reason| {
            let mut status = ProcessingElementStatus::default();
            condition::set(&mut status.conditions, condition::READY, false, reason, "", None, Timestamp::UNIX_EPOCH);
            decision(PeAction::Describe, status)
        };
        for (reason, expected) in [("TextOutdated", Priority::Normal), ("TextMissing", Priority::Telling)] {
            assert_eq!(priority_of(&describing(reason)), expected, "{reason}");
        }
    }
}
