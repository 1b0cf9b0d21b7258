//! What others make of the annotation by which an object says what was applied to it last (rule call-19).

use super::simulation::{JOB, JobSimulation, NAMESPACE, wait_for};
use crate::controllers::job::objects::port_labels;
use crate::controllers::job::reconciler::rewrites::Rewrites;
use k8s_openapi::api::core::v1::{ConfigMap, Service};
use kube::ResourceExt as _;
use serde_json::{Value, json};
use std::sync::Arc;
use streams_api::{
    ConsistentRegion, Export, HostPool, Import, MaxUnavailable, PeOptions, ProcessingElement, RolloutOptions,
    TraceLevel, condition, names,
};
use streams_kubernetes::Key;
use streams_kubernetes::cluster::{Cluster as _, Manager, Object};

/// Somebody gives the object this hash, or takes it away.
fn annotate<K: Object>(simulation: &JobSimulation, name: &str, hash: Option<&str>) {
    let patch =
        json!({"metadata": {"annotations": {names::ANNOTATION_APPLIED_HASH: hash.map_or(Value::Null, Value::from)}}});
    let user = simulation.server.connect();
    wait_for(user.merge::<K>(Manager("user"), &Key::new(NAMESPACE, name), &patch)).unwrap();
}

fn pe_name(id: u64) -> String {
    names::processing_element(JOB, id)
}

fn hash_of_pe(simulation: &JobSimulation, id: u64) -> Option<String> {
    simulation.pe(id)?.annotations().get(names::ANNOTATION_APPLIED_HASH).cloned()
}

fn reconcile(simulation: &mut JobSimulation) {
    for _ in 0..4 {
        simulation.reconcile();
    }
}

fn contended(simulation: &JobSimulation) -> Option<String> {
    let status = simulation.status();
    condition::get(&status.conditions, condition::CONTENDED).map(|condition| condition.message.clone())
}

/// All port labels of the committed generation are there.
fn has_port_labels(simulation: &JobSimulation) -> bool {
    let map = simulation.server.get::<ConfigMap>(&Key::new(NAMESPACE, JOB));
    let labels = map.and_then(|map| map.data?.remove(port_labels::FILE)).unwrap_or_default();
    let generation = simulation.generation();
    let mut wanted = generation.plan.processing_elements.iter().flat_map(|pe| &pe.port_labels);
    wanted.all(|label| labels.contains(&format!("{}={}", label.operator_port_label, label.pe_port_label)))
}

/// Somebody takes the hash of these objects so often that its restoration waits, and once more.
fn insist(simulation: &mut JobSimulation, take: impl Fn(&JobSimulation)) {
    for _ in 0..3 {
        take(simulation);
        reconcile(simulation);
    }
    assert!(contended(simulation).is_some());
    take(simulation);
    reconcile(simulation);
}

fn take_from_all_pes(simulation: &JobSimulation) {
    for id in simulation.pes().into_keys() {
        annotate::<ProcessingElement>(simulation, &pe_name(id), None);
    }
}

/// Port labels of a proposal are there before its commit.
fn check_port_labels_of_a_proposal(mut simulation: JobSimulation) {
    simulation.resize(0, 4);
    simulation.until_committed(1);
    assert!(has_port_labels(&simulation));
    simulation.settle();
    simulation.check_at_rest();
}

#[test]
fn port_labels_whose_restoration_waits_are_there_before_the_commit() {
    let mut simulation = JobSimulation::running();
    insist(&mut simulation, |simulation| annotate::<ConfigMap>(simulation, JOB, None));
    check_port_labels_of_a_proposal(simulation);
}

/// For another version of the frontend so much is written again that nothing more may be now.
#[test]
fn port_labels_of_a_proposal_do_not_wait_for_what_is_rewritten() {
    let mut simulation = JobSimulation::running();
    simulation.crash();
    Arc::get_mut(&mut simulation.leader.reconciler).unwrap().rewrites = Rewrites::new(0);
    simulation.reconcile();
    check_port_labels_of_a_proposal(simulation);
}

/// The simulation sees to it that no more of them are down than may be.
#[test]
fn pes_whose_restoration_waits_take_their_turns() {
    let mut simulation = JobSimulation::running();
    let max_unavailable = MaxUnavailable::Count(1);
    let one_by_one = RolloutOptions { max_unavailable, ..RolloutOptions::default() };
    simulation.change_spec(|spec| spec.rollout = Some(one_by_one));
    insist(&mut simulation, take_from_all_pes);
    simulation.forget_starts();
    simulation.resize(0, 3);
    simulation.settle();
    simulation.check_at_rest();
    assert_eq!(simulation.status().generation, Some(1));
}

#[test]
fn an_edit_does_not_wait_for_a_restoration() {
    let mut simulation = JobSimulation::running();
    insist(&mut simulation, take_from_all_pes);
    assert!(simulation.pes().into_keys().all(|id| hash_of_pe(&simulation, id).is_none()), "they wait");
    let options = PeOptions { runtime_trace_level: TraceLevel::Debug, ..PeOptions::default() };
    simulation.change_spec(|spec| spec.processing_element = Some(options));
    reconcile(&mut simulation);
    let is_written = |pe: &ProcessingElement| pe.spec.options.runtime_trace_level == TraceLevel::Debug;
    assert!(simulation.pes().values().all(is_written));
    // They still insist.
    take_from_all_pes(&simulation);
    reconcile(&mut simulation);
    assert!(hash_of_pe(&simulation, 0).is_none());
    simulation.settle();
    simulation.check_at_rest();
}

#[test]
fn whoever_writes_another_hash_insists_like_anybody_else_and_the_job_stays_ready() {
    let mut simulation = JobSimulation::running();
    let (wanted, starts) = (hash_of_pe(&simulation, 0), simulation.starts());
    for time in 1..=4 {
        annotate::<ProcessingElement>(&simulation, &pe_name(0), Some(&format!("{time}")));
        for _ in 0..4 {
            simulation.round();
            assert!(condition::is_true(&simulation.status().conditions, condition::READY), "{time}");
        }
        assert_eq!(hash_of_pe(&simulation, 0) == wanted, time < 4, "{time}");
    }
    let message = contended(&simulation).unwrap();
    assert!(message.contains("metadata.annotations.streams.ibm.com/applied-hash of PE job-0"), "{message}");
    simulation.settle();
    simulation.check_at_rest();
    assert_eq!((hash_of_pe(&simulation, 0), simulation.starts()), (wanted, starts));
}

#[test]
fn what_was_applied_is_known_although_it_was_never_shown() {
    let mut simulation = JobSimulation::running();
    let options = PeOptions { runtime_trace_level: TraceLevel::Debug, ..PeOptions::default() };
    simulation.change_spec(|spec| spec.processing_element = Some(options));
    simulation.round();
    let written = hash_of_pe(&simulation, 0).unwrap();
    annotate::<ProcessingElement>(&simulation, &pe_name(0), Some("other"));
    simulation.leader.catch_up();
    let object = simulation.leader.observed().children.processing_elements[&0].object.clone();
    assert_eq!((&object.applied, object.drift.is_some()), (&written, true));
    simulation.settle();
    simulation.check_at_rest();
}

/// Admission drops it from objects of this kind whenever one is written.
fn drop_hash<K: Object>(simulation: &JobSimulation) {
    let path = ["metadata", "annotations", names::ANNOTATION_APPLIED_HASH];
    simulation.server.does_not_declare::<K>(&path, false);
}

/// It would be applied again and again, with nothing that names it, and the job would never be submitted.
#[test]
fn a_job_whose_objects_cannot_say_what_was_applied_is_submitted_and_resized_and_says_so() {
    let mut simulation = JobSimulation::new();
    drop_hash::<ProcessingElement>(&simulation);
    drop_hash::<Service>(&simulation);
    drop_hash::<HostPool>(&simulation);
    drop_hash::<Export>(&simulation);
    drop_hash::<Import>(&simulation);
    drop_hash::<ConsistentRegion>(&simulation);
    drop_hash::<ConfigMap>(&simulation);
    simulation.settle();
    assert_eq!(simulation.status().generation, Some(0));
    assert!(hash_of_pe(&simulation, 0).is_none());
    // What is restored in vain changes nothing, so nothing wakes the job: it is looked at for other reasons.
    reconcile(&mut simulation);
    let message = contended(&simulation).unwrap();
    assert!(message.contains("metadata.annotations.streams.ibm.com/applied-hash of "), "{message}");
    simulation.check_at_rest();
    simulation.resize(0, 4);
    simulation.settle();
    assert_eq!(simulation.status().generation, Some(1));
    simulation.check_at_rest();
    simulation.server.declares_everything();
    simulation.wait(3600);
    simulation.settle();
    simulation.check_at_rest();
    assert!(hash_of_pe(&simulation, 0).is_some());
    assert_eq!(contended(&simulation), None);
}
