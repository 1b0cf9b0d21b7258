//! Who reads regions, at once or page by page: reads are shared and take turns, and answers are read.

use super::{
    called_by, committed, deadline, go_on, is_silent, key, names, next, server, service, service_over, wait, wanted,
    why,
};
use crate::call_figures::ServedCalls;
use crate::controllers::tests::LateMirrors;
use crate::elasticity::Elasticity;
use crate::elasticity::ready::ReadyWidths;
use crate::elasticity::view::ClusterView;
use crate::grpc::access::Access;
use crate::grpc::places::CallerName;
use crate::grpc::transport::{self, Bounds};
use crate::mirrors::Mirrors;
use futures::future::join_all;
use futures::stream::FuturesUnordered;
use futures::{FutureExt as _, StreamExt as _};
use parking_lot::Mutex;
use serde_json::json;
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;
use streams_api::resize::RESIZES_MAX;
use streams_api::{Job, ParallelRegion, ProcessingElement, Resize, ResizePhase as Recorded, ResizeSpec, ResizeStatus};
use streams_kubernetes::ownership::controlled_by;
use streams_kubernetes::watch::Kept;
use streams_proto::elasticity::v1::elasticity_service_client::ElasticityServiceClient;
use streams_proto::elasticity::v1::elasticity_service_server::ElasticityService as _;
use streams_proto::elasticity::v1::resize_request::WaitFor;
use streams_proto::elasticity::v1::{
    CancelRequest, GetRegionRequest, GetResizeRequest, ListRegionsRequest, ListRegionsResponse, ListResizesRequest,
    ResizeName, ResizeRequest, ResizeResponse, WatchRegionsRequest, WatchResizeRequest,
};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::time::timeout;
use tonic::service::Routes;
use tonic::transport::Endpoint;
use tonic::{Code, Request};
use tonic_types::StatusExt as _;

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
    /// Reads of requests last until there is one of [`Watched::release`], as those of regions of `held` do.
    are_requests_held: AtomicBool,
}

impl Reads {
    fn counts(&self) -> [usize; 3] {
        [&self.regions, &self.resizes, &self.processing_elements].map(|count| count.load(Ordering::SeqCst))
    }
}

impl ClusterView for Watched {
    fn job(&self, namespace: &str, name: &str) -> Option<Arc<Job>> {
        self.mirrors.job(namespace, name)
    }

    fn job_in_passing(&self, namespace: &str, name: &str) -> Option<Arc<Job>> {
        self.mirrors.job_in_passing(namespace, name)
    }

    fn has_jobs(&self, namespace: &str) -> bool {
        self.mirrors.has_jobs(namespace)
    }

    fn regions(&self, namespace: &str, job: Option<&str>) -> Option<Vec<Arc<ParallelRegion>>> {
        self.reads.regions.fetch_add(1, Ordering::SeqCst);
        if namespace == "vast" {
            return None;
        }
        if namespace == "held" {
            let _ = self.release.lock().recv();
        }
        self.mirrors.regions(namespace, job)
    }

    fn region(&self, namespace: &str, job: &str, name: &str) -> Option<Arc<ParallelRegion>> {
        self.mirrors.region(namespace, job, name)
    }

    fn first_region(&self, namespace: &str, job: &str) -> Option<Arc<ParallelRegion>> {
        self.mirrors.first_region(namespace, job)
    }

    fn kept_resize(&self, namespace: &str, name: &str) -> Option<Kept<Resize>> {
        self.mirrors.kept_resize(namespace, name)
    }

    fn resizes(&self, namespace: &str, job: Option<&str>) -> Vec<Kept<Resize>> {
        self.reads.resizes.fetch_add(1, Ordering::SeqCst);
        ClusterView::resizes(&self.mirrors, namespace, job)
    }

    fn open_resizes(&self, namespace: &str, job: &str) -> Box<dyn Iterator<Item = Arc<Resize>>> {
        self.reads.resizes.fetch_add(1, Ordering::SeqCst);
        if self.reads.are_requests_held.load(Ordering::SeqCst) {
            let _ = self.release.lock().recv();
        }
        ClusterView::open_resizes(&self.mirrors, namespace, job)
    }

    fn count_resizes(&self, namespace: &str, job: &str) -> usize {
        self.mirrors.count_resizes(namespace, job)
    }

    fn count_resizes_by(&self, namespace: &str, job: &str, caller: &str) -> usize {
        self.mirrors.count_resizes_by(namespace, job, caller)
    }

    fn processing_elements(&self, namespace: &str, job: &str) -> Box<dyn Iterator<Item = Arc<ProcessingElement>>> {
        self.reads.processing_elements.fetch_add(1, Ordering::SeqCst);
        ClusterView::processing_elements(&self.mirrors, namespace, job)
    }

    fn too_old(&self) -> Option<String> {
        self.mirrors.too_old()
    }

    fn unread(&self, namespace: &str) -> Option<String> {
        self.mirrors.unread(namespace)
    }

    fn changes_of_namespace(&self, namespace: &str) -> watch::Receiver<u64> {
        self.mirrors.changes_of_namespace(namespace)
    }

    fn changes(&self, namespace: &str, job: &str) -> watch::Receiver<u64> {
        self.mirrors.changes(namespace, job)
    }
}

/// A service over these mirrors, what is read of them, and what lets a read go on that is held.
fn watched(mirrors: &LateMirrors) -> (Elasticity<Watched>, Arc<Reads>, mpsc::Sender<()>) {
    let (reads, (release, held)) = (Arc::<Reads>::default(), mpsc::channel());
    let view = Watched { mirrors: mirrors.mirrors.clone(), reads: Arc::clone(&reads), release: Mutex::new(held) };
    (service_over(view), reads, release)
}

fn region_of(namespace: &str) -> GetRegionRequest {
    GetRegionRequest { namespace: namespace.to_owned(), job: "flow".to_owned(), region: "R0".to_owned() }
}

#[tokio::test(start_paused = true)]
async fn streams_of_one_scope_share_their_looks() {
    for job in [Some("flow".to_owned()), None] {
        let server = server(3);
        let mut mirrors = LateMirrors::of(&server);
        let (service, reads, _release) = watched(&mirrors);
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

/// Each call of a crowd would read all regions of the job, on a thread that serves everybody.
#[tokio::test(start_paused = true)]
async fn an_answer_about_one_request_reads_no_regions_but_its_own() {
    let server = server(3);
    committed(&server, 0, true);
    let mut refused = server.get::<Resize>(&key("flow-x")).unwrap();
    refused.status = Some(ResizeStatus { phase: Some(Recorded::Refused), ..ResizeStatus::default() });
    let mirrors = LateMirrors::of(&server);
    let (service, reads, _release) = watched(&mirrors);
    let heard = service.resize(Request::new(wanted("R7", 3))).await.unwrap_err();
    assert_eq!((why(&heard).as_str(), heard.message().contains("R0, R1, R2")), ("REGION_NOT_FOUND", true));
    assert_eq!(service.state_of(&refused).reason, "REJECTED");
    let request = mirrors.mirrors.resizes.get(&key("flow-x")).unwrap();
    let answer = wait(&service, &request, WaitFor::Committed).await.unwrap();
    assert_eq!(answer.regions.iter().map(|region| region.name.as_str()).collect::<Vec<_>>(), ["R0"]);
    assert_eq!(reads.counts(), [0, 1, 0]);
}

/// Each of a thousand calls that one commit answers would read the thousand requests of the job.
#[tokio::test(start_paused = true)]
async fn calls_that_one_commit_answers_share_what_is_read_for_them() {
    let server = server(3);
    let mut mirrors = LateMirrors::of(&server);
    let (service, reads, release) = watched(&mirrors);
    let request = mirrors.mirrors.resizes.get(&key("flow-x")).unwrap();
    let mut waiting: FuturesUnordered<_> = (0..100).map(|_| wait(&service, &request, WaitFor::Committed)).collect();
    go_on(waiting.next()).await;
    committed(&server, 0, true);
    mirrors.deliver_all();
    // All of them ask while the first look lasts: how long that takes depends on the machine otherwise.
    reads.are_requests_held.store(true, Ordering::SeqCst);
    for _ in 0..1_000 {
        assert!(waiting.next().now_or_never().is_none());
        tokio::task::yield_now().await;
    }
    reads.are_requests_held.store(false, Ordering::SeqCst);
    release.send(()).unwrap();
    let mut answered = 0;
    while let Some(answer) = waiting.next().await {
        let ResizeResponse { regions, generation, .. } = answer.unwrap();
        assert_eq!((regions.len(), &*regions[0].name, regions[0].applied_width), (1, "R0", Some(2)));
        assert_eq!((regions[0].generation, generation), (Some(5), Some(5)), "what was seen after the commit");
        answered += 1;
    }
    assert_eq!(answered, 100);
    // A second time for those that asked while it was being read, if that had begun before they did.
    let before = reads.counts()[1];
    assert!((1..=2).contains(&before), "{:?}", reads.counts());
    wait(&service, &request, WaitFor::Committed).await.unwrap();
    assert_eq!(reads.counts()[1], before + 1, "it is looked anew");
}

/// Users may make as many as there is room for in etcd.
#[tokio::test(start_paused = true)]
async fn who_asks_for_more_regions_than_anybody_may_look_at_is_refused() {
    let (service, reads, _release) = watched(&LateMirrors::of(&server(1)));
    for page_size in [0, 1] {
        let list = ListRegionsRequest { namespace: "vast".to_owned(), page_size, ..ListRegionsRequest::default() };
        let refused = service.list_regions(Request::new(list)).await.unwrap_err();
        assert_eq!((refused.code(), &*why(&refused)), (Code::ResourceExhausted, "TOO_MANY_REGIONS"), "{page_size}");
    }
    let mut stream = Box::pin(service.follow_regions("vast".to_owned(), None, None, deadline()).unwrap());
    let refused = next(&mut stream.as_mut()).await.unwrap().unwrap_err();
    assert_eq!(why(&refused), "TOO_MANY_REGIONS");
    assert!(next(&mut stream.as_mut()).await.is_none());
    assert_eq!(reads.counts(), [3, 0, 0]);
}

/// Whoever is refused may come again at once, and as often as it likes.
#[tokio::test(start_paused = true)]
async fn nothing_is_read_for_a_refusal() {
    let mirrors = LateMirrors::of(&server(1));
    let job = mirrors.mirrors.jobs.get(&key("flow")).unwrap();
    for number in 0..RESIZES_MAX {
        let spec = ResizeSpec { job_name: "flow".to_owned(), ..ResizeSpec::default() };
        let mut request = Resize::new(&format!("r{number}"), spec);
        request.metadata.namespace = Some("n".to_owned());
        request.metadata.owner_references = Some(vec![controlled_by(&*job)]);
        mirrors.mirrors.resizes.insert(request);
    }
    let (service, reads, _release) = watched(&mirrors);
    let dry_run = ResizeRequest { dry_run: true, ..wanted("R0", 3) };
    for (request, expected) in [(wanted("R0", 3), "TOO_MANY_REQUESTS"), (dry_run, "NOT_FORESEEN")] {
        let refused = service.resize(Request::new(request)).await.unwrap_err();
        assert_eq!(why(&refused), expected);
        assert!(refused.get_error_details().retry_info().is_some(), "{expected}");
    }
    assert_eq!(reads.counts(), [0, 0, 0]);
}

/// What is seen of it may be less than there is, or nothing.
#[tokio::test]
async fn of_a_namespace_that_may_not_be_read_nothing_is_said_or_asked() {
    let mirrors = LateMirrors::of(&server(1));
    let service = service(&mirrors);
    // Whatever kind it is.
    mirrors.mirrors.pods.refuse("n");
    let name = || Some(ResizeName { namespace: "n".into(), request: "flow-x".into(), ..ResizeName::default() });
    let regions = ListRegionsRequest { namespace: "n".to_owned(), ..ListRegionsRequest::default() };
    let resizes = ListResizesRequest { namespace: "n".to_owned(), ..ListResizesRequest::default() };
    let of_regions = WatchRegionsRequest { namespace: "n".to_owned(), ..WatchRegionsRequest::default() };
    let dry_run = ResizeRequest { dry_run: true, ..wanted("R0", 3) };
    let statuses = [
        service.resize(Request::new(wanted("R0", 3))).await.map(drop),
        service.resize(Request::new(dry_run)).await.map(drop),
        service.get_region(Request::new(region_of("n"))).await.map(drop),
        service.list_regions(Request::new(regions)).await.map(drop),
        service.list_resizes(Request::new(resizes)).await.map(drop),
        service.watch_regions(Request::new(of_regions)).await.map(drop),
        service.get_resize(Request::new(GetResizeRequest { name: name() })).await.map(drop),
        service.cancel(Request::new(CancelRequest { name: name() })).await.map(drop),
        service.watch_resize(Request::new(WatchResizeRequest { name: name() })).await.map(drop),
    ];
    for status in statuses {
        let status = status.unwrap_err();
        assert_eq!((status.code(), why(&status).as_str()), (Code::Unavailable, "NOT_CURRENT"), "{status:?}");
        assert!(status.message().contains("namespace n: Pod"), "{status:?}");
        assert!(status.get_error_details().retry_info().is_some(), "{status:?}");
    }
    mirrors.mirrors.pods.permit("n");
    mirrors.mirrors.pods.refuse("m");
    assert_eq!(service.get_region(Request::new(region_of("n"))).await.unwrap().into_inner().name, "R0");
}

/// Whoever hears that it may come again would come again and again.
#[tokio::test]
async fn what_no_request_can_be_called_is_refused_also_in_a_namespace_that_may_not_be_read() {
    let mirrors = LateMirrors::of(&server(1));
    let service = service(&mirrors);
    mirrors.mirrors.pods.refuse("n");
    let long = "k".repeat(10_000);
    // request, job, key
    let table = [("No", "", ""), ("", "No", "k"), ("", "flow", &*long), ("", "flow", ""), ("r", "", "k")];
    for (request, job, key) in table {
        let [namespace, request, job, idempotency_key] = ["n", request, job, key].map(str::to_owned);
        let name = Some(ResizeName { namespace, request, job, idempotency_key });
        let status = service.get_resize(Request::new(GetResizeRequest { name })).await.unwrap_err();
        assert_eq!((status.code(), why(&status).as_str()), (Code::InvalidArgument, "INVALID_REQUEST"), "{status:?}");
    }
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
    // what is asked for -> why not. The job has R0, whose object is not there.
    let table = [
        ("R0", "REGION_NOT_SEEN"),
        ("R9", "REGION_NOT_FOUND"),
        ("", "INVALID_REQUEST"),
        (&*"R".repeat(1025), "INVALID_REQUEST"),
    ];
    for (region, reason) in table {
        assert_eq!(why(&get(region).await.unwrap_err()), reason, "{region}");
    }
}

#[tokio::test]
async fn who_asks_for_region_after_region_looks_at_the_pes_of_the_job_once() {
    let mirrors = LateMirrors::of(&server(3));
    let (service, reads, _release) = watched(&mirrors);
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
    let (service, reads, release) = watched(&mirrors);
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

/// Whoever opens streams and leaves them would look without a rest otherwise.
#[tokio::test]
async fn a_look_that_a_stream_has_left_is_one_all_the_same() {
    let mirrors = LateMirrors::of(&server(1));
    let (service, reads, release) = watched(&mirrors);
    let follow = || Box::pin(service.follow_regions("held".to_owned(), None, None, deadline()).unwrap());
    let (mut first, mut second) = (follow(), follow());
    while reads.counts()[0] == 0 {
        assert!(timeout(Duration::from_millis(1), first.next()).await.is_err());
    }
    drop(first);
    release.send(()).unwrap();
    let told = next(&mut second.as_mut()).await.unwrap().unwrap();
    assert_eq!((names(&told), reads.counts()[0]), ((vec![], vec![], true), 1));
}

#[tokio::test]
async fn reads_that_wait_take_turns_and_hear_when_their_time_or_that_of_this_frontend_is_over() {
    let mirrors = LateMirrors::of(&server(1));
    let (service, reads, release) = watched(&mirrors);
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

/// Somebody may have copied one.
#[tokio::test]
async fn each_region_is_on_a_page_and_a_copy_of_one_is_on_none() {
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
    assert_eq!(seen, ["flow-0", "flow-1"]);
    // A token of an earlier release.
    let token = json!({"list": "regions of n/", "after": ["flow", "R0"]}).to_string();
    assert_eq!(page(hex::encode(token)).await.0, "flow-0");
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
    tokio::spawn(transport::serve(listener, None, routes, bounds, ServedCalls::default(), std::future::pending()));
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
