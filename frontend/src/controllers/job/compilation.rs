//! Makes the request to the fusion service from the spec of a job.
//!
//! Pure. After the first generation these fields do not change: the schema pins them (rule job-31), and a resize
//! repeats the stored compilation.
//!
//! Knows: the spec, what was settled. Must not know: how it is compiled, or when.

use bytes::Bytes;
use prost::Message;
use streams_proto::fusion::v1::fusion::{Legacy, Mode};
use streams_proto::fusion::v1::{
    Blob, ChannelCount as WireChannelCount, Compilation, Configuration, Fusion, FusionType as WireFusionType,
    RegionChannelCount, RegionWidth,
};

pub(crate) use streams_proto::fusion::v1::fusion::Automatic;

use super::documents::chunks::digest;
use super::generation::{Generation, Settled};
use super::in_force::{place_of, redis_of};
use super::redis_list::is_list_of;
use super::resources;
use super::tasks::{Failure, Remedy};
use super::widths::bounds_of_widths;
use streams_api::{ChannelCount, FusionMode, FusionType, InitialWidth, Job, JobSpec, TransportSecurity, mounts};

/// The compilation of the first generation. `adl_sha256` is the digest of the pinned ADL; the content is left out.
pub(crate) fn compilation(job: &Job, job_id: u64, adl_sha256: Bytes, automatic: Automatic) -> Compilation {
    let spec = &job.spec;
    let fusion = spec.fusion.clone().unwrap_or_default();
    let mode = match fusion.mode() {
        FusionMode::Legacy => Mode::Legacy(Legacy {}),
        FusionMode::Manual(count) => Mode::Manual(count.get().into()),
        FusionMode::Automatic => Mode::Automatic(automatic),
    };
    let fusion_type = match fusion.fusion_type {
        None => WireFusionType::Unspecified,
        Some(FusionType::NoChannelInfluence) => WireFusionType::NoChannelInfluence,
        Some(FusionType::ChannelIsolation) => WireFusionType::ChannelIsolation,
        Some(FusionType::ChannelExlocation) => WireFusionType::ChannelExlocation,
    };
    let values = spec.submission_time_values.iter().map(|(name, value)| (name.clone(), value.to_string()));
    let widths = spec
        .parallel_regions
        .iter()
        .filter_map(|region| Some(RegionWidth { region: region.name().to_owned(), width: region.width?.into() }));
    Compilation {
        adl: Some(Blob { sha256: adl_sha256, content: None }),
        job_name: job.metadata.name.clone().unwrap_or_default(),
        job_id,
        fusion: Some(Fusion { mode: Some(mode), r#type: fusion_type.into() }),
        submission_values: values.collect(),
        configuration: Some(configuration(spec)),
        widths: widths.collect(),
        channel_counts: spec.parallel_regions.iter().filter_map(channel_count).collect(),
    }
}

/// What an entry of the job says of its region's number of channels, if it says something.
fn channel_count(entry: &InitialWidth) -> Option<RegionChannelCount> {
    let channel_count = match entry.channel_count? {
        ChannelCount::Observed => WireChannelCount::Observed,
        ChannelCount::Ignored => WireChannelCount::Ignored,
    };
    Some(RegionChannelCount { region: entry.name().to_owned(), channel_count: channel_count.into() })
}

fn configuration(spec: &JobSpec) -> Configuration {
    let threading = spec.threading_model.clone().unwrap_or_default();
    let dynamic = threading.dynamic.clone().unwrap_or_default();
    Configuration {
        threading_model: threading.model().map(|model| model.name().to_owned()),
        dynamic_thread_count: dynamic.thread_count.map(|count| count.get().into()),
        dynamic_elastic: dynamic.elastic,
        tracing: spec.pe_options().app_trace_level.map(|level| level.name().to_lowercase()),
        data_directory: None,
    }
}

/// Digest of everything in the spec that the first generation depends on. If it changes, the plan is compiled again.
/// What automatic fusion is told of the cluster is no part of it: that changes all the time.
pub(crate) fn inputs(job: &Job, job_id: u64, adl_sha256: &str) -> String {
    let adl = Bytes::from(hex::decode(adl_sha256).unwrap_or_default());
    let mut inputs = compilation(job, job_id, adl, automatic(&job.spec, None, 0)).encode_to_vec();
    // What is settled together with the first generation (rules job-46 and job-48).
    let options = job.spec.pe_options();
    if options.transport_security_type != TransportSecurity::None {
        inputs.extend(options.transport_security_type.name().bytes());
    }
    if let Some(redis) = redis_of(&options) {
        inputs.extend(serde_json::to_vec(redis).unwrap_or_default());
    }
    // Whether the plan may have its widths follows from them (rule job-31).
    let bounds = bounds_of_widths(&job.spec);
    if !bounds.is_empty() {
        inputs.extend(serde_json::to_vec(&bounds).unwrap_or_default());
    }
    digest(&inputs)
}

/// The compilation of a later generation: that of the one before, with the number of PEs that was resolved at the
/// submission.
pub(crate) fn repeated(previous: &Generation) -> Compilation {
    let mut compilation = previous.compilation.clone();
    if let Some(Mode::Automatic(automatic)) = compilation.fusion.as_mut().and_then(|fusion| fusion.mode.as_mut())
        && automatic.resolved.is_none()
    {
        automatic.resolved = previous.plan.automatic.as_ref().map(|figures| figures.resolved);
    }
    compilation
}

/// The CPU figures of a PE, for automatic fusion (rule job-23); with job-wide resources a PE has none of its own.
///
/// The part of the free CPU that the job may take is given in thousandths; `cpu_free` in milli-cores, if it is known.
pub(crate) fn automatic(spec: &JobSpec, cpu_free: Option<u64>, share: u32) -> Automatic {
    let said = |resources: Option<&_>| resources.and_then(resources::saying_something);
    let own = said(spec.resources.as_ref())
        .is_none()
        .then(|| said(spec.pe_options().resources.as_ref()).unwrap_or_else(default_resources));
    let cpu = |quantities: Option<&std::collections::BTreeMap<_, _>>| {
        let quantity: &k8s_openapi::apimachinery::pkg::api::resource::Quantity = quantities?.get("cpu")?;
        resources::parse_milli(&quantity.0).and_then(|milli| u64::try_from(milli).ok())
    };
    Automatic {
        cpu_limit: own.as_ref().and_then(|own| cpu(own.limits.as_ref())),
        // Of what has a limit and no request, the API server takes the limit for the request.
        cpu_request: own.as_ref().and_then(|own| cpu(own.requests.as_ref()).or_else(|| cpu(own.limits.as_ref()))),
        cpu_free,
        share,
        resolved: None,
    }
}

/// Resources of a PE for which neither it nor its job says anything (rule pod-4).
pub(crate) fn default_resources() -> k8s_openapi::api::core::v1::ResourceRequirements {
    use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
    let requests = [("cpu", "100m"), ("memory", "128Mi")];
    k8s_openapi::api::core::v1::ResourceRequirements {
        requests: Some(requests.map(|(name, quantity)| (name.to_owned(), Quantity(quantity.to_owned()))).into()),
        ..Default::default()
    }
}

/// Why the spec of a job, which the schema accepts, cannot be submitted (rule job-7), or, once the job runs, is not
/// carried out as a whole (rule job-39): one failure for each option that is refused. `running` is what was settled at
/// the submission of a job with a generation.
pub(crate) fn refusals(job: &Job, running: Option<&Settled>) -> Vec<Failure> {
    let spec = &job.spec;
    let options = spec.pe_options();
    let mut refusals = Vec::new();
    let mut refuse = |reason: &str, message: String| {
        refusals.push(Failure { remedy: Remedy::Correct, reason: reason.to_owned(), message, stage: None, code: None });
    };
    if let Some(running) = running.filter(|running| running.transport != options.transport_security_type) {
        let (wanted, settled) = (options.transport_security_type.name(), running.transport.name());
        let message = format!(
            "processingElement.transportSecurityType: {wanted} is wanted, and the job was submitted with {settled}"
        );
        refuse("NotSupported", message);
    }
    if let (Some(wanted), Some(running)) = (redis_of(&options), running) {
        let message = "processingElement.checkpointRepository.redis: the servers are found at the submission only";
        if running.redis.is_empty() {
            refuse("NotSupported", message.to_owned());
        } else if !is_list_of(&running.redis, wanted, job.metadata.uid.as_deref().unwrap_or_default()) {
            refuse(
                "NotSupported",
                format!("{message}, and these are others: take redis away, then put back what it was"),
            );
        }
    }
    if let Some(taken) = place_of(&options).and_then(mounts::taken) {
        let message = format!(
            "processingElement.checkpointRepository.fileSystem.path: PEs need {taken} for something else: name another place"
        );
        refuse("CheckpointPathInvalid", message);
    }
    for (field, resources) in [("resources", &spec.resources), ("processingElement.resources", &options.resources)] {
        if let Some(error) = resources.as_ref().and_then(|resources| resources::check(resources).err()) {
            refuse("ResourcesInvalid", format!("{field}: {error}"));
        }
    }
    refusals
}

/// Why a spec with these refusals cannot be submitted: the reason of the first, and the words of all.
pub(crate) fn refusal(refusals: &[Failure]) -> Option<Failure> {
    let first = refusals.first()?;
    let messages: Vec<&str> = refusals.iter().map(|failure| failure.message.as_str()).collect();
    Some(Failure { message: messages.join("; "), ..first.clone() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controllers::job::generation::{GenerationDetails, Target};
    use std::collections::{BTreeMap, BTreeSet};
    use streams_proto::fusion::v1::{AutomaticFusion, Plan};

    fn job(spec: serde_json::Value) -> Job {
        let mut spec = spec;
        spec["bundle"] = serde_json::json!({"name": "a.sab"});
        Job::new("flow", serde_json::from_value(spec).unwrap())
    }

    fn compiled(spec: serde_json::Value) -> Compilation {
        compilation(&job(spec), 7, Bytes::from_static(&[1; 32]), Automatic { share: 500, ..Automatic::default() })
    }

    #[test]
    fn the_compiler_is_told_what_the_spec_says() {
        let actual = compiled(serde_json::json!({
            "fusion": {"manual": 3, "type": "channelIsolation"},
            "threadingModel": {"dynamic": {"threadCount": 4, "elastic": true}},
            "submissionTimeValues": {"a": 3, "b": "x"},
            "parallelRegions": [
                {"name": "R", "width": 2, "channelCount": "Observed"}, {"alias": "S*", "width": 5},
                {"name": "T", "maxWidth": 5}, {"alias": "U*", "channelCount": "Ignored"},
            ],
            "processingElement": {"appTraceLevel": "DEBUG"},
        }));
        let width = |region: &str, width| RegionWidth { region: region.to_owned(), width };
        let count = |region: &str, count: WireChannelCount| RegionChannelCount {
            region: region.to_owned(),
            channel_count: count.into(),
        };
        let expected = Compilation {
            adl: Some(Blob { sha256: Bytes::from_static(&[1; 32]), content: None }),
            job_name: "flow".to_owned(),
            job_id: 7,
            fusion: Some(Fusion { mode: Some(Mode::Manual(3)), r#type: WireFusionType::ChannelIsolation.into() }),
            submission_values: BTreeMap::from([("a".to_owned(), "3".to_owned()), ("b".to_owned(), "x".to_owned())]),
            configuration: Some(Configuration {
                threading_model: Some("dynamic".to_owned()),
                dynamic_thread_count: Some(4),
                dynamic_elastic: Some(true),
                tracing: Some("debug".to_owned()),
                data_directory: None,
            }),
            widths: vec![width("R", 2), width("S*", 5)],
            channel_counts: vec![count("R", WireChannelCount::Observed), count("U*", WireChannelCount::Ignored)],
        };
        assert_eq!(actual, expected);
    }

    #[test]
    fn pod_options_and_bounds_of_no_width_do_not_change_the_inputs_and_everything_else_does() {
        let inputs = |spec: serde_json::Value| inputs(&job(spec), 1, &"ab".repeat(32));
        let base = inputs(serde_json::json!({}));
        for same in [
            serde_json::json!({"processingElement": {"runtimeTraceLevel": "TRACE"}}),
            serde_json::json!({"processingElement": {"resources": {"requests": {"cpu": "0.1", "memory": "1Gi"}}}}),
            serde_json::json!({"parallelRegions": [{"name": "R", "maxWidth": 5}]}),
        ] {
            assert_eq!(inputs(same.clone()), base, "{same}");
        }
        // CPU is of concern to automatic fusion only, which is the default.
        let cpu = serde_json::json!({"limits": {"cpu": "1"}});
        let legacy = serde_json::json!({"legacy": true});
        for resources in
            [serde_json::json!({"resources": cpu}), serde_json::json!({"processingElement": {"resources": cpu}})]
        {
            assert_ne!(inputs(resources.clone()), base, "{resources}");
            let mut other = resources.clone();
            other["fusion"] = legacy.clone();
            assert_eq!(inputs(other), inputs(serde_json::json!({"fusion": legacy})), "{resources}");
        }
        for other in [
            serde_json::json!({"fusion": {"legacy": true}}),
            serde_json::json!({"fusion": {"type": "channelExlocation"}}),
            serde_json::json!({"threadingModel": {"manual": true}}),
            serde_json::json!({"submissionTimeValues": {"a": 1}}),
            serde_json::json!({"parallelRegions": [{"name": "R", "width": 5}]}),
            serde_json::json!({"parallelRegions": [{"name": "R", "channelCount": "Ignored"}]}),
            serde_json::json!({"processingElement": {"appTraceLevel": "TRACE"}}),
        ] {
            assert_ne!(inputs(other.clone()), base, "{other}");
        }
        assert_ne!(super::inputs(&job(serde_json::json!({})), 1, &"cd".repeat(32)), base, "another ADL");
        // Bounds decide whether a width is refused, whichever entry has it.
        let wide = |entries: &[serde_json::Value]| {
            let width = [serde_json::json!({"name": "R", "width": 5})];
            let all = [&width[..], entries].concat();
            inputs(serde_json::json!({"parallelRegions": all}))
        };
        let bounds = [
            vec![],
            vec![serde_json::json!({"name": "*", "maxWidth": 5})],
            vec![serde_json::json!({"name": "*", "maxWidth": 6})],
            vec![serde_json::json!({"name": "*", "minWidth": 5})],
            vec![serde_json::json!({"name": "R*", "maxWidth": 5})],
            vec![serde_json::json!({"name": "*", "maxWidth": 5}), serde_json::json!({"name": "R*", "maxWidth": 9})],
            vec![serde_json::json!({"name": "R*", "maxWidth": 9}), serde_json::json!({"name": "*", "maxWidth": 5})],
        ];
        let different: BTreeSet<String> = bounds.iter().map(|entries| wide(entries)).collect();
        assert_eq!(different.len(), bounds.len());
        assert_eq!(wide(&[serde_json::json!({"name": "*", "coolDownSeconds": 5})]), wide(&[]));
    }

    #[test]
    fn a_later_generation_has_the_number_of_pes_that_was_resolved() {
        let plan =
            Plan { automatic: Some(AutomaticFusion { resolved: 5, ..AutomaticFusion::default() }), ..Plan::default() };
        let target = Target::Submission { inputs: String::new() };
        let first =
            Generation::following(None, target, compiled(serde_json::json!({})), plan, GenerationDetails::default());
        let again = repeated(&first);
        let Some(Mode::Automatic(automatic)) = again.fusion.unwrap().mode else { panic!("another mode") };
        assert_eq!(automatic.resolved, Some(5));
        assert_eq!(again.job_id, 7);
    }

    #[test]
    fn the_cpu_figures_are_those_of_a_pe() {
        use serde_json::json;
        let of_pe = |resources: serde_json::Value| json!({"processingElement": {"resources": resources}});
        // spec -> limit, request
        let table = [
            (serde_json::json!({}), None, Some(100)),
            (of_pe(json!({"limits": {"cpu": "2"}})), Some(2000), Some(2000)),
            (of_pe(json!({"limits": {"cpu": "2"}, "requests": {"cpu": "1"}})), Some(2000), Some(1000)),
            (of_pe(json!({"limits": {"cpu": "2"}, "requests": {"memory": "1Gi"}})), Some(2000), Some(2000)),
            (of_pe(json!({"limits": {"cpu": "2"}, "requests": {"cpu": "0"}})), Some(2000), Some(0)),
            (of_pe(json!({"requests": {"memory": "1Gi"}})), None, None),
            (serde_json::json!({"resources": {"limits": {"cpu": "2"}}}), None, None),
            (serde_json::json!({"resources": {}}), None, Some(100)),
        ];
        for (spec, limit, request) in table {
            let figures = automatic(&job(spec.clone()).spec, Some(9), 500);
            assert_eq!((figures.cpu_limit, figures.cpu_request, figures.cpu_free), (limit, request, Some(9)), "{spec}");
        }
    }

    #[test]
    fn what_is_not_supported_is_named() {
        let table = [
            (serde_json::json!({}), None),
            (serde_json::json!({"resources": {"limits": {"cpu": "1e99"}}}), Some("resources: cpu")),
            (
                serde_json::json!({"processingElement": {"resources": {"limits": {"cpu": "a lot"}}}}),
                Some("processingElement.resources: cpu"),
            ),
            (
                serde_json::json!({"processingElement": {"resources": {"limits": {"nvidia.com/gpu": "500m"}}}}),
                Some("processingElement.resources: nvidia.com/gpu"),
            ),
            (serde_json::json!({"processingElement": {"checkpointDataStore": {"fileSystem": {"path": "/c"}}}}), None),
            (
                serde_json::json!({"processingElement": {"checkpointDataStore": {"fileSystem": {"path": "/data/"}}}}),
                Some("fileSystem.path: PEs need /data"),
            ),
            (
                serde_json::json!({"processingElement": {"checkpointRepository": {"fileSystem": {"path": "/tmp"}}}}),
                Some("fileSystem.path: PEs need /tmp"),
            ),
        ];
        for (spec, expected) in table {
            let message = refusal(&refusals(&job(spec.clone()), None)).map(|failure| failure.message);
            match expected {
                None => assert_eq!(message, None, "{spec}"),
                Some(part) => assert!(message.unwrap().contains(part), "{spec}"),
            }
        }
    }

    #[test]
    fn each_option_that_is_refused_is_named() {
        let redis = serde_json::json!({"redis": {"service": "r", "replicaCount": 1, "shardCount": 1}});
        let of_nobody = serde_json::json!({"limits": {"requests.example.com/gpu": 1}});
        let options = serde_json::json!({
            "transportSecurityType": "TLSv1.2", "checkpointRepository": redis, "resources": of_nobody,
        });
        let job = job(serde_json::json!({"resources": of_nobody, "processingElement": options}));
        let of_resources = ["resources: ", "processingElement.resources: "];
        let settled = ["processingElement.transportSecurityType: ", "processingElement.checkpointRepository.redis: "];
        let running = Settled::default();
        // what the running job was submitted with -> how the words begin
        let table = [(None, of_resources.to_vec()), (Some(&running), [settled, of_resources].concat())];
        for (running, expected) in table {
            let refusals = refusals(&job, running);
            assert_eq!(refusals.len(), expected.len(), "{refusals:?}");
            let of_all = refusal(&refusals).unwrap();
            assert_eq!(of_all.reason, refusals[0].reason);
            for (refused, begins) in refusals.iter().zip(expected) {
                assert!(refused.message.starts_with(begins), "{refused:?}");
                assert!(of_all.message.contains(&refused.message), "{of_all:?}");
            }
        }
    }

    #[test]
    fn what_is_settled_at_the_submission_stays() {
        let redis = serde_json::json!({"redis": {"service": "r", "replicaCount": 1, "shardCount": 1}});
        let job = job(serde_json::json!({"processingElement": {"checkpointRepository": redis}}));
        let of = |service: &str| {
            let group = serde_json::json!({"servers": ["h:6379"], "description": format!("{service}#0")});
            let list = serde_json::json!({"replicas": 1, "shards": 1, "replicaGroups": [group]});
            Settled { redis: list.to_string(), ..Settled::default() }
        };
        let [with, with_others, without] = [of("r"), of("s"), Settled::default()];
        // what the running job was submitted with -> refused
        let table = [(None, false), (Some(&without), true), (Some(&with), false), (Some(&with_others), true)];
        for (running, refused) in table {
            assert_eq!(!refusals(&job, running).is_empty(), refused, "{running:?}");
        }
        // order of two servers that is asked for -> whether a list that is sorted by name is another one
        let group = serde_json::json!({"servers": ["h-0:6379", "h-1:6379"], "description": "r#0"});
        let sorted = serde_json::json!({"replicas": 1, "shards": 2, "replicaGroups": [group]});
        let sorted = Settled { redis: sorted.to_string(), ..Settled::default() };
        for (shuffle, refused) in [(false, false), (true, true)] {
            let redis = serde_json::json!({"service": "r", "replicaCount": 1, "shardCount": 2, "shuffle": shuffle});
            let options = serde_json::json!({"checkpointRepository": {"redis": redis}});
            let job = self::job(serde_json::json!({ "processingElement": options }));
            assert_eq!(!refusals(&job, Some(&sorted)).is_empty(), refused, "shuffle: {shuffle}");
        }
        let secure = self::job(serde_json::json!({"processingElement": {"transportSecurityType": "TLSv1.2"}}));
        let with = Settled { transport: TransportSecurity::Tls12, ..Settled::default() };
        for (running, refused) in [(None, false), (Some(&Settled::default()), true), (Some(&with), false)] {
            assert_eq!(!refusals(&secure, running).is_empty(), refused, "{running:?}");
        }
        assert!(!refusals(&self::job(serde_json::json!({})), Some(&with)).is_empty());
        let without = self::job(serde_json::json!({}));
        for edited in [&job, &secure] {
            assert_ne!(inputs(edited, 1, ""), inputs(&without, 1, ""), "an edit before the first generation counts");
        }
    }
}
