//! Computes the part of a job's status that only describes: phase, conditions, counters.
//!
//! Pure. [`decide`](super::decide::decide) does not read these fields, with two exceptions: a submission that has
//! failed stays failed until the spec changes (phase and observed generation), and the condition `Submitted` stays
//! true.

use super::decide::{Report, is_submitted, roll_out_end};
use super::observed::{JobObservation, Loaded};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use streams_api::{JobPhase, JobStatus, condition};

/// PE ids that a message lists.
const LISTED: usize = 10;

/// Describes the job in `status`, whose other fields steps have recorded.
///
/// `after_step`: `status` has a step that was just taken, and `observed` is from before the step.
pub(crate) fn describe(
    observed: &JobObservation,
    report: &Report,
    mut status: JobStatus,
    after_step: bool,
) -> JobStatus {
    let submitted = !after_step && is_submitted(observed);
    status.observed_generation = Some(observed.spec_generation);
    status.rejected_resize = status.rejected_resize.filter(|rejected| rejected.is_of(&observed.desired_widths));
    if !after_step {
        if let Some(Loaded::Whole(wanted)) = &observed.committed {
            // The commit records it; an older frontend did not.
            status.regions.clone_from(&wanted.committed_regions);
        }
        count(observed, report, &mut status);
    }
    phase(report, submitted, &mut status);
    let failed = status.phase == Some(JobPhase::Failed);
    let mut say = Conditions { status: &mut status, observed };
    if !failed {
        say.submitted(report, submitted);
    }
    say.ready(report, failed, after_step);
    say.progressing(report, failed, after_step);
    say.degraded(report);
    say.resize_rejected();
    say.resize_delayed(report);
    say.warning();
    status
}

/// Whether two statuses differ in more than counters and texts (rule job-35).
pub(crate) fn is_significant(before: &JobStatus, after: &JobStatus) -> bool {
    let essence = |status: &JobStatus| {
        let mut status = status.clone();
        status.conditions.iter_mut().for_each(|condition| condition.message.clear());
        status.statistics = None;
        if let Some(rollout) = &mut status.rollout {
            rollout.pending = 0;
        }
        status
    };
    essence(before) != essence(after)
}

/// Counts PEs, and notes when the roll-out is finished (rule job-17).
fn count(observed: &JobObservation, report: &Report, status: &mut JobStatus) {
    if !matches!(observed.committed, Some(Loaded::Whole(_))) {
        return;
    }
    if let Some(statistics) = &mut status.statistics {
        statistics.ready_processing_elements = report.ready;
    }
    if let Some(rollout) = &mut status.rollout {
        rollout.pending = report.pending.saturating_add(report.superfluous);
        // Objects that are deleted only now may still exist.
        if rollout.pending == 0 && !report.deletes && rollout.finished_at.is_none() {
            rollout.finished_at = Some(Time(observed.now));
        }
    }
}

fn phase(report: &Report, submitted: bool, status: &mut JobStatus) {
    let was_submitted = condition::is_true(&status.conditions, condition::SUBMITTED);
    status.phase = Some(match (status.phase, status.generation) {
        (Some(JobPhase::Failed), None) => JobPhase::Failed,
        (_, None) if status.job_id.is_none() => JobPhase::Pending,
        (_, None) => JobPhase::Submitting,
        (_, Some(_)) if !submitted && !was_submitted => JobPhase::Submitting,
        (_, Some(_)) if !report.down.is_empty() || report.lost.is_some() => JobPhase::Degraded,
        (_, Some(_)) => JobPhase::Running,
    });
}

struct Conditions<'a> {
    status: &'a mut JobStatus,
    observed: &'a JobObservation,
}

impl Conditions<'_> {
    fn set(&mut self, kind: &str, value: bool, reason: &str, message: &str) {
        let generation = Some(self.observed.spec_generation);
        condition::set(&mut self.status.conditions, kind, value, reason, message, generation, self.observed.now);
    }

    /// Sets a condition that exists only while something is wrong, or removes it.
    fn set_or_remove(&mut self, kind: &str, wrong: Option<(&str, &str)>) {
        match wrong {
            Some((reason, message)) => self.set(kind, true, reason, message),
            None => {
                condition::remove(&mut self.status.conditions, kind);
            }
        }
    }

    fn submitted(&mut self, report: &Report, submitted: bool) {
        let was_submitted = condition::is_true(&self.status.conditions, condition::SUBMITTED);
        if self.status.generation.is_some() && (submitted || was_submitted) {
            return self.set(condition::SUBMITTED, true, "Submitted", "every pod was created");
        }
        match &report.trouble {
            Some(trouble) => self.set(condition::SUBMITTED, false, &trouble.reason, &trouble.message),
            None if self.status.generation.is_some() => {
                self.set(condition::SUBMITTED, false, "CreatingPods", "waiting for pods to be created");
            }
            None => {
                let message = format!("waiting for {}", wait_for(&report.preparing));
                self.set(condition::SUBMITTED, false, "Submitting", &message);
            }
        }
    }

    fn ready(&mut self, report: &Report, failed: bool, after_step: bool) {
        let total = match &self.observed.committed {
            Some(Loaded::Whole(wanted)) if !after_step => wanted.processing_elements.len(),
            _ if failed => {
                return self.set(condition::READY, false, "SubmissionFailed", "the job could not be submitted");
            }
            Some(Loaded::Lost(_)) => {
                return self.set(condition::READY, false, "PlanLost", "it is not known what the job consists of");
            }
            _ if self.status.generation.is_none() => {
                return self.set(condition::READY, false, "Submitting", "the job has no PEs yet");
            }
            // A step that does not change the committed generation does not change this condition.
            _ if self.status.generation == self.observed.status.generation => return,
            _ => return self.set(condition::READY, false, "RollingOut", "a generation was just committed"),
        };
        let Report { ready, pending, .. } = report;
        let message = format!("{ready} of {total} PEs run what the job wants");
        if *ready as usize == total {
            self.set(condition::READY, true, "AllRunning", &message);
        } else if *pending > 0 {
            self.set(condition::READY, false, "RollingOut", &message);
        } else if report.down.is_empty() {
            self.set(condition::READY, false, "Completed", &message);
        } else {
            self.set(condition::READY, false, "ProcessingElementsDown", &message);
        }
    }

    fn progressing(&mut self, report: &Report, failed: bool, after_step: bool) {
        let submitting = self.status.generation.is_none();
        if failed {
            self.set(condition::PROGRESSING, false, "SubmissionFailed", "waiting for the spec to be corrected");
        } else if let Some(trouble) = &report.trouble {
            self.set(condition::PROGRESSING, true, &trouble.reason, &format!("trying again: {}", trouble.message));
        } else if submitting || !report.preparing.is_empty() {
            let reason = if submitting { "Submitting" } else { "PreparingGeneration" };
            self.set(condition::PROGRESSING, true, reason, &format!("waiting for {}", wait_for(&report.preparing)));
        } else if after_step || report.pending > 0 || report.superfluous > 0 {
            self.set(condition::PROGRESSING, true, "RollingOut", &rolling_out(report));
        } else if self.status.rejected_resize.is_some() || !self.observed.refused_widths.is_empty() {
            let message = "what was in force stays in force: a width that is wanted was refused";
            self.set(condition::PROGRESSING, false, "ResizeRejected", message);
        } else {
            self.set(condition::PROGRESSING, false, "Done", "what is wanted is in force");
        }
    }

    fn degraded(&mut self, report: &Report) {
        let message = match (&report.lost, report.down.len()) {
            (Some(lost), _) => Some(("Lost", lost.clone())),
            (None, 0) => None,
            (None, count) => {
                let ids: Vec<_> = report.down.iter().take(LISTED).map(u64::to_string).collect();
                let more = if count > LISTED { ", ..." } else { "" };
                let message = format!(
                    "{count} PEs are down and their policy or their operators do not permit a restart: {}{more}",
                    ids.join(", ")
                );
                Some(("ProcessingElementsDown", message))
            }
        };
        self.set_or_remove(condition::DEGRADED, message.as_ref().map(|(reason, message)| (*reason, message.as_str())));
    }

    fn resize_rejected(&mut self) {
        let rejected =
            self.status.rejected_resize.as_ref().map(|rejected| (rejected.reason.clone(), rejected.message.clone()));
        let refused = self.observed.refused_widths.values().next();
        let refused = refused.map(|refused| (refused.reason.to_owned(), refused.message.clone()));
        let wrong = rejected.or(refused);
        self.set_or_remove(condition::RESIZE_REJECTED, wrong.as_ref().map(|(r, m)| (r.as_str(), m.as_str())));
    }

    /// A resize that takes longer than its time-out goes on, and says what it waits for (rule job-36).
    fn resize_delayed(&mut self, report: &Report) {
        let progressing = condition::get(&self.status.conditions, condition::PROGRESSING);
        let since = progressing.filter(|condition| condition.status == "True").map(|c| c.last_transition_time.0);
        let submitted = condition::is_true(&self.status.conditions, condition::SUBMITTED);
        let limit = self.observed.deadlines.resize;
        let late = since.filter(|_| submitted).is_some_and(|since| {
            // A generation that was committed meanwhile has its own time.
            let end = roll_out_end(self.observed).filter(|_| report.preparing.is_empty());
            let started = i128::from(self.observed.now.as_second()) - i128::from(since.as_second());
            started >= i128::from(limit.as_secs()) && end.is_none_or(|end| self.observed.now >= end)
        });
        let what = match &report.trouble {
            Some(trouble) => trouble.message.clone(),
            None if report.preparing.is_empty() => rolling_out(report),
            None => format!("waiting for {}", report.preparing),
        };
        let message = format!("it takes longer than {} s: {what}", limit.as_secs());
        self.set_or_remove(condition::RESIZE_DELAYED, late.then_some(("TimedOut", message.as_str())));
    }

    fn warning(&mut self) {
        let of_generation: &[_] = match &self.observed.committed {
            Some(Loaded::Whole(wanted)) => &wanted.warnings,
            _ => &[],
        };
        let warnings: Vec<_> = self.observed.spec_warnings.iter().chain(of_generation).collect();
        let text: Vec<_> = warnings.iter().map(|(_, message)| message.as_str()).collect();
        let message = text.join("; ");
        self.set_or_remove(condition::WARNING, warnings.first().map(|(reason, _)| (reason.as_str(), message.as_str())));
    }
}

fn wait_for(what: &str) -> &str {
    if what.is_empty() { "the next step" } else { what }
}

/// What the roll-out waits for, in words.
fn rolling_out(report: &Report) -> String {
    match (report.pending, report.superfluous) {
        (0, 0) => "waiting for the roll-out to begin".to_owned(),
        (0, removed) => format!("waiting for {removed} PEs to go away"),
        (pending, _) => format!("waiting for {pending} PEs to run"),
    }
}
