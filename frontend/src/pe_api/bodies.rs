//! What bodies of requests and answers say, and numbers in paths, in the form of the runtime (rule pe-api-2).
//!
//! Elements are told by their local names: the runtime has prefixes of its own.
//!
//! Knows: XML and JSON of the runtime. Must not know: whose an object is, whether a change is permitted.

use super::arriving::{Media, Share, Unread};
use super::refusal::Refusal;
use crate::run_time::imports::{DEFAULT_SCOPE, in_order};
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use spl_expression::is_no_filter;
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
    pub(super) async fn xml<T: DeserializeOwned>(self) -> Result<(T, Share), Refusal> {
        if self.media() == Media::Other {
            return Err(Refusal::Media("application/xml"));
        }
        let (text, share) = self.document().await?;
        let read = quick_xml::de::from_str(&text);
        let read = read.map_err(|error| Refusal::Invalid(format!("the body cannot be read: {error}")))?;
        Ok((read, share))
    }
}

/// An element that can be the root of an answer.
pub(super) trait Root: Serialize {
    /// Its name.
    const NAME: &'static str;
}

impl<T: Root> IntoResponse for Xml<T> {
    fn into_response(self) -> Response {
        match quick_xml::se::to_string_with_root(T::NAME, &self.0) {
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
    pub(super) fn into_properties(self) -> Vec<StreamProperty> {
        let property = |InnerProperty { name, kind, values }| StreamProperty { name, property_type: kind, values };
        self.properties.into_iter().map(property).collect()
    }
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
    pub(super) fn into_those_to_read(self) -> Option<Vec<String>> {
        self.listed().filter(|names| !names.is_empty())
    }

    /// The names of those that are to be removed; `None` if all are. Who lists none removes none: an operator may do so
    /// with an empty list.
    pub(super) fn into_those_to_remove(self) -> Option<Vec<String>> {
        self.listed()
    }

    /// The names that are listed; `None` if the scope is all.
    fn listed(self) -> Option<Vec<String>> {
        let each = |name: PropertyName| name.text.into_iter().chain(name.inner);
        (self.scope != "all").then(|| self.names.into_iter().flat_map(each).collect())
    }
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
            let read: PropertyNames = quick_xml::de::from_str(text).unwrap();
            let owned = |names: Names| names.map(|names| names.iter().map(|name| (*name).to_owned()).collect());
            assert_eq!(
                (read.clone().into_those_to_read(), read.into_those_to_remove()),
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
        let read: Properties = quick_xml::de::from_str(text).unwrap();
        let properties = read.into_properties();
        let property = |name: &str, kind: &str, values: &[&str]| StreamProperty {
            name: name.to_owned(),
            property_type: kind.to_owned(),
            values: values.iter().map(|value| (*value).to_owned()).collect(),
        };
        assert_eq!(
            properties,
            [property("tickers", "list<rstring>", &["\"IBM\"", "\"A&B\""]), property("n", "int64", &["1"]),]
        );
        let written = quick_xml::se::to_string_with_root(Properties::NAME, &Properties::of(&properties)).unwrap();
        let again: Properties = quick_xml::de::from_str(&written).unwrap();
        assert_eq!(again.into_properties(), properties, "{written}");
        let one = quick_xml::se::to_string_with_root(OneProperty::NAME, &OneProperty::from(&properties[1])).unwrap();
        let expected = r#"<streamProperty xmlns="http://www.ibm.com/xmlns/prod/streams/application" name="n" type="int64"><value>1</value></streamProperty>"#;
        assert_eq!(one, expected);
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
        let read: Streams = quick_xml::de::from_str(text).unwrap();
        let streams = ImportedStreams::from(read);
        assert_eq!(streams.name_based_imports.keys().collect::<Vec<_>>(), ["0", "1"]);
        assert_eq!(streams.property_based_import.as_ref().unwrap().subscription, "b == \"c\"");
        let written = quick_xml::se::to_string_with_root(Streams::NAME, &Streams::from(&streams)).unwrap();
        let again: Streams = quick_xml::de::from_str(&written).unwrap();
        assert_eq!(ImportedStreams::from(again), streams, "{written}");
        let least: Streams =
            quick_xml::de::from_str(r#"<importedStreams><propertyBasedImport subscription="x"/></importedStreams>"#)
                .unwrap();
        assert_eq!(ImportedStreams::from(least).property_based_import.unwrap().application_scope, "Default");
    }

    #[test]
    fn what_is_no_such_document_is_refused() {
        for text in ["", "<a", "<streamProperties><property/></streamProperties>", "plain", "<a><b></a></b>"] {
            assert!(
                quick_xml::de::from_str::<Properties>(text)
                    .map(Properties::into_properties)
                    .map_or(true, |all| all.is_empty()),
                "{text}"
            );
        }
        let deep = format!("{}{}", "<a>".repeat(100_000), "</a>".repeat(100_000));
        assert!(quick_xml::de::from_str::<Properties>(&deep).map_or(true, |read| read.properties.is_empty()));
    }
}
