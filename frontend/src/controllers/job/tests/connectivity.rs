//! What PEs tell of their connections is counted in the status of the job, and costs few writes of it (rule job-54).

use super::simulation::{JOB, JobSimulation, NAMESPACE};
use std::time::Duration;
use streams_api::{Connectivity, ProcessingElement, ReportedConnectivity, condition, names};
use streams_kubernetes::Key;

/// The present pod of the PE tells how it is connected.
fn tell(simulation: &JobSimulation, pe: u64, state: Connectivity) {
    let key = Key::new(NAMESPACE, &names::processing_element(JOB, pe));
    simulation.server.edit::<ProcessingElement>(&key, |object| {
        let status = object.status.get_or_insert_default();
        status.connectivity = Some(ReportedConnectivity { state, launch_count: status.launch_count, interruptions: 0 });
    });
}

/// PEs that count as connected, whether the job says that all are, and that it is ready.
fn said(simulation: &JobSimulation) -> (u32, bool, bool) {
    let status = simulation.status();
    let is_true = |kind| condition::is_true(&status.conditions, kind);
    let count = status.statistics.as_ref().unwrap().connected_processing_elements;
    (count, is_true(condition::CONNECTED), is_true(condition::READY))
}

#[test]
fn the_job_says_how_many_pes_have_all_of_their_connections() {
    let mut simulation = JobSimulation::running();
    let pes: Vec<u64> = simulation.pes().into_keys().collect();
    let all = u32::try_from(pes.len()).unwrap();
    assert_eq!(said(&simulation), (0, false, true));
    for (told, pe) in (0..).zip(&pes) {
        assert_eq!(said(&simulation), (told, false, true), "Ready is not changed by it");
        tell(&simulation, *pe, Connectivity::Full);
        simulation.settle();
    }
    assert_eq!(said(&simulation), (all, true, true));
    tell(&simulation, pes[0], Connectivity::Partial);
    simulation.settle();
    assert_eq!(said(&simulation), (all - 1, false, true));
    tell(&simulation, pes[0], Connectivity::Full);
    simulation.settle();
    assert_eq!(said(&simulation), (all, true, true));
    // What an earlier pod has told does not count.
    simulation.server.edit::<ProcessingElement>(&Key::new(NAMESPACE, &names::processing_element(JOB, 0)), |object| {
        object.status.as_mut().unwrap().launch_count += 1;
    });
    simulation.settle();
    assert_eq!(said(&simulation), (all - 1, false, true));
    tell(&simulation, 0, Connectivity::Full);
    simulation.settle();
    assert_eq!(said(&simulation), (all, true, true));
    // PEs that a resize restarts have told nothing yet.
    simulation.resize(0, 4);
    simulation.until_committed(1);
    assert!(!said(&simulation).1);
    simulation.settle();
    assert!(!said(&simulation).1 && said(&simulation).2);
    simulation.check_at_rest();
}

#[test]
fn what_pes_tell_is_written_every_few_seconds_at_most() {
    let mut simulation = JobSimulation::running();
    let pes: Vec<u64> = simulation.pes().into_keys().collect();
    let before = simulation.status_writes();
    // For 20 s all PEs lose and find their connections ten times a second.
    for turn in 0..200 {
        for pe in &pes {
            tell(&simulation, *pe, if turn % 2 == 0 { Connectivity::Full } else { Connectivity::None });
        }
        simulation.reconcile();
        simulation.server.advance(Duration::from_millis(100));
    }
    let count = simulation.status_writes() - before;
    assert!((1..=5).contains(&count), "{count} writes");
    for pe in &pes {
        tell(&simulation, *pe, Connectivity::Full);
    }
    simulation.settle();
    assert_eq!(said(&simulation), (u32::try_from(pes.len()).unwrap(), true, true));
    simulation.check_at_rest();
}
