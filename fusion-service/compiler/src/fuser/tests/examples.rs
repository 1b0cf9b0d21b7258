//! Worked examples. All results except those of fusion types were produced by the reference implementation.

use super::sample::{Sample, SampleOperator, channel};
use super::{fused, manual};
use crate::fuser::{Fusion, FusionType};

fn check(sample: &Sample, expected: &[(Fusion, &str)]) {
    for (fusion, partition) in expected {
        assert_eq!(fused(sample, *fusion), *partition, "{fusion:?}");
    }
}

/// A source (0), three regions of one operator each, a sink (1); all to all between neighbours.
fn parallel(regions: [&[usize]; 3]) -> Sample {
    let layers = [&[0], regions[0], regions[1], regions[2], &[1]];
    let edges = layers.windows(2).flat_map(|pair| pair[0].iter().flat_map(|&s| pair[1].iter().map(move |&t| (s, t))));
    let count = layers.iter().map(|layer| layer.len()).sum::<usize>();
    Sample::new(count as u32, edges.collect::<Vec<_>>())
}

#[test]
fn the_sample_application() {
    let alone = "{0} {1} {2} {3} {4}";
    check(
        &parallel([&[2], &[3], &[4]]),
        &[
            (Fusion::Legacy, alone),
            (manual(1), "{0,1,2,3,4}"),
            (manual(2), "{0,2,3} {1,4}"),
            (manual(3), "{0,2} {1} {3,4}"),
            (manual(4), "{0} {1} {2} {3,4}"),
            (manual(5), alone),
            (manual(6), alone),
            (manual(i128::MAX), alone),
        ],
    );
    check(&parallel([&[2, 5, 6], &[3], &[4]]), &[(manual(3), "{0,2,5} {1,4} {3,6}")]);
    check(
        &parallel([&[2, 5], &[3, 6], &[4, 7]]),
        &[(manual(5), "{0,2} {1,7} {3} {4,6} {5}"), (manual(3), "{0,2,5} {1,4} {3,6,7}")],
    );
}

#[test]
fn plain_graphs() {
    check(
        &Sample::chain(6),
        &[
            (manual(1), "{0,1,2,3,4,5}"),
            (manual(2), "{0,1,2} {3,4,5}"),
            (manual(3), "{0,1} {2,3} {4,5}"),
            (manual(4), "{0,1} {2} {3,4} {5}"),
        ],
    );
    let fan = Sample::new(6, (1..5).flat_map(|middle| [(0, middle), (middle, 5)]));
    check(&fan, &[(manual(2), "{0,2,3} {1,4,5}"), (manual(3), "{0,2} {1,3} {4,5}")]);
    check(&Sample::chain(12), &[(manual(3), "{0,1,2,3} {4,5,6,7} {8,9,10,11}")]);
    check(
        &Sample::chain(13),
        &[(manual(2), "{0,1,2,3,4,5,6} {7,8,9,10,11,12}"), (manual(4), "{0,1,2,3} {4,5,9} {6,7,8} {10,11,12}")],
    );
}

/// The example of rule fusion-17: 0 -> (2 3 4 | 5 6 7 | 8 9 10) -> 1.
fn three_channels() -> Sample {
    let mut edges = Vec::new();
    for first in [2, 5, 8] {
        edges.extend([(0, first), (first, first + 1), (first + 1, first + 2), (first + 2, 1)]);
    }
    let mut sample = Sample::new(11, edges);
    for operator in &mut sample.operators[2..] {
        operator.channels = vec![channel(0, (operator.index - 2) / 3)];
    }
    sample
}

#[test]
fn channels_and_fusion_types() {
    let table = [
        (1, ["{0,1,2,3,4,5,6,7,8,9,10}", "{0,1} {2,3,4} {5,6,7} {8,9,10}", "{0,1,2,3,4} {5,6,7} {8,9,10}"]),
        (2, ["{0,2,3,5,6,8} {1,4,7,9,10}", "{0} {1} {2,3,4} {5,6,7} {8,9,10}", "{0,1,2,3,4} {5,6,7} {8,9,10}"]),
        (3, ["{0,2,5,8} {1,4,7,10} {3,6,9}", "{0} {1} {2,3,4} {5,6,7} {8,9,10}", "{0,2,3,4} {1,5,6,7} {8,9,10}"]),
        (4, ["{0,2,5} {1,4,7} {3,6} {8,9,10}", "{0} {1} {2,3,4} {5,6,7} {8,9,10}", "{0,2,3} {1,4} {5,6,7} {8,9,10}"]),
        (
            5,
            [
                "{0,2,5} {1,4} {3,10} {6,7} {8,9}",
                "{0} {1} {2,3,4} {5,6,7} {8,9,10}",
                "{0,2,3} {1,4} {5,6} {7} {8,9,10}",
            ],
        ),
        (7, ["", "{0} {1} {2} {3,4} {5,6} {7} {8,9,10}", "{0,2} {1,4} {3} {5} {6,7} {8} {9,10}"]),
    ];
    let kinds = [FusionType::NoChannelInfluence, FusionType::ChannelIsolation, FusionType::ChannelExlocation];
    for (count, partitions) in table {
        for (kind, partition) in kinds.into_iter().zip(partitions) {
            let got = fused(&three_channels(), Fusion::manual(count, kind).unwrap());
            assert!(partition.is_empty() || got == partition, "{count} {kind:?}: {got} instead of {partition}");
        }
    }
    check(&three_channels(), &[(manual(6), "{0,2} {1,4} {3,10} {5} {6,7} {8,9}")]);
}

#[test]
fn a_group_across_channels_gets_its_own_pe() {
    // Explicit co-locations are honoured, whatever the fusion type says about channels.
    let across = three_channels().with([3, 6], |o| o.co_locations = vec!["across".into()]);
    let outside = three_channels().with([0, 2], |o| o.co_locations = vec!["outside".into()]);
    let table = [
        (&across, FusionType::ChannelIsolation, "{0,1} {2,4} {3,6} {5,7} {8,9,10}"),
        (&across, FusionType::ChannelExlocation, "{0,1,2,4} {3,6} {5,7} {8,9,10}"),
        (&outside, FusionType::ChannelIsolation, "{0,2} {1} {3,4} {5,6,7} {8,9,10}"),
        (&outside, FusionType::ChannelExlocation, "{0,1,2,3,4} {5,6,7} {8,9,10}"),
    ];
    for (sample, kind, partition) in table {
        assert_eq!(fused(sample, Fusion::manual(1, kind).unwrap()), partition, "{kind:?}");
    }
}

#[test]
fn partition_constraints() {
    let ex = Sample::chain(6).with([1, 3, 5], |o| o.ex_locations = vec!["x".into()]);
    check(
        &ex,
        &[(manual(1), "{0,1,2,4} {3} {5}"), (manual(2), "{0,1,2} {3} {4,5}"), (manual(4), "{0,1} {2} {3,4} {5}")],
    );
    let co = Sample::chain(6).with([1, 4], |o| o.co_locations = vec!["c".into()]);
    check(
        &co,
        &[(manual(2), "{0,1,4} {2,3,5}"), (manual(3), "{0,1,4} {2,3} {5}"), (Fusion::Legacy, "{0} {1,4} {2} {3} {5}")],
    );
    let isolated = Sample::chain(6).with([2], |o| o.isolated = true);
    check(
        &isolated,
        &[(manual(1), "{0,1,3,4,5} {2}"), (manual(2), "{0,1,3,4,5} {2}"), (manual(3), "{0,1} {2} {3,4,5}")],
    );
    let contradiction = |change: fn(&mut SampleOperator)| {
        Sample::chain(4)
            .with([1, 2], |o| {
                o.co_locations = vec!["c".into()];
                o.ex_locations = vec!["x".into()];
            })
            .with([1], change)
    };
    check(&contradiction(|_| {}), &[(manual(1), "{0,3} {1,2}")]);
    check(&contradiction(|o| o.restartable = false), &[(manual(1), "{0,3} {1,2}")]);
    check(&contradiction(|o| o.isolated = true), &[(manual(1), "{0,3} {1,2}")]);
}

#[test]
fn consistent_regions() {
    let middle = Sample::chain(5).with([1, 2, 3], |o| o.region = Some("region0".into()));
    check(&middle, &[(manual(1), "{0,4} {1,2,3}"), (manual(2), "{0} {1,2,3} {4}"), (manual(4), "{0} {1,2} {3} {4}")]);
    let special = Sample::chain(4)
        .with(0..4, |o| o.region = Some("region0".into()))
        .with([1, 2], |o| o.co_locations = vec!["c".into()]);
    check(&special, &[(manual(1), "{0,3} {1,2}"), (manual(2), "{0,3} {1,2}")]);
    let sample = Sample::chain(3).with(0..3, |o| {
        o.region = Some("region0".into());
        o.co_locations = vec![o.name.clone()];
    });
    check(&sample, &[(manual(1), "{0,1,2}"), (manual(2), "{0} {1,2}")]);
}

#[test]
fn host_constraints() {
    let isolated =
        Sample::chain(4).with([0, 2], |o| o.host_co_locations = vec!["h".into()]).with([0], |o| o.host_isolated = true);
    check(&isolated, &[(Fusion::Legacy, "{0,2} {1} {3}"), (manual(3), "{0,2} {1} {3}")]);
    let poolless = Sample::chain(4).with([1], |o| o.pool = None);
    check(&poolless, &[(manual(1), "{0,2,3} {1}")]);
    let ex = Sample::chain(4)
        .with([0, 2], |o| o.host_co_locations = vec!["h".into()])
        .with([1, 2, 3], |o| o.host_ex_locations = vec!["x".into()]);
    check(&ex, &[(manual(1), "{0,2} {1} {3}"), (manual(2), "{0,2} {1} {3}")]);
    let hosts = Sample::chain(2).with([0], |o| o.host = Some("a".into())).with([1], |o| o.host = Some("b".into()));
    check(&hosts, &[(manual(1), "{0} {1}")]);
    // A pool whose hosts are declared, and places in it.
    let places = |first, second| {
        Sample::chain(2)
            .with_pools(&[(0, false, &["a", "b"])])
            .with([0], |o| o.pool = Some((0, first)))
            .with([1], |o| o.pool = Some((0, second)))
    };
    check(&places(Some(0), Some(0)), &[(manual(1), "{0,1}")]);
    check(&places(Some(0), Some(1)), &[(manual(1), "{0} {1}")]);
    check(&places(Some(0), None), &[(manual(1), "{0} {1}")]);
}

#[test]
fn jvm_arguments() {
    let table = [
        (Some("-Xmx1g"), Some("-Xmx1g"), "{0,1,2,3}"),
        (Some("-Xmx1g"), Some(""), "{0,1,3} {2}"),
        (Some("-Xmx1g"), None, "{0,1,2,3}"),
    ];
    for (first, second, partition) in table {
        let sample = Sample::chain(4)
            .with([1], |o| o.jvm = first.map(str::to_owned))
            .with([2], |o| o.jvm = second.map(str::to_owned));
        assert_eq!(fused(&sample, manual(1)), partition, "{first:?} {second:?}");
    }
}
