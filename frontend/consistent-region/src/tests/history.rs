//! Whole histories of a region, step by step: what is stored, what is told, and when.

use super::{
    PERIOD, RESET_TIMEOUT, blocking_done, done, drain, forced_reset, healthy, launches, member, operator_driven,
    periodic, reset, unhealthy, went_back,
};
use crate::event::{Event, Ignored, Progress};
use crate::health::Health;
use crate::message::{Document, Message};
use crate::settings::{Settings, Trigger};
use crate::state::{SEEN_WITHIN, State, unheard_attempt};
use crate::time::Time;
use crate::transition::{Step, step};
use std::time::Duration;

/// A region that is told what happens, and stored after every step.
pub(super) struct Driven {
    pub(super) settings: Settings,
    stored: String,
}

impl Driven {
    pub(super) fn new() -> Self {
        Self { settings: periodic(), stored: serde_json::to_string(&State::new()).unwrap() }
    }

    pub(super) fn state(&self) -> State {
        serde_json::from_str(&self.stored).unwrap()
    }

    pub(super) fn from(state: &State, settings: Settings) -> Self {
        Self { settings, stored: serde_json::to_string(state).unwrap() }
    }

    /// Tells it something so many seconds after the beginning.
    pub(super) fn at(&mut self, second: u64, event: &Event) -> Step {
        self.at_millisecond(second * 1_000, event)
    }

    pub(super) fn at_millisecond(&mut self, now: u64, event: &Event) -> Step {
        let step = step(&self.settings, &self.state(), event, Time(now));
        if step.has_changed {
            self.stored = serde_json::to_string(&step.state).unwrap();
        }
        step
    }

    /// The same, of something that the region accepts.
    pub(super) fn takes(&mut self, second: u64, event: &Event) -> Option<String> {
        let step = self.at(second, event);
        assert_eq!(step.ignored, None, "{event:?}");
        step.send.map(|message| message.to_string())
    }
}

fn seconds(duration: Duration) -> u64 {
    duration.as_secs()
}

#[test]
fn a_region_is_stored_in_few_words() {
    let mut region = Driven::new();
    assert_eq!(
        region.stored,
        r#"{"sequence":1,"lastCompleted":0,"attempts":0,"attemptsBefore":0,"phase":{"started":{"mustReset":false}},"measured":{}}"#
    );
    region.takes(1, &healthy());
    region.takes(31, &Event::Time);
    region.takes(32, &blocking_done(0, 1));
    assert_eq!(
        region.stored,
        r#"{"sequence":1,"lastCompleted":0,"attempts":0,"attemptsBefore":0,"phase":{"draining":{"launches":{"1":[0,1]},"since":31000,"reports":{"done":[],"blocking":[0]}}},"measured":{}}"#
    );
    region.takes(33, &done(1, 1));
    assert_eq!(
        region.stored,
        r#"{"sequence":2,"lastCompleted":0,"attempts":0,"attemptsBefore":0,"phase":{"checkpointPending":{"launches":{"1":[0,1]},"since":31000,"resumed":33000,"reports":{"done":[1],"blocking":[0]}}},"measured":{}}"#
    );
    region.takes(34, &done(0, 1));
    region.takes(39, &Event::SeenByAll);
    assert_eq!(
        region.stored,
        r#"{"sequence":2,"lastCompleted":1,"attempts":0,"attemptsBefore":0,"phase":{"processing":{"launches":{"1":[0,1]},"told":"drained","since":39000}},"measured":{"drains":{"samples":[3000],"last":{"sequence":1,"at":34000}}}}"#
    );
}

#[test]
fn checkpoints_are_given_up_one_by_one() {
    let mut region = Driven::new();
    region.takes(0, &healthy());
    let period = seconds(PERIOD);
    let mut now = 0;
    // whether tuples wait for all checkpoints -> what PEs are told, the checkpoint that they delete
    let table = [
        (true, "seqId=2;retId=0;pendCkpt=0"),
        (true, "seqId=3;retId=1;pendCkpt=0"),
        (false, "seqId=4;retId=1;pendCkpt=1"),
        (false, "seqId=5;retId=2;pendCkpt=1"),
        (true, "seqId=6;retId=3;pendCkpt=0"),
        (true, "seqId=7;retId=4;pendCkpt=0"),
        (false, "seqId=8;retId=5;pendCkpt=1"),
    ];
    for (sequence, (waits, expected)) in (1..).zip(table) {
        now += period;
        assert_eq!(region.takes(now, &Event::Time), Some(format!("seqId={sequence}")));
        assert_eq!(region.takes(now, &if waits { done(0, sequence) } else { blocking_done(0, sequence) }), None);
        assert_eq!(region.takes(now, &done(1, sequence)).as_deref(), Some(expected));
        if !waits {
            assert_eq!(region.takes(now, &done(0, sequence)), None);
            now += 4;
            assert_eq!(region.takes(now, &Event::SeenByAll), Some(format!("seqId={sequence}")));
        }
        assert_eq!((region.state().last_completed(), region.state().name()), (sequence, "PROCESSING"));
    }
}

#[test]
fn attempts_to_reset_count_until_one_succeeds_and_their_numbers_go_on() {
    let mut region = Driven::new();
    region.takes(0, &healthy());
    // second, event -> what PEs are told
    let table = [
        (1, reset(), Some("seqId=0;resetAttempt=0")),
        (1 + seconds(RESET_TIMEOUT), Event::Time, Some("seqId=0;resetAttempt=1")),
        (100, went_back(0, 0, 1), None),
        (101, went_back(1, 0, 1), Some("seqId=2;retId=0;pendCkpt=0")),
        // Two more may fail.
        (102, unhealthy(), None),
        (103, healthy(), Some("seqId=0;resetAttempt=2")),
        (104, unhealthy(), None),
        (105, healthy(), Some("seqId=0;resetAttempt=3")),
        (106, unhealthy(), None),
        (107, healthy(), Some("seqId=0")),
        (108, Event::Reset { by: None, is_forced: true }, Some("seqId=0;resetAttempt=4")),
        (109, went_back(0, 0, 4), None),
        (110, went_back(1, 0, 4), Some("seqId=3;retId=0;pendCkpt=0")),
        (140, Event::Time, Some("seqId=3")),
        (141, done(0, 3), None),
        (142, done(1, 3), Some("seqId=4;retId=0;pendCkpt=0")),
        (143, reset(), Some("seqId=3;resetAttempt=0")),
    ];
    for (second, event, expected) in table {
        assert_eq!(region.takes(second, &event).as_deref(), expected, "{second}: {event:?}");
    }
    let figures = region.state().figures();
    assert_eq!((figures.average_drain_time_milliseconds, figures.average_reset_time_milliseconds), (2_000, 6_000));
    assert_eq!(
        (figures.last_consistent_state_time_milliseconds, figures.last_reset_time_milliseconds),
        (142_000, 110_000)
    );
    assert_eq!((figures.last_completed_drain_seq_id, figures.last_completed_reset_seq_id), (3, 0));
    assert_eq!((figures.state, figures.n_current_reset_attempts), (4, 1));
}

#[test]
fn who_takes_over_does_not_wait_for_reports_that_may_be_lost() {
    let table: [&[(u64, Event)]; 3] = [
        &[(30, Event::Time)],
        &[(30, Event::Time), (31, done(0, 1))],
        &[(30, Event::Time), (31, blocking_done(0, 1)), (32, done(0, 1))],
    ];
    for events in table {
        let mut region = Driven::new();
        region.takes(0, &healthy());
        for (second, event) in events {
            region.takes(*second, event);
        }
        assert_eq!(region.takes(40, &Event::TakenOver).as_deref(), Some("seqId=0;resetAttempt=0"), "{events:?}");
        assert_eq!(region.at(40, &Event::Time).deadline, Some(Time(40_000).after(RESET_TIMEOUT)));
    }
}

#[test]
fn resets_that_are_taken_over_begin_again_and_use_up_no_attempts() {
    let mut region = Driven::new();
    region.takes(0, &healthy());
    region.takes(1, &reset());
    // Also a moment after the one before.
    for attempt in 1..=5 {
        assert_eq!(region.takes(2, &Event::TakenOver), Some(format!("seqId=0;resetAttempt={attempt}")));
    }
    assert_eq!(region.at(3, &went_back(0, 0, 0)).ignored, Some(Ignored::AnotherAttempt { expected: 5 }));
    assert_eq!(region.takes(100, &Event::Time).as_deref(), Some("seqId=0;resetAttempt=6"));
    assert_eq!(region.takes(200, &Event::Time).as_deref(), Some("seqId=0"), "two have failed");
    // Who drives it next finds it where it was.
    assert!(!region.at(201, &Event::TakenOver).has_changed);
}

#[test]
fn who_takes_over_waits_until_all_have_seen_that_they_should_go_on() {
    let mut region = Driven::new();
    region.takes(0, &healthy());
    region.settings.drain_timeout = Duration::from_secs(5);
    for (second, event) in [(30, Event::Time), (31, blocking_done(0, 1)), (32, done(1, 1))] {
        region.takes(second, &event);
        assert!(region.state().to_be_seen().is_none() && region.at(second, &Event::SeenByAll).ignored.is_some());
    }
    region.takes(33, &done(0, 1));
    assert_eq!(region.at(100, &Event::TakenOver).deadline, Some(Time(100_000).after(SEEN_WITHIN)));
    assert_eq!(region.at(101, &Event::Time).ignored, Some(Ignored::NotDue));
    let message = Message::ResumeSubmission { sequence: 2, retired: 0, is_pending: true };
    assert_eq!(region.state().to_be_seen(), Some((message, &launches([(0, 1), (1, 1)]))));
    assert_eq!(region.takes(106, &Event::SeenByAll).as_deref(), Some("seqId=1"));
    assert_eq!(region.state().figures().average_drain_time_milliseconds, 3_000);
}

/// Before all is written, other regions may keep them from asking.
#[test]
fn pes_have_time_to_ask_from_when_they_should_go_on_and_all_is_written() {
    // seconds of the drain, which begins at 30 s, when PEs should go on, when all is written -> when time is up
    let table = [(5, 31, 32, 52), (60, 31, 88, 108), (60, 31, 40, 90)];
    for (drain_timeout, resumed, complete, due) in table {
        let mut region = Driven::new();
        region.settings.drain_timeout = Duration::from_secs(drain_timeout);
        region.takes(0, &healthy());
        region.takes(30, &Event::Time);
        for (second, event) in [(resumed, blocking_done(0, 1)), (resumed, done(1, 1)), (complete, done(0, 1))] {
            region.takes(second, &event);
        }
        assert_eq!(region.at(due - 1, &Event::Time).ignored, Some(Ignored::NotDue), "{due}");
        assert_eq!(region.takes(due, &Event::Time).as_deref(), Some("seqId=0;resetAttempt=0"), "{due}");
    }
}

#[test]
fn a_period_is_not_over_before_pes_of_other_regions_were_told_to_go_on_or_had_time_to_ask() {
    let mut region = Driven::new();
    region.settings.trigger = Trigger::Periodic { period: Duration::from_secs(2) };
    region.takes(0, &healthy());
    assert_eq!(region.state().to_be_told(&region.settings), None, "there was nothing to tell");
    region.takes(2, &Event::Time);
    region.takes(3, &done(0, 1));
    region.takes(4, &done(1, 1));
    let message = Message::ResumeSubmission { sequence: 2, retired: 0, is_pending: false };
    let (state, all) = (region.state(), launches([(0, 1), (1, 1)]));
    let to_be_told = state.to_be_told(&region.settings).unwrap();
    assert_eq!((to_be_told.message, to_be_told.launches, to_be_told.from), (message, &all, Time(6_000)));
    assert_eq!(region.at(5, &Event::Told).ignored, Some(Ignored::NotDue));
    assert_eq!(region.at(23, &Event::Time).ignored, Some(Ignored::NotDue));
    let unchanged = region.stored.clone();
    assert_eq!(region.takes(6, &Event::Told).as_deref(), Some("seqId=2"));
    // One that does not ask does not hold it up for ever.
    region.stored = unchanged;
    assert_eq!(region.takes(24, &Event::Time).as_deref(), Some("seqId=2"));
}

/// An operator that waits until its checkpoint is complete goes on then, and not before.
#[test]
fn a_period_is_not_over_before_pes_of_other_regions_were_told_that_the_checkpoint_is_complete() {
    let mut region = Driven::new();
    region.settings.trigger = Trigger::Periodic { period: Duration::from_secs(2) };
    region.takes(0, &healthy());
    let checkpoint = [
        (2, Event::Time),
        (3, blocking_done(0, 1)),
        (3, blocking_done(1, 1)),
        (4, done(0, 1)),
        (4, done(1, 1)),
        (9, Event::SeenByAll),
    ];
    for (second, event) in checkpoint {
        region.takes(second, &event);
    }
    let (state, all) = (region.state(), launches([(0, 1), (1, 1)]));
    let to_be_told = state.to_be_told(&region.settings).unwrap();
    let drained = Message::Drained { sequence: 1 };
    assert_eq!((to_be_told.message, to_be_told.launches, to_be_told.from), (drained, &all, Time(11_000)));
    assert_eq!(region.at(10, &Event::Told).ignored, Some(Ignored::NotDue));
    assert_eq!(region.at(28, &Event::Time).ignored, Some(Ignored::NotDue));
    let unchanged = region.stored.clone();
    assert_eq!(region.takes(11, &Event::Told).as_deref(), Some("seqId=2"));
    region.stored = unchanged;
    assert_eq!(region.takes(29, &Event::Time).as_deref(), Some("seqId=2"));
}

#[test]
fn a_checkpoint_that_some_pe_may_not_know_to_have_gone_on_from_is_not_complete() {
    let mut region = Driven::new();
    region.takes(0, &healthy());
    for (second, event) in [(30, Event::Time), (31, blocking_done(0, 1)), (32, done(1, 1)), (33, done(0, 1))] {
        region.takes(second, &event);
    }
    assert_eq!(region.takes(210, &Event::Time).as_deref(), Some("seqId=0;resetAttempt=0"));
}

#[test]
fn resets_that_are_asked_for_begin_once_a_second_and_all_who_ask_get_one() {
    for ask in [reset(), forced_reset()] {
        let mut region = Driven::new();
        region.settings.max_consecutive_reset_attempts = 5;
        region.takes(0, &healthy());
        assert!(region.at_millisecond(10_000, &ask).send.is_some());
        // As long as no PE has gone back, this is the reset that others ask for.
        region.at_millisecond(10_010, &ask);
        let again = region.at_millisecond(10_020, &ask);
        assert_eq!((again.has_changed, again.ignored), (false, Some(Ignored::IsBeingReset)));
        region.at_millisecond(10_100, &went_back(0, 0, 0));
        region.at_millisecond(10_110, &went_back(1, 0, 0));
        assert_eq!(region.state().name(), "PROCESSING");
        let later = region.at_millisecond(10_200, &ask);
        assert_eq!((later.has_changed, later.send, later.deadline), (true, None, Some(Time(11_000))));
        for _ in 0..3 {
            assert!(!region.at_millisecond(10_300, &ask).has_changed);
        }
        assert_eq!(region.at_millisecond(10_999, &Event::Time).ignored, Some(Ignored::NotDue));
        let begun = region.at_millisecond(11_000, &Event::Time);
        assert_eq!(begun.send, Some(Message::TriggerReset { sequence: 0, attempt: 1 }));
        // A PE has gone back, and finds that it has to do so again.
        region.at_millisecond(11_100, &went_back(0, 0, 1));
        assert!(region.at_millisecond(11_200, &ask).has_changed);
        region.at_millisecond(11_300, &went_back(1, 0, 1));
        assert_eq!((region.state().name(), region.state().missing_reports()), ("RESETTING", 0));
        let begun = region.at_millisecond(12_000, &Event::Time);
        assert_eq!(begun.send, Some(Message::TriggerReset { sequence: 0, attempt: 2 }));
    }
}

#[test]
fn a_region_that_is_healthy_again_and_again_is_reset_once_a_second() {
    let mut region = Driven::new();
    region.settings.max_consecutive_reset_attempts = 5;
    region.takes(0, &healthy());
    region.at_millisecond(100, &unhealthy());
    region.at_millisecond(200, &healthy());
    assert_eq!(region.state().name(), "RESETTING");
    region.at_millisecond(300, &unhealthy());
    for now in [400, 600] {
        let step = region.at_millisecond(now, &healthy());
        assert_eq!((step.has_changed, step.ignored), (false, Some(Ignored::TooSoon { until: Time(1_200) })));
        assert!(!region.at_millisecond(now + 100, &unhealthy()).has_changed);
    }
    assert!(region.at_millisecond(1_200, &healthy()).send.is_some());
}

#[test]
fn a_region_whose_state_is_lost_is_reset_under_numbers_that_no_pe_has_heard() {
    // A day in 2026.
    let now = 1_790_000_000;
    let state = State::of_driven_before(Time(now * 1_000));
    let mut region = Driven::from(&state, periodic());
    let first = format!("seqId=0;resetAttempt={}", 1_790_000_000 - 1_577_836_800);
    assert_eq!(region.takes(now + 1, &healthy()), Some(first));
    region.takes(now + 2, &went_back(0, 0, 212_163_200));
    let resumed = region.takes(now + 3, &went_back(1, 0, 212_163_200));
    assert_eq!(resumed.as_deref(), Some("seqId=1790000000001;retId=0;pendCkpt=0"));
    assert_eq!(region.state().figures().n_current_reset_attempts, 1);
    region.takes(now + 33, &Event::Time);
    region.takes(now + 34, &done(0, 1_790_000_000_001));
    region.takes(now + 35, &done(1, 1_790_000_000_001));
    // From then on PEs count attempts anew.
    assert_eq!(region.takes(now + 36, &reset()).as_deref(), Some("seqId=1790000000001;resetAttempt=0"));
}

#[test]
fn a_pe_that_drains_under_a_number_of_a_lost_state_is_told_to_go_on() {
    let now = 1_790_000_000;
    let attempt = unheard_attempt(Time((now + 1) * 1_000));
    let table = [(operator_driven(), drain(57)), (operator_driven(), done(0, 57)), (periodic(), done(0, 57))];
    for (settings, report) in table {
        let mut region = Driven::from(&State::new(), settings);
        region.takes(now, &healthy());
        assert_eq!(region.at(now + 1, &done(0, u64::MAX)).send, None, "no sequence id");
        assert_eq!(region.takes(now + 1, &report), Some(format!("seqId=0;resetAttempt={attempt}")), "{report:?}");
        region.takes(now + 2, &went_back(0, 0, attempt));
        let resumed = region.takes(now + 2, &went_back(1, 0, attempt));
        assert_eq!(resumed.as_deref(), Some("seqId=58;retId=0;pendCkpt=0"));
        // Before the region was healthy.
        let mut region = Driven::from(&State::new(), region.settings);
        region.takes(now, &report);
        assert!(region.takes(now, &healthy()).is_some_and(|told| told.starts_with("seqId=0;resetAttempt=")));
        assert_eq!(region.state().sequence(), 57);
        // Of a launch that is gone.
        let mut region = Driven::from(&State::new(), region.settings);
        region.takes(now, &Event::Health(Health::Healthy(launches([(0, 2), (1, 1)]))));
        region.takes(now, &went_back(1, 0, 0));
        assert!(region.at(now, &report).ignored.is_some());
        assert_eq!(region.state().sequence(), 1);
    }
}

#[test]
fn forged_numbers_of_lost_states_are_not_stored_one_by_one() {
    let (now, begun) = (1_790_000_000_u64, State::new());
    let mut processing = Driven::from(&State::new(), periodic());
    processing.takes(now, &healthy());
    processing.takes(now, &reset());
    processing.takes(now, &went_back(0, 0, 0));
    processing.takes(now, &went_back(1, 0, 0));
    for mut region in [Driven::from(&begun, periodic()), Driven::from(&begun, operator_driven()), processing] {
        let changes = (57..1_057).filter(|sequence| region.at(now, &done(0, *sequence)).has_changed).count();
        assert_eq!(changes, 2, "{:?}", region.state());
        assert!(region.state().sequence() >= now * 1_000, "above what any PE was told");
        let forged = (1..1_000).map(|more| region.state().sequence() + more).collect::<Vec<_>>();
        assert!(forged.iter().all(|sequence| !region.at(now, &done(0, *sequence)).has_changed));
    }
    // Two PEs of which one was told the next number already.
    let mut region = Driven::from(&begun, operator_driven());
    region.takes(now, &done(0, 57));
    region.takes(now, &done(1, 58));
    assert!(region.state().sequence() > 58);
    assert!(region.takes(now, &healthy()).is_some_and(|told| told.starts_with("seqId=0;resetAttempt=")));
}

#[test]
fn settings_hold_from_the_next_step_on() {
    let mut region = Driven::new();
    region.takes(0, &healthy());
    region.takes(30, &Event::Time);
    region.settings.drain_timeout = Duration::from_secs(1_000);
    let step = region.at(300, &Event::Time);
    assert_eq!((step.ignored, step.deadline), (Some(Ignored::NotDue), Some(Time(1_030_000))));
    region.settings.drain_timeout = Duration::from_secs(1);
    assert_eq!(region.takes(300, &Event::Time).as_deref(), Some("seqId=0;resetAttempt=0"));
    region.settings.max_consecutive_reset_attempts = 1;
    assert_eq!(region.takes(400, &Event::Time).as_deref(), Some("seqId=0"));
    assert_eq!(region.state().name(), "MAXIMUM_RESET_ATTEMPTS_REACHED");
}

#[test]
fn other_pes_are_other_launches() {
    let mut region = Driven::new();
    region.takes(0, &healthy());
    let three = Event::Health(Health::Healthy(launches([(0, 1), (1, 1), (2, 1)])));
    assert_eq!(region.takes(1, &three).as_deref(), Some("seqId=0;resetAttempt=0"));
    region.takes(2, &went_back(0, 0, 0));
    region.takes(2, &went_back(1, 0, 0));
    assert_eq!(region.takes(3, &went_back(2, 0, 0)).as_deref(), Some("seqId=2;retId=0;pendCkpt=0"));
}

#[test]
fn a_clock_that_is_put_back_delays_nothing_for_longer_than_its_timer() {
    let mut region = Driven::new();
    region.takes(1_000_000, &healthy());
    let step = region.at(10, &Event::Time);
    assert_eq!((step.ignored, step.has_changed), (Some(Ignored::NotDue), true));
    assert_eq!(step.deadline, Some(Time(10_000).after(PERIOD)));
}

#[test]
fn reports_of_an_earlier_launch_count_for_nothing() {
    let mut region = Driven::new();
    region.takes(0, &healthy());
    region.takes(30, &Event::Time);
    region.takes(31, &unhealthy());
    let again = Event::Health(Health::Healthy(launches([(0, 1), (1, 2)])));
    region.takes(32, &again);
    let report = |launch| Event::Report(member(1, launch), Progress::ResetDone { sequence: 0, attempt: 0 });
    assert_eq!(region.at(33, &report(1)).ignored, Some(Ignored::AnotherLaunch { expected: 2 }));
    region.takes(34, &went_back(0, 0, 0));
    region.takes(35, &report(2));
    assert_eq!(region.state().message_for(1, 1), None);
    assert_eq!(region.state().message_for(2, 1), None);
    assert_eq!(region.state().message_for(1, 2), region.state().message());
}

#[test]
fn regions_that_share_a_pe_share_a_document() {
    let (mut one, mut other) = (Driven::new(), Driven::new());
    one.takes(0, &healthy());
    other.takes(0, &healthy());
    other.takes(30, &Event::Time);
    let document = |one: &Driven, other: &Driven| {
        Document::of([(0, one.state().message_for(1, 1)), (1, other.state().message_for(1, 1))])
    };
    assert_eq!(document(&one, &other).json(), r#"{"1":{"type":"triggerDrain","message":"seqId=1"}}"#);
    one.takes(31, &reset());
    let both = document(&one, &other);
    assert_eq!(
        both.json(),
        r#"{"0":{"type":"triggerReset","message":"seqId=0;resetAttempt=0"},"1":{"type":"triggerDrain","message":"seqId=1"}}"#
    );
    assert_eq!(both.datagram().map(|datagram| datagram.len()), Some(112));
    other.takes(32, &unhealthy());
    assert_eq!(document(&one, &other).message(1), None);
}
