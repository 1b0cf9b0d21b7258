//! A write of a deposed leader arrives after the next leader has finished.

use super::simulation::{JobSimulation, Snapshot, wait_for};
use futures::FutureExt;
use std::sync::{Arc, Mutex};
use streams_kubernetes_fake::Fault;

/// Rounds that a leader gets until its write must have come.
const ROUNDS: usize = 40;

/// Lets a leader go on with `action` until the write after so many. While that write is on its way another one takes
/// over and finishes; then the write arrives, and nothing later. `None`: there is no such write.
fn with_a_late_write(start: &Snapshot, action: fn(&JobSimulation), after: usize) -> Option<JobSimulation> {
    let mut simulation = JobSimulation::resume(start);
    action(&simulation);
    let mut deposed = simulation.new_leader();
    let connection = deposed.connection.clone();
    let simulation = Arc::new(Mutex::new(simulation));
    let writes = Mutex::new(0);
    connection.meanwhile({
        let (simulation, connection) = (Arc::clone(&simulation), connection.clone());
        move |call| {
            let mut writes = writes.lock().unwrap();
            if call.verb.is_write() {
                if *writes == after {
                    let mut simulation = simulation.lock().unwrap();
                    simulation.settle();
                    simulation.set_late(true);
                    connection.fail(Fault { after: 0, of_writes: true, has_effect: true, is_last: true });
                }
                *writes += 1;
            }
            async {}.boxed()
        }
    });
    for _ in 0..ROUNDS {
        deposed.catch_up();
        let _ = wait_for(deposed.reconcile());
        for kind in deposed.running() {
            wait_for(deposed.work(kind));
        }
        if connection.is_broken() {
            break;
        }
        let simulation = simulation.lock().unwrap();
        simulation.run_pods();
        simulation.collect();
    }
    let was_late = connection.is_broken();
    // It has the simulation, and the simulation its connection.
    connection.meanwhile(|_| async {}.boxed());
    drop(deposed);
    let simulation = Arc::into_inner(simulation).expect("nobody else has it").into_inner().unwrap();
    simulation.set_late(false);
    was_late.then_some(simulation)
}

const SCENARIOS: [(&str, fn() -> JobSimulation, fn(&JobSimulation)); 4] = [
    ("submission", JobSimulation::new, |_| {}),
    ("growth", JobSimulation::running, |w| w.resize(0, 4)),
    ("shrinking", JobSimulation::running, |w| w.resize(0, 1)),
    ("two regions at once", JobSimulation::running, |w| w.resize_both([3, 1])),
];

#[test]
fn a_write_of_a_deposed_leader_arrives_late() {
    for (name, start, action) in SCENARIOS {
        let start = start().snapshot();
        let mut end = JobSimulation::resume(&start);
        action(&end);
        end.settle();
        let mut writes = 0;
        while let Some(mut simulation) = with_a_late_write(&start, action, writes) {
            simulation.settle();
            simulation.check_at_rest();
            assert_eq!(simulation.shape(), end.shape(), "{name}: the write after {writes}");
            writes += 1;
        }
        assert!(writes > 10, "{name}");
        println!("{name}: {writes} writes of a deposed leader that arrive late, one end");
    }
}
