//! Objects that carry a job's name and that it does not control: those of a job of its name that was deleted without
//! them, for example. They are not adopted (rule job-30).
//!
//! Knows: labels, names, who controls what. Must not know: which of the names a job wants.

use crate::mirrors::{ByOwner, Mirrors};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use std::fmt::Write as _;
use streams_api::Job;
use streams_kubernetes::Key;
use streams_kubernetes::ownership::is_controlled_by;
use streams_kubernetes::watch::Mirrored;

/// Names that are listed of each kind.
const LISTED: usize = 5;

/// The objects that are in the way of this job, by kind, in words; empty if there are none.
pub(super) fn in_the_way(mirrors: &Mirrors, key: &Key, job: &Job) -> String {
    let kinds = [
        ("ProcessingElements", names(&mirrors.processing_elements, key, job)),
        ("Services", names(&mirrors.services, key, job)),
        ("ConfigMaps", names(&mirrors.config_maps, key, job)),
        ("ParallelRegions", names(&mirrors.parallel_regions, key, job)),
        ("HostPools", names(&mirrors.host_pools, key, job)),
        ("Exports", names(&mirrors.exports, key, job)),
        ("Imports", names(&mirrors.imports, key, job)),
        ("ConsistentRegions", names(&mirrors.consistent_regions, key, job)),
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

fn names<K: Mirrored>(mirror: &impl ByOwner<K>, key: &Key, job: &Job) -> Vec<String> {
    let is_strange = |meta: &ObjectMeta| !is_controlled_by(meta, job);
    let metadata = mirror.kept_of_job(key).into_iter().filter_map(|(_, object)| object.metadata());
    metadata.filter(is_strange).filter_map(|meta| meta.name).collect()
}
