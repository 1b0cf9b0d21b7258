//! Jobs that users suspend and resume (rule job-44), and PEs that they stop (rule pe-21).

use super::simulation::JobSimulation;
use streams_api::{JobPhase, JobStatus, PePhase, condition};

fn suspend(simulation: &JobSimulation, suspend: bool) {
    simulation.change_spec(|spec| spec.suspend = suspend);
}

fn reason(status: &JobStatus, kind: &str) -> Option<String> {
    condition::get(&status.conditions, kind).map(|condition| condition.reason.clone())
}

fn reasons(simulation: &JobSimulation) -> Vec<String> {
    simulation.server.announced().into_iter().map(|announced| announced.notice.reason.into_owned()).collect()
}

#[test]
fn a_suspended_job_keeps_everything_but_its_pods_and_can_be_resized() {
    let mut simulation = JobSimulation::running();
    let left = simulation.left();
    simulation.server.announced();
    suspend(&simulation, true);
    simulation.settle();
    assert_eq!(simulation.left(), left);
    let status = simulation.status();
    assert_eq!(status.phase, Some(JobPhase::Suspended));
    for kind in [condition::SUSPENDED, condition::READY, condition::PODS_READY, condition::PROGRESSING] {
        assert_eq!(reason(&status, kind).as_deref(), Some("Suspended"), "{kind}");
    }
    assert!(condition::is_true(&status.conditions, condition::SUBMITTED), "it was submitted");
    assert_eq!(reasons(&simulation), ["Suspended"]);
    simulation.forget_starts();
    for width in [4, 1] {
        simulation.resize(0, width);
        simulation.settle();
        let status = simulation.status();
        assert_eq!(status.phase, Some(JobPhase::Suspended));
        assert!(status.rollout.as_ref().is_some_and(|rollout| rollout.finished_at.is_some()), "{status:?}");
        assert_eq!(reason(&status, condition::RESIZE_DELAYED), None);
    }
    assert!(simulation.starts().is_empty(), "no pod runs meanwhile");
    assert!(simulation.pes().values().all(|pe| pe.status.as_ref().unwrap().phase == Some(PePhase::Suspended)));
    simulation.server.announced();
    simulation.crash();
    suspend(&simulation, false);
    simulation.settle();
    simulation.check_at_rest();
    assert_eq!(simulation.status().phase, Some(JobPhase::Running));
    assert_eq!(reason(&simulation.status(), condition::SUSPENDED), None);
    assert_eq!(simulation.starts().into_values().collect::<Vec<_>>(), [1; 7], "each PE once");
    assert_eq!(reasons(&simulation), ["Resumed"]);
}

#[test]
fn a_pe_that_a_user_stops_is_told_and_holds_up_nothing() {
    let mut simulation = JobSimulation::running();
    simulation.stop(1);
    simulation.settle();
    let said = |simulation: &JobSimulation| {
        let status = simulation.status();
        let degraded = condition::get(&status.conditions, condition::DEGRADED).cloned().expect("it is said");
        (status.phase, reason(&status, condition::PROGRESSING).unwrap(), degraded.reason, degraded.message)
    };
    let message = "1 PE is down and stays so because of policies, operators or users: PE 1 (StopRequested): a user stopped the PE";
    let expected = || {
        let [done, down, message] = ["Done", "ProcessingElementsDown", message].map(str::to_owned);
        (Some(JobPhase::Degraded), done, down, message)
    };
    assert_eq!(said(&simulation), expected());
    simulation.forget_starts();
    simulation.resize(0, 1);
    simulation.settle();
    assert_eq!(said(&simulation), expected(), "a resize is rolled out without it");
    assert!(simulation.status().rollout.is_some_and(|rollout| rollout.finished_at.is_some()));
    assert_eq!(simulation.starts().into_keys().collect::<Vec<_>>(), [0]);
    assert!(simulation.pe(1).is_some_and(|pe| pe.spec.generation == 1), "it has its text for when it goes on");
}

#[test]
fn a_job_that_is_suspended_from_the_beginning_starts_when_it_is_resumed_and_its_clock_stands() {
    let mut simulation = JobSimulation::new();
    suspend(&simulation, true);
    simulation.services.change(|services| services.seconds = 1_000);
    simulation.settle();
    simulation.wait(1_000);
    simulation.settle();
    let status = simulation.status();
    assert_eq!((status.phase, status.generation, status.submission_attempts), (Some(JobPhase::Suspended), Some(0), 1));
    assert_eq!(status.submission_worked_milliseconds, 0);
    assert_eq!(reason(&status, condition::SUBMITTED).as_deref(), Some("Suspended"));
    assert!(simulation.starts().is_empty());
    suspend(&simulation, false);
    simulation.settle();
    simulation.check_at_rest();
    assert_eq!(simulation.starts().into_values().collect::<Vec<_>>(), [1; 8]);
}

#[test]
fn a_suspended_job_that_cannot_be_submitted_was_not_resumed() {
    let mut simulation = JobSimulation::new();
    suspend(&simulation, true);
    simulation.services.change(|services| services.refuses = true);
    simulation.settle();
    simulation.check_at_rest();
    assert_eq!(simulation.status().phase, Some(JobPhase::Failed));
    assert_eq!(reason(&simulation.status(), condition::SUSPENDED).as_deref(), Some("Suspended"));
    assert_eq!(reasons(&simulation), ["Suspended", "SubmissionFailed"]);
    simulation.services.change(|services| services.refuses = false);
    suspend(&simulation, false);
    simulation.settle();
    simulation.check_at_rest();
    assert!(reasons(&simulation).contains(&"Resumed".to_owned()));
}
