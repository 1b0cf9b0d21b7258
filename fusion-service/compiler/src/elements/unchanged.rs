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
use crate::budget::{Budget, Pace};
use crate::error::Error;
use crate::fuser::Pe;
use crate::logical::OperatorId;
use crate::topology::{Connection, Generations, Node};
use cranelift_entity::{EntitySet, PrimaryMap};

/// Which PEs of a generation are as they were in the one before.
#[derive(Debug, Default)]
pub(crate) struct Unchanged {
    /// In order of [`Elements::pes`]: the position of the same PE before, if it is unchanged.
    positions: Vec<Option<u32>>,
}

impl Unchanged {
    /// Compares the PEs of two generations. Those with a copy of an operator of `exceptions` count as changed.
    ///
    /// # Errors
    ///
    /// The budget ends.
    pub(crate) fn find(
        before: &Elements,
        generations: &Generations<'_>,
        now: &Elements,
        exceptions: &EntitySet<OperatorId>,
        budget: &Budget,
    ) -> Result<Self, Error> {
        let mut pace = budget.pace();
        let stays = ElementComparison { before, generations, now }.stays(&mut pace)?;
        let operators = &now.topology().operators;
        let is_exception = |node: &Node| exceptions.contains(operators[*node].logical);
        let mut known = (0_u32..).zip(before.pes()).peekable();
        let position = |&pe: &Pe| -> Result<Option<u32>, Error> {
            let (id, members) = (now.id(pe), now.members(pe));
            pace.steps(1 + u32::try_from(members.len()).unwrap_or(u32::MAX / 2))?;
            while known.next_if(|(_, pe)| before.id(**pe) < id).is_some() {}
            let Some((position, &earlier)) = known.next_if(|(_, pe)| before.id(**pe) == id) else { return Ok(None) };
            // No member has moved, so equal numbers of members mean equal members.
            let all = members.len() == before.members(earlier).len() && members.iter().all(|&node| stays[node]);
            let is_changed = !all || (!exceptions.is_empty() && members.iter().any(is_exception));
            Ok((!is_changed).then_some(position))
        };
        Ok(Self { positions: now.pes().iter().map(position).collect::<Result<_, Error>>()? })
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
    fn stays(&self, pace: &mut Pace<'_>) -> Result<PrimaryMap<Node, bool>, Error> {
        let Self { before: _, generations, now } = *self;
        let mut stays: PrimaryMap<Node, bool> = PrimaryMap::with_capacity(now.topology().operators.len());
        for node in now.topology().operators.keys() {
            pace.step()?;
            stays.push(generations.same(node).is_some_and(|earlier| !self.has_moved(node, earlier)));
        }
        // Connections can only differ at operators that are or were neighbours of an operator that does not stay.
        let mut near: PrimaryMap<Node, bool> = stays.values().map(|_| false).collect();
        for node in stays.iter().filter(|(_, stays)| !**stays).map(|(node, _)| node) {
            neighbours(now, node, pace, |neighbour| near[neighbour] = true)?;
            if let Some(earlier) = generations.earlier(node) {
                self.neighbours_before(earlier, pace, &mut near)?;
            }
        }
        for gone in generations.removed() {
            self.neighbours_before(gone, pace, &mut near)?;
        }
        for node in near.iter().filter(|(_, near)| **near).map(|(node, _)| node) {
            stays[node] = stays[node] && self.same_connections(node, pace)?;
        }
        Ok(stays)
    }

    fn neighbours_before(
        &self,
        earlier: Node,
        pace: &mut Pace<'_>,
        near: &mut PrimaryMap<Node, bool>,
    ) -> Result<(), Error> {
        neighbours(self.before, earlier, pace, |neighbour| {
            if let Some(now) = self.generations.later(neighbour) {
                near[now] = true;
            }
        })
    }

    fn has_moved(&self, node: Node, earlier: Node) -> bool {
        self.now.id(self.now.pe(node)) != self.before.id(self.before.pe(earlier))
    }

    /// Whether an operator that was there has the connections that it had, to operators in the same PEs.
    fn same_connections(&self, node: Node, pace: &mut Pace<'_>) -> Result<bool, Error> {
        let Some(earlier) = self.generations.earlier(node) else { return Ok(false) };
        let (were, are) = (self.before.leaving(earlier), self.now.leaving(node));
        pace.steps(1 + u32::try_from(are.len()).unwrap_or(u32::MAX / 2))?;
        if were.len() != are.len() || !were.iter().zip(are).all(|(was, is)| self.same(was, is)) {
            return Ok(false);
        }
        for port in 0..self.now.topology().operators[node].inputs.len() as u32 {
            let (were, are) = (self.before.incoming(earlier, port), self.now.incoming(node, port));
            pace.steps(1 + u32::try_from(are.len()).unwrap_or(u32::MAX / 2))?;
            if were.len() != are.len() || !were.zip(are).all(|(was, is)| self.same(was, is)) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn same(&self, was: &Connection, is: &Connection) -> bool {
        let same_end = |was: Node, is: Node| self.generations.earlier(is) == Some(was) && !self.has_moved(is, was);
        (was.source_port, was.target_port, was.via()) == (is.source_port, is.target_port, is.via())
            && same_end(was.source, is.source)
            && same_end(was.target, is.target)
    }
}

fn neighbours(elements: &Elements, node: Node, pace: &mut Pace<'_>, mut f: impl FnMut(Node)) -> Result<(), Error> {
    for connection in elements.connections_of(node) {
        pace.step()?;
        f(connection.source);
        f(connection.target);
    }
    Ok(())
}
