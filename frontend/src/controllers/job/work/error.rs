//! Errors of long work, with their remedies.

use crate::controllers::job::documents::WriteError;
use crate::controllers::job::tasks::{Failure, Remedy};
use crate::{bundles, fusion};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use std::time::Duration;

/// First delay of a retry; doubled for each further one (rule job-20).
const FIRST_RETRY: Duration = Duration::from_secs(1);
/// Longest delay of a retry.
const LONGEST_RETRY: Duration = Duration::from_secs(30);

/// Why work gave no output. It knows whether to try again, but not yet when.
#[derive(Clone, Debug)]
pub(super) struct WorkError {
    pub(super) retry: bool,
    pub(super) recompile: bool,
    pub(super) reason: String,
    pub(super) message: String,
    pub(super) stage: Option<String>,
    pub(super) code: Option<String>,
}

impl WorkError {
    /// A user must change the spec or a width.
    pub(super) fn permanent(reason: &str, message: impl Into<String>) -> Self {
        let (reason, message) = (reason.to_owned(), message.into());
        Self { retry: false, recompile: false, reason, message, stage: None, code: None }
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

    /// The failure after `failures` others in a row.
    pub(super) fn failure(self, failures: u32, now: Timestamp) -> Failure {
        let after = |failures: u32| {
            let delay = FIRST_RETRY.saturating_mul(1 << failures.min(16)).min(LONGEST_RETRY);
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
            streams_kubernetes::Error::Foreign { .. } => Self::transient("NameTaken", error.to_string()),
            streams_kubernetes::Error::NamespaceTerminating { .. } => {
                Self::transient("NamespaceTerminating", error.to_string())
            }
            streams_kubernetes::Error::Refused { .. } => Self::permanent("ObjectRefused", error.to_string()),
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
        new(error.reason(), error.to_string())
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
            fusion::FusionError::InputMissing(_) | fusion::FusionError::Internal(_) => {
                Self::transient("FusionFailed", message)
            }
            fusion::FusionError::Unavailable(_) => Self::transient("FusionUnavailable", message),
            fusion::FusionError::DeadlineExceeded(_) => Self::transient("FusionDeadlineExceeded", message),
        }
    }
}
