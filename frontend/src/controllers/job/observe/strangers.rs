//! Objects that carry a job's name and that it does not control: those of a job of its name that was deleted without
//! them, for example. They are not adopted (rule job-30).
//!
//! Knows: labels, names, who controls what. Must not know: why a job wants a name.

use crate::mirrors::{ByOwner, Mirrors};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use streams_api::{Job, names};
use streams_kubernetes::Key;
use streams_kubernetes::ownership::is_controlled_by;
use streams_kubernetes::watch::Mirrored;

/// Names that are listed of each kind.
const LISTED: usize = 5;

/// Those of these PEs whose names objects have that the job does not control, whatever their labels say: somebody may
/// have taken the labels as well.
pub(super) fn taken<'a>(
    mirrors: &Mirrors,
    key: &Key,
    job: &Job,
    pes: impl IntoIterator<Item = &'a u64>,
) -> BTreeSet<u64> {
    let is_taken = |id: &u64| {
        let name = key.sibling(&names::processing_element(&key.name, *id));
        let meta = mirrors.processing_elements.kept(&name).and_then(|pe| pe.metadata());
        meta.is_some_and(|meta| !is_controlled_by(&meta, job))
    };
    pes.into_iter().copied().filter(is_taken).collect()
}

/// The objects that are in the way of this job, by kind, in words; empty if there are none. `taken`: PEs of which that
/// is known.
pub(super) fn in_the_way(mirrors: &Mirrors, key: &Key, job: &Job, taken: &BTreeSet<u64>) -> String {
    let mut pes = strange(&mirrors.processing_elements, key, job);
    pes.extend(taken.iter().map(|id| names::processing_element(&key.name, *id)));
    let kinds = [
        ("ProcessingElements", pes),
        ("Services", strange(&mirrors.services, key, job)),
        ("ConfigMaps", strange(&mirrors.config_maps, key, job)),
        ("ParallelRegions", strange(&mirrors.parallel_regions, key, job)),
        ("HostPools", strange(&mirrors.host_pools, key, job)),
        ("Exports", strange(&mirrors.exports, key, job)),
        ("Imports", strange(&mirrors.imports, key, job)),
        ("ConsistentRegions", strange(&mirrors.consistent_regions, key, job)),
    ];
    let mut text = String::new();
    for (kind, names) in kinds.into_iter().filter(|(_, names)| !names.is_empty()) {
        let separator = if text.is_empty() { "" } else { ", " };
        let listed = names.iter().take(LISTED).map(String::as_str).collect::<Vec<_>>().join(", ");
        let more = if names.len() > LISTED { ", ..." } else { "" };
        // Writing to a string does not fail.
        let _ = write!(text, "{separator}{} {kind} ({listed}{more})", names.len());
    }
    text
}

/// The names of those that have the label of the job.
fn strange<K: Mirrored>(mirror: &impl ByOwner<K>, key: &Key, job: &Job) -> BTreeSet<String> {
    let is_strange = |meta: &ObjectMeta| !is_controlled_by(meta, job);
    let metadata = mirror.kept_of_job(key).into_iter().filter_map(|(_, object)| object.metadata());
    metadata.filter(is_strange).filter_map(|meta| meta.name).collect()
}
