//! The fragments that all channels of an operator share: those of the operator itself and of its ports.
//!
//! Knows: the operator as it is written in the ADL. Must not know: channels, PEs, connections. [`super::operator`] and
//! [`super::document`] write what depends on these between the fragments.

use super::element::HasAttributes;
use super::hashing_writer::{Fragment, StartTag, Unwritable};
use super::size::Room;
use super::value::Word;
use super::vocabulary::{
    CheckpointingElement, InputPort, JvmArgument, JvmArguments, OperInstance, OutputPort, PePortAttributes,
    PortAttributes, SharedObject, SharedObjectUri, ThreadedPort, Wrapper,
};
use crate::logical::{self, Checkpointing, Primitive};
use get_size2::GetSize;

/// The fragments of an operator.
#[derive(Debug, GetSize)]
pub(super) struct OperatorFragments {
    /// Attributes.
    pub(super) attributes: Fragment,
    /// `sharedObject`.
    pub(super) shared_object: Fragment,
    /// `checkpointing`, or nothing.
    pub(super) checkpointing: Fragment,
    /// `jvmArguments`, or nothing.
    pub(super) jvm_arguments: Fragment,
    /// Input ports, by position.
    pub(super) inputs: Vec<PortFragments>,
    /// Positions of the input ports by ADL index, in which order they are written.
    pub(super) input_order: Vec<u32>,
    /// Output ports, by position.
    pub(super) outputs: Vec<PortFragments>,
    /// Positions of the output ports by ADL index.
    pub(super) output_order: Vec<u32>,
    /// Position of its definition in the table.
    pub(super) definition: usize,
}

/// The fragments of a port.
#[derive(Debug, GetSize)]
pub(super) struct PortFragments {
    /// Attributes of the operator port.
    pub(super) attributes: Fragment,
    /// `encoding` and `transport` of PE ports made from it.
    pub(super) pe_port: Fragment,
    /// Position of its tuple type in the table; none if the ADL does not declare it.
    pub(super) tuple_type: Option<usize>,
    /// Input ports: congestion policy and queue size of the threaded port as written.
    pub(super) threaded: Option<Fragment>,
}

impl OperatorFragments {
    /// Makes the fragments of a primitive operator, of which those that may have any number of texts have this room;
    /// the others have a handful. Returns nothing if its definition does not exist, which the topology refuses.
    ///
    /// # Errors
    ///
    /// A character that XML cannot hold, there is no room, or the budget ends.
    pub(super) fn new(
        application: &logical::Application,
        operator: &logical::Operator,
        primitive: &Primitive,
        room: Room<'_>,
    ) -> Result<Option<Self>, Unwritable> {
        let Ok(position) = application.definitions.binary_search_by_key(&primitive.definition, |d| d.index) else {
            return Ok(None);
        };
        let toolkit = application.definitions.get(position).and_then(|d| d.toolkit);
        let attributes = Fragment::attributes::<OperInstance>(|tag| {
            tag.attribute(OperInstance::CLASS, &primitive.class)
                .attribute(OperInstance::DEFINITION_INDEX, primitive.definition)
                .attribute(OperInstance::RESTARTABLE, primitive.restartable)
                .attribute(OperInstance::RELOCATABLE, primitive.relocatable)
                .fixed(OperInstance::LAUNCH_COUNT)
                .attribute(OperInstance::LOGICAL_NAME, &operator.logical_name)
                .attribute(OperInstance::LOGICAL_INDEX, operator.index)
                .optional(OperInstance::TOOLKIT_INDEX, toolkit)
        })?;
        let shared_object = Fragment::new(|w| {
            w.open(SharedObject);
            w.leaf(Wrapper, &*primitive.wrapper);
            w.leaf(SharedObjectUri, &*primitive.shared_object);
            w.end(SharedObject);
        })?;
        let inputs = primitive
            .inputs
            .iter()
            .map(|input| {
                let threaded = input.threaded.as_ref().map(threaded_port).transpose()?;
                PortFragments::new::<InputPort>(application, &input.port, threaded, |tag| {
                    tag.attribute(InputPort::IS_CONTROL, input.control)
                })
            })
            .collect::<Result<_, _>>()?;
        let outputs = primitive
            .outputs
            .iter()
            .map(|output| {
                PortFragments::new::<OutputPort>(application, &output.port, None, |tag| {
                    tag.attribute(OutputPort::VIEWABLE, output.viewable)
                        .attribute(OutputPort::LOGICAL_STREAM_NAME, &output.stream_name)
                })
            })
            .collect::<Result<_, _>>()?;
        Ok(Some(Self {
            attributes,
            shared_object,
            checkpointing: checkpointing(primitive.checkpointing.as_ref())?,
            jvm_arguments: jvm_arguments(primitive.jvm_arguments.as_deref(), room)?,
            input_order: order(primitive.inputs.iter().map(|input| input.port.index)),
            inputs,
            output_order: order(primitive.outputs.iter().map(|output| output.port.index)),
            outputs,
            definition: position,
        }))
    }
}

impl OperatorFragments {
    /// Bytes of text of all of them.
    pub(super) fn len(&self) -> usize {
        let own = [&self.attributes, &self.shared_object, &self.checkpointing, &self.jvm_arguments];
        let ports = self.inputs.iter().chain(&self.outputs).flat_map(|port| {
            let PortFragments { attributes, pe_port, tuple_type: _, threaded } = port;
            [attributes, pe_port].into_iter().chain(threaded)
        });
        own.into_iter().chain(ports).map(Fragment::len).sum()
    }
}

/// Positions by ascending index.
fn order(indexes: impl Iterator<Item = u64>) -> Vec<u32> {
    let mut order: Vec<(u64, u32)> = indexes.zip(0..).collect();
    order.sort_unstable();
    order.into_iter().map(|(_, position)| position).collect()
}

impl PortFragments {
    fn new<E: HasAttributes<E> + HasAttributes<PortAttributes>>(
        application: &logical::Application,
        port: &logical::Port,
        threaded: Option<Fragment>,
        more: impl for<'w, 's> FnOnce(StartTag<'w, 's, E, true>) -> StartTag<'w, 's, E, true>,
    ) -> Result<Self, Unwritable> {
        Ok(Self {
            attributes: Fragment::attributes::<E>(|tag| {
                more(
                    tag.attribute(PortAttributes::INDEX, port.index)
                        .attribute(PortAttributes::NAME, &port.name)
                        .attribute(PortAttributes::IS_MUTABLE, port.mutable)
                        .attribute(PortAttributes::TUPLE_TYPE_INDEX, port.tuple_type),
                )
            })?,
            pe_port: Fragment::attributes::<PePortAttributes>(|tag| {
                tag.attribute(PePortAttributes::ENCODING, &port.encoding)
                    .attribute(PePortAttributes::TRANSPORT, &port.transport)
            })?,
            tuple_type: application.tuple_types.binary_search_by_key(&port.tuple_type, |t| t.index).ok(),
            threaded,
        })
    }
}

fn threaded_port(port: &logical::ThreadedPortSettings) -> Result<Fragment, Unwritable> {
    Fragment::attributes::<ThreadedPort>(|tag| {
        tag.attribute(ThreadedPort::CONGESTION_POLICY, &port.congestion_policy)
            .optional(ThreadedPort::QUEUE_SIZE, port.queue_size)
    })
}

fn checkpointing(checkpointing: Option<&Checkpointing>) -> Result<Fragment, Unwritable> {
    Fragment::new(|w| match checkpointing {
        None => w.observe(0),
        Some(Checkpointing::OperatorDriven) => {
            w.start(CheckpointingElement).attribute(CheckpointingElement::POLICY, Word("operatorDriven", 1)).close();
        }
        Some(Checkpointing::Periodic(period)) => {
            let tag = w.start(CheckpointingElement).attribute(CheckpointingElement::POLICY, Word("periodic", 2));
            match period {
                Some(period) => tag.attribute(CheckpointingElement::PERIOD, *period).close(),
                None => tag.close(),
            }
        }
    })
}

fn jvm_arguments(arguments: Option<&[String]>, room: Room<'_>) -> Result<Fragment, Unwritable> {
    Fragment::within(room, |w| {
        w.observe(u8::from(arguments.is_some()));
        let Some(arguments) = arguments else { return };
        w.open(JvmArguments);
        w.each(arguments, |w, argument| w.leaf(JvmArgument, argument));
        w.end(JvmArguments);
    })
}
