//! Whose memory a compiled job is, and who frees it (rules service-9, service-27 and service-28).
//!
//! A job may take as much memory as all calls have together, and a call may have one for long without working: while it
//! waits for a worker, or sends texts to a caller who reads slowly. So at any time a job is in one of three budgets:
//!
//! * that of the worker which has made it, as long as nobody else has it;
//! * that of the cache, from when it is put there;
//! * that of the calls, from when the cache has dropped it, or did not want it. Then it counts once, however many calls
//!   have it. When the cache drops a job that calls have, it counts even if there is no room. So while calls have more
//!   than their budget no further one gets a job: what is above the budget was in the cache when that was full. A call
//!   that needs a job which is known to be too large for the cache takes this memory before the job is restored.
//!
//! Freeing a large job takes a tenth of a second, because it has millions of parts. Whoever had it last may be a thread
//! that serves connections. So jobs that others than their worker had are freed on a [thread](Leaving) of their own.
//! While more of them wait for it, workers that make jobs help it. So no more wait than calls let go at once.
//!
//! Knows: memory, threads. Must not know: what a job is, what the cache keeps.
//!
//! Invariant: the memory of a job is given back after it was freed, not before.

use super::class::CallClass;
use super::memory::{Denied, Memory, Share, WAIT};
use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::mem;
use std::ops::Deref;
use std::sync::Arc;
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
        /// What the call has that took it, if some of that is for the job.
        _of_call: Option<Arc<Share>>,
    },
}

/// The thread that frees jobs. It ends when nobody is left who could give it one.
pub(crate) struct Leaving<J> {
    line: Arc<Line<J>>,
    has_thread: bool,
}

/// Jobs that wait to be freed.
struct Line<J> {
    waiting: Mutex<Waiting<J>>,
    changed: Condvar,
}

struct Waiting<J> {
    jobs: VecDeque<(J, Owner)>,
    /// None follows.
    ended: bool,
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
    /// on to other work. `share` is that of a call that wants the job, `reserved` what was taken for that before. If it
    /// is too little, and the rest is not there, it is given back; then this waits for memory, but not for long.
    ///
    /// # Errors
    ///
    /// There is not so much; or calls have more than their budget, so that none may get a job.
    pub(crate) async fn charge(&self, share: &Arc<Share>, reserved: Option<Share>) -> Result<(), Denied> {
        let is_of_worker = matches!(*self.owner.lock(), Owner::Worker);
        let bytes = if is_of_worker { share.lacks_for_job(self.bytes) } else { 0 };
        let is_enough = |reserved: &Share| {
            let lacks = bytes.saturating_sub(reserved.bytes());
            is_of_worker && (lacks == 0 || reserved.take_if_spare(lacks).is_ok())
        };
        let memory = match reserved.filter(is_enough) {
            Some(reserved) => {
                reserved.keep(bytes);
                reserved
            }
            // Who asks for nothing waits, too, while others have more than there is.
            None => share.take_for_job(bytes, WAIT).await?,
        };
        if is_of_worker {
            // Others may have the job for longer than this call lasts.
            let of_call = (bytes < self.bytes).then(|| Arc::clone(share));
            *self.owner.lock() = Owner::Calls { _memory: memory, _of_call: of_call };
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
        *self.owner.lock() = Owner::Calls { _memory: memory, _of_call: None };
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

impl<J: Send + 'static> Leaving<J> {
    /// Begins the thread. It is as important as the one that calls this: one for work that makes way must not.
    pub(crate) fn begin() -> Self {
        let waiting = Mutex::new(Waiting { jobs: VecDeque::new(), ended: false });
        let line = Arc::new(Line { waiting, changed: Condvar::new() });
        let jobs = Arc::clone(&line);
        let work = move || {
            while let Some(leaving) = jobs.next() {
                free(leaving);
            }
        };
        let has_thread = Builder::new().name("frees-jobs".to_owned()).spawn(work).is_ok();
        Self { line, has_thread }
    }

    /// Frees the job on the thread, and gives back its memory then.
    fn free(&self, job: J, owner: Owner) {
        if self.has_thread {
            self.line.waiting.lock().jobs.push_back((job, owner));
            self.line.changed.notify_one();
        } else {
            free((job, owner));
        }
    }

    /// Frees jobs here as long as more than one waits for the thread. Who makes jobs calls this, so that they are not
    /// made sooner than freed.
    pub(crate) fn help(&self) {
        while let Some(leaving) = self.line.next_but_one() {
            free(leaving);
        }
    }
}

impl<J> Drop for Leaving<J> {
    fn drop(&mut self) {
        self.line.waiting.lock().ended = true;
        self.line.changed.notify_one();
    }
}

impl<J> Line<J> {
    /// The job that has waited for longest. Waits for one.
    fn next(&self) -> Option<(J, Owner)> {
        let mut waiting = self.waiting.lock();
        loop {
            if let Some(next) = waiting.jobs.pop_front() {
                return Some(next);
            }
            if waiting.ended {
                return None;
            }
            self.changed.wait(&mut waiting);
        }
    }

    /// The same if another one is left then. Does not wait.
    fn next_but_one(&self) -> Option<(J, Owner)> {
        let mut waiting = self.waiting.lock();
        if waiting.jobs.len() > 1 { waiting.jobs.pop_front() } else { None }
    }
}

fn free<J>((job, owner): (J, Owner)) {
    drop(job);
    drop(owner);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::metrics::Metrics;
    use futures::FutureExt;
    use std::fs;
    use std::sync::mpsc::{self, Receiver, Sender};
    use std::thread;
    use std::time::{Duration, Instant};
    use streams_process::background;

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
        large_of(&Arc::new(Leaving::begin()), bytes)
    }

    fn large_of(leaving: &Arc<Leaving<Large>>, bytes: u64) -> (Kept<Large>, Receiver<Option<String>>, Sender<()>) {
        let ((names, freed), (go, may_go)) = (mpsc::channel(), mpsc::channel());
        (Kept::new(Large(names, may_go), bytes, leaving), freed, go)
    }

    fn taken(memory: &Memory) -> u64 {
        memory.taken().0
    }

    #[tokio::test]
    async fn what_others_had_is_freed_on_a_thread_of_its_own_and_counts_until_then() {
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
            (
                "calls",
                |job, memory| {
                    let share = Arc::new(memory.share(CallClass::Resize));
                    job.charge(&share, None).now_or_never().unwrap().unwrap();
                },
                30,
                there,
            ),
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

    #[tokio::test]
    async fn it_counts_once_and_not_beside_the_cache() {
        let memory = memory();
        let share = Arc::new(memory.share(CallClass::Render));
        let (job, _freed, go) = large(60);
        job.charge(&share, None).await.unwrap();
        job.charge(&share, None).await.unwrap();
        assert_eq!(taken(&memory), 60);
        // Another one finds too little, unless the cache has it.
        let (other, freed_too, go_too) = large(60);
        assert_eq!(other.charge(&share, None).await, Err(Denied::Busy));
        other.enters_cache();
        other.charge(&share, None).await.unwrap();
        assert_eq!(taken(&memory), 60);
        // When calls have more than their budget none gets a job, whoever has it.
        other.leaves_cache(&memory);
        assert_eq!(taken(&memory), 120);
        let (third, _freed, _go) = large(1);
        third.enters_cache();
        for job in [&job, &other, &third] {
            assert_eq!(job.charge(&share, None).await, Err(Denied::Busy));
        }
        go_too.send(()).unwrap();
        drop(other);
        freed_too.recv().unwrap();
        third.charge(&share, None).await.unwrap();
        assert_eq!(taken(&memory), 60);
        go.send(()).unwrap();
    }

    #[tokio::test]
    async fn memory_that_was_taken_beforehand_is_that_of_the_job_if_it_is_enough_and_needed() {
        let memory = memory();
        let call = Arc::new(memory.share(CallClass::Resize));
        let reserve = async |bytes| {
            let share = call.empty();
            share.take(bytes).await.unwrap();
            Some(share)
        };
        let reserved = reserve(60).await;
        let (job, _freed, go) = large(50);
        // It is the call's own, even when others have more than there is.
        let others = memory.charge(CallClass::Render, ALL);
        job.charge(&call, reserved).await.unwrap();
        assert_eq!(taken(&memory), ALL + 50);
        drop(others);
        // The job has some already.
        let reserved = reserve(20).await;
        job.charge(&call, reserved).await.unwrap();
        assert_eq!(taken(&memory), 50);
        // It is too little, and the rest is there.
        let reserved = reserve(10).await;
        let (other, _freed_too, go_too) = large(30);
        other.charge(&call, reserved).await.unwrap();
        assert_eq!(taken(&memory), 80);
        // It is not there.
        let reserved = reserve(5).await;
        let (third, _freed_as_well, go_as_well) = large(30);
        third.charge(&call, reserved).await.unwrap_err();
        assert_eq!(taken(&memory), 80);
        go.send(()).unwrap();
        go_too.send(()).unwrap();
        go_as_well.send(()).unwrap();
    }

    #[tokio::test]
    async fn a_job_that_is_larger_than_what_there_is_takes_all_that_its_call_may_have() {
        let memory = memory();
        // A sixteenth is left to others.
        for (class, most) in [(CallClass::Render, 84 - 5), (CallClass::DryRun, 72 - 4)] {
            let call = Arc::new(memory.share(class));
            call.take(10).await.unwrap();
            let (job, _freed, go) = large(10 * ALL);
            job.charge(&call, None).await.unwrap();
            assert_eq!(taken(&memory), most, "{class:?}");
            go.send(()).unwrap();
            drop(job);
            // Whoever comes meanwhile waits a moment.
            memory.share(class).take(ALL / 2).await.unwrap();
        }
    }

    #[tokio::test]
    async fn what_a_call_has_taken_for_its_job_counts_as_long_as_that_lives() {
        let memory = memory();
        let call = Arc::new(memory.share(CallClass::Resize));
        call.take(40).await.unwrap();
        // The application, which is a part of the job.
        call.is_parsed_to(30);
        let (job, _freed, go) = large(50);
        job.charge(&call, None).await.unwrap();
        assert_eq!(taken(&memory), 60);
        drop(call);
        assert_eq!(taken(&memory), 60);
        go.send(()).unwrap();
        drop(job);
        let deadline = Instant::now() + Duration::from_secs(60);
        while taken(&memory) > 0 {
            assert!(Instant::now() < deadline);
            thread::yield_now();
        }
    }

    /// How little important this thread is.
    fn niceness() -> i32 {
        let figures = fs::read_to_string("/proc/thread-self/stat").unwrap();
        // Behind the name, which may have spaces.
        let (_, figures) = figures.rsplit_once(')').unwrap();
        figures.split_whitespace().nth(16).unwrap().parse().unwrap()
    }

    /// Tells how important the thread is that frees it.
    struct Asks(Sender<i32>);

    impl Drop for Asks {
        fn drop(&mut self) {
            let _ = self.0.send(niceness());
        }
    }

    #[tokio::test]
    async fn the_thread_that_frees_jobs_is_not_less_important_because_such_a_thread_had_the_first_one() {
        let (asked, answers) = mpsc::channel();
        let job = Kept::new(Asks(asked), 1, &Arc::new(Leaving::begin()));
        job.enters_cache();
        let there = background::spawn(move || {
            drop(job);
            niceness()
        });
        assert_eq!(there.await.unwrap(), niceness().max(background::NICENESS));
        assert_eq!(answers.recv().unwrap(), niceness());
    }

    #[test]
    fn who_makes_jobs_frees_those_for_which_the_thread_has_no_time() {
        let leaving = Arc::new(Leaving::begin());
        let (busy, has_begun, end) = large_of(&leaving, 1);
        busy.enters_cache();
        drop(busy);
        let there = Some("frees-jobs".to_owned());
        assert_eq!(has_begun.recv().unwrap(), there);
        let freed = [(); 3].map(|()| {
            let (job, freed, go) = large_of(&leaving, 1);
            job.enters_cache();
            go.send(()).unwrap();
            drop(job);
            freed
        });
        leaving.help();
        let here = thread::current().name().map(str::to_owned);
        assert_eq!(freed.each_ref().map(|freed| freed.try_recv().ok()), [Some(here.clone()), Some(here), None]);
        end.send(()).unwrap();
        assert_eq!(freed[2].recv().unwrap(), there);
    }
}
