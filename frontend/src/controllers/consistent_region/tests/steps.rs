//! What becomes of a region when its PEs begin, go on, are launched again, or do not answer in time.

use super::{DRAIN, Fixture, PERIOD, RESET, RESUME, both, key, pe, start};
use crate::controllers::reconciler::reconcile;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use serde_json::json;
use std::time::Duration;
use streams_api::{ProcessingElement, condition};
use streams_consistent_region::{Event, Member, Progress};
use streams_kubernetes::Key;
use streams_kubernetes::queue::Outcome;
use streams_kubernetes_fake::Fault;

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

/// By a roll-out, for example, or with its node.
#[tokio::test]
async fn pods_that_are_deleted_again_and_again_use_up_no_attempts() {
    // how the pod of PE 1 goes -> the state after it was launched for the third time
    let table: [(fn(&mut Pod), &str); 2] = [
        (|pod| pod.metadata.deletion_timestamp = Some(Time(Timestamp::UNIX_EPOCH)), "RESETTING"),
        (|pod| pod.status.as_mut().unwrap().phase = Some("Failed".to_owned()), "MAXIMUM_RESET_ATTEMPTS_REACHED"),
    ];
    for (goes, expected) in table {
        let fixture = Fixture::processing().await;
        for launch in 1..=3 {
            let pod = Key::new("n", &format!("flow-1-{launch}"));
            fixture.server.edit::<Pod>(&pod, goes);
            fixture.settle().await;
            assert_eq!(fixture.state(), "UNHEALTHY", "{launch} {expected}");
            fixture.server.remove::<Pod>(&pod);
            fixture.settle().await;
            fixture.server.advance(Duration::from_secs(1));
            start(&fixture.server, 1, launch + 1);
            fixture.settle().await;
        }
        assert_eq!(fixture.state(), expected);
    }
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

#[tokio::test(start_paused = true)]
async fn a_checkpoint_is_complete_when_every_pe_has_asked_since_it_should_go_on() {
    let fixture = Fixture::processing().await;
    fixture.server.advance(PERIOD);
    fixture.settle().await;
    fixture.report([1, 1], Progress::BlockingCheckpointDone { sequence: 1 }).await;
    assert_eq!(fixture.state(), "CHECKPOINT_PENDING");
    tokio::time::advance(Duration::from_secs(5)).await;
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
