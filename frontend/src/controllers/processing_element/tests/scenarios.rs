//! Scenarios of a PE, with a crash at every call.

use super::simulation::{ClusterEvent, PeSimulation};
use std::borrow::Cow;
use streams_api::{PePhase, names};
use streams_kubernetes::queue::Outcome;

/// Until nothing changes, with no crash.
pub(super) fn settle(simulation: &mut PeSimulation) {
    simulation.calm_down();
    simulation.check_rest();
}

/// How often the PE was launched and restarted, and its phase.
pub(super) fn launches(simulation: &PeSimulation) -> (u64, u64, Option<PePhase>) {
    let status = simulation.pe().status.unwrap_or_default();
    (status.launch_count, status.restarts, status.phase)
}

/// What happens after the PE runs, and what it comes to.
struct Scenario {
    events: &'static [ClusterEvent],
    expected: (u64, u64, Option<PePhase>),
}

const SCENARIOS: [Scenario; 27] = [
    Scenario { events: &[], expected: (1, 0, Some(PePhase::Running)) },
    Scenario { events: &[ClusterEvent::End { code: 1 }], expected: (2, 1, Some(PePhase::Running)) },
    Scenario { events: &[ClusterEvent::End { code: 0 }], expected: (1, 0, Some(PePhase::Completed)) },
    Scenario { events: &[ClusterEvent::Vanish], expected: (1, 0, Some(PePhase::Stopped)) },
    Scenario { events: &[ClusterEvent::Policies(0), ClusterEvent::Evict], expected: (2, 1, Some(PePhase::Running)) },
    Scenario { events: &[ClusterEvent::LoseNode { said: false }], expected: (2, 1, Some(PePhase::Running)) },
    Scenario {
        events: &[ClusterEvent::Text { generation: true }, ClusterEvent::Commit],
        expected: (2, 0, Some(PePhase::Running)),
    },
    Scenario {
        events: &[ClusterEvent::End { code: 0 }, ClusterEvent::Request(1)],
        expected: (2, 0, Some(PePhase::Running)),
    },
    // The policies permit nothing; a suspended job is resumed nevertheless.
    Scenario {
        events: &[
            ClusterEvent::Suspend(true),
            ClusterEvent::Finish { said: false, code: 0 },
            ClusterEvent::Suspend(false),
        ],
        expected: (1, 0, Some(PePhase::Running)),
    },
    Scenario {
        events: &[ClusterEvent::End { code: 0 }, ClusterEvent::Suspend(true), ClusterEvent::Suspend(false)],
        expected: (1, 0, Some(PePhase::Completed)),
    },
    // A user stops the PE: whatever its text, its policies and its job are by then.
    Scenario { events: &[ClusterEvent::Stop(Some(1))], expected: (1, 0, Some(PePhase::Stopped)) },
    Scenario {
        events: &[
            ClusterEvent::Policies(255),
            ClusterEvent::Stop(Some(1)),
            ClusterEvent::Text { generation: true },
            ClusterEvent::Commit,
            ClusterEvent::Suspend(true),
            ClusterEvent::Suspend(false),
        ],
        expected: (1, 0, Some(PePhase::Stopped)),
    },
    // Somebody else ended the pod: it would have gone on.
    Scenario {
        events: &[ClusterEvent::Stop(Some(1)), ClusterEvent::Delete { newest: true }],
        expected: (1, 0, Some(PePhase::Stopped)),
    },
    Scenario { events: &[ClusterEvent::Delete { newest: true }], expected: (1, 0, Some(PePhase::Stopped)) },
    Scenario {
        events: &[
            ClusterEvent::Delete { newest: true },
            ClusterEvent::Finish { said: true, code: 0 },
            ClusterEvent::Text { generation: true },
            ClusterEvent::Commit,
        ],
        expected: (2, 0, Some(PePhase::Running)),
    },
    // Its operators are restartable.
    Scenario {
        events: &[ClusterEvent::Delete { newest: true }, ClusterEvent::Finish { said: true, code: 1 }],
        expected: (2, 1, Some(PePhase::Running)),
    },
    // Somebody has added a container to the pod.
    Scenario { events: &[ClusterEvent::EndBesideOthers { code: 1 }], expected: (2, 1, Some(PePhase::Running)) },
    Scenario { events: &[ClusterEvent::EndBesideOthers { code: 0 }], expected: (1, 0, Some(PePhase::Completed)) },
    Scenario {
        events: &[ClusterEvent::Policies(31), ClusterEvent::End { code: 1 }, ClusterEvent::Stop(Some(1))],
        expected: (1, 0, Some(PePhase::Stopped)),
    },
    // Asked for together, to stop counts.
    Scenario {
        events: &[ClusterEvent::Request(1), ClusterEvent::Stop(Some(1))],
        expected: (1, 0, Some(PePhase::Stopped)),
    },
    Scenario {
        events: &[ClusterEvent::Stop(Some(1)), ClusterEvent::Stop(None)],
        expected: (1, 0, Some(PePhase::Running)),
    },
    // It has done what it was to do, and nobody asks for another pod.
    Scenario {
        events: &[ClusterEvent::End { code: 0 }, ClusterEvent::Stop(Some(1))],
        expected: (1, 0, Some(PePhase::Completed)),
    },
    // It has done what it was to do, whatever its text is by now.
    Scenario {
        events: &[ClusterEvent::End { code: 0 }, ClusterEvent::Text { generation: true }, ClusterEvent::Commit],
        expected: (1, 0, Some(PePhase::Completed)),
    },
    // Nobody writes its newest text.
    Scenario {
        events: &[ClusterEvent::Older(Some(1)), ClusterEvent::Policies(31), ClusterEvent::End { code: 1 }],
        expected: (2, 1, Some(PePhase::Running)),
    },
    Scenario { events: &[ClusterEvent::MakeAgain], expected: (2, 0, Some(PePhase::Running)) },
    Scenario { events: &[ClusterEvent::MakeAgain, ClusterEvent::Collect], expected: (2, 0, Some(PePhase::Running)) },
    Scenario {
        events: &[ClusterEvent::End { code: 0 }, ClusterEvent::MakeAgain],
        expected: (2, 0, Some(PePhase::Running)),
    },
];

#[test]
fn every_crash_is_followed_by_the_same_end() {
    for (number, scenario) in SCENARIOS.iter().enumerate() {
        let mut ends = 0;
        for calls in 0..12 {
            for after_effect in [false, true] {
                let mut simulation = PeSimulation::new();
                settle(&mut simulation);
                for event in scenario.events {
                    simulation.happen(*event);
                }
                simulation.deliver_all();
                simulation.crash_after(calls, after_effect);
                ends += usize::from(simulation.reconcile().is_some());
                settle(&mut simulation);
                assert_eq!(
                    launches(&simulation),
                    scenario.expected,
                    "scenario {number}, crash after {calls} calls ({after_effect})"
                );
            }
        }
        assert!(ends > 0, "scenario {number}: the last crashes come too late to matter");
    }
}

#[test]
fn a_pod_that_ended_while_no_frontend_ran_counts_as_failed() {
    // what happened, policies (0: as the operators permit, 1: failed pods stay down) -> launch, restarts, phase
    let table = [
        (ClusterEvent::Vanish, 16, (2, 1, Some(PePhase::Running))),
        (ClusterEvent::Vanish, 17, (1, 0, Some(PePhase::Failed))),
        (ClusterEvent::LoseNode { said: false }, 16, (2, 1, Some(PePhase::Running))),
        (ClusterEvent::End { code: 0 }, 16, (1, 0, Some(PePhase::Completed))),
    ];
    for (event, policies, expected) in table {
        let mut simulation = PeSimulation::new();
        simulation.happen(ClusterEvent::Policies(policies));
        settle(&mut simulation);
        simulation.happen_unseen(event);
        settle(&mut simulation);
        assert_eq!(launches(&simulation), expected, "{event:?} {policies}");
        if event == ClusterEvent::Vanish {
            let told = simulation.notices().into_iter().any(|notice| notice.reason == "PodEndUnknown");
            assert!(told, "{policies}");
        }
    }
}

/// Until nothing more is written, while no time passes.
pub(super) fn work(simulation: &mut PeSimulation) {
    for _ in 0..8 {
        simulation.deliver_all();
        simulation.reconcile();
    }
}

/// How many seconds it takes until the PE has come to this launch.
fn seconds_until_launch(simulation: &mut PeSimulation, launch_count: u64) -> u64 {
    for seconds in 0..=20 {
        work(simulation);
        if launches(simulation).0 == launch_count {
            return seconds;
        }
        simulation.wait(1);
    }
    panic!("there is no launch {launch_count}: {:?}", launches(simulation));
}

#[test]
fn the_next_pod_waits_five_seconds_for_a_newer_text() {
    // what makes another pod necessary
    let table = [
        &[ClusterEvent::Policies(31), ClusterEvent::End { code: 1 }][..],
        &[ClusterEvent::Policies(31), ClusterEvent::Vanish],
        &[ClusterEvent::Request(1)],
    ];
    for events in table {
        // the text is there after so many seconds -> when the next pod is there
        for (written, expected) in [(Some(0), 0), (Some(3), 3), (Some(9), 5), (None, 5)] {
            let mut simulation = PeSimulation::new();
            settle(&mut simulation);
            simulation.happen(ClusterEvent::Older(Some(1)));
            events.iter().for_each(|event| simulation.happen(*event));
            let mut seconds = 0;
            loop {
                if written == Some(seconds) {
                    simulation.happen(ClusterEvent::Renew(true));
                }
                work(&mut simulation);
                if launches(&simulation).0 == 2 || seconds > 20 {
                    break;
                }
                simulation.wait(1);
                seconds += 1;
            }
            assert_eq!(seconds, expected, "{events:?} {written:?}");
            settle(&mut simulation);
            assert_eq!(launches(&simulation).0, 2);
            // The pod after it waits as well.
            simulation.happen(ClusterEvent::Renew(false));
            simulation.happen(ClusterEvent::Request(2));
            assert_eq!(seconds_until_launch(&mut simulation, 3), 5, "{events:?} {written:?}");
        }
    }
}

#[test]
fn what_a_pe_says_of_its_text_counts_for_that_text_and_for_the_generation_that_changed_it() {
    let newest = [ClusterEvent::Older(Some(1)), ClusterEvent::Renew(true)];
    // what happens before a user asks for a restart -> how long the next pod waits
    let table = [
        (&[][..], 0),
        (&newest, 0),
        (&[ClusterEvent::Older(Some(1)), ClusterEvent::Pretend], 5),
        (&[newest[0], newest[1], ClusterEvent::Older(Some(2))], 5),
        (&[newest[0], newest[1], ClusterEvent::Older(Some(2)), ClusterEvent::Renew(true)], 0),
        (&[newest[0], newest[1], ClusterEvent::Older(None)], 0),
    ];
    for (events, expected) in table {
        let mut simulation = PeSimulation::new();
        settle(&mut simulation);
        events.iter().for_each(|event| simulation.happen(*event));
        simulation.happen(ClusterEvent::Request(1));
        assert_eq!(seconds_until_launch(&mut simulation, 2), expected, "{events:?}");
    }
}

#[test]
fn the_five_seconds_begin_when_another_pod_is_needed_and_not_when_the_last_one_ended() {
    const DOWN: ClusterEvent = ClusterEvent::Policies(17);
    // what happened long before, and what makes another pod necessary then
    let table = [
        (&[ClusterEvent::End { code: 0 }][..], ClusterEvent::Request(1)),
        (&[DOWN, ClusterEvent::End { code: 1 }], ClusterEvent::Request(1)),
        (&[DOWN, ClusterEvent::End { code: 1 }], ClusterEvent::Policies(18)),
        (&[DOWN, ClusterEvent::Vanish], ClusterEvent::Request(1)),
        (&[ClusterEvent::Suspend(true)], ClusterEvent::Suspend(false)),
        (&[ClusterEvent::Stop(Some(1))], ClusterEvent::Stop(None)),
        (&[ClusterEvent::Stop(Some(1))], ClusterEvent::Request(1)),
        (&[ClusterEvent::Request(1), ClusterEvent::TakeBack], ClusterEvent::Request(2)),
        (&[ClusterEvent::Request(1), ClusterEvent::TakeBack], ClusterEvent::Policies(18)),
    ];
    for (before, then) in table {
        let mut simulation = PeSimulation::new();
        settle(&mut simulation);
        simulation.happen(ClusterEvent::Older(Some(1)));
        for event in before {
            simulation.happen(*event);
            work(&mut simulation);
            simulation.happen(ClusterEvent::Finish { said: true, code: 0 });
            simulation.wait(3);
        }
        work(&mut simulation);
        simulation.wait(86_400);
        work(&mut simulation);
        assert_eq!(launches(&simulation).0, 1, "{before:?}");
        simulation.happen(then);
        if before.contains(&ClusterEvent::TakeBack) {
            simulation.happen(ClusterEvent::End { code: 1 });
        }
        assert_eq!(seconds_until_launch(&mut simulation, 2), 5, "{before:?} {then:?}");
    }
}

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
fn people_hear_of_what_happens() {
    let mut simulation = PeSimulation::new();
    settle(&mut simulation);
    let announced = |simulation: &PeSimulation| -> Vec<(bool, Cow<'static, str>)> {
        simulation.notices().into_iter().map(|notice| (notice.warning, notice.reason)).collect()
    };
    assert_eq!(announced(&simulation), [], "the job tells of the first pods");
    simulation.happen(ClusterEvent::End { code: 1 });
    settle(&mut simulation);
    assert_eq!(announced(&simulation), [(true, "PodFailed".into()), (false, "Restarting".into())]);
    simulation.happen(ClusterEvent::End { code: 1 });
    settle(&mut simulation);
    let expected = [(true, "PodFailed".into()), (true, "BackOff".into()), (false, "Restarting".into())];
    assert_eq!(announced(&simulation), expected);
    simulation.happen(ClusterEvent::Vanish);
    settle(&mut simulation);
    assert_eq!(announced(&simulation), [(false, "PodDeleted".into()), (true, "NotRestarted".into())]);
}

#[test]
fn a_refused_pod_is_shown_and_tried_again() {
    let mut simulation = PeSimulation::new();
    simulation.happen(ClusterEvent::Refuse(true));
    assert_eq!(simulation.reconcile(), None);
    simulation.deliver_all();
    let status = simulation.pe().status.unwrap();
    assert_eq!(status.phase, Some(PePhase::Waiting));
    assert_eq!(status.conditions[0].reason, "PodRefused");
    assert_eq!(simulation.notices().last().unwrap().reason, "PodRefused");
    let version = simulation.version();
    assert_eq!(simulation.reconcile(), None);
    assert_eq!(simulation.version(), version, "the same refusal is written once");
    settle(&mut simulation);
    assert_eq!(simulation.pods().len(), 1);
}

#[test]
fn a_refusal_whose_words_change_is_told_once_in_a_while_and_tried_again_when_the_queue_says_so() {
    let mut simulation = PeSimulation::new();
    simulation.happen(ClusterEvent::RefuseInOtherWords);
    simulation.reconcile();
    simulation.deliver_all();
    let first = simulation.pe().status.unwrap().conditions[0].message.clone();
    let version = simulation.version();
    for _ in 0..5 {
        assert_eq!(simulation.reconcile(), None, "the queue says when it is tried again");
        simulation.deliver_all();
    }
    assert_eq!(simulation.version(), version, "nothing is written that would bring the next look");
    simulation.wait(60);
    assert_eq!(simulation.reconcile(), None);
    assert_ne!(simulation.pe().status.unwrap().conditions[0].message, first);
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

#[test]
fn a_pe_in_a_pool_moves_when_its_job_says_so_and_not_with_the_pool() {
    let mut simulation = PeSimulation::new();
    simulation.change_pool("a");
    simulation.place_in_pool("a");
    settle(&mut simulation);
    let rest = |simulation: &mut PeSimulation| {
        for _ in 0..5 {
            simulation.deliver_all();
            simulation.reconcile();
        }
        (launches(simulation), simulation.hosts())
    };
    let on = |launch, host: &str| ((launch, 0, Some(PePhase::Running)), vec![Some(host.to_owned())]);
    simulation.change_pool("b");
    assert_eq!(rest(&mut simulation), on(1, "a"));
    // It would have to move in a moment.
    simulation.happen(ClusterEvent::Request(1));
    assert_eq!(rest(&mut simulation), on(1, "a"));
    simulation.place_in_pool("b");
    settle(&mut simulation);
    assert_eq!(rest(&mut simulation), on(2, "b"));
    // The mirror shows the PE before the pool.
    simulation.place_in_pool("c");
    simulation.happen(ClusterEvent::Text { generation: false });
    assert_eq!(rest(&mut simulation), on(2, "b"));
    simulation.change_pool("c");
    settle(&mut simulation);
    assert_eq!(rest(&mut simulation), on(3, "c"));
    assert_eq!(simulation.pe().status.unwrap().placement_hash, simulation.pe().spec.placement_hash);
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

#[test]
fn a_pod_counts_as_running_after_the_time_that_its_job_says() {
    let mut simulation = PeSimulation::new();
    simulation.happen(ClusterEvent::MinReady(30));
    let step = |simulation: &mut PeSimulation| {
        for _ in 0..6 {
            simulation.deliver_all();
            simulation.reconcile();
        }
        launches(simulation)
    };
    step(&mut simulation);
    simulation.happen(ClusterEvent::Run);
    assert_eq!(step(&mut simulation), (1, 0, Some(PePhase::Starting)));
    simulation.wait(29);
    assert_eq!(step(&mut simulation), (1, 0, Some(PePhase::Starting)));
    // An edit counts from then on, but for a pod that counts already.
    simulation.happen(ClusterEvent::MinReady(60));
    simulation.wait(1);
    assert_eq!(step(&mut simulation), (1, 0, Some(PePhase::Starting)));
    simulation.happen(ClusterEvent::MinReady(30));
    assert_eq!(step(&mut simulation), (1, 0, Some(PePhase::Running)));
    simulation.happen(ClusterEvent::MinReady(60));
    assert_eq!(step(&mut simulation), (1, 0, Some(PePhase::Running)));
}

/// A crash at every call while the pod is deleted, and while it starts again.
#[test]
fn a_stopped_pe_goes_on_when_that_is_taken_back_or_a_restart_is_requested_whichever_call_is_the_last() {
    for goes_on in [ClusterEvent::Stop(None), ClusterEvent::Request(2)] {
        for calls in 0..8 {
            for after_effect in [false, true] {
                for crash_on_start in [false, true] {
                    let mut simulation = PeSimulation::new();
                    settle(&mut simulation);
                    simulation.notices();
                    simulation.happen(ClusterEvent::Stop(Some(1)));
                    simulation.deliver_all();
                    if !crash_on_start {
                        simulation.crash_after(calls, after_effect);
                    }
                    settle(&mut simulation);
                    assert!(simulation.pods().is_empty());
                    assert_eq!(launches(&simulation), (1, 0, Some(PePhase::Stopped)));
                    let told: Vec<_> = simulation.notices().into_iter().map(|notice| notice.reason).collect();
                    assert!(told.iter().filter(|reason| *reason == "Stopped").count() <= 1, "{told:?}");
                    simulation.happen(goes_on);
                    simulation.deliver_all();
                    if crash_on_start {
                        simulation.crash_after(calls, after_effect);
                    }
                    settle(&mut simulation);
                    assert_eq!(launches(&simulation), (2, 0, Some(PePhase::Running)));
                    // The same request again stops it only if it was taken back meanwhile.
                    simulation.happen(ClusterEvent::Stop(Some(1)));
                    settle(&mut simulation);
                    let is_stopped = launches(&simulation).2 == Some(PePhase::Stopped);
                    assert_eq!(is_stopped, goes_on == ClusterEvent::Stop(None));
                }
            }
        }
    }
}

/// A crash at every call while the pod is deleted, and while it starts again.
#[test]
fn a_suspended_job_has_no_pods_and_resumes_whichever_call_is_the_last() {
    for calls in 0..8 {
        for after_effect in [false, true] {
            for crash_on_resume in [false, true] {
                let mut simulation = PeSimulation::new();
                settle(&mut simulation);
                simulation.notices();
                simulation.happen(ClusterEvent::Suspend(true));
                simulation.deliver_all();
                if !crash_on_resume {
                    simulation.crash_after(calls, after_effect);
                }
                for _ in 0..6 {
                    simulation.reconcile();
                    simulation.happen(ClusterEvent::Finish { said: true, code: 137 });
                    simulation.deliver_all();
                }
                assert!(simulation.pods().is_empty());
                assert_eq!(launches(&simulation), (1, 0, Some(PePhase::Suspended)));
                simulation.happen(ClusterEvent::Suspend(false));
                simulation.deliver_all();
                if crash_on_resume {
                    simulation.crash_after(calls, after_effect);
                }
                settle(&mut simulation);
                assert_eq!(launches(&simulation), (2, 0, Some(PePhase::Running)));
            }
        }
    }
}

/// Nothing is left of its pods, and the time of the newest commit says nothing of a PE that has waited over it.
#[test]
fn a_pe_that_is_made_again_while_its_job_is_suspended_does_not_begin_anew_after_another_commit() {
    let mut simulation = PeSimulation::new();
    settle(&mut simulation);
    simulation.happen(ClusterEvent::Suspend(true));
    for _ in 0..6 {
        simulation.deliver_all();
        simulation.reconcile();
        simulation.happen(ClusterEvent::Finish { said: true, code: 137 });
    }
    assert!(simulation.pods().is_empty());
    simulation.happen(ClusterEvent::MakeAgain);
    simulation.commit_after_making_again();
    simulation.reconcile();
    assert_eq!(launches(&simulation), (0, 0, Some(PePhase::Suspended)));
    simulation.happen(ClusterEvent::Suspend(false));
    settle(&mut simulation);
    assert_eq!(launches(&simulation), (2, 0, Some(PePhase::Running)));
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
        assert_eq!(*reads.lock().unwrap(), expected, "{what}");
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
