//! A semaphore whose permits are shared between namespaces (rule fetch-6).
//!
//! What is slow is done few times at once. Whoever has much of it must not hold up others: a namespace has a part of
//! the permits at most, and namespaces that wait take turns.
//!
//! Who waits belongs to a namespace here; callers of the gRPC APIs, and their addresses, share permits in the same way
//! (rule elasticity-29). Several within a namespace may take turns, too, such as the connections of an address. With
//! one permit for each and any number in all it is a lock for each name, such as that of an object that is changed.
//!
//! Knows: namespaces. Must not know: what a permit is for.
//!
//! Invariants: there are never more permits than in all, nor more of one namespace than its part. Of namespaces that
//! wait, and may, each gets a permit before one of them gets its second; within a namespace the first that waits is the
//! first that gets one, unless several of it are told apart. Whoever waits no more costs nobody a permit. No more is
//! kept of those who have left than of those who wait, but for a few.

use parking_lot::{Mutex, MutexGuard};
use std::collections::HashMap;
use std::sync::Arc;
use streams_kubernetes::queue::{Owner, Turns};
use streams_kubernetes::stopwatch;
use tokio::sync::oneshot;

/// So many may have left, beside one for each that waits, before what is kept of them is dropped: it takes as long as
/// there are of both.
const LEFT_MAX: usize = 8;

/// The semaphore. Cheap to clone; all clones are the same.
#[derive(Clone)]
pub(crate) struct FairSemaphore {
    state: Arc<Mutex<State>>,
}

/// A permit, as long as it lives.
pub(crate) struct FairPermit {
    semaphore: FairSemaphore,
    /// The namespace that has it; `None` once it was given back.
    of: Option<Arc<str>>,
}

struct State {
    most: usize,
    most_of_one: usize,
    given: usize,
    namespaces: HashMap<Arc<str>, Counts>,
    waiting: Turns<Waiting>,
    /// How many wait, of all namespaces.
    waiting_in_all: usize,
    /// How many have left without a permit since what is kept of them was dropped.
    left: usize,
}

/// What a namespace has.
#[derive(Default)]
struct Counts {
    given: usize,
    waiting: usize,
}

struct Waiting {
    namespace: Arc<str>,
    wake: oneshot::Sender<FairPermit>,
}

/// Somebody waits as long as it lives.
struct Line<'a> {
    semaphore: &'a FairSemaphore,
    namespace: Arc<str>,
    has_permit: bool,
}

impl FairSemaphore {
    /// So many permits in all, and so many of one namespace; one at least.
    pub(crate) fn new(most: usize, most_of_one: usize) -> Self {
        let (most, most_of_one) = (most.max(1), most_of_one.max(1));
        let (namespaces, waiting) = (HashMap::new(), Turns::default());
        let state = State { most, most_of_one, given: 0, namespaces, waiting, waiting_in_all: 0, left: 0 };
        Self { state: Arc::new(Mutex::new(state)) }
    }

    /// Waits for a permit for this namespace.
    pub(crate) async fn acquire(&self, namespace: &str) -> FairPermit {
        self.acquire_for(Owner { namespace: namespace.into(), object: Arc::default() }).await
    }

    /// The same for one of several within a namespace, which take turns.
    pub(crate) async fn acquire_for(&self, owner: Owner) -> FairPermit {
        let (wake, woken) = oneshot::channel();
        let mut line = self.line_up(owner, wake);
        self.let_in();
        // A sender is dropped without a permit only when nobody waits for it.
        let nobodys = |_| FairPermit { semaphore: self.clone(), of: None };
        let permit = stopwatch::aside(woken).await.unwrap_or_else(nobodys);
        line.has_permit = true;
        permit
    }

    /// How many wait for a permit for this namespace.
    pub(crate) fn waiting(&self, namespace: &str) -> usize {
        self.state().namespaces.get(namespace).map_or(0, |counts| counts.waiting)
    }

    fn line_up(&self, owner: Owner, wake: oneshot::Sender<FairPermit>) -> Line<'_> {
        let namespace = Arc::clone(&owner.namespace);
        let mut state = self.state();
        state.namespaces.entry(Arc::clone(&namespace)).or_default().waiting += 1;
        state.waiting_in_all += 1;
        state.waiting.push(owner, Waiting { namespace: Arc::clone(&namespace), wake });
        Line { semaphore: self, namespace, has_permit: false }
    }

    /// Gives permits to whoever may have one.
    fn let_in(&self) {
        loop {
            // The lock ends with the statement: a permit that nobody waits for any more takes it again.
            let next = self.state().next();
            let Some(Waiting { namespace, wake }) = next else { return };
            let permit = FairPermit { semaphore: self.clone(), of: Some(namespace) };
            if let Err(mut unwanted) = wake.send(permit)
                && let Some(namespace) = unwanted.of.take()
            {
                self.state().change(&namespace, |counts| counts.given -= 1);
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Every change of the state is finished before anything that could panic.
        self.state.lock()
    }
}

impl State {
    /// The next that gets a permit, if there is one.
    fn next(&mut self) -> Option<Waiting> {
        if self.given >= self.most {
            return None;
        }
        let (namespaces, most_of_one) = (&self.namespaces, self.most_of_one);
        let may = |namespace: &str| namespaces.get(namespace).is_none_or(|counts| counts.given < most_of_one);
        let next = self.waiting.pop(may, |waiting| !waiting.wake.is_closed())?;
        self.change(&next.namespace, |counts| counts.given += 1);
        Some(next)
    }

    /// Somebody waits no more.
    fn leave(&mut self, namespace: &Arc<str>, has_permit: bool) {
        self.change(namespace, |counts| counts.waiting -= 1);
        self.waiting_in_all -= 1;
        if has_permit {
            return;
        }
        self.left += 1;
        if self.left > self.waiting_in_all + LEFT_MAX {
            self.left = 0;
            self.waiting.retain(|waiting| !waiting.wake.is_closed());
        }
    }

    fn change(&mut self, namespace: &Arc<str>, change: impl FnOnce(&mut Counts)) {
        let counts = self.namespaces.entry(Arc::clone(namespace)).or_default();
        let before = counts.given;
        change(counts);
        self.given = self.given - before + counts.given;
        if (counts.given, counts.waiting) == (0, 0) {
            self.namespaces.remove(namespace);
        }
    }
}

impl Drop for Line<'_> {
    fn drop(&mut self) {
        self.semaphore.state().leave(&self.namespace, self.has_permit);
    }
}

impl Drop for FairPermit {
    fn drop(&mut self) {
        if let Some(namespace) = self.of.take() {
            self.semaphore.state().change(&namespace, |counts| counts.given -= 1);
            self.semaphore.let_in();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt as _;
    use futures::future::BoxFuture;

    /// Asks for a permit for each of these namespaces, one after the other; those that have none yet wait.
    fn ask<'a>(semaphore: &'a FairSemaphore, namespaces: &[&'static str]) -> Vec<Asked<'a>> {
        let mut all: Vec<Asked<'_>> = namespaces.iter().map(|of| Asked::new(semaphore, of)).collect();
        for asked in &mut all {
            asked.has_it();
        }
        all
    }

    struct Asked<'a> {
        of: &'static str,
        waits: Option<BoxFuture<'a, FairPermit>>,
        permit: Option<FairPermit>,
    }

    impl<'a> Asked<'a> {
        fn new(semaphore: &'a FairSemaphore, of: &'static str) -> Self {
            Self { of, waits: Some(semaphore.acquire(of).boxed()), permit: None }
        }

        fn has_it(&mut self) -> bool {
            if let Some(permit) = self.waits.as_mut().and_then(|waits| waits.now_or_never()) {
                (self.permit, self.waits) = (Some(permit), None);
            }
            self.permit.is_some()
        }
    }

    /// The namespaces that have permits now, in the order in which they asked.
    fn with_permits(all: &mut [Asked<'_>]) -> String {
        all.iter_mut().filter_map(|asked| asked.has_it().then_some(asked.of)).collect()
    }

    #[test]
    fn a_namespace_leaves_permits_to_others() {
        // in all, of one; who asks -> who has permits
        let table: [(usize, usize, &[&str], &str); 6] = [
            (4, 2, &["a", "a", "a", "b"], "aab"),
            (4, 2, &["a", "a", "a", "b", "b", "c"], "aabb"),
            (2, 1, &["a", "a", "a", "b"], "ab"),
            (2, 1, &["b", "a", "a", "c"], "ba"),
            (1, 1, &["a", "b"], "a"),
            (0, 0, &["a", "b"], "a"),
        ];
        for (most, most_of_one, namespaces, expected) in table {
            let semaphore = FairSemaphore::new(most, most_of_one);
            assert_eq!(with_permits(&mut ask(&semaphore, namespaces)), expected, "{most} {most_of_one} {namespaces:?}");
        }
    }

    #[test]
    fn namespaces_that_wait_take_turns() {
        let semaphore = FairSemaphore::new(1, 1);
        let mut all = ask(&semaphore, &["a", "a", "a", "b", "b", "c"]);
        let mut order = String::new();
        while let Some(position) = all.iter_mut().position(Asked::has_it) {
            order.push_str(all.remove(position).of);
        }
        assert_eq!(order, "aabcab");
        assert!(semaphore.state().namespaces.is_empty() && semaphore.state().given == 0, "nothing is kept");
    }

    #[test]
    fn several_of_a_namespace_take_turns_where_they_are_told_apart() {
        let semaphore = FairSemaphore::new(1, 1);
        let first = semaphore.acquire("a").now_or_never();
        let owner = |object: &str| Owner { namespace: "a".into(), object: object.into() };
        let mut all: Vec<_> =
            ["x", "x", "x", "y", "z"].map(|one| (one, semaphore.acquire_for(owner(one)).boxed())).into();
        assert!(all.iter_mut().all(|(_, waits)| waits.now_or_never().is_none()));
        drop(first);
        let mut order = String::new();
        while let Some(at) = all.iter_mut().position(|(_, waits)| waits.now_or_never().is_some()) {
            order.push_str(all.remove(at).0);
        }
        assert_eq!(order, "xyzxx");
    }

    #[test]
    fn of_those_who_have_left_little_is_kept_while_nobody_gets_a_permit() {
        let semaphore = FairSemaphore::new(1, 1);
        let _held = semaphore.acquire("a").now_or_never().unwrap();
        let owner = Owner { namespace: "b".into(), object: Arc::default() };
        let mut stays: Vec<_> = (0..10).map(|_| semaphore.acquire_for(owner.clone()).boxed()).collect();
        assert!(stays.iter_mut().all(|waits| waits.now_or_never().is_none()));
        let before = Arc::strong_count(&owner.namespace);
        for _ in 0..1_000 {
            assert!(semaphore.acquire_for(owner.clone()).now_or_never().is_none());
            let of_others = Arc::strong_count(&owner.namespace) - before;
            assert!(of_others <= stays.len() + LEFT_MAX, "{of_others}");
        }
        // Of namespaces that nobody waits for, too.
        for number in 0..1_000 {
            assert!(semaphore.acquire(&number.to_string()).now_or_never().is_none());
        }
        drop(stays);
        assert_eq!(semaphore.state().namespaces.len(), 1);
        let rest = Arc::strong_count(&owner.namespace);
        assert!(rest <= 3 + LEFT_MAX, "{rest}");
    }

    #[test]
    fn whoever_waits_no_more_costs_nobody_a_permit() {
        let semaphore = FairSemaphore::new(1, 1);
        let mut first = ask(&semaphore, &["a", "a", "b"]);
        assert_eq!((semaphore.waiting("a"), semaphore.waiting("b"), semaphore.waiting("c")), (1, 1, 0));
        drop(first.remove(1));
        drop(first.remove(0));
        assert_eq!(with_permits(&mut first), "b");
        // One that was given a permit and has not heard of it.
        let mut later = ask(&semaphore, &["c", "d"]);
        drop(first);
        drop(later.remove(0));
        assert_eq!(with_permits(&mut later), "d");
        drop(later);
        assert!(semaphore.state().namespaces.is_empty() && semaphore.state().given == 0, "nothing is kept");
    }
}
