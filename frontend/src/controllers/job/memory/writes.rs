//! What was just written or deleted and the mirrors do not show like that yet, and writes that were not answered.

use super::Entry;
use crate::controllers::job::owned::Owned;
use crate::controllers::times::{Clocks, after, distance};
use k8s_openapi::jiff::Timestamp;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// How long a text that was written counts as existing while the mirror does not show it.
const WRITTEN: Duration = Duration::from_secs(30);

/// How long a write may have its effect after nobody waits for it any more: longer than the API server works on a
/// request (60 s by default).
const UNANSWERED: Duration = Duration::from_secs(120);

impl Entry {
    /// Nobody knows whether a write of the job that follows this version has its effect.
    pub(crate) fn lost_answer(&mut self, follows: u64, passed: Duration) {
        self.unanswered = Some((follows, passed));
    }

    /// Until when the status may get to name more than is seen at this version of the job. After that the API server
    /// is to be asked.
    pub(crate) fn unanswered_until(&mut self, seen: u64, clocks: Clocks) -> Option<Timestamp> {
        self.unanswered = self.unanswered.filter(|(follows, _)| seen <= *follows);
        self.unanswered.map(|(_, lost)| after(clocks.time_of(lost), UNANSWERED))
    }

    /// The job is looked at in this version.
    pub(crate) fn saw(&mut self, version: u64) {
        self.seen = version;
    }

    /// Whether this version of the job is older than the one that was looked at, or written, last (rule call-28). A
    /// version that is no number cannot be compared.
    pub(crate) fn is_behind(&self, version: u64) -> bool {
        0 < version && version < self.seen
    }

    /// The API server has said that it does not have the job any more.
    pub(super) fn heard_of_end(&mut self, passed: Duration) {
        self.gone = Some(passed);
    }

    /// How long ago the API server has said that it does not have the job any more; `None` if it has not, or has had it
    /// since.
    pub(crate) fn gone_for(&self, passed: Duration) -> Option<Duration> {
        self.gone.map(|said| passed.saturating_sub(said))
    }

    /// The API server has said how the job is.
    pub(crate) fn was_answered(&mut self) {
        self.unanswered = None;
    }

    /// A ConfigMap was written.
    pub(crate) fn wrote(&mut self, name: String, now: Timestamp) {
        self.written.insert(name, now);
        self.refusals.wrote();
    }

    /// Whether a ConfigMap was written not long ago. The mirror may not show it.
    pub(crate) fn has_written(&self, name: &str) -> bool {
        self.written.contains_key(name)
    }

    /// A chunk of a plan was written.
    pub(crate) fn stored(&mut self, name: String, now: Timestamp) {
        self.stored.insert(name, now);
    }

    /// ConfigMaps with texts that were just written and that the mirror does not show. `seen` says whether it shows
    /// one.
    pub(crate) fn just_written(&mut self, now: Timestamp, seen: impl Fn(&str) -> bool) -> Vec<String> {
        keep_unseen(&mut self.written, now, seen);
        self.written.keys().cloned().collect()
    }

    /// The same, with chunks of plans.
    pub(crate) fn just_stored(&mut self, now: Timestamp, seen: impl Fn(&str) -> bool) -> BTreeSet<String> {
        keep_unseen(&mut self.stored, now, seen);
        self.stored.keys().cloned().collect()
    }

    /// When the first of what was just written stops counting as existing.
    pub(crate) fn written_until(&self) -> Option<Timestamp> {
        let first = self.written.values().chain(self.stored.values()).min();
        let until = first.map(|at| at.checked_add(WRITTEN).unwrap_or(Timestamp::MAX));
        until.into_iter().chain(self.own_writes.until()).min()
    }

    /// The object with this uid was deleted.
    pub(crate) fn deleted(&mut self, owned: Owned, uid: String, now: Timestamp) {
        self.forget_written(&owned);
        if let Owned::Child(child) = &owned {
            // It is gone now, and not out of sight.
            self.relabelled.remove(child);
        }
        self.own_writes.note_deletion(owned, uid, now);
    }

    /// An object of the job, with this uid, has left its mirror.
    pub(super) fn departed(&mut self, owned: &Owned, uid: Option<&str>) {
        if self.own_writes.has_deleted(owned, uid) {
            // What was written since is another object. The look that follows finds that it is gone.
            return;
        }
        self.own_writes.forget(owned);
        self.forget_written(owned);
    }

    fn forget_written(&mut self, owned: &Owned) {
        if let Owned::ConfigMap(name) = owned {
            self.written.remove(name);
            self.stored.remove(name);
        }
    }
}

/// Keeps what was written not long ago and is not shown yet.
fn keep_unseen(written: &mut BTreeMap<String, Timestamp>, now: Timestamp, seen: impl Fn(&str) -> bool) {
    written.retain(|name, at| distance(*at, now) < WRITTEN && !seen(name));
    if written.is_empty() {
        // A map that was emptied keeps its memory, of each job.
        *written = BTreeMap::new();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controllers::job::memory::plans::Plans;

    #[test]
    fn what_was_just_written_counts_until_it_is_seen_or_for_a_while() {
        let mut entry = Entry::new(Plans::new(1_000).of_job("u"));
        let at = |second: u64| Timestamp::from_second(1_000 + i64::try_from(second).unwrap()).unwrap();
        entry.wrote("x".to_owned(), at(0));
        entry.wrote("y".to_owned(), at(0));
        let mut written = |seen: &str, now: u64| entry.just_written(at(now), |name| name == seen);
        assert_eq!(written("", 0), ["x", "y"]);
        assert_eq!(written("y", 1), ["x"]);
        assert!(written("", WRITTEN.as_secs()).is_empty());
    }

    #[test]
    fn what_was_written_by_a_clock_that_was_put_back_since_does_not_count_until_its_time_has_come() {
        let at = |second: i64| Timestamp::from_second(100_000 + second).unwrap();
        // second of the look after a write in second 0 -> it counts
        for (second, expected) in [(0, true), (29, true), (30, false), (-29, true), (-30, false), (-86_400, false)] {
            let mut entry = Entry::new(Plans::new(1_000).of_job("u"));
            entry.wrote("x".to_owned(), at(0));
            assert_eq!(!entry.just_written(at(second), |_| false).is_empty(), expected, "{second}");
        }
    }

    #[test]
    fn how_long_a_write_may_still_have_its_effect_does_not_depend_on_the_time_of_day() {
        let mut entry = Entry::new(Plans::new(1_000).of_job("u"));
        let at = |second: i64| Timestamp::from_second(100_000 + second).unwrap();
        entry.lost_answer(7, Duration::from_secs(50));
        // time of day, seconds that have passed, version that is seen -> until when
        for (now, passed, seen, until) in [(0, 50, 7, Some(120)), (-9_000, 60, 6, Some(-8_890)), (0, 60, 8, None)] {
            let clocks = Clocks { now: at(now), passed: Duration::from_secs(passed) };
            assert_eq!(entry.unanswered_until(seen, clocks), until.map(at), "{now} {passed} {seen}");
        }
    }

    /// If somebody deletes it before the mirror shows it, nothing else brings another look.
    #[test]
    fn it_is_known_when_the_first_of_what_was_written_stops_counting() {
        let at = |second: i64| Timestamp::from_second(1_000 + second).unwrap();
        // second in which a text was written, a chunk -> when the first of them stops counting
        let table =
            [(None, None, None), (Some(3), None, Some(33)), (None, Some(5), Some(35)), (Some(7), Some(5), Some(35))];
        for (text, chunk, expected) in table {
            let mut entry = Entry::new(Plans::new(1_000).of_job("u"));
            text.into_iter().for_each(|second| entry.wrote("text".to_owned(), at(second)));
            chunk.into_iter().for_each(|second| entry.stored("chunk".to_owned(), at(second)));
            assert_eq!(entry.written_until(), expected.map(at), "{text:?} {chunk:?}");
            // Once they are shown there is nothing to wait for.
            entry.just_written(at(9), |_| true);
            entry.just_stored(at(9), |_| true);
            assert_eq!(entry.written_until(), None);
        }
    }
}
