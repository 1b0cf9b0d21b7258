//! Writes the document of one PE: `aug:augmentedPE` (rule aadl-6).
//!
//! Knows: PEs with their ports, fragments, the vocabulary. Must not know: how operators were grouped, what becomes of
//! the text.
//!
//! Invariant: the same PE gives the same bytes, whatever was compiled before.

use super::element::HasAttributes;
use super::fragments::Fragments;
use super::hashing_writer::{Fragment, HashingWriter, StartTag};
use super::operator;
use super::operator_fragments::{OperatorFragments, PortFragments};
use super::size::too_much_text;
use super::value::OnlyWord;
use super::vocabulary::{
    Arguments, AugmentedPe, CurrentTracing, CustomMetrics, Dependencies, Executable, ExecutableUri, ExportedStream,
    ImportedStreams, InputOperator, NameBasedImport, OperDefinitions, OperInstances, OutputOperator, PeInputPort,
    PeInputPorts, PeOutputPort, PeOutputPorts, PePortAttributes, Properties, Property, PropertyBasedImport,
    PropertyValue, StaticConnection, StaticConnections, TracingUpdate, TracingUpdateNumber, Wrapper,
};
use crate::budget::{Budget, Pace};
use crate::elements::{Elements, Slot};
use crate::error::{Error, Problem, Stage, excerpt};
use crate::fuser::{Pe, PeInput, PeOutput};
use crate::logical::{self, TraceLevel};
use crate::topology::{EvaluatedExport, EvaluatedImports};
use std::collections::BTreeSet;

/// Wrappers that a PE may run under (rule element-14).
const WRAPPERS: [&str; 5] = ["valgrind", "console", "sdb", "gdb", "nrgdb"];

/// Why a document was not written.
#[derive(Debug)]
pub enum WriteError {
    /// The application or the budget is at fault.
    Refused(Error),
    /// The sink is.
    Sink(std::io::Error),
}

impl From<Error> for WriteError {
    fn from(error: Error) -> Self {
        Self::Refused(error)
    }
}

impl From<Problem> for WriteError {
    fn from(problem: Problem) -> Self {
        Self::Refused(problem.into())
    }
}

impl From<std::io::Error> for WriteError {
    fn from(error: std::io::Error) -> Self {
        Self::Sink(error)
    }
}

impl std::fmt::Display for WriteError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Refused(error) => error.fmt(f),
            Self::Sink(error) => write!(f, "cannot pass on the text: {error}"),
        }
    }
}

impl std::error::Error for WriteError {}

/// Writes the document of a PE; `most` is how long it may become.
pub(super) fn write<const O: bool>(
    w: &mut HashingWriter<'_, O>,
    e: &Elements,
    fragments: &Fragments,
    pe: Pe,
    most: u64,
    budget: &Budget,
) -> Result<(), WriteError> {
    let application = &*e.topology().application;
    let id = e.id(pe);
    let members = MemberSummary::new(e, fragments, pe);
    w.declaration();
    w.start(AugmentedPe)
        .fixed(AugmentedPe::NAMESPACE)
        .fixed(AugmentedPe::TUPLE_TYPE_NAMESPACE)
        .fixed(AugmentedPe::PHYSICAL_NAMESPACE)
        .fixed(AugmentedPe::AUGMENTED_NAMESPACE)
        .fixed(AugmentedPe::SCHEMA_NAMESPACE)
        .attribute(AugmentedPe::ID, id)
        // The position of the PE at a submission, and its id ever after (rule aadl-7).
        .attribute(AugmentedPe::LOGICAL_INDEX, id)
        .attribute(AugmentedPe::OPTIMIZED, members.optimized)
        .attribute(AugmentedPe::RESTARTABLE, members.restartable)
        .attribute(AugmentedPe::RELOCATABLE, members.relocatable)
        .fragment(&fragments.root)
        .open();
    w.fragment(&fragments.head);
    w.start(Executable).fixed(Executable::DYNAMIC_LOAD).fixed(Executable::DIGEST).open();
    w.leaf(Wrapper, members.wrapper);
    w.fixed(ExecutableUri);
    w.fixed(Arguments);
    w.fixed(Dependencies);
    w.end(Executable);
    w.open(OperInstances);
    let mut pace = budget.pace();
    for &node in e.members(pe) {
        let before = w.bytes();
        operator::write(w, e, fragments, node)?;
        pace.steps(steps(w.bytes() - before))?;
        within(w, most)?;
    }
    w.end(OperInstances);
    w.open(PeInputPorts);
    let mut inputs: Vec<(u32, PeInput)> = e.input_ports(pe).collect();
    inputs.sort_unstable_by_key(|&(id, _)| id);
    let mut peers = Vec::new();
    for &(port, key) in &inputs {
        let before = w.bytes();
        input_port(w, e, fragments, (id, port), key, &mut peers)?;
        pace.steps(8 + steps(w.bytes() - before))?;
        within(w, most)?;
    }
    w.end(PeInputPorts);
    w.open(PeOutputPorts);
    let mut outputs: Vec<(u32, PeOutput, Slot)> = e.output_slots(pe).collect();
    outputs.sort_unstable_by_key(|&(id, _, _)| id);
    for &(port, key, slot) in &outputs {
        let before = w.bytes();
        output_port(w, e, fragments, (id, port), key, slot)?;
        pace.steps(2 + steps(w.bytes() - before))?;
        within(w, most)?;
    }
    w.end(PeOutputPorts);
    w.open(OperDefinitions);
    for &position in &members.definitions {
        entry(w, &fragments.definitions[position], most, &mut pace)?;
    }
    w.end(OperDefinitions);
    w.open(CustomMetrics);
    for position in members.custom_metrics(application) {
        entry(w, &fragments.metrics[position], most, &mut pace)?;
    }
    w.end(CustomMetrics);
    w.open(CurrentTracing);
    w.start(TracingUpdate).attribute(TracingUpdate::LEVEL, members.trace_level.name()).close();
    w.fixed(TracingUpdateNumber);
    w.end(CurrentTracing);
    w.fragment(&fragments.toolkits);
    for operator in members.operators {
        entry(w, &fragments.capabilities[operator.definition], most, &mut pace)?;
    }
    w.end(AugmentedPe);
    within(w, most)
}

/// What the document has of an entry of a table. It may be as long as the ADL, and the document may have it for each of
/// its operators.
fn entry<const O: bool>(
    w: &mut HashingWriter<'_, O>,
    entry: &Fragment,
    most: u64,
    pace: &mut Pace<'_>,
) -> Result<(), WriteError> {
    w.fragment(entry);
    w.pass_on()?;
    pace.steps(steps(entry.len() as u64))?;
    within(w, most)
}

/// Steps of a budget that so many bytes of text count for.
fn steps(bytes: u64) -> u32 {
    // A caller adds to it.
    u32::try_from(bytes >> 8).unwrap_or(u32::MAX / 2)
}

fn within<const O: bool>(w: &HashingWriter<'_, O>, most: u64) -> Result<(), WriteError> {
    if w.bytes() > most {
        return Err(too_much_text().into());
    }
    Ok(())
}

/// What a document says about all operators of the PE together (rule element-14).
struct MemberSummary<'a> {
    optimized: bool,
    restartable: bool,
    relocatable: bool,
    wrapper: &'a str,
    trace_level: TraceLevel,
    /// By operator.
    operators: Vec<&'a OperatorFragments>,
    /// Positions of the definitions, in the order in which they are met.
    definitions: Vec<usize>,
}

impl<'a> MemberSummary<'a> {
    fn new(e: &'a Elements, fragments: &'a Fragments, pe: Pe) -> Self {
        let topology = e.topology();
        let mut all = Self {
            optimized: true,
            restartable: true,
            relocatable: true,
            wrapper: "none",
            trace_level: TraceLevel::Off,
            operators: Vec::with_capacity(e.members(pe).len()),
            definitions: Vec::new(),
        };
        let mut seen = vec![false; fragments.definitions.len()];
        for &node in e.members(pe) {
            let operator = &topology.operators[node];
            let (Some(primitive), Some(pieces)) =
                (operator.primitive(&topology.application), fragments.operator(operator.logical))
            else {
                continue;
            };
            all.optimized &= primitive.optimized;
            all.restartable &= primitive.restartable;
            all.relocatable &= primitive.relocatable;
            all.trace_level = all.trace_level.max(operator.trace_level);
            if all.wrapper == "none" && WRAPPERS.contains(&&*primitive.wrapper) {
                all.wrapper = &primitive.wrapper;
            }
            if !std::mem::replace(&mut seen[pieces.definition], true) {
                all.definitions.push(pieces.definition);
            }
            all.operators.push(pieces);
        }
        all
    }

    /// Positions of the custom metrics of all definitions, ascending index.
    fn custom_metrics(&self, application: &logical::Application) -> impl Iterator<Item = usize> + use<> {
        let indexes: BTreeSet<u64> =
            self.definitions.iter().flat_map(|&d| application.definitions[d].custom_metrics.iter().copied()).collect();
        let positions: Vec<usize> = indexes
            .into_iter()
            .filter_map(|index| application.custom_metrics.binary_search_by_key(&index, |m| m.index).ok())
            .collect();
        positions.into_iter()
    }
}

/// `aug:inputPort` (rule aadl-15). `pe` and `id` are the ids of the PE and of the port.
fn input_port<const O: bool>(
    w: &mut HashingWriter<'_, O>,
    e: &Elements,
    fragments: &Fragments,
    (pe, id): (u64, u32),
    key: PeInput,
    peers: &mut Vec<(u64, u32)>,
) -> Result<(), WriteError> {
    let operator = &e.topology().operators[key.operator];
    let Some(pieces) = fragments.operator(operator.logical).and_then(|o| o.inputs.get(key.port as usize)) else {
        return Ok(());
    };
    pe_port(w.start(PeInputPort), pe, id, pieces).open();
    tuple_type(w, fragments, pieces, &operator.name)?;
    match operator.inputs.get(key.port as usize).and_then(|input| input.imports.as_deref()) {
        Some(imports) => imported_streams(w, imports),
        None => w.empty(ImportedStreams),
    }
    w.open(StaticConnections);
    let own = e.pe(key.operator);
    peers.clear();
    for connection in e.incoming(key.operator, key.port) {
        let peer = e.pe(connection.source);
        if peer != own {
            peers.push((e.id(peer), e.output_id(connection)));
        }
    }
    peers.sort_unstable();
    peers.dedup();
    for &(peer, id) in &*peers {
        w.start(StaticConnection)
            .attribute(StaticConnection::PE, peer)
            .attribute(StaticConnection::OUTPUT_ID, id)
            .attribute(StaticConnection::OUTPUT_INDEX, id)
            .close();
        w.pass_on()?;
    }
    w.end(StaticConnections);
    w.start(InputOperator)
        .attribute(InputOperator::OPERATOR, operator.index)
        .attribute(InputOperator::PORT, e.input_index(key.operator, key.port))
        .close();
    w.end(PeInputPort);
    Ok(w.pass_on()?)
}

/// `aug:outputPort` (rule aadl-15). `pe` and `id` are the ids of the PE and of the port.
fn output_port<const O: bool>(
    w: &mut HashingWriter<'_, O>,
    e: &Elements,
    fragments: &Fragments,
    (pe, id): (u64, u32),
    key: PeOutput,
    slot: Slot,
) -> Result<(), WriteError> {
    let operator = &e.topology().operators[key.operator];
    let Some(pieces) = fragments.operator(operator.logical).and_then(|o| o.outputs.get(key.port as usize)) else {
        return Ok(());
    };
    let single_threaded = e.flags(key.operator).single_threaded_to_others;
    // The observed stream has this attribute first, the text has it later. Changing that would change every runtime id.
    let tag = w.start(PeOutputPort).observe(PeOutputPort::SINGLE_THREADED, single_threaded);
    pe_port(tag, pe, id, pieces).text(PeOutputPort::SINGLE_THREADED, single_threaded).open();
    tuple_type(w, fragments, pieces, &operator.name)?;
    if let Some(export) = operator.outputs.get(key.port as usize).and_then(|output| output.export.as_deref()) {
        exported_stream(w, export);
    }
    w.open(StaticConnections);
    let own = e.pe(key.operator);
    for connection in e.outgoing(slot) {
        let peer = e.pe(connection.target);
        if peer == own {
            continue;
        }
        // Each connection ends at another PE input port, because a PE input port stands for one operator port and
        // connections are distinct.
        let id = e.input_id(connection.target, connection.target_port);
        let port = e.input_index(connection.target, connection.target_port);
        w.start(StaticConnection)
            .attribute(StaticConnection::PE, e.id(peer))
            .attribute(StaticConnection::INPUT_ID, id)
            .attribute(StaticConnection::INPUT_INDEX, id)
            .attribute(StaticConnection::OPERATOR, e.topology().operators[connection.target].index)
            .attribute(StaticConnection::OPERATOR_PORT, port)
            .close();
        w.pass_on()?;
    }
    w.end(StaticConnections);
    let tag = w
        .start(OutputOperator)
        .attribute(OutputOperator::OPERATOR, operator.index)
        .attribute(OutputOperator::PORT, e.output_index(key.operator, key.port));
    operator::channel(tag, key.via).close();
    w.end(PeOutputPort);
    Ok(w.pass_on()?)
}

/// Attributes of PE ports in both directions.
fn pe_port<'w, 's, E: HasAttributes<PePortAttributes>, const O: bool>(
    tag: StartTag<'w, 's, E, O>,
    pe: u64,
    id: u32,
    pieces: &PortFragments,
) -> StartTag<'w, 's, E, O> {
    tag.attribute(PePortAttributes::ID, id)
        .attribute(PePortAttributes::INDEX, id)
        .attribute(PePortAttributes::PE, pe)
        .fragment(&pieces.pe_port)
}

/// `aug:tupleType` of a PE port (rule aadl-8).
fn tuple_type<const O: bool>(
    w: &mut HashingWriter<'_, O>,
    fragments: &Fragments,
    pieces: &PortFragments,
    operator: &str,
) -> Result<(), WriteError> {
    match pieces.tuple_type.and_then(|position| fragments.tuple_types.get(position)) {
        Some(tuple_type) => w.fragment(tuple_type),
        None => {
            let message =
                format!("operator {}: a port has a tuple type that the ADL does not declare", excerpt(operator));
            return Err(Problem::new(Stage::Aadl, message).into());
        }
    }
    Ok(())
}

/// `aug:importedStreams` (rule aadl-16).
fn imported_streams<const O: bool>(w: &mut HashingWriter<'_, O>, imports: &EvaluatedImports) {
    w.start(ImportedStreams).optional(ImportedStreams::FILTER, imports.filter.as_ref()).open();
    for (index, import) in (1_u32..).zip(&imports.by_name) {
        w.start(NameBasedImport)
            .attribute(NameBasedImport::INDEX, index)
            .attribute(NameBasedImport::APPLICATION_NAME, &import.application_name)
            .attribute(NameBasedImport::APPLICATION_SCOPE, &import.application_scope)
            .attribute(NameBasedImport::OPERATOR_NAME, &import.operator_name)
            .attribute(NameBasedImport::STREAM_NAME, &import.stream_name)
            .close();
    }
    if let Some(import) = &imports.by_properties {
        w.start(PropertyBasedImport)
            .attribute(PropertyBasedImport::INDEX, import.index)
            .attribute(PropertyBasedImport::APPLICATION_SCOPE, &import.application_scope)
            .attribute(PropertyBasedImport::OPERATOR_NAME, &import.operator_name)
            .attribute(PropertyBasedImport::SUBSCRIPTION, &import.subscription)
            .close();
    }
    w.end(ImportedStreams);
}

/// `aug:exportedStream` (rule aadl-16).
fn exported_stream<const O: bool>(w: &mut HashingWriter<'_, O>, export: &EvaluatedExport) {
    w.start(ExportedStream)
        .optional(ExportedStream::NAME, export.name.as_ref())
        .attribute(ExportedStream::OPERATOR_NAME, &export.operator_name)
        .attribute(ExportedStream::ALLOW_FILTER, export.allow_filter)
        .optional(ExportedStream::CONGESTION_POLICY, export.drop_connection.then_some(OnlyWord("dropConnection")))
        .open();
    w.observe(u8::from(export.properties.is_some()));
    if let Some(properties) = &export.properties {
        w.open(Properties);
        for property in properties {
            w.start(Property)
                .attribute(Property::NAME, &property.name)
                .attribute(Property::TYPE, &property.r#type)
                .open();
            for value in &property.values {
                w.leaf(PropertyValue, value);
            }
            w.end(Property);
        }
        w.end(Properties);
    }
    w.end(ExportedStream);
}
