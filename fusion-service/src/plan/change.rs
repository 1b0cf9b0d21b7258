//! What a resize does to each PE, and why.

use super::element::{Fate, ProcessingElement};
use super::layout::Layout;
use super::{COMPILER, Change, Compiled, RemovedElement};
use crate::aadl::{self, Elements, Measure};
use crate::error::excerpt;
use crate::fuser::Pe;
use crate::topology::{Difference, Operator, Topology};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

/// What was before.
pub(super) struct Prior<'a> {
    /// What the resize does to operators.
    pub(super) difference: Difference,
    /// PEs before.
    pub(super) elements: PriorElements<'a>,
}

impl<'a> Prior<'a> {
    /// Documents that need not be made again, if there can be any.
    pub(super) fn known<'e>(&'e self, now: &'e Elements) -> Option<Known<'e>> {
        let PriorElements::Compiled(before, _) = &self.elements else { return None };
        let comparable = !by_another_compiler(before.layout()) && aadl::same_job(before.elements(), now);
        comparable.then_some(Known { before, now })
    }
}

/// Documents of a job that is resized.
pub(super) struct Known<'e> {
    before: &'e Compiled,
    now: &'e Elements,
}

impl Known<'_> {
    /// Ids and size of the document of a PE, if it is the same as before.
    pub(super) fn measure(&self, pe: Pe) -> Option<Measure> {
        let id = self.now.id(pe);
        let before = self.before.elements();
        let same = aadl::same_document(before, before.find(id)?, self.now, pe);
        let element = self.before.layout().element(id).filter(|_| same)?;
        Some(Measure { content_id: element.content_id, runtime_id: element.runtime_id, bytes: element.bytes })
    }
}

/// PEs before a resize.
pub(super) enum PriorElements<'a> {
    /// Of a compiled job.
    Compiled(&'a Compiled, BTreeMap<u64, Digests>),
    /// Only their ids are known.
    Ids(BTreeSet<u64>),
}

/// What identifies a document: content id, runtime id.
pub(super) type Digests = ([u8; 32], [u8; 32]);

/// The documents before, as this compiler writes them: `measured` are theirs if another compiler made the layout.
pub(super) fn digests(layout: &Layout, measured: Option<&[Measure]>) -> BTreeMap<u64, Digests> {
    let ids = layout.elements.iter().map(|element| element.id);
    match measured {
        Some(measured) => ids.zip(measured.iter().map(|m| (m.content_id, m.runtime_id))).collect(),
        None => ids.zip(layout.elements.iter().map(|e| (e.content_id, e.runtime_id))).collect(),
    }
}

/// Says what becomes of each PE.
pub(super) fn change(prior: &Prior<'_>, now: &Elements, list: &mut [ProcessingElement]) -> Change {
    let mut removed = Vec::new();
    let present: BTreeSet<u64> = list.iter().map(|element| element.id).collect();
    match &prior.elements {
        PriorElements::Ids(ids) => {
            for element in list.iter_mut() {
                if ids.contains(&element.id) {
                    element.fate = Fate::Restarted;
                }
            }
            removed.extend(ids.difference(&present).map(|&id| RemovedElement {
                id,
                content_id: [0; 32],
                runtime_id: [0; 32],
                reason: String::new(),
            }));
        }
        PriorElements::Compiled(before, digests) => {
            for element in list.iter_mut() {
                let Some((content_id, runtime_id)) = digests.get(&element.id) else {
                    element.reason = format!("holds {}", names(element.operators.iter().map(String::as_str)));
                    continue;
                };
                let recorded = before.layout().element(element.id).map(|e| e.content_id);
                element.fate = if *runtime_id != element.runtime_id {
                    Fate::Restarted
                } else if *content_id == element.content_id && recorded == Some(element.content_id) {
                    Fate::Kept
                } else {
                    Fate::KeptUnobservable
                };
                if element.fate == Fate::Restarted {
                    element.reason = reason(before, now, element);
                }
            }
            for element in before.layout().elements.iter().filter(|element| !present.contains(&element.id)) {
                removed.push(RemovedElement {
                    id: element.id,
                    content_id: element.content_id,
                    runtime_id: element.runtime_id,
                    reason: gone(before, now, element.id),
                });
            }
        }
    }
    Change { operators: prior.difference.clone(), removed }
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
fn reason(before: &Compiled, now: &Elements, element: &ProcessingElement) -> String {
    let (Some(old), Some(new)) = (before.elements().find(element.id), now.find(element.id)) else {
        return String::new();
    };
    let (then, today) = (before.topology(), now.topology());
    let operators = |topology: &Topology, elements: &Elements, pe| -> BTreeMap<u32, String> {
        let nodes = elements.members(pe).iter().map(|&node| &topology.operators[node]);
        nodes.map(|operator| (operator.index, operator.name.clone())).collect()
    };
    let (had, has) = (operators(then, before.elements(), old), operators(today, now, new));
    let gained: Vec<&str> = has.iter().filter(|(i, _)| !had.contains_key(i)).map(|(_, name)| name.as_str()).collect();
    let lost: Vec<&str> = had.iter().filter(|(i, _)| !has.contains_key(i)).map(|(_, name)| name.as_str()).collect();
    if !gained.is_empty() {
        return format!("takes in {}", names(gained.into_iter()));
    }
    if !lost.is_empty() {
        return format!("no longer holds {}", names(lost.into_iter()));
    }
    let by_index: BTreeMap<u32, &Operator> =
        before.elements().members(old).iter().map(|&node| &then.operators[node]).map(|o| (o.index, o)).collect();
    for &node in now.members(new) {
        let operator = &today.operators[node];
        let Some(earlier) = by_index.get(&operator.index) else { continue };
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
fn peers(before: &Compiled, now: &Elements, old: Pe, new: crate::fuser::Pe) -> Option<String> {
    let connected = |elements: &Elements, pe| -> BTreeMap<u32, String> {
        let topology = elements.topology();
        let partition = elements.partition();
        let mut others = BTreeMap::new();
        for &node in elements.members(pe) {
            for connection in elements.connections_of(node) {
                for end in [connection.source, connection.target] {
                    if partition.pe(end) != pe {
                        let operator = &topology.operators[end];
                        others.entry(operator.index).or_insert_with(|| operator.name.clone());
                    }
                }
            }
        }
        others
    };
    let (had, has) = (connected(before.elements(), old), connected(now, new));
    let new: Vec<&str> = has.iter().filter(|(i, _)| !had.contains_key(i)).map(|(_, name)| name.as_str()).collect();
    if !new.is_empty() {
        return Some(format!("is connected to {}", names(new.into_iter())));
    }
    let gone: Vec<&str> = had.iter().filter(|(i, _)| !has.contains_key(i)).map(|(_, name)| name.as_str()).collect();
    (!gone.is_empty()).then(|| format!("is no longer connected to {}", names(gone.into_iter())))
}

/// Why a PE is removed.
fn gone(before: &Compiled, now: &Elements, id: u64) -> String {
    let Some(pe) = before.elements().find(id) else { return String::new() };
    let then = before.topology();
    let today: BTreeSet<u32> = now.topology().operators.values().map(|operator| operator.index).collect();
    let members = before.elements().members(pe);
    let stay: Vec<&str> = (members.iter().map(|&node| &then.operators[node]))
        .filter(|operator| today.contains(&operator.index))
        .map(|operator| operator.name.as_str())
        .collect();
    if stay.is_empty() {
        let all: Vec<&str> = members.iter().map(|&node| then.operators[node].name.as_str()).collect();
        return format!("{} no longer exists", names(all.into_iter()));
    }
    format!("{} is in another PE", names(stay.into_iter()))
}

/// Whether documents of this layout have to be made again to be compared.
pub(super) fn by_another_compiler(layout: &Layout) -> bool {
    layout.compiler != COMPILER
}
