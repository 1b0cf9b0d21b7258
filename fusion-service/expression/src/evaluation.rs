//! The value of an expression for given properties: three-valued, with errors (rule expression-8).
//!
//! All properties are put in at once, so the result does not depend on an order. `&&` is false as soon as one side is,
//! `||` true as soon as one side is, whatever the other side; otherwise an error wins over what is unknown. An
//! evaluation that would cost too much ends, whatever has been found out by then (rule expression-3).

use crate::Error;
use crate::expression::{Expression, Kind, Node};
use crate::fault::Fault;
use crate::operation::{self, Binary};
use crate::value::{Properties, Value};

/// What an expression evaluates to.
#[derive(Clone, Debug, PartialEq)]
pub enum Evaluation {
    /// A value.
    Value(Value),
    /// It depends on a name that is not known.
    Unknown,
    /// An operator was applied to operands it does not take, and the rest does not decide.
    Error(Error),
}

/// Whether an export is selected, and what it has cost to find that out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Selection {
    /// Whether it is.
    pub selected: Selected,
    /// Steps of the evaluation (rule expression-3).
    pub steps: usize,
}

/// Whether an export is selected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Selected {
    /// The expression is the boolean `true`.
    Yes,
    /// It is something else, or has no value.
    No,
    /// It costs too much to evaluate for these properties, and selects nothing.
    TooCostly,
}

impl Expression {
    /// Evaluates the expression. The words `true` and `false` are booleans; other words are properties.
    #[must_use]
    pub fn evaluate(&self, properties: &Properties) -> Evaluation {
        self.evaluate_with(properties, &mut Meter::of(properties))
    }

    fn evaluate_with(&self, properties: &Properties, meter: &mut Meter) -> Evaluation {
        let mut results: Vec<Evaluation> = Vec::new();
        for node in &self.nodes {
            if let Err(fault) = meter.charge(NODE_STEPS) {
                return placed(Err(fault), node);
            }
            let result = match &node.kind {
                Kind::Word(range) => match self.word(range) {
                    "true" => Evaluation::Value(Value::Boolean(true)),
                    "false" => Evaluation::Value(Value::Boolean(false)),
                    name => properties.get(name).cloned().map_or(Evaluation::Unknown, Evaluation::Value),
                },
                Kind::Intrinsic(_) => Evaluation::Unknown,
                Kind::Literal(value) => Evaluation::Value(value.clone()),
                Kind::Subscript { .. } | Kind::Binary { .. } => {
                    let right = results.pop().unwrap_or(Evaluation::Unknown);
                    let left = results.pop().unwrap_or(Evaluation::Unknown);
                    combine(node, left, right, meter)
                }
                Kind::Group(_) | Kind::Hash(_) | Kind::Prefix { .. } | Kind::Cast { .. } => {
                    convert(node, results.pop().unwrap_or(Evaluation::Unknown), meter)
                }
            };
            if meter.is_exhausted() {
                return placed(Err(Fault::TooExpensive), node);
            }
            results.push(result);
        }
        results.pop().unwrap_or(Evaluation::Unknown)
    }

    /// Whether an export with these properties is selected: the expression evaluates to the boolean `true`.
    #[must_use]
    pub fn matches(&self, properties: &Properties) -> bool {
        self.select(properties).selected == Selected::Yes
    }

    /// Whether an export with these properties is selected, and what it has cost to find that out. Both depend on
    /// nothing but the expression and the properties.
    #[must_use]
    pub fn select(&self, properties: &Properties) -> Selection {
        let mut meter = Meter::of(properties);
        let value = self.evaluate_with(properties, &mut meter);
        let selected = match value {
            _ if meter.is_exhausted() => Selected::TooCostly,
            Evaluation::Value(Value::Boolean(true)) => Selected::Yes,
            _ => Selected::No,
        };
        Selection { selected, steps: meter.spent }
    }
}

/// Steps that every evaluation may take. A step takes about a nanosecond, so that ten thousand exports can be tried
/// with one subscription in a few seconds even if each takes all that it may; this is enough for more than a thousand
/// comparisons.
const EVALUATION_STEPS: usize = 256 << 10;
/// How often an evaluation may look at all properties, besides: a list of a megabyte can be searched.
const LOOKS: usize = 4;
/// Steps for an operand or an operator, whatever it does; looking at an octet or an element is one.
pub(crate) const NODE_STEPS: usize = 32;
/// No evaluation comes to the end of more operands and operators than these, but for properties that are large.
pub(crate) const MOST_NODES: usize = EVALUATION_STEPS / NODE_STEPS;
/// Steps of one folding: a fraction of a second. Whoever compiles pays for it, and nobody waits with a lock.
const FOLDING_STEPS: usize = 64 << 20;

/// What may still be spent, in steps.
pub(crate) struct Meter {
    spent: usize,
    /// Nothing may be spent any more once it has been wanted to spend more than this.
    most: usize,
}

impl Meter {
    /// That of an evaluation for these properties.
    fn of(properties: &Properties) -> Self {
        Self { spent: 0, most: EVALUATION_STEPS.saturating_add(properties.size().saturating_mul(LOOKS)) }
    }

    /// That of a folding of which some parts have been folded before, with so many steps.
    pub(crate) fn of_folding(spent: usize) -> Self {
        Self { spent, most: FOLDING_STEPS }
    }

    /// What has been spent so far.
    pub(crate) fn spent(&self) -> usize {
        self.spent
    }

    /// Whether more was wanted than may be spent.
    pub(crate) fn is_exhausted(&self) -> bool {
        self.spent > self.most
    }

    fn charge(&mut self, steps: usize) -> Result<(), Fault> {
        self.spent = self.spent.saturating_add(steps);
        if self.is_exhausted() { Err(Fault::TooExpensive) } else { Ok(()) }
    }

    /// Pays for looking at these values; once nothing is left, not even their size is taken.
    fn charge_for(&mut self, values: &[&Value]) -> Result<(), Fault> {
        if self.is_exhausted() {
            return Err(Fault::TooExpensive);
        }
        self.charge(values.iter().map(|value| value.size()).sum())
    }
}

fn placed(result: Result<Value, Fault>, node: &Node) -> Evaluation {
    match result {
        Ok(value) => Evaluation::Value(value),
        Err(fault) => Evaluation::Error(Error { message: fault.to_string(), offset: node.offset as usize }),
    }
}

/// The result of a node with one operand.
pub(crate) fn convert(node: &Node, operand: Evaluation, meter: &mut Meter) -> Evaluation {
    let value = match operand {
        Evaluation::Value(value) => value,
        undecided => return undecided,
    };
    if matches!(node.kind, Kind::Group(_)) {
        return Evaluation::Value(value);
    }
    let result = meter.charge_for(&[&value]).and_then(|()| match &node.kind {
        Kind::Hash(_) => Ok(Value::Int64(value.java_hash().into())),
        Kind::Prefix { operator, .. } => operator.apply(&value),
        Kind::Cast { target, .. } => operation::cast(*target, &value),
        _ => Ok(value),
    });
    placed(result, node)
}

/// The result of a node with two operands.
pub(crate) fn combine(node: &Node, left: Evaluation, right: Evaluation, meter: &mut Meter) -> Evaluation {
    if let Kind::Binary { operator: operator @ (Binary::And | Binary::Or), .. } = node.kind {
        return decide(operator, node, left, right);
    }
    let (left, right) = match (left, right) {
        (Evaluation::Value(left), Evaluation::Value(right)) => (left, right),
        (error @ Evaluation::Error(_), _) | (_, error @ Evaluation::Error(_)) => return error,
        _ => return Evaluation::Unknown,
    };
    let result = match &node.kind {
        // Whatever the size of the list, one element is copied.
        Kind::Subscript { .. } => meter.charge_for(&[&right]).and_then(|()| operation::subscript(&left, &right)),
        Kind::Binary { operator, .. } => {
            meter.charge_for(&[&left, &right]).and_then(|()| operator.apply(&left, &right))
        }
        _ => Ok(left),
    };
    placed(result, node)
}

/// `&&` and `||`: one decisive side is enough.
fn decide(operator: Binary, node: &Node, left: Evaluation, right: Evaluation) -> Evaluation {
    let decisive = operator == Binary::Or;
    let boolean = |side: Evaluation| match side {
        Evaluation::Value(Value::Boolean(value)) => Evaluation::Value(Value::Boolean(value)),
        Evaluation::Value(other) => {
            let fault = Fault::Operand { operator: operator.symbol(), operand: other.property_type().to_string() };
            placed(Err(fault), node)
        }
        undecided => undecided,
    };
    let decision = Evaluation::Value(Value::Boolean(decisive));
    match (boolean(left), boolean(right)) {
        (left, right) if left == decision || right == decision => decision,
        (error @ Evaluation::Error(_), _) | (_, error @ Evaluation::Error(_)) => error,
        (Evaluation::Unknown, _) | (_, Evaluation::Unknown) => Evaluation::Unknown,
        _ => Evaluation::Value(Value::Boolean(!decisive)),
    }
}
