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
    /// The places that the lines of an out pass, from left to right, up to the last that any of them needs. Ends with
    /// the place at the right border if a line leaves.
    pub(super) trunks: Vec<Vec<usize>>,
    /// The place at the left border, then those on the way to the in; empty if nothing enters.
    pub(super) entries: Vec<Vec<usize>>,
    /// Of outs with links that go back, which share a lane: the places in all layers from that of the leftmost target
    /// to that of the source.
    pub(super) lanes: Vec<Vec<usize>>,
    /// Whether each link goes back.
    pub(super) back: Vec<bool>,
}

/// A box, or a place where a line passes.
#[derive(Debug)]
pub(super) struct Vertex {
    pub(super) what: What,
    pub(super) layer: usize,
    pub(super) height: f64,
    /// Of the top.
    pub(super) y: f64,
    /// To vertices in the layer to the left.
    pub(super) left: Vec<Tie>,
    /// To vertices in the layer to the right.
    pub(super) right: Vec<Tie>,
}

/// What a vertex is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What {
    Item(usize),
    Pass,
}

/// A piece of line between neighbouring layers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tie {
    pub(super) other: usize,
    /// Where it ends, from the top of this vertex.
    pub(super) own_y: f64,
    /// Where it ends, from the top of the other.
    pub(super) other_y: f64,
    /// How much it should be straight.
    pub(super) weight: f64,
}

impl Ranked {
    pub(super) fn new(level: &Level, layers: &Layers, loose: &[bool]) -> Self {
        let mut ranked = Self {
            layers: vec![Vec::new(); layers.last + 2],
            item: vec![None; level.items.len()],
            back: layers.back.clone(),
            ..Self::default()
        };
        for (at, item) in level.items.iter().enumerate().filter(|(at, _)| !loose[*at]) {
            ranked.item[at] = Some(ranked.add(What::Item(at), layers.of[at], item.height));
        }
        ranked.trunks(level, layers);
        for r#in in &level.ins {
            let mut passed: Vec<usize> = Vec::new();
            if r#in.enters {
                for layer in 0..layers.of[r#in.item] {
                    let place = ranked.add(What::Pass, layer, 0.0);
                    if let Some(&before) = passed.last() {
                        ranked.tie(before, 0.0, place, 0.0);
                    }
                    passed.push(place);
                }
                if let (Some(&last), Some(item)) = (passed.last(), ranked.item[r#in.item]) {
                    ranked.tie(last, 0.0, item, r#in.y);
                }
            }
            ranked.entries.push(passed);
        }
        ranked.lanes(level, layers);
        ranked
    }

    /// Makes the lanes of links that go back.
    fn lanes(&mut self, level: &Level, layers: &Layers) {
        let mut leftmost: Vec<Option<usize>> = vec![None; level.outs.len()];
        for (link, _) in level.links.iter().zip(&layers.back).filter(|(_, back)| **back) {
            let target = layers.of[level.ins[link.r#in].item];
            leftmost[link.out] = Some(leftmost[link.out].map_or(target, |known| known.min(target)));
        }
        for (out, leftmost) in level.outs.iter().zip(leftmost) {
            let mut lane: Vec<usize> = Vec::new();
            for layer in leftmost.into_iter().flat_map(|leftmost| leftmost..=layers.of[out.item]) {
                let place = self.add(What::Pass, layer, 0.0);
                if let Some(&before) = lane.last() {
                    self.tie(before, 0.0, place, 0.0);
                }
                lane.push(place);
            }
            self.lanes.push(lane);
        }
    }

    /// Makes the trunks and ties what they lead to to them.
    fn trunks(&mut self, level: &Level, layers: &Layers) {
        let mut links_of: Vec<Vec<usize>> = vec![Vec::new(); level.outs.len()];
        for (link, _) in level.links.iter().zip(&layers.back).filter(|(_, back)| !**back) {
            links_of[link.out].push(link.r#in);
        }
        for (out, ins) in level.outs.iter().zip(links_of) {
            let begin = layers.of[out.item];
            let far = ins.iter().map(|&r#in| layers.of[level.ins[r#in].item]).max().unwrap_or(0);
            let far = if out.leaves { layers.last + 2 } else { far };
            let mut trunk = Vec::new();
            let Some(source) = self.item[out.item] else {
                self.trunks.push(trunk);
                continue;
            };
            let mut before = (source, out.y);
            for layer in begin + 1..far {
                let place = self.add(What::Pass, layer, 0.0);
                self.tie(before.0, before.1, place, 0.0);
                trunk.push(place);
                before = (place, 0.0);
            }
            for r#in in ins {
                let end = level.ins[r#in];
                let Some(target) = self.item[end.item] else { continue };
                match layers.of[end.item] - begin {
                    0 => {}
                    1 => self.tie(source, out.y, target, end.y),
                    steps => self.tie(trunk[steps - 2], 0.0, target, end.y),
                }
            }
            self.trunks.push(trunk);
        }
    }

    fn add(&mut self, what: What, layer: usize, height: f64) -> usize {
        let vertex = self.vertices.len();
        self.vertices.push(Vertex { what, layer, height, y: 0.0, left: Vec::new(), right: Vec::new() });
        self.layers[layer].push(vertex);
        vertex
    }

    fn tie(&mut self, left: usize, left_y: f64, right: usize, right_y: f64) {
        let passes = |vertex: usize| self.vertices[vertex].what == What::Pass;
        let weight = match (passes(left), passes(right)) {
            (true, true) => 8.0,
            (false, false) => 1.0,
            _ => 2.0,
        };
        self.vertices[left].right.push(Tie { other: right, own_y: left_y, other_y: right_y, weight });
        self.vertices[right].left.push(Tie { other: left, own_y: right_y, other_y: left_y, weight });
    }
}
