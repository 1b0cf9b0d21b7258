//! The stream of AADL texts, checked and resumed (rule call-16).

use super::client::{Client, application, lean_blob, traced, without_content};
use super::error::FusionError;
use super::replicas::Lane;
use super::tries::{Call, answer_of};
use bytes::{Bytes, BytesMut};
use parking_lot::Mutex;
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
/// A call whose texts are not taken for this part of the time that a rendering has, all together, ends: what it has not
/// delivered is asked for when they are. A replica takes an answer away that is not read for half a minute.
const PATIENCE_PART: u32 = 12;

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
    /// Streams the texts of some PEs, in the order of the request. Beside the one that the receiver has, two are in
    /// memory. Contents of ADL and layout must be in the request. After a broken connection the remaining texts come
    /// from another replica. An error ends the stream. Dropping the stream ends the call.
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

/// Renders all PEs of the request into `sink`, going on with what remains after a failure. While texts are not taken no
/// replica is kept waiting, and time stands still.
async fn render(
    client: &Client,
    request: RenderRequest,
    sink: &mpsc::Sender<Result<RenderedText, FusionError>>,
) -> Result<(), FusionError> {
    let patience = client.options().render_deadline / PATIENCE_PART;
    let mut left = client.options().render_deadline.saturating_sub(patience);
    let mut request = Lean::of(request);
    while !request.full.pe_ids.is_empty() && !left.is_zero() {
        let begun = Instant::now();
        let delivery = Delivery { sink, patience, done: AtomicUsize::new(0), waited: Mutex::default() };
        let untaken = render_within(client, &request, &delivery, begun + left + patience).await?;
        let waited = delivery.waited.into_inner();
        left = left.saturating_sub(begun.elapsed().saturating_sub(waited));
        let Some(text) = untaken else { return Ok(()) };
        if sink.send(Ok(text)).await.is_err() {
            return Ok(());
        }
        request.without_first(delivery.done.into_inner() + 1);
    }
    if request.full.pe_ids.is_empty() {
        Ok(())
    } else {
        Err(FusionError::DeadlineExceeded("texts are missing".to_owned()))
    }
}

/// A request, and the same without contents.
struct Lean {
    full: RenderRequest,
    lean: RenderRequest,
}

impl Lean {
    fn of(full: RenderRequest) -> Self {
        let mut lean = full.clone();
        lean.compilation = lean.compilation.map(without_content);
        lean.layout = lean.layout.map(lean_blob);
        Self { full, lean }
    }

    fn without_first(&mut self, done: usize) {
        for request in [&mut self.full, &mut self.lean] {
            request.pe_ids.drain(..done.min(request.pe_ids.len()));
        }
    }
}

/// Where texts of one call go.
struct Delivery<'a> {
    sink: &'a mpsc::Sender<Result<RenderedText, FusionError>>,
    /// How long they may not be taken, all together.
    patience: Duration,
    /// How many were: a new attempt asks for the others.
    done: AtomicUsize,
    /// For how long they were not taken.
    waited: Mutex<Duration>,
}

/// What became of a text.
enum Taken {
    Yes,
    /// The receiver is gone: nobody wants the rest.
    Unwanted,
    NotSoonEnough(RenderedText),
}

impl Delivery<'_> {
    async fn deliver(&self, text: RenderedText) -> Taken {
        let waited = || self.waited.lock();
        let begun = Instant::now();
        let left = self.patience.saturating_sub(*waited());
        let place = timeout(left, self.sink.reserve()).await;
        *waited() += begun.elapsed();
        match place {
            Ok(Ok(place)) => {
                place.send(Ok(text));
                self.done.fetch_add(1, Ordering::Relaxed);
                Taken::Yes
            }
            Ok(Err(_)) => Taken::Unwanted,
            Err(_) => Taken::NotSoonEnough(text),
        }
    }
}

/// Renders the PEs of the request until one text is not taken soon enough, which is returned.
async fn render_within(
    client: &Client,
    request: &Lean,
    delivery: &Delivery<'_>,
    deadline: Instant,
) -> Result<Option<RenderedText>, FusionError> {
    let max_text = client.options().max_text;
    let broken = OnceLock::new();
    let call = Call {
        method: "Render",
        figures: client.options().figures.clone(),
        application: application(request.full.compilation.as_ref()),
        lane: Lane::Others,
        deadline,
        hedge_after: None,
        is_stream: true,
        max_answer: client.options().max_answer(),
    };
    let result = answer_of(client.replicas(), &call, |mut service, full, _| {
        let mut request = if full { request.full.clone() } else { request.lean.clone() };
        let broken = &broken;
        async move {
            request.pe_ids.drain(..delivery.done.load(Ordering::Relaxed));
            let wanted = request.pe_ids.clone();
            let mut stream = spoken(service.render(traced(request, deadline))).await?.into_inner();
            for pe_id in wanted {
                match next_text(&mut stream, pe_id, max_text).await? {
                    Ok(text) => match delivery.deliver(text).await {
                        Taken::Yes => {}
                        Taken::Unwanted => return Ok(None),
                        Taken::NotSoonEnough(text) => return Ok(Some(text)),
                    },
                    Err(error) => {
                        let _ = broken.set(error);
                        return Ok(None);
                    }
                }
            }
            Ok(None)
        }
    })
    .await;
    let untaken = result?;
    broken.into_inner().map_or(Ok(untaken), Err)
}

/// What a replica says next, unless it is silent for too long. Whoever measures the work hears that it is waited for:
/// before each part the replica may have others to serve first, and it does not say how long it has worked (rule
/// job-18).
async fn spoken<T>(next: impl Future<Output = Result<T, Status>>) -> Result<T, Status> {
    let silent = |_| Status::unavailable(format!("nothing came for {SILENCE:?}"));
    stopwatch::aside(timeout(SILENCE, next)).await.map_err(silent)?
}

/// Reads one text. The inner error is an answer against the contract, or a text that is too long.
async fn next_text(
    stream: &mut Streaming<RenderResponse>,
    pe_id: u64,
    max_text: usize,
) -> Result<Result<RenderedText, FusionError>, Status> {
    let broken = |message| Ok(Err(FusionError::Internal(message)));
    let start = match spoken(stream.message()).await? {
        Some(RenderResponse { part: Some(Part::Start(start)) }) if start.pe_id == pe_id => start,
        Some(_) => return broken(format!("PE {pe_id} was asked for, something else came")),
        None => return Err(Status::unavailable(format!("the stream ended before PE {pe_id}"))),
    };
    let size = match usize::try_from(start.size) {
        Ok(size) if size <= max_text => size,
        _ => {
            let size = start.size;
            let message = format!("the AADL of PE {pe_id} has {size} bytes, more than {max_text}; use more PEs");
            return Ok(Err(FusionError::TooLarge(message)));
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
            Some(_) => return broken(format!("the AADL of PE {pe_id} is not of the announced size")),
            None => return Err(Status::unavailable(format!("the stream ended inside the AADL of PE {pe_id}"))),
        }
    }
    let content_id = hex::encode(hash.finalize());
    if content_id != start.content_id {
        return broken(format!("the AADL of PE {pe_id} is not the one announced"));
    }
    Ok(Ok(RenderedText { pe_id, content_id, text: text.freeze() }))
}
