//! Neighbours: jobs and callers leave places to others, and a refusal is a turn.

use super::{called_by, committed, go_on, key, server, service, service_with, wanted, why};
use crate::controllers::job::long_work::dry_run::{Foresee, Foreseen, Unforeseen};
use crate::controllers::tests::LateMirrors;
use crate::elasticity::{Elasticity, LISTS_OF_ONE_MAX, STREAMS_OF_ONE_MAX, WAITING_OF_ONE_MAX, WITHDRAWING_OF_ONE_MAX};
use crate::grpc::places::{CallerName, Places};
use futures::future::BoxFuture;
use kube::Client;
use kube::client::Body;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;
use streams_api::{Job, Resize};
use streams_proto::elasticity::v1::elasticity_service_server::ElasticityService as _;
use streams_proto::elasticity::v1::{
    CancelRequest, ListRegionsRequest, ResizeName, ResizeRequest, WatchRegionsRequest,
};
use tokio::time::Instant;
use tonic::Request;

#[tokio::test(start_paused = true)]
async fn a_job_leaves_waits_and_lists_to_others() {
    let server = server(1);
    let mirrors = LateMirrors::of(&server);
    let service = service(&mirrors);
    let resize = || service.resize(Request::new(wanted("R0", 3)));
    let list = |page_size| {
        let (namespace, job) = ("n".to_owned(), "flow".to_owned());
        service.list_regions(Request::new(ListRegionsRequest { namespace, job, page_size, ..Default::default() }))
    };
    // whose calls wait, and are being sent lists -> what a further one of the job hears. Nobody answers the real one.
    for (namespace, job, resized, listed) in [
        ("n", "flow", "TOO_MANY_WAITING", Some("TOO_MANY_LISTS")),
        ("n", "other", "NOT_TAKEN", None),
        ("m", "flow", "NOT_TAKEN", None),
    ] {
        let taken = |places: &Places, count| -> Vec<_> {
            (0..count).map(|_| places.take(namespace, Some(job), None).ok().unwrap()).collect()
        };
        let _waiting = taken(&service.waiting, WAITING_OF_ONE_MAX);
        let _listed = taken(&service.lists, LISTS_OF_ONE_MAX);
        assert_eq!(why(&resize().await.unwrap_err()), resized, "{namespace}/{job}");
        assert_eq!(list(0).await.err().as_ref().map(why).as_deref(), listed, "{namespace}/{job}");
        assert!(list(10).await.is_ok(), "a page is bounded by itself");
    }
    let answer = list(0).await.unwrap();
    assert_eq!((service.lists.taken(), answer.get_ref().regions.len()), (1, 1));
    drop(answer);
    assert_eq!(service.lists.taken(), 0);
}

/// What would free the places of a job would be refused because they are taken.
#[tokio::test(start_paused = true)]
async fn a_job_whose_calls_wait_has_places_left_for_those_that_withdraw() {
    let server = server(1);
    let mut mirrors = LateMirrors::of(&server);
    let service = service(&mirrors);
    let name = ResizeName { namespace: "n".to_owned(), request: "flow-x".to_owned(), ..ResizeName::default() };
    let cancel = || service.cancel(Request::new(CancelRequest { name: Some(name.clone()) }));
    let taken = |places: &Places, count| -> Vec<_> {
        (0..count).map(|_| places.take("n", Some("flow"), None).ok().unwrap()).collect()
    };
    let _waiting = taken(&service.waiting, WAITING_OF_ONE_MAX);
    // Nobody answers.
    assert_eq!(why(&cancel().await.unwrap_err()), "NOT_TAKEN");
    let _withdrawing = taken(&service.withdrawing, WITHDRAWING_OF_ONE_MAX);
    let full = cancel().await.unwrap_err();
    let said = full.message().starts_with("64 withdrawals of job flow wait already");
    assert_eq!((&*why(&full), said), ("TOO_MANY_WAITING", true), "{full:?}");
    // What is known already takes no place.
    committed(&server, 0, true);
    mirrors.deliver_all();
    assert_eq!(why(&cancel().await.unwrap_err()), "ALREADY_COMMITTED");
}

/// A dry run without an end.
struct Endless;

impl Foresee for Endless {
    fn foresee<'a>(&'a self, _: &'a Job, _: Resize) -> BoxFuture<'a, Result<Foreseen, Unforeseen>> {
        Box::pin(pending())
    }
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_is_known_leaves_dry_runs_of_its_namespace_to_others() {
    let view = Arc::new(LateMirrors::of(&server(1)).mirrors.clone());
    let nobody =
        tower::service_fn(|_: http::Request<Body>| pending::<Result<http::Response<Body>, std::convert::Infallible>>());
    let client = Client::new(nobody, "default");
    let service = Elasticity::new(client, view, Arc::new(Endless), Duration::from_secs(600));
    let asks = |caller| {
        let request = ResizeRequest { dry_run: true, ..wanted("R0", 3) };
        service.resize(called_by(caller, request))
    };
    let mut mine = Box::pin(asks(Some("me")));
    go_on(&mut mine).await;
    assert_eq!(why(&asks(Some("me")).await.unwrap_err()), "TOO_MANY_DRY_RUNS");
    let mut yours = Box::pin(asks(Some("you")));
    go_on(&mut yours).await;
    assert_eq!(why(&asks(Some("others")).await.unwrap_err()), "TOO_MANY_DRY_RUNS", "the namespace has its part");
}

/// A namespace over its quota would be told to come later, by a backlog in which nobody waits.
#[tokio::test(start_paused = true)]
async fn a_refusal_is_a_turn() {
    let forbidden = tower::service_fn(|_: http::Request<Body>| async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        let status = br#"{"kind": "Status", "status": "Failure", "message": "exceeded quota: q", "code": 403}"#;
        Ok::<_, std::io::Error>(http::Response::builder().status(403).body(Body::from(status.to_vec())).unwrap())
    });
    let service = service_with(Client::new(forbidden, "default"), LateMirrors::of(&server(1)).mirrors.clone());
    for _ in 0..20 {
        assert_eq!(why(&service.resize(Request::new(wanted("R0", 3))).await.unwrap_err()), "QUOTA_EXCEEDED");
    }
    let places: Vec<_> =
        (0..5).map_while(|job| service.backlog.enter(&key(&format!("job-{job}")), Instant::now()).ok()).collect();
    assert_eq!(places.len(), 5);
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_is_known_leaves_waits_lists_and_streams_of_its_job_to_others() {
    let mirrors = LateMirrors::of(&server(1));
    let service = service(&mirrors);
    let names = ["me", "you"].map(|name| CallerName(name.into()));
    let taken = |places: &Places| -> Vec<_> {
        std::iter::from_fn(|| places.take("n", Some("flow"), Some(&names[0])).ok()).collect()
    };
    let all = [&service.waiting, &service.lists, &service.watching].map(taken);
    assert_eq!(all.each_ref().map(Vec::len), [WAITING_OF_ONE_MAX / 2, LISTS_OF_ONE_MAX / 2, STREAMS_OF_ONE_MAX / 2]);
    let (namespace, job) = ("n".to_owned(), "flow".to_owned());
    let list = ListRegionsRequest { namespace: namespace.clone(), job: job.clone(), ..ListRegionsRequest::default() };
    let watch = WatchRegionsRequest { namespace, job };
    // Nobody answers a call that writes.
    let table = [
        (Some("me"), ["TOO_MANY_WAITING", "TOO_MANY_LISTS", "TOO_MANY_WATCHING"]),
        (Some("you"), ["NOT_TAKEN", "OK", "OK"]),
        (None, ["NOT_TAKEN", "OK", "OK"]),
    ];
    for (caller, expected) in table {
        let heard = [
            service.resize(called_by(caller, wanted("R0", 3))).await.err(),
            service.list_regions(called_by(caller, list.clone())).await.err(),
            service.watch_regions(called_by(caller, watch.clone())).await.err(),
        ];
        let heard = heard.map(|status| status.as_ref().map_or("OK".to_owned(), why));
        assert_eq!(heard, expected, "{caller:?}");
    }
}
