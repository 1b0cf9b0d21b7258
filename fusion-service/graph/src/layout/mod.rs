//! Places for the boxes and lines of a drawing: left to right, in layers, clusters in clusters.
//!
//! ```text
//! innermost clusters first:   sockets ─► level ─► arrange: layers ─► ranked ─► order ─► place ─► route
//! then the one around, with the clusters inside as boxes; at last everything gets its absolute place
//! ```
//!
//! No crate that lays out nested clusters was found (those that read `subgraph cluster_...` ignore it), so this is the
//! classic method of Sugiyama, cluster by cluster. A stream that leaves a cluster goes to its right border, one that
//! enters comes from its left border: the cluster around sees a box with *sockets*, and no line ever crosses a box that
//! it does not end in.
//!
//! Knows: sizes of boxes, edges. Must not know: what a box stands for, how it is painted.
//!
//! Invariants: boxes of one cluster do not overlap and are inside it; the same drawing gives the same numbers
//! (arithmetic is `+ - * /` and `sqrt` only, which are exact everywhere).

mod arrange;
mod layers;
mod level;
mod order;
mod path;
mod place;
mod ranked;
mod route;
mod sockets;

pub(super) use path::{Path, Segment};

use super::drawing::{ClusterId, Drawing, Mark, Member, NodeId};
use super::measure;
use cranelift_entity::{EntityRef, SecondaryMap};
use level::{Arranged, Item, Stroke};
use sockets::Container;

/// A rectangle.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Rect {
    pub(super) x: f64,
    pub(super) y: f64,
    pub(super) width: f64,
    pub(super) height: f64,
}

/// A drawing with places.
#[derive(Debug)]
pub(super) struct Layout {
    pub(super) width: f64,
    pub(super) height: f64,
    pub(super) nodes: SecondaryMap<NodeId, Rect>,
    pub(super) clusters: SecondaryMap<ClusterId, Rect>,
    pub(super) lines: Vec<Line>,
}

/// A line that is drawn once, though several edges may go along it.
#[derive(Debug)]
pub(super) struct Line {
    /// The edges, by position: all from one port or all to one port.
    pub(super) edges: Vec<usize>,
    /// Ends at a node.
    pub(super) arrives: bool,
    pub(super) path: Path,
}

/// Space between the border of a cluster and what is in it.
const PADDING: f64 = 12.0;

/// Finds a place for everything.
pub(super) fn layout(drawing: &Drawing) -> Layout {
    let containers = Container::all(drawing);
    let mut arranged: Vec<Option<Arranged>> = containers.iter().map(|_| None).collect();
    let mut sizes: SecondaryMap<ClusterId, (f64, f64)> = SecondaryMap::new();
    // Clusters inside come later, and the outside is the first of all.
    for at in (0..containers.len()).rev() {
        let Some(container) = containers.get(at) else { continue };
        let cluster = at.checked_sub(1).map(ClusterId::new);
        let heading = cluster.map(|cluster| measure::heading(&drawing.clusters[cluster]));
        let items = container.members.iter().map(|member| match *member {
            Member::Node(id) => {
                let (width, height) = measure::node(&drawing.nodes[id]);
                Item { width, height }
            }
            Member::Cluster(id) => {
                let (width, height) = sizes[id];
                Item { width, height }
            }
        });
        let items: Vec<Item> = items.collect();
        let padding = if cluster.is_some() { PADDING } else { 0.0 };
        let least_width = heading.map_or(0.0, |(width, _)| width);
        let level = container.level(drawing, items, &arranged, &containers, padding, least_width);
        let result = arrange::arrange(level);
        if let (Some(cluster), Some((_, top))) = (cluster, heading) {
            sizes[cluster] = (result.width, top + result.height + PADDING);
        }
        if let Some(slot) = arranged.get_mut(at) {
            *slot = Some(result);
        }
    }
    absolute(drawing, &containers, &arranged, &sizes)
}

/// Adds up the places.
fn absolute(
    drawing: &Drawing,
    containers: &[Container],
    arranged: &[Option<Arranged>],
    sizes: &SecondaryMap<ClusterId, (f64, f64)>,
) -> Layout {
    let mut layout = Layout {
        width: 0.0,
        height: 0.0,
        nodes: SecondaryMap::new(),
        clusters: SecondaryMap::new(),
        lines: Vec::new(),
    };
    for (at, (container, arranged)) in containers.iter().zip(arranged).enumerate() {
        let Some(arranged) = arranged else { continue };
        let origin = match at.checked_sub(1).map(ClusterId::new) {
            Some(cluster) => {
                let Rect { x, y, .. } = layout.clusters[cluster];
                (x, y + measure::heading(&drawing.clusters[cluster]).1)
            }
            None => {
                (layout.width, layout.height) = (arranged.width, arranged.height);
                (0.0, 0.0)
            }
        };
        for (member, &(x, y)) in container.members.iter().zip(&arranged.items) {
            let (x, y) = (origin.0 + x, origin.1 + y);
            match *member {
                Member::Node(id) => {
                    let (width, height) = measure::node(&drawing.nodes[id]);
                    layout.nodes[id] = Rect { x, y, width, height };
                }
                Member::Cluster(id) => {
                    let (width, height) = sizes[id];
                    layout.clusters[id] = Rect { x, y, width, height };
                }
            }
        }
        for Stroke { line, path } in &arranged.strokes {
            let (edges, arrives) = container.edges_of(line);
            layout.lines.push(Line { edges, arrives, path: path.moved(origin) });
        }
    }
    layout
}

/// What all marks have in common.
pub(super) fn common_mark(marks: impl Iterator<Item = Option<Mark>>) -> Option<Mark> {
    let mut marks = marks;
    let first = marks.next()?;
    first.filter(|_| marks.all(|mark| mark == first))
}
