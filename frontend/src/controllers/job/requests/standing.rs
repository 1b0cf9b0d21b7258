//! How far requests have come, by the status of the job and the regions as they are. Pure.

use std::collections::BTreeMap;
use streams_api::{
    AdmittedRegion, Job, JobStatus, ParallelRegion, RegionWidth, Resize, ResizeChanges, ResizePhase, ResizeStatus,
    WidthOfResize,
};

/// What requests are judged by.
#[derive(Clone, Copy)]
pub(crate) struct Circumstances<'a> {
    /// The status of the job.
    pub(crate) status: &'a JobStatus,
    /// The regions of the job that are there and stay.
    pub(crate) regions: &'a [&'a ParallelRegion],
    /// All requests of the job.
    pub(crate) requests: &'a [&'a Resize],
    /// Nothing is being compiled or proposed.
    pub(crate) is_quiet: bool,
    /// The compiler may begin with what new requests want. What it began with is proposed only if it is still wanted
    /// once they are admitted.
    pub(crate) may_expect: bool,
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
    /// It ends without its widths.
    Ended(ResizePhase, &'static str, String),
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
    pub(super) fn region(&self, name: &str) -> Option<&'a ParallelRegion> {
        self.regions.iter().copied().find(|region| region.spec.name == name)
    }

    /// The applied width of a region.
    pub(crate) fn applied(&self, name: &str) -> Option<u32> {
        let applied: &[RegionWidth] = &self.status.applied_widths;
        applied.iter().find(|applied| applied.region == name).map(|applied| applied.width)
    }

    /// Where a request stands.
    pub(crate) fn standing(&self, request: &Resize) -> Standing {
        let status = request.status.clone().unwrap_or_default();
        if request.phase().is_final() {
            return Standing::Over;
        }
        let Some(number) = status.number else { return Standing::New };
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
            let message = "it was withdrawn before it was committed".to_owned();
            return Standing::Ended(ResizePhase::Cancelled, WITHDRAWN, message);
        }
        if let Some(edited) = status.regions.iter().find(|admitted| self.is_edited_since(admitted)) {
            let message = match self.region(&edited.name) {
                Some(region) => {
                    let width = region.spec.width;
                    format!("the width of {} was edited after the request was admitted: {width} is wanted", edited.name)
                }
                None => format!("region {} was deleted after the request was admitted", edited.name),
            };
            return Standing::Ended(ResizePhase::Superseded, EDITED, message);
        }
        let newer = self.newer(request, number);
        if let Some((newer, _)) = newer.iter().find(|(newer, theirs)| self.has_come_through(newer, *theirs)) {
            let message = format!("the newer request {} names one of its regions", name_of(newer));
            return Standing::Ended(ResizePhase::Superseded, NEWER_REQUEST, message);
        }
        let is_applied = request.spec.regions.iter().all(|wanted| self.applied(&wanted.name) == Some(wanted.width));
        if is_applied && self.is_quiet && newer.is_empty() {
            return Standing::InForce(self.status.generation.unwrap_or_default(), None);
        }
        Standing::Open
    }

    /// Newer requests for one of its regions that are not over without their widths.
    fn newer(&self, request: &Resize, number: u64) -> Vec<(&'a Resize, u64)> {
        let names = |name: &str| request.spec.regions.iter().any(|wanted| wanted.name == name);
        let concerns = |newer: &Resize| newer.spec.regions.iter().any(|wanted| names(&wanted.name));
        let fails = |newer: &Resize| newer.phase().is_final() && newer.phase() != ResizePhase::RolledOut;
        let others = self.requests.iter().copied();
        let numbered = others.filter_map(|other| Some((other, other.status.as_ref()?.number?)));
        numbered.filter(|(other, theirs)| *theirs > number && !fails(other) && concerns(other)).collect()
    }

    fn has_come_through(&self, request: &Resize, number: u64) -> bool {
        matches!(request.phase(), ResizePhase::Written | ResizePhase::RolledOut)
            || self.status.commit_of(number).is_some()
    }

    /// Somebody else has edited the region, or deleted it.
    fn is_edited_since(&self, admitted: &AdmittedRegion) -> bool {
        let region = self.region(&admitted.name);
        region.is_none_or(|region| {
            region.metadata.uid.as_deref() != Some(&admitted.uid) || region.edited() > admitted.edited
        })
    }

    /// Widths of a request in force that the specs of its regions do not have yet.
    pub(super) fn unwritten(&self, request: &Resize, number: u64) -> Vec<(&'a ParallelRegion, u32)> {
        let admitted = request.status.iter().flat_map(|status| &status.regions);
        let untouched = admitted.filter(|admitted| !self.is_edited_since(admitted));
        let unwritten = untouched.filter_map(|admitted| {
            let region = self.region(&admitted.name)?;
            let wanted = request.spec.regions.iter().find(|wanted| wanted.name == admitted.name)?;
            let is_written = WidthOfResize::of(region).is_some_and(|written| written.number >= number);
            (!is_written && region.spec.width != wanted.width).then_some((region, wanted.width))
        });
        unwritten.collect()
    }

    /// Widths in force that are to be written into specs: of each region that of the newest request.
    pub(crate) fn widths_to_write(&self) -> BTreeMap<u64, WidthToWrite> {
        let mut to_write: BTreeMap<u64, WidthToWrite> = BTreeMap::new();
        for request in self.requests.iter().copied() {
            let Some(number) = request.status.as_ref().and_then(|status| status.number) else { continue };
            if request.phase() == ResizePhase::Written || !matches!(self.standing(request), Standing::InForce(..)) {
                continue;
            }
            for (region, width) in self.unwritten(request, number) {
                let write = WidthToWrite { region: region.spec.name.clone(), number, width };
                let newest = to_write.entry(region.spec.index).or_insert_with(|| write.clone());
                if newest.number < number {
                    *newest = write;
                }
            }
        }
        to_write
    }

    /// What the request should say of itself.
    pub(crate) fn status_of(&self, request: &Resize) -> ResizeStatus {
        let before = request.status.clone().unwrap_or_default();
        let number = before.number.unwrap_or_default();
        let says = |phase| ResizeStatus { phase: Some(phase), reason: None, message: None, ..before.clone() };
        match self.standing(request) {
            Standing::New | Standing::Over => before,
            Standing::Open => ResizeStatus { generation: None, changes: None, ..says(ResizePhase::Pending) },
            Standing::Proposed => {
                let generation = self.status.proposal.as_ref().map(|proposal| proposal.plan.generation);
                ResizeStatus { generation, changes: None, ..says(ResizePhase::Planned) }
            }
            Standing::InForce(generation, changes) => {
                let is_written =
                    before.phase == Some(ResizePhase::Written) || self.unwritten(request, number).is_empty();
                let rollout = self.status.rollout.as_ref();
                let is_rolled_out = self.status.generation.is_some_and(|committed| committed >= generation)
                    && rollout
                        .is_some_and(|out| Some(out.generation) == self.status.generation && out.finished_at.is_some());
                let phase = match (is_written, is_rolled_out) {
                    (false, _) => ResizePhase::Planned,
                    (true, false) => ResizePhase::Written,
                    (true, true) => ResizePhase::RolledOut,
                };
                ResizeStatus { generation: Some(generation), changes, ..says(phase) }
            }
            Standing::Ended(phase, reason, message) => ResizeStatus {
                generation: None,
                changes: None,
                reason: Some(reason.to_owned()),
                message: Some(message),
                ..says(phase)
            },
        }
    }
}

/// A width in force that the spec of a region does not have yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WidthToWrite {
    /// Name of the region.
    pub(crate) region: String,
    /// Number of the request.
    pub(crate) number: u64,
    /// The width.
    pub(crate) width: u32,
}

/// The name of a request.
pub(crate) fn name_of(request: &Resize) -> String {
    request.metadata.name.clone().unwrap_or_default()
}

/// Whether the request is about this job.
pub(crate) fn is_of(request: &Resize, job: &Job) -> bool {
    job.metadata.name.as_ref() == Some(&request.spec.job_name)
}
