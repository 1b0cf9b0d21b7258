//! What can be the name of an object, and of a namespace (rule call-31).
//!
//! Names in what people and programs write, in requests and in objects, may be any text. Who looks for an object of
//! such a name asks here first: there is none of a name that no object can have, and nobody has to be asked.

/// Refuses what no object can be called: a subdomain as of RFC 1123 is needed.
///
/// # Errors
/// Why it is refused, as words that follow the name of the field.
pub fn check_object(name: &str) -> Result<(), &'static str> {
    if name.len() <= 253 && name.split('.').all(is_label) {
        return Ok(());
    }
    Err("the name of an object is needed: 1 to 253 lower-case letters, digits, '-' and '.', with a letter or digit at \
         each end of each part")
}

/// Refuses what no namespace can be called: a label as of RFC 1123 is needed.
///
/// # Errors
/// Why it is refused, as words that follow the name of the field.
pub fn check_namespace(name: &str) -> Result<(), &'static str> {
    if name.len() <= 63 && is_label(name) {
        return Ok(());
    }
    Err("the name of a namespace is needed: 1 to 63 lower-case letters, digits and '-', with a letter or digit at \
         each end")
}

fn is_label(text: &str) -> bool {
    let is_end = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    text.starts_with(is_end) && text.ends_with(is_end) && text.chars().all(|c| is_end(c) || c == '-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_that_the_api_server_takes() {
        let (label, long) = ("a".repeat(63), "a".repeat(64));
        let (most, more) = ([&*long; 3].join(".") + &".b".repeat(29), "a".repeat(254));
        // text -> an object, a namespace can be called so
        let table = [
            ("flow", true, true),
            ("0-flow-9", true, true),
            (&*label, true, true),
            (&*long, true, false),
            ("flow.a-b.0", true, false),
            (&*most, true, false),
            (&*more, false, false),
            ("", false, false),
            (".", false, false),
            ("..", false, false),
            ("a..b", false, false),
            ("a.", false, false),
            ("-a", false, false),
            ("a-", false, false),
            ("a.-b", false, false),
            ("Flow", false, false),
            ("a_b", false, false),
            ("a/b", false, false),
            ("a b", false, false),
            ("?watch=true&x", false, false),
            ("a#b", false, false),
            ("a%2fb", false, false),
            ("é", false, false),
        ];
        for (text, of_object, of_namespace) in table {
            let can_be = (check_object(text).is_ok(), check_namespace(text).is_ok());
            assert_eq!(can_be, (of_object, of_namespace), "{text}");
        }
    }
}
