//! What the controller remembers of PEs ends with them, whatever they were called (rule call-20); and what others
//! change of a PE replaces no pod (rule job-26).

use super::super::answers::Answers;
use super::super::counters::Counters;
use super::super::last_seen::LastSeen;
use super::super::observed::{ObservedPod, PeObservation};
use super::super::reconciler::{PeReconciler, UNKNOWN};
use crate::controllers::known_launches::KnownLaunches;
use crate::controllers::reconciler::reconcile;
use crate::controllers::resizing::RollOutTimes;
use crate::controllers::tests::LateMirrors;
use crate::mirrors::Mirrors;
use crate::settings::{JobSettings, PodSettings};
use crate::start_hash::Starts as _;
use futures::executor::block_on;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::ResourceExt;
use kube::api::DeleteParams;
use kube::core::ObjectMeta;
use streams_api::{
    AadlConfigMap, BundleReference, Job, JobSpec, JobStatus, ProcessingElement, ProcessingElementSpec, condition, names,
};
use streams_kubernetes::leadership::Term;
use streams_kubernetes::metrics::Metrics;
use streams_kubernetes::ownership::controlled_by;
use streams_kubernetes::queue::Outcome;
use streams_kubernetes::{Error, Key};
use streams_kubernetes_fake::{Connection, Server};

const NAMESPACE: &str = "n";

fn key(name: &str) -> Key {
    Key::new(NAMESPACE, name)
}

fn meta(name: &str) -> ObjectMeta {
    ObjectMeta { namespace: Some(NAMESPACE.to_owned()), name: Some(name.to_owned()), ..ObjectMeta::default() }
}

/// A PE of a job of this name, as the job controller creates it.
pub(super) fn create_pe(server: &Server, job_name: &str) -> Key {
    let mut job = Job::new(job_name, JobSpec::of(BundleReference::default()));
    job.metadata = meta(job_name);
    job.status = Some(JobStatus { generation: Some(0), ..JobStatus::default() });
    let job = server.create(&job);
    let text = format!("{job_name}-0-text");
    server.create(&ConfigMap {
        metadata: ObjectMeta { labels: Some(names::pe_labels(job_name, 0)), ..meta(&text) },
        ..ConfigMap::default()
    });
    let spec = ProcessingElementSpec {
        job_name: job_name.to_owned(),
        runtime_id: "r0".to_owned(),
        config_map: AadlConfigMap { name: text, compressed: false },
        restartable: true,
        ..ProcessingElementSpec::default()
    };
    let name = names::processing_element(job_name, 0);
    let hash = (names::ANNOTATION_START_HASH.to_owned(), spec.start_hash());
    let mut pe = ProcessingElement::new(&name, spec);
    pe.metadata = ObjectMeta {
        labels: Some(names::pe_labels(job_name, 0)),
        annotations: Some([hash].into()),
        owner_references: Some(vec![controlled_by(&job)]),
        ..meta(&name)
    };
    server.create(&pe);
    key(&name)
}

pub(super) struct PeProcess {
    reconciler: PeReconciler<Connection>,
    pub(super) mirrors: LateMirrors,
}

impl PeProcess {
    pub(super) fn start(server: &Server) -> Self {
        let metrics = Metrics::new("test");
        let mirrors = Mirrors::new(&metrics);
        let seen = LastSeen::of(&mirrors);
        let (settings, counters) = (PodSettings::default(), Counters::new(&metrics));
        let known_launches = KnownLaunches::of(&mirrors.processing_elements, Term::endless());
        let times = RollOutTimes::of(&JobSettings::default());
        let reconciler = PeReconciler::new(server.connect(), &mirrors, settings, times, counters, seen, known_launches);
        Self { reconciler, mirrors: LateMirrors::fill(server, mirrors) }
    }

    pub(super) fn reconcile(&self, pe: &Key) {
        self.try_reconcile(pe).unwrap();
    }

    pub(super) fn try_reconcile(&self, pe: &Key) -> Result<Outcome, Error> {
        block_on(reconcile(&self.reconciler, pe))
    }

    /// What is observed of a PE by the mirrors alone.
    pub(super) fn observed(&self, key: &Key) -> PeObservation {
        let pe = self.mirrors.mirrors.processing_elements.get(key).map(|pe| (*pe).clone());
        self.reconciler.observed(key, &Answers { pe, ..Answers::default() }).unwrap()
    }

    /// How many objects the largest page had that the API server was asked for.
    pub(super) fn largest_page(&self) -> usize {
        self.reconciler.cluster.largest_page()
    }

    /// The pods of an earlier PE of the name that the API server has.
    pub(super) fn predecessors(&self, key: &Key) -> Vec<ObservedPod> {
        let pe = self.mirrors.mirrors.processing_elements.get(key).unwrap();
        block_on(self.reconciler.predecessors(key, &pe)).unwrap()
    }

    fn remembers(&self) -> usize {
        let of_known = self.reconciler.remembered().into_iter().filter(|(what, _)| *what != UNKNOWN);
        of_known.map(|(_, count)| count).sum()
    }
}

#[test]
fn nothing_is_left_of_pes_that_are_gone_however_many_names_there_were() {
    let server = Server::new();
    let mut process = PeProcess::start(&server);
    let mut most = 0;
    for number in 0..100 {
        let pe = create_pe(&server, &format!("job{number}"));
        process.mirrors.deliver_all();
        process.reconcile(&pe);
        // A pod that is gone, and nobody saw how: that is remembered, too.
        let pods: Vec<Pod> = server.list();
        assert_eq!(pods.len(), 1);
        if number % 2 == 0 {
            server.remove::<Pod>(&Key::of(&pods[0]));
            process.reconcile(&pe);
        }
        most = most.max(process.remembers());
        let unlaunched = ProcessingElement { status: None, ..server.get(&pe).unwrap() };
        // The PE goes first, and its pod takes a while.
        server.delete::<ProcessingElement>(&pe, &DeleteParams::default());
        process.mirrors.processing_elements.deliver(usize::MAX);
        process.mirrors.pods.deliver(usize::MAX);
        for pod in server.list::<Pod>() {
            server
                .edit::<Pod>(&Key::of(&pod), |pod| drop(pod.annotations_mut().insert("a".to_owned(), "b".to_owned())));
            process.mirrors.pods.deliver(usize::MAX);
            server.remove::<Pod>(&Key::of(&pod));
        }
        server.remove::<Job>(&key(&format!("job{number}")));
        process.mirrors.deliver_all();
        // A write of it was answered after its departure was told.
        process.reconciler.known_launches.note_applied(&unlaunched);
        process.reconcile(&pe);
        assert_eq!(process.remembers(), 0, "{number}: {:?}", process.reconciler.remembered());
    }
    assert!((2..=4).contains(&most), "{most}");
    // Those that ended when their PEs had gone.
    let unknown = process.reconciler.remembered().into_iter().find(|(what, _)| *what == UNKNOWN);
    assert!(unknown.is_some_and(|(_, count)| (50..=100).contains(&count)), "{unknown:?}");
}

#[test]
fn a_change_by_others_replaces_no_pod_until_the_hash_fits_it() {
    let server = Server::new();
    let mut process = PeProcess::start(&server);
    let pe = create_pe(&server, "job");
    let settle = |process: &mut PeProcess| {
        for _ in 0..4 {
            process.mirrors.deliver_all();
            process.reconcile(&pe);
        }
        server.get::<ProcessingElement>(&pe).unwrap().status.unwrap()
    };
    assert_eq!(settle(&mut process).launch_count, 1);
    server.edit::<ProcessingElement>(&pe, |pe| pe.spec.runtime_id = "r1".to_owned());
    assert_eq!(settle(&mut process).launch_count, 1, "somebody changed it");
    // A pod that ends meanwhile waits, and says why.
    let pod = server.list::<Pod>().remove(0);
    server.edit::<Pod>(&Key::of(&pod), |pod| pod.status.get_or_insert_default().phase = Some("Failed".to_owned()));
    let status = settle(&mut process);
    let ready = condition::get(&status.conditions, condition::READY).unwrap();
    assert_eq!((status.launch_count, ready.reason.as_str()), (1, "ChangedByOthers"));
    // The job controller wants it.
    server.edit::<ProcessingElement>(&pe, |pe| {
        let hash = pe.spec.start_hash();
        pe.annotations_mut().insert(names::ANNOTATION_START_HASH.to_owned(), hash);
    });
    assert_eq!(settle(&mut process).launch_count, 2);
}
