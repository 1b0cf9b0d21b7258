//! Describes constraints in the words of the ADL: which element and attribute decided a PE.

use super::account::{CauseAccount, CauseEffect};
use super::names::NAMED;
use crate::error::excerpt;
use crate::fuser::{self, Decision, Decisions, Fusion, Graph, HostGroup, Origin, Pe};
use crate::plan::Compiled;
use crate::topology::{Node, Topology};
use std::collections::{BTreeMap, BTreeSet};

/// Names constraints in the words of the ADL.
pub(super) struct CauseNames<'a> {
    pub(super) topology: &'a Topology,
    pub(super) graph: &'a Graph<'a>,
    pub(super) fusion: Fusion,
}

/// Effect, attribute, meaning. Causes that have all three in common are counted together.
pub(super) type CauseKind = (CauseEffect, &'static str, &'static str);

/// The causes of one PE or of several, counted by kind.
#[derive(Clone, Debug, Default)]
pub(super) struct CauseCounts(BTreeMap<CauseKind, Count>);

#[derive(Clone, Debug, Default)]
struct Count {
    values: BTreeSet<String>,
    operators: usize,
    pes: usize,
}

impl CauseCounts {
    pub(super) fn add(&mut self, other: Self) {
        for (kind, Count { values, operators, pes }) in other.0 {
            let count = self.0.entry(kind).or_default();
            count.values.extend(values);
            count.operators += operators;
            count.pes += pes;
        }
    }

    pub(super) fn kinds(&self) -> Vec<CauseKind> {
        self.0.keys().copied().collect()
    }

    pub(super) fn finish(self) -> Vec<CauseAccount> {
        let cause = |((effect, attribute, meaning), count): (CauseKind, Count)| CauseAccount {
            effect,
            attribute,
            meaning,
            value_count: count.values.len(),
            values: count.values.into_iter().take(NAMED).collect(),
            operators: count.operators,
            pes: count.pes,
        };
        self.0.into_iter().map(cause).collect()
    }
}

impl CauseNames<'_> {
    /// What decided the PEs, over all of them.
    pub(super) fn all(&self, now: &Compiled, decisions: &Decisions) -> Vec<CauseAccount> {
        let mut all = CauseCounts::default();
        for &pe in now.elements().pes() {
            all.add(self.of(pe, now.elements().members(pe), decisions));
        }
        all.finish()
    }

    /// What decided one PE.
    pub(super) fn of(&self, pe: Pe, members: &[Node], decisions: &Decisions) -> CauseCounts {
        let mut counts: BTreeMap<CauseKind, Count> = BTreeMap::new();
        for decision in decisions.of.get(pe).map_or(&[][..], Vec::as_slice) {
            let count = counts.entry(self.kind(decision, members)).or_default();
            count.values.extend(self.values(decision.cause, members));
            count.operators += decision.members as usize;
            count.pes = 1;
        }
        CauseCounts(counts)
    }

    fn kind(&self, decision: &Decision, members: &[Node]) -> CauseKind {
        let effect = match decision.effect {
            fuser::Effect::Together => CauseEffect::Together,
            fuser::Effect::Alone => CauseEffect::Alone,
            fuser::Effect::Apart => CauseEffect::Apart,
        };
        let (attribute, meaning) = match decision.cause {
            fuser::Cause::Constraint(origin) => match origin {
                Origin::CoLocation(_) => ("partition/coLocation", "partition co-location"),
                Origin::ExLocation(_) => ("partition/exLocation", "partition ex-location"),
                Origin::Isolation => ("partition/@isolation", "partition isolation"),
                Origin::HostIsolation(_) => {
                    ("resources/@isolation", "host isolation of an operator that shares its host")
                }
                Origin::NotRestartable => ("@restartable", "not restartable"),
                Origin::NotRelocatable => ("@relocatable", "not relocatable"),
                Origin::Provisional(_) => ("jvmArguments", "JVM arguments"),
                Origin::SoftSegregation(_) => ("consistentRegionEntry", "consistent region"),
                Origin::Channels(_) => (self.fusion.kind().name(), "channels of a parallel region"),
            },
            fuser::Cause::HostExLocation(_) => ("resources/exLocation", "host ex-location"),
            fuser::Cause::HostIsolation => ("resources/@isolation", "host isolation"),
            fuser::Cause::Placement => {
                let operators = &self.topology.operators;
                match members.iter().any(|&node| operators[node].resources.host.is_some()) {
                    true => ("resources/hostLocation", "host"),
                    false => ("resources/poolLocation", "host pool"),
                }
            }
        };
        (effect, attribute, meaning)
    }

    /// Values of a cause in a PE; none if the cause has no values.
    fn values(&self, cause: fuser::Cause, members: &[Node]) -> BTreeSet<String> {
        let one = |text: &str| BTreeSet::from([excerpt(text)]);
        let operators = || members.iter().map(|&node| &self.topology.operators[node]);
        match cause {
            fuser::Cause::Constraint(origin) => match origin {
                Origin::CoLocation(id) | Origin::ExLocation(id) => one(self.graph.text(id)),
                Origin::HostIsolation(group) => one(&self.host_group(group)),
                Origin::Isolation | Origin::NotRestartable | Origin::NotRelocatable => BTreeSet::new(),
                Origin::Provisional(key) => {
                    let labels = members.iter().flat_map(|&node| &self.graph.traits(node).provisional);
                    let values = labels.filter(|label| label.key == key).map(|label| label.value);
                    // Already printable, and sets of long texts.
                    values.map(|value| self.graph.text(value).chars().take(80).collect()).collect()
                }
                Origin::SoftSegregation(_) => {
                    operators().filter_map(|operator| Some(operator.consistent_region?.to_string())).collect()
                }
                Origin::Channels(index) => self.region(index).into_iter().collect(),
            },
            fuser::Cause::HostExLocation(id) => one(self.graph.text(id)),
            fuser::Cause::HostIsolation => BTreeSet::new(),
            fuser::Cause::Placement => {
                let requested = self.placement(members);
                if requested.is_empty() { one("none in particular") } else { requested }
            }
        }
    }

    fn host_group(&self, group: HostGroup) -> String {
        match group {
            HostGroup::Named(id) | HostGroup::Host(id) => self.graph.text(id).to_owned(),
            HostGroup::InPool(pool, place) => format!("{}[{place}]", self.pool(pool)),
        }
    }

    /// Hosts and pools that operators ask for, apart from the default pool.
    pub(super) fn placement(&self, members: &[Node]) -> BTreeSet<String> {
        let operators = members.iter().map(|&node| &self.topology.operators[node]);
        let of = |operator: &crate::topology::PhysicalOperator| {
            let resources = &operator.resources;
            match (resources.host.as_deref().filter(|host| !host.is_empty()), resources.pool) {
                (Some(host), _) => Some(format!("host {}", excerpt(host))),
                (None, Some(location)) => match (self.pool(location.pool), location.in_pool) {
                    (pool, Some(place)) => Some(format!("pool {pool}[{place}]")),
                    (pool, None) if pool == super::job::DEFAULT_POOL => None,
                    (pool, None) => Some(format!("pool {pool}")),
                },
                (None, None) => None,
            }
        };
        let mut last = None;
        let mut all = BTreeSet::new();
        for operator in operators {
            // Channels mostly share a value.
            let address = std::sync::Arc::as_ptr(&operator.resources);
            if last.replace(address) != Some(address) {
                all.extend(of(operator));
            }
        }
        all
    }

    fn pool(&self, index: u64) -> String {
        let pools = &self.topology.host_pools;
        let found = pools.binary_search_by_key(&index, |pool| pool.index).ok().and_then(|position| pools.get(position));
        found.map_or_else(|| index.to_string(), |pool| excerpt(&pool.name))
    }

    fn region(&self, index: u64) -> Option<String> {
        let regions = &self.topology.regions;
        let position = regions.binary_search_by_key(&index, |region| region.index).ok()?;
        regions.get(position).map(|region| excerpt(&region.name))
    }
}
