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
fn that_the_first_pod_runs_is_said_when_others_have_theirs_or_after_a_minute() {
    type Change = fn(&mut PeSimulation);
    let table: [(&str, Change, bool); 9] = [
        ("nothing", |_| {}, false),
        ("the other job is committed", |simulation| simulation.submit_another(false), true),
        ("there is no crowd any more", |simulation| simulation.crowd(false), true),
        ("less than a minute", |simulation| simulation.wait(50), false),
        ("a minute", |simulation| simulation.wait(61), true),
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
fn a_pe_that_lets_others_go_first_looks_every_10_s_whether_it_still_has_to() {
    let mut simulation = silent();
    let is_soon = |delay: Duration| delay > Duration::ZERO && delay <= Duration::from_secs(10);
    for look in 0..6 {
        let outcome = simulation.reconcile();
        assert!(matches!(outcome, Some(Outcome::Patiently(delay)) if is_soon(delay)), "{look}: {outcome:?}");
        assert_eq!(launches(&simulation), (0, 0, None), "{look}");
        simulation.wait(10);
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
