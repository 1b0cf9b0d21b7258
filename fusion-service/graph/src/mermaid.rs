//! Writes drawings for Mermaid (`flowchart`), which many wikis and forges show.

use super::drawing::{ClusterKind, Drawing, Edge, Mark, Node, NodeId, NodeKind, Visit, walk};
use cranelift_entity::EntityRef;
use std::fmt::Write as _;

/// The whole text. Names are quoted; nothing of them is read as markup.
pub(super) fn write(drawing: &Drawing) -> String {
    let mut out = String::new();
    let _ = writeln!(out, "%% {}", comment(&drawing.title));
    for note in &drawing.notes {
        let _ = writeln!(out, "%% {}", comment(note));
    }
    out.push_str("flowchart LR\n");
    boxes(drawing, &mut out);
    let mut links: [Vec<usize>; 2] = Default::default();
    for (at, edge) in drawing.edges.iter().enumerate() {
        let arrow = match (edge.mark, edge.split) {
            (Some(Mark::Removed), _) => "-.->",
            (Some(Mark::Added), _) => "==>",
            (_, true) => "o-->",
            (_, false) => "-->",
        };
        match edge.mark {
            Some(Mark::Added) => links[0].push(at),
            Some(Mark::Removed) => links[1].push(at),
            _ => {}
        }
        let ports = ports(drawing, edge);
        let _ = writeln!(out, "  n{} {arrow}{ports} n{}", edge.source.node.index(), edge.target.node.index());
    }
    classes(drawing, &links, &mut out);
    out
}

/// Numbers at the ends, where an operator has several ports.
fn ports(drawing: &Drawing, edge: &Edge) -> String {
    let mut text = Vec::new();
    if drawing.nodes[edge.source.node].outputs > 1 {
        text.push(format!("out {}", edge.source.port));
    }
    if drawing.nodes[edge.target.node].inputs > 1 {
        text.push(format!("in {}", edge.target.port));
    }
    if edge.count > 1 {
        text.push(format!("×{}", edge.count));
    }
    if text.is_empty() { String::new() } else { format!("|{}|", quoted(&text.join(", "))) }
}

/// Writes nodes inside their clusters.
fn boxes(drawing: &Drawing, out: &mut String) {
    walk(drawing, |step, depth| {
        let indent = 2 * (depth + 1);
        match step {
            Visit::Begin(id) => {
                let cluster = &drawing.clusters[id];
                let _ = writeln!(
                    out,
                    "{:indent$}subgraph c{}[{}]",
                    "",
                    id.index(),
                    lines(&cluster.heading(), &cluster.details)
                );
            }
            Visit::Node(id) => node(&drawing.nodes[id], id, indent, out),
            Visit::End => {
                let _ = writeln!(out, "{:indent$}end", "");
            }
        }
    });
}

fn node(node: &Node, id: NodeId, indent: usize, out: &mut String) {
    let text = lines(&node.heading(), &node.details);
    let (begin, end) = match node.kind {
        NodeKind::Operator | NodeKind::Element => ("[", "]"),
        NodeKind::Import | NodeKind::Export => ("([", "])"),
        NodeKind::Folded => ("[[", "]]"),
    };
    let _ = writeln!(out, "{:indent$}n{}{begin}{text}{end}", "", id.index());
}

/// Colours that can be read on light and dark pages; the styles of borders say the same without colour.
fn classes(drawing: &Drawing, links: &[Vec<usize>; 2], out: &mut String) {
    let names = |of: &dyn Fn(&mut Vec<String>)| {
        let mut names = Vec::new();
        of(&mut names);
        names.join(",")
    };
    for (kind, name, style) in [
        (ClusterKind::Element, "pe", "fill:none,stroke:#57606a,stroke-width:1.5px"),
        (ClusterKind::Region, "region", "fill:none,stroke:#9a6700,stroke-dasharray:6 3"),
        (ClusterKind::Channel, "channel", "fill:none,stroke:#9a6700"),
        (ClusterKind::Composite, "composite", "fill:none,stroke:#8c959f,stroke-dasharray:2 2"),
    ] {
        let members = names(&|names| {
            let plain = drawing.clusters.iter().filter(|(_, c)| c.kind == kind && c.mark.is_none());
            names.extend(plain.map(|(id, _)| format!("c{}", id.index())));
        });
        if !members.is_empty() {
            let _ = writeln!(out, "  classDef {name} {style}\n  class {members} {name}");
        }
    }
    for (mark, style) in [
        (Mark::Kept, "stroke:#57606a,stroke-width:1px"),
        (Mark::Restarted, "stroke:#bc4c00,stroke-width:4px"),
        (Mark::Added, "stroke:#1a7f37,stroke-width:2px,stroke-dasharray:8 4"),
        (Mark::Removed, "stroke:#cf222e,stroke-width:2px,stroke-dasharray:2 4"),
    ] {
        let members = names(&|names| {
            let clusters = drawing.clusters.iter().filter(|(_, cluster)| cluster.mark == Some(mark));
            names.extend(clusters.map(|(id, _)| format!("c{}", id.index())));
            let nodes = drawing.nodes.iter().filter(|(_, node)| node.mark == Some(mark));
            names.extend(nodes.map(|(id, _)| format!("n{}", id.index())));
        });
        if !members.is_empty() {
            let word = mark.word();
            let _ = writeln!(out, "  classDef {word} {style}\n  class {members} {word}");
        }
    }
    for (links, style) in links.iter().zip(["stroke:#1a7f37", "stroke:#cf222e"]) {
        if !links.is_empty() {
            let list: Vec<String> = links.iter().map(usize::to_string).collect();
            let _ = writeln!(out, "  linkStyle {} {style}", list.join(","));
        }
    }
}

fn lines(heading: &str, details: &[String]) -> String {
    let escaped: Vec<String> = std::iter::once(heading).chain(details.iter().map(String::as_str)).map(escape).collect();
    format!("\"{}\"", escaped.join("<br/>"))
}

fn quoted(text: &str) -> String {
    format!("\"{}\"", escape(text))
}

/// `#` begins Mermaid's own entities; backquotes begin Markdown.
fn escape(text: &str) -> String {
    text.chars().fold(String::new(), |mut out, c| {
        match c {
            '"' | '#' | '&' | '<' | '>' | '`' | '\\' | '*' | '_' | '~' | ';' | '{' | '}' | '|' | '$' => {
                let _ = write!(out, "#{};", u32::from(c));
            }
            c => out.push(c),
        }
        out
    })
}

/// A comment ends with its line; `%%{` would begin a directive.
fn comment(text: &str) -> String {
    text.replace(['{', '}'], " ")
}
