//! Random interleavings of everything that can happen, each followed by rest.

use super::world::World;
use crate::controllers::job::decide::{Child, Owned};
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Happening {
    /// The controller does the actions whose bit is set.
    Step(u64),
    FinishWork,
    FailWork,
    RunPods,
    Collect,
    Crash,
    CrashIn(u8),
    Resize(u64, u32),
    ResizeBoth([u32; 2]),
    Edit(bool),
    DeletePe(u64),
    DeleteService(u64),
    DeleteRegion(u64),
    DeleteJobConfigMap,
    DeleteHostPool,
    DeleteText(prop::sample::Index),
    Seconds(u16),
    Compiler(bool),
}

fn happening() -> impl Strategy<Value = Happening> {
    prop_oneof![
        8 => any::<u64>().prop_map(Happening::Step),
        12 => Just(Happening::Step(u64::MAX)),
        8 => Just(Happening::FinishWork),
        1 => Just(Happening::FailWork),
        4 => Just(Happening::RunPods),
        4 => Just(Happening::Collect),
        1 => Just(Happening::Crash),
        1 => (0_u8..6).prop_map(Happening::CrashIn),
        2 => (0_u64..2, 1_u32..6).prop_map(|(index, width)| Happening::Resize(index, width)),
        2 => [1_u32..6, 1_u32..6].prop_map(Happening::ResizeBoth),
        1 => any::<bool>().prop_map(Happening::Edit),
        1 => (0_u64..10).prop_map(Happening::DeletePe),
        1 => (0_u64..10).prop_map(Happening::DeleteService),
        1 => (0_u64..2).prop_map(Happening::DeleteRegion),
        1 => Just(Happening::DeleteJobConfigMap),
        1 => Just(Happening::DeleteHostPool),
        1 => any::<prop::sample::Index>().prop_map(Happening::DeleteText),
        1 => (0_u16..200).prop_map(Happening::Seconds),
        1 => any::<bool>().prop_map(Happening::Compiler),
    ]
}

fn happen(world: &mut World, happening: &Happening) {
    match happening {
        Happening::Step(bits) => {
            let _ = world.step(|index| bits.rotate_right(u32::try_from(index % 64).unwrap()) & 1 == 1);
        }
        Happening::FinishWork => {
            let _ = world.finish_work(false);
        }
        Happening::FailWork => {
            let _ = world.finish_work(true);
        }
        Happening::RunPods => {
            world.run_pods();
        }
        Happening::Collect => {
            world.collect();
        }
        Happening::Crash => world.crash(),
        Happening::CrashIn(writes) => world.crash_at = Some(world.writes + usize::from(*writes)),
        Happening::Resize(index, width) => world.resize(*index, *width),
        Happening::ResizeBoth(widths) => world.resize_both(*widths),
        Happening::Edit(broken) => {
            if world.status.generation.is_none() {
                world.edit(if *broken { "x" } else { "y" }, *broken);
            }
        }
        Happening::DeletePe(id) => world.delete(&Owned::Child(Child::ProcessingElement(*id))),
        Happening::DeleteService(id) => world.delete(&Owned::Child(Child::Service(*id))),
        Happening::DeleteRegion(index) => world.delete(&Owned::Child(Child::Region(*index))),
        Happening::DeleteJobConfigMap => world.delete(&Owned::Child(Child::JobConfigMap)),
        Happening::DeleteHostPool => world.delete(&Owned::Child(Child::HostPool(0))),
        Happening::DeleteText(index) => {
            let names: Vec<_> = world.children.texts.keys().cloned().collect();
            if !names.is_empty() {
                world.delete(&Owned::ConfigMap(index.get(&names).clone()));
            }
        }
        Happening::Seconds(seconds) => {
            let duration = k8s_openapi::jiff::SignedDuration::from_secs(i64::from(*seconds));
            world.now = world.now.checked_add(duration).unwrap();
        }
        Happening::Compiler(newer) => (if *newer { "2" } else { "1" }).clone_into(&mut world.compiler),
    }
}

fn run(happenings: &[Happening]) {
    let mut world = World::new();
    for happening in happenings {
        happen(&mut world, happening);
    }
    world.crash_at = None;
    world.broken = world.broken && world.status.generation.is_none();
    world.settle();
    world.check_at_rest();
}

/// The regions are there before the generation is committed that they are made for.
#[test]
fn a_region_is_resized_before_the_first_generation_is_committed() {
    let mut happenings = Vec::new();
    for _ in 0..12 {
        happenings.extend([Happening::Step(u64::MAX), Happening::FinishWork, Happening::Resize(0, 3)]);
    }
    for before in 0..happenings.len() {
        // Once, at any time.
        let others = |(at, happening): (usize, &Happening)| {
            (at == before || !matches!(happening, Happening::Resize(..))).then(|| happening.clone())
        };
        run(&happenings.iter().enumerate().filter_map(others).collect::<Vec<_>>());
    }
}

proptest! {
    #[test]
    fn whatever_happens_the_end_is_what_is_desired(happenings in prop::collection::vec(happening(), 1..150)) {
        run(&happenings);
    }
}
