//! A host pool of a job: hosts that PEs may be placed on (rules placement-3 and placement-4).

use super::schema;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What a host pool is. Written by the job controller only.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[kube(
    group = "streams.ibm.com",
    version = "v1",
    kind = "HostPool",
    plural = "streamshostpools",
    singular = "streamshostpool",
    shortname = "sthp",
    category = "streams",
    namespaced,
    status = "HostPoolStatus",
    derive = "PartialEq",
    doc = "A host pool of a Streams job: hosts that its processing elements may be placed on.",
    printcolumn(name = "Job", type_ = "string", json_path = ".spec.jobName", description = "The job."),
    printcolumn(
        name = "Pool",
        type_ = "string",
        json_path = ".spec.name",
        description = "Name of the pool in the application."
    ),
    printcolumn(
        name = "Mode",
        type_ = "string",
        json_path = ".spec.membershipMode",
        description = "Whether hosts are shared with other jobs."
    ),
    printcolumn(name = "Size", type_ = "integer", json_path = ".spec.size", description = "Number of hosts."),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(
        name = "Tags",
        type_ = "string",
        json_path = ".spec.tags",
        description = "What hosts must have.",
        priority = 1
    ),
    printcolumn(name = "Hosts", type_ = "string", json_path = ".spec.hosts", description = "The hosts.", priority = 1)
)]
#[serde(rename_all = "camelCase")]
pub struct HostPoolSpec {
    /// Name of the job.
    #[schemars(length(min = 1, max = 56))]
    pub job_name: String,
    /// Index of the pool in the job.
    pub index: u64,
    /// Name of the pool in the application.
    #[schemars(length(min = 1, max = 1024))]
    pub name: String,
    /// Whether hosts are shared with other jobs.
    #[serde(default)]
    pub membership_mode: MembershipMode,
    /// Number of hosts. Not set: as many as are needed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    /// Names or addresses of the hosts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 1_024), inner(length(max = 1_024)))]
    pub hosts: Vec<String>,
    /// What hosts must have: each of these tags.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(max = 1_024)))]
    pub tags: Vec<String>,
}

/// Whether hosts are shared with other jobs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum MembershipMode {
    /// PEs of other jobs may run on the same hosts.
    #[default]
    Shared,
    /// No PEs of other jobs on the same hosts.
    Exclusive,
}

/// What is known of a host pool. Written by the host pool controller only.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HostPoolStatus {
    /// `.metadata.generation` that the status was found out about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Conditions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::conditions")]
    pub conditions: Vec<Condition>,
}
