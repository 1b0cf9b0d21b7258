//! Copies that somebody makes of objects of a job, which keep its owner reference and labels (rule job-30).

use super::simulation::{JOB, JobSimulation, NAMESPACE, key};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt;
use kube::core::ObjectMeta;
use streams_api::{Job, ParallelRegion, names};
use streams_kubernetes::Key;
use streams_kubernetes::ownership::controlled_by;

#[test]
fn a_copy_of_a_region_wants_no_width() {
    // Names that come before that of the region, and after it, and one with the same number.
    for name in ["a-copy", "job-0b", "job-00"] {
        let mut simulation = JobSimulation::running();
        let mut copy = ParallelRegion { status: None, ..simulation.region(0).unwrap() };
        copy.metadata.name = Some(name.to_owned());
        (copy.metadata.resource_version, copy.metadata.uid, copy.spec.width) = (None, None, 5);
        simulation.server.create(&copy);
        simulation.settle();
        assert_eq!(simulation.status().generation, Some(0), "{name}");
        simulation.server.remove::<ParallelRegion>(&Key::new(NAMESPACE, name));
        simulation.settle();
        simulation.check_at_rest();
    }
}

/// Somebody makes a ConfigMap of the job, with the label of this part. Returns its uid.
fn make(simulation: &JobSimulation, name: &str, part: &str) -> Option<String> {
    let mut labels = names::job_labels(JOB);
    labels.insert(names::LABEL_PART.to_owned(), part.to_owned());
    let metadata = ObjectMeta {
        namespace: Some(NAMESPACE.to_owned()),
        name: Some(name.to_owned()),
        labels: Some(labels),
        owner_references: simulation.server.get::<Job>(&key()).map(|job| vec![controlled_by(&job)]),
        ..ObjectMeta::default()
    };
    simulation.server.create(&ConfigMap { metadata, ..ConfigMap::default() }).uid()
}

#[test]
fn a_copy_of_a_text_or_of_a_chunk_is_left_alone() {
    let copies = [
        ("a-copy", names::PART_AADL),
        ("job-3-0123456789-copy", names::PART_AADL),
        ("job-03-0123456789", names::PART_AADL),
        ("job-adl-0123456789-00", names::PART_ADL),
        ("job-plan-0-0123456789-0-copy", names::PART_PLAN),
    ];
    // A submission does not wait for them to go, and no clean-up deletes them.
    for is_submitted in [false, true] {
        let mut simulation = if is_submitted { JobSimulation::running() } else { JobSimulation::new() };
        let made = copies.map(|(name, part)| make(&simulation, name, part));
        simulation.settle();
        simulation.resize(0, 3);
        simulation.settle();
        assert_eq!(simulation.status().generation, Some(1), "{is_submitted}");
        let uid = |name: &str| simulation.server.get::<ConfigMap>(&Key::new(NAMESPACE, name)).and_then(|map| map.uid());
        assert_eq!(copies.map(|(name, _)| uid(name)), made, "{is_submitted}");
        copies.iter().for_each(|(name, _)| simulation.server.remove::<ConfigMap>(&Key::new(NAMESPACE, name)));
        simulation.settle();
        simulation.check_at_rest();
    }
}
