//! Reads the nodes of the cluster: which node has an address, and how much CPU is free.
//!
//! Knows: nodes, pods, who may read them. Must not know: how PEs are placed.

use super::error::WorkError;
use crate::controllers::job::generation::Generation;
use crate::controllers::job::generation::missing_nodes::{self, HOST_NOT_FOUND};
use crate::controllers::job::reconciler::shared_look::SharedLook;
use crate::controllers::job::resources::parse_milli;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::ListParams;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use streams_kubernetes::Error;
use streams_kubernetes::cluster::Cluster;
use streams_kubernetes::error::NOT_A_STATUS;
use streams_kubernetes::gate::Priority;
use streams_proto::fusion::v1::{Plan, Warning};
use tokio::time::timeout;

/// How long a resize waits for the names of the nodes: nothing but warnings depends on them.
const NAMES_WITHIN: Duration = Duration::from_secs(1);

/// How long submissions wait for the free CPU of the cluster, tries included. The number of PEs that comes of it stays,
/// so it is not left to a moment.
const WANTED_FOR: Duration = Duration::from_secs(30);

/// Names and addresses of the nodes.
#[derive(Clone, Debug, Default)]
struct Nodes {
    names: BTreeSet<String>,
    by_address: BTreeMap<IpAddr, String>,
}

/// The nodes behind the addresses that a plan names, and warnings about names that no node has (rule placement-2).
///
/// Only what is new to the job is looked for: an address that was looked up stays with its node, and a name that a node
/// had needs no second look. Without the nodes, names will do as they are. The next resize looks for those that could
/// not be looked for.
///
/// # Errors
/// No node has an address, or it cannot be seen which one has.
pub(super) async fn find<C: Cluster>(
    cluster: &C,
    node_names: &SharedLook<Option<Arc<BTreeSet<String>>>>,
    plan: &Plan,
    previous: Option<&Generation>,
) -> Result<(BTreeMap<String, String>, Vec<Warning>), WorkError> {
    let (addresses, names): (BTreeSet<&str>, BTreeSet<&str>) =
        missing_nodes::named(plan).into_iter().partition(|host| address(host).is_some());
    let known = previous.map(|previous| &previous.nodes);
    let known = |host: &str| known.and_then(|known| Some((host.to_owned(), known.get(host)?.clone())));
    let mut nodes: BTreeMap<String, String> = addresses.iter().filter_map(|address| known(address)).collect();
    let unknown: Vec<&str> = addresses.into_iter().filter(|address| !nodes.contains_key(*address)).collect();
    let names = names_to_look_for(names, previous);
    if !unknown.is_empty() {
        // A submission fails for good without such a node: what others have found a moment ago will not do.
        let found = all_nodes(cluster).await?;
        nodes.extend(resolve(&unknown, &found)?);
        return Ok((nodes, missing(&names, &found.names)));
    }
    if names.is_empty() {
        return Ok((nodes, Vec::new()));
    }
    // Whoever shares it may be a resize, for which somebody waits.
    let look = node_names.get(cluster.now(), Priority::Awaited.of(all_names(cluster)));
    let found = match previous {
        Some(_) => timeout(NAMES_WITHIN, look).await.map_err(|late| late.to_string()),
        None => Ok(look.await),
    };
    match found.and_then(|found| found.map_err(|error| error.to_string())) {
        Ok(Some(found)) => Ok((nodes, missing(&names, &found))),
        Ok(None) => {
            tracing::info!("whether the nodes exist that an application names is not known: they may not be listed");
            Ok((nodes, Vec::new()))
        }
        Err(error) => {
            tracing::info!(%error, "whether the nodes exist that an application names is not known");
            Ok((nodes, names.into_iter().map(missing_nodes::unseen).collect()))
        }
    }
}

/// The names of all nodes. `None` if the frontend may not see them.
///
/// # Errors
/// They cannot be seen for now.
async fn all_names<C: Cluster>(cluster: &C) -> Result<Option<Arc<BTreeSet<String>>>, String> {
    match all_nodes(cluster).await {
        Ok(found) => Ok(Some(Arc::new(found.names))),
        Err(error) if !error.retry => Ok(None),
        Err(error) => Err(error.message),
    }
}

/// Those of these names that the generation before did not name, or that no node had as far as could be seen.
fn names_to_look_for<'a>(mut names: BTreeSet<&'a str>, previous: Option<&Generation>) -> BTreeSet<&'a str> {
    if let Some(previous) = previous.filter(|_| !names.is_empty()) {
        let before = missing_nodes::named(&previous.plan);
        let was_missing = |name: &str| previous.warnings.iter().any(|warning| missing_nodes::is_about(warning, name));
        names.retain(|name| !before.contains(name) || was_missing(name));
    }
    names
}

/// The address, if it is one, however it is written.
fn address(host: &str) -> Option<IpAddr> {
    host.parse::<IpAddr>().ok().map(|address| address.to_canonical())
}

/// The names of the nodes that have these addresses. An address that no node has fails the submission: a node may join
/// under its name later, and an address says nothing to the scheduler.
fn resolve(addresses: &[&str], nodes: &Nodes) -> Result<BTreeMap<String, String>, WorkError> {
    let resolved = addresses.iter().map(|host| {
        let node = address(host).and_then(|address| nodes.by_address.get(&address));
        let node = node.ok_or_else(|| {
            let message = format!("no node has the address {host} that the application asks for");
            WorkError::permanent(HOST_NOT_FOUND, message)
        })?;
        Ok(((*host).to_owned(), node.clone()))
    });
    resolved.collect()
}

/// Warnings about names that no node has. A pod for such a node waits for it.
fn missing(names: &BTreeSet<&str>, nodes: &BTreeSet<String>) -> Vec<Warning> {
    names.iter().filter(|name| !nodes.contains(**name)).map(|name| missing_nodes::warning(name)).collect()
}

/// All nodes of the cluster.
async fn all_nodes<C: Cluster>(cluster: &C) -> Result<Nodes, WorkError> {
    let mut nodes = Nodes::default();
    let add = |page: Vec<Node>| page.into_iter().for_each(|node| nodes.add(node));
    cluster.each_page(None, &ListParams::default(), add).await.map_err(|error| match error {
        kube::Error::Api(status) if status.code == 403 && status.reason != NOT_A_STATUS => {
            let message = "the application names hosts by address, and the frontend may not list nodes";
            WorkError::permanent("HostsUnknown", message)
        }
        error => error.into(),
    })?;
    Ok(nodes)
}

impl Nodes {
    fn add(&mut self, node: Node) {
        let Some(name) = node.metadata.name else { return };
        let addresses = node.status.and_then(|status| status.addresses).into_iter().flatten();
        for address in addresses.filter_map(|listed| address(&listed.address)) {
            self.by_address.insert(address, name.clone());
        }
        self.names.insert(name);
    }
}

/// Free CPU of the cluster in milli-cores (rule job-23): allocatable minus requested, over all nodes that pods may be
/// put on. `None` if it is not known: the frontend may not see it, or could not for [`WANTED_FOR`]. It is only advice,
/// and whoever makes pods that are too large to be listed must not keep others from submitting jobs.
///
/// # Errors
/// It cannot be found for now.
pub(super) async fn cpu_free<C: Cluster>(
    cluster: &C,
    last: &SharedLook<Option<u64>>,
) -> Result<Option<u64>, WorkError> {
    match last.get(cluster.now(), find_cpu_free(cluster)).await {
        Ok(free) => Ok(free),
        Err(error) if error.lasts >= WANTED_FOR => {
            tracing::warn!(%error, "free CPU of the cluster cannot be found: automatic fusion does without");
            Ok(None)
        }
        Err(error) => {
            Err(WorkError::transient("ApiServer", format!("free CPU of the cluster cannot be found: {error}")))
        }
    }
}

async fn find_cpu_free<C: Cluster>(cluster: &C) -> Result<Option<u64>, Error> {
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
    use crate::controllers::job::generation::{GenerationDetails, Target};
    use kube::core::Status;
    use serde_json::json;
    use std::future::pending;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use streams_kubernetes_fake::{Server, Verb};
    use streams_proto::fusion::v1::{Compilation, Fate, HostPool, Placement, ProcessingElement};
    use tokio::time::Instant;

    fn node(name: &str, addresses: &[&str]) -> Node {
        let addresses: Vec<_> =
            addresses.iter().map(|address| json!({"type": "InternalIP", "address": address})).collect();
        let value = json!({"metadata": {"name": name}, "status": {"addresses": addresses}});
        serde_json::from_value(value).unwrap()
    }

    /// A plan whose first PE is to run on the first of these hosts, and whose pool has the others.
    fn plan(hosts: &[&str]) -> Plan {
        let mut hosts = hosts.iter().map(|host| (*host).to_owned());
        let placement = Placement { host: hosts.next(), ..Placement::default() };
        let pe =
            ProcessingElement { fate: Fate::Added.into(), placement: Some(placement), ..ProcessingElement::default() };
        let pool = HostPool { hosts: hosts.collect(), ..HostPool::default() };
        Plan { processing_elements: vec![pe], host_pools: vec![pool], ..Plan::default() }
    }

    fn generation(hosts: &[&str], nodes: &[(&str, &str)], missing: &[&str]) -> Generation {
        let nodes = nodes.iter().map(|(address, node)| ((*address).to_owned(), (*node).to_owned()));
        let warnings = missing.iter().map(|host| missing_nodes::warning(host)).collect();
        let details = GenerationDetails { nodes: nodes.collect(), warnings, ..GenerationDetails::default() };
        let target = Target::Submission { inputs: String::new() };
        Generation::following(None, target, Compilation::default(), plan(hosts), details)
    }

    #[test]
    fn an_address_is_that_of_a_node_however_it_is_written() {
        let mut nodes = Nodes::default();
        nodes.add(node("node-a", &["10.0.0.1", "2001:db8::1", "node-a.example.com"]));
        nodes.add(node("node-b", &["10.0.0.2"]));
        // address -> node
        let table = [
            ("10.0.0.1", Some("node-a")),
            ("10.0.0.2", Some("node-b")),
            ("::ffff:10.0.0.2", Some("node-b")),
            ("2001:db8::1", Some("node-a")),
            ("2001:DB8::1", Some("node-a")),
            ("2001:db8:0:0:0:0:0:1", Some("node-a")),
            ("2001:0db8::0:1", Some("node-a")),
            ("2001:db8::2", None),
            ("10.0.0.3", None),
        ];
        for (host, expected) in table {
            let found = resolve(&[host], &nodes);
            match expected {
                Some(node) => assert_eq!(found.unwrap(), [(host.to_owned(), node.to_owned())].into(), "{host}"),
                None => {
                    let error = found.unwrap_err();
                    assert!(!error.retry && error.reason == "HostNotFound" && error.message.contains(host));
                }
            }
        }
    }

    #[tokio::test]
    async fn what_is_new_to_a_job_is_looked_for_and_names_will_do_without() {
        type Expected<'a> = Result<(&'a [(&'a str, &'a str)], &'a [&'a str]), &'a str>;
        let before = |hosts: &[&str], nodes: &[(&str, &str)], missing: &[&str]| Some(generation(hosts, nodes, missing));
        // hosts, the generation before, what answers whoever lists nodes if they are not listed -> nodes of addresses
        // and names that no node has or that could not be looked for, or the reason of the refusal; how often nodes are
        // listed for two such jobs
        let table: [(&[&str], Option<Generation>, Option<u16>, Expected<'_>, usize); 14] = [
            (&[], None, None, Ok((&[], &[])), 0),
            (&["node-a"], None, None, Ok((&[], &[])), 1),
            (&["node-a", "node-c"], None, None, Ok((&[], &["node-c"])), 1),
            (&["node-a", "node-c"], None, Some(403), Ok((&[], &[])), 1),
            (&["node-a", "node-c"], None, Some(500), Ok((&[], &["node-a", "node-c"])), 2),
            (&["FD00::A", "node-c"], None, None, Ok((&[("FD00::A", "node-a")], &["node-c"])), 2),
            (&["fd00::a"], None, Some(403), Err("HostsUnknown"), 2),
            (&["fd00::b", "node-a"], None, None, Err("HostNotFound"), 2),
            // Resizes: an address stays with its node.
            (&["node-a"], before(&["node-a"], &[], &[]), None, Ok((&[], &[])), 0),
            (&["node-c"], before(&["node-c"], &[], &["node-c"]), None, Ok((&[], &["node-c"])), 1),
            (&["node-c"], before(&["node-c"], &[], &["node-c"]), Some(500), Ok((&[], &["node-c"])), 2),
            (&["node-b"], before(&["node-b"], &[], &["node-b"]), None, Ok((&[], &[])), 1),
            (&["node-a", "node-d"], before(&["node-a"], &[], &[]), None, Ok((&[], &["node-d"])), 1),
            (
                &["fd00::b", "node-a"],
                before(&["fd00::b", "node-a"], &[("fd00::b", "gone")], &[]),
                Some(403),
                Ok((&[("fd00::b", "gone")], &[])),
                0,
            ),
        ];
        for (hosts, previous, refusal, expected, lists) in table {
            let server = Server::new();
            for node in [node("node-a", &["fd00::a"]), node("node-b", &["10.0.0.2"])] {
                server.create(&node);
            }
            let listed = Arc::new(AtomicUsize::new(0));
            let count = Arc::clone(&listed);
            server.refuse(move |call| {
                let lists = call.verb == Verb::List && call.kind == "Node";
                count.fetch_add(usize::from(lists), Ordering::SeqCst);
                let code = refusal.filter(|_| lists)?;
                Some(*Status::failure("you may not", "Refused").with_code(code).boxed())
            });
            let about = if refusal == Some(500) { missing_nodes::unseen } else { missing_nodes::warning };
            let (cluster, names) = (server.connect(), SharedLook::default());
            for _ in 0..2 {
                let found = find(&cluster, &names, &plan(hosts), previous.as_ref()).await;
                let found = found.map_err(|error| {
                    assert!(!error.retry, "{error:?}");
                    error.reason
                });
                let expected = expected.map_err(str::to_owned).map(|(nodes, missing)| {
                    let nodes = nodes.iter().map(|(address, node)| ((*address).to_owned(), (*node).to_owned()));
                    (nodes.collect(), missing.iter().map(|name| about(name)).collect())
                });
                assert_eq!(found, expected, "{hosts:?} {refusal:?}");
            }
            assert_eq!(listed.load(Ordering::SeqCst), lists, "{hosts:?} {refusal:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_resize_does_not_wait_long_for_what_only_warnings_depend_on() {
        let (cluster, names) = (Server::new().connect(), SharedLook::default());
        let before = generation(&["node-c"], &[], &["node-c"]);
        // generation before -> seconds that it waits while somebody else looks who gets no answer
        for (previous, expected) in [(Some(&before), Some(1)), (None, None)] {
            let never_answered = names.get(cluster.now(), pending::<Result<_, String>>());
            let begun = Instant::now();
            let plan = plan(&["node-c"]);
            let found = timeout(Duration::from_secs(30), find(&cluster, &names, &plan, previous));
            let found = tokio::select! {
                biased;
                _ = never_answered => panic!("it is answered"),
                found = found => found.ok(),
            };
            let seconds = found.is_some().then(|| begun.elapsed().as_secs());
            assert_eq!(seconds, expected);
            if let Some(found) = found {
                assert_eq!(found.unwrap(), (BTreeMap::new(), vec![missing_nodes::unseen("node-c")]));
            }
        }
    }

    #[tokio::test]
    async fn a_submission_waits_for_free_cpu_and_does_without_if_that_lasts() {
        let server = Server::new();
        let mut node = node("node-a", &[]);
        let allocatable = json!({"allocatable": {"cpu": "4"}});
        node.status = serde_json::from_value(allocatable).unwrap();
        server.create(&node);
        let (cluster, last) = (server.connect(), SharedLook::default());
        // seconds since the row before, what answers whoever lists pods if they are not listed -> what is known, or
        // nothing yet
        let table = [
            (0, None, Some(Some(4000))),
            (10, Some(500), None),
            (29, Some(500), None),
            (1, Some(500), Some(None)),
            (1, Some(500), Some(None)),
            (1, None, Some(Some(4000))),
            (10, Some(500), None),
            (0, Some(403), Some(None)),
        ];
        for (row, (seconds, refusal, expected)) in table.into_iter().enumerate() {
            server.advance(Duration::from_secs(seconds));
            server.refuse(move |call| {
                let code = refusal.filter(|_| call.verb == Verb::List && call.kind == "Pod")?;
                Some(*Status::failure("not now", "Refused").with_code(code).boxed())
            });
            let found = cpu_free(&cluster, &last).await.map_err(|error| assert!(error.retry, "{error:?}"));
            assert_eq!(found.ok(), expected, "row {row}");
        }
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
