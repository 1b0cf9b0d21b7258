//! Histories in which something is missing for a while: connections, pods, whoever drives the region.

use super::history::Driven;
use super::{
    DRAIN_TIMEOUT, blocking_done, done, drain, healthy, launches, operator_driven, reset, unhealthy, went_back,
};
use crate::event::{Event, Ignored};
use crate::health::{Cause, Health};
use crate::message::Message;
use crate::state::{SEEN_WITHIN, State};
use crate::time::Time;
use std::time::Duration;

#[test]
fn resets_from_which_pods_are_taken_away_use_up_no_attempts() {
    let mut region = Driven::new();
    region.takes(0, &healthy());
    region.takes(1, &reset());
    let taken_away = Event::Health(Health::Unhealthy(Cause::TakenAway(1)));
    for attempt in 1..=5 {
        region.takes(2 * attempt, &taken_away);
        assert_eq!(region.takes(2 * attempt + 1, &healthy()), Some(format!("seqId=0;resetAttempt={attempt}")));
    }
    // Two more may fail.
    for (second, expected) in [(20, "seqId=0;resetAttempt=6"), (22, "seqId=0")] {
        region.takes(second, &unhealthy());
        assert_eq!(region.takes(second + 1, &healthy()).as_deref(), Some(expected));
    }
    assert_eq!(region.state().name(), "MAXIMUM_RESET_ATTEMPTS_REACHED");
}

/// Tuples are processed, so to wait costs nothing.
#[test]
fn who_takes_over_waits_for_the_rest_of_a_checkpoint_until_the_time_of_the_drain_is_up() {
    // whether the report that is missing comes
    for comes in [true, false] {
        let mut region = Driven::new();
        region.takes(0, &healthy());
        for (second, event) in [(30, Event::Time), (31, blocking_done(0, 1)), (32, done(1, 1))] {
            region.takes(second, &event);
        }
        let due = Time(30_000).after(DRAIN_TIMEOUT);
        let step = region.at(100, &Event::TakenOver);
        assert_eq!(
            (step.state.name(), step.state.missing_reports(), step.deadline),
            ("CHECKPOINT_PENDING", 1, Some(due))
        );
        let message = Message::ResumeSubmission { sequence: 2, retired: 0, is_pending: true };
        assert_eq!(step.send, Some(message), "it is said once more");
        if comes {
            region.takes(101, &done(0, 1));
            // Whom the leader before has told that nobody knows, so all have to ask again.
            assert_eq!(region.state().to_be_seen(), Some((message, &launches([(0, 1), (1, 1)]))));
            assert_eq!(region.takes(107, &Event::SeenByAll).as_deref(), Some("seqId=1"));
            assert_eq!((region.state().name(), region.state().last_completed()), ("PROCESSING", 1));
        } else {
            assert_eq!(region.at(209, &Event::Time).ignored, Some(Ignored::NotDue));
            assert_eq!(region.takes(210, &Event::Time).as_deref(), Some("seqId=0;resetAttempt=0"));
        }
    }
    // Its last report comes, and the time of the drain is up before all have asked: they have had no time to.
    let mut region = Driven::new();
    region.settings.drain_timeout = Duration::from_secs(5);
    region.takes(0, &healthy());
    for (second, event) in [(30, Event::Time), (31, blocking_done(0, 1)), (32, done(1, 1))] {
        region.takes(second, &event);
    }
    region.takes(34, &Event::TakenOver);
    region.takes(34, &done(0, 1));
    assert_eq!(region.state().deadline(&region.settings), Some(Time(34_000).after(SEEN_WITHIN)));
}

/// It may not be reset at once.
#[test]
fn what_is_reported_after_connections_were_lost_completes_no_checkpoint() {
    let mut region = Driven::from(&State::new(), operator_driven());
    region.takes(0, &healthy());
    let lost = Event::Health(Health::Healthy(serde_json::from_str(r#"{"1":[1],"1.1":[0]}"#).unwrap()));
    region.at_millisecond(10_000, &reset());
    region.at_millisecond(10_100, &went_back(0, 0, 0));
    region.at_millisecond(10_200, &went_back(1, 0, 0));
    assert_eq!((region.state().name(), region.state().sequence()), ("PROCESSING", 2));
    assert!(region.at_millisecond(10_300, &lost).has_changed);
    for event in [drain(2), done(0, 2), done(1, 2)] {
        assert_eq!(region.at_millisecond(10_400, &event).ignored, Some(Ignored::NotExpected), "{event:?}");
    }
    assert_eq!(region.at_millisecond(10_500, &lost).ignored, Some(Ignored::TooSoon { until: Time(11_000) }));
    assert_eq!((region.state().name(), region.state().last_completed()), ("UNHEALTHY", 0));
    let begun = region.at_millisecond(11_000, &lost);
    assert_eq!(begun.send, Some(Message::TriggerReset { sequence: 0, attempt: 1 }));
    assert_eq!(region.at_millisecond(11_100, &lost).ignored, Some(Ignored::NothingNew));
}

/// Nobody has seen the region healthy before.
#[test]
fn a_new_region_whose_connections_have_broken_is_reset() {
    let mut region = Driven::new();
    let lost = Event::Health(Health::Healthy(serde_json::from_str(r#"{"1":[1],"1.1":[0]}"#).unwrap()));
    assert_eq!(region.takes(0, &lost).as_deref(), Some("seqId=0;resetAttempt=0"));
}
