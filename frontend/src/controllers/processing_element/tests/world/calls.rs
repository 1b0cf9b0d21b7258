//! What the controller does in the world, and what it must never do.

use std::sync::{Arc, Mutex};

use k8s_openapi::{api::core::v1::Pod, jiff::Timestamp};
use kube::ResourceExt;

use super::{
    super::super::{
        decide::{Notice, is_restart_permitted},
        reconcile::Cluster,
        seen,
    },
    PE, policies,
    state::{Crash, State, Truth, TurnOfLeader, host, level, lock},
};
use streams_api::{DeletedBy, ProcessingElement, Termination, TerminationOutcome, names};
use streams_kubernetes::{Error, Key, apply::is_controlled_by};

/// What the controller sees of the world.
pub(super) struct Calls(pub(super) Arc<Mutex<State>>);

impl State {
    /// A call of the controller begins: says whether it has its effect; then whether it answers.
    fn call(&mut self) -> (bool, bool) {
        match &mut self.meanwhile {
            Some((0, deed)) => {
                let deed = *deed;
                self.meanwhile = None;
                self.happen(deed);
            }
            Some((calls, _)) => *calls -= 1,
            None => {}
        }
        match &mut self.crash {
            _ if self.crashed => (false, false),
            Some(Crash { calls_left: 0, after_effect, .. }) => {
                self.crashed = true;
                (*after_effect, false)
            }
            Some(Crash { calls_left, .. }) => {
                *calls_left -= 1;
                (true, true)
            }
            None => (true, true),
        }
    }

    fn write_status(&mut self, pe: &ProcessingElement) -> Result<ProcessingElement, Error> {
        let Some(existing) = self.pe.clone() else { return Err(not_found()) };
        if existing.metadata.resource_version != pe.metadata.resource_version {
            return Err(Error::Conflict { kind: "ProcessingElement".to_owned(), name: PE.to_owned() });
        }
        self.check_launch(&existing, pe);
        self.writes += 1;
        self.put_pe(ProcessingElement { status: pe.status.clone(), ..existing });
        Ok(self.pe.clone().unwrap())
    }

    /// Another pod is asked for only if there is a reason.
    fn check_launch(&self, existing: &ProcessingElement, pe: &ProcessingElement) {
        let (before, after) = (existing.status.clone().unwrap_or_default(), pe.status.clone().unwrap());
        if before.launch_count == after.launch_count {
            return;
        }
        assert_eq!(after.launch_count, before.launch_count + 1, "one launch at a time");
        let job = self.job.as_ref().unwrap().status.as_ref().unwrap();
        assert!(job.generation >= Some(existing.spec.generation), "the generation is committed");
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
        let truth = self.truth.get(&before.launch_count).cloned().unwrap_or_default();
        let is_recorded = before.last_termination.as_ref().is_some_and(|last| last.launch_count == before.launch_count);
        // The controller may not have heard yet that the pod is gone, or that it ran: what it knows permits these.
        let same_place = truth.host == existing.spec.placement.host;
        let same_options = truth.level.as_deref() == Some(existing.spec.options.runtime_trace_level.name());
        let is_current = same_place && same_options;
        if !is_recorded && !is_current {
            return;
        }
        let policies = policies(existing);
        let pod = self.pods.values().map(seen::read).find(|pod| pod.launch_count == before.launch_count);
        let unanswered = pod.as_ref().is_some_and(|pod| !pod.may_run(self.now()));
        let disrupted = pod.is_some_and(|pod| pod.disruption.is_some());
        let unsaid = if disrupted { TerminationOutcome::Failed } else { TerminationOutcome::Deleted };
        let outcome = truth.outcome.unwrap_or(unsaid);
        let deleted_by = truth.by_other.then_some(DeletedBy::Other);
        let permitted = is_restart_permitted(policies, &Termination { outcome, deleted_by, ..Termination::default() })
            || (truth.node_gone && policies.restart_failed);
        let ended = truth.outcome.is_some() || unanswered;
        assert!(ended && permitted, "launch {} is forbidden: {policies:?} {truth:?}", after.launch_count);
        if before.consecutive_restarts > 0 && after.consecutive_restarts > before.consecutive_restarts {
            let due = before.next_restart_time.as_ref().is_some_and(|time| time.0 <= self.now());
            assert!(due, "launch {} is early", after.launch_count);
        }
    }

    fn create_pod(&mut self, pod: &Pod) -> Result<Pod, Error> {
        if self.refused {
            return Err(Error::Refused { kind: "Pod".to_owned(), name: pod.name_any(), message: "no".to_owned() });
        }
        let pe = self.pe.clone().expect("a pod is created for a PE that exists");
        assert!(is_controlled_by(&pod.metadata, &pe));
        let launch_count = seen::read(pod).launch_count;
        let status = pe.status.clone().unwrap_or_default();
        assert_eq!(launch_count, status.launch_count, "a pod is created for the launch that was asked for");
        if let Some(existing) = self.pods.get(&pod.name_any()) {
            if existing.metadata.deletion_timestamp.is_some() {
                return Err(Error::Terminating { kind: "Pod".to_owned(), name: pod.name_any() });
            }
            return Ok(existing.clone());
        }
        assert!(status.created_launch_count < launch_count, "a pod that is known to have been created comes back");
        for other in self.pods.values().map(seen::read) {
            assert!(!other.may_run(self.now()), "{} still runs while {} is created", other.name, pod.name_any());
        }
        self.uids += 1;
        let mut pod = pod.clone();
        pod.metadata.uid = Some(format!("pod {}", self.uids));
        // What an unnoticed pod of the same launch came to does not count any more.
        let truth = Truth { host: host(&pod), level: level(&pod), ..Truth::default() };
        self.truth.insert(launch_count, truth);
        self.put_pod(pod.clone());
        Ok(self.pods.get(&pod.name_any()).cloned().unwrap())
    }

    fn delete_pod(&mut self, key: &Key, uid: &str) {
        let Some(pod) = self.pods.get(&*key.name).filter(|pod| pod.uid().as_deref() == Some(uid)).cloned() else {
            return;
        };
        let read = seen::read(&pod);
        let pe = self.pe.clone().unwrap();
        let status = pe.status.unwrap_or_default();
        let recorded = status.last_termination.as_ref().is_some_and(|last| last.launch_count == read.launch_count);
        assert!(
            read.launch_count < status.launch_count || recorded,
            "how {} ended is recorded before it is deleted",
            read.name
        );
        self.delete(pod, false);
    }
}

fn not_found() -> Error {
    Error::Call(kube::Error::Api(kube::core::Status::failure("gone", "NotFound").with_code(404).boxed()))
}

impl Calls {
    /// What is due before a write of the status.
    fn before_write(&self) -> Option<TurnOfLeader> {
        let mut state = lock(&self.0);
        match &mut state.before_write {
            Some((0, _)) => state.before_write.take().map(|(_, turn)| turn),
            Some((writes, _)) => {
                *writes -= 1;
                None
            }
            None => None,
        }
    }

    fn call<T>(&self, effect: impl FnOnce(&mut State) -> Result<T, Error>) -> Result<T, Error> {
        let mut state = lock(&self.0);
        let (has_effect, answers) = state.call();
        let result = if has_effect { effect(&mut state) } else { Err(not_found()) };
        if answers { result } else { Err(Error::Call(kube::Error::Service("crashed".into()))) }
    }
}

impl Cluster for Calls {
    fn now(&self) -> Timestamp {
        lock(&self.0).now()
    }

    async fn processing_element(&self, _: &Key) -> Result<Option<ProcessingElement>, Error> {
        self.call(|state| Ok(state.pe.clone()))
    }

    async fn write_status(&self, pe: &ProcessingElement) -> Result<ProcessingElement, Error> {
        if let Some(turn) = self.before_write() {
            turn.await;
        }
        self.call(|state| state.write_status(pe))
    }

    async fn pod(&self, key: &Key) -> Result<Option<Pod>, Error> {
        self.call(|state| Ok(state.pods.get(&*key.name).cloned()))
    }

    async fn create_pod(&self, pod: &Pod) -> Result<Pod, Error> {
        self.call(|state| state.create_pod(pod))
    }

    async fn delete_pod(&self, key: &Key, uid: &str) -> Result<(), Error> {
        self.call(|state| {
            state.delete_pod(key, uid);
            Ok(())
        })
    }

    async fn node_exists(&self, name: &str) -> Result<Option<bool>, Error> {
        self.call(|state| Ok(Some(state.nodes.contains(name))))
    }

    fn announce(&self, _: &ProcessingElement, notice: &Notice) {
        lock(&self.0).notices.push(notice.clone());
    }
}
