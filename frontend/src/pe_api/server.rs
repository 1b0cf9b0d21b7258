//! The listener of the PE API, and its bounds (rule pe-api-7).
//!
//! Knows: who has which address. Must not know: paths, HTTP.

use super::{PeApi, router};
use crate::call_figures::HttpRequests;
use axum::middleware::from_fn_with_state;
use std::time::Duration;
use streams_process::listener::{self, Bounds};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

/// What callers may take. Addresses of pods belong to their namespace, all others are a group of their own.
const BOUNDS: Bounds = Bounds {
    // The runtime opens one for each report, and there may be thousands of PEs: a namespace has a quarter.
    connections: 8_192,
    // A PE has a few threads that ask.
    connections_of_address: 64,
    // Where the runtime asks again and again, for routes and of regions, it would keep one: those of a few thousand
    // PEs, with nothing on them, would leave no room for what they report.
    keeps_alive: false,
    head_within: Duration::from_secs(5),
    request_within: Duration::from_secs(10),
    connection_within: Duration::from_secs(300),
};

/// Serves until `stop`; then requests that are under way have `grace`. All of them are counted.
pub(crate) async fn serve(
    listener: TcpListener,
    api: PeApi,
    figures: HttpRequests,
    stop: CancellationToken,
    grace: Duration,
) {
    let callers = api.callers.clone();
    let namespace_of = move |address| callers.namespace(address);
    let router = router(api).layer(from_fn_with_state(figures, HttpRequests::count));
    listener::serve(listener, router, BOUNDS, namespace_of, stop.cancelled_owned(), grace).await;
}
