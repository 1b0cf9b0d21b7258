//! Whole scenarios, and a crash of the frontend before and after every write on the way.

use super::simulation::{JobSimulation, NOT_RESTARTABLE, Snapshot, UserDeletion};
use crate::controllers::job::child::Child;
use streams_api::{InitialWidth, MaxUnavailable, RolloutOptions};

/// What users do, one action after the other, each when nothing happens any more.
type Actions = &'static [fn(&mut JobSimulation)];

/// Runs the actions that are left, each until nothing happens any more.
fn finish(simulation: &mut JobSimulation, left: Actions) {
    simulation.settle();
    simulation.check_at_rest();
    for action in left {
        simulation.begin_action();
        action(simulation);
        simulation.settle();
        simulation.check_at_rest();
    }
}

/// A frontend that dies in any state that something was written in is followed by one that leads to the same end.
fn any_crash_leads_to_the_same_end(name: &str, mut simulation: JobSimulation, actions: Actions) {
    simulation.keep_snapshots();
    finish(&mut simulation, actions);
    let (writes, end, snapshots) = (simulation.writes(), simulation.visible(), simulation.snapshots());
    assert!(writes > 0, "{name}");
    for snapshot in &snapshots {
        let mut crashed = JobSimulation::resume(snapshot);
        finish(&mut crashed, &actions[snapshot.actions..]);
        assert_eq!(crashed.visible(), end, "{name}: a crash before {}", snapshot.before);
    }
    println!("{name}: {} actions, {writes} writes, {} states to crash in, one end", actions.len(), snapshots.len());
}

#[test]
fn a_submission() {
    any_crash_leads_to_the_same_end("submission", JobSimulation::new(), &[]);
}

#[test]
fn pes_encrypt_their_connections() {
    let simulation = JobSimulation::new();
    simulation.secure(true);
    any_crash_leads_to_the_same_end(
        "transport security",
        simulation,
        &[|w| w.wait(20 * 86_400), |w| w.delete(&UserDeletion::Interface(Child::TransportSecret))],
    );
}

#[test]
fn a_region_grows_and_shrinks() {
    any_crash_leads_to_the_same_end("resizes", JobSimulation::running(), &[|w| w.resize(0, 5), |w| w.resize(0, 1)]);
}

#[test]
fn a_job_is_resized_in_waves() {
    let simulation = JobSimulation::running();
    simulation.change_spec(|spec| {
        let max_unavailable = MaxUnavailable::Count(1);
        spec.rollout = Some(RolloutOptions { max_unavailable, ..RolloutOptions::default() });
    });
    any_crash_leads_to_the_same_end(
        "waves",
        simulation,
        &[|w| w.resize_both([4, 3]), |w| w.resize(0, 1), |w| w.resize(1, 1)],
    );
}

#[test]
fn two_regions_are_resized_at_once() {
    any_crash_leads_to_the_same_end(
        "several regions at once",
        JobSimulation::running(),
        &[|w| w.resize_both([4, 1]), |w| w.resize_both([1, 3]), |w| w.resize(1, 2)],
    );
}

#[test]
fn requests_edits_and_refusals() {
    let mut simulation = JobSimulation::running();
    simulation.services.change(|services| services.widest = 9);
    simulation.settle();
    any_crash_leads_to_the_same_end(
        "requests to resize",
        simulation,
        &[
            |w| w.request("both", &[("R", 4), ("S", 3)]),
            |w| w.request("large", &[("R", 1), ("S", 10)]),
            |w| w.resize(1, 1),
        ],
    );
}

#[test]
fn the_compiler_refuses_a_width() {
    any_crash_leads_to_the_same_end(
        "a width that the compiler refuses",
        JobSimulation::running(),
        &[
            |w| {
                w.services.change(|services| services.refuses = true);
                w.resize(0, 7);
            },
            |w| {
                w.services.change(|services| services.refuses = false);
                w.resize(0, 3);
            },
        ],
    );
}

#[test]
fn the_bounds_of_the_job_refuse_a_width() {
    let bounds = InitialWidth { name: Some("R".to_owned()), max_width: Some(3), ..InitialWidth::default() };
    let mut simulation = JobSimulation::new();
    simulation.change_spec(|spec| spec.parallel_regions = vec![bounds]);
    simulation.settle();
    any_crash_leads_to_the_same_end(
        "a width out of bounds",
        simulation,
        &[|w| w.resize(0, 4), |w| w.resize(1, 3), |w| w.resize(0, 3)],
    );
}

#[test]
fn users_delete_objects() {
    any_crash_leads_to_the_same_end(
        "objects deleted by users",
        JobSimulation::running(),
        &[
            |w| w.delete(&UserDeletion::ProcessingElement(1)),
            |w| w.delete(&UserDeletion::Service(0)),
            |w| w.delete(&UserDeletion::JobConfigMap),
            |w| w.delete(&UserDeletion::HostPool(0)),
            |w| w.delete(&UserDeletion::Interface(Child::ConsistentRegionService)),
            |w| w.delete(&UserDeletion::Region(1)),
            |w| w.delete(&UserDeletion::Texts),
        ],
    );
}

#[test]
fn a_job_is_suspended_resized_and_resumed() {
    any_crash_leads_to_the_same_end(
        "suspended",
        JobSimulation::running(),
        &[
            |w| w.change_spec(|spec| spec.suspend = true),
            |w| w.resize(0, 3),
            |w| w.change_spec(|spec| spec.suspend = false),
        ],
    );
}

#[test]
fn texts_are_of_two_compilers() {
    any_crash_leads_to_the_same_end(
        "texts of two compilers",
        JobSimulation::running(),
        &[
            |w| w.resize(0, 3),
            |w| {
                w.services.change(|services| services.compiler = "2".to_owned());
                w.delete(&UserDeletion::Texts);
            },
            |w| w.resize(0, 4),
        ],
    );
}

#[test]
fn a_spec_is_corrected() {
    let simulation = JobSimulation::new();
    simulation.services.change(|services| services.refuses = true);
    any_crash_leads_to_the_same_end(
        "corrected",
        simulation,
        &[|w| {
            w.services.change(|services| services.refuses = false);
            w.edit("corrected");
        }],
    );
}

#[test]
fn a_pe_must_not_be_started_again() {
    any_crash_leads_to_the_same_end(
        "a PE that must not be started again",
        JobSimulation::running(),
        &[|w| w.delete(&UserDeletion::ProcessingElement(NOT_RESTARTABLE)), |w| w.resize(0, 4)],
    );
}

/// States of a submission, and of a resize of one region.
fn states() -> Vec<Snapshot> {
    let mut simulation = JobSimulation::new();
    simulation.keep_snapshots();
    simulation.settle();
    let mut states = simulation.snapshots();
    simulation.keep_snapshots();
    simulation.resize(0, 3);
    simulation.settle();
    states.extend(simulation.snapshots());
    states
}

#[test]
fn a_job_that_is_deleted_in_any_state_leaves_nothing() {
    let states = states();
    for state in &states {
        let mut simulation = JobSimulation::resume(state);
        simulation.delete(&UserDeletion::Job);
        simulation.settle();
        assert_eq!(simulation.left(), Vec::<String>::new(), "deleted before {}", state.before);
    }
    println!("deletion: {} states, nothing left", states.len());
}

#[test]
fn widths_that_are_edited_in_any_state_are_applied() {
    let states = states();
    let regions = |simulation: &JobSimulation| simulation.region(0).is_some() && simulation.region(1).is_some();
    let mut edited = 0;
    for state in &states {
        let mut simulation = JobSimulation::resume(state);
        if !regions(&simulation) {
            continue;
        }
        simulation.resize(1, 1);
        // Perhaps before the other edit is compiled.
        simulation.reconcile();
        simulation.resize(0, 4);
        simulation.settle();
        simulation.check_at_rest();
        let widths: Vec<u32> = simulation.generation().widths().into_values().collect();
        assert_eq!(widths, [4, 1], "edited before {}", state.before);
        edited += 1;
    }
    println!("edits: {edited} states, the newest widths in force");
}
