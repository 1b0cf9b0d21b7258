//! Compares two documents of a PE: which elements and attributes differ, and whether a running PE can observe it.
//!
//! It compares the texts, so it finds every difference. It matches children by what they stand for (the index of an
//! operator, the id of a PE port, the ends of a connection), not by position (rule aadl-19). The [`super::vocabulary`],
//! which the writer uses too, says which attributes identify a child and what the runtime does not read. The
//! differences of a document restart its PE exactly if one of them is observable (rule aadl-5). Tests check that over
//! whole chains of resizes.
//!
//! Knows: the AADL vocabulary. Must not know: why something changed.

use super::element::{Observability, VocabularyEntry};
use super::vocabulary::{entry, root};
use crate::error::excerpt;
use crate::topology::IgnoredCounts;
use roxmltree::{Document, Node};
use std::cell::LazyCell;
use std::collections::HashMap;

/// One place where documents differ.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// Elements around it, outermost first, without the root.
    pub path: Vec<PathElement>,
    /// What differs there.
    pub what: DifferenceKind,
    /// Whether a running PE can observe it.
    pub observable: bool,
}

/// An element, and what it stands for among its siblings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathElement {
    /// Name, with the prefix that documents use.
    pub element: String,
    /// Attributes that identify it.
    pub key: Key,
    /// Its name, if it has one.
    pub name: Option<String>,
}

/// Attributes, by name, that identify an element among its siblings.
pub type Key = Vec<(&'static str, String)>;

/// What is different about an element.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DifferenceKind {
    /// The value of an attribute; `None` where it is absent.
    Attribute {
        /// Name of the attribute.
        name: String,
        /// Before.
        before: Option<String>,
        /// After.
        after: Option<String>,
    },
    /// Its text.
    Text {
        /// Before.
        before: String,
        /// After.
        after: String,
    },
    /// Which children of one name it has.
    Children {
        /// Name of the children.
        element: String,
        /// Number of such children before.
        before: usize,
        /// After.
        after: usize,
        /// The first of those that are new, and how many there are.
        added: (Vec<PathElement>, usize),
        /// The first of those that are gone, and how many there are.
        removed: (Vec<PathElement>, usize),
    },
    /// The order of its children.
    Order,
}

/// The number of channels within one copy of a region. The other number is over all copies.
const LOCAL_COUNT: &str = "localMaxChannels";

/// Children that are named.
const NAMED: usize = 1024;

/// Passes every difference of two documents to `report`, in document order. `ignored` are the numbers of channels that
/// their job does not observe.
///
/// # Errors
///
/// A text is no well-formed document.
pub fn differences(
    before: &str,
    after: &str,
    ignored: &IgnoredCounts,
    report: &mut dyn FnMut(Difference),
) -> Result<(), roxmltree::Error> {
    if before == after {
        return Ok(());
    }
    let (one, other) = (Document::parse(before)?, Document::parse(after)?);
    let mut comparison = DocumentComparison { before, after, ignored, path: Vec::new(), report };
    comparison.compare(&Child::root(&one), &Child::root(&other), false);
    Ok(())
}

struct DocumentComparison<'t> {
    before: &'t str,
    after: &'t str,
    ignored: &'t IgnoredCounts,
    path: Vec<PathElement>,
    report: &'t mut dyn FnMut(Difference),
}

impl DocumentComparison<'_> {
    fn note(&mut self, what: DifferenceKind, observable: bool) {
        (self.report)(Difference { path: self.path.clone(), what, observable });
    }

    /// The nesting is that of our own documents, which the depth of the ADL bounds.
    fn compare(&mut self, before: &Child<'_, '_>, after: &Child<'_, '_>, hidden: bool) {
        if self.before.get(before.node.range()) == self.after.get(after.node.range()) {
            return;
        }
        let hidden = hidden || before.hidden;
        self.attributes(after.entry, before.node, after.node, hidden);
        let text = |node: Node<'_, '_>| node.text().map(str::trim).unwrap_or_default().to_owned();
        let (was, is) = (text(before.node), text(after.node));
        if was != is {
            self.note(DifferenceKind::Text { before: excerpt(&was), after: excerpt(&is) }, !hidden);
        }
        self.children(before.node, after.node, hidden);
    }

    fn attributes(&mut self, entry: Option<&VocabularyEntry>, before: Node<'_, '_>, after: Node<'_, '_>, hidden: bool) {
        let mut names: Vec<&str> = before.attributes().map(|attribute| attribute.name()).collect();
        names.extend(after.attributes().map(|a| a.name()).filter(|name| before.attribute(*name).is_none()));
        for name in names {
            let (was, is) = (before.attribute(name), after.attribute(name));
            if was != is {
                let observable = !hidden && !self.is_hidden_attribute(entry, after, name);
                let what = DifferenceKind::Attribute {
                    name: name.to_owned(),
                    before: was.map(excerpt),
                    after: is.map(excerpt),
                };
                self.note(what, observable);
            }
        }
    }

    /// Whether the runtime does not read an attribute of an element that it reads (rule aadl-18).
    fn is_hidden_attribute(&self, entry: Option<&VocabularyEntry>, node: Node<'_, '_>, name: &str) -> bool {
        let attribute = entry.and_then(|entry| entry.attributes().find(|attribute| attribute.name == name));
        match attribute.map(|attribute| attribute.class) {
            Some(Observability::Hidden(_)) => true,
            Some(Observability::ObservedUnless(_)) => self.is_ignored(node, name),
            Some(
                Observability::Observed
                | Observability::ObservedOnly(..)
                | Observability::ObservedIfConnected
                | Observability::Fixed(_),
            )
            | None => false,
        }
    }

    /// Whether the job ignores a number of channels (rule aadl-22). The regions around an operator's region follow it.
    fn is_ignored(&self, region: Node<'_, '_>, name: &str) -> bool {
        let index = |node: Node<'_, '_>| node.attribute("regionIndex").and_then(|index| index.parse::<u64>().ok());
        let Some(own) = index(region) else { return false };
        let observed = self.ignored.observed(own, region.next_siblings().skip(1).filter_map(index));
        if name == LOCAL_COUNT { !observed.local } else { !observed.global }
    }

    fn children(&mut self, before: Node<'_, '_>, after: Node<'_, '_>, hidden: bool) {
        // A splitter that leads somewhere in one of the documents can be told apart.
        let connected = LazyCell::new(|| has_connection(before) || has_connection(after));
        let (was, is) = (Children::of(before, &|| *connected), Children::of(after, &|| *connected));
        let mut positions: HashMap<&ChildIdentity, usize> = HashMap::with_capacity(is.list.len());
        positions.extend(is.list.iter().enumerate().map(|(at, (identity, _))| (identity, at)));
        let mut kept = vec![false; is.list.len()];
        let mut runs: Vec<ChildCounts> = Vec::new();
        let mut last = None;
        let mut out_of_order = false;
        let mut pairs = Vec::new();
        for (identity, child) in &was.list {
            let run = run(&mut runs, &identity.element, !hidden && !child.hidden);
            run.before += 1;
            match positions.get(identity) {
                Some(&at) => {
                    out_of_order |= last.replace(at).is_some_and(|last| last > at);
                    kept[at] = true;
                    pairs.push((child, &is.list[at].1));
                }
                None => run.removed.add(child.path_element()),
            }
        }
        for ((identity, child), kept) in is.list.iter().zip(kept) {
            let run = run(&mut runs, &identity.element, !hidden && !child.hidden);
            run.after += 1;
            if !kept {
                run.added.add(child.path_element());
            }
        }
        for ChildCounts { element, observable, before, after, added, removed } in runs {
            if added.count + removed.count > 0 {
                let (added, removed) = ((added.elements, added.count), (removed.elements, removed.count));
                self.note(DifferenceKind::Children { element, before, after, added, removed }, observable);
            }
        }
        if out_of_order {
            self.note(DifferenceKind::Order, !hidden);
        }
        for (was, is) in pairs {
            self.path.push(is.path_element());
            self.compare(was, is, hidden);
            self.path.pop();
        }
    }
}

/// Children of one name.
struct ChildCounts {
    element: String,
    observable: bool,
    before: usize,
    after: usize,
    added: FirstElements,
    removed: FirstElements,
}

/// The first of some elements, and how many there are.
#[derive(Default)]
struct FirstElements {
    elements: Vec<PathElement>,
    count: usize,
}

impl FirstElements {
    fn add(&mut self, element: PathElement) {
        self.count += 1;
        if self.elements.len() < NAMED {
            self.elements.push(element);
        }
    }
}

fn run<'r>(runs: &'r mut Vec<ChildCounts>, element: &str, observable: bool) -> &'r mut ChildCounts {
    let known = runs.iter().position(|run| run.element == element && run.observable == observable);
    let at = known.unwrap_or_else(|| {
        let element = element.to_owned();
        let (added, removed) = (FirstElements::default(), FirstElements::default());
        runs.push(ChildCounts { element, observable, before: 0, after: 0, added, removed });
        runs.len() - 1
    });
    &mut runs[at]
}

/// What makes a child the same child in both documents.
#[derive(PartialEq, Eq, Hash)]
struct ChildIdentity {
    element: String,
    key: Key,
    /// Position among those that are alike.
    position: usize,
}

/// An element with what the vocabulary says of it, if that knows it.
struct Child<'a, 'i> {
    node: Node<'a, 'i>,
    entry: Option<&'static VocabularyEntry>,
    /// The runtime reads nothing of it.
    hidden: bool,
}

impl<'a, 'i> Child<'a, 'i> {
    fn root(document: &'a Document<'i>) -> Self {
        Self { node: document.root_element(), entry: root(), hidden: false }
    }

    fn path_element(&self) -> PathElement {
        let Self { node, entry, hidden: _ } = *self;
        PathElement { element: qualified(node), key: key(entry, node), name: node.attribute("name").map(excerpt) }
    }
}

/// Elements with their identities, in order.
struct Children<'a, 'i> {
    list: Vec<(ChildIdentity, Child<'a, 'i>)>,
}

impl<'a, 'i> Children<'a, 'i> {
    /// `connected` says whether a connection is somewhere in the parent.
    fn of(parent: Node<'a, 'i>, connected: &dyn Fn() -> bool) -> Self {
        let around = qualified(parent);
        let mut seen: HashMap<(String, Key), usize> = HashMap::new();
        let list = parent.children().filter(Node::is_element).map(|node| {
            let element = qualified(node);
            let entry = entry(&around, &element);
            let key = key(entry, node);
            let count = seen.entry((element.clone(), key.clone())).or_default();
            let position = *count;
            *count += 1;
            let hidden = is_hidden(entry, node, connected);
            (ChildIdentity { element, key, position }, Child { node, entry, hidden })
        });
        Self { list: list.collect() }
    }
}

/// The name of an element, with the prefix that documents use.
pub(super) fn qualified(node: Node<'_, '_>) -> String {
    let name = node.tag_name();
    match name.namespace().and_then(|uri| node.lookup_prefix(uri)).filter(|prefix| !prefix.is_empty()) {
        Some(prefix) => format!("{prefix}:{}", name.name()),
        None => name.name().to_owned(),
    }
}

/// Attributes that say which of several siblings an element is, as far as it has them.
fn key(entry: Option<&'static VocabularyEntry>, node: Node<'_, '_>) -> Key {
    entry
        .into_iter()
        .flat_map(VocabularyEntry::keys)
        .filter_map(|name| Some((name, excerpt(node.attribute(name)?))))
        .collect()
}

/// Whether a connection of an operator is somewhere in an element.
fn has_connection(node: Node<'_, '_>) -> bool {
    const NAMES: [&str; 2] = ["interPeConnection", "intraPeConnection"];
    node.descendants().any(|inner| NAMES.contains(&inner.tag_name().name()))
}

/// Whether the runtime reads nothing of an element (rule aadl-18). An element that the vocabulary does not know counts
/// as observed. `connected` says whether a connection is somewhere in the element around it.
fn is_hidden(entry: Option<&VocabularyEntry>, node: Node<'_, '_>, connected: impl FnOnce() -> bool) -> bool {
    match entry.map(|entry| entry.class) {
        Some(Observability::Hidden(_)) => true,
        Some(Observability::ObservedOnly(attribute, values)) => {
            !node.attribute(attribute).is_some_and(|value| values.contains(&value))
        }
        Some(Observability::ObservedIfConnected) => !connected(),
        Some(Observability::Observed | Observability::ObservedUnless(_) | Observability::Fixed(_)) | None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn document(content: &str) -> String {
        format!(
            "<aug:augmentedPE xmlns=\"app\" xmlns:aug=\"augmented\" xmlns:phy=\"physical\" {content}</aug:augmentedPE>"
        )
    }

    /// `observable path: what`.
    fn found(before: &str, after: &str) -> Vec<String> {
        let mut list = Vec::new();
        differences(&document(before), &document(after), &IgnoredCounts::default(), &mut |difference| {
            list.push(difference)
        })
        .unwrap();
        let line = |difference: &Difference| {
            let path: Vec<String> = difference
                .path
                .iter()
                .map(|around| {
                    let key: Vec<&str> = around.key.iter().map(|(_, value)| value.as_str()).collect();
                    format!("{}{key:?}", around.element)
                })
                .collect();
            let what = match &difference.what {
                DifferenceKind::Attribute { name, before, after } => format!("@{name} {before:?} {after:?}"),
                DifferenceKind::Text { before, after } => format!("{before} {after}"),
                DifferenceKind::Children { element, before, after, added, removed } => {
                    format!("{element} {before} {after} +{} -{}", added.1, removed.1)
                }
                DifferenceKind::Order => "order".to_owned(),
            };
            let observable = if difference.observable { "+" } else { "-" };
            format!("{observable} {}: {what}", path.join("/"))
        };
        list.iter().map(line).collect()
    }

    #[test]
    fn equal_documents_do_not_differ() {
        assert_eq!(found("a=\"1\"><x/>", "a=\"1\"><x/>"), [""; 0]);
        assert_eq!(found("a=\"1\"><x/>", "a=\"1\"  ><x></x>"), [""; 0]);
    }

    #[test]
    fn attributes_and_texts() {
        assert_eq!(
            found("a=\"1\" bundle=\"x\" b=\"2\"><x>t</x>", "a=\"3\" bundle=\"y\" c=\"2\"><x>u</x>"),
            [
                "+ : @a Some(\"1\") Some(\"3\")",
                "- : @bundle Some(\"x\") Some(\"y\")",
                "+ : @b Some(\"2\") None",
                "+ : @c None Some(\"2\")",
                "+ x[]: t u",
            ]
        );
    }

    #[test]
    fn children_are_what_they_stand_for() {
        let connection = |operator: u32, port: u32| {
            format!("<interPeConnection operInstanceIndex=\"{operator}\" iportIndex=\"0\" pePortIndex=\"{port}\"/>")
        };
        let page = |connections: String| {
            format!(
                "><aug:operInstances><operInstance index=\"5\"><outputPorts><outputPort index=\"0\">{connections}\
                </outputPort></outputPorts></operInstance></aug:operInstances>"
            )
        };
        let before = page(format!("{}{}", connection(1, 0), connection(2, 0)));
        let after = page(format!("{}{}{}", connection(2, 7), connection(3, 0), connection(4, 0)));
        let port = "aug:operInstances[]/operInstance[\"5\"]/outputPorts[]/outputPort[\"0\"]";
        assert_eq!(
            found(&before, &after),
            [
                format!("+ {port}: interPeConnection 2 3 +2 -1"),
                format!("- {port}/interPeConnection[\"2\", \"0\"]: @pePortIndex Some(\"0\") Some(\"7\")"),
            ]
        );
    }

    #[test]
    fn what_the_runtime_does_not_read() {
        let page = |tag: &str, pool: &str, value: &str| {
            format!(
                "><hostpools><hostpool index=\"0\" name=\"{pool}\"/></hostpools><aug:operInstances>\
                <operInstance index=\"3\"><phy:annotation tag=\"{tag}\"><tuple><attr key=\"k\" value=\"{value}\"/>\
                </tuple></phy:annotation></operInstance></aug:operInstances>"
            )
        };
        let operator = "aug:operInstances[]/operInstance[\"3\"]";
        assert_eq!(
            found(&page("view", "a", "1"), &page("view", "b", "2")),
            [
                "- hostpools[]/hostpool[\"0\"]: @name Some(\"a\") Some(\"b\")".to_owned(),
                format!("- {operator}/phy:annotation[\"view\"]/tuple[]/attr[\"k\"]: @value Some(\"1\") Some(\"2\")"),
            ]
        );
        assert_eq!(
            found(&page("view", "a", "1"), &page("threading", "a", "1")),
            [format!("- {operator}: phy:annotation 1 0 +0 -1"), format!("+ {operator}: phy:annotation 0 1 +1 -0")]
        );
    }

    #[test]
    fn channels_of_a_splitter_that_leads_nowhere() {
        // channels, each with what is in it -> what is found in the splitter
        let page = |channels: &[&str]| {
            let channels = channels.iter().enumerate();
            let channels: String = channels
                .map(|(index, content)| format!("<parallelChannel index=\"{index}\">{content}</parallelChannel>"))
                .collect();
            format!(
                "><aug:operInstances><operInstance index=\"5\"><outputPorts><outputPort index=\"0\">\
                <splitter index=\"0\">{channels}</splitter></outputPort></outputPorts></operInstance>\
                </aug:operInstances>"
            )
        };
        let near = "<intraPeConnection operInstanceIndex=\"1\" iportIndex=\"0\"/>";
        let far = "<interPeConnection operInstanceIndex=\"1\" iportIndex=\"0\" pePortIndex=\"0\"/>";
        let nested = format!("<splitter index=\"1\"><parallelChannel index=\"0\">{near}</parallelChannel></splitter>");
        let (one, two) = (
            "<splitter index=\"1\"><parallelChannel index=\"0\"></parallelChannel></splitter>",
            "<splitter index=\"1\"><parallelChannel index=\"0\"></parallelChannel>\
            <parallelChannel index=\"1\"></parallelChannel></splitter>",
        );
        let splitter = "aug:operInstances[]/operInstance[\"5\"]/outputPorts[]/outputPort[\"0\"]/splitter[\"0\"]";
        let table: [(&[&str], &[&str], &[&str]); 9] = [
            (&["", ""], &["", "", ""], &["- : parallelChannel 2 3 +1 -0"]),
            (&["", "", ""], &["", ""], &["- : parallelChannel 3 2 +0 -1"]),
            (&[near, ""], &[near, "", ""], &["+ : parallelChannel 2 3 +1 -0"]),
            (&["", far], &["", far, ""], &["+ : parallelChannel 2 3 +1 -0"]),
            (&[&nested, ""], &[&nested, "", ""], &["+ : parallelChannel 2 3 +1 -0"]),
            (&[one], &[two], &["- /parallelChannel[\"0\"]/splitter[\"1\"]: parallelChannel 1 2 +1 -0"]),
            (&[one, near], &[two, near], &["- /parallelChannel[\"0\"]/splitter[\"1\"]: parallelChannel 1 2 +1 -0"]),
            // A connection comes or goes: what restarts the PE is said once.
            (
                &["", ""],
                &["", near, ""],
                &["+ : parallelChannel 2 3 +1 -0", "+ /parallelChannel[\"1\"]: intraPeConnection 0 1 +1 -0"],
            ),
            (
                &["", near, ""],
                &["", ""],
                &["+ : parallelChannel 3 2 +0 -1", "+ /parallelChannel[\"1\"]: intraPeConnection 1 0 +0 -1"],
            ),
        ];
        for (before, after, expected) in table {
            let expected: Vec<String> =
                expected.iter().map(|line| line.replacen(' ', &format!(" {splitter}"), 1)).collect();
            assert_eq!(found(&page(before), &page(after)), expected, "{before:?} {after:?}");
        }
    }

    #[test]
    fn order_counts() {
        let page = |one: u32, other: u32| {
            format!(
                "><aug:operDefinitions><operDefinition index=\"{one}\"/><operDefinition index=\"{other}\"/></aug:operDefinitions>"
            )
        };
        assert_eq!(found(&page(1, 2), &page(2, 1)), ["+ aug:operDefinitions[]: order"]);
    }
}
