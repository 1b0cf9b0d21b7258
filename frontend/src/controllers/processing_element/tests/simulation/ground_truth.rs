//! The ground truth: how pods really ended. Checks every call of the controller against it.

use super::super::super::facts::is_restart_permitted;
use super::super::super::observed::ObservedPod;
use super::super::super::pod_status;
use super::{PE, policies};
use crate::pods_of_pe;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use streams_api::{DeletedBy, Job, ProcessingElement, Termination, TerminationOutcome, names};
use streams_kubernetes::Key;
use streams_kubernetes::ownership::is_controlled_by;
use streams_kubernetes_fake::{Call, Server, Verb};

/// The variable of the trace level.
const LEVEL: &str = "STREAMS_INITIAL_TRACE_LEVEL";

/// How a pod really ended.
#[derive(Clone, Debug, Default)]
pub(super) struct PodTruth {
    pub(super) outcome: Option<TerminationOutcome>,
    /// Somebody other than the controller deleted it.
    pub(super) by_other: bool,
    /// Where it ran.
    pub(super) node: Option<String>,
    /// Its node went with it or after it: whoever looks later cannot tell the two.
    pub(super) node_gone: bool,
    /// All frontends were started anew since then: if it is gone and its end is not recorded, it is lost.
    pub(super) forgotten: bool,
    /// Where it had to run.
    host: Option<String>,
    /// The trace level it was made with.
    level: Option<String>,
}

/// The truth about the pods of all launches.
#[derive(Clone, Debug, Default)]
pub(super) struct GroundTruth {
    /// By the name of the pod, which follows from the uid of the PE object and the launch count.
    pods: BTreeMap<String, PodTruth>,
    /// Earlier PE objects of the name by uid, as they were when they were deleted.
    earlier: BTreeMap<String, ProcessingElement>,
    /// Uids of PE objects that were deleted since the reconcile began.
    just_deleted: BTreeSet<String>,
    /// The calls are those of a replica that leads no longer.
    pub(super) is_deposed: bool,
    /// What such a replica has created, by the name of the pod. The one that leads may not have heard of it: that
    /// nothing is created any more when it begins is a matter of deadlines (leadership).
    created_by_deposed: BTreeSet<String>,
}

/// The node that a pod must run on.
pub(super) fn host(pod: &Pod) -> Option<String> {
    let affinity = pod.spec.as_ref()?.affinity.as_ref()?.node_affinity.as_ref()?;
    let terms = &affinity.required_during_scheduling_ignored_during_execution.as_ref()?.node_selector_terms;
    terms.first()?.match_fields.as_ref()?.first()?.values.as_ref()?.first().cloned()
}

/// The uid of the PE object that controls a pod.
fn owner(pod: &Pod) -> String {
    let mut controllers = pod.owner_references().iter().filter(|owner| owner.controller == Some(true));
    controllers.next().unwrap().uid.clone()
}

/// The value that a pod was made with.
fn variable(pod: &Pod, name: &str) -> Option<String> {
    let variables = pod.spec.as_ref()?.containers.first()?.env.as_ref()?;
    variables.iter().find(|variable| variable.name == name)?.value.clone()
}

/// The launch that a pod was made for, whatever others have made of its labels.
pub(super) fn launch(pod: &Pod) -> u64 {
    variable(pod, "STREAMS_PE_LAUNCH_COUNT").unwrap().parse().unwrap()
}

/// What a pod really does.
pub(super) fn read(pod: &Pod) -> ObservedPod {
    pod_status::read(pod, launch(pod))
}

/// Whether the pod was made for this PE object.
pub(super) fn is_of(pod: &Pod, pe: &ProcessingElement) -> bool {
    pod.name_any() == pods_of_pe::name(PE, &pe.uid().unwrap(), launch(pod))
}

impl GroundTruth {
    /// The truth about the pod of a launch.
    pub(super) fn of(&mut self, pod: &Pod) -> &mut PodTruth {
        self.pods.entry(pod.name_any()).or_default()
    }

    pub(super) fn all(&mut self) -> impl Iterator<Item = &mut PodTruth> {
        self.pods.values_mut()
    }

    /// This PE object was deleted, and another one of its name created.
    pub(super) fn made_again(&mut self, deleted: ProcessingElement) {
        let uid = deleted.uid().unwrap();
        self.just_deleted.insert(uid.clone());
        self.earlier.insert(uid, deleted);
    }

    pub(super) fn begin_reconcile(&mut self) {
        self.just_deleted.clear();
    }

    /// The PE object that the pod was made for; one that is gone as it was at the end.
    fn pe(&self, server: &Server, pod: &Pod) -> ProcessingElement {
        let pe: ProcessingElement = server.get(&Key::of(pod).sibling(PE)).unwrap();
        if is_of(pod, &pe) {
            return pe;
        }
        self.earlier.values().find(|pe| is_of(pod, pe)).cloned().unwrap()
    }

    /// The pod is gone.
    pub(super) fn removed(&mut self, pod: &Pod) {
        let disrupted = read(pod).disruption.is_some();
        let truth = self.of(pod);
        if truth.outcome.is_none() {
            truth.outcome = Some(if disrupted { TerminationOutcome::Failed } else { TerminationOutcome::Deleted });
        }
    }

    /// A call of the controller is about to have its effect.
    pub(super) fn check(&mut self, server: &Server, call: &Call) {
        match (call.verb, call.kind.as_str()) {
            (Verb::ReplaceStatus, "ProcessingElement") => {
                let pe: ProcessingElement = call.object().unwrap();
                let existing = server.get::<ProcessingElement>(&call.key);
                if let Some(existing) = existing.filter(|existing| existing.resource_version() == pe.resource_version())
                {
                    self.check_launch(server, &existing, &pe);
                }
            }
            (Verb::Create, "Pod") => self.check_creation(server, &call.key, &call.object().unwrap()),
            (Verb::Delete, "Pod") => {
                assert!(call.uid().is_some(), "a pod is deleted by its uid");
                let pod = server.get::<Pod>(&call.key);
                if let Some(pod) = pod.filter(|pod| pod.uid().as_deref() == call.uid()) {
                    self.check_deletion(server, &pod);
                }
            }
            (Verb::Merge, "Pod") => {
                let body = call.body.as_ref().unwrap();
                assert!(body.as_object().unwrap().keys().all(|part| part == "metadata"), "{body}");
                let pod = server.get::<Pod>(&call.key);
                if let Some(pod) = pod.filter(|pod| pod.uid().as_deref() == body["metadata"]["uid"].as_str()) {
                    self.pe(server, &pod);
                    let label = &body["metadata"]["labels"][names::LABEL_LAUNCH_COUNT];
                    assert_eq!(label.as_str(), Some(&*launch(&pod).to_string()), "labels are restored as they were");
                }
            }
            (Verb::Merge, "ProcessingElement") => {
                let body = call.body.as_ref().unwrap();
                let uid = body["metadata"]["uid"].as_str();
                let patch = json!({"metadata": {"uid": uid, "annotations": {(names::ANNOTATION_MADE_AGAIN): null}}});
                assert_eq!(*body, patch, "nothing else of a PE is written");
                let pe = server.get::<ProcessingElement>(&call.key).filter(|pe| pe.uid().as_deref() == uid);
                let is_launched = pe.is_none_or(|pe| pe.status.is_some_and(|status| status.launch_count > 0));
                assert!(is_launched, "nothing else says of a PE that it was made again");
            }
            (Verb::Get | Verb::List, _) => {}
            _ => panic!("the controller does not do this: {call}"),
        }
    }

    /// Another pod is asked for only if there is a reason.
    fn check_launch(&self, server: &Server, existing: &ProcessingElement, pe: &ProcessingElement) {
        let (before, after) = (existing.status.clone().unwrap_or_default(), pe.status.clone().unwrap());
        if before.launch_count == after.launch_count {
            return;
        }
        if before.launch_count == 0 && !self.earlier.is_empty() {
            assert!(after.launch_count > 1, "operators take launch 1 for a clean start");
        } else {
            assert_eq!(after.launch_count, before.launch_count + 1, "one launch at a time");
        }
        if before.launch_count == 0 && after.created_launch_count == 1 {
            // Not asked for but recorded.
            let uid = existing.uid().unwrap();
            assert!(self.pods.contains_key(&pods_of_pe::name(PE, &uid, 1)), "a pod is recorded that was created");
            return;
        }
        let job: Job = server.get(&Key::of(pe).sibling(&pe.spec.job_name)).unwrap();
        assert!(job.status.unwrap().generation >= Some(existing.spec.generation), "the generation is committed");
        assert!(!job.spec.suspend, "nothing is launched while the job is suspended");
        let stop = existing.annotations().get(names::ANNOTATION_STOP_REQUESTED);
        assert!(stop == before.stop_requested.as_ref() || stop.is_none(), "a request to stop is met first");
        assert!(!before.stopped, "nothing is launched while the PE is stopped");
        if before.launch_count == 0 {
            return;
        }
        assert_eq!(before.created_launch_count, before.launch_count, "the pod before was created");
        let requested = existing.annotations().get(names::ANNOTATION_RESTART_REQUESTED);
        if requested.is_some() && requested != before.restart_requested.as_ref() {
            return;
        }
        if before.runtime_id.as_ref() != Some(&existing.spec.runtime_id) {
            return;
        }
        let suspended = |last: &&Termination| {
            last.launch_count == before.launch_count
                && matches!(last.outcome, TerminationOutcome::Suspended | TerminationOutcome::Stopped)
        };
        if before.last_termination.as_ref().filter(suspended).is_some() {
            return;
        }
        let uid = existing.uid().unwrap();
        let name = pods_of_pe::name(PE, &uid, before.launch_count);
        let truth = self.pods.get(&name).cloned().unwrap_or_default();
        let is_recorded = before.last_termination.as_ref().is_some_and(|last| last.launch_count == before.launch_count);
        // The controller may not have heard yet that the pod is gone, or that it ran: what it knows permits these.
        let same_place = truth.host == existing.spec.placement.host;
        let same_options = truth.level.as_deref() == Some(existing.spec.options.runtime_trace_level.name());
        let is_current = same_place && same_options;
        if !is_recorded && !is_current {
            return;
        }
        let policies = policies(existing);
        let pods = server.list::<Pod>();
        let pod = pods.iter().map(read).find(|pod| pod.name == name);
        let unanswered = pod.as_ref().is_some_and(|pod| !pod.may_run(server.now()));
        let disrupted = pod.is_some_and(|pod| pod.disruption.is_some());
        let unsaid = if disrupted { TerminationOutcome::Failed } else { TerminationOutcome::Deleted };
        let outcome = truth.outcome.unwrap_or(unsaid);
        let deleted_by = truth.by_other.then_some(DeletedBy::Other);
        let permitted = is_restart_permitted(policies, &Termination { outcome, deleted_by, ..Termination::default() })
            || ((truth.node_gone || truth.forgotten) && policies.restart_failed);
        let ended = truth.outcome.is_some() || unanswered;
        assert!(ended && permitted, "launch {} is forbidden: {policies:?} {truth:?}", after.launch_count);
        if before.consecutive_restarts > 0 && after.consecutive_restarts > before.consecutive_restarts {
            let due = before.next_restart_time.as_ref().is_some_and(|time| time.0 <= server.now());
            assert!(due, "launch {} is early", after.launch_count);
        }
    }

    fn check_creation(&mut self, server: &Server, key: &Key, pod: &Pod) {
        if self.just_deleted.contains(&owner(pod)) {
            // The controller cannot know. Nobody waits for this pod, and the garbage collector deletes it.
            return;
        }
        let pe: ProcessingElement = server.get(&key.sibling(PE)).expect("a pod is created for a PE that exists");
        assert!(is_controlled_by(&pod.metadata, &pe), "a pod is created for the PE object that exists");
        let launch_count = launch(pod);
        let status = pe.status.clone().unwrap_or_default();
        if status.launch_count == 0 {
            // The first is recorded once it was created.
            assert!(self.earlier.is_empty(), "operators take launch 1 for a clean start");
            let job: Job = server.get(&Key::of(&pe).sibling(&pe.spec.job_name)).unwrap();
            let is_committed = job.status.unwrap().generation >= Some(pe.spec.generation);
            // It may have got another text since it was read.
            let is_of_earlier_text = read(pod).runtime_id.as_deref() != Some(&pe.spec.runtime_id);
            assert!(is_committed || is_of_earlier_text, "the generation is committed");
        }
        assert_eq!(launch_count, status.launch_count.max(1), "a pod is created for the launch that was asked for");
        if server.get::<Pod>(key).is_some() {
            return;
        }
        let is_known = status.created_launch_count >= launch_count;
        let may_be_known = !self.created_by_deposed.contains(&pod.name_any());
        assert!(!is_known || !may_be_known, "a pod that is known to have been created comes back");
        for other in server.list::<Pod>().iter().map(read) {
            assert!(!other.may_run(server.now()), "{} still runs while {key} is created", other.name);
        }
        // What an unnoticed pod of the same launch came to does not count any more.
        let truth = PodTruth { host: host(pod), level: variable(pod, LEVEL), ..PodTruth::default() };
        if self.is_deposed {
            self.created_by_deposed.insert(pod.name_any());
        }
        self.pods.insert(pod.name_any(), truth);
    }

    fn check_deletion(&mut self, server: &Server, pod: &Pod) {
        let (read, pe) = (read(pod), self.pe(server, pod));
        // What an earlier PE object has left behind is deleted without anything being recorded of it (rule pe-22).
        let is_left_behind = read.left_behind && self.earlier.contains_key(&pe.uid().unwrap());
        let status = pe.status.unwrap_or_default();
        let recorded = status.last_termination.as_ref().is_some_and(|last| last.launch_count == read.launch_count);
        assert!(
            read.launch_count < status.launch_count || recorded || is_left_behind,
            "how {} ended is recorded before it is deleted",
            read.name
        );
        if read.node.is_none() || read.end().is_some() {
            self.removed(pod);
        }
    }
}
