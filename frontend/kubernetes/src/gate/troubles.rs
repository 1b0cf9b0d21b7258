//! Namespaces whose calls fail, or take long, because of what they ask for: an admission webhook of theirs is down,
//! silent, or slow. Each of their calls may keep its place for seconds. Reads no clock.
//!
//! A call that fails says so by itself. One that is answered late says it only beside others: as long as writes of
//! another namespace are answered quickly, it is not the API server. One such call says nothing, as everything stands
//! still now and then; the next one that begins after it does.
//!
//! Invariants: what is slow for everybody puts nobody in trouble. Nothing is kept of a namespace that has written
//! nothing for a minute, and none is in trouble that had no such call for a minute.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// A write that takes so long is slow. No write of this program does, unless something is wrong.
pub(super) const SLOW: Duration = Duration::from_secs(1);
/// It is slow alone if it takes so many times as long as those of another namespace do lately.
const TIMES: f64 = 16.0;
/// Lately is the last so many writes, about.
const LATELY: f64 = 8.0;
/// So many writes of a namespace show how long they take.
const ENOUGH: u32 = 4;
/// So long after the last such call a namespace counts as one in trouble: perhaps others of its calls are as usual.
const REMEMBERED_FOR: Duration = Duration::from_secs(60);
/// Not for so long, if as many writes as these were as usual since then, one after the other.
const GOES_WELL: u32 = 16;
/// But for so long at least.
const REMEMBERED_AT_LEAST: Duration = Duration::from_secs(10);
/// A call that failed although a write was answered so short a time before did not fail because of the API server.
const JUST_BEFORE: Duration = Duration::from_secs(1);

/// By namespace.
#[derive(Debug, Default)]
pub(super) struct Troubles {
    by_namespace: HashMap<Arc<str>, Writes>,
    /// Until when any of them may be in trouble.
    until: Option<Instant>,
    /// When a write was answered last, and not slowly.
    answered_at: Option<Instant>,
}

/// What the writes of a namespace show.
#[derive(Clone, Copy, Debug)]
struct Writes {
    /// How many were answered, and how long they take lately, in seconds.
    answered: u32,
    lately: f64,
    /// When the last one was answered, or failed.
    last: Instant,
    /// When one had ended that was slow alone: what began before proves nothing.
    suspected_at: Option<Instant>,
    /// When the last one had ended that shows that the namespace is in trouble.
    trouble_at: Option<Instant>,
    /// Nobody's writes were answered then: perhaps it was the API server.
    is_with_all: bool,
    /// How many were as usual since then, one after the other.
    went_well: u32,
}

impl Writes {
    fn new(now: Instant) -> Self {
        let (suspected_at, trouble_at) = (None, None);
        Self { answered: 0, lately: 0.0, last: now, suspected_at, trouble_at, is_with_all: false, went_well: 0 }
    }

    fn note(&mut self, took: f64) {
        self.lately = if self.answered == 0 { took } else { self.lately + (took - self.lately) / LATELY };
        self.answered = self.answered.saturating_add(1);
    }

    /// Its writes show that the API server answers others much more quickly than this one, which began then.
    fn are_quick_beside(&self, took: f64, begun: Instant) -> bool {
        self.answered >= ENOUGH && self.last >= begun && TIMES * self.lately < took
    }

    /// One that began then was slow alone. Returns whether the namespace is in trouble, therefore.
    fn was_slow_alone(&mut self, begun: Instant, now: Instant) -> bool {
        let suspected_at = self.suspected_at.filter(|at| now.saturating_duration_since(*at) < REMEMBERED_FOR);
        let is_shown = suspected_at.is_some_and(|at| begun >= at);
        if is_shown {
            self.trouble_at = Some(now);
            self.is_with_all = false;
        }
        if is_shown || suspected_at.is_none() {
            self.suspected_at = Some(now);
        }
        is_shown
    }

    fn is_in_trouble(&self, now: Instant) -> bool {
        self.trouble_at.is_some_and(|at| {
            let since = now.saturating_duration_since(at);
            let goes_well = self.went_well >= GOES_WELL && since >= REMEMBERED_AT_LEAST;
            since < REMEMBERED_FOR && !goes_well
        })
    }
}

impl Troubles {
    /// A try of a call of this namespace failed because of what it asked for.
    pub(super) fn failed(&mut self, namespace: &Arc<str>, now: Instant) {
        let is_with_all = self.answered_at.is_none_or(|at| now.saturating_duration_since(at) >= JUST_BEFORE);
        let writes = self.writes(namespace, now);
        writes.trouble_at = Some(now);
        writes.is_with_all = is_with_all;
        writes.went_well = 0;
        self.until = Some(now + REMEMBERED_FOR);
    }

    /// A write of this namespace was answered at its first try, and took so long.
    pub(super) fn wrote(&mut self, namespace: &Arc<str>, took: Duration, now: Instant) {
        let (seconds, begun) = (took.as_secs_f64(), now.checked_sub(took).unwrap_or(now));
        let mut others = self.by_namespace.iter().filter(|(other, _)| *other != namespace);
        let is_slow = took >= SLOW;
        let is_slow_alone = is_slow && others.any(|(_, writes)| writes.are_quick_beside(seconds, begun));
        let writes = self.writes(namespace, now);
        writes.note(seconds);
        writes.went_well = if is_slow { 0 } else { writes.went_well.saturating_add(1) };
        if is_slow_alone && writes.was_slow_alone(begun, now) {
            self.until = Some(now + REMEMBERED_FOR);
        }
        if !is_slow {
            self.answered_at = Some(now);
        }
    }

    fn writes(&mut self, namespace: &Arc<str>, now: Instant) -> &mut Writes {
        let writes = self.by_namespace.entry(Arc::clone(namespace)).or_insert_with(|| Writes::new(now));
        writes.last = now;
        writes
    }

    /// It is in trouble.
    pub(super) fn has(&self, namespace: &str, now: Instant) -> bool {
        let may_any = self.until.is_some_and(|until| now < until);
        may_any && self.by_namespace.get(namespace).is_some_and(|writes| writes.is_in_trouble(now))
    }

    /// It is in trouble, and as far as is known others were, too, when it was last seen to be.
    pub(super) fn has_with_all(&self, namespace: &str, now: Instant) -> bool {
        self.has(namespace, now) && self.by_namespace.get(namespace).is_some_and(|writes| writes.is_with_all)
    }

    pub(super) fn forget_what_is_past(&mut self, now: Instant) {
        self.by_namespace.retain(|_, writes| now.saturating_duration_since(writes.last) < REMEMBERED_FOR);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How long the write with this number takes, in milliseconds.
    type Takes<'a> = &'a dyn Fn(u64) -> u64;

    fn ms(milliseconds: u64) -> Duration {
        Duration::from_millis(milliseconds)
    }

    /// Writes of namespaces that go on at the same time, one after the other in each of them, until so many seconds
    /// have passed. Returns the namespaces that were in trouble at any time.
    fn in_trouble(seconds: u64, of: &[(&str, Takes<'_>)]) -> Vec<String> {
        let (mut troubles, start) = (Troubles::default(), Instant::now());
        let mut ends: Vec<(u64, usize, u64)> = Vec::new();
        for (namespace, (_, takes)) in of.iter().enumerate() {
            let (mut now, mut number) = (0, 0);
            while now < 1_000 * seconds {
                let took = takes(number);
                now += took;
                number += 1;
                ends.push((now, namespace, took));
            }
        }
        ends.sort_unstable();
        let mut found = Vec::new();
        for (now, namespace, took) in ends {
            let (namespace, now) = (of[namespace].0, start + ms(now));
            troubles.wrote(&namespace.into(), ms(took), now);
            if troubles.has(namespace, now) && !found.contains(&namespace.to_owned()) {
                found.push(namespace.to_owned());
            }
        }
        found.sort();
        found
    }

    #[test]
    fn who_alone_is_answered_late_is_in_trouble_and_nobody_is_when_all_are() {
        let usual = |_: u64| 20_u64;
        let late = |_: u64| 3_000_u64;
        // Between half a second and three, in no order.
        let any = |number: u64| 500 + (number * 7_919) % 2_500;
        let any_other = |number: u64| 500 + (number * 6_131 + 999) % 2_500;
        let sometimes = |number: u64| if number.is_multiple_of(20) { 3_000_u64 } else { 20 };
        let once = |number: u64| if number == 200 { 4_000_u64 } else { 20 };
        let becomes_slow = |number: u64| if number < 100 { 20_u64 } else { 2_000 };
        let a_second = |_: u64| 1_000_u64;
        // how long the writes of each namespace take -> which are in trouble
        let table: [(&[(&str, Takes<'_>)], &[&str]); 10] = [
            (&[("a", &late), ("b", &usual)], &["a"]),
            (&[("a", &late), ("b", &late), ("c", &usual)], &["a", "b"]),
            (&[("a", &sometimes), ("b", &usual)], &["a"]),
            (&[("a", &late)], &[]),
            (&[("a", &late), ("b", &late)], &[]),
            (&[("a", &any), ("b", &any_other), ("c", &any)], &[]),
            (&[("a", &late), ("b", &a_second)], &[]),
            // Everything stands still once, or is slow from then on.
            (&[("a", &once), ("b", &once), ("c", &once)], &[]),
            (&[("a", &becomes_slow), ("b", &becomes_slow)], &[]),
            (&[("a", &usual), ("b", &usual)], &[]),
        ];
        for (number, (of, expected)) in table.into_iter().enumerate() {
            assert_eq!(in_trouble(30, of), expected, "row {number}");
        }
    }

    #[test]
    fn what_fails_while_nobody_is_answered_fails_with_all() {
        let start = Instant::now() + REMEMBERED_FOR;
        // milliseconds between the last write that was answered and one that fails, how long that write took, whose it
        // was -> it fails with all
        let table = [
            (None, true),
            (Some((999, 20, "b")), false),
            (Some((1_000, 20, "b")), true),
            (Some((0, 1_000, "b")), true),
            // Something else that the namespace itself writes.
            (Some((500, 20, "a")), false),
        ];
        for (answered, expected) in table {
            let mut troubles = Troubles::default();
            if let Some((before, took, namespace)) = answered {
                troubles.wrote(&namespace.into(), ms(took), start - ms(before));
            }
            troubles.failed(&"a".into(), start);
            assert_eq!(troubles.has_with_all("a", start), expected, "{answered:?}");
            // Others are answered later: that says nothing of it, until it fails once more.
            troubles.wrote(&"b".into(), ms(20), start + ms(10));
            assert_eq!(troubles.has_with_all("a", start + ms(20)), expected, "{answered:?}");
            troubles.failed(&"a".into(), start + ms(30));
            assert!(troubles.has("a", start + ms(30)) && !troubles.has_with_all("a", start + ms(30)));
            assert!(!troubles.has_with_all("b", start + ms(30)), "it is in no trouble");
        }
    }

    #[test]
    fn a_namespace_in_trouble_is_forgotten_and_earlier_if_all_goes_well() {
        let start = Instant::now();
        // writes that are as usual after a failure, one of them slow -> in trouble after so many milliseconds
        let table = [
            (0, false, 59_999, true),
            (0, false, 60_000, false),
            (15, false, 59_999, true),
            (16, false, 9_999, true),
            (16, false, 10_000, false),
            (16, true, 10_000, true),
            (40, true, 10_000, false),
        ];
        for (writes, one_is_slow, milliseconds, expected) in table {
            let (mut troubles, namespace) = (Troubles::default(), Arc::from("a"));
            troubles.failed(&namespace, start);
            assert!(troubles.has("a", start) && !troubles.has("b", start));
            for number in 0..writes {
                let took = if one_is_slow && number == 8 { SLOW } else { ms(20) };
                troubles.wrote(&namespace, took, start);
            }
            let now = start + ms(milliseconds);
            assert_eq!(troubles.has("a", now), expected, "{writes} {one_is_slow} {milliseconds} ms");
            troubles.forget_what_is_past(now);
            assert_eq!(troubles.has("a", now), expected, "{writes} {one_is_slow} {milliseconds} ms");
            troubles.forget_what_is_past(start + REMEMBERED_FOR);
            assert!(troubles.by_namespace.is_empty());
        }
    }
}
