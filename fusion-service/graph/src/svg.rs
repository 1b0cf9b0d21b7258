//! Writes drawings as SVG, without scripts, fonts or anything from elsewhere. Colours are light or dark as the system
//! of the reader is set.
//!
//! What a resize does is shown in three ways: by a sign and a word, by the border (thin, thick, dashed, dotted), and by
//! a colour.
//!
//! Knows: drawings, places of their parts. Must not know: jobs, what is folded.

use super::drawing::{ClusterKind, Drawing, Edge, Mark, Node, NodeKind};
use super::layout::{self, Layout, Line, Path, Rect, Segment, common_mark};
use super::measure::{self, NAME_LINE, REMARK_LINE, SIDE};
use super::text;
use cranelift_entity::EntityRef;
use quick_xml::escape::escape;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use streams_compiler::phrase::listed;

/// Space around everything.
const MARGIN: f64 = 16.0;

/// Style sheet. Colours for dark pages come last and change nothing but colours.
const STYLE: &str = include_str!("svg.css");

/// The whole text.
pub(super) fn write(drawing: &Drawing) -> String {
    let layout = layout::layout(drawing);
    let title_width = text::width(&drawing.title) * 16.0 * 1.07;
    let notes_width = drawing.notes.iter().map(|note| text::width(note) * 11.0).fold(0.0, f64::max);
    let top = MARGIN + 24.0 + 15.0 * drawing.notes.len() as f64 + 8.0;
    let entries = legend_entries(drawing);
    let least = f64::max(title_width, notes_width).max(320.0);
    let width = (f64::max(layout.width, least) + 2.0 * MARGIN).ceil();
    let (legend, legend_height) = legend(&entries, width - 2.0 * MARGIN, MARGIN, top + layout.height + 20.0);
    let height = (top + layout.height + 20.0 + legend_height + MARGIN).ceil();

    let mut out = String::new();
    let _ = writeln!(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\" \
         role=\"img\" aria-labelledby=\"title\">"
    );
    let _ = writeln!(out, "<title id=\"title\">{}</title>", escape(drawing.title.as_str()));
    let _ = writeln!(out, "<desc>{}</desc>", escape(drawing.notes.join(" ")));
    let _ = writeln!(out, "<style>\n{STYLE}</style>");
    out.push_str(DEFINITIONS);
    let _ = writeln!(out, "<rect class=\"page\" width=\"{width}\" height=\"{height}\"/>");
    let _ = writeln!(
        out,
        "<text class=\"title\" x=\"{MARGIN}\" y=\"{}\">{}</text>",
        MARGIN + 14.0,
        escape(drawing.title.as_str())
    );
    for (at, note) in drawing.notes.iter().enumerate() {
        let y = MARGIN + 34.0 + 15.0 * at as f64;
        let _ = writeln!(out, "<text class=\"note\" x=\"{MARGIN}\" y=\"{y}\">{}</text>", escape(note.as_str()));
    }
    let _ = writeln!(out, "<g transform=\"translate({MARGIN} {top})\">");
    for (id, _) in &drawing.clusters {
        cluster(drawing, id, layout.clusters[id], &mut out);
    }
    out.push_str("<g class=\"lines\">\n");
    for line in &layout.lines {
        self::line(drawing, line, &mut out);
    }
    out.push_str("</g>\n");
    for (id, of) in &drawing.nodes {
        node(of, id.index(), layout.nodes[id], &mut out);
    }
    ports(drawing, &layout, &mut out);
    out.push_str("</g>\n");
    out.push_str(&legend);
    out.push_str("</svg>\n");
    out
}

/// One arrow head per colour: markers do not take the colour of their line everywhere.
const DEFINITIONS: &str = "<defs>\n\
    <marker id=\"arrow\" viewBox=\"0 0 8 8\" refX=\"7.5\" refY=\"4\" markerWidth=\"7\" markerHeight=\"7\" orient=\"auto\" \
    markerUnits=\"userSpaceOnUse\"><path class=\"head\" d=\"M0 .8 8 4 0 7.2z\"/></marker>\n\
    <marker id=\"arrow-added\" viewBox=\"0 0 8 8\" refX=\"7.5\" refY=\"4\" markerWidth=\"7\" markerHeight=\"7\" orient=\"auto\" \
    markerUnits=\"userSpaceOnUse\"><path class=\"head added\" d=\"M0 .8 8 4 0 7.2z\"/></marker>\n\
    <marker id=\"arrow-removed\" viewBox=\"0 0 8 8\" refX=\"7.5\" refY=\"4\" markerWidth=\"7\" markerHeight=\"7\" orient=\"auto\" \
    markerUnits=\"userSpaceOnUse\"><path class=\"head removed\" d=\"M0 .8 8 4 0 7.2z\"/></marker>\n\
    </defs>\n";

fn mark_class(mark: Option<Mark>) -> &'static str {
    match mark {
        None => "",
        Some(Mark::Kept) => " kept",
        Some(Mark::Restarted) => " restarted",
        Some(Mark::Added) => " added",
        Some(Mark::Removed) => " removed",
    }
}

fn cluster_class(kind: ClusterKind) -> &'static str {
    match kind {
        ClusterKind::Composite => "composite",
        ClusterKind::Region => "region",
        ClusterKind::Channel => "channel",
        ClusterKind::Element => "pe",
    }
}

fn node_class(kind: NodeKind) -> &'static str {
    match kind {
        NodeKind::Operator => "operator",
        NodeKind::Import => "import",
        NodeKind::Export => "export",
        NodeKind::Folded => "folded",
        NodeKind::Element => "pe",
    }
}

fn cluster(drawing: &Drawing, id: super::ClusterId, place: Rect, out: &mut String) {
    let cluster = &drawing.clusters[id];
    let Rect { x, y, width, height } = place;
    let class = cluster_class(cluster.kind);
    let mark = mark_class(cluster.mark);
    let _ = writeln!(out, "<g id=\"c{}\" class=\"cluster {class}{mark}\">", id.index());
    tooltip(&cluster.heading(), &cluster.tooltip, out);
    let radius = if cluster.kind == ClusterKind::Element { 3 } else { 9 };
    let _ = writeln!(out, "<rect x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\" rx=\"{radius}\"/>");
    let x = x + SIDE;
    let _ = writeln!(out, "<text class=\"name\" x=\"{x}\" y=\"{}\">{}</text>", y + 17.0, escape(cluster.heading()));
    for (at, detail) in cluster.details.iter().enumerate() {
        let y = y + 17.0 + 13.0 + REMARK_LINE * at as f64;
        let _ = writeln!(out, "<text class=\"remark\" x=\"{x}\" y=\"{y}\">{}</text>", escape(detail.as_str()));
    }
    out.push_str("</g>\n");
}

fn node(node: &Node, number: usize, place: Rect, out: &mut String) {
    let Rect { x, y, width, height } = place;
    let (class, mark) = (node_class(node.kind), mark_class(node.mark));
    let _ = writeln!(out, "<g id=\"n{number}\" class=\"node {class}{mark}\">");
    tooltip(&node.heading(), &node.tooltip, out);
    shape(node.kind, place, out);
    let (name, remark) = measure::base_lines(node, height);
    let middle = x + width / 2.0;
    let _ = writeln!(out, "<text class=\"name\" x=\"{middle}\" y=\"{}\">{}</text>", y + name, escape(node.heading()));
    for (at, detail) in node.details.iter().enumerate() {
        let y = y + remark + REMARK_LINE * at as f64;
        let _ = writeln!(out, "<text class=\"remark\" x=\"{middle}\" y=\"{y}\">{}</text>", escape(detail.as_str()));
    }
    out.push_str("</g>\n");
}

/// The box of a node; within `place` whatever its kind.
fn shape(kind: NodeKind, place: Rect, out: &mut String) {
    let Rect { x, y, width, height } = place;
    match kind {
        NodeKind::Operator | NodeKind::Element => {
            let _ = writeln!(out, "<rect x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\" rx=\"5\"/>");
        }
        NodeKind::Import | NodeKind::Export => {
            let _ = writeln!(
                out,
                "<rect x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\" rx=\"{}\"/>",
                (height / 2.0).min(18.0)
            );
        }
        NodeKind::Folded => {
            let _ = writeln!(out, "<rect x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\"/>");
            let (x, y, width, height) = (x + 3.0, y + 3.0, width - 6.0, height - 6.0);
            let _ = writeln!(out, "<rect x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\"/>");
        }
    }
}

fn tooltip(heading: &str, lines: &[String], out: &mut String) {
    let all: Vec<&str> = std::iter::once(heading).chain(lines.iter().map(String::as_str)).collect();
    let _ = writeln!(out, "<title>{}</title>", escape(all.join("\n")));
}

fn line(drawing: &Drawing, line: &Line, out: &mut String) {
    let edges: Vec<&Edge> = line.edges.iter().filter_map(|&edge| drawing.edges.get(edge)).collect();
    let mark = common_mark(edges.iter().map(|edge| edge.mark));
    let class = match mark {
        Some(Mark::Added) => " class=\"added\"",
        Some(Mark::Removed) => " class=\"removed\"",
        Some(Mark::Kept | Mark::Restarted) | None => "",
    };
    let arrow = match (line.arrives, mark) {
        (false, _) => "",
        (true, Some(Mark::Added)) => " marker-end=\"url(#arrow-added)\"",
        (true, Some(Mark::Removed)) => " marker-end=\"url(#arrow-removed)\"",
        (true, _) => " marker-end=\"url(#arrow)\"",
    };
    let _ = writeln!(
        out,
        "<path{class} d=\"{}\"{arrow}><title>{}</title></path>",
        path(&line.path),
        escape(describe(drawing, &edges))
    );
}

/// Names in the tooltip of a line.
const MOST_NAMES: usize = 6;

/// `A → B, C`.
fn describe(drawing: &Drawing, edges: &[&Edge]) -> String {
    let names = |ends: &mut dyn Iterator<Item = (super::End, bool)>| {
        let mut seen = BTreeSet::new();
        let mut names: Vec<String> = Vec::new();
        for (end, several) in ends.filter(|(end, _)| seen.insert(*end)) {
            let label = &drawing.nodes[end.node].label;
            names.push(if several { format!("{label} port {}", end.port) } else { label.clone() });
        }
        listed(&names[..names.len().min(MOST_NAMES)], names.len())
    };
    let sources = names(&mut edges.iter().map(|e| (e.source, drawing.nodes[e.source.node].outputs > 1)));
    let targets = names(&mut edges.iter().map(|e| (e.target, drawing.nodes[e.target.node].inputs > 1)));
    let count: u32 = edges.iter().fold(0, |sum, edge| sum.saturating_add(edge.count));
    let count = if count as usize > edges.len() { format!(", {count} connections") } else { String::new() };
    format!("{sources} → {targets}{count}")
}

fn path(path: &Path) -> String {
    let mut text = format!("M{}", point(path.begin));
    for segment in &path.segments {
        let _ = match *segment {
            Segment::Straight((x, _)) => write!(text, "H{}", number(x)),
            Segment::Curve(first, second, end) => {
                write!(text, "C{} {} {}", point(first), point(second), point(end))
            }
        };
    }
    text
}

fn point((x, y): (f64, f64)) -> String {
    format!("{} {}", number(x), number(y))
}

/// Whole pixels are enough.
fn number(value: f64) -> f64 {
    // Not minus zero.
    value.round() + 0.0
}

/// A mark at each port that a line is at, if the node has several on that side, and a diamond where a splitter is.
fn ports(drawing: &Drawing, layout: &Layout, out: &mut String) {
    let split: BTreeSet<super::End> = drawing.edges.iter().filter(|e| e.split).map(|e| e.source).collect();
    for end in split {
        let Rect { x, y, width, .. } = layout.nodes[end.node];
        let y = y + measure::port(&drawing.nodes[end.node], end.port, true);
        let x = x + width;
        let _ = writeln!(out, "<path class=\"splitter\" d=\"M{x} {y}l6 -5 6 5 -6 5z\"><title>splitter</title></path>");
    }
    for (id, node) in &drawing.nodes {
        let Rect { x, y, width, .. } = layout.nodes[id];
        for (count, output, x) in [(node.inputs, false, x), (node.outputs, true, x + width)] {
            for port in (0..count).filter(|_| count > 1) {
                let y = y + measure::port(node, port, output);
                let _ = writeln!(out, "<circle class=\"port\" cx=\"{x}\" cy=\"{y}\" r=\"2.5\"/>");
            }
        }
    }
}

/// What a sign of the legend looks like.
enum Sample {
    Cluster(ClusterKind, Option<Mark>),
    Node(NodeKind, Option<Mark>),
    Line(Option<Mark>),
    Splitter,
}

/// What occurs in the drawing.
fn legend_entries(drawing: &Drawing) -> Vec<(Sample, String)> {
    let mut entries = Vec::new();
    let difference = drawing.is_difference();
    for (kind, word) in [
        (ClusterKind::Element, "PE"),
        (ClusterKind::Region, "parallel region"),
        (ClusterKind::Channel, "channel"),
        (ClusterKind::Composite, "composite"),
    ] {
        if drawing.clusters.values().any(|cluster| cluster.kind == kind && cluster.mark.is_none()) {
            entries.push((Sample::Cluster(kind, None), word.to_owned()));
        }
    }
    for (kind, word) in [
        (NodeKind::Operator, "operator"),
        (NodeKind::Import, "import"),
        (NodeKind::Export, "export"),
        (NodeKind::Folded, "several"),
    ] {
        let word = match kind {
            NodeKind::Import if drawing.nodes.values().any(|node| node.kind == NodeKind::Export) => "import, export",
            NodeKind::Export if drawing.nodes.values().any(|node| node.kind == NodeKind::Import) => continue,
            _ => word,
        };
        if drawing.nodes.values().any(|node| node.kind == kind) {
            entries.push((Sample::Node(kind, None), word.to_owned()));
        }
    }
    entries.push((Sample::Line(None), "stream".to_owned()));
    if drawing.edges.iter().any(|edge| edge.split) {
        entries.push((Sample::Splitter, "splitter".to_owned()));
    }
    if difference {
        for mark in Mark::ALL {
            let sample = match drawing.clusters.values().any(|cluster| cluster.kind == ClusterKind::Element) {
                true => Sample::Cluster(ClusterKind::Element, Some(mark)),
                false => Sample::Node(NodeKind::Operator, Some(mark)),
            };
            entries.push((sample, format!("{} {}", mark.sign(), mark.word())));
        }
        for (mark, word) in [(Mark::Added, "stream added"), (Mark::Removed, "stream removed")] {
            if drawing.edges.iter().any(|edge| edge.mark == Some(mark)) {
                entries.push((Sample::Line(Some(mark)), word.to_owned()));
            }
        }
    }
    entries
}

/// The legend, in rows of at most `width`, and its height.
fn legend(entries: &[(Sample, String)], width: f64, left: f64, top: f64) -> (String, f64) {
    const ROW: f64 = 24.0;
    const SAMPLE: f64 = 30.0;
    let mut out = String::from("<g class=\"legend\">\n");
    let (mut x, mut y) = (left, top);
    for (sample, word) in entries {
        let own = (SAMPLE + 6.0 + text::width(word) * 10.0 + 18.0).ceil();
        if x > left && x + own > left + width {
            (x, y) = (left, y + ROW);
        }
        let place = Rect { x, y, width: SAMPLE, height: 16.0 };
        let middle = y + 8.0;
        match sample {
            Sample::Cluster(kind, mark) => {
                let (class, mark) = (cluster_class(*kind), mark_class(*mark));
                let _ = writeln!(
                    out,
                    "<g class=\"cluster {class}{mark}\"><rect x=\"{x}\" y=\"{y}\" width=\"{SAMPLE}\" height=\"16\" rx=\"3\"/></g>"
                );
            }
            Sample::Node(kind, mark) => {
                let (class, mark) = (node_class(*kind), mark_class(*mark));
                let _ = writeln!(out, "<g class=\"node {class}{mark}\">");
                shape(*kind, place, &mut out);
                out.push_str("</g>\n");
            }
            Sample::Line(mark) => {
                let (class, arrow) = match mark {
                    Some(Mark::Added) => (" class=\"added\"", "arrow-added"),
                    Some(Mark::Removed) => (" class=\"removed\"", "arrow-removed"),
                    _ => ("", "arrow"),
                };
                let _ = writeln!(
                    out,
                    "<g class=\"lines\"><path{class} d=\"M{x} {middle}h{SAMPLE}\" marker-end=\"url(#{arrow})\"/></g>"
                );
            }
            Sample::Splitter => {
                let x = x + 9.0;
                let _ = writeln!(out, "<path class=\"splitter\" d=\"M{x} {middle}l6 -5 6 5 -6 5z\"/>");
            }
        }
        let (x_text, y_text) = (x + SAMPLE + 6.0, y + 12.0);
        let _ = writeln!(out, "<text class=\"remark\" x=\"{x_text}\" y=\"{y_text}\">{}</text>", escape(word.as_str()));
        x += own;
    }
    out.push_str("</g>\n");
    (out, y + NAME_LINE - top)
}
