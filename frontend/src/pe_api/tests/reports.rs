//! What PEs tell of their connections while the API server takes its time (rule pe-api-4).

use super::objects::{element, jobs};
use super::{Cluster, PE, STRANGER, send};
use crate::pe_api::reports::AT_A_TIME;
use axum::body::Body;
use axum::extract::ConnectInfo;
use axum::http::{Method, Request};
use futures::future::{BoxFuture, join_all};
use k8s_openapi::api::core::v1::Pod;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;
use streams_api::{Connectivity, ProcessingElement, ReportedConnectivity, Termination, names};
use streams_kubernetes::Key;
use streams_kubernetes_fake::Server;
use tokio::time::{Instant, sleep, timeout};
use tower::ServiceExt;

/// PEs of job `srcjob`, beside those of [`jobs`].
pub(super) const OTHERS: std::ops::Range<u64> = 2..14;

fn address(pe: u64) -> String {
    if pe == 1 { PE.to_owned() } else { format!("10.0.1.{pe}") }
}

pub(super) fn many(server: &Server) {
    jobs(server);
    for pe in OTHERS {
        element(server, "srcjob", pe, &address(pe));
    }
}

/// What is under way, and what the API server is asked to write.
pub(super) struct Told {
    pub(super) cluster: Cluster,
    /// The connectivity that was written, by PE, in order.
    written: Arc<Mutex<BTreeMap<String, Vec<Connectivity>>>>,
    /// Milliseconds that a write takes.
    pub(super) slow: Arc<AtomicU64>,
}

impl Told {
    pub(super) fn of(objects: impl FnOnce(&Server)) -> Self {
        let cluster = Cluster::with(objects);
        let (written, slow) = (Arc::<Mutex<BTreeMap<_, Vec<_>>>>::default(), Arc::new(AtomicU64::new(0)));
        cluster.server.inspect({
            let written = Arc::clone(&written);
            move |call| {
                let pe = call.object::<ProcessingElement>().filter(|_| call.verb.is_write());
                if let Some(pe) = pe {
                    let connectivity = pe.status.unwrap_or_default().connectivity();
                    let name = pe.metadata.name.unwrap_or_default();
                    written.lock().entry(name).or_default().push(connectivity);
                }
            }
        });
        cluster.connection.meanwhile({
            let slow = Arc::clone(&slow);
            move |call| {
                let takes = Duration::from_millis(if call.verb.is_write() { slow.load(Ordering::SeqCst) } else { 0 });
                Box::pin(sleep(takes))
            }
        });
        Self { cluster, written, slow }
    }

    /// A PE tells after so many milliseconds. Returns the status of the answer.
    fn tell(&self, after: u64, job: &str, pe: u64, from: &str, state: &str) -> BoxFuture<'static, u16> {
        let path = format!("/api/state/job/{job}/pe/{pe}/connectivity");
        let request = Request::put(path).header("host", "streams-api.n:10000").body(Body::from(format!("{state:?}")));
        let mut request = request.unwrap();
        let peer: SocketAddr = format!("{from}:40000").parse().unwrap();
        request.extensions_mut().insert(ConnectInfo(peer));
        let router = self.cluster.router.clone();
        Box::pin(async move {
            sleep(Duration::from_millis(after)).await;
            router.oneshot(request).await.unwrap().status().as_u16()
        })
    }

    pub(super) fn tells(&self, after: u64, pe: u64, state: &str) -> BoxFuture<'static, u16> {
        self.tell(after, "srcjob", pe, &address(pe), state)
    }

    /// The answers, while the mirrors show what is written.
    pub(super) async fn answers(&mut self, all: Vec<BoxFuture<'static, u16>>) -> Vec<u16> {
        let mut all = Box::pin(join_all(all));
        loop {
            tokio::select! {
                biased;
                answers = &mut all => return answers,
                () = sleep(Duration::from_millis(1)) => { self.cluster.mirrors.deliver_all(); }
            }
        }
    }

    /// What was written since this was asked last.
    fn written(&self) -> BTreeMap<String, Vec<Connectivity>> {
        std::mem::take(&mut self.written.lock())
    }

    fn stored(&self, pe: &str) -> Connectivity {
        let pe = self.cluster.server.get::<ProcessingElement>(&Key::new("n", pe)).unwrap();
        pe.status.unwrap_or_default().connectivity()
    }

    pub(super) async fn passes(&mut self, seconds: u64) {
        for _ in 0..4 * seconds {
            sleep(Duration::from_millis(250)).await;
            self.cluster.mirrors.deliver_all();
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_report_whose_write_takes_long_is_not_written_over_the_next_one() {
    let mut told = Told::of(jobs);
    assert_eq!(told.answers(vec![told.tells(0, 1, "Full")]).await, [204]);
    // The write is under way for longer than anybody waits for it, and the mirror still shows what was there before.
    told.slow.store(1_200, Ordering::SeqCst);
    let both = vec![told.tells(0, 1, "Partial"), told.tells(1_000, 1, "Full")];
    let first = told.answers(both).await;
    told.slow.store(0, Ordering::SeqCst);
    assert_eq!(first, [503, 503]);
    assert_eq!(told.answers(vec![told.tells(2_000, 1, "Full")]).await, [204]);
    assert_eq!(told.stored("srcjob-1"), Connectivity::Full);
}

#[tokio::test(start_paused = true)]
async fn what_is_as_it_was_before_it_is_its_turn_is_not_written() {
    let mut told = Told::of(many);
    let all = OTHERS.map(|pe| told.tells(0, pe, "Full")).collect();
    assert_eq!(told.answers(all).await, vec![204; 12]);
    told.written();
    told.slow.store(300, Ordering::SeqCst);
    // Each loses a connection, and has it again 10 ms later.
    let all = OTHERS.flat_map(|pe| [told.tells(0, pe, "Partial"), told.tells(10, pe, "Full")]).collect();
    assert_eq!(told.answers(all).await, vec![204; 24]);
    let written = told.written();
    assert!(written.len() <= AT_A_TIME, "{written:?}");
    for (pe, written) in written {
        assert_eq!(written, [Connectivity::Partial, Connectivity::Full], "{pe}");
    }
    for pe in OTHERS {
        assert_eq!(told.stored(&format!("srcjob-{pe}")), Connectivity::Full);
    }
}

#[tokio::test(start_paused = true)]
async fn of_what_a_pe_tells_while_it_waits_the_last_counts_and_all_are_answered() {
    let mut told = Told::of(many);
    told.slow.store(100, Ordering::SeqCst);
    let before = OTHERS.take(11).map(|pe| told.tells(0, pe, "Full"));
    let last = ["Partial", "Full", "Partial"].into_iter().map(|state| told.tells(1, 13, state));
    let all = before.chain(last).collect();
    assert_eq!(told.answers(all).await, vec![204; 14]);
    assert_eq!(told.written()["srcjob-13"], [Connectivity::Partial]);
}

#[tokio::test(start_paused = true)]
async fn a_job_whose_pes_tell_all_at_once_holds_up_no_other_job() {
    let mut told = Told::of(many);
    told.slow.store(400, Ordering::SeqCst);
    let many = OTHERS.map(|pe| told.tells(0, pe, "Full"));
    let all = many.chain([told.tell(1, "dstjob", 0, STRANGER, "Full")]).collect();
    let answers = told.answers(all).await;
    assert_eq!(answers.last(), Some(&204), "{answers:?}");
    assert!(answers.contains(&503), "the API server was too quick for this test: {answers:?}");
}

#[tokio::test(start_paused = true)]
async fn what_could_not_be_written_is_when_the_api_server_is_back_or_not_any_more_after_a_minute() {
    // seconds for which the API server refuses -> whether the report is written, though nobody tells again
    for (seconds, expected) in [(20, Connectivity::Full), (200, Connectivity::None)] {
        let mut told = Told::of(jobs);
        let refused = Arc::new(AtomicUsize::new(0));
        let refuses = Arc::new(AtomicUsize::new(1));
        told.cluster.server.refuse({
            let (refused, refuses) = (Arc::clone(&refused), Arc::clone(&refuses));
            move |call| {
                let refuses = call.verb.is_write() && refuses.load(Ordering::SeqCst) == 1;
                refuses.then(|| {
                    refused.fetch_add(1, Ordering::SeqCst);
                    kube::core::Status::failure("etcd does not answer", "InternalError").with_code(500)
                })
            }
        });
        assert_eq!(told.answers(vec![told.tells(0, 1, "Full")]).await, [503]);
        told.passes(seconds).await;
        refuses.store(0, Ordering::SeqCst);
        told.passes(200).await;
        assert_eq!(told.stored("srcjob-1"), expected, "{seconds} s");
        assert!((3..30).contains(&refused.load(Ordering::SeqCst)), "{refused:?}");
        assert_eq!(told.cluster.reports.waiting(), 0, "{seconds} s");
    }
}

/// The PE may have told the other replica something else, and would not tell that again.
#[tokio::test(start_paused = true)]
async fn a_replica_that_pes_are_led_away_from_writes_only_what_somebody_waits_for() {
    // when PEs are led away -> what is written of the PE that waits for its turn
    for (are_led_away, expected) in [(false, Connectivity::Full), (true, Connectivity::None)] {
        let mut told = Told::of(many);
        // Longer than anybody waits, so nobody does when it is the turn of the fifth.
        told.slow.store(1_000, Ordering::SeqCst);
        let all = OTHERS.map(|pe| told.tells(0, pe, "Full")).collect();
        assert_eq!(told.answers(all).await, vec![503; 12]);
        told.cluster.are_led_away.store(are_led_away, Ordering::SeqCst);
        // It may be the turn of the first of the others already.
        told.passes(10).await;
        assert_eq!(told.stored("srcjob-13"), expected, "{are_led_away}");
        assert_eq!(told.cluster.reports.waiting(), 0, "{are_led_away}");
        // Who waits is heard.
        told.slow.store(0, Ordering::SeqCst);
        assert_eq!(told.answers(vec![told.tells(0, 13, "Partial")]).await, [204]);
    }
}

/// The job was deleted and applied again, or somebody has deleted the PE.
#[tokio::test(start_paused = true)]
async fn what_a_pe_has_told_is_not_the_word_of_another_one_that_is_made_under_its_name() {
    let full = ReportedConnectivity { state: Connectivity::Full, launch_count: 1, interruptions: 0 };
    // launch of the pod that tells before, what it tells; what the pod of the other one tells, and what is stored then
    let table = [
        (7, "Partial", Some("Full"), Some(full.clone())),
        (1, "Partial", Some("Full"), Some(full)),
        (1, "Full", None, None),
        (7, "Full", None, None),
    ];
    for (launch, before, after, stored) in table {
        let said = format!("{launch} {before} {after:?}");
        let mut told = Told::of(many);
        let server = told.cluster.server.clone();
        let (pe, pod) = (Key::new("n", "srcjob-1"), Key::new("n", "srcjob-1-x"));
        let is_of_launch = |launch: u64| {
            server.edit::<ProcessingElement>(&pe, |pe| pe.status.as_mut().unwrap().launch_count = launch);
            server.edit::<Pod>(&pod, |pod| {
                let labels = pod.metadata.labels.as_mut().unwrap();
                labels.insert(names::LABEL_LAUNCH_COUNT.to_owned(), launch.to_string());
            });
        };
        is_of_launch(launch);
        told.cluster.mirrors.deliver_all();
        // Those of a namespace that are written at a time are others.
        told.slow.store(600, Ordering::SeqCst);
        let others = OTHERS.take(4).map(|pe| told.tells(0, pe, "Full"));
        let reports: Vec<_> = others.chain([told.tells(1, 1, before)]).map(tokio::spawn).collect();
        sleep(Duration::from_millis(50)).await;
        assert_eq!(told.cluster.reports.waiting(), 5, "{said}");
        told.slow.store(0, Ordering::SeqCst);
        server.remove::<Pod>(&pod);
        server.remove::<ProcessingElement>(&pe);
        element(&server, "srcjob", 1, PE);
        is_of_launch(1);
        told.cluster.mirrors.deliver_all();
        if let Some(after) = after {
            assert_eq!(told.answers(vec![told.tells(0, 1, after)]).await, [204], "{said}");
        }
        told.passes(5).await;
        let now = server.get::<ProcessingElement>(&pe).unwrap().status.unwrap_or_default().connectivity;
        assert_eq!(now, stored, "{said}");
        assert_eq!(told.cluster.reports.waiting(), 0, "{said}");
        let answers = join_all(reports).await.into_iter().map(|answer| answer.unwrap()).collect::<Vec<_>>();
        assert_eq!(answers, [204, 204, 204, 204, 404], "{said}");
    }
}

const PATH: &str = "/api/state/job/srcjob/pe/1/connectivity";

#[tokio::test(start_paused = true)]
async fn what_only_an_old_mirror_shows_is_written_again() {
    let mut told = Told::of(jobs);
    let mut other = told.cluster.another();
    other.expect(send(Method::PUT, PATH, "\"Full\""), 204, "").await;
    told.cluster.mirrors.deliver_all();
    // The mirror of this replica does not show this one yet.
    other.expect(send(Method::PUT, PATH, "\"Partial\""), 204, "").await;
    assert_eq!(told.answers(vec![told.tells(0, 1, "Full")]).await, [204]);
    assert_eq!(told.stored("srcjob-1"), Connectivity::Full);
}

/// A user has stopped the PE, and its pod is going.
#[tokio::test(start_paused = true)]
async fn what_a_pod_tells_is_not_written_if_only_an_old_mirror_does_not_show_its_end() {
    // launch whose end was recorded last -> what is stored of the pod of launch 2
    for (ended, expected) in [(1, Connectivity::Full), (2, Connectivity::None)] {
        let mut told = Told::of(jobs);
        told.cluster.server.edit::<ProcessingElement>(&Key::new("n", "srcjob-1"), |pe| {
            let last = Termination { launch_count: ended, ..Termination::default() };
            pe.status.as_mut().unwrap().last_termination = Some(last);
        });
        assert_eq!(told.answers(vec![told.tells(0, 1, "Full")]).await, [204], "{ended}");
        assert_eq!(told.stored("srcjob-1"), expected, "{ended}");
        assert_eq!(told.cluster.reports.waiting(), 0, "{ended}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_this_replica_has_written_is_written_again_if_another_has_written_something_else() {
    let mut told = Told::of(jobs);
    let mut other = told.cluster.another();
    assert_eq!(told.answers(vec![told.tells(0, 1, "Full")]).await, [204]);
    other.mirrors.deliver_all();
    other.expect(send(Method::PUT, PATH, "\"Partial\""), 204, "").await;
    // The mirror of this replica still shows what this one has written.
    let mut again = told.tells(0, 1, "Full");
    assert!(timeout(Duration::from_millis(500), &mut again).await.is_err(), "it is answered before it is stored");
    assert_eq!(told.answers(vec![again]).await, [204]);
    assert_eq!(told.stored("srcjob-1"), Connectivity::Full);
}

#[tokio::test(start_paused = true)]
async fn the_same_word_again_does_not_count_as_the_one_that_is_being_written() {
    let mut told = Told::of(jobs);
    let mut other = told.cluster.another();
    // The write has had its effect, and this replica does not know.
    let first = told.tells(0, 1, "Full");
    let first = tokio::spawn(first);
    sleep(Duration::from_millis(10)).await;
    assert_eq!(told.stored("srcjob-1"), Connectivity::Full);
    other.expect(send(Method::PUT, PATH, "\"Partial\""), 204, "").await;
    let again = told.tells(0, 1, "Full");
    assert_eq!(told.answers(vec![again]).await, [204]);
    assert_eq!((first.await.unwrap(), told.stored("srcjob-1")), (204, Connectivity::Full));
}

#[tokio::test(start_paused = true)]
async fn the_same_again_costs_one_read_and_no_write() {
    let mut told = Told::of(many);
    let mut other = told.cluster.another();
    for pe in OTHERS {
        let (from, path) = (address(pe), format!("/api/state/job/srcjob/pe/{pe}/connectivity"));
        let report = super::Exchange { from: &from, ..send(Method::PUT, &path, "\"Full\"") };
        other.expect(report, 204, "").await;
    }
    told.cluster.mirrors.deliver_all();
    told.written();
    let connection = told.cluster.connection.clone();
    for reads in [12, 12] {
        let before = connection.calls();
        let all = OTHERS.map(|pe| told.tells(0, pe, "Full")).collect();
        assert_eq!(told.answers(all).await, vec![204; 12]);
        assert_eq!(connection.calls() - before, reads);
    }
    assert!(told.written().is_empty());
    assert_eq!(connection.writes(), 0);
}

/// PEs that are connected with one that is replaced tell all at once, and many of them what is stored.
#[tokio::test(start_paused = true)]
async fn what_was_written_since_a_pe_has_told_costs_others_their_read() {
    // milliseconds until the others tell, and that a write takes -> reads
    for (after, slow, reads) in [(0, 100, 0), (50, 100, 8), (0, 1_500, 8)] {
        let mut told = Told::of(many);
        assert_eq!(told.answers(OTHERS.map(|pe| told.tells(0, pe, "Full")).collect()).await, vec![204; 12]);
        told.passes(60).await;
        let connection = told.cluster.connection.clone();
        let before = (connection.calls(), connection.writes());
        told.slow.store(slow, Ordering::SeqCst);
        // As many as are written at the same time.
        let writes = OTHERS.take(4).map(|pe| told.tells(0, pe, "Partial"));
        let same = OTHERS.skip(4).map(|pe| told.tells(after, pe, "Full"));
        told.answers(writes.chain(same).collect()).await;
        told.passes(4).await;
        let (calls, writes) = (connection.calls() - before.0, connection.writes() - before.1);
        assert_eq!((writes, calls - writes), (4, reads), "{after} {slow}");
        assert_eq!(told.cluster.reports.waiting(), 0, "{after} {slow}");
    }
}

/// It is answered before its turn, which comes after all that others have told before.
#[tokio::test(start_paused = true)]
async fn what_is_known_to_be_stored_does_not_wait_for_the_writes_of_others() {
    // what is stored of the PE, and what it tells -> milliseconds until the answer, at most
    for (stored, tells, within) in [("Full", "Full", 260), ("Partial", "Full", 450)] {
        let mut told = Told::of(many);
        let all = std::iter::once(told.tells(0, 1, stored)).chain(OTHERS.map(|pe| told.tells(0, pe, "Full"))).collect();
        assert_eq!(told.answers(all).await, vec![204; 13]);
        told.passes(60).await;
        told.slow.store(100, Ordering::SeqCst);
        let begin = Instant::now();
        let this = told.tells(50, 1, tells);
        let timed: BoxFuture<'static, u16> = Box::pin(async move {
            let answer = this.await;
            let took = begin.elapsed();
            assert!(took <= Duration::from_millis(within), "{stored} {tells}: {took:?}");
            assert!(took > Duration::from_millis(within - 100), "{stored} {tells}: {took:?}");
            answer
        });
        let all = OTHERS.map(|pe| told.tells(0, pe, "Partial")).chain(std::iter::once(timed)).collect();
        assert_eq!(told.answers(all).await, vec![204; 13]);
        assert_eq!(format!("{:?}", told.stored("srcjob-1")), tells);
        assert_eq!(told.cluster.reports.waiting(), 0);
    }
}

/// What is being written of the PE itself may come after what the mirror shows.
#[tokio::test(start_paused = true)]
async fn what_is_stored_counts_for_nothing_while_something_else_is_being_written_of_the_pe() {
    let mut told = Told::of(many);
    assert_eq!(told.answers(OTHERS.map(|pe| told.tells(0, pe, "Full")).collect()).await, vec![204; 12]);
    told.passes(60).await;
    told.slow.store(300, Ordering::SeqCst);
    let first = OTHERS.start;
    let all = vec![
        told.tells(0, first, "Partial"),
        told.tells(10, first, "Full"),
        // What is written of others shows that the mirror is new enough.
        told.tells(20, first + 1, "Partial"),
        told.tells(30, first + 2, "Partial"),
    ];
    assert_eq!(told.answers(all).await, vec![204; 4]);
    let pe = format!("srcjob-{first}");
    assert_eq!(told.written()[&pe][1..], [Connectivity::Partial, Connectivity::Full]);
    assert_eq!(told.stored(&pe), Connectivity::Full);
}

#[tokio::test(start_paused = true)]
async fn a_pe_that_tells_something_else_again_and_again_is_written_now_and_then_and_its_last_word_counts() {
    let mut told = Told::of(jobs);
    let (begin, mut answers) = (Instant::now(), Vec::new());
    while begin.elapsed() < Duration::from_secs(40) {
        let state = ["Full", "Partial"][answers.len() % 2];
        let mut answer = told.tells(0, 1, state);
        let answer = loop {
            tokio::select! {
                biased;
                answer = &mut answer => break answer,
                () = sleep(Duration::from_millis(10)) => { told.cluster.mirrors.deliver_all(); }
            }
        };
        answers.push(answer);
    }
    assert!(answers[..18].iter().all(|answer| *answer == 204), "in a pause, too, the runtime is answered in time");
    let writes = told.written()["srcjob-1"].len();
    assert!((18..=30).contains(&writes), "{writes}");
    let last = ["Full", "Partial"][(answers.len() - 1) % 2];
    told.passes(10).await;
    assert_eq!(format!("{:?}", told.stored("srcjob-1")), last);
    // It has been quiet for long.
    told.passes(120).await;
    let begin = Instant::now();
    for state in ["None", "Partial", "Full", "Partial", "Full"] {
        assert_eq!(told.answers(vec![told.tells(0, 1, state)]).await, [204]);
    }
    assert!(begin.elapsed() < Duration::from_millis(200), "{:?}", begin.elapsed());
    assert_eq!(told.cluster.reports.waiting(), 0);
}
