//! The elasticity API: how load balancers and people with grpcurl change widths.
//!
//! Served by every replica of the frontend, leader or not (rule elasticity-8): a call makes an object of the kind
//! Resize (rule elasticity-10), and then watches it and its job until what the caller waits for has happened. The
//! request goes on if the caller goes away.
//!
//! * [`outcome`] — pure: how far a request has come.
//! * [`region`] — pure: a region as it is shown; [`ready`]: how many of its channels run.
//! * `state` — pure: a request as it is shown; `times`: points in time.
//! * `lists` — regions and requests in pages.
//! * `cancel` — withdraws requests.
//! * `dry_run` — what a request would come to.
//! * `watch` — streams that follow requests and regions.
//! * [`view`] — the shared mirrors of jobs, regions and requests, as the API reads them.
//! * [`service`] — the gRPC service: checks requests, waits for outcomes.
//! * `requests` — makes the objects.
//! * `ended` — the errors for requests that ended without their widths.
//! * `backlog` — whether a caller would wait for too long.
//! * [`errors`] — statuses with `google.rpc` details, as `proto/streams/elasticity/v1` documents them.
//!
//! Knows: Jobs, ParallelRegions and Resizes. Must not know: how a resize is carried out, how a
//! service is listened for.
//!
//! Callers are not authenticated: put the API behind a NetworkPolicy or bind it to loopback.

mod backlog;
mod cancel;
mod dry_run;
mod ended;
pub mod errors;
mod lists;
pub mod outcome;
pub mod ready;
pub mod region;
mod requests;
pub mod service;
mod state;
#[cfg(test)]
mod tests;
mod times;
pub mod view;
mod watch;

use self::backlog::Backlog;
use self::ready::ReadyWidths;
use self::view::ClusterView;
use crate::controllers::job::long_work::dry_run::Foresee;
use crate::grpc::places::Places;
use crate::grpc::server::REQUEST_MAX;
use kube::Client;
use moka::sync::Cache;
use std::sync::Arc;
use std::time::Duration;
use streams_kubernetes::Key;
use streams_proto::elasticity::v1::elasticity_service_server::ElasticityServiceServer;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tonic::codec::CompressionEncoding;

/// Requests that wait at the same time; further ones are refused before anything is written.
const MOST_WAITING: usize = 2048;

/// Streams at the same time, in all, and of one job or of one namespace as a whole (rule elasticity-23).
const STREAMS_MAX: usize = 1024;
const STREAMS_OF_ONE_MAX: usize = 64;

/// Jobs whose ready widths are kept.
const READY_KEPT: u64 = 1_000;
/// For how long: shorter than the pause of a stream, so that what it tells is not from before the change.
const READY_FOR: Duration = Duration::from_millis(150);

/// The service. Cheap to clone; all clones are the same.
pub struct Elasticity<V> {
    client: Client,
    view: Arc<V>,
    longest_wait: Duration,
    waiting: Arc<Semaphore>,
    backlog: Backlog,
    watching: Places,
    /// Ready widths by job and generation, for a moment.
    ready: Cache<(Key, Option<u64>), Arc<ReadyWidths>>,
    dry_runs: Arc<dyn Foresee>,
    stopping: CancellationToken,
}

impl<V> Clone for Elasticity<V> {
    fn clone(&self) -> Self {
        Self {
            client: self.client.clone(),
            view: Arc::clone(&self.view),
            longest_wait: self.longest_wait,
            waiting: Arc::clone(&self.waiting),
            backlog: self.backlog.clone(),
            watching: self.watching.clone(),
            ready: self.ready.clone(),
            dry_runs: Arc::clone(&self.dry_runs),
            stopping: self.stopping.clone(),
        }
    }
}

impl<V: ClusterView> Elasticity<V> {
    /// A service that writes with `client`, sees through `view` and foresees with `dry_runs`; no request waits longer
    /// than `longest_wait`, and none any more once the token of [`Elasticity::stopping`] is cancelled.
    pub(crate) fn new(client: Client, view: Arc<V>, dry_runs: Arc<dyn Foresee>, longest_wait: Duration) -> Self {
        let (waiting, stopping) = (Arc::new(Semaphore::new(MOST_WAITING)), CancellationToken::new());
        let ready = Cache::builder().max_capacity(READY_KEPT).time_to_live(READY_FOR).build();
        let (backlog, watching) = (Backlog::default(), Places::new(STREAMS_MAX, STREAMS_OF_ONE_MAX));
        Self { client, view, longest_wait, waiting, backlog, watching, ready, dry_runs, stopping }
    }

    /// Cancelled when no request may wait any more.
    pub(crate) fn stopping(&self) -> CancellationToken {
        self.stopping.clone()
    }

    /// What answers calls.
    pub(crate) fn into_server(self) -> ElasticityServiceServer<Self> {
        ElasticityServiceServer::new(self)
            .accept_compressed(CompressionEncoding::Gzip)
            .accept_compressed(CompressionEncoding::Zstd)
            .send_compressed(CompressionEncoding::Gzip)
            .max_decoding_message_size(REQUEST_MAX)
    }
}
