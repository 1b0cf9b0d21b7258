//! The status of a region (rule elasticity-4). Pure.
//!
//! Knows: the region, the spec and the status of its job. Must not know: plans, objects of PEs, clusters.

use crate::controllers::job::cool_down::{COOLING_DOWN, CoolDown};
use crate::controllers::job::requests::refused_edits::too_many;
use crate::controllers::job::widths::{CONSISTENT_REGION, CurrentRegion, RefusedWidth, refuse};
use k8s_openapi::jiff::Timestamp;
use kube::core::ObjectMeta;
use streams_api::{
    CommittedRegion, Job, JobStatus, ParallelRegion, ParallelRegionStatus, RejectedWidth, condition, names,
};

/// Longest selector that names PEs (schema); a region with more is not for autoscalers that count pods.
const SELECTOR_MAX: usize = 1024;

/// Why a region without effect is not ready.
pub(super) const WITHOUT_EFFECT: &str = "JobMissing";
/// Why a region whose width is in force is not ready, unless PEs stay down.
pub(super) const ROLLING_OUT: &str = "RollingOut";

/// What a region says that no job controls (rule elasticity-4). `job` has the name that it gives.
pub(super) fn of_stray(region: &ParallelRegion, job: Option<&Job>, now: Timestamp) -> ParallelRegionStatus {
    let created = |meta: &ObjectMeta| meta.creation_timestamp.as_ref().map(|time| time.0);
    let why = match job {
        None => "it was made by hand, or its job was deleted and has left it behind",
        Some(job) if created(&region.metadata) < created(&job.metadata) => {
            "an earlier job of the name was deleted and has left it behind"
        }
        // Only its job has given it one.
        Some(_) if region.status.as_ref().is_some_and(|status| status.width.is_some()) => {
            "its owner reference was removed"
        }
        Some(_) => "it was made by hand",
    };
    without_effect(region, &format!("no job controls the region: {why}; it has no effect"), now)
}

/// What a region says that somebody has copied (rule elasticity-4).
pub(super) fn of_copy(region: &ParallelRegion, now: Timestamp) -> ParallelRegionStatus {
    let original = names::parallel_region(&region.spec.job_name, region.spec.index);
    without_effect(region, &format!("it is a copy of {original}; it has no effect"), now)
}

fn without_effect(region: &ParallelRegion, message: &str, now: Timestamp) -> ParallelRegionStatus {
    let mut status = region.status.clone().unwrap_or_default();
    let generation = region.metadata.generation;
    status.observed_generation = generation;
    condition::set(&mut status.conditions, condition::READY, false, WITHOUT_EFFECT, message, generation, now);
    condition::set(&mut status.conditions, condition::PROGRESSING, false, WITHOUT_EFFECT, message, generation, now);
    status
}

/// What the region should say of itself, given its job (rule elasticity-4).
pub(super) fn status(region: &ParallelRegion, job: &Job, now: Timestamp) -> ParallelRegionStatus {
    let none = JobStatus::default();
    // All regions of a job are looked at when it changes, and each look costs about the same, however many there are.
    let of_job = job.status.as_ref().unwrap_or(&none);
    let mut status = region.status.clone().unwrap_or_default();
    let object_generation = region.metadata.generation;
    let name = &region.spec.name;
    let applied = of_job.applied_width(name);
    let committed = of_job.region(region.spec.index);
    // What was committed holds, also before it is written into the spec (rule elasticity-4).
    let unwritten = of_job.unwritten_widths.iter().filter(|unwritten| unwritten.is_still_unwritten_in(region));
    let unwritten = unwritten.max_by_key(|unwritten| unwritten.number).map(|unwritten| unwritten.width);
    let desired = unwritten.unwrap_or(region.spec.width);

    status.observed_generation = object_generation;
    status.last_resize = status.last_resize_by(of_job, region.spec.index, applied);
    // If the clock of the leader was ahead: a cool-down would last for as much longer (rule elasticity-25).
    let committed_at = status.last_resize.as_mut().and_then(|last| last.committed_at.as_mut());
    committed_at.into_iter().for_each(|at| at.0 = at.0.min(now));
    status.generation = status.generation_by(of_job, region.spec.index, applied);
    status.width = applied;
    if let Some(committed) = committed {
        status.global_channels = Some(committed.global_channels);
        status.selector = selector(job, committed);
    }
    status.selector.get_or_insert_with(|| selector_of_nothing(job, region.spec.index));
    let touches_consistent_region = match committed {
        Some(committed) => committed.touches_consistent_region,
        // An older frontend has committed the generation, and said this of the region.
        None => status.rejected.as_ref().is_some_and(|rejected| rejected.reason == CONSISTENT_REGION),
    };
    let current = applied.map(|width| CurrentRegion { name, width, touches_consistent_region });
    let refused = current.and_then(|current| refuse(&job.spec, current, desired)).map(without_compiler);
    status.rejected = refused.or_else(|| rejected(of_job, region, desired, applied));
    let cool_down = CoolDown::of(&job.spec, of_job, region).filter(|cool_down| now < cool_down.until);
    conditions(&mut status, of_job, (desired, applied), cool_down.as_ref(), object_generation, now);
    status
}

/// A refusal for which the compiler was not asked.
fn without_compiler(RefusedWidth { width, reason, message }: RefusedWidth) -> RejectedWidth {
    RejectedWidth { width, reason: reason.to_owned(), stage: None, code: None, message }
}

/// Why the compiler has refused the width that is wanted of this region, or is not asked for it.
fn rejected(job: &JobStatus, region: &ParallelRegion, desired: u32, applied: Option<u32>) -> Option<RejectedWidth> {
    if applied == Some(desired) {
        return None;
    }
    let name = &region.spec.name;
    if job.refused_edits.is_empty() {
        return rejected_by_older_frontend(job, name, desired);
    }
    let uid = region.metadata.uid.as_deref().unwrap_or_default();
    let mut refused = job.refused_edits.iter();
    let refused = refused.find(|refused| refused.region == *name && refused.width == desired && refused.uid == uid);
    let own = refused.map(|refused| RejectedWidth {
        width: desired,
        reason: refused.reason.clone(),
        stage: refused.stage.clone(),
        code: refused.code.clone(),
        message: refused.message.clone(),
    });
    own.or_else(|| applied.and_then(|_| too_many(job, name, desired)).map(without_compiler))
}

/// The refusal, if an older frontend has written the status: it had the same words for all regions.
fn rejected_by_older_frontend(job: &JobStatus, name: &str, desired: u32) -> Option<RejectedWidth> {
    let rejected = job.rejected_resize.as_ref()?;
    let concerns = rejected.widths.iter().any(|width| width.region == *name && width.width == desired);
    concerns.then(|| RejectedWidth {
        width: desired,
        reason: rejected.reason.clone(),
        stage: rejected.stage.clone(),
        code: rejected.code.clone(),
        message: rejected.message.clone(),
    })
}

fn conditions(
    status: &mut ParallelRegionStatus,
    job: &JobStatus,
    (desired, applied): (u32, Option<u32>),
    cool_down: Option<&CoolDown>,
    generation: Option<i64>,
    now: Timestamp,
) {
    let conditions = &mut status.conditions;
    let rolled_out = condition::are_pes_ready(&job.conditions);
    // The roll-out is over, and PEs are down for good: nothing will change by itself.
    let is_over = job.rollout.as_ref().is_some_and(|rollout| rollout.finished_at.is_some() && rollout.pending == 0);
    let is_suspended = condition::is_true(&job.conditions, condition::SUSPENDED);
    // PEs of a suspended job are not down because a consistent region of theirs has given up (rule job-56).
    let degraded = condition::get(&job.conditions, condition::DEGRADED)
        .filter(|degraded| !is_suspended || degraded.reason != condition::RESET_ATTEMPTS_EXHAUSTED);
    let down = degraded.filter(|_| is_over && !rolled_out);
    let in_force = applied == Some(desired);
    // Whether PEs are down is not known then, and nobody resizes (rule job-28).
    let is_lost = condition::plan_lost(&job.conditions).is_some();
    let (ready, reason, message) = match (&status.rejected, applied) {
        (None, Some(applied)) if is_lost => (false, condition::PLAN_LOST, without_plan(desired, applied)),
        (None, Some(_)) if in_force && down.is_some() => {
            (false, "ProcessingElementsDown", down.map_or_else(String::new, |down| down.message.clone()))
        }
        (Some(rejected), _) => (false, "Rejected", rejected.message.clone()),
        (None, None) => (false, "Submitting", "the job is not submitted yet".to_owned()),
        (None, Some(_)) if !in_force && cool_down.is_some() => {
            (false, COOLING_DOWN, cool_down.map_or_else(String::new, CoolDown::message))
        }
        (None, Some(applied)) if !in_force => {
            (false, "Resizing", format!("width {desired} is wanted, {applied} is in force"))
        }
        (None, Some(_)) if is_suspended => (false, "Suspended", "the job is suspended".to_owned()),
        (None, Some(_)) if !rolled_out => (false, ROLLING_OUT, format!("not all PEs of width {desired} run yet")),
        (None, Some(_)) => (true, "AllRunning", format!("all PEs of width {desired} run")),
    };
    condition::set(conditions, condition::READY, ready, reason, &message, generation, now);
    let rests = ["ProcessingElementsDown", "Suspended", condition::PLAN_LOST].contains(&reason);
    let progressing = status.rejected.is_none() && !ready && !rests;
    condition::set(conditions, condition::PROGRESSING, progressing, reason, &message, generation, now);
    match &status.rejected {
        Some(rejected) => {
            let (reason, message) = (rejected.reason.as_str(), rejected.message.as_str());
            condition::set(conditions, condition::RESIZE_REJECTED, true, reason, message, generation, now);
        }
        None => {
            condition::remove(conditions, condition::RESIZE_REJECTED);
        }
    }
}

/// What a region says while the plan of its job is lost.
fn without_plan(desired: u32, applied: u32) -> String {
    let why = "the plan of the job is lost, so no width is changed, and PEs are not counted";
    let way_out = condition::PLAN_LOST_WAY_OUT;
    if desired == applied {
        format!("width {applied} is in force; {why}; {way_out}")
    } else {
        format!("width {desired} is wanted, {applied} stays in force; {why}; {way_out}")
    }
}

/// Selects the pods of the region's channels (rule elasticity-6): those of PEs that hold operators of one. `None`
/// unless counting them counts channels, or if the selector were too long.
fn selector(job: &Job, committed: &CommittedRegion) -> Option<String> {
    let ids: Vec<String> =
        committed.channel_pes.iter().flat_map(|ids| ids.first..=ids.last).map(|id| id.to_string()).collect();
    if ids.is_empty() {
        return None;
    }
    let selector = format!("{},{} in ({})", of_job(job), names::LABEL_PE, ids.join(","));
    (selector.len() <= SELECTOR_MAX).then_some(selector)
}

/// Selects no pod, because PEs have numbers; each region has its own. An HPA refuses to scale without a selector,
/// whatever its metric, and when its selector finds pods of another HPA (rule elasticity-6).
fn selector_of_nothing(job: &Job, index: u64) -> String {
    format!("{},{}=none-of-region-{index}", of_job(job), names::LABEL_PE)
}

fn of_job(job: &Job) -> String {
    format!("{}={}", names::LABEL_JOB, job.metadata.name.as_deref().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
    use streams_api::{
        BundleReference, IdRange, InitialWidth, JobSpec, ParallelRegionSpec, RefusedEdit, RegionWidth, RejectedResize,
        Rollout, UnwrittenWidth,
    };

    fn committed(consistent: bool) -> CommittedRegion {
        CommittedRegion {
            index: 0,
            global_channels: 2,
            generation: None,
            width_before: None,
            touches_consistent_region: consistent,
            channel_pes: vec![IdRange { first: 3, last: 4 }, IdRange { first: 7, last: 7 }],
        }
    }

    fn job(applied: Option<u32>, ready: bool, rejected: Option<u32>) -> Job {
        let width = |width| RegionWidth { region: "A.R".to_owned(), width };
        let mut status = JobStatus {
            generation: applied.map(|_| 4),
            applied_widths: applied.map(width).into_iter().collect(),
            regions: applied.map(|_| committed(false)).into_iter().collect(),
            rejected_resize: rejected.map(|rejected| RejectedResize {
                widths: vec![width(rejected)],
                reason: "ApplicationRejected".to_owned(),
                message: "no".to_owned(),
                ..RejectedResize::default()
            }),
            ..JobStatus::default()
        };
        condition::set(&mut status.conditions, condition::READY, ready, "R", "", None, Timestamp::UNIX_EPOCH);
        let mut job = Job::new("flow", JobSpec::of(BundleReference::default()));
        job.status = Some(status);
        job
    }

    fn region(width: u32) -> ParallelRegion {
        let spec = ParallelRegionSpec { name: "A.R".to_owned(), width, ..ParallelRegionSpec::default() };
        let mut region = ParallelRegion::new("flow-0", spec);
        region.metadata.generation = Some(9);
        region
    }

    #[test]
    fn a_width_that_was_committed_holds_before_the_spec_has_it() {
        // width in the spec, edits since the request was admitted -> reason of Ready, message
        let table = [
            (2, 0, "AllRunning", "all PEs of width 5 run"),
            (5, 0, "AllRunning", "all PEs of width 5 run"),
            // Whoever has edited the region since wants something else.
            (3, 1, "Resizing", "width 3 is wanted, 5 is in force"),
        ];
        for (width, edits, reason, message) in table {
            let mut job = job(Some(5), true, None);
            let unwritten = UnwrittenWidth { index: 0, uid: "u".to_owned(), edited: 9, number: 1, width: 5 };
            job.status.as_mut().unwrap().unwritten_widths = vec![unwritten];
            let mut region = region(width);
            region.metadata.uid = Some("u".to_owned());
            region.metadata.generation = Some(9 + edits);
            let status = status(&region, &job, Timestamp::UNIX_EPOCH);
            let ready = condition::get(&status.conditions, condition::READY).unwrap();
            assert_eq!((ready.reason.as_str(), ready.message.as_str()), (reason, message), "{width}");
            assert_eq!(condition::is_true(&status.conditions, condition::PROGRESSING), reason == "Resizing");
        }
    }

    #[test]
    fn a_region_says_how_far_its_width_has_come() {
        // desired, applied, job ready, rejected width -> width in force, reason of Ready, whether ready, whether
        // rejected
        let table = [
            (2, None, false, None, None, "Submitting", false, false),
            (2, Some(2), false, None, Some(2), "RollingOut", false, false),
            (2, Some(2), true, None, Some(2), "AllRunning", true, false),
            (3, Some(2), true, None, Some(2), "Resizing", false, false),
            (3, Some(2), true, Some(3), Some(2), "Rejected", false, true),
            // What was refused is not wanted any more.
            (4, Some(2), true, Some(3), Some(2), "Resizing", false, false),
            (2, Some(2), true, Some(3), Some(2), "AllRunning", true, false),
        ];
        for (desired, applied, ready, rejected, width, reason, is_ready, is_rejected) in table {
            let status = status(&region(desired), &job(applied, ready, rejected), Timestamp::UNIX_EPOCH);
            assert_eq!(status.width, width, "{desired} {applied:?}");
            let condition = condition::get(&status.conditions, condition::READY).unwrap();
            assert_eq!((condition.reason.as_str(), condition.status == "True"), (reason, is_ready));
            assert_eq!((condition.observed_generation, status.observed_generation), (Some(9), Some(9)));
            assert_eq!(status.rejected.is_some(), is_rejected);
            assert_eq!(condition::is_true(&status.conditions, condition::RESIZE_REJECTED), is_rejected);
        }
    }

    fn refused(region: &str, width: u32, message: &str) -> RefusedEdit {
        let (region, uid, message) = (region.to_owned(), "u".to_owned(), message.to_owned());
        RefusedEdit { region, width, uid, reason: "ApplicationRejected".to_owned(), message, ..RefusedEdit::default() }
    }

    #[test]
    fn a_region_says_why_its_own_width_was_refused() {
        // region, uid, desired width -> what it says
        let table = [
            ("A.R", "u", 3, Some("why R")),
            ("A.S", "u", 3, Some("why S")),
            ("A.T", "u", 3, None),
            ("A.R", "u", 4, None),
            // The object of this name that was refused is gone.
            ("A.R", "v", 3, None),
        ];
        for (name, uid, desired, expected) in table {
            let mut job = job(Some(2), true, Some(3));
            let of_job = job.status.as_mut().unwrap();
            let width = |region: &str| RegionWidth { region: region.to_owned(), width: 2 };
            of_job.applied_widths = ["A.R", "A.S", "A.T"].map(width).to_vec();
            of_job.refused_edits = vec![refused("A.R", 3, "why R"), refused("A.S", 3, "why S")];
            let mut region = region(desired);
            (region.spec.name, region.metadata.uid) = (name.to_owned(), Some(uid.to_owned()));
            let status = status(&region, &job, Timestamp::UNIX_EPOCH);
            let condition = condition::get(&status.conditions, condition::RESIZE_REJECTED);
            assert_eq!(condition.map(|condition| condition.message.as_str()), expected, "{name} {uid} {desired}");
            assert_eq!(status.rejected.map(|rejected| rejected.message).as_deref(), expected);
        }
    }

    #[test]
    fn a_region_says_that_too_many_others_are_refused() {
        // refused regions, desired width -> reason of Ready, reason of the refusal
        let table =
            [(255, 3, "Resizing", None), (256, 3, "Rejected", Some("TooManyRefusals")), (256, 2, "AllRunning", None)];
        for (count, desired, reason, expected) in table {
            let mut job = job(Some(2), true, None);
            let others = (0..count).map(|n| refused(&format!("O{n}"), 9, "no"));
            job.status.as_mut().unwrap().refused_edits = others.collect();
            let status = status(&region(desired), &job, Timestamp::UNIX_EPOCH);
            let ready = condition::get(&status.conditions, condition::READY).unwrap();
            let rejected = status.rejected.as_ref().map(|rejected| rejected.reason.as_str());
            assert_eq!((ready.reason.as_str(), rejected), (reason, expected), "{count} {desired}");
            let is_progressing = condition::is_true(&status.conditions, condition::PROGRESSING);
            assert_eq!(is_progressing, reason == "Resizing", "{count} {desired}");
        }
    }

    #[test]
    fn a_region_of_a_job_whose_pes_stay_down_is_not_rolling_out_for_ever() {
        // the roll-out is finished, the job is degraded -> reason of Ready, whether there is progress
        let table = [
            (false, false, "RollingOut", true),
            (false, true, "RollingOut", true),
            (true, true, "ProcessingElementsDown", false),
        ];
        for (finished, degraded, reason, progressing) in table {
            let mut job = job(Some(2), false, None);
            let of_job = job.status.as_mut().unwrap();
            let finished_at = finished.then_some(MicroTime(Timestamp::UNIX_EPOCH));
            of_job.rollout = Some(Rollout { finished_at, ..Rollout::default() });
            if degraded {
                let conditions = &mut of_job.conditions;
                condition::set(conditions, condition::DEGRADED, true, "R", "PE 2", None, Timestamp::UNIX_EPOCH);
            }
            let status = status(&region(2), &job, Timestamp::UNIX_EPOCH);
            let ready = condition::get(&status.conditions, condition::READY).unwrap();
            let is_progressing = condition::is_true(&status.conditions, condition::PROGRESSING);
            assert_eq!((ready.reason.as_str(), is_progressing), (reason, progressing), "{finished} {degraded}");
        }
    }

    #[test]
    fn a_consistent_region_that_has_given_up_keeps_no_width_from_being_ready() {
        let mut job = job(Some(2), false, None);
        let of_job = job.status.as_mut().unwrap();
        of_job.rollout = Some(Rollout { finished_at: Some(MicroTime(Timestamp::UNIX_EPOCH)), ..Rollout::default() });
        for (kind, value) in [(condition::READY, false), (condition::DEGRADED, true)] {
            let (conditions, reason) = (&mut of_job.conditions, condition::RESET_ATTEMPTS_EXHAUSTED);
            condition::set(conditions, kind, value, reason, "", None, Timestamp::UNIX_EPOCH);
        }
        let status = status(&region(2), &job, Timestamp::UNIX_EPOCH);
        assert!(condition::is_true(&status.conditions, condition::READY), "{status:?}");
    }

    #[test]
    fn a_region_of_a_suspended_job_names_pes_that_are_down_and_no_consistent_region() {
        // reason of Degraded -> reason of Ready
        let table =
            [(condition::RESET_ATTEMPTS_EXHAUSTED, "Suspended"), ("ProcessingElementsDown", "ProcessingElementsDown")];
        for (degraded, expected) in table {
            let mut job = job(Some(2), false, None);
            let of_job = job.status.as_mut().unwrap();
            let finished_at = Some(MicroTime(Timestamp::UNIX_EPOCH));
            of_job.rollout = Some(Rollout { finished_at, ..Rollout::default() });
            let says = [
                (condition::READY, false, "Suspended"),
                (condition::SUSPENDED, true, "Suspended"),
                (condition::DEGRADED, true, degraded),
            ];
            for (kind, value, reason) in says {
                condition::set(&mut of_job.conditions, kind, value, reason, "", None, Timestamp::UNIX_EPOCH);
            }
            let status = status(&region(2), &job, Timestamp::UNIX_EPOCH);
            let ready = condition::get(&status.conditions, condition::READY).unwrap();
            assert_eq!((ready.status.as_str(), ready.reason.as_str()), ("False", expected), "{degraded}");
            assert!(!condition::is_true(&status.conditions, condition::PROGRESSING), "{degraded}");
        }
    }

    #[test]
    fn nothing_becomes_of_a_width_while_the_plan_of_the_job_is_lost_and_no_pe_is_said_to_be_down() {
        let lost = "the plan of the job is lost, so no width is changed, and PEs are not counted; if nothing brings it \
                    back, delete the job and submit it anew";
        // desired, rejected width, the job is suspended -> reason of Ready, message
        let table = [
            (2, None, false, condition::PLAN_LOST, format!("width 2 is in force; {lost}")),
            (2, None, true, condition::PLAN_LOST, format!("width 2 is in force; {lost}")),
            (3, None, false, condition::PLAN_LOST, format!("width 3 is wanted, 2 stays in force; {lost}")),
            (3, Some(3), false, "Rejected", "no".to_owned()),
        ];
        for (desired, rejected, suspended, reason, message) in table {
            let mut job = job(Some(2), false, rejected);
            let of_job = job.status.as_mut().unwrap();
            let finished_at = Some(MicroTime(Timestamp::UNIX_EPOCH));
            of_job.rollout = Some(Rollout { finished_at, ..Rollout::default() });
            let mut says = |kind, value, reason| {
                condition::set(&mut of_job.conditions, kind, value, reason, "", None, Timestamp::UNIX_EPOCH)
            };
            says(condition::READY, false, condition::PLAN_LOST);
            says(condition::DEGRADED, true, "Lost");
            if suspended {
                says(condition::SUSPENDED, true, condition::PLAN_LOST);
            }
            let status = status(&region(desired), &job, Timestamp::UNIX_EPOCH);
            for kind in [condition::READY, condition::PROGRESSING] {
                let said = condition::get(&status.conditions, kind).unwrap();
                let said = (said.status.as_str(), said.reason.as_str(), said.message.as_str());
                assert_eq!(said, ("False", reason, message.as_str()), "{kind} {desired} {rejected:?} {suspended}");
            }
        }
    }

    #[test]
    fn the_generation_is_the_one_that_applied_the_width() {
        let mut object = region(2);
        object.status = Some(status(&object, &job(Some(2), true, None), Timestamp::UNIX_EPOCH));
        assert_eq!(object.status.as_ref().unwrap().generation, Some(4));
        let mut later = job(Some(2), true, None);
        later.status.as_mut().unwrap().generation = Some(5);
        let again = status(&object, &later, Timestamp::UNIX_EPOCH);
        assert_eq!(again.generation, Some(4), "another region was resized");
        later.status.as_mut().unwrap().applied_widths[0].width = 3;
        assert_eq!(status(&object, &later, Timestamp::UNIX_EPOCH).generation, Some(5));
        // It has said nothing before another region was resized, or was made again.
        object.status = None;
        later.status.as_mut().unwrap().regions[0].generation = Some(0);
        assert_eq!(status(&object, &later, Timestamp::UNIX_EPOCH).generation, Some(0));
    }

    #[test]
    fn the_selector_counts_channels_or_selects_nothing() {
        let of = |index: u64, committed: CommittedRegion| {
            let mut job = job(Some(2), true, None);
            job.status.as_mut().unwrap().regions = vec![committed];
            let mut region = region(2);
            region.spec.index = index;
            // What was there is not kept: the channels have had other PEs.
            let before = Some("streams.ibm.com/job=flow,streams.ibm.com/pe in (1,2)".to_owned());
            region.status = Some(ParallelRegionStatus { selector: before, ..ParallelRegionStatus::default() });
            status(&region, &job, Timestamp::UNIX_EPOCH)
        };
        let own_pes = of(0, committed(false));
        assert_eq!(own_pes.selector.as_deref(), Some("streams.ibm.com/job=flow,streams.ibm.com/pe in (3,4,7)"));
        assert_eq!(own_pes.global_channels, Some(2));
        let nothing = |index| Some(format!("streams.ibm.com/job=flow,streams.ibm.com/pe=none-of-region-{index}"));
        let none = |index| CommittedRegion { index, channel_pes: vec![], ..committed(false) };
        assert_eq!(of(0, none(0)).selector, nothing(0));
        assert_eq!(of(3, none(3)).selector, nothing(3), "another region, another selector");
        let many = vec![IdRange { first: 0, last: 511 }];
        assert_eq!(of(0, CommittedRegion { channel_pes: many, ..committed(false) }).selector, nothing(0), "too long");
    }

    #[test]
    fn a_region_has_a_selector_before_its_job_has_a_generation_and_keeps_what_an_older_frontend_said() {
        let selector =
            |region: &ParallelRegion| status(region, &job(None, false, None), Timestamp::UNIX_EPOCH).selector;
        let nothing = "streams.ibm.com/job=flow,streams.ibm.com/pe=none-of-region-0";
        let mut region = region(2);
        assert_eq!(selector(&region).as_deref(), Some(nothing));
        let before = Some("streams.ibm.com/job=flow,streams.ibm.com/pe in (1,2)".to_owned());
        region.status = Some(ParallelRegionStatus { selector: before.clone(), ..ParallelRegionStatus::default() });
        assert_eq!(selector(&region), before);
    }

    #[test]
    fn what_the_frontend_refuses_follows_from_the_status_of_the_job() {
        let mut bounded = JobSpec::of(BundleReference::default());
        let bounds = InitialWidth { name: Some("A.*".to_owned()), max_width: Some(4), ..InitialWidth::default() };
        bounded.parallel_regions = vec![bounds];
        // spec, regions in the status of the job, what the region said before, desired width -> reason of the refusal
        let free = JobSpec::of(BundleReference::default());
        let said = |reason: &str| Some(RejectedWidth { width: 3, reason: reason.to_owned(), ..Default::default() });
        let table = [
            (&free, vec![committed(false)], None, 3, None),
            (&free, vec![committed(true)], None, 3, Some("ConsistentRegion")),
            (&free, vec![committed(true)], None, 2, None),
            (&bounded, vec![committed(false)], None, 4, None),
            (&bounded, vec![committed(false)], None, 5, Some("OutOfBounds")),
            // The status is of an older frontend.
            (&bounded, vec![], None, 5, Some("OutOfBounds")),
            (&free, vec![], said("ConsistentRegion"), 3, Some("ConsistentRegion")),
            (&free, vec![], said("ApplicationRejected"), 3, None),
            (&free, vec![committed(false)], said("ConsistentRegion"), 3, None),
        ];
        for (spec, regions, before, desired, expected) in table {
            let mut job = job(Some(2), true, None);
            job.spec = spec.clone();
            job.status.as_mut().unwrap().regions = regions;
            let mut object = region(desired);
            object.status =
                before.map(|rejected| ParallelRegionStatus { rejected: Some(rejected), ..Default::default() });
            let reason = status(&object, &job, Timestamp::UNIX_EPOCH).rejected.map(|rejected| rejected.reason);
            assert_eq!(reason.as_deref(), expected, "{:?} {:?} {desired}", job.status, object.status);
        }
    }
}
