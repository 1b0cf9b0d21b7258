//! Makes physical operators. It resolves what all channels share once, and fills in the rest for each channel
//! (rule expansion-6).

use super::annotations::Annotations;
use super::locations::Locations;
use super::names::{self, Template};
use super::shape::Shape;
use super::texts::TextBudget;
use super::threading::ThreadingModels;
use super::{Parameters, PhysicalInputPort, PhysicalOperator, PhysicalOutputPort};
use crate::budget::{Budget, Pace};
use crate::error::{Error, Problem, Problems, Stage, excerpt};
use crate::heap::{primary_map, share_if_any};
use crate::logical::submission::Literal;
use crate::logical::{OperatorId, OperatorKind, Primitive, TraceLevel};
use cranelift_entity::PrimaryMap;
use get_size2::GetSize;
use std::sync::Arc;

/// Runtime constants with their values.
type Constants = Arc<[(String, Option<String>)]>;

/// What all channels of each primitive share, resolved. It is the same for all generations of a job.
#[derive(Debug, GetSize)]
pub(super) struct ResolvedPrimitives {
    #[get_size(size_fn = primary_map)]
    operators: PrimaryMap<OperatorId, Option<ResolvedPrimitive>>,
    /// Bytes of texts that were charged.
    texts: usize,
}

/// What all channels of a primitive share, resolved.
#[derive(Debug, GetSize)]
pub(super) struct ResolvedPrimitive {
    name: Template,
    streams: Vec<Template>,
    inputs: usize,
    /// Its annotations.
    pub(super) annotations: Annotations,
    locations: Locations,
    #[get_size(size_fn = share_if_any)]
    threading_model: Option<Arc<str>>,
    trace_level: TraceLevel,
    runtime_constants: Constants,
}

impl ResolvedPrimitives {
    /// Resolves all primitives. Adds to the problems: unknown definitions and submission-time values, and streams of
    /// scopes that are not around their operator.
    pub(super) fn new(
        shape: &Shape<'_>,
        parameters: &Parameters,
        texts: &mut TextBudget,
        problems: &mut Problems,
        budget: &Budget,
    ) -> Result<Self, Error> {
        let before = texts.charged();
        let mut models = ThreadingModels::new(shape, parameters);
        let mut pace = budget.pace();
        let mut operators = PrimaryMap::with_capacity(shape.application.operators.len());
        for (id, operator) in shape.application.operators.iter() {
            pace.step()?;
            let mut one = None;
            if let OperatorKind::Primitive(primitive) = &operator.kind {
                let constants = constants(shape, id, primitive, parameters, texts, &mut pace, problems)?;
                let annotations = |problems: &mut Problems| {
                    Annotations::of(shape, id, parameters, &mut models, texts, &mut pace, problems)
                };
                one = ResolvedPrimitive::of(shape, id, primitive, parameters, constants, annotations, problems)?;
            }
            operators.push(one);
        }
        Ok(Self { operators, texts: texts.charged() - before })
    }

    /// Charges again for the texts that were charged when this value was made.
    pub(super) fn charge(&self, texts: &mut TextBudget) -> Result<(), Error> {
        texts.charge(self.texts)
    }

    /// What the channels of a primitive share.
    pub(super) fn get(&self, id: OperatorId) -> Option<&ResolvedPrimitive> {
        self.operators.get(id)?.as_ref()
    }

    /// All primitives.
    pub(super) fn iter(&self) -> impl Iterator<Item = (OperatorId, &ResolvedPrimitive)> {
        self.operators.iter().filter_map(|(id, written)| Some((id, written.as_ref()?)))
    }
}

impl ResolvedPrimitive {
    /// Resolves a primitive, and its `annotations` when it is their turn. Returns nothing if there are problems, and
    /// adds all of them to `problems`.
    fn of(
        shape: &Shape<'_>,
        id: OperatorId,
        primitive: &Primitive,
        parameters: &Parameters,
        runtime_constants: Constants,
        annotations: impl FnOnce(&mut Problems) -> Result<Option<Annotations>, Error>,
        problems: &mut Problems,
    ) -> Result<Option<Self>, Error> {
        let application = shape.application;
        let operator = &application.operators[id];
        if application.definitions.binary_search_by_key(&primitive.definition, |definition| definition.index).is_err() {
            let name = excerpt(&operator.logical_name);
            let message = format!("{name}: there is no operator definition {}", primitive.definition);
            problems.push(Problem::new(Stage::Topology, message).at(operator.place));
        }
        let annotations = annotations(problems)?;
        let streams = primitive.outputs.iter().map(|port| names::stream(shape, id, &port.stream_name));
        let streams: Option<Vec<Template>> = streams
            .map(|stream| stream.map_err(|problem| problems.push(problem)).ok())
            // Resolves all streams before it stops, so that every problem is reported.
            .collect::<Vec<_>>()
            .into_iter()
            .collect();
        let (Some(annotations), Some(streams)) = (annotations, streams) else { return Ok(None) };
        Ok(Some(Self {
            name: names::operator(shape, id, 0),
            streams,
            inputs: primitive.inputs.len(),
            locations: Locations::of(primitive),
            threading_model: annotations.threading_model(),
            annotations,
            trace_level: parameters.configuration.trace_level.unwrap_or(primitive.trace_level),
            runtime_constants,
        }))
    }

    /// Bytes of the names that a document has of each copy, at least.
    pub(super) fn name_bytes(&self) -> u64 {
        self.name.len() as u64 + self.streams.iter().map(|stream| stream.len() as u64).sum::<u64>()
    }

    /// Whether channels may differ in more than names, numbers of channels and what they are connected to.
    pub(super) fn varies(&self, shape: &Shape<'_>, id: OperatorId) -> bool {
        self.annotations.vary() || self.locations.vary(shape, id)
    }

    /// The operator in one channel, without connections, imports, exports, annotations.
    pub(super) fn operator(
        &self,
        shape: &Shape<'_>,
        (index, id, channel): (u32, OperatorId, u32),
        texts: &mut TextBudget,
        pace: &mut Pace<'_>,
        problems: &mut Problems,
    ) -> Result<PhysicalOperator, Error> {
        let channels = shape.channels_of(id, channel);
        let (resources, partition) = match self.locations.fill(&channels, texts, pace)? {
            Ok(filled) => filled,
            Err(message) => {
                let operator = &shape.application.operators[id];
                let message = format!("{}: {}", excerpt(&operator.logical_name), excerpt(&message));
                problems.push(Problem::new(Stage::Topology, message).at(operator.place));
                Default::default()
            }
        };
        let output = |stream: &Template| PhysicalOutputPort {
            stream_name: stream.fill(&channels),
            ..PhysicalOutputPort::default()
        };
        Ok(PhysicalOperator {
            index,
            logical: id,
            name: self.name.fill(&channels),
            annotations: Arc::default(),
            resources,
            partition,
            consistent_region: None,
            threading_model: self.threading_model.clone(),
            trace_level: self.trace_level,
            runtime_constants: self.runtime_constants.clone(),
            inputs: std::iter::repeat_with(PhysicalInputPort::default).take(self.inputs).collect(),
            outputs: self.streams.iter().map(output).collect(),
            channels,
        })
    }
}

/// Runtime constants: a reference to a submission-time value is replaced by its literal (rule expansion-22).
fn constants(
    shape: &Shape<'_>,
    id: OperatorId,
    primitive: &Primitive,
    parameters: &Parameters,
    texts: &mut TextBudget,
    pace: &mut Pace<'_>,
    problems: &mut Problems,
) -> Result<Constants, Error> {
    let mut constants = Vec::with_capacity(primitive.runtime_constants.len());
    for (name, text) in &primitive.runtime_constants {
        pace.step()?;
        let literal = text.submission_value.map_or(Literal::Text(&text.literal), |i| parameters.bindings.literal(i));
        let value = match literal {
            Literal::Text(text) => Some(text),
            Literal::Absent => None,
            Literal::Undeclared => {
                let operator = &shape.application.operators[id];
                let (operator, place) = (excerpt(&operator.logical_name), operator.place);
                let (name, index) = (excerpt(name), text.submission_value.unwrap_or_default());
                let message = format!("{operator}: its constant {name} is the unknown submission-time value {index}");
                problems.push(Problem::new(Stage::Topology, message).at(place));
                None
            }
        };
        texts.charge(name.len() + value.map_or(0, str::len))?;
        constants.push((name.clone(), value.map(str::to_owned)));
    }
    Ok(constants.into())
}
