//! Two generations of a job: which operator of the one is which of the other, and which are the same.
//!
//! A resize computes this once, when it has made the new topology. Every later stage asks it, and nothing else, what it
//! can take over from the generation before: fusion the PEs of operators, [`crate::elements`] numbers and whole PEs,
//! [`crate::aadl`] pieces of text.
//!
//! Knows: two topologies of one application. Must not know: how the second was made, PEs, documents.
//!
//! Invariant: the numbers of the two agree, as [`super::relabel()`] and [`super::expand_again`] give them. So an
//! operator index that both have belongs to the same operator, and what both have is in the same order in both.

use super::{Node, Topology};
use cranelift_entity::PrimaryMap;
use cranelift_entity::packed_option::PackedOption;

/// A topology, and the one that takes its place.
#[derive(Debug)]
pub struct Generations<'g> {
    before: &'g Topology,
    now: &'g Topology,
    /// By operator of `now`: what it was.
    earlier: PrimaryMap<Node, PackedOption<Node>>,
    /// By operator of `before`: what it has become.
    later: PrimaryMap<Node, PackedOption<Node>>,
    /// By operator of `now`: whether it is equal to what it was.
    equal: PrimaryMap<Node, bool>,
}

impl<'g> Generations<'g> {
    /// Compares the operators of two topologies. Linear in both.
    pub fn new(before: &'g Topology, now: &'g Topology) -> Self {
        let mut later: PrimaryMap<Node, PackedOption<Node>> = before.operators.keys().map(|_| None.into()).collect();
        let mut earlier = PrimaryMap::with_capacity(now.operators.len());
        let mut equal = PrimaryMap::with_capacity(now.operators.len());
        // Both ascend by index.
        let mut known = before.operators.keys().zip(&before.numbered).peekable();
        for (node, (index, _, _)) in now.operators.keys().zip(&now.numbered) {
            while known.next_if(|(_, (known, _, _))| known < index).is_some() {}
            let was = known.next_if(|(_, (known, _, _))| known == index).map(|(was, _)| was);
            if let Some(was) = was {
                later[was] = node.into();
            }
            earlier.push(was.into());
            // Whole values, whatever they are for: a field that is new counts before anybody has thought of it.
            equal.push(was.is_some_and(|was| before.operators[was] == now.operators[node]));
        }
        Self { before, now, earlier, later, equal }
    }

    /// The first.
    pub fn before(&self) -> &'g Topology {
        self.before
    }

    /// The second.
    pub fn now(&self) -> &'g Topology {
        self.now
    }

    /// What an operator of the second was, if it was there.
    pub fn earlier(&self, node: Node) -> Option<Node> {
        self.earlier.get(node)?.expand()
    }

    /// What has become of an operator of the first, if it is still there.
    pub fn later(&self, earlier: Node) -> Option<Node> {
        self.later.get(earlier)?.expand()
    }

    /// What an operator of the second was, if it is the same. Its connections may be others.
    pub fn same(&self, node: Node) -> Option<Node> {
        self.earlier(node).filter(|_| self.equal[node])
    }

    /// Operators of the first that are gone.
    pub fn removed(&self) -> impl Iterator<Item = Node> {
        self.later.iter().filter(|(_, later)| later.is_none()).map(|(earlier, _)| earlier)
    }

    /// Whether the two have in common what every PE of a job repeats.
    pub fn share_surroundings(&self) -> bool {
        self.before.has_surroundings_of(self.now)
    }
}
