//! The conditions of a job (rule job-33), each by itself. When which of them is said is up to
//! [`describe`](super::describe).
//!
//! Pure. Knows: the observation, what was decided. Must not know: counters and the phase.

use super::{connected, exhausted_regions, is_plan_lost, warnings};
use crate::controllers::job::cool_down::COOLING_DOWN;
use crate::controllers::job::decide::{COMPILING, FETCHING, Report, WRITING};
use crate::controllers::job::held_up::TERMINATING;
use crate::controllers::job::observed::{JobObservation, Loaded};
use crate::controllers::job::tasks::Failure;
use crate::controllers::job::waits::{Waits, Words, pes};
use crate::controllers::resizing::goes_on_for;
use k8s_openapi::jiff::Timestamp;
use streams_api::{JobStatus, Rollout, condition};
use streams_kubernetes::error::outdated;

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

/// What is said of PEs that run and whose options permit no other pod.
const NEXT_POD: &str = "no other pod could be created";

/// What is said of PEs before the first commit. They may be there, but no pod starts before it (rule job-12). How many
/// there are is not said: that would change while they are written, and be written itself (rule job-50).
const UNCOMMITTED: &str =
    "no PE runs before the first generation is committed; the condition Submitted says what that waits for";

/// Why a job is ready none of whose PEs runs any more (rule job-42).
const COMPLETED: &str = "Completed";

/// Contended objects, or fields that are not kept, that a message lists.
const CONTENDED_LISTED: usize = 10;

/// The conditions of a status that is being described.
pub(super) struct Conditions<'a> {
    pub(super) status: &'a mut JobStatus,
    pub(super) observed: &'a JobObservation,
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

    pub(super) fn submitted(&mut self, report: &Report, submitted: bool, refused: Option<&Words>) {
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
    pub(super) fn bundle_unavailable(&mut self, report: &Report, is_over: bool) -> (Option<Report>, bool) {
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

    pub(super) fn compiled(&mut self, report: &Report, failed: bool) {
        if is_plan_lost(self.observed) {
            let message = format!("the plan of the job is lost; {}", condition::PLAN_LOST_WAY_OUT);
            self.set(condition::COMPILED, false, condition::PLAN_LOST, &message);
        } else if self.status.generation.is_some() || self.status.proposal.is_some() {
            self.set(condition::COMPILED, true, "Compiled", "there is a plan");
        } else if failed {
            self.set(condition::COMPILED, false, "SubmissionFailed", "the job could not be submitted");
        } else {
            let Words { reason, message } = Self::submitting(report);
            self.set(condition::COMPILED, false, &reason, &message);
        }
    }

    pub(super) fn resources_ready(&mut self, report: &Report, failed: bool) {
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
            (None, _) => match &report.going {
                Some((object, going)) => {
                    let words = going.words(object.of_job(&self.observed.name));
                    self.set(kind, false, TERMINATING, &words);
                }
                None => self.set(kind, true, "Applied", "every object of the job could be written"),
            },
        }
    }

    pub(super) fn pods_ready(&mut self, report: &Report, no_other_pods: &Waits, failed: bool, after_step: bool) {
        let kind = condition::PODS_READY;
        if let Some(rollout) = self.status.rollout.as_ref().filter(|_| after_step && self.is_just_committed()) {
            // What the next look at the pods finds; but pods that stay are as ready as they were.
            if rollout.added + rollout.restarted > 0 && !self.observed.suspended {
                self.set(kind, false, "PodsPending", "the PEs of the generation were not looked at yet");
            }
            return;
        }
        if is_plan_lost(self.observed) {
            let message = "the plan of the job is lost: it is not known which PEs the job has";
            return self.set(kind, false, condition::PLAN_LOST, message);
        }
        let committed = matches!(self.observed.committed, Some(Loaded::Whole(_))) && self.status.generation.is_some();
        if !committed {
            // All that a submission has made goes if it fails for good (rule job-19).
            let message = if failed { "the job has no PEs yet" } else { UNCOMMITTED };
            return self.set(kind, false, "NoPlan", message);
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
            (true, true) if have_all_completed(report) => self.set(kind, true, COMPLETED, "every PE has completed"),
            (true, true) => {
                let message = match report.completed {
                    0 => "every PE has a pod that runs, or has completed".to_owned(),
                    _ => format!("the pods of {} run{}", pes(report.ready.into()), completed_too(report)),
                };
                self.set(kind, true, "Running", &no_other_pods.after(&message, NEXT_POD));
            }
            (true, false) => self.set(kind, false, "ProcessingElementsDown", &down.to_string()),
            (false, _) => {
                let reason = waits.refused().map_or("PodsPending".to_owned(), |words| words.reason);
                self.set(kind, false, &reason, &waits.to_string());
            }
        }
    }

    /// Every PE has told that it has all of its connections.
    pub(super) fn connected(&mut self, after_step: bool) {
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

    pub(super) fn ready(&mut self, report: &Report, no_other_pods: &Waits, failed: bool, after_step: bool) {
        let total = match &self.observed.committed {
            Some(Loaded::Whole(wanted)) if !after_step => wanted.processing_elements.len(),
            _ if failed => {
                return self.set(condition::READY, false, "SubmissionFailed", "the job could not be submitted");
            }
            Some(Loaded::Lost(_)) => return self.ready_without_plan(),
            _ if self.status.generation.is_none() => {
                return self.set(condition::READY, false, "Submitting", UNCOMMITTED);
            }
            // A step that does not change the committed generation does not change this condition.
            _ if self.status.generation == self.observed.status.generation => return,
            _ => return self.set(condition::READY, false, "RollingOut", "a generation was just committed"),
        };
        let Report { ready, completed, pending, waits, down, .. } = report;
        let mut message = format!("{ready} of {total} PEs run what the job wants{}", completed_too(report));
        if let Some(older_options) = warnings::older_options(self.observed, report.unwritten > 0) {
            message.push_str(&format!("; {older_options}"));
        }
        // Who is down and who waits is said as well: that is what people look for.
        for (group, what) in [(down, "down"), (waits, "waiting"), (no_other_pods, NEXT_POD)] {
            message = group.after(&message, what);
        }
        let exhausted = self.exhausted_regions();
        if let Some(exhausted) = &exhausted {
            message.push_str(&format!("; {exhausted}"));
        }
        // A PE that has completed is done (rule job-42).
        if ready.saturating_add(*completed) as usize == total && exhausted.is_some() {
            self.set(condition::READY, false, condition::RESET_ATTEMPTS_EXHAUSTED, &message);
        } else if ready.saturating_add(*completed) as usize == total {
            let reason = if have_all_completed(report) { COMPLETED } else { "AllRunning" };
            self.set(condition::READY, true, reason, &message);
        } else if self.observed.suspended {
            self.set(condition::READY, false, "Suspended", &message);
        } else if *pending > 0 {
            self.set(condition::READY, false, "RollingOut", &message);
        } else {
            self.set(condition::READY, false, "ProcessingElementsDown", &message);
        }
    }

    /// Which consistent regions have given up, and what helps (rule job-56).
    fn exhausted_regions(&self) -> Option<String> {
        exhausted_regions::words(&self.observed.name, &self.observed.children.exhausted_regions)
    }

    /// While the plan is lost, the condition is of the spec that was carried out before: whoever finds the plan again
    /// has to know whether there was an edit meanwhile (rule job-45).
    fn ready_without_plan(&mut self) {
        let before = condition::plan_lost(&self.status.conditions);
        let of = before.map_or(self.observed.status.observed_generation, |ready| ready.observed_generation);
        let (conditions, now) = (&mut self.status.conditions, self.observed.now);
        let way_out = condition::PLAN_LOST_WAY_OUT;
        let message = format!("the plan of the job is lost: it is not known what the job consists of; {way_out}");
        condition::set(conditions, condition::READY, false, condition::PLAN_LOST, &message, of, now);
    }

    /// A step has just committed a generation.
    fn is_just_committed(&self) -> bool {
        self.status.generation.is_some() && self.status.generation != self.observed.status.generation
    }

    pub(super) fn progressing(&mut self, report: &Report, failed: bool, after_step: bool) {
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
            let way_out = condition::PLAN_LOST_WAY_OUT;
            let message = format!("no PE and no width is changed while the plan of the job is lost; {way_out}");
            self.set(condition::PROGRESSING, false, condition::PLAN_LOST, &message);
        } else if after_step || report.pending > 0 || report.superfluous > 0 || is_being_edited {
            self.set(condition::PROGRESSING, true, "RollingOut", &rolling_out(report));
        } else if self.observed.suspended {
            let (going, message) = suspending(report);
            self.set(condition::PROGRESSING, going, if going { "Suspending" } else { "Suspended" }, &message);
        } else if self.status.rejected_resize.is_some() || !self.observed.refused_widths.is_empty() {
            let message = "what was in force stays in force: a width that is wanted was refused; the condition \
                           ResizeRejected says why";
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

    pub(super) fn suspended(&mut self, report: &Report, after_step: bool) {
        if !self.observed.suspended {
            condition::remove(&mut self.status.conditions, condition::SUSPENDED);
        } else if after_step || self.status.generation.is_none() {
            // Pods are counted at the next look.
            self.set(condition::SUSPENDED, true, "Suspended", "the job is suspended: no pods are created");
        } else if is_plan_lost(self.observed) {
            let message = "the job is suspended; its pods are not counted while its plan is lost";
            self.set(condition::SUSPENDED, true, condition::PLAN_LOST, message);
        } else {
            let (going, message) = suspending(report);
            self.set(condition::SUSPENDED, true, if going { "Suspending" } else { "Suspended" }, &message);
        }
    }

    pub(super) fn degraded(&mut self, report: &Report) {
        let lost = report.lost.clone().map(|lost| ("Lost", lost));
        let down = match report.down.count() {
            0 => None,
            _ if lost.is_some() => None,
            count => {
                let (pes, stay) = if count == 1 { ("PE is", "stays") } else { ("PEs are", "stay") };
                let because = "because of policies, operators or users";
                let message = format!("{count} {pes} down and {stay} so {because}: {}", report.down);
                Some(("ProcessingElementsDown", message))
            }
        };
        // Before the first commit nothing runs that could have given up.
        let exhausted = self.exhausted_regions().filter(|_| self.status.generation.is_some());
        let exhausted = exhausted.map(|words| (condition::RESET_ATTEMPTS_EXHAUSTED, words));
        // A parallel region of a suspended job tells by the reason whether PEs are down (rule job-33).
        let all = if self.observed.suspended { [lost, down, exhausted] } else { [lost, exhausted, down] };
        let (reasons, messages): (Vec<_>, Vec<_>) = all.into_iter().flatten().unzip();
        let message = messages.join("; ");
        self.set_or_remove(condition::DEGRADED, reasons.first().map(|reason| (*reason, message.as_str())));
    }

    /// Refusals by the compiler come first, and of the others one for each reason: a job may have thousands of regions.
    pub(super) fn resize_rejected(&mut self) {
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
    pub(super) fn resize_delayed(&mut self, report: &Report) {
        let submitted = condition::is_true(&self.status.conditions, condition::SUBMITTED);
        let deadlines = &self.observed.deadlines;
        // With a limit of its own, what is prepared while pods of the generation before have time left would be late
        // at once.
        let follows_another = self.status.rollout.as_ref().is_some_and(|rollout| rollout.finished_at.is_none());
        let (which, limit) = match (report.preparing.is_empty(), follows_another) {
            (true, _) => ("the roll-out", deadlines.roll_out),
            (false, true) => ("going from one generation to the next", deadlines.roll_out),
            (false, false) => ("preparing the next generation", deadlines.resize),
        };
        let late = submitted && goes_on_for(self.status, limit, self.observed.now);
        let what = match &report.trouble {
            Some(trouble) => trouble.message.clone(),
            None if report.preparing.is_empty() => rolling_out(report),
            None => format!("waiting for {}", report.preparing),
        };
        let message = format!("{which} takes longer than {} s: {what}", limit.as_secs());
        self.set_or_remove(condition::RESIZE_DELAYED, late.then_some(("TimedOut", message.as_str())));
    }

    /// Objects that somebody else changes as often as they are restored (rule call-19).
    pub(super) fn contended(&mut self) {
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
        message.push_str("; their managedFields say who");
        let wrong = (!contended.is_empty()).then_some(("ChangedByOthers", message.as_str()));
        self.set_or_remove(condition::CONTENDED, wrong);
    }

    /// Fields that the API server does not keep (rule call-30).
    pub(super) fn outdated(&mut self) {
        let fields = self.observed.outdated.iter().take(CONTENDED_LISTED);
        let words: Vec<_> = fields.map(|undeclared| outdated(&undeclared.definition, &undeclared.field)).collect();
        let wrong = (!words.is_empty()).then(|| words.join("; "));
        self.set_or_remove(condition::DEFINITIONS_OUTDATED, wrong.as_deref().map(|words| ("FieldNotKept", words)));
    }

    pub(super) fn warning(&mut self, no_other_pods: &Waits) {
        let observed = self.observed;
        // A commit says itself what its generation warns of.
        let in_force = if self.is_just_committed() { &observed.proposed } else { &observed.committed };
        let warnings = warnings::warnings(observed, in_force.as_ref(), no_other_pods);
        let message = warnings::message(&warnings);
        self.set_or_remove(condition::WARNING, warnings.first().map(|(reason, _)| (reason.as_str(), message.as_str())));
    }
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

fn wait_for(what: &str) -> &str {
    if what.is_empty() { "the next step" } else { what }
}

/// Whether the job has PEs, and none runs because all have completed. Asked if none waits and none is down.
fn have_all_completed(report: &Report) -> bool {
    report.completed > 0 && report.ready == 0
}

/// How many PEs have completed, to be added to how the others are.
fn completed_too(report: &Report) -> String {
    match report.completed {
        0 => String::new(),
        1 => ", 1 has completed".to_owned(),
        completed => format!(", {completed} have completed"),
    }
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
