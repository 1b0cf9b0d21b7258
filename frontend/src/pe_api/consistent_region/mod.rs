//! What PEs are told by their consistent regions, and what they report (rule pe-api-9).
//!
//! The paths name no job: it is that of the Service by which the caller came here, or that of the calling pod.
//!
//! | Module | What it does |
//! |---|---|
//! | [`told`] | what PEs ask of their regions |
//! | [`reports`] | what PEs report to their regions, and what operators ask of them |
//!
//! Knows: regions as they are read once for each of their changes, members, who asks. Must not know: what becomes of
//! a region by a report.

pub(super) mod reports;
pub(super) mod told;

use super::PeApi;
use super::caller::Caller;
use super::left_behind::is_left_behind;
use super::refusal::Refusal;
use crate::consistent_regions::read::ReadRegion;
use std::sync::Arc;
use streams_api::names;
use streams_kubernetes::Key;

impl PeApi {
    /// A region of the job that the request is about, which may have left it behind: its index, its key and itself.
    ///
    /// # Errors
    /// There is no such job or region, or nothing says which job is meant.
    fn consistent_region(&self, caller: &Caller, index: &str) -> Result<(u64, Key, Arc<ReadRegion>), Refusal> {
        let job = caller.job_of_regions()?;
        let found = index.parse::<u64>().ok().and_then(|index| {
            let key = Key::new(&caller.namespace, &names::consistent_region(job, index));
            let region = self.regions.read.get(&key).filter(|region| region.spec.job_name == job)?;
            Some((index, key, region))
        });
        if !found.as_ref().is_some_and(|(_, _, region)| is_left_behind(&region.metadata)) {
            self.job_or_going(caller, job)?;
        }
        let absent = || Refusal::Absent(format!("job {job} has no consistent region {}", index.escape_debug()));
        found.ok_or_else(absent)
    }
}
