//! Whether a request would wait for too long, judged by how fast those before it get what they wait for (rule
//! elasticity-26).
//!
//! Requests for one job are carried out together, so what counts is how many jobs wait. Namespaces are told apart: each
//! answers for its own requests, because controllers serve namespaces in turn.
//!
//! Knows: namespaces, jobs, times. Must not know: what a request wants, why a job takes its time.
//!
//! Invariants: nothing is kept of a namespace or a job without a call that waits, but for a moment. A few jobs may
//! always wait. Whoever is answered when it was its turn, with whatever, had its turn.

use parking_lot::{Mutex, MutexGuard};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use streams_kubernetes::Key;
use tokio::time::Instant;

/// How long a request should wait at most.
const LONGEST: Duration = Duration::from_secs(1);
/// A job that has waited so long has waited for longer than was foreseen.
const LATE: Duration = Duration::from_millis(1_500);
/// While more than one of so many that wait is late, what is foreseen is wrong.
const LATE_OF: usize = 4;
/// So many jobs may wait whatever it takes.
const FEW: usize = 4;
/// So many may wait as long as nothing is known.
const MANY: usize = 32;
/// A job that has waited so long waits for something else than for its turn.
const STUCK: Duration = Duration::from_secs(10);
/// For how long it counts how fast jobs were served. Time in which no job waits does not pass here.
const REMEMBERED: Duration = Duration::from_secs(10);
/// Less than this says nothing.
const LEAST_BUSY: f64 = 0.5;
/// When a namespace without calls is forgotten.
const FORGOTTEN: Duration = Duration::from_secs(60);
/// Namespaces that are looked through for such ones when another one comes.
const NAMESPACES: usize = 64;

/// The calls that wait. Cheap to clone; all clones are the same.
#[derive(Clone, Default)]
pub(super) struct Backlog {
    namespaces: Arc<Mutex<HashMap<Arc<str>, Namespace>>>,
}

/// A call that waits.
pub(super) struct Place {
    backlog: Backlog,
    job: Key,
    since: Instant,
    end: End,
}

/// What becomes of a call that waits.
#[derive(Clone, Copy, Debug, PartialEq)]
enum End {
    /// It waited in vain.
    Unserved,
    /// What it waits for is in this generation.
    Generation(u64),
    /// It heard what has become of it.
    Answered,
    /// It waits for something else than for its turn.
    Elsewhere,
    /// It was to wait for no turn.
    Uncounted,
}

struct Namespace {
    /// Jobs whose calls wait.
    jobs: HashMap<Arc<str>, Waiting>,
    /// How many jobs were served, and for how many seconds jobs have waited meanwhile; what is long ago counts less.
    served: f64,
    busy: f64,
    /// Until when that is counted.
    at: Instant,
}

struct Waiting {
    calls: usize,
    /// Since when one of the calls has waited, perhaps for one that has given up since, or since the last turn.
    since: Instant,
    /// When a call left last that had waited in vain, if one has since the last turn.
    left: Option<Instant>,
    /// The newest generation that calls were served by.
    served: Option<u64>,
}

impl Backlog {
    /// A call for this job waits until the place is dropped.
    ///
    /// # Errors
    /// It would wait for too long: when it should come again.
    pub(super) fn enter(&self, job: &Key, now: Instant) -> Result<Place, Duration> {
        let mut namespaces = self.namespaces();
        let namespace = counted(&mut namespaces, job, now);
        if namespace.jobs.get(&job.name).is_none_or(|waiting| waiting.calls == 0) {
            namespace.check(now)?;
        }
        Ok(self.wait_in(namespace, job, now))
    }

    /// The same for a call about a request that is stored already: it asks for nothing more, whoever waits.
    pub(super) fn follow(&self, job: &Key, now: Instant) -> Place {
        self.wait_in(counted(&mut self.namespaces(), job, now), job, now)
    }

    fn wait_in(&self, namespace: &mut Namespace, job: &Key, now: Instant) -> Place {
        let none = Waiting { calls: 0, since: now, left: None, served: None };
        namespace.jobs.entry(Arc::clone(&job.name)).or_insert(none).calls += 1;
        Place { backlog: self.clone(), job: job.clone(), since: now, end: End::Unserved }
    }

    fn leave(&self, Place { job, since, end, .. }: &Place, now: Instant) {
        let mut namespaces = self.namespaces();
        let Some(namespace) = namespaces.get_mut(&job.namespace) else { return };
        namespace.count(now);
        let Some(waiting) = namespace.jobs.get_mut(&job.name) else { return };
        waiting.calls = waiting.calls.saturating_sub(1);
        let had_turn = match end {
            // One generation serves all calls that it is for. Others wait for the next one.
            End::Generation(generation) => {
                let is_next = waiting.served < Some(*generation);
                waiting.served = waiting.served.max(Some(*generation));
                is_next
            }
            // So does whatever else answers several at once.
            End::Answered => *since >= waiting.since,
            End::Unserved => {
                waiting.left = Some(now);
                false
            }
            End::Elsewhere | End::Uncounted => false,
        };
        if had_turn {
            (waiting.since, waiting.left) = (now, None);
            namespace.served += 1.0;
        }
        let is_over = match end {
            // Who comes again and again in vain has waited since the first time.
            End::Unserved => false,
            // Others may have waited in vain before it.
            End::Uncounted => waiting.left.is_none(),
            End::Generation(_) | End::Answered | End::Elsewhere => true,
        };
        if waiting.calls == 0 && is_over {
            namespace.jobs.remove(&job.name);
        }
    }

    fn namespaces(&self) -> MutexGuard<'_, HashMap<Arc<str>, Namespace>> {
        // Every change is finished before anything that could panic.
        self.namespaces.lock()
    }
}

/// The namespace of a job, when the time until now was counted.
fn counted<'a>(namespaces: &'a mut HashMap<Arc<str>, Namespace>, job: &Key, now: Instant) -> &'a mut Namespace {
    if namespaces.len() >= NAMESPACES && !namespaces.contains_key(&job.namespace) {
        namespaces.retain(|_, namespace| !namespace.is_forgotten(now));
    }
    let namespace = namespaces.entry(Arc::clone(&job.namespace)).or_insert_with(|| Namespace::new(now));
    namespace.count(now);
    namespace
}

impl Place {
    /// The call hears what has become of it; what it waits for is in this generation, if in any.
    pub(super) fn serve(mut self, generation: Option<u64>) {
        self.end = generation.map_or(End::Answered, End::Generation);
    }

    /// The call waits for something else than for its turn.
    pub(super) fn give_up(mut self) {
        self.end = End::Elsewhere;
    }

    /// The call was to wait for no turn: it counts as none, and its job has waited for as long as it had without it.
    pub(super) fn uncount(mut self) {
        self.end = End::Uncounted;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.backlog.leave(self, Instant::now());
    }
}

impl Namespace {
    fn new(now: Instant) -> Self {
        Self { jobs: HashMap::new(), served: 0.0, busy: 0.0, at: now }
    }

    fn is_forgotten(&self, now: Instant) -> bool {
        self.jobs.values().all(|waiting| waiting.calls == 0) && now.duration_since(self.at) >= FORGOTTEN
    }

    /// Jobs that wait for their turn.
    fn waiting(&self, now: Instant) -> usize {
        self.waiting_for(Duration::ZERO, now)
    }

    /// Jobs that have waited for their turn for so long.
    fn waiting_for(&self, at_least: Duration, now: Instant) -> usize {
        let waits =
            |waiting: &&Waiting| waiting.calls > 0 && (at_least..STUCK).contains(&now.duration_since(waiting.since));
        self.jobs.values().filter(waits).count()
    }

    /// Counts the time until now.
    fn count(&mut self, now: Instant) {
        if self.is_forgotten(now) {
            (self.served, self.busy) = (0.0, 0.0);
        }
        let passed = now.duration_since(self.at).as_secs_f64();
        if self.waiting(now) > 0 {
            let weight = (-passed / REMEMBERED.as_secs_f64()).exp();
            (self.served, self.busy) = (self.served * weight, self.busy * weight + passed);
        }
        self.at = now;
        let counts = |left: Instant| now.duration_since(left) < STUCK;
        self.jobs.retain(|_, waiting| waiting.calls > 0 || waiting.left.is_some_and(counts));
    }

    /// Refuses a further job that would have to wait for too long.
    fn check(&self, now: Instant) -> Result<(), Duration> {
        let waiting = self.waiting(now);
        let is_known = self.busy >= if self.served > 0.0 { LEAST_BUSY } else { LONGEST.as_secs_f64() };
        let for_one = if is_known { self.busy / self.served.max(f64::MIN_POSITIVE) } else { 0.0 };
        let fits = |jobs: usize| jobs as f64 * for_one <= LONGEST.as_secs_f64();
        let are_late = self.waiting_for(LATE, now) * LATE_OF > waiting;
        if waiting < if is_known { FEW } else { MANY } || (is_known && !are_late && fits(waiting + 1)) {
            return Ok(());
        }
        let until_served = Duration::try_from_secs_f64(waiting as f64 * for_one).unwrap_or(STUCK);
        Err(until_served.clamp(Duration::from_secs(1), STUCK))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(seconds: f64) -> Duration {
        Duration::from_secs_f64(seconds)
    }

    fn job(number: usize) -> Key {
        Key::new("n", &format!("job-{number}"))
    }

    /// The call of this place ends.
    fn end(mut place: Place, end: End, now: Instant) {
        place.end = end;
        place.backlog.leave(&place, now);
        // It has left.
        std::mem::forget(place);
    }

    /// A backlog after so many jobs were served, one after the other, each in so many seconds; and the time.
    fn after(served: usize, each: f64) -> (Backlog, Instant) {
        let (backlog, mut now) = (Backlog::default(), Instant::now());
        for number in 0..served {
            let place = backlog.enter(&job(number), now).ok().unwrap();
            now += seconds(each);
            end(place, End::Generation(1), now);
        }
        (backlog, now)
    }

    /// Lets as many jobs wait as may; when the next one should come again.
    fn fill(backlog: &Backlog, now: Instant) -> (Vec<Place>, Duration) {
        let mut places = Vec::new();
        loop {
            match backlog.enter(&job(places.len()), now) {
                Ok(place) => places.push(place),
                Err(after) => return (places, after),
            }
        }
    }

    #[test]
    fn as_many_jobs_may_wait_as_are_served_in_time_and_a_few_whatever_it_takes() {
        // jobs served, seconds for each -> jobs that may wait, seconds after which the next one should come again
        let table = [
            (0, 0.0, MANY, 1.0),
            (2, 0.1, MANY, 1.0),
            (50, 0.05, 20, 1.0),
            (50, 0.125, 8, 1.0),
            (20, 1.0, FEW, 4.0),
            (20, 5.0, FEW, 10.0),
        ];
        for (served, each, expected, again) in table {
            let (backlog, now) = after(served, each);
            let (places, after) = fill(&backlog, now);
            assert!(places.len().abs_diff(expected) <= 1, "{served} served in {each} s each: {}", places.len());
            assert!(after.abs_diff(seconds(again)) < seconds(0.5), "{served} served in {each} s each: {after:?}");
        }
    }

    #[test]
    fn nobody_more_may_wait_while_many_wait_for_longer_than_was_foreseen() {
        // jobs that have waited for 1.5 s, jobs that have come since -> whether another one may wait
        let table = [(2, 6, true), (3, 6, false), (3, 0, true), (4, 0, false), (0, 12, true)];
        for (late, others, expected) in table {
            let (backlog, mut now) = after(50, 0.05);
            let mut places = Vec::new();
            for (jobs, served) in [(0..late, 10), (late..late + others, 20)] {
                places.extend(jobs.map(|number| backlog.enter(&job(number), now).ok().unwrap()));
                // Others have their turns meanwhile.
                for number in 100..100 + served {
                    let place = backlog.enter(&job(number), now).ok().unwrap();
                    now += seconds(0.05);
                    end(place, End::Generation(1), now);
                }
            }
            assert_eq!(backlog.enter(&job(200), now).is_ok(), expected, "{late} late, {others} others");
        }
    }

    #[test]
    fn a_job_that_waits_takes_further_calls_and_other_namespaces_answer_for_themselves() {
        let (backlog, now) = after(20, 1.0);
        let (places, _) = fill(&backlog, now);
        assert!(backlog.enter(&job(0), now).is_ok());
        assert!(backlog.enter(&Key::new("other", "job-100"), now).is_ok());
        assert!(backlog.enter(&job(100), now).is_err());
        drop(places);
        assert!(backlog.enter(&job(100), now).is_ok());
    }

    #[test]
    fn what_waits_for_something_else_holds_up_nobody_and_what_is_long_ago_is_forgotten() {
        let (backlog, now) = after(20, 5.0);
        let (_stuck, _) = fill(&backlog, now);
        assert!(backlog.enter(&job(100), now + STUCK).is_ok());
        let (backlog, now) = after(20, 5.0);
        assert_eq!(fill(&backlog, now + FORGOTTEN).0.len(), MANY);
        let backlog = Backlog::default();
        for number in 0..=NAMESPACES {
            drop(backlog.enter(&Key::new(&format!("n{number}"), "job"), Instant::now()));
        }
        assert_eq!(backlog.namespaces().len(), NAMESPACES + 1);
        drop(backlog.enter(&Key::new("one more", "job"), Instant::now() + FORGOTTEN));
        assert_eq!(backlog.namespaces().len(), 1);
    }

    #[test]
    fn calls_that_one_generation_serves_are_one() {
        let backlog = Backlog::default();
        let now = Instant::now();
        let places: Vec<_> = (0..200).filter_map(|_| backlog.enter(&job(0), now).ok()).collect();
        assert_eq!(places.len(), 200);
        let later = now + seconds(2.0);
        for (number, place) in places.into_iter().enumerate() {
            end(place, End::Generation(if number < 100 { 7 } else { 8 }), later);
        }
        let namespaces = backlog.namespaces();
        let namespace = &namespaces["n"];
        assert!(namespace.jobs.is_empty());
        assert_eq!((namespace.served, namespace.busy), (2.0, 2.0));
    }

    #[test]
    fn whoever_is_answered_had_its_turn_and_several_of_a_job_at_once_had_one() {
        let backlog = Backlog::default();
        let mut now = Instant::now();
        for _ in 0..50 {
            let places: Vec<_> = (0..40).map(|number| backlog.enter(&job(number % 4), now).ok().unwrap()).collect();
            now += seconds(0.2);
            places.into_iter().for_each(|place| end(place, End::Answered, now));
        }
        // Four jobs in 0.2 s each time.
        let (places, _) = fill(&backlog, now);
        assert!(places.len().abs_diff(20) <= 2, "{}", places.len());
    }

    #[test]
    fn who_waits_for_something_else_keeps_nobody_out_however_often_it_comes() {
        for (how, kept_out) in [(End::Elsewhere, 0), (End::Unserved, 2)] {
            let backlog = Backlog::default();
            let mut now = Instant::now();
            let mut refused = 0;
            // Some jobs are asked for all the time, by callers that wait for 5 s; nothing becomes of it.
            for _ in 0..10 {
                let places: Vec<_> = (0..FEW).filter_map(|number| backlog.enter(&job(number), now).ok()).collect();
                let places = if how == End::Elsewhere {
                    places.into_iter().for_each(|place| end(place, how, now));
                    Vec::new()
                } else {
                    places
                };
                now += seconds(4.0);
                match backlog.enter(&job(100), now) {
                    Ok(place) => end(place, End::Generation(1), now),
                    Err(_) => refused += 1,
                }
                now += seconds(1.0);
                places.into_iter().for_each(|place| end(place, how, now));
            }
            assert!(refused <= kept_out, "{how:?}: {refused}");
        }
    }

    #[test]
    fn who_is_to_wait_for_no_turn_changes_nothing_of_how_long_its_job_has_waited() {
        // how a call ends after 5 s -> whether its job, asked for again after 7 s, is one of those that wait after
        // 15.5 s
        for (how, expected) in [(End::Unserved, false), (End::Answered, true), (End::Elsewhere, true)] {
            // One that counts as none comes before that, or after it, and ends after 6.5 s.
            for came in [4.0, 6.0] {
                let (backlog, start) = (Backlog::default(), Instant::now());
                let enter = |at| backlog.enter(&job(0), start + seconds(at)).ok().unwrap();
                let first = enter(0.0);
                let early = (came < 5.0).then(|| enter(came));
                end(first, how, start + seconds(5.0));
                let uncounted = early.unwrap_or_else(|| enter(came));
                end(uncounted, End::Uncounted, start + seconds(6.5));
                let _again = enter(7.0);
                let waiting = backlog.namespaces()["n"].waiting(start + seconds(15.5));
                assert_eq!(waiting > 0, expected, "{how:?} {came}");
            }
        }
    }
}
