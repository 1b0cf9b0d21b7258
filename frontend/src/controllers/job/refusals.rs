//! What only the cluster can refuse: a submission that fails of it fails once, is not torn down, and goes on when the
//! spec or the cluster is corrected (rule job-41). Pure.
//!
//! Knows: reasons. Must not know: who refused what.

use super::tasks::Failure;
use super::waits::{Waits, Words};
use streams_api::{JobPhase, JobStatus, condition};

/// An object of the wanted name is there that the job does not control (rule job-30).
pub(crate) const NAME_TAKEN: &str = "NameTaken";

/// Why an object of a job cannot be written although nothing but a correction of the cluster helps.
const OF_OBJECTS: [&str; 4] = ["QuotaExceeded", "ObjectRefused", "Forbidden", NAME_TAKEN];

/// Why nothing comes of the work on a submission, whose time must not run out meanwhile: the cluster refuses an object,
/// or the API server does not take it (rule job-18).
const OF_OTHERS: [&str; 2] = ["ApiServer", "NamespaceTerminating"];

/// What the cluster refuses to a job that is being submitted: a pod of these PEs, or an object for this reason.
pub(crate) fn of_cluster(without_pods: &Waits, trouble: Option<Words>) -> Option<Words> {
    without_pods.refused().or(trouble.filter(|trouble| OF_OBJECTS.contains(&trouble.reason.as_str())))
}

/// Whether the submission has failed for good: nothing happens any more before the spec is edited (rule job-19).
pub(crate) fn is_final(status: &JobStatus) -> bool {
    status.phase == Some(JobPhase::Failed) && status.generation.is_none() && !is_of_cluster(status)
}

/// Whether the submission waits for others, so that its time does not run out: it was last said that the cluster
/// refuses something to it, or one of these failures says so.
pub(crate) fn holds_up<'a>(status: &JobStatus, failures: impl IntoIterator<Item = &'a Failure>) -> bool {
    let is_of_others = |failure: &Failure| {
        let reason = failure.reason.as_str();
        OF_OBJECTS.contains(&reason) || OF_OTHERS.contains(&reason)
    };
    is_of_cluster(status) || failures.into_iter().any(is_of_others)
}

/// Whether the submission was last said to fail of something that only the cluster can refuse.
pub(crate) fn is_of_cluster(status: &JobStatus) -> bool {
    let submitted = condition::get(&status.conditions, condition::SUBMITTED);
    let refused = submitted.is_some_and(|submitted| OF_OBJECTS.contains(&submitted.reason.as_str()));
    status.phase == Some(JobPhase::Failed) && (status.generation.is_some() || refused)
}
