//! The environment of a container, as a kubelet makes it.

use crate::objects::Objects;
use anyhow::{Context as _, Result, bail};
use k8s_openapi::api::core::v1::{Container, EnvVar, Pod};
use kube::ResourceExt as _;
use std::collections::BTreeMap;
use std::net::Ipv4Addr;

/// The variables of a container.
///
/// # Errors
/// When it refers to something that is not there, or to something that is not supported.
pub(crate) async fn variables(
    container: &Container,
    pod: &Pod,
    address: Ipv4Addr,
    objects: &Objects<'_>,
) -> Result<BTreeMap<String, String>> {
    let mut variables = BTreeMap::new();
    for source in container.env_from.iter().flatten() {
        let prefix = source.prefix.clone().unwrap_or_default();
        let mut entries = BTreeMap::new();
        if let Some(of) = &source.config_map_ref {
            entries.extend(objects.config_map(&of.name, of.optional).await?.entries);
        }
        if let Some(of) = &source.secret_ref {
            entries.extend(objects.secret(&of.name, of.optional).await?);
        }
        for (key, value) in entries {
            variables.insert(format!("{prefix}{key}"), text(&key, value)?);
        }
    }
    for variable in container.env.iter().flatten() {
        let value = match (&variable.value, &variable.value_from) {
            (_, Some(_)) => from(variable, pod, address, objects).await?,
            (value, None) => Some(expand(value.as_deref().unwrap_or_default(), &variables)),
        };
        if let Some(value) = value {
            variables.insert(variable.name.clone(), value);
        }
    }
    Ok(variables)
}

async fn from(variable: &EnvVar, pod: &Pod, address: Ipv4Addr, objects: &Objects<'_>) -> Result<Option<String>> {
    let from = variable.value_from.clone().unwrap_or_default();
    let (entries, key, optional) = if let Some(of) = from.field_ref {
        return field(&of.field_path, pod, address).map(Some);
    } else if let Some(of) = from.config_map_key_ref {
        (objects.config_map(&of.name, of.optional).await?.entries, of.key, of.optional)
    } else if let Some(of) = from.secret_key_ref {
        (objects.secret(&of.name, of.optional).await?, of.key, of.optional)
    } else {
        bail!("the value of the variable {} is of a kind that is not supported", variable.name);
    };
    match entries.get(&key) {
        Some(value) => text(&key, value.clone()).map(Some),
        None if optional == Some(true) => Ok(None),
        None => bail!("there is no key {key} for the variable {}", variable.name),
    }
}

fn text(key: &str, value: Vec<u8>) -> Result<String> {
    String::from_utf8(value).with_context(|| format!("the value of {key} is no text"))
}

/// A field of a pod.
///
/// # Errors
/// When it is not supported.
pub(crate) fn field(path: &str, pod: &Pod, address: Ipv4Addr) -> Result<String> {
    let entry = |prefix: &str| path.strip_prefix(prefix)?.strip_prefix("['")?.strip_suffix("']");
    if let Some(label) = entry("metadata.labels") {
        return Ok(pod.labels().get(label).cloned().unwrap_or_default());
    }
    if let Some(annotation) = entry("metadata.annotations") {
        return Ok(pod.annotations().get(annotation).cloned().unwrap_or_default());
    }
    let spec = pod.spec.as_ref();
    Ok(match path {
        "metadata.name" => pod.name_any(),
        "metadata.namespace" => pod.namespace().unwrap_or_default(),
        "metadata.uid" => pod.uid().unwrap_or_default(),
        "spec.nodeName" => spec.and_then(|spec| spec.node_name.clone()).unwrap_or_default(),
        "spec.serviceAccountName" => spec.and_then(|spec| spec.service_account_name.clone()).unwrap_or_default(),
        "status.podIP" => address.to_string(),
        _ => bail!("the field {path} of a pod is not supported"),
    })
}

/// Replaces `$(NAME)` by the value of a variable that is there, and `$$` by `$`.
pub(crate) fn expand(text: &str, variables: &BTreeMap<String, String>) -> String {
    let mut expanded = String::new();
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        let (before, from) = rest.split_at(at);
        expanded.push_str(before);
        let reference = from.strip_prefix("$(").and_then(|name| name.split_once(')'));
        rest = if let Some(rest) = from.strip_prefix("$$") {
            expanded.push('$');
            rest
        } else if let Some((value, rest)) = reference.and_then(|(name, rest)| Some((variables.get(name)?, rest))) {
            expanded.push_str(value);
            rest
        } else {
            expanded.push('$');
            from.strip_prefix('$').unwrap_or_default()
        };
    }
    expanded.push_str(rest);
    expanded
}

#[cfg(test)]
mod tests {
    use super::{expand, field};
    use serde_json::json;
    use std::net::Ipv4Addr;

    #[test]
    fn references_are_replaced_as_kubernetes_does() {
        let variables = [("A".to_owned(), "1".to_owned())].into();
        for (text, expected) in [
            ("", ""),
            ("a b", "a b"),
            ("$(A)$(A)", "11"),
            ("$(B)", "$(B)"),
            ("$$(A)", "$(A)"),
            ("$$$(A)", "$1"),
            ("$A $", "$A $"),
            ("$(A", "$(A"),
        ] {
            assert_eq!(expand(text, &variables), expected, "{text}");
        }
    }

    #[test]
    fn fields_are_those_of_the_pod() {
        let pod = json!({"metadata": {"name": "p", "namespace": "n", "labels": {"a/b": "l"}}, "spec": {"nodeName": "x", "containers": []}});
        let pod = serde_json::from_value(pod).unwrap();
        for (path, expected) in [
            ("metadata.name", Some("p")),
            ("metadata.namespace", Some("n")),
            ("metadata.labels['a/b']", Some("l")),
            ("metadata.annotations['none']", Some("")),
            ("spec.nodeName", Some("x")),
            ("status.podIP", Some("10.77.0.16")),
            ("status.phase", None),
        ] {
            let found = field(path, &pod, Ipv4Addr::new(10, 77, 0, 16));
            assert_eq!(found.ok().as_deref(), expected, "{path}");
        }
    }
}
