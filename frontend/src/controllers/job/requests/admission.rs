//! Whether a request is admitted (rule elasticity-16): everything that can be said of it before anything is written or
//! compiled. Pure.
//!
//! The regions must be as they are at one moment, not as a mirror shows them: what was edited before the request was
//! made must not count as edited later.
//!
//! Knows: requests, bounds, regions at one moment. Must not know: clients, what the compiler would say.

use super::standing::{Circumstances, WantedWidth, is_new};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use std::collections::{BTreeMap, BTreeSet};
use streams_api::resize::{RESIZES_KEPT, RESIZES_MAX};
use streams_api::{AdmittedRegion, Resize, ResizePhase, ResizeStatus, condition};

/// Longest message of a request (schema).
pub(super) const MESSAGE_MAX: usize = 4096;
/// Another generation is committed than the request expects.
pub(crate) const GENERATION_MISMATCH: &str = "GenerationMismatch";
/// The job has more requests than it may have.
pub(crate) const TOO_MANY_REQUESTS: &str = "TooManyRequests";
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
    /// It is not known yet: it depends on a region that is made again, or it comes after one that waits for others.
    Later,
    /// It is not known yet: it expects a width, and depends on what becomes of a request that was admitted before.
    /// Whoever comes later and names a region whose width it expects waits, so that what it depends on has an end.
    AfterOthers,
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
    let (mut judged, mut awaited) = (Vec::new(), BTreeSet::new());
    for (order, request) in new.into_iter().enumerate() {
        let judgement = if order >= regular {
            Judgement::Refused(too_many())
        } else if request.spec.regions.is_empty() {
            // There was no room for what it wants.
            Judgement::Refused(too_much())
        } else {
            judge(request, of, now, wanted.as_mut(), &awaited)
        };
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
            Judgement::AfterOthers => {
                awaited.extend(expected_regions(request));
                continue;
            }
        };
        judged.push((request, status));
    }
    judged
}

/// Names of the requests that nobody has admitted and of which nobody can say yet what becomes of them: one expects a
/// width that depends on what becomes of others, or the object of a region is gone for a moment, or one that waits for
/// the former came before and is to be judged first (rule elasticity-16).
pub(super) fn undecided<'a>(of: &Circumstances<'a>, now: Timestamp) -> BTreeSet<&'a str> {
    let mut new: Vec<&Resize> = of.requests.iter().copied().filter(|request| is_new(request)).collect();
    let may_depend = |request: &Resize| expects_a_width(request) || lacks_region(request, of);
    let (mut undecided, mut awaited) = (BTreeSet::new(), BTreeSet::new());
    if !new.iter().copied().any(may_depend) {
        return undecided;
    }
    new.sort_by_cached_key(|request| age(request));
    for request in new {
        if !may_depend(request) && !names_any(request, &awaited) {
            continue;
        }
        match judge(request, of, now, None, &awaited) {
            Judgement::Admitted(_) | Judgement::Refused(_) => continue,
            Judgement::Later => {}
            Judgement::AfterOthers => awaited.extend(expected_regions(request)),
        }
        undecided.extend(request.metadata.name.as_deref());
    }
    undecided
}

/// Whether the object of a region that it names is not there.
pub(super) fn lacks_region(request: &Resize, of: &Circumstances<'_>) -> bool {
    request.spec.regions.iter().any(|wanted| of.regions.get(&wanted.name).is_none())
}

/// Until when a request waits for the object of a region that is not there.
pub(super) fn waits_for_regions_until(request: &Resize) -> Option<Timestamp> {
    let created = request.metadata.creation_timestamp.as_ref()?.0;
    created.checked_add(RESIZES_KEPT).ok()
}

/// Why a request is refused whose precondition on the generation of the job does not hold, or does not hold any more.
pub(super) fn other_generation(request: &Resize, of: &Circumstances<'_>) -> Option<(&'static str, String)> {
    let expected = request.spec.expected_generation.filter(|_| !of.has_expected_generation(request))?;
    let committed = of.status.generation.unwrap_or_default();
    Some((GENERATION_MISMATCH, format!("generation {committed} of the job is committed, not {expected}")))
}

fn expects_a_width(request: &Resize) -> bool {
    expected_regions(request).next().is_some()
}

/// The regions whose widths it expects.
fn expected_regions(request: &Resize) -> impl Iterator<Item = &str> {
    let expected = request.spec.regions.iter().filter(|wanted| wanted.expected_width.is_some());
    expected.map(|wanted| wanted.name.as_str())
}

fn names_any(request: &Resize, regions: &BTreeSet<&str>) -> bool {
    !regions.is_empty() && request.spec.regions.iter().any(|wanted| regions.contains(wanted.name.as_str()))
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
    Refusal { reason: TOO_MANY_REQUESTS, message }
}

fn too_much() -> Refusal {
    let message = "the requests of the job that have not ended name so many regions that there is no room for more";
    Refusal { reason: TOO_MANY_REQUESTS, message: message.to_owned() }
}

/// What becomes of a request. `changed` has the widths that are wanted of regions since others were admitted, and gets
/// those of this one; it is there if somebody expects any. `awaited` has the regions whose widths are expected by those
/// that came before and wait.
fn judge(
    request: &Resize,
    of: &Circumstances<'_>,
    now: Timestamp,
    changed: Option<&mut BTreeMap<String, WantedWidth>>,
    awaited: &BTreeSet<&str>,
) -> Judgement {
    let refusal = |reason, message| Judgement::Refused(Refusal { reason, message });
    if request.is_withdrawn() {
        return refusal(super::standing::WITHDRAWN, "it was withdrawn before it was admitted".to_owned());
    }
    if let Some((reason, message)) = other_generation(request, of) {
        return refusal(reason, message);
    }
    let is_over = waits_for_regions_until(request).is_some_and(|until| until <= now);
    let (mut lacks_region, mut depends_on_others) = (false, false);
    let mut admitted = Vec::new();
    for wanted in &request.spec.regions {
        let name = &wanted.name;
        if of.applied(name).is_none() {
            let mut known: Vec<&str> = of.status.applied_widths.iter().map(|region| region.region.as_str()).collect();
            known.truncate(LISTED);
            let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
            return refusal("RegionNotFound", format!("the job has no parallel region {name}; it has: {known}"));
        }
        // The job has the region, and makes its object again, unless another one of its name is in the way.
        let Some(region) = of.regions.get(name) else {
            if is_over {
                let message = format!(
                    "the object of region {name} is missing for too long: it is being deleted, or one that the job does \
                     not control has its name"
                );
                return refusal("RegionNotFound", message);
            }
            lacks_region = true;
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
    if lacks_region {
        return Judgement::Later;
    }
    if depends_on_others {
        return Judgement::AfterOthers;
    }
    if names_any(request, awaited) {
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
        let wanted = DesiredWidth { name, width, expected_width: None };
        let mut request = Resize::new(&format!("request-{number:04}"), Default::default());
        request.spec.regions = vec![wanted];
        request
    }

    fn job(generation: u64) -> (JobSpec, JobStatus, Vec<ParallelRegion>) {
        let regions: Vec<ParallelRegion> = (0..REGIONS).map(region).collect();
        let applied = regions.iter().map(|region| RegionWidth { region: region.spec.name.clone(), width: 2 });
        let applied_widths = applied.collect();
        let status = JobStatus { generation: Some(generation), applied_widths, ..JobStatus::default() };
        (JobSpec::of(BundleReference::default()), status, regions)
    }

    /// What is said of each of these requests, by their order: a number, a reason, or nothing yet.
    fn said(requests: &[Resize], generation: u64, lacking: Option<usize>, now: Timestamp) -> Vec<String> {
        let (spec, status, regions) = job(generation);
        let there: Vec<&ParallelRegion> =
            regions.iter().enumerate().filter(|(index, _)| Some(*index) != lacking).map(|(_, region)| region).collect();
        let requests: Vec<&Resize> = requests.iter().collect();
        let of = Circumstances::new(&spec, &status, &there, &requests);
        let said = admit_all(&of, 0, now);
        let of_one = |request: &&Resize| {
            let said = said.iter().find(|(judged, _)| std::ptr::eq(*judged, *request)).map(|(_, status)| status);
            said.map_or_else(String::new, |said| match (said.number, &said.reason) {
                (Some(number), _) => number.to_string(),
                (None, reason) => reason.clone().unwrap_or_default(),
            })
        };
        requests.iter().map(of_one).collect()
    }

    /// Whoever is admitted because of what another one wants would be wrong if that one is withdrawn.
    #[test]
    fn a_precondition_that_depends_on_what_becomes_of_others_is_not_judged_yet() {
        let of = |number: usize, expected, width| {
            let mut request = request(0);
            request.metadata.name = Some(format!("request-{number}"));
            request.spec.regions = vec![DesiredWidth { name: "R0".to_owned(), width, expected_width: expected }];
            request
        };
        // expected width and width of each, while the width is 2 -> what is said
        let table: [(&[(Option<u32>, u32)], &[&str]); 6] = [
            (&[(Some(2), 5)], &["1"]),
            (&[(Some(7), 5)], &["WidthMismatch"]),
            (&[(None, 5), (Some(5), 9)], &["1", ""]),
            (&[(None, 5), (Some(2), 9)], &["1", ""]),
            (&[(None, 5), (Some(7), 9), (None, 6), (Some(6), 9)], &["1", "WidthMismatch", "2", ""]),
            // Who comes later does not go before who waits, whether it expects anything or not.
            (&[(None, 5), (Some(2), 9), (None, 6), (Some(7), 6)], &["1", "", "", "WidthMismatch"]),
        ];
        for (wishes, expected) in table {
            let requests: Vec<Resize> =
                wishes.iter().enumerate().map(|(number, (expected, width))| of(number, *expected, *width)).collect();
            assert_eq!(said(&requests, 0, None, Timestamp::UNIX_EPOCH), expected, "{wishes:?}");
        }
    }

    #[test]
    fn a_region_whose_object_is_missing_is_not_waited_for_without_end() {
        let made_at = |number| {
            let mut request = request(number);
            request.metadata.creation_timestamp = Some(Time(Timestamp::UNIX_EPOCH));
            request
        };
        // seconds after the request was made -> what is said of one for a region that is missing, and of another one
        for (seconds, expected) in [(0, ["", "1"]), (599, ["", "1"]), (600, ["RegionNotFound", "1"])] {
            let now = Timestamp::from_second(seconds).unwrap();
            assert_eq!(said(&[made_at(0), made_at(1)], 0, Some(0), now), expected, "{seconds}");
        }
    }

    #[test]
    fn as_many_as_a_job_may_have_are_admitted_at_once_and_those_beyond_are_refused() {
        let (spec, status, regions) = job(0);
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
