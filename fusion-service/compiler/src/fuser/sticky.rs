//! Fusion of a job that runs already: operators stay where they are (rules fusion-24, fusion-25, fusion-26 and
//! fusion-29).
//!
//! For a job whose constraints did not change:
//! * an operator that exists stays in its PE, and the PE keeps its id as long as it keeps an operator (rule element-3);
//! * new operators obey the same constraints and follow the same chains of connections as in fusion from scratch. While
//!   there are fewer PEs than wanted, they open new PEs. Then they go to PEs that restart anyway, as long as these hold
//!   less than twice an even share. Then they go to the smallest PE, which from then on counts as one that restarts
//!   anyway;
//! * a PE that is closed, because it will not run again by itself, keeps what it holds and takes nothing else;
//! * there are more PEs than wanted only if there were before, or where constraints or closed PEs leave no other way
//!   for the greedy pass;
//! * operators that go away move no other operator. So a job that grows and shrinks back has the same PEs with the same
//!   ids.
//!
//! Where a constraint does change with the width (ids made of channel numbers; an operator that must share a PE with
//! operators of two PEs, or with one that then has to be alone), constraints win: a unit whose operators are spread
//! over PEs gathers in the one that holds most of them, and a unit that contradicts what stays in its PE is placed like
//! a new one.
//!
//! Fusion from scratch of such a job, [`fuse_anew`], does the same, but only what is in closed PEs stays.

use super::Fusion;
use super::composition::Composition;
use super::fill::{Seed, fill};
use super::graph::Graph;
use super::ids::{NewIds, PeId, match_other_ids};
use super::partition::{Partition, Pe};
use super::units::{Unit, Units};
use crate::budget::Budget;
use crate::error::Error;
use crate::topology::Node;
use cranelift_entity::packed_option::PackedOption;
use cranelift_entity::{EntityRef, PrimaryMap};
use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// A job as it runs.
#[derive(Clone, Copy, Debug)]
pub struct RunningJob<'a> {
    /// The PE that an operator is in; `None` for a new operator.
    pub pe_of: &'a PrimaryMap<Node, PackedOption<Pe>>,
    /// Ids of these PEs.
    pub ids: &'a PrimaryMap<Pe, PeId>,
    /// PEs that restart whatever fusion does.
    pub restarting: &'a BTreeSet<PeId>,
    /// PEs that take no new operators. Others than the job has are ignored.
    pub closed: &'a BTreeSet<PeId>,
    /// Further ids that new PEs must not get.
    pub taken: &'a BTreeSet<PeId>,
}

/// A partition whose PEs have ids.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionWithIds {
    /// The partition.
    pub partition: Partition,
    /// Ids of its PEs, all different.
    pub ids: PrimaryMap<Pe, PeId>,
}

/// Groups the operators of a running job. Operators stay in their PEs, as the page of the module says.
///
/// # Errors
///
/// As for [`super::fuse`]; at stage `fuse` also when no PE id is left.
pub fn fuse_sticky(
    graph: &Graph,
    fusion: &Fusion,
    running: RunningJob,
    budget: &Budget,
) -> Result<PartitionWithIds, Error> {
    let (partition, kept) = fuse_around(graph, fusion, running, |_| true, budget)?;
    // PEs that hold no operator of before get new ids (rule element-4).
    let mut new = NewIds::after(running.taken);
    running.ids.values().chain(running.restarting).for_each(|&id| new.pass(id));
    let ids = kept.values().map(|kept| kept.map_or_else(|| new.next(), Ok)).collect::<Result<_, _>>()?;
    Ok(PartitionWithIds { partition, ids })
}

/// Groups the operators of a running job from scratch, but for those in closed PEs, which stay there. `previous` has
/// the names of the operators of every PE: one that holds exactly those of a previous one takes its id (rules fusion-27
/// and element-2).
///
/// # Errors
///
/// As for [`fuse_sticky`].
pub fn fuse_anew<'n, Names: IntoIterator<Item = &'n str>>(
    graph: &'n Graph,
    fusion: &Fusion,
    running: RunningJob,
    previous: impl IntoIterator<Item = (PeId, Names)>,
    budget: &Budget,
) -> Result<PartitionWithIds, Error> {
    let (partition, kept) = fuse_around(graph, fusion, running, |id| running.closed.contains(&id), budget)?;
    let ids = match_other_ids(graph, &partition, &kept, previous, running.taken)?;
    Ok(PartitionWithIds { partition, ids })
}

/// Groups all operators around those in PEs whose operators stay. Returns the ids of the PEs that hold such operators.
fn fuse_around(
    graph: &Graph,
    fusion: &Fusion,
    running: RunningJob,
    stays: impl Fn(PeId) -> bool,
    budget: &Budget,
) -> Result<(Partition, PrimaryMap<Pe, Option<PeId>>), Error> {
    let composition = Composition::new(graph, fusion.kind(), budget)?;
    let units = &composition.units;
    let homes = homes(units, running, stays);
    // The first groups are PEs that stay, with these ids.
    let (kept, group_of, groups): (Cow<[PeId]>, PrimaryMap<Unit, usize>, usize) = match fusion {
        Fusion::Legacy => {
            let mut groups = running.ids.len();
            let group_of = homes.values().map(|home| match home.expand() {
                Some(pe) => pe.index(),
                None => {
                    groups += 1;
                    groups - 1
                }
            });
            let group_of = group_of.collect();
            (Cow::Borrowed(running.ids.as_values_slice()), group_of, groups)
        }
        Fusion::Manual { count, .. } => {
            let (kept, seeds): (Vec<PeId>, Vec<Seed>) =
                staying(&composition, &homes, running, budget)?.into_iter().unzip();
            let filling = fill(&composition, composition.host_bindings(budget)?, count.get(), seeds, budget)?;
            let group_of = filling.container_of.values().map(|container| container.index()).collect();
            (Cow::Owned(kept), group_of, filling.containers)
        }
    };
    let partition = Partition::group(graph.operators().len(), groups, |node| group_of[units.of(node)]);
    let id = |pe: Pe| {
        let first = *partition.operators(pe).first()?;
        kept.get(group_of[units.of(first)]).copied()
    };
    let ids = partition.pes().map(id).collect();
    Ok((partition, ids))
}

/// Finds the PE of each unit that exists: the PE with most of its operators; of several such PEs, the one with the
/// lowest id. Of a unit with operators in closed PEs and in others, only the others count: what runs must not come into
/// a PE that does not. The operators of a unit stay there if it is one of the PEs where they do.
fn homes(units: &Units, running: RunningJob, stays: impl Fn(PeId) -> bool) -> PrimaryMap<Unit, PackedOption<Pe>> {
    let pe_of = |node: Node| running.pe_of.get(node).and_then(|pe| pe.expand());
    let most = |unit: Unit| {
        if let [node] = units.operators(unit) {
            return pe_of(*node);
        }
        let mut members: BTreeMap<Pe, usize> = BTreeMap::new();
        for pe in units.operators(unit).iter().filter_map(|&node| pe_of(node)) {
            *members.entry(pe).or_default() += 1;
        }
        let rank = |(pe, count): &(Pe, usize)| {
            let id = running.ids[*pe];
            (!running.closed.contains(&id), *count, Reverse(id))
        };
        members.into_iter().max_by_key(rank).map(|(pe, _)| pe)
    };
    units.keys().map(|unit| most(unit).filter(|&pe| stays(running.ids[pe])).into()).collect()
}

/// Finds the units that stay in each PE, by ascending id. A unit stays unless it contradicts a unit of the PE that was
/// found to stay before it. A unit that has to be alone stays if no other unit does.
fn staying(
    composition: &Composition,
    homes: &PrimaryMap<Unit, PackedOption<Pe>>,
    running: RunningJob,
    budget: &Budget,
) -> Result<Vec<(PeId, Seed)>, Error> {
    let rules = &composition.rules;
    // Only units of one PE are compared: bindings to hosts across PEs were decided when the PEs were filled.
    let mut host_bindings = composition.host_bindings_without_groups(budget)?;
    let seed = |id| Seed::empty(running.restarting.contains(id), running.closed.contains(id));
    let mut seeds: PrimaryMap<Pe, Seed> = running.ids.values().map(seed).collect();
    let mut alone = Vec::new();
    let mut pace = budget.pace();
    for (unit, home) in homes {
        let Some(home) = home.expand() else { continue };
        if rules.alone[unit] {
            alone.push((unit, home));
            continue;
        }
        let seed = &mut seeds[home];
        if let Some(&first) = seed.units.first() {
            if !seed.accepts(unit, rules) || !host_bindings.bindable(first, unit, &mut pace)? {
                continue;
            }
            host_bindings.bind(first, unit, &mut pace)?;
        }
        seed.add(unit, rules);
    }
    for (unit, home) in alone {
        if seeds[home].units.is_empty() {
            seeds[home].add(unit, rules);
        }
    }
    let seeds = running.ids.values().copied().zip(seeds.into_iter().map(|(_, seed)| seed));
    let mut staying: Vec<(PeId, Seed)> = seeds.filter(|(_, seed)| !seed.units.is_empty()).collect();
    staying.sort_unstable_by_key(|(id, _)| *id);
    Ok(staying)
}
