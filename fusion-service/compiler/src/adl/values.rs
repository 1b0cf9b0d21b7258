//! Reads typed values from attributes and texts, as tolerantly as the format demands (rule language-4).
//!
//! For a missing or malformed value, the reader records a problem and goes on with a default. So it finds all problems
//! at once (rule language-6). The caller does not compile such an application. If the problem is not about how parts
//! refer to each other, the caller may still check the rest with later stages (see [`super::read`]).

use super::xml::{Reader, XmlElement};
use crate::error::{Error, excerpt};
use std::borrow::Cow;

/// `xs:token`: no white space around, one blank between words.
pub(crate) fn token(text: &str) -> String {
    if text.starts_with(' ') || text.ends_with(' ') || text.contains("  ") || text.contains(['\n', '\t', '\r']) {
        text.split([' ', '\n', '\t', '\r']).filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ")
    } else {
        text.to_owned()
    }
}

/// `xs:boolean`; what is malformed reads as false.
pub(crate) fn boolean(text: &str) -> bool {
    matches!(text.trim(), "true" | "1")
}

/// An unsigned integer; blanks around it and a plus sign are accepted.
pub(crate) fn index(text: &str) -> Option<u64> {
    let text = text.trim_matches([' ', '\t', '\n', '\r']);
    let digits = text.strip_prefix('+').unwrap_or(text);
    (!digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit())).then(|| digits.parse().ok()).flatten()
}

impl<'a> Reader<'a> {
    fn absent(&mut self, element: &XmlElement<'a>, name: &str) {
        self.detail(element.place, format!("<{}>: the attribute {name} is missing", excerpt(element.name)));
    }

    fn wrong(&mut self, element: &XmlElement<'a>, name: &str, value: &str, expected: &str) {
        let (element, place, value) = (excerpt(element.name), element.place, excerpt(value));
        self.detail(place, format!("<{element}>: {name}=\"{value}\" is not {expected}"));
    }

    /// Records that `element` lacks a child that nothing refers to.
    pub(crate) fn lacks(&mut self, place: crate::error::Place, element: &str, child: &str) {
        self.detail(place, format!("<{element}>: the element <{child}> is missing"));
    }

    /// Records that `element` lacks a child that other parts refer to.
    pub(crate) fn lacks_target(&mut self, place: crate::error::Place, element: &str, child: &str) {
        self.coherent = false;
        self.lacks(place, element, child);
    }

    /// A required text, kept as it is.
    pub(crate) fn required_text(&mut self, element: &XmlElement<'a>, name: &str) -> String {
        match element.attribute(name) {
            Some(value) => value.clone().into_owned(),
            None => {
                self.absent(element, name);
                String::new()
            }
        }
    }

    /// A required token.
    pub(crate) fn required_token(&mut self, element: &XmlElement<'a>, name: &str) -> String {
        match element.attribute(name) {
            Some(value) => token(value),
            None => {
                self.absent(element, name);
                String::new()
            }
        }
    }

    /// A required token that something else refers to.
    pub(crate) fn required_name(&mut self, element: &XmlElement<'a>, name: &str) -> String {
        self.coherent &= element.attribute(name).is_some();
        self.required_token(element, name)
    }

    /// A required unsigned integer.
    pub(crate) fn required_index(&mut self, element: &XmlElement<'a>, name: &str) -> u64 {
        if element.attribute(name).is_none() {
            self.coherent = false;
            self.absent(element, name);
        }
        self.optional_index(element, name).unwrap_or_default()
    }

    /// An optional unsigned integer.
    pub(crate) fn optional_index(&mut self, element: &XmlElement<'a>, name: &str) -> Option<u64> {
        let value = element.attribute(name)?;
        let number = index(value);
        if number.is_none() {
            self.coherent = false;
            self.wrong(element, name, value, "an unsigned integer");
        }
        Some(number.unwrap_or_default())
    }

    /// An optional integer.
    pub(crate) fn optional_integer(&mut self, element: &XmlElement<'a>, name: &str) -> Option<i64> {
        let value = element.attribute(name)?;
        let number = value.trim().parse().ok();
        if number.is_none() {
            self.wrong(element, name, value, "an integer");
        }
        Some(number.unwrap_or_default())
    }

    /// An optional floating-point number.
    pub(crate) fn optional_number(&mut self, element: &XmlElement<'a>, name: &str) -> Option<f64> {
        let value = element.attribute(name)?;
        let number = match value.trim() {
            "INF" => Some(f64::INFINITY),
            "-INF" => Some(f64::NEG_INFINITY),
            text => text.parse().ok(),
        };
        if number.is_none() {
            self.wrong(element, name, value, "a number");
        }
        Some(number.unwrap_or_default())
    }

    /// A word of a list; it is not trimmed.
    pub(crate) fn choice<T: Copy>(&mut self, element: &XmlElement<'a>, name: &str, words: &[(&str, T)]) -> Option<T> {
        let Some(value) = element.attribute(name) else {
            self.absent(element, name);
            return None;
        };
        let found = words.iter().find(|(word, _)| *word == value).map(|(_, meaning)| *meaning);
        if found.is_none() {
            let list: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
            self.wrong(element, name, value, &format!("one of {}", list.join(", ")));
        }
        found
    }

    /// A word of a list, kept as text.
    pub(crate) fn word(&mut self, element: &XmlElement<'a>, name: &str, words: &[&'static str]) -> String {
        let words: Vec<(&str, &str)> = words.iter().map(|word| (*word, *word)).collect();
        self.choice(element, name, &words).unwrap_or_default().to_owned()
    }

    /// The content of `element`, which was just opened, as an unsigned integer.
    pub(crate) fn index_text(&mut self, element: &XmlElement<'a>) -> Result<u64, Error> {
        let text = self.text()?;
        let number = index(&text);
        if number.is_none() {
            self.wrong_text(element, &text, "an unsigned integer");
        }
        Ok(number.unwrap_or_default())
    }

    /// Records that the content of `element` is not as `expected`.
    pub(crate) fn wrong_text(&mut self, element: &XmlElement<'a>, text: &str, expected: &str) {
        let (name, place, text) = (excerpt(element.name), element.place, excerpt(text));
        self.problem(place, format!("<{name}>: \"{text}\" is not {expected}"));
    }
}

impl<'a> XmlElement<'a> {
    /// An optional text, kept as it is.
    pub(crate) fn optional_text(&self, name: &str) -> Option<String> {
        self.attribute(name).map(|value| value.clone().into_owned())
    }

    /// An optional token.
    pub(crate) fn optional_token(&self, name: &str) -> Option<String> {
        self.attribute(name).map(|value| token(value))
    }

    /// A boolean; false when it is malformed, `default` when it is absent.
    pub(crate) fn boolean_or(&self, name: &str, default: bool) -> bool {
        self.attribute(name).map_or(default, |value| boolean(value))
    }

    /// A boolean; false when it is absent, even where the schema requires it.
    pub(crate) fn boolean(&self, name: &str) -> bool {
        self.boolean_or(name, false)
    }
}

/// The owned text of an element.
pub(crate) fn owned(text: Cow<'_, str>) -> String {
    text.into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_collapsed() {
        for (text, expected) in [("a", "a"), (" a  b\n", "a b"), ("", ""), ("\t", ""), ("a b", "a b")] {
            assert_eq!(token(text), expected);
        }
    }

    #[test]
    fn indexes_are_unsigned() {
        for (text, expected) in [
            ("0", Some(0)),
            (" +7 ", Some(7)),
            ("18446744073709551615", Some(u64::MAX)),
            ("18446744073709551616", None),
            ("-1", None),
            ("one", None),
            ("", None),
            ("+", None),
            ("++1", None),
        ] {
            assert_eq!(index(text), expected, "{text}");
        }
    }

    #[test]
    fn malformed_booleans_are_false() {
        for (text, expected) in
            [("true", true), ("1", true), (" true", true), ("TRUE", false), ("false", false), ("x", false)]
        {
            assert_eq!(boolean(text), expected, "{text}");
        }
    }
}
