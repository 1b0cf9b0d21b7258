//! A region as the API shows it (rules elasticity-14, elasticity-19 and elasticity-20). Pure.
//!
//! The job says what is in force: the status of the region follows later. What is wanted is in its spec, unless a
//! request is ahead of it.
//!
//! Invariant: what is said of all regions of a job is found by region. A job may have thousands of regions and a
//! thousand requests, and showing one region looks at what is said of that one.
//!
//! Knows: objects of regions, the status of the job, requests. Must not know: mirrors, who asks.

use super::ready::ReadyWidths;
use super::times;
use crate::controllers::job::cool_down::CoolDown;
use crate::controllers::job::widths::{Bounds, RegionEntries};
use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::Arc;
use streams_api::parallel_region::WIDTH_MAX;
use streams_api::{
    CommittedRegion, Job, ParallelRegion, ParallelRegionSpec, RequestedWidths, Resize, UnwrittenWidth, WidthOfResize,
};
use streams_proto::elasticity::v1::{LastResize, Region};

/// What is wanted of the regions of a job, beside what their specs say.
#[derive(Default)]
pub struct Wanted {
    /// What an earlier release has written as an annotation; no longer read in the next one (rule elasticity-5).
    annotation: Option<RequestedWidths>,
    /// What the newest open requests want, by region; more than one only of a region that was made again.
    requested: HashMap<String, Vec<WidthRequest>>,
}

/// The width that an admitted request wants of a region.
struct WidthRequest {
    number: u64,
    width: u32,
    /// Uid of the region, and its last edit, when the request was admitted.
    uid: String,
    edited: i64,
}

impl Wanted {
    /// What is wanted by the requests of a job, each of which is looked at when it is its turn.
    pub fn of(regions: &[Arc<ParallelRegion>], resizes: impl Iterator<Item = Arc<Resize>>) -> Self {
        let mut requested: HashMap<String, Vec<WidthRequest>> = HashMap::new();
        let is_open =
            |request: &Arc<Resize>| !request.phase().is_final() && request.metadata.deletion_timestamp.is_none();
        for request in resizes.filter(is_open) {
            let Some(status) = &request.status else { continue };
            let Some(number) = status.number else { continue };
            let widths = request.spec.regions.iter().map(|wanted| (wanted.name.as_str(), wanted.width));
            let widths: HashMap<&str, u32> = widths.collect();
            for admitted in &status.regions {
                let Some(width) = widths.get(admitted.name.as_str()).copied() else { continue };
                let wanted = WidthRequest { number, width, uid: admitted.uid.clone(), edited: admitted.edited };
                let of_region = requested.entry(admitted.name.clone()).or_default();
                // Of a region the newest counts: whoever was admitted before has seen no later edit.
                match of_region.iter_mut().find(|known| known.uid == wanted.uid) {
                    Some(known) if known.number < number => *known = wanted,
                    Some(_) => {}
                    None => of_region.push(wanted),
                }
            }
        }
        requested.values_mut().for_each(|of_region| of_region.sort_by_key(|request| Reverse(request.number)));
        Self { annotation: RequestedWidths::read(regions.iter().map(|region| &**region)), requested }
    }

    /// The width that is wanted of a region: by the newest request that its spec does not have yet, also if it was
    /// deleted after its commit; else by its spec.
    fn width(&self, region: &ParallelRegion, job: Option<&JobOfRegions>) -> u32 {
        let (written, edited) = (WidthOfResize::of(region).map_or(0, |written| written.number), region.edited());
        let mut of_requests = self.requested.get(&region.spec.name).into_iter().flatten();
        let newest = of_requests.find(|request| {
            // Whoever has edited the region since is newer.
            request.number > written && region.metadata.uid.as_ref() == Some(&request.uid) && edited <= request.edited
        });
        let newest = newest.map(|request| (request.number, request.width));
        let committed = job.and_then(|job| job.unwritten(region)).map(|unwritten| (unwritten.number, unwritten.width));
        if let Some((_, width)) = newest.max(committed) {
            return width;
        }
        self.annotation.as_ref().and_then(|request| request.pending(region)).unwrap_or(region.spec.width)
    }
}

/// What a job says of its regions.
pub struct JobOfRegions {
    job: Arc<Job>,
    entries: RegionEntries,
    /// By name.
    applied: HashMap<String, u32>,
    /// By index: where it is in the status.
    committed: HashMap<u64, usize>,
    unwritten: HashMap<u64, usize>,
}

impl JobOfRegions {
    /// What this job says.
    pub fn of(job: Arc<Job>) -> Self {
        let status = job.status.as_ref();
        let applied = status.into_iter().flat_map(|status| &status.applied_widths);
        let applied = applied.map(|applied| (applied.region.clone(), applied.width)).collect();
        let committed = status.into_iter().flat_map(|status| &status.regions).map(|region| region.index);
        let committed = committed.enumerate().map(|(position, index)| (index, position)).collect();
        let unwritten = status.into_iter().flat_map(|status| &status.unwritten_widths).map(|width| width.index);
        let unwritten = unwritten.enumerate().map(|(position, index)| (index, position)).collect();
        Self { entries: RegionEntries::of(&job.spec), applied, committed, unwritten, job }
    }

    fn applied(&self, region: &str) -> Option<u32> {
        self.applied.get(region).copied()
    }

    fn bounds(&self, region: &str) -> Bounds {
        self.entries.bounds(&self.job.spec, region)
    }

    fn cool_down_seconds(&self, region: &str) -> Option<u32> {
        self.entries.cool_down_seconds(&self.job.spec, region)
    }

    fn committed(&self, region: &ParallelRegion) -> Option<&CommittedRegion> {
        self.job.status.as_ref()?.regions.get(*self.committed.get(&region.spec.index)?)
    }

    /// The width in force that the spec of the region does not have yet.
    fn unwritten(&self, region: &ParallelRegion) -> Option<&UnwrittenWidth> {
        let unwritten = self.job.status.as_ref()?.unwritten_widths.get(*self.unwritten.get(&region.spec.index)?);
        unwritten.filter(|unwritten| unwritten.is_still_unwritten_in(region))
    }
}

/// A region as the API shows it.
pub fn region(object: &ParallelRegion, job: Option<&JobOfRegions>, wanted: &Wanted, ready: &ReadyWidths) -> Region {
    let ParallelRegionSpec { job_name, name, .. } = &object.spec;
    let width = &wanted.width(object, job);
    let status = object.status.clone().unwrap_or_default();
    let applied = job.map_or(status.width, |job| job.applied(name));
    let bounds = job.map(|job| job.bounds(name)).unwrap_or_default();
    let cool_down_seconds = job.and_then(|job| job.cool_down_seconds(name));
    let committed = job.and_then(|job| job.committed(object));
    let job = job.and_then(|job| job.job.status.as_ref());
    let cool_down = applied.zip(job);
    let cool_down = cool_down.and_then(|(applied, job)| CoolDown::by(cool_down_seconds, applied, job, object));
    let cool_down = cool_down.map(|cool_down| cool_down.until);
    let finished = job.and_then(|j| j.rollout.as_ref()).is_some_and(|r| r.finished_at.is_some());
    let generation =
        job.map_or_else(|| applied.and(status.generation), |job| status.generation_by(job, object.spec.index, applied));
    let last =
        job.map_or_else(|| status.last_resize.clone(), |job| status.last_resize_by(job, object.spec.index, applied));
    let rejected = status.rejected.filter(|rejected| rejected.width == *width).unwrap_or_default();
    Region {
        namespace: object.metadata.namespace.clone().unwrap_or_default(),
        job: job_name.clone(),
        name: name.clone(),
        object_name: object.metadata.name.clone().unwrap_or_default(),
        desired_width: *width,
        applied_width: applied,
        generation,
        rolled_out: finished && applied == Some(*width),
        rejection: rejected.message,
        rejection_reason: rejected.reason,
        rejection_stage: rejected.stage.unwrap_or_default(),
        rejection_code: rejected.code.unwrap_or_default(),
        min_width: bounds.min_width.unwrap_or(1),
        max_width: bounds.max_width.unwrap_or(WIDTH_MAX),
        fixed: committed.is_some_and(|committed| committed.touches_consistent_region),
        ready_width: applied.and_then(|_| ready.get(name)),
        last_resize: last.map(last_resize),
        cool_down_seconds: cool_down_seconds.unwrap_or_default(),
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
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, Time};
    use k8s_openapi::jiff::Timestamp;
    use streams_api::{
        AdmittedRegion, BundleReference, DesiredWidth, InitialWidth, JobSpec, JobStatus, ParallelRegionStatus,
        RegionWidth, RejectedWidth, ResizePhase, ResizeSpec, ResizeStatus, Rollout, condition,
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

    fn shown(object: &ParallelRegion, job: Option<&Job>, wanted: &Wanted, ready: &ReadyWidths) -> Region {
        region(object, job.map(|job| JobOfRegions::of(Arc::new(job.clone()))).as_ref(), wanted, ready)
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
        let mut deleted = request(1, 5, 4, Pending);
        Arc::make_mut(&mut deleted).metadata.deletion_timestamp = Some(Time(Timestamp::UNIX_EPOCH));
        // region, requests -> desired width
        let table = [
            (&plain, vec![], 2),
            (&plain, vec![request(1, 5, 4, Pending)], 5),
            (&plain, vec![request(2, 6, 4, Planned), request(1, 5, 4, Pending)], 6),
            (&plain, vec![request(1, 5, 4, Pending), request(2, 6, 4, Refused)], 5),
            (&plain, vec![request(1, 5, 4, RolledOut)], 2),
            (&plain, vec![deleted], 2),
            // Somebody has edited the region since.
            (&plain, vec![request(1, 5, 3, Pending)], 2),
            (&written, vec![request(1, 5, 4, Pending), request(2, 6, 4, Planned)], 6),
            (&written, vec![request(2, 6, 4, Planned), request(3, 7, 4, Pending)], 7),
        ];
        for (object, resizes, expected) in table {
            let wanted = Wanted::of(&[], resizes.iter().cloned());
            let shown = shown(object, None, &wanted, &ReadyWidths::default());
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
            let wanted = Wanted::of(&[], newer.into_iter());
            let shown = shown(&object(2, 5 + edits), Some(&job), &wanted, &ReadyWidths::default());
            assert_eq!((shown.desired_width, shown.rolled_out), expected, "{edits}");
        }
    }

    #[test]
    fn of_a_thousand_requests_a_region_is_shown_by_those_that_name_it() {
        let requests: Vec<_> = (0..1_000_u64)
            .map(|number| {
                let mut request = Resize::clone(&request(number, 5, 4, ResizePhase::Pending));
                let name = format!("R{}", number % 500);
                request.spec.regions[0].name.clone_from(&name);
                request.status.as_mut().unwrap().regions[0].name = name;
                Arc::new(request)
            })
            .collect();
        let wanted = Wanted::of(&[], requests.into_iter());
        let numbers = |of: &Vec<WidthRequest>| of.iter().map(|request| request.number).collect::<Vec<_>>();
        assert_eq!((wanted.requested.len(), numbers(&wanted.requested["R7"])), (500, vec![507]));
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
            let committed = CommittedRegion { generation: Some(3), ..CommittedRegion::default() };
            of_job.regions = vec![CommittedRegion { touches_consistent_region: true, ..committed }];
            let mut object = object(10, 5);
            let said = ParallelRegionStatus { width: Some(2), generation: Some(1), ..ParallelRegionStatus::default() };
            object.status = Some(said);
            let ready = ReadyWidths::by_job(&job).unwrap();
            let region = shown(&object, Some(&job), &Wanted::default(), &ready);
            assert_eq!((region.min_width, region.max_width), expected, "{:?}", job.spec.parallel_regions);
            assert_eq!((region.fixed, region.ready_width, region.generation), (true, Some(10), Some(3)));
            let last = region.last_resize.unwrap();
            assert_eq!((last.generation, last.from_width, last.to_width), (4, 2, 10));
            assert_eq!(last.duration, Some(prost_types::Duration { seconds: 1, nanos: 250_000_000 }));
            assert_eq!((region.cool_down_seconds, region.cools_until), (0, None));
            let cool_down_seconds = Some(60);
            job.spec.parallel_regions = vec![InitialWidth { cool_down_seconds, ..entry("R", None, None) }];
            let region = shown(&object, Some(&job), &Wanted::default(), &ready);
            assert_eq!(region.cool_down_seconds, 60);
            assert_eq!(region.cools_until.map(|until| until.seconds), Some(60));
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
            let shown = shown(&object, None, &Wanted::default(), &ReadyWidths::default());
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
            let shown = shown(&object, job.as_ref(), &Wanted::default(), &ReadyWidths::default());
            assert_eq!((shown.applied_width, shown.generation, shown.rolled_out), expected, "{job:?}");
            assert_eq!(shown.desired_width, 10);
        }
    }
}
