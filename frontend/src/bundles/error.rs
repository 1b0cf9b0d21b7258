//! Errors of fetching a bundle, and whether trying again may help (rule fetch-10).

/// Why a bundle could not be fetched.
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

impl BundleError {
    pub(super) fn permanent(reason: &'static str, message: impl Into<String>) -> Self {
        Self::Permanent { reason, message: message.into() }
    }

    pub(crate) fn transient(reason: &'static str, message: impl Into<String>) -> Self {
        Self::Transient { reason, message: message.into() }
    }

    /// Whether trying again may help.
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Transient { .. })
    }

    /// One word in CamelCase, for conditions and Events.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Permanent { reason, .. } | Self::Transient { reason, .. } => reason,
        }
    }
}
