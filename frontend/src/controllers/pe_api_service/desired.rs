//! The Service as it should be. Pure.

use k8s_openapi::api::core::v1::{Service, ServicePort, ServiceSpec};
use kube::core::ObjectMeta;
use std::collections::BTreeMap;
use streams_api::names;
use streams_kubernetes::Key;

/// Ports that the runtime knows: the REST API, and bundles.
pub(super) const PORTS: [(&str, u16); 2] = [("api", 10_000), ("repository", 6_379)];
/// What all of them have.
pub(super) fn labels() -> BTreeMap<String, String> {
    let all = [(names::LABEL_APP, names::APP), (names::LABEL_SERVICE, names::SERVICE_PE_API)];
    all.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
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
            // Said, so that it is restored: of another type, it can be reached from elsewhere, or leads elsewhere.
            type_: Some("ClusterIP".to_owned()),
            ports: Some(PORTS.into_iter().map(port).collect()),
            // What a PE has written it reads again from the same replica.
            session_affinity: Some("ClientIP".to_owned()),
            ..ServiceSpec::default()
        }),
        status: None,
    }
}
