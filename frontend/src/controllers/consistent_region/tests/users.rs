//! What users and others do to a region.

use super::{DRAIN, Fixture, PERIOD, RESUME, both, key, pe, start};
use crate::start_hash::Starts as _;
use serde_json::json;
use std::time::Duration;
use streams_api::{ConsistentRegion, ConsistentRegionSpec, ProcessingElement, ProcessingElementSpec, names};
use streams_consistent_region::{Event, Member, Progress};

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

#[tokio::test]
async fn a_pe_that_somebody_else_has_changed_is_in_its_region_as_before() {
    let changes: [fn(&mut ProcessingElementSpec); 5] = [
        |spec| spec.consistent_regions.clear(),
        |spec| spec.consistent_regions.push(1),
        |spec| spec.id = 7,
        |spec| spec.job_id = 7,
        |spec| spec.job_name = "another".to_owned(),
    ];
    for (number, change) in changes.into_iter().enumerate() {
        let fixture = Fixture::processing().await;
        // What the job controller writes, and restores.
        let wanted = fixture.server.get::<ProcessingElement>(&pe(1)).unwrap().spec;
        let restore = || {
            fixture.server.edit::<ProcessingElement>(&pe(1), |pe| {
                let hash = (names::ANNOTATION_START_HASH.to_owned(), wanted.start_hash());
                pe.metadata.annotations.get_or_insert_default().extend([hash]);
                pe.spec = wanted.clone();
            });
        };
        restore();
        fixture.settle().await;
        fixture.server.edit::<ProcessingElement>(&pe(1), |pe| change(&mut pe.spec));
        fixture.settle().await;
        assert_eq!((fixture.state().as_str(), fixture.sent()), ("PROCESSING", vec![]), "{number}");
        // It is told, and heard, meanwhile.
        fixture.server.advance(PERIOD);
        fixture.settle().await;
        assert_eq!((fixture.state().as_str(), fixture.sent()), ("DRAINING", both(1, DRAIN)), "{number}");
        restore();
        fixture.settle().await;
        assert_eq!((fixture.state().as_str(), fixture.sent()), ("DRAINING", vec![]), "{number}");
        // What becomes of its pod is news nevertheless.
        fixture.server.edit::<ProcessingElement>(&pe(1), |pe| change(&mut pe.spec));
        fixture.server.edit::<ProcessingElement>(&pe(1), |pe| pe.status.as_mut().unwrap().launch_count = 2);
        fixture.settle().await;
        assert_eq!(fixture.state(), "UNHEALTHY", "{number}");
    }
}
