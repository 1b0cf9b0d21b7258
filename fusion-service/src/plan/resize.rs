//! Other widths for a job that exists.

use super::Compiled;
use super::assemble::{Assembled, Grouping};
use super::change::{self, Prior, PriorElements};
use super::ports::InUse;
use super::request::{Bound, Request, ResolvedFusion, Source};
use crate::budget::Budget;
use crate::error::{Error, Problems};
use crate::fuser::{self, Graph, Identified, PeId, Running};
use crate::topology::{self, Difference, Node, Numbering, Topology, find_region, relabel};
use cranelift_entity::PrimaryMap;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// How operators are distributed over PEs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Policy {
    /// Operators that exist stay in their PE.
    #[default]
    Sticky,
    /// Fuse from scratch; a PE with exactly the operators of an earlier one keeps its id.
    Rebalance,
}

/// Compiles a job for other widths: pattern of one region -> width. Numbers are kept as far as things exist.
///
/// Errors, besides those of a submission, at stage `transfer`: a pattern that matches no region, or several.
pub fn resize(
    prior: &Compiled,
    widths: &[(String, i128)],
    policy: Policy,
    in_use: &InUse,
    budget: &Budget,
) -> Result<Compiled, Error> {
    let (source, request) = (&prior.source, &prior.request);
    let fusion = request.fusion.check(request.fusion_type, prior.layout.automatic)?;
    let before = prior.topology();
    let mut wanted: Vec<(String, i128)> =
        before.regions.iter().map(|region| (region.name.clone(), i128::from(region.width))).collect();
    let mut problems = Problems::default();
    for (pattern, width) in widths {
        let Some(index) = problems.keep(find_region(&before.regions, pattern))?.map(|region| region.index) else {
            continue;
        };
        for (region, entry) in before.regions.iter().zip(&mut wanted) {
            if region.index == index {
                entry.1 = *width;
            }
        }
    }
    problems.into_result()?;
    let bound = Bound { bindings: prior.bindings.clone(), configuration: request.configuration.clone() };
    let topology = Arc::new(bound.expand_again(before, wanted, budget)?);
    budget.check()?;
    let difference = difference(before, &topology);
    let graph = Graph::from_topology(&topology)?;
    let ResolvedFusion { fusion, found, automatic } = fusion.resolve(&graph)?;
    let grouping = match policy {
        Policy::Sticky => {
            let pe_of = pe_of(&topology, prior);
            let running =
                Running { pe_of: &pe_of, restarting: &restarting(prior, &difference), taken: &in_use.elements };
            let Identified { partition, ids } = fuser::fuse_sticky(&graph, &fusion, running, budget)?;
            Grouping { partition, ids, found, automatic }
        }
        Policy::Rebalance => {
            let partition = fuser::fuse(&graph, &fusion, budget)?;
            let previous = prior.plan.elements.iter().map(|e| (e.id, e.operators.iter().map(String::as_str)));
            let ids = fuser::match_ids(&graph, &partition, previous, &in_use.elements)?;
            Grouping { partition, ids, found, automatic }
        }
    };
    let assembled = Assembled::new(bound, &topology, &graph, grouping, Some(&prior.layout), in_use, budget)?;
    // A plan of another compiler: what its documents are worth is said by writing them again (decisions, "A new compiler version").
    let measured = if change::by_another_compiler(&prior.layout) {
        Some(prior.writer.measure_all(&prior.elements, |_| None, budget)?)
    } else {
        None
    };
    let digests = change::digests(&prior.layout, measured.as_deref());
    let prior = Prior { difference, elements: PriorElements::Compiled(prior, digests) };
    assembled.finish(source, request, Some(prior), budget)
}

/// What happens to operators, over all regions whose width changes.
fn difference(before: &Topology, after: &Topology) -> Difference {
    let mut all = Difference::default();
    for (old, new) in before.regions.iter().zip(&after.regions) {
        if old.width != new.width {
            let one = topology::difference(before, after, old.index);
            all.added.extend(one.added);
            all.changed.extend(one.changed);
            all.removed.extend(one.removed);
        }
    }
    for names in [&mut all.added, &mut all.changed, &mut all.removed] {
        names.sort_unstable();
        names.dedup();
    }
    all
}

/// The PE of every operator that exists already.
fn pe_of(topology: &Topology, prior: &Compiled) -> PrimaryMap<Node, Option<PeId>> {
    let elements = &prior.elements;
    let id = |node| elements.id(elements.partition().pe(node));
    topology::earlier(prior.topology(), topology).values().map(|earlier| earlier.map(id)).collect()
}

/// PEs that cannot go on as they are: they hold an operator that is gone or sees other neighbours.
fn restarting(prior: &Compiled, difference: &Difference) -> BTreeSet<PeId> {
    let touched: BTreeSet<&str> = difference.changed.iter().chain(&difference.removed).map(String::as_str).collect();
    let holds = |names: &[String]| names.iter().any(|name| touched.contains(name.as_str()));
    prior.plan.elements.iter().filter(|e| holds(&e.operators)).map(|e| e.id).collect()
}

/// A resize alone, with a prior state given from outside (plan command, "input.json").
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

/// Replays a resize: fusion from scratch on the topology with the prior numbers; a PE with exactly the operators of a previous one
/// takes its id. The widths of the request are not used.
///
/// Errors as for [`resize`].
pub fn replay(source: &Source, request: &Arc<Request>, replay: &Replay, budget: &Budget) -> Result<Compiled, Error> {
    let fusion = request.fusion.check(request.fusion_type, None)?;
    let bound = Bound::new(source, request)?;
    let before = bound.expand(source, existing(source, &replay.prior_widths), budget)?;
    let fresh = bound.expand(source, existing(source, &replay.current_widths), budget)?;
    let region = find_region(&fresh.regions, &replay.region)?.index;
    let topology = Arc::new(relabel(fresh, &Numbering::of(&before)));
    let difference = topology::difference(&before, &topology, region);
    drop(before);
    let graph = Graph::from_topology(&topology)?;
    let ResolvedFusion { fusion, found, automatic } = fusion.resolve(&graph)?;
    let partition = fuser::fuse(&graph, &fusion, budget)?;
    let previous = replay.previous_elements.iter().map(|(id, names)| (*id, names.iter().map(String::as_str)));
    let ids = fuser::match_ids(&graph, &partition, previous, &BTreeSet::new())?;
    let grouping = Grouping { partition, ids, found, automatic };
    let assembled = Assembled::new(bound, &topology, &graph, grouping, None, &InUse::default(), budget)?;
    let elements = PriorElements::Ids(replay.previous_elements.keys().copied().collect());
    assembled.finish(source, request, Some(Prior { difference, elements }), budget)
}

/// The widths of regions that there are; others are ignored.
fn existing(source: &Source, widths: &[(String, i128)]) -> Vec<(String, i128)> {
    let names: BTreeSet<&str> = super::restore::region_names(&source.application).into_values().collect();
    widths.iter().filter(|(name, _)| names.contains(name.as_str())).cloned().collect()
}
