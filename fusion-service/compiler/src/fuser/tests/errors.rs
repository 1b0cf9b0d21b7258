//! Applications that the fuser refuses, and the problems that it reports.

use super::manual;
use super::sample::{Sample, channel};
use crate::budget::{Budget, Cancellation, Limits};
use crate::error::{Error, Problems, Stage, code};
use crate::fuser::composition::Composition;
use crate::fuser::fill::fill;
use crate::fuser::rules::PeProfile;
use crate::fuser::units::Unit;
use crate::fuser::work_list::{UnitClass, WorkList};
use crate::fuser::{
    Cpus, Fusion, FusionHostPool, FusionType, Graph, HostGroups, Symbols, automatic, constraints, fuse, match_ids,
};
use crate::topology::{Connection, Node};
use cranelift_entity::EntityRef;
use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

#[test]
fn refusals_name_the_thing() {
    let jvm = Sample::chain(4)
        .with([1, 2], |o| o.co_locations = vec!["c".into()])
        .with([1], |o| o.jvm = Some("-Xmx1g".into()));
    let declared: &[(u64, bool, &[&str])] = &[(0, false, &["a", "b"])];
    let table: [(Sample, Option<&str>, &str); 4] = [
        (
            jvm.with([2], |o| o.jvm = Some(String::new())),
            Some(code::CONSTRAINTS),
            "no PE can hold the co-located operators Op1, Op2: jvmArgs differs ([\"\"] / [\"-Xmx1g\"])",
        ),
        (Sample::chain(2).with([1], |o| o.pool = Some((7, None))), None, "operator 1 (Op1): unknown host pool 7"),
        (
            Sample::chain(2).with_pools(declared).with([1], |o| o.pool = Some((0, Some(2)))),
            None,
            "operator 1 (Op1): host 2 of host pool 0, which declares 2 hosts",
        ),
        (
            Sample::chain(2).with_pools(declared).with([1], |o| o.pool = Some((0, Some(u64::MAX)))),
            None,
            "operator 1 (Op1): host 18446744073709551615 of host pool 0, which declares 2 hosts",
        ),
    ];
    for (sample, code, message) in table {
        for fusion in [Fusion::Legacy, manual(1)] {
            let error = fuse(&sample.graph(), &fusion, &Budget::default()).unwrap_err();
            let [problem] = error.problems() else { panic!("{error}") };
            assert_eq!((problem.stage, problem.code, problem.message.as_str()), (Stage::Compose, code, message));
        }
    }
}

#[test]
fn all_problems_are_reported_together() {
    let sample = Sample::chain(3).with([0, 2], |o| o.pool = Some((9, None)));
    assert_eq!(fuse(&sample.graph(), &manual(1), &Budget::default()).unwrap_err().problems().len(), 2);
}

#[test]
fn a_place_in_a_pool_without_hosts_may_be_any() {
    let sample = Sample::chain(2).with([1], |o| o.pool = Some((0, Some(u64::MAX))));
    assert_eq!(super::fused(&sample, manual(1)), "{0} {1}");
}

#[test]
fn fewer_than_one_pe_is_a_user_error() {
    for count in [0, -1, i128::MIN] {
        let problem = Fusion::manual(count, FusionType::NoChannelInfluence).unwrap_err();
        assert_eq!((problem.stage, problem.code), (Stage::FusionOption, None));
        assert_eq!(problem.message, format!("requested number of PEs is invalid: {count}"));
    }
}

#[test]
fn nothing_is_fused_when_nobody_waits() {
    let budget = Budget::cancelled();
    let sample = Sample::chain(3);
    assert_eq!(fuse(&sample.graph(), &manual(1), &budget), Err(Error::Cancelled));
}

#[test]
fn ids_of_locations_are_gone_through_within_the_budget() {
    let ids: Vec<String> = (0..10_000).map(|id| id.to_string()).collect();
    let sample = Sample::chain(1).with([0], |o| {
        (o.ex_locations, o.host_co_locations, o.host_ex_locations) = (ids.clone(), ids.clone(), ids.clone());
    });
    let graph = sample.graph();
    let [endless, cancelled] = [Budget::default(), Budget::cancelled()];
    let find = |budget| HostGroups::find(&graph, &mut Problems::default(), budget);
    let groups = find(&endless).unwrap();
    assert_eq!(find(&cancelled).map(|_| ()), Err(Error::Cancelled));
    let constraints = |budget| constraints(&graph, &groups, FusionType::NoChannelInfluence, budget).map(|_| ());
    assert_eq!((constraints(&endless), constraints(&cancelled)), (Ok(()), Err(Error::Cancelled)));
    let composition = Composition::new(&graph, FusionType::NoChannelInfluence, &endless).unwrap();
    assert_eq!(composition.host_bindings(&cancelled).map(|_| ()), Err(Error::Cancelled));
}

/// How many PEs the units are put into, if one is wanted. Only the filling has this budget.
fn filled(sample: &Sample, budget: &Budget) -> Result<usize, Error> {
    let (graph, endless) = (sample.graph(), Budget::default());
    let composition = Composition::new(&graph, FusionType::NoChannelInfluence, &endless).unwrap();
    let host_bindings = composition.host_bindings(&endless).unwrap();
    fill(&composition, host_bindings, 1, Vec::new(), budget).map(|filled| filled.containers)
}

/// So many ids, and one more.
fn ids(prefix: &str, count: usize, last: &str) -> Vec<String> {
    (0..count).map(|id| format!("{prefix}{id}")).chain([last.to_owned()]).collect()
}

/// A source that feeds so many operators. They share a host with one that has an ex-location id of the source, and both
/// have many others.
fn kept_apart_by_hosts(operators: usize) -> Sample {
    let mine = 2..operators + 2;
    let edges = mine.clone().map(|operator| (0, operator)).chain([(2, 1)]);
    Sample::new(operators as u32 + 2, edges)
        .with([0], |o| o.host_ex_locations = ids("a", 10_000, "z"))
        .with([1], |o| o.host_ex_locations = ids("b", 10_000, "z"))
        .with([1].into_iter().chain(mine), |o| o.host_co_locations = vec!["b".into()])
}

#[test]
fn ids_are_compared_within_the_budget() {
    // One PE takes what may be anywhere, then one of the two that are kept apart.
    let apart = Sample::new(3, [(1, 2), (2, 1)]).with([1, 2], |o| o.ex_locations = ids("x", 10_000, "z"));
    for (what, sample) in [("hosts", kept_apart_by_hosts(10)), ("PEs", apart)] {
        assert_eq!(filled(&sample, &Budget::default()), Ok(2), "{what}");
        assert_eq!(filled(&sample, &Budget::cancelled()), Err(Error::Cancelled), "{what}");
    }
}

/// Counts how often a budget is asked.
#[derive(Debug, Default)]
struct Looks(AtomicUsize);

impl Cancellation for Looks {
    fn is_cancelled(&self) -> bool {
        self.0.fetch_add(1, Ordering::Relaxed);
        false
    }
}

#[test]
fn units_that_share_a_host_are_compared_with_another_one_once() {
    let looks = |operators| {
        let looks = Arc::new(Looks::default());
        let budget = Budget { cancellation: Some(Arc::<Looks>::clone(&looks)), ..Budget::default() };
        assert_eq!(filled(&kept_apart_by_hosts(operators), &budget), Ok(2));
        looks.0.load(Ordering::Relaxed)
    };
    let (few, many) = (looks(1), looks(300));
    assert!((1..few + 10).contains(&many), "{few}, {many}");
}

#[test]
fn values_that_a_pe_has_are_looked_up_within_the_budget() {
    let sample = Sample::chain(1).with([0], |o| o.channels = (0..10_000).map(|region| channel(region, 0)).collect());
    let (graph, endless) = (sample.graph(), Budget::default());
    let composition = Composition::new(&graph, FusionType::ChannelExlocation, &endless).unwrap();
    let rules = &composition.rules;
    let units: Vec<Unit> = composition.units.keys().collect();
    let class = |_| UnitClass { no_source: false, no_sink: false, size: Reverse(1) };
    let waiting = WorkList::new(&units, rules, class, &endless).unwrap();
    let mut profile = PeProfile::default();
    profile.add(rules.unit_traits(units[0]));
    let lanes = |budget: &Budget| waiting.lanes(&profile, &mut budget.pace()).map(|lanes| lanes.len());
    assert_eq!((lanes(&endless), lanes(&Budget::cancelled())), (Ok(1), Err(Error::Cancelled)));
}

#[test]
fn hosts_of_operators_that_do_not_share_one_are_not_counted() {
    // Three that differ only in what they share a host with. Two of them never do, because of an ex-location id.
    let sample = Sample::new(6, [])
        .with_pools(&[(0, false, &["a", "b"]), (1, false, &["b", "c"]), (2, false, &["c", "a"])])
        .with(0..3, |o| (o.pool, o.host_ex_locations) = (None, vec!["x".into()]))
        .with(3..6, |o| o.pool = Some((u64::from(o.index) - 3, None)))
        .with(0..6, |o| o.host_co_locations = vec![(o.index % 3).to_string()]);
    let limits = Limits { adl_bytes: 6, ..Limits::default() };
    let partition = fuse(&sample.graph(), &manual(1), &Budget::with_limits(limits)).unwrap();
    assert_eq!(partition.len(), 6);
}

#[test]
fn hosts_that_pools_have_in_common_are_counted() {
    let sample = Sample::chain(2)
        .with_pools(&[(0, false, &["a", "b", "c"]), (1, false, &["b", "c", "d"])])
        .with([1], |o| o.pool = Some((1, None)));
    let bound = sample.clone().with([0, 1], |o| o.host_co_locations = vec!["g".into()]);
    let together = sample.with([0, 1], |o| o.co_locations = vec!["g".into()]);
    for (sample, fusion, hosts) in [(&bound, Fusion::Legacy, 6), (&bound, manual(1), 8), (&together, Fusion::Legacy, 8)]
    {
        let graph = sample.graph();
        let fused = |hosts| {
            // Where the limit is small, all of it.
            let limits = Limits { adl_bytes: hosts, ..Limits::default() };
            fuse(&graph, &fusion, &Budget::with_limits(limits))
        };
        assert!(fused(hosts).is_ok());
        let error = fused(hosts - 1).unwrap_err();
        let problem = &error.problems()[0];
        assert_eq!(problem.stage, Stage::Compose);
        assert!(problem.message.ends_with(&format!("have more than {} hosts", hosts - 1)), "{error}");
    }
}

#[test]
fn an_empty_application_has_no_pe() {
    for fusion in [Fusion::Legacy, manual(3)] {
        assert_eq!(fuse(&Sample::chain(0).graph(), &fusion, &Budget::default()).unwrap().len(), 0);
    }
}

#[test]
fn graphs_that_contradict_themselves_are_refused() {
    let sample = Sample::chain(3);
    let operators = sample.operators(&mut Symbols::default());
    let connection = |source, source_port, target, target_port| {
        Connection::new((Node::new(source), source_port), (Node::new(target), target_port), None)
    };
    let pool = |index| FusionHostPool { index, exclusive: false, hosts: Vec::new() };
    let short = Sample::chain(2);
    let mut twice = short.operators(&mut Symbols::default());
    twice.push(twice.list()[Node::new(1)], twice.traits_id(Node::new(1)));
    let table = [
        (operators.clone(), vec![], vec![connection(3, 0, 1, 0)], "connection 0: its source does not exist"),
        (
            operators.clone(),
            vec![],
            vec![connection(0, 0, 3, 0)],
            "connection 0, from operator 0: its target does not exist",
        ),
        (operators.clone(), vec![], vec![connection(0, 1, 1, 0)], "connection 0: operator 0 has no output port 1"),
        (
            operators.clone(),
            vec![],
            vec![connection(0, 0, 1, u32::MAX)],
            "connection 0: operator 1 has no input port 4294967295",
        ),
        (operators.clone(), vec![], vec![connection(1, 0, 2, 0), connection(0, 0, 1, 0)], "connection 1: out of order"),
        (operators.clone(), vec![pool(2), pool(2)], vec![], "host pool 2: twice, or out of order"),
        (twice, vec![], vec![], "operator index 1: twice, or out of order"),
    ];
    for (operators, pools, connections, message) in table {
        let problem = Graph::new(operators, pools, Symbols::default(), Cow::Owned(connections)).unwrap_err();
        assert_eq!(problem.message, message);
    }
}

#[test]
fn pes_with_the_same_operators_keep_their_id() {
    let sample = Sample::chain(4);
    let graph = sample.graph();
    let legacy = fuse(&graph, &Fusion::Legacy, &Budget::default()).unwrap();
    let ids = |previous: &[(u64, &[&'static str])], taken: &[u64]| {
        let previous = previous.iter().map(|(id, names)| (*id, names.iter().copied()));
        let ids = match_ids(&graph, &legacy, previous, &taken.iter().copied().collect::<BTreeSet<_>>());
        ids.map(|ids| ids.values().copied().collect::<Vec<_>>()).map_err(|problem| problem.stage)
    };
    assert_eq!(ids(&[], &[]), Ok(vec![0, 1, 2, 3]));
    assert_eq!(ids(&[], &[6]), Ok(vec![7, 8, 9, 10]));
    assert_eq!(ids(&[(3, &["Op1"]), (7, &["Op0", "Op2"])], &[]), Ok(vec![8, 3, 9, 10]));
    // Order and repetition of names do not matter, nor do operators that are gone; of equal PEs the lower id counts.
    assert_eq!(ids(&[(5, &["Op0", "Op0"]), (2, &["Op0"]), (9, &["Gone"])], &[]), Ok(vec![2, 10, 11, 12]));
    assert_eq!(ids(&[(u64::MAX, &["Op0"])], &[]), Err(Stage::Fuse));
}

#[test]
fn the_automatic_number_of_pes() {
    // Two sources, a threaded port, a dynamic operator, two that may be dynamic, one that may not.
    let sample = Sample::new(7, [(0, 2), (1, 3), (2, 4), (3, 5), (4, 6), (5, 6)])
        .with([2], |o| o.inputs[0].threaded = true)
        .with([3], |o| o.threading.dynamic = true)
        .with([6], |o| o.threading.manual = true);
    let graph = sample.graph();
    let cpus = |limit, request, free, share| Cpus { limit, request, job_wide: false, free, share };
    let none = cpus(None, None, None, Cpus::DEFAULT_SHARE);
    let table = [
        (none, (4, 8, 4, 7, None, 4)),
        // A limit wins over a request, and nothing counts below one CPU.
        (cpus(Some(2000), Some(100), None, 500), (4, 8, 2, 4, None, 2)),
        (cpus(Some(1500), None, None, 500), (4, 8, 3, 6, None, 3)),
        (cpus(Some(10), None, None, 500), (4, 8, 4, 7, None, 4)),
        (cpus(None, Some(2000), None, 500), (4, 8, 2, 4, None, 2)),
        (cpus(Some(1_000_000), None, None, 500), (4, 8, 1, 1, None, 1)),
        // Room between, below and above the range.
        (cpus(None, Some(1000), Some(10_000), 500), (4, 8, 4, 7, Some(5), 5)),
        (cpus(None, Some(1000), Some(10_000), 200), (4, 8, 4, 7, Some(2), 4)),
        (cpus(None, Some(500), Some(u64::MAX), 1000), (4, 8, 4, 7, Some(u64::MAX / 500), 7)),
        (cpus(None, Some(0), Some(10_000), 500), (4, 8, 4, 7, None, 4)),
        (Cpus { job_wide: true, ..cpus(Some(9000), Some(1000), Some(10_000), 500) }, (4, 8, 4, 7, None, 4)),
    ];
    for (cpus, expected) in table {
        let got = automatic(&graph, &cpus);
        assert_eq!((got.least_threads, got.most_threads, got.low, got.high, got.room, got.count), expected, "{cpus:?}");
    }
    assert_eq!(automatic(&Sample::chain(0).graph(), &none).count, 1);
}
