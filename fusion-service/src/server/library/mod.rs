//! Connects the server to the crate `streams_compiler`: turns messages into its requests, and its plans into messages.
//!
//! * `request` reads messages that have been checked;
//! * `plan` writes plans, `explain` writes accounts.
//!
//! Knows: the messages and the types of the compiler. Must not know: calls, caches, any rule of compilation.
//!
//! Invariants: this module only translates. The same plan always gives the same message.

mod explain;
mod plan;
mod request;

use super::compiler::{Compiler, Measure};
use super::digest::Digest;
use super::errors::Failure;
use super::request::Resize;
use std::io;
use std::sync::Arc;
use streams_compiler::aadl::WriteError;
use streams_compiler::budget::Budget;
use streams_compiler::error::Error;
use streams_compiler::plan::{COMPILER, Compiled, RenderError, RestoreError, Source};
use streams_proto::fusion::v1 as pb;

/// Bytes of memory per byte of ADL.
const APPLICATION_PER_BYTE: u64 = 4;

/// The compiler of this crate.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Library;

impl Compiler for Library {
    type Application = Source;
    type Job = Compiled;

    fn version(&self) -> &'static str {
        COMPILER
    }

    fn parse(&self, adl: &[u8], budget: &Budget) -> Result<Source, Failure> {
        Ok(Source::parse(adl, budget)?)
    }

    fn submit(
        &self,
        application: &Arc<Source>,
        compilation: &pb::Compilation,
        budget: &Budget,
    ) -> Result<(Compiled, pb::SubmitResponse), Failure> {
        let request = Arc::new(request::request(compilation)?);
        let job = streams_compiler::plan::submit(application, &request, budget)?;
        let answer = plan::submitted(&job, budget)?;
        Ok((job, answer))
    }

    fn resize(
        &self,
        prior: &Compiled,
        _compilation: &pb::Compilation,
        resize: &Resize,
        budget: &Budget,
    ) -> Result<(Compiled, pb::ResizeResponse), Failure> {
        let (widths, policy, state) = request::resize(resize);
        let job = streams_compiler::plan::resize(prior, &widths, policy, &state, budget)?;
        let answer = plan::resized(&job, budget)?;
        Ok((job, answer))
    }

    fn explain(
        &self,
        job: &Compiled,
        prior: Option<&Compiled>,
        budget: &Budget,
    ) -> Result<pb::ExplainResponse, Failure> {
        let account = streams_compiler::explain::explain(job, prior, budget)?;
        Ok(explain::explained(job, account))
    }

    fn restore(
        &self,
        application: &Arc<Source>,
        compilation: &pb::Compilation,
        layout: &[u8],
        budget: &Budget,
    ) -> Result<Compiled, Failure> {
        let request = Arc::new(request::request(compilation)?);
        streams_compiler::plan::restore(application, &request, layout, budget).map_err(|error| match error {
            RestoreError::Layout(error) => Failure::LayoutRejected(error.to_string()),
            RestoreError::Compilation(error) => error.into(),
        })
    }

    fn measure(&self, job: &Compiled, pe: u64) -> Option<Measure> {
        let element = job.plan().element(pe)?;
        Some(Measure { content_id: Digest::from(element.content_id), size: element.bytes })
    }

    fn render(&self, job: &Compiled, pe: u64, sink: &mut dyn io::Write, budget: &Budget) -> Result<(), Failure> {
        job.render(pe, sink, budget).map_err(|error| match error {
            RenderError::Write(WriteError::Refused(error)) => error.into(),
            RenderError::Write(WriteError::Sink(_)) => Error::Cancelled.into(),
            RenderError::OtherText(_) | RenderError::UnknownElement(_) => Failure::LayoutRejected(error.to_string()),
        })
    }

    fn application_size(&self, _: &Source, adl_bytes: usize) -> u64 {
        adl_bytes as u64 * APPLICATION_PER_BYTE
    }

    fn job_size(&self, job: &Compiled) -> u64 {
        // A job holds its application, which other jobs may hold as well, or none.
        job.weight() + job.source().bytes as u64 * APPLICATION_PER_BYTE
    }
}
