//! Whether somebody waits for a job: its calls go before others then (rule call-22). Until when what is done for a
//! generation is part of the trace of the request for it (rule name-11). Pure.

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

    /// Whether somebody waits for a generation of this job.
    pub(crate) fn is_resizing(self, job: &Job, now: Timestamp) -> bool {
        job.status.as_ref().is_some_and(|status| is_resizing(status, self.longest(&job.spec), now))
    }
}

/// A job that runs is being brought to another generation, and its roll-out may take so long. Nobody waits any more for
/// one that has taken too long: one that never ends would keep the calls of its job in front of all others. The job
/// says so, unless its status cannot be written.
pub(crate) fn is_resizing(status: &JobStatus, longest: Duration, now: Timestamp) -> bool {
    let rollout = status.rollout.as_ref().filter(|out| out.generation > 0 && out.finished_at.is_none());
    let is_said = condition::is_true(&status.conditions, condition::RESIZE_DELAYED);
    let rolls_out = rollout.is_some_and(|out| !is_said && !is_late(status, out, longest, now));
    status.generation.is_some() && (status.proposal.is_some() || rolls_out)
}

fn is_late(status: &JobStatus, rollout: &Rollout, longest: Duration, now: Timestamp) -> bool {
    let progressing = condition::get(&status.conditions, condition::PROGRESSING);
    let goes_on_since = progressing.filter(|condition| condition.status == "True").map(|c| c.last_transition_time.0);
    let begun =
        rollout.started_at.as_ref().map(|started| goes_on_since.map_or(started.0, |since| since.max(started.0)));
    // Nothing if a clock was put back.
    begun.is_some_and(|begun| Duration::try_from(now.duration_since(begun)).is_ok_and(|passed| passed >= longest))
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
        // committed generation, another one is proposed, roll-out is finished, takes too long -> somebody waits
        let table = [
            (None, false, false, false, false),
            (None, true, false, false, false),
            (Some(0), false, false, false, false),
            (Some(0), true, true, false, true),
            (Some(1), false, false, false, true),
            (Some(1), false, true, false, false),
            (Some(1), false, false, true, false),
            (Some(1), true, false, true, true),
        ];
        for (generation, proposed, finished_out, late, expected) in table {
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
            let found = is_resizing(&status, LONGEST, Timestamp::UNIX_EPOCH);
            assert_eq!(found, expected, "{generation:?} {proposed} {finished_out} {late}");
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
            let found = is_resizing(&status, LONGEST, at(now));
            assert_eq!(found, expected, "{started:?} {progressing:?} {now} {proposed}");
        }
        let spec = JobSpec::of(BundleReference::default());
        let settings = JobSettings { min_ready_seconds: Duration::from_secs(20), ..JobSettings::default() };
        assert_eq!(RollOutTimes::of(&settings).longest(&spec), Duration::from_secs(320));
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
