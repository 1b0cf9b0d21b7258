//! Random orders of everything that can happen. After each, the job must come to rest in the desired state.

use super::simulation::{JobSimulation, NOT_RESTARTABLE, UserDeletion};
use crate::controllers::job::child::{Child, Port};
use crate::controllers::job::tasks::TaskKind;
use proptest::prelude::*;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Waker};
use streams_api::{MaxUnavailable, RolloutOptions};
use streams_kubernetes_fake::Fault;

#[derive(Clone, Debug)]
enum Disturbance {
    /// A reconcile after all changes were delivered to the mirrors.
    Reconcile,
    /// A reconcile after so many changes of each kind were delivered to the mirrors.
    ReconcileBehind([usize; 6]),
    /// A call of the next reconcile does not answer, and has its effect or not. The process goes on.
    LoseAnswer(usize, bool),
    /// A reconcile and all long work that is asked for, their calls in the order that the numbers give.
    Race(Vec<usize>),
    Work,
    RunPods,
    /// One PE is looked at: the pod that it has is replaced by one that does not run yet, or runs.
    RunPod(u64, bool),
    /// So many PEs may be down in a roll-out.
    MaxUnavailable(u32),
    Collect,
    Crash,
    CrashAtWrite(usize, bool),
    Resize(u64, u32),
    ResizeBoth([u32; 2]),
    /// A request with this name for one region or both; widths over 5 do not compile.
    Request(u8, Option<u32>, Option<u32>),
    Withdraw(u8),
    Edit(bool),
    /// The job gets this much CPU, in thousandths.
    Resources(u32),
    Delete(UserDeletion),
    DeleteText(prop::sample::Index),
    Seconds(u64),
    Compiler(bool),
    /// From now on texts come with plans, or do not.
    SendsTexts(bool),
    /// From now on plans say that nobody asks for numbers of channels, or that somebody does.
    Ignores(bool),
    /// From now on plans place some PEs in the host pool, or none.
    Places(bool),
    /// From now on plans give ids again that are in use, or do not.
    GivesAgain(bool),
    /// Calls wait for others, or do not any more.
    Crowd(bool),
    /// Regions say their widths. Until then they say nothing, as in a crowd.
    DescribeRegions,
    Down(bool),
}

fn event() -> impl Strategy<Value = Disturbance> {
    prop_oneof![
        12 => Just(Disturbance::Reconcile),
        4 => prop::array::uniform6(0_usize..6).prop_map(Disturbance::ReconcileBehind),
        3 => (0_usize..12, any::<bool>()).prop_map(|(after, has_effect)| Disturbance::LoseAnswer(after, has_effect)),
        4 => prop::collection::vec(0_usize..4, 1..60).prop_map(Disturbance::Race),
        8 => Just(Disturbance::Work),
        4 => Just(Disturbance::RunPods),
        4 => (0_u64..10, any::<bool>()).prop_map(|(id, runs)| Disturbance::RunPod(id, runs)),
        2 => (1_u32..4).prop_map(Disturbance::MaxUnavailable),
        4 => Just(Disturbance::Collect),
        1 => Just(Disturbance::Crash),
        2 => (0_usize..12, any::<bool>()).prop_map(|(after, has_effect)| Disturbance::CrashAtWrite(after, has_effect)),
        2 => (0_u64..2, 1_u32..6).prop_map(|(index, width)| Disturbance::Resize(index, width)),
        2 => [1_u32..6, 1_u32..6].prop_map(Disturbance::ResizeBoth),
        3 => (0_u8..6, prop::option::of(1_u32..8), prop::option::of(1_u32..8))
            .prop_map(|(name, r, s)| Disturbance::Request(name, r, s)),
        1 => (0_u8..6).prop_map(Disturbance::Withdraw),
        1 => any::<bool>().prop_map(Disturbance::Edit),
        2 => (1_u32..10_000).prop_map(Disturbance::Resources),
        1 => (0_u64..10).prop_map(|id| Disturbance::Delete(UserDeletion::ProcessingElement(id))),
        1 => (0_u64..10).prop_map(|id| Disturbance::Delete(UserDeletion::Service(id))),
        1 => (0_u64..2).prop_map(|index| Disturbance::Delete(UserDeletion::Region(index))),
        1 => Just(Disturbance::Delete(UserDeletion::JobConfigMap)),
        1 => (0_u8..6).prop_map(|name| Disturbance::Delete(UserDeletion::Request(format!("request-{name}")))),
        1 => Just(Disturbance::Delete(UserDeletion::HostPool(0))),
        1 => Just(Disturbance::Delete(UserDeletion::Interface(Child::ConsistentRegion(0)))),
        1 => (4_u64..10).prop_map(|pe| {
            Disturbance::Delete(UserDeletion::Interface(Child::Export(Port { pe, id: 0 })))
        }),
        1 => any::<prop::sample::Index>().prop_map(Disturbance::DeleteText),
        1 => (0_u64..200).prop_map(Disturbance::Seconds),
        1 => any::<bool>().prop_map(Disturbance::Compiler),
        1 => any::<bool>().prop_map(Disturbance::SendsTexts),
        1 => any::<bool>().prop_map(Disturbance::Ignores),
        1 => any::<bool>().prop_map(Disturbance::Places),
        1 => any::<bool>().prop_map(Disturbance::GivesAgain),
        1 => any::<bool>().prop_map(Disturbance::Crowd),
        1 => Just(Disturbance::DescribeRegions),
        1 => any::<bool>().prop_map(Disturbance::Down),
    ]
}

fn happen(simulation: &mut JobSimulation, event: &Disturbance) {
    match event {
        Disturbance::Reconcile => drop(simulation.reconcile()),
        Disturbance::ReconcileBehind(changes) => simulation.reconcile_behind(*changes),
        Disturbance::LoseAnswer(after, has_effect) => {
            let fault = Fault { after: *after, of_writes: false, has_effect: *has_effect, is_last: false };
            simulation.leader.connection.fail(fault);
        }
        Disturbance::Race(order) => race(simulation, order),
        Disturbance::Work => drop(simulation.work()),
        Disturbance::RunPods => drop(simulation.run_pods()),
        Disturbance::RunPod(id, true) => drop(simulation.run_pod(*id)),
        Disturbance::RunPod(id, false) => simulation.take_down(*id),
        Disturbance::MaxUnavailable(count) => simulation.change_spec(|spec| {
            let max_unavailable = MaxUnavailable::Count(*count);
            spec.rollout = Some(RolloutOptions { max_unavailable, ..RolloutOptions::default() });
        }),
        Disturbance::Collect => drop(simulation.collect()),
        Disturbance::Crash => simulation.crash(),
        Disturbance::CrashAtWrite(after, has_effect) => simulation.crash_at_write(*after, *has_effect),
        Disturbance::Resize(index, width) => simulation.resize(*index, *width),
        Disturbance::ResizeBoth(widths) => simulation.resize_both(*widths),
        Disturbance::Request(name, r, s) => {
            let widths: Vec<_> = [("R", *r), ("S", *s)].into_iter().filter_map(|(n, w)| Some((n, w?))).collect();
            if !widths.is_empty() {
                simulation.services.change(|services| services.widest = 5);
                simulation.request(&format!("request-{name}"), &widths);
            }
        }
        Disturbance::Withdraw(name) => simulation.withdraw(&format!("request-{name}")),
        Disturbance::Edit(refuses) => {
            if simulation.status().generation.is_none() {
                simulation.services.change(|services| services.refuses = *refuses);
                simulation.edit(if *refuses { "x" } else { "y" });
            }
        }
        Disturbance::Resources(milli) => simulation.give(*milli),
        Disturbance::Delete(deletion) => simulation.delete(deletion),
        Disturbance::DeleteText(index) => {
            let texts = simulation.texts();
            if !texts.is_empty() {
                simulation.delete(&UserDeletion::ConfigMap(index.get(&texts).clone()));
            }
        }
        Disturbance::Seconds(seconds) => simulation.wait(*seconds),
        Disturbance::Compiler(newer) => {
            simulation.services.change(|services| (if *newer { "2" } else { "1" }).clone_into(&mut services.compiler));
        }
        Disturbance::SendsTexts(sends) => simulation.services.change(|services| services.sends_texts = *sends),
        Disturbance::Ignores(ignores) => simulation.services.change(|services| services.ignores = *ignores),
        Disturbance::Places(places) => simulation.services.change(|services| services.places = *places),
        Disturbance::GivesAgain(again) => simulation.services.change(|services| services.gives_again = *again),
        Disturbance::Crowd(is_crowded) => simulation.leader.connection.crowd(*is_crowded),
        Disturbance::DescribeRegions => simulation.describe_regions(),
        Disturbance::Down(is_down) => simulation.services.change(|services| services.is_down = *is_down),
    }
}

/// Long work that may begin during a race: work that nobody ends would go on for ever.
const BEGUN_MOST: usize = 20;

/// Polls a reconcile and all long work, with what of it begins meanwhile, in this order, then in turn until all are
/// ready.
fn race(simulation: &mut JobSimulation, order: &[usize]) {
    simulation.leader.catch_up();
    {
        let leader = &simulation.leader;
        type Racing<'a> = (Option<TaskKind>, Pin<Box<dyn Future<Output = ()> + 'a>>);
        let mut racing: Vec<Racing<'_>> = vec![(
            None,
            Box::pin(async {
                let _ = leader.reconcile().await;
            }),
        )];
        let mut begun = 0;
        let mut order = order.iter().copied().chain(0..);
        while !racing.is_empty() {
            // One worker at a time for each kind.
            for kind in leader.running() {
                if begun < BEGUN_MOST && racing.iter().all(|(other, _)| *other != Some(kind)) {
                    racing.push((Some(kind), Box::pin(leader.work(kind))));
                    begun += 1;
                }
            }
            let next = order.next().unwrap_or(0) % racing.len();
            if racing[next].1.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready() {
                drop(racing.remove(next));
            }
        }
    }
    simulation.take_over_from_the_dead();
}

fn run(events: &[Disturbance]) {
    let mut simulation = JobSimulation::new();
    for event in events {
        happen(&mut simulation, event);
    }
    simulation.leader.connection.stop_failing();
    simulation.services.change(|services| services.is_down = false);
    if simulation.status().generation.is_some() {
        simulation.services.change(|services| services.refuses = false);
    }
    simulation.settle();
    simulation.check_at_rest();
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
            events.extend([Disturbance::Reconcile, Disturbance::Work]);
            if step == resized_after {
                events.push(Disturbance::Resize(0, 3));
            }
        }
        run(&events);
    }
}

/// So many reconciles, each with the long work that it asks for.
fn rounds(count: usize) -> Vec<Disturbance> {
    (0..count).flat_map(|_| [Disturbance::Reconcile, Disturbance::Work]).collect()
}

/// What was compiled is used once, whether the controller hears that its write had an effect or not.
#[test]
fn a_request_ends_whichever_answer_is_lost_before() {
    for lost in 0..12 {
        for has_effect in [true, false] {
            let mut events = vec![Disturbance::LoseAnswer(lost, has_effect), Disturbance::Request(0, None, Some(2))];
            events.extend(rounds(4));
            run(&events);
        }
    }
}

/// A proposal may be stored although its write was not answered, the mirror does not show it, and nobody wants it.
#[test]
fn chunks_stay_that_an_unanswered_write_may_name() {
    let mut events = rounds(3);
    events.extend([Disturbance::Resize(0, 1), Disturbance::Reconcile, Disturbance::Work]);
    events.extend([Disturbance::LoseAnswer(0, true), Disturbance::Reconcile]);
    for seconds in [0, 119, 120, 1_000] {
        let mut events = events.clone();
        events.extend([Disturbance::Resize(0, 2), Disturbance::Seconds(seconds)]);
        events.push(Disturbance::ReconcileBehind([0, 0, 1, 0, 0, 0]));
        run(&events);
    }
}

/// The host pool is gone when the PEs are made that run in it.
#[test]
fn pes_start_once_their_pool_is_there() {
    let mut events = vec![Disturbance::Places(true)];
    events.extend(rounds(4));
    events.extend([Disturbance::Delete(UserDeletion::HostPool(0)), Disturbance::Collect, Disturbance::RunPods]);
    run(&events);
}

/// The controller may write to a PE that has begun to run since the mirror showed it last, as if nothing ran.
#[test]
fn pes_begin_to_run_between_two_looks() {
    let mut events = rounds(4);
    events.extend([Disturbance::Request(0, None, Some(3)), Disturbance::Reconcile, Disturbance::Work]);
    events.extend([Disturbance::Reconcile, Disturbance::RunPods, Disturbance::Work]);
    events.push(Disturbance::ReconcileBehind([5, 0, 5, 5, 5, 5]));
    run(&events);
}

/// The options of all PEs change while the user deletes one whose operators must not run again.
#[test]
fn a_pe_that_a_user_deletes_is_not_made_again_by_a_change_that_is_on_its_way() {
    let mut simulation = JobSimulation::running();
    simulation.give(700);
    simulation.delete(&UserDeletion::ProcessingElement(NOT_RESTARTABLE));
    simulation.collect();
    // The mirrors show the options, and the PE.
    simulation.reconcile_behind([usize::MAX, 0, 0, 0, 0, 0]);
    simulation.settle();
    simulation.check_at_rest();
    assert!(simulation.pe(NOT_RESTARTABLE).is_none());
}

/// A leader that has just begun compiles what the one before had compiled: the chunk is there, and nothing names it.
#[test]
fn a_chunk_stays_that_is_stored_again() {
    let stored: Vec<_> = (0..2).flat_map(|_| [Disturbance::Reconcile, Disturbance::Race(vec![0])]).collect();
    // More than a compilation takes.
    for polls_of_work in 0..24 {
        let mut order = vec![0];
        order.extend(vec![1; polls_of_work]);
        let mut events = stored.clone();
        events.extend([Disturbance::Crash, Disturbance::Race(order)]);
        events.push(Disturbance::ReconcileBehind([0, 0, 0, 0, 4, 0]));
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
