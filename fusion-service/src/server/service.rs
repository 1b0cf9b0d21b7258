//! The three methods of the service.
//!
//! Each does the same: convert the message, look for what is known already, have a worker do the rest, remember the result.
//!
//! Knows: messages, caches, workers, the compiler. Must not know: HTTP, how a job is compiled.
//!
//! Invariants: content that was sent is checked against its digest, whether or not it is needed. What is found in a cache is held
//! until the answer is made, so nothing can be forgotten in between. A stream that ends without an error is complete.

use super::{
    admission::{Admission, Class},
    cache::{Caches, Digest, JobKey},
    call::Call,
    compiler::{Application, Compiler, Job},
    convert::{self, Compilation, Input},
    errors::Failure,
    metrics::Metrics,
};
use crate::{budget::Budget, error::Error};
use bytes::Bytes;
use futures::{Stream, StreamExt, stream};
use std::{pin::Pin, sync::Arc, time::Instant};
use streams_proto::fusion::v1 as pb;
use tokio::sync::{mpsc, oneshot};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status};
use tracing::{Instrument, Span};

/// Most bytes of text in one message of a stream.
const CHUNK: usize = 256 << 10;
/// Texts that are rendered at a time, unless one is larger: short enough for a resize to wait for.
const BATCH: u64 = 1 << 20;
/// Messages that wait for the caller to read them.
const UNREAD: usize = 8;

/// Answers with what `C` compiles.
pub(crate) struct Service<C> {
    inner: Arc<Inner<C>>,
}

struct Inner<C> {
    compiler: C,
    admission: Admission,
    caches: Arc<Caches>,
    metrics: Arc<Metrics>,
}

/// The ADL of a call: as content, as parsed before, or both.
struct Adl {
    digest: Digest,
    content: Option<Bytes>,
    known: Option<Arc<Application>>,
}

/// What a job of an earlier call is found or made again from.
struct Prior {
    key: JobKey,
    known: Option<Arc<Job>>,
    adl: Adl,
    layout: Input,
    known_layout: Option<Bytes>,
}

impl<C: Compiler> Service<C> {
    pub(crate) fn new(compiler: C, admission: Admission, caches: Arc<Caches>, metrics: Arc<Metrics>) -> Self {
        Self { inner: Arc::new(Inner { compiler, admission, caches, metrics }) }
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

    type RenderStream = Pin<Box<dyn Stream<Item = Result<pb::RenderResponse, Status>> + Send>>;

    async fn render(&self, request: Request<pb::RenderRequest>) -> Result<Response<Self::RenderStream>, Status> {
        let (call, message) = open(request)?;
        Inner::render(&self.inner, &call, message).await.map(Response::new).map_err(|failure| call.status(&failure))
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
        let compilation = convert::compilation(message.compilation)?;
        note_job(&compilation);
        let adl = self.adl(&compilation.adl);
        adl.complete()?;
        let inner = Arc::clone(self);
        self.admission
            .run(call.class, &call.budget, move |budget| {
                let application = inner.application(adl, budget)?;
                let submitted = inner.stage("submit", || {
                    inner.compiler.submit(&application, &compilation.request, budget).map_err(Failure::from)
                })?;
                let plan = inner.remember(&compilation, submitted.job);
                Ok(pb::SubmitResponse { plan: Some(plan), warnings: convert::warnings(submitted.warnings) })
            })
            .await
    }

    async fn resize(self: &Arc<Self>, call: &Call, message: pb::ResizeRequest) -> Result<pb::ResizeResponse, Failure> {
        let (compilation, layout, change) = convert::resize(message)?;
        note_job(&compilation);
        let prior = self.prior(&compilation, layout);
        prior.complete()?;
        let inner = Arc::clone(self);
        self.admission
            .run(call.class, &call.budget, move |budget| {
                let prior = inner.job(prior, &compilation, budget)?;
                let resized = inner.stage("resize", || {
                    inner.compiler.resize(&prior, &compilation.request, &change, budget).map_err(Failure::from)
                })?;
                let plan = inner.remember(&compilation, resized.job);
                Ok(convert::resized(plan, resized.difference, resized.warnings))
            })
            .await
    }

    async fn render(
        self: &Arc<Self>,
        call: &Call,
        message: pb::RenderRequest,
    ) -> Result<<Service<C> as pb::fusion_service_server::FusionService>::RenderStream, Failure> {
        let (compilation, layout, pe_ids) = convert::render(message)?;
        note_job(&compilation);
        let prior = self.prior(&compilation, layout);
        prior.complete()?;
        let job = match prior.settled() {
            Some(job) => job,
            None => {
                let inner = Arc::clone(self);
                let make = move |budget: &Budget| inner.job(prior, &compilation, budget);
                self.admission.run(call.class, &call.budget, make).await?
            }
        };
        let batches = batches(&job, &pe_ids)?;

        let (messages, unread) = mpsc::channel(UNREAD);
        let (outcome, end) = oneshot::channel();
        let (inner, call) = (Arc::clone(self), call.clone());
        let writing = async move {
            let result = tokio::select! {
                biased;
                failure = call.ended() => Err(failure),
                result = inner.write(&call, job, batches, messages) => result,
            };
            // Nobody may be left to hear it.
            let _ = outcome.send(result.map_err(|failure| call.status(&failure)));
        };
        tokio::spawn(writing.instrument(Span::current()));
        let end = stream::once(end).filter_map(async |end| match end {
            Ok(Ok(())) => None,
            Ok(Err(status)) => Some(Err(status)),
            Err(_) => Some(Err(Failure::ShuttingDown.status())),
        });
        Ok(Box::pin(ReceiverStream::new(unread).map(Ok).chain(end)))
    }

    /// Writes the texts of PEs, batch by batch. While the caller reads one batch the next is made; nobody holds a worker while the
    /// caller does not read.
    async fn write(
        self: &Arc<Self>,
        call: &Call,
        job: Arc<Job>,
        batches: Vec<Vec<u64>>,
        messages: mpsc::Sender<pb::RenderResponse>,
    ) -> Result<(), Failure> {
        for batch in batches {
            let (inner, job) = (Arc::clone(self), Arc::clone(&job));
            let make = move |budget: &Budget| {
                inner.stage("render", || {
                    let texts = batch.into_iter().map(|pe| {
                        let rendered = inner.compiler.render(&job, pe, budget)?;
                        inner.metrics.rendered(rendered.text.len() as u64);
                        Ok((pe, rendered))
                    });
                    texts.collect::<Result<Vec<_>, Failure>>()
                })
            };
            let texts = self.admission.run(Class::Render, &call.budget, make).await?;
            for (pe_id, rendered) in texts {
                let start = pb::render_response::Start {
                    pe_id,
                    content_id: rendered.content_id,
                    size: rendered.text.len() as u64,
                };
                let start = pb::render_response::Part::Start(start);
                let chunks = chunks(rendered.text).map(pb::render_response::Part::Chunk);
                for part in std::iter::once(start).chain(chunks) {
                    let message = pb::RenderResponse { part: Some(part) };
                    messages.send(message).await.map_err(|_| Failure::Compiler(Error::Cancelled))?;
                }
            }
        }
        Ok(())
    }

    fn adl(&self, input: &Input) -> Adl {
        let known = self.caches.application(input.digest);
        Adl { digest: input.digest, content: input.content.clone(), known }
    }

    fn prior(&self, compilation: &Compilation, layout: Input) -> Prior {
        let key = compilation.key(layout.digest);
        let known = self.caches.job(key);
        let (adl, known_layout) = match known {
            // Nothing else is needed then.
            Some(_) => {
                (Adl { digest: compilation.adl.digest, content: compilation.adl.content.clone(), known: None }, None)
            }
            None => (self.adl(&compilation.adl), self.caches.layout(layout.digest)),
        };
        Prior { key, known, adl, layout, known_layout }
    }

    /// Parses the ADL, unless that was done before.
    fn application(&self, adl: Adl, budget: &Budget) -> Result<Arc<Application>, Failure> {
        adl.verify()?;
        if let Some(application) = adl.known {
            return Ok(application);
        }
        let content = adl.content.ok_or_else(|| Failure::InputMissing(vec![adl.digest]))?;
        let application = self.stage("parse", || self.compiler.parse(&content, budget).map_err(Failure::from))?;
        let application = Arc::new(application);
        self.caches.add_application(adl.digest, Arc::clone(&application), C::application_size(&content));
        Ok(application)
    }

    /// The job of an earlier call, as it was then.
    fn job(&self, prior: Prior, compilation: &Compilation, budget: &Budget) -> Result<Arc<Job>, Failure> {
        prior.verify()?;
        if let Some(job) = prior.known {
            return Ok(job);
        }
        let layout = prior.layout.content.or(prior.known_layout);
        let layout = layout.ok_or_else(|| Failure::InputMissing(vec![prior.layout.digest]))?;
        let application = self.application(prior.adl, budget)?;
        let job =
            self.stage("restore", || self.compiler.restore(&application, &compilation.request, &layout, budget))?;
        self.caches.add_layout(prior.layout.digest, layout);
        let job = Arc::new(job);
        self.caches.add_job(prior.key, Arc::clone(&job), C::job_size(&job));
        Ok(job)
    }

    /// Files a new job under what it was made from, and returns its plan.
    fn remember(&self, compilation: &Compilation, job: Job) -> pb::Plan {
        let plan = convert::plan(&job, compilation.adl.digest);
        let layout = Digest::of(&plan.layout);
        self.caches.add_layout(layout, plan.layout.clone());
        let size = C::job_size(&job);
        self.caches.add_job(compilation.key(layout), Arc::new(job), size);
        plan
    }

    fn stage<T>(&self, name: &'static str, work: impl FnOnce() -> Result<T, Failure>) -> Result<T, Failure> {
        let began = Instant::now();
        let result = tracing::info_span!("stage", otel.name = name).in_scope(work);
        self.metrics.stage(name, began.elapsed());
        result
    }
}

impl Adl {
    fn is_missing(&self) -> bool {
        self.content.is_none() && self.known.is_none()
    }

    fn complete(&self) -> Result<(), Failure> {
        if self.is_missing() { Err(Failure::InputMissing(vec![self.digest])) } else { Ok(()) }
    }

    fn verify(&self) -> Result<(), Failure> {
        verify("compilation.adl", self.digest, self.content.as_ref())
    }
}

impl Prior {
    fn complete(&self) -> Result<(), Failure> {
        if self.known.is_some() {
            return Ok(());
        }
        let mut missing = Vec::new();
        if self.adl.is_missing() {
            missing.push(self.adl.digest);
        }
        if self.layout.content.is_none() && self.known_layout.is_none() {
            missing.push(self.layout.digest);
        }
        if missing.is_empty() { Ok(()) } else { Err(Failure::InputMissing(missing)) }
    }

    /// The job, if there is nothing left to do, not even to check content.
    fn settled(&self) -> Option<Arc<Job>> {
        let nothing_sent = self.adl.content.is_none() && self.layout.content.is_none();
        self.known.as_ref().filter(|_| nothing_sent).map(Arc::clone)
    }

    fn verify(&self) -> Result<(), Failure> {
        self.adl.verify()?;
        verify("layout", self.layout.digest, self.layout.content.as_ref())
    }
}

fn verify(field: &str, digest: Digest, content: Option<&Bytes>) -> Result<(), Failure> {
    match content {
        Some(content) if Digest::of(content) != digest => {
            Err(Failure::malformed(format!("{field}.sha256"), "is not the digest of the content"))
        }
        _ => Ok(()),
    }
}

/// Divides the PEs wanted into pieces that are rendered at a time. An error if the job does not have one of them.
fn batches(job: &Job, pe_ids: &[u64]) -> Result<Vec<Vec<u64>>, Failure> {
    let mut batches = Vec::new();
    let mut batch = Vec::new();
    let mut bytes = 0_u64;
    for (position, id) in pe_ids.iter().enumerate() {
        let size = job
            .size_of(*id)
            .ok_or_else(|| Failure::malformed(format!("pe_ids[{position}]"), format!("the plan has no PE {id}")))?;
        if !batch.is_empty() && bytes.saturating_add(size) > BATCH {
            batches.push(std::mem::take(&mut batch));
            bytes = 0;
        }
        batch.push(*id);
        bytes = bytes.saturating_add(size);
    }
    if !batch.is_empty() {
        batches.push(batch);
    }
    Ok(batches)
}

/// The text in pieces that share its memory.
fn chunks(mut text: Bytes) -> impl Iterator<Item = Bytes> {
    std::iter::from_fn(move || (!text.is_empty()).then(|| text.split_to(CHUNK.min(text.len()))))
}

fn note_job(compilation: &Compilation) {
    Span::current().record("job", &compilation.request.job_name);
}
