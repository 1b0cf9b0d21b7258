//! Events that the controller does not cause: kubelets, users, resizes, accidents.

use super::super::super::observed;
use super::ground_truth::{GroundTruth, host, launch, read};
use super::{JOB, PE, TEXT, key};
use crate::pods_of_pe;
use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod, PodCondition, PodStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;
use kube::api::DeleteParams;
use kube::core::ObjectMeta;
use parking_lot::{Mutex, MutexGuard};
use std::sync::Arc;
use std::time::Duration;
use streams_api::{
    Job, OlderTexts, Placement, ProcessingElement, RolloutOptions, TerminationOutcome, TraceLevel, names,
};
use streams_kubernetes::Key;
use streams_kubernetes::ownership::controlled_by;
use streams_kubernetes_fake::{Server, Verb};

/// Something that happens without the controller.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in super::super) enum ClusterEvent {
    /// The newest pod starts to run.
    Run,
    /// The newest pod that runs ends.
    End { code: i32 },
    /// The PE in the newest pod that runs ends, and another container of the pod goes on.
    EndBesideOthers { code: i32 },
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
    /// Somebody takes a label from the newest pod that is being deleted, or from that of the PE that is not.
    Unlabel { going: bool, label: &'static str },
    /// Somebody gives another value to a label of the newest pod of the PE.
    Relabel { label: &'static str, value: &'static str },
    /// Somebody takes an annotation from the newest pod, once it is recorded what it was made from.
    Unannotate(&'static str),
    /// Somebody takes the owner references from the newest pod of the PE.
    Disown,
    /// Somebody gives it to something else.
    GiveAway,
    /// Somebody deletes the newest pod by force.
    Vanish,
    /// Somebody deletes the newest pod by force, and makes another one of its name.
    Imitate,
    /// A user asks for a restart.
    Request(u8),
    /// A user does not want a restart any more.
    TakeBack,
    /// A user stops the PE, or takes that back.
    Stop(Option<u8>),
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
    /// It does so in other words each time.
    RefuseInOtherWords,
    /// It refuses to delete pods.
    RefuseDeletions,
    /// A user suspends the job, or resumes it.
    Suspend(bool),
    /// A user deletes the PE object, and the job controller creates it again.
    MakeAgain,
    /// A user deletes the PE object.
    Remove,
    /// The job has a newer text for the PE since this generation, which its next pod should have, or none.
    Older(Option<u64>),
    /// The PE refers to the newest text, or to an older one.
    Renew(bool),
    /// A user says that it refers to the newest text.
    Pretend,
    /// A user says how many seconds a pod of the job must have been running until it counts.
    MinReady(u32),
    /// The garbage collector deletes pods whose PE object is gone.
    Collect,
}

/// The cluster without the controller. Cheap to clone; all clones are the same.
#[derive(Clone)]
pub(super) struct Surroundings {
    pub(super) server: Server,
    truths: Arc<Mutex<GroundTruth>>,
    refuses_pods: Arc<Mutex<Refuses>>,
    /// The pods, and the version of the server at which they were like this.
    known: Arc<Mutex<(u64, Vec<Pod>)>>,
}

/// Whether the API server refuses pods.
#[derive(Default)]
enum Refuses {
    #[default]
    No,
    InTheSameWords,
    InOtherWords(u32),
    Deletions,
}

impl Surroundings {
    pub(super) fn new() -> Self {
        let surroundings =
            Self { server: Server::new(), truths: Arc::default(), refuses_pods: Arc::default(), known: Arc::default() };
        let (server, truths) = (surroundings.server.clone(), Arc::clone(&surroundings.truths));
        surroundings.server.inspect(move |call| truths.lock().check(&server, call));
        let refuses = Arc::clone(&surroundings.refuses_pods);
        surroundings.server.refuse(move |call| {
            let mut refuses = refuses.lock();
            let words = match &mut *refuses {
                _ if call.kind != "Pod" || !call.verb.is_write() => return None,
                Refuses::No => return None,
                Refuses::Deletions if call.verb != Verb::Delete => return None,
                Refuses::Deletions => "the policy of the namespace".to_owned(),
                Refuses::InTheSameWords => "exceeded quota".to_owned(),
                Refuses::InOtherWords(number) => {
                    *number += 1;
                    format!("exceeded quota, request {number}")
                }
            };
            Some(kube::core::Status::failure(&words, "Forbidden").with_code(403))
        });
        surroundings
    }

    /// A reconcile begins.
    pub(super) fn begin_reconcile(&self) {
        self.truths().begin_reconcile();
    }

    pub(super) fn truths(&self) -> MutexGuard<'_, GroundTruth> {
        self.truths.lock()
    }

    /// Says whether anything happened.
    pub(super) fn happen(&self, event: ClusterEvent) -> bool {
        match event {
            ClusterEvent::Run => {
                let Some(pod) = self.newest(|pod| pod.end().is_none() && pod.node.is_none()) else { return false };
                let node = host(&pod).unwrap_or_else(|| "node".to_owned());
                self.add_node(&node);
                self.truths().of(&pod).node = Some(node.clone());
                let named = |pod: &mut Pod| pod.spec.get_or_insert_default().node_name = Some(node);
                self.server.edit::<Pod>(&Key::of(&pod), named);
                self.set_phase(&pod, "Running", None);
                true
            }
            ClusterEvent::End { code } => {
                let Some(pod) = self.newest(|pod| pod.node.is_some() && pod.end().is_none()) else { return false };
                self.end(&pod, code);
                true
            }
            ClusterEvent::EndBesideOthers { code } => {
                let Some(pod) = self.newest(|pod| pod.node.is_some() && pod.end().is_none()) else { return false };
                self.end(&pod, code);
                let other = serde_json::json!({
                    "name": "other", "image": "", "imageID": "", "ready": true, "restartCount": 0,
                    "state": {"running": {}},
                });
                self.server.edit::<Pod>(&Key::of(&pod), |pod| {
                    let status = pod.status.get_or_insert_default();
                    status.phase = Some("Running".to_owned());
                    let containers = status.container_statuses.get_or_insert_default();
                    containers.push(serde_json::from_value(other).unwrap());
                });
                true
            }
            ClusterEvent::Finish { said, code } => {
                let Some(pod) = self.newest(observed::ObservedPod::is_deleting) else { return false };
                if said && read(&pod).end().is_none() {
                    self.end(&pod, code);
                }
                self.finish(&pod);
                true
            }
            ClusterEvent::Delete { newest } => {
                let pod = if newest { self.newest(|_| true) } else { self.pods().1.first().cloned() };
                let Some(pod) = pod else { return false };
                self.delete(&pod);
                true
            }
            ClusterEvent::Drain => {
                let Some(pod) = self.newest(|pod| pod.end().is_none() && !pod.is_deleting()) else { return false };
                self.disrupt(&pod, "EvictionByEvictionAPI");
                self.delete(&pod);
                true
            }
            ClusterEvent::Unlabel { going, label } => {
                let Some(pod) = self.newest(|pod| pod.is_deleting() == going && (going || self.is_present(pod))) else {
                    return false;
                };
                self.server.edit::<Pod>(&Key::of(&pod), |pod| drop(pod.labels_mut().remove(label)))
            }
            ClusterEvent::Relabel { label, value } => {
                let Some(pod) = self.newest(|pod| self.is_present(pod)) else { return false };
                self.server.edit::<Pod>(&Key::of(&pod), |pod| {
                    pod.labels_mut().insert(label.to_owned(), value.to_owned());
                })
            }
            ClusterEvent::Unannotate(annotation) => {
                let recorded = self.server.get::<ProcessingElement>(&key(PE)).and_then(|pe| pe.status?.pod_uid);
                let Some(pod) = self.newest(|pod| Some(&pod.uid) == recorded.as_ref()) else { return false };
                self.server.edit::<Pod>(&Key::of(&pod), |pod| drop(pod.annotations_mut().remove(annotation)))
            }
            ClusterEvent::Disown => {
                let Some(pod) = self.newest(|pod| self.is_present(pod)) else { return false };
                self.server.edit::<Pod>(&Key::of(&pod), |pod| pod.metadata.owner_references = None)
            }
            ClusterEvent::GiveAway => {
                let (Some(pod), Some(other)) =
                    (self.newest(|pod| self.is_present(pod)), self.server.get::<ConfigMap>(&key(TEXT)))
                else {
                    return false;
                };
                self.server.edit::<Pod>(&Key::of(&pod), |pod| {
                    pod.metadata.owner_references = Some(vec![controlled_by(&other)]);
                })
            }
            ClusterEvent::Evict => {
                let Some(pod) = self.newest(|pod| pod.node.is_some() && pod.end().is_none()) else { return false };
                self.disrupt(&pod, "TerminationByKubelet");
                self.set_phase(&pod, "Failed", Some(137));
                true
            }
            ClusterEvent::LoseNode { said } => {
                let Some(pod) = self.newest(|pod| pod.node.is_some()) else { return false };
                let read = read(&pod);
                self.server.remove::<Node>(&Key::new("", read.node.as_deref().unwrap_or_default()));
                for truth in self.truths().all().filter(|truth| truth.node == read.node) {
                    truth.node_gone = true;
                }
                self.truths().of(&pod).by_other = true;
                if said && read.end().is_none() {
                    self.disrupt(&pod, "DeletionByPodGC");
                    self.set_phase(&pod, "Failed", None);
                }
                self.remove(&pod);
                true
            }
            ClusterEvent::Vanish => {
                let Some(pod) = self.newest(|_| true) else { return false };
                self.truths().of(&pod).by_other = true;
                self.remove(&pod);
                true
            }
            ClusterEvent::Imitate => {
                let Some(pod) = self.newest(|_| true) else { return false };
                self.remove(&pod);
                self.server.create(&Pod { metadata: ObjectMeta { resource_version: None, ..pod.metadata }, ..pod });
                true
            }
            ClusterEvent::Request(value) => self.edit(|pe| {
                pe.annotations_mut().insert(names::ANNOTATION_RESTART_REQUESTED.to_owned(), value.to_string());
            }),
            ClusterEvent::TakeBack => self.edit(|pe| {
                pe.annotations_mut().remove(names::ANNOTATION_RESTART_REQUESTED);
            }),
            ClusterEvent::Stop(value) => self.edit(|pe| {
                let annotations = pe.annotations_mut();
                match value {
                    Some(value) => {
                        annotations.insert(names::ANNOTATION_STOP_REQUESTED.to_owned(), value.to_string());
                    }
                    None => drop(annotations.remove(names::ANNOTATION_STOP_REQUESTED)),
                }
            }),
            ClusterEvent::Policies(bits) => self.edit(|pe| {
                let options = &mut pe.spec.options;
                options.restart_failed_pod = [None, Some(false), Some(true)][usize::from(bits & 3) % 3];
                options.restart_completed_pod = bits & 4 != 0;
                options.restart_deleted_pod = bits & 8 != 0;
                options.delete_failed_pod = bits & 16 != 0;
            }),
            ClusterEvent::Option(debug) => self.edit(|pe| {
                pe.spec.options.runtime_trace_level = if debug { TraceLevel::Debug } else { TraceLevel::Info };
            }),
            ClusterEvent::Text { generation } => {
                let number = self.server.version();
                self.edit(|pe| {
                    pe.spec.runtime_id = format!("r{number}");
                    pe.spec.generation += u64::from(generation);
                })
            }
            ClusterEvent::Place(other) => self.edit(|pe| {
                let host = other.then(|| "other".to_owned());
                pe.spec.placement = Placement { host, ..Placement::default() };
            }),
            ClusterEvent::Commit => {
                let generation = self.server.get::<ProcessingElement>(&key(PE)).map(|pe| pe.spec.generation);
                self.server.edit::<Job>(&key(JOB), |job| job.status.get_or_insert_default().generation = generation)
            }
            ClusterEvent::TextThere(there) => {
                let is_there = self.server.get::<ConfigMap>(&key(TEXT)).is_some();
                match (is_there, there) {
                    (false, true) => self.add_text(),
                    (true, false) => self.server.remove::<ConfigMap>(&key(TEXT)),
                    _ => {}
                }
                is_there != there
            }
            ClusterEvent::Suspend(suspend) => {
                self.server.edit::<Job>(&key(JOB), |job| job.spec.suspend = suspend);
                true
            }
            ClusterEvent::Older(since) => {
                let older_texts = since.map(|generation| OlderTexts { first: 2, last: 3, generation });
                let older_texts = older_texts.into_iter().collect();
                self.server.edit::<Job>(&key(JOB), |job| job.status.get_or_insert_default().older_texts = older_texts);
                true
            }
            ClusterEvent::Renew(is_newest) => {
                let status = self.server.get::<Job>(&key(JOB)).and_then(|job| job.status).unwrap_or_default();
                let generation = status.older_texts.first().map_or(0, |listed| listed.generation);
                self.edit(|pe| {
                    let newest = names::newest_text(generation, &pe.spec.config_map.name);
                    annotate(pe, is_newest.then_some(newest));
                })
            }
            ClusterEvent::Pretend => self.edit(|pe| annotate(pe, Some("yes".to_owned()))),
            ClusterEvent::MinReady(seconds) => {
                let rollout = RolloutOptions { min_ready_seconds: Some(seconds), ..RolloutOptions::default() };
                self.server.edit::<Job>(&key(JOB), |job| job.spec.rollout = Some(rollout));
                true
            }
            ClusterEvent::Refuse(refused) => {
                *self.refuses_pods.lock() = if refused { Refuses::InTheSameWords } else { Refuses::No };
                true
            }
            ClusterEvent::RefuseDeletions => {
                *self.refuses_pods.lock() = Refuses::Deletions;
                true
            }
            ClusterEvent::RefuseInOtherWords => {
                *self.refuses_pods.lock() = Refuses::InOtherWords(0);
                true
            }
            ClusterEvent::MakeAgain => {
                let Some(pe) = self.server.get::<ProcessingElement>(&key(PE)) else { return false };
                self.relabel();
                // So much later than the commit of the generation that it is no difference of clocks.
                self.server.advance(Duration::from_secs(5));
                self.server.delete::<ProcessingElement>(&key(PE), &DeleteParams::background());
                let mut again = ProcessingElement::new(PE, pe.spec.clone());
                again.metadata.namespace.clone_from(&pe.metadata.namespace);
                again.metadata.labels.clone_from(&pe.metadata.labels);
                again.metadata.owner_references.clone_from(&pe.metadata.owner_references);
                self.server.create(&again);
                self.truths().made_again(pe);
                true
            }
            ClusterEvent::Remove => {
                self.server.remove::<ProcessingElement>(&key(PE));
                true
            }
            ClusterEvent::Collect => self.server.collect_garbage(),
        }
    }

    /// Nobody remembers how pods have ended until now.
    pub(super) fn forget(&self) {
        self.truths().all().for_each(|truth| truth.forgotten = true);
    }

    pub(super) fn add_node(&self, name: &str) {
        if self.server.get::<Node>(&Key::new("", name)).is_none() {
            let metadata = ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() };
            self.server.create(&Node { metadata, ..Node::default() });
        }
    }

    pub(super) fn add_text(&self) {
        let metadata = ObjectMeta {
            namespace: Some(key(TEXT).namespace.to_string()),
            name: Some(TEXT.to_owned()),
            labels: Some(names::pe_labels(JOB, 3)),
            ..ObjectMeta::default()
        };
        self.server.create(&ConfigMap { metadata, ..ConfigMap::default() });
    }

    /// Whether it is a pod of the PE object that is there.
    fn is_present(&self, pod: &observed::ObservedPod) -> bool {
        let pe = self.server.get::<ProcessingElement>(&key(PE));
        pe.and_then(|pe| pe.uid()).is_some_and(|uid| pod.name == pods_of_pe::name(PE, &uid, pod.launch_count))
    }

    /// Nobody finds a pod of an earlier PE object that has lost the labels by which it is known (rule pe-22).
    fn relabel(&self) {
        for pod in self.server.list::<Pod>() {
            let is_collected = !pod.owner_references().is_empty();
            let labels = names::pe_labels(JOB, 3).into_iter();
            let known_by = labels.filter(|(label, _)| !(is_collected && label == names::LABEL_APP));
            self.server.edit::<Pod>(&Key::of(&pod), |pod| pod.labels_mut().extend(known_by));
        }
    }

    fn edit(&self, edit: impl FnOnce(&mut ProcessingElement)) -> bool {
        self.server.edit(&key(PE), edit)
    }

    /// Reading them takes a while, and most of the time nothing has changed.
    fn pods(&self) -> MutexGuard<'_, (u64, Vec<Pod>)> {
        let mut known = self.known.lock();
        if known.0 != self.server.version() {
            *known = (self.server.version(), self.server.list());
        }
        known
    }

    fn newest(&self, wanted: impl Fn(&observed::ObservedPod) -> bool) -> Option<Pod> {
        let pods = self.pods();
        let pods = pods.1.iter().filter(|pod| wanted(&read(pod)));
        pods.max_by_key(|pod| launch(pod)).cloned()
    }

    /// A user deletes a pod.
    fn delete(&self, pod: &Pod) {
        self.truths().of(pod).by_other = true;
        // As it was at the end.
        let Some(last) = self.server.get::<Pod>(&Key::of(pod)) else { return };
        self.server.delete::<Pod>(&Key::of(pod), &DeleteParams::default());
        if self.server.get::<Pod>(&Key::of(pod)).is_none() {
            self.truths().removed(&last);
        }
    }

    /// The kubelet has ended a pod that is being deleted.
    fn finish(&self, pod: &Pod) {
        // As it was at the end.
        if let Some(last) = self.server.get::<Pod>(&Key::of(pod)) {
            let at_once = DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() };
            self.server.delete::<Pod>(&Key::of(pod), &at_once);
            self.truths().removed(&last);
        }
    }

    /// The pod is gone, whatever anybody knows of it.
    fn remove(&self, pod: &Pod) {
        // As it was at the end.
        if let Some(last) = self.server.get::<Pod>(&Key::of(pod)) {
            self.server.remove::<Pod>(&Key::of(pod));
            self.truths().removed(&last);
        }
    }

    fn end(&self, pod: &Pod, code: i32) {
        self.set_phase(pod, if code == 0 { "Succeeded" } else { "Failed" }, Some(code));
    }

    fn set_phase(&self, pod: &Pod, phase: &str, code: Option<i32>) {
        let now = self.server.now();
        self.server.edit::<Pod>(&Key::of(pod), |pod| {
            let read = read(pod);
            let outcome = match phase {
                "Running" => None,
                "Failed" => Some(TerminationOutcome::Failed),
                _ if read.disruption.is_some() => Some(TerminationOutcome::Failed),
                _ => Some(TerminationOutcome::Completed),
            };
            if outcome.is_some() {
                self.truths().of(pod).outcome = outcome;
            }
            let before = pod.status.take().unwrap_or_default();
            let start = before.start_time.clone();
            let state = match code {
                None => serde_json::json!({"running": {"startedAt": now.to_string()}}),
                Some(code) => serde_json::json!({"terminated": {"exitCode": code, "reason": "R",
                    "startedAt": start.as_ref().map(|start| start.0.to_string()), "finishedAt": now.to_string()}}),
            };
            let container = serde_json::json!([{
                "name": "pe", "image": "", "imageID": "", "ready": false, "restartCount": 0, "state": state,
            }]);
            pod.status = Some(PodStatus {
                phase: Some(phase.to_owned()),
                start_time: start.or(Some(Time(now))),
                container_statuses: serde_json::from_value(container).unwrap(),
                conditions: before.conditions,
                ..PodStatus::default()
            });
        });
    }

    fn disrupt(&self, pod: &Pod, reason: &str) {
        let condition = PodCondition {
            type_: "DisruptionTarget".to_owned(),
            status: "True".to_owned(),
            reason: Some(reason.to_owned()),
            ..PodCondition::default()
        };
        let disrupted = |pod: &mut Pod| pod.status.get_or_insert_default().conditions = Some(vec![condition]);
        self.server.edit(&Key::of(pod), disrupted);
    }
}

/// Says which text the PE has for its newest one, or nothing of it.
fn annotate(pe: &mut ProcessingElement, newest: Option<String>) {
    let annotations = pe.annotations_mut();
    annotations.remove(names::ANNOTATION_NEWEST_TEXT);
    annotations.extend(newest.map(|newest| (names::ANNOTATION_NEWEST_TEXT.to_owned(), newest)));
}
