//! A processing element: a part of an application that runs in one pod.
//!
//! The spec holds everything a pod is made from, so that the PE controller needs neither the plan nor the job's
//! options.
//!
//! Knows: the schema, names. Must not know: plans, how a pod is made.

use super::{PeOptions, condition, names, schema};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// How long a pod that runs may be asking for its bundle at most: 30 times, and it waits for each answer, with pauses
/// in between. One that runs for longer has it, or has ended.
pub const ASKS_FOR_BUNDLE_WITHIN: SignedDuration = SignedDuration::from_mins(30);

/// Names of operators that a PE's spec lists; the number of all of them is in `operatorCount`.
pub const LISTED_OPERATORS_MAX: usize = 64;

/// What a PE is. Written by the job controller only.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[kube(
    group = "streams.ibm.com",
    version = "v1",
    kind = "ProcessingElement",
    plural = "streamspes",
    singular = "streamspe",
    shortname = "stp",
    category = "streams",
    namespaced,
    status = "ProcessingElementStatus",
    derive = "PartialEq",
    doc = "A part of a Streams application that runs in one pod.",
    printcolumn(name = "Job", type_ = "string", json_path = ".spec.jobName", description = "The job."),
    printcolumn(name = "PE", type_ = "integer", json_path = ".spec.id", description = "Number of the PE in its job."),
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase", description = "What its pod does."),
    printcolumn(
        name = "Connectivity",
        type_ = "string",
        json_path = ".status.connectivity.state",
        description = "Which of its connections to other PEs its pod has told of."
    ),
    printcolumn(
        name = "Launch",
        type_ = "integer",
        json_path = ".status.launchCount",
        description = "How often a pod was asked for."
    ),
    printcolumn(
        name = "Operators",
        type_ = "integer",
        json_path = ".spec.operatorCount",
        description = "Number of its operators."
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(
        name = "Generation",
        type_ = "integer",
        json_path = ".spec.generation",
        description = "Generation of the job that changed it last.",
        priority = 1
    ),
    printcolumn(
        name = "Application",
        type_ = "string",
        json_path = ".spec.applicationName",
        description = "The application.",
        priority = 1
    ),
    printcolumn(name = "Pod", type_ = "string", json_path = ".status.podName", description = "Its pod.", priority = 1),
    printcolumn(
        name = "Restarts",
        type_ = "integer",
        json_path = ".status.restarts",
        description = "How often a pod was replaced because it had ended.",
        priority = 1
    ),
    printcolumn(
        name = "Content",
        type_ = "string",
        json_path = ".spec.contentId",
        description = "SHA-256 of its AADL.",
        priority = 1
    )
)]
#[serde(rename_all = "camelCase")]
pub struct ProcessingElementSpec {
    /// Name of the job.
    #[schemars(length(min = 1, max = 56))]
    pub job_name: String,
    /// Number of the job in its namespace.
    pub job_id: u64,
    /// Name of the application. Of PEs that were written earlier it is not known.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 1024))]
    pub application_name: String,
    /// Scope of the application.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 1024))]
    pub application_scope: String,
    /// Number of the PE in its job.
    pub id: u64,
    /// Generation of the job that changed this PE last. No pod starts before the job has committed it.
    pub generation: u64,
    /// SHA-256 of the AADL, lower-case hexadecimal.
    #[schemars(length(min = 64, max = 64), regex(pattern = "^[0-9a-f]+$"))]
    pub content_id: String,
    /// Hash of what a running PE can observe of its AADL; another value replaces the pod.
    #[schemars(length(min = 1, max = 128))]
    pub runtime_id: String,
    /// The ConfigMap with the AADL.
    pub config_map: AadlConfigMap,
    /// Number of operators.
    pub operator_count: u32,
    /// Names of the operators, sorted; the first few of a PE with many.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(max = 1024)))]
    pub operators: Vec<String>,
    /// All operators may be restarted.
    #[serde(default)]
    pub restartable: bool,
    /// Ids of the input ports; each listens on 10000 plus its id.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 65_536))]
    pub input_ports: Vec<u32>,
    /// Ids of the output ports that are exported.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 65_536))]
    pub exported_ports: Vec<u32>,
    /// Consistent regions that it takes part in.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 4_096))]
    pub consistent_regions: Vec<u64>,
    /// Where its pod may run.
    #[serde(default, skip_serializing_if = "Placement::is_empty")]
    pub placement: Placement,
    /// Hash of where its pod must run: of the placement and of what its host pool says; another value replaces the pod.
    /// Of PEs that were written earlier it is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 128))]
    pub placement_hash: Option<String>,
    /// Environment variables that its operators ask for.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "schema::environment")]
    pub environment: BTreeMap<String, String>,
    /// Options; those that are inherited from the job or divided among PEs (`imagePullPolicy`, `imagePullSecret`,
    /// `sabName`, `resources`) are resolved.
    #[serde(flatten)]
    pub options: PeOptions,
}

impl ProcessingElement {
    /// Somebody has copied it: it has another name than the job gives to the PE of its number (rule name-3).
    pub fn is_copy(&self) -> bool {
        self.metadata.name.as_deref() != Some(&*names::processing_element(&self.spec.job_name, self.spec.id))
    }
}

impl ProcessingElementSpec {
    /// Whether a failed pod is replaced: the user's choice, else what the operators permit.
    pub fn restart_failed_pod(&self) -> bool {
        self.options.restart_failed_pod.unwrap_or(self.restartable)
    }

    /// Name of the Service of the PE.
    pub fn service_name(&self) -> String {
        names::processing_element(&self.job_name, self.id)
    }
}

/// The ConfigMap with the AADL of a PE.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AadlConfigMap {
    /// Its name.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Its key is `aadl.xml.gz` instead of `aadl.xml`.
    #[serde(default)]
    pub compressed: bool,
}

/// Where a pod may run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Placement {
    /// Name or address of the only host.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub host: Option<String>,
    /// Tokens; PEs with the same token share a host.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 1_024), inner(length(max = 1_024)))]
    pub co_locations: Vec<String>,
    /// Tokens; PEs with the same token never share a host.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 1_024), inner(length(max = 1_024)))]
    pub ex_locations: Vec<String>,
    /// Operator that wants the host for its PE alone, among the PEs of the job.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub isolation: Option<String>,
    /// Host pool.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pool: Option<PoolLocation>,
    /// Label of the pods that share a host, of PEs that tokens connect, directly or through others. Not set: that of
    /// the only token. Another one moves no pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 128))]
    pub group: Option<String>,
    /// Generation of the job that moved the PE last because tokens connected it with others, which it did not share a
    /// host with before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub joined: Option<u64>,
}

impl Placement {
    /// Whether the pod may run anywhere.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// A place in a host pool.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PoolLocation {
    /// Index of the pool in the job.
    pub index: u64,
    /// Index in the pool.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub in_pool_index: Option<u64>,
}

/// What is known of a PE. Written by the PE controller; `connectivity` and `endpoints` by the PE API;
/// `bundleUnavailable` by whoever serves bundles. The PE controller removes `connectivity` and `bundleUnavailable`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProcessingElementStatus {
    /// What the pod does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<PePhase>,
    /// `.metadata.generation` that the status was found out about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// How often a pod was asked for.
    #[serde(default)]
    pub launch_count: u64,
    /// Launch count that a pod was created for last: tells a pod that is gone from one that was not created yet.
    #[serde(default)]
    pub created_launch_count: u64,
    /// The pod of the launch count.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub pod_name: Option<String>,
    /// Uid of the pod, once its creation was recorded: one that was created for the same launch count before, and ended
    /// unnoticed, had the same name.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 128))]
    pub pod_uid: Option<String>,
    /// Content id that the pod was created with.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 128))]
    pub content_id: Option<String>,
    /// Runtime id that the pod was created with.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 128))]
    pub runtime_id: Option<String>,
    /// Hash of the pod template that the pod was created with.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 128))]
    pub pod_template_hash: Option<String>,
    /// Hash of where the pod must run, as it was when the pod was created.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 128))]
    pub placement_hash: Option<String>,
    /// Generation of the job whose roll-out took down a pod that ran, to replace it; the last one that did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interrupted_for: Option<u64>,
    /// Value of the annotation `streams.ibm.com/restart-requested` that was acted on last.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub restart_requested: Option<String>,
    /// Value of the annotation `streams.ibm.com/stop-requested` that was acted on last.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub stop_requested: Option<String>,
    /// A user stopped the PE for good: it has no pod until that is taken back.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stopped: bool,
    /// Node that the pod was bound to.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub node_name: Option<String>,
    /// Since when the pod has been running.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub running_since: Option<Time>,
    /// How often a pod was replaced because it had ended.
    #[serde(default)]
    pub restarts: u64,
    /// Restarts since the PE last ran for long enough, or was changed; the back-off follows from it.
    #[serde(default)]
    pub consecutive_restarts: u32,
    /// When the pod is replaced, while that is being put off.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_restart_time: Option<Time>,
    /// How the pod ended last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_termination: Option<Termination>,
    /// What the pod of the PE has told of its connections last. Not there if it has told nothing, if it has ended, or
    /// if another one was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connectivity: Option<ReportedConnectivity>,
    /// Why a pod of the PE has asked for the bundle of its job and was not given it; not there if it was, or if no pod
    /// waits for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bundle_unavailable: Option<Box<UnavailableBundle>>,
    /// Ports that operators of the PE have opened under a name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 100))]
    pub endpoints: Vec<UserEndpoint>,
    /// Conditions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::conditions")]
    pub conditions: Vec<Condition>,
}

/// Which of its connections to other PEs a PE has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Connectivity {
    /// None of them.
    #[default]
    None,
    /// Some of them.
    Partial,
    /// All of them, or it needs none.
    Full,
}

/// What a pod has told of its connections.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReportedConnectivity {
    /// What it told.
    pub state: Connectivity,
    /// The launch count of the pod: what an earlier one told says nothing of the present one.
    pub launch_count: u64,
    /// How often it has lost connections when it had all of them.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub interruptions: u32,
}

#[allow(clippy::trivially_copy_pass_by_ref)]
fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// Why the bundle of a job cannot be given to a PE.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UnavailableBundle {
    /// Why, as one word in CamelCase.
    #[schemars(length(max = 64))]
    pub reason: String,
    /// Why, for people.
    #[schemars(length(max = 1_024))]
    pub message: String,
}

impl UnavailableBundle {
    /// For this reason; the message is cut where the schema does not hold it.
    pub fn new(reason: &str, message: &str) -> Self {
        Self { reason: condition::cut(reason, 64).to_owned(), message: condition::cut(message, 1_024).to_owned() }
    }
}

/// A port that an operator has opened under a name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UserEndpoint {
    /// The name; the port of the Service is `usr-` and this.
    #[schemars(length(min = 1, max = 59))]
    pub name: String,
    /// The port.
    #[schemars(range(min = 1, max = 65_535))]
    pub port: u16,
    /// TCP or UDP.
    #[schemars(length(max = 4))]
    pub protocol: String,
}

impl ProcessingElementStatus {
    /// Which connections the present pod has.
    #[must_use]
    pub fn connectivity(&self) -> Connectivity {
        let of_pod = self.connectivity.as_ref().filter(|reported| reported.launch_count == self.launch_count);
        of_pod.map_or(Connectivity::None, |reported| reported.state)
    }

    /// Whether the pod of a launch is over: another one was asked for since, or its end is recorded. It has no
    /// connections that anybody could count on, whatever it tells while it goes.
    #[must_use]
    pub fn is_over(&self, launch_count: u64) -> bool {
        let has_ended = |last: &Termination| last.launch_count == launch_count;
        self.launch_count > launch_count || self.last_termination.as_ref().is_some_and(has_ended)
    }

    /// The launch of the pod with this uid, if its creation was recorded last: whatever its labels say, which anybody
    /// can change.
    #[must_use]
    pub fn launch_of(&self, pod_uid: Option<&str>) -> Option<u64> {
        let is_recorded = pod_uid.is_some() && self.pod_uid.as_deref() == pod_uid;
        is_recorded.then_some(self.created_launch_count)
    }

    /// Whether a pod of the PE may be waiting for the bundle of the job now, or be about to. One that has told of its
    /// connections has the bundle, and so has one that runs for long enough, also while it is going.
    #[must_use]
    pub fn may_wait_for_bundle(&self, now: Timestamp) -> bool {
        let has_told = self.connectivity.as_ref().is_some_and(|reported| reported.launch_count >= self.launch_count);
        let is_past = |since: &Time| now.duration_since(since.0) >= ASKS_FOR_BUNDLE_WITHIN;
        let runs_for_long = self.running_since.as_ref().is_some_and(is_past);
        match self.phase {
            Some(PePhase::Completed | PePhase::Failed | PePhase::Stopped | PePhase::Suspended) => false,
            None | Some(PePhase::Waiting | PePhase::Starting | PePhase::Running) => !has_told && !runs_for_long,
            // What a pod has told that goes says nothing of the next one, of which none runs yet.
            Some(PePhase::Replacing) => !runs_for_long,
            // The same of one that has ended, and of what it did.
            Some(PePhase::BackOff) => true,
        }
    }
}

/// What the pod of a PE does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum PePhase {
    /// Something that the pod needs is not there yet.
    Waiting,
    /// The pod was asked for and does not run yet.
    Starting,
    /// The pod runs.
    Running,
    /// The pod ended and is replaced after a back-off.
    BackOff,
    /// The pod is going away; it is replaced if that was asked for, or if the policies permit it.
    Replacing,
    /// The pod ended with exit code 0 and is not replaced.
    Completed,
    /// The pod failed and is not replaced.
    Failed,
    /// The pod was deleted and is not replaced, or a user stopped the PE.
    Stopped,
    /// There is no pod because the job is suspended.
    Suspended,
}

/// Who deleted a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum DeletedBy {
    /// The PE controller, because of `deleteFailedPod`, because other containers of the pod would run on, or because a
    /// user suspended the job or stopped the PE.
    Controller,
    /// Somebody else.
    Other,
}

/// How a pod ended.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Termination {
    /// Name of the pod.
    #[schemars(length(max = 253))]
    pub pod_name: String,
    /// Its launch count.
    pub launch_count: u64,
    /// What kind of end it was; the restart policies tell them apart.
    #[serde(default)]
    pub outcome: TerminationOutcome,
    /// Who deleted it, once it is gone or about to go.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deleted_by: Option<DeletedBy>,
    /// Exit code of the container that ended the pod, if one did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// Its node refused it before any container of it had started.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub never_started: bool,
    /// Why, as one word: of what disrupted the pod, else of the pod, else of the container.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 1_024))]
    pub reason: String,
    /// Why, for people: the end of the container's log, if it left one.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 4_096))]
    pub message: String,
    /// When.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<Time>,
}

/// What kind of end a pod had.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum TerminationOutcome {
    /// By itself with another exit code than 0, or killed by its probe, evicted, preempted, drained, or lost with its
    /// node.
    #[default]
    Failed,
    /// By itself with exit code 0.
    Completed,
    /// A user deleted it before it ended, and it did not fail on that.
    Deleted,
    /// It is gone, and nobody saw how: no frontend ran, or was connected, when it went. It counts as failed.
    Lost,
    /// The operator deleted it because the job was suspended.
    Suspended,
    /// The operator deleted it because a user stopped the PE.
    Stopped,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_pod_is_replaced_if_the_user_says_so_or_else_if_the_operators_permit_it() {
        // restartFailedPod, restartable -> replaced
        let table = [(None, true, true), (None, false, false), (Some(false), true, false), (Some(true), false, true)];
        for (restart_failed_pod, restartable, expected) in table {
            let options = PeOptions { restart_failed_pod, ..PeOptions::default() };
            let spec = ProcessingElementSpec { restartable, options, ..ProcessingElementSpec::default() };
            assert_eq!(spec.restart_failed_pod(), expected);
        }
    }

    #[test]
    fn a_pod_waits_for_its_bundle_until_it_has_told_something_or_has_run_for_long() {
        use PePhase::*;
        let at = |minute: i64| Timestamp::from_second(60 * minute).unwrap();
        // phase, since when the pod of launch 2 runs, launch whose connectivity is known -> whether it may wait at
        // minute 40
        let table = [
            (None, None, None, true),
            (Some(Waiting), None, None, true),
            (Some(Starting), Some(39), None, true),
            (Some(Starting), Some(39), Some(1), true),
            (Some(Starting), Some(39), Some(2), false),
            (Some(Running), Some(11), None, true),
            (Some(Running), Some(10), None, false),
            (Some(BackOff), None, Some(1), true),
            (Some(BackOff), None, Some(2), true),
            (Some(Replacing), None, Some(2), true),
            (Some(Replacing), Some(11), Some(2), true),
            (Some(Replacing), Some(10), Some(2), false),
            (Some(Completed), None, None, false),
            (Some(Failed), None, None, false),
            (Some(Stopped), None, None, false),
            (Some(Suspended), None, None, false),
        ];
        for (phase, running_since, told, expected) in table {
            let status = ProcessingElementStatus {
                phase,
                launch_count: 2,
                running_since: running_since.map(|minute| Time(at(minute))),
                connectivity: told.map(|launch_count| ReportedConnectivity { launch_count, ..Default::default() }),
                ..ProcessingElementStatus::default()
            };
            assert_eq!(status.may_wait_for_bundle(at(40)), expected, "{phase:?} {running_since:?} {told:?}");
        }
    }

    #[test]
    fn a_pod_is_over_once_another_one_was_asked_for_or_its_end_is_recorded() {
        // launch whose end was recorded last, launch of the pod -> whether it is over, while the PE is in launch 2
        let table = [
            (None, 1, true),
            (None, 2, false),
            (Some(1), 1, true),
            (Some(1), 2, false),
            (Some(2), 2, true),
            // The first pod is created before that is recorded.
            (None, 3, false),
            (Some(2), 3, false),
        ];
        for (ended, launch_count, expected) in table {
            let last = ended.map(|launch_count| Termination { launch_count, ..Termination::default() });
            let status = ProcessingElementStatus {
                launch_count: 2,
                last_termination: last,
                ..ProcessingElementStatus::default()
            };
            assert_eq!(status.is_over(launch_count), expected, "{ended:?} {launch_count}");
        }
    }

    #[test]
    fn the_launch_of_a_pod_is_known_by_its_uid_once_its_creation_is_recorded() {
        // uid that is recorded, uid of the pod -> its launch
        let table = [
            (Some("a"), Some("a"), Some(4)),
            (Some("a"), Some("b"), None),
            (None, Some("a"), None),
            (None, None, None),
        ];
        for (recorded, uid, expected) in table {
            let status = ProcessingElementStatus {
                launch_count: 4,
                created_launch_count: 4,
                pod_uid: recorded.map(str::to_owned),
                ..ProcessingElementStatus::default()
            };
            assert_eq!(status.launch_of(uid), expected, "{recorded:?} {uid:?}");
        }
    }

    #[test]
    fn the_limit_of_listed_operators_is_the_one_of_the_schema() {
        let schema = serde_json::to_value(schemars::schema_for!(ProcessingElementSpec)).unwrap();
        assert_eq!(schema["properties"]["operators"]["maxItems"], LISTED_OPERATORS_MAX);
    }
}
