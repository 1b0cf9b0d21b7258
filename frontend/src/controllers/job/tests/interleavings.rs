//! Random orders of everything that can happen, each followed by rest.

use super::world::{Deletion, World, wait_for};
use proptest::prelude::*;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Waker};
use streams_kubernetes_fake::Fault;

#[derive(Clone, Debug)]
enum Event {
    /// A reconcile with mirrors that have heard of everything.
    Reconcile,
    /// A reconcile with mirrors that have heard of so many changes of each kind.
    ReconcileBehind([usize; 6]),
    /// A call of the next reconcile does not answer, and has its effect or not. The process goes on.
    LoseAnswer(usize, bool),
    /// A reconcile and all long work that is asked for, their calls in the order that the numbers give.
    Race(Vec<usize>),
    Work,
    RunPods,
    Collect,
    Crash,
    CrashAtWrite(usize, bool),
    Resize(u64, u32),
    ResizeBoth([u32; 2]),
    Edit(bool),
    Delete(Deletion),
    DeleteText(prop::sample::Index),
    Seconds(u64),
    Compiler(bool),
    Down(bool),
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        12 => Just(Event::Reconcile),
        4 => prop::array::uniform6(0_usize..6).prop_map(Event::ReconcileBehind),
        3 => (0_usize..12, any::<bool>()).prop_map(|(after, has_effect)| Event::LoseAnswer(after, has_effect)),
        4 => prop::collection::vec(0_usize..4, 1..60).prop_map(Event::Race),
        8 => Just(Event::Work),
        4 => Just(Event::RunPods),
        4 => Just(Event::Collect),
        1 => Just(Event::Crash),
        2 => (0_usize..12, any::<bool>()).prop_map(|(after, has_effect)| Event::CrashAtWrite(after, has_effect)),
        2 => (0_u64..2, 1_u32..6).prop_map(|(index, width)| Event::Resize(index, width)),
        2 => [1_u32..6, 1_u32..6].prop_map(Event::ResizeBoth),
        1 => any::<bool>().prop_map(Event::Edit),
        1 => (0_u64..10).prop_map(|id| Event::Delete(Deletion::ProcessingElement(id))),
        1 => (0_u64..10).prop_map(|id| Event::Delete(Deletion::Service(id))),
        1 => (0_u64..2).prop_map(|index| Event::Delete(Deletion::Region(index))),
        1 => Just(Event::Delete(Deletion::JobConfigMap)),
        1 => Just(Event::Delete(Deletion::HostPool(0))),
        1 => any::<prop::sample::Index>().prop_map(Event::DeleteText),
        1 => (0_u64..200).prop_map(Event::Seconds),
        1 => any::<bool>().prop_map(Event::Compiler),
        1 => any::<bool>().prop_map(Event::Down),
    ]
}

fn happen(world: &mut World, event: &Event) {
    match event {
        Event::Reconcile => drop(world.reconcile()),
        Event::ReconcileBehind(changes) => {
            world.set_behind();
            world.leader.deliver(*changes);
            let _ = wait_for(world.leader.reconcile());
            world.take_over_from_the_dead();
        }
        Event::LoseAnswer(after, has_effect) => {
            let fault = Fault { after: *after, of_writes: false, has_effect: *has_effect, is_last: false };
            world.leader.connection.fail(fault);
        }
        Event::Race(order) => race(world, order),
        Event::Work => drop(world.work()),
        Event::RunPods => drop(world.run_pods()),
        Event::Collect => drop(world.collect()),
        Event::Crash => world.crash(),
        Event::CrashAtWrite(after, has_effect) => world.crash_at_write(*after, *has_effect),
        Event::Resize(index, width) => world.resize(*index, *width),
        Event::ResizeBoth(widths) => world.resize_both(*widths),
        Event::Edit(refuses) => {
            if world.status().generation.is_none() {
                world.services.change(|services| services.refuses = *refuses);
                world.edit(if *refuses { "x" } else { "y" });
            }
        }
        Event::Delete(deletion) => world.delete(deletion),
        Event::DeleteText(index) => {
            let texts = world.texts();
            if !texts.is_empty() {
                world.delete(&Deletion::ConfigMap(index.get(&texts).clone()));
            }
        }
        Event::Seconds(seconds) => world.wait(*seconds),
        Event::Compiler(newer) => {
            world.services.change(|services| (if *newer { "2" } else { "1" }).clone_into(&mut services.compiler));
        }
        Event::Down(is_down) => world.services.change(|services| services.is_down = *is_down),
    }
}

/// Polls a reconcile and all long work in this order, then in turn until all are ready.
fn race(world: &mut World, order: &[usize]) {
    world.leader.catch_up();
    {
        let leader = &world.leader;
        let mut racing: Vec<Pin<Box<dyn Future<Output = ()> + '_>>> = vec![Box::pin(async {
            let _ = leader.reconcile().await;
        })];
        for kind in leader.running() {
            racing.push(Box::pin(leader.work(kind)));
        }
        let mut order = order.iter().copied().chain(0..);
        while !racing.is_empty() {
            let next = order.next().unwrap_or(0) % racing.len();
            if racing[next].as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready() {
                drop(racing.remove(next));
            }
        }
    }
    world.take_over_from_the_dead();
}

fn run(events: &[Event]) {
    let mut world = World::new();
    for event in events {
        happen(&mut world, event);
    }
    world.leader.connection.stop_failing();
    world.services.change(|services| services.is_down = false);
    if world.status().generation.is_some() {
        world.services.change(|services| services.refuses = false);
    }
    world.settle();
    world.check_at_rest();
}

/// As many cases as are asked for; else a few, because each is a whole life of a job.
fn cases() -> u32 {
    if std::env::var_os("PROPTEST_CASES").is_some() { ProptestConfig::default().cases } else { 48 }
}

/// The regions are there before the generation is committed that they are made for.
#[test]
fn a_region_is_resized_before_the_first_generation_is_committed() {
    for resized_after in 0..12 {
        let mut events = Vec::new();
        for step in 0..12 {
            events.extend([Event::Reconcile, Event::Work]);
            if step == resized_after {
                events.push(Event::Resize(0, 3));
            }
        }
        run(&events);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), ..ProptestConfig::default() })]

    #[test]
    fn whatever_happens_the_end_is_what_is_desired(events in prop::collection::vec(event(), 1..100)) {
        run(&events);
    }
}
