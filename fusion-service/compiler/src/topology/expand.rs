//! The expansion: an application and its parameters become a [`Topology`].
//!
//! ```text
//! application --wiring, shape--> splitters, mergers, scopes
//!             --order--> numbers of copies --links--> what ports reach (all counted)
//!             --operators, connect, imports, locations, consistent, annotations--> Topology
//! ```
//!
//! Everything up to `links` takes time linear in the document, whatever the widths. Numbers are bounded there: of what
//! is made for each channel, and of the steps to it. Texts are bounded where they are made, and what consistent regions
//! pass while it is followed.
//!
//! Knows: the steps and their order. Must not know: PEs, what the topology is used for.

use super::annotations::AnnotationCache;
use super::connect::{Connector, ReachedPorts};
use super::consistent::{self, ConsistentRegions};
use super::copies::Copies;
use super::count::Count;
use super::imports::{self, ImportsOfPorts};
use super::links::Links;
use super::locations::{HostPools, copied_bytes, may_replicate};
use super::operators::ResolvedPrimitives;
use super::order::{Numbered, Order};
use super::relabel::{Numbering, relabel};
use super::reuse::Previous;
use super::shape::{ScopeId, Shape};
use super::texts::TextBudget;
use super::widths::Overrides;
use super::{ChannelCount, Connection, Merger, Node, Parameters, PhysicalOperator, Region, Topology, WidthIndependent};
use crate::budget::{Budget, Limits, Pace};
use crate::error::{Error, Problem, Problems, Stage};
use crate::logical::{Application, HostPool, OperatorId, OperatorKind, Primitive};
use crate::shared::Shared;
use cranelift_entity::{EntityRef, PrimaryMap, SecondaryMap};
use std::sync::Arc;

/// Expands an application for the widths in force, with fresh numbers (rules expansion-9 and expansion-16).
///
/// # Errors
///
/// Stage `topology`: what rules expansion-32 and expansion-33 list.
pub fn expand(application: &Arc<Application>, parameters: &Parameters, budget: &Budget) -> Result<Topology, Error> {
    make(application, parameters, None, budget)
}

/// Expands the application of a topology again, for other widths and otherwise the same parameters. Everything that
/// existed keeps its numbers, as with [`relabel`]. Operators that no changed region concerns are shared.
///
/// # Errors
///
/// As for [`expand`].
pub fn expand_again(before: &Topology, parameters: &Parameters, budget: &Budget) -> Result<Topology, Error> {
    make(&before.application, parameters, Some(before), budget)
}

fn make(
    application: &Arc<Application>,
    parameters: &Parameters,
    before: Option<&Topology>,
    budget: &Budget,
) -> Result<Topology, Error> {
    budget.check()?;
    let mut problems = Problems::default();
    let overrides = Overrides::parse(&parameters.widths, &mut problems);
    let channel_counts = Overrides::parse(&parameters.channel_counts, &mut problems);
    let width_independent = before.map(|before| &before.width_independent);
    let wiring = width_independent.map(|width_independent| Arc::clone(&width_independent.wiring));
    let shape = Shape::build(application, wiring, &overrides, &parameters.bindings, &mut problems, budget)?;
    let mut texts = TextBudget::new(&budget.limits);
    let order = if problems.is_empty() {
        let order = Order::new(&shape, &budget.limits);
        problems.keep(order.and_then(|order| Ok(check_counts(&shape, &budget.limits).map(|()| order)?)))?
    } else {
        None
    };
    let Some(order) = order else { return Err(refuse(&shape, parameters, texts, problems, budget)) };
    let mut links = Links::new(&shape, &budget.limits);
    let ports = ReachedPorts::follow(&shape, &mut links, budget, &mut problems)?;
    let numbered = if problems.is_empty() { problems.keep(order.numbered(&shape))? } else { None };
    let Some(mut numbered) = numbered else { return Err(refuse(&shape, parameters, texts, problems, budget)) };
    if let Some(before) = before {
        budget.grows(before.operators.len() as u64, numbered.len() as u64);
        budget.grows(before.connections.len() as u64, ports.connections);
    }
    let mut running = match before {
        Some(before) => Previous::new(&shape, before, &mut numbered, budget)?,
        None => None,
    };
    let copies = Copies::new(&numbered);
    let (walk, previous) = ((&shape, &order), running.as_ref());
    let imported = imports::imports(walk, &mut links, &copies, previous, &mut texts, budget, &mut problems)?;
    let (imported, import_costs) = imported;
    let resolved = match width_independent {
        Some(WidthIndependent { resolved, .. }) => resolved.charge(&mut texts).map(|()| Arc::clone(resolved)),
        None => ResolvedPrimitives::new(&shape, parameters, &mut texts, &mut problems, budget).map(Arc::new),
    };
    let Some(resolved) = problems.keep(resolved)?.filter(|_| problems.is_empty()) else {
        consistent::check(&shape, &mut problems);
        return Err(Error::Rejected(problems.into_vec()));
    };
    check_names(&shape, &resolved, &budget.limits)?;

    let counted = CheckedApplication {
        shape: &shape,
        links: &links,
        ports: &ports,
        numbered: &numbered,
        copies: &copies,
        resolved: &resolved,
    };
    let copied = counted.copy(imported, running.as_mut(), &mut texts, &mut problems, budget)?;
    let CopiedOperators { mut operators, connections, taken_over } = copied;
    let pace = budget.pace();
    let host_pools =
        replicate_host_pools((&shape, &order), &taken_over, &mut operators, &mut texts, &mut problems, pace)?;
    if !problems.is_empty() {
        consistent::check(&shape, &mut problems);
        return Err(Error::Rejected(problems.into_vec()));
    }
    let graph = consistent::SearchGraph {
        links: &links,
        ports: &ports,
        copies: &copies,
        numbered: &numbered,
        connections: &connections,
    };
    let regions = consistent::find(&shape, &order, parameters, &graph, &mut texts, budget)?;
    let had_regions = before.is_some_and(|before| !before.consistent_regions.is_empty());
    // Without consistent regions before and now, operators that were taken over have their annotations already.
    let complete = if regions.regions.is_empty() && !had_regions { Some(&taken_over) } else { None };
    counted.annotate(&mut operators, &regions, running.as_ref(), complete, &mut texts, budget.pace())?;
    drop(links);

    let regions_in_force = regions_in_force(&shape, &channel_counts, budget)?;
    let topology = Topology {
        application: application.clone(),
        data_directory: parameters.configuration.data_directory.clone().or_else(|| application.data_directory.clone()),
        display: parameters.bindings.display().to_owned(),
        host_pools,
        regions: regions_in_force,
        consistent_regions: regions.regions,
        operators,
        connections,
        numbered,
        import_costs,
        width_independent: WidthIndependent { wiring: shape.wiring, resolved },
    };
    Ok(match (before, running) {
        (None, _) => topology,
        (Some(_), Some(running)) => running.renumber(topology, budget)?,
        (Some(before), None) => relabel(topology, &Numbering::of(before)),
    })
}

/// An application after all counts and checks. Its operators can be copied.
struct CheckedApplication<'r, 's, 'a> {
    shape: &'s Shape<'a>,
    links: &'r Links<'s, 'a>,
    ports: &'r ReachedPorts,
    numbered: &'r Numbered,
    copies: &'r Copies,
    resolved: &'r ResolvedPrimitives,
}

/// The copies of all operators, without host pools of their own and annotations.
struct CopiedOperators {
    operators: PrimaryMap<Node, Shared<PhysicalOperator>>,
    connections: Vec<Connection>,
    /// Whether each operator was taken over from the topology before.
    taken_over: PrimaryMap<Node, bool>,
}

impl<'s, 'a> CheckedApplication<'_, 's, 'a> {
    /// Makes all operators with their connections, or takes them over from the topology before.
    fn copy(
        &self,
        imported: ImportsOfPorts,
        mut running: Option<&mut Previous<'_>>,
        texts: &mut TextBudget,
        problems: &mut Problems,
        budget: &Budget,
    ) -> Result<CopiedOperators, Error> {
        let Self { shape, links, ports, numbered, copies, resolved } = *self;
        let unchanged = match &running {
            Some(running) => running.unchanged(shape, links, ports, resolved, budget)?,
            None => SecondaryMap::new(),
        };
        let mut connector = Connector::new(shape, links, ports, copies);
        let mut operators: PrimaryMap<Node, Shared<PhysicalOperator>> = PrimaryMap::with_capacity(numbered.len());
        let mut taken_over: PrimaryMap<Node, bool> = PrimaryMap::with_capacity(numbered.len());
        let mut pace = budget.pace();
        let mut imported = imported.into_iter().peekable();
        // By operator as written whose channels are as they were: the mergers before its ports.
        let mut kept_mergers: SecondaryMap<OperatorId, Vec<Arc<[Merger]>>> = SecondaryMap::new();
        for (index, id, channel) in numbered {
            pace.step()?;
            let node = Node::new(operators.len());
            let before = connector.connections.len();
            if let Some(running) = running.as_mut().filter(|_| unchanged[*id])
                && let Some(operator) = running.take(node, &mut connector.connections)
            {
                operators.push(operator);
                taken_over.push(true);
                pace.steps(u32::try_from(connector.connections.len() - before).unwrap_or(u32::MAX))?;
                continue;
            }
            taken_over.push(false);
            let Some(written) = resolved.get(*id) else { continue };
            let mut operator = written.operator(shape, (*index, *id, *channel), texts, &mut pace, problems)?;
            for (position, port) in operator.outputs.iter_mut().enumerate() {
                let connected = connector.connect(node, (*id, position), *channel, &mut pace)?;
                port.splitters = connected.splitters;
                if let Some((id, channel)) = connected.export {
                    port.export = imports::export(shape, id, channel, texts)?.map(Box::new);
                }
            }
            let kept = running.as_deref().filter(|running| running.keeps(shape.scope_of[*id]));
            let mut mergers = &ports.mergers[*id];
            if let Some(before) = kept.filter(|_| !mergers.is_empty()) {
                if kept_mergers[*id].is_empty() {
                    kept_mergers[*id] = before.mergers(node, mergers);
                }
                mergers = &kept_mergers[*id];
            }
            for ((port, mergers), position) in operator.inputs.iter_mut().zip(mergers).zip(0..) {
                port.mergers = mergers.clone();
                if let Some((_, imports)) = imported.next_if(|(at, _)| *at == (node, position)) {
                    port.imports = Some(Box::new(imports));
                } else if let Some(before) = kept {
                    port.imports = before.imports(node, position);
                }
            }
            operators.push(Shared::new(operator));
        }
        Ok(CopiedOperators { operators, connections: connector.into_connections(), taken_over })
    }

    /// Gives operators their annotations and consistent regions. Operators of `complete` have theirs already.
    fn annotate(
        &self,
        operators: &mut PrimaryMap<Node, Shared<PhysicalOperator>>,
        regions: &ConsistentRegions,
        running: Option<&Previous<'_>>,
        complete: Option<&PrimaryMap<Node, bool>>,
        texts: &mut TextBudget,
        mut pace: Pace<'_>,
    ) -> Result<(), Error> {
        let mut made: SecondaryMap<OperatorId, AnnotationCache> = SecondaryMap::new();
        for ((node, operator), (_, id, _)) in operators.iter_mut().zip(self.numbered) {
            pace.step()?;
            if complete.is_some_and(|complete| complete[node]) {
                made[*id].take_over(&operator.annotations, texts)?;
                continue;
            }
            let Some(written) = self.resolved.get(*id) else { continue };
            let membership = regions.members.get(node).and_then(Option::as_deref);
            let (place, earlier) = ((*id, &*operator.channels), || running?.annotations(node));
            let charged = texts.charged();
            let annotations =
                written.annotations.fill(self.shape, place, membership, earlier, &mut made[*id], texts)?;
            // Made and compared once for many copies.
            pace.steps(u32::try_from((texts.charged() - charged) >> 5).unwrap_or(u32::MAX))?;
            let region = membership.map(|membership| membership.region);
            let had = &operator.annotations;
            let is_same = Arc::ptr_eq(had, &annotations);
            if !is_same && had.len() == annotations.len() {
                pace.steps(u32::try_from(had.len()).unwrap_or(u32::MAX))?;
            }
            let is_complete = operator.consistent_region == region && (is_same || *had == annotations);
            if !is_complete {
                let operator = operator.to_mut();
                (operator.annotations, operator.consistent_region) = (annotations, region);
            }
        }
        Ok(())
    }
}

/// Makes the error for an application whose parts do not fit together. It also has the problems of each part in itself
/// (rule expansion-32).
fn refuse(
    shape: &Shape<'_>,
    parameters: &Parameters,
    mut texts: TextBudget,
    mut problems: Problems,
    budget: &Budget,
) -> Error {
    if let Err(ended) = imports::check_expressions(shape.application, &mut problems, budget) {
        return ended;
    }
    let resolved = ResolvedPrimitives::new(shape, parameters, &mut texts, &mut problems, budget);
    match problems.keep(resolved) {
        Ok(_) => consistent::check(shape, &mut problems),
        Err(ended) => return ended,
    }
    Error::Rejected(problems.into_vec())
}

/// Refuses an application whose operators have too many ports or ids of locations, or are in too many regions, before
/// anything is made for each of these (rule expansion-33).
fn check_counts(shape: &Shape<'_>, limits: &Limits) -> Result<(), Problem> {
    // By scope: the regions around its operators. A scope comes after the one around it.
    let mut depths: SecondaryMap<ScopeId, u64> = SecondaryMap::new();
    for (id, scope) in shape.scopes.iter().filter(|(_, scope)| scope.region.is_some()) {
        depths[id] = depths[scope.parent] + 1;
    }
    let [mut ports, mut around, mut in_names, mut locations] = [Count::default(); 4];
    for (id, operator) in shape.application.operators.iter() {
        let (inputs, outputs, ids) = match &operator.kind {
            OperatorKind::Primitive(primitive) => {
                (primitive.inputs.len(), primitive.outputs.len(), location_ids(primitive))
            }
            OperatorKind::Import(_) | OperatorKind::Export(_) => (0, 0, 0),
            OperatorKind::Composite(_) => continue,
        };
        let (depth, copies) = (depths[shape.scope_of[id]], u64::from(shape.scopes[shape.scope_of[id]].channels));
        ports.add(id, inputs as u64 + outputs as u64, copies);
        // Channels share the ids as written, but fusion has each of them in each channel.
        locations.add(id, ids as u64, copies);
        around.add(id, depth, copies);
        // A name is kept once for all copies, with a place for the channel of each region.
        in_names.add(id, depth, outputs as u64 + 1);
    }
    let around = if in_names.total() > around.total() { in_names } else { around };
    for (count, most, what) in [
        (ports, limits.ports(), "ports of operators"),
        (around, limits.regions_around_operators(), "parallel regions around operators"),
        (locations, limits.locations(), "ids of locations of operators"),
    ] {
        count.check(shape.application, what, most)?;
    }
    Ok(())
}

/// Ids of the locations that an operator shares with others, or keeps others out of: of PEs and of hosts.
fn location_ids(primitive: &Primitive) -> usize {
    let (partition, resources) = (&primitive.partition, &primitive.resources);
    let ids = [&partition.co_locations, &partition.ex_locations, &resources.co_locations, &resources.ex_locations];
    ids.into_iter().map(Vec::len).sum()
}

/// Refuses an application whose names alone would take much of the memory of a worker, before the names are made
/// (rule expansion-33).
fn check_names(shape: &Shape<'_>, resolved: &ResolvedPrimitives, limits: &Limits) -> Result<(), Problem> {
    let mut bytes = 0_u64;
    for (id, written) in resolved.iter() {
        let copies = u64::from(shape.scopes[shape.scope_of[id]].channels);
        bytes = bytes.saturating_add(written.name_bytes().saturating_mul(copies));
    }
    let most = limits.name_bytes();
    if bytes <= most {
        return Ok(());
    }
    let message = format!("the names of all operators and streams have {bytes} bytes; at most {most} are supported");
    Err(Problem::new(Stage::Topology, message))
}

/// Regions with their widths, ascending index.
fn regions_in_force(
    shape: &Shape<'_>,
    channel_counts: &Overrides<ChannelCount>,
    budget: &Budget,
) -> Result<Vec<Region>, Error> {
    let mut pace = budget.pace();
    // A scope begins with the operator that introduces it.
    let mut first: SecondaryMap<ScopeId, Option<OperatorId>> = SecondaryMap::new();
    for id in shape.application.operators.keys() {
        first[shape.scope_of[id]].get_or_insert(id);
    }
    let mut named = |(position, region): (usize, &crate::logical::ParallelRegion)| -> Result<_, Error> {
        let Some(scope) = shape.scope_of_region.get(position).copied().flatten() else { return Ok(None) };
        let Some(id) = first[scope] else { return Ok(None) };
        let scope = &shape.scopes[scope];
        let name = shape.application.operators[id].logical_name.clone();
        let channel_count = channel_counts.of(&name, &mut pace)?.unwrap_or_default();
        Ok(Some(Region { index: region.index, name, width: scope.width, global_max: scope.channels, channel_count }))
    };
    shape.application.regions.iter().enumerate().filter_map(|region| named(region).transpose()).collect()
}

/// Gives operators the copies of host pools that their channels need, in the order of the walk (rule expansion-24).
fn replicate_host_pools(
    (shape, order): (&Shape<'_>, &Order),
    taken_over: &PrimaryMap<Node, bool>,
    operators: &mut PrimaryMap<Node, Shared<PhysicalOperator>>,
    texts: &mut TextBudget,
    problems: &mut Problems,
    mut pace: Pace<'_>,
) -> Result<Vec<HostPool>, Error> {
    let mut pools = HostPools::new(&shape.application.host_pools);
    let mut walk = Vec::new();
    // Operators that were taken over are in no such pool.
    for (node, operator) in operators.iter().filter(|(node, _)| !taken_over[*node]) {
        if may_replicate(shape, operator.logical, &operator.resources) {
            let channel = operator.channels.first().map_or(0, |channel| channel.global);
            walk.push((order.walk_position(shape, operator.logical, channel, &mut pace)?, node));
        }
    }
    walk.sort_unstable();
    for (_, node) in walk {
        let operator = &mut operators[node];
        pace.steps(1 + u32::try_from(operator.channels.len()).unwrap_or(u32::MAX / 2))?;
        let Some(location) = operator.resources.pool else { continue };
        let (copied, channels) = ((shape, operator.logical), &operator.channels);
        let replicated = pools.replicate(copied, location, channels, texts, problems, &mut pace)?;
        if replicated != location {
            let resources = &mut operator.to_mut().resources;
            if Arc::get_mut(resources).is_none() {
                // Channels shared the texts until now.
                let bytes = copied_bytes(resources);
                texts.charge(bytes)?;
                pace.steps(u32::try_from(bytes >> 10).unwrap_or(u32::MAX))?;
            }
            Arc::make_mut(resources).pool = Some(replicated);
        }
    }
    let mut pools = pools.pools;
    // The document need not number its pools without gaps, and then copies have numbers below some of them.
    pools.sort_unstable_by_key(|pool| pool.index);
    Ok(pools)
}
