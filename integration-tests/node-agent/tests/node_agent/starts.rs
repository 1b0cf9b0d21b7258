//! How pods start: environment, volumes, init containers, entry points, addresses.

use crate::support::{Fixture, SOON};
use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::{ConfigMap, Node, Secret};
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use serde_json::json;
use std::net::{IpAddr, TcpListener};
use streams_control_plane::wait::eventually;

#[tokio::test]
async fn a_pod_has_its_environment_its_volumes_and_an_address() -> Result<()> {
    let Some(fixture) = Fixture::new("starts").await? else { return Ok(()) };
    let config_maps = Api::<ConfigMap>::namespaced(fixture.client.clone(), &fixture.namespace);
    let config_map = json!({"metadata": {"name": "c"}, "data": {"file": "content", "word": "hello"}});
    config_maps.create(&PostParams::default(), &serde_json::from_value(config_map)?).await?;
    let secret = json!({"metadata": {"name": "s"}, "stringData": {"key": "hidden"}});
    let secrets = Api::<Secret>::namespaced(fixture.client.clone(), &fixture.namespace);
    secrets.create(&PostParams::default(), &serde_json::from_value(secret)?).await?;

    let script = "echo \"$NAME $IP $WORD $KEY $BOTH $(cat /etc/c/file) $(cat /etc/both/renamed) $(ls /etc/both)\" > /out/said; \
                  exec sleep 1000";
    let container = json!({
        "command": ["/bin/sh", "-c", script.replace("$(", "$$(")],
        "env": [
            {"name": "NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            {"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
            {"name": "WORD", "valueFrom": {"configMapKeyRef": {"name": "c", "key": "word"}}},
            {"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "s", "key": "key"}}},
            {"name": "BOTH", "value": "$(WORD)-$$(WORD)"},
        ],
        "volumeMounts": [
            {"name": "c", "mountPath": "/etc/c"},
            {"name": "both", "mountPath": "/etc/both"},
            {"name": "out", "mountPath": "/out"},
        ],
    });
    let volumes = json!({"volumes": [
        {"name": "c", "configMap": {"name": "c"}},
        {"name": "both", "projected": {"sources": [
            {"configMap": {"name": "c", "items": [{"key": "word", "path": "renamed"}]}},
            {"secret": {"name": "s"}},
        ]}},
        {"name": "out", "hostPath": {"path": fixture.out()}},
    ]});
    fixture.pod("p", container, volumes).await?;
    let pod = fixture.reaches("p", "Running").await?;
    let status = pod.status.context("no status")?;
    let address: IpAddr = status.pod_ip.context("no address")?.parse()?;
    ensure!(address.to_string().starts_with("10.77."), "{address}");
    let said = format!("p {address} hello hidden hello-$(WORD) content hello key\nrenamed\n");
    fixture.reads(&fixture.out().join("said"), &said).await?;

    let ready = status.conditions.iter().flatten().find(|condition| condition.type_ == "Ready");
    assert_eq!(ready.map(|condition| condition.status.as_str()), Some("True"));
    let scheduled = status.conditions.iter().flatten().any(|condition| condition.type_ == "PodScheduled");
    assert!(scheduled, "what the scheduler wrote is kept");
    let container = status.container_statuses.and_then(|all| all.into_iter().next()).context("no container")?;
    assert!(container.ready && container.state.and_then(|state| state.running?.started_at).is_some());

    // The address is one of this machine, and any program may use it.
    let listener = TcpListener::bind((address, 10_000))?;
    drop(std::net::TcpStream::connect(listener.local_addr()?)?);

    // Whoever reads the file again sees what it has become.
    let changed = Patch::Merge(json!({"data": {"file": "changed"}}));
    config_maps.patch("c", &PatchParams::default(), &changed).await?;
    let uid = pod.metadata.uid.context("no uid")?;
    let file = fixture.agent.state().path().join("pods").join(uid).join("roots/main/etc/c/file");
    fixture.reads(&file, "changed").await
}

#[tokio::test]
async fn a_container_without_a_command_is_the_program_of_the_agent() -> Result<()> {
    let Some(fixture) = Fixture::new("entry").await? else { return Ok(()) };
    let container = json!({"args": ["/usr/bin/runtime", "$(VALUE)"], "env": [{"name": "VALUE", "value": "a$$b"}]});
    fixture.pod("p", container, json!({})).await?;
    let pod = fixture.reaches("p", "Running").await?;
    let uid = pod.metadata.uid.context("no uid")?;
    let root = fixture.agent.state().path().join("pods").join(uid).join("roots/main");
    let process = fixture.agent.process(&fixture.namespace, "p").context("no process")?;
    let said = format!(
        "called with --address={} --dns={} --root={} --more -- /usr/bin/runtime a$b, VALUE is a$b\n",
        pod.status.and_then(|status| status.pod_ip).context("no address")?,
        fixture.agent.dns(),
        root.display(),
    );
    fixture.reads(process.log(), &said).await
}

#[tokio::test]
async fn a_pod_waits_for_its_volumes_and_says_for_which() -> Result<()> {
    let Some(fixture) = Fixture::new("waits").await? else { return Ok(()) };
    let container = json!({
        "command": ["/bin/sh", "-c", "exec sleep 1000"],
        "volumeMounts": [{"name": "late", "mountPath": "/late"}],
    });
    fixture.pod("p", container, json!({"volumes": [{"name": "late", "configMap": {"name": "late"}}]})).await?;
    eventually("the pod says what it waits for", SOON, || async {
        let status = fixture.pods().get("p").await?.status.unwrap_or_default();
        let state = status.container_statuses.iter().flatten().next().and_then(|container| container.state.clone());
        let waiting = state.and_then(|state| state.waiting).unwrap_or_default();
        let expected = Some("volume late: there is no ConfigMap late");
        ensure!(status.phase.as_deref() == Some("Pending") && waiting.message.as_deref() == expected, "{waiting:?}");
        Ok(())
    })
    .await?;
    let late = json!({"metadata": {"name": "late"}});
    let config_maps = Api::<ConfigMap>::namespaced(fixture.client.clone(), &fixture.namespace);
    config_maps.create(&PostParams::default(), &serde_json::from_value(late)?).await?;
    fixture.reaches("p", "Running").await.map(drop)
}

#[tokio::test]
async fn init_containers_run_first_and_share_volumes() -> Result<()> {
    let Some(fixture) = Fixture::new("init").await? else { return Ok(()) };
    let mounts = json!([{"name": "shared", "mountPath": "/shared"}]);
    let init = |script: &str| json!([{"name": "unpack", "image": "none", "command": ["/bin/sh", "-c", script], "volumeMounts": mounts}]);
    let main = json!({
        "command": ["/bin/sh", "-c", "cat /shared/part; cat '/shared/part' > /out/said; exec sleep 1000"],
        "volumeMounts": [{"name": "shared", "mountPath": "/shared"}, {"name": "out", "mountPath": "/out"}],
    });
    let volumes = json!([{"name": "shared", "emptyDir": {}}, {"name": "out", "hostPath": {"path": fixture.out()}}]);
    let spec = json!({"volumes": volumes, "initContainers": init("printf unpacked > /shared/part")});
    fixture.pod("good", main.clone(), spec).await?;
    fixture.reaches("good", "Running").await?;
    fixture.reads(&fixture.out().join("said"), "unpacked").await?;

    let spec = json!({"volumes": volumes, "initContainers": init("echo spoilt; exit 4")});
    fixture.pod("bad", main, spec).await?;
    let pod = fixture.reaches("bad", "Failed").await?;
    let status = pod.status.unwrap_or_default();
    let init = status.init_container_statuses.and_then(|all| all.into_iter().next()).context("no init container")?;
    let end = init.state.and_then(|state| state.terminated).context("it has not ended")?;
    assert_eq!((end.exit_code, end.message.as_deref()), (4, Some("spoilt")));
    Ok(())
}

#[tokio::test]
async fn its_nodes_are_ready_and_pods_that_it_cannot_run_are_refused() -> Result<()> {
    let Some(fixture) = Fixture::new("refuses").await? else { return Ok(()) };
    let node = Api::<Node>::all(fixture.client.clone()).get(&fixture.namespace).await?;
    let conditions = node.status.and_then(|status| status.conditions).unwrap_or_default();
    assert!(conditions.iter().any(|condition| condition.type_ == "Ready" && condition.status == "True"));
    let two = json!({"containers": [{"name": "a", "image": "none"}, {"name": "b", "image": "none"}]});
    let pod =
        json!({"metadata": {"name": "two"}, "spec": {"nodeName": fixture.namespace, "containers": two["containers"]}});
    fixture.pods().create(&PostParams::default(), &serde_json::from_value(pod)?).await?;
    let pod = fixture.reaches("two", "Failed").await?;
    assert_eq!(pod.status.and_then(|status| status.reason).as_deref(), Some("SeveralContainers"));
    Ok(())
}

#[tokio::test]
async fn pods_without_the_label_that_is_asked_for_stay_pending_until_they_are_deleted() -> Result<()> {
    let Some(fixture) = Fixture::only_labelled("labelled", Some("app")).await? else { return Ok(()) };
    let container = json!({"name": "main", "image": "none"});
    let pod =
        json!({"metadata": {"name": "stranger"}, "spec": {"nodeName": fixture.namespace, "containers": [container]}});
    fixture.pods().create(&PostParams::default(), &serde_json::from_value(pod)?).await?;
    fixture.script("known", "exec sleep 1000").await?;
    fixture.reaches("known", "Running").await?;
    eventually("the pod says why it is not run", SOON, || async {
        let status = fixture.pods().get("stranger").await?.status.unwrap_or_default();
        let state = status.container_statuses.iter().flatten().next().and_then(|container| container.state.clone());
        let waiting = state.and_then(|state| state.waiting).unwrap_or_default();
        let said = (status.phase.as_deref(), waiting.reason.as_deref(), waiting.message.as_deref());
        let expected = "this node runs only pods with the label app";
        ensure!(said == (Some("Pending"), Some("NotRunHere"), Some(expected)), "{said:?}");
        Ok(())
    })
    .await?;
    assert!(fixture.agent.process(&fixture.namespace, "stranger").is_none());
    fixture.delete("stranger", &DeleteParams::default()).await
}
