//! Widths that come into force: what a resize touches, what it writes, and when that which it replaces goes.

use super::super::simulation::JobSimulation;
use super::condition_reason;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use streams_api::{ProcessingElement, condition};
use streams_kubernetes_fake::Verb;

/// (generation, PEs kept, restarted, added, removed) of the last roll-out.
fn rollout(simulation: &JobSimulation) -> (u64, u32, u32, u32, u32) {
    let rollout = simulation.status().rollout.expect("a generation was committed");
    (rollout.generation, rollout.kept, rollout.restarted, rollout.added, rollout.removed)
}

#[test]
fn a_resize_touches_only_what_changed() {
    let mut simulation = JobSimulation::running();
    let before = simulation.pes();
    simulation.forget_starts();
    simulation.resize(0, 4);
    simulation.settle();
    // Source and sink see the width; two channels are new; PE 2 and 3, and the channels that were there, are not
    // touched.
    assert_eq!(simulation.starts().into_iter().collect::<Vec<_>>(), [(0, 1), (1, 1), (8, 1), (9, 1)]);
    let after = simulation.pes();
    for id in 2..8 {
        assert_eq!(after[&id], before[&id], "PE {id}");
    }
    assert_eq!(rollout(&simulation), (1, 6, 2, 2, 0));
    simulation.forget_starts();
    simulation.resize(0, 2);
    simulation.settle();
    assert_eq!(simulation.starts().into_keys().collect::<Vec<_>>(), [0, 1]);
    assert_eq!(rollout(&simulation), (2, 6, 2, 0, 2));
    simulation.check_at_rest();
}

#[test]
fn a_newer_width_does_not_wait_for_the_pods_of_an_older_one() {
    let mut simulation = JobSimulation::running();
    simulation.resize(0, 5);
    // Until it is committed, with no pod running.
    simulation.until(|simulation| simulation.status().generation == Some(1));
    simulation.resize(0, 3);
    simulation.until(|simulation| simulation.status().generation == Some(2));
    let never_launched =
        simulation.pes().into_values().filter(|pe| pe.status.as_ref().is_none_or(|status| status.launch_count == 0));
    assert!(never_launched.count() > 0, "PEs of the older generation are still there");
    simulation.settle();
    simulation.check_at_rest();
    assert_eq!(simulation.status().generation, Some(2));
}

#[test]
fn a_resize_writes_the_status_of_the_job_for_its_steps_and_its_end() {
    // width -> writes: proposal, commit, finished; that all run while the last one is still there
    for (width, expected) in [(3, 3), (1, 4)] {
        let mut simulation = JobSimulation::running();
        let writes = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&writes);
        simulation.server.inspect(move |call| {
            let is_one = call.kind == "Job" && call.verb == Verb::ReplaceStatus;
            count.fetch_add(usize::from(is_one), Ordering::Relaxed);
        });
        simulation.resize(0, width);
        simulation.settle();
        assert_eq!(writes.load(Ordering::Relaxed), expected, "{width}");
    }
}

/// No roll-out of them ends, and each is committed long before it would be late.
#[test]
fn a_job_that_goes_from_one_generation_to_the_next_writes_no_more_for_a_resize_and_is_not_late() {
    let mut simulation = JobSimulation::running();
    for (generation, width) in (1..).zip(3..7) {
        simulation.resize(0, width);
        simulation.until_committed(generation);
        simulation.round();
        simulation.wait(100);
    }
    simulation.server.announced();
    let before = simulation.status_writes();
    simulation.resize(0, 7);
    simulation.until_committed(5);
    simulation.round();
    assert_eq!(simulation.status_writes() - before, 2, "proposal, commit");
    let told = simulation.server.announced();
    assert!(told.iter().all(|announced| announced.notice.reason != "ResizeDelayed"), "{told:?}");
    // The last one has as much time.
    simulation.wait(301);
    simulation.reconcile();
    let status = simulation.status();
    let condition = condition::get(&status.conditions, condition::RESIZE_DELAYED).unwrap();
    assert!(condition.message.contains("the roll-out takes longer than 300 s"), "{}", condition.message);
    simulation.settle();
    simulation.check_at_rest();
}

#[test]
fn a_resize_that_is_being_prepared_says_so_after_a_second_and_after_five_in_a_crowd() {
    // whether there is a crowd, seconds that it is prepared for -> what the job says
    let table = [
        (false, 0, "Done"),
        (false, 1, "PreparingGeneration"),
        (true, 1, "Done"),
        (true, 4, "Done"),
        (true, 5, "PreparingGeneration"),
    ];
    for (is_crowded, seconds, expected) in table {
        let mut simulation = JobSimulation::running();
        simulation.leader.connection.crowd(is_crowded);
        simulation.resize(0, 3);
        simulation.reconcile();
        simulation.wait(seconds);
        simulation.reconcile();
        let said = condition_reason(&simulation, condition::PROGRESSING);
        assert_eq!(said.as_deref(), Some(expected), "{is_crowded} {seconds}");
    }
}

#[test]
fn withdrawn_proposals_leave_nothing_and_start_nothing() {
    let mut simulation = JobSimulation::running();
    simulation.forget_starts();
    simulation.no_step_after("ProcessingElement");
    simulation.request("withdrawn", &[("R", 9)]);
    simulation.until(|simulation| simulation.pe(12).is_some());
    simulation.steps_again();
    let abandoned = simulation.status().proposal.unwrap().plan.sha256;
    simulation.withdraw("withdrawn");
    simulation.resize(0, 3);
    simulation.settle();
    simulation.check_at_rest();
    assert_eq!(simulation.status().generation, Some(1));
    assert_ne!(simulation.status().plan.unwrap().sha256, abandoned);
    assert_eq!(simulation.starts().values().sum::<u32>(), 3, "source, sink and one channel: {:?}", simulation.starts());
}

#[test]
fn what_is_removed_stays_until_the_others_run_but_not_beyond_the_time_out() {
    let mut simulation = JobSimulation::running();
    simulation.resize(0, 1);
    for _ in 0..30 {
        simulation.reconcile();
        simulation.work();
    }
    assert_eq!(simulation.status().generation, Some(1));
    assert!(simulation.pe(5).is_some(), "source and sink have not been replaced yet");
    simulation.wait(301);
    simulation.reconcile();
    simulation.collect();
    simulation.reconcile();
    assert!(simulation.pe(5).is_none());
    let status = simulation.status();
    let condition = condition::get(&status.conditions, condition::RESIZE_DELAYED).unwrap();
    assert!(condition.message.contains("2 PEs to run"), "{}", condition.message);
    simulation.settle();
    simulation.check_at_rest();
    assert!(condition::get(&simulation.status().conditions, condition::RESIZE_DELAYED).is_none());
}

#[test]
fn the_share_of_a_pe_that_is_kept_follows_the_number_of_pes_and_restarts_nothing() {
    let mut simulation = JobSimulation::running();
    simulation.give(1_200);
    simulation.settle();
    simulation.forget_starts();
    // width, CPU of the job -> PEs, CPU of each, PEs that restart
    let table = [
        (4, 1_200, 10, 120, vec![0, 1, 8, 9]),
        (4, 1_300, 10, 130, vec![]),
        (2, 1_300, 8, 162, vec![0, 1]),
        (2, 3, 8, 1, vec![]),
    ];
    for (width, milli, pes, each, restarted) in table {
        simulation.give(milli);
        simulation.resize(0, width);
        simulation.settle();
        simulation.check_at_rest();
        let shares: Vec<_> = simulation.shares().into_values().collect();
        assert_eq!(shares, vec![each; pes], "width {width}, {milli}m");
        assert_eq!(simulation.starts().into_keys().collect::<Vec<_>>(), restarted, "width {width}, {milli}m");
        simulation.forget_starts();
    }
}

/// Writes of the job's status while the new PEs of a resize begin to run, one every 6 s.
fn writes_of_counters(is_crowded: bool) -> usize {
    let mut simulation = JobSimulation::running();
    simulation.leader.connection.crowd(is_crowded);
    simulation.resize(0, 9);
    simulation.until(|simulation| simulation.status().generation == Some(1));
    let mut writes = 0;
    let is_new = |pe: &ProcessingElement| pe.status.as_ref().is_none_or(|status| status.launch_count == 0);
    let added: Vec<_> = simulation.pes().into_values().filter(is_new).collect();
    assert_eq!(added.len(), 7);
    for pe in added {
        simulation.run_pod(pe.spec.id);
        simulation.wait(6);
        let before = simulation.status();
        simulation.reconcile();
        writes += usize::from(simulation.status() != before);
    }
    writes
}

#[test]
fn counters_are_written_less_often_in_a_crowd() {
    let (alone, crowded) = (writes_of_counters(false), writes_of_counters(true));
    assert!(alone >= 6, "{alone}");
    assert!(crowded <= 2, "{crowded}");
}

#[test]
fn in_a_crowd_a_job_does_not_count_its_pods_before_it_is_submitted() {
    for is_crowded in [false, true] {
        let mut simulation = JobSimulation::new();
        simulation.leader.connection.crowd(is_crowded);
        simulation.until(|simulation| simulation.status().generation.is_some());
        simulation.reconcile();
        simulation.reconcile();
        let before = simulation.status_writes();
        let pes: Vec<u64> = simulation.pes().into_keys().collect();
        assert_eq!(pes.len(), 8);
        for id in pes.into_iter().skip(1) {
            simulation.run_pod(id);
            simulation.wait(10);
            simulation.reconcile();
        }
        let writes = simulation.status_writes() - before;
        assert!(if is_crowded { writes == 0 } else { writes >= 6 }, "{is_crowded} {writes}");
        simulation.settle();
        simulation.check_at_rest();
    }
}
