//! The Service leads to the leader, and to nobody else.

use super::{ConsistentRegionServiceReconciler, Led, Way};
use crate::controllers::endpoint_slices::COMPARE_AGAIN;
use crate::controllers::reconciler::reconcile;
use crate::controllers::tests::LateMirrors;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::core::Status;
use serde_json::json;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use streams_api::names;
use streams_kubernetes::Key;
use streams_kubernetes::metrics::Metrics;
use streams_kubernetes::queue::{BackOff, Outcome, Queue, Sharing};
use streams_kubernetes_fake::{Connection, Server, Verb};

const NAME: &str = "streams-flow-consistentregion-api";

fn key() -> Key {
    Key::new("n", NAME)
}

/// The Service as the job controller makes it, of this owner.
fn service(server: &Server, owner: &str) -> String {
    let service: Service = serde_json::from_value(json!({
        "metadata": {
            "name": NAME, "namespace": "n", "labels": {"app": "streams", "svc": "consistent-region-operator"},
            "ownerReferences": [
                {"apiVersion": "streams.ibm.com/v1", "kind": "Job", "name": owner, "uid": "u", "controller": true},
            ],
        },
        "spec": {"clusterIP": "None", "ports": [{"name": "sys-api", "port": 10000}]},
    }))
    .unwrap();
    server.create(&service).metadata.uid.unwrap()
}

/// A replica that begins to lead, with this address.
struct Leader {
    connection: Connection,
    late: LateMirrors,
    led: Led,
    queue: Queue<Key>,
    reconciler: ConsistentRegionServiceReconciler<Connection>,
}

impl Leader {
    fn at(server: &Server, address: Option<&str>) -> Self {
        let (late, connection) = (LateMirrors::of(server), server.connect());
        let address: Option<IpAddr> = address.map(|address| address.parse().unwrap());
        let queue = Queue::new("test", BackOff::default(), Sharing::none(), &Metrics::new("test"));
        let led = Led::among(&late.mirrors, queue.clone());
        let (cluster, mirrors) = (connection.clone(), late.mirrors.clone());
        let reconciler = ConsistentRegionServiceReconciler::new(cluster, mirrors, address, &led);
        Self { connection, late, led, queue, reconciler }
    }

    /// Reconciles; says how many writes that took.
    async fn writes(&mut self) -> usize {
        let before = self.connection.writes();
        reconcile(&self.reconciler, &key()).await.unwrap();
        self.late.deliver_all();
        self.connection.writes() - before
    }

    /// How the PEs of the job get there.
    fn way(&self) -> Way {
        self.led.of_job(&Key::new("n", "flow"))
    }
}

/// Addresses of both families, and who the slices go with.
fn listed(server: &Server) -> ([Vec<String>; 2], Vec<String>) {
    let slices =
        ["ipv4", "ipv6"].map(|family| server.get::<EndpointSlice>(&Key::new("n", &format!("{NAME}-{family}"))));
    let owners = slices.iter().flatten().flat_map(|slice| slice.metadata.owner_references.clone().unwrap_or_default());
    let owners = owners.map(|owner| owner.uid).collect();
    let addresses = slices.map(|slice| {
        slice.into_iter().flat_map(|slice| slice.endpoints).flat_map(|endpoint| endpoint.addresses).collect()
    });
    (addresses, owners)
}

#[tokio::test]
async fn it_leads_to_whoever_leads_now() {
    let server = Server::new();
    let uid = service(&server, "flow");
    let mut first = Leader::at(&server, Some("10.0.0.1"));
    assert_eq!((first.writes().await, first.writes().await), (1, 0));
    assert_eq!(listed(&server), ([vec!["10.0.0.1".to_owned()], vec![]], vec![uid.clone()]));
    let mut second = Leader::at(&server, Some("fd00::2"));
    assert_eq!(second.writes().await, 2, "another slice, and no address of the leader before");
    assert_eq!(listed(&server), ([vec![], vec!["fd00::2".to_owned()]], vec![uid]));
    // Somebody deletes it, which is noticed some time later.
    server.remove::<EndpointSlice>(&Key::new("n", &format!("{NAME}-ipv6")));
    assert_eq!(second.writes().await, 0);
    server.advance(COMPARE_AGAIN);
    assert_eq!(second.writes().await, 1);
    // It goes with the Service, and nothing is kept of it.
    server.remove::<Service>(&key());
    second.late.deliver_all();
    assert_eq!((second.writes().await, second.reconciler.compared.len()), (0, 0));
    // A write of its slices was answered after that.
    second.reconciler.compared.keep(&key(), "gone", server.now());
    assert_eq!((second.writes().await, second.reconciler.compared.len()), (0, 0));
}

#[tokio::test]
async fn slices_are_compared_at_once_when_pes_do_not_come() {
    let server = Server::new();
    service(&server, "flow");
    let mut leader = Leader::at(&server, Some("10.0.0.1"));
    let job = Key::new("n", "flow");
    leader.led.doubt(&job);
    assert_eq!((leader.way(), leader.queue.depth()), (Way::Elsewhere, 0), "they are written anyway");
    assert_eq!(leader.writes().await, 1);
    server.remove::<EndpointSlice>(&Key::new("n", &format!("{NAME}-ipv4")));
    assert_eq!(leader.writes().await, 0);
    leader.led.doubt(&job);
    assert_eq!((leader.way(), leader.queue.depth()), (Way::ByName, 1));
    assert_eq!((leader.writes().await, leader.writes().await), (1, 0));
    // There is no such Service.
    leader.led.doubt(&Key::new("n", "another"));
    assert_eq!(leader.queue.depth(), 1);
}

/// Anybody may give the label to gigabytes of them.
#[tokio::test]
async fn slices_of_others_with_the_label_of_the_service_are_not_read() {
    let server = Server::new();
    service(&server, "flow");
    for number in 0..1_000 {
        let labels = json!({"kubernetes.io/service-name": NAME});
        let metadata = json!({"name": format!("{NAME}-{number}"), "namespace": "n", "labels": labels});
        let slice = json!({"metadata": metadata, "addressType": "IPv4", "endpoints": []});
        server.create(&serde_json::from_value::<EndpointSlice>(slice).unwrap());
    }
    let lists = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&lists);
    server.inspect(move |call| {
        counted.fetch_add(usize::from(call.verb == Verb::List), Ordering::Relaxed);
    });
    let mut leader = Leader::at(&server, Some("10.0.0.1"));
    assert_eq!((leader.writes().await, leader.writes().await), (1, 0));
    assert_eq!(listed(&server).0, [vec!["10.0.0.1".to_owned()], vec![]]);
    assert_eq!(lists.load(Ordering::Relaxed), 0);
}

#[tokio::test]
async fn a_leader_without_an_address_leads_nobody_astray() {
    let server = Server::new();
    service(&server, "flow");
    Leader::at(&server, Some("10.0.0.1")).writes().await;
    Leader::at(&server, None).writes().await;
    assert_eq!(listed(&server).0, [Vec::<String>::new(), vec![]]);
}

#[tokio::test]
async fn what_a_job_has_left_behind_leads_to_the_leader_as_before() {
    let server = Server::new();
    service(&server, "flow");
    server.edit::<Service>(&key(), |service| {
        service.metadata.owner_references = None;
        let labels = service.metadata.labels.get_or_insert_default();
        labels.insert(names::LABEL_JOB.to_owned(), "flow".to_owned());
    });
    let mut leader = Leader::at(&server, Some("10.0.0.1"));
    assert_eq!((leader.writes().await, leader.writes().await), (1, 0));
    assert_eq!(listed(&server).0, [vec!["10.0.0.1".to_owned()], vec![]]);
}

#[tokio::test]
async fn what_is_of_no_job_of_the_name_is_left_alone() {
    let server = Server::new();
    service(&server, "another");
    let leader = Leader::at(&server, Some("10.0.0.1"));
    assert_eq!(reconcile(&leader.reconciler, &key()).await.unwrap(), Outcome::Done);
    assert_eq!(leader.connection.calls(), 0);
}

#[tokio::test]
async fn pes_are_led_here_once_the_slices_are_written_and_for_good_if_the_service_has_an_address() {
    // address of the Service -> how its PEs get there
    for (address, expected) in [("None", Way::ByName), ("", Way::ByName), ("10.96.0.7", Way::ByAddress)] {
        let server = Server::new();
        service(&server, "flow");
        server.edit::<Service>(&key(), |service| {
            service.spec.get_or_insert_default().cluster_ip = Some(address.to_owned());
        });
        let mut leader = Leader::at(&server, Some("10.0.0.1"));
        assert_eq!(leader.way(), Way::Elsewhere);
        server.refuse(|_| Some(Status::failure("no time", "ServiceUnavailable").with_code(503)));
        assert!(reconcile(&leader.reconciler, &key()).await.is_err());
        assert_eq!(leader.way(), Way::Elsewhere, "nothing is written");
        server.refuse(|_| None);
        leader.writes().await;
        assert_eq!(leader.way(), expected);
        // Nobody leads them to anybody, so there is nothing to wait for.
        server.remove::<Service>(&key());
        leader.late.deliver_all();
        assert_eq!(leader.way(), Way::ByName);
        service(&server, "flow");
        leader.late.deliver_all();
        assert_eq!(leader.way(), Way::Elsewhere, "another Service of the name");
    }
}
