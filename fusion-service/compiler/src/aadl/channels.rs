//! Fragments that may differ between the channels of an operator but mostly do not: placement, runtime constants,
//! annotations.
//!
//! The topology shares such values between channels. This module makes one fragment per shared value, and recognises
//! the value by its address.
//!
//! Knows: values that channels share. Must not know: PEs, documents.

use super::element::{Element, ElementAttribute};
use super::hashing_writer::{Fragment, HashingWriter, StartTag, Unwritable};
use super::names_distant_operators;
use super::size::{FragmentSize, Room};
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
use std::fmt::Write as _;
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
        let before = before.filter(|_| !any_names_distant_operators(&topology.application));
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
                size.add(more as u64, || format!("operator {}", excerpt(&operator.name)))?;
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
                            let room = size.room(1, budget);
                            let (what, piece) = match kind {
                                0 => ("locations", resources(&operator.resources, room)),
                                1 => ("runtime constants", runtime_constants(&operator.runtime_constants, room)),
                                _ => ("annotations", annotations(&operator.annotations, &copies, room)),
                            };
                            let what = || format!("{what} of operator {}", excerpt(&operator.name));
                            let piece = piece.map_err(|unwritable| unwritable.error(&what()))?;
                            pace.steps(u32::try_from(piece.len() >> 10).unwrap_or(u32::MAX / 2))?;
                            size.add(piece.len() as u64, what)?;
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
fn resources(resources: &Resources, room: Room<'_>) -> Result<Fragment, Unwritable> {
    Fragment::within(room, |w| {
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
        w.each(sorted(&resources.co_locations), |w, id| w.start(CoLocation).attribute(CoLocation::ID, id).close());
        w.each(sorted(&resources.ex_locations), |w, id| w.start(ExLocation).attribute(ExLocation::ID, id).close());
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

fn runtime_constants(constants: &[(String, Option<String>)], room: Room<'_>) -> Result<Fragment, Unwritable> {
    Fragment::within(room, |w| {
        w.open(RuntimeConstants);
        w.each(constants, |w, (name, value)| {
            w.start(RuntimeConstant)
                .attribute(RuntimeConstant::NAME, name)
                .optional(RuntimeConstant::VALUE, value.as_ref())
                .close();
        });
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
        if any_names_distant_operators(&topology.application) {
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
        let mut triples = String::from("[");
        for (position, index) in self.0.get(&operator)?.iter().enumerate() {
            let before = if position == 0 { "" } else { "," };
            // Writing to memory cannot fail.
            let _ = write!(triples, "{before}[{input},{index},{output}]");
        }
        triples.push(']');
        Some(triples)
    }
}

/// Whether annotations of some operator name operators that are anywhere in the job.
fn any_names_distant_operators(application: &Application) -> bool {
    application.operators.values().any(names_distant_operators)
}

/// `annotation` elements.
fn annotations(
    annotations: &[ResolvedAnnotation],
    copies: &OperatorIndexes,
    room: Room<'_>,
) -> Result<Fragment, Unwritable> {
    Fragment::within(room, |w| {
        // Without keys it would break the document's schema, and nothing reads it.
        w.each(annotations.iter().filter(|written| !written.values.is_empty()), |w, written| {
            if written.tag == EVENT_TIME {
                event_time(w, written, copies);
            } else if is_observed(&written.tag) {
                annotation(w, written, member);
            } else {
                w.unobserved(|w| annotation(w, written, member));
            }
        });
    })
}

/// An annotation that names operators (rule aadl-13). A value becomes as many as there are channels, 10 MB at most; so
/// each is made when it is written.
fn event_time(w: &mut HashingWriter<'_, true>, written: &ResolvedAnnotation, copies: &OperatorIndexes) {
    annotation(w, written, |w, key, value| {
        let triples = match value {
            AnnotationValue::Text(text) if key == INPUT_CONNECTIONS => copies.input_connections(text),
            _ => None,
        };
        match triples {
            Some(triples) => member(w, key, &AnnotationValue::Text(triples)),
            None => member(w, key, value),
        }
    });
}

fn annotation<const O: bool>(
    w: &mut HashingWriter<'_, O>,
    annotation: &ResolvedAnnotation,
    member: impl FnMut(&mut HashingWriter<'_, O>, &str, &AnnotationValue),
) {
    w.start(AnnotationElement).attribute(AnnotationElement::TAG, &annotation.tag).open();
    tuple(w, &annotation.values, member);
    w.end(AnnotationElement);
}

fn tuple<const O: bool>(
    w: &mut HashingWriter<'_, O>,
    values: &[(String, AnnotationValue)],
    mut member: impl FnMut(&mut HashingWriter<'_, O>, &str, &AnnotationValue),
) {
    w.open(AnnotationTuple);
    w.each(values, |w, (key, value)| member(w, key, value));
    w.observe(b'.');
    w.end(AnnotationTuple);
}

/// A key with its value.
fn member<const O: bool>(w: &mut HashingWriter<'_, O>, key: &str, value: &AnnotationValue) {
    let tag = w.start(AnnotationAttribute).attribute(AnnotationAttribute::KEY, key);
    content(tag, AnnotationAttribute, value, AnnotationAttribute::VALUE);
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
            w.each(entries, |w, entry| {
                let tag = w.start(AnnotationListEntry);
                content(tag, AnnotationListEntry, entry, AnnotationListEntry::VALUE);
            });
            w.observe(b']');
            w.end(AnnotationList);
            w.end(element);
        }
        AnnotationValue::Tuple(values) => {
            let w = tag.open();
            w.observe(b'{');
            tuple(w, values, member);
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

    #[test]
    fn what_an_operator_has_of_its_own_is_written_within_the_budget() {
        let long = "x".repeat(1 << 20);
        let value = || AnnotationValue::Text(long.clone());
        let entries = |count: usize| (0..count).map(|_| value()).collect();
        let budget = Budget::cancelled();
        let room = Room { bytes: usize::MAX, budget: Some(&budget) };
        let ended = Err(Unwritable::Ended(Error::Cancelled));
        let constants = vec![("c".to_owned(), Some(long.clone())); 20];
        assert_eq!(runtime_constants(&constants, room).map(|_| ()), ended);
        let none = OperatorIndexes::default();
        for (tag, values) in [
            ("x", (0..20).map(|_| ("k".to_owned(), value())).collect()),
            ("x", vec![("k".to_owned(), AnnotationValue::List(entries(20)))]),
            (EVENT_TIME, vec![("k".to_owned(), AnnotationValue::List(entries(20)))]),
        ] {
            let all = [ResolvedAnnotation { tag: tag.to_owned(), values }];
            assert_eq!(annotations(&all, &none, room).map(|_| ()), ended, "{tag}");
        }
        // What is short is written at once.
        assert!(runtime_constants(&constants[..1], room).is_ok());
    }

    #[test]
    fn triples_are_made_within_the_budget_and_as_long_as_there_is_room() {
        let copies = OperatorIndexes([(7, (0..20_000).collect())].into());
        let value = |key: &str| (key.to_owned(), AnnotationValue::Text("[0,7,1]".to_owned()));
        // 2 GB, if all were made.
        let values = vec![value(INPUT_CONNECTIONS); 10_000];
        let all = [ResolvedAnnotation { tag: EVENT_TIME.to_owned(), values }];
        let budget = Budget::cancelled();
        let cancelled = Room { bytes: usize::MAX, budget: Some(&budget) };
        let full = Room { bytes: 1 << 20, ..Room::ENOUGH };
        for (room, expected) in [(cancelled, Unwritable::Ended(Error::Cancelled)), (full, Unwritable::TooLong)] {
            assert_eq!(annotations(&all, &copies, room).map(|_| ()), Err(expected));
        }
        // Other keys, and those of other annotations, stay as they are.
        let values = || vec![value("x"), value(INPUT_CONNECTIONS)];
        let few = OperatorIndexes([(7, vec![2, 9])].into());
        for (tag, expected) in [(EVENT_TIME, "[[0,2,1],[0,9,1]]"), ("x", "[0,7,1]")] {
            let all = [ResolvedAnnotation { tag: tag.to_owned(), values: values() }];
            let fragment = annotations(&all, &few, Room::ENOUGH).unwrap();
            let mut w = HashingWriter::<true>::new(None);
            annotation(&mut w, &all[0], |w, key, _| {
                let text = if key == INPUT_CONNECTIONS { expected } else { "[0,7,1]" };
                member(w, key, &AnnotationValue::Text(text.to_owned()));
            });
            assert_eq!(fragment.len() as u64, w.bytes(), "{tag}");
        }
    }
}
