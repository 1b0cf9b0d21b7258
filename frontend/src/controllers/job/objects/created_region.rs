//! What a region was created as, as far as it still shows (rule job-25).
//!
//! A region is created, not applied: from then on its width is what users write. So nothing restores one that an
//! earlier attempt has created for another plan, by a write that had its effect late.
//!
//! Pure.

use streams_api::{ParallelRegion, names};

/// What a region was created as.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CreatedRegion {
    /// Its logical name, which nobody can change.
    name: String,
    /// Its width, as long as nobody has edited it or asked for another one.
    width: Option<u32>,
    /// Somebody has edited its width.
    is_edited: bool,
}

impl CreatedRegion {
    /// What this region was created as.
    pub(crate) fn of(region: &ParallelRegion) -> Self {
        let is_edited = region.metadata.generation.is_some_and(|generation| generation > 1);
        let mut annotations = region.metadata.annotations.iter();
        let is_asked_for = annotations.any(|annotations| annotations.contains_key(names::ANNOTATION_REQUESTED_WIDTHS));
        let width = (!is_edited && !is_asked_for).then_some(region.spec.width);
        Self { name: region.spec.name.clone(), width, is_edited }
    }

    /// Its name, if its width is one that somebody has written. Of one that was only asked for, by an annotation, it
    /// is that of the plan.
    pub(crate) fn edited(&self) -> Option<&str> {
        self.is_edited.then_some(self.name.as_str())
    }

    /// Whether a plan can have led to it in which the region has this name and width.
    pub(crate) fn fits(&self, name: &str, width: Option<u32>) -> bool {
        self.name == name && self.width.is_none_or(|created| width == Some(created))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use streams_api::ParallelRegionSpec;

    #[test]
    fn a_region_fits_that_has_the_width_of_the_plan_or_that_of_a_user() {
        // metadata.generation, whether it has a request -> whether it fits a plan with its width, and with another one
        let table = [(1, false, [true, false]), (2, false, [true, true]), (1, true, [true, true])];
        for (generation, has_request, expected) in table {
            let (job_name, name) = ("flow".to_owned(), "R".to_owned());
            let spec = ParallelRegionSpec { job_name, index: 0, name, width: 2 };
            let mut region = ParallelRegion::new("flow-0", spec);
            region.metadata.generation = Some(generation);
            let request = has_request.then(|| (names::ANNOTATION_REQUESTED_WIDTHS.to_owned(), String::new()));
            region.metadata.annotations = Some(request.into_iter().collect());
            let created = CreatedRegion::of(&region);
            assert_eq!([2, 3].map(|width| created.fits("R", Some(width))), expected, "{generation} {has_request}");
            assert!(!created.fits("S", Some(2)), "nobody can change its name");
            assert_eq!(created.edited(), (generation > 1).then_some("R"), "{generation} {has_request}");
        }
    }
}
