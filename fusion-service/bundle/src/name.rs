//! Names of entries: relative, and within the archive (rule bundle-5).

use std::fmt::{self, Display, Write};

/// A name that leads out of its archive; the beginning of it, for a message.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Unsafe(pub(crate) String);

/// The name without `.`, empty and trailing components: `./a//b/` is `a/b`.
///
/// Refused are absolute names, `..`, and names with a NUL.
pub(crate) fn normalized(name: &[u8]) -> Result<Vec<u8>, Unsafe> {
    let components = || name.split(|octet| *octet == b'/');
    if name.starts_with(b"/") || name.contains(&0) || components().any(|component| component == b"..") {
        return Err(Unsafe(shown(name)));
    }
    let mut normalized = Vec::with_capacity(name.len());
    for component in components().filter(|component| !component.is_empty() && component != b".") {
        if !normalized.is_empty() {
            normalized.push(b'/');
        }
        normalized.extend_from_slice(component);
    }
    Ok(normalized)
}

/// The beginning of a name for a message.
pub(crate) fn shown(name: &[u8]) -> String {
    const SHOWN: usize = 120;
    match name.get(..SHOWN) {
        Some(beginning) => format!("{}...", String::from_utf8_lossy(beginning)),
        None => String::from_utf8_lossy(name).into_owned(),
    }
}

/// The beginning of what a parser says, for a message: it repeats names, which may be as long as the document. What is
/// left out is not even written into memory.
pub(crate) fn beginning(words: impl Display) -> String {
    let mut beginning = Beginning(String::new());
    // Fails where it has enough.
    let _ = write!(beginning, "{words}");
    beginning.0
}

struct Beginning(String);

impl Write for Beginning {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        const MOST: usize = 300;
        let left = MOST.saturating_sub(self.0.len());
        if text.len() <= left {
            self.0.push_str(text);
            return Ok(());
        }
        self.0.push_str(&text[..text.floor_char_boundary(left)]);
        self.0.push_str("...");
        Err(fmt::Error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        let table = [
            ("a", Some("a")),
            ("./a//b/./c/", Some("a/b/c")),
            (".", Some("")),
            ("a/..b/c..", Some("a/..b/c..")),
            ("/a", None),
            ("../a", None),
            ("a/../b", None),
            ("a/..", None),
            ("a\0b", None),
        ];
        for (name, expected) in table {
            assert_eq!(normalized(name.as_bytes()).ok().as_deref(), expected.map(str::as_bytes), "{name:?}");
        }
        assert!(normalized(&[b'/'; 1_000]).unwrap_err().0.len() < 200);
    }

    #[test]
    fn words() {
        assert_eq!(beginning(format_args!("{}, {}", "x".repeat(297), 1)), format!("{}, 1", "x".repeat(297)));
        assert_eq!(beginning("ö".repeat(151)), format!("{}...", "ö".repeat(150)));
        assert_eq!(beginning(format_args!("x{}{}", "ö".repeat(150), 1)), format!("x{}...", "ö".repeat(149)));
    }
}
