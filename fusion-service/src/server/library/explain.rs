//! Writes an account as a message.

use super::plan::{automatic, channel_count, warnings};
use streams_compiler::explain::{self, Account, CauseEffect};
use streams_compiler::plan::{Compiled, Fate, Reason};
use streams_proto::fusion::v1::{self as pb, explanation};

/// Groups of PEs in a message: it stays far below what receivers accept.
const GROUPS: usize = 1000;

/// The answer about a job; `account` is its account.
pub(super) fn explained(job: &Compiled, account: Account) -> pb::ExplainResponse {
    let text = account.to_string();
    let totals = &account.totals;
    let explanation = pb::Explanation {
        application_name: account.application,
        application_scope: account.scope,
        totals: Some(explanation::Totals {
            operators: totals.operators as u64,
            operators_as_written: totals.operators_as_written as u64,
            connections: totals.connections as u64,
            connections_between_pes: totals.connections_between_pes as u64,
            processing_elements: totals.processing_elements as u64,
            aadl_bytes: totals.aadl_bytes,
        }),
        fusion: Some(explanation::Grouping {
            mode: account.fusion.mode.to_owned(),
            r#type: account.fusion.r#type.to_owned(),
            wanted: account.fusion.wanted,
            units: account.fusion.units as u64,
            alone: account.fusion.alone as u64,
            automatic: job.plan().automatic.as_ref().map(automatic),
            why: account.fusion.why,
        }),
        regions: account.regions.into_iter().map(region).collect(),
        host_pools: account.host_pools.into_iter().map(pool).collect(),
        consistent_regions: account.consistent_regions.into_iter().map(consistent).collect(),
        causes: account.causes.into_iter().map(cause).collect(),
        group_count: account.processing_elements.len() as u64,
        groups: account.processing_elements.into_iter().take(GROUPS).map(group).collect(),
        removed_count: account.removed.len() as u64,
        removed: account.removed.into_iter().take(GROUPS).map(removed).collect(),
        warnings: warnings(&job.plan().warnings),
    };
    pb::ExplainResponse { explanation: Some(explanation), text }
}

fn region(region: explain::RegionAccount) -> explanation::Region {
    let splitter = |splitter: explain::RegionSplitter| explanation::Splitter {
        input_port: splitter.input_port,
        kind: splitter.kind.to_owned(),
        attributes: splitter.attributes,
    };
    explanation::Region {
        index: region.index,
        name: region.name,
        nested_in: region.nested_in,
        width: region.width,
        width_before: region.width_before,
        channels: region.channels,
        origin: region.origin.kind.to_owned(),
        origin_name: region.origin.name,
        submitted_width: region.origin.submitted,
        splitters: region.splitters.into_iter().map(splitter).collect(),
        channels_have_own_pes: region.channels_have_own_pes,
        touches_consistent_region: region.touches_consistent_region,
        channel_count: channel_count(region.channel_count).into(),
    }
}

fn pool(pool: explain::HostPoolAccount) -> explanation::Pool {
    explanation::Pool {
        index: pool.index,
        name: pool.name,
        exclusive: pool.exclusive,
        size: pool.size,
        hosts: pool.hosts,
        tags: pool.tags,
        operators: pool.operators as u64,
    }
}

fn consistent(region: explain::ConsistentRegionAccount) -> explanation::Consistent {
    explanation::Consistent {
        index: region.index,
        trigger: region.trigger.to_owned(),
        period: region.period,
        operators: region.operators as u64,
        starts: region.starts,
        pe_ids: region.pes,
    }
}

fn cause(cause: explain::CauseAccount) -> explanation::Cause {
    let effect = match cause.effect {
        CauseEffect::Together => explanation::Effect::Together,
        CauseEffect::Alone => explanation::Effect::Alone,
        CauseEffect::Apart => explanation::Effect::Apart,
    };
    explanation::Cause {
        effect: effect.into(),
        attribute: cause.attribute.to_owned(),
        meaning: cause.meaning.to_owned(),
        values: cause.values,
        value_count: cause.value_count as u64,
        operators: cause.operators as u64,
        processing_elements: cause.pes as u64,
    }
}

fn group(group: explain::ElementGroup) -> explanation::Group {
    let fate = group.fate.map_or(pb::Fate::Unspecified, |fate| match fate {
        Fate::Added => pb::Fate::Added,
        Fate::Kept => pb::Fate::Kept,
        Fate::KeptUnobservable => pb::Fate::KeptUnobservable,
        Fate::Restarted => pb::Fate::Restarted,
    });
    explanation::Group {
        pe_ids: group.ids,
        fate: fate.into(),
        operators_each: group.operators_each as u64,
        new_operators_each: group.new_operators_each as u64,
        operators: group.operators,
        operator_entries: group.operator_entries as u64,
        aadl_bytes: group.aadl_bytes,
        restartable: group.restartable,
        placement: group.placement,
        causes: group.causes.into_iter().map(cause).collect(),
        reason: Reason::describe(group.reason.as_ref()),
        changes: group.changes.into_iter().map(change).collect(),
        change_count: group.change_count as u64,
        not_compared: group.not_compared,
    }
}

fn change(change: explain::DocumentChange) -> explanation::Change {
    explanation::Change {
        observable: change.observable,
        place: change.place,
        path: change.path,
        what: change.what,
        before: change.before,
        after: change.after,
        added: change.added,
        added_count: change.added_count as u64,
        removed: change.removed,
        removed_count: change.removed_count as u64,
        places: change.places as u64,
    }
}

fn removed(removed: explain::RemovedGroup) -> explanation::Removed {
    explanation::Removed {
        pe_ids: removed.ids,
        reason: Reason::describe(removed.reason.as_ref()),
        operators_each: removed.operators_each.unwrap_or(0) as u64,
        operators: removed.operators,
        operator_entries: removed.operator_entries as u64,
    }
}
