//! Fragments that may differ between the channels of an operator but mostly do not: placement, runtime constants,
//! annotations.
//!
//! The topology shares such values between channels. This module makes one fragment per shared value, and recognises
//! the value by its address.

use super::element::{Element, ElementAttribute};
use super::escape::unwritable;
use super::hashing_writer::{Fragment, HashingWriter, StartTag};
use super::size::FragmentSize;
use super::vocabulary::{
    Annotation as AnnotationElement, AnnotationAttribute, AnnotationList, AnnotationListEntry, AnnotationTuple,
    CoLocation, EVENT_TIME, ExLocation, HostLocation, PoolLocation, Resources as ResourcesElement, RuntimeConstant,
    RuntimeConstants, is_observed,
};
use crate::budget::Budget;
use crate::error::{Error, excerpt};
use crate::heap::primary_map;
use crate::logical::{Application, Resources};
use crate::shared::Shared;
use crate::topology::{AnnotationValue, Generations, Node, ResolvedAnnotation, Topology};
use cranelift_entity::{PrimaryMap, SecondaryMap};
use get_size2::GetSize;
use std::collections::HashMap;
use std::sync::Arc;

/// The key that [`EVENT_TIME`] names operators by.
const INPUT_CONNECTIONS: &str = "inputConnections";

/// The fragments of each operator.
#[derive(Debug, GetSize)]
pub(super) struct ChannelFragments {
    pieces: Vec<Shared<Fragment>>,
    #[get_size(size_fn = primary_map)]
    of: PrimaryMap<Node, [u32; 3]>,
}

impl ChannelFragments {
    /// Makes the fragments, and adds them to those of the job so far. An operator that is the same as in the generation
    /// `before` keeps its fragments.
    ///
    /// # Errors
    ///
    /// Stage `aadl`: XML cannot hold a text. Stage `topology`: the fragments are too large.
    pub(super) fn new(
        topology: &Topology,
        before: Option<(&Self, &Generations<'_>)>,
        size: &mut FragmentSize,
        budget: &Budget,
    ) -> Result<Self, Error> {
        let before = before.filter(|_| !names_distant_operators(&topology.application));
        let mut pieces: Vec<Shared<Fragment>> = Vec::new();
        let copies = OperatorIndexes::new(topology);
        let mut of = PrimaryMap::with_capacity(topology.operators.len());
        // By fragment of the generation before: its position in this one, if it was taken over.
        let mut taken: Vec<Option<u32>> = before.map_or_else(Vec::new, |(before, _)| vec![None; before.pieces.len()]);
        let mut numbers: HashMap<usize, u32> = HashMap::new();
        // Neighbouring channels mostly share a value, so the last one is compared before the table is searched.
        let mut last: SecondaryMap<_, [(usize, u32); 3]> = SecondaryMap::new();
        let mut pace = budget.pace();
        for (node, operator) in &topology.operators {
            pace.steps(4)?;
            let known = before.and_then(|(before, generations)| Some((before, generations.same(node)?)));
            if let Some((before, earlier)) = known {
                let mut more = 0;
                of.push(before.of[earlier].map(|piece| {
                    *taken[piece as usize].get_or_insert_with(|| {
                        more += before.pieces[piece as usize].len();
                        pieces.push(before.pieces[piece as usize].clone());
                        pieces.len() as u32 - 1
                    })
                }));
                size.add(more as u64)?;
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
                    let number = match numbers.get(&address) {
                        Some(number) => *number,
                        None => {
                            let piece = match kind {
                                0 => resources(&operator.resources),
                                1 => runtime_constants(&operator.runtime_constants),
                                _ => annotations(&operator.annotations, &copies),
                            };
                            let piece = piece.map_err(|illegal| {
                                unwritable(&format!("operator {}", excerpt(&operator.name)), illegal)
                            })?;
                            size.add(piece.len() as u64)?;
                            pieces.push(Shared::new(piece));
                            let number = pieces.len() as u32 - 1;
                            numbers.insert(address, number);
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

/// `resources` (rule aadl-9).
fn resources(resources: &Resources) -> Result<Fragment, char> {
    Fragment::new(|w| {
        w.start(ResourcesElement).attribute(ResourcesElement::ISOLATION, resources.isolation).open();
        if let Some(host) = resources.host.as_deref().filter(|host| !host.is_empty()) {
            w.start(HostLocation).attribute(HostLocation::HOST_NAME, host).close();
        }
        if let Some(location) = resources.pool {
            let tag = w.start(PoolLocation).attribute(PoolLocation::POOL_INDEX, location.pool);
            match location.in_pool {
                Some(in_pool) => tag.attribute(PoolLocation::IN_POOL_INDEX, in_pool).close(),
                None => tag.close(),
            }
        }
        for id in sorted(&resources.co_locations) {
            w.start(CoLocation).attribute(CoLocation::ID, id).close();
        }
        for id in sorted(&resources.ex_locations) {
            w.start(ExLocation).attribute(ExLocation::ID, id).close();
        }
        w.end(ResourcesElement);
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
    Fragment::new(|w| {
        w.open(RuntimeConstants);
        for (name, value) in constants {
            w.start(RuntimeConstant)
                .attribute(RuntimeConstant::NAME, name)
                .optional(RuntimeConstant::VALUE, value.as_ref())
                .close();
        }
        w.end(RuntimeConstants);
    })
}

/// Operator indexes of all channels of each operator, by ADL index. Empty unless an annotation needs them.
#[derive(Default)]
struct OperatorIndexes(HashMap<u64, Vec<u32>>);

impl OperatorIndexes {
    fn new(topology: &Topology) -> Self {
        let mut copies: HashMap<u64, Vec<u32>> = HashMap::new();
        let written = &topology.application.operators;
        if names_distant_operators(&topology.application) {
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

/// Whether annotations of some operator name operators that are anywhere in the job.
fn names_distant_operators(application: &Application) -> bool {
    application.operators.values().any(|operator| operator.annotations.iter().any(|a| a.tag == EVENT_TIME))
}

fn annotations(annotations: &[ResolvedAnnotation], copies: &OperatorIndexes) -> Result<Fragment, char> {
    let resolved = |annotation: &ResolvedAnnotation| {
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
    Fragment::new(|w| {
        for written in annotations {
            // Without keys it would break the document's schema, and nothing reads it.
            if written.values.is_empty() {
                continue;
            }
            let with_indexes = (written.tag == EVENT_TIME).then(|| resolved(written));
            let written = with_indexes.as_ref().unwrap_or(written);
            if is_observed(&written.tag) {
                annotation(w, written);
            } else {
                w.unobserved(|w| annotation(w, written));
            }
        }
    })
}

fn annotation<const O: bool>(w: &mut HashingWriter<'_, O>, annotation: &ResolvedAnnotation) {
    w.start(AnnotationElement).attribute(AnnotationElement::TAG, &annotation.tag).open();
    tuple(w, &annotation.values);
    w.end(AnnotationElement);
}

fn tuple<const O: bool>(w: &mut HashingWriter<'_, O>, values: &[(String, AnnotationValue)]) {
    w.open(AnnotationTuple);
    for (key, value) in values {
        let tag = w.start(AnnotationAttribute).attribute(AnnotationAttribute::KEY, key);
        content(tag, AnnotationAttribute, value, AnnotationAttribute::VALUE);
    }
    w.observe(b'.');
    w.end(AnnotationTuple);
}

/// Ends the start tag of a key or list entry and writes its value: a plain text is an attribute. The nesting is that of
/// the ADL's annotation values, at most a list of tuples.
fn content<E: Element, const O: bool>(
    tag: StartTag<'_, '_, E, O>,
    element: E,
    value: &AnnotationValue,
    plain: ElementAttribute<E>,
) {
    match value {
        AnnotationValue::Text(value) => tag.attribute(plain, value).close(),
        AnnotationValue::List(entries) => {
            let w = tag.open();
            w.open(AnnotationList);
            for entry in entries {
                let tag = w.start(AnnotationListEntry);
                content(tag, AnnotationListEntry, entry, AnnotationListEntry::VALUE);
            }
            w.observe(b']');
            w.end(AnnotationList);
            w.end(element);
        }
        AnnotationValue::Tuple(values) => {
            let w = tag.open();
            w.observe(b'{');
            tuple(w, values);
            w.end(element);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn input_connections_name_every_channel() {
        let copies = OperatorIndexes([(7, vec![2, 9])].into());
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
