//! Imports and exports of each channel (rules expansion-26 and expansion-27).
//!
//! An Import is no node of the topology: its subscription goes to every input port that it reaches. An Export is none
//! either: its properties go to the output port that feeds it. Channel functions in names and property values are
//! replaced as text. Subscriptions and filters are expressions: channel functions become numbers in them, and constants
//! are folded (`expressions`). An expression without channel functions is the same in all channels, so it is folded
//! once, and its tree is dropped: a tree takes forty times as much as its text. Of the others the parts without channel
//! functions are folded once. What all foldings take is counted, and bounded.
//!
//! An expansion for other widths evaluates only imports of channels that have changed. Operators of the others keep
//! what they have, and it counts as if it had been evaluated again: whatever a resize accepts a fresh expansion
//! accepts.
//!
//! Invariant: a text is charged for before it is made, but for what one expression is folded to, or its tree, which is
//! charged for before the next one is read. Replacing a channel function makes no text longer: no channel has more
//! digits than the shortest of them has letters.
//!
//! Knows: expressions, channels. Must not know: which exports there are, who matches them.

use super::copies::Copies;
use super::expressions::{Cost, ExpressionReader, FoldingBudget, ParsedExpression, bad_expression, parse, place};
use super::links::{End, Links};
use super::locations::region_channel;
use super::order::Order;
use super::reuse::Previous;
use super::shape::Shape;
use super::texts::TextBudget;
use super::{Channel, EvaluatedExport, EvaluatedImports, EvaluatedNameImport, EvaluatedPropertyImport, Node, names};
use crate::budget::Budget;
use crate::error::{Error, Problem, Problems, Stage, code, excerpt};
use crate::logical;
use crate::logical::{ImportedStreams, OperatorId, OperatorKind};
use cranelift_entity::SecondaryMap;
use get_size2::GetSize;
use smallvec::SmallVec;
use spl_expression::{Intrinsics, substitute_intrinsics};
use std::borrow::Cow;
use std::collections::HashMap;
use std::collections::hash_map::Entry;

/// Scope of an import that names none.
const DEFAULT_SCOPE: &str = "Default";

/// The imports of each input port that has some: (node, port) -> imports.
pub(super) type ImportsOfPorts = Vec<((Node, u32), EvaluatedImports)>;

/// Checks the expressions of all imports, also of those that are connected to nothing.
///
/// # Errors
///
/// The budget ends.
pub(super) fn check_expressions(
    application: &logical::Application,
    problems: &mut Problems,
    budget: &Budget,
) -> Result<(), Error> {
    let mut pace = budget.pace();
    let mut known: HashMap<_, Option<spl_expression::Error>> = HashMap::new();
    for operator in application.operators.values() {
        let OperatorKind::Import(import) = &operator.kind else { continue };
        for (text, what) in expressions(import) {
            pace.step()?;
            if problems.is_full() {
                return Ok(());
            }
            let Some(text) = text else { continue };
            let error = match known.entry(place(text)) {
                Entry::Occupied(known) => known.into_mut(),
                Entry::Vacant(new) => new.insert(parse(text, &mut pace)?.err()),
            };
            if let Some(error) = error {
                problems.push(bad_expression(operator, what, error));
            }
        }
    }
    Ok(())
}

/// What imports have cost.
#[derive(Clone, Debug, Default, GetSize)]
pub(super) struct ImportCosts {
    /// Reading all expressions.
    reading: Cost,
    /// Evaluating each Import in all its channels; ascending.
    channels: Vec<(OperatorId, Cost)>,
}

impl ImportCosts {
    /// What evaluating an Import has cost.
    fn of(&self, import: OperatorId) -> Cost {
        let at = self.channels.binary_search_by_key(&import, |(id, _)| *id).ok();
        at.and_then(|at| self.channels.get(at)).map(|(_, cost)| *cost).unwrap_or_default()
    }
}

/// Evaluates the imports of all channels that are not as they were before, in the order of the walk, which decides the
/// order at a port. The result is sorted. No other texts may have been charged for.
pub(super) fn imports(
    (shape, order): (&Shape<'_>, &Order),
    links: &mut Links<'_, '_>,
    copies: &Copies,
    before: Option<&Previous<'_>>,
    texts: &mut TextBudget,
    budget: &Budget,
    problems: &mut Problems,
) -> Result<(ImportsOfPorts, ImportCosts), Error> {
    let mut written: SecondaryMap<OperatorId, Option<ParsedImport<'_>>> = SecondaryMap::new();
    let mut costs: SecondaryMap<OperatorId, Cost> = SecondaryMap::new();
    let mut walk = Vec::new();
    let (mut pace, mut folding) = (budget.pace(), FoldingBudget::new(budget));
    let mut reader = ExpressionReader::new(budget);
    for (id, operator) in shape.application.operators.iter() {
        let OperatorKind::Import(import) = &operator.kind else { continue };
        pace.steps(16)?;
        let targets = targets(shape, id, import, links, budget, problems)?;
        // A port and all imports that feed it are in the same regions.
        if let Some(before) = before.filter(|before| before.keeps(shape.scope_of[id])) {
            costs[id] = before.topology().import_costs.of(id);
            texts.charge(costs[id].bytes)?;
            folding.spend(costs[id].steps)?;
            continue;
        }
        written[id] = ParsedImport::of(shape, id, import, targets, &mut reader, problems)?;
        let channels = 0..shape.scopes[shape.scope_of[id]].channels;
        for channel in channels {
            walk.push((order.walk_position(shape, id, channel, &mut pace)?, id, channel));
        }
    }
    // A resize reads the expressions of some imports only.
    let reading = before.map_or_else(|| reader.cost(), |before| before.topology().import_costs.reading);
    texts.charge(reading.bytes)?;
    folding.spend(reading.steps)?;
    walk.sort_unstable();
    let mut imported: std::collections::BTreeMap<(Node, u32), EvaluatedImports> = std::collections::BTreeMap::new();
    let mut failed: SecondaryMap<OperatorId, bool> = SecondaryMap::new();
    for (_, id, channel) in walk {
        pace.step()?;
        let Some(import) = written[id].as_ref().filter(|_| !failed[id]) else { continue };
        // Also of an Import that is connected to nothing: its expressions may have problems in some channel.
        let (channels, taken) = (shape.channels_of(id, channel), folding.taken());
        let evaluated = match import.evaluate(&shape.application.operators[id], &channels, &mut folding)? {
            Ok(evaluated) => evaluated,
            Err(problem) => {
                problems.push(problem);
                // Other channels would only report the same problem.
                failed[id] = true;
                continue;
            }
        };
        costs[id].steps = costs[id].steps.saturating_add(folding.taken() - taken);
        if import.targets.is_empty() {
            continue;
        }
        let operator_name = import.name.fill(&channels);
        let bytes = evaluated.bytes(&operator_name);
        for (target, port) in &import.targets {
            pace.steps(evaluated.name_count())?;
            texts.charge(bytes)?;
            costs[id].bytes = costs[id].bytes.saturating_add(bytes);
            if let Some(target) = copies.node(*target, channel) {
                evaluated.add_to(imported.entry((target, *port)).or_default(), &operator_name);
            }
        }
    }
    let all = shape.application.operators.iter().filter(|(_, one)| matches!(one.kind, OperatorKind::Import(_)));
    let channels = all.map(|(id, _)| (id, costs[id])).collect();
    Ok((imported.into_iter().collect(), ImportCosts { reading, channels }))
}

/// What an Import feeds: operators and their ports. Returns nothing if there is a problem.
fn targets(
    shape: &Shape<'_>,
    id: OperatorId,
    import: &logical::Import,
    links: &mut Links<'_, '_>,
    budget: &Budget,
    problems: &mut Problems,
) -> Result<Option<Vec<(OperatorId, u32)>>, Error> {
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
    Ok(whole.then_some(targets))
}

/// The expressions of an Import: subscription, filter. An empty text is none.
fn expressions(import: &logical::Import) -> [(Option<&str>, &'static str); 2] {
    let subscription = match &import.streams {
        ImportedStreams::ByProperties { subscription, .. } => Some(subscription.as_str()),
        ImportedStreams::ByName(_) => None,
    };
    let expressions = [(subscription, "subscription"), (import.filter.as_deref(), "filter")];
    expressions.map(|(text, what)| (text.filter(|text| !text.is_empty()), what))
}

/// An Import as written, its expressions parsed.
#[derive(Clone)]
struct ParsedImport<'a> {
    import: &'a logical::Import,
    subscription: ParsedExpression,
    filter: ParsedExpression,
    name: names::Template,
    targets: Vec<(OperatorId, u32)>,
}

/// An Import in one channel, without its name.
struct EvaluatedImport<'i> {
    import: &'i logical::Import,
    intrinsics: Intrinsics,
    filter: Option<Cow<'i, str>>,
    subscription: Cow<'i, str>,
}

impl<'a> ParsedImport<'a> {
    fn of(
        shape: &Shape<'_>,
        id: OperatorId,
        import: &'a logical::Import,
        targets: Option<Vec<(OperatorId, u32)>>,
        reader: &mut ExpressionReader<'_>,
        problems: &mut Problems,
    ) -> Result<Option<Self>, Error> {
        let operator = &shape.application.operators[id];
        let [subscription, filter] = expressions(import);
        let subscription = reader.expression(operator, subscription, problems)?;
        let filter = reader.expression(operator, filter, problems)?;
        let (Some(subscription), Some(filter), Some(targets)) = (subscription, filter, targets) else {
            return Ok(None);
        };
        let name = names::operator(shape, id, 0);
        Ok(Some(Self { import, subscription, filter, name, targets }))
    }

    /// Folds its expressions in one channel, or says what is wrong with one.
    ///
    /// # Errors
    ///
    /// All foldings together take too much, or the budget ends.
    fn evaluate(
        &self,
        operator: &logical::Operator,
        channels: &[Channel],
        folding: &mut FoldingBudget<'_>,
    ) -> Result<Result<EvaluatedImport<'_>, Problem>, Error> {
        let intrinsics = intrinsics(channels);
        let filter = match self.import.filter.as_ref().map(|_| self.filter.fold(&intrinsics, folding)).transpose()? {
            Some(Err(error)) => return Ok(Err(bad_expression(operator, "filter", &error))),
            Some(Ok(filter)) => Some(filter),
            None => None,
        };
        let subscription = match self.subscription.fold(&intrinsics, folding)? {
            Err(error) => return Ok(Err(bad_expression(operator, "subscription", &error))),
            Ok(subscription) => subscription,
        };
        Ok(Ok(EvaluatedImport { import: self.import, intrinsics, filter, subscription }))
    }
}

impl EvaluatedImport<'_> {
    /// Number of imports by name, at least 1.
    fn name_count(&self) -> u32 {
        match &self.import.streams {
            ImportedStreams::ByName(names) => u32::try_from(names.len()).unwrap_or(u32::MAX).max(1),
            ImportedStreams::ByProperties { .. } => 1,
        }
    }

    /// Bytes that a port takes for it, at least.
    fn bytes(&self, operator_name: &str) -> usize {
        let imports = match &self.import.streams {
            ImportedStreams::ByName(names) => {
                let size = |name: &logical::NameImport| {
                    let texts =
                        [operator_name, &name.application_name, scope(&name.application_scope), &name.stream_name];
                    size_of::<EvaluatedNameImport>() + texts.map(str::len).iter().sum::<usize>()
                };
                names.iter().map(size).sum()
            }
            ImportedStreams::ByProperties { application_scope, .. } => {
                operator_name.len() + scope(application_scope).len() + self.subscription.len()
            }
        };
        size_of::<EvaluatedImports>() + imports + self.filter.as_ref().map_or(0, |filter| filter.len())
    }

    /// Imports by name accumulate, the last one by properties wins, and so does the last filter; an Import without
    /// filter clears none (rule expansion-26).
    fn add_to(&self, imports: &mut EvaluatedImports, operator_name: &str) {
        match &self.import.streams {
            ImportedStreams::ByName(names) => imports.by_name.extend(names.iter().map(|name| EvaluatedNameImport {
                operator_name: operator_name.to_owned(),
                application_name: name.application_name.clone(),
                application_scope: scope(&name.application_scope).to_owned(),
                stream_name: substitute_intrinsics(&name.stream_name, &self.intrinsics).into_owned(),
            })),
            ImportedStreams::ByProperties { application_scope, index, .. } => {
                imports.by_properties = Some(EvaluatedPropertyImport {
                    operator_name: operator_name.to_owned(),
                    application_scope: scope(application_scope).to_owned(),
                    subscription: self.subscription.clone().into_owned(),
                    index: *index,
                });
            }
        }
        if let Some(filter) = &self.filter {
            imports.filter = Some(filter.clone().into_owned());
        }
    }
}

/// The scope that an import asks for.
fn scope(written: &Option<String>) -> &str {
    written.as_deref().unwrap_or(DEFAULT_SCOPE)
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
    let operator_name = names::operator(shape, id, 0).fill(&channels);
    let properties = || export.properties.iter().flatten();
    let written =
        properties().flat_map(|property| [&property.name, &property.r#type].into_iter().chain(&property.values));
    let written = written.chain([&operator_name]).chain(&export.stream_name);
    texts.charge(written.map(|text| text.len() + TextBudget::PER_TEXT).sum())?;
    let intrinsics = intrinsics(&channels);
    let text = |text: &String| substitute_intrinsics(text, &intrinsics).into_owned();
    let evaluated = |property: &logical::Property| logical::Property {
        name: property.name.clone(),
        r#type: property.r#type.clone(),
        values: property.values.iter().map(&text).collect(),
    };
    Ok(Some(EvaluatedExport {
        operator_name,
        name: export.stream_name.as_ref().map(&text),
        allow_filter: export.allow_filter,
        drop_connection: export.drop_connection,
        properties: export.properties.as_ref().map(|_| properties().map(evaluated).collect()),
    }))
}

fn intrinsics(channels: &[Channel]) -> Intrinsics {
    let innermost: SmallVec<[_; 1]> = channels.first().map(region_channel).into_iter().collect();
    Intrinsics::of(&innermost)
}
