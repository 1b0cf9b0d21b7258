//! Where the pod of a PE may run, from the placement of its operators (rule element-17).

use crate::budget::Limits;
use crate::elements::Elements;
use crate::error::{Error, Problem, Problems, Stage, excerpt};
use crate::fuser::Pe;
use crate::logical::{HostPool, OperatorKind, PoolLocation};
use crate::topology::PhysicalOperator;
use get_size2::GetSize;
use std::collections::BTreeSet;

/// The SPL compiler puts operators without a host pool into this one.
const DEFAULT_POOL: &str = "$default";

/// Placement of one PE.
#[derive(Clone, Debug, Default, PartialEq, Eq, GetSize)]
pub struct Placement {
    /// Host name or address.
    pub host: Option<String>,
    /// Ids of PEs that share a host, sorted.
    pub co_locations: Vec<String>,
    /// Ids of PEs that must not share a host, sorted.
    pub ex_locations: Vec<String>,
    /// The operator that wants the host for its PE alone. Of several, the one with the lowest index.
    pub isolation: Option<String>,
    /// Place in a host pool other than the default one.
    pub pool: Option<PoolLocation>,
}

/// Computes the placement of these PEs.
///
/// # Errors
///
/// Stages `host-placement` and `host-pool-location`, in this order: operators of a PE ask for different hosts or pools.
pub(super) fn placements(elements: &Elements, pes: &[Pe]) -> Result<Vec<Placement>, Error> {
    let topology = elements.topology();
    let (mut hosts, mut pools) = (Problems::default(), Problems::default());
    // Channels of two operators have the same problem. It is reported once.
    let mut reported = BTreeSet::new();
    let placements = pes.iter().map(|&pe| {
        let operators = || elements.members(pe).iter().map(|&node| &*topology.operators[node]);
        let host = agreed(operators().map(|o| (o, o.resources.host.as_deref().filter(|host| !host.is_empty()))))
            .unwrap_or_else(|(a, b)| {
                if reported.insert((Stage::HostPlacement, a.logical, b.logical)) {
                    hosts.push(disagreement(Stage::HostPlacement, elements, pe, a, b, "hosts"));
                }
                None
            });
        let pool = agreed(operators().map(|o| (o, o.resources.pool.filter(|l| !is_default(&topology.host_pools, *l)))))
            .unwrap_or_else(|(a, b)| {
                if reported.insert((Stage::HostPoolLocation, a.logical, b.logical)) {
                    pools.push(disagreement(Stage::HostPoolLocation, elements, pe, a, b, "host pool locations"));
                }
                None
            });
        let ids = |of: fn(&PhysicalOperator) -> &[String]| {
            let ids: BTreeSet<&String> = operators().flat_map(of).collect();
            ids.into_iter().cloned().collect()
        };
        Placement {
            host: host.map(str::to_owned),
            co_locations: ids(|o| &o.resources.co_locations),
            ex_locations: ids(|o| &o.resources.ex_locations),
            isolation: operators().find(|o| o.resources.isolation).map(|o| o.name.clone()),
            pool,
        }
    });
    let placements = placements.collect();
    hosts.extend(pools.into_vec());
    hosts.into_result().map(|()| placements)
}

/// Operators that want a host for their PE alone, with the id of that PE, sorted.
///
/// # Errors
///
/// Stage `host-isolation`: the PEs would have more isolation labels than the limit allows (rule service-13).
pub(super) fn isolated(elements: &Elements, limits: &Limits) -> Result<Vec<(String, u64)>, Error> {
    let topology = elements.topology();
    // Most applications have no such operator. Then the channels need not be searched.
    let isolates =
        |kind: &OperatorKind| matches!(kind, OperatorKind::Primitive(written) if written.resources.isolation);
    if !topology.application.operators.values().any(|written| isolates(&written.kind)) {
        return Ok(Vec::new());
    }
    let mut isolated: Vec<(String, u64)> = (topology.operators.iter())
        .filter(|(_, operator)| operator.resources.isolation)
        .map(|(node, operator)| (operator.name.clone(), elements.id(elements.partition().pe(node))))
        .collect();
    let (operators, pes) = (isolated.len(), elements.pes().len());
    if (operators as u64).saturating_mul(pes as u64) > limits.isolation_labels {
        let message = format!("{operators} isolated operators in {pes} PEs are too many");
        return Err(Problem::new(Stage::HostIsolation, message).into());
    }
    isolated.sort_unstable();
    Ok(isolated)
}

fn is_default(pools: &[HostPool], location: PoolLocation) -> bool {
    let found = pools.binary_search_by_key(&location.pool, |pool| pool.index);
    found.is_ok_and(|position| pools.get(position).is_some_and(|pool| pool.name == DEFAULT_POOL))
}

/// The one value that operators have, or two operators with different ones.
fn agreed<'o, T: PartialEq + Copy>(
    mut values: impl Iterator<Item = (&'o PhysicalOperator, Option<T>)>,
) -> Result<Option<T>, (&'o PhysicalOperator, &'o PhysicalOperator)> {
    let Some((first, value)) = values.find_map(|(operator, value)| Some((operator, value?))) else { return Ok(None) };
    match values.find(|(_, other)| other.is_some_and(|other| other != value)) {
        Some((other, _)) => Err((first, other)),
        None => Ok(Some(value)),
    }
}

fn disagreement(
    stage: Stage,
    elements: &Elements,
    pe: Pe,
    a: &PhysicalOperator,
    b: &PhysicalOperator,
    what: &str,
) -> Problem {
    let place = elements.topology().application.operators[b.logical].place;
    let message = format!(
        "PE {}: operators {} and {} have different {what}",
        elements.id(pe),
        excerpt(&a.name),
        excerpt(&b.name)
    );
    Problem::new(stage, message).at(place)
}
