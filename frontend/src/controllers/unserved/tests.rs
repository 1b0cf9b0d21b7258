//! What is not served says so, once.

use super::{Unserved, UnservedReconciler};
use crate::controllers::reconciler::reconcile;
use crate::controllers::tests::LateMirrors;
use streams_api::{ConsistentRegion, ConsistentRegionSpec, Export, ExportSpec, Import, ImportSpec};
use streams_kubernetes::Key;
use streams_kubernetes_fake::{Connection, Server};

/// Reconciles twice: says how often something was written, and gives the object.
async fn reconciled<K: Unserved>(mut object: K) -> (usize, K) {
    let server = Server::new();
    object.meta_mut().namespace = Some("n".to_owned());
    server.create(&object);
    let mut mirrors = LateMirrors::of(&server);
    let connection: Connection = server.connect();
    let reconciler = UnservedReconciler::<_, K>::new(connection.clone(), mirrors.mirrors.clone());
    let key = Key::new("n", "a");
    for _ in 0..2 {
        reconcile(&reconciler, &key).await.unwrap();
        mirrors.deliver_all();
    }
    (connection.writes(), server.get(&key).unwrap())
}

async fn is_told_once<K: Unserved>(object: K) {
    let (writes, mut object) = reconciled(object).await;
    assert_eq!(writes, 1);
    let (observed, conditions) = object.status();
    let (observed, conditions) = (*observed, conditions.clone());
    assert_eq!(observed, object.meta().generation);
    let said: Vec<_> = conditions.iter().map(|c| (&*c.type_, &*c.status, &*c.reason, &*c.message)).collect();
    assert_eq!(said, [("Ready", "False", "NotServed", K::MESSAGE)]);
}

#[tokio::test]
async fn what_nothing_acts_on_says_so_once() {
    is_told_once(Export::new("a", ExportSpec::default())).await;
    is_told_once(Import::new("a", ImportSpec::default())).await;
    is_told_once(ConsistentRegion::new("a", ConsistentRegionSpec::default())).await;
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
    let reconciler = UnservedReconciler::<_, Export>::new(connection.clone(), mirrors.mirrors.clone());
    reconcile(&reconciler, &Key::new("n", "a")).await.unwrap();
    assert_eq!(connection.writes(), 0);
}
