//! Computes which objects should exist for a generation of a job, as names and hashes. Pure.

use super::{DesiredGeneration, DesiredPe, TextReference, placed};
use crate::controllers::job::generation::regions::committed_regions;
use crate::controllers::job::generation::{Generation, missing_nodes};
use crate::controllers::job::objects::interfaces::interfaces;
use crate::controllers::job::objects::{ChildBuilder, TextVersion};
use std::collections::BTreeMap;
use streams_api::{AutomaticFusionFigures, OlderTexts, ProcessingElement, ResolvedFusion, Statistics};
use streams_kubernetes::Error;
use streams_kubernetes::writer::hash;
use streams_proto::fusion::v1::Fate;
use streams_proto::fusion::v1::fusion::Mode;

/// Most ranges of PEs with older texts that the status lists (schema).
const OLDER_TEXTS_MAX: usize = 4_096;

/// The objects that should exist for this generation. Takes time in proportion to the number of PEs.
///
/// # Errors
/// An object cannot be written as JSON, which is not possible for these types.
pub(crate) fn desired_generation(
    builder: ChildBuilder<'_>,
    generation: &Generation,
) -> Result<DesiredGeneration, Error> {
    let mut processing_elements = BTreeMap::new();
    let mut older_texts = Vec::new();
    let ignores_channels = generation.ignores_channels();
    for (pe, origin) in generation.members() {
        let text = |object: ProcessingElement| -> Result<TextReference, Error> {
            Ok(TextReference { config_map: object.spec.config_map.name.clone(), processing_element: hash(&object)? })
        };
        let object = builder.processing_element(generation, pe, origin, TextVersion::Newest);
        let placement = placed(&object.spec.placement);
        let placement_hash = object.spec.placement_hash.clone().unwrap_or_default();
        let newest = text(object)?;
        let of_origin = || builder.processing_element(generation, pe, origin, TextVersion::Origin);
        let carried = if origin.content_id == pe.content_id { None } else { Some(text(of_origin())?) };
        if ignores_channels && carried.is_some() {
            older_texts.push((pe.id, origin.text_generation));
        }
        let wanted = DesiredPe {
            origin: origin.generation,
            is_new: pe.fate() == Fate::Added,
            restartable: pe.restartable,
            runtime_id: origin.runtime_id.clone(),
            placement,
            placement_hash,
            text: newest,
            carried,
            is_renewed: false,
            service: hash(&builder.service(&generation.plan, pe, &[]))?,
        };
        processing_elements.insert(pe.id, wanted);
    }
    let older_texts = list(&mut processing_elements, older_texts);
    let mut host_pools = BTreeMap::new();
    for pool in &generation.plan.host_pools {
        host_pools.insert(pool.index, hash(&builder.host_pool(generation, pool))?);
    }
    Ok(DesiredGeneration {
        generation: generation.number,
        target: Some(generation.target.clone()),
        widths: generation.widths(),
        processing_elements,
        regions: generation.plan.parallel_regions.iter().map(|region| (region.index, region.name.clone())).collect(),
        committed_regions: committed_regions(generation),
        host_pools,
        interfaces: interfaces(builder, generation)?,
        older_texts,
        statistics: statistics(generation),
        fusion: fusion(generation),
        settled: generation.settled.clone(),
        warnings: generation.warnings.iter().map(|warning| (warning.reason.clone(), warning.message.clone())).collect(),
        waiting: missing_nodes::waiting(&generation.plan, &generation.warnings),
    })
}

/// Lists PEs with the generations that changed their texts last: at most as many ranges as the status can have. Those
/// that are listed are renewed; nobody would wait for the newest texts of the others.
fn list(pes: &mut BTreeMap<u64, DesiredPe>, mut changed: Vec<(u64, u64)>) -> Vec<OlderTexts> {
    changed.sort_unstable();
    let mut listed: Vec<OlderTexts> = Vec::new();
    for (id, generation) in changed {
        let is_full = listed.len() == OLDER_TEXTS_MAX;
        match listed.last_mut() {
            Some(range) if range.generation == generation && range.last.checked_add(1) == Some(id) => range.last = id,
            _ if is_full => break,
            _ => listed.push(OlderTexts { first: id, last: id, generation }),
        }
        if let Some(pe) = pes.get_mut(&id) {
            pe.is_renewed = true;
        }
    }
    listed
}

fn statistics(generation: &Generation) -> Statistics {
    let count = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
    let plan = &generation.plan;
    let sum = |of: fn(&streams_proto::fusion::v1::ProcessingElement) -> usize| {
        count(generation.members().map(|(pe, _)| of(pe)).sum())
    };
    Statistics {
        processing_elements: count(generation.members().count()),
        ready_processing_elements: 0,
        connected_processing_elements: 0,
        completed_processing_elements: 0,
        operators: sum(|pe| pe.operators.len()),
        parallel_regions: count(plan.parallel_regions.len()),
        host_pools: count(plan.host_pools.len()),
        consistent_regions: count(plan.consistent_regions.len()),
        exports: sum(|pe| pe.exports.len()),
        imports: sum(|pe| pe.imports.len()),
        aadl_bytes: generation.members().map(|(pe, _)| pe.size).sum(),
    }
}

fn fusion(generation: &Generation) -> ResolvedFusion {
    let mode = generation.compilation.fusion.as_ref().and_then(|fusion| fusion.mode.as_ref());
    let (name, count, cpu_free) = match mode {
        Some(Mode::Legacy(_)) => ("legacy", None, None),
        Some(Mode::Manual(count)) => ("manual", Some(*count), None),
        Some(Mode::Automatic(automatic)) => {
            ("automatic", generation.plan.automatic.as_ref().map(|figures| figures.resolved), automatic.cpu_free)
        }
        None => ("automatic", None, None),
    };
    ResolvedFusion {
        mode: name.to_owned(),
        processing_elements: count,
        automatic: generation.plan.automatic.as_ref().map(|figures| AutomaticFusionFigures {
            threads_min: figures.threads_min,
            threads_max: figures.threads_max,
            low: figures.low,
            high: figures.high,
            cpu_free,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(first: u64, last: u64, generation: u64) -> OlderTexts {
        OlderTexts { first, last, generation }
    }

    #[test]
    fn pes_whose_texts_one_generation_changed_are_listed_together() {
        // PEs and the generations that changed their texts -> what is listed
        let table = [
            (vec![], vec![]),
            (vec![(3, 1), (1, 1), (2, 1)], vec![range(1, 3, 1)]),
            (vec![(1, 1), (2, 2), (3, 2), (5, 2)], vec![range(1, 1, 1), range(2, 3, 2), range(5, 5, 2)]),
            (vec![(u64::MAX, 1), (0, 1)], vec![range(0, 0, 1), range(u64::MAX, u64::MAX, 1)]),
        ];
        for (changed, expected) in table {
            assert_eq!(list(&mut BTreeMap::new(), changed.clone()), expected, "{changed:?}");
        }
    }

    #[test]
    fn pes_that_the_status_has_no_room_for_are_not_renewed() {
        let mut pes: BTreeMap<u64, DesiredPe> = (0..10_000).map(|id| (id, DesiredPe::default())).collect();
        // Every other one; the last range that is listed has two.
        let changed = (0..5_000).map(|number| (2 * number, 1)).chain([(8_191, 1)]).collect();
        let listed = list(&mut pes, changed);
        assert_eq!((listed.len(), listed.last()), (4_096, Some(&range(8_190, 8_192, 1))));
        let renewed: Vec<u64> = pes.iter().filter(|(_, pe)| pe.is_renewed).map(|(id, _)| *id).collect();
        let expected: Vec<u64> = (0..4_096).map(|number| 2 * number).chain([8_191, 8_192]).collect();
        assert_eq!(renewed, expected);
    }
}
