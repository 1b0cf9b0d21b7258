//! What all channels of an operator have in common, escaped once: the pieces of the operator itself and of its ports.
//!
//! Knows: the operator as it is written in the ADL. Must not know: channels, PEs, connections: what depends on these is
//! put between the pieces by [`super::operator`] and [`super::document`].

use super::sheet::{Fragment, Sheet};
use crate::heap::heap_fields;
use crate::logical::{self, Checkpointing, Primitive};

/// Pieces that all channels of an operator share.
#[derive(Debug)]
pub(super) struct Operator {
    /// Attributes.
    pub(super) attributes: Fragment,
    /// `sharedObject`.
    pub(super) shared_object: Fragment,
    /// `checkpointing`, or nothing.
    pub(super) checkpointing: Fragment,
    /// `jvmArguments`, or nothing.
    pub(super) jvm_arguments: Fragment,
    /// Input ports, by position.
    pub(super) inputs: Vec<Port>,
    /// Positions of the input ports by ADL index, in which order they are written.
    pub(super) input_order: Vec<u32>,
    /// Output ports, by position.
    pub(super) outputs: Vec<Port>,
    /// Positions of the output ports by ADL index.
    pub(super) output_order: Vec<u32>,
    /// Position of its definition in the table.
    pub(super) definition: usize,
}

/// Pieces of a port.
#[derive(Debug)]
pub(super) struct Port {
    /// Attributes of the operator port.
    pub(super) attributes: Fragment,
    /// `encoding` and `transport` of PE ports made from it.
    pub(super) pe_port: Fragment,
    /// Position of its tuple type in the table; none if the ADL does not declare it.
    pub(super) tuple_type: Option<usize>,
    /// Input ports: congestion policy and queue size of the threaded port as written.
    pub(super) threaded: Option<Fragment>,
}

heap_fields! {
    Operator {
        attributes, shared_object, checkpointing, jvm_arguments, inputs, input_order, outputs, output_order, definition,
    }
    Port { attributes, pe_port, tuple_type, threaded }
}

impl Operator {
    /// Makes the pieces of a primitive operator; nothing if its definition does not exist, which the topology refuses.
    /// Fails with a character that XML cannot hold.
    pub(super) fn new(
        application: &logical::Application,
        operator: &logical::Operator,
        primitive: &Primitive,
    ) -> Result<Option<Self>, char> {
        let Ok(position) = application.definitions.binary_search_by_key(&primitive.definition, |d| d.index) else {
            return Ok(None);
        };
        let toolkit = application.definitions.get(position).and_then(|d| d.toolkit);
        let attributes = Fragment::new(|s| {
            s.markup(b" class=\"");
            s.string(&primitive.class);
            s.markup(b"\" definitionIndex=\"");
            s.wide(primitive.definition);
            s.markup(b"\" restartable=\"");
            s.hidden_boolean(primitive.restartable);
            s.markup(b"\" relocatable=\"");
            s.hidden_boolean(primitive.relocatable);
            s.markup(b"\" launchCount=\"1\" logicalName=\"");
            s.string(&operator.logical_name);
            s.markup(b"\" logicalIndex=\"");
            s.hidden_wide(operator.index);
            s.markup(b"\"");
            s.observe(toolkit.is_some());
            if let Some(toolkit) = toolkit {
                s.markup(b" toolkitIndex=\"");
                s.wide(toolkit);
                s.markup(b"\"");
            }
        })?;
        let shared_object = Fragment::new(|s| {
            s.markup(b"<sharedObject><wrapper>");
            s.string(&primitive.wrapper);
            s.markup(b"</wrapper><sharedObjectUri>");
            s.string(&primitive.shared_object);
            s.markup(b"</sharedObjectUri></sharedObject>");
        })?;
        let inputs = primitive
            .inputs
            .iter()
            .map(|input| {
                let threaded = input.threaded.as_ref().map(threaded_port).transpose()?;
                Port::new(application, &input.port, threaded, |s| {
                    s.markup(b"\" isControl=\"");
                    s.boolean(input.control);
                })
            })
            .collect::<Result<_, _>>()?;
        let outputs = primitive
            .outputs
            .iter()
            .map(|output| {
                Port::new(application, &output.port, None, |s| {
                    s.markup(b"\" viewable=\"");
                    s.hidden_boolean(output.viewable);
                    s.markup(b"\" logicalStreamName=\"");
                    s.hidden_string(&output.stream_name);
                })
            })
            .collect::<Result<_, _>>()?;
        Ok(Some(Self {
            attributes,
            shared_object,
            checkpointing: checkpointing(primitive.checkpointing.as_ref())?,
            jvm_arguments: jvm_arguments(primitive.jvm_arguments.as_deref())?,
            input_order: order(primitive.inputs.iter().map(|input| input.port.index)),
            inputs,
            output_order: order(primitive.outputs.iter().map(|output| output.port.index)),
            outputs,
            definition: position,
        }))
    }
}

/// Positions by ascending index.
fn order(indexes: impl Iterator<Item = u64>) -> Vec<u32> {
    let mut order: Vec<(u64, u32)> = indexes.zip(0..).collect();
    order.sort_unstable();
    order.into_iter().map(|(_, position)| position).collect()
}

impl Port {
    fn new(
        application: &logical::Application,
        port: &logical::Port,
        threaded: Option<Fragment>,
        more: impl FnOnce(&mut Sheet<'_, true>),
    ) -> Result<Self, char> {
        Ok(Self {
            attributes: Fragment::new(|s| {
                s.markup(b" index=\"");
                s.wide(port.index);
                s.markup(b"\" name=\"");
                s.string(&port.name);
                s.markup(b"\" isMutable=\"");
                s.boolean(port.mutable);
                s.markup(b"\" tupleTypeIndex=\"");
                s.wide(port.tuple_type);
                more(s);
                s.markup(b"\"");
            })?,
            pe_port: Fragment::new(|s| {
                s.markup(b"\" encoding=\"");
                s.string(&port.encoding);
                s.markup(b"\" transport=\"");
                s.string(&port.transport);
            })?,
            tuple_type: application.tuple_types.binary_search_by_key(&port.tuple_type, |t| t.index).ok(),
            threaded,
        })
    }
}

fn threaded_port(port: &logical::ThreadedPort) -> Result<Fragment, char> {
    Fragment::new(|s| {
        s.markup(b"<threadedPort congestionPolicy=\"");
        s.string(&port.congestion_policy);
        s.markup(b"\"");
        s.observe(port.queue_size.is_some());
        if let Some(size) = port.queue_size {
            s.markup(b" queueSize=\"");
            s.wide(size);
            s.markup(b"\"");
        }
    })
}

fn checkpointing(checkpointing: Option<&Checkpointing>) -> Result<Fragment, char> {
    Fragment::new(|s| match checkpointing {
        None => s.mark(0),
        Some(Checkpointing::OperatorDriven) => {
            s.mark(1);
            s.markup(b"<checkpointing policy=\"operatorDriven\"/>");
        }
        Some(Checkpointing::Periodic(period)) => {
            s.mark(2);
            s.markup(b"<checkpointing policy=\"periodic\"");
            if let Some(period) = period {
                s.markup(b" period=\"");
                s.double(*period);
                s.markup(b"\"");
            }
            s.markup(b"/>");
        }
    })
}

fn jvm_arguments(arguments: Option<&[String]>) -> Result<Fragment, char> {
    Fragment::new(|s| {
        s.observe(arguments.is_some());
        let Some(arguments) = arguments else { return };
        s.markup(b"<phy:jvmArguments>");
        for argument in arguments {
            s.markup(b"<phy:jvmArgument>");
            s.mark(b'j');
            s.string(argument);
            s.markup(b"</phy:jvmArgument>");
        }
        s.markup(b"</phy:jvmArguments>");
    })
}
