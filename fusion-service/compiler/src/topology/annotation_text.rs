//! Resolves the texts of annotations: a text as written, or the submission-time value that it refers to.

use crate::error::{Problem, Stage, excerpt};
use crate::logical;
use crate::logical::Text;
use crate::logical::submission::{Bindings, Literal};

/// The text of an annotation's value.
pub(super) fn resolve(bindings: &Bindings, text: &Text, annotation: &logical::Annotation) -> Result<String, Problem> {
    let Some(index) = text.submission_value else { return Ok(text.literal.clone()) };
    let literal = bindings.literal(index);
    literal.unquoted().map(str::to_owned).ok_or_else(|| {
        let what = if literal == Literal::Undeclared { "does not exist" } else { "has no value" };
        let message = format!("@{}: the submission-time value {index} {what}", excerpt(&annotation.tag));
        Problem::new(Stage::Topology, message).at(annotation.place)
    })
}
