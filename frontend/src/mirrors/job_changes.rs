//! Who waits for changes of which job: a change wakes those that wait for its job or its namespace, and nobody else.
//!
//! Knows: keys of jobs. Must not know: what has changed.
//!
//! Invariant: there is an entry for a job only while somebody waits for it, or until the next one begins to wait.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use streams_kubernetes::Key;
use tokio::sync::watch;

/// Cheap to clone; all clones are the same.
#[derive(Clone, Debug, Default)]
pub(crate) struct JobChanges {
    waiting: Arc<Mutex<HashMap<Key, watch::Sender<u64>>>>,
}

impl JobChanges {
    /// A number that is another one after every change of this job from now on.
    pub(crate) fn of(&self, job: &Key) -> watch::Receiver<u64> {
        let mut waiting = self.waiting.lock();
        waiting.retain(|_, sender| !sender.is_closed());
        waiting.entry(job.clone()).or_default().subscribe()
    }

    /// The same for all jobs of a namespace.
    pub(crate) fn of_namespace(&self, namespace: &str) -> watch::Receiver<u64> {
        self.of(&whole(namespace))
    }

    /// Tells those that wait for this job, or for its namespace.
    pub(crate) fn tell(&self, job: &Key) {
        let waiting = self.waiting.lock();
        if waiting.is_empty() {
            return;
        }
        for sender in [waiting.get(job), waiting.get(&whole(&job.namespace))].into_iter().flatten() {
            sender.send_modify(|number| *number = number.wrapping_add(1));
        }
    }
}

/// Stands for all jobs of a namespace: no job has this name.
fn whole(namespace: &str) -> Key {
    Key::new(namespace, "")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_wakes_those_that_wait_for_its_job() {
        let changes = JobChanges::default();
        let (a, b) = (Key::new("n", "a"), Key::new("n", "b"));
        let (mut first, mut second, mut other) = (changes.of(&a), changes.of(&a), changes.of(&b));
        let (mut all, mut elsewhere) = (changes.of_namespace("n"), changes.of_namespace("m"));
        for receiver in [&mut first, &mut second, &mut other, &mut all, &mut elsewhere] {
            receiver.mark_unchanged();
        }
        changes.tell(&a);
        let has_changed = [&first, &second, &other, &all, &elsewhere].map(|receiver| receiver.has_changed().unwrap());
        assert_eq!(has_changed, [true, true, false, true, false]);
    }

    #[test]
    fn nothing_is_kept_of_those_that_left() {
        let changes = JobChanges::default();
        for job in 0..1_000 {
            drop(changes.of(&Key::new("n", &format!("j{job}"))));
        }
        let kept = changes.of(&Key::new("n", "last"));
        assert_eq!(changes.waiting.lock().len(), 1);
        drop(kept);
    }
}
