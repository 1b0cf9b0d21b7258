//! Names of entries: relative, and within the archive (rule bundle-5).

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
}
