//! `context.json` of two steps: only what the contract names, sets as sets, absent like null like empty.

use super::step::{Port, Step};
use super::tree::INFERRED;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};

const EXPORT: [&str; 9] = [
    "operatorIndex",
    "operatorPort",
    "splitterIndex",
    "channelIndex",
    "name",
    "exportOperName",
    "allowFilter",
    "congestionPolicy",
    "properties",
];
const IMPORT: [&str; 5] = ["operatorIndex", "operatorPort", "filter", "nameBased", "propertyBased"];
const REGION: [&str; 4] = ["index", "name", "width", "globalMaxChannels"];
const POOL: [&str; 5] = ["index", "name", "membershipMode", "size", "hosts"];
const CONSISTENT: [&str; 10] = [
    "index",
    "logicalIndex",
    "trigger",
    "period",
    "drainTimeout",
    "resetTimeout",
    "maxConsecutiveResetAttempts",
    "numStartOperators",
    "operatorIsStart",
    "operatorIsTrigger",
];

/// Empty and null are absent; numbers are floats.
fn canonical(value: &Value) -> Value {
    match value {
        Value::Number(number) => json!(number.as_f64().map(|n| (n * 1e5).round() / 1e5)),
        Value::Array(list) => list.iter().map(canonical).collect(),
        Value::Object(map) => map
            .iter()
            .map(|(key, value)| (key.clone(), canonical(value)))
            .filter(|(_, value)| !blank(value))
            .collect::<Map<String, Value>>()
            .into(),
        other => other.clone(),
    }
}

fn blank(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(list) => list.is_empty(),
        Value::Object(map) => map.is_empty(),
        _ => false,
    }
}

/// The list of this name; an empty one where there is none.
pub fn list<'v>(value: &'v Value, key: &str) -> &'v [Value] {
    value[key].as_array().map_or(&[], Vec::as_slice)
}

fn only(value: &Value, keys: &[&str]) -> Map<String, Value> {
    keys.iter().map(|key| ((*key).to_owned(), value[*key].clone())).collect()
}

/// The elements as a set of texts.
fn set(values: impl IntoIterator<Item = Value>) -> Value {
    let mut texts: Vec<String> = values.into_iter().map(|value| canonical(&value).to_string()).collect();
    texts.sort_unstable();
    json!(texts)
}

fn sorted(value: &Value, key: &str) -> Value {
    set(list(value, key).iter().cloned())
}

/// What is said about the job.
fn top(context: &Value) -> BTreeMap<&'static str, Value> {
    let mut top: BTreeMap<&'static str, Value> = BTreeMap::new();
    for key in ["kind", "applicationName", "applicationScope", "parallelRegionWidths"] {
        top.insert(key, canonical(&context[key]));
    }
    top.insert("parallelRegions", set(list(context, "parallelRegions").iter().map(|r| only(r, &REGION).into())));
    top.insert(
        "hostPools",
        set(list(context, "hostPools").iter().map(|pool| {
            let mut kept = only(pool, &POOL);
            kept.insert("tags".to_owned(), sorted(pool, "tags"));
            kept.into()
        })),
    );
    top.insert(
        "consistentRegions",
        set(list(context, "consistentRegions").iter().map(|region| {
            let mut kept = only(region, &CONSISTENT);
            kept.insert("pes".to_owned(), sorted(region, "pes"));
            let trigger = region["trigger"].as_str().unwrap_or_default().replace(' ', "").to_lowercase();
            kept.insert("trigger".to_owned(), trigger.into());
            kept.into()
        })),
    );
    for key in ["changedOperators", "addedOperators", "removedOperators"] {
        top.insert(key, sorted(context, key));
    }
    top
}

/// What is said about a PE.
fn element(step: &Step, id: u64, pe: &Value) -> BTreeMap<&'static str, Value> {
    let mut said: BTreeMap<&'static str, Value> = BTreeMap::new();
    for key in ["operators", "operatorIndexes", "hostExLocations", "hostIsolationLabels"] {
        said.insert(key, sorted(pe, key));
    }
    let inferred = |text: &&Value| text.as_str().is_some_and(|text| text.starts_with(INFERRED));
    said.insert("hostCoLocations", set(list(pe, "hostCoLocations").iter().filter(|text| !inferred(text)).cloned()));
    for key in ["restartable", "hostPlacement", "hostIsolation", "hostPoolLocation"] {
        said.insert(key, canonical(&pe[key]));
    }
    said.insert(
        "portLabels",
        set(list(pe, "portLabels").iter().map(|label| {
            let text = label["pePortLabel"].as_str().unwrap_or_default();
            let port = text.split_once('@').and_then(|(port, job)| {
                let (pe, port) = port.split_once('.')?;
                let port: Port = (pe.parse().ok()?, port.parse().ok()?);
                Some(format!("{} of PE {pe}, job {job}", step.inputs.get(&port)?))
            });
            json!([label["operatorPortLabel"], port.unwrap_or_else(|| format!("no port {text}"))])
        })),
    );
    let mut ports = |key, keys: &[&str], table: &BTreeMap<Port, String>| {
        let ports = list(pe, key).iter().map(|port| {
            let mut kept = only(port, keys);
            let stands_for = port["portId"].as_u64().and_then(|port| table.get(&(id, port)));
            kept.insert("portId".to_owned(), json!(stands_for.map_or("no such port", String::as_str)));
            kept.into()
        });
        let ports = set(ports);
        said.insert(key, ports);
    };
    ports("exports", &EXPORT, &step.outputs);
    ports("imports", &IMPORT, &step.inputs);
    said
}

fn elements(step: &Step) -> BTreeMap<u64, &Value> {
    list(&step.context, "pes").iter().filter_map(|pe| Some((pe["id"].as_u64()?, pe))).collect()
}

/// How the contexts differ. `partial`: the reference implementation failed halfway; what it does not say does not
/// count.
pub fn differences(expected: &Step, actual: &Step, skip: &[&str], partial: bool, found: &mut Vec<String>) {
    let mut compare = |place: &str, was: &Value, is: &Value| {
        if was != is {
            found.push(format!("context.json/{place}: {is} instead of {was}"));
        }
    };
    let (was, is) = (top(&expected.context), top(&actual.context));
    for (key, was) in &was {
        if !skip.contains(key) {
            compare(key, was, &is[key]);
        }
    }
    let (was, is) = (elements(expected), elements(actual));
    let ids: BTreeSet<&u64> = was.keys().chain(is.keys()).collect();
    for id in ids {
        let (Some(was), Some(is)) = (was.get(id), is.get(id)) else {
            compare(&format!("pes[{id}]"), &json!(was.contains_key(id)), &json!(is.contains_key(id)));
            continue;
        };
        let said = element(actual, *id, is);
        for (key, expected) in element(expected, *id, was) {
            if !(skip.contains(&key) || partial && was[key].is_null()) {
                compare(&format!("pes[{id}]/{key}"), &expected, &said[key]);
            }
        }
    }
}

/// What a context must say about its own step.
pub fn own(step: &Step, previous: Option<&BTreeSet<u64>>) -> Vec<String> {
    let mut problems = Vec::new();
    let elements = elements(step);
    if !elements.keys().eq(step.documents.keys()) {
        problems.push("context.json names other PEs than there are documents".to_owned());
    }
    for (id, pe) in &elements {
        if pe["contentId"].as_str() != step.digests.get(id).map(String::as_str) {
            problems.push(format!("contentId of PE {id} is not the SHA-256 of its document"));
        }
    }
    if let Some(previous) = previous {
        let now: BTreeSet<u64> = step.documents.keys().copied().collect();
        let said =
            |key| -> BTreeSet<u64> { list(&step.context["peDiff"], key).iter().filter_map(Value::as_u64).collect() };
        let both: BTreeSet<u64> = said("changed").union(&said("unchanged")).copied().collect();
        let right = said("new") == now.difference(previous).copied().collect()
            && said("deleted") == previous.difference(&now).copied().collect()
            && both == now.intersection(previous).copied().collect();
        if !right {
            problems.push(format!("peDiff is {}", step.context["peDiff"]));
        }
    }
    problems
}
