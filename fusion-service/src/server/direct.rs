//! The methods without a server: messages in, messages out, in the caller's thread.
//!
//! What a message has to go through is the same as in a call (`request`, the digests of content, the compiler,
//! `errors`); there are no sockets, workers, caches or metrics, so all content must be in the message. For fuzzing, and
//! for programs that check the contract.
//!
//! Invariants: an answer depends on nothing but the arguments; it ends soon after its budget does.

use super::{
    compiler::Compiler as _,
    errors::Failure,
    library::Library,
    render,
    request::{self, Compilation, Input, Question},
    service,
};
use std::sync::Arc;
use streams_compiler::budget::Budget;
use streams_compiler::plan::{Compiled, Source};
use streams_proto::fusion::v1 as pb;
use tonic::Status;

/// A text, with what was announced of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Text {
    /// The first message of the text.
    pub start: pb::render_response::Start,
    /// The text. As in a call, bytes that came before an error are worth nothing.
    pub text: Vec<u8>,
}

/// Answers as `FusionService.Submit` does. The errors are those of the contract.
// A status is as large as tonic makes it; it is returned once.
#[allow(clippy::result_large_err, reason = "as in tonic")]
pub fn submit(message: pb::SubmitRequest, budget: &Budget) -> Result<pb::SubmitResponse, Status> {
    let answer = || {
        let compilation = request::submit(message)?;
        let application = application(&compilation.adl, budget)?;
        Ok(Library.submit(&application, &compilation.message, budget)?.1)
    };
    answer().map_err(|failure: Failure| failure.status())
}

/// Answers as `FusionService.Resize` does. The errors are those of the contract.
#[allow(clippy::result_large_err, reason = "as in tonic")]
pub fn resize(message: pb::ResizeRequest, budget: &Budget) -> Result<pb::ResizeResponse, Status> {
    let answer = || {
        let (compilation, layout, change) = request::resize(message)?;
        let prior = job(&compilation, &layout, budget)?;
        Ok(Library.resize(&prior, &compilation.message, &change, budget)?.1)
    };
    answer().map_err(|failure: Failure| failure.status())
}

/// Answers as `FusionService.Render` does, with each text in one piece. The errors are those of the contract.
#[allow(clippy::result_large_err, reason = "as in tonic")]
pub fn render(message: pb::RenderRequest, budget: &Budget) -> Result<Vec<Text>, Status> {
    let answer = || {
        let (compilation, layout, pes) = request::render(message, Library.version())?;
        let job = job(&compilation, &layout, budget)?;
        let wanted = render::wanted(&Library, &job, &pes)?;
        wanted
            .into_iter()
            .map(|render::Wanted { pe, measure }| {
                let mut text = Vec::new();
                Library.render(&job, pe, &mut text, budget)?;
                let start =
                    pb::render_response::Start { pe_id: pe, content_id: measure.content_id, size: measure.size };
                Ok(Text { start, text })
            })
            .collect::<Result<_, Failure>>()
    };
    answer().map_err(|failure| failure.status())
}

/// Answers as `FusionService.Plan` does. The errors are those of the contract.
#[allow(clippy::result_large_err, reason = "as in tonic")]
pub fn plan(message: pb::PlanRequest, budget: &Budget) -> Result<pb::PlanResponse, Status> {
    let answer = || {
        let (question, include_plan) = request::plan(message)?;
        Ok(service::planned(carry_out(&question, budget)?.answer, include_plan))
    };
    answer().map_err(|failure: Failure| failure.status())
}

/// Answers as `FusionService.Explain` does. The errors are those of the contract.
#[allow(clippy::result_large_err, reason = "as in tonic")]
pub fn explain(message: pb::ExplainRequest, budget: &Budget) -> Result<pb::ExplainResponse, Status> {
    let answer = || {
        let Tried { job, prior, .. } = carry_out(&request::explain(message)?, budget)?;
        Library.explain(&job, prior.as_ref(), budget)
    };
    answer().map_err(|failure: Failure| failure.status())
}

/// What came of a dry run. A submission is told as a resize, in which everything is new.
struct Tried {
    job: Compiled,
    prior: Option<Compiled>,
    answer: pb::ResizeResponse,
}

fn carry_out(question: &Question, budget: &Budget) -> Result<Tried, Failure> {
    let submit = |compilation: &Compilation| {
        let application = application(&compilation.adl, budget)?;
        Library.submit(&application, &compilation.message, budget)
    };
    let (compilation, prior, change) = match question {
        Question::Submit(compilation) => {
            let (job, pb::SubmitResponse { plan, warnings }) = submit(compilation)?;
            let answer = pb::ResizeResponse { plan, warnings, ..Default::default() };
            return Ok(Tried { job, prior: None, answer });
        }
        Question::Resize(compilation, None, change) => (compilation, submit(compilation)?.0, change),
        Question::Resize(compilation, Some(layout), change) => (compilation, job(compilation, layout, budget)?, change),
    };
    let (job, answer) = Library.resize(&prior, &compilation.message, change, budget)?;
    Ok(Tried { job, prior: Some(prior), answer })
}

fn application(adl: &Input, budget: &Budget) -> Result<Arc<Source>, Failure> {
    let Some(content) = &adl.content else { return Err(Failure::InputMissing(vec![adl.digest])) };
    adl.verify("compilation.adl")?;
    Ok(Arc::new(Library.parse(content, budget)?))
}

fn job(compilation: &Compilation, layout: &Input, budget: &Budget) -> Result<Compiled, Failure> {
    let application = application(&compilation.adl, budget)?;
    let Some(content) = &layout.content else { return Err(Failure::InputMissing(vec![layout.digest])) };
    layout.verify("layout")?;
    Library.restore(&application, &compilation.message, content, budget)
}
