//! Ids of PEs: what a PE is called as long as it exists.

use super::graph::Graph;
use super::partition::{Partition, Pe};
use crate::error::{Problem, Stage};
use cranelift_entity::PrimaryMap;
use std::collections::{BTreeSet, HashMap};

/// Id of a PE, unique among all PEs that a job has at one time (rule element-1).
pub type PeId = u64;

/// Gives ids to PEs that were fused from scratch (rule element-2). A PE that holds exactly the operators of a previous
/// one, by name, takes its id. The others get ids above the largest known one, in order.
///
/// `previous` has the PEs of the generation before, none for a new job. If two of them hold the same operators, the one
/// with the lower id counts. New PEs get no id in `taken`.
///
/// # Errors
///
/// Stage `fuse`: no larger id exists.
pub fn match_ids<'n, Names: IntoIterator<Item = &'n str>>(
    graph: &'n Graph,
    partition: &Partition,
    previous: impl IntoIterator<Item = (PeId, Names)>,
    taken: &BTreeSet<PeId>,
) -> Result<PrimaryMap<Pe, PeId>, Problem> {
    match_other_ids(graph, partition, &partition.pes().map(|_| None).collect(), previous, taken)
}

/// The same, where some PEs have `kept` the ids of previous ones already.
pub(super) fn match_other_ids<'n, Names: IntoIterator<Item = &'n str>>(
    graph: &'n Graph,
    partition: &Partition,
    kept: &PrimaryMap<Pe, Option<PeId>>,
    previous: impl IntoIterator<Item = (PeId, Names)>,
    taken: &BTreeSet<PeId>,
) -> Result<PrimaryMap<Pe, PeId>, Problem> {
    let known: BTreeSet<PeId> = kept.values().copied().flatten().collect();
    let mut ids: HashMap<Vec<&str>, PeId> = HashMap::new();
    let mut new = NewIds::after(taken);
    for (id, names) in previous {
        new.pass(id);
        if !known.contains(&id) {
            ids.entry(sorted(names)).and_modify(|known| *known = id.min(*known)).or_insert(id);
        }
    }
    let id = |(pe, kept): (Pe, &Option<PeId>)| {
        let names = || partition.operators(pe).iter().map(|&node| graph.operators()[node].name);
        kept.or_else(|| ids.remove(&sorted(names()))).map_or_else(|| new.next(), Ok)
    };
    kept.iter().map(id).collect()
}

fn sorted<'n>(names: impl IntoIterator<Item = &'n str>) -> Vec<&'n str> {
    let mut names: Vec<&str> = names.into_iter().collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// Ids above all that are known (rule element-4).
pub(super) struct NewIds(Option<PeId>);

impl NewIds {
    pub(super) fn after(taken: &BTreeSet<PeId>) -> Self {
        Self(taken.last().map_or(Some(0), |last| last.checked_add(1)))
    }

    /// Records an id that is in use.
    pub(super) fn pass(&mut self, id: PeId) {
        self.0 = self.0.and_then(|next| Some(next.max(id.checked_add(1)?)));
    }

    pub(super) fn next(&mut self) -> Result<PeId, Problem> {
        let next = self.0.ok_or_else(|| Problem::new(Stage::Fuse, "there is no PE id left above those in use"))?;
        self.0 = next.checked_add(1);
        Ok(next)
    }
}
