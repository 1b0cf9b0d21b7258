//! Whether somebody waits for a job: its calls go before others then (rule call-22). Until when what is done for a
//! generation is part of the trace of the request for it (rule name-11). Pure.

use std::cmp::Ordering;
use streams_api::{JobStatus, condition};

/// A job that runs is being brought to another generation. Nobody waits any more for a roll-out that has taken too
/// long: one that never ends would keep the calls of its job in front of all others.
pub(crate) fn is_resizing(status: &JobStatus) -> bool {
    let rolls_out = status.rollout.as_ref().is_some_and(|out| out.generation > 0 && out.finished_at.is_none());
    let is_late = condition::is_true(&status.conditions, condition::RESIZE_DELAYED);
    status.generation.is_some() && (status.proposal.is_some() || (rolls_out && !is_late))
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
    use k8s_openapi::jiff::Timestamp;
    use streams_api::{ProposedPlan, Rollout};

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
            assert_eq!(is_resizing(&status), expected, "{generation:?} {proposed} {finished_out} {late}");
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
