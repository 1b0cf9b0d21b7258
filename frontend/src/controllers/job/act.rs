//! Doing what was decided.
//!
//! Objects are written in the name of one field manager, by apply; texts and chunks are written by long work. The
//! status is written whole, if nobody wrote the job since it was observed. What fails is tried again by deciding again.

use std::{sync::Arc, time::Duration};

use futures::{StreamExt, stream};
use k8s_openapi::api::core::v1::{ConfigMap, Service};
use kube::{
    Api,
    api::{Patch, PatchParams, PropagationPolicy},
    core::{NamespaceResourceScope, ObjectMeta},
};

use crate::controllers::Context;
use crate::mirrors::ByOwner as _;
use streams_api::{HostPool, JobStatus, ParallelRegion, ProcessingElement, RequestedWidths, names};
use streams_kubernetes::{
    Error,
    apply::{FieldManager, apply, create_or_match, delete, is_controlled_by, replace_status_if_unchanged},
    error::{absent, written},
    watch::{Mirrored, Watch},
};

use super::{
    chunks::Document,
    decide::{Action, Change, Child, Decision, Propagation, Stored, Which},
    documents, events,
    generation::Generation,
    job_id,
    observe::Scene,
    observed::{Failure, Loaded, Observed, Remedy},
    present::{is_significant, present},
    transition,
    wanted::which,
    work,
};

/// Field manager of the job controller.
pub(crate) const MANAGER: &str = "streams-job-controller";
/// Actions that are done at the same time.
const CONCURRENT: usize = 16;
/// Least time between two writes of the status that only count.
const DESCRIBE_INTERVAL: Duration = Duration::from_millis(500);

/// What became of a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Acted {
    /// A step was recorded in the status. Decide again at once.
    Moved,
    /// Look again after this time, at the latest.
    Again(Duration),
    /// Everything is done.
    Done,
}

/// Does what was decided, and describes the job in its status.
///
/// # Errors
/// Something could not be done; the rest was done nevertheless.
pub(crate) async fn act(
    context: &Context,
    scene: &Scene,
    observed: &Observed,
    decision: &Decision,
) -> Result<Acted, Error> {
    let actor = Actor { context, scene, observed, decision };
    // A step is always alone (rule job-3).
    match decision.actions.as_slice() {
        [Action::AllocateJobId] => {
            let used = context.mirrors.jobs.of_namespace(&scene.key.namespace);
            let used = used.iter().filter_map(|job| job.status.as_ref()?.job_id).max();
            let id =
                job_id::next(&context.client, &scene.key.namespace, used.map_or(0, |id| id.saturating_add(1))).await?;
            actor.record(&Change::JobId(id)).await?;
            return Ok(Acted::Moved);
        }
        [Action::Record(change)] => {
            actor.record(change).await?;
            return Ok(Acted::Moved);
        }
        _ => {}
    }
    let pending: Vec<_> = decision.actions.iter().map(|action| actor.one(action)).collect();
    let results: Vec<_> = stream::iter(pending).buffer_unordered(CONCURRENT).collect().await;
    let failed = results.into_iter().filter_map(Result::err).find(|error| !matches!(error, Error::Terminating { .. }));
    context.memory.with(&scene.key, scene.uid(), |entry| entry.obstacle = failed.as_ref().and_then(obstacle));
    let described = actor.describe().await?;
    match failed {
        Some(error) => Err(error),
        None => Ok(described),
    }
}

/// What a user should be told about a failed action; among others that a name is taken (rule job-30).
fn obstacle(error: &Error) -> Option<Failure> {
    let reason = match error {
        Error::Conflict { .. } | Error::Terminating { .. } => return None,
        Error::Foreign { .. } => "NameTaken",
        Error::Refused { .. } => "ObjectRefused",
        Error::Call(kube::Error::Api(status)) if status.code == 403 => "Forbidden",
        Error::Call(_) => "ApiServer",
    };
    Some(Failure {
        remedy: Remedy::Retry(k8s_openapi::jiff::Timestamp::MAX),
        reason: reason.to_owned(),
        message: error.to_string(),
        stage: None,
        code: None,
    })
}

struct Actor<'a> {
    context: &'a Context,
    scene: &'a Scene,
    observed: &'a Observed,
    decision: &'a Decision,
}

impl Actor<'_> {
    fn api<K>(&self) -> Api<K>
    where
        K: kube::Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        Api::namespaced(self.context.client.clone(), &self.scene.key.namespace)
    }

    async fn one(&self, action: &Action) -> Result<(), Error> {
        match action {
            // Steps are done before.
            Action::AllocateJobId | Action::Record(_) => Ok(()),
            Action::Start(task) => {
                // What a running job waits for goes before submissions.
                let urgent = self.observed.status.generation.is_some();
                work::start(self.context, &self.scene.key, self.scene.uid(), task, urgent);
                Ok(())
            }
            Action::StoreAgain(stored) => self.store_again(*stored).await,
            Action::Apply(child, of) => match self.generation(*of) {
                Some(generation) => self.apply(child, generation).await,
                None => Ok(()),
            },
            Action::Delete(child, propagation) => self.delete(child, *propagation).await,
            Action::TakeOver { region, width } => self.take_over(*region, *width).await,
        }
    }

    fn generation(&self, of: Which) -> Option<&Arc<Generation>> {
        match of {
            Which::Committed => self.scene.committed.as_ref(),
            Which::Proposed => self.scene.proposed.as_ref(),
        }
    }

    async fn store_again(&self, stored: Stored) -> Result<(), Error> {
        let (document, content) = match stored {
            Stored::Adl => {
                let adl = self.observed.status.adl.as_ref();
                // Where it is not in memory, long work gets it from the bundle when it is needed.
                let Some(content) = adl.and_then(|adl| self.context.memory.adl(&adl.sha256)) else { return Ok(()) };
                (Document::Adl, content)
            }
            Stored::Plan(of) => {
                let Some(generation) = self.generation(of) else { return Ok(()) };
                (Document::Plan { generation: generation.number }, bytes::Bytes::from(generation.encode()))
            }
        };
        match documents::write(&self.api(), &document, &self.scene.owner, content).await {
            Ok(_) => Ok(()),
            Err(documents::WriteError::Kubernetes(error)) => Err(error),
            Err(error) => Err(Error::Call(kube::Error::Service(error.into()))),
        }
    }

    async fn apply(&self, child: &Child, generation: &Generation) -> Result<(), Error> {
        let family = self.scene.family();
        let mirrors = &self.context.mirrors;
        let key = |name: &str| self.scene.key.sibling(name);
        match child {
            Child::ProcessingElement(id, config_map) => {
                let Some((pe, origin)) = generation.members().find(|(pe, _)| pe.id == *id) else { return Ok(()) };
                let text = which(&self.scene.key.name, *id, origin, config_map);
                let desired = family.processing_element(generation, pe, origin, text);
                let existing =
                    mirrors.processing_elements.get(&key(&names::processing_element(&self.scene.key.name, *id)));
                self.put(&desired, existing.as_ref().map(|existing| &existing.metadata)).await
            }
            Child::Service(id) => {
                let Some((pe, _)) = generation.members().find(|(pe, _)| pe.id == *id) else { return Ok(()) };
                let desired: Service = family.service(pe);
                let name = names::processing_element(&self.scene.key.name, *id);
                let existing = mirrors.services.get(&key(&name)).map(|existing| existing.metadata.clone());
                let existing = self.look::<Service>(&name, existing).await?;
                self.put(&desired, existing.as_ref()).await
            }
            Child::Region(index) => {
                let Some(region) = generation.plan.parallel_regions.iter().find(|region| region.index == *index) else {
                    return Ok(());
                };
                let desired: ParallelRegion = family.region(region);
                let same = |existing: &ParallelRegion| existing.spec.name == desired.spec.name;
                create_or_match(&self.api(), MANAGER, &desired, same).await.map(|_| ())
            }
            Child::HostPool(index) => {
                let Some(pool) = generation.plan.host_pools.iter().find(|pool| pool.index == *index) else {
                    return Ok(());
                };
                let desired: HostPool = family.host_pool(pool, &generation.nodes);
                let existing = mirrors.host_pools.get(&key(&names::host_pool(&self.scene.key.name, *index)));
                self.put(&desired, existing.as_ref().map(|existing| &existing.metadata)).await
            }
            Child::JobConfigMap => {
                let desired = self.scene.config_map();
                let name = names::job_config_map(&self.scene.key.name);
                let existing = mirrors.config_maps.get(&key(&name)).map(|existing| existing.metadata.clone());
                let existing = self.look::<ConfigMap>(&name, existing).await?;
                self.put(&desired, existing.as_ref()).await
            }
            // Written by long work.
            Child::ConfigMap(_) => Ok(()),
        }
    }

    /// The metadata of an object whose mirror shows only some: one that the mirror does not have may be there and
    /// belong to somebody else.
    async fn look<K>(&self, name: &str, mirrored: Option<ObjectMeta>) -> Result<Option<ObjectMeta>, Error>
    where
        K: kube::Resource<DynamicType = (), Scope = NamespaceResourceScope>
            + Clone
            + std::fmt::Debug
            + serde::de::DeserializeOwned,
    {
        match mirrored {
            Some(mirrored) => Ok(Some(mirrored)),
            None => Ok(absent(self.api::<K>().get_metadata(name).await)?.map(|existing| existing.metadata)),
        }
    }

    async fn put<K>(&self, desired: &K, existing: Option<&ObjectMeta>) -> Result<(), Error>
    where
        K: kube::Resource<DynamicType = (), Scope = NamespaceResourceScope>
            + Clone
            + std::fmt::Debug
            + serde::Serialize
            + serde::de::DeserializeOwned,
    {
        let manager = FieldManager { name: MANAGER, applied_hash: names::ANNOTATION_APPLIED_HASH };
        apply(&self.api(), manager, desired, existing).await.map(|_| ())
    }

    async fn delete(&self, child: &Child, propagation: Propagation) -> Result<(), Error> {
        let job = &*self.scene.key.name;
        let mirrors = &self.context.mirrors;
        let propagation = match propagation {
            Propagation::Background => PropagationPolicy::Background,
            Propagation::Foreground => PropagationPolicy::Foreground,
        };
        // Only PEs have dependents; whatever else waits for none goes at once.
        let at_once = PropagationPolicy::Background;
        match child {
            Child::ProcessingElement(id, _) => {
                let name = names::processing_element(job, *id);
                self.delete_one::<ProcessingElement, _>(&mirrors.processing_elements, &name, propagation).await
            }
            Child::Service(id) => {
                let name = names::processing_element(job, *id);
                self.delete_one::<Service, _>(&mirrors.services, &name, at_once).await
            }
            Child::Region(index) => {
                let name = names::parallel_region(job, *index);
                self.delete_one::<ParallelRegion, _>(&mirrors.parallel_regions, &name, at_once).await
            }
            Child::HostPool(index) => {
                let name = names::host_pool(job, *index);
                self.delete_one::<HostPool, _>(&mirrors.host_pools, &name, at_once).await
            }
            Child::JobConfigMap => {
                let name = names::job_config_map(job);
                self.delete_one::<ConfigMap, _>(&mirrors.config_maps, &name, at_once).await
            }
            Child::ConfigMap(name) => self.delete_one::<ConfigMap, _>(&mirrors.config_maps, name, at_once).await,
        }
    }

    /// Deletes the object with the observed uid. If the mirror no longer has it, there is nothing to delete.
    async fn delete_one<K, M>(&self, mirror: &Watch<M>, name: &str, propagation: PropagationPolicy) -> Result<(), Error>
    where
        K: kube::Resource<DynamicType = (), Scope = NamespaceResourceScope>
            + Clone
            + std::fmt::Debug
            + serde::de::DeserializeOwned,
        M: Mirrored,
    {
        match mirror.get(&self.scene.key.sibling(name)).and_then(|object| object.meta().uid.clone()) {
            Some(uid) => delete::<K>(&self.api(), name, Some(&uid), propagation).await,
            None => Ok(()),
        }
    }

    /// Writes the requested width into the region's spec (rule elasticity-5). If another client has changed the region
    /// since it was observed, nothing is written: that change starts a new reconcile.
    async fn take_over(&self, index: u64, width: u32) -> Result<(), Error> {
        let name = names::parallel_region(&self.scene.key.name, index);
        let mirrored = self.context.mirrors.parallel_regions.get(&self.scene.key.sibling(&name));
        let Some(region) = mirrored.filter(|region| is_controlled_by(&region.metadata, &*self.scene.job)) else {
            return Ok(());
        };
        let regions = self.context.mirrors.parallel_regions.of_job(&self.scene.key);
        let ours = regions.iter().map(|region| &**region);
        let request = RequestedWidths::read(ours.filter(|region| is_controlled_by(&region.metadata, &*self.scene.job)));
        let Some(request) = request.filter(|request| request.pending(&region) == Some(width)) else { return Ok(()) };
        let patch = Patch::Merge(region.with_width(width, request.trace_parent.as_deref()));
        let parameters =
            PatchParams { field_manager: Some(names::ELASTICITY_MANAGER.to_owned()), ..PatchParams::default() };
        match self.api::<ParallelRegion>().patch(&name, &parameters, &patch).await {
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(()),
            Err(error) => Err(written(&*region, error)),
            Ok(_) => Ok(()),
        }
    }

    /// Takes a step: one write of the status.
    async fn record(&self, change: &Change) -> Result<(), Error> {
        let status = present(self.observed, self.decision, transition::apply(change, self.observed), true);
        tracing::info!(job = %self.scene.key, step = change.name(), generation = status.generation, "step");
        self.write(status).await?;
        self.context.memory.with(&self.scene.key, self.scene.uid(), |entry| {
            entry.work.used(change);
            entry.obstacle = None;
        });
        Ok(())
    }

    /// Describes the job in its status, unless the status says so already. Counters are written at most every
    /// [`DESCRIBE_INTERVAL`].
    async fn describe(&self) -> Result<Acted, Error> {
        let wake = self.decision.wake_at.map(|at| {
            let now = k8s_openapi::jiff::Timestamp::now();
            at.duration_since(now).try_into().unwrap_or(Duration::ZERO)
        });
        let again = |delay: Option<Duration>| delay.map_or(Acted::Done, Acted::Again);
        let status = present(self.observed, self.decision, self.observed.status.clone(), false);
        if status == self.observed.status {
            return Ok(again(wake));
        }
        if !is_significant(&self.observed.status, &status) {
            let written = self.context.memory.with(&self.scene.key, self.scene.uid(), |entry| entry.described);
            let elapsed = written.map_or(DESCRIBE_INTERVAL, |written| written.elapsed());
            if let Some(left) = DESCRIBE_INTERVAL.checked_sub(elapsed).filter(|left| !left.is_zero()) {
                return Ok(Acted::Again(wake.map_or(left, |wake| wake.min(left))));
            }
        }
        self.write(status).await?;
        self.context
            .memory
            .with(&self.scene.key, self.scene.uid(), |entry| entry.described = Some(tokio::time::Instant::now()));
        Ok(again(wake))
    }

    async fn write(&self, status: JobStatus) -> Result<(), Error> {
        let before = &self.observed.status;
        let proposed = self.observed.proposed.as_ref().and_then(Loaded::whole);
        let mut job = (*self.scene.job).clone();
        let happened = events::between(&self.scene.key.name, before, &status, proposed);
        job.status = Some(status);
        let written = replace_status_if_unchanged(&self.api(), MANAGER, &job).await?;
        self.context.memory.wrote(&self.scene.key, written);
        for event in happened {
            event.publish(&self.context.events, &self.scene.job);
        }
        Ok(())
    }
}
