//! The trees of subscriptions, of which there is one for all imports that ask for the same: channels of a region mostly
//! do, and a tree takes up to forty times as much as its text.
//!
//! Invariant: of trees that no import has any more there is nothing but an entry, and no more of these than of others,
//! and a few.

use spl_expression::Expression;
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Weak};

/// Entries that are never looked through.
const FEW: usize = 64;

/// The trees that imports have.
#[derive(Debug, Default)]
pub(crate) struct Expressions {
    /// By hash: of two that have the same, which is rare, one is shared.
    known: HashMap<u64, Weak<Expression>>,
    hasher: RandomState,
    /// With so many entries those go whose tree nobody has.
    most: usize,
}

impl Expressions {
    /// The tree for everybody who asks for the same as this one.
    pub(crate) fn shared(&mut self, expression: &Arc<Expression>) -> Arc<Expression> {
        let hash = self.hasher.hash_one(&**expression);
        if let Some(known) = self.known.get(&hash).and_then(Weak::upgrade) {
            return if known == *expression { known } else { Arc::clone(expression) };
        }
        if self.known.len() >= self.most {
            self.known.retain(|_, known| known.strong_count() > 0);
            self.most = 2 * self.known.len() + FEW;
        }
        self.known.insert(hash, Arc::downgrade(expression));
        Arc::clone(expression)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use spl_expression::Limits;

    fn parsed(text: &str) -> Arc<Expression> {
        Arc::new(Expression::parse(text, &Limits::default()).unwrap())
    }

    #[test]
    fn those_that_are_alike_are_one() {
        let mut expressions = Expressions::default();
        let first = expressions.shared(&parsed("a == 1"));
        assert!(Arc::ptr_eq(&first, &expressions.shared(&parsed("a == 1"))));
        for other in ["a  == 1", "a == 2"] {
            assert_eq!(*expressions.shared(&parsed(other)), *parsed(other));
        }
    }

    #[test]
    fn little_is_kept_of_what_nobody_asks_for_any_more() {
        let mut expressions = Expressions::default();
        let kept: Vec<_> = (0..100).map(|n| expressions.shared(&parsed(&format!("a == {n}")))).collect();
        for n in 0..10_000 {
            expressions.shared(&parsed(&format!("b == {n}")));
        }
        assert!(expressions.known.len() <= 2 * kept.len() + FEW, "{}", expressions.known.len());
        assert!(kept.iter().all(|kept| Arc::ptr_eq(kept, &expressions.shared(&parsed(&kept.to_string())))));
    }
}
