//! Annotations as the AADL has them (rule expansion-20).
//!
//! The operator's own annotations come first, in the order of the ADL, then `consistentRegionEntry` if it is in a
//! region, then `threading` if a model applies. Values that refer to submission-time values are resolved.
//! `eventTimeContext` keeps the triples of the ADL, which name operators by ADL index. Operator indexes are only final
//! after a resize has carried them over, so the AADL stage puts them in.

use super::annotation_text::resolve;
use super::consistent::Membership;
use super::shape::Shape;
use super::texts::TextBudget;
use super::{AnnotationValue, Channel, Parameters, ResolvedAnnotation, names, threading};
use crate::error::{Error, Problems};
use crate::logical::OperatorId;
use get_size2::GetSize;
use std::collections::HashMap;
use std::sync::Arc;

/// The annotations of one operator, apart from that of its consistent region.
#[derive(Debug, GetSize)]
pub(super) struct Annotations {
    own: Vec<OwnAnnotation>,
    threading: Option<ResolvedAnnotation>,
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
    pub(super) fn of(
        shape: &Shape<'_>,
        id: OperatorId,
        parameters: &Parameters,
        problems: &mut Problems,
    ) -> Option<Self> {
        let mut whole = true;
        let operator = &shape.application.operators[id];
        let bindings = &parameters.bindings;
        let mut own = Vec::with_capacity(operator.annotations.len());
        let mut varies = false;
        for annotation in &operator.annotations {
            let is_view = annotation.tag == "view";
            let mut values = Vec::with_capacity(annotation.values.len());
            for (key, text) in &annotation.values {
                let value = match key.as_str() {
                    "filter" if is_view => view_filter(&text.literal),
                    "attributes" if is_view => view_attributes(&text.literal),
                    _ => AnnotationValue::Text(resolve(bindings, text, annotation).unwrap_or_else(|problem| {
                        problems.push(problem);
                        whole = false;
                        String::new()
                    })),
                };
                values.push((key.clone(), value));
            }
            let tag = annotation.tag.clone();
            let name = values.iter().position(|(key, _)| key == "name").filter(|_| is_view);
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
        let threading = threading::model(shape, id, parameters).map_err(|problem| problems.push(problem)).ok()?;
        whole.then_some(Self { own, threading, varies })
    }

    /// The value of the key `model` of the threading annotation.
    pub(super) fn threading_model(&self) -> Option<&str> {
        let (_, value) = self.threading.as_ref()?.values.iter().find(|(key, _)| key == "model")?;
        match value {
            AnnotationValue::Text(model) => Some(model),
            _ => None,
        }
    }

    /// Whether they differ between channels.
    pub(super) fn vary(&self) -> bool {
        self.varies
    }

    /// All annotations in one channel.
    pub(super) fn fill(
        &self,
        shape: &Shape<'_>,
        id: OperatorId,
        channels: &[Channel],
        membership: Option<&Membership>,
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
        let mut all = Vec::with_capacity(self.own.len() + 2);
        for own in &self.own {
            all.push(match own {
                OwnAnnotation::Same(annotation) => annotation.clone(),
                OwnAnnotation::View { before, name, after, tag } => {
                    let scope = names::scope_of(shape, id).fill(channels);
                    let logical = names::logical_scope_of(shape.application, id);
                    let mut values = before.clone();
                    values.push(("name".to_owned(), AnnotationValue::Text(format!("{scope}{name}"))));
                    values.push(("logicalName".to_owned(), AnnotationValue::Text(format!("{logical}{name}"))));
                    values.extend(after.iter().cloned());
                    ResolvedAnnotation { tag: tag.clone(), values }
                }
            });
        }
        all.extend(membership.map(|membership| membership.annotation.clone()));
        all.extend(self.threading.clone());
        charge(&all, texts)?;
        let all: Arc<[ResolvedAnnotation]> = all.into();
        made.all.insert(key, all.clone());
        made.last = Some((key, all.clone()));
        Ok(all)
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

/// Bytes of an annotation, roughly.
fn size(annotation: &ResolvedAnnotation) -> usize {
    fn of(value: &AnnotationValue) -> usize {
        match value {
            AnnotationValue::Text(text) => text.len(),
            // Annotation values have at most two levels.
            AnnotationValue::List(list) => list.iter().map(of).sum(),
            AnnotationValue::Tuple(values) => values.iter().map(|(key, value)| key.len() + of(value)).sum(),
        }
    }
    annotation.tag.len() + annotation.values.iter().map(|(key, value)| key.len() + of(value)).sum::<usize>()
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
