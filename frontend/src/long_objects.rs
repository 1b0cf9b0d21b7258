//! Work on long objects, beside the threads that serve everybody (rules import-7, import-8 and pe-api-11).
//!
//! Whoever may change an export or import can give it hundreds of thousands of values. To unpack such an object, to
//! copy it, to find out whether its values are well-formed, or to write it as an answer takes up to a tenth of a
//! second. A thread of the runtime that did so would serve nobody else meanwhile: no other namespace, no mirror, no
//! probe, and not the Lease. So whoever does anything with all of an object that may be long asks here for a thread
//! that serves nobody else. What is short takes less time than it takes to change threads.
//!
//! Each API has threads of its own, and so has each controller: a PE waits for its answer for a second, and the list
//! of a program may take longer. So have, within an API, changes: whoever may read may ask for many answers, and no
//! change waits behind these.
//!
//! Knows: octets, whose turn it is. Must not know: what is done.
//!
//! Invariants: few of these threads are at work at the same time, and of a namespace one. Namespaces take turns, and
//! within one those who are told apart. What has begun goes on if nobody waits for it any more, and has its turn until
//! it ends.

use crate::fair_semaphore::FairSemaphore;
use streams_kubernetes::queue::Owner;
use tokio::task::{JoinError, spawn_blocking};

/// Octets of an object, and of what it is to become, from which on it takes some 10 ms and more.
const LONG: usize = 65_536;
/// What is done at the same time: there are two processors where the frontend usually runs.
const AT_ONCE: usize = 2;
/// Of one namespace: the other one is for others.
const AT_ONCE_OF_ONE: usize = 1;

/// Threads for what takes long, and whose turn it is. Cheap to clone; all clones are the same.
#[derive(Clone)]
pub(crate) struct LongObjects {
    turns: FairSemaphore,
}

impl LongObjects {
    /// Nothing is at work.
    pub(crate) fn new() -> Self {
        Self { turns: FairSemaphore::new(AT_ONCE, AT_ONCE_OF_ONE) }
    }

    /// Does `work` about so many octets: on this thread, if these are few, else beside it.
    ///
    /// # Errors
    /// `work` panicked beside this thread, or this process ends.
    pub(crate) async fn about<T: Send + 'static>(
        &self,
        octets: usize,
        owner: Owner,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, JoinError> {
        if is_long(octets) { self.aside(owner, work).await } else { Ok(work()) }
    }

    /// Does `work` on a thread that serves nobody else, when it is the turn of its owner.
    ///
    /// # Errors
    /// `work` panicked, or this process ends.
    pub(crate) async fn aside<T: Send + 'static>(
        &self,
        owner: Owner,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, JoinError> {
        let turn = self.turns.acquire_for(owner).await;
        let done = spawn_blocking(move || {
            let _turn = turn;
            work()
        });
        done.await
    }

    /// The turn of a namespace, as if something of it were at work.
    #[cfg(test)]
    pub(crate) async fn hold(&self, namespace: &str) -> crate::fair_semaphore::FairPermit {
        self.turns.acquire(namespace).await
    }
}

/// Whether anything that is done with all of so many octets may take long.
pub(crate) fn is_long(octets: usize) -> bool {
    octets >= LONG
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt as _;
    use std::thread;

    #[tokio::test]
    async fn what_is_long_is_done_on_another_thread_in_turn() {
        let long_objects = LongObjects::new();
        let owner = |namespace: &str| Owner { namespace: namespace.into(), ..Owner::default() };
        let here = thread::current().id();
        let turn = long_objects.hold("a").await;
        let about = |octets, namespace| long_objects.about(octets, owner(namespace), || thread::current().id());
        assert_eq!(about(LONG - 1, "a").now_or_never().unwrap().unwrap(), here, "it takes no time");
        assert_ne!(about(LONG, "b").await.unwrap(), here);
        let mut waits = Box::pin(about(LONG, "a"));
        assert!((&mut waits).now_or_never().is_none());
        drop(turn);
        assert_ne!(waits.await.unwrap(), here);
    }
}
