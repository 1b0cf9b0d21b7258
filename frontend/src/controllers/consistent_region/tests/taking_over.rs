//! Leaders that come and go (rule consistent-region-14).

use super::*;

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
    assert_eq!(slow.sent.lock().unwrap().len(), 1, "the one that was under way");
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
