//! Reads and folds the expressions of imports: subscriptions and filters (rule expansion-26).
//!
//! Each text is read once, however many Imports have it. What reading takes, and folding in all channels, is counted
//! and has bounds.
//!
//! Knows: expressions, what they cost. Must not know: channels, ports, who is fed by an import.

use super::texts::TextBudget;
use crate::budget::{Budget, Pace};
use crate::error::{Error, Problem, Problems, Stage, code, excerpt};
use crate::logical;
use get_size2::GetSize;
use spl_expression::{Expression, Folded, Intrinsics, Limits, Prepared};
use std::borrow::Cow;
use std::collections::HashMap;
use std::rc::Rc;

/// What something has cost.
#[derive(Clone, Copy, Debug, Default, GetSize)]
pub(super) struct Cost {
    /// Bytes of texts.
    pub(super) bytes: usize,
    /// Steps of folding.
    pub(super) steps: usize,
}

/// Where a text is: those of several Imports are at one place if they are the same one, as filters of the older dialect
/// often are.
pub(super) type TextPlace = (usize, usize);

pub(super) fn place(text: &str) -> TextPlace {
    (text.as_ptr().addr(), text.len())
}

/// Parses a text within the budget.
pub(super) fn parse(text: &str, pace: &mut Pace<'_>) -> Result<Result<Expression, spl_expression::Error>, Error> {
    pace.steps(steps(text.len()))?;
    Ok(Expression::parse(text, &Limits::default()))
}

/// How long it takes to parse an expression of this length or to print it, or to fold one in so many steps, in steps of
/// a [`Pace`].
fn steps(length: usize) -> u32 {
    u32::try_from(length).unwrap_or(u32::MAX)
}

/// The steps that the foldings of a topology may still take (rule expansion-33). One expression of some kilobytes may
/// take as many as one folding may, in each of very many channels, and come to few bytes: no limit of texts sees that.
pub(super) struct FoldingBudget<'b> {
    pace: Pace<'b>,
    left: u64,
    most: u64,
}

impl<'b> FoldingBudget<'b> {
    pub(super) fn new(budget: &'b Budget) -> Self {
        let most = budget.limits.folding_steps();
        Self { pace: budget.pace(), left: most, most }
    }

    /// Steps that were counted so far.
    pub(super) fn taken(&self) -> usize {
        usize::try_from(self.most - self.left).unwrap_or(usize::MAX)
    }

    /// Counts the steps of one folding, or the bytes of what comes of it.
    pub(super) fn spend(&mut self, taken: usize) -> Result<(), Error> {
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

/// Reads the texts of expressions, each once. What that costs is bounded as if there were nothing else.
pub(super) struct ExpressionReader<'b> {
    texts: TextBudget,
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

impl<'b> ExpressionReader<'b> {
    pub(super) fn new(budget: &'b Budget) -> Self {
        let (texts, folding) = (TextBudget::new(&budget.limits), FoldingBudget::new(budget));
        Self { texts, pace: budget.pace(), folding, known: HashMap::new() }
    }

    /// What reading has cost so far.
    pub(super) fn cost(&self) -> Cost {
        Cost { bytes: self.texts.charged(), steps: self.folding.taken() }
    }

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
                let Folded { result, steps } = expression.fold(&Intrinsics::OUTSIDE_REGIONS);
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
    pub(super) fn expression(
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

/// An expression of an Import, or none.
#[derive(Clone)]
pub(super) struct ParsedExpression(Option<Rc<ReadExpression>>);

impl ParsedExpression {
    /// Its text with the channels put in, folded; or what is wrong with it.
    pub(super) fn fold(
        &self,
        intrinsics: &Intrinsics,
        folding: &mut FoldingBudget<'_>,
    ) -> Result<FoldedText<'_>, Error> {
        Ok(match self.0.as_deref() {
            None => Ok(Cow::Borrowed("")),
            Some(ReadExpression::Malformed(error)) => Err(error.clone()),
            Some(ReadExpression::Same(folded)) => folded.as_deref().map(Cow::Borrowed).map_err(Clone::clone),
            Some(ReadExpression::Varying(expression)) => {
                let Folded { result, steps } = expression.fold(intrinsics);
                folding.spend(steps)?;
                let text = result.map(|folded| folded.to_string());
                // A long constant may be in it that folding only took over.
                folding.spend(text.as_ref().map_or(0, String::len))?;
                text.map(Cow::Owned)
            }
        })
    }
}

/// What an expression is folded to in one channel.
pub(super) type FoldedText<'e> = Result<Cow<'e, str>, spl_expression::Error>;

/// The problem of an Import whose expression is none.
pub(super) fn bad_expression(operator: &logical::Operator, what: &str, error: &spl_expression::Error) -> Problem {
    let message =
        format!("{}: its {what} is no expression: {}", excerpt(&operator.logical_name), excerpt(&error.to_string()));
    Problem::new(Stage::Topology, message).code(code::INCONSISTENT).at(operator.place)
}
