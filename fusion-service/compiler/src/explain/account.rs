//! The account of a compiled job. `explain` writes it as JSON, with keys in camel case.
//!
//! Releases only add fields. For each list that may be cut off, another field has the number of all entries.
//!
//! Knows: the form of the answer. Must not know: how it is found out.

use crate::fuser::AutomaticFusion;
use crate::plan::{Fate, Reason};
use crate::topology::ChannelCount;
use serde::{Serialize, Serializer};

/// The account of a compiled job.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Account {
    /// `submission` or `resize`.
    pub kind: &'static str,
    /// Name of the application.
    pub application: String,
    /// Its scope.
    pub scope: String,
    /// Name of the job.
    pub job_name: String,
    /// Its number.
    pub job_id: u64,
    /// Version of the compiler that made the plan.
    pub compiler: String,
    /// Sizes of the job.
    pub totals: Totals,
    /// How operators were grouped, and why into so many PEs.
    pub fusion: FusionAccount,
    /// Parallel regions, ascending index.
    pub regions: Vec<RegionAccount>,
    /// Host pools that the application declares, ascending index.
    pub host_pools: Vec<HostPoolAccount>,
    /// Consistent regions, ascending index.
    pub consistent_regions: Vec<ConsistentRegionAccount>,
    /// What decided PEs, over all of them.
    pub causes: Vec<CauseAccount>,
    /// What a resize does to PEs, in numbers; none for a submission.
    pub resize: Option<ResizeCounts>,
    /// PEs, those that are alike together; in order of their lowest id.
    pub processing_elements: Vec<ElementGroup>,
    /// PEs that a resize removes, likewise.
    pub removed: Vec<RemovedGroup>,
    /// What a user should know although the compilation succeeded.
    pub warnings: Vec<WarningAccount>,
}

/// Sizes of a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Totals {
    /// Operators that run.
    pub operators: usize,
    /// Operators as written, each channel of a parallel region counted once.
    pub operators_as_written: usize,
    /// Connections between operator ports.
    pub connections: usize,
    /// Those of them that lead from one PE to another.
    pub connections_between_pes: usize,
    /// PEs.
    pub processing_elements: usize,
    /// Bytes of all AADL documents.
    pub aadl_bytes: u64,
}

/// How operators were grouped.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct FusionAccount {
    /// `legacy`, `manual` or `automatic`.
    pub mode: &'static str,
    /// `noChannelInfluence`, `channelIsolation` or `channelExlocation`; without effect for legacy.
    pub r#type: &'static str,
    /// Number of PEs that fusion aimed at; none for legacy.
    pub wanted: Option<u64>,
    /// Number of PEs.
    pub processing_elements: usize,
    /// Groups of operators that must share a PE; a single operator is one too.
    pub units: usize,
    /// How many of them have to be alone in a PE.
    pub alone: usize,
    /// The figures from which automatic fusion computed the number of PEs; only at a submission.
    #[serde(rename = "threads")]
    pub automatic: Option<AutomaticFusion>,
    /// Why so many PEs: sentences.
    pub why: Vec<String>,
}

/// A parallel region.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RegionAccount {
    /// ADL index.
    pub index: u64,
    /// Logical name of its operator.
    pub name: String,
    /// The region around it.
    pub nested_in: Option<String>,
    /// Width in force.
    pub width: u32,
    /// Width before the resize, if that is known.
    pub width_before: Option<u32>,
    /// Channels over all copies of the region.
    pub channels: u32,
    /// Where the width comes from.
    pub origin: WidthOrigin,
    /// How tuples get into its channels, by input port.
    pub splitters: Vec<RegionSplitter>,
    /// Each channel has PEs that no other channel and nothing outside shares.
    pub channels_have_own_pes: bool,
    /// Operators of a consistent region are inside, or connected to one that is.
    pub touches_consistent_region: bool,
    /// Whether its operators ask for the number of channels. Only what the user stated is written.
    #[serde(skip_serializing_if = "is_observed", serialize_with = "name_of_count")]
    pub channel_count: ChannelCount,
}

fn is_observed(count: &ChannelCount) -> bool {
    *count == ChannelCount::Observed
}

fn name_of_count<S: Serializer>(count: &ChannelCount, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(count.name())
}

/// Where a width comes from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WidthOrigin {
    /// `job` (a width of the job), `adl` (a number), `submissionValue`, or `resize`.
    pub kind: &'static str,
    /// Pattern of the job, or name of the submission-time value.
    pub name: Option<String>,
    /// Width at the submission, where a resize changed it since.
    pub submitted: Option<u64>,
}

/// How tuples get into a region.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RegionSplitter {
    /// Input port of the parallel operator.
    pub input_port: u64,
    /// `roundRobin`, `hash` or `broadcast`.
    pub kind: &'static str,
    /// Partitioning attributes.
    pub attributes: Vec<String>,
}

/// A host pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct HostPoolAccount {
    /// Index.
    pub index: u64,
    /// Name.
    pub name: String,
    /// No other job may use its hosts.
    pub exclusive: bool,
    /// Number of hosts, of a sized pool.
    pub size: Option<u64>,
    /// Explicit hosts.
    pub hosts: Vec<String>,
    /// Tags, sorted.
    pub tags: Vec<String>,
    /// Operators that ask for it.
    pub operators: usize,
}

/// A consistent region.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ConsistentRegionAccount {
    /// Index.
    pub index: u64,
    /// `periodic` or `operator driven`.
    pub trigger: &'static str,
    /// Seconds; 0 where there is no period.
    pub period: f64,
    /// Number of operators.
    pub operators: usize,
    /// Operators that start it, shortened.
    pub starts: String,
    /// Ids of PEs with an operator of it.
    pub pes: Vec<u64>,
}

/// What decided PEs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CauseAccount {
    /// What it does.
    pub effect: CauseEffect,
    /// Element and attribute of the ADL, or `fusion type`.
    pub attribute: &'static str,
    /// A description of the attribute for people.
    pub meaning: &'static str,
    /// Values: ids, names of regions, pools, hosts. The first of them, in order.
    pub values: Vec<String>,
    /// Number of values.
    pub value_count: usize,
    /// Number of operators that have it.
    pub operators: usize,
    /// Number of PEs that it decided.
    pub pes: usize,
}

/// What a cause does to a PE.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum CauseEffect {
    /// Holds operators together.
    Together,
    /// Lets nothing share the PE.
    Alone,
    /// Keeps operators of other PEs out.
    Apart,
}

/// What a resize does to PEs, in numbers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ResizeCounts {
    /// New PEs.
    pub added: usize,
    /// PEs that go on with the same document.
    pub kept: usize,
    /// PEs that go on. Their document changed only in parts that a running PE does not read.
    pub kept_unobservable: usize,
    /// PEs that are replaced by a pod with another document.
    pub restarted: usize,
    /// PEs that are gone.
    pub removed: usize,
    /// Operators that are new.
    pub added_operators: usize,
    /// Operators that are gone.
    pub removed_operators: usize,
    /// Operators with other neighbours or widths.
    pub changed_operators: usize,
}

/// PEs that are alike but for their channels.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ElementGroup {
    /// Ids, ascending.
    pub ids: Vec<u64>,
    /// What becomes of them; none for a submission.
    pub fate: Option<Fate>,
    /// Number of operators of each.
    pub operators_each: usize,
    /// How many of these are new; 0 for a submission.
    pub new_operators_each: usize,
    /// Operators of all of them, shortened: `Work[0-9].Map`. The first of them.
    pub operators: Vec<String>,
    /// Number of entries that `operators` would have.
    pub operator_entries: usize,
    /// Bytes of their documents.
    pub aadl_bytes: u64,
    /// They may be restarted.
    pub restartable: bool,
    /// Where their pods may run, if the application says so: hosts and pools. The first of them.
    pub placement: Vec<String>,
    /// What decided them.
    pub causes: Vec<CauseAccount>,
    /// Why they are added or restarted, as the plan says of the first one; none otherwise.
    #[serde(serialize_with = "describe_reason")]
    pub reason: Option<Reason>,
    /// What changed in their documents, what a running PE can observe first. The first of them.
    pub changes: Vec<DocumentChange>,
    /// Number of changes.
    pub change_count: usize,
    /// The documents were not compared, because all documents together were too large.
    pub not_compared: bool,
}

/// What changed in the documents of alike PEs, at places that are alike.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DocumentChange {
    /// A running PE can observe it.
    pub observable: bool,
    /// Where, in words: `operator Split, output port 0, splitter 0`; empty for the PE itself.
    pub place: String,
    /// Where, in the document: elements from below the root, and the attribute with an `@`.
    pub path: String,
    /// What, in words: an attribute, or which children.
    pub what: String,
    /// Value, or number of children, before; none if absent.
    pub before: Option<String>,
    /// After.
    pub after: Option<String>,
    /// Children that are new, in words. The first of them.
    pub added: Vec<String>,
    /// How many.
    pub added_count: usize,
    /// Children that are gone.
    pub removed: Vec<String>,
    /// How many.
    pub removed_count: usize,
    /// Number of places, over all PEs of the group.
    pub places: usize,
}

/// PEs that are removed and alike.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RemovedGroup {
    /// Ids, ascending.
    pub ids: Vec<u64>,
    /// Why, as the plan says of the first one.
    #[serde(serialize_with = "describe_reason")]
    pub reason: Option<Reason>,
    /// Number of operators that each held, if the job before is known.
    pub operators_each: Option<usize>,
    /// Operators that they held, shortened, if the job before is known. The first of them.
    pub operators: Vec<String>,
    /// Number of entries that `operators` would have.
    pub operator_entries: usize,
}

/// A part of the request that has no effect.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct WarningAccount {
    /// A word for conditions and Events.
    pub reason: &'static str,
    /// One sentence.
    pub message: String,
}

/// A reason as text, empty where there is none.
fn describe_reason<S: Serializer>(reason: &Option<Reason>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&Reason::describe(reason.as_ref()))
}
