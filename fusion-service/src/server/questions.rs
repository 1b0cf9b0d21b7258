//! Bounds the calls of the services for health and reflection (rule service-16).
//!
//! No budget has these calls, because they compute nothing. But a caller may leave them open for ever, and who sends
//! questions and reads no answer has the transport keep what it has sent: nobody asks the body of a request for more
//! while an answer waits to be read. So the calls at once are counted, each has an age at which it ends, and it ends
//! sooner if its answer is not read.
//!
//! Knows: HTTP bodies. Must not know: what is asked.
//!
//! Invariant: a call has its place until its answer is read or taken away, and so long only it has what was sent.

use super::answer::{AnswerBody, Held, Observer, Patience};
use super::errors::{Failure, Overloaded};
use super::intake;
use super::settings::Settings;
use bytes::Bytes;
use http::HeaderMap;
use http_body::Frame;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{self, Instant, Sleep};
use tokio_util::sync::{CancellationToken, DropGuard};
use tonic::body::Body;
use tonic::codegen::BoxFuture;
use tonic::{Code, Status};
use tower::{Layer, Service};

/// Calls about health at once: as many as there are connections, if nothing else is configured.
pub(crate) const HEALTH: usize = 1024;
/// Calls of reflection at once. The transport may keep a MiB for each.
pub(crate) const REFLECTION: usize = 32;
/// When somebody for whom there was no place may come again.
const LATER: Duration = Duration::from_secs(1);

/// Bounds the calls of a service, or of several together.
#[derive(Clone)]
pub(crate) struct QuestionLayer {
    places: Arc<Semaphore>,
    /// How long nothing of a request may come.
    arrival: Duration,
    /// How long nothing of an answer may be read.
    stall: Duration,
    /// How long a call may be open.
    longest: Duration,
}

impl QuestionLayer {
    /// Lets so many calls be open at once.
    pub(crate) fn new(calls: usize, settings: &Settings) -> Self {
        let Settings { arrival, stall, longest_call, .. } = *settings;
        Self { places: Arc::new(Semaphore::new(calls)), arrival, stall, longest: longest_call }
    }
}

impl<S> Layer<S> for QuestionLayer {
    type Service = QuestionService<S>;

    fn layer(&self, inner: S) -> Self::Service {
        QuestionService { layer: self.clone(), inner }
    }
}

/// See [`QuestionLayer`].
#[derive(Clone)]
pub(crate) struct QuestionService<S> {
    layer: QuestionLayer,
    inner: S,
}

impl<S> Service<http::Request<Body>> for QuestionService<S>
where
    S: Service<http::Request<Body>, Response = http::Response<Body>, Error = Infallible>,
    S::Future: Send + 'static,
{
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<http::Response<Body>, Infallible>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let QuestionLayer { places, arrival, stall, longest } = &self.layer;
        let Ok(place) = Arc::clone(places).try_acquire_owned() else {
            let busy = Failure::from(Overloaded { retry_after: LATER });
            return Box::pin(async move { Ok(busy.status().into_http()) });
        };
        let (stall, until) = (*stall, Instant::now() + *longest);
        let answer = self.inner.call(intake::prompt(request, *arrival));
        Box::pin(async move {
            let Ok(answer) = time::timeout_at(until, answer).await else {
                return Ok(Failure::SlowRequest.status().into_http());
            };
            Ok(answer?.map(|body| {
                let body = Aged { body, until: Box::pin(time::sleep_until(until)), over: false, _place: place };
                let ended = CancellationToken::new();
                let observer = Unobserved { _ended: ended.clone().drop_guard() };
                let patience = Patience { deadline: Some(until.into_std()), stall };
                Body::new(AnswerBody::new(Held::new(Body::new(body), None, None), patience, ended, observer))
            }))
        })
    }
}

/// The body of an answer that ends at an age.
struct Aged {
    body: Body,
    until: Pin<Box<Sleep>>,
    over: bool,
    _place: OwnedSemaphorePermit,
}

impl http_body::Body for Aged {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        if self.over {
            return Poll::Ready(None);
        }
        if self.until.as_mut().poll(context).is_ready() {
            self.over = true;
            self.body = Body::empty();
            let mut trailers = HeaderMap::new();
            let told = Failure::OpenTooLong.status().add_header(&mut trailers);
            return Poll::Ready(Some(told.map(|()| Frame::trailers(trailers))));
        }
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.over || self.body.is_end_stream()
    }
}

/// Nobody counts these calls. Who waits for the end of one hears of it.
struct Unobserved {
    _ended: DropGuard,
}

impl Observer for Unobserved {
    fn note(&mut self, _: &HeaderMap) {}

    fn fail(&mut self, _: Code) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::{BufMut, BytesMut};
    use http_body::Body as _;
    use prost::Message;
    use std::collections::VecDeque;
    use std::future;
    use std::time::Instant as Clock;
    use tonic_reflection::pb::v1::ServerReflectionRequest;
    use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;

    const LONG: Duration = Duration::from_secs(60);

    fn layer(calls: usize, stall: Duration, longest: Duration) -> QuestionLayer {
        QuestionLayer { places: Arc::new(Semaphore::new(calls)), arrival: LONG, stall, longest }
    }

    /// Questions without end. Tells when it is given up.
    struct Questions {
        message: Bytes,
        _given_up: DropGuard,
    }

    impl http_body::Body for Questions {
        type Data = Bytes;
        type Error = Status;

        fn poll_frame(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
            Poll::Ready(Some(Ok(Frame::data(self.message.clone()))))
        }
    }

    fn questions() -> (http::Request<Body>, CancellationToken) {
        let message = ServerReflectionRequest {
            host: String::new(),
            message_request: Some(MessageRequest::ListServices(String::new())),
        };
        let mut framed = BytesMut::new();
        framed.put_u8(0);
        framed.put_u32(u32::try_from(message.encoded_len()).unwrap());
        message.encode(&mut framed).unwrap();
        let given_up = CancellationToken::new();
        let body = Questions { message: framed.freeze(), _given_up: given_up.clone().drop_guard() };
        let path = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo";
        let request = http::Request::post(path).header("content-type", "application/grpc").body(Body::new(body));
        (request.unwrap(), given_up)
    }

    async fn ask(layer: &QuestionLayer) -> (http::Response<Body>, CancellationToken) {
        let mut service = layer.layer(crate::server::reflection().build_v1().unwrap());
        let (request, given_up) = questions();
        (service.call(request).await.unwrap(), given_up)
    }

    /// The code that ends an answer.
    async fn read(answer: http::Response<Body>) -> Option<Code> {
        let mut body = answer.into_body();
        let mut code = None;
        while let Some(frame) = future::poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await {
            let trailers = frame.unwrap().into_trailers().ok();
            code = trailers.and_then(|trailers| Status::from_header_map(&trailers)).map(|status| status.code());
        }
        code
    }

    #[tokio::test]
    async fn there_are_only_so_many_at_once() {
        let layer = layer(2, LONG, LONG);
        let mut open: VecDeque<_> = [ask(&layer).await, ask(&layer).await].into();
        let (refused, given_up) = ask(&layer).await;
        let status = Status::from_header_map(refused.headers()).unwrap();
        assert_eq!(status.code(), Code::ResourceExhausted);
        given_up.cancelled().await;
        open.pop_front();
        let (answer, _) = ask(&layer).await;
        assert!(Status::from_header_map(answer.headers()).is_none());
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn who_reads_no_answer_has_no_place_for_long() {
        let layer = layer(1, Duration::from_millis(20), LONG);
        let (answer, given_up) = ask(&layer).await;
        time::timeout(LONG, given_up.cancelled()).await.expect("what was sent is kept");
        let _place = time::timeout(LONG, layer.places.acquire()).await.expect("the place is kept").unwrap();
        assert_eq!(read(answer).await, Some(Code::DeadlineExceeded));
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn who_asks_without_end_is_not_answered_for_ever() {
        let layer = layer(1, LONG, Duration::from_millis(20));
        let (answer, given_up) = ask(&layer).await;
        let begun = Clock::now();
        assert_eq!(time::timeout(LONG, read(answer)).await.expect("it goes on"), Some(Code::DeadlineExceeded));
        assert!(begun.elapsed() < LONG);
        time::timeout(LONG, given_up.cancelled()).await.expect("what was sent is kept");
    }
}
