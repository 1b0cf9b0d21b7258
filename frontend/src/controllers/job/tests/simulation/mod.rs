//! A simulated cluster with one job, and everything around the job controller.
//!
//! * this file — reconciles, long work, crashes, the passing of time;
//! * [`process`] — a frontend;
//! * [`services`] — bundles and the fusion service;
//! * [`users`] — users, and the PE controller;
//! * [`journal`] — what is written down while the cluster runs: widths that were wanted, generations, every state that
//!   a write was made in;
//! * [`checks`] — what must hold before every write, and at rest.

mod checks;
mod journal;
mod process;
mod services;
mod users;

use self::journal::Journal;
use self::services::Services;
use kube::core::{ObjectMeta, Status};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use streams_api::{BundleReference, Job, JobSpec, JobStatus, ProcessingElement};
use streams_kubernetes::Key;
use streams_kubernetes::queue::Outcome;
use streams_kubernetes_fake::{Fault, Server, Verb};

pub(super) use self::journal::Snapshot;
pub(super) use self::process::{FrontendProcess, wait_for};
pub(super) use self::services::{NOT_RESTARTABLE, SAME_TO_OBSERVERS, ServiceState};
pub(super) use self::users::UserDeletion;

/// Regions of the application, by index, unless a test gives it others.
pub(super) const REGIONS: [&str; 2] = ["R", "S"];
/// The job.
pub(super) const JOB: &str = "job";
pub(super) const NAMESPACE: &str = "n";
/// Waits in a row after which nothing has happened for longer than anything takes.
const IDLE_WAITS: u32 = 20;

pub(super) fn key() -> Key {
    Key::new(NAMESPACE, JOB)
}

/// The job as a user creates it.
fn job() -> Job {
    let mut job = Job::new(JOB, JobSpec::of(BundleReference { name: Some("a.sab".to_owned()), ..Default::default() }));
    job.metadata = ObjectMeta { name: Some(JOB.to_owned()), namespace: Some(NAMESPACE.to_owned()), ..job.metadata };
    job
}

/// A cluster with one job, and the frontend that leads.
pub(super) struct JobSimulation {
    pub(super) server: Server,
    pub(super) services: Arc<Services>,
    pub(super) leader: FrontendProcess,
    journal: Arc<Mutex<Journal>>,
}

impl Drop for JobSimulation {
    fn drop(&mut self) {
        // The server has the inspector, and the inspector the server.
        self.server.inspect(|_| {});
    }
}

impl JobSimulation {
    /// A job that nobody has looked at yet.
    pub(super) fn new() -> Self {
        let server = Server::new();
        server.create(&job());
        let state = ServiceState {
            compiler: "1".to_owned(),
            refuses: false,
            widest: u32::MAX,
            endless_above: u32::MAX,
            too_large_above: u32::MAX,
            is_down: false,
            ignores: false,
            renders: true,
            sends_texts: false,
            spoils_texts: false,
            has_no_bundle: false,
            bundle: 0,
            build: 0,
            regions: (0..).zip(REGIONS).collect(),
            keeps_bundles: false,
            seconds: 0,
            queue_seconds: 0,
            download_seconds: 0,
            refused_texts: BTreeSet::new(),
            refused_pods: BTreeSet::new(),
            places: false,
            gives_again: false,
            closed: Vec::new(),
        };
        Self::of(server, state, Journal::default())
    }

    /// A job that runs.
    pub(super) fn running() -> Self {
        let mut simulation = Self::new();
        simulation.settle();
        simulation.check_at_rest();
        simulation
    }

    /// A wide job in a crowd, where a turn has eight writes, whose Services are all gone: more than a turn can write.
    /// With the ids of its PEs.
    pub(super) fn without_services_in_a_crowd() -> (Self, BTreeSet<u64>) {
        let mut simulation = Self::running();
        simulation.resize(0, 20);
        simulation.settle();
        simulation.leader.connection.crowd(true);
        let ids: BTreeSet<u64> = simulation.pes().into_keys().collect();
        assert!(ids.len() > 20, "{ids:?}");
        ids.iter().for_each(|id| simulation.delete(&UserDeletion::Service(*id)));
        simulation.collect();
        (simulation, ids)
    }

    /// Goes on from a state, with a frontend that has just begun to lead.
    pub(super) fn resume(snapshot: &Snapshot) -> Self {
        Self::of(snapshot.server.fork(), snapshot.services.clone(), snapshot.journal.clone())
    }

    fn of(server: Server, services: ServiceState, journal: Journal) -> Self {
        let services = Arc::new(Services::new(services, &server));
        let leader = FrontendProcess::new(&server, &services);
        let simulation = Self { server, services, leader, journal: Arc::new(Mutex::new(journal)) };
        simulation.watch();
        simulation
    }

    /// Another process of the same cluster, which has just begun to lead. What becomes of the one before is up to the
    /// test.
    pub(super) fn new_leader(&mut self) -> FrontendProcess {
        let next = FrontendProcess::new(&self.server, &self.services);
        self.knows_nothing();
        std::mem::replace(&mut self.leader, next)
    }

    /// The frontend dies, and another one takes over.
    pub(super) fn crash(&mut self) {
        self.new_leader();
    }

    /// The frontend dies with the write after so many; says whether the write has its effect nevertheless.
    pub(super) fn crash_at_write(&self, after: usize, has_effect: bool) {
        self.leader.connection.fail(Fault { after, of_writes: true, has_effect, is_last: true });
    }

    /// What is known of the job; nothing if it is gone.
    pub(super) fn status(&self) -> JobStatus {
        self.server.get::<Job>(&key()).and_then(|job| job.status).unwrap_or_default()
    }

    /// One reconcile, after the mirrors have heard of everything. After a crash the next leader takes over. `None`: it
    /// failed.
    pub(super) fn reconcile(&mut self) -> Option<Outcome> {
        self.leader.catch_up();
        self.has_caught_up();
        let result = wait_for(self.leader.reconcile());
        self.take_over_from_the_dead();
        result.ok()
    }

    /// One reconcile, after the mirrors have heard of so many changes of each kind.
    pub(super) fn reconcile_behind(&mut self, changes: [usize; 6]) {
        self.leader.deliver(changes);
        let is_seen = |id: u64, pe: &ProcessingElement| {
            self.leader.shown(id).is_some_and(|shown| shown.metadata.resource_version == pe.metadata.resource_version)
        };
        let unseen = self.pes().into_iter().filter(|(id, pe)| !is_seen(*id, pe)).map(|(id, _)| id);
        self.set_behind(unseen.collect());
        let _ = wait_for(self.leader.reconcile());
        self.set_behind(BTreeSet::new());
        self.take_over_from_the_dead();
    }

    /// One round of a reconcile: at most one step is taken.
    pub(super) fn round(&mut self) {
        self.leader.catch_up();
        let _ = wait_for(self.leader.round());
        self.take_over_from_the_dead();
    }

    /// Long work that is asked for is done, one kind after another. Says whether there was any.
    pub(super) fn work(&mut self) -> bool {
        let running = self.leader.running();
        for kind in &running {
            wait_for(self.leader.work(*kind));
            if self.take_over_from_the_dead() {
                break;
            }
        }
        !running.is_empty()
    }

    pub(super) fn take_over_from_the_dead(&mut self) -> bool {
        let died = self.leader.connection.is_broken();
        if died {
            self.crash();
        }
        died
    }

    pub(super) fn wait(&self, seconds: u64) {
        self.server.advance(Duration::from_secs(seconds));
    }

    /// What is being deleted goes away. Says whether anything did.
    pub(super) fn collect(&self) -> bool {
        self.note_state();
        self.server.collect_garbage()
    }

    /// Everything runs until nothing happens any more.
    pub(super) fn settle(&mut self) {
        let mut waits = 0;
        for _ in 0..1_000 {
            let before = (self.server.version(), self.leader.tasks());
            let outcome = self.reconcile();
            let worked = self.work();
            let moved = self.run_pods() | self.collect();
            if worked || moved || before != (self.server.version(), self.leader.tasks()) {
                waits = 0;
                continue;
            }
            waits += 1;
            match outcome {
                // The Secret of a job is looked at again and again, and so is what is in the way. What was put off
                // comes sooner than that.
                Some(Outcome::Again(_)) if waits > IDLE_WAITS => return,
                Some(Outcome::Later(delay)) if waits > IDLE_WAITS && delay >= Duration::from_secs(1) => return,
                // What is waited for comes with time alone.
                Some(Outcome::Again(delay) | Outcome::Later(delay) | Outcome::Patiently(delay)) => {
                    self.server.advance(delay.max(Duration::from_millis(1)))
                }
                None | Some(Outcome::Conflict) => self.wait(1),
                Some(Outcome::Done) => return,
            }
        }
        panic!("it does not come to rest; its last writes: {:#?}", self.last_writes());
    }

    /// The controller and the long work go on, with no pod starting, until `reached`.
    pub(super) fn until(&mut self, reached: impl Fn(&Self) -> bool) {
        for _ in 0..100 {
            if reached(self) {
                return;
            }
            self.reconcile();
            self.work();
        }
        panic!("it is not reached; the last writes: {:#?}", self.last_writes());
    }

    /// Goes on, with no pod starting, until this generation is committed.
    pub(super) fn until_committed(&mut self, generation: u64) {
        for _ in 0..100 {
            if self.status().generation == Some(generation) {
                return;
            }
            self.round();
            self.work();
            self.collect();
        }
        panic!("generation {generation} is never committed");
    }

    /// Once an object of this kind was written, the status of the job cannot be: no step is taken any more. Until
    /// [`JobSimulation::steps_again`].
    pub(super) fn no_step_after(&self, kind: &'static str) {
        let is_written = AtomicBool::new(false);
        self.server.refuse(move |call| {
            let is_write = matches!(call.verb, Verb::Create | Verb::Apply);
            is_written.fetch_or(is_write && call.kind == kind, Ordering::SeqCst);
            let is_refused =
                call.verb == Verb::ReplaceStatus && call.kind == "Job" && is_written.load(Ordering::SeqCst);
            is_refused.then(|| *Status::failure("not now", "InternalError").with_code(500).boxed())
        });
    }

    /// A quota permits no more objects of this kind. Until [`JobSimulation::steps_again`].
    pub(super) fn no_more(&self, kind: &'static str) {
        self.server.refuse(move |call| {
            let words = format!("{kind} is forbidden: exceeded quota: q, requested: 1, used: 50, limited: 50");
            let is_refused = call.verb == Verb::Create && call.kind == kind;
            is_refused.then(|| *Status::failure(&words, "Forbidden").with_code(403).boxed())
        });
    }

    /// A quota permits no more texts of these PEs. Until [`JobSimulation::steps_again`].
    pub(super) fn no_more_texts(&self, pe_ids: &'static [u64]) {
        self.server.refuse(move |call| {
            let is_of = |id: &u64| call.key.name.starts_with(&format!("{JOB}-{id}-"));
            let is_refused = call.verb == Verb::Create && call.kind == "ConfigMap" && pe_ids.iter().any(is_of);
            is_refused.then(|| *Status::failure("exceeded quota: q", "Forbidden").with_code(403).boxed())
        });
    }

    pub(super) fn steps_again(&self) {
        self.server.refuse(|_| None);
    }

    fn last_writes(&self) -> Vec<String> {
        let journal = self.journal.lock();
        journal.writes.iter().rev().take(30).rev().cloned().collect()
    }
}

/// What users see, without what a crash may change: times, the number of the job, and what follows from it.
#[derive(Debug, PartialEq)]
pub(super) struct Visible(BTreeMap<String, serde_json::Value>);
