//! Whatever happens, in whatever order, however late it is heard of, and wherever the controller crashes: nothing
//! forbidden is done (the world checks every call), and once it is calm there is exactly the pod that should be there.

use super::world::{Event, World};
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Move {
    Reconcile,
    Depose,
    ReconcileDeposed,
    ReconcileDeposedAround { writes: usize },
    Crash { calls: usize, after_effect: bool },
    LoseAnswer { calls: usize, after_effect: bool },
    Meanwhile { calls: usize, event: Event },
    Deliver { pes: usize, pods: usize },
    Wait(u64),
    Happen(Event),
}

fn event() -> impl Strategy<Value = Event> {
    let code = prop_oneof![Just(0), Just(1)];
    prop_oneof![
        6 => Just(Event::Run),
        4 => code.clone().prop_map(|code| Event::End { code }),
        3 => (any::<bool>(), code).prop_map(|(said, code)| Event::Finish { said, code }),
        2 => any::<bool>().prop_map(|newest| Event::Delete { newest }),
        1 => Just(Event::Drain),
        1 => Just(Event::Evict),
        1 => any::<bool>().prop_map(|said| Event::LoseNode { said }),
        1 => Just(Event::Vanish),
        1 => (0_u8..3).prop_map(Event::Request),
        2 => any::<u8>().prop_map(Event::Policies),
        1 => any::<bool>().prop_map(Event::Option),
        2 => any::<bool>().prop_map(|generation| Event::Text { generation }),
        1 => any::<bool>().prop_map(Event::Place),
        2 => Just(Event::Commit),
        1 => any::<bool>().prop_map(Event::TextThere),
        1 => any::<bool>().prop_map(Event::Refuse),
        1 => Just(Event::MakeAgain),
        1 => Just(Event::Collect),
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
        8 => event().prop_map(Move::Happen),
    ]
}

proptest! {
    #[test]
    fn nothing_forbidden_is_done_and_it_comes_to_rest(moves in prop::collection::vec(one_move(), 0..60)) {
        let mut world = World::new();
        for next in moves {
            match next {
                Move::Reconcile => {
                    world.reconcile();
                }
                Move::Depose => world.depose(),
                Move::ReconcileDeposed => world.reconcile_deposed(),
                Move::ReconcileDeposedAround { writes } => world.reconcile_deposed_around(writes),
                Move::Crash { calls, after_effect } => {
                    world.crash_after(calls, after_effect);
                    world.reconcile();
                }
                Move::LoseAnswer { calls, after_effect } => {
                    world.lose_answer_after(calls, after_effect);
                    world.reconcile();
                }
                Move::Meanwhile { calls, event } => {
                    world.meanwhile(calls, event);
                    world.reconcile();
                }
                Move::Deliver { pes, pods } => world.deliver(pes, pods),
                Move::Wait(seconds) => world.wait(seconds),
                Move::Happen(event) => world.happen(event),
            }
        }
        world.calm_down();
        world.check_rest();
        let version = world.version();
        world.reconcile();
        prop_assert_eq!(world.version(), version, "nothing is left to do");
    }
}
