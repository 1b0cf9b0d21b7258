//! Whoever finds that a namespace is not settled, and is to look again as soon as it is (rule import-10).
//!
//! Knows: keys. Must not know: what they are looked at for.
//!
//! Invariants: a key that waits is woken after its namespace has been settled, and none is left out because that
//! happened meanwhile; a key waits once, however often it is looked at.

use crate::broker::boards::Boards;
use parking_lot::{Mutex, MutexGuard};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use streams_kubernetes::Key;

/// Keys by namespace.
type Keys = Mutex<BTreeMap<Arc<str>, BTreeSet<Key>>>;

/// Keys that wait until their namespaces are settled.
pub(crate) struct UntilSettled {
    boards: Boards,
    keys: Arc<Keys>,
}

impl UntilSettled {
    /// Nobody waits. `wake` is called with each key that waited; it must not block.
    pub(crate) fn new(boards: &Boards, wake: impl Fn(Key) + Send + Sync + 'static) -> Self {
        let keys = Arc::new(Keys::default());
        let waiting = Arc::clone(&keys);
        boards.subscribe_to_settled(move |namespace| {
            // The lock ends with the statement: whoever is woken may wait again.
            let woken = locked(&waiting).remove(namespace);
            woken.into_iter().flatten().for_each(&wake);
        });
        Self { boards: boards.clone(), keys }
    }

    /// Wakes the key once its namespace is settled. False if it is by now: there is nothing to wait for.
    pub(crate) fn wait(&self, key: &Key) -> bool {
        locked(&self.keys).entry(Arc::clone(&key.namespace)).or_default().insert(key.clone());
        // Whoever settled it before that has not seen the key.
        let waits = !self.boards.is_settled(&key.namespace);
        if !waits {
            self.forget(key);
        }
        waits
    }

    /// The key waits no more: what it stands for is gone.
    pub(crate) fn forget(&self, key: &Key) {
        let mut keys = locked(&self.keys);
        if let Some(of_namespace) = keys.get_mut(&key.namespace) {
            of_namespace.remove(key);
            if of_namespace.is_empty() {
                keys.remove(&key.namespace);
            }
        }
    }
}

fn locked(keys: &Keys) -> MutexGuard<'_, BTreeMap<Arc<str>, BTreeSet<Key>>> {
    keys.lock()
}

#[cfg(test)]
impl UntilSettled {
    /// How many wait.
    pub(crate) fn waiting(&self) -> usize {
        locked(&self.keys).values().map(BTreeSet::len).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::broker::testing::costly_namespace;
    use crate::mirrors::Mirrors;
    use streams_kubernetes::metrics::Metrics;

    struct Fixture {
        mirrors: Mirrors,
        boards: Boards,
        until_settled: UntilSettled,
        woken: Arc<Mutex<Vec<String>>>,
    }

    impl Fixture {
        fn new() -> Self {
            let mirrors = Mirrors::new(&Metrics::new("test"));
            let boards = Boards::of(&mirrors);
            let woken = Arc::new(Mutex::new(Vec::new()));
            let list = Arc::clone(&woken);
            let until_settled = UntilSettled::new(&boards, move |key| list.lock().push(key.to_string()));
            Self { mirrors, boards, until_settled, woken }
        }

        fn woken(&self) -> Vec<String> {
            std::mem::take(&mut *self.woken.lock())
        }
    }

    #[test]
    fn of_a_namespace_that_may_not_be_read_nothing_is_known_until_it_may_be() {
        let fixture = Fixture::new();
        let key = Key::new("n", "x");
        fixture.mirrors.exports.refuse("n");
        assert!(fixture.until_settled.wait(&key) && fixture.boards.is_settled("m"));
        let pe = streams_broker::Pe { job: "in".into(), id: 0 };
        assert!(fixture.boards.routes("n", &pe).is_err() && fixture.boards.routes("m", &pe).is_ok());
        fixture.boards.settle_a_slice();
        assert_eq!(fixture.woken(), [""; 0]);
        fixture.mirrors.exports.permit("n");
        while fixture.boards.settle_a_slice() {}
        assert_eq!((fixture.woken(), fixture.until_settled.waiting()), (vec!["n/x".to_owned()], 0));
        assert!(fixture.boards.is_settled("n") && fixture.boards.routes("n", &pe).is_ok());
    }

    #[test]
    fn keys_are_woken_once_when_their_namespace_is_settled() {
        let fixture = Fixture::new();
        let until_settled = &fixture.until_settled;
        costly_namespace(&fixture.mirrors, "m", 20);
        assert!(!until_settled.wait(&Key::new("n", "x")), "nothing is to be found out there");
        for key in ["b", "a", "b", "gone"] {
            assert!(until_settled.wait(&Key::new("m", key)));
        }
        until_settled.forget(&Key::new("m", "gone"));
        assert_eq!(until_settled.waiting(), 2);
        while !fixture.boards.is_settled("m") {
            assert_eq!(fixture.woken(), [""; 0]);
            fixture.boards.settle_a_slice();
        }
        assert_eq!((fixture.woken(), until_settled.waiting()), (vec!["m/a".to_owned(), "m/b".to_owned()], 0));
        assert!(!until_settled.wait(&Key::new("m", "a")));
        assert_eq!(until_settled.waiting(), 0);
    }

    #[test]
    fn keys_are_woken_when_their_namespace_goes() {
        let fixture = Fixture::new();
        costly_namespace(&fixture.mirrors, "m", 20);
        assert!(fixture.until_settled.wait(&Key::new("m", "a")));
        fixture.mirrors.jobs.remove(&Key::new("m", "out"));
        // What it exports is looked at in several turns.
        for _ in 0..20 {
            fixture.boards.settle_a_slice();
        }
        assert_eq!((fixture.woken(), fixture.until_settled.waiting()), (vec!["m/a".to_owned()], 0));
    }
}
