//! What Prometheus and the kubelet ask for, over plain HTTP on a port of its own (rule service-14).
//!
//! `/metrics` figures, `/healthz` whether the process runs, `/readyz` whether it takes requests. The last two say the
//! same as gRPC health, for those that do not speak gRPC.
//!
//! Knows: HTTP. Must not know: what the figures mean.

use super::{health::Health, metrics::Metrics};
use axum::{
    Router,
    extract::State,
    http::{StatusCode, header},
    response::{IntoResponse, Response},
    routing::get,
};
use std::{io, sync::Arc};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

/// What the pages show.
#[derive(Clone)]
pub(crate) struct Pages {
    pub(crate) metrics: Arc<Metrics>,
    /// Brings figures up to date that are not kept so by themselves.
    pub(crate) refresh: Arc<dyn Fn() + Send + Sync>,
    pub(crate) health: Health,
}

/// Answers until `stop` is cancelled.
pub(crate) async fn serve(listener: TcpListener, pages: Pages, stop: CancellationToken) -> io::Result<()> {
    let router = Router::new()
        .route("/metrics", get(metrics))
        .route("/healthz", get(async || "ok\n"))
        .route("/readyz", get(ready))
        .with_state(pages);
    axum::serve(listener, router).with_graceful_shutdown(stop.cancelled_owned()).await
}

async fn metrics(State(pages): State<Pages>) -> Response {
    (pages.refresh)();
    match pages.metrics.encode() {
        Ok(text) => ([(header::CONTENT_TYPE, "application/openmetrics-text; version=1.0.0; charset=utf-8")], text)
            .into_response(),
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

async fn ready(State(pages): State<Pages>) -> Response {
    if pages.health.is_serving() {
        "ready\n".into_response()
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "draining\n").into_response()
    }
}
