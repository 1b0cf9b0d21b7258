//! Records that are lost, regions that are made again, and jobs that let go of their objects.

use super::{DRAIN, Fixture, PERIOD, RESUME, both, key, pe, processing, says, start};
use crate::consistent_regions::reports::NotTaken;
use serde_json::json;
use std::time::Duration;
use streams_api::{ConsistentRegion, Job, ProcessingElement, condition};
use streams_consistent_region::{Event, Member, Progress};
use streams_kubernetes::Key;

#[tokio::test]
async fn what_belongs_to_others_does_not_count() {
    let fixture = Fixture::processing().await;
    // A PE of the name, of another job.
    fixture.server.edit::<ProcessingElement>(&pe(1), |pe| {
        pe.metadata.owner_references.as_mut().unwrap()[0].uid = "another".to_owned();
    });
    fixture.settle().await;
    assert_eq!((fixture.state().as_str(), fixture.said().2), ("UNHEALTHY", "there is no PE 1".to_owned()));
    // One that an earlier job of the name has left behind.
    fixture.server.edit::<ProcessingElement>(&pe(1), |pe| {
        (pe.metadata.owner_references, pe.spec.job_id) = (None, 7);
    });
    fixture.settle().await;
    assert_eq!((fixture.state().as_str(), fixture.said().2), ("UNHEALTHY", "there is no PE 1".to_owned()));
}

#[tokio::test]
async fn a_record_that_cannot_be_read_is_told_and_left_alone() {
    let fixture = Fixture::processing().await;
    let spoilt = json!({"sequence": "many"});
    fixture.server.edit::<ConsistentRegion>(&key(), |region| {
        region.status.as_mut().unwrap().record = Some(spoilt.clone());
    });
    fixture.settle().await;
    fixture.server.advance(PERIOD * 2);
    fixture.settle().await;
    assert_eq!(
        (fixture.said().1.as_str(), fixture.region().status.unwrap().record),
        ("RecordUnreadable", Some(spoilt))
    );
    assert_eq!(fixture.sent(), []);
    // What PEs report is not stored, and not answered as if it were.
    let event = Event::Report(Member { pe: 0, launch: 1 }, Progress::CheckpointDone { sequence: 1 });
    let reports = fixture.regions.reports.clone();
    let report = tokio::spawn(async move { reports.report(reports.heard(&key()), 0, event).await });
    while fixture.regions.reports.waiting(&key()) < 1 {
        tokio::task::yield_now().await;
    }
    fixture.settle().await;
    assert_eq!((fixture.regions.reports.waiting(&key()), report.is_finished()), (1, false));
    report.abort();
}

#[tokio::test]
async fn a_region_that_is_made_again_while_its_pes_run_is_reset_under_numbers_that_they_have_not_heard() {
    for trigger in ["periodic", "operatorDriven"] {
        let fixture = Fixture::new(json!({"trigger": trigger, "triggerOperators": ["o"]}));
        for number in 0..2 {
            start(&fixture.server, number, 1);
        }
        fixture.settle().await;
        let ConsistentRegion { metadata, spec, .. } = fixture.region();
        fixture.server.remove::<ConsistentRegion>(&key());
        fixture.settle().await;
        fixture.server.advance(Duration::from_secs(1));
        let mut again = ConsistentRegion::new("flow-cr0", spec);
        again.metadata.namespace = metadata.namespace;
        again.metadata.owner_references = metadata.owner_references;
        fixture.server.create(&again);
        fixture.settle().await;
        assert_eq!(fixture.state(), "RESETTING", "{trigger}");
        let told = fixture.sent();
        let attempt = told[0].1.split("seqId=0;resetAttempt=").nth(1).unwrap().trim_end_matches(['"', '}']);
        let attempt: u32 = attempt.parse().unwrap();
        assert!(told.len() == 2 && attempt > 100_000_000, "{told:?}");
        fixture.report([1, 1], Progress::ResetDone { sequence: 0, attempt }).await;
        let sequence = fixture.region().status.unwrap().record.unwrap()["sequence"].as_u64().unwrap();
        assert!(fixture.state() == "PROCESSING" && sequence > 1_000_000_000_000, "{sequence}");
    }
}

/// PEs would take numbers that they have heard for old news, and overwrite checkpoints of the same numbers.
#[tokio::test]
async fn a_record_that_somebody_has_taken_away_or_replaced_by_an_earlier_one_is_lost() {
    let changes: [fn(&mut ConsistentRegion); 3] = [
        |region| region.status.as_mut().unwrap().record = None,
        |region| region.status = None,
        |region| region.status.as_mut().unwrap().record = Some(processing(1)),
    ];
    for (number, change) in changes.into_iter().enumerate() {
        for are_healthy in [true, false] {
            let fixture = Fixture::processing().await;
            fixture.server.advance(PERIOD);
            fixture.settle().await;
            fixture.report([1, 1], Progress::CheckpointDone { sequence: 1 }).await;
            assert_eq!((fixture.state().as_str(), fixture.sent().len()), ("PROCESSING", 4));
            if !are_healthy {
                says(&fixture.server, 1, "Partial");
            }
            fixture.server.edit::<ConsistentRegion>(&key(), change);
            fixture.settle().await;
            let (state, told) = if are_healthy { ("RESETTING", 2) } else { ("STARTED", 0) };
            assert_eq!((fixture.state().as_str(), fixture.sent().len()), (state, told), "{number}");
            says(&fixture.server, 1, "Full");
            fixture.settle().await;
            assert_eq!(fixture.state(), "RESETTING", "{number} {are_healthy}");
            let record = fixture.region().status.unwrap().record.unwrap();
            let numbers = ["sequence", "attemptsTold"].map(|name| record[name].as_u64().unwrap());
            assert!(numbers[0] > 1_000_000_000_000 && numbers[1] > 100_000_000, "{number}: {record}");
        }
    }
}

#[tokio::test]
async fn a_region_that_its_job_has_left_behind_goes_on_with_the_pes_that_were_too() {
    let fixture = Fixture::processing().await;
    fixture.server.advance(PERIOD);
    fixture.settle().await;
    assert_eq!((fixture.state().as_str(), fixture.sent()), ("DRAINING", both(1, DRAIN)));
    {
        let mut late = fixture.late.lock().await;
        for number in 0..2 {
            fixture.server.edit::<ProcessingElement>(&pe(number), |pe| pe.metadata.owner_references = None);
        }
        fixture.server.edit::<ConsistentRegion>(&key(), |region| region.metadata.owner_references = None);
        fixture.server.remove::<Job>(&Key::new("n", "flow"));
        late.deliver_all();
    }
    fixture.report([1, 1], Progress::CheckpointDone { sequence: 1 }).await;
    assert_eq!((fixture.state().as_str(), fixture.sent()), ("PROCESSING", both(1, RESUME)));
    let conditions = fixture.region().status.unwrap().conditions;
    assert!(condition::is_true(&conditions, condition::ORPHANED) && condition::is_true(&conditions, condition::READY));
}

/// Kubernetes takes the references out of one object after the other, in any order.
#[tokio::test]
async fn a_job_that_lets_go_of_its_objects_one_by_one_resets_no_region() {
    // PEs 0 and 1; 2 is the region
    for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
        let fixture = Fixture::processing().await;
        fixture.server.advance(PERIOD);
        fixture.settle().await;
        assert_eq!((fixture.state().as_str(), fixture.sent()), ("DRAINING", both(1, DRAIN)));
        for object in order {
            if object == 2 {
                fixture.server.edit::<ConsistentRegion>(&key(), |region| region.metadata.owner_references = None);
            } else {
                fixture.server.edit::<ProcessingElement>(&pe(object), |pe| pe.metadata.owner_references = None);
            }
            fixture.settle().await;
            assert_eq!((fixture.state().as_str(), fixture.sent()), ("DRAINING", vec![]), "{object} of {order:?}");
            let told = [0, 1].map(|number| fixture.told(number));
            assert_eq!(told, [DRAIN, DRAIN], "{object} of {order:?}");
        }
        fixture.server.remove::<Job>(&Key::new("n", "flow"));
        fixture.report([1, 1], Progress::CheckpointDone { sequence: 1 }).await;
        assert_eq!((fixture.state().as_str(), fixture.sent()), ("PROCESSING", both(1, RESUME)), "{order:?}");
    }
}

#[tokio::test]
async fn nothing_is_kept_of_a_region_that_is_gone() {
    let fixture = Fixture::processing().await;
    fixture.server.remove::<ConsistentRegion>(&key());
    let waiting = fixture.regions.reports.clone();
    let event = Event::Reset { by: None, is_forced: false };
    let waiting = tokio::spawn(async move { waiting.report(waiting.heard(&key()), 0, event).await });
    while fixture.regions.reports.waiting(&key()) < 1 {
        tokio::task::yield_now().await;
    }
    fixture.settle().await;
    assert_eq!(waiting.await.unwrap(), Err(NotTaken::Gone));
    assert_eq!((fixture.reconciler.memory.len(), fixture.regions.reports.len()), (0, 0));
    assert!(!fixture.metrics.text().unwrap().contains("flow-cr0"));
    for number in 0..2 {
        fixture.server.remove::<ProcessingElement>(&pe(number));
    }
    fixture.settle().await;
    assert!((0..2).all(|number| fixture.regions.members.get(&pe(number)).is_none()));
    assert_eq!(fixture.regions.answered.len(), 0);
}
