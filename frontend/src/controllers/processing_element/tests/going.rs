//! Pods that stay, that nobody finds, or that are hidden hold up nothing but what must wait for them.

use super::simulation::{ClusterEvent, PeSimulation};
use super::{launches, settle, work};
use streams_api::{PePhase, names};
use streams_kubernetes::queue::Outcome;

#[test]
fn the_successor_of_a_pod_that_other_containers_keep_does_not_wait_for_their_end() {
    let mut simulation = PeSimulation::new();
    settle(&mut simulation);
    simulation.happen(ClusterEvent::EndBesideOthers { code: 1 });
    work(&mut simulation);
    let going = simulation.pods().iter().filter(|pod| pod.metadata.deletion_timestamp.is_some()).count();
    assert_eq!((launches(&simulation).0, simulation.pods().len(), going), (2, 2, 1));
    settle(&mut simulation);
    assert_eq!((launches(&simulation).0, simulation.pods().len()), (2, 1));
}

#[test]
fn a_pod_that_may_not_be_deleted_holds_up_nothing_and_people_hear_of_it() {
    // what happens -> launch and phase, pods that are left
    let table = [
        (ClusterEvent::End { code: 1 }, (2, Some(PePhase::Running)), 2),
        (ClusterEvent::Stop(Some(1)), (1, Some(PePhase::Stopped)), 1),
        // The pod that runs is waited for.
        (ClusterEvent::Text { generation: false }, (2, Some(PePhase::Replacing)), 1),
    ];
    for (event, expected, left) in table {
        let mut simulation = PeSimulation::new();
        settle(&mut simulation);
        simulation.notices();
        simulation.happen(ClusterEvent::RefuseDeletions);
        simulation.happen(event);
        for _ in 0..6 {
            simulation.deliver_all();
            assert_eq!(simulation.reconcile(), None, "it is tried again");
            simulation.happen(ClusterEvent::Run);
        }
        let (launch, _, phase) = launches(&simulation);
        assert_eq!(((launch, phase), simulation.pods().len()), (expected, left), "{event:?}");
        let told: Vec<_> = simulation.notices();
        assert!(told.iter().any(|notice| notice.warning && notice.reason == "PodNotDeleted"), "{told:?}");
        settle(&mut simulation);
        assert!(simulation.pods().len() <= 1, "{event:?}");
    }
}

#[test]
fn a_pe_that_the_api_server_calls_gone_is_looked_at_again() {
    let mut simulation = PeSimulation::new();
    simulation.meanwhile(0, ClusterEvent::Remove);
    assert_eq!(simulation.reconcile(), Some(Outcome::Conflict));
    simulation.deliver_all();
    assert_eq!(simulation.reconcile(), Some(Outcome::Done));
}

#[test]
fn a_pod_that_lost_its_label_is_waited_for_like_any_other() {
    let mut simulation = PeSimulation::new();
    settle(&mut simulation);
    simulation.happen(ClusterEvent::Unlabel { going: false, label: names::LABEL_APP });
    simulation.happen(ClusterEvent::Text { generation: false });
    for _ in 0..10 {
        simulation.deliver_all();
        simulation.reconcile();
        assert_eq!(simulation.pods().len(), 1, "the other one has not ended");
    }
    simulation.happen(ClusterEvent::Finish { said: true, code: 0 });
    settle(&mut simulation);
    assert_eq!((simulation.pods().len(), launches(&simulation).0), (1, 2));
}

/// The mirror hears of it as of a pod that has ended.
#[test]
fn a_pod_that_loses_its_label_while_it_is_going_is_waited_for() {
    let mut simulation = PeSimulation::new();
    settle(&mut simulation);
    simulation.happen(ClusterEvent::Text { generation: false });
    simulation.deliver_all();
    simulation.reconcile();
    assert!(simulation.pods()[0].metadata.deletion_timestamp.is_some(), "its successor was asked for");
    simulation.happen(ClusterEvent::Unlabel { going: true, label: names::LABEL_APP });
    for _ in 0..10 {
        simulation.deliver_all();
        simulation.reconcile();
        assert_eq!(simulation.pods().len(), 1, "its kubelet has not ended it");
    }
    simulation.happen(ClusterEvent::Finish { said: false, code: 0 });
    settle(&mut simulation);
    assert_eq!((simulation.pods().len(), launches(&simulation).0), (1, 2));
}
