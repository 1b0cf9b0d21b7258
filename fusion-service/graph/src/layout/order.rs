//! Orders the vertices of each layer so that few lines cross.
//!
//! Layers are sorted by the mean place of their neighbours, from left to right and back; then neighbours are swapped
//! while that removes crossings. The best order so far is kept. A round takes time linear in the edges, apart from
//! sorting.

use super::ranked::{LayerEdge, Ranked};

/// Rounds from left to right and back.
const ROUNDS: usize = 12;

/// Rounds of changing places.
const SWAP_ROUNDS: usize = 6;

/// Vertices of the largest layer in which neighbours are swapped. In a larger one it would take time and not be
/// visible.
const MOST_SWAPPED: usize = 2_000;

pub(super) fn order(ranked: &mut Ranked) {
    begin(ranked);
    let mut position = positions(ranked);
    let mut best = (crossings(ranked, &position), ranked.layers.clone());
    for round in 0..ROUNDS {
        if best.0 == 0 {
            break;
        }
        let to_the_right = round % 2 == 0;
        let count = ranked.layers.len();
        for step in 1..count {
            let layer = if to_the_right { step } else { count - 1 - step };
            sort_by_neighbours(ranked, layer, to_the_right, &mut position);
        }
        swap_neighbours(ranked, &mut position);
        let crossings = crossings(ranked, &position);
        if crossings < best.0 {
            best = (crossings, ranked.layers.clone());
        }
    }
    ranked.layers = best.1;
}

/// The order to begin with: connected vertices beside each other, in the order of the items.
fn begin(ranked: &mut Ranked) {
    let mut seen = vec![false; ranked.vertices.len()];
    let mut layers: Vec<Vec<usize>> = vec![Vec::new(); ranked.layers.len()];
    let items = ranked.item.iter().flatten();
    for &first in items.chain(ranked.layers.iter().flatten()) {
        let mut open = vec![first];
        while let Some(vertex) = open.pop() {
            if std::mem::replace(&mut seen[vertex], true) {
                continue;
            }
            let own = &ranked.vertices[vertex];
            layers[own.layer].push(vertex);
            // What is pushed last is followed first: to the right, from the top.
            let edges = |edges: &[LayerEdge]| {
                let mut edges: Vec<(f64, usize)> = edges.iter().map(|edge| (edge.own_y, edge.other)).collect();
                edges.sort_by(|a, b| b.0.total_cmp(&a.0).then(b.1.cmp(&a.1)));
                edges
            };
            let (left, right) = (edges(&own.left), edges(&own.right));
            open.extend(left.into_iter().chain(right).map(|(_, other)| other));
        }
    }
    ranked.layers = layers;
}

/// The place of each vertex in its layer.
fn positions(ranked: &Ranked) -> Vec<usize> {
    let mut position = vec![0; ranked.vertices.len()];
    for layer in &ranked.layers {
        layer.iter().enumerate().for_each(|(at, &vertex)| position[vertex] = at);
    }
    position
}

/// Where an edge ends, as a place in the layer of the other vertex: sockets of one box have an order too.
fn place(ranked: &Ranked, edge: &LayerEdge, position: &[usize]) -> f64 {
    let height = ranked.vertices[edge.other].height;
    let part = if height > 0.0 { edge.other_y / height } else { 0.5 };
    position[edge.other] as f64 + 0.9 * part
}

fn sort_by_neighbours(ranked: &mut Ranked, layer: usize, by_left: bool, position: &mut [usize]) {
    let mut keyed: Vec<(f64, usize)> = (ranked.layers[layer].iter())
        .map(|&vertex| {
            let own = &ranked.vertices[vertex];
            let edges = if by_left { &own.left } else { &own.right };
            // Without neighbours it stays about where it is.
            let own_place = position[vertex] as f64;
            let sum: f64 = edges.iter().map(|edge| place(ranked, edge, position)).sum();
            (if edges.is_empty() { own_place } else { sum / edges.len() as f64 }, vertex)
        })
        .collect();
    keyed.sort_by(|a, b| a.0.total_cmp(&b.0));
    let sorted: Vec<usize> = keyed.into_iter().map(|(_, vertex)| vertex).collect();
    sorted.iter().enumerate().for_each(|(at, &vertex)| position[vertex] = at);
    ranked.layers[layer] = sorted;
}

/// Number of crossings between all neighbouring layers.
fn crossings(ranked: &Ranked, position: &[usize]) -> u64 {
    let mut sum = 0;
    for layer in 1..ranked.layers.len() {
        let mut ends: Vec<(f64, f64)> = Vec::new();
        for &vertex in &ranked.layers[layer] {
            let own = &ranked.vertices[vertex];
            for edge in &own.left {
                let part = if own.height > 0.0 { edge.own_y / own.height } else { 0.5 };
                ends.push((place(ranked, edge, position), position[vertex] as f64 + 0.9 * part));
            }
        }
        ends.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1)));
        sum += inversions(&ends);
    }
    sum
}

/// Pairs whose second part is out of order: a tree of counts over the places to the right.
fn inversions(ends: &[(f64, f64)]) -> u64 {
    let mut places: Vec<f64> = ends.iter().map(|(_, right)| *right).collect();
    places.sort_by(f64::total_cmp);
    places.dedup();
    let mut tree = vec![0_u64; places.len() + 1];
    let mut sum = 0;
    for (seen, (_, right)) in (0_u64..).zip(ends) {
        let rank = places.partition_point(|place| place < right) + 1;
        // Those seen that are at this place or above.
        let mut at = rank;
        let mut above = 0;
        while at > 0 {
            above += tree[at];
            at &= at - 1;
        }
        sum += seen - above;
        let mut at = rank;
        while at < tree.len() {
            tree[at] += 1;
            at += at & at.wrapping_neg();
        }
    }
    sum
}

/// Swaps neighbours in a layer where that removes crossings.
fn swap_neighbours(ranked: &mut Ranked, position: &mut [usize]) {
    for _ in 0..SWAP_ROUNDS {
        let mut improved = false;
        for layer in 0..ranked.layers.len() {
            let count = ranked.layers[layer].len();
            if count > MOST_SWAPPED {
                continue;
            }
            for at in 1..count {
                let (upper, lower) = (ranked.layers[layer][at - 1], ranked.layers[layer][at]);
                let (kept, exchanged) = crossings_between(ranked, upper, lower, position);
                if exchanged < kept {
                    ranked.layers[layer].swap(at - 1, at);
                    (position[upper], position[lower]) = (at, at - 1);
                    improved = true;
                }
            }
        }
        if !improved {
            break;
        }
    }
}

/// Crossings between the edges of two vertices as they are, and the other way round.
fn crossings_between(ranked: &Ranked, upper: usize, lower: usize, position: &[usize]) -> (u64, u64) {
    let (upper, lower) = (&ranked.vertices[upper], &ranked.vertices[lower]);
    let mut sums = (0, 0);
    for (a, b) in [(&upper.left, &lower.left), (&upper.right, &lower.right)] {
        let sorted = |edges: &[LayerEdge]| {
            let mut places: Vec<f64> = edges.iter().map(|edge| place(ranked, edge, position)).collect();
            places.sort_by(f64::total_cmp);
            places
        };
        let (a, b) = (sorted(a), sorted(b));
        sums.0 += smaller_pairs(&b, &a);
        sums.1 += smaller_pairs(&a, &b);
    }
    sums
}

/// Pairs of which the first is smaller.
fn smaller_pairs(a: &[f64], b: &[f64]) -> u64 {
    let mut smaller = 0;
    let mut sum = 0;
    for place in b {
        while a.get(smaller).is_some_and(|a| a < place) {
            smaller += 1;
        }
        sum += smaller as u64;
    }
    sum
}
