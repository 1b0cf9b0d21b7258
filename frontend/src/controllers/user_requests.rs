//! What users ask of a PE by annotations, in the form in which its status remembers it (rules pe-13 and pe-21).
//!
//! Both controllers compare the two: the PE controller acts on a new value, and the job controller foresees that it
//! does.
//!
//! Knows: the bound of the schema. Must not know: what is asked for.

use streams_kubernetes::watch::trimmed;

/// The value of such an annotation as the status has it once it was acted on: its digest if it does not fit the schema
/// (1,024 bytes). A mirror has the digest of a long one already.
pub(crate) fn remembered(value: &str) -> String {
    trimmed::digest_of_long(value).unwrap_or_else(|| value.to_owned())
}

/// Whether this is asked for, and was not acted on yet.
pub(crate) fn is_new(requested: Option<&String>, acted_on: Option<&String>) -> bool {
    requested.is_some_and(|requested| Some(&remembered(requested)) != acted_on)
}

#[cfg(test)]
mod tests {
    use super::*;

    const VALUE_MAX: usize = 1024;

    #[test]
    fn a_value_is_new_until_the_status_has_it_however_long_it_is() {
        let (short, long) = ("s".repeat(VALUE_MAX), "l".repeat(VALUE_MAX + 1));
        for value in ["", "1", &short, &long] {
            let (value, other) = (value.to_owned(), "another".to_owned());
            let acted_on = remembered(&value);
            assert!(acted_on.len() <= VALUE_MAX, "it fits the status");
            let table = [
                (None, None, false),
                (None, Some(&acted_on), false),
                (Some(&value), None, true),
                (Some(&other), Some(&acted_on), true),
                (Some(&value), Some(&acted_on), false),
            ];
            for (requested, known, expected) in table {
                assert_eq!(is_new(requested, known), expected, "{} bytes, {known:?}", value.len());
            }
        }
    }
}
