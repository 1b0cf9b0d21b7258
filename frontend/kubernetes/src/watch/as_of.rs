//! Up to which moment a mirror is known to show everything, by what this process has written itself.
//!
//! The API server tells a watch of the changes of a kind in the order in which they were made. So a mirror that shows
//! what this process has written shows all that anybody had written before that write began: to know whether the mirror
//! is so new, nobody has to ask the API server.
//!
//! Knows: versions of objects, namespaces that are watched apart. Must not know: what is written, and by whom.
//!
//! Invariants: a moment is known for what one watch tells, since another one may be older; it never goes back; nothing
//! is kept for more than the watches of this kind.

use super::{Mirrored, Scope, Watch, version};
use crate::Key;
use kube::core::ObjectMeta;
use std::collections::BTreeMap;
use tokio::time::Instant;

/// Moments by watch: of a namespace, or of the cluster. `None`: nothing is known yet.
#[derive(Default)]
pub(super) struct Moments {
    of_watches: BTreeMap<Option<String>, Option<Instant>>,
}

impl Moments {
    /// There are these watches.
    pub(super) fn of(scope: &Scope) -> Self {
        let watches = scope.parts().into_iter().map(|part| (part.map(str::to_owned), None));
        Self { of_watches: watches.collect() }
    }

    /// What is known of the watch that tells of the namespace. There is none before the mirror is filled.
    fn of_namespace(&mut self, namespace: &str) -> Option<&mut Option<Instant>> {
        let watch = Some(namespace.to_owned());
        let watch = if self.of_watches.contains_key(&watch) { watch } else { None };
        self.of_watches.get_mut(&watch)
    }
}

impl<K: Mirrored> Watch<K> {
    /// This process has written an object that was `sent` like this; the write began at this moment, and this is what
    /// the API server has answered.
    pub fn note_written(&self, begun: Instant, sent: &ObjectMeta, written: &K) {
        // What changes nothing is no change of which a watch is told.
        let is_change = version(written.meta()) > version(sent);
        let key = Key::of(written);
        if is_change && self.shown_version(&key) >= version(written.meta()) {
            let mut moments = self.shared.moments.lock();
            if let Some(known) = moments.of_namespace(&key.namespace) {
                *known = (*known).max(Some(begun));
            }
        }
    }

    /// Whether the mirror is known to show this object as it was at this moment, or later. If it is not, it may do so
    /// nevertheless.
    pub fn is_as_of(&self, key: &Key, moment: Instant) -> bool {
        let known = self.shared.moments.lock().of_namespace(&key.namespace).and_then(|known| *known);
        known.is_some_and(|known| known >= moment) && !self.is_unreadable(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::Metrics;
    use k8s_openapi::api::core::v1::Service;
    use std::time::Duration;

    fn service(namespace: &str, name: &str, version: u64) -> Service {
        let metadata = ObjectMeta {
            namespace: Some(namespace.to_owned()),
            name: Some(name.to_owned()),
            resource_version: Some(version.to_string()),
            ..ObjectMeta::default()
        };
        Service { metadata, ..Service::default() }
    }

    fn watch(scope: &Scope) -> Watch<Service> {
        let watch = Watch::new(&Metrics::new("test"), &[]);
        *watch.shared.moments.lock() = Moments::of(scope);
        watch.insert(service("n", "a", 5));
        watch.insert(service("m", "a", 6));
        watch
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_shown_of_a_write_is_as_of_its_beginning() {
        let begun = Instant::now() + Duration::from_secs(7);
        let (before, after) = (begun - Duration::from_secs(1), begun + Duration::from_secs(1));
        let both = || Scope::Namespaces(vec!["n".to_owned(), "m".to_owned()]);
        // watches, version that was sent, and answered -> known of `n` before, at and after; of `m`
        let table = [
            (Scope::All, 4, 5, [true, true, false], true),
            (both(), 4, 5, [true, true, false], false),
            (Scope::Alone("n".to_owned()), 3, 4, [true, true, false], false),
            (Scope::All, 5, 5, [false; 3], false),
            (Scope::All, 5, 7, [false; 3], false),
            (Scope::Namespaces(vec!["m".to_owned()]), 4, 5, [false; 3], false),
        ];
        for (scope, sent, answered, of_n, of_m) in table {
            let watch = watch(&scope);
            watch.note_written(begun, &service("n", "a", sent).metadata, &service("n", "a", answered));
            let known = |moment| watch.is_as_of(&Key::new("n", "b"), moment);
            assert_eq!([before, begun, after].map(known), of_n, "{scope:?} {sent} {answered}");
            assert_eq!(watch.is_as_of(&Key::new("m", "b"), before), of_m, "{scope:?} {sent} {answered}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_moment_never_goes_back_and_says_nothing_of_what_cannot_be_read_or_is_not_shown() {
        let watch = watch(&Scope::All);
        let (sent, begun) = (service("n", "a", 4), Instant::now() + Duration::from_secs(7));
        watch.note_written(begun, &sent.metadata, &service("n", "gone", 5));
        assert!(!watch.is_as_of(&Key::new("n", "a"), begun), "the mirror does not show what was written");
        watch.note_written(begun, &sent.metadata, &service("n", "a", 5));
        watch.note_written(begun - Duration::from_secs(3), &sent.metadata, &service("n", "a", 5));
        assert!(watch.is_as_of(&Key::new("n", "a"), begun));
        let later = begun + Duration::from_secs(1);
        watch.shared.unreadable.lock().note(&Key::new("m", "a"), 9, begun);
        watch.note_written(later, &service("m", "a", 8).metadata, &service("m", "a", 9));
        assert!(!watch.is_as_of(&Key::new("n", "a"), later), "the mirror shows what could be read before");
        watch.shared.unreadable.lock().note(&Key::new("n", "b"), 9, begun);
        assert!(!watch.is_as_of(&Key::new("n", "b"), begun));
    }
}
