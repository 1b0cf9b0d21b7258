//! How PEs whose text a resize changes are restarted (rule job-49).

use kube::KubeSchema;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::fmt;

/// How PEs whose text a resize changes are restarted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct RolloutOptions {
    /// How many PEs a resize may have taken down at the same time: a number, or a percentage of the job's PEs, rounded
    /// down, but never less than one. PEs that are down already are restarted first, and do not count.
    #[serde(default)]
    pub max_unavailable: MaxUnavailable,
    /// How long a pod of the job must have been running until it counts as running. Not set: as the frontend says.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 86_400))]
    pub min_ready_seconds: Option<u32>,
}

/// A number of PEs, or a percentage of those of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Written", into = "Written")]
pub enum MaxUnavailable {
    /// So many.
    Count(u32),
    /// A hundredth of them so many times.
    Percent(u32),
}

impl MaxUnavailable {
    /// How many of `total` PEs that is; at least one, because otherwise nothing would ever be restarted.
    pub fn of(self, total: usize) -> usize {
        let count = match self {
            Self::Count(count) => usize::try_from(count).unwrap_or(usize::MAX),
            Self::Percent(percent) => total.saturating_mul(usize::try_from(percent).unwrap_or(usize::MAX)) / 100,
        };
        count.max(1)
    }
}

/// All PEs at once: they depend on each other, so that the interruption is shortest.
impl Default for MaxUnavailable {
    fn default() -> Self {
        Self::Percent(100)
    }
}

impl fmt::Display for MaxUnavailable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Count(count) => write!(f, "{count}"),
            Self::Percent(percent) => write!(f, "{percent}%"),
        }
    }
}

impl JsonSchema for MaxUnavailable {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "MaxUnavailable".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "x-kubernetes-int-or-string": true,
            "maxLength": 4,
            "x-kubernetes-validations": [{
                "rule": "type(self) == int ? self >= 1 && self <= 1000000 : self.matches('^([1-9][0-9]?|100)%$')",
                "message": "must be a number of PEs from 1, or a percentage from 1% to 100%"
            }]
        })
    }
}

/// The value as it is written.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Written {
    Count(u32),
    Text(String),
}

impl TryFrom<Written> for MaxUnavailable {
    type Error = String;

    fn try_from(written: Written) -> Result<Self, String> {
        match written {
            Written::Count(count) => Ok(Self::Count(count)),
            Written::Text(text) => {
                let percent = text.strip_suffix('%').and_then(|number| number.parse().ok());
                percent.map(Self::Percent).ok_or_else(|| format!("{text} is neither a number nor a percentage"))
            }
        }
    }
}

impl From<MaxUnavailable> for Written {
    fn from(value: MaxUnavailable) -> Self {
        match value {
            MaxUnavailable::Count(count) => Self::Count(count),
            MaxUnavailable::Percent(_) => Self::Text(value.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_or_a_percentage_is_at_least_one_pe() {
        // as it is written, PEs -> PEs that may be down
        let table = [
            ("1", 10, 1),
            ("20", 10, 20),
            (r#""25%""#, 10, 2),
            (r#""100%""#, 7, 7),
            (r#""1%""#, 10, 1),
            (r#""50%""#, 0, 1),
        ];
        for (json, total, expected) in table {
            let value: MaxUnavailable = serde_json::from_str(json).unwrap();
            assert_eq!(value.of(total), expected, "{json}");
            assert_eq!(serde_json::to_string(&value).unwrap(), json);
        }
        for json in [r#""5""#, r#""-5%""#, r#""%""#, "1.5", "-1", "true"] {
            assert!(serde_json::from_str::<MaxUnavailable>(json).is_err(), "{json}");
        }
        let options: RolloutOptions = serde_json::from_str("{}").unwrap();
        assert_eq!(options.max_unavailable.to_string(), "100%");
    }
}
