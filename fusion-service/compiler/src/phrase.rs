//! Parts of sentences for people: how many of something, the first of many names, numbers as runs.
//!
//! Knows: a little English. Must not know: what the sentences are about.

/// `1 PE`, `2 PEs`.
pub fn counted(number: usize, one: &str) -> String {
    if number == 1 { format!("1 {one}") } else { format!("{number} {one}s") }
}

/// `a, b and 3 more`: the first entries of a list that has `count` entries.
pub fn listed(first: &[String], count: usize) -> String {
    let text = first.join(", ");
    match count.saturating_sub(first.len()) {
        0 => text,
        more => format!("{text} and {more} more"),
    }
}

/// First and last number of each run of ascending numbers without a gap.
pub fn runs(numbers: impl IntoIterator<Item = u64>) -> Vec<(u64, u64)> {
    let mut runs: Vec<(u64, u64)> = Vec::new();
    for number in numbers {
        match runs.last_mut() {
            Some((_, last)) if last.checked_add(1) == Some(number) => *last = number,
            _ => runs.push((number, number)),
        }
    }
    runs
}
