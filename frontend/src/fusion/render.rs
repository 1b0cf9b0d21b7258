//! The stream of AADL texts, checked and resumed (rule call-16).

use super::client::{Client, application, lean_blob, traced, without_content};
use super::error::FusionError;
use super::replicas::Lane;
use super::tries::{Call, answer_of};
use bytes::{Bytes, BytesMut};
use sha2::{Digest, Sha256};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use streams_kubernetes::stopwatch;
use streams_proto::fusion::v1::render_response::Part;
use streams_proto::fusion::v1::{RenderRequest, RenderResponse};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Status, Streaming};
use tracing::Instrument;

/// How long a replica may say nothing between two parts of its answer: the largest application compiles in a part of
/// that.
const SILENCE: Duration = Duration::from_secs(30);

/// The AADL of one PE.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RenderedText {
    /// Id of the PE.
    pub pe_id: u64,
    /// SHA-256 of the text in lower-case hexadecimal; checked.
    pub content_id: String,
    /// The text, UTF-8.
    pub text: Bytes,
}

impl Client {
    /// Streams the texts of some PEs, in the order of the request, one in memory at a time. Contents of ADL and layout
    /// must be in the request. After a broken connection the remaining texts come from another replica. An error ends
    /// the stream. Dropping the stream ends the call.
    pub fn render(&self, request: RenderRequest) -> ReceiverStream<Result<RenderedText, FusionError>> {
        let (sender, receiver) = tokio::sync::mpsc::channel(1);
        let client = self.clone();
        let span = tracing::Span::current();
        let rendering = async move {
            tokio::select! {
                () = sender.closed() => {}
                result = render(&client, request, &sender) => {
                    if let Err(error) = result {
                        let _ = sender.send(Err(error)).await;
                    }
                }
            }
        };
        tokio::spawn(stopwatch::part(rendering).instrument(span));
        ReceiverStream::new(receiver)
    }
}

/// Renders all PEs of the request into `sink`, going on with what remains after a failure.
async fn render(
    client: &Client,
    request: RenderRequest,
    sink: &mpsc::Sender<Result<RenderedText, FusionError>>,
) -> Result<(), FusionError> {
    let deadline = Instant::now() + client.options().render_deadline;
    let max_text = client.options().max_text;
    let mut lean = request.clone();
    lean.compilation = lean.compilation.map(without_content);
    lean.layout = lean.layout.map(lean_blob);
    // How many PEs have been delivered: a new attempt asks for the others.
    let done = AtomicUsize::new(0);
    let broken = OnceLock::new();
    let call = Call {
        method: "Render",
        figures: client.options().figures.clone(),
        application: application(request.compilation.as_ref()),
        lane: Lane::Others,
        deadline,
        hedge_after: None,
        is_stream: true,
    };
    let result = answer_of(client.replicas(), &call, |mut service, full, _| {
        let mut request = if full { request.clone() } else { lean.clone() };
        let (done, broken) = (&done, &broken);
        async move {
            request.pe_ids.drain(..done.load(Ordering::Relaxed));
            let wanted = request.pe_ids.clone();
            let mut stream = spoken(service.render(traced(request, deadline))).await?.into_inner();
            for pe_id in wanted {
                match next_text(&mut stream, pe_id, max_text).await? {
                    Ok(text) => {
                        // The receiver is gone: nobody wants the rest.
                        if sink.send(Ok(text)).await.is_err() {
                            return Ok(());
                        }
                        done.fetch_add(1, Ordering::Relaxed);
                    }
                    Err(message) => {
                        let _ = broken.set(message);
                        return Ok(());
                    }
                }
            }
            Ok(())
        }
    })
    .await;
    result?;
    broken.into_inner().map_or(Ok(()), |message| Err(FusionError::Internal(message)))
}

/// What a replica says next, unless it is silent for too long. Whoever measures the work hears that it is waited for:
/// before each part the replica may have others to serve first, and it does not say how long it has worked (rule
/// job-18).
async fn spoken<T>(next: impl Future<Output = Result<T, Status>>) -> Result<T, Status> {
    let silent = |_| Status::unavailable(format!("nothing came for {SILENCE:?}"));
    stopwatch::aside(timeout(SILENCE, next)).await.map_err(silent)?
}

/// Reads one text. The inner error is an answer against the contract.
async fn next_text(
    stream: &mut Streaming<RenderResponse>,
    pe_id: u64,
    max_text: usize,
) -> Result<Result<RenderedText, String>, Status> {
    let start = match spoken(stream.message()).await? {
        Some(RenderResponse { part: Some(Part::Start(start)) }) if start.pe_id == pe_id => start,
        Some(_) => return Ok(Err(format!("PE {pe_id} was asked for, something else came"))),
        None => return Err(Status::unavailable(format!("the stream ended before PE {pe_id}"))),
    };
    let size = match usize::try_from(start.size) {
        Ok(size) if size <= max_text => size,
        _ => {
            return Ok(Err(format!(
                "the AADL of PE {pe_id} has {} bytes, at most {max_text} are accepted",
                start.size
            )));
        }
    };
    let mut text = BytesMut::with_capacity(size.min(1 << 20));
    let mut hash = Sha256::new();
    while text.len() < size {
        match spoken(stream.message()).await? {
            Some(RenderResponse { part: Some(Part::Chunk(chunk)) }) if chunk.len() <= size - text.len() => {
                hash.update(&chunk);
                text.extend_from_slice(&chunk);
            }
            Some(_) => return Ok(Err(format!("the AADL of PE {pe_id} is not of the announced size"))),
            None => return Err(Status::unavailable(format!("the stream ended inside the AADL of PE {pe_id}"))),
        }
    }
    let content_id = hex::encode(hash.finalize());
    if content_id != start.content_id {
        return Ok(Err(format!("the AADL of PE {pe_id} is not the one announced")));
    }
    Ok(Ok(RenderedText { pe_id, content_id, text: text.freeze() }))
}
