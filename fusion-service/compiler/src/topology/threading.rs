//! Threading models (rule expansion-21).
//!
//! An operator has the model of the nearest composite around it that has one, from its instance or from its definition.
//! If the application gives the main composite no model, it has that of the job's configuration. All channels of a
//! parallel composite have the composite's model.

use super::annotation_text::resolve;
use super::shape::Shape;
use super::{AnnotationValue, Parameters, ResolvedAnnotation};
use crate::error::{Problem, Stage, excerpt};
use crate::logical;
use crate::logical::{DefinitionThreading, OperatorId, OperatorKind};

/// The keys of a resolved model, in the order of the AADL.
const KEYS: [&str; 3] = ["model", "threads", "elastic"];

/// The resolved `threading` annotation of an operator.
pub(super) fn model(
    shape: &Shape<'_>,
    id: OperatorId,
    parameters: &Parameters,
) -> Result<Option<ResolvedAnnotation>, Problem> {
    let application = shape.application;
    let mut at = application.operators[id].owner;
    while let Some(id) = at {
        let operator = &application.operators[id];
        if let OperatorKind::Composite(composite) = &operator.kind {
            if let Some(annotation) = &composite.threading {
                return written(annotation, parameters).map(Some);
            }
            match &composite.definition_threading {
                DefinitionThreading::Unset => {}
                DefinitionThreading::Model(annotation) => return written(annotation, parameters).map(Some),
                DefinitionThreading::Undefined(index) => {
                    let name = excerpt(&operator.logical_name);
                    let problem = format!("{name}: there is no definition {index} of composite operators");
                    return Err(Problem::new(Stage::Topology, problem).at(operator.place));
                }
            }
        }
        at = operator.owner;
    }
    let configuration = &parameters.configuration;
    Ok(configuration.threading_model.as_ref().map(|model| {
        let values = [Some(model), configuration.thread_count.as_ref(), configuration.elastic.as_ref()];
        let values = KEYS.iter().zip(values).filter_map(|(key, value)| Some((*key, value?)));
        let values = values.map(|(key, value)| (key.to_owned(), AnnotationValue::Text(value.clone())));
        ResolvedAnnotation { tag: "threading".to_owned(), values: values.collect() }
    }))
}

/// The model that an annotation of the application gives. Of equal keys the last one counts.
fn written(annotation: &logical::Annotation, parameters: &Parameters) -> Result<ResolvedAnnotation, Problem> {
    let mut values = Vec::new();
    for key in KEYS {
        if let Some((_, text)) = annotation.values.iter().rev().find(|(other, _)| other == key) {
            let text = resolve(&parameters.bindings, text, annotation)?;
            values.push((key.to_owned(), AnnotationValue::Text(text)));
        }
    }
    Ok(ResolvedAnnotation { tag: annotation.tag.clone(), values })
}
