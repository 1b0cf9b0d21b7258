//! Until when the width of a region stays after it has changed (rule elasticity-25). Pure.
//!
//! When a width changed last is in the statuses of the job and of the region, so it counts whoever leads.
//!
//! Knows: the spec, both statuses. Must not know: who wants which width.

use super::widths::{RegionEntries, cool_down_seconds};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use std::collections::BTreeMap;
use streams_api::{JobSpec, JobStatus, ParallelRegion};

/// Reason of what waits for the end of a cool-down.
pub(crate) const COOLING_DOWN: &str = "CoolingDown";

/// The end of a cool-down.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CoolDown {
    /// Name of the region.
    region: String,
    changed_at: Timestamp,
    /// From then on the width may change.
    pub(crate) until: Timestamp,
}

impl CoolDown {
    /// That of a region, past or not; `None` if the job sets none, or the width has not changed.
    pub(crate) fn of(spec: &JobSpec, status: &JobStatus, region: &ParallelRegion) -> Option<Self> {
        let name = &region.spec.name;
        let applied = status.applied_width(name)?;
        Self::by(cool_down_seconds(spec, name), applied, status, region)
    }

    /// The same of a region whose `coolDownSeconds` and applied width are known.
    pub(crate) fn by(seconds: Option<u32>, applied: u32, status: &JobStatus, region: &ParallelRegion) -> Option<Self> {
        let name = &region.spec.name;
        let seconds = seconds.filter(|seconds| *seconds > 0)?;
        let said = region.status.clone().unwrap_or_default();
        let changed_at = said.last_resize_by(status, region.spec.index, Some(applied))?.committed_at?.0;
        let until = changed_at.checked_add(SignedDuration::from_secs(seconds.into())).unwrap_or(Timestamp::MAX);
        Some(Self { region: name.clone(), changed_at, until })
    }

    /// Of the regions that get another width by these: the one that has to wait longest.
    pub(crate) fn in_the_way<'a>(
        spec: &JobSpec,
        status: &JobStatus,
        region: impl Fn(&str) -> Option<&'a ParallelRegion>,
        applied: &BTreeMap<String, u32>,
        wanted: &BTreeMap<String, u32>,
        now: Timestamp,
    ) -> Option<Self> {
        let entries = RegionEntries::of(spec);
        let changed = wanted.iter().filter_map(|(name, width)| {
            let applied = applied.get(name).filter(|applied| *applied != width)?;
            Self::by(entries.cool_down_seconds(spec, name), *applied, status, region(name)?)
        });
        Self::longest(changed, now)
    }

    /// The one of these that lasts longest, if any of them is not past.
    pub(crate) fn longest(cool_downs: impl Iterator<Item = Self>, now: Timestamp) -> Option<Self> {
        cool_downs.filter(|cooling| now < cooling.until).max_by_key(|cooling| cooling.until)
    }

    /// One sentence.
    pub(crate) fn message(&self) -> String {
        let Self { region, changed_at, until } = self;
        format!("the width of {region} changed at {changed_at:.0} and stays until {until:.0} (coolDownSeconds)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
    use streams_api::{
        BundleReference, InitialWidth, LastResize, ParallelRegionSpec, ParallelRegionStatus, RegionWidth, Rollout,
    };

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn region(name: &str, width: u32, changed_at: Option<i64>) -> ParallelRegion {
        let spec = ParallelRegionSpec { name: name.to_owned(), ..ParallelRegionSpec::default() };
        let mut region = ParallelRegion::new(name, spec);
        let last_resize = changed_at.map(|second| LastResize {
            generation: 3,
            from: 1,
            to: width,
            committed_at: Some(MicroTime(at(second))),
            rolled_out_at: None,
        });
        region.status =
            Some(ParallelRegionStatus { width: Some(width), last_resize, ..ParallelRegionStatus::default() });
        region
    }

    fn spec(entries: &[(&str, Option<u32>)]) -> JobSpec {
        let mut spec = JobSpec::of(BundleReference::default());
        let entry = |(name, seconds): &(&str, Option<u32>)| InitialWidth {
            name: Some((*name).to_owned()),
            cool_down_seconds: *seconds,
            ..InitialWidth::default()
        };
        spec.parallel_regions = entries.iter().map(entry).collect();
        spec
    }

    /// Generation 4 was committed in second 200, with width 2 of A and B.
    fn status() -> JobStatus {
        let width = |name: &str| RegionWidth { region: name.to_owned(), width: 2 };
        let started_at = Some(MicroTime(at(200)));
        JobStatus {
            generation: Some(4),
            applied_widths: vec![width("A"), width("B")],
            rollout: Some(Rollout { generation: 4, started_at, ..Rollout::default() }),
            ..JobStatus::default()
        }
    }

    #[test]
    fn a_width_stays_for_a_while_after_it_has_changed() {
        let forever = u32::MAX;
        // entries of the job, width and time of the last change that the region says -> until when it stays
        let table: [(&[(&str, Option<u32>)], _, _, Option<i64>); 9] = [
            (&[("A", Some(30))], 2, Some(100), Some(130)),
            (&[("*", Some(10)), ("A", Some(30))], 2, Some(100), Some(130)),
            (&[("B", Some(30)), ("*", Some(10))], 2, Some(100), Some(110)),
            // An entry without a cool-down takes none away, and one of nothing does.
            (&[("A", None), ("*", Some(10))], 2, Some(100), Some(110)),
            (&[("A", Some(0)), ("*", Some(10))], 2, Some(100), None),
            (&[("A", Some(0))], 2, Some(100), None),
            (&[("A", Some(30))], 2, None, None),
            // The region has not said yet that its width changed.
            (&[("A", Some(30))], 1, Some(100), Some(230)),
            (&[("A", Some(forever))], 2, Some(100), Some(100 + i64::from(forever))),
        ];
        for (entries, width, changed_at, expected) in table {
            let found = CoolDown::of(&spec(entries), &status(), &region("A", width, changed_at));
            assert_eq!(found.map(|found| found.until), expected.map(at), "{entries:?} {width} {changed_at:?}");
        }
    }

    #[test]
    fn only_another_width_has_to_wait_for_the_longest_cool_down() {
        let regions = [region("A", 2, Some(100)), region("B", 2, Some(110))];
        let spec = spec(&[("*", Some(30))]);
        let widths = |of: &[(&str, u32)]| of.iter().map(|(name, width)| ((*name).to_owned(), *width)).collect();
        let applied: BTreeMap<String, u32> = widths(&[("A", 2), ("B", 2)]);
        // now, wanted -> region that is waited for
        let table: [(i64, &[(&str, u32)], Option<&str>); 7] = [
            (120, &[("A", 3)], Some("A")),
            (120, &[("A", 3), ("B", 3)], Some("B")),
            (120, &[("A", 3), ("B", 2)], Some("A")),
            (120, &[("A", 2)], None),
            (129, &[("A", 3)], Some("A")),
            (130, &[("A", 3)], None),
            (130, &[("A", 3), ("B", 1)], Some("B")),
        ];
        for (now, wanted, expected) in table {
            let region = |name: &str| regions.iter().find(|region| region.spec.name == name);
            let found = CoolDown::in_the_way(&spec, &status(), region, &applied, &widths(wanted), at(now));
            assert_eq!(found.as_ref().map(|found| found.region.as_str()), expected, "{now} {wanted:?}");
            if let Some(found) = found {
                let (region, until) = (&found.region, found.until);
                assert!(found.message().contains(&format!("{region} changed")) && now < until.as_second());
            }
        }
    }
}
