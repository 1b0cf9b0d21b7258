//! What one look at a job finds about wishes: pure, from the regions, the requests and the status of the job.

use super::super::cool_down::{COOLING_DOWN, CoolDown};
use super::super::tasks::Failure;
use super::super::widths::Widths;
use super::admission::{admit_all, ended, refused};
use super::refused_edits::{self, is_about, key, too_many};
use super::search::{Found, Verdicts, search};
use super::standing::{Circumstances, Standing, name_of};
use super::wishes::{Author, WidthSet, Wish};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use std::collections::{BTreeMap, BTreeSet};
use streams_api::resize::RESIZES_MAX;
use streams_api::{JobSpec, RefusedEdit, Resize, ResizePhase, ResizePolicy, ResizeStatus, UnwrittenWidth, names};

/// Most new requests that the compiler begins with before they are admitted.
const EXPECTED_MAX: usize = 16;

/// What is to be done about requests and edits.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Requests {
    /// They were looked at: what the committed generation is was read.
    pub(crate) is_known: bool,
    /// There are requests that nobody has admitted.
    pub(crate) has_new: bool,
    /// What requests should say of themselves and do not, by name.
    pub(crate) to_tell: BTreeMap<String, ResizeStatus>,
    /// Widths in force that specs do not have yet, by index of the region.
    pub(crate) to_write: BTreeMap<u64, UnwrittenWidth>,
    /// Traces of the requests for these widths, by number.
    pub(crate) traces: BTreeMap<u64, String>,
    /// Widths that the commit of the proposal leaves to be written, in the same form.
    pub(crate) proposed: BTreeMap<u64, UnwrittenWidth>,
    /// Who is at fault that a set of widths was refused.
    pub(crate) fault: Option<Fault>,
    /// Sets of widths that the compiler was asked for and that nobody wants any more: what it said of them is not to be
    /// said to whoever wants them later.
    pub(crate) unwanted: Vec<WidthSet>,
    /// Operators are to be distributed anew.
    pub(crate) rebalances: bool,
    /// What a refusal of the width of each region would be for.
    pub(crate) keys: BTreeMap<String, RefusedEdit>,
    /// The greatest number that a request has.
    pub(crate) last_number: u64,
    /// A request that the proposal has was withdrawn, or deleted.
    pub(crate) withdraws_proposal: bool,
    /// A request that what is being compiled was begun with, or an edit, was withdrawn, deleted or refused since.
    pub(crate) withdraws_compilation: bool,
    /// Somebody waits for a request that does not wait for a cool-down.
    pub(crate) is_waited_for: bool,
    /// When the first cool-down ends that something waits for.
    pub(crate) cools_until: Option<Timestamp>,
    /// Open requests: numbers and widths.
    open: BTreeMap<u64, BTreeMap<String, u32>>,
    /// Requests that do not say yet that they are committed.
    untold: BTreeSet<u64>,
    /// Numbers of all requests but those that were withdrawn or refused.
    standing: BTreeSet<u64>,
}

/// Who is at fault that a set of widths was refused.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Fault {
    /// Whoever edited this region.
    Edit(RefusedEdit),
    /// The request of this name.
    Request(String, Failure),
}

impl Requests {
    /// Requests that a generation with these widths carries out.
    pub(crate) fn carried_out_by(&self, widths: &BTreeMap<String, u32>) -> Vec<u64> {
        let has =
            |wanted: &BTreeMap<String, u32>| wanted.iter().all(|(region, width)| widths.get(region) == Some(width));
        self.open.iter().filter(|(_, wanted)| has(wanted)).map(|(number, _)| *number).collect()
    }

    /// Whether all requests with these numbers are still there, and none was withdrawn or refused.
    pub(crate) fn are_standing(&self, numbers: &BTreeSet<u64>) -> bool {
        numbers.is_subset(&self.standing)
    }

    /// Something waits for the end of this cool-down.
    fn wait_for(&mut self, cool_down: &CoolDown) {
        let until = cool_down.until;
        self.cools_until = Some(self.cools_until.map_or(until, |earlier| earlier.min(until)));
    }

    /// Whether the request with this number does not say yet that it is committed.
    pub(crate) fn is_untold(&self, number: u64) -> bool {
        self.untold.contains(&number)
    }
}

/// Looks at all wishes of a job with a generation. `widths` has what specs want, and gets what is to be compiled.
pub(crate) fn look(
    spec: &JobSpec,
    of: &Circumstances<'_>,
    widths: &mut Widths,
    verdicts: &Verdicts,
    now: Timestamp,
) -> Requests {
    let keys = of.regions.iter().map(|region| (region.spec.name.clone(), key(spec, of.status, region)));
    let withdraws_proposal = of.misses_request_of_proposal();
    let mut found = Requests { is_known: true, keys: keys.collect(), withdraws_proposal, ..Requests::default() };
    let applied: BTreeMap<String, u32> =
        of.status.applied_widths.iter().map(|applied| (applied.region.clone(), applied.width)).collect();
    let applied: BTreeMap<String, u32> = widths
        .desired
        .keys()
        .map(|region| (region.clone(), applied.get(region).copied().unwrap_or(widths.desired[region])))
        .collect();
    let in_the_way = |wanted: &BTreeMap<String, u32>| {
        CoolDown::in_the_way(spec, of.status, |name| of.region(name), &applied, wanted, now)
    };
    let mut wishes = edits(of, widths, &applied, &found.keys);
    wishes.retain(|wish| match in_the_way(&wish.widths) {
        Some(cool_down) => {
            found.wait_for(&cool_down);
            false
        }
        None => true,
    });
    let mut requested = BTreeMap::new();
    for request in of.requests.iter().copied() {
        let number = request.status.as_ref().and_then(|status| status.number);
        found.last_number = found.last_number.max(number.unwrap_or_default());
        let standing = of.standing(request);
        let mut waits = !matches!(standing, Standing::Over);
        found.has_new |= standing == Standing::New;
        let mut status = of.status_of(request);
        if let (Standing::Open | Standing::Proposed, Some(number)) = (&standing, number) {
            found.withdraws_proposal |= standing == Standing::Proposed && request.is_withdrawn();
            let is_open = standing == Standing::Open;
            let wish = wish(request, number);
            let cool_down = in_the_way(&wish.widths).filter(|_| is_open);
            match (refused_now(spec, of, request).filter(|_| is_open), cool_down) {
                (Some((reason, message)), _) => status = ended(status, ResizePhase::Refused, reason, &message, now),
                (None, Some(cool_down)) => {
                    found.wait_for(&cool_down);
                    (status.reason, status.message) = (Some(COOLING_DOWN.to_owned()), Some(cool_down.message()));
                    waits = false;
                }
                (None, None) => drop(requested.insert(number, wish)),
            }
        }
        found.is_waited_for |= waits;
        if matches!(standing, Standing::InForce(..)) && request.phase() < ResizePhase::Written {
            found.untold.extend(number);
        }
        if status.finished_at.is_none() && status.phase.is_some_and(ResizePhase::is_final) {
            status.finished_at = Some(Time(now));
        }
        if !matches!(status.phase, Some(ResizePhase::Cancelled | ResizePhase::Refused)) {
            found.standing.extend(number);
        }
        if request.status.as_ref().is_some_and(|before| *before != status) {
            found.to_tell.insert(name_of(request), status);
        }
    }
    found.open = requested.iter().map(|(number, wish)| (*number, wish.widths.clone())).collect();
    wishes.extend(requested.into_values());
    found.to_write = of.widths_in_force();
    found.traces = traces(of.requests, found.to_write.values().map(|unwritten| unwritten.number).collect());
    found.proposed = of.widths_proposed();
    let mut expected =
        if found.has_new && of.may_expect { expected(spec, of, found.last_number, now) } else { Vec::new() };
    expected.retain(|wish| in_the_way(&wish.widths).is_none());
    found.unwanted = verdicts.unwanted(&applied, wishes.iter().chain(&expected));
    let with_expected = (!expected.is_empty()).then(|| {
        let all: Vec<Wish> = wishes.iter().cloned().chain(expected).collect();
        search(&applied, &all, verdicts)
    });
    let next = match with_expected {
        Some(Found::Compile(set)) => Found::Compile(set),
        // Nobody is at fault who is not admitted.
        Some(Found::Fault(..)) | None => search(&applied, &wishes, verdicts),
    };
    match next {
        Found::Compile(set) => {
            widths.desired = set.widths;
            found.rebalances = set.rebalances;
        }
        Found::Fault(at, failure) => {
            widths.desired = applied;
            found.fault = wishes.get(at).and_then(|wish| match &wish.author {
                Author::Edit(region) => Some(Fault::Edit(refused_edits::refused(found.keys.get(region)?, &failure))),
                Author::Request(_, name) => Some(Fault::Request(name.clone(), failure)),
            });
        }
    }
    found
}

/// Edits of specs that are to be compiled: those that nobody has refused.
fn edits(
    of: &Circumstances<'_>,
    widths: &mut Widths,
    applied: &BTreeMap<String, u32>,
    keys: &BTreeMap<String, RefusedEdit>,
) -> Vec<Wish> {
    let is_refused = |region: &String| {
        let key = keys.get(region);
        key.is_some_and(|key| of.status.refused_edits.iter().any(|refused| is_about(refused, key)))
    };
    let mut wishes = Vec::new();
    for (region, width) in &widths.desired {
        if applied.get(region) == Some(width) || is_refused(region) {
            continue;
        }
        if let Some(refused) = too_many(of.status, region, *width) {
            widths.refused.insert(region.clone(), refused);
            continue;
        }
        let author = Author::Edit(region.clone());
        wishes.push(Wish { author, widths: [(region.clone(), *width)].into(), rebalances: false });
    }
    wishes
}

/// What new requests will want if they are admitted as the regions are in the mirror: the compiler can begin with it
/// before they are (rule elasticity-16). Nothing else follows from it.
fn expected(spec: &JobSpec, of: &Circumstances<'_>, last: u64, now: Timestamp) -> Vec<Wish> {
    let new = of.requests.iter().filter(|request| of.standing(request) == Standing::New);
    let mut requests: Vec<Resize> = new.take(EXPECTED_MAX + 1).map(|request| (*request).clone()).collect();
    if requests.len() > EXPECTED_MAX || of.requests.len() > RESIZES_MAX {
        return Vec::new();
    }
    let admitted = admit_all(&mut requests, spec, of, last, now);
    let wishes = admitted.into_iter().filter_map(|at| {
        let request = requests.get(at)?;
        Some(wish(request, request.status.as_ref()?.number?))
    });
    wishes.collect()
}

/// The traces of the requests with these numbers.
fn traces(requests: &[&Resize], numbers: BTreeSet<u64>) -> BTreeMap<u64, String> {
    if numbers.is_empty() {
        return BTreeMap::new();
    }
    let traced = requests.iter().filter_map(|request| {
        let number = request.status.as_ref()?.number.filter(|number| numbers.contains(number))?;
        Some((number, request.metadata.annotations.as_ref()?.get(names::ANNOTATION_TRACE_PARENT)?.clone()))
    });
    traced.collect()
}

fn wish(request: &Resize, number: u64) -> Wish {
    Wish {
        author: Author::Request(number, name_of(request)),
        widths: request.spec.regions.iter().map(|wanted| (wanted.name.clone(), wanted.width)).collect(),
        rebalances: request.spec.policy == ResizePolicy::Rebalance,
    }
}

/// Why the frontend refuses a request that it has admitted: the bounds of the job were edited.
fn refused_now(spec: &JobSpec, of: &Circumstances<'_>, request: &Resize) -> Option<(&'static str, String)> {
    request.spec.regions.iter().find_map(|wanted| {
        let (region, applied) = of.region(&wanted.name).zip(of.applied(&wanted.name))?;
        refused(spec, of, region, applied, wanted.width)
    })
}
