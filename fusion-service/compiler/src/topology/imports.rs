//! Imports and exports of each channel (rules expansion-26 and expansion-27).
//!
//! An Import is no node of the topology: its subscription goes to every input port that it reaches. An Export is none
//! either: its properties go to the output port that feeds it. Channel functions in names and property values are
//! replaced as text. Subscriptions and filters are expressions: channel functions become numbers in them, and constants
//! are folded. Each text is read once, however many Imports have it. An expression without channel functions is the
//! same in all channels, so it is folded once, and its tree is dropped: a tree takes forty times as much as its text.
//! Of the others the parts without channel functions are folded once. What all foldings take is counted, and bounded.
//!
//! Invariant: a text is charged for before it is made, but for what one expression is folded to, or its tree, which is
//! charged for before the next one is read. Replacing a channel function makes no text longer: no channel has more
//! digits than the shortest of them has letters.
//!
//! Knows: expressions, channels. Must not know: which exports there are, who matches them.

use super::copies::Copies;
use super::links::{End, Links};
use super::locations::region_channel;
use super::order::Order;
use super::shape::Shape;
use super::texts::TextBudget;
use super::{Channel, EvaluatedExport, EvaluatedImports, EvaluatedNameImport, EvaluatedPropertyImport, Node, names};
use crate::budget::{Budget, Pace};
use crate::error::{Error, Problem, Problems, Stage, code, excerpt};
use crate::logical;
use crate::logical::{ImportedStreams, OperatorId, OperatorKind};
use cranelift_entity::SecondaryMap;
use smallvec::SmallVec;
use spl_expression::{Expression, Folded, Intrinsics, Limits, Prepared, substitute_intrinsics};
use std::borrow::Cow;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::rc::Rc;

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
    let mut known: HashMap<TextPlace, Option<spl_expression::Error>> = HashMap::new();
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
    let mut pace = budget.pace();
    let folding = FoldingBudget::new(budget);
    let mut reader = ExpressionReader { texts, pace: budget.pace(), folding, known: HashMap::new() };
    for (id, operator) in shape.application.operators.iter() {
        let OperatorKind::Import(import) = &operator.kind else { continue };
        pace.steps(16)?;
        written[id] = ParsedImport::of(shape, id, import, links, &mut reader, budget, problems)?;
        let channels = 0..shape.scopes[shape.scope_of[id]].channels;
        for channel in channels {
            walk.push((order.walk_position(shape, id, channel, &mut pace)?, id, channel));
        }
    }
    let ExpressionReader { mut folding, .. } = reader;
    walk.sort_unstable();
    let mut imported: std::collections::BTreeMap<(Node, u32), EvaluatedImports> = std::collections::BTreeMap::new();
    let mut failed: SecondaryMap<OperatorId, bool> = SecondaryMap::new();
    for (_, id, channel) in walk {
        pace.step()?;
        let Some(import) = written[id].as_ref().filter(|_| !failed[id]) else { continue };
        // Also of an Import that is connected to nothing: its expressions may have problems in some channel.
        let channels = shape.channels_of(id, channel);
        let evaluated = match import.evaluate(&shape.application.operators[id], &channels, &mut folding)? {
            Ok(evaluated) => evaluated,
            Err(problem) => {
                problems.push(problem);
                // Other channels would only report the same problem.
                failed[id] = true;
                continue;
            }
        };
        if import.targets.is_empty() {
            continue;
        }
        let operator_name = import.name.fill(&channels);
        let bytes = evaluated.bytes(&operator_name);
        for (target, port) in &import.targets {
            pace.steps(evaluated.name_count())?;
            texts.charge(bytes)?;
            if let Some(target) = copies.node(*target, channel) {
                evaluated.add_to(imported.entry((target, *port)).or_default(), &operator_name);
            }
        }
    }
    Ok(imported.into_iter().collect())
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

/// Where a text is: those of several Imports are at one place if they are the same one, as filters of the older dialect
/// often are.
type TextPlace = (usize, usize);

fn place(text: &str) -> TextPlace {
    (text.as_ptr().addr(), text.len())
}

/// Parses a text within the budget.
fn parse(text: &str, pace: &mut Pace<'_>) -> Result<Result<Expression, spl_expression::Error>, Error> {
    pace.steps(steps(text.len()))?;
    Ok(Expression::parse(text, &Limits::default()))
}

/// How long it takes to parse an expression of this length, or to fold one in so many steps, in steps of a [`Pace`].
fn steps(length: usize) -> u32 {
    u32::try_from(length).unwrap_or(u32::MAX)
}

/// The steps that the foldings of a topology may still take (rule expansion-33). One expression of some kilobytes may
/// take as many as one folding may, in each of very many channels, and come to few bytes: no limit of texts sees that.
struct FoldingBudget<'b> {
    pace: Pace<'b>,
    left: u64,
    most: u64,
}

impl<'b> FoldingBudget<'b> {
    fn new(budget: &'b Budget) -> Self {
        let most = budget.limits.folding_steps();
        Self { pace: budget.pace(), left: most, most }
    }

    /// Counts the steps of one folding.
    fn spend(&mut self, taken: usize) -> Result<(), Error> {
        self.pace.steps(steps(taken))?;
        match self.left.checked_sub(taken as u64) {
            Some(left) => {
                self.left = left;
                Ok(())
            }
            None => {
                let message = format!("folding the expressions of all imports takes more than {} steps", self.most);
                Err(Problem::new(Stage::Topology, message).into())
            }
        }
    }
}

/// Reads the texts of expressions, each once.
struct ExpressionReader<'t, 'b> {
    texts: &'t mut TextBudget,
    pace: Pace<'b>,
    folding: FoldingBudget<'b>,
    known: HashMap<TextPlace, Rc<ReadExpression>>,
}

/// What has been made of a text.
enum ReadExpression {
    /// It is no expression.
    Malformed(spl_expression::Error),
    /// What it is folded to in all channels.
    Same(Result<Box<str>, spl_expression::Error>),
    /// It may be something else in each channel.
    Varying(Prepared),
}

impl ExpressionReader<'_, '_> {
    fn read(&mut self, text: &str) -> Result<Rc<ReadExpression>, Error> {
        if let Some(known) = self.known.get(&place(text)) {
            return Ok(Rc::clone(known));
        }
        let read = match parse(text, &mut self.pace)? {
            Err(error) => ReadExpression::Malformed(error),
            Ok(expression) if expression.varies() => {
                self.texts.charge(expression.memory())?;
                let prepared = expression.prepare();
                self.folding.spend(prepared.steps())?;
                // What is known of folded parts may take more than is dropped of them.
                self.texts.charge(prepared.memory().saturating_sub(expression.memory()))?;
                ReadExpression::Varying(prepared)
            }
            Ok(expression) => {
                let Folded { result, steps } = expression.fold(&intrinsics(&[]));
                self.folding.spend(steps)?;
                let folded = result.map(|folded| folded.to_string().into_boxed_str());
                self.texts.charge(TextBudget::PER_TEXT + folded.as_ref().map_or(0, |folded| folded.len()))?;
                ReadExpression::Same(folded)
            }
        };
        let read = Rc::new(read);
        self.known.insert(place(text), Rc::clone(&read));
        Ok(read)
    }

    /// An expression of an Import. Returns nothing if there is a problem.
    fn expression(
        &mut self,
        operator: &logical::Operator,
        (text, what): (Option<&str>, &str),
        problems: &mut Problems,
    ) -> Result<Option<ParsedExpression>, Error> {
        let read = text.map(|text| self.read(text)).transpose()?;
        if let Some(ReadExpression::Malformed(error)) = read.as_deref() {
            problems.push(bad_expression(operator, what, error));
            return Ok(None);
        }
        Ok(Some(ParsedExpression(read)))
    }
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

/// An expression of an Import, or none.
#[derive(Clone)]
struct ParsedExpression(Option<Rc<ReadExpression>>);

impl ParsedExpression {
    /// Its text with the channels put in, folded; or what is wrong with it.
    fn fold(&self, intrinsics: &Intrinsics, folding: &mut FoldingBudget<'_>) -> Result<FoldedText<'_>, Error> {
        Ok(match self.0.as_deref() {
            None => Ok(Cow::Borrowed("")),
            Some(ReadExpression::Malformed(error)) => Err(error.clone()),
            Some(ReadExpression::Same(folded)) => folded.as_deref().map(Cow::Borrowed).map_err(Clone::clone),
            Some(ReadExpression::Varying(expression)) => {
                let Folded { result, steps } = expression.fold(intrinsics);
                folding.spend(steps)?;
                result.map(|folded| Cow::Owned(folded.to_string()))
            }
        })
    }
}

/// What an expression is folded to in one channel.
type FoldedText<'e> = Result<Cow<'e, str>, spl_expression::Error>;

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
        links: &mut Links<'_, '_>,
        reader: &mut ExpressionReader<'_, '_>,
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
        let [subscription, filter] = expressions(import);
        let subscription = reader.expression(operator, subscription, problems)?;
        let filter = reader.expression(operator, filter, problems)?;
        let (Some(subscription), Some(filter), true) = (subscription, filter, whole) else { return Ok(None) };
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

fn bad_expression(operator: &logical::Operator, what: &str, error: &spl_expression::Error) -> Problem {
    let message =
        format!("{}: its {what} is no expression: {}", excerpt(&operator.logical_name), excerpt(&error.to_string()));
    Problem::new(Stage::Topology, message).code(code::INCONSISTENT).at(operator.place)
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
