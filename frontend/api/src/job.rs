//! A job: an application bundle, how it is compiled, and how it runs. What can be edited is said by rule job-31.
//!
//! Knows: the schema, which fields contradict each other or cannot be edited. Must not know: how a job comes to run.

use super::pe_options::ImagePullPolicy;
use super::{
    BundleReference, FusionOptions, JobStatus, MaxUnavailable, PeOptions, RolloutOptions, SubmissionValue,
    ThreadingOptions, schema,
};
use k8s_openapi::api::core::v1::ResourceRequirements;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;

/// What a user wants to run.
///
/// What compilation depends on cannot be edited once the job has a generation, nor the security of the transport and
/// new redis servers. Other options of PEs take effect when a PE next starts, the rest at once.
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, KubeSchema)]
#[kube(
    group = "streams.ibm.com",
    version = "v1",
    kind = "Job",
    plural = "streamsjobs",
    singular = "streamsjob",
    shortname = "stj",
    category = "streams",
    namespaced,
    status = "JobStatus",
    derive = "PartialEq",
    doc = "A Streams job: an application that runs as one pod per processing element.",
    validation = Rule::new("self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$') && self.metadata.name.size() <= 56")
        .message("the name of a job must be a DNS label of at most 56 characters that starts with a letter: Services are named after it"),
    validation = Rule::new("self.metadata.name != 'streams-job-ids'")
        .message("no job can be called streams-job-ids: the ConfigMap of this name counts the jobs of its namespace"),
    validation = Rule::new(unchanged("bundle")).message(pinned("bundle")).reason(Reason::FieldValueForbidden).field_path(".spec.bundle"),
    validation = Rule::new(unchanged("fusion")).message(pinned("fusion")).reason(Reason::FieldValueForbidden).field_path(".spec.fusion"),
    validation = Rule::new(unchanged("threadingModel")).message(pinned("threadingModel")).reason(Reason::FieldValueForbidden).field_path(".spec.threadingModel"),
    validation = Rule::new(unchanged("submissionTimeValues")).message(pinned("submissionTimeValues")).reason(Reason::FieldValueForbidden).field_path(".spec.submissionTimeValues"),
    validation = Rule::new(at_submission("!has(r.minWidth) || !has(r.width) || r.minWidth <= r.width"))
        .message("width must not be less than minWidth").field_path(".spec.parallelRegions"),
    validation = Rule::new(at_submission("!has(r.maxWidth) || !has(r.width) || r.width <= r.maxWidth"))
        .message("width must not be greater than maxWidth").field_path(".spec.parallelRegions"),
    validation = Rule::new(entries_unchanged("width")).message(widths_pinned()).reason(Reason::FieldValueForbidden).field_path(".spec.parallelRegions"),
    validation = Rule::new(entries_unchanged("channelCount")).message(pinned("the channelCount of parallelRegions")).reason(Reason::FieldValueForbidden).field_path(".spec.parallelRegions"),
    validation = Rule::new(APP_TRACE_LEVEL_UNCHANGED).message(pinned("processingElement.appTraceLevel")).reason(Reason::FieldValueForbidden).field_path(".spec.processingElement"),
    validation = Rule::new(TRANSPORT_SECURITY_UNCHANGED).message(pinned("processingElement.transportSecurityType"))
        .reason(Reason::FieldValueForbidden).field_path(".spec.processingElement.transportSecurityType"),
    validation = Rule::new(no_other_redis("checkpointRepository")).message(redis_settled("checkpointRepository"))
        .reason(Reason::FieldValueForbidden).field_path(".spec.processingElement.checkpointRepository"),
    validation = Rule::new(no_other_redis("checkpointDataStore")).message(redis_settled("checkpointDataStore"))
        .reason(Reason::FieldValueForbidden).field_path(".spec.processingElement.checkpointDataStore"),
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase", description = "What the job does."),
    printcolumn(
        name = "Generation",
        type_ = "integer",
        json_path = ".status.generation",
        description = "Committed generation: 0 after the submission, one more after each resize."
    ),
    printcolumn(
        name = "PEs",
        type_ = "integer",
        json_path = ".status.statistics.processingElements",
        description = "Number of PEs of the generation."
    ),
    printcolumn(
        name = "Ready",
        type_ = "integer",
        json_path = ".status.statistics.readyProcessingElements",
        description = "Number of PEs that run what the generation wants."
    ),
    printcolumn(
        name = "Completed",
        type_ = "integer",
        json_path = ".status.statistics.completedProcessingElements",
        description = "Number of PEs that are done."
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(
        name = "Connected",
        type_ = "integer",
        json_path = ".status.statistics.connectedProcessingElements",
        description = "Number of PEs that have all of their connections.",
        priority = 1
    ),
    printcolumn(name = "Bundle", type_ = "string", json_path = ".status.adl.sabName", description = "Name of the bundle.", priority = 1),
    printcolumn(name = "Id", type_ = "integer", json_path = ".status.jobId", description = "Number of the job in its namespace.", priority = 1),
    printcolumn(name = "Fusion", type_ = "string", json_path = ".status.fusion.mode", description = "Kind of fusion.", priority = 1),
    printcolumn(
        name = "Submitted",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Submitted\")].reason",
        description = "How the submission went.",
        priority = 1
    )
)]
#[serde(rename_all = "camelCase")]
pub struct JobSpec {
    /// The application bundle.
    pub bundle: BundleReference,
    /// How operators are grouped into PEs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fusion: Option<FusionOptions>,
    /// When the runtime image is pulled.
    #[serde(default)]
    pub image_pull_policy: ImagePullPolicy,
    /// Secret for pulling the runtime image.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    #[x_kube(validation = Rule::new(schema::OBJECT_NAME).message(schema::OBJECT_NAME_SAYS))]
    pub image_pull_secret: Option<String>,
    /// Widths of parallel regions at submission, their bounds, and whether operators ask for the number of channels. An
    /// exact name beats a pattern; among patterns the last wins; for each of these alone, among the entries that have
    /// it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 128))]
    #[x_kube(validation = Rule::new(
        "self.all(a, self.exists_one(b, (has(a.name) ? a.name : a.alias) == (has(b.name) ? b.name : b.alias)))"
    ).message("each region or pattern may be named once"))]
    pub parallel_regions: Vec<InitialWidth>,
    /// Options of the PEs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub processing_element: Option<PeOptions>,
    /// Compute resources of the whole job, divided by the number of PEs. They go before resources of
    /// `processingElement`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::resources")]
    pub resources: Option<ResourceRequirements>,
    /// How PEs whose text a resize changes are restarted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rollout: Option<RolloutOptions>,
    /// No pods run while this is true; everything else stays, and can be changed. Afterwards the pods start again.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub suspend: bool,
    /// How long the frontend may work on a submission.
    #[serde(default = "default_time_out")]
    #[schemars(range(min = 1, max = 86_400))]
    pub submission_time_out_in_seconds: u32,
    /// Values that the application reads at submission: strings, or integers that stand for their plain text.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 1024))]
    pub submission_time_values: BTreeMap<String, SubmissionValue>,
    /// The threading model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub threading_model: Option<ThreadingOptions>,
    /// How long the certificate for connections between PEs is valid.
    #[serde(default = "default_validity")]
    #[schemars(range(min = 1, max = 3_650))]
    pub transport_certificate_validity_in_days: u32,
}

impl JobSpec {
    /// A job of this bundle with the default of every option.
    pub fn of(bundle: BundleReference) -> Self {
        Self {
            bundle,
            fusion: None,
            image_pull_policy: ImagePullPolicy::default(),
            image_pull_secret: None,
            parallel_regions: Vec::new(),
            processing_element: None,
            resources: None,
            rollout: None,
            suspend: false,
            submission_time_out_in_seconds: default_time_out(),
            submission_time_values: BTreeMap::new(),
            threading_model: None,
            transport_certificate_validity_in_days: default_validity(),
        }
    }

    /// How long the frontend may work on a submission.
    pub fn submission_time_out(&self) -> Duration {
        Duration::from_secs(self.submission_time_out_in_seconds.into())
    }

    /// How many PEs a roll-out may have taken down at the same time.
    pub fn max_unavailable(&self) -> MaxUnavailable {
        self.rollout.as_ref().map(|rollout| rollout.max_unavailable).unwrap_or_default()
    }

    /// How long a pod of the job must have been running until it counts as running; `None`: as the frontend says.
    pub fn min_ready(&self) -> Option<Duration> {
        let seconds = self.rollout.as_ref()?.min_ready_seconds?;
        Some(Duration::from_secs(seconds.into()))
    }

    /// Options of the PEs, with defaults where the user set none.
    pub fn pe_options(&self) -> PeOptions {
        self.processing_element.clone().unwrap_or_default()
    }
}

fn default_time_out() -> u32 {
    300
}

fn default_validity() -> u32 {
    30
}

/// Width of a region, or of all regions that a pattern matches.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("has(self.name) != has(self.alias)")
        .message("name a region by its name (alias is an older word for the same)").reason(Reason::FieldValueRequired),
    validation = Rule::new("!has(self.minWidth) || !has(self.maxWidth) || self.minWidth <= self.maxWidth")
        .message("minWidth must not be greater than maxWidth").field_path(".minWidth"),
    validation = Rule::new("has(self.width) || has(self.minWidth) || has(self.maxWidth) || has(self.channelCount) || has(self.coolDownSeconds)")
        .message("set a width, bounds, coolDownSeconds or channelCount").reason(Reason::FieldValueRequired)
)]
pub struct InitialWidth {
    /// Logical name of the region's operator, or a pattern in which `*` stands for any text, e.g. `*.Region1`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 256))]
    pub name: Option<String>,
    /// Other name of `name`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 256))]
    pub alias: Option<String>,
    /// Number of channels at submission. Not set: what the application says.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 10_000))]
    pub width: Option<u32>,
    /// Smallest width that a resize may ask for.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 10_000))]
    pub min_width: Option<u32>,
    /// Largest width that a resize may ask for.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 10_000))]
    pub max_width: Option<u32>,
    /// How long the width stays after it has changed, whoever wants another one; up to a day. Not set: it may change at
    /// once.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 86_400))]
    pub cool_down_seconds: Option<u32>,
    /// Whether operators of the region ask how many channels it has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub channel_count: Option<ChannelCount>,
}

/// Whether operators of the region ask how many channels it has. `Observed` (the default): they may, so PEs with
/// operators of the region restart when its width changes. `Ignored`: the user states that they do not; then only PEs
/// that can tell otherwise restart, which channels of a region that is in no other one cannot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ChannelCount {
    /// They may.
    Observed,
    /// The user states that they do not.
    Ignored,
}

impl InitialWidth {
    /// The region's name, or the pattern, under either of the option's names.
    pub fn name(&self) -> &str {
        self.name.as_deref().or(self.alias.as_deref()).unwrap_or_default()
    }
}

/// `spec.<field>` does not change once the job has a generation (rule job-31).
fn unchanged(field: &str) -> String {
    format!(
        "!has(oldSelf.status) || !has(oldSelf.status.generation) || \
         (has(self.spec.{field}) == has(oldSelf.spec.{field}) && (!has(self.spec.{field}) || self.spec.{field} == oldSelf.spec.{field}))"
    )
}

/// Entries of `parallelRegions` with this field keep it, their names and their order, which matters among patterns.
/// Bounds, and entries that have nothing else, come and go (rule job-31).
fn entries_unchanged(field: &str) -> String {
    let entries = |of: &str, what: &str| {
        let list = format!("{of}.spec.parallelRegions");
        format!("(has({list}) ? {list}.filter(r, has(r.{field})).map(r, {what}) : [])")
    };
    let (value, name) = (format!("r.{field}"), "has(r.name) ? r.name : r.alias");
    format!(
        "!has(oldSelf.status) || !has(oldSelf.status.generation) || ({} == {} && {} == {})",
        entries("self", &value),
        entries("oldSelf", &value),
        entries("self", name),
        entries("oldSelf", name)
    )
}

/// The trace level of the application is part of every AADL.
const APP_TRACE_LEVEL_UNCHANGED: &str = "!has(oldSelf.status) || !has(oldSelf.status.generation) || \
     (has(self.spec.processingElement) && has(self.spec.processingElement.appTraceLevel) ? self.spec.processingElement.appTraceLevel : '') == \
     (has(oldSelf.spec.processingElement) && has(oldSelf.spec.processingElement.appTraceLevel) ? oldSelf.spec.processingElement.appTraceLevel : '')";

/// PEs with and without transport security do not understand each other. A job that names another one than it was
/// submitted with, since before this rule was there, may go back to `none`.
const TRANSPORT_SECURITY_UNCHANGED: &str = "!has(oldSelf.status) || !has(oldSelf.status.generation) || \
     (has(self.spec.processingElement) && has(self.spec.processingElement.transportSecurityType) ? \
     self.spec.processingElement.transportSecurityType : 'none') == \
     (has(oldSelf.spec.processingElement) && has(oldSelf.spec.processingElement.transportSecurityType) ? \
     oldSelf.spec.processingElement.transportSecurityType : 'none') || (!has(oldSelf.status.transport) && \
     (!has(self.spec.processingElement) || !has(self.spec.processingElement.transportSecurityType) || \
     self.spec.processingElement.transportSecurityType == 'none'))";

/// This holds for each entry `r` of `parallelRegions` when the job is submitted. Afterwards the width of the submission
/// says nothing of the one in force, and bounds are about that (rule job-31). An entry costs the API server a few
/// comparisons of numbers, and there are 128.
fn at_submission(holds: &str) -> String {
    format!(
        "(has(self.status) && has(self.status.generation)) || !has(self.spec.parallelRegions) || \
         self.spec.parallelRegions.all(r, {holds})"
    )
}

/// The names of the option that says where checkpoints are kept.
const CHECKPOINTS: [&str; 2] = ["checkpointRepository", "checkpointDataStore"];

/// The servers of checkpoints are found at the submission. A job that names some since before this rule was there keeps
/// them, under either name of the option; one that was submitted with some, and names none, may name some again: the
/// frontend says whether they are the same (rule job-39). `option` is the name that the option has.
///
/// Fields are compared one by one: what has two names has two types.
fn no_other_redis(option: &str) -> String {
    let has_redis = |of: &str, option: &str| {
        format!(
            "(has({of}.spec.processingElement) && has({of}.spec.processingElement.{option}) && \
             has({of}.spec.processingElement.{option}.redis))"
        )
    };
    let now = format!("self.spec.processingElement.{option}.redis");
    let is_as_under = |other: &str| {
        let before = format!("oldSelf.spec.processingElement.{other}.redis");
        let property = "restrictedProperty";
        format!(
            "({} && {now}.service == {before}.service && {now}.replicaCount == {before}.replicaCount && \
             {now}.shardCount == {before}.shardCount && {now}.shuffle == {before}.shuffle && \
             has({now}.{property}) == has({before}.{property}) && \
             (!has({now}.{property}) || {now}.{property} == {before}.{property}))",
            has_redis("oldSelf", other)
        )
    };
    let [one, other] = CHECKPOINTS;
    format!(
        "!has(oldSelf.status) || !has(oldSelf.status.generation) || !{} || {} || {} || \
         (!{} && !{} && has(oldSelf.status.redisConfiguration))",
        has_redis("self", option),
        is_as_under(one),
        is_as_under(other),
        has_redis("oldSelf", one),
        has_redis("oldSelf", other)
    )
}

fn redis_settled(option: &str) -> kube::core::Message {
    let what = format!("processingElement.{option}.redis cannot be added or changed once the job is submitted");
    kube::core::Message::Message(format!("{what}: its servers are found at the submission"))
}

fn widths_pinned() -> kube::core::Message {
    let what = "the widths of parallelRegions cannot be edited once the job is submitted";
    kube::core::Message::Message(format!("{what}: scale a streamspr (kubectl scale), or create another job"))
}

fn pinned(what: &str) -> kube::core::Message {
    kube::core::Message::Message(format!("{what} cannot be edited once the job is submitted: create another job"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_that_sets_nothing_but_its_bundle_has_the_defaults_of_the_table() {
        let spec: JobSpec = serde_json::from_str(r#"{"bundle": {"name": "a.sab"}}"#).unwrap();
        let bundle = BundleReference { name: Some("a.sab".to_owned()), ..BundleReference::default() };
        assert_eq!(spec, JobSpec::of(bundle));
        let json = serde_json::json!({
            "bundle": {"name": "a.sab", "pullPolicy": "IfNotPresent"}, "imagePullPolicy": "Always",
            "submissionTimeOutInSeconds": 300, "transportCertificateValidityInDays": 30,
        });
        assert_eq!(serde_json::to_value(spec).unwrap(), json);
    }

    #[test]
    fn a_region_is_named_by_name_or_alias() {
        for json in [r#"{"name": "R", "width": 2}"#, r#"{"alias": "R", "width": 2}"#] {
            assert_eq!(serde_json::from_str::<InitialWidth>(json).unwrap().name(), "R", "{json}");
        }
    }
}
