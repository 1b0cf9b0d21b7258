//! What is said of exports and imports, once.

use super::{Limit, Said, Standing, StandingObservation, StandingReconciler, Stands};
use crate::broker::facts::Problem;
use crate::broker::testing::{costly_namespace, export, job};
use crate::broker::{Boards, UntilSettled};
use crate::controllers::reconciler::{Reconciler as _, reconcile};
use crate::controllers::tests::LateMirrors;
use futures::FutureExt as _;
use serde_json::json;
use streams_api::{Export, ExportSpec, ExportType, Import, ImportSpec, StreamProperty, condition};
use streams_broker::asked::Part;
use streams_broker::{NoRoom, Pe, Port, TooCostly, TooManyRoutes};
use streams_kubernetes::Key;
use streams_kubernetes::metrics::Metrics;
use streams_kubernetes::queue::{BackOff, Outcome, Queue, Sharing};
use streams_kubernetes_fake::{Connection, Server};

/// Reconciles twice: says how often something was written, and gives the object.
async fn reconciled<K: Stands>(mut object: K) -> (usize, K) {
    let server = Server::new();
    object.meta_mut().namespace = Some("n".to_owned());
    server.create(&object);
    let mut mirrors = LateMirrors::of(&server);
    let connection: Connection = server.connect();
    let boards = Boards::of(&mirrors.mirrors);
    let until_settled = UntilSettled::new(&boards, |_| ());
    let reconciler =
        StandingReconciler::<_, K>::new(connection.clone(), mirrors.mirrors.clone(), boards, until_settled);
    let key = Key::new("n", "a");
    for _ in 0..2 {
        reconcile(&reconciler, &key).await.unwrap();
        mirrors.deliver_all();
    }
    (connection.writes(), server.get(&key).unwrap())
}

async fn is_told_once<K: Stands>(object: K, expected: (&str, &str, &str)) {
    let (writes, mut object) = reconciled(object).await;
    assert_eq!(writes, 1);
    let (observed, conditions) = object.status();
    let (observed, conditions) = (*observed, conditions.clone());
    assert_eq!(observed, object.meta().generation);
    let said: Vec<_> = conditions.iter().map(|c| (&*c.type_, &*c.status, &*c.reason, &*c.message)).collect();
    let (status, reason, message) = expected;
    assert_eq!(said, [("Ready", status, reason, message)]);
}

#[tokio::test]
async fn what_is_there_to_say_is_said_once() {
    let of_nobody = ("False", "NotOfJob", "it belongs to no job that is there");
    is_told_once(Export::new("a", ExportSpec::default()), of_nobody).await;
    is_told_once(Import::new("a", ImportSpec::default()), of_nobody).await;
}

#[test]
fn who_is_alone_works_and_what_is_malformed_says_why() {
    let problem = Problem::Twice("n".to_owned());
    let limited = |limit| Standing::Limited { is_connected: true, limit };
    let out = Port { pe: Pe { job: "out".into(), id: 0 }, id: 1 };
    let too_many = limited(Limit::TooManyRoutes(TooManyRoutes { pe: out.pe.clone() }));
    let no_room = limited(Limit::NoRoom(NoRoom { port: out.clone(), part: Part::Filter, bytes: 70_000 }));
    let too_costly = limited(Limit::TooCostly(TooCostly { first: out, others: 3 }));
    let words = (
        "PE out-0 has more than 32768 connections that the broker makes, and cannot be told them",
        "the subscription costs too much to evaluate for the properties of out-0-1 and 3 more exports, and does not \
         match them",
        "the filter of out-0-1 takes 70000 bytes of memory, for which there is no room: all subscriptions, filters and \
         lists of streams of imports of the namespace have 33554432 together, and the smallest have it first",
    );
    // standing -> ready, reason, message
    let table = [
        (Standing::Connected, true, "Connected", ""),
        (Standing::Alone, true, "NoExports", ""),
        (Standing::Unknown, false, "NotOfJob", "it belongs to no job that is there"),
        (Standing::Malformed(problem), false, "Malformed", "there are two properties n"),
        (too_many, false, "TooManyRoutes", words.0),
        (too_costly, false, "TooCostly", words.1),
        (no_room, false, "NoRoom", words.2),
    ];
    for (standing, is_ready, reason, message) in table {
        let expected = Said { is_ready, reason, message: message.to_owned() };
        assert_eq!(Said::of(standing, "NoExports"), expected);
    }
}

#[tokio::test]
async fn what_is_being_deleted_is_left_alone() {
    let mut object = Export::new("a", ExportSpec::default());
    object.metadata.finalizers = Some(vec!["streams-test/lingers".to_owned()]);
    object.metadata.namespace = Some("n".to_owned());
    let server = Server::new();
    server.create(&object);
    server.delete::<Export>(&Key::new("n", "a"), &kube::api::DeleteParams::default());
    let mirrors = LateMirrors::of(&server);
    let connection = server.connect();
    let boards = Boards::of(&mirrors.mirrors);
    let until_settled = UntilSettled::new(&boards, |_| ());
    let reconciler =
        StandingReconciler::<_, Export>::new(connection.clone(), mirrors.mirrors.clone(), boards, until_settled);
    reconcile(&reconciler, &Key::new("n", "a")).await.unwrap();
    assert_eq!(connection.writes(), 0);
}

#[tokio::test]
async fn of_what_is_not_settled_nothing_is_read_or_said_until_it_is() {
    let server = Server::new();
    let mirrors = LateMirrors::of(&server).mirrors;
    let connection = server.connect();
    let boards = Boards::of(&mirrors);
    costly_namespace(&mirrors, "m", 20);
    let queue = Queue::new("test", BackOff::default(), Sharing::none(), &Metrics::new("test"));
    let until_settled = super::subscribe::<Export>(&mirrors, &boards, &queue);
    let reconciler =
        StandingReconciler::<_, Export>::new(connection.clone(), mirrors.clone(), boards.clone(), until_settled);
    let (export, gone) = (Key::new("m", "out-3-0"), Key::new("m", "out-4-0"));
    for key in [&export, &gone, &export] {
        let observed = reconciler.observe(key, &mut ()).await.unwrap();
        assert!(matches!(observed, Some(StandingObservation::Unsettled)));
        assert_eq!(reconcile(&reconciler, key).await.unwrap(), Outcome::Patiently(super::UNSETTLED));
    }
    assert_eq!(reconciler.until_settled.waiting(), 2);
    mirrors.exports.remove(&gone);
    assert_eq!(reconcile(&reconciler, &gone).await.unwrap(), Outcome::Done);
    assert_eq!((reconciler.until_settled.waiting(), connection.writes()), (1, 0));
    while !boards.is_settled("m") {
        boards.settle_a_slice();
    }
    assert_eq!(reconciler.until_settled.waiting(), 0);
    let observed = reconciler.observe(&export, &mut ()).await.unwrap();
    assert!(matches!(observed, Some(StandingObservation::Known { .. })));
}

/// The board has it as it was until its look, which nothing but the look tells of if the object goes from the board.
#[tokio::test]
async fn of_a_long_object_that_somebody_has_written_nothing_is_said_until_it_was_looked_at() {
    type Edit = fn(&mut Export);
    let properties: Vec<StreamProperty> = serde_json::from_value(json!([
        {"name": "a", "type": "rstring", "values": [format!("\"{}\"", "x".repeat(20_000))]},
    ]))
    .unwrap();
    // what somebody makes of it -> what is said of it then
    let table: [(&str, Edit, &str); 3] = [
        ("properties", |export| export.spec.stream.properties[0].name = "b".to_owned(), "NoSubscribers"),
        ("none", |export| export.spec.stream.properties[0].property_type = "int64".to_owned(), "Malformed"),
        ("nobody's", |export| export.metadata.owner_references = None, "NotOfJob"),
    ];
    for (what, edit, expected) in table {
        let server = Server::new();
        let mut object = export("out-0-0", "out", "u1", 1);
        object.spec.export_type = ExportType::ByProperties;
        object.spec.stream.properties.clone_from(&properties);
        server.create(&object);
        let mut mirrors = LateMirrors::of(&server);
        let connection: Connection = server.connect();
        let boards = Boards::of(&mirrors.mirrors);
        let queue = Queue::new("test", BackOff::default(), Sharing::none(), &Metrics::new("test"));
        let until_settled = super::subscribe::<Export>(&mirrors.mirrors, &boards, &queue);
        let reconciler = StandingReconciler::<_, Export>::new(
            connection.clone(),
            mirrors.mirrors.clone(),
            boards.clone(),
            until_settled,
        );
        mirrors.mirrors.jobs.insert(job("out", "u1", Some(1)));
        let key = Key::new("n", "out-0-0");
        queue.add(key.clone());
        let said = || {
            let status = server.get::<Export>(&key).unwrap().status.unwrap_or_default();
            condition::get(&status.conditions, condition::READY).map(|ready| ready.reason.clone()).unwrap_or_default()
        };
        let work = async |mirrors: &mut LateMirrors| {
            while let Some(Some(taken)) = queue.next().now_or_never() {
                reconcile(&reconciler, taken.key()).await.unwrap();
                mirrors.deliver_all();
            }
        };
        let rest = async |mirrors: &mut LateMirrors| {
            work(mirrors).await;
            while boards.settle_a_slice() {
                work(mirrors).await;
            }
        };
        rest(&mut mirrors).await;
        assert_eq!((said(), boards.is_settled("n")), ("NoSubscribers".to_owned(), true), "{what}");
        let before = connection.writes();
        server.edit::<Export>(&key, edit);
        mirrors.deliver_all();
        work(&mut mirrors).await;
        assert_eq!((connection.writes(), boards.is_settled("n")), (before, true), "{what}");
        rest(&mut mirrors).await;
        assert_eq!(said(), expected, "{what}");
    }
}

#[tokio::test]
async fn how_a_long_object_stands_is_found_out_beside_the_threads_that_serve() {
    let server = Server::new();
    let mirrors = LateMirrors::of(&server).mirrors;
    let boards = Boards::of(&mirrors);
    let until_settled = UntilSettled::new(&boards, |_| ());
    let reconciler =
        StandingReconciler::<_, Export>::new(server.connect(), mirrors.clone(), boards.clone(), until_settled);
    let key = Key::new("n", "a");
    let object = |words: usize| {
        let mut object = Export::new("a", ExportSpec::default());
        object.metadata.namespace = Some("n".to_owned());
        object.spec.application_name = "x".repeat(words);
        object
    };
    // Somebody looks at another long one of the namespace.
    let turn = reconciler.long_objects.hold("n").await;
    mirrors.exports.insert(object(1_000));
    assert!(reconciler.observe(&key, &mut ()).now_or_never().is_some(), "it takes no time");
    mirrors.exports.insert(object(100_000));
    let mut nothing = ();
    let mut look = Box::pin(reconciler.observe(&key, &mut nothing));
    assert!((&mut look).now_or_never().is_none(), "this thread serves others");
    drop(turn);
    assert!(matches!(look.await.unwrap(), Some(StandingObservation::Known { .. })));
}

#[tokio::test]
async fn what_is_said_of_a_long_object_is_put_into_it_beside_the_threads_that_serve() {
    let server = Server::new();
    let mut object = Export::new("a", ExportSpec::default());
    object.metadata.namespace = Some("n".to_owned());
    object.spec.application_name = "x".repeat(100_000);
    server.create(&object);
    let mirrors = LateMirrors::of(&server).mirrors;
    let boards = Boards::of(&mirrors);
    let until_settled = UntilSettled::new(&boards, |_| ());
    let connection = server.connect();
    let reconciler = StandingReconciler::<_, Export>::new(connection.clone(), mirrors, boards, until_settled);
    let key = Key::new("n", "a");
    let observed = reconciler.observe(&key, &mut ()).await.unwrap().unwrap();
    let decision = StandingReconciler::<Connection, Export>::decide(&observed);
    let turn = reconciler.long_objects.hold("n").await;
    let mut nothing = ();
    let mut act = Box::pin(reconciler.act(&key, &mut nothing, observed, decision));
    assert!((&mut act).now_or_never().is_none(), "this thread serves others");
    assert_eq!(connection.writes(), 0);
    drop(turn);
    act.await.unwrap();
    assert_eq!(connection.writes(), 1);
    assert_eq!(server.get::<Export>(&key).unwrap().spec, object.spec);
}
