//! Makes the outline of the application as written: composites, parallel regions, and streams from operator to operator
//! through the ports of composites.

use super::drawing::{ClusterId, Node, NodeId, NodeKind};
use super::fold::fold;
use super::outline::{ClusterKey, Connection, Description, Outline, When};
use super::running::owners;
use super::subject::{describe_region, ports, title};
use super::text::{last_part, long, short, shortened};
use super::{Drawing, DrawingLimits};
use std::collections::{HashMap, HashSet};
use streams_compiler::budget::Budget;
use streams_compiler::error::Error;
use streams_compiler::logical::{
    self, Application, ImportedStreams, Operator, OperatorId, OperatorKind, ParallelRegion, PortKind,
};
use streams_compiler::phrase::counted;
use streams_compiler::topology::Region;

/// Streams that are looked for: those of composite ports with many ends on both sides multiply.
const MOST_STREAMS: usize = 1_000_000;

/// Widths of regions: before a resize and now.
#[derive(Clone, Copy, Debug, Default)]
pub struct Widths<'a> {
    /// Before a resize; empty without one.
    pub before: &'a [Region],
    /// In force; empty where the application was not compiled.
    pub now: &'a [Region],
}

/// The logical graph.
pub(super) fn logical(
    application: &Application,
    widths: Widths<'_>,
    limits: DrawingLimits,
    budget: &Budget,
) -> Result<Drawing, Error> {
    let regions: HashMap<u64, &ParallelRegion> = application.regions.iter().map(|r| (r.operator, r)).collect();
    let mut outline = Outline::default();
    let mut nodes: HashMap<OperatorId, NodeId> = HashMap::new();
    let mut pace = budget.pace();
    for (id, operator) in &application.operators {
        pace.step()?;
        let Some(mut node) = node(application, operator) else { continue };
        let mut around: Option<ClusterId> = None;
        let mut composites: Vec<OperatorId> = owners(application, id).collect();
        composites.reverse();
        for composite in composites {
            let composite = &application.operators[composite];
            around = Some(match regions.get(&composite.index) {
                Some(region) => region_cluster(&mut outline, around, region, composite, widths),
                None => outline.cluster(around, ClusterKey::Composite(composite.index), || Description {
                    label: short(&composite.name),
                    tooltip: vec![long(&composite.logical_name)],
                    ..Description::default()
                }),
            });
        }
        if let Some(region) = regions.get(&operator.index) {
            around = Some(region_cluster(&mut outline, around, region, operator, widths));
        }
        node.parent = around;
        nodes.insert(id, outline.node(node, operator.index, None));
    }
    let Streams { streams, complete } = Streams::of(application, budget)?;
    let connections = |to: &mut dyn FnMut(Connection)| {
        for stream in &streams {
            let (Some(&source), Some(&target)) = (nodes.get(&stream.source), nodes.get(&stream.target)) else {
                continue;
            };
            let (source_port, target_port, when) = (stream.source_port, stream.target_port, When::Now);
            to(Connection { source, source_port, target, target_port, split: stream.split, when });
        }
    };
    let mut notes = vec![format!(
        "{}, {}, {} as written.",
        counted(nodes.len(), "operator"),
        counted(application.regions.len(), "parallel region"),
        counted(streams.len(), "stream"),
    )];
    if !complete {
        notes.push(format!("Only the first {MOST_STREAMS} streams are drawn."));
    }
    fold(&outline, &connections, title(application, "logical graph"), notes, limits, budget)
}

fn region_cluster(
    outline: &mut Outline,
    around: Option<ClusterId>,
    region: &ParallelRegion,
    operator: &Operator,
    widths: Widths<'_>,
) -> ClusterId {
    let width = |regions: &[Region]| regions.iter().find(|r| r.index == region.index).map(|r| r.width);
    outline.cluster(around, ClusterKey::Region(region.index), || {
        describe_region(&operator.logical_name, region, width(widths.before), width(widths.now))
    })
}

/// The node of an operator; composites have none.
fn node(application: &Application, operator: &Operator) -> Option<Node> {
    let mut tooltip = vec![long(&operator.logical_name), format!("operator {}", operator.index)];
    let (kind, details, inputs, outputs) = match &operator.kind {
        OperatorKind::Composite(_) => return None,
        OperatorKind::Primitive(primitive) => {
            let definition = application.definitions.binary_search_by_key(&primitive.definition, |d| d.index).ok();
            let kind = definition.and_then(|at| application.definitions.get(at)).map_or("", |d| d.kind.as_str());
            tooltip.push(long(kind));
            let mut details = vec![short(last_part(kind, "::"))];
            if let Some(entry) = &primitive.consistent {
                details.push(format!("consistent region {}", entry.region));
            }
            (NodeKind::Operator, details, primitive.inputs.len(), primitive.outputs.len())
        }
        OperatorKind::Import(import) => {
            let what = match &import.streams {
                ImportedStreams::ByName(names) => names
                    .iter()
                    .map(|name| format!("{} of {}", name.stream_name, name.application_name))
                    .collect::<Vec<_>>()
                    .join(", "),
                ImportedStreams::ByProperties { subscription, .. } => subscription.clone(),
            };
            tooltip.push(long(&what));
            tooltip.extend(import.filter.iter().map(|filter| format!("filter {}", long(filter))));
            (NodeKind::Import, vec!["import".to_owned(), shortened(&what, 30)], 0, import.outputs.len())
        }
        OperatorKind::Export(export) => {
            let mut details = vec!["export".to_owned()];
            details.extend(export.stream_name.iter().map(|name| format!("as {}", short(name))));
            (NodeKind::Export, details, export.inputs.len(), 0)
        }
    };
    Some(Node {
        parent: None,
        kind,
        label: short(&operator.name),
        details,
        tooltip,
        mark: None,
        inputs: ports(inputs),
        outputs: ports(outputs),
    })
}

/// A stream between operators that are no composites; ports are positions.
struct Stream {
    source: OperatorId,
    source_port: u32,
    target: OperatorId,
    target_port: u32,
    split: bool,
}

struct Streams {
    streams: Vec<Stream>,
    /// There are no more.
    complete: bool,
}

/// An input or output port of an operator, by ADL indexes.
type PortKey = (u64, PortKind, u64);

impl Streams {
    /// Follows connections downstream from every output port, through the ports of composites. Connections whose other
    /// end does not exist lead nowhere.
    fn of(application: &Application, budget: &Budget) -> Result<Self, Error> {
        let parallel: HashSet<u64> = application.regions.iter().map(|region| region.operator).collect();
        let mut through: HashMap<PortKey, &[logical::ConnectionEnd]> = HashMap::new();
        let mut inputs: HashMap<(u64, u64), (OperatorId, u32)> = HashMap::new();
        for (id, operator) in &application.operators {
            match &operator.kind {
                OperatorKind::Composite(composite) => {
                    for (kind, list) in [(PortKind::Input, &composite.inputs), (PortKind::Output, &composite.outputs)] {
                        through
                            .extend(list.iter().map(|port| ((operator.index, kind, port.index), &port.outgoing[..])));
                    }
                }
                OperatorKind::Primitive(primitive) => inputs.extend(
                    (0..).zip(&primitive.inputs).map(|(at, port)| ((operator.index, port.port.index), (id, at))),
                ),
                OperatorKind::Export(export) => {
                    inputs.extend((0_u32..).zip(&export.inputs).map(|(at, _)| ((operator.index, at.into()), (id, at))));
                }
                OperatorKind::Import(_) => {}
            }
        }
        let mut pace = budget.pace();
        let mut streams = Vec::new();
        let mut steps = 0_usize;
        for (source, operator) in &application.operators {
            let outputs: Vec<&[logical::ConnectionEnd]> = match &operator.kind {
                OperatorKind::Primitive(primitive) => {
                    primitive.outputs.iter().map(|port| port.port.connections.as_slice()).collect()
                }
                OperatorKind::Import(import) => import.outputs.iter().map(Vec::as_slice).collect(),
                OperatorKind::Composite(_) | OperatorKind::Export(_) => continue,
            };
            for (source_port, connections) in (0_u32..).zip(outputs) {
                let mut seen: HashSet<PortKey> = HashSet::new();
                let mut open: Vec<(&logical::ConnectionEnd, bool)> =
                    connections.iter().rev().map(|c| (c, false)).collect();
                while let Some((connection, split)) = open.pop() {
                    pace.step()?;
                    steps += 1;
                    if steps > MOST_STREAMS {
                        return Ok(Self { streams, complete: false });
                    }
                    let key = (connection.operator, connection.kind, connection.port);
                    if !seen.insert(key) {
                        continue;
                    }
                    let into = connection.kind == PortKind::Input;
                    let split = split || (into && parallel.contains(&connection.operator));
                    if let Some(onward) = through.get(&key) {
                        open.extend(onward.iter().rev().map(|connection| (connection, split)));
                    } else if let Some(&(target, target_port)) =
                        inputs.get(&(connection.operator, connection.port)).filter(|_| into)
                    {
                        streams.push(Stream { source, source_port, target, target_port, split });
                    }
                }
            }
        }
        Ok(Self { streams, complete: true })
    }
}
