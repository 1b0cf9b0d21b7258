//! The nodes of an agent: objects that are ready, and stay so because a Lease is renewed.

use crate::objects::CALL;
use crate::status::now;
use anyhow::{Context as _, Result};
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::{Client, ResourceExt as _};
use serde_json::json;
use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::time::Duration;
use streams_control_plane::wait::eventually;
use tokio::time::{sleep, timeout};

/// The namespace of the Leases of nodes.
const LEASES: &str = "kube-node-lease";
/// How often a Lease is renewed.
const RENEWED: Duration = Duration::from_secs(10);
/// For how many seconds a node counts as there without being renewed.
const LEASE_SECONDS: u32 = 40;
/// How long it may take until pods may be scheduled to a new node.
const READY_WITHIN: Duration = Duration::from_secs(60);
/// Owner of what this agent applies.
const FIELD_MANAGER: &str = "streams-node-agent";

/// Makes the nodes that are not there, and waits until pods may be scheduled to them.
///
/// # Errors
/// When the API server refuses them, or they are not ready in time.
pub(crate) async fn create(client: &Client, names: &BTreeSet<String>, address: Ipv4Addr, pods: u32) -> Result<()> {
    let nodes = Api::<Node>::all(client.clone());
    for name in names {
        renew(client, name).await?;
        let size = json!({"cpu": "64", "memory": "512Gi", "pods": pods.to_string()});
        let node = json!({
            "metadata": {
                "name": name,
                "labels": {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"},
            },
            "status": {
                "capacity": size,
                "allocatable": size,
                "addresses": [{"type": "InternalIP", "address": address}, {"type": "Hostname", "address": name}],
                "conditions": [{
                    "type": "Ready",
                    "status": "True",
                    "reason": "KubeletReady",
                    "lastHeartbeatTime": now(),
                    "lastTransitionTime": now(),
                }],
            },
        });
        let created = timeout(CALL, nodes.create(&PostParams::default(), &serde_json::from_value(node.clone())?)).await;
        match created.context("no answer")? {
            Ok(_) => {}
            Err(kube::Error::Api(status)) if status.code == 409 => {
                let status = Patch::Strategic(json!({"status": node.get("status")}));
                timeout(CALL, nodes.patch_status(name, &PatchParams::default(), &status))
                    .await
                    .context("no answer")??;
            }
            Err(error) => return Err(error).with_context(|| format!("cannot make the node {name}")),
        }
    }
    eventually("the nodes of the agent are ready", READY_WITHIN, || async {
        for name in names {
            let node = nodes.get(name).await?;
            let taints = node.spec.as_ref().and_then(|spec| spec.taints.clone()).unwrap_or_default();
            anyhow::ensure!(taints.is_empty(), "{} has taints: {taints:?}", node.name_any());
        }
        Ok(())
    })
    .await
}

/// Renews the Leases of nodes until it is dropped.
pub(crate) async fn keep(client: Client, names: BTreeSet<String>) {
    loop {
        sleep(RENEWED).await;
        for name in &names {
            // The next try comes long before the Lease is over.
            let _ = renew(&client, name).await;
        }
    }
}

async fn renew(client: &Client, name: &str) -> Result<()> {
    let leases = Api::<Lease>::namespaced(client.clone(), LEASES);
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": name, "namespace": LEASES},
        "spec": {
            "holderIdentity": name,
            "leaseDurationSeconds": LEASE_SECONDS,
            "renewTime": Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string(),
        },
    });
    let (how, lease) = (PatchParams::apply(FIELD_MANAGER).force(), Patch::Apply(lease));
    timeout(CALL, leases.patch(name, &how, &lease))
        .await
        .context("no answer")?
        .with_context(|| format!("cannot renew the Lease of {name}"))?;
    Ok(())
}
