//! The status of a region (rule elasticity-4). Pure.

use k8s_openapi::jiff::Timestamp;

use crate::controllers::job::{generation::Generation, widths::refuse};
use streams_api::{Job, JobStatus, ParallelRegion, ParallelRegionStatus, RejectedWidth, condition, names};

/// Longest selector (schema); a region with more PEs is not for autoscalers that count pods.
const SELECTOR_MAX: usize = 1024;

/// What the region should say of itself, given its job and, if it is known, the committed generation.
pub(super) fn status(
    region: &ParallelRegion,
    job: &Job,
    generation: Option<&Generation>,
    now: Timestamp,
) -> ParallelRegionStatus {
    let of_job = job.status.clone().unwrap_or_default();
    let mut status = region.status.clone().unwrap_or_default();
    let object_generation = region.metadata.generation;
    let name = &region.spec.name;
    let applied = of_job.applied_widths.iter().find(|applied| applied.region == *name).map(|applied| applied.width);
    let planned =
        generation.and_then(|generation| generation.plan.parallel_regions.iter().find(|planned| planned.name == *name));
    let desired = region.spec.width;

    status.observed_generation = object_generation;
    if status.width != applied || status.generation.is_none() {
        status.generation = applied.and(of_job.generation);
    }
    status.width = applied;
    if let (Some(planned), Some(generation)) = (planned, generation) {
        status.global_channels = Some(planned.global_max_channels);
        status.selector = planned
            .channels_have_own_pes
            .then(|| selector(job, generation, name, planned.global_max_channels))
            .flatten();
    }
    let refused = planned.and_then(|planned| refuse(&job.spec, planned, desired)).map(|refused| RejectedWidth {
        width: refused.width,
        reason: refused.reason.to_owned(),
        stage: None,
        code: None,
        message: refused.message,
    });
    status.rejected = refused.or_else(|| rejected(&of_job, name, desired, applied));
    conditions(&mut status, &of_job, desired, applied, object_generation, now);
    status
}

/// The compiler's refusal of the widths that are wanted, if this region is among those that differ.
fn rejected(job: &JobStatus, name: &str, desired: u32, applied: Option<u32>) -> Option<RejectedWidth> {
    let rejected = job.rejected_resize.as_ref()?;
    let concerns = rejected.widths.iter().any(|width| width.region == *name && width.width == desired);
    (concerns && applied != Some(desired)).then(|| RejectedWidth {
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
    desired: u32,
    applied: Option<u32>,
    generation: Option<i64>,
    now: Timestamp,
) {
    let conditions = &mut status.conditions;
    let rolled_out = condition::is_true(&job.conditions, condition::READY);
    let in_force = applied == Some(desired);
    let (ready, reason, message) = match (&status.rejected, applied) {
        (Some(rejected), _) => (false, "Rejected", rejected.message.clone()),
        (None, None) => (false, "Submitting", "the job is not submitted yet".to_owned()),
        (None, Some(applied)) if !in_force => {
            (false, "Resizing", format!("width {desired} is wanted, {applied} is in force"))
        }
        (None, Some(_)) if !rolled_out => (false, "RollingOut", format!("not all PEs of width {desired} run yet")),
        (None, Some(_)) => (true, "AllRunning", format!("all PEs of width {desired} run")),
    };
    condition::set(conditions, condition::READY, ready, reason, &message, generation, now);
    let progressing = status.rejected.is_none() && !ready;
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

/// Selects the pods of the region's channels: those of PEs that hold operators of one (rule elasticity-6). `None`
/// unless they are exactly as many as there are channels, or if the selector were too long.
fn selector(job: &Job, generation: &Generation, region: &str, channels: u32) -> Option<String> {
    // Operators of a channel are named after the region's operator: `<region>[<channel>]...`.
    let prefix = format!("{region}[");
    let holds = |operators: &[String]| operators.iter().any(|operator| operator.starts_with(&prefix));
    let ids: Vec<String> =
        generation.members().filter(|(pe, _)| holds(&pe.operators)).map(|(pe, _)| pe.id.to_string()).collect();
    if ids.len() != channels as usize {
        return None;
    }
    let job = job.metadata.name.as_deref().unwrap_or_default();
    let selector = format!("{}={job},{} in ({})", names::LABEL_JOB, names::LABEL_PE, ids.join(","));
    (selector.len() <= SELECTOR_MAX).then_some(selector)
}

#[cfg(test)]
mod tests {
    use super::*;

    use crate::controllers::job::generation::{Circumstances, Target};
    use streams_api::{BundleReference, JobSpec, ParallelRegionSpec, RegionWidth, RejectedResize};
    use streams_proto::fusion::v1::{Compilation, Fate, ParallelRegion as Planned, Plan, ProcessingElement};

    fn generation(own_pes: bool, consistent: bool) -> Generation {
        let pe = |id: u64, operators: &[&str]| ProcessingElement {
            id,
            fate: Fate::Added.into(),
            operators: operators.iter().map(|name| (*name).to_owned()).collect(),
            ..ProcessingElement::default()
        };
        let planned = Planned {
            name: "A.R".to_owned(),
            width: 2,
            global_max_channels: 2,
            channels_have_own_pes: own_pes,
            touches_consistent_region: consistent,
            ..Planned::default()
        };
        let plan = Plan {
            parallel_regions: vec![planned],
            processing_elements: vec![pe(0, &["Source"]), pe(3, &["A.R[0]"]), pe(4, &["A.R[1]", "A.R[1].X"])],
            ..Plan::default()
        };
        let target = Target::Submission { inputs: String::new() };
        Generation::following(None, target, Compilation::default(), plan, Circumstances::default())
    }

    fn job(applied: Option<u32>, ready: bool, rejected: Option<u32>) -> Job {
        let width = |width| RegionWidth { region: "A.R".to_owned(), width };
        let mut status = JobStatus {
            generation: applied.map(|_| 4),
            applied_widths: applied.map(width).into_iter().collect(),
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
            let plan = generation(true, false);
            let status = status(&region(desired), &job(applied, ready, rejected), Some(&plan), Timestamp::UNIX_EPOCH);
            assert_eq!(status.width, width, "{desired} {applied:?}");
            let condition = condition::get(&status.conditions, condition::READY).unwrap();
            assert_eq!((condition.reason.as_str(), condition.status == "True"), (reason, is_ready));
            assert_eq!((condition.observed_generation, status.observed_generation), (Some(9), Some(9)));
            assert_eq!(status.rejected.is_some(), is_rejected);
            assert_eq!(condition::is_true(&status.conditions, condition::RESIZE_REJECTED), is_rejected);
        }
    }

    #[test]
    fn the_generation_is_the_one_that_applied_the_width() {
        let plan = generation(true, false);
        let mut object = region(2);
        object.status = Some(status(&object, &job(Some(2), true, None), Some(&plan), Timestamp::UNIX_EPOCH));
        assert_eq!(object.status.as_ref().unwrap().generation, Some(4));
        let mut later = job(Some(2), true, None);
        later.status.as_mut().unwrap().generation = Some(5);
        let again = status(&object, &later, Some(&plan), Timestamp::UNIX_EPOCH);
        assert_eq!(again.generation, Some(4), "another region was resized");
        later.status.as_mut().unwrap().applied_widths[0].width = 3;
        assert_eq!(status(&object, &later, Some(&plan), Timestamp::UNIX_EPOCH).generation, Some(5));
    }

    #[test]
    fn the_selector_counts_channels_or_is_not_there() {
        let of = |own_pes| {
            status(&region(2), &job(Some(2), true, None), Some(&generation(own_pes, false)), Timestamp::UNIX_EPOCH)
        };
        assert_eq!(of(true).selector.as_deref(), Some("streams.ibm.com/job=flow,streams.ibm.com/pe in (3,4)"));
        assert_eq!(of(true).global_channels, Some(2));
        assert_eq!(of(false).selector, None);
    }

    #[test]
    fn a_region_of_a_consistent_region_refuses_at_once() {
        let status =
            status(&region(3), &job(Some(2), true, None), Some(&generation(true, true)), Timestamp::UNIX_EPOCH);
        assert_eq!(status.rejected.unwrap().reason, "ConsistentRegion");
    }
}
