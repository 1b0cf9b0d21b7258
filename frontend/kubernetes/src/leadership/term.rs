//! Whether this process leads, as others than leadership ask it.
//!
//! Knows: until when this process leads, and what is known of the words of the leader before. Must not know: Leases.
//!
//! Invariant: no clock but the one of this process says that a term has ended, and no timer is asked.

use super::last_words::LastWords;
use parking_lot::{Mutex, MutexGuard};
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use tokio::time::Instant;

/// Whether this process leads, for those who must be certain that nobody else has led since. Cheap to clone; all clones
/// are the same. The default is that of a process that does not lead.
#[derive(Clone, Debug, Default)]
pub struct Term {
    ends: Arc<Mutex<Option<TermEnd>>>,
    words: Arc<Mutex<LastWords>>,
}

#[derive(Clone, Copy, Debug)]
enum TermEnd {
    Never,
    At(Instant),
}

impl Term {
    /// That of a process which leads without a Lease.
    pub fn endless() -> Self {
        Self { ends: Arc::new(Mutex::new(Some(TermEnd::Never))), ..Self::default() }
    }

    /// Whether this process has led since it began to, until now: its Lease was renewed in time. One that was frozen
    /// knows it as soon as it goes on.
    pub fn lasts(&self) -> bool {
        match *self.lock() {
            Some(TermEnd::Never) => true,
            Some(TermEnd::At(end)) => Instant::now() < end,
            None => false,
        }
    }

    /// Makes a call as long as the term lasts. `None` once it does not: whatever was not sent by then is not sent.
    pub(crate) async fn bound<F: Future>(&self, call: F) -> Option<F::Output> {
        let mut call = pin!(call);
        // Asked whenever the call could go on, and not by a timer: in a process that was frozen the call may be woken
        // before any timer is.
        poll_fn(|context| if self.lasts() { call.as_mut().poll(context).map(Some) } else { Poll::Ready(None) }).await
    }

    pub(super) fn renewed(&self, until: Instant) {
        *self.lock() = Some(TermEnd::At(until));
    }

    /// This process does not lead any more.
    pub fn over(&self) {
        *self.lock() = None;
    }

    /// What the leader before has said at its end.
    pub fn last_words(&self) -> LastWords {
        let words = self.words.lock().clone();
        match words {
            LastWords::Awaited { until } if until <= Instant::now() => LastWords::None,
            words => words,
        }
    }

    /// This is known of what the leader before says.
    pub fn hear(&self, words: LastWords) {
        *self.words.lock() = words;
    }

    fn lock(&self) -> MutexGuard<'_, Option<TermEnd>> {
        // Nothing under the lock can panic.
        self.ends.lock()
    }
}
