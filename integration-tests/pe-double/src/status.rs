//! What a double says of itself: the JSON of its status page.
//!
//! Knows: the form of the page. Must not know: how anything in it comes about.

use crate::peers::PortLabel;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;

/// How many of its connections a PE has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Connectivity {
    /// None.
    #[default]
    None,
    /// Some, not all.
    Partial,
    /// All, or it needs none.
    Full,
}

impl fmt::Display for Connectivity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// A PE, as its double sees it.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Status {
    /// Its namespace.
    pub namespace: String,
    /// The name of its job.
    pub job: String,
    /// The id of its job.
    pub job_id: u64,
    /// Its id.
    pub pe: u64,
    /// Its launch count.
    pub launch: u64,
    /// Its address.
    pub address: IpAddr,
    /// Its bundle, if it has fetched it.
    pub bundle: Option<BundleStatus>,
    /// All its static connections have been there once, or it has waited long enough: it moves tuples.
    pub started: bool,
    /// What it has found of its connections.
    pub connectivity: Connectivity,
    /// What it has reported of them last, with success.
    pub reported: Option<Connectivity>,
    /// Connections to other PEs.
    pub outputs: Vec<OutputStatus>,
    /// Connections from other PEs.
    pub inputs: Vec<InputStatus>,
    /// Its operators.
    pub operators: Vec<OperatorStatus>,
    /// What has arrived at operators without outputs.
    pub sinks: Vec<SinkStatus>,
    /// What it knows of dynamic connections.
    pub routes: RoutesStatus,
    /// Its consistent regions.
    pub regions: BTreeMap<u32, RegionStatus>,
    /// What went wrong.
    pub problems: Problems,
}

/// The bundle of a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BundleStatus {
    /// Its name.
    pub name: String,
    /// Its size.
    pub bytes: usize,
}

/// A connection to another PE.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OutputStatus {
    /// The own output port.
    pub port: u32,
    /// `static`, or `route` for one of an export.
    pub kind: String,
    /// The PE port at the other end, `<pe>.<port>@<job>`, if it is known.
    pub to: Option<String>,
    /// It is there.
    pub connected: bool,
    /// How often it came to be.
    pub opened: u64,
    /// How often it broke.
    pub closed: u64,
    /// Tuples that were written to it.
    pub sent: u64,
    /// Tuples that were not, because it was not there or did not take them.
    pub dropped: u64,
    /// Of a route: the number by which the sender counts what it sends.
    pub port_index: Option<u64>,
    /// Of a route: the filter.
    pub filter: Option<String>,
    /// Of a route: tuples that its filter held back.
    pub filtered: u64,
}

/// A connection from another PE.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct InputStatus {
    /// The own input port.
    pub port: u32,
    /// The PE port at the other end, `<pe>.<port>@<job>`.
    pub from: String,
    /// It is there.
    pub connected: bool,
    /// How often it came to be.
    pub opened: u64,
    /// How often it ended.
    pub closed: u64,
    /// Tuples that came.
    pub received: u64,
}

/// An operator.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OperatorStatus {
    /// Its index.
    pub index: u32,
    /// Its name.
    pub name: String,
    /// Tuples that it made, if it has no inputs.
    pub made: u64,
    /// Tuples that it took.
    pub taken: u64,
    /// Tuples that came in a circle and ended here.
    pub circled: u64,
    /// Tuples that came while its region was paused and for which there was no room.
    pub refused: u64,
}

/// What has arrived at an operator without outputs from one source on one way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SinkStatus {
    /// Name of the operator.
    pub operator: String,
    /// Its input port.
    pub port: u32,
    /// Who made the tuples: `<job id>/<operator>`, and `#<launch>` unless it is in a consistent region.
    pub source: String,
    /// The logical names of the operators between both, each with the id of its job.
    pub path: String,
    /// Different tuples.
    pub received: u64,
    /// The highest number.
    pub highest: u64,
    /// Numbers below the highest that did not arrive, until now.
    pub lost: u64,
    /// Tuples that had arrived before.
    pub doubled: u64,
    /// Tuples that came after one with a higher number.
    pub late: u64,
}

/// What a double knows of dynamic connections.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RoutesStatus {
    /// Messages that came.
    pub datagrams: u64,
    /// The last one, as it came.
    pub last_datagram: Option<String>,
    /// Those of them that asked it to get its routes.
    pub asked_to_poll: u64,
    /// How often it asked for its routes.
    pub polls: u64,
    /// How often it was told that there are none.
    pub absent: u64,
    /// Messages and answers that it could not read.
    pub malformed: u64,
    /// Its exports, by label of the other end.
    pub exports: BTreeMap<String, BTreeMap<String, ExportRoute>>,
    /// Its imports, by label of the other end.
    pub imports: BTreeMap<String, BTreeMap<String, ImportRoute>>,
}

/// Where an export leads.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ExportRoute {
    /// Job of the other end.
    pub job_id: u64,
    /// PE of the other end.
    pub pe_id: u64,
    /// Port of the other end.
    pub port_id: u32,
    /// By which the sender counts.
    pub port_index: u64,
    /// Which tuples are wanted; empty for all.
    pub filter: String,
}

impl ExportRoute {
    /// The other end.
    pub(crate) fn label(&self) -> PortLabel {
        PortLabel { pe: self.pe_id, port: self.port_id, job_id: self.job_id }
    }
}

/// Where an import comes from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ImportRoute {
    /// Job of the other end.
    pub job_id: u64,
    /// PE of the other end.
    pub pe_id: u64,
    /// Port of the other end.
    pub port_id: u32,
}

impl ImportRoute {
    /// The other end.
    pub(crate) fn label(&self) -> PortLabel {
        PortLabel { pe: self.pe_id, port: self.port_id, job_id: self.job_id }
    }
}

/// A consistent region, as one PE sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RegionStatus {
    /// Its first operators make nothing until they are told to go on.
    pub paused: bool,
    /// The sequence number of the last checkpoint of this PE.
    pub checkpoint: Option<u64>,
    /// Checkpoints that are kept.
    pub kept: Vec<u64>,
    /// The last reset of this PE: sequence number, attempt.
    pub reset: Option<(u64, u64)>,
    /// Checkpoints that this PE has made.
    pub checkpoints: u64,
    /// Resets that this PE has carried out.
    pub resets: u64,
    /// Resets that its operators have asked for.
    pub resets_wanted: u64,
    /// Messages that were acted upon.
    pub messages: u64,
    /// Messages that came again.
    pub repeated: u64,
    /// The last message, its kind first.
    pub last_message: Option<String>,
    /// The region has given up.
    pub failed: bool,
    /// Reports of what it has done that were taken.
    pub reports: u64,
    /// Reports of what it has done that nobody took.
    pub reports_lost: u64,
}

/// What went wrong, as far as there is room.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Problems {
    /// How often something went wrong.
    pub count: u64,
    /// The last of them, in words.
    pub last: Vec<String>,
}

/// What has arrived at all channels of each operator together, in several PEs: a channel alone misses what the others
/// got. An operator is called by its name without channels.
///
/// Numbers that two channels got count as received twice, so that `received` is more than `highest` and one then.
#[must_use]
pub fn arrivals<'a>(statuses: impl IntoIterator<Item = &'a Status>) -> Vec<SinkStatus> {
    let mut all: BTreeMap<(String, u32, String, String), SinkStatus> = BTreeMap::new();
    for sink in statuses.into_iter().flat_map(|status| &status.sinks) {
        let operator = without_channels(&sink.operator);
        let key = (operator.clone(), sink.port, sink.source.clone(), sink.path.clone());
        let Some(sum) = all.get_mut(&key) else {
            all.insert(key, SinkStatus { operator, ..sink.clone() });
            continue;
        };
        sum.received += sink.received;
        sum.doubled += sink.doubled;
        sum.late += sink.late;
        sum.highest = sum.highest.max(sink.highest);
        sum.lost = sum.highest.saturating_add(1).saturating_sub(sum.received);
    }
    all.into_values().collect()
}

/// `A.B` of `A[1].B[3]`.
fn without_channels(name: &str) -> String {
    let part = |part: &str| part.split('[').next().unwrap_or_default().to_owned();
    name.split('.').map(part).collect::<Vec<_>>().join(".")
}

#[cfg(test)]
mod tests {
    use super::{SinkStatus, Status, arrivals};
    use serde_json::json;

    fn status(sinks: &[(&str, u64, u64)]) -> Status {
        let sinks = sinks.iter().map(|(operator, received, highest)| SinkStatus {
            operator: (*operator).to_owned(),
            port: 0,
            source: "1/Source#1".to_owned(),
            path: "1:Source".to_owned(),
            received: *received,
            highest: *highest,
            lost: highest + 1 - received,
            doubled: 0,
            late: 0,
        });
        let status = json!({
            "namespace": "n", "job": "j", "jobId": 1, "pe": 0, "launch": 1, "address": "127.0.0.1", "bundle": null,
            "started": true, "connectivity": "Full", "reported": null, "outputs": [], "inputs": [], "operators": [],
            "sinks": sinks.collect::<Vec<_>>(), "routes": super::RoutesStatus::default(), "regions": {},
            "problems": {"count": 0, "last": []},
        });
        serde_json::from_value(status).unwrap()
    }

    #[test]
    fn channels_are_taken_together() {
        let statuses = [status(&[("Lane[0].Sink", 5, 8), ("Other", 3, 2)]), status(&[("Lane[1].Sink", 4, 9)])];
        let found = arrivals(&statuses);
        let found: Vec<_> = found.iter().map(|sink| (sink.operator.as_str(), sink.received, sink.lost)).collect();
        assert_eq!(found, [("Lane.Sink", 9, 1), ("Other", 3, 0)]);
    }
}
