//! Reads pods into plain values.

use super::observed::{self, Explanation, PodEnd, Stage};
use super::pod::{self, CONTAINER};
use k8s_openapi::api::core::v1::{ContainerState, ContainerStateTerminated, ContainerStatus, Pod, PodStatus};
use kube::{Resource, ResourceExt};
use streams_api::{ProcessingElement, names};

/// Reads a pod. A pod without our labels and annotations, e.g. because a user removed them, is read as one of launch 0
/// without hashes.
pub(crate) fn read(pod: &Pod) -> observed::ObservedPod {
    let annotation = |key: &str| pod.annotations().get(key).cloned();
    observed::ObservedPod {
        name: pod.name_any(),
        uid: pod.uid().unwrap_or_default(),
        launch_count: launch_count(pod),
        content_id: annotation(names::ANNOTATION_CONTENT_ID),
        runtime_id: annotation(names::ANNOTATION_RUNTIME_ID),
        template_hash: annotation(names::ANNOTATION_POD_TEMPLATE_HASH),
        placement_hash: annotation(names::ANNOTATION_PLACEMENT_HASH),
        node: pod.spec.as_ref().and_then(|spec| spec.node_name.clone()),
        stage: pod.status.as_ref().map(stage).unwrap_or_default(),
        created_at: pod.metadata.creation_timestamp.as_ref().map(|time| time.0),
        gone_by: pod.metadata.deletion_timestamp.as_ref().map(|time| time.0),
        disruption: pod.status.as_ref().and_then(disruption),
        left_behind: !is_controlled(pod),
    }
}

pub(super) fn launch_count(pod: &Pod) -> u64 {
    pod.labels().get(names::LABEL_LAUNCH_COUNT).and_then(|count| count.parse().ok()).unwrap_or(0)
}

/// Whether the pod belongs to an earlier PE object of the same name, or was left behind by it (rule pe-22).
pub(crate) fn is_of_predecessor(pod: &Pod, pe: &ProcessingElement) -> bool {
    if !is_controlled(pod) {
        return pod::is_name(&pod.name_any(), &pe.name_any());
    }
    let mut controllers = pod.owner_references().iter().filter(|owner| owner.controller == Some(true));
    controllers.any(|owner| {
        owner.kind == ProcessingElement::kind(&())
            && owner.name == pe.name_any()
            && Some(&owner.uid) != pe.meta().uid.as_ref()
    })
}

fn is_controlled(pod: &Pod) -> bool {
    pod.owner_references().iter().any(|owner| owner.controller == Some(true))
}

fn stage(status: &PodStatus) -> Stage {
    match status.phase.as_deref() {
        Some("Running") => {
            let running = container(status).and_then(|container| container.state.as_ref()?.running.as_ref());
            Stage::Running(running.and_then(|running| running.started_at.as_ref()).map(|time| time.0))
        }
        Some("Succeeded") => Stage::Ended(end(status, false)),
        Some("Failed") => Stage::Ended(end(status, true)),
        Some("Unknown") => Stage::Unknown,
        _ => Stage::Pending(waits_for(status)),
    }
}

fn container(status: &PodStatus) -> Option<&ContainerStatus> {
    status.container_statuses.iter().flatten().find(|container| container.name == CONTAINER)
}

fn terminated(container: &ContainerStatus) -> Option<&ContainerStateTerminated> {
    container.state.as_ref()?.terminated.as_ref()
}

/// How the container of the PE ended; or the init container that failed before it (rule pe-8).
fn end(status: &PodStatus, failed: bool) -> PodEnd {
    let prepared = status.init_container_statuses.iter().flatten();
    let unprepared = prepared.filter_map(terminated).find(|terminated| terminated.exit_code != 0);
    let terminated = unprepared.or_else(|| container(status).and_then(terminated));
    let of_container = terminated.map_or_else(Explanation::default, |terminated| Explanation {
        reason: terminated.reason.clone().unwrap_or_default(),
        message: terminated.message.clone().unwrap_or_default(),
    });
    let of_pod = why(&status.reason, &status.message);
    PodEnd {
        failed,
        exit_code: terminated.map(|terminated| terminated.exit_code),
        why: Explanation {
            reason: if of_pod.reason.is_empty() { of_container.reason } else { of_pod.reason },
            message: if of_container.message.is_empty() { of_pod.message } else { of_container.message },
        },
        started_at: terminated.and_then(|terminated| terminated.started_at.as_ref()).map(|time| time.0),
        finished_at: terminated.and_then(|terminated| terminated.finished_at.as_ref()).map(|time| time.0),
    }
}

fn why(reason: &Option<String>, message: &Option<String>) -> Explanation {
    Explanation { reason: reason.clone().unwrap_or_default(), message: message.clone().unwrap_or_default() }
}

/// Why a pod does not run yet, if it says more than that it is on its way.
fn waits_for(status: &PodStatus) -> Explanation {
    let containers = status.init_container_statuses.iter().chain(&status.container_statuses).flatten();
    let mut waiting = containers.filter_map(|container| match &container.state {
        Some(ContainerState { waiting: Some(waiting), .. }) => Some(why(&waiting.reason, &waiting.message)),
        _ => None,
    });
    if let Some(why) = waiting.find(|why| !matches!(why.reason.as_str(), "" | "ContainerCreating" | "PodInitializing"))
    {
        return why;
    }
    let mut conditions = status.conditions.iter().flatten();
    let unscheduled = conditions.find(|condition| condition.type_ == "PodScheduled" && condition.status == "False");
    unscheduled.map_or_else(Explanation::default, |condition| why(&condition.reason, &condition.message))
}

fn disruption(status: &PodStatus) -> Option<Explanation> {
    let mut conditions = status.conditions.iter().flatten();
    let target = conditions.find(|condition| condition.type_ == "DisruptionTarget" && condition.status == "True")?;
    let Explanation { reason, message } = why(&target.reason, &target.message);
    Some(Explanation { reason: if reason.is_empty() { "Disrupted".to_owned() } else { reason }, message })
}

#[cfg(test)]
mod tests {
    use super::*;
    use observed::Stage::*;
    use serde_json::{Value, json};

    fn pod(status: Value) -> Pod {
        serde_json::from_value(json!({
            "metadata": {
                "namespace": "n", "name": "flow-3-x", "uid": "u",
                "labels": {
                    "app": "streams", "svc": "pe", "streams.ibm.com/job": "flow", "streams.ibm.com/pe": "3",
                    "streams.ibm.com/launch-count": "4",
                },
                "annotations": {"streams.ibm.com/runtime-id": "r"},
                "ownerReferences": [{
                    "apiVersion": "streams.ibm.com/v1", "kind": "ProcessingElement", "name": "flow-3", "uid": "p",
                    "controller": true,
                }],
            },
            "spec": {"containers": [], "nodeName": "node"},
            "status": status,
        }))
        .unwrap()
    }

    #[test]
    fn a_pod_is_that_of_an_earlier_pe_of_the_name_or_was_left_behind_by_it() {
        let uid = |uid: &str| {
            vec![json!({
                "apiVersion": "streams.ibm.com/v1", "kind": "ProcessingElement", "name": "flow-3", "uid": uid, "controller": true,
            })]
        };
        // its name, its owners, whether it is one of those
        let table = [
            ("flow-3-0123456789", uid("before"), true),
            ("flow-3-0123456789", uid("now"), false),
            ("flow-3-0123456789", Vec::new(), true),
            ("flow-3-0123456789-debug", Vec::new(), false),
            ("flow-33-0123456789", Vec::new(), false),
            ("copy", Vec::new(), false),
        ];
        let mut pe = ProcessingElement::new("flow-3", streams_api::ProcessingElementSpec::default());
        pe.metadata.uid = Some("now".to_owned());
        for (name, owners, expected) in table {
            let mut pod = pod(json!({}));
            pod.metadata.name = Some(name.to_owned());
            pod.metadata.owner_references = serde_json::from_value(json!(owners)).unwrap();
            assert_eq!(is_of_predecessor(&pod, &pe), expected, "{name} {owners:?}");
            assert_eq!(read(&pod).left_behind, owners.is_empty());
        }
    }

    fn why(reason: &str, message: &str) -> Explanation {
        Explanation { reason: reason.to_owned(), message: message.to_owned() }
    }

    #[test]
    fn stages_are_read_from_phases_and_containers() {
        let terminated = |code: i32, reason: &str, message: &str| {
            json!([{"name": "pe", "image": "", "imageID": "", "ready": false, "restartCount": 0,
                "state": {"terminated": {"exitCode": code, "reason": reason, "message": message}}}])
        };
        let waiting = |reason: &str| {
            json!([{"name": "pe", "image": "", "imageID": "", "ready": false, "restartCount": 0,
                "state": {"waiting": {"reason": reason, "message": "m"}}}])
        };
        let unpack = json!([{"name": "unpack", "image": "", "imageID": "", "ready": false, "restartCount": 0,
                "state": {"terminated": {"exitCode": 2, "reason": "Error", "message": "no gzip"}}}]);
        let unscheduled =
            json!([{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes"}]);
        let end = |failed, code, why| PodEnd { failed, exit_code: code, why, ..PodEnd::default() };
        let table = [
            (json!({}), Pending(Explanation::default())),
            (json!({"phase": "Pending"}), Pending(Explanation::default())),
            (json!({"phase": "Pending", "conditions": unscheduled}), Pending(why("Unschedulable", "0/3 nodes"))),
            (
                json!({"phase": "Pending", "containerStatuses": waiting("ContainerCreating")}),
                Pending(Explanation::default()),
            ),
            (
                json!({"phase": "Pending", "containerStatuses": waiting("ImagePullBackOff")}),
                Pending(why("ImagePullBackOff", "m")),
            ),
            (json!({"phase": "Running"}), Running(None)),
            (json!({"phase": "Unknown"}), Unknown),
            (
                json!({"phase": "Succeeded", "containerStatuses": terminated(0, "Completed", "")}),
                Ended(end(false, Some(0), why("Completed", ""))),
            ),
            (
                json!({"phase": "Failed", "containerStatuses": terminated(137, "OOMKilled", "log")}),
                Ended(end(true, Some(137), why("OOMKilled", "log"))),
            ),
            (
                json!({"phase": "Failed", "reason": "Evicted", "message": "low on memory", "containerStatuses": terminated(137, "Error", "")}),
                Ended(end(true, Some(137), why("Evicted", "low on memory"))),
            ),
            (
                json!({"phase": "Failed", "initContainerStatuses": unpack, "containerStatuses": waiting("PodInitializing")}),
                Ended(end(true, Some(2), why("Error", "no gzip"))),
            ),
        ];
        for (status, expected) in table {
            assert_eq!(read(&pod(status.clone())).stage, expected, "{status}");
        }
    }

    #[test]
    fn a_disruption_counts_while_its_condition_is_true() {
        let conditions = |status: &str| json!({"conditions": [{"type": "DisruptionTarget", "status": status, "reason": "EvictionByEvictionAPI", "message": "m"}]});
        assert_eq!(read(&pod(conditions("True"))).disruption, Some(why("EvictionByEvictionAPI", "m")));
        assert_eq!(read(&pod(conditions("False"))).disruption, None);
        assert_eq!(read(&pod(json!({}))).disruption, None);
    }

    #[test]
    fn a_pod_of_another_object_of_the_name_is_of_a_predecessor() {
        let mut pe = ProcessingElement::new("flow-3", streams_api::ProcessingElementSpec::default());
        for (uid, expected) in [("p", false), ("q", true)] {
            pe.metadata.uid = Some(uid.to_owned());
            assert_eq!(is_of_predecessor(&pod(json!({})), &pe), expected, "{uid}");
        }
    }
}
