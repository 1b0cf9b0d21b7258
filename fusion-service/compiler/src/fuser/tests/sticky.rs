//! The promises of sticky fusion, checked over generated applications that grow and shrink.

use super::properties::{application, constrained, free, fusion_type};
use super::sample::{Sample, SampleOperator};
use super::{fused, manual, text};
use crate::budget::Budget;
use crate::error::Error;
use crate::fuser::verify::{units, violations};
use crate::fuser::{
    Fusion, FusionType, Graph, Partition, PartitionWithIds, Pe, PeId, RunningJob, fuse, fuse_anew, fuse_sticky,
};
use crate::topology::Node;
use cranelift_entity::{EntityRef, PrimaryMap};
use proptest::collection::{btree_set, vec};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

/// PE ids by operator index.
type Places = BTreeMap<u32, PeId>;

fn submitted(graph: &Graph, fusion: &Fusion) -> Result<Places, Error> {
    let partition = fuse(graph, fusion, &Budget::default())?;
    Ok(graph.operators().iter().map(|(node, o)| (o.index, partition.pe(node).index() as PeId)).collect())
}

fn places(graph: &Graph, fused: &PartitionWithIds) -> Places {
    graph.operators().iter().map(|(node, o)| (o.index, fused.ids[fused.partition.pe(node)])).collect()
}

fn resized(
    graph: &Graph,
    fusion: &Fusion,
    before: &Places,
    restarting: &BTreeSet<PeId>,
) -> Result<PartitionWithIds, Error> {
    resized_beside(graph, fusion, before, restarting, &BTreeSet::new(), false)
}

/// A resize while these PEs are closed, sticky or anew. The names of operators say their indexes.
fn resized_beside(
    graph: &Graph,
    fusion: &Fusion,
    before: &Places,
    restarting: &BTreeSet<PeId>,
    closed: &BTreeSet<PeId>,
    anew: bool,
) -> Result<PartitionWithIds, Error> {
    let ids: BTreeSet<PeId> = before.values().copied().collect();
    let ids: PrimaryMap<Pe, PeId> = ids.into_iter().rev().collect();
    let pe = |id: &PeId| ids.iter().find(|(_, known)| *known == id).map(|(pe, _)| pe);
    let pe_of = graph.operators().values().map(|operator| before.get(&operator.index).and_then(pe).into()).collect();
    let running = RunningJob { pe_of: &pe_of, ids: &ids, restarting, closed, taken: &BTreeSet::new() };
    if !anew {
        return fuse_sticky(graph, fusion, running, &Budget::default());
    }
    let mut previous: BTreeMap<PeId, Vec<String>> = BTreeMap::new();
    before.iter().for_each(|(index, id)| previous.entry(*id).or_default().push(format!("Op{index}")));
    let previous = previous.iter().map(|(id, names)| (*id, names.iter().map(String::as_str)));
    fuse_anew(graph, fusion, running, previous, &Budget::default())
}

/// Whether the constraints allow that every operator stays: with each new unit in a PE of its own, nothing is wrong.
fn all_may_stay(graph: &Graph, fusion: &Fusion, before: &Places) -> bool {
    let lowest = units(graph);
    let mut homes: BTreeMap<Node, BTreeSet<PeId>> = BTreeMap::new();
    for (node, operator) in graph.operators() {
        let home = homes.entry(lowest[node.index()]).or_default();
        home.extend(before.get(&operator.index));
    }
    if homes.values().any(|home| home.len() > 1) {
        return false;
    }
    let ids: Vec<PeId> = before.values().copied().collect::<BTreeSet<_>>().into_iter().collect();
    let group = |node: Node| {
        let unit = lowest[node.index()];
        let home = homes.get(&unit).and_then(|home| home.first());
        home.map_or(ids.len() + unit.index(), |id| ids.iter().position(|known| known == id).unwrap())
    };
    let partition = Partition::group(lowest.len(), ids.len() + lowest.len(), group);
    violations(graph, fusion, &partition).is_empty()
}

proptest! {
    #[test]
    fn operators_stay(
        sample in application(24, constrained),
        count in 1..8_i128,
        kind in fusion_type(),
        legacy: bool,
        new in btree_set(0..24_usize, 0..12),
        restarting in btree_set(0..8_u64, 0..3),
    ) {
        let fusion = if legacy { Fusion::Legacy } else { Fusion::manual(count, kind).unwrap() };
        let kept: BTreeSet<u32> = sample.operators.iter().enumerate()
            .filter(|(position, _)| !new.contains(position)).map(|(_, operator)| operator.index).collect();
        let small = sample.without(|operator| !kept.contains(&operator.index));
        let (small, large) = (small.graph(), sample.graph());
        let Ok(before) = submitted(&small, &fusion) else { return Ok(()) };
        let Ok(grown) = resized(&large, &fusion, &before, &restarting) else { return Ok(()) };

        // The result is a partition that the constraints allow, with ids that are all different.
        prop_assert_eq!(violations(&large, &fusion, &grown.partition), Vec::<String>::new());
        let ids: BTreeSet<PeId> = grown.ids.values().copied().collect();
        prop_assert_eq!(ids.len(), grown.partition.len());
        // New PEs have new ids: an id that was there before belongs to a PE that keeps an operator.
        let after = places(&large, &grown);
        for id in ids.iter().filter(|id| before.values().any(|known| known == *id)) {
            prop_assert!(before.iter().any(|(index, home)| home == id && after[index] == *id), "PE {} is another", id);
        }
        // Everything stays, if the constraints allow that; and then shrinking back restores the job.
        if all_may_stay(&large, &fusion, &before) {
            for (index, id) in &before {
                prop_assert_eq!(after[index], *id, "operator {} moved", index);
            }
            let shrunk = resized(&small, &fusion, &after, &restarting).unwrap();
            prop_assert_eq!(places(&small, &shrunk), before);
        }
        // The same question has the same answer.
        prop_assert_eq!(resized(&large, &fusion, &places(&large, &grown), &restarting), Ok(grown));
    }

    #[test]
    fn closed_pes_take_nothing_and_keep_what_they_hold(
        sample in application(24, constrained),
        count in 1..8_i128,
        kind in fusion_type(),
        legacy: bool,
        anew: bool,
        new in btree_set(0..24_usize, 0..12),
        restarting in btree_set(0..8_u64, 0..3),
        closed in btree_set(0..8_u64, 0..5),
    ) {
        let fusion = if legacy { Fusion::Legacy } else { Fusion::manual(count, kind).unwrap() };
        let kept: BTreeSet<u32> = sample.operators.iter().enumerate()
            .filter(|(position, _)| !new.contains(position)).map(|(_, operator)| operator.index).collect();
        let small = sample.without(|operator| !kept.contains(&operator.index));
        let (small, large) = (small.graph(), sample.graph());
        let Ok(before) = submitted(&small, &fusion) else { return Ok(()) };
        let resized = |closed: &BTreeSet<PeId>| resized_beside(&large, &fusion, &before, &restarting, closed, anew);
        let Ok(grown) = resized(&closed) else { return Ok(()) };
        prop_assert_eq!(violations(&large, &fusion, &grown.partition), Vec::<String>::new());
        let ids: BTreeSet<PeId> = grown.ids.values().copied().collect();
        prop_assert_eq!(ids.len(), grown.partition.len());

        let lowest = units(&large);
        let homes = |node: Node| -> BTreeSet<PeId> {
            let unit = lowest[node.index()];
            let members = large.operators().iter().filter(|(other, _)| lowest[other.index()] == unit);
            members.filter_map(|(_, operator)| before.get(&operator.index).copied()).collect()
        };
        let after = places(&large, &grown);
        let may_stay = all_may_stay(&large, &fusion, &before);
        for (node, operator) in large.operators() {
            let (was, is) = (before.get(&operator.index), after[&operator.index]);
            if closed.contains(&is) && was != Some(&is) && before.values().any(|id| *id == is) {
                // Nothing but co-location brings an operator there, and never one that has to be with what runs.
                let homes = homes(node);
                prop_assert!(homes.contains(&is) && homes.is_subset(&closed), "{} joins PE {}", operator.index, is);
            }
            if let Some(was) = was.filter(|was| closed.contains(was) && may_stay) {
                prop_assert_eq!(is, *was, "operator {} moved", operator.index);
            }
        }
        // Who closes nothing, or PEs that the job does not have, gets what there was before.
        let unknown: BTreeSet<PeId> = [1_000, u64::MAX].into();
        let open = resized(&BTreeSet::new());
        prop_assert_eq!(&resized(&unknown), &open);
        if anew {
            prop_assert_eq!(open.unwrap().partition, fuse(&large, &fusion, &Budget::default()).unwrap());
        }
    }

    #[test]
    fn without_constraints_no_closed_pe_gains_an_operator(
        sample in application(40, free),
        count in 1..10_i128,
        width in 1..3_u32,
        anew: bool,
        restarting in btree_set(0..8_u64, 0..3),
        closed in btree_set(0..10_u64, 0..10),
    ) {
        let small = sample.without(|operator| operator.index % 3 >= width);
        let before = submitted(&small.graph(), &manual(count)).unwrap();
        let graph = sample.graph();
        let fused = resized_beside(&graph, &manual(count), &before, &restarting, &closed, anew).unwrap();
        let members = |of: &Places, id: PeId| -> Vec<u32> {
            of.iter().filter(|(_, home)| **home == id).map(|(index, _)| *index).collect()
        };
        let after = places(&graph, &fused);
        let known: BTreeSet<PeId> = before.values().copied().collect();
        for id in closed.intersection(&known) {
            prop_assert_eq!(members(&after, *id), members(&before, *id));
        }
        // One more PE is only needed if all others are closed.
        let is_new = after.len() > before.len();
        let most = (count as usize).max(known.len()) + usize::from(is_new && known.is_subset(&closed));
        prop_assert!(fused.partition.len() <= most, "{:?}", fused);
    }

    #[test]
    fn the_number_of_pes_is_respected(
        sample in application(40, free),
        count in 1..10_usize,
        widths in vec(0..3_u32, 1..5),
        restarting in btree_set(0..8_u64, 0..3),
    ) {
        // Operators of remainder 0 are always there, the others come and go.
        let fusion = manual(count as i128);
        let at = |width: u32| sample.without(|operator| operator.index % 3 > width);
        let mut before = submitted(&at(0).graph(), &fusion).unwrap();
        for width in widths {
            let now = at(width);
            let graph = now.graph();
            let fused = resized(&graph, &fusion, &before, &restarting).unwrap();
            let after = places(&graph, &fused);
            let staying: BTreeSet<PeId> =
                before.iter().filter(|(index, _)| after.contains_key(index)).map(|(_, id)| *id).collect();
            for (index, id) in &before {
                prop_assert!(after.get(index).is_none_or(|now| now == id));
            }
            prop_assert!(fused.partition.len() <= count.max(staying.len()));
            let new = after.len() - before.keys().filter(|index| after.contains_key(index)).count();
            prop_assert!(fused.partition.len() >= count.min(staying.len() + new), "{:?}", fused);
            before = after;
        }
    }

    #[test]
    fn further_pes_hold_what_no_other_takes(
        sample in application(24, constrained),
        count in 1..6_i128,
        kind in fusion_type(),
        new in btree_set(0..24_usize, 0..12),
    ) {
        // Chains of host groups may refuse more than the checker sees.
        let all = 0..sample.operators.len();
        let sample = sample.with(all, |operator| {
            operator.host = None;
            operator.host_isolated = false;
            operator.host_co_locations.clear();
            operator.host_ex_locations.clear();
            operator.pool = operator.pool.map(|(pool, _)| (pool, None));
        });
        let fusion = Fusion::manual(count, kind).unwrap();
        let small = sample.without(|operator| {
            new.iter().any(|&position| sample.operators.get(position).is_some_and(|o| o.index == operator.index))
        });
        let (small, large) = (small.graph(), sample.graph());
        let Ok(before) = submitted(&small, &fusion) else { return Ok(()) };
        let Ok(grown) = resized(&large, &fusion, &before, &BTreeSet::new()) else { return Ok(()) };
        let known: BTreeSet<PeId> = before.values().copied().collect();
        if known.len() < count as usize || !all_may_stay(&large, &fusion, &before) {
            return Ok(());
        }
        let lowest = units(&large);
        for (node, operator) in large.operators() {
            if known.contains(&grown.ids[grown.partition.pe(node)]) {
                continue;
            }
            for pe in grown.partition.pes().filter(|&pe| known.contains(&grown.ids[pe])) {
                let moved = Partition::group(lowest.len(), grown.partition.len(), |other| {
                    let together = lowest[other.index()] == lowest[node.index()];
                    if together { pe.index() } else { grown.partition.pe(other).index() }
                });
                let wrong = violations(&large, &fusion, &moved);
                prop_assert!(!wrong.is_empty(), "operator {} could be in {:?}: {:?}", operator.index, pe, grown);
            }
        }
    }
}

/// A job of a source, a region of three operators per channel and a sink.
fn region(width: u32) -> Sample {
    let channels = (0..width as usize).map(|channel| 2 + 3 * channel);
    let edges = channels.flat_map(|first| [(0, first), (first, first + 1), (first + 1, first + 2), (first + 2, 1)]);
    Sample::new(2 + 3 * width, edges.collect::<Vec<_>>())
}

fn resize(sample: &Sample, fusion: Fusion, before: &Places, restarting: &[PeId]) -> (String, Places) {
    let graph = sample.graph();
    let fused = resized(&graph, &fusion, before, &restarting.iter().copied().collect()).unwrap();
    let ids: Vec<String> = fused.ids.values().map(PeId::to_string).collect();
    (format!("{} as {}", text(&graph, &fused.partition), ids.join(",")), places(&graph, &fused))
}

#[test]
fn a_channel_goes_to_pes_that_restart_anyway() {
    let before = submitted(&region(3).graph(), &manual(3)).unwrap();
    assert_eq!(fused(&region(3), manual(3)), "{0,2,5,8} {1,4,7,10} {3,6,9}");
    // PEs 0 and 1 have the ends of the new channel's connections.
    let (grown, after) = resize(&region(4), manual(3), &before, &[0, 1]);
    assert_eq!(grown, "{0,2,5,8,11,12} {1,4,7,10,13} {3,6,9} as 0,1,2");
    let (shrunk, _) = resize(&region(3), manual(3), &after, &[0, 1]);
    assert_eq!(shrunk, "{0,2,5,8} {1,4,7,10} {3,6,9} as 0,1,2");
    // Twice an even share is enough; the rest goes elsewhere.
    let sizes = |restarting: &[PeId]| -> Vec<usize> {
        let (grown, _) = resize(&region(12), manual(3), &before, restarting);
        grown.split("} ").map(|pe| pe.split(',').count()).take(3).collect()
    };
    assert_eq!(sizes(&[0, 1]), [18, 17, 3]);
    assert_eq!(sizes(&[1]), [4, 26, 8]);
}

#[test]
fn missing_pes_are_opened_and_get_new_ids() {
    let before = Places::from([(0, 4), (1, 7), (2, 4), (3, 4), (4, 4)]);
    let (grown, _) = resize(&region(2), manual(3), &before, &[4, 7]);
    assert_eq!(grown, "{0,2,3,4} {1} {5,6,7} as 4,7,8");
    let (isolated, _) = resize(&region(2), Fusion::manual(3, FusionType::NoChannelInfluence).unwrap(), &before, &[]);
    assert_eq!(isolated, grown);
    let (legacy, _) = resize(&region(2), Fusion::Legacy, &before, &[]);
    assert_eq!(legacy, "{0,2,3,4} {1} {5} {6} {7} as 4,7,8,9,10");
}

#[test]
fn constraints_win_over_staying() {
    let apart = |operator: &mut SampleOperator| operator.ex_locations = vec!["x".into()];
    let together = |operator: &mut SampleOperator| operator.co_locations = vec!["c".into()];
    let before = Places::from([(0, 0), (1, 0), (2, 0), (3, 1), (4, 1), (5, 1)]);
    let table = [
        (Sample::chain(6), "{0,1,2} {3,4,5} as 0,1"),
        // The second one moves.
        (Sample::chain(6).with([0, 1], apart), "{0,2} {1,3,4,5} as 0,1"),
        // The PE with most of the unit keeps it.
        (Sample::chain(6).with([2, 4, 5], together), "{0,1} {2,3,4,5} as 0,1"),
        (Sample::chain(6).with([4], |operator| operator.isolated = true), "{0,1,2} {3,5} {4} as 0,1,2"),
        // In the same consistent region, and one joins another: both have to be alone (rule fusion-13).
        (
            Sample::chain(7).with([0, 1, 6], |operator| operator.region = Some("r".into())).with([0, 6], together),
            "{0,6} {1} {2,3,4,5} as 2,0,1",
        ),
    ];
    for (sample, expected) in table {
        assert_eq!(resize(&sample, manual(2), &before, &[]).0, expected);
    }
}

#[test]
fn what_is_new_goes_around_closed_pes() {
    let before = submitted(&region(3).graph(), &manual(3)).unwrap();
    assert_eq!(fused(&region(3), manual(3)), "{0,2,5,8} {1,4,7,10} {3,6,9}");
    let together = |operator: &mut SampleOperator| operator.co_locations = vec!["c".into()];
    // application, closed PEs, anew -> PEs
    let table: [(Sample, &[PeId], bool, &str); 9] = [
        (region(4), &[], false, "{0,2,5,8,11,12} {1,4,7,10,13} {3,6,9} as 0,1,2"),
        (region(4), &[0], false, "{0,2,5,8} {1,4,7,10,11,12,13} {3,6,9} as 0,1,2"),
        (region(4), &[0, 1], false, "{0,2,5,8} {1,4,7,10} {3,6,9,11,12,13} as 0,1,2"),
        // There is no other PE.
        (region(4), &[0, 1, 2], false, "{0,2,5,8} {1,4,7,10} {3,6,9} {11,12,13} as 0,1,2,3"),
        (region(4), &[0], true, "{0,2,5,8} {1,4,7,10,13} {3,6,9,11,12} as 0,3,4"),
        // What must be together is, and what is new with it does not run.
        (region(4).with([3, 13], together), &[2], false, "{0,2,5,8,11} {1,4,7,10,12} {3,6,9,13} as 0,1,2"),
        (region(4).with([3, 13], together), &[2], true, "{0,2,5,8,11} {1,4,7,10,12} {3,6,9,13} as 3,4,2"),
        // What runs goes on.
        (region(3).with([3, 6, 7], together), &[2], false, "{0,2,5,8} {1,3,4,6,7,10} {9} as 0,1,2"),
        (region(3).with([3, 6, 9], together), &[2], false, "{0,2,5,8} {1,4,7,10} {3,6,9} as 0,1,2"),
    ];
    for (sample, closed, anew, expected) in table {
        let graph = sample.graph();
        let (restarting, closed) = ([0, 1].into(), closed.iter().copied().collect());
        let fused = resized_beside(&graph, &manual(3), &before, &restarting, &closed, anew).unwrap();
        let ids: Vec<String> = fused.ids.values().map(PeId::to_string).collect();
        let found = format!("{} as {}", text(&graph, &fused.partition), ids.join(","));
        assert_eq!(found, expected, "{closed:?} closed, anew: {anew}");
    }
}
