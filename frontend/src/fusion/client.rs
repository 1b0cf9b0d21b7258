//! Calls with a deadline, spread over replicas (rules call-15 and call-16).

use super::error::{FusionError, Verdict, verdict};
use super::replicas::Replicas;
use backon::BackoffBuilder;
use std::collections::BTreeSet;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use streams_process::telemetry;
use streams_proto::fusion::v1::fusion_service_client::FusionServiceClient;
use streams_proto::fusion::v1::{Blob, ResizeRequest, ResizeResponse, SubmitRequest, SubmitResponse};
use tokio::time::{Instant, sleep, timeout_at};
use tonic::codec::CompressionEncoding;
use tonic::metadata::MetadataValue;
use tonic::transport::Channel;
use tonic::{Request, Status};

/// Content up to this size is sent at once; above it, only when a replica asks.
const INLINE: usize = 16 << 10;
/// A plan of the largest job allowed, with room.
const MAX_RESPONSE: usize = 512 << 20;
/// The largest request allowed by the contract, with room.
const MAX_REQUEST: usize = 192 << 20;

/// How long calls may take, all attempts together.
#[derive(Clone, Debug)]
pub struct ClientOptions {
    /// `host:port` of replicas; a name may stand for several.
    pub addresses: Vec<String>,
    /// A submission.
    pub submit_deadline: Duration,
    /// A resize.
    pub resize_deadline: Duration,
    /// Rendering of one call's PEs.
    pub render_deadline: Duration,
    /// The largest AADL text that is accepted, in bytes.
    pub max_text: usize,
}

impl ClientOptions {
    /// Default time-outs for these addresses.
    pub fn new(addresses: Vec<String>) -> Self {
        Self {
            addresses,
            submit_deadline: Duration::from_secs(60),
            resize_deadline: Duration::from_secs(30),
            render_deadline: Duration::from_secs(120),
            max_text: 256 << 20,
        }
    }
}

/// A client of the fusion service. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Client {
    replicas: Arc<Replicas>,
    options: Arc<ClientOptions>,
}

impl Client {
    /// A client; connects when first used.
    pub fn new(options: ClientOptions) -> Self {
        let replicas = Arc::new(Replicas::new(options.addresses.iter().cloned()));
        Self { replicas, options: Arc::new(options) }
    }

    /// Compiles a job for the first time. The ADL's content must be in the request; it is sent only if a replica asks
    /// for it.
    ///
    /// # Errors
    /// See [`FusionError`].
    pub async fn submit(&self, request: SubmitRequest) -> Result<SubmitResponse, FusionError> {
        let lean = SubmitRequest { compilation: request.compilation.clone().map(without_content) };
        let deadline = Instant::now() + self.options.submit_deadline;
        let call = |mut client: FusionServiceClient<Channel>, full: bool| {
            let request = traced(if full { request.clone() } else { lean.clone() }, deadline);
            async move { client.submit(request).await }
        };
        self.unary(deadline, call).await
    }

    /// Compiles a running job for other widths. Contents of ADL and layout must be in the request.
    ///
    /// # Errors
    /// See [`FusionError`].
    pub async fn resize(&self, request: ResizeRequest) -> Result<ResizeResponse, FusionError> {
        let mut lean = request.clone();
        lean.compilation = lean.compilation.map(without_content);
        lean.layout = lean.layout.map(lean_blob);
        let deadline = Instant::now() + self.options.resize_deadline;
        let call = |mut client: FusionServiceClient<Channel>, full: bool| {
            let request = traced(if full { request.clone() } else { lean.clone() }, deadline);
            async move { client.resize(request).await }
        };
        self.unary(deadline, call).await
    }

    pub(super) fn options(&self) -> &ClientOptions {
        &self.options
    }

    async fn unary<T, F, Fut>(&self, deadline: Instant, call: F) -> Result<T, FusionError>
    where
        F: Fn(FusionServiceClient<Channel>, bool) -> Fut,
        Fut: Future<Output = Result<tonic::Response<T>, Status>>,
    {
        self.attempts(deadline, |client, full| {
            let answer = call(client, full);
            async move { answer.await.map(tonic::Response::into_inner) }
        })
        .await
    }

    /// Runs `attempt` until it succeeds, fails for good, or the deadline passes. Its second argument says whether to
    /// send contents.
    pub(super) async fn attempts<T, F, Fut>(&self, deadline: Instant, mut attempt: F) -> Result<T, FusionError>
    where
        F: FnMut(FusionServiceClient<Channel>, bool) -> Fut,
        Fut: Future<Output = Result<T, Status>>,
    {
        let mut pauses = backon::ExponentialBuilder::default()
            .with_min_delay(Duration::from_millis(50))
            .with_max_delay(Duration::from_secs(2))
            .with_jitter()
            .without_max_times()
            .build();
        let mut tried = BTreeSet::new();
        let mut full = false;
        loop {
            let late = |last: &FusionError| FusionError::DeadlineExceeded(last.to_string());
            let chosen = match timeout_at(deadline, self.replicas.choose(&tried)).await {
                Ok(Ok(chosen)) => chosen,
                Ok(Err(message)) => return Err(FusionError::Unavailable(message)),
                Err(_) => return Err(FusionError::DeadlineExceeded("no replica was found".to_owned())),
            };
            let client = connect(chosen.channel());
            let status = match timeout_at(deadline, attempt(client, full)).await {
                Ok(Ok(answer)) => return Ok(answer),
                Ok(Err(status)) => status,
                Err(_) => return Err(FusionError::DeadlineExceeded(format!("{} did not answer", chosen.address()))),
            };
            match verdict(&status) {
                Verdict::Final(error) => return Err(error),
                Verdict::SendContent(error) if full => return Err(error),
                Verdict::SendContent(_) => full = true,
                Verdict::Elsewhere(error, delay) => {
                    tracing::debug!(replica = %chosen.address(), %error, "asking another replica");
                    chosen.failed();
                    let fresh = tried.insert(chosen.address());
                    // Another replica may answer at once; a round through all of them is followed by a pause.
                    let pause = match delay {
                        Some(delay) => delay,
                        None if fresh && tried.len() == 1 => Duration::ZERO,
                        None => pauses.next().unwrap_or(Duration::from_secs(2)),
                    };
                    // The transport ends a call a moment before the deadline, as a cancellation.
                    if Instant::now() + Duration::from_millis(20) >= deadline {
                        return Err(late(&error));
                    }
                    if Instant::now() + pause >= deadline {
                        return Err(error);
                    }
                    drop(chosen);
                    sleep(pause).await;
                    if !fresh {
                        tried.clear();
                    }
                }
            }
        }
    }
}

fn connect(channel: Channel) -> FusionServiceClient<Channel> {
    FusionServiceClient::new(channel)
        .send_compressed(CompressionEncoding::Zstd)
        .accept_compressed(CompressionEncoding::Zstd)
        .max_decoding_message_size(MAX_RESPONSE)
        .max_encoding_message_size(MAX_REQUEST)
}

/// A request with the remaining time and the trace context of the current span.
pub(super) fn traced<T>(message: T, deadline: Instant) -> Request<T> {
    let mut request = Request::new(message);
    request.set_timeout(deadline.saturating_duration_since(Instant::now()));
    if let Some(Ok(trace)) = telemetry::trace_parent().map(MetadataValue::try_from) {
        request.metadata_mut().insert(telemetry::TRACE_PARENT, trace);
    }
    request
}

pub(super) fn lean_blob(blob: Blob) -> Blob {
    let content = blob.content.filter(|content| content.len() <= INLINE);
    Blob { content, ..blob }
}

pub(super) fn without_content(
    mut compilation: streams_proto::fusion::v1::Compilation,
) -> streams_proto::fusion::v1::Compilation {
    compilation.adl = compilation.adl.map(lean_blob);
    compilation
}
