//! Callers: each sends its message until it is answered, and comes again when the answer says so.
//!
//! A caller speaks through the client of the contract, but its message is put in below: it is made of pieces that other
//! callers send at the same time.

use super::message::{Job, Message, WIDTH};
use crate::sample::{ADL, CLEAN};
use crate::soak::figures::Durations;
use anyhow::{Context as _, Result};
use bytes::Bytes;
use http_body::Frame;
use sha2::{Digest as _, Sha256};
use std::collections::VecDeque;
use std::convert::Infallible;
use std::fmt;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use streams_proto::fusion::v1 as pb;
use streams_proto::fusion::v1::fusion_service_client::FusionServiceClient;
use tokio_util::sync::CancellationToken;
use tonic::body::Body;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Status};
use tonic_types::StatusExt as _;
use tower::Service;

/// A submission takes seconds.
const SUBMITTED_WITHIN: Duration = Duration::from_secs(300);
/// When a service that does not say it is to be asked again.
const RETRY: Duration = Duration::from_millis(200);
/// Between two small resizes.
const PAUSE: Duration = Duration::from_millis(100);

/// What a caller was told in the end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Answer {
    /// A plan with the width that was asked for.
    Resized,
    /// The layout is broken.
    LayoutRejected,
    /// Anything else.
    Other(String),
}

impl fmt::Display for Answer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Resized => formatter.write_str("resized"),
            Self::LayoutRejected => formatter.write_str("the layout is rejected"),
            Self::Other(what) => formatter.write_str(what),
        }
    }
}

/// One caller and its answer.
#[derive(Debug)]
pub(super) struct Called {
    pub(super) answer: Answer,
    /// How often it was told to come again.
    pub(super) refusals: usize,
    /// From its first call to its answer.
    pub(super) after: Duration,
}

/// Small resizes beside the large ones.
#[derive(Debug, Default)]
pub(super) struct Small {
    pub(super) answered: Durations,
    /// How often it was told to come again.
    pub(super) refusals: usize,
}

/// Sends a message in the place of the one that a client has made.
#[derive(Clone)]
struct Sender {
    channel: Channel,
    message: Message,
}

impl Service<http::Request<Body>> for Sender {
    type Response = http::Response<Body>;
    type Error = tonic::transport::Error;
    type Future = <Channel as Service<http::Request<Body>>>::Future;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Service::poll_ready(&mut self.channel, context)
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let (mut head, _) = request.into_parts();
        let encoding = http::HeaderValue::from_static(self.message.encoding.name());
        head.headers.insert("grpc-encoding", encoding);
        let body = Body::new(Prepared(self.message.pieces().collect()));
        Service::call(&mut self.channel, http::Request::from_parts(head, body))
    }
}

/// A body that was made before.
struct Prepared(VecDeque<Bytes>);

impl http_body::Body for Prepared {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(self.0.pop_front().map(|piece| Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_empty()
    }
}

async fn connect(address: SocketAddr) -> Result<Channel> {
    Endpoint::from_shared(format!("http://{address}"))?.connect().await.context("cannot connect to the service")
}

/// Submits a job.
///
/// # Errors
/// When it is refused.
pub(super) async fn submit(address: SocketAddr, job: &Job) -> Result<pb::Plan> {
    let sender = Sender { channel: connect(address).await?, message: Message::submit(job) };
    let mut request = Request::new(pb::SubmitRequest::default());
    request.set_timeout(SUBMITTED_WITHIN);
    let answer = FusionServiceClient::new(sender).submit(request).await?;
    answer.into_inner().plan.context("the answer has no plan")
}

/// Sends a resize until it is answered.
pub(super) async fn resize(address: SocketAddr, message: Message, number: u64, until: Instant) -> Called {
    let start = Instant::now();
    let mut refusals = 0;
    let answer = async {
        let sender = Sender { channel: connect(address).await?, message };
        let mut client = FusionServiceClient::new(sender);
        let mut random = fastrand::Rng::with_seed(number);
        loop {
            let mut request = Request::new(pb::ResizeRequest::default());
            request.set_timeout(until.saturating_duration_since(Instant::now()));
            match client.resize(request).await {
                Ok(answer) => return Ok(resized(answer.into_inner())),
                Err(status) => match retry(&status) {
                    // Callers that were refused at the same time do not come at the same time again.
                    Some(delay) => {
                        refusals += 1;
                        tokio::time::sleep(delay.mul_f64(1.0 + random.f64() / 2.0)).await;
                    }
                    None => return Ok(refused(&status)),
                },
            }
        }
    };
    let answer: Result<Answer> = tokio::time::timeout_at(until.into(), answer)
        .await
        .unwrap_or_else(|_| Ok(Answer::Other("not answered in time".to_owned())));
    let answer = answer.unwrap_or_else(|error| Answer::Other(format!("{error:#}")));
    Called { answer, refusals, after: start.elapsed() }
}

fn resized(answer: pb::ResizeResponse) -> Answer {
    let regions = answer.plan.unwrap_or_default().parallel_regions;
    match regions.iter().find(|region| region.name == CLEAN) {
        Some(region) if region.width == WIDTH => Answer::Resized,
        region => Answer::Other(format!("a plan with {region:?}")),
    }
}

fn refused(status: &Status) -> Answer {
    let reason = status.get_error_details().error_info().map(|info| info.reason.clone());
    match reason.as_deref() {
        Some("LAYOUT_REJECTED") if status.code() == Code::InvalidArgument => Answer::LayoutRejected,
        _ => Answer::Other(format!("{:?}: {}", status.code(), status.message())),
    }
}

/// When to come again, if that is what the answer says (rule service-4).
fn retry(status: &Status) -> Option<Duration> {
    let details = status.get_error_details();
    let overloaded = details.error_info().is_some_and(|info| info.reason == "OVERLOADED");
    let delay = || details.retry_info().and_then(|info| info.retry_delay).unwrap_or(RETRY);
    (status.code() == Code::ResourceExhausted && overloaded).then(delay)
}

/// Resizes a small job again and again until `end`.
///
/// # Errors
/// When it is told anything but a plan or to come again.
pub(super) async fn small_resizes(address: SocketAddr, end: CancellationToken) -> Result<Small> {
    let mut client = FusionServiceClient::new(connect(address).await?);
    let blob =
        |content: Bytes| Some(pb::Blob { sha256: Sha256::digest(&content).to_vec().into(), content: Some(content) });
    let compilation = pb::Compilation {
        adl: blob(Bytes::from_static(ADL.as_bytes())),
        job_name: "small".to_owned(),
        fusion: Some(pb::Fusion { mode: Some(pb::fusion::Mode::Legacy(pb::fusion::Legacy {})), r#type: 0 }),
        ..pb::Compilation::default()
    };
    let submitted = client.submit(pb::SubmitRequest { compilation: Some(compilation.clone()) }).await?;
    let layout = submitted.into_inner().plan.context("the answer has no plan")?.layout;
    let request = pb::ResizeRequest {
        compilation: Some(compilation),
        layout: blob(layout),
        widths: vec![pb::RegionWidth { region: CLEAN.to_owned(), width: WIDTH.into() }],
        ..pb::ResizeRequest::default()
    };
    let mut small = Small::default();
    while !end.is_cancelled() {
        let start = Instant::now();
        match client.resize(request.clone()).await {
            Ok(_) => small.answered.add(start.elapsed()),
            Err(status) if retry(&status).is_some() => small.refusals += 1,
            Err(status) => return Err(status).context("a small resize"),
        }
        tokio::select! {
            () = tokio::time::sleep(PAUSE) => {}
            () = end.cancelled() => {}
        }
    }
    Ok(small)
}

#[cfg(test)]
mod tests {
    use super::{Answer, refused, retry};
    use std::time::Duration;
    use tonic::{Code, Status};
    use tonic_types::{ErrorDetails, StatusExt as _};

    #[test]
    fn a_caller_comes_again_only_when_it_is_told_to() {
        let with = |code, reason: &str, delay: Option<u64>| {
            let mut details = ErrorDetails::with_error_info(reason, "fusion.streams.ibm.com", []);
            if let Some(delay) = delay {
                details.set_retry_info(Some(Duration::from_millis(delay)));
            }
            Status::with_error_details(code, "why", details)
        };
        let cases = [
            (with(Code::ResourceExhausted, "OVERLOADED", Some(700)), Some(Duration::from_millis(700))),
            (with(Code::ResourceExhausted, "OVERLOADED", None), Some(super::RETRY)),
            (with(Code::InvalidArgument, "LAYOUT_REJECTED", None), None),
            (Status::resource_exhausted("too large a header"), None),
            (Status::deadline_exceeded("late"), None),
        ];
        for (status, expected) in cases {
            assert_eq!(retry(&status), expected, "{status:?}");
        }
        assert_eq!(refused(&with(Code::InvalidArgument, "LAYOUT_REJECTED", None)), Answer::LayoutRejected);
        assert_eq!(refused(&Status::deadline_exceeded("late")), Answer::Other("DeadlineExceeded: late".to_owned()));
    }
}
