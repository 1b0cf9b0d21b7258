//! The methods of the service (rule service-1).
//!
//! Each does the same: convert the message, look for what is known already, have a worker do the rest, remember the
//! result.
//!
//! Knows: messages, caches, workers, the compiler. Must not know: HTTP, how a job is compiled.
//!
//! Invariants: content that was sent is checked against its digest, whether or not it is needed. What is found in a
//! cache is held until the answer is made, so nothing can be forgotten in between. A stream that ends without an error
//! is complete.

mod dry_run;

use super::{
    admission::Admission,
    cache::{Caches, Digest, JobKey},
    call::Call,
    compiler::Compiler,
    errors::Failure,
    metrics::Metrics,
    render,
    request::{self, Compilation, Input},
};
use bytes::Bytes;
use futures::{Stream, StreamExt, stream};
use std::{pin::Pin, sync::Arc, time::Instant};
use streams_compiler::budget::Budget;
use streams_proto::fusion::v1 as pb;
use tokio::sync::{mpsc, oneshot};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status};
use tracing::{Instrument, Span};

pub(super) use dry_run::planned;

/// Answers with what `C` compiles.
pub(crate) struct Service<C: Compiler> {
    inner: Arc<Inner<C>>,
}

struct Inner<C: Compiler> {
    compiler: Arc<C>,
    admission: Admission,
    caches: Arc<Caches<C>>,
    metrics: Arc<Metrics>,
}

/// The ADL of a call: as content, as parsed before, or both.
struct Adl<C: Compiler> {
    input: Input,
    known: Option<Arc<C::Application>>,
}

/// What a job of an earlier call is found or made again from.
struct Prior<C: Compiler> {
    key: JobKey,
    known: Option<Arc<C::Job>>,
    adl: Adl<C>,
    layout: Input,
    known_layout: Option<Bytes>,
}

type RenderStream = Pin<Box<dyn Stream<Item = Result<pb::RenderResponse, Status>> + Send>>;

impl<C: Compiler> Service<C> {
    pub(crate) fn new(compiler: C, admission: Admission, caches: Arc<Caches<C>>, metrics: Arc<Metrics>) -> Self {
        Self { inner: Arc::new(Inner { compiler: Arc::new(compiler), admission, caches, metrics }) }
    }
}

#[tonic::async_trait]
impl<C: Compiler> pb::fusion_service_server::FusionService for Service<C> {
    async fn submit(&self, request: Request<pb::SubmitRequest>) -> Result<Response<pb::SubmitResponse>, Status> {
        let (call, message) = open(request)?;
        Inner::submit(&self.inner, &call, message).await.map(Response::new).map_err(|failure| call.status(&failure))
    }

    async fn resize(&self, request: Request<pb::ResizeRequest>) -> Result<Response<pb::ResizeResponse>, Status> {
        let (call, message) = open(request)?;
        Inner::resize(&self.inner, &call, message).await.map(Response::new).map_err(|failure| call.status(&failure))
    }

    type RenderStream = RenderStream;

    async fn render(&self, request: Request<pb::RenderRequest>) -> Result<Response<Self::RenderStream>, Status> {
        let (call, message) = open(request)?;
        Inner::render(&self.inner, &call, message).await.map(Response::new).map_err(|failure| call.status(&failure))
    }

    async fn plan(&self, request: Request<pb::PlanRequest>) -> Result<Response<pb::PlanResponse>, Status> {
        let (call, message) = open(request)?;
        Inner::plan(&self.inner, &call, message).await.map(Response::new).map_err(|failure| call.status(&failure))
    }

    async fn explain(&self, request: Request<pb::ExplainRequest>) -> Result<Response<pb::ExplainResponse>, Status> {
        let (call, message) = open(request)?;
        Inner::explain(&self.inner, &call, message).await.map(Response::new).map_err(|failure| call.status(&failure))
    }
}

/// The call that the layer put into a request, and its message.
fn open<M>(mut request: Request<M>) -> Result<(Call, M), Status> {
    let call = request.extensions_mut().remove::<Call>();
    let call = call.ok_or_else(|| Status::internal("the service was called without its layer"))?;
    Ok((call, request.into_inner()))
}

impl<C: Compiler> Inner<C> {
    async fn submit(self: &Arc<Self>, call: &Call, message: pb::SubmitRequest) -> Result<pb::SubmitResponse, Failure> {
        let compilation = request::submit(message)?;
        note_job(&compilation);
        let adl = self.adl(&compilation.adl);
        adl.complete()?;
        let inner = Arc::clone(self);
        let work = move |budget: &Budget| {
            let application = inner.application(&adl, budget)?;
            let (job, answer) =
                inner.stage("submit", || inner.compiler.submit(&application, &compilation.message, budget))?;
            inner.remember(&compilation, job, answer.plan.as_ref());
            Ok(answer)
        };
        self.admission.run(call.class, &call.budget, work).await
    }

    async fn resize(self: &Arc<Self>, call: &Call, message: pb::ResizeRequest) -> Result<pb::ResizeResponse, Failure> {
        let (compilation, layout, change) = request::resize(message)?;
        note_job(&compilation);
        let prior = self.prior(&compilation, layout);
        prior.complete()?;
        let inner = Arc::clone(self);
        let work = move |budget: &Budget| {
            let prior = inner.job(&prior, &compilation, budget)?;
            let (job, answer) =
                inner.stage("resize", || inner.compiler.resize(&prior, &compilation.message, &change, budget))?;
            inner.remember(&compilation, job, answer.plan.as_ref());
            Ok(answer)
        };
        self.admission.run(call.class, &call.budget, work).await
    }

    async fn render(self: &Arc<Self>, call: &Call, message: pb::RenderRequest) -> Result<RenderStream, Failure> {
        let (compilation, layout, pes) = request::render(message, self.compiler.version())?;
        note_job(&compilation);
        let prior = self.prior(&compilation, layout);
        prior.complete()?;
        let job = match prior.settled() {
            Some(job) => job,
            None => {
                let inner = Arc::clone(self);
                let work = move |budget: &Budget| inner.job(&prior, &compilation, budget);
                self.admission.run(call.class, &call.budget, work).await?
            }
        };
        let wanted = render::wanted(&*self.compiler, &job, &pes)?;

        let (messages, unread) = mpsc::channel(render::UNREAD);
        let (outcome, end) = oneshot::channel();
        let (inner, call) = (Arc::clone(self), call.clone());
        let writing = async move {
            let write =
                render::write(&inner.compiler, job, wanted, messages, &inner.admission, &inner.metrics, &call.budget);
            let result = tokio::select! {
                biased;
                failure = call.ended() => Err(failure),
                result = write => result,
            };
            // Nobody may be left to hear it.
            let _ = outcome.send(result.map_err(|failure| call.status(&failure)));
        };
        tokio::spawn(writing.instrument(Span::current()));
        // A channel just ends. Whether that was the end of the last text is said apart, so that no stream looks
        // complete that is not.
        let end = stream::once(end).filter_map(async |end| match end {
            Ok(Ok(())) => None,
            Ok(Err(status)) => Some(Err(status)),
            Err(_) => Some(Err(Failure::ShuttingDown.status())),
        });
        Ok(Box::pin(ReceiverStream::new(unread).map(Ok).chain(end)))
    }

    fn adl(&self, input: &Input) -> Adl<C> {
        Adl { known: self.caches.application(input.digest), input: input.clone() }
    }

    fn prior(&self, compilation: &Compilation, layout: Input) -> Prior<C> {
        let key = compilation.key(layout.digest);
        match self.caches.job(key) {
            // Nothing else is needed then.
            Some(job) => {
                let adl = Adl { known: None, input: compilation.adl.clone() };
                Prior { key, known: Some(job), adl, layout, known_layout: None }
            }
            None => {
                let known_layout = self.caches.layout(layout.digest);
                Prior { key, known: None, adl: self.adl(&compilation.adl), layout, known_layout }
            }
        }
    }

    /// Parses the ADL, unless that was done before.
    fn application(&self, adl: &Adl<C>, budget: &Budget) -> Result<Arc<C::Application>, Failure> {
        adl.verify()?;
        if let Some(application) = &adl.known {
            return Ok(Arc::clone(application));
        }
        let Some(content) = &adl.input.content else { return Err(Failure::InputMissing(vec![adl.input.digest])) };
        let application = Arc::new(self.stage("parse", || self.compiler.parse(content, budget))?);
        let size = self.compiler.application_size(&application, content.len());
        self.caches.add_application(adl.input.digest, Arc::clone(&application), size);
        Ok(application)
    }

    /// The job of an earlier call, as it was then.
    fn job(&self, prior: &Prior<C>, compilation: &Compilation, budget: &Budget) -> Result<Arc<C::Job>, Failure> {
        prior.verify()?;
        if let Some(job) = &prior.known {
            return Ok(Arc::clone(job));
        }
        let Some(layout) = prior.layout.content.as_ref().or(prior.known_layout.as_ref()) else {
            return Err(Failure::InputMissing(vec![prior.layout.digest]));
        };
        let application = self.application(&prior.adl, budget)?;
        let restore = || self.compiler.restore(&application, &compilation.message, layout, budget);
        let job = Arc::new(self.stage("restore", restore)?);
        self.caches.add_layout(prior.layout.digest, layout);
        self.caches.add_job(prior.key, Arc::clone(&job), self.compiler.job_size(&job));
        Ok(job)
    }

    /// Files a new job under what it was made from.
    fn remember(&self, compilation: &Compilation, job: C::Job, plan: Option<&pb::Plan>) {
        let Some(plan) = plan else { return };
        let layout = Digest::of(&plan.layout);
        let size = self.compiler.job_size(&job);
        self.caches.add_layout(layout, &plan.layout);
        self.caches.add_job(compilation.key(layout), Arc::new(job), size);
    }

    fn stage<T>(&self, name: &'static str, work: impl FnOnce() -> Result<T, Failure>) -> Result<T, Failure> {
        let began = Instant::now();
        let result = tracing::info_span!("stage", otel.name = name).in_scope(work);
        self.metrics.stage(name, began.elapsed());
        result
    }
}

impl<C: Compiler> Adl<C> {
    fn is_missing(&self) -> bool {
        self.input.content.is_none() && self.known.is_none()
    }

    fn complete(&self) -> Result<(), Failure> {
        if self.is_missing() { Err(Failure::InputMissing(vec![self.input.digest])) } else { Ok(()) }
    }

    fn verify(&self) -> Result<(), Failure> {
        self.input.verify("compilation.adl")
    }
}

impl<C: Compiler> Prior<C> {
    fn complete(&self) -> Result<(), Failure> {
        if self.known.is_some() {
            return Ok(());
        }
        let mut missing = Vec::new();
        if self.adl.is_missing() {
            missing.push(self.adl.input.digest);
        }
        if self.layout.content.is_none() && self.known_layout.is_none() {
            missing.push(self.layout.digest);
        }
        if missing.is_empty() { Ok(()) } else { Err(Failure::InputMissing(missing)) }
    }

    /// The job, if there is nothing left to do, not even to check content.
    fn settled(&self) -> Option<Arc<C::Job>> {
        let nothing_sent = self.adl.input.content.is_none() && self.layout.content.is_none();
        self.known.as_ref().filter(|_| nothing_sent).map(Arc::clone)
    }

    fn verify(&self) -> Result<(), Failure> {
        self.adl.verify()?;
        self.layout.verify("layout")
    }
}

fn note_job(compilation: &Compilation) {
    Span::current().record("job", compilation.message.job_name.as_str());
}
