//! The documents of one step, with every reference to a PE port replaced by what the port stands for.

use super::tree::{self, Node};
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// A PE and the id of one of its ports.
pub type Port = (u64, u64);

/// A step with a plan.
#[derive(Debug)]
pub struct Step {
    /// Documents by PE id; port references resolved.
    pub documents: BTreeMap<u64, Node>,
    /// SHA-256 of the documents.
    pub digests: BTreeMap<u64, String>,
    /// The documents as they are, with sets sorted.
    pub originals: BTreeMap<u64, String>,
    /// `context.json`.
    pub context: Value,
    /// What PE input ports stand for.
    pub inputs: BTreeMap<Port, String>,
    /// What PE output ports stand for.
    pub outputs: BTreeMap<Port, String>,
    /// The PE of each operator, by index.
    pub owner: BTreeMap<u64, u64>,
    /// What is wrong with single documents.
    pub problems: Vec<String>,
}

impl Step {
    /// Reads the files of a step that `plan` has written.
    ///
    /// # Errors
    /// When a file cannot be read, or is not what its name says.
    pub fn read(folder: &Path) -> Result<Self, String> {
        let mut step = Self {
            documents: BTreeMap::new(),
            digests: BTreeMap::new(),
            originals: BTreeMap::new(),
            context: Value::Null,
            inputs: BTreeMap::new(),
            outputs: BTreeMap::new(),
            owner: BTreeMap::new(),
            problems: Vec::new(),
        };
        for entry in std::fs::read_dir(folder).map_err(|error| format!("{}: {error}", folder.display()))? {
            let path = entry.map_err(|error| error.to_string())?.path();
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            let read = || std::fs::read_to_string(&path).map_err(|error| format!("{name}: {error}"));
            if let Some(id) = name.strip_prefix("pe-").and_then(|rest| rest.strip_suffix(".aadl.xml")) {
                let id: u64 = id.parse().map_err(|_| format!("{name}: no PE id"))?;
                let text = read()?;
                let root = tree::parse(&text).map_err(|error| format!("{name}: {error}"))?;
                if root.tag != "aug:augmentedPE" || root.number("id")? != id {
                    return Err(format!("{name}: another document"));
                }
                step.digests.insert(id, hex::encode(Sha256::digest(text.as_bytes())));
                step.originals.insert(id, root.sorted().key());
                step.documents.insert(id, root);
            } else if name == "context.json" || name == "context.partial.json" {
                step.context = serde_json::from_str(&read()?).map_err(|error| format!("{name}: {error}"))?;
            }
        }
        step.find_ports()?;
        step.resolve();
        Ok(step)
    }

    fn find_ports(&mut self) -> Result<(), String> {
        for (&pe, root) in &self.documents {
            for operator in root.all("app:operInstance") {
                let index = operator.number("index")?;
                if self.owner.insert(index, pe).is_some() {
                    self.problems.push(format!("operator {index} is in two PEs"));
                }
            }
            for (tag, word, port, table) in [
                ("aug:inputPort", "input", "iportIndex", &mut self.inputs),
                ("aug:outputPort", "output", "oportIndex", &mut self.outputs),
            ] {
                let mut last = None;
                let mut seen = BTreeSet::new();
                for element in root.all(tag) {
                    let id = element.number("id")?;
                    let end = element.child("aug:operInstanceConnection").ok_or("a PE port of no operator")?;
                    let mut stands_for = format!("{word} {}.{}", end.number("operInstanceIndex")?, end.number(port)?);
                    if word == "output" {
                        let part = |name| end.get(name).unwrap_or("-").to_owned();
                        stands_for += &format!(" s{} c{}", part("splitterIndex"), part("channelIndex"));
                    }
                    if last.is_some_and(|last| last >= id) || element.get("index") != element.get("id") {
                        self.problems.push(format!("PE {pe}: {tag} {id} is out of order, or its index differs"));
                    }
                    if !seen.insert(stands_for.clone()) {
                        self.problems.push(format!("PE {pe}: two ports for {stands_for}"));
                    }
                    last = Some(id);
                    table.insert((pe, id), stands_for);
                }
            }
        }
        Ok(())
    }

    fn resolve(&mut self) {
        let Self { documents, inputs, outputs, owner, .. } = self;
        let name = |table: &BTreeMap<Port, String>, pe: Option<u64>, id: Option<&str>| {
            let id = id.and_then(|id| id.parse::<u64>().ok());
            let found = pe.zip(id).and_then(|port| Some((port.0, table.get(&port)?)));
            found.map_or_else(|| "no such port".to_owned(), |(pe, port)| format!("pe-{pe} {port}"))
        };
        let of_operator = |node: &Node| owner.get(&node.number("operInstanceIndex").ok()?).copied();
        for (&pe, root) in documents {
            root.visit(&mut |node| match node.tag.as_str() {
                "app:inputPort" => node.visit(&mut |inner| {
                    if let Some(id) = inner.get("pePortIndex") {
                        let port = name(outputs, of_operator(inner), Some(id));
                        inner.attributes.insert("pePortIndex".to_owned(), port);
                    }
                }),
                "app:outputPort" => node.visit(&mut |inner| {
                    if inner.get("pePortIndex").is_some_and(|id| id.parse::<u64>().is_ok()) {
                        let port = name(inputs, of_operator(inner), inner.get("pePortIndex"));
                        inner.attributes.insert("pePortIndex".to_owned(), port);
                    }
                }),
                "aug:inputPort" | "aug:outputPort" => {
                    let (mine, others, keys): (_, _, [&str; 2]) = match node.tag.as_str() {
                        "aug:inputPort" => (&*inputs, &*outputs, ["oportId", "oportIndex"]),
                        _ => (&*outputs, &*inputs, ["iportId", "iportIndex"]),
                    };
                    let port = name(mine, Some(pe), node.get("id"));
                    node.attributes.insert("id".to_owned(), port);
                    node.attributes.remove("index");
                    node.visit(&mut |inner| {
                        if inner.tag == "aug:staticConnection" {
                            let peer = inner.number("peId").ok();
                            for key in keys {
                                let port = name(others, peer, inner.get(key));
                                inner.attributes.insert(key.to_owned(), port);
                            }
                        }
                    });
                    // The order of ports is that of free numbers; compare them by what they stand for.
                }
                _ => {}
            });
            root.visit(&mut |node| {
                if matches!(node.tag.as_str(), "aug:inputPorts" | "aug:outputPorts") {
                    node.children.sort_by(|a, b| a.get("id").cmp(&b.get("id")));
                }
            });
        }
    }

    /// Operators by name: index and PE.
    pub fn operators(&self) -> BTreeMap<String, (u64, u64)> {
        let mut operators = BTreeMap::new();
        for (&pe, root) in &self.documents {
            for operator in root.all("app:operInstance") {
                let name = operator.get("name").unwrap_or_default().to_owned();
                operators.insert(name, (operator.number("index").unwrap_or(u64::MAX), pe));
            }
        }
        operators
    }
}
