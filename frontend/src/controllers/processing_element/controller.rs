//! Runs the reconciler: what wakes which PE, the workers, and the calls to the cluster.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use k8s_openapi::{
    api::core::v1::{Node, Pod},
    jiff::Timestamp,
};
use kube::{Api, Client, ResourceExt, api::PropagationPolicy};
use tokio_util::sync::CancellationToken;

use crate::mirrors::ByOwner as _;
use crate::mirrors::Mirrors;
use crate::mirrors::pe_of;
use crate::settings::{JobSettings, PodSettings};
use streams_api::{Job, ProcessingElement, names};
use streams_kubernetes::metrics::Metrics;
use streams_kubernetes::{
    Error, Key, apply,
    error::absent,
    events::Events,
    queue::{self, BackOff, Queue},
};

use super::{
    decide::Notice,
    figures::Figures,
    reconcile::{Cluster, Reconciler},
};

/// In whose name the controller writes (rule name-10).
const FIELD_MANAGER: &str = "streams-processing-elements";

/// The PE controller, to be run by the leader.
#[derive(Debug)]
pub struct Controller {
    reconciler: Reconciler<Kubernetes>,
    queue: Queue<Key>,
    workers: usize,
}

impl Controller {
    /// A controller of the PEs of these mirrors. From now on changes wake it; nothing is written before
    /// [`Controller::run`].
    pub fn new(
        client: Client,
        mirrors: &Mirrors,
        events: Events,
        metrics: &Metrics,
        pods: &PodSettings,
        jobs: &JobSettings,
    ) -> Self {
        let cluster = Kubernetes { client, events };
        let reconciler = Reconciler::new(cluster, mirrors, pods.clone(), jobs.min_ready_seconds, Figures::new(metrics));
        // After the reconciler has subscribed: it has taken note of a pod before anybody looks because of it.
        let queue = Queue::new("processing_element", BackOff::default(), metrics);
        wake(mirrors, &queue);
        Self { reconciler, queue, workers: jobs.workers.into() }
    }

    /// Works until `stop`, then finishes what it is at. The mirrors must have been filled.
    pub async fn run(self, stop: CancellationToken) {
        let Self { reconciler, queue, workers } = self;
        let reconciler = Arc::new(reconciler);
        let closing = queue.clone();
        let work = queue::run(queue, workers, move |key: Key| {
            let reconciler = Arc::clone(&reconciler);
            async move { reconciler.reconcile(&key).await }
        });
        let close = async move {
            stop.cancelled().await;
            closing.close();
        };
        tokio::join!(work, close);
    }
}

/// What makes which PE worth a look.
fn wake(mirrors: &Mirrors, queue: &Queue<Key>) {
    mirrors.processing_elements.wake(queue, |pe| [Key::of(pe)]);
    mirrors.pods.wake(queue, pe_of);
    mirrors.config_maps.wake(queue, pe_of);
    let pes = mirrors.processing_elements.clone();
    mirrors.host_pools.wake(queue, move |pool| {
        let job = Key::of(pool).sibling(&pool.spec.job_name);
        let index = pool.spec.index;
        let placed = move |pe: &Arc<ProcessingElement>| {
            pe.spec.placement.pool.as_ref().is_some_and(|location| location.index == index)
        };
        pes.of_job(&job).into_iter().filter(placed).map(|pe| Key::of(&*pe)).collect::<Vec<_>>()
    });
    // The status of a job changes often, and of what it says only this concerns its PEs.
    let (pes, jobs) = (mirrors.processing_elements.clone(), mirrors.jobs.clone());
    let concerns: Mutex<HashMap<Key, Concern>> = Mutex::default();
    mirrors.jobs.wake(queue, move |job| {
        let key = Key::of(job);
        let mut concerns = concerns.lock().unwrap_or_else(PoisonError::into_inner);
        let changed = if jobs.get(&key).is_none() {
            concerns.remove(&key);
            true
        } else {
            let concern = Concern::of(job);
            concerns.insert(key.clone(), concern.clone()) != Some(concern)
        };
        drop(concerns);
        let woken = if changed { pes.of_job(&key) } else { Vec::new() };
        woken.into_iter().map(|pe| Key::of(&*pe)).collect::<Vec<_>>()
    });
}

/// What concerns the PEs of a job.
#[derive(Clone, Debug, PartialEq)]
struct Concern {
    uid: Option<String>,
    generation: Option<u64>,
    deleting: bool,
    redis: Option<String>,
}

impl Concern {
    fn of(job: &Job) -> Self {
        Self {
            uid: job.uid(),
            generation: job.status.as_ref().and_then(|status| status.generation),
            deleting: job.metadata.deletion_timestamp.is_some(),
            redis: job.annotations().get(names::ANNOTATION_REDIS_CONFIGURATION).cloned(),
        }
    }
}

/// The cluster behind a client.
struct Kubernetes {
    client: Client,
    events: Events,
}

impl Kubernetes {
    fn pes(&self, key: &Key) -> Api<ProcessingElement> {
        Api::namespaced(self.client.clone(), &key.namespace)
    }

    fn pods(&self, key: &Key) -> Api<Pod> {
        Api::namespaced(self.client.clone(), &key.namespace)
    }
}

impl Cluster for Kubernetes {
    fn now(&self) -> Timestamp {
        Timestamp::now()
    }

    async fn processing_element(&self, key: &Key) -> Result<Option<ProcessingElement>, Error> {
        Ok(absent(self.pes(key).get(&key.name).await)?)
    }

    async fn write_status(&self, pe: &ProcessingElement) -> Result<ProcessingElement, Error> {
        apply::replace_status_if_unchanged(&self.pes(&Key::of(pe)), FIELD_MANAGER, pe).await
    }

    async fn pod(&self, key: &Key) -> Result<Option<Pod>, Error> {
        Ok(absent(self.pods(key).get(&key.name).await)?)
    }

    async fn create_pod(&self, pod: &Pod) -> Result<Pod, Error> {
        let launch = |pod: &Pod| pod.labels().get(names::LABEL_LAUNCH_COUNT).cloned();
        let wanted = launch(pod);
        let same = |existing: &Pod| launch(existing) == wanted;
        apply::create_or_match(&self.pods(&Key::of(pod)), FIELD_MANAGER, pod, same).await
    }

    async fn delete_pod(&self, key: &Key, uid: &str) -> Result<(), Error> {
        apply::delete(&self.pods(key), &key.name, Some(uid), PropagationPolicy::Background).await
    }

    async fn node_exists(&self, name: &str) -> Result<Option<bool>, Error> {
        match absent(Api::<Node>::all(self.client.clone()).get_metadata(name).await) {
            Ok(node) => Ok(Some(node.is_some())),
            Err(kube::Error::Api(status)) if status.code == 403 => {
                tracing::debug!(node = name, "nodes may not be read");
                Ok(None)
            }
            Err(error) => Err(error.into()),
        }
    }

    fn announce(&self, pe: &ProcessingElement, notice: &Notice) {
        let Notice { warning, reason, note } = notice;
        if *warning {
            self.events.warning(pe, reason, note);
        } else {
            self.events.normal(pe, reason, note);
        }
    }
}
