//! The gRPC APIs over any cluster, without the program around: for whoever tries what callers may send.
//!
//! Knows: which services there are, what each of them needs. Must not know: listeners, options.

use crate::broker::Boards;
use crate::controllers::job::long_work::dry_run::{DryRuns, Planner};
use crate::elasticity::Elasticity;
use crate::fusion::FusionError;
use crate::grpc::access::Access;
use crate::grpc::access::reviewer::ApiServerReviewer;
use crate::grpc::server::Services;
use crate::mirrors::Mirrors;
use crate::settings::JobSettings;
use crate::status_changes::Turns;
use crate::subscription::SubscriptionApi;
use axum::Router;
use futures::future::BoxFuture;
use kube::Client;
use std::sync::Arc;
use std::time::Duration;
use streams_kubernetes::cluster::Cluster;
use streams_kubernetes::metrics::Metrics;
use streams_proto::fusion::v1::{PlanRequest, PlanResponse};
use streams_proto::{elasticity, subscription};

/// The longest that a call waits.
const LONGEST_WAIT: Duration = Duration::from_secs(60);
/// Whom tokens have to be for.
const AUDIENCE: &str = "streams-frontend";

/// There is no fusion service: dry runs end where it would be asked.
struct NoFusionService;

impl Planner for NoFusionService {
    fn plan(&self, _: PlanRequest) -> BoxFuture<'_, Result<PlanResponse, FusionError>> {
        Box::pin(async { Err(FusionError::Unavailable("there is none".to_owned())) })
    }
}

/// Both APIs over a cluster and what these mirrors show of it; `client` reaches the same cluster. Callers are asked for
/// tokens, and have to have the rights. The mirrors are filled after that. Nothing settles the boards but the function
/// that is given besides: it gives one namespace its turn, and says whether one had it.
pub fn of_mirrors<C: Cluster>(
    cluster: C,
    client: Client,
    mirrors: &Mirrors,
    metrics: &Metrics,
) -> (Router, impl Fn() -> bool + use<C>) {
    let (view, boards) = (Arc::new(mirrors.clone()), Boards::of(mirrors));
    let dry_runs = DryRuns::new(cluster.clone(), mirrors.clone(), Arc::new(NoFusionService), JobSettings::default());
    let widths = Elasticity::new(client.clone(), view, Arc::new(dry_runs), LONGEST_WAIT, metrics);
    let stopping = widths.stopping();
    let reviewer = ApiServerReviewer::new(client, vec![AUDIENCE.to_owned()]);
    let access = Access::reviewed(Arc::new(reviewer), stopping.clone());
    let subscriptions = SubscriptionApi::new(cluster, mirrors.clone(), boards.clone(), Turns::default(), stopping);
    let router = Services::new(access.clone())
        .with(widths.into_server(access.clone()), elasticity::ERROR_DOMAIN)
        .with(subscriptions.into_server(access), subscription::ERROR_DOMAIN)
        .into_router();
    (router, move || boards.settle_a_slice())
}
