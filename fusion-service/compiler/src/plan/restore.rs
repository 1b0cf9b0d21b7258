//! Restores a compiled job from its layout: on another replica, after a crash, or for a resize.

use super::Compiled;
use super::assemble::Grouping;
use super::change::Prior;
use super::layout::{Layout, LayoutError, RestoreError};
use super::layout_bytes::PackedLayout;
use super::record::pre_order;
use super::request::{BoundRequest, Request, Source};
use crate::aadl::{Measure, Writer};
use crate::budget::Budget;
use crate::elements::PriorPorts;
use crate::fuser::{Graph, Partition, PeId, PeInput, PeOutput};
use crate::logical::Application;
use crate::shared::Shared;
use crate::topology::{Connection, Identity, Numbering, Splitter, Topology, Via, relabel};
use cranelift_entity::{EntityRef, PrimaryMap};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Restores the job that a layout was made from. Its documents are the same to the byte if the request and the version
/// of the compiler are the same. Their ids and sizes come from the layout. In the plan, every PE counts as added
/// (rule layout-6).
///
/// # Errors
///
/// The layout is damaged or does not belong to the application and the request (rule layout-5), or a stage fails.
pub fn restore(
    source: &Source,
    request: &Arc<Request>,
    layout: &[u8],
    budget: &Budget,
) -> Result<Compiled, RestoreError> {
    let packed = PackedLayout::open(layout, budget)?;
    // What belongs to something else is not read any further.
    if packed.adl() != source.digest {
        return Err(foreign("it was made from another ADL"));
    }
    if packed.request() != request.digest() {
        return Err(foreign("it was made for another job, or with other submission-time values or settings"));
    }
    let layout = packed.read(budget)?;
    request.check()?;
    let bound = BoundRequest::new(source, request, budget)?;
    let names = region_names(&source.application);
    let widths: Vec<(String, i128)> = (layout.widths.iter())
        .map(|(region, width)| Some(((*names.get(region)?).to_owned(), i128::from(*width))))
        .collect::<Option<_>>()
        .ok_or_else(|| foreign("it has an unknown parallel region"))?;
    let fresh = bound.expand(source, widths, budget)?;
    // Not every region of the application is in force: of several for one operator, one is.
    if !fresh.regions.iter().map(|region| (region.index, region.width)).eq(layout.widths.iter().copied()) {
        return Err(foreign("it has other parallel regions"));
    }
    let topology = Arc::new(numbered(fresh, &layout)?);
    let (partition, ids) = grouping(&topology, &layout)?;
    let graph = Graph::from_topology(&topology, budget)?;
    let grouping = Grouping { partition, ids, automatic: None, automatic_count: layout.automatic_count };
    let ports = LayoutPorts { layout: &layout, topology: &topology };
    let assembled = grouping.assemble(bound, &topology, &graph, Prior::None, Some(&ports), budget)?;
    let writer = Writer::new(&assembled.elements, &request.job_name, request.job_id, None, budget)?;
    let measures: Vec<Measure> = (layout.elements.iter())
        .map(|e| Measure { content_id: e.content_id, runtime_id: e.runtime_id, bytes: e.bytes })
        .collect();
    let mut compiled = assembled.with_measures(source, request, writer, &measures, budget)?;
    // Checks that the restored job has everything that the layout has, ports included.
    compiled.plan.compiler.clone_from(&layout.compiler);
    if compiled.layout_within(budget)? != layout {
        return Err(foreign("it has other PE ports"));
    }
    Ok(compiled)
}

/// The ports of a layout.
struct LayoutPorts<'a> {
    layout: &'a Layout,
    topology: &'a Topology,
}

impl PriorPorts for LayoutPorts<'_> {
    fn input(&self, pe: PeId, port: PeInput) -> Option<u32> {
        let ports = &self.layout.element(pe)?.inputs;
        let key = (self.topology.operators[port.operator].index, port.port);
        let found = ports.binary_search_by_key(&key, |known| (known.operator, known.port)).ok()?;
        ports.get(found).map(|known| known.id)
    }

    fn output(&self, pe: PeId, port: PeOutput) -> Option<u32> {
        let ports = &self.layout.element(pe)?.outputs;
        let key = (self.topology.operators[port.operator].index, port.port, port.via);
        let found = ports.binary_search_by_key(&key, |known| (known.operator, known.port, known.via)).ok()?;
        ports.get(found).map(|known| known.id)
    }
}

fn foreign(what: &str) -> RestoreError {
    LayoutError::Foreign(what.to_owned()).into()
}

/// Gives the fresh topology exactly the numbers of the layout.
fn numbered(fresh: Topology, layout: &Layout) -> Result<Topology, RestoreError> {
    let known = &layout.numbering.operators;
    let exists = |identity: &Identity| known.binary_search_by(|(other, _)| other.cmp(identity)).is_ok();
    let application = Arc::clone(&fresh.application);
    if fresh.operators.len() != known.len() || !fresh.operators.values().all(|o| exists(&o.identity(&application))) {
        return Err(foreign("it has other operators"));
    }
    let mut topology = relabel(fresh, &layout.numbering);
    for tree in &layout.splitter_trees {
        let found = topology.operators.as_values_slice().binary_search_by_key(&tree.operator, |o| o.index);
        let node = found.ok().map(EntityRef::new);
        let output = node
            .and_then(|node| topology.operators.get_mut(node))
            .map(Shared::to_mut)
            .and_then(|operator| operator.outputs.get_mut(tree.port as usize));
        let (Some(node), Some(output)) = (node, output) else { return Err(foreign("it has other output ports")) };
        let before = pre_order(&output.splitters);
        if before.len() != tree.indexes.len() {
            return Err(foreign("it has other splitters"));
        }
        let map: BTreeMap<u32, u32> = before.into_iter().zip(tree.indexes.iter().copied()).collect();
        rename(&mut output.splitters, &map);
        let start = topology.connections.partition_point(|c| (c.source, c.source_port) < (node, tree.port));
        for connection in &mut topology.connections[start..] {
            if (connection.source, connection.source_port) != (node, tree.port) {
                break;
            }
            if let Some(Via { splitter, channel }) = connection.via() {
                let splitter = map.get(&splitter).copied().unwrap_or(splitter);
                let target = (connection.target, connection.target_port);
                *connection = Connection::new((node, tree.port), target, Some(Via { splitter, channel }));
            }
        }
    }
    if Numbering::of(&topology) != layout.numbering {
        return Err(foreign("it has other splitters or host pools"));
    }
    Ok(topology)
}

/// Depth is bounded by the nesting of regions in the ADL.
fn rename(splitters: &mut [Splitter], map: &BTreeMap<u32, u32>) {
    let mut open: Vec<&mut Splitter> = splitters.iter_mut().collect();
    while let Some(splitter) = open.pop() {
        if let Some(&index) = map.get(&splitter.index) {
            splitter.index = index;
        }
        open.extend(splitter.nested.iter_mut().map(|(_, nested)| nested));
    }
}

fn grouping(
    topology: &Topology,
    layout: &Layout,
) -> Result<(Partition, PrimaryMap<crate::fuser::Pe, PeId>), RestoreError> {
    let mut element_of: BTreeMap<u32, usize> = BTreeMap::new();
    for (position, element) in layout.elements.iter().enumerate() {
        element_of.extend(element.operators.iter().map(|&index| (index, position)));
    }
    let groups: Vec<usize> = (topology.operators.values())
        .map(|operator| element_of.get(&operator.index).copied())
        .collect::<Option<_>>()
        .ok_or_else(|| foreign("an operator is in no PE"))?;
    let partition = Partition::group(groups.len(), layout.elements.len(), |node| groups[node.index()]);
    let ids = partition
        .pes()
        .map(|pe| {
            let node = partition.operators(pe).first()?;
            Some(layout.elements.get(*groups.get(node.index())?)?.id)
        })
        .collect::<Option<_>>()
        .ok_or_else(|| foreign("a PE has no operator"))?;
    Ok((partition, ids))
}

/// Names of parallel regions by ADL index: the logical name of the operator.
pub(super) fn region_names(application: &Application) -> BTreeMap<u64, &str> {
    let operators: BTreeMap<u64, &str> =
        application.operators.values().map(|o| (o.index, o.logical_name.as_str())).collect();
    let name =
        |region: &crate::logical::ParallelRegion| Some((region.index, operators.get(&region.operator).copied()?));
    application.regions.iter().filter_map(name).collect()
}
