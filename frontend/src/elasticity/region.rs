//! A region as the API shows it (rule elasticity-14). Pure.
//!
//! The job says what is in force: the status of the region follows later. What is wanted is in its spec, unless a
//! request is ahead of it.

use std::sync::Arc;
use streams_api::{AdmittedRegion, Job, ParallelRegion, ParallelRegionSpec, RequestedWidths, Resize, WidthOfResize};
use streams_proto::elasticity::v1::Region;

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

    /// The width that is wanted of a region: by the newest request that its spec does not have yet, else by its spec.
    fn width(&self, region: &ParallelRegion) -> u32 {
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
        if let Some((_, width)) = of_requests.max() {
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
pub fn region(object: &ParallelRegion, job: Option<&Job>, wanted: &Wanted) -> Region {
    let ParallelRegionSpec { job_name, name, .. } = &object.spec;
    let width = &wanted.width(object);
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
    use streams_api::{
        BundleReference, DesiredWidth, JobSpec, JobStatus, ParallelRegionStatus, RegionWidth, ResizePhase, ResizeSpec,
        ResizeStatus, Rollout,
    };

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
            assert_eq!(region(object, None, &wanted).desired_width, expected, "{resizes:?}");
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
            let shown = region(&object, job.as_ref(), &Wanted::default());
            assert_eq!((shown.applied_width, shown.generation, shown.rolled_out), expected, "{job:?}");
            assert_eq!(shown.desired_width, 10);
        }
    }
}
