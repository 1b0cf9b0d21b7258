//! How long a piece of work is worked on, without the time in which it waits for others (rule job-18).
//!
//! Whoever has the work done measures it ([`measure`]). Whatever lets it wait says so ([`pause`], [`aside`]), and so
//! does a try of a call that is under way ([`under_way`]); none of them knows who measures, if anybody does.
//!
//! A piece of work does several things at the same time. What counts is the time of tries that were answered, whatever
//! else waits meanwhile: of sixteen writes, fifteen wait while one is made, and that is work. What is computed between
//! calls, while nothing waits, is work, too. A try that came to nothing and is made again is no work: whoever was to
//! answer it is down, or has enough to do.
//!
//! Knows: time. Must not know: what is worked on, what it waits for.
//!
//! Invariant: what was measured never exceeds the time that has passed, unless somebody else says that it has worked
//! for longer ([`has_worked`]).

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::future::Future;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;
use tokio::task_local;

task_local! {
    static AROUND: Stopwatch;
}

/// The watch of a piece of work. Clones are the same watch.
#[derive(Clone)]
struct Stopwatch {
    clock: Arc<dyn Fn() -> Duration + Send + Sync>,
    reading: Arc<Mutex<Reading>>,
}

/// What a watch shows.
#[derive(Default)]
struct Reading {
    /// Since when nothing has changed.
    since: Duration,
    /// How long was worked until then, as far as it is known: of the tries under way it is not.
    worked: Duration,
    /// How many things wait.
    waits: usize,
    /// How many tries are under way that have begun then.
    tries: BTreeMap<Duration, usize>,
    /// Time of tries that were answered, ascending, one apart from the other: no other try counts it once more. Only as
    /// far as one that is under way may.
    counted: Vec<Range<Duration>>,
}

/// Something waits as long as it lives.
#[must_use = "what is dropped waits no more"]
pub struct Pause(Option<Stopwatch>);

/// A try of a call is under way as long as it lives.
#[must_use = "what is dropped is over"]
pub struct UnderWay(Option<Try>);

/// A try of a call.
struct Try {
    of: Stopwatch,
    begun: Duration,
    is_in_vain: bool,
}

/// Does the work, and says how long it was worked on since now. `clock`: how much time has passed since some moment; it
/// goes on evenly, whatever becomes of the time of day.
pub fn measure<F: Future>(
    clock: impl Fn() -> Duration + Send + Sync + 'static,
    work: F,
) -> impl Future<Output = (F::Output, Duration)> {
    let reading = Reading { since: clock(), ..Reading::default() };
    let watch = Stopwatch { clock: Arc::new(clock), reading: Arc::new(Mutex::new(reading)) };
    // On the heap: work is large, and would be moved from one place to the other.
    let work = AROUND.scope(watch.clone(), Box::pin(work));
    async move {
        let output = work.await;
        watch.change(|_| {});
        let worked = watch.reading.lock().worked;
        (output, worked)
    }
}

/// The work that is going on waits until the result is dropped.
pub fn pause() -> Pause {
    let watch = Stopwatch::around();
    watch.iter().for_each(|watch| watch.change(|reading| reading.waits += 1));
    Pause(watch)
}

/// Waits for this; meanwhile the work that is going on waits.
pub async fn aside<F: Future>(wait: F) -> F::Output {
    let _pause = pause();
    wait.await
}

/// A try of a call of the work that is going on is under way until the result is dropped.
pub fn under_way() -> UnderWay {
    UnderWay(Stopwatch::around().map(|of| {
        let begun = of.change(Reading::begin_try);
        Try { of, begun, is_in_vain: false }
    }))
}

impl UnderWay {
    /// It came to nothing: it was no work.
    pub fn in_vain(mut self) {
        self.0.iter_mut().for_each(|it| it.is_in_vain = true);
    }
}

/// Somebody else, for whom the work that is going on has waited until now, says that it was worked on for so long.
pub fn has_worked(time: Duration) {
    if let Some(watch) = Stopwatch::around() {
        watch.change(|reading| reading.worked = reading.worked.saturating_add(time));
    }
}

/// A part of the work that is going on, for a task of its own.
pub fn part<F: Future>(work: F) -> impl Future<Output = F::Output> {
    let watch = Stopwatch::around();
    async move {
        match watch {
            Some(watch) => AROUND.scope(watch, work).await,
            None => work.await,
        }
    }
}

impl Stopwatch {
    /// That of the work that is going on, if anybody measures it.
    fn around() -> Option<Self> {
        AROUND.try_with(Clone::clone).ok()
    }

    fn change<T>(&self, change: impl FnOnce(&mut Reading) -> T) -> T {
        let now = (self.clock)();
        let mut reading = self.reading.lock();
        reading.go_on(now);
        change(&mut reading)
    }
}

impl Reading {
    /// Counts the time until now, unless something waits. That of tries is counted when they are over.
    fn go_on(&mut self, now: Duration) {
        if self.waits == 0 && self.tries.is_empty() {
            self.worked = self.worked.saturating_add(now.saturating_sub(self.since));
        }
        self.since = self.since.max(now);
    }

    /// Says when the try has begun, which is now.
    fn begin_try(&mut self) -> Duration {
        *self.tries.entry(self.since).or_default() += 1;
        self.since
    }

    fn end_try(&mut self, begun: Duration, is_in_vain: bool) {
        if let Some(tries) = self.tries.get_mut(&begun) {
            *tries -= 1;
            if *tries == 0 {
                self.tries.remove(&begun);
            }
        }
        if !is_in_vain {
            self.count(begun..self.since);
        }
        let first = self.tries.first_key_value().map(|(begun, _)| *begun);
        self.counted.retain(|counted| first.is_some_and(|first| first < counted.end));
    }

    /// Counts this time, as far as it does not count already. It ends now.
    fn count(&mut self, time: Range<Duration>) {
        let apart = self.counted.partition_point(|counted| counted.end < time.start);
        let touched = self.counted.split_off(apart);
        let known: Duration = touched.iter().map(|counted| counted.end - counted.start.max(time.start)).sum();
        self.worked = self.worked.saturating_add((time.end - time.start).saturating_sub(known));
        let start = touched.first().map_or(time.start, |counted| counted.start.min(time.start));
        self.counted.push(start..time.end);
    }
}

impl Drop for Pause {
    fn drop(&mut self) {
        self.0.iter().for_each(|watch| watch.change(|reading| reading.waits = reading.waits.saturating_sub(1)));
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        let Some(Try { of, begun, is_in_vain }) = self.0.take() else { return };
        of.change(|reading| reading.end_try(begun, is_in_vain));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::pin::Pin;
    use tokio::time::{Instant, sleep};

    type Part = fn() -> Pin<Box<dyn Future<Output = ()>>>;

    async fn seconds(seconds: u64) {
        sleep(Duration::from_secs(seconds)).await;
    }

    async fn call(takes: u64) {
        let _call = under_way();
        seconds(takes).await;
    }

    /// A call whose first try is answered by nobody; the next one comes after a pause.
    async fn call_again(hangs: u64, pauses: u64, takes: u64) {
        let first = under_way();
        seconds(hangs).await;
        first.in_vain();
        queue(pauses, takes).await;
    }

    /// So many calls, one after the other.
    async fn calls(count: u64, takes: u64) {
        for _ in 0..count {
            call(takes).await;
        }
    }

    /// Waits for its turn, then calls.
    async fn queue(waits: u64, takes: u64) {
        aside(seconds(waits)).await;
        call(takes).await;
    }

    async fn two(one: impl Future<Output = ()>, other: impl Future<Output = ()>) {
        tokio::join!(one, other);
    }

    #[tokio::test(start_paused = true)]
    async fn what_waits_stops_the_watch_unless_a_call_is_under_way() {
        // what is done -> seconds of work
        let table: [(&str, Part, u64); 13] = [
            ("it computes", || Box::pin(seconds(5)), 5),
            ("it calls", || Box::pin(call(5)), 5),
            ("it waits, then calls", || Box::pin(queue(100, 5)), 5),
            ("one waits for the other", || Box::pin(two(queue(0, 7), queue(7, 5))), 12),
            ("both wait", || Box::pin(two(queue(100, 5), queue(103, 5))), 8),
            ("it waits within a wait", || Box::pin(aside(queue(3, 0))), 0),
            ("it tries once more", || Box::pin(call_again(5, 3, 2)), 2),
            ("it tries once more beside others", || Box::pin(two(call_again(5, 3, 2), calls(3, 2))), 8),
            ("both try once more", || Box::pin(two(call_again(5, 3, 2), call_again(5, 4, 2))), 3),
            ("a long one beside short ones", || Box::pin(two(call(10), calls(3, 2))), 10),
            ("one begins while the other is under way", || Box::pin(two(call(4), queue(3, 4))), 7),
            (
                "it gives a wait up",
                || {
                    Box::pin(async {
                        let _ = tokio::time::timeout(Duration::from_secs(3), aside(seconds(100))).await;
                        seconds(2).await;
                    })
                },
                2,
            ),
            (
                "it hears that another one has worked meanwhile",
                || {
                    Box::pin(async {
                        aside(seconds(10)).await;
                        has_worked(Duration::from_secs(4));
                    })
                },
                4,
            ),
        ];
        for (what, work, expected) in table {
            let begun = Instant::now();
            let ((), worked) = measure(move || begun.elapsed(), work()).await;
            assert_eq!(worked, Duration::from_secs(expected), "{what}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_part_in_a_task_of_its_own_belongs_to_the_work() {
        let begun = Instant::now();
        let clock = move || begun.elapsed();
        let work = async { tokio::spawn(part(queue(100, 5))).await.unwrap() };
        assert_eq!(measure(clock, work).await.1, Duration::from_secs(5));
        // Nobody measures.
        part(queue(1, 1)).await;
        has_worked(Duration::from_secs(1));
    }
}
