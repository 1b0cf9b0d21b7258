//! The changes that a submission makes to an ADL (rule bundle-8): build id and directories of the application.
//!
//! The text of one start tag is edited, so that nothing else can change. The tag is that of the first child of the root
//! with the name and namespace of either dialect, whatever its prefix.

use crate::Error;
use crate::name::beginning;
use quick_xml::NsReader;
use quick_xml::escape::escape;
use quick_xml::events::{BytesStart, Event};
use quick_xml::name::{Namespace, ResolveResult};
use std::ops::Range;

/// Name and namespace of the application element of each dialect.
const APPLICATIONS: [(&str, &str); 2] = [
    ("splApplication", "http://www.ibm.com/xmlns/prod/streams/application/v4200"),
    ("application", "http://www.ibm.com/xmlns/prod/streams/application"),
];
/// Where a pod unpacks the bundle.
const ASSETS: &str = "/tmp/assets/";
const MAXIMUM_DEPTH: usize = 256;
/// Octets of a start tag, up to that of the application (rule bundle-6). What is in a tag is kept several times over,
/// and what of it is written into the ADL is up to twelve times as long there.
const MAXIMUM_TAG: usize = 64 << 10;

/// The ADL with the attributes of its application element set.
pub(crate) fn rewrite(adl: &str, build_id: &str) -> Result<String, Error> {
    // The parser counts offsets from behind a byte order mark.
    let (mark, adl) = adl.split_at(if adl.starts_with('\u{feff}') { '\u{feff}'.len_utf8() } else { 0 });
    if build_id.len() > MAXIMUM_TAG {
        return Err(Error::limit("the build id of the bundle", MAXIMUM_TAG as u64, "octets"));
    }
    let tag = application_tag(adl)?;
    let output = tag.value("outputDirectory");
    let application = tag.value("applicationDirectory");
    // The values are taken as they are written, references and all: only the quotes may differ.
    let edits = [
        ("buildId", escape(build_id).replace('\t', "&#9;").replace('\n', "&#10;").replace('\r', "&#13;")),
        ("outputDirectory", format!("{ASSETS}{}", requoted(output))),
        ("applicationDirectory", format!("{ASSETS}{}/{}", requoted(output), requoted(application))),
    ];
    Ok(tag.edited(mark, adl, &edits))
}

/// A written value for use in double quotes.
fn requoted(value: &str) -> String {
    value.replace('"', "&quot;")
}

/// The start tag of the application.
struct Tag<'t> {
    /// The place behind the name.
    name_end: usize,
    attributes: Vec<Written<'t>>,
}

/// An attribute as it is written, and where.
struct Written<'t> {
    name: &'t str,
    value: &'t str,
    /// The value with its quotes.
    place: Range<usize>,
}

impl Tag<'_> {
    /// The written value; empty if there is none.
    fn value(&self, name: &str) -> &str {
        self.attributes.iter().find(|attribute| attribute.name == name).map_or("", |attribute| attribute.value)
    }

    /// The text behind a mark, with other values of these attributes; those that are not there come behind the name of
    /// the element. It is written once, into as much memory as it needs: it may be large.
    fn edited(&self, mark: &str, text: &str, edits: &[(&str, String)]) -> String {
        let mut pieces: Vec<(Range<usize>, String)> = edits
            .iter()
            .map(|(name, value)| match self.attributes.iter().find(|attribute| attribute.name == *name) {
                Some(attribute) => (attribute.place.clone(), format!("\"{value}\"")),
                None => (self.name_end..self.name_end, format!(" {name}=\"{value}\"")),
            })
            .collect();
        pieces.sort_by_key(|(place, _)| place.start);
        let written: usize = pieces.iter().map(|(_, piece)| piece.len()).sum();
        let mut edited = String::with_capacity(mark.len() + text.len() + written);
        edited.push_str(mark);
        let mut position = 0;
        for (place, piece) in pieces {
            edited.push_str(&text[position..place.start]);
            edited.push_str(&piece);
            position = place.end;
        }
        edited.push_str(&text[position..]);
        edited
    }
}

fn application_tag(adl: &str) -> Result<Tag<'_>, Error> {
    let mut reader = NsReader::from_str(adl);
    let mut depth = 0usize;
    loop {
        let event = reader.read_event().map_err(|error| {
            Error::Adl(format!("not well-formed at offset {}: {}", reader.error_position(), beginning(error)))
        })?;
        match event {
            Event::Start(start) | Event::Empty(start) if start.len() > MAXIMUM_TAG => {
                return Err(Error::limit("a tag in the ADL of the bundle", MAXIMUM_TAG as u64, "octets"));
            }
            Event::Start(start) | Event::Empty(start) if depth == 1 && is_application(&reader, &start) => {
                return tag(adl, reader.buffer_position() as usize, &start);
            }
            Event::Start(_) if depth >= MAXIMUM_DEPTH => {
                return Err(Error::Adl(format!("more than {MAXIMUM_DEPTH} elements within each other")));
            }
            Event::Start(_) => depth += 1,
            Event::End(_) => depth = depth.saturating_sub(1),
            Event::DocType(_) => return Err(Error::Adl("a document type declaration is not allowed".to_owned())),
            Event::Eof => return Err(Error::Adl("there is no element splApplication or application".to_owned())),
            _ => {}
        }
    }
}

fn is_application(reader: &NsReader<&[u8]>, start: &BytesStart<'_>) -> bool {
    APPLICATIONS.iter().any(|(name, namespace)| {
        start.local_name().as_ref() == *name
            && matches!(reader.resolver().resolve_element(start.name()).0,
                ResolveResult::Bound(Namespace(bound)) if bound == *namespace)
    })
}

/// Finds the attributes of a start tag that ends at `end`. The parser has checked that it is one.
fn tag<'t>(adl: &'t str, end: usize, start: &BytesStart<'_>) -> Result<Tag<'t>, Error> {
    let broken = || Error::Adl(format!("the tag of the application that ends at offset {end} is not well-formed"));
    // Up to `>` or `/>`.
    let content_end =
        end.saturating_sub(if adl.get(..end).is_some_and(|before| before.ends_with("/>")) { 2 } else { 1 });
    let content_start = content_end.checked_sub(start.len()).ok_or_else(broken)?;
    let name_end = content_start + start.name().as_ref().len();
    let mut attributes = Vec::new();
    let mut position = name_end;
    for attribute in start.attributes() {
        let attribute =
            attribute.map_err(|error| Error::Adl(format!("the tag of the application: {}", beginning(error))))?;
        let after = |position: usize, text: &str| {
            let rest = adl.get(position..content_end)?;
            let trimmed = rest.trim_start();
            trimmed.starts_with(text).then(|| position + rest.len() - trimmed.len() + text.len())
        };
        let name_end = after(position, attribute.key.as_ref()).ok_or_else(broken)?;
        let quote = after(name_end, "=").ok_or_else(broken)?;
        let value_start = after(quote, "\"").or_else(|| after(quote, "'")).ok_or_else(broken)?;
        let value_end = value_start + attribute.value.len();
        let name = adl.get(name_end - attribute.key.as_ref().len()..name_end).ok_or_else(broken)?;
        let value = adl.get(value_start..value_end).ok_or_else(broken)?;
        attributes.push(Written { name, value, place: value_start - 1..value_end + 1 });
        position = value_end + 1;
    }
    Ok(Tag { name_end, attributes })
}

#[cfg(test)]
mod tests {
    use super::*;

    const V4200: &str = "http://www.ibm.com/xmlns/prod/streams/application/v4200";
    const V4000: &str = "http://www.ibm.com/xmlns/prod/streams/application";

    #[test]
    fn only_the_three_attributes_change() {
        let table = [
            // As compilers write it.
            (
                format!(
                    "<?xml version=\"1.0\"?>\n<applicationSet xmlns=\"{V4200}\" name=\"x\"><description/>\n  <splApplication name=\"a\" applicationDirectory=\"toolkits/t\" outputDirectory=\"out\" buildId=\"\" z=\"1\">\n<splApplication buildId=\"\"/></splApplication></applicationSet>\n"
                ),
                format!(
                    "<?xml version=\"1.0\"?>\n<applicationSet xmlns=\"{V4200}\" name=\"x\"><description/>\n  <splApplication name=\"a\" applicationDirectory=\"/tmp/assets/out/toolkits/t\" outputDirectory=\"/tmp/assets/out\" buildId=\"8640&lt;&amp;&quot;&#10;\" z=\"1\">\n<splApplication buildId=\"\"/></splApplication></applicationSet>\n"
                ),
            ),
            // The old dialect, with a prefix, odd spacing, and quotes of both kinds.
            (
                format!(
                    "<a:applicationSet xmlns:a='{V4000}'><!-- <a:application/> --><a:application\toutputDirectory = 'o\"&amp;&#x41;' \n applicationDirectory=\"it's\"   buildId='x'/></a:applicationSet>"
                ),
                format!(
                    "<a:applicationSet xmlns:a='{V4000}'><!-- <a:application/> --><a:application\toutputDirectory = \"/tmp/assets/o&quot;&amp;&#x41;\" \n applicationDirectory=\"/tmp/assets/o&quot;&amp;&#x41;/it's\"   buildId=\"8640&lt;&amp;&quot;&#10;\"/></a:applicationSet>"
                ),
            ),
            // Attributes that are not there are added; those of another namespace are not meant.
            (
                format!(
                    "<applicationSet xmlns=\"{V4200}\" xmlns:o=\"other\"><o:splApplication/><splApplication o:buildId=\"1\"/></applicationSet>"
                ),
                format!(
                    "<applicationSet xmlns=\"{V4200}\" xmlns:o=\"other\"><o:splApplication/><splApplication buildId=\"8640&lt;&amp;&quot;&#10;\" outputDirectory=\"/tmp/assets/\" applicationDirectory=\"/tmp/assets//\" o:buildId=\"1\"/></applicationSet>"
                ),
            ),
            // A name that begins another, a greater-than sign in a value, a byte order mark.
            (
                format!(
                    "\u{feff}<applicationSet xmlns=\"{V4200}\"><splApplication xbuildId=\"><\" buildId=\"buildId='1'\" outputDirectory=\"ö\" applicationDirectory=\"\"></splApplication></applicationSet>"
                ),
                format!(
                    "\u{feff}<applicationSet xmlns=\"{V4200}\"><splApplication xbuildId=\"><\" buildId=\"8640&lt;&amp;&quot;&#10;\" outputDirectory=\"/tmp/assets/ö\" applicationDirectory=\"/tmp/assets/ö/\"></splApplication></applicationSet>"
                ),
            ),
        ];
        for (adl, expected) in table {
            assert_eq!(rewrite(&adl, "8640<&\"\n").unwrap(), expected);
        }
    }

    #[test]
    fn tags_up_to_that_of_the_application_have_a_limit() {
        let adl = |tag: &str| format!("<applicationSet xmlns=\"{V4200}\"><{tag}/></applicationSet>");
        let long = "x".repeat(MAXIMUM_TAG + 1);
        let exact = format!("splApplication outputDirectory='{}'", "\"".repeat(MAXIMUM_TAG - 33));
        assert_eq!(exact.len(), MAXIMUM_TAG);
        assert!(rewrite(&adl(&exact), "").unwrap().len() > 12 * (MAXIMUM_TAG - 33));
        let table = [
            adl(&format!("{exact} ")),
            adl(&format!("splApplication{}", " a=''".repeat(MAXIMUM_TAG))),
            adl(&format!("{long}></{long}")),
            format!("<{long}>{}", adl("x")),
        ];
        for adl in table {
            let error = rewrite(&adl, "").unwrap_err();
            assert_eq!(error.to_string(), "a tag in the ADL of the bundle exceeds the limit of 65536 octets");
        }
        let error = rewrite(&adl("splApplication"), &"&".repeat(MAXIMUM_TAG + 1)).unwrap_err();
        assert_eq!(error.to_string(), "the build id of the bundle exceeds the limit of 65536 octets");
        // Behind it there is none.
        assert!(rewrite(&adl(&format!("splApplication/><{long}")), "").is_ok());
    }

    #[test]
    fn a_message_repeats_the_beginning_of_a_name_only() {
        let error = rewrite(&format!("<a></{}>", "b".repeat(1 << 20)), "").unwrap_err().to_string();
        assert!(error.contains("not well-formed at offset") && error.len() < 500, "{error}");
    }

    #[test]
    fn without_an_application() {
        let deep = format!("<a>{}", "<b>".repeat(300));
        let table = [
            ("", "there is no element splApplication or application"),
            ("<splApplication/>", "there is no element splApplication or application"),
            ("<applicationSet><splApplication/></applicationSet>", "there is no element splApplication or application"),
            (
                "<applicationSet xmlns='http://www.ibm.com/xmlns/prod/streams/application'><splApplication/></applicationSet>",
                "there is no",
            ),
            ("<!DOCTYPE x [<!ENTITY a 'b'>]><x/>", "a document type declaration is not allowed"),
            ("<a><b></a>", "not well-formed at offset"),
            ("<a", "not well-formed at offset 0"),
            (&deep, "more than 256 elements within each other"),
            (
                "<a xmlns='http://www.ibm.com/xmlns/prod/streams/application'><application a='' a=''/></a>",
                "duplicated attribute",
            ),
            (
                "<a xmlns='http://www.ibm.com/xmlns/prod/streams/application'><application a=b/></a>",
                "the tag of the application",
            ),
        ];
        for (adl, message) in table {
            let error = rewrite(adl, "").unwrap_err().to_string();
            assert!(error.starts_with("the ADL of the bundle: ") && error.contains(message), "{adl}: {error}");
        }
    }
}
