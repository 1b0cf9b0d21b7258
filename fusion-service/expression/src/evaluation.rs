//! The value of an expression for given properties: three-valued, with errors (rule expression-8).
//!
//! All properties are put in at once, so the result does not depend on an order. `&&` is false as soon as one side is,
//! `||` true as soon as one side is, whatever the other side; otherwise an error wins over what is unknown.

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

impl Expression {
    /// Evaluates the expression. The words `true` and `false` are booleans; other words are properties.
    #[must_use]
    pub fn evaluate(&self, properties: &Properties) -> Evaluation {
        let mut meter = Meter::default();
        let mut results: Vec<Evaluation> = Vec::new();
        for node in &self.nodes {
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
                    combine(node, left, right, &mut meter)
                }
                Kind::Group(_) | Kind::Hash(_) | Kind::Prefix { .. } | Kind::Cast { .. } => {
                    convert(node, results.pop().unwrap_or(Evaluation::Unknown), &mut meter)
                }
            };
            results.push(result);
        }
        results.pop().unwrap_or(Evaluation::Unknown)
    }

    /// Whether an export with these properties is selected: the expression evaluates to the boolean `true`.
    #[must_use]
    pub fn matches(&self, properties: &Properties) -> bool {
        self.evaluate(properties) == Evaluation::Value(Value::Boolean(true))
    }
}

/// What an evaluation may still cost, in octets and elements looked at.
pub(crate) struct Meter(usize);

impl Default for Meter {
    /// A fraction of a second of work.
    fn default() -> Self {
        Self(64 << 20)
    }
}

impl Meter {
    /// Pays for looking at these values; once nothing is left, not even their size is taken.
    fn charge(&mut self, values: &[&Value]) -> Result<(), Fault> {
        if self.0 == 0 {
            return Err(Fault::TooExpensive);
        }
        match self.0.checked_sub(values.iter().map(|value| value.size()).sum()) {
            Some(left) => {
                self.0 = left;
                Ok(())
            }
            None => {
                self.0 = 0;
                Err(Fault::TooExpensive)
            }
        }
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
    let result = meter.charge(&[&value]).and_then(|()| match &node.kind {
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
        Kind::Subscript { .. } => meter.charge(&[&right]).and_then(|()| operation::subscript(&left, &right)),
        Kind::Binary { operator, .. } => meter.charge(&[&left, &right]).and_then(|()| operator.apply(&left, &right)),
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
