//! The replicas behind a Service, as its EndpointSlices tell: of the fusion service (rule call-15), and of the frontend
//! itself (rule pe-api-8).
//!
//! Knows: Services, EndpointSlices. Must not know: calls, what becomes of a replica that fails.
//!
//! Invariant: what is told is the mirror as it is; an empty list means that nothing is known, or that nothing is there.

use crate::fusion::Endpoint;
use k8s_openapi::api::discovery::v1::{Endpoint as Listed, EndpointPort, EndpointSlice};
use kube::Client;
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;
use streams_kubernetes::metrics::Metrics;
use streams_kubernetes::watch::{Form, Scope, Timings, Watch, trimmed};
use tokio::sync::watch as latest;
use tokio_util::sync::CancellationToken;

/// Says which Service a slice belongs to.
const SERVICE_NAME: &str = "kubernetes.io/service-name";

/// A port of a Service: `[NAMESPACE/]NAME:PORT`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ServicePort {
    namespace: Option<String>,
    name: String,
    port: Port,
}

/// A port, as slices have it: by its name, or the number at the pods.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Port {
    Name(String),
    Number(u16),
}

impl FromStr for ServicePort {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let form = || format!("'{text}' is not [NAMESPACE/]NAME:PORT");
        let (service, port) = text.rsplit_once(':').ok_or_else(form)?;
        let (namespace, name) = match service.split_once('/') {
            Some((namespace, name)) => (Some(namespace.to_owned()), name),
            None => (None, service),
        };
        let is_name = |part: &str| !part.is_empty() && part.chars().all(|c| c.is_ascii_alphanumeric() || c == '-');
        if !is_name(name) || !is_name(port) || namespace.as_deref().is_some_and(|namespace| !is_name(namespace)) {
            return Err(form());
        }
        let port = match port.parse() {
            Ok(number) => Port::Number(number),
            Err(_) => Port::Name(port.to_owned()),
        };
        Ok(Self { namespace, name: name.to_owned(), port })
    }
}

impl Port {
    /// The number, if the port of a slice is this one.
    fn number(&self, port: &EndpointPort) -> Option<u16> {
        let number = u16::try_from(port.port?).ok()?;
        let is_it = match self {
            Self::Name(name) => port.name.as_deref() == Some(name),
            Self::Number(wanted) => *wanted == number,
        };
        is_it.then_some(number)
    }
}

/// Watches the slices of `service`, in the namespace `or_here` if it names none, and tells what `of` makes of them
/// whenever that changes, until `stop`.
pub(crate) async fn watch<T: PartialEq + Debug>(
    client: Client,
    service: ServicePort,
    or_here: &str,
    metrics: &Metrics,
    (told, of): (latest::Sender<T>, fn(Vec<Endpoint>) -> T),
    stop: CancellationToken,
) {
    let slices = Watch::<EndpointSlice>::in_form(metrics, &[], Form::Unpacked);
    let mut changes = slices.changes();
    let telling = async {
        while changes.changed().await.is_ok() {
            let listed: Vec<_> = slices.list().collect();
            let endpoints = of(endpoints(listed.iter().map(AsRef::as_ref), &service.port));
            told.send_if_modified(|before| {
                let is_new = *before != endpoints;
                if is_new {
                    tracing::info!(service = service.name, replicas = ?endpoints, "a Service has other replicas");
                    *before = endpoints;
                }
                is_new
            });
        }
    };
    let scope = Scope::Alone(service.namespace.clone().unwrap_or_else(|| or_here.to_owned()));
    let selector = format!("{SERVICE_NAME}={}", service.name);
    let filling = slices.run(client, scope, Some(&selector), trimmed::custom_resource, Timings::default(), stop);
    tokio::select! {
        () = filling => {}
        () = telling => {}
    }
}

/// The replicas that the slices list: those that are ready, and those that are being ended and still serve, by address.
/// Of a pod with addresses of both families, the one that comes first.
fn endpoints<'a>(slices: impl IntoIterator<Item = &'a EndpointSlice>, port: &Port) -> Vec<Endpoint> {
    let mut of_pods: BTreeMap<String, BTreeMap<SocketAddr, bool>> = BTreeMap::new();
    for slice in slices {
        let Some(number) = slice.ports.iter().flatten().find_map(|listed| port.number(listed)) else { continue };
        for listed in &slice.endpoints {
            // All addresses of an endpoint are the same replica; slices of names have none.
            let address = listed.addresses.iter().find_map(|address| address.parse::<IpAddr>().ok());
            let (Some(address), Some(is_terminating)) = (address, is_terminating(listed)) else { continue };
            let address = SocketAddr::new(address, number);
            let pod = listed.target_ref.as_ref().and_then(|target| target.uid.clone());
            let known = of_pods.entry(pod.unwrap_or_else(|| address.to_string())).or_default();
            // While an endpoint moves, two slices list it.
            known.entry(address).and_modify(|before| *before &= is_terminating).or_insert(is_terminating);
        }
    }
    let first = of_pods.into_values().filter_map(|mut addresses| addresses.pop_first());
    let addresses: BTreeMap<SocketAddr, bool> = first.collect();
    addresses.into_iter().map(|(address, is_terminating)| Endpoint { address, is_terminating }).collect()
}

/// Whether the endpoint is about to go; `None` if it does not serve.
fn is_terminating(listed: &Listed) -> Option<bool> {
    let Some(conditions) = &listed.conditions else { return Some(false) };
    // Unknown means yes.
    if conditions.ready.unwrap_or(true) {
        return Some(false);
    }
    (conditions.terminating.unwrap_or(false) && conditions.serving.unwrap_or(false)).then_some(true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn slice(ports: &Value, endpoints: &Value) -> EndpointSlice {
        serde_json::from_value(json!({
            "metadata": {"name": "s"}, "addressType": "IPv4", "ports": ports, "endpoints": endpoints,
        }))
        .unwrap()
    }

    fn told(slices: &[EndpointSlice], port: &str) -> Vec<String> {
        let service: ServicePort = format!("fusion:{port}").parse().unwrap();
        let told = endpoints(slices, &service.port).into_iter();
        told.map(|one| format!("{}{}", one.address, if one.is_terminating { " goes" } else { "" })).collect()
    }

    #[test]
    fn a_port_of_a_service_has_a_form() {
        let service = |namespace: Option<&str>, port| {
            Ok(ServicePort { namespace: namespace.map(str::to_owned), name: "fusion-service".to_owned(), port })
        };
        // text -> meaning
        let table = [
            ("fusion-service:grpc", service(None, Port::Name("grpc".to_owned()))),
            ("streams-system/fusion-service:50051", service(Some("streams-system"), Port::Number(50051))),
        ];
        for (text, expected) in table {
            assert_eq!(text.parse(), expected, "{text}");
        }
        for text in ["fusion-service", "a/b/c:1", "/b:1", "a/:1", "b:", "http://b:1", "b.c:1"] {
            let error = text.parse::<ServicePort>().unwrap_err();
            assert!(error.contains(text) && error.contains("NAME:PORT"), "{text}: {error}");
        }
    }

    #[test]
    fn endpoints_that_are_ready_are_told_and_those_that_go_while_they_serve() {
        let ports = json!([{"name": "http", "port": 8080}, {"name": "grpc", "port": 50051}]);
        let endpoint =
            |last: u8, conditions: Value| json!({"addresses": [format!("10.0.0.{last}")], "conditions": conditions});
        let endpoints = json!([
            endpoint(1, json!({"ready": true, "serving": true, "terminating": false})),
            endpoint(2, json!({"ready": false, "serving": false, "terminating": false})),
            endpoint(3, json!({"ready": false, "serving": true, "terminating": true})),
            endpoint(4, json!({"ready": false, "serving": false, "terminating": true})),
            endpoint(5, json!({})),
            {"addresses": ["fusion.example.com"], "conditions": {"ready": true}},
        ]);
        let slices = [slice(&ports, &endpoints)];
        assert_eq!(told(&slices, "grpc"), ["10.0.0.1:50051", "10.0.0.3:50051 goes", "10.0.0.5:50051"]);
        assert_eq!(told(&slices, "8080"), ["10.0.0.1:8080", "10.0.0.3:8080 goes", "10.0.0.5:8080"]);
        assert_eq!(told(&slices, "other"), [""; 0]);
    }

    #[test]
    fn a_replica_is_told_once() {
        let ports = json!([{"name": "grpc", "port": 1}]);
        let of_pod = |address: &str, uid: &str, ready: bool| {
            json!([{
                "addresses": [address], "targetRef": {"kind": "Pod", "uid": uid},
                "conditions": {"ready": ready, "serving": true, "terminating": !ready},
            }])
        };
        let slices = [
            slice(&ports, &of_pod("10.0.0.1", "a", false)),
            slice(&ports, &of_pod("10.0.0.1", "a", true)),
            slice(&ports, &of_pod("fd00::1", "a", true)),
            slice(&ports, &of_pod("fd00::2", "b", true)),
        ];
        assert_eq!(told(&slices, "grpc"), ["10.0.0.1:1", "[fd00::2]:1"], "a pod has one address of each family");
    }
}
