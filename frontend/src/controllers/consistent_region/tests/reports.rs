//! Reports of PEs are kept until they are stored, and do not wait for one another.

use super::{Fixture, PERIOD, key};
use crate::consistent_regions::reports::{NotTaken, TOGETHER};
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;
use streams_consistent_region::{Event, Member, Progress};

#[tokio::test]
async fn reports_are_kept_until_they_are_stored_and_refused_where_nobody_drives() {
    let fixture = Fixture::processing().await;
    fixture.server.advance(PERIOD);
    fixture.settle().await;
    // Somebody else has written the region meanwhile.
    let conflicts = Arc::new(Mutex::new(2));
    fixture.server.refuse(move |call| {
        let mut left = conflicts.lock();
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
