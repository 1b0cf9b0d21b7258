//! The status of a pool, and that it is written whichever call fails.

use super::*;
use crate::controllers::reconciler::reconcile;
use crate::controllers::tests::LateMirrors;
use futures::FutureExt as _;
use futures::executor::block_on;
use k8s_openapi::jiff::SignedDuration;
use kube::api::DeleteParams;
use parking_lot::Mutex;
use streams_api::HostPoolSpec;
use streams_kubernetes_fake::{Fault, Server};

fn pool(size: Option<u64>, hosts: &[&str]) -> HostPool {
    let hosts = hosts.iter().map(|host| (*host).to_owned()).collect();
    let mut pool = HostPool::new("flow-0", HostPoolSpec { size, hosts, ..HostPoolSpec::default() });
    pool.metadata.namespace = Some("n".to_owned());
    pool
}

#[test]
fn a_size_without_hosts_is_a_warning() {
    // size, hosts -> warning
    let table: [(_, &[&str], _); 3] = [(None, &[], false), (Some(2), &[], true), (Some(2), &["a"], false)];
    for (size, hosts, expected) in table {
        let status = status(&pool(size, hosts), Timestamp::UNIX_EPOCH);
        assert_eq!(condition::is_true(&status.conditions, condition::WARNING), expected);
    }
}

#[test]
fn a_pool_says_so_once_whichever_call_fails() {
    let key = Key::new("n", "flow-0");
    for (after, has_effect, is_last) in
        [(0, false, false), (0, true, false), (0, false, true), (0, true, true), (9, false, false)]
    {
        let server = Server::new();
        server.create(&pool(Some(2), &[]));
        let start = || {
            let connection = server.connect();
            let mirrors = LateMirrors::of(&server);
            (HostPoolReconciler { cluster: connection.clone(), mirrors: mirrors.mirrors.clone() }, mirrors, connection)
        };
        let (mut reconciler, mut mirrors, mut connection) = start();
        connection.fail(Fault { after, of_writes: false, has_effect, is_last });
        loop {
            let result = block_on(reconcile(&reconciler, &key));
            let heard = mirrors.deliver_all();
            if connection.is_broken() {
                (reconciler, mirrors, connection) = start();
            } else if result.is_ok() && heard == 0 {
                break;
            }
        }
        let status = server.get::<HostPool>(&key).unwrap().status.unwrap();
        assert!(condition::is_true(&status.conditions, condition::WARNING));
        assert_eq!(status.observed_generation, Some(1));
        assert_eq!(server.version(), 2, "created and described, each once: {after} {has_effect} {is_last}");
        let (reconciler, _, connection) = start();
        assert_eq!(block_on(reconcile(&reconciler, &key)).unwrap(), Outcome::Done);
        assert_eq!(connection.writes(), 0, "it is described already");
    }
}

#[test]
fn in_a_crowd_a_pool_without_a_warning_says_nothing_for_a_while() {
    // size, seconds since it was created, in a crowd -> seconds until it is looked at again; nothing: it has spoken
    let table = [
        (None, 0, false, None),
        (None, 0, true, Some(10)),
        (None, 175, true, Some(5)),
        (None, 180, true, None),
        // The clock of the API server is ahead.
        (None, -3_600, true, None),
        (Some(2), 0, true, None),
    ];
    for (size, age, is_crowded, again) in table {
        let server = Server::new();
        server.create(&pool(size, &[]));
        let key = Key::new("n", "flow-0");
        let created = Time(server.now() - SignedDuration::from_secs(age));
        server.edit::<HostPool>(&key, |pool| pool.metadata.creation_timestamp = Some(created));
        let connection = server.connect();
        connection.crowd(is_crowded);
        let mut mirrors = LateMirrors::of(&server);
        let reconciler = HostPoolReconciler { cluster: connection.clone(), mirrors: mirrors.mirrors.clone() };
        let outcome = block_on(reconcile(&reconciler, &key)).unwrap();
        let case = format!("{size:?} {age} {is_crowded}");
        assert_eq!(outcome, again.map_or(Outcome::Done, |left| Outcome::Again(Duration::from_secs(left))), "{case}");
        assert_eq!(connection.writes(), usize::from(again.is_none()), "{case}");
        // The warning goes while there is a crowd.
        server.edit::<HostPool>(&key, |pool| pool.spec.hosts = vec!["a".to_owned()]);
        mirrors.deliver_all();
        block_on(reconcile(&reconciler, &key)).unwrap();
        let status = server.get::<HostPool>(&key).unwrap().status;
        assert!(status.is_none_or(|status| status.conditions.is_empty()), "{case}");
    }
}

#[test]
fn what_a_pool_says_goes_after_all_other_calls() {
    let server = Server::new();
    server.create(&pool(Some(2), &[]));
    let connection = server.connect();
    let priorities = Arc::<Mutex<Vec<Option<Priority>>>>::default();
    let noted = Arc::clone(&priorities);
    connection.meanwhile(move |_| {
        noted.lock().push(Priority::around());
        std::future::ready(()).boxed()
    });
    let reconciler = HostPoolReconciler { cluster: connection, mirrors: LateMirrors::of(&server).mirrors };
    block_on(reconcile(&reconciler, &Key::new("n", "flow-0"))).unwrap();
    assert_eq!(*priorities.lock(), [Some(Priority::Telling)]);
}

#[test]
fn a_status_that_somebody_else_wrote_meanwhile_is_not_overwritten() {
    let server = Server::new();
    server.create(&pool(Some(2), &[]));
    let mut mirrors = LateMirrors::of(&server);
    let reconciler = HostPoolReconciler { cluster: server.connect(), mirrors: mirrors.mirrors.clone() };
    let key = Key::new("n", "flow-0");
    server.edit::<HostPool>(&key, |pool| pool.spec.hosts = vec!["a".to_owned()]);
    assert_eq!(block_on(reconcile(&reconciler, &key)).unwrap(), Outcome::Conflict);
    assert_eq!(server.get::<HostPool>(&key).unwrap().status, None);
    mirrors.deliver_all();
    assert_eq!(block_on(reconcile(&reconciler, &key)).unwrap(), Outcome::Done);
    let status = server.get::<HostPool>(&key).unwrap().status.unwrap();
    assert_eq!((status.observed_generation, status.conditions.len()), (Some(2), 0));
}

#[test]
fn nothing_is_said_of_a_pool_that_goes() {
    let server = Server::new();
    let mut pool = pool(Some(2), &[]);
    pool.metadata.finalizers = Some(vec!["x.test/stays".to_owned()]);
    server.create(&pool);
    let key = Key::new("n", "flow-0");
    server.delete::<HostPool>(&key, &DeleteParams::default());
    let connection = server.connect();
    let reconciler = HostPoolReconciler { cluster: connection.clone(), mirrors: LateMirrors::of(&server).mirrors };
    assert_eq!(block_on(reconcile(&reconciler, &key)).unwrap(), Outcome::Done);
    assert_eq!(connection.writes(), 0);
}
