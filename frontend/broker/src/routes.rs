//! What a PE is told about its exports and imports, and the bytes that tell it (rules import-3 and import-4).
//!
//! Names and places of the fields are those that the runtime of PEs reads.

use crate::fact::{Export, Import};
use serde::Serialize;
use std::collections::BTreeMap;

/// Bytes that a PE reads of a message. What is longer would be cut, and then be no document.
const MESSAGE_MAX: usize = 16_384;
/// Asks a PE to get its routes itself.
const GET_THEM: &str = "deadbeef";

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

    /// The message that tells a PE that its routes are these now: the document, or, if that is too long for a message,
    /// that it should ask.
    #[must_use]
    pub fn message(&self) -> String {
        let document = self.document();
        if document.len() < MESSAGE_MAX { document } else { GET_THEM.to_owned() }
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
    fn a_message_is_shorter_than_what_a_pe_reads() {
        let longest = (1..1_000).map(|subscribers| routes(subscribers).message().len()).max();
        assert!((16_200..16_384).contains(&longest.unwrap()), "{longest:?}");
    }
}
