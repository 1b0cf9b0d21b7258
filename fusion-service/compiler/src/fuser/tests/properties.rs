//! Fusion from scratch over generated applications.

use super::reference;
use super::sample::{Sample, SampleOperator, channel};
use crate::budget::Budget;
use crate::error::{Error, code};
use crate::fuser::composition::Composition;
use crate::fuser::fill::fill_remembering;
use crate::fuser::verify::violations;
use crate::fuser::{Fusion, FusionType, InputPortTraits, OutputPortTraits, Partition, fuse};
use cranelift_entity::EntityRef;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

/// An id out of few, in one operator of several.
fn rarely(prefix: &'static str) -> impl Strategy<Value = Vec<String>> {
    prop_oneof![8 => Just(Vec::new()), 1 => (0..3).prop_map(move |id| vec![format!("{prefix}{id}")])]
}

fn maybe(texts: &'static [&'static str]) -> impl Strategy<Value = Option<String>> {
    prop_oneof![5 => Just(None), 1 => select(texts).prop_map(|text| Some(text.to_owned()))]
}

pub(super) fn constrained(index: u32) -> impl Strategy<Value = SampleOperator> {
    let partition =
        (rarely("c"), rarely("x"), prop::bool::weighted(0.05), maybe(&["", "-Xmx1g"]), maybe(&["r0", "r1"]));
    let places = vec![
        (0, None),
        (0, None),
        (0, None),
        (0, None),
        (1, None),
        (2, None),
        (1, Some(0)),
        (2, Some(0)),
        (2, Some(1)),
    ];
    let hosts = (maybe(&["a", "b"]), prop::option::weighted(0.9, select(places)), rarely("h"), rarely("e"));
    let flags = (prop::bool::weighted(0.05), prop::bool::weighted(0.95), prop::bool::weighted(0.95));
    (partition, hosts, flags, 0..6_u32).prop_map(move |(partition, hosts, flags, region)| {
        let mut operator = SampleOperator::new(index);
        (operator.co_locations, operator.ex_locations, operator.isolated, operator.jvm, operator.region) = partition;
        (operator.host, operator.pool, operator.host_co_locations, operator.host_ex_locations) = hosts;
        (operator.host_isolated, operator.restartable, operator.relocatable) = flags;
        if region > 2 {
            operator.channels = vec![channel(0, region - 3)];
        }
        operator
    })
}

pub(super) fn free(index: u32) -> impl Strategy<Value = SampleOperator> {
    Just(SampleOperator::new(index))
}

/// An application of up to `most` operators made by `operator`, with random connections; indexes may have gaps.
pub(super) fn application<S: Strategy<Value = SampleOperator> + 'static>(
    most: usize,
    operator: fn(u32) -> S,
) -> impl Strategy<Value = Sample> {
    let indexes = vec(1..3_u32, 1..=most);
    let edges = vec((any::<prop::sample::Index>(), any::<prop::sample::Index>()), 0..most * 3);
    (indexes, edges).prop_flat_map(move |(steps, edges)| {
        let mut next = 0;
        let operators: Vec<S> = steps
            .into_iter()
            .map(|step| {
                next += step;
                operator(next - 1)
            })
            .collect();
        let count = operators.len();
        let edges: Vec<_> = edges.iter().map(|(s, t)| (s.index(count), t.index(count), None)).collect();
        operators.prop_map(move |mut operators| {
            for &(source, target, _) in &edges {
                operators[source].outputs = vec![OutputPortTraits::default()];
                operators[target].inputs = vec![InputPortTraits::default()];
            }
            let hosts = vec!["a".to_owned(), "b".to_owned()];
            let pools = vec![(0, false, Vec::new()), (1, true, Vec::new()), (2, false, hosts)];
            Sample { operators, edges: edges.clone(), pools }
        })
    })
}

pub(super) fn fusion_type() -> impl Strategy<Value = FusionType> {
    select(vec![FusionType::NoChannelInfluence, FusionType::ChannelIsolation, FusionType::ChannelExlocation])
}

fn positions(partition: &Partition) -> Vec<Vec<usize>> {
    partition.pes().map(|pe| partition.operators(pe).iter().map(|node| node.index()).collect()).collect()
}

fn refused(result: Result<Partition, Error>) -> Option<Partition> {
    match result {
        Ok(partition) => Some(partition),
        Err(error) => {
            assert!(error.problems().iter().all(|problem| problem.code == Some(code::CONSTRAINTS)), "{error}");
            None
        }
    }
}

proptest! {
    #[test]
    fn manual_is_what_the_rules_say(sample in application(24, constrained), count in 1..12_usize, kind in fusion_type()) {
        let graph = sample.graph();
        let fusion = Fusion::manual(count as i128, kind).unwrap();
        let got = refused(fuse(&graph, &fusion, &Budget::default()));
        let want = reference::manual(&graph, count, kind);
        prop_assert_eq!(got.as_ref().map(positions), want);
        if let Some(partition) = got {
            prop_assert_eq!(violations(&graph, &fusion, &partition), Vec::<String>::new());
        }
    }

    #[test]
    fn manual_is_what_the_rules_say_without_constraints(sample in application(40, free), count in 1..20_usize) {
        let graph = sample.graph();
        let fusion = Fusion::manual(count as i128, FusionType::NoChannelInfluence).unwrap();
        let got = fuse(&graph, &fusion, &Budget::default()).unwrap();
        prop_assert_eq!(Some(positions(&got)), reference::manual(&graph, count, FusionType::NoChannelInfluence));
        prop_assert_eq!(got.len(), count.min(sample.operators.len()));
    }

    #[test]
    fn remembering_decides_nothing(sample in application(24, constrained), count in 1..12_u32, kind in fusion_type()) {
        let (graph, budget) = (sample.graph(), Budget::default());
        let Ok(composition) = Composition::new(&graph, kind, &budget) else { return Ok(()) };
        let filled = |most| {
            let host_bindings = composition.host_bindings(&budget).unwrap();
            fill_remembering(&composition, host_bindings, count, (Vec::new(), most), &budget).unwrap().container_of
        };
        let all = filled(usize::MAX);
        for most in [0, 5] {
            prop_assert_eq!(&filled(most), &all);
        }
    }

    #[test]
    fn legacy_is_the_units(sample in application(24, constrained)) {
        let graph = sample.graph();
        let Some(legacy) = refused(fuse(&graph, &Fusion::Legacy, &Budget::default())) else { return Ok(()) };
        prop_assert_eq!(violations(&graph, &Fusion::Legacy, &legacy), Vec::<String>::new());
        // More PEs than units: each unit alone (rule fusion-4).
        let many = fuse(&graph, &Fusion::manual(1000, FusionType::NoChannelInfluence).unwrap(), &Budget::default());
        prop_assert_eq!(Ok(legacy), many);
    }
}
