//! Observes a job, decides, and acts.
//!
//! Knows: the order of the three, and what the reconciler needs. Must not know: what any of them does.

use super::act::act;
use super::decide::{Decision, Report, decide};
use super::memory::Memory;
use super::observe::{JobSnapshot, observe};
use super::observed::Observed;
use super::services::{Bundles, Fusion};
use super::work::WorkItem;
use crate::controllers::reconciler::{self, Next};
use crate::mirrors::Mirrors;
use crate::settings::JobSettings;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use streams_kubernetes::cluster::Cluster;
use streams_kubernetes::metrics::Metrics;
use streams_kubernetes::queue::{BackOff, Outcome, Queue};
use streams_kubernetes::{Error, Key};
use streams_process::telemetry;
use tracing::Instrument;

/// After a conflict: enough for the mirror to catch up.
const AFTER_CONFLICT: Duration = Duration::from_millis(100);

/// Brings jobs to what their specs want. Shared by reconciles and long work.
pub(super) struct Reconciler<C> {
    pub(super) cluster: C,
    pub(super) mirrors: Mirrors,
    pub(super) bundles: Arc<dyn Bundles>,
    pub(super) fusion: Arc<dyn Fusion>,
    pub(super) settings: JobSettings,
    pub(super) memory: Memory,
    pub(super) long_work: Queue<WorkItem>,
}

impl<C> fmt::Debug for Reconciler<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Reconciler")
    }
}

impl<C: Cluster> Reconciler<C> {
    /// A reconciler of the jobs of these mirrors.
    pub(super) fn new(
        cluster: C,
        mirrors: &Mirrors,
        bundles: Arc<dyn Bundles>,
        fusion: Arc<dyn Fusion>,
        settings: JobSettings,
        metrics: &Metrics,
    ) -> Self {
        Self {
            cluster,
            mirrors: mirrors.clone(),
            bundles,
            fusion,
            settings,
            memory: Memory::new(),
            long_work: Queue::new("long_work", BackOff::default(), metrics),
        }
    }
}

impl<C: Cluster> reconciler::Reconciler for Reconciler<C> {
    // What was answered last is remembered beyond one reconcile: the job as it was written.
    type Answers = ();
    type Observed = (Observed, JobSnapshot);
    type Decision = (Decision, Report);

    async fn observe(&self, key: &Key, (): &mut ()) -> Result<Option<(Observed, JobSnapshot)>, Error> {
        let job = self.mirrors.jobs.get(key).filter(|job| job.metadata.deletion_timestamp.is_none());
        let Some(job) = job else {
            // What belonged to it goes with it: owner references do the work (rule job-29).
            self.memory.forget(key);
            return Ok(None);
        };
        let job = self.memory.latest(key, job);
        observe(self, key, job).await.map(Some)
    }

    fn decide((observed, _): &(Observed, JobSnapshot)) -> (Decision, Report) {
        decide(observed)
    }

    async fn act(
        &self,
        _: &Key,
        (): &mut (),
        (observed, snapshot): (Observed, JobSnapshot),
        (decision, report): (Decision, Report),
    ) -> Result<Next, Error> {
        tracing::debug!(?decision, preparing = report.preparing, pending = report.pending, "decided");
        // What is done for a generation belongs to the trace that it was asked for in.
        let span = tracing::info_span!("act");
        let idle = decision == Decision::Work(Vec::new());
        let generation = snapshot.proposed.as_ref().or(snapshot.committed.as_ref()).filter(|_| !idle);
        if let Some(generation) = generation {
            telemetry::continue_trace(&span, &generation.trace_parent);
        }
        match act(self, &snapshot, &observed, &decision, &report).instrument(span).await {
            Err(error) if error.is_conflict() => Ok(Next::Rest(Outcome::Again(AFTER_CONFLICT))),
            result => result,
        }
    }
}
