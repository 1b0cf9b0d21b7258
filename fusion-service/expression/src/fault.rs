//! What can be wrong with an operation on values.

/// Why an operation has no result.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Fault {
    #[error("integer division by zero")]
    DivisionByZero,
    #[error("an integer of more than 1024 bits")]
    TooLarge,
    #[error("{operator} cannot be applied to {left} and {right}")]
    Operands { operator: &'static str, left: String, right: String },
    #[error("{operator} cannot be applied to {operand}")]
    Operand { operator: &'static str, operand: String },
    #[error("{value} cannot be converted to {target}")]
    Conversion { value: String, target: &'static str },
    #[error("index {index} is outside the list")]
    OutOfRange { index: String },
    #[error("the expression costs too much to evaluate")]
    TooExpensive,
}
