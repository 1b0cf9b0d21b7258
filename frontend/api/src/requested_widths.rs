//! A request for widths of several regions at once, kept as an annotation of one of them (rule elasticity-5).
//!
//! Each region is an object of its own, and the API server writes one object at a time. So that a request for several
//! regions leads to one generation of the job, it is written whole before any width: as an annotation of the job's
//! region with the smallest index, its [`home`], by compare-and-swap. From then on the width of the request is what is
//! wanted of each region that it names, as long as the region is as it was when the request was written (uid and
//! `metadata.generation`). Whoever edits `spec.width` afterwards, with kubectl, as an autoscaler or through the
//! elasticity API, is newer and wins.
//!
//! The job controller then takes the request over: it writes the widths into the regions, one after another. That
//! changes nothing about what is wanted, so it does not matter when it happens or where it is cut off. A request that
//! was taken over stays where it is and is about nothing any more; the next one replaces it, and waits until that may
//! be done.
//!
//! One watch shows all regions in the order in which they were written: nobody sees a request without the regions as
//! they were before, or widths that were taken over without the request.

use super::parallel_region::WIDTH_MAX;
use super::{ParallelRegion, names};
use serde::{Deserialize, Serialize};

/// What was asked for, in one step, of several regions of a job.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RequestedWidths {
    /// The widths, of each region at most one.
    pub widths: Vec<RequestedWidth>,
    /// W3C trace context of the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace_parent: Option<String>,
}

/// The width that a request wants of a region.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RequestedWidth {
    /// Logical name of the region's operator.
    pub region: String,
    /// The width.
    pub width: u32,
    /// uid of the region's object.
    pub uid: String,
    /// Its `metadata.generation` when the request was made.
    pub generation: i64,
}

impl RequestedWidth {
    /// The width `width` of this region, as it is now.
    pub fn of(region: &ParallelRegion, width: u32) -> Self {
        Self {
            region: region.spec.name.clone(),
            width,
            uid: region.metadata.uid.clone().unwrap_or_default(),
            generation: region.metadata.generation.unwrap_or_default(),
        }
    }

    /// Whether this is still to be taken over by the region with this uid, `metadata.generation` and `spec.width`.
    pub fn is_pending(&self, uid: &str, generation: i64, width: u32) -> bool {
        self.uid == uid && self.generation == generation && self.width != width
    }
}

impl RequestedWidths {
    /// The newest request for these regions of one job. What is no request is as if it were not there.
    pub fn read<'a>(regions: impl IntoIterator<Item = &'a ParallelRegion>) -> Option<Self> {
        let annotations = home(regions)?.metadata.annotations.as_ref()?;
        let mut request: Self = serde_json::from_str(annotations.get(names::ANNOTATION_REQUESTED_WIDTHS)?).ok()?;
        request.widths.retain(|requested| (1..=WIDTH_MAX).contains(&requested.width));
        Some(request)
    }

    /// The width that is wanted of a region and that its spec does not have yet.
    pub fn pending(&self, region: &ParallelRegion) -> Option<u32> {
        let uid = region.metadata.uid.as_deref()?;
        let (generation, width) = (region.metadata.generation.unwrap_or_default(), region.spec.width);
        self.widths
            .iter()
            .find(|requested| requested.is_pending(uid, generation, width))
            .map(|requested| requested.width)
    }
}

/// The region of a job that has its requests.
pub fn home<'a>(regions: impl IntoIterator<Item = &'a ParallelRegion>) -> Option<&'a ParallelRegion> {
    regions.into_iter().min_by_key(|region| region.spec.index)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ParallelRegionSpec;

    fn region(index: u64, generation: i64, width: u32) -> ParallelRegion {
        let spec = ParallelRegionSpec { job_name: "flow".into(), index, name: format!("R{index}"), width };
        let mut region = ParallelRegion::new(&format!("flow-{index}"), spec);
        region.metadata.uid = Some(format!("uid {index}"));
        region.metadata.generation = Some(generation);
        region
    }

    fn annotated(mut region: ParallelRegion, text: String) -> ParallelRegion {
        region.metadata.annotations = Some([(names::ANNOTATION_REQUESTED_WIDTHS.to_owned(), text)].into());
        region
    }

    #[test]
    fn a_request_counts_until_it_is_taken_over_or_somebody_edits_the_width() {
        let widths = vec![RequestedWidth::of(&region(0, 4, 2), 5), RequestedWidth::of(&region(1, 7, 2), 6)];
        let text = serde_json::to_string(&RequestedWidths { widths, trace_parent: None }).unwrap();
        let home = annotated(region(0, 4, 2), text);
        let mut another = region(1, 7, 2);
        another.metadata.uid = Some("another".to_owned());
        // a region beside the home -> what is still to be taken over
        let table = [
            (region(1, 7, 2), Some(6)),
            (region(1, 8, 6), None),
            (region(1, 8, 3), None),
            (region(1, 7, 6), None),
            (region(2, 7, 2), None),
            (another, None),
        ];
        for (region, expected) in table {
            let request = RequestedWidths::read([&region, &home]).unwrap();
            assert_eq!((request.pending(&home), request.pending(&region)), (Some(5), expected), "{region:?}");
        }
    }

    #[test]
    fn what_is_no_request_is_ignored() {
        let mad = RequestedWidths { widths: vec![RequestedWidth::of(&region(0, 1, 2), 0)], trace_parent: None };
        for text in ["", "{}", "[1]", r#"{"widths": 3}"#] {
            assert_eq!(RequestedWidths::read([&annotated(region(0, 1, 2), text.to_owned())]), None, "{text}");
        }
        let home = annotated(region(0, 1, 2), serde_json::to_string(&mad).unwrap());
        assert_eq!(RequestedWidths::read([&home]).unwrap().pending(&home), None, "a width that no region can have");
        // Only the home counts.
        assert_eq!(RequestedWidths::read([&home, &annotated(region(1, 1, 2), "{}".to_owned())]).unwrap().widths, []);
        assert_eq!(RequestedWidths::read([&region(0, 1, 2), &annotated(region(1, 1, 2), "{}".to_owned())]), None);
        assert_eq!(RequestedWidths::read([]), None);
    }
}
