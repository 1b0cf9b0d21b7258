//! Which job an object is of (rules pe-api-1 and consistent-region-13).
//!
//! A job that is made again under its name is another one, and the mirrors of two kinds need not show the same moment.
//! So names say nothing: the uid of what controls an object does, or, if nothing does, the number of its job.
//!
//! When a job is deleted without its children, Kubernetes takes the reference out of one of them after the other, which
//! may last for minutes. Those that still have it and those that have it no more are of the same job.
//!
//! Knows: owner references, numbers of jobs. Must not know: what the objects are.

use kube::core::ObjectMeta;
use streams_api::Job;
use streams_kubernetes::ownership::controller;

/// The job that an object is of, or itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OfJob {
    /// Its uid; nothing, if the object has been left behind.
    uid: Option<Box<str>>,
    /// Its number in the namespace, as soon as it has one.
    number: Option<u64>,
}

impl OfJob {
    /// The job of an object with this metadata, which says that it is of the job of this number.
    pub(crate) fn of_child(meta: &ObjectMeta, number: u64) -> Self {
        Self { uid: controller(meta).map(|job| job.uid.as_str().into()), number: Some(number) }
    }

    /// The job itself.
    pub(crate) fn of(job: &Job) -> Self {
        let number = job.status.as_ref().and_then(|status| status.job_id);
        Self { uid: job.metadata.uid.as_deref().map(Into::into), number }
    }

    /// Whether both are of the same job.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        match (&self.uid, &other.uid) {
            (Some(this), Some(that)) => this == that,
            _ => self.number.is_some() && self.number == other.number,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn child(uid: Option<&str>, number: u64) -> OfJob {
        let owners = uid.map(|uid| {
            json!([{"apiVersion": "streams.ibm.com/v1", "kind": "Job", "name": "flow", "uid": uid, "controller": true}])
        });
        OfJob::of_child(&serde_json::from_value(json!({"ownerReferences": owners})).unwrap(), number)
    }

    fn job(uid: &str, number: Option<u64>) -> OfJob {
        let job: Job = serde_json::from_value(json!({
            "apiVersion": "streams.ibm.com/v1", "kind": "Job", "metadata": {"name": "flow", "uid": uid},
            "spec": {"bundle": {"file": "a.sab"}}, "status": {"jobId": number},
        }))
        .unwrap();
        OfJob::of(&job)
    }

    #[test]
    fn a_uid_says_it_where_both_have_one_and_the_number_where_one_has_been_left_behind() {
        let table = [
            (child(Some("u"), 1), child(Some("u"), 1), true),
            (child(Some("u"), 1), child(Some("v"), 1), false),
            (child(Some("u"), 1), child(None, 1), true),
            (child(Some("u"), 1), child(None, 2), false),
            (child(None, 1), child(None, 1), true),
            (child(None, 1), child(None, 2), false),
            (child(Some("u"), 1), job("u", Some(1)), true),
            // The mirror of jobs shows the earlier one of the name, or the later one, which has no number yet.
            (child(Some("u"), 1), job("v", Some(1)), false),
            (child(None, 1), job("v", Some(2)), false),
            (child(None, 1), job("v", None), false),
            // It is being deleted without its children.
            (child(None, 1), job("u", Some(1)), true),
        ];
        for (this, that, expected) in table {
            assert_eq!((this.is_same(&that), that.is_same(&this)), (expected, expected), "{this:?} {that:?}");
        }
    }
}
