//! Finds what a path names (rule pe-api-2): a job that is not there is an invalid request; whatever else is missing of
//! a job that is there is absent. Of a job that was deleted alone, its PEs and its endpoints are still there; so they
//! are of one that is being deleted.

use super::PeApi;
use super::caller::Caller;
use super::left_behind::is_left_behind;
use super::refusal::Refusal;
use super::write::{Change, WITHIN, too_long};
use crate::made_by_job::is_region_of;
use crate::mirrors::Mirrors;
use crate::of_job::OfJob;
use crate::status_changes::Changer;
use std::sync::Arc;
use streams_api::{Export, Import, Job, ParallelRegion, ProcessingElement, names};
use streams_kubernetes::Key;
use streams_kubernetes::watch::{Mirrored, Watch};
use tokio::time::timeout;

/// The export or import of a port. It may be long, so nothing is read of it until something is made of it.
pub(super) struct PortObject<K: 'static> {
    key: Key,
    /// The job of which it has to say that it is.
    job: Arc<str>,
    mirror: fn(&Mirrors) -> &Watch<K>,
    job_of: fn(&K) -> &str,
    of_job: fn(&K) -> OfJob,
    /// What is said if there is none.
    absent: String,
}

/// The export or import of a port that a PE of this job changes. Who may is known before the body of its request has
/// come; by then another job of the name may be there, with an object of the same name. And the mirrors of jobs and of
/// these objects need not show the same moment.
pub(super) struct Changeable<K: 'static> {
    object: PortObject<K>,
    by: OfJob,
    changer: Changer,
}

impl<K: Mirrored> PortObject<K> {
    fn if_there(self, api: &PeApi) -> Result<Self, Refusal> {
        let is_there = (self.mirror)(&api.mirrors).contains(&self.key);
        if is_there { Ok(self) } else { Err(Refusal::Absent(self.absent)) }
    }

    /// What `make` makes of the object: if that is long, when it is the turn of the caller, and of the object as it is
    /// then.
    ///
    /// # Errors
    /// There is none any more, or it is of another job; `make` refuses, or panics; it takes too long.
    pub(super) async fn read<T: Send + 'static>(
        self,
        api: &PeApi,
        caller: &Caller,
        make: impl FnOnce(&K) -> Result<T, Refusal> + Send + 'static,
    ) -> Result<T, Refusal> {
        let Self { key, job, mirror, job_of, absent, .. } = self;
        let mirror = mirror(&api.mirrors).clone();
        let octets = mirror.kept(&key).map_or(0, |kept| kept.octets());
        let work = move || {
            let object = mirror.get(&key).filter(|object| *job_of(object) == *job);
            let object = object.ok_or(Refusal::Absent(absent))?;
            make(&object)
        };
        let owner = api.callers.asker(caller.address).owner();
        let done = timeout(WITHIN, api.long_objects.about(octets, owner, work)).await;
        // `make` has panicked, which is logged.
        let unread = |_| Refusal::Later("what the port has could not be read".to_owned());
        done.map_err(|_| too_long())?.map_err(unread)?
    }

    /// The object, for whoever is on a thread that serves nobody else.
    pub(super) fn read_here(&self, api: &PeApi) -> Option<Arc<K>> {
        let object = (self.mirror)(&api.mirrors).get(&self.key);
        object.filter(|object| *(self.job_of)(object) == *self.job)
    }

    /// The object, if the caller may change it.
    ///
    /// # Errors
    /// It may not.
    pub(super) fn changeable_by(self, caller: &Caller) -> Result<Changeable<K>, Refusal> {
        let by = caller.speaks_for(&self.job)?.clone();
        let changer = caller.changer(&self.job);
        Ok(Changeable { object: self, by, changer })
    }
}

impl<K: Mirrored> Changeable<K> {
    /// Its key, and the name of its job.
    pub(super) fn key(&self) -> (Key, Arc<str>) {
        (self.object.key.clone(), Arc::clone(&self.object.job))
    }

    /// The change of the object by `decide`, by which it gets so many octets. One of another job of the name is refused
    /// as absent.
    pub(super) fn change(
        self,
        octets: usize,
        decide: impl Fn(&K) -> Result<Option<K>, Refusal> + Send + Sync + 'static,
    ) -> Change<K> {
        let Self { object: PortObject { job, job_of, of_job, absent, .. }, by, changer } = self;
        let decide = move |object: &K| {
            let is_its = *job_of(object) == *job && of_job(object).is_same(&by);
            if is_its { decide(object) } else { Err(Refusal::Absent(absent.clone())) }
        };
        Change::new(decide).by(changer, octets)
    }
}

impl PortObject<Export> {
    /// What an output port exports, whether or not there is such a job or port. Nothing is read for that.
    pub(super) fn export(namespace: &str, job: &str, pe: u64, port: u32) -> Self {
        Self {
            key: Key::new(namespace, &names::export(job, pe, port)),
            job: job.into(),
            mirror: |mirrors| &mirrors.exports,
            job_of: |export| export.spec.job_name.as_str(),
            of_job: |export| OfJob::of_child(&export.metadata, export.spec.job_id),
            absent: format!("output port {port} of PE {pe} of job {job} exports nothing"),
        }
    }
}

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
    pub(super) fn export(&self, caller: &Caller, job: &str, pe: u64, port: u32) -> Result<PortObject<Export>, Refusal> {
        self.job(caller, job)?;
        PortObject::export(&caller.namespace, job, pe, port).if_there(self)
    }

    /// What an input port imports.
    ///
    /// # Errors
    /// There is no such job or port.
    pub(super) fn import(&self, caller: &Caller, job: &str, pe: u64, port: u32) -> Result<PortObject<Import>, Refusal> {
        self.job(caller, job)?;
        let object = PortObject {
            key: Key::new(&caller.namespace, &names::import(job, pe, port)),
            job: job.into(),
            mirror: |mirrors| &mirrors.imports,
            job_of: |import| import.spec.job_name.as_str(),
            of_job: |import| OfJob::of_child(&import.metadata, import.spec.job_id),
            absent: format!("input port {port} of PE {pe} of job {job} imports nothing"),
        };
        object.if_there(self)
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
        regions.find(|region| is_region_of(region, &owner)).ok_or_else(absent)
    }
}
