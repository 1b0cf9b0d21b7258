//! A state of the job is shown again that was replaced since: what was committed since is not deleted (rules call-5 and
//! call-28).

use super::simulation::{JobSimulation, key, wait_for};
use crate::controllers::job::decide::decide;
use crate::controllers::job::observe::observe;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use streams_api::Job;
use streams_kubernetes::watch::version;
use streams_kubernetes_fake::Verb;

/// A job that was resized and is at rest, and how the mirror showed it before.
fn resized() -> (JobSimulation, Arc<Job>) {
    let mut simulation = JobSimulation::running();
    simulation.leader.catch_up();
    let before = simulation.leader.reconciler.mirrors.jobs.get(&key()).unwrap();
    simulation.resize(0, 4);
    simulation.settle();
    simulation.leader.catch_up();
    let generations = [before.status.as_ref().and_then(|status| status.generation), simulation.status().generation];
    assert_eq!(generations, [Some(0), Some(1)]);
    (simulation, before)
}

#[test]
fn a_watch_that_tells_of_an_earlier_state_of_the_job_takes_nothing_away() {
    let (mut simulation, before) = resized();
    let there = |simulation: &JobSimulation| (simulation.chunks(), simulation.pes());
    let expected = there(&simulation);
    let mirror = simulation.leader.reconciler.mirrors.jobs.clone();
    let shown = mirror.get(&key());
    mirror.insert(Job::clone(&before));
    assert_eq!(mirror.get(&key()), shown);
    for _ in 0..3 {
        // Nothing else is told meanwhile.
        let _ = wait_for(simulation.leader.round());
        simulation.collect();
    }
    assert_eq!(there(&simulation), expected);
    simulation.settle();
    simulation.check_at_rest();
}

/// A list replaces all that a mirror shows, and something in between may answer it.
#[test]
fn a_job_that_is_listed_as_it_was_before_is_asked_for_once() {
    let (simulation, before) = resized();
    let reads = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&reads);
    simulation.server.refuse(move |call| {
        let is_of_job = call.verb == Verb::Get && call.kind == "Job";
        count.fetch_add(usize::from(is_of_job), Ordering::SeqCst);
        None
    });
    let reconciler = &simulation.leader.reconciler;
    let decided = |mirrored: &Arc<Job>| {
        let job = reconciler.memory.latest(&key(), Arc::clone(mirrored));
        let (observed, snapshot) = wait_for(observe(reconciler, &key(), job)).expect("everything can be read");
        (decide(&observed).0, version(&snapshot.job.metadata))
    };
    let now = reconciler.mirrors.jobs.get(&key()).unwrap();
    let expected = decided(&now);
    assert_eq!((reads.load(Ordering::SeqCst), expected.1), (0, version(&now.metadata)));
    // What the mirror shows -> how often the job has been read by then.
    for (mirrored, read) in [(&before, 1), (&before, 1), (&now, 1), (&before, 2)] {
        assert_eq!(decided(mirrored), expected);
        assert_eq!(reads.load(Ordering::SeqCst), read);
    }
}
