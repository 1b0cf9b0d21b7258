//! Requests and edits that come sooner after a change than the job permits.

use super::*;

/// A job that runs, whose region R has this cool-down. No region has said anything.
fn with_cool_down(seconds: u32) -> JobSimulation {
    let mut simulation = JobSimulation::new();
    let cool_down =
        InitialWidth { name: Some("R".to_owned()), cool_down_seconds: Some(seconds), ..InitialWidth::default() };
    simulation.change_spec(|spec| spec.parallel_regions = vec![cool_down]);
    simulation.settle();
    simulation
}

/// A job whose region R, with this cool-down, has just got another width.
fn cooling(seconds: u32) -> JobSimulation {
    let mut simulation = with_cool_down(seconds);
    simulation.describe_regions();
    simulation.request("first", &[("R", 3)]);
    simulation.until(|simulation| simulation.outcome("first").phase == Some(ResizePhase::Written));
    simulation.describe_regions();
    simulation
}

#[test]
fn requests_for_a_width_that_has_just_changed_wait_and_others_do_not() {
    let mut simulation = cooling(30);
    let begun = simulation.server.now();
    simulation.request("second", &[("R", 4)]);
    simulation.request("both", &[("R", 5), ("S", 5)]);
    simulation.request("other", &[("S", 3)]);
    simulation.until(|simulation| simulation.outcome("other").phase == Some(ResizePhase::Written));
    simulation.run_pods();
    assert_eq!(applied(&simulation), widths(3, 3));
    assert_eq!(end(&simulation, "second"), is(ResizePhase::Pending, "CoolingDown"));
    assert!(simulation.outcome("second").message.unwrap().contains("width of R changed"));
    // It survives the frontend.
    simulation.crash();
    simulation.reconcile();
    assert_eq!((simulation.status().generation, simulation.leader.running()), (Some(2), vec![]));
    simulation.settle();
    simulation.check_at_rest();
    assert!(simulation.server.now().duration_since(begun).as_secs() >= 29);
    assert_eq!(end(&simulation, "second"), is(ResizePhase::RolledOut, ""));
    // A newer one for one of its regions has not waited.
    assert_eq!(end(&simulation, "both"), is(ResizePhase::Superseded, "NewerRequest"));
    assert_eq!(applied(&simulation), widths(4, 3));
}

#[test]
fn a_request_for_several_regions_waits_as_a_whole_for_the_cool_down_of_one() {
    let mut simulation = cooling(30);
    simulation.request("both", &[("R", 5), ("S", 5)]);
    for _ in 0..10 {
        simulation.reconcile();
        simulation.work();
        simulation.run_pods();
    }
    assert_eq!(
        (end(&simulation, "both"), applied(&simulation)),
        (is(ResizePhase::Pending, "CoolingDown"), widths(3, 2))
    );
    assert_eq!(end(&simulation, "first"), is(ResizePhase::RolledOut, ""));
    simulation.request("last", &[("R", 4), ("S", 4)]);
    simulation.settle();
    simulation.check_at_rest();
    assert_eq!((end(&simulation, "last"), applied(&simulation)), (is(ResizePhase::RolledOut, ""), widths(4, 4)));
}

#[test]
fn a_request_for_the_width_in_force_does_not_wait_for_a_newer_one_that_waits() {
    let mut simulation = cooling(600);
    go_on(&mut simulation, 8);
    assert_eq!(end(&simulation, "first"), is(ResizePhase::RolledOut, ""));
    simulation.request("same", &[("R", 3)]);
    simulation.request("newer", &[("R", 5)]);
    go_on(&mut simulation, 4);
    assert_eq!(end(&simulation, "newer"), is(ResizePhase::Pending, "CoolingDown"));
    assert_eq!(end(&simulation, "same"), is(ResizePhase::RolledOut, ""));
    // What is wanted is not in force, and the job says until when.
    let (status, reason, message) = progressing(&simulation);
    assert_eq!((status.as_str(), reason.as_str()), ("False", "CoolingDown"));
    assert!(message.contains(" stays until "), "{message}");
    simulation.settle();
    simulation.check_at_rest();
    assert_eq!((progressing(&simulation).1.as_str(), applied(&simulation)), ("Done", widths(5, 2)));
}

#[test]
fn an_edit_waits_for_the_cool_down_too_and_the_job_looks_again_by_itself() {
    let mut simulation = cooling(30);
    simulation.settle();
    let begun = simulation.status().rollout.unwrap().started_at.unwrap().0;
    simulation.resize_both([5, 4]);
    simulation.until(|simulation| simulation.status().generation == Some(2));
    assert_eq!(applied(&simulation), widths(3, 4));
    simulation.resize(0, 1);
    simulation.run_pods();
    simulation.reconcile();
    let wake_at = simulation.leader.decided().1.wake_at.expect("it looks again by itself");
    assert!(wake_at.duration_since(begun).as_secs() <= 30, "{wake_at}");
    simulation.settle();
    simulation.check_at_rest();
    assert_eq!(applied(&simulation), widths(1, 4), "the newest edit");
    // Without the option, at once.
    simulation.describe_regions();
    simulation.change_spec(|spec| spec.parallel_regions.clear());
    simulation.resize(0, 2);
    simulation.until(|simulation| simulation.status().generation == Some(4));
    assert_eq!(applied(&simulation), widths(2, 4));
}

/// As in a crowd. Other widths change meanwhile, and the leader may end in between.
#[test]
fn the_cool_down_of_a_region_that_has_said_nothing_outlives_generations_that_leave_its_width() {
    for leader_ends in [false, true] {
        let mut simulation = with_cool_down(600);
        for (name, region) in [("first", "R"), ("other", "S")] {
            simulation.request(name, &[(region, 3)]);
            simulation.until(|simulation| simulation.outcome(name).phase == Some(ResizePhase::Written));
            if leader_ends {
                simulation.crash();
            }
        }
        simulation.request("second", &[("R", 4)]);
        go_on(&mut simulation, 4);
        assert_eq!(end(&simulation, "second"), is(ResizePhase::Pending, "CoolingDown"), "{leader_ends}");
        assert_eq!(applied(&simulation), widths(3, 3));
        // What has been said is not kept.
        for (name, width) in [("third", 4), ("fourth", 5)] {
            simulation.describe_regions();
            let last = simulation.region(0).and_then(|region| region.status?.last_resize);
            assert_eq!(last.map(|last| (last.generation, last.from, last.to)), Some((2, 2, 3)), "{leader_ends}");
            simulation.request(name, &[("S", width)]);
            simulation.until(|simulation| simulation.outcome(name).phase == Some(ResizePhase::Written));
            let before = [0, 1].map(|index| simulation.status().region(index).and_then(|region| region.width_before));
            assert_eq!(before, [None, Some(width - 1)], "{leader_ends}");
        }
    }
}

/// The region before it has said what the generation in force has changed, which is long over.
#[test]
fn a_region_that_is_made_again_has_not_got_its_width_with_the_next_generation() {
    let mut simulation = with_cool_down(600);
    simulation.request("first", &[("R", 3)]);
    simulation.settle();
    simulation.describe_regions();
    assert_eq!(simulation.status().region(0).and_then(|region| region.width_before), Some(2));
    simulation.wait(700);
    simulation.delete(&UserDeletion::Region(0));
    simulation.collect();
    simulation.until(|simulation| simulation.region(0).is_some());
    simulation.request("other", &[("S", 3)]);
    simulation.until(|simulation| simulation.outcome("other").phase == Some(ResizePhase::Written));
    let before = [0, 1].map(|index| simulation.status().region(index).and_then(|region| region.width_before));
    assert_eq!(before, [None, Some(2)]);
    let brought = [0, 1].map(|index| simulation.status().region(index).and_then(|region| region.generation));
    assert_eq!(brought, [Some(1), Some(2)]);
    simulation.describe_regions();
    assert_eq!(simulation.region(0).and_then(|region| region.status?.last_resize), None);
    // So it need not cool down.
    simulation.request("second", &[("R", 4)]);
    simulation.until(|simulation| simulation.outcome("second").phase == Some(ResizePhase::Written));
    assert_eq!(applied(&simulation), widths(4, 3));
}
