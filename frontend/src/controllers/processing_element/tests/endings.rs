//! How a pod counts that ended unseen or was deleted, and how soon the next one follows.

use super::simulation::{ClusterEvent, PeSimulation};
use super::{launches, settle};
use streams_api::PePhase;

#[test]
fn a_pod_that_failed_and_is_gone_before_anybody_looks_counts_as_failed() {
    let mut simulation = PeSimulation::new();
    settle(&mut simulation);
    simulation.happen(ClusterEvent::End { code: 1 });
    simulation.deliver_all();
    simulation.happen(ClusterEvent::Vanish);
    settle(&mut simulation);
    assert_eq!(launches(&simulation), (2, 1, Some(PePhase::Running)));
}

#[test]
fn a_pod_that_was_deleted_shortly_before_its_node_went_counts_as_lost_with_it() {
    let mut simulation = PeSimulation::new();
    settle(&mut simulation);
    // Failed pods are kept; one is on the same node.
    for event in [ClusterEvent::Policies(2), ClusterEvent::Evict] {
        simulation.happen(event);
    }
    settle(&mut simulation);
    for event in [ClusterEvent::Vanish, ClusterEvent::LoseNode { said: false }] {
        simulation.happen(event);
    }
    settle(&mut simulation);
    assert_eq!(launches(&simulation), (3, 2, Some(PePhase::Running)));
}

#[test]
fn a_pod_that_was_not_created_yet_needs_no_restart() {
    let mut simulation = PeSimulation::new();
    simulation.happen(ClusterEvent::Refuse(true));
    simulation.reconcile();
    for request in 0..3 {
        simulation.happen(ClusterEvent::Request(request));
        simulation.deliver_all();
        simulation.reconcile();
        let status = simulation.pe().status.unwrap();
        let acted_on = status.restart_requested.clone();
        assert_eq!((status.launch_count, acted_on), (1, Some(request.to_string())));
    }
    settle(&mut simulation);
    assert_eq!(launches(&simulation), (1, 0, Some(PePhase::Running)));
}

#[test]
fn a_pe_that_fails_again_and_again_is_restarted_ever_more_slowly() {
    let mut simulation = PeSimulation::new();
    settle(&mut simulation);
    let mut delays = Vec::new();
    for _ in 0..8 {
        simulation.happen(ClusterEvent::End { code: 1 });
        simulation.deliver_all();
        let mut waited = 0;
        let launch_count = launches(&simulation).0;
        loop {
            simulation.reconcile();
            simulation.deliver_all();
            if launches(&simulation).0 > launch_count {
                break;
            }
            simulation.wait(10);
            waited += 10;
        }
        delays.push(waited);
        settle(&mut simulation);
    }
    assert_eq!(delays, [0, 10, 20, 40, 80, 160, 300, 300]);
    simulation.wait(600);
    simulation.happen(ClusterEvent::End { code: 1 });
    simulation.deliver_all();
    simulation.reconcile();
    assert_eq!(launches(&simulation).0, 10, "after a long run the next restart is at once");
}

#[test]
fn a_pod_that_completed_before_somebody_deleted_it_stays_completed() {
    // The frontend has recorded its end by then, or has been away.
    for is_recorded in [false, true] {
        let mut simulation = PeSimulation::new();
        settle(&mut simulation);
        simulation.happen(ClusterEvent::End { code: 0 });
        if is_recorded {
            settle(&mut simulation);
        }
        simulation.wait(1);
        simulation.happen(ClusterEvent::Delete { newest: true });
        settle(&mut simulation);
        assert!(simulation.pods().is_empty());
        assert_eq!(launches(&simulation), (1, 0, Some(PePhase::Completed)), "{is_recorded}");
    }
}
