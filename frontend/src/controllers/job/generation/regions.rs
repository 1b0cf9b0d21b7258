//! Computes what the status of a job says about the regions of its committed generation. Pure.
//!
//! The region controller derives the status of a region from it, and so needs no plan.

use super::Generation;
use streams_api::{CommittedRegion, IdRange};

/// Most PEs that a selector lists: one takes at least two of its 1024 characters.
const SELECTED_MAX: usize = 512;

/// The regions of this generation, by index.
pub(crate) fn committed_regions(generation: &Generation) -> Vec<CommittedRegion> {
    let mut regions: Vec<_> = generation
        .plan
        .parallel_regions
        .iter()
        .map(|region| CommittedRegion {
            index: region.index,
            global_channels: region.global_max_channels,
            // Both follow from the generation before.
            generation: None,
            width_before: None,
            touches_consistent_region: region.touches_consistent_region,
            channel_pes: if region.channels_have_own_pes {
                channel_pes(generation, &region.name, region.global_max_channels)
            } else {
                Vec::new()
            },
        })
        .collect();
    regions.sort_by_key(|region| region.index);
    regions
}

/// The PEs that hold operators of a channel of the region. Empty unless there are exactly as many as channels, and few
/// enough for a selector.
fn channel_pes(generation: &Generation, region: &str, channels: u32) -> Vec<IdRange> {
    // Operators of a channel are named after the region's operator: `<region>[<channel>]...`.
    let prefix = format!("{region}[");
    let holds = |operators: &[String]| operators.iter().any(|operator| operator.starts_with(&prefix));
    let ids: Vec<u64> = generation.members().filter(|(pe, _)| holds(&pe.operators)).map(|(pe, _)| pe.id).collect();
    if ids.len() != channels as usize || ids.len() > SELECTED_MAX {
        return Vec::new();
    }
    ranges(ids)
}

/// Ascending ids as ranges.
pub(in super::super) fn ranges(ids: Vec<u64>) -> Vec<IdRange> {
    let mut ranges: Vec<IdRange> = Vec::new();
    for id in ids {
        match ranges.last_mut() {
            Some(range) if range.last.checked_add(1) == Some(id) => range.last = id,
            _ => ranges.push(IdRange { first: id, last: id }),
        }
    }
    ranges
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controllers::job::generation::{GenerationDetails, Target};
    use streams_proto::fusion::v1::{Compilation, Fate, ParallelRegion, Plan, ProcessingElement};

    fn generation(own_pes: bool, width: u32, pes: &[(u64, &[&str])]) -> Generation {
        let pe = |(id, operators): &(u64, &[&str])| ProcessingElement {
            id: *id,
            fate: Fate::Added.into(),
            operators: operators.iter().map(|name| (*name).to_owned()).collect(),
            ..ProcessingElement::default()
        };
        let region = ParallelRegion {
            index: 4,
            name: "A.R".to_owned(),
            width,
            global_max_channels: width,
            channels_have_own_pes: own_pes,
            touches_consistent_region: true,
            channel_count: 0,
        };
        let plan = Plan {
            parallel_regions: vec![region],
            processing_elements: pes.iter().map(pe).collect(),
            ..Plan::default()
        };
        let target = Target::Submission { inputs: String::new() };
        Generation::following(None, target, Compilation::default(), plan, GenerationDetails::default())
    }

    #[test]
    fn the_pes_of_channels_are_listed_if_counting_them_counts_channels() {
        let pes: &[(u64, &[&str])] =
            &[(0, &["Source", "A.Region"]), (3, &["A.R[0]"]), (4, &["A.R[1]", "A.R[1].X"]), (7, &["A.R[2].Y"])];
        let range = |first, last| IdRange { first, last };
        // each channel has its own PEs, width -> ids
        let table = [
            (true, 3, vec![range(3, 4), range(7, 7)]),
            (false, 3, vec![]),
            // A channel has two PEs, or a PE has two channels.
            (true, 2, vec![]),
            (true, 4, vec![]),
        ];
        for (own_pes, width, expected) in table {
            let regions = committed_regions(&generation(own_pes, width, pes));
            let expected = CommittedRegion {
                index: 4,
                global_channels: width,
                generation: None,
                width_before: None,
                touches_consistent_region: true,
                channel_pes: expected,
            };
            assert_eq!(regions, [expected], "{own_pes} {width}");
        }
    }

    #[test]
    fn more_pes_than_a_selector_can_list_are_not_listed() {
        let pes: Vec<(u64, &[&str])> = (0..513).map(|id| (id, &["A.R[0]"][..])).collect();
        let listed = |width: usize| {
            let count = u32::try_from(width).unwrap();
            committed_regions(&generation(true, count, &pes[..width]))[0].channel_pes.clone()
        };
        assert_eq!(listed(512), [IdRange { first: 0, last: 511 }]);
        assert_eq!(listed(513), []);
    }
}
