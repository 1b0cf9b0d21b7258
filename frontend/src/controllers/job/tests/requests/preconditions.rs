//! Requests that expect widths, or a generation.

use super::*;

#[test]
fn a_precondition_is_judged_when_it_is_known_what_becomes_of_those_before() {
    // what becomes of the one before, which wants 10 -> the end of the one that expects the width before
    type Row = (&'static str, fn(&mut JobSimulation), (Option<ResizePhase>, String), BTreeMap<String, u32>);
    let table: [Row; 3] = [
        (
            "refused",
            |simulation| simulation.services.change(|services| services.widest = 9),
            is(ResizePhase::RolledOut, ""),
            widths(3, 2),
        ),
        ("withdrawn", |simulation| simulation.withdraw("before"), is(ResizePhase::RolledOut, ""), widths(3, 2)),
        ("committed", |_| {}, is(ResizePhase::Refused, "WidthMismatch"), widths(10, 2)),
    ];
    for (what, become_so, expected, in_force) in table {
        let mut simulation = JobSimulation::running();
        simulation.request("before", &[("R", 10)]);
        simulation.reconcile();
        assert!(simulation.outcome("before").number.is_some());
        become_so(&mut simulation);
        for (name, width) in [("expects-it", 2), ("expects-another", 7)] {
            simulation.request_if(name, &[("R", 3)], |spec| spec.regions[0].expected_width = Some(width));
        }
        if what != "withdrawn" {
            simulation.reconcile();
            assert_eq!(end(&simulation, "expects-it"), (None, String::new()), "{what}: not yet");
            let version = simulation.server.version();
            simulation.reconcile();
            assert_eq!(simulation.server.version(), version, "{what}: nothing is written meanwhile");
            let never = is(ResizePhase::Refused, "WidthMismatch");
            assert_eq!(end(&simulation, "expects-another"), never, "{what}: it never was");
        }
        simulation.settle();
        assert_eq!((end(&simulation, "expects-it"), applied(&simulation)), (expected, in_force), "{what}");
    }
}

#[test]
fn preconditions_hold_for_all_regions_or_nothing_happens() {
    let mut simulation = JobSimulation::running();
    simulation.request_if("width", &[("R", 4), ("S", 4)], |spec| spec.regions[1].expected_width = Some(7));
    simulation.request_if("generation", &[("R", 4)], |spec| spec.expected_generation = Some(3));
    simulation.request("nowhere", &[("R", 4), ("T", 4)]);
    simulation.settle();
    assert_eq!(end(&simulation, "width"), is(ResizePhase::Refused, "WidthMismatch"));
    assert_eq!(end(&simulation, "generation"), is(ResizePhase::Refused, "GenerationMismatch"));
    assert_eq!(end(&simulation, "nowhere"), is(ResizePhase::Refused, "RegionNotFound"));
    assert_eq!((simulation.status().generation, applied(&simulation)), (Some(0), widths(2, 2)));
    simulation.request_if("holds", &[("R", 4), ("S", 4)], |spec| {
        spec.regions[0].expected_width = Some(2);
        spec.expected_generation = Some(0);
        spec.policy = ResizePolicy::Rebalance;
    });
    simulation.settle();
    assert_eq!((end(&simulation, "holds"), applied(&simulation)), (is(ResizePhase::RolledOut, ""), widths(4, 4)));
    simulation.check_at_rest();
}

/// What is expected may be withdrawn, so each waits for what becomes of the one before.
#[test]
fn of_requests_that_come_together_each_expects_what_the_one_before_brings() {
    let simulation = &mut JobSimulation::running();
    // name, expected width, wanted width
    for (name, expected, wanted) in [("first", 2, 4), ("too-late", 2, 5), ("second", 4, 6)] {
        simulation.request_if(name, &[("R", wanted)], |spec| spec.regions[0].expected_width = Some(expected));
    }
    simulation.settle();
    let ends = ["first", "too-late", "second"].map(|name| end(simulation, name));
    let in_force = is(ResizePhase::RolledOut, "");
    assert_eq!(ends, [in_force.clone(), is(ResizePhase::Refused, "WidthMismatch"), in_force]);
    assert_eq!((simulation.status().generation, applied(simulation)), (Some(2), widths(6, 2)));
}

#[test]
fn a_precondition_does_not_hold_because_of_a_width_that_never_comes() {
    // what becomes of the request that wants the expected width -> the end of the one that expects it, generation
    let table = [
        (true, is(ResizePhase::Refused, "WidthMismatch"), 0, widths(2, 2)),
        (false, is(ResizePhase::RolledOut, ""), 2, widths(9, 2)),
    ];
    for (is_withdrawn, expected, generation, in_force) in table {
        let mut simulation = JobSimulation::running();
        simulation.request("wants", &[("R", 5)]);
        simulation.reconcile();
        simulation.request_if("expects", &[("R", 9)], |spec| spec.regions[0].expected_width = Some(5));
        simulation.reconcile();
        if is_withdrawn {
            simulation.withdraw("wants");
        }
        simulation.settle();
        simulation.check_at_rest();
        assert_eq!(end(&simulation, "expects"), expected, "{is_withdrawn}");
        assert_eq!((simulation.status().generation, applied(&simulation)), (Some(generation), in_force));
    }
}

#[test]
fn of_two_who_expect_the_same_generation_one_comes_into_force() {
    // widths of the second one: of another region, and those that are in force by then
    for second in [[("S", 4)], [("R", 3)]] {
        let mut simulation = JobSimulation::running();
        simulation.request("first", &[("R", 3)]);
        until_compiling(&mut simulation, 3);
        simulation.work();
        simulation.reconcile();
        assert!(simulation.status().proposes(1));
        simulation.request_if("second", &second, |spec| spec.expected_generation = Some(0));
        simulation.reconcile();
        assert!(simulation.outcome("second").number.is_some() && simulation.status().generation == Some(0));
        simulation.settle();
        simulation.check_at_rest();
        assert_eq!(end(&simulation, "first"), is(ResizePhase::RolledOut, ""));
        assert_eq!(end(&simulation, "second"), is(ResizePhase::Refused, "GenerationMismatch"), "{second:?}");
        assert_eq!((simulation.status().generation, applied(&simulation)), (Some(1), widths(3, 2)));
    }
    // Together they are one generation.
    let mut simulation = JobSimulation::running();
    for (name, region) in [("first", "R"), ("second", "S")] {
        simulation.request_if(name, &[(region, 3)], |spec| spec.expected_generation = Some(0));
    }
    simulation.settle();
    let outcomes = ["first", "second"].map(|name| simulation.outcome(name));
    assert_eq!(
        outcomes.map(|outcome| (outcome.phase, outcome.generation)),
        [(Some(ResizePhase::RolledOut), Some(1)); 2]
    );
}
