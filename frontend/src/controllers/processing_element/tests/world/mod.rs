//! The world: what the API server has, what happens to it, and what must never happen.

mod calls;
mod deeds;
mod state;

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use futures::executor::block_on;
use kube::core::ObjectMeta;

use self::{
    calls::Calls,
    state::{Crash, News, State, host, lock},
};
use super::super::{
    decide::{Notice, is_restart_permitted},
    figures::Figures,
    observed::{Pod, Policies},
    reconcile::Reconciler,
    seen,
};
use crate::mirrors::Mirrors;
use crate::settings::PodSettings;
use streams_api::{
    AadlConfigMap, BundleReference, Job, JobSpec, JobStatus, PePhase, ProcessingElement, ProcessingElementSpec, names,
};
use streams_kubernetes::metrics::Metrics;
use streams_kubernetes::{Key, apply::controlled_by, queue::Outcome, watch::ConfigMapMeta};

pub(super) use self::deeds::Deed;

const NAMESPACE: &str = "n";
const JOB: &str = "flow";
const PE: &str = "flow-3";

/// The world, with a controller in it.
pub(super) struct World {
    state: Arc<Mutex<State>>,
    mirrors: Mirrors,
    reconciler: Arc<Reconciler<Calls>>,
    /// A controller that does not know yet that it does not lead any more, and hears of nothing.
    deposed: Option<Arc<Reconciler<Calls>>>,
}

fn key(name: &str) -> Key {
    Key::new(NAMESPACE, name)
}

fn meta(name: &str, uid: &str) -> ObjectMeta {
    ObjectMeta {
        namespace: Some(NAMESPACE.to_owned()),
        name: Some(name.to_owned()),
        uid: Some(uid.to_owned()),
        generation: Some(1),
        ..ObjectMeta::default()
    }
}

impl World {
    /// A job that has committed generation 0, and its PE.
    pub(super) fn new() -> Self {
        let mut job = Job::new(JOB, JobSpec::of(BundleReference::default()));
        job.metadata = meta(JOB, "job");
        job.status = Some(JobStatus { generation: Some(0), ..JobStatus::default() });
        let spec = ProcessingElementSpec {
            job_name: JOB.to_owned(),
            id: 3,
            content_id: "0".repeat(64),
            runtime_id: "r0".to_owned(),
            config_map: AadlConfigMap { name: "flow-3-text".to_owned(), compressed: false },
            restartable: true,
            ..ProcessingElementSpec::default()
        };
        let mut pe = ProcessingElement::new(PE, spec);
        pe.metadata = meta(PE, "pe");
        pe.metadata.labels = Some(names::pe_labels(JOB, 3));
        pe.metadata.owner_references = Some(vec![controlled_by(&job)]);
        let mut state = State { has_text: true, job: Some(job), ..State::default() };
        state.nodes.insert("node".to_owned());
        state.put_pe(pe);
        let state = Arc::new(Mutex::new(state));
        let (mirrors, reconciler) = start(&state);
        Self { state, mirrors, reconciler, deposed: None }
    }

    /// The controller crashes after so many calls of its next turn, before or after the effect of the last one.
    pub(super) fn crash_after(&self, calls_left: usize, after_effect: bool) {
        lock(&self.state).crash = Some(Crash { calls_left, after_effect, survived: false });
    }

    /// A call of the next turn does not answer, and had its effect or not; the controller and its mirrors go on.
    pub(super) fn lose_answer_after(&self, calls_left: usize, after_effect: bool) {
        lock(&self.state).crash = Some(Crash { calls_left, after_effect, survived: true });
    }

    /// Something happens after so many calls of the next turn.
    pub(super) fn meanwhile(&self, calls: usize, deed: Deed) {
        lock(&self.state).meanwhile = Some((calls, deed));
    }

    /// One turn of the controller; after a crash another one takes over, with mirrors that are up to date.
    pub(super) fn turn(&mut self) -> Option<Outcome> {
        let result = block_on(self.reconciler.reconcile(&key(PE)));
        let crashed = {
            let mut state = lock(&self.state);
            state.meanwhile = None;
            let survived = state.crash.take().is_some_and(|crash| crash.survived);
            std::mem::take(&mut state.crashed) && !survived
        };
        if crashed {
            {
                let mut state = lock(&self.state);
                state.pe_news.clear();
                state.pod_news.clear();
            }
            (self.mirrors, self.reconciler) = start(&self.state);
        }
        result.ok()
    }

    /// Another replica leads from now on.
    pub(super) fn depose(&mut self) {
        let (mirrors, reconciler) = start(&self.state);
        self.mirrors = mirrors;
        self.deposed = Some(std::mem::replace(&mut self.reconciler, reconciler));
    }

    /// One turn of the replica that led before.
    pub(super) fn turn_of_deposed(&self) {
        if let Some(deposed) = &self.deposed {
            let _ = block_on(deposed.reconcile(&key(PE)));
        }
    }

    /// One turn of the replica that led before. After so many of its writes, before the next, the one that leads makes a turn, too.
    ///
    /// Between other calls it would not prove anything: that no creation arrives late is a matter of deadlines (leadership).
    pub(super) fn turn_of_deposed_around(&self, writes: usize) {
        let leader = Arc::clone(&self.reconciler);
        let turn = async move {
            let _ = leader.reconcile(&key(PE)).await;
        };
        lock(&self.state).before_write = Some((writes, Box::pin(turn)));
        self.turn_of_deposed();
        lock(&self.state).before_write = None;
    }

    /// The mirrors are told of so many changes.
    pub(super) fn deliver(&self, pes: usize, pods: usize) {
        let news: Vec<News> = {
            let mut state = lock(&self.state);
            let (pes, pods) = (pes.min(state.pe_news.len()), pods.min(state.pod_news.len()));
            let mut news: Vec<News> = state.pe_news.drain(..pes).collect();
            news.extend(state.pod_news.drain(..pods));
            news
        };
        for change in news {
            match change {
                News::Pe(pe) => self.mirrors.processing_elements.insert(*pe),
                News::Pod(pod) => self.mirrors.pods.insert(*pod),
                News::PodGone(key) => self.mirrors.pods.remove(&key),
            }
        }
        let state = lock(&self.state);
        if let Some(job) = &state.job {
            self.mirrors.jobs.insert(job.clone());
        }
        tell_text(&self.mirrors, state.has_text);
    }

    pub(super) fn wait(&self, seconds: i64) {
        lock(&self.state).second += seconds;
    }

    pub(super) fn happen(&self, deed: Deed) {
        lock(&self.state).happen(deed);
    }

    /// Everything is healthy from now on: until nothing changes any more.
    pub(super) fn calm_down(&mut self) {
        for deed in [Deed::Commit, Deed::TextThere(true), Deed::Refuse(false)] {
            self.happen(deed);
        }
        let mut quiet = 0;
        for _ in 0..200 {
            self.deliver(usize::MAX, usize::MAX);
            let before = lock(&self.state).version;
            let outcome = self.turn();
            while lock(&self.state).happen(Deed::Run) || lock(&self.state).happen(Deed::Finish { said: true, code: 0 })
            {
            }
            if lock(&self.state).version != before || outcome.is_none() {
                quiet = 0;
                continue;
            }
            match outcome {
                Some(Outcome::Again(delay)) => {
                    let seconds = i64::try_from(delay.as_secs()).unwrap() + 1;
                    assert!(seconds <= 400, "it waits for {seconds} s");
                    self.wait(seconds);
                }
                _ => quiet += 1,
            }
            if quiet == 2 {
                return;
            }
        }
        panic!("it does not come to rest: {:?}", lock(&self.state).pe.as_ref().unwrap().status);
    }

    /// What must be so once nothing changes any more.
    pub(super) fn check_rest(&self) {
        let state = lock(&self.state);
        let pe = state.pe.as_ref().unwrap();
        let status = pe.status.clone().unwrap();
        assert!(status.launch_count > 0 && status.created_launch_count == status.launch_count, "{status:?}");
        assert_eq!(status.runtime_id.as_ref(), Some(&pe.spec.runtime_id), "{status:?}");
        let live: Vec<_> = state.pods.values().map(seen::read).filter(|pod| pod.end().is_none()).collect();
        let ended = status.last_termination.as_ref().filter(|last| last.launch_count == status.launch_count);
        match ended {
            Some(last) => {
                assert!(!is_restart_permitted(policies(pe), last), "it should have been restarted: {status:?}");
                assert_eq!(live, [], "{status:?}");
            }
            None => {
                assert_eq!(live.iter().map(|pod| pod.launch_count).collect::<Vec<_>>(), [status.launch_count]);
                assert_eq!(status.phase, Some(PePhase::Running), "{status:?}");
                let pod = state.pods.get(&live[0].name).unwrap();
                assert_eq!(host(pod), pe.spec.placement.host, "it runs where it should");
            }
        }
        let failed = state.pods.values().map(seen::read).filter(Pod::has_failed).count();
        let kept = if pe.spec.options.delete_failed_pod { 0 } else { 3 };
        assert!(failed <= kept, "{failed} failed pods are kept");
        let completed =
            state.pods.values().map(seen::read).filter(|pod| pod.end().is_some_and(|end| !end.failed)).count();
        assert!(completed <= 1, "{completed} completed pods are kept");
    }

    pub(super) fn pe(&self) -> ProcessingElement {
        lock(&self.state).pe.clone().unwrap()
    }

    pub(super) fn pods(&self) -> Vec<Pod> {
        lock(&self.state).pods.values().map(seen::read).collect()
    }

    pub(super) fn writes(&self) -> usize {
        lock(&self.state).writes
    }

    pub(super) fn notices(&self) -> Vec<Notice> {
        std::mem::take(&mut lock(&self.state).notices)
    }
}

/// A controller whose mirrors are up to date.
fn start(state: &Arc<Mutex<State>>) -> (Mirrors, Arc<Reconciler<Calls>>) {
    let metrics = Metrics::new("streams_frontend");
    let mirrors = Mirrors::new(&metrics);
    {
        let mut state = lock(state);
        state.pe_news.clear();
        state.pod_news.clear();
        if let Some(pe) = &state.pe {
            mirrors.processing_elements.insert(pe.clone());
        }
        for pod in state.pods.values() {
            mirrors.pods.insert(pod.clone());
        }
        if let Some(job) = &state.job {
            mirrors.jobs.insert(job.clone());
        }
        tell_text(&mirrors, state.has_text);
    }
    let figures = Figures::new(&metrics);
    let calls = Calls(Arc::clone(state));
    let reconciler = Reconciler::new(calls, &mirrors, PodSettings::default(), Duration::ZERO, figures);
    (mirrors, Arc::new(reconciler))
}

fn tell_text(mirrors: &Mirrors, there: bool) {
    if there {
        mirrors.config_maps.insert(ConfigMapMeta {
            types: None,
            metadata: meta("flow-3-text", "text"),
            _phantom: Default::default(),
        });
    } else {
        mirrors.config_maps.remove(&key("flow-3-text"));
    }
}

fn policies(pe: &ProcessingElement) -> Policies {
    Policies::of(&pe.spec.options, pe.spec.restart_failed_pod())
}
