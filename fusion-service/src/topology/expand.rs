//! The expansion: an application and its parameters become a [`Topology`].
//!
//! ```text
//! application --shape--> splitters, mergers, scopes --order--> numbers of copies --links--> what ports reach (all counted)
//!             --operators, connect, imports, locations, consistent, annotations--> Topology
//! ```
//!
//! Everything above the second arrow costs what the document weighs, whatever the widths; limits are checked there.

use super::connect::{Connector, Ports};
use super::copies::Copies;
use super::links::Links;
use super::locations::{HostPools, may_replicate};
use super::operators::Written;
use super::order::Order;
use super::regrow::Before;
use super::relabel::{Numbering, relabel};
use super::shape::{ScopeId, Shape};
use super::texts::Texts;
use super::widths::Overrides;
use super::{Node, Operator, Parameters, Region, Topology, consistent, imports};
use crate::budget::Budget;
use crate::error::{Error, Problem, Problems, Stage};
use crate::logical::{Application, HostPool, OperatorId, Resources};
use crate::shared::Shared;
use cranelift_entity::{EntityRef, PrimaryMap, SecondaryMap};
use std::sync::Arc;

/// Expands an application for the widths in force, with fresh numbers (topology 4).
///
/// # Errors
///
/// Stage `topology`: everything that plan command lists for it, limits included.
pub fn expand(application: &Arc<Application>, parameters: &Parameters, budget: &Budget) -> Result<Topology, Error> {
    make(application, parameters, None, budget)
}

/// Expands the application of a topology once more, for other widths in force and else the same parameters. What exists already keeps its
/// numbers, as [`relabel`] says; operators that no changed region concerns are shared.
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
    let overrides = Overrides::parse(&parameters.widths, &mut problems)?;
    let shape = Shape::build(application, &overrides, &parameters.bindings, &budget.limits, &mut problems);
    let mut texts = Texts::new(&budget.limits);
    let order = if problems.is_empty() { problems.keep(Order::new(&shape, &budget.limits))? } else { None };
    let Some(order) = order else { return Err(refuse(&shape, parameters, texts, problems)) };
    let mut links = Links::new(&shape, &budget.limits);
    let ports = Ports::follow(&shape, &mut links, budget, &mut problems)?;
    let numbered = if problems.is_empty() { problems.keep(order.numbered(&shape))? } else { None };
    let Some(mut numbered) = numbered else { return Err(refuse(&shape, parameters, texts, problems)) };
    let mut running = before.and_then(|before| Before::new(&shape, before, &mut numbered));
    let copies = Copies::new(numbered.iter().map(|(_, id, channel)| (*id, *channel)));
    let imported = imports::imports(&shape, &order, &mut links, &copies, &mut texts, budget, &mut problems)?;
    let written = Written::all(&shape, parameters, &mut texts, &mut problems);
    let Some(mut written) = problems.keep(written)?.filter(|_| problems.is_empty()) else {
        consistent::check(&shape, &mut problems);
        return Err(Error::Rejected(problems.into_vec()));
    };
    check_names(&shape, &written, budget)?;
    let mut connector = Connector::new(&shape, &links, &ports, &copies);
    let unchanged = running.as_ref().map_or_else(SecondaryMap::new, |running| {
        running.unchanged(&shape, &links, &ports, &written, (&numbered, &imported))
    });
    let mut operators: PrimaryMap<Node, Shared<Operator>> = PrimaryMap::with_capacity(numbered.len());
    let mut taken_over: PrimaryMap<Node, bool> = PrimaryMap::with_capacity(numbered.len());
    let mut pace = budget.pace();
    let mut imported = imported.into_iter().peekable();
    for (index, id, channel) in &numbered {
        pace.step()?;
        let Some(written) = &written[*id] else { continue };
        let node = Node::new(operators.len());
        if let Some(running) = running.as_mut().filter(|_| unchanged[*id])
            && let Some(operator) = running.take(node, &mut connector.connections)
        {
            operators.push(operator);
            taken_over.push(true);
            continue;
        }
        taken_over.push(false);
        let mut operator = written.operator(&shape, (*index, *id, *channel), &mut texts, &mut problems)?;
        for (position, port) in operator.outputs.iter_mut().enumerate() {
            let before = connector.connections.len();
            let connected = connector.connect(node, *id, position, *channel);
            port.splitters = connected.splitters;
            if let Some((id, channel)) = connected.export {
                port.export = imports::export(&shape, id, channel, &mut texts)?.map(Box::new);
            }
            pace.steps(u32::try_from(connector.connections.len() - before).unwrap_or(u32::MAX))?;
        }
        for ((port, mergers), position) in operator.inputs.iter_mut().zip(&ports.mergers[*id]).zip(0..) {
            port.mergers = mergers.clone();
            if let Some((_, imports)) = imported.next_if(|(at, _)| *at == (node, position)) {
                port.imports = Some(Box::new(imports));
            }
        }
        operators.push(Shared::new(operator));
    }
    let connections = std::mem::take(&mut connector.connections);
    drop(connector);
    let host_pools = replicate_host_pools(&shape, &order, &taken_over, &mut operators, &mut texts, &mut problems)?;
    if !problems.is_empty() {
        consistent::check(&shape, &mut problems);
        return Err(Error::Rejected(problems.into_vec()));
    }

    let graph = consistent::Graph {
        links: &links,
        ports: &ports,
        copies: &copies,
        numbered: &numbered,
        connections: &connections,
    };
    let regions = consistent::find(&shape, &order, parameters, &graph, budget)?;
    let no_regions = regions.regions.is_empty() && before.is_none_or(|before| before.consistent_regions.is_empty());
    let mut charged: SecondaryMap<OperatorId, bool> = SecondaryMap::with_capacity(written.len());
    for ((node, operator), (_, id, _)) in operators.iter_mut().zip(&numbered) {
        // What was taken over has its annotations. All channels have the same, and they are charged for once.
        if std::mem::replace(&mut charged[*id], true) && no_regions && taken_over[node] {
            continue;
        }
        let membership = regions.members.get(node).and_then(Option::as_deref);
        let id = operator.logical;
        let Some(written) = &mut written[id] else { continue };
        let annotations = written.annotations.fill(&shape, id, &operator.channels, membership, &mut texts)?;
        let region = membership.map(|membership| membership.region);
        let is_complete = operator.consistent_region == region && operator.annotations == annotations;
        if !is_complete {
            let operator = operator.to_mut();
            (operator.annotations, operator.consistent_region) = (annotations, region);
        }
    }
    let topology = Topology {
        application: application.clone(),
        data_directory: parameters.configuration.data_directory.clone().or_else(|| application.data_directory.clone()),
        display: parameters.bindings.display().to_owned(),
        host_pools,
        regions: regions_in_force(&shape),
        consistent_regions: regions.regions,
        operators,
        connections,
    };
    Ok(match (before, running) {
        (None, _) => topology,
        (Some(_), Some(running)) => running.renumber(topology),
        (Some(before), None) => relabel(topology, &Numbering::of(before)),
    })
}

/// An application whose parts do not fit together: besides that, what is wrong with the parts in themselves.
fn refuse(shape: &Shape<'_>, parameters: &Parameters, mut texts: Texts, mut problems: Problems) -> Error {
    imports::check_expressions(shape.application, &mut problems);
    let written = Written::all(shape, parameters, &mut texts, &mut problems);
    match problems.keep(written) {
        Ok(_) => consistent::check(shape, &mut problems),
        Err(ended) => return ended,
    }
    Error::Rejected(problems.into_vec())
}

/// Refuses an application whose names alone are more than all documents may have, before the names are made.
fn check_names(
    shape: &Shape<'_>,
    written: &PrimaryMap<OperatorId, Option<Written>>,
    budget: &Budget,
) -> Result<(), Error> {
    let mut bytes = 0_u64;
    for (id, written) in written.iter() {
        let copies = u64::from(shape.scopes[shape.scope_of[id]].channels);
        let names = written.as_ref().map_or(0, Written::name_bytes);
        bytes = bytes.saturating_add(names.saturating_mul(copies));
    }
    if bytes <= budget.limits.aadl_bytes {
        return Ok(());
    }
    let most = budget.limits.aadl_bytes;
    let message = format!("the names of all operators have {bytes} bytes; at most {most} are supported");
    Err(Problem::new(Stage::Topology, message).into())
}

/// Regions with their widths, ascending index.
fn regions_in_force(shape: &Shape<'_>) -> Vec<Region> {
    // A scope begins with the operator that introduces it.
    let mut first: SecondaryMap<ScopeId, Option<OperatorId>> = SecondaryMap::new();
    for id in shape.application.operators.keys() {
        first[shape.scope_of[id]].get_or_insert(id);
    }
    let named = |(position, region): (usize, &crate::logical::ParallelRegion)| {
        let scope = shape.scope_of_region.get(position).copied().flatten()?;
        let id = first[scope]?;
        let scope = &shape.scopes[scope];
        let name = shape.application.operators[id].logical_name.clone();
        Some(Region { index: region.index, name, width: scope.width, global_max: scope.channels })
    };
    shape.application.regions.iter().enumerate().filter_map(named).collect()
}

/// Gives operators the copies of host pools that their channels need, in the order of the walk (topology 4.11).
fn replicate_host_pools(
    shape: &Shape<'_>,
    order: &Order,
    taken_over: &PrimaryMap<Node, bool>,
    operators: &mut PrimaryMap<Node, Shared<Operator>>,
    texts: &mut Texts,
    problems: &mut Problems,
) -> Result<Vec<HostPool>, Error> {
    let mut pools = HostPools::new(&shape.application.host_pools);
    let mut walk = Vec::new();
    // What is taken over is in no such pool.
    for (node, operator) in operators.iter().filter(|(node, _)| !taken_over[*node]) {
        if may_replicate(shape, operator.logical, &operator.resources) {
            let channel = operator.channels.first().map_or(0, |channel| channel.global);
            walk.push((order.walk_position(shape, operator.logical, channel), node));
        }
    }
    walk.sort_unstable();
    for (_, node) in walk {
        let operator = &mut operators[node];
        let Some(location) = operator.resources.pool else { continue };
        let replicated = pools.replicate(shape, operator.logical, location, &operator.channels, texts, problems)?;
        if replicated != location {
            let resources = Resources { pool: Some(replicated), ..(*operator.resources).clone() };
            operator.to_mut().resources = Arc::new(resources);
        }
    }
    Ok(pools.pools)
}
