//! Streams over the mirrors of a fake cluster, which hear of changes when a test says so.

use super::Elasticity;
use crate::controllers::job::long_work::dry_run::{Foresee, Foreseen, Unforeseen};
use crate::controllers::tests::LateMirrors;
use crate::mirrors::Mirrors;
use futures::future::BoxFuture;
use futures::{Stream, StreamExt as _};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use kube::Client;
use kube::client::Body;
use std::fmt::Debug;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;
use streams_api::{
    BundleReference, CommittedResizes, DesiredWidth, Job, JobSpec, JobStatus, ParallelRegion, ParallelRegionSpec,
    ProposedPlan, RegionWidth, Resize, ResizeChanges, ResizeSpec, ResizeStatus, Rollout, Statistics,
};
use streams_kubernetes::Key;
use streams_kubernetes::ownership::controlled_by;
use streams_kubernetes_fake::Server;
use streams_proto::elasticity::v1::{ResizePhase, WatchRegionsResponse, WatchResizeResponse};
use tokio::time::{Instant, timeout};
use tonic::{Code, Status};
use tonic_types::StatusExt as _;

/// A service over these mirrors; nobody calls the API server.
fn service(mirrors: &LateMirrors) -> Elasticity<Mirrors> {
    let nobody = tower::service_fn(|_: http::Request<Body>| async {
        Err::<http::Response<Body>, _>(std::io::Error::other("there is no API server"))
    });
    let client = Client::new(nobody, "default");
    Elasticity::new(client, Arc::new(mirrors.mirrors.clone()), Arc::new(Blind), Duration::from_secs(600))
}

/// Foresees nothing.
struct Blind;

impl Foresee for Blind {
    fn foresee<'a>(&'a self, _: &'a Job, _: Resize) -> BoxFuture<'a, Result<Foreseen, Unforeseen>> {
        Box::pin(async { Err(Unforeseen::Busy(0)) })
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
    let mut stream = pin!(service.follow_resize(Arc::clone(&request), deadline()).unwrap());
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
    let mut late = pin!(service.follow_resize(request, deadline()).unwrap());
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
        let mut stream = pin!(service.follow_regions("n".to_owned(), job, deadline()).unwrap());
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
        let mut stream = pin!(service.follow_regions("n".to_owned(), None, deadline()).unwrap());
        for (position, part) in parts.iter().enumerate() {
            let told = next(&mut stream).await.unwrap().unwrap();
            assert_eq!((told.regions.len(), told.complete), (*part, position + 1 == parts.len()), "{regions}");
        }
        is_silent(&mut stream).await;
    }
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
    let mut resize = pin!(service.follow_resize(request, deadline()).unwrap());
    let mut regions = pin!(service.follow_regions("n".to_owned(), None, deadline()).unwrap());
    assert!(next(&mut resize).await.unwrap().is_ok() && next(&mut regions).await.unwrap().is_ok());
    let ends = [next(&mut resize).await.unwrap().err().unwrap(), next(&mut regions).await.unwrap().err().unwrap()];
    for end in ends {
        assert_eq!((end.code(), reason(&end).as_str()), (Code::DeadlineExceeded, "STILL_WAITING"));
    }
    assert_eq!(begun.elapsed().as_secs(), 600);
    assert!(next(&mut resize).await.is_none() && next(&mut regions).await.is_none());
    // This frontend is to stop.
    let (_server, _mirrors, service, request) = start();
    let mut resize = pin!(service.follow_resize(request, deadline()).unwrap());
    let mut regions = pin!(service.follow_regions("n".to_owned(), None, deadline()).unwrap());
    assert!(next(&mut resize).await.unwrap().is_ok() && next(&mut regions).await.unwrap().is_ok());
    service.stopping.cancel();
    let ends = [next(&mut resize).await.unwrap().err().unwrap(), next(&mut regions).await.unwrap().err().unwrap()];
    for end in ends {
        assert_eq!((end.code(), reason(&end).as_str()), (Code::Unavailable, "SHUTTING_DOWN"));
        assert!(end.get_error_details().retry_info().is_some());
    }
    // Somebody deletes the request.
    let (server, mut mirrors, service, request) = start();
    let mut resize = pin!(service.follow_resize(request, deadline()).unwrap());
    assert!(next(&mut resize).await.unwrap().is_ok());
    server.remove::<Resize>(&key("flow-x"));
    mirrors.deliver_all();
    let end = next(&mut resize).await.unwrap().err().unwrap();
    assert_eq!((end.code(), reason(&end).as_str()), (Code::Aborted, "CANCELLED"));
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_is_dropped_makes_room() {
    let server = server(1);
    let mirrors = LateMirrors::of(&server);
    let service = service(&mirrors);
    let follow = || service.follow_regions("n".to_owned(), Some("flow".to_owned()), deadline());
    let mut streams: Vec<_> = std::iter::from_fn(|| follow().ok()).collect();
    assert_eq!(follow().err().unwrap().code(), Code::ResourceExhausted);
    streams.pop();
    assert!(follow().is_ok());
}
