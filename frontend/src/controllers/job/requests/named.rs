//! Requests that the status of a job names by their numbers, and the mirror may not show with them yet.

use k8s_openapi::jiff::Timestamp;
use std::collections::BTreeSet;
use streams_api::JobStatus;

/// What the API server has said of such requests.
#[derive(Debug, Default)]
pub(crate) struct NamedRequests {
    /// Numbers that no request has: it is gone, and none gets its number again.
    pub(crate) gone: BTreeSet<u64>,
    /// Names of requests that it has, until the mirror shows them.
    pub(crate) found: BTreeSet<String>,
    /// Numbers that it was asked for last.
    pub(crate) asked: BTreeSet<u64>,
    /// Until when that holds.
    pub(crate) until: Option<Timestamp>,
}

/// The requests that the proposal has, and those that commits were for and do not say so yet.
pub(crate) fn named(status: &JobStatus) -> BTreeSet<u64> {
    let proposed = status.proposal.iter().flat_map(|proposal| &proposal.resizes);
    proposed.chain(status.committed_resizes.iter().flat_map(|committed| &committed.resizes)).copied().collect()
}
