//! A region as the API shows it (rules elasticity-14, elasticity-19 and elasticity-20). Pure.
//!
//! The job says what is in force: the status of the region follows later. What is wanted is in its spec, unless a
//! request is ahead of it.

use super::ready::ReadyWidths;
use super::times;
use crate::controllers::job::cool_down::CoolDown;
use crate::controllers::job::widths::bounds;
use std::sync::Arc;
use streams_api::parallel_region::WIDTH_MAX;
use streams_api::{AdmittedRegion, Job, ParallelRegion, ParallelRegionSpec, RequestedWidths, Resize, WidthOfResize};
use streams_proto::elasticity::v1::{LastResize, Region};

/// What is wanted of the regions of a job, beside what their specs say.
#[derive(Default)]
pub struct Wanted {
    /// What an earlier release has written as an annotation; no longer read in the next one (rule elasticity-5).
    annotation: Option<RequestedWidths>,
    resizes: Vec<Arc<Resize>>,
}

impl Wanted {
    /// What is wanted by the requests of a job.
    pub fn of(regions: &[Arc<ParallelRegion>], resizes: Vec<Arc<Resize>>) -> Self {
        Self { annotation: RequestedWidths::read(regions.iter().map(|region| &**region)), resizes }
    }

    /// The width that is wanted of a region: by the newest request that its spec does not have yet, also if it was
    /// deleted after its commit; else by its spec.
    fn width(&self, region: &ParallelRegion, job: Option<&Job>) -> u32 {
        let written = WidthOfResize::of(region).map_or(0, |written| written.number);
        let of_requests = self.resizes.iter().filter_map(|request| {
            let status = request.status.as_ref().filter(|_| !request.phase().is_final())?;
            let number = status.number.filter(|number| *number > written)?;
            let is_it = |admitted: &&AdmittedRegion| admitted.name == region.spec.name;
            // Whoever has edited the region since is newer.
            status.regions.iter().find(is_it).filter(|admitted| {
                region.metadata.uid.as_ref() == Some(&admitted.uid) && region.edited() <= admitted.edited
            })?;
            let wanted = request.spec.regions.iter().find(|wanted| wanted.name == region.spec.name)?;
            Some((number, wanted.width))
        });
        let committed = job.and_then(|job| job.status.as_ref()).into_iter().flat_map(|status| &status.unwritten_widths);
        let committed = committed.filter(|unwritten| unwritten.is_still_unwritten_in(region));
        let committed = committed.map(|unwritten| (unwritten.number, unwritten.width));
        if let Some((_, width)) = of_requests.chain(committed).max() {
            return width;
        }
        self.annotation.as_ref().and_then(|request| request.pending(region)).unwrap_or(region.spec.width)
    }
}

/// The width of a region in the committed generation.
fn applied_width(job: &Job, region: &str) -> Option<u32> {
    job.status.as_ref()?.applied_widths.iter().find(|applied| applied.region == region).map(|applied| applied.width)
}

/// A region as the API shows it.
pub fn region(object: &ParallelRegion, job: Option<&Job>, wanted: &Wanted, ready: &ReadyWidths) -> Region {
    let ParallelRegionSpec { job_name, name, .. } = &object.spec;
    let width = &wanted.width(object, job);
    let status = object.status.clone().unwrap_or_default();
    let applied = job.map_or(status.width, |job| applied_width(job, name));
    let bounds = job.and_then(|job| bounds(&job.spec, name));
    let cool_down =
        job.and_then(|job| CoolDown::of(&job.spec, job.status.as_ref()?, object)).map(|cool_down| cool_down.until);
    let job = job.and_then(|job| job.status.as_ref());
    let finished = job.and_then(|j| j.rollout.as_ref()).is_some_and(|r| r.finished_at.is_some());
    let known = status.generation.filter(|_| status.width == applied);
    let last = job.map_or_else(|| status.last_resize.clone(), |job| status.last_resize_by(job, applied));
    let committed = job.and_then(|job| job.regions.iter().find(|region| region.index == object.spec.index));
    let rejected = status.rejected.filter(|rejected| rejected.width == *width).unwrap_or_default();
    Region {
        namespace: object.metadata.namespace.clone().unwrap_or_default(),
        job: job_name.clone(),
        name: name.clone(),
        object_name: object.metadata.name.clone().unwrap_or_default(),
        desired_width: *width,
        applied_width: applied,
        generation: applied.and(known.or(job.and_then(|job| job.generation))),
        rolled_out: finished && applied == Some(*width),
        rejection: rejected.message,
        rejection_reason: rejected.reason,
        rejection_stage: rejected.stage.unwrap_or_default(),
        rejection_code: rejected.code.unwrap_or_default(),
        min_width: bounds.and_then(|bounds| bounds.min_width).unwrap_or(1),
        max_width: bounds.and_then(|bounds| bounds.max_width).unwrap_or(WIDTH_MAX),
        fixed: committed.is_some_and(|committed| committed.touches_consistent_region),
        ready_width: applied.and_then(|_| ready.get(name)),
        last_resize: last.map(last_resize),
        cool_down_seconds: bounds.and_then(|bounds| bounds.cool_down_seconds).unwrap_or_default(),
        cools_until: cool_down.map(times::timestamp),
    }
}

fn last_resize(last: streams_api::LastResize) -> LastResize {
    let (committed_at, rolled_out_at) = (last.committed_at.map(|at| at.0), last.rolled_out_at.map(|at| at.0));
    LastResize {
        generation: last.generation,
        from_width: last.from,
        to_width: last.to,
        committed_at: committed_at.map(times::timestamp),
        rolled_out_at: rolled_out_at.map(times::timestamp),
        duration: committed_at.zip(rolled_out_at).map(|(from, to)| times::between(from, to)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
    use k8s_openapi::jiff::Timestamp;
    use streams_api::{
        BundleReference, CommittedRegion, DesiredWidth, InitialWidth, JobSpec, JobStatus, ParallelRegionStatus,
        RegionWidth, RejectedWidth, ResizePhase, ResizeSpec, ResizeStatus, Rollout, UnwrittenWidth, condition,
    };

    /// Applied width, generation, roll-out finished.
    fn job(applied: u32, generation: u64, finished: bool) -> Job {
        let mut job = Job::new("flow", JobSpec::of(BundleReference::default()));
        let finished_at = finished.then_some(MicroTime(Timestamp::UNIX_EPOCH));
        job.status = Some(JobStatus {
            generation: Some(generation),
            applied_widths: vec![RegionWidth { region: "R".into(), width: applied }],
            rollout: Some(Rollout { generation, kept: 7, added: 8, finished_at, ..Rollout::default() }),
            ..JobStatus::default()
        });
        job
    }

    /// Width in the spec, object generation.
    fn object(desired: u32, generation: i64) -> ParallelRegion {
        let spec = ParallelRegionSpec { job_name: "flow".into(), index: 0, name: "R".into(), width: desired };
        let mut object = ParallelRegion::new("flow-0", spec);
        object.metadata.generation = Some(generation);
        object.metadata.uid = Some("u".to_owned());
        object
    }

    /// A request that was admitted when the region had this generation.
    fn request(number: u64, width: u32, edited: i64, phase: ResizePhase) -> Arc<Resize> {
        let regions = vec![DesiredWidth { name: "R".into(), width, expected_width: None }];
        let spec = ResizeSpec { job_name: "flow".into(), regions, ..ResizeSpec::default() };
        let mut request = Resize::new(&format!("r{number}"), spec);
        request.status = Some(ResizeStatus {
            phase: Some(phase),
            number: Some(number),
            regions: vec![AdmittedRegion { name: "R".into(), uid: "u".into(), edited }],
            ..ResizeStatus::default()
        });
        Arc::new(request)
    }

    #[test]
    fn the_desired_width_is_that_of_the_newest_request_that_is_open_and_newer_than_the_last_edit() {
        use ResizePhase::{Pending, Planned, Refused, RolledOut};
        let plain = object(2, 4);
        // The spec has the width of request 2.
        let mut written = object(6, 5);
        let patch = object(2, 4).with_width_of(2, 6, None);
        let annotations = patch["metadata"]["annotations"].clone();
        let annotations = annotations.as_object().unwrap().iter();
        written.metadata.annotations =
            Some(annotations.filter_map(|(k, v)| Some((k.clone(), v.as_str()?.to_owned()))).collect());
        // region, requests -> desired width
        let table = [
            (&plain, vec![], 2),
            (&plain, vec![request(1, 5, 4, Pending)], 5),
            (&plain, vec![request(2, 6, 4, Planned), request(1, 5, 4, Pending)], 6),
            (&plain, vec![request(1, 5, 4, Pending), request(2, 6, 4, Refused)], 5),
            (&plain, vec![request(1, 5, 4, RolledOut)], 2),
            // Somebody has edited the region since.
            (&plain, vec![request(1, 5, 3, Pending)], 2),
            (&written, vec![request(1, 5, 4, Pending), request(2, 6, 4, Planned)], 6),
            (&written, vec![request(2, 6, 4, Planned), request(3, 7, 4, Pending)], 7),
        ];
        for (object, resizes, expected) in table {
            let wanted = Wanted::of(&[], resizes.clone());
            let shown = region(object, None, &wanted, &ReadyWidths::default());
            assert_eq!(shown.desired_width, expected, "{resizes:?}");
        }
    }

    #[test]
    fn the_desired_width_is_in_force_though_its_request_is_gone_and_the_spec_does_not_have_it_yet() {
        // edits of the region after the request was admitted, a request that is newer -> desired width, rolled out
        let table = [
            (0, None, (10, true)),
            (1, None, (2, false)),
            (0, Some(request(9, 7, 5, ResizePhase::Pending)), (7, false)),
        ];
        for (edits, newer, expected) in table {
            let mut job = job(10, 4, true);
            let unwritten = UnwrittenWidth { index: 0, uid: "u".into(), edited: 5, number: 8, width: 10 };
            job.status.as_mut().unwrap().unwritten_widths = vec![unwritten];
            let wanted = Wanted::of(&[], newer.into_iter().collect());
            let shown = region(&object(2, 5 + edits), Some(&job), &wanted, &ReadyWidths::default());
            assert_eq!((shown.desired_width, shown.rolled_out), expected, "{edits}");
        }
    }

    #[test]
    fn bounds_readiness_and_the_last_resize_are_shown() {
        let entry = |name: &str, min_width, max_width| InitialWidth {
            name: Some(name.to_owned()),
            min_width,
            max_width,
            ..InitialWidth::default()
        };
        // entries of the job -> bounds
        let table = [
            (vec![], (1, 10_000)),
            (vec![entry("R", Some(2), None)], (2, 10_000)),
            (vec![entry("*", Some(2), Some(5)), entry("R", None, Some(7))], (1, 7)),
            (vec![entry("S", Some(2), Some(5))], (1, 10_000)),
        ];
        for (entries, expected) in table {
            let mut job = job(10, 4, true);
            job.spec.parallel_regions = entries;
            let of_job = job.status.as_mut().unwrap();
            condition::set(&mut of_job.conditions, condition::READY, true, "R", "", None, Timestamp::UNIX_EPOCH);
            let rollout = of_job.rollout.as_mut().unwrap();
            rollout.started_at = Some(MicroTime(Timestamp::UNIX_EPOCH));
            rollout.finished_at = Some(MicroTime(Timestamp::from_millisecond(1_250).unwrap()));
            of_job.regions = vec![CommittedRegion { touches_consistent_region: true, ..CommittedRegion::default() }];
            let mut object = object(10, 5);
            let said = ParallelRegionStatus { width: Some(2), generation: Some(1), ..ParallelRegionStatus::default() };
            object.status = Some(said);
            let ready = ReadyWidths::by_job(&job).unwrap();
            let shown = region(&object, Some(&job), &Wanted::default(), &ready);
            assert_eq!((shown.min_width, shown.max_width), expected, "{:?}", job.spec.parallel_regions);
            assert_eq!((shown.fixed, shown.ready_width), (true, Some(10)));
            let last = shown.last_resize.unwrap();
            assert_eq!((last.generation, last.from_width, last.to_width), (4, 2, 10));
            assert_eq!(last.duration, Some(prost_types::Duration { seconds: 1, nanos: 250_000_000 }));
            assert_eq!((shown.cool_down_seconds, shown.cools_until), (0, None));
            let cool_down_seconds = Some(60);
            job.spec.parallel_regions = vec![InitialWidth { cool_down_seconds, ..entry("R", None, None) }];
            let shown = region(&object, Some(&job), &Wanted::default(), &ready);
            assert_eq!(shown.cool_down_seconds, 60);
            assert_eq!(shown.cools_until.map(|until| until.seconds), Some(60));
        }
    }

    #[test]
    fn a_refusal_is_shown_as_long_as_its_width_is_wanted() {
        let refused = RejectedWidth {
            width: 10,
            reason: "ApplicationRejected".into(),
            stage: Some("topology".into()),
            code: Some("CDISR1164E".into()),
            message: "no".into(),
        };
        for (width, reason, code) in [(10, "ApplicationRejected", "CDISR1164E"), (9, "", "")] {
            let mut object = object(width, 5);
            let status = ParallelRegionStatus { rejected: Some(refused.clone()), ..ParallelRegionStatus::default() };
            object.status = Some(status);
            let shown = region(&object, None, &Wanted::default(), &ReadyWidths::default());
            assert_eq!((shown.rejection_reason.as_str(), shown.rejection_code.as_str()), (reason, code), "{width}");
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
            let mut object = object(10, 5);
            let status =
                ParallelRegionStatus { width: Some(2), generation: Some(1), ..ParallelRegionStatus::default() };
            object.status = Some(status);
            let shown = region(&object, job.as_ref(), &Wanted::default(), &ReadyWidths::default());
            assert_eq!((shown.applied_width, shown.generation, shown.rolled_out), expected, "{job:?}");
            assert_eq!(shown.desired_width, 10);
        }
    }
}
