//! Renders the texts of PEs and sends them to a caller (rule service-10).
//!
//! ```text
//! worker --bytes--> TextSender --messages--> channel --> response stream
//! ```
//!
//! A worker looks up the PEs of a batch, renders their texts into a [`TextSender`], and is free again before the caller
//! has read them. While more than [`BUFFERED`] bytes of one batch are unread, rendering waits for the caller, without a
//! worker. The first one looks up all PEs before, so that a request with an unknown one has no text.
//!
//! Knows: PEs, bytes of text, messages. Must not know: how a text is made.
//!
//! Invariants: a stream has at most [`BUFFERED`] bytes and a full channel in memory; a text is as long as announced, or
//! the stream ends with an error.

use super::admission::{Admission, Break};
use super::budget::CallBudget;
use super::cache::KeptJob;
use super::class::CallClass;
use super::compiler::{Compiler, Measure};
use super::errors::Failure;
use super::metrics::Metrics;
use bytes::{Bytes, BytesMut};
use std::collections::VecDeque;
use std::io::{self, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};
use streams_compiler::budget::Budget;
use streams_compiler::error::Error;
use streams_proto::fusion::v1 as pb;
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::{SendError, TrySendError};

/// Most bytes of text in one message.
const CHUNK: usize = 256 << 10;
/// Bytes of text that are rendered at a time, unless one text is larger: short enough for a resize to wait for.
const BATCH: u64 = 1 << 20;
/// Most bytes of text that wait outside the channel.
const BUFFERED: usize = 4 << 20;
/// Messages in the channel.
pub(crate) const UNREAD: usize = 8;
/// Most bytes of text that a stream has in memory: beside what waits, the channel, and a chunk that is being written.
pub(crate) const MOST_UNREAD: u64 = (BUFFERED + (UNREAD + 2) * CHUNK) as u64;

/// A PE to be rendered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RequestedText {
    pub(crate) pe: u64,
    pub(crate) measure: Measure,
}

/// The texts of these PEs of `job`, in the order of the request, without those before the position `from`. There is an
/// error for each PE that the job does not have.
pub(crate) fn requested_texts<C: Compiler>(
    compiler: &C,
    job: &C::Job,
    pes: &[u64],
    from: usize,
) -> impl Iterator<Item = Result<RequestedText, Failure>> {
    pes.iter().enumerate().skip(from).map(move |(position, &pe)| {
        let unknown = || Failure::malformed(format!("pe_ids[{position}]"), format!("the plan has no PE {pe}"));
        compiler.measure(job, pe).map(|measure| RequestedText { pe, measure }).ok_or_else(unknown)
    })
}

/// Renders and sends all of them. Returns early if the budget ends, or if the caller has stopped reading.
pub(crate) async fn write<C: Compiler>(
    compiler: &Arc<C>,
    job: KeptJob<C>,
    pe_ids: Vec<u64>,
    messages: mpsc::Sender<pb::RenderResponse>,
    admission: &Admission,
    metrics: &Arc<Metrics>,
    budget: &CallBudget,
) -> Result<(), Failure> {
    // Each batch waits behind what was there before it, so that a long stream does not keep a short one waiting.
    let budget = &CallBudget { place: None, ..budget.clone() };
    let pe_ids: Arc<[u64]> = pe_ids.into();
    let mut next = 0;
    while next < pe_ids.len() {
        let (compiler, job, metrics) = (Arc::clone(compiler), Arc::clone(&job), Arc::clone(metrics));
        let (ids, messages_of_batch) = (Arc::clone(&pe_ids), messages.clone());
        let render = move |budget: &Budget, breaks: &Break| {
            let began = Instant::now();
            // A request may have so many PEs that it takes long to look them up.
            if next == 0 {
                requested_texts(&*compiler, &job, &ids, 0).try_for_each(|requested| requested.map(drop))?;
            }
            let batch = batch(requested_texts(&*compiler, &job, &ids, next))?;
            let mut waited = Duration::ZERO;
            let mut sender = TextSender::new(|unread| {
                let from = Instant::now();
                let sent = send_all(&messages_of_batch, unread, breaks);
                waited += from.elapsed();
                sent
            });
            for requested in &batch {
                sender.begin(requested)?;
                let rendered = compiler.render(&job, requested.pe, &mut sender, budget);
                sender.end(rendered)?;
                metrics.rendered(requested.measure.size);
            }
            let buffered = sender.buffered;
            metrics.stage("render", began.elapsed().saturating_sub(waited));
            Ok((buffered, batch.len()))
        };
        let (buffered, rendered) = admission.run_with_breaks(CallClass::Render, budget, render).await?;
        for message in buffered {
            tokio::select! {
                biased;
                error = budget.ended() => return Err(error.into()),
                sent = messages.send(message) => sent.map_err(|_| Error::Cancelled)?,
            }
        }
        next += rendered;
    }
    Ok(())
}

/// Sends what is unread. Waits for the caller, without a worker, if there is no room for all of it.
fn send_all(
    messages: &mpsc::Sender<pb::RenderResponse>,
    unread: &mut VecDeque<pb::RenderResponse>,
    breaks: &Break,
) -> Result<(), Error> {
    while let Some(message) = unread.pop_front() {
        match messages.try_send(message) {
            Ok(()) => {}
            Err(TrySendError::Closed(_)) => return Err(Error::Cancelled),
            Err(TrySendError::Full(message)) => {
                unread.push_front(message);
                break;
            }
        }
    }
    if unread.is_empty() {
        return Ok(());
    }
    let sent = breaks.wait(async {
        for message in unread.drain(..) {
            messages.send(message).await?;
        }
        Ok::<_, SendError<_>>(())
    });
    sent?.map_err(|_| Error::Cancelled)
}

/// The first of these texts: as many as have about [`BATCH`] bytes, and one at least.
fn batch(requested: impl Iterator<Item = Result<RequestedText, Failure>>) -> Result<Vec<RequestedText>, Failure> {
    let mut batch = Vec::new();
    let mut bytes = 0_u64;
    for requested in requested {
        let requested = requested?;
        bytes = bytes.saturating_add(requested.measure.size);
        if !batch.is_empty() && bytes > BATCH {
            break;
        }
        batch.push(requested);
    }
    Ok(batch)
}

/// The failure for a text that differs from the one that the layout names: the layout belongs to another compilation.
fn other_text() -> Failure {
    Failure::LayoutRejected("a text is not the one that the layout names".to_owned())
}

/// Cuts text into messages. It keeps them until the worker is done, or until they have more than [`BUFFERED`] bytes:
/// then `send` takes them all.
struct TextSender<S> {
    send: S,
    buffered: VecDeque<pb::RenderResponse>,
    buffered_bytes: usize,
    chunk: BytesMut,
    /// Bytes of the current text that are still to come.
    missing: u64,
    /// The current text is longer than announced.
    overrun: bool,
}

impl<S: FnMut(&mut VecDeque<pb::RenderResponse>) -> Result<(), Error>> TextSender<S> {
    fn new(send: S) -> Self {
        let (buffered, chunk) = (VecDeque::new(), BytesMut::new());
        Self { send, buffered, buffered_bytes: 0, chunk, missing: 0, overrun: false }
    }

    fn begin(&mut self, requested: &RequestedText) -> Result<(), Error> {
        let Measure { content_id, size } = requested.measure.clone();
        let content_id = content_id.to_string();
        self.missing = size;
        self.chunk.reserve(CHUNK.min(usize::try_from(size).unwrap_or(CHUNK)));
        self.push(pb::render_response::Part::Start(pb::render_response::Start {
            pe_id: requested.pe,
            content_id,
            size,
        }))
    }

    fn end(&mut self, rendered: Result<(), Failure>) -> Result<(), Failure> {
        if self.overrun {
            return Err(other_text());
        }
        rendered?;
        if self.missing > 0 {
            return Err(other_text());
        }
        let rest = self.chunk.split().freeze();
        if rest.is_empty() { Ok(()) } else { Ok(self.push_chunk(rest)?) }
    }

    fn push_chunk(&mut self, chunk: Bytes) -> Result<(), Error> {
        self.push(pb::render_response::Part::Chunk(chunk))
    }

    fn push(&mut self, part: pb::render_response::Part) -> Result<(), Error> {
        if let pb::render_response::Part::Chunk(chunk) = &part {
            self.buffered_bytes += chunk.len();
        }
        self.buffered.push_back(pb::RenderResponse { part: Some(part) });
        if self.buffered_bytes <= BUFFERED {
            return Ok(());
        }
        self.buffered_bytes = 0;
        (self.send)(&mut self.buffered)
    }
}

impl<S: FnMut(&mut VecDeque<pb::RenderResponse>) -> Result<(), Error>> Write for TextSender<S> {
    fn write(&mut self, piece: &[u8]) -> io::Result<usize> {
        let room = CHUNK - self.chunk.len();
        let taken = &piece[..piece.len().min(room)];
        self.missing = self.missing.checked_sub(taken.len() as u64).ok_or_else(|| {
            self.overrun = true;
            io::Error::other("longer than announced")
        })?;
        self.chunk.extend_from_slice(taken);
        if self.chunk.len() == CHUNK {
            let chunk = self.chunk.split().freeze();
            self.push_chunk(chunk).map_err(io::Error::other)?;
        }
        Ok(taken.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::digest::Digest;

    fn requested(pe: u64, size: u64) -> RequestedText {
        RequestedText { pe, measure: Measure { content_id: Digest::of(b""), size } }
    }

    #[test]
    fn batches_are_about_as_large_as_allowed_and_in_order() {
        let cases: [(&[u64], &[&[u64]]); 4] = [
            (&[], &[]),
            (&[BATCH, 1, 1], &[&[0], &[1, 2]]),
            (&[1, BATCH - 1, 1], &[&[0, 1], &[2]]),
            (&[5 * BATCH, 0, BATCH, 0], &[&[0], &[1, 2, 3]]),
        ];
        for (sizes, expected) in cases {
            let texts = |from: usize| (from..sizes.len()).map(|pe| Ok(requested(pe as u64, sizes[pe])));
            let mut found: Vec<Vec<u64>> = Vec::new();
            let mut next = 0;
            while next < sizes.len() {
                let batch = batch(texts(next)).unwrap();
                next += batch.len();
                found.push(batch.iter().map(|text| text.pe).collect());
            }
            assert_eq!(found, expected, "{sizes:?}");
        }
    }

    #[test]
    fn texts_are_cut_into_messages() {
        let mut sender = TextSender::new(|_| panic!("nothing has to be sent yet"));
        let text: Vec<u8> = (0..2 * CHUNK + 3).map(|i| i as u8).collect();
        sender.begin(&requested(7, text.len() as u64)).unwrap();
        for piece in text.chunks(1000) {
            sender.write_all(piece).unwrap();
        }
        sender.end(Ok(())).unwrap();
        let mut sizes = Vec::new();
        let mut all = Vec::new();
        for message in sender.buffered {
            match message.part.unwrap() {
                pb::render_response::Part::Start(start) => {
                    assert_eq!((start.pe_id, start.size), (7, text.len() as u64))
                }
                pb::render_response::Part::Chunk(chunk) => {
                    sizes.push(chunk.len());
                    all.extend_from_slice(&chunk);
                }
            }
        }
        assert_eq!(sizes, [CHUNK, CHUNK, 3]);
        assert_eq!(all, text);
    }

    #[test]
    fn a_text_of_another_size_than_announced_is_of_another_job() {
        let mut sender = TextSender::new(|_| panic!("nothing has to be sent yet"));
        sender.begin(&requested(0, 3)).unwrap();
        sender.write_all(b"12").unwrap();
        assert!(matches!(sender.end(Ok(())), Err(Failure::LayoutRejected(_))));
        sender.begin(&requested(0, 3)).unwrap();
        assert!(sender.write_all(b"1234").is_err());
        assert!(matches!(sender.end(Err(Error::Cancelled.into())), Err(Failure::LayoutRejected(_))));
    }
}
