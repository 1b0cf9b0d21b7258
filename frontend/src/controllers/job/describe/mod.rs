//! Computes the part of a job's status that only describes: phase, conditions, counters.
//!
//! Pure. [`decide`](super::decide::decide) does not read these fields, with two exceptions: a submission that has
//! failed for good stays failed until the spec changes (phase, observed generation and the reason of `Submitted`), and
//! the condition `Submitted` stays true.
//!
//! | Module | What it is |
//! |---|---|
//! | this one | the fields |
//! | [`transition`] | the other fields: the status after a step |
//! | [`warnings`] | what users should know although it stops nothing |
//! | [`events`] | Events of a change of the status |
//!
//! Knows: the observation, what was decided. Must not know: clients, which action comes next.

pub(crate) mod events;
pub(crate) mod transition;
pub(crate) mod warnings;

use super::cool_down::COOLING_DOWN;
use super::decide::{COMPILING, FETCHING, Report, WRITING, is_submitted, roll_out_end};
use super::observed::{JobObservation, Loaded, PodState};
use super::refusals;
use super::requests::refused_edits;
use super::tasks::Failure;
use super::transport::Transport;
use super::waits::{Waits, Words, pes};
use crate::controllers::times::whole_seconds;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, Time};
use k8s_openapi::jiff::Timestamp;
use streams_api::{JobPhase, JobStatus, Rollout, TransportStatus, condition};
use streams_kubernetes::error::outdated;

/// Part of the time of a submission that may be lost with the process that worked on it (rule job-18).
const UNRECORDED: u32 = 10;

/// Why a bundle cannot be had now; what waits for it is tried again (rule fetch-10).
const BUNDLE_TROUBLE: [&str; 11] = [
    "AdlLost",
    "BundleInvalid",
    "BundleNotFound",
    "BundleRefused",
    "BundleTooLarge",
    "BundleUnavailable",
    "BundleUnreadable",
    "BundleNotStored",
    "SecretNotFound",
    "SecretInvalid",
    "SecretUnreadable",
];

/// It is not known what the job consists of: its plan is lost (rule job-28).
pub(crate) const PLAN_LOST: &str = "PlanLost";

/// What is said of PEs that run and whose options permit no other pod.
const NEXT_POD: &str = "no other pod could be created";

/// Contended objects, or fields that are not kept, that a message lists.
const CONTENDED_LISTED: usize = 10;

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
    // A step carries nothing of the spec out: whoever leads next takes it for an edit that is still to be carried out
    // (rule job-45).
    if !after_step || observed.status.generation.is_none() {
        status.observed_generation = Some(observed.spec_generation);
    }
    // While the plan is lost nobody looks at regions: what was refused is refused still.
    if !is_plan_lost(observed) {
        refused_edits::keep(&mut status, &observed.requests.keys);
    }
    if !after_step {
        if let Some(Loaded::Whole(wanted)) = &observed.committed {
            // The commit records it; an older frontend did not.
            status.regions = wanted.regions_since(|index| status.region(index)?.width_before);
        }
        count(observed, report, &mut status);
        let worked = transition::work(observed);
        let unrecorded = worked.saturating_sub(status.submission_worked_milliseconds);
        if u128::from(unrecorded) * u128::from(UNRECORDED) >= observed.deadlines.submission.as_millis() {
            status.submission_worked_milliseconds = worked;
        }
        transport(observed, &mut status);
    }
    let refused = if after_step { None } else { refused(report) };
    // Without a step, and as long as nothing was written, nothing has come of a submission of which the cluster refused
    // something.
    let nothing_came = !after_step && status.generation.is_none() && !observed.refusals_are_over;
    let refused_still = nothing_came && refusals::is_of_cluster(&observed.status) && report.trouble.is_none();
    // Phase and reason together say so: before either is changed.
    let failed = refusals::is_final(&status);
    if !failed {
        phase(observed, report, submitted, refused.is_some() || refused_still, &mut status);
    }
    let mut say = Conditions { status: &mut status, observed };
    let (dated, no_bundle_still) = say.bundle_unavailable(report, after_step || failed);
    let report = dated.as_ref().unwrap_or(report);
    let no_other_pods = warnings::no_other_pods(observed);
    if !failed && (refused.is_some() || !refused_still) && !no_bundle_still {
        say.submitted(report, submitted, refused.as_ref());
    }
    say.compiled(report, failed);
    say.resources_ready(report, failed);
    say.ready(report, &no_other_pods, failed, after_step);
    say.pods_ready(report, &no_other_pods, after_step);
    say.connected(after_step);
    say.progressing(report, failed, after_step);
    say.suspended(report, after_step);
    say.degraded(report);
    say.resize_rejected();
    say.resize_delayed(report);
    say.contended();
    say.outdated();
    say.warning(&no_other_pods);
    status
}

/// Whether two statuses differ in more than counters and texts (rule job-35). Connectivity counts as a counter: PEs
/// tell of it as often as they like.
pub(crate) fn is_significant(before: &JobStatus, after: &JobStatus) -> bool {
    let essence = |status: &JobStatus| {
        let mut status = status.clone();
        condition::remove(&mut status.conditions, condition::CONNECTED);
        status.conditions.iter_mut().for_each(|condition| condition.message.clear());
        status.statistics = None;
        if let Some(rollout) = &mut status.rollout {
            rollout.pending = 0;
        }
        status
    };
    essence(before) != essence(after)
}

/// Whether the next write follows at once and says the same and more (rule job-50).
pub(crate) fn is_left_to_the_next(before: &JobStatus, after: &JobStatus, report: &Report) -> bool {
    if report.trouble.is_some() || before.generation.is_none() {
        return false;
    }
    let but_for_progress = |status: &JobStatus| {
        let mut status = status.clone();
        condition::remove(&mut status.conditions, condition::PROGRESSING);
        status
    };
    let is_prepared =
        !report.preparing.is_empty() && !is_significant(&but_for_progress(before), &but_for_progress(after));
    let is_unfinished = |status: &JobStatus| status.rollout.as_ref().is_some_and(|out| out.finished_at.is_none());
    let is_ending = report.pending + report.superfluous == 0 && is_unfinished(after);
    let is_cleaned_up = is_ending && (report.deletes || report.unwritten > 0);
    is_prepared || is_cleaned_up
}

/// Whether it is not known what the job consists of: nothing is counted, and no edit is carried out (rule job-28).
fn is_plan_lost(observed: &JobObservation) -> bool {
    matches!(observed.committed, Some(Loaded::Lost(_)))
}

/// Counts PEs, and notes when the roll-out is finished (rule job-17).
fn count(observed: &JobObservation, report: &Report, status: &mut JobStatus) {
    if !matches!(observed.committed, Some(Loaded::Whole(_))) {
        return;
    }
    if let Some(statistics) = &mut status.statistics {
        statistics.ready_processing_elements = report.ready;
        statistics.connected_processing_elements = u32::try_from(connected(observed).0).unwrap_or(u32::MAX);
        statistics.completed_processing_elements = report.completed;
    }
    if let Some(rollout) = &mut status.rollout {
        rollout.pending = report.pending.saturating_add(report.unwritten).saturating_add(report.superfluous);
        // Objects that are deleted only now may still exist.
        if rollout.pending == 0 && !report.deletes && rollout.finished_at.is_none() {
            rollout.finished_at = Some(MicroTime(observed.now));
            rollout.unfinished_since = None;
            rollout.removals = Vec::new();
        }
    }
}

/// How many PEs of the committed generation have all of their connections, and whether all that have not completed do
/// (rule job-54).
fn connected(observed: &JobObservation) -> (usize, bool) {
    let Some(Loaded::Whole(wanted)) = &observed.committed else { return (0, false) };
    let (mut count, mut completed) = (0_usize, 0_usize);
    for (id, wanted) in &wanted.processing_elements {
        let Some(pe) = observed.children.processing_elements.get(id) else { continue };
        if pe.is_connected {
            count += 1;
        } else if pe.state(wanted) == PodState::Completed {
            completed += 1;
        }
    }
    (count, count > 0 && count + completed == wanted.processing_elements.len())
}

/// PEs of the committed generation whose pods wait for the bundle of the job (rule job-43).
fn without_bundle(observed: &JobObservation) -> Waits {
    let mut waits = Waits::default();
    let wanted = observed.committed.as_ref().and_then(Loaded::whole).filter(|_| !observed.suspended);
    for id in wanted.into_iter().flat_map(|wanted| wanted.processing_elements.keys()) {
        let current = observed.children.processing_elements.get(id).filter(|pe| !pe.object.deleting);
        if let Some(words) = current.and_then(|pe| pe.lacks_bundle.as_ref()) {
            waits.add(*id, words);
        }
    }
    waits
}

/// What certificates say, or that there are none and are to be none (rule job-48).
fn transport(observed: &JobObservation, status: &mut JobStatus) {
    let Some(Transport { wanted, days, sighting: Some(sighting) }) = &observed.transport else { return };
    match sighting.certificates() {
        Some(certificates) => {
            status.transport = Some(TransportStatus {
                authority: Some(certificates.authority.clone()),
                not_after: Some(Time(certificates.not_after)),
                renew_at: Some(Time(whole_seconds(certificates.renew_at(*days)))),
            });
        }
        None if !wanted && sighting.secret.is_none() => status.transport = None,
        None => {}
    }
}

/// What only the cluster can refuse, and does (rule job-41).
fn refused(report: &Report) -> Option<Words> {
    let trouble = report.trouble.as_ref().map(|trouble| Words::of(&trouble.reason, &trouble.message));
    refusals::of_cluster(&report.without_pods, trouble)
}

fn phase(observed: &JobObservation, report: &Report, submitted: bool, refused: bool, status: &mut JobStatus) {
    let was_submitted = condition::is_true(&status.conditions, condition::SUBMITTED);
    let submitting = if refused { JobPhase::Failed } else { JobPhase::Submitting };
    status.phase = Some(match status.generation {
        None if status.job_id.is_none() => JobPhase::Pending,
        None => submitting,
        Some(_) if observed.suspended => JobPhase::Suspended,
        Some(_) if !submitted && !was_submitted => submitting,
        Some(_) if !report.down.is_empty() || report.lost.is_some() => JobPhase::Degraded,
        Some(_) => JobPhase::Running,
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

    fn submitted(&mut self, report: &Report, submitted: bool, refused: Option<&Words>) {
        let was_submitted = condition::is_true(&self.status.conditions, condition::SUBMITTED);
        if self.status.generation.is_some() && (submitted || was_submitted) {
            return self.set(condition::SUBMITTED, true, "Submitted", "every pod was created");
        }
        if let Some(Words { reason, message }) = refused {
            return self.set(condition::SUBMITTED, false, reason, message);
        }
        match &report.trouble {
            Some(trouble) => self.set(condition::SUBMITTED, false, &trouble.reason, &trouble.message),
            None if self.status.generation.is_some() && self.observed.suspended => {
                self.set(condition::SUBMITTED, false, "Suspended", "no pods are created while the job is suspended");
            }
            None if self.status.generation.is_some() => {
                let message = if report.without_pods.is_empty() {
                    "waiting for pods to be created".to_owned()
                } else {
                    format!("waiting for pods to be created: {}", report.without_pods)
                };
                self.set(condition::SUBMITTED, false, "CreatingPods", &message);
            }
            None => {
                let message = format!("waiting for {}", wait_for(&report.preparing));
                self.set(condition::SUBMITTED, false, "Submitting", &message);
            }
        }
    }

    /// Says that the bundle cannot be had, and since when (rule job-43). Gives the report with a trouble that says so,
    /// too; and whether that was said before, and is not known to be otherwise while the bundle is being asked for.
    fn bundle_unavailable(&mut self, report: &Report, is_over: bool) -> (Option<Report>, bool) {
        let kind = condition::BUNDLE_UNAVAILABLE;
        let generation = self.observed.spec_generation;
        let before = condition::get(&self.status.conditions, kind);
        let said_at = before.map(|said| said.last_transition_time.0);
        // Another spec may name another bundle.
        let since = before.filter(|said| said.observed_generation == Some(generation));
        let since = since.map(|said| said.last_transition_time.0);
        let trouble = report.trouble.as_ref().filter(|trouble| BUNDLE_TROUBLE.contains(&trouble.reason.as_str()));
        let trouble = trouble.filter(|_| !is_over);
        let is_asked_for = [FETCHING, COMPILING].contains(&report.preparing.as_str());
        let still = !is_over && report.trouble.is_none() && is_asked_for && since.is_some();
        let waiting = without_bundle(self.observed);
        if trouble.is_none() && !still && !waiting.is_empty() {
            // Their bundle is that of the submission, whatever spec the job has by now.
            let since = said_at.unwrap_or(self.observed.now);
            let message = format!("pods wait for their bundle: {waiting}; so since {since:.0}");
            self.set(kind, true, waiting.first_reason(), &message);
            return (None, false);
        }
        if since.is_none() || (trouble.is_none() && !still) {
            condition::remove(&mut self.status.conditions, kind);
        }
        let Some(trouble) = trouble else { return (None, still) };
        let since: Timestamp = since.unwrap_or(self.observed.now);
        let message = format!("{}; so since {since:.0}", trouble.message);
        self.set(kind, true, &trouble.reason, &message);
        let trouble = Some(Failure { message, ..trouble.clone() });
        (Some(Report { trouble, ..report.clone() }), false)
    }

    /// Why the submission has not come further, with what it waits for.
    fn submitting(report: &Report) -> Words {
        match &report.trouble {
            Some(trouble) => Words::of(&trouble.reason, &trouble.message),
            None => Words::of("Submitting", &format!("waiting for {}", wait_for(&report.preparing))),
        }
    }

    fn compiled(&mut self, report: &Report, failed: bool) {
        if is_plan_lost(self.observed) {
            self.set(condition::COMPILED, false, PLAN_LOST, "the plan of the job is lost");
        } else if self.status.generation.is_some() || self.status.proposal.is_some() {
            self.set(condition::COMPILED, true, "Compiled", "there is a plan");
        } else if failed {
            self.set(condition::COMPILED, false, "SubmissionFailed", "the job could not be submitted");
        } else {
            let Words { reason, message } = Self::submitting(report);
            self.set(condition::COMPILED, false, &reason, &message);
        }
    }

    fn resources_ready(&mut self, report: &Report, failed: bool) {
        let kind = condition::RESOURCES_READY;
        match (&report.lost, &report.trouble) {
            _ if failed => self.set(kind, false, "SubmissionFailed", "the job could not be submitted"),
            _ if self.status.generation.is_none() => {
                let Words { reason, message } = Self::submitting(report);
                self.set(kind, false, &reason, &message);
            }
            (Some(lost), _) => self.set(kind, false, "Lost", lost),
            // What is tried again for the next generation is not needed by the one that is in force.
            (None, Some(trouble)) if report.preparing.is_empty() => {
                self.set(kind, false, &trouble.reason, &trouble.message);
            }
            (None, _) => self.set(kind, true, "Applied", "every object of the job could be written"),
        }
    }

    fn pods_ready(&mut self, report: &Report, no_other_pods: &Waits, after_step: bool) {
        let kind = condition::PODS_READY;
        if let Some(rollout) = self.status.rollout.as_ref().filter(|_| after_step && self.is_just_committed()) {
            // What the next look at the pods finds; but pods that stay are as ready as they were.
            if rollout.added + rollout.restarted > 0 && !self.observed.suspended {
                self.set(kind, false, "PodsPending", "the PEs of the generation were not looked at yet");
            }
            return;
        }
        if is_plan_lost(self.observed) {
            return self.set(kind, false, PLAN_LOST, "it is not known which PEs the job has");
        }
        let committed = matches!(self.observed.committed, Some(Loaded::Whole(_))) && self.status.generation.is_some();
        if !committed {
            return self.set(kind, false, "NoPlan", "the job has no PEs yet");
        }
        if after_step {
            // The next look counts the pods.
            return;
        }
        let Report { waits, down, .. } = report;
        if self.observed.suspended {
            return self.set(kind, false, "Suspended", "the job is suspended");
        }
        match (waits.is_empty(), down.is_empty()) {
            (true, true) => {
                let message = no_other_pods.after("every PE has a pod that runs, or has completed", NEXT_POD);
                self.set(kind, true, "Running", &message);
            }
            (true, false) => self.set(kind, false, "ProcessingElementsDown", &down.to_string()),
            (false, _) => {
                let reason = waits.refused().map_or("PodsPending".to_owned(), |words| words.reason);
                self.set(kind, false, &reason, &waits.to_string());
            }
        }
    }

    /// Every PE has told that it has all of its connections.
    fn connected(&mut self, after_step: bool) {
        let kind = condition::CONNECTED;
        if after_step {
            // The next look counts the PEs that stay as they are; others have told nothing.
            let has_new = |rollout: &Rollout| rollout.added + rollout.restarted > 0;
            if self.is_just_committed() && self.status.rollout.as_ref().is_some_and(has_new) {
                condition::remove(&mut self.status.conditions, kind);
            }
            return;
        }
        let (_, all) = connected(self.observed);
        let wrong = all.then_some(("AllConnected", "every PE that runs has all of its connections"));
        self.set_or_remove(kind, wrong);
    }

    fn ready(&mut self, report: &Report, no_other_pods: &Waits, failed: bool, after_step: bool) {
        let total = match &self.observed.committed {
            Some(Loaded::Whole(wanted)) if !after_step => wanted.processing_elements.len(),
            _ if failed => {
                return self.set(condition::READY, false, "SubmissionFailed", "the job could not be submitted");
            }
            Some(Loaded::Lost(_)) => {
                return self.set(condition::READY, false, PLAN_LOST, "it is not known what the job consists of");
            }
            _ if self.status.generation.is_none() => {
                return self.set(condition::READY, false, "Submitting", "the job has no PEs yet");
            }
            // A step that does not change the committed generation does not change this condition.
            _ if self.status.generation == self.observed.status.generation => return,
            _ => return self.set(condition::READY, false, "RollingOut", "a generation was just committed"),
        };
        let Report { ready, completed, pending, waits, down, .. } = report;
        let mut message = format!("{ready} of {total} PEs run what the job wants");
        if *completed > 0 {
            message.push_str(&format!(", {completed} have completed"));
        }
        if let Some(older_options) = warnings::older_options(self.observed) {
            message.push_str(&format!("; {older_options}"));
        }
        // Who is down and who waits is said as well: that is what people look for.
        for (group, what) in [(down, "down"), (waits, "waiting"), (no_other_pods, NEXT_POD)] {
            message = group.after(&message, what);
        }
        // A PE that has completed is done (rule job-42).
        if ready.saturating_add(*completed) as usize == total {
            let reason = if *completed == 0 { "AllRunning" } else { "Completed" };
            self.set(condition::READY, true, reason, &message);
        } else if self.observed.suspended {
            self.set(condition::READY, false, "Suspended", &message);
        } else if *pending > 0 {
            self.set(condition::READY, false, "RollingOut", &message);
        } else {
            self.set(condition::READY, false, "ProcessingElementsDown", &message);
        }
    }

    /// A step has just committed a generation.
    fn is_just_committed(&self) -> bool {
        self.status.generation.is_some() && self.status.generation != self.observed.status.generation
    }

    fn progressing(&mut self, report: &Report, failed: bool, after_step: bool) {
        let submitting = self.status.generation.is_none();
        // What is next after the step.
        let preparing = match (after_step, submitting) {
            (true, false) if self.status.proposal.is_some() => WRITING,
            (true, false) => "",
            _ => &report.preparing,
        };
        // PEs of a suspended job do not count as being rolled out (rule job-44).
        let is_being_edited = report.unwritten > 0 && !self.observed.suspended;
        if failed {
            self.set(condition::PROGRESSING, false, "SubmissionFailed", "waiting for the spec to be corrected");
        } else if let Some(trouble) = &report.trouble {
            self.set(condition::PROGRESSING, true, &trouble.reason, &format!("trying again: {}", trouble.message));
        } else if submitting || !preparing.is_empty() {
            let reason = if submitting { "Submitting" } else { "PreparingGeneration" };
            self.set(condition::PROGRESSING, true, reason, &format!("waiting for {}", wait_for(preparing)));
        } else if is_plan_lost(self.observed) {
            let message = "no PE and no width is changed while the plan of the job is lost";
            self.set(condition::PROGRESSING, false, PLAN_LOST, message);
        } else if after_step || report.pending > 0 || report.superfluous > 0 || is_being_edited {
            self.set(condition::PROGRESSING, true, "RollingOut", &rolling_out(report));
        } else if self.observed.suspended {
            let (going, message) = suspending(report);
            self.set(condition::PROGRESSING, going, if going { "Suspending" } else { "Suspended" }, &message);
        } else if self.status.rejected_resize.is_some() || !self.observed.refused_widths.is_empty() {
            let message = "what was in force stays in force: a width that is wanted was refused";
            self.set(condition::PROGRESSING, false, "ResizeRejected", message);
        } else if let Some(apart) = self.observed.requests.apart.iter().min_by_key(|apart| apart.until) {
            let (who, until, failure) = (apart.who(), apart.until, &apart.failure);
            let message = format!("{who} is tried alone, again at {until:.0}: {}", failure.message);
            self.set(condition::PROGRESSING, false, &failure.reason, &message);
        } else if let Some(until) = self.observed.requests.cools_until {
            let message =
                format!("another width is wanted, and the one in force stays until {until:.0} (coolDownSeconds)");
            self.set(condition::PROGRESSING, false, COOLING_DOWN, &message);
        } else {
            self.set(condition::PROGRESSING, false, "Done", "what is wanted is in force");
        }
    }

    fn suspended(&mut self, report: &Report, after_step: bool) {
        if !self.observed.suspended {
            condition::remove(&mut self.status.conditions, condition::SUSPENDED);
        } else if after_step || self.status.generation.is_none() {
            // Pods are counted at the next look.
            self.set(condition::SUSPENDED, true, "Suspended", "the job is suspended: no pods are created");
        } else if is_plan_lost(self.observed) {
            let message = "the job is suspended; its pods are not counted while its plan is lost";
            self.set(condition::SUSPENDED, true, PLAN_LOST, message);
        } else {
            let (going, message) = suspending(report);
            self.set(condition::SUSPENDED, true, if going { "Suspending" } else { "Suspended" }, &message);
        }
    }

    fn degraded(&mut self, report: &Report) {
        let message = match (&report.lost, report.down.count()) {
            (Some(lost), _) => Some(("Lost", lost.clone())),
            (None, 0) => None,
            (None, count) => {
                let (pes, stay) = if count == 1 { ("PE is", "stays") } else { ("PEs are", "stay") };
                let because = "because of policies, operators or users";
                let message = format!("{count} {pes} down and {stay} so {because}: {}", report.down);
                Some(("ProcessingElementsDown", message))
            }
        };
        self.set_or_remove(condition::DEGRADED, message.as_ref().map(|(reason, message)| (*reason, message.as_str())));
    }

    /// Refusals by the compiler come first, and of the others one for each reason: a job may have thousands of regions.
    fn resize_rejected(&mut self) {
        let rejected = self.status.rejected_resize.as_ref();
        let mut refusals: Vec<(&str, &str)> =
            rejected.map(|rejected| (rejected.reason.as_str(), rejected.message.as_str())).into_iter().collect();
        for refused in self.observed.refused_widths.values() {
            if refusals.iter().all(|(reason, _)| *reason != refused.reason) {
                refusals.push((refused.reason, &refused.message));
            }
        }
        let reason = refusals.first().map(|(reason, _)| (*reason).to_owned());
        let message = refusals.iter().map(|(_, message)| *message).collect::<Vec<_>>().join("; ");
        self.set_or_remove(condition::RESIZE_REJECTED, reason.as_deref().map(|reason| (reason, message.as_str())));
    }

    /// A resize that takes longer than its time-out goes on, and says what it waits for (rule job-36).
    fn resize_delayed(&mut self, report: &Report) {
        let progressing = condition::get(&self.status.conditions, condition::PROGRESSING);
        let since = progressing.filter(|condition| condition.status == "True").map(|c| c.last_transition_time.0);
        let submitted = condition::is_true(&self.status.conditions, condition::SUBMITTED);
        let deadlines = &self.observed.deadlines;
        let limit = if report.preparing.is_empty() { deadlines.roll_out } else { deadlines.resize };
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

    /// Objects that somebody else changes as often as they are restored (rule call-19).
    fn contended(&mut self) {
        let contended = &self.observed.contended;
        let fields = contended
            .iter()
            .take(CONTENDED_LISTED)
            .map(|contended| format!("{} of {}", contended.field, contended.object));
        let mut message =
            format!("somebody else changes what the operator sets: {}", fields.collect::<Vec<_>>().join(", "));
        if contended.len() > CONTENDED_LISTED {
            message.push_str(", ...");
        }
        let wrong = (!contended.is_empty()).then_some(("ChangedByOthers", message.as_str()));
        self.set_or_remove(condition::CONTENDED, wrong);
    }

    /// Fields that the API server does not keep (rule call-30).
    fn outdated(&mut self) {
        let fields = self.observed.outdated.iter().take(CONTENDED_LISTED);
        let words: Vec<_> = fields.map(|undeclared| outdated(&undeclared.definition, &undeclared.field)).collect();
        let wrong = (!words.is_empty()).then(|| words.join("; "));
        self.set_or_remove(condition::DEFINITIONS_OUTDATED, wrong.as_deref().map(|words| ("FieldNotKept", words)));
    }

    fn warning(&mut self, no_other_pods: &Waits) {
        let observed = self.observed;
        // A commit says itself what its generation warns of.
        let in_force = if self.is_just_committed() { &observed.proposed } else { &observed.committed };
        let warnings = warnings::warnings(observed, in_force.as_ref(), no_other_pods);
        let message = warnings::message(&warnings);
        self.set_or_remove(condition::WARNING, warnings.first().map(|(reason, _)| (reason.as_str(), message.as_str())));
    }
}

fn wait_for(what: &str) -> &str {
    if what.is_empty() { "the next step" } else { what }
}

/// Whether PEs of a suspended job still have pods, and how many.
fn suspending(report: &Report) -> (bool, String) {
    let left = report.ready.saturating_add(report.pending);
    match left {
        0 => (false, "the job is suspended: it has no pods".to_owned()),
        left => (true, format!("the job is suspended: the pods of {} are still to go", pes(left.into()))),
    }
}

/// What the roll-out waits for, in words.
fn rolling_out(report: &Report) -> String {
    match (report.pending, report.superfluous) {
        (0, 0) if report.unwritten > 0 => format!("waiting for {} to be written", pes(report.unwritten.into())),
        (0, 0) => "waiting for the roll-out to begin".to_owned(),
        (0, removed) => format!("waiting for {} to go away", pes(removed.into())),
        (pending, _) => format!("waiting for {} to run: {}", pes(pending.into()), report.waits),
    }
}
