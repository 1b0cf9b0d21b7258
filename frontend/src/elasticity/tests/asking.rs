//! Who asks for requests that the mirrors do not show.

use super::{called_by, go_on, key, server, service_with, wanted, why};
use crate::controllers::tests::LateMirrors;
use crate::elasticity::Elasticity;
use crate::elasticity::lookups::{self, AT_ONCE_OF_ONE};
use crate::elasticity::requests::object;
use crate::mirrors::Mirrors;
use futures::future::{join, join_all};
use futures::stream::FuturesUnordered;
use futures::{FutureExt as _, StreamExt as _};
use kube::Client;
use kube::client::Body;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use streams_api::Job;
use streams_proto::elasticity::v1::elasticity_service_server::ElasticityService as _;
use streams_proto::elasticity::v1::{CancelRequest, GetResizeRequest, ResizeName, ResizeRequest, WatchResizeRequest};
use tokio::sync::watch;
use tokio::time::Instant;
use tonic::{Code, Request};
use tonic_types::StatusExt as _;

/// An API server that has nothing, and answers nobody before it is to.
#[derive(Default)]
pub(crate) struct Slow {
    asked: AtomicUsize,
    pub(crate) answers: watch::Sender<bool>,
}

impl Slow {
    fn client(self: &Arc<Self>) -> Client {
        let it = Arc::clone(self);
        let server = tower::service_fn(move |_: http::Request<Body>| {
            it.asked.fetch_add(1, Ordering::SeqCst);
            let mut answers = it.answers.subscribe();
            async move {
                let _ = answers.wait_for(|answers| *answers).await;
                let nothing =
                    br#"{"kind": "Status", "status": "Failure", "message": "", "reason": "NotFound", "code": 404}"#;
                Ok::<_, std::io::Error>(
                    http::Response::builder().status(404).body(Body::from(nothing.to_vec())).unwrap(),
                )
            }
        });
        Client::new(server, "default")
    }

    pub(crate) fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }
}

/// A service over such an API server.
pub(crate) fn over_slow() -> (Arc<Slow>, Elasticity<Mirrors>) {
    let slow = Arc::<Slow>::default();
    let service = service_with(slow.client(), LateMirrors::of(&server(1)).mirrors.clone());
    (slow, service)
}

/// A request that nobody has made.
pub(crate) fn made_up(namespace: &str) -> Option<ResizeName> {
    Some(ResizeName { namespace: namespace.to_owned(), request: "made-up".to_owned(), ..ResizeName::default() })
}

/// What somebody hears who asks for a request that nobody has made.
async fn heard(service: &Elasticity<Mirrors>, caller: Option<&str>, namespace: &str) -> String {
    let call = called_by(caller, GetResizeRequest { name: made_up(namespace) });
    service.get_resize(call).await.map_or_else(|status| why(&status), |_| "OK".to_owned())
}

#[tokio::test]
async fn what_no_request_can_be_called_is_not_asked_for() {
    let (slow, service) = over_slow();
    // namespace, request -> the field that is wrong
    let table = [
        ("n", "?watch=true&x", "name.request"),
        ("n", "?limit=500", "name.request"),
        ("n", "x/status", "name.request"),
        ("n", "x/17", "name.request"),
        ("n", "..", "name.request"),
        ("n", "a b", "name.request"),
        ("n", "x#17", "name.request"),
        ("a/pods?", "x", "name.namespace"),
        ("", "x", "name.namespace"),
    ];
    for (namespace, request, field) in table {
        let name = Some(ResizeName { request: request.to_owned(), ..made_up(namespace).unwrap() });
        let answers = [
            service.get_resize(Request::new(GetResizeRequest { name: name.clone() })).await.err(),
            service.watch_resize(Request::new(WatchResizeRequest { name: name.clone() })).await.err(),
            service.cancel(Request::new(CancelRequest { name })).await.err(),
        ];
        for status in answers.map(Option::unwrap) {
            assert_eq!((status.code(), &*why(&status)), (Code::InvalidArgument, "INVALID_REQUEST"), "{request}");
            assert_eq!(status.get_error_details().bad_request().unwrap().field_violations[0].field, field);
        }
    }
    assert_eq!(slow.asked(), 0);
}

#[tokio::test(start_paused = true)]
async fn few_requests_are_asked_for_at_the_same_time_however_many_names_are_made_up() {
    let (slow, service) = over_slow();
    let namespaces: Vec<String> = (0..500).map(|number| format!("m{number}")).collect();
    let mut flood: FuturesUnordered<_> = namespaces.iter().map(|name| heard(&service, None, name)).collect();
    let mut refused = 0;
    while let Some(Some(answer)) = flood.next().now_or_never() {
        assert_eq!(answer, "TOO_MANY_LOOKUPS");
        refused += 1;
    }
    assert_eq!(refused, namespaces.len() - lookups::WAITING_OF_ONE_MAX, "namespaces without jobs are one");
    let others = [
        service.cancel(Request::new(CancelRequest { name: made_up("m") })).await.err(),
        service.watch_resize(Request::new(WatchResizeRequest { name: made_up("m") })).await.err(),
    ];
    assert_eq!(others.map(|status| why(&status.unwrap())), ["TOO_MANY_LOOKUPS"; 2]);
    // One with jobs, and what the mirror shows.
    let mut other = Box::pin(heard(&service, None, "n"));
    go_on(join(flood.next(), &mut other)).await;
    assert_eq!(slow.asked(), AT_ONCE_OF_ONE + 1);
    let shown = GetResizeRequest { name: Some(ResizeName { request: "flow-x".to_owned(), ..made_up("n").unwrap() }) };
    assert!(service.get_resize(Request::new(shown)).await.is_ok());
    // Who leaves makes room for those that wait, and not for those that ask.
    drop(flood);
    go_on(join_all((0..10).map(|_| heard(&service, None, "m")))).await;
    assert_eq!(slow.asked(), AT_ONCE_OF_ONE + 1);
    slow.answers.send_replace(true);
    assert_eq!([other.await, heard(&service, None, "m").await], ["RESIZE_NOT_FOUND"; 2]);
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_is_known_leaves_requests_to_be_asked_for_to_others() {
    let (slow, service) = over_slow();
    let mut flood: FuturesUnordered<_> = (0..500).map(|_| heard(&service, Some("me"), "n")).collect();
    while let Some(Some(answer)) = flood.next().now_or_never() {
        assert_eq!(answer, "TOO_MANY_LOOKUPS");
    }
    assert_eq!(flood.len(), lookups::WAITING_OF_ONE_MAX / 2);
    go_on(flood.next()).await;
    slow.answers.send_replace(true);
    // It is behind those that are being asked for, and not behind those that wait.
    assert_eq!(heard(&service, Some("you"), "n").await, "RESIZE_NOT_FOUND");
    assert!(slow.asked() <= AT_ONCE_OF_ONE + 2, "{}", slow.asked());
}

#[tokio::test(start_paused = true)]
async fn a_request_is_asked_for_as_long_as_its_caller_waits_and_this_frontend_does_not_stop() {
    // the time of the caller, whether this frontend stops -> seconds after which it is answered, with what
    let table = [
        (Some("4S"), false, 3, "STILL_WAITING"),
        (None, false, 10, "NOT_TAKEN"),
        (Some("1H"), false, 10, "NOT_TAKEN"),
        (None, true, 1, "SHUTTING_DOWN"),
    ];
    for (time, stops, expected, reason) in table {
        let (_, service) = over_slow();
        let begun = Instant::now();
        let mut call = Request::new(GetResizeRequest { name: made_up("n") });
        if let Some(time) = time {
            call.metadata_mut().insert("grpc-timeout", time.parse().unwrap());
        }
        let mut call = service.get_resize(call);
        go_on(&mut call).await;
        if stops {
            service.stopping.cancel();
        }
        let status = call.await.unwrap_err();
        assert_eq!((why(&status).as_str(), begun.elapsed().as_secs()), (reason, expected), "{time:?}");
        // Nothing was to be taken.
        let said = "the Kubernetes API did not say whether there is such a request: it takes too long";
        assert_eq!(status.message() == said, reason == "NOT_TAKEN", "{status:?}");
    }
}

/// The mirror shows a request of this key, which may be gone, and it does not show what another frontend has made.
#[tokio::test(start_paused = true)]
async fn who_asks_with_a_key_and_hears_nothing_of_its_request_hears_its_name() {
    // the time of the caller, whether this frontend stops, whether as many wait as may -> reason
    let table = [
        (Some("4S"), false, false, "STILL_WAITING"),
        (None, false, false, "NOT_TAKEN"),
        (None, true, false, "SHUTTING_DOWN"),
        (None, false, true, "TOO_MANY_LOOKUPS"),
    ];
    for (time, stops, is_full, reason) in table {
        let with_key = |width| ResizeRequest { idempotency_key: "k".to_owned(), ..wanted("R0", width) };
        let (slow, server) = (Arc::<Slow>::default(), server(1));
        let mut made = object(&server.get::<Job>(&key("flow")).unwrap(), &with_key(5));
        made.metadata.namespace = Some("n".to_owned());
        server.create(&made);
        let service = service_with(slow.client(), LateMirrors::of(&server).mirrors.clone());
        let mut others: FuturesUnordered<_> =
            (0..if is_full { lookups::WAITING_OF_ONE_MAX } else { 0 }).map(|_| heard(&service, None, "n")).collect();
        if is_full {
            go_on(others.next()).await;
        }
        let mut call = Request::new(with_key(6));
        if let Some(time) = time {
            call.metadata_mut().insert("grpc-timeout", time.parse().unwrap());
        }
        let mut call = service.resize(call);
        if stops {
            go_on(&mut call).await;
            service.stopping.cancel();
        }
        let status = call.await.unwrap_err();
        let named = status.get_error_details().error_info().unwrap().metadata.get("request").cloned();
        assert_eq!((&*why(&status), named), (reason, made.metadata.name), "{status:?}");
    }
}
