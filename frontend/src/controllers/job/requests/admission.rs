//! Whether a request is admitted (rule elasticity-16): everything that can be said of it before anything is written or
//! compiled. Pure.
//!
//! The regions must be as they are at one moment, not as a mirror shows them: what was edited before the request was
//! made must not count as edited later.

use super::super::widths::{CurrentRegion, refuse};
use super::standing::{Circumstances, Standing};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use streams_api::resize::RESIZES_MAX;
use streams_api::{
    AdmittedRegion, JobSpec, ParallelRegion, Resize, ResizePhase, ResizeStatus, UnwrittenWidth, condition,
};

/// Longest message of a request (schema).
const MESSAGE_MAX: usize = 4096;
/// Regions that a message lists.
const LISTED: usize = 10;

/// Why a request is refused: one word in CamelCase, and one sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) reason: &'static str,
    pub(crate) message: String,
}

/// Admits or refuses all requests that nobody has admitted, oldest first: gives them their status, and each that is
/// admitted the next number after `last`. Returns the positions of those that have another status now.
pub(crate) fn admit_all(
    requests: &mut [Resize],
    spec: &JobSpec,
    of: &Circumstances<'_>,
    mut last: u64,
    now: Timestamp,
) -> Vec<usize> {
    let is_new = |request: &Resize| of.standing(request) == Standing::New;
    let mut new: Vec<usize> = (0..requests.len()).filter(|at| requests.get(*at).is_some_and(is_new)).collect();
    new.sort_by_key(|at| requests.get(*at).map(age));
    let surplus = requests.len().saturating_sub(RESIZES_MAX);
    let regular = new.len().saturating_sub(surplus);
    // What those that are admitted here want is wanted when the next one is looked at.
    let mut desired = BTreeMap::new();
    for (order, at) in new.iter().enumerate() {
        let Some(request) = requests.get(*at) else { continue };
        let admitted = if order < regular { admit(request, spec, of, &mut desired) } else { Err(too_many()) };
        let status = match admitted {
            Ok(regions) => {
                last = last.saturating_add(1);
                let phase = Some(ResizePhase::Pending);
                ResizeStatus { phase, number: Some(last), regions, ..ResizeStatus::default() }
            }
            Err(Refusal { reason: super::standing::WITHDRAWN, message }) => {
                ended(ResizeStatus::default(), ResizePhase::Cancelled, super::standing::WITHDRAWN, &message, now)
            }
            Err(Refusal { reason, message }) => {
                ended(ResizeStatus::default(), ResizePhase::Refused, reason, &message, now)
            }
        };
        if let Some(request) = requests.get_mut(*at) {
            request.status = Some(status);
        }
    }
    new
}

/// Older ones first: by when they were made, and within a second by the order of the API server.
pub(crate) fn age(request: &Resize) -> (Option<Timestamp>, u64, Option<String>) {
    let meta = &request.metadata;
    let version = meta.resource_version.as_ref().and_then(|version| version.parse().ok()).unwrap_or(u64::MAX);
    (meta.creation_timestamp.as_ref().map(|at| at.0), version, meta.name.clone())
}

/// The status of a request that ends like this.
pub(crate) fn ended(
    before: ResizeStatus,
    phase: ResizePhase,
    reason: &str,
    message: &str,
    now: Timestamp,
) -> ResizeStatus {
    ResizeStatus {
        phase: Some(phase),
        reason: Some(reason.to_owned()),
        message: Some(condition::cut(message, MESSAGE_MAX).to_owned()),
        finished_at: Some(Time(now)),
        ..before
    }
}

fn too_many() -> Refusal {
    let message = format!("the job has more than {RESIZES_MAX} requests; finished ones go after some minutes");
    Refusal { reason: "TooManyRequests", message }
}

/// The regions of a request that is admitted. `desired` has the desired widths of regions, as far as they are known.
fn admit(
    request: &Resize,
    spec: &JobSpec,
    of: &Circumstances<'_>,
    desired: &mut BTreeMap<String, u32>,
) -> Result<Vec<AdmittedRegion>, Refusal> {
    let refusal = |reason, message| Err(Refusal { reason, message });
    if request.is_withdrawn() {
        return refusal(super::standing::WITHDRAWN, "it was withdrawn before it was admitted".to_owned());
    }
    let committed = of.status.generation.unwrap_or_default();
    if let Some(expected) = request.spec.expected_generation.filter(|expected| *expected != committed) {
        let message = format!("generation {committed} of the job is committed, not {expected}");
        return refusal("GenerationMismatch", message);
    }
    let mut admitted = Vec::new();
    for wanted in &request.spec.regions {
        let name = &wanted.name;
        let Some((region, applied)) = of.region(name).zip(of.applied(name)) else {
            let mut known: Vec<&str> = of.status.applied_widths.iter().map(|region| region.region.as_str()).collect();
            known.truncate(LISTED);
            let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
            return refusal("RegionNotFound", format!("the job has no parallel region {name}; it has: {known}"));
        };
        if let Some(expected) = wanted.expected_width {
            let desired = *desired.entry(name.clone()).or_insert_with(|| desired_width(of, region));
            if expected != desired {
                return refusal("WidthMismatch", format!("the desired width of {name} is {desired}, not {expected}"));
            }
        }
        if let Some((reason, message)) = refused(spec, of, region, applied, wanted.width) {
            return refusal(reason, message);
        }
        admitted.push(AdmittedRegion {
            name: name.clone(),
            uid: region.metadata.uid.clone().unwrap_or_default(),
            edited: region.edited(),
        });
    }
    desired.extend(request.spec.regions.iter().map(|wanted| (wanted.name.clone(), wanted.width)));
    Ok(admitted)
}

/// Why the frontend refuses a width of a region, if it does (rule elasticity-2).
pub(super) fn refused(
    spec: &JobSpec,
    of: &Circumstances<'_>,
    region: &ParallelRegion,
    applied: u32,
    width: u32,
) -> Option<(&'static str, String)> {
    let committed = of.status.regions.iter().find(|committed| committed.index == region.spec.index);
    let touches_consistent_region = committed.is_some_and(|committed| committed.touches_consistent_region);
    let current = CurrentRegion { name: &region.spec.name, width: applied, touches_consistent_region };
    refuse(spec, current, width).map(|refused| (refused.reason, refused.message))
}

/// The width that is wanted of a region now: by the newest request that its spec does not have yet, else by its spec.
fn desired_width(of: &Circumstances<'_>, region: &ParallelRegion) -> u32 {
    let is_it = |unwritten: &UnwrittenWidth| unwritten.index == region.spec.index;
    let wants = |request: &Resize| {
        let number = request.status.as_ref()?.number?;
        let wanted = request.spec.regions.iter().find(|wanted| wanted.name == region.spec.name)?;
        let is_ahead = match of.standing(request) {
            Standing::Open | Standing::Proposed => true,
            Standing::InForce(..) => of.unwritten(request, number).iter().any(is_it),
            Standing::New | Standing::Superseded(..) | Standing::Withdrawn | Standing::Over => false,
        };
        is_ahead.then_some((Reverse(number), wanted.width))
    };
    let of_requests = of.requests.iter().filter_map(|request| wants(request));
    let committed =
        of.status.unwritten_widths.iter().filter(|unwritten| is_it(unwritten) && of.is_unwritten(unwritten));
    let newest = of_requests.chain(committed.map(|unwritten| (Reverse(unwritten.number), unwritten.width))).min();
    newest.map_or(region.spec.width, |(_, width)| width)
}

#[cfg(test)]
mod tests {
    use super::*;
    use streams_api::{DesiredWidth, JobStatus, RegionWidth};

    const REGIONS: usize = 10;

    fn region(index: usize) -> ParallelRegion {
        let mut region = ParallelRegion::new(&format!("app-region-{index}"), Default::default());
        (region.spec.index, region.spec.name, region.spec.width) = (index as u64, format!("R{index}"), 2);
        region
    }

    fn request(number: usize) -> Resize {
        let name = format!("R{}", number % REGIONS);
        let width = u32::try_from(3 + number / REGIONS).unwrap();
        // What the one before wants of this region.
        let wanted = DesiredWidth { name, width, expected_width: Some(width - 1) };
        let mut request = Resize::new(&format!("request-{number:04}"), Default::default());
        request.spec.regions = vec![wanted];
        request
    }

    #[test]
    fn as_many_as_a_job_may_have_are_admitted_at_once_and_those_beyond_are_refused() {
        let regions: Vec<ParallelRegion> = (0..REGIONS).map(region).collect();
        let applied = regions.iter().map(|region| RegionWidth { region: region.spec.name.clone(), width: 2 });
        let status = JobStatus { applied_widths: applied.collect(), ..JobStatus::default() };
        let spec = JobSpec::of(Default::default());
        let before: Vec<Resize> = (0..RESIZES_MAX + 2).map(request).collect();
        let known = (regions.iter().collect::<Vec<_>>(), before.iter().collect::<Vec<_>>());
        let of = Circumstances::new(&status, &known.0, &known.1);
        let mut requests = before.clone();
        let looked_at = admit_all(&mut requests, &spec, &of, 7, Timestamp::UNIX_EPOCH);
        assert_eq!(looked_at.len(), RESIZES_MAX + 2);
        for (at, request) in requests.iter().enumerate() {
            let status = request.status.clone().unwrap();
            let number = (at < RESIZES_MAX).then_some(8 + at as u64);
            let reason = (at >= RESIZES_MAX).then_some("TooManyRequests");
            assert_eq!((status.number, status.reason.as_deref()), (number, reason), "{at}: {:?}", status.message);
        }
    }
}
