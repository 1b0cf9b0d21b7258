//! When a mirror last heard of the API server (rule call-18).
//!
//! A watch that delivers nothing looks like a kind whose objects do not change. So every watch is ended by the API
//! server after a while and begun anew; whoever hears nothing for longer has lost the connection.
//!
//! Knows: calls and their answers. Must not know: objects.

use axum::body::Body as AnyBody;
use futures::TryStreamExt;
use http::{Request, Response};
use kube::Client;
use kube::client::Body;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::time::{Instant, timeout};
use tower::{BoxError, service_fn};

/// How long a watch waits for the API server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timings {
    /// After so many seconds the API server ends a watch, which is then begun anew.
    pub renewed_after_seconds: u32,
    /// A watch whose answer does not begin within this time is given up.
    pub starts_within: Duration,
    /// A mirror that has heard nothing for this time is too old.
    pub too_old_after: Duration,
}

impl Default for Timings {
    fn default() -> Self {
        Self {
            renewed_after_seconds: 30,
            starts_within: Duration::from_secs(10),
            too_old_after: Duration::from_secs(50),
        }
    }
}

/// A watch was not answered.
#[derive(Debug, thiserror::Error)]
#[error("the API server did not begin to answer within {0:?}")]
struct NotStarted(Duration);

/// When something was heard last. Cheap to clone; all clones are the same.
#[derive(Clone, Debug)]
pub(super) struct Pulse(Arc<Mutex<Instant>>);

impl Pulse {
    pub(super) fn new() -> Self {
        Self(Arc::new(Mutex::new(Instant::now())))
    }

    fn beat(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    /// How long nothing was heard.
    pub(super) fn silence(&self) -> Duration {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).elapsed()
    }

    /// A client whose answers are noted: the beginning of each, and every part of it.
    pub(super) fn of_calls(&self, client: Client, timings: Timings) -> Client {
        let namespace = client.default_namespace().to_owned();
        let pulse = self.clone();
        let service = service_fn(move |request: Request<Body>| {
            let (client, pulse) = (client.clone(), pulse.clone());
            async move {
                // Every other call has a deadline of its own.
                let answer = if crate::client::is_watch(&request) {
                    let within = timings.starts_within;
                    timeout(within, client.send(request)).await.map_err(|_| NotStarted(within))?
                } else {
                    client.send(request).await
                };
                let answer = answer?;
                if !answer.status().is_success() {
                    return Ok(answer.map(AnyBody::new));
                }
                pulse.beat();
                let part = move |body: Body| {
                    let parts = AnyBody::new(body).into_data_stream();
                    AnyBody::from_stream(parts.inspect_ok(move |_| pulse.beat()))
                };
                Ok::<Response<AnyBody>, BoxError>(answer.map(part))
            }
        });
        Client::new(service, namespace)
    }
}
