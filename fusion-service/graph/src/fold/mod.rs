//! From an outline to a drawing of bounded size.
//!
//! What is too much is not refused but folded, in this order, until it fits:
//!
//! 1. members of one cluster that are alike: the first is drawn, one node stands for the others ("channels 1–9, like
//!    channel 0");
//! 2. clusters become nodes, the innermost first;
//! 3. the last members of the outside become one node.
//!
//! Two members are alike if they are of one kind, have one origin in the application and one mark, and contain alike
//! members. What they are connected to does not count. Time is linear in the outline and its connections, up to
//! sorting, for each step.
//!
//! Knows: outlines, limits of a drawing. Must not know: jobs, how a drawing is written.

mod shapes;

use super::drawing::{Cluster, ClusterId, ClusterKind, Edge, End, MOST_PORTS, Mark, Member, Node, NodeId, NodeKind};
use super::outline::{Connection, Outline, Outlined, When};
use super::{Drawing, DrawingLimits, text};
use cranelift_entity::{PrimaryMap, SecondaryMap};
use shapes::{Inside, Shapes};
use std::collections::HashMap;
use streams_compiler::budget::Budget;
use streams_compiler::error::Error;
use streams_compiler::phrase::counted;

/// Walks through the connections of an outline.
pub(super) type Connections<'a> = dyn Fn(&mut dyn FnMut(Connection)) + 'a;

/// Draws an outline within the limits.
pub(super) fn fold(
    outline: &Outline,
    connections: &Connections<'_>,
    title: String,
    mut notes: Vec<String>,
    limits: DrawingLimits,
    budget: &Budget,
) -> Result<Drawing, Error> {
    let shapes = Shapes::of(outline);
    let deepest = shapes.depth.values().copied().max().unwrap_or(0);
    let unfolded = Folding { alike: false, depth: usize::MAX, most: usize::MAX };
    let alike = Folding { alike: true, ..unfolded };
    let collapsed = (0..deepest).rev().map(|depth| Folding { depth, ..alike });
    let halves = std::iter::successors(Some(limits.boxes.max(2)), |most| (*most > 2).then_some(most / 2));
    let cut = halves.map(|most| Folding { most, depth: 0, ..alike });

    let mut drawn = None;
    for folding in [unfolded, alike].into_iter().chain(collapsed).chain(cut) {
        budget.check()?;
        let folded = Folded::new(outline, &shapes, folding);
        if folded.nodes.len() + folded.clusters.len() > limits.boxes && folding.most > 2 {
            continue;
        }
        let edges = folded.edges(outline, connections);
        let fits = edges.len() <= limits.edges;
        drawn = Some((folded, edges));
        if fits {
            break;
        }
    }
    let Some((folded, edges)) = drawn else {
        return Ok(Drawing { title, notes, clusters: PrimaryMap::new(), nodes: PrimaryMap::new(), edges: Vec::new() });
    };
    if folded.nodes.values().any(|node| node.kind == NodeKind::Folded) {
        notes.push(format!(
            "{} drawn as {}; nodes with a double border stand for several things.",
            counted(outline.nodes.len(), "node"),
            folded.nodes.len()
        ));
    }
    Ok(Drawing { title, notes, clusters: folded.clusters, nodes: folded.nodes, edges })
}

/// How much is folded.
#[derive(Clone, Copy, Debug)]
struct Folding {
    /// Things that are alike become one node.
    alike: bool,
    /// Clusters with as many around them become nodes.
    depth: usize,
    /// Things at the outside.
    most: usize,
}

/// Where a cluster of the outline is in the drawing.
#[derive(Clone, Copy, Debug, Default)]
enum Place {
    /// Not there yet.
    #[default]
    Unknown,
    Cluster(ClusterId),
    /// In a node that stands for several members.
    Node(NodeId),
}

/// A folded outline.
struct Folded {
    clusters: PrimaryMap<ClusterId, Cluster>,
    nodes: PrimaryMap<NodeId, Node>,
    /// The drawn node of each node of the outline.
    node_of: SecondaryMap<NodeId, Option<NodeId>>,
}

impl Folded {
    fn new(outline: &Outline, shapes: &Shapes, folding: Folding) -> Self {
        let groups = groups(outline, shapes, folding);
        let mut folded = Self {
            clusters: PrimaryMap::new(),
            nodes: PrimaryMap::new(),
            node_of: SecondaryMap::with_capacity(outline.nodes.len()),
        };
        let mut folded_groups: Vec<Option<NodeId>> = vec![None; groups.members.len()];
        let mut places: SecondaryMap<ClusterId, Place> = SecondaryMap::with_capacity(outline.clusters.len());
        for (id, cluster) in &outline.clusters {
            let around = cluster.item.parent.map(|parent| places[parent]);
            let parent = match around {
                Some(Place::Node(node)) => {
                    places[id] = Place::Node(node);
                    continue;
                }
                Some(Place::Cluster(parent)) => Some(parent),
                Some(Place::Unknown) | None => None,
            };
            places[id] = if let Some(group) = groups.of_cluster[id] {
                Place::Node(folded.fold_group(outline, shapes, &groups, group, parent, &mut folded_groups))
            } else if shapes.depth[id] >= folding.depth {
                Place::Node(folded.nodes.push(collapsed(cluster, shapes, id, parent)))
            } else {
                Place::Cluster(folded.clusters.push(Cluster { parent, ..cluster.item.clone() }))
            };
        }
        for (id, node) in &outline.nodes {
            let around = node.item.parent.map(|parent| places[parent]);
            let parent = match around {
                Some(Place::Node(node)) => {
                    folded.node_of[id] = Some(node);
                    continue;
                }
                Some(Place::Cluster(parent)) => Some(parent),
                Some(Place::Unknown) | None => None,
            };
            folded.node_of[id] = Some(match groups.of_node[id] {
                Some(group) => folded.fold_group(outline, shapes, &groups, group, parent, &mut folded_groups),
                None => folded.nodes.push(Node {
                    parent,
                    inputs: if node.item.inputs > MOST_PORTS { 1 } else { node.item.inputs },
                    outputs: if node.item.outputs > MOST_PORTS { 1 } else { node.item.outputs },
                    ..node.item.clone()
                }),
            });
        }
        folded
    }

    /// The node that stands for a group.
    fn fold_group(
        &mut self,
        outline: &Outline,
        shapes: &Shapes,
        groups: &Groups,
        group: usize,
        parent: Option<ClusterId>,
        known: &mut [Option<NodeId>],
    ) -> NodeId {
        if let Some(node) = known[group] {
            return node;
        }
        let node = self.nodes.push(Node { parent, ..group_node(outline, shapes, &groups.members[group]) });
        known[group] = Some(node);
        node
    }

    /// The edges between what is drawn.
    fn edges(&self, outline: &Outline, connections: &Connections<'_>) -> Vec<Edge> {
        #[derive(Default)]
        struct EdgeCounts {
            before: u32,
            now: u32,
            split: bool,
        }
        let mut counts: HashMap<(End, End), EdgeCounts> = HashMap::new();
        connections(&mut |connection: Connection| {
            let (Some(source), Some(target)) = (self.node_of[connection.source], self.node_of[connection.target])
            else {
                return;
            };
            let inside = source == target && self.nodes[source].kind == NodeKind::Folded;
            if inside {
                return;
            }
            let port = |port: u32, ports: u32| port.min(ports.saturating_sub(1));
            let ends = (
                End { node: source, port: port(connection.source_port, self.nodes[source].outputs) },
                End { node: target, port: port(connection.target_port, self.nodes[target].inputs) },
            );
            let counts = counts.entry(ends).or_default();
            match connection.when {
                When::Before => counts.before = counts.before.saturating_add(1),
                When::Now => counts.now = counts.now.saturating_add(1),
            }
            counts.split |= connection.split;
        });
        let difference = outline.nodes.values().any(|node| node.item.mark.is_some());
        let mut edges: Vec<Edge> = counts
            .into_iter()
            .map(|((source, target), EdgeCounts { before, now, split })| {
                let mark = match (before, now) {
                    (0, _) => Mark::Added,
                    (_, 0) => Mark::Removed,
                    _ => Mark::Kept,
                };
                Edge { source, target, mark: difference.then_some(mark), split, count: before.max(now) }
            })
            .collect();
        edges.sort_unstable();
        edges
    }
}

/// Things that one node each stands for.
struct Groups {
    /// The member that is drawn as the example of a group, if there is one, and the others.
    members: Vec<(Option<Member>, Vec<Member>)>,
    of_cluster: SecondaryMap<ClusterId, Option<usize>>,
    of_node: SecondaryMap<NodeId, Option<usize>>,
}

/// Finds members of one cluster that are alike, and the last members of the outside.
fn groups(outline: &Outline, shapes: &Shapes, folding: Folding) -> Groups {
    let mut groups = Groups { members: Vec::new(), of_cluster: SecondaryMap::new(), of_node: SecondaryMap::new() };
    if !folding.alike {
        return groups;
    }
    let members = (outline.clusters.iter())
        .map(|(id, c)| (Member::Cluster(id), c.item.parent, shapes.clusters[id], shapes.inside[id].nodes))
        .chain(outline.nodes.iter().map(|(id, n)| (Member::Node(id), n.item.parent, shapes.nodes[id], 1)));
    let mut position: HashMap<(Option<ClusterId>, u32), usize> = HashMap::new();
    let mut alike: Vec<(usize, Option<ClusterId>, Vec<Member>)> = Vec::new();
    for (member, parent, shape, size) in members {
        let at = *position.entry((parent, shape)).or_insert_with(|| {
            alike.push((size, parent, Vec::new()));
            alike.len() - 1
        });
        alike[at].2.push(member);
    }
    let mut outside = Vec::new();
    for (size, parent, mut members) in alike {
        if let Some(number) = members.iter().map(|member| number(outline, *member)).collect::<Option<Vec<u64>>>() {
            let mut numbered: Vec<(u64, Member)> = number.into_iter().zip(members).collect();
            numbered.sort_by_key(|(number, _)| *number);
            members = numbered.into_iter().map(|(_, member)| member).collect();
        }
        let others =
            if members.len() > 2 || (members.len() == 2 && size > 1) { members.split_off(1) } else { Vec::new() };
        let first = members.first().copied();
        if parent.is_none() {
            outside.extend(members);
        }
        if !others.is_empty() {
            if parent.is_none() {
                outside.extend(others.first());
            }
            groups.add(first, others);
        }
    }
    if outside.len() > folding.most {
        let mut rest = outside.split_off(folding.most - 1);
        // A member of the outside may stand for its group.
        let folded: Vec<usize> = rest.iter().filter_map(|member| groups.of(*member)).collect();
        let whole: Vec<Member> =
            folded.into_iter().flat_map(|group| std::mem::take(&mut groups.members[group].1)).collect();
        rest.retain(|member| groups.of(*member).is_none());
        rest.extend(whole);
        groups.add(None, rest);
    }
    groups
}

impl Groups {
    fn of(&self, member: Member) -> Option<usize> {
        match member {
            Member::Cluster(id) => self.of_cluster[id],
            Member::Node(id) => self.of_node[id],
        }
    }

    fn add(&mut self, first: Option<Member>, others: Vec<Member>) {
        let group = Some(self.members.len());
        for member in &others {
            match *member {
                Member::Cluster(id) => self.of_cluster[id] = group,
                Member::Node(id) => self.of_node[id] = group,
            }
        }
        self.members.push((first, others));
    }
}

fn number(outline: &Outline, member: Member) -> Option<u64> {
    match member {
        Member::Cluster(id) => outline.clusters[id].number,
        Member::Node(id) => outline.nodes[id].number,
    }
}

/// A cluster as a node.
fn collapsed(cluster: &Outlined<Cluster>, shapes: &Shapes, id: ClusterId, parent: Option<ClusterId>) -> Node {
    let Cluster { kind, label, mut details, tooltip, mark, .. } = cluster.item.clone();
    let mark = mark.or(cluster.inside);
    let Inside { operators, added, removed, .. } = shapes.inside[id];
    let mut size = counted(operators, "operator");
    if kind == ClusterKind::Composite {
        size.insert_str(0, "composite, ");
    }
    for (count, of) in [(added, Mark::Added), (removed, Mark::Removed)] {
        if count > 0 && mark != Some(of) {
            size.push_str(&format!(", {count} {}", of.word()));
        }
    }
    details.push(size);
    Node { parent, kind: NodeKind::Folded, label, details, tooltip, mark, inputs: 1, outputs: 1 }
}

/// Names in a tooltip.
const MOST_NAMES: usize = 20;

/// Ranges in a label.
const MOST_RANGES: usize = 4;

/// A node that stands for several members.
fn group_node(outline: &Outline, shapes: &Shapes, (first, others): &(Option<Member>, Vec<Member>)) -> Node {
    let name = |member: &Member| match *member {
        Member::Cluster(id) => outline.clusters[id].item.label.as_str(),
        Member::Node(id) => outline.nodes[id].item.label.as_str(),
    };
    let operators = |member: &Member| match *member {
        Member::Cluster(id) => shapes.inside[id].operators,
        Member::Node(id) => Inside::of(&outline.nodes[id].item).operators,
    };
    let mark = |member: &Member| match *member {
        Member::Cluster(id) => outline.clusters[id].item.mark.or(outline.clusters[id].inside),
        Member::Node(id) => outline.nodes[id].item.mark,
    };
    let numbers: Vec<u64> = others.iter().filter_map(|member| number(outline, *member)).collect();
    let numbered = !numbers.is_empty() && numbers.len() == others.len();
    let ranges = text::ranges(&numbers, MOST_RANGES);
    let plural = if numbers.len() == 1 { "" } else { "s" };
    let like =
        |name: &str| if others.len() == 1 { format!("like {name}") } else { format!("{} like {name}", others.len()) };
    let (label, mut details) = match first {
        Some(first @ Member::Cluster(id)) => {
            let kind = match outline.clusters[*id].item.kind {
                ClusterKind::Channel if numbered => format!("channel{plural} {ranges}"),
                ClusterKind::Element if numbered => format!("PE{plural} {ranges}"),
                _ => format!("{} more", others.len()),
            };
            (kind, vec![like(name(first))])
        }
        Some(first @ Member::Node(_)) if numbered => {
            let base = name(first);
            let base = base.rfind('[').and_then(|at| base.get(..at)).unwrap_or(base);
            (format!("{base}[{ranges}]"), vec![like(name(first))])
        }
        Some(first @ Member::Node(_)) => (format!("{} more", others.len()), vec![format!("like {}", name(first))]),
        None => (format!("{} more", others.len()), Vec::new()),
    };
    let operators: usize = others.iter().map(operators).sum();
    if operators > others.len() {
        details.push(counted(operators, "operator"));
    }
    let mut tooltip: Vec<String> = others.iter().take(MOST_NAMES).map(|member| name(member).to_owned()).collect();
    if others.len() > MOST_NAMES {
        tooltip.push(format!("and {} more", others.len() - MOST_NAMES));
    }
    // Alike members have one mark; others only by chance.
    let marks = others.first().and_then(mark);
    let mark = marks.filter(|_| others.iter().all(|member| mark(member) == marks));
    Node { parent: None, kind: NodeKind::Folded, label, details, tooltip, mark, inputs: 1, outputs: 1 }
}
