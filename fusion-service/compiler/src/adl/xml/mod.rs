//! Well-formed XML 1.0, one element at a time (rule language-2).
//!
//! [`Reader`] wraps quick-xml and adds what the format demands and a fast parser leaves out: legal characters and
//! names, unique attributes, one root, known prefixes, no document type, no entities but the five of XML, bounded depth
//! and texts. It knows the place of every element and nothing of what the elements mean.
//!
//! Reading goes down and up again: [`Reader::child`] opens the next child of the innermost open element, or closes that
//! element and says so with `None`. Whoever opens an element closes it: with `child` until `None`, with
//! [`Reader::text`], or with [`Reader::skip`]. [`Reader::children`] does it for the caller.
//!
//! Knows: XML, the namespaces of an ADL. Must not know: what elements mean.

use super::characters::{illegal_character, is_name, is_qualified_name, is_space, local, normalised, resolve};
use crate::budget::{Budget, Limits, Pace};
use crate::error::{Error, Place, Problem, Stage, code, excerpt};
use quick_xml::events::attributes::Attributes;
use quick_xml::events::{BytesDecl, Event};
use quick_xml::name::{Namespace, QName, ResolveResult};
use quick_xml::reader::NsReader;
use smallvec::SmallVec;
use std::borrow::Cow;
use std::collections::HashSet;

/// The namespaces an ADL uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Vocabulary {
    /// ADL 4.2.
    V4200,
    /// ADL 4.0.
    V4000,
    /// Structure of tuple types.
    TupleType,
    /// Anything else, or none.
    Other,
}

const V4200: &str = "http://www.ibm.com/xmlns/prod/streams/application/v4200";
const V4000: &str = "http://www.ibm.com/xmlns/prod/streams/application";
const TUPLE_TYPE: &str = "http://www.ibm.com/xmlns/prod/streams/spl/tupleType";

/// An element whose start tag was read.
#[derive(Debug)]
pub(crate) struct XmlElement<'a> {
    /// Its namespace.
    pub(crate) vocabulary: Vocabulary,
    /// Its name without prefix.
    pub(crate) name: &'a str,
    /// Where its start tag begins.
    pub(crate) place: Place,
    /// Attributes without prefix, values normalised.
    attributes: SmallVec<[(&'a str, Cow<'a, str>); 10]>,
}

impl<'a> XmlElement<'a> {
    /// The value of an attribute.
    pub(crate) fn attribute(&self, name: &str) -> Option<&Cow<'a, str>> {
        self.attributes.iter().find(|(n, _)| *n == name).map(|(_, v)| v)
    }
}

/// A reader of one document.
pub(crate) struct Reader<'a> {
    text: &'a str,
    xml: NsReader<&'a [u8]>,
    limits: &'a Limits,
    pace: Pace<'a>,
    depth: u32,
    /// The root element was opened.
    rooted: bool,
    /// The innermost element was written as `<a/>`, and the reader has not returned its end yet.
    empty: bool,
    lines: Lines<'a>,
    /// What is wrong with the content so far.
    pub(crate) problems: Vec<Problem>,
    /// None of these problems is about how parts refer to each other.
    pub(crate) coherent: bool,
}

#[allow(clippy::large_enum_variant, reason = "tokens are matched at once and never stored")]
enum Token<'a> {
    Start(XmlElement<'a>),
    End,
    Text(Cow<'a, str>),
    Eof,
}

/// More problems than this are of no use to anybody (rule language-6).
const MOST_PROBLEMS: usize = 100;

/// More attributes than this has no element (rule language-5). Elements of an ADL have some ten.
const MOST_ATTRIBUTES: usize = 10_000;

impl<'a> Reader<'a> {
    /// Starts reading. Checks encoding and size.
    pub(crate) fn new(bytes: &'a [u8], budget: &'a Budget) -> Result<Self, Error> {
        let refuse = |message: String| Error::from(Problem::new(Stage::LogicalModel, message).code(code::UNEXPECTED));
        if bytes.len() as u64 > budget.limits.adl_bytes {
            let most = budget.limits.adl_bytes;
            return Err(refuse(format!("the ADL has {} bytes; at most {most} are supported", bytes.len())));
        }
        let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
        let text = std::str::from_utf8(bytes)
            .map_err(|e| refuse(format!("the ADL is not UTF-8: invalid byte at offset {}", e.valid_up_to())))?;
        let mut reader = Self {
            text,
            xml: NsReader::from_str(text),
            limits: &budget.limits,
            pace: budget.pace(),
            depth: 0,
            rooted: false,
            empty: false,
            lines: Lines::new(text),
            problems: Vec::new(),
            coherent: true,
        };
        reader.xml.config_mut().check_comments = true;
        if let Some(offset) = illegal_character(text) {
            return Err(reader.malformed(offset, "a character that XML does not allow"));
        }
        Ok(reader)
    }

    /// The root element, opened.
    pub(crate) fn root(&mut self) -> Result<XmlElement<'a>, Error> {
        match self.token()? {
            Token::Start(element) => Ok(element),
            _ => Err(self.malformed(self.text.len(), "the document has no root element")),
        }
    }

    /// Makes sure that nothing follows the closed root element.
    pub(crate) fn finish(&mut self) -> Result<(), Error> {
        match self.token()? {
            Token::Eof => Ok(()),
            _ => Err(self.malformed_here("content after the root element")),
        }
    }

    /// Opens the next child of the innermost open element, or closes that element. Once there are too many problems,
    /// reading ends.
    pub(crate) fn child(&mut self) -> Result<Option<XmlElement<'a>>, Error> {
        if self.problems.len() >= MOST_PROBLEMS {
            // The rest is read all the same: if the document is not well-formed, that is reported instead.
            while !matches!(self.token()?, Token::Eof) {}
            return Err(Error::Rejected(std::mem::take(&mut self.problems)));
        }
        loop {
            match self.token()? {
                Token::Start(element) => return Ok(Some(element)),
                Token::End => return Ok(None),
                Token::Text(_) => {}
                Token::Eof => return Err(self.malformed(self.text.len(), "the document ends inside an element")),
            }
        }
    }

    /// Calls `f` for every child of the innermost open element and closes it. What `f` leaves open is skipped.
    pub(crate) fn children(
        &mut self,
        mut f: impl FnMut(&mut Self, XmlElement<'a>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let depth = self.depth;
        while let Some(element) = self.child()? {
            f(self, element)?;
            self.close_to(depth)?;
        }
        Ok(())
    }

    /// Calls `f` for every child of the innermost open element that is in `vocabulary`, and closes the element. Other
    /// children are skipped, and so is what `f` leaves open.
    pub(crate) fn children_of(
        &mut self,
        vocabulary: Vocabulary,
        mut f: impl FnMut(&mut Self, XmlElement<'a>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        self.children(|reader, child| if child.vocabulary == vocabulary { f(reader, child) } else { Ok(()) })
    }

    /// Reads every child `name` of the innermost open element, in the order of the document, and closes the element.
    pub(crate) fn list<T>(
        &mut self,
        vocabulary: Vocabulary,
        name: &str,
        mut read: impl FnMut(&mut Self, &XmlElement<'a>) -> Result<T, Error>,
    ) -> Result<Vec<T>, Error> {
        let mut list = Vec::new();
        self.children_of(vocabulary, |reader, child| {
            if child.name == name {
                list.push(read(reader, &child)?);
            }
            Ok(())
        })?;
        Ok(list)
    }

    /// Skips the innermost open element and closes it.
    pub(crate) fn skip(&mut self) -> Result<(), Error> {
        let depth = self.depth.saturating_sub(1);
        self.close_to(depth)
    }

    fn close_to(&mut self, depth: u32) -> Result<(), Error> {
        while self.depth > depth {
            if let Token::Eof = self.token()? {
                return Err(self.malformed(self.text.len(), "the document ends inside an element"));
            }
        }
        Ok(())
    }

    /// The text of the innermost open element, without that of its children; closes it.
    pub(crate) fn text(&mut self) -> Result<Cow<'a, str>, Error> {
        let mut all = Cow::Borrowed("");
        let depth = self.depth;
        loop {
            match self.token()? {
                Token::Text(text) if self.depth == depth => {
                    if all.len() + text.len() > self.limits.text_bytes {
                        return Err(self.too_long());
                    }
                    if all.is_empty() {
                        all = text;
                    } else {
                        all.to_mut().push_str(&text);
                    }
                }
                Token::End if self.depth < depth => return Ok(all),
                Token::Eof => return Err(self.malformed(self.text.len(), "the document ends inside an element")),
                Token::Start(_) | Token::End | Token::Text(_) => {}
            }
        }
    }

    /// The bounds in force.
    pub(crate) fn limits(&self) -> &Limits {
        self.limits
    }

    /// Records a problem of the content and goes on. Later stages must not rely on how parts of the document refer to
    /// each other.
    pub(crate) fn problem(&mut self, place: Place, message: String) {
        self.coherent = false;
        self.detail(place, message);
    }

    /// Records a problem of a part that nothing else refers to, and goes on.
    pub(crate) fn detail(&mut self, place: Place, message: String) {
        if self.problems.len() < MOST_PROBLEMS {
            self.problems.push(Problem::new(Stage::LogicalModel, message).at(place));
        }
    }

    fn token(&mut self) -> Result<Token<'a>, Error> {
        if self.empty {
            self.empty = false;
            self.depth -= 1;
            return Ok(Token::End);
        }
        loop {
            self.pace.step()?;
            let offset = self.position();
            let (resolved, event) = match self.xml.read_resolved_event() {
                Ok(read) => read,
                Err(error) => {
                    let offset = usize::try_from(self.xml.error_position()).unwrap_or(offset);
                    return Err(self.malformed(offset, &excerpt(&error.to_string())));
                }
            };
            let vocabulary = match resolved {
                ResolveResult::Bound(Namespace(V4200)) => Some(Vocabulary::V4200),
                ResolveResult::Bound(Namespace(V4000)) => Some(Vocabulary::V4000),
                ResolveResult::Bound(Namespace(TUPLE_TYPE)) => Some(Vocabulary::TupleType),
                ResolveResult::Bound(_) | ResolveResult::Unbound => Some(Vocabulary::Other),
                ResolveResult::Unknown(_) => None,
            };
            match event {
                Event::Start(start) => {
                    let (all, name) = (start.len(), start.name().as_ref().len());
                    return self.open(offset, all, name, vocabulary).map(Token::Start);
                }
                Event::Empty(start) => {
                    let (all, name) = (start.len(), start.name().as_ref().len());
                    let element = self.open(offset, all, name, vocabulary)?;
                    self.empty = true;
                    return Ok(Token::Start(element));
                }
                Event::End(_) => {
                    self.depth -= 1;
                    return Ok(Token::End);
                }
                Event::Text(text) => {
                    if self.depth == 0 {
                        if text.bytes().all(is_space) {
                            continue;
                        }
                        return Err(self.malformed(offset, "text outside the root element"));
                    }
                    if memchr::memmem::find(text.as_bytes(), b"]]>").is_some() {
                        return Err(self.malformed(offset, "`]]>` in a text"));
                    }
                    if text.len() > self.limits.text_bytes {
                        return Err(self.too_long());
                    }
                    return Ok(Token::Text(text.xml10_content()));
                }
                Event::CData(data) => {
                    if self.depth == 0 {
                        return Err(self.malformed(offset, "text outside the root element"));
                    }
                    if data.len() > self.limits.text_bytes {
                        return Err(self.too_long());
                    }
                    return Ok(Token::Text(data.xml10_content()));
                }
                Event::GeneralRef(reference) => {
                    if self.depth == 0 {
                        return Err(self.malformed(offset, "text outside the root element"));
                    }
                    let name = reference.into_inner();
                    return match resolve(&name) {
                        Some(text) => Ok(Token::Text(text)),
                        None => Err(self.malformed(offset, &format!("unknown reference &{};", excerpt(&name)))),
                    };
                }
                Event::Decl(declaration) => self.declaration(offset, &declaration)?,
                Event::PI(instruction) => {
                    let target = instruction.target();
                    if target.len() > self.limits.text_bytes {
                        return Err(self.too_long());
                    }
                    if !is_name(target) || target.eq_ignore_ascii_case("xml") {
                        return Err(self.malformed(offset, "a processing instruction with a bad name"));
                    }
                }
                Event::Comment(_) => {}
                Event::DocType(_) => {
                    return Err(self.malformed(offset, "document type declarations are refused"));
                }
                Event::Eof if self.depth > 0 => {
                    return Err(self.malformed(offset, "the document ends inside an element"));
                }
                Event::Eof => return Ok(Token::Eof),
            }
        }
    }

    /// The XML declaration: first thing in the document, version 1.x, UTF-8.
    fn declaration(&mut self, offset: usize, declaration: &BytesDecl<'_>) -> Result<(), Error> {
        if offset != 0 {
            return Err(self.malformed(offset, "an XML declaration that is not at the beginning"));
        }
        if let Err(error) = declaration.xml_version() {
            return Err(self.malformed(offset, &excerpt(&error.to_string())));
        }
        match declaration.encoding() {
            None => Ok(()),
            Some(Ok(name)) if ["utf-8", "utf8", "us-ascii"].iter().any(|n| n.eq_ignore_ascii_case(&name)) => Ok(()),
            Some(Ok(name)) => {
                Err(self.malformed(offset, &format!("the encoding {}; only UTF-8 is supported", excerpt(&name))))
            }
            Some(Err(error)) => Err(self.malformed(offset, &excerpt(&error.to_string()))),
        }
    }

    /// Checks a start tag of `length` bytes after its `<` and reads its attributes.
    fn open(
        &mut self,
        offset: usize,
        length: usize,
        name_length: usize,
        vocabulary: Option<Vocabulary>,
    ) -> Result<XmlElement<'a>, Error> {
        let text: &'a str = self.text;
        let content = text.get(offset + 1..offset + 1 + length).unwrap_or_default();
        let name = content.get(..name_length).unwrap_or_default();
        let place = self.lines.place(offset);
        if self.depth == 0 && std::mem::replace(&mut self.rooted, true) {
            return Err(self.malformed(offset, "a second root element"));
        }
        if name_length > self.limits.text_bytes {
            return Err(self.too_long());
        }
        if !is_qualified_name(name) {
            return Err(self.malformed(offset, "an element with a bad name"));
        }
        let Some(vocabulary) = vocabulary else {
            return Err(self.malformed(offset, &format!("<{}>: its prefix is not declared", excerpt(name))));
        };
        self.depth += 1;
        if self.depth > self.limits.depth {
            let most = self.limits.depth;
            return Err(self.malformed(offset, &format!("elements are nested deeper than {most}")));
        }
        let name = local(name);
        let mut element = XmlElement { vocabulary, name, place, attributes: SmallVec::new() };
        self.attributes(offset, content, name_length, &mut element)?;
        Ok(element)
    }

    fn attributes(
        &mut self,
        offset: usize,
        content: &'a str,
        name_length: usize,
        element: &mut XmlElement<'a>,
    ) -> Result<(), Error> {
        let mut names: SmallVec<[&'a str; 16]> = SmallVec::new();
        let mut many: HashSet<&'a str> = HashSet::new();
        let mut iterator = Attributes::new(content, name_length);
        // Uniqueness is checked below: the parser's own check is quadratic.
        iterator.with_checks(false);
        for (number, attribute) in iterator.enumerate() {
            self.pace.step()?;
            if number >= MOST_ATTRIBUTES {
                let message = format!("<{}>: more than {MOST_ATTRIBUTES} attributes", excerpt(element.name));
                return Err(self.malformed(offset, &message));
            }
            let attribute = match attribute {
                Ok(attribute) => attribute,
                Err(error) => {
                    return Err(self
                        .malformed(offset, &format!("<{}>: {}", excerpt(element.name), excerpt(&error.to_string()))));
                }
            };
            let key: &'a str = attribute.key.0;
            let wrong = |what: &str| format!("<{}>: the attribute {} {what}", excerpt(element.name), excerpt(key));
            let before = (key.as_ptr() as usize).wrapping_sub(content.as_ptr() as usize).wrapping_sub(1);
            if !content.as_bytes().get(before).is_some_and(|b| is_space(*b)) {
                return Err(self.malformed(offset, &wrong("does not follow white space")));
            }
            if !is_qualified_name(key) {
                return Err(self.malformed(offset, &wrong("has a bad name")));
            }
            let twice = if names.len() < 16 {
                let known = names.contains(&key);
                names.push(key);
                known
            } else {
                if many.is_empty() {
                    many.extend(&names);
                }
                !many.insert(key)
            };
            if twice {
                return Err(self.malformed(offset, &wrong("is there twice")));
            }
            if attribute.value.contains('<') {
                return Err(self.malformed(offset, &wrong("has a `<` in its value")));
            }
            if attribute.value.len() > self.limits.text_bytes || key.len() > self.limits.text_bytes {
                return Err(self.too_long());
            }
            let Some(value) = normalised(attribute.value) else {
                return Err(self.malformed(offset, &wrong("refers to an unknown entity or an illegal character")));
            };
            if let Some((prefix, _)) = key.split_once(':') {
                let bound = prefix == "xmlns"
                    || !matches!(self.xml.resolver().resolve_attribute(QName(key)).0, ResolveResult::Unknown(_));
                if !bound {
                    return Err(self.malformed(offset, &wrong("has a prefix that is not declared")));
                }
            } else if key != "xmlns" {
                element.attributes.push((key, value));
            }
        }
        Ok(())
    }

    fn position(&self) -> usize {
        usize::try_from(self.xml.buffer_position()).unwrap_or(self.text.len())
    }

    fn too_long(&mut self) -> Error {
        let most = self.limits.text_bytes;
        self.malformed_here(&format!("a name, attribute value or text has more than {most} bytes"))
    }

    fn malformed_here(&mut self, message: &str) -> Error {
        let offset = self.position();
        self.malformed(offset, message)
    }

    fn malformed(&mut self, offset: usize, message: &str) -> Error {
        let place = Lines::new(self.text).place(offset.min(self.text.len()));
        let message = format!("the ADL cannot be read: {message}");
        Problem::new(Stage::LogicalModel, message).code(code::UNEXPECTED).at(place).into()
    }
}

/// Turns offsets into places; cheap when they ascend.
struct Lines<'a> {
    text: &'a [u8],
    offset: usize,
    line: u32,
    start: usize,
}

impl<'a> Lines<'a> {
    fn new(text: &'a str) -> Self {
        Self { text: text.as_bytes(), offset: 0, line: 1, start: 0 }
    }

    fn place(&mut self, offset: usize) -> Place {
        if let Some(passed) = self.text.get(self.offset..offset) {
            for newline in memchr::memchr_iter(b'\n', passed) {
                self.line = self.line.saturating_add(1);
                self.start = self.offset + newline + 1;
            }
            self.offset = offset;
        }
        let column = u32::try_from(offset.saturating_sub(self.start)).unwrap_or(u32::MAX).saturating_add(1);
        Place { line: self.line, column }
    }
}

#[cfg(test)]
mod tests;
