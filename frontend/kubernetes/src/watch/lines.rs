//! The lines of a watch: each is a JSON object of its own (rule call-5).
//!
//! The client library leaves out a line whose JSON ends too early, without a word, and keeps a line for as long as it
//! has no end. So whatever is between may take a change away, or memory.
//!
//! Knows: where a JSON object ends. Must not know: what it says.

/// Longest line, in octets: several times what the API server keeps of an object, in its longest JSON.
const LINE_MAX: usize = 16 << 20;

/// A line that cannot be read.
#[derive(Debug, thiserror::Error)]
pub(super) enum Garbled {
    #[error("a line of the watch is no whole JSON object")]
    Cut,
    #[error("a line of the watch has more than {0} octets")]
    Long(usize),
}

/// The lines of a watch, as far as they have arrived.
#[derive(Debug, Default)]
pub(super) struct Lines {
    /// The one that has no end yet.
    line: Line,
    has_text: bool,
}

/// A line, as far as it has arrived.
#[derive(Debug, Default)]
struct Line {
    octets: usize,
    /// Brackets that are open.
    open: usize,
    is_in_string: bool,
    /// What comes next is part of a string, whatever it is.
    is_escaped: bool,
    /// The last octet that is no space.
    last: Option<u8>,
}

impl Lines {
    /// A part arrives. Returns whether a line ends in it that says anything.
    ///
    /// # Errors
    /// A line cannot be read: one that ends in this part is cut off, or the one that does not end is too long.
    pub(super) fn read(&mut self, part: &[u8]) -> Result<bool, Garbled> {
        let mut ends_one = false;
        for octet in part {
            if *octet == b'\n' {
                let line = std::mem::take(&mut self.line);
                if !line.is_whole() {
                    return Err(Garbled::Cut);
                }
                ends_one |= line.last.is_some();
                continue;
            }
            self.line.put(*octet);
            if self.line.octets > LINE_MAX {
                return Err(Garbled::Long(LINE_MAX));
            }
            self.has_text |= self.line.last.is_some();
        }
        Ok(ends_one)
    }

    /// Whether anything but empty lines has arrived.
    pub(super) fn has_text(&self) -> bool {
        self.has_text
    }

    /// Whether the object of a line has begun and not ended.
    pub(super) fn is_within_one(&self) -> bool {
        self.line.open > 0 || self.line.is_in_string
    }
}

impl Line {
    fn put(&mut self, octet: u8) {
        self.octets += 1;
        if self.is_in_string {
            let is_escaped = std::mem::take(&mut self.is_escaped);
            self.is_escaped = octet == b'\\' && !is_escaped;
            self.is_in_string = octet != b'"' || is_escaped;
        } else {
            match octet {
                b'"' => self.is_in_string = true,
                b'{' | b'[' => self.open += 1,
                b'}' | b']' => self.open = self.open.saturating_sub(1),
                _ => {}
            }
        }
        if !octet.is_ascii_whitespace() {
            self.last = Some(octet);
        }
    }

    /// Whether this can be all of an object. An empty line says nothing.
    fn is_whole(&self) -> bool {
        self.last.is_none_or(|last| last == b'}' && self.open == 0 && !self.is_in_string)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_is_cut_off_is_noticed_however_it_arrives() {
        // text -> whether all lines of it can be read, whether it ends within one, whether it has said anything
        let table = [
            ("", (true, false, false)),
            ("\n \r\n", (true, false, false)),
            ("{}\n", (true, false, true)),
            ("{\"a\":[1,{}]}\r\n\n{\"b\":\"\"} \n", (true, false, true)),
            (r#"{"a":"}{[\"\\","b":"\\\"]"}"#, (true, false, true)),
            ("{\"a\":\"\\\\\"}\n", (true, false, true)),
            (r#"{"a":{}"#, (true, true, true)),
            (r#""a"#, (true, true, true)),
            ("{\"a\":{}\n", (false, false, true)),
            ("{\"a\":\"}\n", (false, false, true)),
            ("{\"a\":\"\\\"}\n{}\n", (false, false, true)),
            ("{\"a\":1\n}\n", (false, false, true)),
            ("<html>\n", (false, false, true)),
            ("tru\n", (false, false, true)),
        ];
        for (text, expected) in table {
            for size in [1, 2, 5, 100] {
                let mut lines = Lines::default();
                let is_readable = text.as_bytes().chunks(size).all(|part| lines.read(part).is_ok());
                let is_within_one = is_readable && lines.is_within_one();
                assert_eq!((is_readable, is_within_one, lines.has_text()), expected, "{text:?} {size}");
            }
        }
    }

    #[test]
    fn only_the_end_of_a_line_that_says_something_is_noticed() {
        // parts, one after the other, and whether such a line ends in each
        let table: [&[(&str, bool)]; 3] = [
            &[("{}\n", true), ("", false), ("\n \r\n", false), ("{}\n\n", true)],
            &[("{\"a\"", false), (":\"\\n\"", false), ("}", false), ("\n", true)],
            &[("{}", false), ("\r\n{", true), ("}", false), (" \n{}\n{", true)],
        ];
        for parts in table {
            let mut lines = Lines::default();
            for (part, expected) in parts {
                assert_eq!(lines.read(part.as_bytes()).unwrap(), *expected, "{part:?} of {parts:?}");
            }
        }
    }

    #[test]
    fn a_line_has_an_end() {
        let mut lines = Lines::default();
        let text = vec![b'a'; LINE_MAX];
        lines.read(b"{}\n").unwrap();
        lines.read(&text).unwrap();
        assert!(matches!(lines.read(b"a"), Err(Garbled::Long(LINE_MAX))));
    }
}
