//! Writes drawings for Graphviz (`dot -Tsvg`). Graphviz draws a box around a subgraph only if its name begins with
//! `cluster`.

use super::drawing::{Cluster, ClusterId, ClusterKind, Drawing, Edge, Mark, Node, NodeId, NodeKind, Visit, walk};
use cranelift_entity::EntityRef;
use std::fmt::Write as _;

/// The whole text. Names are quoted; nothing of them is read as an escape sequence or an entity.
pub(super) fn write(drawing: &Drawing) -> String {
    let mut out = String::new();
    out.push_str("digraph application {\n");
    let caption: Vec<&str> =
        std::iter::once(drawing.title.as_str()).chain(drawing.notes.iter().map(String::as_str)).collect();
    let legend = drawing.is_difference().then(|| {
        let marks = Mark::ALL.map(|mark| format!("{} {} ({})", mark.sign(), mark.word(), style(Some(mark))));
        marks.join(", ")
    });
    let caption: Vec<&str> = caption.into_iter().chain(legend.as_deref()).collect();
    // Without newrank, Graphviz gives up on some applications ("trouble in init_rank").
    let _ =
        writeln!(out, "  graph [rankdir=LR, newrank=true, labelloc=t, labeljust=l, label={}];", left_lines(&caption));
    out.push_str("  graph [fontname=\"Helvetica,Arial,sans-serif\", fontsize=12, nodesep=0.2, ranksep=0.5];\n");
    out.push_str("  node [fontname=\"Helvetica,Arial,sans-serif\", fontsize=11, shape=box];\n");
    out.push_str("  edge [fontname=\"Helvetica,Arial,sans-serif\", fontsize=8, arrowsize=0.6];\n");
    walk(drawing, |step, depth| {
        let indent = 2 * (depth + 1);
        match step {
            Visit::Begin(id) => begin(&drawing.clusters[id], id, indent, &mut out),
            Visit::Node(id) => node(&drawing.nodes[id], id, indent, &mut out),
            Visit::End => {
                let _ = writeln!(out, "{:indent$}}}", "");
            }
        }
    });
    for edge in &drawing.edges {
        self::edge(drawing, edge, &mut out);
    }
    out.push_str("}\n");
    out
}

fn begin(cluster: &Cluster, id: ClusterId, indent: usize, out: &mut String) {
    let title = cluster.heading();
    let texts: Vec<&str> = std::iter::once(title.as_str()).chain(cluster.details.iter().map(String::as_str)).collect();
    let tooltip: Vec<&str> = cluster.tooltip.iter().map(String::as_str).collect();
    let (color, kind) = match cluster.kind {
        ClusterKind::Composite => ("gray60", "dashed"),
        ClusterKind::Region => ("goldenrod4", "dashed"),
        ClusterKind::Channel => ("goldenrod3", "rounded"),
        ClusterKind::Element => ("gray25", "solid"),
    };
    let style = if cluster.mark.is_some() { style(cluster.mark) } else { kind };
    let _ = writeln!(out, "{:indent$}subgraph cluster_{} {{", "", id.index());
    let _ = writeln!(
        out,
        "{:indent$}  graph [label={}, style={}, color={color}, penwidth={}, tooltip={}];",
        "",
        left_lines(&texts),
        quoted(style),
        if cluster.mark == Some(Mark::Restarted) { 2.5 } else { 1.0 },
        lines(&tooltip),
    );
}

fn node(node: &Node, id: NodeId, indent: usize, out: &mut String) {
    let Node { kind, details, tooltip, mark, .. } = node;
    let title = node.heading();
    let texts: Vec<&str> = std::iter::once(title.as_str()).chain(details.iter().map(String::as_str)).collect();
    let tooltip: Vec<&str> = tooltip.iter().map(String::as_str).collect();
    let shape = match kind {
        NodeKind::Operator | NodeKind::Element => "",
        NodeKind::Import => ", shape=cds",
        NodeKind::Export => ", shape=cds",
        NodeKind::Folded => ", peripheries=2",
    };
    let style = match mark {
        Some(mark) => format!(", style={}", quoted(style(Some(*mark)))),
        None => String::new(),
    };
    let _ = writeln!(
        out,
        "{:indent$}n{} [label={}{shape}{style}, tooltip={}];",
        "",
        id.index(),
        lines(&texts),
        lines(&tooltip)
    );
}

fn edge(drawing: &Drawing, edge: &Edge, out: &mut String) {
    let Edge { source, target, mark, split, count } = edge;
    let mut attributes = Vec::new();
    if drawing.nodes[source.node].outputs > 1 {
        attributes.push(format!("taillabel=\"{}\"", source.port));
    }
    if drawing.nodes[target.node].inputs > 1 {
        attributes.push(format!("headlabel=\"{}\"", target.port));
    }
    if *split {
        attributes.push("dir=both, arrowtail=odiamond".to_owned());
    }
    match mark {
        Some(Mark::Added) => attributes.push("style=dashed, color=\"darkgreen\"".to_owned()),
        Some(Mark::Removed) => attributes.push("style=dotted, color=\"firebrick\"".to_owned()),
        Some(Mark::Kept | Mark::Restarted) | None => {}
    }
    if *count > 1 {
        attributes.push(format!("label=\"×{count}\""));
    }
    let _ = write!(out, "  n{} -> n{}", source.node.index(), target.node.index());
    if !attributes.is_empty() {
        let _ = write!(out, " [{}]", attributes.join(", "));
    }
    out.push_str(";\n");
}

fn style(mark: Option<Mark>) -> &'static str {
    match mark {
        None | Some(Mark::Kept) => "solid",
        Some(Mark::Restarted) => "bold",
        Some(Mark::Added) => "dashed",
        Some(Mark::Removed) => "dotted",
    }
}

/// Lines, in the middle.
fn lines(texts: &[&str]) -> String {
    let escaped: Vec<String> = texts.iter().map(|text| escape(text)).collect();
    format!("\"{}\"", escaped.join("\\n"))
}

/// Lines, to the left.
fn left_lines(texts: &[&str]) -> String {
    let escaped: String = texts.iter().map(|text| escape(text) + "\\l").collect();
    format!("\"{escaped}\"")
}

fn quoted(text: &str) -> String {
    lines(&[text])
}

/// A backslash begins a sequence such as `\N`, an ampersand an entity.
fn escape(text: &str) -> String {
    text.chars().fold(String::with_capacity(text.len()), |mut out, c| {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '&' => out.push_str("&amp;"),
            c => out.push(c),
        }
        out
    })
}
