//! Places the columns, and draws lines as curves between them.
//!
//! A column is as wide as its widest box. A line crosses a column straight, at a waypoint of its own, and turns only in
//! the space between two columns. So it crosses no box.

use super::level::{Arranged, Level, LineKind, Stroke};
use super::path::Path;
use super::ranked::{Ranked, VertexKind};

/// How far lines that go back bulge.
const BULGE: f64 = 26.0;

/// Columns: left and right side of each layer.
struct Columns(Vec<(f64, f64)>);

impl Columns {
    fn new(level: &Level, ranked: &Ranked) -> Self {
        let mut columns = Vec::with_capacity(ranked.layers.len());
        let mut turning = vec![false; ranked.layers.len() + 1];
        for (link, _) in level.links.iter().zip(&ranked.back).filter(|(_, back)| **back) {
            let layer = |item: usize| ranked.item[item].map_or(1, |vertex| ranked.vertices[vertex].layer);
            turning[layer(level.inputs[link.input].item) - 1] = true;
            turning[layer(level.outputs[link.output].item)] = true;
        }
        let mut x = 0.0;
        for (at, layer) in ranked.layers.iter().enumerate() {
            let width = layer.iter().filter_map(|&vertex| match ranked.vertices[vertex].kind {
                VertexKind::Item(item) => level.items.get(item).map(|item| item.width),
                VertexKind::Waypoint => None,
            });
            let width = width.fold(0.0, f64::max);
            columns.push((x, x + width));
            x += width;
            if at + 1 < ranked.layers.len() {
                x += gap(level, ranked, at, turning[at]);
            }
        }
        Self(columns)
    }

    fn width(&self) -> f64 {
        self.0.last().map_or(0.0, |(_, right)| *right)
    }
}

/// Space to the right of a layer: more where many lines turn, or climb far.
fn gap(level: &Level, ranked: &Ranked, layer: usize, turning: bool) -> f64 {
    let (mut lines, mut climb) = (0_usize, 0.0_f64);
    for &vertex in &ranked.layers[layer] {
        let own = &ranked.vertices[vertex];
        for edge in &own.right {
            let rise = (ranked.vertices[edge.other].y + edge.other_y - own.y - edge.own_y).abs();
            lines += usize::from(rise > 1.0);
            climb = climb.max(rise);
        }
    }
    let border = layer == 0 || layer + 2 == ranked.layers.len();
    let least = match border {
        true if lines == 0 => level.padding,
        true => level.padding + 10.0,
        false => 36.0,
    };
    let room = least + (climb * 0.12).min(60.0) + ((lines as f64).sqrt() * 3.0).min(40.0);
    // Whole pixels: rounded places stay apart.
    let room = if turning { room.max(BULGE + 6.0) } else { room };
    room.ceil()
}

pub(super) fn route(level: &Level, ranked: &Ranked) -> Arranged {
    let columns = Columns::new(level, ranked);
    let width = columns.width();
    let mut arranged = Arranged {
        width,
        height: ranked.vertices.iter().map(|vertex| vertex.y + vertex.height).fold(0.0, f64::max),
        items: vec![(0.0, 0.0); level.items.len()],
        leave: vec![0.0; level.outputs.len()],
        enter: vec![0.0; level.inputs.len()],
        strokes: Vec::new(),
    };
    for vertex in &ranked.vertices {
        if let VertexKind::Item(item) = vertex.kind {
            let (left, right) = columns.0[vertex.layer];
            arranged.items[item] = ((left + (right - left - level.items[item].width) / 2.0).round(), vertex.y);
        }
    }
    let lines = Lines { level, ranked, columns: &columns, items: arranged.items.clone() };
    lines.outputs(&mut arranged);
    lines.inputs(&mut arranged);
    if arranged.width < level.least_width {
        widen(level, &mut arranged, level.least_width);
    }
    arranged
}

/// Moves the right border.
pub(super) fn widen(level: &Level, arranged: &mut Arranged, width: f64) {
    let old = arranged.width;
    arranged.width = width;
    for Stroke { line, path } in &mut arranged.strokes {
        let leaves = matches!(line, LineKind::Leave(output) if level.outputs[*output].leaves);
        if leaves && path.end().0 == old {
            path.straight(width);
        }
    }
}

struct Lines<'a> {
    level: &'a Level,
    ranked: &'a Ranked,
    columns: &'a Columns,
    items: Vec<(f64, f64)>,
}

impl Lines<'_> {
    /// From the right side of a box to the right side of its column.
    fn begin(&self, output: usize) -> Path {
        let output = self.level.outputs[output];
        let (x, y) = self.items[output.item];
        let mut path = Path::new((x + self.level.items[output.item].width, y + output.y));
        if let Some(vertex) = self.ranked.item[output.item] {
            path.straight(self.columns.0[self.ranked.vertices[vertex].layer].1);
        }
        path
    }

    /// From the column before to the left side of a box.
    fn end(&self, path: &mut Path, input: usize) {
        let input = self.level.inputs[input];
        let (x, y) = self.items[input.item];
        if let Some(vertex) = self.ranked.item[input.item] {
            path.curve(self.columns.0[self.ranked.vertices[vertex].layer].0, y + input.y);
            path.straight(x);
        }
    }

    /// To a place in the next layer, and to the other side of its column.
    fn pass(&self, path: &mut Path, place: usize) {
        let vertex = &self.ranked.vertices[place];
        let (left, right) = self.columns.0[vertex.layer];
        path.curve(left, vertex.y);
        path.straight(right);
    }

    fn layer(&self, item: usize) -> usize {
        self.ranked.item[item].map_or(0, |vertex| self.ranked.vertices[vertex].layer)
    }

    fn outputs(&self, arranged: &mut Arranged) {
        let mut links_of: Vec<Vec<usize>> = vec![Vec::new(); self.level.outputs.len()];
        for (number, (link, back)) in self.level.links.iter().zip(&self.ranked.back).enumerate() {
            if !back {
                links_of[link.output].push(number);
            } else {
                arranged.strokes.push(Stroke { line: LineKind::Branch(number), path: self.back(number) });
            }
        }
        for (number, links) in links_of.into_iter().enumerate() {
            let (output, trunk) = (self.level.outputs[number], &self.ranked.trunks[number]);
            if let (true, Some(&border)) = (output.leaves, trunk.last()) {
                arranged.leave[number] = self.ranked.vertices[border].y;
            }
            // How many places of the trunk each line passes before it ends, or passes the border.
            let mut ends: Vec<(usize, LineKind)> = Vec::with_capacity(links.len() + 1);
            for &link in &links {
                let steps = self.layer(self.level.inputs[self.level.links[link].input].item) - self.layer(output.item);
                ends.push((steps.saturating_sub(1), LineKind::Branch(link)));
            }
            if output.leaves {
                ends.push((trunk.len().saturating_sub(1), LineKind::Leave(number)));
            }
            self.branches(number, trunk, ends, arranged);
        }
    }

    /// The trunk as far as several lines go along it, then each line from where it leaves the trunk.
    fn branches(&self, number: usize, trunk: &[usize], ends: Vec<(usize, LineKind)>, arranged: &mut Arranged) {
        let mut passed: Vec<usize> = ends.iter().map(|(passed, _)| *passed).collect();
        passed.sort_unstable();
        let Some(longest) = passed.pop() else { return };
        let shared = passed.pop();
        let mut path = self.begin(number);
        let mut points = vec![path.end()];
        if let Some(shared) = shared {
            for &place in trunk.iter().take(shared) {
                self.pass(&mut path, place);
                points.push(path.end());
            }
            if !path.segments.is_empty() {
                // Lines that leave it at once have only its beginning in common with it.
                let along = |(passed, _): &&(usize, LineKind)| shared == 0 || *passed > 0;
                let links = ends.iter().filter(along).filter_map(|(_, line)| match line {
                    LineKind::Branch(link) => Some(*link),
                    _ => None,
                });
                let leaves = ends.iter().filter(along).any(|(_, line)| matches!(line, LineKind::Leave(_)));
                let line = LineKind::Trunk { output: number, links: links.collect(), leaves };
                arranged.strokes.push(Stroke { line, path: path.clone() });
            }
        }
        for (passed, line) in ends {
            let mut own = match shared {
                Some(shared) => match points.get(passed.min(shared)) {
                    Some(&from) => Path::new(from),
                    None => continue,
                },
                None => path.clone(),
            };
            let rest = trunk.iter().take(passed.min(longest)).skip(shared.unwrap_or(0));
            rest.for_each(|&place| self.pass(&mut own, place));
            match &line {
                LineKind::Branch(link) => self.end(&mut own, self.level.links[*link].input),
                _ => trunk.last().into_iter().for_each(|&border| self.pass(&mut own, border)),
            }
            arranged.strokes.push(Stroke { line, path: own });
        }
    }

    /// A link that goes back: round to its lane, along it to the left, round again.
    fn back(&self, link: usize) -> Path {
        let link = self.level.links[link];
        let input = self.level.inputs[link.input];
        let target = self.layer(input.item);
        let mut path = self.begin(link.output);
        let mut first = true;
        for &place in self.ranked.lanes[link.output].iter().rev() {
            let vertex = &self.ranked.vertices[place];
            if vertex.layer < target {
                break;
            }
            let (left, right) = self.columns.0[vertex.layer];
            if first {
                path.u_turn(right + BULGE, vertex.y);
                first = false;
            } else {
                path.curve(right, vertex.y);
            }
            path.straight(left);
        }
        let (x, y) = self.items[input.item];
        path.u_turn(path.end().0 - BULGE, y + input.y);
        path.straight(x);
        path
    }

    fn inputs(&self, arranged: &mut Arranged) {
        for (number, passed) in self.ranked.entries.iter().enumerate() {
            let Some((&border, rest)) = passed.split_first() else { continue };
            let y = self.ranked.vertices[border].y;
            arranged.enter[number] = y;
            let mut path = Path::new((self.columns.0[0].1, y));
            rest.iter().for_each(|&place| self.pass(&mut path, place));
            self.end(&mut path, number);
            arranged.strokes.push(Stroke { line: LineKind::Enter(number), path });
        }
    }
}
