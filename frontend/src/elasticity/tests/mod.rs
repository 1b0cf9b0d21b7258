//! The elasticity API over the mirrors of a fake cluster, which hear of changes when a test says so.
//!
//! * [`following`] — who makes a request, waits for it, follows it or withdraws it;
//! * [`watching`] — who follows regions;
//! * [`reading`] — who reads regions, at once or page by page: reads are shared and take turns, and answers are read;
//! * [`asking`] — who asks for requests that the mirrors do not show;
//! * [`writing`] — who has requests stored, a few at a time;
//! * [`turns`] — neighbours: jobs and callers leave places to others.

pub(crate) mod asking;
mod following;
mod reading;
mod turns;
mod watching;
mod writing;

use super::Elasticity;
use super::view::ClusterView;
use crate::controllers::job::long_work::dry_run::{Foresee, Foreseen, Unforeseen};
use crate::controllers::tests::LateMirrors;
use crate::grpc::subject::Subject;
use crate::mirrors::Mirrors;
use futures::future::BoxFuture;
use futures::{Stream, StreamExt as _};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use kube::client::Body;
use kube::{Client, Config};
use std::fmt::Debug;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use streams_api::{
    BundleReference, CommittedResizes, DesiredWidth, Job, JobSpec, JobStatus, ParallelRegion, ParallelRegionSpec,
    ProposedPlan, RegionWidth, Resize, ResizeChanges, ResizeSpec, ResizeStatus, Rollout, Statistics,
};
use streams_kubernetes::Key;
use streams_kubernetes::client::{self, CallOptions, Transport};
use streams_kubernetes::metrics::Metrics;
use streams_kubernetes::ownership::controlled_by;
use streams_kubernetes_fake::Server;
use streams_proto::elasticity::v1::resize_request::{self, WaitFor};
use streams_proto::elasticity::v1::{ResizeRequest, ResizeResponse, WatchRegionsResponse};
use tokio::time::{Instant, timeout};
use tonic::{Request, Status};
use tonic_types::StatusExt as _;
use tower::layer::layer_fn;
use tower::{BoxError, Service};

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
    let metrics = Metrics::new("test");
    Elasticity::new(client, Arc::new(view), Arc::new(Blind), Duration::from_secs(600), &metrics)
}

/// A client of this API server with the retries of the frontend.
pub(super) fn with_retries<S, F>(server: S) -> Client
where
    S: Service<http::Request<Body>, Response = http::Response<Body>, Error = BoxError, Future = F>,
    S: Clone + Send + 'static,
    F: Send + 'static,
{
    let _ = rustls::crypto::ring::default_provider().install_default();
    let mut config = Config::new("http://localhost".parse().unwrap());
    // The certificates of the system do not matter.
    config.root_cert = Some(Vec::new());
    let layer = layer_fn(move |_: Transport| server.clone());
    client::with_layer(config, CallOptions::default(), &Metrics::new("test"), &layer).unwrap()
}

/// Foresees nothing.
struct Blind;

impl Foresee for Blind {
    fn foresee<'a>(&'a self, _: &'a Job, _: Resize) -> BoxFuture<'a, Result<Foreseen, Unforeseen>> {
        Box::pin(async { Err(Unforeseen("nothing is foreseen".to_owned())) })
    }
}

fn key(name: &str) -> Key {
    Key::new("n", name)
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

/// Asks for this width of a region of `flow`.
fn wanted(region: &str, width: u32) -> ResizeRequest {
    let regions = vec![resize_request::DesiredWidth { region: region.to_owned(), width, expected_width: None }];
    ResizeRequest { namespace: "n".to_owned(), job: "flow".to_owned(), regions, ..ResizeRequest::default() }
}

/// A call of this caller.
fn called_by<T>(caller: Option<&str>, message: T) -> Request<T> {
    let mut call = Request::new(message);
    if let Some(name) = caller {
        call.extensions_mut().insert(Arc::new(Subject::called(name)));
    }
    call
}

/// Waits for the request as its caller does.
async fn wait<V: ClusterView>(
    service: &Elasticity<V>,
    request: &Resize,
    wait_for: WaitFor,
) -> Result<ResizeResponse, Status> {
    let job = key("flow");
    let place = service.backlog.enter(&job, Instant::now()).unwrap();
    service.wait(&job, request.clone(), None, Some(place), wait_for, deadline()).await
}

fn deadline() -> Instant {
    Instant::now() + Duration::from_secs(600)
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

/// Calls that go on for a while without being answered.
async fn go_on<T: Debug>(calls: impl Future<Output = T>) {
    let answered = timeout(Duration::from_secs(1), calls).await;
    assert!(answered.is_err(), "{answered:?}");
}

fn names(message: &WatchRegionsResponse) -> (Vec<(&str, u32)>, Vec<&str>, bool) {
    let regions = message.regions.iter().map(|region| (region.name.as_str(), region.desired_width)).collect();
    (regions, message.deleted.iter().map(|gone| gone.name.as_str()).collect(), message.complete)
}

fn why(status: &Status) -> String {
    status.get_error_details().error_info().unwrap().reason.clone()
}
