//! Carries the numbers of splitters over to another generation (rule expansion-17).
//!
//! A splitter is recognised by a connection that goes through it. A splitter without connections is recognised by its
//! path from its port. A [`super::Numbering`] does not have that path: whoever knows nothing else gives such a splitter
//! a new number. A layout has all numbers of its port besides (rule layout-2), so a restored job has them again.
//!
//! Knows: connections and the trees of splitters on a port. Must not know: how operators are recognised, which callers
//! decide.

use super::{Channel, Connection, Node, PhysicalOperator, Splitter, Topology, Via};
use crate::shared::Shared;
use smallvec::SmallVec;
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::iter;

/// A splitter that carries connections: the connection by which it is recognised, and its number.
#[derive(Clone, Copy)]
pub(super) struct SplitterEnd {
    pub(super) source: Node,
    pub(super) source_port: u32,
    pub(super) target: Node,
    pub(super) target_port: u32,
    /// Number of the splitter on its port.
    pub(super) index: u32,
}

/// The splitters of a port, whose connections are `run`.
pub(super) fn ends_of(topology: &Topology, run: &[Connection]) -> impl Iterator<Item = SplitterEnd> + use<> {
    let written = &topology.application.operators;
    let compare = |a: &Connection, b: &Connection| {
        let [one, other] = [a, b].map(|connection| &topology.operators[connection.target]);
        let channels = compare_channels(&one.channels, &other.channels);
        let rest = |operator: &PhysicalOperator, connection: &Connection| {
            (written[operator.logical].index, connection.target_port)
        };
        channels.then_with(|| rest(one, a).cmp(&rest(other, b)))
    };
    // For each splitter of the port: its end with the lowest channels.
    let mut ends: BTreeMap<u32, Connection> = BTreeMap::new();
    for connection in run {
        let Some(via) = connection.via() else { continue };
        let least = ends.entry(via.splitter).or_insert(*connection);
        if compare(connection, least).is_lt() {
            *least = *connection;
        }
    }
    ends.into_iter().map(|(index, connection)| SplitterEnd {
        source: connection.source,
        source_port: connection.source_port,
        target: connection.target,
        target_port: connection.target_port,
        index,
    })
}

/// Compares local channels, innermost first.
fn compare_channels(one: &[Channel], other: &[Channel]) -> Ordering {
    let mut levels = levels_that_may_differ(one, other).map(|(one, other)| one.cmp(&other));
    levels.find(|order| order.is_ne()).unwrap_or_else(|| one.len().cmp(&other.len()))
}

/// Local channels of both in the regions that have several channels, innermost first, at most a few dozen: all channels
/// of a job have a number. Hundreds of regions may have one channel, and there are millions of connections, so these
/// are passed over. Regions at the same level may be different ones.
fn levels_that_may_differ(one: &[Channel], other: &[Channel]) -> impl Iterator<Item = (u32, u32)> {
    let mut next = 0;
    iter::from_fn(move || {
        let level = [one, other].map(|channels| level_with_channels(channels, next)).into_iter().min()?;
        next = level + 1;
        Some((one.get(level)?.local, other.get(level)?.local))
    })
}

/// The first level from this one on whose region has several channels. If there is none, any level before which there
/// is none.
fn level_with_channels(channels: &[Channel], level: usize) -> usize {
    let Some(rest) = channels.get(level..) else { return level };
    match rest.first() {
        Some(first) if first.local_max == 1 => {
            // A region has as many channels over all its copies as the one around it, times its width.
            level + rest.partition_point(|outer| outer.global_max == first.global_max) - 1
        }
        _ => level,
    }
}

/// A splitter that carries connections keeps its number.
pub(super) fn renumber_splitters(fresh: &mut Topology, known: &[SplitterEnd]) {
    for known in known.chunk_by(|a, b| (a.source, a.source_port) == (b.source, b.source_port)) {
        let Some(first) = known.first() else { continue };
        let numbers = numbers_by_connection(fresh, known.iter().copied());
        set_numbers(fresh, (first.source, first.source_port), numbers);
    }
}

/// Maps the numbers of splitters with connections to the numbers that they had.
pub(super) fn numbers_by_connection(fresh: &Topology, known: impl Iterator<Item = SplitterEnd>) -> BTreeMap<u32, u32> {
    let number = |known: SplitterEnd| {
        let (source, target) = ((known.source, known.source_port), (known.target, known.target_port));
        via_of(&fresh.connections, source, target).map(|via| (via.splitter, known.index))
    };
    known.filter_map(number).collect()
}

/// Gives splitters of a port their numbers. A splitter that has one of these numbers already moves behind all others.
pub(super) fn set_numbers(fresh: &mut Topology, (source, port): (Node, u32), numbers: BTreeMap<u32, u32>) {
    let mut map: BTreeMap<u32, u32> = numbers.into_iter().filter(|(is, was)| is != was).collect();
    if map.is_empty() {
        return;
    }
    let operator = fresh.operators.get_mut(source).map(Shared::to_mut);
    let Some(output) = operator.and_then(|operator| operator.outputs.get_mut(port as usize)) else { return };
    let mut present = BTreeSet::new();
    visit(&mut output.splitters, &mut |index| {
        present.insert(*index);
    });
    let mut next = present.iter().chain(map.values()).max().map_or(0, |largest| largest.saturating_add(1));
    for wanted in map.values().copied().collect::<Vec<_>>() {
        if present.contains(&wanted) && !map.contains_key(&wanted) {
            map.insert(wanted, next);
            next = next.saturating_add(1);
        }
    }
    visit(&mut output.splitters, &mut |index| {
        if let Some(new) = map.get(index) {
            *index = *new;
        }
    });
    let start = fresh.connections.partition_point(|c| (c.source, c.source_port) < (source, port));
    for connection in fresh.connections.iter_mut().skip(start) {
        if (connection.source, connection.source_port) != (source, port) {
            break;
        }
        if let Some(Via { splitter, channel }) = connection.via() {
            let splitter = map.get(&splitter).copied().unwrap_or(splitter);
            let target = (connection.target, connection.target_port);
            *connection = Connection::new((source, port), target, Some(Via { splitter, channel }));
        }
    }
}

/// The splitter and channel of the connection between two ports.
fn via_of(connections: &[Connection], source: (Node, u32), target: (Node, u32)) -> Option<Via> {
    let ends = |c: &Connection| ((c.source, c.source_port), (c.target, c.target_port));
    let position = connections.binary_search_by(|c| ends(c).cmp(&(source, target))).ok()?;
    connections.get(position)?.via()
}

/// Calls `f` with the index of every splitter of a tree.
fn visit(splitters: &mut [Splitter], f: &mut impl FnMut(&mut u32)) {
    // Depth is bounded by the nesting of regions in the ADL.
    let mut open: Vec<&mut Splitter> = splitters.iter_mut().collect();
    while let Some(splitter) = open.pop() {
        f(&mut splitter.index);
        open.extend(splitter.nested.iter_mut().map(|(_, nested)| nested));
    }
}

/// Adds splitters that are recognised by their path: the number of each, and that of the splitter before with the same
/// path. Without this, splitters that carry no connection would get other numbers than before when a width grows and
/// shrinks back.
pub(super) fn add_by_path(was: &[Splitter], is: &[Splitter], known: &mut BTreeMap<u32, u32>) {
    let is = paths(is);
    if is.len() == known.len() {
        return;
    }
    let was: BTreeMap<SplitterPath, u32> = paths(was).into_iter().collect();
    let mut taken: BTreeSet<u32> = known.values().copied().collect();
    for (path, index) in is {
        if let Some(earlier) = was.get(&path).filter(|_| !known.contains_key(&index))
            && taken.insert(*earlier)
        {
            known.insert(index, *earlier);
        }
    }
}

/// The path to a splitter from its port. Each step has the channel around the splitter, its region, the input port that
/// it feeds, and the number of equal splitters before it, which a broadcast may cause.
type SplitterPath = SmallVec<[(u32, u64, u64, u32); 2]>;

/// The paths of all splitters of a port, with their numbers.
fn paths(splitters: &[Splitter]) -> Vec<(SplitterPath, u32)> {
    let mut paths = Vec::new();
    let mut siblings: BTreeMap<SplitterPath, u32> = BTreeMap::new();
    // Depth is bounded by the nesting of regions in the ADL.
    let mut open: Vec<(SplitterPath, u32, &Splitter)> =
        splitters.iter().rev().map(|one| (SplitterPath::new(), 0, one)).collect();
    while let Some((mut path, channel, splitter)) = open.pop() {
        path.push((channel, splitter.region, splitter.input_port, 0));
        let before = siblings.entry(path.clone()).or_default();
        if let Some((.., nth)) = path.last_mut() {
            *nth = *before;
        }
        *before += 1;
        let nested = splitter.nested.iter().rev();
        open.extend(nested.map(|(channel, nested)| (path.clone(), *channel, nested)));
        paths.push((path, splitter.index));
    }
    paths
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// An operator in regions of these widths, innermost first, in the channels that are picked.
    fn channels(regions: &[(u32, prop::sample::Index)]) -> Vec<Channel> {
        let (mut channels, mut around) = (Vec::new(), (0_u32, 1_u32));
        for (local_max, local) in regions.iter().rev() {
            let local = u32::try_from(local.index(*local_max as usize)).expect("it is below the width");
            around = (around.0 * local_max + local, around.1 * local_max);
            let (global, global_max) = around;
            channels.push(Channel { region: 0, local, local_max: *local_max, global, global_max });
        }
        channels.reverse();
        channels
    }

    fn regions() -> impl Strategy<Value = Vec<(u32, prop::sample::Index)>> {
        let width = prop_oneof![3 => Just(1_u32), 1 => 2..4_u32];
        prop::collection::vec((width, any::<prop::sample::Index>()), 0..12)
    }

    proptest! {
        #![proptest_config(streams_test_support::property_cases(1024))]

        #[test]
        fn channels_are_compared_innermost_first(one in regions(), other in regions()) {
            let (one, other) = (channels(&one), channels(&other));
            let expected = one.iter().map(|c| c.local).cmp(other.iter().map(|c| c.local));
            prop_assert_eq!(compare_channels(&one, &other), expected);
            prop_assert_eq!(compare_channels(&one, &one), Ordering::Equal);
        }
    }

    #[test]
    fn regions_of_one_channel_are_passed_over() {
        // Hundreds of them, with regions of two channels within, between and around them.
        let mut widths = vec![1_u32; 245];
        for at in [0, 100, 200, 244] {
            widths[at] = 2;
        }
        let mut around = 1;
        let channel = |local_max: u32| {
            around *= local_max;
            Channel { region: 0, local: 0, local_max, global: 0, global_max: around }
        };
        let mut channels: Vec<Channel> = widths.into_iter().map(channel).collect();
        channels.reverse();
        assert_eq!(levels_that_may_differ(&channels, &channels).count(), 4);
        let only_one: Vec<Channel> = channels.iter().map(|c| Channel { local_max: 1, global_max: 1, ..*c }).collect();
        assert_eq!(levels_that_may_differ(&only_one, &only_one).count(), 1);
    }
}
