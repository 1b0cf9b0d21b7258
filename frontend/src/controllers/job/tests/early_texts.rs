//! Texts of a resize that are written while its plan is stored, before anything refers to them (rule job-3), and those
//! that come with the plan (rule call-16).

use super::simulation::{JobSimulation, key, wait_for};
use crate::controllers::job::long_work::work;
use crate::controllers::job::memory::Entry;
use crate::controllers::job::tasks::{TaskKind, WorkItem};
use std::collections::BTreeSet;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Waker};
use streams_kubernetes_fake::Fault;

type Compilation = Pin<Box<dyn Future<Output = ()>>>;

/// A job that is about to be compiled for a resize of which source, sink, and two new channels need texts.
fn resized() -> JobSimulation {
    let mut simulation = JobSimulation::running();
    simulation.resize(0, 4);
    while simulation.leader.running() != [TaskKind::Compile] {
        simulation.reconcile();
    }
    simulation
}

/// The compilation that was asked for, once this is so.
fn compilation(simulation: &JobSimulation, reached: impl Fn(&JobSimulation) -> bool) -> Compilation {
    let (reconciler, item) =
        (Arc::clone(&simulation.leader.reconciler), WorkItem { job: key(), kind: TaskKind::Compile });
    let mut compilation: Compilation = Box::pin(async move { work(&reconciler, &item).await });
    while !reached(simulation) {
        let polled = compilation.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        assert!(polled.is_pending(), "it is never so");
    }
    compilation
}

/// Such a job once the writing of texts is asked for, with the compilation, whose plan is not stored yet.
fn storing() -> (JobSimulation, Compilation) {
    let simulation = resized();
    let compilation = compilation(&simulation, writes_texts);
    (simulation, compilation)
}

fn writes_texts(simulation: &JobSimulation) -> bool {
    simulation.leader.running().contains(&TaskKind::Publish)
}

/// The texts of what is being compiled are written, but its plan cannot be stored. Gives their names.
fn leave_texts(simulation: &JobSimulation, compilation: Compilation) -> BTreeSet<String> {
    let before: BTreeSet<String> = simulation.texts().into_iter().collect();
    wait_for(simulation.leader.work(TaskKind::Publish));
    simulation.leader.connection.fail(Fault { after: 0, of_writes: true, has_effect: false, is_last: false });
    wait_for(compilation);
    assert_eq!(simulation.leader.running(), [], "it has ended");
    let left: BTreeSet<String> = simulation.texts().into_iter().filter(|name| !before.contains(name)).collect();
    assert_eq!(left.len(), 4);
    left
}

fn are_there(simulation: &JobSimulation, texts: &BTreeSet<String>) -> bool {
    texts.is_subset(&simulation.texts().into_iter().collect())
}

#[test]
fn those_that_are_there_already_stay_until_the_plan_is_recorded() {
    for is_crowded in [false, true] {
        let mut simulation = JobSimulation::running();
        simulation.resize(0, 3);
        simulation.until_committed(1);
        // While this generation is rolled out, texts stay that nobody has.
        simulation.resize(0, 5);
        while simulation.leader.running() != [TaskKind::Compile] {
            simulation.reconcile();
        }
        let failing = compilation(&simulation, writes_texts);
        let texts = leave_texts(&simulation, failing);
        while simulation.leader.running() != [TaskKind::Compile] {
            simulation.wait(1);
            simulation.reconcile();
        }
        simulation.leader.connection.crowd(is_crowded);
        let storing = compilation(&simulation, |simulation| simulation.leader.tasks().being_stored().is_some());
        assert!(!writes_texts(&simulation) && are_there(&simulation, &texts));
        for _ in 0..40 {
            simulation.run_pods();
            simulation.collect();
            // Texts are left, as if it had not heard of them.
            simulation.reconcile_behind([usize::MAX; 6]);
            simulation.wait(1);
        }
        assert!(simulation.status().rollout.is_some_and(|out| out.finished_at.is_some()));
        assert!(are_there(&simulation, &texts), "{is_crowded}");
        wait_for(storing);
        simulation.settle();
        simulation.check_at_rest();
        assert_eq!(simulation.status().generation, Some(2));
    }
}

/// The mirror shows texts for a while that the controller has deleted.
#[test]
fn those_that_were_deleted_are_written_again_before_the_commit() {
    for is_crowded in [false, true] {
        let (mut simulation, compilation) = storing();
        let texts = leave_texts(&simulation, compilation);
        simulation.leader.connection.crowd(is_crowded);
        simulation.reconcile();
        assert!(!simulation.texts().iter().any(|name| texts.contains(name)), "nobody wants them");
        for _ in 0..40 {
            if simulation.status().generation == Some(1) {
                break;
            }
            simulation.wait(1);
            simulation.reconcile_behind([0; 6]);
            simulation.work();
        }
        assert_eq!(simulation.status().generation, Some(1));
        assert!(are_there(&simulation, &texts), "{is_crowded}");
        // It hears of the deletions, one by one, and later of what was written since.
        for _ in 0..20 {
            simulation.reconcile_behind([0, 0, 0, 0, 0, 1]);
            assert_eq!(simulation.leader.running(), [], "they are there");
        }
        simulation.settle();
        simulation.check_at_rest();
    }
}

#[test]
fn they_stay_until_the_plan_is_recorded_and_are_written_once() {
    let (mut simulation, compilation) = storing();
    let before = (simulation.texts().len(), simulation.chunks().len());
    wait_for(simulation.leader.work(TaskKind::Publish));
    for _ in 0..3 {
        simulation.reconcile();
        assert_eq!((simulation.texts().len(), simulation.chunks().len()), (before.0 + 4, before.1));
        assert_eq!(simulation.leader.running(), [TaskKind::Compile]);
    }
    wait_for(compilation);
    // They are there: the look that records the plan goes on to the commit.
    simulation.reconcile();
    assert_eq!((simulation.leader.running(), simulation.status().generation), (vec![], Some(1)));
    simulation.settle();
    simulation.check_at_rest();
}

#[test]
fn they_go_if_the_frontend_dies_before_the_plan_is_stored_and_nobody_wants_it_then() {
    let (mut simulation, compilation) = storing();
    let before = simulation.texts();
    wait_for(simulation.leader.work(TaskKind::Publish));
    drop(compilation);
    simulation.crash();
    simulation.resize(0, 2);
    simulation.settle();
    simulation.check_at_rest();
    assert_eq!(simulation.texts(), before);
}

#[test]
fn they_go_if_the_plan_cannot_be_stored() {
    for is_written in [false, true] {
        let (mut simulation, compilation) = storing();
        let before = simulation.texts();
        if is_written {
            wait_for(simulation.leader.work(TaskKind::Publish));
        }
        simulation.leader.connection.fail(Fault { after: 0, of_writes: true, has_effect: false, is_last: false });
        wait_for(compilation);
        assert_eq!(simulation.leader.running(), [], "it has ended, {is_written}");
        simulation.resize(0, 2);
        simulation.settle();
        simulation.check_at_rest();
        assert_eq!(simulation.texts(), before, "{is_written}");
    }
}

#[test]
fn they_are_not_written_to_their_end_if_other_widths_are_compiled() {
    let (mut simulation, compilation) = storing();
    simulation.resize(0, 5);
    simulation.reconcile();
    assert_eq!(simulation.leader.running(), [TaskKind::Compile]);
    wait_for(compilation);
    assert_eq!(simulation.leader.running(), [TaskKind::Compile], "what was given up has no say any more");
    simulation.settle();
    simulation.check_at_rest();
    assert_eq!(simulation.status().generation, Some(1));
}

/// What is refused before the plan is recorded counts like what is refused afterwards.
#[test]
fn who_waits_is_not_kept_waiting_longer_because_they_were_refused_before_the_plan_is_recorded() {
    let (mut simulation, compilation) = storing();
    simulation.no_more_texts(&[8]);
    wait_for(simulation.leader.work(TaskKind::Publish));
    wait_for(compilation);
    simulation.reconcile();
    let proposal = simulation.status().proposal.expect("it may be permitted by now").plan.sha256;
    simulation.request("other", &[("S", 1)]);
    simulation.reconcile();
    let is_there = |simulation: &JobSimulation| {
        simulation.status().proposal.is_some_and(|present| present.plan.sha256 == proposal)
    };
    assert!(is_there(&simulation), "it may be permitted soon");
    simulation.wait(5);
    simulation.reconcile();
    assert!(!is_there(&simulation), "it has been held up for a while, and somebody waits");
    simulation.steps_again();
    simulation.settle();
    simulation.check_at_rest();
}

#[test]
fn what_no_replica_renders_any_more_while_the_plan_is_stored_is_compiled_again() {
    let (mut simulation, compilation) = storing();
    simulation.services.change(|services| services.compiler = "2".to_owned());
    wait_for(simulation.leader.work(TaskKind::Publish));
    wait_for(compilation);
    simulation.settle();
    simulation.check_at_rest();
    let status = simulation.status();
    assert_eq!((status.generation, status.plan.unwrap().compiler.as_str()), (Some(1), "2"));
}

#[test]
fn texts_that_come_with_the_plan_are_not_rendered() {
    for is_crowded in [false, true] {
        let mut simulation = JobSimulation::running();
        simulation.leader.connection.crowd(is_crowded);
        simulation.services.change(|services| (services.sends_texts, services.renders) = (true, false));
        simulation.resize(0, 4);
        simulation.settle();
        simulation.check_at_rest();
        assert_eq!(simulation.status().generation, Some(1), "{is_crowded}");
        assert_eq!(at_hand(&simulation), 0, "they are not kept beyond the commit");
    }
}

#[test]
fn texts_that_are_not_those_of_the_plan_are_rendered() {
    let mut simulation = JobSimulation::running();
    simulation.services.change(|services| (services.sends_texts, services.spoils_texts) = (true, true));
    simulation.resize(0, 4);
    simulation.settle();
    simulation.check_at_rest();
    assert_eq!(simulation.status().generation, Some(1));
}

#[test]
fn texts_that_came_with_a_plan_are_kept_as_long_as_it_is_wanted() {
    let mut simulation = JobSimulation::running();
    simulation.services.change(|services| services.sends_texts = true);
    simulation.resize(0, 4);
    simulation.until(|simulation| at_hand(simulation) == 4);
    // Widths that are compiled next bring others.
    simulation.resize(0, 5);
    simulation.reconcile();
    wait_for(simulation.leader.work(TaskKind::Compile));
    assert_eq!(at_hand(&simulation), 5);
    // What was in force before is wanted again.
    simulation.resize(0, 2);
    simulation.settle();
    assert_eq!(at_hand(&simulation), 0);
    simulation.check_at_rest();
}

/// Whoever is held up has nothing at hand: that may be any number of jobs, for as long as a quota says.
#[test]
fn texts_that_came_with_a_plan_are_kept_no_longer_once_they_are_written_or_were_refused() {
    let refusals: [fn(&JobSimulation); 2] =
        [|simulation| simulation.no_more("Service"), |simulation| simulation.no_more_texts(&[8])];
    for refuse in refusals {
        let mut simulation = JobSimulation::running();
        simulation.services.change(|services| services.sends_texts = true);
        refuse(&simulation);
        simulation.resize(0, 4);
        simulation.until(|simulation| at_hand(simulation) == 4);
        simulation.until(|simulation| simulation.status().proposal.is_some() && at_hand(simulation) == 0);
        simulation.steps_again();
        simulation.settle();
        simulation.check_at_rest();
        assert_eq!(simulation.status().generation, Some(1));
    }
}

/// How many texts came with the plan of the job that is being compiled, or is proposed.
fn at_hand(simulation: &JobSimulation) -> usize {
    let reconciler = &simulation.leader.reconciler;
    let uid = reconciler.mirrors.jobs.get(&key()).and_then(|job| job.metadata.uid.clone()).unwrap();
    let kept = |entry: &mut Entry| entry.texts_at_hand.as_ref().map_or(0, |texts| texts.by_pe.len());
    reconciler.memory.find(&key(), &uid, kept).unwrap_or_default()
}
