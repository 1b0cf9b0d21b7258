//! Where a field shows: not only that something is another with it, but that its value is where it belongs.
//!
//! What stands here is what the runtime and Kubernetes read (rules pod-4 to pod-9), written down a second time.

use crate::system::picture::Picture;
use serde_json::{Value, json};

/// Pods must be so with a field.
type Shows = fn(&Value, &Value) -> bool;

/// In which pod of the job the value of a field does not show, if there is one; `None` also where pods do not have the
/// field as such.
pub(super) fn unshown(field: &str, value: &Value, picture: &Picture) -> Option<String> {
    let pods: Vec<_> = picture.of_kind("Pod").collect();
    if field == "fusion.manual" {
        let is_so = value.as_u64() == Some(pods.len() as u64);
        return (!is_so).then(|| format!("there are {} pods with {field}={value}", pods.len()));
    }
    let shows = place(field)?;
    let other = pods.iter().find(|(_, pod)| !shows(pod, value));
    match (pods.is_empty(), other) {
        (true, _) => Some(format!("there is no pod with {field}={value}")),
        (false, Some((key, pod))) => Some(format!("{key} does not show {field}={value}: {}", pod["spec"])),
        (false, None) => None,
    }
}

/// Whether [`unshown`] knows where the field shows.
pub(super) fn is_listed(field: &str) -> bool {
    field == "fusion.manual" || place(field).is_some()
}

fn place(field: &str) -> Option<Shows> {
    let option = field.strip_prefix("processingElement.").unwrap_or(field);
    let last = option.rsplit('.').next().unwrap_or(option);
    if option.starts_with("checkpoint") {
        return checkpoint(option, last);
    }
    let shows: Shows = match option {
        "imagePullPolicy" => |pod, value| container(pod)["imagePullPolicy"] == *value,
        "imagePullSecret" => |pod, value| pod["spec"]["imagePullSecrets"] == json!([{ "name": value }]),
        "image" => |pod, value| container(pod)["image"] == *value,
        "buildType" => |pod, value| text(&container(pod)["image"]).ends_with(&format!(".{}", text(value))),
        "appTraceLevel" => |pod, value| variable(pod, "STREAMS_APP_TRACE_LEVEL") == *value,
        "runtimeTraceLevel" => |pod, value| variable(pod, "STREAMS_INITIAL_TRACE_LEVEL") == *value,
        "sabName" | "bundleName" => |pod, value| variable(pod, "STREAMS_SAB_NAME") == *value,
        "transportSecurityType" => |pod, value| variable(pod, "STREAMS_TRANSPORT_SECURITY_TYPE") == *value,
        "runWithValgrind" => |pod, value| variable(pod, "STREAMS_PE_USE_VALGRIND") == json!(value.to_string()),
        "allowPtrace" => |pod, value| {
            let added = container(pod).pointer("/securityContext/capabilities/add").and_then(Value::as_array);
            json!(added.is_some_and(|added| added.contains(&json!("SYS_PTRACE")))) == *value
        },
        "initialProbeDelayInSeconds" => {
            |pod, value| number(&container(pod)["livenessProbe"]["initialDelaySeconds"]) == number(value)
        }
        "probeIntervalInSeconds" => |pod, value| container(pod)["livenessProbe"]["periodSeconds"] == *value,
        "probeFailureThreshold" => |pod, value| container(pod)["livenessProbe"]["failureThreshold"] == *value,
        "dataPath" => |pod, value| volume(pod, "data-volume")["hostPath"]["path"] == *value,
        "dataVolumeClaim.name" => {
            |pod, value| volume(pod, "data-volume")["persistentVolumeClaim"]["claimName"] == *value
        }
        "dataVolumeClaim.subPath" => |pod, value| mount(pod, "data-volume")["subPath"] == *value,
        "appPropertiesSecret" => {
            |pod, value| volume(pod, "app-properties-secret-volume")["secret"]["secretName"] == *value
        }
        "restrictedPropertiesSecret" => {
            |pod, value| volume(pod, "restricted-properties-secret-volume")["secret"]["secretName"] == *value
        }
        "resources.limits{}" if field != option => |pod, value| has(&container(pod)["resources"]["limits"], value, 1),
        "resources.requests{}" if field != option => {
            |pod, value| has(&container(pod)["resources"]["requests"], value, 1)
        }
        // Job-wide: each of the three PEs of the base has a third.
        "resources.limits{}" => |pod, value| has(&container(pod)["resources"]["limits"], value, 3),
        "resources.requests{}" => |pod, value| has(&container(pod)["resources"]["requests"], value, 3),
        _ => return None,
    };
    Some(shows)
}

fn checkpoint(option: &str, last: &str) -> Option<Shows> {
    let shows: Shows = match (option.contains(".redis."), last) {
        (false, "path") => |pod, value| mount(pod, "checkpoint-volume")["mountPath"] == *value,
        (false, "name") => {
            |pod, value| volume(pod, "checkpoint-volume")["persistentVolumeClaim"]["claimName"] == *value
        }
        (false, "subPath") => |pod, value| mount(pod, "checkpoint-volume")["subPath"] == *value,
        (true, "replicaCount") => |pod, value| servers(pod)["replicas"] == *value,
        (true, "shardCount") => |pod, value| servers(pod)["shards"] == *value,
        (true, "service") => |pod, value| servers(pod).to_string().contains(&format!("-0.{}.", text(value))),
        (true, "restrictedProperty") => {
            |pod, value| servers(pod).to_string().contains(&format!(":6379:{}\"", text(value)))
        }
        _ => return None,
    };
    Some(shows)
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// The API server leaves some zeros out.
fn number(value: &Value) -> i64 {
    value.as_i64().unwrap_or(0)
}

fn container(pod: &Value) -> &Value {
    &pod["spec"]["containers"][0]
}

fn named<'a>(list: &'a Value, name: &str) -> &'a Value {
    let mut items = list.as_array().into_iter().flatten();
    items.find(|item| item["name"] == name).unwrap_or(&Value::Null)
}

fn variable(pod: &Value, name: &str) -> Value {
    named(&container(pod)["env"], name)["value"].clone()
}

fn volume<'a>(pod: &'a Value, name: &str) -> &'a Value {
    named(&pod["spec"]["volumes"], name)
}

fn mount<'a>(pod: &'a Value, name: &str) -> &'a Value {
    named(&container(pod)["volumeMounts"], name)
}

/// What the runtime reads of redis servers.
fn servers(pod: &Value) -> Value {
    let configuration = variable(pod, "STREAMS_CHECKPOINT_REPOSITORY_CONFIGURATION");
    serde_json::from_str(text(&configuration)).unwrap_or_default()
}

/// Whether each of these resources is there, divided by the number of PEs: thousandths of CPU, bytes of memory.
fn has(resources: &Value, wanted: &Value, parts: u64) -> bool {
    let mut wanted = wanted.as_object().into_iter().flatten();
    wanted.all(|(name, whole)| match (quantity(&resources[name]), quantity(whole)) {
        (Some(found), Some(whole)) if name == "cpu" => found == whole / parts,
        // Whole bytes, of thousandths.
        (Some(found), Some(whole)) => found == whole / 1_000 / parts * 1_000,
        _ => false,
    })
}

/// In thousandths, of the suffixes that values of a run have.
fn quantity(value: &Value) -> Option<u64> {
    let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let units = [("m", 1), ("Mi", 1_000 << 20), ("Gi", 1_000 << 30)];
    let found = units.into_iter().find_map(|(suffix, unit)| Some((text.strip_suffix(suffix)?, unit)));
    let (digits, unit) = found.unwrap_or((&text, 1_000));
    digits.parse::<u64>().ok()?.checked_mul(unit)
}

#[cfg(test)]
mod tests {
    use super::super::fields::of_spec;
    use super::super::values::WITHOUT_EFFECT;
    use super::{has, is_listed};
    use serde_json::json;

    /// Options that are no value of a pod: what becomes of one that ends.
    const POLICIES: [&str; 4] = ["restartFailedPod", "restartCompletedPod", "restartDeletedPod", "deleteFailedPod"];

    #[test]
    fn it_is_known_where_every_option_of_a_pe_shows() {
        for field in of_spec("Job").unwrap().iter().filter(|field| field.name.starts_with("processingElement.")) {
            let is_excepted = WITHOUT_EFFECT.iter().any(|(name, _)| *name == field.name);
            let is_policy = POLICIES.contains(&field.last());
            assert!(is_listed(&field.name) || is_excepted || is_policy, "{field}");
        }
    }

    #[test]
    fn resources_are_shared_among_pes() {
        // what a PE has, what was asked for, of how many PEs
        let table = [
            (json!({"cpu": "300m", "memory": "1Gi"}), json!({"cpu": "300m"}), 1, true),
            (json!({"cpu": "2"}), json!({}), 1, true),
            (json!({"cpu": "666m"}), json!({"cpu": 2}), 3, true),
            (json!({"memory": "357913941"}), json!({"memory": "1Gi"}), 3, true),
            (json!({"cpu": "2"}), json!({"cpu": 2}), 3, false),
            (json!({}), json!({"cpu": 1}), 1, false),
        ];
        for (there, wanted, parts, expected) in table {
            assert_eq!(has(&there, &wanted, parts), expected, "{there} {wanted}");
        }
    }
}
