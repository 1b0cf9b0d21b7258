//! Neighbours: jobs and callers leave places to others, and a refusal is a turn.

use super::{called_by, committed, go_on, key, server, service, service_with, wanted, why};
use crate::controllers::job::long_work::dry_run::{Foresee, Foreseen, Unforeseen};
use crate::controllers::tests::LateMirrors;
use crate::elasticity::requests::object;
use crate::elasticity::{Elasticity, LISTS_OF_ONE_MAX, STREAMS_OF_ONE_MAX, WAITING_OF_ONE_MAX, WITHDRAWING_OF_ONE_MAX};
use crate::grpc::places::{CallerName, Places};
use crate::mirrors::Mirrors;
use futures::future::BoxFuture;
use kube::Client;
use kube::client::Body;
use serde_json::json;
use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use streams_api::resize::RESIZES_MAX;
use streams_api::{Job, Resize, ResizePhase, ResizeStatus};
use streams_kubernetes::metrics::Metrics;
use streams_proto::elasticity::v1::elasticity_service_server::ElasticityService as _;
use streams_proto::elasticity::v1::{
    CancelRequest, ListRegionsRequest, ResizeName, ResizeRequest, WatchRegionsRequest,
};
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};
use tonic::{Request, Status};
use tonic_types::StatusExt as _;

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
    let metrics = Metrics::new("test");
    let service = Elasticity::new(client, view, Arc::new(Endless), Duration::from_secs(600), &metrics);
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

/// Dry runs that end when a test lets them.
struct Held {
    begun: AtomicUsize,
    may_end: Semaphore,
}

impl Foresee for Held {
    fn foresee<'a>(&'a self, _: &'a Job, _: Resize) -> BoxFuture<'a, Result<Foreseen, Unforeseen>> {
        self.begun.fetch_add(1, Ordering::Relaxed);
        Box::pin(async {
            let _ended = self.may_end.acquire().await;
            Err(Unforeseen("nothing is foreseen".to_owned()))
        })
    }
}

/// What it does on other threads goes on: one caller could have as many of these busy as it likes.
#[tokio::test(start_paused = true)]
async fn a_dry_run_whose_caller_has_left_has_its_turn_until_it_ends() {
    let view = Arc::new(LateMirrors::of(&server(1)).mirrors.clone());
    let nobody =
        tower::service_fn(|_: http::Request<Body>| pending::<Result<http::Response<Body>, std::convert::Infallible>>());
    let held = Arc::new(Held { begun: AtomicUsize::new(0), may_end: Semaphore::new(0) });
    let dry_runs: Arc<dyn Foresee> = Arc::clone(&held) as _;
    let (client, metrics) = (Client::new(nobody, "default"), Metrics::new("test"));
    let service = Elasticity::new(client, view, dry_runs, Duration::from_secs(600), &metrics);
    let asks = || service.resize(Request::new(ResizeRequest { dry_run: true, ..wanted("R0", 3) }));
    for _ in 0..20 {
        assert!(timeout(Duration::from_millis(20), asks()).await.is_err());
    }
    let begun = || (held.begun.load(Ordering::Relaxed), service.foreseeing.taken());
    assert_eq!(begun(), (1, 1));
    // Those that wait have places.
    let mut waiting: Vec<_> = (0..2).map(|_| Box::pin(asks())).collect();
    go_on(&mut waiting[0]).await;
    assert_eq!(why(&waiting[1].as_mut().await.unwrap_err()), "TOO_MANY_DRY_RUNS", "the namespace has its part");
    held.may_end.add_permits(1);
    assert_eq!(why(&waiting[0].as_mut().await.unwrap_err()), "NOT_FORESEEN");
    assert_eq!(begun(), (2, 0));
}

/// It is stored, and nothing more is asked of the cluster, however many jobs wait, and whoever served the first call.
#[tokio::test(start_paused = true)]
async fn whoever_asks_again_with_its_key_is_in_nobodys_way() {
    let again = ResizeRequest { idempotency_key: "k".to_owned(), ..wanted("R0", 5) };
    // how far the request is -> what a call hears while other jobs wait, and while all of its own do
    let table = [
        (ResizePhase::Pending, None, Some("TOO_MANY_WAITING")),
        (ResizePhase::Written, Some("OK"), Some("OK")),
        (ResizePhase::Cancelled, Some("CANCELLED"), Some("CANCELLED")),
    ];
    for (phase, beside_others, beside_own) in table {
        let server = server(1);
        let mut made = object(&server.get::<Job>(&key("flow")).unwrap(), &again);
        made.metadata.namespace = Some("n".to_owned());
        let (number, generation) = (Some(7), (phase == ResizePhase::Written).then_some(4));
        made.status = Some(ResizeStatus { phase: Some(phase), number, generation, ..ResizeStatus::default() });
        server.create(&made);
        let service = service(&LateMirrors::of(&server));
        let others = (0..100).map_while(|job| service.backlog.enter(&key(&format!("job-{job}")), Instant::now()).ok());
        let _others: Vec<_> = others.collect();
        let hears = async |request: &ResizeRequest| {
            let heard = timeout(Duration::from_secs(1), service.resize(Request::new(request.clone()))).await.ok()?;
            Some(heard.err())
        };
        let word =
            |heard: &Option<Option<Status>>| heard.as_ref().map(|status| status.as_ref().map_or("OK".to_owned(), why));
        assert_eq!(word(&hears(&wanted("R0", 5)).await).as_deref(), Some("TOO_MANY_WAITING"));
        assert_eq!(word(&hears(&again).await).as_deref(), beside_others, "{phase:?}");
        let _own: Vec<_> =
            (0..WAITING_OF_ONE_MAX).map(|_| service.waiting.take("n", Some("flow"), None).ok().unwrap()).collect();
        let heard = hears(&again).await;
        assert_eq!(word(&heard).as_deref(), beside_own, "{phase:?}");
        for status in heard.into_iter().flatten() {
            let named = status.get_error_details().error_info().unwrap().metadata.get("request").cloned();
            assert_eq!(named, made.metadata.name, "{status:?}");
        }
    }
}

/// A namespace over its quota would be told to come later, by a backlog in which nobody waits.
#[tokio::test(start_paused = true)]
async fn a_refusal_is_a_turn() {
    let forbidden = tower::service_fn(|request: http::Request<Body>| async move {
        let (after, code, reason, message) = match request.method() {
            &http::Method::POST => (100, 403, "Forbidden", "exceeded quota: q"),
            _ => (0, 404, "NotFound", "not found"),
        };
        tokio::time::sleep(Duration::from_millis(after)).await;
        let status = json!({"kind": "Status", "status": "Failure", "reason": reason, "message": message, "code": code});
        let status = Body::from(status.to_string().into_bytes());
        Ok::<_, std::io::Error>(http::Response::builder().status(code).body(status).unwrap())
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

/// A service whose job has as many requests as are kept, in a cluster that has done one job a second.
async fn beside_a_full_job() -> Elasticity<Mirrors> {
    let server = server(1);
    let mirrors = LateMirrors::of(&server);
    let service = service(&mirrors);
    let job = server.get::<Job>(&key("flow")).unwrap();
    for number in 0..RESIZES_MAX {
        let mut made = object(&job, &wanted("R0", 3));
        (made.metadata.namespace, made.metadata.name) = (Some("n".to_owned()), Some(format!("r{number}")));
        mirrors.mirrors.resizes.insert(made);
    }
    for number in 0..20 {
        let place = service.backlog.enter(&key(&format!("job-{number}")), Instant::now()).unwrap();
        seconds(1).await;
        place.serve(Some(1));
    }
    service
}

async fn seconds(seconds: u64) {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
}

/// A job with as many requests as are kept would make its namespace look as if all jobs had their turns at once.
#[tokio::test(start_paused = true)]
async fn what_is_refused_without_a_turn_is_none() {
    let service = beside_a_full_job().await;
    for _ in 0..500 {
        let heard = service.resize(Request::new(wanted("R0", 3))).await;
        assert_eq!(why(&heard.unwrap_err()), "TOO_MANY_REQUESTS");
    }
    let places: Vec<_> =
        (0..50).map_while(|job| service.backlog.enter(&key(&format!("job-{job}")), Instant::now()).ok()).collect();
    assert!((4..=5).contains(&places.len()), "{}", places.len());
}

/// A job of which nothing becomes would go on to count as one that waits for its turn, and keep others out.
#[tokio::test(start_paused = true)]
async fn what_is_refused_without_a_turn_does_not_begin_the_wait_of_its_job_anew() {
    let service = beside_a_full_job().await;
    let enter = |job: &str| service.backlog.enter(&key(job), Instant::now());
    let in_vain = enter("flow").unwrap();
    seconds(5).await;
    drop(in_vain);
    seconds(1).await;
    let heard = service.resize(Request::new(wanted("R0", 3))).await;
    assert_eq!(why(&heard.unwrap_err()), "TOO_MANY_REQUESTS");
    let _again = enter("flow").unwrap();
    seconds(5).await;
    let _others = ["a", "b", "c"].map(|job| enter(job).unwrap());
    assert!(enter("d").is_ok(), "four jobs may always wait, and the first does not count any more");
}
