//! What only the cluster can refuse: a submission that fails of it fails once, is not torn down, and goes on when the
//! spec or the cluster is corrected (rule job-41). Pure.
//!
//! [`outdated`] says which fields the API server does not keep, and [`pause`] for how long nothing is tried.
//!
//! Knows: reasons. Must not know: who refused what.

pub(crate) mod outdated;
pub(super) mod pause;

use super::child::Child;
use super::tasks::Failure;
use super::waits::{Waits, Words};
use std::collections::BTreeSet;
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
/// refuses something to it, and that is not known to be over, or one of these failures says so.
pub(crate) fn holds_up<'a>(status: &JobStatus, is_over: bool, failures: impl IntoIterator<Item = &'a Failure>) -> bool {
    let is_of_others = |failure: &Failure| is_of_object(failure) || OF_OTHERS.contains(&failure.reason.as_str());
    (is_of_cluster(status) && !is_over) || failures.into_iter().any(is_of_others)
}

/// Whether the cluster refuses an object.
pub(crate) fn is_of_object(failure: &Failure) -> bool {
    OF_OBJECTS.contains(&failure.reason.as_str())
}

/// Whether the submission was last said to fail of something that only the cluster can refuse.
pub(crate) fn is_of_cluster(status: &JobStatus) -> bool {
    let submitted = condition::get(&status.conditions, condition::SUBMITTED);
    let refused = submitted.is_some_and(|submitted| OF_OBJECTS.contains(&submitted.reason.as_str()));
    status.phase == Some(JobPhase::Failed) && (status.generation.is_some() || refused)
}

/// What this process knows of what was refused to a submission: whether that is over although nobody has taken a step
/// since, which would say so.
#[derive(Debug, Default)]
pub(crate) struct Refusals {
    /// Children that were refused when they were applied last.
    children: BTreeSet<Child>,
    is_over: bool,
}

impl Refusals {
    /// The child was refused.
    pub(crate) fn refused(&mut self, child: Child) {
        self.children.insert(child);
        self.is_over = false;
    }

    /// The child was applied.
    pub(crate) fn applied(&mut self, child: Child) {
        self.children.remove(&child);
    }

    /// Something has failed that the submission needs.
    pub(crate) fn failed(&mut self) {
        self.is_over = false;
    }

    /// Something was written that the submission needs, and nothing has failed beside it.
    pub(crate) fn wrote(&mut self) {
        self.is_over = self.children.is_empty();
    }

    /// Whether something was written since the last refusal, and nothing is known that is still refused.
    pub(crate) fn are_over(&self) -> bool {
        self.is_over
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controllers::job::tasks::Remedy;

    #[test]
    fn refusals_are_over_once_what_was_refused_is_written() {
        type Event = fn(&mut Refusals);
        let refused: Event = |it| it.refused(Child::Service(1));
        let (other, same): (Event, Event) = (|it| it.applied(Child::Service(2)), |it| it.applied(Child::Service(1)));
        let (wrote, failed): (Event, Event) = (Refusals::wrote, Refusals::failed);
        // what has happened -> it is over
        let table: [(&[Event], bool); 7] = [
            (&[], false),
            (&[refused, same], false),
            (&[refused, same, wrote], true),
            (&[refused, other, wrote], false),
            (&[refused, same, wrote, failed], false),
            (&[failed, wrote], true),
            (&[failed, wrote, refused], false),
        ];
        for (number, (events, expected)) in table.into_iter().enumerate() {
            let mut refusals = Refusals::default();
            events.iter().for_each(|event| event(&mut refusals));
            assert_eq!(refusals.are_over(), expected, "{number}");
        }
    }

    #[test]
    fn the_time_of_a_submission_stands_while_something_is_refused_to_it() {
        let failure = |reason: &str| Failure {
            remedy: Remedy::Correct,
            reason: reason.to_owned(),
            message: String::new(),
            stage: None,
            code: None,
        };
        let mut failed = JobStatus { phase: Some(JobPhase::Failed), ..JobStatus::default() };
        let now = k8s_openapi::jiff::Timestamp::UNIX_EPOCH;
        condition::set(&mut failed.conditions, condition::SUBMITTED, false, "QuotaExceeded", "", None, now);
        let submitting = JobStatus { phase: Some(JobPhase::Submitting), ..JobStatus::default() };
        // status, it is known to be over, why something has failed -> it stands
        let table = [
            (&submitting, false, None, false),
            (&submitting, false, Some("Forbidden"), true),
            (&submitting, false, Some("ApiServer"), true),
            (&submitting, false, Some("Internal"), false),
            (&failed, false, None, true),
            (&failed, true, None, false),
            (&failed, true, Some("QuotaExceeded"), true),
        ];
        for (status, is_over, reason, expected) in table {
            let failures: Vec<_> = reason.map(failure).into_iter().collect();
            assert_eq!(holds_up(status, is_over, &failures), expected, "{:?} {is_over} {reason:?}", status.phase);
        }
    }
}
