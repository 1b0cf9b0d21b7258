//! The environment of a PE. Its names and their order are frozen (rule pod-8).

use super::super::observed::Obstacle;
use super::Parts;
use k8s_openapi::api::core::v1::EnvVar;
use kube::ResourceExt;
use streams_api::CheckpointRepository;

pub(super) use streams_api::mounts::INSTALL;

/// The variables of the runtime, whether a PE has all of them or not: an operator that sets one which its PE lacks
/// could, for example, have checkpoints written where there is no volume.
pub(super) const RESERVED: [&str; 15] = [
    "STREAMS_DOMAIN_ID",
    "STREAMS_INITIAL_TRACE_LEVEL",
    "STREAMS_INSTALL",
    "STREAMS_INSTANCE_ID",
    "STREAMS_JOB_NAME",
    "STREAMS_NS",
    "STREAMS_PE_ID",
    "STREAMS_PE_LAUNCH_COUNT",
    "STREAMS_PE_NAME",
    "STREAMS_PE_USE_VALGRIND",
    "STREAMS_SAB_NAME",
    "STREAMS_TRANSPORT_SECURITY_TYPE",
    "STREAMS_APP_TRACE_LEVEL",
    "STREAMS_CHECKPOINT_REPOSITORY",
    "STREAMS_CHECKPOINT_REPOSITORY_CONFIGURATION",
];

/// Whether the pod lacks something that its environment says.
///
/// # Errors
/// It does.
pub(super) fn check(parts: Parts<'_>) -> Result<(), Obstacle> {
    let repository = parts.pe.spec.options.checkpoint_repository();
    if repository.is_some_and(|repository| repository.redis.is_some()) && parts.redis.is_none() {
        let message = "the redis servers of the checkpoint repository are not known yet".to_owned();
        return Err(Obstacle { reason: "CheckpointRepositoryUnknown", message });
    }
    Ok(())
}

/// The variables: those of the runtime, then those that operators ask for. The runtime's own can be neither
/// changed nor added.
pub(super) fn variables(parts: Parts<'_>, launch_count: u64) -> Vec<EnvVar> {
    let spec = &parts.pe.spec;
    let options = &spec.options;
    let mut variables = vec![
        ("STREAMS_DOMAIN_ID", "kubernetes".to_owned()),
        ("STREAMS_INITIAL_TRACE_LEVEL", options.runtime_trace_level.name().to_owned()),
        ("STREAMS_INSTALL", INSTALL.to_owned()),
        ("STREAMS_INSTANCE_ID", parts.pe.namespace().unwrap_or_default()),
        ("STREAMS_JOB_NAME", spec.job_name.clone()),
        // The runtime finds its peers by the names of Services.
        ("STREAMS_NS", "K8S:".to_owned()),
        ("STREAMS_PE_ID", spec.id.to_string()),
        ("STREAMS_PE_LAUNCH_COUNT", launch_count.to_string()),
        ("STREAMS_PE_NAME", parts.pe.name_any()),
        ("STREAMS_PE_USE_VALGRIND", options.run_with_valgrind.to_string()),
        ("STREAMS_SAB_NAME", options.sab_name().unwrap_or_default().to_owned()),
        ("STREAMS_TRANSPORT_SECURITY_TYPE", options.transport_security_type.name().to_owned()),
    ];
    if let Some(level) = options.app_trace_level {
        variables.push(("STREAMS_APP_TRACE_LEVEL", level.name().to_owned()));
    }
    if let Some((kind, configuration)) = options.checkpoint_repository().and_then(|kept| checkpoints(parts, kept)) {
        variables.push(("STREAMS_CHECKPOINT_REPOSITORY", kind.to_owned()));
        variables.push(("STREAMS_CHECKPOINT_REPOSITORY_CONFIGURATION", configuration));
    }
    let asked_for = spec.environment.iter().filter(|(name, _)| !RESERVED.contains(&name.as_str()));
    let asked_for = asked_for.map(|(name, value)| variable(name, value));
    let runtime = variables.iter().map(|(name, value)| variable(name, value));
    runtime.chain(asked_for.collect::<Vec<_>>()).collect()
}

/// Kind and configuration of the checkpoint repository (rule pod-8).
fn checkpoints(parts: Parts<'_>, kept: &CheckpointRepository) -> Option<(&'static str, String)> {
    if let Some(file_system) = &kept.file_system {
        let directory = serde_json::Value::from(file_system.path.as_str());
        return Some(("fileSystem", format!("{{ \"Dir\" : {directory} }}")));
    }
    parts.redis.filter(|_| kept.redis.is_some()).map(|redis| ("redis", redis.to_owned()))
}

/// A variable with exactly this value: Kubernetes would replace `$(NAME)`.
fn variable(name: &str, value: &str) -> EnvVar {
    EnvVar { name: name.to_owned(), value: Some(value.replace('$', "$$")), value_from: None }
}
