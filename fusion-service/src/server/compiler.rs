//! The interface between the server and a compiler.
//!
//! [`Library`](super::library::Library) implements it. Tests have another implementation that stops at every step until
//! they let it go on.
//!
//! Knows: the steps that cost time, what they take and give. Must not know: how calls arrive, what is cached.
//!
//! Invariants: results depend on nothing but the arguments. A method returns soon after its budget ends. `request` has
//! checked the messages; the message of a compilation does not have the content of its ADL.

use super::digest::Digest;
use super::errors::Failure;
use super::request::Resize;
use std::io;
use std::sync::Arc;
use streams_compiler::budget::Budget;
use streams_proto::fusion::v1 as pb;

/// A compiler. Its methods take long and run on workers, except those that only look something up.
pub(crate) trait Compiler: Send + Sync + 'static {
    /// A parsed ADL.
    type Application: Send + Sync + 'static;
    /// A compiled job: everything that rendering and the next resize need.
    type Job: Send + Sync + 'static;

    /// The version of the compiler that plans record.
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

    /// Explains why a job is compiled as it is. `prior` is the job before the resize, if a resize made the job.
    fn explain(
        &self,
        job: &Self::Job,
        prior: Option<&Self::Job>,
        budget: &Budget,
    ) -> Result<pb::ExplainResponse, Failure>;

    /// Restores a job from its application, its compilation and its layout. The result equals the job that the layout
    /// was made from.
    fn restore(
        &self,
        application: &Arc<Self::Application>,
        compilation: &pb::Compilation,
        layout: &[u8],
        budget: &Budget,
    ) -> Result<Self::Job, Failure>;

    /// Looks up the id and size of the text of a PE, if the job has that PE.
    fn measure(&self, job: &Self::Job, pe: u64) -> Option<Measure>;

    /// Writes the text of a PE. An error of the sink becomes `Cancelled`, because the caller has stopped reading.
    fn render(&self, job: &Self::Job, pe: u64, sink: &mut dyn io::Write, budget: &Budget) -> Result<(), Failure>;

    /// Bytes of memory that a parsed ADL of this length takes, roughly.
    fn application_size(&self, application: &Self::Application, adl_bytes: usize) -> u64;

    /// Bytes of memory that a job takes, roughly, without its application.
    fn job_size(&self, job: &Self::Job) -> u64;
}

/// The id and size of the text of a PE.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Measure {
    /// Digest of the text.
    pub(crate) content_id: Digest,
    /// Bytes.
    pub(crate) size: u64,
}
