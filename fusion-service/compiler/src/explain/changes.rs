//! Compares the documents of PEs that go on after a resize, as trees. Then it groups changes at places that are alike.
//!
//! Knows: documents as trees, names of operators. Must not know: how documents are written.

use super::account::DocumentChange;
use super::names::{self, NAMED, Names};
use crate::aadl::{self, DifferenceKind, PathElement};
use crate::budget::Budget;
use crate::error::{Error, Problem, Stage, excerpt};
use crate::plan::{Compiled, Fate, RenderError};
use crate::topology::{IgnoredCounts, Topology};
use indexmap::IndexMap;
use std::collections::{BTreeMap, BTreeSet};

/// Most bytes of the two documents of one PE that are compared. Their trees take several times as much memory.
const PAIR: u64 = 32 << 20;

/// The changes of each PE, by its id. A PE without an entry was not compared.
pub(super) struct ComparedDocuments<'a> {
    of: BTreeMap<u64, DocumentChanges>,
    before: &'a Topology,
    now: &'a Topology,
}

/// Changes of one PE, or of several that are alike.
#[derive(Clone, Debug, Default)]
pub(super) struct DocumentChanges {
    shapes: IndexMap<ChangeShape, ChangePlaces>,
}

/// What places of one shape have in common.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct ChangeShape {
    observable: bool,
    elements: Vec<String>,
    what: ChangeKind,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum ChangeKind {
    /// Values only where they can be observed.
    Attribute(String, Option<(Option<String>, Option<String>)>),
    Text(Option<(String, String)>),
    /// Name; before, after; new, gone.
    Children(String, (usize, usize), (usize, usize)),
    Order,
}

/// The places of one shape.
#[derive(Clone, Debug, Default)]
struct ChangePlaces {
    count: usize,
    steps: Vec<PlaceNames>,
    added: PlaceNames,
    removed: PlaceNames,
}

/// The names and numbers of the elements at places of one shape.
#[derive(Clone, Debug, Default)]
struct PlaceNames {
    names: Names,
    numbers: BTreeSet<u64>,
    /// There are more, which the comparison did not list.
    cut: bool,
}

/// Compares the documents of PEs that go on, at most `most` bytes in all.
pub(super) fn compare<'a>(
    before: &'a Compiled,
    now: &'a Compiled,
    most: u64,
    budget: &Budget,
) -> Result<ComparedDocuments<'a>, Error> {
    let mut compared = ComparedDocuments { of: BTreeMap::new(), before: before.topology(), now: now.topology() };
    let ignored = IgnoredCounts::new(&now.topology().regions);
    let mut left = most;
    for element in &now.plan().elements {
        let changed = matches!(element.fate, Fate::Restarted | Fate::KeptUnobservable);
        let Some(earlier) = before.plan().element(element.id).filter(|_| changed) else { continue };
        let bytes = element.bytes.saturating_add(earlier.bytes);
        let Some(rest) = left.checked_sub(bytes).filter(|_| bytes <= PAIR) else { continue };
        left = rest;
        budget.check()?;
        let (was, is) = (document(before, element.id, budget)?, document(now, element.id, budget)?);
        let mut changes = DocumentChanges::default();
        aadl::differences(&was, &is, &ignored, &mut |difference| changes.add(difference, &compared))
            .map_err(|error| unreadable(element.id, &error))?;
        compared.of.insert(element.id, changes);
    }
    Ok(compared)
}

fn document(job: &Compiled, id: u64, budget: &Budget) -> Result<String, Error> {
    let mut text = Vec::new();
    match job.write(id, &mut text, budget) {
        Ok(_) => {}
        Err(RenderError::Write(aadl::WriteError::Refused(error))) => return Err(error),
        Err(error) => return Err(unreadable(id, &error)),
    }
    String::from_utf8(text).map_err(|error| unreadable(id, &error))
}

/// Makes the error for a document of the compiler that it cannot read itself. The PE is not silently left out.
fn unreadable(id: u64, error: &dyn std::fmt::Display) -> Error {
    Problem::new(Stage::Aadl, format!("PE {id}: its document cannot be compared: {error}")).into()
}

impl ComparedDocuments<'_> {
    /// Changes of a PE, if it was compared.
    pub(super) fn of(&self, id: u64) -> Option<&DocumentChanges> {
        self.of.get(&id)
    }
}

impl DocumentChanges {
    fn add(&mut self, difference: aadl::Difference, compared: &ComparedDocuments<'_>) {
        let aadl::Difference { path, what, observable } = difference;
        let (mut added, mut removed) = (PlaceNames::default(), PlaceNames::default());
        let what = match what {
            DifferenceKind::Attribute { name, before, after } => {
                ChangeKind::Attribute(name, observable.then_some((before, after)))
            }
            DifferenceKind::Text { before, after } => ChangeKind::Text(observable.then_some((before, after))),
            DifferenceKind::Children { element, before, after, added: new, removed: gone } => {
                new.0.iter().filter_map(|step| child(step, compared.now)).for_each(|name| added.add(&name));
                gone.0.iter().filter_map(|step| child(step, compared.before)).for_each(|name| removed.add(&name));
                added.cut |= new.1 > new.0.len();
                removed.cut |= gone.1 > gone.0.len();
                ChangeKind::Children(element, (before, after), (new.1, gone.1))
            }
            DifferenceKind::Order => ChangeKind::Order,
        };
        let elements = path.iter().map(|step| step.element.clone()).collect();
        let steps = path.iter().map(|step| occupants(step, compared.now)).collect();
        let places = ChangePlaces { count: 1, steps, added, removed };
        self.merge(ChangeShape { observable, elements, what }, places);
    }

    fn merge(&mut self, shape: ChangeShape, places: ChangePlaces) {
        let known = self.shapes.entry(shape).or_default();
        known.count += places.count;
        known.steps.resize_with(known.steps.len().max(places.steps.len()), PlaceNames::default);
        for (known, other) in known.steps.iter_mut().zip(places.steps) {
            known.extend(other);
        }
        known.added.extend(places.added);
        known.removed.extend(places.removed);
    }

    /// Adds the changes of another PE of the group.
    pub(super) fn extend(&mut self, other: &Self) {
        for (shape, places) in &other.shapes {
            self.merge(shape.clone(), places.clone());
        }
    }

    /// What PEs with the same changes have in common, in a fixed order.
    pub(super) fn shapes(&self) -> BTreeSet<&ChangeShape> {
        self.shapes.keys().collect()
    }

    /// The first changes, those that can be observed before others, and how many there are.
    pub(super) fn finish(&self) -> (Vec<DocumentChange>, usize) {
        let mut all: Vec<(&ChangeShape, &ChangePlaces)> = self.shapes.iter().collect();
        all.sort_by_key(|(shape, _)| !shape.observable);
        let count = all.len();
        (all.into_iter().take(NAMED).map(|(shape, places)| change(shape, places)).collect(), count)
    }
}

fn change(shape: &ChangeShape, places: &ChangePlaces) -> DocumentChange {
    let mut path = String::new();
    let mut place: Vec<String> = Vec::new();
    for (element, occupants) in shape.elements.iter().zip(&places.steps) {
        path.push('/');
        path.push_str(element);
        if let Some(word) = word(element) {
            let at = occupants.text();
            place.push(if at.is_empty() { word.to_owned() } else { format!("{word} {at}") });
        }
    }
    let (what, before, after) = match &shape.what {
        ChangeKind::Attribute(name, values) => {
            path.push_str("/@");
            path.push_str(name);
            let (before, after) = values.clone().unwrap_or_default();
            (format!("@{name}"), before, after)
        }
        ChangeKind::Text(values) => {
            let (before, after) = values.clone().unzip();
            ("text".to_owned(), before, after)
        }
        ChangeKind::Children(element, (before, after), _) => {
            path.push('/');
            path.push_str(element);
            let into = shape.elements.iter().any(|element| element == "inputPort");
            (children(element, into), Some(before.to_string()), Some(after.to_string()))
        }
        ChangeKind::Order => ("order".to_owned(), None, None),
    };
    let (added_count, removed_count) = match &shape.what {
        ChangeKind::Children(_, _, counts) => *counts,
        _ => (0, 0),
    };
    DocumentChange {
        observable: shape.observable,
        place: place.join(", "),
        path,
        what,
        before,
        after,
        added: places.added.short(),
        added_count,
        removed: places.removed.short(),
        removed_count,
        places: places.count,
    }
}

impl PlaceNames {
    /// Adds a number as a number, any other text as a name.
    fn add(&mut self, text: &str) {
        match text.parse() {
            Ok(number) => _ = self.numbers.insert(number),
            Err(_) => self.names.add(text),
        }
    }

    fn extend(&mut self, other: Self) {
        self.names.extend(other.names);
        self.numbers.extend(other.numbers);
        self.cut |= other.cut;
    }

    /// The first entries, ranges of numbers first.
    fn short(&self) -> Vec<String> {
        let mut entries = Vec::new();
        if !self.numbers.is_empty() {
            entries.push(names::ranges(self.numbers.iter().copied()));
        }
        entries.extend(self.names.short().0);
        entries.extend(self.cut.then(|| "...".to_owned()));
        entries
    }

    fn text(&self) -> String {
        if self.numbers.is_empty() { self.names.text() } else { names::ranges(self.numbers.iter().copied()) }
    }
}

/// The names and numbers that identify an element.
fn occupants(step: &PathElement, topology: &Topology) -> PlaceNames {
    let mut occupants = PlaceNames::default();
    match (step.element.as_str(), &step.name, step.key.as_slice()) {
        ("phy:parallelRegion", _, [(_, index)]) => occupants.names.add(&region(index, topology)),
        ("operInstance", Some(name), _) => occupants.names.add(name),
        (_, _, [(_, value)]) => occupants.add(value),
        (_, _, []) => {}
        (_, _, key) => occupants.names.add(&end(key, topology)),
    }
    occupants
}

/// A child that is new or gone, if it has a name.
fn child(step: &PathElement, topology: &Topology) -> Option<String> {
    match (step.element.as_str(), &step.name) {
        ("interPeConnection" | "intraPeConnection", _) => Some(end(&step.key, topology)),
        ("aug:staticConnection", _) => value(&step.key, "peId").map(|pe| format!("PE {pe}")),
        (_, Some(name)) => Some(name.clone()),
        (_, None) => step.key.first().map(|(_, value)| value.clone()),
    }
}

/// The operator at the other end of a connection.
fn end(key: &[(&'static str, String)], topology: &Topology) -> String {
    let index = value(key, "operInstanceIndex").and_then(|index| index.parse::<u32>().ok());
    let operators = topology.operators.as_values_slice();
    let found = index.and_then(|index| operators.binary_search_by_key(&index, |operator| operator.index).ok());
    match found.and_then(|position| operators.get(position)) {
        Some(operator) => excerpt(&operator.name),
        None => key.iter().map(|(_, value)| value.as_str()).collect::<Vec<_>>().join(" "),
    }
}

fn value<'k>(key: &'k [(&'static str, String)], name: &str) -> Option<&'k str> {
    key.iter().find(|(known, _)| *known == name).map(|(_, value)| value.as_str())
}

fn region(index: &str, topology: &Topology) -> String {
    let position = |index: u64| topology.regions.binary_search_by_key(&index, |region| region.index).ok();
    let found = index.parse().ok().and_then(position).and_then(|position| topology.regions.get(position));
    found.map_or_else(|| index.to_owned(), |region| excerpt(&region.name))
}

/// The word for an element in the description of a place; none for elements that only contain others.
fn word(element: &str) -> Option<&'static str> {
    Some(match element {
        "operInstance" => "operator",
        "inputPort" => "input port",
        "outputPort" => "output port",
        "splitter" => "splitter",
        "parallelChannel" => "channel",
        "phy:parallelRegion" => "parallel region",
        "aug:inputPort" => "PE input port",
        "aug:outputPort" => "PE output port",
        "phy:annotation" => "annotation",
        "attr" => "key",
        "runtimeConstant" => "runtime constant",
        "threadedPort" => "threaded port",
        "hostpool" => "host pool",
        "operDefinition" => "operator definition",
        "resources" => "resources",
        "interPeConnection" => "connection with",
        "intraPeConnection" => "inner connection with",
        "nameBasedImport" => "import by name",
        "propertyBasedImport" => "import by properties",
        "aug:exportedStream" => "exported stream",
        "property" => "property",
        _ => return None,
    })
}

/// Children in words.
fn children(element: &str, into: bool) -> String {
    let words = match element {
        "operInstance" => "operators",
        "inputPort" => "input ports",
        "outputPort" => "output ports",
        "splitter" => "splitters",
        "parallelChannel" => "channels",
        "phy:parallelRegion" => "parallel regions",
        "interPeConnection" if into => "connections from other PEs",
        "interPeConnection" => "connections to other PEs",
        "intraPeConnection" => "connections inside the PE",
        "threadedPort" => "threaded ports",
        "aug:inputPort" => "PE input ports",
        "aug:outputPort" => "PE output ports",
        "aug:staticConnection" => "static connections",
        "phy:annotation" => "annotations",
        "operDefinition" => "operator definitions",
        "customMetric" => "custom metrics",
        "hostpool" => "host pools",
        "coLocation" => "host co-locations",
        "exLocation" => "host ex-locations",
        other => other,
    };
    words.to_owned()
}
