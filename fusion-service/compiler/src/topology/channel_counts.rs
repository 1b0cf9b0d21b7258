//! Whether the operators of a parallel region ask how many channels it has (rule aadl-22).
//!
//! A user can state of a region that its operators do not. Then the number of channels is in the documents of PEs all
//! the same, and is not observed: the PEs of other channels go on when the region gets one more.
//!
//! Knows: regions and the channels of operators. Must not know: documents, patterns.
//!
//! Invariant: what a job says of a region stays the same for the whole life of the job.

use super::{Channel, Region};
use get_size2::GetSize;

/// Whether operators of a parallel region ask for its number of channels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, GetSize)]
pub enum ChannelCount {
    /// They may, so another number restarts them.
    #[default]
    Observed,
    /// The user states that they do not.
    Ignored,
}

impl ChannelCount {
    /// The word for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Observed => "Observed",
            Self::Ignored => "Ignored",
        }
    }
}

/// The regions of a job whose number of channels is not observed.
#[derive(Clone, Debug, Default, PartialEq, Eq, GetSize)]
pub struct IgnoredCounts {
    /// ADL indexes, ascending.
    regions: Vec<u64>,
}

/// Which of the two numbers of channels that an operator has for a region are observed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObservedCounts {
    /// The number of channels within the region around it.
    pub local: bool,
    /// The number of channels over all copies of the region.
    pub global: bool,
}

impl IgnoredCounts {
    /// Those of a topology with these regions, which ascend by index.
    pub fn new(regions: &[Region]) -> Self {
        let ignored = regions.iter().filter(|region| region.channel_count == ChannelCount::Ignored);
        Self { regions: ignored.map(|region| region.index).collect() }
    }

    /// Whether there is no such region, as for most jobs.
    pub fn is_empty(&self) -> bool {
        self.regions.is_empty()
    }

    /// Whether the region's number of channels is ignored.
    pub fn contains(&self, region: u64) -> bool {
        self.regions.binary_search(&region).is_ok()
    }

    /// What is observed of the counts of an operator's region. `around` are the regions around it, in any order. The
    /// global count is a product over all of them, so it is ignored only if each of them is.
    pub fn observed(&self, region: u64, mut around: impl Iterator<Item = u64>) -> ObservedCounts {
        let local = !self.contains(region);
        ObservedCounts { local, global: local || around.any(|region| !self.contains(region)) }
    }

    /// The first channel of an operator by which it can tell, when it runs, that its channels are not those that it
    /// had: the channel before and now. Both lists are innermost first, and of the same regions.
    pub fn difference<'c>(&self, before: &'c [Channel], now: &'c [Channel]) -> Option<(&'c Channel, &'c Channel)> {
        let mut pairs = before.iter().zip(now).enumerate();
        let found = pairs.find(|(at, (was, is))| {
            let observed = self.observed(is.region, now.iter().skip(at + 1).map(|outer| outer.region));
            (was.region, was.local, was.global) != (is.region, is.local, is.global)
                || (observed.local && was.local_max != is.local_max)
                || (observed.global && was.global_max != is.global_max)
        });
        found.map(|(_, pair)| pair)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn region(index: u64, channel_count: ChannelCount) -> Region {
        Region { index, name: index.to_string(), width: 1, global_max: 1, channel_count }
    }

    /// Channel 1 of an inner region (index 0) in channel 1 of an outer one (index 1), for these widths.
    fn channels(inner: u32, outer: u32) -> [Channel; 2] {
        [
            Channel { region: 0, local: 1, local_max: inner, global: 1 + inner, global_max: inner * outer },
            Channel { region: 1, local: 1, local_max: outer, global: 1, global_max: outer },
        ]
    }

    #[test]
    fn a_global_count_is_ignored_with_all_that_it_multiplies() {
        use ChannelCount::{Ignored, Observed};
        // inner, outer -> local and global count of the inner region, of the outer one
        let table = [
            (Observed, Observed, [true, true, true, true]),
            (Ignored, Observed, [false, true, true, true]),
            (Observed, Ignored, [true, true, false, false]),
            (Ignored, Ignored, [false, false, false, false]),
        ];
        for (inner, outer, expected) in table {
            let ignored = IgnoredCounts::new(&[region(0, inner), region(1, outer)]);
            let (of_inner, of_outer) = (ignored.observed(0, [1].into_iter()), ignored.observed(1, [].into_iter()));
            let actual = [of_inner.local, of_inner.global, of_outer.local, of_outer.global];
            assert_eq!(actual, expected, "{inner:?} in {outer:?}");
        }
    }

    #[test]
    fn what_an_operator_can_tell() {
        use ChannelCount::{Ignored, Observed};
        // inner, outer, widths after; widths before are 2 and 2 -> whether an operator can tell
        let table = [
            (Observed, Observed, (2, 2), false),
            (Observed, Observed, (2, 3), true),
            (Ignored, Ignored, (2, 3), false),
            (Observed, Ignored, (2, 3), true),
            (Ignored, Observed, (2, 3), true),
            // An inner region renumbers the channels of the copies behind the first.
            (Ignored, Ignored, (3, 2), true),
        ];
        for (inner, outer, (of_inner, of_outer), expected) in table {
            let ignored = IgnoredCounts::new(&[region(0, inner), region(1, outer)]);
            let (before, now) = (channels(2, 2), channels(of_inner, of_outer));
            assert_eq!(
                ignored.difference(&before, &now).is_some(),
                expected,
                "{inner:?} in {outer:?}, {of_inner} and {of_outer}"
            );
        }
    }
}
