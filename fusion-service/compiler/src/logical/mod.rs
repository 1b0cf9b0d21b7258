//! The application as written: the graph of operators before parallel regions are expanded.
//!
//! The compiler reads both ADL dialects into this one form, so later stages do not know the dialect (the rules of
//! `docs/rules/model.md`). An application does not change after it is read. The expansion builds a
//! [`crate::topology::Topology`] that refers to it, because all channels of an operator share what the ADL says once
//! (class, ports, constants, definitions).
//!
//! Knows: what the ADL says, with the place of every operator. Must not know: widths in force, channels, PEs, text of
//! XML.
//!
//! Invariants, established by `adl::parse`: operators are in the arena in document order; an owner is always a
//! composite and the owner chain of every operator ends at [`Application::main`]; tables are sorted by their ADL index
//! and the index is unique within its table. Operators and tables refer to each other by ADL index. Such a reference
//! may lead nowhere; the stage that follows it reports that.

mod operator;
pub mod submission;

pub use operator::*;

use crate::error::Place;
use cranelift_entity::{PrimaryMap, entity_impl};
use get_size2::GetSize;

/// An operator of any kind, by position in [`Application::operators`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, GetSize)]
pub struct OperatorId(u32);
entity_impl!(OperatorId, "operator");

/// The two vocabularies of ADL documents (rule language-1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, GetSize)]
pub enum Dialect {
    /// Namespace `http://www.ibm.com/xmlns/prod/streams/application`.
    V4000,
    /// Namespace `http://www.ibm.com/xmlns/prod/streams/application/v4200`.
    V4200,
}

impl Dialect {
    /// The name that people know it by.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::V4000 => "v4000",
            Self::V4200 => "v4200",
        }
    }
}

/// A whole application (rule model-1).
#[derive(Clone, Debug)]
pub struct Application {
    /// Which vocabulary it was written in.
    pub dialect: Dialect,
    /// `ns::Main`.
    pub name: String,
    /// Scope of exports and imports.
    pub scope: String,
    /// Version of the toolkit of the main composite.
    pub version: Option<String>,
    /// Default data directory; a job's configuration may override it.
    pub data_directory: Option<String>,
    /// Directory of the application's toolkit.
    pub application_directory: String,
    /// Directory of the compiled output.
    pub output_directory: String,
    /// Directory of checkpoints.
    pub checkpoint_directory: Option<String>,
    /// Where the compiler put the ADL.
    pub adl_path: Option<String>,
    /// Identity of the build, from the bundle.
    pub build_id: String,
    /// File name of the bundle.
    pub bundle: String,
    /// `4.3.0.0`.
    pub product_version: String,
    /// Yield behaviour of the runtime: `auto`, `yes`, `no`.
    pub avoid_runtime_yield: String,
    /// Host pools, ascending index.
    pub host_pools: Vec<HostPool>,
    /// Tuple types, ascending index.
    pub tuple_types: Vec<TupleType>,
    /// Toolkits, ascending index.
    pub toolkits: Vec<Toolkit>,
    /// Definitions of primitive operators, ascending index.
    pub definitions: Vec<OperatorDefinition>,
    /// Custom metrics, ascending index.
    pub custom_metrics: Vec<CustomMetric>,
    /// Submission-time values, ascending index.
    pub submission_values: Vec<SubmissionValue>,
    /// Parallel regions, ascending index.
    pub regions: Vec<ParallelRegion>,
    /// Every operator, in document order.
    pub operators: PrimaryMap<OperatorId, Operator>,
    /// The main composite.
    pub main: OperatorId,
}

/// A host pool (rule model-12).
#[derive(Clone, Debug, PartialEq, Eq, GetSize)]
pub struct HostPool {
    /// ADL index; replicas made by the expansion get later ones.
    pub index: u64,
    /// Name; `$default` is the compiler's own pool.
    pub name: String,
    /// Whether other jobs may use its hosts.
    pub exclusive: bool,
    /// Number of hosts of a sized pool.
    pub size: Option<u64>,
    /// Explicit hosts, in ADL order.
    pub hosts: Vec<String>,
    /// Tags, in ADL order.
    pub tags: Vec<String>,
}

impl HostPool {
    /// Its tags, sorted: they are a set.
    pub fn sorted_tags(&self) -> Vec<&str> {
        let mut tags: Vec<&str> = self.tags.iter().map(String::as_str).collect();
        tags.sort_unstable();
        tags
    }
}

/// A tuple type of ports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TupleType {
    /// ADL index.
    pub index: u64,
    /// Its attributes; absent when the ADL has no structure (an error where the type is used).
    pub attributes: Option<Vec<Attribute>>,
}

/// A named attribute of a tuple.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attribute {
    /// Name.
    pub name: String,
    /// Type.
    pub r#type: Type,
}

/// The type of an attribute (rule language-13).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Type {
    /// Kept verbatim: `int32`, `rstring[64]`, `enum{error,info}`.
    Scalar(String),
    /// `list<T>[bound]`.
    List(Box<Type>, Option<i64>),
    /// `set<T>[bound]`.
    Set(Box<Type>, Option<i64>),
    /// `map<K,V>[bound]`.
    Map(Box<Type>, Box<Type>, Option<i64>),
    /// `optional<T>`.
    Optional(Box<Type>),
    /// `tuple<T1 n1,T2 n2>`.
    Tuple(Vec<Attribute>),
}

/// A toolkit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Toolkit {
    /// ADL index; indexes may have gaps.
    pub index: u64,
    /// Name.
    pub name: String,
}

/// The runtime a definition is made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Runtime {
    /// `SPL_CPlusPlus`.
    CPlusPlus,
    /// `SPL_Java`, `Java`.
    Java,
}

/// The definition of a primitive operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OperatorDefinition {
    /// ADL index.
    pub index: u64,
    /// `ns::Name`.
    pub kind: String,
    /// Runtime.
    pub runtime: Runtime,
    /// Index of its toolkit.
    pub toolkit: Option<u64>,
    /// Indexes of custom metrics, in ADL order.
    pub custom_metrics: Vec<u64>,
    /// Capabilities, in ADL order.
    pub capabilities: Vec<String>,
}

/// A custom metric.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CustomMetric {
    /// ADL index.
    pub index: u64,
    /// Name.
    pub name: String,
    /// `Gauge`, `Counter`, `Time`.
    pub kind: String,
    /// Text, white space kept.
    pub description: String,
}

/// A value that is given when the job is submitted (rule model-6).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubmissionValue {
    /// ADL index.
    pub index: u64,
    /// Whether it is a list (`namedList`).
    pub list: bool,
    /// `ns::Composite`.
    pub composite: String,
    /// Name within the composite.
    pub name: String,
    /// Whether a job must give it, default or not.
    pub required: bool,
    /// SPL literal, with its quotes.
    pub default: Option<String>,
    /// Where it is declared.
    pub place: Place,
}

/// A text in the ADL, or a reference to a submission-time value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Text {
    /// The text of the ADL; not used when `submission_value` is present.
    pub literal: String,
    /// Index of a submission-time value whose literal replaces the text.
    pub submission_value: Option<u64>,
}

/// An annotation `@tag(key = value, ...)`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Annotation {
    /// Tag.
    pub tag: String,
    /// Keys and values in ADL order; keys may repeat.
    pub values: Vec<(String, Text)>,
    /// Where it is.
    pub place: Place,
}

impl Application {
    /// The submission-time value of an index.
    pub fn submission_value(&self, index: u64) -> Option<&SubmissionValue> {
        let position = self.submission_values.binary_search_by_key(&index, |value| value.index).ok()?;
        self.submission_values.get(position)
    }

    /// The parallel region of an index.
    pub fn region(&self, index: u64) -> Option<&ParallelRegion> {
        let position = self.regions.binary_search_by_key(&index, |region| region.index).ok()?;
        self.regions.get(position)
    }
}

impl Annotation {
    /// The value of the key `index`, which the annotations of consistent regions have; of several the last.
    pub fn index(&self) -> Option<u64> {
        let (_, text) = self.values.iter().rev().find(|(key, _)| key == "index")?;
        text.literal.trim().parse().ok()
    }
}

/// How tuples are spread over channels (rule model-11).
#[derive(Clone, Copy, Debug, PartialEq, Eq, GetSize)]
pub enum SplitterKind {
    /// In turn.
    RoundRobin,
    /// By attributes.
    Hash,
    /// To all.
    Broadcast,
}

/// A parallel region (rule model-10). Its name is the logical name of its operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParallelRegion {
    /// ADL index.
    pub index: u64,
    /// ADL index of the parallel operator; may dangle.
    pub operator: u64,
    /// Where the width comes from.
    pub width: Width,
    /// One per connected input port of the operator.
    pub splitters: Vec<LogicalSplitter>,
    /// Host tags that each channel gets a copy of.
    pub replicate_tags: Vec<String>,
    /// Where it is.
    pub place: Place,
}

/// Where a width comes from, before overrides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Width {
    /// The ADL says neither.
    Absent,
    /// A number; whether it is a width at all is checked by the expansion.
    Constant(i64),
    /// Index of a submission-time value.
    SubmissionValue(u64),
}

/// How an input port of a parallel operator is fed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogicalSplitter {
    /// Input port.
    pub input_port: u64,
    /// Kind.
    pub kind: SplitterKind,
    /// Partitioning attributes, in ADL order.
    pub attributes: Vec<String>,
}
