//! Are the samples of autoscalers, network policies and certificates what their readers take them for?
//!
//! The HPA is run as well (`autoscaler` of the integration tests). KEDA is not: its ScaledObject is checked against the
//! fields that its definition has (keda.sh/v1alpha1), those that this project has no use for left out.

use crate::deployment::{file, manifests};
use k8s_openapi::api::autoscaling::v2::{HorizontalPodAutoscaler, HorizontalPodAutoscalerBehavior};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use streams_api::names;

/// The first manifest in a file.
fn manifest(path: &str) -> Value {
    manifests(file(path)).remove(0)
}

fn sample(name: &str) -> Value {
    manifest(&format!("deploy/samples/{name}"))
}

fn parse<T: DeserializeOwned>(manifest: &Value) -> Result<T, String> {
    serde_json::from_value(manifest.clone()).map_err(|error| error.to_string())
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ScaledObject {
    api_version: String,
    kind: String,
    #[allow(dead_code, reason = "it has to be there")]
    metadata: Named,
    spec: ScaledObjectSpec,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Named {
    #[allow(dead_code, reason = "it has to be there")]
    name: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[allow(dead_code, reason = "what they are called and what type they have is what counts")]
struct ScaledObjectSpec {
    scale_target_ref: ScaleTarget,
    polling_interval: Option<i32>,
    cooldown_period: Option<i32>,
    initial_cooldown_period: Option<i32>,
    idle_replica_count: Option<i32>,
    min_replica_count: Option<i32>,
    max_replica_count: Option<i32>,
    advanced: Option<Advanced>,
    fallback: Option<Value>,
    triggers: Vec<Trigger>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[allow(dead_code, reason = "only of use with pods")]
struct ScaleTarget {
    api_version: Option<String>,
    kind: Option<String>,
    name: String,
    env_source_container_name: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[allow(dead_code, reason = "what they are called and what type they have is what counts")]
struct Advanced {
    horizontal_pod_autoscaler_config: Option<HpaConfig>,
    restore_to_original_replica_count: Option<bool>,
    scaling_modifiers: Option<Value>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(dead_code, reason = "what they are called and what type they have is what counts")]
struct HpaConfig {
    behavior: Option<HorizontalPodAutoscalerBehavior>,
    name: Option<String>,
}

#[derive(Debug, Deserialize)]
enum MetricType {
    AverageValue,
    Value,
    Utilization,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[allow(dead_code, reason = "what they are called and what type they have is what counts")]
struct Trigger {
    #[serde(rename = "type")]
    scaler: String,
    name: Option<String>,
    use_cached_metrics: Option<bool>,
    /// Numbers are strings here as well.
    metadata: BTreeMap<String, String>,
    authentication_ref: Option<Value>,
    metric_type: Option<MetricType>,
}

#[test]
fn keda_scales_the_region_that_the_hpa_scales_and_never_to_nothing() {
    let manifest = sample("keda-scaledobject.yaml");
    let keda: ScaledObject = parse(&manifest).unwrap();
    assert_eq!((keda.api_version.as_str(), keda.kind.as_str()), ("keda.sh/v1alpha1", "ScaledObject"));
    let hpa: HorizontalPodAutoscaler = parse(&sample("hpa.yaml")).unwrap();
    let hpa = hpa.spec.unwrap();
    let target = &keda.spec.scale_target_ref;
    assert_eq!(target.api_version, hpa.scale_target_ref.api_version);
    assert_eq!(target.kind.as_ref(), Some(&hpa.scale_target_ref.kind));
    assert_eq!(target.name, hpa.scale_target_ref.name);
    // Without it 0 is meant, and a region has a channel at least.
    assert!(keda.spec.min_replica_count.unwrap() >= 1 && keda.spec.idle_replica_count.is_none());
    assert_eq!((keda.spec.min_replica_count, keda.spec.max_replica_count), (hpa.min_replicas, Some(hpa.max_replicas)));
    let behavior = keda.spec.advanced.unwrap().horizontal_pod_autoscaler_config.unwrap().behavior;
    assert_eq!(behavior, hpa.behavior);
    for trigger in &keda.spec.triggers {
        assert_eq!(trigger.scaler, "prometheus");
        assert!(matches!(trigger.metric_type, Some(MetricType::AverageValue)), "{trigger:?}");
        for key in ["serverAddress", "query", "threshold"] {
            assert!(trigger.metadata.contains_key(key), "{trigger:?} has no {key}");
        }
        trigger.metadata["threshold"].parse::<f64>().unwrap();
    }
    assert!(!keda.spec.triggers.is_empty());
}

#[test]
fn what_is_no_scaled_object_is_noticed() {
    let good = sample("keda-scaledobject.yaml");
    // place, what is put there -> part of the error
    let table = [
        ("/spec/minReplicaCount", "two".into(), "invalid type: string"),
        ("/spec/scaleTargetRef/name", Value::Null, "invalid type: null"),
        ("/spec/triggers/0/metadata/threshold", 1000.into(), "invalid type: integer"),
        ("/spec/triggers/0/metricType", "Average".into(), "unknown variant `Average`"),
        ("/spec/scaleTargetRef", json!({"name": "r", "group": "g"}), "unknown field `group`"),
    ];
    for (place, value, expected) in table {
        let mut bad = good.clone();
        *bad.pointer_mut(place).unwrap() = value;
        let error = parse::<ScaledObject>(&bad).unwrap_err();
        assert!(error.contains(expected), "{place}: {error}");
    }
}

#[test]
fn bounds_of_autoscalers_are_those_of_the_job() {
    let job = sample("job.yaml");
    let hpa: HorizontalPodAutoscaler = parse(&sample("hpa.yaml")).unwrap();
    let hpa = hpa.spec.unwrap();
    let regions = job["spec"]["parallelRegions"].as_array().unwrap();
    let clean = regions.iter().find(|region| region["name"] == "Clean").unwrap();
    assert_eq!(clean["maxWidth"], i64::from(hpa.max_replicas));
    assert!(clean["minWidth"].as_i64().unwrap_or(1) <= i64::from(hpa.min_replicas.unwrap()));
}

/// Whoever has a certificate of before and whoever has one of afterwards trust each other, also when the authority was
/// renewed in between.
#[test]
fn an_authority_keeps_its_key_and_those_whom_it_signs_get_new_ones() {
    for sample in ["certificates", "elasticity-certificates"] {
        let manifests = manifests(file(&format!("deploy/samples/{sample}.yaml")));
        let certificates: Vec<&Value> = manifests.iter().filter(|manifest| manifest["kind"] == "Certificate").collect();
        assert_eq!(certificates.len(), 3, "{sample}");
        for certificate in certificates {
            let spec = &certificate["spec"];
            let expected = if spec["isCA"] == true { "Never" } else { "Always" };
            assert_eq!(spec["privateKey"]["rotationPolicy"], expected, "{}", certificate["metadata"]["name"]);
        }
    }
}

/// Between PEs everything is open, because operators open what ports they like (rule name-7).
#[test]
fn a_closed_namespace_with_the_policy_lets_pes_work() {
    let policy = sample("network-policy.yaml");
    // A field that does not exist would be lost.
    assert_eq!(serde_json::to_value(parse::<NetworkPolicy>(&policy).unwrap()).unwrap(), policy);
    let frontend = manifest("deploy/base/frontend.yaml");
    let namespace = &manifest("deploy/base/kustomization.yaml")["namespace"];
    let ports = frontend["spec"]["template"]["spec"]["containers"][0]["ports"].as_array().unwrap();
    let listens = |name: &str| &ports.iter().find(|port| port["name"] == name).unwrap()["containerPort"];
    let port = |protocol: &str, port: &Value| json!({"protocol": protocol, "port": port});
    let (tcp, udp) = (|number: &Value| port("TCP", number), |number: u16| port("UDP", &number.into()));
    let pes = json!({"podSelector": {"matchLabels": {(names::LABEL_APP): names::APP}}});
    let frontend = json!({
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
        "podSelector": frontend["spec"]["selector"],
    });
    assert_eq!(policy["spec"]["podSelector"], pes["podSelector"]);
    assert_eq!(policy["spec"]["policyTypes"], json!(["Ingress", "Egress"]));
    let ingress = json!([{"from": [pes]}, {"from": [frontend], "ports": [udp(10_000), udp(10_001)]}]);
    assert_eq!(policy["spec"]["ingress"], ingress);
    let egress = json!([
        {"to": [pes]},
        {"to": [frontend], "ports": [tcp(listens("pe-api")), tcp(listens("repository"))]},
        {"ports": [udp(53), tcp(&json!(53))]},
        // Servers of checkpoints (rule job-46).
        {"to": [{"podSelector": {}}], "ports": [tcp(&json!(6_379))]},
    ]);
    assert_eq!(policy["spec"]["egress"], egress);
}

/// Where all pods of the namespace are closed, too: the policy for PEs lets these out, and somebody has to let them in.
#[test]
fn pes_reach_the_redis_servers_in_a_closed_namespace() {
    let of_sample = manifests(file("deploy/samples/redis-checkpoints.yaml"));
    let of_kind = |kind: &str| of_sample.iter().find(|manifest| manifest["kind"] == kind).unwrap();
    let (policy, servers) = (of_kind("NetworkPolicy"), &of_kind("StatefulSet")["spec"]);
    assert_eq!(&serde_json::to_value(parse::<NetworkPolicy>(policy).unwrap()).unwrap(), policy);
    let port = &servers["template"]["spec"]["containers"][0]["ports"][0]["containerPort"];
    let pes = json!({"podSelector": {"matchLabels": {(names::LABEL_APP): names::APP}}});
    let expected = json!({
        "podSelector": servers["selector"],
        "policyTypes": ["Ingress"],
        "ingress": [{"from": [pes], "ports": [{"protocol": "TCP", "port": port}]}],
    });
    assert_eq!(policy["spec"], expected);
}
