//! Computes the desired widths of the regions of a job (rule elasticity-1), and refuses some of them without calling
//! the compiler. Pure.
//!
//! Knows: the spec, bounds, regions and what is noted there that somebody asked for. Must not know: objects that ask
//! for a resize, what the compiler says.

use super::generation::Generation;
use std::collections::{BTreeMap, BTreeSet};
use streams_api::{InitialWidth, JobSpec, ParallelRegion, RequestedWidths};
use streams_proto::fusion::v1::{ParallelRegion as PlannedRegion, Plan};
use streams_region_names::{Pattern, Patterns};

/// Desired and refused widths.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Widths {
    /// The width to compile each region for: the desired one, or the applied one if the desired width was refused or is
    /// not set.
    pub(crate) desired: BTreeMap<String, u32>,
    /// What is refused.
    pub(crate) refused: BTreeMap<String, RefusedWidth>,
    /// Widths of a request that are not in the specs of their regions yet, by index of the region.
    pub(crate) to_take_over: BTreeMap<u64, u32>,
}

/// A width that is refused without asking the compiler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RefusedWidth {
    /// The width.
    pub(crate) width: u32,
    /// One word in CamelCase.
    pub(crate) reason: &'static str,
    /// One sentence.
    pub(crate) message: String,
}

/// Reason of the refusal of a width that is out of its bounds.
pub(crate) const OUT_OF_BOUNDS: &str = "OutOfBounds";
/// Reason of the refusal of a region that a consistent region is in or next to.
pub(crate) const CONSISTENT_REGION: &str = "ConsistentRegion";

/// Entries that a message lists.
const LISTED: usize = 10;

/// A region as it is in the committed generation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CurrentRegion<'a> {
    /// Its logical name.
    pub(crate) name: &'a str,
    /// The applied width.
    pub(crate) width: u32,
    /// A consistent region is in it or next to it.
    pub(crate) touches_consistent_region: bool,
}

/// The desired widths by the specs of region objects and by the newest request. A region object that a user has
/// deleted, or is deleting, has no desired width.
pub(crate) fn widths<'a>(
    spec: &JobSpec,
    generation: &Generation,
    regions: impl IntoIterator<Item = &'a ParallelRegion> + Clone,
    to_write: &BTreeMap<u64, u32>,
) -> Widths {
    let request = RequestedWidths::read(regions.clone());
    let entries = RegionEntries::of(spec);
    let mut widths = Widths::default();
    let mut asked = BTreeMap::new();
    for region in regions.into_iter().filter(|region| region.metadata.deletion_timestamp.is_none()) {
        let requested = request.as_ref().and_then(|request| request.pending(region));
        if let Some(width) = requested {
            widths.to_take_over.insert(region.spec.index, width);
        }
        // What a request in force wants is as good as written.
        let in_force = to_write.get(&region.spec.index).copied();
        asked.insert(region.spec.name.as_str(), in_force.or(requested).unwrap_or(region.spec.width));
    }
    for planned in &generation.plan.parallel_regions {
        let width = asked.get(planned.name.as_str()).copied().unwrap_or(planned.width);
        let current = CurrentRegion {
            name: &planned.name,
            width: planned.width,
            touches_consistent_region: planned.touches_consistent_region,
        };
        let bounds = || entries.bounds(spec, &planned.name);
        let in_force = match refuse_within(bounds, current, width) {
            None => width,
            Some(refused) => {
                widths.refused.insert(planned.name.clone(), refused);
                planned.width
            }
        };
        widths.desired.insert(planned.name.clone(), in_force);
    }
    widths
}

/// Why a region may not have this width, before the compiler is called (rule elasticity-2).
pub(crate) fn refuse(spec: &JobSpec, region: CurrentRegion<'_>, width: u32) -> Option<RefusedWidth> {
    refuse_within(|| bounds(spec, region.name), region, width)
}

/// The same for whoever looks at many widths, and finds the bounds of a region once.
pub(crate) fn refuse_within(
    bounds: impl FnOnce() -> Bounds,
    region: CurrentRegion<'_>,
    width: u32,
) -> Option<RefusedWidth> {
    if width == region.width {
        return None;
    }
    let name = region.name;
    let refused = |reason, message| Some(RefusedWidth { width, reason, message });
    if region.touches_consistent_region {
        // Checkpointed state cannot be moved between channels.
        let message = format!("{name} cannot be resized while the job runs: a consistent region is in or next to it");
        return refused(CONSISTENT_REGION, message);
    }
    bounds().excluded(name, width).and_then(|message| refused(OUT_OF_BOUNDS, message))
}

/// Why a job must not be submitted with these widths: one that an entry gives to a region is out of the bounds that
/// count for it (rule job-31). Those of the same entry the API server has checked.
pub(crate) fn out_of_bounds(spec: &JobSpec, plan: &Plan) -> Option<String> {
    let (widths, bounds) = (Entries::with(spec, |entry| entry.width.is_some()), Entries::with(spec, has_bounds));
    plan.parallel_regions.iter().find_map(|PlannedRegion { name, .. }| {
        let width = widths.find(spec, name)?.width?;
        bounds.find(spec, name).map(Bounds::of)?.excluded(name, width)
    })
}

/// What [`out_of_bounds`] reads of a spec beside names and widths of entries: names and bounds of those that have
/// bounds, in their order. Nothing if no entry has a width.
pub(crate) fn bounds_of_widths(spec: &JobSpec) -> Vec<(&str, Option<u32>, Option<u32>)> {
    if spec.parallel_regions.iter().all(|entry| entry.width.is_none()) {
        return Vec::new();
    }
    let bounded = spec.parallel_regions.iter().filter(|entry| has_bounds(entry));
    bounded.map(|entry| (entry.name(), entry.min_width, entry.max_width)).collect()
}

/// What users should know of bounds that count for no region of the generation. Of entries with a width or a
/// `channelCount` the compiler tells it.
pub(crate) fn unmatched_bounds(spec: &JobSpec, generation: &Generation) -> Option<(String, String)> {
    let unmatched = spec.parallel_regions.iter().filter(|entry| entry.width.is_none() && entry.channel_count.is_none());
    let names: Vec<_> = unmatched.filter(|entry| !matches_some(entry, generation)).map(quoted).collect();
    let message = format!("no parallel region matches {}: bounds without effect", listed(&names));
    (!names.is_empty()).then(|| ("UnmatchedRegion".to_owned(), message))
}

/// What users should know of bounds and cool-downs that count for no region of the generation although some match:
/// other entries that have the same go before.
pub(crate) fn overruled(spec: &JobSpec, generation: &Generation) -> Option<(String, String)> {
    let regions = &generation.plan.parallel_regions;
    let mut words = Vec::new();
    for (what, has) in [("bounds", has_bounds as fn(&InitialWidth) -> bool), ("coolDownSeconds", has_cool_down)] {
        let entries = Entries::with(spec, has);
        let count: BTreeSet<usize> = regions.iter().filter_map(|region| entries.position(&region.name)).collect();
        let idle = entries.positions.iter().filter(|position| !count.contains(position));
        let idle = idle.filter_map(|position| spec.parallel_regions.get(*position));
        let names: Vec<_> = idle.filter(|entry| matches_some(entry, generation)).map(quoted).collect();
        if !names.is_empty() {
            words.push(format!("{what} of {}", listed(&names)));
        }
    }
    let message = format!("without effect, because other entries go before: {}", words.join("; "));
    (!words.is_empty()).then(|| ("EntryOverruled".to_owned(), message))
}

/// Whether the name or pattern of the entry matches a region of the generation.
fn matches_some(entry: &InitialWidth, generation: &Generation) -> bool {
    let pattern = Pattern::parse(entry.name());
    let mut regions = generation.plan.parallel_regions.iter();
    pattern.is_ok_and(|pattern| regions.any(|region| pattern.matches(&region.name)))
}

fn quoted(entry: &InitialWidth) -> String {
    format!("\"{}\"", entry.name())
}

/// The first of the names.
pub(crate) fn listed(names: &[String]) -> String {
    let more = if names.len() > LISTED { ", ..." } else { "" };
    format!("{}{more}", names.get(..LISTED).unwrap_or(names).join(", "))
}

/// Between which widths a region may have one; not set: any.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Bounds {
    /// The smallest.
    pub(crate) min_width: Option<u32>,
    /// The largest.
    pub(crate) max_width: Option<u32>,
}

fn has_bounds(entry: &InitialWidth) -> bool {
    entry.min_width.is_some() || entry.max_width.is_some()
}

fn has_cool_down(entry: &InitialWidth) -> bool {
    entry.cool_down_seconds.is_some()
}

/// The bounds of a region.
pub(crate) fn bounds(spec: &JobSpec, region: &str) -> Bounds {
    Entries::with(spec, has_bounds).find(spec, region).map(Bounds::of).unwrap_or_default()
}

/// How many seconds the width of a region stays after it has changed; not set: none.
pub(crate) fn cool_down_seconds(spec: &JobSpec, region: &str) -> Option<u32> {
    Entries::with(spec, has_cool_down).find(spec, region)?.cool_down_seconds
}

impl Bounds {
    fn of(entry: &InitialWidth) -> Self {
        Self { min_width: entry.min_width, max_width: entry.max_width }
    }

    /// Why a region may not have this width, in words.
    fn excluded(self, name: &str, width: u32) -> Option<String> {
        match (self.min_width, self.max_width) {
            (Some(least), _) if width < least => {
                Some(format!("width {width} of {name} is less than its minWidth {least}"))
            }
            (_, Some(most)) if width > most => {
                Some(format!("width {width} of {name} is greater than its maxWidth {most}"))
            }
            _ => None,
        }
    }
}

/// The entries of a job that say something, by the names of regions. One that does not say it goes before none that
/// does: as the compiler looks up widths among the entries with a width (rule expansion-2).
struct Entries {
    patterns: Patterns,
    /// Where they are among all entries.
    positions: Vec<usize>,
}

impl Entries {
    /// Those of this job that have it.
    fn with(spec: &JobSpec, has: impl Fn(&InitialWidth) -> bool) -> Self {
        let entries = spec.parallel_regions.iter().enumerate().filter(|(_, entry)| has(entry));
        let (positions, names): (Vec<_>, Vec<_>) = entries.map(|(position, entry)| (position, entry.name())).unzip();
        Self { patterns: Patterns::parse(names).0, positions }
    }

    /// Where the one is that counts for a region.
    fn position(&self, region: &str) -> Option<usize> {
        self.positions.get(self.patterns.position(region)?).copied()
    }

    /// The entry of the same job that counts for a region.
    fn find<'a>(&self, spec: &'a JobSpec, region: &str) -> Option<&'a InitialWidth> {
        spec.parallel_regions.get(self.position(region)?)
    }
}

/// What the entries of a job say of its regions, for who looks at many of them.
pub(crate) struct RegionEntries {
    bounds: Entries,
    cool_downs: Entries,
}

impl RegionEntries {
    /// Those of this job.
    pub(crate) fn of(spec: &JobSpec) -> Self {
        Self { bounds: Entries::with(spec, has_bounds), cool_downs: Entries::with(spec, has_cool_down) }
    }

    /// The bounds of a region of the same job.
    pub(crate) fn bounds(&self, spec: &JobSpec, region: &str) -> Bounds {
        self.bounds.find(spec, region).map(Bounds::of).unwrap_or_default()
    }

    /// How many seconds the width of a region of the same job stays after it has changed.
    pub(crate) fn cool_down_seconds(&self, spec: &JobSpec, region: &str) -> Option<u32> {
        self.cool_downs.find(spec, region)?.cool_down_seconds
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controllers::job::generation::{GenerationDetails, Target};
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use streams_api::{BundleReference, ParallelRegionSpec, RequestedWidth, names};
    use streams_proto::fusion::v1::{Compilation, ParallelRegion as Planned};

    #[test]
    fn bounds_are_found_as_the_compiler_finds_widths() {
        // names of entries, region -> position of the entry that counts
        let table: [(&[&str], &str, Option<usize>); 9] = [
            (&["A.R", "*"], "A.R", Some(0)),
            (&["*", "A.*"], "A.R", Some(1)),
            (&["A.*", "*"], "A.R", Some(1)),
            (&["*.S"], "A.R", None),
            // Blanks of ASCII do not count: this is the exact name.
            (&["A . R", "*"], "A.R", Some(0)),
            (&["A.R", " A.R"], "A.R", Some(1)),
            // Other blanks, and characters that no name has, are no part of a pattern: such an entry selects nothing.
            (&["A.\u{a0}R", "A\u{2003}*"], "A.R", None),
            (&["*", "A.?", "A-*"], "A.R", Some(0)),
            (&["A.*", "A-B"], "A-B", None),
        ];
        for (names, region, expected) in table {
            let mut spec = JobSpec::of(BundleReference::default());
            let entries = (1..).zip(names).map(|(position, name)| bounded(name, Some(position), None));
            spec.parallel_regions = entries.collect();
            let least = expected.map(|position| u32::try_from(position + 1).unwrap());
            assert_eq!(bounds(&spec, region).min_width, least, "{names:?} {region}");
        }
    }

    #[test]
    fn a_job_is_not_submitted_with_a_width_that_bounds_of_another_entry_exclude() {
        let wide = |name: &str, width| InitialWidth {
            name: Some(name.to_owned()),
            width: Some(width),
            ..InitialWidth::default()
        };
        // entries; A.R has width 8, be it of the application -> whether it is refused
        let table = [
            (vec![wide("A.R", 8), bounded("*", None, Some(4))], true),
            (vec![wide("A.R", 8), bounded("*", Some(9), None)], true),
            (vec![wide("*", 8), bounded("A.R", None, Some(4))], true),
            (vec![wide("A.R", 8), bounded("*", None, Some(4)), bounded("A.R", None, Some(8))], false),
            (vec![wide("A.R", 8), bounded("A.S", None, Some(4))], false),
            // What the application says is no contradiction.
            (vec![bounded("*", None, Some(4))], false),
            (vec![wide("A.S", 8), bounded("*", None, Some(4))], false),
        ];
        for (entries, expected) in table {
            let mut spec = JobSpec::of(BundleReference::default());
            spec.parallel_regions = entries.clone();
            let region = Planned { name: "A.R".to_owned(), width: 8, ..Planned::default() };
            let plan = Plan { parallel_regions: vec![region], ..Plan::default() };
            assert_eq!(out_of_bounds(&spec, &plan).is_some(), expected, "{entries:?}");
        }
    }

    #[test]
    fn an_entry_takes_over_from_others_only_what_it_says() {
        let entry = |name: &str, min_width, max_width, cool_down_seconds| InitialWidth {
            cool_down_seconds,
            ..bounded(name, min_width, max_width)
        };
        let width = InitialWidth { name: Some("A.R".to_owned()), width: Some(3), ..InitialWidth::default() };
        let all = entry("*", None, Some(8), Some(60));
        // entries -> least and greatest width of A.R, its cool-down, what is told of entries without effect
        type Row = (Vec<InitialWidth>, (Option<u32>, Option<u32>, Option<u32>), Option<&'static str>);
        let table: [Row; 6] = [
            (vec![all.clone(), entry("A.R", None, None, Some(30))], (None, Some(8), Some(30)), None),
            (vec![all.clone(), width], (None, Some(8), Some(60)), None),
            // Both bounds together, and a cool-down of nothing is one.
            (vec![all.clone(), entry("A.R", Some(2), None, Some(0))], (Some(2), None, Some(0)), None),
            (
                vec![all.clone(), entry("A.*", None, None, Some(5))],
                (None, Some(8), Some(5)),
                Some("coolDownSeconds of \"*\""),
            ),
            (
                vec![entry("A.*", Some(2), None, None), entry("*", None, Some(4), None), all.clone()],
                (None, Some(8), Some(60)),
                Some("bounds of \"A.*\", \"*\""),
            ),
            (vec![entry("B", Some(2), None, None)], (None, None, None), None),
        ];
        for (entries, expected, told) in table {
            let mut spec = JobSpec::of(BundleReference::default());
            spec.parallel_regions = entries;
            let (bounds, cool_down) = (bounds(&spec, "A.R"), cool_down_seconds(&spec, "A.R"));
            let context = format!("{:?}", spec.parallel_regions);
            assert_eq!((bounds.min_width, bounds.max_width, cool_down), expected, "{context}");
            let entries = RegionEntries::of(&spec);
            let found = (entries.bounds(&spec, "A.R"), entries.cool_down_seconds(&spec, "A.R"));
            assert_eq!(found, (bounds, cool_down), "{context}");
            let message = overruled(&spec, &generation(false)).map(|(_, message)| message);
            match (&message, told) {
                (None, None) => {}
                (Some(message), Some(part)) => assert!(message.ends_with(part), "{message}"),
                _ => panic!("{message:?}, expected {told:?}"),
            }
        }
    }

    fn generation(consistent: bool) -> Generation {
        let region = |index, name: &str, touches_consistent_region| Planned {
            index,
            name: name.to_owned(),
            width: 2,
            touches_consistent_region,
            ..Planned::default()
        };
        let plan =
            Plan { parallel_regions: vec![region(0, "A.R", consistent), region(1, "A.S", false)], ..Plan::default() };
        let target = Target::Submission { inputs: String::new() };
        Generation::following(None, target, Compilation::default(), plan, GenerationDetails::default())
    }

    fn object(name: &str, width: u32) -> ParallelRegion {
        ParallelRegion::new(name, ParallelRegionSpec { name: name.to_owned(), width, ..ParallelRegionSpec::default() })
    }

    fn bounded(name: &str, min_width: Option<u32>, max_width: Option<u32>) -> InitialWidth {
        InitialWidth { name: Some(name.to_owned()), min_width, max_width, ..InitialWidth::default() }
    }

    #[test]
    fn what_nobody_asks_for_stays_as_it_is_and_what_is_refused_too() {
        let mut spec = JobSpec::of(BundleReference::default());
        spec.parallel_regions =
            vec![bounded("A.R", Some(2), Some(8)), bounded("*", None, Some(4)), bounded("*S", None, Some(6))];
        let mut going = object("A.R", 3);
        going.metadata.deletion_timestamp = Some(Time(k8s_openapi::jiff::Timestamp::UNIX_EPOCH));
        // consistent, objects -> desired widths of R and S, reasons of refusal
        let table: [(bool, Vec<ParallelRegion>, (u32, u32), &[(&str, &str)]); 6] = [
            (false, vec![], (2, 2), &[]),
            (false, vec![going], (2, 2), &[]),
            (false, vec![object("A.R", 8), object("A.S", 6), object("other", 9)], (8, 6), &[]),
            (false, vec![object("A.R", 1)], (2, 2), &[("A.R", "OutOfBounds")]),
            (
                false,
                vec![object("A.R", 9), object("A.S", 7)],
                (2, 2),
                &[("A.R", "OutOfBounds"), ("A.S", "OutOfBounds")],
            ),
            (true, vec![object("A.R", 3), object("A.S", 3)], (2, 3), &[("A.R", "ConsistentRegion")]),
        ];
        for (consistent, objects, (r, s), refused) in table {
            let widths = widths(&spec, &generation(consistent), &objects, &BTreeMap::new());
            assert_eq!(widths.desired, BTreeMap::from([("A.R".to_owned(), r), ("A.S".to_owned(), s)]));
            let reasons: Vec<_> =
                widths.refused.iter().map(|(name, refused)| (name.as_str(), refused.reason)).collect();
            assert_eq!(reasons, refused);
        }
    }

    #[test]
    fn bounds_that_count_for_no_region_are_named() {
        let width = InitialWidth { name: Some("X".to_owned()), width: Some(2), ..InitialWidth::default() };
        // entries -> those that are named
        let table = [
            (vec![], None),
            (vec![bounded("A.R", Some(1), None), bounded("*S", None, Some(4)), bounded("A . S", None, Some(4))], None),
            (vec![width, bounded("A.Q", Some(1), None), bounded("B*", None, Some(4))], Some("\"A.Q\", \"B*\":")),
            (vec![bounded("A-R", Some(1), None)], Some("\"A-R\":")),
            (vec![bounded("Q", Some(1), None); 11], Some("\"Q\", ...:")),
        ];
        for (entries, expected) in table {
            let mut spec = JobSpec::of(BundleReference::default());
            spec.parallel_regions = entries;
            let said = unmatched_bounds(&spec, &generation(false));
            match (&said, expected) {
                (None, None) => {}
                (Some((reason, message)), Some(part)) => {
                    assert!(reason == "UnmatchedRegion" && message.contains(part), "{message}");
                }
                _ => panic!("{said:?}, expected {expected:?}"),
            }
        }
    }

    #[test]
    fn a_request_counts_for_all_its_regions_before_they_have_taken_it_over() {
        let spec = JobSpec::of(BundleReference::default());
        let region = |index, name: &str, generation, width| {
            let mut region = object(name, width);
            region.spec.index = index;
            region.metadata.uid = Some(name.to_owned());
            region.metadata.generation = Some(generation);
            region
        };
        let before = [region(0, "A.R", 1, 2), region(1, "A.S", 1, 2)];
        let requested = before.iter().zip([5, 6]).map(|(region, width)| RequestedWidth::of(region, width)).collect();
        let requested = RequestedWidths { widths: requested, trace_parent: None };
        let annotation = (names::ANNOTATION_REQUESTED_WIDTHS.to_owned(), serde_json::to_string(&requested).unwrap());
        // regions R and S (generation, width) -> desired widths, widths to take over
        let table: [_; 4] = [
            ((1, 2), (1, 2), (5, 6), vec![(0, 5), (1, 6)]),
            ((1, 2), (2, 6), (5, 6), vec![(0, 5)]),
            ((2, 5), (2, 6), (5, 6), vec![]),
            // Somebody scaled S meanwhile.
            ((1, 2), (2, 3), (5, 3), vec![(0, 5)]),
        ];
        for (r, s, desired, to_take_over) in table {
            let mut home = region(0, "A.R", r.0, r.1);
            home.metadata.annotations = Some([annotation.clone()].into());
            let widths = widths(&spec, &generation(false), &[home, region(1, "A.S", s.0, s.1)], &BTreeMap::new());
            let expected = BTreeMap::from([("A.R".to_owned(), desired.0), ("A.S".to_owned(), desired.1)]);
            assert_eq!((widths.desired, widths.to_take_over), (expected, to_take_over.into_iter().collect()));
        }
    }
}
