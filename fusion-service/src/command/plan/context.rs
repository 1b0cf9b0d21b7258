//! `context.json` (rule service-22).
//!
//! Knows: plans, the form of the file. Must not know: where the file is, who reads it.

use serde::Serialize;
use serde::ser::{SerializeMap, SerializeSeq, Serializer};
use std::collections::BTreeMap;
use streams_compiler::plan::{
    Compiled, ExportedPort, Fate, ImportedPort, Plan, PlannedConsistentRegion, PlannedElement, Reason, RemovedElement,
    ResizeChange,
};
use streams_compiler::topology::ChannelCount;

/// The content of the file. The largest lists are only made while it is serialized, because labels can be many.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Context<'p> {
    kind: &'static str,
    application_name: &'p str,
    application_scope: &'p str,
    parallel_regions: Vec<RegionEntry<'p>>,
    parallel_region_widths: BTreeMap<&'p str, u32>,
    host_pools: Vec<PoolEntry<'p>>,
    consistent_regions: Vec<ConsistentRegionEntry<'p>>,
    #[serde(flatten)]
    change: Option<ChangeReport<'p>>,
    pes: Elements<'p>,
    compiler: &'p str,
    adl_sha256: String,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct RegionEntry<'p> {
    index: u64,
    name: &'p str,
    width: u32,
    global_max_channels: u32,
    channels_have_own_pes: bool,
    touches_consistent_region: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    channel_count: Option<&'static str>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct PoolEntry<'p> {
    index: u64,
    name: &'p str,
    membership_mode: &'static str,
    size: Option<u64>,
    hosts: &'p [String],
    tags: Vec<&'p str>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ConsistentRegionEntry<'p> {
    index: u64,
    logical_index: u64,
    trigger: &'static str,
    period: f64,
    drain_timeout: f64,
    reset_timeout: f64,
    max_consecutive_reset_attempts: u32,
    num_start_operators: usize,
    pes: &'p [u64],
    operator_is_start: BTreeMap<&'p str, bool>,
    operator_is_trigger: BTreeMap<&'p str, bool>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ChangeReport<'p> {
    changed_operators: &'p [String],
    added_operators: &'p [String],
    removed_operators: &'p [String],
    pe_diff: ElementDifference,
    removed_pes: Vec<Removed>,
}

#[derive(Serialize)]
struct ElementDifference {
    new: Vec<u64>,
    changed: Vec<u64>,
    unchanged: Vec<u64>,
    deleted: Vec<u64>,
}

#[derive(Serialize)]
struct Removed {
    id: u64,
    reason: String,
}

impl<'p> Context<'p> {
    pub(super) fn new(compiled: &'p Compiled) -> Self {
        let plan = compiled.plan();
        let regions = plan.regions.iter().map(|planned| RegionEntry {
            index: planned.region.index,
            name: &planned.region.name,
            width: planned.region.width,
            global_max_channels: planned.region.global_max,
            channels_have_own_pes: planned.channels_have_own_pes,
            touches_consistent_region: planned.touches_consistent_region,
            channel_count: match planned.region.channel_count {
                ChannelCount::Observed => None,
                ignored @ ChannelCount::Ignored => Some(ignored.name()),
            },
        });
        Self {
            kind: if plan.change.is_some() { "resize" } else { "submit" },
            application_name: &plan.application_name,
            application_scope: &plan.application_scope,
            parallel_regions: regions.collect(),
            parallel_region_widths: plan.regions.iter().map(|r| (r.region.name.as_str(), r.region.width)).collect(),
            host_pools: plan.host_pools.iter().map(pool).collect(),
            consistent_regions: plan.consistent_regions.iter().map(consistent).collect(),
            change: plan.change.as_ref().map(|change| changed(plan, change)),
            pes: Elements { plan, job: compiled.request().job_id },
            compiler: &plan.compiler,
            adl_sha256: hex::encode(plan.adl),
        }
    }
}

fn pool(pool: &streams_compiler::logical::HostPool) -> PoolEntry<'_> {
    PoolEntry {
        index: pool.index,
        name: &pool.name,
        membership_mode: if pool.exclusive { "exclusive" } else { "shared" },
        size: pool.size,
        hosts: &pool.hosts,
        tags: pool.sorted_tags(),
    }
}

fn consistent(region: &PlannedConsistentRegion) -> ConsistentRegionEntry<'_> {
    ConsistentRegionEntry {
        index: region.index,
        logical_index: region.logical_index,
        trigger: region.trigger.name(),
        period: region.trigger.period(),
        drain_timeout: region.drain_timeout,
        reset_timeout: region.reset_timeout,
        max_consecutive_reset_attempts: region.max_consecutive_reset_attempts,
        num_start_operators: region.members.iter().filter(|member| member.is_start).count(),
        pes: &region.pe_ids,
        operator_is_start: region.members.iter().map(|m| (m.operator.as_str(), m.is_start)).collect(),
        operator_is_trigger: region.members.iter().map(|m| (m.operator.as_str(), m.is_trigger)).collect(),
    }
}

fn changed<'p>(plan: &'p Plan, change: &'p ResizeChange) -> ChangeReport<'p> {
    let with = |fates: &[Fate]| plan.elements.iter().filter(|e| fates.contains(&e.fate)).map(|e| e.id).collect();
    ChangeReport {
        changed_operators: &change.operators.changed,
        added_operators: &change.operators.added,
        removed_operators: &change.operators.removed,
        pe_diff: ElementDifference {
            new: with(&[Fate::Added]),
            changed: with(&[Fate::Restarted, Fate::KeptUnobservable]),
            unchanged: with(&[Fate::Kept]),
            deleted: change.removed.iter().map(|element| element.id).collect(),
        },
        removed_pes: change.removed.iter().map(removed).collect(),
    }
}

fn removed(element: &RemovedElement) -> Removed {
    Removed { id: element.id, reason: Reason::describe(element.reason.as_ref()) }
}

/// The PEs. They are serialized one at a time.
struct Elements<'p> {
    plan: &'p Plan,
    job: u64,
}

impl Serialize for Elements<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut list = serializer.serialize_seq(Some(self.plan.elements.len()))?;
        for element in &self.plan.elements {
            list.serialize_element(&Element { plan: self.plan, job: self.job, element })?;
        }
        list.end()
    }
}

struct Element<'p> {
    plan: &'p Plan,
    job: u64,
    element: &'p PlannedElement,
}

impl Serialize for Element<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let &Self { plan, job, element } = self;
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("id", &element.id)?;
        map.serialize_entry("contentId", &hex::encode(element.content_id))?;
        map.serialize_entry("runtimeId", &hex::encode(element.runtime_id))?;
        map.serialize_entry("bytes", &element.bytes)?;
        if plan.change.is_some() {
            map.serialize_entry("fate", fate(element.fate))?;
            map.serialize_entry("reason", &Reason::describe(element.reason.as_deref()))?;
        }
        map.serialize_entry("operators", &element.operators)?;
        map.serialize_entry("operatorIndexes", &element.operator_indexes)?;
        map.serialize_entry("restartable", &element.restartable)?;
        map.serialize_entry("portLabels", &PortLabels { job, element })?;
        let exports: Vec<Export<'_>> = element.exports.iter().map(export).collect();
        map.serialize_entry("exports", &exports)?;
        let imports: Vec<Import<'_>> = element.imports.iter().map(import).collect();
        map.serialize_entry("imports", &imports)?;
        let placement = &element.placement;
        map.serialize_entry("hostPlacement", &placement.host)?;
        map.serialize_entry("hostCoLocations", &placement.co_locations)?;
        map.serialize_entry("hostExLocations", &placement.ex_locations)?;
        map.serialize_entry("hostIsolation", &placement.isolation)?;
        map.serialize_entry("hostIsolationLabels", &IsolationLabels { plan, id: element.id })?;
        let pool = placement.pool.map(|pool| PoolLocation { pool_index: pool.pool, inpool_index: pool.in_pool });
        map.serialize_entry("hostPoolLocation", &pool)?;
        map.serialize_entry("environment", &element.environment)?;
        map.serialize_entry("consistentRegions", &element.consistent_regions)?;
        map.end()
    }
}

fn fate(fate: Fate) -> &'static str {
    match fate {
        Fate::Added => "added",
        Fate::Kept => "kept",
        Fate::KeptUnobservable => "kept, unobservable change",
        Fate::Restarted => "restarted",
    }
}

struct PortLabels<'p> {
    job: u64,
    element: &'p PlannedElement,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct PortLabelEntry {
    operator_port_label: String,
    pe_port_label: String,
}

impl Serialize for PortLabels<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.element.port_labels.iter().map(|label| PortLabelEntry {
            operator_port_label: label.operator_label(self.job),
            pe_port_label: label.pe_label(self.element.id, self.job),
        }))
    }
}

/// The isolation labels of a PE. All together are quadratic in number, so they are never kept in memory.
struct IsolationLabels<'p> {
    plan: &'p Plan,
    id: u64,
}

impl Serialize for IsolationLabels<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.plan.isolation_labels(self.id))
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct PoolLocation {
    pool_index: u64,
    inpool_index: Option<u64>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Export<'p> {
    port_id: u32,
    operator_index: u32,
    operator_port: u64,
    splitter_index: Option<u32>,
    channel_index: Option<u32>,
    name: Option<&'p str>,
    export_oper_name: &'p str,
    allow_filter: bool,
    congestion_policy: &'static str,
    properties: Option<Vec<Property<'p>>>,
}

#[derive(Serialize)]
struct Property<'p> {
    name: &'p str,
    r#type: &'p str,
    values: &'p [String],
}

fn export(port: &ExportedPort) -> Export<'_> {
    let export = &port.export;
    Export {
        port_id: port.port_id,
        operator_index: port.operator_index,
        operator_port: port.operator_port,
        splitter_index: port.via.map(|via| via.splitter),
        channel_index: port.via.map(|via| via.channel),
        name: export.name.as_deref(),
        export_oper_name: &export.operator_name,
        allow_filter: export.allow_filter,
        congestion_policy: if export.drop_connection { "dropConnection" } else { "wait" },
        properties: export.properties.as_ref().map(|properties| {
            properties.iter().map(|p| Property { name: &p.name, r#type: &p.r#type, values: &p.values }).collect()
        }),
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Import<'p> {
    port_id: u32,
    operator_index: u32,
    operator_port: u64,
    filter: Option<&'p str>,
    name_based: Vec<NameImport<'p>>,
    property_based: Option<PropertyImport<'p>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct NameImport<'p> {
    key: usize,
    application_name: &'p str,
    application_scope: &'p str,
    stream_name: &'p str,
    import_oper_name: &'p str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct PropertyImport<'p> {
    subscription: &'p str,
    application_scope: &'p str,
    import_oper_name: &'p str,
    index: u64,
}

fn import(port: &ImportedPort) -> Import<'_> {
    let by_name = port.imports.by_name.iter().enumerate().map(|(key, import)| NameImport {
        key,
        application_name: &import.application_name,
        application_scope: &import.application_scope,
        stream_name: &import.stream_name,
        import_oper_name: &import.operator_name,
    });
    let by_properties = port.imports.by_properties.as_ref().map(|import| PropertyImport {
        subscription: &import.subscription,
        application_scope: &import.application_scope,
        import_oper_name: &import.operator_name,
        index: import.index,
    });
    Import {
        port_id: port.port_id,
        operator_index: port.operator_index,
        operator_port: port.operator_port,
        filter: port.imports.filter.as_deref(),
        name_based: by_name.collect(),
        property_based: by_properties,
    }
}
