//! Gives the boxes and lines of one cluster their places, step by step.

use super::level::{Arranged, Level};
use super::ranked::Ranked;
use super::{layers, order, place, route};

/// Finds a place for everything.
pub(super) fn arrange(level: Level) -> Arranged {
    let unconnected = unconnected(&level);
    let ranks = layers::layers(&level, &unconnected);
    let mut ranked = Ranked::new(&level, &ranks, &unconnected);
    order::order(&mut ranked);
    place::place(&mut ranked);
    let mut arranged = route::route(&level, &ranked);
    place_unconnected(&level, &unconnected, &mut arranged);
    arranged
}

/// Boxes without any line.
fn unconnected(level: &Level) -> Vec<bool> {
    let mut unconnected = vec![true; level.items.len()];
    for item in level.outputs.iter().map(|output| output.item).chain(level.inputs.iter().map(|input| input.item)) {
        unconnected[item] = false;
    }
    unconnected
}

/// Space between boxes without lines.
const GAP: f64 = 16.0;

/// Puts boxes without lines in rows below the others, about as wide as those, or in the shape of a page.
fn place_unconnected(level: &Level, unconnected: &[bool], arranged: &mut Arranged) {
    let own = || level.items.iter().zip(unconnected).enumerate().filter(|(_, (_, unconnected))| **unconnected);
    let area: f64 = own().map(|(_, (item, _))| (item.width + GAP) * (item.height + GAP)).sum();
    if area == 0.0 {
        return;
    }
    let none = arranged.height == 0.0;
    let row = f64::max(if none { 0.0 } else { arranged.width - 2.0 * level.padding }, (2.0 * area).sqrt());
    let mut y = if none { 0.0 } else { arranged.height + GAP };
    let (mut x, mut tallest, mut widest) = (0.0, 0.0_f64, 0.0_f64);
    for (at, (item, _)) in own() {
        if x > 0.0 && x + item.width > row {
            (x, y, tallest) = (0.0, y + tallest + GAP, 0.0);
        }
        arranged.items[at] = (level.padding + x, y);
        x += item.width + GAP;
        tallest = tallest.max(item.height);
        widest = widest.max(x - GAP);
    }
    arranged.height = y + tallest;
    let width = f64::max(widest + 2.0 * level.padding, level.least_width);
    if width > arranged.width {
        route::widen(level, arranged, width);
    }
}
