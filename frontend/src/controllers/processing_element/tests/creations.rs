//! There are never two pods of one launch, and no pod is taken for another, whoever created it and whoever heard of it.

use super::simulation::{ClusterEvent, PeSimulation};
use super::{launches, settle};
use streams_api::PePhase;

#[test]
fn the_first_pod_survives_a_crash_at_every_call() {
    for calls in 0..8 {
        for after_effect in [false, true] {
            let mut simulation = PeSimulation::new();
            simulation.crash_after(calls, after_effect);
            simulation.reconcile();
            settle(&mut simulation);
            assert_eq!(
                launches(&simulation),
                (1, 0, Some(PePhase::Running)),
                "crash after {calls} calls ({after_effect})"
            );
        }
    }
}

/// Whatever the controller has read before its PE is deleted and created again, and whichever pod it creates for the
/// PE that is gone: the new one gets a pod of its own.
#[test]
fn a_pod_of_an_earlier_pe_is_not_taken_for_one_of_the_pe_that_was_made_again() {
    let mut made_again = 0;
    for calls in 0..8 {
        let mut simulation = PeSimulation::new();
        let before = simulation.pe().metadata.uid;
        simulation.meanwhile(calls, ClusterEvent::MakeAgain);
        simulation.reconcile();
        let is_made_again = simulation.pe().metadata.uid != before;
        made_again += u32::from(is_made_again);
        settle(&mut simulation);
        let launch_count = if is_made_again { 2 } else { 1 };
        assert_eq!(launches(&simulation), (launch_count, 0, Some(PePhase::Running)), "before call {calls}");
    }
    assert_eq!(made_again, 3, "before the PE is read, before the pod is created, before that is recorded");
}

/// The mirror of pods lags behind that of PEs.
#[test]
fn a_pe_that_was_made_again_waits_for_a_pod_that_the_mirror_does_not_show() {
    let mut simulation = PeSimulation::new();
    simulation.reconcile();
    simulation.happen(ClusterEvent::Run);
    simulation.happen(ClusterEvent::MakeAgain);
    simulation.deliver(usize::MAX, 0);
    simulation.reconcile();
    assert_eq!(simulation.pods().len(), 1);
    settle(&mut simulation);
    assert_eq!(launches(&simulation), (2, 0, Some(PePhase::Running)));
}

/// A pod was created, the controller does not know of it, and a user asks for a restart: the pod ends before the next
/// one is created.
fn is_restarted_once(mut simulation: PeSimulation) {
    settle(&mut simulation);
    assert_eq!(launches(&simulation), (2, 0, Some(PePhase::Running)));
}

#[test]
fn a_deposed_controller_does_not_run_ahead_of_the_pod_of_another_one() {
    let mut simulation = PeSimulation::new();
    simulation.depose();
    simulation.crash_after(2, false);
    simulation.reconcile();
    assert_eq!(simulation.pods().len(), 1);
    simulation.happen(ClusterEvent::Request(0));
    simulation.reconcile_deposed();
    is_restarted_once(simulation);
}

#[test]
fn a_controller_does_not_run_ahead_of_a_pod_whose_creation_was_not_answered() {
    let mut simulation = PeSimulation::new();
    simulation.lose_answer_after(1, true);
    simulation.reconcile();
    assert_eq!(simulation.pods().len(), 1);
    simulation.happen(ClusterEvent::Request(0));
    // The mirror of pods lags behind that of PEs.
    simulation.deliver(usize::MAX, 0);
    simulation.reconcile();
    is_restarted_once(simulation);
}

#[test]
fn a_pod_that_is_deleted_before_its_creation_was_answered_was_created() {
    let mut simulation = PeSimulation::new();
    simulation.lose_answer_after(1, true);
    simulation.reconcile();
    simulation.happen(ClusterEvent::Run);
    simulation.happen(ClusterEvent::Delete { newest: true });
    assert_eq!(simulation.pods().len(), 1, "its kubelet has not ended it");
    // The mirror of pods lags behind that of PEs.
    simulation.deliver(usize::MAX, 0);
    simulation.reconcile();
    assert_eq!(simulation.pe().status.unwrap().created_launch_count, 1);
    settle(&mut simulation);
    assert_eq!(launches(&simulation), (1, 0, Some(PePhase::Stopped)));
}

/// It is asked for by a controller that dies; the deposed one does not find it, and before it writes that, the one that
/// leads creates it.
#[test]
fn a_pod_that_is_created_after_it_was_looked_for_is_not_taken_for_one_that_is_gone() {
    let mut simulation = PeSimulation::new();
    simulation.crash_after(1, false);
    simulation.reconcile();
    simulation.happen(ClusterEvent::Request(0));
    simulation.deliver_all();
    simulation.depose();
    simulation.reconcile_deposed_around(0);
    let status = simulation.pe().status.unwrap();
    assert_eq!((status.created_launch_count, status.last_termination), (1, None));
    settle(&mut simulation);
    assert_eq!(launches(&simulation), (1, 0, Some(PePhase::Running)));
}

/// It has heard that the pod is to be created, and of nothing since.
#[test]
fn a_deposed_controller_does_not_bring_back_a_pod_that_has_ended() {
    let mut simulation = PeSimulation::new();
    simulation.crash_after(1, false);
    simulation.reconcile();
    simulation.depose();
    settle(&mut simulation);
    simulation.happen(ClusterEvent::Vanish);
    settle(&mut simulation);
    simulation.reconcile_deposed();
    assert!(simulation.pods().is_empty());
    settle(&mut simulation);
    assert_eq!(launches(&simulation), (1, 0, Some(PePhase::Stopped)));
}

#[test]
fn a_pod_that_somebody_made_under_the_same_name_is_not_taken_for_the_one_that_is_gone() {
    let mut simulation = PeSimulation::new();
    settle(&mut simulation);
    simulation.happen(ClusterEvent::Imitate);
    // The mirror has heard that the pod is gone, and not of the other one.
    simulation.deliver(0, 1);
    simulation.reconcile();
    assert_eq!(launches(&simulation), (1, 0, Some(PePhase::Stopped)));
}

/// The first pod is gone before its creation was recorded; a frontend has seen that, so it ended like any other.
#[test]
fn a_first_pod_that_was_seen_is_not_created_again_as_if_it_had_never_been() {
    let table =
        [(ClusterEvent::Drain, (2, 1, Some(PePhase::Running))), (ClusterEvent::Vanish, (1, 0, Some(PePhase::Stopped)))];
    for (event, expected) in table {
        // The one that created it dies; or it waits, in a crowd, for the pod to run.
        for is_crowded in [false, true] {
            let mut simulation = PeSimulation::new();
            simulation.crowd(is_crowded);
            if !is_crowded {
                simulation.crash_after(1, true);
            }
            simulation.reconcile();
            assert_eq!((launches(&simulation).0, simulation.pods().len()), (0, 1));
            simulation.deliver_all();
            simulation.happen(event);
            settle(&mut simulation);
            assert_eq!(launches(&simulation), expected, "{event:?} {is_crowded}");
        }
    }
}

/// The first pod of a launch ends unnoticed, and the second one, of the same name, takes its place.
#[test]
fn the_end_of_an_unnoticed_pod_is_not_taken_for_that_of_the_next_one_of_its_name() {
    // It was drained and gone before its creation was noted, while no frontend ran; somebody deletes the second one.
    let mut simulation = PeSimulation::new();
    simulation.crash_after(1, true);
    simulation.reconcile();
    simulation.happen_unseen(ClusterEvent::Drain);
    simulation.reconcile();
    assert_eq!(simulation.pods().len(), 1);
    simulation.happen(ClusterEvent::Vanish);
    settle(&mut simulation);
    assert_eq!(launches(&simulation), (1, 0, Some(PePhase::Stopped)));
    // The mirror hears only later that it failed, while the second one runs.
    let mut simulation = PeSimulation::new();
    simulation.lose_answer_after(1, true);
    simulation.reconcile();
    for event in [ClusterEvent::Run, ClusterEvent::End { code: 1 }, ClusterEvent::Vanish] {
        simulation.happen(event);
    }
    simulation.reconcile();
    for _ in 0..4 {
        simulation.deliver(1, 1);
        simulation.reconcile();
    }
    settle(&mut simulation);
    assert_eq!(launches(&simulation), (1, 0, Some(PePhase::Running)));
}

#[test]
fn the_api_server_is_asked_for_a_pe_before_its_first_pod_unless_this_process_created_it() {
    // created by this process -> calls until the status says that the pod was created
    for (is_newborn, calls) in [(true, 2), (false, 3)] {
        let mut simulation = PeSimulation::new();
        if is_newborn {
            simulation.bear();
        }
        simulation.reconcile();
        assert_eq!(simulation.pe().status.unwrap().created_launch_count, 1);
        assert_eq!(simulation.calls(), calls, "{is_newborn}");
    }
}

#[test]
fn a_restart_asks_the_api_server_for_nothing_that_this_process_knows() {
    // what happens while the old pod goes -> what is asked for before the new one
    let table: [(&str, fn(&mut PeSimulation), &[&str]); 3] = [
        ("it leads all the time, and hears of the deletion", |_| (), &[]),
        ("another one leads, which has heard of the deletion", PeSimulation::depose, &["ProcessingElement"]),
        (
            "one leads that has just begun",
            |simulation| simulation.happen_unseen(ClusterEvent::Commit),
            &["ProcessingElement", "Pod"],
        ),
    ];
    for (what, meanwhile, expected) in table {
        let mut simulation = PeSimulation::new();
        settle(&mut simulation);
        simulation.happen(ClusterEvent::Text { generation: false });
        simulation.deliver_all();
        simulation.reconcile();
        simulation.deliver_all();
        simulation.happen(ClusterEvent::Finish { said: false, code: 0 });
        simulation.deliver_all();
        meanwhile(&mut simulation);
        let reads = simulation.reads();
        simulation.reconcile();
        assert_eq!(simulation.pe().status.unwrap().created_launch_count, 2, "{what}");
        assert_eq!(*reads.lock(), expected, "{what}");
    }
}

#[test]
fn a_newborn_pe_whose_launch_was_recorded_unheard_gets_no_pod_again() {
    let mut simulation = PeSimulation::new();
    simulation.bear();
    // The status was written, and the answer was lost.
    simulation.lose_answer_after(1, true);
    simulation.reconcile();
    assert_eq!(simulation.pe().status.unwrap().created_launch_count, 1);
    simulation.happen(ClusterEvent::Vanish);
    simulation.deliver(0, usize::MAX);
    simulation.reconcile();
    assert!(simulation.pods().is_empty(), "it would be a second pod of the first launch");
    simulation.calm_down();
    simulation.check_rest();
}
