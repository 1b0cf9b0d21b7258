//! PEs that take nothing new in a resize (rule fusion-29), as a plan speaks of them.
//!
//! Knows: the PEs before and after. Must not know: why a PE is closed, how operators are grouped.

use super::reason::SomeOperators;
use super::{Compiled, Warning};
use crate::fuser::PeId;
use crate::phrase::listed;
use crate::topology::{Generations, Node};
use std::collections::BTreeSet;

/// PEs that a warning names.
const NAMED: usize = 10;

/// Notes in the plan of a resize which of its PEs are closed. Warns if co-location left it no choice but to put
/// operators into them: they do not run as long as these PEs do not.
pub(super) fn note(prior: &Compiled, generations: &Generations, closed: &BTreeSet<PeId>, now: &mut Compiled) {
    let (before, elements) = (&prior.elements, &now.elements);
    let (mut present, mut enlarged) = (Vec::new(), Vec::new());
    let mut gained: Vec<Node> = Vec::new();
    for &id in closed {
        let (Some(pe), Some(was)) = (elements.find(id), before.find(id)) else { continue };
        present.push(id);
        let is_gained = |node: &Node| generations.earlier(*node).is_none_or(|earlier| before.pe(earlier) != was);
        let known = gained.len();
        gained.extend(elements.members(pe).iter().copied().filter(is_gained));
        if gained.len() > known {
            enlarged.push(id);
        }
    }
    if !enlarged.is_empty() {
        let operators = &elements.topology().operators;
        let names: Vec<&str> = gained.iter().map(|&node| operators[node].name.as_str()).collect();
        let names = SomeOperators::new(names.into_iter());
        let first: Vec<String> = enlarged.iter().take(NAMED).map(PeId::to_string).collect();
        let ids = listed(&first, enlarged.len());
        let (pe, does, until) = match enlarged.len() {
            1 => ("PE", "does", "it is"),
            _ => ("PEs", "do", "they are"),
        };
        let message = format!(
            "co-location puts {names} into {pe} {ids}, which {does} not run any more: nothing of that runs before \
             {until} started again"
        );
        now.plan.warnings.push(Warning { reason: "OperatorsInClosedProcessingElements", message });
    }
    if let Some(change) = &mut now.plan.change {
        change.closed = present;
    }
}
