//! What a job says of where its pods are and how long they settle.

use super::simulation::{ClusterEvent, PeSimulation};
use super::{launches, settle};
use streams_api::PePhase;

#[test]
fn a_pe_in_a_pool_moves_when_its_job_says_so_and_not_with_the_pool() {
    let mut simulation = PeSimulation::new();
    simulation.change_pool("a");
    simulation.place_in_pool("a");
    settle(&mut simulation);
    let rest = |simulation: &mut PeSimulation| {
        for _ in 0..5 {
            simulation.deliver_all();
            simulation.reconcile();
        }
        (launches(simulation), simulation.hosts())
    };
    let on = |launch, host: &str| ((launch, 0, Some(PePhase::Running)), vec![Some(host.to_owned())]);
    simulation.change_pool("b");
    assert_eq!(rest(&mut simulation), on(1, "a"));
    // It would have to move in a moment.
    simulation.happen(ClusterEvent::Request(1));
    assert_eq!(rest(&mut simulation), on(1, "a"));
    simulation.place_in_pool("b");
    settle(&mut simulation);
    assert_eq!(rest(&mut simulation), on(2, "b"));
    // The mirror shows the PE before the pool.
    simulation.place_in_pool("c");
    simulation.happen(ClusterEvent::Text { generation: false });
    assert_eq!(rest(&mut simulation), on(2, "b"));
    simulation.change_pool("c");
    settle(&mut simulation);
    assert_eq!(rest(&mut simulation), on(3, "c"));
    assert_eq!(simulation.pe().status.unwrap().placement_hash, simulation.pe().spec.placement_hash);
}

#[test]
fn a_pod_counts_as_running_after_the_time_that_its_job_says() {
    let mut simulation = PeSimulation::new();
    simulation.happen(ClusterEvent::MinReady(30));
    let step = |simulation: &mut PeSimulation| {
        for _ in 0..6 {
            simulation.deliver_all();
            simulation.reconcile();
        }
        launches(simulation)
    };
    step(&mut simulation);
    simulation.happen(ClusterEvent::Run);
    assert_eq!(step(&mut simulation), (1, 0, Some(PePhase::Starting)));
    simulation.wait(29);
    assert_eq!(step(&mut simulation), (1, 0, Some(PePhase::Starting)));
    // An edit counts from then on, but for a pod that counts already.
    simulation.happen(ClusterEvent::MinReady(60));
    simulation.wait(1);
    assert_eq!(step(&mut simulation), (1, 0, Some(PePhase::Starting)));
    simulation.happen(ClusterEvent::MinReady(30));
    assert_eq!(step(&mut simulation), (1, 0, Some(PePhase::Running)));
    simulation.happen(ClusterEvent::MinReady(60));
    assert_eq!(step(&mut simulation), (1, 0, Some(PePhase::Running)));
}
