//! The gRPC service: gives the work of each call to a worker, and streams what is rendered.
//!
//! Knows: calls, workers, streams, the methods. Must not know: HTTP, what a method does.
//!
//! Invariants: a stream that ends without an error is complete.

use super::admission::Admission;
use super::call::Call;
use super::compiler::Compiler;
use super::errors::Failure;
use super::methods::{Methods, Work};
use super::render;
use futures::{Stream, StreamExt, stream};
use std::pin::Pin;
use std::sync::Arc;
use streams_compiler::budget::Budget;
use streams_proto::fusion::v1 as pb;
use tokio::sync::{mpsc, oneshot};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status};
use tracing::{Instrument, Span};

/// Answers with what `C` compiles.
pub(crate) struct Service<C: Compiler> {
    methods: Arc<Methods<C>>,
    admission: Admission,
}

type RenderStream = Pin<Box<dyn Stream<Item = Result<pb::RenderResponse, Status>> + Send>>;

impl<C: Compiler> Service<C> {
    pub(crate) fn new(methods: Methods<C>, admission: Admission) -> Self {
        Self { methods: Arc::new(methods), admission }
    }

    /// Has a worker do the work of a call.
    async fn answer<T: Send + 'static>(
        &self,
        call: &Call,
        work: Result<impl Work<T>, Failure>,
    ) -> Result<Response<T>, Status> {
        let answer = async { self.admission.run(call.class, &call.budget, work?).await };
        answer.await.map(Response::new).map_err(|failure| call.status(&failure))
    }

    async fn stream(&self, call: &Call, message: pb::RenderRequest) -> Result<RenderStream, Failure> {
        let rendering = self.methods.render(message)?;
        let pe_ids = rendering.pe_ids.clone();
        let job = match rendering.ready() {
            Some(job) => job,
            None => {
                let work = move |budget: &Budget| rendering.job(budget);
                self.admission.run(call.class, &call.budget, work).await?
            }
        };
        let requested = render::requested_texts(&*self.methods.compiler, &job, &pe_ids)?;

        let (messages, unread) = mpsc::channel(render::UNREAD);
        let (outcome, end) = oneshot::channel();
        let (methods, admission, call) = (Arc::clone(&self.methods), self.admission.clone(), call.clone());
        let writing = async move {
            let Methods { compiler, metrics, .. } = &*methods;
            let write = render::write(compiler, job, requested, messages, &admission, metrics, &call.budget);
            let result = tokio::select! {
                biased;
                failure = call.ended() => Err(failure),
                result = write => result,
            };
            // If the caller has gone, nobody receives the result.
            let _ = outcome.send(result.map_err(|failure| call.status(&failure)));
        };
        tokio::spawn(writing.instrument(Span::current()));
        // A channel ends without a result. The result is sent separately, so that no incomplete stream looks complete.
        let end = stream::once(end).filter_map(async |end| match end {
            Ok(Ok(())) => None,
            Ok(Err(status)) => Some(Err(status)),
            Err(_) => Some(Err(Failure::ShuttingDown.status())),
        });
        Ok(Box::pin(ReceiverStream::new(unread).map(Ok).chain(end)))
    }
}

#[tonic::async_trait]
impl<C: Compiler> pb::fusion_service_server::FusionService for Service<C> {
    async fn submit(&self, request: Request<pb::SubmitRequest>) -> Result<Response<pb::SubmitResponse>, Status> {
        let (call, message) = open(request)?;
        self.answer(&call, self.methods.submit(message)).await
    }

    async fn resize(&self, request: Request<pb::ResizeRequest>) -> Result<Response<pb::ResizeResponse>, Status> {
        let (call, message) = open(request)?;
        self.answer(&call, self.methods.resize(message)).await
    }

    type RenderStream = RenderStream;

    async fn render(&self, request: Request<pb::RenderRequest>) -> Result<Response<Self::RenderStream>, Status> {
        let (call, message) = open(request)?;
        self.stream(&call, message).await.map(Response::new).map_err(|failure| call.status(&failure))
    }

    async fn plan(&self, request: Request<pb::PlanRequest>) -> Result<Response<pb::PlanResponse>, Status> {
        let (call, message) = open(request)?;
        self.answer(&call, self.methods.plan(message)).await
    }

    async fn explain(&self, request: Request<pb::ExplainRequest>) -> Result<Response<pb::ExplainResponse>, Status> {
        let (call, message) = open(request)?;
        self.answer(&call, self.methods.explain(message)).await
    }
}

/// The call that the layer put into a request, and its message.
fn open<M>(mut request: Request<M>) -> Result<(Call, M), Status> {
    let call = request.extensions_mut().remove::<Call>();
    let call = call.ok_or_else(|| Status::internal("the service was called without its layer"))?;
    Ok((call, request.into_inner()))
}
