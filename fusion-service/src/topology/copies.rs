//! The copies of each operator as written: which operator of a topology stands in which channel.
//!
//! A copy is named by the operator and its global channel, as everywhere in [`super::shape`].

use super::{Node, Topology};
use crate::logical::OperatorId;
use cranelift_entity::packed_option::PackedOption;
use cranelift_entity::{EntityRef, SecondaryMap};

/// The copies of every real operator, by global channel.
#[derive(Default)]
pub(super) struct Copies {
    nodes: SecondaryMap<OperatorId, Vec<PackedOption<Node>>>,
}

impl Copies {
    /// Of operators with their global channels, in the order of the arena.
    pub(super) fn new(operators: impl Iterator<Item = (OperatorId, u32)>) -> Self {
        let mut nodes: SecondaryMap<OperatorId, Vec<PackedOption<Node>>> = SecondaryMap::new();
        for (at, (id, channel)) in operators.enumerate() {
            let (copies, channel) = (&mut nodes[id], channel as usize);
            if copies.len() <= channel {
                copies.resize(channel + 1, PackedOption::default());
            }
            copies[channel] = Node::new(at).into();
        }
        Self { nodes }
    }

    /// The copies in a topology.
    pub(super) fn of(topology: &Topology) -> Self {
        Self::new(topology.operators.values().map(|operator| (operator.logical, operator.global_channel())))
    }

    /// The copy of an operator in a global channel, if there is one.
    pub(super) fn node(&self, id: OperatorId, channel: u32) -> Option<Node> {
        self.nodes[id].get(channel as usize)?.expand()
    }

    /// The copies of an operator in global channels from this one on.
    pub(super) fn from(&self, id: OperatorId, channel: u32) -> &[PackedOption<Node>] {
        self.nodes[id].get(channel as usize..).unwrap_or_default()
    }

    /// All copies of an operator, ascending global channel.
    pub(super) fn all(&self, id: OperatorId) -> impl Iterator<Item = Node> {
        self.nodes[id].iter().filter_map(|node| node.expand())
    }
}
