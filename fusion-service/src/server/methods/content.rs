//! The content of a call: blobs that the caller sent, and results of earlier calls in the caches (rule service-2).
//!
//! Invariants: content that was sent has been compared with its digest, whether or not it is needed. What was found in
//! a cache is held until the answer is made, so that nothing can be dropped in between.

use crate::server::cache::{Caches, JobKey, KeptJob};
use crate::server::compiler::Compiler;
use crate::server::digest::Digest;
use crate::server::errors::Failure;
use crate::server::request::{BlobInput, Compilation};
use bytes::Bytes;
use std::sync::Arc;

/// The ADL of a call: sent, parsed before, or both.
pub(in crate::server) struct Adl<C: Compiler> {
    pub(in crate::server) input: BlobInput,
    /// The application that was parsed from it.
    pub(in crate::server) parsed: Option<Arc<C::Application>>,
}

/// The job that a call begins from: compiled before, or restored from its ADL and its layout.
pub(in crate::server) struct Prior<C: Compiler> {
    pub(in crate::server) key: JobKey,
    pub(in crate::server) job: Option<KeptJob<C>>,
    pub(in crate::server) adl: Adl<C>,
    pub(super) layout: BlobInput,
    pub(super) cached_layout: Option<Bytes>,
}

impl<C: Compiler> Clone for Adl<C> {
    fn clone(&self) -> Self {
        Self { input: self.input.clone(), parsed: self.parsed.clone() }
    }
}

impl<C: Compiler> Clone for Prior<C> {
    fn clone(&self) -> Self {
        Self {
            key: self.key,
            job: self.job.clone(),
            adl: self.adl.clone(),
            layout: self.layout.clone(),
            cached_layout: self.cached_layout.clone(),
        }
    }
}

impl<C: Compiler> Adl<C> {
    /// Looks up the ADL.
    ///
    /// # Errors
    ///
    /// The ADL was neither sent with this call nor parsed for an earlier one, or is not what its digest says.
    pub(super) fn find(caches: &Caches<C>, input: &BlobInput) -> Result<Self, Failure> {
        let adl = Self::look_up(caches, input);
        if adl.is_missing() {
            return Err(Failure::InputMissing(vec![input.digest]));
        }
        adl.verify()?;
        Ok(adl)
    }

    fn look_up(caches: &Caches<C>, input: &BlobInput) -> Self {
        Self { parsed: caches.application(input.digest), input: input.clone() }
    }

    fn is_missing(&self) -> bool {
        self.input.content.is_none() && self.parsed.is_none()
    }

    fn verify(&self) -> Result<(), Failure> {
        self.input.verify("compilation.adl")
    }
}

impl<C: Compiler> Prior<C> {
    /// Looks up the job. If no cache has it, looks up the content to restore it from.
    ///
    /// # Errors
    ///
    /// The job is not cached, and content to restore it from was neither sent nor cached. The error names all missing
    /// content (rule service-2). Or content is not what its digest says.
    pub(super) fn find(caches: &Caches<C>, compilation: &Compilation, layout: BlobInput) -> Result<Self, Failure> {
        let key = JobKey::new(&compilation.message, layout.digest);
        let prior = match caches.job(key) {
            Some(job) => {
                // Nothing else is needed.
                let adl = Adl { parsed: None, input: compilation.adl.clone() };
                Self { key, job: Some(job), adl, layout, cached_layout: None }
            }
            None => {
                let cached_layout = caches.layout(layout.digest);
                let adl = Adl::look_up(caches, &compilation.adl);
                Self { key, job: None, adl, layout, cached_layout }
            }
        };
        let missing = prior.missing();
        if !missing.is_empty() {
            return Err(Failure::InputMissing(missing));
        }
        prior.adl.verify()?;
        prior.layout.verify("layout")?;
        Ok(prior)
    }

    fn missing(&self) -> Vec<Digest> {
        let mut missing = Vec::new();
        if self.job.is_none() {
            if self.adl.is_missing() {
                missing.push(self.adl.input.digest);
            }
            if self.layout.content.is_none() && self.cached_layout.is_none() {
                missing.push(self.layout.digest);
            }
        }
        missing
    }
}
