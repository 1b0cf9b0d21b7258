//! Reads the nodes of the cluster: which node has an address, and how much CPU is free.

use super::error::WorkError;
use crate::controllers::job::resources::parse_milli;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::ListParams;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use streams_kubernetes::Error;
use streams_kubernetes::cluster::Cluster;
use streams_proto::fusion::v1::{Plan, Warning};

/// Names and addresses of the nodes.
#[derive(Clone, Debug, Default)]
pub(super) struct Nodes {
    names: BTreeSet<String>,
    by_address: BTreeMap<String, String>,
}

/// The hosts that a plan names.
pub(super) fn named(plan: &Plan) -> BTreeSet<&str> {
    let placed = plan.processing_elements.iter().filter_map(|pe| pe.placement.as_ref()?.host.as_deref());
    placed.chain(plan.host_pools.iter().flat_map(|pool| pool.hosts.iter().map(String::as_str))).collect()
}

/// The names of the nodes behind the addresses that a plan names, and warnings about names that no node has.
///
/// An address that no node has fails the submission; a pod for a node that does not exist waits for it
/// (rule placement-2).
pub(super) fn resolve(
    hosts: &BTreeSet<&str>,
    nodes: &Nodes,
) -> Result<(BTreeMap<String, String>, Vec<Warning>), WorkError> {
    let mut resolved = BTreeMap::new();
    let mut warnings = Vec::new();
    for host in hosts {
        if host.parse::<IpAddr>().is_ok() {
            let node = nodes.by_address.get(*host).ok_or_else(|| {
                WorkError::permanent(
                    "HostNotFound",
                    format!("no node has the address {host} that the application asks for"),
                )
            })?;
            resolved.insert((*host).to_owned(), node.clone());
        } else if !nodes.names.contains(*host) {
            let message = format!("there is no node {host}; PEs that the application places there wait for it");
            warnings.push(Warning { reason: "HostNotFound".to_owned(), message });
        }
    }
    Ok((resolved, warnings))
}

/// All nodes of the cluster.
pub(super) async fn nodes<C: Cluster>(cluster: &C) -> Result<Nodes, WorkError> {
    let listed = cluster.list::<Node>(None, &ListParams::default()).await.map_err(|error| match error {
        kube::Error::Api(status) if status.code == 403 => {
            WorkError::permanent("HostsUnknown", "the application names hosts, and the frontend may not list nodes")
        }
        error => error.into(),
    })?;
    let mut nodes = Nodes::default();
    for node in listed {
        let Some(name) = node.metadata.name else { continue };
        for address in node.status.and_then(|status| status.addresses).into_iter().flatten() {
            nodes.by_address.insert(address.address, name.clone());
        }
        nodes.names.insert(name);
    }
    Ok(nodes)
}

/// Free CPU of the cluster in milli-cores (rule job-23): allocatable minus requested, over all nodes that pods may be
/// put on. `None` if the frontend may not see it.
pub(super) async fn cpu_free<C: Cluster>(cluster: &C) -> Result<Option<u64>, Error> {
    let mut free = Free::default();
    let found = async {
        cluster
            .each_page(None, &ListParams::default(), |nodes: Vec<Node>| nodes.iter().for_each(|n| free.add(n)))
            .await?;
        let running = ListParams::default().fields("status.phase!=Succeeded,status.phase!=Failed");
        cluster.each_page(None, &running, |pods: Vec<Pod>| pods.iter().for_each(|pod| free.take(pod))).await
    };
    match found.await {
        Ok(()) => Ok(Some(free.sum())),
        Err(kube::Error::Api(status)) if status.code == 403 => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Free CPU in milli-cores, by node.
#[derive(Default)]
struct Free(BTreeMap<String, u128>);

impl Free {
    /// What a node has, unless it takes no pods.
    fn add(&mut self, node: &Node) {
        let spec = node.spec.as_ref();
        let closed = spec.is_some_and(|spec| {
            spec.unschedulable == Some(true)
                || spec.taints.iter().flatten().any(|taint| taint.effect == "NoSchedule" || taint.effect == "NoExecute")
        });
        let allocatable =
            node.status.as_ref().and_then(|status| status.allocatable.as_ref()).and_then(|a| a.get("cpu"));
        if let (false, Some(name), Some(cpu)) = (closed, &node.metadata.name, allocatable) {
            self.0.insert(name.clone(), parse_milli(&cpu.0).unwrap_or(0));
        }
    }

    /// What a pod has requested of its node.
    fn take(&mut self, pod: &Pod) {
        let Some(spec) = &pod.spec else { return };
        let request = |container: &k8s_openapi::api::core::v1::Container| {
            let requests = container.resources.as_ref().and_then(|resources| resources.requests.as_ref());
            requests.and_then(|requests| requests.get("cpu")).and_then(|cpu| parse_milli(&cpu.0)).unwrap_or(0)
        };
        let together: u128 = spec.containers.iter().map(request).sum();
        let before = spec.init_containers.iter().flatten().map(request).max().unwrap_or(0);
        if let Some(left) = spec.node_name.as_deref().and_then(|node| self.0.get_mut(node)) {
            *left = left.saturating_sub(together.max(before));
        }
    }

    fn sum(&self) -> u64 {
        u64::try_from(self.0.values().sum::<u128>()).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use streams_proto::fusion::v1::{HostPool, Placement, ProcessingElement};

    #[test]
    fn addresses_become_names_and_unknown_names_become_warnings() {
        let placement = |host: &str| Some(Placement { host: Some(host.to_owned()), ..Placement::default() });
        let plan = Plan {
            processing_elements: vec![
                ProcessingElement { placement: placement("10.0.0.1"), ..Default::default() },
                ProcessingElement { placement: placement("node-b"), ..Default::default() },
            ],
            host_pools: vec![HostPool { hosts: vec!["node-c".to_owned()], ..Default::default() }],
            ..Plan::default()
        };
        let nodes = Nodes {
            names: ["node-a", "node-b"].map(str::to_owned).into(),
            by_address: BTreeMap::from([("10.0.0.1".to_owned(), "node-a".to_owned())]),
        };
        let (resolved, warnings) = resolve(&named(&plan), &nodes).unwrap();
        assert_eq!(resolved, BTreeMap::from([("10.0.0.1".to_owned(), "node-a".to_owned())]));
        assert_eq!(warnings.len(), 1);
        assert!(warnings[0].message.contains("node-c"));

        let error = resolve(&BTreeSet::from(["10.0.0.2"]), &nodes).unwrap_err();
        assert!(!error.retry && error.message.contains("10.0.0.2"));
    }

    #[test]
    fn free_cpu_is_what_is_not_requested_on_nodes_that_take_pods() {
        let node = |name: &str, cpu: &str, spec: serde_json::Value| -> Node {
            let value = serde_json::json!({
                "metadata": {"name": name}, "spec": spec, "status": {"allocatable": {"cpu": cpu}},
            });
            serde_json::from_value(value).unwrap()
        };
        let pod = |node: &str, cpu: &str, init: &str| -> Pod {
            let container = |cpu: &str| serde_json::json!({"name": "c", "resources": {"requests": {"cpu": cpu}}});
            let value = serde_json::json!({
                "spec": {"nodeName": node, "containers": [container(cpu)], "initContainers": [container(init)]},
            });
            serde_json::from_value(value).unwrap()
        };
        let nodes = [
            node("a", "4", serde_json::json!({})),
            node("b", "2500m", serde_json::json!({})),
            node("closed", "8", serde_json::json!({"unschedulable": true})),
            node("tainted", "8", serde_json::json!({"taints": [{"key": "k", "effect": "NoSchedule"}]})),
        ];
        let pods = [pod("a", "500m", "1"), pod("b", "2", "0"), pod("b", "2", "0"), pod("gone", "1", "0")];
        let mut free = Free::default();
        nodes.iter().for_each(|node| free.add(node));
        pods.iter().for_each(|pod| free.take(pod));
        assert_eq!(free.sum(), 3000);
    }
}
