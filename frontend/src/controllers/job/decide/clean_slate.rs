//! Deletes what an attempt of a submission has left: the next one begins with a clean slate (rules job-18 and job-19).
//!
//! Regions whose widths somebody has edited stay for the next attempt, if there is one: an edit of a region before the
//! first commit counts after it, whichever attempt that is of (rule job-25).
//!
//! Knows: which objects there are. Must not know: why the attempt is over.

use super::{Child, Draft, Owned, Propagation};
use crate::controllers::job::observed::{Children, JobObservation, ObservedObject, ObservedRegion};

/// Deletes everything but chunks, and what the next attempt is to find.
pub(super) fn clear(observed: &JobObservation, draft: &mut Draft) {
    for (object, state) in left(&observed.children) {
        draft.delete_with(Propagation::Foreground, object, state);
    }
}

/// Deletes everything but chunks: there is no next attempt.
pub(super) fn delete_all_children(observed: &JobObservation, draft: &mut Draft) {
    clear(observed, draft);
    for (index, region) in observed.children.regions.iter().filter(|(_, region)| is_kept(region)) {
        draft.delete_with(Propagation::Foreground, Owned::Child(Child::Region(*index)), &region.object);
    }
}

/// Whether the next attempt may begin.
pub(super) fn is_clear(observed: &JobObservation) -> bool {
    left(&observed.children).next().is_none()
}

/// What the next attempt waits for. Once there is nothing more to delete, something that does not go is named.
pub(super) fn what_is_left(observed: &JobObservation, draft: &Draft) -> String {
    let first = left(&observed.children).next().filter(|_| !draft.report.deletes);
    match first {
        Some((object, _)) => {
            format!("{} to go away, which is left of an earlier attempt", object.of_job(&observed.name))
        }
        None => "objects of an earlier attempt to go away".to_owned(),
    }
}

/// Whether somebody has edited the width of the region.
fn is_kept(region: &ObservedRegion) -> bool {
    !region.object.deleting && region.created.as_ref().is_some_and(|created| created.edited().is_some())
}

/// Everything but chunks, and what the next attempt is to find.
fn left(children: &Children) -> impl Iterator<Item = (Owned, &ObservedObject)> {
    let pes = children.processing_elements.iter().map(|(id, pe)| (Child::ProcessingElement(*id), &pe.object));
    let regions = children.regions.iter().filter(|(_, region)| !is_kept(region));
    let applied = pes
        .chain(children.services.iter().map(|(id, object)| (Child::Service(*id), object)))
        .chain(regions.map(|(index, region)| (Child::Region(*index), &region.object)))
        .chain(children.host_pools.iter().map(|(index, object)| (Child::HostPool(*index), object)))
        .chain(children.interfaces.iter().map(|(child, object)| (*child, object)))
        .chain(children.job_config_map.iter().map(|object| (Child::JobConfigMap, object)));
    let texts = children.texts.iter().map(|(name, object)| (Owned::ConfigMap(name.clone()), object));
    applied.map(|(child, object)| (Owned::Child(child), object)).chain(texts)
}
