//! PEs that are in two regions: there may be no datagram that is short enough to tell them (rule consistent-region-8).

use super::{Fixture, Slow, key, pe, processing, record, start};
use crate::controllers::consistent_region::telling::Telling;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use streams_api::{ConsistentRegion, ConsistentRegionSpec, ProcessingElement};
use streams_consistent_region::{Launches, Progress};
use streams_kubernetes::Key;
use streams_kubernetes::queue::Outcome;
use tokio::time::advance;

const SECOND: Duration = Duration::from_secs(1);

/// Region 0, whose period is two seconds, has told its PEs to go on. They are in region 1, too; that has this record.
async fn resumed_beside(other: Value) -> Fixture {
    let fixture = Fixture::new(json!({"periodMilliseconds": 2_000}));
    for number in 0..2 {
        start(&fixture.server, number, 1);
    }
    fixture.settle().await;
    let own = fixture.region().status.unwrap().record.unwrap();
    with_a_second_region(&fixture, [own, other]).await;
    fixture.server.advance(2 * SECOND);
    fixture.settle().await;
    assert_eq!((fixture.state().as_str(), fixture.sent().len()), ("DRAINING", 2));
    fixture.report([1, 1], Progress::CheckpointDone { sequence: 1 }).await;
    assert_eq!(fixture.state(), "PROCESSING");
    fixture
}

fn resumed(sequence: u64) -> Value {
    record(sequence, sequence - 1, "processing", &json!({"told": "resumed"}))
}

impl Fixture {
    /// Region 0 drains again, and goes on before its checkpoint is written, which it then is.
    async fn completes_while_it_goes_on(&self) {
        self.server.advance(20 * SECOND);
        self.settle().await;
        assert_eq!(self.state(), "DRAINING");
        self.sent();
        self.report([1, 1], Progress::BlockingCheckpointDone { sequence: 2 }).await;
        self.report([1, 1], Progress::CheckpointDone { sequence: 2 }).await;
        assert_eq!(self.state(), "CHECKPOINT_PENDING");
    }

    /// Both PEs have heard nothing for as long as it takes until they ask.
    async fn both_ask(&self) {
        advance(5 * SECOND).await;
        (0..2).for_each(|number| self.asks(number));
    }
}

#[tokio::test]
async fn who_was_told_to_go_on_by_no_datagram_asks_before_it_is_told_to_drain_again() {
    let fixture = resumed_beside(resumed(4)).await;
    assert_eq!(fixture.sent(), [], "what both regions say is too long");
    assert_eq!(fixture.settle().await, Outcome::Again(2 * SECOND));
    fixture.server.advance(2 * SECOND);
    for number in 0..2 {
        assert_eq!(fixture.settle().await, Outcome::Again(SECOND));
        assert_eq!(fixture.state(), "PROCESSING", "PE {number} would never hear that it should go on");
        fixture.asks(number);
    }
    fixture.settle().await;
    assert_eq!((fixture.state().as_str(), fixture.sent().len()), ("DRAINING", 2));
}

#[tokio::test]
async fn who_does_not_ask_does_not_hold_up_its_region_for_ever() {
    let fixture = resumed_beside(resumed(4)).await;
    fixture.asks(0);
    for (seconds, expected) in [(19, "PROCESSING"), (1, "DRAINING")] {
        fixture.server.advance(seconds * SECOND);
        fixture.settle().await;
        assert_eq!(fixture.state(), expected, "{seconds}");
    }
}

#[tokio::test]
async fn who_was_told_to_go_on_by_a_datagram_is_told_to_drain_when_the_period_has_passed() {
    let fixture = resumed_beside(processing(4)).await;
    assert_eq!(fixture.sent().len(), 2);
    fixture.server.advance(2 * SECOND);
    fixture.settle().await;
    assert_eq!((fixture.state().as_str(), fixture.sent().len()), ("DRAINING", 2));
}

/// A source that hears `drained` and has lost the only answer before would rest for ever.
#[tokio::test(start_paused = true)]
async fn a_checkpoint_is_complete_when_pes_have_asked_twice_or_as_late_as_a_datagram_makes_them() {
    // what the other region says, which is short enough for a datagram or not -> datagrams, how often PEs have to ask
    for (other, datagrams, questions) in [(processing(4), 2, 1), (resumed(4), 0, 2)] {
        let fixture = resumed_beside(other).await;
        fixture.completes_while_it_goes_on().await;
        assert_eq!(fixture.sent().len(), datagrams);
        for question in 1..=questions {
            assert_eq!(fixture.settle().await, Outcome::Again(SECOND));
            assert_eq!(fixture.state(), "CHECKPOINT_PENDING", "{datagrams} {question}");
            fixture.both_ask().await;
        }
        fixture.settle().await;
        assert_eq!(fixture.state(), "PROCESSING", "{datagrams}");
    }
}

/// A source may rest until its checkpoint is complete: what says so is the only message by which it goes on.
#[tokio::test(start_paused = true)]
async fn who_was_told_by_no_datagram_that_the_checkpoint_is_complete_asks_before_it_is_told_to_drain_again() {
    let fixture = resumed_beside(resumed(4)).await;
    fixture.stores(&Key::new("n", "flow-cr1"), resumed(1_000_000_000_000_000)).await;
    fixture.completes_while_it_goes_on().await;
    for _ in 0..2 {
        fixture.both_ask().await;
    }
    fixture.sent();
    fixture.settle().await;
    assert_eq!((fixture.state().as_str(), fixture.sent()), ("PROCESSING", vec![]), "what both regions say is too long");
    fixture.server.advance(2 * SECOND);
    for number in 0..2 {
        assert_eq!(fixture.settle().await, Outcome::Again(SECOND));
        assert_eq!(fixture.state(), "PROCESSING", "the source of PE {number} would never go on");
        assert!(fixture.told(number).contains(r#""drained","message":"seqId=2""#), "{}", fixture.told(number));
        fixture.asks(number);
    }
    fixture.settle().await;
    assert_eq!(fixture.state(), "DRAINING");
}

#[tokio::test]
async fn pes_of_one_region_do_not_have_to_ask() {
    let fixture = Fixture::new(json!({"periodMilliseconds": 2_000}));
    for number in 0..2 {
        start(&fixture.server, number, 1);
    }
    for sequence in 1..3 {
        fixture.settle().await;
        assert_eq!(fixture.state(), "PROCESSING");
        fixture.server.advance(2 * SECOND);
        fixture.settle().await;
        assert_eq!(fixture.state(), "DRAINING");
        fixture.report([1, 1], Progress::CheckpointDone { sequence }).await;
    }
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
    let sent = slow.sent.lock().clone();
    assert_eq!(sent.len(), 4);
    // All but the one that was under way were made when both had gone on.
    let (first, others) = sent.split_first().unwrap();
    assert_eq!(first.1.matches("seqId=1").count(), 2, "{first:?}");
    for later in others {
        assert_eq!(later.1.matches("seqId=2").count(), 2, "{later:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_pe_that_has_to_ask_is_not_kept_from_it() {
    let fixture = Fixture::processing().await;
    let pending = json!({"resumed": 0, "reports": {"done": [0, 1], "blocking": []}, "complete": 0});
    let second = with_a_second_region(&fixture, [processing(2), record(3, 1, "checkpointPending", &pending)]).await;
    let telling = Telling::through(fixture.recorder.clone());
    let launches: Launches = [(0, 1), (1, 1)].into_iter().collect();
    // Who asks, each some seconds after the one before -> who is told of region 0
    let table: [(u64, &[&str]); 4] = [(0, &[]), (0, &["10.0.1.0"]), (1, &["10.0.1.0"]), (1, &["10.0.1.0", "10.0.1.1"])];
    for (number, expected) in table {
        fixture.asks(number);
        advance(5 * SECOND).await;
        telling.tell(&fixture.regions, &key(), "flow", &launches).await;
        let to: Vec<String> = fixture.sent().into_iter().map(|(to, _)| to).collect();
        assert_eq!(to, expected, "a PE that hears something does not ask");
    }
    assert_eq!(fixture.regions.answered.of(&second).len(), 2);
}
