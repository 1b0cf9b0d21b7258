//! Maps each logical operator to its copies: the operator of the topology in each channel.
//!
//! A copy is identified by the logical operator and its global channel, as in [`super::shape`].

use super::Node;
use super::order::Numbered;
use crate::logical::OperatorId;
use cranelift_entity::packed_option::PackedOption;
use cranelift_entity::{EntityRef, SecondaryMap};

/// The copies of every real operator, by global channel.
#[derive(Default)]
pub(super) struct Copies {
    nodes: SecondaryMap<OperatorId, Vec<PackedOption<Node>>>,
}

impl Copies {
    /// Makes the map for operators with these numbers. Nodes are positions in this list.
    pub(super) fn new(numbered: &Numbered) -> Self {
        let mut nodes: SecondaryMap<OperatorId, Vec<PackedOption<Node>>> = SecondaryMap::new();
        for (at, (_, id, channel)) in numbered.iter().enumerate() {
            let (copies, channel) = (&mut nodes[*id], *channel as usize);
            if copies.len() <= channel {
                copies.resize(channel + 1, PackedOption::default());
            }
            copies[channel] = Node::new(at).into();
        }
        Self { nodes }
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
