//! What a look at a job carries out now, and what it leaves to the next.
//!
//! Knows: what an action is for. Must not know: how it is carried out.

use super::Actor;
use crate::controllers::job::decide::{
    Child, JobAction, JobStatusChange, Step, StoredDocument, WhichGeneration, has_abandoned,
};
use crate::controllers::job::owned::Owned;
use crate::controllers::times::distance;
use k8s_openapi::jiff::Timestamp;
use std::time::Duration;
use streams_api::JobStatus;
use streams_kubernetes::cluster::Cluster;
use streams_kubernetes::gate::Priority;

/// Most writes of one turn; other jobs have their turns then (rule call-7).
pub(super) const WRITES: usize = 256;
/// Deletions of one turn: somebody may ask for another width meanwhile, and waits for the end of the turn.
const DELETIONS: usize = 64;
/// So many deletions, and so many writes that nobody waits for before a commit, a turn of a job that was submitted has
/// in a crowd: each of them waits for the calls of all other jobs then (rule call-27).
const IN_A_CROWD: usize = 8;
/// Of many, a turn has this part: looks at a large job must not take longer than what is done.
const DIVIDED_BY: usize = 16;
/// How long a roll-out, and deletions, wait at most for what comes before the commit of the next generation.
const PUT_OFF_FOR: Duration = Duration::from_secs(4);
/// When it goes on then.
const GOES_ON_AFTER: Duration = Duration::from_millis(20);

/// What a turn leaves out.
pub(super) struct LeftOutOfTurn<'a> {
    /// There is more than it has.
    pub(super) is_cut: bool,
    /// Some of that is for a commit.
    pub(super) leaves_for_commit: bool,
    /// Deletions that it leaves out because somebody waits for an admission. If nobody is admitted, nobody waits.
    pub(super) after_admission: Vec<&'a JobAction>,
}

/// The priority of a step (rule call-22). What follows waits for it, and be it of another job: the commit ends what was
/// begun. Before its commit, a job that does not run need not go before pods of others, however often it is edited.
fn priority_of(step: &Step, status: &JobStatus, is_waited_for: bool) -> Priority {
    let begins = match step {
        Step::AllocateJobId(_) => true,
        Step::Record(change) | Step::RecordAndStart(change, _) => {
            matches!(
                change,
                JobStatusChange::SubmitAgain
                    | JobStatusChange::BeginAnew
                    | JobStatusChange::Adl(_)
                    | JobStatusChange::Propose { .. }
            )
        }
        Step::RefuseRequest(..) => false,
    };
    match status.generation {
        _ if is_waited_for => Priority::Awaited,
        None if begins => Priority::Normal,
        _ => Priority::Freeing,
    }
}

/// Somebody who asks for widths waits for this until they are in force, and no longer.
fn is_before_the_commit(action: &JobAction) -> bool {
    match action {
        JobAction::Admit | JobAction::Tell(..) | JobAction::WriteWidth(_) | JobAction::TakeOver { .. } => true,
        JobAction::Apply(_, of) | JobAction::StoreAgain(StoredDocument::Plan(of)) => *of == WhichGeneration::Proposed,
        JobAction::Start(_)
        | JobAction::RestoreMetadata(_)
        | JobAction::StoreAgain(StoredDocument::Adl)
        | JobAction::Delete(..)
        | JobAction::EndPods(_) => false,
    }
}

/// Whether the next generation needs it. What follows from a commit goes on while another one is prepared only.
fn prepares(action: &JobAction, is_preparing: bool) -> bool {
    match action {
        JobAction::Tell(..) | JobAction::WriteWidth(_) => is_preparing,
        action => is_before_the_commit(action),
    }
}

/// It is not left for later, whoever waits for what: what begins long work, and the only copy of a plan, which would be
/// lost with the process.
fn is_never_put_off(action: &JobAction) -> bool {
    matches!(action, JobAction::Start(_) | JobAction::StoreAgain(StoredDocument::Plan(_)))
}

/// It may be left for later: no commit waits for it, and nothing is lost.
pub(super) fn may_be_put_off(action: &JobAction) -> bool {
    !is_before_the_commit(action) && !is_never_put_off(action)
}

/// It makes way, unless a commit waits for objects of an abandoned plan to go.
pub(super) fn is_deletion(action: &JobAction) -> bool {
    matches!(action, JobAction::Delete(..) | JobAction::EndPods(_))
}

/// Leaves out what comes after the writes of a turn. Whether there was any.
fn leave_after_the_writes(others: &mut Vec<&JobAction>) -> bool {
    let (before, mut taken) = (others.len(), 0);
    others.retain(|action| {
        taken += 1;
        taken <= WRITES || is_never_put_off(action)
    });
    others.len() < before
}

/// Leaves out what is more than `most` of what nobody waits for before a commit, and what comes after the writes of a
/// turn. Half of these are for what somebody may wait for, wherever in the turn it is: what was refused of that comes
/// last (rule call-7). Whether there was any.
fn leave_what_is_too_much(others: &mut Vec<&JobAction>, most: usize) -> bool {
    let before_the_commit = others.iter().filter(|action| is_before_the_commit(action)).count();
    let is_long = leave_for_later(others, most.min(WRITES - before_the_commit.min(WRITES / 2)));
    let is_too_long = leave_after_the_writes(others);
    is_long || is_too_long
}

/// Leaves out what is more than `most` of what nobody waits for before a commit. Whether there was any.
fn leave_for_later(others: &mut Vec<&JobAction>, most: usize) -> bool {
    let (before, mut taken) = (others.len(), 0);
    others.retain(|action| {
        let may_wait = may_be_put_off(action);
        taken += usize::from(may_wait);
        !may_wait || taken <= most
    });
    others.len() < before
}

/// Something has been put off for long enough, or a clock was set.
pub(super) fn is_over(since: Timestamp, now: Timestamp) -> bool {
    distance(since, now) >= PUT_OFF_FOR
}

impl<C: Cluster> Actor<'_, C> {
    /// Somebody waits for a commit, and with it for this (rule call-22).
    pub(super) fn is_awaited(&self, action: &JobAction) -> bool {
        self.is_waited_for && is_before_the_commit(action)
    }

    /// The priority of a step.
    pub(super) fn priority_of(&self, step: &Step) -> Priority {
        priority_of(step, &self.observed.status, self.is_waited_for)
    }

    /// In a crowd, leaves out what the committed generation needs as long as the next one needs something: that would
    /// wait for calls of all other jobs, and the commit with it (rule call-27). Not if the look before has failed: the
    /// next one may come late. Returns when it goes on, if anything was left out.
    pub(super) fn put_off_roll_out(
        &self,
        others: &mut Vec<&JobAction>,
        deletions: &mut Vec<&JobAction>,
        now: Timestamp,
    ) -> Option<Duration> {
        let is_preparing = self.observed.proposed.is_some() || self.observed.tasks.is_compiling();
        let has_both = others.iter().any(|action| prepares(action, is_preparing))
            && (!deletions.is_empty() || others.iter().any(|action| may_be_put_off(action)));
        let may = self.is_waited_for && has_both && self.is_crowded();
        self.remember(|entry| {
            let since = entry.put_off_since.get_or_insert(now);
            if !may || entry.last_failure.is_some() || is_over(*since, now) {
                entry.put_off_since = None;
                return None;
            }
            others.retain(|action| !may_be_put_off(action));
            if !has_abandoned(self.observed) {
                deletions.clear();
            }
            Some(GOES_ON_AFTER)
        })
    }

    /// Leaves out what is too much for one turn; all deletions, if somebody waits for an admission, as the turn would
    /// end with the last of them.
    pub(super) fn cut<'b>(
        &self,
        others: &mut Vec<&'b JobAction>,
        deletions: &mut Vec<&'b JobAction>,
        is_for_admission: bool,
        now: Timestamp,
    ) -> LeftOutOfTurn<'b> {
        let in_a_crowd = self.observed.status.generation.is_some() && self.is_crowded();
        let (least_deletions, least_writes) = if in_a_crowd { (IN_A_CROWD, IN_A_CROWD) } else { (DELETIONS, WRITES) };
        let part = |all: usize, least: usize| (all / DIVIDED_BY).max(least);
        let is_put_off = self.puts_off_deletions(is_for_admission, !deletions.is_empty(), now);
        let least_deletions = if is_for_admission && !is_put_off { IN_A_CROWD } else { least_deletions };
        let most_deletions = part(deletions.len(), least_deletions);
        let most_of_roll_out = part(others.len(), least_writes);
        let for_commit = |others: &[&JobAction]| others.iter().filter(|action| is_before_the_commit(action)).count();
        let before = for_commit(others);
        let is_too_much = leave_what_is_too_much(others, most_of_roll_out);
        let leaves_deletions = deletions.len() > most_deletions;
        let is_cut = is_too_much || leaves_deletions;
        let leaves_for_commit = for_commit(others) < before || (leaves_deletions && has_abandoned(self.observed));
        deletions.truncate(most_deletions);
        let after_admission = if is_put_off { std::mem::take(deletions) } else { Vec::new() };
        LeftOutOfTurn { is_cut, leaves_for_commit, after_admission }
    }

    /// Whether the deletions of this turn wait for an admission; not for longer than a roll-out does, if requests come
    /// faster than looks.
    fn puts_off_deletions(&self, is_for_admission: bool, are_there_any: bool, now: Timestamp) -> bool {
        self.remember(|entry| {
            if !is_for_admission || !are_there_any {
                if !is_for_admission {
                    entry.deletions_put_off_since = None;
                }
                return false;
            }
            let is_over = is_over(*entry.deletions_put_off_since.get_or_insert(now), now);
            if is_over {
                entry.deletions_put_off_since = None;
            }
            !is_over
        })
    }

    fn is_crowded(&self) -> bool {
        self.reconciler.cluster.is_crowded(&self.snapshot.key.namespace)
    }

    /// Leaves out objects that are rewritten for this version of the frontend, as many as are too many in this second
    /// (rule job-45). Returns whether there were any.
    pub(super) fn put_off_rewrites(&self, actions: &mut Vec<&JobAction>, now: Timestamp) -> bool {
        if self.observed.rewrites.is_none() {
            return false;
        }
        let before = actions.len();
        actions.retain(|action| match action {
            JobAction::Apply(Child::Service(pe), _) if self.observed.children.user_ports.changed.contains(pe) => true,
            JobAction::Apply(child, WhichGeneration::Committed)
                if self.observed.children.has_undrifted(&Owned::Child(*child)) =>
            {
                self.reconciler.rewrites.take(now)
            }
            _ => true,
        });
        actions.len() < before
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controllers::job::tasks::{FetchRequest, Task};
    use std::collections::BTreeMap;
    use streams_api::{ResizeChanges, StoredAdl, StoredPlan};

    #[test]
    fn steps_of_a_submission_before_its_commit_go_before_no_pods() {
        use Priority::{Awaited, Freeing, Normal};
        let plan = StoredPlan::default();
        let propose = JobStatusChange::Propose { plan, widths: BTreeMap::new(), changes: ResizeChanges::default() };
        // a step -> its priority: of a submission, of a job that runs, of one that is waited for
        let table = [
            (Step::AllocateJobId(None), [Normal, Freeing, Awaited]),
            (Step::Record(JobStatusChange::SubmitAgain), [Normal, Freeing, Awaited]),
            (Step::Record(JobStatusChange::BeginAnew), [Normal, Freeing, Awaited]),
            (Step::Record(JobStatusChange::Adl(StoredAdl::default())), [Normal, Freeing, Awaited]),
            (Step::Record(propose), [Normal, Freeing, Awaited]),
            (Step::Record(JobStatusChange::Commit), [Freeing, Freeing, Awaited]),
            (Step::Record(JobStatusChange::StartOver), [Freeing, Freeing, Awaited]),
        ];
        for (step, expected) in table {
            let of = |generation, is_waited_for| {
                let status = JobStatus { generation, ..JobStatus::default() };
                priority_of(&step, &status, is_waited_for)
            };
            assert_eq!([of(None, false), of(Some(0), false), of(Some(0), true)], expected, "{step:?}");
        }
    }

    #[test]
    fn a_turn_has_so_many_writes_and_begins_all_long_work() {
        let writes: Vec<_> = (0..)
            .take(WRITES + 1)
            .map(|pe| JobAction::Apply(Child::ProcessingElement(pe), WhichGeneration::Proposed))
            .collect();
        let start = JobAction::Start(Task::Fetch(FetchRequest::default()));
        let of_plan = JobAction::StoreAgain(StoredDocument::Plan(WhichGeneration::Committed));
        // writes, what comes after them -> how much there is in the turn
        let table = [
            (WRITES, vec![], WRITES),
            (WRITES + 1, vec![], WRITES),
            (WRITES, vec![&start, &of_plan], WRITES + 2),
            (WRITES + 1, vec![&start], WRITES + 1),
        ];
        for (before, then, expected) in table {
            let mut others: Vec<_> = writes.iter().take(before).chain(then.iter().copied()).collect();
            let all = others.len();
            assert_eq!(leave_after_the_writes(&mut others), expected < all, "{before} {then:?}");
            assert_eq!(others.len(), expected, "{before} {then:?}");
            assert!(then.iter().all(|action| others.contains(action)), "{before} {then:?}");
        }
    }

    #[test]
    fn half_of_a_turn_is_for_what_somebody_may_wait_for_also_if_it_comes_last() {
        let apply = |of| (0..).map(move |pe| JobAction::Apply(Child::ProcessingElement(pe), of));
        let (committed, proposed) = (WhichGeneration::Committed, WhichGeneration::Proposed);
        // of the roll-out, after it of a proposal, most of the roll-out -> of the roll-out in the turn, of the proposal
        let table = [
            (300, 0, 300, 256, 0),
            (300, 10, 300, 246, 10),
            (300, 200, 300, 128, 128),
            (300, 200, 100, 100, 156),
            (100, 200, 300, 100, 156),
            (100, 100, 300, 100, 100),
            (20, 300, 8, 8, 248),
        ];
        for (of_roll_out, of_proposal, most, expected, expected_of_proposal) in table {
            let all: Vec<_> = apply(committed).take(of_roll_out).chain(apply(proposed).take(of_proposal)).collect();
            let mut others: Vec<_> = all.iter().collect();
            let is_too_much = leave_what_is_too_much(&mut others, most);
            assert_eq!(is_too_much, others.len() < all.len(), "{of_roll_out} {of_proposal}");
            let (first, then): (Vec<_>, Vec<_>) = others.into_iter().partition(|action| !is_before_the_commit(action));
            let found = (first.len(), then.len());
            assert_eq!(found, (expected, expected_of_proposal), "{of_roll_out} {of_proposal} {most}");
        }
    }

    #[test]
    fn only_what_nobody_waits_for_before_a_commit_is_left_for_later() {
        let apply = |pe, of| JobAction::Apply(Child::ProcessingElement(pe), of);
        let (committed, proposed) = (WhichGeneration::Committed, WhichGeneration::Proposed);
        let pes = [(0, committed), (1, proposed), (2, committed), (3, committed), (4, proposed)];
        let mut all: Vec<_> = pes.into_iter().map(|(pe, of)| apply(pe, of)).collect();
        all.insert(3, JobAction::Admit);
        all.push(JobAction::StoreAgain(StoredDocument::Plan(committed)));
        // most -> what is left
        let table = [
            (0, vec![&all[1], &all[3], &all[5], &all[6]]),
            (2, vec![&all[0], &all[1], &all[2], &all[3], &all[5], &all[6]]),
            (3, all.iter().collect()),
        ];
        for (most, expected) in table {
            let mut others: Vec<_> = all.iter().collect();
            assert_eq!(leave_for_later(&mut others, most), expected.len() < all.len(), "{most}");
            assert_eq!(others, expected, "{most}");
        }
    }
}
