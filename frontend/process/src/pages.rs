//! What Prometheus and the kubelet ask a process for, over plain HTTP on a port of its own.
//!
//! `/metrics` shows figures, `/healthz` says whether the process runs, `/readyz` whether it takes requests.
//!
//! Who asks is not known: the port is open to neighbours, too. An address has few connections, so a probe gets in
//! beside others that are kept open, and each ends soon (rule service-14).
//!
//! Knows: HTTP. Must not know: what the figures mean, and when a process is ready.

use crate::listener::{self, Bounds};
use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;
use std::future::Future;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use std::{fmt, io};
use tokio::net::TcpListener;

/// What those who ask may take. Each of them is a group of its own, which has few connections: the kubelet has one or
/// two, and so has Prometheus.
const BOUNDS: Bounds = Bounds {
    connections: 512,
    connections_of_address: 8,
    keeps_alive: true,
    head_within: Duration::from_secs(5),
    request_within: Duration::from_secs(10),
    // Prometheus asks more seldom than an idle connection is kept, and makes another one each time.
    connection_within: Duration::from_secs(60),
};
/// How long requests that are under way may go on at the end.
const GRACE: Duration = Duration::from_secs(1);

/// The text of a page.
type Text<T> = Arc<dyn Fn() -> T + Send + Sync>;

/// What the pages show. Each is asked anew for every request.
#[derive(Clone)]
pub struct Pages {
    metrics: Text<Result<String, fmt::Error>>,
    readiness: Text<Readiness>,
}

/// Whether a process takes requests, and a text for people that says why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Readiness {
    /// True: the kubelet may send requests.
    pub ready: bool,
    /// The body of the answer.
    pub text: String,
}

impl Readiness {
    /// A process is ready when all conditions hold; the text has one line for each.
    pub fn all(conditions: &[(&str, bool)]) -> Self {
        let line = |(name, holds): &(&str, bool)| format!("[{}] {name}\n", if *holds { '+' } else { '-' });
        Self { ready: conditions.iter().all(|(_, holds)| *holds), text: conditions.iter().map(line).collect() }
    }
}

impl Pages {
    /// Pages with these figures, in the OpenMetrics format, and this readiness.
    pub fn new(
        metrics: impl Fn() -> Result<String, fmt::Error> + Send + Sync + 'static,
        readiness: impl Fn() -> Readiness + Send + Sync + 'static,
    ) -> Self {
        Self { metrics: Arc::new(metrics), readiness: Arc::new(readiness) }
    }

    /// Answers until `stop` ends.
    ///
    /// # Errors
    /// The listener has no address.
    pub async fn serve(self, listener: TcpListener, stop: impl Future<Output = ()> + Send + 'static) -> io::Result<()> {
        tracing::info!(address = %listener.local_addr()?, "serving metrics and probes");
        listener::serve(listener, self.router(), BOUNDS, |address: IpAddr| address, stop, GRACE).await;
        Ok(())
    }

    fn router(self) -> Router {
        Router::new()
            .route("/metrics", get(show_metrics))
            .route("/healthz", get(async || "ok\n"))
            .route("/readyz", get(show_readiness))
            .with_state(self)
    }
}

async fn show_metrics(State(pages): State<Pages>) -> impl IntoResponse {
    match (pages.metrics)() {
        Ok(text) => {
            let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
            ([(header::CONTENT_TYPE, kind)], text).into_response()
        }
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

async fn show_readiness(State(pages): State<Pages>) -> impl IntoResponse {
    let Readiness { ready, text } = (pages.readiness)();
    (if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE }, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn get(router: Router, path: &str) -> (StatusCode, String) {
        use tower::ServiceExt;
        let request = http::Request::get(path).body(axum::body::Body::empty()).unwrap();
        let response = router.oneshot(request).await.unwrap();
        let status = response.status();
        let body = axum::body::to_bytes(response.into_body(), 1 << 20).await.unwrap();
        (status, String::from_utf8(body.to_vec()).unwrap())
    }

    #[tokio::test]
    async fn the_pages_answer() {
        // path, everything is ready -> status, part of the text
        let table = [
            ("/healthz", false, StatusCode::OK, "ok"),
            ("/readyz", true, StatusCode::OK, "[+] watches"),
            ("/readyz", false, StatusCode::SERVICE_UNAVAILABLE, "[-] watches"),
            ("/metrics", true, StatusCode::OK, "queue_depth{queue=\"job\"} 3"),
            ("/metrics", false, StatusCode::INTERNAL_SERVER_ERROR, ""),
        ];
        for (path, good, status, part) in table {
            let metrics = move || if good { Ok("queue_depth{queue=\"job\"} 3\n".to_owned()) } else { Err(fmt::Error) };
            let pages = Pages::new(metrics, move || Readiness::all(&[("listener", true), ("watches", good)]));
            let (actual, text) = get(pages.router(), path).await;
            assert_eq!(actual, status, "{path}");
            assert!(text.contains(part), "{path}: {text}");
        }
    }
}
