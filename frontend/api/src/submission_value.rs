//! Submission-time values: a string, or an integer that stands for its plain text.

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::fmt;

/// Longest text of a value.
const TEXT_MAX: u32 = 65_536;

/// A value that the application reads when it is submitted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum SubmissionValue {
    /// An integer; the application gets its decimal text.
    Integer(i64),
    /// Text.
    Text(String),
}

impl fmt::Display for SubmissionValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Integer(value) => write!(f, "{value}"),
            Self::Text(value) => f.write_str(value),
        }
    }
}

impl JsonSchema for SubmissionValue {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "SubmissionValue".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "x-kubernetes-int-or-string": true, "maxLength": TEXT_MAX })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_their_plain_text() {
        let table = [
            ("3", Some("3")),
            ("-7", Some("-7")),
            (r#""3""#, Some("3")),
            (r#""a b""#, Some("a b")),
            ("true", None),
            ("1.5", None),
        ];
        for (json, expected) in table {
            let value = serde_json::from_str::<SubmissionValue>(json).ok().map(|value| value.to_string());
            assert_eq!(value.as_deref(), expected, "{json}");
        }
    }
}
