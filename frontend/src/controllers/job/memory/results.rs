//! What came of long work: it is kept until the status shows that it was used, or nobody wants it any more.
//!
//! Knows: kinds of work, the status. Must not know: how work is done.

use super::{Attempt, Entry};
use crate::controllers::job::documents::chunks::Document;
use crate::controllers::job::held_up::{HeldUp, ProposalPart};
use crate::controllers::job::refusals;
use crate::controllers::job::requests::wishes::WidthSet;
use crate::controllers::job::tasks::{Compiled, PublishRequest, Remedy, Slot, TaskKind, Tasks, TextsAtHand};
use crate::fusion::RenderedText;
use k8s_openapi::jiff::Timestamp;
use std::collections::BTreeMap;
use std::time::Duration;
use streams_api::{JobStatus, StoredAdl, StoredPlan};

impl Entry {
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

    /// Clears the results of long work that the status shows to have been used, the work that it shows to have been
    /// counted, and what held up a proposal that it shows to be over; ends the work that nobody wants any more. That is
    /// not known from answers to writes: one may be lost, or a write may have its effect later than anybody waits for.
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
        // The first one begins anew when the spec is edited, which deletes nothing of what was written.
        let is_edited = is_next && attempt.is_some_and(|(number, _)| number == 1);
        self.attempt = attempt;
        if (is_next && !is_edited) || refusals::is_final(status) {
            self.tasks = Tasks::idle();
            self.texts_at_hand = None;
            self.end_unrequested();
            return;
        }
        if is_edited {
            self.tasks.forget_failures();
        }
        if let Slot::Done(_, adl) = &self.tasks.fetch
            && status.adl.as_ref().is_some_and(|recorded| is_recorded_as(adl, recorded))
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
        self.end_unrequested();
        let is_wanted = |texts: &TextsAtHand| match &self.tasks.compile {
            // Perhaps it has just brought them.
            Slot::Running(_) => true,
            Slot::Done(_, compiled) if compiled.plan.sha256 == texts.plan => true,
            // What is not being written once the plan is recorded is there, or was refused.
            _ => self.tasks.publish.running().is_some_and(|request| request.plan == texts.plan),
        };
        self.texts_at_hand = self.texts_at_hand.take().filter(is_wanted);
    }

    /// Texts are written for a plan that the status has, or is about to have; and again for the committed one alone.
    fn end_unwanted_texts(&mut self, status: &JobStatus) {
        let mut recorded = status.plan.iter().chain(status.proposal.as_ref().map(|proposal| &proposal.plan));
        if let Some(request) = self.tasks.publish.request()
            && recorded.all(|plan| plan.sha256 != request.plan)
            && self.next_plan().is_none_or(|plan| plan.sha256 != request.plan)
        {
            self.tasks.publish = Slot::Idle;
        }
        let is_of_other =
            |request: &PublishRequest| status.plan.as_ref().is_none_or(|plan| plan.sha256 != request.plan);
        if self.tasks.repair.running().is_some_and(is_of_other) {
            self.tasks.repair = Slot::Idle;
        }
        if self.tasks.renew.running().is_some_and(|request| is_of_other(&request.texts)) {
            self.tasks.renew = Slot::Idle;
        }
    }

    /// Ends the work that is under way although it is not asked for any more: a step has taken it back. What it would
    /// write now, the next attempt would delete.
    fn end_unrequested(&mut self) {
        let under_way: Vec<TaskKind> = self.cancel.keys().copied().collect();
        for kind in under_way {
            if !self.tasks.is_running(kind) {
                self.end(kind);
            }
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

    /// The submission was worked on for so long. That does not count while something is refused to it, which no work
    /// changes (rule job-18).
    pub(crate) fn worked(&mut self, time: Duration) {
        if self.last_failure.is_none() {
            self.unrecorded_work += time;
        }
    }

    /// Long work, of which something came, took so long and was begun in this attempt. After an edit of the spec it
    /// counts as little as what was done before; what was begun before there was an attempt does count (rule job-18).
    pub(crate) fn did_long_work(&mut self, begun_in: Option<Attempt>, time: Duration) {
        if begun_in.is_none() || begun_in == self.attempt {
            self.unrecorded_work += time;
        }
    }
}

/// Whether this is what was recorded of the ADL: for the spec that it was fetched for, or for a later one that names
/// the same bundle.
fn is_recorded_as(adl: &StoredAdl, recorded: &StoredAdl) -> bool {
    let of_spec = StoredAdl { spec_generation: recorded.spec_generation, ..adl.clone() };
    adl.spec_generation <= recorded.spec_generation && of_spec == *recorded
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controllers::job::generation::Target;
    use crate::controllers::job::memory::plans::Plans;
    use crate::controllers::job::tasks::{CompileRequest, Failure, FetchRequest, RenewRequest};
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use streams_api::{JobPhase, ProposedPlan, ResizeChanges};
    use tokio_util::sync::CancellationToken;

    const ALL: [TaskKind; 5] =
        [TaskKind::Fetch, TaskKind::Compile, TaskKind::Publish, TaskKind::Repair, TaskKind::Renew];

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
    fn work_ends_that_the_status_does_not_ask_for_any_more() {
        let attempt = |number: u32| JobStatus {
            submission_attempts: number,
            submission_started_at: Some(Time(Timestamp::from_second(number.into()).unwrap())),
            ..JobStatus::default()
        };
        let stored = |plan: &str| StoredPlan { sha256: plan.to_owned(), ..StoredPlan::default() };
        let committed = |plan: &str| JobStatus { generation: Some(0), plan: Some(stored(plan)), ..attempt(1) };
        let texts = |plan: &str| PublishRequest { plan: plan.to_owned(), pe_ids: Vec::new() };
        let proposal = Some(ProposedPlan { plan: stored("q"), ..ProposedPlan::default() });
        let begun_anew = JobStatus {
            submission_started_at: Some(Time(Timestamp::from_second(9).unwrap())),
            proposal: proposal.clone(),
            ..committed("p")
        };
        // the status, whether the slots were emptied -> the kinds of work that end
        let table: [(JobStatus, bool, &[TaskKind]); 7] = [
            (JobStatus { proposal: proposal.clone(), ..committed("p") }, false, &[]),
            (committed("p"), false, &[TaskKind::Publish]),
            (committed("q"), false, &[TaskKind::Repair, TaskKind::Renew]),
            (JobStatus { proposal, ..committed("p") }, true, &ALL),
            (attempt(2), false, &ALL),
            (begun_anew, false, &[]),
            (JobStatus { phase: Some(JobPhase::Failed), ..attempt(1) }, true, &ALL),
        ];
        for (status, is_taken_back, expected) in table {
            let mut entry = Entry::new(Plans::new(1_000).of_job("u"));
            entry.use_up(&attempt(1));
            if !is_taken_back {
                entry.tasks.fetch = Slot::Running(FetchRequest::default());
                let target = Target::Resize { widths: BTreeMap::new(), rebalances: false };
                entry.tasks.compile = Slot::Running(CompileRequest { generation: 1, target });
                entry.tasks.publish = Slot::Running(texts("q"));
                entry.tasks.repair = Slot::Running(texts("p"));
                entry.tasks.renew = Slot::Running(RenewRequest { texts: texts("p"), is_urgent: true });
            }
            let tokens = ALL.map(|kind| (kind, CancellationToken::new()));
            entry.cancel.extend(tokens.clone());
            entry.use_up(&status);
            let ended = tokens.iter().filter(|(_, token)| token.is_cancelled()).map(|(kind, _)| *kind);
            assert_eq!(ended.collect::<Vec<_>>(), expected, "{status:?} {is_taken_back}");
            assert!(ALL.iter().all(|kind| entry.tasks.is_running(*kind) == entry.cancel.contains_key(kind)));
        }
    }

    #[test]
    fn long_work_of_before_an_edit_does_not_count_after_it() {
        let at = |second| Some((1, Timestamp::from_second(second).unwrap()));
        // the attempt that it was begun in, the one by now -> what counts of 5 s
        let table = [(None, at(1), 5), (at(1), at(1), 5), (at(1), at(2), 0)];
        for (begun_in, now, expected) in table {
            let mut entry = Entry::new(Plans::new(1_000).of_job("u"));
            entry.attempt = now;
            entry.did_long_work(begun_in, Duration::from_secs(5));
            assert_eq!(entry.unrecorded_work, Duration::from_secs(expected), "{begun_in:?} {now:?}");
        }
    }

    #[test]
    fn an_edit_of_a_submission_ends_the_pause_after_a_failure() {
        let begun_at = |second| JobStatus {
            submission_attempts: 1,
            submission_started_at: Some(Time(Timestamp::from_second(second).unwrap())),
            ..JobStatus::default()
        };
        let failure = Failure {
            remedy: Remedy::Retry(Timestamp::MAX),
            reason: "FusionUnavailable".to_owned(),
            message: String::new(),
            stage: None,
            code: None,
        };
        let target = Target::Submission { inputs: "i".to_owned() };
        let mut entry = Entry::new(Plans::new(1_000).of_job("u"));
        entry.use_up(&begun_at(1));
        entry.tasks.compile = Slot::Failed(CompileRequest { generation: 0, target }, failure);
        entry.use_up(&begun_at(1));
        assert_ne!(entry.tasks.compile, Slot::Idle);
        entry.use_up(&begun_at(2));
        assert_eq!(entry.tasks.compile, Slot::Idle);
    }

    #[test]
    fn an_adl_is_used_up_once_it_is_recorded_for_the_spec_it_was_fetched_for_or_a_later_one() {
        let adl = |spec_generation, sha256: &str| StoredAdl {
            spec_generation,
            sha256: sha256.to_owned(),
            ..StoredAdl::default()
        };
        // what the status has, of what was fetched for generation 4 -> it is used up
        let table = [
            (None, false),
            // The same bundle, as it was fetched before the last edit.
            (Some(adl(3, "a")), false),
            (Some(adl(4, "a")), true),
            (Some(adl(6, "a")), true),
            (Some(adl(6, "b")), false),
        ];
        for (recorded, expected) in table {
            let mut entry = Entry::new(Plans::new(1_000).of_job("u"));
            entry.tasks.fetch = Slot::Done(FetchRequest::default(), adl(4, "a"));
            entry.use_up(&JobStatus { adl: recorded.clone(), ..JobStatus::default() });
            assert_eq!(entry.tasks.fetch == Slot::Idle, expected, "{recorded:?}");
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
}
