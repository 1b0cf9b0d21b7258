//! Whether the job controller has made an object for a job: the job controls it, and it is no copy (rule job-30).

use streams_api::{Job, ParallelRegion, ProcessingElement};
use streams_kubernetes::ownership::is_controlled_by;

/// A region of this job.
pub(crate) fn is_region_of(region: &ParallelRegion, job: &Job) -> bool {
    is_controlled_by(&region.metadata, job) && !region.is_copy()
}

/// A PE of this job.
pub(crate) fn is_pe_of(pe: &ProcessingElement, job: &Job) -> bool {
    is_controlled_by(&pe.metadata, job) && !pe.is_copy()
}
