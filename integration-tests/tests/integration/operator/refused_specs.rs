//! What the API server refuses by itself, with a message that names it (rules name-2 and job-31). No part of
//! the operator runs here.

use crate::support::control_plane;
use anyhow::{Context as _, Result, ensure};
use kube::Error;
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use streams_api::{Job, ParallelRegion, ParallelRegionSpec};

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
        ("j", with("parallelRegions", json!([{"name": "R", "width": 2, "maxWidth": 1}])), "maxWidth"),
        ("j", with("parallelRegions", json!([{"name": "R", "width": 1}, {"alias": "R", "width": 2}])), "named once"),
        ("j", json!({"bundle": {}}), "a bundle needs a name, a url or a file"),
        ("j", json!({"bundle": {"file": "../a.sab"}}), "inside the frontend's bundle directory"),
        ("j", json!({"bundle": {"file": "a.sab", "url": "https://h/a.sab"}}), "url and file exclude each other"),
        ("j", json!({"bundle": {"url": "ftp://h/a.sab"}}), "https, http or file URL"),
        ("j", json!({}), "spec.bundle"),
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
        "parallelRegions": [{"name": "*", "width": 2}, {"alias": "R", "minWidth": 1, "maxWidth": 3}],
    });
    ensure!(create(&namespace, &"j".repeat(56), &good).await? == Ok(()), "a good spec is refused");
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
            json!({"processingElement": {"appTraceLevel": "DEBUG"}}),
            "spec.processingElement: Forbidden: processingElement.appTraceLevel cannot be edited",
        ),
    ];
    for (edit, _) in &refused {
        patch(edit).await.with_context(|| format!("{edit} before the submission"))?;
    }
    // The job controller commits the first generation.
    let committed = Patch::Merge(json!({"status": {"generation": 0}}));
    jobs.patch_status("j", &PatchParams::default(), &committed).await?;
    for (edit, expected) in &refused {
        let said = refusal(&edit.to_string(), patch(edit).await)?;
        ensure!(said.contains(expected) && said.contains("create another job"), "{edit}: {said}");
    }
    let taken = [
        regions(json!({"name": "R", "width": 2, "minWidth": 1, "maxWidth": 8}), star),
        json!({"processingElement": {"runtimeTraceLevel": "DEBUG"}}),
        json!({"imagePullSecret": "s"}),
    ];
    for edit in taken {
        patch(&edit).await.with_context(|| edit.to_string())?;
    }
    Ok(())
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
