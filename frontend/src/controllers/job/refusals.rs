//! What only the cluster can refuse: a submission that fails of it fails once, is not torn down, and goes on when the
//! spec or the cluster is corrected (rule job-41). Pure.
//!
//! Knows: reasons. Must not know: who refused what.

use super::waits::{Waits, Words};
use streams_api::{JobPhase, JobStatus, condition};

/// An object of the wanted name is there that the job does not control (rule job-30).
pub(crate) const NAME_TAKEN: &str = "NameTaken";

/// Why an object of a job cannot be written although nothing but a correction of the cluster helps.
const OF_OBJECTS: [&str; 4] = ["QuotaExceeded", "ObjectRefused", "Forbidden", NAME_TAKEN];

/// What the cluster refuses to a job that is being submitted: a pod of these PEs, or an object for this reason.
pub(crate) fn of_cluster(without_pods: &Waits, trouble: Option<Words>) -> Option<Words> {
    without_pods.refused().or(trouble.filter(|trouble| OF_OBJECTS.contains(&trouble.reason.as_str())))
}

/// Whether the submission has failed for good: nothing happens any more before the spec is edited (rule job-19).
pub(crate) fn is_final(status: &JobStatus) -> bool {
    status.phase == Some(JobPhase::Failed) && status.generation.is_none() && !is_of_cluster(status)
}

/// Whether the submission was last said to fail of something that only the cluster can refuse.
pub(crate) fn is_of_cluster(status: &JobStatus) -> bool {
    let submitted = condition::get(&status.conditions, condition::SUBMITTED);
    let refused = submitted.is_some_and(|submitted| OF_OBJECTS.contains(&submitted.reason.as_str()));
    status.phase == Some(JobPhase::Failed) && (status.generation.is_some() || refused)
}
