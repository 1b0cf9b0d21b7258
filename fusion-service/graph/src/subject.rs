//! The operators and PEs of a job that is drawn, before and after a resize, and what the resize does to each.
//!
//! Knows: compiled jobs, what a resize does. Must not know: limits of a drawing, how it is written.

use super::drawing::{Mark, Node, NodeId, NodeKind};
use super::outline::{Connection, Description, When};
use super::text::{last_part, long, short, shortened};
use cranelift_entity::SecondaryMap;
use std::collections::{BTreeMap, HashMap};
use streams_compiler::fuser::PeId;
use streams_compiler::logical::{Application, ParallelRegion, SplitterKind, Width};
use streams_compiler::phrase::counted;
use streams_compiler::plan::{Compiled, Fate, Placement, Reason};
use streams_compiler::topology::{self, PhysicalOperator, Topology};

/// A job that is drawn.
pub(super) struct Subject<'a> {
    pub(super) now: &'a Compiled,
    pub(super) before: Option<&'a Compiled>,
    /// Ascending index.
    pub(super) operators: Vec<DrawnOperator<'a>>,
    pub(super) elements: BTreeMap<PeId, Element<'a>>,
    regions: HashMap<u64, &'a ParallelRegion>,
}

/// An operator that is there, or was.
pub(super) struct DrawnOperator<'a> {
    /// As it is now, or was at last.
    pub(super) operator: &'a PhysicalOperator,
    pub(super) now: Option<topology::Node>,
    pub(super) before: Option<topology::Node>,
    /// Where it is now, or was at last.
    pub(super) element: PeId,
    /// Where it was, if that is elsewhere.
    pub(super) moved_from: Option<PeId>,
}

/// A PE that is there, or was.
pub(super) struct Element<'a> {
    pub(super) mark: Option<Mark>,
    pub(super) reason: Option<&'a Reason>,
    pub(super) operators: usize,
    /// None of one that is gone.
    pub(super) placement: Option<&'a Placement>,
    pub(super) bytes: Option<u64>,
}

impl<'a> Subject<'a> {
    /// A job as it is, or what a resize made of it: then `before` is what was resized.
    pub(super) fn new(now: &'a Compiled, before: Option<&'a Compiled>) -> Self {
        let elements = elements(now, before);
        let mut by_index: BTreeMap<u32, DrawnOperator<'a>> = BTreeMap::new();
        // Operators keep their index; so one of two topologies is the same one in the other.
        if let Some(before) = before {
            for (node, operator) in &before.topology().operators {
                let drawn = DrawnOperator {
                    operator,
                    now: None,
                    before: Some(node),
                    element: pe(before, node),
                    moved_from: None,
                };
                by_index.insert(operator.index, drawn);
            }
        }
        for (node, operator) in &now.topology().operators {
            let earlier = by_index.get(&operator.index).map(|drawn| (drawn.before, drawn.element));
            let element = pe(now, node);
            let drawn = DrawnOperator {
                operator,
                now: Some(node),
                before: earlier.and_then(|(before, _)| before),
                element,
                moved_from: earlier.map(|(_, from)| from).filter(|from| *from != element),
            };
            by_index.insert(operator.index, drawn);
        }
        let regions = now.topology().application.regions.iter().map(|region| (region.operator, region)).collect();
        Self { now, before, operators: by_index.into_values().collect(), elements, regions }
    }

    pub(super) fn application(&self) -> &'a Application {
        &self.now.topology().application
    }

    /// The region whose parallel operator this is, by ADL index.
    pub(super) fn region_of(&self, operator: u64) -> Option<&'a ParallelRegion> {
        self.regions.get(&operator).copied()
    }

    /// What a resize does to an operator.
    pub(super) fn mark(&self, drawn: &DrawnOperator<'_>) -> Option<Mark> {
        self.before?;
        Some(match (drawn.before, drawn.now) {
            (None, _) => Mark::Added,
            (_, None) => Mark::Removed,
            _ if drawn.moved_from.is_some() => Mark::Restarted,
            _ => match self.elements.get(&drawn.element).and_then(|element| element.mark) {
                Some(Mark::Kept) => Mark::Kept,
                _ => Mark::Restarted,
            },
        })
    }

    /// The node of an operator, called `label`.
    pub(super) fn node(&self, drawn: &DrawnOperator<'_>, label: &str) -> Node {
        let (application, operator) = (self.application(), drawn.operator);
        let written = &application.operators[operator.logical];
        let mut details = Vec::new();
        let mut tooltip = vec![long(&operator.name)];
        if let Some(kind) = kind(application, operator) {
            details.push(short(last_part(kind, "::")));
            tooltip.push(long(kind));
        }
        tooltip.push(format!("operator {}, as written {}", operator.index, written.index));
        for channel in &operator.channels {
            let name = region(self.now.topology(), channel.region).map_or("", |region| region.name.as_str());
            tooltip.push(format!("channel {} of {} of {}", channel.local, channel.local_max, long(name)));
        }
        if let Some(index) = operator.consistent_region {
            details.push(format!("consistent region {index}"));
        }
        match drawn.moved_from {
            Some(from) => tooltip.push(format!("moves from PE {from} to PE {}", drawn.element)),
            None => tooltip.push(format!("PE {}", drawn.element)),
        }
        Node {
            parent: None,
            kind: NodeKind::Operator,
            label: short(label),
            details,
            tooltip,
            mark: self.mark(drawn),
            inputs: ports(operator.inputs.len()),
            outputs: ports(operator.outputs.len()),
        }
    }

    /// What is written at a region.
    pub(super) fn describe_region(&self, index: u64) -> Description {
        let Some(written) = self.application().regions.iter().find(|region| region.index == index) else {
            return Description::default();
        };
        let now = region(self.now.topology(), written.index);
        let before = self.before.and_then(|before| region(before.topology(), written.index));
        let name = now.map_or("", |region| region.name.as_str());
        describe_region(name, written, before.map(|region| region.width), now.map(|region| region.width))
    }

    /// A region in force, by ADL index.
    pub(super) fn region(&self, index: u64) -> Option<&'a topology::Region> {
        region(self.now.topology(), index)
    }

    /// Passes on all connections: `node_of` has the node of each operator, in their order.
    pub(super) fn connections(&self, node_of: &[NodeId], to: &mut dyn FnMut(Connection)) {
        let side = |topology: &Topology, own: &dyn Fn(&DrawnOperator<'_>) -> Option<topology::Node>| {
            let mut nodes: SecondaryMap<topology::Node, Option<NodeId>> =
                SecondaryMap::with_capacity(topology.operators.len());
            for (drawn, node) in self.operators.iter().zip(node_of) {
                if let Some(own) = own(drawn) {
                    nodes[own] = Some(*node);
                }
            }
            nodes
        };
        let mut walk = |topology: &Topology, nodes: SecondaryMap<topology::Node, Option<NodeId>>, when: When| {
            for connection in &topology.connections {
                let (Some(source), Some(target)) = (nodes[connection.source], nodes[connection.target]) else {
                    continue;
                };
                let (source_port, target_port) = (connection.source_port, connection.target_port);
                let split = connection.via().is_some();
                to(Connection { source, source_port, target, target_port, split, when });
            }
        };
        if let Some(before) = self.before {
            let topology = before.topology();
            walk(topology, side(topology, &|drawn| drawn.before), When::Before);
        }
        let topology = self.now.topology();
        walk(topology, side(topology, &|drawn| drawn.now), When::Now);
    }

    /// What the picture is about.
    pub(super) fn notes(&self) -> Vec<String> {
        let topology = self.now.topology();
        let mut notes = Vec::new();
        if let Some(before) = self.before {
            let widths =
                topology.regions.iter().zip(&before.topology().regions).filter(|(now, was)| now.width != was.width);
            let resized: Vec<String> =
                widths.map(|(now, was)| format!("{} from {} to {}", short(&now.name), was.width, now.width)).collect();
            let count = |mark| self.elements.values().filter(|element| element.mark == Some(mark)).count();
            let counts: Vec<String> =
                Mark::ALL.into_iter().map(|mark| format!("{} {}", count(mark), mark.word())).collect();
            let resized = if resized.is_empty() { "no width changes".to_owned() } else { resized.join(", ") };
            notes.push(format!("Resize: {resized}. PEs: {}.", counts.join(", ")));
        }
        notes.push(format!(
            "{} in {}, {}.",
            counted(topology.operators.len(), "operator"),
            counted(self.now.plan().elements.len(), "PE"),
            counted(topology.connections.len(), "connection"),
        ));
        notes
    }

    /// Title of a drawing.
    pub(super) fn title(&self, view: &str) -> String {
        title(self.application(), view)
    }
}

/// Title of a drawing.
pub(super) fn title(application: &Application, view: &str) -> String {
    format!("{}, {view}", shortened(&application.name, 60))
}

/// What is written at a region.
pub(super) fn describe_region(
    name: &str,
    written: &ParallelRegion,
    before: Option<u32>,
    now: Option<u32>,
) -> Description {
    let width = match (before, now) {
        (Some(before), Some(now)) if before != now => format!("width {before} → {now}"),
        (_, Some(now)) => format!("width {now}"),
        _ => match written.width {
            Width::Constant(width) => format!("width {width}"),
            Width::SubmissionValue(_) => "width given at submission".to_owned(),
            Width::Absent => "no width".to_owned(),
        },
    };
    let mut details = vec![format!("parallel, {width}")];
    let mut tooltip = vec![long(name)];
    for splitter in &written.splitters {
        let how = match splitter.kind {
            SplitterKind::RoundRobin => "in turn".to_owned(),
            SplitterKind::Broadcast => "to all channels".to_owned(),
            SplitterKind::Hash => format!("by {}", shortened(&splitter.attributes.join(", "), 40)),
        };
        tooltip.push(format!("input port {}: tuples are split {how}", splitter.input_port));
        if details.len() < 2 {
            details.push(format!("split {how}"));
        }
    }
    Description { label: short(last_part(name, ".")), details, tooltip, mark: None }
}

/// Ports that are drawn.
pub(super) fn ports(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

/// A region in force, by ADL index.
fn region(topology: &Topology, index: u64) -> Option<&topology::Region> {
    let at = topology.regions.binary_search_by_key(&index, |region| region.index).ok()?;
    topology.regions.get(at)
}

/// `spl.utility::Custom`.
fn kind<'a>(application: &'a Application, operator: &PhysicalOperator) -> Option<&'a str> {
    let definition = operator.primitive(application)?.definition;
    let at = application.definitions.binary_search_by_key(&definition, |d| d.index).ok()?;
    application.definitions.get(at).map(|d| d.kind.as_str())
}

fn pe(compiled: &Compiled, node: topology::Node) -> PeId {
    let elements = compiled.elements();
    elements.id(elements.partition().pe(node))
}

fn elements<'a>(now: &'a Compiled, before: Option<&'a Compiled>) -> BTreeMap<PeId, Element<'a>> {
    let mut elements = BTreeMap::new();
    for element in &now.plan().elements {
        let mark = match element.fate {
            Fate::Added => Mark::Added,
            Fate::Kept | Fate::KeptUnobservable => Mark::Kept,
            Fate::Restarted => Mark::Restarted,
        };
        elements.insert(
            element.id,
            Element {
                mark: before.map(|_| mark),
                reason: element.reason.as_deref().filter(|_| before.is_some()),
                operators: element.operators.len(),
                placement: Some(&element.placement),
                bytes: Some(element.bytes),
            },
        );
    }
    if let Some(before) = before {
        let removed = now.plan().change.iter().flat_map(|change| &change.removed);
        let reasons: HashMap<PeId, &Reason> =
            removed.filter_map(|removed| Some((removed.id, removed.reason.as_ref()?))).collect();
        for element in &before.plan().elements {
            elements.entry(element.id).or_insert_with(|| Element {
                mark: Some(Mark::Removed),
                reason: reasons.get(&element.id).copied(),
                operators: element.operators.len(),
                placement: None,
                bytes: None,
            });
        }
    }
    elements
}
