//! Jobs of which a consistent region has given up (rule job-56).

use super::simulation::{JOB, JobSimulation, NAMESPACE};
use streams_api::consistent_region::GIVEN_UP;
use streams_api::{ConsistentRegion, JobPhase, condition, names};
use streams_kubernetes::Key;

/// The name of the consistent region of the job.
fn name() -> String {
    names::consistent_region(JOB, 0)
}

/// Whoever drives the region says that it is in this state, and has completed so many checkpoints.
fn drive(simulation: &JobSimulation, state: &str, checkpoints: u64) {
    simulation.server.edit::<ConsistentRegion>(&Key::new(NAMESPACE, &name()), |region| {
        let status = region.status.get_or_insert_default();
        (status.state, status.last_completed_checkpoint) = (Some(state.to_owned()), Some(checkpoints));
    });
}

/// Reasons of the Events since this was asked last.
fn told(simulation: &JobSimulation) -> Vec<String> {
    simulation.server.announced().into_iter().map(|announced| announced.notice.reason.into_owned()).collect()
}

#[test]
fn a_job_names_a_consistent_region_that_has_given_up_until_somebody_resets_it() {
    let mut simulation = JobSimulation::running();
    told(&simulation);
    drive(&simulation, GIVEN_UP, 1);
    simulation.settle();
    let status = simulation.status();
    assert_eq!(status.phase, Some(JobPhase::Degraded));
    for (kind, value) in [(condition::DEGRADED, "True"), (condition::READY, "False")] {
        let said = condition::get(&status.conditions, kind).unwrap();
        assert_eq!((said.status.as_str(), &*said.reason), (value, condition::RESET_ATTEMPTS_EXHAUSTED));
        let is_said = [name().as_str(), names::ANNOTATION_RESET_REQUESTED].map(|part| said.message.contains(part));
        assert_eq!(is_said, [true, true], "{}", said.message);
    }
    assert!(condition::is_true(&status.conditions, condition::PODS_READY), "its PEs run");
    assert_eq!(told(&simulation), ["Degraded"]);
    simulation.crash();
    simulation.settle();
    assert!(told(&simulation).is_empty(), "it is told once, whoever leads");
    drive(&simulation, "RESETTING", 1);
    simulation.settle();
    simulation.check_at_rest();
    assert_eq!(simulation.status().phase, Some(JobPhase::Running));
    assert!(told(&simulation).is_empty());
}

/// Its parallel regions say whether PEs are down by the reason.
#[test]
fn a_suspended_job_names_pes_that_are_down_before_a_consistent_region_that_has_given_up() {
    let mut simulation = JobSimulation::running();
    drive(&simulation, GIVEN_UP, 1);
    simulation.stop(1);
    simulation.settle();
    told(&simulation);
    // whether it is suspended -> reason, Events
    let table =
        [(true, "ProcessingElementsDown", "Suspended"), (false, condition::RESET_ATTEMPTS_EXHAUSTED, "Resumed")];
    for (is_suspended, expected, event) in table {
        simulation.change_spec(|spec| spec.suspend = is_suspended);
        simulation.settle();
        let said = condition::get(&simulation.status().conditions, condition::DEGRADED).cloned().unwrap();
        let names_both = ["PE 1", name().as_str()].map(|part| said.message.contains(part));
        assert_eq!((&*said.reason, names_both), (expected, [true, true]), "{}", said.message);
        assert_eq!(told(&simulation), [event], "{is_suspended}");
    }
}

#[test]
fn checkpoints_of_a_region_cost_no_write_of_the_job() {
    let mut simulation = JobSimulation::running();
    simulation.settle();
    let before = simulation.status_writes();
    for checkpoint in 0..10 {
        for state in ["DRAINING", "PROCESSING"] {
            drive(&simulation, state, checkpoint);
            simulation.settle();
        }
    }
    assert_eq!(simulation.status_writes(), before);
}
