//! How far requests have come, by the status of the job and the regions as they are. Pure.
//!
//! Knows: the status of the job, regions, requests. Must not know: which set is compiled next. Invariant: what it says
//! follows from the objects and the status alone, so two leaders say the same.

use super::super::MANAGER;
use super::super::cool_down::CoolDown;
use super::known_regions::KnownRegions;
use k8s_openapi::jiff::Timestamp;
use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};
use streams_api::{
    AdmittedRegion, Job, JobSpec, JobStatus, ParallelRegion, Resize, ResizeChanges, ResizePhase, ResizeStatus,
    SupersededBy, UnwrittenWidth, names,
};

/// What requests are judged by.
pub(crate) struct Circumstances<'a> {
    /// The status of the job.
    pub(crate) status: &'a JobStatus,
    /// The regions of the job that are there and stay.
    pub(super) regions: KnownRegions<'a>,
    /// All requests of the job.
    pub(crate) requests: &'a [&'a Resize],
    /// Nothing is being compiled or proposed.
    pub(super) is_quiet: bool,
    /// The compiler may begin with what new requests want. What it began with is proposed only if it is still wanted
    /// once they are admitted.
    pub(super) may_expect: bool,
    /// By name of the region. A job may have a thousand requests, and each is judged by all the others.
    newest: BTreeMap<&'a str, Newest<'a>>,
    /// Where each of the requests stands, in the same order; found once.
    standings: OnceCell<Vec<Standing>>,
    /// What requests want of regions, by name; found once.
    wanted: OnceCell<BTreeMap<&'a str, WantedWidth>>,
    /// See [`Circumstances::widths_in_force`].
    to_write: OnceCell<BTreeMap<u64, UnwrittenWidth>>,
}

/// The newest of the requests for a region that are not over without their widths.
#[derive(Clone, Copy, Default)]
struct Newest<'a> {
    /// The number of the newest one that does not wait for something else than its turn.
    number: u64,
    /// The newest one that is committed.
    come_through: Option<(u64, &'a Resize)>,
}

/// The width that is wanted of a region now: by the newest request that its spec does not have yet, else by its spec.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct WantedWidth {
    /// The width.
    width: u32,
    /// What is wanted instead if requests that may still be refused, or withdrawn, are. None, if no such request
    /// counts.
    otherwise: BTreeSet<u32>,
}

impl WantedWidth {
    /// This, and nothing else can come of it.
    fn decided(width: u32) -> Self {
        Self { width, otherwise: BTreeSet::new() }
    }

    /// A newer request wants this width.
    pub(super) fn newer(&mut self, width: u32) {
        self.otherwise.insert(self.width);
        self.width = width;
    }

    /// Whether somebody expects the right width. The width there is, if not; `None`, if that is not decided yet.
    pub(super) fn is_expected(&self, expected: u32) -> Option<Result<(), u32>> {
        let is_desired = self.width == expected;
        if self.otherwise.contains(&expected) || (is_desired && !self.otherwise.is_empty()) {
            return None;
        }
        Some(if is_desired { Ok(()) } else { Err(self.width) })
    }
}

/// Where a request stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// Nobody has admitted it.
    New,
    /// It is to be compiled.
    Open,
    /// The proposal has its widths.
    Proposed,
    /// This generation has its widths.
    InForce(u64, Option<ResizeChanges>),
    /// Somebody wants something else: it ends without its widths, for this reason, told people like this.
    Superseded(SupersededBy, &'static str, String),
    /// Somebody withdrew it: it ends without its widths.
    Withdrawn,
    /// Its phase is final.
    Over,
}

/// Reason of a request that ended because somebody edited a region.
pub(crate) const EDITED: &str = "RegionEdited";
/// Reason of a request that ended because of a newer one.
pub(crate) const NEWER_REQUEST: &str = "NewerRequest";
/// Reason of a request that somebody withdrew.
pub(crate) const WITHDRAWN: &str = "Withdrawn";

impl<'a> Circumstances<'a> {
    /// The circumstances of these requests: all of the job. Something may be under way for it, and nothing is expected.
    pub(crate) fn new(
        spec: &'a JobSpec,
        status: &'a JobStatus,
        regions: &[&'a ParallelRegion],
        requests: &'a [&'a Resize],
    ) -> Self {
        let mut newest: BTreeMap<&str, Newest<'_>> = BTreeMap::new();
        for request in requests.iter().copied() {
            let number = request.status.as_ref().and_then(|status| status.number);
            let Some(number) = number.filter(|_| !has_ended_without_widths(request)) else { continue };
            let has_come_through = matches!(request.phase(), ResizePhase::Written | ResizePhase::RolledOut)
                || status.commit_of(number).is_some();
            for wanted in &request.spec.regions {
                let newest = newest.entry(&wanted.name).or_default();
                if !waits_for_another_turn(request) {
                    newest.number = newest.number.max(number);
                }
                if has_come_through && newest.come_through.is_none_or(|(known, _)| known < number) {
                    newest.come_through = Some((number, request));
                }
            }
        }
        Self {
            status,
            regions: KnownRegions::of(spec, status, regions),
            requests,
            is_quiet: false,
            may_expect: false,
            newest,
            standings: OnceCell::new(),
            wanted: OnceCell::new(),
            to_write: OnceCell::new(),
        }
    }

    /// The same, when nothing is being compiled or proposed if `is_quiet`, and the compiler may begin with what new
    /// requests want if `may_expect`.
    pub(crate) fn with(self, is_quiet: bool, may_expect: bool) -> Self {
        Self {
            is_quiet,
            may_expect,
            standings: OnceCell::new(),
            wanted: OnceCell::new(),
            to_write: OnceCell::new(),
            ..self
        }
    }

    /// Where each of the requests stands, in their order.
    pub(super) fn standings(&self) -> &[Standing] {
        self.standings.get_or_init(|| self.requests.iter().map(|request| self.standing(request)).collect())
    }

    /// The requests, each with where it stands.
    pub(super) fn each(&self) -> impl Iterator<Item = (&'a Resize, &Standing)> {
        self.requests.iter().copied().zip(self.standings())
    }

    /// Of the regions that get another width by what is wanted: the cool-down that lasts longest.
    pub(super) fn cool_down(
        &self,
        applied: &BTreeMap<String, u32>,
        wanted: &BTreeMap<String, u32>,
        now: Timestamp,
    ) -> Option<CoolDown> {
        let changed = wanted.iter().filter(|(name, width)| applied.get(*name).is_some_and(|applied| applied != *width));
        CoolDown::longest(changed.filter_map(|(name, _)| self.regions.cool_down(name).cloned()), now)
    }

    /// The width that is wanted of a region.
    pub(super) fn wanted(&self, region: &ParallelRegion) -> WantedWidth {
        self.wanted_by_requests(region).cloned().unwrap_or_else(|| WantedWidth::decided(region.spec.width))
    }

    /// [`WantedWidth::is_expected`] of a region.
    pub(super) fn is_expected(&self, region: &ParallelRegion, expected: u32) -> Option<Result<(), u32>> {
        match self.wanted_by_requests(region) {
            Some(wanted) => wanted.is_expected(expected),
            None => WantedWidth::decided(region.spec.width).is_expected(expected),
        }
    }

    fn wanted_by_requests(&self, region: &ParallelRegion) -> Option<&WantedWidth> {
        self.wanted.get_or_init(|| self.all_wanted()).get(region.spec.name.as_str())
    }

    /// What requests want of regions whose specs do not have it yet.
    fn all_wanted(&self) -> BTreeMap<&'a str, WantedWidth> {
        // Number of the request, region, width, and whether the request may still end without it.
        let mut wishes: Vec<(u64, &'a ParallelRegion, u32, bool)> = Vec::new();
        for in_force in self.widths_in_force().into_values() {
            let region = self.regions.with_uid(&in_force.uid);
            wishes.extend(region.map(|region| (in_force.number, region, in_force.width, false)));
        }
        for (request, standing) in self.each() {
            let Some(number) = request.status.as_ref().and_then(|status| status.number) else { continue };
            match standing {
                Standing::Open | Standing::Proposed => {
                    // Nobody waits for the end of one that waits itself.
                    let is_open = !waits_for_another_turn(request);
                    let of_request = request.spec.regions.iter();
                    wishes.extend(
                        of_request.filter_map(|wanted| {
                            Some((number, self.regions.get(&wanted.name)?, wanted.width, is_open))
                        }),
                    );
                }
                Standing::New
                | Standing::InForce(..)
                | Standing::Superseded(..)
                | Standing::Withdrawn
                | Standing::Over => {}
            }
        }
        wishes.sort_by_key(|(number, ..)| *number);
        let mut all: BTreeMap<&str, WantedWidth> = BTreeMap::new();
        for (_, region, width, is_open) in wishes {
            let wanted = all.entry(&region.spec.name).or_insert_with(|| WantedWidth::decided(region.spec.width));
            if is_open {
                wanted.newer(width);
            } else {
                *wanted = WantedWidth::decided(width);
            }
        }
        all
    }

    /// Whether the committed generation is the one that a request expects, if it expects one.
    pub(super) fn has_expected_generation(&self, request: &Resize) -> bool {
        let committed = self.status.generation.unwrap_or_default();
        request.spec.expected_generation.is_none_or(|expected| expected == committed)
    }

    /// The applied width of a region.
    pub(super) fn applied(&self, name: &str) -> Option<u32> {
        self.regions.applied(name)
    }

    /// Where a request stands.
    fn standing(&self, request: &Resize) -> Standing {
        if request.phase().is_final() {
            return Standing::Over;
        }
        let Some((status, number)) = request.status.as_ref().and_then(|status| Some((status, status.number?))) else {
            return Standing::New;
        };
        if let (ResizePhase::Written, Some(generation)) = (request.phase(), status.generation) {
            return Standing::InForce(generation, status.changes);
        }
        if let Some(committed) = self.status.commit_of(number) {
            return Standing::InForce(committed.generation, Some(committed.changes));
        }
        if self.status.proposes(number) {
            return Standing::Proposed;
        }
        if request.is_withdrawn() {
            return Standing::Withdrawn;
        }
        if let Some(edited) = status.regions.iter().find(|admitted| self.is_edited_since(admitted)) {
            return self.superseded_by_edit(edited);
        }
        let newest = request.spec.regions.iter().filter_map(|wanted| self.newest.get(&*wanted.name));
        let come_through = newest.clone().filter_map(|newest| newest.come_through);
        if let Some((_, newer)) = come_through.filter(|(theirs, _)| *theirs > number).max_by_key(|(theirs, _)| *theirs)
        {
            return superseded_by_request(request, newer);
        }
        let is_applied = request.spec.regions.iter().all(|wanted| self.applied(&wanted.name) == Some(wanted.width));
        let is_met = is_applied && self.has_expected_generation(request);
        if is_met && self.is_quiet && newest.clone().all(|newest| newest.number <= number) {
            return Standing::InForce(self.status.generation.unwrap_or_default(), None);
        }
        Standing::Open
    }

    /// Somebody has edited the region, or deleted it.
    fn superseded_by_edit(&self, AdmittedRegion { name, uid, .. }: &AdmittedRegion) -> Standing {
        // The operator makes a region again that was deleted.
        let region = self.regions.get(name).filter(|region| region.metadata.uid.as_ref() == Some(uid));
        let (width, manager) = (region.map(|region| region.spec.width), region.and_then(width_manager));
        let message = match (width, &manager) {
            (None, _) => format!("region {name} was deleted after the request was admitted"),
            (Some(width), None) => {
                format!("the width of {name} was edited after the request was admitted: {width} is wanted")
            }
            (Some(width), Some(manager)) => {
                format!("the width of {name} was edited after the request was admitted: {manager} wants {width}")
            }
        };
        let by = SupersededBy { region: name.clone(), width, request: None, manager };
        Standing::Superseded(by, EDITED, message)
    }

    /// Somebody else has edited the region, or deleted it.
    fn is_edited_since(&self, admitted: &AdmittedRegion) -> bool {
        let region = self.regions.get(&admitted.name);
        region.is_none_or(|region| {
            region.metadata.uid.as_deref() != Some(&admitted.uid) || region.edited() > admitted.edited
        })
    }

    /// Widths of a request, as they would be written, but for regions that were edited since.
    fn widths_of(&self, request: &Resize, number: u64) -> Vec<UnwrittenWidth> {
        let admitted = request.status.iter().flat_map(|status| &status.regions);
        let widths: BTreeMap<&str, u32> =
            request.spec.regions.iter().map(|wanted| (wanted.name.as_str(), wanted.width)).collect();
        let of_request = admitted.filter_map(|AdmittedRegion { name, uid, edited }| {
            let region = self.regions.get(name)?;
            let is_edited = region.metadata.uid.as_ref() != Some(uid) || region.edited() > *edited;
            let width = widths.get(name.as_str()).filter(|_| !is_edited)?;
            Some(UnwrittenWidth { index: region.spec.index, uid: uid.clone(), edited: *edited, number, width: *width })
        });
        of_request.collect()
    }

    /// The spec of the region does not have this width yet, and nobody has edited it since.
    pub(super) fn is_unwritten(&self, unwritten: &UnwrittenWidth) -> bool {
        self.regions.with_uid(&unwritten.uid).is_some_and(|region| unwritten.is_still_unwritten_in(region))
    }

    /// Widths in force that are still to be written into specs: of each region that of the newest request, by index.
    /// Those of a commit are found in the status of the job, so that they outlive the requests.
    ///
    /// The spec may have the width of the newest one already, because nothing was written for the one before. Then
    /// nothing is: what the older one would write is not in force any more.
    pub(crate) fn widths_in_force(&self) -> BTreeMap<u64, UnwrittenWidth> {
        self.to_write().clone()
    }

    fn to_write(&self) -> &BTreeMap<u64, UnwrittenWidth> {
        self.to_write.get_or_init(|| self.all_to_write())
    }

    fn all_to_write(&self) -> BTreeMap<u64, UnwrittenWidth> {
        let recorded = self.status.unwritten_widths.iter().cloned();
        // One that says that it is written has nothing to write but what is recorded.
        let in_force = self.each().filter(|(_, standing)| matches!(standing, Standing::InForce(..)));
        let (written, told): (Vec<_>, Vec<_>) =
            in_force.map(|(request, _)| request).partition(|request| request.phase() == ResizePhase::Written);
        let of_all = |requests: Vec<&Resize>| newest(requests.into_iter().flat_map(|request| self.of_request(request)));
        let written = of_all(written);
        let mut in_force = newest(recorded.chain(of_all(told).into_values()));
        let is_outdone = |in_force: &UnwrittenWidth| {
            written.get(&in_force.index).is_some_and(|newer| newer.number > in_force.number)
        };
        in_force.retain(|_, in_force| self.is_unwritten(in_force) && !is_outdone(in_force));
        in_force
    }

    /// Widths that the commit of the proposal puts into force, in the same form, also those that their specs have.
    pub(super) fn widths_proposed(&self) -> BTreeMap<u64, UnwrittenWidth> {
        let proposed = self.each().filter(|(_, standing)| **standing == Standing::Proposed);
        let proposed = proposed.filter(|(request, _)| !request.is_withdrawn());
        newest(proposed.flat_map(|(request, _)| self.of_request(request)))
    }

    fn of_request(&self, request: &Resize) -> Vec<UnwrittenWidth> {
        let number = request.status.as_ref().and_then(|status| status.number);
        number.map_or_else(Vec::new, |number| self.widths_of(request, number))
    }

    /// Somebody has deleted a request that the proposal carries out, or it was told that its widths do not come: nobody
    /// had seen the proposal then, whose write was not answered.
    pub(super) fn misses_request_of_proposal(&self) -> bool {
        let stays = self.requests.iter().filter(|request| !has_ended_without_widths(request));
        let numbers: BTreeSet<u64> = stays.filter_map(|request| request.status.as_ref()?.number).collect();
        let proposal = self.status.proposal.as_ref();
        proposal.is_some_and(|proposal| proposal.resizes.iter().any(|number| !numbers.contains(number)))
    }

    /// What the request that stands like this should say of itself.
    pub(super) fn status_of(&self, request: &Resize, standing: &Standing) -> ResizeStatus {
        let before = request.status.clone().unwrap_or_default();
        let (number, phase_before) = (before.number.unwrap_or_default(), before.phase);
        match standing {
            Standing::New | Standing::Over => before,
            Standing::Open => ResizeStatus { generation: None, changes: None, ..saying(before, ResizePhase::Pending) },
            Standing::Proposed => {
                let generation = self.status.proposal.as_ref().map(|proposal| proposal.plan.generation);
                ResizeStatus { generation, changes: None, ..saying(before, ResizePhase::Planned) }
            }
            Standing::InForce(generation, changes) => {
                // What a newer request has outdone is not written.
                let is_written = phase_before == Some(ResizePhase::Written)
                    || self.to_write().values().all(|unwritten| unwritten.number != number);
                let rollout = self.status.rollout.as_ref();
                let is_rolled_out = self.status.generation.is_some_and(|committed| committed >= *generation)
                    && rollout
                        .is_some_and(|out| Some(out.generation) == self.status.generation && out.finished_at.is_some());
                let phase = match (is_written, is_rolled_out) {
                    (false, _) => ResizePhase::Planned,
                    (true, false) => ResizePhase::Written,
                    (true, true) => ResizePhase::RolledOut,
                };
                ResizeStatus { generation: Some(*generation), changes: *changes, ..saying(before, phase) }
            }
            Standing::Superseded(by, reason, message) => ResizeStatus {
                superseded_by: Some(by.clone()),
                ..without_widths(saying(before, ResizePhase::Superseded), reason, message.clone())
            },
            Standing::Withdrawn => {
                let message = "it was withdrawn before it was committed".to_owned();
                without_widths(saying(before, ResizePhase::Cancelled), WITHDRAWN, message)
            }
        }
    }
}

/// The status of a request in this phase that goes on.
fn saying(before: ResizeStatus, phase: ResizePhase) -> ResizeStatus {
    ResizeStatus { phase: Some(phase), reason: None, message: None, ..before }
}

/// Nobody has admitted the request.
pub(super) fn is_new(request: &Resize) -> bool {
    !request.phase().is_final() && request.status.as_ref().is_none_or(|status| status.number.is_none())
}

/// The request says that it has ended, and that its widths do not come.
pub(crate) fn has_ended_without_widths(request: &Resize) -> bool {
    request.phase().is_final() && request.phase() != ResizePhase::RolledOut
}

/// The request says that it waits for something else than for its turn: it may take long, and others go on.
fn waits_for_another_turn(request: &Resize) -> bool {
    let says_why = request.status.as_ref().is_some_and(|status| status.reason.is_some());
    says_why && request.phase() == ResizePhase::Pending
}

/// Of each region that of the newest request.
fn newest(unwritten: impl Iterator<Item = UnwrittenWidth>) -> BTreeMap<u64, UnwrittenWidth> {
    let mut newest: BTreeMap<u64, UnwrittenWidth> = BTreeMap::new();
    for unwritten in unwritten {
        let known = newest.entry(unwritten.index).or_insert_with(|| unwritten.clone());
        if known.number < unwritten.number {
            *known = unwritten;
        }
    }
    newest
}

/// A newer request, for one of the regions of this one, is in force.
fn superseded_by_request(request: &Resize, newer: &Resize) -> Standing {
    let names = |name: &str| request.spec.regions.iter().any(|wanted| wanted.name == name);
    let wanted = newer.spec.regions.iter().find(|wanted| names(&wanted.name)).cloned().unwrap_or_default();
    let by =
        SupersededBy { region: wanted.name, width: Some(wanted.width), request: Some(name_of(newer)), manager: None };
    let message = format!("the newer request {} names one of its regions", name_of(newer));
    Standing::Superseded(by, NEWER_REQUEST, message)
}

/// Who manages the width of a region: whoever edited it last, unless the operator has written it since.
fn width_manager(region: &ParallelRegion) -> Option<String> {
    let entries = region.metadata.managed_fields.iter().flatten();
    let last = entries.max_by_key(|entry| entry.time.as_ref().map(|time| time.0))?;
    last.manager.clone().filter(|manager| ![names::ELASTICITY_MANAGER, MANAGER.0].contains(&manager.as_str()))
}

fn without_widths(status: ResizeStatus, reason: &str, message: String) -> ResizeStatus {
    ResizeStatus { generation: None, changes: None, reason: Some(reason.to_owned()), message: Some(message), ..status }
}

/// The name of a request.
pub(crate) fn name_of(request: &Resize) -> String {
    request.metadata.name.clone().unwrap_or_default()
}

/// Whether the request is about this job.
pub(crate) fn is_of(request: &Resize, job: &Job) -> bool {
    job.metadata.name.as_ref() == Some(&request.spec.job_name)
}
