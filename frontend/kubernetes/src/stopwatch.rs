//! How long a piece of work is worked on, without the time in which it waits for others (rule job-18).
//!
//! Whoever has the work done measures it ([`measure`]). Whatever lets it wait says so ([`pause`], [`aside`]), and so
//! does a call that is under way ([`under_way`]); none of them knows who measures, if anybody does.
//!
//! A piece of work does several things at the same time. Its watch stands while something of it waits and none of its
//! calls is under way: of sixteen writes, fifteen wait while one is made, and that is work. What is computed between
//! two calls is work, too.
//!
//! Knows: time. Must not know: what is worked on, what it waits for.
//!
//! Invariant: what was measured never exceeds the time that has passed, unless somebody else says that it has worked
//! for longer ([`has_worked`]).

use k8s_openapi::jiff::Timestamp;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::task_local;

task_local! {
    static AROUND: Stopwatch;
}

/// The watch of a piece of work. Clones are the same watch.
#[derive(Clone)]
struct Stopwatch {
    clock: Arc<dyn Fn() -> Timestamp + Send + Sync>,
    reading: Arc<Mutex<Reading>>,
}

/// What a watch shows.
struct Reading {
    /// Since when nothing has changed.
    since: Timestamp,
    /// How long was worked until then.
    worked: Duration,
    /// How many things wait.
    waits: usize,
    /// How many calls are under way.
    calls: usize,
}

/// Something waits as long as it lives.
#[must_use = "what is dropped waits no more"]
pub struct Pause(Option<Stopwatch>);

/// A call is under way as long as it lives.
#[must_use = "what is dropped is over"]
pub struct UnderWay(Option<Stopwatch>);

/// Does the work, and says how long it was worked on since now.
pub fn measure<F: Future>(
    clock: impl Fn() -> Timestamp + Send + Sync + 'static,
    work: F,
) -> impl Future<Output = (F::Output, Duration)> {
    let reading = Reading { since: clock(), worked: Duration::ZERO, waits: 0, calls: 0 };
    let watch = Stopwatch { clock: Arc::new(clock), reading: Arc::new(Mutex::new(reading)) };
    // On the heap: work is large, and would be moved from one place to the other.
    let work = AROUND.scope(watch.clone(), Box::pin(work));
    async move {
        let output = work.await;
        watch.change(|_| {});
        let worked = watch.reading().worked;
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

/// A call of the work that is going on is under way until the result is dropped.
pub fn under_way() -> UnderWay {
    let watch = Stopwatch::around();
    watch.iter().for_each(|watch| watch.change(|reading| reading.calls += 1));
    UnderWay(watch)
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

    fn change(&self, change: impl FnOnce(&mut Reading)) {
        let now = (self.clock)();
        let mut reading = self.reading();
        reading.go_on(now);
        change(&mut reading);
    }

    fn reading(&self) -> MutexGuard<'_, Reading> {
        // Nothing panics between two changes that belong together.
        self.reading.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Reading {
    /// Counts the time until now.
    fn go_on(&mut self, now: Timestamp) {
        // Nothing if the clock was put back.
        let passed = Duration::try_from(now.duration_since(self.since)).unwrap_or_default();
        if self.waits == 0 || self.calls > 0 {
            self.worked = self.worked.saturating_add(passed);
        }
        self.since = now;
    }
}

impl Drop for Pause {
    fn drop(&mut self) {
        self.0.iter().for_each(|watch| watch.change(|reading| reading.waits = reading.waits.saturating_sub(1)));
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.iter().for_each(|watch| watch.change(|reading| reading.calls = reading.calls.saturating_sub(1)));
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
        let table: [(&str, Part, u64); 8] = [
            ("it computes", || Box::pin(seconds(5)), 5),
            ("it calls", || Box::pin(call(5)), 5),
            ("it waits, then calls", || Box::pin(queue(100, 5)), 5),
            ("one waits for the other", || Box::pin(two(queue(0, 7), queue(7, 5))), 12),
            ("both wait", || Box::pin(two(queue(100, 5), queue(103, 5))), 8),
            ("it waits within a wait", || Box::pin(aside(queue(3, 0))), 0),
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
            let clock = move || Timestamp::UNIX_EPOCH + begun.elapsed();
            let ((), worked) = measure(clock, work()).await;
            assert_eq!(worked, Duration::from_secs(expected), "{what}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_part_in_a_task_of_its_own_belongs_to_the_work() {
        let begun = Instant::now();
        let clock = move || Timestamp::UNIX_EPOCH + begun.elapsed();
        let work = async { tokio::spawn(part(queue(100, 5))).await.unwrap() };
        assert_eq!(measure(clock, work).await.1, Duration::from_secs(5));
        // Nobody measures.
        part(queue(1, 1)).await;
        has_worked(Duration::from_secs(1));
    }

    #[tokio::test]
    async fn a_clock_that_is_put_back_counts_nothing() {
        let times = Mutex::new([100, 40, 45, 45].into_iter());
        let clock = move || Timestamp::from_second(times.lock().unwrap().next().unwrap()).unwrap();
        let ((), worked) = measure(clock, async { drop(under_way()) }).await;
        assert_eq!(worked, Duration::from_secs(5));
    }
}
