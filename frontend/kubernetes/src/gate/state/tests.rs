//! Who is let in next, in tables.

use super::*;
use proptest::prelude::*;

const LIMITS: Limits = Limits { all: 6, alone: 4, beside_others: 2, patient: 1, awaited: 3 };

/// Calls that wait, as `namespace priority`; the names of those that were let in, in order.
fn let_in(state: &mut State<&'static str>, now: Instant) -> Vec<&'static str> {
    std::iter::from_fn(|| state.next(now, |_| true)).collect()
}

fn ask(state: &mut State<&'static str>, calls: &[&'static str], now: Instant) {
    for call in calls {
        let (namespace, priority) = of(call);
        state.ask(Owner { namespace, ..Owner::default() }, Arc::default(), priority, call, now);
    }
}

/// `a-urgent-1` is a call of namespace `a`.
fn of(call: &str) -> (Arc<str>, Priority) {
    let mut parts = call.split('-');
    let namespace = parts.next().unwrap().into();
    let name = parts.next().unwrap();
    (namespace, Priority::ALL.into_iter().find(|priority| priority.name() == name).unwrap())
}

#[test]
fn what_others_wait_for_goes_first_and_what_only_tells_goes_last() {
    let now = Instant::now();
    let mut state = State::new(Limits { alone: 6, ..LIMITS });
    let calls = ["a-telling", "a-preparing", "a-normal-1", "a-launching", "a-freeing", "a-normal-2"];
    ask(&mut state, &calls, now);
    let expected = ["a-freeing", "a-launching", "a-normal-1", "a-normal-2", "a-preparing", "a-telling"];
    assert_eq!(let_in(&mut state, now), expected);
    let mut state = State::new(Limits { alone: 6, ..LIMITS });
    ask(&mut state, &["a-freeing", "a-urgent", "a-awaited"], now);
    assert_eq!(let_in(&mut state, now), ["a-awaited", "a-urgent", "a-freeing"]);
}

#[test]
fn while_awaited_calls_take_longer_than_usual_fewer_urgent_ones_go_on() {
    let now = Instant::now();
    let limits = Limits { all: 9, alone: 6, beside_others: 6, patient: 2, awaited: 9 };
    // milliseconds of the last awaited calls, seconds since then -> urgent ones that go on
    for (milliseconds, seconds, expected) in [(10, 0, 6), (20, 0, 2), (20, 1, 6)] {
        let mut state = State::new(limits);
        for took in [10, milliseconds, milliseconds, milliseconds, milliseconds, milliseconds, milliseconds] {
            ask(&mut state, &["b-awaited"], now);
            let_in(&mut state, now);
            state.leave(&"b".into(), Priority::Awaited, now, Some(Duration::from_millis(took)));
        }
        let now = now + seconds * GOING_ON;
        ask(&mut state, &["a-urgent"; 9], now);
        assert_eq!(let_in(&mut state, now).len(), expected, "{milliseconds} ms, {seconds} s");
    }
}

#[test]
fn an_urgent_call_that_waits_for_long_makes_way_for_nobody() {
    let start = Instant::now();
    let limits = Limits { all: 12, alone: 8, beside_others: 8, patient: 1, awaited: 8 };
    // milliseconds that urgent calls wait -> awaited and urgent ones that go on, of a namespace that is alone
    for (waited, expected) in [(0, (4, 1)), (999, (4, 1)), (1_000, (4, 4))] {
        let mut state = State::new(limits);
        for took in [10, 20, 20, 20, 20, 20, 20] {
            ask(&mut state, &["a-awaited"], start);
            let_in(&mut state, start);
            state.leave(&"a".into(), Priority::Awaited, start, Some(Duration::from_millis(took)));
        }
        ask(&mut state, &["a-urgent"; 9], start);
        let now = start + Duration::from_millis(waited);
        ask(&mut state, &["a-awaited"; 9], now);
        let all = let_in(&mut state, now);
        let count = |call: &str| all.iter().filter(|other| **other == call).count();
        assert_eq!((count("a-awaited"), count("a-urgent")), expected, "{waited} ms: {all:?}");
        assert_eq!(state.urgent_since.len(), 9 - expected.1);
    }
}

#[test]
fn a_namespace_has_most_of_it_alone_and_its_part_beside_others() {
    let now = Instant::now();
    let many = ["a-normal-1", "a-normal-2", "a-normal-3", "a-normal-4", "a-normal-5"];
    let mut state = State::new(LIMITS);
    ask(&mut state, &many, now);
    assert_eq!(let_in(&mut state, now), many[..4]);
    let mut state = State::new(LIMITS);
    ask(&mut state, &many, now);
    ask(&mut state, &["b-normal-1"], now);
    assert_eq!(let_in(&mut state, now), ["a-normal-1", "b-normal-1", "a-normal-2"]);
    // The other one is gone, but may come back at once; a moment later it is forgotten.
    state.leave(&"b".into(), Priority::Normal, now, None);
    assert_eq!(let_in(&mut state, now), [""; 0]);
    assert_eq!(let_in(&mut state, now + GOING_ON), ["a-normal-3", "a-normal-4"]);
}

#[test]
fn a_namespace_that_is_waited_for_has_its_part_beside_others_that_are() {
    let now = Instant::now();
    // calls of others -> how many awaited ones of a namespace go on
    let table: [(&[&'static str], usize); 4] =
        [(&[], 4), (&["b-normal", "c-telling"], 4), (&["b-awaited"], 2), (&["b-urgent"], 2)];
    for (others, expected) in table {
        let mut state = State::new(LIMITS);
        ask(&mut state, others, now);
        let_in(&mut state, now);
        ask(&mut state, &["a-awaited"; 6], now);
        assert_eq!(let_in(&mut state, now).len(), expected, "{others:?}");
    }
    // Others that were waited for are forgotten a moment later, although they go on with other calls.
    let mut state = State::new(LIMITS);
    ask(&mut state, &["b-awaited"], now);
    let_in(&mut state, now);
    state.leave(&"b".into(), Priority::Awaited, now, None);
    let later = now + GOING_ON;
    ask(&mut state, &["b-normal"], later);
    ask(&mut state, &["a-awaited"; 6], later);
    assert_eq!(let_in(&mut state, later), ["a-awaited", "a-awaited", "a-awaited", "a-awaited", "b-normal"]);
}

#[test]
fn while_something_is_urgent_the_rest_is_patient_and_goes_on() {
    let now = Instant::now();
    let mut state = State::new(LIMITS);
    ask(&mut state, &["a-normal-1", "a-normal-2", "b-urgent-1", "c-freeing-1"], now);
    assert_eq!(let_in(&mut state, now), ["b-urgent-1", "c-freeing-1"]);
    state.leave(&"b".into(), Priority::Urgent, now, None);
    assert_eq!(let_in(&mut state, now), [""; 0], "its next call may come at once");
    state.leave(&"c".into(), Priority::Freeing, now, None);
    assert_eq!(let_in(&mut state, now), ["a-normal-1"], "one of them always goes on");
    assert_eq!(let_in(&mut state, now + GOING_ON), ["a-normal-2"]);
}

#[test]
fn while_urgent_calls_take_longer_than_usual_one_other_goes_on_at_a_time() {
    let now = Instant::now();
    let limits = Limits { all: 6, alone: 4, beside_others: 4, patient: 3, awaited: 6 };
    // milliseconds of the last urgent calls -> others beside the next
    for (milliseconds, expected) in [(10, 3), (20, 1)] {
        let mut state = State::new(limits);
        for took in [10, milliseconds, milliseconds, milliseconds, milliseconds, milliseconds, milliseconds] {
            ask(&mut state, &["b-urgent"], now);
            let_in(&mut state, now);
            state.leave(&"b".into(), Priority::Urgent, now, Some(Duration::from_millis(took)));
        }
        ask(&mut state, &["a-normal"; 5], now);
        assert_eq!(let_in(&mut state, now).len(), expected, "{milliseconds} ms");
    }
}

#[test]
fn while_urgent_calls_take_longer_than_usual_patient_ones_rest() {
    let now = Instant::now();
    let ms = Duration::from_millis;
    // milliseconds of the last urgent calls, who has ended and how long that took -> how long it keeps its place
    let table = [
        (10, Priority::Normal, 30, None),
        (20, Priority::Normal, 30, Some(60)),
        (20, Priority::Launching, 30, Some(60)),
        (20, Priority::Preparing, 30, Some(60)),
        (20, Priority::Telling, 30, Some(60)),
        (20, Priority::Normal, 500, Some(250)),
        (20, Priority::Freeing, 30, None),
        (20, Priority::Urgent, 30, None),
        (20, Priority::Awaited, 30, None),
    ];
    for (milliseconds, priority, took, expected) in table {
        let mut state = State::new(LIMITS);
        for took in [10, milliseconds, milliseconds, milliseconds, milliseconds, milliseconds, milliseconds] {
            ask(&mut state, &["b-urgent"], now);
            let_in(&mut state, now);
            state.leave(&"b".into(), Priority::Urgent, now, Some(ms(took)));
        }
        assert_eq!(state.rest(priority, ms(took)), expected.map(ms), "{milliseconds} {priority:?} {took}");
        // Nothing is urgent any more.
        state.forget_who_is_gone(now + GOING_ON);
        assert_eq!(state.rest(priority, ms(took)), None, "{milliseconds} {priority:?} {took}");
    }
}

#[test]
fn while_something_is_urgent_no_namespace_has_all_that_others_wait_for() {
    let now = Instant::now();
    let limits = Limits { all: 24, alone: 16, beside_others: 6, patient: 4, awaited: 12 };
    // at most so many, calls that wait, nine of each -> calls of each namespace that go on
    let flood = |call: &'static str| [call; 9];
    let table: [(usize, &[&'static str], [usize; 3]); 8] = [
        (4, &["a-normal"], [4, 0, 0]),
        (4, &["a-normal", "b-normal"], [2, 2, 0]),
        (4, &["a-freeing", "b-telling"], [2, 2, 0]),
        (4, &["a-normal", "b-normal", "c-normal"], [2, 1, 1]),
        (3, &["a-normal", "b-normal"], [2, 1, 0]),
        (2, &["a-normal", "b-normal"], [1, 1, 0]),
        (1, &["a-normal", "b-normal"], [1, 0, 0]),
        // What is urgent is no such call.
        (4, &["a-normal", "b-awaited"], [4, 6, 0]),
    ];
    for (patient, floods, expected) in table {
        let mut state = State::new(Limits { patient, ..limits });
        ask(&mut state, &["d-urgent"], now);
        let_in(&mut state, now);
        floods.iter().for_each(|call| ask(&mut state, &flood(call), now));
        let all = let_in(&mut state, now);
        let count = |namespace: &str| all.iter().filter(|call| call.starts_with(namespace)).count();
        assert_eq!(["a", "b", "c"].map(count), expected, "{patient} {floods:?}");
    }
    // Nothing is urgent.
    let mut state = State::new(limits);
    ask(&mut state, &flood("a-normal"), now);
    ask(&mut state, &["b-normal"], now);
    assert_eq!(let_in(&mut state, now).len(), 7);
}

/// Calls that were let in, of this namespace and priority.
fn count(calls: &[&'static str], of: &str) -> usize {
    calls.iter().filter(|call| call.starts_with(of)).count()
}

/// Seconds since calls of `a` and `b` have failed, whether a write was answered just before, others that have just made
/// a call -> calls of those in trouble that are let in, and those of others that are let in then.
type RowOfTrouble =
    (u64, bool, &'static [&'static str], &'static [(&'static str, usize)], &'static [(&'static str, usize)]);

#[test]
fn namespaces_in_trouble_have_a_part_of_their_own_while_others_go_on() {
    let start = Instant::now();
    let limits = Limits { all: 24, alone: 16, beside_others: 6, patient: 4, awaited: 12 };
    let table: [RowOfTrouble; 12] = [
        // Of what others share beside urgent calls, half, and besides.
        (0, true, &["c-urgent"], &[("a-normal", 1), ("b-normal", 1)], &[("d-normal", 4)]),
        (0, true, &["c-urgent", "d-normal"], &[("a-normal", 1), ("b-normal", 1)], &[("d-normal", 4)]),
        (59, true, &["c-urgent"], &[("a-normal", 2)], &[("d-normal", 4)]),
        (60, true, &["c-urgent"], &[("a-normal", 4)], &[("d-normal", 0)]),
        // A third of all.
        (0, true, &["c-normal"], &[("a-normal", 4), ("b-normal", 4)], &[("d-normal", 6), ("c-normal", 6)]),
        (0, true, &["c-normal"], &[("a-urgent", 4), ("b-urgent", 4)], &[("d-normal", 4), ("c-awaited", 6)]),
        (0, true, &["c-normal"], &[("a-awaited", 8)], &[("d-awaited", 6), ("c-urgent", 6)]),
        // All are: it is the API server. Whoever comes finds something, nevertheless.
        (0, true, &[], &[("a-normal", 6), ("b-normal", 6)], &[("d-normal", 6)]),
        (0, true, &["a-urgent"], &[("a-normal", 2), ("b-normal", 2)], &[("d-normal", 4)]),
        // A list of all namespaces.
        (0, true, &["-normal"], &[("a-normal", 6), ("b-normal", 6)], &[("d-normal", 6)]),
        // All were, and whoever goes on now made no call then.
        (0, false, &["c-normal"], &[("a-normal", 6), ("b-normal", 6)], &[("d-normal", 6)]),
        (0, false, &["c-urgent"], &[("a-normal", 2), ("b-normal", 2)], &[("d-normal", 4)]),
    ];
    for (seconds, is_answered, before, in_trouble, others) in table {
        let mut state = State::new(limits);
        if is_answered {
            state.heard(&"e".into(), Said::Wrote(Duration::from_millis(20)), start);
        }
        for namespace in ["a", "b"] {
            state.heard(&namespace.into(), Said::Failed, start);
        }
        let now = start + Duration::from_secs(seconds);
        ask(&mut state, before, now);
        for call in let_in(&mut state, now) {
            let (namespace, priority) = of(call);
            state.leave(&namespace, priority, now, None);
        }
        for calls in [in_trouble, others] {
            calls.iter().for_each(|(call, _)| ask(&mut state, &[*call; 9], now));
            let all = let_in(&mut state, now);
            for (call, expected) in calls {
                assert_eq!(count(&all, call), *expected, "{call} {seconds} s {is_answered} {before:?}: {all:?}");
            }
        }
    }
}

#[test]
fn what_says_something_of_a_namespace_says_nothing_of_the_api_server() {
    let start = Instant::now();
    let ms = Duration::from_millis;
    // others make calls, this one is in trouble, what its end says -> how long it took, if that counts
    let table = [
        (true, false, Said::Wrote(ms(20)), Some(20)),
        (true, false, Said::Wrote(ms(999)), Some(999)),
        (true, false, Said::Wrote(ms(1_000)), None),
        (false, false, Said::Wrote(ms(1_000)), Some(1_000)),
        (true, false, Said::Read(ms(1_000)), Some(1_000)),
        (true, true, Said::Read(ms(20)), None),
        (true, true, Said::Wrote(ms(20)), None),
        (true, false, Said::Failed, None),
        (true, false, Said::Nothing, None),
    ];
    for (beside, is_in_trouble, said, expected) in table {
        let mut state = State::new(LIMITS);
        ask(&mut state, &["a-urgent"], start);
        let_in(&mut state, start);
        state.leave(&"a".into(), Priority::Urgent, start, Some(ms(20)));
        ask(&mut state, if beside { &["a-urgent", "b-normal"][..] } else { &["a-urgent"] }, start);
        let_in(&mut state, start);
        if is_in_trouble {
            state.heard(&"a".into(), Said::Failed, start);
        }
        assert_eq!(state.heard(&"a".into(), said, start), expected.map(ms), "{beside} {is_in_trouble} {said:?}");
    }
    // On an API server that is always so slow it does.
    let mut state = State::new(LIMITS);
    ask(&mut state, &["a-urgent", "b-normal"], start);
    let_in(&mut state, start);
    state.leave(&"a".into(), Priority::Urgent, start, Some(ms(500)));
    assert_eq!(state.heard(&"a".into(), Said::Wrote(ms(3_000)), start), Some(ms(3_000)));
}

#[test]
fn a_call_that_is_tried_again_is_the_next_of_its_namespace() {
    let now = Instant::now();
    let mut state = State::new(Limits { all: 4, alone: 4, beside_others: 4, patient: 4, awaited: 4 });
    ask(&mut state, &["a-normal-1", "b-normal-1"], now);
    let (namespace, priority) = of("b-normal-2");
    state.ask_again(Owner { namespace, ..Owner::default() }, Arc::default(), priority, "b-normal-2", now);
    assert_eq!(let_in(&mut state, now), ["a-normal-1", "b-normal-2", "b-normal-1"]);
}

#[test]
fn those_who_have_left_count_no_more_and_the_others_keep_their_places() {
    let now = Instant::now();
    let mut state = State::new(Limits { all: 1, ..LIMITS });
    ask(&mut state, &["a-normal"], now);
    assert_eq!(let_in(&mut state, now), ["a-normal"]);
    state.wait_no_more(true, now, |_| true);
    ask(&mut state, &["b-urgent", "b-normal"], now);
    for number in 0..LEFT_MAX + 3 {
        ask(&mut state, &[if number % 2 == 0 { "c-urgent-gone" } else { "c-normal-gone" }], now);
        state.wait_no_more(false, now, |call| !call.ends_with("gone"));
    }
    let counted = |of: &str| state.namespaces.get(of).map(|of| (of.waiting, of.impatient, of.patient_waiting));
    assert_eq!((counted("b"), counted("c")), (Some((2, 1, 1)), Some((0, 0, 0))));
    assert_eq!(state.urgent_since.len(), 1);
    for (ended, next) in [("a-normal", "b-urgent"), ("b-urgent", "b-normal")] {
        let (namespace, priority) = of(ended);
        state.leave(&namespace, priority, now, None);
        assert_eq!(let_in(&mut state, now), [next]);
    }
}

#[test]
fn a_flood_lets_every_lower_priority_through() {
    let now = Instant::now();
    let table: [(&'static str, &[(&'static str, usize)]); 3] = [
        ("a-launching", &[("a-normal", 9), ("a-preparing", 19), ("a-telling", 29)]),
        ("a-urgent", &[("a-freeing", 9), ("a-normal", 19), ("a-telling", 29)]),
        ("a-awaited", &[("a-urgent", 9), ("a-freeing", 19), ("a-normal", 29), ("a-telling", 39)]),
    ];
    for (flood, others) in table {
        let mut state = State::new(Limits { all: 1, alone: 1, beside_others: 1, patient: 1, awaited: 1 });
        ask(&mut state, &[flood; 100], now);
        others.iter().for_each(|(other, _)| ask(&mut state, &[other], now));
        let mut order = Vec::new();
        while let Some(call) = state.next(now, |_| true) {
            order.push(call);
            let (namespace, priority) = of(call);
            state.leave(&namespace, priority, now, None);
        }
        assert_eq!(order.len(), 100 + others.len());
        for (call, most) in others {
            let at = order.iter().position(|other| other == call).unwrap();
            assert!(at <= *most, "{call} is number {at} in a flood of {flood}");
        }
    }
}

#[test]
fn while_urgent_calls_wait_only_a_part_of_those_under_way_are_awaited() {
    let now = Instant::now();
    // urgent calls that wait -> awaited ones and urgent ones that are let in
    for (urgent, expected) in [(0, (6, 0)), (1, (5, 1)), (2, (4, 2)), (9, (3, 3))] {
        let mut state = State::new(Limits { alone: 6, beside_others: 6, ..LIMITS });
        ask(&mut state, &["a-awaited"; 9], now);
        ask(&mut state, &["b-urgent"; 9][..urgent], now);
        let all = let_in(&mut state, now);
        let count = |call: &str| all.iter().filter(|other| **other == call).count();
        assert_eq!((count("a-awaited"), count("b-urgent")), expected, "{urgent}: {all:?}");
    }
}

/// A lower priority whose turn it is, but which has to wait for its own kind, keeps its turn.
#[test]
fn nobody_takes_the_turn_of_a_priority_that_is_held_up() {
    let now = Instant::now();
    let mut state = State::new(Limits { all: 2, alone: 2, beside_others: 2, patient: 1, awaited: 2 });
    ask(&mut state, &["b-freeing-1"], now);
    assert_eq!(let_in(&mut state, now), ["b-freeing-1"]);
    ask(&mut state, &["a-awaited"; 40], now);
    ask(&mut state, &["a-urgent"; 20], now);
    ask(&mut state, &["b-freeing-2"], now);
    // The first freeing call takes as long as thirty others.
    for number in 0..30 {
        let call = state.next(now, |_| true).unwrap();
        assert_ne!(call, "b-freeing-2", "{number}");
        let (namespace, priority) = of(call);
        state.leave(&namespace, priority, now, None);
    }
    state.leave(&"b".into(), Priority::Freeing, now, None);
    assert_eq!(state.next(now, |_| true), Some("b-freeing-2"));
}

#[test]
fn it_is_crowded_while_calls_wait_or_most_places_are_taken() {
    let now = Instant::now();
    let limits = Limits { all: 4, alone: 4, beside_others: 4, patient: 4, awaited: 4 };
    // calls, at most so many of a namespace -> is it crowded for it, for others
    let table = [
        (0, 4, false, false),
        (2, 4, false, false),
        (3, 4, true, true),
        (4, 4, true, true),
        (1, 1, false, false),
        (2, 1, true, false),
    ];
    for (calls, alone, expected, expected_of_others) in table {
        let mut state = State::new(Limits { alone, ..limits });
        ask(&mut state, &["a-normal"; 4][..calls], now);
        let_in(&mut state, now);
        assert_eq!(state.is_crowded("a", now), expected, "{calls} {alone}");
        assert_eq!(state.is_crowded("b", now), expected_of_others, "{calls} {alone}");
        assert_eq!((state.was_crowded("a", now), state.was_crowded("b", now)), (expected, expected_of_others));
    }
}

#[test]
fn whoever_waits_for_its_own_namespace_only_makes_no_crowd_for_others() {
    let now = Instant::now();
    let limits = Limits { all: 24, alone: 16, beside_others: 6, patient: 4, awaited: 12 };
    // namespace in trouble, calls, nine of each -> for whom there is a crowd
    let table: [(&str, &[&'static str], &[&str]); 6] = [
        ("", &["a-normal", "b-normal"], &["a", "b"]),
        ("", &["a-normal", "b-normal", "c-normal"], &["a", "b", "c", "d"]),
        // They wait for what is urgent, and so would others.
        ("", &["c-urgent", "a-normal"], &["a", "b", "c", "d"]),
        ("a", &["a-normal"], &[]),
        ("a", &["c-normal", "a-normal"], &["a", "c"]),
        ("a", &["c-urgent", "a-normal"], &["a"]),
    ];
    for (in_trouble, calls, expected) in table {
        let mut state = State::new(limits);
        if !in_trouble.is_empty() {
            state.heard(&"e".into(), Said::Wrote(Duration::from_millis(20)), now);
            state.heard(&in_trouble.into(), Said::Failed, now);
        }
        for call in calls {
            ask(&mut state, &[*call; 9], now);
        }
        let_in(&mut state, now);
        let crowded: Vec<_> = ["a", "b", "c", "d"].into_iter().filter(|of| state.is_crowded(of, now)).collect();
        assert_eq!(crowded, expected, "{in_trouble} {calls:?}");
    }
}

#[test]
fn a_crowd_is_remembered_for_a_moment() {
    let now = Instant::now();
    let mut state = State::new(Limits { all: 1, alone: 1, beside_others: 1, patient: 1, awaited: 1 });
    assert!(!state.was_crowded("a", now));
    ask(&mut state, &["a-normal"; 2], now);
    for _ in 0..2 {
        assert_eq!(let_in(&mut state, now), ["a-normal"]);
        state.leave(&"a".into(), Priority::Normal, now, None);
    }
    // how long ago -> what is said
    for (ago, expected) in [(Duration::ZERO, true), (CROWDED_FOR / 2, true), (CROWDED_FOR, false)] {
        let now = now + ago;
        assert_eq!((state.is_crowded("a", now), state.was_crowded("a", now)), (false, expected), "{ago:?}");
    }
}

#[test]
fn namespaces_take_turns_whatever_they_ask_for() {
    let now = Instant::now();
    let mut state = State::new(Limits { all: 4, alone: 4, beside_others: 4, patient: 4, awaited: 4 });
    ask(&mut state, &["a-normal-1", "a-normal-2", "a-normal-3", "b-normal-1", "c-normal-1"], now);
    assert_eq!(let_in(&mut state, now), ["a-normal-1", "b-normal-1", "c-normal-1", "a-normal-2"]);
}

proptest! {
    #[test]
    fn limits_hold_and_whoever_waits_waits_for_somebody(
        steps in prop::collection::vec((0..3u8, 0..Priority::ALL.len(), any::<bool>(), 0..1500u64, 1..100u64), 1..120),
    ) {
        let mut now = Instant::now();
        let mut state = State::new(LIMITS);
        let (mut under_way, mut waiting): (Vec<(Arc<str>, Priority)>, usize) = (Vec::new(), 0);
        for (namespace, priority, leaves, millis, took) in steps {
            if leaves && !under_way.is_empty() {
                let (namespace, priority) = under_way.remove(usize::from(namespace) % under_way.len());
                let took = Duration::from_millis(took);
                let said = match took.subsec_millis() % 7 {
                    0 => Said::Failed,
                    1 => Said::Wrote(took * 50),
                    2 => Said::Nothing,
                    3 => Said::Read(took),
                    _ => Said::Wrote(took),
                };
                let took = state.heard(&namespace, said, now);
                state.leave(&namespace, priority, now, took);
            } else {
                let call = (Arc::from(namespace.to_string()), Priority::ALL[priority]);
                let owner = Owner { namespace: Arc::clone(&call.0), ..Owner::default() };
                state.ask(owner, Arc::default(), call.1, call, now);
                waiting += 1;
            }
            now += Duration::from_millis(millis);
            while let Some(call) = state.next(now, |_| true) {
                under_way.push(call);
                waiting -= 1;
            }
            prop_assert!(under_way.len() <= LIMITS.all);
            prop_assert!(waiting == 0 || !under_way.is_empty(), "nobody's end would let it in");
            prop_assert_eq!(state.under_way.all(), under_way.len());
        }
        while waiting + under_way.len() > 0 {
            let ended = under_way.pop();
            prop_assert!(ended.is_some(), "nobody's end lets it in");
            ended.into_iter().for_each(|(namespace, priority)| state.leave(&namespace, priority, now, None));
            while let Some(call) = state.next(now, |_| true) {
                under_way.push(call);
                waiting -= 1;
            }
        }
        prop_assert_eq!(waiting, 0);
        prop_assert_eq!(state.under_way, UnderWay::default());
        state.forget_who_is_gone(now + GOING_ON);
        prop_assert!(state.namespaces.is_empty() && state.impatient == 0);
    }
}
