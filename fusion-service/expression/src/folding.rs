//! Putting in the channel numbers and folding what is constant (rule expression-10).
//!
//! A tree whose value is known and has a literal becomes that literal; parentheses around a literal go. `&&` and `||`
//! fold when one side decides, and keep a side that does not. `true` and `false` are words, not constants, until the
//! expression is evaluated: `false && a` stays.
//!
//! What a folding has cost is told with its result: whoever folds an expression for many channels has a bound on the
//! sum.
//!
//! Besides, integers at the end of a chain are combined where the result is the same for every integer before them:
//! `x - 1 + 10` becomes `x + 9`, but `x / 3 * 6` stays, because 3 need not divide x.

use crate::Error;
use crate::evaluation::{Evaluation, Meter, NODE_STEPS, combine, convert};
use crate::expression::{Expression, Kind, Node, NodeId};
use crate::integer::Integer;
use crate::operation::Binary;
use crate::substitution::Intrinsics;
use crate::value::Value;

/// What an expression was folded to, and what that has cost.
#[derive(Clone, Debug)]
pub struct Folded {
    /// The expression that is left, or what is wrong with a constant part.
    pub result: Result<Expression, Error>,
    /// Steps that it took: 32 for each operand and operator, and one for each octet and element of values that was
    /// looked at (rule expression-3). A step takes about a nanosecond.
    pub steps: usize,
}

impl Expression {
    /// Replaces the channel functions by numbers and folds constants, and says what that has cost.
    #[must_use]
    pub fn fold(&self, intrinsics: &Intrinsics) -> Folded {
        let mut folder = Folder::new(self.nodes.len(), Meter::of_folding(0));
        for node in &self.nodes {
            folder.add(node, intrinsics);
        }
        let steps = steps_of_nodes(self.nodes.len()).saturating_add(folder.meter.spent());
        Folded { result: folder.finished(self), steps }
    }

    /// Replaces the channel functions by numbers and folds constants.
    ///
    /// # Errors
    ///
    /// When a constant part of the expression has no value (`5 / 0`, `1 & 2.5`) and no other constant part decides
    /// (`1 == 2 && 5 / 0 == 1` is `false`).
    pub fn substitute_and_fold(&self, intrinsics: &Intrinsics) -> Result<Self, Error> {
        self.fold(intrinsics).result
    }
}

/// Steps for so many operands and operators, whatever they do.
pub(crate) fn steps_of_nodes(nodes: usize) -> usize {
    nodes.saturating_mul(NODE_STEPS)
}

/// A folded tree: it ends where the next one begins.
pub(crate) struct Tree {
    pub(crate) first: usize,
    /// Known also for some trees that stay, for want of a literal.
    pub(crate) value: Evaluation,
}

pub(crate) struct Folder {
    pub(crate) nodes: Vec<Node>,
    pub(crate) trees: Vec<Tree>,
    pub(crate) meter: Meter,
}

impl Folder {
    pub(crate) fn new(nodes: usize, meter: Meter) -> Self {
        Self { nodes: Vec::with_capacity(nodes), trees: Vec::new(), meter }
    }

    /// What is left of `whole` after all its nodes were added.
    pub(crate) fn finished(mut self, whole: &Expression) -> Result<Expression, Error> {
        match self.trees.pop() {
            Some(Tree { value: Evaluation::Error(error), .. }) => Err(error),
            _ => Ok(Expression { source: whole.source.clone(), nodes: self.nodes }),
        }
    }

    /// Adds a node whose operands were added before.
    pub(crate) fn add(&mut self, node: &Node, intrinsics: &Intrinsics) {
        match &node.kind {
            Kind::Word(_) => self.leaf(node.clone(), Evaluation::Unknown),
            Kind::Literal(value) => self.leaf(node.clone(), Evaluation::Value(value.clone())),
            Kind::Intrinsic(intrinsic) => {
                let value = Value::Int64(intrinsics.value(*intrinsic).into());
                self.leaf(Node { kind: Kind::Literal(value.clone()), offset: node.offset }, Evaluation::Value(value));
            }
            Kind::Group(_) => self.group(node.offset),
            Kind::Hash(_) | Kind::Prefix { .. } | Kind::Cast { .. } => self.one_operand(node),
            Kind::Subscript { .. } | Kind::Binary { .. } => self.two_operands(node),
        }
    }

    fn leaf(&mut self, node: Node, value: Evaluation) {
        self.trees.push(Tree { first: self.nodes.len(), value });
        self.nodes.push(node);
    }

    fn last(&self) -> NodeId {
        NodeId::before(self.nodes.len())
    }

    /// Ends parentheses. They go if the tree in them is a literal, which it is whenever its value has one. Nobody looks
    /// at the value for that: it may be a long text in many parentheses, whose steps do not count it (rule
    /// expression-3).
    fn group(&mut self, offset: u32) {
        let Some(inner) = self.trees.last() else { return };
        if let [Node { kind: Kind::Literal(_), offset: before }] = &mut self.nodes[inner.first..] {
            *before = offset;
            return;
        }
        let kind = Kind::Group(self.last());
        self.nodes.push(Node { kind, offset });
    }

    fn one_operand(&mut self, node: &Node) {
        let Some(operand) = self.trees.pop() else { return };
        let value = convert(node, operand.value, &mut self.meter);
        let id = self.last();
        let kind = match node.kind {
            Kind::Hash(_) => Kind::Hash(id),
            Kind::Prefix { operator, .. } => Kind::Prefix { operator, operand: id },
            Kind::Cast { target, .. } => Kind::Cast { target, operand: id },
            _ => return,
        };
        self.finish(operand.first, value, Node { kind, offset: node.offset });
    }

    fn two_operands(&mut self, node: &Node) {
        let (Some(right), Some(left)) = (self.trees.pop(), self.trees.pop()) else { return };
        let (left_id, right_id) = (NodeId::before(right.first), self.last());
        let value = combine(node, left.value, right.value, &mut self.meter);
        let kind = match node.kind {
            Kind::Subscript { .. } => Kind::Subscript { list: left_id, index: right_id },
            Kind::Binary { operator, .. } => Kind::Binary { operator, left: left_id, right: right_id },
            _ => return,
        };
        self.finish(left.first, value, Node { kind, offset: node.offset });
        self.combine_chain();
    }

    /// Ends a tree that begins at `first`: by a literal if its value has one, else by the node.
    fn finish(&mut self, first: usize, value: Evaluation, node: Node) {
        match &value {
            Evaluation::Value(literal) if literal.has_literal() => {
                self.nodes.truncate(first);
                self.nodes.push(Node { kind: Kind::Literal(literal.clone()), offset: node.offset });
            }
            _ => self.nodes.push(node),
        }
        self.trees.push(Tree { first, value });
    }

    /// Makes `x op' c` of a last tree `x op c op c`.
    fn combine_chain(&mut self) {
        let Some(Node { kind: Kind::Binary { operator, left, right }, offset }) = self.nodes.last() else { return };
        let Kind::Binary { operator: before, left: rest, right: constant } = self.nodes[left.index()].kind else {
            return;
        };
        let (Kind::Literal(Value::Int64(first)), Kind::Literal(Value::Int64(second))) =
            (&self.nodes[constant.index()].kind, &self.nodes[right.index()].kind)
        else {
            return;
        };
        let Some((operator, combined)) = combined(before, first, *operator, second) else { return };
        let offset = *offset;
        self.nodes.truncate(constant.index());
        self.nodes.push(Node { kind: Kind::Literal(Value::Int64(combined)), offset });
        let right = self.last();
        self.nodes.push(Node { kind: Kind::Binary { operator, left: rest, right }, offset });
    }
}

/// `x before first after second` as one operation on x; nothing if there is none that is right for every integer.
fn combined(before: Binary, first: &Integer, after: Binary, second: &Integer) -> Option<(Binary, Integer)> {
    match (before, after) {
        (Binary::Add | Binary::Subtract, Binary::Add | Binary::Subtract) => {
            let signed =
                |operator, value: &Integer| if operator == Binary::Add { value.clone() } else { value.negate() };
            let sum = signed(before, first).add(&signed(after, second)).ok()?;
            Some(if sum.is_negative() { (Binary::Subtract, sum.negate()) } else { (Binary::Add, sum) })
        }
        (Binary::Multiply, Binary::Multiply) => Some((Binary::Multiply, first.multiply(second).ok()?)),
        (Binary::Multiply, Binary::Divide) => {
            let exact = !second.is_zero() && first.remainder(second).ok()?.is_zero();
            if exact { Some((Binary::Multiply, first.divide(second).ok()?)) } else { None }
        }
        (Binary::Divide, Binary::Divide) if !first.is_zero() && !second.is_zero() => {
            Some((Binary::Divide, first.multiply(second).ok()?))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Limits;
    use crate::value::looks_for_literals;

    /// They count as operators that look at nothing (rule expression-3).
    #[test]
    fn parentheses_do_not_look_at_what_is_in_them() {
        let long = "x".repeat(1_000);
        let looks = |pairs: usize| {
            let (open, close) = ("(".repeat(pairs), ")".repeat(pairs));
            let text = format!("hash({open}(rstring)getChannel() + \"{long}\"{close}) == 0");
            let expression = Expression::parse(&text, &Limits::default()).unwrap();
            let before = looks_for_literals();
            assert_eq!(expression.substitute_and_fold(&Intrinsics::OUTSIDE_REGIONS).unwrap().to_string(), "false");
            looks_for_literals() - before
        };
        assert_eq!(looks(0), looks(250));
    }
}
