//! Reports that this replica has heard and lost (rule consistent-region-14).

use super::taking_over::{handed_over, said};
use super::{DRAIN, Fixture, PERIOD, RESET, both, key, start};
use serde_json::json;
use std::time::Duration;
use streams_consistent_region::{Event, Member, Progress};
use streams_kubernetes::metrics::Metrics;
use streams_kubernetes::queue::{BackOff, Queue, Sharing};

impl Fixture {
    /// A report of the region begins to come, and nobody stores it.
    fn loses_a_report(&self) {
        drop(self.regions.reports.heard(&key()));
    }

    /// What the next leader would hear.
    fn last_words(&self) -> String {
        self.regions.last_words().unwrap()
    }
}

/// An operator drains the region.
async fn drained_by_operator() -> Fixture {
    let fixture = Fixture::new(json!({"trigger": "operatorDriven", "triggerOperators": ["o"]}));
    for number in 0..2 {
        start(&fixture.server, number, 1);
    }
    fixture.settle().await;
    let reports = fixture.regions.reports.clone();
    let event = Event::Drain { by: Member { pe: 0, launch: 1 }, operator: "o".to_owned(), sequence: 1 };
    let drained = tokio::spawn(async move { reports.report(reports.heard(&key()), 0, event).await });
    while fixture.regions.reports.waiting(&key()) < 1 {
        tokio::task::yield_now().await;
    }
    fixture.settle().await;
    assert_eq!((drained.await.unwrap(), fixture.state().as_str()), (Ok(()), "DRAINING"));
    fixture
}

#[tokio::test]
async fn who_takes_over_resets_a_region_of_which_it_has_itself_lost_a_report() {
    for (trigger, before) in [("periodic", "DRAINING"), ("operatorDriven", "PROCESSING")] {
        let fixture = handed_over(trigger, "10.96.0.7").await;
        assert_eq!(fixture.state(), before);
        fixture.loses_a_report();
        fixture.regions.term.hear(said("", 60));
        fixture.settle().await;
        assert_eq!((fixture.state().as_str(), fixture.sent()), ("RESETTING", both(1, RESET)), "{trigger}");
        assert_eq!(fixture.last_words(), "", "it is made up for");
    }
}

#[tokio::test]
async fn what_a_replica_has_lost_before_it_led_resets_no_region_when_it_leads() {
    for (trigger, state, told) in [("periodic", "DRAINING", both(1, DRAIN)), ("operatorDriven", "PROCESSING", vec![])] {
        let fixture = handed_over(trigger, "10.96.0.7").await;
        fixture.regions.reports.close();
        fixture.loses_a_report();
        let queue = Queue::new("test", BackOff::default(), Sharing::none(), &Metrics::new("test"));
        fixture.regions.reports.open(queue, [key()]);
        fixture.regions.term.hear(said("", 60));
        fixture.settle().await;
        assert_eq!((fixture.state().as_str(), fixture.sent()), (state, told), "{trigger}");
        assert_eq!(fixture.last_words(), "", "{trigger}");
    }
}

#[tokio::test]
async fn what_is_lost_counts_until_the_region_has_made_up_for_it() {
    // A region that processes tuples, and drains when its period has passed, waits for no report before.
    let fixture = Fixture::processing().await;
    fixture.loses_a_report();
    fixture.server.advance(PERIOD);
    fixture.settle().await;
    assert_eq!((fixture.state().as_str(), fixture.last_words().as_str()), ("DRAINING", ""));
    // Of a drain that has begun the report may be missing, until its time is up.
    fixture.loses_a_report();
    fixture.settle().await;
    assert_eq!(fixture.last_words(), "n/flow-cr0");
    fixture.server.advance(Duration::from_secs(60));
    fixture.settle().await;
    assert_eq!((fixture.state().as_str(), fixture.last_words().as_str()), ("RESETTING", ""));

    // A report may come after all, or another one may have been lost: all have reported.
    let fixture = drained_by_operator().await;
    fixture.loses_a_report();
    fixture.report([1, 1], Progress::BlockingCheckpointDone { sequence: 1 }).await;
    assert_eq!((fixture.state().as_str(), fixture.last_words().as_str()), ("CHECKPOINT_PENDING", "n/flow-cr0"));
    fixture.report([1, 1], Progress::CheckpointDone { sequence: 1 }).await;
    assert_eq!((fixture.state().as_str(), fixture.last_words().as_str()), ("CHECKPOINT_PENDING", ""));
    let fixture = drained_by_operator().await;
    fixture.loses_a_report();
    fixture.report([1, 1], Progress::CheckpointDone { sequence: 1 }).await;
    assert_eq!((fixture.state().as_str(), fixture.last_words().as_str()), ("PROCESSING", ""));
    // An operator may drain the region from now on.
    fixture.loses_a_report();
    fixture.settle().await;
    assert_eq!((fixture.state().as_str(), fixture.last_words().as_str()), ("PROCESSING", "n/flow-cr0"));
}

#[tokio::test]
async fn what_is_lost_while_a_step_is_stored_is_not_made_up_for_by_it() {
    let fixture = Fixture::processing().await;
    fixture.server.advance(PERIOD);
    let reports = fixture.regions.reports.clone();
    fixture.server.refuse(move |call| {
        if call.verb.is_write() {
            drop(reports.heard(&key()));
        }
        None
    });
    fixture.settle().await;
    assert_eq!((fixture.state().as_str(), fixture.last_words().as_str()), ("DRAINING", "n/flow-cr0"));
}
