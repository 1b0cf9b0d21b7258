//! The application as written: the graph of operators before parallel regions are expanded.
//!
//! Both ADL dialects are read into this one form, so that later stages do not know which one a job came in. It is a value: the
//! expansion builds a [`crate::topology::Topology`] beside it and refers to it, because every channel of an operator shares what
//! the ADL says once (class, ports, constants, definitions).
//!
//! Knows: what the ADL says, with the place of every operator. Must not know: widths in force, channels, PEs, text of XML.
//!
//! Invariants, established by `adl::parse`: operators are in the arena in document order; an owner is always a composite
//! and the owner chain of every operator ends at [`Application::main`]; tables are sorted by their ADL index and the index is unique
//! within its table. References *between* operators and tables are by ADL index and may dangle: the stage that follows them reports it.

pub mod submission;

use crate::error::Place;
use cranelift_entity::{PrimaryMap, entity_impl};

/// An operator of any kind, by position in [`Application::operators`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OperatorId(u32);
entity_impl!(OperatorId, "operator");

/// The two vocabularies of ADL documents (adl 2.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// Namespace `http://www.ibm.com/xmlns/prod/streams/application`.
    V4000,
    /// Namespace `http://www.ibm.com/xmlns/prod/streams/application/v4200`.
    V4200,
}

/// A whole application (adl 4.1).
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

/// A host pool (adl 3.2).
#[derive(Clone, Debug, PartialEq, Eq)]
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

/// The type of an attribute (adl 3.7).
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

/// A value that is given when the job is submitted (adl 3.10).
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

/// A text that the ADL gives, or that refers to a submission-time value.
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

impl Annotation {
    /// The value of the key `index`, which the annotations of consistent regions have; of several the last.
    pub fn index(&self) -> Option<u64> {
        let (_, text) = self.values.iter().rev().find(|(key, _)| key == "index")?;
        text.literal.trim().parse().ok()
    }
}

/// Which end of an operator a connection ends at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PortKind {
    /// Input port.
    Input,
    /// Output port.
    Output,
}

/// The far end of a connection, by ADL index. It may dangle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Connection {
    /// ADL index of the other operator.
    pub operator: u64,
    /// Its port.
    pub port: u64,
    /// Kind of that port.
    pub kind: PortKind,
    /// Where it is written.
    pub place: Place,
}

/// An operator as written.
#[derive(Clone, Debug)]
pub struct Operator {
    /// ADL index; unique in well-formed applications.
    pub index: u64,
    /// Last segment of the dotted ADL name.
    pub name: String,
    /// Names of the enclosing composites without the main one, and its own, joined by dots (adl 4.4).
    pub logical_name: String,
    /// The composite around it; none for the main composite.
    pub owner: Option<OperatorId>,
    /// Annotations that stay with the operator, in ADL order.
    pub annotations: Vec<Annotation>,
    /// Where it is.
    pub place: Place,
    /// What it is.
    pub kind: OperatorKind,
}

/// The kinds of operators.
#[derive(Clone, Debug)]
pub enum OperatorKind {
    /// A composite.
    Composite(Composite),
    /// A real operator: it runs in a PE.
    Primitive(Box<Primitive>),
    /// The source of streams of other jobs.
    Import(Box<Import>),
    /// Publishes a stream to other jobs.
    Export(Box<Export>),
}

/// A composite operator.
#[derive(Clone, Debug, Default)]
pub struct Composite {
    /// Input ports, in ADL order.
    pub inputs: Vec<CompositePort>,
    /// Output ports, in ADL order.
    pub outputs: Vec<CompositePort>,
    /// Nested composites, in ADL order.
    pub composites: Vec<OperatorId>,
    /// Primitives, imports and exports, in document order across the kinds.
    pub primitives: Vec<OperatorId>,
    /// Threading model of the instance (adl 4.6, 4.7).
    pub threading: Option<Annotation>,
    /// Threading model of its definition.
    pub definition_threading: Option<Annotation>,
}

/// A port of a composite: seen from outside and from inside.
#[derive(Clone, Debug)]
pub struct CompositePort {
    /// ADL index.
    pub index: u64,
    /// Upstream ends.
    pub incoming: Vec<Connection>,
    /// Downstream ends.
    pub outgoing: Vec<Connection>,
}

/// A primitive operator.
#[derive(Clone, Debug)]
pub struct Primitive {
    /// Index of its definition.
    pub definition: u64,
    /// `sharedObject/@class`.
    pub class: String,
    /// `sharedObject/uri`.
    pub shared_object: String,
    /// `sharedObject/wrapper`.
    pub wrapper: String,
    /// Compiled with optimization.
    pub optimized: bool,
    /// May be restarted.
    pub restartable: bool,
    /// May be moved.
    pub relocatable: bool,
    /// As the ADL says; the fuser computes the effective flag.
    pub single_threaded_on_outputs: bool,
    /// `off`, `error`, `warn`, `info`, `debug`, `trace`.
    pub trace_level: TraceLevel,
    /// Literals, in ADL order: (name, value).
    pub runtime_constants: Vec<(String, Text)>,
    /// Arguments of a JVM; present, even if empty, when the operator needs one.
    pub jvm_arguments: Option<Vec<String>>,
    /// Checkpointing, if configured.
    pub checkpointing: Option<Checkpointing>,
    /// Host placement.
    pub resources: Resources,
    /// Fusion constraints.
    pub partition: Partition,
    /// Membership in a consistent region; none = autonomous.
    pub consistent: Option<ConsistentEntry>,
    /// Environment variables; they go to the pod, not into the AADL (decisions, "operator environment variables").
    pub environment: Vec<(String, String)>,
    /// Input ports, in ADL order.
    pub inputs: Vec<InputPort>,
    /// Output ports, in ADL order.
    pub outputs: Vec<OutputPort>,
}

/// Verbosity, ascending.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TraceLevel {
    /// `off`
    Off,
    /// `error`
    Error,
    /// `warn`
    Warn,
    /// `info`
    Info,
    /// `debug`
    Debug,
    /// `trace`
    Trace,
}

impl TraceLevel {
    /// The level of this name.
    pub fn parse(name: &str) -> Option<Self> {
        [Self::Off, Self::Error, Self::Warn, Self::Info, Self::Debug, Self::Trace]
            .into_iter()
            .find(|l| l.name() == name)
    }

    /// The name in ADL and AADL.
    pub fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Error => "error",
            Self::Warn => "warn",
            Self::Info => "info",
            Self::Debug => "debug",
            Self::Trace => "trace",
        }
    }
}

/// When an operator saves its state.
#[derive(Clone, Debug, PartialEq)]
pub enum Checkpointing {
    /// By itself.
    OperatorDriven,
    /// Every so many seconds.
    Periodic(Option<f64>),
}

/// Host placement as written; texts may hold channel placeholders (adl 5.4b).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resources {
    /// Explicit host.
    pub host: Option<String>,
    /// Host pool by index, and the host within it.
    pub pool: Option<PoolLocation>,
    /// Ids of operators that share a host.
    pub co_locations: Vec<String>,
    /// Ids of operators that must not share a host.
    pub ex_locations: Vec<String>,
    /// Shares its host with no other PE.
    pub isolation: bool,
}

/// A place in a host pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PoolLocation {
    /// Index of the pool.
    pub pool: u64,
    /// Index of the host within the pool.
    pub in_pool: Option<u64>,
}

/// Fusion constraints as written; texts may hold channel placeholders.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Partition {
    /// Ids of operators that share a PE.
    pub co_locations: Vec<String>,
    /// Ids of operators that must not share a PE.
    pub ex_locations: Vec<String>,
    /// Has a PE of its own.
    pub isolation: bool,
}

/// `consistentRegionEntry` (adl 4.6).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConsistentEntry {
    /// Index of the declared region.
    pub region: u64,
    /// Starts the region.
    pub is_start: bool,
    /// Ends the region.
    pub is_end: bool,
    /// Other keys, in ADL order, without `autonomousInputPort`.
    pub values: Vec<(String, Text)>,
    /// All values of `autonomousInputPort`.
    pub autonomous_inputs: Vec<Text>,
    /// Where it is.
    pub place: Place,
}

/// What input and output ports of primitives have in common.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    /// ADL index.
    pub index: u64,
    /// Name.
    pub name: String,
    /// Index of the tuple type.
    pub tuple_type: u64,
    /// `NBO`, `LE`, `BE`.
    pub encoding: String,
    /// `TCP`.
    pub transport: String,
    /// May tuples be changed in place?
    pub mutable: bool,
    /// Far ends, in ADL order.
    pub connections: Vec<Connection>,
}

/// Input port of a primitive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InputPort {
    /// The common part.
    pub port: Port,
    /// Is it a control port?
    pub control: bool,
    /// Explicit threaded port.
    pub threaded: Option<ThreadedPort>,
}

/// A threaded port as written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThreadedPort {
    /// `wait`, `dropFirst`, `dropLast`.
    pub congestion_policy: String,
    /// Length of the queue.
    pub queue_size: Option<u64>,
}

/// Output port of a primitive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutputPort {
    /// The common part.
    pub port: Port,
    /// Logical stream name, qualified by the composite that declares it.
    pub stream_name: String,
    /// May it be viewed?
    pub viewable: bool,
}

/// An Import.
#[derive(Clone, Debug)]
pub struct Import {
    /// What is imported.
    pub streams: ImportedStreams,
    /// Filter expression.
    pub filter: Option<String>,
    /// Connections of its output ports, in ADL order.
    pub outputs: Vec<Vec<Connection>>,
}

/// What an Import subscribes to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ImportedStreams {
    /// By names, in order; more than one, or none, only in the older dialect.
    ByName(Vec<NameImport>),
    /// By a subscription expression.
    ByProperties {
        /// Subscription expression; may be empty.
        subscription: String,
        /// Scope of the exporting application.
        application_scope: Option<String>,
        /// Index in the older dialect.
        index: u64,
    },
}

/// An import by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NameImport {
    /// Exporting application.
    pub application_name: String,
    /// Scope of the exporting application.
    pub application_scope: Option<String>,
    /// Exported stream.
    pub stream_name: String,
}

/// An Export.
#[derive(Clone, Debug)]
pub struct Export {
    /// Name of the exported stream, if exported by name.
    pub stream_name: Option<String>,
    /// May importers filter?
    pub allow_filter: bool,
    /// What happens when an importer is slow.
    pub drop_connection: bool,
    /// Properties, if exported by properties.
    pub properties: Option<Vec<Property>>,
    /// Connections of its input ports, in ADL order.
    pub inputs: Vec<Vec<Connection>>,
}

/// A property of an exported stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Property {
    /// Name.
    pub name: String,
    /// Type.
    pub r#type: String,
    /// Values as text.
    pub values: Vec<String>,
}

/// How tuples are spread over channels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SplitterKind {
    /// In turn.
    RoundRobin,
    /// By attributes.
    Hash,
    /// To all.
    Broadcast,
}

/// A parallel region (adl 3.9). Its name is the logical name of its operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParallelRegion {
    /// ADL index.
    pub index: u64,
    /// ADL index of the parallel operator; may dangle.
    pub operator: u64,
    /// Where the width comes from.
    pub width: Width,
    /// One per connected input port of the operator.
    pub splitters: Vec<Splitter>,
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
pub struct Splitter {
    /// Input port.
    pub input_port: u64,
    /// Kind.
    pub kind: SplitterKind,
    /// Partitioning attributes, in ADL order.
    pub attributes: Vec<String>,
}
