//! Resolves the texts of annotations: a text as written, or the submission-time value that it refers to.

use crate::error::{Problem, Stage, excerpt};
use crate::logical;
use crate::logical::Text;
use crate::logical::submission::{Bindings, Literal};

/// The text of an annotation's value. It is not copied: many values may refer to one long submission-time value.
pub(super) fn resolve<'t>(
    bindings: &'t Bindings,
    text: &'t Text,
    annotation: &logical::Annotation,
) -> Result<&'t str, Problem> {
    let Some(index) = text.submission_value else { return Ok(&text.literal) };
    let literal = bindings.literal(index);
    literal.unquoted().ok_or_else(|| {
        let what = if literal == Literal::Undeclared { "does not exist" } else { "has no value" };
        let message = format!("@{}: the submission-time value {index} {what}", excerpt(&annotation.tag));
        Problem::new(Stage::Topology, message).at(annotation.place)
    })
}
