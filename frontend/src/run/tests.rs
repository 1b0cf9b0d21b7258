//! An API server with one Lease, and who has got it.

use http::{Method, Request, Response};
use k8s_openapi::api::coordination::v1::Lease;
use kube::Client;
use kube::client::Body;
use parking_lot::Mutex;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use streams_kubernetes::leadership::{self, Leader, LeaseOptions, Term};
use streams_kubernetes::metrics::Metrics;
use tokio_util::sync::CancellationToken;

/// The API server, as far as it has one Lease: the last that was written.
fn api_server_with_lease(lease: &Arc<Mutex<Option<Lease>>>) -> Client {
    let lease = Arc::clone(lease);
    let service = tower::service_fn(move |request: Request<Body>| {
        let lease = Arc::clone(&lease);
        async move {
            let is_read = request.method() == Method::GET;
            let body = request.into_body().collect_bytes().await.unwrap_or_default();
            let mut lease = lease.lock();
            if !is_read {
                *lease = serde_json::from_slice(&body).ok();
            }
            let (status, body) = match &*lease {
                Some(lease) => (200, serde_json::to_vec(lease).unwrap()),
                None => (
                    404,
                    br#"{"kind":"Status","status":"Failure","message":"","reason":"NotFound","code":404}"#.to_vec(),
                ),
            };
            Ok::<_, Infallible>(Response::builder().status(status).body(Body::from(body)).unwrap())
        }
    });
    Client::new(service, "n")
}

pub(super) fn holder(lease: &Mutex<Option<Lease>>) -> Option<String> {
    lease.lock().as_ref().and_then(|lease| lease.spec.clone()?.holder_identity)
}

/// What a leader that has ended says by this Lease, or that it will.
pub(super) fn note(lease: &Mutex<Option<Lease>>) -> String {
    let annotations = lease.lock().as_ref().and_then(|lease| lease.metadata.annotations.clone());
    annotations.unwrap_or_default().into_values().collect()
}

/// Who has got this Lease.
pub(super) async fn leader(lease: &Arc<Mutex<Option<Lease>>>) -> Leader {
    let client = api_server_with_lease(lease);
    let options = LeaseOptions {
        namespace: "n".to_owned(),
        name: "l".to_owned(),
        identity: "me".to_owned(),
        duration: Duration::from_secs(15),
        renew_interval: Duration::from_secs(2),
        renew_deadline: Duration::from_secs(10),
    };
    let (stop, metrics) = (CancellationToken::new(), Metrics::new("test"));
    let leader = leadership::acquire(client, options, Term::default(), &metrics, &stop).await.unwrap();
    assert_eq!(holder(lease).as_deref(), Some("me"));
    leader
}
