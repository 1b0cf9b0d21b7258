//! A level with its boxes in layers, and a place in every layer that a line passes.

use super::layers::Layers;
use super::level::Level;

/// What is in the layers. The first and the last are the borders.
#[derive(Debug, Default)]
pub(super) struct Ranked {
    pub(super) vertices: Vec<Vertex>,
    /// Vertices from top to bottom.
    pub(super) layers: Vec<Vec<usize>>,
    /// The vertex of each item, if it is in a layer.
    pub(super) item: Vec<Option<usize>>,
    /// The places that the lines of an output pass, from left to right, up to the last that any of them needs. Ends
    /// with the place at the right border if a line leaves.
    pub(super) trunks: Vec<Vec<usize>>,
    /// The place at the left border, then those on the way to the input; empty if nothing enters.
    pub(super) entries: Vec<Vec<usize>>,
    /// By output with links that go back, which share a lane: its places in all layers from that of the leftmost target
    /// to that of the source.
    pub(super) lanes: Vec<Vec<usize>>,
    /// Whether each link goes back.
    pub(super) back: Vec<bool>,
}

/// A box, or a place where a line passes.
#[derive(Debug)]
pub(super) struct Vertex {
    pub(super) kind: VertexKind,
    pub(super) layer: usize,
    pub(super) height: f64,
    /// Of the top.
    pub(super) y: f64,
    /// To vertices in the layer to the left.
    pub(super) left: Vec<LayerEdge>,
    /// To vertices in the layer to the right.
    pub(super) right: Vec<LayerEdge>,
}

/// What a vertex is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum VertexKind {
    Item(usize),
    Waypoint,
}

/// A piece of line between neighbouring layers.
#[derive(Clone, Copy, Debug)]
pub(super) struct LayerEdge {
    pub(super) other: usize,
    /// Where it ends, from the top of this vertex.
    pub(super) own_y: f64,
    /// Where it ends, from the top of the other.
    pub(super) other_y: f64,
    /// How much a straight line is worth here.
    pub(super) weight: f64,
}

impl Ranked {
    pub(super) fn new(level: &Level, layers: &Layers, unconnected: &[bool]) -> Self {
        let mut ranked = Self {
            layers: vec![Vec::new(); layers.last + 2],
            item: vec![None; level.items.len()],
            back: layers.back.clone(),
            ..Self::default()
        };
        for (at, item) in level.items.iter().enumerate().filter(|(at, _)| !unconnected[*at]) {
            ranked.item[at] = Some(ranked.add(VertexKind::Item(at), layers.of[at], item.height));
        }
        ranked.trunks(level, layers);
        for input in &level.inputs {
            let mut passed: Vec<usize> = Vec::new();
            if input.enters {
                for layer in 0..layers.of[input.item] {
                    let place = ranked.add(VertexKind::Waypoint, layer, 0.0);
                    if let Some(&before) = passed.last() {
                        ranked.connect(before, 0.0, place, 0.0);
                    }
                    passed.push(place);
                }
                if let (Some(&last), Some(item)) = (passed.last(), ranked.item[input.item]) {
                    ranked.connect(last, 0.0, item, input.y);
                }
            }
            ranked.entries.push(passed);
        }
        ranked.lanes(level, layers);
        ranked
    }

    /// Makes the lanes of links that go back.
    fn lanes(&mut self, level: &Level, layers: &Layers) {
        let mut leftmost: Vec<Option<usize>> = vec![None; level.outputs.len()];
        for (link, _) in level.links.iter().zip(&layers.back).filter(|(_, back)| **back) {
            let target = layers.of[level.inputs[link.input].item];
            leftmost[link.output] = Some(leftmost[link.output].map_or(target, |known| known.min(target)));
        }
        for (output, leftmost) in level.outputs.iter().zip(leftmost) {
            let mut lane: Vec<usize> = Vec::new();
            for layer in leftmost.into_iter().flat_map(|leftmost| leftmost..=layers.of[output.item]) {
                let place = self.add(VertexKind::Waypoint, layer, 0.0);
                if let Some(&before) = lane.last() {
                    self.connect(before, 0.0, place, 0.0);
                }
                lane.push(place);
            }
            self.lanes.push(lane);
        }
    }

    /// Makes the trunks and edges what they lead to to them.
    fn trunks(&mut self, level: &Level, layers: &Layers) {
        let mut links_of: Vec<Vec<usize>> = vec![Vec::new(); level.outputs.len()];
        for (link, _) in level.links.iter().zip(&layers.back).filter(|(_, back)| !**back) {
            links_of[link.output].push(link.input);
        }
        for (output, inputs) in level.outputs.iter().zip(links_of) {
            let begin = layers.of[output.item];
            let far = inputs.iter().map(|&input| layers.of[level.inputs[input].item]).max().unwrap_or(0);
            let far = if output.leaves { layers.last + 2 } else { far };
            let mut trunk = Vec::new();
            let Some(source) = self.item[output.item] else {
                self.trunks.push(trunk);
                continue;
            };
            let mut before = (source, output.y);
            for layer in begin + 1..far {
                let place = self.add(VertexKind::Waypoint, layer, 0.0);
                self.connect(before.0, before.1, place, 0.0);
                trunk.push(place);
                before = (place, 0.0);
            }
            for input in inputs {
                let end = level.inputs[input];
                let Some(target) = self.item[end.item] else { continue };
                match layers.of[end.item] - begin {
                    0 => {}
                    1 => self.connect(source, output.y, target, end.y),
                    steps => self.connect(trunk[steps - 2], 0.0, target, end.y),
                }
            }
            self.trunks.push(trunk);
        }
    }

    fn add(&mut self, kind: VertexKind, layer: usize, height: f64) -> usize {
        let vertex = self.vertices.len();
        self.vertices.push(Vertex { kind, layer, height, y: 0.0, left: Vec::new(), right: Vec::new() });
        self.layers[layer].push(vertex);
        vertex
    }

    fn connect(&mut self, left: usize, left_y: f64, right: usize, right_y: f64) {
        let passes = |vertex: usize| self.vertices[vertex].kind == VertexKind::Waypoint;
        let weight = match (passes(left), passes(right)) {
            (true, true) => 8.0,
            (false, false) => 1.0,
            _ => 2.0,
        };
        self.vertices[left].right.push(LayerEdge { other: right, own_y: left_y, other_y: right_y, weight });
        self.vertices[right].left.push(LayerEdge { other: left, own_y: right_y, other_y: left_y, weight });
    }
}
