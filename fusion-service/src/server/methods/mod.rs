//! The methods of the contract, without a server around them (rules service-1 and service-9).
//!
//! A method has two halves. The first checks the message, looks into the caches, and compares what was sent with its
//! digest. It runs where the message was decoded, and returns what it found ([`Prepared`]). The second computes the
//! answer from that and may take long. In a server [`steps`](super::steps) takes calls through it, and
//! [`direct`](super::direct) runs it in the caller's thread.
//!
//! * `content` is what the caller sent and what the caches have;
//! * `dry_run` has the two methods that compute a result without carrying it out;
//! * `texts` are those that come with the answer to a resize.
//!
//! Knows: messages, caches, the compiler. Must not know: connections, workers, how a job is compiled.
//!
//! Invariants: a call that lacks content fails in its first half. No answer depends on the contents of the caches.

mod content;
mod dry_run;
mod texts;

use super::cache::{Caches, JobKey, KeptJob};
use super::compiler::Compiler;
use super::digest::Digest;
use super::errors::Failure;
use super::metrics::Metrics;
use super::request::{self, Compilation};
pub(super) use content::{Adl, Prior};
use prost::Message;
use std::sync::Arc;
use std::time::Instant;
use streams_compiler::budget::Budget;
use streams_proto::fusion::v1 as pb;
use tracing::Span;

/// A call whose content has been found.
pub(super) trait Prepared<C: Compiler>: Send + 'static {
    type Answer: Message + 'static;

    /// What the answer is made from. Whoever makes it beforehand fills it in.
    fn origin(&mut self) -> Origin<'_, C>;

    /// Computes the answer, and before that what is missing of its origin.
    fn compute(self, methods: &Methods<C>, budget: &Budget) -> Result<Self::Answer, Failure>;
}

/// What an answer is made from. Other calls may be about to make the same.
pub(super) enum Origin<'a, C: Compiler> {
    Application(&'a mut Adl<C>),
    Job(&'a mut Prior<C>, &'a Arc<Compilation>),
}

/// The values that all methods share.
pub(super) struct Methods<C: Compiler> {
    pub(super) compiler: Arc<C>,
    pub(super) metrics: Arc<Metrics>,
    caches: Arc<Caches<C>>,
}

/// A submission.
pub(super) struct Submission<C: Compiler> {
    compilation: Compilation,
    adl: Adl<C>,
}

/// A resize.
pub(super) struct Resizing<C: Compiler> {
    compilation: Arc<Compilation>,
    prior: Prior<C>,
    resize: request::Resize,
}

/// The job whose texts a caller wants, and the ids of their PEs.
pub(super) struct Rendering<C: Compiler> {
    pub(super) compilation: Arc<Compilation>,
    pub(super) prior: Prior<C>,
    pub(super) pe_ids: Vec<u64>,
}

impl<C: Compiler> Methods<C> {
    pub(super) fn new(compiler: C, caches: Arc<Caches<C>>, metrics: Arc<Metrics>) -> Self {
        Self { compiler: Arc::new(compiler), metrics, caches }
    }

    /// `Submit`.
    pub(super) fn submit(&self, message: pb::SubmitRequest) -> Result<Submission<C>, Failure> {
        let compilation = request::submit(message)?;
        note_job(&compilation);
        let adl = Adl::find(&self.caches, &compilation.adl)?;
        Ok(Submission { compilation, adl })
    }

    /// `Resize`.
    pub(super) fn resize(&self, message: pb::ResizeRequest) -> Result<Resizing<C>, Failure> {
        let (compilation, layout, resize) = request::resize(message)?;
        note_job(&compilation);
        let prior = Prior::find(&self.caches, &compilation, layout)?;
        Ok(Resizing { compilation: Arc::new(compilation), prior, resize })
    }

    /// `Render`, up to the job.
    pub(super) fn render(&self, message: pb::RenderRequest) -> Result<Rendering<C>, Failure> {
        let (compilation, layout, pe_ids) = request::render(message, self.compiler.version())?;
        note_job(&compilation);
        let prior = Prior::find(&self.caches, &compilation, layout)?;
        Ok(Rendering { compilation: Arc::new(compilation), prior, pe_ids })
    }

    /// Compiles a new job.
    fn compile(
        &self,
        adl: &Adl<C>,
        compilation: &Compilation,
        budget: &Budget,
    ) -> Result<(C::Job, pb::SubmitResponse), Failure> {
        let application = self.application(adl, budget)?;
        self.stage("submit", || self.compiler.submit(&application, &compilation.message, budget))
    }

    /// Compiles a job for other widths.
    fn recompile(
        &self,
        prior: &C::Job,
        compilation: &Compilation,
        resize: &request::Resize,
        budget: &Budget,
    ) -> Result<(C::Job, pb::ResizeResponse), Failure> {
        self.stage("resize", || self.compiler.resize(prior, &compilation.message, resize, budget))
    }

    /// Parses the ADL, unless that was done. It may have been done since the call came: what was sent was compared with
    /// its digest, and then the call has waited for a worker.
    pub(super) fn application(&self, adl: &Adl<C>, budget: &Budget) -> Result<Arc<C::Application>, Failure> {
        if let Some(application) = &adl.parsed {
            return Ok(Arc::clone(application));
        }
        if let Some(application) = self.caches.application_meanwhile(adl.input.digest) {
            return Ok(application);
        }
        let Some(content) = &adl.input.content else { return Err(Failure::InputMissing(vec![adl.input.digest])) };
        let application = Arc::new(self.stage("parse", || self.compiler.parse(content, budget))?);
        let size = self.compiler.application_size(&application, content.len());
        self.caches.add_application(adl.input.digest, Arc::clone(&application), size);
        Ok(application)
    }

    /// Restores the job of an earlier call, unless it is there or another call has restored it meanwhile.
    pub(super) fn job(
        &self,
        prior: &Prior<C>,
        compilation: &Compilation,
        budget: &Budget,
    ) -> Result<KeptJob<C>, Failure> {
        if let Some(job) = &prior.job {
            return Ok(Arc::clone(job));
        }
        if let Some(job) = self.caches.job_meanwhile(prior.key) {
            return Ok(job);
        }
        let Some(layout) = prior.layout.content.as_ref().or(prior.cached_layout.as_ref()) else {
            return Err(Failure::InputMissing(vec![prior.layout.digest]));
        };
        let application = self.application(&prior.adl, budget)?;
        let restore = || self.compiler.restore(&application, &compilation.message, layout, budget);
        let job = self.keep(self.stage("restore", restore)?);
        self.caches.add_layout(prior.layout.digest, layout);
        self.caches.add_job(prior.key, &job);
        Ok(job)
    }

    /// Bytes of a job that this replica has made before, if it was too large to be remembered.
    pub(super) fn large_job(&self, key: JobKey) -> Option<u64> {
        self.caches.large_job(key)
    }

    /// Puts a new job into the caches, under a key of everything that it was made from.
    fn remember(&self, compilation: &Compilation, job: C::Job, plan: Option<&pb::Plan>, budget: &Budget) {
        let Some(plan) = plan else { return };
        let name = || {
            let layout = Digest::of(&plan.layout);
            (layout, JobKey::new(&compilation.message, layout))
        };
        // To find out its size takes a walk over the whole job.
        let size = || self.compiler.job_size(&job);
        let ((layout, key), size) = budget.both(plan.processing_elements.len(), name, size);
        self.caches.add_layout(layout, &plan.layout);
        self.caches.add_job(key, &self.caches.keep(job, size));
    }

    /// A job that has just been made, with its size.
    fn keep(&self, job: C::Job) -> KeptJob<C> {
        let size = self.compiler.job_size(&job);
        self.caches.keep(job, size)
    }

    /// Does `work` and records in the metrics how long it took.
    fn stage<T>(&self, name: &'static str, work: impl FnOnce() -> Result<T, Failure>) -> Result<T, Failure> {
        let began = Instant::now();
        let result = tracing::info_span!("stage", otel.name = name).in_scope(work);
        self.metrics.stage(name, began.elapsed());
        result
    }
}

impl<C: Compiler> Submission<C> {
    /// Covers everything that the answer depends on.
    pub(super) fn key(&self) -> Digest {
        Digest::of(&self.compilation.message.encode_to_vec())
    }
}

impl<C: Compiler> Prepared<C> for Submission<C> {
    type Answer = pb::SubmitResponse;

    fn origin(&mut self) -> Origin<'_, C> {
        Origin::Application(&mut self.adl)
    }

    fn compute(self, methods: &Methods<C>, budget: &Budget) -> Result<pb::SubmitResponse, Failure> {
        let (job, answer) = methods.compile(&self.adl, &self.compilation, budget)?;
        methods.remember(&self.compilation, job, answer.plan.as_ref(), budget);
        Ok(answer)
    }
}

impl<C: Compiler> Resizing<C> {
    /// Covers everything that the answer depends on.
    pub(super) fn key(&self) -> (JobKey, Digest) {
        (self.prior.key, self.resize.digest())
    }
}

impl<C: Compiler> Prepared<C> for Resizing<C> {
    type Answer = pb::ResizeResponse;

    fn origin(&mut self) -> Origin<'_, C> {
        Origin::Job(&mut self.prior, &self.compilation)
    }

    fn compute(self, methods: &Methods<C>, budget: &Budget) -> Result<pb::ResizeResponse, Failure> {
        let prior = methods.job(&self.prior, &self.compilation, budget)?;
        let (job, mut answer) = methods.recompile(&prior, &self.compilation, &self.resize, budget)?;
        answer.texts = methods.texts(&job, &answer, self.resize.max_text_bytes, budget)?;
        methods.remember(&self.compilation, job, answer.plan.as_ref(), budget);
        Ok(answer)
    }
}

/// Adds the name of the job to the span of the call.
fn note_job(compilation: &Compilation) {
    Span::current().record("job", compilation.message.job_name.as_str());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::cache::CacheSizes;
    use crate::server::tests::toy::{Gate, Toy};
    use bytes::Bytes;

    #[test]
    fn what_another_call_has_made_since_this_one_looked_is_not_made_again() {
        let gate = Arc::new(Gate::default());
        let metrics = Arc::new(Metrics::new());
        let caches = Arc::new(Caches::new(CacheSizes::divide(1 << 20), None, Arc::clone(&metrics)));
        let methods = Methods::new(Toy { gate: Arc::clone(&gate) }, caches, metrics);
        let blob = |content: &'static [u8]| {
            Some(pb::Blob { sha256: Digest::of(content).to_bytes(), content: Some(Bytes::from_static(content)) })
        };
        let mode = Some(pb::fusion::Mode::Legacy(pb::fusion::Legacy {}));
        let compilation = pb::Compilation {
            adl: blob(b"1 1"),
            job_name: "job".into(),
            fusion: Some(pb::Fusion { mode, r#type: 0 }),
            ..Default::default()
        };
        let width = |width| pb::ResizeRequest {
            compilation: Some(compilation.clone()),
            layout: blob(b"layout of job"),
            widths: vec![pb::RegionWidth { region: "P".into(), width }],
            ..Default::default()
        };
        // All of them look before the first one computes.
        let submissions = ["a", "b"].map(|job| {
            let compilation = pb::Compilation { job_name: job.into(), ..compilation.clone() };
            methods.submit(pb::SubmitRequest { compilation: Some(compilation) }).unwrap()
        });
        let resizes = [2, 3].map(|w| methods.resize(width(w)).unwrap());
        for submission in submissions {
            submission.compute(&methods, &Budget::default()).unwrap();
        }
        for resize in resizes {
            resize.compute(&methods, &Budget::default()).unwrap();
        }
        let expected = ["parse ", "submit a", "submit b", "restore job", "resize job", "resize job"];
        assert_eq!(gate.begun(), expected);
    }
}
