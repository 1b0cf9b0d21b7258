//! Leaders that come and go (rule consistent-region-14).

use super::{DRAIN, Fixture, PERIOD, RESET, RESUME, SECOND_RESET, Slow, both, key, processing, service, start};
use crate::controllers::consistent_region::telling::Telling;
use k8s_openapi::api::core::v1::Pod;
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use streams_consistent_region::{Event, Launches, Member, Progress};
use streams_kubernetes::Key;
use streams_kubernetes::leadership::{LastWords, Term};
use streams_kubernetes::queue::Outcome;
use tokio::time::Instant;

#[tokio::test]
async fn whoever_takes_over_waits_for_no_report_that_may_be_lost() {
    let fixture = Fixture::processing().await;
    let fixture = fixture.taken_over();
    // Nothing is lost of a region that processes tuples, and its time goes on.
    assert_eq!(fixture.settle().await, Outcome::Again(PERIOD));
    fixture.server.advance(PERIOD);
    fixture.settle().await;
    assert_eq!((fixture.state().as_str(), fixture.sent()), ("DRAINING", both(1, DRAIN)));
    let fixture = fixture.taken_over();
    assert_eq!(fixture.settle().await, Outcome::Again(Duration::from_secs(60)));
    assert_eq!((fixture.state().as_str(), fixture.sent()), ("RESETTING", both(1, RESET)));
    let fixture = fixture.taken_over();
    assert_eq!(fixture.settle().await, Outcome::Again(Duration::from_secs(60)));
    assert_eq!((fixture.state().as_str(), fixture.sent()), ("RESETTING", both(1, SECOND_RESET)));
}

#[tokio::test]
async fn whoever_takes_over_does_nothing_before_all_pes_are_led_here() {
    let second = Outcome::Again(Duration::from_secs(1));
    // whether the region drains, what it does when it is taken over after its period
    for (drains, expected) in [(true, ("RESETTING", both(1, RESET))), (false, ("DRAINING", both(1, DRAIN)))] {
        let fixture = Fixture::processing().await;
        if drains {
            fixture.server.advance(PERIOD);
            fixture.settle().await;
        }
        let before = fixture.state();
        let fixture = fixture.taken_over_without_pes();
        fixture.server.advance(PERIOD);
        for number in 0..2 {
            assert_eq!(fixture.settle().await, second, "PE {number} would report to the leader before");
            assert_eq!((fixture.state(), fixture.sent()), (before.clone(), vec![]));
            fixture.comes(number);
        }
        fixture.settle().await;
        assert_eq!((fixture.state().as_str(), fixture.sent()), expected);
    }
}

#[tokio::test]
async fn a_pe_that_was_launched_again_meanwhile_has_to_come_once_more() {
    let fixture = Fixture::processing().await.taken_over_without_pes();
    (0..2).for_each(|number| fixture.comes(number));
    fixture.server.remove::<Pod>(&Key::new("n", "flow-1-1"));
    start(&fixture.server, 1, 2);
    fixture.settle().await;
    assert_eq!((fixture.state().as_str(), fixture.sent()), ("PROCESSING", vec![]));
    fixture.comes(1);
    fixture.settle().await;
    assert_eq!((fixture.state().as_str(), fixture.sent().len()), ("RESETTING", 2));
}

#[tokio::test]
async fn a_pe_that_does_not_ask_does_not_hold_up_its_region_for_ever() {
    let fixture = Fixture::processing().await;
    fixture.server.advance(PERIOD);
    fixture.settle().await;
    let fixture = fixture.taken_over_without_pes();
    fixture.comes(0);
    for (seconds, expected) in [(0, "DRAINING"), (39, "DRAINING"), (1, "RESETTING")] {
        fixture.server.advance(Duration::from_secs(seconds));
        fixture.settle().await;
        assert_eq!(fixture.state(), expected, "{seconds}");
    }
}

#[tokio::test]
async fn pes_have_their_time_from_when_they_are_led_here() {
    // address of the Service -> seconds that PEs have
    for (address, seconds) in [("None", 40), ("10.96.0.7", 20)] {
        let fixture = Fixture::processing().await;
        service(&fixture.server, address);
        fixture.server.advance(PERIOD);
        fixture.settle().await;
        let fixture = fixture.taken_over_without_pes();
        fixture.settle().await;
        // It takes long until the slices are written. What PEs report meanwhile is lost, also of a reset.
        fixture.server.advance(Duration::from_secs(39));
        assert_eq!(fixture.settle().await, Outcome::Again(Duration::from_secs(1)));
        assert_eq!(fixture.said().1, "Processing");
        fixture.server.advance(Duration::from_secs(21));
        assert_eq!(fixture.settle().await, Outcome::Again(Duration::from_secs(1)));
        // Still true when the slices are written.
        let not_led = "it waits until its PEs come to this leader, and takes no step: for 40 s or more the \
                       EndpointSlices of Service streams-flow-consistentregion-api did not lead them here";
        let not_led = ("False".to_owned(), "NotLed".to_owned(), not_led.to_owned());
        assert_eq!((fixture.said(), fixture.state().as_str()), (not_led.clone(), "DRAINING"));
        fixture.leads().await;
        for (passed, expected) in [(0, "DRAINING"), (seconds - 1, "DRAINING"), (1, "RESETTING")] {
            fixture.server.advance(Duration::from_secs(passed));
            fixture.settle().await;
            assert_eq!(fixture.state(), expected, "{address} {passed}");
            assert_eq!(fixture.said() == not_led, expected == "DRAINING", "{address} {passed}");
        }
    }
}

/// A region that drains, or an operator-driven one that may have begun to, and the replica that takes it over, by a
/// Service with this address. All PEs have come there.
pub(super) async fn handed_over(trigger: &str, address: &str) -> Fixture {
    let fixture = Fixture::new(json!({"trigger": trigger, "triggerOperators": ["o"]}));
    for number in 0..2 {
        start(&fixture.server, number, 1);
    }
    fixture.settle().await;
    service(&fixture.server, address);
    fixture.server.advance(PERIOD);
    fixture.settle().await;
    let fixture = fixture.taken_over();
    fixture.leads().await;
    fixture
}

/// The leader before has said this, so many seconds from now.
pub(super) fn said(words: &str, seconds: u64) -> LastWords {
    LastWords::Said { words: words.into(), not_before: Instant::now() + Duration::from_secs(seconds) }
}

#[tokio::test]
async fn who_takes_over_what_has_lost_nothing_goes_on_where_it_is() {
    let by_address = "10.96.0.7";
    // what asks for checkpoints, address of the Service, what the leader before says -> the state, what PEs are told
    let table = [
        ("periodic", by_address, said("", 60), "DRAINING", both(1, DRAIN)),
        ("periodic", by_address, said("n/flow-cr1 m/flow-cr0", 60), "DRAINING", both(1, DRAIN)),
        ("periodic", by_address, said("n/flow-cr0", 60), "RESETTING", both(1, RESET)),
        ("periodic", by_address, LastWords::None, "RESETTING", both(1, RESET)),
        // They may have reported after the leader before had spoken, and before they came.
        ("periodic", by_address, said("", 0), "RESETTING", both(1, RESET)),
        // They look up where they report, and may find the leader before for a while.
        ("periodic", "None", said("", 60), "RESETTING", both(1, RESET)),
        ("operatorDriven", by_address, said("", 60), "PROCESSING", vec![]),
        ("operatorDriven", by_address, said("n/flow-cr0", 60), "RESETTING", both(1, RESET)),
        ("operatorDriven", by_address, LastWords::None, "RESETTING", both(1, RESET)),
    ];
    for (trigger, address, words, state, told) in table {
        let fixture = handed_over(trigger, address).await;
        fixture.regions.term.hear(words.clone());
        fixture.settle().await;
        assert_eq!((fixture.state().as_str(), fixture.sent()), (state, told), "{trigger} {address} {words:?}");
        assert_eq!(fixture.regions.last_words().as_deref(), Some(""), "whatever was lost is made up for");
        if state == "DRAINING" {
            fixture.report([1, 1], Progress::CheckpointDone { sequence: 1 }).await;
            assert_eq!((fixture.state().as_str(), fixture.sent()), ("PROCESSING", both(1, RESUME)));
        }
    }
}

#[tokio::test]
async fn who_takes_over_waits_for_what_the_leader_before_says_if_it_matters() {
    let awaited = || LastWords::Awaited { until: Instant::now() + Duration::from_secs(60) };
    for (trigger, expected) in [("periodic", "DRAINING"), ("operatorDriven", "PROCESSING")] {
        let fixture = handed_over(trigger, "10.96.0.7").await;
        fixture.regions.term.hear(awaited());
        assert_eq!(fixture.settle().await, Outcome::Again(Duration::from_secs(1)));
        assert_eq!((fixture.state().as_str(), fixture.sent()), (expected, vec![]));
        assert_eq!(fixture.regions.last_words().as_deref(), Some("n/flow-cr0"), "the next one does not know, either");
        fixture.regions.term.hear(LastWords::None);
        fixture.settle().await;
        assert_eq!((fixture.state().as_str(), fixture.sent()), ("RESETTING", both(1, RESET)));
    }
    // No report is lost of a region that waits for none.
    let fixture = Fixture::processing().await;
    service(&fixture.server, "10.96.0.7");
    let fixture = fixture.taken_over();
    fixture.leads().await;
    fixture.regions.term.hear(awaited());
    assert_eq!(fixture.settle().await, Outcome::Again(Duration::from_secs(1)), "its connections may have been lost");
    assert_eq!(fixture.regions.last_words().as_deref(), Some(""));
    fixture.regions.term.hear(said("", 60));
    assert_eq!(fixture.settle().await, Outcome::Again(PERIOD));
}

/// Its PEs have all connections again, and nobody else knows that they had lost some.
#[tokio::test]
async fn who_takes_over_resets_a_region_whose_losses_the_leader_before_could_not_store() {
    // what the leader before says -> the state, what PEs are told
    let table = [
        ("n/flow-cr0", "PROCESSING", vec![]),
        ("n/flow-cr1!", "PROCESSING", vec![]),
        ("n/flow-cr0!", "RESETTING", both(1, RESET)),
    ];
    for (words, state, told) in table {
        let fixture = Fixture::processing().await.taken_over();
        fixture.regions.term.hear(LastWords::Awaited { until: Instant::now() + Duration::from_secs(60) });
        fixture.settle().await;
        assert_eq!((fixture.state().as_str(), fixture.sent()), ("PROCESSING", vec![]), "{words}");
        fixture.regions.term.hear(said(words, 60));
        fixture.settle().await;
        assert_eq!((fixture.state().as_str(), fixture.sent()), (state, told), "{words}");
        fixture.server.advance(Duration::from_secs(2));
        fixture.settle().await;
        assert_eq!((fixture.state().as_str(), fixture.sent()), (state, vec![]), "{words}: once");
    }
}

/// Nobody but somebody who asks for it would reset the region again if its attempts were used up.
#[tokio::test]
async fn a_reset_that_is_taken_over_has_not_failed_by_losses_of_which_the_leader_before_has_heard() {
    // when the leader before says it: before this one has begun the reset again, or afterwards
    for is_late in [false, true] {
        let fixture = Fixture::new(json!({"maxConsecutiveResetAttempts": 1}));
        for number in 0..2 {
            start(&fixture.server, number, 2);
        }
        fixture.settle().await;
        assert_eq!((fixture.state().as_str(), fixture.sent()), ("RESETTING", both(2, RESET)), "{is_late}");
        let fixture = fixture.taken_over();
        if is_late {
            fixture.regions.term.hear(LastWords::Awaited { until: Instant::now() + Duration::from_secs(60) });
            fixture.settle().await;
            assert_eq!((fixture.state().as_str(), fixture.sent()), ("RESETTING", both(2, SECOND_RESET)));
            fixture.server.advance(Duration::from_secs(2));
        }
        fixture.regions.term.hear(said("n/flow-cr0!", 60));
        fixture.settle().await;
        let told = if is_late { SECOND_RESET.replace("Attempt=1", "Attempt=2") } else { SECOND_RESET.to_owned() };
        assert_eq!((fixture.state().as_str(), fixture.sent()), ("RESETTING", both(2, &told)), "{is_late}");
        fixture.server.advance(Duration::from_secs(2));
        fixture.settle().await;
        assert_eq!((fixture.state().as_str(), fixture.sent()), ("RESETTING", vec![]), "{is_late}: once");
    }
}

#[tokio::test]
async fn who_takes_over_resets_a_region_that_an_operator_may_have_drained_meanwhile_and_no_new_one() {
    let fixture = Fixture::new(json!({"trigger": "operatorDriven", "triggerOperators": ["o"]}));
    for number in 0..2 {
        start(&fixture.server, number, 1);
    }
    fixture.settle().await;
    assert_eq!((fixture.state().as_str(), fixture.sent()), ("PROCESSING", vec![]));
    let fixture = fixture.taken_over();
    fixture.settle().await;
    assert_eq!((fixture.state().as_str(), fixture.sent()), ("RESETTING", both(1, RESET)));
    fixture.report([1, 1], Progress::ResetDone { sequence: 0, attempt: 0 }).await;
    assert_eq!(fixture.state(), "PROCESSING");
}

/// Tuples are processed meanwhile, so to wait costs nothing.
#[tokio::test(start_paused = true)]
async fn who_takes_over_waits_for_the_rest_of_a_checkpoint_until_its_time_is_up() {
    // whether the report that is missing comes -> the state, the last checkpoint
    for (comes, expected) in [(true, ("PROCESSING", Some(1))), (false, ("RESETTING", Some(0)))] {
        let fixture = Fixture::processing().await;
        fixture.server.advance(PERIOD);
        fixture.settle().await;
        fixture.report([1, 1], Progress::BlockingCheckpointDone { sequence: 1 }).await;
        fixture.says_done(1).await;
        assert_eq!(fixture.state(), "CHECKPOINT_PENDING");
        service(&fixture.server, "10.96.0.7");
        let fixture = fixture.taken_over();
        fixture.leads().await;
        fixture.regions.term.hear(LastWords::Awaited { until: Instant::now() + Duration::from_secs(60) });
        fixture.settle().await;
        let pending = r#"{"0":{"type":"resumeSubmission","message":"seqId=2;retId=0;pendCkpt=1"}}"#;
        assert_eq!((fixture.state().as_str(), fixture.sent()), ("CHECKPOINT_PENDING", both(1, pending)));
        if comes {
            fixture.says_done(0).await;
            tokio::time::advance(Duration::from_secs(5)).await;
            (0..2).for_each(|number| fixture.asks(number));
        } else {
            fixture.server.advance(Duration::from_secs(59));
            fixture.settle().await;
            assert_eq!(fixture.state(), "CHECKPOINT_PENDING");
            fixture.server.advance(Duration::from_secs(1));
        }
        fixture.settle().await;
        assert_eq!((fixture.state().as_str(), fixture.region().status.unwrap().last_completed_checkpoint), expected);
    }
}

impl Fixture {
    /// A PE has written all of checkpoint 1.
    async fn says_done(&self, number: u64) {
        let (reports, by) = (self.regions.reports.clone(), Member { pe: number, launch: 1 });
        let event = Event::Report(by, Progress::CheckpointDone { sequence: 1 });
        let reported = tokio::spawn(async move { reports.report(reports.heard(&key()), number, event).await });
        while !reported.is_finished() {
            tokio::time::sleep(Duration::from_millis(10)).await;
            self.settle().await;
        }
        reported.await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn a_term_that_ends_while_pes_are_told_ends_the_telling() {
    let fixture = Fixture::processing().await;
    fixture.stores(&key(), processing(2)).await;
    let slow = Slow { allowed: Arc::new(tokio::sync::Semaphore::new(0)), sent: Arc::default() };
    let telling = Telling::through(slow.clone());
    let launches: Launches = [(0, 1), (1, 1)].into_iter().collect();
    let region = key();
    let told = telling.tell(&fixture.regions, &region, "flow", &launches);
    let ends = async {
        tokio::task::yield_now().await;
        fixture.regions.term.over();
        slow.allowed.add_permits(2);
    };
    tokio::join!(told, ends);
    assert_eq!(slow.sent.lock().len(), 1, "the one that was under way");
}

#[tokio::test]
async fn a_replica_whose_term_has_ended_tells_nobody_anything() {
    let fixture = Fixture::processing().await;
    fixture.server.advance(PERIOD);
    fixture.delivering.abort();
    let fixture = Fixture::on(fixture.server.clone(), Term::default());
    fixture.settle().await;
    assert_eq!((fixture.state().as_str(), fixture.sent()), ("DRAINING", vec![]));
}
