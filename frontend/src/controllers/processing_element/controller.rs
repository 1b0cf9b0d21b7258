//! Runs the reconciler: wakes PEs when objects change, and runs the workers.
//!
//! Knows: which objects a PE depends on, and what of a change is worth a look. Must not know: what comes of the look.

use super::counters::Counters;
use super::last_seen::LastSeen;
use super::observe::redis_configuration;
use super::pod_status;
use super::reconciler::PeReconciler;
use crate::controllers::known_launches::KnownLaunches;
use crate::controllers::reconciler::reconcile;
use crate::controllers::remembered::Remembered;
use crate::controllers::resizing::RollOutTimes;
use crate::controllers::submissions::{RUNNING_WITHIN, Submissions, Woken};
use crate::mirrors::{ByOwner as _, Mirrors, job_of, pe_of};
use crate::owner::owner_of_child;
use crate::settings::{JobSettings, PodSettings};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use std::sync::Arc;
use std::time::Duration;
use streams_api::{Job, ProcessingElement};
use streams_kubernetes::Key;
use streams_kubernetes::cluster::{ApiServer, troubles_of};
use streams_kubernetes::metrics::Metrics;
use streams_kubernetes::queue::{self, BackOff, Queue, Sharing};
use streams_kubernetes::watch::{ConfigMapMeta, Mirrored, Watch};
use tokio_util::sync::CancellationToken;

/// The PE controller, to be run by the leader.
#[derive(Debug)]
pub(crate) struct PeController {
    reconciler: PeReconciler<ApiServer>,
    queue: Queue<Key>,
    workers: usize,
}

impl PeController {
    /// A controller of the PEs of these mirrors. From now on changes wake it; nothing is written before
    /// [`PeController::run`].
    pub(crate) fn new(
        cluster: ApiServer,
        mirrors: &Mirrors,
        metrics: &Metrics,
        pods: &PodSettings,
        jobs: &JobSettings,
        last_seen: Arc<LastSeen>,
        known_launches: KnownLaunches,
    ) -> Self {
        let (times, troubles) = (RollOutTimes::of(jobs), troubles_of(&cluster));
        let reconciler =
            PeReconciler::new(cluster, mirrors, pods.clone(), times, Counters::new(metrics), last_seen, known_launches);
        // Subscribed after the reconciler: its memory knows of a pod before the pod wakes a PE.
        let queue =
            Queue::new("processing_element", BackOff::default(), Sharing::among(jobs.workers, owner_of_child), metrics)
                .with_troubles(troubles);
        let queue = mirrors.refusals.hold_back(queue);
        wake(mirrors, &queue, times);
        wake_those_who_waited(&reconciler.submissions, &queue);
        Self { reconciler, queue, workers: jobs.workers.into() }
    }

    /// Jobs that are being submitted.
    pub(crate) fn submissions(&self) -> Arc<Submissions> {
        Arc::clone(&self.reconciler.submissions)
    }

    /// Keys that are to be looked at.
    pub(crate) fn queue(&self) -> &Queue<Key> {
        &self.queue
    }

    /// Runs until `stop`, then finishes the reconciles that are under way. The mirrors must be filled before.
    pub(crate) async fn run(self, stop: CancellationToken) {
        let Self { reconciler, queue, workers } = self;
        let reconciler = Arc::new(reconciler);
        let closing = queue.clone();
        let work = queue::run(queue, workers, move |key: Key| {
            let reconciler = Arc::clone(&reconciler);
            async move { reconcile(&*reconciler, &key).await }
        });
        let close = async move {
            stop.cancelled().await;
            closing.close();
        };
        tokio::join!(work, close);
    }
}

/// Queues a PE whenever an object that it depends on changes.
fn wake(mirrors: &Mirrors, queue: &Queue<Key>, times: RollOutTimes) {
    wake_by(&mirrors.processing_elements, mirrors, queue, times, |pe| Some(Key::of(pe)), |_| false);
    wake_by(&mirrors.pods, mirrors, queue, times, pe_of, goes_on);
    let pes = mirrors.processing_elements.clone();
    wake_by(&mirrors.config_maps, mirrors, queue, times, move |text| pe_with_text(&pes, text), |_| false);
    // A job may have as many pools as PEs, and each is told of often.
    let placed = mirrors.clone();
    mirrors
        .host_pools
        .wake(queue, move |pool| placed.pes_of_pool(&Key::of(pool).sibling(&pool.spec.job_name), pool.spec.index));
    // The status of a job changes often; its PEs depend on a small part of it only.
    let (pes, jobs) = (mirrors.processing_elements.clone(), mirrors.jobs.clone());
    let concerns: Remembered<Option<RelevantState>> = Remembered::default();
    let pes_of_jobs = queue.clone();
    mirrors.jobs.subscribe(move |job| {
        let key = Key::of(job);
        let changed = if !jobs.contains(&key) {
            concerns.forget_all_of(&key);
            true
        } else {
            let (uid, concern) = (job.uid().unwrap_or_default(), Some(RelevantState::of(job)));
            concerns.with(&key, &uid, || None, |known| std::mem::replace(known, concern.clone()) != concern)
        };
        let woken = if changed { pes.kept_of_job(&key) } else { Vec::new() };
        let urgent = times.are_pes_waited_for(job, Timestamp::now());
        for (pe, _) in woken {
            if urgent { pes_of_jobs.add_urgent(pe) } else { pes_of_jobs.add(pe) }
        }
    });
}

/// Queues PEs that have let others go first. What they have to tell is all that is left to do, unless somebody waits
/// for it: the next generation of their job is rolled out by what runs.
fn wake_those_who_waited(submissions: &Submissions, queue: &Queue<Key>) {
    let queue = queue.clone();
    submissions.wake_by(move |pe, why| match why {
        Woken::OthersRun => queue.add_patient(pe),
        Woken::OthersAreCommitted => queue.add_patient_later(pe, RUNNING_WITHIN),
        Woken::JobGoesOn => queue.add_urgent(pe),
    });
}

/// Queues a PE whenever an object of this kind that belongs to it changes. It is urgent while somebody waits for its
/// job, and patient where the object asks for no more than to be told of (rule call-7).
fn wake_by<K: Mirrored>(
    mirror: &Watch<K>,
    mirrors: &Mirrors,
    queue: &Queue<Key>,
    times: RollOutTimes,
    pe: impl Fn(&K) -> Option<Key> + Send + Sync + 'static,
    is_told_only: fn(&K) -> bool,
) {
    let (jobs, queue, mirrored) = (mirrors.jobs.clone(), queue.clone(), mirror.clone());
    mirror.subscribe(move |object| {
        let Some(pe) = pe(object) else { return };
        let job = job_of(object).and_then(|job| jobs.get(&job));
        if job.is_some_and(|job| times.are_pes_waited_for(&job, Timestamp::now())) {
            queue.add_urgent(pe);
        // Of what is gone, the last state is told.
        } else if is_told_only(object) && mirrored.contains(&Key::of(object)) {
            queue.add_patient(pe);
        } else {
            queue.add(pe);
        }
    });
}

/// The PE that refers to this ConfigMap. A resize writes a new text for each PE that it restarts, and deletes the old
/// one: before the PE refers to the one, and after it has referred to the other. Neither is a reason to look at it.
fn pe_with_text(pes: &Watch<ProcessingElement>, text: &ConfigMapMeta) -> Option<Key> {
    let pe = pe_of(text)?;
    let refers_to_it = pes.get(&pe)?.spec.config_map.name == text.name_any();
    refers_to_it.then_some(pe)
}

/// A pod whose PE has not ended and that is to stay: nothing else is to be done than to tell how far it is.
fn goes_on(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    let is_under_way = matches!(phase, None | Some("Pending" | "Running")) && !pod_status::has_ended(pod);
    pod.metadata.deletion_timestamp.is_none() && is_under_way
}

/// The part of a job that its PEs depend on.
#[derive(Clone, Debug, PartialEq)]
struct RelevantState {
    uid: Option<String>,
    generation: Option<u64>,
    deleting: bool,
    suspended: bool,
    min_ready: Option<Duration>,
    redis: Option<String>,
}

impl RelevantState {
    fn of(job: &Job) -> Self {
        Self {
            uid: job.uid(),
            generation: job.status.as_ref().and_then(|status| status.generation),
            deleting: job.metadata.deletion_timestamp.is_some(),
            suspended: job.spec.suspend,
            min_ready: job.spec.min_ready(),
            redis: redis_configuration(job).cloned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controllers::tests::LateMirrors;
    use futures::FutureExt as _;
    use k8s_openapi::api::core::v1::ConfigMap;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
    use kube::Resource as _;
    use kube::api::DeleteParams;
    use kube::core::ObjectMeta;
    use serde_json::json;
    use streams_api::{BundleReference, JobSpec, JobStatus, ProcessingElementSpec, ProposedPlan, Rollout, names};
    use streams_kubernetes::ownership::controlled_by;
    use streams_kubernetes_fake::Server;

    fn pod_of(pe: &str) -> Pod {
        serde_json::from_value(json!({
            "metadata": {
                "namespace": "n", "name": format!("{pe}-1"), "labels": names::pe_labels("a", 0),
                "ownerReferences": [{
                    "apiVersion": ProcessingElement::api_version(&()), "kind": ProcessingElement::kind(&()),
                    "name": pe, "uid": "u", "controller": true,
                }],
            },
            "spec": {"containers": []}, "status": {"phase": "Pending"},
        }))
        .unwrap()
    }

    fn times() -> RollOutTimes {
        RollOutTimes::of(&JobSettings::default())
    }

    fn taken(queue: &Queue<Key>) -> Vec<String> {
        let next = || queue.next().now_or_never().flatten();
        std::iter::from_fn(|| next().map(|taken| taken.key().name.to_string())).collect()
    }

    fn become_of(server: &Server, pe: &str, phase: &str) {
        let key = Key::new("n", &format!("{pe}-1"));
        server.edit(&key, |pod: &mut Pod| pod.status.get_or_insert_default().phase = Some(phase.to_owned()));
    }

    /// The PE ends, and another container of its pod runs on.
    fn end_beside_others(server: &Server, pe: &str) {
        let container = |name: &str, state: &str| {
            let state = json!({state: {"exitCode": 1}});
            json!({"name": name, "image": "", "imageID": "", "ready": false, "restartCount": 0, "state": state})
        };
        let containers = json!([container("pe", "terminated"), container("mesh", "running")]);
        server.edit(&Key::new("n", &format!("{pe}-1")), |pod: &mut Pod| {
            pod.status.get_or_insert_default().container_statuses = serde_json::from_value(containers).unwrap();
        });
    }

    #[test]
    fn a_pod_that_goes_on_asks_for_a_patient_look_and_one_that_ends_or_goes_for_a_usual_one() {
        type Change = fn(&Server);
        // what becomes of the pod of a-0, after that of b-0 runs -> the order of looks
        let table: [(&str, Change, [&str; 2]); 5] = [
            ("it runs", |server| become_of(server, "a-0", "Running"), ["b-0", "a-0"]),
            ("it fails", |server| become_of(server, "a-0", "Failed"), ["a-0", "b-0"]),
            ("it ends beside others", |server| end_beside_others(server, "a-0"), ["a-0", "b-0"]),
            (
                "it goes",
                |server| {
                    let key = Key::new("n", "a-0-1");
                    server.edit(&key, |pod: &mut Pod| pod.metadata.finalizers = Some(vec!["x.test/held".into()]));
                    server.delete::<Pod>(&key, &DeleteParams::default());
                },
                ["a-0", "b-0"],
            ),
            ("it is gone", |server| server.remove::<Pod>(&Key::new("n", "a-0-1")), ["a-0", "b-0"]),
        ];
        for (what, change, expected) in table {
            let server = Server::new();
            ["a-0", "b-0"].into_iter().for_each(|pe| drop(server.create(&pod_of(pe))));
            let mut mirrors = LateMirrors::of(&server);
            let queue =
                Queue::new("test", BackOff::default(), Sharing::among(8, owner_of_child), &Metrics::new("test"));
            wake(&mirrors.mirrors, &queue, times());
            taken(&queue);
            become_of(&server, "b-0", "Running");
            mirrors.deliver_all();
            change(&server);
            mirrors.deliver_all();
            assert_eq!(taken(&queue), expected, "{what}");
        }
    }

    #[test]
    fn pes_of_a_job_that_is_being_resized_go_first() {
        let server = Server::new();
        // That of the last is late, and its job cannot say so.
        let long_ago = Some(MicroTime(Timestamp::UNIX_EPOCH));
        for (name, generation, started_at) in [("a", 0, None), ("b", 1, None), ("c", 0, None), ("d", 1, long_ago)] {
            let mut job = Job::new(name, JobSpec::of(BundleReference::default()));
            job.metadata.namespace = Some("n".to_owned());
            let rollout = Rollout { generation, started_at, ..Rollout::default() };
            job.status =
                Some(JobStatus { generation: Some(generation), rollout: Some(rollout), ..JobStatus::default() });
            let job = server.create(&job);
            let spec = ProcessingElementSpec { job_name: name.to_owned(), ..ProcessingElementSpec::default() };
            let mut pe = ProcessingElement::new(&format!("{name}-0"), spec);
            pe.metadata.namespace = Some("n".to_owned());
            pe.metadata.labels = Some(names::pe_labels(name, 0));
            pe.metadata.owner_references = Some(vec![controlled_by(&job)]);
            server.create(&pe);
        }
        let mirrors = LateMirrors::of(&server);
        let queue = Queue::new("test", BackOff::default(), Sharing::among(8, owner_of_child), &Metrics::new("test"));
        wake(&mirrors.mirrors, &queue, times());
        assert_eq!(taken(&queue), ["b-0", "a-0", "c-0", "d-0"]);
    }

    #[tokio::test]
    async fn pes_that_have_let_others_go_first_are_looked_at_when_the_pods_of_these_run_or_their_own_job_is_resized() {
        let server = Server::new();
        for (name, generation) in [("a", Some(0)), ("b", None)] {
            let mut job = Job::new(name, JobSpec::of(BundleReference::default()));
            job.metadata.namespace = Some("n".to_owned());
            job.status = Some(JobStatus { generation, ..JobStatus::default() });
            server.create(&job);
        }
        let mut mirrors = LateMirrors::of(&server);
        let submissions = Submissions::of(&mirrors.mirrors.jobs, &mirrors.mirrors.pods);
        let queue = Queue::new("test", BackOff::default(), Sharing::among(8, owner_of_child), &Metrics::new("test"));
        wake_those_who_waited(&submissions, &queue);
        let [own, other] = ["a", "b"].map(|job| Key::new("n", job));
        assert!(submissions.wait(&Key::new("n", "a-0"), "a") && submissions.wait(&Key::new("n", "x-0"), "x"));
        server.edit(&other, |job: &mut Job| job.status.get_or_insert_default().job_id = Some(0));
        mirrors.deliver_all();
        assert_eq!(taken(&queue), [""; 0]);
        queue.add(Key::new("n", "y-0"));
        server.edit(&own, |job: &mut Job| {
            job.status.get_or_insert_default().proposal = Some(ProposedPlan::default());
        });
        mirrors.deliver_all();
        assert_eq!(taken(&queue), ["a-0", "y-0"], "somebody waits for it");
        let started_at = Some(MicroTime(server.now()));
        server.edit(&other, |job: &mut Job| {
            let status = job.status.get_or_insert_default();
            let rollout = Rollout { added: 1, started_at, ..Rollout::default() };
            (status.generation, status.rollout) = (Some(0), Some(rollout));
        });
        mirrors.deliver_all();
        assert_eq!((taken(&queue), queue.remembered()), (Vec::new(), 1), "it is looked at later");
        queue.add_patient(Key::new("n", "y-0"));
        let mut pod = pod_of("b-0");
        pod.metadata.labels = Some(names::pe_labels("b", 0));
        server.create(&pod);
        mirrors.deliver_all();
        assert_eq!(taken(&queue), ["y-0"], "its pod does not run yet");
        queue.add_patient(Key::new("n", "y-0"));
        become_of(&server, "b-0", "Running");
        mirrors.deliver_all();
        assert_eq!(taken(&queue), ["y-0", "x-0"]);
    }

    #[test]
    fn a_text_wakes_the_pe_that_refers_to_it() {
        let server = Server::new();
        let config_map = streams_api::AadlConfigMap { name: "used".to_owned(), ..Default::default() };
        let spec = ProcessingElementSpec { job_name: "a".to_owned(), config_map, ..ProcessingElementSpec::default() };
        let mut pe = ProcessingElement::new("a-0", spec);
        pe.metadata.namespace = Some("n".to_owned());
        pe.metadata.labels = Some(names::pe_labels("a", 0));
        server.create(&pe);
        let mut mirrors = LateMirrors::of(&server);
        let queue = Queue::new("test", BackOff::default(), Sharing::among(8, owner_of_child), &Metrics::new("test"));
        wake(&mirrors.mirrors, &queue, times());
        taken(&queue);
        let text = |name: &str, pe: u64| ConfigMap {
            metadata: ObjectMeta {
                namespace: Some("n".to_owned()),
                name: Some(name.to_owned()),
                labels: Some(names::pe_labels("a", pe)),
                ..ObjectMeta::default()
            },
            ..ConfigMap::default()
        };
        // text and PE of a ConfigMap -> the PEs that are looked at when it comes, and when it goes
        let table: [(&str, u64, &[&str]); 3] = [("used", 0, &["a-0"]), ("next", 0, &[]), ("of-another", 1, &[])];
        for (name, pe, expected) in table {
            server.create(&text(name, pe));
            mirrors.deliver_all();
            assert_eq!(taken(&queue), expected, "{name} comes");
            server.remove::<ConfigMap>(&Key::new("n", name));
            mirrors.deliver_all();
            assert_eq!(taken(&queue), expected, "{name} goes");
        }
    }
}
