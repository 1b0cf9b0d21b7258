//! Threading models (rule expansion-21).
//!
//! The model of an operator is that of the nearest composite around it which has one, as an instance or by its
//! definition. The job's configuration is the model of the main composite, if the program gives that one none. All
//! channels of a parallel composite have the composite's model.

use super::annotation_text::resolve;
use super::shape::Shape;
use super::{Annotation, AnnotationValue, Parameters};
use crate::error::{Problem, Stage, excerpt};
use crate::logical;
use crate::logical::{DefinitionThreading, OperatorId, OperatorKind};

/// The keys of a resolved model, in the order of the AADL.
const KEYS: [&str; 3] = ["model", "threads", "elastic"];

/// The resolved `threading` annotation of an operator.
pub(super) fn model(shape: &Shape<'_>, id: OperatorId, parameters: &Parameters) -> Result<Option<Annotation>, Problem> {
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
        Annotation { tag: "threading".to_owned(), values: values.collect() }
    }))
}

/// A model of the program; of equal keys the last one counts.
fn written(annotation: &logical::Annotation, parameters: &Parameters) -> Result<Annotation, Problem> {
    let mut values = Vec::new();
    for key in KEYS {
        if let Some((_, text)) = annotation.values.iter().rev().find(|(other, _)| other == key) {
            let text = resolve(&parameters.bindings, text, annotation)?;
            values.push((key.to_owned(), AnnotationValue::Text(text)));
        }
    }
    Ok(Annotation { tag: annotation.tag.clone(), values })
}
