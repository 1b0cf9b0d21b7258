//! Imports and exports of each channel (rules expansion-26 and expansion-27).
//!
//! An Import is no node of the topology: its subscription goes to every input port that it reaches. An Export is none
//! either: its properties go to the output port that feeds it. Channel functions in names and property values are
//! replaced as text. Subscriptions and filters are expressions: channel functions become numbers in them, and constants
//! are folded.

use super::copies::Copies;
use super::links::{End, Links};
use super::locations::region_channel;
use super::order::Order;
use super::shape::Shape;
use super::texts::TextBudget;
use super::{Channel, EvaluatedExport, EvaluatedImports, EvaluatedNameImport, EvaluatedPropertyImport, Node, names};
use crate::budget::Budget;
use crate::error::{Error, Problem, Problems, Stage, code, excerpt};
use crate::logical;
use crate::logical::{ImportedStreams, OperatorId, OperatorKind};
use cranelift_entity::SecondaryMap;
use smallvec::SmallVec;
use spl_expression::{Expression, Intrinsics, Limits, substitute_intrinsics};

/// Scope of an import that names none.
const DEFAULT_SCOPE: &str = "Default";

/// The imports of each input port that has some: (node, port) -> imports.
pub(super) type ImportsOfPorts = Vec<((Node, u32), EvaluatedImports)>;

/// Checks the expressions of all imports, also of those that are connected to nothing.
pub(super) fn check_expressions(application: &logical::Application, problems: &mut Problems) {
    for operator in application.operators.values() {
        if let OperatorKind::Import(import) = &operator.kind {
            for (text, what) in expressions(import) {
                parse(operator, text, what, problems);
            }
        }
    }
}

/// Evaluates all imports in the order of the walk, which decides the order at a port. The result is sorted.
pub(super) fn imports(
    shape: &Shape<'_>,
    order: &Order,
    links: &mut Links<'_, '_>,
    copies: &Copies,
    texts: &mut TextBudget,
    budget: &Budget,
    problems: &mut Problems,
) -> Result<ImportsOfPorts, Error> {
    let mut written: SecondaryMap<OperatorId, Option<ParsedImport<'_>>> = SecondaryMap::new();
    let mut walk = Vec::new();
    for (id, operator) in shape.application.operators.iter() {
        let OperatorKind::Import(import) = &operator.kind else { continue };
        written[id] = ParsedImport::of(shape, id, import, links, budget, problems)?;
        let channels = 0..shape.scopes[shape.scope_of[id]].channels;
        walk.extend(channels.map(|channel| (order.walk_position(shape, id, channel), id, channel)));
    }
    walk.sort_unstable();
    let mut imported: std::collections::BTreeMap<(Node, u32), EvaluatedImports> = std::collections::BTreeMap::new();
    let mut pace = budget.pace();
    for (_, id, channel) in walk {
        let Some(import) = &written[id] else { continue };
        let evaluated = match import.evaluate(shape, id, channel) {
            Ok(evaluated) => evaluated,
            Err(problem) => {
                problems.push(problem);
                // Other channels would only report the same problem.
                written[id] = None;
                continue;
            }
        };
        let bytes = evaluated.bytes();
        for (target, port) in &import.targets {
            pace.step()?;
            texts.charge(bytes)?;
            if let Some(target) = copies.node(*target, channel) {
                evaluated.add_to(imported.entry((target, *port)).or_default());
            }
        }
    }
    Ok(imported.into_iter().collect())
}

/// The expressions of an Import: subscription, filter.
fn expressions(import: &logical::Import) -> [(Option<&str>, &'static str); 2] {
    let subscription = match &import.streams {
        ImportedStreams::ByProperties { subscription, .. } => Some(subscription.as_str()),
        ImportedStreams::ByName(_) => None,
    };
    [(subscription, "subscription"), (import.filter.as_deref(), "filter")]
}

/// Parses an expression of an Import. An empty text is no expression. Returns nothing at all if there is a problem.
fn parse(
    operator: &logical::Operator,
    text: Option<&str>,
    what: &str,
    problems: &mut Problems,
) -> Option<Option<Expression>> {
    let text = text.filter(|text| !text.is_empty());
    let parsed = text.map(|text| Expression::parse(text, &Limits::default())).transpose();
    parsed.map_err(|error| problems.push(bad_expression(operator, what, &error))).ok()
}

/// An Import as written, its expressions parsed.
#[derive(Clone)]
struct ParsedImport<'a> {
    import: &'a logical::Import,
    subscription: Option<Expression>,
    filter: Option<Expression>,
    name: names::Template,
    targets: Vec<(OperatorId, u32)>,
}

/// An Import in one channel.
struct EvaluatedImport {
    filter: Option<String>,
    by_name: Vec<EvaluatedNameImport>,
    by_properties: Option<EvaluatedPropertyImport>,
}

impl<'a> ParsedImport<'a> {
    fn of(
        shape: &Shape<'_>,
        id: OperatorId,
        import: &'a logical::Import,
        links: &mut Links<'_, '_>,
        budget: &Budget,
        problems: &mut Problems,
    ) -> Result<Option<Self>, Error> {
        let operator = &shape.application.operators[id];
        let mut targets = Vec::new();
        let mut whole = true;
        for position in 0..import.outputs.len() {
            let reached = problems.keep(links.follow_output(id, position, budget))?.unwrap_or_default();
            for end in reached.into_iter().flat_map(|reach| reach.ends) {
                match end {
                    End::Port(target, port) => targets.push((target, port)),
                    End::Export(_) => {}
                    End::Splitter(_) | End::Merger(_) => {
                        let name = excerpt(&operator.logical_name);
                        let message = format!("the Import {name} reaches across the border of a parallel region");
                        let problem = Problem::new(Stage::Topology, message).code(code::INCONSISTENT);
                        problems.push(problem.at(operator.place));
                        whole = false;
                    }
                }
            }
        }
        let [subscription, filter] = expressions(import).map(|(text, what)| parse(operator, text, what, problems));
        let (Some(subscription), Some(filter), true) = (subscription, filter, whole) else { return Ok(None) };
        let name = names::operator(shape, id, 0);
        Ok(Some(Self { import, subscription, filter, name, targets }))
    }

    fn evaluate(&self, shape: &Shape<'_>, id: OperatorId, channel: u32) -> Result<EvaluatedImport, Problem> {
        let operator = &shape.application.operators[id];
        let channels = shape.channels_of(id, channel);
        let intrinsics = intrinsics(&channels);
        let fold = |expression: &Option<Expression>, what: &str| match expression {
            Some(expression) => expression
                .substitute_and_fold(&intrinsics)
                .map(|folded| folded.to_string())
                .map_err(|error| bad_expression(operator, what, &error)),
            None => Ok(String::new()),
        };
        let operator_name = self.name.fill(&channels);
        let scope = |scope: &Option<String>| scope.clone().unwrap_or_else(|| DEFAULT_SCOPE.to_owned());
        let mut evaluated = EvaluatedImport { filter: None, by_name: Vec::new(), by_properties: None };
        if self.import.filter.is_some() {
            evaluated.filter = Some(fold(&self.filter, "filter")?);
        }
        match &self.import.streams {
            ImportedStreams::ByName(names) => {
                evaluated.by_name = names
                    .iter()
                    .map(|name| EvaluatedNameImport {
                        operator_name: operator_name.clone(),
                        application_name: name.application_name.clone(),
                        application_scope: scope(&name.application_scope),
                        stream_name: substitute_intrinsics(&name.stream_name, &intrinsics).into_owned(),
                    })
                    .collect();
            }
            ImportedStreams::ByProperties { application_scope, index, .. } => {
                evaluated.by_properties = Some(EvaluatedPropertyImport {
                    operator_name,
                    application_scope: scope(application_scope),
                    subscription: fold(&self.subscription, "subscription")?,
                    index: *index,
                });
            }
        }
        Ok(evaluated)
    }
}

fn bad_expression(operator: &logical::Operator, what: &str, error: &spl_expression::Error) -> Problem {
    let message =
        format!("{}: its {what} is no expression: {}", excerpt(&operator.logical_name), excerpt(&error.to_string()));
    Problem::new(Stage::Topology, message).code(code::INCONSISTENT).at(operator.place)
}

impl EvaluatedImport {
    fn bytes(&self) -> usize {
        let names = self.by_name.iter().map(|import| {
            let EvaluatedNameImport { operator_name, application_name, application_scope, stream_name } = import;
            operator_name.len() + application_name.len() + application_scope.len() + stream_name.len()
        });
        let properties = self.by_properties.iter().map(|import| import.subscription.len() + import.operator_name.len());
        names.chain(properties).sum::<usize>() + self.filter.as_ref().map_or(0, String::len)
    }

    /// Imports by name accumulate, the last one by properties wins, and so does the last filter; an Import without
    /// filter clears none (rule expansion-26).
    fn add_to(&self, imports: &mut EvaluatedImports) {
        imports.by_name.extend(self.by_name.iter().cloned());
        if self.by_properties.is_some() {
            imports.by_properties.clone_from(&self.by_properties);
        }
        if self.filter.is_some() {
            imports.filter.clone_from(&self.filter);
        }
    }
}

/// The Export of an operator in a global channel.
pub(super) fn export(
    shape: &Shape<'_>,
    id: OperatorId,
    channel: u32,
    texts: &mut TextBudget,
) -> Result<Option<EvaluatedExport>, Error> {
    let OperatorKind::Export(export) = &shape.application.operators[id].kind else { return Ok(None) };
    let channels = shape.channels_of(id, channel);
    let intrinsics = intrinsics(&channels);
    let text = |text: &String| substitute_intrinsics(text, &intrinsics).into_owned();
    let properties = export.properties.as_ref().map(|properties| {
        properties
            .iter()
            .map(|property| logical::Property {
                name: property.name.clone(),
                r#type: property.r#type.clone(),
                values: property.values.iter().map(&text).collect(),
            })
            .collect::<Vec<_>>()
    });
    let evaluated = EvaluatedExport {
        operator_name: names::operator(shape, id, 0).fill(&channels),
        name: export.stream_name.as_ref().map(&text),
        allow_filter: export.allow_filter,
        drop_connection: export.drop_connection,
        properties,
    };
    let values = evaluated.properties.iter().flatten().flat_map(|property| &property.values);
    let names = [Some(&evaluated.operator_name), evaluated.name.as_ref()].into_iter().flatten();
    texts.charge(values.chain(names).map(|text| text.len() + TextBudget::PER_TEXT).sum())?;
    Ok(Some(evaluated))
}

fn intrinsics(channels: &[Channel]) -> Intrinsics {
    let innermost: SmallVec<[_; 1]> = channels.first().map(region_channel).into_iter().collect();
    Intrinsics::of(&innermost)
}
