//! Fake nodes.

use crate::wait::eventually;
use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::{Node, NodeAddress, NodeStatus};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{Api, ListParams, PostParams};
use kube::{Client, ResourceExt as _};
use std::collections::BTreeMap;
use std::time::Duration;

/// Makes the nodes `node-0` to `node-<count - 1>`.
pub(super) async fn create(client: &Client, count: u16, pods: u32) -> Result<()> {
    let nodes = Api::<Node>::all(client.clone());
    for index in 0..count {
        nodes.create(&PostParams::default(), &node(index, pods)).await?;
    }
    Ok(())
}

fn node(index: u16, pods: u32) -> Node {
    let name = format!("node-{index}");
    let size = [("cpu", "64".to_owned()), ("memory", "512Gi".to_owned()), ("pods", pods.to_string())];
    let size: BTreeMap<String, Quantity> =
        size.map(|(resource, amount)| (resource.to_owned(), Quantity(amount))).into();
    let labels =
        [("kubernetes.io/hostname", name.as_str()), ("kubernetes.io/os", "linux"), ("kubernetes.io/arch", "amd64")];
    let labels = labels.map(|(label, value)| (label.to_owned(), value.to_owned()));
    let [high, low] = index.to_be_bytes();
    let addresses = [("InternalIP", format!("10.1.{high}.{low}")), ("Hostname", name.clone())];
    let addresses = addresses.map(|(type_, address)| NodeAddress { address, type_: type_.to_owned() });
    let status = NodeStatus {
        capacity: Some(size.clone()),
        allocatable: Some(size),
        addresses: Some(addresses.into()),
        ..NodeStatus::default()
    };
    Node {
        metadata: ObjectMeta { labels: Some(labels.into()), name: Some(name), ..ObjectMeta::default() },
        status: Some(status),
        ..Node::default()
    }
}

/// Waits until `count` nodes are ready and pods may be scheduled to them.
pub(super) async fn ready(client: &Client, count: u16, within: Duration) -> Result<()> {
    let nodes = Api::<Node>::all(client.clone());
    eventually(&format!("{count} nodes are ready"), within, || async {
        let nodes = nodes.list(&ListParams::default()).await?.items;
        let (ready, others): (Vec<_>, Vec<_>) = nodes.iter().partition(|node| is_ready(node));
        let others: Vec<String> = others.into_iter().map(|node| node.name_any()).collect();
        ensure!(ready.len() == usize::from(count), "{} of {count} are, not {}", ready.len(), others.join(", "));
        Ok(())
    })
    .await
}

/// Ready, and no longer tainted as not ready.
fn is_ready(node: &Node) -> bool {
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_ref());
    let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_ref());
    conditions.into_iter().flatten().any(|condition| condition.type_ == "Ready" && condition.status == "True")
        && taints.is_none_or(Vec::is_empty)
}
