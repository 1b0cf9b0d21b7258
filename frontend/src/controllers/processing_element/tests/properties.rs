//! Random walks: events in any order, mirrors that lag behind, crashes at any call. The simulation checks every call of
//! the controller. Once no more events come, exactly the pod that should exist exists.

use super::simulation::{ClusterEvent, PeSimulation};
use proptest::prelude::*;
use streams_api::names;

#[derive(Clone, Debug)]
enum Move {
    Reconcile,
    Depose,
    ReconcileDeposed,
    ReconcileDeposedAround { writes: usize },
    Crash { calls: usize, after_effect: bool },
    LoseAnswer { calls: usize, after_effect: bool },
    Meanwhile { calls: usize, event: ClusterEvent },
    Deliver { pes: usize, pods: usize },
    Wait(u64),
    Crowd(bool),
    SubmitAnother(bool),
    Happen(ClusterEvent),
    HappenUnseen(ClusterEvent),
}

/// What somebody makes of the metadata of a pod.
fn spoil() -> impl Strategy<Value = ClusterEvent> {
    let label = prop::sample::select(vec![
        names::LABEL_APP,
        names::LABEL_SERVICE,
        names::LABEL_JOB,
        names::LABEL_PE,
        names::LABEL_LAUNCH_COUNT,
    ]);
    prop_oneof![
        2 => label.clone().prop_map(|label| ClusterEvent::Unlabel { going: false, label }),
        2 => (label, prop::sample::select(vec!["0", "99"]))
            .prop_map(|(label, value)| ClusterEvent::Relabel { label, value }),
        1 => Just(ClusterEvent::Unannotate(names::ANNOTATION_PLACEMENT_HASH)),
        1 => Just(ClusterEvent::Disown),
    ]
}

/// Whether nobody could find the pod afterwards, if its creation was not recorded and it is never asked for: e.g.
/// because a user stops the PE.
fn hides_pod(event: ClusterEvent) -> bool {
    match event {
        ClusterEvent::Unlabel { going: false, label } | ClusterEvent::Relabel { label, .. } => {
            label == names::LABEL_APP
        }
        ClusterEvent::Disown => true,
        _ => false,
    }
}

fn event() -> impl Strategy<Value = ClusterEvent> {
    let code = prop_oneof![Just(0), Just(1)];
    prop_oneof![
        6 => Just(ClusterEvent::Run),
        4 => code.clone().prop_map(|code| ClusterEvent::End { code }),
        1 => code.clone().prop_map(|code| ClusterEvent::EndBesideOthers { code }),
        3 => (any::<bool>(), code).prop_map(|(said, code)| ClusterEvent::Finish { said, code }),
        2 => any::<bool>().prop_map(|newest| ClusterEvent::Delete { newest }),
        1 => Just(ClusterEvent::Drain),
        1 => Just(ClusterEvent::Evict),
        1 => any::<bool>().prop_map(|said| ClusterEvent::LoseNode { said }),
        1 => Just(ClusterEvent::Vanish),
        1 => Just(ClusterEvent::Unlabel { going: true, label: names::LABEL_APP }),
        2 => spoil(),
        1 => (0_u8..3).prop_map(ClusterEvent::Request),
        2 => prop::option::of(0_u8..2).prop_map(ClusterEvent::Stop),
        2 => any::<u8>().prop_map(ClusterEvent::Policies),
        1 => any::<bool>().prop_map(ClusterEvent::Option),
        2 => any::<bool>().prop_map(|generation| ClusterEvent::Text { generation }),
        1 => any::<bool>().prop_map(ClusterEvent::Place),
        2 => Just(ClusterEvent::Commit),
        1 => any::<bool>().prop_map(ClusterEvent::TextThere),
        1 => any::<bool>().prop_map(ClusterEvent::Refuse),
        1 => Just(ClusterEvent::RefuseDeletions),
        1 => Just(ClusterEvent::MakeAgain),
        1 => Just(ClusterEvent::Collect),
        2 => prop::option::of(0..3_u64).prop_map(ClusterEvent::Older),
        1 => any::<bool>().prop_map(ClusterEvent::Renew),
        1 => Just(ClusterEvent::TakeBack),
        1 => Just(ClusterEvent::Pretend),
    ]
}

fn one_move() -> impl Strategy<Value = Move> {
    prop_oneof![
        8 => Just(Move::Reconcile),
        1 => Just(Move::Depose),
        2 => Just(Move::ReconcileDeposed),
        2 => (0_usize..3).prop_map(|writes| Move::ReconcileDeposedAround { writes }),
        2 => (0_usize..8, any::<bool>()).prop_map(|(calls, after_effect)| Move::Crash { calls, after_effect }),
        2 => (0_usize..8, any::<bool>()).prop_map(|(calls, after_effect)| Move::LoseAnswer { calls, after_effect }),
        2 => (0_usize..8, event()).prop_map(|(calls, event)| Move::Meanwhile { calls, event }),
        6 => (0_usize..4, 0_usize..4).prop_map(|(pes, pods)| Move::Deliver { pes, pods }),
        2 => prop_oneof![Just(1_u64), Just(11), Just(40), Just(310), Just(700)].prop_map(Move::Wait),
        1 => any::<bool>().prop_map(Move::Crowd),
        1 => any::<bool>().prop_map(Move::SubmitAnother),
        8 => event().prop_map(Move::Happen),
        1 => event().prop_map(Move::HappenUnseen),
    ]
}

proptest! {
    #[test]
    fn nothing_forbidden_is_done_and_it_comes_to_rest(
        is_newborn: bool,
        is_crowded: bool,
        moves in prop::collection::vec(one_move(), 0..60),
    ) {
        let mut simulation = PeSimulation::new();
        if is_newborn {
            simulation.bear();
        }
        simulation.crowd(is_crowded);
        for next in moves {
            match next {
                Move::Meanwhile { event, .. } if hides_pod(event) => {}
                Move::Happen(event) | Move::HappenUnseen(event) if hides_pod(event) && !simulation.is_recorded() => {}
                Move::Reconcile => {
                    simulation.reconcile();
                }
                Move::Depose => simulation.depose(),
                Move::ReconcileDeposed => simulation.reconcile_deposed(),
                Move::ReconcileDeposedAround { writes } => simulation.reconcile_deposed_around(writes),
                Move::Crash { calls, after_effect } => {
                    simulation.crash_after(calls, after_effect);
                    simulation.reconcile();
                }
                Move::LoseAnswer { calls, after_effect } => {
                    simulation.lose_answer_after(calls, after_effect);
                    simulation.reconcile();
                }
                Move::Meanwhile { calls, event } => {
                    simulation.meanwhile(calls, event);
                    simulation.reconcile();
                }
                Move::Deliver { pes, pods } => simulation.deliver(pes, pods),
                Move::Wait(seconds) => simulation.wait(seconds),
                Move::Crowd(is_crowded) => simulation.crowd(is_crowded),
                Move::SubmitAnother(is_uncommitted) => simulation.submit_another(is_uncommitted),
                Move::Happen(event) => simulation.happen(event),
                Move::HappenUnseen(event) => simulation.happen_unseen(event),
            }
        }
        simulation.calm_down();
        simulation.check_rest();
        let version = simulation.version();
        simulation.reconcile();
        prop_assert_eq!(simulation.version(), version, "nothing is left to do");
    }
}
