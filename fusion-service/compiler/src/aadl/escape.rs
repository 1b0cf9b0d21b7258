//! Text inside XML: escaped, never deleted (rule aadl-3).
//!
//! Line breaks and tabs become character references, in attributes and in element text alike, so that a parser gives
//! back exactly what was written. XML 1.0 cannot express some characters (control characters, U+FFFE, U+FFFF). The
//! writer reports these.

use crate::error::{Problem, Stage};
use std::io::Write;

/// A text that no XML document can hold.
pub(super) fn unwritable(what: &str, illegal: char) -> Problem {
    Problem::new(Stage::Aadl, format!("{what}: the character U+{:04X} cannot be written to XML", u32::from(illegal)))
}

/// What to do with a byte of UTF-8.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ByteClass {
    Plain,
    /// Has a reference.
    Special,
    /// Cannot be in an XML document.
    Illegal,
    /// First byte of U+F000..U+FFFF, where the two illegal characters are.
    Suspect,
}

const CLASSES: [ByteClass; 256] = {
    let mut classes = [ByteClass::Plain; 256];
    let mut byte = 0;
    while byte < 0x20 {
        classes[byte] = ByteClass::Illegal;
        byte += 1;
    }
    classes[b'\t' as usize] = ByteClass::Special;
    classes[b'\n' as usize] = ByteClass::Special;
    classes[b'\r' as usize] = ByteClass::Special;
    classes[b'&' as usize] = ByteClass::Special;
    classes[b'<' as usize] = ByteClass::Special;
    classes[b'>' as usize] = ByteClass::Special;
    classes[b'"' as usize] = ByteClass::Special;
    classes[0xef] = ByteClass::Suspect;
    classes
};

/// Appends `text`, fit for a double-quoted attribute and for element content. Gives the first character that XML cannot
/// hold; it is left out, and the caller refuses the document.
#[must_use]
pub(super) fn escape(out: &mut Vec<u8>, text: &str) -> Option<char> {
    let bytes = text.as_bytes();
    let mut illegal = None;
    let mut done = 0;
    for (at, &byte) in bytes.iter().enumerate() {
        let class = CLASSES[byte as usize];
        if class == ByteClass::Plain {
            continue;
        }
        let skipped = match class {
            ByteClass::Plain => 0,
            ByteClass::Special => 1,
            ByteClass::Illegal => {
                illegal = illegal.or(Some(char::from(byte)));
                1
            }
            ByteClass::Suspect => match bytes.get(at + 1..at + 3) {
                Some([0xbf, 0xbe]) => {
                    illegal = illegal.or(Some('\u{fffe}'));
                    3
                }
                Some([0xbf, 0xbf]) => {
                    illegal = illegal.or(Some('\u{ffff}'));
                    3
                }
                _ => continue,
            },
        };
        out.extend_from_slice(bytes.get(done..at).unwrap_or_default());
        out.extend_from_slice(reference(byte));
        done = at + skipped;
    }
    out.extend_from_slice(bytes.get(done..).unwrap_or_default());
    illegal
}

fn reference(byte: u8) -> &'static [u8] {
    match byte {
        b'\t' => b"&#9;",
        b'\n' => b"&#10;",
        b'\r' => b"&#13;",
        b'&' => b"&amp;",
        b'<' => b"&lt;",
        b'>' => b"&gt;",
        b'"' => b"&quot;",
        _ => b"",
    }
}

/// Appends a number as `xs:double`, in the shortest form that reads back the same and always with a fraction or
/// exponent.
pub(super) fn double(out: &mut Vec<u8>, number: f64) {
    if number.is_nan() {
        out.extend_from_slice(b"NaN");
    } else if number.is_infinite() {
        out.extend_from_slice(if number > 0.0 { b"INF" } else { b"-INF" });
    } else {
        // Writing to memory cannot fail.
        let _ = write!(out, "{number:?}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn escaped(text: &str) -> (String, Option<char>) {
        let mut out = Vec::new();
        let illegal = escape(&mut out, text);
        (String::from_utf8(out).unwrap(), illegal)
    }

    #[test]
    fn what_markup_needs_becomes_references() {
        assert_eq!(escaped("a<b>&\"c'\r\n\td"), ("a&lt;b&gt;&amp;&quot;c'&#13;&#10;&#9;d".to_owned(), None));
    }

    #[test]
    fn what_xml_cannot_hold_is_reported() {
        for (text, illegal) in [
            ("a\0", '\0'),
            ("\u{b}", '\u{b}'),
            ("\u{1f}\u{1}", '\u{1f}'),
            ("ä\u{ffff}", '\u{ffff}'),
            ("\u{fffe}", '\u{fffe}'),
        ] {
            assert_eq!(escaped(text).1, Some(illegal), "{text:?}");
        }
        for text in ["\u{7f}", "\u{fffd}", "\u{f8ff}", "\u{1ffff}", "\u{feff}"] {
            assert_eq!(escaped(text), (text.to_owned(), None));
        }
    }

    #[test]
    fn doubles_read_as_doubles() {
        for (number, text) in [(5.0, "5.0"), (0.1, "0.1"), (1e300, "1e300"), (f64::INFINITY, "INF"), (-0.0, "-0.0")] {
            let mut out = Vec::new();
            double(&mut out, number);
            assert_eq!(String::from_utf8(out).unwrap(), text);
        }
    }

    proptest! {
        #[test]
        fn a_parser_gives_the_text_back(text in "[^\\x00-\\x08\\x0b\\x0c\\x0e-\\x1f\u{fffe}\u{ffff}]{0,40}") {
            let (escaped, illegal) = escaped(&text);
            prop_assert_eq!(illegal, None);
            let document = format!("<a b=\"{escaped}\">{escaped}</a>");
            let parsed = roxmltree::Document::parse(&document).unwrap();
            prop_assert_eq!(parsed.root_element().attribute("b"), Some(text.as_str()));
            prop_assert_eq!(parsed.root_element().text().unwrap_or_default(), text.as_str());
        }
    }
}
