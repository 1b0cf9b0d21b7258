//! One cluster: boxes with sockets, and the links between them.

use super::ranked::Ranked;
use super::route::{self, Path};
use super::{layers, order, place};

/// What is to be arranged.
#[derive(Debug, Default)]
pub(super) struct Level {
    pub(super) items: Vec<Item>,
    pub(super) outs: Vec<Out>,
    pub(super) ins: Vec<In>,
    pub(super) links: Vec<Link>,
    /// Space at the left and right border.
    pub(super) padding: f64,
    pub(super) least_width: f64,
}

/// A box.
#[derive(Clone, Copy, Debug)]
pub(super) struct Item {
    pub(super) width: f64,
    pub(super) height: f64,
}

/// Where lines begin, at the right side of a box.
#[derive(Clone, Copy, Debug)]
pub(super) struct Out {
    pub(super) item: usize,
    /// From the top of the box.
    pub(super) y: f64,
    /// A line goes on to the right border.
    pub(super) leaves: bool,
}

/// Where lines end, at the left side of a box.
#[derive(Clone, Copy, Debug)]
pub(super) struct In {
    pub(super) item: usize,
    /// From the top of the box.
    pub(super) y: f64,
    /// A line comes from the left border.
    pub(super) enters: bool,
}

/// From an out to an in, by position.
#[derive(Clone, Copy, Debug)]
pub(super) struct Link {
    pub(super) out: usize,
    pub(super) r#in: usize,
}

/// Where everything is; the top left corner is (0, 0).
#[derive(Debug)]
pub(super) struct Arranged {
    pub(super) width: f64,
    pub(super) height: f64,
    /// Top left corners.
    pub(super) items: Vec<(f64, f64)>,
    /// Height at the right border, of outs that leave.
    pub(super) leave: Vec<f64>,
    /// Height at the left border, of ins that are entered.
    pub(super) enter: Vec<f64>,
    pub(super) strokes: Vec<Stroke>,
}

/// A line to draw.
#[derive(Debug)]
pub(super) struct Stroke {
    pub(super) line: LineOf,
    pub(super) path: Path,
}

/// What a line belongs to.
#[derive(Clone, Debug)]
pub(super) enum LineOf {
    /// The part that several lines of an out have in common.
    Trunk {
        out: usize,
        /// Those that end here.
        links: Vec<usize>,
        /// One goes on to the right border.
        leaves: bool,
    },
    /// The rest of a link.
    Branch(usize),
    /// From an out, or its trunk, to the right border.
    Leave(usize),
    /// From the left border to an in.
    Enter(usize),
}

/// Finds a place for everything.
pub(super) fn arrange(level: Level) -> Arranged {
    let loose = loose(&level);
    let ranks = layers::layers(&level, &loose);
    let mut ranked = Ranked::new(&level, &ranks, &loose);
    order::order(&mut ranked);
    place::place(&mut ranked);
    let mut arranged = route::route(&level, &ranked);
    shelve(&level, &loose, &mut arranged);
    arranged
}

/// Boxes without any line.
fn loose(level: &Level) -> Vec<bool> {
    let mut loose = vec![true; level.items.len()];
    for item in level.outs.iter().map(|out| out.item).chain(level.ins.iter().map(|r#in| r#in.item)) {
        loose[item] = false;
    }
    loose
}

/// Space between boxes without lines.
const GAP: f64 = 16.0;

/// Puts boxes without lines in rows below the others, about as wide as those, or in the shape of a page.
fn shelve(level: &Level, loose: &[bool], arranged: &mut Arranged) {
    let own = || level.items.iter().zip(loose).enumerate().filter(|(_, (_, loose))| **loose);
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
