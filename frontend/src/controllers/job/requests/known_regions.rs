//! The regions of a job by their names, with what the job says of each.
//!
//! A job may have thousands of regions and a thousand requests for hundreds of them each. So nothing is looked for in a
//! list, and what is said of a region is found once for each look, when it is asked for first.
//!
//! Knows: regions, the spec and the status of the job. Must not know: requests.

use super::super::cool_down::CoolDown;
use super::super::widths::{Bounds, CurrentRegion, RegionEntries, refuse_within};
use std::cell::OnceCell;
use std::collections::BTreeMap;
use streams_api::{CommittedRegion, JobSpec, JobStatus, ParallelRegion};

/// The regions of a job that are there and stay.
pub(crate) struct KnownRegions<'a> {
    spec: &'a JobSpec,
    status: &'a JobStatus,
    entries: RegionEntries,
    by_name: BTreeMap<&'a str, KnownRegion<'a>>,
    by_uid: BTreeMap<&'a str, &'a ParallelRegion>,
    /// Applied widths by name, also of regions that are not there.
    applied: BTreeMap<&'a str, u32>,
}

/// One of them.
struct KnownRegion<'a> {
    region: &'a ParallelRegion,
    touches_consistent_region: bool,
    bounds: OnceCell<Bounds>,
    cool_down: OnceCell<Option<CoolDown>>,
}

impl<'a> KnownRegions<'a> {
    /// These regions of a job.
    pub(super) fn of(spec: &'a JobSpec, status: &'a JobStatus, regions: &[&'a ParallelRegion]) -> Self {
        let committed: BTreeMap<u64, &CommittedRegion> =
            status.regions.iter().map(|committed| (committed.index, committed)).collect();
        let mut by_name = BTreeMap::new();
        for region in regions.iter().copied() {
            let committed = committed.get(&region.spec.index);
            by_name.entry(region.spec.name.as_str()).or_insert_with(|| KnownRegion {
                region,
                touches_consistent_region: committed.is_some_and(|committed| committed.touches_consistent_region),
                bounds: OnceCell::new(),
                cool_down: OnceCell::new(),
            });
        }
        let by_uid = regions.iter().filter_map(|region| Some((region.metadata.uid.as_deref()?, *region))).collect();
        let applied = status.applied_widths.iter().map(|applied| (applied.region.as_str(), applied.width)).collect();
        Self { spec, status, entries: RegionEntries::of(spec), by_name, by_uid, applied }
    }

    /// All of them, by name.
    pub(super) fn all(&self) -> impl Iterator<Item = &'a ParallelRegion> + '_ {
        self.by_name.values().map(|known| known.region)
    }

    /// The region of this name.
    pub(super) fn get(&self, name: &str) -> Option<&'a ParallelRegion> {
        self.by_name.get(name).map(|known| known.region)
    }

    /// The region with this uid.
    pub(super) fn with_uid(&self, uid: &str) -> Option<&'a ParallelRegion> {
        self.by_uid.get(uid).copied()
    }

    /// The applied width of a region.
    pub(super) fn applied(&self, name: &str) -> Option<u32> {
        self.applied.get(name).copied()
    }

    /// The bounds of a region.
    pub(super) fn bounds(&self, name: &str) -> Bounds {
        let found = || self.entries.bounds(self.spec, name);
        self.by_name.get(name).map_or_else(found, |known| *known.bounds.get_or_init(found))
    }

    /// Why the frontend refuses a width of a region, if it does (rule elasticity-2).
    pub(super) fn refused(&self, name: &str, width: u32) -> Option<(&'static str, String)> {
        let known = self.by_name.get(name)?;
        let touches_consistent_region = known.touches_consistent_region;
        let current = CurrentRegion { name, width: self.applied(name)?, touches_consistent_region };
        refuse_within(|| self.bounds(name), current, width).map(|refused| (refused.reason, refused.message))
    }

    /// The cool-down of a region, past or not (rule elasticity-25).
    pub(super) fn cool_down(&self, name: &str) -> Option<&CoolDown> {
        let known = self.by_name.get(name)?;
        let found = || {
            let seconds = self.entries.cool_down_seconds(self.spec, name);
            CoolDown::by(seconds, self.applied(name)?, self.status, known.region)
        };
        known.cool_down.get_or_init(found).as_ref()
    }
}
