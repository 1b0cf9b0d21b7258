//! Pods seem to run, and do what annotations tell them.

use crate::support::{SOON, control_plane};
use anyhow::{Context as _, Result, bail, ensure};
use futures::{StreamExt as _, pin_mut};
use k8s_openapi::api::core::v1::{ContainerStateTerminated, Node, Pod};
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use serde_json::{Value, json};
use streams_control_plane::wait::eventually;

/// Makes a pod with `annotations` in a namespace of its own and waits until it is in `phase` on a node.
async fn pod_reaches(phase: &str, annotations: Value) -> Result<(Api<Pod>, Pod)> {
    let control_plane = control_plane().await?;
    let namespace = control_plane.namespace("pods").await?;
    let pods = Api::<Pod>::namespaced(control_plane.client().await?, &namespace);
    let pod = json!({
        "metadata": {"name": "p", "annotations": annotations},
        "spec": {"containers": [{"name": "main", "image": "none"}, {"name": "second", "image": "none"}]},
    });
    pods.create(&PostParams::default(), &serde_json::from_value(pod)?).await?;
    let pod = eventually(&format!("the pod is {phase}"), SOON, || async {
        let pod = pods.get("p").await?;
        let status = pod.status.clone().unwrap_or_default();
        let scheduled = pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some());
        ensure!(scheduled && status.phase.as_deref() == Some(phase), "{status:?}");
        Ok(pod)
    })
    .await?;
    Ok((pods, pod))
}

fn ended(pod: &Pod) -> Vec<ContainerStateTerminated> {
    let statuses = pod.status.iter().flat_map(|status| status.container_statuses.iter().flatten());
    statuses.filter_map(|status| status.state.as_ref()?.terminated.clone()).collect()
}

#[tokio::test]
async fn a_pod_runs_on_a_node_and_has_addresses() -> Result<()> {
    let (pods, pod) = pod_reaches("Running", json!({})).await?;
    let status = pod.status.context("no status")?;
    let ready = status.conditions.iter().flatten().find(|condition| condition.type_ == "Ready");
    assert_eq!(ready.map(|condition| condition.status.as_str()), Some("True"));
    assert!(status.pod_ip.is_some_and(|address| address.starts_with("10.128.")));

    let node_name = pod.spec.and_then(|spec| spec.node_name).context("not scheduled")?;
    let node = Api::<Node>::all(control_plane().await?.client().await?).get(&node_name).await?;
    let addresses = node.status.and_then(|status| status.addresses).unwrap_or_default();
    assert_eq!(
        status.host_ip,
        addresses.into_iter().find(|address| address.type_ == "InternalIP").map(|address| address.address)
    );

    pods.delete("p", &DeleteParams::default()).await?;
    eventually("the deleted pod is gone", SOON, || async {
        ensure!(pods.get_opt("p").await?.is_none(), "still there");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_pod_told_to_fail_shows_exit_code_and_reason() -> Result<()> {
    let annotations = json!({"streams-test/fail": "137", "streams-test/fail-reason": "OOMKilled"});
    let (_, pod) = pod_reaches("Failed", annotations).await?;
    let ended: Vec<_> = ended(&pod).into_iter().map(|ended| (ended.exit_code, ended.reason)).collect();
    assert_eq!(ended, [(137, Some("OOMKilled".to_owned())), (0, Some("Completed".to_owned()))]);
    Ok(())
}

#[tokio::test]
async fn a_pod_told_to_succeed_does() -> Result<()> {
    let (_, pod) = pod_reaches("Succeeded", json!({"streams-test/succeed": ""})).await?;
    assert_eq!(ended(&pod).iter().map(|ended| ended.exit_code).collect::<Vec<_>>(), [0, 0]);
    Ok(())
}

#[tokio::test]
async fn a_pod_that_is_held_waits_until_it_is_let_go() -> Result<()> {
    let (pods, _) = pod_reaches("Pending", json!({"streams-test/hold": ""})).await?;
    let let_go = Patch::Merge(json!({"metadata": {"annotations": {"streams-test/hold": null}}}));
    pods.patch("p", &PatchParams::default(), &let_go).await?;
    eventually("the pod runs", SOON, || async {
        let phase = pods.get("p").await?.status.and_then(|status| status.phase);
        ensure!(phase.as_deref() == Some("Running"), "{phase:?}");
        Ok(())
    })
    .await
}

/// What a watch of pods with a label shows last of a pod before it says that the pod is deleted: the grace period, if
/// the pod is going.
async fn last_seen(node: Option<&str>, end: impl AsyncFnOnce(&Api<Pod>) -> Result<()>) -> Result<(Option<i64>, bool)> {
    let control_plane = control_plane().await?;
    let namespace = control_plane.namespace("pods").await?;
    let pods = Api::<Pod>::namespaced(control_plane.client().await?, &namespace);
    let pod = json!({
        "metadata": {"name": "p", "labels": {"app": "watched"}},
        "spec": {"nodeName": node, "containers": [{"name": "main", "image": "none"}]},
    });
    let created = pods.create(&PostParams::default(), &serde_json::from_value(pod)?).await?;
    let version = created.metadata.resource_version.context("no version")?;
    end(&pods).await?;
    let events = pods.watch(&WatchParams::default().labels("app=watched"), &version).await?;
    pin_mut!(events);
    let mut grace = None;
    while let Some(event) = events.next().await {
        match event? {
            WatchEvent::Added(pod) | WatchEvent::Modified(pod) => grace = pod.metadata.deletion_grace_period_seconds,
            WatchEvent::Deleted(_) => return Ok((grace, pods.get_opt("p").await?.is_some())),
            WatchEvent::Bookmark(_) => {}
            WatchEvent::Error(error) => bail!("{error:?}"),
        }
    }
    bail!("the watch has ended")
}

/// Whoever watches pods by a label can tell the end of one from the loss of its label.
#[tokio::test]
async fn a_watch_shows_that_the_grace_period_is_over_before_a_pod_is_gone_and_not_when_it_loses_its_label() -> Result<()>
{
    let delete = async |pods: &Api<Pod>| Ok(pods.delete("p", &DeleteParams::default()).await.map(drop)?);
    let unlabel = async |pods: &Api<Pod>| {
        pods.delete("p", &DeleteParams::default()).await?;
        let bare = Patch::Merge(json!({"metadata": {"labels": {"app": null}}}));
        pods.patch("p", &PatchParams::default(), &bare).await?;
        Ok(())
    };
    ensure!(last_seen(None, delete).await? == (Some(0), false), "a pod whose kubelet ends it, or that is on no node");
    let by_force =
        async |pods: &Api<Pod>| Ok(pods.delete("p", &DeleteParams::default().grace_period(0)).await.map(drop)?);
    ensure!(last_seen(Some("no-such-node"), by_force).await? == (Some(0), false), "a pod that is deleted by force");
    // Nobody ends it.
    let seen = last_seen(Some("no-such-node"), unlabel).await?;
    ensure!(seen == (Some(30), true), "a pod that loses its label while it is going: {seen:?}");
    Ok(())
}
