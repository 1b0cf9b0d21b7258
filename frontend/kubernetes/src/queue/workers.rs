//! Workers: a bounded number of tasks that take keys from a queue.

use super::{Queue, QueueKey};
use crate::making_way;
use crate::metrics::{QueueLabels, WorkLabels, as_seconds};
use crate::wait::{self, Wait};
use futures::FutureExt;
use std::fmt;
use std::future::Future;
use std::panic::{AssertUnwindSafe, resume_unwind};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tracing::Instrument;

/// Work that has failed so often in a row has been waited for in vain: it makes way for others until it succeeds. With
/// the usual [`BackOff`](super::BackOff) that is after about 20 s.
const IN_VAIN: u32 = 6;

/// The result of handling a key without a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Nothing more to do until somebody adds the key.
    Done,
    /// Look again after this time, or earlier if somebody adds the key.
    Again(Duration),
    /// The same, after urgent ones: what others wait for goes first.
    Later(Duration),
    /// The same, after others of its namespace: what is to be done then only says how far things are.
    Patiently(Duration),
    /// Somebody else was faster: look again soon, and later each time that this happens in a row.
    Conflict,
}

/// Works on the keys of `queue`, at most `workers` at a time, until the queue is closed and the last worker has
/// finished.
///
/// A failure is logged and the key comes back after a delay that grows with every failure in a row; so it is with a
/// panic.
///
/// # Panics
/// A worker has panicked outside of the work: the queue would not be worked on as it must (rule call-13).
pub async fn run<K, H, F, E>(queue: Queue<K>, workers: usize, handle: H)
where
    K: QueueKey,
    H: Fn(K) -> F + Send + Sync + 'static,
    F: Future<Output = Result<Outcome, E>> + Send,
    E: fmt::Display + Send,
{
    let handle = Arc::new(handle);
    let mut tasks = JoinSet::new();
    for _ in 0..workers.max(1) {
        let (queue, handle) = (queue.clone(), Arc::clone(&handle));
        // On the heap from the beginning: what it does may be large, and each step to a task would copy it.
        let worker = Box::pin(async move {
            while let Some(taken) = queue.next().await {
                if queue.puts_off(taken.key()) {
                    continue;
                }
                Wait::before(Wait::in_queue(queue.name(), taken.waited()));
                work(&queue, taken.key(), &*handle).await;
            }
        });
        tasks.spawn(making_way::worker(wait::worker(worker)));
    }
    while let Some(ended) = tasks.join_next().await {
        if let Err(error) = ended
            && let Ok(panic) = error.try_into_panic()
        {
            resume_unwind(panic);
        }
    }
}

async fn work<K, H, F, E>(queue: &Queue<K>, key: &K, handle: &H)
where
    K: QueueKey,
    H: Fn(K) -> F,
    F: Future<Output = Result<Outcome, E>> + Send,
    E: fmt::Display + Send,
{
    let name = queue.name();
    let span = tracing::info_span!("work", queue = name, key = %key);
    let start = Instant::now();
    making_way::begin(queue.failures(key) >= IN_VAIN);
    let result = AssertUnwindSafe(async { handle(key.clone()).await }).catch_unwind().instrument(span.clone()).await;
    // Untaken, the work was for no trace but its own.
    span.in_scope(|| drop(Wait::take().map(Wait::span)));
    let metrics = &queue.shared.metrics;
    metrics.work_seconds.get_or_create(&QueueLabels { queue: name }).observe(as_seconds(start.elapsed()));
    let outcome = span.in_scope(|| match result {
        Ok(Ok(Outcome::Done)) => {
            queue.forget(key);
            "done"
        }
        Ok(Ok(Outcome::Again(delay))) => {
            queue.forget(key);
            queue.add_after(key.clone(), delay);
            "again"
        }
        Ok(Ok(Outcome::Later(delay))) => {
            queue.forget(key);
            queue.add_later(key.clone(), delay);
            "later"
        }
        Ok(Ok(Outcome::Patiently(delay))) => {
            queue.forget(key);
            queue.add_patient_later(key.clone(), delay);
            "later"
        }
        Ok(Ok(Outcome::Conflict)) => {
            tracing::debug!("somebody else was faster; will look again");
            queue.add_rate_limited(key.clone());
            "conflict"
        }
        Ok(Err(error)) => {
            tracing::warn!(error = %error, failures = queue.failures(key) + 1, "failed; will try again");
            queue.add_rate_limited(key.clone());
            "failed"
        }
        Err(_) => {
            tracing::error!("panicked; will try again");
            queue.add_rate_limited(key.clone());
            "panicked"
        }
    });
    metrics.work.get_or_create(&WorkLabels { queue: name, outcome }).inc();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gate::{Gate, Limits, Priority};
    use crate::metrics::Metrics;
    use crate::queue::{BackOff, Sharing};
    use parking_lot::Mutex;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use streams_process::telemetry::testing;

    #[tokio::test(start_paused = true)]
    async fn failures_and_panics_come_back_and_the_rest_does_not() {
        let queue = Queue::new("test", BackOff::default(), Sharing::none(), &Metrics::new("test"));
        let seen = Arc::new(Mutex::new(Vec::new()));
        for key in ["done", "fails", "panics", "again", "conflicts"] {
            queue.add(key.to_owned());
        }
        let (closing, log) = (queue.clone(), Arc::clone(&seen));
        let handle = move |key: String| {
            let (closing, log) = (closing.clone(), Arc::clone(&log));
            async move {
                let times = {
                    let mut log = log.lock();
                    log.push(key.clone());
                    if log.len() == 9 {
                        closing.close();
                    }
                    log.iter().filter(|seen| **seen == key).count()
                };
                match key.as_str() {
                    "fails" if times == 1 => Err("once"),
                    "panics" if times == 1 => panic!("once"),
                    "conflicts" if times == 1 => Ok(Outcome::Conflict),
                    "again" if times == 1 => Ok(Outcome::Again(Duration::from_secs(100))),
                    _ => Ok(Outcome::Done),
                }
            }
        };
        tokio::time::timeout(Duration::from_secs(200), run(queue.clone(), 2, handle)).await.unwrap();
        let mut seen = seen.lock().clone();
        assert_eq!(seen.last().map(String::as_str), Some("again"));
        seen.sort();
        assert_eq!(seen, ["again", "again", "conflicts", "conflicts", "done", "fails", "fails", "panics", "panics"]);
        assert_eq!(queue.failures(&"fails".to_owned()), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_worker_that_panics_outside_of_the_work_is_not_missed_in_silence() {
        let queue = Queue::new("test", BackOff::default(), Sharing::none(), &Metrics::new("test"))
            .with_troubles(|_| panic!("on purpose"));
        queue.add("a");
        let work = run(queue, 2, |_| async { Ok::<_, String>(Outcome::Done) });
        let ended = tokio::time::timeout(Duration::from_secs(10), tokio::spawn(work)).await;
        assert!(ended.unwrap().unwrap_err().is_panic());
    }

    #[tokio::test(start_paused = true)]
    async fn work_that_fails_again_and_again_makes_way_until_it_succeeds() {
        let metrics = Metrics::new("test");
        let queue = Queue::new("test", BackOff::default(), Sharing::none(), &metrics);
        let gate = Gate::new(Limits::of(1), &metrics);
        queue.add("key");
        let times = Arc::new(AtomicUsize::new(0));
        let (closing, passing) = (queue.clone(), gate);
        let handle = move |_| {
            let (closing, gate, time) = (closing.clone(), passing.clone(), times.fetch_add(1, Ordering::SeqCst));
            Priority::Awaited.of(async move {
                gate.call("a", async {}).await;
                match time {
                    7 => Ok(Outcome::Again(Duration::ZERO)),
                    8 => {
                        closing.close();
                        Ok(Outcome::Done)
                    }
                    _ => Err("a webhook is down"),
                }
            })
        };
        tokio::time::timeout(Duration::from_secs(200), run(queue, 1, handle)).await.unwrap();
        let text = metrics.text().unwrap();
        // It has failed seven times, and succeeded twice.
        for (priority, expected) in [("awaited", 7), ("normal", 2)] {
            let line = format!("test_kubernetes_call_wait_seconds_count{{priority=\"{priority}\"}} {expected}\n");
            assert!(text.contains(&line), "{line}{text}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_wait_of_a_key_is_shown_once_in_the_trace_that_takes_it_or_in_that_of_the_work() {
        let queue = Queue::new("test", BackOff::default(), Sharing::none(), &Metrics::new("test"));
        let collected = testing::collect(&["streams_kubernetes"]);
        queue.add("taken");
        queue.add("not taken");
        tokio::time::advance(Duration::from_millis(20)).await;
        queue.add("at once");
        let closing = queue.clone();
        let handle = move |key: &'static str| {
            let closing = closing.clone();
            async move {
                if key == "taken" {
                    tracing::info_span!("act").in_scope(|| drop(Wait::take().map(Wait::span)));
                }
                if key == "at once" {
                    closing.close();
                }
                Ok::<_, String>(Outcome::Done)
            }
        };
        run(queue, 1, handle).await;
        let spans = collected.spans();
        let waits = spans.iter().filter(|span| span.name == "wait in queue");
        let seen = waits.map(|span| (span.parent.as_deref(), span.attribute("queue"), span.took.as_millis() >= 20));
        let expected = [(Some("act"), Some("test"), true), (Some("work"), Some("test"), true)];
        assert_eq!(seen.collect::<Vec<_>>(), expected);
    }

    #[tokio::test(start_paused = true)]
    async fn there_are_never_more_workers_than_allowed() {
        let queue = Queue::new("test", BackOff::default(), Sharing::none(), &Metrics::new("test"));
        let (running, most, finished) =
            (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        for key in 0..20u32 {
            queue.add(key);
        }
        let (closing, counters) = (queue.clone(), (Arc::clone(&running), Arc::clone(&most), Arc::clone(&finished)));
        let handle = move |_| {
            let (closing, (running, most, finished)) = (closing.clone(), counters.clone());
            async move {
                most.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                tokio::time::sleep(Duration::from_millis(10)).await;
                running.fetch_sub(1, Ordering::SeqCst);
                if finished.fetch_add(1, Ordering::SeqCst) == 19 {
                    closing.close();
                }
                Ok::<_, String>(Outcome::Done)
            }
        };
        tokio::time::timeout(Duration::from_secs(10), run(queue, 3, handle)).await.unwrap();
        assert_eq!((most.load(Ordering::SeqCst), finished.load(Ordering::SeqCst)), (3, 20));
    }
}
