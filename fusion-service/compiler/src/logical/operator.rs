//! Operators as written (rule model-2): composites, primitives, imports and exports, with their ports and connections.
//!
//! Knows: what an ADL says of an operator. Must not know: widths in force, channels.

use super::{Annotation, OperatorId, Text};
use crate::error::Place;
use get_size2::GetSize;
use std::sync::Arc;

/// The kind of port that a connection ends at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, GetSize)]
pub enum PortKind {
    /// Input port.
    Input,
    /// Output port.
    Output,
}

/// The far end of a connection, by ADL index (rules model-3 and model-5). It may dangle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ConnectionEnd {
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
    /// Names of the enclosing composites without the main one, and its own, joined by dots (rule model-4).
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
    /// Threading model of the instance (rule expansion-21).
    pub threading: Option<Annotation>,
    /// Threading model of its definition.
    pub definition_threading: DefinitionThreading,
}

/// The threading model of the definition of a composite.
#[derive(Clone, Debug, Default)]
pub enum DefinitionThreading {
    /// It sets none.
    #[default]
    Unset,
    /// Its annotation, which all instances of the definition share.
    Model(Arc<Annotation>),
    /// There is no definition with this index: an error where a threading model is looked up in it.
    Undefined(u64),
}

/// A port of a composite: seen from outside and from inside.
#[derive(Clone, Debug)]
pub struct CompositePort {
    /// ADL index.
    pub index: u64,
    /// Upstream ends.
    pub incoming: Vec<ConnectionEnd>,
    /// Downstream ends.
    pub outgoing: Vec<ConnectionEnd>,
}

/// A primitive operator.
#[derive(Clone, Debug)]
pub struct Primitive {
    /// Index of its definition.
    pub definition: u64,
    /// `sharedObject/@class`.
    pub class: String,
    /// `sharedObject/uri`. In the older dialect, the operators of a PE share it.
    pub shared_object: Arc<str>,
    /// `sharedObject/wrapper`. In the older dialect, the operators of a PE share it.
    pub wrapper: Arc<str>,
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
    pub partition: PartitionConstraints,
    /// Membership in a consistent region; none = autonomous.
    pub consistent: Option<ConsistentEntry>,
    /// Environment variables; they go to the pod, not into the AADL (rule element-18).
    pub environment: Vec<(String, String)>,
    /// Input ports, in ADL order.
    pub inputs: Vec<InputPort>,
    /// Output ports, in ADL order.
    pub outputs: Vec<OutputPort>,
}

/// Verbosity, ascending.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, GetSize)]
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

/// Host placement as written (rule model-13); texts may hold channel placeholders (rule expansion-23).
#[derive(Clone, Debug, Default, PartialEq, Eq, GetSize)]
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, GetSize)]
pub struct PoolLocation {
    /// Index of the pool.
    pub pool: u64,
    /// Index of the host within the pool.
    pub in_pool: Option<u64>,
}

/// Fusion constraints as written; texts may hold channel placeholders.
#[derive(Clone, Debug, Default, PartialEq, Eq, GetSize)]
pub struct PartitionConstraints {
    /// Ids of operators that share a PE.
    pub co_locations: Vec<String>,
    /// Ids of operators that must not share a PE.
    pub ex_locations: Vec<String>,
    /// Has a PE of its own.
    pub isolation: bool,
}

/// `consistentRegionEntry` (rule model-14).
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
    pub connections: Vec<ConnectionEnd>,
}

/// Input port of a primitive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InputPort {
    /// The common part.
    pub port: Port,
    /// Is it a control port?
    pub control: bool,
    /// Explicit threaded port.
    pub threaded: Option<ThreadedPortSettings>,
}

/// A threaded port as written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThreadedPortSettings {
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

/// An Import (rule model-15).
#[derive(Clone, Debug)]
pub struct Import {
    /// What is imported.
    pub streams: ImportedStreams,
    /// Filter expression. In the older dialect, all Imports of a PE's port share it.
    pub filter: Option<Arc<str>>,
    /// Connections of its output ports, in ADL order.
    pub outputs: Vec<Vec<ConnectionEnd>>,
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

/// An Export (rule model-15).
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
    pub inputs: Vec<Vec<ConnectionEnd>>,
}

/// A property of an exported stream.
#[derive(Clone, Debug, PartialEq, Eq, GetSize)]
pub struct Property {
    /// Name.
    pub name: String,
    /// Type.
    pub r#type: String,
    /// Values as text.
    pub values: Vec<String>,
}
