//! When a stream has to end.
//!
//! Invariant: a stream that its clock has ended leaves nothing behind that reads its request.

use parking_lot::Mutex;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

tokio::task_local! {
    /// The clock of the stream that is being served, and what is cancelled when it ends.
    pub(super) static STREAM: (Clock, CancellationToken);
}

/// Runs a stream until it ends, or its clock says that it is over.
pub(super) async fn run(stream: impl Future<Output = ()>, unread: Duration) {
    let (clock, ended) = (Clock::default(), CancellationToken::new());
    let _ended = ended.clone().drop_guard();
    tokio::select! {
        biased;
        () = STREAM.scope((clock.clone(), ended), stream) => {}
        () = clock.over(unread) => tracing::debug!("an answer was not read"),
    }
}

/// Says when a stream has to end. Cheap to clone; all clones are the same.
#[derive(Clone, Default)]
pub struct Clock(Arc<Shared>);

#[derive(Default)]
struct Shared {
    times: Mutex<Times>,
    /// Told when the end was set.
    set: Notify,
}

#[derive(Clone, Copy, Default)]
struct Times {
    /// When the caller waits no more, if that is known.
    end: Option<Instant>,
    /// Since when a piece of the answer has waited for its reader, if one does.
    unread_since: Option<Instant>,
    is_over: bool,
}

impl Clock {
    /// That of the stream of which this is the task; elsewhere one that ends nothing.
    #[must_use]
    pub fn current() -> Self {
        STREAM.try_with(|(clock, _)| clock.clone()).unwrap_or_default()
    }

    /// Lets the stream end then, whatever its caller does.
    pub fn set_end(&self, end: Option<Instant>) {
        self.0.times.lock().end = end;
        self.0.set.notify_one();
    }

    /// Lets the stream end.
    pub fn end_now(&self) {
        self.set_end(Some(Instant::now()));
    }

    /// Whether the stream has ended by its clock.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.0.times.lock().is_over
    }

    /// Whether a piece of the answer waits for its reader.
    pub(super) fn set_unread(&self, is_unread: bool) {
        self.0.times.lock().unread_since = is_unread.then(Instant::now);
    }

    /// Waits until the end has come, or a piece was `unread` for so long.
    async fn over(&self, unread: Duration) {
        loop {
            let until = {
                let (mut times, now) = (self.0.times.lock(), Instant::now());
                // A piece that comes later waits until then at least.
                let until = times.unread_since.unwrap_or(now) + unread;
                let until = times.end.map_or(until, |end| end.min(until));
                if until <= now {
                    times.is_over = true;
                    return;
                }
                until
            };
            tokio::select! {
                () = sleep_until(until) => {}
                () = self.0.set.notified() => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_stream_ends_when_nothing_is_read_or_its_caller_is_late() {
        let seconds = Duration::from_secs;
        // seconds after which a piece waits for its reader, until it is read, the end of the caller's time
        // -> seconds after which the stream ends; nothing within an hour
        let table = [
            (None, None, None, None),
            (Some(0), None, None, Some(60)),
            (Some(100), None, None, Some(160)),
            (Some(100), Some(30), None, None),
            (None, None, Some(10), Some(10)),
            (Some(0), Some(1), Some(100), Some(100)),
            (Some(0), None, Some(100), Some(60)),
        ];
        for (waits, is_read, end, expected) in table {
            let (clock, begin) = (Clock::default(), Instant::now());
            clock.set_end(end.map(|end| begin + seconds(end)));
            let reader = async {
                let Some(waits) = waits else { return std::future::pending().await };
                tokio::time::sleep(seconds(waits)).await;
                clock.set_unread(true);
                let Some(is_read) = is_read else { return std::future::pending().await };
                tokio::time::sleep(seconds(is_read)).await;
                clock.set_unread(false);
                std::future::pending::<()>().await;
            };
            let ended = tokio::select! {
                biased;
                () = reader => unreachable!(),
                () = clock.over(seconds(60)) => Some(begin.elapsed().as_secs()),
                () = tokio::time::sleep(seconds(3_600)) => None,
            };
            assert_eq!(ended, expected, "{waits:?} {is_read:?} {end:?}");
            assert_eq!(clock.is_over(), ended.is_some());
        }
    }
}
