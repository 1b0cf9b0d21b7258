//! Divides work among the cores that a budget lends.
//!
//! [`Budget::both`] does two things at once, [`Budget::in_chunks`] makes a list in chunks. One thread makes a piece,
//! and pieces are put together in order, so the result depends neither on how many threads there are nor on which of
//! them made what. Where there are no cores, or there is too little to be worth one, the thread of the caller does
//! everything.
//!
//! Knows: pieces of work, the cores of a budget. Must not know: what the work is.
//!
//! Invariant: the result is that of one thread, and so is the problem where there are several.

use crate::budget::Budget;
use crate::error::Error;
use parking_lot::Mutex;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Entries of a list, such as PEs, that are worth a helper: below, starting it takes longer than what it does.
const WORTHWHILE: usize = 512;
/// The same for two things that are done at once, where little is done with each entry.
const WORTHWHILE_FOR_BOTH: usize = 2048;
/// Chunks of a list.
const CHUNKS: usize = 64;

impl Budget {
    /// Does both, at the same time if a core is idle. `entries` is how many entries each of them goes through.
    pub fn both<A: Send, B: Send>(
        &self,
        entries: usize,
        one: impl Fn() -> A + Sync,
        other: impl Fn() -> B + Sync,
    ) -> (A, B) {
        if self.cores.is_none() || entries < WORTHWHILE_FOR_BOTH {
            return (one(), other());
        }
        let (one, other) = (Piece::new(one), Piece::new(other));
        self.share(&|may_go_on| {
            if may_go_on() {
                one.make();
            }
            if may_go_on() {
                other.make();
            }
        });
        (one.finish(), other.finish())
    }

    /// Makes a list of so many entries in chunks, with the help of idle cores. `make` makes those at some positions,
    /// which may be all.
    ///
    /// # Errors
    ///
    /// That of the first chunk, in order, that cannot be made. The budget ends.
    pub fn in_chunks<T: Send>(
        &self,
        entries: usize,
        make: impl Fn(Range<usize>) -> Result<Vec<T>, Error> + Sync,
    ) -> Result<Vec<T>, Error> {
        self.in_chunks_beside(entries, make, || ()).0
    }

    /// The same, and does something else besides, which is begun first because it is one piece.
    pub fn in_chunks_beside<T: Send, B: Send>(
        &self,
        entries: usize,
        make: impl Fn(Range<usize>) -> Result<Vec<T>, Error> + Sync,
        other: impl Fn() -> B + Sync,
    ) -> (Result<Vec<T>, Error>, B) {
        if !self.is_worth_a_helper(entries) {
            return (make(0..entries), other());
        }
        let other = Piece::new(other);
        let chunk = entries.div_ceil(CHUNKS);
        let positions = |number: usize| number * chunk..entries.min((number + 1) * chunk);
        // By chunk.
        let made: Vec<_> = (0..entries.div_ceil(chunk)).map(|_| Mutex::new(None)).collect();
        let (next, failed) = (AtomicUsize::new(0), AtomicBool::new(false));
        self.share(&|may_go_on| {
            if may_go_on() {
                other.make();
            }
            // Chunks are begun in order, and each that is begun is made. So all before one that fails are made.
            while !failed.load(Ordering::Relaxed) && may_go_on() {
                let number = next.fetch_add(1, Ordering::Relaxed);
                let Some(place) = made.get(number) else { return };
                let list = self.check().and_then(|()| make(positions(number)));
                if list.is_err() {
                    failed.store(true, Ordering::Relaxed);
                }
                *place.lock() = Some(list);
            }
        });
        let put_together = || -> Result<Vec<T>, Error> {
            let mut all = Vec::with_capacity(entries);
            for (number, list) in made.into_iter().enumerate() {
                all.extend(list.into_inner().unwrap_or_else(|| make(positions(number)))?);
            }
            Ok(all)
        };
        (put_together(), other.finish())
    }

    /// Whether there are cores, and a list of so many entries is worth a helper.
    pub(crate) fn is_worth_a_helper(&self, entries: usize) -> bool {
        self.cores.is_some() && entries >= WORTHWHILE
    }
}

/// A piece of work. Whoever comes first does it.
struct Piece<F, T> {
    work: F,
    begun: AtomicBool,
    made: Mutex<Option<T>>,
}

impl<T, F: Fn() -> T> Piece<F, T> {
    fn new(work: F) -> Self {
        Self { work, begun: AtomicBool::new(false), made: Mutex::new(None) }
    }

    fn make(&self) {
        if !self.begun.swap(true, Ordering::Relaxed) {
            let made = (self.work)();
            *self.made.lock() = Some(made);
        }
    }

    fn finish(self) -> T {
        self.made.into_inner().unwrap_or_else(self.work)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::budget::{Cores, SharedWork};
    use crate::error::{Problem, Stage};
    use std::sync::Arc;
    use std::thread;

    /// So many threads help, each with so many pieces.
    #[derive(Debug)]
    struct Helpers(usize, usize);

    impl Cores for Helpers {
        fn share(&self, work: &SharedWork<'_>) {
            thread::scope(|scope| {
                for _ in 0..self.0 {
                    scope.spawn(|| {
                        let done = AtomicUsize::new(0);
                        work(&|| done.fetch_add(1, Ordering::Relaxed) < self.1);
                    });
                }
                work(&|| true);
            });
        }
    }

    fn budgets() -> impl Iterator<Item = Budget> {
        let helpers = [(0, 0), (1, 0), (1, 1), (3, 2), (3, usize::MAX), (16, usize::MAX)];
        let with = |(count, pieces)| Budget { cores: Some(Arc::new(Helpers(count, pieces))), ..Budget::default() };
        [Budget::default()].into_iter().chain(helpers.into_iter().map(with))
    }

    #[test]
    fn entries_are_in_order_whoever_makes_them() {
        for budget in budgets() {
            for entries in [0, 1, WORTHWHILE - 1, WORTHWHILE, WORTHWHILE + 1, 1000, 10_001] {
                let begun = AtomicUsize::new(0);
                let other = || begun.fetch_add(1, Ordering::Relaxed);
                let (list, before) = budget.in_chunks_beside(entries, |range| Ok(range.collect()), other);
                assert_eq!(list, Ok((0..entries).collect::<Vec<_>>()));
                assert_eq!((before, begun.into_inner()), (0, 1));
                assert_eq!(budget.both(entries, || 1, || "b"), (1, "b"));
            }
        }
    }

    #[test]
    fn chunks_are_not_made_for_nobody() {
        for budget in budgets().filter(|budget| budget.cores.is_some()) {
            let cancelled = Budget { cores: budget.cores, ..Budget::cancelled() };
            assert_eq!(cancelled.in_chunks(10_000, |range| Ok(range.collect::<Vec<_>>())), Err(Error::Cancelled));
        }
    }

    #[test]
    fn the_first_problem_counts() {
        for budget in budgets() {
            let make = |range: Range<usize>| match range.clone().find(|at| *at % 1000 == 700) {
                Some(at) => Err(Problem::new(Stage::Topology, at.to_string()).into()),
                None => Ok(range.collect::<Vec<_>>()),
            };
            let problem = budget.in_chunks(10_000, make).unwrap_err();
            assert_eq!(problem.problems()[0].message, "700");
        }
    }
}
