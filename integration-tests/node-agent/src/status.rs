//! What a kubelet writes into the status of a pod.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, Pod};
use serde_json::{Value, json};
use std::net::Ipv4Addr;
use streams_control_plane::process::Exit;

/// How a container has ended, in the words of a kubelet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ended {
    pub(crate) code: i32,
    pub(crate) reason: &'static str,
    /// What people see first.
    pub(crate) message: String,
}

impl Ended {
    /// The end of a process.
    pub(crate) fn of(exit: Exit, message: String) -> Self {
        match exit {
            Exit::Code(0) => Self { code: 0, reason: "Completed", message: String::new() },
            Exit::Code(code) => Self { code, reason: "Error", message },
            Exit::Signal(signal) => Self { code: 128 + signal, reason: "Error", message },
            Exit::Unknown => Self { code: 137, reason: "ContainerStatusUnknown", message },
        }
    }

    /// A process that could not be started.
    pub(crate) fn not_started(message: String) -> Self {
        Self { code: 128, reason: "StartError", message }
    }
}

/// A time as Kubernetes writes it, to the second.
pub(crate) fn now() -> String {
    Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// The pod is not there yet, and why.
pub(crate) fn pending(pod: &Pod, reason: &str, message: &str) -> Value {
    let state = json!({"waiting": {"reason": reason, "message": message}});
    json!({
        "phase": "Pending",
        "conditions": conditions(false, "ContainersNotReady"),
        "containerStatuses": statuses(containers(pod), false, &state),
    })
}

/// Its container runs.
pub(crate) fn running(pod: &Pod, address: Ipv4Addr, host: Ipv4Addr, started: &str) -> Value {
    let completed =
        json!({"terminated": {"exitCode": 0, "reason": "Completed", "startedAt": started, "finishedAt": started}});
    json!({
        "phase": "Running",
        "startTime": started,
        "hostIP": host.to_string(),
        "hostIPs": [{"ip": host.to_string()}],
        "podIP": address.to_string(),
        "podIPs": [{"ip": address.to_string()}],
        "conditions": conditions(true, ""),
        "initContainerStatuses": statuses(init_containers(pod), true, &completed),
        "containerStatuses": statuses(containers(pod), true, &json!({"running": {"startedAt": started}})),
    })
}

/// Its container has ended.
pub(crate) fn ended(pod: &Pod, ended: &Ended, started: &str) -> Value {
    json!({
        "phase": if ended.code == 0 { "Succeeded" } else { "Failed" },
        "conditions": conditions(false, if ended.code == 0 { "PodCompleted" } else { "PodFailed" }),
        "containerStatuses": statuses(containers(pod), false, &terminated(ended, started)),
    })
}

/// An init container has failed, so that the others do not run.
pub(crate) fn init_failed(pod: &Pod, name: &str, ended: &Ended, started: &str) -> Value {
    let failed = init_containers(pod).iter().filter(|container| container.name == name);
    json!({
        "phase": "Failed",
        "conditions": conditions(false, "PodFailed"),
        "initContainerStatuses": statuses(failed, false, &terminated(ended, started)),
        "containerStatuses": statuses(containers(pod), false, &json!({"waiting": {"reason": "PodInitializing"}})),
    })
}

/// The pod cannot be run here at all.
pub(crate) fn refused(reason: &str, message: &str) -> Value {
    json!({"phase": "Failed", "reason": reason, "message": message})
}

fn terminated(ended: &Ended, started: &str) -> Value {
    json!({"terminated": {
        "exitCode": ended.code,
        "reason": ended.reason,
        "message": ended.message,
        "startedAt": started,
        "finishedAt": now(),
    }})
}

fn statuses<'a>(containers: impl IntoIterator<Item = &'a Container>, ready: bool, state: &Value) -> Vec<Value> {
    let running = state.get("running").is_some();
    let status = |container: &Container| {
        json!({
            "name": container.name,
            "image": container.image.as_deref().unwrap_or_default(),
            "imageID": "",
            "ready": ready,
            "started": running,
            "restartCount": 0,
            "state": state,
        })
    };
    containers.into_iter().map(status).collect()
}

fn conditions(ready: bool, reason: &str) -> Vec<Value> {
    let initialized = ready || reason != "ContainersNotReady";
    let condition = |(kind, holds): (&str, bool)| {
        let status = if holds { "True" } else { "False" };
        let reason = if holds { "" } else { reason };
        json!({"type": kind, "status": status, "reason": reason, "lastTransitionTime": now()})
    };
    [("Initialized", initialized), ("ContainersReady", ready), ("Ready", ready)].map(condition).into()
}

fn containers(pod: &Pod) -> &[Container] {
    pod.spec.as_ref().map(|spec| spec.containers.as_slice()).unwrap_or_default()
}

fn init_containers(pod: &Pod) -> &[Container] {
    pod.spec.as_ref().and_then(|spec| spec.init_containers.as_deref()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::{Ended, ended, now, pending, running};
    use k8s_openapi::api::core::v1::{Pod, PodStatus};
    use serde_json::{Value, json};
    use std::net::Ipv4Addr;
    use streams_control_plane::process::Exit;

    fn pod() -> Pod {
        let spec =
            json!({"spec": {"containers": [{"name": "pe", "image": "i"}], "initContainers": [{"name": "unpack"}]}});
        serde_json::from_value(spec).unwrap()
    }

    #[test]
    fn ends_are_told_as_a_kubelet_tells_them() {
        for (exit, code, reason, phase) in [
            (Exit::Code(0), 0, "Completed", "Succeeded"),
            (Exit::Code(3), 3, "Error", "Failed"),
            (Exit::Signal(9), 137, "Error", "Failed"),
            (Exit::Unknown, 137, "ContainerStatusUnknown", "Failed"),
        ] {
            let status = ended(&pod(), &Ended::of(exit, "last words".to_owned()), &now());
            let state = &status["containerStatuses"][0]["state"]["terminated"];
            assert_eq!(
                (&state["exitCode"], &state["reason"], &status["phase"]),
                (&json!(code), &json!(reason), &json!(phase))
            );
            let message = if code == 0 { "" } else { "last words" };
            assert_eq!(state["message"], message);
        }
    }

    #[test]
    fn every_status_is_one_of_kubernetes() {
        let address = Ipv4Addr::new(10, 77, 0, 16);
        for status in [
            pending(&pod(), "ContainerCreating", "there is no ConfigMap x"),
            running(&pod(), address, address, &now()),
            ended(&pod(), &Ended::not_started("no such file".to_owned()), &now()),
        ] {
            let read: PodStatus = serde_json::from_value::<PodStatus>(status.clone()).unwrap();
            assert_eq!(Value::from(read.phase), status["phase"]);
        }
    }
}
