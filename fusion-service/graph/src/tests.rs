//! What every drawing keeps to, over the applications of this project and over made-up ones.

use super::drawing::{Cluster, ClusterKind, Edge, End, Mark, Node, NodeKind};
use super::layout::{self, Path, Rect, Segment};
use super::*;
use cranelift_entity::PrimaryMap;
use proptest::prelude::*;
use std::collections::BTreeSet;

/// Clusters as (parent), nodes as (cluster, inputs, outputs), edges as (source, port, target, port).
#[derive(Clone, Debug)]
struct Sketch {
    clusters: Vec<Option<usize>>,
    nodes: Vec<(Option<usize>, u32, u32)>,
    edges: Vec<(usize, u32, usize, u32)>,
}

fn sketches() -> impl Strategy<Value = Sketch> {
    (0_usize..12, 1_usize..30).prop_flat_map(|(clusters, nodes)| {
        let parents: Vec<_> = (0..clusters).map(|at| proptest::option::of(0..at.max(1))).collect();
        let node = (proptest::option::weighted(0.8, 0..clusters.max(1)), 0_u32..4, 0_u32..4);
        let edge = (0..nodes, 0_u32..4, 0..nodes, 0_u32..4);
        (parents, proptest::collection::vec(node, nodes), proptest::collection::vec(edge, 0..60)).prop_map(
            move |(parents, nodes, edges)| Sketch {
                clusters: (parents.into_iter().enumerate()).map(|(at, p)| p.filter(|p| *p < at)).collect(),
                nodes: nodes.into_iter().map(|(c, i, o)| (c.filter(|c| *c < clusters), i, o)).collect(),
                edges,
            },
        )
    })
}

fn drawing(sketch: &Sketch) -> Drawing {
    let mut clusters = PrimaryMap::new();
    for (at, parent) in sketch.clusters.iter().enumerate() {
        clusters.push(Cluster {
            parent: parent.map(|p| ClusterId::from_u32(p as u32)),
            kind: ClusterKind::Element,
            label: format!("PE {at}"),
            details: vec!["a remark".to_owned(); at % 3],
            tooltip: Vec::new(),
            mark: None,
        });
    }
    let mut nodes = PrimaryMap::new();
    for (at, (parent, inputs, outputs)) in sketch.nodes.iter().enumerate() {
        nodes.push(Node {
            parent: parent.map(|p| ClusterId::from_u32(p as u32)),
            kind: NodeKind::Operator,
            label: "x".repeat(at % 20 + 1),
            details: Vec::new(),
            tooltip: Vec::new(),
            mark: None,
            inputs: *inputs,
            outputs: *outputs,
        });
    }
    let end = |node: usize, port: u32, most: u32| End { node: NodeId::from_u32(node as u32), port: port.min(most - 1) };
    let mut edges: Vec<Edge> = (sketch.edges.iter())
        .filter(|(source, _, target, _)| sketch.nodes[*source].2 > 0 && sketch.nodes[*target].1 > 0)
        .map(|&(source, source_port, target, target_port)| Edge {
            source: end(source, source_port, sketch.nodes[source].2),
            target: end(target, target_port, sketch.nodes[target].1),
            mark: None,
            split: false,
            count: 1,
        })
        .collect();
    edges.sort_unstable();
    edges.dedup_by_key(|edge| (edge.source, edge.target));
    Drawing { title: "sketch".to_owned(), notes: Vec::new(), clusters, nodes, edges }
}

fn inside(inner: Rect, outer: Rect) -> bool {
    inner.x >= outer.x
        && inner.y >= outer.y
        && inner.x + inner.width <= outer.x + outer.width
        && inner.y + inner.height <= outer.y + outer.height
}

fn apart(a: Rect, b: Rect) -> bool {
    a.x + a.width <= b.x || b.x + b.width <= a.x || a.y + a.height <= b.y || b.y + b.height <= a.y
}

/// Points along a path: of straight pieces both ends, of curves so many that it makes no difference what is between two
/// of them.
fn points(path: &Path) -> Vec<(f64, f64)> {
    let mut points = vec![path.begin];
    for segment in &path.segments {
        let from = points[points.len() - 1];
        if let Segment::Curve(a, b, end) = *segment {
            points.extend((1..16).map(|part| {
                let t = f64::from(part) / 16.0;
                let u = 1.0 - t;
                let weights = [u * u * u, 3.0 * u * u * t, 3.0 * u * t * t, t * t * t];
                let sum = |numbers: [f64; 4]| weights.iter().zip(numbers).map(|(weight, number)| weight * number).sum();
                (sum([from.0, a.0, b.0, end.0]), sum([from.1, a.1, b.1, end.1]))
            }));
        }
        points.push(segment.end());
    }
    points
}

/// Whether the straight line between two points has a part inside of a box; its sides do not count.
fn crosses(from: (f64, f64), to: (f64, f64), place: Rect) -> bool {
    // Whoever goes along a side is not inside because of a rounding.
    let least = 0.001;
    let (mut first, mut last) = (0.0_f64, 1.0_f64);
    for (from, to, low, high) in
        [(from.0, to.0, place.x, place.x + place.width), (from.1, to.1, place.y, place.y + place.height)]
    {
        let (low, high) = (low + least, high - least);
        if from == to {
            if from <= low || from >= high {
                return false;
            }
            continue;
        }
        let (one, other) = ((low - from) / (to - from), (high - from) / (to - from));
        first = first.max(one.min(other));
        last = last.min(one.max(other));
    }
    first < last
}

/// Boxes are inside their clusters and apart from each other, and no line crosses a node, or a cluster without an end
/// of its edges.
fn check(drawing: &Drawing) -> Result<(), String> {
    let layout = layout::layout(drawing);
    let page = Rect { x: 0.0, y: 0.0, width: layout.width, height: layout.height };
    let mut members: Vec<(Option<ClusterId>, String, Rect)> = Vec::new();
    members.extend(drawing.clusters.iter().map(|(id, c)| (c.parent, format!("{id}"), layout.clusters[id])));
    members.extend(drawing.nodes.iter().map(|(id, n)| (n.parent, format!("{id}"), layout.nodes[id])));
    for (parent, name, place) in &members {
        let around = parent.map_or(page, |parent| layout.clusters[parent]);
        if !inside(*place, around) {
            return Err(format!("{name} {place:?} is not inside {around:?}"));
        }
    }
    for (at, (parent, name, place)) in members.iter().enumerate() {
        for (other_parent, other, other_place) in &members[..at] {
            if parent == other_parent && !apart(*place, *other_place) {
                return Err(format!("{name} {place:?} overlaps {other} {other_place:?}"));
            }
        }
    }
    for line in &layout.lines {
        let points = points(&line.path);
        if let Some(outside) =
            points.iter().find(|(x, y)| !inside(Rect { x: *x, y: *y, width: 0.0, height: 0.0 }, page))
        {
            return Err(format!("a line goes outside at {outside:?}"));
        }
        let ends = line.edges.iter().flat_map(|&edge| [drawing.edges[edge].source, drawing.edges[edge].target]);
        let around: BTreeSet<ClusterId> = ends.flat_map(|end| drawing.around(drawing.nodes[end.node].parent)).collect();
        let others = drawing.clusters.keys().filter(|id| !around.contains(id));
        let boxes = drawing.nodes.keys().map(|id| (format!("{id}"), layout.nodes[id]));
        for (name, place) in boxes.chain(others.map(|id| (format!("{id}"), layout.clusters[id]))) {
            if let Some(piece) = points.windows(2).find(|piece| crosses(piece[0], piece[1], place)) {
                return Err(format!("a line of edges {:?} crosses {name} {place:?} at {piece:?}", line.edges));
            }
        }
    }
    let drawn: BTreeSet<usize> = layout.lines.iter().flat_map(|line| line.edges.clone()).collect();
    match (0..drawing.edges.len()).find(|edge| !drawn.contains(edge)) {
        Some(edge) => Err(format!("edge {edge} has no line")),
        None => Ok(()),
    }
}

proptest! {
    #![proptest_config(streams_test_support::property_cases(300))]

    #[test]
    fn boxes_are_apart_and_inside_and_lines_cross_none(sketch in sketches()) {
        let drawing = drawing(&sketch);
        prop_assert_eq!(check(&drawing), Ok(()));
        let svg = drawing.to_svg();
        prop_assert!(roxmltree::Document::parse(&svg).is_ok());
        prop_assert_eq!(svg, drawing.to_svg());
    }

    #[test]
    fn whatever_things_are_called(label in any::<String>(), detail in any::<String>()) {
        let mut drawing = drawing(&Sketch {
            clusters: vec![None],
            nodes: vec![(Some(0), 1, 1)],
            edges: vec![(0, 0, 0, 0)],
        });
        let label = text::short(&label);
        drawing.title.clone_from(&label);
        for node in drawing.nodes.values_mut() {
            (node.label, node.details) = (label.clone(), vec![text::short(&detail)]);
        }
        for cluster in drawing.clusters.values_mut() {
            cluster.label.clone_from(&label);
        }
        let svg = drawing.to_svg();
        let document = roxmltree::Document::parse(&svg).unwrap();
        let texts: Vec<&str> = document.descendants().filter(|n| n.has_tag_name("text")).filter_map(|n| n.text()).collect();
        prop_assert!(label.is_empty() || texts.contains(&label.as_str()));
        // Quotes are balanced: every line of DOT has an even number of quotes that are not escaped.
        for line in drawing.to_dot().lines() {
            let mut quotes = 0;
            let mut escaped = false;
            for c in line.chars() {
                quotes += usize::from(c == '"' && !escaped);
                escaped = c == '\\' && !escaped;
            }
            prop_assert_eq!(quotes % 2, 0, "{}", line);
        }
        // Of Mermaid, two around each text.
        for line in drawing.to_mermaid().lines().filter(|line| !line.starts_with("%%")) {
            prop_assert!(matches!(line.matches('"').count(), 0 | 2), "{}", line);
        }
    }
}

#[test]
fn one_line_for_each_edge_of_a_feedback_loop() {
    let sketch = Sketch {
        clusters: vec![None, None],
        nodes: vec![(Some(0), 1, 1), (Some(0), 1, 1), (Some(1), 1, 1)],
        edges: vec![(0, 0, 1, 0), (1, 0, 2, 0), (2, 0, 0, 0), (2, 0, 2, 0)],
    };
    assert_eq!(check(&drawing(&sketch)), Ok(()));
}

#[test]
fn what_goes_back_in_the_order_but_onward_in_the_layers_is_drawn_onward() {
    // In the order 0 1 2 3 4 the link from 1 to 0 goes back. But 0 moves next to 3, to the second layer, and 1 stays in
    // the first.
    let edges = [(0, 3), (0, 4), (1, 0), (1, 2), (2, 3), (3, 4), (4, 1)];
    let sketch = Sketch {
        clusters: Vec::new(),
        nodes: vec![(None, 1, 1); 5],
        edges: edges.map(|(source, target)| (source, 0, target, 0)).to_vec(),
    };
    assert_eq!(check(&drawing(&sketch)), Ok(()));
}

#[test]
fn marks_are_told_apart_without_colour() {
    let mut marked = drawing(&Sketch { clusters: Vec::new(), nodes: vec![(None, 0, 0); 4], edges: Vec::new() });
    for (node, mark) in marked.nodes.values_mut().zip(Mark::ALL) {
        (node.label, node.mark) = ("O".to_owned(), Some(mark));
    }
    let (svg, dot, mermaid) = (marked.to_svg(), marked.to_dot(), marked.to_mermaid());
    for (sign, class) in [("= O", "kept"), ("~ O", "restarted"), ("+ O", "added"), ("\u{2212} O", "removed")] {
        assert!(svg.contains(&format!(">{sign}</text>")), "{sign}");
        assert!(svg.contains(&format!("class=\"node operator {class}\"")), "{class}");
        assert!(dot.contains(&format!("label=\"{sign}\"")), "{sign}");
        assert!(mermaid.contains(&format!("\"{}\"", sign.replace('~', "#126;"))), "{sign}");
    }
}
