//! How a job's operators are grouped into PEs.

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::num::NonZeroU32;

/// How operators are grouped into PEs. `automatic`, `legacy` and `manual` exclude each other; without any of them
/// fusion is automatic.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new(
        "[has(self.automatic) && self.automatic, has(self.legacy) && self.legacy, has(self.manual)].filter(x, x).size() <= 1"
    ).message("automatic, legacy and manual fusion exclude each other"),
    validation = Rule::new(
        "!has(self.automatic) || self.automatic || (has(self.legacy) && self.legacy) || has(self.manual)"
    ).message("automatic fusion is switched off: choose legacy or manual fusion")
)]
pub struct FusionOptions {
    /// What fusion does with the channels of parallel regions. Not set: `noChannelInfluence`. Without effect for legacy
    /// fusion.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub fusion_type: Option<FusionType>,
    /// Derive the number of PEs from the application and the cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub automatic: Option<bool>,
    /// One PE for each group of operators that the application wants together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub legacy: Option<bool>,
    /// Use about this number of PEs; constraints of the application may require more.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 200_000))]
    pub manual: Option<NonZeroU32>,
}

/// The kind of fusion that [`FusionOptions`] ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FusionMode {
    /// A number of PEs derived from the application and the cluster.
    Automatic,
    /// One PE for each group of operators.
    Legacy,
    /// About this number of PEs.
    Manual(NonZeroU32),
}

impl FusionOptions {
    /// The kind of fusion asked for. The schema guarantees that there is at most one.
    pub fn mode(&self) -> FusionMode {
        match (self.manual, self.legacy) {
            (Some(count), _) => FusionMode::Manual(count),
            (None, Some(true)) => FusionMode::Legacy,
            (None, _) => FusionMode::Automatic,
        }
    }
}

/// What fusion does with the channels of parallel regions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum FusionType {
    /// Operators in parallel regions are treated like any other.
    NoChannelInfluence,
    /// Operators of a channel are fused with operators of the same channel only.
    ChannelIsolation,
    /// Operators of different channels are not fused together.
    ChannelExlocation,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mode_follows_from_what_is_set() {
        let table = [
            (r#"{}"#, FusionMode::Automatic),
            (r#"{"automatic": true}"#, FusionMode::Automatic),
            (r#"{"type": "channelIsolation"}"#, FusionMode::Automatic),
            (r#"{"legacy": false}"#, FusionMode::Automatic),
            (r#"{"legacy": true}"#, FusionMode::Legacy),
            (r#"{"legacy": true, "automatic": false}"#, FusionMode::Legacy),
            (r#"{"manual": 3}"#, FusionMode::Manual(NonZeroU32::new(3).unwrap())),
        ];
        for (json, expected) in table {
            let options: FusionOptions = serde_json::from_str(json).unwrap();
            assert_eq!(options.mode(), expected, "{json}");
        }
    }
}
