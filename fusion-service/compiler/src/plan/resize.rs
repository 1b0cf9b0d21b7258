//! Compiles a job that exists for other widths.

use super::assemble::{Assembled, Grouping};
use super::change::{Predecessor, Prior};
use super::closed;
use super::request::{BoundRequest, Request, ResolvedFusion, Source};
use super::{Compiled, JobState};
use crate::budget::Budget;
use crate::elements::{KeptPorts, UngroupedElements};
use crate::error::{Error, Problems};
use crate::fuser::{self, Graph, PartitionWithIds, RunningJob};
use crate::topology::{self, Generations, Numbering, RegionsByName, Topology, find_region, relabel};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// How operators are distributed over PEs (rules fusion-24 and fusion-27).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Policy {
    /// Operators that exist stay in their PE.
    #[default]
    Sticky,
    /// Fuse from scratch; a PE with exactly the operators of an earlier one keeps its id.
    Rebalance,
}

/// Operators and connections up to which two things that go through all of them are done at once. With more, both need
/// much memory, and a helper would not leave for long.
const FEW: (usize, usize) = (1 << 15, 1 << 20);

/// Compiles a job for other widths. `widths` maps patterns, each of which must match one region, to widths. Everything
/// that still exists keeps its number (rule layout-7). `state` is what else is known of the job.
///
/// # Errors
///
/// As for [`super::submit`]. Stage `transfer`: a pattern matches no region, or several.
pub fn resize(
    prior: &Compiled,
    widths: &[(String, i128)],
    policy: Policy,
    state: &JobState,
    budget: &Budget,
) -> Result<Compiled, Error> {
    let (source, request) = (&prior.source, &prior.request);
    let JobState { in_use, closed } = state;
    let fusion = request.fusion.check(request.fusion_type, prior.automatic_count)?;
    let before = prior.topology();
    let mut wanted: Vec<(String, i128)> =
        before.regions.iter().map(|region| (region.name.clone(), i128::from(region.width))).collect();
    let mut problems = Problems::default();
    let regions = RegionsByName::new(&before.regions);
    let mut pace = budget.pace();
    for (pattern, width) in widths {
        let found = problems.keep(regions.find(pattern, &mut pace))?;
        if let Some(entry) = found.and_then(|position| wanted.get_mut(position)) {
            entry.1 = *width;
        }
    }
    problems.into_result()?;
    let bound = BoundRequest::with_bindings(prior.bindings.clone(), request);
    let topology = Arc::new(bound.expand_again(before, wanted, budget)?);
    budget.check()?;
    let now: &Topology = &topology;
    let compare = || -> Result<_, Error> {
        let generations = Generations::new(before, now, budget)?;
        let changes = topology::changes(&generations, budget)?;
        Ok((generations, changes))
    };
    let graph = || Graph::from_topology(now, budget);
    let (operators, connections) = (now.operators.len(), now.connections.len());
    let entries = if operators <= FEW.0 && connections <= FEW.1 { operators } else { 0 };
    let (compared, graph) = budget.both(entries, compare, graph);
    let ((generations, changes), graph) = (compared?, graph?);
    let ResolvedFusion { fusion, automatic_count, automatic } = fusion.resolve(&graph)?;
    let fuse = || {
        let pe = |node| prior.elements.pe(node);
        let pe_of = now.operators.keys().map(|node| generations.earlier(node).map(pe).into()).collect();
        // These PEs hold an operator that is gone or can tell that something changed (rule fusion-25).
        let changed = changes.observed.iter().filter_map(|&node| generations.earlier(node));
        let restarting = changed.chain(changes.removed.iter().copied());
        let restarting = restarting.map(|node| prior.elements.id(pe(node))).collect();
        let (ids, taken) = (prior.elements.ids(), &in_use.elements);
        let running = RunningJob { pe_of: &pe_of, ids, restarting: &restarting, closed, taken };
        match policy {
            Policy::Sticky => fuser::fuse_sticky(&graph, &fusion, running, budget),
            Policy::Rebalance => {
                let previous = prior.plan.elements.iter().map(|e| (e.id, e.operators.iter().map(String::as_str)));
                fuser::fuse_anew(&graph, &fusion, running, previous, budget)
            }
        }
    };
    // The tables of PEs do not depend on how operators are grouped.
    let tables = || UngroupedElements::after(&prior.elements, &generations, Arc::clone(&topology), budget);
    let (fused, ungrouped) = budget.both(entries, fuse, tables);
    let PartitionWithIds { partition, ids } = fused?;
    let mut elements = ungrouped?.group(partition, ids);
    let predecessor = Predecessor::new(prior, &generations, changes, &elements, budget)?;
    let open = predecessor.unchanged.others(&elements);
    let ports = KeptPorts { before: &prior.elements, generations: &generations };
    elements.number(&open, &graph, Some(&ports), in_use, budget)?;
    // The stages that follow need the memory.
    drop(graph);
    let assembled = Assembled { bound, elements, automatic_count, automatic, prior: Prior::Job(predecessor) };
    let mut compiled = assembled.finish(source, request, budget)?;
    closed::note(prior, &generations, closed, &mut compiled);
    Ok(compiled)
}

/// A resize alone, from a state that the caller describes (rule layout-17).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Replay {
    /// Pattern of the region that is resized.
    pub region: String,
    /// Widths before, by name of the region.
    pub prior_widths: Vec<(String, i128)>,
    /// Widths after.
    pub current_widths: Vec<(String, i128)>,
    /// Names of the operators of each PE.
    pub previous_elements: BTreeMap<u64, Vec<String>>,
}

/// Replays a resize: fusion from scratch on the topology with the prior numbers; a PE with exactly the operators of a
/// previous one takes its id. The widths of the request are not used.
///
/// # Errors
///
/// As for [`resize`].
pub fn replay(source: &Source, request: &Arc<Request>, replay: &Replay, budget: &Budget) -> Result<Compiled, Error> {
    let fusion = request.fusion.check(request.fusion_type, None)?;
    let bound = BoundRequest::new(source, request, budget)?;
    let before = bound.expand(source, existing(source, &replay.prior_widths), budget)?;
    let fresh = bound.expand(source, existing(source, &replay.current_widths), budget)?;
    find_region(&fresh.regions, &replay.region)?;
    let topology = Arc::new(relabel(fresh, &Numbering::of(&before)));
    let difference = topology::difference(&before, &topology, budget)?;
    drop(before);
    let graph = Graph::from_topology(&topology, budget)?;
    let ResolvedFusion { fusion, automatic_count, automatic } = fusion.resolve(&graph)?;
    let partition = fuser::fuse(&graph, &fusion, budget)?;
    let previous = replay.previous_elements.iter().map(|(id, names)| (*id, names.iter().map(String::as_str)));
    let ids = fuser::match_ids(&graph, &partition, previous, &BTreeSet::new())?;
    let grouping = Grouping { partition, ids, automatic_count, automatic };
    let prior = Prior::Ids(replay.previous_elements.keys().copied().collect(), difference);
    grouping.assemble(bound, &topology, &graph, prior, None, budget)?.finish(source, request, budget)
}

/// The widths of regions that exist. Others are ignored.
fn existing(source: &Source, widths: &[(String, i128)]) -> Vec<(String, i128)> {
    let names: BTreeSet<&str> = super::restore::region_names(&source.application).into_values().collect();
    widths.iter().filter(|(name, _)| names.contains(name.as_str())).cloned().collect()
}
