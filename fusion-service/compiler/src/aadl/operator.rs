//! Writes one operator of a document: `app:operInstance` (rule aadl-10).

use super::element::HasAttributes;
use super::fragments::Fragments;
use super::hashing_writer::{HashingWriter, StartTag};
use super::operator_fragments::PortFragments;
use super::vocabulary::{
    ChannelAttributes, IncomingInterPeConnection, IncomingIntraPeConnection, InputPort, InputPorts, OperInstance,
    OutgoingInterPeConnection, OutgoingIntraPeConnection, OutputPort, OutputPorts, ParallelChannel, ParallelRegion,
    ParallelRegions, Splitter, SplitterAttribute, SplitterAttributes, ThreadedPort,
};
use crate::elements::Elements;
use crate::logical::SplitterKind;
use crate::topology::{self, Connection, IgnoredCounts, Node, ObservedCounts, PhysicalOperator, Via};
use std::io;

/// Writes one operator.
pub(super) fn write<const O: bool>(
    w: &mut HashingWriter<'_, O>,
    e: &Elements,
    fragments: &Fragments,
    node: Node,
) -> io::Result<()> {
    let operator = &e.topology().operators[node];
    let channels = fragments.channels();
    let Some(shared) = fragments.operator(operator.logical) else { return Ok(()) };
    let flags = e.flags(node);
    w.start(OperInstance)
        .fixed(OperInstance::TYPE)
        .attribute(OperInstance::INDEX, operator.index)
        .attribute(OperInstance::NAME, &operator.name)
        .fragment(&shared.attributes)
        .attribute(OperInstance::SINGLE_THREADED_ON_INPUTS, flags.single_threaded_on_inputs)
        .attribute(OperInstance::SINGLE_THREADED_ON_OUTPUTS, flags.single_threaded_on_outputs)
        .open();
    w.fragment(&shared.shared_object);
    w.fragment(channels.resources(node));
    w.fragment(&shared.checkpointing);
    w.fragment(channels.runtime_constants(node));
    w.open(InputPorts);
    for &port in &shared.input_order {
        input_port(w, e, &shared.inputs[port as usize], node, port)?;
    }
    w.end(InputPorts);
    w.open(OutputPorts);
    for &port in &shared.output_order {
        output_port(w, e, &shared.outputs[port as usize], node, port)?;
    }
    w.end(OutputPorts);
    w.fragment(channels.annotations(node));
    w.fragment(&shared.jvm_arguments);
    parallel_regions(w, operator, fragments.ignored_counts());
    w.end(OperInstance);
    w.pass_on()
}

/// `app:inputPort` (rule aadl-11).
fn input_port<const O: bool>(
    w: &mut HashingWriter<'_, O>,
    e: &Elements,
    pieces: &PortFragments,
    node: Node,
    port: u32,
) -> io::Result<()> {
    w.start(InputPort).fragment(&pieces.attributes).open();
    let own = e.pe(node);
    for inter in [true, false] {
        for connection in e.incoming(node, port) {
            if (e.pe(connection.source) != own) == inter {
                incoming(w, e, connection, inter);
                w.pass_on()?;
            }
        }
    }
    let threaded = e.threaded_port(node, port);
    w.observe(u8::from(threaded.is_some()));
    if let Some(threaded) = threaded {
        let tag = w.start(ThreadedPort);
        let tag = match &pieces.threaded {
            Some(written) => tag.fragment(written),
            None => tag.text(ThreadedPort::CONGESTION_POLICY, "wait"),
        };
        tag.attribute(ThreadedPort::SINGLE_THREADED_ON_INPUT, threaded.single_threaded_on_input)
            .attribute(ThreadedPort::IS_INJECTED, threaded.injected)
            .close();
    }
    w.end(InputPort);
    Ok(())
}

/// The end of a connection (rule aadl-11).
#[inline]
fn incoming<const O: bool>(w: &mut HashingWriter<'_, O>, e: &Elements, connection: &Connection, inter: bool) {
    let operator = e.topology().operators[connection.source].index;
    let port = e.output_index(connection.source, connection.source_port);
    if inter {
        let tag = w
            .start(IncomingInterPeConnection)
            .attribute(IncomingInterPeConnection::OPERATOR, operator)
            .attribute(IncomingInterPeConnection::PORT, port);
        channel(tag, connection.via()).attribute(IncomingInterPeConnection::PE_PORT, e.output_id(connection)).close();
    } else {
        let tag = w
            .start(IncomingIntraPeConnection)
            .attribute(IncomingIntraPeConnection::OPERATOR, operator)
            .attribute(IncomingIntraPeConnection::PORT, port);
        channel(tag, connection.via()).close();
    }
}

/// Says which channel of an output port is meant; nothing if it is taken directly.
#[inline]
pub(super) fn channel<'w, 's, E: HasAttributes<ChannelAttributes>, const O: bool>(
    tag: StartTag<'w, 's, E, O>,
    via: Option<Via>,
) -> StartTag<'w, 's, E, O> {
    let Some(Via { splitter, channel }) = via else { return tag };
    tag.attribute(ChannelAttributes::SPLITTER, splitter).attribute(ChannelAttributes::CHANNEL, channel)
}

/// `app:outputPort` (rule aadl-11).
fn output_port<const O: bool>(
    w: &mut HashingWriter<'_, O>,
    e: &Elements,
    pieces: &PortFragments,
    node: Node,
    port: u32,
) -> io::Result<()> {
    let Some(output) = e.topology().operators[node].outputs.get(port as usize) else { return Ok(()) };
    w.start(OutputPort)
        .fixed(OutputPort::TYPE)
        .fragment(&pieces.attributes)
        .attribute(OutputPort::STREAM_NAME, &output.stream_name)
        .open();
    outgoing(w, e, node, port, None)?;
    for splitter in &output.splitters {
        self::splitter(w, e, node, port, splitter)?;
    }
    w.end(OutputPort);
    Ok(())
}

/// Connections of a port or of a channel: those to other PEs first.
fn outgoing<const O: bool>(
    w: &mut HashingWriter<'_, O>,
    e: &Elements,
    node: Node,
    port: u32,
    via: Option<Via>,
) -> io::Result<()> {
    let own = e.pe(node);
    let connections = e.outgoing(e.slot(node, port, via));
    let mut inner = 0_u32;
    for connection in connections.clone() {
        if e.pe(connection.target) == own {
            inner += 1;
            continue;
        }
        w.start(OutgoingInterPeConnection)
            .attribute(OutgoingInterPeConnection::OPERATOR, e.topology().operators[connection.target].index)
            .attribute(OutgoingInterPeConnection::PORT, e.input_index(connection.target, connection.target_port))
            .attribute(OutgoingInterPeConnection::PE_PORT, e.input_id(connection.target, connection.target_port))
            .close();
        w.pass_on()?;
    }
    if inner == 0 {
        return Ok(());
    }
    for connection in connections {
        if e.pe(connection.target) == own {
            w.start(OutgoingIntraPeConnection)
                .attribute(OutgoingIntraPeConnection::OPERATOR, e.topology().operators[connection.target].index)
                .attribute(OutgoingIntraPeConnection::PORT, e.input_index(connection.target, connection.target_port))
                .close();
            w.pass_on()?;
        }
    }
    Ok(())
}

/// `app:splitter` and those under its channels (rule aadl-12). A running PE cannot tell the channels of a splitter that
/// leads nowhere. The nesting is that of parallel regions, which the depth of the ADL bounds.
fn splitter<const O: bool>(
    w: &mut HashingWriter<'_, O>,
    e: &Elements,
    node: Node,
    port: u32,
    splitter: &topology::Splitter,
) -> io::Result<()> {
    let kind = match splitter.kind {
        SplitterKind::RoundRobin => "RoundRobin",
        SplitterKind::Hash => "Hash",
        SplitterKind::Broadcast => "Broadcast",
    };
    w.start(Splitter)
        .attribute(Splitter::KIND, kind)
        .attribute(Splitter::INDEX, splitter.index)
        .attribute(Splitter::INPUT_PORT, splitter.input_port)
        .attribute(Splitter::REGION, splitter.region)
        .attribute(Splitter::DROP_WINDOW_PUNCTUATION, splitter.drop_window_punctuation)
        .open();
    if !O || leads_somewhere(e, node, port, splitter) {
        channels(w, e, node, port, splitter)?;
    } else {
        w.unobserved(|w| channels(w, e, node, port, splitter))?;
    }
    if !splitter.attributes.is_empty() {
        w.open(SplitterAttributes);
        for attribute in &*splitter.attributes {
            w.start(SplitterAttribute).attribute(SplitterAttribute::NAME, attribute).close();
        }
        w.end(SplitterAttributes);
    }
    w.observe(b'/');
    w.end(Splitter);
    Ok(())
}

/// Whether there is a connection behind a splitter, directly or through one that is under it.
fn leads_somewhere(e: &Elements, node: Node, port: u32, splitter: &topology::Splitter) -> bool {
    e.has_connections(node, port, splitter.index)
        || splitter.nested.iter().any(|(_, inner)| leads_somewhere(e, node, port, inner))
}

/// The channels of a splitter, with their connections and the splitters under them.
fn channels<const O: bool>(
    w: &mut HashingWriter<'_, O>,
    e: &Elements,
    node: Node,
    port: u32,
    splitter: &topology::Splitter,
) -> io::Result<()> {
    let mut nested = splitter.nested.iter().peekable();
    for channel in 0..splitter.width {
        w.start(ParallelChannel).attribute(ParallelChannel::INDEX, channel).open();
        outgoing(w, e, node, port, Some(Via { splitter: splitter.index, channel }))?;
        while let Some((_, inner)) = nested.next_if(|(of, _)| *of == channel) {
            self::splitter(w, e, node, port, inner)?;
        }
        w.end(ParallelChannel);
        w.pass_on()?;
    }
    Ok(())
}

/// `phy:parallelRegions`, innermost first (rules aadl-14 and aadl-22).
fn parallel_regions<const O: bool>(w: &mut HashingWriter<'_, O>, operator: &PhysicalOperator, ignored: &IgnoredCounts) {
    if operator.channels.is_empty() {
        return;
    }
    w.open(ParallelRegions);
    for (position, channel) in operator.channels.iter().enumerate() {
        let around = operator.channels.iter().skip(position + 1).map(|outer| outer.region);
        let ObservedCounts { local, global } = ignored.observed(channel.region, around);
        w.start(ParallelRegion)
            .attribute(ParallelRegion::REGION, channel.region)
            .attribute(ParallelRegion::LOCAL_CHANNEL, channel.local)
            .attribute(ParallelRegion::GLOBAL_CHANNEL, channel.global)
            .attribute_if(local, ParallelRegion::LOCAL_MAX_CHANNELS, channel.local_max)
            .attribute_if(global, ParallelRegion::GLOBAL_MAX_CHANNELS, channel.global_max)
            .close();
    }
    w.end(ParallelRegions);
}
