//! Where the pod of a PE may run, from the placement of its operators (rule element-17).

use super::plan_texts::{PlanTexts, bytes_of};
use crate::budget::{Limits, Pace};
use crate::elements::Elements;
use crate::error::{Error, Problem, Problems, Stage, excerpt};
use crate::fuser::Pe;
use crate::logical::{HostPool, OperatorKind, PoolLocation, Resources};
use crate::topology::PhysicalOperator;
use get_size2::GetSize;
use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

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
/// Stage `topology`: the texts are too many. The budget ends.
pub(super) fn placements(
    elements: &Elements,
    pes: &[Pe],
    texts: &mut PlanTexts,
    pace: &mut Pace<'_>,
) -> Result<Vec<Placement>, Error> {
    let mut distinct = DistinctIds::default();
    let topology = elements.topology();
    let (mut hosts, mut pools) = (Problems::default(), Problems::default());
    // Channels of two operators have the same problem. It is reported once.
    let mut reported = BTreeSet::new();
    let placements = pes.iter().map(|&pe| {
        let operators = || elements.members(pe).iter().map(|&node| &*topology.operators[node]);
        // Channels mostly share their resources. Each is looked at once: a host may be a long text.
        let (mut looked_at, mut bytes) = (HashSet::new(), 0);
        let asked = operators().map(|operator| {
            let host = operator.resources.host.as_deref().filter(|host| !host.is_empty());
            let host = host.filter(|host| {
                let is_first = looked_at.insert(Arc::as_ptr(&operator.resources));
                bytes += if is_first { host.len() } else { 0 };
                is_first
            });
            (operator, host)
        });
        let host = agreed(asked).unwrap_or_else(|(a, b)| {
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
        // Channels mostly share their resources. Each is looked at once.
        let mut resources: Vec<&Arc<Resources>> = operators().map(|operator| &operator.resources).collect();
        resources.sort_unstable_by_key(|resources| Arc::as_ptr(resources));
        resources.dedup_by(|a, b| Arc::ptr_eq(a, b));
        pace.steps(u32::try_from(elements.members(pe).len() + bytes / 256).unwrap_or(u32::MAX))?;
        let (mut co_locations, mut ex_locations) = (BTreeSet::<&str>::new(), BTreeSet::<&str>::new());
        for resources in resources {
            if !resources.co_locations.is_empty() || !resources.ex_locations.is_empty() {
                let [co, ex] = distinct.of(resources, pace)?;
                pace.steps(u32::try_from(co.len() + ex.len()).unwrap_or(u32::MAX))?;
                co_locations.extend(co);
                ex_locations.extend(ex);
            }
        }
        let isolation = operators().find(|o| o.resources.isolation).map(|o| o.name.as_str());
        let all = host.into_iter().chain(isolation).chain(co_locations.iter().copied());
        texts.add(bytes_of(all.chain(ex_locations.iter().copied())))?;
        let owned = |ids: BTreeSet<&str>| ids.into_iter().map(str::to_owned).collect();
        Ok(Placement {
            host: host.map(str::to_owned),
            co_locations: owned(co_locations),
            ex_locations: owned(ex_locations),
            isolation: isolation.map(str::to_owned),
            pool,
        })
    });
    let placements = placements.collect::<Result<_, Error>>()?;
    hosts.extend(pools.into_vec());
    hosts.into_result().map(|()| placements)
}

/// The ids of co-location and ex-location of resources, each once. An operator may write an id any number of times, and
/// there may be a PE for each of its channels, which share their resources.
#[derive(Default)]
struct DistinctIds<'t>(HashMap<usize, [Vec<&'t str>; 2]>);

impl<'t> DistinctIds<'t> {
    fn of(&mut self, resources: &'t Arc<Resources>, pace: &mut Pace<'_>) -> Result<&[Vec<&'t str>; 2], Error> {
        let Resources { co_locations, ex_locations, .. } = &**resources;
        Ok(match self.0.entry(Arc::as_ptr(resources).addr()) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(unknown) => {
                pace.steps(u32::try_from(co_locations.len() + ex_locations.len()).unwrap_or(u32::MAX))?;
                unknown.insert([co_locations, ex_locations].map(|ids| {
                    let distinct: BTreeSet<&str> = ids.iter().map(String::as_str).collect();
                    distinct.into_iter().collect()
                }))
            }
        })
    }
}

impl Placement {
    /// What its texts count for.
    pub(super) fn text_bytes(&self) -> u64 {
        let Self { host, co_locations, ex_locations, isolation, pool: _ } = self;
        bytes_of(host.iter().chain(co_locations).chain(ex_locations).chain(isolation).map(String::as_str))
    }
}

/// Operators that want a host for their PE alone, with the id of that PE, sorted.
///
/// # Errors
///
/// Stage `host-isolation`: the PEs would have more isolation labels, or longer ones, than the limits allow
/// (rule service-13).
pub(super) fn isolated(elements: &Elements, limits: &Limits) -> Result<Vec<(String, u64)>, Error> {
    let topology = elements.topology();
    // Most applications have no such operator. Then the channels need not be searched.
    let isolates =
        |kind: &OperatorKind| matches!(kind, OperatorKind::Primitive(written) if written.resources.isolation);
    if !topology.application.operators.values().any(|written| isolates(&written.kind)) {
        return Ok(Vec::new());
    }
    let isolated = || topology.operators.iter().filter(|(_, operator)| operator.resources.isolation);
    let (mut operators, mut bytes) = (0_u64, 0_u64);
    for (_, operator) in isolated() {
        operators += 1;
        bytes = bytes.saturating_add(operator.name.len() as u64);
    }
    let pes = elements.pes().len() as u64;
    if operators.saturating_mul(pes) > limits.isolation_labels {
        let message = format!("{operators} isolated operators in {pes} PEs are too many");
        return Err(Problem::new(Stage::HostIsolation, message).into());
    }
    if bytes.saturating_mul(pes) > limits.isolation_label_bytes() {
        let message = format!("the names of {operators} isolated operators, {bytes} bytes, are too long for {pes} PEs");
        return Err(Problem::new(Stage::HostIsolation, message).into());
    }
    let mut isolated: Vec<(String, u64)> = isolated()
        .map(|(node, operator)| (operator.name.clone(), elements.id(elements.partition().pe(node))))
        .collect();
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
