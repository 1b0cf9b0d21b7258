//! Options that are refused while a job runs: its PEs keep those that they had (rule job-39).

use super::simulation::{JOB, JobSimulation, key};
use k8s_openapi::api::core::v1::{ConfigMap, ResourceRequirements};
use kube::ResourceExt as _;
use kube::core::Status;
use serde_json::{Value, json};
use streams_api::{InitialWidth, PeOptions, ProcessingElement, TransportSecurity, condition, names};

/// The user wants these resources for each PE.
fn want(simulation: &JobSimulation, resources: &Value) {
    let resources: ResourceRequirements = serde_json::from_value(resources.clone()).unwrap();
    simulation.change_spec(|spec| {
        spec.processing_element = Some(PeOptions { resources: Some(resources), ..spec.pe_options() });
    });
}

/// The API server takes it, and no pod could have it.
fn refused() -> Value {
    json!({"limits": {"requests.example.com/gpu": 1}})
}

fn cpu(cpu: &str) -> Value {
    json!({"limits": {"cpu": cpu}})
}

/// These chunks of a plan are gone, and so is the frontend that remembers it.
fn lose(simulation: &mut JobSimulation, chunks: &[ConfigMap]) {
    for chunk in chunks {
        simulation.server.remove::<ConfigMap>(&key().sibling(&chunk.name_any()));
    }
    simulation.crash();
}

/// Somebody makes these ConfigMaps again.
fn make_again(simulation: &JobSimulation, chunks: Vec<ConfigMap>) {
    for mut chunk in chunks {
        chunk.metadata.uid = None;
        chunk.metadata.resource_version = None;
        chunk.metadata.managed_fields = None;
        simulation.server.create(&chunk);
    }
}

/// The reason of `Ready`.
fn ready(simulation: &JobSimulation) -> String {
    let status = simulation.status();
    condition::get(&status.conditions, condition::READY).unwrap().reason.clone()
}

#[test]
fn what_others_have_made_of_a_pe_is_not_what_the_others_had() {
    let mut simulation = JobSimulation::running();
    want(&simulation, &cpu("2"));
    simulation.settle();
    let of_others = serde_json::from_value(cpu("7")).unwrap();
    let first = key().sibling(&names::processing_element(JOB, 0));
    simulation.server.edit(&first, |pe: &mut ProcessingElement| pe.spec.options.resources = Some(of_others));
    want(&simulation, &refused());
    simulation.settle();
    simulation.check_at_rest();
    for (id, pe) in simulation.pes() {
        assert_eq!(json!(pe.spec.options.resources), cpu("2"), "{id}");
    }
}

/// The mirror shows PEs as they were before the edit that was good.
#[test]
fn an_edit_that_was_carried_out_a_moment_ago_stays_when_the_next_one_is_refused() {
    // how many looks come before the mirror of PEs shows anything
    for looks in [1, 3] {
        let mut simulation = JobSimulation::running();
        want(&simulation, &cpu("1"));
        simulation.settle();
        let all_but_pes = [usize::MAX, 0, usize::MAX, usize::MAX, usize::MAX, usize::MAX];
        want(&simulation, &cpu("2"));
        simulation.reconcile_behind(all_but_pes);
        assert!(simulation.pes().values().all(|pe| json!(pe.spec.options.resources) == cpu("2")));
        want(&simulation, &refused());
        for _ in 0..looks {
            simulation.reconcile_behind(all_but_pes);
        }
        simulation.settle();
        simulation.check_at_rest();
        for (id, pe) in simulation.pes() {
            assert_eq!(json!(pe.spec.options.resources), cpu("2"), "{looks} {id}");
        }
    }
}

#[test]
fn a_plan_that_is_found_again_says_what_was_settled() {
    let mut simulation = JobSimulation::new();
    simulation.secure(true);
    simulation.settle();
    let chunks = simulation.config_maps(&[names::PART_PLAN]);
    lose(&mut simulation, &chunks);
    want(&simulation, &refused());
    simulation.reconcile();
    make_again(&simulation, chunks);
    simulation.settle();
    simulation.check_at_rest();
    for (id, pe) in simulation.pes() {
        assert_eq!(pe.spec.options.transport_security_type, TransportSecurity::Tls12, "{id}");
    }
}

/// What it wants was found out meanwhile, and the spec does not say what the PEs have.
#[test]
fn a_proposal_that_is_whole_while_the_plan_is_lost_is_carried_out_with_what_the_pes_have_when_it_is_there_again() {
    let mut simulation = JobSimulation::running();
    want(&simulation, &cpu("2"));
    simulation.settle();
    want(&simulation, &refused());
    simulation.settle();
    let committed = simulation.config_maps(&[names::PART_PLAN]);
    simulation.resize(0, 4);
    simulation.until(|simulation| simulation.status().proposal.is_some());
    lose(&mut simulation, &committed);
    simulation.reconcile();
    assert_eq!((ready(&simulation).as_str(), simulation.status().proposal.is_some()), ("PlanLost", true));
    make_again(&simulation, committed);
    simulation.settle();
    simulation.check_at_rest();
    assert_eq!(simulation.status().generation, Some(1));
    for (id, pe) in simulation.pes() {
        assert_eq!(json!(pe.spec.options.resources), cpu("2"), "{id}");
    }
}

#[test]
fn what_is_said_of_the_spec_stays_while_the_plan_is_lost_and_is_told_once() {
    let mut simulation = JobSimulation::new();
    let bounds = InitialWidth { name: Some("S".to_owned()), max_width: Some(5), ..InitialWidth::default() };
    simulation.change_spec(|spec| spec.parallel_regions = vec![bounds]);
    simulation.settle();
    simulation.server.announced();
    want(&simulation, &refused());
    simulation.resize(1, 6);
    simulation.settle();
    let said = |simulation: &JobSimulation| {
        let status = simulation.status();
        [condition::RESIZE_REJECTED, condition::WARNING].map(|kind| {
            let said = condition::get(&status.conditions, kind).unwrap_or_else(|| panic!("{kind}: {status:?}"));
            (said.reason.clone(), said.message.clone(), said.last_transition_time.clone())
        })
    };
    let before = said(&simulation);
    assert_eq!([before[0].0.as_str(), before[1].0.as_str()], ["OutOfBounds", "ResourcesInvalid"]);
    simulation.wait(60);
    let chunks = simulation.config_maps(&[names::PART_PLAN]);
    lose(&mut simulation, &chunks);
    simulation.settle();
    assert_eq!((ready(&simulation).as_str(), said(&simulation)), ("PlanLost", before.clone()));
    make_again(&simulation, chunks);
    simulation.settle();
    simulation.check_at_rest();
    assert_eq!(said(&simulation), before);
    let told = simulation.server.announced().into_iter().map(|announced| announced.notice.reason);
    assert_eq!(told.filter(|reason| reason == "ResourcesInvalid").count(), 1, "people hear of it once");
}

/// The mirror shows none of the PEs that a resize has added, and none is written for the edit that was good.
#[test]
fn options_that_no_pe_has_had_are_not_what_the_pes_had() {
    let mut simulation = JobSimulation::running();
    want(&simulation, &cpu("1"));
    simulation.settle();
    let before = simulation.pes().len();
    let all_but_pes = [usize::MAX, 0, usize::MAX, usize::MAX, usize::MAX, usize::MAX];
    simulation.resize(0, 4);
    for _ in 0..20 {
        if simulation.status().generation == Some(1) {
            break;
        }
        simulation.reconcile_behind(all_but_pes);
        simulation.work();
    }
    assert_eq!(simulation.status().generation, Some(1));
    assert!(simulation.pes().len() > before);
    simulation.server.refuse(|call| {
        let is_refused = call.kind == "ProcessingElement" && call.verb.is_write();
        is_refused.then(|| *Status::failure("not now", "Forbidden").with_code(403).boxed())
    });
    want(&simulation, &cpu("2"));
    simulation.reconcile_behind(all_but_pes);
    simulation.server.refuse(|_| None);
    want(&simulation, &refused());
    simulation.reconcile_behind(all_but_pes);
    simulation.settle();
    simulation.check_at_rest();
    for (id, pe) in simulation.pes() {
        assert_eq!(json!(pe.spec.options.resources), cpu("1"), "{id}");
    }
}
