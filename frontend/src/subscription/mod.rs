//! The subscription API: how programs see and change what jobs export and import, over gRPC (rules import-8 and
//! import-9).
//!
//! Served by every replica of the frontend, leader or not: a change is a write to the status of one object, which the
//! boards of all replicas follow.
//!
//! ```text
//!  call ── service ──► requests ──► status_changes ──► API server
//!            │         checks,      one write, if        │
//!            │         run_time     nobody else wrote    ▼
//!            ◄── shown ◄──────────────────────────── mirrors, boards
//! ```
//!
//! | Module | What it does |
//! |---|---|
//! | [`guarded`] | which rights its methods take |
//! | [`service`] | the gRPC service: finds, changes, waits |
//! | [`requests`] | pure: makes of a request what is to be changed, and names the field of what is wrong |
//! | [`shown`] | pure: exports and imports as messages |
//! | [`etag`] | pure: names what is in force |
//! | [`lists`] | exports and imports in pages |
//! | [`errors`] | statuses with `google.rpc` details, as `proto/streams/subscription/v1` documents them |
//!
//! What may be changed is the business of [`run_time`](crate::run_time), as for the PE API.
//!
//! Knows: Exports, Imports, Jobs. Must not know: HTTP, what PEs make of it, how it is known who calls and what they may
//! ([`access`](crate::grpc::access)).

mod errors;
mod etag;
mod guarded;
mod lists;
mod requests;
mod service;
mod shown;
#[cfg(test)]
pub(crate) mod tests;

use self::lists::Lists;
use crate::broker::Boards;
use crate::grpc::access::Access;
use crate::grpc::access::guarded::Guarded;
use crate::grpc::places::Places;
use crate::grpc::transport::REQUEST_MAX;
use crate::long_objects::LongObjects;
use crate::mirrors::Mirrors;
use crate::status_changes::{Basis, StatusChanges, Turns};
use std::sync::Arc;
use streams_kubernetes::cluster::{Cluster, Manager};
use streams_kubernetes::gate::Priority;
use streams_proto::subscription::ERROR_DOMAIN;
use streams_proto::subscription::v1::subscription_service_server::SubscriptionServiceServer;
use tokio_util::sync::CancellationToken;
use tonic::codec::CompressionEncoding;

/// Field manager of what is changed by this API.
const MANAGER: Manager = Manager("streams-subscription");
/// Calls at the same time that need the API server, in all and for one namespace; further ones are refused before
/// anything is asked of it (rule import-8).
const CALLS_MAX: usize = 256;
const CALLS_OF_ONE_MAX: usize = 64;

/// The service. Cheap to clone; all clones are the same.
pub(crate) struct SubscriptionApi<C> {
    shared: Arc<Shared<C>>,
}

struct Shared<C> {
    mirrors: Mirrors,
    boards: Boards,
    statuses: StatusChanges<C>,
    calls: Places,
    lists: Lists,
    stopping: CancellationToken,
}

impl<C> Clone for SubscriptionApi<C> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

impl<C: Cluster> SubscriptionApi<C> {
    /// A service that writes to this cluster, taking turns with others that change exports and imports, and sees what
    /// these mirrors and boards show of it. Once `stopping` is cancelled, no call waits any more.
    pub(crate) fn new(cluster: C, mirrors: Mirrors, boards: Boards, turns: Turns, stopping: CancellationToken) -> Self {
        // Who asks may have seen what another replica has written.
        let (basis, priority) = (Basis::ApiServer, Priority::Normal);
        // Lists may take long, and anybody may ask for thousands: a change waits for other changes only.
        let long_objects = LongObjects::new();
        let statuses = StatusChanges { cluster, manager: MANAGER, basis, priority, turns, long_objects };
        let (calls, lists) = (Places::new(CALLS_MAX, CALLS_OF_ONE_MAX), Lists::new());
        Self { shared: Arc::new(Shared { mirrors, boards, statuses, calls, lists, stopping }) }
    }

    /// What answers calls of those who may make them. None of these is taken that is compressed: a few bytes would be
    /// enough for the work of the longest.
    pub(crate) fn into_server(self, access: Access) -> SubscriptionServiceServer<Guarded<Self>> {
        SubscriptionServiceServer::new(Guarded::new(self, access, ERROR_DOMAIN))
            .send_compressed(CompressionEncoding::Gzip)
            .max_decoding_message_size(REQUEST_MAX)
    }
}
