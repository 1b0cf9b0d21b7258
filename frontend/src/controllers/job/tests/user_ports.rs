//! Ports of Services that operators open under a name follow what PEs register, whatever happens in between (rules
//! pe-api-5 and name-7).

use super::simulation::{JOB, JobSimulation, NAMESPACE, wait_for};
use crate::controllers::job::reconciler::rewrites::Rewrites;
use k8s_openapi::api::core::v1::Service;
use kube::ResourceExt as _;
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use streams_api::{ProcessingElement, UserEndpoint, condition, names};
use streams_kubernetes::Key;
use streams_kubernetes::cluster::{Cluster, Manager};

const USER: Manager = Manager("user");

fn name_of(pe: u64) -> Key {
    Key::new(NAMESPACE, &names::processing_element(JOB, pe))
}

/// The PE registers these endpoints, and no others.
fn register(simulation: &JobSimulation, pe: u64, endpoints: &[(&str, u16)]) {
    let endpoint =
        |(name, port): &(&str, u16)| UserEndpoint { name: (*name).to_owned(), port: *port, protocol: "TCP".to_owned() };
    simulation.server.edit::<ProcessingElement>(&name_of(pe), |object| {
        object.status.get_or_insert_default().endpoints = endpoints.iter().map(endpoint).collect();
    });
}

fn ports(of: &[(&str, i32)]) -> BTreeMap<String, i32> {
    of.iter().map(|(name, port)| ((*name).to_owned(), *port)).collect()
}

fn is_ready(simulation: &JobSimulation) -> bool {
    condition::is_true(&simulation.status().conditions, condition::READY)
}

/// Counts writes of Services from now on.
fn count_writes(simulation: &JobSimulation) -> Arc<AtomicUsize> {
    let count = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&count);
    simulation.server.refuse(move |call| {
        if call.kind == "Service" && call.verb.is_write() {
            seen.fetch_add(1, Ordering::SeqCst);
        }
        None
    });
    count
}

#[test]
fn a_port_comes_and_goes_with_its_endpoint_and_nothing_restarts() {
    let mut simulation = JobSimulation::running();
    let starts = simulation.starts();
    // what is registered -> ports
    type Row<'a> = (&'a [(&'a str, u16)], &'a [(&'a str, i32)]);
    let table: [Row<'_>; 6] = [
        (&[("web", 80)], &[("usr-web", 80)]),
        (&[("web", 80), ("a", 79)], &[("usr-a", 79), ("usr-web", 80)]),
        (&[("web", 81), ("a", 79)], &[("usr-a", 79), ("usr-web", 81)]),
        // The names change places.
        (&[("web", 79), ("a", 81)], &[("usr-a", 81), ("usr-web", 79)]),
        (&[("other", 81)], &[("usr-other", 81)]),
        (&[], &[]),
    ];
    let before = simulation.server.get::<Service>(&name_of(0)).unwrap();
    for (registered, expected) in table {
        register(&simulation, 0, registered);
        simulation.settle();
        assert_eq!(simulation.user_ports(0), ports(expected), "{registered:?}");
        assert_eq!((simulation.user_ports(1), simulation.starts()), (ports(&[]), starts.clone()), "{registered:?}");
        simulation.check_at_rest();
        let version = simulation.server.version();
        simulation.crash();
        simulation.settle();
        assert_eq!(simulation.server.version(), version, "another leader wants the same: {registered:?}");
    }
    let after = simulation.server.get::<Service>(&name_of(0)).unwrap();
    assert_eq!(after.spec, before.spec, "nothing stays of it");
}

#[test]
fn the_first_registration_is_followed_at_once_although_the_job_was_found_as_it_is() {
    for is_crowded_with_rewrites in [false, true] {
        let mut simulation = JobSimulation::running();
        simulation.crash();
        if is_crowded_with_rewrites {
            // No object may be rewritten for another version of the frontend.
            let reconciler = Arc::get_mut(&mut simulation.leader.reconciler).unwrap();
            reconciler.rewrites = Rewrites::new(0);
        }
        simulation.reconcile();
        register(&simulation, 0, &[("web", 80)]);
        simulation.reconcile();
        assert_eq!(simulation.user_ports(0), ports(&[("usr-web", 80)]));
    }
}

#[test]
fn a_crash_between_the_registration_and_the_port_loses_nothing() {
    for is_removed in [false, true] {
        for after in 0..4 {
            for has_effect in [false, true] {
                let mut simulation = JobSimulation::running();
                register(&simulation, 0, &[("web", 80)]);
                if is_removed {
                    simulation.settle();
                    register(&simulation, 0, &[("web", 81)]);
                }
                simulation.crash_at_write(after, has_effect);
                simulation.settle();
                let port = if is_removed { 81 } else { 80 };
                assert_eq!(simulation.user_ports(0), ports(&[("usr-web", port)]), "{after} {has_effect}");
                simulation.check_at_rest();
            }
        }
    }
}

#[test]
fn pes_that_stay_keep_their_ports_over_resizes_and_those_that_go_take_them_along() {
    let mut simulation = JobSimulation::running();
    // With width 1 of the first region there is no PE 5.
    register(&simulation, 0, &[("web", 80)]);
    register(&simulation, 5, &[("gone", 81)]);
    simulation.settle();
    simulation.resize(0, 1);
    simulation.settle();
    assert_eq!(simulation.user_ports(0), ports(&[("usr-web", 80)]));
    assert!(!simulation.has_service(5));
    simulation.resize(0, 4);
    simulation.settle();
    assert_eq!(simulation.user_ports(0), ports(&[("usr-web", 80)]));
    simulation.check_at_rest();
}

#[test]
fn what_others_change_of_these_ports_is_restored() {
    let mut simulation = JobSimulation::running();
    register(&simulation, 0, &[("web", 80), ("a", 79)]);
    simulation.settle();
    let before = simulation.server.get::<Service>(&name_of(0)).unwrap().spec.unwrap().ports.unwrap();
    let user = simulation.server.connect();
    let count = before.len();
    for change in 0..3 {
        let mut ports = before.clone();
        match change {
            0 => drop(ports.pop()),
            1 => ports[count - 1].name = Some("usr-mine".to_owned()),
            _ => ports[count - 1].port = 4711,
        }
        wait_for(user.merge::<Service>(USER, &name_of(0), &json!({"spec": {"ports": ports}}))).unwrap();
        assert_ne!(simulation.server.get::<Service>(&name_of(0)).unwrap().spec.unwrap().ports.unwrap(), before);
        simulation.settle();
        simulation.check_at_rest();
        simulation.wait(3600);
    }
    // Somebody deletes the Service.
    simulation.server.remove::<Service>(&name_of(0));
    simulation.settle();
    assert_eq!(simulation.user_ports(0), ports(&[("usr-a", 79), ("usr-web", 80)]));
    simulation.check_at_rest();
}

#[test]
fn what_no_service_can_have_stops_nothing() {
    let mut simulation = JobSimulation::running();
    register(&simulation, 0, &[("Not-A-Name", 80), ("web", 81), ("zero", 0)]);
    for _ in 0..10 {
        simulation.reconcile();
    }
    assert_eq!(simulation.user_ports(0), ports(&[("usr-web", 81)]));
    assert!(is_ready(&simulation));
}

#[test]
fn a_pe_that_registers_in_a_loop_costs_few_writes_and_the_end_of_it_is_followed() {
    let mut simulation = JobSimulation::running();
    let writes = count_writes(&simulation);
    for turn in 0..200_u16 {
        register(&simulation, 0, if turn % 2 == 0 { &[("web", 80)] } else { &[] });
        simulation.reconcile();
        simulation.server.advance(std::time::Duration::from_millis(100));
    }
    let most = writes.load(Ordering::SeqCst);
    // 20 s, and a change in 5 s, of at most two writes.
    assert!((2..=10).contains(&most), "{most} writes");
    register(&simulation, 0, &[("web", 82)]);
    simulation.settle();
    assert_eq!(simulation.user_ports(0), ports(&[("usr-web", 82)]));
    simulation.check_at_rest();
    let service = simulation.server.get::<Service>(&name_of(0)).unwrap();
    assert!(service.annotations().contains_key(names::ANNOTATION_APPLIED_HASH));
}
