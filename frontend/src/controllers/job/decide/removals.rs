//! When PEs go that a generation does not have any more, although a newer generation has been committed since (rule
//! job-16).
//!
//! A job whose widths change all the time may never be rolled out as a whole. Each of its PEs comes to run a newer text
//! now and then, though, and what was removed before that text is known to nobody any more.
//!
//! Knows: what PEs run, and for which generations. Must not know: who sends to whom.

use super::waves::stalls;
use crate::controllers::job::observed::{DesiredGeneration, JobObservation, Loaded, PodState};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use std::collections::BTreeMap;
use streams_api::Removal;

/// Ranges that the status lists at most.
const LISTED: usize = 256;

/// What becomes of a PE that is to be removed.
pub(super) enum Removable {
    Now,
    /// Not before this time, unless something happens.
    At(Timestamp),
    /// Nothing is known of it: when the whole generation is rolled out.
    WithTheRest,
}

/// The PEs that are to be removed once this generation, which is being committed, is.
pub(crate) fn removals(observed: &JobObservation, wanted: &DesiredGeneration) -> Vec<Removal> {
    let earlier = listed(observed);
    let before = observed.committed.as_ref().and_then(Loaded::whole);
    let mut removals: Vec<Removal> = Vec::new();
    let superfluous = observed.children.processing_elements.keys().copied();
    for id in superfluous.filter(|id| !wanted.processing_elements.contains_key(id)) {
        let (generation, since) = if before.is_some_and(|before| before.processing_elements.contains_key(&id)) {
            (wanted.generation, MicroTime(observed.now))
        } else if let Some(removal) = find(earlier, id) {
            (removal.generation, removal.since.clone())
        } else {
            continue;
        };
        match removals.last_mut() {
            // What is between them is not to be removed.
            Some(range) if range.generation == generation => range.last = id,
            _ => removals.push(Removal { first: id, last: id, generation, since }),
        }
    }
    while removals.len() > LISTED {
        removals = halved(removals);
    }
    removals
}

/// Half as many ranges: each that follows another one is counted to it. Both go when the later one may.
fn halved(removals: Vec<Removal>) -> Vec<Removal> {
    let pairs = removals.chunks(2).filter_map(|pair| {
        let (first, last) = (pair.first()?, pair.last()?);
        let newest = pair.iter().max_by_key(|removal| removal.generation)?;
        Some(Removal { first: first.first, last: last.last, ..newest.clone() })
    });
    pairs.collect()
}

fn listed(observed: &JobObservation) -> &[Removal] {
    observed.status.rollout.as_ref().map_or(&[], |rollout| &rollout.removals)
}

/// A committed generation has removed this PE, and it was not known since then that it may go.
pub(super) fn is_removed(observed: &JobObservation, id: u64) -> bool {
    find(listed(observed), id).is_some()
}

fn find(removals: &[Removal], id: u64) -> Option<&Removal> {
    let at = removals.partition_point(|removal| removal.last < id);
    removals.get(at).filter(|removal| removal.first <= id)
}

/// When what each listed generation removed may go.
pub(super) struct Removals<'a> {
    listed: &'a [Removal],
    by_generation: BTreeMap<u64, Timestamp>,
    committed: u64,
    now: Timestamp,
    /// Of PEs that a generation restarted and that do not run it or a newer one: the generation before the oldest of
    /// those, and that generation.
    behind: Vec<(u64, u64)>,
}

impl<'a> Removals<'a> {
    pub(super) fn of(observed: &'a JobObservation, wanted: &DesiredGeneration) -> Self {
        let listed = listed(observed);
        let stalled_at = stalls(observed, wanted);
        let by_generation: BTreeMap<u64, Timestamp> =
            listed.iter().map(|removal| (removal.generation, stalled_at(removal.since.0))).collect();
        let behind = if by_generation.is_empty() { Vec::new() } else { behind(observed, wanted) };
        Self { listed, by_generation, committed: wanted.generation, now: observed.now, behind }
    }

    /// What becomes of this PE, whose object was written for that generation.
    pub(super) fn of_pe(&self, id: u64, generation: u64) -> Removable {
        let Some(removal) = find(self.listed, id) else {
            // The committed generation does not have it, so it is of a proposal of the same number that was abandoned,
            // by a write that had its effect late: nobody that runs has ever known it.
            let is_of_abandoned = generation >= self.committed;
            return if is_of_abandoned { Removable::Now } else { Removable::WithTheRest };
        };
        let is_known = |(runs, wanted): &(u64, u64)| *runs < removal.generation && removal.generation <= *wanted;
        let end = self.by_generation.get(&removal.generation).copied().unwrap_or(Timestamp::MAX);
        if end <= self.now || !self.behind.iter().any(is_known) { Removable::Now } else { Removable::At(end) }
    }
}

/// Of each PE that does not run what it was restarted for last: the generation whose text it runs at least, and the one
/// that it should.
fn behind(observed: &JobObservation, wanted: &DesiredGeneration) -> Vec<(u64, u64)> {
    let children = &observed.children;
    let pairs = wanted.processing_elements.iter().filter_map(|(id, pe)| {
        let runs = match children.processing_elements.get(id) {
            None if children.stays_away(*id, pe) => return None,
            None => 0,
            Some(current) => match current.run {
                // It sends to nobody.
                PodState::Completed | PodState::Down | PodState::Suspended => return None,
                PodState::Ready => current.running_generation,
                // It has never run another text; unless it has not said yet that it does.
                PodState::Pending if !current.launched && !current.has_running_pod => current.generation,
                PodState::Pending => 0,
            },
        };
        (runs < pe.origin).then_some((runs, pe.origin))
    });
    let mut pairs: Vec<_> = pairs.collect();
    pairs.sort_unstable();
    pairs.dedup();
    pairs
}

#[cfg(test)]
mod tests {
    use super::*;

    fn removal(first: u64, last: u64, generation: u64) -> Removal {
        let at = i64::try_from(generation).unwrap();
        Removal { first, last, generation, since: MicroTime(Timestamp::from_second(at).unwrap()) }
    }

    #[test]
    fn pes_are_found_and_those_that_share_a_range_go_with_the_one_that_was_removed_last() {
        let separate: Vec<_> = (0..1_000).map(|id| removal(2 * id, 2 * id, id % 7)).collect();
        for (id, generation) in [(0, Some(0)), (1, None), (12, Some(6)), (14, Some(0)), (1_999, None), (5_000, None)] {
            assert_eq!(find(&separate, id).map(|removal| removal.generation), generation, "{id}");
        }
        let shared = halved(separate.clone());
        assert_eq!(shared.len(), 500);
        for Removal { first: id, generation, .. } in separate {
            let found = find(&shared, id).unwrap();
            assert!(found.generation >= generation && found.since.0.as_second() >= i64::try_from(generation).unwrap());
        }
        assert_eq!(halved(vec![removal(1, 2, 3)]), [removal(1, 2, 3)]);
    }
}
