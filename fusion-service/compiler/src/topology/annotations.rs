//! Annotations as the AADL has them (rule expansion-20).
//!
//! The operator's own annotations come first, in the order of the ADL, then `consistentRegionEntry` if it is in a
//! region, then `threading` if a model applies. Values that refer to submission-time values are resolved.
//! `eventTimeContext` keeps the triples of the ADL, which name operators by ADL index. Operator indexes are only final
//! after a resize has carried them over, so the AADL stage puts them in.
//!
//! Knows: annotations of an operator, its channel. Must not know: final numbers of operators, XML.

use super::annotation_text::resolve;
use super::consistent::Membership;
use super::shape::Shape;
use super::texts::TextBudget;
use super::threading::{ThreadingModel, ThreadingModels};
use super::{AnnotationValue, Channel, Parameters, ResolvedAnnotation, names};
use crate::budget::Pace;
use crate::error::{Error, Problems};
use crate::heap::share_if_any;
use crate::logical::{OperatorId, Text};
use get_size2::GetSize;
use std::collections::HashMap;
use std::sync::Arc;

/// The key of a view's name, and the key of the same name without channels.
const NAME: &str = "name";
const LOGICAL_NAME: &str = "logicalName";
/// Bytes of an annotation besides its texts.
const PER_ANNOTATION: usize = size_of::<ResolvedAnnotation>();
/// Bytes of a key and a value besides their texts.
const PER_VALUE: usize = size_of::<(String, AnnotationValue)>();

/// The annotations of one operator, apart from that of its consistent region.
#[derive(Debug, GetSize)]
pub(super) struct Annotations {
    own: Vec<OwnAnnotation>,
    #[get_size(size_fn = share_if_any)]
    threading: Option<Arc<ThreadingModel>>,
    varies: bool,
}

/// The annotations of one operator that were made so far.
#[derive(Clone, Default)]
pub(super) struct AnnotationCache {
    /// By the channel of the composite around the operator, if a view needs it, and by consistent region.
    all: HashMap<(u32, Option<u64>), Arc<[ResolvedAnnotation]>>,
    /// The annotations that were returned last. The next call mostly needs the same.
    last: Option<((u32, Option<u64>), Arc<[ResolvedAnnotation]>)>,
}

#[derive(Debug, GetSize)]
enum OwnAnnotation {
    Same(ResolvedAnnotation),
    View { before: Vec<(String, AnnotationValue)>, name: String, after: Vec<(String, AnnotationValue)>, tag: String },
}

impl Annotations {
    /// Resolves everything that does not depend on the channel. Returns nothing if there are problems, and adds all of
    /// them to `problems`.
    ///
    /// Literals are not charged for: each is in the document once.
    ///
    /// # Errors
    ///
    /// The texts of all operators are too long, or the budget ends.
    pub(super) fn of(
        shape: &Shape<'_>,
        id: OperatorId,
        parameters: &Parameters,
        models: &mut ThreadingModels<'_>,
        texts: &mut TextBudget,
        pace: &mut Pace<'_>,
        problems: &mut Problems,
    ) -> Result<Option<Self>, Error> {
        let mut whole = true;
        let operator = &shape.application.operators[id];
        let bindings = &parameters.bindings;
        let mut own = Vec::with_capacity(operator.annotations.len());
        let mut varies = false;
        for annotation in &operator.annotations {
            let is_view = annotation.tag == "view";
            let mut values = Vec::with_capacity(annotation.values.len());
            for (key, text) in &annotation.values {
                pace.step()?;
                let value = match key.as_str() {
                    "filter" if is_view => {
                        charge_entries(text, texts)?;
                        view_filter(&text.literal)
                    }
                    "attributes" if is_view => {
                        charge_entries(text, texts)?;
                        view_attributes(&text.literal)
                    }
                    _ => {
                        let resolved = resolve(bindings, text, annotation).unwrap_or_else(|problem| {
                            problems.push(problem);
                            whole = false;
                            ""
                        });
                        if text.submission_value.is_some() {
                            texts.charge(resolved.len())?;
                        }
                        AnnotationValue::Text(resolved.to_owned())
                    }
                };
                values.push((key.clone(), value));
            }
            let tag = annotation.tag.clone();
            let name = values.iter().position(|(key, _)| key == NAME).filter(|_| is_view);
            own.push(match name {
                Some(at) => {
                    varies = true;
                    let after = values.split_off(at + 1);
                    match values.pop() {
                        Some((_, AnnotationValue::Text(name))) => {
                            OwnAnnotation::View { before: values, name, after, tag }
                        }
                        _ => OwnAnnotation::Same(ResolvedAnnotation { tag, values: after }),
                    }
                }
                None => OwnAnnotation::Same(ResolvedAnnotation { tag, values }),
            });
        }
        Ok(match models.of(operator, texts, pace)? {
            Ok(threading) => whole.then_some(Self { own, threading, varies }),
            Err(problem) => {
                problems.push(problem);
                None
            }
        })
    }

    /// The value of the key `model` of the threading annotation.
    pub(super) fn threading_model(&self) -> Option<Arc<str>> {
        self.threading.as_ref()?.name.clone()
    }

    /// Whether they differ between channels.
    pub(super) fn vary(&self) -> bool {
        self.varies
    }

    /// All annotations in one channel. Where they have to be made and equal those that the operator had `earlier`, the
    /// result is the same list in memory. Then all copies of the operator are compared with what they had by address.
    pub(super) fn fill(
        &self,
        shape: &Shape<'_>,
        (id, channels): (OperatorId, &[Channel]),
        membership: Option<&Membership>,
        earlier: impl FnOnce() -> Option<Arc<[ResolvedAnnotation]>>,
        made: &mut AnnotationCache,
        texts: &mut TextBudget,
    ) -> Result<Arc<[ResolvedAnnotation]>, Error> {
        let outer = channels.get(usize::from(shape.region_of[id].is_some()));
        let channel = if self.varies { outer.map_or(0, |channel| channel.global) } else { 0 };
        let key = (channel, membership.map(|membership| membership.region));
        if let Some((_, last)) = made.last.as_ref().filter(|(last, _)| *last == key) {
            return Ok(last.clone());
        }
        if let Some(known) = made.all.get(&key) {
            made.last = Some((key, known.clone()));
            return Ok(known.clone());
        }
        let scopes = if self.varies { ViewScopes::of(shape, id, channels) } else { ViewScopes::default() };
        let others = [
            membership.map(|membership| &membership.annotation),
            self.threading.as_ref().map(|threading| &threading.annotation),
        ];
        let others = others.into_iter().flatten();
        let own = self.own.iter().map(|own| own.size(&scopes)).sum::<usize>();
        texts.charge(own + others.clone().map(size).sum::<usize>())?;
        let own = self.own.iter().map(|own| own.fill(&scopes));
        let all: Arc<[ResolvedAnnotation]> = own.chain(others.cloned()).collect();
        let all = earlier().filter(|earlier| *earlier == all).unwrap_or(all);
        made.all.insert(key, all.clone());
        made.last = Some((key, all.clone()));
        Ok(all)
    }
}

/// What the names of views begin with in one channel.
#[derive(Default)]
struct ViewScopes {
    physical: String,
    logical: String,
}

impl ViewScopes {
    fn of(shape: &Shape<'_>, id: OperatorId, channels: &[Channel]) -> Self {
        let physical = names::scope_of(shape, id).fill(channels);
        Self { physical, logical: names::logical_scope_of(shape.application, id) }
    }
}

impl OwnAnnotation {
    /// Bytes of the annotation in one channel, as [`size()`] would count them.
    fn size(&self, scopes: &ViewScopes) -> usize {
        match self {
            Self::Same(annotation) => size(annotation),
            Self::View { before, name, after, tag } => {
                let names = [(NAME, &scopes.physical), (LOGICAL_NAME, &scopes.logical)];
                let names = names.map(|(key, scope)| PER_VALUE + key.len() + scope.len() + name.len());
                let values = names.iter().sum::<usize>() + values_size(before) + values_size(after);
                PER_ANNOTATION + tag.len() + values
            }
        }
    }

    fn fill(&self, ViewScopes { physical, logical }: &ViewScopes) -> ResolvedAnnotation {
        match self {
            Self::Same(annotation) => annotation.clone(),
            Self::View { before, name, after, tag } => {
                let mut values = Vec::with_capacity(before.len() + 2 + after.len());
                values.extend_from_slice(before);
                values.push((NAME.to_owned(), AnnotationValue::Text(format!("{physical}{name}"))));
                values.push((LOGICAL_NAME.to_owned(), AnnotationValue::Text(format!("{logical}{name}"))));
                values.extend_from_slice(after);
                ResolvedAnnotation { tag: tag.clone(), values }
            }
        }
    }
}

impl AnnotationCache {
    /// Takes over annotations that all channels outside consistent regions have. Charges for them once.
    pub(super) fn take_over(
        &mut self,
        annotations: &Arc<[ResolvedAnnotation]>,
        texts: &mut TextBudget,
    ) -> Result<(), Error> {
        if self.last.is_none() {
            charge(annotations, texts)?;
            self.last = Some(((0, None), annotations.clone()));
        }
        Ok(())
    }
}

/// Charges for the texts of annotations.
fn charge(annotations: &[ResolvedAnnotation], texts: &mut TextBudget) -> Result<(), Error> {
    annotations.iter().try_for_each(|annotation| texts.charge(size(annotation)))
}

/// Charges for the list or tuple that is made of a text, before it is: many entries may have no text at all.
fn charge_entries(text: &Text, texts: &mut TextBudget) -> Result<(), Error> {
    let entries = memchr::memchr_iter(b',', text.literal.as_bytes()).count() + 1;
    texts.charge(entries.saturating_mul(TextBudget::PER_TEXT))
}

/// Bytes of an annotation, roughly.
fn size(annotation: &ResolvedAnnotation) -> usize {
    PER_ANNOTATION + annotation.tag.len() + values_size(&annotation.values)
}

/// Bytes of keys and values, roughly.
fn values_size(values: &[(String, AnnotationValue)]) -> usize {
    fn of(value: &AnnotationValue) -> usize {
        match value {
            AnnotationValue::Text(text) => text.len(),
            // Annotation values have at most two levels.
            AnnotationValue::List(list) => list.iter().map(|value| PER_VALUE + of(value)).sum(),
            AnnotationValue::Tuple(values) => values_size(values),
        }
    }
    values.iter().map(|(key, value)| PER_VALUE + key.len() + of(value)).sum()
}

/// `["a","b"]` as a list of its entries, quotes taken off.
fn view_attributes(text: &str) -> AnnotationValue {
    let entries = without_ends(text).split(',').map(|entry| without_ends(entry.trim()).to_owned());
    AnnotationValue::List(entries.map(AnnotationValue::Text).collect())
}

/// `{k="v",...}` as a tuple. An entry without `=` is a key without text.
fn view_filter(text: &str) -> AnnotationValue {
    let entries = without_ends(text).split(',').map(|entry| {
        let mut parts = entry.split('=');
        let key = parts.next().unwrap_or_default().trim();
        let value = without_ends(parts.next().unwrap_or_default().trim());
        (key.to_owned(), AnnotationValue::Text(value.to_owned()))
    });
    AnnotationValue::Tuple(entries.collect())
}

/// A text without its first and last character.
fn without_ends(text: &str) -> &str {
    let mut characters = text.chars();
    characters.next();
    characters.next_back();
    characters.as_str()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> AnnotationValue {
        AnnotationValue::Text(text.to_owned())
    }

    #[test]
    fn views_list_attributes_and_filters() {
        for (written, expected) in
            [(r#"["a","b"]"#, vec!["a", "b"]), (r#"[ "a" , "b" ]"#, vec!["a", "b"]), ("[]", vec![""]), ("", vec![""])]
        {
            let expected = AnnotationValue::List(expected.into_iter().map(text).collect());
            assert_eq!(view_attributes(written), expected, "{written}");
        }
        for (written, expected) in [(r#"{k="v",l = "w"}"#, vec![("k", "v"), ("l", "w")]), (r#"{k}"#, vec![("k", "")])] {
            let expected = expected.into_iter().map(|(key, value)| (key.to_owned(), text(value))).collect();
            assert_eq!(view_filter(written), AnnotationValue::Tuple(expected), "{written}");
        }
    }
}
