//! What an observation of a job was made from.
//!
//! Knows: the job and its generations. Must not know: what is observed, or decided.

use crate::controllers::job::generation::Generation;
use crate::controllers::job::objects::ChildBuilder;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use std::sync::Arc;
use streams_api::{Job, JobSpec};
use streams_kubernetes::Key;

/// The job and the generations that an observation was made from. Acting needs them.
#[derive(Clone)]
pub(crate) struct JobSnapshot {
    /// Namespace and name of the job.
    pub(crate) key: Key,
    /// The job.
    pub(crate) job: Arc<Job>,
    /// Its spec with the options in force, if that is another one (rule job-39).
    pub(crate) in_force: Option<Arc<JobSpec>>,
    /// The reference that children have to it.
    pub(crate) owner: OwnerReference,
    /// The committed generation.
    pub(crate) committed: Option<Arc<Generation>>,
    /// The generation that is being prepared.
    pub(crate) proposed: Option<Arc<Generation>>,
}

impl JobSnapshot {
    /// The spec that children are made from.
    fn spec(&self) -> &JobSpec {
        self.in_force.as_deref().unwrap_or(&self.job.spec)
    }

    /// Builds the children of the job.
    pub(crate) fn builder(&self) -> ChildBuilder<'_> {
        let status = self.job.status.as_ref();
        ChildBuilder {
            owner: &self.owner,
            job_id: status.and_then(|status| status.job_id).unwrap_or_default(),
            spec: self.spec(),
            sab_name: status.and_then(|status| status.adl.as_ref()).map_or("", |adl| adl.sab_name.as_str()),
        }
    }

    /// The job's ConfigMap as it should be.
    pub(crate) fn config_map(&self) -> ConfigMap {
        let committed = self.committed.as_deref().map(|generation| &generation.plan);
        let proposed = self.proposed.as_deref().map(|generation| &generation.plan);
        self.builder().config_map(committed, proposed)
    }

    /// The uid of the job.
    pub(crate) fn uid(&self) -> &str {
        &self.owner.uid
    }
}
