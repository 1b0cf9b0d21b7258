//! PEs that a resize leaves exactly as they are: document, ports, threads and all (rule layout-13).
//!
//! Most PEs have nothing to do with the region that is resized. What was found out about them before is taken over, so
//! that a resize costs what changes, but for some looking.
//!
//! A PE is settled if nothing that any statement about it rests on can have changed: its operators are the very same
//! values, in the same PE, and so are their connections, and no neighbour came, went or moved to another PE. (The ids
//! of the ports at the other ends stay too: a port keeps its id as long as its operator is in its PE.) What is not
//! settled is made again and compared, so a PE that is not found to be settled, but is the same, costs time and nothing
//! else.

use super::Compiled;
use super::change::by_another_compiler;
use crate::aadl::{self, Elements};
use crate::topology::Node;
use cranelift_entity::PrimaryMap;

/// What every operator was before, if it was there.
pub(super) type Earlier = PrimaryMap<Node, Option<Node>>;

/// What is known about the PEs of a resize from before.
#[derive(Default)]
pub(super) struct Settled<'b> {
    before: Option<&'b Compiled>,
    /// In order of [`Elements::pes`]: the position of the same PE before, if it is settled.
    positions: Vec<Option<u32>>,
}

impl<'b> Settled<'b> {
    /// Finds out which of `now` are settled.
    pub(super) fn find(before: &'b Compiled, earlier: &Earlier, now: &Elements) -> Self {
        let comparable = !by_another_compiler(before.plan())
            && aadl::same_job(before.elements(), now)
            && !aadl::refers_to_distant_operators(&now.topology().application);
        if !comparable {
            return Self::default();
        }
        let touched = touched(before.elements(), earlier, now);
        let was = before.elements();
        let mut known = (0_u32..).zip(was.pes()).peekable();
        let same = |&pe: &crate::fuser::Pe| {
            let id = now.id(pe);
            while known.next_if(|(_, pe)| was.id(**pe) < id).is_some() {}
            let (position, &earlier) = known.next_if(|(_, pe)| was.id(**pe) == id)?;
            let members = now.members(pe);
            // None of them has moved, so as many of them are all of them.
            let all = members.len() == was.members(earlier).len() && !members.iter().any(|&node| touched[node]);
            all.then_some(position)
        };
        Self { before: Some(before), positions: now.pes().iter().map(same).collect() }
    }

    /// The job before, and the position in it of the PE at this position, if that is settled.
    pub(super) fn get(&self, position: usize) -> Option<(&'b Compiled, usize)> {
        let earlier = self.positions.get(position).copied().flatten()?;
        Some((self.before?, earlier as usize))
    }
}

/// Operators of which something may be different.
fn touched(was: &Elements, earlier: &Earlier, now: &Elements) -> PrimaryMap<Node, bool> {
    let (then, today) = (was.topology(), now.topology());
    let mut stays: PrimaryMap<Node, Option<Node>> = then.operators.keys().map(|_| None).collect();
    for (node, earlier) in earlier {
        if let Some(earlier) = earlier {
            stays[*earlier] = Some(node);
        }
    }
    let is_same = |node: Node, earlier: Node| today.operators[node].is(&then.operators[earlier]);
    let has_moved = |node: Node, earlier: Node| now.id(now.pe(node)) != was.id(was.pe(earlier));
    let mut touched: PrimaryMap<Node, bool> = PrimaryMap::with_capacity(earlier.len());
    for (node, earlier) in earlier {
        touched.push(earlier.is_none_or(|earlier| !is_same(node, earlier) || has_moved(node, earlier)));
    }
    // With an operator, all its neighbours: those that it has, and those that it had.
    let apart: Vec<Node> = touched.iter().filter(|(_, touched)| **touched).map(|(node, _)| node).collect();
    let gone = stays.iter().filter(|(_, stays)| stays.is_none()).map(|(node, _)| node);
    let before: Vec<Node> = apart.iter().filter_map(|&node| earlier[node]).chain(gone).collect();
    for node in apart {
        neighbours(now, node, |neighbour| touched[neighbour] = true);
    }
    for node in before {
        neighbours(was, node, |neighbour| {
            if let Some(now) = stays[neighbour] {
                touched[now] = true;
            }
        });
    }
    touched
}

fn neighbours(elements: &Elements, node: Node, mut f: impl FnMut(Node)) {
    for connection in elements.connections_of(node) {
        f(connection.source);
        f(connection.target);
    }
}
