//! Streams over the mirrors of a fake cluster, which hear of changes when a test says so.

use super::lookups::{self, AT_ONCE_OF_ONE};
use super::ready::ReadyWidths;
use super::view::ClusterView;
use super::{Elasticity, LISTS_OF_ONE_MAX, STREAMS_OF_ONE_MAX, WAITING_OF_ONE_MAX};
use crate::call_figures::ServedCalls;
use crate::controllers::job::long_work::dry_run::{Foresee, Foreseen, Unforeseen};
use crate::controllers::tests::LateMirrors;
use crate::grpc::access::Access;
use crate::grpc::access::reviewer::Subject;
use crate::grpc::places::CallerName;
use crate::grpc::transport::{self, Bounds};
use crate::mirrors::Mirrors;
use futures::future::{BoxFuture, join, join_all};
use futures::stream::FuturesUnordered;
use futures::{FutureExt as _, Stream, StreamExt as _};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use kube::Client;
use kube::api::DeleteParams;
use kube::client::Body;
use serde_json::json;
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::net::Ipv4Addr;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;
use streams_api::names::ANNOTATION_CANCEL_REQUESTED;
use streams_api::{
    BundleReference, CommittedResizes, DesiredWidth, Job, JobSpec, JobStatus, ParallelRegion, ParallelRegionSpec,
    ProcessingElement, ProposedPlan, RegionWidth, Resize, ResizeChanges, ResizePhase as Recorded, ResizeSpec,
    ResizeStatus, Rollout, Statistics,
};
use streams_kubernetes::Key;
use streams_kubernetes::ownership::controlled_by;
use streams_kubernetes_fake::Server;
use streams_process::telemetry::testing;
use streams_proto::elasticity::v1::elasticity_service_client::ElasticityServiceClient;
use streams_proto::elasticity::v1::elasticity_service_server::ElasticityService as _;
use streams_proto::elasticity::v1::{
    CancelRequest, GetRegionRequest, GetResizeRequest, ListRegionsRequest, ListRegionsResponse, ResizeName,
    ResizePhase, ResizeRequest, WatchRegionsRequest, WatchRegionsResponse, WatchResizeRequest, WatchResizeResponse,
    resize_request,
};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};
use tonic::service::Routes;
use tonic::transport::Endpoint;
use tonic::{Code, Request, Status};
use tonic_types::StatusExt as _;

/// A service that sees the job `flow` with three regions; nobody calls the API server.
pub(crate) fn a_service() -> Elasticity<Mirrors> {
    service(&LateMirrors::of(&server(3)))
}

/// A service over these mirrors; nobody calls the API server.
fn service(mirrors: &LateMirrors) -> Elasticity<Mirrors> {
    service_over(mirrors.mirrors.clone())
}

fn service_over<V: ClusterView>(view: V) -> Elasticity<V> {
    let nobody = tower::service_fn(|_: http::Request<Body>| async {
        Err::<http::Response<Body>, _>(std::io::Error::other("there is no API server"))
    });
    service_with(Client::new(nobody, "default"), view)
}

pub(super) fn service_with<V: ClusterView>(client: Client, view: V) -> Elasticity<V> {
    Elasticity::new(client, Arc::new(view), Arc::new(Blind), Duration::from_secs(600))
}

/// An API server that has nothing, and answers nobody before it is to.
#[derive(Default)]
struct Slow {
    asked: AtomicUsize,
    answers: watch::Sender<bool>,
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

    fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }
}

/// Foresees nothing.
struct Blind;

impl Foresee for Blind {
    fn foresee<'a>(&'a self, _: &'a Job, _: Resize) -> BoxFuture<'a, Result<Foreseen, Unforeseen>> {
        Box::pin(async { Err(Unforeseen::Later("nothing is foreseen".to_owned())) })
    }
}

fn key(name: &str) -> Key {
    Key::new("n", name)
}

/// Whoever may write a request may set that.
#[tokio::test(start_paused = true)]
async fn a_request_can_be_cancelled_whatever_others_have_set_of_its_managers() {
    let server = server(1);
    let mut cancelled = serde_json::to_value(server.get::<Resize>(&key("flow-x")).unwrap()).unwrap();
    cancelled["metadata"]["resourceVersion"] = json!("1000000");
    let writer = json!({"manager": "m", "operation": "Update", "time": "9999-12-31T23:59:59Z"});
    cancelled["metadata"]["managedFields"] = json!([writer]);
    cancelled["status"]["phase"] = json!("Cancelled");
    let answer = cancelled.to_string();
    let api_server = tower::service_fn(move |_: http::Request<Body>| {
        let answer = http::Response::new(Body::from(answer.clone().into_bytes()));
        async move { Ok::<_, std::io::Error>(answer) }
    });
    let service = service_with(Client::new(api_server, "default"), LateMirrors::of(&server).mirrors.clone());
    let name = ResizeName { namespace: "n".to_owned(), request: "flow-x".to_owned(), ..ResizeName::default() };
    let answer = service.cancel(Request::new(CancelRequest { name: Some(name) })).await.unwrap();
    assert_eq!(answer.into_inner().resize.unwrap().phase(), ResizePhase::Cancelled);
}

/// A job may be large, and change often, while many wait for their requests.
#[tokio::test(start_paused = true)]
async fn nothing_is_kept_of_a_job_whose_request_is_waited_for() {
    let server = server(1);
    let made = serde_json::to_vec(&server.get::<Resize>(&key("flow-x")).unwrap()).unwrap();
    let api_server = tower::service_fn(move |_: http::Request<Body>| {
        let answer = http::Response::builder().status(201).body(Body::from(made.clone())).unwrap();
        async move { Ok::<_, std::io::Error>(answer) }
    });
    let mut mirrors = LateMirrors::of(&server);
    let service = service_with(Client::new(api_server, "default"), mirrors.mirrors.clone());
    let regions = vec![resize_request::DesiredWidth { region: "R0".into(), width: 5, expected_width: None }];
    let request = ResizeRequest { namespace: "n".into(), job: "flow".into(), regions, ..ResizeRequest::default() };
    let mut waiting = pin!(service.resize(Request::new(request)));
    go_on(&mut waiting).await;
    let before = Arc::downgrade(&mirrors.mirrors.jobs.get(&key("flow")).unwrap());
    propose(&server);
    mirrors.deliver_all();
    assert!(before.upgrade().is_none());
    committed(&server, 0, true);
    mirrors.deliver_all();
    assert_eq!(waiting.await.unwrap().get_ref().generation, Some(5));
}

/// A job of generation 4 with regions of width 2, and the request number 3 for `R0`.
fn server(regions: u64) -> Server {
    let server = Server::new();
    let mut job = Job::new("flow", JobSpec::of(BundleReference::default()));
    job.metadata.namespace = Some("n".to_owned());
    let applied = (0..regions).map(|index| RegionWidth { region: format!("R{index}"), width: 2 });
    job.status = Some(JobStatus {
        generation: Some(4),
        applied_widths: applied.collect(),
        statistics: Some(Statistics { processing_elements: 9, ready_processing_elements: 9, ..Statistics::default() }),
        ..JobStatus::default()
    });
    let job = server.create(&job);
    for index in 0..regions {
        let spec = ParallelRegionSpec { job_name: "flow".to_owned(), index, name: format!("R{index}"), width: 2 };
        let mut region = ParallelRegion::new(&format!("flow-{index}"), spec);
        region.metadata.namespace = Some("n".to_owned());
        region.metadata.owner_references = Some(vec![controlled_by(&job)]);
        server.create(&region);
    }
    let wanted = DesiredWidth { name: "R0".to_owned(), width: 5, expected_width: None };
    let spec = ResizeSpec { job_name: "flow".to_owned(), regions: vec![wanted], ..ResizeSpec::default() };
    let mut request = Resize::new("flow-x", spec);
    request.metadata.namespace = Some("n".to_owned());
    request.metadata.owner_references = Some(vec![controlled_by(&job)]);
    request.status = Some(ResizeStatus { number: Some(3), ..ResizeStatus::default() });
    server.create(&request);
    server
}

const CHANGES: ResizeChanges = ResizeChanges { kept: 5, restarted: 4, added: 3, removed: 0 };

fn propose(server: &Server) {
    server.edit::<Job>(&key("flow"), |job| {
        let mut proposal = ProposedPlan { resizes: vec![3], changes: Some(CHANGES), ..ProposedPlan::default() };
        proposal.plan.generation = 5;
        job.status.get_or_insert_default().proposal = Some(proposal);
    });
}

/// The request is committed, and so many PEs are to follow.
fn committed(server: &Server, pending: u32, is_finished: bool) {
    server.edit::<Job>(&key("flow"), |job| {
        let status = job.status.get_or_insert_default();
        (status.proposal, status.generation) = (None, Some(5));
        status.committed_resizes = vec![CommittedResizes { generation: 5, resizes: vec![3], changes: CHANGES }];
        let finished_at = is_finished.then_some(MicroTime(Timestamp::UNIX_EPOCH));
        status.rollout = Some(Rollout { generation: 5, pending, finished_at, ..Rollout::default() });
        status.statistics = Some(Statistics {
            processing_elements: 12,
            ready_processing_elements: 12 - pending,
            ..Statistics::default()
        });
    });
}

/// The next message, or how the stream ends; the clock of the test goes on by itself.
async fn next<T: Debug>(stream: &mut Pin<&mut impl Stream<Item = Result<T, Status>>>) -> Option<Result<T, Status>> {
    timeout(Duration::from_secs(3600), stream.next()).await.expect("nothing is told, and the stream does not end")
}

/// Nothing is told for a while.
async fn is_silent<T: Debug>(stream: &mut Pin<&mut impl Stream<Item = Result<T, Status>>>) {
    let told = timeout(Duration::from_secs(5), stream.next()).await;
    assert!(told.is_err(), "{told:?}");
}

fn step(message: &WatchResizeResponse) -> (ResizePhase, Option<u64>, Option<u32>, Option<(u32, u32, u32)>) {
    let resize = message.resize.as_ref().unwrap();
    let progress = message.progress.as_ref().map(|progress| (progress.pending, progress.ready, progress.total));
    (resize.phase(), resize.generation, resize.changes.map(|changes| changes.restarted), progress)
}

fn deadline() -> Instant {
    Instant::now() + Duration::from_secs(600)
}

#[tokio::test(start_paused = true)]
async fn a_request_is_followed_to_its_end_and_a_slow_reader_hears_the_newest_state() {
    let server = server(1);
    let mut mirrors = LateMirrors::of(&server);
    let service = service(&mirrors);
    let request = mirrors.mirrors.resizes.get(&key("flow-x")).unwrap();
    let mut stream = pin!(service.follow_resize(Arc::clone(&request), None, deadline()).unwrap());
    let told = next(&mut stream).await.unwrap().unwrap();
    assert_eq!(step(&told), (ResizePhase::Pending, None, None, None));
    is_silent(&mut stream).await;
    propose(&server);
    mirrors.deliver_all();
    let told = next(&mut stream).await.unwrap().unwrap();
    assert_eq!(step(&told), (ResizePhase::Planned, Some(5), Some(4), None));
    // Nobody reads meanwhile.
    for pending in [7, 5, 4] {
        committed(&server, pending, false);
        mirrors.deliver_all();
    }
    let told = next(&mut stream).await.unwrap().unwrap();
    assert_eq!(step(&told), (ResizePhase::Committed, Some(5), Some(4), Some((4, 8, 12))));
    is_silent(&mut stream).await;
    committed(&server, 0, true);
    mirrors.deliver_all();
    let told = next(&mut stream).await.unwrap().unwrap();
    assert_eq!(step(&told), (ResizePhase::RolledOut, Some(5), Some(4), Some((0, 12, 12))));
    assert!(next(&mut stream).await.is_none(), "the end is told last");
    // Whoever comes late hears the end, once.
    let mut late = pin!(service.follow_resize(request, None, deadline()).unwrap());
    assert_eq!(step(&next(&mut late).await.unwrap().unwrap()).0, ResizePhase::RolledOut);
    assert!(next(&mut late).await.is_none());
}

fn names(message: &WatchRegionsResponse) -> (Vec<(&str, u32)>, Vec<&str>, bool) {
    let regions = message.regions.iter().map(|region| (region.name.as_str(), region.desired_width)).collect();
    (regions, message.deleted.iter().map(|gone| gone.name.as_str()).collect(), message.complete)
}

#[tokio::test(start_paused = true)]
async fn regions_are_told_all_at_first_and_then_what_changes() {
    for job in [Some("flow".to_owned()), None] {
        let server = server(3);
        let mut mirrors = LateMirrors::of(&server);
        let service = service(&mirrors);
        let mut stream = pin!(service.follow_regions("n".to_owned(), job, None, deadline()).unwrap());
        let told = next(&mut stream).await.unwrap().unwrap();
        assert_eq!(names(&told), (vec![("R0", 2), ("R1", 2), ("R2", 2)], vec![], true));
        is_silent(&mut stream).await;
        let wants = |index: u64, width| {
            server.edit::<ParallelRegion>(&key(&format!("flow-{index}")), |region| region.spec.width = width);
        };
        // Three edits of one region, and one that changes nothing of what is shown.
        for width in [3, 4, 5] {
            wants(1, width);
        }
        server.edit::<ParallelRegion>(&key("flow-2"), |region| {
            region.metadata.annotations = Some([("a".to_owned(), "b".to_owned())].into());
        });
        mirrors.deliver_all();
        assert_eq!(names(&next(&mut stream).await.unwrap().unwrap()), (vec![("R1", 5)], vec![], true));
        is_silent(&mut stream).await;
        server.remove::<ParallelRegion>(&key("flow-0"));
        wants(2, 7);
        mirrors.deliver_all();
        assert_eq!(names(&next(&mut stream).await.unwrap().unwrap()), (vec![("R2", 7)], vec![], false));
        assert_eq!(names(&next(&mut stream).await.unwrap().unwrap()), (vec![], vec!["R0"], true));
        is_silent(&mut stream).await;
    }
}

#[tokio::test(start_paused = true)]
async fn many_regions_are_told_in_parts_and_none_at_all_as_well() {
    for (regions, parts) in [(600, vec![256, 256, 88]), (0, vec![0])] {
        let server = server(regions);
        let mirrors = LateMirrors::of(&server);
        let service = service(&mirrors);
        let mut stream = pin!(service.follow_regions("n".to_owned(), None, None, deadline()).unwrap());
        for (position, part) in parts.iter().enumerate() {
            let told = next(&mut stream).await.unwrap().unwrap();
            assert_eq!((told.regions.len(), told.complete), (*part, position + 1 == parts.len()), "{regions}");
        }
        is_silent(&mut stream).await;
    }
}

/// Who reads slowly is no reason to keep more than what there is now.
#[tokio::test(start_paused = true)]
async fn what_does_not_fit_into_a_message_is_told_as_it_is_when_there_is_room_for_it() {
    let server = server(600);
    let mut mirrors = LateMirrors::of(&server);
    let service = service(&mirrors);
    let follow = || service.follow_regions("n".to_owned(), None, None, deadline()).unwrap();
    let mut slow = pin!(follow());
    let mut other = pin!(follow());
    let mut seen = BTreeMap::new();
    let mut heard = |told: Option<Result<WatchRegionsResponse, Status>>| {
        let told = told.unwrap().unwrap();
        seen.extend(told.regions.iter().map(|region| (region.name.clone(), region.desired_width)));
        told.deleted.iter().for_each(|gone| assert!(seen.remove(&gone.name).is_some()));
        let first = told.regions.first().map(|region| region.name.clone()).unwrap_or_default();
        let others = seen.iter().filter(|(_, width)| **width != 2).map(|(name, width)| (name.clone(), *width));
        ((first, told.regions.len(), told.deleted.len(), told.complete), seen.len(), others.collect::<Vec<_>>())
    };
    // By name: R0, R1, R10, R100, R101 and so on; R599 is near the end.
    let message = |first: &str, regions, deleted, complete| (first.to_owned(), regions, deleted, complete);
    assert_eq!(heard(next(&mut slow).await), (message("R0", 256, 0, false), 256, vec![]));
    // Of those that were told one changes and one goes, and of those that were not.
    for (index, width) in [(0, 7), (599, 8)] {
        server.edit::<ParallelRegion>(&key(&format!("flow-{index}")), |region| region.spec.width = width);
    }
    ["flow-1", "flow-598"].into_iter().for_each(|name| server.remove::<ParallelRegion>(&key(name)));
    mirrors.deliver_all();
    // Somebody else looks.
    while !next(&mut other).await.unwrap().unwrap().complete {}
    // What was not told, as it is now; then what is gone; then what has changed since it was told.
    let (last, all) = ([("R599".to_owned(), 8)], [("R0".to_owned(), 7), ("R599".to_owned(), 8)]);
    assert_eq!(heard(next(&mut slow).await), (message("R329", 256, 0, false), 512, vec![]));
    assert_eq!(heard(next(&mut slow).await), (message("R56", 87, 0, false), 599, last.to_vec()));
    assert_eq!(heard(next(&mut slow).await), (message("", 0, 1, false), 598, last.to_vec()));
    assert_eq!(heard(next(&mut slow).await), (message("R0", 1, 0, true), 598, all.to_vec()));
    is_silent(&mut slow).await;
    is_silent(&mut other).await;
}

#[tokio::test(start_paused = true)]
async fn a_stream_ends_with_the_time_of_its_reader_with_this_frontend_and_with_what_it_follows() {
    let reason = |status: &Status| status.get_error_details().error_info().unwrap().reason.clone();
    let start = || {
        let server = server(1);
        let mirrors = LateMirrors::of(&server);
        let service = service(&mirrors);
        let request = mirrors.mirrors.resizes.get(&key("flow-x")).unwrap();
        (server, mirrors, service, request)
    };
    // The time is over.
    let (_server, _mirrors, service, request) = start();
    let begun = Instant::now();
    let mut resize = pin!(service.follow_resize(request, None, deadline()).unwrap());
    let mut regions = pin!(service.follow_regions("n".to_owned(), None, None, deadline()).unwrap());
    assert!(next(&mut resize).await.unwrap().is_ok() && next(&mut regions).await.unwrap().is_ok());
    let ends = [next(&mut resize).await.unwrap().err().unwrap(), next(&mut regions).await.unwrap().err().unwrap()];
    assert_eq!(ends.each_ref().map(of_request), [Some("flow-x".to_owned()), None]);
    for end in ends {
        assert_eq!((end.code(), reason(&end).as_str()), (Code::DeadlineExceeded, "STILL_WAITING"));
    }
    assert_eq!(begun.elapsed().as_secs(), 600);
    assert!(next(&mut resize).await.is_none() && next(&mut regions).await.is_none());
    // This frontend is to stop.
    let (_server, _mirrors, service, request) = start();
    let mut resize = pin!(service.follow_resize(request, None, deadline()).unwrap());
    let mut regions = pin!(service.follow_regions("n".to_owned(), None, None, deadline()).unwrap());
    assert!(next(&mut resize).await.unwrap().is_ok() && next(&mut regions).await.unwrap().is_ok());
    service.stopping.cancel();
    let ends = [next(&mut resize).await.unwrap().err().unwrap(), next(&mut regions).await.unwrap().err().unwrap()];
    assert_eq!(ends.each_ref().map(of_request), [Some("flow-x".to_owned()), None]);
    for end in ends {
        assert_eq!((end.code(), reason(&end).as_str()), (Code::Unavailable, "SHUTTING_DOWN"));
        assert!(end.get_error_details().retry_info().is_some());
    }
    // Somebody deletes the request.
    let (server, mut mirrors, service, request) = start();
    let mut resize = pin!(service.follow_resize(request, None, deadline()).unwrap());
    assert!(next(&mut resize).await.unwrap().is_ok());
    server.remove::<Resize>(&key("flow-x"));
    mirrors.deliver_all();
    let end = next(&mut resize).await.unwrap().err().unwrap();
    assert_eq!((end.code(), reason(&end).as_str()), (Code::Aborted, "CANCELLED"));
}

/// The name of the request that an error has.
fn of_request(status: &Status) -> Option<String> {
    status.get_error_details().error_info().unwrap().metadata.get("request").cloned()
}

/// Whoever has no key finds it by nothing else.
#[tokio::test(start_paused = true)]
async fn whatever_keeps_a_caller_from_hearing_more_of_its_request_has_the_name_of_it() {
    for (is_stopped, is_without_job, expected) in
        [(false, false, "STILL_WAITING"), (true, false, "SHUTTING_DOWN"), (false, true, "JOB_NOT_FOUND")]
    {
        let server = server(1);
        server.edit::<Resize>(&key("flow-x"), |request| {
            let cancel = (ANNOTATION_CANCEL_REQUESTED.to_owned(), "somebody".to_owned());
            request.metadata.annotations = Some([cancel].into());
        });
        let mut mirrors = LateMirrors::of(&server);
        let service = service(&mirrors);
        let request = mirrors.mirrors.resizes.get(&key("flow-x")).unwrap();
        if is_stopped {
            service.stopping.cancel();
        }
        if is_without_job {
            server.remove::<Job>(&key("flow"));
            mirrors.deliver_all();
        }
        let job = key("flow");
        let place = service.backlog.enter(&job, Instant::now()).unwrap();
        let waits = service.wait(&job, &request, place, resize_request::WaitFor::Committed, deadline()).await;
        let withdrawn = service.withdraw(Arc::clone(&request), None, deadline()).await;
        for status in [waits.unwrap_err(), withdrawn.unwrap_err()] {
            assert_eq!((why(&status).as_str(), of_request(&status).as_deref()), (expected, Some("flow-x")));
        }
    }
}

/// It may be deleted alone, and nobody looks at its requests then.
#[tokio::test(start_paused = true)]
async fn a_stream_ends_with_a_job_that_is_gone_and_not_because_it_is_not_there_yet() {
    let server = server(1);
    let mut mirrors = LateMirrors::of(&server);
    let service = service(&mirrors);
    let request = mirrors.mirrors.resizes.get(&key("flow-x")).unwrap();
    let mut stream = pin!(service.follow_resize(Arc::clone(&request), None, deadline()).unwrap());
    assert!(next(&mut stream).await.unwrap().is_ok());
    server.remove::<Job>(&key("flow"));
    mirrors.deliver_all();
    let end = next(&mut stream).await.unwrap().unwrap_err();
    assert_eq!((why(&end).as_str(), of_request(&end).as_deref()), ("JOB_NOT_FOUND", Some("flow-x")));
    let mut later = pin!(service.follow_resize(request, None, deadline()).unwrap());
    assert!(next(&mut later).await.unwrap().is_ok());
    is_silent(&mut later).await;
}

/// A request is not kept for ever, and what it has come to does not end with it.
#[tokio::test(start_paused = true)]
async fn who_follows_a_committed_request_hears_its_end_though_its_object_is_gone() {
    let server = server(1);
    let mut mirrors = LateMirrors::of(&server);
    let service = service(&mirrors);
    let request = mirrors.mirrors.resizes.get(&key("flow-x")).unwrap();
    let mut stream = pin!(service.follow_resize(Arc::clone(&request), None, deadline()).unwrap());
    let job = key("flow");
    let place = service.backlog.enter(&job, Instant::now()).unwrap();
    let waits = service.wait(&job, &request, place, resize_request::WaitFor::RolledOut, deadline());
    let mut waits = pin!(waits);
    assert!(next(&mut stream).await.unwrap().is_ok() && (&mut waits).now_or_never().is_none());
    committed(&server, 4, false);
    mirrors.deliver_all();
    assert_eq!(step(&next(&mut stream).await.unwrap().unwrap()).0, ResizePhase::Committed);
    server.remove::<Resize>(&key("flow-x"));
    mirrors.deliver_all();
    is_silent(&mut stream).await;
    assert!((&mut waits).now_or_never().is_none(), "it is still rolled out");
    let late = service.withdraw(Arc::clone(&request), None, deadline()).await.unwrap_err();
    assert_eq!(why(&late), "ALREADY_COMMITTED");
    committed(&server, 0, true);
    mirrors.deliver_all();
    assert_eq!(step(&next(&mut stream).await.unwrap().unwrap()).0, ResizePhase::RolledOut);
    assert!(next(&mut stream).await.is_none());
    assert_eq!(waits.await.unwrap().generation, Some(5));
}

/// The controller makes nothing of it any more, unless it is committed, and finalizers may hold it for long.
#[tokio::test(start_paused = true)]
async fn a_request_that_is_deleted_is_gone_though_its_object_is_still_there() {
    for is_committed in [false, true] {
        let server = server(1);
        let hold = |request: &mut Resize| request.metadata.finalizers = Some(vec!["example.com/hold".to_owned()]);
        server.edit::<Resize>(&key("flow-x"), hold);
        let mut mirrors = LateMirrors::of(&server);
        let service = service(&mirrors);
        let request = mirrors.mirrors.resizes.get(&key("flow-x")).unwrap();
        let mut stream = pin!(service.follow_resize(Arc::clone(&request), None, deadline()).unwrap());
        let job = key("flow");
        let place = service.backlog.enter(&job, Instant::now()).unwrap();
        let waits = service.wait(&job, &request, place, resize_request::WaitFor::Committed, deadline());
        let mut waits = pin!(waits);
        assert!(next(&mut stream).await.unwrap().is_ok() && (&mut waits).now_or_never().is_none());
        if is_committed {
            committed(&server, 0, true);
        }
        server.delete::<Resize>(&key("flow-x"), &DeleteParams::default());
        mirrors.deliver_all();
        assert!(mirrors.mirrors.resizes.get(&key("flow-x")).is_some(), "it is held");
        let (told, answer) = (next(&mut stream).await.unwrap(), waits.await);
        let cancelled = service.withdraw(Arc::clone(&request), None, deadline()).await.unwrap_err();
        if is_committed {
            assert_eq!(step(&told.unwrap()).0, ResizePhase::RolledOut);
            assert_eq!((answer.unwrap().generation, why(&cancelled).as_str()), (Some(5), "ALREADY_COMMITTED"));
        } else {
            assert_eq!([told.unwrap_err(), answer.unwrap_err()].map(|end| why(&end)), ["CANCELLED"; 2]);
            assert_eq!(why(&cancelled), "RESIZE_NOT_FOUND");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn nobody_waits_for_a_request_of_a_job_that_is_being_deleted() {
    let server = server(1);
    let mut mirrors = LateMirrors::of(&server);
    let service = service(&mirrors);
    let request = mirrors.mirrors.resizes.get(&key("flow-x")).unwrap();
    let mut stream = pin!(service.follow_resize(Arc::clone(&request), None, deadline()).unwrap());
    assert!(next(&mut stream).await.unwrap().is_ok());
    server.delete::<Job>(&key("flow"), &DeleteParams::foreground());
    mirrors.deliver_all();
    assert_eq!(why(&next(&mut stream).await.unwrap().unwrap_err()), "JOB_NOT_FOUND");
    let withdrawn = service.withdraw(request, None, deadline()).await.unwrap_err();
    assert_eq!(why(&withdrawn), "JOB_NOT_FOUND");
}

/// Requests of both have the same numbers.
#[tokio::test(start_paused = true)]
async fn a_job_made_again_says_nothing_of_the_requests_of_the_one_before() {
    let server = server(1);
    committed(&server, 0, true);
    let request = server.get::<Resize>(&key("flow-x")).unwrap();
    let mut other = request.clone();
    other.metadata.owner_references.iter_mut().flatten().for_each(|owner| owner.uid = "another".to_owned());
    let service = service(&LateMirrors::of(&server));
    let phases = [&request, &other].map(|request| service.state_of(request).phase());
    assert_eq!(phases, [ResizePhase::RolledOut, ResizePhase::Pending]);
}

/// Each call of a crowd would read all regions of the job, on a thread that serves everybody.
#[tokio::test(start_paused = true)]
async fn an_answer_about_one_request_reads_no_regions_but_its_own() {
    let server = server(3);
    committed(&server, 0, true);
    let mut refused = server.get::<Resize>(&key("flow-x")).unwrap();
    refused.status = Some(ResizeStatus { phase: Some(Recorded::Refused), ..ResizeStatus::default() });
    let mirrors = LateMirrors::of(&server);
    let (view, reads, _release) = Watched::new(&mirrors);
    let service = service_over(view);
    let unknown = resize_request::DesiredWidth { region: "R7".to_owned(), width: 3, expected_width: None };
    let (namespace, job) = ("n".to_owned(), "flow".to_owned());
    let unknown = ResizeRequest { namespace, job, regions: vec![unknown], ..ResizeRequest::default() };
    let heard = service.resize(Request::new(unknown)).await.unwrap_err();
    assert_eq!((why(&heard).as_str(), heard.message().contains("R0, R1, R2")), ("REGION_NOT_FOUND", true));
    assert_eq!(service.state_of(&refused).reason, "REJECTED");
    let request = mirrors.mirrors.resizes.get(&key("flow-x")).unwrap();
    let place = service.backlog.enter(&key("flow"), Instant::now()).unwrap();
    let wait_for = resize_request::WaitFor::Committed;
    let answer = service.wait(&key("flow"), &request, place, wait_for, deadline()).await.unwrap();
    assert_eq!(answer.regions.iter().map(|region| region.name.as_str()).collect::<Vec<_>>(), ["R0"]);
    assert_eq!(reads.counts(), [0, 1, 0]);
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_is_dropped_makes_room() {
    let server = server(1);
    let mirrors = LateMirrors::of(&server);
    let service = service(&mirrors);
    let follow = || service.follow_regions("n".to_owned(), Some("flow".to_owned()), None, deadline());
    let mut streams: Vec<_> = std::iter::from_fn(|| follow().ok()).collect();
    assert_eq!(follow().err().unwrap().code(), Code::ResourceExhausted);
    streams.pop();
    assert!(follow().is_ok());
}

fn why(status: &Status) -> String {
    status.get_error_details().error_info().unwrap().reason.clone()
}

#[tokio::test(start_paused = true)]
async fn a_job_leaves_waits_and_lists_to_others() {
    let server = server(1);
    let mirrors = LateMirrors::of(&server);
    let service = service(&mirrors);
    let resize = || {
        let regions = vec![resize_request::DesiredWidth { region: "R0".into(), width: 3, expected_width: None }];
        let request = ResizeRequest { namespace: "n".into(), job: "flow".into(), regions, ..ResizeRequest::default() };
        service.resize(Request::new(request))
    };
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
        let taken = |places: &super::Places, count| -> Vec<_> {
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

/// A namespace over its quota would be told to come later, by a backlog in which nobody waits.
#[tokio::test(start_paused = true)]
async fn a_refusal_is_a_turn() {
    let forbidden = tower::service_fn(|_: http::Request<Body>| async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        let status = br#"{"kind": "Status", "status": "Failure", "message": "exceeded quota: q", "code": 403}"#;
        Ok::<_, std::io::Error>(http::Response::builder().status(403).body(Body::from(status.to_vec())).unwrap())
    });
    let service = service_with(Client::new(forbidden, "default"), LateMirrors::of(&server(1)).mirrors.clone());
    let regions = vec![resize_request::DesiredWidth { region: "R0".into(), width: 3, expected_width: None }];
    let request = ResizeRequest { namespace: "n".into(), job: "flow".into(), regions, ..ResizeRequest::default() };
    for _ in 0..20 {
        assert_eq!(why(&service.resize(Request::new(request.clone())).await.unwrap_err()), "QUOTA_EXCEEDED");
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
    let taken = |places: &super::Places| -> Vec<_> {
        std::iter::from_fn(|| places.take("n", Some("flow"), Some(&names[0])).ok()).collect()
    };
    let all = [&service.waiting, &service.lists, &service.watching].map(taken);
    assert_eq!(all.each_ref().map(Vec::len), [WAITING_OF_ONE_MAX / 2, LISTS_OF_ONE_MAX / 2, STREAMS_OF_ONE_MAX / 2]);
    let (namespace, job) = ("n".to_owned(), "flow".to_owned());
    let regions = vec![resize_request::DesiredWidth { region: "R0".into(), width: 3, expected_width: None }];
    let resize = ResizeRequest { namespace: namespace.clone(), job: job.clone(), regions, ..ResizeRequest::default() };
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
            service.resize(called_by(caller, resize.clone())).await.err(),
            service.list_regions(called_by(caller, list.clone())).await.err(),
            service.watch_regions(called_by(caller, watch.clone())).await.err(),
        ];
        let heard = heard.map(|status| status.as_ref().map_or("OK".to_owned(), why));
        assert_eq!(heard, expected, "{caller:?}");
    }
}

/// A span is kept for as long as the collector is slow.
#[tokio::test(start_paused = true)]
async fn a_span_has_no_text_that_is_no_name() {
    let collected = testing::collect(&[]);
    let service = service(&LateMirrors::of(&server(1)));
    for (namespace, job) in [("n", "flow"), ("n", &*"a".repeat(100_000)), ("a b", "flow")] {
        let request = ResizeRequest { namespace: namespace.into(), job: job.into(), ..ResizeRequest::default() };
        assert_eq!(why(&service.resize(Request::new(request)).await.unwrap_err()), "INVALID_REQUEST");
    }
    let spans = collected.spans();
    let said: Vec<_> =
        spans.iter().map(|span| ["namespace", "job"].map(|name| span.attribute(name).unwrap_or_default())).collect();
    assert_eq!(said, [["n", "flow"], ["n", ""], ["", "flow"]]);
}

/// A call of this caller.
fn called_by<T>(caller: Option<&str>, message: T) -> Request<T> {
    let mut call = Request::new(message);
    if let Some(name) = caller {
        call.extensions_mut().insert(Arc::new(Subject::called(name)));
    }
    call
}

/// A request that nobody has made.
fn made_up(namespace: &str) -> Option<ResizeName> {
    Some(ResizeName { namespace: namespace.to_owned(), request: "made-up".to_owned(), ..ResizeName::default() })
}

#[tokio::test]
async fn what_no_request_can_be_called_is_not_asked_for() {
    let slow = Arc::<Slow>::default();
    let service = service_with(slow.client(), LateMirrors::of(&server(1)).mirrors.clone());
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

/// What somebody hears who asks for a request that nobody has made.
async fn heard<V: ClusterView>(service: &Elasticity<V>, caller: Option<&str>, namespace: &str) -> String {
    let call = called_by(caller, GetResizeRequest { name: made_up(namespace) });
    service.get_resize(call).await.map_or_else(|status| why(&status), |_| "OK".to_owned())
}

/// Calls that go on for a while without being answered.
async fn go_on<T: Debug>(calls: impl Future<Output = T>) {
    let answered = timeout(Duration::from_secs(1), calls).await;
    assert!(answered.is_err(), "{answered:?}");
}

#[tokio::test(start_paused = true)]
async fn few_requests_are_asked_for_at_the_same_time_however_many_names_are_made_up() {
    let mirrors = LateMirrors::of(&server(1));
    let slow = Arc::<Slow>::default();
    let service = service_with(slow.client(), mirrors.mirrors.clone());
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
    let mirrors = LateMirrors::of(&server(1));
    let slow = Arc::<Slow>::default();
    let service = service_with(slow.client(), mirrors.mirrors.clone());
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
    let mirrors = LateMirrors::of(&server(1));
    // the time of the caller, whether this frontend stops -> seconds after which it is answered, with what
    let table = [
        (Some("4S"), false, 3, "STILL_WAITING"),
        (None, false, 10, "NOT_TAKEN"),
        (Some("1H"), false, 10, "NOT_TAKEN"),
        (None, true, 1, "SHUTTING_DOWN"),
    ];
    for (time, stops, expected, reason) in table {
        let service = service_with(Arc::<Slow>::default().client(), mirrors.mirrors.clone());
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
        assert_eq!((why(&call.await.unwrap_err()).as_str(), begun.elapsed().as_secs()), (reason, expected), "{time:?}");
    }
}

#[tokio::test]
async fn an_answer_that_nobody_reads_is_reset_and_makes_room() {
    let server = server(3);
    let mirrors = LateMirrors::of(&server);
    let service = service(&mirrors);
    let (watching, lists) = (service.watching.clone(), service.lists.clone());
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let bounds = Bounds { unread: Duration::from_millis(200), ..Bounds::default() };
    let routes = Routes::new(service.into_server(Access::Open));
    tokio::spawn(transport::serve(listener, routes, bounds, ServedCalls::default(), std::future::pending()));
    let endpoint = Endpoint::from_shared(format!("http://{address}")).unwrap();
    // The client lets nobody send anything on a stream but its head.
    let channel = endpoint.initial_stream_window_size(0).connect().await.unwrap();
    let mut client = ElasticityServiceClient::new(channel);
    let request = WatchRegionsRequest { namespace: "n".to_owned(), job: String::new() };
    let mut stream = client.watch_regions(request).await.unwrap().into_inner();
    assert_eq!(watching.taken(), 1);
    let end = timeout(Duration::from_secs(20), stream.message()).await.expect("it is not reset");
    assert_eq!((end.unwrap_err().code(), watching.taken()), (Code::Cancelled, 0));
    let request = ListRegionsRequest { namespace: "n".to_owned(), ..ListRegionsRequest::default() };
    let list = tokio::spawn(async move { client.list_regions(request).await });
    while lists.taken() == 0 {
        tokio::task::yield_now().await;
    }
    let end = timeout(Duration::from_secs(20), list).await.expect("it is not reset").unwrap();
    assert_eq!((end.unwrap_err().code(), lists.taken()), (Code::Cancelled, 0));
}

/// Mirrors, and how often somebody has read what there may be many of.
struct Watched {
    mirrors: Mirrors,
    reads: Arc<Reads>,
    /// Reads of regions of the namespace `held` last until there is one of these.
    release: Mutex<mpsc::Receiver<()>>,
}

#[derive(Default)]
struct Reads {
    regions: AtomicUsize,
    resizes: AtomicUsize,
    processing_elements: AtomicUsize,
}

impl Reads {
    fn counts(&self) -> [usize; 3] {
        [&self.regions, &self.resizes, &self.processing_elements].map(|count| count.load(Ordering::SeqCst))
    }
}

impl Watched {
    fn new(mirrors: &LateMirrors) -> (Self, Arc<Reads>, mpsc::Sender<()>) {
        let (reads, (release, held)) = (Arc::<Reads>::default(), mpsc::channel());
        let view = Self { mirrors: mirrors.mirrors.clone(), reads: Arc::clone(&reads), release: Mutex::new(held) };
        (view, reads, release)
    }
}

impl ClusterView for Watched {
    fn job(&self, namespace: &str, name: &str) -> Option<Arc<Job>> {
        self.mirrors.job(namespace, name)
    }

    fn has_jobs(&self, namespace: &str) -> bool {
        self.mirrors.has_jobs(namespace)
    }

    fn regions(&self, namespace: &str, job: Option<&str>) -> Vec<Arc<ParallelRegion>> {
        self.reads.regions.fetch_add(1, Ordering::SeqCst);
        if namespace == "held" {
            let _ = self.release.lock().unwrap().recv();
        }
        self.mirrors.regions(namespace, job)
    }

    fn region(&self, namespace: &str, job: &str, name: &str) -> Option<Arc<ParallelRegion>> {
        self.mirrors.region(namespace, job, name)
    }

    fn first_region(&self, namespace: &str, job: &str) -> Option<Arc<ParallelRegion>> {
        self.mirrors.first_region(namespace, job)
    }

    fn resize(&self, namespace: &str, name: &str) -> Option<Arc<Resize>> {
        self.mirrors.resize(namespace, name)
    }

    fn resizes(&self, namespace: &str, job: &str) -> Vec<Arc<Resize>> {
        self.reads.resizes.fetch_add(1, Ordering::SeqCst);
        self.mirrors.resizes(namespace, job)
    }

    fn open_resizes(&self, namespace: &str, job: &str) -> Vec<Arc<Resize>> {
        self.reads.resizes.fetch_add(1, Ordering::SeqCst);
        ClusterView::open_resizes(&self.mirrors, namespace, job)
    }

    fn count_resizes(&self, namespace: &str, job: &str) -> usize {
        self.mirrors.count_resizes(namespace, job)
    }

    fn resizes_of_namespace(&self, namespace: &str) -> Vec<Arc<Resize>> {
        self.mirrors.resizes_of_namespace(namespace)
    }

    fn processing_elements(&self, namespace: &str, job: &str) -> Box<dyn Iterator<Item = Arc<ProcessingElement>>> {
        self.reads.processing_elements.fetch_add(1, Ordering::SeqCst);
        ClusterView::processing_elements(&self.mirrors, namespace, job)
    }

    fn too_old(&self) -> Option<String> {
        self.mirrors.too_old()
    }

    fn changes_of_namespace(&self, namespace: &str) -> watch::Receiver<u64> {
        self.mirrors.changes_of_namespace(namespace)
    }

    fn changes(&self, namespace: &str, job: &str) -> watch::Receiver<u64> {
        self.mirrors.changes(namespace, job)
    }
}

#[tokio::test(start_paused = true)]
async fn streams_of_one_scope_share_their_looks() {
    for job in [Some("flow".to_owned()), None] {
        let server = server(3);
        let mut mirrors = LateMirrors::of(&server);
        let (view, reads, _release) = Watched::new(&mirrors);
        let service = service_over(view);
        let follow = |_| Box::pin(service.follow_regions("n".to_owned(), job.clone(), None, deadline()).unwrap());
        let mut streams: Vec<_> = (0..8).map(follow).collect();
        for stream in &mut streams {
            let told = next(&mut stream.as_mut()).await.unwrap().unwrap();
            assert_eq!(names(&told), (vec![("R0", 2), ("R1", 2), ("R2", 2)], vec![], true));
        }
        // Regions, requests, PEs: each read once for all.
        assert_eq!(reads.counts(), [1, 1, 1], "{job:?}");
        server.edit::<ParallelRegion>(&key("flow-1"), |region| region.spec.width = 5);
        mirrors.deliver_all();
        let all = streams.iter_mut().map(|stream| async { next(&mut stream.as_mut()).await.unwrap().unwrap() });
        for told in join_all(all).await {
            assert_eq!(names(&told), (vec![("R1", 5)], vec![], true));
        }
        assert_eq!(reads.counts(), [2, 2, 2], "{job:?}");
        // Nothing changes, nobody looks.
        let all = streams.iter_mut().map(|stream| async { is_silent(&mut stream.as_mut()).await });
        join_all(all).await;
        assert_eq!(reads.counts(), [2, 2, 2], "{job:?}");
    }
}

fn region_of(namespace: &str) -> GetRegionRequest {
    GetRegionRequest { namespace: namespace.to_owned(), job: "flow".to_owned(), region: "R0".to_owned() }
}

#[tokio::test]
async fn a_region_is_found_by_a_name_that_no_object_could_have() {
    let server = server(1);
    let long = format!("{}R", "Inner.".repeat(100));
    server.edit::<ParallelRegion>(&key("flow-0"), |region| region.spec.name.clone_from(&long));
    let service = service(&LateMirrors::of(&server));
    let get = async |region: &str| {
        let request = GetRegionRequest { region: region.to_owned(), ..region_of("n") };
        service.get_region(Request::new(request)).await.map(|found| found.into_inner().name)
    };
    assert_eq!(get(&long).await.unwrap(), long);
    // what is asked for -> why not
    for (region, reason) in
        [("R0", "REGION_NOT_FOUND"), ("", "INVALID_REQUEST"), (&*"R".repeat(1025), "INVALID_REQUEST")]
    {
        assert_eq!(why(&get(region).await.unwrap_err()), reason, "{region}");
    }
}

#[tokio::test]
async fn who_asks_for_region_after_region_looks_at_the_pes_of_the_job_once() {
    let mirrors = LateMirrors::of(&server(3));
    let (view, reads, _release) = Watched::new(&mirrors);
    let service = service_over(view);
    // A job whose PEs are many is kept for longer; here it is as if they were.
    let widths = Arc::new(ReadyWidths::default());
    service.ready.put((key("flow"), Some(4)), &widths, Duration::from_secs(60));
    for region in ["R0", "R1", "R2"] {
        let request = GetRegionRequest { region: region.to_owned(), ..region_of("n") };
        service.get_region(Request::new(request)).await.unwrap();
    }
    assert_eq!(reads.counts(), [0, 3, 0]);
}

#[tokio::test]
async fn a_namespace_whose_objects_take_long_to_read_holds_up_no_other() {
    let mirrors = LateMirrors::of(&server(1));
    let (view, reads, release) = Watched::new(&mirrors);
    let service = service_over(view);
    let list = ListRegionsRequest { namespace: "held".to_owned(), ..ListRegionsRequest::default() };
    let held: Vec<_> = (0..3)
        .map(|_| {
            let (service, list) = (service.clone(), list.clone());
            tokio::spawn(async move { service.list_regions(Request::new(list)).await })
        })
        .collect();
    while reads.counts()[0] == 0 {
        tokio::task::yield_now().await;
    }
    // The runtime of this test has one thread.
    let region = service.get_region(Request::new(region_of("n"))).await.unwrap().into_inner();
    assert_eq!(region.desired_width, 2);
    assert_eq!(reads.counts()[0], 1, "one of the namespace");
    held.iter().for_each(|_| release.send(()).unwrap());
    for list in held {
        assert!(list.await.unwrap().unwrap().into_inner().regions.is_empty());
    }
}

#[tokio::test]
async fn reads_that_wait_take_turns_and_hear_when_their_time_or_that_of_this_frontend_is_over() {
    let mirrors = LateMirrors::of(&server(1));
    let (view, reads, release) = Watched::new(&mirrors);
    let service = service_over(view);
    let list = |caller, time: Option<&str>| {
        let request = ListRegionsRequest { namespace: "held".to_owned(), ..ListRegionsRequest::default() };
        let (mut call, service) = (called_by(Some(caller), request), service.clone());
        if let Some(time) = time {
            call.metadata_mut().insert("grpc-timeout", time.parse().unwrap());
        }
        async move { service.list_regions(call).await.map_or_else(|status| why(&status), |_| "OK".to_owned()) }
    };
    let (waiting, has) = (service.looks.waiting.clone(), async |count: usize| {
        while service.looks.waiting.taken() != count {
            tokio::task::yield_now().await;
        }
    });
    let first = tokio::spawn(list("me", None));
    while reads.counts()[0] == 0 {
        tokio::task::yield_now().await;
    }
    assert_eq!(list("me", Some("100m")).await, "STILL_WAITING");
    has(1).await;
    let mine: Vec<_> = (0..3).map(|_| tokio::spawn(list("me", None))).collect();
    has(4).await;
    let yours = tokio::spawn(list("you", None));
    has(5).await;
    // The first one, the next one of the same caller, and that of the other one.
    (0..3).for_each(|_| release.send(()).unwrap());
    assert_eq!([first.await.unwrap(), yours.await.unwrap()], ["OK"; 2]);
    has(2).await;
    while reads.counts()[0] != 4 {
        tokio::task::yield_now().await;
    }
    // One of them has its turn.
    service.stopping.cancel();
    has(1).await;
    release.send(()).unwrap();
    let mut heard = join_all(mine).await.into_iter().map(Result::unwrap).collect::<Vec<_>>();
    heard.sort_unstable();
    assert_eq!(heard, ["OK", "OK", "SHUTTING_DOWN"]);
    // As many wait as may.
    let me = CallerName("me".into());
    let _taken: Vec<_> = std::iter::from_fn(|| waiting.take("n", None, Some(&me)).ok()).collect();
    for (caller, expected) in [("me", Some("TOO_MANY_WAITING")), ("you", None)] {
        let heard = service.get_region(called_by(Some(caller), region_of("n"))).await;
        assert_eq!(heard.err().as_ref().map(why).as_deref(), expected, "{caller}");
    }
}

/// Somebody else may have made another one.
#[tokio::test]
async fn each_of_two_objects_of_one_region_is_on_a_page() {
    let server = server(2);
    let mut other = server.get::<ParallelRegion>(&key("flow-0")).unwrap();
    other.metadata.name = Some("other".to_owned());
    (other.metadata.uid, other.metadata.resource_version) = (None, None);
    server.create(&other);
    let service = service(&LateMirrors::of(&server));
    let page = async |page_token: String| {
        let namespace = "n".to_owned();
        let request = ListRegionsRequest { namespace, page_size: 1, page_token, ..ListRegionsRequest::default() };
        let ListRegionsResponse { regions, next_page_token } =
            service.list_regions(Request::new(request)).await.unwrap().into_inner();
        (regions.into_iter().map(|region| region.object_name).collect::<Vec<_>>().join(" "), next_page_token)
    };
    let (mut seen, mut token) = (Vec::new(), String::new());
    while seen.is_empty() || !token.is_empty() {
        let (objects, next) = page(token).await;
        seen.push(objects);
        token = next;
    }
    assert_eq!(seen, ["flow-0", "other", "flow-1"]);
    // A token of an earlier release.
    let token = json!({"list": "regions of n/", "after": ["flow", "R0"]}).to_string();
    assert_eq!(page(hex::encode(token)).await.0, "flow-0");
}
