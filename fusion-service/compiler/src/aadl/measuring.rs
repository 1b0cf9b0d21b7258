//! Measures the documents of a job with the help of cores that are idle (rule aadl-23).
//!
//! The documents are cut into chunks, which helpers take one after the other. A document does not depend on who
//! measures it, and measures are put together in order, so the result is that of one thread. Everything that is not a
//! plain success is left to [`Writer::measure_all`]: it goes through all documents in order and says what is wrong, so
//! that no problem depends on which helper met it.
//!
//! Knows: chunks of documents. Must not know: how many helpers there are, threads.

use super::hashing_writer::HashingWriter;
use super::{Measure, Writer};
use crate::budget::Budget;
use crate::elements::Elements;
use crate::error::Error;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

/// Operators whose documents are worth a helper: below, starting it takes longer than what it does.
const WORTHWHILE: usize = 256;
/// Most documents of a chunk.
const CHUNK: usize = 128;

/// Documents that are being measured.
pub(crate) struct Measuring<'a, K> {
    writer: &'a Writer,
    elements: &'a Elements,
    known: K,
    budget: &'a Budget,
    chunk: usize,
    next: AtomicUsize,
    bytes: AtomicU64,
    failed: AtomicBool,
    /// By chunk.
    measures: Mutex<Vec<Option<Vec<Measure>>>>,
}

impl<'a, K: Fn(usize) -> Option<Measure> + Sync> Measuring<'a, K> {
    /// Prepares to measure all documents but those that are `known`. It is `None` if that is too little to be shared,
    /// or there are no helpers.
    pub(crate) fn new(writer: &'a Writer, elements: &'a Elements, known: K, budget: &'a Budget) -> Option<Self> {
        budget.cores.as_ref()?;
        let unknown = elements.pes().iter().enumerate().filter(|(position, _)| known(*position).is_none());
        let (documents, operators) = unknown
            .fold((0, 0), |(documents, operators), (_, &pe)| (documents + 1, operators + elements.members(pe).len()));
        if documents < 2 || operators < WORTHWHILE {
            return None;
        }
        let chunk = (elements.pes().len() / 64).clamp(1, CHUNK);
        let measures = Mutex::new(vec![None; elements.pes().len().div_ceil(chunk)]);
        let (next, bytes, failed) = (AtomicUsize::new(0), AtomicU64::new(0), AtomicBool::new(false));
        Some(Self { writer, elements, known, budget, chunk, next, bytes, failed, measures })
    }

    /// Measures one chunk after the other until there are none left, or it may not go on. Any number of threads may do
    /// so at once.
    pub(crate) fn work(&self, may_go_on: &dyn Fn() -> bool) {
        let mut writer = HashingWriter::<true>::new(None);
        while !self.failed.load(Ordering::Relaxed) && may_go_on() {
            let chunk = self.next.fetch_add(1, Ordering::Relaxed);
            let first = chunk * self.chunk;
            let Some(pes) = self.elements.pes().get(first..) else { return };
            if pes.is_empty() {
                return;
            }
            let mut measures = Vec::with_capacity(self.chunk);
            for (position, &pe) in (first..).zip(pes.iter().take(self.chunk)) {
                let measured = match (self.known)(position) {
                    Some(measure) => Ok(measure),
                    None => {
                        let most = self.budget.limits.aadl_bytes;
                        self.writer.measure_with(&mut writer, self.elements, pe, most, self.budget)
                    }
                };
                let Ok(measure) = measured else { return self.failed.store(true, Ordering::Relaxed) };
                measures.push(measure);
            }
            let bytes: u64 = measures.iter().map(|measure| measure.bytes).sum();
            if self.bytes.fetch_add(bytes, Ordering::Relaxed) + bytes > self.budget.limits.aadl_bytes {
                return self.failed.store(true, Ordering::Relaxed);
            }
            let mut all = self.measures.lock();
            if let Some(slot) = all.get_mut(chunk) {
                *slot = Some(measures);
            }
        }
    }

    /// Ids and sizes of all documents, in order of [`Elements::pes`].
    ///
    /// # Errors
    ///
    /// As for [`Writer::measure_all`].
    pub(crate) fn finish(self) -> Result<Vec<Measure>, Error> {
        let chunks = self.measures.into_inner();
        match chunks.into_iter().collect::<Option<Vec<_>>>() {
            Some(chunks) if !self.failed.into_inner() => Ok(chunks.concat()),
            _ => self.writer.measure_all(self.elements, self.known, self.budget),
        }
    }
}
