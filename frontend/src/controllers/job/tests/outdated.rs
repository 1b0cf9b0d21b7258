//! The API server has custom resource definitions of an earlier version: the job says so and what to do, and goes easy
//! on the API server (rule call-30).

use super::simulation::JobSimulation;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use streams_api::{Job, ProcessingElement, condition};
use streams_kubernetes_fake::{Server, Verb};

/// What the job says of the definitions.
fn said(simulation: &JobSimulation) -> Option<String> {
    let status = simulation.status();
    condition::get(&status.conditions, condition::DEFINITIONS_OUTDATED).map(|condition| condition.message.clone())
}

/// Counts these calls for objects of this kind from now on.
fn count(server: &Server, verbs: &'static [Verb], kind: &'static str) -> Arc<AtomicUsize> {
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&calls);
    server.refuse(move |call| {
        counted.fetch_add(usize::from(verbs.contains(&call.verb) && call.kind == kind), Ordering::SeqCst);
        None
    });
    calls
}

fn events(simulation: &JobSimulation) -> usize {
    let announced = simulation.server.announced();
    announced.iter().filter(|told| told.notice.reason == "DefinitionsOutdated" && told.kind == "Job").count()
}

/// Reconciles this often in each of so many seconds.
fn look(simulation: &mut JobSimulation, seconds: u64, times: usize) {
    for _ in 0..seconds {
        for _ in 0..times {
            simulation.reconcile();
            simulation.work();
        }
        simulation.wait(1);
    }
}

#[test]
fn a_field_that_is_refused_is_told_and_not_sent_again_and_again() {
    let mut simulation = JobSimulation::new();
    simulation.server.does_not_declare::<ProcessingElement>(&["spec", "placementHash"], true);
    let applies = count(&simulation.server, &[Verb::Apply], "ProcessingElement");
    look(&mut simulation, 540, 4);
    // What is created loses the field; what would give it back is refused.
    assert_eq!(simulation.pes().len(), 8);
    let message = said(&simulation).expect("it says so");
    let expected = "custom resource definitions of an earlier version: field spec.placementHash of \
                    streamspes.streams.ibm.com is not kept by the API server";
    assert!(message.starts_with(expected) && message.contains("-k deploy/crds"), "{message}");
    let status = simulation.status();
    let submitted = condition::get(&status.conditions, condition::SUBMITTED).unwrap();
    assert_eq!(submitted.reason, "DefinitionsOutdated");
    assert!(submitted.message.contains(expected), "{}", submitted.message);
    assert_eq!(events(&simulation), 1);
    // Alone after a pause, in nine minutes, for all PEs together. The first time, others were on their way.
    let tried = applies.load(Ordering::SeqCst);
    assert!((10..=30).contains(&tried), "{tried}");
    simulation.server.declares_everything();
    simulation.wait(60);
    simulation.settle();
    assert_eq!(said(&simulation), None);
    simulation.check_at_rest();
}

#[test]
fn a_field_that_is_dropped_is_told_and_the_job_runs_nevertheless() {
    let mut simulation = JobSimulation::new();
    simulation.server.does_not_declare::<ProcessingElement>(&["spec", "placementHash"], false);
    let writes = count(&simulation.server, &[Verb::Create, Verb::Apply], "ProcessingElement");
    look(&mut simulation, 540, 4);
    let pes = simulation.pes().len();
    assert_eq!(pes, 8, "they are made");
    let message = said(&simulation).expect("it says so");
    assert!(message.contains("field spec.placementHash of streamspes.streams.ibm.com is not kept"), "{message}");
    assert_eq!(events(&simulation), 1);
    let status = simulation.status();
    assert!(condition::get(&status.conditions, condition::CONTENDED).is_none(), "nobody else changes it");
    // At once, and after 1, 2 and 4 minutes.
    assert_eq!(writes.load(Ordering::SeqCst), 4 * pes);
    simulation.server.declares_everything();
    simulation.wait(600);
    simulation.settle();
    assert_eq!(said(&simulation), None);
    simulation.check_at_rest();
}

#[test]
fn a_step_that_is_not_recorded_is_not_taken_again_and_again() {
    let mut simulation = JobSimulation::new();
    simulation.server.does_not_declare::<Job>(&["status", "adl"], false);
    let writes = count(&simulation.server, &[Verb::ReplaceStatus], "Job");
    for _ in 0..4 {
        simulation.reconcile();
        simulation.work();
    }
    let before = writes.swap(0, Ordering::SeqCst);
    assert!(before <= 8, "{before}");
    // The queue waits longer and longer after a failure.
    assert!(simulation.reconcile().is_none());
    assert_eq!(writes.load(Ordering::SeqCst), 1);
    let told = simulation.server.announced();
    let told: Vec<_> = told.iter().filter(|told| told.notice.reason == "DefinitionsOutdated").collect();
    assert!(told.iter().all(|told| told.notice.note.contains("field status.adl of streamsjobs.streams.ibm.com")));
    assert!(!told.is_empty());
    simulation.server.declares_everything();
    simulation.settle();
    simulation.check_at_rest();
}
