//! Finds the redis servers that a job keeps its checkpoints in (rule job-46).
//!
//! They are those of a Service in the namespace of the job. The list is made once, at the submission, and stored with
//! the generation: all PEs must have the same list at every restart, or they would not find their checkpoints.
//!
//! Knows: Services, their EndpointSlices, the form of the list. Must not know: when it is made, what PEs keep there.
//!
//! Invariant: what is read, and kept, has a bound, whoever makes slices.

use super::error::WorkError;
use crate::controllers::job::redis_list::{PORT, arrange};
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointSlice};
use kube::api::ListParams;
use serde::Serialize;
use std::collections::BTreeSet;
use std::ops::ControlFlow;
use streams_api::RedisCheckpoints;
use streams_kubernetes::Key;
use streams_kubernetes::cluster::{Cluster, SMALL_PAGE};

/// Most bytes of the list: it is the value of an environment variable, which the kernel bounds.
const CONFIGURATION_MAX: usize = 64 << 10;
/// Most servers that a job can ask for.
const SERVERS_MAX: usize = 1_024;
/// Most EndpointSlices that are read of a Service. Kubernetes puts up to 100 servers into each, those of both families
/// apart: so many are not of a Service with as many servers as a job can ask for.
const SLICES_MAX: usize = 4 * SERVERS_MAX;
/// Label of an EndpointSlice: the Service that it is of.
const SERVICE_NAME: &str = "kubernetes.io/service-name";
/// The servers are not what the job asks for. It may pass: servers may be starting.
pub(crate) const MISSING: &str = "CheckpointServersMissing";

/// The servers in the form that the runtime reads.
#[derive(Serialize)]
struct Configuration {
    replicas: u32,
    shards: u32,
    #[serde(rename = "replicaGroups")]
    replica_groups: Vec<Group>,
}

#[derive(Serialize)]
struct Group {
    servers: Vec<String>,
    description: String,
}

/// The servers of the Service, as the runtime wants to be told of them. `job_uid` makes the random order of a job that
/// wants one: the same job gets the same order.
///
/// # Errors
/// The Service has another number of servers that are ready than the job asks for, or a call failed.
pub(super) async fn configuration<C: Cluster>(
    cluster: &C,
    job: &Key,
    job_uid: &str,
    wanted: &RedisCheckpoints,
) -> Result<String, WorkError> {
    let name = &wanted.service;
    let service = cluster.get::<Service>(&job.sibling(name)).await?;
    let service =
        service.ok_or_else(|| WorkError::transient(MISSING, format!("there is no Service {name} of redis servers")))?;
    let hosts = match stable_name(&service, &job.namespace) {
        Some(host) => BTreeSet::from([host]),
        None => {
            let selection = ListParams::default().labels(&format!("{SERVICE_NAME}={name}")).limit(SMALL_PAGE);
            let mut ready = ReadyHosts::default();
            // Anybody may label as many as he likes: a small page of them is there at a time.
            let look = |page: Vec<EndpointSlice>| ready.add_page(&page);
            cluster.each_page_until(Some(&*job.namespace), &selection, look).await?;
            ready.names(name, &job.namespace)?
        }
    };
    render(hosts.into_iter().collect(), wanted, job_uid)
}

/// The only name of a Service that has one address for all its servers, or stands for a host elsewhere.
fn stable_name(service: &Service, namespace: &str) -> Option<String> {
    let spec = service.spec.as_ref()?;
    if spec.type_.as_deref() == Some("ExternalName") {
        return spec.external_name.clone();
    }
    let is_headless = spec.cluster_ip.as_deref().is_none_or(|address| address == "None" || address.is_empty());
    (!is_headless).then(|| format!("{}.{namespace}.svc", service.metadata.name.as_deref().unwrap_or_default()))
}

/// The first labels of the names of servers that are ready. A Service with addresses of both families has each server
/// twice.
#[derive(Default)]
struct ReadyHosts {
    of_v4: BTreeSet<String>,
    of_v6: BTreeSet<String>,
    /// Slices that were read.
    slices: usize,
}

impl ReadyHosts {
    /// Adds those of a page of slices. What is too much is known before everything was read, which may be any amount.
    fn add_page(&mut self, page: &[EndpointSlice]) -> ControlFlow<()> {
        self.slices = self.slices.saturating_add(page.len());
        page.iter().for_each(|slice| self.add(slice));
        let is_enough = self.of_v4.len() > SERVERS_MAX || self.slices > SLICES_MAX;
        if is_enough { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    /// Adds those of a slice. One more than a job can ask for says that they are too many; others are not kept.
    fn add(&mut self, slice: &EndpointSlice) {
        let hosts = match slice.address_type.as_str() {
            "IPv4" => &mut self.of_v4,
            "IPv6" => &mut self.of_v6,
            _ => return,
        };
        for host in slice.endpoints.iter().filter(|endpoint| is_ready(endpoint)).filter_map(host) {
            if hosts.len() > SERVERS_MAX {
                return;
            }
            hosts.insert(host);
        }
    }

    /// The names in DNS of the servers behind a headless Service. If there are some of IPv4, those count.
    ///
    /// # Errors
    /// There are more slices than were read.
    fn names(self, service: &str, namespace: &str) -> Result<BTreeSet<String>, WorkError> {
        if self.slices > SLICES_MAX {
            let message = format!("Service {service} has more than {SLICES_MAX} EndpointSlices, too many to be read");
            return Err(WorkError::transient(MISSING, message));
        }
        let hosts = if self.of_v4.is_empty() { self.of_v6 } else { self.of_v4 };
        Ok(hosts.into_iter().map(|host| format!("{host}.{service}.{namespace}.svc")).collect())
    }
}

fn is_ready(endpoint: &Endpoint) -> bool {
    // Not set means ready.
    endpoint.conditions.as_ref().and_then(|conditions| conditions.ready).unwrap_or(true)
}

/// First label of the server's name: that of its pod, or its address as the DNS of Kubernetes writes it.
fn host(endpoint: &Endpoint) -> Option<String> {
    let of_pod = endpoint.hostname.clone().filter(|name| !name.is_empty());
    of_pod.or_else(|| endpoint.addresses.first().map(|address| address.replace(['.', ':'], "-")))
}

/// The list: replica `i` has the servers from `i * shards` on.
fn render(mut hosts: Vec<String>, wanted: &RedisCheckpoints, job_uid: &str) -> Result<String, WorkError> {
    let RedisCheckpoints { service, replica_count, shard_count, .. } = wanted;
    let needed = u64::from(*replica_count) * u64::from(*shard_count);
    if hosts.len() as u64 != needed {
        let more = if hosts.len() > SERVERS_MAX { " or more" } else { "" };
        let message = format!(
            "Service {service} has {}{more} redis servers that are ready; {replica_count} replicas of {shard_count} \
             shards are {needed}",
            hosts.len()
        );
        return Err(WorkError::transient(MISSING, message));
    }
    arrange(&mut hosts, wanted, job_uid);
    let property = wanted.restricted_property.as_ref().map(|name| format!(":{name}")).unwrap_or_default();
    let servers: Vec<String> = hosts.iter().map(|host| format!("{host}:{PORT}{property}")).collect();
    let groups = servers.chunks(usize::try_from(*shard_count).unwrap_or(usize::MAX).max(1)).enumerate();
    let configuration = Configuration {
        replicas: *replica_count,
        shards: *shard_count,
        replica_groups: groups
            .map(|(index, servers)| Group { servers: servers.to_vec(), description: format!("{service}#{index}") })
            .collect(),
    };
    let text = serde_json::to_string(&configuration)
        .map_err(|error| WorkError::permanent("CheckpointServersInvalid", error.to_string()))?;
    if text.len() > CONFIGURATION_MAX {
        let message = format!(
            "the list of redis servers takes {} bytes, more than the {CONFIGURATION_MAX} that fit a variable",
            text.len()
        );
        return Err(WorkError::permanent("TooLarge", message));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};
    use streams_kubernetes_fake::Server;

    fn wanted(replica_count: u32, shard_count: u32) -> RedisCheckpoints {
        RedisCheckpoints { replica_count, shard_count, service: "redis".to_owned(), ..RedisCheckpoints::default() }
    }

    fn server(spec: Value, slices: &[(&str, Value)]) -> Server {
        let server = Server::new();
        let metadata = json!({"name": "redis", "namespace": "n"});
        server.create::<Service>(&serde_json::from_value(json!({"metadata": metadata, "spec": spec})).unwrap());
        for (index, (family, endpoints)) in slices.iter().enumerate() {
            let labels = json!({SERVICE_NAME: "redis"});
            let metadata = json!({"name": format!("redis-{index}"), "namespace": "n", "labels": labels});
            let slice = json!({"metadata": metadata, "addressType": family, "endpoints": endpoints});
            server.create::<EndpointSlice>(&serde_json::from_value(slice).unwrap());
        }
        server
    }

    async fn found(server: &Server, wanted: &RedisCheckpoints) -> Result<Value, WorkError> {
        let text = configuration(&server.connect(), &Key::new("n", "job"), "uid", wanted).await?;
        Ok(serde_json::from_str(&text).unwrap())
    }

    fn headless(endpoints: &[Value]) -> Server {
        server(json!({"clusterIP": "None"}), &[("IPv4", json!(endpoints))])
    }

    fn of_pod(name: &str) -> Value {
        json!({"hostname": name, "addresses": ["10.0.0.9"], "conditions": {"ready": true}})
    }

    #[tokio::test]
    async fn the_servers_of_a_headless_service_are_listed_by_replica_and_shard() {
        let pods = ["r-2", "r-0", "r-1", "r-3", "r-4", "r-5"].map(of_pod);
        let found = found(&headless(&pods), &wanted(3, 2)).await.unwrap();
        let group = |index: usize| {
            let server = |number: usize| format!("r-{number}.redis.n.svc:6379");
            json!({"servers": [server(2 * index), server(2 * index + 1)], "description": format!("redis#{index}")})
        };
        let expected = json!({"replicas": 3, "shards": 2, "replicaGroups": [group(0), group(1), group(2)]});
        assert_eq!(found, expected);
    }

    #[tokio::test]
    async fn the_restricted_property_stands_beside_each_server() {
        let wanted = RedisCheckpoints { restricted_property: Some("password".to_owned()), ..wanted(1, 1) };
        let found = found(&headless(&[of_pod("r-0")]), &wanted).await.unwrap();
        assert_eq!(found["replicaGroups"][0]["servers"], json!(["r-0.redis.n.svc:6379:password"]));
    }

    #[tokio::test]
    async fn what_a_service_stands_for_is_what_pods_resolve() {
        let pod = json!({"addresses": ["10.0.0.7"]});
        // Service, EndpointSlices -> its only server
        let table = [
            (json!({"clusterIP": "10.96.0.4"}), vec![("IPv4", json!([pod, pod]))], "redis.n.svc:6379"),
            (json!({"type": "ExternalName", "externalName": "redis.example.com"}), vec![], "redis.example.com:6379"),
            (json!({"clusterIP": "None"}), vec![("IPv4", json!([pod]))], "10-0-0-7.redis.n.svc:6379"),
            (
                json!({"clusterIP": "None"}),
                vec![("IPv4", json!([pod])), ("IPv6", json!([{"addresses": ["fd00::7"]}]))],
                "10-0-0-7.redis.n.svc:6379",
            ),
            (
                json!({"clusterIP": "None"}),
                vec![("IPv6", json!([{"addresses": ["fd00::7"]}]))],
                "fd00--7.redis.n.svc:6379",
            ),
        ];
        for (spec, slices, expected) in table {
            let found = found(&server(spec.clone(), &slices), &wanted(1, 1)).await.unwrap();
            assert_eq!(found["replicaGroups"][0]["servers"], json!([expected]), "{spec}");
        }
    }

    #[tokio::test]
    async fn another_number_of_servers_is_waited_for() {
        let starting = json!({"hostname": "r-1", "addresses": ["10.0.0.1"], "conditions": {"ready": false}});
        // Server, replicas, shards -> part of the message
        let table = [
            (Server::new(), 1, 1, "there is no Service redis"),
            (headless(&[of_pod("r-0"), starting]), 1, 2, "has 1 redis servers that are ready"),
            (headless(&[of_pod("r-0"), of_pod("r-1")]), 1, 1, "has 2 redis servers"),
        ];
        for (server, replicas, shards, expected) in table {
            let error = found(&server, &wanted(replicas, shards)).await.unwrap_err();
            assert!(error.retry && error.reason == MISSING && error.message.contains(expected), "{error:?}");
        }
    }

    /// Anybody may give the label to gigabytes of them.
    #[tokio::test]
    async fn slices_are_read_in_small_pages_and_no_further_once_they_or_their_servers_are_too_many() {
        let endpoints = |slice: usize, of_each: usize| -> Vec<Value> {
            (0..of_each).map(|number| of_pod(&format!("r-{}", slice * of_each + number))).collect()
        };
        let of_too_many = format!("has {} or more redis", SERVERS_MAX + 1);
        let too_many_slices = format!("more than {SLICES_MAX} EndpointSlices");
        // slices, their family, servers of each -> what the message says, pages that are read
        let table = [
            (200, "IPv4", 1, "has 200 redis", 20),
            (20, "IPv4", 1_000, of_too_many.as_str(), 1),
            // Those of IPv4 would count.
            (20, "IPv6", 1_000, of_too_many.as_str(), 2),
            (SLICES_MAX, "IPv4", 0, "has 0 redis", SLICES_MAX.div_ceil(10)),
            (SLICES_MAX + 50, "IPv4", 0, too_many_slices.as_str(), SLICES_MAX / 10 + 1),
        ];
        for (slices, family, of_each, expected, pages) in table {
            let slices: Vec<_> = (0..slices).map(|slice| (family, json!(endpoints(slice, of_each)))).collect();
            let connection = server(json!({"clusterIP": "None"}), &slices).connect();
            let error = configuration(&connection, &Key::new("n", "job"), "uid", &wanted(1, 1)).await.unwrap_err();
            assert!(error.message.contains(expected), "{error:?}");
            assert_eq!((connection.largest_page(), connection.pages()), (10, pages), "{expected}");
        }
    }

    #[tokio::test]
    async fn a_random_order_is_the_same_for_the_same_job() {
        let pods: Vec<Value> = (0..9).map(|number| of_pod(&format!("r-{number}"))).collect();
        let shuffled = RedisCheckpoints { shuffle: true, ..wanted(1, 9) };
        let of_job = |uid: &'static str| {
            let (server, shuffled) = (headless(&pods), shuffled.clone());
            async move { configuration(&server.connect(), &Key::new("n", "job"), uid, &shuffled).await.unwrap() }
        };
        let sorted = found(&headless(&pods), &wanted(1, 9)).await.unwrap();
        let (one, again, other) = (of_job("a").await, of_job("a").await, of_job("b").await);
        assert_eq!(one, again);
        assert!(one != other && serde_json::from_str::<Value>(&one).unwrap() != sorted);
    }

    #[test]
    fn a_list_that_fits_no_variable_is_refused() {
        let hosts = (0..1_000).map(|number| format!("{number}-{}", "h".repeat(100))).collect();
        let error = render(hosts, &wanted(1, 1_000), "uid").unwrap_err();
        assert!(!error.retry && error.reason == "TooLarge", "{error:?}");
    }
}
