//! Answers messages without a server, in the caller's thread.
//!
//! The same code answers a message here and in a call ([`methods`](super::methods)). There are no sockets, no workers
//! and no caches, so the message must have all content. Fuzz targets and programs that check the contract use it.
//!
//! Invariants: an answer depends on nothing but the arguments. A function returns soon after its budget ends. The
//! errors are those of the contract.

use super::cache::{CacheSizes, Caches};
use super::compiler::Compiler as _;
use super::errors::Failure;
use super::library::Library;
use super::methods::{Methods, Prepared};
use super::metrics::Metrics;
use super::render::{self, RequestedText};
use std::sync::{Arc, LazyLock};
use streams_compiler::budget::Budget;
use streams_proto::fusion::v1 as pb;
use tonic::Status;

/// The methods with caches of size 0.
static METHODS: LazyLock<Arc<Methods<Library>>> = LazyLock::new(|| {
    let metrics = Arc::new(Metrics::new());
    let caches = Arc::new(Caches::new(CacheSizes::divide(0), None, Arc::clone(&metrics)));
    Arc::new(Methods::new(Library, caches, metrics))
});

/// A text with the message that announced it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RenderedText {
    /// The first message of the text.
    pub start: pb::render_response::Start,
    /// The text. As in a call, bytes that came before an error are worth nothing.
    pub text: Vec<u8>,
}

/// Answers as `FusionService.Submit` does.
// tonic's status is large. It is returned once per call.
#[allow(clippy::result_large_err, reason = "as in tonic")]
pub fn submit(message: pb::SubmitRequest, budget: &Budget) -> Result<pb::SubmitResponse, Status> {
    answer(METHODS.submit(message), budget)
}

/// Answers as `FusionService.Resize` does.
#[allow(clippy::result_large_err, reason = "as in tonic")]
pub fn resize(message: pb::ResizeRequest, budget: &Budget) -> Result<pb::ResizeResponse, Status> {
    answer(METHODS.resize(message), budget)
}

/// Answers as `FusionService.Render` does, with each text in one piece.
#[allow(clippy::result_large_err, reason = "as in tonic")]
pub fn render(message: pb::RenderRequest, budget: &Budget) -> Result<Vec<RenderedText>, Status> {
    let texts = || {
        let rendering = METHODS.render(message)?;
        let job = METHODS.job(&rendering.prior, &rendering.compilation, budget)?;
        let text = |RequestedText { pe, measure }| {
            let mut text = Vec::new();
            Library.render(&job, pe, &mut text, budget)?;
            let content_id = measure.content_id.to_string();
            let start = pb::render_response::Start { pe_id: pe, content_id, size: measure.size };
            Ok(RenderedText { start, text })
        };
        let requested = render::requested_texts(&Library, &job, &rendering.pe_ids, 0);
        let requested = requested.collect::<Result<Vec<_>, Failure>>()?;
        requested.into_iter().map(text).collect::<Result<_, _>>()
    };
    texts().map_err(|failure: Failure| failure.status())
}

/// Answers as `FusionService.Plan` does.
#[allow(clippy::result_large_err, reason = "as in tonic")]
pub fn plan(message: pb::PlanRequest, budget: &Budget) -> Result<pb::PlanResponse, Status> {
    answer(METHODS.plan(message), budget)
}

/// Answers as `FusionService.Explain` does.
#[allow(clippy::result_large_err, reason = "as in tonic")]
pub fn explain(message: pb::ExplainRequest, budget: &Budget) -> Result<pb::ExplainResponse, Status> {
    answer(METHODS.explain(message), budget)
}

#[allow(clippy::result_large_err, reason = "as in tonic")]
fn answer<P: Prepared<Library>>(prepared: Result<P, Failure>, budget: &Budget) -> Result<P::Answer, Status> {
    prepared.and_then(|prepared| prepared.compute(&METHODS, budget)).map_err(|failure| failure.status())
}
