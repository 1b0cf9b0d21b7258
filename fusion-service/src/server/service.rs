//! The gRPC service: takes each call through its steps, and streams what is rendered.
//!
//! It is written by hand and not generated, because the generated one takes answers as messages: each reader of an
//! answer would need a copy of its own. Large answers are sent beside tonic for the same reason (`encoded`).
//!
//! Knows: calls, steps, streams, how messages travel. Must not know: what a method does.
//!
//! Invariants: a stream that ends without an error is complete.

use super::LARGEST_REQUEST;
use super::call::{Call, method};
use super::compiler::Compiler;
use super::encoded::{self, Encoded, EncodedAnswers};
use super::errors::Failure;
use super::methods::{Methods, Rendering};
use super::render;
use super::steps::Steps;
use futures::{Stream, StreamExt, stream};
use prost::Message;
use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use streams_proto::fusion::WORKED;
use streams_proto::fusion::v1 as pb;
use streams_proto::fusion::v1::fusion_service_server::SERVICE_NAME;
use tokio::sync::{mpsc, oneshot};
use tokio_stream::wrappers::ReceiverStream;
use tonic::body::Body;
use tonic::codec::{Codec, CompressionEncoding};
use tonic::codegen::BoxFuture;
use tonic::server::{Grpc, NamedService};
use tonic::{Request, Response, Status};
use tonic_prost::ProstCodec;
use tower::service_fn;
use tracing::{Instrument, Span};

/// Answers with what `C` compiles.
pub(crate) struct Service<C: Compiler> {
    steps: Arc<Steps<C>>,
}

type RenderStream = Pin<Box<dyn Stream<Item = Result<pb::RenderResponse, Status>> + Send>>;

impl<C: Compiler> Service<C> {
    pub(crate) fn new(steps: Arc<Steps<C>>) -> Self {
        Self { steps }
    }
}

impl<C: Compiler> tower::Service<http::Request<Body>> for Service<C> {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<http::Response<Body>, Infallible>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let steps = Arc::clone(&self.steps);
        match method(request.uri().path()) {
            Some("Submit") => unary(steps, request, Steps::submit),
            Some("Resize") => unary(steps, request, Steps::resize),
            Some("Plan") => unary(steps, request, Steps::plan),
            Some("Explain") => unary(steps, request, Steps::explain),
            Some("Render") => Box::pin(async move {
                let answer = service_fn(move |request| texts(Arc::clone(&steps), request));
                Ok(grpc(ProstCodec::default()).server_streaming(answer, request).await)
            }),
            _ => Box::pin(async { Ok(Status::unimplemented("").into_http()) }),
        }
    }
}

impl<C: Compiler> NamedService for Service<C> {
    const NAME: &'static str = SERVICE_NAME;
}

impl<C: Compiler> Clone for Service<C> {
    fn clone(&self) -> Self {
        Self { steps: Arc::clone(&self.steps) }
    }
}

/// How messages are read and answers are sent (rule service-16).
fn grpc<T: Codec>(codec: T) -> Grpc<T> {
    Grpc::new(codec)
        .accept_compressed(CompressionEncoding::Zstd)
        .accept_compressed(CompressionEncoding::Gzip)
        .send_compressed(CompressionEncoding::Zstd)
        .send_compressed(CompressionEncoding::Gzip)
        .max_decoding_message_size(LARGEST_REQUEST)
}

/// Answers a call with one message.
fn unary<C, M, F>(
    steps: Arc<Steps<C>>,
    request: http::Request<Body>,
    answer: fn(Arc<Steps<C>>, Call, M) -> F,
) -> BoxFuture<http::Response<Body>, Infallible>
where
    C: Compiler,
    M: Message + Default + 'static,
    F: Future<Output = Result<Encoded, Failure>> + Send + 'static,
{
    let answer = service_fn(move |request: Request<M>| {
        let steps = Arc::clone(&steps);
        async move {
            let (call, message) = open(request)?;
            let answered = answer(Arc::clone(&steps), call.clone(), message).await;
            let answered = match answered {
                Ok(encoded) => held(&steps, &call, encoded).await,
                Err(failure) => Err(failure),
            };
            answered.map(|encoded| told(&call, encoded)).map_err(|failure| call.status(&failure))
        }
    });
    Box::pin(async move { Ok(encoded::shared(grpc(EncodedAnswers::new()).unary(answer, request).await)) })
}

/// The answer, which says how long the call was worked on (rule service-33).
fn told(call: &Call, encoded: Encoded) -> Response<Encoded> {
    let mut response = encoded.response();
    if let Some(work) = &call.budget.work {
        let milliseconds = u64::try_from(work.worked().as_millis()).unwrap_or(u64::MAX);
        response.metadata_mut().insert(WORKED, milliseconds.into());
    }
    response
}

/// The answer with the memory that it needs until it is read.
async fn held<C: Compiler>(steps: &Steps<C>, call: &Call, encoded: Encoded) -> Result<Encoded, Failure> {
    if let Some(share) = &call.budget.memory {
        let busy = || steps.admission.overloaded(call.class).into();
        encoded.take_memory(share).await.map_err(|denied| denied.failure("the answer", busy))?;
    }
    Ok(encoded)
}

/// Answers a call with a stream of texts.
async fn texts<C: Compiler>(
    steps: Arc<Steps<C>>,
    request: Request<pb::RenderRequest>,
) -> Result<Response<RenderStream>, Status> {
    let (call, message) = open(request)?;
    rendered(&steps, &call, message).await.map(Response::new).map_err(|failure| call.status(&failure))
}

/// The texts that a caller asks for, as workers render them.
async fn rendered<C: Compiler>(
    steps: &Arc<Steps<C>>,
    call: &Call,
    message: pb::RenderRequest,
) -> Result<RenderStream, Failure> {
    let Steps { methods, admission, .. } = &**steps;
    let Rendering { compilation, prior, pe_ids } = methods.render(message)?;
    let job = steps.job(call.class, &call.budget, &prior, &compilation).await?;
    // What it was restored from is not needed any more.
    drop((prior, compilation));

    let (messages, unread) = mpsc::channel(render::UNREAD);
    let (outcome, end) = oneshot::channel();
    let lost = call.clone();
    let (methods, admission, call) = (Arc::clone(methods), admission.clone(), call.clone());
    let writing = async move {
        let Methods { compiler, metrics, .. } = &*methods;
        let write = render::write(compiler, job, pe_ids, messages, &admission, metrics, &call.budget);
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
    let end = stream::once(end).filter_map(move |end| {
        let end = match end {
            Ok(Ok(())) => None,
            Ok(Err(status)) => Some(Err(status)),
            Err(_) => Some(Err(lost.status(&lost.lost()))),
        };
        async { end }
    });
    Ok(Box::pin(ReceiverStream::new(unread).map(Ok).chain(end)))
}

/// The call that the layer put into a request, and its message.
fn open<M>(mut request: Request<M>) -> Result<(Call, M), Status> {
    let call = request.extensions_mut().remove::<Call>();
    let call = call.ok_or_else(|| Status::internal("the service was called without its layer"))?;
    Ok((call, request.into_inner()))
}
