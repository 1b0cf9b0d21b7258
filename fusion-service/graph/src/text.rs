//! Texts of a drawing: printable, shortened, with an estimate of their width.

use streams_compiler::phrase::runs;

/// Characters of a name in a box.
const MOST: usize = 26;

/// Characters of a name in a tooltip.
const MOST_IN_TOOLTIP: usize = 200;

/// The text without anything that is not a visible character: control characters, characters that change the direction
/// of text and the like are written as Rust escapes.
pub(super) fn printable(text: &str) -> String {
    text.chars().fold(String::with_capacity(text.len()), |mut out, c| {
        match c {
            '"' | '\'' | '\\' => out.push(c),
            c => out.extend(c.escape_debug()),
        }
        out
    })
}

/// A name for a box: long ones lose their middle.
pub(super) fn short(text: &str) -> String {
    shortened(text, MOST)
}

/// A name for a tooltip.
pub(super) fn long(text: &str) -> String {
    shortened(text, MOST_IN_TOOLTIP)
}

/// At most `most` characters, the middle left out. At least three.
pub(super) fn shortened(text: &str, most: usize) -> String {
    // What does not count is not looked at: names may be a million characters.
    let mut characters = text.char_indices();
    if characters.by_ref().nth(most).is_none() {
        return printable(text);
    }
    let head: String = text.chars().take(most / 2).collect();
    let mut tail: Vec<char> = text.chars().rev().take(most - most / 2 - 1).collect();
    tail.reverse();
    format!("{}…{}", printable(&head), printable(&tail.into_iter().collect::<String>()))
}

/// A sentence in at most `most` lines of about 40 characters, broken between words.
pub(super) fn wrapped(text: &str, most: usize) -> Vec<String> {
    const LINE: usize = 40;
    let mut lines: Vec<String> = Vec::new();
    for word in shortened(text, LINE * most - most).split(' ') {
        let count = lines.len();
        match lines.last_mut() {
            Some(line) if count == most || line.chars().count() + word.chars().count() < LINE => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

/// The part of a name after the last separator.
pub(super) fn last_part<'a>(name: &'a str, separator: &str) -> &'a str {
    name.rsplit_once(separator).map_or(name, |(_, last)| last)
}

/// Numbers as ranges: `1–3, 7`, the first `most` of them.
pub(super) fn ranges(numbers: &[u64], most: usize) -> String {
    let runs = runs(numbers.iter().copied());
    let written = runs.iter().take(most).map(|&(first, last)| match last - first {
        0 => first.to_string(),
        1 => format!("{first}, {last}"),
        _ => format!("{first}–{last}"),
    });
    let mut text = written.collect::<Vec<_>>().join(", ");
    if runs.len() > most {
        text.push_str(", …");
    }
    text
}

/// Width of a text in a sans-serif font of size 1, with some room: which font a reader has is not known.
pub(super) fn width(text: &str) -> f64 {
    text.chars()
        .map(|c| match c {
            'i' | 'j' | 'l' | '|' | '!' | '\'' | '.' | ',' | ':' | ';' => 0.33,
            'f' | 'r' | 't' | ' ' | '(' | ')' | '[' | ']' | '{' | '}' | '/' | '\\' | '-' | 'I' => 0.41,
            'm' | 'w' | 'M' | 'W' | '@' | '%' => 0.93,
            'A'..='Z' | '&' | '+' | '=' | '<' | '>' | '~' | '#' => 0.74,
            '…' | '–' | '\u{2212}' | '×' | '→' => 0.9,
            c if c > '\u{1100}' => 1.1,
            _ => 0.62,
        })
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_become_short_and_printable() {
        for (name, expected) in [
            ("Work[1]", "Work[1]"),
            ("a\"b'c\\d<e>&", "a\"b'c\\d<e>&"),
            ("a\nb\u{0}", "a\\nb\\0"),
            ("evil\u{202e}txt", "evil\\u{202e}txt"),
            ("operator", "operator"),
            ("abcdefghijklmnopqrstuvwxyz", "abcdefghijklmnopqrstuvwxyz"),
            ("abcdefghijklmnopqrstuvwxyz0", "abcdefghijklm…pqrstuvwxyz0"),
            ("größe漢字", "größe漢字"),
        ] {
            assert_eq!(short(name), expected);
        }
        assert_eq!(long(&"x".repeat(1 << 20)).chars().count(), MOST_IN_TOOLTIP);
    }

    #[test]
    fn numbers_become_ranges() {
        for (numbers, expected) in [
            (&[][..], ""),
            (&[4], "4"),
            (&[1, 2], "1, 2"),
            (&[1, 2, 3], "1–3"),
            (&[1, 2, 3, 7, 9, 10], "1–3, 7, 9, 10"),
            (&[1, 3, 5, 7, 9], "1, 3, 5, 7, …"),
            (&[u64::MAX - 1, u64::MAX], "18446744073709551614, 18446744073709551615"),
        ] {
            assert_eq!(ranges(numbers, 4), expected);
        }
    }
}
