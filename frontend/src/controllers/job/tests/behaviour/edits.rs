//! Edits of a job that runs, but for its widths: what is not supported changes nothing, and what is supported is
//! carried out without a word about pods that stay.

use super::super::simulation::{JobSimulation, wait_for};
use super::{condition_reason, is_true};
use k8s_openapi::api::core::v1::ResourceRequirements;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::core::Status;
use streams_api::{PeOptions, PePhase, ProcessingElement, TraceLevel, TransportSecurity, condition};

/// The API server refuses such an edit, unless it has the rule only since then.
#[test]
fn an_edit_to_what_is_not_supported_leaves_pes_as_they_are_and_is_told_once() {
    let mut simulation = JobSimulation::running();
    let before = simulation.pes();
    simulation.server.announced();
    simulation.change_spec(|spec| {
        let cpu = [("cpu".to_owned(), Quantity("1e99".to_owned()))];
        spec.resources = Some(ResourceRequirements { limits: Some(cpu.into()), ..ResourceRequirements::default() });
        spec.processing_element =
            Some(PeOptions { transport_security_type: TransportSecurity::Tls12, ..PeOptions::default() });
    });
    simulation.settle();
    assert_eq!(simulation.pes(), before);
    assert_eq!(condition_reason(&simulation, condition::WARNING).as_deref(), Some("NotSupported"));
    assert!(is_true(&simulation, condition::READY));
    // The rest of the spec counts, and widths as well. Whoever leads next knows it.
    simulation.change_spec(|spec| {
        spec.processing_element.as_mut().unwrap().runtime_trace_level = TraceLevel::Debug;
    });
    simulation.crash();
    simulation.resize(0, 4);
    simulation.settle();
    simulation.check_at_rest();
    let resources = &before[&0].spec.options.resources;
    for (id, pe) in simulation.pes() {
        let options = &pe.spec.options;
        assert_eq!(options.transport_security_type, TransportSecurity::None, "PE {id}");
        assert_eq!((options.runtime_trace_level, &options.resources), (TraceLevel::Debug, resources), "PE {id}");
    }
    let warnings = simulation.server.announced().into_iter().filter(|announced| announced.notice.warning);
    let reasons = warnings.map(|announced| announced.notice.reason);
    assert_eq!(reasons.collect::<Vec<_>>(), ["NotSupported", "ResourcesInvalid"], "people hear of each once");
    simulation.change_spec(|spec| {
        spec.resources = None;
        spec.processing_element = None;
    });
    simulation.settle();
    assert_eq!(condition_reason(&simulation, condition::WARNING), None);
}

/// Reason of a condition, and whether it is true; nothing if it is not there.
fn said(simulation: &JobSimulation, kind: &str) -> Option<(String, bool)> {
    let status = simulation.status();
    condition::get(&status.conditions, kind).map(|condition| (condition.reason.clone(), condition.status == "True"))
}

/// No pod is replaced, and none is started: while PEs are written, and until the PE controller has looked at them.
#[test]
fn an_edit_of_options_changes_nothing_that_is_said_of_pods_while_it_is_carried_out() {
    let runs: fn(&JobSimulation) = |_| {};
    let is_degraded: fn(&JobSimulation) = |simulation| simulation.break_down(3, PePhase::Failed);
    let has_completed: fn(&JobSimulation) = |simulation| simulation.complete(3);
    let is_suspended: fn(&JobSimulation) = |simulation| simulation.change_spec(|spec| spec.suspend = true);
    let is_stopped: fn(&JobSimulation) = |simulation| simulation.stop(3);
    for (number, begin) in [runs, is_degraded, has_completed, is_suspended, is_stopped].into_iter().enumerate() {
        let mut simulation = JobSimulation::running();
        begin(&simulation);
        simulation.settle();
        let is_suspended = number == 3;
        let kinds = [condition::READY, condition::PODS_READY, condition::DEGRADED, condition::SUSPENDED];
        let says = |simulation: &JobSimulation| (simulation.status().phase, kinds.map(|kind| said(simulation, kind)));
        let before = says(&simulation);
        simulation.server.announced();
        let options = PeOptions { runtime_trace_level: TraceLevel::Debug, ..PeOptions::default() };
        simulation.change_spec(|spec| spec.processing_element = Some(options.clone()));
        let is_written = |pe: &ProcessingElement| pe.spec.options.runtime_trace_level == options.runtime_trace_level;
        simulation.server.refuse(|call| {
            let is_late = call.kind == "ProcessingElement" && call.key.name.ends_with("-2");
            is_late.then(|| *Status::failure("not now", "InternalError").with_code(500).boxed())
        });
        simulation.reconcile();
        assert_eq!(says(&simulation), before, "{number}: not all are written");
        assert!(simulation.status().rollout.is_some_and(|rollout| rollout.pending > 0), "{number}: it is not over");
        simulation.server.refuse(|_| None);
        assert!(wait_for(simulation.leader.reconcile()).is_ok());
        assert_eq!(says(&simulation), before, "{number}: the mirror lags behind");
        assert!(simulation.pes().values().all(is_written), "{number}");
        for _ in 0..2 {
            simulation.wait(10);
            simulation.reconcile();
            assert_eq!(says(&simulation), before, "{number}: the PE controller has not looked");
        }
        let is_progressing = if is_suspended { "Suspended" } else { "Done" };
        assert_eq!(said(&simulation, condition::PROGRESSING), Some((is_progressing.to_owned(), false)), "{number}");
        assert_eq!(simulation.status().rollout.map(|rollout| rollout.pending), Some(0), "{number}");
        let told = simulation.server.announced();
        assert!(told.is_empty(), "{number}: {told:?}");
    }
}
