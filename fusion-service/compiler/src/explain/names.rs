//! Shortens sets of operators and numbers.
//!
//! `Work[0].Map`, `Work[1].Map` and `Work[2].Map` become `Work[0-2].Map`. If the ranges of channels also fit other
//! operators, the number of operators follows.

use crate::error::excerpt;
use crate::phrase::{listed, runs};
use std::collections::{BTreeMap, BTreeSet};

/// Most names in a text; a count replaces the others.
pub(super) const NAMED: usize = 8;

/// A physical name with its channels taken out: `Work[].Map` and `[3]`.
pub(super) fn template(name: &str) -> (String, Vec<u32>) {
    let (mut text, mut channels) = (String::with_capacity(name.len()), Vec::new());
    let mut rest = name;
    while let Some(open) = rest.find('[') {
        let (before, from) = rest.split_at(open + 1);
        text.push_str(before);
        let channel = from.find(']').and_then(|close| from.get(..close)?.parse().ok().map(|channel| (close, channel)));
        rest = match channel {
            Some((close, channel)) => {
                channels.push(channel);
                from.get(close..).unwrap_or_default()
            }
            None => from,
        };
    }
    text.push_str(rest);
    (text, channels)
}

/// Names, collected.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Names(BTreeMap<String, TemplateChannels>);

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct TemplateChannels {
    names: BTreeSet<Vec<u32>>,
}

impl Names {
    pub(super) fn add(&mut self, name: &str) {
        let (template, channels) = template(name);
        self.0.entry(template).or_default().names.insert(channels);
    }

    pub(super) fn extend(&mut self, other: Self) {
        for (template, channels) in other.0 {
            self.0.entry(template).or_default().names.extend(channels.names);
        }
    }

    /// The first entries, and how many there are.
    pub(super) fn short(&self) -> (Vec<String>, usize) {
        let entry = |(template, channels): (&String, &TemplateChannels)| channels.short(template);
        (self.0.iter().take(NAMED).map(entry).collect(), self.0.len())
    }

    pub(super) fn text(&self) -> String {
        let (first, count) = self.short();
        listed(&first, count)
    }
}

impl<'n> FromIterator<&'n str> for Names {
    fn from_iter<I: IntoIterator<Item = &'n str>>(names: I) -> Self {
        let mut all = Self::default();
        names.into_iter().for_each(|name| all.add(name));
        all
    }
}

impl TemplateChannels {
    fn short(&self, template: &str) -> String {
        let depth = self.names.first().map_or(0, Vec::len);
        let mut sets: Vec<BTreeSet<u64>> = vec![BTreeSet::new(); depth];
        for channels in &self.names {
            sets.iter_mut().zip(channels).for_each(|(set, channel)| {
                set.insert(u64::from(*channel));
            });
        }
        let mut text = String::new();
        let mut pieces = template.split("[]");
        text.push_str(pieces.next().unwrap_or_default());
        for (piece, set) in pieces.zip(&sets) {
            text.push('[');
            text.push_str(&ranges(set.iter().copied()));
            text.push(']');
            text.push_str(piece);
        }
        // Channels are counted over all copies of a region, so the innermost channel mostly determines the others.
        let clear = sets.last().is_none_or(|innermost| innermost.len() == self.names.len())
            || sets.iter().fold(1_usize, |grid, set| grid.saturating_mul(set.len())) == self.names.len();
        let text = excerpt(&text);
        if clear { text } else { format!("{text} ({} of them)", self.names.len()) }
    }
}

/// `0-3, 7`: ascending numbers.
pub(super) fn ranges(numbers: impl Iterator<Item = u64>) -> String {
    let runs = runs(numbers);
    let run = |&(first, last): &(u64, u64)| match last - first {
        0 => first.to_string(),
        _ => format!("{first}-{last}"),
    };
    let first: Vec<String> = runs.iter().take(NAMED).map(run).collect();
    listed(&first, runs.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_written_shortly() {
        for (names, expected) in [
            (&["A.B"][..], "A.B"),
            (&["W[0].M", "W[2].M", "W[1].M"], "W[0-2].M"),
            (&["W[0].M", "W[1].M", "W[5].M"], "W[0-1, 5].M"),
            (&["P[0].Q[0].O", "P[0].Q[1].O", "P[1].Q[0].O", "P[1].Q[1].O"], "P[0-1].Q[0-1].O"),
            (&["P[0].Q[0].O", "P[1].Q[1].O"], "P[0-1].Q[0-1].O"),
            (&["P[0].Q[0].O", "P[1].Q[1].O", "P[1].Q[0].O"], "P[0-1].Q[0-1].O (3 of them)"),
            (&["B", "A", "W[3]"], "A, B, W[3]"),
            (&["odd[x].M", "odd[x].N"], "odd[x].M, odd[x].N"),
        ] {
            assert_eq!(names.iter().copied().collect::<Names>().text(), expected);
        }
        let many: Vec<String> = (0..12).map(|n| format!("O{n:02}")).collect();
        let text = many.iter().map(String::as_str).collect::<Names>().text();
        assert_eq!(text, "O00, O01, O02, O03, O04, O05, O06, O07 and 4 more");
    }

    #[test]
    fn numbers_are_ranges() {
        for (numbers, expected) in
            [(&[][..], ""), (&[4], "4"), (&[1, 2], "1-2"), (&[0, 1, 2, 5, 7, 8, 9], "0-2, 5, 7-9")]
        {
            assert_eq!(ranges(numbers.iter().copied()), expected);
        }
        assert_eq!(ranges((0..40).step_by(2)), "0, 2, 4, 6, 8, 10, 12, 14 and 12 more");
    }
}
