//! A hash of where a pod must run (rules pod-2 and placement-9).
//!
//! It is over what is asked for, not over how it is expressed: another value restarts a PE, and a new version of the
//! frontend must not. The job controller writes it to PEs, and with it decides when each of them moves; the PE
//! controller compares it with the host pool that it sees, and writes it to pods.
//!
//! Knows: specs of PEs and host pools. Must not know: how a placement is expressed, when PEs are restarted.

use sha2::{Digest, Sha256};
use streams_api::{HostPoolSpec, Placement};

/// The hash of a placement; `pool` is the host pool that it names.
pub(crate) fn placement_hash(placement: &Placement, pool: Option<&HostPoolSpec>) -> String {
    let placement = Placement { group: None, ..placement.clone() };
    // These types can be written as JSON; were it otherwise, all hashes would be equal, and nothing would be restarted.
    let asked_for = (placement, pool.map(|pool| (&pool.hosts, &pool.tags, pool.membership_mode)));
    hex::encode(Sha256::digest(serde_json::to_vec(&asked_for).unwrap_or_default()))
}
