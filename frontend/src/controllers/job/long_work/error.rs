//! Errors of long work, with their remedies.

use crate::controllers::job::documents::WriteError;
use crate::controllers::job::refusals::NAME_TAKEN;
use crate::controllers::job::requests::apart::{DEADLINE_EXCEEDED, REPLICAS_LOST};
use crate::controllers::job::tasks::{Failure, Remedy};
use crate::{bundles, fusion};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use std::time::Duration;
use streams_api::condition;

/// First delay of a retry; doubled for each further one (rule job-20).
const FIRST_RETRY: Duration = Duration::from_secs(1);
/// Longest delay of a retry.
const LONGEST_RETRY: Duration = Duration::from_secs(30);
/// The same if a try costs others something (rules fetch-10 and job-20).
const LONGEST_IF_COSTLY: Duration = Duration::from_secs(300);

/// Why work gave no output. It knows whether to try again, but not yet when.
#[derive(Clone, Debug)]
pub(super) struct WorkError {
    pub(super) retry: bool,
    pub(super) recompile: bool,
    /// A try costs others something: a server outside of the cluster, or replicas. There are fewer and fewer.
    pub(super) is_costly: bool,
    pub(super) reason: String,
    pub(super) message: String,
    pub(super) stage: Option<String>,
    pub(super) code: Option<String>,
}

impl WorkError {
    /// A user must change the spec or a width.
    pub(super) fn permanent(reason: &str, message: impl Into<String>) -> Self {
        let (reason, message) = (reason.to_owned(), message.into());
        Self { retry: false, recompile: false, is_costly: false, reason, message, stage: None, code: None }
    }

    /// It may work later.
    pub(super) fn transient(reason: &str, message: impl Into<String>) -> Self {
        Self { retry: true, ..Self::permanent(reason, message) }
    }

    /// The plan's compiler is gone (rule job-21).
    pub(super) fn recompile(message: impl Into<String>) -> Self {
        Self { recompile: true, ..Self::permanent("OtherCompiler", message) }
    }

    /// The same, but worth another try later whatever it is.
    pub(super) fn or_later(self) -> Self {
        Self { retry: true, recompile: false, ..self }
    }

    /// The same; if only somebody else can see to it, less and less often.
    pub(super) fn or_less_often(self) -> Self {
        Self { is_costly: self.is_costly || !self.retry, ..self.or_later() }
    }

    /// The failure now, after these others in a row.
    pub(super) fn failure(self, failures: u32, now: Timestamp) -> Failure {
        let longest = if self.is_costly { LONGEST_IF_COSTLY } else { LONGEST_RETRY };
        let after = |failures: u32| {
            let delay = FIRST_RETRY.saturating_mul(1 << failures.min(16)).min(longest);
            let at = SignedDuration::try_from(delay).ok().and_then(|delay| now.checked_add(delay).ok());
            at.unwrap_or(Timestamp::MAX)
        };
        let remedy = match (self.recompile, self.retry) {
            // Most often the compiler was just replaced: the first time there is nothing to wait for.
            (true, _) => Remedy::Recompile(failures.checked_sub(1).map_or(now, after)),
            (false, true) => Remedy::Retry(after(failures)),
            (false, false) => Remedy::Correct,
        };
        Failure { remedy, reason: self.reason, message: self.message, stage: self.stage, code: self.code }
    }
}

impl From<WriteError> for WorkError {
    fn from(error: WriteError) -> Self {
        match error {
            WriteError::Kubernetes(error) => error.into(),
            WriteError::Compression(_) | WriteError::Task(_) => Self::transient("Internal", error.to_string()),
        }
    }
}

impl From<streams_kubernetes::Error> for WorkError {
    fn from(error: streams_kubernetes::Error) -> Self {
        match &error {
            streams_kubernetes::Error::Foreign { .. } => Self::transient(NAME_TAKEN, error.to_string()),
            streams_kubernetes::Error::NamespaceTerminating { .. } => {
                Self::transient("NamespaceTerminating", error.to_string())
            }
            // By an admission policy; what is written here has no other reason to be refused (rule job-41).
            streams_kubernetes::Error::Refused { .. } => Self::transient("ObjectRefused", error.to_string()),
            error if error.is_of_quota() => Self::transient("QuotaExceeded", error.to_string()),
            error if error.is_forbidden() => Self::transient("Forbidden", error.to_string()),
            _ => Self::transient("ApiServer", error.to_string()),
        }
    }
}

impl From<kube::Error> for WorkError {
    fn from(error: kube::Error) -> Self {
        streams_kubernetes::Error::from(error).into()
    }
}

impl From<bundles::BundleError> for WorkError {
    fn from(error: bundles::BundleError) -> Self {
        let new = if error.is_transient() { Self::transient } else { Self::permanent };
        Self { is_costly: error.is_of_server(), ..new(error.reason(), error.to_string()) }
    }
}

impl From<fusion::FusionError> for WorkError {
    fn from(error: fusion::FusionError) -> Self {
        let message = error.to_string();
        match error {
            fusion::FusionError::Rejected { stage, code, .. } => Self {
                stage: Some(stage).filter(|stage| !stage.is_empty()),
                code,
                ..Self::permanent("ApplicationRejected", message)
            },
            fusion::FusionError::LayoutRejected(_) => Self::permanent("LayoutRejected", message),
            fusion::FusionError::OtherCompiler(_) => Self::recompile(message),
            fusion::FusionError::TooLarge(_) => Self::permanent("TooLarge", message),
            fusion::FusionError::InputMissing(_) => Self::transient("FusionFailed", message),
            // Most often the request has a defect come out, and each try takes the time of several replicas.
            fusion::FusionError::Internal(_) => Self { is_costly: true, ..Self::transient("FusionFailed", message) },
            // Each try may cost a replica.
            fusion::FusionError::ReplicasLost(_) => Self { is_costly: true, ..Self::transient(REPLICAS_LOST, message) },
            fusion::FusionError::Unavailable(_) => Self::transient(condition::FUSION_UNAVAILABLE, message),
            fusion::FusionError::DeadlineExceeded(_) => Self::transient(DEADLINE_EXCEEDED, message),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_asked_less_and_less_often() {
        let now = Timestamp::from_second(1_000_000).unwrap();
        let delay = |error: WorkError, failures| match error.failure(failures, now).remedy {
            Remedy::Retry(at) => at.duration_since(now).as_secs(),
            remedy => panic!("{remedy:?}"),
        };
        let service = || WorkError::transient("ApiServer", "it is down");
        let server = || WorkError::from(bundles::BundleError::not_found("there is none"));
        // failures before -> seconds, for a service of ours and for a server
        for (failures, ours, theirs) in [(0, 1, 1), (3, 8, 8), (5, 30, 32), (8, 30, 256), (9, 30, 300), (99, 30, 300)] {
            assert_eq!((delay(service(), failures), delay(server(), failures)), (ours, theirs), "{failures}");
        }
    }
}
