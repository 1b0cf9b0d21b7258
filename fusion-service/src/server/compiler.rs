//! What the server needs of a compiler.
//!
//! There is one, [`Library`](super::library::Library); tests have another whose every step can be held.
//!
//! Knows: the steps that cost time, what they take and give. Must not know: how calls arrive, what is cached.
//!
//! Invariants: a pure function of its arguments; ends soon after its budget does. Messages that get here have been
//! checked (`request`); a compilation is without the content of its ADL.

use super::errors::Failure;
use super::request::Resize;
use std::io;
use std::sync::Arc;
use streams_compiler::budget::Budget;
use streams_proto::fusion::v1 as pb;

/// Compiles. All methods take long and run on workers, except those that only look things up.
pub(crate) trait Compiler: Send + Sync + 'static {
    /// A parsed ADL.
    type Application: Send + Sync + 'static;
    /// A compiled job: everything that rendering and the next resize need.
    type Job: Send + Sync + 'static;

    /// What plans record as their compiler.
    fn version(&self) -> &'static str;

    /// Reads an ADL.
    fn parse(&self, adl: &[u8], budget: &Budget) -> Result<Self::Application, Failure>;

    /// Compiles a new job. The answer has the whole plan.
    fn submit(
        &self,
        application: &Arc<Self::Application>,
        compilation: &pb::Compilation,
        budget: &Budget,
    ) -> Result<(Self::Job, pb::SubmitResponse), Failure>;

    /// Compiles a running job for other widths. The answer has the whole plan.
    fn resize(
        &self,
        prior: &Self::Job,
        compilation: &pb::Compilation,
        resize: &Resize,
        budget: &Budget,
    ) -> Result<(Self::Job, pb::ResizeResponse), Failure>;

    /// Says why a job is compiled as it is; `prior` is the job before the resize that made it.
    fn explain(
        &self,
        job: &Self::Job,
        prior: Option<&Self::Job>,
        budget: &Budget,
    ) -> Result<pb::ExplainResponse, Failure>;

    /// Makes a job again from what it was compiled from and its layout. The same as the job that the layout was taken
    /// from.
    fn restore(
        &self,
        application: &Arc<Self::Application>,
        compilation: &pb::Compilation,
        layout: &[u8],
        budget: &Budget,
    ) -> Result<Self::Job, Failure>;

    /// What the text of a PE will be, if the job has that PE. Looks it up.
    fn measure(&self, job: &Self::Job, pe: u64) -> Option<Measure>;

    /// Writes the text of a PE. An error of the sink becomes `Cancelled`: nobody reads on.
    fn render(&self, job: &Self::Job, pe: u64, sink: &mut dyn io::Write, budget: &Budget) -> Result<(), Failure>;

    /// Bytes of memory that a parsed ADL of this length takes, roughly.
    fn application_size(&self, application: &Self::Application, adl_bytes: usize) -> u64;

    /// Bytes of memory that a job takes, roughly, without its application.
    fn job_size(&self, job: &Self::Job) -> u64;
}

/// What the text of a PE is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Measure {
    /// SHA-256 in lower-case hexadecimal.
    pub(crate) content_id: String,
    /// Bytes.
    pub(crate) size: u64,
}
