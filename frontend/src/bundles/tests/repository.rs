//! Serving PEs: bundles that are fetched over real connections, asked for as a bootstrap asks.

use super::site::{GIT, Seen, Site, content, loopback, options, status};
use super::{kubernetes, private, sab, url};
use crate::bundles::error::BundleError;
use crate::bundles::fetcher::Fetcher;
use crate::bundles::options::FetchOptions;
use crate::bundles::proofs::PROVEN;
use crate::bundles::repository::{self, BundleRepository, RepositoryOptions, counters};
use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use futures::stream;
use http::StatusCode;
use parking_lot::Mutex;
use sha2::{Digest, Sha256};
use std::convert::Infallible;
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;
use streams_api::{BundleReference, Job, JobSpec, JobStatus, PeOptions, StoredAdl};
use streams_bundle_repository::{Refusal, Repository};
use streams_kubernetes::metrics::Metrics;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

const POD: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
const OTHER_POD: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2));
const NOBODY: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 9));

/// Shorter than what failed is not tried again.
const IMPATIENT: Duration = Duration::from_millis(900);

fn sha256(bytes: &[u8]) -> String {
    hex::encode(Sha256::digest(bytes))
}

/// A job of the namespace `a` that was submitted with these bytes, or not yet.
fn job(name: &str, bundle: BundleReference, submitted_with: Option<&[u8]>) -> Job {
    let adl = submitted_with.map(|bytes| StoredAdl {
        bundle_sha256: Some(sha256(bytes)),
        sab_name: bundle.sab_name(&sha256(bytes)).unwrap(),
        ..StoredAdl::default()
    });
    let mut job = Job::new(name, JobSpec::of(bundle));
    job.metadata.namespace = Some("a".to_owned());
    job.metadata.uid = Some(format!("uid-{name}"));
    job.status = Some(JobStatus { adl, ..JobStatus::default() });
    job
}

/// A pod, and the words of why it has not got its bundle.
type Answered = (IpAddr, Option<String>);

type Jobs = Vec<(IpAddr, Arc<Job>)>;

/// The jobs of pods, by which names pods were made to ask, and what they were answered.
struct Known {
    jobs: Arc<Mutex<Jobs>>,
    made_to_ask: Arc<Mutex<Vec<(IpAddr, String)>>>,
    answered: Arc<Mutex<Vec<Answered>>>,
    is_any_unread: Arc<AtomicBool>,
}

impl repository::Pods for Known {
    async fn known(&self, _: IpAddr) {}

    fn job_at(&self, peer: IpAddr) -> Option<Arc<Job>> {
        self.jobs.lock().iter().find(|(pod, _)| *pod == peer).map(|(_, job)| Arc::clone(job))
    }

    fn is_any_unread(&self) -> bool {
        self.is_any_unread.load(Ordering::SeqCst)
    }

    fn names_at(&self, peer: IpAddr) -> Vec<String> {
        let made_to_ask = self.made_to_ask.lock();
        made_to_ask.iter().filter(|(pod, _)| *pod == peer).map(|(_, name)| name.clone()).collect()
    }

    fn answered(&self, peer: IpAddr, outcome: Result<(), &BundleError>) {
        self.answered.lock().push((peer, outcome.err().map(ToString::to_string)));
    }
}

/// A repository for pods with these jobs, and the directory that it writes.
struct Pods {
    repository: BundleRepository<Known>,
    jobs: Arc<Mutex<Jobs>>,
    made_to_ask: Arc<Mutex<Vec<(IpAddr, String)>>>,
    answered: Arc<Mutex<Vec<Answered>>>,
    is_any_unread: Arc<AtomicBool>,
    _directory: TempDir,
}

impl Pods {
    fn new(fetcher: Fetcher, jobs: Vec<(IpAddr, Job)>) -> Self {
        Self::with(fetcher, kubernetes(&[]), jobs, |_| {})
    }

    /// The same for pods that do not wait until what failed is tried again.
    fn impatient(fetcher: Fetcher, jobs: Vec<(IpAddr, Job)>) -> Self {
        Self::with(fetcher, kubernetes(&[]), jobs, |options| options.patience = IMPATIENT)
    }

    fn with(
        fetcher: Fetcher,
        kubernetes: kube::Client,
        jobs: Vec<(IpAddr, Job)>,
        change: impl FnOnce(&mut RepositoryOptions),
    ) -> Self {
        let jobs = jobs.into_iter().map(|(peer, job)| (peer, Arc::new(job))).collect();
        let jobs: Arc<Mutex<Jobs>> = Arc::new(Mutex::new(jobs));
        let answered = Arc::<Mutex<Vec<Answered>>>::default();
        let made_to_ask = Arc::<Mutex<Vec<_>>>::default();
        let is_any_unread = Arc::<AtomicBool>::default();
        let known = Known {
            jobs: Arc::clone(&jobs),
            made_to_ask: Arc::clone(&made_to_ask),
            answered: Arc::clone(&answered),
            is_any_unread: Arc::clone(&is_any_unread),
        };
        let directory = tempfile::tempdir().unwrap();
        let mut options = RepositoryOptions { directory: directory.path().to_owned(), ..RepositoryOptions::default() };
        // It is known at once whose pod asks.
        options.server.known = Duration::ZERO;
        change(&mut options);
        let repository = BundleRepository::new(fetcher, kubernetes, options, known);
        Self { repository, jobs, made_to_ask, answered, is_any_unread, _directory: directory }
    }

    /// What pods were answered since this was asked last.
    fn answered(&self) -> Vec<Answered> {
        std::mem::take(&mut self.answered.lock())
    }

    async fn get(&self, peer: IpAddr, name: &str) -> Result<Vec<u8>, Refusal> {
        let found = self.repository.find(peer, name).await?;
        let (length, mut bytes) = (found.length(), Vec::new());
        found.into_reader().read_to_end(&mut bytes).await.unwrap();
        assert_eq!(length, bytes.len() as u64);
        Ok(bytes)
    }

    /// The bundle, as soon as it can be had.
    async fn once_there(&self, peer: IpAddr, name: &str) -> Vec<u8> {
        loop {
            match self.get(peer, name).await {
                Ok(bytes) => return bytes,
                Err(Refusal::NotNow(_)) => tokio::time::sleep(Duration::from_millis(20)).await,
                Err(refusal) => panic!("{refusal:?}"),
            }
        }
    }

    /// The words of a refusal that may pass.
    async fn not_now(&self, peer: IpAddr, name: &str) -> String {
        match self.get(peer, name).await {
            Err(Refusal::NotNow(text)) => text,
            other => panic!("{other:?}"),
        }
    }
}

/// A site that gives what is put into the second part.
async fn changing(bytes: Vec<u8>) -> (Site, Arc<Mutex<Vec<u8>>>) {
    let there = Arc::new(Mutex::new(bytes));
    let given = Arc::clone(&there);
    (Site::start(move |_| content(given.lock().clone(), None)).await, there)
}

#[tokio::test]
async fn a_pod_gets_the_bundle_of_its_job_by_each_of_its_names() {
    let site = Site::start(|_| content(sab("App"), None)).await;
    let bundle = url(&site.http(GIT, "/x/demo.App.sab?token=hidden"));
    let mut with_option = job("second", bundle.clone(), Some(&sab("App")));
    let pe_options = PeOptions { sab_name: Some("mine.sab".to_owned()), ..PeOptions::default() };
    with_option.spec.processing_element = Some(pe_options);
    let first = job("first", bundle, Some(&sab("App")));
    let recorded = first.status.as_ref().unwrap().adl.as_ref().unwrap().sab_name.clone();
    let pods = Pods::new(site.fetcher(), vec![(POD, first), (OTHER_POD, with_option)]);
    assert_eq!(pods.get(POD, &recorded).await.unwrap(), sab("App"));
    assert_eq!(pods.get(POD, "demo.App.sab").await.unwrap(), sab("App"));
    assert_eq!(pods.get(OTHER_POD, "mine.sab").await.unwrap(), sab("App"));
    assert_eq!(site.requests(), 1, "once for all, and for a job with the same bundle");
    assert_eq!(pods.repository.names(POD).await.unwrap(), [recorded.clone(), "demo.App.sab".to_owned()]);
    assert_eq!(pods.repository.names(OTHER_POD).await.unwrap(), [&recorded, "mine.sab", "demo.App.sab"]);
    pods.answered();
    let unknown = |name: &str| Refusal::Unknown(format!("job a/first has no bundle {name}"));
    for name in ["mine.sab", "", "demo.App", "../demo.App.sab"] {
        assert_eq!(pods.get(POD, name).await.unwrap_err(), unknown(name));
    }
    let stranger = Refusal::Forbidden("no job is known to have a pod with the address 10.0.0.9".to_owned());
    assert_eq!(pods.get(NOBODY, &recorded).await.unwrap_err(), stranger);
    assert_eq!(pods.repository.names(NOBODY).await.unwrap_err(), stranger);
    assert_eq!(pods.answered(), [], "nothing of that is about a bundle that cannot be had");
}

#[tokio::test]
async fn a_pod_gets_its_bundle_by_the_name_that_it_was_told_whatever_its_job_says_by_now() {
    let asked = Arc::new(AtomicUsize::new(0));
    let site = Site::start({
        let asked = Arc::clone(&asked);
        move |_| match asked.fetch_add(1, Ordering::SeqCst) {
            0 => status(StatusCode::SERVICE_UNAVAILABLE),
            _ => content(sab("App"), None),
        }
    })
    .await;
    let named = |name: Option<&str>| {
        let mut job = job("j", url(&site.http(GIT, "/a.sab")), Some(&sab("App")));
        let sab_name = name.map(str::to_owned);
        job.spec.processing_element = Some(PeOptions { sab_name, ..PeOptions::default() });
        job
    };
    let pods = Pods::new(site.fetcher(), vec![(POD, named(Some("first.sab")))]);
    pods.made_to_ask.lock().push((POD, "first.sab".to_owned()));
    // The job is edited while the pod waits: the server has not given the bundle yet.
    let edit = async {
        while asked.load(Ordering::SeqCst) == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        *pods.jobs.lock() = vec![(POD, Arc::new(named(Some("second.sab"))))];
    };
    let (given, ()) = tokio::join!(pods.get(POD, "first.sab"), edit);
    assert_eq!(given, Ok(sab("App")));
    *pods.jobs.lock() = vec![(POD, Arc::new(named(None)))];
    assert_eq!(pods.get(POD, "first.sab").await, Ok(sab("App")), "nor is it too late after that");
    let unknown = Refusal::Unknown("job a/j has no bundle second.sab".to_owned());
    assert_eq!(pods.get(POD, "second.sab").await, Err(unknown));
    let names = pods.repository.names(POD).await.unwrap();
    assert_eq!(names.last().map(String::as_str), Some("first.sab"));
}

/// A job may be large, and change often, while many pods wait for its bundle.
#[tokio::test]
async fn nothing_is_kept_of_a_job_whose_bundle_is_waited_for() {
    let asked = Arc::new(Semaphore::new(0));
    let site = Site::start({
        let asked = Arc::clone(&asked);
        move |_| {
            asked.add_permits(1);
            Response::new(Body::from_stream(stream::pending::<Result<Bytes, Infallible>>()))
        }
    })
    .await;
    let bundle = url(&site.http(GIT, "/a.sab"));
    let pods = Pods::new(site.fetcher(), vec![(POD, job("j", bundle.clone(), Some(&sab("App"))))]);
    let mut waiting = pin!(pods.get(POD, "a.sab"));
    tokio::select! {
        given = &mut waiting => panic!("{given:?}"),
        // Its server does not come to the end.
        _ = asked.acquire() => {}
    }
    let later = vec![(POD, Arc::new(job("j", bundle, Some(&sab("App")))))];
    let before = std::mem::replace(&mut *pods.jobs.lock(), later);
    assert_eq!(before.iter().map(|(_, job)| Arc::strong_count(job)).collect::<Vec<_>>(), [1]);
}

#[tokio::test]
async fn a_pod_whose_address_another_one_had_is_not_left_before_that_can_be_known() {
    let files = tempfile::tempdir().unwrap();
    std::fs::write(files.path().join("b.sab"), sab("B")).unwrap();
    let fetcher = Fetcher::new(FetchOptions { directory: Some(files.path().to_owned()), ..options() }).unwrap();
    // The address was that of a job without this bundle, or of no job.
    let before = job("before", url("https://example.com/a.sab"), Some(&sab("App")));
    let pods = Pods::with(fetcher, kubernetes(&[]), vec![(POD, before)], |options| {
        options.server.known = Duration::from_secs(60);
    });
    let meanwhile = async {
        tokio::task::yield_now().await;
        let later = Arc::new(job("later", at_hand(), Some(&sab("B"))));
        *pods.jobs.lock() = vec![(POD, Arc::clone(&later)), (OTHER_POD, later)];
    };
    let (of_another, of_none, ()) = tokio::join!(pods.get(POD, "b.sab"), pods.get(OTHER_POD, "b.sab"), meanwhile);
    assert_eq!((of_another, of_none), (Ok(sab("B")), Ok(sab("B"))));
}

/// The frontend may have been started when it could not read the namespace.
#[tokio::test]
async fn while_a_namespace_may_not_be_read_nobody_is_told_that_he_may_have_nothing() {
    let site = Site::start(|_| content(sab("App"), None)).await;
    let pods = Pods::new(site.fetcher(), Vec::new());
    for is_any_unread in [false, true, false] {
        pods.is_any_unread.store(is_any_unread, Ordering::SeqCst);
        let answers = [pods.get(NOBODY, "a.sab").await.err(), pods.repository.names(NOBODY).await.err()];
        for answer in answers {
            assert_eq!(matches!(answer, Some(Refusal::NotNow(_))), is_any_unread, "{answer:?}");
            assert_eq!(matches!(answer, Some(Refusal::Forbidden(_))), !is_any_unread, "{answer:?}");
        }
    }
}

#[tokio::test]
async fn a_job_whose_bundle_is_not_fetched_yet_has_none() {
    let site = Site::start(|_| content(sab("App"), None)).await;
    let pods = Pods::impatient(site.fetcher(), vec![(POD, job("early", url(&site.http(GIT, "/a.sab")), None))]);
    assert_eq!(pods.not_now(POD, "a.sab").await, "job early has no bundle yet");
    assert_eq!(site.requests(), 0);
}

#[tokio::test]
async fn what_was_replaced_is_never_served() {
    let (site, there) = changing(sab("New")).await;
    let (store, bundle) = (tempfile::tempdir().unwrap(), url(&site.http(GIT, "/demo.App.sab")));
    let options = FetchOptions { store: Some(store.path().to_owned()), allowed: loopback(), ..options() };
    let pods = Pods::impatient(site.fetcher_with(options, PROVEN), vec![(POD, job("j", bundle, Some(&sab("Old"))))]);
    let said = pods.not_now(POD, "demo.App.sab").await;
    let expected = format!(
        "the bundle of job a/j cannot be had now: demo.App.sab was replaced: the job was submitted with the bundle {} \
         (SHA-256), now it is {}",
        sha256(&sab("Old")),
        sha256(&sab("New"))
    );
    assert_eq!(said, expected);
    assert_eq!(std::fs::read_dir(store.path()).unwrap().count(), 0, "what no job uses is not kept");
    assert_eq!(pods.not_now(POD, "demo.App.sab").await, expected);
    assert_eq!(site.requests(), 1, "nobody is asked again at once");
    // Whoever is to know hears both digests each time, and that it is over.
    let why = expected.strip_prefix("the bundle of job a/j cannot be had now: ").unwrap().to_owned();
    assert_eq!(pods.answered(), [(POD, Some(why.clone())), (POD, Some(why))]);
    *there.lock() = sab("Old");
    assert_eq!(pods.once_there(POD, "demo.App.sab").await, sab("Old"));
    assert_eq!(pods.answered().last(), Some(&(POD, None)));
    assert_eq!(pods.get(POD, "demo.App.sab").await.unwrap(), sab("Old"));
    assert_eq!(pods.answered(), [(POD, None)], "also of what is at hand");
}

/// A bootstrap asks once.
#[tokio::test]
async fn a_pod_that_asks_once_gets_a_bundle_that_cannot_be_had_at_first() {
    let asked = AtomicUsize::new(0);
    let site = Site::start(move |_| match asked.fetch_add(1, Ordering::SeqCst) {
        0 => status(StatusCode::SERVICE_UNAVAILABLE),
        _ => content(sab("App"), None),
    })
    .await;
    let pods = Pods::new(site.fetcher(), vec![(POD, job("j", url(&site.http(GIT, "/a.sab")), Some(&sab("App"))))]);
    assert_eq!(pods.get(POD, "a.sab").await.unwrap(), sab("App"));
    let answered = pods.answered();
    let [(POD, Some(why)), (POD, None)] = answered.as_slice() else { panic!("{answered:?}") };
    assert!(why.contains("the server answers 503"), "{why}");
    assert_eq!(site.requests(), 2);
}

#[tokio::test]
async fn a_bundle_that_was_kept_needs_no_source() {
    let site = Site::start(|_| content(sab("App"), None)).await;
    let (store, bundle) = (tempfile::tempdir().unwrap(), url(&site.http(GIT, "/a.sab")));
    let with_store = || FetchOptions { store: Some(store.path().to_owned()), allowed: loopback(), ..options() };
    super::fetch(&site.fetcher_with(with_store(), PROVEN), &bundle).await.unwrap();
    let of_job = || vec![(POD, job("j", bundle.clone(), Some(&sab("App"))))];
    site.take();
    // Another process, which has the store.
    let pods = Pods::new(site.fetcher_with(with_store(), PROVEN), of_job());
    assert_eq!(pods.get(POD, "a.sab").await.unwrap(), sab("App"));
    assert_eq!(site.requests(), 0);
    // What is damaged there is fetched, and repaired.
    let file = store.path().join(format!("{}.sab", sha256(&sab("App"))));
    std::fs::write(&file, "damaged").unwrap();
    assert_eq!(pods.get(POD, "a.sab").await.unwrap(), sab("App"), "what is served already has a file of its own");
    let pods = Pods::new(site.fetcher_with(with_store(), PROVEN), of_job());
    assert_eq!(pods.get(POD, "a.sab").await.unwrap(), sab("App"));
    assert_eq!((site.requests(), std::fs::read(&file).unwrap()), (1, sab("App")));
}

#[tokio::test]
async fn a_private_bundle_is_fetched_with_the_secret_of_the_job() {
    let site = Site::start(super::for_token("t0")).await;
    let hosts = Some(format!("{GIT}:{}", site.https));
    let cluster = kubernetes(&[("a", "s", "1", "t0", hosts.clone()), ("a", "wrong", "1", "t1", hosts)]);
    let address = site.https(GIT, "/demo.sab");
    let jobs = vec![
        (POD, job("right", private(&address, "s"), Some(&sab("Private")))),
        (OTHER_POD, job("wrong", private(&address, "wrong"), Some(&sab("Else")))),
    ];
    let pods = Pods::with(site.fetcher(), cluster, jobs, |options| options.patience = IMPATIENT);
    assert_eq!(pods.once_there(POD, "demo.sab").await, sab("Private"));
    let said = pods.not_now(OTHER_POD, "demo.sab").await;
    assert!(said.contains("the server answers 403") && !said.contains("t1"), "{said}");
}

#[tokio::test]
async fn an_earlier_job_gets_a_bundle_with_its_adl() {
    let (site, there) = changing(sab("App")).await;
    let bundle = url(&site.http(GIT, "/old.sab"));
    let application = super::fetch(&site.fetcher(), &bundle).await.unwrap();
    let mut earlier = job("earlier", bundle, Some(b""));
    earlier.status.as_mut().unwrap().adl =
        Some(StoredAdl { sha256: application.adl_sha256, sab_name: "old.sab".to_owned(), ..StoredAdl::default() });
    site.take();
    let pods = Pods::new(site.fetcher(), vec![(POD, earlier.clone())]);
    assert_eq!(pods.get(POD, "old.sab").await.unwrap(), sab("App"));
    assert_eq!(pods.get(POD, "old.sab").await.unwrap(), sab("App"));
    assert_eq!(site.requests(), 1);
    *there.lock() = sab("Other");
    let pods = Pods::impatient(site.fetcher(), vec![(POD, earlier)]);
    let said = pods.not_now(POD, "old.sab").await;
    assert!(said.contains("old.sab was replaced: the job was submitted with the ADL "), "{said}");
}

/// Answers with the bundle once there is a permit for it.
fn held(gate: Arc<Semaphore>, begun: Arc<AtomicUsize>) -> impl Fn(&Seen) -> Response + Send + Sync {
    move |_| {
        begun.fetch_add(1, Ordering::SeqCst);
        let gate = Arc::clone(&gate);
        Response::new(Body::from_stream(futures::stream::once(async move {
            gate.acquire().await.unwrap().forget();
            Ok::<_, Infallible>(Bytes::from(sab("App")))
        })))
    }
}

#[tokio::test]
async fn a_thousand_pes_cause_one_download_and_wait_within_their_patience() {
    let (gate, begun) = (Arc::new(Semaphore::new(0)), Arc::new(AtomicUsize::new(0)));
    let site = Site::start(held(Arc::clone(&gate), Arc::clone(&begun))).await;
    let jobs = vec![(POD, job("j", url(&site.http(GIT, "/a.sab")), Some(&sab("App"))))];
    let pods = Pods::with(site.fetcher(), kubernetes(&[]), jobs, |options| {
        options.patience = Duration::from_millis(300);
    });
    let waiting = "the bundle of job a/j cannot be had now: it is being fetched";
    assert_eq!(pods.not_now(POD, "a.sab").await, waiting);
    assert_eq!(pods.answered(), [], "it is not known yet");
    let ask = || futures::future::join_all((0..1000).map(|_| pods.get(POD, "a.sab")));
    assert!(ask().await.into_iter().all(|got| got == Err(Refusal::NotNow(waiting.to_owned()))));
    gate.add_permits(1);
    assert_eq!(pods.once_there(POD, "a.sab").await, sab("App"));
    assert!(ask().await.into_iter().all(|got| got.unwrap() == sab("App")));
    assert_eq!(begun.load(Ordering::SeqCst), 1);
}

/// A server that gives no bundle until it is let, and a fetcher with a directory that has `b.sab`.
struct Slow {
    gate: Arc<Semaphore>,
    begun: Arc<AtomicUsize>,
    site: Site,
    fetcher: Fetcher,
    _files: TempDir,
}

impl Slow {
    async fn start() -> Self {
        let (gate, begun) = (Arc::new(Semaphore::new(0)), Arc::new(AtomicUsize::new(0)));
        let site = Site::start(held(Arc::clone(&gate), Arc::clone(&begun))).await;
        let files = tempfile::tempdir().unwrap();
        std::fs::write(files.path().join("b.sab"), sab("B")).unwrap();
        let directory = Some(files.path().to_owned());
        let options = FetchOptions { at_once: 4, directory, cache_bytes: 0, allowed: loopback(), ..options() };
        let fetcher = site.fetcher_with(options, PROVEN);
        Self { gate, begun, site, fetcher, _files: files }
    }

    /// A bundle of the server.
    fn hanging(&self, of: impl std::fmt::Display) -> BundleReference {
        url(&self.site.http(GIT, &format!("/{of}/a.sab")))
    }

    fn begun(&self) -> usize {
        self.begun.load(Ordering::SeqCst)
    }

    /// Waits until the server was asked so often.
    async fn has_begun(&self, times: usize) {
        while self.begun() < times {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// The jobs of these pods, whose PEs wait for a moment only: those of the first pods are of the namespace `a`, and
    /// have bundles of the server; that of `NOBODY` is of `b`, and has one that is at hand.
    fn pods(&self, hanging: &[IpAddr]) -> Pods {
        let of_a = hanging.iter().map(|pod| (*pod, job(&format!("j{pod}"), self.hanging(pod), Some(&sab("App")))));
        let mut of_b = job("j", at_hand(), Some(&sab("B")));
        of_b.metadata.namespace = Some("b".to_owned());
        let jobs = of_a.chain([(NOBODY, of_b)]).collect();
        Pods::with(self.fetcher.clone(), kubernetes(&[]), jobs, |options| {
            options.patience = Duration::from_millis(200);
        })
    }
}

/// A bundle in the directory.
fn at_hand() -> BundleReference {
    BundleReference { file: Some("b.sab".to_owned()), ..BundleReference::default() }
}

/// Pods of as many jobs.
const WAITING: [IpAddr; 4] =
    [POD, OTHER_POD, IpAddr::V4(Ipv4Addr::new(10, 0, 0, 3)), IpAddr::V4(Ipv4Addr::new(10, 0, 0, 4))];

#[tokio::test]
async fn pes_that_wait_leave_places_for_submissions_and_for_pes_of_other_namespaces() {
    let slow = Slow::start().await;
    let pods = slow.pods(&WAITING);
    let waiting = futures::future::join_all(WAITING.map(|pod| pods.get(pod, "a.sab"))).await;
    assert!(waiting.iter().all(Result::is_err), "{waiting:?}");
    assert_eq!(pods.get(NOBODY, "b.sab").await.unwrap(), sab("B"), "of another namespace");
    for namespace in ["a", "b"] {
        slow.fetcher.fetch(&at_hand(), namespace, &kubernetes(&[])).await.unwrap();
    }
    assert_eq!(slow.begun(), 1, "one at a time of a namespace");
    slow.gate.add_permits(WAITING.len());
}

#[tokio::test]
async fn a_namespace_whose_submissions_and_pes_wait_leaves_places_to_others() {
    let slow = Slow::start().await;
    // As many as there are places.
    let submissions: Vec<_> = (0..4)
        .map(|number| {
            let (fetcher, bundle) = (slow.fetcher.clone(), slow.hanging(number));
            tokio::spawn(async move { fetcher.fetch(&bundle, "a", &kubernetes(&[])).await.map(drop) })
        })
        .collect();
    slow.has_begun(2).await;
    let pods = slow.pods(&WAITING);
    let waiting = futures::future::join_all(WAITING.map(|pod| pods.get(pod, "a.sab"))).await;
    assert!(waiting.iter().all(Result::is_err), "{waiting:?}");
    slow.fetcher.fetch(&at_hand(), "b", &kubernetes(&[])).await.unwrap();
    assert_eq!(pods.get(NOBODY, "b.sab").await.unwrap(), sab("B"));
    assert_eq!(slow.begun(), 2, "half of the places");
    // Nobody waits for ever.
    slow.gate.add_permits(submissions.len() + WAITING.len());
    for submission in submissions {
        submission.await.unwrap().unwrap();
    }
    for pod in WAITING {
        assert_eq!(pods.once_there(pod, "a.sab").await, sab("App"));
    }
}

#[tokio::test]
async fn what_another_job_has_had_meanwhile_is_not_fetched_again() {
    let slow = Slow::start().await;
    let pods = slow.pods(&WAITING);
    let waiting = futures::future::join_all(WAITING.map(|pod| pods.get(pod, "a.sab"))).await;
    assert!(waiting.iter().all(Result::is_err), "{waiting:?}");
    slow.gate.add_permits(1);
    for pod in WAITING {
        assert_eq!(pods.once_there(pod, "a.sab").await, sab("App"));
    }
    assert_eq!(slow.begun(), 1);
}

#[tokio::test]
async fn failures_are_told_and_the_disk_has_a_bound() {
    let site = Site::start(|seen| match seen.path.as_str() {
        "/gone.sab" => status(StatusCode::NOT_FOUND),
        _ => content(sab("App"), None),
    })
    .await;
    let jobs = vec![
        (POD, job("gone", url(&site.http(GIT, "/gone.sab")), Some(b"x"))),
        (OTHER_POD, job("large", url(&site.http(GIT, "/a.sab")), Some(&sab("App")))),
    ];
    let pods = Pods::with(site.fetcher(), kubernetes(&[]), jobs, |options| {
        (options.max_bytes, options.patience) = (100, IMPATIENT);
    });
    let said = pods.not_now(POD, "gone.sab").await;
    assert!(said.contains("the server answers 404"), "{said}");
    let said = pods.not_now(OTHER_POD, "a.sab").await;
    assert!(said.ends_with("all 100 bytes for bundles that are served are in use"), "{said}");
}

#[tokio::test]
async fn a_bootstrap_is_served_over_a_connection() {
    let files = tempfile::tempdir().unwrap();
    std::fs::write(files.path().join("a.sab"), sab("App")).unwrap();
    let fetcher = Fetcher::new(FetchOptions { directory: Some(files.path().to_owned()), ..options() }).unwrap();
    let file = BundleReference { file: Some("a.sab".to_owned()), ..BundleReference::default() };
    let here = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let pods = Pods::new(fetcher, vec![(here, job("j", file, Some(&sab("App"))))]);
    let (listener, metrics) = (TcpListener::bind("127.0.0.1:0").await.unwrap(), Metrics::new("streams"));
    let address = listener.local_addr().unwrap();
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let served = pods.repository.serve(listener, counters(&metrics), async {
        let _ = stopped.await;
    });
    let talk = async {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(b"*3\r\n$4\r\nHGET\r\n$4\r\napps\r\n$5\r\na.sab\r\nQUIT\r\n").await.unwrap();
        let mut reply = Vec::new();
        stream.read_to_end(&mut reply).await.unwrap();
        let head = format!("${}\r\n", sab("App").len());
        assert_eq!(reply, [head.as_bytes(), &sab("App"), b"\r\n+OK\r\n"].concat());
        let text = metrics.text().unwrap();
        assert!(text.contains("streams_repository_transfers_total{end=\"done\"} 1\n"), "{text}");
        assert!(text.contains("streams_repository_transfers_total{end=\"broken\"} 0\n"), "{text}");
        assert!(text.contains("streams_repository_requests_total{end=\"malformed\"} 0\n"), "{text}");
        stop.send(()).unwrap();
    };
    let (served, ()) = tokio::join!(served, talk);
    served.unwrap();
    assert!(Path::new(files.path()).exists());
}
