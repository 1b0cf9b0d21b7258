//! What is kept of each kind (rule call-6).

use k8s_openapi::api::core::v1::{ConfigMap, ContainerStatus, Pod, PodSpec, PodStatus, Service};
use kube::{
    Resource,
    core::{DeserializeGuard, NamespaceResourceScope, ObjectMeta, PartialObjectMeta, error_boundary::InvalidObject},
};

use super::Wire;
use crate::api::{HostPool, Job, ParallelRegion, ProcessingElement};

/// A kind that is watched.
#[allow(private_bounds, reason = "a name for a list of bounds")]
pub trait Watched: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Sized + Send + Sync + 'static {
    /// How an object arrives.
    type Wire: Wire;

    /// The object without what nobody reads; or why it cannot be read.
    ///
    /// # Errors
    /// The object is not of this kind's form: a newer version wrote it.
    fn read(wire: Self::Wire) -> Result<Self, Box<InvalidObject>>;
}

/// A ConfigMap without its data, which is large and of no interest to a mirror.
pub type ConfigMapMeta = PartialObjectMeta<ConfigMap>;

/// `kubectl apply` keeps a copy of the whole object here.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

fn trim(meta: &mut ObjectMeta) {
    meta.managed_fields = None;
    if let Some(annotations) = &mut meta.annotations {
        annotations.remove(LAST_APPLIED);
    }
}

macro_rules! watch_custom_resources {
    ($($kind:ty),*) => {$(
        impl Watched for $kind {
            type Wire = DeserializeGuard<Self>;

            fn read(wire: Self::Wire) -> Result<Self, Box<InvalidObject>> {
                wire.0.map_err(Box::new).map(|mut object| {
                    trim(object.meta_mut());
                    object
                })
            }
        }
    )*};
}
watch_custom_resources!(Job, ProcessingElement, ParallelRegion, HostPool);

impl Watched for ConfigMapMeta {
    type Wire = Self;

    fn read(mut wire: Self) -> Result<Self, Box<InvalidObject>> {
        trim(&mut wire.metadata);
        Ok(wire)
    }
}

impl Watched for Service {
    type Wire = Self;

    fn read(mut wire: Self) -> Result<Self, Box<InvalidObject>> {
        trim(&mut wire.metadata);
        wire.status = None;
        Ok(wire)
    }
}

impl Watched for Pod {
    type Wire = Self;

    /// Keeps where the pod runs and how it does.
    fn read(mut wire: Self) -> Result<Self, Box<InvalidObject>> {
        trim(&mut wire.metadata);
        wire.spec = wire.spec.map(|spec| PodSpec { node_name: spec.node_name, ..PodSpec::default() });
        wire.status = wire.status.map(|status| PodStatus {
            phase: status.phase,
            reason: status.reason,
            message: status.message,
            conditions: status.conditions,
            pod_ip: status.pod_ip,
            start_time: status.start_time,
            init_container_statuses: status.init_container_statuses.map(trim_containers),
            container_statuses: status.container_statuses.map(trim_containers),
            ..PodStatus::default()
        });
        Ok(wire)
    }
}

fn trim_containers(containers: Vec<ContainerStatus>) -> Vec<ContainerStatus> {
    containers
        .into_iter()
        .map(|container| ContainerStatus {
            name: container.name,
            ready: container.ready,
            restart_count: container.restart_count,
            state: container.state,
            last_state: container.last_state,
            ..ContainerStatus::default()
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_pod_only_what_is_read_is_kept() {
        let pod: Pod = serde_json::from_value(serde_json::json!({
            "metadata": {
                "name": "p", "managedFields": [{"manager": "m"}], "labels": {"a": "b"},
                "annotations": {LAST_APPLIED: "{}", "kept": "yes"},
            },
            "spec": {"nodeName": "n", "containers": [{"name": "pe", "image": "i"}]},
            "status": {
                "phase": "Failed", "podIP": "10.0.0.1", "hostIP": "1.2.3.4",
                "containerStatuses": [{
                    "name": "pe", "image": "i", "imageID": "x", "ready": false, "restartCount": 0,
                    "state": {"terminated": {"exitCode": 3}},
                }],
            },
        }))
        .unwrap();
        let trimmed = serde_json::to_value(Pod::read(pod).unwrap()).unwrap();
        let expected = serde_json::json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "p", "labels": {"a": "b"}, "annotations": {"kept": "yes"}},
            "spec": {"nodeName": "n", "containers": []},
            "status": {
                "phase": "Failed", "podIP": "10.0.0.1",
                "containerStatuses": [{
                    "name": "pe", "image": "", "imageID": "", "ready": false, "restartCount": 0,
                    "state": {"terminated": {"exitCode": 3}},
                }],
            },
        });
        assert_eq!(trimmed, expected);
    }

    #[test]
    fn an_object_of_another_form_is_an_error_with_its_name() {
        let wire = serde_json::from_value(serde_json::json!({
            "apiVersion": "streams.ibm.com/v1", "kind": "Job",
            "metadata": {"namespace": "n", "name": "j"},
            "spec": {"bundle": {"name": "a.sab", "pullPolicy": "SomethingNew"}},
        }))
        .unwrap();
        let error = Job::read(wire).unwrap_err();
        assert_eq!(error.metadata.name.as_deref(), Some("j"));
        assert!(error.error.contains("SomethingNew"), "{}", error.error);
    }
}
