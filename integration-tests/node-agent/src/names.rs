//! A DNS server for the names of Services: `<service>.<namespace>`, with or without `.svc` and the domain of a cluster.
//!
//! | Service | addresses |
//! |---|---|
//! | headless, with a selector | of the pods that match, if they are ready or the Service publishes others, too |
//! | any other | of its EndpointSlices: there is nobody who would forward what is sent to a cluster IP |
//!
//! Ports are not translated. Only addresses of IPv4 are known; to any other question there is no answer.

use k8s_openapi::api::core::v1::{Pod, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::ResourceExt as _;
use kube::runtime::reflector::Store;
use simple_dns::rdata::{A, RData};
use simple_dns::{CLASS, Packet, PacketFlag, QTYPE, RCODE, ResourceRecord, TYPE};
use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use tokio::net::UdpSocket;

/// Seconds that an answer is good for.
const GOOD_FOR: u32 = 1;
/// Longest question.
const QUESTION: usize = 512;
/// Most addresses of an answer: they fit into what everybody reads.
const ADDRESSES: usize = 25;
/// The label that says which Service a slice belongs to.
const SERVICE_OF_SLICE: &str = "kubernetes.io/service-name";

/// What the names follow from.
#[derive(Clone)]
pub(crate) struct Names {
    pub(crate) services: Store<Service>,
    pub(crate) slices: Store<EndpointSlice>,
    pub(crate) pods: Store<Pod>,
}

impl Names {
    /// Answers until it is dropped.
    pub(crate) async fn serve(self, socket: UdpSocket) {
        let mut bytes = [0; QUESTION];
        loop {
            let Ok((length, from)) = socket.recv_from(&mut bytes).await else { continue };
            let answer = bytes.get(..length).and_then(|question| self.answer(question));
            if let Some(answer) = answer {
                // Whoever asked asks again.
                let _ = socket.send_to(&answer, from).await;
            }
        }
    }

    fn answer(&self, question: &[u8]) -> Option<Vec<u8>> {
        let question = Packet::parse(question).ok()?;
        let asked = question.questions.first()?;
        let mut answer = Packet::new_reply(question.id());
        answer.set_flags(PacketFlag::AUTHORITATIVE_ANSWER | PacketFlag::RECURSION_AVAILABLE);
        answer.questions.push(asked.clone());
        match self.look_up(&asked.qname.to_string()) {
            None => *answer.rcode_mut() = RCODE::NameError,
            Some(addresses) if matches!(asked.qtype, QTYPE::TYPE(TYPE::A) | QTYPE::ANY) => {
                for address in addresses.into_iter().take(ADDRESSES) {
                    let data = RData::A(A { address: address.into() });
                    answer.answers.push(ResourceRecord::new(asked.qname.clone(), CLASS::IN, GOOD_FOR, data));
                }
            }
            Some(_) => {}
        }
        answer.build_bytes_vec_compressed().ok()
    }

    /// The addresses of a name; none if there is no such Service.
    fn look_up(&self, name: &str) -> Option<BTreeSet<Ipv4Addr>> {
        let (name, namespace) = service(name)?;
        let is_it = |service: &Service| service.name_any() == name && service.namespace().as_deref() == Some(namespace);
        let service = self.services.find(is_it)?;
        let spec = service.spec.clone().unwrap_or_default();
        let selector = spec.selector.unwrap_or_default();
        if spec.cluster_ip.as_deref() != Some("None") || selector.is_empty() {
            let slices = self.slices.state();
            let of_it = slices.iter().filter(|slice| {
                slice.namespace().as_deref() == Some(namespace)
                    && slice.labels().get(SERVICE_OF_SLICE).is_some_and(|service| service == name)
            });
            return Some(of_it.flat_map(|slice| addresses(slice)).collect());
        }
        let all = spec.publish_not_ready_addresses == Some(true);
        let pods = self.pods.state();
        let matching = pods.iter().filter(|pod| {
            let labels = pod.labels();
            pod.namespace().as_deref() == Some(namespace)
                && selector.iter().all(|(label, value)| labels.get(label) == Some(value))
                && (all || is_ready(pod))
        });
        Some(matching.filter_map(|pod| address(pod)).collect())
    }
}

/// Service and namespace of a name.
fn service(name: &str) -> Option<(&str, &str)> {
    let name = name.trim_end_matches('.');
    let mut labels = name.splitn(4, '.');
    let (service, namespace) = (labels.next()?, labels.next()?);
    let is_service =
        matches!((labels.next(), labels.next()), (None | Some("svc"), None) | (Some("svc"), Some("cluster.local")));
    (is_service && !service.is_empty() && !namespace.is_empty()).then_some((service, namespace))
}

fn addresses(slice: &EndpointSlice) -> Vec<Ipv4Addr> {
    let endpoints = slice.endpoints.iter();
    let ready = endpoints
        .filter(|endpoint| endpoint.conditions.as_ref().is_none_or(|conditions| conditions.ready != Some(false)));
    ready.flat_map(|endpoint| &endpoint.addresses).filter_map(|address| address.parse().ok()).collect()
}

fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
    let ready = |ready: &k8s_openapi::api::core::v1::PodCondition| ready.type_ == "Ready" && ready.status == "True";
    pod.metadata.deletion_timestamp.is_none() && conditions.into_iter().flatten().any(ready)
}

/// The address of a pod that has not ended.
fn address(pod: &Pod) -> Option<Ipv4Addr> {
    let status = pod.status.as_ref()?;
    let ended = matches!(status.phase.as_deref(), Some("Succeeded" | "Failed"));
    status.pod_ip.as_ref().filter(|_| !ended)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::{Names, service};
    use k8s_openapi::serde::de::DeserializeOwned;
    use kube::runtime::reflector::Lookup;
    use kube::runtime::reflector::Store;
    use kube::runtime::reflector::store;
    use kube::runtime::watcher::Event;
    use serde_json::{Value, json};
    use std::hash::Hash;

    #[test]
    fn names_of_services_may_have_a_domain() {
        for (name, expected) in [
            ("job-0.ns", Some(("job-0", "ns"))),
            ("job-0.ns.", Some(("job-0", "ns"))),
            ("job-0.ns.svc", Some(("job-0", "ns"))),
            ("job-0.ns.svc.cluster.local", Some(("job-0", "ns"))),
            ("job-0", None),
            ("job-0.ns.other", None),
            ("job-0.ns.svc.elsewhere.org", None),
            (".ns", None),
            ("", None),
        ] {
            assert_eq!(service(name), expected, "{name}");
        }
    }

    fn filled<K>(objects: Value) -> Store<K>
    where
        K: Lookup + Clone + DeserializeOwned + 'static,
        K::DynamicType: Default + Eq + Hash + Clone,
    {
        let (reader, mut writer) = store();
        for object in serde_json::from_value::<Vec<K>>(objects).unwrap() {
            writer.apply_watcher_event(&Event::Apply(object));
        }
        reader
    }

    fn pod(name: &str, address: &str, phase: &str, ready: &str) -> Value {
        json!({
            "metadata": {"name": name, "namespace": "ns", "labels": {"app": name.split('-').next(), "more": "x"}},
            "status": {"phase": phase, "podIP": address, "conditions": [{"type": "Ready", "status": ready}]},
        })
    }

    #[test]
    fn addresses_are_those_of_pods_or_of_slices() {
        let services = json!([
            {"metadata": {"name": "all", "namespace": "ns"}, "spec": {"clusterIP": "None", "selector": {"app": "a"}, "publishNotReadyAddresses": true}},
            {"metadata": {"name": "ready", "namespace": "ns"}, "spec": {"clusterIP": "None", "selector": {"app": "a"}}},
            {"metadata": {"name": "bare", "namespace": "ns"}, "spec": {"clusterIP": "None"}},
            {"metadata": {"name": "cluster", "namespace": "ns"}, "spec": {"clusterIP": "10.96.0.9", "selector": {"app": "a"}}},
        ]);
        let slice = |service: &str, address: &str, ready: Value| {
            json!({
                "metadata": {"name": format!("{service}-{address}"), "namespace": "ns", "labels": {"kubernetes.io/service-name": service}},
                "addressType": "IPv4",
                "endpoints": [{"addresses": [address], "conditions": {"ready": ready}}],
            })
        };
        let slices = json!([
            slice("bare", "10.0.0.7", Value::Null),
            slice("bare", "10.0.0.8", json!(false)),
            slice("cluster", "10.0.0.9", json!(true)),
        ]);
        let pods = json!([
            pod("a-1", "10.0.0.1", "Running", "True"),
            pod("a-2", "10.0.0.2", "Running", "False"),
            pod("a-3", "10.0.0.3", "Failed", "False"),
            pod("b-1", "10.0.0.4", "Running", "True"),
        ]);
        let names = Names { services: filled(services), slices: filled(slices), pods: filled(pods) };
        for (name, expected) in [
            ("all.ns", Some(vec!["10.0.0.1", "10.0.0.2"])),
            ("ready.ns", Some(vec!["10.0.0.1"])),
            ("bare.ns.svc", Some(vec!["10.0.0.7"])),
            ("cluster.ns", Some(vec!["10.0.0.9"])),
            ("none.ns", None),
            ("all.other", None),
        ] {
            let found = names.look_up(name).map(|all| all.iter().map(ToString::to_string).collect::<Vec<_>>());
            assert_eq!(found, expected.map(|all| all.into_iter().map(str::to_owned).collect()), "{name}");
        }
    }
}
