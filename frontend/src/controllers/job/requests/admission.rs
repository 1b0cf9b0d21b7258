//! Whether a request is admitted (rule elasticity-16): everything that can be said of it before anything is written or
//! compiled. Pure.
//!
//! The regions must be as they are at one moment, not as a mirror shows them: what was edited before the request was
//! made must not count as edited later.

use super::standing::{Circumstances, Wanted, is_new};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use std::collections::BTreeMap;
use streams_api::resize::RESIZES_MAX;
use streams_api::{AdmittedRegion, Resize, ResizePhase, ResizeStatus, condition};

/// Longest message of a request (schema).
const MESSAGE_MAX: usize = 4096;
/// Another generation is committed than the request expects.
pub(crate) const GENERATION_MISMATCH: &str = "GenerationMismatch";
/// Regions that a message lists.
const LISTED: usize = 10;

/// Why a request is refused: one word in CamelCase, and one sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) reason: &'static str,
    pub(crate) message: String,
}

/// What an admission comes to.
enum Judgement {
    /// It is admitted, with these regions.
    Admitted(Vec<AdmittedRegion>),
    /// It ends.
    Refused(Refusal),
    /// It is not known yet: it depends on what becomes of a request that was admitted before, or on a region that is
    /// made again.
    Later,
}

/// Admits or refuses all requests that nobody has admitted, oldest first. Gives what they should say of themselves;
/// each that is admitted has the next number after `last`. The others are looked at again.
pub(crate) fn admit_all<'a>(of: &Circumstances<'a>, mut last: u64, now: Timestamp) -> Vec<(&'a Resize, ResizeStatus)> {
    let mut new: Vec<&Resize> = of.requests.iter().copied().filter(|request| is_new(request)).collect();
    new.sort_by_cached_key(|request| age(request));
    let surplus = of.requests.len().saturating_sub(RESIZES_MAX);
    let regular = new.len().saturating_sub(surplus);
    // What those that are admitted here want is wanted when the next one is looked at, if that expects anything.
    let mut wanted = new.iter().any(|request| expects_a_width(request)).then(BTreeMap::new);
    let mut judged = Vec::new();
    for (order, request) in new.into_iter().enumerate() {
        let judgement =
            if order < regular { judge(request, of, wanted.as_mut()) } else { Judgement::Refused(too_many()) };
        let status = match judgement {
            Judgement::Admitted(regions) => {
                last = last.saturating_add(1);
                let phase = Some(ResizePhase::Pending);
                ResizeStatus { phase, number: Some(last), regions, ..ResizeStatus::default() }
            }
            Judgement::Refused(Refusal { reason: super::standing::WITHDRAWN, message }) => {
                ended(ResizeStatus::default(), ResizePhase::Cancelled, super::standing::WITHDRAWN, &message, now)
            }
            Judgement::Refused(Refusal { reason, message }) => {
                ended(ResizeStatus::default(), ResizePhase::Refused, reason, &message, now)
            }
            Judgement::Later => continue,
        };
        judged.push((request, status));
    }
    judged
}

/// Whether nobody can say yet what becomes of a request that nobody has admitted: it expects a width that depends on
/// what becomes of others (rule elasticity-16), or the object of a region is gone for a moment.
pub(super) fn depends_on_others(request: &Resize, of: &Circumstances<'_>) -> bool {
    let lacks_region = || request.spec.regions.iter().any(|wanted| of.regions.get(&wanted.name).is_none());
    (expects_a_width(request) || lacks_region()) && matches!(judge(request, of, None), Judgement::Later)
}

fn expects_a_width(request: &Resize) -> bool {
    request.spec.regions.iter().any(|wanted| wanted.expected_width.is_some())
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

/// What becomes of a request. `changed` has the widths that are wanted of regions since others were admitted, and gets
/// those of this one; it is there if somebody expects any.
fn judge(request: &Resize, of: &Circumstances<'_>, changed: Option<&mut BTreeMap<String, Wanted>>) -> Judgement {
    let refusal = |reason, message| Judgement::Refused(Refusal { reason, message });
    if request.is_withdrawn() {
        return refusal(super::standing::WITHDRAWN, "it was withdrawn before it was admitted".to_owned());
    }
    let committed = of.status.generation.unwrap_or_default();
    if let Some(expected) = request.spec.expected_generation.filter(|expected| *expected != committed) {
        let message = format!("generation {committed} of the job is committed, not {expected}");
        return refusal(GENERATION_MISMATCH, message);
    }
    let mut depends_on_others = false;
    let mut admitted = Vec::new();
    for wanted in &request.spec.regions {
        let name = &wanted.name;
        if of.applied(name).is_none() {
            let mut known: Vec<&str> = of.status.applied_widths.iter().map(|region| region.region.as_str()).collect();
            known.truncate(LISTED);
            let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
            return refusal("RegionNotFound", format!("the job has no parallel region {name}; it has: {known}"));
        }
        // The job has the region, and makes its object again.
        let Some(region) = of.regions.get(name) else {
            depends_on_others = true;
            continue;
        };
        if let Some(expected) = wanted.expected_width {
            let changed = changed.as_ref().and_then(|changed| changed.get(name));
            match changed.map_or_else(|| of.is_expected(region, expected), |wanted| wanted.is_expected(expected)) {
                Some(Ok(())) => {}
                Some(Err(width)) => {
                    let message = format!("the desired width of {name} is {width}, not {expected}");
                    return refusal("WidthMismatch", message);
                }
                None => depends_on_others = true,
            }
        }
        if let Some((reason, message)) = of.regions.refused(name, wanted.width) {
            return refusal(reason, message);
        }
        admitted.push(AdmittedRegion {
            name: name.clone(),
            uid: region.metadata.uid.clone().unwrap_or_default(),
            edited: region.edited(),
        });
    }
    if depends_on_others {
        return Judgement::Later;
    }
    if let Some(changed) = changed {
        for wanted in &request.spec.regions {
            let Some(region) = of.regions.get(&wanted.name) else { continue };
            changed.entry(wanted.name.clone()).or_insert_with(|| of.wanted(region)).newer(wanted.width);
        }
    }
    Judgement::Admitted(admitted)
}

#[cfg(test)]
mod tests {
    use super::*;
    use streams_api::{BundleReference, DesiredWidth, JobSpec, JobStatus, ParallelRegion, RegionWidth};

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
        let spec = JobSpec::of(BundleReference::default());
        let requests: Vec<Resize> = (0..RESIZES_MAX + 2).map(request).collect();
        let known = (regions.iter().collect::<Vec<_>>(), requests.iter().collect::<Vec<_>>());
        let of = Circumstances::new(&spec, &status, &known.0, &known.1);
        let looked_at = admit_all(&of, 7, Timestamp::UNIX_EPOCH);
        assert_eq!(looked_at.len(), RESIZES_MAX + 2);
        for (at, (_, status)) in looked_at.into_iter().enumerate() {
            let number = (at < RESIZES_MAX).then_some(8 + at as u64);
            let reason = (at >= RESIZES_MAX).then_some("TooManyRequests");
            assert_eq!((status.number, status.reason.as_deref()), (number, reason), "{at}: {:?}", status.message);
        }
    }
}
