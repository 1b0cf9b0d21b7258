//! What can be wrong with a bundle.

use std::io;

/// Why a bundle cannot be read or written. Each names the entry.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The reader or writer failed.
    #[error("the bundle cannot be read: {0}")]
    Io(#[source] io::Error),
    /// The container is no ZIP archive, or its directory is damaged.
    #[error("not a bundle: {0}")]
    Container(String),
    /// An entry that every bundle has is not there.
    #[error("the bundle has no {0}")]
    Missing(&'static str),
    /// An entry that matters is there twice, so that programs disagree on which one counts.
    #[error("the bundle has two entries {0}")]
    Duplicate(&'static str),
    /// An entry is cut off, does not have its checksum, or is not in its format.
    #[error("{entry} is damaged: {reason}")]
    Damaged {
        /// The entry.
        entry: String,
        /// What is wrong.
        reason: String,
    },
    /// An entry uses a feature that bundles do not have: encryption, other compression, sparse files.
    #[error("{entry} is not supported: {reason}")]
    Unsupported {
        /// The entry.
        entry: String,
        /// The feature.
        reason: String,
    },
    /// The name of an entry is absolute or leads out of the archive.
    #[error("{archive} has an entry with the unsafe name {name:?}")]
    UnsafeName {
        /// `the bundle` or the tar in it.
        archive: &'static str,
        /// The beginning of the name.
        name: String,
    },
    /// A limit is exceeded.
    #[error("{what} exceeds the limit of {limit} {unit}")]
    Limit {
        /// What is too large.
        what: String,
        /// The limit.
        limit: u64,
        /// What the limit counts.
        unit: &'static str,
    },
    /// The description is not as it has to be.
    #[error("bundleInfo.xml: {0}")]
    Info(String),
    /// The tar does not have the ADL that the description names.
    #[error("no ADL in the bundle: tar/bundle.tar has no file {0}")]
    NoAdl(String),
    /// The ADL cannot be used.
    #[error("the ADL of the bundle: {0}")]
    Adl(String),
    /// The build id is not the SHA-224 of the tar, and was required to be.
    #[error("the build id of the bundle is {declared}, but the SHA-224 of tar/bundle.tar is {actual}")]
    BuildId {
        /// What the description says.
        declared: String,
        /// What the tar has.
        actual: String,
    },
    /// Two files of a bundle to be written have the same path, or one is below another.
    #[error("two files at {0}")]
    Conflict(String),
}

impl Error {
    pub(crate) fn limit(what: impl Into<String>, limit: u64, unit: &'static str) -> Self {
        Self::Limit { what: what.into(), limit, unit }
    }

    pub(crate) fn damaged(entry: &str, reason: impl std::fmt::Display) -> Self {
        Self::Damaged { entry: entry.to_owned(), reason: reason.to_string() }
    }
}
