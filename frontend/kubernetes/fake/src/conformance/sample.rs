//! A custom resource for the cases.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{CustomResource, CustomResourceExt};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What is wanted.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(group = "test.streams.ibm.com", version = "v1", kind = "Sample", namespaced, status = "SampleStatus")]
pub struct SampleSpec {
    /// A number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub width: Option<u32>,
    /// A text that is `null` where it is not set.
    pub text: Option<String>,
    /// Values by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub values: BTreeMap<String, String>,
    /// A list that is a value.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<String>,
}

/// What is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SampleStatus {
    /// A number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub width: Option<u32>,
}

/// The definition of the kind [`Sample`], for a server that wants to know it.
pub fn crd() -> CustomResourceDefinition {
    Sample::crd()
}
