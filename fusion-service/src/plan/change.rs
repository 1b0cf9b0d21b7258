//! What a resize does to each PE, and why.

use super::element::{Fate, PlannedElement};
use super::settled::{Earlier, Settled};
use super::{COMPILER, Change, Compiled, Plan, RemovedElement};
use crate::aadl::{self, Elements, Measure};
use crate::budget::Budget;
use crate::error::{Error, excerpt};
use crate::fuser::Pe;
use crate::topology::{Difference, Node, Topology};
use std::collections::BTreeSet;
use std::fmt::Write as _;

/// What was before.
pub(super) struct Prior<'a> {
    /// What the resize does to operators.
    pub(super) difference: Difference,
    /// PEs before.
    pub(super) elements: PriorElements<'a>,
    /// What every operator was, if it was there.
    pub(super) earlier: Earlier,
}

impl<'a> Prior<'a> {
    /// Documents that need not be made again, if there can be any.
    pub(super) fn known<'e>(&'e self, now: &'e Elements) -> Option<Known<'e>> {
        let PriorElements::Compiled(before, _) = &self.elements else { return None };
        let comparable = !by_another_compiler(before.plan()) && aadl::same_job(before.elements(), now);
        comparable.then_some(Known { before, now, earlier: &self.earlier })
    }
}

/// Documents of a job that is resized.
pub(super) struct Known<'e> {
    before: &'e Compiled,
    now: &'e Elements,
    earlier: &'e Earlier,
}

impl Known<'_> {
    /// What writes the documents now.
    pub(super) fn writer(&self, budget: &Budget) -> Result<aadl::Writer, Error> {
        let (before, now) = (self.before.topology(), self.now.topology());
        let generations = aadl::Generations { before, now, earlier: self.earlier };
        self.before.writer.again(&generations, self.now, budget)
    }

    /// Ids and size of the document of a PE, if it is the same as before.
    pub(super) fn measure(&self, pe: Pe) -> Option<Measure> {
        let id = self.now.id(pe);
        let before = self.before.elements();
        let same = aadl::same_document(before, before.find(id)?, self.now, pe);
        Some(self.before.plan().element(id).filter(|_| same)?.measure())
    }
}

/// PEs before a resize.
pub(super) enum PriorElements<'a> {
    /// Of a compiled job. If another compiler made it: what their documents are as this one writes them, in order of ids.
    Compiled(&'a Compiled, Option<Vec<Measure>>),
    /// Only their ids are known.
    Ids(BTreeSet<u64>),
}

/// Says what becomes of each PE; `list` has them by ascending id, and knows it of those that are settled.
pub(super) fn change(prior: Prior<'_>, now: &Elements, settled: &Settled<'_>, list: &mut [PlannedElement]) -> Change {
    let mut removed = Vec::new();
    match &prior.elements {
        PriorElements::Ids(ids) => {
            for element in list.iter_mut() {
                if ids.contains(&element.id) {
                    element.fate = Fate::Restarted;
                }
            }
            removed.extend(ids.iter().filter(|id| !is_in(list, **id)).map(|&id| RemovedElement {
                id,
                content_id: [0; 32],
                runtime_id: [0; 32],
                reason: String::new(),
            }));
        }
        PriorElements::Compiled(before, measured) => {
            let recorded = &before.plan().elements;
            for (position, element) in list.iter_mut().enumerate() {
                if settled.get(position).is_some() {
                    continue;
                }
                let Ok(position) = recorded.binary_search_by_key(&element.id, |recorded| recorded.id) else {
                    element.reason = format!("holds {}", names(element.operators.iter().map(String::as_str)));
                    continue;
                };
                let recorded = &recorded[position];
                let known = measured.as_ref().and_then(|measured| measured.get(position).copied());
                let known = known.unwrap_or_else(|| recorded.measure());
                element.fate = if known.runtime_id != element.runtime_id {
                    Fate::Restarted
                } else if known.content_id == element.content_id && recorded.content_id == element.content_id {
                    Fate::Kept
                } else {
                    Fate::KeptUnobservable
                };
                if element.fate == Fate::Restarted {
                    element.reason = reason(before, now, element);
                }
            }
            // Both ascend.
            let mut present = list.iter().map(|element| element.id).peekable();
            let is_gone = |element: &&PlannedElement| {
                while present.next_if(|id| *id < element.id).is_some() {}
                present.next_if(|id| *id == element.id).is_none()
            };
            for element in recorded.iter().filter(is_gone) {
                removed.push(RemovedElement {
                    id: element.id,
                    content_id: element.content_id,
                    runtime_id: element.runtime_id,
                    reason: gone(before, now, element.id),
                });
            }
        }
    }
    Change { operators: prior.difference, removed }
}

fn is_in(list: &[PlannedElement], id: u64) -> bool {
    list.binary_search_by_key(&id, |element| element.id).is_ok()
}

/// Some names, not all of a thousand.
fn names<'a>(names: impl ExactSizeIterator<Item = &'a str>) -> String {
    const MOST: usize = 3;
    let count = names.len();
    let mut text = String::new();
    for (at, name) in names.take(MOST).enumerate() {
        if at > 0 {
            text.push_str(", ");
        }
        text.push_str(&excerpt(name));
    }
    if count > MOST {
        let _ = write!(text, " and {} more", count - MOST);
    }
    text
}

/// Why the PE restarts: the first thing that explains it.
fn reason(before: &Compiled, now: &Elements, element: &PlannedElement) -> String {
    let (Some(old), Some(new)) = (before.elements().find(element.id), now.find(element.id)) else {
        return String::new();
    };
    let (then, today) = (before.topology(), now.topology());
    // Both ascend by operator index.
    let (had, has) = (before.elements().members(old), now.members(new));
    let find = |members: &[Node], topology: &Topology, index: u32| {
        let found = members.binary_search_by_key(&index, |&node| topology.operators[node].index).ok()?;
        members.get(found).copied()
    };
    let operators = has.iter().map(|&node| &today.operators[node]);
    let gained: Vec<&str> =
        operators.filter(|o| find(had, then, o.index).is_none()).map(|operator| operator.name.as_str()).collect();
    if !gained.is_empty() {
        return format!("takes in {}", names(gained.into_iter()));
    }
    let operators = had.iter().map(|&node| &then.operators[node]);
    let lost: Vec<&str> =
        operators.filter(|o| find(has, today, o.index).is_none()).map(|operator| operator.name.as_str()).collect();
    if !lost.is_empty() {
        return format!("no longer holds {}", names(lost.into_iter()));
    }
    for &node in has {
        let operator = &today.operators[node];
        let Some(earlier) = find(had, then, operator.index).map(|node| &then.operators[node]) else { continue };
        for (channel, was) in operator.channels.iter().zip(&earlier.channels) {
            if channel != was {
                let region = today.regions.iter().find(|region| region.index == channel.region);
                let region = region.map_or(String::new(), |region| excerpt(&region.name));
                return format!(
                    "{}: {} channels instead of {} in the parallel region {region}",
                    excerpt(&operator.name),
                    channel.local_max,
                    was.local_max
                );
            }
        }
        if operator.name != earlier.name {
            return format!("{} was called {}", excerpt(&operator.name), excerpt(&earlier.name));
        }
    }
    peers(before, now, old, new).unwrap_or_else(|| "its document changed".to_owned())
}

/// Operators of other PEs that this one is connected to, or is not any more.
fn peers(before: &Compiled, now: &Elements, old: Pe, new: Pe) -> Option<String> {
    let (had, has) = (connected(before.elements(), old), connected(now, new));
    let without = |all: &[(u32, &str)], index: u32| all.binary_search_by_key(&index, |(index, _)| *index).is_err();
    let new: Vec<&str> = has.iter().filter(|(index, _)| without(&had, *index)).map(|(_, name)| *name).collect();
    if !new.is_empty() {
        return Some(format!("is connected to {}", names(new.into_iter())));
    }
    let gone: Vec<&str> = had.iter().filter(|(index, _)| without(&has, *index)).map(|(_, name)| *name).collect();
    (!gone.is_empty()).then(|| format!("is no longer connected to {}", names(gone.into_iter())))
}

/// Index and name of the operators of other PEs that a PE is connected to, ascending index.
fn connected(elements: &Elements, pe: Pe) -> Vec<(u32, &str)> {
    let operators = &elements.topology().operators;
    let connections = elements.members(pe).iter().flat_map(|&node| elements.connections_of(node));
    let ends = connections.flat_map(|connection| [connection.source, connection.target]);
    let mut others: Vec<Node> = ends.filter(|&end| elements.partition().pe(end) != pe).collect();
    others.sort_unstable();
    others.dedup();
    others.into_iter().map(|node| (operators[node].index, operators[node].name.as_str())).collect()
}

/// Why a PE is removed.
fn gone(before: &Compiled, now: &Elements, id: u64) -> String {
    let Some(pe) = before.elements().find(id) else { return String::new() };
    let then = before.topology();
    let today = now.topology().operators.as_values_slice();
    let members = before.elements().members(pe);
    let stay: Vec<&str> = (members.iter().map(|&node| &then.operators[node]))
        .filter(|operator| today.binary_search_by_key(&operator.index, |today| today.index).is_ok())
        .map(|operator| operator.name.as_str())
        .collect();
    if stay.is_empty() {
        let all: Vec<&str> = members.iter().map(|&node| then.operators[node].name.as_str()).collect();
        let verb = if all.len() == 1 { "exists" } else { "exist" };
        return format!("{} no longer {verb}", names(all.into_iter()));
    }
    let now = if stay.len() == 1 { "is in another PE" } else { "are in other PEs" };
    format!("{} {now}", names(stay.into_iter()))
}

/// Whether documents of this plan have to be made again to be compared.
pub(super) fn by_another_compiler(plan: &Plan) -> bool {
    plan.compiler != COMPILER
}
