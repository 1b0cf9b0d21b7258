//! Text for a terminal: characters that would control the terminal are shown as escapes.

use unicode_width::UnicodeWidthChar;

/// Stands for what was cut off.
pub(super) const CUT: char = '…';

/// How a character is shown, and how many columns that takes.
pub(super) fn visible(c: char) -> (String, usize) {
    let shown: String = match c {
        '\t' => " ".to_owned(),
        '"' | '\'' | '\\' => c.to_string(),
        // Escapes what is not printable: control characters, marks of direction, combining characters without a base.
        _ => c.escape_debug().collect(),
    };
    let width = shown.chars().map(|c| c.width().unwrap_or_default()).sum();
    (shown, width)
}

/// A text on one line, of bounded length.
pub(super) fn printable(text: &str, most: usize) -> String {
    let mut shown: String = text.chars().take(most).map(|c| visible(c).0).collect();
    if text.chars().nth(most).is_some() {
        shown.push(CUT);
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_one_line_that_is_not_obeyed() {
        assert_eq!(printable("a\nb\u{1b}]0;x", 5), "a\\nb\\u{1b}]…");
        assert_eq!(printable("\u{9b}\u{202e}\u{7f}", 80), "\\u{9b}\\u{202e}\\u{7f}");
        assert_eq!(printable("it's \"ä\"\\b\t漢", 80), "it's \"ä\"\\b 漢");
    }
}
