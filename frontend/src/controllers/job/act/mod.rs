//! Carries decisions out.
//!
//! The controller applies objects under one field manager; long work writes texts and chunks. After a failure the next
//! reconcile decides again.
//!
//! | Module | What it is |
//! |---|---|
//! | this one | carries out steps and actions, each by itself |
//! | [`turn`] | carries several actions out, and says when the next turn comes |
//! | [`order`] | what is carried out now, and what is left to the next look |
//! | [`early_end`] | what is left to the next look because somebody waits for that |
//! | [`status`] | writes of the status, and which of them are put off |
//! | [`requests`] | writes about requests to resize |
//! | [`apply`], [`delete`] | writes and deletions of children |
//! | [`processing_elements`], [`interfaces`], [`transport`] | those of particular children |
//! | [`pods`] | deletions of pods that Kubernetes does not delete |
//! | [`documents`] | writes of chunks, and of metadata of ConfigMaps |
//!
//! Knows: the API server. Must not know: the reasons of a decision.

mod apply;
mod delete;
mod documents;
mod early_end;
mod interfaces;
mod order;
mod pods;
mod processing_elements;
mod requests;
mod status;
mod transport;
mod turn;

use self::apply::KeptByServer;
use self::early_end::EarlyEnd;
use super::decide::{Child, JobAction, JobDecision, JobStatusChange, Owned, Report, Step, WhichGeneration};
use super::generation::Generation;
use super::held_up::{Blocked, HeldUp, ProposalPart, TERMINATING};
use super::memory::Entry;
use super::observed::snapshot::JobSnapshot;
use super::observed::{DesiredGeneration, JobObservation};
use super::reconciler::JobReconciler;
use super::refusals::{NAME_TAKEN, is_of_object};
use super::tasks::{Failure, Remedy, Task};
use super::{MANAGER, long_work};
use crate::controllers::reconciler::Next;
use crate::controllers::resizing::is_resizing;
use k8s_openapi::jiff::Timestamp;
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use streams_kubernetes::Error;
use streams_kubernetes::cluster::Cluster;
use streams_kubernetes::gate::Priority;
use streams_kubernetes::writer::{DEFINITIONS_OUTDATED, Writer};

/// Carries the decision out, and describes the job in its status.
///
/// # Errors
/// An action failed. The other actions were carried out nevertheless.
pub(super) async fn act<C: Cluster>(
    reconciler: &JobReconciler<C>,
    snapshot: &JobSnapshot,
    observed: &JobObservation,
    decision: &JobDecision,
    report: &Report,
) -> Result<Next, Error> {
    let is_waited_for = is_waited_for(observed, report);
    let has_advanced = AtomicBool::new(false);
    let looks_again = Mutex::new(None);
    let early_end = EarlyEnd::of(reconciler, snapshot, observed);
    let actor = Actor { reconciler, snapshot, observed, report, is_waited_for, has_advanced, looks_again, early_end };
    let priority = if is_waited_for { Priority::Urgent } else { Priority::Normal };
    match decision {
        JobDecision::Step(step) => {
            actor.priority_of(step).of(actor.step(step)).await?;
            // A step was recorded in the status: decide again at once.
            Ok(Next::Observe)
        }
        JobDecision::Work(actions) => priority.of(actor.work(actions)).await,
    }
}

/// Somebody waits for what is done for the job: its calls go before others (rule call-22).
pub(super) fn is_waited_for(observed: &JobObservation, report: &Report) -> bool {
    let now = observed.now;
    let is_in_vain = observed.held_up.as_ref().is_some_and(|held_up| held_up.is_in_vain(report.blocked.as_ref(), now));
    is_resizing(&observed.status, is_in_vain, observed.deadlines.roll_out, now) || observed.requests.is_waited_for
}

/// The failure to show to users for a failed action, e.g. that a name is taken (rule job-30). `None` for an error that
/// passes by itself.
fn failure_of(error: &Error) -> Option<Failure> {
    let reason = match error {
        Error::Conflict { .. } => return None,
        Error::Terminating { .. } => TERMINATING,
        Error::Foreign { .. } => NAME_TAKEN,
        Error::NamespaceTerminating { .. } => "NamespaceTerminating",
        Error::Refused { .. } => "ObjectRefused",
        Error::Undeclared { .. } => DEFINITIONS_OUTDATED,
        error if error.is_of_quota() => "QuotaExceeded",
        Error::Call(kube::Error::Api(status)) if status.code == 403 => "Forbidden",
        Error::Call(_) => "ApiServer",
    };
    Some(Failure {
        remedy: Remedy::Retry(Timestamp::MAX),
        reason: reason.to_owned(),
        message: error.to_string(),
        stage: None,
        code: None,
    })
}

/// Carries one decision out.
pub(super) struct Actor<'a, C> {
    pub(super) reconciler: &'a JobReconciler<C>,
    pub(super) snapshot: &'a JobSnapshot,
    pub(super) observed: &'a JobObservation,
    pub(super) report: &'a Report,
    /// Somebody waits for a resize.
    pub(super) is_waited_for: bool,
    /// Something was written that the next generation waits for, and the next look knows of it.
    pub(super) has_advanced: AtomicBool,
    /// When the next look is to come because of what was done: no change of an object tells what comes of it.
    looks_again: Mutex<Option<Duration>>,
    /// Whether the turn ends early because somebody is in a hurry.
    early_end: EarlyEnd,
}

impl<C: Cluster> Actor<'_, C> {
    pub(super) fn writer(&self) -> Writer<'_, C> {
        Writer { cluster: &self.reconciler.cluster, namespace: &self.snapshot.key.namespace, manager: MANAGER }
    }

    /// The next look comes after so long, at the latest.
    pub(super) fn look_again(&self, after: Duration) {
        let mut looks_again = self.looks_again.lock();
        *looks_again = Some(looks_again.map_or(after, |earlier| earlier.min(after)));
    }

    /// After how long the next look is to come because of what was done, if it is.
    pub(super) fn looks_again(&self) -> Option<Duration> {
        *self.looks_again.lock()
    }

    /// Takes a step: one write of the status.
    async fn step(&self, step: &Step) -> Result<(), Error> {
        match step {
            Step::AllocateJobId(adl) => {
                let namespace = &self.snapshot.key.namespace;
                match self.reconciler.job_ids.next(&self.reconciler.cluster, namespace).await {
                    Ok(id) => self.record(&JobStatusChange::JobId { id, adl: adl.clone() }).await,
                    Err(error) => self.fail_to_number(error).await,
                }
            }
            Step::Record(change) => self.record(change).await,
            Step::RecordAndStart(change, task) => {
                let now = self.reconciler.cluster.now();
                // In a namespace that is being deleted nothing is tried until a pause is over (rule job-37).
                if self.remember(|entry| entry.pause).and_then(|pause| pause.left(now)).is_none() {
                    self.start(task);
                }
                self.record(change).await
            }
            Step::RefuseRequest(number, name, failure) => self.refuse_request(*number, name, failure).await,
        }
    }

    /// The job has got no number, and nothing comes of it without: it says why, as of an object that is refused (rules
    /// job-5 and job-41).
    async fn fail_to_number(&self, error: Error) -> Result<(), Error> {
        if let Some(failure) = failure_of(&error) {
            self.remember(|entry| entry.last_failure = Some(failure));
            self.describe().await?;
        }
        Err(error)
    }

    async fn carry_out(&self, action: &JobAction) -> Result<(), Error> {
        match action {
            JobAction::Start(task) => {
                self.start(task);
                Ok(())
            }
            JobAction::StoreAgain(stored) => self.store_again(*stored).await,
            JobAction::RestoreMetadata(name) => self.restore_metadata(name).await,
            JobAction::Apply(child, of) => match self.generation(*of) {
                Some((generation, wanted)) => {
                    let owned = Owned::Child(*child);
                    let written = || self.remember(|entry| entry.own_writes.version(&owned));
                    let before = written();
                    let applied = self.apply_unless_undeclared(*child, generation, wanted).await;
                    self.note_refusal(*child, *of, &applied);
                    if applied? == KeptByServer::InPart {
                        return Ok(());
                    }
                    // Nothing is sent if the mirror, which may be behind, shows the object as it should be.
                    let is_new = written().is_some_and(|version| before != Some(version));
                    if is_new && *of == WhichGeneration::Proposed {
                        self.has_advanced.store(true, Ordering::Relaxed);
                    }
                    self.note_restoration(&Owned::Child(*child));
                    Ok(())
                }
                // It is made without a plan, so it is looked after while that is lost (rule job-48).
                None if *child == Child::TransportSecret => {
                    let applied = Box::pin(self.apply_transport()).await.map(|()| KeptByServer::Whole);
                    self.note_refusal(*child, *of, &applied);
                    applied?;
                    self.note_restoration(&Owned::Child(*child));
                    Ok(())
                }
                None => Ok(()),
            },
            JobAction::Delete(object, propagation) => self.delete(object, *propagation).await,
            JobAction::EndPods(id) => self.end_pods(*id).await,
            JobAction::Admit => self.admit().await,
            JobAction::Tell(name, told) => self.tell(name, told).await,
            JobAction::WriteWidth(unwritten) => self.write_width(unwritten).await,
            JobAction::TakeOver { region, width } => self.take_over(*region, *width).await,
        }
    }

    /// Remembers whether the cluster refuses the child (rule job-41), and whether that holds the proposal up.
    fn note_refusal(&self, child: Child, of: WhichGeneration, applied: &Result<KeptByServer, Error>) {
        let failure = applied.as_ref().err().and_then(failure_of);
        match (applied, &failure) {
            (Ok(_), _) => self.remember(|entry| entry.refusals.applied(child)),
            (Err(_), Some(failure)) if is_of_object(failure) => {
                self.remember(|entry| entry.refusals.refused(child));
            }
            (Err(_), _) => {}
        }
        if of == WhichGeneration::Proposed {
            let (part, now) = (ProposalPart::Child(child), self.reconciler.cluster.now());
            let going = Blocked::Terminating(Owned::Child(child));
            let is_going = matches!(applied, Err(Error::Terminating { .. }));
            let failure = if is_going { Some(going.failure(&self.snapshot.key.name)) } else { failure };
            self.note_proposal(|held_up, plan| match &failure {
                Some(failure) => held_up.failed(plan, part, failure, now),
                None if applied.is_ok() => held_up.is_over(part),
                None => {}
            });
        }
    }

    /// Remembers what the proposal waits for, and forgets what it does not wait for any more.
    fn note_what_is_to_be_written(&self, actions: &[JobAction]) {
        let of_proposal = actions.iter().filter_map(|action| match action {
            JobAction::Apply(child, WhichGeneration::Proposed) => Some(*child),
            _ => None,
        });
        let (tried, now): (BTreeSet<Child>, _) = (of_proposal.collect(), self.reconciler.cluster.now());
        self.note_proposal(|held_up, plan| {
            held_up.keep_tried(&tried);
            held_up.waits_for(plan, &self.snapshot.key.name, self.report.blocked.as_ref(), now);
        });
    }

    /// Remembers what holds up the proposal with this plan, if there is one.
    fn note_proposal(&self, note: impl FnOnce(&mut HeldUp, &str)) {
        if let Some(proposal) = &self.observed.status.proposal {
            self.remember(|entry| note(&mut entry.held_up, &proposal.plan.sha256));
        }
    }

    /// Starts long work. What somebody waits for, for a running job, goes before submissions.
    fn start(&self, task: &Task) {
        let urgent = self.observed.status.generation.is_some() && task.is_awaited();
        long_work::start(self.reconciler, &self.snapshot.key, self.snapshot.uid(), task, urgent);
    }

    /// A generation, and what should exist for it.
    fn generation(&self, which: WhichGeneration) -> Option<(&Arc<Generation>, &DesiredGeneration)> {
        let (generation, loaded) = match which {
            WhichGeneration::Committed => (&self.snapshot.committed, &self.observed.committed),
            WhichGeneration::Proposed => (&self.snapshot.proposed, &self.observed.proposed),
        };
        Some((generation.as_ref()?, loaded.as_ref()?.whole()?))
    }

    pub(super) fn remember<T>(&self, look: impl FnOnce(&mut Entry) -> T) -> T {
        self.reconciler.memory.with(&self.snapshot.key, self.snapshot.uid(), look)
    }
}
