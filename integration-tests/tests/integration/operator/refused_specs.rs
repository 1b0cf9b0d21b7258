//! What the API server refuses by itself, with a message that names it. No part of the operator runs here.

use anyhow::{Context as _, Result, ensure};
use kube::Error;
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, PostParams};
use serde_json::{Value, json};

use crate::support::control_plane;

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
