//! Whatever happens, in whatever order, however late it is heard of, and wherever the controller crashes: nothing forbidden is done (the world checks
//! every call), and once it is calm there is exactly the pod that should be there.

use proptest::prelude::*;

use super::world::{Deed, World};

#[derive(Clone, Debug)]
enum Act {
    Turn,
    Depose,
    DeposedTurn,
    DeposedTurnAround { writes: usize },
    Crash { calls: usize, after_effect: bool },
    LoseAnswer { calls: usize, after_effect: bool },
    Meanwhile { calls: usize, deed: Deed },
    Deliver { pes: usize, pods: usize },
    Wait(i64),
    Happen(Deed),
}

fn deed() -> impl Strategy<Value = Deed> {
    let code = prop_oneof![Just(0), Just(1)];
    prop_oneof![
        6 => Just(Deed::Run),
        4 => code.clone().prop_map(|code| Deed::End { code }),
        3 => (any::<bool>(), code).prop_map(|(said, code)| Deed::Finish { said, code }),
        2 => any::<bool>().prop_map(|newest| Deed::Delete { newest }),
        1 => Just(Deed::Drain),
        1 => Just(Deed::Evict),
        1 => any::<bool>().prop_map(|said| Deed::LoseNode { said }),
        1 => Just(Deed::Vanish),
        1 => (0_u8..3).prop_map(Deed::Request),
        2 => any::<u8>().prop_map(Deed::Policies),
        1 => any::<bool>().prop_map(Deed::Option),
        2 => any::<bool>().prop_map(|generation| Deed::Text { generation }),
        1 => any::<bool>().prop_map(Deed::Place),
        2 => Just(Deed::Commit),
        1 => any::<bool>().prop_map(Deed::TextThere),
        1 => any::<bool>().prop_map(Deed::Refuse),
    ]
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        8 => Just(Act::Turn),
        1 => Just(Act::Depose),
        2 => Just(Act::DeposedTurn),
        2 => (0_usize..3).prop_map(|writes| Act::DeposedTurnAround { writes }),
        2 => (0_usize..8, any::<bool>()).prop_map(|(calls, after_effect)| Act::Crash { calls, after_effect }),
        2 => (0_usize..8, any::<bool>()).prop_map(|(calls, after_effect)| Act::LoseAnswer { calls, after_effect }),
        2 => (0_usize..8, deed()).prop_map(|(calls, deed)| Act::Meanwhile { calls, deed }),
        6 => (0_usize..4, 0_usize..4).prop_map(|(pes, pods)| Act::Deliver { pes, pods }),
        2 => prop_oneof![Just(1_i64), Just(11), Just(40), Just(310), Just(700)].prop_map(Act::Wait),
        8 => deed().prop_map(Act::Happen),
    ]
}

proptest! {
    #[test]
    fn nothing_forbidden_is_done_and_it_comes_to_rest(acts in prop::collection::vec(act(), 0..60)) {
        let mut world = World::new();
        for act in acts {
            match act {
                Act::Turn => {
                    world.turn();
                }
                Act::Depose => world.depose(),
                Act::DeposedTurn => world.turn_of_deposed(),
                Act::DeposedTurnAround { writes } => world.turn_of_deposed_around(writes),
                Act::Crash { calls, after_effect } => {
                    world.crash_after(calls, after_effect);
                    world.turn();
                }
                Act::LoseAnswer { calls, after_effect } => {
                    world.lose_answer_after(calls, after_effect);
                    world.turn();
                }
                Act::Meanwhile { calls, deed } => {
                    world.meanwhile(calls, deed);
                    world.turn();
                }
                Act::Deliver { pes, pods } => world.deliver(pes, pods),
                Act::Wait(seconds) => world.wait(seconds),
                Act::Happen(deed) => world.happen(deed),
            }
        }
        world.calm_down();
        world.check_rest();
        let writes = world.writes();
        world.turn();
        prop_assert_eq!(world.writes(), writes, "nothing is left to do");
    }
}
