//! Computes the Events of a change of a job's status, for `kubectl describe` (rule job-34). Pure.
//!
//! Knows: two statuses, the observation. Must not know: how Events are stored.

use super::warnings::{NO_OTHER_POD, beginning, has_beginning, no_other_pods, of_no_other_pods};
use crate::controllers::job::long_work::redis;
use crate::controllers::job::observed::{DesiredGeneration, JobObservation, Loaded};
use crate::controllers::job::refusals;
use crate::controllers::job::waits::pes;
use crate::controllers::job::widths::listed;
use std::collections::BTreeSet;
use streams_api::{JobPhase, JobStatus, Rollout, condition};
use streams_kubernetes::events::Notice;
use streams_kubernetes::writer::DEFINITIONS_OUTDATED;

/// Reason of the Events that say that a width goes which was edited before the job was submitted.
const REGION_EDIT_LOST: &str = "RegionEditLost";

/// What Events say that the statuses do not.
#[derive(Clone, Copy, Debug, Default)]
struct Details<'a> {
    /// The name of the job.
    name: &'a str,
    /// The generation that was proposed before.
    proposed: Option<&'a DesiredGeneration>,
    /// Reason and message of what users should know of the spec.
    spec_warnings: &'a [(String, String)],
    /// Reason and message, if there are PEs that run and whose options permit no other pod.
    no_other_pods: Option<&'a (String, String)>,
    /// PEs of the committed generation that have had a pod, and all of them.
    with_pods: (u64, u64),
    /// Names of the regions of a job without a generation whose widths somebody has edited.
    edited_regions: &'a [String],
}

/// The Events that follow from another status of the job than was observed.
pub(crate) fn of_change(name: &str, observed: &JobObservation, after: &JobStatus) -> Vec<Notice> {
    let committed = observed.committed.as_ref().and_then(Loaded::whole);
    let current = &observed.children.processing_elements;
    let ids = || committed.into_iter().flat_map(|wanted| wanted.processing_elements.keys());
    let count = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
    let launched = ids().filter(|id| current.get(id).is_some_and(|pe| pe.launched)).count();
    let no_other_pods = of_no_other_pods(&no_other_pods(observed));
    let is_submission = observed.status.generation.is_none();
    let edited = edited_regions(observed).filter(|_| is_submission);
    let edited_regions: Vec<_> = edited.map(|(_, name)| name.to_owned()).collect();
    let details = Details {
        name,
        proposed: observed.proposed.as_ref().and_then(Loaded::whole),
        spec_warnings: &observed.spec_warnings,
        no_other_pods: no_other_pods.as_ref(),
        with_pods: (count(launched), count(ids().count())),
        edited_regions: &edited_regions,
    };
    between(details, &observed.status, after)
}

/// Number and name of each region whose width somebody has edited, of those that are not being deleted.
fn edited_regions(observed: &JobObservation) -> impl Iterator<Item = (u64, &str)> {
    let regions = observed.children.regions.iter().filter(|(_, region)| !region.object.deleting);
    regions.filter_map(|(index, region)| Some((*index, region.created.as_ref()?.edited()?)))
}

/// What is told of an edit before its region is deleted.
pub(crate) struct LostEdit {
    pub(crate) notice: Notice,
    /// Numbers of all regions that it names, if their edits go together; then it is told once for all of them.
    pub(crate) together: Option<BTreeSet<u64>>,
}

/// What is told of the edit of the region with this number and name, which is about to be deleted before the first
/// commit (rule job-25). If that is so because the submission has failed, its failure has named those that were edited
/// by then, and all go with what was prepared.
pub(crate) fn lost_edit(observed: &JobObservation, index: u64, region: &str) -> LostEdit {
    if refusals::is_final(&observed.status) {
        let edited = edited_regions(observed).map(|(index, name)| (index, name.to_owned()));
        let (together, names): (BTreeSet<_>, Vec<_>) = edited.unzip();
        return LostEdit { notice: lost_by_failure(&names), together: Some(together) };
    }
    let note = format!(
        "a width that was edited before the job was submitted goes, as the application has no region of this number \
         and name any more; scale the region again if it has another number: {region} (number {index})"
    );
    LostEdit { notice: Notice::warning(REGION_EDIT_LOST, note), together: None }
}

/// All that was made goes, and no attempt follows that could have the widths of these regions, unless an edit of the
/// job is faster (rule job-25).
fn lost_by_failure(edited_regions: &[String]) -> Notice {
    let note = format!(
        "widths that were edited before the job was submitted go with what was prepared for it, unless the job is \
         edited first: {}; scale these regions again",
        listed(edited_regions)
    );
    Notice::warning(REGION_EDIT_LOST, note)
}

/// The Events between two statuses of a job.
fn between(details: Details<'_>, before: &JobStatus, after: &JobStatus) -> Vec<Notice> {
    let Details { name, proposed, spec_warnings, no_other_pods, with_pods, edited_regions } = details;
    let mut events = Vec::new();
    let became_true =
        |kind: &str| condition::is_true(&after.conditions, kind) && !condition::is_true(&before.conditions, kind);
    let message = |kind: &str| {
        condition::get(&after.conditions, kind).map_or(String::new(), |condition| condition.message.clone())
    };
    // What the cluster refuses may be followed by another refusal, or by a failure for good.
    let failure = |status: &JobStatus| {
        let submitted = condition::get(&status.conditions, condition::SUBMITTED);
        (status.phase == Some(JobPhase::Failed)).then(|| submitted.map(|submitted| submitted.reason.clone()))
    };
    if failure(after).is_some() && failure(after) != failure(before) {
        events.push(Notice::warning("SubmissionFailed", message(condition::SUBMITTED)));
    } else if after.submission_attempts > before.submission_attempts.max(1) {
        let last = condition::get(&before.conditions, condition::SUBMITTED);
        let last = last.map_or_else(String::new, |submitted| format!("; last: {}", submitted.message));
        let attempt = after.submission_attempts;
        let note =
            format!("the submission took longer than submissionTimeOutInSeconds: attempt {attempt} begins{last}");
        events.push(Notice::warning("SubmissionTimedOut", note));
    }
    if refusals::is_final(after) && !refusals::is_final(before) && !edited_regions.is_empty() {
        events.push(lost_by_failure(edited_regions));
    }
    let bundle_trouble = |status: &JobStatus| {
        condition::get(&status.conditions, condition::BUNDLE_UNAVAILABLE).map(|trouble| trouble.reason.clone())
    };
    if let Some(reason) = bundle_trouble(after)
        && bundle_trouble(before).as_ref() != Some(&reason)
    {
        events.push(Notice::warning(reason, message(condition::BUNDLE_UNAVAILABLE)));
    }
    let lacks_servers = |status: &JobStatus| {
        condition::get(&status.conditions, condition::SUBMITTED).is_some_and(|said| said.reason == redis::MISSING)
    };
    if lacks_servers(after) && !lacks_servers(before) && after.phase != Some(JobPhase::Failed) {
        events.push(Notice::warning(redis::MISSING, message(condition::SUBMITTED)));
    }
    if became_true(condition::SUBMITTED) {
        let note = match with_pods {
            (created, all) if created == all => format!("Running job {name}: the pods of {} were created", pes(all)),
            // A user who stops a PE does not wait for its pod.
            (created, all) => {
                format!(
                    "Running job {name}: the pods of {created} of {} were created; the others were stopped",
                    pes(all)
                )
            }
        };
        events.push(Notice::normal("SubmissionSucceeded", note));
    }
    if after.generation != before.generation
        && let (Some(generation), Some(rollout)) = (after.generation, &after.rollout)
    {
        let warnings = proposed.map(|proposed| proposed.warnings.as_slice()).unwrap_or_default();
        // The first adds all PEs, and the next Event says how many they are.
        if generation > 0 || !warnings.is_empty() {
            let Rollout { kept, restarted, added, removed, .. } = rollout;
            let kept = pes(u64::from(*kept));
            let note = format!(
                "generation {generation}: {kept} kept, {restarted} restarted, {added} added, {removed} removed"
            );
            events.push(Notice::normal("GenerationCommitted", note));
        }
        events.extend(fusion(after));
        events.extend(warnings.iter().map(|(reason, message)| Notice::warning(reason.clone(), message.clone())));
    }
    let finished = |status: &JobStatus| {
        status.rollout.as_ref().and_then(|rollout| Some((rollout.generation, rollout.finished_at.as_ref()?.0)))
    };
    if let Some((generation, _)) = finished(after).filter(|_| finished(before).is_none())
        && generation > 0
    {
        let note = format!("generation {generation} is rolled out");
        events.push(Notice::normal("ParallelRegionWidthChangeSuccess", note));
    }
    let refused = after.refused_edits.iter().filter(|refused| !before.refused_edits.contains(refused));
    events.extend(refused.map(|refused| Notice::warning("ParallelRegionWidthChangeFailure", refused.message.clone())));
    events.extend(certificate(before, after));
    let warns_of = |status: &JobStatus, beginning: &str| {
        let warning = condition::get(&status.conditions, condition::WARNING);
        warning.is_some_and(|warning| has_beginning(&warning.message, beginning))
    };
    let is_new = |message: &str| warns_of(after, beginning(message)) && !warns_of(before, beginning(message));
    if let Some((reason, message)) = no_other_pods.filter(|_| is_new(NO_OTHER_POD)) {
        events.push(Notice::warning(reason.clone(), message.clone()));
    }
    let new = spec_warnings.iter().filter(|(_, message)| is_new(message));
    events.extend(new.map(|(reason, message)| Notice::warning(reason.clone(), message.clone())));
    if became_true(condition::SUSPENDED) {
        events.push(Notice::normal("Suspended", "the pods of the job go; everything else stays"));
    }
    let was_suspended = condition::is_true(&before.conditions, condition::SUSPENDED);
    if was_suspended && !condition::is_true(&after.conditions, condition::SUSPENDED) {
        events.push(Notice::normal("Resumed", "the pods of the job start again"));
    }
    let told = [
        (condition::DEGRADED, "Degraded"),
        (condition::RESIZE_DELAYED, "ResizeDelayed"),
        (condition::CONTENDED, "Contended"),
        (condition::DEFINITIONS_OUTDATED, DEFINITIONS_OUTDATED),
    ];
    for (kind, reason) in told {
        if became_true(kind) || kind == condition::DEGRADED && gave_up(before, after) {
            events.push(Notice::warning(reason, message(kind)));
        }
    }
    events
}

/// A consistent region has given up, perhaps of a job that was degraded before (rule job-56). While a job is suspended
/// PEs that are down come first, so once it is resumed the reason says nothing new.
fn gave_up(before: &JobStatus, after: &JobStatus) -> bool {
    let [was_so, is_so] = [before, after].map(|status| {
        let degraded = condition::get(&status.conditions, condition::DEGRADED);
        degraded.is_some_and(|degraded| degraded.reason == condition::RESET_ATTEMPTS_EXHAUSTED)
    });
    is_so && !was_so && !condition::is_true(&before.conditions, condition::SUSPENDED)
}

/// The Event that says what became of the certificate of the PEs (rule job-48).
fn certificate(before: &JobStatus, after: &JobStatus) -> Option<Notice> {
    let of = |status: &JobStatus| {
        let transport = status.transport.as_ref()?;
        Some((transport.authority.clone()?, transport.not_after.as_ref()?.0))
    };
    let (old_authority, old_end) = of(before)?;
    let (authority, end) = of(after)?;
    if authority != old_authority {
        let note = "the certificate authority of the job was lost or not valid, and there is a new one: PEs accept new \
                    connections of each other once the files of both were updated, which takes nodes about a minute";
        return Some(Notice::warning("TransportAuthorityReplaced", note));
    }
    (end != old_end).then(|| {
        Notice::normal("TransportCertificateRenewed", format!("the certificate of the PEs is valid until {end}"))
    })
}

/// The Event that says how automatic fusion computed the number of PEs. It is what fusion aims at: the rules of an
/// application may lead to another one (rule fusion-4).
fn fusion(status: &JobStatus) -> Option<Notice> {
    let fusion = status.fusion.as_ref().filter(|_| status.generation == Some(0))?;
    let figures = fusion.automatic.as_ref()?;
    let free = figures.cpu_free.map_or("unknown".to_owned(), |free| format!("{free}m"));
    let aimed = fusion.processing_elements.unwrap_or_default();
    let made = status.statistics.as_ref().map_or(aimed, |statistics| u64::from(statistics.processing_elements));
    let instead = if made == aimed { String::new() } else { format!("; the rules of the application lead to {made}") };
    let note = format!(
        "{} for {} to {} threads, between {} and {}; free CPU {free}{instead}",
        pes(aimed),
        figures.threads_min,
        figures.threads_max,
        figures.low,
        figures.high
    );
    Some(Notice::normal("FusionResolved", note))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controllers::job::describe::warnings::message;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
    use k8s_openapi::jiff::Timestamp;
    use streams_api::{AutomaticFusionFigures, ProposedPlan, RefusedEdit, ResolvedFusion, Statistics};

    fn status(phase: JobPhase, generation: Option<u64>, submitted: bool) -> JobStatus {
        let rollout = generation.map(|generation| Rollout { generation, restarted: 2, added: 1, ..Rollout::default() });
        let mut status =
            JobStatus { phase: Some(phase), generation, rollout, submission_attempts: 1, ..JobStatus::default() };
        let conditions = &mut status.conditions;
        condition::set(conditions, condition::SUBMITTED, submitted, "R", "why", None, Timestamp::UNIX_EPOCH);
        status
    }

    fn summary(before: &JobStatus, after: &JobStatus) -> Vec<(bool, String)> {
        let spec_warnings = [("UnmatchedRegion".to_owned(), "bounds".to_owned())];
        let stuck = ("PodRefused".to_owned(), format!("{NO_OTHER_POD}: PE 3"));
        let details = Details { spec_warnings: &spec_warnings, no_other_pods: Some(&stuck), ..Details::default() };
        between(details, before, after).into_iter().map(|notice| (notice.warning, notice.reason.into_owned())).collect()
    }

    #[test]
    fn each_turn_in_the_life_of_a_job_makes_one_event() {
        let submitting = status(JobPhase::Submitting, None, false);
        let committed = status(JobPhase::Submitting, Some(0), false);
        let running = status(JobPhase::Running, Some(0), true);
        let failed = status(JobPhase::Failed, None, false);
        let waits = |reason: &str| {
            let mut waiting = submitting.clone();
            let conditions = &mut waiting.conditions;
            let kind = condition::BUNDLE_UNAVAILABLE;
            condition::set(conditions, kind, true, reason, "why", None, Timestamp::UNIX_EPOCH);
            waiting
        };
        let (missing, silent) = (waits("BundleNotFound"), waits("BundleUnavailable"));
        let mut refused_by_quota = failed.clone();
        let (kind, conditions) = (condition::SUBMITTED, &mut refused_by_quota.conditions);
        condition::set(conditions, kind, false, "QuotaExceeded", "why", None, Timestamp::UNIX_EPOCH);
        let again = JobStatus { submission_attempts: 2, ..submitting.clone() };
        let resized = status(JobPhase::Running, Some(1), true);
        let mut finished = resized.clone();
        finished.rollout.as_mut().unwrap().finished_at = Some(MicroTime(Timestamp::UNIX_EPOCH));
        let refuses = |regions: &[&str]| {
            let refused = |region: &&str| RefusedEdit { region: (*region).to_owned(), ..RefusedEdit::default() };
            JobStatus { refused_edits: regions.iter().map(refused).collect(), ..running.clone() }
        };
        let [refused, refused_another, refused_both] = [refuses(&["R"]), refuses(&["S"]), refuses(&["R", "S"])];
        let mut degraded = running.clone();
        condition::set(&mut degraded.conditions, condition::DEGRADED, true, "R", "", None, Timestamp::UNIX_EPOCH);
        let (mut exhausted, reason) = (running.clone(), condition::RESET_ATTEMPTS_EXHAUSTED);
        condition::set(&mut exhausted.conditions, condition::DEGRADED, true, reason, "", None, Timestamp::UNIX_EPOCH);
        let mut suspended = degraded.clone();
        condition::set(&mut suspended.conditions, condition::SUSPENDED, true, "R", "", None, Timestamp::UNIX_EPOCH);
        let [mut warned, mut warned_of_more, mut stuck, mut stuck_more] = [(); 4].map(|()| running.clone());
        let (of_one, of_more) = (format!("{NO_OTHER_POD}: PE 3"), format!("{NO_OTHER_POD}: PEs 3, 4; and more"));
        let warnings = [
            (&mut warned, "bounds"),
            (&mut warned_of_more, "bounds; more"),
            (&mut stuck, &of_one),
            (&mut stuck_more, &of_more),
        ];
        for (status, message) in warnings {
            condition::set(&mut status.conditions, condition::WARNING, true, "R", message, None, Timestamp::UNIX_EPOCH);
        }
        // before, after -> warning and reason of the Event
        let table = [
            (&submitting, &committed, None),
            (&committed, &running, Some((false, "SubmissionSucceeded"))),
            (&submitting, &failed, Some((true, "SubmissionFailed"))),
            (&submitting, &again, Some((true, "SubmissionTimedOut"))),
            (&failed, &submitting, None),
            (&refused_by_quota, &failed, Some((true, "SubmissionFailed"))),
            (&submitting, &missing, Some((true, "BundleNotFound"))),
            (&missing, &silent, Some((true, "BundleUnavailable"))),
            (&missing, &submitting, None),
            (&missing, &failed, Some((true, "SubmissionFailed"))),
            (&running, &resized, Some((false, "GenerationCommitted"))),
            (&resized, &finished, Some((false, "ParallelRegionWidthChangeSuccess"))),
            (&running, &refused, Some((true, "ParallelRegionWidthChangeFailure"))),
            (&refused, &refused_both, Some((true, "ParallelRegionWidthChangeFailure"))),
            // The other one was corrected.
            (&refused_both, &refused, None),
            (&refused, &refused_another, Some((true, "ParallelRegionWidthChangeFailure"))),
            (&refused, &running, None),
            (&running, &degraded, Some((true, "Degraded"))),
            (&degraded, &running, None),
            (&running, &exhausted, Some((true, "Degraded"))),
            (&degraded, &exhausted, Some((true, "Degraded"))),
            (&exhausted, &degraded, None),
            // It had given up before, and PEs were down.
            (&exhausted, &suspended, Some((false, "Suspended"))),
            (&suspended, &exhausted, Some((false, "Resumed"))),
            (&running, &warned, Some((true, "UnmatchedRegion"))),
            (&warned, &warned_of_more, None),
            (&warned, &running, None),
            (&running, &stuck, Some((true, "PodRefused"))),
            (&stuck, &stuck_more, None),
            (&stuck, &running, None),
        ];
        for (before, after, expected) in table {
            let expected: Vec<_> = expected.into_iter().map(|(warning, reason)| (warning, reason.to_owned())).collect();
            assert_eq!(summary(before, after), expected);
            assert!(summary(after, after).is_empty(), "it is published once");
        }
    }

    #[test]
    fn another_attempt_says_by_which_limit_it_begins_and_what_the_one_before_said_last() {
        let before = status(JobPhase::Submitting, None, false);
        let after = JobStatus { submission_attempts: 2, ..before.clone() };
        let notes = |before: &JobStatus| -> Vec<String> {
            between(Details::default(), before, &after).into_iter().map(|notice| notice.note).collect()
        };
        let begins = "the submission took longer than submissionTimeOutInSeconds: attempt 2 begins";
        assert_eq!(notes(&before), [format!("{begins}; last: why")]);
        assert_eq!(notes(&JobStatus { conditions: Vec::new(), ..before.clone() }), [begins]);
    }

    #[test]
    fn widths_that_go_with_what_was_prepared_are_told() {
        let submitting = status(JobPhase::Submitting, None, false);
        let proposed = JobStatus { proposal: Some(ProposedPlan::default()), ..submitting.clone() };
        let [committed, failed] =
            [(JobPhase::Submitting, Some(0)), (JobPhase::Failed, None)].map(|(phase, of)| status(phase, of, false));
        let (one, none): (_, [String; 0]) = (["R".to_owned()], []);
        // before, after, regions that were edited -> it is told
        let table = [
            (&proposed, &submitting, &one[..], false),
            (&proposed, &failed, &one[..], true),
            (&proposed, &failed, &none[..], false),
            (&submitting, &failed, &one[..], true),
            (&failed, &failed, &one[..], false),
            (&proposed, &committed, &one[..], false),
            (&proposed, &proposed, &one[..], false),
            (&submitting, &proposed, &one[..], false),
        ];
        for (number, (before, after, edited_regions, expected)) in table.into_iter().enumerate() {
            let details = Details { edited_regions, ..Details::default() };
            let told = between(details, before, after);
            let says = |notice: &&Notice| notice.note.contains("unless the job is edited first: R;");
            let told = told.iter().filter(|notice| notice.reason == "RegionEditLost").filter(says);
            assert_eq!(told.count(), usize::from(expected), "{number}");
        }
    }

    #[test]
    fn the_first_generation_is_told_of_if_it_has_warnings() {
        let (before, after) = (status(JobPhase::Submitting, None, false), status(JobPhase::Submitting, Some(0), false));
        let warning = ("HostTagUnknown".to_owned(), "no host has the tag t".to_owned());
        let table = [(vec![], vec![]), (vec![warning], vec!["GenerationCommitted", "HostTagUnknown"])];
        for (warnings, expected) in table {
            let proposed = DesiredGeneration { warnings, ..DesiredGeneration::default() };
            let details = Details { proposed: Some(&proposed), ..Details::default() };
            let told: Vec<_> = between(details, &before, &after).into_iter().map(|notice| notice.reason).collect();
            assert_eq!(told, expected);
        }
    }

    /// A job that runs, with these warnings.
    fn says(warnings: &[(String, String)]) -> JobStatus {
        let mut status = status(JobPhase::Running, Some(0), true);
        let (kind, said) = (condition::WARNING, message(warnings));
        condition::set(&mut status.conditions, kind, true, "R", &said, None, Timestamp::UNIX_EPOCH);
        status
    }

    #[test]
    fn a_warning_is_told_although_another_one_ends_like_it() {
        let of =
            |field: &str| ("ResourcesInvalid".to_owned(), format!("{field}: E; PEs keep the option that they had"));
        let both = [of("resources"), of("processingElement.resources")];
        let [job_wide, own] = [&both[..1], &both[1..]];
        // warnings before and after -> the new ones
        let table = [
            (own, &both[..], job_wide),
            (job_wide, &both[..], own),
            (own, job_wide, job_wide),
            (own, own, &both[..0]),
            (&both[..], job_wide, &both[..0]),
        ];
        for (before, after, expected) in table {
            let details = Details { spec_warnings: after, ..Details::default() };
            let told = between(details, &says(before), &says(after)).into_iter();
            let told: Vec<_> = told.map(|notice| (notice.reason.into_owned(), notice.note)).collect();
            assert_eq!(told, expected, "{before:?} {after:?}");
        }
    }

    #[test]
    fn each_warning_is_told_once_however_long_it_and_those_before_are() {
        let warning = |reason: &str, name: &str| (reason.to_owned(), format!("{reason}: {}", name.repeat(4_000)));
        let spec_warnings =
            [warning("UnmatchedRegion", "a"), warning("EntryOverruled", "b"), warning("EntryOverruled", "c")];
        let stuck = ("PodRefused".to_owned(), format!("{NO_OTHER_POD}: PE 3"));
        let all: Vec<_> = [stuck.clone()].into_iter().chain(spec_warnings.clone()).collect();
        let told = |no_other_pods: Option<&(String, String)>, before: &JobStatus, after: &JobStatus| {
            let details = Details { spec_warnings: &spec_warnings, no_other_pods, ..Details::default() };
            between(details, before, after).len()
        };
        let silent = status(JobPhase::Running, Some(0), true);
        assert_eq!(told(None, &silent, &says(&spec_warnings)), 3);
        assert_eq!(told(None, &says(&spec_warnings[..1]), &says(&spec_warnings)), 2);
        assert_eq!(told(Some(&stuck), &says(&spec_warnings), &says(&all)), 1, "those after it are cut no more");
        assert_eq!(told(Some(&stuck), &says(&all), &says(&all)), 0);
        assert_eq!(told(None, &says(&all), &says(&spec_warnings)), 0);
    }

    #[test]
    fn what_is_counted_is_said_as_it_is() {
        let submitting = status(JobPhase::Submitting, None, false);
        let mut committed = status(JobPhase::Submitting, Some(0), false);
        let figures = AutomaticFusionFigures { threads_min: 4, threads_max: 9, low: 2, high: 5, cpu_free: Some(900) };
        committed.fusion = Some(ResolvedFusion {
            mode: "automatic".to_owned(),
            processing_elements: Some(3),
            automatic: Some(figures),
        });
        let running = status(JobPhase::Running, Some(0), true);
        let resized = status(JobPhase::Running, Some(1), true);
        let of = |pes| {
            let statistics = Some(Statistics { processing_elements: pes, ..Statistics::default() });
            JobStatus { statistics, ..committed.clone() }
        };
        let one_kept = |mut status: JobStatus| {
            status.rollout.as_mut().unwrap().kept = 1;
            status
        };
        let counts = |kept: &str| vec![format!("generation 1: {kept} kept, 2 restarted, 1 added, 0 removed")];
        // before, after, PEs that have had a pod and all of them -> what is said
        let table = [
            (&submitting, of(3), (0, 0), vec!["3 PEs for 4 to 9 threads, between 2 and 5; free CPU 900m".to_owned()]),
            (
                &submitting,
                of(4),
                (0, 0),
                vec![
                    "3 PEs for 4 to 9 threads, between 2 and 5; free CPU 900m; the rules of the application lead to 4"
                        .to_owned(),
                ],
            ),
            (&running, resized.clone(), (8, 8), counts("0 PEs")),
            (&running, one_kept(resized), (8, 8), counts("1 PE")),
            (&committed, running.clone(), (8, 8), vec!["Running job flow: the pods of 8 PEs were created".to_owned()]),
            (&committed, running.clone(), (1, 1), vec!["Running job flow: the pods of 1 PE were created".to_owned()]),
            (
                &committed,
                running.clone(),
                (6, 8),
                vec!["Running job flow: the pods of 6 of 8 PEs were created; the others were stopped".to_owned()],
            ),
        ];
        for (before, after, with_pods, expected) in table {
            let details = Details { name: "flow", with_pods, ..Details::default() };
            let notes: Vec<_> = between(details, before, &after).into_iter().map(|notice| notice.note).collect();
            assert_eq!(notes, expected);
        }
    }
}
