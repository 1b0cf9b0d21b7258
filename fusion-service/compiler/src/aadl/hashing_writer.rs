//! Writes the text of a document and computes its two ids.
//!
//! One pass gives both ids. The content id is the SHA-256 of the text (rule aadl-4). The runtime id is the SHA-256 of a
//! second, much shorter stream, the *observed stream*. It only gets what the runtime reads (rules aadl-5 and aadl-18).
//! The [`super::vocabulary`] decides which values those are: the caller writes an attribute by its constant and an
//! element by its type. The observed stream has no markup. It has one mark per element, strings with their length and
//! numbers with a fixed size, so two different contents never give the same stream.
//!
//! Knows: bytes, what of them is observed. Must not know: what a document says.

use super::element::{Element, ElementAttribute, FixedAttribute, FixedElement, HasAttributes};
use super::escape::unwritable;
use super::size::{Room, too_much_in_common};
use super::value::Value;
use crate::budget::Budget;
use crate::error::Error;
use get_size2::GetSize;
use sha2::{Digest, Sha256};
use std::io;
use std::marker::PhantomData;

/// The writer hashes the text and passes it on in pieces of about this size: large enough for the hash, small enough
/// for the processor's cache.
const PIECE: usize = 48 << 10;

/// Bytes of text of a fragment after which its budget is asked.
const LOOK: usize = 1 << 20;

/// Longest observed stream that a fragment keeps as it is.
const LONGEST: usize = 48;

/// Digest of a document's text or of what can be observed of it.
pub(crate) type Id = [u8; 32];

/// A part of the text that many documents of a job share, escaped once.
#[derive(Clone, Debug, Default, GetSize)]
pub(super) struct Fragment {
    text: Vec<u8>,
    observed: Vec<u8>,
}

impl Fragment {
    /// Keeps what `write` writes: a handful of texts, or what is counted already.
    ///
    /// # Errors
    ///
    /// A character that XML cannot hold.
    pub(super) fn new(write: impl FnOnce(&mut HashingWriter<'_, true>)) -> Result<Self, Unwritable> {
        Self::within(Room::ENOUGH, write)
    }

    /// Keeps what `write` writes, of which there may be any number of texts: with [`HashingWriter::each`].
    ///
    /// # Errors
    ///
    /// A character that XML cannot hold, more text than there is room for, or the budget ends.
    pub(super) fn within<'b>(
        room: Room<'b>,
        write: impl FnOnce(&mut HashingWriter<'b, true>),
    ) -> Result<Self, Unwritable> {
        let mut w = HashingWriter::<true>::new(None);
        w.piece = usize::MAX;
        w.limit(room.bytes);
        w.budget = room.budget;
        write(&mut w);
        if let Some(ended) = w.ended {
            return Err(Unwritable::Ended(ended));
        }
        if let Some(illegal) = w.illegal {
            return Err(Unwritable::Character(illegal));
        }
        if w.is_full() {
            return Err(Unwritable::TooLong);
        }
        // A long stream is replaced by its digest, so that every document that has the fragment pays 33 bytes.
        let mut observed = Vec::with_capacity(LONGEST + 1);
        match u8::try_from(w.observed.len()) {
            Ok(length) if usize::from(length) <= LONGEST && !w.hashed => {
                observed.push(length);
                observed.extend_from_slice(&w.observed);
            }
            _ => {
                w.runtime.update(&w.observed);
                observed.push(u8::MAX);
                observed.extend_from_slice(&w.runtime.finalize());
            }
        }
        Ok(Self { text: w.text, observed })
    }

    /// Keeps attributes of `E`, which is an element or what several elements have in common.
    pub(super) fn attributes<E: HasAttributes<E>>(
        write: impl for<'w, 's> FnOnce(StartTag<'w, 's, E, true>) -> StartTag<'w, 's, E, true>,
    ) -> Result<Self, Unwritable> {
        Self::new(|w| _ = write(StartTag { writer: w, of: PhantomData }))
    }

    /// Bytes of text.
    pub(super) fn len(&self) -> usize {
        self.text.len()
    }
}

/// Why a fragment cannot be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Unwritable {
    /// It has a character that XML cannot hold.
    Character(char),
    /// There is no room for it.
    TooLong,
    /// The budget ended.
    Ended(Error),
}

impl Unwritable {
    /// The error of what it was to be a part of.
    pub(super) fn error(self, what: &str) -> Error {
        match self {
            Self::Character(illegal) => unwritable(what, illegal).into(),
            Self::TooLong => too_much_in_common(what).into(),
            Self::Ended(error) => error,
        }
    }
}

/// Writes a document. `OBSERVE` is false where only the text is wanted.
pub(super) struct HashingWriter<'s, const OBSERVE: bool> {
    text: Vec<u8>,
    observed: Vec<u8>,
    piece: usize,
    /// The text may have this length.
    room: usize,
    /// Asked by [`HashingWriter::each`], and when for the next time: where the text has this length.
    budget: Option<&'s Budget>,
    next_look: usize,
    /// What the budget has said that ended.
    ended: Option<Error>,
    content: Sha256,
    runtime: Sha256,
    /// Whether a part of the observed stream of a fragment is in `runtime` already.
    hashed: bool,
    flushed: u64,
    illegal: Option<char>,
    sink: Option<&'s mut dyn io::Write>,
}

/// Result of a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Finished {
    pub(super) content: Id,
    /// All zero where nothing was observed.
    pub(super) runtime: Id,
    pub(super) bytes: u64,
    /// A character that XML cannot hold.
    pub(super) illegal: Option<char>,
}

impl<'s, const OBSERVE: bool> HashingWriter<'s, OBSERVE> {
    /// A writer without text, which will go to `sink`.
    pub(super) fn new(sink: Option<&'s mut dyn io::Write>) -> Self {
        Self {
            text: Vec::new(),
            observed: Vec::new(),
            piece: PIECE,
            room: usize::MAX,
            budget: None,
            next_look: LOOK,
            ended: None,
            content: Sha256::new(),
            runtime: Sha256::new(),
            hashed: false,
            flushed: 0,
            illegal: None,
            sink,
        }
    }

    /// The XML declaration.
    pub(super) fn declaration(&mut self) {
        self.text.extend_from_slice(b"<?xml version=\"1.0\" encoding=\"UTF-8\" standalone=\"yes\"?>");
    }

    /// Begins an element that has attributes.
    #[inline]
    pub(super) fn start<E: Element>(&mut self, _: E) -> StartTag<'_, 's, E, OBSERVE> {
        self.text.extend_from_slice(E::START);
        self.mark::<E>();
        StartTag { writer: self, of: PhantomData }
    }

    /// Begins an element without attributes.
    #[inline]
    pub(super) fn open<E: Element>(&mut self, _: E) {
        self.text.extend_from_slice(E::OPEN);
        self.mark::<E>();
    }

    /// Ends an element.
    #[inline]
    pub(super) fn end<E: Element>(&mut self, _: E) {
        self.text.extend_from_slice(E::END);
    }

    /// Writes an element that every document has and that is empty in this one. Nothing of it goes to the observed
    /// stream, not even its mark.
    pub(super) fn empty<E: Element>(&mut self, _: E) {
        self.text.extend_from_slice(E::EMPTY);
    }

    /// An element that is the same in every document.
    pub(super) fn fixed<E: FixedElement>(&mut self, _: E) {
        self.text.extend_from_slice(E::TEXT);
    }

    /// An element that has a text and nothing else.
    #[inline]
    pub(super) fn leaf<E: Element>(&mut self, element: E, text: impl Value) {
        self.text.extend_from_slice(E::OPEN);
        self.mark::<E>();
        text.write(&mut self.text, &mut self.illegal);
        if OBSERVE && E::OBSERVED {
            text.observe(&mut self.observed);
        }
        self.end(element);
    }

    #[inline]
    fn mark<E: Element>(&mut self) {
        if OBSERVE
            && E::OBSERVED
            && let Some(mark) = E::MARK
        {
            self.observed.push(mark);
        }
    }

    /// Adds a byte to the observed stream: whether something is there, or what comes next.
    #[inline]
    pub(super) fn observe(&mut self, what: u8) {
        if OBSERVE {
            self.observed.push(what);
        }
    }

    /// Writes something that is not observed, whatever elements it consists of. It may be long: pieces are passed on as
    /// elsewhere.
    pub(super) fn unobserved<R>(&mut self, write: impl FnOnce(&mut HashingWriter<'s, false>) -> R) -> R {
        let mut w = HashingWriter::<false> {
            text: std::mem::take(&mut self.text),
            observed: Vec::new(),
            piece: self.piece,
            room: self.room,
            budget: self.budget,
            next_look: self.next_look,
            ended: self.ended.take(),
            content: std::mem::take(&mut self.content),
            runtime: Sha256::new(),
            hashed: false,
            flushed: self.flushed,
            illegal: self.illegal,
            sink: self.sink.take(),
        };
        let result = write(&mut w);
        (self.text, self.content, self.sink) = (w.text, w.content, w.sink);
        (self.flushed, self.illegal) = (w.flushed, w.illegal);
        (self.next_look, self.ended) = (w.next_look, w.ended);
        result
    }

    /// From here on there is room for so many bytes of text.
    pub(super) fn limit(&mut self, room: usize) {
        self.room = self.text.len().saturating_add(room);
    }

    /// Whether there is more text than there is room for.
    fn is_full(&self) -> bool {
        self.text.len() > self.room
    }

    /// Writes the parts of a fragment that there may be many of, as long as there is room, and the budget has not
    /// ended. A part may be a text of some MB, but all of them together may be thousands of times as large as the
    /// application. The observed stream is hashed on the way, so that it is not in memory beside the text.
    pub(super) fn each<T>(&mut self, parts: impl IntoIterator<Item = T>, mut write: impl FnMut(&mut Self, T)) {
        for part in parts {
            if self.is_full() || self.has_ended() {
                return;
            }
            write(self, part);
            if OBSERVE && self.observed.len() >= PIECE {
                self.runtime.update(&self.observed);
                self.observed.clear();
                self.hashed = true;
            }
        }
    }

    /// Whether the budget has ended, which is asked once for each [`LOOK`].
    fn has_ended(&mut self) -> bool {
        if self.text.len() >= self.next_look
            && self.ended.is_none()
            && let Some(budget) = self.budget
        {
            self.next_look = self.text.len() + LOOK;
            self.ended = budget.check().err();
        }
        self.ended.is_some()
    }

    /// A shared piece.
    #[inline]
    pub(super) fn fragment(&mut self, fragment: &Fragment) {
        self.text.extend_from_slice(&fragment.text);
        if OBSERVE {
            self.observed.extend_from_slice(&fragment.observed);
        }
    }

    /// Passes full pieces on. The caller must call it at least once per few hundred bytes of text that is no fragment.
    #[inline]
    pub(super) fn pass_on(&mut self) -> io::Result<()> {
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

    /// Ends the document. The writer is empty again and keeps its memory.
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

/// The start tag of an element: takes its attributes, then [`StartTag::open`] or [`StartTag::close`] ends it.
#[must_use = "a start tag has to be ended"]
pub(super) struct StartTag<'w, 's, E, const OBSERVE: bool> {
    writer: &'w mut HashingWriter<'s, OBSERVE>,
    of: PhantomData<E>,
}

// Attributes are constants of the vocabulary. Where the calls below are inlined, the compiler copies names of known
// length and leaves out what is not observed; otherwise a resize of 300 dense operators takes 6 % longer.
impl<'w, 's, E, const OBSERVE: bool> StartTag<'w, 's, E, OBSERVE> {
    /// An attribute.
    #[inline(always)]
    pub(super) fn attribute<G>(self, attribute: ElementAttribute<G>, value: impl Value) -> Self
    where
        E: HasAttributes<G>,
    {
        let observed = attribute.observed;
        if OBSERVE && observed {
            if let Some(mark) = attribute.mark {
                self.writer.observed.push(mark);
            }
            value.observe(&mut self.writer.observed);
        }
        self.text(attribute, value)
    }

    /// An attribute that this job observes or not. The region's index, which is observed before it, and what the job
    /// says for its whole life, tell which.
    #[inline]
    pub(super) fn attribute_if<G>(self, observed: bool, attribute: ElementAttribute<G>, value: impl Value) -> Self
    where
        E: HasAttributes<G>,
    {
        if observed { self.attribute(attribute, value) } else { self.text(attribute, value) }
    }

    /// An attribute that may be absent, which is observed as well.
    #[inline]
    pub(super) fn optional<G>(self, attribute: ElementAttribute<G>, value: Option<impl Value>) -> Self
    where
        E: HasAttributes<G>,
    {
        if OBSERVE && attribute.observed {
            self.writer.observed.push(u8::from(value.is_some()));
        }
        match value {
            Some(value) => self.attribute(attribute, value),
            None => self,
        }
    }

    /// An attribute that has the same value in every document.
    #[inline]
    pub(super) fn fixed<G>(self, attribute: FixedAttribute<G>) -> Self
    where
        E: HasAttributes<G>,
    {
        self.writer.text.extend_from_slice(attribute.text);
        self
    }

    /// Writes an attribute to the text only, because the observed stream has the value already or must not have it.
    #[inline(always)]
    pub(super) fn text<G>(self, attribute: ElementAttribute<G>, value: impl Value) -> Self
    where
        E: HasAttributes<G>,
    {
        let HashingWriter { text, illegal, .. } = &mut *self.writer;
        text.extend_from_slice(attribute.start);
        value.write(text, illegal);
        text.push(b'"');
        self
    }

    /// Writes an attribute to the observed stream only. Its text follows behind others.
    #[inline]
    pub(super) fn observe<G>(self, attribute: ElementAttribute<G>, value: impl Value) -> Self
    where
        E: HasAttributes<G>,
    {
        if OBSERVE && attribute.observed {
            value.observe(&mut self.writer.observed);
        }
        self
    }

    /// Attributes that many documents share.
    #[inline]
    pub(super) fn fragment(self, fragment: &Fragment) -> Self {
        self.writer.fragment(fragment);
        self
    }

    /// Ends the tag of an element with content, which is written next.
    #[inline]
    pub(super) fn open(self) -> &'w mut HashingWriter<'s, OBSERVE> {
        self.writer.text.push(b'>');
        self.writer
    }

    /// Ends the tag and the element.
    #[inline]
    pub(super) fn close(self) {
        self.writer.text.extend_from_slice(b"/>");
    }
}

#[cfg(test)]
mod tests {
    use super::super::vocabulary::{CustomMetricIndex, OperInstance, RuntimeConstant};
    use super::*;

    fn written(write: impl Fn(&mut HashingWriter<'_, true>)) -> Finished {
        let mut w = HashingWriter::<true>::new(None);
        write(&mut w);
        w.finish().unwrap()
    }

    #[test]
    fn hidden_values_change_the_text_only() {
        let page = |observed: u32, hidden: u64| {
            written(|w| {
                w.start(OperInstance)
                    .attribute(OperInstance::INDEX, observed)
                    .attribute(OperInstance::LOGICAL_INDEX, hidden)
                    .close();
            })
        };
        let (a, b, c) = (page(1, 1), page(1, 2), page(2, 1));
        assert_ne!(a.content, b.content);
        assert_eq!(a.runtime, b.runtime);
        assert_ne!(a.runtime, c.runtime);
    }

    #[test]
    fn neighbouring_strings_do_not_run_together() {
        let page = |name: &'static str, value: &'static str| {
            written(|w| {
                w.start(RuntimeConstant)
                    .attribute(RuntimeConstant::NAME, name)
                    .attribute(RuntimeConstant::VALUE, value)
                    .close();
            })
        };
        assert_ne!(page("ab", "c").runtime, page("a", "bc").runtime);
    }

    #[test]
    fn nothing_is_observed_of_an_unobserved_part() {
        let page = |index: u32| {
            written(|w| w.unobserved(|w| w.start(OperInstance).attribute(OperInstance::INDEX, index).close()))
        };
        assert_ne!(page(1).content, page(2).content);
        assert_eq!(page(1).runtime, page(2).runtime);
        let illegal = written(|w| w.unobserved(|w| w.leaf(CustomMetricIndex, "\u{1}")));
        assert_eq!(illegal.illegal, Some('\u{1}'));
    }

    #[test]
    fn a_long_unobserved_part_is_passed_on_in_pieces() {
        const MANY: u32 = 50_000;
        let mut sink = Vec::new();
        let mut w = HashingWriter::<true>::new(Some(&mut sink));
        w.leaf(CustomMetricIndex, MANY);
        let most = w.unobserved(|w| {
            let mut most = 0;
            for n in 0..MANY {
                w.leaf(CustomMetricIndex, n);
                w.pass_on().unwrap();
                most = most.max(w.text.len());
            }
            most
        });
        w.leaf(CustomMetricIndex, MANY);
        let finished = w.finish().unwrap();
        drop(w);
        assert!(most <= PIECE, "{most} bytes are held");
        assert_eq!(finished.bytes, sink.len() as u64);
        assert_eq!(finished.content, <Id>::from(Sha256::digest(&sink)));
        let observed = written(|w| (0..2).for_each(|_| w.leaf(CustomMetricIndex, MANY)));
        assert_eq!(finished.runtime, observed.runtime);
    }

    #[test]
    fn a_long_fragment_is_observed_like_a_short_one() {
        let texts: Vec<String> = (0..100).map(|n| n.to_string().repeat(1_000)).collect();
        let constant = |w: &mut HashingWriter<'_, true>, text: &String| {
            w.start(RuntimeConstant).attribute(RuntimeConstant::NAME, text).close();
        };
        let at_once = Fragment::new(|w| texts.iter().for_each(|text| constant(w, text))).unwrap();
        let mut most = 0;
        let in_parts = Fragment::within(Room { bytes: at_once.len(), ..Room::ENOUGH }, |w| {
            w.each(&texts, |w, text| {
                constant(w, text);
                most = most.max(w.observed.len());
            });
        });
        let in_parts = in_parts.unwrap();
        assert_eq!((in_parts.text, in_parts.observed), (at_once.text, at_once.observed));
        assert!(most < PIECE + 3_000, "{most} bytes are held");
    }

    #[test]
    fn a_fragment_ends_where_there_is_no_room() {
        let long = "&".repeat(1_000);
        for (room, expected) in [(0, 1), (4_999, 1), (10_000, 2), (50_000, 10)] {
            let mut written = 0;
            let fragment = Fragment::within(Room { bytes: room, ..Room::ENOUGH }, |w| {
                w.each([&long; 1_000], |w, text| {
                    w.leaf(CustomMetricIndex, text);
                    written += 1;
                });
            });
            assert_eq!(fragment.map(|_| ()), Err(Unwritable::TooLong));
            assert_eq!(written, expected, "{room}");
        }
    }

    #[test]
    fn pieces_and_the_sink_get_the_same_bytes() {
        let mut sink = Vec::new();
        let mut w = HashingWriter::<false>::new(Some(&mut sink));
        for n in 0..50_000_u32 {
            w.leaf(CustomMetricIndex, n);
            w.pass_on().unwrap();
        }
        let finished = w.finish().unwrap();
        drop(w);
        assert_eq!(finished.bytes, sink.len() as u64);
        assert_eq!(finished.content, <Id>::from(Sha256::digest(&sink)));
    }

    #[test]
    fn a_writer_can_be_used_again() {
        let mut w = HashingWriter::<true>::new(None);
        w.leaf(CustomMetricIndex, "\u{1}");
        let first = w.finish().unwrap();
        assert_eq!(first.illegal, Some('\u{1}'));
        w.leaf(CustomMetricIndex, "a");
        let second = w.finish().unwrap();
        assert_eq!(second, written(|w| w.leaf(CustomMetricIndex, "a")));
        assert_eq!(second.illegal, None);
    }
}
