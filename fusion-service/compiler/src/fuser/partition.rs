//! The result of fusion: groups of operators.

use crate::heap::primary_map;
use crate::topology::Node;
use cranelift_entity::{EntityRef, PrimaryMap, entity_impl};
use get_size2::GetSize;
use std::fmt;

/// A PE of a partition, by position: PEs are in order of their lowest operator index. Its id is a [`super::PeId`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, GetSize)]
pub struct Pe(u32);
entity_impl!(Pe, "pe");

/// Which operators share a PE. Every operator is in exactly one PE, and no PE is empty (rule fusion-2).
#[derive(Clone, PartialEq, Eq, GetSize)]
pub struct Partition {
    #[get_size(size_fn = primary_map)]
    places: PrimaryMap<Node, PartitionPlace>,
    /// Members of PE `p` are `members[starts[p]..starts[p + 1]]`, ascending.
    starts: Vec<u32>,
    members: Vec<Node>,
}

#[derive(Clone, Copy, PartialEq, Eq, GetSize)]
struct PartitionPlace {
    pe: Pe,
    /// Position among the members of its PE.
    local: u32,
}

impl Partition {
    /// Groups `operators` operators by the number that `group` gives to each.
    pub(crate) fn group(operators: usize, groups: usize, mut group: impl FnMut(Node) -> usize) -> Self {
        let mut pes: Vec<Option<Pe>> = vec![None; groups];
        let mut sizes: Vec<u32> = Vec::new();
        let mut places = PrimaryMap::with_capacity(operators);
        for position in 0..operators {
            let pe = *pes[group(Node::new(position))].get_or_insert_with(|| {
                sizes.push(0);
                Pe::new(sizes.len() - 1)
            });
            let size = &mut sizes[pe.index()];
            places.push(PartitionPlace { pe, local: *size });
            *size += 1;
        }
        let mut starts = Vec::with_capacity(sizes.len() + 1);
        let mut start = 0;
        starts.push(start);
        for size in sizes {
            start += size;
            starts.push(start);
        }
        let mut members = vec![Node::new(0); operators];
        for (node, place) in &places {
            members[(starts[place.pe.index()] + place.local) as usize] = node;
        }
        Self { places, starts, members }
    }

    /// Number of PEs.
    pub fn len(&self) -> usize {
        self.starts.len() - 1
    }

    /// Whether there is no PE, because there is no operator.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// PEs, in order.
    pub fn pes(&self) -> impl DoubleEndedIterator<Item = Pe> + ExactSizeIterator + use<> {
        (0..self.len()).map(Pe::new)
    }

    /// Operators of a PE, ascending index.
    pub fn operators(&self, pe: Pe) -> &[Node] {
        &self.members[self.starts[pe.index()] as usize..self.starts[pe.index() + 1] as usize]
    }

    /// The PE of an operator.
    pub fn pe(&self, operator: Node) -> Pe {
        self.places[operator].pe
    }

    /// Position of an operator in [`Partition::operators`] of its PE.
    pub fn position(&self, operator: Node) -> usize {
        self.places[operator].local as usize
    }
}

impl fmt::Debug for Partition {
    /// `{0,2} {1}`, by position of the operators.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for pe in self.pes() {
            f.write_str(if pe.index() == 0 { "{" } else { " {" })?;
            for (i, operator) in self.operators(pe).iter().enumerate() {
                write!(f, "{}{}", if i == 0 { "" } else { "," }, operator.index())?;
            }
            f.write_str("}")?;
        }
        Ok(())
    }
}
