//! What the fusion service refuses, and what no replica of it can do: a submission fails, what runs is left alone, and
//! nothing is tried again and again.

use super::super::simulation::{JobSimulation, UserDeletion};
use super::{condition_reason, is_true};
use streams_api::{JobPhase, condition};

#[test]
fn what_cannot_be_submitted_fails_until_the_spec_is_corrected() {
    let mut simulation = JobSimulation::new();
    simulation.services.change(|services| services.refuses = true);
    simulation.settle();
    assert_eq!(simulation.status().phase, Some(JobPhase::Failed));
    assert!(!is_true(&simulation, condition::SUBMITTED));
    assert_eq!(condition_reason(&simulation, condition::SUBMITTED).as_deref(), Some("ApplicationRejected"));
    simulation.check_at_rest();
    let version = simulation.server.version();
    simulation.settle();
    assert_eq!(simulation.server.version(), version, "it is not tried again");
    simulation.services.change(|services| services.refuses = false);
    simulation.edit("corrected");
    simulation.settle();
    simulation.check_at_rest();
    let status = simulation.status();
    assert_eq!((status.phase, status.submission_attempts), (Some(JobPhase::Running), 1));
}

#[test]
fn a_refused_width_leaves_the_running_generation_alone_and_is_not_tried_again() {
    let mut simulation = JobSimulation::running();
    let before = simulation.pes();
    simulation.server.announced();
    simulation.services.change(|services| services.refuses = true);
    simulation.resize(0, 7);
    simulation.settle();
    assert_eq!(simulation.status().generation, Some(0));
    assert!(is_true(&simulation, condition::RESIZE_REJECTED) && is_true(&simulation, condition::READY));
    assert_eq!(simulation.pes(), before);
    let version = simulation.server.version();
    simulation.settle();
    assert_eq!(simulation.server.version(), version, "it is not tried again");
    // Whoever leads next knows it as well.
    simulation.crash();
    simulation.settle();
    assert_eq!(simulation.server.version(), version, "nothing is said again");
    let reasons: Vec<_> = simulation.server.announced().into_iter().map(|announced| announced.notice.reason).collect();
    assert_eq!(reasons, ["ParallelRegionWidthChangeFailure"], "people hear of it once");
    simulation.services.change(|services| services.refuses = false);
    simulation.resize(0, 6);
    simulation.settle();
    assert!(!is_true(&simulation, condition::RESIZE_REJECTED));
    assert_eq!(simulation.status().rejected_resize, None);
    simulation.check_at_rest();
}

#[test]
fn going_back_to_the_applied_width_ends_a_rejection() {
    let mut simulation = JobSimulation::running();
    simulation.services.change(|services| services.refuses = true);
    simulation.resize(0, 7);
    simulation.settle();
    simulation.resize(0, 2);
    simulation.settle();
    assert_eq!(simulation.status().generation, Some(0));
    simulation.check_at_rest();
    assert!(!is_true(&simulation, condition::RESIZE_REJECTED));
}

/// Reconciles and works while no time passes, and says how often something was written.
fn writes_without_time(simulation: &mut JobSimulation) -> u64 {
    let version = simulation.server.version();
    for _ in 0..60 {
        simulation.reconcile();
        simulation.work();
    }
    simulation.server.version() - version
}

#[test]
fn a_repair_that_no_compiler_can_make_is_tried_again_after_pauses() {
    let mut simulation = JobSimulation::running();
    simulation.services.change(|services| {
        services.compiler = "2".to_owned();
        services.refuses = true;
    });
    simulation.delete(&UserDeletion::Texts);
    simulation.collect();
    let writes = writes_without_time(&mut simulation);
    assert!(writes < 10, "{writes} writes");
    assert_eq!(condition_reason(&simulation, condition::PROGRESSING).as_deref(), Some("ApplicationRejected"));
    assert_eq!(simulation.status().rejected_resize, None, "nobody wanted another width");
    simulation.wait(31);
    simulation.services.change(|services| services.refuses = false);
    simulation.settle();
    simulation.check_at_rest();
}

#[test]
fn a_plan_whose_texts_nobody_renders_is_made_anew_after_pauses() {
    let mut simulation = JobSimulation::running();
    // One replica compiles, and only another one renders.
    simulation.services.change(|services| services.renders = false);
    simulation.resize(0, 3);
    let writes = writes_without_time(&mut simulation);
    assert!(writes < 20, "{writes} writes");
    assert_eq!(condition_reason(&simulation, condition::PROGRESSING).as_deref(), Some("OtherCompiler"));
    simulation.wait(31);
    simulation.services.change(|services| services.renders = true);
    simulation.settle();
    simulation.check_at_rest();
    assert_eq!(simulation.status().generation, Some(1));
}
