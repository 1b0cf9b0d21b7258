//! What is not said of first pods while there is a crowd (rule pe-20).

use super::simulation::{ClusterEvent, PeSimulation};
use super::{launches, settle};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use std::time::Duration;
use streams_api::{JobStatus, PePhase, ProposedPlan, ResizeChanges};
use streams_kubernetes::queue::Outcome;

#[test]
fn many_pes_that_a_job_gets_are_a_crowd_of_their_own() {
    // PEs that it gets, the roll-out is over -> launches that are recorded when there is the first pod
    for (added, is_over, expected) in [(63, false, 1), (64, false, 0), (64, true, 1)] {
        let mut simulation = PeSimulation::new();
        simulation.edit_job(|status| {
            let rollout = status.rollout.get_or_insert_default();
            rollout.added = added;
            rollout.finished_at = is_over.then_some(MicroTime(Timestamp::UNIX_EPOCH));
        });
        simulation.reconcile();
        assert_eq!((launches(&simulation).0, simulation.pods().len()), (expected, 1), "{added} {is_over}");
        settle(&mut simulation);
        assert_eq!(launches(&simulation), (1, 0, Some(PePhase::Running)), "{added} {is_over}");
    }
    // PEs that it is about to get -> what is said when the commit takes more than 10 s
    for (added, expected) in [(63, Some(PePhase::Waiting)), (64, None)] {
        let mut simulation = PeSimulation::new();
        simulation.edit_job(|status| {
            let changes = Some(ResizeChanges { added, ..ResizeChanges::default() });
            (status.generation, status.rollout) = (None, None);
            status.proposal = Some(ProposedPlan { changes, ..ProposedPlan::default() });
        });
        simulation.wait(12);
        simulation.reconcile();
        assert_eq!(launches(&simulation), (0, 0, expected), "{added}");
    }
}

/// A PE in a crowd whose first pod runs, which it has not said, because another job is yet to be committed.
fn silent() -> PeSimulation {
    let mut simulation = PeSimulation::new();
    simulation.crowd(true);
    simulation.submit_another(true);
    simulation.reconcile();
    simulation.happen(ClusterEvent::Run);
    simulation.deliver_all();
    simulation.reconcile();
    assert_eq!((launches(&simulation), simulation.pods().len()), ((0, 0, None), 1));
    simulation
}

/// A PE whose first pod runs, without a crowd; its job has so many PEs.
fn silent_among(pes: u32) -> PeSimulation {
    let mut simulation = PeSimulation::new();
    simulation.edit_job(|status| status.rollout.get_or_insert_default().added = pes);
    simulation.reconcile();
    simulation.happen(ClusterEvent::Run);
    simulation.deliver_all();
    simulation.reconcile();
    simulation
}

/// The job has a proposal.
fn propose(status: &mut JobStatus) {
    status.proposal = Some(ProposedPlan::default());
}

/// The job has committed another generation than the first, which is not rolled out.
fn roll_out(status: &mut JobStatus) {
    status.generation = Some(1);
    let rollout = status.rollout.get_or_insert_default();
    (rollout.generation, rollout.finished_at) = (1, None);
}

#[test]
fn that_the_first_pod_runs_is_said_when_those_of_others_do_or_after_two_minutes() {
    type Change = fn(&mut PeSimulation);
    let table: [(&str, Change, bool); 14] = [
        ("nothing", |_| {}, false),
        ("the other job has no PEs", |simulation| simulation.submit_another(false), true),
        ("the other job is committed", |simulation| simulation.launch_another(2), false),
        (
            "one of its pods runs",
            |simulation| {
                simulation.launch_another(2);
                simulation.run_another(0);
            },
            false,
        ),
        (
            "all of its pods run",
            |simulation| {
                simulation.launch_another(2);
                [0, 1].into_iter().for_each(|pe| simulation.run_another(pe));
            },
            true,
        ),
        (
            "one of its pods is not placed for a moment",
            |simulation| {
                simulation.launch_another(2);
                simulation.wait(9);
            },
            false,
        ),
        (
            "one of its pods is not placed",
            |simulation| {
                simulation.launch_another(2);
                simulation.wait(10);
            },
            true,
        ),
        ("there is no crowd any more", |simulation| simulation.crowd(false), true),
        ("less than two minutes", |simulation| simulation.wait(110), false),
        ("two minutes", |simulation| simulation.wait(121), true),
        ("its own job is not resized", |simulation| simulation.edit_job(|_| {}), false),
        ("its own job is to be resized", |simulation| simulation.edit_job(propose), true),
        ("its own job is being resized", |simulation| simulation.edit_job(roll_out), true),
        (
            "that takes too long",
            |simulation| {
                simulation.edit_job(|status| {
                    roll_out(status);
                    status.rollout.get_or_insert_default().started_at = Some(MicroTime(Timestamp::UNIX_EPOCH));
                });
            },
            false,
        ),
    ];
    for (what, change, is_said) in table {
        let mut simulation = silent();
        change(&mut simulation);
        simulation.reconcile();
        let expected = if is_said { (1, 0, Some(PePhase::Running)) } else { (0, 0, None) };
        assert_eq!(launches(&simulation), expected, "{what}");
        settle(&mut simulation);
        assert_eq!(launches(&simulation), (1, 0, Some(PePhase::Running)), "{what}");
    }
}

#[test]
fn pes_of_a_job_that_are_a_crowd_of_their_own_let_each_other_go_first() {
    // PEs that the job gets, seconds since the commit -> that its first pod runs is said
    let table = [(63, 0, true), (64, 0, false), (64, 11, false), (64, 12, true), (1_000, 29, false), (1_000, 30, true)];
    for (pes, seconds, is_said) in table {
        let mut simulation = silent_among(pes);
        simulation.wait(seconds);
        simulation.reconcile();
        let expected = if is_said { (1, 0, Some(PePhase::Running)) } else { (0, 0, None) };
        assert_eq!(launches(&simulation), expected, "{pes} {seconds}");
        settle(&mut simulation);
        assert_eq!(launches(&simulation), (1, 0, Some(PePhase::Running)), "{pes} {seconds}");
    }
    // One that fails does not wait.
    let mut simulation = silent_among(64);
    simulation.happen(ClusterEvent::End { code: 1 });
    simulation.deliver_all();
    simulation.reconcile();
    assert_ne!(launches(&simulation).0, 0);
    // Nor does anybody once all of their pods run.
    let mut simulation = silent_among(64);
    for pe in 100..163 {
        simulation.run_beside(pe);
    }
    simulation.reconcile();
    assert_eq!(launches(&simulation), (1, 0, Some(PePhase::Running)));
}

#[test]
fn a_pe_that_lets_others_go_first_looks_now_and_then_whether_it_still_has_to() {
    let mut simulation = silent();
    for seconds in [10, 30, 30, 30, 20] {
        let outcome = simulation.reconcile();
        assert_eq!(outcome, Some(Outcome::Patiently(Duration::from_secs(seconds))));
        assert_eq!(launches(&simulation), (0, 0, None));
        simulation.wait(seconds);
    }
    simulation.reconcile();
    assert_eq!(launches(&simulation), (1, 0, Some(PePhase::Running)));
}

#[test]
fn a_pe_that_a_consistent_region_waits_for_lets_nobody_go_first() {
    let mut simulation = PeSimulation::new();
    simulation.join_region();
    simulation.crowd(true);
    simulation.submit_another(true);
    simulation.reconcile();
    simulation.happen(ClusterEvent::Run);
    simulation.deliver_all();
    simulation.reconcile();
    assert_eq!(launches(&simulation), (1, 0, Some(PePhase::Running)));
}

#[test]
fn what_becomes_of_a_first_pod_that_is_not_said_to_run_is_not_lost() {
    // what happens, the process dies before it has said it -> what it comes to
    let table = [
        (ClusterEvent::End { code: 1 }, (2, 1, Some(PePhase::Running))),
        (ClusterEvent::End { code: 0 }, (1, 0, Some(PePhase::Completed))),
        (ClusterEvent::Vanish, (1, 0, Some(PePhase::Stopped))),
        (ClusterEvent::Drain, (2, 1, Some(PePhase::Running))),
        (ClusterEvent::Stop(Some(1)), (1, 0, Some(PePhase::Stopped))),
        (ClusterEvent::Request(1), (2, 0, Some(PePhase::Running))),
    ];
    for (event, expected) in table {
        for dies in [false, true] {
            let mut simulation = silent();
            if dies {
                simulation.crash_after(0, false);
            }
            simulation.happen(event);
            simulation.deliver_all();
            simulation.reconcile();
            settle(&mut simulation);
            assert_eq!(launches(&simulation), expected, "{event:?} {dies}");
        }
    }
    // Nobody has seen it go: it is as if it had not been there (rule pe-20).
    let mut simulation = silent();
    simulation.happen_unseen(ClusterEvent::Vanish);
    settle(&mut simulation);
    assert_eq!(launches(&simulation), (1, 0, Some(PePhase::Running)));
}
