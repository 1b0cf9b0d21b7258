//! Writes the status of a job: what a step records, and what describes it.
//!
//! The status is replaced as a whole, unless another client has written the job since it was observed.
//!
//! Knows: the API server, when the status was last written. Must not know: what a status says.

use super::Actor;
use crate::controllers::job::decide::{JobStatusChange, Report};
use crate::controllers::job::describe::{describe, events, is_left_to_the_next, is_significant, transition};
use crate::controllers::job::refusals::{NAME_TAKEN, Refusals};
use crate::controllers::job::requests::wishes::WidthSet;
use crate::controllers::reconciler::Next;
use crate::controllers::times::distance;
use crate::controllers::traces;
use std::time::Duration;
use streams_api::{Job, JobStatus, condition};
use streams_kubernetes::Error;
use streams_kubernetes::cluster::Cluster;
use streams_kubernetes::queue::Outcome;
use streams_kubernetes::watch::version;
use streams_kubernetes::writer::StatusWrite;
use streams_process::telemetry;

/// Least time between two writes of the status, if the second changes counters and texts only (rule job-35).
const DESCRIBE_INTERVAL: Duration = Duration::from_secs(5);
/// The same in a crowd (rule call-25).
const DESCRIBE_INTERVAL_IN_A_CROWD: Duration = Duration::from_secs(60);
/// The same while the job is not submitted: by then its PEs have told of their pods (rule pe-20), and what follows from
/// that is written.
const DESCRIBE_INTERVAL_OF_A_SUBMISSION: Duration = Duration::from_secs(120);
/// How long the next write may take that says more (rule job-50). In a crowd, while a generation is prepared,
/// [`DESCRIBE_INTERVAL`] (rule call-25).
const UNSAID: Duration = Duration::from_secs(1);

impl<C: Cluster> Actor<'_, C> {
    /// Records a change in the status with one write.
    pub(super) async fn record(&self, change: &JobStatusChange) -> Result<(), Error> {
        let status = describe(self.observed, self.report, transition::apply(change, self.observed), true);
        let is_other_proposal = status.proposal != self.observed.status.proposal;
        tracing::info!(job = %self.snapshot.key, step = change.name(), generation = status.generation, "step");
        self.write(status).await?;
        self.remember(|entry| {
            transition::take_back(&mut entry.tasks, change);
            match change {
                JobStatusChange::Propose { .. } => entry.proposed_at = Some(self.reconciler.cluster.now()),
                JobStatusChange::Abandon if self.observed.requests.withdraws_proposal => {
                    entry.verdicts.note_withdrawal();
                }
                JobStatusChange::RejectProposal(failure) | JobStatusChange::GiveWay(failure) => {
                    if let Some(proposed) = &self.snapshot.proposed
                        && let Some(set) = WidthSet::of(&proposed.target)
                    {
                        entry.verdicts.note_unwritable(proposed.number, set, failure.clone());
                    }
                }
                JobStatusChange::RejectResize(refused) => {
                    entry.verdicts.note_fault(std::iter::once(&refused.region));
                }
                _ => {}
            }
            if is_other_proposal {
                entry.in_vain.forget_proposal();
            }
            // What was refused, and has made way for others, is still in the way.
            entry.last_failure = entry.in_vain.failure();
            entry.refusals = Refusals::default();
            entry.unsaid_since = None;
            entry.described = Some(self.reconciler.cluster.now());
        });
        Ok(())
    }

    /// Describes the job in its status, unless the status is up to date. What changes counters and texts only is
    /// written some time after the last write (rule job-35).
    pub(super) async fn describe(&self) -> Result<Next, Error> {
        let wake = self
            .report
            .wake_at
            .map(|at| at.duration_since(self.reconciler.cluster.now()).try_into().unwrap_or(Duration::ZERO));
        let wake = wake.into_iter().chain(self.looks_again()).min();
        let again = |delay: Option<Duration>| Next::Rest(delay.map_or(Outcome::Done, Outcome::Again));
        // What has just failed is said at once, and not any more as soon as nothing fails: perhaps nothing else brings
        // another look.
        let mut report = self.report.clone();
        if report.trouble.is_none() {
            report.trouble = self.remember(|entry| entry.last_failure.clone());
        }
        self.name_what_is_in_the_way(&mut report);
        let mut status = describe(self.observed, &report, self.observed.status.clone(), false);
        if status == self.observed.status {
            self.remember(|entry| entry.unsaid_since = None);
            return Ok(again(wake));
        }
        if let Some(left) = self.put_off(&status, &report) {
            return Ok(again(Some(wake.map_or(left, |wake| wake.min(left)))));
        }
        // That is no reason to write, but it need not wait for the next step: there may be none.
        transition::forget_requests(&mut status, self.observed);
        self.write(status).await?;
        self.remember(|entry| entry.described = Some(self.reconciler.cluster.now()));
        Ok(again(wake))
    }

    /// Of a name that is taken, people hear by what.
    fn name_what_is_in_the_way(&self, report: &mut Report) {
        let in_the_way = &self.observed.in_the_way;
        let taken = report.trouble.as_mut().filter(|trouble| trouble.reason == NAME_TAKEN && !in_the_way.is_empty());
        if let Some(trouble) = taken {
            trouble.message = format!("{}; in the way: {in_the_way}", trouble.message);
        }
    }

    /// How long this status is not written yet: the next write says the same and more (rule job-50), or only counters
    /// and texts are new (rule job-35). `None`: it is written now.
    fn put_off(&self, status: &JobStatus, report: &Report) -> Option<Duration> {
        let before = &self.observed.status;
        let now = self.reconciler.cluster.now();
        let left = |of: Duration, since| of.checked_sub(distance(since, now)).filter(|left| !left.is_zero());
        // By then there may be no crowd any more.
        let soon = |left: Duration| left.min(DESCRIBE_INTERVAL);
        if let Some(until) = report.unsaid_until.filter(|until| report.trouble.is_none() && *until > now) {
            return Some(soon(distance(now, until)));
        }
        let is_crowded = self.reconciler.cluster.was_crowded(&self.snapshot.key.namespace);
        if is_left_to_the_next(before, status, report) {
            let since = self.remember(|entry| *entry.unsaid_since.get_or_insert(now));
            // The next step waits for this write, and in a crowd this write for others.
            let unsaid = if is_crowded && !report.preparing.is_empty() { DESCRIBE_INTERVAL } else { UNSAID };
            if let Some(left) = left(unsaid, since) {
                return Some(left);
            }
        } else {
            self.remember(|entry| entry.unsaid_since = None);
        }
        if is_significant(before, status) {
            return None;
        }
        let interval = match (is_crowded, condition::is_true(&before.conditions, condition::SUBMITTED)) {
            (false, _) => DESCRIBE_INTERVAL,
            (true, true) => DESCRIBE_INTERVAL_IN_A_CROWD,
            (true, false) => DESCRIBE_INTERVAL_OF_A_SUBMISSION,
        };
        left(interval, self.remember(|entry| entry.described)?).map(soon)
    }

    /// Writes the whole status if nobody wrote the job since it was observed, and publishes the Events that follow from
    /// the change.
    async fn write(&self, status: JobStatus) -> Result<(), Error> {
        let mut job = (*self.snapshot.job).clone();
        let happened = events::of_change(&self.snapshot.key.name, self.observed, &status);
        job.status = Some(status);
        let written = self.writer().replace_status_or_find(&job).await;
        if written.as_ref().is_err_and(Error::is_unanswered) {
            let (follows, passed) = (version(&job.metadata), self.reconciler.cluster.passed());
            self.remember(|entry| entry.lost_answer(follows, passed));
        }
        match written? {
            StatusWrite::Done(written) | StatusWrite::Found(written) => {
                self.reconciler.memory.wrote(&self.snapshot.key, written);
            }
            StatusWrite::Outrun { found: None, error } => return Err(error),
            StatusWrite::Outrun { found: Some(found), error } => {
                self.told(Some(found));
                return Err(error);
            }
            StatusWrite::Gone(error) => {
                self.told(None);
                return Err(error);
            }
        }
        if let Some(status) = &job.status {
            self.show_roll_out(status);
        }
        for notice in happened {
            self.reconciler.cluster.announce(&*self.snapshot.job, &notice);
        }
        Ok(())
    }

    /// The API server has said this of the job.
    fn told(&self, told: Option<Job>) {
        let (snapshot, passed) = (self.snapshot, self.reconciler.cluster.passed());
        self.reconciler.memory.told(&snapshot.key, snapshot.uid(), told, passed);
    }

    /// Shows the roll-out in the trace of the request for its generation, if this status is the first to say that it is
    /// finished. It is the last of that trace (rule name-11).
    fn show_roll_out(&self, status: &JobStatus) {
        let finished = |status: &JobStatus| {
            status.rollout.as_ref().and_then(|rollout| Some((rollout.generation, rollout.finished_at.clone()?)))
        };
        let Some((generation, finished_at)) = finished(status) else { return };
        let is_said = finished(&self.observed.status).is_some_and(|(said, _)| said == generation);
        let of = self.snapshot.committed.as_ref().filter(|committed| committed.number == generation && !is_said);
        let Some((committed, rollout)) = of.zip(status.rollout.as_ref()) else { return };
        let Some(started_at) = &rollout.started_at else { return };
        let trace = &committed.trace_parent;
        telemetry::add_to_trace(trace, || {
            tracing::info_span!(
                "roll-out",
                took_ns = traces::took_ns(started_at.0, finished_at.0),
                job = %self.snapshot.key,
                generation,
                kept = rollout.kept,
                restarted = rollout.restarted,
                added = rollout.added,
                removed = rollout.removed,
                details_left_out = telemetry::details_left_out(trace),
            )
        });
    }
}
