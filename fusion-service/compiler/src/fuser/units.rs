//! Units: operators that must share a PE (rule fusion-5).

use super::constraints::{Constraint, Demand};
use super::graph::Graph;
use crate::topology::Node;
use cranelift_entity::{EntityRef, PrimaryMap, entity_impl};

/// A set of operators that must share a PE. Units are in order of their lowest operator.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Unit(u32);
entity_impl!(Unit, "unit");

/// The units of an application; every operator is in exactly one.
#[derive(Clone, Debug)]
pub(super) struct Units {
    of: PrimaryMap<Node, Unit>,
    /// Members of unit `u` are `members[starts[u]..starts[u + 1]]`, ascending.
    starts: Vec<u32>,
    members: Vec<Node>,
}

impl Units {
    /// Groups operators that [`Demand::Together`] connects, directly or through others.
    pub(super) fn new(graph: &Graph, constraints: &[Constraint]) -> Self {
        let operators = graph.operators();
        if !constraints.iter().any(|constraint| matches!(constraint.demand, Demand::Together(_))) {
            // Nothing must be together.
            let starts = (0_u32..).take(operators.len() + 1).collect();
            let of = operators.keys().map(|node| Unit::from_u32(node.as_u32())).collect();
            return Self { of, starts, members: operators.keys().collect() };
        }
        // Union-find whose representatives are the lowest members.
        let mut parents: PrimaryMap<Node, Node> = operators.keys().collect();
        for constraint in constraints {
            let Demand::Together(members) = &constraint.demand else { continue };
            for pair in members.windows(2) {
                let (a, b) = (find(&mut parents, pair[0]), find(&mut parents, pair[1]));
                parents[a.max(b)] = a.min(b);
            }
        }
        let mut of: PrimaryMap<Node, Unit> = PrimaryMap::with_capacity(operators.len());
        let mut starts = vec![0];
        for node in operators.keys() {
            let lowest = find(&mut parents, node);
            let unit = if lowest == node {
                starts.push(0);
                Unit::new(starts.len() - 2)
            } else {
                of[lowest]
            };
            of.push(unit);
            starts[unit.index() + 1] += 1;
        }
        let mut sum = 0;
        for start in &mut starts {
            sum += *start;
            *start = sum;
        }
        let mut next = starts.clone();
        let mut members = vec![Node::new(0); operators.len()];
        for (node, unit) in &of {
            let slot = &mut next[unit.index()];
            members[*slot as usize] = node;
            *slot += 1;
        }
        Self { of, starts, members }
    }

    pub(super) fn len(&self) -> usize {
        self.starts.len() - 1
    }

    pub(super) fn keys(&self) -> impl ExactSizeIterator<Item = Unit> + use<> {
        (0..self.len()).map(Unit::new)
    }

    /// The unit of an operator.
    pub(super) fn of(&self, operator: Node) -> Unit {
        self.of[operator]
    }

    /// Operators of a unit, ascending; never empty.
    pub(super) fn operators(&self, unit: Unit) -> &[Node] {
        &self.members[self.starts[unit.index()] as usize..self.starts[unit.index() + 1] as usize]
    }

    /// Number of operators of a unit.
    pub(super) fn size(&self, unit: Unit) -> u32 {
        self.starts[unit.index() + 1] - self.starts[unit.index()]
    }
}

fn find(parents: &mut PrimaryMap<Node, Node>, mut node: Node) -> Node {
    while parents[node] != node {
        let above = parents[parents[node]];
        parents[node] = above;
        node = above;
    }
    node
}
