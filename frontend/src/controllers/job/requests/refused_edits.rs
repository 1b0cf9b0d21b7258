//! Widths in the specs of regions that the compiler refused (rule elasticity-3).
//!
//! Such a width stays in its spec: nobody's spec is written back. It is not asked of the compiler again as long as what
//! it was refused for is the same; meanwhile the region has its applied width, and others go on. Pure.

use super::super::tasks::Failure;
use super::super::widths::{Bounds, RefusedWidth};
use std::collections::BTreeMap;
use streams_api::{JobStatus, ParallelRegion, RefusedEdit, RegionWidth, RejectedResize, condition};

/// Refused widths that a status lists.
const LISTED_MAX: usize = 256;
/// Reason of the refusal of an edit for which the status has no room left.
const TOO_MANY: &str = "TooManyRefusals";
/// Longest message of each (schema).
const MESSAGE_MAX: usize = 1024;

/// What a refusal of the width of this region would be for, if there were one now.
pub(super) fn key(bounds: Bounds, status: &JobStatus, region: &ParallelRegion) -> RefusedEdit {
    RefusedEdit {
        region: region.spec.name.clone(),
        width: region.spec.width,
        uid: region.metadata.uid.clone().unwrap_or_default(),
        region_generation: region.metadata.generation.unwrap_or_default(),
        min_width: bounds.min_width,
        max_width: bounds.max_width,
        generation: status.generation.unwrap_or_default(),
        compiler: status.plan.as_ref().map(|plan| plan.compiler.clone()).unwrap_or_default(),
        ..RefusedEdit::default()
    }
}

/// The refusal for this key.
pub(crate) fn refused(key: &RefusedEdit, failure: &Failure) -> RefusedEdit {
    RefusedEdit {
        reason: failure.reason.clone(),
        stage: failure.stage.clone(),
        code: failure.code.clone(),
        message: condition::cut(&failure.message, MESSAGE_MAX).to_owned(),
        ..key.clone()
    }
}

/// Whether the refusal is about this key.
pub(super) fn is_about(refused: &RefusedEdit, key: &RefusedEdit) -> bool {
    let RefusedEdit { reason, stage, code, message, .. } = refused.clone();
    *refused == RefusedEdit { reason, stage, code, message, ..key.clone() }
}

/// Why the compiler is not asked for this width of an edit, if it is not: a refusal could not be listed (rule
/// elasticity-2).
pub(crate) fn too_many(status: &JobStatus, region: &str, width: u32) -> Option<RefusedWidth> {
    let has_room = status.refused_edits.len() < LISTED_MAX;
    if has_room || status.refused_edits.iter().any(|refused| refused.region == region) {
        return None;
    }
    let message = format!(
        "width {width} of {region} is not tried while {LISTED_MAX} other regions have widths that were refused: \
         correct some of them"
    );
    Some(RefusedWidth { width, reason: TOO_MANY, message })
}

/// Leaves in the status what is still refused: by the present keys, and for the committed generation.
pub(crate) fn keep(status: &mut JobStatus, keys: &BTreeMap<String, RefusedEdit>) {
    let generation = status.generation;
    status.refused_edits.retain(|refused| {
        Some(refused.generation) == generation && keys.get(&refused.region).is_some_and(|key| is_about(refused, key))
    });
    status.rejected_resize = status.refused_edits.last().map(|newest| {
        let width = |refused: &RefusedEdit| RegionWidth { region: refused.region.clone(), width: refused.width };
        let mut widths: Vec<RegionWidth> = status.refused_edits.iter().map(width).collect();
        widths.sort();
        RejectedResize {
            widths,
            reason: newest.reason.clone(),
            stage: newest.stage.clone(),
            code: newest.code.clone(),
            message: newest.message.clone(),
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_edit_is_not_tried_while_as_many_others_are_refused_as_can_be_listed() {
        // refused regions, region -> refused
        let table = [(255, "R300", false), (256, "R300", true), (256, "R7", false)];
        for (count, region, expected) in table {
            let refused = (0..count).map(|n| RefusedEdit { region: format!("R{n}"), ..RefusedEdit::default() });
            let status = JobStatus { refused_edits: refused.collect(), ..JobStatus::default() };
            let refused = too_many(&status, region, 5).map(|refused| (refused.width, refused.reason));
            assert_eq!(refused, expected.then_some((5, "TooManyRefusals")), "{count} {region}");
        }
    }
}
