//! Scenarios of a PE, with a crash at every call.

use super::simulation::{ClusterEvent, PeSimulation};
use super::{launches, settle};
use streams_api::PePhase;

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
