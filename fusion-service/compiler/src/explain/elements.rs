//! Groups the PEs of an account. PEs that differ only in their channels are one group.

use super::account::{ElementGroup, RemovedGroup};
use super::causes::{CauseCounts, CauseKind, CauseNames};
use super::changes::{ChangeShape, ComparedDocuments, DocumentChanges};
use super::names::{NAMED, Names, template};
use crate::budget::Budget;
use crate::error::Error;
use crate::fuser::{Decisions, Pe};
use crate::plan::{Compiled, Fate, PlannedElement, Reason};
use indexmap::IndexMap;
use std::collections::{BTreeMap, BTreeSet, HashSet};

/// What the PEs of one group have in common.
#[derive(PartialEq, Eq, Hash)]
struct GroupKey {
    fate: Option<Fate>,
    restartable: bool,
    new_operators: usize,
    /// Operators without their channels, and how many of each.
    operators: BTreeMap<String, u32>,
    causes: Vec<CauseKind>,
    placed: bool,
    changes: Option<BTreeSet<ChangeShape>>,
    not_compared: bool,
}

/// The PEs of one group, added up.
#[derive(Default)]
struct GroupSum {
    ids: Vec<u64>,
    names: Names,
    operators_each: usize,
    bytes: u64,
    placement: BTreeSet<String>,
    cause_counts: CauseCounts,
    reason: Option<Reason>,
    changes: DocumentChanges,
}

/// All PEs; groups in order of their lowest id.
pub(super) fn groups(
    now: &Compiled,
    decisions: &Decisions,
    names: &CauseNames<'_>,
    compared: Option<&ComparedDocuments<'_>>,
    budget: &Budget,
) -> Result<Vec<ElementGroup>, Error> {
    let change = now.plan().change.as_ref();
    let new: HashSet<&str> = change.iter().flat_map(|c| &c.operators.added).map(String::as_str).collect();
    let mut groups: IndexMap<GroupKey, GroupSum> = IndexMap::new();
    let mut pace = budget.pace();
    for (&pe, element) in now.elements().pes().iter().zip(&now.plan().elements) {
        pace.steps(u32::try_from(element.operators.len()).unwrap_or(u32::MAX))?;
        let changes = compared.and_then(|compared| compared.of(element.id));
        let (mut key, cause_counts, placement) =
            key_of(now, pe, element, decisions, names, compared.is_some(), changes);
        key.new_operators = element.operators.iter().filter(|name| new.contains(name.as_str())).count();
        let sum = groups.entry(key).or_default();
        if sum.ids.is_empty() {
            sum.reason = element.reason.as_deref().cloned();
            sum.operators_each = element.operators.len();
        }
        sum.ids.push(element.id);
        element.operators.iter().for_each(|name| sum.names.add(name));
        sum.bytes = sum.bytes.saturating_add(element.bytes);
        sum.placement.extend(placement);
        sum.cause_counts.add(cause_counts);
        if let Some(changes) = changes {
            sum.changes.extend(changes);
        }
    }
    Ok(groups.into_iter().map(|(key, sum)| group(&key, sum)).collect())
}

fn key_of(
    now: &Compiled,
    pe: Pe,
    element: &PlannedElement,
    decisions: &Decisions,
    names: &CauseNames<'_>,
    comparing: bool,
    changes: Option<&DocumentChanges>,
) -> (GroupKey, CauseCounts, BTreeSet<String>) {
    let fate = now.plan().change.is_some().then_some(element.fate);
    let members = now.elements().members(pe);
    let mut operators = BTreeMap::new();
    element.operators.iter().for_each(|name| *operators.entry(template(name).0).or_default() += 1);
    let cause_counts = names.of(pe, members, decisions);
    let placement = names.placement(members);
    let goes_on = matches!(fate, Some(Fate::Restarted | Fate::KeptUnobservable));
    let key = GroupKey {
        fate,
        restartable: element.restartable,
        new_operators: 0,
        operators,
        causes: cause_counts.kinds(),
        placed: !placement.is_empty(),
        changes: changes.map(|changes| changes.shapes().into_iter().cloned().collect()),
        not_compared: comparing && goes_on && changes.is_none(),
    };
    (key, cause_counts, placement)
}

fn group(key: &GroupKey, sum: GroupSum) -> ElementGroup {
    let (operators, operator_entries) = sum.names.short();
    let (changes, change_count) = sum.changes.finish();
    ElementGroup {
        ids: sum.ids,
        fate: key.fate,
        operators_each: sum.operators_each,
        new_operators_each: key.new_operators,
        operators,
        operator_entries,
        aadl_bytes: sum.bytes,
        restartable: key.restartable,
        placement: sum.placement.into_iter().take(NAMED).collect(),
        causes: sum.cause_counts.finish(),
        reason: sum.reason,
        changes,
        change_count,
        not_compared: key.not_compared,
    }
}

/// PEs that a resize removes; without the job before, one group for each.
pub(super) fn removed(now: &Compiled, prior: Option<&Compiled>) -> Vec<RemovedGroup> {
    let Some(change) = &now.plan().change else { return Vec::new() };
    let mut groups: IndexMap<(Option<BTreeMap<String, u32>>, String), (Vec<u64>, Option<Reason>, Names)> =
        IndexMap::new();
    for gone in &change.removed {
        let operators = prior.and_then(|prior| prior.plan().element(gone.id)).map(|element| &element.operators);
        let mut counts = BTreeMap::new();
        let mut names = Names::default();
        for name in operators.into_iter().flatten() {
            *counts.entry(template(name).0).or_default() += 1;
            names.add(name);
        }
        // The reason names operators: without its channels it is the same for PEs that are key.
        let key = (operators.map(|_| counts), template(&Reason::describe(gone.reason.as_ref())).0);
        let group = groups.entry(key).or_insert_with(|| (Vec::new(), gone.reason.clone(), Names::default()));
        group.0.push(gone.id);
        group.2.extend(names);
    }
    let removed = groups.into_iter().map(|((counts, _), (ids, reason, names))| {
        let operators_each = counts.map(|counts| counts.values().map(|&count| count as usize).sum());
        let (operators, operator_entries) = names.short();
        RemovedGroup { ids, reason, operators_each, operators, operator_entries }
    });
    removed.collect()
}
