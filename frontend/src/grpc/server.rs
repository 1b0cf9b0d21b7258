//! One listener for the gRPC services of the frontend: reflection, shutdown, what health says (rule elasticity-8).
//!
//! Knows: which services there are, by their names. Must not know: what they do.
//!
//! Invariant: whatever service is listened for, [`Authenticated`] is around it. Health and reflection tell nothing that
//! is not in the contract, and are for everybody.

use super::access::Access;
use super::access::layer::Authenticated;
use super::health;
use super::transport::{self, Bounds};
use crate::call_figures::ServedCalls;
use axum::Router;
use axum::response::IntoResponse;
use http::Request;
use std::convert::Infallible;
use std::future::Future;
use std::time::Duration;
use streams_process::tls::Acceptor;
use streams_proto::DESCRIPTOR_SET;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tonic::body::Body;
use tonic::server::NamedService;
use tonic::service::Routes;
use tonic_health::ServingStatus;
use tonic_health::server::HealthReporter;
use tower::Service;

/// How often is looked whether what the services see is still fresh.
const LOOK: Duration = Duration::from_secs(1);

/// Services that are listened for together. Their health is one.
#[derive(Clone)]
pub(crate) struct Services {
    access: Access,
    tls: Option<Acceptor>,
    figures: ServedCalls,
    pub(super) routes: Routes,
    names: Vec<&'static str>,
}

impl Services {
    /// None, for callers that `access` knows.
    pub(crate) fn new(access: Access) -> Self {
        Self { access, tls: None, figures: ServedCalls::default(), routes: Routes::default(), names: Vec::new() }
    }

    /// These, to whom connections are secured by this, if there is TLS.
    pub(crate) fn secured(self, tls: Option<Acceptor>) -> Self {
        Self { tls, ..self }
    }

    /// These, whose calls are counted here.
    pub(crate) fn counted(self, figures: ServedCalls) -> Self {
        Self { figures, ..self }
    }

    /// These and another one. `domain` is that of the details of its errors.
    pub(crate) fn with<S>(mut self, service: S, domain: &'static str) -> Self
    where
        S: Service<Request<Body>, Error = Infallible> + NamedService + Clone + Send + Sync + 'static,
        S::Response: IntoResponse,
        S::Future: Send + 'static,
    {
        self.names.push(S::NAME);
        self.routes = self.routes.add_service(Authenticated::new(service, self.access.clone(), domain));
        self
    }

    /// What answers their calls, without a listener and its bounds.
    pub(crate) fn into_router(self) -> Router {
        self.routes.into_axum_router()
    }
}

/// Serves until `shutdown` is done. Then health says so and `stopping` is cancelled, which ends calls that wait; others
/// have `grace`. `too_old` says why what the services see cannot be relied on, if so.
///
/// # Errors
/// When reflection cannot be built.
pub(crate) async fn serve(
    listener: TcpListener,
    services: Services,
    too_old: impl Fn() -> Option<String> + Send,
    stopping: CancellationToken,
    shutdown: impl Future<Output = ()> + Send,
    grace: Duration,
) -> anyhow::Result<()> {
    let reporter = HealthReporter::new();
    let Services { tls, figures, routes, names, .. } = services;
    let mut told = Told { reporter: reporter.clone(), names: names.clone(), is_well: None };
    // Nobody is told anything before.
    told.see(too_old()).await;
    let reflection = || {
        let builder = tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(DESCRIPTOR_SET)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
            // So that a caller who knows nothing can read the details of an error.
            .register_encoded_file_descriptor_set(tonic_types::pb::FILE_DESCRIPTOR_SET)
            .with_service_name("grpc.health.v1.Health");
        names.iter().fold(builder, |builder, name| builder.with_service_name(*name))
    };
    let routes = routes
        .add_service(health::server(&reporter, stopping.clone()))
        .add_service(reflection().build_v1()?)
        .add_service(reflection().build_v1alpha()?);
    let (stop, mut stopped) = tokio::sync::watch::channel(false);
    let server = transport::serve(listener, tls, routes, Bounds::default(), figures, async move {
        tokio::select! {
            () = shutdown => {}
            never = told.follow(too_old) => match never {},
        }
        told.tell(ServingStatus::NotServing).await;
        stopping.cancel();
        let _ = stop.send(true);
    });
    let out_of_patience = async move {
        // An error means that the server is gone already.
        if stopped.wait_for(|stopped| *stopped).await.is_err() {
            std::future::pending::<()>().await;
        }
        tokio::time::sleep(grace).await;
    };
    tokio::select! {
        () = server => {}
        () = out_of_patience => {}
    }
    Ok(())
}

/// What health says of the services, and of the whole server.
struct Told {
    reporter: HealthReporter,
    names: Vec<&'static str>,
    /// What the services see could be relied on when that was looked at last.
    is_well: Option<bool>,
}

impl Told {
    /// Lets health say whether what the services see can be relied on.
    async fn follow(&mut self, too_old: impl Fn() -> Option<String>) -> Infallible {
        loop {
            tokio::time::sleep(LOOK).await;
            self.see(too_old()).await;
        }
    }

    /// Lets health say so, if this is why it cannot.
    async fn see(&mut self, problem: Option<String>) {
        let is_well = problem.is_none();
        if self.is_well.replace(is_well) == Some(is_well) {
            return;
        }
        if let Some(problem) = problem {
            tracing::warn!(problem, "the gRPC services do not see the cluster as it is");
        }
        self.tell(if is_well { ServingStatus::Serving } else { ServingStatus::NotServing }).await;
    }

    async fn tell(&self, status: ServingStatus) {
        // Who asks for no service means all of them.
        for name in self.names.iter().copied().chain([""]) {
            self.reporter.set_service_status(name, status).await;
        }
    }
}
