//! Application bundles (`.sab`): reading and writing (the rules of `docs/rules/bundle.md`).
//!
//! A bundle is a ZIP archive with a description, [`bundleInfo.xml`](BundleInfo), and the application itself as an
//! uncompressed tar, `tar/bundle.tar`; in the tar is the ADL. [`Bundle::read`] gets description and ADL out of it,
//! [`Bundle::adl_for_submission`] is the ADL as the compiler expects it, [`Builder`] makes bundles.
//!
//! ```
//! use streams_bundle::{Application, Builder, Bundle, ReadOptions, is_bundle};
//!
//! let adl = r#"<applicationSet xmlns="http://www.ibm.com/xmlns/prod/streams/application/v4200"><splApplication
//!     name="demo::Main" buildId="" outputDirectory="demo" applicationDirectory="toolkits/demo"/></applicationSet>"#;
//! let sab = Builder::new(Application {
//!     name: "demo.Main".to_owned(),
//!     output_directory: "demo".to_owned(),
//!     toolkit: "demo".to_owned(),
//!     toolkit_version: "1.0.0".to_owned(),
//!     adl: adl.to_owned(),
//! })
//! .build()?;
//! assert!(is_bundle(&sab) && !is_bundle(adl.as_bytes()));
//!
//! let bundle = Bundle::read(std::io::Cursor::new(&sab), &ReadOptions::default())?;
//! assert_eq!(bundle.adl(), adl);
//! assert!(bundle.adl_for_submission()?.contains(r#"outputDirectory="/tmp/assets/demo""#));
//! # Ok::<(), streams_bundle::Error>(())
//! ```
//!
//! From the outside in: `container` is the ZIP, `payload` the tar, `info` the description, `submission` the
//! rewriting of the ADL.
//!
//! Knows nothing of the content of an ADL but its application element, and neither fetches nor unpacks. Invariants: a
//! bundle is not trusted. Every read is bounded by [`Limits`] before memory is spent, names that leave the archive are
//! refused, links are never followed, and the tar is streamed, never held. The same input makes the same bundle, byte
//! by byte.

mod builder;
mod container;
mod error;
mod info;
mod name;
mod payload;
mod submission;
#[cfg(test)]
mod tests;

use std::io::{Read, Seek};

pub use builder::{Application, Builder};
pub use error::Error;
pub use info::{BundleInfo, ExecutionMode, Toolkit};

/// The ZIP entry with the description.
pub(crate) const INFO: &str = "bundleInfo.xml";
/// The ZIP entry with the application.
pub(crate) const PAYLOAD: &str = "tar/bundle.tar";

/// Whether these octets, or the first of them, are a bundle and not an ADL: whether they begin as a ZIP archive
/// (rule bundle-1).
#[must_use]
pub fn is_bundle(octets: &[u8]) -> bool {
    // An archive without entries begins with the end of its directory.
    octets.starts_with(b"PK\x03\x04") || octets.starts_with(b"PK\x05\x06")
}

/// Bounds on a bundle (rule bundle-6). What exceeds them is refused before it is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Octets of the bundle.
    pub bundle: u64,
    /// Octets of `bundleInfo.xml`.
    pub info: u64,
    /// Octets of the tar, uncompressed.
    pub payload: u64,
    /// How many times larger than the compressed tar the uncompressed one may be, its first 16 MiB aside.
    pub ratio: u64,
    /// Entries of the ZIP, and entries of the tar.
    pub entries: u64,
    /// Octets of the ADL.
    pub adl: u64,
}

impl Default for Limits {
    /// 1 GiB, of which 4 MiB of description; 2 GiB of tar, at most 200 times the compressed size; 100,000 entries; 64
    /// MiB of ADL.
    fn default() -> Self {
        Self { bundle: 1 << 30, info: 4 << 20, payload: 2 << 30, ratio: 200, entries: 100_000, adl: 64 << 20 }
    }
}

/// Whether the build id of a bundle is compared with its content (rule bundle-7). The comparison reads the whole tar;
/// otherwise reading ends behind the ADL.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BuildIdPolicy {
    /// It is not.
    Skip,
    /// It is, and [`Bundle::build_id`] says how.
    #[default]
    Report,
    /// It is, and a difference is an error.
    Require,
}

/// How the build id of a bundle compares with the SHA-224 of its tar (rule bundle-7).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BuildId {
    /// It was not compared.
    Unchecked,
    /// They are equal.
    Verified,
    /// They differ.
    Differs {
        /// The SHA-224 of the tar, in lower-case hexadecimal digits.
        actual: String,
    },
}

/// How to read a bundle.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadOptions {
    /// Bounds.
    pub limits: Limits,
    /// Whether the build id is checked.
    pub build_id: BuildIdPolicy,
}

/// What a bundle says of its application, and the application's ADL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bundle {
    info: BundleInfo,
    adl: String,
    build_id: BuildId,
}

impl Bundle {
    /// Reads a bundle: its description, and the ADL from `outputDirectory/adlFile` in the tar or, if that is not there,
    /// the first file whose path ends with `/adlFile` (rule bundle-4). Files are best read through a buffer.
    ///
    /// # Errors
    ///
    /// When the reader fails, the bundle is damaged or incomplete, exceeds a limit or has names that leave it, and when
    /// the ADL is no UTF-8. Each names the entry.
    pub fn read(reader: impl Read + Seek, options: &ReadOptions) -> Result<Self, Error> {
        let mut container = container::Container::open(reader, &options.limits)?;
        let info = BundleInfo::parse(&container.info(&options.limits)?)?;
        let hash = options.build_id != BuildIdPolicy::Skip;
        let found = container.payload(&options.limits, |tar| payload::find_adl(tar, &info, &options.limits, hash))?;
        let build_id = match found.sha224 {
            None => BuildId::Unchecked,
            Some(actual) if actual == info.build_id => BuildId::Verified,
            Some(actual) if options.build_id == BuildIdPolicy::Require => {
                return Err(Error::BuildId { declared: name::shown(info.build_id.as_bytes()), actual });
            }
            Some(actual) => BuildId::Differs { actual },
        };
        Ok(Self { info, adl: found.adl, build_id })
    }

    /// The description.
    #[must_use]
    pub fn info(&self) -> &BundleInfo {
        &self.info
    }

    /// The ADL as it was written.
    #[must_use]
    pub fn adl(&self) -> &str {
        &self.adl
    }

    /// How the build id compares with the content.
    #[must_use]
    pub fn build_id(&self) -> &BuildId {
        &self.build_id
    }

    /// The ADL as the compiler gets it at a submission: with the build id, and with the directories as they are in a
    /// pod (rule bundle-8). Only these three attributes of the application element differ from [`Bundle::adl`].
    ///
    /// # Errors
    ///
    /// When the ADL has no application element, is not well-formed before it, or has a document type declaration, and
    /// when a tag up to the application's exceeds its limit.
    pub fn adl_for_submission(&self) -> Result<String, Error> {
        submission::rewrite(&self.adl, &self.info.build_id)
    }
}
