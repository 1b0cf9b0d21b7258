//! Regions over a fake API server: what is stored, and what PEs are told, when something happens.

mod lost_and_left;
mod lost_reports;
mod missing;
mod overlapping;
mod reports;
mod silence;
mod steps;
mod suspended;
mod taking_over;
mod users;

use super::{ConsistentRegionReconciler, RegionFigures};
use crate::consistent_regions::ConsistentRegions;
use crate::controllers::consistent_region_service::{ConsistentRegionServiceReconciler, Led};
use crate::controllers::messenger::Messenger;
use crate::controllers::reconciler::reconcile;
use crate::controllers::tests::LateMirrors;
use crate::mirrors::Mirrors;
use k8s_openapi::api::core::v1::{Pod, Service};
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use streams_api::{ConsistentRegion, Job, ProcessingElement, condition, names};
use streams_consistent_region::{Event, Member, Progress};
use streams_kubernetes::Key;
use streams_kubernetes::leadership::Term;
use streams_kubernetes::metrics::Metrics;
use streams_kubernetes::queue::{BackOff, Outcome, Queue, Sharing};
use streams_kubernetes_fake::{Connection, Server};
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
        self.sent.lock().push((address.to_string(), message.to_owned()));
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

/// The PE says this of its connections in its first launch.
fn says(server: &Server, number: u64, state: &str) {
    server.edit::<ProcessingElement>(&pe(number), |pe| {
        let status = pe.status.get_or_insert_default();
        status.connectivity = Some(serde_json::from_value(json!({"state": state, "launchCount": 1})).unwrap());
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
        let services = Queue::new("test", BackOff::default(), Sharing::none(), &metrics);
        let led = Led::among(&regions.mirrors, services);
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
        std::mem::take(&mut *self.recorder.sent.lock())
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

/// Sends as many documents as it is allowed to, one after the other.
#[derive(Clone)]
struct Slow {
    allowed: Arc<tokio::sync::Semaphore>,
    sent: Arc<Mutex<Vec<(String, String)>>>,
}

impl Messenger for Slow {
    async fn send(&self, address: IpAddr, message: &str) -> io::Result<()> {
        self.allowed.acquire().await.unwrap().forget();
        self.sent.lock().push((address.to_string(), message.to_owned()));
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
