//! Resizes: which PEs and numbers stay, which come back after growing and shrinking, and which ids no new PE gets.

use super::super::{
    Compiled, Fate, FusionOption, InUse, JobState, Layout, Policy, PortsInUse, Reason, resize, restore,
};
use super::{request, source, submitted, texts};
use crate::budget::Budget;
use crate::explain::explain;
use crate::topology::Identity;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use streams_test_support::application::Sketch;
use streams_test_support::generated;

fn resized(job: &Compiled, region: &str, width: i128) -> Compiled {
    let widths = [(region.to_owned(), width)];
    resize(job, &widths, Policy::Sticky, &JobState::default(), &Budget::default()).expect("the width is fine")
}

fn fates(job: &Compiled) -> BTreeMap<u64, Fate> {
    job.plan().elements.iter().map(|element| (element.id, element.fate)).collect()
}

/// PE and number of every operator.
fn numbers(layout: &Layout) -> BTreeMap<&Identity, (u32, u64)> {
    let element_of = layout.element_of();
    layout.numbering.operators.iter().map(|(identity, index)| (identity, (*index, element_of[identity]))).collect()
}

/// Port ids by what they stand for, per PE.
fn ports(layout: &Layout) -> BTreeMap<(u64, bool, String), u32> {
    let mut ports = BTreeMap::new();
    for element in &layout.elements {
        for port in &element.inputs {
            ports.insert((element.id, true, format!("{}.{}", port.operator, port.port)), port.id);
        }
        for port in &element.outputs {
            ports.insert((element.id, false, format!("{}.{} {:?}", port.operator, port.port, port.via)), port.id);
        }
    }
    ports
}

/// What every resize promises, whatever came before.
fn promises(before: &Compiled, after: &Compiled) -> Result<(), TestCaseError> {
    crate::topology::verify(after.topology()).map_err(TestCaseError::fail)?;
    let layouts = [before, after].map(Compiled::layout);
    let [then, now] = layouts.each_ref().map(numbers);
    for (identity, (index, pe)) in &now {
        if let Some((earlier, home)) = then.get(identity) {
            prop_assert_eq!(index, earlier, "operator {:?} has another index", identity);
            prop_assert_eq!(pe, home, "operator {:?} moved", identity);
        }
    }
    let [then, now] = layouts.each_ref().map(ports);
    for (port, id) in &now {
        prop_assert!(then.get(port).is_none_or(|earlier| earlier == id), "port {:?} has another id", port);
    }
    let (then, now) = (texts(before), texts(after));
    for element in &after.plan().elements {
        let earlier = before.plan().element(element.id);
        let same = then.get(&element.id) == now.get(&element.id);
        let expected = match earlier {
            None => Fate::Added,
            Some(_) if same => Fate::Kept,
            Some(earlier) if earlier.runtime_id == element.runtime_id => Fate::KeptUnobservable,
            Some(_) => Fate::Restarted,
        };
        prop_assert_eq!(element.fate, expected, "PE {}", element.id);
        prop_assert_eq!(element.reason.is_none(), matches!(expected, Fate::Kept | Fate::KeptUnobservable));
    }
    let removed: BTreeSet<u64> =
        after.plan().change.iter().flat_map(|change| &change.removed).map(|element| element.id).collect();
    let gone: BTreeSet<u64> = then.keys().filter(|id| !now.contains_key(*id)).copied().collect();
    prop_assert_eq!(removed, gone);
    Ok(())
}

proptest! {
    #![proptest_config(streams_test_support::property_cases(48))]

    #[test]
    fn a_chain_keeps_its_promises_and_leads_back(
        sketch in generated::rows(),
        manual in 0..5_i128,
        steps in prop::collection::vec((any::<prop::sample::Index>(), 0..4_u32), 1..5),
    ) {
        let fusion = if manual == 0 { FusionOption::Legacy } else { FusionOption::Manual(manual) };
        let start = submitted(&sketch, fusion.clone());
        let regions: Vec<(String, u32)> =
            start.plan().regions.iter().map(|planned| (planned.region.name.clone(), planned.region.width)).collect();
        prop_assume!(!regions.is_empty());
        let mut current = None;
        for (region, more) in steps {
            let (name, width) = &regions[region.index(regions.len())];
            // Never narrower than at the start: what goes away is what came later.
            let before = current.as_ref().unwrap_or(&start);
            let after = resized(before, name, i128::from(width + more));
            promises(before, &after)?;
            let again = restore(&source(&sketch), &request(fusion.clone()), &after.layout().to_bytes(), &Budget::default()).unwrap();
            prop_assert_eq!(texts(&again), texts(&after), "another replica writes something else");
            current = Some(after);
        }
        let back: Vec<(String, i128)> = regions.iter().map(|(name, width)| (name.clone(), i128::from(*width))).collect();
        let last = current.as_ref().unwrap_or(&start);
        let end = resize(last, &back, Policy::Sticky, &JobState::default(), &Budget::default()).unwrap();
        promises(last, &end)?;
        prop_assert_eq!(texts(&end), texts(&start));
    }

    #[test]
    fn narrow_and_wide_in_any_order(
        sketch in generated::rows(),
        manual in 0..5_i128,
        steps in prop::collection::vec((any::<prop::sample::Index>(), 1..5_i128), 1..5),
    ) {
        let fusion = if manual == 0 { FusionOption::Legacy } else { FusionOption::Manual(manual) };
        let mut current = submitted(&sketch, fusion);
        for (region, width) in steps {
            let regions = &current.plan().regions;
            prop_assume!(!regions.is_empty());
            let name = regions[region.index(regions.len())].region.name.clone();
            let after = resized(&current, &name, width);
            promises(&current, &after)?;
            current = after;
        }
    }

    #[test]
    fn no_closed_pe_gains_an_operator(
        sketch in generated::rows(),
        manual in 0..5_i128,
        steps in prop::collection::vec(
            (any::<prop::sample::Index>(), 1..5_i128, prop::collection::btree_set(0..8_u64, 0..4), any::<bool>()),
            1..5,
        ),
    ) {
        let fusion = if manual == 0 { FusionOption::Legacy } else { FusionOption::Manual(manual) };
        let mut current = submitted(&sketch, fusion);
        for (region, width, closed, anew) in steps {
            let regions = &current.plan().regions;
            prop_assume!(!regions.is_empty());
            let widths = [(regions[region.index(regions.len())].region.name.clone(), width)];
            let policy = if anew { Policy::Rebalance } else { Policy::Sticky };
            let state = JobState { closed, ..JobState::default() };
            let after = resize(&current, &widths, policy, &state, &Budget::default()).unwrap();
            if !anew {
                promises(&current, &after)?;
            }
            let ids = |job: &Compiled, of: u64| -> Option<BTreeSet<u32>> {
                Some(job.plan().element(of)?.operator_indexes.iter().copied().collect())
            };
            let remain: BTreeSet<u32> = after.topology().operators.values().map(|operator| operator.index).collect();
            for id in &state.closed {
                let Some(before) = ids(&current, *id) else { continue };
                let stay: BTreeSet<u32> = before.intersection(&remain).copied().collect();
                prop_assert_eq!(ids(&after, *id).unwrap_or_default(), stay, "PE {}", id);
            }
            // Nothing that is closed is in the layout: any replica writes the same texts.
            let again = restore(&source(&sketch), &after.request, &after.layout().to_bytes(), &Budget::default()).unwrap();
            prop_assert_eq!(texts(&again), texts(&after), "another replica writes something else");
            current = after;
        }
    }

    #[test]
    fn the_same_on_every_thread(sketch in generated::rows(), manual in 0..4_i128) {
        let fusion = if manual == 0 { FusionOption::Legacy } else { FusionOption::Manual(manual) };
        let plans: Vec<_> = std::thread::scope(|scope| {
            let compile = || scope.spawn(|| {
                let job = submitted(&sketch, fusion.clone());
                let region = job.plan().regions.first().map(|planned| planned.region.name.clone());
                let job = region.map(|region| resized(&job, &region, 3)).unwrap_or(job);
                (job.plan().clone(), texts(&job))
            });
            let threads = [compile(), compile(), compile()];
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        prop_assert_eq!(&plans[0], &plans[1]);
        prop_assert_eq!(&plans[0], &plans[2]);
    }
}

fn pipeline() -> Sketch {
    Sketch::row(&["S", "P", "Q", "T"]).parallel("P", 2).parallel("Q", 2)
}

#[test]
fn only_neighbours_restart() {
    // 0 S, 1 P[0], 2 Q[0], 3 T, 4 P[1], 5 Q[1].
    let before = submitted(&pipeline(), FusionOption::Legacy);
    let after = resized(&before, "P", 3);
    let expected = [
        (0, Fate::Restarted),
        (1, Fate::Restarted),
        (2, Fate::Restarted),
        (3, Fate::Kept),
        (4, Fate::Restarted),
        (5, Fate::Restarted),
        (6, Fate::Added),
    ];
    assert_eq!(fates(&after), expected.into());
    let reasons: BTreeMap<u64, String> =
        after.plan().elements.iter().map(|e| (e.id, Reason::describe(e.reason.as_deref()))).collect();
    assert_eq!(reasons[&0], "is connected to P[2]");
    assert_eq!(reasons[&1], "P[0]: 3 channels instead of 2 in the parallel region P");
    assert_eq!(reasons[&6], "holds P[2]");
    let change = after.plan().change.clone().unwrap();
    assert_eq!(change.operators.added, ["P[2]"]);
    assert_eq!(change.operators.changed, ["P[0]", "P[1]", "Q[0]", "Q[1]", "S"]);

    let back = resized(&after, "P", 2);
    assert_eq!(back.plan().change.as_ref().map(|change| change.removed.len()), Some(1));
    let removed = &back.plan().change.as_ref().unwrap().removed[0];
    assert_eq!(Reason::describe(removed.reason.as_ref()), "P[2] no longer exists");
}

#[test]
fn a_pe_is_removed_for_one_operator_or_several() {
    let sketch = Sketch::row(&["S", "P", "Q", "T"]).parallel("P", 6).parallel("Q", 6);
    // PEs, width of both regions, policy -> reasons
    let table: [(i128, i128, Policy, &[&str]); 2] = [
        (2, 2, Policy::Rebalance, &["S, Q[0], T and 2 more are in other PEs", "P[0] is in another PE"]),
        (4, 1, Policy::Sticky, &["P[5], Q[4], Q[5] no longer exist"]),
    ];
    for (pes, width, policy, reasons) in table {
        let before = submitted(&sketch, FusionOption::Manual(pes));
        let widths = ["P", "Q"].map(|region| (region.to_owned(), width));
        let after = resize(&before, &widths, policy, &JobState::default(), &Budget::default()).unwrap();
        let removed = after.plan().change.iter().flat_map(|change| &change.removed);
        assert_eq!(
            removed.map(|element| Reason::describe(element.reason.as_ref())).collect::<Vec<_>>(),
            reasons,
            "{pes} {width}"
        );
    }
}

#[test]
fn the_same_width_changes_nothing() {
    for fusion in [FusionOption::Legacy, FusionOption::Manual(2)] {
        let before = submitted(&pipeline(), fusion);
        let after = resized(&before, "P", 2);
        assert!(fates(&after).values().all(|fate| *fate == Fate::Kept));
        assert_eq!(after.layout().to_bytes(), before.layout().to_bytes());
        assert_eq!(after.plan().change.as_ref().map(|change| change.operators.changed.len()), Some(0));
    }
}

#[test]
fn several_regions_at_once() {
    let before = submitted(&pipeline(), FusionOption::Legacy);
    let widths = [("P".to_owned(), 3), ("Q".to_owned(), 1)];
    let after = resize(&before, &widths, Policy::Sticky, &JobState::default(), &Budget::default()).unwrap();
    let change = after.plan().change.clone().unwrap();
    assert_eq!(change.operators.added, ["P[2]"]);
    assert_eq!(change.operators.removed, ["Q[1]"]);
    // The id of a PE that goes away in the same step is not given to a new one.
    assert_eq!(fates(&after)[&6], Fate::Added);
    assert_eq!(change.removed.iter().map(|element| element.id).collect::<Vec<_>>(), [5]);
}

#[test]
fn a_copied_host_pool_is_not_worth_a_restart() {
    let width = "<constantWidth>2</constantWidth>";
    let sketch = Sketch::row(&["S", "P", "T"])
        .pool(1, "Gpus", &["gpu"])
        .parallel_by("P", width, "RoundRobin", "<replicateHostTag name='gpu'/>")
        .of("P")
        .resources("<poolLocation poolIndex='1'/>")
        .op("Other", 1, 0)
        .connect("S:0", "Other:0");
    let before = submitted(&sketch, FusionOption::Legacy);
    let after = resized(&before, "P", 3);
    assert!(after.plan().host_pools.iter().any(|pool| pool.name == "Gpus_0_2"));
    let other = after.plan().elements.iter().find(|element| element.operators == ["Other"]).unwrap();
    assert_eq!(other.fate, Fate::KeptUnobservable);
    let earlier = before.plan().element(other.id).unwrap();
    assert_eq!(other.runtime_id, earlier.runtime_id);
    assert_ne!(other.content_id, earlier.content_id);
}

#[test]
fn channels_that_lead_nowhere_are_not_worth_a_restart() {
    // `S` feeds region `C`, and through it region `C.D`. Operators inside read what `S` sends, or do not.
    let inside = |reads: &[&str]| {
        let inputs = |name: &str| usize::from(reads.contains(&name));
        let sketch = Sketch::new()
            .op("S", 0, 1)
            .composite("C", 1, 0)
            .op("C.A", inputs("C.A"), 0)
            .composite("C.D", 1, 0)
            .op("C.D.A", inputs("C.D.A"), 0)
            .connect("S:0", "C:0")
            .connect("C:0", "C.D:0");
        let parents = reads.iter().map(|name| (name.rsplit_once('.').unwrap().0, *name));
        parents
            .fold(sketch, |sketch, (parent, name)| sketch.connect(&format!("{parent}:0"), &format!("{name}:0")))
            .parallel("C", 2)
            .parallel("C.D", 2)
    };
    // Operators that read, region that is resized -> what becomes of the PE of `S`.
    let table: [(&[&str], &str, Fate); 6] = [
        (&[], "C", Fate::KeptUnobservable),
        (&[], "C.D", Fate::KeptUnobservable),
        (&["C.A"], "C", Fate::Restarted),
        (&["C.A"], "C.D", Fate::KeptUnobservable),
        (&["C.D.A"], "C", Fate::Restarted),
        (&["C.D.A"], "C.D", Fate::Restarted),
    ];
    for (reads, region, expected) in table {
        let before = submitted(&inside(reads), FusionOption::Legacy);
        for width in [4, 1] {
            let after = resized(&before, region, width);
            let source = after.plan().elements.iter().find(|element| element.operators == ["S"]).unwrap();
            assert_eq!(source.fate, expected, "{reads:?} read, {region}={width}");
            let account = explain(&after, Some(&before), &Budget::default()).unwrap();
            let group = account.processing_elements.iter().find(|group| group.ids.contains(&source.id)).unwrap();
            let observable = group.changes.iter().any(|change| change.observable);
            assert_eq!((observable, group.changes.is_empty()), (expected == Fate::Restarted, false), "{group:?}");
            let back = resized(&after, region, 2);
            let of_source = |job: &Compiled| job.plan().element(source.id).map(|element| element.content_id);
            assert_eq!(fates(&back)[&source.id], expected, "{reads:?} read, {region}={width} and back");
            // A wider region that shrinks back has the same numbers.
            let same = width > 2 || expected == Fate::KeptUnobservable;
            assert!(!same || of_source(&back) == of_source(&before), "{reads:?} read, {region}={width} and back");
        }
    }
}

#[test]
fn ids_in_use_are_not_given_away() {
    let before = submitted(&pipeline(), FusionOption::Legacy);
    let ports = PortsInUse { inputs: [0].into(), outputs: [0, 1, 2].into() };
    let in_use = InUse { elements: [6, 9].into(), ports: [(10, ports.clone()), (0, ports)].into() };
    let state = JobState { in_use, ..JobState::default() };
    for policy in [Policy::Sticky, Policy::Rebalance] {
        let after = resize(&before, &[("P".to_owned(), 3)], policy, &state, &Budget::default()).unwrap();
        let new: Vec<u64> =
            after.plan().elements.iter().filter(|e| e.fate == Fate::Added).map(|element| element.id).collect();
        assert_eq!(new, [10]);
        let layout = after.layout();
        let new = layout.element(10).unwrap();
        assert!(new.inputs.iter().all(|port| port.id != 0));
        assert!(new.outputs.iter().all(|port| port.id > 2));
        // A port that exists keeps its id, in use or not; a new one of the same PE does not get one that is.
        let ids: Vec<u32> = layout.element(0).unwrap().outputs.iter().map(|port| port.id).collect();
        assert_eq!(ids, [0, 1, 3]);
    }
}

#[test]
fn what_co_location_puts_into_a_closed_pe_is_warned_of() {
    let glue = "<partitions><coLocation colocId='all'/></partitions>";
    let sketch = Sketch::row(&["S", "P", "T"]).parallel("P", 2).of("P").with(glue);
    for (policy, width) in [(Policy::Sticky, 3), (Policy::Rebalance, 3), (Policy::Sticky, 1)] {
        for fusion in [FusionOption::Legacy, FusionOption::Manual(3)] {
            let before = submitted(&sketch, fusion);
            let of_channels = before.plan().elements.iter().find(|element| element.operators.len() == 2).unwrap().id;
            let other = before.plan().elements.iter().find(|element| element.id != of_channels).unwrap().id;
            let with = |closed: &[u64]| {
                let state = JobState { closed: closed.iter().copied().collect(), ..JobState::default() };
                resize(&before, &[("P".to_owned(), width)], policy, &state, &Budget::default()).unwrap()
            };
            let warned = |job: &Compiled| -> Vec<String> {
                job.plan().warnings.iter().map(|warning| warning.message.clone()).collect()
            };
            let after = with(&[of_channels, 77]);
            let operators = &after.plan().element(of_channels).unwrap().operators;
            assert_eq!(i128::try_from(operators.len()), Ok(width), "{operators:?}");
            assert_eq!(after.plan().change.as_ref().unwrap().closed, [of_channels]);
            let expected = format!(
                "co-location puts P[2] into PE {of_channels}, which does not run any more: nothing of that runs before \
                 it is started again"
            );
            assert_eq!(warned(&after), if width == 3 { vec![expected] } else { vec![] });
            assert_eq!(warned(&with(&[other])), Vec::<String>::new());
        }
    }
}

#[test]
fn rebalancing_keeps_ids_by_content() {
    let before = submitted(&pipeline(), FusionOption::Manual(3));
    let widths = [("P".to_owned(), 4)];
    let after = resize(&before, &widths, Policy::Rebalance, &JobState::default(), &Budget::default()).unwrap();
    let names = |job: &Compiled| -> BTreeMap<u64, Vec<String>> {
        job.plan().elements.iter().map(|element| (element.id, element.operators.clone())).collect()
    };
    let (then, now) = (names(&before), names(&after));
    for (id, operators) in &now {
        assert!(then.get(id).is_none_or(|earlier| earlier == operators), "PE {id}");
    }
    let fresh =
        submitted(&Sketch::row(&["S", "P", "Q", "T"]).parallel("P", 4).parallel("Q", 2), FusionOption::Manual(3));
    assert_eq!(now.len(), fresh.plan().elements.len());
}

#[test]
fn a_new_compiler_restarts_nothing() {
    let sketch = pipeline();
    let job = submitted(&sketch, FusionOption::Legacy);
    let mut layout = job.layout();
    "0.0.0-older".clone_into(&mut layout.compiler);
    for element in &mut layout.elements {
        // An older compiler wrote something else.
        element.content_id[0] ^= 1;
        element.runtime_id[0] ^= 1;
    }
    let request = request(FusionOption::Legacy);
    let old = restore(&source(&sketch), &request, &layout.to_bytes(), &Budget::default()).unwrap();
    assert_eq!(old.plan().compiler, "0.0.0-older");
    assert!(old.render(0, &mut Vec::new(), &Budget::default()).is_err(), "its texts are not ours");
    let after = resized(&old, "P", 3);
    assert_eq!(after.plan().compiler, super::super::COMPILER);
    // Neighbours restart as ever; the others keep what they have.
    assert_eq!(fates(&after)[&3], Fate::KeptUnobservable);
    assert_eq!(fates(&after)[&0], Fate::Restarted);
    assert_eq!(after.layout().element(3).map(|e| e.runtime_id), job.layout().element(3).map(|e| e.runtime_id));
}
