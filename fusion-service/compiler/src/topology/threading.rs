//! Threading models (rule expansion-21).
//!
//! An operator has the model of the nearest composite around it that has one, from its instance or from its definition.
//! If the application gives the main composite no model, it has that of the job's configuration. All channels of a
//! parallel composite have the composite's model.
//!
//! Invariant: a model is resolved once, and all operators that have it share it. It may be long, and operators are
//! many.

use super::annotation_text::resolve;
use super::shape::Shape;
use super::texts::TextBudget;
use super::{AnnotationValue, Parameters, ResolvedAnnotation};
use crate::budget::Pace;
use crate::error::{Error, Problem, Stage, excerpt};
use crate::heap::share_if_any;
use crate::logical;
use crate::logical::{DefinitionThreading, Operator, OperatorId, OperatorKind};
use cranelift_entity::SecondaryMap;
use cranelift_entity::packed_option::PackedOption;
use get_size2::GetSize;
use std::collections::HashMap;
use std::ptr;
use std::sync::Arc;

/// The keys of a resolved model, in the order of the AADL.
const KEYS: [&str; 3] = ["model", "threads", "elastic"];

/// A threading model, resolved.
#[derive(Debug, GetSize)]
pub(super) struct ThreadingModel {
    /// The `threading` annotation of the operators that have it.
    pub(super) annotation: ResolvedAnnotation,
    /// The value of the key `model`.
    #[get_size(size_fn = share_if_any)]
    pub(super) name: Option<Arc<str>>,
}

/// The threading models of an application.
pub(super) struct ThreadingModels<'a> {
    application: &'a logical::Application,
    parameters: &'a Parameters,
    /// By composite: the composite nearest to it, perhaps itself, that says something about threading.
    decided_by: SecondaryMap<OperatorId, PackedOption<OperatorId>>,
    /// What the application's annotations say, as far as an operator was asked for. An annotation is known by its
    /// address, because the instances of a definition share one.
    written: HashMap<*const logical::Annotation, Result<Arc<ThreadingModel>, Problem>>,
    /// What the job's configuration says, if an operator without another model was asked for.
    configured: Option<Option<Arc<ThreadingModel>>>,
}

impl<'a> ThreadingModels<'a> {
    pub(super) fn new(shape: &Shape<'a>, parameters: &'a Parameters) -> Self {
        let application = shape.application;
        let mut decided_by: SecondaryMap<OperatorId, PackedOption<OperatorId>> = SecondaryMap::new();
        // Operators come after their owners.
        for (id, operator) in application.operators.iter() {
            let OperatorKind::Composite(composite) = &operator.kind else { continue };
            let decides =
                composite.threading.is_some() || !matches!(composite.definition_threading, DefinitionThreading::Unset);
            let around = || operator.owner.map_or_else(PackedOption::default, |owner| decided_by[owner]);
            let decider = if decides { id.into() } else { around() };
            decided_by[id] = decider;
        }
        Self { application, parameters, decided_by, written: HashMap::new(), configured: None }
    }

    /// The model of an operator, if it has one.
    ///
    /// # Errors
    ///
    /// The texts of all operators are too long, or the budget ends. A problem of the application is in the result.
    pub(super) fn of(
        &mut self,
        operator: &Operator,
        texts: &mut TextBudget,
        pace: &mut Pace<'_>,
    ) -> Result<Result<Option<Arc<ThreadingModel>>, Problem>, Error> {
        let application = self.application;
        let Some(decider) = operator.owner.and_then(|owner| self.decided_by[owner].expand()) else {
            return self.of_configuration(texts).map(Ok);
        };
        let decider = &application.operators[decider];
        let OperatorKind::Composite(composite) = &decider.kind else { return Ok(Ok(None)) };
        match (&composite.threading, &composite.definition_threading) {
            (Some(annotation), _) => Ok(self.written(annotation, texts, pace)?.map(Some)),
            (None, DefinitionThreading::Model(annotation)) => Ok(self.written(annotation, texts, pace)?.map(Some)),
            (None, DefinitionThreading::Undefined(index)) => {
                let name = excerpt(&decider.logical_name);
                let problem = format!("{name}: there is no definition {index} of composite operators");
                Ok(Err(Problem::new(Stage::Topology, problem).at(decider.place)))
            }
            (None, DefinitionThreading::Unset) => Ok(Ok(None)),
        }
    }

    fn of_configuration(&mut self, texts: &mut TextBudget) -> Result<Option<Arc<ThreadingModel>>, Error> {
        if let Some(known) = &self.configured {
            return Ok(known.clone());
        }
        let configuration = &self.parameters.configuration;
        let values = [&configuration.threading_model, &configuration.thread_count, &configuration.elastic];
        let values = KEYS.into_iter().zip(values).filter_map(|(key, value)| Some((key, value.as_deref()?)));
        let model = match configuration.threading_model {
            Some(_) => Some(ThreadingModel::new("threading", values.collect(), texts)?),
            None => None,
        };
        Ok(self.configured.insert(model).clone())
    }

    /// The model that an annotation of the application gives. Of equal keys the last one counts.
    fn written(
        &mut self,
        annotation: &'a logical::Annotation,
        texts: &mut TextBudget,
        pace: &mut Pace<'_>,
    ) -> Result<Result<Arc<ThreadingModel>, Problem>, Error> {
        if let Some(known) = self.written.get(&ptr::from_ref(annotation)) {
            return Ok(known.clone());
        }
        pace.steps(u32::try_from(annotation.values.len()).unwrap_or(u32::MAX))?;
        let bindings = &self.parameters.bindings;
        let last = |key: &str| annotation.values.iter().rev().find(|(other, _)| other == key);
        let values = KEYS.into_iter().filter_map(|key| last(key).map(|(_, text)| (key, text)));
        let values = values.map(|(key, text)| Ok((key, resolve(bindings, text, annotation)?)));
        let model = match values.collect::<Result<Vec<_>, Problem>>() {
            Ok(values) => Ok(ThreadingModel::new(&annotation.tag, values, texts)?),
            Err(problem) => Err(problem),
        };
        self.written.insert(ptr::from_ref(annotation), model.clone());
        Ok(model)
    }
}

impl ThreadingModel {
    fn new(tag: &str, values: Vec<(&str, &str)>, texts: &mut TextBudget) -> Result<Arc<Self>, Error> {
        let name = values.iter().find(|(key, _)| *key == KEYS[0]).map(|(_, name)| *name);
        texts.charge(tag.len() + values.iter().map(|(key, text)| key.len() + text.len()).sum::<usize>())?;
        texts.charge(name.map_or(0, str::len))?;
        let values = values.into_iter().map(|(key, text)| (key.to_owned(), AnnotationValue::Text(text.to_owned())));
        let annotation = ResolvedAnnotation { tag: tag.to_owned(), values: values.collect() };
        Ok(Arc::new(Self { annotation, name: name.map(Arc::from) }))
    }
}
