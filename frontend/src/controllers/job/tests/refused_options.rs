//! Options that are refused while a job runs: its PEs keep those that they had (rule job-39).

use super::simulation::{JOB, JobSimulation, key};
use k8s_openapi::api::core::v1::{ConfigMap, ResourceRequirements};
use kube::ResourceExt as _;
use kube::core::Status;
use serde_json::{Value, json};
use streams_api::{PeOptions, ProcessingElement, TransportSecurity, names};

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
    for chunk in &chunks {
        simulation.server.remove::<ConfigMap>(&key().sibling(&chunk.name_any()));
    }
    simulation.crash();
    want(&simulation, &refused());
    simulation.reconcile();
    for mut chunk in chunks {
        chunk.metadata.uid = None;
        chunk.metadata.resource_version = None;
        chunk.metadata.managed_fields = None;
        simulation.server.create(&chunk);
    }
    simulation.settle();
    simulation.check_at_rest();
    for (id, pe) in simulation.pes() {
        assert_eq!(pe.spec.options.transport_security_type, TransportSecurity::Tls12, "{id}");
    }
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
