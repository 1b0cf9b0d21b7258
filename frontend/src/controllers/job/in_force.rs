//! Computes the options in force while the spec of a running job has some that a submission refuses (rule job-39).
//!
//! Pure.
//!
//! The API server refuses such edits where it can. What it took nevertheless (before it had the rule, or because a rule
//! cannot say it) must not reach PEs: they keep what they had.

use super::generation::Settled;
use super::resources;
use k8s_openapi::api::core::v1::ResourceRequirements;
use streams_api::{JobSpec, PeOptions, RedisCheckpoints, mounts};

/// The spec with the last good value of each option that is refused. `running` has the options of a PE of the job,
/// `settled` what was settled at its submission.
pub(crate) fn in_force(spec: &JobSpec, running: Option<&PeOptions>, settled: &Settled) -> JobSpec {
    let mut spec = spec.clone();
    let mut options = spec.pe_options();
    let defaults = PeOptions::default();
    let running = running.unwrap_or(&defaults);
    options.transport_security_type = settled.transport;
    // A PE that has redis itself waits and says why: to start it without its checkpoints would lose them.
    let is_new_redis = settled.redis.is_empty() && redis_of(&options).is_some() && redis_of(running).is_none();
    // Likewise one that has the place itself: as long as the other volume is not set, it runs.
    if is_new_redis || place_of(&options).and_then(mounts::taken).is_some() {
        options.checkpoint_repository = running.checkpoint_repository().cloned();
        options.checkpoint_data_store = None;
    }
    let is_good = |of: &ResourceRequirements| resources::check(of).is_ok();
    if !spec.resources.iter().chain(&options.resources).all(is_good) {
        spec.resources = None;
        options.resources = running.resources.clone().filter(is_good);
    }
    spec.processing_element = Some(options);
    spec
}

/// Where PEs see the file system that checkpoints are kept in, under either of the option's names.
pub(crate) fn place_of(options: &PeOptions) -> Option<&str> {
    Some(&options.checkpoint_repository()?.file_system.as_ref()?.path)
}

/// The redis servers that checkpoints are kept in, under either of the option's names.
pub(crate) fn redis_of(options: &PeOptions) -> Option<&RedisCheckpoints> {
    options.checkpoint_repository()?.redis.as_ref()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn options(value: Value) -> PeOptions {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn what_is_refused_stays_as_the_pes_have_it_and_the_rest_is_taken() {
        let redis = json!({"redis": {"service": "r", "replicaCount": 1, "shardCount": 1}});
        let (files, taken) = (json!({"fileSystem": {"path": "/c"}}), json!({"fileSystem": {"path": "/data"}}));
        let cpu = |cpu: &str| json!({"limits": {"cpu": cpu}});
        // spec of the job, options of a PE -> job-wide resources and options of PEs in force
        let table = [
            (
                json!({"processingElement": {"transportSecurityType": "TLSv1.2", "runtimeTraceLevel": "DEBUG"}}),
                json!({}),
                json!(null),
                json!({"runtimeTraceLevel": "DEBUG"}),
            ),
            (
                json!({"processingElement": {"checkpointRepository": redis}}),
                json!({"checkpointRepository": files}),
                json!(null),
                json!({"checkpointRepository": files}),
            ),
            (json!({"processingElement": {"checkpointDataStore": redis}}), json!({}), json!(null), json!({})),
            (
                json!({"processingElement": {"checkpointDataStore": redis}}),
                json!({"checkpointRepository": redis}),
                json!(null),
                json!({"checkpointDataStore": redis}),
            ),
            (
                json!({"processingElement": {"checkpointDataStore": taken}}),
                json!({"checkpointRepository": files}),
                json!(null),
                json!({"checkpointRepository": files}),
            ),
            (
                json!({"processingElement": {"checkpointRepository": taken}}),
                json!({"checkpointRepository": taken}),
                json!(null),
                json!({"checkpointRepository": taken}),
            ),
            (
                json!({"resources": {"limits": {"example.com/device": "500m"}}}),
                json!({"resources": cpu("2")}),
                json!(null),
                json!({"resources": cpu("2")}),
            ),
            (
                json!({"resources": cpu("1e99"), "processingElement": {"sabName": "b.sab"}}),
                json!({"resources": cpu("2"), "sabName": "a.sab"}),
                json!(null),
                json!({"resources": cpu("2"), "sabName": "b.sab"}),
            ),
            (
                json!({"processingElement": {"resources": cpu("a lot")}}),
                json!({"resources": cpu("a lot")}),
                json!(null),
                json!({}),
            ),
            (
                json!({"resources": cpu("4"), "processingElement": {"transportSecurityType": "TLSv1.2"}}),
                json!({"resources": cpu("2")}),
                cpu("4"),
                json!({}),
            ),
        ];
        for (spec, running, resources, expected) in table {
            let mut of = spec.clone();
            of["bundle"] = json!({"name": "a.sab"});
            let of = in_force(&serde_json::from_value(of).unwrap(), Some(&options(running)), &Settled::default());
            assert_eq!(serde_json::to_value(&of.resources).unwrap(), resources, "{spec}");
            assert_eq!(of.pe_options(), options(expected), "{spec}");
        }
    }
}
