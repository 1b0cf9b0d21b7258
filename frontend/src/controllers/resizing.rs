//! Whether somebody waits for a job: its calls go before others then (rule call-22). Pure.

use streams_api::JobStatus;

/// A job that runs is being brought to another generation.
pub(crate) fn is_resizing(status: &JobStatus) -> bool {
    let rolls_out = status.rollout.as_ref().is_some_and(|out| out.generation > 0 && out.finished_at.is_none());
    status.generation.is_some() && (status.proposal.is_some() || rolls_out)
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
        // committed generation, another one is proposed, roll-out is finished -> somebody waits
        let table = [
            (None, false, false, false),
            (None, true, false, false),
            (Some(0), false, false, false),
            (Some(0), true, true, true),
            (Some(1), false, false, true),
            (Some(1), false, true, false),
        ];
        for (generation, proposed, finished_out, expected) in table {
            let finished_at = finished().filter(|_| finished_out);
            let status = JobStatus {
                generation,
                proposal: proposed.then(ProposedPlan::default),
                rollout: generation.map(|generation| Rollout { generation, finished_at, ..Rollout::default() }),
                ..JobStatus::default()
            };
            assert_eq!(is_resizing(&status), expected, "{generation:?} {proposed} {finished_out}");
        }
    }
}
