//! Who is told what, and when.

use super::{Again, KnownRoutes, RoutesDecision, RoutesObservation, RoutesReconciler, Told};
use crate::broker::answers::{Message, Says};
use crate::broker::testing::costly_namespace;
use crate::broker::{Boards, UntilSettled};
use crate::controllers::messenger::Messenger;
use crate::controllers::reconciler::{Reconciler, reconcile};
use crate::controllers::tests::LateMirrors;
use k8s_openapi::api::core::v1::Pod;
use parking_lot::Mutex;
use serde_json::json;
use std::collections::BTreeSet;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use streams_api::{Export, Import, Job, ProcessingElement, names};
use streams_broker::{Pe, TooManyRoutes};
use streams_kubernetes::Key;
use streams_kubernetes::metrics::Metrics;
use streams_kubernetes::queue::{BackOff, Outcome, Queue, Sharing};
use streams_kubernetes_fake::Server;
use tokio::time::Instant;

const EMPTY: &str = r#"{"exports":{},"imports":{}}"#;

fn addresses(of: &[&str]) -> BTreeSet<IpAddr> {
    of.iter().map(|address| address.parse().unwrap()).collect()
}

#[test]
fn who_does_not_know_is_told() {
    use RoutesDecision::{Fill, Nothing, Settle, Tell};
    let now = Instant::now();
    let told = |of: &[&str], version| Some(Told { addresses: addresses(of), version, again: None });
    let message = || Message { text: "routes".to_owned(), version: 1, says: Says::All };
    let tell = |addresses| Tell(message(), addresses, None);
    let (a, b, both) =
        (|| addresses(&["10.0.0.1"]), || addresses(&["10.0.0.2"]), || addresses(&["10.0.0.1", "10.0.0.2"]));
    // on board, addresses, told -> decision; the version is 1
    let table = [
        (true, a(), None, tell(a())),
        (true, a(), told(&["10.0.0.1"], 1), Nothing),
        (true, a(), told(&["10.0.0.1"], 2), tell(a())),
        (true, both(), told(&["10.0.0.1"], 1), tell(b())),
        (true, both(), told(&["10.0.0.1"], 2), tell(both())),
        (true, addresses(&[]), told(&["10.0.0.1"], 2), Nothing),
        (false, a(), None, Nothing),
        (false, a(), told(&["10.0.0.1"], 2), tell(a())),
    ];
    let decide = <RoutesReconciler<Recorder> as Reconciler>::decide;
    for (is_on_board, addresses, told, expected) in table {
        let said = format!("{is_on_board} {addresses:?} {told:?}");
        let known = KnownRoutes { is_on_board, addresses, is_any_unknown: false, message: Ok(message()), told, now };
        assert_eq!(decide(&RoutesObservation::Known(known)), expected, "{said}");
    }
    let too_many = TooManyRoutes { pe: Pe { job: "out".into(), id: 0 } };
    let (message, told) = (Err(too_many), told(&["10.0.0.1"], 2));
    let known = KnownRoutes { is_on_board: true, addresses: a(), is_any_unknown: false, message, told, now };
    assert_eq!(decide(&RoutesObservation::Known(known)), Nothing);
    assert_eq!(decide(&RoutesObservation::Unfilled), Fill);
    assert_eq!(decide(&RoutesObservation::Unsettled), Settle);
}

#[test]
fn who_was_told_to_ask_is_told_again() {
    let (begun, second) = (Instant::now(), Duration::from_secs(1));
    let decide = |says, told: Option<&Told>, now| {
        let message = Ok(Message { text: "deadbeef".to_owned(), version: 1, says });
        let (addresses, told) = (addresses(&["10.0.0.1"]), told.cloned());
        let known = KnownRoutes { is_on_board: true, addresses, is_any_unknown: false, message, told, now };
        <RoutesReconciler<Recorder> as Reconciler>::decide(&RoutesObservation::Known(known))
    };
    // what is said first, what after that -> seconds after which it is told
    let table: [(Says, Says, &[u64]); 5] = [
        (Says::All, Says::All, &[0]),
        (Says::Ask, Says::Ask, &[0, 2, 10]),
        (Says::AskTwice, Says::AskTwice, &[0, 1, 3, 10, 11, 71]),
        // It has asked here meanwhile.
        (Says::AskTwice, Says::All, &[0, 1]),
        (Says::Ask, Says::All, &[0, 2]),
    ];
    for (first, later, expected) in table {
        let (mut told, mut at): (Option<Told>, Vec<u64>) = (None, Vec::new());
        for after in 0..200 {
            let (says, now) = (if after == 0 { first } else { later }, begun + second * after);
            match decide(says, told.as_ref(), now) {
                RoutesDecision::Tell(message, addresses, again) => {
                    told = Some(Told { addresses, version: message.version, again });
                    at.push(u64::from(after));
                }
                RoutesDecision::Wait(wait) => assert!(wait >= second, "{wait:?}"),
                decision => assert_eq!(decision, RoutesDecision::Nothing),
            }
        }
        assert_eq!(at, expected, "{first:?} {later:?}");
    }
    // Other routes are told at once.
    let told = Told { addresses: addresses(&["10.0.0.1"]), version: 7, again: Again::after_first(Says::Ask, begun) };
    assert!(matches!(decide(Says::All, Some(&told), begun), RoutesDecision::Tell(_, _, None)));
}

/// Remembers what is sent; fails while it is told to.
#[derive(Clone, Default)]
struct Recorder {
    sent: Arc<Mutex<Vec<(String, String)>>>,
    fails: Arc<Mutex<bool>>,
}

impl Messenger for Recorder {
    async fn send(&self, address: IpAddr, message: &str) -> io::Result<()> {
        if *self.fails.lock() {
            return Err(io::Error::other("down"));
        }
        self.sent.lock().push((address.to_string(), message.to_owned()));
        Ok(())
    }
}

impl Recorder {
    fn sent(&self) -> Vec<(String, String)> {
        std::mem::take(&mut *self.sent.lock())
    }
}

/// A job that exports at its PE 0, and one that imports at its PE 0.
fn two_jobs(server: &Server) {
    one_job(server, "out", 1, "10.0.0.1");
    one_job(server, "in", 2, "10.0.0.2");
}

fn one_job(server: &Server, name: &str, id: u64, address: &str) {
    let job: Job = serde_json::from_value(json!({
        "apiVersion": "streams.ibm.com/v1", "kind": "Job", "metadata": {"name": name, "namespace": "n"},
        "spec": {"bundle": {"file": "a.sab"}}, "status": {"jobId": id, "generation": 0},
    }))
    .unwrap();
    let uid = server.create(&job).metadata.uid;
    let meta = |object: &str| {
        json!({"name": object, "namespace": "n", "labels": {"app": "streams"}, "ownerReferences": [{
            "apiVersion": "streams.ibm.com/v1", "kind": "Job", "name": name, "uid": uid, "controller": true,
        }]})
    };
    let pe: ProcessingElement = serde_json::from_value(json!({
        "apiVersion": "streams.ibm.com/v1", "kind": "ProcessingElement", "metadata": meta(&format!("{name}-0")),
        "spec": {
            "jobName": name, "jobId": id, "id": 0, "generation": 1, "contentId": "c", "runtimeId": "r",
            "configMap": {"name": "m"}, "operatorCount": 1, "operators": ["o"], "image": "i", "inputPorts": [0],
            "exportedPorts": [0],
        },
    }))
    .unwrap();
    let uid = server.create(&pe).metadata.uid;
    let pod: Pod = serde_json::from_value(json!({
        "metadata": {
            "name": format!("{name}-0-x"), "namespace": "n", "labels": {"app": "streams"}, "ownerReferences": [{
                "apiVersion": "streams.ibm.com/v1", "kind": "ProcessingElement", "name": format!("{name}-0"),
                "uid": uid, "controller": true,
            }],
        },
        "spec": {"containers": [{"name": "pe"}]}, "status": {"phase": "Running", "podIP": address},
    }))
    .unwrap();
    server.create(&pod);
    let common = json!({
        "jobName": name, "jobId": id, "applicationName": "A", "applicationScope": "Default", "peId": 0, "portId": 0,
    });
    let mut spec = common.as_object().unwrap().clone();
    let named = json!({
        "applicationName": "", "applicationScope": "Default", "streamName": "s", "importOperName": "In",
    });
    if name == "out" {
        spec.insert("type".to_owned(), json!("ByName"));
        spec.insert("stream".to_owned(), json!({"exportOperName": "Out", "name": "s"}));
        let export: Export = serde_json::from_value(json!({
            "apiVersion": "streams.ibm.com/v1", "kind": "Export", "metadata": meta("out-0-0"), "spec": spec,
        }))
        .unwrap();
        server.create(&export);
    } else {
        spec.insert("portIndex".to_owned(), json!(0));
        spec.insert("streams".to_owned(), json!({"nameBasedImports": {"0": named}}));
        let import: Import = serde_json::from_value(json!({
            "apiVersion": "streams.ibm.com/v1", "kind": "Import", "metadata": meta("in-0-0"), "spec": spec,
        }))
        .unwrap();
        server.create(&import);
    }
}

#[tokio::test]
async fn pes_are_told_once_and_of_the_end_and_nothing_is_kept() {
    let server = Server::new();
    two_jobs(&server);
    // Anybody can give a pod the labels of a PE.
    let labelled: Pod = serde_json::from_value(json!({
        "metadata": {"name": "labelled", "namespace": "n", "labels": {
            "app": "streams", "streams.ibm.com/job": "out", "streams.ibm.com/pe": "0",
        }},
        "spec": {"containers": [{"name": "pe"}]}, "status": {"phase": "Running", "podIP": "10.0.0.3"},
    }))
    .unwrap();
    server.create(&labelled);
    let mut late = LateMirrors::of(&server);
    assert_eq!(late.mirrors.pods_of_pe(&Key::new("n", "out-0")).len(), 2);
    let boards = Boards::of(&late.mirrors);
    let recorder = Recorder::default();
    let until_settled = UntilSettled::new(&boards, |_| ());
    let reconciler = RoutesReconciler::new(late.mirrors.clone(), boards, until_settled, recorder.clone());
    let (from, to) = (Key::new("n", "out-0"), Key::new("n", "in-0"));
    *recorder.fails.lock() = true;
    assert_eq!(reconcile(&reconciler, &from).await.unwrap(), Outcome::Again(super::AGAIN));
    *recorder.fails.lock() = false;
    for _ in 0..2 {
        for pe in [&from, &to] {
            assert_eq!(reconcile(&reconciler, pe).await.unwrap(), Outcome::Done);
        }
    }
    let sent = recorder.sent();
    let to_whom: Vec<&str> = sent.iter().map(|(address, _)| address.as_str()).collect();
    assert_eq!(to_whom, ["10.0.0.1", "10.0.0.2"]);
    assert!(
        sent[0].1.contains(r#""entries":{"in-0-0":"#) && sent[1].1.contains(r#""entries":{"out-0-0":"#),
        "{sent:?}"
    );
    // The importing job goes: the exporter is told that it has no routes any more.
    server.remove::<Job>(&Key::new("n", "in"));
    late.deliver_all();
    reconcile(&reconciler, &from).await.unwrap();
    assert_eq!(recorder.sent(), [("10.0.0.1".to_owned(), EMPTY.to_owned())]);
    for pe in [&from, &to] {
        server.remove::<ProcessingElement>(pe);
    }
    late.deliver_all();
    for pe in [&from, &to] {
        reconcile(&reconciler, pe).await.unwrap();
    }
    assert!(reconciler.told.lock().is_empty());
}

#[tokio::test]
async fn a_pod_is_told_when_it_is_known_which_text_it_runs() {
    let server = Server::new();
    two_jobs(&server);
    let (from, pod) = (Key::new("n", "out-0"), Key::new("n", "out-0-x"));
    server.edit::<Pod>(&pod, |pod| {
        let annotations = pod.metadata.annotations.get_or_insert_default();
        annotations.insert(names::ANNOTATION_RUNTIME_ID.to_owned(), "newer".to_owned());
    });
    let mut late = LateMirrors::of(&server);
    let boards = Boards::of(&late.mirrors);
    let (recorder, until_settled) = (Recorder::default(), UntilSettled::new(&boards, |_| ()));
    let reconciler = RoutesReconciler::new(late.mirrors.clone(), boards, until_settled, recorder.clone());
    assert_eq!(reconcile(&reconciler, &from).await.unwrap(), Outcome::Again(super::UNKNOWN));
    assert_eq!(recorder.sent(), []);
    server.edit::<ProcessingElement>(&from, |pe| pe.spec.runtime_id = "newer".to_owned());
    late.deliver_all();
    assert_eq!(reconcile(&reconciler, &from).await.unwrap(), Outcome::Done);
    assert_eq!(recorder.sent().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_pe_is_told_of_a_job_that_was_made_again_when_it_was_answered_without_it() {
    // whether its pod asks this replica -> after how many seconds it is sent something, and whether that has the route
    let table: [(bool, &[(u64, bool)]); 2] =
        [(true, &[(1, true)]), (false, &[(1, false), (2, false), (7, false), (1, false), (60, true)])];
    for (asks, expected) in table {
        let server = Server::new();
        two_jobs(&server);
        let mut late = LateMirrors::of(&server);
        let boards = Boards::of(&late.mirrors);
        let (recorder, until_settled) = (Recorder::default(), UntilSettled::new(&boards, |_| ()));
        let reconciler = RoutesReconciler::new(late.mirrors.clone(), boards.clone(), until_settled, recorder.clone());
        let from = Key::new("n", "out-0");
        reconcile(&reconciler, &from).await.unwrap();
        let sent = recorder.sent();
        assert!(sent[0].1.contains(r#""jobId":2"#), "{sent:?}");
        server.remove::<Job>(&Key::new("n", "in"));
        server.remove::<Import>(&Key::new("n", "in-0-0"));
        server.remove::<ProcessingElement>(&Key::new("n", "in-0"));
        server.remove::<Pod>(&Key::new("n", "in-0-x"));
        server.advance(Duration::from_secs(1));
        one_job(&server, "in", 3, "10.0.0.4");
        late.deliver_all();
        // What was to tell it that the first one has gone is lost, or was never sent.
        assert_eq!(reconcile(&reconciler, &from).await.unwrap(), Outcome::Again(Duration::from_secs(1)));
        assert_eq!(recorder.sent(), [("10.0.0.1".to_owned(), "deadbeef".to_owned())]);
        let pe = Pe { job: "out".into(), id: 0 };
        let told = boards.to_tell("n", &pe, None).unwrap();
        assert_eq!(told.matched.routes().document(), EMPTY);
        if asks {
            boards.has_answered("n", &pe, told.left_out);
        }
        for (after, is_there) in expected {
            tokio::time::advance(Duration::from_secs(*after)).await;
            reconcile(&reconciler, &from).await.unwrap();
            let sent = recorder.sent();
            assert_eq!((sent.len(), sent[0].1.contains(r#""jobId":3"#)), (1, *is_there), "{after} {sent:?}");
        }
        assert_eq!(reconcile(&reconciler, &from).await.unwrap(), Outcome::Done);
        assert_eq!(recorder.sent(), []);
    }
}

/// Both ends are made again: a pod may come long before it asks, and may ask any replica.
#[tokio::test]
async fn a_pod_that_is_younger_than_a_job_made_again_is_told_of_it_as_soon_as_it_has_an_address() {
    let server = Server::new();
    two_jobs(&server);
    let mut late = LateMirrors::of(&server);
    let boards = Boards::of(&late.mirrors);
    let (recorder, until_settled) = (Recorder::default(), UntilSettled::new(&boards, |_| ()));
    let reconciler = RoutesReconciler::new(late.mirrors.clone(), boards, until_settled, recorder.clone());
    for name in ["out", "in"] {
        server.remove::<Job>(&Key::new("n", name));
        server.remove::<ProcessingElement>(&Key::new("n", &format!("{name}-0")));
        server.remove::<Pod>(&Key::new("n", &format!("{name}-0-x")));
    }
    server.remove::<Import>(&Key::new("n", "in-0-0"));
    server.remove::<Export>(&Key::new("n", "out-0-0"));
    server.advance(Duration::from_secs(1));
    one_job(&server, "out", 3, "10.0.0.3");
    one_job(&server, "in", 4, "10.0.0.4");
    late.deliver_all();
    assert_eq!(reconcile(&reconciler, &Key::new("n", "out-0")).await.unwrap(), Outcome::Done);
    let sent = recorder.sent();
    assert!(matches!(&*sent, [(to, text)] if to == "10.0.0.3" && text.contains(r#""jobId":4"#)), "{sent:?}");
}

#[tokio::test]
async fn a_pe_whose_board_is_not_settled_is_looked_at_again_when_it_is() {
    let server = Server::new();
    let element: ProcessingElement = serde_json::from_value(json!({
        "apiVersion": "streams.ibm.com/v1", "kind": "ProcessingElement",
        "metadata": {"name": "out-0", "namespace": "m"},
        "spec": {
            "jobName": "out", "jobId": 1, "id": 0, "generation": 1, "contentId": "c", "runtimeId": "r",
            "configMap": {"name": "m"}, "operatorCount": 1, "operators": ["o"], "image": "i",
        },
    }))
    .unwrap();
    server.create(&element);
    let mut late = LateMirrors::of(&server);
    let boards = Boards::of(&late.mirrors);
    costly_namespace(&late.mirrors, "m", 20);
    let queue = Queue::new("test", BackOff::default(), Sharing::none(), &Metrics::new("test"));
    let until_settled = super::subscribe(&late.mirrors, &boards, &queue);
    let pe = Key::new("m", "out-0");
    let reconciler = RoutesReconciler::new(late.mirrors.clone(), boards.clone(), until_settled, Recorder::default());
    let begun = queue.depth();
    for _ in 0..2 {
        assert_eq!(reconcile(&reconciler, &pe).await.unwrap(), Outcome::Again(super::UNSETTLED));
    }
    while !boards.is_settled("m") {
        assert_eq!((queue.depth(), reconciler.until_settled.waiting()), (begun, 1));
        boards.settle_a_slice();
    }
    assert_eq!(reconciler.until_settled.waiting(), 0);
    assert_eq!(reconcile(&reconciler, &pe).await.unwrap(), Outcome::Done);
    // Nothing is kept of a PE that goes before.
    late.mirrors.jobs.remove(&Key::new("m", "out"));
    costly_namespace(&late.mirrors, "m", 20);
    assert_eq!(reconcile(&reconciler, &pe).await.unwrap(), Outcome::Again(super::UNSETTLED));
    server.remove::<ProcessingElement>(&pe);
    late.deliver_all();
    assert_eq!(reconcile(&reconciler, &pe).await.unwrap(), Outcome::Done);
    assert_eq!(reconciler.until_settled.waiting(), 0);
}
