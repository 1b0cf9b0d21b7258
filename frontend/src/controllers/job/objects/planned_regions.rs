//! Which objects stand for regions of a generation (rule job-25). Pure.

use crate::controllers::job::generation::Generation;
use std::collections::BTreeMap;
use streams_api::ParallelRegion;

/// Those of these objects that stand for regions of this generation. Another one was made for another plan, by a write
/// that had its effect late: it goes, and until then nobody wants anything by it, though it may have the name of a
/// region.
pub(crate) fn planned_regions<'a>(
    generation: &Generation,
    objects: impl Iterator<Item = &'a ParallelRegion>,
) -> Vec<&'a ParallelRegion> {
    let regions = generation.plan.parallel_regions.iter();
    let planned: BTreeMap<u64, &str> = regions.map(|region| (region.index, region.name.as_str())).collect();
    objects.filter(|object| planned.get(&object.spec.index) == Some(&object.spec.name.as_str())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controllers::job::generation::{GenerationDetails, Target};
    use streams_api::ParallelRegionSpec;
    use streams_proto::fusion::v1::{Compilation, ParallelRegion as PlannedRegion, Plan};

    #[test]
    fn an_object_stands_for_the_region_of_its_index_and_name() {
        let region = PlannedRegion { index: 4, name: "A.R".to_owned(), width: 2, ..PlannedRegion::default() };
        let plan = Plan { parallel_regions: vec![region], ..Plan::default() };
        let target = Target::Submission { inputs: String::new() };
        let details = GenerationDetails::default();
        let generation = Generation::following(None, target, Compilation::default(), plan, details);
        let object = |(index, name): (u64, &str)| {
            let (job_name, name) = ("flow".to_owned(), name.to_owned());
            ParallelRegion::new("flow", ParallelRegionSpec { job_name, index, name, width: 2 })
        };
        // Those with the name of the region come before and after it.
        let objects = [(3, "A.R"), (4, "A.R"), (4, "A.S"), (5, "A.R"), (6, "A.S")].map(object);
        let found = planned_regions(&generation, objects.iter()).into_iter();
        let found: Vec<_> = found.map(|object| (object.spec.index, object.spec.name.as_str())).collect();
        assert_eq!(found, [(4, "A.R")]);
    }
}
