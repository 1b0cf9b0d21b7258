//! Placements in the words of the scheduler.

use super::*;
use crate::controllers::token_labels::{Kind, key, value};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use streams_api::{HostPoolSpec, MembershipMode, Placement, PoolLocation};

fn affinity(placement: Placement, pool: Option<HostPoolSpec>) -> Value {
    let pe = with(|spec| spec.placement = placement);
    let pod = PodTemplate::of(Parts { pool: pool.as_ref(), ..parts(&pe, &settings()) }).unwrap().pod(1);
    pod.spec.unwrap().affinity.map_or(Value::Null, |affinity| serde_json::to_value(affinity).unwrap())
}

fn pool(hosts: &[&str], tags: &[&str]) -> HostPoolSpec {
    let texts = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
    HostPoolSpec { job_name: "flow".to_owned(), hosts: texts(hosts), tags: texts(tags), ..HostPoolSpec::default() }
}

fn located(in_pool_index: Option<u64>) -> Placement {
    Placement { pool: Some(PoolLocation { index: 0, in_pool_index }), ..Placement::default() }
}

fn host(name: &str) -> Value {
    json!({"key": "metadata.name", "operator": "In", "values": [name]})
}

fn nodes(terms: Value) -> Value {
    json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}})
}

#[test]
fn hosts_and_tags_are_node_affinity() {
    let exists = |tag: &str| json!({"key": format!("hostpool.streams.ibm.com/{tag}"), "operator": "Exists"});
    let single = |tag: &str| json!({"key": "streams.ibm.com/hostpool", "operator": "In", "values": [tag]});
    let on = |name: &str| json!({"matchFields": [host(name)]});
    let both = |placement: Placement| Placement { host: Some("a".to_owned()), ..placement };
    let table = [
        (Placement::default(), None, Value::Null),
        (both(Placement::default()), None, nodes(json!([on("a")]))),
        (located(None), Some(pool(&[], &[])), Value::Null),
        (located(None), Some(pool(&["a", "b"], &[])), nodes(json!([on("a"), on("b")]))),
        (located(Some(3)), Some(pool(&["a", "b"], &[])), nodes(json!([on("b")]))),
        (
            located(None),
            Some(pool(&[], &["fast"])),
            nodes(json!([{"matchExpressions": [exists("fast")]}, {"matchExpressions": [single("fast")]}])),
        ),
        (
            located(None),
            Some(pool(&[], &["ssd", "fast", "ssd"])),
            nodes(json!([{"matchExpressions": [exists("fast"), exists("ssd")]}])),
        ),
        (
            located(Some(0)),
            Some(pool(&["a", "b"], &["x", "y"])),
            nodes(json!([{"matchExpressions": [exists("x"), exists("y")], "matchFields": [host("a")]}])),
        ),
        // What contradicts itself fits no node.
        (both(located(None)), Some(pool(&["b"], &[])), nodes(json!([{"matchFields": [host("a"), host("b")]}]))),
    ];
    for (placement, pool, expected) in table {
        assert_eq!(affinity(placement.clone(), pool), expected, "{placement:?}");
    }
}

#[test]
fn tokens_are_hashed_labels_of_the_job_and_shown_to_people() {
    let tokens = |tokens: &[&str]| tokens.iter().map(|token| (*token).to_owned()).collect::<Vec<_>>();
    let pe = with(|spec| {
        spec.placement.co_locations = tokens(&["Sink[1]", "a b", "Sink[1]"]);
        spec.placement.ex_locations = tokens(&["a b"]);
        spec.placement.group = Some(key(Kind::CoLocation, "a b"));
    });
    let pod = PodTemplate::of(parts(&pe, &settings())).unwrap().pod(1);
    let kinds: Vec<_> = pod.labels().keys().filter(|key| key.contains("location.")).collect();
    assert_eq!(kinds.len(), 3, "{kinds:?}");
    for (key, value) in pod.labels().iter().filter(|(key, _)| key.contains("location.")) {
        assert!(key.ends_with(value.as_str()) && value.len() == 20 && key.len() <= 63, "{key} {value}");
    }
    assert_eq!(pod.annotations()["streams.ibm.com/hostcolocation"], "Sink[1], a b");
    assert_eq!(pod.annotations()["streams.ibm.com/hostexlocation"], "a b");
    let affinity = serde_json::to_value(pod.spec.as_ref().unwrap().affinity.as_ref().unwrap()).unwrap();
    let terms =
        |kind: &str| affinity[kind]["requiredDuringSchedulingIgnoredDuringExecution"].as_array().unwrap().clone();
    assert_eq!((terms("podAffinity").len(), terms("podAntiAffinity").len()), (1, 1));
    for term in terms("podAffinity").iter().chain(&terms("podAntiAffinity")) {
        assert_eq!(term["topologyKey"], "kubernetes.io/hostname");
        let labels = term["labelSelector"]["matchLabels"].as_object().unwrap();
        assert_eq!((labels["streams.ibm.com/job"].as_str(), labels.len()), (Some("flow"), 2));
        let (key, value) = labels.iter().find(|(key, _)| key.contains("location.")).unwrap();
        assert_eq!(pod.labels().get(key).map(String::as_str), value.as_str());
    }
}

/// What a pod is to be near to, and its labels of tokens.
fn nearness(placement: Placement) -> (Vec<Value>, Vec<String>) {
    let pe = with(|spec| spec.placement = placement);
    let pod = PodTemplate::of(parts(&pe, &settings())).unwrap().pod(1);
    let labels = pod.labels().keys().filter(|key| key.contains("location.")).cloned().collect();
    let affinity = serde_json::to_value(pod.spec.unwrap().affinity.unwrap()).unwrap();
    let terms = affinity["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"].as_array().unwrap();
    (terms.iter().map(|term| term["labelSelector"]["matchLabels"].clone()).collect(), labels)
}

/// The scheduler counts a pod only if it matches all terms of the one that it looks for a node for.
#[test]
fn whatever_its_tokens_a_pod_of_a_group_has_one_term() {
    let label = |token: &str| key(Kind::CoLocation, token);
    let term = |token: &str| json!({names::LABEL_JOB: "flow", (label(token)): value(&label(token))});
    let sorted = |tokens: &[&str]| tokens.iter().map(|token| label(token)).collect::<BTreeSet<_>>();
    // tokens, label of the group -> what the pod is near to, its labels
    let table: [(&[&str], Option<&str>, &str, &[&str]); 4] = [
        (&["x"], None, "x", &["x"]),
        (&["x", "y"], Some("x"), "x", &["x", "y"]),
        (&["y"], Some("x"), "x", &["x", "y"]),
        (&["y"], Some("of nobody any more"), "of nobody any more", &["y", "of nobody any more"]),
    ];
    for (tokens, group, near, labels) in table {
        let co_locations = tokens.iter().map(|token| (*token).to_owned()).collect();
        let placement = Placement { co_locations, group: group.map(label), ..Placement::default() };
        let (terms, carried) = nearness(placement);
        assert_eq!((terms, carried), (vec![term(near)], Vec::from_iter(sorted(labels))), "{tokens:?} {group:?}");
    }
}

#[test]
fn isolation_keeps_other_pes_of_the_job_away() {
    let placement = Placement { isolation: Some("Op".to_owned()), ..Placement::default() };
    let expected = json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{
        "labelSelector": {
            "matchLabels": {"app": "streams", "streams.ibm.com/job": "flow"},
            "matchExpressions": [{"key": "streams.ibm.com/pe", "operator": "NotIn", "values": ["3"]}],
        },
        "topologyKey": "kubernetes.io/hostname",
    }]}});
    assert_eq!(affinity(placement, None), expected);
}

#[test]
fn an_exclusive_pool_keeps_other_jobs_away_in_all_namespaces() {
    let exclusive = HostPoolSpec { membership_mode: MembershipMode::Exclusive, ..pool(&[], &[]) };
    let selector = |operator: &str| {
        json!({
            "matchLabels": {"app": "streams", "svc": "pe"},
            "matchExpressions": [{"key": "streams.ibm.com/job", "operator": operator, "values": ["flow"]}],
        })
    };
    let elsewhere =
        json!({"matchExpressions": [{"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["ns"]}]});
    let expected = json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
        {"labelSelector": selector("NotIn"), "namespaceSelector": {}, "topologyKey": "kubernetes.io/hostname"},
        {"labelSelector": selector("In"), "namespaceSelector": elsewhere, "topologyKey": "kubernetes.io/hostname"},
    ]}});
    assert_eq!(affinity(located(None), Some(exclusive)), expected);
}

#[test]
fn pes_with_the_same_index_of_a_pool_without_hosts_are_together() {
    let labels = |index| {
        let pe = with(|spec| spec.placement = located(Some(index)));
        let pool = pool(&[], &["fast"]);
        let pod = PodTemplate::of(Parts { pool: Some(&pool), ..parts(&pe, &settings()) }).unwrap().pod(1);
        let affinity = serde_json::to_value(pod.spec.as_ref().unwrap().affinity.as_ref().unwrap()).unwrap();
        assert!(affinity["nodeAffinity"].is_object());
        let near = &affinity["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
        assert_eq!(near.as_array().unwrap().len(), 1);
        pod.labels().keys().find(|key| key.starts_with("streams.ibm.com/hostpoolindex.")).cloned().unwrap()
    };
    assert_eq!(labels(0), labels(0));
    assert_ne!(labels(0), labels(1));
}
