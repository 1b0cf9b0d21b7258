//! Computes the answer to a resize from the observed job and regions (rules elasticity-11 and elasticity-12). Pure.

use std::sync::Arc;
use streams_api::{Job, ParallelRegion, ParallelRegionSpec, RequestedWidths};
use streams_proto::elasticity::v1::resize_request::WaitFor;
use streams_proto::elasticity::v1::{Changes, Region};

/// A width that was written to a region.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WrittenWidth {
    /// Name of the ParallelRegion object.
    pub object_name: String,
    /// Logical name of the region.
    pub region: String,
    /// The width.
    pub width: u32,
    /// `metadata.generation` of the object when its spec has the width.
    pub object_generation: i64,
}

/// How far a resize has come.
#[derive(Clone, Debug, PartialEq)]
pub enum ResizeOutcome {
    /// What the caller waits for has not happened yet; what it waits for, for people.
    Waiting(String),
    /// It has happened.
    Done {
        /// Generation of the job that has the widths.
        generation: Option<u64>,
        /// What it did to PEs; none when it was in force before the request.
        changes: Option<Changes>,
    },
    /// The compiler refused the widths.
    Rejected {
        /// Why, for people.
        message: String,
        /// Stage of the compilation.
        stage: Option<String>,
        /// Code of the problem.
        code: Option<String>,
    },
    /// Somebody else changed a region.
    Superseded {
        /// The region.
        region: String,
        /// The width of the request.
        wanted: u32,
        /// The width that is desired now.
        now: u32,
    },
    /// This region is gone, or the job.
    Gone {
        /// The region; none for the job.
        region: Option<String>,
    },
}

/// Computes how far a resize has come whose widths have been `written`. `before` is the committed generation at the
/// time of the request.
pub fn assess(
    written: &[WrittenWidth],
    before: Option<u64>,
    wait_for: WaitFor,
    job: Option<&Job>,
    regions: &[Arc<ParallelRegion>],
) -> ResizeOutcome {
    if wait_for == WaitFor::Accepted {
        return ResizeOutcome::Done { generation: None, changes: None };
    }
    let Some(job) = job else { return ResizeOutcome::Gone { region: None } };
    let status = job.status.as_ref();
    for WrittenWidth { object_name, region, width, object_generation } in written {
        let Some(object) = regions.iter().find(|r| r.metadata.name.as_deref() == Some(object_name)) else {
            return ResizeOutcome::Gone { region: Some(region.clone()) };
        };
        if object.metadata.generation.unwrap_or(0) < *object_generation {
            return ResizeOutcome::Waiting(format!("the change of {region} to be seen"));
        }
        let in_force = applied_width(job, region) == Some(*width);
        if object.spec.width != *width && !in_force {
            return ResizeOutcome::Superseded { region: region.clone(), wanted: *width, now: object.spec.width };
        }
        let observed = object.status.as_ref().and_then(|s| s.observed_generation).unwrap_or(0);
        if !in_force {
            let rejected = object.status.as_ref().and_then(|s| s.rejected.as_ref());
            if let Some(rejected) = rejected.filter(|r| r.width == *width && observed >= *object_generation) {
                let (stage, code) = (rejected.stage.clone(), rejected.code.clone());
                return ResizeOutcome::Rejected { message: rejected.message.clone(), stage, code };
            }
            return ResizeOutcome::Waiting(format!("width {width} of {region} to be compiled and committed"));
        }
    }
    let generation = status.and_then(|s| s.generation);
    let rollout = status.and_then(|s| s.rollout.as_ref()).filter(|r| Some(r.generation) == generation);
    if wait_for == WaitFor::RolledOut && rollout.is_none_or(|r| r.finished_at.is_none()) {
        let pending = rollout.map_or(0, |r| r.pending);
        return ResizeOutcome::Waiting(format!("{pending} PEs of generation {} to follow", generation.unwrap_or(0)));
    }
    let changes = rollout.filter(|_| generation > before).map(|r| Changes {
        kept: r.kept,
        restarted: r.restarted,
        added: r.added,
        removed: r.removed,
    });
    ResizeOutcome::Done { generation, changes }
}

/// The width of a region in the committed generation.
fn applied_width(job: &Job, region: &str) -> Option<u32> {
    job.status.as_ref()?.applied_widths.iter().find(|applied| applied.region == region).map(|applied| applied.width)
}

/// A region as the API shows it. `request` is the newest one for the regions of its job.
///
/// The job says what is in force: the status of the region follows later (rule elasticity-14).
pub fn region(object: &ParallelRegion, job: Option<&Job>, request: Option<&RequestedWidths>) -> Region {
    let ParallelRegionSpec { job_name, name, width, .. } = &object.spec;
    let width = &request.and_then(|request| request.pending(object)).unwrap_or(*width);
    let status = object.status.clone().unwrap_or_default();
    let applied = job.map_or(status.width, |job| applied_width(job, name));
    let job = job.and_then(|job| job.status.as_ref());
    let finished = job.and_then(|j| j.rollout.as_ref()).is_some_and(|r| r.finished_at.is_some());
    let known = status.generation.filter(|_| status.width == applied);
    Region {
        namespace: object.metadata.namespace.clone().unwrap_or_default(),
        job: job_name.clone(),
        name: name.clone(),
        object_name: object.metadata.name.clone().unwrap_or_default(),
        desired_width: *width,
        applied_width: applied,
        generation: applied.and(known.or(job.and_then(|job| job.generation))),
        rolled_out: finished && applied == Some(*width),
        rejection: status.rejected.filter(|r| r.width == *width).map(|r| r.message).unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use k8s_openapi::jiff::Timestamp;
    use streams_api::{BundleReference, JobSpec, JobStatus, ParallelRegionStatus, RegionWidth, RejectedWidth, Rollout};

    /// Applied width, generation, roll-out finished.
    fn job(applied: u32, generation: u64, finished: bool) -> Job {
        let mut job = Job::new("flow", JobSpec::of(BundleReference::default()));
        let finished_at = finished.then_some(Time(Timestamp::UNIX_EPOCH));
        job.status = Some(JobStatus {
            generation: Some(generation),
            applied_widths: vec![RegionWidth { region: "R".into(), width: applied }],
            rollout: Some(Rollout { generation, kept: 7, added: 8, finished_at, ..Rollout::default() }),
            ..JobStatus::default()
        });
        job
    }

    /// Desired width, object generation, width that was rejected and the object generation it was rejected at.
    fn object(desired: u32, generation: i64, rejected: Option<(u32, i64)>) -> Arc<ParallelRegion> {
        let spec = ParallelRegionSpec { job_name: "flow".into(), index: 0, name: "R".into(), width: desired };
        let mut object = ParallelRegion::new("flow-0", spec);
        object.metadata.generation = Some(generation);
        object.status = rejected.map(|(width, at)| ParallelRegionStatus {
            observed_generation: Some(at),
            rejected: Some(RejectedWidth { width, message: "too wide".into(), ..RejectedWidth::default() }),
            ..ParallelRegionStatus::default()
        });
        Arc::new(object)
    }

    #[test]
    fn an_answer_follows_from_what_is_observed() {
        use WaitFor::{Accepted, Committed, RolledOut};
        let done = |generation, changes: bool| ResizeOutcome::Done {
            generation: Some(generation),
            changes: changes.then_some(Changes { kept: 7, restarted: 0, added: 8, removed: 0 }),
        };
        // The request wrote width 10, which made object generation 5; generation 3 of the job was committed before.
        let written =
            [WrittenWidth { object_name: "flow-0".into(), region: "R".into(), width: 10, object_generation: 5 }];
        let table = [
            (Accepted, job(2, 3, true), object(2, 4, None), ResizeOutcome::Done { generation: None, changes: None }),
            (Committed, job(10, 4, false), object(10, 5, None), done(4, true)),
            (Committed, job(10, 3, true), object(10, 5, None), done(3, false)),
            (RolledOut, job(10, 4, true), object(10, 5, None), done(4, true)),
            (
                Committed,
                job(2, 3, true),
                object(12, 6, None),
                ResizeOutcome::Superseded { region: "R".into(), wanted: 10, now: 12 },
            ),
            (Committed, job(10, 4, true), object(12, 6, None), done(4, true)),
            (
                Committed,
                job(2, 3, true),
                object(10, 5, Some((10, 5))),
                ResizeOutcome::Rejected { message: "too wide".into(), stage: None, code: None },
            ),
        ];
        for (wait_for, job, object, expected) in table {
            let outcome = assess(&written, Some(3), wait_for, Some(&job), &[Arc::clone(&object)]);
            assert_eq!(outcome, expected, "{wait_for:?} {:?} {:?}", job.status, object.spec);
        }
        let waiting = [
            (Committed, job(2, 3, true), object(2, 4, None)),
            (Committed, job(2, 3, true), object(10, 5, None)),
            (Committed, job(2, 3, true), object(10, 5, Some((10, 4)))),
            (Committed, job(2, 3, true), object(10, 5, Some((9, 5)))),
            (RolledOut, job(10, 4, false), object(10, 5, None)),
        ];
        for (wait_for, job, object) in waiting {
            let outcome = assess(&written, Some(3), wait_for, Some(&job), &[object]);
            assert!(matches!(outcome, ResizeOutcome::Waiting(_)), "{wait_for:?}: {outcome:?}");
        }
    }

    #[test]
    fn what_is_deleted_meanwhile_is_said_to_be_gone() {
        let written =
            [WrittenWidth { object_name: "flow-0".into(), region: "R".into(), width: 10, object_generation: 5 }];
        for (job, regions) in [(None, vec![object(10, 5, None)]), (Some(job(2, 3, true)), vec![])] {
            let outcome = assess(&written, Some(3), WaitFor::Committed, job.as_ref(), &regions);
            let region = regions.is_empty().then(|| "R".to_owned());
            assert_eq!(outcome, ResizeOutcome::Gone { region });
        }
    }

    #[test]
    fn a_region_is_shown_as_the_job_has_it_even_if_its_own_status_is_behind() {
        // Its status says width 2 since generation 1. Job -> applied width, since generation, rolled out.
        let table = [
            (Some(job(2, 3, true)), (Some(2), Some(1), false)),
            (Some(job(10, 4, false)), (Some(10), Some(4), false)),
            (Some(job(10, 4, true)), (Some(10), Some(4), true)),
            (None, (Some(2), Some(1), false)),
        ];
        for (job, expected) in table {
            let mut object = (*object(10, 5, None)).clone();
            let status =
                ParallelRegionStatus { width: Some(2), generation: Some(1), ..ParallelRegionStatus::default() };
            object.status = Some(status);
            let shown = region(&object, job.as_ref(), None);
            assert_eq!((shown.applied_width, shown.generation, shown.rolled_out), expected, "{job:?}");
            assert_eq!(shown.desired_width, 10);
        }
    }
}
