//! Everything but the placement.

use super::*;
use serde_json::{Value, json};
use streams_api::{
    BuildType, CheckpointRepository, DataVolumeClaim, FileSystemCheckpoints, HostPoolSpec, ImagePullPolicy,
    MembershipMode, Placement, PoolLocation, RedisCheckpoints, TraceLevel, TransportSecurity,
};

/// A PE that asks for everything, and its host pool.
fn demanding() -> (ProcessingElement, HostPoolSpec) {
    let claim = |name: &str| Some(DataVolumeClaim { name: name.to_owned(), sub_path: Some("a/b".to_owned()) });
    let mut pe = with(|spec| {
        spec.config_map.compressed = true;
        spec.placement = Placement {
            co_locations: vec!["near [1]".to_owned()],
            ex_locations: vec!["apart".to_owned()],
            isolation: Some("Op".to_owned()),
            pool: Some(PoolLocation { index: 1, in_pool_index: None }),
            ..Placement::default()
        };
        spec.environment = [("B", "price: $(COST)"), ("A", ""), ("STREAMS_PE_ID", "99")]
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .into();
        let options = &mut spec.options;
        options.build_type = Some(BuildType::Release);
        options.image_pull_policy = Some(ImagePullPolicy::IfNotPresent);
        options.image_pull_secret = Some("registry".to_owned());
        options.transport_security_type = TransportSecurity::Tls12;
        options.allow_ptrace = true;
        options.app_trace_level = Some(TraceLevel::Debug);
        options.data_volume_claim = claim("data");
        options.checkpoint_repository = Some(CheckpointRepository {
            file_system: Some(FileSystemCheckpoints {
                path: "/mnt/\"state\"".to_owned(),
                volume_claim: claim("state"),
            }),
            redis: None,
        });
        options.app_properties_secret = Some("app".to_owned());
        options.restricted_properties_secret = Some("restricted".to_owned());
    });
    let trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    pe.annotations_mut().insert(names::ANNOTATION_TRACE_PARENT.to_owned(), trace.to_owned());
    let pool = HostPoolSpec {
        job_name: "flow".to_owned(),
        index: 1,
        tags: vec!["fast".to_owned()],
        ..HostPoolSpec::default()
    };
    (pe, pool)
}

#[test]
fn whole_pods() {
    let (demanding, pool) = demanding();
    let plain = pe();
    let settings = settings();
    // Compared with the rules of pods by reading. Another hash means: a new version of the frontend shows every running
    // PE as outdated (rule pod-2).
    let table = [
        (Parts { pool: Some(&pool), ..parts(&demanding, &settings) }, include_str!("demanding.yaml")),
        (parts(&plain, &settings), include_str!("plain.yaml")),
    ];
    for (parts, expected) in table {
        let pod = serde_json::to_value(PodTemplate::of(parts).unwrap().pod(4)).unwrap();
        let expected: Value = serde_saphyr::from_str(expected).unwrap();
        assert_eq!(pod, expected, "\n{}", serde_saphyr::to_string(&pod).unwrap());
    }
}

#[test]
fn the_image_follows_from_the_options_of_the_pe_and_of_the_frontend() {
    // image, build type, valgrind, build type of the frontend -> image
    let table = [
        (None, None, false, BuildType::Debug, "docker.io/openstreams/streams-runtime:6.debug"),
        (None, None, false, BuildType::Release, "docker.io/openstreams/streams-runtime:6.release"),
        (None, Some(BuildType::Release), false, BuildType::Debug, "docker.io/openstreams/streams-runtime:6.release"),
        (None, None, true, BuildType::Release, "docker.io/openstreams/streams-runtime:6.debug"),
        (Some("mine:1"), Some(BuildType::Release), true, BuildType::Release, "mine:1"),
    ];
    for (image, build_type, run_with_valgrind, default, expected) in table {
        let pe = with(|spec| {
            spec.options.image = image.map(str::to_owned);
            spec.options.build_type = build_type;
            spec.options.run_with_valgrind = run_with_valgrind;
        });
        let settings = PodSettings { build_type: default, ..settings() };
        let pod = PodTemplate::of(parts(&pe, &settings)).unwrap().pod(1);
        let container = &pod.spec.unwrap().containers[0];
        assert_eq!(container.image.as_deref(), Some(expected));
        let capabilities = container.security_context.as_ref().and_then(|context| context.capabilities.clone());
        assert_eq!(capabilities.is_some(), run_with_valgrind);
        let valgrind = container.env.iter().flatten().find(|variable| variable.name == "STREAMS_PE_USE_VALGRIND");
        assert_eq!(valgrind.unwrap().value, Some(run_with_valgrind.to_string()));
    }
}

#[test]
fn data_and_checkpoints_come_from_a_claim_or_from_the_node() {
    let claim = || Some(DataVolumeClaim { name: "claim".to_owned(), sub_path: None });
    let claimed = json!({"persistentVolumeClaim": {"claimName": "claim"}});
    let of_node = |path: &str| json!({"hostPath": {"path": path}});
    // claim, path of the PE, path of the frontend -> volume
    let table = [
        (claim(), Some("/pe"), Some("/all"), Some(claimed.clone())),
        (None, Some("/pe"), Some("/all"), Some(of_node("/pe"))),
        (None, None, Some("/all"), Some(of_node("/all"))),
        (None, None, None, None),
    ];
    for (claim, of_pe, of_all, expected) in table {
        let pe =
            with(|spec| (spec.options.data_volume_claim, spec.options.data_path) = (claim, of_pe.map(str::to_owned)));
        let settings = PodSettings { data_path: of_all.map(str::to_owned), ..settings() };
        assert_eq!(volume(&PodTemplate::of(parts(&pe, &settings)).unwrap().pod(1), "data-volume", "/data"), expected);
    }
    // claim, path of the frontend -> volume, or nothing to keep checkpoints in
    let table = [
        (claim(), None, Ok(claimed)),
        (None, Some("/all"), Ok(of_node("/all"))),
        (None, None, Err("CheckpointVolumeMissing")),
    ];
    for (volume_claim, of_all, expected) in table {
        let file_system = Some(FileSystemCheckpoints { path: "/keep".to_owned(), volume_claim });
        let pe =
            with(|spec| spec.options.checkpoint_repository = Some(CheckpointRepository { file_system, redis: None }));
        let settings = PodSettings { checkpoint_path: of_all.map(str::to_owned), ..settings() };
        let template = PodTemplate::of(parts(&pe, &settings));
        let found = template.map(|template| volume(&template.pod(1), "checkpoint-volume", "/keep").unwrap());
        assert_eq!(found.map_err(|waiting| waiting.reason), expected);
    }
}

/// The source of the volume that is mounted at this path.
fn volume(pod: &Pod, name: &str, path: &str) -> Option<Value> {
    let spec = pod.spec.as_ref().unwrap();
    let mount = spec.containers[0].volume_mounts.iter().flatten().find(|mount| mount.name == name)?;
    assert_eq!(mount.mount_path, path);
    let volume = spec.volumes.iter().flatten().find(|volume| volume.name == name)?;
    let mut source = serde_json::to_value(volume).unwrap();
    source.as_object_mut().unwrap().remove("name");
    Some(source)
}

/// Whether a PE has all of them or not.
#[test]
fn operators_can_neither_change_nor_add_variables_of_the_runtime() {
    let (full, _) = demanding();
    for (mut pe, all) in [(full, true), (pe(), false)] {
        let asked_for = environment::RESERVED.iter().chain(&["MINE"]);
        pe.spec.environment = asked_for.map(|name| ((*name).to_owned(), "of an operator".to_owned())).collect();
        let variables = environment::variables(parts(&pe, &settings()), 1);
        let names: Vec<&str> = variables.iter().map(|variable| variable.name.as_str()).collect();
        let expected = environment::RESERVED.iter().take(if all { 15 } else { 12 }).chain(&["MINE"]);
        assert!(names.iter().eq(expected), "{names:?}");
        let of_operators = variables.iter().filter(|variable| variable.value.as_deref() == Some("of an operator"));
        assert!(of_operators.map(|variable| variable.name.as_str()).eq(["MINE"]), "{variables:?}");
    }
}

#[test]
fn redis_servers_are_passed_on_as_they_were_found() {
    let redis =
        RedisCheckpoints { replica_count: 1, shard_count: 1, service: "redis".to_owned(), ..Default::default() };
    let pe = with(|spec| {
        spec.options.checkpoint_data_store = Some(CheckpointRepository { file_system: None, redis: Some(redis) });
    });
    let settings = settings();
    assert_eq!(PodTemplate::of(parts(&pe, &settings)).unwrap_err().reason, "CheckpointRepositoryUnknown");
    let found = Parts { redis: Some("{\"replicas\":1}"), ..parts(&pe, &settings) };
    let pod = PodTemplate::of(found).unwrap().pod(1);
    let variables = pod.spec.unwrap().containers[0].env.clone().unwrap();
    let last: Vec<_> = variables.iter().rev().take(2).map(|variable| variable.value.as_deref().unwrap()).collect();
    assert_eq!(last, ["{\"replicas\":1}", "redis"]);
}

#[test]
fn hashes_tell_apart_what_they_should() {
    let settings = settings();
    let hashes = |pe: &ProcessingElement| PodTemplate::of(parts(pe, &settings)).unwrap().hashes().clone();
    let plain = hashes(&pe());
    // What changed -> the template is another one, the place is another one
    let table: Vec<(&str, ProcessingElement, bool, bool)> = vec![
        ("nothing", pe(), false, false),
        ("the text", with(|spec| spec.content_id = "other".to_owned()), false, false),
        ("what is observed of it", with(|spec| spec.runtime_id = "other".to_owned()), false, false),
        (
            "its ConfigMap",
            with(|spec| (spec.config_map.name, spec.config_map.compressed) = ("x".to_owned(), true)),
            false,
            false,
        ),
        ("the generation", with(|spec| spec.generation = 9), false, false),
        ("policies", with(|spec| spec.options.restart_completed_pod = true), false, false),
        ("a trace level", with(|spec| spec.options.runtime_trace_level = TraceLevel::Trace), true, false),
        ("a probe", with(|spec| spec.options.probe_failure_threshold = 5), true, false),
        ("the environment", with(|spec| spec.environment = [("A".to_owned(), "b".to_owned())].into()), true, false),
        ("the host", with(|spec| spec.placement.host = Some("h".to_owned())), false, true),
        ("a token", with(|spec| spec.placement.ex_locations = vec!["t".to_owned()]), false, true),
        ("the label of its group", with(|spec| spec.placement.group = Some("l".to_owned())), false, false),
        ("a group that was joined", with(|spec| spec.placement.joined = Some(2)), false, true),
        ("isolation", with(|spec| spec.placement.isolation = Some("o".to_owned())), false, true),
    ];
    for (what, pe, template, placement) in table {
        let other = hashes(&pe);
        assert_eq!((other.hash != plain.hash, other.placement != plain.placement), (template, placement), "{what}");
    }
    let other_settings = PodSettings { image_version: "7".to_owned(), ..settings.clone() };
    assert_ne!(PodTemplate::of(parts(&pe(), &other_settings)).unwrap().hashes().hash, plain.hash);
}

#[test]
fn a_launch_changes_nothing_but_its_number_and_its_name() {
    let pe = pe();
    let settings = settings();
    let template = PodTemplate::of(parts(&pe, &settings)).unwrap();
    let (mut one, two) = (template.pod(1), template.pod(2));
    assert_ne!(one, two);
    one.metadata.name.clone_from(&two.metadata.name);
    one.labels_mut().insert(names::LABEL_LAUNCH_COUNT.to_owned(), "2".to_owned());
    let variables = one.spec.as_mut().unwrap().containers[0].env.as_mut().unwrap();
    variables.iter_mut().find(|variable| variable.name == "STREAMS_PE_LAUNCH_COUNT").unwrap().value =
        Some("2".to_owned());
    assert_eq!(one, two);
}

#[test]
fn a_pod_whose_pool_is_missing_or_is_not_as_the_pe_is_to_have_it_waits() {
    let pool = |host: &str, mode| HostPoolSpec {
        hosts: vec![host.to_owned()],
        membership_mode: mode,
        ..HostPoolSpec::default()
    };
    let (shared, exclusive) = (pool("a", MembershipMode::Shared), pool("a", MembershipMode::Exclusive));
    let (other, renamed) = (pool("b", MembershipMode::Shared), HostPoolSpec { name: "p".to_owned(), ..shared.clone() });
    let placement = Placement { pool: Some(PoolLocation { index: 0, in_pool_index: None }), ..Placement::default() };
    let wanted = placement_hash(&placement, Some(&shared));
    // what the PE says, the pool -> what is missing
    let table = [
        (Some(&wanted), None, Some("HostPoolMissing")),
        (Some(&wanted), Some(&shared), None),
        (Some(&wanted), Some(&renamed), None),
        (Some(&wanted), Some(&other), Some("HostPoolChanged")),
        (Some(&wanted), Some(&exclusive), Some("HostPoolChanged")),
        // An earlier frontend has written the PE.
        (None, Some(&other), None),
    ];
    for (says, pool, expected) in table {
        let pe = with(|spec| (spec.placement, spec.placement_hash) = (placement.clone(), says.cloned()));
        let settings = settings();
        let template = PodTemplate::of(Parts { pool, ..parts(&pe, &settings) });
        assert_eq!(template.err().map(|waiting| waiting.reason), expected, "{says:?} {pool:?}");
    }
}
