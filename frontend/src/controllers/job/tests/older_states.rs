//! A state of the job is shown again that was replaced since: what was committed since is not deleted (rules call-5 and
//! call-28). A job is shown that has gone: it is not built again.

use super::simulation::{FrontendProcess, JobSimulation, UserDeletion, key, wait_for};
use crate::controllers::job::decide::decide;
use crate::controllers::job::observe::observe;
use crate::controllers::reconciler::Next;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use streams_api::Job;
use streams_kubernetes::cluster::Cluster;
use streams_kubernetes::queue::Outcome;
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

/// What the leader does in so many seconds, of which its mirror of jobs hears nothing: how often it has written
/// something, and read the job. The garbage collector deletes what has lost its owner, and each deletion wakes the job.
fn calls_while_jobs_are_silent(simulation: &mut JobSimulation, seconds: usize) -> [usize; 2] {
    let counts: Arc<[AtomicUsize; 2]> = Arc::default();
    let counted = Arc::clone(&counts);
    simulation.server.refuse(move |call| {
        let is_read = call.verb == Verb::Get && call.kind == "Job";
        counted[0].fetch_add(usize::from(call.verb.is_write()), Ordering::SeqCst);
        counted[1].fetch_add(usize::from(is_read), Ordering::SeqCst);
        None
    });
    for _ in 0..seconds {
        while simulation.collect() {}
        simulation.leader.deliver([0, usize::MAX, usize::MAX, usize::MAX, usize::MAX, usize::MAX]);
        let _ = wait_for(simulation.leader.reconcile());
        simulation.wait(1);
    }
    simulation.steps_again();
    [0, 1].map(|index| counts[index].load(Ordering::SeqCst))
}

#[test]
fn a_job_that_is_gone_is_not_built_again_and_again_while_the_mirror_shows_it() {
    let mut simulation = JobSimulation::running();
    simulation.leader.catch_up();
    simulation.delete(&UserDeletion::Job);
    // By then the status was to be written, and the API server has said that there is no such job.
    calls_while_jobs_are_silent(&mut simulation, 10);
    let [writes, reads] = calls_while_jobs_are_silent(&mut simulation, 30);
    assert_eq!(writes, 0);
    assert!((2..=3).contains(&reads), "{reads}");
    assert!(simulation.pes().is_empty());
    // Once the mirror shows it, nothing is kept of it.
    assert_eq!(simulation.reconcile(), Some(Outcome::Done));
    assert_eq!(simulation.leader.reconciler.memory.len(), 0);
}

/// What something in between says is not for ever.
#[test]
fn a_job_that_was_said_to_be_gone_and_is_there_goes_on() {
    let mut simulation = JobSimulation::running();
    simulation.leader.catch_up();
    simulation.resize(0, 4);
    let FrontendProcess { connection, reconciler, .. } = &simulation.leader;
    let uid = reconciler.mirrors.jobs.get(&key()).and_then(|job| job.metadata.uid.clone()).unwrap();
    assert!(!reconciler.memory.told(&key(), &uid, None, connection.passed()));
    assert_eq!(calls_while_jobs_are_silent(&mut simulation, 10), [0, 0]);
    let [_, reads] = calls_while_jobs_are_silent(&mut simulation, 1);
    assert_eq!(reads, 1);
    simulation.settle();
    assert_eq!(simulation.status().generation, Some(1));
    simulation.check_at_rest();
}

/// Its objects go before it, if whoever deletes it wants that.
#[test]
fn for_a_job_that_is_being_deleted_nothing_is_done_before_the_mirror_shows_that() {
    let mut simulation = JobSimulation::running();
    simulation.leader.catch_up();
    let reconciler = &simulation.leader.reconciler;
    let mut answered = Job::clone(&reconciler.mirrors.jobs.get(&key()).unwrap());
    answered.metadata.resource_version = Some((version(&answered.metadata) + 1_000_000).to_string());
    answered.metadata.deletion_timestamp = Some(Time(Timestamp::UNIX_EPOCH));
    reconciler.memory.wrote(&key(), answered);
    simulation.delete(&UserDeletion::Service(0));
    simulation.collect();
    simulation.leader.deliver([0, usize::MAX, usize::MAX, usize::MAX, usize::MAX, usize::MAX]);
    assert!(matches!(wait_for(simulation.leader.round()), Ok(Next::Rest(Outcome::Done))));
    assert!(!simulation.has_service(0));
}

/// Something in between has answered a write.
#[test]
fn a_job_whose_version_was_told_too_high_goes_on_with_what_the_api_server_says() {
    let mut simulation = JobSimulation::running();
    simulation.leader.catch_up();
    let reconciler = &simulation.leader.reconciler;
    let mut answered = Job::clone(&reconciler.mirrors.jobs.get(&key()).unwrap());
    answered.metadata.resource_version = Some((version(&answered.metadata) + 10_000_000).to_string());
    reconciler.memory.wrote(&key(), answered);
    simulation.resize(0, 4);
    simulation.settle();
    assert_eq!(simulation.status().generation, Some(1));
    simulation.check_at_rest();
}
