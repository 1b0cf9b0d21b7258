//! The Service and its EndpointSlices, as they should be. Pure.

use k8s_openapi::api::core::v1::{Service, ServicePort, ServiceSpec};
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointConditions, EndpointPort, EndpointSlice};
use kube::core::ObjectMeta;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use streams_api::names;
use streams_kubernetes::Key;

/// Ports that the runtime knows: the REST API, and bundles.
const PORTS: [(&str, u16); 2] = [("api", 10_000), ("repository", 6_379)];
/// Most endpoints of a slice that the API server takes.
const ENDPOINTS_MAX: usize = 1_000;
/// Says which Service a slice belongs to.
const SERVICE_NAME: &str = "kubernetes.io/service-name";
/// Says who writes a slice, so that nobody else does.
const MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";

/// A family of addresses: a slice has those of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Family {
    V4,
    V6,
}

impl Family {
    pub(super) const ALL: [Self; 2] = [Self::V4, Self::V6];

    /// Name of the slice.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::V4 => "streams-api-ipv4",
            Self::V6 => "streams-api-ipv6",
        }
    }

    fn has(self, address: &IpAddr) -> bool {
        address.is_ipv4() == (self == Self::V4)
    }
}

/// What all of them have.
fn labels() -> BTreeMap<String, String> {
    let all = [(names::LABEL_APP, names::APP), (names::LABEL_SERVICE, names::SERVICE_PE_API)];
    all.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
}

/// Label selector of the slices of the Service.
pub(super) fn of_service() -> String {
    format!("{SERVICE_NAME}={}", names::PE_API_SERVICE)
}

/// Whether this frontend, or another one, has made the Service.
pub(super) fn is_ours(service: &Service) -> bool {
    let found = service.metadata.labels.iter().flatten();
    let ours = labels();
    found.filter(|(key, value)| ours.get(*key) == Some(value)).count() == ours.len()
}

/// The Service in the namespace of this key.
pub(super) fn service(key: &Key) -> Service {
    let port = |(name, port): (&str, u16)| ServicePort {
        name: Some(name.to_owned()),
        port: port.into(),
        protocol: Some("TCP".to_owned()),
        ..ServicePort::default()
    };
    Service {
        metadata: ObjectMeta {
            name: Some(names::PE_API_SERVICE.to_owned()),
            namespace: Some(key.namespace.to_string()),
            labels: Some(labels()),
            ..ObjectMeta::default()
        },
        spec: Some(ServiceSpec {
            ports: Some(PORTS.into_iter().map(port).collect()),
            // What a PE has written it reads again from the same replica.
            session_affinity: Some("ClientIP".to_owned()),
            ..ServiceSpec::default()
        }),
        status: None,
    }
}

/// The slice of a family with these addresses.
pub(super) fn slice(key: &Key, family: Family, addresses: &BTreeSet<IpAddr>) -> EndpointSlice {
    let endpoint = |address: &IpAddr| Endpoint {
        addresses: vec![address.to_string()],
        conditions: Some(EndpointConditions { ready: Some(true), ..EndpointConditions::default() }),
        ..Endpoint::default()
    };
    let port = |(name, port): (&str, u16)| EndpointPort {
        name: Some(name.to_owned()),
        port: Some(port.into()),
        protocol: Some("TCP".to_owned()),
        ..EndpointPort::default()
    };
    let mut labels = labels();
    labels.insert(SERVICE_NAME.to_owned(), names::PE_API_SERVICE.to_owned());
    labels.insert(MANAGED_BY.to_owned(), "streams-frontend".to_owned());
    EndpointSlice {
        metadata: ObjectMeta {
            name: Some(family.name().to_owned()),
            namespace: Some(key.namespace.to_string()),
            labels: Some(labels),
            ..ObjectMeta::default()
        },
        address_type: match family {
            Family::V4 => "IPv4",
            Family::V6 => "IPv6",
        }
        .to_owned(),
        endpoints: addresses.iter().filter(|address| family.has(address)).take(ENDPOINTS_MAX).map(endpoint).collect(),
        ports: Some(PORTS.into_iter().map(port).collect()),
    }
}
