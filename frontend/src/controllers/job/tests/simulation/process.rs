//! A frontend: its connection, its mirrors, its memory.

use super::services::Services;
use super::{JOB, key};
use crate::controllers::job::act::is_waited_for;
use crate::controllers::job::decide::{JobDecision, Report, decide};
use crate::controllers::job::long_work::work;
use crate::controllers::job::observe::observe;
use crate::controllers::job::observed::JobObservation;
use crate::controllers::job::reconciler::JobReconciler;
use crate::controllers::job::tasks::{TaskKind, Tasks, WorkItem};
use crate::controllers::known_launches::KnownLaunches;
use crate::controllers::reconciler::{self, Next, Reconciler as _, reconcile};
use crate::controllers::tests::LateMirrors;
use crate::settings::JobSettings;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use streams_api::{Job, ProcessingElement, names};
use streams_kubernetes::Error;
use streams_kubernetes::leadership::Term;
use streams_kubernetes::metrics::Metrics;
use streams_kubernetes::queue::Outcome;
use streams_kubernetes_fake::{Connection, Server};

/// A process that leads, or believes that it does.
pub(in super::super) struct FrontendProcess {
    pub(in super::super) connection: Connection,
    pub(in super::super) reconciler: Arc<JobReconciler<Connection>>,
    feeds: LateMirrors,
}

impl FrontendProcess {
    /// A process that has just begun to lead: its mirrors are filled, and it remembers nothing.
    pub(super) fn new(server: &Server, services: &Arc<Services>) -> Self {
        let feeds = LateMirrors::of(server);
        let connection = server.connect();
        let (bundles, fusion) = (Arc::clone(services), Arc::clone(services));
        let (settings, metrics) = (JobSettings::default(), Metrics::new("test"));
        let known_launches = KnownLaunches::of(&feeds.mirrors.processing_elements, Term::endless());
        let reconciler =
            JobReconciler::new(connection.clone(), &feeds.mirrors, bundles, fusion, known_launches, settings, &metrics);
        Self { connection, reconciler: Arc::new(reconciler), feeds }
    }

    /// The mirrors hear of so many changes of each kind.
    pub(in super::super) fn deliver(&mut self, changes: [usize; 6]) {
        self.feeds.resizes.deliver(changes[2]);
        self.deliver_but_requests(changes);
    }

    /// The mirrors hear of changes of requests to resize, and of nothing else.
    pub(in super::super) fn hear_of_requests(&mut self) {
        self.feeds.resizes.deliver(usize::MAX);
    }

    /// The mirrors hear of everything but changes of requests to resize.
    pub(in super::super) fn catch_up_but_with_requests(&mut self) {
        self.deliver_but_requests([usize::MAX; 6]);
    }

    fn deliver_but_requests(&mut self, changes: [usize; 6]) {
        let feeds = &mut self.feeds;
        feeds.jobs.deliver(changes[0]);
        feeds.processing_elements.deliver(changes[1]);
        feeds.parallel_regions.deliver(changes[2]);
        feeds.host_pools.deliver(changes[3]);
        feeds.exports.deliver(changes[3]);
        feeds.imports.deliver(changes[3]);
        feeds.consistent_regions.deliver(changes[3]);
        feeds.services.deliver(changes[4]);
        feeds.config_maps.deliver(changes[5]);
        feeds.pods.deliver(usize::MAX);
    }

    /// The mirrors hear of everything.
    pub(in super::super) fn catch_up(&mut self) {
        self.feeds.deliver_all();
    }

    pub(in super::super) async fn reconcile(&self) -> Result<Outcome, Error> {
        reconcile(&*self.reconciler, &key()).await
    }

    /// One round of a reconcile: observes, decides and acts once.
    pub(in super::super) async fn round(&self) -> Result<Next, Error> {
        let reconciler = &*self.reconciler;
        let Some(observed) = reconciler.observe(&key(), &mut ()).await? else { return Ok(Next::Rest(Outcome::Done)) };
        let decision = <JobReconciler<Connection> as reconciler::Reconciler>::decide(&observed);
        reconciler.act(&key(), &mut (), observed, decision).await
    }

    /// The same, and something happens between the decision and what is done.
    pub(in super::super) async fn round_with(&mut self, happens: impl FnOnce(&mut Self)) -> Result<Next, Error> {
        let reconciler = Arc::clone(&self.reconciler);
        let Some(observed) = reconciler.observe(&key(), &mut ()).await? else { return Ok(Next::Rest(Outcome::Done)) };
        let decision = <JobReconciler<Connection> as reconciler::Reconciler>::decide(&observed);
        happens(self);
        reconciler.act(&key(), &mut (), observed, decision).await
    }

    /// People are told that nothing comes of the rounds of a reconcile.
    pub(in super::super) fn is_in_vain(&self) -> bool {
        self.reconciler.is_in_vain(&key())
    }

    /// Does the long work of this kind.
    pub(in super::super) async fn work(&self, kind: TaskKind) {
        work(&self.reconciler, &WorkItem { job: key(), kind }).await;
    }

    pub(in super::super) fn tasks(&self) -> Tasks {
        let job = self.reconciler.mirrors.jobs.get(&key());
        let uid = job.and_then(|job| job.metadata.uid.clone()).unwrap_or_default();
        self.reconciler.memory.find(&key(), &uid, |entry| entry.tasks.clone()).unwrap_or_else(Tasks::idle)
    }

    /// The kinds of long work that are asked for.
    pub(in super::super) fn running(&self) -> Vec<TaskKind> {
        let tasks = self.tasks();
        let running = [
            (TaskKind::Fetch, tasks.fetch.running().is_some()),
            (TaskKind::Compile, tasks.compile.running().is_some()),
            (TaskKind::Publish, tasks.publish.running().is_some()),
            (TaskKind::Repair, tasks.repair.running().is_some()),
            (TaskKind::Renew, tasks.renew.running().is_some()),
        ];
        running.into_iter().filter(|(_, running)| *running).map(|(kind, _)| kind).collect()
    }

    /// A PE as the mirror shows it.
    pub(in super::super) fn shown(&self, id: u64) -> Option<Arc<ProcessingElement>> {
        self.reconciler.mirrors.processing_elements.get(&key().sibling(&names::processing_element(JOB, id)))
    }

    /// The job as it knows it, if it knows of one.
    pub(super) fn known(&self) -> Option<Arc<Job>> {
        let job = self.reconciler.mirrors.jobs.get(&key())?;
        Some(self.reconciler.memory.latest(&key(), job))
    }

    /// What it would observe now.
    pub(in super::super) fn observed(&self) -> JobObservation {
        let job = self.reconciler.mirrors.jobs.get(&key()).expect("there is a job");
        let job = self.reconciler.memory.latest(&key(), job);
        wait_for(observe(&self.reconciler, &key(), job)).expect("everything can be read").0
    }

    /// Whether its calls for the job would go before others now.
    pub(in super::super) fn is_waited_for(&self) -> bool {
        let observed = self.observed();
        is_waited_for(&observed, &decide(&observed).1)
    }

    /// What it would decide now.
    pub(in super::super) fn decided(&self) -> (JobDecision, Report) {
        decide(&self.observed())
    }
}

/// Polls the future until it is ready. Nothing else happens meanwhile but what its calls let happen; unlike an
/// executor, it may be called while a future is polled.
pub(in super::super) fn wait_for<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    let mut context = Context::from_waker(Waker::noop());
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return output;
        }
    }
}
