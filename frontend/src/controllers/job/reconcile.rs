//! Implements the trait of all reconcilers for jobs.
//!
//! Knows: the order of observing, deciding and acting. Must not know: what any of them does.

use super::act::act;
use super::decide::{JobDecision, Report, decide};
use super::observe::observe;
use super::observed::JobObservation;
use super::observed::snapshot::JobSnapshot;
use super::reconciler::JobReconciler;
use super::refusals;
use crate::controllers::reconciler::{self, Next};
use crate::controllers::resizing::is_in_roll_out;
use crate::controllers::traces;
use std::time::Instant;
use streams_kubernetes::cluster::Cluster;
use streams_kubernetes::{Error, Key, stopwatch};
use streams_process::telemetry;
use tracing::{Instrument, field};

impl<C: Cluster> reconciler::Reconciler for JobReconciler<C> {
    // The memory of the process keeps the answer to the last write, beyond one reconcile.
    type Answers = ();
    type Observation = (JobObservation, JobSnapshot);
    type Decision = (JobDecision, Report);

    async fn observe(&self, key: &Key, (): &mut ()) -> Result<Option<(JobObservation, JobSnapshot)>, Error> {
        let job = self.mirrors.jobs.get(key).filter(|job| job.metadata.deletion_timestamp.is_none());
        let Some(job) = job else {
            // The garbage collector deletes its objects, by their owner references (rule job-29).
            self.forget(key);
            return Ok(None);
        };
        let job = self.memory.latest(key, job);
        if job.metadata.deletion_timestamp.is_some() {
            // So the API server has said; the mirror, which will say so, too, is behind.
            return Ok(None);
        }
        let (uid, begun) = (job.metadata.uid.clone().unwrap_or_default(), Instant::now());
        self.hurries.begin(key, &uid);
        let observed = observe(self, key, job).await;
        if let Ok((observed, _)) = &observed
            && !observed.requests.unwanted.is_empty()
        {
            self.memory.find(key, &uid, |entry| entry.verdicts.forget(&observed.requests.unwanted));
        }
        self.looks.keep(key, &uid, begun.elapsed());
        observed.map(Some)
    }

    fn decide((observed, _): &(JobObservation, JobSnapshot)) -> (JobDecision, Report) {
        decide(observed)
    }

    async fn act(
        &self,
        _: &Key,
        (): &mut (),
        (observed, snapshot): (JobObservation, JobSnapshot),
        (decision, report): (JobDecision, Report),
    ) -> Result<Next, Error> {
        tracing::debug!(?decision, preparing = report.preparing, pending = report.pending, "decided");
        // Writes for a generation belong to the trace of the request for it, until it is rolled out (rule name-11).
        let span = tracing::info_span!("act", trace_id = field::Empty);
        let idle = decision == JobDecision::Work(Vec::new());
        let compiled = decision.plan_to_record().and_then(|plan| {
            self.memory.find(&snapshot.key, snapshot.uid(), |entry| entry.plans.get(&plan.sha256)).flatten()
        });
        match (compiled.as_ref().or(snapshot.proposed.as_ref()), &snapshot.committed) {
            _ if idle => {}
            (Some(proposed), _) => traces::continue_trace(&span, &proposed.trace_parent),
            (None, Some(committed)) if is_in_roll_out(&observed.status, committed.number) => {
                traces::continue_trace(&span, &committed.trace_parent);
            }
            (None, Some(committed)) => telemetry::link_trace(&span, &committed.trace_parent),
            (None, None) => {}
        }
        let cluster = self.cluster.clone();
        let acted = act(self, &snapshot, &observed, &decision, &report).instrument(span);
        let (result, worked) = stopwatch::measure(move || cluster.passed(), acted).await;
        let goes_on = matches!(result, Ok(Next::Observe));
        let come_to = (observed.status.generation, observed.requests.last_number);
        self.memory.find(&snapshot.key, snapshot.uid(), |entry| {
            if goes_on { entry.rounds.go_on(come_to) } else { entry.rounds.end() }
        });
        // What has failed for good is not worked on, although its status is written.
        let submitting = observed.status.generation.is_none() && !refusals::is_final(&observed.status);
        if submitting && !observed.suspended && result.is_ok() {
            self.memory.with(&snapshot.key, snapshot.uid(), |entry| entry.worked(worked));
        }
        result
    }

    fn is_in_vain(&self, key: &Key) -> bool {
        let uid = self.mirrors.jobs.get(key).and_then(|job| job.metadata.uid.clone()).unwrap_or_default();
        self.memory.find(key, &uid, |entry| entry.rounds.are_in_vain()).unwrap_or_default()
    }
}
