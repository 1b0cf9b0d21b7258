//! Nodes for Imports and Exports at the edge of a job. They are drawn although they do not run.

use super::drawing::{ClusterId, Mark, Node, NodeId, NodeKind};
use super::outline::{Connection, Outline, When};
use super::subject::{DrawnOperator, Subject};
use super::text::{last_part, long, short, shortened};
use std::collections::BTreeMap;
use streams_compiler::topology::{EvaluatedExport, EvaluatedImports, PhysicalOperator};

/// Imports and exports of the operators noted so far.
#[derive(Debug, Default)]
pub(super) struct Boundary {
    /// By name of the Import or Export.
    entries: BTreeMap<(NodeKind, String), Entry>,
    connections: Vec<EntryConnection>,
}

#[derive(Debug)]
struct Entry {
    /// Order of discovery.
    position: usize,
    parent: Option<ClusterId>,
    lines: Vec<String>,
    before: bool,
    now: bool,
    node: Option<NodeId>,
}

#[derive(Debug)]
struct EntryConnection {
    key: (NodeKind, String),
    operator: NodeId,
    port: u32,
    when: When,
}

impl Boundary {
    /// Notes what an operator imports and exports; `parent` is where an Import or Export that is new belongs.
    pub(super) fn note(
        &mut self,
        subject: &Subject<'_>,
        drawn: &DrawnOperator<'_>,
        node: NodeId,
        parent: Option<ClusterId>,
    ) {
        if let (Some(before), Some(was)) = (subject.before, drawn.before) {
            self.note_operator(&before.topology().operators[was], node, parent, When::Before);
        }
        if let Some(is) = drawn.now {
            self.note_operator(&subject.now.topology().operators[is], node, parent, When::Now);
        }
    }

    fn note_operator(&mut self, operator: &PhysicalOperator, node: NodeId, parent: Option<ClusterId>, when: When) {
        for (port, input) in (0_u32..).zip(&operator.inputs) {
            let Some(imports) = input.imports.as_deref() else { continue };
            for (name, lines) in describe_imports(imports) {
                self.connect((NodeKind::Import, name), lines, node, port, parent, when);
            }
        }
        for (port, output) in (0_u32..).zip(&operator.outputs) {
            let Some(export) = output.export.as_deref() else { continue };
            let key = (NodeKind::Export, export.operator_name.clone());
            self.connect(key, describe_export(export), node, port, parent, when);
        }
    }

    fn connect(
        &mut self,
        key: (NodeKind, String),
        lines: Vec<String>,
        operator: NodeId,
        port: u32,
        parent: Option<ClusterId>,
        when: When,
    ) {
        let position = self.entries.len();
        let entry = self.entries.entry(key.clone()).or_insert_with(|| Entry {
            position,
            parent,
            lines: Vec::new(),
            before: false,
            now: false,
            node: None,
        });
        entry.lines = lines;
        match when {
            When::Before => entry.before = true,
            When::Now => entry.now = true,
        }
        self.connections.push(EntryConnection { key, operator, port, when });
    }

    /// Adds the nodes.
    pub(super) fn add_nodes(&mut self, subject: &Subject<'_>, outline: &mut Outline) {
        let mut all: Vec<(&(NodeKind, String), &mut Entry)> = self.entries.iter_mut().collect();
        all.sort_by_key(|(_, entry)| entry.position);
        for ((kind, name), entry) in all {
            let mark = match (entry.before, entry.now) {
                (false, _) => Mark::Added,
                (_, false) => Mark::Removed,
                _ => Mark::Kept,
            };
            let origin = outline.text(&without_channels(name));
            let word = if *kind == NodeKind::Import { "import" } else { "export" };
            let mut details = vec![word.to_owned()];
            details.extend(entry.lines.iter().map(|line| shortened(line, 30)));
            let mut tooltip = vec![long(name)];
            tooltip.extend(entry.lines.iter().map(|line| long(line)));
            let node = Node {
                parent: entry.parent,
                kind: *kind,
                label: short(last_part(name, ".")),
                details,
                tooltip,
                mark: subject.before.map(|_| mark),
                inputs: u32::from(*kind == NodeKind::Export),
                outputs: u32::from(*kind == NodeKind::Import),
            };
            entry.node = Some(outline.node(node, origin, None));
        }
    }

    /// Passes on what they are connected to.
    pub(super) fn connections(&self, to: &mut dyn FnMut(Connection)) {
        for EntryConnection { key, operator, port, when } in &self.connections {
            let Some(node) = self.entries.get(key).and_then(|entry| entry.node) else { continue };
            let (split, when) = (false, *when);
            to(match key.0 {
                NodeKind::Import => {
                    Connection { source: node, source_port: 0, target: *operator, target_port: *port, split, when }
                }
                _ => Connection { source: *operator, source_port: *port, target: node, target_port: 0, split, when },
            });
        }
    }
}

/// The name that an Import or Export has in all channels: what it imports may differ.
fn without_channels(name: &str) -> String {
    let mut depth = 0_usize;
    name.chars()
        .filter(|c| {
            depth += usize::from(*c == '[');
            let outside = depth == 0;
            depth -= usize::from(*c == ']' && depth > 0);
            outside
        })
        .collect()
}

/// Names of the Imports of a port, with what each imports.
fn describe_imports(imports: &EvaluatedImports) -> Vec<(String, Vec<String>)> {
    let mut all: Vec<(String, Vec<String>)> = Vec::new();
    for import in &imports.by_name {
        let line = format!("{} of {}", import.stream_name, import.application_name);
        all.push((import.operator_name.clone(), vec![line]));
    }
    if let Some(import) = &imports.by_properties {
        all.push((import.operator_name.clone(), vec![import.subscription.clone()]));
    }
    for (_, lines) in &mut all {
        lines.extend(imports.filter.iter().map(|filter| format!("filter {filter}")));
    }
    all
}

fn describe_export(export: &EvaluatedExport) -> Vec<String> {
    let mut lines: Vec<String> = export.name.iter().map(|name| format!("as {name}")).collect();
    let properties: Vec<String> = (export.properties.iter().flatten())
        .map(|property| format!("{}={}", property.name, property.values.join(",")))
        .collect();
    if !properties.is_empty() {
        lines.push(properties.join(", "));
    }
    lines
}
