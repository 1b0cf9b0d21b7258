//! What PEs are told by consistent regions, and what they report.

use super::objects::{jobs, leave_behind, metadata};
use super::{Cluster, Exchange, NEIGHBOUR, PE, STRANGER, TOOL, get, send};
use axum::body::{Body, Bytes};
use axum::extract::ConnectInfo;
use axum::http::{Method, Request};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time as KubernetesTime;
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use streams_api::{ConsistentRegion, Job, ProcessingElement, names};
use streams_consistent_region::{Event, Member, Progress};
use streams_kubernetes::Key;
use streams_kubernetes::metrics::Metrics;
use streams_kubernetes::queue::{BackOff, Queue, Sharing};
use streams_kubernetes_fake::Server;
use tower::ServiceExt as _;

const OF_PE: &str = "/api/consistentregion/pe/1";
const DOCUMENT: &str = r#"{"0":{"type":"resumeSubmission","message":"seqId=3;retId=1;pendCkpt=0"}}"#;

/// Job `srcjob` has region 0, with both of its PEs, which were told to go on.
pub(super) fn region(server: &Server, trigger: &str) {
    jobs(server);
    for pe in ["srcjob-0", "srcjob-1"] {
        server.edit::<ProcessingElement>(&Key::new("n", pe), |pe| pe.spec.consistent_regions = vec![0]);
    }
    let mut region = new_region(server, 1, trigger);
    let status = json!({"record": {
        "sequence": 3, "lastCompleted": 2, "retired": 1,
        "phase": {"processing": {"launches": {"2": [0, 1]}, "told": "resumed", "since": 39_000}},
    }});
    region.status = serde_json::from_value(status).unwrap();
    server.create(&region);
}

/// Region 0 of the present job `srcjob`, of which nothing is stored. The job has this number.
pub(super) fn new_region(server: &Server, job_id: u64, trigger: &str) -> ConsistentRegion {
    serde_json::from_value(json!({
        "apiVersion": "streams.ibm.com/v1", "kind": "ConsistentRegion",
        "metadata": metadata(server, "Job", "srcjob-cr0", "srcjob"),
        "spec": {
            "jobName": "srcjob", "jobId": job_id, "index": 0, "logicalIndex": 0, "trigger": trigger,
            "periodMilliseconds": 1_500, "drainTimeoutMilliseconds": 180_000, "resetTimeoutMilliseconds": 90_000,
            "maxConsecutiveResetAttempts": 5, "peIds": [0, 1], "operatorCount": 2, "startOperatorCount": 1,
        },
    }))
    .unwrap()
}

fn cluster() -> Cluster {
    Cluster::with(|server| region(server, "periodic"))
}

/// Both PEs have been told to go on, and the checkpoint is complete when they have seen it.
fn pending() -> Value {
    json!({"checkpointPending": {
        "launches": {"2": [0, 1]}, "since": 0, "resumed": 0, "complete": 0,
        "reports": {"done": [0, 1], "blocking": []},
    }})
}

/// Answers reports as if they were stored, and keeps them.
pub(super) fn stored(cluster: &Cluster) -> Arc<Mutex<Vec<Event>>> {
    let events = Arc::new(Mutex::new(Vec::new()));
    let queue = Queue::new("test", BackOff::default(), Sharing::none(), &Metrics::new("test"));
    let (reports, seen) = (cluster.regions.reports.clone(), Arc::clone(&events));
    reports.open(queue.clone(), []);
    tokio::spawn(async move {
        while let Some(taken) = queue.next().await {
            for report in reports.take(taken.key()) {
                seen.lock().push(report.event.clone());
                report.answer();
            }
        }
    });
    events
}

#[tokio::test]
async fn a_pe_gets_what_its_regions_say_in_its_launch() {
    let mut cluster = cluster();
    cluster.expect(get(OF_PE), 503, "another replica").await;
    stored(&cluster);
    let exact = cluster.answer(get(OF_PE)).await;
    assert_eq!((exact.0.as_u16(), exact.1.as_str()), (200, DOCUMENT));
    let one = r#"{"type":"resumeSubmission","message":"seqId=3;retId=1;pendCkpt=0"}"#;
    cluster.expect(get("/api/consistentregion/pe/1/region/0"), 200, one).await;
    for absent in ["pe/7", "pe/x", "pe/1/region/3", "pe/1/region/x", "region/3/state"] {
        cluster.expect(get(&format!("/api/consistentregion/{absent}")), 404, "").await;
    }
    // The job is that of the caller, unless the name of the Service says another one.
    cluster.expect(Exchange { from: STRANGER, ..get(OF_PE) }, 404, "job dstjob has no PE 1").await;
    cluster.expect(Exchange { from: TOOL, ..get(OF_PE) }, 403, "which job").await;
    // A pod of another launch than the region is driven with.
    cluster.server.edit::<ConsistentRegion>(&Key::new("n", "srcjob-cr0"), |region| {
        let record = region.status.as_mut().unwrap().record.as_mut().unwrap();
        record["phase"]["processing"]["launches"] = json!({"1": [1], "2": [0]});
    });
    cluster.mirrors.deliver_all();
    cluster.expect(get(OF_PE), 404, "has anything to say").await;
}

#[tokio::test]
async fn what_an_application_says_about_a_region_can_be_read() {
    for (trigger, text) in [("periodic", "periodic"), ("operatorDriven", "operator driven")] {
        let mut cluster = Cluster::with(|server| region(server, trigger));
        let table = [
            ("state", "\"PROCESSING\""),
            ("lastcompletedseqid", "2"),
            ("period", "1.5"),
            ("draintimeout", "180.0"),
            ("resettimeout", "90.0"),
            ("maxconsecutiveresetattempts", "5"),
            ("trigger", text),
        ];
        for (what, expected) in table {
            let answer = cluster.answer(get(&format!("/api/consistentregion/region/0/{what}"))).await;
            assert_eq!((answer.0.as_u16(), answer.1.as_str()), (200, expected), "{what}");
        }
    }
}

#[tokio::test]
async fn reports_are_answered_when_they_are_stored() {
    let mut cluster = Cluster::with(|server| {
        region(server, "operatorDriven");
        server.edit::<ConsistentRegion>(&Key::new("n", "srcjob-cr0"), |region| {
            region.spec.trigger_operators = vec!["A.B".to_owned()];
        });
    });
    let events = stored(&cluster);
    let by = Member { pe: 1, launch: 2 };
    let report = |progress| Event::Report(by, progress);
    // path, body -> event
    let table = [
        ("pe/1/checkpoint", "3", report(Progress::CheckpointDone { sequence: 3 })),
        ("pe/1/blockingcheckpoint", "3", report(Progress::BlockingCheckpointDone { sequence: 3 })),
        (
            "pe/1/reset",
            r#"{"progress":{"seqId":"2","resetAttempt":"1"}}"#,
            report(Progress::ResetDone { sequence: 2, attempt: 1 }),
        ),
        (
            "drain",
            r#"{"request":{"seqId":"3","operator":"A.B"}}"#,
            Event::Drain { by, operator: "A.B".to_owned(), sequence: 3 },
        ),
        ("reset", r#"{"request":{"operator":"A.B","force":"false"}}"#, Event::Reset { by: Some(by), is_forced: false }),
        ("reset", r#"{"request":{"operator":"A.B","force":"true"}}"#, Event::Reset { by: Some(by), is_forced: true }),
    ];
    for (path, body, event) in table {
        cluster.expect(send(Method::PUT, &format!("/api/consistentregion/region/0/{path}"), body), 204, "").await;
        assert_eq!(std::mem::take(&mut *events.lock()), [event], "{path}");
    }
    let long = format!(r#"{{"request":{{"seqId":"3","operator":"{}"}}}}"#, "o".repeat(1_025));
    let malformed = [
        ("pe/1/checkpoint", "x"),
        ("pe/1/checkpoint", "-1"),
        ("pe/1/checkpoint", ""),
        ("pe/1/reset", r#"{"progress":{"seqId":"2"}}"#),
        ("pe/1/reset", r#"{"progress":{"seqId":"2","resetAttempt":"x"}}"#),
        ("drain", "3"),
        ("drain", &long),
        ("reset", r#"{"request":{"operator":"o","force":"perhaps"}}"#),
    ];
    for (path, body) in malformed {
        cluster.expect(send(Method::PUT, &format!("/api/consistentregion/region/0/{path}"), body), 400, "").await;
    }
    for absent in ["region/1/pe/1/checkpoint", "region/x/pe/1/checkpoint", "region/0/pe/x/checkpoint"] {
        cluster.expect(send(Method::PUT, &format!("/api/consistentregion/{absent}"), "3"), 404, "").await;
    }
    assert!(events.lock().is_empty() && cluster.regions.reports.gaps().is_empty());
}

/// The runtime says of each operator with which a region starts that it has begun to drain, at each drain.
#[tokio::test(start_paused = true)]
async fn who_drains_and_may_not_ask_for_it_is_answered_and_holds_up_no_report() {
    let drain = |operator: &str| json!({"request": {"seqId": "3", "operator": operator}}).to_string();
    // what asks for drains, the operator, whether somebody else has changed the region -> whether something may come
    // of it
    let table = [
        ("periodic", "A.B", false, false),
        ("operatorDriven", "A.B", false, true),
        ("operatorDriven", "A.C", false, false),
        ("operatorDriven", "A.C", true, true),
    ];
    for (trigger, operator, is_changed, counts) in table {
        let mut cluster = Cluster::with(|server| {
            region(server, trigger);
            server.edit::<ConsistentRegion>(&Key::new("n", "srcjob-cr0"), |region| {
                region.spec.trigger_operators = vec!["A.B".to_owned()];
                if is_changed {
                    let annotations = region.metadata.annotations.get_or_insert_default();
                    annotations.insert(names::ANNOTATION_START_HASH.to_owned(), "of what the job wants".to_owned());
                }
            });
        });
        let path = "/api/consistentregion/region/0/drain";
        let body = drain(operator);
        // Only who drives the region knows of it.
        cluster.expect(send(Method::PUT, path, &body), 503, "another replica").await;
        assert_eq!(cluster.regions.reports.gaps().len(), usize::from(counts), "{trigger} {operator} {is_changed}");
        let events = stored(&cluster);
        cluster.expect(send(Method::PUT, path, &body), 204, "").await;
        assert_eq!(events.lock().len(), usize::from(counts), "{trigger} {operator} {is_changed}");
        assert!(
            cluster.regions.answered.came_at(&Key::new("n", "srcjob-1"), 2).is_some(),
            "what it reports next comes here"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn only_a_pod_of_the_region_reports_and_only_for_itself() {
    let mut cluster = cluster();
    let events = stored(&cluster);
    let writes = [
        ("pe/1/checkpoint", "3"),
        ("pe/1/blockingcheckpoint", "3"),
        ("pe/1/reset", r#"{"progress":{"seqId":"2","resetAttempt":"1"}}"#),
        ("drain", r#"{"request":{"seqId":"3","operator":"A.B"}}"#),
        ("reset", r#"{"request":{"operator":"A.B","force":"true"}}"#),
    ];
    for (path, body) in writes {
        let path = format!("/api/consistentregion/region/0/{path}");
        // A neighbour of the job may ask for a reset, and says nothing of PE 1; a tool must say which job it means.
        let of_pe = path.contains("/pe/");
        let (from, status) = if of_pe { (NEIGHBOUR, 403) } else { (TOOL, 403) };
        cluster.expect(Exchange { from, ..send(Method::PUT, &path, body) }, status, "").await;
        cluster
            .expect(Exchange { from: STRANGER, ..send(Method::PUT, &path, body) }, 404, "no consistent region")
            .await;
    }
    assert!(events.lock().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_report_that_is_not_stored_is_not_heard() {
    let mut cluster = cluster();
    let path = "/api/consistentregion/region/0/pe/1/checkpoint";
    let since = tokio::time::Instant::now();
    let comes = |cluster: &Cluster| cluster.regions.answered.came_at(&Key::new("n", "srcjob-1"), 2).is_some();
    cluster.expect(send(Method::PUT, path, "3"), 503, "another replica").await;
    assert!(since.elapsed() >= Duration::from_millis(1_500), "the runtime has given up before");
    assert!(!comes(&cluster), "nothing counts that comes where nobody drives");
    let queue = Queue::new("test", BackOff::default(), Sharing::none(), &Metrics::new("test"));
    cluster.regions.reports.open(queue, []);
    cluster.expect(Exchange { from: PE, ..send(Method::PUT, path, "3") }, 503, "too long").await;
    assert!(comes(&cluster), "what it reports comes here");
}

/// The next leader hears of it.
#[tokio::test(start_paused = true)]
async fn a_report_that_its_pe_gives_up_before_all_has_come_is_not_forgotten() {
    // who reports, seconds after which it gives up, if it does -> whether something may be lost after 2 s
    let table = [(PE, Some(1), true), (PE, None, true), (NEIGHBOUR, Some(1), true), (TOOL, Some(1), false)];
    for (from, gives_up, expected) in table {
        let cluster = cluster();
        stored(&cluster);
        let mut request = Request::put("/api/consistentregion/region/0/pe/1/checkpoint")
            .header("host", "streams-srcjob-consistentregion-api.n:10000")
            .body(Body::from_stream(futures::stream::pending::<Result<Bytes, std::io::Error>>()))
            .unwrap();
        let peer: SocketAddr = format!("{from}:40000").parse().unwrap();
        request.extensions_mut().insert(ConnectInfo(peer));
        let router = cluster.router.clone();
        let reporting = tokio::spawn(async move { router.oneshot(request).await });
        tokio::time::sleep(Duration::from_secs(gives_up.unwrap_or(2))).await;
        if gives_up.is_some() {
            reporting.abort();
            let _ = reporting.await;
        }
        assert_eq!(cluster.regions.reports.gaps().len(), usize::from(expected), "{from} {gives_up:?}");
    }
}

/// A cluster whose region waits for the end of a checkpoint, and that region.
fn with_a_pending_checkpoint() -> (Cluster, Key) {
    let mut cluster = cluster();
    stored(&cluster);
    let key = Key::new("n", "srcjob-cr0");
    cluster.server.edit::<ConsistentRegion>(&key, |region| {
        region.status.as_mut().unwrap().record.as_mut().unwrap()["phase"] = pending();
    });
    cluster.mirrors.deliver_all();
    (cluster, key)
}

#[tokio::test]
async fn only_what_the_pod_of_a_pe_has_asked_for_counts_as_an_answer() {
    let (mut cluster, key) = with_a_pending_checkpoint();
    cluster.expect(Exchange { from: NEIGHBOUR, ..get(OF_PE) }, 200, "pendCkpt=1").await;
    assert!(cluster.regions.answered.of(&key).is_empty());
    cluster.expect(get(OF_PE), 200, "pendCkpt=1").await;
    assert_eq!(cluster.regions.answered.of(&key).into_keys().collect::<Vec<_>>(), [1]);
}

#[tokio::test]
async fn only_the_document_of_all_regions_is_an_answer_by_which_a_pe_knows_what_to_do() {
    let (mut cluster, key) = with_a_pending_checkpoint();
    let of_region = "/api/consistentregion/pe/1/region/0";
    // method, path -> whether the PE counts as answered
    let table = [(Method::GET, of_region, false), (Method::HEAD, OF_PE, false), (Method::GET, OF_PE, true)];
    for (method, path, expected) in table {
        let said = format!("{method} {path}");
        cluster.expect(send(method, path, ""), 200, "").await;
        let answered = cluster.regions.answered.of(&key).contains_key(&1);
        let comes = cluster.regions.answered.came_at(&Key::new("n", "srcjob-1"), 2).is_some();
        assert_eq!((answered, comes), (expected, expected), "{said}");
    }
}

#[tokio::test]
async fn a_pe_that_asks_comes_here_though_its_regions_have_nothing_to_say() {
    let mut cluster = cluster();
    stored(&cluster);
    let (region, pe) = (Key::new("n", "srcjob-cr0"), Key::new("n", "srcjob-1"));
    cluster.server.edit::<ConsistentRegion>(&region, |region| {
        region.status.as_mut().unwrap().record.as_mut().unwrap()["phase"] = json!({"unhealthy": {}});
    });
    cluster.mirrors.deliver_all();
    cluster.expect(Exchange { from: NEIGHBOUR, ..get(OF_PE) }, 404, "has anything to say").await;
    assert!(cluster.regions.answered.came_at(&pe, 2).is_none(), "another pod has asked");
    cluster.expect(get(OF_PE), 404, "has anything to say").await;
    assert!(cluster.regions.answered.came_at(&pe, 2).is_some());
    cluster.server.remove::<ProcessingElement>(&pe);
    cluster.mirrors.deliver_all();
    assert_eq!(cluster.regions.answered.len(), 0, "nothing is kept of it");
}

/// Kubernetes takes the references to the job out of one object after the other, and waits with the end of the job.
#[tokio::test]
async fn reports_are_taken_while_a_job_is_being_deleted_without_its_children() {
    let region = Key::new("n", "srcjob-cr0");
    let reports = ["pe/1/checkpoint", "pe/0/checkpoint"];
    for region_goes_first in [true, false] {
        let mut cluster = cluster();
        let events = stored(&cluster);
        let now = cluster.server.now();
        cluster.server.edit::<Job>(&Key::new("n", "srcjob"), |job| {
            job.metadata.finalizers = Some(vec!["orphan".to_owned()]);
            job.metadata.deletion_timestamp = Some(KubernetesTime(now));
        });
        let free_region = |cluster: &Cluster| {
            cluster.server.edit::<ConsistentRegion>(&region, |region| region.metadata.owner_references = None);
        };
        if region_goes_first {
            free_region(&cluster);
        }
        for (step, left) in [None, Some("srcjob-0"), Some("srcjob-1")].into_iter().enumerate() {
            if let Some(pe) = left {
                cluster.server.edit::<ProcessingElement>(&Key::new("n", pe), |pe| pe.metadata.owner_references = None);
            }
            cluster.mirrors.deliver_all();
            cluster.expect(get(OF_PE), 200, DOCUMENT).await;
            cluster.expect(send(Method::PUT, "/api/state/job/srcjob/pe/1/connectivity", "\"Full\""), 204, "").await;
            for (path, from) in reports.into_iter().zip([PE, NEIGHBOUR]) {
                let path = format!("/api/consistentregion/region/0/{path}");
                cluster.expect(Exchange { from, ..send(Method::PUT, &path, "3") }, 204, "").await;
            }
            assert_eq!(std::mem::take(&mut *events.lock()).len(), 2, "{region_goes_first} {step}");
            // What the job itself is changed by is refused.
            cluster.expect(send(Method::PUT, "/api/state/job/srcjob/pr/R/width", "3"), 400, "no job").await;
        }
        free_region(&cluster);
        cluster.server.remove::<Job>(&Key::new("n", "srcjob"));
        cluster.mirrors.deliver_all();
        cluster.expect(get(OF_PE), 200, DOCUMENT).await;
    }
}

#[tokio::test]
async fn a_replica_that_drives_no_regions_says_nothing() {
    let mut cluster = cluster();
    stored(&cluster);
    cluster.expect(get(OF_PE), 200, "resumeSubmission").await;
    cluster.regions.term.over();
    cluster.expect(get(OF_PE), 503, "another replica").await;
}

#[tokio::test(start_paused = true)]
async fn a_region_that_its_job_has_left_behind_is_told_of_and_reports_are_not_given_up() {
    let mut cluster = cluster();
    let queue = Queue::new("test", BackOff::default(), Sharing::none(), &Metrics::new("test"));
    cluster.regions.reports.open(queue, []);
    leave_behind(&cluster.server);
    cluster.server.edit::<ConsistentRegion>(&Key::new("n", "srcjob-cr0"), |region| {
        region.metadata.owner_references = None;
    });
    cluster.mirrors.deliver_all();
    cluster.expect(get("/api/consistentregion/region/0/state"), 200, "PROCESSING").await;
    cluster.expect(get("/api/consistentregion/region/0/period"), 200, "1.5").await;
    cluster.expect(get("/api/consistentregion/region/1/period"), 400, "no job").await;
    cluster.expect(get(OF_PE), 200, DOCUMENT).await;
    // Nobody has led the region on in time, so nothing is stored.
    let since = tokio::time::Instant::now();
    let path = "/api/consistentregion/region/0/pe/1/checkpoint";
    cluster.expect(send(Method::PUT, path, "3"), 503, "too long").await;
    assert!(since.elapsed() >= Duration::from_millis(1_500), "the runtime has given up before");
}
