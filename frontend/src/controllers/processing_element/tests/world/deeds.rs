//! What happens without the controller: kubelets, users, resizes, accidents.

use k8s_openapi::{
    api::core::v1::{Pod, PodCondition, PodStatus},
    apimachinery::pkg::apis::meta::v1::Time,
};
use kube::ResourceExt;

use super::{
    super::super::{observed, seen},
    state::{State, host},
};
use streams_api::{Placement, TerminationOutcome, TraceLevel, names};

/// Something that happens without the controller.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in super::super) enum Deed {
    /// The newest pod starts to run.
    Run,
    /// The newest pod that runs ends.
    End { code: i32 },
    /// A kubelet ends a pod that is being deleted; it says so before the pod is gone, or not.
    Finish { said: bool, code: i32 },
    /// A user deletes a pod, the oldest or the newest.
    Delete { newest: bool },
    /// The newest pod is drained.
    Drain,
    /// The node of the newest pod runs out of memory.
    Evict,
    /// The node of the newest pod is gone, and the pod with it; it says so before, or not.
    LoseNode { said: bool },
    /// Somebody deletes the newest pod by force.
    Vanish,
    /// A user asks for a restart.
    Request(u8),
    /// A user changes the policies.
    Policies(u8),
    /// A user changes an option.
    Option(bool),
    /// A resize changes the text, in the same or the next generation.
    Text { generation: bool },
    /// A resize changes the place.
    Place(bool),
    /// The job commits its newest generation.
    Commit,
    /// The ConfigMap is there or not.
    TextThere(bool),
    /// The API server refuses pods or not.
    Refuse(bool),
}

impl State {
    /// Says whether anything happened.
    pub(super) fn happen(&mut self, deed: Deed) -> bool {
        match deed {
            Deed::Run => {
                let pending = |pod: &observed::Pod| pod.end().is_none() && pod.node.is_none();
                let Some(mut pod) = self.newest(pending) else { return false };
                let node = host(&pod).unwrap_or_else(|| "node".to_owned());
                self.nodes.insert(node.clone());
                self.truth.entry(seen::read(&pod).launch_count).or_default().node = Some(node.clone());
                pod.spec.get_or_insert_default().node_name = Some(node);
                self.set_phase(pod, "Running", None);
                true
            }
            Deed::End { code } => {
                let Some(pod) = self.newest(|pod| pod.node.is_some() && pod.end().is_none()) else { return false };
                self.set_phase(pod, if code == 0 { "Succeeded" } else { "Failed" }, Some(code));
                true
            }
            Deed::Finish { said, code } => {
                let Some(pod) = self.newest(observed::Pod::is_deleting) else { return false };
                let name = pod.name_any();
                if said && seen::read(&pod).end().is_none() {
                    self.set_phase(pod, if code == 0 { "Succeeded" } else { "Failed" }, Some(code));
                }
                self.remove_pod(&name);
                true
            }
            Deed::Delete { newest } => {
                let pod = if newest { self.newest(|_| true) } else { self.pods.values().next().cloned() };
                let Some(pod) = pod else { return false };
                self.delete(pod, true);
                true
            }
            Deed::Drain => {
                let Some(mut pod) = self.newest(|pod| pod.end().is_none() && !pod.is_deleting()) else { return false };
                self.disrupt(&mut pod, "EvictionByEvictionAPI");
                self.put_pod(pod.clone());
                self.delete(pod, true);
                true
            }
            Deed::Evict => {
                let Some(mut pod) = self.newest(|pod| pod.node.is_some() && pod.end().is_none()) else { return false };
                self.disrupt(&mut pod, "TerminationByKubelet");
                self.set_phase(pod, "Failed", Some(137));
                true
            }
            Deed::LoseNode { said } => {
                let Some(mut pod) = self.newest(|pod| pod.node.is_some()) else { return false };
                let read = seen::read(&pod);
                self.nodes.remove(read.node.as_deref().unwrap_or_default());
                for truth in self.truth.values_mut().filter(|truth| truth.node == read.node) {
                    truth.node_gone = true;
                }
                self.truth.entry(read.launch_count).or_default().by_other = true;
                if said && read.end().is_none() {
                    self.disrupt(&mut pod, "DeletionByPodGC");
                    self.set_phase(pod, "Failed", None);
                }
                self.remove_pod(&read.name);
                true
            }
            Deed::Vanish => {
                let Some(pod) = self.newest(|_| true) else { return false };
                self.truth.entry(seen::read(&pod).launch_count).or_default().by_other = true;
                self.remove_pod(&pod.name_any());
                true
            }
            Deed::Request(value) => self.edit(|pe| {
                pe.annotations_mut().insert(names::ANNOTATION_RESTART_REQUESTED.to_owned(), value.to_string());
            }),
            Deed::Policies(bits) => self.edit(|pe| {
                let options = &mut pe.spec.options;
                options.restart_failed_pod = [None, Some(false), Some(true)][usize::from(bits & 3) % 3];
                options.restart_completed_pod = bits & 4 != 0;
                options.restart_deleted_pod = bits & 8 != 0;
                options.delete_failed_pod = bits & 16 != 0;
            }),
            Deed::Option(debug) => self.edit(|pe| {
                pe.spec.options.runtime_trace_level = if debug { TraceLevel::Debug } else { TraceLevel::Info };
            }),
            Deed::Text { generation } => {
                let number = self.version;
                self.edit(|pe| {
                    pe.spec.runtime_id = format!("r{number}");
                    pe.spec.generation += u64::from(generation);
                })
            }
            Deed::Place(other) => self.edit(|pe| {
                let host = other.then(|| "other".to_owned());
                pe.spec.placement = Placement { host, ..Placement::default() };
            }),
            Deed::Commit => {
                let generation = self.pe.as_ref().map(|pe| pe.spec.generation);
                let Some(status) = self.job.as_mut().and_then(|job| job.status.as_mut()) else { return false };
                status.generation = generation;
                true
            }
            Deed::TextThere(there) => {
                self.has_text = there;
                true
            }
            Deed::Refuse(refused) => {
                self.refused = refused;
                true
            }
        }
    }

    fn set_phase(&mut self, mut pod: Pod, phase: &str, code: Option<i32>) {
        let start = pod.status.as_ref().and_then(|status| status.start_time.clone());
        let read = seen::read(&pod);
        let truth = self.truth.entry(read.launch_count).or_default();
        match phase {
            "Running" => {}
            "Failed" => truth.outcome = Some(TerminationOutcome::Failed),
            _ if read.disruption.is_some() => truth.outcome = Some(TerminationOutcome::Failed),
            _ => truth.outcome = Some(TerminationOutcome::Completed),
        }
        let now = self.now();
        let state = match code {
            None => serde_json::json!({"running": {"startedAt": now.to_string()}}),
            Some(code) => serde_json::json!({"terminated": {"exitCode": code, "reason": "R",
                "startedAt": start.as_ref().map(|start| start.0.to_string()), "finishedAt": now.to_string()}}),
        };
        let container = serde_json::json!([{"name": "pe", "image": "", "imageID": "", "ready": false, "restartCount": 0, "state": state}]);
        let before = pod.status.take().unwrap_or_default();
        pod.status = Some(PodStatus {
            phase: Some(phase.to_owned()),
            start_time: start.or(Some(Time(now))),
            container_statuses: serde_json::from_value(container).unwrap(),
            conditions: before.conditions,
            ..PodStatus::default()
        });
        self.put_pod(pod);
    }

    fn disrupt(&mut self, pod: &mut Pod, reason: &str) {
        let condition = PodCondition {
            type_: "DisruptionTarget".to_owned(),
            status: "True".to_owned(),
            reason: Some(reason.to_owned()),
            ..PodCondition::default()
        };
        pod.status.get_or_insert_default().conditions = Some(vec![condition]);
    }
}
