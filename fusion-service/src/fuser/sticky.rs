//! Fusion of a job that runs already: operators stay where they are (decisions, "Widths, resizes").
//!
//! What is promised, for a job whose constraints did not change:
//! * an operator that exists stays in its PE, and the PE keeps its id as long as it keeps an operator;
//! * new operators obey the same constraints as in fusion from scratch. While there are fewer PEs than wanted they open new ones;
//!   then they go to PEs that restart anyway, as long as these hold less than twice an even share; then to the smallest, which from
//!   then on restarts anyway. Along chains of connections, as in fusion from scratch;
//! * there are more PEs than wanted only if there were before, or where constraints leave no other way for the greedy pass;
//! * operators that go away leave the rest as it is. So a job that grows and shrinks back is grouped as before, with the same ids.
//!
//! Where a constraint does change with the width (ids made of channel numbers; an operator that must share a PE with operators of two
//! PEs), constraints win: a unit whose operators are spread over PEs gathers in the one that holds most of them, and a unit that
//! contradicts what stays in its PE is placed like a new one.

use super::Fusion;
use super::composition::Composition;
use super::fill::{Seed, fill};
use super::graph::Graph;
use super::ids::{NewIds, PeId};
use super::partition::{Partition, Pe};
use super::rules::Profile;
use super::units::Unit;
use crate::budget::Budget;
use crate::error::Error;
use crate::topology::Node;
use cranelift_entity::{EntityRef, PrimaryMap};
use std::collections::{BTreeMap, BTreeSet};

/// A job as it runs.
#[derive(Clone, Copy, Debug)]
pub struct Running<'a> {
    /// The PE of an operator; `None` for a new operator.
    pub pe_of: &'a PrimaryMap<Node, Option<PeId>>,
    /// PEs that restart whatever fusion does.
    pub restarting: &'a BTreeSet<PeId>,
    /// Further ids that new PEs must not get.
    pub taken: &'a BTreeSet<PeId>,
}

/// A partition whose PEs have ids.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identified {
    /// The partition.
    pub partition: Partition,
    /// Ids of its PEs, all different.
    pub ids: PrimaryMap<Pe, PeId>,
}

/// Groups the operators of a running job, whose operators stay where they are; see the module's page. Fails like
/// [`super::fuse`], and at stage `fuse` when there is no PE id left.
pub fn fuse_sticky(graph: &Graph, fusion: &Fusion, running: Running, budget: &Budget) -> Result<Identified, Error> {
    let composition = Composition::new(graph, fusion.kind(), budget)?;
    let homes = homes(&composition, running);
    let (kept, group_of, groups) = match fusion {
        Fusion::Legacy => {
            // A group per PE that stays, then one per new unit.
            let kept: Vec<PeId> = homes.values().flatten().copied().collect::<BTreeSet<_>>().into_iter().collect();
            let mut groups = kept.len();
            let group_of = homes.values().map(|home| match home {
                Some(id) => kept.binary_search(id).unwrap_or_default(),
                None => {
                    groups += 1;
                    groups - 1
                }
            });
            let group_of: PrimaryMap<Unit, usize> = group_of.collect();
            (kept, group_of, groups)
        }
        Fusion::Manual { count, .. } => {
            let staying = staying(&composition, &homes);
            let (kept, seeds): (Vec<PeId>, Vec<Seed>) = staying
                .into_iter()
                .map(|(id, units)| (id, Seed { units, restarts: running.restarting.contains(&id) }))
                .unzip();
            let filling = fill(&composition, composition.closures(), count.get(), seeds, budget)?;
            (kept, filling.container_of.values().map(|c| c.index()).collect(), filling.containers)
        }
    };
    let units = &composition.units;
    let partition = Partition::group(graph.operators().len(), groups, |node| group_of[units.of(node)]);
    let mut new = NewIds::after(running.taken);
    running.pe_of.values().flatten().chain(running.restarting).for_each(|&id| new.pass(id));
    let id = |pe: Pe| {
        let group = partition.operators(pe).first().map_or(groups, |&node| group_of[units.of(node)]);
        kept.get(group).map_or_else(|| new.next(), |&id| Ok(id))
    };
    let ids = partition.pes().map(id).collect::<Result<_, _>>()?;
    Ok(Identified { partition, ids })
}

/// The PE of each unit that exists: the one with most of its operators, the lowest id among equals.
fn homes(composition: &Composition, running: Running) -> PrimaryMap<Unit, Option<PeId>> {
    let units = &composition.units;
    let home = |unit: Unit| {
        if let [node] = units.operators(unit) {
            return running.pe_of.get(*node).copied().flatten();
        }
        let mut members: BTreeMap<PeId, usize> = BTreeMap::new();
        for id in units.operators(unit).iter().filter_map(|&node| running.pe_of.get(node).copied().flatten()) {
            *members.entry(id).or_default() += 1;
        }
        let most = members.values().copied().max();
        members.into_iter().find(|&(_, count)| Some(count) == most).map(|(id, _)| id)
    };
    units.keys().map(home).collect()
}

/// What stays in each PE: everything that does not contradict, inside the PE, what stays before it. A unit that has to be alone
/// keeps its PE if nobody else does.
fn staying(composition: &Composition, homes: &PrimaryMap<Unit, Option<PeId>>) -> BTreeMap<PeId, Vec<Unit>> {
    let rules = &composition.rules;
    // Within a PE only: what other PEs have bound to a host was decided when they were filled.
    let mut closures = composition.closures_without_groups();
    let mut pes: BTreeMap<PeId, (Profile, Vec<Unit>)> = BTreeMap::new();
    for (unit, home) in homes {
        let Some(id) = *home else { continue };
        if rules.alone[unit] {
            continue;
        }
        let (profile, units) = pes.entry(id).or_default();
        if let Some(&first) = units.first() {
            if !profile.accepts(rules.member(unit)) || !closures.bindable(first, unit) {
                continue;
            }
            closures.bind(first, unit);
        }
        profile.add(rules.member(unit));
        units.push(unit);
    }
    let mut pes: BTreeMap<PeId, Vec<Unit>> = pes.into_iter().map(|(id, (_, units))| (id, units)).collect();
    for (unit, home) in homes {
        if let Some(id) = *home
            && rules.alone[unit]
        {
            pes.entry(id).or_insert_with(|| vec![unit]);
        }
    }
    pes
}
