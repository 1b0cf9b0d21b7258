//! The excerpt of a problem: its line, cut to the width of a terminal, with a mark under the column.
//!
//! A document is often one line of many kilobytes and may hold any character. So only the text around the column is
//! read, and characters that would control the terminal are shown as escapes. (Crates that draw source snippets read
//! the whole line for each snippet.)

use crate::command::terminal::{CUT, visible};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use streams_compiler::error::Place;

/// Columns of a terminal before and from the marked character.
const BEFORE: usize = 32;
const FROM: usize = 72;

/// The lines of a document that excerpts show, by number.
pub(super) struct Lines<'d>(BTreeMap<u32, &'d [u8]>);

/// A piece of a line.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub(super) struct Excerpt {
    /// What is shown of the line.
    text: String,
    /// Columns of a terminal before the marked character.
    mark: usize,
}

impl<'d> Lines<'d> {
    /// Finds the lines of these places, in one pass.
    pub(super) fn find(document: &'d [u8], places: impl Iterator<Item = Place>) -> Self {
        let document = document.strip_prefix(b"\xef\xbb\xbf").unwrap_or(document);
        let mut lines: BTreeMap<u32, &[u8]> = places.map(|place| (place.line, &[][..])).collect();
        let last = lines.keys().next_back().copied().unwrap_or_default();
        let (mut number, mut start) = (1_u32, 0);
        let ends = memchr::memchr_iter(b'\n', document).chain([document.len()]);
        for end in ends.take_while(|_| last > 0) {
            if let Some(line) = lines.get_mut(&number) {
                *line = document.get(start..end).unwrap_or_default();
            }
            if number >= last {
                break;
            }
            (number, start) = (number + 1, end + 1);
        }
        Self(lines)
    }

    /// A line that an excerpt shows.
    pub(super) fn line(&self, number: u32) -> &'d [u8] {
        self.0.get(&number).copied().unwrap_or_default()
    }

    /// What is around a place; nothing if the document has no such line.
    pub(super) fn excerpt(&self, place: Place) -> Option<Excerpt> {
        // A character has at most four bytes: more need not be looked at.
        const BYTES: usize = 4 * (BEFORE + FROM);
        let line = self.0.get(&place.line).filter(|line| !line.is_empty())?;
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let at = (place.column as usize).saturating_sub(1).min(line.len());
        let starts_character = |at: &usize| line.get(*at).is_none_or(|byte| byte & 0xc0 != 0x80);
        let at = (at.saturating_sub(3)..=at).rev().find(starts_character).unwrap_or(at);
        let first = at.saturating_sub(BYTES);
        let first = (first..at).find(starts_character).unwrap_or(at);
        let last = at.saturating_add(BYTES).min(line.len());
        let decoded =
            |range: std::ops::Range<usize>| String::from_utf8_lossy(line.get(range).unwrap_or_default()).into_owned();
        let (before, from) = (decoded(first..at), decoded(at..last));
        let (mut head, mut mark) = (Vec::new(), 0);
        for c in before.chars().rev() {
            let (shown, width) = visible(c);
            if mark + width > BEFORE {
                break;
            }
            mark += width;
            head.push((shown, c.len_utf8()));
        }
        let mut text = String::new();
        if head.iter().map(|(_, bytes)| bytes).sum::<usize>() < before.len() || first > 0 {
            text.push(CUT);
            mark += 1;
        }
        text.extend(head.into_iter().rev().map(|(shown, _)| shown));
        let mut left = BEFORE + FROM - mark.min(BEFORE);
        for c in from.chars() {
            let (shown, width) = visible(c);
            let Some(rest) = left.checked_sub(width) else {
                text.push(CUT);
                break;
            };
            left = rest;
            text.push_str(&shown);
        }
        Some(Excerpt { text, mark })
    }
}

impl Excerpt {
    /// Three lines of text with the number of the line.
    pub(super) fn draw(&self, line: u32) -> String {
        let number = line.to_string();
        let (space, mark) = (" ".repeat(number.len()), " ".repeat(self.mark));
        let mut drawn = String::new();
        // Writing to a string cannot fail.
        let _ = writeln!(drawn, "{space} |\n{number} | {}\n{space} | {mark}^", self.text);
        drawn
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(document: &[u8], line: u32, column: u32) -> String {
        let place = Place { line, column };
        Lines::find(document, [place].into_iter()).excerpt(place).map(|e| e.draw(line)).unwrap_or_default()
    }

    #[test]
    fn the_mark_is_under_the_column() {
        let document = "<a>\n  <b x='ä漢'/><c/>\r\n\t<d/>\n".as_bytes();
        assert_eq!(drawn(document, 1, 1), "  |\n1 | <a>\n  | ^\n");
        assert_eq!(drawn(document, 2, 3), "  |\n2 |   <b x='ä漢'/><c/>\n  |   ^\n");
        // `漢` takes three bytes and two columns, `ä` two bytes and one column.
        assert_eq!(drawn(document, 2, 17), format!("  |\n2 |   <b x='ä漢'/><c/>\n  | {}^\n", " ".repeat(14)));
        assert_eq!(drawn(document, 3, 2), "  |\n3 |  <d/>\n  |  ^\n");
        assert_eq!(drawn("\u{feff}<a>".as_bytes(), 1, 2), "  |\n1 | <a>\n  |  ^\n");
        assert_eq!(drawn(document, 1, 99), "  |\n1 | <a>\n  |    ^\n", "behind the end");
        assert_eq!(drawn(document, 99, 1), "");
        assert_eq!(drawn(b"", 1, 1), "");
    }

    #[test]
    fn a_huge_line_is_cut_around_the_column() {
        let document = format!("{}<b/>{}", "x".repeat(1 << 20), "y".repeat(1 << 20));
        let shown = drawn(document.as_bytes(), 1, (1 << 20) + 1);
        let lines: Vec<&str> = shown.lines().collect();
        assert_eq!(lines[1], format!("1 | …{}<b/>{}…", "x".repeat(BEFORE), "y".repeat(FROM - 4)));
        assert_eq!(lines[2], format!("  | {}^", " ".repeat(BEFORE + 1)));
        // Inside a character, and next to one that is cut.
        let wide = "漢".repeat(1 << 16);
        for column in 1000..1010 {
            let shown = drawn(wide.as_bytes(), 1, column);
            assert!(!shown.contains('\u{fffd}') && shown.lines().count() == 3, "{shown}");
        }
    }

    #[test]
    fn terminals_are_not_told_anything() {
        let document = b"a\x1b[31m\xc2\x9b\xe2\x80\xae\x07\xff<b/>";
        let text = "a\\u{1b}[31m\\u{9b}\\u{202e}\\u{7}\u{fffd}";
        let mark = " ".repeat(text.chars().count());
        assert_eq!(drawn(document, 1, 14), format!("  |\n1 | {text}<b/>\n  | {mark}^\n"));
    }
}
