//! What may become of a PE, with a crash at every call.

use super::world::{Event, World};
use std::borrow::Cow;
use streams_api::PePhase;

/// Until nothing changes, with no crash.
fn settle(world: &mut World) {
    world.calm_down();
    world.check_rest();
}

fn launches(world: &World) -> (u64, u64, Option<PePhase>) {
    let status = world.pe().status.unwrap_or_default();
    (status.launch_count, status.restarts, status.phase)
}

/// What happens after the PE runs, and what it comes to.
struct Scenario {
    events: &'static [Event],
    expected: (u64, u64, Option<PePhase>),
}

const SCENARIOS: [Scenario; 11] = [
    Scenario { events: &[], expected: (1, 0, Some(PePhase::Running)) },
    Scenario { events: &[Event::End { code: 1 }], expected: (2, 1, Some(PePhase::Running)) },
    Scenario { events: &[Event::End { code: 0 }], expected: (1, 0, Some(PePhase::Completed)) },
    Scenario { events: &[Event::Vanish], expected: (1, 0, Some(PePhase::Stopped)) },
    Scenario { events: &[Event::Policies(0), Event::Evict], expected: (2, 1, Some(PePhase::Running)) },
    Scenario { events: &[Event::LoseNode { said: false }], expected: (2, 1, Some(PePhase::Running)) },
    Scenario { events: &[Event::Text { generation: true }, Event::Commit], expected: (2, 0, Some(PePhase::Running)) },
    Scenario { events: &[Event::End { code: 0 }, Event::Request(1)], expected: (2, 0, Some(PePhase::Running)) },
    Scenario { events: &[Event::MakeAgain], expected: (2, 0, Some(PePhase::Running)) },
    Scenario { events: &[Event::MakeAgain, Event::Collect], expected: (2, 0, Some(PePhase::Running)) },
    Scenario { events: &[Event::End { code: 0 }, Event::MakeAgain], expected: (2, 0, Some(PePhase::Running)) },
];

#[test]
fn every_crash_is_followed_by_the_same_end() {
    for (number, scenario) in SCENARIOS.iter().enumerate() {
        let mut ends = 0;
        for calls in 0..12 {
            for after_effect in [false, true] {
                let mut world = World::new();
                settle(&mut world);
                for event in scenario.events {
                    world.happen(*event);
                }
                world.deliver_all();
                world.crash_after(calls, after_effect);
                ends += usize::from(world.reconcile().is_some());
                settle(&mut world);
                assert_eq!(
                    launches(&world),
                    scenario.expected,
                    "scenario {number}, crash after {calls} calls ({after_effect})"
                );
            }
        }
        assert!(ends > 0, "scenario {number}: the last crashes come too late to matter");
    }
}

#[test]
fn the_first_pod_survives_a_crash_at_every_call() {
    for calls in 0..8 {
        for after_effect in [false, true] {
            let mut world = World::new();
            world.crash_after(calls, after_effect);
            world.reconcile();
            settle(&mut world);
            assert_eq!(launches(&world), (1, 0, Some(PePhase::Running)), "crash after {calls} calls ({after_effect})");
        }
    }
}

/// Whatever the controller has read before its PE is deleted and created again, and whichever pod it creates for the
/// PE that is gone: the new one gets a pod of its own.
#[test]
fn a_pod_of_an_earlier_pe_is_not_taken_for_one_of_the_pe_that_was_made_again() {
    let mut made_again = 0;
    for calls in 0..8 {
        let mut world = World::new();
        let before = world.pe().metadata.uid;
        world.meanwhile(calls, Event::MakeAgain);
        world.reconcile();
        let is_made_again = world.pe().metadata.uid != before;
        made_again += u32::from(is_made_again);
        settle(&mut world);
        let launch_count = if is_made_again { 2 } else { 1 };
        assert_eq!(launches(&world), (launch_count, 0, Some(PePhase::Running)), "before call {calls}");
    }
    assert_eq!(made_again, 3, "before the launch is recorded, before the pod is created, before that is recorded");
}

/// The mirror of pods lags behind that of PEs.
#[test]
fn a_pe_that_was_made_again_waits_for_a_pod_that_the_mirror_does_not_show() {
    let mut world = World::new();
    world.reconcile();
    world.happen(Event::Run);
    world.happen(Event::MakeAgain);
    world.deliver(usize::MAX, 0);
    world.reconcile();
    assert_eq!(world.pods().len(), 1);
    settle(&mut world);
    assert_eq!(launches(&world), (2, 0, Some(PePhase::Running)));
}

/// A pod was created, the controller does not know of it, and a user asks for a restart: the pod ends before the next
/// one is created.
fn is_restarted_once(mut world: World) {
    settle(&mut world);
    assert_eq!(launches(&world), (2, 0, Some(PePhase::Running)));
}

#[test]
fn a_deposed_controller_does_not_run_ahead_of_the_pod_of_another_one() {
    let mut world = World::new();
    world.depose();
    world.crash_after(2, false);
    world.reconcile();
    assert_eq!(world.pods().len(), 1);
    world.happen(Event::Request(0));
    world.reconcile_deposed();
    is_restarted_once(world);
}

#[test]
fn a_controller_does_not_run_ahead_of_a_pod_whose_creation_was_not_answered() {
    let mut world = World::new();
    world.lose_answer_after(1, true);
    world.reconcile();
    assert_eq!(world.pods().len(), 1);
    world.happen(Event::Request(0));
    // The mirror of pods lags behind that of PEs.
    world.deliver(usize::MAX, 0);
    world.reconcile();
    is_restarted_once(world);
}

/// It is asked for by a controller that dies; the deposed one does not find it, and before it writes that, the one that
/// leads creates it.
#[test]
fn a_pod_that_is_created_after_it_was_looked_for_is_not_taken_for_one_that_is_gone() {
    let mut world = World::new();
    world.crash_after(1, false);
    world.reconcile();
    world.happen(Event::Request(0));
    world.deliver_all();
    world.depose();
    world.reconcile_deposed_around(0);
    let status = world.pe().status.unwrap();
    assert_eq!((status.created_launch_count, status.last_termination), (1, None));
    settle(&mut world);
    assert_eq!(launches(&world), (1, 0, Some(PePhase::Running)));
}

#[test]
fn a_pod_that_failed_and_is_gone_before_anybody_looks_counts_as_failed() {
    let mut world = World::new();
    settle(&mut world);
    world.happen(Event::End { code: 1 });
    world.deliver_all();
    world.happen(Event::Vanish);
    settle(&mut world);
    assert_eq!(launches(&world), (2, 1, Some(PePhase::Running)));
}

/// It has heard that the pod is to be created, and of nothing since.
#[test]
fn a_deposed_controller_does_not_bring_back_a_pod_that_has_ended() {
    let mut world = World::new();
    world.crash_after(1, false);
    world.reconcile();
    world.depose();
    settle(&mut world);
    world.happen(Event::Vanish);
    settle(&mut world);
    world.reconcile_deposed();
    assert!(world.pods().is_empty());
    settle(&mut world);
    assert_eq!(launches(&world), (1, 0, Some(PePhase::Stopped)));
}

#[test]
fn a_pod_that_somebody_made_under_the_same_name_is_not_taken_for_the_one_that_is_gone() {
    let mut world = World::new();
    settle(&mut world);
    world.happen(Event::Imitate);
    // The mirror has heard that the pod is gone, and not of the other one.
    world.deliver(0, 1);
    world.reconcile();
    assert_eq!(launches(&world), (1, 0, Some(PePhase::Stopped)));
}

/// The first pod of a launch ends unnoticed, and the second one, of the same name, takes its place.
#[test]
fn the_end_of_an_unnoticed_pod_is_not_taken_for_that_of_the_next_one_of_its_name() {
    // It was drained and gone before its creation was noted; somebody deletes the second one.
    let mut world = World::new();
    world.crash_after(1, true);
    world.reconcile();
    world.happen(Event::Drain);
    world.deliver_all();
    world.reconcile();
    assert_eq!(world.pods().len(), 1);
    world.happen(Event::Vanish);
    settle(&mut world);
    assert_eq!(launches(&world), (1, 0, Some(PePhase::Stopped)));
    // The mirror hears only later that it failed, while the second one runs.
    let mut world = World::new();
    world.lose_answer_after(1, true);
    world.reconcile();
    for event in [Event::Run, Event::End { code: 1 }, Event::Vanish] {
        world.happen(event);
    }
    world.reconcile();
    for _ in 0..4 {
        world.deliver(1, 1);
        world.reconcile();
    }
    settle(&mut world);
    assert_eq!(launches(&world), (1, 0, Some(PePhase::Running)));
}

#[test]
fn a_pod_that_was_deleted_shortly_before_its_node_went_counts_as_lost_with_it() {
    let mut world = World::new();
    settle(&mut world);
    // Failed pods are kept; one is on the same node.
    for event in [Event::Policies(2), Event::Evict] {
        world.happen(event);
    }
    settle(&mut world);
    for event in [Event::Vanish, Event::LoseNode { said: false }] {
        world.happen(event);
    }
    settle(&mut world);
    assert_eq!(launches(&world), (3, 2, Some(PePhase::Running)));
}

#[test]
fn a_pod_that_was_not_created_yet_needs_no_restart() {
    let mut world = World::new();
    world.happen(Event::Refuse(true));
    world.reconcile();
    for request in 0..3 {
        world.happen(Event::Request(request));
        world.deliver_all();
        world.reconcile();
        let status = world.pe().status.unwrap();
        let acted_on = status.restart_requested.clone();
        assert_eq!((status.launch_count, acted_on), (1, Some(request.to_string())));
    }
    settle(&mut world);
    assert_eq!(launches(&world), (1, 0, Some(PePhase::Running)));
}

#[test]
fn a_pe_that_fails_again_and_again_is_restarted_ever_more_slowly() {
    let mut world = World::new();
    settle(&mut world);
    let mut delays = Vec::new();
    for _ in 0..8 {
        world.happen(Event::End { code: 1 });
        world.deliver_all();
        let mut waited = 0;
        let launch_count = launches(&world).0;
        loop {
            world.reconcile();
            world.deliver_all();
            if launches(&world).0 > launch_count {
                break;
            }
            world.wait(10);
            waited += 10;
        }
        delays.push(waited);
        settle(&mut world);
    }
    assert_eq!(delays, [0, 10, 20, 40, 80, 160, 300, 300]);
    world.wait(600);
    world.happen(Event::End { code: 1 });
    world.deliver_all();
    world.reconcile();
    assert_eq!(launches(&world).0, 10, "after a long run the next restart is at once");
}

#[test]
fn people_hear_of_what_happens() {
    let mut world = World::new();
    settle(&mut world);
    let announced = |world: &World| -> Vec<(bool, Cow<'static, str>)> {
        world.notices().into_iter().map(|notice| (notice.warning, notice.reason)).collect()
    };
    assert_eq!(announced(&world), [(false, "PodCreated".into())]);
    world.happen(Event::End { code: 1 });
    settle(&mut world);
    assert_eq!(
        announced(&world),
        [(true, "PodFailed".into()), (false, "Restarting".into()), (false, "PodCreated".into())]
    );
    world.happen(Event::End { code: 1 });
    settle(&mut world);
    let expected = [
        (true, "PodFailed".into()),
        (true, "BackOff".into()),
        (false, "Restarting".into()),
        (false, "PodCreated".into()),
    ];
    assert_eq!(announced(&world), expected);
    world.happen(Event::Vanish);
    settle(&mut world);
    assert_eq!(announced(&world), [(false, "PodDeleted".into()), (true, "NotRestarted".into())]);
}

#[test]
fn a_refused_pod_is_shown_and_tried_again() {
    let mut world = World::new();
    world.happen(Event::Refuse(true));
    assert_eq!(world.reconcile(), None);
    world.deliver_all();
    let status = world.pe().status.unwrap();
    assert_eq!(status.phase, Some(PePhase::Waiting));
    assert_eq!(status.conditions[0].reason, "PodRefused");
    assert_eq!(world.notices().last().unwrap().reason, "PodRefused");
    let version = world.version();
    assert_eq!(world.reconcile(), None);
    assert_eq!(world.version(), version, "the same refusal is written once");
    settle(&mut world);
    assert_eq!(world.pods().len(), 1);
}
