//! Whose memory a compiled job is, and who frees it (rules service-9, service-27 and service-28).
//!
//! A job may take as much memory as all calls have together, and a call may have one for long without working: while it
//! waits for a worker, or sends texts to a caller who reads slowly. So at any time a job is in one of three budgets:
//!
//! * that of the worker which has made it, as long as nobody else has it;
//! * that of the cache, from when it is put there;
//! * that of the calls, from when the cache has dropped it, or did not want it. Then it counts once, however many calls
//!   have it. A call for which it was made may be told that there is no room; one that has found it in the cache has it
//!   already, so it counts then even if there is none, and calls that come find so much less.
//!
//! Freeing a large job takes a tenth of a second, because it has millions of parts. Whoever had it last may be a thread
//! that serves connections. So jobs that others than their worker had are freed on a [thread](Leaving) of their own.
//!
//! Knows: memory, threads. Must not know: what a job is, what the cache keeps.
//!
//! Invariant: the memory of a job is given back after it was freed, not before.

use super::class::CallClass;
use super::memory::{Denied, Memory, Share};
use parking_lot::Mutex;
use std::mem;
use std::ops::Deref;
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, OnceLock};
use std::thread::Builder;

/// A compiled job with the budget that it is in.
pub(crate) struct Kept<J: Send + 'static> {
    /// `None` only while it is dropped.
    job: Option<J>,
    bytes: u64,
    owner: Mutex<Owner>,
    leaving: Arc<Leaving<J>>,
}

/// Whose memory a job is.
enum Owner {
    /// The worker that makes it.
    Worker,
    Cache,
    /// All calls that have it.
    Calls {
        _memory: Share,
    },
}

/// The thread that frees jobs. It begins with the first one.
pub(crate) struct Leaving<J> {
    /// `None` if there is no such thread.
    jobs: OnceLock<Option<Sender<(J, Owner)>>>,
}

impl<J: Send + 'static> Kept<J> {
    /// The thread that calls this has made the job, which takes so many bytes.
    pub(crate) fn new(job: J, bytes: u64, leaving: &Arc<Leaving<J>>) -> Self {
        Self { job: Some(job), bytes, owner: Mutex::new(Owner::Worker), leaving: Arc::clone(leaving) }
    }

    /// Bytes of memory that it takes, roughly.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Takes memory of calls for it, if it is in no budget but that of its worker. The worker calls this before it goes
    /// on to other work. `share` is that of a call that wants the job.
    ///
    /// # Errors
    ///
    /// There is not so much.
    pub(crate) fn charge(&self, share: &Share) -> Result<(), Denied> {
        let mut owner = self.owner.lock();
        if let Owner::Worker = *owner {
            let memory = share.empty();
            memory.take_at_once(self.bytes)?;
            *owner = Owner::Calls { _memory: memory };
        }
        Ok(())
    }

    /// It is put into the cache.
    pub(crate) fn enters_cache(&self) {
        let before = mem::replace(&mut *self.owner.lock(), Owner::Cache);
        drop(before);
    }

    /// The cache has dropped it. Calls that have it go on, so it counts even if there is no room.
    pub(crate) fn leaves_cache(&self, memory: &Memory) {
        let memory = memory.charge(CallClass::Render, self.bytes);
        *self.owner.lock() = Owner::Calls { _memory: memory };
    }
}

impl<J: Send + 'static> Deref for Kept<J> {
    type Target = J;

    #[allow(clippy::expect_used, reason = "who drops it is the last who has it")]
    fn deref(&self) -> &J {
        self.job.as_ref().expect("a job that is being dropped")
    }
}

impl<J: Send + 'static> Drop for Kept<J> {
    fn drop(&mut self) {
        let Some(job) = self.job.take() else { return };
        match mem::replace(self.owner.get_mut(), Owner::Worker) {
            Owner::Worker => drop(job),
            owner => self.leaving.free(job, owner),
        }
    }
}

impl<J> Default for Leaving<J> {
    fn default() -> Self {
        Self { jobs: OnceLock::new() }
    }
}

impl<J: Send + 'static> Leaving<J> {
    /// Frees the job, and gives back its memory then.
    fn free(&self, job: J, owner: Owner) {
        match self.jobs.get_or_init(Self::begin) {
            Some(jobs) => {
                // If the thread has ended, the job comes back and is freed here.
                drop(jobs.send((job, owner)));
            }
            None => drop((job, owner)),
        }
    }

    fn begin() -> Option<Sender<(J, Owner)>> {
        let (sender, jobs) = mpsc::channel::<(J, Owner)>();
        let free = move || {
            for (job, owner) in jobs {
                drop(job);
                drop(owner);
            }
        };
        // It ends when nobody is left who could send something.
        Builder::new().name("frees-jobs".to_owned()).spawn(free).ok().map(|_| sender)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::metrics::Metrics;
    use std::sync::mpsc::Receiver;
    use std::thread;
    use std::time::{Duration, Instant};

    const ALL: u64 = 100;

    /// Tells which thread frees it, and waits until it may go.
    struct Large(Sender<Option<String>>, Receiver<()>);

    impl Drop for Large {
        fn drop(&mut self) {
            let _ = self.0.send(thread::current().name().map(str::to_owned));
            let _ = self.1.recv();
        }
    }

    fn memory() -> Memory {
        Memory::new(ALL, Arc::new(Metrics::new()))
    }

    fn large(bytes: u64) -> (Kept<Large>, Receiver<Option<String>>, Sender<()>) {
        let ((names, freed), (go, may_go)) = (mpsc::channel(), mpsc::channel());
        (Kept::new(Large(names, may_go), bytes, &Arc::default()), freed, go)
    }

    fn taken(memory: &Memory) -> u64 {
        memory.taken().0
    }

    #[test]
    fn what_others_had_is_freed_on_a_thread_of_its_own_and_counts_until_then() {
        let memory = memory();
        let here = thread::current().name().map(str::to_owned);
        let there = Some("frees-jobs".to_owned());
        type Use = fn(&Kept<Large>, &Memory);
        let cases: [(&str, Use, u64, Option<String>); 4] = [
            ("its worker only", |_, _| {}, 0, here),
            ("the cache", |job, _| job.enters_cache(), 0, there.clone()),
            (
                "calls that found it in the cache",
                |job, memory| {
                    job.enters_cache();
                    job.leaves_cache(memory);
                },
                30,
                there.clone(),
            ),
            ("calls", |job, memory| job.charge(&memory.share(CallClass::Resize)).unwrap(), 30, there),
        ];
        for (who, used, bytes, thread) in cases {
            let (job, freed, go) = large(30);
            used(&job, &memory);
            if thread.as_deref() != Some("frees-jobs") {
                // This thread itself would wait for it.
                go.send(()).unwrap();
            }
            drop(job);
            assert_eq!((freed.recv().unwrap(), taken(&memory)), (thread, bytes), "{who}");
            let _ = go.send(());
            let deadline = Instant::now() + Duration::from_secs(60);
            while taken(&memory) > 0 {
                assert!(Instant::now() < deadline, "{who}");
                thread::yield_now();
            }
        }
    }

    #[test]
    fn it_counts_once_and_not_beside_the_cache() {
        let memory = memory();
        let share = memory.share(CallClass::Render);
        let (job, _freed, go) = large(60);
        job.charge(&share).unwrap();
        job.charge(&share).unwrap();
        assert_eq!(taken(&memory), 60);
        // Another one finds too little, unless the cache has it, or had it.
        let (other, _freed_too, go_too) = large(60);
        assert_eq!(other.charge(&share), Err(Denied::Busy));
        other.enters_cache();
        other.charge(&share).unwrap();
        assert_eq!(taken(&memory), 60);
        other.leaves_cache(&memory);
        assert_eq!(taken(&memory), 120);
        other.charge(&share).unwrap();
        assert_eq!(taken(&memory), 120);
        for go in [go, go_too] {
            go.send(()).unwrap();
        }
    }
}
