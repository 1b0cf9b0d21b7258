//! What mirrors leave out of objects is somebody's: no write takes it away (rule call-6).

use super::simulation::{JOB, JobSimulation, NAMESPACE, key};
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::ResourceExt;
use streams_api::{Job, ParallelRegion, ProcessingElement, names};
use streams_kubernetes::Key;
use streams_kubernetes::cluster::Object;

const LABEL: &str = "example.com/team";
const FINALIZER: &str = "example.com/audit";

/// Somebody gives these to an object, and so many labels beside them that no mirror keeps all that.
fn give<K: Object>(simulation: &JobSimulation, key: &Key, owner: &OwnerReference) {
    let is_changed = simulation.server.edit(key, |object: &mut K| {
        object.labels_mut().insert(LABEL.to_owned(), "a".to_owned());
        object.labels_mut().extend((0..1_000).map(|number| (format!("example.com/{number}"), String::new())));
        object.finalizers_mut().push(FINALIZER.to_owned());
        object.owner_references_mut().push(owner.clone());
    });
    assert!(is_changed, "{key}");
}

/// Whether an object has all of these.
fn has<K: Object>(simulation: &JobSimulation, key: &Key, owner: &OwnerReference) -> bool {
    simulation.server.get::<K>(key).is_some_and(|object| {
        let is_there = object.labels().contains_key(LABEL) && object.owner_references().contains(owner);
        is_there && object.finalizers().iter().any(|finalizer| finalizer == FINALIZER)
    })
}

#[test]
fn labels_finalizers_and_owners_that_nobody_reads_stay_whatever_is_written() {
    let mut simulation = JobSimulation::running();
    let mut map = ConfigMap::default();
    (map.metadata.name, map.metadata.namespace) = (Some("others".to_owned()), Some(NAMESPACE.to_owned()));
    let map = simulation.server.create(&map);
    let owner = OwnerReference {
        api_version: "v1".to_owned(),
        kind: "ConfigMap".to_owned(),
        name: map.name_any(),
        uid: map.uid().unwrap(),
        ..OwnerReference::default()
    };
    let region = key().sibling(&names::parallel_region(JOB, 0));
    let pes: Vec<Key> =
        simulation.pes().into_keys().map(|id| key().sibling(&names::processing_element(JOB, id))).collect();
    give::<Job>(&simulation, &key(), &owner);
    give::<ParallelRegion>(&simulation, &region, &owner);
    pes.iter().for_each(|pe| give::<ProcessingElement>(&simulation, pe, &owner));
    // Statuses, PEs that restart, and a region that is restored.
    simulation.resize(0, 4);
    simulation.settle();
    simulation.server.edit(&region, |region: &mut ParallelRegion| drop(region.labels_mut().remove(names::LABEL_APP)));
    simulation.settle();
    simulation.check_at_rest();
    assert_eq!(simulation.status().generation, Some(1));
    let restored = simulation.server.get::<ParallelRegion>(&region).unwrap();
    assert_eq!(restored.labels().get(names::LABEL_APP).map(String::as_str), Some(names::APP));
    assert!(has::<Job>(&simulation, &key(), &owner) && has::<ParallelRegion>(&simulation, &region, &owner));
    assert!(pes.iter().all(|pe| has::<ProcessingElement>(&simulation, pe, &owner)));
}
