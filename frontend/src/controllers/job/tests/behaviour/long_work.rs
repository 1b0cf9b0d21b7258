//! Long work that was begun before something changed, or whose results serve others: a result counts for what it was
//! asked for, and nothing is asked for twice.

use super::super::simulation::{JobSimulation, UserDeletion, wait_for};
use crate::controllers::job::tasks::{Slot, TaskKind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use streams_api::InitialWidth;
use streams_kubernetes_fake::Verb;

#[test]
fn texts_that_are_being_written_are_not_asked_for_again() {
    let mut simulation = JobSimulation::new();
    while simulation.leader.running() != [TaskKind::Publish] {
        simulation.work();
        simulation.reconcile();
    }
    simulation.leader.catch_up();
    let asked_for = simulation.leader.tasks();
    assert!(asked_for.publish.running().is_some_and(|request| request.pe_ids.len() == 8), "{asked_for:?}");
    // Some of the texts are written, and the mirror shows them.
    simulation.crash_at_write(3, false);
    wait_for(simulation.leader.work(TaskKind::Publish));
    simulation.take_over_from_the_dead();
    assert_eq!(simulation.texts().len(), 3);
    simulation.reconcile();
    let rest = simulation.leader.tasks();
    assert_eq!(rest.publish.running().map(|request| request.pe_ids.len()), Some(5));
    simulation.delete(&UserDeletion::Texts);
    simulation.reconcile();
    assert_eq!(simulation.leader.tasks(), rest, "it is being worked on");
}

#[test]
fn a_plan_is_of_the_spec_that_it_was_asked_for() {
    let mut simulation = JobSimulation::new();
    while simulation.leader.running() != [TaskKind::Compile] {
        simulation.work();
        simulation.reconcile();
    }
    // The worker begins when the spec is another one already; the reconciler has not seen that yet.
    let wide = InitialWidth { name: Some("R".to_owned()), width: Some(5), ..InitialWidth::default() };
    simulation.change_spec(|spec| spec.parallel_regions = vec![wide]);
    simulation.leader.catch_up();
    wait_for(simulation.leader.work(TaskKind::Compile));
    simulation.change_spec(|spec| spec.parallel_regions = Vec::new());
    simulation.settle();
    assert_eq!(simulation.generation().widths().into_values().collect::<Vec<_>>(), [2, 2]);
    simulation.check_at_rest();
}

#[test]
fn a_bundle_is_filed_under_the_spec_that_names_it() {
    let mut simulation = JobSimulation::new();
    while simulation.leader.running() != [TaskKind::Fetch] {
        simulation.reconcile();
    }
    simulation.change_spec(|spec| spec.bundle.name = Some("b.sab".to_owned()));
    simulation.leader.catch_up();
    wait_for(simulation.leader.work(TaskKind::Fetch));
    let progress = simulation.leader.tasks();
    assert!(!matches!(progress.fetch, Slot::Done(..)), "{progress:?}");
    simulation.settle();
    simulation.check_at_rest();
}

#[test]
fn compilations_share_what_they_find_out_about_the_cluster() {
    let mut simulation = JobSimulation::new();
    let lists = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&lists);
    simulation.server.refuse(move |call| {
        if call.verb == Verb::List && call.kind == "Pod" {
            count.fetch_add(1, Ordering::SeqCst);
        }
        None
    });
    // seconds later -> readings of all pods so far
    for (edit, (seconds, expected)) in [(0, 1), (9, 1), (1, 2)].into_iter().enumerate() {
        simulation.wait(seconds);
        simulation.edit(&edit.to_string());
        while simulation.leader.running() != [TaskKind::Compile] {
            simulation.work();
            simulation.reconcile();
        }
        wait_for(simulation.leader.work(TaskKind::Compile));
        assert_eq!(lists.load(Ordering::SeqCst), expected, "edit {edit}");
    }
}
