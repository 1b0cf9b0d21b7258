//! Computes the options in force while the spec of a running job has some that a submission refuses (rule job-39).
//!
//! Pure.
//!
//! The API server refuses such edits where it can. What it took nevertheless (before it had the rule, or because a rule
//! cannot say it) must not reach PEs: they keep what they had.

use super::generation::Settled;
use super::redis_list::is_list_of;
use super::resources;
use k8s_openapi::api::core::v1::ResourceRequirements;
use streams_api::{Job, JobSpec, PeOptions, RedisCheckpoints, mounts};

/// The spec of the job with the last good value of each option that is refused. `running` has the options of a PE of
/// the job, `settled` what was settled at its submission.
pub(crate) fn in_force(job: &Job, running: Option<&PeOptions>, settled: &Settled) -> JobSpec {
    let mut spec = job.spec.clone();
    let job_uid = job.metadata.uid.as_deref().unwrap_or_default();
    let mut options = spec.pe_options();
    let defaults = PeOptions::default();
    let running = running.unwrap_or(&defaults);
    options.transport_security_type = settled.transport;
    let is_new = |wanted: &RedisCheckpoints| settled.redis.is_empty() || !is_list_of(&settled.redis, wanted, job_uid);
    // A PE that has redis itself although no servers were found waits and says why: to start it without its checkpoints
    // would lose them.
    let is_waited_for = settled.redis.is_empty() && redis_of(running).is_some();
    let is_refused = !is_waited_for && redis_of(&options).is_some_and(is_new);
    // Likewise one that has the place itself: as long as the other volume is not set, it runs.
    if is_refused || place_of(&options).and_then(mounts::taken).is_some() {
        options.checkpoint_repository = running.checkpoint_repository().cloned();
        options.checkpoint_data_store = None;
    }
    let is_good = |of: &ResourceRequirements| resources::check(of).is_ok();
    let had = || running.resources.clone().filter(is_good);
    if !spec.resources.iter().all(is_good) {
        spec.resources = None;
        options.resources = had();
    } else if !options.resources.iter().all(is_good) {
        // Those of a PE count for nothing beside those of the job (rule pod-4), which are divided as before.
        let is_divided = spec.resources.as_ref().and_then(resources::saying_something).is_some();
        options.resources = if is_divided { None } else { had() };
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

    fn job(spec: Value) -> Job {
        let mut job = Job::new("flow", serde_json::from_value(spec).unwrap());
        job.metadata.uid = Some("uid".to_owned());
        job
    }

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
                json!({"processingElement": {"resources": {"limits": {"requests.example.com/gpu": 1}}}}),
                json!({"resources": cpu("2")}),
                json!(null),
                json!({"resources": cpu("2")}),
            ),
            (
                json!({
                    "resources": cpu("4"),
                    "processingElement": {"resources": {"limits": {"requests.example.com/gpu": 1}}},
                }),
                json!({"resources": cpu("1")}),
                cpu("4"),
                json!({}),
            ),
            (
                json!({"resources": cpu("a lot"), "processingElement": {"resources": cpu("a lot")}}),
                json!({"resources": cpu("1")}),
                json!(null),
                json!({"resources": cpu("1")}),
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
            let of = in_force(&job(of), Some(&options(running)), &Settled::default());
            assert_eq!(serde_json::to_value(&of.resources).unwrap(), resources, "{spec}");
            assert_eq!(of.pe_options(), options(expected), "{spec}");
        }
    }

    #[test]
    fn pes_that_have_redis_keep_theirs_if_others_are_wanted() {
        let redis = |service: &str| json!({"redis": {"service": service, "replicaCount": 1, "shardCount": 1}});
        let group = json!({"servers": ["r:6379"], "description": "r#0"});
        let list = json!({"replicas": 1, "shards": 1, "replicaGroups": [group]}).to_string();
        // servers that were found at the submission, what the PEs have -> the service whose servers they have
        let none = json!({});
        let with = json!({"checkpointRepository": redis("r")});
        let table = [
            (list.as_str(), &with, Some("r")),
            (list.as_str(), &none, None),
            ("", &with, Some("s")),
            ("", &none, None),
        ];
        for (found, running, expected) in table {
            let spec = json!({"bundle": {"file": "a.sab"}, "processingElement": {"checkpointDataStore": redis("s")}});
            let settled = Settled { redis: found.to_owned(), ..Settled::default() };
            let options = in_force(&job(spec), Some(&options(running.clone())), &settled).pe_options();
            assert_eq!(redis_of(&options).map(|redis| redis.service.as_str()), expected, "{found} {running}");
        }
    }

    #[test]
    fn redis_servers_that_were_taken_away_come_back_if_they_are_those_of_the_submission() {
        let redis = |service: &str, replicas: u32, shards: u32| json!({"redis": {"service": service, "replicaCount": replicas, "shardCount": shards}});
        let mut with_property = redis("r", 1, 2);
        with_property["redis"]["restrictedProperty"] = json!("p");
        let mut shuffled = redis("r", 1, 2);
        shuffled["redis"]["shuffle"] = json!(true);
        let group = json!({"servers": ["r-0.r.n.svc:6379", "r-1.r.n.svc:6379"], "description": "r#0"});
        let list = json!({"replicas": 1, "shards": 2, "replicaGroups": [group]}).to_string();
        let settled = Settled { redis: list, ..Settled::default() };
        // what the job asks for -> whether PEs that have none get it
        let table = [
            (redis("r", 1, 2), true),
            (redis("s", 1, 2), false),
            (redis("r", 3, 2), false),
            (redis("r", 1, 1), false),
            (with_property, false),
            (shuffled, false),
        ];
        for (asked, expected) in table {
            let spec = json!({"bundle": {"file": "a.sab"}, "processingElement": {"checkpointDataStore": asked}});
            let options = in_force(&job(spec), Some(&PeOptions::default()), &settled).pe_options();
            assert_eq!(redis_of(&options).is_some(), expected, "{asked}");
        }
    }
}
