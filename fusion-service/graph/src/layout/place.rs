//! Gives every vertex its height, so that lines are as straight as the order in the layers allows.
//!
//! The lines of a vertex are straight at one height, its preferred one. In one layer at a time, the sum of the squared
//! distances from the preferred heights is made as small as it can be without overlap (isotonic regression by pooling
//! neighbours, in linear time), from left to right and back a few times.

use super::ranked::{LayerEdge, Ranked, VertexKind};

const ROUNDS: usize = 16;

/// Which neighbours count.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Left,
    Right,
    Both,
}

pub(super) fn place(ranked: &mut Ranked) {
    for layer in 0..ranked.layers.len() {
        let mut y = 0.0;
        for at in 0..ranked.layers[layer].len() {
            let vertex = ranked.layers[layer][at];
            if at > 0 {
                y += space(ranked, ranked.layers[layer][at - 1], vertex);
            }
            ranked.vertices[vertex].y = y;
            y += ranked.vertices[vertex].height;
        }
    }
    let count = ranked.layers.len();
    for round in 0..ROUNDS {
        let side = match round {
            _ if round + 3 >= ROUNDS => Side::Both,
            _ if round % 2 == 0 => Side::Left,
            _ => Side::Right,
        };
        for step in 0..count {
            adjust(ranked, if round % 2 == 0 { step } else { count - 1 - step }, side);
        }
    }
    let top = ranked.vertices.iter().map(|vertex| vertex.y).fold(f64::INFINITY, f64::min);
    for vertex in &mut ranked.vertices {
        vertex.y = (vertex.y - top).round();
    }
}

/// Space between two neighbours in a layer.
fn space(ranked: &Ranked, upper: usize, lower: usize) -> f64 {
    match (ranked.vertices[upper].kind, ranked.vertices[lower].kind) {
        (VertexKind::Item(_), VertexKind::Item(_)) => 16.0,
        (VertexKind::Waypoint, VertexKind::Waypoint) => 9.0,
        _ => 12.0,
    }
}

/// A run of vertices that touch each other.
struct Block {
    /// Sum of preferred places times weights, and of weights.
    sum: f64,
    weight: f64,
    count: usize,
}

impl Block {
    fn at(&self) -> f64 {
        self.sum / self.weight
    }
}

fn adjust(ranked: &mut Ranked, layer: usize, side: Side) {
    let order = std::mem::take(&mut ranked.layers[layer]);
    let mut blocks: Vec<Block> = Vec::new();
    let mut offsets = Vec::with_capacity(order.len());
    let mut offset = 0.0;
    for (at, &vertex) in order.iter().enumerate() {
        if let Some(before) = at.checked_sub(1).and_then(|before| order.get(before)) {
            offset += ranked.vertices[*before].height + space(ranked, *before, vertex);
        }
        offsets.push(offset);
        let (preferred, weight) = preferred(ranked, vertex, side);
        let mut block = Block { sum: (preferred - offset) * weight, weight, count: 1 };
        // Whoever would be above those above shares their place.
        while let Some(above) = blocks.pop_if(|above| above.at() > block.at()) {
            block = Block {
                sum: above.sum + block.sum,
                weight: above.weight + block.weight,
                count: above.count + block.count,
            };
        }
        blocks.push(block);
    }
    let places = blocks.iter().flat_map(|block| std::iter::repeat_n(block.at(), block.count));
    for ((&vertex, offset), place) in order.iter().zip(offsets).zip(places) {
        ranked.vertices[vertex].y = place + offset;
    }
    ranked.layers[layer] = order;
}

/// Where the lines of a vertex would be straight, and the weight of that.
fn preferred(ranked: &Ranked, vertex: usize, side: Side) -> (f64, f64) {
    let own = &ranked.vertices[vertex];
    let none: &[LayerEdge] = &[];
    let (left, right) = match side {
        Side::Left => (own.left.as_slice(), none),
        Side::Right => (none, own.right.as_slice()),
        Side::Both => (own.left.as_slice(), own.right.as_slice()),
    };
    let (mut sum, mut weight) = (0.0, 0.0);
    for edge in left.iter().chain(right) {
        sum += (ranked.vertices[edge.other].y + edge.other_y - edge.own_y) * edge.weight;
        weight += edge.weight;
    }
    // Who has no neighbours there stays, if nobody else needs the place.
    if weight == 0.0 { (own.y, 0.05) } else { (sum / weight, weight) }
}
