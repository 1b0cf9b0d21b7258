//! Writes a plan as a message.

use bytes::Bytes;
use std::ops::Range;
use streams_compiler::budget::Budget;
use streams_compiler::error::{Error, Problem, Stage};
use streams_compiler::fuser::AutomaticFusion;
use streams_compiler::logical::HostPool;
use streams_compiler::plan::{
    Compiled, Digest, ExportedPort, Fate, ImportedPort, Plan, PlannedConsistentRegion, PlannedElement, PlannedRegion,
    PortLabel, Reason, RemovedElement, Warning,
};
use streams_compiler::topology::ChannelCount;
use streams_proto::fusion::v1 as pb;

/// The answer to a submission.
pub(super) fn submitted(job: &Compiled, budget: &Budget) -> Result<pb::SubmitResponse, Error> {
    Ok(pb::SubmitResponse { plan: Some(message(job, budget)?), warnings: warnings(&job.plan().warnings) })
}

/// The answer to a resize, without texts.
pub(super) fn resized(job: &Compiled, budget: &Budget) -> Result<pb::ResizeResponse, Error> {
    let change = job.plan().change.clone().unwrap_or_default();
    Ok(pb::ResizeResponse {
        plan: Some(message(job, budget)?),
        added_operators: change.operators.added,
        removed_operators: change.operators.removed,
        changed_operators: change.operators.changed,
        warnings: warnings(&job.plan().warnings),
        texts: Vec::new(),
    })
}

pub(super) fn warnings(warnings: &[Warning]) -> Vec<pb::Warning> {
    let warning = |w: &Warning| pb::Warning { reason: w.reason.to_owned(), message: w.message.clone() };
    warnings.iter().map(warning).collect()
}

fn message(job: &Compiled, budget: &Budget) -> Result<pb::Plan, Error> {
    let (plan, job_id) = (job.plan(), job.request().job_id);
    let some = |positions: Range<usize>| -> Result<Vec<_>, Error> {
        let mut pace = budget.pace();
        let mut some = Vec::with_capacity(positions.len());
        for pe in plan.elements.get(positions).unwrap_or_default() {
            pace.steps(u32::try_from(pe.operators.len() + plan.isolated.len()).unwrap_or(u32::MAX))?;
            some.push(element(plan, job_id, pe)?);
        }
        Ok(some)
    };
    let layout = || -> Result<Vec<u8>, Error> {
        budget.check()?;
        let layout = job.layout_within(budget)?;
        budget.check().map(|()| layout.to_bytes())
    };
    let (elements, layout) = budget.in_chunks_beside(plan.elements.len(), some, layout);
    let mut elements = elements?;
    if let Some(change) = &plan.change {
        elements.extend(change.removed.iter().map(removed));
        elements.sort_by_key(|element| element.id);
    }
    Ok(pb::Plan {
        compiler: plan.compiler.clone(),
        adl_sha256: Bytes::copy_from_slice(&plan.adl),
        layout: layout?.into(),
        application_name: plan.application_name.clone(),
        application_scope: plan.application_scope.clone(),
        parallel_regions: plan.regions.iter().map(region).collect(),
        host_pools: plan.host_pools.iter().map(host_pool).collect(),
        consistent_regions: plan.consistent_regions.iter().map(consistent_region).collect(),
        processing_elements: elements,
        automatic: plan.automatic.as_ref().map(automatic),
        adl_version: plan.dialect.name().to_owned(),
    })
}

pub(super) fn automatic(fusion: &AutomaticFusion) -> pb::AutomaticFusion {
    pb::AutomaticFusion {
        threads_min: fusion.least_threads,
        threads_max: fusion.most_threads,
        low: u64::from(fusion.low),
        high: u64::from(fusion.high),
        resolved: u64::from(fusion.count),
    }
}

fn region(planned: &PlannedRegion) -> pb::ParallelRegion {
    pb::ParallelRegion {
        index: planned.region.index,
        name: planned.region.name.clone(),
        width: planned.region.width,
        global_max_channels: planned.region.global_max,
        channels_have_own_pes: planned.channels_have_own_pes,
        touches_consistent_region: planned.touches_consistent_region,
        channel_count: channel_count(planned.region.channel_count).into(),
    }
}

/// Says only what a job says that differs from the default.
pub(super) fn channel_count(count: ChannelCount) -> pb::ChannelCount {
    match count {
        ChannelCount::Observed => pb::ChannelCount::Unspecified,
        ChannelCount::Ignored => pb::ChannelCount::Ignored,
    }
}

fn host_pool(pool: &HostPool) -> pb::HostPool {
    pb::HostPool {
        index: pool.index,
        name: pool.name.clone(),
        exclusive: pool.exclusive,
        size: pool.size,
        hosts: pool.hosts.clone(),
        tags: pool.sorted_tags().into_iter().map(str::to_owned).collect(),
    }
}

fn consistent_region(region: &PlannedConsistentRegion) -> pb::ConsistentRegion {
    let members = region.members.iter().map(|member| pb::consistent_region::Member {
        operator: member.operator.clone(),
        is_start: member.is_start,
        is_trigger: member.is_trigger,
    });
    pb::ConsistentRegion {
        index: region.index,
        logical_index: region.logical_index,
        trigger: region.trigger.name().to_owned(),
        period: region.trigger.period(),
        drain_timeout: region.drain_timeout,
        reset_timeout: region.reset_timeout,
        max_consecutive_reset_attempts: region.max_consecutive_reset_attempts,
        pe_ids: region.pe_ids.clone(),
        members: members.collect(),
    }
}

fn removed(gone: &RemovedElement) -> pb::ProcessingElement {
    pb::ProcessingElement {
        id: gone.id,
        fate: pb::Fate::Removed.into(),
        reason: Reason::describe(gone.reason.as_ref()),
        content_id: hex(&gone.content_id),
        runtime_id: hex(&gone.runtime_id),
        ..Default::default()
    }
}

fn element(plan: &Plan, job_id: u64, pe: &PlannedElement) -> Result<pb::ProcessingElement, Error> {
    let fate = match pe.fate {
        Fate::Added => pb::Fate::Added,
        Fate::Kept => pb::Fate::Kept,
        Fate::KeptUnobservable => pb::Fate::KeptUnobservable,
        Fate::Restarted => pb::Fate::Restarted,
    };
    let placement = pb::Placement {
        host: pe.placement.host.clone(),
        co_locations: pe.placement.co_locations.clone(),
        ex_locations: pe.placement.ex_locations.clone(),
        isolation: pe.placement.isolation.clone(),
        isolation_labels: plan.isolation_labels(pe.id).map(str::to_owned).collect(),
        pool: pe.placement.pool.map(|pool| pb::placement::Pool { index: pool.pool, in_pool_index: pool.in_pool }),
    };
    Ok(pb::ProcessingElement {
        id: pe.id,
        fate: fate.into(),
        reason: Reason::describe(pe.reason.as_deref()),
        content_id: hex(&pe.content_id),
        runtime_id: hex(&pe.runtime_id),
        size: pe.bytes,
        operators: pe.operators.clone(),
        operator_indexes: pe.operator_indexes.clone(),
        restartable: pe.restartable,
        port_labels: pe.port_labels.iter().map(|label| port_label(job_id, pe.id, label)).collect(),
        exports: pe.exports.iter().map(export).collect::<Result<_, _>>()?,
        imports: pe.imports.iter().map(import).collect::<Result<_, _>>()?,
        placement: Some(placement),
        environment: pe.environment.clone(),
        consistent_regions: pe.consistent_regions.clone(),
    })
}

/// How senders find a port (rule element-15).
fn port_label(job_id: u64, pe: u64, label: &PortLabel) -> pb::PortLabel {
    pb::PortLabel {
        port_id: label.port_id,
        operator_port_label: label.operator_label(job_id),
        pe_port_label: label.pe_label(pe, job_id),
    }
}

fn export(port: &ExportedPort) -> Result<pb::Export, Error> {
    let export = &port.export;
    let property = |p: &streams_compiler::logical::Property| pb::export::Property {
        name: p.name.clone(),
        r#type: p.r#type.clone(),
        values: p.values.clone(),
    };
    Ok(pb::Export {
        port_id: port.port_id,
        operator_index: port.operator_index,
        operator_port: operator_port(port.operator_port)?,
        splitter_index: port.via.map(|via| via.splitter),
        channel_index: port.via.map(|via| via.channel),
        name: export.name.clone(),
        export_operator_name: export.operator_name.clone(),
        allow_filter: export.allow_filter,
        congestion_policy: if export.drop_connection { "dropConnection" } else { "wait" }.to_owned(),
        by_properties: export.properties.is_some(),
        properties: export.properties.iter().flatten().map(property).collect(),
    })
}

fn import(port: &ImportedPort) -> Result<pb::Import, Error> {
    let imports = &port.imports;
    let by_name = (0_u32..).zip(&imports.by_name).map(|(key, import)| pb::import::ByName {
        key,
        application_name: import.application_name.clone(),
        application_scope: import.application_scope.clone(),
        stream_name: import.stream_name.clone(),
        import_operator_name: import.operator_name.clone(),
    });
    let by_properties = imports.by_properties.as_ref().map(|import| pb::import::ByProperties {
        subscription: import.subscription.clone(),
        application_scope: import.application_scope.clone(),
        import_operator_name: import.operator_name.clone(),
        index: import.index,
    });
    Ok(pb::Import {
        port_id: port.port_id,
        operator_index: port.operator_index,
        operator_port: operator_port(port.operator_port)?,
        filter: imports.filter.clone(),
        by_name: by_name.collect(),
        by_properties,
    })
}

/// The index of an operator port as the message has it. The ADL allows 64 bits, the contract 32.
fn operator_port(index: u64) -> Result<u32, Error> {
    let refuse = |_| Problem::new(Stage::Aadl, format!("the operator port index {index} is too large")).into();
    u32::try_from(index).map_err(refuse)
}

fn hex(digest: &Digest) -> String {
    // Every PE has two: not letter by letter into a text that grows.
    let mut digits = [0; 2 * size_of::<Digest>()];
    let text = hex::encode_to_slice(digest, &mut digits).ok().and_then(|()| str::from_utf8(&digits).ok());
    text.map_or_else(|| hex::encode(digest), str::to_owned)
}
