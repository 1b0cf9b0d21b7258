//! Who the keys in queues belong to, so that jobs and namespaces share workers fairly (rule call-7).
//!
//! Knows: how children are named. Must not know: whether the objects exist.

use std::sync::Arc;
use streams_kubernetes::Key;
use streams_kubernetes::queue::Owner;

/// The owner of a job's key: the job.
pub(crate) fn owner_of_job(job: &Key) -> Owner {
    Owner { namespace: Arc::clone(&job.namespace), object: Arc::clone(&job.name) }
}

/// The owner of a child's key: the job, whose name the child's name begins with (rule name-3). For a child that a user
/// made by hand the answer may be wrong; it decides nothing but whose turn it is.
pub(crate) fn owner_of_child(child: &Key) -> Owner {
    let job = child.name.rsplit_once('-').map_or(&*child.name, |(job, _)| job);
    Owner { namespace: Arc::clone(&child.namespace), object: job.into() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use streams_api::names;

    #[test]
    fn children_belong_to_their_job() {
        for job in ["job", "my-job", "job-7"] {
            let key = |name: &str| Key::new("ns", name);
            let expected = owner_of_job(&key(job));
            assert_eq!(owner_of_child(&key(&names::processing_element(job, 12))), expected);
            assert_eq!(owner_of_child(&key(&names::parallel_region(job, 0))), expected);
            assert_eq!(owner_of_child(&key(&names::host_pool(job, 3))), expected);
        }
        assert_eq!(&*owner_of_child(&Key::new("ns", "byhand")).object, "byhand");
    }
}
