//! Pieces that depend on the channel of an operator, but mostly do not differ: placement, runtime constants,
//! annotations.
//!
//! The topology shares such values between channels; so do the pieces: one per value, found by its address while they
//! are made.

use super::fragments::unwritable;
use super::same::{Generations, refers_to_distant_operators};
use super::sheet::{Fragment, Sheet};
use crate::budget::Budget;
use crate::error::{Error, excerpt};
use crate::heap::heap_fields;
use crate::logical::Resources;
use crate::shared::Shared;
use crate::topology::{Annotation, AnnotationValue, Node, Topology};
use cranelift_entity::{PrimaryMap, SecondaryMap};
use std::collections::HashMap;
use std::sync::Arc;

type Page<'a> = Sheet<'a, true>;

/// Annotations that the runtime reads (rule aadl-13).
pub(super) const OBSERVED: [&str; 4] = ["consistentRegionEntry", "catch", "threading", EVENT_TIME];

/// Names operators where event time comes from, by ADL index: only here are their own indexes known.
pub(super) const EVENT_TIME: &str = "eventTimeContext";
const INPUT_CONNECTIONS: &str = "inputConnections";

/// Pieces by operator.
#[derive(Debug)]
pub(super) struct Channels {
    pieces: Vec<Shared<Fragment>>,
    of: PrimaryMap<Node, [u32; 3]>,
}

heap_fields! { Channels { pieces, of } }

impl Channels {
    /// Makes the pieces. Errors: a text that XML cannot hold (stage `aadl`).
    pub(super) fn new(topology: &Topology, budget: &Budget) -> Result<Self, Error> {
        Self::make(topology, None, budget)
    }

    /// The same for another generation; what it shares with the one before has the pieces that it had.
    pub(super) fn again(&self, generations: &Generations<'_>, budget: &Budget) -> Result<Self, Error> {
        Self::make(generations.now, Some((self, generations)), budget)
    }

    fn make(topology: &Topology, before: Option<(&Self, &Generations<'_>)>, budget: &Budget) -> Result<Self, Error> {
        let mut pieces = Vec::new();
        let copies = Copies::new(topology);
        let mut of = PrimaryMap::with_capacity(topology.operators.len());
        // Pieces of the generation before that are here as well.
        let mut taken: Vec<Option<u32>> = before.map_or_else(Vec::new, |(before, _)| vec![None; before.pieces.len()]);
        let mut known: HashMap<usize, u32> = HashMap::new();
        // Neighbouring channels mostly share a value: look there before asking the table.
        let mut last: SecondaryMap<_, [(usize, u32); 3]> = SecondaryMap::new();
        let mut pace = budget.pace();
        for (node, operator) in &topology.operators {
            pace.steps(4)?;
            if let Some((before, earlier)) = before.and_then(|(all, both)| Some((all, both.same(node)?))) {
                of.push(before.of[earlier].map(|piece| {
                    *taken[piece as usize].get_or_insert_with(|| {
                        pieces.push(before.pieces[piece as usize].clone());
                        pieces.len() as u32 - 1
                    })
                }));
                continue;
            }
            let mut own = [0; 3];
            let before = &mut last[operator.logical];
            let addresses = [
                Arc::as_ptr(&operator.resources).addr(),
                Arc::as_ptr(&operator.runtime_constants).addr(),
                Arc::as_ptr(&operator.annotations).addr(),
            ];
            for (kind, address) in addresses.into_iter().enumerate() {
                if before[kind].0 != address {
                    let number = match known.get(&address) {
                        Some(number) => *number,
                        None => {
                            let piece = match kind {
                                0 => resources(&operator.resources),
                                1 => runtime_constants(&operator.runtime_constants),
                                _ => annotations(&operator.annotations, &copies),
                            };
                            pieces.push(Shared::new(piece.map_err(|illegal| {
                                unwritable(&format!("operator {}", excerpt(&operator.name)), illegal)
                            })?));
                            let number = pieces.len() as u32 - 1;
                            known.insert(address, number);
                            number
                        }
                    };
                    before[kind] = (address, number);
                }
                own[kind] = before[kind].1;
            }
            of.push(own);
        }
        Ok(Self { pieces, of })
    }

    /// `resources`.
    pub(super) fn resources(&self, operator: Node) -> &Fragment {
        &self.pieces[self.of[operator][0] as usize]
    }

    /// `runtimeConstants`.
    pub(super) fn runtime_constants(&self, operator: Node) -> &Fragment {
        &self.pieces[self.of[operator][1] as usize]
    }

    /// `annotation` elements.
    pub(super) fn annotations(&self, operator: Node) -> &Fragment {
        &self.pieces[self.of[operator][2] as usize]
    }
}

/// Placement: a running PE does not read it (rule aadl-9).
fn resources(resources: &Resources) -> Result<Fragment, char> {
    Fragment::new(|s| {
        s.markup(b"<resources isolation=\"");
        s.hidden_boolean(resources.isolation);
        s.markup(b"\">");
        if let Some(host) = resources.host.as_deref().filter(|host| !host.is_empty()) {
            s.markup(b"<hostLocation hostname=\"");
            s.hidden_string(host);
            s.markup(b"\"/>");
        }
        if let Some(location) = resources.pool {
            s.markup(b"<poolLocation poolIndex=\"");
            s.hidden_wide(location.pool);
            if let Some(in_pool) = location.in_pool {
                s.markup(b"\" inpoolIndex=\"");
                s.hidden_wide(in_pool);
            }
            s.markup(b"\"/>");
        }
        for id in sorted(&resources.co_locations) {
            s.markup(b"<coLocation colocId=\"");
            s.hidden_string(id);
            s.markup(b"\"/>");
        }
        for id in sorted(&resources.ex_locations) {
            s.markup(b"<exLocation exlocId=\"");
            s.hidden_string(id);
            s.markup(b"\"/>");
        }
        s.markup(b"</resources>");
    })
}

/// The texts as a set.
pub(crate) fn sorted(texts: &[String]) -> Vec<&str> {
    let mut texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    texts.sort_unstable();
    texts.dedup();
    texts
}

fn runtime_constants(constants: &[(String, Option<String>)]) -> Result<Fragment, char> {
    Fragment::new(|s| {
        s.markup(b"<runtimeConstants>");
        for (name, value) in constants {
            s.markup(b"<runtimeConstant name=\"");
            s.mark(b'c');
            s.string(name);
            s.observe(value.is_some());
            if let Some(value) = value {
                s.markup(b"\" value=\"");
                s.string(value);
            }
            s.markup(b"\"/>");
        }
        s.markup(b"</runtimeConstants>");
    })
}

/// Indexes of all channels of an operator, by ADL index; only where an annotation asks for it.
#[derive(Default)]
struct Copies(HashMap<u64, Vec<u32>>);

impl Copies {
    fn new(topology: &Topology) -> Self {
        let mut copies: HashMap<u64, Vec<u32>> = HashMap::new();
        let written = &topology.application.operators;
        if refers_to_distant_operators(&topology.application) {
            for operator in topology.operators.values() {
                copies.entry(written[operator.logical].index).or_default().push(operator.index);
            }
        }
        Self(copies)
    }

    /// `[input port,operator,output port]` of the ADL, once per channel of the operator (rule aadl-13). Anything else
    /// stays as it is.
    fn input_connections(&self, text: &str) -> Option<String> {
        let mut parts =
            text.strip_prefix('[')?.strip_suffix(']')?.split(',').map(|part| part.trim().parse::<u64>().ok());
        let (input, operator, output) = (parts.next()??, parts.next()??, parts.next()??);
        if parts.next().is_some() {
            return None;
        }
        let triples = self.0.get(&operator)?.iter().map(|index| format!("[{input},{index},{output}]"));
        Some(format!("[{}]", triples.collect::<Vec<_>>().join(",")))
    }
}

fn annotations(annotations: &[Annotation], copies: &Copies) -> Result<Fragment, char> {
    let resolved = |annotation: &Annotation| {
        let mut resolved = annotation.clone();
        for (key, value) in &mut resolved.values {
            if let (INPUT_CONNECTIONS, AnnotationValue::Text(text)) = (key.as_str(), value)
                && let Some(triples) = copies.input_connections(text)
            {
                *text = triples;
            }
        }
        resolved
    };
    Fragment::new(|s| {
        for annotation in annotations {
            // Without keys it would break the document's schema, and nobody misses it.
            if annotation.values.is_empty() {
                continue;
            }
            let with_indexes = (annotation.tag == EVENT_TIME).then(|| resolved(annotation));
            let annotation = with_indexes.as_ref().unwrap_or(annotation);
            let observed = OBSERVED.contains(&annotation.tag.as_str());
            s.markup(b"<phy:annotation tag=\"");
            text(s, &annotation.tag, observed);
            s.markup(b"\">");
            tuple(s, &annotation.values, observed);
            s.markup(b"</phy:annotation>");
        }
    })
}

fn text(s: &mut Page<'_>, text: &str, observed: bool) {
    if observed { s.string(text) } else { s.hidden_string(text) }
}

fn tuple(s: &mut Page<'_>, values: &[(String, AnnotationValue)], observed: bool) {
    s.markup(b"<tuple>");
    for (key, value) in values {
        s.markup(b"<attr key=\"");
        if observed {
            s.mark(b'K');
        }
        text(s, key, observed);
        s.markup(b"\"");
        content(s, value, b"</attr>", observed);
    }
    if observed {
        s.mark(b'.');
    }
    s.markup(b"</tuple>");
}

/// Ends the start tag of a key or list entry and writes its value: a plain text is an attribute. The nesting is that of
/// the ADL's annotation values, at most a list of tuples.
fn content(s: &mut Page<'_>, value: &AnnotationValue, end: &'static [u8], observed: bool) {
    match value {
        AnnotationValue::Text(value) => {
            s.markup(b" value=\"");
            if observed {
                s.mark(b'"');
            }
            text(s, value, observed);
            s.markup(b"\"/>");
        }
        AnnotationValue::List(entries) => {
            s.markup(b"><list>");
            if observed {
                s.mark(b'[');
            }
            for entry in entries {
                s.markup(b"<listEntry");
                content(s, entry, b"</listEntry>", observed);
            }
            if observed {
                s.mark(b']');
            }
            s.markup(b"</list>");
            s.markup(end);
        }
        AnnotationValue::Tuple(values) => {
            s.markup(b">");
            if observed {
                s.mark(b'{');
            }
            tuple(s, values, observed);
            s.markup(end);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn input_connections_name_every_channel() {
        let copies = Copies([(7, vec![2, 9])].into());
        for (text, expected) in [
            ("[0,7,1]", Some("[[0,2,1],[0,9,1]]")),
            ("[0, 7, 1]", Some("[[0,2,1],[0,9,1]]")),
            ("[0,8,1]", None),
            ("[0,7]", None),
            ("[[0,7,1]]", None),
            ("", None),
        ] {
            assert_eq!(copies.input_connections(text).as_deref(), expected, "{text}");
        }
    }
}
