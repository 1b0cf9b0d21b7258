//! The page being written: the text of a document and, beside it, what a running PE can observe of it.
//!
//! Two ids come out of one pass. The content id is the SHA-256 of the text (rule aadl-4). The runtime id is the SHA-256
//! of a second, much shorter stream that only gets what the runtime reads (rules aadl-5 and aadl-18). A value goes to
//! both unless it is written by a method whose name begins with `hidden`. So a value that somebody forgets to hide
//! restarts a PE too often, never too seldom. Markup is in the text only: the second stream gets one [`Sheet::mark`]
//! per element instead, strings with their length and numbers with a fixed size, so two different contents never give
//! the same stream.

use super::escape::{double, escape};
use crate::heap::heap_fields;
use sha2::{Digest, Sha256};
use std::io;

/// Text is hashed and handed on in pieces of about this size: large enough for the hash, small enough for the cache.
const PIECE: usize = 48 << 10;

/// Longest observed stream of a fragment that is kept as it is.
const LONGEST: usize = 48;

/// Digest of a document's text or of what can be observed of it.
pub(crate) type Id = [u8; 32];

/// A piece of text that many documents of a job share, made once.
#[derive(Clone, Debug, Default)]
pub(super) struct Fragment {
    text: Vec<u8>,
    observed: Vec<u8>,
}

impl Fragment {
    /// What `write` puts on a sheet.
    pub(super) fn new(write: impl FnOnce(&mut Sheet<'_, true>)) -> Result<Self, char> {
        let mut sheet = Sheet::<true>::new(None);
        sheet.piece = usize::MAX;
        write(&mut sheet);
        if let Some(illegal) = sheet.illegal {
            return Err(illegal);
        }
        // A long stream is replaced by its digest, so that every document that has the fragment pays 33 bytes.
        let mut observed = Vec::with_capacity(LONGEST + 1);
        match u8::try_from(sheet.observed.len()) {
            Ok(length) if usize::from(length) <= LONGEST => {
                observed.push(length);
                observed.extend_from_slice(&sheet.observed);
            }
            _ => {
                observed.push(u8::MAX);
                observed.extend_from_slice(&Sha256::digest(&sheet.observed));
            }
        }
        Ok(Self { text: sheet.text, observed })
    }

    /// Bytes of text.
    pub(super) fn len(&self) -> usize {
        self.text.len()
    }
}

heap_fields! { Fragment { text, observed } }

/// A page. `OBSERVE` is false where only the text is wanted.
pub(super) struct Sheet<'s, const OBSERVE: bool> {
    text: Vec<u8>,
    observed: Vec<u8>,
    piece: usize,
    content: Sha256,
    runtime: Sha256,
    flushed: u64,
    illegal: Option<char>,
    sink: Option<&'s mut dyn io::Write>,
}

/// Result of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Finished {
    pub(super) content: Id,
    /// All zero where nothing was observed.
    pub(super) runtime: Id,
    pub(super) bytes: u64,
    /// A character that XML cannot hold.
    pub(super) illegal: Option<char>,
}

impl<'s, const OBSERVE: bool> Sheet<'s, OBSERVE> {
    /// An empty page whose text goes to `sink`.
    pub(super) fn new(sink: Option<&'s mut dyn io::Write>) -> Self {
        Self {
            text: Vec::new(),
            observed: Vec::new(),
            piece: PIECE,
            content: Sha256::new(),
            runtime: Sha256::new(),
            flushed: 0,
            illegal: None,
            sink,
        }
    }

    /// Static markup; not observed.
    #[inline]
    pub(super) fn markup(&mut self, markup: &'static [u8]) {
        self.text.extend_from_slice(markup);
    }

    /// Begins an element in the observed stream.
    #[inline]
    pub(super) fn mark(&mut self, element: u8) {
        if OBSERVE {
            self.observed.push(element);
        }
    }

    /// A number.
    #[inline]
    pub(super) fn number(&mut self, number: u32) {
        self.hidden_number(number);
        if OBSERVE {
            self.observed.extend_from_slice(&number.to_le_bytes());
        }
    }

    /// A number that the runtime does not read.
    #[inline]
    pub(super) fn hidden_number(&mut self, number: u32) {
        self.text.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
    }

    /// A number that may be large.
    #[inline]
    pub(super) fn wide(&mut self, number: u64) {
        self.hidden_wide(number);
        if OBSERVE {
            self.observed.extend_from_slice(&number.to_le_bytes());
        }
    }

    /// A number that may be large and that the runtime does not read.
    #[inline]
    pub(super) fn hidden_wide(&mut self, number: u64) {
        self.text.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
    }

    /// A truth value.
    #[inline]
    pub(super) fn boolean(&mut self, value: bool) {
        self.hidden_boolean(value);
        if OBSERVE {
            self.observed.push(u8::from(value));
        }
    }

    /// A truth value that the runtime does not read.
    #[inline]
    pub(super) fn hidden_boolean(&mut self, value: bool) {
        self.text.extend_from_slice(if value { b"true" } else { b"false" });
    }

    /// A truth value that the text shows by its markup.
    #[inline]
    pub(super) fn observe(&mut self, value: bool) {
        if OBSERVE {
            self.observed.push(u8::from(value));
        }
    }

    /// A text.
    #[inline]
    pub(super) fn string(&mut self, text: &str) {
        self.hidden_string(text);
        if OBSERVE {
            self.observed.extend_from_slice(&(text.len() as u64).to_le_bytes());
            self.observed.extend_from_slice(text.as_bytes());
        }
    }

    /// A text that the runtime does not read.
    #[inline]
    pub(super) fn hidden_string(&mut self, text: &str) {
        let illegal = escape(&mut self.text, text);
        self.illegal = self.illegal.or(illegal);
    }

    /// A `xs:double`.
    pub(super) fn double(&mut self, number: f64) {
        double(&mut self.text, number);
        if OBSERVE {
            self.observed.extend_from_slice(&number.to_bits().to_le_bytes());
        }
    }

    /// A shared piece.
    #[inline]
    pub(super) fn fragment(&mut self, fragment: &Fragment) {
        self.text.extend_from_slice(&fragment.text);
        if OBSERVE {
            self.observed.extend_from_slice(&fragment.observed);
        }
    }

    /// To be called at least once per few hundred bytes of unshared text: passes full pieces on.
    #[inline]
    pub(super) fn settle(&mut self) -> io::Result<()> {
        if self.text.len() >= self.piece { self.flush() } else { Ok(()) }
    }

    /// Bytes of text so far.
    pub(super) fn bytes(&self) -> u64 {
        self.flushed + self.text.len() as u64
    }

    #[cold]
    #[inline(never)]
    fn flush(&mut self) -> io::Result<()> {
        self.content.update(&self.text);
        if OBSERVE {
            self.runtime.update(&self.observed);
            self.observed.clear();
        }
        if let Some(sink) = &mut self.sink {
            sink.write_all(&self.text)?;
        }
        self.flushed += self.text.len() as u64;
        self.text.clear();
        Ok(())
    }

    /// Ends the page; the sheet is empty again and keeps its memory.
    pub(super) fn finish(&mut self) -> io::Result<Finished> {
        self.flush()?;
        let finished = Finished {
            content: self.content.finalize_reset().into(),
            runtime: if OBSERVE { self.runtime.finalize_reset().into() } else { [0; 32] },
            bytes: self.flushed,
            illegal: self.illegal.take(),
        };
        self.flushed = 0;
        Ok(finished)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(write: impl Fn(&mut Sheet<'_, true>)) -> Finished {
        let mut sheet = Sheet::<true>::new(None);
        write(&mut sheet);
        sheet.finish().unwrap()
    }

    #[test]
    fn hidden_values_change_the_text_only() {
        let page = |shown: &'static str, hidden: &'static str| {
            written(|s| {
                s.mark(1);
                s.string(shown);
                s.hidden_string(hidden);
            })
        };
        let (a, b, c) = (page("x", "1"), page("x", "2"), page("y", "1"));
        assert_ne!(a.content, b.content);
        assert_eq!(a.runtime, b.runtime);
        assert_ne!(a.runtime, c.runtime);
    }

    #[test]
    fn neighbouring_strings_do_not_run_together() {
        let page = |a: &'static str, b: &'static str| {
            written(|s| {
                s.string(a);
                s.string(b);
            })
        };
        assert_eq!(page("ab", "c").content, page("a", "bc").content);
        assert_ne!(page("ab", "c").runtime, page("a", "bc").runtime);
    }

    #[test]
    fn pieces_and_the_sink_get_the_same_bytes() {
        let mut sink = Vec::new();
        let mut sheet = Sheet::<false>::new(Some(&mut sink));
        for n in 0..50_000 {
            sheet.number(n);
            sheet.markup(b" ");
            sheet.settle().unwrap();
        }
        let finished = sheet.finish().unwrap();
        drop(sheet);
        assert_eq!(finished.bytes, sink.len() as u64);
        assert_eq!(finished.content, <Id>::from(Sha256::digest(&sink)));
    }

    #[test]
    fn a_sheet_can_be_used_again() {
        let mut sheet = Sheet::<true>::new(None);
        sheet.string("\u{1}");
        let first = sheet.finish().unwrap();
        assert_eq!(first.illegal, Some('\u{1}'));
        sheet.string("a");
        let second = sheet.finish().unwrap();
        assert_eq!(second, written(|s| s.string("a")));
        assert_eq!(second.illegal, None);
    }
}
