//! The table of totals: what was compared, how much of it agrees, and what differs on purpose.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::io::Write as _;

/// Failures that are shown.
const MOST: usize = 40;

/// One kind of comparison.
#[derive(Debug)]
pub struct Set {
    what: &'static str,
    /// How many were compared.
    pub compared: usize,
    /// Name and difference of those that do not agree.
    pub wrong: Vec<String>,
    /// How the others agree.
    how: BTreeMap<&'static str, usize>,
    /// What differs on purpose: reason -> names.
    corrected: BTreeMap<&'static str, BTreeSet<String>>,
}

impl Set {
    /// Nothing compared yet; `what` is the headline.
    pub fn new(what: &'static str) -> Self {
        Self { what, compared: 0, wrong: Vec::new(), how: BTreeMap::new(), corrected: BTreeMap::new() }
    }

    /// Counts one comparison, with its difference if there is one.
    pub fn add(&mut self, name: &str, difference: Option<String>) {
        self.add_as("equal", name, difference);
    }

    /// The same for one that agrees in another way.
    pub fn add_as(&mut self, how: &'static str, name: &str, difference: Option<String>) {
        self.compared += 1;
        match difference {
            Some(difference) => self.wrong.push(format!("{name} ({how}): {difference}")),
            None => *self.how.entry(how).or_default() += 1,
        }
    }

    /// Notes what differs on purpose.
    pub fn correct(&mut self, why: &'static str, name: &str) {
        self.corrected.entry(why).or_default().insert(name.to_owned());
    }
}

/// The sets as a table, then what differs on purpose, then what does not agree.
pub fn table(sets: &[Set]) -> String {
    let mut text = format!("\n{:<36}{:>8}{:>10}   how\n", "conformance with the reference", "agree", "compared");
    // Writing to a string cannot fail.
    for Set { what, compared, wrong, how, .. } in sets {
        let how: Vec<String> = how.iter().map(|(how, count)| format!("{how} {count}")).collect();
        let _ = writeln!(text, "{what:<36}{:>8}{compared:>10}   {}", compared - wrong.len(), how.join(", "));
    }
    let mut corrected: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (why, names) in sets.iter().flat_map(|set| &set.corrected) {
        corrected.entry(why).or_default().extend(names.iter().map(String::as_str));
    }
    if !corrected.is_empty() {
        text.push_str("\ndifferent on purpose:\n");
    }
    for (why, names) in corrected {
        let some: Vec<&str> = names.iter().take(4).copied().collect();
        let more = if names.len() > some.len() { ", ..." } else { "" };
        let _ = writeln!(text, "{:>5}  {why}: {}{more}", names.len(), some.join(", "));
    }
    let wrong: Vec<&String> = sets.iter().flat_map(|set| &set.wrong).collect();
    for wrong in wrong.iter().take(MOST) {
        let _ = writeln!(text, "\nNOT EQUAL: {wrong}");
    }
    if wrong.len() > MOST {
        let _ = writeln!(text, "\nand {} more", wrong.len() - MOST);
    }
    text.push('\n');
    text
}

/// Says something that is seen although the test passes: the harness captures the macros only.
pub fn say(text: &str) {
    let _ = std::io::stderr().lock().write_all(text.as_bytes());
}
