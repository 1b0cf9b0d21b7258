//! XML out: one document per PE (rule aadl-1), in canonical form (rule aadl-2).
//!
//! The input is [`Elements`]: the topology with its PEs, thread flags and PE port ids. [`Writer`] holds what the
//! documents of a job have in common. [`Writer::measure`] gives ids and size of a document without keeping the text.
//! [`Writer::render`] passes the text on in pieces. Neither holds a whole document in memory.
//!
//! * `vocabulary` is every element and attribute, and what a running PE can observe of them; `element` has the types of
//!   its entries;
//! * `document` writes a PE, `operator` an operator in it, `tuple_type` a tuple type;
//! * `fragments` are parts of the text that documents have in common: those of the job, of operators
//!   (`operator_fragments`), and of their channels (`channels`);
//! * `measuring` makes ids of many documents on several threads;
//! * `hashing_writer` makes both ids while it passes text on; `value` is what it can write; `size` bounds it;
//! * `escape` is text inside XML;
//! * `difference` finds where two documents differ, and whether a running PE can observe it.
//!
//! Canonical: the same PEs ([`Elements`]) give the same bytes, on every machine and for ever within a version of the
//! compiler. Prefixes and the order of attributes are fixed, sets are sorted, there is no white space between elements,
//! text is escaped and never deleted.
//!
//! Knows: the topology, PEs, ports, threads. Must not know: how operators were grouped, what happens to the text.

mod channels;
mod difference;
mod document;
mod element;
mod escape;
mod fragments;
mod hashing_writer;
mod measuring;
mod operator;
mod operator_fragments;
mod size;
mod tuple_type;
mod value;
mod vocabulary;

pub use difference::{Difference, DifferenceKind, Key, PathElement, differences};
pub use document::WriteError;
pub(crate) use measuring::Measuring;

use crate::budget::Budget;
use crate::elements::Elements;
use crate::error::{Error, Problem, Problems, Stage};
use crate::fuser::Pe;
use crate::logical::{Application, Operator, OperatorId};
use crate::topology::Generations;
use cranelift_entity::EntitySet;
use fragments::Fragments;
use get_size2::GetSize;
use hashing_writer::HashingWriter;
use size::too_much_text;
use std::io;

/// Ids and size of one document.
#[derive(Clone, Copy, Debug, PartialEq, Eq, GetSize)]
pub struct Measure {
    /// SHA-256 of the text: names the document (rule aadl-4).
    pub content_id: [u8; 32],
    /// SHA-256 of what a running PE can observe of the document (rule aadl-5). If it stays the same, the PE need not
    /// restart.
    pub runtime_id: [u8; 32],
    /// Bytes of text.
    pub bytes: u64,
}

/// Writes the documents of one job.
#[derive(Debug, GetSize)]
pub struct Writer {
    fragments: Fragments,
}

impl Writer {
    /// Makes the fragments that documents share. It takes over those that are the same as in the generation `before`,
    /// which must be one of the same job.
    ///
    /// # Errors
    ///
    /// Stage `aadl`: XML cannot hold a text. Stage `topology`: the documents would certainly be larger than the budget
    /// allows.
    pub(crate) fn new(
        e: &Elements,
        job_name: &str,
        job_id: u64,
        before: Option<(&Self, &Generations<'_>)>,
        budget: &Budget,
    ) -> Result<Self, Error> {
        let before = before.map(|(before, generations)| (&before.fragments, generations));
        let fragments = Fragments::new(e.topology(), job_name, job_id, before, budget)?;
        let least = fragments.bytes_per_document().saturating_mul(e.pes().len() as u64)
            + e.topology().connections.len() as u64 * BYTES_PER_CONNECTION
            + e.topology().operators.len() as u64 * BYTES_PER_OPERATOR;
        if least > budget.limits.aadl_bytes {
            return Err(too_much_text().into());
        }
        Ok(Self { fragments })
    }

    /// Ids and sizes of all documents, in order of [`Elements::pes`]. Documents that are `known`, by position in this
    /// order, are not measured again.
    ///
    /// # Errors
    ///
    /// Stage `aadl`: documents cannot be written; the error holds the problems of several of them. Stage `topology`:
    /// all documents together are larger than the budget allows (rule aadl-21).
    pub fn measure_all(
        &self,
        e: &Elements,
        known: impl Fn(usize) -> Option<Measure>,
        budget: &Budget,
    ) -> Result<Vec<Measure>, Error> {
        let (mut problems, mut refused) = (Problems::default(), 0);
        let mut left = budget.limits.aadl_bytes;
        let mut measures = Vec::with_capacity(e.pes().len());
        let mut writer = HashingWriter::<true>::new(None);
        let mut pace = budget.pace();
        for (position, &pe) in e.pes().iter().enumerate() {
            pace.steps(16)?;
            let measure = match known(position) {
                Some(measure) => measure,
                None => match self.measure_with(&mut writer, e, pe, left, budget) {
                    // Other documents may have problems of their own, unless the problem is that there is too much
                    // text.
                    Err(Error::Rejected(own))
                        if refused < MOST_REFUSED && own.iter().all(|p| p.stage == Stage::Aadl) =>
                    {
                        problems.extend(own);
                        refused += 1;
                        writer = HashingWriter::<true>::new(None);
                        continue;
                    }
                    measured => match problems.keep(measured)? {
                        Some(measure) => measure,
                        None => break,
                    },
                },
            };
            left = left.checked_sub(measure.bytes).ok_or_else(too_much_text)?;
            measures.push(measure);
        }
        problems.into_result().map(|()| measures)
    }

    /// Ids and size of one document; `most` bounds its size in bytes.
    ///
    /// # Errors
    ///
    /// Stage `aadl`: the document cannot be written. Stage `topology`: it is larger than `most`.
    pub fn measure(&self, e: &Elements, pe: Pe, most: u64, budget: &Budget) -> Result<Measure, Error> {
        self.measure_with(&mut HashingWriter::<true>::new(None), e, pe, most, budget)
    }

    fn measure_with(
        &self,
        writer: &mut HashingWriter<'_, true>,
        e: &Elements,
        pe: Pe,
        most: u64,
        budget: &Budget,
    ) -> Result<Measure, Error> {
        match self.write_with(writer, e, pe, most, budget) {
            Ok(measure) => Ok(measure),
            Err(WriteError::Refused(error)) => Err(error),
            // There is no sink that could fail.
            Err(WriteError::Sink(error)) => Err(Problem::new(Stage::Aadl, error.to_string()).into()),
        }
    }

    /// Passes the text of one document to `sink`, in pieces of some ten kilobytes, and gives its content id and size.
    pub fn render(
        &self,
        e: &Elements,
        pe: Pe,
        sink: &mut dyn io::Write,
        budget: &Budget,
    ) -> Result<([u8; 32], u64), WriteError> {
        let mut writer = HashingWriter::<false>::new(Some(sink));
        let measure = self.write_with(&mut writer, e, pe, budget.limits.aadl_bytes, budget)?;
        Ok((measure.content_id, measure.bytes))
    }

    fn write_with<const O: bool>(
        &self,
        writer: &mut HashingWriter<'_, O>,
        e: &Elements,
        pe: Pe,
        most: u64,
        budget: &Budget,
    ) -> Result<Measure, WriteError> {
        budget.check()?;
        document::write(writer, e, &self.fragments, pe, most, budget)?;
        let finished = writer.finish()?;
        if let Some(illegal) = finished.illegal {
            return Err(escape::unwritable(&format!("PE {}", e.id(pe)), illegal).into());
        }
        Ok(Measure { content_id: finished.content, runtime_id: finished.runtime, bytes: finished.bytes })
    }
}

/// Number of PEs whose documents cannot be written after which no further PE is tried (rule aadl-21).
const MOST_REFUSED: usize = 20;

/// Operators of which the documents name operators that they are not connected to: for event time (rule aadl-13). The
/// annotations of all copies have the tags of those as written, which are looked through once.
pub(crate) fn referring_to_distant_operators(application: &Application) -> EntitySet<OperatorId> {
    let mut referring = EntitySet::new();
    let written = application.operators.iter().filter(|(_, operator)| names_distant_operators(operator));
    referring.extend(written.map(|(id, _)| id));
    referring
}

/// Whether an annotation of this operator as written names operators that are anywhere in the job.
fn names_distant_operators(operator: &Operator) -> bool {
    operator.annotations.iter().any(|annotation| annotation.tag == vocabulary::EVENT_TIME)
}

/// A connection is named at both of its ends, with at least this markup.
const BYTES_PER_CONNECTION: u64 = (b"<intraPeConnection operInstanceIndex=\"0\" oportIndex=\"0\"/>".len()
    + b"<intraPeConnection operInstanceIndex=\"0\" iportIndex=\"0\"/>".len()) as u64;

/// The least that an operator needs.
const BYTES_PER_OPERATOR: u64 = 400;
