//! Whether somebody waits for a job, or for its PEs: their calls go before others then (rule call-22). Until when what
//! is done for a generation is part of the trace of the request for it (rule name-11). Pure.

use crate::settings::JobSettings;
use k8s_openapi::jiff::Timestamp;
use std::cmp::Ordering;
use std::time::Duration;
use streams_api::{Job, JobSpec, JobStatus, Rollout, condition};

/// How long a roll-out may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RollOutTimes {
    resize: Duration,
    min_ready: Duration,
}

impl RollOutTimes {
    /// As the frontend says.
    pub(crate) fn of(settings: &JobSettings) -> Self {
        Self { resize: settings.resize_seconds, min_ready: settings.min_ready_seconds }
    }

    /// How long a pod of a job must have been running until it counts as running.
    pub(crate) fn min_ready(self, job: Option<&JobSpec>) -> Duration {
        job.and_then(JobSpec::min_ready).unwrap_or(self.min_ready)
    }

    /// After so long the job says that its roll-out is late (rule job-36).
    pub(crate) fn longest(self, job: &JobSpec) -> Duration {
        self.resize.saturating_add(self.min_ready(Some(job)))
    }

    /// Whether somebody waits for the PEs of this job.
    pub(crate) fn are_pes_waited_for(self, job: &Job, now: Timestamp) -> bool {
        job.status.as_ref().is_some_and(|status| are_pes_waited_for(status, self.longest(&job.spec), now))
    }
}

/// A job that runs is being brought to another generation, and its roll-out may take so long. Nobody waits any more for
/// one that has taken too long: one that never ends would keep the calls of its job in front of all others. The job
/// says so, unless its status cannot be written. As long as there is a proposal, somebody waits for the job itself,
/// unless nothing comes of that for now (`is_in_vain`).
pub(crate) fn is_resizing(status: &JobStatus, is_in_vain: bool, longest: Duration, now: Timestamp) -> bool {
    let rolls_out =
        roll_out(status).is_some_and(|out| !is_said_to_be_late(status) && !is_late(status, out, longest, now));
    let waits_for_commit = status.proposal.is_some() && !is_in_vain;
    status.generation.is_some() && (waits_for_commit || rolls_out)
}

/// The same, of the PEs of the job, whose work succeeds although nothing comes of a proposal, for example because a
/// quota has no room for it: nobody waits for them once that takes too long. A job says that it is late, too, if it has
/// been brought from one generation to the next for a while: the roll-out of the newest counts while it is in time.
fn are_pes_waited_for(status: &JobStatus, longest: Duration, now: Timestamp) -> bool {
    let is_prepared = status.proposal.is_some();
    let is_said = |out: &Rollout| is_said_to_be_late(status) && !(is_prepared && out.started_at.is_some());
    let rolls_out = roll_out(status).is_some_and(|out| !is_said(out) && !is_late(status, out, longest, now));
    let is_too_long = goes_on_since(status).map_or(is_said_to_be_late(status), |since| has_passed(longest, since, now));
    let waits_for_commit = is_prepared && !is_too_long;
    status.generation.is_some() && (rolls_out || waits_for_commit)
}

/// The roll-out of a later generation than the first that is not over.
fn roll_out(status: &JobStatus) -> Option<&Rollout> {
    status.rollout.as_ref().filter(|out| out.generation > 0 && out.finished_at.is_none())
}

fn is_said_to_be_late(status: &JobStatus) -> bool {
    condition::is_true(&status.conditions, condition::RESIZE_DELAYED)
}

/// Since when something is prepared or rolled out, one after the other.
fn goes_on_since(status: &JobStatus) -> Option<Timestamp> {
    let progressing = condition::get(&status.conditions, condition::PROGRESSING);
    progressing.filter(|condition| condition.status == "True").map(|condition| condition.last_transition_time.0)
}

/// Whether what the job is at, preparations and roll-outs one after the other, has gone on for so long. A generation
/// that was committed meanwhile has its own time, and so has what is prepared after it (rule job-36).
pub(crate) fn goes_on_for(status: &JobStatus, limit: Duration, now: Timestamp) -> bool {
    let committed_at = status.rollout.as_ref().and_then(|rollout| rollout.started_at.as_ref()).map(|at| at.0);
    goes_on_since(status).is_some_and(|since| has_passed(limit, committed_at.map_or(since, |at| at.max(since)), now))
}

fn is_late(status: &JobStatus, rollout: &Rollout, longest: Duration, now: Timestamp) -> bool {
    let since = goes_on_since(status);
    let begun = rollout.started_at.as_ref().map(|started| since.map_or(started.0, |since| since.max(started.0)));
    begun.is_some_and(|begun| has_passed(longest, begun, now))
}

/// So much time has passed since then; not if a clock was put back.
fn has_passed(time: Duration, since: Timestamp, now: Timestamp) -> bool {
    Duration::try_from(now.duration_since(since)).is_ok_and(|passed| passed >= time)
}

/// The roll-out of this generation of a job is not over. A status that lags behind does not know of it yet.
pub(crate) fn is_in_roll_out(status: &JobStatus, generation: u64) -> bool {
    status.rollout.as_ref().is_none_or(|out| match out.generation.cmp(&generation) {
        Ordering::Less => true,
        Ordering::Equal => out.finished_at.is_none(),
        Ordering::Greater => false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
    use streams_api::{BundleReference, ProposedPlan};

    const LONGEST: Duration = Duration::from_secs(300);

    #[test]
    fn somebody_waits_for_a_job_that_runs_until_its_new_generation_is_rolled_out() {
        let finished = || Some(MicroTime(Timestamp::UNIX_EPOCH));
        // committed generation, another one is proposed, roll-out is finished, takes too long -> somebody waits for the
        // job, for its PEs
        let table = [
            (None, false, false, false, false, false),
            (None, true, false, false, false, false),
            (Some(0), false, false, false, false, false),
            (Some(0), true, true, false, true, true),
            (Some(1), false, false, false, true, true),
            (Some(1), false, true, false, false, false),
            (Some(1), false, false, true, false, false),
            (Some(1), true, false, true, true, false),
        ];
        for (generation, proposed, finished_out, late, expected, expected_of_pes) in table {
            let finished_at = finished().filter(|_| finished_out);
            let mut conditions = Vec::new();
            if late {
                let kind = condition::RESIZE_DELAYED;
                condition::set(&mut conditions, kind, true, "TimedOut", "", None, Timestamp::UNIX_EPOCH);
            }
            let status = JobStatus {
                generation,
                conditions,
                proposal: proposed.then(ProposedPlan::default),
                rollout: generation.map(|generation| Rollout { generation, finished_at, ..Rollout::default() }),
                ..JobStatus::default()
            };
            let found = is_resizing(&status, false, LONGEST, Timestamp::UNIX_EPOCH);
            assert_eq!(found, expected, "{generation:?} {proposed} {finished_out} {late}");
            // Nothing comes of what is proposed.
            let found = is_resizing(&status, true, LONGEST, Timestamp::UNIX_EPOCH);
            let expected = expected && generation > Some(0) && !finished_out && !late;
            assert_eq!(found, expected, "{generation:?} {proposed} {finished_out} {late}");
            let found = are_pes_waited_for(&status, LONGEST, Timestamp::UNIX_EPOCH);
            assert_eq!(found, expected_of_pes, "{generation:?} {proposed} {finished_out} {late}");
        }
    }

    #[test]
    fn nobody_waits_for_the_pes_of_a_job_whose_proposal_takes_too_long() {
        let at = |seconds| Timestamp::from_second(seconds).unwrap();
        // since when the job has been progressing (it is not, if none), it says that it is late, when its roll-out
        // began (it is finished, if none) -> somebody waits for its PEs at 1,000 s
        let table = [
            (Some(701), false, None, true),
            (Some(700), false, None, false),
            (Some(700), true, None, false),
            (Some(1_200), false, None, true),
            (None, false, None, true),
            (Some(100), true, Some(200), false),
            // One generation follows the other, and none is late.
            (Some(100), true, Some(900), true),
            (Some(100), false, Some(900), true),
        ];
        for (progressing, is_said, began, expected) in table {
            let mut conditions = Vec::new();
            let since = at(progressing.unwrap_or(100));
            condition::set(&mut conditions, condition::PROGRESSING, progressing.is_some(), "R", "", None, since);
            condition::set(&mut conditions, condition::RESIZE_DELAYED, is_said, "TimedOut", "", None, at(400));
            let time = |seconds| MicroTime(at(seconds));
            let (started_at, finished_at) = (began.map(time), began.is_none().then(|| time(600)));
            let status = JobStatus {
                generation: Some(1),
                conditions,
                proposal: Some(ProposedPlan::default()),
                rollout: Some(Rollout { generation: 1, started_at, finished_at, ..Rollout::default() }),
                ..JobStatus::default()
            };
            let found = are_pes_waited_for(&status, LONGEST, at(1_000));
            assert_eq!(found, expected, "{progressing:?} {is_said} {began:?}");
            assert!(is_resizing(&status, false, LONGEST, at(1_000)), "as long as something may come of it");
        }
    }

    #[test]
    fn nobody_waits_for_a_late_roll_out_whose_job_cannot_say_that_it_is_late() {
        let at = |seconds| Timestamp::from_second(seconds).unwrap();
        // the roll-out began, since when the job has been progressing (it is not, if none), now, it has a proposal ->
        // somebody waits
        let table = [
            (Some(1_000), Some(900), 1_299, false, true),
            (Some(1_000), Some(900), 1_300, false, false),
            (Some(1_000), Some(1_200), 1_300, false, true),
            (Some(1_000), Some(1_200), 1_500, false, false),
            (Some(1_000), None, 1_300, false, false),
            (Some(1_000), None, 900, false, true),
            (None, Some(900), 9_000, false, true),
            (Some(1_000), Some(900), 9_000, true, true),
        ];
        for (started, progressing, now, proposed, expected) in table {
            let started_at = started.map(|seconds| MicroTime(at(seconds)));
            let mut conditions = Vec::new();
            let since = at(progressing.unwrap_or(1_200));
            condition::set(&mut conditions, condition::PROGRESSING, progressing.is_some(), "R", "", None, since);
            let status = JobStatus {
                generation: Some(1),
                conditions,
                proposal: proposed.then(ProposedPlan::default),
                rollout: Some(Rollout { generation: 1, started_at, ..Rollout::default() }),
                ..JobStatus::default()
            };
            let found = is_resizing(&status, false, LONGEST, at(now));
            assert_eq!(found, expected, "{started:?} {progressing:?} {now} {proposed}");
        }
        let spec = JobSpec::of(BundleReference::default());
        let settings = JobSettings { min_ready_seconds: Duration::from_secs(20), ..JobSettings::default() };
        assert_eq!(RollOutTimes::of(&settings).longest(&spec), Duration::from_secs(320));
    }

    #[test]
    fn what_follows_a_commit_has_its_own_time() {
        let at = |seconds| Timestamp::from_second(seconds).unwrap();
        // since when the job has been progressing (it is not, if none), when its newest generation was committed -> it
        // has gone on for longer than it may at 1,000 s
        let table = [
            (None, None, false),
            (None, Some(100), false),
            (Some(701), None, false),
            (Some(700), None, true),
            (Some(700), Some(100), true),
            (Some(701), Some(100), false),
            (Some(100), Some(700), true),
            (Some(100), Some(701), false),
            (Some(1_200), Some(100), false),
        ];
        for (progressing, committed, expected) in table {
            let mut conditions = Vec::new();
            let since = at(progressing.unwrap_or(100));
            condition::set(&mut conditions, condition::PROGRESSING, progressing.is_some(), "R", "", None, since);
            let started_at = committed.map(|seconds| MicroTime(at(seconds)));
            let rollout = Some(Rollout { generation: 1, started_at, ..Rollout::default() });
            let status = JobStatus { conditions, rollout, ..JobStatus::default() };
            assert_eq!(goes_on_for(&status, LONGEST, at(1_000)), expected, "{progressing:?} {committed:?}");
        }
    }

    #[test]
    fn a_generation_is_in_its_roll_out_until_that_is_finished_or_another_one_begins() {
        // generation of the roll-out that the status shows, it is finished -> generation 3 is in its roll-out
        let table = [
            (None, false, true),
            (Some(2), false, true),
            (Some(2), true, true),
            (Some(3), false, true),
            (Some(3), true, false),
            (Some(4), false, false),
            (Some(4), true, false),
        ];
        for (generation, finished, expected) in table {
            let finished_at = finished.then_some(MicroTime(Timestamp::UNIX_EPOCH));
            let rollout = generation.map(|generation| Rollout { generation, finished_at, ..Rollout::default() });
            let status = JobStatus { rollout, ..JobStatus::default() };
            assert_eq!(is_in_roll_out(&status, 3), expected, "{generation:?} {finished}");
        }
    }
}
