//! The parts of an account about the job as a whole: regions, pools, and how fusion decided the number of PEs.

use super::account::{
    ConsistentRegionAccount, ElementGroup, FusionAccount, HostPoolAccount, RegionAccount, RegionSplitter, ResizeCounts,
    Totals, WarningAccount, WidthOrigin,
};
use super::names::Names;
use crate::budget::{Budget, Pace};
use crate::error::{Error, excerpt};
use crate::fuser::{self, AutomaticFusion, Decisions, Effect};
use crate::logical::{self, SplitterKind};
use crate::phrase::counted;
use crate::plan::{Compiled, Fate, FusionOption};
use crate::topology::{Region, Topology, WidthSource, WidthSources};
use cranelift_entity::SecondaryMap;
use std::collections::{BTreeMap, BTreeSet};

/// The pool of operators that ask for none.
pub(super) const DEFAULT_POOL: &str = "$default";

pub(super) fn totals(now: &Compiled) -> Totals {
    let (topology, partition) = (now.topology(), now.elements().partition());
    let mut written: SecondaryMap<logical::OperatorId, bool> = SecondaryMap::new();
    topology.operators.values().for_each(|operator| written[operator.logical] = true);
    let between = topology.connections.iter().filter(|c| partition.pe(c.source) != partition.pe(c.target));
    Totals {
        operators: topology.operators.len(),
        operators_as_written: written.values().filter(|&&runs| runs).count(),
        connections: topology.connections.len(),
        connections_between_pes: between.count(),
        processing_elements: partition.len(),
        aadl_bytes: now.plan().elements.iter().map(|element| element.bytes).sum(),
    }
}

pub(super) fn fusion(now: &Compiled, fusion: fuser::Fusion, decisions: &Decisions) -> FusionAccount {
    let pes = now.elements().partition().len();
    let wanted = match fusion {
        fuser::Fusion::Legacy => None,
        fuser::Fusion::Manual { count, .. } => Some(u64::from(count.get())),
    };
    let mut why = Vec::new();
    let mode = match &now.request().fusion {
        FusionOption::Legacy => {
            why.push(match (decisions.units, now.topology().operators.len()) {
                (units, operators) if units == operators => {
                    "one for each operator: nothing has to be together".to_owned()
                }
                (units, operators) => format!(
                    "one for each group of operators that have to be together: {} of {}",
                    counted(units, "group"),
                    counted(operators, "operator")
                ),
            });
            "legacy"
        }
        FusionOption::Manual(_) => {
            why.push(format!("{} asked for", wanted.unwrap_or_default()));
            "manual"
        }
        FusionOption::Automatic { .. } => {
            match now.plan().automatic {
                Some(automatic) => why.extend(automatic_sentences(&automatic)),
                None => {
                    why.push(format!("{} was found when the job was submitted, and stays", wanted.unwrap_or_default()))
                }
            }
            "automatic"
        }
    };
    if let Some(wanted) = wanted {
        let closed = now.plan().change.as_ref().map(|change| change.closed.len());
        why.extend(difference_from_wanted(wanted, pes, closed, decisions));
    }
    FusionAccount {
        mode,
        r#type: now.request().fusion_type.name(),
        wanted,
        processing_elements: pes,
        units: decisions.units,
        alone: decisions.alone,
        automatic: now.plan().automatic,
        why,
    }
}

fn automatic_sentences(automatic: &AutomaticFusion) -> Vec<String> {
    let AutomaticFusion { least_threads, most_threads, cpu, low, high, room, count } = automatic;
    let cores = format!("{}.{:03}", cpu / 1000, cpu % 1000);
    let cores = cores.trim_end_matches('0').trim_end_matches('.');
    let threads = format!(
        "the application needs {least_threads} threads and can use {most_threads}; with {cores} CPU for a PE that makes {low} to {high} PEs"
    );
    let room = match room {
        Some(room) => format!("the cluster has room for {room}: {count}"),
        None => format!("what the cluster has left is not known, so the low end: {count}"),
    };
    vec![threads, room]
}

/// Why there are more or fewer PEs than wanted; of a resize, so many of them took nothing new.
fn difference_from_wanted(wanted: u64, pes: usize, closed: Option<usize>, decisions: &Decisions) -> Option<String> {
    let found = pes as u64;
    if found > wanted {
        let more = found - wanted;
        let alone = match decisions.alone {
            0 => String::new(),
            alone => format!(" ({} of them must be alone)", counted(alone, "group")),
        };
        let constraints = format!("constraints keep operators apart{alone}");
        let mut separating = decisions.of.values().flatten().filter(|decision| decision.effect != Effect::Together);
        let separates = separating.next().is_some();
        // Without constraints there is one more only if all that are wanted took nothing new (rule fusion-29).
        let took_nothing = closed.filter(|&closed| closed > 0 && (separates || closed as u64 >= wanted));
        let took_nothing = took_nothing.map(|closed| format!("{} took nothing new", counted(closed, "PE")));
        let why = match (separates, took_nothing) {
            (true, None) => constraints,
            (true, Some(took_nothing)) => format!("{constraints}, and {took_nothing}"),
            (false, Some(took_nothing)) => took_nothing,
            (false, None) if closed.is_some() => "there were as many before".to_owned(),
            (false, None) => constraints,
        };
        return Some(format!("{more} more than that, because {why}"));
    }
    if found < wanted {
        let units = counted(decisions.units, "group");
        return Some(format!(
            "{} fewer than that: the operators form only {units} under the constraints",
            wanted - found
        ));
    }
    None
}

pub(super) fn regions(now: &Compiled, prior: Option<&Compiled>, budget: &Budget) -> Result<Vec<RegionAccount>, Error> {
    let topology = now.topology();
    let mut around: BTreeMap<u64, u64> = BTreeMap::new();
    for operator in topology.operators.values() {
        for pair in operator.channels.windows(2) {
            around.insert(pair[0].region, pair[1].region);
        }
    }
    let name = |index: u64| in_force(topology, index).map(|region| excerpt(&region.name));
    let mut sources = WidthSources::new(&now.request().widths, now.bindings());
    let mut pace = budget.pace();
    let region = |planned: &crate::plan::PlannedRegion| {
        let region = &planned.region;
        let written = topology.application.region(region.index);
        let before = prior.and_then(|prior| in_force(prior.topology(), region.index));
        Ok(RegionAccount {
            index: region.index,
            name: excerpt(&region.name),
            nested_in: around.get(&region.index).and_then(|&outer| name(outer)),
            width: region.width,
            width_before: before.map(|before| before.width),
            channels: region.global_max,
            origin: origin(now, written, region, &mut sources, &mut pace)?,
            splitters: written.map_or_else(Vec::new, |written| written.splitters.iter().map(splitter).collect()),
            channels_have_own_pes: planned.channels_have_own_pes,
            touches_consistent_region: planned.touches_consistent_region,
            channel_count: region.channel_count,
        })
    };
    now.plan().regions.iter().map(region).collect()
}

/// The region of an index.
fn in_force(topology: &Topology, index: u64) -> Option<&Region> {
    let position = topology.regions.binary_search_by_key(&index, |region| region.index).ok()?;
    topology.regions.get(position)
}

fn origin(
    now: &Compiled,
    written: Option<&logical::ParallelRegion>,
    region: &Region,
    sources: &mut WidthSources<'_>,
    pace: &mut Pace<'_>,
) -> Result<WidthOrigin, Error> {
    let application = &now.topology().application;
    let found = match written {
        Some(written) => sources.of(written, &region.name, pace)?,
        None => None,
    };
    Ok(match found {
        Some((source, width)) if width == i128::from(region.width) => {
            let (kind, name) = match source {
                WidthSource::Job(pattern) => ("job", Some(excerpt(pattern))),
                WidthSource::Constant => ("adl", None),
                WidthSource::SubmissionValue(index) => {
                    let declared = application.submission_value(index);
                    ("submissionValue", declared.map(|value| excerpt(&format!("{}.{}", value.composite, value.name))))
                }
            };
            WidthOrigin { kind, name, submitted: None }
        }
        other => {
            let submitted = other.and_then(|(_, width)| u64::try_from(width).ok());
            WidthOrigin { kind: "resize", name: None, submitted }
        }
    })
}

fn splitter(splitter: &logical::LogicalSplitter) -> RegionSplitter {
    RegionSplitter {
        input_port: splitter.input_port,
        kind: match splitter.kind {
            SplitterKind::RoundRobin => "roundRobin",
            SplitterKind::Hash => "hash",
            SplitterKind::Broadcast => "broadcast",
        },
        attributes: splitter.attributes.iter().map(|attribute| excerpt(attribute)).collect(),
    }
}

pub(super) fn host_pools(now: &Compiled) -> Vec<HostPoolAccount> {
    let mut users: BTreeMap<u64, usize> = BTreeMap::new();
    for location in now.topology().operators.values().filter_map(|operator| operator.resources.pool) {
        *users.entry(location.pool).or_default() += 1;
    }
    let declared = now.topology().host_pools.iter().filter(|pool| pool.name != DEFAULT_POOL);
    let pool = |pool: &logical::HostPool| {
        let tags: BTreeSet<String> = pool.tags.iter().map(|tag| excerpt(tag)).collect();
        HostPoolAccount {
            index: pool.index,
            name: excerpt(&pool.name),
            exclusive: pool.exclusive,
            size: pool.size,
            hosts: pool.hosts.iter().map(|host| excerpt(host)).collect(),
            tags: tags.into_iter().collect(),
            operators: users.get(&pool.index).copied().unwrap_or(0),
        }
    };
    declared.map(pool).collect()
}

pub(super) fn consistent_regions(now: &Compiled) -> Vec<ConsistentRegionAccount> {
    let region = |region: &crate::plan::PlannedConsistentRegion| {
        let starts = region.members.iter().filter(|member| member.is_start).map(|member| member.operator.as_str());
        ConsistentRegionAccount {
            index: region.index,
            trigger: region.trigger.name(),
            period: region.trigger.period(),
            operators: region.members.len(),
            starts: starts.collect::<Names>().text(),
            pes: region.pe_ids.clone(),
        }
    };
    now.plan().consistent_regions.iter().map(region).collect()
}

pub(super) fn resize(now: &Compiled, groups: &[ElementGroup]) -> Option<ResizeCounts> {
    let change = now.plan().change.as_ref()?;
    let with = |fate| groups.iter().filter(|group| group.fate == Some(fate)).map(|group| group.ids.len()).sum();
    Some(ResizeCounts {
        added: with(Fate::Added),
        kept: with(Fate::Kept),
        kept_unobservable: with(Fate::KeptUnobservable),
        restarted: with(Fate::Restarted),
        removed: change.removed.len(),
        added_operators: change.operators.added.len(),
        removed_operators: change.operators.removed.len(),
        changed_operators: change.operators.changed.len(),
    })
}

pub(super) fn warnings(now: &Compiled) -> Vec<WarningAccount> {
    now.plan().warnings.iter().map(|w| WarningAccount { reason: w.reason, message: w.message.clone() }).collect()
}
