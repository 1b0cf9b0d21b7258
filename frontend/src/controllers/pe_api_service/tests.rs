//! The Service comes with the first job of a namespace and goes with the last, and with its PEs.

use super::{PeApiServiceReconciler, key_of, subscribe};
use crate::controllers::endpoint_slices::COMPARE_AGAIN;
use crate::controllers::pe_api_names::PeApiNames;
use crate::controllers::reconciler::reconcile;
use crate::controllers::tests::LateMirrors;
use futures::FutureExt;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{DeleteParams, Preconditions};
use parking_lot::Mutex;
use serde_json::json;
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use streams_api::{BundleReference, Job, JobSpec, ProcessingElement, ProcessingElementSpec};
use streams_kubernetes::Key;
use streams_kubernetes::cluster::{Cluster, Manager};
use streams_kubernetes::metrics::Metrics;
use streams_kubernetes::ownership::controlled_by;
use streams_kubernetes::queue::{BackOff, Outcome, Queue, Sharing};
use streams_kubernetes_fake::{Connection, Server, Verb};
use tokio::sync::watch as latest;

struct Fixture {
    server: Server,
    connection: Connection,
    late: LateMirrors,
    addresses: latest::Sender<BTreeSet<IpAddr>>,
    reconciler: PeApiServiceReconciler<Connection>,
}

fn addresses(of: &[&str]) -> BTreeSet<IpAddr> {
    of.iter().map(|address| address.parse().unwrap()).collect()
}

fn key() -> Key {
    key_of(&Key::new("n", "flow"))
}

fn job() -> Job {
    let mut job = Job::new("flow", JobSpec::of(BundleReference::default()));
    job.metadata.namespace = Some("n".to_owned());
    job
}

impl Fixture {
    fn new(server: Server) -> Self {
        let late = LateMirrors::of(&server);
        let connection = server.connect();
        let (told, addresses) = latest::channel(addresses(&["10.0.0.1", "fd00::1"]));
        let reconciler = PeApiServiceReconciler::new(connection.clone(), late.mirrors.clone(), addresses);
        Self { server, connection, late, addresses: told, reconciler }
    }

    fn with_job() -> Self {
        let server = Server::new();
        server.create(&job());
        Self::new(server)
    }

    /// Reconciles; says how many writes that took.
    async fn writes(&mut self) -> usize {
        let before = self.connection.writes();
        reconcile(&self.reconciler, &key()).await.unwrap();
        self.late.deliver_all();
        self.connection.writes() - before
    }

    /// The addresses in the slices, of both families.
    fn listed(&self) -> [Vec<String>; 2] {
        ["streams-api-ipv4", "streams-api-ipv6"].map(|name| {
            let slice = self.server.get::<EndpointSlice>(&Key::new("n", name));
            slice.into_iter().flat_map(|slice| slice.endpoints).flat_map(|endpoint| endpoint.addresses).collect()
        })
    }
}

#[tokio::test]
async fn a_namespace_with_jobs_has_the_service_and_the_addresses_of_the_frontend() {
    let mut fixture = Fixture::with_job();
    assert_eq!(fixture.writes().await, 3);
    assert_eq!(fixture.writes().await, 0, "all is as it should");
    let service = fixture.server.get::<Service>(&key()).unwrap();
    let spec = serde_json::to_value(service.spec.unwrap()).unwrap();
    let expected = json!({
        "ports": [
            {"name": "api", "port": 10000, "protocol": "TCP"}, {"name": "repository", "port": 6379, "protocol": "TCP"},
        ],
        "internalTrafficPolicy": "Cluster", "sessionAffinity": "ClientIP", "type": "ClusterIP",
    });
    assert_eq!(spec, expected);
    assert_eq!(fixture.listed(), [["10.0.0.1"], ["fd00::1"]].map(|one| one.map(str::to_owned).to_vec()));
    fixture.addresses.send_replace(addresses(&["10.0.0.2", "10.0.0.3"]));
    assert_eq!(fixture.writes().await, 2);
    assert_eq!(fixture.listed(), [vec!["10.0.0.2".to_owned(), "10.0.0.3".to_owned()], Vec::new()]);
    // Somebody deletes it.
    fixture.server.remove::<Service>(&key());
    fixture.late.deliver_all();
    assert!(fixture.writes().await >= 1);
    assert!(fixture.server.get::<Service>(&key()).is_some());
    // Somebody deletes a slice, which is noticed some time later.
    fixture.server.remove::<EndpointSlice>(&Key::new("n", "streams-api-ipv4"));
    assert_eq!(fixture.writes().await, 0);
    fixture.server.advance(crate::controllers::endpoint_slices::COMPARE_AGAIN);
    assert_eq!(fixture.writes().await, 1);
    assert_eq!(fixture.listed()[0], ["10.0.0.2", "10.0.0.3"]);
    // The last job goes.
    fixture.server.remove::<Job>(&Key::new("n", "flow"));
    fixture.late.deliver_all();
    fixture.writes().await;
    assert!(fixture.server.get::<Service>(&key()).is_none());
    assert_eq!(fixture.listed(), [Vec::<String>::new(), Vec::new()]);
    assert_eq!(fixture.writes().await, 0);
    assert!(fixture.reconciler.written.lock().is_empty());
}

#[tokio::test]
async fn pes_that_their_job_has_left_behind_keep_the_service_until_they_are_gone() {
    // Whether the job leaves its PEs behind; else they go after it.
    for is_orphaned in [true, false] {
        let server = Server::new();
        let mut job = Job::new("flow", JobSpec::of(BundleReference::default()));
        job.metadata.namespace = Some("n".to_owned());
        let job = server.create(&job);
        let pes = ["flow-0", "flow-1"];
        for (id, name) in (0..).zip(pes) {
            let spec = ProcessingElementSpec { job_name: "flow".to_owned(), id, ..ProcessingElementSpec::default() };
            let mut pe = ProcessingElement::new(name, spec);
            pe.metadata.namespace = Some("n".to_owned());
            pe.metadata.owner_references = Some(vec![controlled_by(&job)]);
            server.create(&pe);
        }
        let mut fixture = Fixture::new(server);
        let queue = Queue::new("test", BackOff::default(), Sharing::none(), &Metrics::new("test"));
        subscribe(&fixture.late.mirrors, &queue);
        // What the controller does at whatever it is told of.
        let react = async |fixture: &mut Fixture| {
            fixture.late.deliver_all();
            let mut is_told = false;
            while let Some(taken) = queue.next().now_or_never().flatten() {
                assert_eq!(*taken.key(), key());
                is_told = true;
                fixture.writes().await;
                drop(taken);
            }
            is_told
        };
        assert!(react(&mut fixture).await);
        assert!(fixture.server.get::<Service>(&key()).is_some());
        if is_orphaned {
            for name in pes {
                fixture.server.edit::<ProcessingElement>(&Key::new("n", name), |pe| {
                    pe.metadata.owner_references = None;
                });
            }
        }
        fixture.server.remove::<Job>(&Key::new("n", "flow"));
        assert!(react(&mut fixture).await);
        assert!(fixture.server.get::<Service>(&key()).is_some(), "PEs are there");
        // Who has deleted it meanwhile finds it again.
        fixture.server.remove::<Service>(&key());
        react(&mut fixture).await;
        assert!(fixture.server.get::<Service>(&key()).is_some(), "PEs are there");
        for (name, is_there) in [("flow-0", true), ("flow-1", false)] {
            fixture.server.remove::<ProcessingElement>(&Key::new("n", name));
            assert!(react(&mut fixture).await, "{name}");
            assert_eq!(fixture.server.get::<Service>(&key()).is_some(), is_there, "{is_orphaned} {name}");
        }
        assert_eq!(fixture.listed(), [Vec::<String>::new(), Vec::new()]);
    }
}

/// Kubernetes would list pods beside the frontend, lead PEs to another host or to nobody, or others to the frontend.
#[tokio::test]
async fn what_others_add_to_its_selector_and_type_and_addresses_goes() {
    let spec = |fixture: &Fixture| fixture.server.get::<Service>(&key()).unwrap().spec;
    for change in [
        json!({"selector": {"app": "mine"}}),
        json!({"type": "ExternalName", "externalName": "example.com"}),
        json!({"externalIPs": ["192.0.2.1"]}),
        json!({"internalTrafficPolicy": "Local"}),
        json!({"ports": [{"name": "mine", "port": 80}]}),
    ] {
        let mut fixture = Fixture::with_job();
        fixture.writes().await;
        let before = spec(&fixture);
        let user = fixture.server.connect();
        let patch = json!({ "spec": change });
        user.merge::<Service>(Manager("user"), &key(), &patch).await.unwrap();
        fixture.late.deliver_all();
        fixture.writes().await;
        assert_eq!(spec(&fixture), before, "{change}");
        assert_eq!(fixture.writes().await, 0, "{change}");
    }
}

#[tokio::test]
async fn a_service_of_somebody_else_is_left_alone() {
    // Whether the mirror shows it.
    for label in ["mine", "streams"] {
        let mut fixture = Fixture::with_job();
        let service: Service = serde_json::from_value(json!({
            "metadata": {"name": "streams-api", "namespace": "n", "labels": {"app": label}},
            "spec": {"ports": [{"port": 80}]},
        }))
        .unwrap();
        fixture.server.create(&service);
        fixture.late.deliver_all();
        let outcome = reconcile(&fixture.reconciler, &key()).await.unwrap();
        assert_eq!((outcome, fixture.connection.writes()), (Outcome::Again(super::LOOK_AGAIN), 0), "{label}");
        let announced = format!("{:?}", fixture.server.announced());
        let note = "delete it, and make it again under another name";
        assert!(announced.contains("ServiceNameTaken") && announced.contains(note), "{announced}");
        assert_eq!(fixture.writes().await, 0, "{label}");
        // Nor is it deleted with the last job.
        fixture.server.remove::<Job>(&Key::new("n", "flow"));
        fixture.late.deliver_all();
        assert_eq!(fixture.writes().await, 0, "{label}");
        assert!(fixture.server.get::<Service>(&key()).is_some(), "{label}");
    }
}

#[tokio::test]
async fn jobs_are_told_that_somebody_else_has_the_service_and_when_that_is_over() {
    let mut fixture = Fixture::with_job();
    let jobs = Queue::new("test", BackOff::default(), Sharing::none(), &Metrics::new("test"));
    let names = PeApiNames::default();
    let (connection, mirrors) = (fixture.connection.clone(), fixture.late.mirrors.clone());
    let reconciler = PeApiServiceReconciler::new(connection, mirrors, fixture.addresses.subscribe());
    fixture.reconciler = reconciler.telling(names.clone(), jobs.clone());
    let flow = Key::new("n", "flow");
    let service: Service = serde_json::from_value(json!({
        "metadata": {"name": "streams-api", "namespace": "n", "labels": {"app": "mine"}},
        "spec": {"ports": [{"port": 80}]},
    }))
    .unwrap();
    fixture.server.create(&service);
    // whether somebody deletes it before the look -> whether it is somebody else's, whether jobs are woken
    for (goes, is_taken, is_woken) in
        [(false, true, true), (false, true, false), (true, false, true), (false, false, false)]
    {
        if goes {
            fixture.server.remove::<Service>(&key());
        }
        fixture.late.deliver_all();
        fixture.writes().await;
        assert_eq!(names.is_taken(&flow, !is_taken), is_taken);
        let woken = jobs.next().now_or_never().flatten().map(|woken| woken.key().clone());
        assert_eq!(woken, is_woken.then(|| flow.clone()), "{goes} {is_taken}");
    }
}

#[tokio::test]
async fn what_others_make_of_its_labels_is_restored_and_it_goes_with_the_last_job() {
    let labels = json!({"app": "streams", "svc": "instance-operator"});
    for change in
        [json!({"app": null}), json!({"app": "other"}), json!({"svc": null}), json!({"app": null, "svc": null})]
    {
        // Whether the last job goes before anybody has looked, and whether another replica leads by then, which has
        // written nothing.
        for (is_late, another_leads) in [(false, false), (true, false), (true, true)] {
            let mut fixture = Fixture::with_job();
            fixture.writes().await;
            let patch = json!({"metadata": {"labels": change}});
            fixture.server.connect().merge::<Service>(Manager("user"), &key(), &patch).await.unwrap();
            fixture.addresses.send_replace(addresses(&["10.0.0.2"]));
            fixture.late.deliver_all();
            if !is_late {
                fixture.writes().await;
                let service = fixture.server.get::<Service>(&key()).unwrap();
                assert_eq!(json!(service.metadata.labels), labels, "{change}");
                assert_eq!(fixture.listed(), [vec!["10.0.0.2".to_owned()], Vec::new()], "{change}");
                assert_eq!(fixture.writes().await, 0, "{change}");
                assert!(fixture.server.announced().is_empty(), "{change}");
            }
            if another_leads {
                let (_, receiver) = latest::channel(addresses(&["10.0.0.2"]));
                fixture.reconciler =
                    PeApiServiceReconciler::new(fixture.connection.clone(), fixture.late.mirrors.clone(), receiver);
            }
            fixture.server.remove::<Job>(&Key::new("n", "flow"));
            fixture.late.deliver_all();
            fixture.writes().await;
            let row = format!("{change} {is_late} {another_leads}");
            assert!(fixture.server.get::<Service>(&key()).is_none(), "{row}");
            assert_eq!(fixture.listed(), [Vec::<String>::new(), Vec::new()], "{row}");
            assert_eq!(fixture.writes().await, 0, "{row}");
        }
    }
}

/// Two writers that disagree would write in turn for ever.
#[tokio::test]
async fn with_somebody_who_changes_the_service_again_and_again_nobody_writes_in_turn_for_ever() {
    for change in [
        // The mirror does not show it any more.
        json!({"metadata": {"labels": {"app": null}}}),
        json!({"spec": {"selector": {"app": "mine"}}}),
        json!({"spec": {"type": "ExternalName", "externalName": "example.com"}}),
    ] {
        let mut fixture = Fixture::with_job();
        fixture.writes().await;
        let made = |fixture: &Fixture| {
            let service = fixture.server.get::<Service>(&key()).unwrap();
            (service.metadata.labels, service.spec)
        };
        let (before, user, mut restored) = (made(&fixture), fixture.server.connect(), 0);
        // Once in 20 s, for 10 min.
        for _ in 0..30 {
            user.merge::<Service>(Manager("user"), &key(), &change).await.unwrap();
            fixture.late.deliver_all();
            for seconds in [0, 20] {
                fixture.server.advance(Duration::from_secs(seconds));
                let is_spoilt = made(&fixture) != before;
                fixture.writes().await;
                restored += u32::from(is_spoilt && made(&fixture) == before);
            }
        }
        assert!((5..=7).contains(&restored), "{restored}: three times at once, then after 1, 2 and 4 min: {change}");
        let announced = fixture.server.announced();
        let told: Vec<_> = announced.iter().map(|announced| &*announced.notice.reason).collect();
        assert_eq!(told, ["Contended"], "{change}");
        // Replicas of the frontend come and go meanwhile.
        user.merge::<Service>(Manager("user"), &key(), &change).await.unwrap();
        fixture.late.deliver_all();
        fixture.addresses.send_replace(addresses(&["10.0.0.2"]));
        let outcome = reconcile(&fixture.reconciler, &key()).await.unwrap();
        let Outcome::Again(pause) = outcome else { panic!("{outcome:?}: {change}") };
        assert!(made(&fixture) != before && pause <= Duration::from_secs(600), "{pause:?}: {change}");
        assert_eq!(fixture.listed(), [vec!["10.0.0.2".to_owned()], Vec::new()], "{change}");
        fixture.server.advance(pause);
        fixture.writes().await;
        assert_eq!(made(&fixture), before, "{change}");
        fixture.server.remove::<Job>(&Key::new("n", "flow"));
        fixture.late.deliver_all();
        fixture.writes().await;
        assert_eq!((fixture.writes().await, fixture.reconciler.restored.len()), (0, 0), "{change}");
    }
}

/// It shows for a while what was restored already.
#[tokio::test]
async fn a_mirror_that_is_behind_makes_nobody_insist() {
    // The Service is made, and its mirror does not show it; somebody changes it, and it shows what was changed.
    let fixture = Fixture::with_job();
    for is_changed in [false, true] {
        if is_changed {
            let patch = json!({"spec": {"selector": {"app": "mine"}}});
            fixture.server.connect().merge::<Service>(Manager("user"), &key(), &patch).await.unwrap();
        }
        let late = LateMirrors::of(&fixture.server);
        let (_, receiver) = latest::channel(addresses(&["10.0.0.1"]));
        let reconciler = PeApiServiceReconciler::new(fixture.connection.clone(), late.mirrors.clone(), receiver);
        for _ in 0..5 {
            let outcome = reconcile(&reconciler, &key()).await.unwrap();
            assert!(matches!(outcome, Outcome::Patiently(_)), "{is_changed} {outcome:?}");
        }
    }
    assert!(fixture.server.announced().is_empty());
}

#[tokio::test]
async fn a_crash_between_two_writes_is_made_up_for() {
    for survived in 0..3 {
        let mut fixture = Fixture::with_job();
        let calls = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
        fixture.server.refuse({
            let calls = calls.clone();
            move |call| {
                let count = calls.fetch_add(usize::from(call.verb.is_write()), std::sync::atomic::Ordering::SeqCst);
                (call.verb.is_write() && count == survived)
                    .then(|| kube::core::Status::failure("no", "InternalError").with_code(500))
            }
        });
        let failed = reconcile(&fixture.reconciler, &key()).await;
        assert!(failed.is_err(), "{survived}");
        // The next leader remembers nothing.
        fixture.late.deliver_all();
        let (_, receiver) = latest::channel(addresses(&["10.0.0.1", "fd00::1"]));
        fixture.reconciler =
            PeApiServiceReconciler::new(fixture.connection.clone(), fixture.late.mirrors.clone(), receiver);
        fixture.writes().await;
        assert!(fixture.server.get::<Service>(&key()).is_some(), "{survived}");
        assert_eq!(fixture.listed().map(|listed| listed.len()), [1, 1], "{survived}");
    }
}

/// The deletion of a slice is not answered, the next job comes, and then the slice goes.
#[tokio::test]
async fn a_deletion_that_has_its_effect_late_takes_no_slice_for_long() {
    // Whether the slice was made again meanwhile.
    for is_another in [false, true] {
        let mut fixture = Fixture::with_job();
        fixture.writes().await;
        let listed = fixture.listed();
        fixture.server.remove::<Job>(&Key::new("n", "flow"));
        fixture.late.deliver_all();
        let sent = Arc::new(Mutex::new(None));
        fixture.server.refuse({
            let sent = Arc::clone(&sent);
            move |call| {
                let is_late = call.verb == Verb::Delete && call.kind == "EndpointSlice";
                is_late.then(|| {
                    *sent.lock() = Some((call.key.clone(), call.body.clone()));
                    kube::core::Status::failure("no answer", "Timeout").with_code(504)
                })
            }
        });
        assert!(reconcile(&fixture.reconciler, &key()).await.is_err());
        fixture.server.refuse(|_| None);
        let (slice, parameters) = sent.lock().take().expect("it was to be deleted");
        if is_another {
            fixture.server.remove::<EndpointSlice>(&slice);
        }
        fixture.server.create(&job());
        fixture.late.deliver_all();
        fixture.writes().await;
        assert_eq!(fixture.listed(), listed);
        let uid = parameters.unwrap()["preconditions"]["uid"].as_str().map(str::to_owned);
        let preconditions = uid.map(|uid| Preconditions { uid: Some(uid), resource_version: None });
        let parameters = DeleteParams { preconditions, ..DeleteParams::background() };
        fixture.server.delete::<EndpointSlice>(&slice, &parameters);
        assert_eq!(fixture.listed() == listed, is_another);
        let outcome = reconcile(&fixture.reconciler, &key()).await.unwrap();
        assert_eq!(outcome, Outcome::Patiently(Duration::from_secs(120)));
        fixture.server.advance(Duration::from_secs(120));
        fixture.writes().await;
        assert_eq!(fixture.listed(), listed);
        let outcome = reconcile(&fixture.reconciler, &key()).await.unwrap();
        assert_eq!(outcome, Outcome::Patiently(COMPARE_AGAIN));
    }
}

/// The Service cannot be deleted, its slices are gone, and the next job comes.
#[tokio::test]
async fn a_service_that_could_be_deleted_only_in_part_is_whole_when_it_is_needed_again() {
    let mut fixture = Fixture::with_job();
    fixture.writes().await;
    let listed = fixture.listed();
    fixture.server.remove::<Job>(&Key::new("n", "flow"));
    fixture.late.deliver_all();
    fixture.server.refuse(|call| {
        let is_refused = call.verb == Verb::Delete && call.kind == "Service";
        is_refused.then(|| kube::core::Status::failure("no", "InternalError").with_code(500))
    });
    assert!(reconcile(&fixture.reconciler, &key()).await.is_err());
    assert_eq!(fixture.listed(), [Vec::<String>::new(), Vec::new()]);
    fixture.server.refuse(|_| None);
    fixture.server.create(&job());
    fixture.late.deliver_all();
    fixture.writes().await;
    assert_eq!(fixture.listed(), listed);
}

/// Somebody may have taken the labels of a slice, or have one of its name.
#[tokio::test]
async fn slices_go_that_the_frontend_has_made_and_no_others_of_their_names() {
    let slice = |family: &str| Key::new("n", &format!("streams-api-{family}"));
    // Whether the Service goes, else its addresses of the other family.
    for goes in [true, false] {
        let mut fixture = Fixture::with_job();
        fixture.addresses.send_replace(addresses(&["10.0.0.1"]));
        let others = json!({
            "metadata": {"name": "streams-api-ipv6", "namespace": "n", "labels": {"app": "mine"}},
            "addressType": "IPv6", "endpoints": [],
        });
        fixture.server.create(&serde_json::from_value::<EndpointSlice>(others).unwrap());
        fixture.writes().await;
        assert!(fixture.server.get::<EndpointSlice>(&slice("ipv4")).is_some(), "{goes}");
        let unlabelled = |slice: &mut EndpointSlice| slice.metadata.labels = None;
        assert!(fixture.server.edit(&slice("ipv4"), unlabelled));
        if goes {
            fixture.server.remove::<Job>(&Key::new("n", "flow"));
            fixture.late.deliver_all();
        } else {
            fixture.addresses.send_replace(BTreeSet::new());
            fixture.server.advance(COMPARE_AGAIN);
        }
        fixture.writes().await;
        let left = ["ipv4", "ipv6"].map(|family| fixture.server.get::<EndpointSlice>(&slice(family)).is_some());
        assert_eq!(left, [false, true], "{goes}");
    }
}
