//! Finds the PEs that a resize leaves exactly as they are, with their documents, ports and threads (rule layout-13).
//!
//! Most PEs have nothing to do with the region that is resized. The new generation takes over what the old one computed
//! for them. So the cost of a resize follows the number of changed PEs, plus one comparison for each of the others.
//!
//! A PE is unchanged if it has the same operators with the same connections, and the operators at the other ends are in
//! the same PEs as before. The ids of the ports there are the same then, too, because a port keeps its id as long as
//! its operator is in its PE. A PE that is not found to be unchanged is made again, so a wrong "no" only costs time. A
//! wrong "yes" is not possible, because operators and connections are compared as a whole (rule aadl-20).
//!
//! Knows: two generations with their PEs. Must not know: documents.

use super::Elements;
use crate::fuser::Pe;
use crate::topology::{Connection, Generations, Node, PhysicalOperator};
use cranelift_entity::PrimaryMap;

/// Which PEs of a generation are as they were in the one before.
#[derive(Debug, Default)]
pub(crate) struct Unchanged {
    /// In order of [`Elements::pes`]: the position of the same PE before, if it is unchanged.
    positions: Vec<Option<u32>>,
}

impl Unchanged {
    /// Compares the PEs of two generations. Those with an operator that is an `exception` count as changed.
    pub(crate) fn find(
        before: &Elements,
        generations: &Generations<'_>,
        now: &Elements,
        exception: impl Fn(&PhysicalOperator) -> bool,
    ) -> Self {
        let stays = ElementComparison { before, generations, now }.stays();
        let mut known = (0_u32..).zip(before.pes()).peekable();
        let position = |&pe: &Pe| {
            let id = now.id(pe);
            while known.next_if(|(_, pe)| before.id(**pe) < id).is_some() {}
            let (position, &earlier) = known.next_if(|(_, pe)| before.id(**pe) == id)?;
            let members = now.members(pe);
            // No member has moved, so equal numbers of members mean equal members.
            let all = members.len() == before.members(earlier).len() && members.iter().all(|&node| stays[node]);
            let operators = &now.topology().operators;
            (all && !members.iter().any(|&node| exception(&operators[node]))).then_some(position)
        };
        Self { positions: now.pes().iter().map(position).collect() }
    }

    /// The position before of the PE at this position, if it is unchanged.
    pub(crate) fn get(&self, position: usize) -> Option<usize> {
        self.positions.get(position).copied().flatten().map(|earlier| earlier as usize)
    }

    /// PEs that are not unchanged, ascending id.
    pub(crate) fn others(&self, now: &Elements) -> Vec<Pe> {
        now.pes().iter().enumerate().filter(|(at, _)| self.get(*at).is_none()).map(|(_, &pe)| pe).collect()
    }
}

struct ElementComparison<'a> {
    before: &'a Elements,
    generations: &'a Generations<'a>,
    now: &'a Elements,
}

impl ElementComparison<'_> {
    /// By operator, whether everything that the document of its PE says about it is as it was.
    fn stays(&self) -> PrimaryMap<Node, bool> {
        let Self { before: _, generations, now } = *self;
        let nodes = now.topology().operators.keys();
        let mut stays: PrimaryMap<Node, bool> =
            nodes.map(|node| generations.same(node).is_some_and(|earlier| !self.has_moved(node, earlier))).collect();
        // Connections can only differ at operators that are or were neighbours of an operator that does not stay.
        let mut near: PrimaryMap<Node, bool> = stays.values().map(|_| false).collect();
        for node in stays.iter().filter(|(_, stays)| !**stays).map(|(node, _)| node) {
            neighbours(now, node, |neighbour| near[neighbour] = true);
            if let Some(earlier) = generations.earlier(node) {
                self.neighbours_before(earlier, &mut near);
            }
        }
        for gone in generations.removed() {
            self.neighbours_before(gone, &mut near);
        }
        for node in near.iter().filter(|(_, near)| **near).map(|(node, _)| node) {
            stays[node] = stays[node] && self.same_connections(node);
        }
        stays
    }

    fn neighbours_before(&self, earlier: Node, near: &mut PrimaryMap<Node, bool>) {
        neighbours(self.before, earlier, |neighbour| {
            if let Some(now) = self.generations.later(neighbour) {
                near[now] = true;
            }
        });
    }

    fn has_moved(&self, node: Node, earlier: Node) -> bool {
        self.now.id(self.now.pe(node)) != self.before.id(self.before.pe(earlier))
    }

    /// Whether an operator that was there has the connections that it had, to operators in the same PEs.
    fn same_connections(&self, node: Node) -> bool {
        let Some(earlier) = self.generations.earlier(node) else { return false };
        let (were, are) = (self.before.leaving(earlier), self.now.leaving(node));
        let inputs = self.now.topology().operators[node].inputs.len() as u32;
        were.len() == are.len()
            && were.iter().zip(are).all(|(was, is)| self.same(was, is))
            && (0..inputs).all(|port| {
                let (were, are) = (self.before.incoming(earlier, port), self.now.incoming(node, port));
                were.len() == are.len() && were.zip(are).all(|(was, is)| self.same(was, is))
            })
    }

    fn same(&self, was: &Connection, is: &Connection) -> bool {
        let same_end = |was: Node, is: Node| self.generations.earlier(is) == Some(was) && !self.has_moved(is, was);
        (was.source_port, was.target_port, was.via()) == (is.source_port, is.target_port, is.via())
            && same_end(was.source, is.source)
            && same_end(was.target, is.target)
    }
}

fn neighbours(elements: &Elements, node: Node, mut f: impl FnMut(Node)) {
    for connection in elements.connections_of(node) {
        f(connection.source);
        f(connection.target);
    }
}
