//! The state of the instance as a document, XML or JSON, written piece by piece (rule pe-api-10).
//!
//! Knows: the names of elements and attributes, the order in which they come. Must not know: where values come from.
//!
//! Invariant: all pieces together are one well-formed document, whatever texts the values have.

use quick_xml::Writer;
use quick_xml::events::{BytesEnd, BytesStart, Event};
use serde::Serialize;
use std::borrow::Cow;
use std::io::{self, Write as _};
use streams_api::UserEndpoint;

/// Names of elements that describe states.
const OF_STATE: &str = "http://www.ibm.com/xmlns/prod/streams/api/state";

/// The instance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct InstanceState {
    /// The namespace.
    pub(super) id: String,
    /// Seconds since 1970.
    pub(super) request_time: i64,
}

/// A job, without its PEs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct JobState {
    pub(super) id: u64,
    pub(super) name: String,
    pub(super) application_name: String,
    pub(super) state: &'static str,
    pub(super) health_summary: &'static str,
    pub(super) user: &'static str,
    /// Seconds since 1970.
    pub(super) submit_time: i64,
    /// Only in JSON.
    pub(super) parallel_regions: Vec<RegionState>,
}

/// A parallel region.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct RegionState {
    pub(super) name: String,
    /// The width that is wanted.
    pub(super) width: u32,
    /// The width in force.
    pub(super) applied_width: Option<u32>,
}

/// A PE.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PeState {
    pub(super) id: u64,
    /// The node; empty, if there is none.
    pub(super) host: String,
    /// Nobody knows it: 0.
    pub(super) process_id: u64,
    pub(super) state: &'static str,
    pub(super) reason_code: &'static str,
    pub(super) health_summary: &'static str,
    pub(super) required_connections: &'static str,
    pub(super) optional_connections: &'static str,
    pub(super) launch_count: u64,
    /// How many operators it has; not all of them are listed.
    pub(super) operator_count: u32,
    pub(super) operators: Vec<OperatorState>,
    pub(super) input_ports: Vec<InputPortState>,
    pub(super) output_ports: Vec<OutputPortState>,
    pub(super) endpoints: Vec<UserEndpoint>,
}

/// An operator.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct OperatorState {
    pub(super) name: String,
}

/// An input port of a PE.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct InputPortState {
    pub(super) index: u32,
}

/// An output port of a PE that is exported.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct OutputPortState {
    pub(super) index: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) stream_name: Option<String>,
    pub(super) connections: Vec<ConnectionState>,
}

/// A connection from an exported port to a port that imports.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ConnectionState {
    pub(super) input_job_id: u64,
    pub(super) input_pe_id: u64,
    pub(super) input_port_index: u32,
    /// A connection between an export and an import may be missing.
    pub(super) required: bool,
}

/// The form of a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    Xml,
    Json,
}

impl Form {
    /// What a caller accepts first; XML, if it does not say.
    pub(super) fn accepted(accept: &str) -> Self {
        let media = accept.split(',').map(|range| range.split(';').next().unwrap_or_default().trim());
        let known = media.filter_map(|media| match &*media.to_ascii_lowercase() {
            "application/json" => Some(Self::Json),
            "application/xml" | "text/xml" | "application/*" | "text/*" | "*/*" => Some(Self::Xml),
            _ => None,
        });
        known.into_iter().next().unwrap_or(Self::Xml)
    }

    /// Its media type.
    pub(super) fn media_type(self) -> &'static str {
        match self {
            Self::Xml => "application/xml",
            Self::Json => "application/json",
        }
    }
}

/// A document that is being written.
pub(super) struct Document {
    form: Form,
    writer: Writer<Vec<u8>>,
    /// A job, or a PE of the job that is open, was written.
    has_job: bool,
    has_pe: bool,
}

impl Document {
    /// One of which nothing is written.
    pub(super) fn new(form: Form) -> Self {
        Self { form, writer: Writer::new(Vec::new()), has_job: false, has_pe: false }
    }

    /// What was written since the last time.
    pub(super) fn take(&mut self) -> Vec<u8> {
        std::mem::take(self.writer.get_mut())
    }

    /// How many bytes were written since then.
    pub(super) fn written(&self) -> usize {
        self.writer.get_ref().len()
    }

    pub(super) fn begin(&mut self, instance: &InstanceState) -> io::Result<()> {
        match self.form {
            Form::Xml => self.open(
                "instance",
                [("xmlns", OF_STATE), ("id", &instance.id), ("requestTime", &instance.request_time.to_string())],
            ),
            Form::Json => self.begin_object(instance, "jobs", false),
        }
    }

    pub(super) fn end(&mut self) -> io::Result<()> {
        self.close("instance")
    }

    pub(super) fn begin_job(&mut self, job: &JobState) -> io::Result<()> {
        self.has_pe = false;
        let is_next = std::mem::replace(&mut self.has_job, true);
        match self.form {
            Form::Xml => self.open(
                "job",
                [
                    ("id", &*job.id.to_string()),
                    ("name", &job.name),
                    ("applicationName", &job.application_name),
                    ("state", job.state),
                    ("healthSummary", job.health_summary),
                    ("user", job.user),
                    ("submitTime", &job.submit_time.to_string()),
                ],
            ),
            Form::Json => self.begin_object(job, "pes", is_next),
        }
    }

    pub(super) fn end_job(&mut self) -> io::Result<()> {
        self.close("job")
    }

    /// Writes a PE of the job with this number.
    pub(super) fn pe(&mut self, pe: &PeState, job_id: u64) -> io::Result<()> {
        let is_next = std::mem::replace(&mut self.has_pe, true);
        if self.form == Form::Json {
            let bytes = self.writer.get_mut();
            if is_next {
                bytes.push(b',');
            }
            return serde_json::to_writer(bytes, pe).map_err(io::Error::other);
        }
        self.open(
            "pe",
            [
                ("id", &*pe.id.to_string()),
                ("host", &pe.host),
                ("processId", &pe.process_id.to_string()),
                ("state", pe.state),
                ("reasonCode", pe.reason_code),
                ("healthSummary", pe.health_summary),
                ("requiredConnections", pe.required_connections),
                ("optionalConnections", pe.optional_connections),
            ],
        )?;
        for operator in &pe.operators {
            self.empty("operator", [("name", &*operator.name)])?;
        }
        for port in &pe.input_ports {
            self.empty("inputPort", [("index", &*port.index.to_string())])?;
        }
        for port in &pe.output_ports {
            self.output(port, job_id)?;
        }
        self.close("pe")
    }

    /// Ports of other jobs are left out: the schema names PEs without their jobs.
    fn output(&mut self, port: &OutputPortState, job_id: u64) -> io::Result<()> {
        let index = port.index.to_string();
        let name = port.stream_name.as_deref().map(|name| ("streamName", name));
        self.open("outputPort", [("index", &*index)].into_iter().chain(name))?;
        for connection in port.connections.iter().filter(|connection| connection.input_job_id == job_id) {
            self.empty(
                "connection",
                [
                    ("inputPeId", &*connection.input_pe_id.to_string()),
                    ("inputPortIndex", &connection.input_port_index.to_string()),
                    ("required", if connection.required { "true" } else { "false" }),
                ],
            )?;
        }
        self.close("outputPort")
    }

    fn open<'a>(&mut self, name: &str, attributes: impl IntoIterator<Item = (&'a str, &'a str)>) -> io::Result<()> {
        self.writer.write_event(Event::Start(tag(name, attributes)))
    }

    fn empty<'a>(&mut self, name: &str, attributes: impl IntoIterator<Item = (&'a str, &'a str)>) -> io::Result<()> {
        self.writer.write_event(Event::Empty(tag(name, attributes)))
    }

    fn close(&mut self, name: &str) -> io::Result<()> {
        match self.form {
            Form::Xml => self.writer.write_event(Event::End(BytesEnd::new(name))),
            Form::Json => self.writer.get_mut().write_all(b"]}"),
        }
    }

    /// Writes an object that is left open in a list of this name, its last field.
    fn begin_object(&mut self, object: &impl Serialize, list: &str, is_next: bool) -> io::Result<()> {
        let mut fields = serde_json::to_vec(object).map_err(io::Error::other)?;
        // The brace at its end.
        fields.pop();
        let bytes = self.writer.get_mut();
        if is_next {
            bytes.push(b',');
        }
        bytes.append(&mut fields);
        write!(bytes, ",\"{list}\":[")
    }
}

fn tag<'n, 'a>(name: &'n str, attributes: impl IntoIterator<Item = (&'a str, &'a str)>) -> BytesStart<'n> {
    let mut tag = BytesStart::new(name);
    for (attribute, value) in attributes {
        tag.push_attribute((attribute, &*readable(value)));
    }
    tag
}

/// The text as XML can have it: of characters that XML does not have, however they are written, U+FFFD takes the place.
/// A parser would refuse the whole document for one of them.
pub(super) fn readable(text: &str) -> Cow<'_, str> {
    if text.contains(is_no_character) {
        Cow::Owned(text.replace(is_no_character, "\u{fffd}"))
    } else {
        Cow::Borrowed(text)
    }
}

/// Whether XML 1.0 does not have the character.
fn is_no_character(character: char) -> bool {
    let is_one = matches!(character, '\t' | '\n' | '\r' | ' '..='\u{d7ff}' | '\u{e000}'..='\u{fffd}' | '\u{10000}'..);
    !is_one
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_attribute_has_no_character_that_xml_does_not_have() {
        let all: String = ('\0'..='\u{10fff}').collect();
        let mut document = Document::new(Form::Xml);
        document.begin(&InstanceState { id: format!("a\u{1}b{all}"), request_time: 7 }).unwrap();
        document.end().unwrap();
        let text = String::from_utf8(document.take()).unwrap();
        // As the productions of XML 1.0 name them.
        let allowed = [0x9..=0xa, 0xd..=0xd, 0x20..=0xd7ff, 0xe000..=0xfffd, 0x1_0000..=0x10_ffff];
        for character in text.chars() {
            let code = u32::from(character);
            assert!(allowed.iter().any(|range| range.contains(&code)), "{code:x}");
        }
        assert!(text.contains("id=\"a\u{fffd}b\u{fffd}"), "{}", &text[..200]);
        let readable_text = "a\tb\n\u{e9}\u{1f600}";
        for (text, expected) in [(readable_text, readable_text), ("\u{ffff}a\u{1f}", "\u{fffd}a\u{fffd}")] {
            assert_eq!(readable(text), expected);
        }
    }

    #[test]
    fn a_caller_gets_what_it_accepts_first() {
        let table = [
            ("", Form::Xml),
            ("*/*", Form::Xml),
            ("application/json", Form::Json),
            ("Application/JSON; q=0.9, */*", Form::Json),
            ("text/html, application/xml, application/json", Form::Xml),
            ("text/html", Form::Xml),
        ];
        for (accept, expected) in table {
            assert_eq!(Form::accepted(accept), expected, "{accept}");
        }
    }
}
