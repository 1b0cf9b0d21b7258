//! Numbers of channels that nobody asks for: who restarts, and who goes on (rule aadl-22).

use super::super::{
    Compiled, Fate, FusionOption, JobState, LayoutError, Policy, Reason, Request, RestoreError, Warning, resize,
    restore, submit,
};
use super::{source, texts};
use crate::budget::Budget;
use crate::explain::explain;
use crate::topology::ChannelCount;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use streams_test_support::application::Sketch;
use streams_test_support::generated;

fn request(fusion: FusionOption, counts: &[(&str, ChannelCount)]) -> Arc<Request> {
    let channel_counts = counts.iter().map(|(region, count)| ((*region).to_owned(), *count)).collect();
    Arc::new(Request { job_name: "job".to_owned(), job_id: 7, fusion, channel_counts, ..Request::default() })
}

fn ignoring(sketch: &Sketch, fusion: FusionOption, regions: &[&str]) -> Compiled {
    let counts: Vec<_> = regions.iter().map(|region| (*region, ChannelCount::Ignored)).collect();
    submit(&source(sketch), &request(fusion, &counts), &Budget::default()).unwrap()
}

fn resized(job: &Compiled, region: &str, width: i128, policy: Policy) -> Compiled {
    resize(job, &[(region.to_owned(), width)], policy, &JobState::default(), &Budget::default()).unwrap()
}

/// Operators of the PEs that restart, in words.
fn restarted(job: &Compiled) -> Vec<String> {
    let elements = job.plan().elements.iter().filter(|element| element.fate == Fate::Restarted);
    elements.map(|element| element.operators.join(" ")).collect()
}

fn count(job: &Compiled, fate: Fate) -> usize {
    job.plan().elements.iter().filter(|element| element.fate == fate).count()
}

/// A source, a region of one operator, a sink.
fn hundred() -> Sketch {
    Sketch::row(&["S", "P", "T"]).parallel("P", 100)
}

/// A region `C` of a composite with a region `C.Q` inside, and an operator `C.A` before that.
fn nested() -> Sketch {
    Sketch::new()
        .op("S", 0, 1)
        .composite("C", 1, 1)
        .op("C.A", 1, 1)
        .op("C.Q", 1, 1)
        .op("T", 1, 0)
        .connect("S:0", "C:0")
        .connect("C:0", "C.A:0")
        .connect("C.A:0", "C.Q:0")
        .connect("C.Q:0", "C:0")
        .connect("C:0", "T:0")
        .parallel("C", 2)
        .parallel("C.Q", 2)
}

#[test]
fn one_channel_more_restarts_the_neighbours_only() {
    for policy in [Policy::Sticky, Policy::Rebalance] {
        let before = ignoring(&hundred(), FusionOption::Legacy, &["P"]);
        let after = resized(&before, "P", 101, policy);
        assert_eq!(restarted(&after), ["S", "T"], "{policy:?}");
        assert_eq!((count(&after, Fate::KeptUnobservable), count(&after, Fate::Added)), (100, 1), "{policy:?}");
        let back = resized(&after, "P", 100, policy);
        assert_eq!(restarted(&back), ["S", "T"], "{policy:?}");
        assert_eq!(texts(&back), texts(&before), "{policy:?}");
    }
    let observed = ignoring(&hundred(), FusionOption::Legacy, &[]);
    assert_eq!(count(&resized(&observed, "P", 101, Policy::Sticky), Fate::Restarted), 102);
}

#[test]
fn new_channels_go_to_pes_that_restart_anyway() {
    // S and T are together, and each of three PEs has four channels.
    let sketch = Sketch::row(&["S", "P", "T"]).parallel("P", 12);
    let before = ignoring(&sketch, FusionOption::Manual(5), &["P"]);
    let after = resized(&before, "P", 13, Policy::Sticky);
    for element in after.plan().elements.iter().filter(|element| element.fate == Fate::Restarted) {
        let is_neighbour = element.operators.iter().any(|operator| ["S", "T"].contains(&operator.as_str()));
        assert!(is_neighbour, "{:?} restarts: {}", element.operators, Reason::describe(element.reason.as_deref()));
    }
}

#[test]
fn a_restart_is_never_explained_by_a_count_that_is_ignored() {
    // The PE of `P[0]` and `T` restarts because of `T`.
    let sketch = Sketch::row(&["S", "P", "T"]).parallel("P", 2);
    let before = ignoring(&sketch, FusionOption::Manual(1), &["P"]);
    let after = resized(&before, "P", 1, Policy::Sticky);
    let reasons: Vec<String> =
        after.plan().elements.iter().map(|element| Reason::describe(element.reason.as_deref())).collect();
    assert_eq!(reasons, ["no longer holds P[1]"]);

    let one = Sketch::row(&["S", "P", "Q", "T"]).parallel("P", 2).parallel("Q", 2);
    let before = ignoring(&one, FusionOption::Legacy, &["P", "Q"]);
    let wider = ["P", "Q"].map(|region| (region.to_owned(), 3));
    let after = resize(&before, &wider, Policy::Sticky, &JobState::default(), &Budget::default()).unwrap();
    let reasons: BTreeSet<String> = (after.plan().elements.iter().filter(|element| element.fate == Fate::Restarted))
        .map(|element| Reason::describe(element.reason.as_deref()))
        .collect();
    assert_eq!(reasons, ["P[2]", "Q[2]"].map(|operator| format!("is connected to {operator}")).into());
}

#[test]
fn nested_regions() {
    // ignored, region, width -> operators of PEs that restart
    let (a, q) = (["C[0].A", "C[1].A"], ["C[0].Q[0]", "C[0].Q[1]", "C[1].Q[2]", "C[1].Q[3]"]);
    let all: Vec<&str> = ["S", "T"].into_iter().chain(a).chain(q).collect();
    let table: [(&[&str], &str, i128, Vec<&str>); 6] = [
        (&[], "C", 3, all.clone()),
        (&["C"], "C", 3, ["S", "T"].into_iter().chain(q).collect()),
        (&["C*"], "C", 3, vec!["S", "T"]),
        (&["C.Q"], "C", 3, all.clone()),
        // The inner region renumbers the channels of all copies but the first, and is next to the sink.
        (&["C*"], "C.Q", 3, vec!["C[0].A", "C[1].A", "C[1].Q[3]", "C[1].Q[4]", "T"]),
        (&["C.Q"], "C.Q", 3, vec!["C[0].A", "C[0].Q[0]", "C[0].Q[1]", "C[1].A", "C[1].Q[3]", "C[1].Q[4]", "T"]),
    ];
    for (ignored, region, width, mut expected) in table {
        let before = ignoring(&nested(), FusionOption::Legacy, ignored);
        let mut actual = restarted(&resized(&before, region, width, Policy::Sticky));
        actual.sort();
        expected.sort_unstable();
        assert_eq!(actual, expected, "{ignored:?}, {region}={width}");
    }
}

#[test]
fn what_is_said_is_that_of_the_pattern_that_counts() {
    use ChannelCount::{Ignored, Observed};
    // in the order of the job -> regions whose count is ignored
    let table: [(&[(&str, ChannelCount)], &[&str]); 6] = [
        (&[], &[]),
        (&[("C", Ignored)], &["C"]),
        (&[("C*", Ignored)], &["C", "C.Q"]),
        (&[("C*", Ignored), ("C.Q", Observed)], &["C"]),
        (&[("C.Q", Observed), ("C*", Ignored)], &["C"]),
        (&[("*", Ignored), ("C.*", Observed)], &["C"]),
    ];
    for (said, expected) in table {
        let job = submit(&source(&nested()), &request(FusionOption::Legacy, said), &Budget::default()).unwrap();
        let regions = job.plan().regions.iter().filter(|planned| planned.region.channel_count == Ignored);
        let mut names: Vec<&str> = regions.map(|planned| planned.region.name.as_str()).collect();
        names.sort_unstable();
        assert_eq!(names, expected, "{said:?}");
    }
    let said = [("X", Ignored), ("C", Ignored)];
    let job = submit(&source(&nested()), &request(FusionOption::Legacy, &said), &Budget::default()).unwrap();
    let message = "no parallel region matches \"X\"".to_owned();
    assert_eq!(job.plan().warnings, [Warning { reason: "UnmatchedRegion", message }]);
    let malformed = request(FusionOption::Legacy, &[("a-b", Ignored)]);
    assert!(submit(&source(&nested()), &malformed, &Budget::default()).is_err());
}

#[test]
fn a_layout_belongs_to_what_was_said_when_it_was_made() {
    let (source, budget) = (source(&nested()), Budget::default());
    let said: [&[(&str, ChannelCount)]; 3] = [&[], &[("C", ChannelCount::Ignored)], &[("C*", ChannelCount::Ignored)]];
    let requests = said.map(|said| request(FusionOption::Legacy, said));
    for (made, by) in requests.iter().enumerate() {
        let layout = submit(&source, by, &budget).unwrap().layout().to_bytes();
        for (asked, request) in requests.iter().enumerate() {
            let restored = restore(&source, request, &layout, &budget);
            match restored {
                Ok(_) => assert_eq!(made, asked),
                Err(RestoreError::Layout(LayoutError::Foreign(_))) => assert_ne!(made, asked),
                Err(error) => panic!("{error}"),
            }
        }
    }
}

fn fusion(manual: i128) -> FusionOption {
    if manual == 0 { FusionOption::Legacy } else { FusionOption::Manual(manual) }
}

fn runtime_ids(job: &Compiled) -> BTreeMap<u64, [u8; 32]> {
    job.plan().elements.iter().map(|element| (element.id, element.runtime_id)).collect()
}

proptest! {
    #![proptest_config(streams_test_support::property_cases(48))]

    #[test]
    fn texts_never_depend_on_it_and_observed_is_the_default(sketch in generated::rows(), manual in 0..4_i128) {
        let (source, budget) = (source(&sketch), Budget::default());
        let submitted = |said: &[(&str, ChannelCount)]| submit(&source, &request(fusion(manual), said), &budget).unwrap();
        let silent = submitted(&[]);
        let observed = submitted(&[("*", ChannelCount::Observed)]);
        prop_assert_eq!(texts(&observed), texts(&silent));
        prop_assert_eq!(runtime_ids(&observed), runtime_ids(&silent));
        let ignored = submitted(&[("*", ChannelCount::Ignored)]);
        prop_assert_eq!(texts(&ignored), texts(&silent));
        let outside = |job: &Compiled| -> BTreeMap<u64, [u8; 32]> {
            let is_inside = |id: u64| {
                let members = job.elements().members(job.elements().find(id).unwrap());
                members.iter().any(|&node| !job.topology().operators[node].channels.is_empty())
            };
            runtime_ids(job).into_iter().filter(|(id, _)| !is_inside(*id)).collect()
        };
        prop_assert_eq!(outside(&ignored), outside(&silent), "a PE outside of all regions has no counts");
    }

    /// Ignoring counts never restarts more in legacy mode, where PEs do not depend on who restarts; what the comparison
    /// of documents says agrees with the ids.
    #[test]
    fn ignoring_restarts_fewer_and_every_restart_can_be_seen(
        sketch in generated::rows(),
        ignored in prop::collection::vec(any::<prop::sample::Index>(), 1..4),
        manual in 0..4_i128,
        steps in prop::collection::vec((any::<prop::sample::Index>(), 1..5_i128), 1..4),
    ) {
        let names: Vec<String> = sketch.regions().map(str::to_owned).collect();
        prop_assume!(!names.is_empty());
        let ignored: Vec<&str> = ignored.iter().map(|index| names[index.index(names.len())].as_str()).collect();
        let mut current = ignoring(&sketch, fusion(manual), &ignored);
        let mut plain = ignoring(&sketch, fusion(manual), &[]);
        for (region, width) in steps {
            let region = &names[region.index(names.len())];
            let after = resized(&current, region, width, Policy::Sticky);
            let account = explain(&after, Some(&current), &Budget::default()).unwrap();
            for group in &account.processing_elements {
                let observable = group.changes.iter().any(|change| change.observable);
                match group.fate {
                    Some(Fate::Restarted) => prop_assert!(observable, "{:?}", group),
                    Some(Fate::KeptUnobservable) => prop_assert!(!observable && group.change_count > 0, "{:?}", group),
                    Some(Fate::Kept | Fate::Added) | None => prop_assert!(group.changes.is_empty(), "{:?}", group),
                }
            }
            let plainly = resized(&plain, region, width, Policy::Sticky);
            if manual == 0 {
                prop_assert_eq!(texts(&after), texts(&plainly));
                let others: BTreeSet<String> = restarted(&plainly).into_iter().collect();
                prop_assert!(restarted(&after).iter().all(|operators| others.contains(operators)));
            }
            let layout = after.layout().to_bytes();
            let counts: Vec<_> = ignored.iter().map(|region| (*region, ChannelCount::Ignored)).collect();
            let again = restore(&source(&sketch), &request(fusion(manual), &counts), &layout, &Budget::default()).unwrap();
            prop_assert_eq!(texts(&again), texts(&after));
            (current, plain) = (after, plainly);
        }
    }

    /// A region that is in no other one, with everything in it ignored: PEs with operators of its channels go on.
    #[test]
    fn no_channel_of_an_outermost_region_restarts(sketch in generated::rows(), width in 1..5_i128) {
        let before = ignoring(&sketch, FusionOption::Legacy, &["*"]);
        let outermost: Vec<String> = sketch.regions().filter(|name| !name.contains('.')).map(str::to_owned).collect();
        for name in outermost {
            let after = resized(&before, &name, width, Policy::Sticky);
            let inside = |operator: &str| operator.starts_with(&format!("{name}["));
            let channels: Vec<String> = (restarted(&after).into_iter())
                .filter(|operators| operators.split(' ').all(inside))
                .collect();
            prop_assert_eq!(channels, Vec::<String>::new(), "{}={}", name, width);
        }
    }
}
