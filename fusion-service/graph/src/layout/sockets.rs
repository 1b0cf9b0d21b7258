//! Decides in which cluster an edge is drawn, and where it passes the borders of clusters.
//!
//! An edge is drawn whole in the innermost cluster that holds both of its ends. In every cluster around its source that
//! is inside of that one, it leaves at the right border; in every such cluster around its target, it enters at the left
//! border. Edges from one output port leave a cluster together, edges to one input port enter together.

use super::super::drawing::{ClusterId, Contents, Drawing, End, Member, NodeId};
use super::super::measure;
use super::level::{Arranged, Input, Item, Level, LineKind, Link, Output};
use cranelift_entity::EntityRef;
use std::collections::HashMap;

/// A cluster, or the outside, with what is drawn in it.
#[derive(Debug, Default)]
pub(super) struct Container {
    pub(super) members: Vec<Member>,
    outputs: Vec<Socket>,
    inputs: Vec<Socket>,
    output_of: HashMap<End, usize>,
    input_of: HashMap<End, usize>,
    links: Vec<OwnLink>,
}

/// A port of a member, with the edges that use it here.
#[derive(Debug)]
struct Socket {
    end: End,
    item: usize,
    /// Edges that pass the border of this cluster.
    passing: Vec<usize>,
}

#[derive(Debug)]
struct OwnLink {
    output: usize,
    input: usize,
    edge: usize,
}

/// The container of a cluster: the outside is the first.
fn slot(cluster: Option<ClusterId>) -> usize {
    cluster.map_or(0, |cluster| cluster.index() + 1)
}

impl Container {
    /// One for the outside, then one for each cluster.
    pub(super) fn all(drawing: &Drawing) -> Vec<Self> {
        let contents = Contents::of(drawing);
        let inside = std::iter::once(None).chain(drawing.clusters.keys().map(Some));
        let mut containers: Vec<Self> = inside
            .map(|cluster| Self {
                members: (contents.clusters(cluster).iter().map(|&id| Member::Cluster(id)))
                    .chain(contents.nodes(cluster).iter().map(|&id| Member::Node(id)))
                    .collect(),
                ..Self::default()
            })
            .collect();
        let mut item_of: HashMap<Member, usize> = HashMap::new();
        for container in &containers {
            item_of.extend(container.members.iter().enumerate().map(|(at, member)| (*member, at)));
        }
        let item = |member: Member| item_of.get(&member).copied().unwrap_or_default();
        for (number, edge) in drawing.edges.iter().enumerate() {
            let (mut sources, mut targets) = (way(drawing, edge.source.node), way(drawing, edge.target.node));
            // Both ways end at the outside. What they have in common there is around both ends.
            while let (Some((at, source)), Some((_, target))) = (sources.pop(), targets.pop()) {
                if source == target && !sources.is_empty() && !targets.is_empty() {
                    continue;
                }
                if let Some(container) = containers.get_mut(at) {
                    let output = container.output(edge.source, item(source));
                    let input = container.input(edge.target, item(target));
                    container.links.push(OwnLink { output, input, edge: number });
                }
                break;
            }
            for (at, member) in sources {
                let Some(container) = containers.get_mut(at) else { continue };
                let output = container.output(edge.source, item(member));
                container.outputs[output].passing.push(number);
            }
            for (at, member) in targets {
                let Some(container) = containers.get_mut(at) else { continue };
                let input = container.input(edge.target, item(member));
                container.inputs[input].passing.push(number);
            }
        }
        containers
    }

    fn output(&mut self, end: End, item: usize) -> usize {
        *self.output_of.entry(end).or_insert_with(|| {
            self.outputs.push(Socket { end, item, passing: Vec::new() });
            self.outputs.len() - 1
        })
    }

    fn input(&mut self, end: End, item: usize) -> usize {
        *self.input_of.entry(end).or_insert_with(|| {
            self.inputs.push(Socket { end, item, passing: Vec::new() });
            self.inputs.len() - 1
        })
    }

    /// The boxes and links of this cluster, to be arranged. The clusters inside have been arranged before.
    pub(super) fn level(
        &self,
        drawing: &Drawing,
        items: Vec<Item>,
        arranged: &[Option<Arranged>],
        containers: &[Self],
        padding: f64,
        least_width: f64,
    ) -> Level {
        let height = |socket: &Socket, output: bool| -> f64 {
            match self.members.get(socket.item) {
                Some(Member::Node(id)) => measure::port(&drawing.nodes[*id], socket.end.port, output),
                Some(Member::Cluster(id)) => {
                    let at = slot(Some(*id));
                    let (Some(inner), Some(Some(arranged))) = (containers.get(at), arranged.get(at)) else {
                        return 0.0;
                    };
                    let (known, heights) = match output {
                        true => (&inner.output_of, &arranged.leave),
                        false => (&inner.input_of, &arranged.enter),
                    };
                    let own = known.get(&socket.end).and_then(|&at| heights.get(at)).copied().unwrap_or_default();
                    own + measure::heading(&drawing.clusters[*id]).1
                }
                None => 0.0,
            }
        };
        Level {
            items,
            outputs: (self.outputs.iter())
                .map(|s| Output { item: s.item, y: height(s, true), leaves: !s.passing.is_empty() })
                .collect(),
            inputs: (self.inputs.iter())
                .map(|s| Input { item: s.item, y: height(s, false), enters: !s.passing.is_empty() })
                .collect(),
            links: self.links.iter().map(|link| Link { output: link.output, input: link.input }).collect(),
            padding,
            least_width,
        }
    }

    /// The edges that go along a line, and whether it ends at a node.
    pub(super) fn edges_of(&self, line: &LineKind) -> (Vec<usize>, bool) {
        let at_node = |socket: &Socket| matches!(self.members.get(socket.item), Some(Member::Node(_)));
        match line {
            LineKind::Trunk { output, links, leaves } => {
                let ending = links.iter().map(|&link| self.links[link].edge);
                let passing = self.outputs[*output].passing.iter().filter(|_| *leaves).copied();
                (ending.chain(passing).collect(), false)
            }
            LineKind::Branch(link) => (vec![self.links[*link].edge], at_node(&self.inputs[self.links[*link].input])),
            LineKind::Leave(output) => (self.outputs[*output].passing.clone(), false),
            LineKind::Enter(input) => (self.inputs[*input].passing.clone(), at_node(&self.inputs[*input])),
        }
    }
}

/// The way of an edge's end to the outside: each container with its member that has the end.
fn way(drawing: &Drawing, node: NodeId) -> Vec<(usize, Member)> {
    let parent = drawing.nodes[node].parent;
    let mut way = vec![(slot(parent), Member::Node(node))];
    for cluster in drawing.around(parent) {
        way.push((slot(drawing.clusters[cluster].parent), Member::Cluster(cluster)));
    }
    way
}
