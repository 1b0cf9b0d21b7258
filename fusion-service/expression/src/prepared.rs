//! An expression that is folded for many channels: what no channel changes is folded once (rule expression-10).
//!
//! A part without channel functions is folded to the same in all channels, and costs the same in each. [`Prepared`] has
//! such parts folded, with their values; folding it for a channel copies them and goes through the rest.
//!
//! Invariant (tested): the result is what [`Expression::fold`] gives for the channel, errors included. A folding whose
//! parts together cost more than one folding may is therefore done as if nothing had been prepared: at which operation
//! it ends depends on the order.
//!
//! Knows: folding. Must not know: how many channels there are.

use crate::Limits;
use crate::evaluation::{Evaluation, Meter};
use crate::expression::{Expression, Node, NodeId};
use crate::folding::{Folded, Folder, Tree, steps_of_nodes};
use crate::substitution::Intrinsics;
use std::ops::Range;

/// An expression whose parts without channel functions are folded.
#[derive(Clone, Debug)]
pub struct Prepared {
    /// The expression in postfix order, as any. Operators above a channel function do not say where their operands are.
    expression: Expression,
    /// Those of the folded parts that are more than a word or literal, in order.
    parts: Vec<Part>,
    /// What was looked at to fold the parts.
    spent: usize,
    steps: usize,
}

/// A folded part without channel functions.
#[derive(Clone, Debug)]
struct Part {
    nodes: Range<usize>,
    value: Evaluation,
}

impl Expression {
    /// Folds the parts without channel functions, for foldings in many channels.
    #[must_use]
    pub fn prepare(&self) -> Prepared {
        let mut folder = Folder::new(self.nodes.len(), Meter::of_folding(0));
        // By tree of the folder: whether it has a channel function.
        let mut varies: Vec<bool> = Vec::new();
        let mut parts = Vec::new();
        for node in &self.nodes {
            let operands = node.kind.operands().into_iter().flatten().count();
            let first = varies.len().saturating_sub(operands);
            let is_varying = node.kind.is_intrinsic() || varies[first..].contains(&true);
            if is_varying {
                let mut end = folder.nodes.len();
                for operand_varies in varies[first..].iter().rev() {
                    let Some(operand) = folder.trees.pop() else { break };
                    if !operand_varies {
                        parts.extend(Part::of(operand.first..end, operand.value));
                    }
                    end = operand.first;
                }
                folder.trees.push(Tree { first: end, value: Evaluation::Unknown });
                folder.nodes.push(node.clone());
            } else {
                folder.add(node, &Intrinsics::OUTSIDE_REGIONS);
            }
            varies.truncate(first);
            varies.push(is_varying);
        }
        let steps = steps_of_nodes(self.nodes.len()).saturating_add(folder.meter.spent());
        if folder.meter.is_exhausted() {
            return Prepared { expression: self.clone(), parts: Vec::new(), spent: 0, steps };
        }
        if varies == [false]
            && let Some(whole) = folder.trees.pop()
        {
            parts.extend(Part::of(whole.first..folder.nodes.len(), whole.value));
        }
        // It is kept while all channels are made.
        folder.nodes.shrink_to_fit();
        parts.sort_unstable_by_key(|part| part.nodes.start);
        parts.shrink_to_fit();
        let spent = folder.meter.spent();
        let expression = Expression { source: self.source.clone(), nodes: folder.nodes };
        Prepared { expression, parts, spent, steps }
    }
}

impl Part {
    /// What has to be known of a folded part: nothing of a single node, which says it itself.
    fn of(nodes: Range<usize>, value: Evaluation) -> Option<Self> {
        (nodes.len() > 1).then_some(Self { nodes, value })
    }
}

impl Prepared {
    /// Steps that it took to prepare the expression, as in [`Folded::steps`].
    #[must_use]
    pub fn steps(&self) -> usize {
        self.steps
    }

    /// Bytes of memory that it takes, texts and large numbers in it aside.
    #[must_use]
    pub fn memory(&self) -> usize {
        self.expression.memory() + self.parts.capacity() * size_of::<Part>()
    }

    /// Replaces the channel functions by numbers and folds the rest, as [`Expression::fold`] does it.
    #[must_use]
    pub fn fold(&self, intrinsics: &Intrinsics) -> Folded {
        let nodes = &self.expression.nodes;
        let mut folder = Folder::new(nodes.len(), Meter::of_folding(self.spent));
        let mut next = 0;
        for part in &self.parts {
            for node in &nodes[next..part.nodes.start] {
                folder.add(node, intrinsics);
            }
            folder.take_over(part, &nodes[part.nodes.clone()]);
            next = part.nodes.end;
        }
        for node in &nodes[next..] {
            folder.add(node, intrinsics);
        }
        let steps = steps_of_nodes(nodes.len()).saturating_add(folder.meter.spent().saturating_sub(self.spent));
        if folder.meter.is_exhausted()
            && self.spent > 0
            && let Ok(whole) = Expression::parse(self.expression.text(), &ANY)
        {
            let Folded { result, steps: again } = whole.fold(intrinsics);
            return Folded { result, steps: steps.saturating_add(again) };
        }
        Folded { result: folder.finished(&self.expression), steps }
    }
}

/// For what was parsed within limits before.
const ANY: Limits = Limits { length: usize::MAX, depth: usize::MAX, nodes: usize::MAX };

impl Folder {
    /// Adds a part that was folded before.
    fn take_over(&mut self, part: &Part, nodes: &[Node]) {
        let first = self.nodes.len();
        self.trees.push(Tree { first, value: part.value.clone() });
        let moved = |id: NodeId| NodeId::before((id.index() + 1).saturating_sub(part.nodes.start) + first);
        self.nodes.extend(nodes.iter().map(|node| Node { kind: node.kind.with_operands(moved), offset: node.offset }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn intrinsics(channel: i64) -> Intrinsics {
        Intrinsics { channel, max_channels: 12, local_channel: channel % 3, local_max_channels: 3 }
    }

    /// Folds an expression both ways in a channel. Returns the result, and what the channel took.
    fn both(text: &str, channel: i64) -> (Result<String, crate::Error>, usize) {
        let expression = Expression::parse(text, &Limits::default()).unwrap();
        let folded = expression.prepare().fold(&intrinsics(channel));
        let told = |result: Result<Expression, crate::Error>| result.map(|left| left.to_string());
        let (prepared, plain) = (told(folded.result), told(expression.fold(&intrinsics(channel)).result));
        assert_eq!(prepared, plain, "{text}");
        (prepared, folded.steps)
    }

    #[test]
    fn parts_are_folded_once() {
        for (text, expected) in [
            ("a + 1 + 2 == getChannel() && b", "a + 3 == 5 && b"),
            ("getChannel() + 1 + 2", "8"),
            ("a + 1 + getChannel()", "a + 6"),
            ("(a + 1) * 2 * getChannel()", "(a + 1) * 10"),
            ("1 == 2 && getChannel() == 0", "false"),
            ("1.5 - 3 < getChannel()", "true"),
            ("1.5 - 3 > x && getChannel() == y", "1.5 - 3 > x && 5 == y"),
            ("x && (1 == 1 || 5 / 0 == 1) && getChannel() == y", "x && true && 5 == y"),
            ("getChannel()", "5"),
            ("(1 + 2) * a", "3 * a"),
            ("true", "true"),
        ] {
            assert_eq!(both(text, 5).0.as_deref(), Ok(expected), "{text}");
        }
        assert!(both("5 / 0 == getChannel()", 0).0.is_err());
        let constant = format!("hash(\"{}\")", "x".repeat(100_000));
        let channel = both(&format!("{constant} == getChannel()"), 5);
        assert!(channel.0.is_ok_and(|left| left == "false") && channel.1 < 1_000, "{}", channel.1);
        // A value that has no literal is kept, too.
        let channel = both(&format!("('\"' + \"{}'\" < x) == getChannel()", "x".repeat(100_000)), 5);
        assert!(channel.0.is_ok() && channel.1 < 1_000, "{}", channel.1);
    }

    #[test]
    fn what_costs_too_much_ends_at_the_same_operation() {
        let sums = |times: usize| format!("(\"{}\"{} == x)", "x".repeat(40_000), " + \"y\"".repeat(times));
        let varying = format!("hash(\"{}\" + (rstring)getChannel() + \"z\") == 1", "x".repeat(600_000));
        for (text, is_decided) in [
            // The constant parts alone are too much.
            (format!("{} || getChannel() == 5", sums(2_000)), false),
            // They are too much with the rest, which is before them or after them.
            (format!("{varying} || {}", sums(1_620)), false),
            (format!("{} || {varying}", sums(1_620)), false),
            // There is room for all.
            (format!("{} || {varying} || getChannel() == 5", sums(100)), true),
        ] {
            let expression = Expression::parse(&text, &Limits::default()).unwrap();
            let is_true = |folded: Folded| folded.result.map(|left| left.to_string() == "true");
            let [prepared, plain] = [expression.prepare().fold(&intrinsics(5)), expression.fold(&intrinsics(5))];
            let (prepared, plain) = (is_true(prepared), is_true(plain));
            assert_eq!(prepared, plain);
            assert_eq!(prepared == Ok(true), is_decided, "{prepared:?}");
        }
    }

    proptest! {
        #[test]
        fn folding_what_is_prepared_is_folding(
            tokens in prop::collection::vec(prop::sample::select(vec![
                "a", "1", "0", "7", "1.5", "\"t\"", "'\"'", "(", ")", "!", "&&", "||", "&", "<<", "<", "==", "+", "-",
                "*", "/", "%", "hash(", "(int64)", "(rstring)", "getChannel()", "getLocalChannel()", "true",
            ]), 0..24),
            channel in 0i64..9,
        ) {
            let text = tokens.concat();
            if Expression::parse(&text, &Limits::default()).is_ok() {
                _ = both(&text, channel);
            }
        }

        #[test]
        fn chains_of_operators_too(
            first in prop::sample::select(vec!["a", "1", "getChannel()"]),
            rest in prop::collection::vec((
                prop::sample::select(vec!["&&", "||", "&", "<", "==", "+", "-", "*", "/", "%", "<<"]),
                prop::sample::select(vec!["a", "1", "0", "7", "1.5", "(getChannel())", "getChannel()", "(1 - 2.5)"]),
            ), 0..8),
            channel in 0i64..9,
        ) {
            let rest = rest.iter().map(|(operator, operand)| format!(" {operator} {operand}"));
            let text = format!("{first}{}", rest.collect::<String>());
            if Expression::parse(&text, &Limits::default()).is_ok() {
                _ = both(&text, channel);
            }
        }
    }
}
