//! What a job's status says of its bundle (rules repository-2 and repository-3).
//!
//! Knows: which fields of a Job have it. Must not know: who asks.

use crate::bundles::fetcher::Wanted;
use streams_api::{BundleReference, Job};

/// What a job was submitted with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Submitted {
    /// The namespace of the job.
    pub(super) namespace: String,
    /// Its name.
    pub(super) job: String,
    /// Its uid: a job of the same name is another one.
    pub(super) uid: String,
    /// Where its bundle is fetched from.
    pub(super) bundle: BundleReference,
    /// Which content the bundle must have.
    pub(super) wanted: Wanted,
    /// The names that the pod may ask for, each once: the recorded one first. All mean the same bundle.
    pub(super) names: Vec<String>,
}

impl Submitted {
    /// What a job was submitted with, whose pod asks by one of these names; `None` as long as its bundle has not been
    /// fetched. The name that the job says now may be another one than it said when the pod was made.
    pub(super) fn of(job: &Job, of_pod: Vec<String>) -> Option<Self> {
        let adl = job.status.as_ref()?.adl.as_ref()?;
        let wanted = match &adl.bundle_sha256 {
            Some(sha256) => Wanted::Digest(sha256.clone()),
            None => Wanted::Adl(adl.sha256.clone()),
        };
        let bundle = job.spec.bundle.clone();
        let option = job.spec.processing_element.as_ref().and_then(|options| options.sab_name());
        let mut names = Vec::new();
        let of_job = [Some(adl.sab_name.clone()), option.map(str::to_owned), bundle.title()];
        for name in of_job.into_iter().flatten().chain(of_pod) {
            if !name.is_empty() && !names.contains(&name) {
                names.push(name);
            }
        }
        Some(Self {
            namespace: job.metadata.namespace.clone()?,
            job: job.metadata.name.clone()?,
            uid: job.metadata.uid.clone()?,
            bundle,
            wanted,
            names,
        })
    }
}
