//! What is admitted, and what others wait for meanwhile.

use super::{JobSimulation, key};
use futures::FutureExt as _;
use parking_lot::Mutex;
use std::pin::pin;
use std::sync::Arc;
use streams_api::Resize;
use streams_kubernetes_fake::{Call, Verb};

fn reads_region(call: &Call) -> bool {
    call.verb == Verb::Get && call.kind == "ParallelRegion"
}

#[test]
fn who_admits_large_requests_reads_the_regions_while_others_may_look_at_theirs() {
    let mut simulation = JobSimulation::running();
    let long: Vec<String> = ["a", "b", "c", "d", "e"].map(|letter| letter.repeat(1 << 16)).into();
    let unknown = long.iter().map(|name| (name.as_str(), 3));
    simulation.request("large", &unknown.chain([("R", 3)]).collect::<Vec<_>>());
    let (turns, could) = (simulation.leader.reconciler.large_looks.clone(), Arc::new(Mutex::new(Vec::new())));
    let noted = Arc::clone(&could);
    simulation.server.refuse(move |call| {
        if reads_region(call) {
            noted.lock().push(turns.acquire("another").now_or_never().is_some());
        }
        None
    });
    simulation.until(|simulation| simulation.outcome("large").phase.is_some_and(|phase| phase.is_final()));
    assert_eq!(*could.lock(), [true]);
}

/// However little is kept of them: they have ended.
#[test]
fn what_takes_long_to_read_is_read_of_one_job_at_a_time() {
    let mut simulation = JobSimulation::running();
    let long = "x".repeat(1 << 20);
    (0..5).for_each(|number| simulation.request(&format!("r{number}"), &[(&*long, 3)]));
    simulation.settle();
    let reconciler = Arc::clone(&simulation.leader.reconciler);
    let (of, turns) = (key(), reconciler.large_looks.clone());
    let job = reconciler.mirrors.jobs.get(&of).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let other = turns.acquire("another").await;
        let mut reading = pin!(reconciler.read_requests(&of, &job));
        assert!(futures::poll!(reading.as_mut()).is_pending());
        assert_eq!(turns.waiting(&of.namespace), 1);
        drop(other);
        let read = reading.await.unwrap();
        assert!(read.iter().all(|request| request.spec.regions.is_empty()));
        let is_free = turns.acquire("another").now_or_never().is_some();
        assert_eq!((read.len(), is_free), (5, true));
    });
}

/// Its region may have been changed after that was read, and before the request was made: a change that comes first
/// must not count as one that comes after the request.
#[test]
fn a_request_that_comes_while_regions_are_read_is_not_judged_against_these() {
    let mut simulation = JobSimulation::running();
    simulation.request("first", &[("R", 3)]);
    let mut late: Resize = simulation.server.get(&key().sibling("first")).unwrap();
    (late.metadata.name, late.metadata.uid) = (Some("late".to_owned()), Some("late".to_owned()));
    let (mirror, writes) = (simulation.leader.reconciler.mirrors.resizes.clone(), Arc::new(Mutex::new(0)));
    let noted = Arc::clone(&writes);
    simulation.server.refuse(move |call| {
        if reads_region(call) {
            mirror.insert(late.clone());
        }
        if call.verb.is_write() && call.key.name == "late".into() {
            *noted.lock() += 1;
        }
        None
    });
    for _ in 0..10 {
        if simulation.outcome("first").number.is_some() {
            break;
        }
        simulation.round();
    }
    assert!(simulation.outcome("first").number.is_some());
    assert_eq!(*writes.lock(), 0);
}
