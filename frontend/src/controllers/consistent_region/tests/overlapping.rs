//! PEs that are in two regions: there may be no datagram that is short enough to tell them (rule consistent-region-8).

use super::*;

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

/// A source may rest until its checkpoint is complete: what says so is the only message by which it goes on.
#[tokio::test]
async fn who_was_told_by_no_datagram_that_the_checkpoint_is_complete_asks_before_it_is_told_to_drain_again() {
    let fixture = resumed_beside(resumed(4)).await;
    fixture.stores(&Key::new("n", "flow-cr1"), resumed(1_000_000_000_000_000)).await;
    fixture.server.advance(20 * SECOND);
    fixture.settle().await;
    assert_eq!(fixture.state(), "DRAINING");
    fixture.report([1, 1], Progress::BlockingCheckpointDone { sequence: 2 }).await;
    fixture.report([1, 1], Progress::CheckpointDone { sequence: 2 }).await;
    assert_eq!(fixture.state(), "CHECKPOINT_PENDING");
    (0..2).for_each(|number| fixture.asks(number));
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
