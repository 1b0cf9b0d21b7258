//! One operator: `app:operInstance` (rule aadl-10).

use super::elements::Elements;
use super::fragments::Fragments;
use super::operator_fragments::Port;
use super::sheet::Sheet;
use crate::logical::SplitterKind;
use crate::topology::{Connection, Node, Operator, Splitter, Via};
use std::io;

/// Writes one operator.
pub(super) fn write<const O: bool>(
    s: &mut Sheet<'_, O>,
    e: &Elements,
    fragments: &Fragments,
    node: Node,
) -> io::Result<()> {
    let operator = &e.topology().operators[node];
    let channels = fragments.channels();
    let Some(shared) = fragments.operator(operator.logical) else { return Ok(()) };
    s.markup(b"<operInstance xsi:type=\"phy:physOperInstanceType\" index=\"");
    s.mark(b'O');
    s.number(operator.index);
    s.markup(b"\" name=\"");
    s.string(&operator.name);
    s.markup(b"\"");
    s.fragment(&shared.attributes);
    let flags = e.flags(node);
    s.markup(b" singleThreadedOnInputs=\"");
    s.boolean(flags.single_threaded_on_inputs);
    s.markup(b"\" singleThreadedOnOutputs=\"");
    s.boolean(flags.single_threaded_on_outputs);
    s.markup(b"\">");
    s.fragment(&shared.shared_object);
    s.fragment(channels.resources(node));
    s.fragment(&shared.checkpointing);
    s.fragment(channels.runtime_constants(node));
    s.markup(b"<inputPorts>");
    for &port in &shared.input_order {
        input_port(s, e, &shared.inputs[port as usize], node, port)?;
    }
    s.markup(b"</inputPorts><outputPorts>");
    for &port in &shared.output_order {
        output_port(s, e, &shared.outputs[port as usize], node, port)?;
    }
    s.markup(b"</outputPorts>");
    s.fragment(channels.annotations(node));
    s.fragment(&shared.jvm_arguments);
    parallel_regions(s, operator);
    s.markup(b"</operInstance>");
    s.settle()
}

/// `app:inputPort` (rule aadl-11).
fn input_port<const O: bool>(
    s: &mut Sheet<'_, O>,
    e: &Elements,
    pieces: &Port,
    node: Node,
    port: u32,
) -> io::Result<()> {
    s.markup(b"<inputPort");
    s.mark(b'I');
    s.fragment(&pieces.attributes);
    s.markup(b">");
    let own = e.pe(node);
    for inter in [true, false] {
        for connection in e.incoming(node, port) {
            if (e.pe(connection.source) != own) == inter {
                incoming(s, e, connection, inter);
                s.settle()?;
            }
        }
    }
    let threaded = e.threaded_port(node, port);
    s.observe(threaded.is_some());
    if let Some(threaded) = threaded {
        match &pieces.threaded {
            Some(written) => s.fragment(written),
            None => s.markup(b"<threadedPort congestionPolicy=\"wait\""),
        }
        s.markup(b" singleThreadedOnInput=\"");
        s.boolean(threaded.single_threaded_on_input);
        s.markup(b"\" isInjected=\"");
        s.boolean(threaded.injected);
        s.markup(b"\"/>");
    }
    s.markup(b"</inputPort>");
    Ok(())
}

/// The end of a connection. The runtime does not read by which PE port it comes (rule aadl-11).
#[inline]
fn incoming<const O: bool>(s: &mut Sheet<'_, O>, e: &Elements, connection: &Connection, inter: bool) {
    s.markup(if inter {
        b"<interPeConnection operInstanceIndex=\""
    } else {
        b"<intraPeConnection operInstanceIndex=\""
    });
    s.mark(if inter { b'>' } else { b'=' });
    s.number(e.topology().operators[connection.source].index);
    s.markup(b"\" oportIndex=\"");
    s.wide(e.output_index(connection.source, connection.source_port));
    channel(s, connection.via());
    if inter {
        s.markup(b"\" pePortIndex=\"");
        s.hidden_number(e.output_id(connection));
    }
    s.markup(b"\"/>");
}

/// Attributes that say which channel of an output port is meant, behind the value of another one; none if it is taken
/// directly.
#[inline]
pub(super) fn channel<const O: bool>(s: &mut Sheet<'_, O>, via: Option<Via>) {
    if let Some(Via { splitter, channel }) = via {
        s.markup(b"\" splitterIndex=\"");
        s.mark(b'v');
        s.number(splitter);
        s.markup(b"\" channelIndex=\"");
        s.number(channel);
    }
}

/// `app:outputPort` (rule aadl-11).
fn output_port<const O: bool>(
    s: &mut Sheet<'_, O>,
    e: &Elements,
    pieces: &Port,
    node: Node,
    port: u32,
) -> io::Result<()> {
    let Some(output) = e.topology().operators[node].outputs.get(port as usize) else { return Ok(()) };
    s.markup(b"<outputPort xsi:type=\"phy:physOperInstanceOutputPortType\"");
    s.mark(b'o');
    s.fragment(&pieces.attributes);
    s.markup(b" streamName=\"");
    s.hidden_string(&output.stream_name);
    s.markup(b"\">");
    outgoing(s, e, node, port, None)?;
    for splitter in &output.splitters {
        self::splitter(s, e, node, port, splitter)?;
    }
    s.markup(b"</outputPort>");
    Ok(())
}

/// Connections of a port or of a channel: those to other PEs first.
fn outgoing<const O: bool>(
    s: &mut Sheet<'_, O>,
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
        s.markup(b"<interPeConnection operInstanceIndex=\"");
        s.mark(b'<');
        s.number(e.topology().operators[connection.target].index);
        s.markup(b"\" iportIndex=\"");
        s.wide(e.input_index(connection.target, connection.target_port));
        s.markup(b"\" pePortIndex=\"");
        s.hidden_number(e.input_id(connection.target, connection.target_port));
        s.markup(b"\"/>");
        s.settle()?;
    }
    if inner == 0 {
        return Ok(());
    }
    for connection in connections {
        if e.pe(connection.target) == own {
            s.markup(b"<intraPeConnection operInstanceIndex=\"");
            s.mark(b'=');
            s.number(e.topology().operators[connection.target].index);
            s.markup(b"\" iportIndex=\"");
            s.wide(e.input_index(connection.target, connection.target_port));
            s.markup(b"\"/>");
            s.settle()?;
        }
    }
    Ok(())
}

/// `app:splitter` and those under its channels (rule aadl-12). The nesting is that of parallel regions, which the depth
/// of the ADL bounds.
fn splitter<const O: bool>(
    s: &mut Sheet<'_, O>,
    e: &Elements,
    node: Node,
    port: u32,
    splitter: &Splitter,
) -> io::Result<()> {
    s.markup(b"<splitter kind=\"");
    s.mark(b'S');
    s.string(match splitter.kind {
        SplitterKind::RoundRobin => "RoundRobin",
        SplitterKind::Hash => "Hash",
        SplitterKind::Broadcast => "Broadcast",
    });
    s.markup(b"\" index=\"");
    s.number(splitter.index);
    s.markup(b"\" iportIndex=\"");
    s.wide(splitter.input_port);
    s.markup(b"\" regionIndex=\"");
    s.wide(splitter.region);
    s.markup(b"\" dropWindowPuncts=\"");
    s.boolean(splitter.drop_window_punctuation);
    s.markup(b"\">");
    let mut nested = splitter.nested.iter().peekable();
    for channel in 0..splitter.width {
        s.markup(b"<parallelChannel index=\"");
        s.mark(b'C');
        s.number(channel);
        s.markup(b"\">");
        outgoing(s, e, node, port, Some(Via { splitter: splitter.index, channel }))?;
        while let Some((_, inner)) = nested.next_if(|(of, _)| *of == channel) {
            self::splitter(s, e, node, port, inner)?;
        }
        s.markup(b"</parallelChannel>");
        s.settle()?;
    }
    if !splitter.attributes.is_empty() {
        s.markup(b"<attributes>");
        for attribute in &*splitter.attributes {
            s.markup(b"<attribute name=\"");
            s.mark(b'A');
            s.string(attribute);
            s.markup(b"\"/>");
        }
        s.markup(b"</attributes>");
    }
    s.mark(b'/');
    s.markup(b"</splitter>");
    Ok(())
}

/// `phy:parallelRegions`, innermost first (rule aadl-14).
fn parallel_regions<const O: bool>(s: &mut Sheet<'_, O>, operator: &Operator) {
    if operator.channels.is_empty() {
        return;
    }
    s.markup(b"<phy:parallelRegions>");
    for channel in &operator.channels {
        s.markup(b"<phy:parallelRegion regionIndex=\"");
        s.mark(b'R');
        s.wide(channel.region);
        s.markup(b"\" localChannelIndex=\"");
        s.number(channel.local);
        s.markup(b"\" globalChannelIndex=\"");
        s.number(channel.global);
        s.markup(b"\" localMaxChannels=\"");
        s.number(channel.local_max);
        s.markup(b"\" globalMaxChannels=\"");
        s.number(channel.global_max);
        s.markup(b"\"/>");
    }
    s.markup(b"</phy:parallelRegions>");
}
