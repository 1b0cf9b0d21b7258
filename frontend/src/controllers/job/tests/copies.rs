//! Copies that somebody makes of objects of a job, which keep its owner reference and labels (rule job-30).

use super::simulation::{JobSimulation, NAMESPACE};
use streams_api::ParallelRegion;
use streams_kubernetes::Key;

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
