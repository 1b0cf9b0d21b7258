//! Carries decisions out.
//!
//! The controller applies objects under one field manager; long work writes texts and chunks. After a failure the next
//! reconcile decides again.
//!
//! | Module | What it is |
//! |---|---|
//! | this one | carries out steps and actions |
//! | [`order`] | what is carried out now, and what is left to the next look |
//! | [`status`] | writes of the status, and which of them are put off |
//! | [`requests`] | writes about requests to resize |
//! | [`processing_elements`], [`interfaces`], [`transport`] | writes of particular children |
//!
//! Knows: the API server. Must not know: the reasons of a decision.

mod interfaces;
mod order;
mod processing_elements;
mod requests;
mod status;
mod transport;

use super::decide::{
    Child, JobAction, JobDecision, JobStatusChange, Owned, Propagation, Report, Step, StoredDocument, WhichGeneration,
};
use super::documents::chunks::{Document, digest};
use super::documents::{self, Written};
use super::generation::Generation;
use super::held_up::{HeldUp, ProposalPart};
use super::memory::Entry;
use super::memory::in_vain::{InVain, is_in_vain};
use super::objects::created_region::CreatedRegion;
use super::observed::drift::{self, region_fields};
use super::observed::own_writes::{OwnWrite, WrittenPe};
use super::observed::snapshot::JobSnapshot;
use super::observed::{DesiredGeneration, JobObservation};
use super::off_thread::Thread;
use super::reconciler::JobReconciler;
use super::refusals::outdated::UndeclaredField;
use super::refusals::pause::Pause;
use super::refusals::{NAME_TAKEN, is_of_object};
use super::tasks::{Failure, Remedy, Task};
use super::{MANAGER, long_work};
use crate::controllers::reconciler::Next;
use crate::controllers::resizing::is_resizing;
use futures::{StreamExt, future, stream};
use k8s_openapi::api::core::v1::{ConfigMap, Service};
use k8s_openapi::jiff::Timestamp;
use kube::api::PropagationPolicy;
use kube::{Resource, ResourceExt};
use serde::Serialize;
use serde_json::json;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use streams_api::{ConsistentRegion, Export, HostPool, Import, ParallelRegion, ProcessingElement, names};
use streams_kubernetes::Error;
use streams_kubernetes::cluster::{Cluster, Object};
use streams_kubernetes::drift::dropped;
use streams_kubernetes::error::definition;
use streams_kubernetes::gate::Priority;
use streams_kubernetes::ownership::is_controlled_by;
use streams_kubernetes::queue::Outcome;
use streams_kubernetes::watch::{Mirrored, Watch, version};
use streams_kubernetes::writer::{Applied, DEFINITIONS_OUTDATED, Writer};

/// Most actions that run at the same time.
pub(super) const CONCURRENT: usize = 16;
/// After a turn that ended because others would have come to nothing: whatever is tried may take as long as a call may.
const FEW: usize = 4;
/// When objects may be rewritten again for which there was no more room in this second.
const NEXT_SECOND: Duration = Duration::from_secs(1);

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
    let actor = Actor { reconciler, snapshot, observed, report, is_waited_for, has_advanced, looks_again };
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
        Error::Conflict { .. } | Error::Terminating { .. } => return None,
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

/// What the API server has kept of an object that was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kept {
    /// All of it, or nothing had to be written.
    Whole,
    /// Not all: it does not know a field.
    InPart,
}

/// What a turn leaves out.
pub(super) struct Cut<'a> {
    /// There is more than it has.
    pub(super) is_cut: bool,
    /// Deletions that it leaves out because somebody waits for an admission. If nobody is admitted, nobody waits.
    pub(super) after_admission: Vec<&'a JobAction>,
}

/// Actions that were tried, in their order, and what came of each.
#[derive(Default)]
struct Done<'a>(Vec<(&'a JobAction, Result<(), Error>)>);

impl<'a> Done<'a> {
    fn add(&mut self, later: Self) {
        self.0.extend(later.0);
    }

    /// One shows that others would come to nothing.
    fn is_in_vain(&self) -> bool {
        self.tried().iter().any(|(_, is_in_vain)| *is_in_vain)
    }

    /// The actions, each with whether it has shown that.
    fn tried(&self) -> Vec<(&'a JobAction, bool)> {
        self.0.iter().map(|(action, result)| (*action, result.as_ref().is_err_and(is_in_vain))).collect()
    }

    /// The namespace is being deleted.
    fn is_refused(&self) -> bool {
        self.0.iter().any(|(_, result)| matches!(result, Err(Error::NamespaceTerminating { .. })))
    }

    fn errors(self) -> impl Iterator<Item = Error> {
        self.0.into_iter().filter_map(|(_, result)| result.err())
    }
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
}

impl<C: Cluster> Actor<'_, C> {
    pub(super) fn writer(&self) -> Writer<'_, C> {
        Writer { cluster: &self.reconciler.cluster, namespace: &self.snapshot.key.namespace, manager: MANAGER }
    }

    /// The next look comes after so long, at the latest.
    pub(super) fn look_again(&self, after: Duration) {
        let mut looks_again = self.looks_again.lock().unwrap_or_else(PoisonError::into_inner);
        *looks_again = Some(looks_again.map_or(after, |earlier| earlier.min(after)));
    }

    /// After how long the next look is to come because of what was done, if it is.
    pub(super) fn looks_again(&self) -> Option<Duration> {
        *self.looks_again.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a step: one write of the status.
    async fn step(&self, step: &Step) -> Result<(), Error> {
        match step {
            Step::AllocateJobId(adl) => {
                let namespace = &self.snapshot.key.namespace;
                let id = self.reconciler.job_ids.next(&self.reconciler.cluster, namespace).await?;
                self.record(&JobStatusChange::JobId { id, adl: adl.clone() }).await
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

    /// Carries out all actions, several at the same time. A failed action does not stop the others, unless they would
    /// come to nothing as well, and take long: others come first in the next turn. In a namespace that is being deleted
    /// nothing but deletions is tried until a pause is over.
    async fn work(&self, actions: &[JobAction]) -> Result<Next, Error> {
        let (all_deletions, all_others): (Vec<_>, Vec<_>) =
            actions.iter().partition(|action| matches!(action, JobAction::Delete(..)));
        let now = self.reconciler.cluster.now();
        self.note_what_is_to_be_written(actions);
        let before = self.remember(|entry| entry.pause);
        let is_paused = before.is_some_and(|pause| pause.left(now).is_some());
        let mut deletions = all_deletions.clone();
        let mut others = if is_paused { Vec::new() } else { all_others.clone() };
        let concurrent = self.remember(|entry| {
            let InVain { writes, deletions: of_deletions } = &entry.in_vain;
            writes.put_last(&mut others);
            of_deletions.put_last(&mut deletions);
            if writes.is_empty() && of_deletions.is_empty() { CONCURRENT } else { FEW }
        });
        let rolls_out_after = self.put_off_roll_out(&mut others, &mut deletions, now);
        let wrote = !others.is_empty();
        let admits = others.iter().any(|action| matches!(action, JobAction::Admit));
        // The rest comes with the next turn, after those of other jobs.
        let Cut { is_cut, after_admission } = self.cut(&mut others, &mut deletions, admits, now);
        let is_put_off = self.put_off_rewrites(&mut others, now);
        let prepares = others.iter().any(|action| matches!(action, JobAction::Apply(_, WhichGeneration::Proposed)));
        let (mut deleted, written) = future::join(
            Priority::Freeing.of(self.several(&deletions, concurrent)),
            self.until_refused(others, before, concurrent),
        )
        .await;
        if !self.has_advanced.load(Ordering::Relaxed) {
            deleted.add(Priority::Freeing.of(self.several(&after_admission, concurrent)).await);
        }
        let of_requests = Priority::Freeing.of(self.delete_full_requests()).await.err();
        self.remember(|entry| {
            entry.in_vain.writes.note(&all_others, &written.tried());
            entry.in_vain.deletions.note(&all_deletions, &deleted.tried());
        });
        let mut failed = None;
        let mut refused = None;
        for error in deleted.errors().chain(of_requests).chain(written.errors()) {
            match error {
                Error::Terminating { .. } => {}
                Error::NamespaceTerminating { .. } => refused = Some(error),
                // One that passes by itself says nothing of the others.
                error if failed.as_ref().is_none_or(Error::is_conflict) => failed = Some(error),
                _ => {}
            }
        }
        let pause = self.remember(|entry| {
            match (&refused, wrote) {
                (Some(_), _) => entry.pause = Some(Pause::after(before, now)),
                (None, true) => entry.pause = None,
                (None, false) => {}
            }
            match failed.as_ref().or(refused.as_ref()) {
                Some(_) => entry.refusals.failed(),
                // Long work that has failed may be refused still.
                None if prepares && entry.failures.is_empty() => entry.refusals.wrote(),
                None => {}
            }
            if !is_paused || failed.is_some() {
                entry.last_failure = [&failed, &refused].into_iter().flatten().find_map(failure_of);
            }
            entry.pause.and_then(|pause| pause.left(now))
        });
        if failed.is_none() && pause.is_none() && (admits || !is_cut) && self.has_advanced.load(Ordering::Relaxed) {
            // The next step may be due; no mirror has to show first what the API server has answered.
            return Ok(Next::Observe);
        }
        let described = self.describe().await?;
        if let (None, None, Some(after), Next::Rest(_)) = (&failed, pause, rolls_out_after, &described) {
            return Ok(Next::Rest(Outcome::Later(after)));
        }
        match (failed, pause, described) {
            (Some(error), ..) => Err(error),
            (None, Some(left), Next::Rest(Outcome::Again(delay))) => Ok(Next::Rest(Outcome::Again(delay.min(left)))),
            (None, Some(left), Next::Rest(Outcome::Done)) => Ok(Next::Rest(Outcome::Again(left))),
            (None, _, Next::Rest(_)) if is_cut => Ok(Next::Rest(Outcome::Again(Duration::ZERO))),
            (None, _, Next::Rest(_)) if is_put_off => Ok(Next::Rest(Outcome::Again(NEXT_SECOND))),
            (None, _, described) => Ok(described),
        }
    }

    /// Carries these actions out, so many at the same time, until one shows that others would come to nothing.
    async fn several<'b>(&self, actions: &[&'b JobAction], concurrent: usize) -> Done<'b> {
        let is_over = AtomicBool::new(false);
        let carried_out = actions.iter().zip(0_usize..).map(|(action, number)| {
            let is_over = &is_over;
            async move {
                if is_over.load(Ordering::Relaxed) {
                    return None;
                }
                let result = self.one(action).await;
                if result.as_ref().is_err_and(is_in_vain) {
                    is_over.store(true, Ordering::Relaxed);
                }
                Some((number, *action, result))
            }
        });
        let carried_out: Vec<_> = carried_out.collect();
        let tried = stream::iter(carried_out).buffer_unordered(concurrent).filter_map(future::ready);
        let mut tried: Vec<_> = tried.collect().await;
        tried.sort_by_key(|(number, ..)| *number);
        Done(tried.into_iter().map(|(_, action, result)| (action, result)).collect())
    }

    /// Carries these actions out until one shows that others would come to nothing. In a namespace that is being
    /// deleted (rule job-37) that is the first, which is carried out alone; so is each of them after such a refusal.
    async fn until_refused<'b>(
        &self,
        actions: Vec<&'b JobAction>,
        before: Option<Pause>,
        concurrent: usize,
    ) -> Done<'b> {
        let alone = match before {
            Some(_) => actions.len(),
            // Somebody waits for a resize, and hardly in a namespace that is being deleted.
            None if self.is_waited_for => 0,
            // One alone would be the first of those that fail, if it is they that are left.
            None if concurrent == FEW => 0,
            None => 1,
        };
        // The start of long work is no write. It goes last, where it would be for nothing if a write is refused.
        let (mut starts, writes): (Vec<_>, Vec<_>) =
            actions.into_iter().partition(|action| matches!(action, JobAction::Start(_)));
        let mut done = Done::default();
        if before.is_none() && self.is_waited_for {
            done.add(self.several(&std::mem::take(&mut starts), CONCURRENT).await);
        }
        let (first, rest) = writes.split_at(alone.min(writes.len()));
        for (actions, concurrent) in [(first, 1), (rest, concurrent)] {
            if !done.is_in_vain() {
                done.add(self.several(actions, concurrent).await);
            }
        }
        if !done.is_refused() {
            done.add(self.several(&starts, CONCURRENT).await);
        }
        done
    }

    async fn one(&self, action: &JobAction) -> Result<(), Error> {
        // On the heap: everything around it would have room for the largest of all actions on the stack.
        let carried_out = Box::pin(self.carry_out(action));
        if self.is_awaited(action) { Priority::Awaited.of(carried_out).await } else { carried_out.await }
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
                    if applied? == Kept::InPart {
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
                None => Ok(()),
            },
            JobAction::Delete(object, propagation) => self.delete(object, *propagation).await,
            JobAction::Admit => self.admit().await,
            JobAction::Tell(name, told) => self.tell(name, told).await,
            JobAction::WriteWidth(unwritten) => self.write_width(unwritten).await,
            JobAction::TakeOver { region, width } => self.take_over(*region, *width).await,
        }
    }

    /// Remembers whether the cluster refuses the child (rule job-41), and whether that holds the proposal up.
    fn note_refusal(&self, child: Child, of: WhichGeneration, applied: &Result<Kept, Error>) {
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

    async fn store_again(&self, stored: StoredDocument) -> Result<(), Error> {
        let (document, content, sha256) = match stored {
            StoredDocument::Adl => {
                let adl = self.observed.status.adl.as_ref();
                // If it is not in memory, long work gets it from the bundle when it is needed.
                let Some(content) = adl.and_then(|adl| self.reconciler.memory.adl(&adl.sha256)) else { return Ok(()) };
                (Document::Adl, content, adl.map(|adl| &adl.sha256))
            }
            StoredDocument::Plan(of) => {
                let Some((generation, _)) = self.generation(of) else { return Ok(()) };
                let status = &self.observed.status;
                let plan = match of {
                    WhichGeneration::Committed => status.plan.as_ref(),
                    WhichGeneration::Proposed => status.proposal.as_ref().map(|proposal| &proposal.plan),
                };
                let content = bytes::Bytes::from(generation.encode());
                (Document::Plan { generation: generation.number }, content, plan.map(|plan| &plan.sha256))
            }
        };
        if sha256 != Some(&digest(&content)) {
            // Another version of the frontend wrote it. What this one would write has another name, and the clean-up
            // would delete it, again and again.
            tracing::debug!(job = %self.snapshot.key, ?document, "chunks cannot be made again as they were");
            if matches!(stored, StoredDocument::Plan(WhichGeneration::Proposed)) {
                self.remember(|entry| entry.unstorable_plan = sha256.cloned());
                self.look_again(Duration::ZERO);
            }
            return Ok(());
        }
        let held_back = &self.observed.children.held_back;
        let is_left_alone = |name: &str| held_back.contains_key(name);
        let (writer, owner) = (self.writer(), &self.snapshot.owner);
        match documents::write(&writer, &document, owner, content, Thread::Awaited, is_left_alone).await {
            Ok(Written { changed, .. }) => {
                let now = self.reconciler.cluster.now();
                for (name, field) in changed {
                    self.remember(|entry| entry.restored(&self.snapshot.key, Owned::ConfigMap(name), &field, now));
                }
                Ok(())
            }
            Err(documents::WriteError::Kubernetes(error)) => Err(error),
            Err(error) => Err(Error::Call(kube::Error::Service(error.into()))),
        }
    }

    /// Applies the child, unless it is known that the API server refuses it: then that is the error, without a call
    /// (rule call-30).
    async fn apply_unless_undeclared(
        &self,
        child: Child,
        generation: &Generation,
        wanted: &DesiredGeneration,
    ) -> Result<Kept, Error> {
        let now = || self.reconciler.cluster.now();
        if let Some(error) = self.remember(|entry| entry.outdated.pauses(child, now())) {
            return Err(error);
        }
        // On the heap: the stack of a thread has little room for all of it in debug builds.
        let result = Box::pin(self.apply(child, generation, wanted)).await;
        if let Err(error) = &result {
            self.remember(|entry| entry.outdated.failed(error, child, now()));
        }
        result
    }

    async fn apply(&self, child: Child, generation: &Generation, wanted: &DesiredGeneration) -> Result<Kept, Error> {
        let builder = self.snapshot.builder();
        let mirrors = &self.reconciler.mirrors;
        let key = self.snapshot.key.sibling(&child.name(&self.snapshot.key.name));
        match child {
            Child::ProcessingElement(id) => {
                let Some((pe, origin)) = generation.member(id) else { return Ok(Kept::Whole) };
                let text = wanted.processing_elements.get(&id).and_then(|pe| {
                    pe.choose(&self.observed.children, self.observed.children.processing_elements.get(&id))
                });
                let Some((version, _)) = text else { return Ok(Kept::Whole) };
                let desired = builder.processing_element(generation, pe, origin, version);
                let as_written = Some(WrittenPe::of(&desired.spec));
                let applied = Box::pin(self.apply_pe(generation.number, &desired)).await?;
                if let Applied::Written(pe) = &applied {
                    self.reconciler.known_launches.note_applied(pe);
                }
                self.note_write(child, as_written, &desired, &applied)
            }
            Child::Service(id) => {
                let Some((pe, _)) = generation.member(id) else { return Ok(Kept::Whole) };
                let endpoints = self.observed.children.user_ports.of(id);
                let desired: Service = builder.service(&generation.plan, pe, endpoints);
                self.put(child, &desired, mirrors.services.get(&key).as_deref()).await
            }
            Child::Region(index) => {
                let Some(region) = generation.plan.parallel_regions.iter().find(|region| region.index == index) else {
                    return Ok(Kept::Whole);
                };
                let desired: ParallelRegion = builder.region(&generation.plan, region);
                let existing = mirrors.parallel_regions.get(&key);
                let existing = existing.filter(|region| is_controlled_by(&region.metadata, &*self.snapshot.job));
                if let Some(existing) = existing {
                    let fields = region_fields(&builder, &generation.plan, region, false);
                    let owner = &self.snapshot.owner;
                    let restored = self.writer().restore::<ParallelRegion>(owner, fields, &existing.metadata).await?;
                    return self.note_kept(child, &desired, &restored);
                }
                let created = self.writer().create_or_match(&desired, |_| true).await?;
                // After the commit it has whatever width users write.
                let is_committed = self.observed.status.generation == Some(generation.number);
                let width = if is_committed { created.spec.width } else { desired.spec.width };
                if !CreatedRegion::of(&created).fits(&desired.spec.name, Some(width)) {
                    // An earlier attempt has created it. It is deleted as soon as the mirror shows it.
                    let (kind, name) = (ParallelRegion::kind(&()).into_owned(), desired.name_any());
                    return Err(Error::Conflict { kind, name });
                }
                self.note_write(child, None, &desired, &Applied::Written(Box::new(created)))
            }
            Child::HostPool(index) => {
                let Some(pool) = generation.plan.host_pools.iter().find(|pool| pool.index == index) else {
                    return Ok(Kept::Whole);
                };
                let desired: HostPool = builder.host_pool(generation, pool);
                self.put(child, &desired, mirrors.host_pools.get(&key).as_deref()).await
            }
            Child::JobConfigMap => {
                let desired = self.snapshot.config_map();
                self.put(child, &desired, mirrors.config_maps.get(&key).as_deref()).await
            }
            Child::Export(port) => self.apply_export(port, generation).await,
            Child::Import(port) => self.apply_import(port, generation).await,
            Child::ConsistentRegion(index) => self.apply_consistent_region(index, generation).await,
            Child::ConsistentRegionService => self.apply_consistent_region_service(generation).await,
            Child::TransportSecret => self.apply_transport().await.map(|()| Kept::Whole),
        }
    }

    /// Applies a child that is no PE.
    pub(super) async fn put<K: Object, M: Resource + Serialize>(
        &self,
        child: Child,
        desired: &K,
        existing: Option<&M>,
    ) -> Result<Kept, Error> {
        let applied = self.writer().apply(names::ANNOTATION_APPLIED_HASH, desired, existing).await?;
        self.note_write(child, None, desired, &applied)
    }

    /// The mirror may take a while to show what was written. `pe`: of a PE, what was written of it.
    fn note_write<K: Object>(
        &self,
        child: Child,
        pe: Option<WrittenPe>,
        desired: &K,
        applied: &Applied<K>,
    ) -> Result<Kept, Error> {
        let Applied::Written(object) = applied else { return Ok(Kept::Whole) };
        self.note_version(child, pe, &**object, version(object.meta()));
        self.note_kept(child, desired, object)
    }

    /// Remembers whether the API server has kept all that was written of the object (rule call-30). If not, it is
    /// written again after a pause.
    fn note_kept<K: Object>(&self, child: Child, desired: &K, answer: &K) -> Result<Kept, Error> {
        let dropped = dropped(desired, answer)?;
        let (now, owned) = (self.reconciler.cluster.now(), Owned::Child(child));
        self.remember(|entry| match dropped {
            None => {
                entry.outdated.kept(child);
                if entry.restorations.get(&owned).is_some_and(|restorations| restorations.in_vain) {
                    entry.restorations.remove(&owned);
                }
                Ok(Kept::Whole)
            }
            Some(field) => {
                entry.restorations.entry(owned).or_default().note_in_vain(&field, now);
                entry.outdated.dropped(UndeclaredField { definition: definition::<K>(), field }, child, now);
                Ok(Kept::InPart)
            }
        })
    }

    /// The mirror does not show this version of the object yet, or a newer one.
    pub(super) fn note_version<K: Resource>(&self, child: Child, pe: Option<WrittenPe>, object: &K, version: u64) {
        let hash = object.annotations().get(names::ANNOTATION_APPLIED_HASH).cloned().unwrap_or_default();
        let at = self.reconciler.cluster.now();
        let write = OwnWrite { version, at, applied: hash, pe };
        self.remember(|entry| entry.own_writes.note(Owned::Child(child), write));
    }

    /// Restores what of the ConfigMap with a text or a chunk can be written: its labels and annotations.
    async fn restore_metadata(&self, name: &str) -> Result<(), Error> {
        let mirrored = self.reconciler.mirrors.config_maps.get(&self.snapshot.key.sibling(name));
        let (Some(mirrored), Some(desired)) = (mirrored, drift::config_map(self.snapshot, name)) else { return Ok(()) };
        let fields = json!({
            "metadata": {"labels": desired.metadata.labels, "annotations": desired.metadata.annotations},
        });
        let restored = self.writer().restore::<ConfigMap>(&self.snapshot.owner, fields, &mirrored.metadata).await;
        restored.map(|_| self.note_restoration(&Owned::ConfigMap(name.to_owned())))
    }

    /// The object was applied; if because somebody had changed it, that is remembered.
    fn note_restoration(&self, owned: &Owned) {
        let Some(drift) = self.observed.children.drift(owned) else {
            return;
        };
        let now = self.reconciler.cluster.now();
        self.remember(|entry| entry.restored(&self.snapshot.key, owned.clone(), &drift.field, now));
    }

    async fn delete(&self, object: &Owned, propagation: Propagation) -> Result<(), Error> {
        let mirrors = &self.reconciler.mirrors;
        let propagation = match propagation {
            Propagation::Background => PropagationPolicy::Background,
            Propagation::Foreground => PropagationPolicy::Foreground,
        };
        // Only PEs have dependents; other objects are deleted at once.
        let at_once = PropagationPolicy::Background;
        let child = match object {
            Owned::Child(child) => *child,
            Owned::ConfigMap(name) => {
                self.remember(|entry| entry.forget_result_of(name));
                return self.delete_one::<ConfigMap, _>(object, &mirrors.config_maps, name, at_once).await;
            }
        };
        let name = &*child.name(&self.snapshot.key.name);
        match child {
            Child::ProcessingElement(_) => {
                self.delete_one::<ProcessingElement, _>(object, &mirrors.processing_elements, name, propagation).await
            }
            Child::Service(_) | Child::ConsistentRegionService => {
                self.delete_one::<Service, _>(object, &mirrors.services, name, at_once).await
            }
            Child::Region(_) => {
                self.delete_one::<ParallelRegion, _>(object, &mirrors.parallel_regions, name, at_once).await
            }
            Child::HostPool(_) => self.delete_one::<HostPool, _>(object, &mirrors.host_pools, name, at_once).await,
            Child::JobConfigMap => self.delete_one::<ConfigMap, _>(object, &mirrors.config_maps, name, at_once).await,
            Child::Export(_) => self.delete_one::<Export, _>(object, &mirrors.exports, name, at_once).await,
            Child::Import(_) => self.delete_one::<Import, _>(object, &mirrors.imports, name, at_once).await,
            Child::ConsistentRegion(_) => {
                self.delete_one::<ConsistentRegion, _>(object, &mirrors.consistent_regions, name, at_once).await
            }
            Child::TransportSecret => self.delete_transport().await,
        }
    }

    /// Deletes the object with the observed uid. If the mirror no longer has it, there is nothing to delete; otherwise
    /// it may take a while to show that it is gone.
    pub(super) async fn delete_one<K: Object, M: Mirrored>(
        &self,
        object: &Owned,
        mirror: &Watch<M>,
        name: &str,
        propagation: PropagationPolicy,
    ) -> Result<(), Error> {
        let shown = mirror.get(&self.snapshot.key.sibling(name)).and_then(|object| object.meta().uid.clone());
        let Some(uid) = shown else { return Ok(()) };
        self.writer().delete::<K>(name, Some(&uid), propagation).await?;
        let now = self.reconciler.cluster.now();
        self.remember(|entry| entry.deleted(object.clone(), uid, now));
        Ok(())
    }
}
