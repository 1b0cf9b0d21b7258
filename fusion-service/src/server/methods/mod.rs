//! The methods of the contract, without a server around them (rules service-1 and service-9).
//!
//! A method has two halves. The first checks the message and looks into the caches. It is quick and runs in the task of
//! the call. It returns the second half as a function, which computes the answer and may take long.
//! [`service`](super::service) gives this function to a worker, [`direct`](super::direct) runs it in the caller's
//! thread.
//!
//! * `content` is what the caller sent and what the caches have;
//! * `dry_run` has the two methods that compute a result without carrying it out.
//!
//! Knows: messages, caches, the compiler. Must not know: connections, workers, how a job is compiled.
//!
//! Invariants: a call that lacks content fails in its first half. No answer depends on the contents of the caches.

mod content;
mod dry_run;

use super::cache::{Caches, JobKey};
use super::compiler::Compiler;
use super::digest::Digest;
use super::errors::Failure;
use super::metrics::Metrics;
use super::request::{self, Compilation};
use content::{Adl, Prior};
use std::sync::Arc;
use std::time::Instant;
use streams_compiler::budget::Budget;
use streams_proto::fusion::v1 as pb;
use tracing::Span;

/// The second half of a call.
pub(super) trait Work<T>: FnOnce(&Budget) -> Result<T, Failure> + Send + 'static {}

impl<T, F: FnOnce(&Budget) -> Result<T, Failure> + Send + 'static> Work<T> for F {}

/// The values that all methods share.
pub(super) struct Methods<C: Compiler> {
    pub(super) compiler: Arc<C>,
    pub(super) metrics: Arc<Metrics>,
    caches: Arc<Caches<C>>,
}

/// The job whose texts a caller wants, and the ids of their PEs.
pub(super) struct Rendering<C: Compiler> {
    methods: Arc<Methods<C>>,
    compilation: Compilation,
    prior: Prior<C>,
    pub(super) pe_ids: Vec<u64>,
}

impl<C: Compiler> Methods<C> {
    pub(super) fn new(compiler: C, caches: Arc<Caches<C>>, metrics: Arc<Metrics>) -> Self {
        Self { compiler: Arc::new(compiler), metrics, caches }
    }

    /// `Submit`.
    pub(super) fn submit(
        self: &Arc<Self>,
        message: pb::SubmitRequest,
    ) -> Result<impl Work<pb::SubmitResponse> + use<C>, Failure> {
        let compilation = request::submit(message)?;
        note_job(&compilation);
        let adl = Adl::find(&self.caches, &compilation.adl)?;
        let methods = Arc::clone(self);
        Ok(move |budget: &Budget| {
            let (job, answer) = methods.compile(&adl, &compilation, budget)?;
            methods.remember(&compilation, job, answer.plan.as_ref());
            Ok(answer)
        })
    }

    /// `Resize`.
    pub(super) fn resize(
        self: &Arc<Self>,
        message: pb::ResizeRequest,
    ) -> Result<impl Work<pb::ResizeResponse> + use<C>, Failure> {
        let (compilation, layout, resize) = request::resize(message)?;
        note_job(&compilation);
        let prior = Prior::find(&self.caches, &compilation, layout)?;
        let methods = Arc::clone(self);
        Ok(move |budget: &Budget| {
            let prior = methods.job(&prior, &compilation, budget)?;
            let (job, answer) = methods.recompile(&prior, &compilation, &resize, budget)?;
            methods.remember(&compilation, job, answer.plan.as_ref());
            Ok(answer)
        })
    }

    /// `Render`, up to the job.
    pub(super) fn render(self: &Arc<Self>, message: pb::RenderRequest) -> Result<Rendering<C>, Failure> {
        let (compilation, layout, pe_ids) = request::render(message, self.compiler.version())?;
        note_job(&compilation);
        let prior = Prior::find(&self.caches, &compilation, layout)?;
        Ok(Rendering { methods: Arc::clone(self), compilation, prior, pe_ids })
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

    /// Parses the ADL, unless an earlier call did.
    fn application(&self, adl: &Adl<C>, budget: &Budget) -> Result<Arc<C::Application>, Failure> {
        adl.verify()?;
        if let Some(application) = &adl.cached {
            return Ok(Arc::clone(application));
        }
        let Some(content) = &adl.input.content else { return Err(Failure::InputMissing(vec![adl.input.digest])) };
        let application = Arc::new(self.stage("parse", || self.compiler.parse(content, budget))?);
        let size = self.compiler.application_size(&application, content.len());
        self.caches.add_application(adl.input.digest, Arc::clone(&application), size);
        Ok(application)
    }

    /// Restores the job of an earlier call, unless a cache has it.
    fn job(&self, prior: &Prior<C>, compilation: &Compilation, budget: &Budget) -> Result<Arc<C::Job>, Failure> {
        prior.verify()?;
        if let Some(job) = &prior.cached {
            return Ok(Arc::clone(job));
        }
        let Some(layout) = prior.layout.content.as_ref().or(prior.cached_layout.as_ref()) else {
            return Err(Failure::InputMissing(vec![prior.layout.digest]));
        };
        let application = self.application(&prior.adl, budget)?;
        let restore = || self.compiler.restore(&application, &compilation.message, layout, budget);
        let job = Arc::new(self.stage("restore", restore)?);
        self.caches.add_layout(prior.layout.digest, layout);
        self.caches.add_job(prior.key, Arc::clone(&job), self.compiler.job_size(&job));
        Ok(job)
    }

    /// Puts a new job into the caches, under a key of everything that it was made from.
    fn remember(&self, compilation: &Compilation, job: C::Job, plan: Option<&pb::Plan>) {
        let Some(plan) = plan else { return };
        let layout = Digest::of(&plan.layout);
        let size = self.compiler.job_size(&job);
        self.caches.add_layout(layout, &plan.layout);
        self.caches.add_job(JobKey::new(&compilation.message, layout), Arc::new(job), size);
    }

    /// Does `work` and records in the metrics how long it took.
    fn stage<T>(&self, name: &'static str, work: impl FnOnce() -> Result<T, Failure>) -> Result<T, Failure> {
        let began = Instant::now();
        let result = tracing::info_span!("stage", otel.name = name).in_scope(work);
        self.metrics.stage(name, began.elapsed());
        result
    }
}

impl<C: Compiler> Rendering<C> {
    /// The job, if it is cached.
    pub(super) fn ready(&self) -> Option<Arc<C::Job>> {
        self.prior.ready()
    }

    /// The job.
    pub(super) fn job(&self, budget: &Budget) -> Result<Arc<C::Job>, Failure> {
        self.methods.job(&self.prior, &self.compilation, budget)
    }
}

/// Adds the name of the job to the span of the call.
fn note_job(compilation: &Compilation) {
    Span::current().record("job", compilation.message.job_name.as_str());
}
