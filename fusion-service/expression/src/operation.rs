//! What operators do to values (rule expression-6), and how tightly they bind (rule expression-2).
//!
//! An int64 beside a float64 is promoted in its place; the operands keep their sides. Nothing here knows about the text
//! of an expression, or about unknown operands.

use crate::fault::Fault;
use crate::integer::Integer;
use crate::java::java_double;
use crate::value::{List, ScalarType, Value, parse_float};
use std::cmp::Ordering;

/// Binary operators.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Binary {
    Or,
    And,
    BitOr,
    BitXor,
    BitAnd,
    In,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    Equal,
    NotEqual,
    ShiftLeft,
    ShiftRight,
    Add,
    Subtract,
    Multiply,
    Divide,
    Remainder,
}

/// How tightly a binary operator binds, loosest first (rule expression-2: `&`, `^` and `|` bind looser than
/// comparisons).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Precedence {
    Or,
    And,
    BitOr,
    BitXor,
    BitAnd,
    In,
    Relational,
    Shift,
    Additive,
    Multiplicative,
}

impl Precedence {
    /// Whether operators of this class can follow each other: `a + b + c`, but not `a < b < c`.
    pub(crate) fn chains(self) -> bool {
        !matches!(self, Self::In | Self::Relational)
    }
}

impl Binary {
    pub(crate) fn precedence(self) -> Precedence {
        match self {
            Self::Or => Precedence::Or,
            Self::And => Precedence::And,
            Self::BitOr => Precedence::BitOr,
            Self::BitXor => Precedence::BitXor,
            Self::BitAnd => Precedence::BitAnd,
            Self::In => Precedence::In,
            Self::Less | Self::LessOrEqual | Self::Greater | Self::GreaterOrEqual | Self::Equal | Self::NotEqual => {
                Precedence::Relational
            }
            Self::ShiftLeft | Self::ShiftRight => Precedence::Shift,
            Self::Add | Self::Subtract => Precedence::Additive,
            Self::Multiply | Self::Divide | Self::Remainder => Precedence::Multiplicative,
        }
    }

    pub(crate) fn symbol(self) -> &'static str {
        match self {
            Self::Or => "||",
            Self::And => "&&",
            Self::BitOr => "|",
            Self::BitXor => "^",
            Self::BitAnd => "&",
            Self::In => "in",
            Self::Less => "<",
            Self::LessOrEqual => "<=",
            Self::Greater => ">",
            Self::GreaterOrEqual => ">=",
            Self::Equal => "==",
            Self::NotEqual => "!=",
            Self::ShiftLeft => "<<",
            Self::ShiftRight => ">>",
            Self::Add => "+",
            Self::Subtract => "-",
            Self::Multiply => "*",
            Self::Divide => "/",
            Self::Remainder => "%",
        }
    }

    /// The result for two values. `&&` and `||` are here for their types only: they do not need both operands.
    pub(crate) fn apply(self, left: &Value, right: &Value) -> Result<Value, Fault> {
        match (left, right) {
            (Value::Boolean(left), Value::Boolean(right)) => self.booleans(*left, *right),
            (Value::Int64(left), Value::Int64(right)) => self.integers(left, right)?,
            (Value::Float64(left), Value::Float64(right)) => self.floats(*left, *right),
            (Value::Int64(left), Value::Float64(right)) => self.floats(left.to_float(), *right),
            (Value::Float64(left), Value::Int64(right)) => self.floats(*left, right.to_float()),
            (Value::Rstring(left), Value::Rstring(right)) if self == Self::Add => {
                Some(Value::Rstring(format!("{left}{right}").into()))
            }
            (Value::Rstring(left), Value::Rstring(right)) => {
                self.relation(compare_texts(left, right)).map(Value::Boolean)
            }
            (element, Value::List(list)) if self == Self::In => contains(list, element).map(Value::Boolean),
            (Value::List(left), Value::List(right)) => self.lists(left, right),
            _ => None,
        }
        .ok_or_else(|| Fault::Operands {
            operator: self.symbol(),
            left: left.property_type().to_string(),
            right: right.property_type().to_string(),
        })
    }

    fn booleans(self, left: bool, right: bool) -> Option<Value> {
        Some(Value::Boolean(match self {
            Self::And => left && right,
            Self::Or => left || right,
            Self::Equal => left == right,
            Self::NotEqual => left != right,
            _ => return None,
        }))
    }

    fn integers(self, left: &Integer, right: &Integer) -> Result<Option<Value>, Fault> {
        let result = match self {
            Self::Add => left.add(right),
            Self::Subtract => left.subtract(right),
            Self::Multiply => left.multiply(right),
            Self::Divide => left.divide(right),
            Self::Remainder => left.remainder(right),
            Self::ShiftLeft => left.shift_left(right),
            Self::ShiftRight => left.shift_right(right),
            Self::BitAnd => left.and(right),
            Self::BitOr => left.or(right),
            Self::BitXor => left.exclusive_or(right),
            _ => return Ok(self.relation(Some(left.cmp(right))).map(Value::Boolean)),
        };
        result.map(Value::Int64).map(Some)
    }

    fn floats(self, left: f64, right: f64) -> Option<Value> {
        Some(Value::Float64(match self {
            Self::Add => left + right,
            Self::Subtract => left - right,
            Self::Multiply => left * right,
            Self::Divide => left / right,
            Self::Remainder => left % right,
            _ => return self.relation(left.partial_cmp(&right)).map(Value::Boolean),
        }))
    }

    fn lists(self, left: &List, right: &List) -> Option<Value> {
        let equal = match (left, right) {
            (List::Boolean(left), List::Boolean(right)) => left == right,
            (List::Int64(left), List::Int64(right)) => left == right,
            (List::Float64(left), List::Float64(right)) => left == right,
            (List::Rstring(left), List::Rstring(right)) => left == right,
            _ => return None,
        };
        match self {
            Self::Equal => Some(Value::Boolean(equal)),
            Self::NotEqual => Some(Value::Boolean(!equal)),
            _ => None,
        }
    }

    /// What a relational operator says about an order; NaN has none.
    fn relation(self, order: impl Into<Option<Ordering>>) -> Option<bool> {
        let order = order.into();
        Some(match self {
            Self::Less => order == Some(Ordering::Less),
            Self::LessOrEqual => matches!(order, Some(Ordering::Less | Ordering::Equal)),
            Self::Greater => order == Some(Ordering::Greater),
            Self::GreaterOrEqual => matches!(order, Some(Ordering::Greater | Ordering::Equal)),
            Self::Equal => order == Some(Ordering::Equal),
            Self::NotEqual => order != Some(Ordering::Equal),
            _ => return None,
        })
    }
}

/// Texts are ordered by UTF-16 code units.
fn compare_texts(left: &str, right: &str) -> Ordering {
    left.encode_utf16().cmp(right.encode_utf16())
}

/// Whether an element is in a list; nothing if its type is not that of the elements. Integers are promoted.
fn contains(list: &List, element: &Value) -> Option<bool> {
    Some(match (list, element) {
        (List::Boolean(elements), Value::Boolean(element)) => elements.contains(element),
        (List::Int64(elements), Value::Int64(element)) => elements.contains(element),
        (List::Float64(elements), Value::Float64(element)) => elements.contains(element),
        (List::Float64(elements), Value::Int64(element)) => elements.contains(&element.to_float()),
        (List::Rstring(elements), Value::Rstring(element)) => elements.contains(element),
        _ => return None,
    })
}

/// Prefix operators.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Prefix {
    Not,
    Complement,
}

impl Prefix {
    pub(crate) fn symbol(self) -> &'static str {
        match self {
            Self::Not => "!",
            Self::Complement => "~",
        }
    }

    pub(crate) fn apply(self, operand: &Value) -> Result<Value, Fault> {
        match (self, operand) {
            (Self::Not, Value::Boolean(value)) => Ok(Value::Boolean(!value)),
            (Self::Not, Value::Rstring(text)) => Ok(Value::Boolean(!is_true(text))),
            (Self::Complement, Value::Int64(value)) => value.complement().map(Value::Int64),
            _ => Err(Fault::Operand { operator: self.symbol(), operand: operand.property_type().to_string() }),
        }
    }
}

fn is_true(text: &str) -> bool {
    text.eq_ignore_ascii_case("true")
}

/// Converts a value: `(int64)x` (rule expression-7).
pub(crate) fn cast(target: ScalarType, value: &Value) -> Result<Value, Fault> {
    let converted = match (target, value) {
        (ScalarType::Boolean, Value::Boolean(_))
        | (ScalarType::Int64, Value::Int64(_))
        | (ScalarType::Float64, Value::Float64(_))
        | (ScalarType::Rstring, Value::Rstring(_)) => Some(value.clone()),
        (ScalarType::Float64, Value::Int64(integer)) => Some(Value::Float64(integer.to_float())),
        (ScalarType::Int64, Value::Float64(float)) => Integer::truncated(*float).map(Value::Int64),
        (ScalarType::Boolean, Value::Rstring(text)) => Some(Value::Boolean(is_true(text))),
        (ScalarType::Int64, Value::Rstring(text)) => Integer::parse(text).map(Value::Int64),
        (ScalarType::Float64, Value::Rstring(text)) => parse_float(text.trim()).map(Value::Float64),
        (ScalarType::Rstring, Value::Float64(float)) => Some(Value::Rstring(java_double(*float).into())),
        (ScalarType::Rstring, _) => Some(Value::Rstring(value.to_string().into())),
        _ => None,
    };
    converted.ok_or_else(|| Fault::Conversion { value: value.property_type().to_string(), target: target.word() })
}

/// `list[index]`, counted from 0.
pub(crate) fn subscript(list: &Value, index: &Value) -> Result<Value, Fault> {
    match (list, index) {
        (Value::List(list), Value::Int64(index)) => index
            .to_index()
            .and_then(|position| list.get(position))
            .ok_or_else(|| Fault::OutOfRange { index: crate::value::beginning_of(&index.to_string()) }),
        _ => Err(Fault::Operands {
            operator: "[ ]",
            left: list.property_type().to_string(),
            right: index.property_type().to_string(),
        }),
    }
}
