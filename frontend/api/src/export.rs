//! An exported stream: an output port of a PE whose tuples other jobs, or the same one, may subscribe to.

use super::schema;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What is exported. Written by the job controller only.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[kube(
    group = "streams.ibm.com",
    version = "v1",
    kind = "Export",
    plural = "streamsexports",
    singular = "streamsexport",
    shortname = "stx",
    category = "streams",
    namespaced,
    status = "ExportStatus",
    derive = "PartialEq",
    doc = "A stream that a Streams job exports.",
    printcolumn(name = "Job", type_ = "string", json_path = ".spec.jobName", description = "The job."),
    printcolumn(name = "PE", type_ = "integer", json_path = ".spec.peId", description = "Number of the PE."),
    printcolumn(name = "Port", type_ = "integer", json_path = ".spec.portId", description = "Id of its output port."),
    printcolumn(name = "Type", type_ = "string", json_path = ".spec.type", description = "How it is found."),
    printcolumn(
        name = "Stream",
        type_ = "string",
        json_path = ".spec.stream.name",
        description = "Name of the stream."
    ),
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].reason",
        description = "Whether it is connected to its subscribers."
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(
        name = "Application",
        type_ = "string",
        json_path = ".spec.applicationName",
        description = "The application.",
        priority = 1
    ),
    printcolumn(
        name = "Operator",
        type_ = "string",
        json_path = ".spec.stream.exportOperName",
        description = "The exporting operator.",
        priority = 1
    )
)]
#[serde(rename_all = "camelCase")]
pub struct ExportSpec {
    /// Name of the job.
    #[schemars(length(min = 1, max = 56))]
    pub job_name: String,
    /// Number of the job in its namespace.
    pub job_id: u64,
    /// Name of the application, which subscriptions by name may ask for.
    #[schemars(length(max = 1024))]
    pub application_name: String,
    /// Scope of the application: only subscriptions of this scope find the stream.
    #[schemars(length(max = 1024))]
    pub application_scope: String,
    /// Number of the PE in its job.
    pub pe_id: u64,
    /// Id of the output port of the PE.
    pub port_id: u32,
    /// How subscribers find it.
    #[serde(rename = "type")]
    pub export_type: ExportType,
    /// The stream.
    pub stream: ExportedStream,
}

/// How subscribers find an exported stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ExportType {
    /// By its name.
    ByName,
    /// By its properties.
    #[default]
    ByProperties,
}

/// An exported stream.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExportedStream {
    /// Name of the exporting operator.
    #[schemars(length(max = 1024))]
    pub export_oper_name: String,
    /// Name of the stream.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub name: Option<String>,
    /// Properties of the stream.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 1_024))]
    pub properties: Vec<StreamProperty>,
    /// Whether a subscriber may have tuples filtered before they are sent.
    #[serde(default)]
    pub allow_filter: bool,
    /// What happens while a subscriber is slow.
    #[serde(default)]
    pub congestion_policy: CongestionPolicy,
}

/// A property of an exported stream.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StreamProperty {
    /// Its name.
    #[schemars(length(min = 1, max = 1024))]
    pub name: String,
    /// Its type, as SPL writes it.
    #[serde(rename = "type")]
    #[schemars(length(max = 64))]
    pub property_type: String,
    /// Its values as SPL literals; a scalar has one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 1_024), inner(length(max = 65_536)))]
    pub values: Vec<String>,
}

/// What happens while a subscriber is slow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum CongestionPolicy {
    /// The exporting operator waits.
    #[default]
    Wait,
    /// The connection is closed.
    DropConnection,
}

/// What is known of an exported stream.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExportStatus {
    /// `.metadata.generation` that the status was found out about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// What was changed at run time; it goes before the spec, for as long as the object is there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_time: Option<ExportAtRunTime>,
    /// Conditions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::conditions")]
    pub conditions: Vec<Condition>,
}

/// What a PE has made of its exported stream (rule import-5).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExportAtRunTime {
    /// All properties of the stream.
    #[serde(default)]
    #[schemars(length(max = 1_024))]
    pub properties: Vec<StreamProperty>,
}

impl Export {
    /// The properties in force: those of the run time, else those of the application. `None` if the stream is found by
    /// its name, and has none.
    #[must_use]
    pub fn properties(&self) -> Option<&[StreamProperty]> {
        let at_run_time = self.status.as_ref().and_then(|status| status.run_time.as_ref());
        (self.spec.export_type == ExportType::ByProperties)
            .then(|| at_run_time.map_or(&*self.spec.stream.properties, |changed| &*changed.properties))
    }
}
