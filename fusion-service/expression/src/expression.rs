//! The tree of an expression, and its canonical text.
//!
//! Nodes stand in an arena in postfix order: the operands of a node are the trees right before it, the last node is the
//! root. So evaluating and folding are loops from the front, and nothing recurses.

use crate::operation::{Binary, Prefix};
use crate::substitution::Intrinsic;
use crate::value::{ScalarType, Value};
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

/// The place of a node in the arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NodeId(u32);

impl NodeId {
    /// The place of the node before the `count`-th; counts stay below the 32-bit length of an expression.
    pub(crate) fn before(count: usize) -> Self {
        Self(count.saturating_sub(1) as u32)
    }

    pub(crate) fn index(self) -> usize {
        self.0 as usize
    }
}

/// A node of the tree.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Kind {
    /// A name: a property or an attribute; `true` and `false` when evaluated. The text is in the source.
    Word(Range<u32>),
    Intrinsic(Intrinsic),
    Literal(Value),
    Group(NodeId),
    Hash(NodeId),
    Subscript {
        list: NodeId,
        index: NodeId,
    },
    Prefix {
        operator: Prefix,
        operand: NodeId,
    },
    Cast {
        target: ScalarType,
        operand: NodeId,
    },
    Binary {
        operator: Binary,
        left: NodeId,
        right: NodeId,
    },
}

impl Kind {
    /// Its operands, in their order.
    pub(crate) fn operands(&self) -> [Option<NodeId>; 2] {
        match self {
            Self::Word(_) | Self::Intrinsic(_) | Self::Literal(_) => [None, None],
            Self::Group(operand) | Self::Hash(operand) => [Some(*operand), None],
            Self::Prefix { operand, .. } | Self::Cast { operand, .. } => [Some(*operand), None],
            Self::Subscript { list: left, index: right } | Self::Binary { left, right, .. } => {
                [Some(*left), Some(*right)]
            }
        }
    }

    /// Whether it is a channel function.
    pub(crate) fn is_intrinsic(&self) -> bool {
        matches!(self, Self::Intrinsic(_))
    }

    /// The same with other operands.
    pub(crate) fn with_operands(&self, other: impl Fn(NodeId) -> NodeId) -> Self {
        match self {
            Self::Word(_) | Self::Intrinsic(_) | Self::Literal(_) => self.clone(),
            Self::Group(inner) => Self::Group(other(*inner)),
            Self::Hash(inner) => Self::Hash(other(*inner)),
            Self::Subscript { list, index } => Self::Subscript { list: other(*list), index: other(*index) },
            Self::Prefix { operator, operand } => Self::Prefix { operator: *operator, operand: other(*operand) },
            Self::Cast { target, operand } => Self::Cast { target: *target, operand: other(*operand) },
            Self::Binary { operator, left, right } => {
                Self::Binary { operator: *operator, left: other(*left), right: other(*right) }
            }
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Node {
    pub(crate) kind: Kind,
    /// Octets before the token of the node in the source.
    pub(crate) offset: u32,
}

/// An expression. `Display` prints it canonically: one blank around binary operators, texts in double quotes, floats as
/// Java writes them (rule expression-9). What is printed parses, as a filter if it was read as one, and prints the same
/// again. Two are equal if they are written alike, blanks included.
#[derive(Clone, Debug, PartialEq)]
pub struct Expression {
    pub(crate) source: Arc<str>,
    pub(crate) nodes: Vec<Node>,
}

impl Expression {
    /// Its text, as it was read.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.source
    }

    /// Bytes of memory that it takes, texts and large numbers in it aside: some 40 for each operand and operator.
    #[must_use]
    pub fn memory(&self) -> usize {
        size_of::<Self>() + self.source.len() + self.nodes.capacity() * size_of::<Node>()
    }

    /// Whether it calls a channel function, so that it may fold to something else in each channel.
    #[must_use]
    pub fn varies(&self) -> bool {
        self.nodes.iter().any(|node| node.kind.is_intrinsic())
    }

    /// The text of a word of this expression.
    pub(crate) fn word(&self, range: &Range<u32>) -> &str {
        self.source.get(range.start as usize..range.end as usize).unwrap_or_default()
    }
}

/// What is left to print, last first.
enum Pending {
    Node(NodeId),
    Text(&'static str),
}

impl fmt::Display for Expression {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut pending = vec![Pending::Node(NodeId::before(self.nodes.len()))];
        while let Some(next) = pending.pop() {
            let node = match next {
                Pending::Text(text) => {
                    formatter.write_str(text)?;
                    continue;
                }
                Pending::Node(id) => &self.nodes[id.index()].kind,
            };
            match node {
                Kind::Word(range) => formatter.write_str(self.word(range))?,
                Kind::Intrinsic(intrinsic) => formatter.write_str(intrinsic.call())?,
                Kind::Literal(value) => value.fmt(formatter)?,
                Kind::Group(inner) => {
                    formatter.write_str("(")?;
                    pending.extend([Pending::Text(")"), Pending::Node(*inner)]);
                }
                Kind::Hash(inner) => {
                    formatter.write_str("hash(")?;
                    pending.extend([Pending::Text(")"), Pending::Node(*inner)]);
                }
                Kind::Subscript { list, index } => {
                    pending.extend([
                        Pending::Text("]"),
                        Pending::Node(*index),
                        Pending::Text("["),
                        Pending::Node(*list),
                    ]);
                }
                Kind::Prefix { operator, operand } => {
                    formatter.write_str(operator.symbol())?;
                    pending.push(Pending::Node(*operand));
                }
                Kind::Cast { target, operand } => {
                    write!(formatter, "({})", target.word())?;
                    pending.push(Pending::Node(*operand));
                }
                Kind::Binary { operator, left, right } => {
                    pending.extend([
                        Pending::Node(*right),
                        Pending::Text(" "),
                        Pending::Text(operator.symbol()),
                        Pending::Text(" "),
                        Pending::Node(*left),
                    ]);
                }
            }
        }
        Ok(())
    }
}
