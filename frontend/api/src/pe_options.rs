//! Options of processing elements that users set on the job (`spec.processingElement`) and that every PE of the job
//! carries.
//!
//! Knows: the schema, defaults. Must not know: how a pod is made of them.

use super::{mounts, schema};
use k8s_openapi::api::core::v1::ResourceRequirements;
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Options of a processing element.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase", default = "PeOptions::default")]
#[x_kube(
    validation = Rule::new("!(has(self.sabName) && has(self.bundleName))")
        .message("sabName and bundleName are the same option: set one"),
    validation = Rule::new("!(has(self.checkpointRepository) && has(self.checkpointDataStore))")
        .message("checkpointRepository and checkpointDataStore are the same option: set one"),
    validation = Rule::new("!self.runWithValgrind || !has(self.buildType) || self.buildType == 'debug'")
        .message("valgrind needs the debug build of the runtime")
)]
pub struct PeOptions {
    /// Build of the runtime image. Default: an option of the frontend.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub build_type: Option<BuildType>,
    /// Runtime image, instead of the one that follows from the frontend's options and `buildType`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 1024))]
    #[x_kube(validation = Rule::new(schema::IMAGE).message(schema::IMAGE_SAYS))]
    pub image: Option<String>,
    /// When the image is pulled. Default: the job's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image_pull_policy: Option<ImagePullPolicy>,
    /// Secret for pulling the image. Default: the job's.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    #[x_kube(validation = Rule::new(schema::OBJECT_NAME).message(schema::OBJECT_NAME_SAYS))]
    pub image_pull_secret: Option<String>,
    /// Name of the bundle that the runtime asks for. Default: the name of the job's bundle.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub sab_name: Option<String>,
    /// Other name of `sabName`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub bundle_name: Option<String>,
    /// Security of the connections between PEs.
    pub transport_security_type: TransportSecurity,
    /// Compute resources of the PE's container. Default: no limits, requests of 100m CPU and 128Mi memory. Resources of
    /// the job go before.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::resources")]
    pub resources: Option<ResourceRequirements>,
    /// Gives the container the capability SYS_PTRACE.
    pub allow_ptrace: bool,
    /// Runs the PE in valgrind; implies the debug build and `allowPtrace`.
    pub run_with_valgrind: bool,
    /// Trace level of the application. Default: what the application says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub app_trace_level: Option<TraceLevel>,
    /// Trace level of the runtime.
    pub runtime_trace_level: TraceLevel,
    /// Delete failed pods, once their exit code, reason and the end of their log are in the PE's status. Otherwise at
    /// most 3 are kept.
    pub delete_failed_pod: bool,
    /// Restart pods that ended with exit code 0. Default: false.
    pub restart_completed_pod: bool,
    /// Restart pods that a user deleted, however they ended. Default: false: a PE whose pod ends with exit code 0, or
    /// without one, stays down until a restart is requested or a resize restarts it; one whose pod fails goes by
    /// `restartFailedPod`. To stop a PE, use the annotation `streams.ibm.com/stop-requested`.
    pub restart_deleted_pod: bool,
    /// Restart pods that failed. Default: whether all operators of the PE are restartable.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub restart_failed_pod: Option<bool>,
    /// Delay of the first liveness probe.
    #[schemars(range(min = 0, max = 86_400))]
    pub initial_probe_delay_in_seconds: i32,
    /// Failed liveness probes after which the PE is killed.
    #[schemars(range(min = 1, max = 1_000))]
    pub probe_failure_threshold: i32,
    /// Interval of the liveness probe.
    #[schemars(range(min = 1, max = 86_400))]
    pub probe_interval_in_seconds: i32,
    /// Directory of the node that the PE sees as its data directory. Default: an option of the frontend.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 4096), regex(pattern = "^/"))]
    #[x_kube(validation = Rule::new(schema::HOST_PATH).message(schema::HOST_PATH_SAYS))]
    pub data_path: Option<String>,
    /// Volume for the data directory; goes before `dataPath`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data_volume_claim: Option<DataVolumeClaim>,
    /// Where checkpoints are kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checkpoint_repository: Option<CheckpointRepository>,
    /// Other name of `checkpointRepository`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checkpoint_data_store: Option<CheckpointRepository>,
    /// Secret with application properties.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    #[x_kube(validation = Rule::new(schema::OBJECT_NAME).message(schema::OBJECT_NAME_SAYS))]
    pub app_properties_secret: Option<String>,
    /// Secret with restricted properties.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    #[x_kube(validation = Rule::new(schema::OBJECT_NAME).message(schema::OBJECT_NAME_SAYS))]
    pub restricted_properties_secret: Option<String>,
}

impl Default for PeOptions {
    /// The defaults of the table of options.
    fn default() -> Self {
        Self {
            build_type: None,
            image: None,
            image_pull_policy: None,
            image_pull_secret: None,
            sab_name: None,
            bundle_name: None,
            transport_security_type: TransportSecurity::None,
            resources: None,
            allow_ptrace: false,
            run_with_valgrind: false,
            app_trace_level: None,
            runtime_trace_level: TraceLevel::Info,
            delete_failed_pod: true,
            restart_completed_pod: false,
            restart_deleted_pod: false,
            restart_failed_pod: None,
            initial_probe_delay_in_seconds: 30,
            probe_failure_threshold: 1,
            probe_interval_in_seconds: 10,
            data_path: None,
            data_volume_claim: None,
            checkpoint_repository: None,
            checkpoint_data_store: None,
            app_properties_secret: None,
            restricted_properties_secret: None,
        }
    }
}

impl PeOptions {
    /// The name of the bundle that the runtime asks for, under either of the option's names (rule pod-11).
    pub fn sab_name(&self) -> Option<&str> {
        self.sab_name.as_deref().or(self.bundle_name.as_deref())
    }

    /// Where checkpoints are kept, under either of the option's names.
    pub fn checkpoint_repository(&self) -> Option<&CheckpointRepository> {
        self.checkpoint_repository.as_ref().or(self.checkpoint_data_store.as_ref())
    }

    /// The build of the runtime: valgrind implies debug.
    pub fn build_type(&self, default: BuildType) -> BuildType {
        if self.run_with_valgrind { BuildType::Debug } else { self.build_type.unwrap_or(default) }
    }

    /// Whether the container gets SYS_PTRACE: valgrind implies it.
    pub fn allow_ptrace(&self) -> bool {
        self.allow_ptrace || self.run_with_valgrind
    }
}

/// Build of the runtime.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum BuildType {
    /// With debug information, gdb and valgrind.
    #[default]
    Debug,
    /// Optimised.
    Release,
}

impl BuildType {
    /// The suffix of the image tag.
    pub fn name(self) -> &'static str {
        match self {
            Self::Debug => "debug",
            Self::Release => "release",
        }
    }
}

/// When an image is pulled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ImagePullPolicy {
    /// Whenever a pod starts.
    #[default]
    Always,
    /// Unless the node has it.
    IfNotPresent,
}

impl ImagePullPolicy {
    /// The word that Kubernetes uses.
    pub fn name(self) -> &'static str {
        match self {
            Self::Always => "Always",
            Self::IfNotPresent => "IfNotPresent",
        }
    }
}

/// Security of the connections between PEs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum TransportSecurity {
    /// Plain text.
    #[default]
    #[serde(rename = "none")]
    None,
    /// TLS 1.2.
    #[serde(rename = "TLSv1.2")]
    Tls12,
}

impl TransportSecurity {
    /// The word that the runtime knows it by.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Tls12 => "TLSv1.2",
        }
    }
}

/// How much is traced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "UPPERCASE")]
pub enum TraceLevel {
    /// Nothing.
    Off,
    /// Errors.
    Error,
    /// Warnings and errors.
    Warn,
    /// What happens, in general.
    Info,
    /// What happens, in detail.
    Debug,
    /// Everything.
    Trace,
}

impl TraceLevel {
    /// The word that the runtime knows it by, in upper case; the compiler takes it in lower case.
    pub fn name(self) -> &'static str {
        match self {
            Self::Off => "OFF",
            Self::Error => "ERROR",
            Self::Warn => "WARN",
            Self::Info => "INFO",
            Self::Debug => "DEBUG",
            Self::Trace => "TRACE",
        }
    }
}

/// A persistent volume.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct DataVolumeClaim {
    /// Name of the persistent volume claim.
    #[schemars(length(min = 1, max = 253))]
    #[x_kube(validation = Rule::new(schema::OBJECT_NAME).message(schema::OBJECT_NAME_SAYS))]
    pub name: String,
    /// Path in the volume.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 4096))]
    #[x_kube(validation = Rule::new(schema::INNER_PATH).message(schema::INNER_PATH_SAYS))]
    pub sub_path: Option<String>,
}

/// Where checkpoints are kept: a file system or redis.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("has(self.fileSystem) != has(self.redis)").message("checkpoints are kept in either fileSystem or redis")
)]
pub struct CheckpointRepository {
    /// A file system.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file_system: Option<FileSystemCheckpoints>,
    /// Redis servers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub redis: Option<RedisCheckpoints>,
}

/// Checkpoints in a file system.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase", default = "FileSystemCheckpoints::default")]
pub struct FileSystemCheckpoints {
    /// Where PEs see it.
    #[schemars(length(min = 1, max = 4096), regex(pattern = "^/"))]
    #[x_kube(
        validation = Rule::new(schema::MOUNT_PATH).message(schema::MOUNT_PATH_SAYS),
        validation = Rule::new(mounts::free()).message(mounts::free_says())
    )]
    pub path: String,
    /// The volume. Default: an option of the frontend.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volume_claim: Option<DataVolumeClaim>,
}

impl Default for FileSystemCheckpoints {
    fn default() -> Self {
        Self { path: "/checkpoint".to_owned(), volume_claim: None }
    }
}

/// Checkpoints in redis servers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("self.replicaCount % 2 == 1").message("replicaCount must be odd"),
    validation = Rule::new("self.replicaCount * self.shardCount <= 1024")
        .message("there may be 1024 servers: replicaCount times shardCount")
)]
pub struct RedisCheckpoints {
    /// Number of replicas, odd.
    #[schemars(range(min = 1, max = 1_000))]
    pub replica_count: u32,
    /// Restricted property with the password.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub restricted_property: Option<String>,
    /// Service of the servers.
    #[schemars(length(min = 1, max = 253))]
    #[x_kube(validation = Rule::new(schema::OBJECT_NAME).message(schema::OBJECT_NAME_SAYS))]
    pub service: String,
    /// Shards per replica.
    #[schemars(range(min = 1, max = 1_000))]
    pub shard_count: u32,
    /// Use the servers in random order.
    #[serde(default)]
    pub shuffle: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_that_are_left_out_have_the_defaults_of_the_table() {
        let options: PeOptions = serde_json::from_str("{}").unwrap();
        assert_eq!(options, PeOptions::default());
        let json = serde_json::json!({
            "transportSecurityType": "none", "allowPtrace": false, "runWithValgrind": false, "runtimeTraceLevel": "INFO",
            "deleteFailedPod": true, "restartCompletedPod": false, "restartDeletedPod": false,
            "initialProbeDelayInSeconds": 30, "probeFailureThreshold": 1, "probeIntervalInSeconds": 10,
        });
        assert_eq!(serde_json::to_value(options).unwrap(), json);
    }

    #[test]
    fn both_names_of_an_option_are_accepted() {
        for json in [r#"{"sabName": "a.sab"}"#, r#"{"bundleName": "a.sab"}"#] {
            assert_eq!(serde_json::from_str::<PeOptions>(json).unwrap().sab_name(), Some("a.sab"), "{json}");
        }
        let store = r#"{"fileSystem": {}}"#;
        for name in ["checkpointRepository", "checkpointDataStore"] {
            let options: PeOptions = serde_json::from_str(&format!(r#"{{"{name}": {store}}}"#)).unwrap();
            let path = options
                .checkpoint_repository()
                .and_then(|kept| kept.file_system.as_ref())
                .map(|kept| kept.path.as_str());
            assert_eq!(path, Some("/checkpoint"), "{name}");
        }
    }

    #[test]
    fn valgrind_implies_the_debug_build_and_ptrace() {
        // run with valgrind, build type, default -> build type, ptrace
        let table = [
            (false, None, BuildType::Release, BuildType::Release, false),
            (false, Some(BuildType::Debug), BuildType::Release, BuildType::Debug, false),
            (true, None, BuildType::Release, BuildType::Debug, true),
        ];
        for (run_with_valgrind, build_type, default, expected, ptrace) in table {
            let options = PeOptions { run_with_valgrind, build_type, ..PeOptions::default() };
            assert_eq!((options.build_type(default), options.allow_ptrace()), (expected, ptrace));
        }
    }
}
