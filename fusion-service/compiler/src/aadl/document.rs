//! One PE: `aug:augmentedPE` (rule aadl-6).

use super::elements::{Elements, Slot};
use super::fragments::Fragments;
use super::operator;
use super::operator_fragments::{Operator, Port};
use super::sheet::Sheet;
use crate::budget::Budget;
use crate::error::{Error, Problem, Stage, excerpt};
use crate::fuser::{Pe, PeInput, PeOutput};
use crate::logical::{self, TraceLevel};
use crate::topology::{Export, Imports};
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
    s: &mut Sheet<'_, O>,
    e: &Elements,
    fragments: &Fragments,
    pe: Pe,
    most: u64,
    budget: &Budget,
) -> Result<(), WriteError> {
    let application = &*e.topology().application;
    let id = e.id(pe);
    s.markup(
        b"<?xml version=\"1.0\" encoding=\"UTF-8\" standalone=\"yes\"?>\
        <aug:augmentedPE xmlns=\"http://www.ibm.com/xmlns/prod/streams/application\" \
        xmlns:tt=\"http://www.ibm.com/xmlns/prod/streams/spl/tupleType\" \
        xmlns:phy=\"http://www.ibm.com/xmlns/prod/streams/application/physical\" \
        xmlns:aug=\"http://www.ibm.com/xmlns/prod/streams/application/augmented\" \
        xmlns:xsi=\"http://www.w3.org/2001/XMLSchema-instance\" id=\"",
    );
    s.mark(1);
    s.wide(id);
    // The position of the PE at a submission, and its id ever after (rule aadl-7).
    s.markup(b"\" logicalIndex=\"");
    s.hidden_wide(id);
    let members = Members::new(e, fragments, pe);
    s.markup(b"\" optimized=\"");
    s.boolean(members.optimized);
    s.markup(b"\" restartable=\"");
    s.boolean(members.restartable);
    s.markup(b"\" relocatable=\"");
    s.hidden_boolean(members.relocatable);
    s.fragment(&fragments.root);
    s.fragment(&fragments.head);
    s.markup(b"<aug:executable dynamicLoad=\"true\" digest=\"\"><wrapper>");
    s.string(members.wrapper);
    s.markup(b"</wrapper><executableUri/><arguments/><dependencies/></aug:executable><aug:operInstances>");
    let mut pace = budget.pace();
    for &node in e.members(pe) {
        let before = s.bytes();
        operator::write(s, e, fragments, node)?;
        pace.steps(u32::try_from((s.bytes() - before) >> 8).unwrap_or(u32::MAX))?;
        within(s, most)?;
    }
    s.mark(2);
    s.markup(b"</aug:operInstances><aug:inputPorts>");
    let mut inputs: Vec<(u32, PeInput)> = e.input_ports(pe).collect();
    inputs.sort_unstable_by_key(|&(id, _)| id);
    let mut peers = Vec::new();
    for &(port, key) in &inputs {
        input_port(s, e, fragments, id, port, key, &mut peers)?;
        pace.steps(8)?;
        within(s, most)?;
    }
    s.mark(3);
    s.markup(b"</aug:inputPorts><aug:outputPorts>");
    let mut outputs: Vec<(u32, PeOutput, Slot)> = e.output_slots(pe).collect();
    outputs.sort_unstable_by_key(|&(id, _, _)| id);
    for &(port, key, slot) in &outputs {
        output_port(s, e, fragments, id, port, key, slot)?;
        pace.steps(2)?;
        within(s, most)?;
    }
    s.mark(4);
    s.markup(b"</aug:outputPorts><aug:operDefinitions>");
    for &position in &members.definitions {
        s.fragment(&fragments.definitions[position]);
    }
    s.mark(5);
    s.markup(b"</aug:operDefinitions><aug:customMetrics>");
    for position in members.custom_metrics(application) {
        s.fragment(&fragments.metrics[position]);
    }
    s.mark(6);
    s.markup(b"</aug:customMetrics><aug:currentTracing><aug:tracingUpdate level=\"");
    s.string(members.trace_level.name());
    s.markup(b"\"/><aug:tracingUpdateSequenceNum>0</aug:tracingUpdateSequenceNum></aug:currentTracing>");
    s.fragment(&fragments.toolkits);
    for operator in members.operators {
        s.fragment(&fragments.capabilities[operator.definition]);
        s.settle()?;
    }
    s.markup(b"</aug:augmentedPE>");
    within(s, most)
}

fn within<const O: bool>(s: &Sheet<'_, O>, most: u64) -> Result<(), WriteError> {
    if s.bytes() > most {
        return Err(too_much_text().into());
    }
    Ok(())
}

/// The limit on all documents of a job (rule aadl-21).
pub(super) fn too_much_text() -> Problem {
    Problem::new(
        Stage::Topology,
        "the AADL documents of the job are too large: widths are too large, or there are too many PEs",
    )
}

/// What a document takes from all operators together (rule element-14).
struct Members<'a> {
    optimized: bool,
    restartable: bool,
    relocatable: bool,
    wrapper: &'a str,
    trace_level: TraceLevel,
    /// By operator.
    operators: Vec<&'a Operator>,
    /// Positions of the definitions, in the order in which they are met.
    definitions: Vec<usize>,
}

impl<'a> Members<'a> {
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
            if all.wrapper == "none" && WRAPPERS.contains(&primitive.wrapper.as_str()) {
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

/// `aug:inputPort` (rule aadl-15).
fn input_port<const O: bool>(
    s: &mut Sheet<'_, O>,
    e: &Elements,
    fragments: &Fragments,
    pe: u64,
    id: u32,
    key: PeInput,
    peers: &mut Vec<(u64, u32)>,
) -> Result<(), WriteError> {
    let operator = &e.topology().operators[key.operator];
    let Some(pieces) = fragments.operator(operator.logical).and_then(|o| o.inputs.get(key.port as usize)) else {
        return Ok(());
    };
    s.markup(b"<aug:inputPort id=\"");
    s.mark(b'i');
    pe_port(s, fragments, pe, id, pieces, &operator.name, b"\">")?;
    match operator.inputs.get(key.port as usize).and_then(|input| input.imports.as_deref()) {
        Some(imports) => imported_streams(s, imports),
        None => s.markup(b"<aug:importedStreams/>"),
    }
    s.markup(b"<aug:staticConnections>");
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
        s.markup(b"<aug:staticConnection peId=\"");
        s.mark(b's');
        s.wide(peer);
        s.markup(b"\" oportId=\"");
        s.number(id);
        s.markup(b"\" oportIndex=\"");
        s.hidden_number(id);
        s.markup(b"\"/>");
        s.settle()?;
    }
    s.markup(b"</aug:staticConnections><aug:operInstanceConnection operInstanceIndex=\"");
    s.mark(b'c');
    s.number(operator.index);
    s.markup(b"\" iportIndex=\"");
    s.wide(e.input_index(key.operator, key.port));
    s.markup(b"\"/></aug:inputPort>");
    Ok(s.settle()?)
}

/// `aug:outputPort` (rule aadl-15).
fn output_port<const O: bool>(
    s: &mut Sheet<'_, O>,
    e: &Elements,
    fragments: &Fragments,
    pe: u64,
    id: u32,
    key: PeOutput,
    slot: Slot,
) -> Result<(), WriteError> {
    let operator = &e.topology().operators[key.operator];
    let Some(pieces) = fragments.operator(operator.logical).and_then(|o| o.outputs.get(key.port as usize)) else {
        return Ok(());
    };
    s.markup(b"<aug:outputPort id=\"");
    s.mark(b'o');
    let single_threaded = e.flags(key.operator).single_threaded_to_others;
    s.observe(single_threaded);
    let flag: &'static [u8] =
        if single_threaded { b"\" singleThreadedOnOutput=\"true\">" } else { b"\" singleThreadedOnOutput=\"false\">" };
    pe_port(s, fragments, pe, id, pieces, &operator.name, flag)?;
    if let Some(export) = operator.outputs.get(key.port as usize).and_then(|output| output.export.as_deref()) {
        exported_stream(s, export);
    }
    s.markup(b"<aug:staticConnections>");
    let own = e.pe(key.operator);
    for connection in e.outgoing(slot) {
        let peer = e.pe(connection.target);
        if peer == own {
            continue;
        }
        // One element per PE input port, and that stands for exactly one operator port: connections are distinct.
        let id = e.input_id(connection.target, connection.target_port);
        s.markup(b"<aug:staticConnection peId=\"");
        s.mark(b's');
        s.wide(e.id(peer));
        s.markup(b"\" iportId=\"");
        s.number(id);
        s.markup(b"\" iportIndex=\"");
        s.hidden_number(id);
        s.markup(b"\" iOperInstanceIndex=\"");
        s.number(e.topology().operators[connection.target].index);
        s.markup(b"\" iOperInstancePortIndex=\"");
        s.wide(e.input_index(connection.target, connection.target_port));
        s.markup(b"\"/>");
        s.settle()?;
    }
    s.markup(b"</aug:staticConnections><aug:operInstanceConnection operInstanceIndex=\"");
    s.mark(b'c');
    s.number(operator.index);
    s.markup(b"\" oportIndex=\"");
    s.wide(e.output_index(key.operator, key.port));
    operator::channel(s, key.via);
    s.markup(b"\"/></aug:outputPort>");
    Ok(s.settle()?)
}

/// What both directions begin with, up to and including the tuple type.
fn pe_port<const O: bool>(
    s: &mut Sheet<'_, O>,
    fragments: &Fragments,
    pe: u64,
    id: u32,
    pieces: &Port,
    operator: &str,
    end: &'static [u8],
) -> Result<(), WriteError> {
    s.number(id);
    s.markup(b"\" index=\"");
    s.hidden_number(id);
    s.markup(b"\" peId=\"");
    s.hidden_wide(pe);
    s.fragment(&pieces.pe_port);
    s.markup(end);
    match pieces.tuple_type.and_then(|position| fragments.tuple_types.get(position)) {
        Some(tuple_type) => s.fragment(tuple_type),
        None => {
            let message =
                format!("operator {}: a port has a tuple type that the ADL does not declare", excerpt(operator));
            return Err(Problem::new(Stage::Aadl, message).into());
        }
    }
    Ok(())
}

/// `aug:importedStreams` (rule aadl-16).
fn imported_streams<const O: bool>(s: &mut Sheet<'_, O>, imports: &Imports) {
    s.markup(b"<aug:importedStreams");
    s.mark(b'n');
    s.observe(imports.filter.is_some());
    if let Some(filter) = &imports.filter {
        s.markup(b" filter=\"");
        s.string(filter);
        s.markup(b"\"");
    }
    s.markup(b">");
    for (index, import) in (1..).zip(&imports.by_name) {
        s.markup(b"<nameBasedImport index=\"");
        s.mark(b'N');
        s.number(index);
        s.markup(b"\" applicationName=\"");
        s.string(&import.application_name);
        s.markup(b"\" applicationScope=\"");
        s.string(&import.application_scope);
        s.markup(b"\" importOperName=\"");
        s.string(&import.operator_name);
        s.markup(b"\" streamName=\"");
        s.string(&import.stream_name);
        s.markup(b"\"/>");
    }
    if let Some(import) = &imports.by_properties {
        s.markup(b"<propertyBasedImport index=\"");
        s.mark(b'P');
        s.wide(import.index);
        s.markup(b"\" applicationScope=\"");
        s.string(&import.application_scope);
        s.markup(b"\" importOperName=\"");
        s.string(&import.operator_name);
        s.markup(b"\" subscription=\"");
        s.string(&import.subscription);
        s.markup(b"\"/>");
    }
    s.markup(b"</aug:importedStreams>");
}

/// `aug:exportedStream` (rule aadl-16).
fn exported_stream<const O: bool>(s: &mut Sheet<'_, O>, export: &Export) {
    s.markup(b"<aug:exportedStream");
    s.mark(b'x');
    s.observe(export.name.is_some());
    if let Some(name) = &export.name {
        s.markup(b" name=\"");
        s.string(name);
        s.markup(b"\"");
    }
    s.markup(b" exportOperName=\"");
    s.string(&export.operator_name);
    s.markup(b"\" allowFilter=\"");
    s.boolean(export.allow_filter);
    s.observe(export.drop_connection);
    s.markup(if export.drop_connection { b"\" congestionPolicy=\"dropConnection\">" } else { b"\">" });
    s.observe(export.properties.is_some());
    if let Some(properties) = &export.properties {
        s.markup(b"<properties>");
        for property in properties {
            s.markup(b"<property name=\"");
            s.mark(b'p');
            s.string(&property.name);
            s.markup(b"\" type=\"");
            s.string(&property.r#type);
            s.markup(b"\">");
            for value in &property.values {
                s.markup(b"<value>");
                s.mark(b'V');
                s.string(value);
                s.markup(b"</value>");
            }
            s.markup(b"</property>");
        }
        s.markup(b"</properties>");
    }
    s.markup(b"</aug:exportedStream>");
}
