//! Gives every box a layer.
//!
//! All boxes get an order in which few links go back (the greedy heuristic of Eades, Lin and Smyth). Every other link
//! goes to a later layer: by the longest way from the left at first, then boxes move to the right where that makes more
//! lines shorter than longer. A link that goes back in the order often gets to a later layer all the same: only the
//! layers say which links are drawn backwards.

use super::level::Level;
use std::collections::{BTreeSet, VecDeque};

/// Layers of boxes, from 1; 0 is the left border.
#[derive(Debug)]
pub(super) struct Layers {
    /// By item; 0 for those without lines.
    pub(super) of: Vec<usize>,
    /// The last layer with boxes.
    pub(super) last: usize,
    /// Whether each link goes to the same or an earlier layer, so that it has to be drawn backwards.
    pub(super) back: Vec<bool>,
}

pub(super) fn layers(level: &Level, unconnected: &[bool]) -> Layers {
    let count = level.items.len();
    let mut links_of: Vec<Vec<(usize, usize)>> = vec![Vec::new(); count];
    for (number, link) in level.links.iter().enumerate() {
        links_of[level.outputs[link.output].item].push((number, level.inputs[link.input].item));
    }
    let sequence = sequence(level);
    let mut position = vec![0_usize; count];
    sequence.iter().enumerate().for_each(|(at, &item)| position[item] = at);
    let back = backward_links(level, &position);

    let mut of = vec![1_usize; count];
    for &item in &sequence {
        for &(link, target) in &links_of[item] {
            if !back[link] {
                of[target] = of[target].max(of[item] + 1);
            }
        }
    }
    let last = of
        .iter()
        .zip(unconnected)
        .filter(|(_, unconnected)| !**unconnected)
        .map(|(layer, _)| *layer)
        .max()
        .unwrap_or(0);
    move_right(level, &links_of, &backward_links(level, &of), &sequence, last, &mut of);
    for (layer, unconnected) in of.iter_mut().zip(unconnected) {
        if *unconnected {
            *layer = 0;
        }
    }
    let back = backward_links(level, &of);
    Layers { of, last, back }
}

/// The links whose target is not after their source, when items have these places.
fn backward_links(level: &Level, places: &[usize]) -> Vec<bool> {
    let links = level.links.iter();
    links.map(|link| places[level.outputs[link.output].item] >= places[level.inputs[link.input].item]).collect()
}

/// Orders all items so that few links go back. Items without incoming links come first, items without outgoing links
/// last. In between comes the item with the largest surplus of outgoing links, of several the first.
fn sequence(level: &Level) -> Vec<usize> {
    let count = level.items.len();
    let (mut onward, mut before) = (vec![Vec::new(); count], vec![Vec::new(); count]);
    for link in &level.links {
        let (source, target) = (level.outputs[link.output].item, level.inputs[link.input].item);
        if source != target {
            onward[source].push(target);
            before[target].push(source);
        }
    }
    let (mut outgoing, mut incoming): (Vec<i64>, Vec<i64>) =
        (onward.iter().map(|l| l.len() as i64).collect(), before.iter().map(|l| l.len() as i64).collect());
    // Sources, sinks, others by how many more they get than they give.
    let rank = |item: usize, outgoing: &[i64], incoming: &[i64]| match (outgoing[item], incoming[item]) {
        (_, 0) => (0, 0, item),
        (0, _) => (1, 0, item),
        (onward, before) => (2, before - onward, item),
    };
    let mut waiting: BTreeSet<(u8, i64, usize)> = (0..count).map(|item| rank(item, &outgoing, &incoming)).collect();
    let (mut first, mut last) = (Vec::with_capacity(count), VecDeque::new());
    while let Some((kind, _, item)) = waiting.pop_first() {
        if kind == 1 {
            last.push_front(item);
        } else {
            first.push(item);
        }
        for (others, counts_out) in [(&onward[item], false), (&before[item], true)] {
            for &other in others {
                if waiting.remove(&rank(other, &outgoing, &incoming)) {
                    let counts = if counts_out { &mut outgoing } else { &mut incoming };
                    counts[other] -= 1;
                    waiting.insert(rank(other, &outgoing, &incoming));
                }
            }
        }
    }
    first.extend(last);
    first
}

/// Moves boxes with more lines to the right than to the left next to the first box that they lead to.
fn move_right(
    level: &Level,
    links_of: &[Vec<(usize, usize)>],
    back: &[bool],
    sequence: &[usize],
    last: usize,
    of: &mut [usize],
) {
    let count = level.items.len();
    let (mut left, mut right) = (vec![0_usize; count], vec![0_usize; count]);
    for (link, _) in level.links.iter().zip(back).filter(|(_, back)| !**back) {
        left[level.inputs[link.input].item] += 1;
    }
    // All links of an output have one trunk.
    let mut leaves = vec![false; count];
    for output in &level.outputs {
        right[output.item] += 1;
        leaves[output.item] |= output.leaves;
    }
    for input in level.inputs.iter().filter(|input| input.enters) {
        left[input.item] += 1;
    }
    for &item in sequence.iter().rev() {
        let targets = links_of[item].iter().filter(|(link, _)| !back[*link]).map(|(_, target)| of[*target] - 1);
        let most = targets.chain(leaves[item].then_some(last)).min();
        if let Some(most) = most.filter(|most| *most > of[item] && right[item] > left[item]) {
            of[item] = most;
        }
    }
}
