//! The memory of the process between two reconciles of a job: results of long work, plans that were read, its own last
//! writes.
//!
//! Correctness does not depend on it: a process that has just started reads the plans again and does the work again.
//!
//! Knows: what is kept, and for how long. Must not know: how it is computed.

use super::chunks::Document;
use super::drift::Agreed;
use super::generation::Target;
use super::held_up::{HeldUp, ProposalPart};
use super::in_vain::InVain;
use super::observed::Contention;
use super::outdated::OutdatedDefinitions;
use super::own_writes::OwnWrites;
use super::owned::Owned;
use super::pause::Pause;
use super::plans::{Plans, PlansOfJob};
use super::refusals::{self, Refusals};
use super::requests::Verdicts;
use super::requests::named::NamedRequests;
use super::requests::observe::{Begun, Requests};
use super::requests::wishes::WidthSet;
use super::tasks::{Compiled, Failure, Remedy, Slot, TaskKind, Tasks, TextsAtHand};
use super::transport::Sighting;
use super::user_ports::Known;
use super::widths::Widths;
use crate::controllers::remembered::Remembered;
use crate::controllers::restorations::Restorations;
use crate::fusion::RenderedText;
use crate::mirrors::Mirrors;
use bytes::Bytes;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use moka::sync::Cache;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use streams_api::{Job, JobSpec, JobStatus, Resize, StoredPlan};
use streams_kubernetes::Key;
use streams_kubernetes::watch::{Mirrored, Watch, version};
use streams_process::telemetry::TraceContext;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

/// How long a text that was written counts as existing while the mirror does not show it.
const WRITTEN: Duration = Duration::from_secs(30);

/// How long a write may have its effect after nobody waits for it any more: longer than the API server works on a
/// request (60 s by default).
const UNANSWERED: Duration = Duration::from_secs(120);

/// How many bytes of texts are at hand, of all jobs together (rule job-8).
const TEXTS_AT_HAND: usize = 8 << 20;

/// The memory of all jobs.
pub(crate) struct Memory {
    jobs: Remembered<Entry>,
    plans: Plans,
    adls: Cache<String, Bytes>,
    /// Room for texts at hand, a permit for each byte.
    texts: Arc<Semaphore>,
}

/// The memory of one job.
pub(crate) struct Entry {
    /// The state of long work.
    pub(crate) tasks: Tasks,
    /// Number and begin of the attempt to submit the job that it is of.
    attempt: Option<(u32, Timestamp)>,
    /// Texts that came with a plan, until they are written, or could not be, or the plan comes to nothing.
    pub(crate) texts_at_hand: Option<TextsAtHand>,
    /// Cancels the long work that is under way, by kind.
    pub(crate) cancel: BTreeMap<TaskKind, CancellationToken>,
    /// Failures of long work in a row, by kind.
    pub(crate) failures: BTreeMap<TaskKind, Failures>,
    /// The job as the API server answered the last write; the mirror may be older.
    latest: Option<Arc<Job>>,
    /// Generations that were read, or compiled.
    pub(crate) plans: PlansOfJob,
    /// The spec with the options in force, and the `metadata.generation` of the job that it follows from; only while
    /// some options are refused.
    pub(crate) in_force: Option<(i64, Arc<JobSpec>)>,
    /// What users should know of the entries for regions in the spec, and the `metadata.generation` of the job and the
    /// digest of the plan that it follows from.
    pub(crate) entry_warnings: Option<EntryWarnings>,
    /// Hash of the job's ConfigMap as it should be, and the plans it was computed for.
    pub(crate) job_config_map: Option<(Vec<String>, String)>,
    /// What was seen last of the Secret for transport security.
    pub(crate) transport: Option<Sighting>,
    /// ConfigMaps that were just written.
    written: BTreeMap<String, Timestamp>,
    /// Why an action of the last reconcile failed.
    pub(crate) last_failure: Option<Failure>,
    /// What was refused to the submission since the last step.
    pub(crate) refusals: Refusals,
    /// What holds the proposal up.
    pub(crate) held_up: HeldUp,
    /// How long the job was worked on while it was being submitted, as far as its status does not have it yet
    /// (rule job-18).
    pub(crate) unrecorded_work: Duration,
    /// How much of it the status had when it was looked at last.
    recorded_work: Duration,
    /// When the status was last written.
    pub(crate) described: Option<Timestamp>,
    /// Since when the number of the job waits for the ADL (rule job-50).
    pub(crate) unnumbered_since: Option<Timestamp>,
    /// Since when something is left to the next write (rule job-50).
    pub(crate) unsaid_since: Option<Timestamp>,
    /// Since when the roll-out waits for what comes before a commit (rule call-27).
    pub(crate) put_off_since: Option<Timestamp>,
    /// Since when deletions wait for admissions of requests (rule call-7).
    pub(crate) deletions_put_off_since: Option<Timestamp>,
    /// What the last turn ended with.
    pub(crate) in_vain: InVain,
    /// The namespace is being deleted: nothing is created for a while.
    pub(crate) pause: Option<Pause>,
    /// Ports of Services that operators have opened under a name.
    pub(crate) user_ports: Known,
    /// Objects that were written or deleted and that the mirrors do not show like that yet.
    pub(crate) own_writes: OwnWrites,
    /// Objects that have what was applied; only of the job's objects that there are.
    pub(crate) agreed: Agreed,
    /// Objects that were restored not long ago.
    pub(crate) restorations: BTreeMap<Owned, Restorations>,
    /// Fields that the API server does not keep.
    pub(crate) outdated: OutdatedDefinitions,
    /// Requests to resize as the API server answered the last write of each; only of those that the mirror has and
    /// shows an older state of.
    pub(crate) requests: BTreeMap<String, Arc<Resize>>,
    /// Requests whose status does not fit into their object any more, by uid, each with its version: nothing can be
    /// made of them before somebody changes them.
    pub(crate) full_requests: BTreeMap<String, Option<String>>,
    /// What the API server has said of requests that the status of the job names and the mirror did not show.
    pub(crate) named_requests: NamedRequests,
    /// The greatest number that this process has given to a request.
    pub(crate) last_resize: u64,
    /// What the compiler said about sets of widths.
    pub(crate) verdicts: Verdicts,
    /// The generation that a compilation was for which was given up for a newer one.
    pub(crate) given_up_for: Option<u64>,
    /// The widths that are being compiled, and those that are about to be, with who they are begun for.
    compiled_for: BTreeMap<BTreeMap<String, u32>, Begun>,
    /// A write of the job whose outcome nobody knows: the version that it follows, and until when it may still have its
    /// effect.
    unanswered: Option<(u64, Timestamp)>,
    /// When a proposal was recorded last.
    pub(crate) proposed_at: Option<Timestamp>,
    /// `metadata.generation` and the digest of the plan of a job that was rolled out when this process looked at it
    /// first; `Some(None)` once it is another one.
    pub(crate) inherited: Option<Option<(Option<i64>, Option<String>)>>,
}

/// Reasons and messages, and what they follow from.
pub(crate) type EntryWarnings = ((Option<i64>, String), Arc<Vec<(String, String)>>);

/// Failures in a row of one kind of long work, for one spec of the job.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Failures {
    spec_generation: Option<i64>,
    count: u32,
}

impl Failures {
    /// Counts another failure. Gives how many there were before.
    pub(crate) fn another(&mut self, spec_generation: Option<i64>) -> u32 {
        if self.spec_generation != spec_generation {
            *self = Self { spec_generation, count: 0 };
        }
        let before = self.count;
        self.count = before.saturating_add(1);
        before
    }
}

impl Entry {
    fn new(plans: PlansOfJob) -> Self {
        Self {
            tasks: Tasks::idle(),
            attempt: None,
            texts_at_hand: None,
            cancel: BTreeMap::new(),
            failures: BTreeMap::new(),
            latest: None,
            plans,
            in_force: None,
            entry_warnings: None,
            job_config_map: None,
            transport: None,
            written: BTreeMap::new(),
            last_failure: None,
            refusals: Refusals::default(),
            held_up: HeldUp::default(),
            unrecorded_work: Duration::ZERO,
            recorded_work: Duration::ZERO,
            described: None,
            unnumbered_since: None,
            unsaid_since: None,
            put_off_since: None,
            deletions_put_off_since: None,
            in_vain: InVain::default(),
            pause: None,
            user_ports: Known::default(),
            own_writes: OwnWrites::default(),
            agreed: Agreed::new(),
            restorations: BTreeMap::new(),
            outdated: OutdatedDefinitions::default(),
            requests: BTreeMap::new(),
            full_requests: BTreeMap::new(),
            named_requests: NamedRequests::default(),
            last_resize: 0,
            verdicts: Verdicts::default(),
            given_up_for: None,
            compiled_for: BTreeMap::new(),
            unanswered: None,
            proposed_at: None,
            inherited: None,
        }
    }

    /// Objects that others change as often as they are restored.
    pub(crate) fn contended(&self, job: &Key) -> Vec<Contention> {
        let by_others = self.restorations.iter().filter(|(_, restorations)| !restorations.in_vain);
        let contended = by_others.filter_map(|(owned, restorations)| {
            let until = restorations.contended_until()?;
            let object = owned.of_job(&job.name).to_string();
            Some(Contention { object, field: restorations.field.clone(), until })
        });
        contended.collect()
    }

    /// Somebody else had changed this field of the object; it was restored.
    pub(crate) fn restored(&mut self, job: &Key, owned: Owned, field: &str, now: Timestamp) {
        tracing::info!(%job, object = %owned.of_job(&job.name), field, "somebody had changed it; restored");
        self.restorations.entry(owned).or_default().note(field, now);
    }

    /// ConfigMaps with texts and chunks that are not restored yet because they were restored too often, each with the
    /// time before which it is not.
    pub(crate) fn held_back(&self, now: Timestamp) -> BTreeMap<String, Timestamp> {
        let held_back = self.restorations.iter().filter_map(|(owned, restorations)| match owned {
            Owned::ConfigMap(name) => Some((name.clone(), restorations.not_before().filter(|at| now < *at)?)),
            Owned::Child(_) => None,
        });
        held_back.collect()
    }

    /// A chunk is being deleted: a result that it belongs to must not be recorded any more.
    pub(crate) fn forget_result_of(&mut self, chunk: &str) {
        if let Slot::Done(_, adl) = &self.tasks.fetch
            && Document::Adl.has_chunk(&adl.sha256, adl.chunks, chunk)
        {
            self.tasks.fetch = Slot::Idle;
        }
        let is_of_plan = |plan: &StoredPlan| {
            let document = Document::Plan { generation: plan.generation };
            document.has_chunk(&plan.sha256, plan.chunks, chunk)
        };
        if let Slot::Done(_, Compiled { plan, .. }) = &self.tasks.compile
            && is_of_plan(plan)
        {
            self.note_verdict();
            self.tasks.compile = Slot::Idle;
        }
    }

    /// Keeps what the compiler said about the set of widths that it was asked for last, beyond the next request. A
    /// refusal is kept there alone, so that it can be forgotten: whoever asks for the same later is judged anew.
    pub(crate) fn note_verdict(&mut self) {
        let (request, refusal) = match &self.tasks.compile {
            Slot::Done(request, _) => (request, None),
            Slot::Failed(request, failure) if failure.remedy == Remedy::Correct => (request, Some(failure.clone())),
            _ => return,
        };
        if let Some(set) = WidthSet::of(&request.target) {
            let is_refused = refusal.is_some();
            self.verdicts.note(request.generation, set, refusal);
            if is_refused {
                self.tasks.compile = Slot::Idle;
            }
        }
    }

    /// The compilation has just failed. If that says something about the widths, it is kept like a verdict, and the
    /// next look finds out what is compiled instead. `applied` are the widths in force.
    pub(crate) fn note_trouble(&mut self, applied: &BTreeMap<String, u32>) {
        let Slot::Failed(request, failure) = &self.tasks.compile else { return };
        if let Some(set) = WidthSet::of(&request.target)
            && self.verdicts.note_trouble(request.generation, applied, &set, failure)
        {
            self.tasks.compile = Slot::Idle;
        }
    }

    /// Texts of this plan that came with it.
    pub(crate) fn texts_of(&self, plan: &str) -> BTreeMap<u64, RenderedText> {
        let texts = self.texts_at_hand.as_ref().filter(|texts| texts.plan == plan);
        texts.map(|texts| texts.by_pe.clone()).unwrap_or_default()
    }

    /// Texts of the proposal were just written, or could not be: perhaps that holds it up. What is at hand is kept no
    /// longer: a proposal may be held up for good.
    pub(crate) fn note_texts(&mut self, now: Timestamp) {
        self.texts_at_hand = None;
        match &self.tasks.publish {
            Slot::Failed(request, failure) if matches!(failure.remedy, Remedy::Retry(_)) => {
                self.held_up.failed(&request.plan, ProposalPart::Texts, failure, now);
            }
            _ => self.held_up.is_over(ProposalPart::Texts),
        }
    }

    /// The widths that are being compiled for a resize.
    pub(crate) fn compiled_widths(&self) -> Option<&BTreeMap<String, u32>> {
        match &self.tasks.compile {
            Slot::Running(request) | Slot::Done(request, _) => match &request.target {
                Target::Resize { widths, .. } => Some(widths),
                Target::Submission { .. } => None,
            },
            Slot::Idle | Slot::Failed(..) => None,
        }
    }

    /// Notes which open requests have their widths in what is being compiled for a resize, and in what is desired,
    /// which is about to be. `compiled` are the widths that the look at the requests has taken for the former. Returns
    /// whether a request that it was begun for, or that has come since, was withdrawn, deleted or refused, or a width
    /// of it is refused.
    pub(crate) fn note_compiled_for(
        &mut self,
        compiled: Option<&BTreeMap<String, u32>>,
        requests: &Requests,
        widths: &Widths,
    ) -> bool {
        let present = self.compiled_widths().cloned();
        let mut before = std::mem::take(&mut self.compiled_for);
        let mut desired = before.remove(&widths.desired).unwrap_or_default();
        desired.extend(&requests.desired_for);
        let Some(present) = present else {
            self.compiled_for.insert(widths.desired.clone(), desired);
            return false;
        };
        let is_desired = present == widths.desired;
        let mut begun = if is_desired { desired.clone() } else { before.remove(&present).unwrap_or_default() };
        if compiled == Some(&present) {
            begun.numbers.extend(&requests.compiled_for);
        }
        let mut refused = widths.refused.iter();
        let is_withdrawn = !requests.are_standing(&begun.numbers)
            || refused.any(|(region, refused)| present.get(region) == Some(&refused.width));
        if is_withdrawn && !is_desired && !begun.is_withdrawn {
            begun.is_withdrawn = true;
            self.verdicts.note_withdrawal();
        }
        if !is_desired {
            self.compiled_for.insert(widths.desired.clone(), desired);
        }
        self.compiled_for.insert(present, begun);
        is_withdrawn
    }

    /// The trace that a compilation for these widths continues, as it was when they were desired last.
    pub(crate) fn trace_of(&self, widths: &BTreeMap<String, u32>) -> Option<TraceContext> {
        self.compiled_for.get(widths)?.trace.clone()
    }

    /// Clears the results of long work that the status shows to have been used, the work that it shows to have been
    /// counted, and what held up a proposal that it shows to be over; ends the writing of texts that nobody wants any
    /// more. That is not known from answers to writes: one may be lost, or a write may have its effect later than
    /// anybody waits for.
    pub(crate) fn use_up(&mut self, status: &JobStatus) {
        if status.proposal.is_none() && self.next_plan().is_none_or(|plan| !self.held_up.is_of(&plan.sha256)) {
            // The next proposal may have the very plan of one that was abandoned, and is tried nevertheless. Its texts
            // may have been refused before it is recorded, which counts.
            self.held_up = HeldUp::default();
        }
        let attempt = status.submission_started_at.as_ref().map(|at| (status.submission_attempts, at.0));
        let recorded = Duration::from_millis(status.submission_worked_milliseconds);
        let more = recorded.saturating_sub(self.recorded_work);
        self.recorded_work = recorded;
        let left = self.unrecorded_work.saturating_sub(more);
        self.unrecorded_work = if self.attempt == attempt { left } else { Duration::ZERO };
        let is_next = self.attempt.is_some() && self.attempt != attempt;
        self.attempt = attempt;
        if is_next || refusals::is_final(status) {
            self.tasks = Tasks::idle();
            self.texts_at_hand = None;
            return;
        }
        if let Slot::Done(_, adl) = &self.tasks.fetch
            && status.adl.as_ref() == Some(adl)
        {
            self.tasks.fetch = Slot::Idle;
        }
        let mut plans = status.plan.iter().chain(status.proposal.as_ref().map(|proposal| &proposal.plan));
        if let Slot::Done(_, compiled) = &self.tasks.compile
            && plans.any(|plan| plan.sha256 == compiled.plan.sha256)
        {
            self.tasks.compile = Slot::Idle;
        }
        self.end_unwanted_texts(status);
        let is_wanted = |texts: &TextsAtHand| match &self.tasks.compile {
            // Perhaps it has just brought them.
            Slot::Running(_) => true,
            Slot::Done(_, compiled) if compiled.plan.sha256 == texts.plan => true,
            // What is not being written once the plan is recorded is there, or was refused.
            _ => self.tasks.publish.running().is_some_and(|request| request.plan == texts.plan),
        };
        self.texts_at_hand = self.texts_at_hand.take().filter(is_wanted);
    }

    /// Texts are written for a plan that the status has, or is about to have.
    fn end_unwanted_texts(&mut self, status: &JobStatus) {
        let Some(request) = self.tasks.publish.request() else { return };
        let recorded = status.plan.iter().chain(status.proposal.as_ref().map(|proposal| &proposal.plan));
        if recorded.chain(self.next_plan()).all(|plan| plan.sha256 != request.plan) {
            self.end(TaskKind::Publish);
            self.tasks.publish = Slot::Idle;
        }
    }

    /// The plan that was compiled, or is being stored, and may be written already.
    fn next_plan(&self) -> Option<&StoredPlan> {
        match &self.tasks.compile {
            Slot::Done(_, compiled) => Some(&compiled.plan),
            _ => self.tasks.being_stored().map(|stored| &stored.plan),
        }
    }

    /// The plan that was being stored comes to nothing, and with it the writing of its texts.
    pub(crate) fn give_up_storing(&mut self) {
        let Some(plan) = self.tasks.end_storing() else { return };
        if self.tasks.publish.request().is_some_and(|texts| texts.plan == plan.sha256) {
            self.end(TaskKind::Publish);
            self.tasks.publish = Slot::Idle;
        }
    }

    /// Ends the long work of this kind that is under way, whose outcome nobody wants any more.
    pub(crate) fn end(&mut self, kind: TaskKind) {
        if let Some(under_way) = self.cancel.remove(&kind) {
            under_way.cancel();
        }
    }

    /// Forgets all plans but these, and one that was just compiled.
    pub(crate) fn keep_plans(&mut self, digests: &[&str]) {
        let compiled = match &self.tasks.compile {
            Slot::Done(_, compiled) => compiled.plan.sha256.as_str(),
            _ => "",
        };
        self.plans.retain(|digest| digests.contains(&digest) || digest == compiled);
    }

    /// Nobody knows whether a write of the job that follows this version has its effect.
    pub(crate) fn lost_answer(&mut self, follows: u64, now: Timestamp) {
        self.unanswered = now.checked_add(UNANSWERED).ok().map(|until| (follows, until));
    }

    /// Until when the status may get to name more than is seen at this version of the job. After that the API server
    /// is to be asked.
    pub(crate) fn unanswered_until(&mut self, seen: u64) -> Option<Timestamp> {
        self.unanswered = self.unanswered.filter(|(follows, _)| seen <= *follows);
        self.unanswered.map(|(_, until)| until)
    }

    /// The API server has said how the job is.
    pub(crate) fn was_answered(&mut self) {
        self.unanswered = None;
    }

    /// The submission was worked on for so long. That does not count while something is refused to it, which no work
    /// changes (rule job-18).
    pub(crate) fn worked(&mut self, time: Duration) {
        if self.last_failure.is_none() {
            self.unrecorded_work += time;
        }
    }

    /// A ConfigMap was written.
    pub(crate) fn wrote(&mut self, name: String, now: Timestamp) {
        self.written.insert(name, now);
        self.refusals.wrote();
    }

    /// Whether a ConfigMap was written not long ago. The mirror may not show it.
    pub(crate) fn has_written(&self, name: &str) -> bool {
        self.written.contains_key(name)
    }

    /// ConfigMaps that were just written and that the mirror does not show. `seen` says whether it shows one.
    pub(crate) fn just_written(&mut self, now: Timestamp, seen: impl Fn(&str) -> bool) -> Vec<String> {
        self.written.retain(|name, at| elapsed(*at, now) < WRITTEN && !seen(name));
        if self.written.is_empty() {
            // A map that was emptied keeps its memory, of each job.
            self.written = BTreeMap::new();
        }
        self.written.keys().cloned().collect()
    }

    /// When the first of what was just written stops counting as existing.
    pub(crate) fn written_until(&self) -> Option<Timestamp> {
        let texts = self.written.values().min().map(|at| at.checked_add(WRITTEN).unwrap_or(Timestamp::MAX));
        texts.into_iter().chain(self.own_writes.until()).min()
    }

    /// The object with this uid was deleted.
    pub(crate) fn deleted(&mut self, owned: Owned, uid: String, now: Timestamp) {
        if let Owned::ConfigMap(name) = &owned {
            self.written.remove(name);
        }
        self.own_writes.note_deletion(owned, uid, now);
    }

    /// An object of the job, with this uid, has left its mirror.
    fn departed(&mut self, owned: &Owned, uid: Option<&str>) {
        if self.own_writes.has_deleted(owned, uid) {
            // What was written since is another object. The look that follows finds that it is gone.
            return;
        }
        self.own_writes.forget(owned);
        if let Owned::ConfigMap(name) = owned {
            self.written.remove(name);
        }
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        for token in self.cancel.values() {
            token.cancel();
        }
    }
}

impl Memory {
    /// A memory that keeps this many bytes of ADL, and of plans. What it has of a job ends with the job, and what it
    /// has of an object of the job ends with that object.
    pub(crate) fn new(adl_bytes: u64, plan_bytes: u64, mirrors: &Mirrors) -> Self {
        let adls = Cache::builder()
            .weigher(|_: &String, adl: &Bytes| u32::try_from(adl.len()).unwrap_or(u32::MAX))
            .max_capacity(adl_bytes)
            .build();
        let texts = Arc::new(Semaphore::new(TEXTS_AT_HAND));
        let memory = Self { jobs: Remembered::default(), plans: Plans::new(plan_bytes), adls, texts };
        memory.jobs.end_with(&mirrors.jobs);
        memory.end_writes(&mirrors.processing_elements);
        memory.end_writes(&mirrors.services);
        memory.end_writes(&mirrors.parallel_regions);
        memory.end_writes(&mirrors.host_pools);
        memory.end_writes(&mirrors.exports);
        memory.end_writes(&mirrors.imports);
        memory.end_writes(&mirrors.consistent_regions);
        memory.end_writes(&mirrors.config_maps);
        memory
    }

    /// From now on what is kept of an object ends when it leaves this mirror.
    fn end_writes<K: Mirrored>(&self, mirror: &Watch<K>) {
        let jobs = self.jobs.clone();
        mirror.subscribe_to_departures(move |object, _| {
            let owners = object.meta().owner_references.iter().flatten();
            for owner in owners.filter(|owner| owner.controller == Some(true)) {
                let job = Key::of(object).sibling(&owner.name);
                let Some(owned) = Owned::of_name::<K>(&owner.name, &object.name_any()) else { continue };
                jobs.find(&job, &owner.uid, |entry| entry.departed(&owned, object.meta().uid.as_deref()));
            }
        });
    }

    /// Gives access to the memory of the job with this uid. Only reconciles of this job may use it: what they keep of a
    /// job that leaves meanwhile is forgotten by the reconcile that follows.
    pub(crate) fn with<T>(&self, key: &Key, uid: &str, look: impl FnOnce(&mut Entry) -> T) -> T {
        self.jobs.with(key, uid, || Entry::new(self.plans.of_job(uid)), look)
    }

    /// Gives access to the memory of a job, if there is one.
    pub(crate) fn find<T>(&self, key: &Key, uid: &str, look: impl FnOnce(&mut Entry) -> T) -> Option<T> {
        self.jobs.find(key, uid, look)
    }

    /// The job is gone.
    pub(crate) fn forget(&self, key: &Key) {
        self.jobs.forget_all_of(key);
    }

    /// Jobs of which something is kept. ADL has a bound of its own; plans and texts end with their jobs.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        let Self { jobs, plans: _, adls: _, texts: _ } = self;
        jobs.len()
    }

    /// The newer of two states of the job: that of the mirror, and the answer to the last write.
    pub(crate) fn latest(&self, key: &Key, mirrored: Arc<Job>) -> Arc<Job> {
        let uid = mirrored.metadata.uid.clone().unwrap_or_default();
        let latest = self.find(key, &uid, |entry| {
            let own = entry.latest.take_if(|own| version(&own.metadata) <= version(&mirrored.metadata));
            drop(own);
            entry.latest.clone()
        });
        latest.flatten().unwrap_or(mirrored)
    }

    /// The API server has this job now.
    pub(crate) fn wrote(&self, key: &Key, mut job: Job) {
        // Large, and the mirror does not have them either.
        job.metadata.managed_fields = None;
        let uid = job.metadata.uid.clone().unwrap_or_default();
        self.with(key, &uid, |entry| entry.latest = Some(Arc::new(job)));
    }

    /// Lets the plans of jobs go that rest; the caches do so by themselves only while they are used.
    pub(crate) fn let_plans_rest(&self) {
        self.plans.let_rest();
    }

    /// The ADL with this digest, if it is kept.
    pub(crate) fn adl(&self, sha256: &str) -> Option<Bytes> {
        self.adls.get(sha256)
    }

    /// These texts of this plan, with their share of the room for texts at hand; nothing if there is too little left.
    pub(crate) fn at_hand(&self, plan: String, by_pe: BTreeMap<u64, RenderedText>) -> Option<TextsAtHand> {
        let bytes: usize = by_pe.values().map(|text| text.text.len()).sum();
        let room = Arc::clone(&self.texts).try_acquire_many_owned(u32::try_from(bytes).ok()?).ok()?;
        Some(TextsAtHand::new(plan, by_pe, room))
    }

    /// Keeps an ADL.
    pub(crate) fn keep_adl(&self, sha256: String, adl: Bytes) {
        self.adls.insert(sha256, adl);
    }
}

/// How long ago `at` was; nothing if it is in the future.
pub(crate) fn elapsed(at: Timestamp, now: Timestamp) -> Duration {
    now.duration_since(at).try_into().unwrap_or(Duration::ZERO)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controllers::job::tasks::CompileRequest;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use streams_api::{BundleReference, ProposedPlan, ResizeChanges};
    use streams_kubernetes::metrics::Metrics;

    fn memory() -> Memory {
        Memory::new(0, 0, &Mirrors::new(&Metrics::new("test")))
    }

    fn job(uid: &str, version: &str) -> Job {
        let mut job = Job::new("flow", JobSpec::of(BundleReference::default()));
        job.metadata.uid = Some(uid.to_owned());
        job.metadata.resource_version = Some(version.to_owned());
        job
    }

    #[test]
    fn work_counts_once_however_the_status_comes_to_have_it() {
        let seconds = Duration::from_secs;
        let status = |attempt: u32, worked: u64| JobStatus {
            submission_attempts: attempt,
            submission_started_at: Some(Time(Timestamp::from_second(attempt.into()).unwrap())),
            submission_worked_milliseconds: worked * 1_000,
            ..JobStatus::default()
        };
        let plans = Plans::new(1_000);
        let mut entry = Entry::new(plans.of_job("u"));
        // Work since the last look, and the status -> what is still to be recorded
        let table = [
            (5, status(1, 0), 0),
            (160, status(1, 0), 160),
            (0, status(1, 160), 0),
            (7, status(1, 160), 7),
            (3, status(1, 167), 3),
            (200, status(2, 0), 0),
            (4, status(2, 0), 4),
            (0, status(2, 4), 0),
        ];
        for (more, status, expected) in table {
            entry.unrecorded_work += seconds(more);
            entry.use_up(&status);
            assert_eq!(entry.unrecorded_work, seconds(expected), "{more} {status:?}");
        }
    }

    #[test]
    fn what_held_a_proposal_up_is_forgotten_with_it() {
        let mut entry = Entry::new(Plans::new(1_000).of_job("u"));
        let plan = StoredPlan { sha256: "p".to_owned(), ..StoredPlan::default() };
        let proposal = Some(ProposedPlan { plan, ..ProposedPlan::default() });
        let failure = Failure {
            remedy: Remedy::Retry(Timestamp::MAX),
            reason: "QuotaExceeded".to_owned(),
            message: String::new(),
            stage: None,
            code: None,
        };
        entry.held_up.failed("p", ProposalPart::Texts, &failure, Timestamp::UNIX_EPOCH);
        let target = Target::Resize { widths: BTreeMap::new(), rebalances: false };
        let compiled = |plan: &str| {
            let plan = StoredPlan { sha256: plan.to_owned(), ..StoredPlan::default() };
            let (widths, changes) = (BTreeMap::new(), ResizeChanges::default());
            let compiled = Compiled { plan, widths, changes, texts: [].into() };
            Slot::Done(CompileRequest { generation: 1, target: target.clone() }, compiled)
        };
        // The plan that was compiled, whether the status has a proposal -> it is known what holds it up.
        let table = [
            (compiled("p"), None, true),
            (Slot::Idle, proposal.clone(), true),
            (compiled("q"), None, false),
            (compiled("p"), proposal, false),
        ];
        for (compile, proposal, expected) in table {
            entry.tasks.compile = compile;
            entry.use_up(&JobStatus { proposal, ..JobStatus::default() });
            assert_eq!(entry.held_up.longest("p").is_some(), expected);
        }
    }

    #[test]
    fn texts_are_at_hand_as_long_as_there_is_room_for_them_whosever_they_are() {
        let memory = memory();
        let texts = |bytes: usize| {
            let text = Bytes::from(vec![b'x'; bytes]);
            BTreeMap::from([(3, RenderedText { pe_id: 3, content_id: String::new(), text })])
        };
        let mut kept: Vec<_> = (0..2).map(|_| memory.at_hand("p".to_owned(), texts(TEXTS_AT_HAND / 2))).collect();
        assert!(kept.iter().all(Option::is_some));
        assert!(memory.at_hand("p".to_owned(), texts(1)).is_none());
        drop(kept.pop());
        assert!(memory.at_hand("p".to_owned(), texts(1)).is_some());
    }

    #[test]
    fn the_newer_state_of_a_job_counts() {
        let memory = memory();
        let key = Key::new("n", "flow");
        let latest = |job: Job| memory.latest(&key, Arc::new(job)).metadata.resource_version.clone().unwrap();
        assert_eq!(latest(job("a", "5")), "5");
        memory.wrote(&key, job("a", "10"));
        assert_eq!(latest(job("a", "5")), "10", "the mirror is behind");
        assert_eq!(latest(job("a", "10")), "10");
        assert_eq!(latest(job("a", "11")), "11");
        memory.wrote(&key, job("a", "20"));
        assert_eq!(latest(job("b", "3")), "3", "another job of the same name");
    }

    #[test]
    fn a_compilation_that_is_withdrawn_counts_once_and_not_if_others_want_the_same() {
        let widths = |width: u32| BTreeMap::from([("A".to_owned(), width)]);
        let plans = Plans::new(1_000);
        // width that is desired by now, requests that were begun with and are not there any more -> withdrawn, counted
        for (desired, begun, is_withdrawn, count) in
            [(6, vec![1], true, 1), (5, vec![1], true, 0), (6, vec![], false, 0)]
        {
            let mut entry = Entry::new(plans.of_job("u"));
            let target = Target::Resize { widths: widths(5), rebalances: false };
            entry.tasks.compile = Slot::Running(CompileRequest { generation: 1, target });
            let mut requests = Requests::default();
            requests.compiled_for = begun;
            let desired = Widths { desired: widths(desired), ..Widths::default() };
            for _ in 0..2 {
                assert_eq!(entry.note_compiled_for(Some(&widths(5)), &requests, &desired), is_withdrawn);
            }
            let mut expected = Verdicts::default();
            (0..count).for_each(|_| expected.note_withdrawal());
            assert_eq!(entry.verdicts, expected, "{desired:?}");
        }
    }

    #[test]
    fn what_is_compiled_keeps_the_trace_that_was_known_when_it_was_asked_for() {
        let widths = |width: u32| BTreeMap::from([("A".to_owned(), width)]);
        let mut entry = Entry::new(Plans::new(1_000).of_job("u"));
        let look = |entry: &mut Entry, width, trace: Option<&str>| {
            let mut requests = Requests::default();
            requests.desired_for.trace =
                trace.map(|parent| TraceContext { parent: parent.to_owned(), ..TraceContext::default() });
            let desired = Widths { desired: widths(width), ..Widths::default() };
            entry.note_compiled_for(None, &requests, &desired);
        };
        look(&mut entry, 5, Some("first"));
        let target = Target::Resize { widths: widths(5), rebalances: false };
        entry.tasks.compile = Slot::Running(CompileRequest { generation: 1, target });
        look(&mut entry, 6, Some("second"));
        let known = [5, 6, 7].map(|width| entry.trace_of(&widths(width)).map(|trace| trace.parent));
        assert_eq!(known, [Some("first".to_owned()), Some("second".to_owned()), None]);
    }

    #[test]
    fn failures_are_counted_for_one_spec() {
        let mut failures = Failures::default();
        // generation of the spec -> failures before
        for (generation, before) in [(1, 0), (1, 1), (1, 2), (2, 0)] {
            assert_eq!(failures.another(Some(generation)), before, "{generation}");
        }
    }

    #[test]
    fn the_memory_of_a_job_ends_with_it_and_so_does_its_work() {
        let memory = memory();
        let key = Key::new("n", "flow");
        let token = CancellationToken::new();
        memory.with(&key, "a", |entry| entry.cancel.insert(TaskKind::Fetch, token.clone()));
        assert!(memory.find(&key, "b", |_| ()).is_none());
        assert!(!token.is_cancelled());
        memory.forget(&key);
        assert!(token.is_cancelled());
        assert!(memory.find(&key, "a", |_| ()).is_none());
    }

    #[test]
    fn what_was_just_written_counts_until_it_is_seen_or_for_a_while() {
        let memory = memory();
        let key = Key::new("n", "flow");
        let at = |second: u64| Timestamp::from_second(1_000 + i64::try_from(second).unwrap()).unwrap();
        memory.with(&key, "a", |entry| {
            entry.wrote("x".to_owned(), at(0));
            entry.wrote("y".to_owned(), at(0));
        });
        let written =
            |seen: &str, now: u64| memory.with(&key, "a", |entry| entry.just_written(at(now), |name| name == seen));
        assert_eq!(written("", 0), ["x", "y"]);
        assert_eq!(written("y", 1), ["x"]);
        assert!(written("", WRITTEN.as_secs()).is_empty());
    }
}
