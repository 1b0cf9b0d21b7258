//! Computes which objects should exist for a generation of a job, as names and hashes. Pure.

use super::children::{ChildBuilder, TextVersion};
use super::generation::Generation;
use super::interfaces::interfaces;
use super::observed::{DesiredGeneration, DesiredPe, Effect, TextReference, placed};
use super::regions::committed_regions;
use std::collections::BTreeMap;
use streams_api::{AutomaticFusionFigures, ProcessingElement, ResizeChanges, ResolvedFusion, Statistics};
use streams_kubernetes::Error;
use streams_kubernetes::writer::hash;
use streams_proto::fusion::v1::Fate;
use streams_proto::fusion::v1::fusion::Mode;

/// The objects that should exist for this generation. Takes time in proportion to the number of PEs.
///
/// # Errors
/// An object cannot be written as JSON, which is not possible for these types.
pub(crate) fn desired_generation(
    builder: ChildBuilder<'_>,
    generation: &Generation,
) -> Result<DesiredGeneration, Error> {
    let mut processing_elements = BTreeMap::new();
    for (pe, origin) in generation.members() {
        let text = |object: ProcessingElement| -> Result<TextReference, Error> {
            Ok(TextReference { config_map: object.spec.config_map.name.clone(), processing_element: hash(&object)? })
        };
        let object = builder.processing_element(generation, pe, origin, TextVersion::Newest);
        let placement = placed(&object.spec.placement);
        let newest = text(object)?;
        let of_origin = || builder.processing_element(generation, pe, origin, TextVersion::Origin);
        let carried = if origin.content_id == pe.content_id { None } else { Some(text(of_origin())?) };
        let wanted = DesiredPe {
            origin: origin.generation,
            is_new: pe.fate() == Fate::Added,
            restartable: pe.restartable,
            runtime_id: origin.runtime_id.clone(),
            placement,
            text: newest,
            carried,
            service: hash(&builder.service(&generation.plan, pe))?,
        };
        processing_elements.insert(pe.id, wanted);
    }
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
        effect: effect(generation.changes()),
        statistics: statistics(generation),
        fusion: fusion(generation),
        settled: generation.settled.clone(),
        warnings: generation.warnings.iter().map(|warning| (warning.reason.clone(), warning.message.clone())).collect(),
    })
}

fn effect(ResizeChanges { kept, restarted, added, removed }: ResizeChanges) -> Effect {
    Effect { kept, restarted, added, removed }
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
