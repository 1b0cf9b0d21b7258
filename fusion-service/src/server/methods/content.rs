//! The content of a call: blobs that the caller sent, and results of earlier calls in the caches (rule service-2).
//!
//! Invariants: content that was sent is compared with its digest, whether or not it is needed. What was found in a
//! cache is held until the answer is made, so that nothing can be dropped in between.

use crate::server::cache::{Caches, JobKey};
use crate::server::compiler::Compiler;
use crate::server::errors::Failure;
use crate::server::request::{BlobInput, Compilation};
use bytes::Bytes;
use std::sync::Arc;

/// The ADL of a call: sent, parsed before, or both.
pub(super) struct Adl<C: Compiler> {
    pub(super) input: BlobInput,
    /// The application that an earlier call parsed from it.
    pub(super) cached: Option<Arc<C::Application>>,
}

/// The job that a call begins from: compiled before, or restored from its ADL and its layout.
pub(super) struct Prior<C: Compiler> {
    pub(super) key: JobKey,
    pub(super) cached: Option<Arc<C::Job>>,
    pub(super) adl: Adl<C>,
    pub(super) layout: BlobInput,
    pub(super) cached_layout: Option<Bytes>,
}

impl<C: Compiler> Adl<C> {
    /// Looks up the ADL.
    ///
    /// # Errors
    ///
    /// The ADL was neither sent with this call nor parsed for an earlier one.
    pub(super) fn find(caches: &Caches<C>, input: &BlobInput) -> Result<Self, Failure> {
        let adl = Self::look_up(caches, input);
        if adl.is_missing() { Err(Failure::InputMissing(vec![input.digest])) } else { Ok(adl) }
    }

    fn look_up(caches: &Caches<C>, input: &BlobInput) -> Self {
        Self { cached: caches.application(input.digest), input: input.clone() }
    }

    fn is_missing(&self) -> bool {
        self.input.content.is_none() && self.cached.is_none()
    }

    /// Compares what was sent with its digest.
    pub(super) fn verify(&self) -> Result<(), Failure> {
        self.input.verify("compilation.adl")
    }
}

impl<C: Compiler> Prior<C> {
    /// Looks up the job. If no cache has it, looks up the content to restore it from.
    ///
    /// # Errors
    ///
    /// The job is not cached, and content to restore it from was neither sent nor cached. The error names all missing
    /// content (rule service-2).
    pub(super) fn find(caches: &Caches<C>, compilation: &Compilation, layout: BlobInput) -> Result<Self, Failure> {
        let key = JobKey::new(&compilation.message, layout.digest);
        if let Some(job) = caches.job(key) {
            // Nothing else is needed.
            let adl = Adl { cached: None, input: compilation.adl.clone() };
            return Ok(Self { key, cached: Some(job), adl, layout, cached_layout: None });
        }
        let cached_layout = caches.layout(layout.digest);
        let adl = Adl::look_up(caches, &compilation.adl);
        let mut missing = Vec::new();
        if adl.is_missing() {
            missing.push(adl.input.digest);
        }
        if layout.content.is_none() && cached_layout.is_none() {
            missing.push(layout.digest);
        }
        if !missing.is_empty() {
            return Err(Failure::InputMissing(missing));
        }
        Ok(Self { key, cached: None, adl, layout, cached_layout })
    }

    /// The job, if it is cached and no sent content has to be compared with its digest.
    pub(super) fn ready(&self) -> Option<Arc<C::Job>> {
        let nothing_sent = self.adl.input.content.is_none() && self.layout.content.is_none();
        self.cached.as_ref().filter(|_| nothing_sent).map(Arc::clone)
    }

    /// Compares what was sent with its digests.
    pub(super) fn verify(&self) -> Result<(), Failure> {
        self.adl.verify()?;
        self.layout.verify("layout")
    }
}
