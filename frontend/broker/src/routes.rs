//! What a PE is told about its exports and imports, and the bytes that tell it (rules import-3 and import-4).
//!
//! Names and places of the fields are those that the runtime of PEs reads.
//!
//! Knows: what the runtime reads, and how much of it. Must not know: the board, how a message is sent.

use crate::fact::{Export, Import};
use crate::port::Pe;
use serde::Serialize;
use std::collections::BTreeMap;
use std::io;

/// Bytes that a PE reads of a message. What is longer would be cut, and then be no document.
const MESSAGE_MAX: usize = 16_384;
/// Asks a PE to get its routes itself.
pub(crate) const GET_THEM: &str = "deadbeef";
/// An entry, or so much of its filter as weighs as much as another one, has more bytes than this.
const ENTRY_MIN: usize = 32;
/// Routes that weigh so much are too long for a message, whatever is in them.
pub(crate) const TOO_MANY_FOR_A_MESSAGE: usize = MESSAGE_MAX / ENTRY_MIN;
/// What the routes of a PE weigh at most: more connections than a process has ports for. Their document has a few MB.
pub(crate) const MOST: usize = 32_768;

/// A PE has more routes than it can be told.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("PE {pe} has more than {MOST} connections that the broker makes, and cannot be told them")]
pub struct TooManyRoutes {
    /// The PE.
    pub pe: Pe,
}

/// The routes of a PE, by the labels of its ports. Ports that match nothing are left out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Routes {
    /// Where tuples of its output ports go.
    pub exports: BTreeMap<String, Published>,
    /// Where tuples of its input ports come from.
    pub imports: BTreeMap<String, Subscribed>,
}

/// An exported port.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Published {
    /// Number of the output port.
    pub port_id: u32,
    /// Who receives its tuples, by the label of the input port.
    pub entries: BTreeMap<String, Subscriber>,
}

/// An importing port.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Subscribed {
    /// Number of the input port.
    pub port_id: u32,
    /// Who sends to it, by the label of the output port.
    pub entries: BTreeMap<String, Publisher>,
}

/// An input port that receives tuples.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Subscriber {
    /// Number of its job.
    pub job_id: u64,
    /// Number of its PE.
    pub pe_id: u64,
    /// Number of the input port.
    pub port_id: u32,
    /// The number by which the sender counts what it sends there.
    pub port_index: u32,
    /// Which tuples it wants; all, if empty.
    pub filter: String,
}

/// An output port that sends tuples.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Publisher {
    /// Number of its job.
    pub job_id: u64,
    /// Number of its PE.
    pub pe_id: u64,
    /// Number of the output port.
    pub port_id: u32,
}

impl Subscriber {
    pub(crate) fn of(import: &Import) -> Self {
        Self {
            job_id: import.job_id,
            pe_id: import.port.pe.id,
            port_id: import.port.id,
            port_index: import.port_index,
            filter: import.filter.as_deref().unwrap_or_default().to_owned(),
        }
    }
}

impl Publisher {
    pub(crate) fn of(export: &Export) -> Self {
        Self { job_id: export.job_id, pe_id: export.port.pe.id, port_id: export.port.id }
    }
}

impl Routes {
    /// The document, as a PE gets it when it asks.
    #[must_use]
    pub fn document(&self) -> String {
        // Texts and numbers under texts can always be written.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// The message that tells a PE that it should ask.
    #[must_use]
    pub fn ask() -> &'static str {
        GET_THEM
    }

    /// The message that tells a PE that its routes are these now: the document, or, if that is too long for a message,
    /// that it should ask. Of a document that is too long no more is written than a message has.
    #[must_use]
    pub fn message(&self) -> String {
        let mut short = Short(Vec::new());
        let document = serde_json::to_writer(&mut short, self).ok().and_then(|()| String::from_utf8(short.0).ok());
        document.unwrap_or_else(|| GET_THEM.to_owned())
    }
}

/// What is written, as long as it fits into a message.
struct Short(Vec<u8>);

impl io::Write for Short {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.0.len() + bytes.len() >= MESSAGE_MAX {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn routes(subscribers: u64) -> Routes {
        let subscriber = |pe_id| Subscriber { job_id: 1, pe_id, port_id: 0, port_index: 0, filter: String::new() };
        let entries = (0..subscribers).map(|id| (format!("importer-{id}-0"), subscriber(id))).collect();
        Routes { exports: [("exporter-0-0".to_owned(), Published { port_id: 0, entries })].into(), ..Routes::default() }
    }

    #[test]
    fn a_message_has_the_form_that_pes_read() {
        // routes -> message
        let table = [
            (Routes::default(), r#"{"exports":{},"imports":{}}"#),
            (
                routes(1),
                r#"{"exports":{"exporter-0-0":{"portId":0,"entries":{"importer-0-0":{"jobId":1,"peId":0,"portId":0,"portIndex":0,"filter":""}}}},"imports":{}}"#,
            ),
            (routes(1_000), "deadbeef"),
        ];
        for (routes, expected) in table {
            assert_eq!(routes.message(), expected);
        }
    }

    #[test]
    fn the_shortest_entries_have_as_many_bytes_as_is_taken_for_granted() {
        let publisher = |pe_id| Publisher { job_id: 1, pe_id, port_id: 0 };
        let of = |count: u64| Subscribed {
            port_id: 0,
            entries: (0..count).map(|pe| (format!("a-{}-0", pe % 10), publisher(pe % 10))).collect(),
        };
        let bytes = |count| serde_json::to_string(&of(count)).unwrap().len();
        assert!(bytes(10) - bytes(1) >= 9 * ENTRY_MIN, "{} and {}", bytes(1), bytes(10));
    }

    #[test]
    fn a_message_is_shorter_than_what_a_pe_reads() {
        let longest = (1..1_000).map(|subscribers| routes(subscribers).message().len()).max();
        assert!((16_200..16_384).contains(&longest.unwrap()), "{longest:?}");
    }
}
