//! What holds up some changes of a PE, and what goes on meanwhile.

use super::objects::{by_properties, element, importing, jobs, region, subscribed};
use super::{Cluster, Exchange, NEIGHBOUR, SUBSCRIPTIONS, properties, registration, request, send};
use crate::long_objects::LongObjects;
use crate::pe_api::CALLS_OF_A_KIND;
use crate::status_changes::{Basis, Changer, StatusChanges};
use axum::body::Body;
use axum::http::Method;
use futures::future::join_all;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;
use streams_api::ProcessingElement;
use streams_kubernetes::Key;
use streams_kubernetes::cluster::Manager;
use streams_kubernetes::gate::{Gate, Limits, Priority};
use streams_kubernetes::metrics::Metrics;
use streams_kubernetes_fake::{Connection, Server};
use tokio::time::sleep;
use tower::ServiceExt as _;

/// The kinds of objects that a PE changes.
const KINDS: [&str; 4] = ["Export", "Import", "ParallelRegion", "ProcessingElement"];

/// PE 1 has something of each kind to change.
fn with_all_kinds(server: &Server) {
    by_properties(server);
    importing(server, "srcjob-1-10", "srcjob", 1, 10, &subscribed("some == 1"));
    region(server);
}

/// PE 1 changes something of this kind.
async fn changes(cluster: &mut Cluster, kind: &str, status: u16) {
    let (export, import) =
        (format!("{SUBSCRIPTIONS}/export/10/properties"), format!("{SUBSCRIPTIONS}/import/10/streams"));
    let others = properties(&[("prop0", "a")]);
    let streams = r#"<importedStreams><propertyBasedImport subscription="some == 2"/></importedStreams>"#;
    let exchange = match kind {
        "Export" => send(Method::PATCH, &export, &others),
        "Import" => send(Method::PUT, &import, streams),
        "ParallelRegion" => send(Method::PUT, "/api/state/job/srcjob/pr/R/width", "3"),
        _ => registration(1),
    };
    cluster.expect(exchange, status, "").await;
}

/// The gate of the calls for a kind.
fn gate() -> Gate {
    Gate::new(Limits::of(CALLS_OF_A_KIND), &Metrics::new("test"))
}

/// A connection whose calls pass this gate, beside those of others. No write of the kind is answered, and each of these
/// namespaces has as many of them at the same time as a namespace may have.
fn hanging_at(gate: Gate, server: &Server, hanging: &'static str, namespaces: &'static [&'static str]) -> Connection {
    let connection = server.connect();
    connection.meanwhile(move |call| {
        let hangs = call.kind == hanging && call.verb.is_write();
        let (gate, own) = (gate.clone(), Arc::clone(&call.key.namespace));
        Box::pin(async move {
            if hangs {
                let of_each = namespaces.iter().flat_map(|namespace| [namespace; 2]);
                let writes: Vec<_> = of_each.map(|namespace| gate.call(namespace, pending::<()>())).collect();
                join_all(writes).await;
            }
            gate.call("others", async {}).await;
            gate.call(&own, async {}).await;
        })
    });
    connection
}

#[tokio::test(start_paused = true)]
async fn a_kind_whose_calls_hang_holds_up_no_other_at_the_gate_either() {
    // Namespaces of which they hang.
    const TABLE: [&[&str]; 2] = [&["n"], &["n", "o", "p", "q"]];
    for namespaces in TABLE {
        for hanging in KINDS {
            let server = Server::new();
            with_all_kinds(&server);
            let (connection, calls_at) = (server.connect(), server.clone());
            let of_a_kind = || hanging_at(gate(), &calls_at, hanging, namespaces);
            let mut cluster = Cluster::with_calls(server, &connection, of_a_kind);
            // The operator asks again.
            for _ in 0..3 {
                changes(&mut cluster, hanging, 503).await;
            }
            for kind in KINDS.into_iter().filter(|kind| *kind != hanging) {
                changes(&mut cluster, kind, 204).await;
            }
        }
    }
}

/// Forty PEs of a job ask for a name that another one has, each four times at once. A call takes 30 ms.
#[tokio::test(start_paused = true)]
async fn at_the_gate_a_pe_waits_for_one_call_of_each_other_one_of_its_job() {
    let crowd = 10..50_u8;
    let address = |pe: u8| format!("10.0.1.{pe}");
    let mut cluster = Cluster::with(|server| {
        jobs(server);
        crowd.clone().for_each(|pe| element(server, "srcjob", pe.into(), &address(pe)));
    });
    let gate = gate();
    cluster.connection.meanwhile(move |call| {
        let (gate, namespace) = (gate.clone(), Arc::clone(&call.key.namespace));
        Box::pin(async move { gate.call(&namespace, sleep(Duration::from_millis(30))).await })
    });
    cluster.expect(registration(0), 204, "").await;
    let router = cluster.router.clone();
    let ask = |pe: u8| {
        let (from, body) = (address(pe), "{\"port\": 80}");
        let path = format!("/api/endpoints/job/srcjob/pe/{pe}/endpoint/test");
        let exchange = Exchange { from: &from, ..send(Method::PUT, &path, body) };
        router.clone().oneshot(request(&exchange, Body::from(body)))
    };
    let asking = join_all(crowd.flat_map(|pe| [pe; 4]).map(ask).collect::<Vec<_>>());
    let neighbour = async {
        sleep(Duration::from_millis(10)).await;
        let path = "/api/endpoints/job/srcjob/pe/0/endpoint/test";
        let other_port = Exchange { from: NEIGHBOUR, ..send(Method::PUT, path, "{\"port\": 81}") };
        cluster.expect(other_port, 204, "").await;
    };
    let (answers, ()) = tokio::join!(asking, neighbour);
    let refused = answers.into_iter().filter(|answer| answer.as_ref().unwrap().status().as_u16() == 400).count();
    assert!(refused >= 40, "{refused} have had their turns");
}

/// Such as what the PE has told of its connections, which waits behind what the controllers do.
#[tokio::test(start_paused = true)]
async fn while_a_pe_waits_for_somebody_else_to_write_it_it_changes_exports_imports_and_widths() {
    let mut cluster = Cluster::with(with_all_kinds);
    let others = StatusChanges {
        cluster: cluster.connection.clone(),
        manager: Manager("test"),
        basis: Basis::Mirror,
        priority: Priority::Telling,
        turns: cluster.api.turns(),
        long_objects: LongObjects::new(),
    };
    let held = others.turn::<ProcessingElement>(&Key::new("n", "srcjob-1"), &Changer::default()).await;
    let asking: Vec<_> = (0..8)
        .map(|_| {
            let exchange = registration(1);
            tokio::spawn(cluster.router.clone().oneshot(request(&exchange, Body::from(exchange.body))))
        })
        .collect();
    sleep(Duration::from_millis(10)).await;
    for kind in ["Export", "Import", "ParallelRegion"] {
        changes(&mut cluster, kind, 204).await;
    }
    assert!(asking.iter().all(|asking| !asking.is_finished()));
    for answer in asking {
        assert_eq!(answer.await.unwrap().unwrap().status().as_u16(), 503);
    }
    assert_eq!(cluster.connection.writes(), 3);
    drop(held);
    changes(&mut cluster, "ProcessingElement", 204).await;
}
