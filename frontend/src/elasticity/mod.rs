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
//! * `looks` — reads of many objects, apart from what serves others.
//! * `lookups` — asks for requests that the mirror does not show, a few at a time.
//! * `cancel` — withdraws requests.
//! * `dry_run` — what a request would come to.
//! * `watch` — streams that follow requests and regions.
//! * `followed` — requests that somebody follows, each read once for all who do.
//! * [`view`] — the shared mirrors of jobs, regions and requests, as the API reads them.
//! * `guarded` — which rights its methods take.
//! * [`service`] — the gRPC service: checks requests, has objects made for them.
//! * `waiting` — waits for outcomes; `presence`: whether a request is still there.
//! * `requests` — makes the objects; `writes`: a few at a time.
//! * `answers` — the regions that answers show, read once for many.
//! * `ended` — the errors for requests that ended without their widths.
//! * `backlog` — whether a caller would wait for too long.
//! * [`errors`] — statuses with `google.rpc` details, as `proto/streams/elasticity/v1` documents them.
//!
//! Knows: Jobs, ParallelRegions and Resizes. Must not know: how a resize is carried out, how a
//! service is listened for, how it is known who calls and what they may ([`access`](crate::grpc::access)).

mod answers;
mod backlog;
mod cancel;
mod dry_run;
mod ended;
pub mod errors;
mod followed;
mod guarded;
mod lists;
mod looks;
mod lookups;
pub mod outcome;
mod presence;
pub mod ready;
pub mod region;
mod requests;
pub mod service;
mod state;
#[cfg(test)]
pub(crate) mod tests;
mod times;
pub mod view;
mod waiting;
mod watch;
mod writes;

use self::answers::Answers;
use self::backlog::Backlog;
use self::followed::Followed;
use self::looks::{KeptReadyWidths, Looks};
use self::lookups::Lookups;
use self::view::ClusterView;
use self::writes::Writes;
use crate::controllers::job::long_work::dry_run::Foresee;
use crate::fair_semaphore::FairSemaphore;
use crate::grpc::access::Access;
use crate::grpc::access::guarded::Guarded;
use crate::grpc::places::{CallerName, Full, Place, Places};
use crate::grpc::transport::REQUEST_MAX;
use kube::Client;
use std::sync::Arc;
use std::time::Duration;
use streams_api::resize::RESIZES_MAX;
use streams_kubernetes::metrics::Metrics;
use streams_proto::elasticity::ERROR_DOMAIN;
use streams_proto::elasticity::v1::elasticity_service_server::ElasticityServiceServer;
use tokio_util::sync::CancellationToken;
use tonic::codec::CompressionEncoding;

/// Requests that wait at the same time, in all and of one job; further ones are refused before anything is written
/// (rule elasticity-8).
const WAITING_MAX: usize = 4096;
/// As many as a job has requests.
const WAITING_OF_ONE_MAX: usize = RESIZES_MAX;

/// Withdrawals that wait at the same time, in all and of one job: whoever withdraws what waits needs no place of those
/// who wait for it (rule elasticity-22).
const WITHDRAWING_MAX: usize = 256;
const WITHDRAWING_OF_ONE_MAX: usize = 64;

/// Dry runs that wait or go on at the same time; a namespace has a quarter of them at most, and callers of it share
/// these (rule elasticity-24).
const DRY_RUNS_MAX: usize = 8;
/// Those that go on: the plans of one take up to 320 MiB (rule fetch-6).
const DRY_RUNS_AT_ONCE: usize = 1;

/// Lists of regions as a whole that are being sent at the same time, in all, and of one job or of one namespace as a
/// whole (rule elasticity-21).
const LISTS_MAX: usize = 1024;
const LISTS_OF_ONE_MAX: usize = 128;

/// Streams at the same time, in all, and of one job or of one namespace as a whole (rule elasticity-23).
const STREAMS_MAX: usize = 1024;
const STREAMS_OF_ONE_MAX: usize = 64;

/// The service. Cheap to clone; all clones are the same.
pub struct Elasticity<V> {
    client: Client,
    view: Arc<V>,
    longest_wait: Duration,
    waiting: Places,
    withdrawing: Places,
    foreseeing: Places,
    dry_run_turns: FairSemaphore,
    writes: Writes,
    answers: Answers,
    followed: Followed,
    backlog: Backlog,
    watching: Places,
    lists: Places,
    looks: Looks,
    lookups: Lookups,
    ready: KeptReadyWidths,
    dry_runs: Arc<dyn Foresee>,
    stopping: CancellationToken,
}

impl<V> Clone for Elasticity<V> {
    fn clone(&self) -> Self {
        Self {
            client: self.client.clone(),
            view: Arc::clone(&self.view),
            longest_wait: self.longest_wait,
            waiting: self.waiting.clone(),
            withdrawing: self.withdrawing.clone(),
            foreseeing: self.foreseeing.clone(),
            dry_run_turns: self.dry_run_turns.clone(),
            writes: self.writes.clone(),
            answers: self.answers.clone(),
            followed: self.followed.clone(),
            backlog: self.backlog.clone(),
            watching: self.watching.clone(),
            lists: self.lists.clone(),
            looks: self.looks.clone(),
            lookups: self.lookups.clone(),
            ready: self.ready.clone(),
            dry_runs: Arc::clone(&self.dry_runs),
            stopping: self.stopping.clone(),
        }
    }
}

impl<V: ClusterView> Elasticity<V> {
    /// A service that writes with `client`, sees through `view` and foresees with `dry_runs`; no request waits longer
    /// than `longest_wait`, and none any more once the token of [`Elasticity::stopping`] is cancelled.
    pub(crate) fn new(
        client: Client,
        view: Arc<V>,
        dry_runs: Arc<dyn Foresee>,
        longest_wait: Duration,
        metrics: &Metrics,
    ) -> Self {
        let (waiting, stopping) = (Places::new(WAITING_MAX, WAITING_OF_ONE_MAX), CancellationToken::new());
        let withdrawing = Places::new(WITHDRAWING_MAX, WITHDRAWING_OF_ONE_MAX);
        let foreseeing = Places::new(DRY_RUNS_MAX, DRY_RUNS_MAX);
        let dry_run_turns = FairSemaphore::new(DRY_RUNS_AT_ONCE, DRY_RUNS_AT_ONCE);
        let (writes, answers) = (Writes::new(metrics), Answers::new());
        let (looks, ready) = (Looks::new(), KeptReadyWidths::new());
        let (backlog, watching) = (Backlog::default(), Places::new(STREAMS_MAX, STREAMS_OF_ONE_MAX));
        let (lists, lookups) = (Places::new(LISTS_MAX, LISTS_OF_ONE_MAX), Lookups::new());
        Self {
            client,
            view,
            longest_wait,
            waiting,
            withdrawing,
            foreseeing,
            dry_run_turns,
            writes,
            answers,
            followed: Followed::default(),
            backlog,
            watching,
            lists,
            looks,
            lookups,
            ready,
            dry_runs,
            stopping,
        }
    }

    /// Cancelled when no request may wait any more.
    pub(crate) fn stopping(&self) -> CancellationToken {
        self.stopping.clone()
    }

    /// A place for something of a job, or of a namespace as a whole, which the caller names as it likes.
    fn place_among(
        &self,
        places: &Places,
        namespace: &str,
        job: Option<&str>,
        caller: Option<&CallerName>,
    ) -> Result<Place, Full> {
        if self.view.has_jobs(namespace) {
            places.take(namespace, job, caller)
        } else {
            places.take_for_nothing(caller)
        }
    }

    /// What answers calls of those who may make them. None of these is taken that is compressed: a few bytes would be
    /// enough for the work of the longest.
    pub(crate) fn into_server(self, access: Access) -> ElasticityServiceServer<Guarded<Self>> {
        ElasticityServiceServer::new(Guarded::new(self, access, ERROR_DOMAIN))
            .send_compressed(CompressionEncoding::Gzip)
            .max_decoding_message_size(REQUEST_MAX)
    }
}
