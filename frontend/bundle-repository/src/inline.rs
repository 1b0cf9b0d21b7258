//! A request that a person typed: a line of words (rule repository-1).
//!
//! Knows: blanks, quotes, escapes. Must not know: how a line is found, what the words mean.

use bytes::Bytes;

/// The words of a line; `None` if its quotes do not match.
///
/// Within `"` a backslash begins `\n`, `\r`, `\t`, `\a`, `\b`, `\xHH`, or stands before what is meant as it is; within
/// `'` only `\'`. A quote that closes stands before a blank or the end.
pub(crate) fn words(line: &[u8]) -> Option<Vec<Bytes>> {
    let mut words = Vec::new();
    let mut rest = line;
    loop {
        rest = rest.trim_ascii_start();
        if rest.is_empty() {
            return Some(words);
        }
        let (word, behind) = word(rest)?;
        words.push(word.into());
        rest = behind;
    }
}

/// The first word, and what is behind it.
fn word(line: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    let mut word = Vec::new();
    let mut rest = line;
    loop {
        match rest {
            [] => return Some((word, rest)),
            [byte, ..] if byte.is_ascii_whitespace() => {
                return Some((word, rest.get(1..).unwrap_or_default()));
            }
            [quote @ (b'"' | b'\''), behind @ ..] => {
                let behind = quoted(behind, *quote, &mut word)?;
                let closes = behind.first().is_none_or(u8::is_ascii_whitespace);
                return closes.then_some((word, behind));
            }
            [byte, behind @ ..] => {
                word.push(*byte);
                rest = behind;
            }
        }
    }
}

/// Adds what stands before the closing quote, and gives what is behind it.
fn quoted<'a>(mut rest: &'a [u8], quote: u8, word: &mut Vec<u8>) -> Option<&'a [u8]> {
    loop {
        rest = match rest {
            [] => return None,
            [byte, behind @ ..] if *byte == quote => return Some(behind),
            [b'\\', b'\'', behind @ ..] if quote == b'\'' => {
                word.push(b'\'');
                behind
            }
            [b'\\', b'x', high, low, behind @ ..]
                if quote == b'"' && high.is_ascii_hexdigit() && low.is_ascii_hexdigit() =>
            {
                word.push(digit(*high) << 4 | digit(*low));
                behind
            }
            [b'\\', byte, behind @ ..] if quote == b'"' => {
                word.push(match byte {
                    b'n' => b'\n',
                    b'r' => b'\r',
                    b't' => b'\t',
                    b'a' => 7,
                    b'b' => 8,
                    other => *other,
                });
                behind
            }
            [byte, behind @ ..] => {
                word.push(*byte);
                behind
            }
        };
    }
}

/// The value of a hexadecimal digit.
fn digit(byte: u8) -> u8 {
    match byte {
        b'0'..=b'9' => byte - b'0',
        b'a'..=b'f' => byte - b'a' + 10,
        b'A'..=b'F' => byte - b'A' + 10,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_words() {
        let table: [(&str, Option<&[&str]>); 13] = [
            ("", Some(&[])),
            ("  \t ", Some(&[])),
            ("PING", Some(&["PING"])),
            (" hget  apps\ta.sab ", Some(&["hget", "apps", "a.sab"])),
            (r#"echo "a b""#, Some(&["echo", "a b"])),
            (r#"echo "\x41\n\"\q""#, Some(&["echo", "A\n\"q"])),
            (r#"echo "\xZZ""#, Some(&["echo", "xZZ"])),
            (r"echo 'a\'b\n'", Some(&["echo", r"a'b\n"])),
            (r#"echo a"b c""#, Some(&["echo", "ab c"])),
            (r#"echo "" ''"#, Some(&["echo", "", ""])),
            (r#"echo "a"#, None),
            (r#"echo "a"b"#, None),
            (r"echo 'a\", None),
        ];
        for (line, expected) in table {
            let found = words(line.as_bytes());
            let expected = expected.map(|words| words.iter().map(|word| Bytes::from(*word)).collect::<Vec<_>>());
            assert_eq!(found, expected, "{line}");
        }
    }
}
