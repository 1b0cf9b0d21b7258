//! The Service as it should be. Pure.

use super::MANAGER;
use k8s_openapi::api::core::v1::{Service, ServicePort, ServiceSpec};
use kube::ResourceExt;
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

/// Whether this frontend, or another one, has made the Service. Somebody may have taken its labels from it. A mirror
/// does not show who has written it.
pub(super) fn is_ours(service: &Service) -> bool {
    let meta = &service.metadata;
    let is_applied =
        meta.annotations.as_ref().is_some_and(|annotations| annotations.contains_key(names::ANNOTATION_APPLIED_HASH));
    let is_written = meta.managed_fields.iter().flatten().any(|entry| entry.manager.as_deref() == Some(MANAGER.0));
    let has_labels = || labels().iter().all(|(key, value)| service.labels().get(key) == Some(value));
    is_applied || is_written || has_labels()
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
            // Likewise: with another one, PEs on nodes without a replica are led to nobody.
            internal_traffic_policy: Some("Cluster".to_owned()),
            ports: Some(PORTS.into_iter().map(port).collect()),
            // What a PE has written it reads again from the same replica.
            session_affinity: Some("ClientIP".to_owned()),
            ..ServiceSpec::default()
        }),
        status: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn a_service_is_ours_as_long_as_something_says_so() {
        let ours = json!({"app": "streams", "svc": "instance-operator"});
        let by = |manager: &str| json!([{"manager": manager, "operation": "Update"}]);
        // labels, annotations, who has written it -> whether it is ours
        let table = [
            (ours.clone(), json!({}), json!([]), true),
            (json!({}), json!({"streams.ibm.com/applied-hash": "x"}), json!([]), true),
            (json!({"app": "other"}), json!({}), by("streams-pe-api-controller"), true),
            (json!({"app": "streams"}), json!({"mine": "yes"}), by("kubectl"), false),
            (json!({}), json!({}), json!([]), false),
        ];
        for (labels, annotations, managed_fields, expected) in table {
            let metadata: Value = json!({
                "name": "streams-api", "labels": labels, "annotations": annotations, "managedFields": managed_fields,
            });
            let service: Service = serde_json::from_value(json!({ "metadata": metadata })).unwrap();
            assert_eq!(is_ours(&service), expected, "{metadata}");
        }
    }
}
