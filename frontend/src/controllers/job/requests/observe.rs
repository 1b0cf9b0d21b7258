//! What one look at a job finds about wishes: pure, from the regions, the requests and the status of the job.
//!
//! Knows: regions, requests, verdicts of the compiler. Must not know: clients, what is written next.

use super::super::cool_down::{COOLING_DOWN, CoolDown};
use super::super::tasks::Failure;
use super::super::widths::Widths;
use super::admission::{
    MESSAGE_MAX, admit_all, ended, lacks_region, other_generation, undecided, waits_for_regions_until,
};
use super::apart::Apart;
use super::refused_edits::{self, is_about, key, too_many};
use super::search::{Found, Verdicts, search};
use super::standing::{Circumstances, Standing, is_new, name_of};
use super::wishes::{Author, WidthSet, Wish, combine};
use crate::controllers::traces::carried_by;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use streams_api::resize::RESIZES_MAX;
use streams_api::{
    ParallelRegion, RefusedEdit, RequestedWidths, Resize, ResizePhase, ResizePolicy, ResizeStatus, UnwrittenWidth,
    condition,
};
use streams_process::telemetry::TraceContext;

/// Most new requests that the compiler begins with before they are admitted.
const EXPECTED_MAX: usize = 16;

/// What is to be done about requests and edits.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Requests {
    /// They were looked at: what the committed generation is was read.
    pub(crate) is_known: bool,
    /// There are requests that nobody has admitted, and of which it is known what becomes of them.
    pub(crate) has_new: bool,
    /// What requests should say of themselves and do not, by name.
    pub(crate) to_tell: BTreeMap<String, ToTell>,
    /// Widths in force that specs do not have yet, by index of the region.
    pub(crate) to_write: BTreeMap<u64, UnwrittenWidth>,
    /// Traces of the requests for these widths, by number.
    pub(crate) traces: BTreeMap<u64, String>,
    /// Widths that the commit of the proposal puts into force, in the same form, also those that their specs have.
    pub(crate) proposed: BTreeMap<u64, UnwrittenWidth>,
    /// Who is at fault that a set of widths was refused.
    pub(crate) fault: Option<Fault>,
    /// Sets of widths that the compiler was asked for and that nobody wants any more: what it said of them is not to be
    /// said to whoever wants them later.
    pub(crate) unwanted: Vec<Arc<WidthSet>>,
    /// Operators are to be distributed anew.
    pub(crate) rebalances: bool,
    /// What a refusal of the width of each region would be for.
    pub(crate) keys: BTreeMap<String, RefusedEdit>,
    /// The greatest number that a request has.
    pub(crate) last_number: u64,
    /// A request that the proposal has was withdrawn or deleted, or was told that its widths do not come. What it wants
    /// does not count any more.
    pub(crate) withdraws_proposal: bool,
    /// Somebody waits for the proposal to go through, or away, who wants something else than it has.
    pub(crate) others_wait: bool,
    /// The proposal has what a wish wants that is tried alone.
    pub(crate) is_tried_alone: bool,
    /// A request that what is being compiled was begun with, or an edit, was withdrawn, deleted or refused since.
    pub(crate) withdraws_compilation: bool,
    /// Somebody waits for a request that waits for nothing else than its turn.
    pub(crate) is_waited_for: bool,
    /// When the first cool-down ends that something waits for.
    pub(crate) cools_until: Option<Timestamp>,
    /// When the first request ends that waits for the object of a region, or for a generation of the job.
    pub(crate) lacks_regions_until: Option<Timestamp>,
    /// Wishes with which compilations come to no end.
    pub(crate) apart: Vec<Apart>,
    /// Of the others all that is wanted compiles.
    pub(crate) ends_care: bool,
    /// Nothing is wanted but what is in force.
    pub(crate) wants_nothing: bool,
    /// Whom what is desired is compiled for, if it is compiled.
    pub(crate) desired_for: Begun,
    /// Open requests that what is being compiled carries out.
    pub(crate) compiled_for: Vec<u64>,
    /// Open requests: numbers and widths.
    open: BTreeMap<u64, BTreeMap<String, u32>>,
    /// Requests that do not say yet that they are committed.
    untold: BTreeSet<u64>,
    /// Numbers of all requests but those that were withdrawn or refused.
    standing: BTreeSet<u64>,
}

/// What a request should say of itself.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ToTell {
    /// The version of the request that this was found for: of another one it may not hold any more.
    pub(crate) version: Option<String>,
    /// Its status.
    pub(crate) status: ResizeStatus,
}

impl ToTell {
    /// Of this request, as it was looked at.
    pub(crate) fn of(request: &Resize, status: ResizeStatus) -> Self {
        Self { version: request.metadata.resource_version.clone(), status }
    }
}

/// Whom a set of widths is compiled for.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Begun {
    /// Numbers of the requests that it carries out.
    pub(crate) numbers: BTreeSet<u64>,
    /// The trace of whoever asked last for widths of it.
    pub(crate) trace: Option<TraceContext>,
    /// One of the requests was withdrawn, and that has been counted.
    pub(crate) is_withdrawn: bool,
}

impl Begun {
    /// More has come that it is compiled for.
    pub(crate) fn extend(&mut self, more: &Self) {
        self.numbers.extend(&more.numbers);
        if more.trace.is_some() {
            self.trace.clone_from(&more.trace);
        }
    }
}

/// Who is at fault that a set of widths was refused.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Fault {
    /// Whoever edited this region.
    Edit(RefusedEdit),
    /// The request with this number and name.
    Request(u64, String, Failure),
}

impl Requests {
    /// Requests that a generation with these widths carries out.
    pub(crate) fn carried_out_by(&self, widths: &BTreeMap<String, u32>) -> Vec<u64> {
        let has =
            |wanted: &BTreeMap<String, u32>| wanted.iter().all(|(region, width)| widths.get(region) == Some(width));
        self.open.iter().filter(|(_, wanted)| has(wanted)).map(|(number, _)| *number).collect()
    }

    /// Whether the request with this number is still there, and was not withdrawn or refused.
    pub(crate) fn is_standing(&self, number: u64) -> bool {
        self.standing.contains(&number)
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

    /// This request waits for the object of a region.
    fn wait_for_regions(&mut self, request: &Resize) {
        waits_for_regions_until(request).into_iter().for_each(|until| self.looks_again_at(until));
    }

    /// A request ends then, if nothing has become of it.
    pub(super) fn looks_again_at(&mut self, until: Timestamp) {
        self.lacks_regions_until = Some(self.lacks_regions_until.map_or(until, |earlier| earlier.min(until)));
    }

    /// Whether the request with this number does not say yet that it is committed.
    pub(crate) fn is_untold(&self, number: u64) -> bool {
        self.untold.contains(&number)
    }
}

/// Looks at all wishes of a job with a generation. `widths` has what specs want, and gets what is to be compiled;
/// `compiled` is what is being compiled, and `held_up` what the proposal has been held up by for a while.
pub(crate) fn look(
    of: &Circumstances<'_>,
    widths: &mut Widths,
    compiled: Option<&BTreeMap<String, u32>>,
    verdicts: &Verdicts,
    held_up: Option<&Failure>,
    now: Timestamp,
) -> Requests {
    let key = |region: &ParallelRegion| key(of.regions.bounds(&region.spec.name), of.status, region);
    let keys = of.regions.all().map(|region| (region.spec.name.clone(), key(region)));
    let withdraws_proposal = of.misses_request_of_proposal();
    let mut found = Requests { is_known: true, keys: keys.collect(), withdraws_proposal, ..Requests::default() };
    let desired = widths.desired.iter();
    let applied: BTreeMap<String, u32> =
        desired.map(|(region, width)| (region.clone(), of.applied(region).unwrap_or(*width))).collect();
    let mut wishes = edits(of, widths, &applied, &found.keys);
    wishes.retain(|wish| match of.cool_down(&applied, &wish.widths, now) {
        Some(cool_down) => {
            found.wait_for(&cool_down);
            false
        }
        None => true,
    });
    let (requested, mut told) = look_at_requests(of, &applied, verdicts, held_up, now, &mut found);
    found.open = requested.iter().map(|(number, wish)| (*number, wish.widths.clone())).collect();
    wishes.extend(requested.into_values());
    if let Some(proposal) = ProposedChange::of(of, &applied) {
        // One that is tried alone, and not yet, would not come next if the proposal gave way.
        let mut others = wishes.iter().filter(|wish| verdicts.apart(wish).is_none_or(|apart| apart.is_due(now)));
        found.others_wait |= proposal.lacks_region || !others.all(|wish| proposal.is_all_of(wish));
        found.is_tried_alone = wishes.iter().any(|wish| verdicts.apart(wish).is_some() && proposal.is_all_of(wish));
    }
    found.to_write = of.widths_in_force();
    found.traces = traces(of.requests, found.to_write.values().map(|unwritten| unwritten.number).collect());
    found.proposed = of.widths_proposed();
    let mut expected = if found.has_new && of.may_expect { expected(of, found.last_number, now) } else { Vec::new() };
    expected.retain(|wish| of.cool_down(&applied, &wish.widths, now).is_none());
    choose(applied, wishes, &expected, verdicts, now, &mut found, widths);
    found.wants_nothing = widths.desired.iter().all(|(region, width)| of.applied(region) == Some(*width));
    found.compiled_for = compiled.map_or_else(Vec::new, |compiled| found.carried_out_by(compiled));
    found.desired_for.numbers = found.carried_out_by(&widths.desired).into_iter().collect();
    if !found.wants_nothing {
        found.desired_for.trace = trace_of(of, &widths.desired);
    }
    for apart in &found.apart {
        if let Author::Request(_, name) = &apart.wish.author
            && let Some((_, status)) = told.get_mut(name)
            && !status.phase.is_some_and(ResizePhase::is_final)
        {
            status.reason = Some(apart.failure.reason.clone());
            status.message = Some(condition::cut(&apart.message(), MESSAGE_MAX).to_owned());
        }
    }
    let changed = told.into_iter().filter(|(_, (request, status))| request.status.as_ref() != Some(status));
    found.to_tell = changed.map(|(name, (request, status))| (name, ToTell::of(request, status))).collect();
    found
}

/// What requests should say of themselves, by name, as far as anybody has looked at them before.
type Told<'a> = BTreeMap<String, (&'a Resize, ResizeStatus)>;

/// What a proposal changes.
struct ProposedChange<'a> {
    applied: &'a BTreeMap<String, u32>,
    /// Regions that get another width, with that.
    changed: BTreeMap<&'a str, u32>,
    /// The object of one of them is missing, and is made again only when it is known what becomes of the proposal.
    lacks_region: bool,
}

impl<'a> ProposedChange<'a> {
    /// That of the job, if there is one.
    fn of<'b: 'a>(of: &Circumstances<'b>, applied: &'a BTreeMap<String, u32>) -> Option<Self> {
        let widths = of.status.proposal.as_ref()?.widths.iter();
        let changed = widths.filter(|proposed| applied.get(&proposed.region) != Some(&proposed.width));
        let changed: BTreeMap<_, _> = changed.map(|proposed| (proposed.region.as_str(), proposed.width)).collect();
        let lacks_region = changed.keys().any(|region| of.regions.get(region).is_none());
        Some(Self { applied, changed, lacks_region })
    }

    /// Whether it changes what the wish wants to be changed, and nothing else.
    fn is_all_of(&self, wish: &Wish) -> bool {
        let has = |(region, width): (&String, &u32)| {
            self.changed.get(region.as_str()).or_else(|| self.applied.get(region)) == Some(width)
        };
        let is_changed = |region: &&String| self.changed.contains_key(region.as_str());
        wish.widths.iter().all(has) && wish.widths.keys().filter(is_changed).count() == self.changed.len()
    }
}

/// Looks at the requests of a job. Gives those that are to be compiled, by number, and what all should say.
fn look_at_requests<'a>(
    of: &Circumstances<'a>,
    applied: &BTreeMap<String, u32>,
    verdicts: &Verdicts,
    held_up: Option<&Failure>,
    now: Timestamp,
    found: &mut Requests,
) -> (BTreeMap<u64, Wish>, Told<'a>) {
    let (mut requested, mut told) = (BTreeMap::new(), Told::new());
    let undecided = undecided(of, now);
    let in_force = newest_in_force(of);
    for (request, standing) in of.each() {
        let number = request.status.as_ref().and_then(|status| status.number);
        found.last_number = found.last_number.max(number.unwrap_or_default());
        // Nobody waits for a roll-out that has taken too long, and who says how long is the job.
        let mut waits = match standing {
            Standing::Over => false,
            Standing::InForce(..) => request.phase() < ResizePhase::Written,
            // Nothing makes that come sooner, and it may never come.
            Standing::New => !lacks_region(request, of),
            Standing::Proposed => held_up.is_none(),
            _ => true,
        };
        match standing {
            Standing::New if !undecided.contains(name_of(request).as_str()) => found.has_new = true,
            Standing::New if !waits => found.wait_for_regions(request),
            Standing::New => found.others_wait = true,
            _ => {}
        }
        let is_withdrawn = *standing == Standing::Proposed && request.is_withdrawn();
        let mut status = of.status_of(request, standing);
        if let (Standing::Proposed, Some(failure)) = (standing, held_up) {
            status.reason = Some(failure.reason.clone());
            status.message = Some(condition::cut(&failure.message, MESSAGE_MAX).to_owned());
        }
        if let (Standing::Open | Standing::Proposed, Some(number)) = (standing, number) {
            let is_open = *standing == Standing::Open;
            found.withdraws_proposal |= is_withdrawn;
            let wish = wish(request, number);
            let cool_down = of.cool_down(applied, &wish.widths, now).filter(|_| is_open);
            match (refused_now(of, request).filter(|_| is_open), cool_down) {
                _ if is_withdrawn => {}
                (Some((reason, message)), _) => status = ended(status, ResizePhase::Refused, reason, &message, now),
                (None, Some(cool_down)) => {
                    found.wait_for(&cool_down);
                    (status.reason, status.message) = (Some(COOLING_DOWN.to_owned()), Some(cool_down.message()));
                    waits = false;
                }
                // It ends as soon as the newer one says that it is in force.
                (None, None) if is_open && is_outdone(request, number, &in_force) => {}
                (None, None) => {
                    waits &= !is_open || verdicts.apart(&wish).is_none();
                    requested.insert(number, wish);
                }
            }
        }
        found.is_waited_for |= waits;
        if matches!(standing, Standing::InForce(..)) && request.phase() < ResizePhase::Written {
            found.untold.extend(number);
        }
        if status.finished_at.is_none() && status.phase.is_some_and(ResizePhase::is_final) {
            status.finished_at = Some(Time(now));
        }
        if status.phase == Some(ResizePhase::Written) && request.phase() != ResizePhase::Written {
            status.written_at = Some(Time(now));
        }
        if !is_withdrawn && !matches!(status.phase, Some(ResizePhase::Cancelled | ResizePhase::Refused)) {
            found.standing.extend(number);
        }
        if request.status.is_some() {
            told.insert(name_of(request), (request, status));
        }
    }
    (requested, told)
}

/// By name of the region, the number of the newest request that is in force and names it.
fn newest_in_force<'a>(of: &Circumstances<'a>) -> BTreeMap<&'a str, u64> {
    let mut newest: BTreeMap<&str, u64> = BTreeMap::new();
    for (request, _) in of.each().filter(|(_, standing)| matches!(standing, Standing::InForce(..))) {
        let number = request.status.as_ref().and_then(|status| status.number).unwrap_or_default();
        for wanted in &request.spec.regions {
            let known = newest.entry(&wanted.name).or_default();
            *known = number.max(*known);
        }
    }
    newest
}

/// A newer request is in force for one of the regions of this one.
fn is_outdone(request: &Resize, number: u64, in_force: &BTreeMap<&str, u64>) -> bool {
    request.spec.regions.iter().any(|wanted| in_force.get(&*wanted.name).is_some_and(|newer| *newer > number))
}

/// Chooses what is compiled next. Wishes that are tried alone wait until there is nothing else to compile.
fn choose(
    applied: BTreeMap<String, u32>,
    wishes: Vec<Wish>,
    expected: &[Wish],
    verdicts: &Verdicts,
    now: Timestamp,
    found: &mut Requests,
    widths: &mut Widths,
) {
    let (alone, mut wishes): (Vec<Wish>, Vec<Wish>) =
        wishes.into_iter().partition(|wish| verdicts.apart(wish).is_some());
    let mut apart: Vec<Apart> = alone.iter().filter_map(|wish| verdicts.apart(wish).cloned()).collect();
    let mut next = loop {
        match search(&applied, &wishes, verdicts) {
            Found::Fault(at, failure) if failure.is_temporary() => {
                apart.push(Apart::new(wishes.remove(at), failure, now));
            }
            Found::Compile(set) => {
                let is_done = set.widths == applied || verdicts.of(&set) == Some(None);
                found.ends_care = is_done && set == combine(&applied, &wishes);
                break Next::Compile(set);
            }
            Found::Fault(at, failure) => break Next::Refuse(wishes.get(at).cloned(), failure),
        }
    };
    if !expected.is_empty() {
        let all: Vec<Wish> = wishes.iter().chain(expected).cloned().collect();
        // Nobody is at fault who is not admitted.
        if let Found::Compile(set) = search(&applied, &all, verdicts) {
            next = Next::Compile(set);
        }
    }
    for apart in &mut apart {
        // It was tried alone: not again for a while.
        if let Some(failure) = verdicts.of_one(&applied, &apart.wish) {
            found.unwanted.push(Arc::new(combine(&applied, std::slice::from_ref(&apart.wish))));
            *apart = apart.again(failure, now);
        }
    }
    let is_idle = matches!(&next, Next::Compile(set) if set.widths == applied);
    let due = apart.iter().filter(|apart| is_idle && apart.is_due(now)).min_by_key(|apart| apart.until);
    if let Some(due) = due {
        let set = combine(&applied, std::slice::from_ref(&due.wish));
        next = match verdicts.of(&set) {
            Some(Some(refusal)) => Next::Refuse(Some(due.wish.clone()), refusal.clone()),
            Some(None) | None => Next::Compile(set),
        };
    }
    let wanted = wishes.iter().chain(expected).chain(due.map(|due| &due.wish));
    found.unwanted.extend(verdicts.unwanted(&applied, wanted));
    found.apart = apart;
    match next {
        Next::Compile(set) => {
            widths.desired = set.widths;
            found.rebalances = set.rebalances;
        }
        Next::Refuse(wish, failure) => {
            widths.desired = applied;
            found.fault = wish.and_then(|wish| match wish.author {
                Author::Edit(region) => Some(Fault::Edit(refused_edits::refused(found.keys.get(&region)?, &failure))),
                Author::Request(number, name) => Some(Fault::Request(number, name, failure)),
            });
        }
    }
}

/// What comes next.
enum Next {
    /// This set is compiled.
    Compile(WidthSet),
    /// This wish is refused.
    Refuse(Option<Wish>, Failure),
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
fn expected(of: &Circumstances<'_>, last: u64, now: Timestamp) -> Vec<Wish> {
    let new = of.requests.iter().filter(|request| is_new(request)).count();
    if new > EXPECTED_MAX || of.requests.len() > RESIZES_MAX {
        return Vec::new();
    }
    let admitted = admit_all(of, last, now).into_iter();
    admitted.filter_map(|(request, status)| Some(wish(request, status.number?))).collect()
}

/// The trace of whoever asked last for these widths (rule name-11): the newest request that they carry out, else
/// somebody who has edited a region.
fn trace_of(of: &Circumstances<'_>, widths: &BTreeMap<String, u32>) -> Option<TraceContext> {
    let carried_out = |request: &&Resize| {
        let wanted = &request.spec.regions;
        let are_wanted = || wanted.iter().all(|wanted| widths.get(&wanted.name) == Some(&wanted.width));
        !request.phase().is_final() && !wanted.is_empty() && are_wanted()
    };
    let newest = of.requests.iter().copied().filter(carried_out);
    let newest = newest.max_by_key(|request| request.status.as_ref().and_then(|status| status.number));
    if let Some(trace) = newest.and_then(carried_by) {
        return Some(trace);
    }
    let requested = RequestedWidths::read(of.regions.all());
    of.regions.all().find_map(|region| {
        let pending = requested.as_ref().and_then(|requested| Some((requested, requested.pending(region)?)));
        let (width, trace) = match pending {
            Some((requested, width)) => (width, requested.trace_parent.as_deref()),
            None => (region.spec.width, region.trace_parent()),
        };
        let name = &region.spec.name;
        let trace = trace.filter(|_| of.applied(name) != Some(width) && widths.get(name) == Some(&width))?;
        Some(TraceContext { parent: trace.to_owned(), state: None })
    })
}

/// The traces of the requests with these numbers.
fn traces(requests: &[&Resize], numbers: BTreeSet<u64>) -> BTreeMap<u64, String> {
    if numbers.is_empty() {
        return BTreeMap::new();
    }
    let traced = requests.iter().filter_map(|request| {
        let number = request.status.as_ref()?.number.filter(|number| numbers.contains(number))?;
        Some((number, carried_by(*request)?.parent))
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

/// Why the frontend refuses a request that it has admitted: another generation was committed before it than it expects,
/// or the bounds of the job were edited.
fn refused_now(of: &Circumstances<'_>, request: &Resize) -> Option<(&'static str, String)> {
    let refused = || request.spec.regions.iter().find_map(|wanted| of.regions.refused(&wanted.name, wanted.width));
    other_generation(request, of).or_else(refused)
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
    use std::time::{Duration, Instant};
    use streams_api::{
        AdmittedRegion, BundleReference, DesiredWidth, InitialWidth, JobSpec, JobStatus, ParallelRegionSpec,
        RegionWidth, names,
    };

    const REGIONS: u64 = 64;
    const REQUESTS: u64 = 20;

    fn name(index: u64) -> String {
        format!("Composite.R{index}")
    }

    fn request(number: u64) -> Resize {
        let wanted = |index| DesiredWidth { name: name(index), width: 3, expected_width: Some(2) };
        let mut request = Resize::new(&format!("r{number}"), Default::default());
        request.spec.regions = (0..REGIONS).map(wanted).collect();
        if number > 0 {
            let admitted = |index| AdmittedRegion { name: name(index), uid: name(index), edited: 1 };
            let regions = (0..REGIONS).map(admitted).collect();
            request.status = Some(ResizeStatus { number: Some(number), regions, ..ResizeStatus::default() });
        }
        request
    }

    #[test]
    fn what_is_compiled_continues_the_trace_of_whoever_asked_last() {
        let trace = |digit: char| format!("00-{}-{}-01", digit.to_string().repeat(32), digit.to_string().repeat(16));
        let traced = |meta: &mut ObjectMeta, digit| {
            meta.annotations = Some([(names::ANNOTATION_TRACE_PARENT.to_owned(), trace(digit))].into());
        };
        let (spec, applied) =
            (JobSpec::of(BundleReference::default()), RegionWidth { region: "R".to_owned(), width: 2 });
        let status = JobStatus { generation: Some(0), applied_widths: vec![applied], ..JobStatus::default() };
        let of = ParallelRegionSpec { name: "R".to_owned(), width: 5, ..ParallelRegionSpec::default() };
        let mut region = ParallelRegion::new("R", of);
        traced(&mut region.metadata, 'e');
        let asked = |number: u64, width, digit| {
            let mut request = request(number);
            request.spec.regions = vec![DesiredWidth { name: "R".to_owned(), width, expected_width: None }];
            traced(&mut request.metadata, digit);
            request
        };
        // requests: number, width, trace; what is compiled -> whose trace
        let table: [(&[(u64, u32, char)], u32, Option<char>); 4] = [
            (&[(1, 3, 'a'), (2, 3, 'b'), (3, 4, 'c')], 3, Some('b')),
            (&[(1, 3, 'a')], 5, Some('e')),
            (&[], 5, Some('e')),
            (&[], 7, None),
        ];
        for (requests, width, expected) in table {
            let requests: Vec<Resize> =
                requests.iter().map(|(number, width, digit)| asked(*number, *width, *digit)).collect();
            let requests: Vec<&Resize> = requests.iter().collect();
            let of = Circumstances::new(&spec, &status, &[&region], &requests);
            let found = trace_of(&of, &[("R".to_owned(), width)].into()).map(|trace| trace.parent);
            assert_eq!(found, expected.map(trace), "{width}");
        }
    }

    /// A job may have fifty times as many requests, for four times as many regions each.
    #[test]
    fn a_look_takes_as_long_as_there_are_regions_of_requests() {
        let mut spec = JobSpec::of(BundleReference::default());
        let entry = |n: u64| InitialWidth {
            alias: Some(format!("*.X{n}*")),
            max_width: Some(9),
            cool_down_seconds: Some(5),
            ..InitialWidth::default()
        };
        spec.parallel_regions = (0..128).map(entry).collect();
        let region = |index| {
            let of = ParallelRegionSpec { index, name: name(index), width: 2, ..ParallelRegionSpec::default() };
            let mut region = ParallelRegion::new(&name(index), of);
            (region.metadata.uid, region.metadata.generation) = (Some(name(index)), Some(1));
            region
        };
        let regions: Vec<ParallelRegion> = (0..REGIONS).map(region).collect();
        let applied: BTreeMap<String, u32> = (0..REGIONS).map(|index| (name(index), 2)).collect();
        let widths = applied.iter().map(|(region, width)| RegionWidth { region: region.clone(), width: *width });
        let status = JobStatus { generation: Some(0), applied_widths: widths.collect(), ..JobStatus::default() };
        // One is new.
        let requests: Vec<Resize> = (0..REQUESTS).map(request).collect();
        let known = (regions.iter().collect::<Vec<_>>(), requests.iter().collect::<Vec<_>>());
        let mut desired = Widths { desired: applied, ..Widths::default() };
        let begun = Instant::now();
        let of = Circumstances::new(&spec, &status, &known.0, &known.1).with(true, true);
        let found = look(&of, &mut desired, None, &Verdicts::default(), None, Timestamp::UNIX_EPOCH);
        let took = begun.elapsed();
        assert_eq!((found.last_number, desired.desired[&name(7)], found.has_new), (REQUESTS - 1, 3, false));
        // It is about a fiftieth of that.
        assert!(took < Duration::from_millis(600), "{took:?}");
    }
}
