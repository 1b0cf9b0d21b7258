//! A subscription: an input port of a PE that receives exported streams.

use super::schema;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What is subscribed to. Written by the job controller only.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[kube(
    group = "streams.ibm.com",
    version = "v1",
    kind = "Import",
    plural = "streamsimports",
    singular = "streamsimport",
    shortname = "sti",
    category = "streams",
    namespaced,
    status = "ImportStatus",
    derive = "PartialEq",
    doc = "Streams that a Streams job imports.",
    printcolumn(name = "Job", type_ = "string", json_path = ".spec.jobName", description = "The job."),
    printcolumn(name = "PE", type_ = "integer", json_path = ".spec.peId", description = "Number of the PE."),
    printcolumn(name = "Port", type_ = "integer", json_path = ".spec.portId", description = "Id of its input port."),
    printcolumn(
        name = "Subscription",
        type_ = "string",
        json_path = ".spec.streams.propertyBasedImport.subscription",
        description = "Which properties exported streams must have."
    ),
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].reason",
        description = "Whether it is connected to what it asks for."
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
        name = "Filter",
        type_ = "string",
        json_path = ".spec.streams.filter",
        description = "Which tuples it wants.",
        priority = 1
    )
)]
#[serde(rename_all = "camelCase")]
pub struct ImportSpec {
    /// Name of the job.
    #[schemars(length(min = 1, max = 56))]
    pub job_name: String,
    /// Number of the job in its namespace.
    pub job_id: u64,
    /// Name of the application.
    #[schemars(length(max = 1024))]
    pub application_name: String,
    /// Scope of the application.
    #[schemars(length(max = 1024))]
    pub application_scope: String,
    /// Number of the PE in its job.
    pub pe_id: u64,
    /// Id of the input port of the PE.
    pub port_id: u32,
    /// Index of the input port of the PE; the same as its id.
    pub port_index: u32,
    /// What it asks for.
    pub streams: ImportedStreams,
}

/// What an input port asks for: streams by name, streams by properties, or both.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ImportedStreams {
    /// Streams by name, under their decimal number.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 1024))]
    pub name_based_imports: BTreeMap<String, NameBasedImport>,
    /// Streams by properties.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub property_based_import: Option<PropertyBasedImport>,
    /// Which tuples it wants, as an SPL expression over their attributes.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 65_536))]
    pub filter: Option<String>,
}

/// A stream that is asked for by name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NameBasedImport {
    /// Name of the exporting application.
    #[schemars(length(max = 1024))]
    pub application_name: String,
    /// Its scope.
    #[schemars(length(max = 1024))]
    pub application_scope: String,
    /// Name of the stream.
    #[schemars(length(max = 1024))]
    pub stream_name: String,
    /// Name of the importing operator.
    #[schemars(length(max = 1024))]
    pub import_oper_name: String,
}

/// Streams that are asked for by their properties.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PropertyBasedImport {
    /// Which properties they must have, as an SPL expression.
    #[schemars(length(max = 65_536))]
    pub subscription: String,
    /// Scope of the exporting applications.
    #[schemars(length(max = 1024))]
    pub application_scope: String,
    /// Name of the importing operator.
    #[schemars(length(max = 1024))]
    pub import_oper_name: String,
    /// Index of the import among those of the application.
    pub index: u64,
}

/// What is known of a subscription.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ImportStatus {
    /// `.metadata.generation` that the status was found out about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// What was changed at run time; it goes before the spec, for as long as the object is there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_time: Option<ImportAtRunTime>,
    /// Conditions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::conditions")]
    pub conditions: Vec<Condition>,
}

/// What a PE has made of its subscription (rule import-5).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ImportAtRunTime {
    /// All that it asks for.
    pub streams: ImportedStreams,
}

impl Import {
    /// What it asks for: what it was changed to at run time, else what the application says.
    #[must_use]
    pub fn streams(&self) -> &ImportedStreams {
        let at_run_time = self.status.as_ref().and_then(|status| status.run_time.as_ref());
        at_run_time.map_or(&self.spec.streams, |changed| &changed.streams)
    }
}
