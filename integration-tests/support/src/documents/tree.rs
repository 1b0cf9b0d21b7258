//! AADL documents as trees, and how two of them differ.

use std::collections::BTreeMap;

const NAMESPACES: [(&str, &str); 5] = [
    ("http://www.ibm.com/xmlns/prod/streams/application", "app"),
    ("http://www.ibm.com/xmlns/prod/streams/application/physical", "phy"),
    ("http://www.ibm.com/xmlns/prod/streams/application/augmented", "aug"),
    ("http://www.ibm.com/xmlns/prod/streams/spl/tupleType", "tt"),
    ("http://www.w3.org/2001/XMLSchema-instance", "xsi"),
];

/// Children that are sets.
const SETS: [&str; 7] = [
    "app:interPeConnection",
    "app:intraPeConnection",
    "aug:staticConnection",
    "app:coLocation",
    "app:exLocation",
    "app:tag",
    "app:operDefinition",
];

/// Ids that the reference implementation invents while it composes.
pub const INFERRED: &str = "StreamsIUO_InferredColocation_";

/// An element.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Name, with the short prefix of its namespace.
    pub tag: String,
    /// Attributes by name.
    pub attributes: BTreeMap<String, String>,
    /// Elements inside.
    pub children: Vec<Node>,
    /// Text inside, without line breaks and what is indented after them.
    pub text: String,
}

/// Reads a document; namespaces are resolved, also of `xsi:type`.
///
/// # Errors
/// When it is not well-formed.
pub fn parse(text: &str) -> Result<Node, String> {
    let document = roxmltree::Document::parse(text).map_err(|error| error.to_string())?;
    node(document.root_element())
}

fn short(namespace: Option<&str>, name: &str) -> String {
    match namespace {
        None => name.to_owned(),
        Some(uri) => {
            let prefix = NAMESPACES.iter().find(|(known, _)| *known == uri).map_or(uri, |(_, prefix)| prefix);
            format!("{prefix}:{name}")
        }
    }
}

fn node(xml: roxmltree::Node<'_, '_>) -> Result<Node, String> {
    let mut attributes = BTreeMap::new();
    for attribute in xml.attributes() {
        let name = short(attribute.namespace(), attribute.name());
        let value = if name == "xsi:type" {
            let (prefix, local) = attribute.value().split_once(':').unwrap_or(("", attribute.value()));
            let prefix = Some(prefix).filter(|prefix| !prefix.is_empty());
            let uri = xml.lookup_namespace_uri(prefix).ok_or("a prefix of xsi:type is not declared")?;
            short(Some(uri), local)
        } else {
            attribute.value().replace('\t', " ")
        };
        attributes.insert(name, value);
    }
    let children: Vec<Node> = xml.children().filter(|child| child.is_element()).map(node).collect::<Result<_, _>>()?;
    let text: String = xml.children().filter(|child| child.is_text()).filter_map(|child| child.text()).collect();
    let text = if !children.is_empty() && text.trim().is_empty() { String::new() } else { without_breaks(&text) };
    Ok(Node { tag: short(xml.tag_name().namespace(), xml.tag_name().name()), attributes, children, text })
}

/// A line break and the white space after it do not count.
fn without_breaks(text: &str) -> String {
    let mut result = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(['\r', '\n']) {
        result.push_str(&rest[..at]);
        rest = rest[at..].trim_start();
    }
    result + rest
}

impl Node {
    /// The value of an attribute.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.attributes.get(name).map(String::as_str)
    }

    /// The value of an attribute that is a number.
    ///
    /// # Errors
    /// When it is none.
    pub fn number(&self, name: &str) -> Result<u64, String> {
        let text = self.get(name).unwrap_or_default();
        text.parse().map_err(|_| format!("{}/@{name} is \"{text}\"", self.tag))
    }

    /// The first child of this tag.
    pub fn child(&self, tag: &str) -> Option<&Node> {
        self.children.iter().find(|child| child.tag == tag)
    }

    /// Children of the child of this tag.
    pub fn list(&self, tag: &str) -> &[Node] {
        self.child(tag).map_or(&[], |child| &child.children)
    }

    /// All descendants of this tag.
    pub fn all<'a>(&'a self, tag: &'a str) -> Vec<&'a Node> {
        let mut found = Vec::new();
        let mut open: Vec<&Node> = self.children.iter().rev().collect();
        while let Some(node) = open.pop() {
            if node.tag == tag {
                found.push(node);
            }
            open.extend(node.children.iter().rev());
        }
        found
    }

    /// Calls `f` with every descendant.
    pub fn visit(&mut self, f: &mut impl FnMut(&mut Node)) {
        for child in &mut self.children {
            f(child);
            child.visit(f);
        }
    }

    /// Removes descendants.
    pub fn drop_if(&mut self, test: &impl Fn(&Node) -> bool) {
        self.children.retain(|child| !test(child));
        for child in &mut self.children {
            child.drop_if(test);
        }
    }

    /// The whole subtree as a text that is equal for equal trees.
    pub fn key(&self) -> String {
        let mut key = format!("<{} {:?}>{}", self.tag, self.attributes, self.text);
        for child in &self.children {
            key.push_str(&child.key());
        }
        key + "</>"
    }

    /// The whole subtree with its sets sorted.
    pub fn sorted(&self) -> Node {
        let mut node = self.clone();
        for child in &mut node.children {
            *child = child.sorted();
        }
        // Sets are runs of one tag; a stable sort by tag would mix runs, so only members of sets move, to the front.
        node.children.sort_by_cached_key(|child| match SETS.contains(&child.tag.as_str()) {
            true => (0, child.tag.clone(), child.key()),
            false => (1, String::new(), String::new()),
        });
        node
    }
}

/// In place: what is not compared at all.
pub fn normalise(root: &mut Node) {
    if root.get("checkpointDirectory").is_some_and(str::is_empty) {
        root.attributes.remove("checkpointDirectory");
    }
    root.drop_if(&|node| {
        node.tag == "app:coLocation" && node.get("colocId").is_some_and(|id| id.starts_with(INFERRED))
    });
    root.drop_if(&|node| node.tag == "phy:annotation" && node.children.iter().all(|tuple| tuple.children.is_empty()));
    root.visit(&mut |node| {
        if node.tag == "app:checkpointing" {
            number(node, "period");
        }
        if node.tag == "app:attr" {
            match node.get("key") {
                Some("inputConnections") => triples(node),
                Some("drainTimeout" | "resetTimeout") => number(node, "value"),
                _ => {}
            }
        }
    });
}

/// Numbers are compared as numbers.
fn number(node: &mut Node, name: &str) {
    if let Some(value) = node.get(name).and_then(|text| text.parse::<f64>().ok()) {
        node.attributes.insert(name.to_owned(), format!("{value:?}"));
    }
}

/// `[[0,2,1],[0,1,1]]` is a set.
fn triples(node: &mut Node) {
    let inner = node.get("value").and_then(|text| text.strip_prefix("[[")).and_then(|text| text.strip_suffix("]]"));
    if let Some(inner) = inner {
        let mut triples: Vec<&str> = inner.split("],[").collect();
        triples.sort_unstable();
        let value = format!("[[{}]]", triples.join("],["));
        node.attributes.insert("value".to_owned(), value);
    }
}

/// Where two trees differ; sets are sorted, ports and operators are in the order of their numbers.
pub fn differences(expected: &Node, actual: &Node, path: &str, found: &mut Vec<String>) {
    const MOST: usize = 20;
    if found.len() >= MOST {
        return;
    }
    if expected.tag != actual.tag {
        found.push(format!("{path}: {} instead of {}", actual.tag, expected.tag));
        return;
    }
    for name in expected.attributes.keys().chain(actual.attributes.keys()) {
        let (was, is) = (expected.get(name), actual.get(name));
        if was != is {
            found.push(format!("{path}/@{name}: {is:?} instead of {was:?}"));
        }
    }
    if expected.text != actual.text {
        found.push(format!("{path}: text {:?} instead of {:?}", actual.text, expected.text));
    }
    if expected.children.len() != actual.children.len() {
        let tags = |node: &Node| node.children.iter().map(|child| child.tag.clone()).collect::<Vec<_>>();
        let (was, is) = (tags(expected), tags(actual));
        found.push(format!("{path}: {} children instead of {}: {is:?} {was:?}", is.len(), was.len()));
        return;
    }
    for (at, (was, is)) in expected.children.iter().zip(&actual.children).enumerate() {
        let label =
            was.get("name").or(was.get("id")).or(was.get("index")).map_or_else(|| at.to_string(), str::to_owned);
        differences(was, is, &format!("{path}/{}[{label}]", was.tag), found);
    }
}
