//! A consistent region: operators of a job that checkpoint, and go back, together.

use super::schema;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Names of operators of one kind that a region's spec lists; it has the number of all of them, too.
pub const LISTED_MEMBERS_MAX: usize = 1_024;

/// The state of a region of which too many resets in a row have failed. It rests until somebody asks for one.
pub const GIVEN_UP: &str = "MAXIMUM_RESET_ATTEMPTS_REACHED";

/// What a consistent region is. Written by the job controller only.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[kube(
    group = "streams.ibm.com",
    version = "v1",
    kind = "ConsistentRegion",
    plural = "streamscrs",
    singular = "streamscr",
    shortname = "stcr",
    category = "streams",
    namespaced,
    status = "ConsistentRegionStatus",
    derive = "PartialEq",
    doc = "A consistent region of a Streams job: operators that checkpoint, and go back, together.",
    printcolumn(name = "Job", type_ = "string", json_path = ".spec.jobName", description = "The job."),
    printcolumn(name = "Region", type_ = "integer", json_path = ".spec.index", description = "Index in the job."),
    printcolumn(
        name = "Trigger",
        type_ = "string",
        json_path = ".spec.trigger",
        description = "What asks for checkpoints."
    ),
    printcolumn(
        name = "Operators",
        type_ = "integer",
        json_path = ".spec.operatorCount",
        description = "Number of its operators."
    ),
    printcolumn(name = "State", type_ = "string", json_path = ".status.state", description = "What goes on in it."),
    printcolumn(
        name = "Checkpoint",
        type_ = "integer",
        json_path = ".status.lastCompletedCheckpoint",
        description = "Number of the checkpoint that a reset goes back to."
    ),
    printcolumn(
        name = "Resets",
        type_ = "integer",
        json_path = ".status.resetAttempts",
        description = "Resets begun since that checkpoint."
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(
        name = "PEs",
        type_ = "string",
        json_path = ".spec.peIds",
        description = "PEs with its operators.",
        priority = 1
    ),
    printcolumn(
        name = "Problem",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].message",
        description = "Why it processes no tuples.",
        priority = 1
    )
)]
#[serde(rename_all = "camelCase")]
pub struct ConsistentRegionSpec {
    /// Name of the job.
    #[schemars(length(min = 1, max = 56))]
    pub job_name: String,
    /// Number of the job in its namespace.
    pub job_id: u64,
    /// Index of the region in the job.
    pub index: u64,
    /// Index of the region in the application as written; the channels of a parallel region have regions of their own.
    pub logical_index: u64,
    /// What asks for checkpoints.
    pub trigger: RegionTrigger,
    /// Time between checkpoints, if they are periodic.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub period_milliseconds: Option<u64>,
    /// How long it may take to drain the region.
    pub drain_timeout_milliseconds: u64,
    /// How long it may take to reset the region.
    pub reset_timeout_milliseconds: u64,
    /// How often in a row a reset may fail.
    pub max_consecutive_reset_attempts: u32,
    /// Numbers of the PEs with operators of the region.
    #[schemars(length(max = 65_536))]
    pub pe_ids: Vec<u64>,
    /// Number of operators.
    pub operator_count: u32,
    /// Number of operators at which the region starts.
    pub start_operator_count: u32,
    /// Operators at which the region starts; the first of many.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 1_024), inner(length(max = 1024)))]
    pub start_operators: Vec<String>,
    /// Operators that may ask for checkpoints; the first of many.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 1_024), inner(length(max = 1024)))]
    pub trigger_operators: Vec<String>,
}

/// What asks for checkpoints of a consistent region.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum RegionTrigger {
    /// Time.
    #[default]
    Periodic,
    /// An operator.
    OperatorDriven,
}

/// What is known of a consistent region. Written by whoever drives it, before PEs are told what follows from it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ConsistentRegionStatus {
    /// What goes on in it: STARTED, PROCESSING, DRAINING, CHECKPOINT_PENDING, RESETTING, UNHEALTHY or
    /// MAXIMUM_RESET_ATTEMPTS_REACHED.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub state: Option<String>,
    /// Number of the checkpoint that a reset goes back to; 0 is the initial state of the operators.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_completed_checkpoint: Option<u64>,
    /// When it was completed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_completed_time: Option<Time>,
    /// Resets begun since then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reset_attempts: Option<u32>,
    /// Value of the annotation `streams.ibm.com/reset-requested` that was acted on last.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub reset_requested: Option<String>,
    /// All that is needed to go on, by whoever drives the region next. Its form is that of the frontend alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::anything")]
    pub record: Option<serde_json::Value>,
    /// `.metadata.generation` that the status was found out about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Conditions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::conditions")]
    pub conditions: Vec<Condition>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_of_listed_operators_is_the_one_of_the_schema() {
        let schema = serde_json::to_value(schemars::schema_for!(ConsistentRegionSpec)).unwrap();
        for list in ["startOperators", "triggerOperators"] {
            assert_eq!(schema["properties"][list]["maxItems"], LISTED_MEMBERS_MAX, "{list}");
        }
    }
}
