//! Reads pods into plain values.
//!
//! Which PE object and launch a pod was made for is told by what nobody can change: its uid, once the PE has recorded
//! it, else its name, which follows from both (rule pe-25).
//!
//! Knows: pods as Kubernetes has them. Must not know: what is decided by them.

use super::metadata;
use super::observed::{self, Explanation, PodEnd, Stage};
use super::pod::CONTAINER;
use crate::pods_of_pe;
use k8s_openapi::api::core::v1::{ContainerState, ContainerStateTerminated, ContainerStatus, Pod, PodStatus};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::core::ObjectMeta;
use kube::{Resource, ResourceExt};
use streams_api::{ProcessingElement, condition, names};
use streams_kubernetes::ownership::{controller, is_controlled_by, owner_for_people};

/// How many launches are tried for a pod whose label is not that of its name. Of older ones, no pods are left.
const LAUNCHES_TRIED: usize = 16;

/// Longest annotation that is read whole. Ours are hashes, which are shorter: what a longer one begins with is none,
/// either.
const HASH_MAX: usize = 128;
/// Longest words of a pod, as its PE tells them.
const REASON_MAX: usize = 1024;
const MESSAGE_MAX: usize = 4096;

/// Reads a pod of this launch. One without our annotations, e.g. because a user removed them, is read as one without
/// hashes. Anybody may make a pod: of its texts as much is kept as those of ours may have.
pub(crate) fn read(pod: &Pod, launch_count: u64) -> observed::ObservedPod {
    let annotation = |key: &str| pod.annotations().get(key).map(|value| condition::cut(value, HASH_MAX).to_owned());
    observed::ObservedPod {
        name: pod.name_any(),
        uid: pod.uid().unwrap_or_default(),
        launch_count,
        content_id: annotation(names::ANNOTATION_CONTENT_ID),
        runtime_id: annotation(names::ANNOTATION_RUNTIME_ID),
        template_hash: annotation(names::ANNOTATION_POD_TEMPLATE_HASH),
        placement_hash: annotation(names::ANNOTATION_PLACEMENT_HASH),
        node: pod.spec.as_ref().and_then(|spec| spec.node_name.clone()),
        stage: pod.status.as_ref().map(stage).unwrap_or_default(),
        created_at: pod.metadata.creation_timestamp.as_ref().map(|time| time.0),
        gone_by: pod.metadata.deletion_timestamp.as_ref().map(|time| time.0),
        asked_to_go_at: asked_to_go_at(&pod.metadata),
        was_going: is_going(pod),
        disruption: pod.status.as_ref().and_then(disruption),
        left_behind: controller(&pod.metadata).is_none(),
        other_controller: None,
        spoilt: None,
    }
}

/// Reads a pod of this launch of the PE. What the PE has recorded of it goes before what its annotations say by now.
pub(super) fn read_of(pod: &Pod, pe: &ProcessingElement, launch_count: u64) -> observed::ObservedPod {
    let is_taken = controller(&pod.metadata).is_some() && !is_controlled_by(&pod.metadata, pe);
    let other_controller = is_taken.then(|| owner_for_people(&pod.metadata));
    let read = observed::ObservedPod { other_controller, ..read(pod, launch_count) };
    let status = pe.status.as_ref().filter(|status| status.launch_of(pod.metadata.uid.as_deref()).is_some());
    let Some(status) = status else { return read };
    let known = |recorded: &Option<String>, said: Option<String>| recorded.clone().or(said);
    observed::ObservedPod {
        content_id: known(&status.content_id, read.content_id),
        runtime_id: known(&status.runtime_id, read.runtime_id),
        template_hash: known(&status.pod_template_hash, read.template_hash),
        placement_hash: known(&status.placement_hash, read.placement_hash),
        spoilt: metadata::spoilt(&pod.metadata, pe, launch_count),
        ..read
    }
}

/// Reads a pod of this launch of the PE that was just created. What it was made from is what was sent: admission may
/// have dropped or changed the annotations that say it (rule pe-25).
pub(super) fn read_created(
    created: &Pod,
    sent: &Pod,
    pe: &ProcessingElement,
    launch_count: u64,
) -> observed::ObservedPod {
    let spoilt = metadata::changed_by_admission(&sent.metadata, &created.metadata);
    let mut pod = observed::ObservedPod { spoilt, ..read_of(created, pe, launch_count) };
    pod.take_origin_of(&read(sent, launch_count));
    pod
}

/// Reads a pod of an earlier PE object of the name. Only its label says for which launch it was made. If the uid of the
/// object is known, the name must be that of this launch.
pub(super) fn read_predecessor(pod: &Pod, pe: &ProcessingElement) -> observed::ObservedPod {
    let is_so = |launch: &u64| match controller(&pod.metadata) {
        Some(owner) => is_named(pod, &pe.name_any(), &owner.uid, *launch),
        None => true,
    };
    read(pod, labelled(pod).filter(is_so).unwrap_or(0))
}

/// The launch of this PE object that the pod was made for; `None` if it is no pod of it. Its name says it, whoever
/// controls it: somebody may have taken the owner references from it, or given it to something else.
pub(super) fn launch_of(pod: &Pod, pe: &ProcessingElement) -> Option<u64> {
    let status = pe.status.as_ref();
    if let Some(launch) = status.and_then(|status| status.launch_of(pod.metadata.uid.as_deref())) {
        return Some(launch);
    }
    let (name, uid) = (pe.name_any(), pe.uid().unwrap_or_default());
    let newest = status.map_or(0, |status| status.launch_count).max(1);
    let mut tried = labelled(pod).into_iter().chain((1..=newest).rev().take(LAUNCHES_TRIED));
    tried.find(|launch| is_named(pod, &name, &uid, *launch))
}

/// The launch that the label of the pod says, if the pod has the name that this PE object gives to it.
pub(super) fn labelled_launch(pod: &Pod, pe_name: &str, pe_uid: &str) -> Option<u64> {
    labelled(pod).filter(|launch| is_named(pod, pe_name, pe_uid, *launch))
}

/// What the label says, if it can be a count of launches.
fn labelled(pod: &Pod) -> Option<u64> {
    pod.labels().get(names::LABEL_LAUNCH_COUNT)?.parse::<u32>().ok().map(u64::from)
}

fn is_named(pod: &Pod, pe_name: &str, pe_uid: &str, launch_count: u64) -> bool {
    pod.metadata.name.as_deref() == Some(&*pods_of_pe::name(pe_name, pe_uid, launch_count))
}

/// Whether the pod belongs to an earlier PE object of the same name, or was left behind by it (rule pe-22). Pods of
/// both have names as the PE gives them.
pub(crate) fn is_of_predecessor(pod: &Pod, pe: &ProcessingElement) -> bool {
    if !pods_of_pe::is_name(&pod.name_any(), &pe.name_any()) || launch_of(pod, pe).is_some() {
        return false;
    }
    let Some(owner) = controller(&pod.metadata) else { return true };
    owner.kind == ProcessingElement::kind(&())
        && owner.name == pe.name_any()
        && Some(&owner.uid) != pe.meta().uid.as_ref()
}

/// Whether its PE has ended.
pub(super) fn has_ended(pod: &Pod) -> bool {
    pod.status.as_ref().is_some_and(has_come_to_end)
}

/// It is being deleted, and its PE has not ended.
pub(super) fn is_going(pod: &Pod) -> bool {
    pod.metadata.deletion_timestamp.is_some() && !has_ended(pod)
}

/// When its deletion was asked for. The timestamp of a deletion is the end of the grace period.
fn asked_to_go_at(meta: &ObjectMeta) -> Option<Timestamp> {
    let gone_by = meta.deletion_timestamp.as_ref()?.0;
    let grace = SignedDuration::from_secs(meta.deletion_grace_period_seconds.unwrap_or(0));
    Some(gone_by.checked_sub(grace).unwrap_or(gone_by))
}

fn stage(status: &PodStatus) -> Stage {
    if has_come_to_end(status) {
        return Stage::Ended(end(status));
    }
    match status.phase.as_deref() {
        Some("Running") => {
            let running = container(status).and_then(|container| container.state.as_ref()?.running.as_ref());
            Stage::Running(running.and_then(|running| running.started_at.as_ref()).map(|time| time.0))
        }
        Some("Unknown") => Stage::Unknown,
        _ => Stage::Pending(waits_for(status)),
    }
}

/// Whether the PE has ended. The phase says so only once all containers have, and somebody may have added others to the
/// pod (rule pe-26). None is started again (rule pod-3).
fn has_come_to_end(status: &PodStatus) -> bool {
    match status.phase.as_deref() {
        Some("Succeeded" | "Failed") => true,
        Some("Unknown") => false,
        _ => container(status).and_then(terminated).is_some(),
    }
}

fn container(status: &PodStatus) -> Option<&ContainerStatus> {
    status.container_statuses.iter().flatten().find(|container| container.name == CONTAINER)
}

fn terminated(container: &ContainerStatus) -> Option<&ContainerStateTerminated> {
    container.state.as_ref()?.terminated.as_ref()
}

fn has_begun(container: &ContainerStatus) -> bool {
    container.state.as_ref().is_some_and(|state| state.running.is_some() || state.terminated.is_some())
}

/// How the container of the PE ended; or the init container that failed before it (rule pe-8). An init container that
/// goes on beside the PE ends after it, and its end is not that of the PE.
fn end(status: &PodStatus) -> PodEnd {
    let unprepared = || {
        let prepared = status.init_container_statuses.iter().flatten();
        prepared.filter_map(terminated).find(|terminated| terminated.exit_code != 0)
    };
    let ended = container(status).and_then(terminated).or_else(unprepared);
    let of_container = ended.map_or_else(Explanation::default, |ended| why(&ended.reason, &ended.message));
    let of_pod = why(&status.reason, &status.message);
    let phase = status.phase.as_deref();
    // Of a pod that gives no reason of its own, any container may be the one that has failed.
    let has_failed = phase == Some("Failed");
    let failed = (has_failed && !of_pod.reason.is_empty()) || ended.map_or(has_failed, |ended| ended.exit_code != 0);
    let mut containers = status.init_container_statuses.iter().chain(&status.container_statuses).flatten();
    let mut others = status.container_statuses.iter().flatten().filter(|other| other.name != CONTAINER);
    let is_over = matches!(phase, Some("Succeeded" | "Failed"));
    PodEnd {
        failed,
        exit_code: ended.map(|ended| ended.exit_code),
        never_started: has_failed && !of_pod.reason.is_empty() && !containers.any(has_begun),
        why: Explanation {
            reason: if of_pod.reason.is_empty() { of_container.reason } else { of_pod.reason },
            message: if of_container.message.is_empty() { of_pod.message } else { of_container.message },
        },
        started_at: ended.and_then(|ended| ended.started_at.as_ref()).map(|time| time.0),
        finished_at: ended.and_then(|ended| ended.finished_at.as_ref()).map(|time| time.0),
        others_run: !is_over && others.any(|other| terminated(other).is_none()),
    }
}

fn why(reason: &Option<String>, message: &Option<String>) -> Explanation {
    let text = |text: &Option<String>, most| condition::cut(text.as_deref().unwrap_or_default(), most).to_owned();
    Explanation { reason: text(reason, REASON_MAX), message: text(message, MESSAGE_MAX) }
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
            ("flow-3-0123456789-debug", uid("before"), false),
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
            assert_eq!(read(&pod, 4).left_behind, owners.is_empty());
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
            assert_eq!(read(&pod(status.clone()), 4).stage, expected, "{status}");
        }
    }

    /// The phase of a pod is that of all of its containers, and a webhook may have added some.
    #[test]
    fn a_pe_has_ended_when_its_container_has_whatever_others_do() {
        let container = |name: &str, state: Value| {
            json!({
                "name": name, "image": "", "imageID": "", "ready": false, "restartCount": 0, "state": state,
            })
        };
        let ended = |code: i32, reason: &str| json!({"terminated": {"exitCode": code, "reason": reason}});
        let (runs, waits) = (|| json!({"running": {}}), || json!({"waiting": {"reason": "ImagePullBackOff"}}));
        let pe = |state: Value| container("pe", state);
        let of_pe = |failed, exit_code, reason: &str, others_run| {
            let (why, exit_code) = (why(reason, ""), Some(exit_code));
            Ended(PodEnd { failed, exit_code, why, others_run, ..PodEnd::default() })
        };
        // phase, reason of the pod, init containers, containers -> what the PE does
        let table = [
            ("Running", "", vec![], vec![pe(runs()), container("mesh", ended(1, "Error"))], Running(None)),
            (
                "Running",
                "",
                vec![],
                vec![container("mesh", runs()), pe(ended(1, "Error"))],
                of_pe(true, 1, "Error", true),
            ),
            (
                "Running",
                "",
                vec![],
                vec![pe(ended(0, "Completed")), container("log", runs())],
                of_pe(false, 0, "Completed", true),
            ),
            // Nobody gets the image of the other one.
            (
                "Pending",
                "",
                vec![],
                vec![pe(ended(1, "Error")), container("log", waits())],
                of_pe(true, 1, "Error", true),
            ),
            (
                "Running",
                "",
                vec![],
                vec![
                    pe(ended(1, "Error")),
                    container("log", ended(0, "Completed")),
                    container("mesh", ended(0, "Completed")),
                ],
                of_pe(true, 1, "Error", false),
            ),
            // Their node ends them after the PE.
            (
                "Running",
                "",
                vec![container("mesh", runs())],
                vec![pe(ended(0, "Completed"))],
                of_pe(false, 0, "Completed", false),
            ),
            (
                "Failed",
                "",
                vec![container("unpack", ended(0, "Completed")), container("mesh", ended(137, "Error"))],
                vec![pe(ended(3, "Error"))],
                of_pe(true, 3, "Error", false),
            ),
            (
                "Succeeded",
                "",
                vec![container("mesh", ended(143, "Error"))],
                vec![pe(ended(0, "Completed"))],
                of_pe(false, 0, "Completed", false),
            ),
            // The other one has failed, or the pod.
            (
                "Failed",
                "",
                vec![],
                vec![pe(ended(0, "Completed")), container("log", ended(1, "Error"))],
                of_pe(false, 0, "Completed", false),
            ),
            (
                "Failed",
                "Evicted",
                vec![],
                vec![pe(ended(0, "Completed")), container("log", ended(1, "Error"))],
                of_pe(true, 0, "Evicted", false),
            ),
        ];
        for (phase, reason, init_containers, containers, expected) in table {
            let status = json!({
                "phase": phase, "reason": reason, "initContainerStatuses": init_containers,
                "containerStatuses": containers,
            });
            let pod = pod(status.clone());
            assert_eq!(read(&pod, 4).stage, expected, "{status}");
            assert_eq!(has_ended(&pod), matches!(expected, Ended(_)), "{status}");
        }
    }

    #[test]
    fn a_pod_that_its_node_has_refused_has_never_started() {
        let container = |state: Value| {
            let name = "pe";
            json!([{"name": name, "image": "", "imageID": "", "ready": false, "restartCount": 0, "state": state}])
        };
        let ended = container(json!({"terminated": {"exitCode": 1}}));
        let waits = container(json!({"waiting": {"reason": "PodInitializing"}}));
        let table = [
            (json!({"phase": "Failed", "reason": "OutOfcpu"}), true),
            (json!({"phase": "Failed", "reason": "NodeAffinity", "containerStatuses": waits}), true),
            (json!({"phase": "Failed", "reason": "Evicted", "containerStatuses": ended}), false),
            (json!({"phase": "Failed", "reason": "OutOfcpu", "initContainerStatuses": ended}), false),
            (json!({"phase": "Failed"}), false),
            (json!({"phase": "Succeeded", "reason": "x"}), false),
        ];
        for (status, expected) in table {
            let read = read(&pod(status.clone()), 4);
            assert_eq!(read.end().unwrap().never_started, expected, "{status}");
        }
    }

    #[test]
    fn a_pod_has_ended_by_its_deletion_if_that_was_asked_for_before() {
        // the end of the grace period, its length, when the PE ended -> it ended by the deletion
        let table = [
            (Some("00:01:30"), Some(30), Some("00:01:01"), true),
            (Some("00:01:30"), Some(30), Some("00:01:00"), true),
            (Some("00:01:30"), Some(30), Some("00:00:59"), false),
            // Its node has let it go.
            (Some("00:01:00"), Some(0), Some("00:01:01"), true),
            (Some("00:01:30"), None, Some("00:01:31"), true),
            (Some("00:01:30"), Some(30), None, false),
            (None, None, Some("00:01:01"), false),
        ];
        let at = |time: Option<&str>| time.map(|time| format!("2026-01-02T{time}Z"));
        for (gone_by, grace, ended, expected) in table {
            let state = json!({"terminated": {"exitCode": 0, "finishedAt": at(ended)}});
            let status = json!([{
                "name": "pe", "image": "", "imageID": "", "ready": false, "restartCount": 0, "state": state,
            }]);
            let mut pod = pod(json!({"phase": "Succeeded", "containerStatuses": status}));
            pod.metadata.deletion_timestamp = serde_json::from_value(json!(at(gone_by))).unwrap();
            pod.metadata.deletion_grace_period_seconds = grace;
            assert_eq!(read(&pod, 4).ended_by_deletion(), expected, "{gone_by:?} {grace:?} {ended:?}");
        }
    }

    #[test]
    fn of_long_texts_no_more_is_read_than_those_of_ours_may_have() {
        let long = "x".repeat(100_000);
        let failed = json!([{"name": "pe", "image": "", "imageID": "", "ready": false, "restartCount": 0,
            "state": {"terminated": {"exitCode": 2, "reason": long, "message": long}}}]);
        let mut pod = pod(json!({"phase": "Failed", "containerStatuses": failed}));
        pod.annotations_mut().insert(names::ANNOTATION_RUNTIME_ID.to_owned(), long);
        let read = read(&pod, 4);
        assert_eq!(read.runtime_id.as_deref().map(str::len), Some(HASH_MAX));
        let why = &read.end().unwrap().why;
        assert_eq!((why.reason.len(), why.message.len()), (REASON_MAX, MESSAGE_MAX));
    }

    #[test]
    fn a_disruption_counts_while_its_condition_is_true() {
        let conditions = |status: &str| json!({"conditions": [{"type": "DisruptionTarget", "status": status, "reason": "EvictionByEvictionAPI", "message": "m"}]});
        assert_eq!(read(&pod(conditions("True")), 4).disruption, Some(why("EvictionByEvictionAPI", "m")));
        assert_eq!(read(&pod(conditions("False")), 4).disruption, None);
        assert_eq!(read(&pod(json!({})), 4).disruption, None);
    }

    #[test]
    fn a_pod_of_another_object_of_the_name_is_of_a_predecessor() {
        let mut pe = ProcessingElement::new("flow-3", streams_api::ProcessingElementSpec::default());
        for (uid, expected) in [("p", false), ("q", true)] {
            pe.metadata.uid = Some(uid.to_owned());
            let mut pod = pod(json!({}));
            pod.metadata.name = Some(pods_of_pe::name("flow-3", "p", 4));
            assert_eq!(is_of_predecessor(&pod, &pe), expected, "{uid}");
        }
    }

    #[test]
    fn what_others_make_of_labels_and_owners_does_not_change_which_launch_a_pod_is_of() {
        const OURS: &str = "p";
        let mut pe = ProcessingElement::new("flow-3", streams_api::ProcessingElementSpec::default());
        pe.metadata.uid = Some(OURS.to_owned());
        let named = |uid: &str, launch| pods_of_pe::name("flow-3", uid, launch);
        let asked = streams_api::ProcessingElementStatus { launch_count: 4, ..Default::default() };
        let recorded = streams_api::ProcessingElementStatus {
            created_launch_count: 4,
            pod_uid: Some("u".to_owned()),
            ..asked.clone()
        };
        // status, name of the pod, label, uid of its controller -> its launch
        let table = [
            (&recorded, named(OURS, 4), Some("4"), Some(OURS), Some(4)),
            (&recorded, named(OURS, 4), None, Some(OURS), Some(4)),
            (&recorded, named(OURS, 4), Some("99"), None, Some(4)),
            (&recorded, named(OURS, 4), Some("0"), Some("another"), Some(4)),
            (&asked, named(OURS, 1), None, Some("another"), Some(1)),
            // No label says what is no count of launches.
            (&asked, named(OURS, u64::MAX), Some("18446744073709551615"), Some(OURS), None),
            // Before its creation is recorded.
            (&asked, named(OURS, 4), Some("4"), Some(OURS), Some(4)),
            (&asked, named(OURS, 4), Some("0"), Some(OURS), Some(4)),
            (&asked, named(OURS, 3), None, Some(OURS), Some(3)),
            (&asked, named(OURS, 4), Some("18446744073709551615"), None, Some(4)),
            (&asked, named(OURS, 4), Some("4"), Some("another"), Some(4)),
            (&asked, named(OURS, 3), Some("3"), Some("another"), Some(3)),
            // The status was lost (rule pe-15).
            (&asked, named(OURS, 9), Some("9"), Some(OURS), Some(9)),
            // It is none of those that the PE makes.
            (&asked, named("before", 4), Some("4"), None, None),
            (&asked, "copy".to_owned(), Some("4"), Some(OURS), None),
        ];
        for (status, name, label, owner, expected) in table {
            pe.status = Some(status.clone());
            let mut pod = pod(json!({}));
            let meta = &mut pod.metadata;
            meta.name = Some(name.clone());
            let labels = meta.labels.get_or_insert_default();
            labels.remove(names::LABEL_LAUNCH_COUNT);
            labels.extend(label.map(|label| (names::LABEL_LAUNCH_COUNT.to_owned(), label.to_owned())));
            match owner {
                Some(uid) => meta.owner_references.iter_mut().flatten().for_each(|owner| owner.uid = uid.to_owned()),
                None => meta.owner_references = None,
            }
            assert_eq!(launch_of(&pod, &pe), expected, "{name} {label:?} {owner:?}");
            let is_before = expected.is_none() && name == named("before", 4);
            assert_eq!(is_of_predecessor(&pod, &pe), is_before, "{name} {label:?} {owner:?}");
        }
    }

    #[test]
    fn what_controls_a_pod_besides_its_pe_is_named() {
        let mut pe = ProcessingElement::new("flow-3", streams_api::ProcessingElementSpec::default());
        // uid of the PE that the pod belongs to -> what controls it instead, whether the PE does
        for (uid, other, is_controlled) in [("p", None, true), ("q", Some("ProcessingElement flow-3 (uid p)"), false)] {
            pe.metadata.uid = Some(uid.to_owned());
            let read = read_of(&pod(json!({})), &pe, 4);
            assert_eq!((read.other_controller.as_deref(), read.is_controlled()), (other, is_controlled));
        }
        let mut disowned = pod(json!({}));
        disowned.metadata.owner_references = None;
        let read = read_of(&disowned, &pe, 4);
        assert_eq!((read.other_controller.as_deref(), read.is_controlled()), (None, false));
    }

    #[test]
    fn the_launch_of_a_pod_of_an_earlier_pe_is_as_its_label_says_if_that_can_be_so() {
        let mut pe = ProcessingElement::new("flow-3", streams_api::ProcessingElementSpec::default());
        pe.metadata.uid = Some("now".to_owned());
        // label, uid of its controller -> launch
        let table = [
            ("4", Some("before"), 4),
            ("99", Some("before"), 0),
            ("4", None, 4),
            ("99", None, 99),
            ("18446744073709551615", None, 0),
            ("x", None, 0),
        ];
        for (label, owner, expected) in table {
            let mut pod = pod(json!({}));
            pod.metadata.name = Some(pods_of_pe::name("flow-3", "before", 4));
            pod.labels_mut().insert(names::LABEL_LAUNCH_COUNT.to_owned(), label.to_owned());
            match owner {
                Some(uid) => pod.owner_references_mut().iter_mut().for_each(|owner| owner.uid = uid.to_owned()),
                None => pod.metadata.owner_references = None,
            }
            assert!(is_of_predecessor(&pod, &pe));
            assert_eq!(read_predecessor(&pod, &pe).launch_count, expected, "{label} {owner:?}");
        }
    }

    #[test]
    fn what_is_recorded_of_a_pod_goes_before_its_annotations() {
        let mut pe = ProcessingElement::new("flow-3", streams_api::ProcessingElementSpec::default());
        let recorded = |text: &str| Some(text.to_owned());
        let status = streams_api::ProcessingElementStatus {
            created_launch_count: 4,
            runtime_id: recorded("recorded"),
            placement_hash: recorded("place"),
            ..Default::default()
        };
        // uid that is recorded -> runtime id, hash of the place
        for (uid, runtime_id, placement) in [("u", "recorded", recorded("place")), ("another", "r", None)] {
            pe.status = Some(streams_api::ProcessingElementStatus { pod_uid: recorded(uid), ..status.clone() });
            let read = read_of(&pod(json!({})), &pe, 4);
            assert_eq!((read.runtime_id.as_deref(), read.placement_hash), (Some(runtime_id), placement), "{uid}");
        }
    }
}
