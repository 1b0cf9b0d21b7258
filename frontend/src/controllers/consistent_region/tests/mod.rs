//! Regions over a fake API server: what is stored, and what PEs are told, when something happens.

mod lost_and_left;
mod overlapping;
mod suspended;
mod taking_over;

use super::telling::Telling;
use super::{ConsistentRegionReconciler, RegionFigures};
use crate::consistent_regions::ConsistentRegions;
use crate::consistent_regions::reports::{NotTaken, TOGETHER};
use crate::controllers::consistent_region_service::{ConsistentRegionServiceReconciler, Led};
use crate::controllers::messenger::Messenger;
use crate::controllers::reconciler::reconcile;
use crate::controllers::start_hash::Starts as _;
use crate::controllers::tests::LateMirrors;
use crate::mirrors::Mirrors;
use k8s_openapi::api::core::v1::{Pod, Service};
use serde_json::{Value, json};
use std::io;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use streams_api::{ConsistentRegion, ConsistentRegionSpec, Job, ProcessingElement, condition, names};
use streams_consistent_region::{Event, Launches, Member, Progress};
use streams_kubernetes::Key;
use streams_kubernetes::leadership::Term;
use streams_kubernetes::metrics::Metrics;
use streams_kubernetes::queue::{BackOff, Outcome, Queue, Sharing};
use streams_kubernetes_fake::{Connection, Fault, Server};
use tokio::task::JoinHandle;

const PERIOD: Duration = Duration::from_secs(10);
const DRAIN: &str = r#"{"0":{"type":"triggerDrain","message":"seqId=1"}}"#;
const RESUME: &str = r#"{"0":{"type":"resumeSubmission","message":"seqId=2;retId=0;pendCkpt=0"}}"#;
const RESET: &str = r#"{"0":{"type":"triggerReset","message":"seqId=0;resetAttempt=0"}}"#;
const SECOND_RESET: &str = r#"{"0":{"type":"triggerReset","message":"seqId=0;resetAttempt=1"}}"#;

/// Remembers what is sent, and how the region was stored at that moment.
#[derive(Clone)]
struct Recorder {
    server: Server,
    sent: Arc<Mutex<Vec<(String, String)>>>,
}

impl Messenger for Recorder {
    async fn send(&self, address: IpAddr, message: &str) -> io::Result<()> {
        let region = self.server.get::<ConsistentRegion>(&key()).expect("nothing is stored of what is told");
        assert!(region.status.is_some_and(|status| status.record.is_some()), "{message} follows from nothing stored");
        self.sent.lock().unwrap().push((address.to_string(), message.to_owned()));
        Ok(())
    }
}

/// A job with the PEs 0 and 1, both in region 0, and a replica that drives it.
struct Fixture {
    server: Server,
    connection: Connection,
    late: Arc<tokio::sync::Mutex<LateMirrors>>,
    delivering: JoinHandle<()>,
    recorder: Recorder,
    regions: ConsistentRegions,
    led: Led,
    metrics: Metrics,
    reconciler: Arc<ConsistentRegionReconciler<Connection, Recorder>>,
}

/// The Service that PEs of the job report to, with this address.
fn service(server: &Server, address: &str) {
    let owner = server.get::<Job>(&Key::new("n", "flow")).unwrap().metadata.uid;
    let service: Service = serde_json::from_value(json!({
        "metadata": owned("Job", "flow", owner, &names::consistent_region_service("flow")),
        "spec": {"clusterIP": address, "ports": [{"name": "sys-api", "port": 10000}]},
    }))
    .unwrap();
    server.create(&service);
}

fn key() -> Key {
    Key::new("n", "flow-cr0")
}

fn pe(number: u64) -> Key {
    Key::new("n", &names::processing_element("flow", number))
}

fn owned(kind: &str, owner: &str, uid: Option<String>, name: &str) -> Value {
    json!({"name": name, "namespace": "n", "labels": {"app": "streams"}, "ownerReferences": [
        {"apiVersion": "streams.ibm.com/v1", "kind": kind, "name": owner, "uid": uid, "controller": true},
    ]})
}

/// A pod of a PE in a launch.
fn start(server: &Server, number: u64, launch: u64) {
    let owner = server.get::<ProcessingElement>(&pe(number)).unwrap();
    let name = format!("flow-{number}-{launch}");
    let mut meta = owned("ProcessingElement", &pe(number).name, owner.metadata.uid, &name);
    meta["labels"]["streams.ibm.com/launch-count"] = json!(launch.to_string());
    let pod: Pod = serde_json::from_value(json!({
        "metadata": meta, "spec": {"containers": [{"name": "pe"}]},
        "status": {"phase": "Running", "podIP": format!("10.0.{launch}.{number}")},
    }))
    .unwrap();
    server.create(&pod);
    connected(server, number, launch);
}

/// The PE says in a launch that it has all connections.
fn connected(server: &Server, number: u64, launch: u64) {
    server.edit::<ProcessingElement>(&pe(number), |pe| {
        let status = pe.status.get_or_insert_default();
        status.launch_count = launch;
        status.connectivity = Some(serde_json::from_value(json!({"state": "Full", "launchCount": launch})).unwrap());
    });
}

impl Fixture {
    fn new(region: Value) -> Self {
        let server = Server::new();
        let job: Job = serde_json::from_value(json!({
            "apiVersion": "streams.ibm.com/v1", "kind": "Job", "metadata": {"name": "flow", "namespace": "n"},
            "spec": {"bundle": {"file": "a.sab"}}, "status": {"jobId": 1},
        }))
        .unwrap();
        let uid = server.create(&job).metadata.uid;
        for number in 0..2 {
            let pe: ProcessingElement = serde_json::from_value(json!({
                "apiVersion": "streams.ibm.com/v1", "kind": "ProcessingElement",
                "metadata": owned("Job", "flow", uid.clone(), &pe(number).name),
                "spec": {
                    "jobName": "flow", "jobId": 1, "id": number, "generation": 1, "contentId": "c", "runtimeId": "r",
                    "configMap": {"name": "m"}, "operatorCount": 1, "operators": ["o"], "image": "i",
                    "consistentRegions": [0],
                },
            }))
            .unwrap();
            server.create(&pe);
        }
        let mut spec = json!({
            "jobName": "flow", "jobId": 1, "index": 0, "logicalIndex": 0, "trigger": "periodic",
            "periodMilliseconds": PERIOD.as_millis(), "drainTimeoutMilliseconds": 60_000,
            "resetTimeoutMilliseconds": 60_000, "maxConsecutiveResetAttempts": 2, "peIds": [0, 1], "operatorCount": 2,
            "startOperatorCount": 1, "startOperators": ["o"],
        });
        for (field, value) in region.as_object().unwrap() {
            spec[field] = value.clone();
        }
        let region: ConsistentRegion = serde_json::from_value(json!({
            "apiVersion": "streams.ibm.com/v1", "kind": "ConsistentRegion",
            "metadata": owned("Job", "flow", uid, "flow-cr0"), "spec": spec,
        }))
        .unwrap();
        server.create(&region);
        Self::on(server, Term::endless())
    }

    /// A replica that begins with what this server has, and to which PEs are led.
    fn on(server: Server, term: Term) -> Self {
        let fixture = Self::not_led_to(server, term);
        (0..2).for_each(|number| fixture.comes(number));
        fixture
    }

    /// The same, to which no PE has come.
    fn not_led_to(server: Server, term: Term) -> Self {
        let metrics = Metrics::new("test");
        let mirrors = Mirrors::new(&metrics);
        let regions = ConsistentRegions::of(&mirrors, term);
        let late = Arc::new(tokio::sync::Mutex::new(LateMirrors::fill(&server, mirrors)));
        let recorder = Recorder { server: server.clone(), sent: Arc::default() };
        let connection = server.connect();
        let figures = RegionFigures::among(&metrics);
        let queue = Queue::new("test", BackOff::default(), Sharing::none(), &metrics);
        regions.reports.open(queue, regions.mirrors.consistent_regions.keys());
        let led = Led::among(&regions.mirrors);
        let reconciler = ConsistentRegionReconciler::new(
            connection.clone(),
            regions.clone(),
            led.clone(),
            recorder.clone(),
            figures,
        );
        let reconciler = Arc::new(reconciler);
        // The mirrors are never far behind.
        let following = Arc::clone(&late);
        let delivering = tokio::spawn(async move {
            loop {
                following.lock().await.deliver_all();
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        });
        Self { server, connection, late, delivering, recorder, regions, led, metrics, reconciler }
    }

    /// Another replica takes over, to which PEs are led.
    fn taken_over(self) -> Self {
        self.delivering.abort();
        Self::on(self.server.clone(), Term::endless())
    }

    /// The same, but PEs are still led to the one before.
    fn taken_over_without_pes(self) -> Self {
        self.delivering.abort();
        Self::not_led_to(self.server.clone(), Term::endless())
    }

    /// The Service that PEs report to is led to this replica.
    async fn leads(&self) {
        let (cluster, mirrors) = (self.connection.clone(), self.regions.mirrors.clone());
        let leading = ConsistentRegionServiceReconciler::new(cluster, mirrors, "10.0.0.1".parse().ok(), &self.led);
        reconcile(&leading, &Key::new("n", &names::consistent_region_service("flow"))).await.unwrap();
    }

    /// The pod of a PE asks this replica.
    fn comes(&self, number: u64) {
        let member = self.regions.members.get(&pe(number)).unwrap();
        self.regions.answered.has_come(&pe(number), member.facts.launch);
    }

    /// Reconciles until nothing is written any more.
    async fn settle(&self) -> Outcome {
        loop {
            self.late.lock().await.deliver_all();
            let before = self.connection.writes();
            let outcome = reconcile(&*self.reconciler, &key()).await.unwrap();
            if self.connection.writes() == before {
                return outcome;
            }
        }
    }

    fn region(&self) -> ConsistentRegion {
        self.server.get(&key()).unwrap()
    }

    fn state(&self) -> String {
        self.region().status.unwrap_or_default().state.unwrap_or_default()
    }

    fn said(&self) -> (String, String, String) {
        let status = self.region().status.unwrap_or_default();
        let ready = condition::get(&status.conditions, condition::READY).cloned().unwrap();
        (ready.status, ready.reason, ready.message)
    }

    fn sent(&self) -> Vec<(String, String)> {
        std::mem::take(&mut *self.recorder.sent.lock().unwrap())
    }

    /// Both PEs report at the same moment; all of it is stored by as few writes as that takes.
    async fn report(&self, launches: [u32; 2], progress: Progress) -> usize {
        let before = self.connection.writes();
        let reports = [0, 1].map(|number| {
            let (reports, by) =
                (self.regions.reports.clone(), Member { pe: number, launch: launches[number as usize] });
            let event = Event::Report(by, progress);
            tokio::spawn(async move { reports.report(reports.heard(&key()), number, event).await })
        });
        while self.regions.reports.waiting(&key()) < 2 {
            tokio::task::yield_now().await;
        }
        self.settle().await;
        for report in reports {
            report.await.unwrap().unwrap();
        }
        self.connection.writes() - before
    }

    /// A PE asks, and gets an answer.
    fn asks(&self, number: u64) {
        let member = self.regions.members.get(&pe(number)).unwrap();
        let launch = member.facts.launch;
        let document = self.regions.document(&pe(number), &member, launch);
        self.regions.has_answered(&pe(number), &member, launch, &document);
    }

    /// What a PE is told if it asks.
    fn told(&self, number: u64) -> String {
        let member = self.regions.members.get(&pe(number)).unwrap();
        self.regions.document(&pe(number), &member, member.facts.launch).json()
    }

    /// This is stored of a region, and the mirror shows it.
    async fn stores(&self, region: &Key, record: Value) {
        self.server.edit::<ConsistentRegion>(region, |region| {
            region.status.get_or_insert_default().record = Some(record.clone());
        });
        self.late.lock().await.deliver_all();
    }

    /// Both PEs run and process tuples.
    async fn processing() -> Self {
        let fixture = Self::new(json!({}));
        for number in 0..2 {
            start(&fixture.server, number, 1);
        }
        fixture.settle().await;
        assert_eq!((fixture.state().as_str(), fixture.sent()), ("PROCESSING", vec![]));
        fixture
    }
}

fn both(launch: u64, message: &str) -> Vec<(String, String)> {
    (0..2).map(|number| (format!("10.0.{launch}.{number}"), message.to_owned())).collect()
}

#[tokio::test]
async fn a_new_job_processes_tuples_as_soon_as_its_pes_are_connected() {
    let fixture = Fixture::new(json!({}));
    fixture.settle().await;
    assert_eq!(fixture.state(), "STARTED");
    let said = |status: &str, reason: &str, message: &str| (status.to_owned(), reason.to_owned(), message.to_owned());
    assert_eq!(fixture.said(), said("False", "Starting", "PE 0 has no pod of its launch"));
    start(&fixture.server, 0, 1);
    // The words may be behind for some seconds.
    let outcome = fixture.settle().await;
    assert!(matches!(outcome, Outcome::Again(after) if after <= Duration::from_secs(5)), "{outcome:?}");
    fixture.server.advance(Duration::from_secs(5));
    fixture.settle().await;
    assert_eq!(fixture.said(), said("False", "Starting", "PE 1 has no pod of its launch"));
    start(&fixture.server, 1, 1);
    assert_eq!(fixture.settle().await, Outcome::Again(PERIOD));
    assert_eq!((fixture.state().as_str(), fixture.said()), ("PROCESSING", said("True", "Processing", "")));
    assert_eq!(fixture.sent(), []);
}

#[tokio::test]
async fn a_checkpoint_is_taken_when_the_period_has_passed() {
    let fixture = Fixture::processing().await;
    fixture.server.advance(PERIOD);
    fixture.settle().await;
    assert_eq!((fixture.state().as_str(), fixture.sent()), ("DRAINING", both(1, DRAIN)));
    assert_eq!(fixture.report([1, 1], Progress::CheckpointDone { sequence: 1 }).await, 1, "one write for all reports");
    let status = fixture.region().status.unwrap();
    assert_eq!(fixture.sent(), both(1, RESUME));
    assert_eq!((status.state.as_deref(), status.last_completed_checkpoint), (Some("PROCESSING"), Some(1)));
    assert!(status.last_completed_time.is_some());
    let text = fixture.metrics.text().unwrap();
    for figure in ["last_completed_drain_seq_id", "state"] {
        let line = format!(r#"test_consistent_region_{figure}{{namespace="n",consistent_region="flow-cr0"}} 1"#);
        assert!(text.contains(&line), "{line} is not in\n{text}");
    }
}

#[tokio::test]
async fn what_a_pe_reports_of_a_region_that_it_is_not_in_counts_for_nothing() {
    let fixture = Fixture::new(json!({}));
    fixture.settle().await;
    let before = fixture.region().status;
    let reports = fixture.regions.reports.clone();
    let event = Event::Report(Member { pe: 7, launch: 1 }, Progress::CheckpointDone { sequence: 57 });
    let reported = tokio::spawn(async move { reports.report(reports.heard(&key()), 7, event).await });
    while fixture.regions.reports.waiting(&key()) == 0 {
        tokio::task::yield_now().await;
    }
    fixture.settle().await;
    reported.await.unwrap().unwrap();
    assert_eq!(fixture.region().status, before);
}

#[tokio::test]
async fn what_others_make_of_the_label_of_a_running_pod_concerns_no_region() {
    let fixture = Fixture::processing().await;
    let pod = Key::new("n", "flow-1-1");
    let uid = fixture.server.get::<Pod>(&pod).unwrap().metadata.uid;
    fixture.server.edit::<ProcessingElement>(&pe(1), |pe| {
        let status = pe.status.as_mut().unwrap();
        (status.pod_uid, status.created_launch_count) = (uid, 1);
    });
    for label in ["0", "99"] {
        fixture.server.edit::<Pod>(&pod, |pod| {
            let labels = pod.metadata.labels.as_mut().unwrap();
            labels.insert("streams.ibm.com/launch-count".to_owned(), label.to_owned());
        });
        fixture.settle().await;
        assert_eq!(fixture.state(), "PROCESSING", "{label}");
    }
}

#[tokio::test]
async fn pes_that_were_launched_again_are_reset_and_told_once() {
    let fixture = Fixture::processing().await;
    fixture.server.remove::<Pod>(&Key::new("n", "flow-1-1"));
    fixture.settle().await;
    assert_eq!((fixture.state().as_str(), fixture.sent()), ("UNHEALTHY", vec![]));
    start(&fixture.server, 1, 2);
    fixture.settle().await;
    assert_eq!(fixture.state(), "RESETTING");
    let told = [("10.0.1.0", RESET), ("10.0.2.1", RESET)].map(|(at, what)| (at.to_owned(), what.to_owned()));
    assert_eq!(fixture.sent(), told);
    let announced = fixture.server.announced();
    assert!(announced.iter().any(|announced| announced.notice.note == "from UNHEALTHY back to checkpoint 0"));
    // The launch before has nothing to say any more.
    let reset = Progress::ResetDone { sequence: 0, attempt: 0 };
    fixture.report([1, 1], reset).await;
    assert_eq!(fixture.state(), "RESETTING");
    fixture.report([1, 2], reset).await;
    assert_eq!(fixture.state(), "PROCESSING");
    // A PE that is replaced so fast that nobody has seen it missing.
    fixture.server.advance(Duration::from_secs(1));
    fixture.sent();
    fixture.server.remove::<Pod>(&Key::new("n", "flow-0-1"));
    start(&fixture.server, 0, 2);
    fixture.settle().await;
    assert_eq!(fixture.state(), "RESETTING");
}

#[tokio::test]
async fn a_crash_at_any_write_and_a_write_without_an_answer_lose_nothing() {
    for has_effect in [false, true] {
        let fault = Fault { after: 0, of_writes: true, has_effect, is_last: true };
        let fixture = Fixture::processing().await;
        fixture.server.advance(PERIOD);
        fixture.connection.fail(fault);
        assert!(reconcile(&*fixture.reconciler, &key()).await.is_err(), "{fault:?}");
        assert_eq!(fixture.sent(), [], "{fault:?}: it is not known to be stored");
        let fixture = fixture.taken_over();
        fixture.settle().await;
        let expected = if has_effect { ("RESETTING", both(1, RESET)) } else { ("DRAINING", both(1, DRAIN)) };
        assert_eq!((fixture.state().as_str(), fixture.sent()), expected, "{fault:?}");
    }
}

#[tokio::test]
async fn reports_are_kept_until_they_are_stored_and_refused_where_nobody_drives() {
    let fixture = Fixture::processing().await;
    fixture.server.advance(PERIOD);
    fixture.settle().await;
    // Somebody else has written the region meanwhile.
    let conflicts = Arc::new(Mutex::new(2));
    fixture.server.refuse(move |call| {
        let mut left = conflicts.lock().unwrap();
        (call.verb.is_write() && *left > 0).then(|| {
            *left -= 1;
            kube::core::Status::failure("changed", "Conflict").with_code(409)
        })
    });
    fixture.report([1, 1], Progress::CheckpointDone { sequence: 1 }).await;
    assert_eq!(fixture.region().status.unwrap().last_completed_checkpoint, Some(1));
    // A PE that says ever other things.
    let reports = &fixture.regions.reports;
    let say = |sequence| {
        let event = Event::Report(Member { pe: 0, launch: 1 }, Progress::CheckpointDone { sequence });
        let reports = reports.clone();
        async move {
            let reported = reports.report(reports.heard(&key()), 0, event);
            tokio::time::timeout(Duration::from_millis(5), reported).await
        }
    };
    for sequence in 0..4 {
        assert!(say(sequence).await.is_err(), "it waits");
    }
    assert_eq!(say(4).await, Ok(Err(NotTaken::TooMany)));
    assert!(say(3).await.is_err(), "the same again is the same");
    assert_eq!(reports.waiting(&key()), 4);
    reports.close();
    assert_eq!((say(0).await, reports.waiting(&key())), (Ok(Err(NotTaken::NotDriven)), 0));
}

#[tokio::test]
async fn the_report_that_a_region_waits_for_does_not_wait_for_others() {
    let fixture = Fixture::processing().await;
    fixture.server.advance(PERIOD);
    fixture.settle().await;
    let reports = &fixture.regions.reports;
    let report = |pe, launch, sequence| {
        let event = Event::Report(Member { pe, launch }, Progress::CheckpointDone { sequence });
        let reports = reports.clone();
        tokio::spawn(async move { reports.report(reports.heard(&key()), pe, event).await })
    };
    let before = fixture.connection.writes();
    let first = report(0, 1, 1);
    while reports.waiting(&key()) < 1 {
        tokio::task::yield_now().await;
    }
    tokio::time::sleep(TOGETHER).await;
    fixture.settle().await;
    assert_eq!((first.await.unwrap(), fixture.connection.writes() - before), (Ok(()), 1));
    assert_eq!(fixture.state(), "DRAINING");
    // The region waits for one, and gets it.
    let last = report(1, 1, 1);
    while reports.waiting(&key()) < 1 {
        tokio::task::yield_now().await;
    }
    assert_eq!(reports.take(&key()).len(), 1, "it need not wait");
    last.abort();
}

#[tokio::test]
async fn a_user_resets_a_region_that_has_given_up_once() {
    let fixture = Fixture::new(json!({"maxConsecutiveResetAttempts": 1, "resetTimeoutMilliseconds": 1_000}));
    start(&fixture.server, 0, 1);
    start(&fixture.server, 1, 2);
    fixture.settle().await;
    assert_eq!(fixture.state(), "RESETTING");
    fixture.server.advance(Duration::from_secs(1));
    fixture.settle().await;
    assert_eq!(fixture.state(), "MAXIMUM_RESET_ATTEMPTS_REACHED");
    assert_eq!(fixture.said().1, "ResetAttemptsExhausted");
    assert!(fixture.server.announced().iter().any(|announced| announced.notice.warning));
    let ask = |value: &str| {
        fixture.server.edit::<ConsistentRegion>(&key(), |region| {
            let annotations = region.metadata.annotations.get_or_insert_default();
            annotations.insert(names::ANNOTATION_RESET_REQUESTED.to_owned(), value.to_owned());
        });
    };
    ask("now");
    fixture.settle().await;
    assert_eq!(fixture.state(), "RESETTING");
    assert_eq!(fixture.region().status.unwrap().reset_requested.as_deref(), Some("now"));
    assert_eq!(fixture.region().status.unwrap().reset_attempts, Some(2));
    let fixture = fixture.taken_over();
    fixture.settle().await;
    let attempts = fixture.region().status.unwrap().reset_attempts;
    assert_eq!(attempts, Some(3), "it was asked for once, and begins again because somebody else leads it");
}

#[tokio::test]
async fn times_that_are_too_short_do_not_make_the_region_write_without_end() {
    let short = json!({
        "periodMilliseconds": 0, "drainTimeoutMilliseconds": 0, "resetTimeoutMilliseconds": 0,
        "maxConsecutiveResetAttempts": u32::MAX,
    });
    let fixture = Fixture::new(short);
    start(&fixture.server, 0, 1);
    start(&fixture.server, 1, 2);
    let second = Duration::from_secs(1);
    for _ in 0..3 {
        // Nothing but the time can lead it on.
        let before = fixture.connection.writes();
        for _ in 0..5 {
            fixture.late.lock().await.deliver_all();
            assert_eq!(reconcile(&*fixture.reconciler, &key()).await.unwrap(), Outcome::Again(second));
        }
        assert_eq!((fixture.state().as_str(), fixture.connection.writes() - before), ("RESETTING", 1));
        fixture.server.advance(second);
    }
    let status = fixture.region().status.unwrap();
    let warning = condition::get(&status.conditions, condition::WARNING).unwrap();
    assert!(warning.reason == "TimesTooShort" && warning.message.contains("resetTimeout (0 ms)"), "{warning:?}");
    let announced = fixture.server.announced();
    assert_eq!(announced.iter().filter(|announced| announced.notice.warning).count(), 1);
}

#[tokio::test]
async fn a_checkpoint_is_complete_when_every_pe_has_asked_since_it_should_go_on() {
    let fixture = Fixture::processing().await;
    fixture.server.advance(PERIOD);
    fixture.settle().await;
    fixture.report([1, 1], Progress::BlockingCheckpointDone { sequence: 1 }).await;
    assert_eq!(fixture.state(), "CHECKPOINT_PENDING");
    fixture.asks(0);
    fixture.report([1, 1], Progress::CheckpointDone { sequence: 1 }).await;
    // PE 1 may have heard nothing of it.
    fixture.server.advance(Duration::from_secs(12));
    assert_eq!(fixture.settle().await, Outcome::Again(Duration::from_secs(1)));
    assert_eq!(fixture.state(), "CHECKPOINT_PENDING");
    fixture.sent();
    fixture.asks(1);
    fixture.settle().await;
    let drained = r#"{"0":{"type":"drained","message":"seqId=1"}}"#;
    assert_eq!((fixture.state().as_str(), fixture.sent()), ("PROCESSING", both(1, drained)));
    // What it is told then is nothing that a region waits for.
    fixture.asks(0);
    fixture.asks(1);
    assert!(fixture.regions.answered.of(&key()).is_empty());
}

/// Sends as many documents as it is allowed to, one after the other.
#[derive(Clone)]
struct Slow {
    allowed: Arc<tokio::sync::Semaphore>,
    sent: Arc<Mutex<Vec<(String, String)>>>,
}

impl Messenger for Slow {
    async fn send(&self, address: IpAddr, message: &str) -> io::Result<()> {
        self.allowed.acquire().await.unwrap().forget();
        self.sent.lock().unwrap().push((address.to_string(), message.to_owned()));
        Ok(())
    }
}

/// The record of a region of both PEs, in their first launches.
fn record(sequence: u64, completed: u64, phase: &str, rest: &Value) -> Value {
    let mut of_phase = json!({"launches": {"1": [0, 1]}, "since": 0});
    of_phase.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
    json!({
        "sequence": sequence, "lastCompleted": completed, "attempts": 0, "attemptsBefore": 0,
        "phase": {phase: of_phase}, "measured": {},
    })
}

fn processing(sequence: u64) -> Value {
    record(sequence, sequence - 1, "processing", &json!({"told": "drained"}))
}

/// Both PEs are in a second region, too, and this is what the mirrors show.
async fn with_a_second_region(fixture: &Fixture, records: [Value; 2]) -> Key {
    let second = Key::new("n", "flow-cr1");
    let mut region = fixture.region();
    let spec = ConsistentRegionSpec { index: 1, ..region.spec.clone() };
    let owners = region.metadata.owner_references.take();
    region = ConsistentRegion::new("flow-cr1", spec);
    (region.metadata.namespace, region.metadata.owner_references) = (Some("n".to_owned()), owners);
    fixture.server.create(&region);
    for number in 0..2 {
        fixture.server.edit::<ProcessingElement>(&pe(number), |pe| pe.spec.consistent_regions = vec![0, 1]);
    }
    let [of_first, of_second] = records;
    fixture.stores(&key(), of_first).await;
    fixture.stores(&second, of_second).await;
    second
}

#[tokio::test]
async fn a_pe_of_two_regions_is_never_told_what_is_older() {
    let fixture = Fixture::processing().await;
    let second = with_a_second_region(&fixture, [processing(2), processing(2)]).await;
    let slow = Slow { allowed: Arc::new(tokio::sync::Semaphore::new(0)), sent: Arc::default() };
    let telling = Arc::new(Telling::through(slow.clone()));
    let launches: Launches = [(0, 1), (1, 1)].into_iter().collect();
    let tell = |region: &Key| {
        let (telling, regions, region, launches) =
            (Arc::clone(&telling), fixture.regions.clone(), region.clone(), launches.clone());
        tokio::spawn(async move { telling.tell(&regions, &region, "flow", &launches).await })
    };
    let rest = || async {
        for _ in 0..20 {
            tokio::task::yield_now().await;
        }
    };
    let of_first = tell(&key());
    rest().await;
    fixture.stores(&second, processing(3)).await;
    let of_second = tell(&second);
    rest().await;
    fixture.stores(&key(), processing(3)).await;
    slow.allowed.add_permits(100);
    of_first.await.unwrap();
    of_second.await.unwrap();
    let sent = slow.sent.lock().unwrap().clone();
    assert_eq!(sent.len(), 4);
    // All but the one that was under way were made when both had gone on.
    let (first, others) = sent.split_first().unwrap();
    assert_eq!(first.1.matches("seqId=1").count(), 2, "{first:?}");
    for later in others {
        assert_eq!(later.1.matches("seqId=2").count(), 2, "{later:?}");
    }
}

#[tokio::test]
async fn a_pe_that_has_to_ask_is_not_kept_from_it() {
    let fixture = Fixture::processing().await;
    let pending = json!({"resumed": 0, "reports": {"done": [0, 1], "blocking": []}, "complete": 0});
    let second = with_a_second_region(&fixture, [processing(2), record(3, 1, "checkpointPending", &pending)]).await;
    let telling = Telling::through(fixture.recorder.clone());
    let launches: Launches = [(0, 1), (1, 1)].into_iter().collect();
    fixture.asks(0);
    telling.tell(&fixture.regions, &key(), "flow", &launches).await;
    let to: Vec<String> = fixture.sent().into_iter().map(|(to, _)| to).collect();
    assert_eq!(to, ["10.0.1.0"], "a PE that hears something does not ask");
    fixture.asks(1);
    telling.tell(&fixture.regions, &key(), "flow", &launches).await;
    assert_eq!((fixture.sent().len(), fixture.regions.answered.of(&second).len()), (2, 2));
}

#[tokio::test]
async fn a_spec_that_somebody_else_has_changed_is_no_reason_for_a_step() {
    let fixture = Fixture::processing().await;
    // What the job controller writes, and restores.
    let wanted = fixture.region().spec;
    let restore = || {
        fixture.server.edit::<ConsistentRegion>(&key(), |region| {
            let hash = (names::ANNOTATION_START_HASH.to_owned(), wanted.start_hash());
            region.metadata.annotations.get_or_insert_default().extend([hash]);
            region.spec = wanted.clone();
        });
    };
    restore();
    let changes: [fn(&mut ConsistentRegionSpec); 3] =
        [|spec| spec.pe_ids = vec![0], |spec| spec.pe_ids.clear(), |spec| spec.period_milliseconds = Some(0)];
    for change in changes {
        fixture.server.edit::<ConsistentRegion>(&key(), |region| change(&mut region.spec));
        fixture.settle().await;
        assert_eq!((fixture.state().as_str(), fixture.said().1.as_str()), ("PROCESSING", "ChangedByOthers"));
        restore();
        fixture.settle().await;
        assert_eq!((fixture.state().as_str(), fixture.said().1.as_str()), ("PROCESSING", "Processing"));
        assert_eq!((fixture.sent(), fixture.server.announced().len()), (vec![], 0));
    }
    // What PEs report meanwhile counts when it is restored.
    fixture.server.advance(PERIOD);
    fixture.settle().await;
    assert_eq!((fixture.state().as_str(), fixture.sent()), ("DRAINING", both(1, DRAIN)));
    fixture.server.edit::<ConsistentRegion>(&key(), |region| region.spec.pe_ids = vec![0]);
    let reports = [0, 1].map(|pe| {
        let event = Event::Report(Member { pe, launch: 1 }, Progress::CheckpointDone { sequence: 1 });
        let reports = fixture.regions.reports.clone();
        tokio::spawn(async move { reports.report(reports.heard(&key()), pe, event).await })
    });
    while fixture.regions.reports.waiting(&key()) < 2 {
        tokio::task::yield_now().await;
    }
    fixture.settle().await;
    assert_eq!((fixture.state().as_str(), fixture.regions.reports.waiting(&key())), ("DRAINING", 2));
    restore();
    fixture.settle().await;
    for report in reports {
        assert_eq!(report.await.unwrap(), Ok(()));
    }
    assert_eq!((fixture.state().as_str(), fixture.sent()), ("PROCESSING", both(1, RESUME)));
}
