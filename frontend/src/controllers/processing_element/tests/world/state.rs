//! What the API server has, and what it does by itself.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::{Mutex, MutexGuard},
};

use futures::future::BoxFuture;
use k8s_openapi::{api::core::v1::Pod, apimachinery::pkg::apis::meta::v1::Time, jiff::Timestamp};
use kube::ResourceExt;

use super::{
    super::super::{decide::Notice, observed, seen},
    deeds::Deed,
};
use streams_api::{Job, ProcessingElement, TerminationOutcome};
use streams_kubernetes::Key;

/// Grace period of pods.
const GRACE: i64 = 30;

/// How a pod really ended.
#[derive(Clone, Debug, Default)]
pub(super) struct Truth {
    pub(super) outcome: Option<TerminationOutcome>,
    /// Somebody other than the controller deleted it.
    pub(super) by_other: bool,
    /// Where it ran.
    pub(super) node: Option<String>,
    /// Its node went with it or after it: whoever looks later cannot tell the two.
    pub(super) node_gone: bool,
    /// Where it had to run.
    pub(super) host: Option<String>,
    /// The trace level it was made with.
    pub(super) level: Option<String>,
}

/// A change that a mirror has not been told of yet.
#[derive(Clone, Debug)]
pub(super) enum News {
    Pe(Box<ProcessingElement>),
    Pod(Box<Pod>),
    PodGone(Key),
}

/// Where a crash comes, counted in calls.
#[derive(Clone, Copy, Debug)]
pub(super) struct Crash {
    pub(super) calls_left: usize,
    pub(super) after_effect: bool,
    /// Only the answer of the last call is lost: the process goes on, with what it knows.
    pub(super) survived: bool,
}

/// A turn of the controller that leads.
pub(super) type TurnOfLeader = BoxFuture<'static, ()>;

#[derive(Default)]
pub(super) struct State {
    pub(super) second: i64,
    pub(super) version: u64,
    pub(super) uids: u64,
    pub(super) pe: Option<ProcessingElement>,
    pub(super) job: Option<Job>,
    pub(super) has_text: bool,
    pub(super) pods: BTreeMap<String, Pod>,
    pub(super) nodes: BTreeSet<String>,
    pub(super) truth: BTreeMap<u64, Truth>,
    pub(super) pe_news: VecDeque<News>,
    pub(super) pod_news: VecDeque<News>,
    pub(super) crash: Option<Crash>,
    pub(super) crashed: bool,
    /// What a user does between two calls of the controller.
    pub(super) meanwhile: Option<(usize, Deed)>,
    /// What the controller that leads does before so many writes of the deposed one.
    pub(super) before_write: Option<(usize, TurnOfLeader)>,
    pub(super) writes: usize,
    pub(super) notices: Vec<Notice>,
    pub(super) refused: bool,
}

pub(super) fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap()
}

/// The node that a pod must run on.
pub(super) fn host(pod: &Pod) -> Option<String> {
    let affinity = pod.spec.as_ref()?.affinity.as_ref()?.node_affinity.as_ref()?;
    let terms = &affinity.required_during_scheduling_ignored_during_execution.as_ref()?.node_selector_terms;
    terms.first()?.match_fields.as_ref()?.first()?.values.as_ref()?.first().cloned()
}

/// The trace level that a pod was made with.
pub(super) fn level(pod: &Pod) -> Option<String> {
    let variables = pod.spec.as_ref()?.containers.first()?.env.as_ref()?;
    variables.iter().find(|variable| variable.name == "STREAMS_INITIAL_TRACE_LEVEL")?.value.clone()
}

impl State {
    pub(super) fn now(&self) -> Timestamp {
        Timestamp::from_second(1_700_000_000 + self.second).unwrap()
    }

    pub(super) fn next_version(&mut self) -> Option<String> {
        self.version += 1;
        Some(self.version.to_string())
    }

    pub(super) fn put_pe(&mut self, mut pe: ProcessingElement) {
        pe.metadata.resource_version = self.next_version();
        self.pe_news.push_back(News::Pe(Box::new(pe.clone())));
        self.pe = Some(pe);
    }

    /// A change of the spec.
    pub(super) fn edit(&mut self, edit: impl FnOnce(&mut ProcessingElement)) -> bool {
        let Some(mut pe) = self.pe.clone() else { return false };
        let before = pe.clone();
        edit(&mut pe);
        if pe == before {
            return false;
        }
        if pe.spec != before.spec {
            pe.metadata.generation = pe.metadata.generation.map(|generation| generation + 1);
        }
        self.put_pe(pe);
        true
    }

    pub(super) fn put_pod(&mut self, mut pod: Pod) {
        pod.metadata.resource_version = self.next_version();
        self.pod_news.push_back(News::Pod(Box::new(pod.clone())));
        self.pods.insert(pod.name_any(), pod);
    }

    pub(super) fn remove_pod(&mut self, name: &str) {
        if let Some(pod) = self.pods.remove(name) {
            self.version += 1;
            self.pod_news.push_back(News::PodGone(Key::of(&pod)));
            let pod = seen::read(&pod);
            let truth = self.truth.entry(pod.launch_count).or_default();
            if truth.outcome.is_none() {
                truth.outcome = Some(if pod.disruption.is_some() {
                    TerminationOutcome::Failed
                } else {
                    TerminationOutcome::Deleted
                });
            }
        }
    }

    pub(super) fn newest(&self, wanted: impl Fn(&observed::Pod) -> bool) -> Option<Pod> {
        let pods = self.pods.values().filter(|pod| wanted(&seen::read(pod)));
        pods.max_by_key(|pod| seen::read(pod).launch_count).cloned()
    }

    /// What the API server does with the request to delete a pod.
    pub(super) fn delete(&mut self, mut pod: Pod, by_other: bool) {
        let read = seen::read(&pod);
        if by_other {
            self.truth.entry(read.launch_count).or_default().by_other = true;
        }
        let runs_somewhere = read.node.is_some() && read.end().is_none();
        if !runs_somewhere {
            return self.remove_pod(&read.name);
        }
        if pod.metadata.deletion_timestamp.is_none() {
            pod.metadata.deletion_timestamp =
                Some(Time(Timestamp::from_second(self.now().as_second() + GRACE).unwrap()));
            self.put_pod(pod);
        }
    }
}
