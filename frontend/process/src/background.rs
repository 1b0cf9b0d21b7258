//! Threads for work that makes way for everything else.
//!
//! Whoever compiles a large application, or takes it out of its bundle, keeps a core busy for seconds. On a thread like
//! any other it has as large a part of the cores as those have for whom somebody waits: a resize, a probe, a call of
//! another program on the same node. Linux gives a thread of [`NICENESS`] about a tenth of what others have while they
//! want to run, and all that they leave.
//!
//! Knows: threads, how important they are. Must not know: what the work is.
//!
//! Invariants: these threads do nothing else, because a process without privileges cannot make a thread important
//! again; nothing urgent waits for what they do.

use rustix::process::{getpriority_process, setpriority_process};
use std::io;
use std::sync::LazyLock;
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};
use tokio::task::{JoinHandle, spawn_blocking};

/// How little important the threads are; 0 is like others, 19 the least. A step changes the part of a core by about a
/// fifth (`sched(7)`).
pub const NICENESS: i32 = 10;

/// How long a thread without work is kept.
const KEPT: Duration = Duration::from_secs(60);

/// A runtime of which only the threads for blocking work are used. Callers bound how much they begin.
static THREADS: LazyLock<io::Result<Runtime>> = LazyLock::new(|| {
    Builder::new_current_thread()
        .thread_name("background")
        .thread_keep_alive(KEPT)
        .on_thread_start(|| {
            // None is this thread. Where nothing may be changed, the work is done like other work.
            let of_process = getpriority_process(None).unwrap_or_default();
            let _ = setpriority_process(None, of_process.max(NICENESS));
        })
        .build()
});

/// Computes on a thread that makes way for others. Within a tokio runtime, the result can be awaited like that of
/// [`spawn_blocking`]; so can a panic. What is dropped before is computed to its end.
pub fn spawn<T: Send + 'static>(compute: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    match &*THREADS {
        Ok(threads) => threads.spawn_blocking(compute),
        Err(_) => spawn_blocking(compute),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    fn niceness() -> i32 {
        getpriority_process(None).unwrap()
    }

    #[tokio::test]
    async fn work_is_done_on_less_important_threads_and_leaves_others_as_they_are() {
        let before = niceness();
        let (in_background, name) = spawn(|| (niceness(), thread::current().name().map(str::to_owned))).await.unwrap();
        let beside = spawn_blocking(niceness).await.unwrap();
        assert_eq!((in_background, name.as_deref()), (before.max(NICENESS), Some("background")));
        assert_eq!((beside, niceness()), (before, before));
    }

    #[tokio::test]
    async fn a_panic_ends_one_computation_and_no_other() {
        assert!(spawn(|| panic!("on purpose")).await.unwrap_err().is_panic());
        assert_eq!(spawn(|| 7).await.unwrap(), 7);
    }
}
