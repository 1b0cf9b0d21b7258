//! Objects that are being deleted and do not go, because finalizers of somebody else keep them. Pure.
//!
//! Knows: metadata. Must not know: which objects a job has, what is done about one that does not go.

use k8s_openapi::jiff::Timestamp;
use kube::core::ObjectMeta;
use std::fmt::Display;
use std::sync::Arc;
use streams_api::condition;

/// Finalizers that are kept of an object: whoever reads of them finds the others in the object.
const LISTED: usize = 5;
/// Longest finalizer, in bytes.
const LONGEST: usize = 256;

/// What an object says of its deletion while it is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct GoingObject {
    /// When it was deleted.
    pub(crate) since: Timestamp,
    /// The first of its finalizers.
    finalizers: Vec<String>,
}

impl GoingObject {
    /// Of the object with this metadata; `None` if nobody deletes it. One without finalizers is gone at once, so nobody
    /// sees that it is being deleted.
    pub(crate) fn of(meta: &ObjectMeta) -> Option<Arc<Self>> {
        let since = meta.deletion_timestamp.as_ref()?.0;
        let finalizers = meta.finalizers.iter().flatten().take(LISTED);
        let finalizers = finalizers.map(|finalizer| condition::cut(finalizer, LONGEST).to_owned()).collect();
        Some(Arc::new(Self { since, finalizers }))
    }

    /// What is said of the object, which is called so. A mirror may have left out its finalizers (rule call-6).
    pub(crate) fn words(&self, object: impl Display) -> String {
        let goes = format!("{object} is being deleted and does not go away");
        match self.finalizers.as_slice() {
            [] => format!("{goes}: it may have finalizers"),
            [finalizer] => format!("{goes}: it has the finalizer {finalizer}"),
            finalizers => format!("{goes}: it has the finalizers {}", finalizers.join(", ")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    #[test]
    fn what_keeps_an_object_is_named_as_far_as_it_is_known() {
        let going = |finalizers: &[&str]| {
            let finalizers: Vec<String> = finalizers.iter().map(|finalizer| (*finalizer).to_owned()).collect();
            let meta = ObjectMeta {
                deletion_timestamp: Some(Time(Timestamp::UNIX_EPOCH)),
                finalizers: Some(finalizers),
                ..ObjectMeta::default()
            };
            GoingObject::of(&meta).unwrap()
        };
        let long = "x".repeat(1_000);
        // finalizers -> end of what is said
        let table: [(&[&str], &str); 4] = [
            (&[], ": it may have finalizers"),
            (&["a.test/b"], ": it has the finalizer a.test/b"),
            (&["a", "b"], ": it has the finalizers a, b"),
            (&["a", "b", "c", "d", "e", "f", long.as_str()], ": it has the finalizers a, b, c, d, e"),
        ];
        for (finalizers, end) in table {
            let expected = format!("Service a-1 is being deleted and does not go away{end}");
            assert_eq!(going(finalizers).words("Service a-1"), expected);
        }
        assert!(going(&[long.as_str()]).words("Service a-1").len() < 400);
        assert_eq!(GoingObject::of(&ObjectMeta::default()), None, "nobody deletes it");
    }
}
