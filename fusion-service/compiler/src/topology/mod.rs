//! The application as it runs: one operator per channel, splitters on output ports, connections between operator ports.
//!
//! [`Topology`] is the value that fusion and AADL writing read. It refers to the [`logical::Application`] for
//! everything that all channels of an operator share, and holds what differs between channels: names, channels,
//! evaluated imports and exports, resolved texts. It does not change after it is built; what later stages derive
//! (threads, PEs) lives in their own types.
//!
//! Knows: the logical application, widths, submission-time values. Must not know: PEs, fusion modes, XML.
//!
//! [`expand()`] makes a topology in two halves. The first takes time linear in the document, whatever the widths, and
//! checks all limits:
//!
//! * `wiring`: splitters and mergers are put into the links of the application, once for all channels (`lookup` finds
//!   operators and ports);
//! * `shape`: the wiring at the `widths` in force;
//! * `order`: the number of each copy of an operator, as a sum of offsets;
//! * `links`: what each port reaches, through composites, and how often.
//!
//! The second makes the operators and connections: `operators` (found by channel in `copies`) with their `names`,
//! `locations`, `annotations` (their texts: `annotation_text`) and `threading`, connections and splitters (`connect`),
//! `imports` and exports (what imports ask for: `expressions`), `consistent` regions. `texts` bounds the texts that
//! differ between channels (rule expansion-33).
//!
//! A resize calls [`expand_again`], which goes the same way. It takes over the operators that it does not concern, with
//! their numbers (`reuse`), and everything that depends on no width. `generations` says which operators of the two
//! generations are the same.
//!
//! What an operator as written says is asked once per `OperatorId`, not once per copy: one operator may say as much as
//! a whole document can hold, and have 200,000 copies. Copies share what was made of it, and so do generations as long
//! as it is equal: then it is compared by address.
//!
//! In a resize, `reuse` also gives the new operators their numbers. [`relabel()`] does the same plainly, after a fresh
//! expansion: for replay and restore, and where other regions are in force. Both number splitters by
//! `splitter_numbers`.
//!
//! Other modules: [`difference()`] finds the operators that a resize changes, [`verify()`] checks the invariants,
//! `display` writes a topology as text, and `parameters` are what a job adds to an application.
//!
//! Invariants (checked by `verify` in tests and fuzzing):
//! * [`Topology::operators`] is sorted by [`PhysicalOperator::index`]; indexes are unique. In a submission they are
//!   `0..n`; after a resize they may have gaps.
//! * `Topology::numbered` repeats index, operator as written and global channel of every operator.
//! * An operator is identified across widths by [`PhysicalOperator::identity`] (rule expansion-7).
//! * [`Topology::connections`] is sorted by (source, source port, target, target port), one entry per pair of ports.
//!   A connection names operators by position in [`Topology::operators`], not by index. A splitter that it names exists
//!   on the source port and has that channel.

mod annotation_text;
mod annotations;
mod channel_counts;
mod connect;
mod consistent;
mod copies;
mod count;
mod difference;
mod display;
mod expand;
mod expressions;
mod generations;
mod imports;
mod links;
mod locations;
mod lookup;
mod names;
mod operators;
mod order;
mod parameters;
mod relabel;
mod reuse;
mod shape;
mod splitter_numbers;
#[cfg(test)]
mod tests;
mod texts;
mod threading;
mod verify;
mod widths;
mod wiring;

pub use channel_counts::{ChannelCount, IgnoredCounts, ObservedCounts};
pub use difference::{ChangedOperatorNames, ChangedOperators, changes, difference};
pub use expand::{expand, expand_again};
pub use generations::Generations;
pub use parameters::{Configuration, Parameters};
pub use relabel::{NumberedSplitter, Numbering, relabel};
pub use verify::verify;
pub(crate) use widths::RegionsByName;
pub use widths::{WidthSource, WidthSources, find_region};

use crate::heap::{primary_map, share, share_if_any};
use crate::logical;
use crate::logical::{SplitterKind, TraceLevel};
use crate::shared::Shared;
use cranelift_entity::{PrimaryMap, entity_impl};
use get_size2::GetSize;
use imports::ImportCosts;
use operators::ResolvedPrimitives;
use order::Numbered;
use smallvec::SmallVec;
use std::sync::Arc;
use wiring::Wiring;

/// A physical operator, by position in [`Topology::operators`]. Not its operator index: see
/// [`PhysicalOperator::index`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, GetSize)]
pub struct Node(u32);
entity_impl!(Node, "node");

/// The application as it runs.
#[derive(Clone, Debug, GetSize)]
pub struct Topology {
    /// The application as written.
    #[get_size(ignore)]
    pub application: Arc<logical::Application>,
    /// Data directory in force: of the job's configuration, else of the ADL.
    pub data_directory: Option<String>,
    /// `streams::pe.display` without its quotes; empty when there is none (rule model-9).
    pub display: String,
    /// Host pools in force, ascending index: those of the ADL and the copies of replicated tags.
    pub host_pools: Vec<logical::HostPool>,
    /// Parallel regions in force, ascending index.
    pub regions: Vec<Region>,
    /// Consistent regions that some operator is in, ascending index.
    pub consistent_regions: Vec<ConsistentRegion>,
    /// Operators, ascending operator index.
    #[get_size(size_fn = primary_map)]
    pub operators: PrimaryMap<Node, Shared<PhysicalOperator>>,
    /// Connections, sorted.
    pub connections: Vec<Connection>,
    /// Index, operator as written and global channel of every operator. They are in `operators` as well; a resize reads
    /// them here, where they lie close together, without waiting for memory each time.
    numbered: Numbered,
    /// What imports have cost: an expansion for other widths takes some over.
    import_costs: ImportCosts,
    /// What an expansion for other widths reuses.
    width_independent: WidthIndependent,
}

/// What all expansions of an application with the same parameters share, whatever the widths.
#[derive(Clone, Debug, GetSize)]
struct WidthIndependent {
    #[get_size(size_fn = share)]
    wiring: Arc<Wiring>,
    #[get_size(size_fn = share)]
    resolved: Arc<ResolvedPrimitives>,
}

/// A parallel region with the width in force.
#[derive(Clone, Debug, PartialEq, Eq, GetSize)]
pub struct Region {
    /// ADL index.
    pub index: u64,
    /// Logical name of its operator.
    pub name: String,
    /// Width in force.
    pub width: u32,
    /// Product of its width and the widths of the regions around it.
    pub global_max: u32,
    /// Whether operators of the region ask for its number of channels.
    pub channel_count: ChannelCount,
}

/// Membership of an operator in one channel of one enclosing region (rules expansion-4 and expansion-5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, GetSize)]
pub struct Channel {
    /// ADL index of the region.
    pub region: u64,
    /// Channel within its region, from 0.
    pub local: u32,
    /// Width of the region.
    pub local_max: u32,
    /// Channel counted over all copies of the region.
    pub global: u32,
    /// Number of channels over all copies of the region.
    pub global_max: u32,
}

/// A physical operator.
#[derive(Clone, Debug, PartialEq, GetSize)]
pub struct PhysicalOperator {
    /// Operator index: `operInstance/@index`.
    pub index: u32,
    /// The operator as written, in `application.operators`; always a primitive.
    pub logical: logical::OperatorId,
    /// Physical name, with channels: `P1[1].H2[4].O`.
    pub name: String,
    /// Enclosing regions, innermost first; empty outside regions.
    pub channels: SmallVec<[Channel; 2]>,
    /// Annotations as the AADL has them, in order; shared between channels where equal.
    #[get_size(size_fn = share)]
    pub annotations: Arc<[ResolvedAnnotation]>,
    /// Host placement, placeholders substituted.
    #[get_size(size_fn = share)]
    pub resources: Arc<logical::Resources>,
    /// Fusion constraints, placeholders substituted.
    #[get_size(size_fn = share)]
    pub partition: Arc<logical::PartitionConstraints>,
    /// Index of the (merged) consistent region it is in.
    pub consistent_region: Option<u64>,
    /// Resolved threading model: value of the key `model` (rule expansion-21).
    #[get_size(size_fn = share_if_any)]
    pub threading_model: Option<Arc<str>>,
    /// Trace level: of the job's configuration, else of the ADL.
    pub trace_level: TraceLevel,
    /// Runtime constants with submission-time values resolved: (name, value); a value may be absent
    /// where an optional submission-time value has neither value nor default.
    #[get_size(size_fn = share)]
    pub runtime_constants: Arc<[(String, Option<String>)]>,
    /// Per input port, in the order of the ADL.
    pub inputs: SmallVec<[PhysicalInputPort; 1]>,
    /// Per output port, in the order of the ADL.
    pub outputs: SmallVec<[PhysicalOutputPort; 1]>,
}

/// What makes an operator the same operator at different widths (rule expansion-7).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, GetSize)]
pub struct Identity {
    /// ADL index of the operator as written.
    pub logical_index: u64,
    /// Local channels, innermost first.
    pub channels: SmallVec<[u32; 4]>,
}

/// A resolved annotation.
#[derive(Clone, Debug, PartialEq, Eq, GetSize)]
pub struct ResolvedAnnotation {
    /// Tag.
    pub tag: String,
    /// Keys and values, in order.
    pub values: Vec<(String, AnnotationValue)>,
}

/// The value of an annotation's key.
#[derive(Clone, Debug, PartialEq, Eq, GetSize)]
pub enum AnnotationValue {
    /// A plain text.
    Text(String),
    /// A list.
    List(Vec<AnnotationValue>),
    /// Keys and values.
    Tuple(Vec<(String, AnnotationValue)>),
}

/// What differs between channels at an input port.
#[derive(Clone, Debug, Default, PartialEq, GetSize)]
pub struct PhysicalInputPort {
    /// Imports that feed it.
    pub imports: Option<Box<EvaluatedImports>>,
    /// Region (ADL index) and position of each merger passed on the way upstream (rule expansion-19).
    #[get_size(size_fn = share)]
    pub mergers: Arc<[Merger]>,
}

/// A point where channels come together. Not written to the AADL.
#[derive(Clone, Copy, Debug, PartialEq, Eq, GetSize)]
pub struct Merger {
    /// Position on its connection.
    pub index: u32,
    /// ADL index of the region.
    pub region: u64,
}

/// Imports of an input port, evaluated (rule expansion-26).
#[derive(Clone, Debug, Default, PartialEq, Eq, GetSize)]
pub struct EvaluatedImports {
    /// Filter.
    pub filter: Option<String>,
    /// By name, in order; a key is the position.
    pub by_name: Vec<EvaluatedNameImport>,
    /// By properties; the last one wins.
    pub by_properties: Option<EvaluatedPropertyImport>,
}

/// An import by name.
#[derive(Clone, Debug, PartialEq, Eq, GetSize)]
pub struct EvaluatedNameImport {
    /// Physical name of the Import.
    pub operator_name: String,
    /// Exporting application.
    pub application_name: String,
    /// Its scope.
    pub application_scope: String,
    /// Exported stream.
    pub stream_name: String,
}

/// An import by properties.
#[derive(Clone, Debug, PartialEq, Eq, GetSize)]
pub struct EvaluatedPropertyImport {
    /// Physical name of the Import.
    pub operator_name: String,
    /// Scope of the exporting application.
    pub application_scope: String,
    /// Evaluated subscription.
    pub subscription: String,
    /// 0 in the current dialect, of the ADL in the older one.
    pub index: u64,
}

/// What differs between channels at an output port.
#[derive(Clone, Debug, Default, PartialEq, GetSize)]
pub struct PhysicalOutputPort {
    /// Physical stream name.
    pub stream_name: String,
    /// Export of the stream.
    pub export: Option<Box<EvaluatedExport>>,
    /// Outermost splitters, in order; nested ones hang under channels.
    pub splitters: Vec<Splitter>,
}

/// An export of an output port, evaluated (rule expansion-27).
#[derive(Clone, Debug, PartialEq, Eq, GetSize)]
pub struct EvaluatedExport {
    /// Physical name of the Export.
    pub operator_name: String,
    /// Name of the exported stream.
    pub name: Option<String>,
    /// May importers filter?
    pub allow_filter: bool,
    /// `dropConnection` instead of `wait`.
    pub drop_connection: bool,
    /// Properties.
    pub properties: Option<Vec<logical::Property>>,
}

/// A splitter on an output port (rule expansion-18).
#[derive(Clone, Debug, PartialEq, Eq, GetSize)]
pub struct Splitter {
    /// Number on its port, in pre-order (rule expansion-16); kept over resizes (rule expansion-17).
    pub index: u32,
    /// Input port of the parallel operator that it feeds.
    pub input_port: u64,
    /// How it splits; never [`SplitterKind::Broadcast`].
    pub kind: SplitterKind,
    /// ADL index of the region.
    pub region: u64,
    /// Fed by a merger.
    pub drop_window_punctuation: bool,
    /// Partitioning attributes.
    #[get_size(size_fn = share)]
    pub attributes: Arc<[String]>,
    /// Number of channels, `0..width`.
    pub width: u32,
    /// Splitters that hang under a channel: (channel, splitter), in order of channel, then of discovery.
    pub nested: Vec<(u32, Splitter)>,
}

/// A connection from an output port to an input port (rule expansion-15).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, GetSize)]
pub struct Connection {
    /// Upstream operator.
    pub source: Node,
    /// Position of its output port.
    pub source_port: u32,
    /// Downstream operator.
    pub target: Node,
    /// Position of its input port.
    pub target_port: u32,
    via: PackedVia,
}

impl Connection {
    /// A connection, directly or through a channel of a splitter.
    pub fn new((source, source_port): (Node, u32), (target, target_port): (Node, u32), via: Option<Via>) -> Self {
        let via = via.map_or(PackedVia::NONE, |Via { splitter, channel }| PackedVia { splitter, channel });
        Self { source, source_port, target, target_port, via }
    }

    /// The innermost splitter it goes through, if any.
    pub fn via(&self) -> Option<Via> {
        (self.via != PackedVia::NONE).then_some(Via { splitter: self.via.splitter, channel: self.via.channel })
    }
}

/// `Option<Via>` in 8 bytes: there may be 20 million connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, GetSize)]
struct PackedVia {
    splitter: u32,
    channel: u32,
}

impl PackedVia {
    const NONE: Self = Self { splitter: u32::MAX, channel: u32::MAX };
}

/// A channel of a splitter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, GetSize)]
pub struct Via {
    /// [`Splitter::index`].
    pub splitter: u32,
    /// Channel.
    pub channel: u32,
}

/// A consistent region after merging (rules expansion-28 and expansion-29).
#[derive(Clone, Debug, PartialEq, GetSize)]
pub struct ConsistentRegion {
    /// Index: the smallest of those merged.
    pub index: u64,
    /// Index of the declaration.
    pub logical_index: u64,
    /// The declaration's annotation on a composite.
    pub declaration: Option<logical::OperatorId>,
    /// Members: (operator, is start, is trigger operator).
    pub members: Vec<(Node, bool, bool)>,
}

impl Topology {
    /// Whether the parts that every document of a job repeats are the same.
    fn has_repeated_parts_of(&self, other: &Self) -> bool {
        let Self {
            application,
            data_directory,
            display,
            host_pools,
            // Documents only have these as far as their operators show them.
            regions: _,
            consistent_regions: _,
            operators: _,
            connections: _,
            numbered: _,
            import_costs: _,
            width_independent: _,
        } = self;
        Arc::ptr_eq(application, &other.application)
            && *data_directory == other.data_directory
            && *display == other.display
            && *host_pools == other.host_pools
    }
}

impl PhysicalOperator {
    /// Its channel counted over all copies of the innermost region around it; 0 outside regions.
    fn global_channel(&self) -> u32 {
        self.channels.first().map_or(0, |channel| channel.global)
    }

    /// What identifies this operator at any width.
    pub fn identity(&self, application: &logical::Application) -> Identity {
        Identity {
            logical_index: application.operators[self.logical].index,
            channels: self.channels.iter().map(|c| c.local).collect(),
        }
    }

    /// The operator as written.
    pub fn primitive<'a>(&self, application: &'a logical::Application) -> Option<&'a logical::Primitive> {
        match &application.operators[self.logical].kind {
            logical::OperatorKind::Primitive(primitive) => Some(primitive),
            _ => None,
        }
    }
}
