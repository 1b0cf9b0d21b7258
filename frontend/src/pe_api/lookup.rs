//! Finds what a path names (rule pe-api-2): a job that is not there is an invalid request; whatever else is missing of
//! a job that is there is absent. Of a job that was deleted alone, its PEs and its endpoints are still there; so they
//! are of one that is being deleted.

use super::PeApi;
use super::caller::Caller;
use super::left_behind::is_left_behind;
use super::refusal::Refusal;
use std::sync::Arc;
use streams_api::{Export, Import, Job, ParallelRegion, ProcessingElement, names};
use streams_kubernetes::Key;
use streams_kubernetes::ownership::is_controlled_by;

impl PeApi {
    /// The job of this name.
    ///
    /// # Errors
    /// There is none.
    pub(super) fn job(&self, caller: &Caller, name: &str) -> Result<Arc<Job>, Refusal> {
        let job = self.mirrors.jobs.get(&Key::new(&caller.namespace, name));
        job.filter(|job| job.metadata.deletion_timestamp.is_none()).ok_or_else(|| Refusal::no_job(name))
    }

    /// There is a job of this name, though it may be about to go. As long as it is there, some of what it leaves behind
    /// may have a reference to it.
    ///
    /// # Errors
    /// There is none.
    pub(super) fn job_or_going(&self, caller: &Caller, name: &str) -> Result<(), Refusal> {
        let is_there = self.mirrors.jobs.contains(&Key::new(&caller.namespace, name));
        if is_there { Ok(()) } else { Err(Refusal::no_job(name)) }
    }

    /// There is a job of this name, or one has left PEs behind.
    ///
    /// # Errors
    /// Neither is so.
    pub(super) fn job_or_rest(&self, caller: &Caller, name: &str) -> Result<(), Refusal> {
        let job = self.job_or_going(caller, name);
        job.or_else(|refusal| if self.left_behind.has(&caller.namespace, name) { Ok(()) } else { Err(refusal) })
    }

    /// A PE of a job, which may have left it behind.
    ///
    /// # Errors
    /// There is no such job or PE.
    pub(super) fn pe(&self, caller: &Caller, job: &str, pe: u64) -> Result<(Key, Arc<ProcessingElement>), Refusal> {
        let key = Key::new(&caller.namespace, &names::processing_element(job, pe));
        let found = self.mirrors.processing_elements.get(&key);
        let found = found.filter(|element| element.spec.job_name == job && element.spec.id == pe);
        if !found.as_ref().is_some_and(|element| is_left_behind(&element.metadata)) {
            self.job_or_going(caller, job)?;
        }
        let absent = || Refusal::Absent(format!("job {job} has no PE {pe}"));
        found.map(|element| (key, element)).ok_or_else(absent)
    }

    /// What an output port exports.
    ///
    /// # Errors
    /// There is no such job or port.
    pub(super) fn export(&self, caller: &Caller, job: &str, pe: u64, port: u32) -> Result<(Key, Arc<Export>), Refusal> {
        self.job(caller, job)?;
        let key = Key::new(&caller.namespace, &names::export(job, pe, port));
        let found = self.mirrors.exports.get(&key).filter(|export| export.spec.job_name == job);
        let absent = || Refusal::Absent(format!("output port {port} of PE {pe} of job {job} exports nothing"));
        found.map(|export| (key, export)).ok_or_else(absent)
    }

    /// What an input port imports.
    ///
    /// # Errors
    /// There is no such job or port.
    pub(super) fn import(&self, caller: &Caller, job: &str, pe: u64, port: u32) -> Result<(Key, Arc<Import>), Refusal> {
        self.job(caller, job)?;
        let key = Key::new(&caller.namespace, &names::import(job, pe, port));
        let found = self.mirrors.imports.get(&key).filter(|import| import.spec.job_name == job);
        let absent = || Refusal::Absent(format!("input port {port} of PE {pe} of job {job} imports nothing"));
        found.map(|import| (key, import)).ok_or_else(absent)
    }

    /// A parallel region of a job, by its name. It is found by an index, since a job may have thousands; another object
    /// that says that it is this region has no effect.
    ///
    /// # Errors
    /// There is no such job or region.
    pub(super) fn region(&self, caller: &Caller, job: &str, name: &str) -> Result<Arc<ParallelRegion>, Refusal> {
        let owner = self.job(caller, job)?;
        let mut regions = self.mirrors.regions_named(&Key::new(&caller.namespace, job), name);
        let absent = || Refusal::Absent(format!("job {job} has no parallel region {name}"));
        regions.find(|region| is_controlled_by(&region.metadata, &*owner)).ok_or_else(absent)
    }
}
