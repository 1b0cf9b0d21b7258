//! What bodies of requests and answers say, and numbers in paths, in the form of the runtime (rule pe-api-2).
//!
//! Elements are told by their local names: the runtime has prefixes of its own. A document may leave everything out, so
//! one with another element would be read as one that says nothing: it is refused, and so is what has something beside
//! its element.
//!
//! Knows: XML and JSON of the runtime. Must not know: whose an object is, whether a change is permitted.

use super::arriving::{Media, Share, Unread};
use super::documents::readable;
use super::refusal::Refusal;
use crate::run_time::ENTRIES_MAX;
use crate::run_time::imports::{DEFAULT_SCOPE, in_order};
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use quick_xml::Reader;
use quick_xml::events::Event;
use quick_xml::se::SeError;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use spl_expression::is_no_filter;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::str::FromStr;
use streams_api::{ImportedStreams, NameBasedImport, PropertyBasedImport, StreamProperty};

/// Names of elements that describe applications.
const OF_APPLICATION: &str = "http://www.ibm.com/xmlns/prod/streams/application";

/// Numbers in paths.
pub(super) struct Number;

impl Number {
    /// A number, where another text is an invalid request.
    pub(super) fn of_path<T: FromStr>(text: &str) -> Result<T, Refusal> {
        text.parse().map_err(|_| Refusal::Invalid(format!("{} is no number", text.escape_debug())))
    }

    /// A number, where nothing is found under another text.
    pub(super) fn of_path_or_absent<T: FromStr>(text: &str) -> Result<T, Refusal> {
        text.parse().map_err(|_| Refusal::Absent(format!("{} is no number", text.escape_debug())))
    }
}

/// An XML document of an answer.
#[derive(Debug)]
pub(super) struct Xml<T>(pub(super) T);

impl Unread {
    /// What the XML document says, and the memory that it takes.
    ///
    /// # Errors
    /// The body cannot be had as [`Unread::document`] says, or is no such document.
    pub(super) async fn xml<T: Root + DeserializeOwned>(self) -> Result<(T, Share), Refusal> {
        if self.media() == Media::Other {
            return Err(Refusal::Media("application/xml"));
        }
        let (text, share) = self.document().await?;
        let read = read(&text).map_err(|words| Refusal::Invalid(format!("the body cannot be read: {words}")))?;
        Ok((read, share))
    }
}

/// An element that can be the root of a document.
pub(super) trait Root {
    /// Its name.
    const NAME: &'static str;
}

/// What an XML document says.
///
/// # Errors
/// It is no such document: what may be left out of one would be read of any other.
fn read<T: Root + DeserializeOwned>(text: &str) -> Result<T, String> {
    let root = root(text)?;
    if root != T::NAME {
        return Err(format!("its element is {}, not {}", root.escape_debug(), T::NAME));
    }
    quick_xml::de::from_str(text).map_err(|error| error.to_string())
}

/// The local name of the one element of a document.
///
/// # Errors
/// It is not well-formed, or there is something else beside that element than comments and the like.
fn root(text: &str) -> Result<String, String> {
    let besides = || "there is something beside its element".to_owned();
    let mut reader = Reader::from_str(text);
    let (mut root, mut depth) = (None, 0_usize);
    loop {
        let event = reader.read_event().map_err(|error| error.to_string())?;
        match &event {
            Event::Start(tag) | Event::Empty(tag) => {
                if depth == 0 && root.replace(tag.local_name().into_inner().to_owned()).is_some() {
                    return Err(besides());
                }
                depth += usize::from(matches!(&event, Event::Start(_)));
            }
            Event::End(_) => depth = depth.saturating_sub(1),
            Event::Text(text) if depth == 0 && !text.trim().is_empty() => return Err(besides()),
            Event::CData(_) | Event::GeneralRef(_) if depth == 0 => return Err(besides()),
            Event::Eof => return root.ok_or_else(|| "there is no element".to_owned()),
            _ => {}
        }
    }
}

/// The XML document that says this.
fn written<T: Root + Serialize>(what: &T) -> Result<String, SeError> {
    let text = quick_xml::se::to_string_with_root(T::NAME, what)?;
    let replaced = match readable(&text) {
        Cow::Borrowed(_) => None,
        Cow::Owned(replaced) => Some(replaced),
    };
    Ok(replaced.unwrap_or(text))
}

impl<T: Root + Serialize> IntoResponse for Xml<T> {
    fn into_response(self) -> Response {
        match written(&self.0) {
            Ok(text) => ([(CONTENT_TYPE, "application/xml")], text).into_response(),
            Err(error) => Refusal::Later(error.to_string()).into_response(),
        }
    }
}

/// Properties of an exported stream.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Properties {
    #[serde(rename = "@xmlns", default)]
    xmlns: String,
    #[serde(rename = "property", default)]
    properties: Vec<InnerProperty>,
}

/// One of them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct InnerProperty {
    #[serde(rename = "@name")]
    name: String,
    #[serde(rename = "@type")]
    kind: String,
    #[serde(rename = "value", default)]
    values: Vec<String>,
}

impl Root for Properties {
    const NAME: &'static str = "streamProperties";
}

impl Root for OneProperty {
    const NAME: &'static str = "streamProperty";
}

/// One property of an exported stream, as a document.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct OneProperty {
    #[serde(rename = "@xmlns", default)]
    xmlns: String,
    #[serde(rename = "@name")]
    name: String,
    #[serde(rename = "@type")]
    kind: String,
    #[serde(rename = "value", default)]
    values: Vec<String>,
}

impl From<&StreamProperty> for OneProperty {
    fn from(StreamProperty { name, property_type, values }: &StreamProperty) -> Self {
        let (name, kind, values) = (name.clone(), property_type.clone(), values.clone());
        Self { xmlns: OF_APPLICATION.to_owned(), name, kind, values }
    }
}

impl From<OneProperty> for StreamProperty {
    fn from(OneProperty { name, kind, values, .. }: OneProperty) -> Self {
        Self { name, property_type: kind, values }
    }
}

impl Properties {
    /// The document of these properties.
    pub(super) fn of<'a>(properties: impl IntoIterator<Item = &'a StreamProperty>) -> Self {
        let inner = |StreamProperty { name, property_type, values }: &StreamProperty| InnerProperty {
            name: name.clone(),
            kind: property_type.clone(),
            values: values.clone(),
        };
        Self { xmlns: OF_APPLICATION.to_owned(), properties: properties.into_iter().map(inner).collect() }
    }

    /// The properties of the document.
    ///
    /// # Errors
    /// They are more than an export has.
    pub(super) fn into_properties(self) -> Result<Vec<StreamProperty>, Refusal> {
        at_most("properties", self.properties.len())?;
        let property = |InnerProperty { name, kind, values }| StreamProperty { name, property_type: kind, values };
        Ok(self.properties.into_iter().map(property).collect())
    }
}

fn at_most(what: &str, count: usize) -> Result<(), Refusal> {
    if count > ENTRIES_MAX {
        return Err(Refusal::Invalid(format!("the body has {count} {what}, more than {ENTRIES_MAX}")));
    }
    Ok(())
}

/// Names of properties.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub(super) struct PropertyNames {
    #[serde(rename = "@scope", default)]
    scope: String,
    #[serde(rename = "name", default)]
    names: Vec<PropertyName>,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
struct PropertyName {
    #[serde(rename = "$text", default)]
    text: Option<String>,
    #[serde(rename = "name", default)]
    inner: Vec<String>,
}

impl PropertyNames {
    /// The names of those that are to be read; `None` if all are. Who lists none asks for all.
    ///
    /// # Errors
    /// They are more than an export has.
    pub(super) fn into_those_to_read(self) -> Result<Option<Vec<String>>, Refusal> {
        Ok(self.listed()?.filter(|names| !names.is_empty()))
    }

    /// The names of those that are to be removed; `None` if all are. Who lists none removes none: an operator may do so
    /// with an empty list.
    ///
    /// # Errors
    /// Likewise.
    pub(super) fn into_those_to_remove(self) -> Result<Option<Vec<String>>, Refusal> {
        self.listed()
    }

    /// The names that are listed; `None` if the scope is all.
    fn listed(self) -> Result<Option<Vec<String>>, Refusal> {
        if self.scope == "all" {
            return Ok(None);
        }
        let each = |name: PropertyName| name.text.into_iter().chain(name.inner);
        let names: Vec<String> = self.names.into_iter().flat_map(each).collect();
        at_most("names", names.len())?;
        Ok(Some(names))
    }
}

impl Root for PropertyNames {
    const NAME: &'static str = "streamPropertyNames";
}

/// What an input port asks for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Streams {
    #[serde(rename = "@xmlns", default)]
    xmlns: String,
    #[serde(rename = "@filter", default, skip_serializing_if = "Option::is_none")]
    filter: Option<String>,
    #[serde(rename = "nameBasedImport", default)]
    named: Vec<Named>,
    #[serde(rename = "propertyBasedImport", default, skip_serializing_if = "Option::is_none")]
    by_properties: Option<ByProperties>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Named {
    #[serde(rename = "@applicationName", default)]
    application_name: String,
    #[serde(rename = "@importOperName", default)]
    import_oper_name: String,
    #[serde(rename = "@streamName")]
    stream_name: String,
    #[serde(rename = "@index", default)]
    index: u64,
    #[serde(rename = "@applicationScope", default = "default_scope")]
    application_scope: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct ByProperties {
    #[serde(rename = "@subscription")]
    subscription: String,
    #[serde(rename = "@importOperName", default)]
    import_oper_name: String,
    #[serde(rename = "@index", default)]
    index: u64,
    #[serde(rename = "@applicationScope", default = "default_scope")]
    application_scope: String,
}

/// The scope of applications that name none.
fn default_scope() -> String {
    DEFAULT_SCOPE.to_owned()
}

impl Root for Streams {
    const NAME: &'static str = "importedStreams";
}

impl From<&ImportedStreams> for Streams {
    /// Streams by name are numbered from 1, in the order of their numbers.
    fn from(streams: &ImportedStreams) -> Self {
        let named = in_order(streams).into_iter().zip(1..).map(|(named, index)| Named {
            application_name: named.application_name.clone(),
            import_oper_name: named.import_oper_name.clone(),
            stream_name: named.stream_name.clone(),
            index,
            application_scope: named.application_scope.clone(),
        });
        let by_properties = streams.property_based_import.as_ref().map(|import| ByProperties {
            subscription: import.subscription.clone(),
            import_oper_name: import.import_oper_name.clone(),
            index: import.index,
            application_scope: import.application_scope.clone(),
        });
        Self { xmlns: OF_APPLICATION.to_owned(), filter: streams.filter.clone(), named: named.collect(), by_properties }
    }
}

impl From<Streams> for ImportedStreams {
    fn from(streams: Streams) -> Self {
        let named = streams.named.into_iter().zip(0u64..).map(|(named, number)| {
            let import = NameBasedImport {
                application_name: named.application_name,
                application_scope: named.application_scope,
                stream_name: named.stream_name,
                import_oper_name: named.import_oper_name,
            };
            (number.to_string(), import)
        });
        let named: BTreeMap<String, NameBasedImport> = named.collect();
        let by_properties = streams.by_properties.map(|import| PropertyBasedImport {
            subscription: import.subscription,
            application_scope: import.application_scope,
            import_oper_name: import.import_oper_name,
            index: import.index,
        });
        let filter = streams.filter.filter(|filter| !is_no_filter(filter));
        Self { name_based_imports: named, property_based_import: by_properties, filter }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_properties_are_read_in_both_forms() {
        // document -> names to be read, to be removed; None if all are meant
        type Names = Option<&'static [&'static str]>;
        let table: [(&str, Names, Names); 7] = [
            (r#"<streamPropertyNames scope="all"/>"#, None, None),
            (r#"<sam:streamPropertyNames xmlns:sam="x" scope="listed"/>"#, None, Some(&[])),
            (r#"<streamPropertyNames scope="listed"></streamPropertyNames>"#, None, Some(&[])),
            ("<streamPropertyNames/>", None, Some(&[])),
            (
                r#"<streamPropertyNames scope="listed"><name>a</name><name>b</name></streamPropertyNames>"#,
                Some(&["a", "b"]),
                Some(&["a", "b"]),
            ),
            (
                r#"<s:streamPropertyNames xmlns:s="x"><s:name><s:name>a</s:name></s:name></s:streamPropertyNames>"#,
                Some(&["a"]),
                Some(&["a"]),
            ),
            (r#"<streamPropertyNames scope="all"><name>a</name></streamPropertyNames>"#, None, None),
        ];
        for (text, to_read, to_remove) in table {
            let read: PropertyNames = read(text).unwrap();
            let owned = |names: Names| names.map(|names| names.iter().map(|name| (*name).to_owned()).collect());
            assert_eq!(
                (read.clone().into_those_to_read().unwrap(), read.into_those_to_remove().unwrap()),
                (owned(to_read), owned(to_remove)),
                "{text}"
            );
        }
    }

    #[test]
    fn properties_are_written_as_they_are_read() {
        let text = concat!(
            r#"<p:streamProperties xmlns:p="http://www.ibm.com/xmlns/prod/streams/application">"#,
            r#"<p:property name="tickers" type="list&lt;rstring&gt;"><p:value>"IBM"</p:value><p:value>"A&amp;B"</p:value>"#,
            r#"</p:property><p:property name="n" type="int64"><p:value>1</p:value></p:property></p:streamProperties>"#,
        );
        let properties = read::<Properties>(text).unwrap().into_properties().unwrap();
        let property = |name: &str, kind: &str, values: &[&str]| StreamProperty {
            name: name.to_owned(),
            property_type: kind.to_owned(),
            values: values.iter().map(|value| (*value).to_owned()).collect(),
        };
        assert_eq!(
            properties,
            [property("tickers", "list<rstring>", &["\"IBM\"", "\"A&B\""]), property("n", "int64", &["1"]),]
        );
        let all = written(&Properties::of(&properties)).unwrap();
        let again = read::<Properties>(&all).unwrap().into_properties();
        assert_eq!(again.unwrap(), properties, "{all}");
        let one = written(&OneProperty::from(&properties[1])).unwrap();
        let expected = r#"<streamProperty xmlns="http://www.ibm.com/xmlns/prod/streams/application" name="n" type="int64"><value>1</value></streamProperty>"#;
        assert_eq!(one, expected);
        // What no XML has would keep the runtime from reading any property.
        let one = written(&OneProperty::from(&property("n", "rstring", &["\u{1}"]))).unwrap();
        assert!(one.contains("<value>\u{fffd}</value>"), "{one}");
    }

    #[test]
    fn streams_are_written_as_they_are_read() {
        let text = concat!(
            r#"<importedStreams xmlns="http://www.ibm.com/xmlns/prod/streams/application" filter="a &lt; 1">"#,
            r#"<nameBasedImport applicationName="x::Y" importOperName="In" streamName="s" index="1" applicationScope="S"/>"#,
            r#"<nameBasedImport applicationName="" importOperName="In" streamName="t" index="2" applicationScope="Default"/>"#,
            r#"<propertyBasedImport subscription="b == &quot;c&quot;" importOperName="In" index="3" applicationScope="S"/>"#,
            r#"</importedStreams>"#,
        );
        let streams = ImportedStreams::from(read::<Streams>(text).unwrap());
        assert_eq!(streams.name_based_imports.keys().collect::<Vec<_>>(), ["0", "1"]);
        assert_eq!(streams.property_based_import.as_ref().unwrap().subscription, "b == \"c\"");
        let written = written(&Streams::from(&streams)).unwrap();
        let again: Streams = read(&written).unwrap();
        assert_eq!(ImportedStreams::from(again), streams, "{written}");
        let least = r#"<importedStreams><propertyBasedImport subscription="x"/></importedStreams>"#;
        let least: Streams = read(least).unwrap();
        assert_eq!(ImportedStreams::from(least).property_based_import.unwrap().application_scope, "Default");
    }

    #[test]
    fn a_document_may_have_what_xml_permits_beside_its_element() {
        let element =
            r#"<streamProperties><property name="n" type="int64"><value>1</value></property></streamProperties>"#;
        let table = [
            element.to_owned(),
            format!("\u{feff}{element}"),
            format!("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<!-- a -->\n{element}\n<!-- b -->\n<?c d?>\n"),
        ];
        for text in table {
            assert_eq!(read::<Properties>(&text).unwrap().properties.len(), 1, "{text}");
        }
    }

    #[test]
    fn what_is_no_such_document_is_refused() {
        let deep = format!("{}{}", "<a>".repeat(100_000), "</a>".repeat(100_000));
        let table = [
            "",
            " ",
            "<!-- a -->",
            "plain",
            "<a",
            "<streamProperties",
            "<streamProperties>",
            "<streamProperties></a>",
            "</streamProperties>",
            "<streamProperties><a></streamProperties>",
            "<streamProperties><property/></streamProperties>",
            r#"<streamProperties><property name="n"/></streamProperties>"#,
            // Nothing of them would be missed.
            "<a/>",
            "<a><b></b></a>",
            "<property/>",
            "<streamproperties/>",
            "<streamPropertyNames/>",
            "<a:streamProperty xmlns:a=\"u\"/>",
            "<streamProperties/>junk",
            "junk<streamProperties/>",
            "<streamProperties/>&lt;",
            "<streamProperties/><![CDATA[a]]>",
            "<streamProperties/><streamProperties/>",
            "<streamProperties/><a",
            "<streamProperties/></a>",
            &deep,
        ];
        for text in table {
            let read = read::<Properties>(text);
            assert!(read.is_err(), "{}: {read:?}", &text[..text.len().min(80)]);
        }
        for text in ["<streamProperties/>", "<a/>", "<importedStreams/>junk", ""] {
            assert!(read::<Streams>(text).is_err() && read::<PropertyNames>(text).is_err(), "{text}");
        }
        // What is not known within a document is passed over, however deep it is.
        let within = format!("<a:streamProperties xmlns:a=\"u\">{deep}</a:streamProperties>");
        assert_eq!(read::<Properties>(&within).map(|read| read.properties), Ok(Vec::new()));
    }
}
