//! Whose turn it is: namespaces in the order in which they began to wait (rule import-10).
//!
//! Knows: names. Must not know: what a turn is for.
//!
//! Invariant: a name is there once, however often it is added before its turn.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

/// Namespaces that wait for their turns.
#[derive(Default)]
pub(super) struct Line {
    order: VecDeque<Arc<str>>,
    names: BTreeSet<Arc<str>>,
}

impl Line {
    /// The namespace has a turn after all that wait, unless it waits itself.
    pub(super) fn join(&mut self, name: &Arc<str>) {
        if self.names.insert(Arc::clone(name)) {
            self.order.push_back(Arc::clone(name));
        }
    }

    /// The namespace whose turn it is.
    pub(super) fn next(&mut self) -> Option<Arc<str>> {
        let name = self.order.pop_front()?;
        self.names.remove(&name);
        Some(name)
    }
}

#[cfg(test)]
impl Line {
    /// All that wait.
    pub(super) fn waiting(&self) -> String {
        self.order.iter().map(|name| &**name).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_waits_once_and_goes_to_the_end_after_its_turn() {
        // who joins before each turn -> the turns, and who waits at the end
        let table: [(&[&str], &str, &str); 4] = [
            (&["", ""], "", ""),
            (&["a", "b", ""], "ab", ""),
            (&["abaa", "a", "b"], "aba", "b"),
            (&["aabbcc", "c", "c"], "abc", ""),
        ];
        for (joins, turns, left) in table {
            let mut line = Line::default();
            let mut seen = String::new();
            for joining in joins {
                joining.split("").filter(|name| !name.is_empty()).for_each(|name| line.join(&name.into()));
                seen.extend(line.next().iter().map(|name| &**name));
            }
            assert_eq!((seen.as_str(), line.waiting().as_str()), (turns, left), "{joins:?}");
            assert_eq!(line.names.len(), line.order.len(), "{joins:?}");
        }
    }
}
