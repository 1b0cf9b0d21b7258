//! Namespaces that the API server does not let this process read (rule call-33).
//!
//! Who is given rights namespace by namespace may lose those of one: its mirrors have what they had, or nothing, and
//! nobody may decide by that. Each mirror says of which namespaces it is refused its kind; whoever decides asks whether
//! any is.
//!
//! Knows: names of namespaces and kinds. Must not know: mirrors, what is decided.
//!
//! Invariant: whoever is to hear that a namespace may be read again is called after all of its mirrors are whole, and
//! after [`Refusals::contains`] says so.

use crate::queue::{Queue, QueueKey};
use parking_lot::RwLock;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

type Subscriber = Box<dyn Fn(&str) + Send + Sync>;

/// Which kinds are refused in which namespaces, of mirrors that are decided by together. Cheap to clone; all clones are
/// the same.
#[derive(Clone, Default)]
pub struct Refusals {
    shared: Arc<SharedRefusals>,
}

#[derive(Default)]
struct SharedRefusals {
    /// By namespace; of each some kind is refused.
    kinds: RwLock<BTreeMap<String, BTreeSet<String>>>,
    subscribers: RwLock<Vec<Subscriber>>,
}

impl SharedRefusals {
    fn contains(&self, namespace: &str) -> bool {
        self.kinds.read().contains_key(namespace)
    }
}

impl fmt::Debug for Refusals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Refusals").field(&*self.shared.kinds.read()).finish()
    }
}

impl Refusals {
    /// Whether some kind is refused in this namespace.
    pub fn contains(&self, namespace: &str) -> bool {
        self.shared.contains(namespace)
    }

    /// Whether some kind is refused anywhere.
    pub fn are_there_any(&self) -> bool {
        !self.shared.kinds.read().is_empty()
    }

    /// The namespaces in which some kind is refused.
    pub fn namespaces(&self) -> Vec<String> {
        self.shared.kinds.read().keys().cloned().collect()
    }

    /// That this namespace may not be read, and which kinds, in words for people.
    pub fn words(&self, namespace: &str) -> Option<String> {
        let kinds = self.shared.kinds.read();
        let kinds: Vec<&str> = kinds.get(namespace)?.iter().map(String::as_str).collect();
        Some(format!("the API server does not let this frontend read namespace {namespace}: {}", kinds.join(", ")))
    }

    /// Calls `subscriber` with each namespace that could not be read and can be again. It must not block.
    pub fn subscribe(&self, subscriber: impl Fn(&str) + Send + Sync + 'static) {
        self.shared.subscribers.write().push(Box::new(subscriber));
    }

    /// The queue, whose keys of such a namespace wait until that may be read again.
    #[must_use]
    pub fn hold_back<K: QueueKey>(&self, queue: Queue<K>) -> Queue<K> {
        // The subscriber has the queue, which must not have the subscriber.
        let shared = Arc::downgrade(&self.shared);
        let is_refused = move |namespace: &str| shared.upgrade().is_some_and(|shared| shared.contains(namespace));
        let queue = queue.put_off_while(is_refused);
        let again = queue.clone();
        self.subscribe(move |namespace| again.look_again(namespace));
        queue
    }

    /// The kind is refused in this namespace.
    pub(super) fn begin(&self, namespace: &str, kind: &str) {
        self.shared.kinds.write().entry(namespace.to_owned()).or_default().insert(kind.to_owned());
    }

    /// The kind is not refused there any more, and its mirror is whole.
    pub(super) fn end(&self, namespace: &str, kind: &str) {
        let is_last = {
            let mut kinds = self.shared.kinds.write();
            let Some(of_namespace) = kinds.get_mut(namespace) else { return };
            of_namespace.remove(kind);
            let is_last = of_namespace.is_empty();
            if is_last {
                kinds.remove(namespace);
            }
            is_last
        };
        if is_last {
            self.shared.subscribers.read().iter().for_each(|subscriber| subscriber(namespace));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::Metrics;
    use crate::queue::{self, BackOff, Outcome, Owner, Sharing};
    use parking_lot::Mutex;
    use std::time::Duration;
    use tokio::time::{sleep, timeout};

    #[test]
    fn a_namespace_may_be_read_again_when_no_kind_is_refused_there() {
        let refusals = Refusals::default();
        let told = Arc::new(Mutex::new(Vec::new()));
        let (log, asked) = (Arc::clone(&told), refusals.clone());
        refusals.subscribe(move |namespace| log.lock().push((namespace.to_owned(), asked.contains(namespace))));
        for (namespace, kind) in [("a", "Pod"), ("a", "Job"), ("a", "Job"), ("b", "Pod")] {
            refusals.begin(namespace, kind);
        }
        assert_eq!(refusals.namespaces(), ["a", "b"]);
        assert!(refusals.words("a").unwrap().ends_with("namespace a: Job, Pod"));
        refusals.end("a", "Job");
        refusals.end("c", "Job");
        assert!(refusals.contains("a") && told.lock().is_empty());
        refusals.end("a", "Pod");
        assert_eq!(*told.lock(), [("a".to_owned(), false)]);
        assert_eq!((refusals.words("a"), refusals.are_there_any()), (None, true));
    }

    #[tokio::test(start_paused = true)]
    async fn keys_of_a_namespace_that_may_not_be_read_wait_until_it_may_be_again() {
        let owner = |key: &&'static str| Owner { namespace: key[..1].into(), object: "x".into() };
        let (refusals, metrics) = (Refusals::default(), Metrics::new("test"));
        let queue = Queue::new("test", BackOff::default(), Sharing::among(2, owner), &metrics);
        let queue = refusals.hold_back(queue);
        refusals.begin("b", "Pod");
        let worked_on = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&worked_on);
        let work = tokio::spawn(queue::run(queue.clone(), 2, move |key: &'static str| {
            log.lock().push(key);
            async { Ok::<_, String>(Outcome::Done) }
        }));
        for _ in 0..3 {
            ["a1", "b1", "b2"].into_iter().for_each(|key| queue.add(key));
            queue.add_rate_limited("b1");
            sleep(Duration::from_secs(100)).await;
        }
        assert_eq!(std::mem::take(&mut *worked_on.lock()), ["a1"; 3]);
        // Each is kept once, and nothing of its failures.
        assert_eq!((queue.depth(), queue.remembered(), queue.failures(&"b1")), (0, 2, 0));
        refusals.end("b", "Pod");
        sleep(Duration::from_secs(1)).await;
        assert_eq!(std::mem::take(&mut *worked_on.lock()), ["b1", "b2"]);
        assert_eq!(queue.remembered(), 0);
        queue.close();
        timeout(Duration::from_secs(1), work).await.unwrap().unwrap();
    }
}
