//! What the API server refuses by itself, with a message that names it (rules name-2 and job-31). No part of
//! the operator runs here.

use super::fixture::WITHIN;
use crate::support::control_plane;
use anyhow::{Context as _, Result, ensure};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams};
use kube::{CustomResourceExt as _, Error};
use serde_json::{Value, json};
use streams_api::{Job, ParallelRegion, ParallelRegionSpec};
use streams_control_plane::wait::eventually;

/// What the API server says to a job with this name and spec.
async fn create(namespace: &str, name: &str, spec: &Value) -> Result<Result<(), String>> {
    let kind = ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk("streams.ibm.com", "v1", "Job"), "streamsjobs");
    let jobs: Api<DynamicObject> = Api::namespaced_with(control_plane().await?.client().await?, namespace, &kind);
    let job = serde_json::from_value(json!({
        "apiVersion": "streams.ibm.com/v1", "kind": "Job", "metadata": {"name": name}, "spec": spec,
    }))?;
    match jobs.create(&PostParams { dry_run: true, ..PostParams::default() }, &job).await {
        Ok(_) => Ok(Ok(())),
        Err(Error::Api(status)) if status.code == 422 => Ok(Err(status.message.clone())),
        Err(error) => Err(error).with_context(|| format!("{name} {spec}")),
    }
}

#[tokio::test]
async fn contradictions_and_impossible_values_are_refused_at_the_door() -> Result<()> {
    let namespace = control_plane().await?.namespace("refused").await?;
    let bundle = json!({"file": "a.sab"});
    let with = |key: &str, value: Value| json!({"bundle": bundle, key: value});
    let long = "j".repeat(57);
    // name, spec -> what the message says
    let table = [
        ("j", with("fusion", json!({"legacy": true, "manual": 3})), "legacy and manual fusion exclude each other"),
        ("j", with("fusion", json!({"legacy": true, "automatic": true})), "exclude each other"),
        ("j", with("fusion", json!({"automatic": false})), "choose legacy or manual"),
        ("j", with("fusion", json!({"manual": 0})), "spec.fusion.manual"),
        ("j", with("fusion", json!({"type": "channelMagic"})), "channelMagic"),
        ("j", with("threadingModel", json!({"automatic": true, "dedicated": true})), "threading exclude each other"),
        ("j", with("threadingModel", json!({"manual": true, "dynamic": {}})), "threading exclude each other"),
        ("j", with("threadingModel", json!({"dynamic": {"threadCount": 0}})), "threadCount"),
        ("j", with("parallelRegions", json!([{"name": "R", "width": 0}])), "spec.parallelRegions[0].width"),
        ("j", with("parallelRegions", json!([{"name": "R", "width": 10_001}])), "spec.parallelRegions[0].width"),
        ("j", with("parallelRegions", json!([{"name": "R", "width": 2, "maxWidth": 1}])), "greater than maxWidth"),
        ("j", with("parallelRegions", json!([{"name": "R", "width": 2, "minWidth": 3}])), "less than minWidth"),
        ("j", with("parallelRegions", json!([{"name": "R", "channelCount": "Sometimes"}])), "channelCount"),
        ("j", with("parallelRegions", json!([{"name": "R"}])), "set a width, bounds, coolDownSeconds or channelCount"),
        ("j", with("parallelRegions", json!([{"name": "R", "width": 1}, {"alias": "R", "width": 2}])), "named once"),
        ("j", with("rollout", json!({"maxUnavailable": 0})), "from 1, or a percentage"),
        ("j", with("rollout", json!({"maxUnavailable": "0%"})), "from 1, or a percentage"),
        ("j", with("rollout", json!({"maxUnavailable": "5"})), "from 1, or a percentage"),
        ("j", with("rollout", json!({"maxUnavailable": "101%"})), "from 1, or a percentage"),
        ("j", with("rollout", json!({"minReadySeconds": -1})), "spec.rollout.minReadySeconds"),
        ("j", json!({"bundle": {}}), "a bundle needs a name, a url or a file"),
        ("j", json!({"bundle": {"file": "../a.sab"}}), "inside the frontend's bundle directory"),
        ("j", json!({"bundle": {"file": "a.sab", "url": "https://h/a.sab"}}), "url and file exclude each other"),
        ("j", json!({"bundle": {"url": "ftp://h/a.sab"}}), "https, http or file URL"),
        ("j", json!({}), "spec.bundle"),
        (
            "j",
            with("imagePullSecret", json!("Not A Name")),
            "spec.imagePullSecret: Invalid value: \"Not A Name\": must be",
        ),
        ("j", json!({"bundle": {"url": "https://h/a.sab", "secret": "-"}}), "spec.bundle.secret"),
        ("1j", json!({"bundle": bundle}), "Services are named after it"),
        ("a.b", json!({"bundle": bundle}), "Services are named after it"),
        (&long, json!({"bundle": bundle}), "at most 56 characters"),
    ];
    for (name, spec, expected) in table {
        let refused =
            create(&namespace, name, &spec).await?.err().with_context(|| format!("{name} {spec} was taken"))?;
        ensure!(refused.contains(expected), "{name} {spec}: {refused}");
    }
    let good = json!({
        "bundle": bundle, "fusion": {"manual": 3, "type": "channelIsolation"}, "threadingModel": {"dynamic": {"threadCount": 2}},
        "imagePullSecret": "a.b-c",
        "parallelRegions": [{"name": "*", "width": 2}, {"alias": "R", "minWidth": 1, "maxWidth": 3}],
    });
    ensure!(create(&namespace, &"j".repeat(56), &good).await? == Ok(()), "a good spec is refused");
    Ok(())
}

/// What no cluster can use would show much later, and only where a PE waits for its pod.
#[tokio::test]
async fn what_no_cluster_can_use_is_refused_at_the_door() -> Result<()> {
    let namespace = control_plane().await?.namespace("unusable").await?;
    let secret = "must be the name of an object";
    let image = "must be a reference to an image";
    let quantity = "must be a quantity";
    let resource = "must be names of resources";
    let path = "relative and without '..'";
    let limits = |limits: Value| json!({ "limits": limits });
    let file_system = |path: &str| json!({"fileSystem": {"path": path}});
    let (place, mounted) = ("checkpointRepository.fileSystem.path", "must be a place of its own");
    let store = "checkpointDataStore.fileSystem.path";
    let (whole, pages) = ("must be whole numbers", "must be a multiple of the size in their name");
    let (equal, beside) = ("need limits that are equal", "huge pages need cpu or memory");
    // field of the options of PEs, value -> field and what the message says of it; nothing for what is taken
    let table = [
        ("image", json!("UPPER/Case:bad tag"), Some(("image", image))),
        ("image", json!("a:b:c"), Some(("image", image))),
        ("image", json!("Upper"), Some(("image", image))),
        ("image", json!("a//b"), Some(("image", image))),
        ("image", json!("a@sha256:12"), Some(("image", image))),
        ("image", json!("a"), None),
        ("image", json!("docker.io/openstreams/streams-runtime:6.debug"), None),
        ("image", json!(format!("localhost:5000/x_y/z@sha256:{}", "0f".repeat(32))), None),
        ("image", json!(format!("[::1]:5000/x--y:V1@sha256:{}", "0f".repeat(32))), None),
        ("imagePullSecret", json!("Not A Name"), Some(("imagePullSecret", secret))),
        ("appPropertiesSecret", json!("a_b"), Some(("appPropertiesSecret", secret))),
        ("restrictedPropertiesSecret", json!("a..b"), Some(("restrictedPropertiesSecret", secret))),
        ("restrictedPropertiesSecret", json!("a.b-c.0"), None),
        ("dataVolumeClaim", json!({"name": "A"}), Some(("dataVolumeClaim.name", secret))),
        ("dataVolumeClaim", json!({"name": "a", "subPath": "/abs"}), Some(("dataVolumeClaim.subPath", path))),
        ("dataVolumeClaim", json!({"name": "a", "subPath": "a/../b"}), Some(("dataVolumeClaim.subPath", path))),
        ("dataVolumeClaim", json!({"name": "a", "subPath": "a/..b/.c"}), None),
        ("dataPath", json!("/a/../b"), Some(("dataPath", "without '..'"))),
        ("dataPath", json!("/a..b"), None),
        (
            "checkpointRepository",
            json!({"fileSystem": {"path": "/a:b"}}),
            Some(("checkpointRepository.fileSystem.path", "without ':'")),
        ),
        (
            "checkpointDataStore",
            json!({"fileSystem": {"volumeClaim": {"name": "a", "subPath": ".."}}}),
            Some(("checkpointDataStore.fileSystem.volumeClaim.subPath", path)),
        ),
        ("resources", limits(json!({"cpu": "1e1.5"})), Some(("resources.limits[cpu]", quantity))),
        ("resources", limits(json!({"cpu": "a lot"})), Some(("resources.limits[cpu]", quantity))),
        ("resources", limits(json!({"cpu": -1})), Some(("resources.limits[cpu]", quantity))),
        ("resources", limits(json!({"memory": "1e99"})), Some(("resources.limits[memory]", quantity))),
        ("resources", json!({"requests": {"memory": "1 Gi"}}), Some(("resources.requests[memory]", quantity))),
        ("resources", limits(json!({"cpus": 1})), Some(("resources.limits", resource))),
        ("resources", limits(json!({"Example.com/gpu": 1})), Some(("resources.limits", resource))),
        (
            "resources",
            json!({"limits": {"cpu": 1}, "requests": {"cpu": "1001m"}}),
            Some(("resources", "requests must not be greater than limits")),
        ),
        ("checkpointRepository", file_system("/data"), Some((place, mounted))),
        ("checkpointRepository", file_system("/data/"), Some((place, mounted))),
        ("checkpointRepository", file_system("//etc/./config/pe"), Some((place, mounted))),
        ("checkpointRepository", file_system("/etc/config/job"), Some((place, mounted))),
        ("checkpointRepository", file_system("/etc/config/app"), Some((place, mounted))),
        ("checkpointRepository", file_system("/etc/config/restricted"), Some((place, mounted))),
        ("checkpointRepository", file_system("/"), Some((place, mounted))),
        ("checkpointRepository", file_system("/checkpoint/../data"), Some((place, "and '..'"))),
        ("checkpointRepository", file_system("/checkpoint/.."), Some((place, "and '..'"))),
        ("checkpointRepository", file_system("/checkpoint/..a"), None),
        ("checkpointRepository", file_system("/data/checkpoints"), None),
        ("checkpointRepository", file_system("/etc/config"), Some((place, mounted))),
        ("checkpointRepository", file_system("/etc/./config/app/x"), Some((place, mounted))),
        ("checkpointRepository", file_system("/etc"), Some((place, mounted))),
        ("checkpointRepository", file_system("/etc/checkpoints"), None),
        ("checkpointRepository", file_system("/tmp"), Some((place, mounted))),
        ("checkpointRepository", file_system("/tmp//assets/."), Some((place, mounted))),
        ("checkpointRepository", file_system("/tmp/live/x"), Some((place, mounted))),
        ("checkpointRepository", file_system("/tmp/lively"), None),
        ("checkpointDataStore", file_system("/usr/local/streams/etc"), Some((store, mounted))),
        ("checkpointDataStore", file_system("/usr/local"), Some((store, mounted))),
        ("checkpointDataStore", file_system("/usr/lib/"), Some((store, mounted))),
        ("checkpointDataStore", file_system("/usr/local/streams2"), None),
        ("checkpointRepository", file_system("/proc/self"), Some((place, mounted))),
        ("resources", limits(json!({"example.com/gpu": "500m"})), Some(("resources.limits", whole))),
        ("resources", limits(json!({"cpu": 1, "hugepages-2Mi": "0.5"})), Some(("resources.limits", whole))),
        ("resources", limits(json!({"cpu": 1, "hugepages-2Mi": "3Mi"})), Some(("resources.limits", pages))),
        ("resources", limits(json!({"cpu": 1, "hugepages-0Mi": "2Mi"})), Some(("resources.limits", pages))),
        ("resources", limits(json!({"hugepages-2Mi": "2Mi"})), Some(("resources", beside))),
        ("resources", json!({"requests": {"example.com/gpu": 1}}), Some(("resources", equal))),
        (
            "resources",
            json!({"limits": {"example.com/gpu": 2}, "requests": {"example.com/gpu": 1}}),
            Some(("resources", equal)),
        ),
        ("resources", json!({"requests": {"memory": "1Gi", "hugepages-2Mi": "2Mi"}}), Some(("resources", equal))),
        ("resources", limits(json!({"example.com/gpu": "2000m", "memory": "100m"})), None),
        ("resources", limits(json!({"memory": "1Gi", "hugepages-1Gi": "4096Mi", "hugepages-64Ki": 65_536})), None),
        (
            "resources",
            json!({"limits": {"example.com/gpu": "2", "hugepages-2Mi": "4Mi"}, "requests": {"cpu": 1, "example.com/gpu": "2000m", "hugepages-2Mi": "4096Ki"}}),
            None,
        ),
        (
            "resources",
            json!({"limits": {"cpu": 1, "example.com/gpu": 2, "hugepages-2Mi": "4Mi"}, "requests": {"cpu": "1000m", "memory": ".5Gi"}}),
            None,
        ),
    ];
    for (field, value, expected) in table {
        // Resources of the job are checked alike.
        let spec = json!({"bundle": {"file": "a.sab"}, "processingElement": {field: value}});
        let of_job = (field == "resources").then(|| json!({"bundle": {"file": "a.sab"}, field: value}));
        for (spec, prefix) in [(Some(spec), "spec.processingElement."), (of_job, "spec.")] {
            let Some(spec) = spec else { continue };
            match (create(&namespace, "j", &spec).await?, expected) {
                (Ok(()), None) => {}
                (Err(said), Some((place, message))) => {
                    ensure!(
                        said.contains(&format!("{prefix}{place}: Invalid value")) && said.contains(message),
                        "{spec}: {said}"
                    );
                }
                (answer, _) => anyhow::bail!("{spec}: {answer:?}"),
            }
        }
    }
    Ok(())
}

/// What the API server said when it refused something.
fn refusal<T>(what: &str, answer: kube::Result<T>) -> Result<String> {
    match answer {
        Ok(_) => anyhow::bail!("{what} was taken"),
        Err(Error::Api(status)) if matches!(status.code, 400 | 403 | 422) => Ok(status.message.clone()),
        Err(error) => Err(error).context(what.to_owned()),
    }
}

#[tokio::test]
async fn what_a_job_was_compiled_from_cannot_be_edited_and_the_rest_can() -> Result<()> {
    let namespace = control_plane().await?.namespace("edited").await?;
    let jobs: Api<Job> = Api::namespaced(control_plane().await?.client().await?, &namespace);
    let job = json!({
        "apiVersion": "streams.ibm.com/v1", "kind": "Job", "metadata": {"name": "j"},
        "spec": {
            "bundle": {"file": "a.sab"}, "fusion": {"manual": 3}, "submissionTimeValues": {"rate": 7},
            "parallelRegions": [{"name": "R", "width": 2, "maxWidth": 4}, {"name": "*", "width": 3}],
        },
    });
    jobs.create(&PostParams::default(), &serde_json::from_value(job)?).await?;
    let patch = async |spec: &Value| {
        let parameters = PatchParams { dry_run: true, ..PatchParams::default() };
        jobs.patch("j", &parameters, &Patch::Merge(json!({ "spec": spec }))).await
    };
    let regions = |r: Value, all: Value| json!({ "parallelRegions": [r, all] });
    let star = json!({"name": "*", "width": 3});
    // edit -> what the message says
    let refused = [
        (json!({"bundle": {"file": "b.sab"}}), "spec.bundle: Forbidden: bundle cannot be edited"),
        (json!({"bundle": {"pullPolicy": "Always"}}), "spec.bundle: Forbidden: bundle cannot be edited"),
        (json!({"fusion": {"manual": 4}}), "spec.fusion: Forbidden: fusion cannot be edited"),
        (json!({"fusion": null}), "spec.fusion: Forbidden: fusion cannot be edited"),
        (
            json!({"threadingModel": {"dedicated": true}}),
            "spec.threadingModel: Forbidden: threadingModel cannot be edited",
        ),
        (
            json!({"submissionTimeValues": {"rate": 8}}),
            "spec.submissionTimeValues: Forbidden: submissionTimeValues cannot be edited",
        ),
        (
            json!({"submissionTimeValues": {"rate": "7", "more": "x"}}),
            "spec.submissionTimeValues: Forbidden: submissionTimeValues cannot be edited",
        ),
        (
            regions(json!({"name": "R", "width": 3, "maxWidth": 4}), star.clone()),
            "spec.parallelRegions: Forbidden: the widths of parallelRegions",
        ),
        (
            regions(star.clone(), json!({"name": "R", "width": 2})),
            "spec.parallelRegions: Forbidden: the widths of parallelRegions",
        ),
        (json!({"parallelRegions": []}), "spec.parallelRegions: Forbidden: the widths of parallelRegions"),
        (
            regions(json!({"name": "R", "width": 2, "channelCount": "Ignored"}), star.clone()),
            "spec.parallelRegions: Forbidden: the channelCount of parallelRegions cannot be edited",
        ),
        (
            json!({"processingElement": {"appTraceLevel": "DEBUG"}}),
            "spec.processingElement: Forbidden: processingElement.appTraceLevel cannot be edited",
        ),
    ];
    // A submission refuses these (rule job-7); what runs must not come to depend on them.
    let redis = json!({"redis": {"service": "r", "replicaCount": 1, "shardCount": 1}});
    let unsupported = [
        (
            json!({"processingElement": {"transportSecurityType": "TLSv1.2"}}),
            "spec.processingElement.transportSecurityType: Forbidden: processingElement.transportSecurityType cannot be edited once the job is submitted",
        ),
        (
            json!({"processingElement": {"checkpointRepository": redis}}),
            "spec.processingElement.checkpointRepository: Forbidden: processingElement.checkpointRepository.redis cannot be added or changed",
        ),
        (
            json!({"processingElement": {"checkpointDataStore": redis}}),
            "spec.processingElement.checkpointDataStore: Forbidden: processingElement.checkpointDataStore.redis cannot be added or changed",
        ),
    ];
    for (edit, _) in refused.iter().chain(&unsupported) {
        patch(edit).await.with_context(|| format!("{edit} before the submission"))?;
    }
    // The job controller commits the first generation.
    let committed = Patch::Merge(json!({"status": {"generation": 0}}));
    jobs.patch_status("j", &PatchParams::default(), &committed).await?;
    for (edit, expected) in &refused {
        let said = refusal(&edit.to_string(), patch(edit).await)?;
        ensure!(said.contains(expected) && said.contains("create another job"), "{edit}: {said}");
    }
    for (edit, expected) in &unsupported {
        let said = refusal(&edit.to_string(), patch(edit).await)?;
        ensure!(said.contains(expected), "{edit}: {said}");
    }
    let (r, bounds) = (json!({"name": "R", "width": 2}), json!({"name": "S", "minWidth": 1}));
    let taken = [
        regions(json!({"name": "R", "width": 2, "minWidth": 1, "maxWidth": 8}), star.clone()),
        // The width of the submission says nothing of the one in force.
        regions(json!({"name": "R", "width": 2, "minWidth": 4, "maxWidth": 8}), star.clone()),
        regions(json!({"name": "R", "width": 2, "maxWidth": 1}), star.clone()),
        json!({"parallelRegions": [bounds, r, {"alias": "T*", "maxWidth": 4}, star]}),
        json!({"processingElement": {"transportSecurityType": "none", "checkpointRepository": {"fileSystem": {}}}}),
        json!({"processingElement": {"runtimeTraceLevel": "DEBUG"}}),
        json!({"imagePullSecret": "s"}),
    ];
    for edit in taken {
        patch(&edit).await.with_context(|| edit.to_string())?;
    }
    Ok(())
}

/// What was removed by mistake can be put back: its servers are known.
#[tokio::test]
async fn redis_servers_of_checkpoints_keep_their_place_under_either_name_of_the_option() -> Result<()> {
    let namespace = control_plane().await?.namespace("kept-redis").await?;
    let jobs: Api<Job> = Api::namespaced(control_plane().await?.client().await?, &namespace);
    let redis = |service: &str| json!({"redis": {"service": service, "replicaCount": 1, "shardCount": 1}});
    let spec = json!({"bundle": {"file": "a.sab"}, "processingElement": {"checkpointRepository": redis("r")}});
    jobs.create(&PostParams::default(), &Job::new("j", serde_json::from_value(spec)?)).await?;
    let committed = Patch::Merge(json!({"status": {"generation": 0, "redisConfiguration": "{}"}}));
    jobs.patch_status("j", &PatchParams::default(), &committed).await?;
    let edit = async |repository: Value, store: Value| {
        let options = json!({"checkpointRepository": repository, "checkpointDataStore": store});
        let edit = Patch::Merge(json!({"spec": {"processingElement": options}}));
        jobs.patch("j", &PatchParams::default(), &edit).await
    };
    let nothing = Value::Null;
    for (what, repository, store) in
        [("others", redis("s"), nothing.clone()), ("others by the other name", nothing.clone(), redis("s"))]
    {
        let said = refusal(what, edit(repository, store).await)?;
        ensure!(said.contains("cannot be added or changed"), "{said}");
    }
    for (what, repository, store) in [
        ("the other name", nothing.clone(), redis("r")),
        ("the first one again", redis("r"), nothing.clone()),
        ("removed", nothing.clone(), nothing.clone()),
        ("put back by the other name", nothing.clone(), redis("r")),
        ("removed again", nothing.clone(), nothing.clone()),
        ("put back", redis("r"), nothing),
    ] {
        edit(repository, store).await.context(what)?;
    }
    Ok(())
}

/// A job without widths gets bounds, and loses them again.
#[tokio::test]
async fn bounds_are_edited_without_widths() -> Result<()> {
    let namespace = control_plane().await?.namespace("bounded").await?;
    let jobs: Api<Job> = Api::namespaced(control_plane().await?.client().await?, &namespace);
    jobs.create(&PostParams::default(), &Job::new("j", serde_json::from_value(json!({"bundle": {"file": "a.sab"}}))?))
        .await?;
    let committed = Patch::Merge(json!({"status": {"generation": 0}}));
    jobs.patch_status("j", &PatchParams::default(), &committed).await?;
    let edit = async |regions: Value| {
        let edit = Patch::Merge(json!({"spec": {"parallelRegions": regions}}));
        jobs.patch("j", &PatchParams::default(), &edit).await
    };
    edit(json!([{"name": "*", "maxWidth": 4}])).await.context("bounds are added")?;
    edit(json!([{"name": "R", "minWidth": 2}, {"name": "*", "maxWidth": 4}])).await.context("more are added")?;
    let said = refusal("a width", edit(json!([{"name": "R", "minWidth": 2, "width": 3}])).await)?;
    ensure!(said.contains("the widths of parallelRegions cannot be edited"), "{said}");
    edit(Value::Null).await.context("they are removed")?;
    Ok(())
}

/// A job that was stored before a rule was there can still be edited, but for the fields that break the rule.
#[tokio::test]
async fn what_was_stored_before_a_rule_was_there_stays_as_it_is() -> Result<()> {
    let control_plane = control_plane().await?;
    let (client, namespace) = (control_plane.client().await?, control_plane.namespace("stored").await?);
    // The definition of another group, so that other tests do not notice.
    let of_group = |schema: fn(&mut Value)| -> Result<Value> {
        let text = serde_json::to_string(&Job::crd())?.replace("streams.ibm.com", "stored.streams.test");
        let mut crd: Value = serde_json::from_str(&text)?;
        crd["apiVersion"] = json!("apiextensions.k8s.io/v1");
        crd["kind"] = json!("CustomResourceDefinition");
        schema(&mut crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]);
        Ok(crd)
    };
    let crds: Api<CustomResourceDefinition> = Api::all(client.clone());
    let name = "streamsjobs.stored.streams.test";
    let apply = async |crd: Value| {
        crds.patch(name, &PatchParams::apply("test").force(), &Patch::Apply(crd)).await.context("the definition")
    };
    apply(of_group(without_rules)?).await?;
    eventually("the definition is served", WITHIN, || async {
        let conditions = crds.get(name).await?.status.and_then(|status| status.conditions).unwrap_or_default();
        ensure!(conditions.iter().any(|c| c.type_ == "Established" && c.status == "True"), "{conditions:?}");
        Ok(())
    })
    .await?;
    let kind =
        ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk("stored.streams.test", "v1", "Job"), "streamsjobs");
    let jobs: Api<DynamicObject> = Api::namespaced_with(client, &namespace, &kind);
    let spec = json!({
        "bundle": {"file": "a.sab"}, "imagePullSecret": "Not A Name",
        "resources": {"limits": {"cpu": "1e99"}},
        "processingElement": {"image": "UPPER/Case:bad tag", "transportSecurityType": "TLSv1.2", "dataVolumeClaim": {"name": "a", "subPath": "/abs"}},
    });
    let job = serde_json::from_value(json!({
        "apiVersion": "stored.streams.test/v1", "kind": "Job", "metadata": {"name": "j"}, "spec": spec,
    }))?;
    jobs.create(&PostParams::default(), &job).await?;
    jobs.patch_status("j", &PatchParams::default(), &Patch::Merge(json!({"status": {"generation": 0}}))).await?;
    apply(of_group(|_| ())?).await?;
    let patch = async |spec: Value, parameters: PatchParams| {
        jobs.patch("j", &parameters, &Patch::Merge(json!({ "spec": spec }))).await
    };
    eventually("the rules are in force", WITHIN, || async {
        // A dry run: what the server takes before it has the rules would be stored, and from then on be what stays.
        let dry_run = PatchParams { dry_run: true, ..PatchParams::default() };
        let said = refusal("a bad Secret", patch(json!({"imagePullSecret": "Another Bad Name"}), dry_run).await)?;
        ensure!(said.contains("spec.imagePullSecret"), "{said}");
        Ok(())
    })
    .await?;
    for edit in [
        json!({"submissionTimeOutInSeconds": 7}),
        json!({"resources": {"limits": {"memory": "1Gi"}}}),
        json!({"processingElement": {"runtimeTraceLevel": "DEBUG", "dataVolumeClaim": {"name": "b"}}}),
    ] {
        patch(edit.clone(), PatchParams::default()).await.with_context(|| edit.to_string())?;
    }
    // The job controller writes the status.
    jobs.patch_status("j", &PatchParams::default(), &Patch::Merge(json!({"status": {"generation": 1}}))).await?;
    crds.delete(name, &DeleteParams::default()).await?;
    Ok(())
}

/// Takes the rules out of a schema.
fn without_rules(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            fields.remove("x-kubernetes-validations");
            fields.values_mut().for_each(without_rules);
        }
        Value::Array(items) => items.iter_mut().for_each(without_rules),
        _ => {}
    }
}

/// `kubectl scale` writes the scale sub-resource.
#[tokio::test]
async fn a_region_takes_no_impossible_width_and_stays_what_it_is() -> Result<()> {
    let namespace = control_plane().await?.namespace("scaled").await?;
    let regions: Api<ParallelRegion> = Api::namespaced(control_plane().await?.client().await?, &namespace);
    let spec = ParallelRegionSpec { job_name: "j".to_owned(), index: 0, name: "R".to_owned(), width: 2 };
    regions.create(&PostParams::default(), &ParallelRegion::new("j-0", spec)).await?;
    for (replicas, expected) in [(0, "greater than or equal to 1"), (-1, ""), (10_001, "less than or equal to 10000")] {
        let patch = Patch::Merge(json!({"spec": {"replicas": replicas}}));
        let said = refusal(&replicas.to_string(), regions.patch_scale("j-0", &PatchParams::default(), &patch).await)?;
        ensure!(said.contains(expected), "{replicas}: {said}");
    }
    for (field, value) in [("jobName", json!("k")), ("index", json!(1)), ("name", json!("S"))] {
        let patch = Patch::Merge(json!({"spec": {field: value}}));
        let said = refusal(field, regions.patch("j-0", &PatchParams::default(), &patch).await)?;
        ensure!(said.contains(&format!("{field} cannot be changed")), "{field}: {said}");
    }
    let patch = Patch::Merge(json!({"spec": {"replicas": 10_000}}));
    let scale = regions.patch_scale("j-0", &PatchParams::default(), &patch).await?;
    ensure!(scale.spec.and_then(|spec| spec.replicas) == Some(10_000));
    Ok(())
}
