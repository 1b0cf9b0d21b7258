//! Under which threading model a job's operators run.

use kube::KubeSchema;
use serde::{Deserialize, Serialize};
use std::num::NonZeroU32;

/// The threading model. The options exclude each other; without any of them the application decides.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new(
        "[has(self.automatic) && self.automatic, has(self.dedicated) && self.dedicated, has(self.manual) && self.manual, \
         has(self.dynamic)].filter(x, x).size() <= 1"
    ).message("automatic, dedicated, dynamic and manual threading exclude each other")
)]
pub struct ThreadingOptions {
    /// The runtime chooses the model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub automatic: Option<bool>,
    /// A thread for each input port.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dedicated: Option<bool>,
    /// Threads shared by the operators of a PE.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dynamic: Option<DynamicThreading>,
    /// Threads where the application declares them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub manual: Option<bool>,
}

/// Threads shared by the operators of a PE.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct DynamicThreading {
    /// Whether the number of threads adapts to the load.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub elastic: Option<bool>,
    /// Number of threads.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 65_536))]
    pub thread_count: Option<NonZeroU32>,
}

/// The model that [`ThreadingOptions`] ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThreadingModel<'a> {
    /// The runtime chooses.
    Automatic,
    /// A thread for each input port.
    Dedicated,
    /// Threads shared by the operators of a PE.
    Dynamic(&'a DynamicThreading),
    /// Threads where the application declares them.
    Manual,
}

impl ThreadingModel<'_> {
    /// The word the compiler knows the model by.
    pub fn name(self) -> &'static str {
        match self {
            Self::Automatic => "automatic",
            Self::Dedicated => "dedicated",
            Self::Dynamic(_) => "dynamic",
            Self::Manual => "manual",
        }
    }
}

impl ThreadingOptions {
    /// The model asked for, if any. The schema guarantees that there is at most one.
    pub fn model(&self) -> Option<ThreadingModel<'_>> {
        let set = |option: Option<bool>| option == Some(true);
        if set(self.automatic) {
            Some(ThreadingModel::Automatic)
        } else if set(self.dedicated) {
            Some(ThreadingModel::Dedicated)
        } else if let Some(dynamic) = &self.dynamic {
            Some(ThreadingModel::Dynamic(dynamic))
        } else {
            set(self.manual).then_some(ThreadingModel::Manual)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_model_follows_from_what_is_set() {
        let table = [
            (r#"{}"#, None),
            (r#"{"automatic": true}"#, Some("automatic")),
            (r#"{"automatic": false, "dedicated": true}"#, Some("dedicated")),
            (r#"{"dynamic": {"threadCount": 4}}"#, Some("dynamic")),
            (r#"{"manual": true}"#, Some("manual")),
            (r#"{"manual": false}"#, None),
        ];
        for (json, expected) in table {
            let options: ThreadingOptions = serde_json::from_str(json).unwrap();
            assert_eq!(options.model().map(ThreadingModel::name), expected, "{json}");
        }
    }
}
