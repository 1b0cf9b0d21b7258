//! Why a bundle could not be had, and whether trying again may help (rule fetch-10).
//!
//! Knows: reasons and sentences. Must not know: when something is tried again.

use streams_api::condition;
use tokio::task::JoinError;

/// Why a bundle could not be had.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BundleError {
    /// The job must be corrected: the same bundle will never do.
    #[error("{message}")]
    Permanent {
        /// One word in CamelCase, for conditions and Events.
        reason: &'static str,
        /// One sentence that names the bundle.
        message: String,
    },
    /// It may work later.
    #[error("{message}")]
    Transient {
        /// One word in CamelCase, for conditions and Events.
        reason: &'static str,
        /// One sentence that names the bundle.
        message: String,
    },
}

/// The bundle is not where the job says.
const NOT_FOUND: &str = "BundleNotFound";
/// It cannot be had from there now.
const UNAVAILABLE: &str = "BundleUnavailable";

impl BundleError {
    pub(super) fn permanent(reason: &'static str, message: impl Into<String>) -> Self {
        Self::Permanent { reason, message: short(message.into()) }
    }

    pub(crate) fn transient(reason: &'static str, message: impl Into<String>) -> Self {
        Self::Transient { reason, message: short(message.into()) }
    }

    /// A thread ended before it had read a bundle.
    pub(super) fn unread(error: &JoinError) -> Self {
        Self::transient("BundleUnreadable", format!("a bundle could not be read: {error}"))
    }

    /// The bundle is not where the job says; it may appear there.
    pub(crate) fn not_found(message: impl Into<String>) -> Self {
        Self::transient(NOT_FOUND, message)
    }

    /// Whoever has the bundle does not give it now.
    pub(super) fn unavailable(message: impl Into<String>) -> Self {
        Self::transient(UNAVAILABLE, message)
    }

    pub(super) fn too_large(name: &str, max_bytes: usize) -> Self {
        Self::permanent("BundleTooLarge", format!("bundle {name} has more than {max_bytes} bytes"))
    }

    /// Whether trying again may help.
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Transient { .. })
    }

    /// Whether the bundle is not where it was looked for.
    pub(super) fn is_not_found(&self) -> bool {
        self.reason() == NOT_FOUND
    }

    /// Whether it is up to whoever serves the bundle, who is asked less and less often.
    pub fn is_of_server(&self) -> bool {
        [NOT_FOUND, UNAVAILABLE].contains(&self.reason())
    }

    /// One word in CamelCase, for conditions and Events.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Permanent { reason, .. } | Self::Transient { reason, .. } => reason,
        }
    }
}

/// A message that a condition has room for. It is logged and kept as well, and what it repeats of a bundle may be long.
fn short(message: String) -> String {
    match condition::cut(&message, condition::MESSAGE_MAX) {
        beginning if beginning.len() < message.len() => beginning.to_owned(),
        _ => message,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_short_whoever_has_written_it() {
        let long = "ö".repeat(condition::MESSAGE_MAX);
        for error in [BundleError::permanent("BundleInvalid", &long), BundleError::unavailable(&long)] {
            assert_eq!(error.to_string().len(), condition::MESSAGE_MAX);
        }
        assert_eq!(BundleError::unavailable("short").to_string(), "short");
    }
}
