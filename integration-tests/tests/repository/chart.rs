//! Do the Helm chart and the kustomizations say the same?
//!
//! What the chart makes is known to Helm alone; `chart` of the integration tests asks it. Here is what can be seen
//! without it: that nothing of `deploy/base` is missing, that the definitions are the same, and that values, their
//! schema and their explanations belong together.

use crate::deployment::{file, manifests};
use crate::files::{File, assert_none, read, root};
use regex::Regex;
use serde_json::{Map, Value};
use std::collections::BTreeSet;
use std::fs;

/// The folder of the chart.
const CHART: &str = "deploy/helm/streams-operator";
const CRDS: &str = "deploy/crds";

fn of_chart(path: &str) -> &'static File {
    file(&format!("{CHART}/{path}"))
}

fn values() -> Value {
    serde_saphyr::from_str(&of_chart("values.yaml").text).unwrap()
}

fn schema() -> Value {
    let path = root().join(CHART).join("values.schema.json");
    serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap()
}

/// The files of a folder, by name.
fn names(folder: &str) -> BTreeSet<String> {
    let entries = fs::read_dir(root().join(folder)).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

/// A text without comments and blanks around its lines.
fn lines(text: &str) -> impl Iterator<Item = &str> {
    text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#') && *line != "---")
}

#[test]
fn the_chart_has_the_version_of_the_programs() {
    let chart: Value = serde_saphyr::from_str(&of_chart("Chart.yaml").text).unwrap();
    let version = env!("CARGO_PKG_VERSION");
    assert_eq!((&chart["version"], &chart["appVersion"]), (&version.into(), &version.into()));
    let base = &manifests(file("deploy/base/kustomization.yaml"))[0];
    for image in base["images"].as_array().unwrap() {
        assert_eq!(image["newTag"], version, "{image}");
    }
}

#[test]
fn definitions_of_the_chart_are_those_of_the_kustomization() {
    let copies = format!("{CHART}/files/crds");
    let mut originals = names(CRDS);
    originals.remove("kustomization.yaml");
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        for name in &originals {
            fs::copy(root().join(CRDS).join(name), root().join(&copies).join(name)).unwrap();
        }
    }
    assert_eq!(names(&copies), originals);
    for name in originals {
        let text = |folder: &str| fs::read(root().join(folder).join(&name)).unwrap();
        assert!(text(&copies) == text(CRDS), "{copies}/{name} is another one: UPDATE_EXPECT=1 copies it");
    }
}

#[test]
fn rights_of_the_chart_are_those_of_the_base() {
    let of_rules = |text: &str| {
        let rules = text.split_once("\nrules:\n").map(|(_, rules)| rules);
        rules.map(|rules| lines(rules).collect::<Vec<_>>().join("\n"))
    };
    let template = lines(&of_chart("templates/rbac.yaml").text).collect::<Vec<_>>().join("\n");
    let base = file("deploy/base/rbac.yaml");
    let blocks: Vec<String> = base.text.split("\n---\n").filter_map(of_rules).collect();
    assert!(blocks.len() > 8, "only {} roles", blocks.len());
    let missing = blocks.into_iter().filter(|block| !template.contains(block.as_str()));
    assert_none("rules that the chart does not have", missing.collect());
}

/// Line by line, wherever it stands.
#[test]
fn what_the_base_says_the_chart_says_too() {
    // What the chart says in other words.
    let said_otherwise = Regex::new(concat!(
        // The namespace and names come with the release.
        r"^namespace: streams-system$|^name: streams-frontend(-cluster|-reviews|-bundle-secrets|-transport-secrets)?$",
        r"|^name: streams-(edit|view)$|^metadata: \{name: ",
        // Images, and what is made of values.
        r"|^image: |^replicas: 2$|^maxUnavailable: 1$|^terminationGracePeriodSeconds: |^sizeLimit: ",
        r#"|^value: (json|"")$"#,
        r"|^- name: (bundles|served-bundles)$|^name: streams-bundles$|^labelSelector:$|^- --",
        r"|^streams.ibm.com/elasticity: allowed$",
    ))
    .unwrap();
    let helpers = fs::read_to_string(root().join(CHART).join("templates/_helpers.tpl")).unwrap();
    let of_chart: BTreeSet<&str> = (read().iter())
        .filter(|file| file.path.starts_with(&format!("{CHART}/templates/")) || file.path.ends_with("/values.yaml"))
        .flat_map(|file| lines(&file.text))
        .chain(lines(&helpers))
        .collect();
    let mut problems = Vec::new();
    let names = ["frontend.yaml", "fusion-service.yaml", "network-policies.yaml", "rbac.yaml", "service-accounts.yaml"];
    for name in names {
        let base = file(&format!("deploy/base/{name}"));
        let missing = lines(&base.text).filter(|line| !of_chart.contains(line) && !said_otherwise.is_match(line));
        problems.extend(missing.map(|line| format!("{}: {line}", base.path)));
    }
    assert_none("lines that the chart does not have", problems);
}

/// What the schema says of a value, where it stands for another definition.
fn resolved<'a>(schema: &'a Value, root: &'a Value) -> &'a Value {
    match schema["$ref"].as_str() {
        Some(reference) => root.pointer(reference.strip_prefix('#').unwrap()).unwrap(),
        None => schema,
    }
}

/// Names and what the schema says of them, where it lists all that there may be.
fn listed(schema: &Value) -> Option<&Map<String, Value>> {
    schema["properties"].as_object()
}

/// Where values and schema differ: names that one of them has, and values of another type.
fn differences(path: &str, value: &Value, schema: &Value, root: &Value) -> Vec<String> {
    let schema = resolved(schema, root);
    let mut problems = Vec::new();
    if let Some(allowed) = schema["enum"].as_array() {
        if !allowed.contains(value) {
            problems.push(format!("{path}: {value} is not among {allowed:?}"));
        }
        return problems;
    }
    let name = match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    let types = match &schema["type"] {
        Value::Array(types) => types.clone(),
        one => vec![one.clone()],
    };
    // Integers are numbers, too.
    let names: &[&str] = if name == "integer" { &["integer", "number"] } else { &[name] };
    if !types.iter().any(|allowed| names.iter().any(|name| allowed == name)) {
        problems.push(format!("{path}: {name}, and not {types:?}"));
    }
    if let (Some(object), Some(allowed)) = (value.as_object(), listed(schema)) {
        if schema["additionalProperties"] != false {
            problems.push(format!("{path}: misspelt names are not refused"));
        }
        // Helm has it in every chart.
        let given: BTreeSet<&String> = object.keys().collect();
        let known: BTreeSet<&String> = allowed.keys().filter(|name| *name != "global").collect();
        problems.extend(given.difference(&known).map(|name| format!("{path}.{name} is not in the schema")));
        problems.extend(known.difference(&given).map(|name| format!("{path}.{name} is not in the values")));
        for (name, value) in object {
            if let Some(schema) = allowed.get(name) {
                problems.extend(differences(&format!("{path}.{name}"), value, schema, root));
            }
        }
    } else if let Some(object) = value.as_object() {
        for (name, value) in object {
            if let Some(names) = schema["propertyNames"]["enum"].as_array()
                && !names.contains(&name.as_str().into())
            {
                problems.push(format!("{path}.{name} is refused"));
            }
            let of_name = schema["patternProperties"].get(format!("^{name}$"));
            let schema = of_name.unwrap_or(&schema["additionalProperties"]);
            if schema.is_object() {
                problems.extend(differences(&format!("{path}.{name}"), value, schema, root));
            }
        }
    }
    problems
}

#[test]
fn values_and_their_schema_have_the_same_names() {
    let schema = schema();
    assert_none("values and schema", differences("", &values(), &schema, &schema));
}

#[test]
fn what_differs_is_noticed() {
    let schema = schema();
    // place, what is put there -> part of the problem
    let table = [
        ("/crds/enabled", Value::from("yes"), ".crds.enabled: string"),
        ("/frontend/replicas", Value::from(1.5), ".frontend.replicas: number"),
        ("/frontend/image/pullPolicy", Value::from("Sometimes"), "not among"),
        ("/fusionService/options/workers", Value::Null, ".fusionService.options.workers: null"),
        ("/fusionService/options", serde_json::json!({"listen": "x"}), ".fusionService.options.listen is refused"),
        ("/frontend/options", serde_json::json!({"image-version": 6.1}), ".frontend.options.image-version: number"),
        ("/tls", serde_json::json!({}), ".tls.enabled is not in the values"),
        ("/labels/x", Value::from("y"), ""),
    ];
    for (place, value, expected) in table {
        let mut values = values();
        match values.pointer_mut(place) {
            Some(there) => *there = value,
            None => drop(values["labels"].as_object_mut().unwrap().insert("x".to_owned(), value)),
        }
        let problems = differences("", &values, &schema, &schema).join("\n");
        assert!(problems.contains(expected) && problems.is_empty() == expected.is_empty(), "{place}: {problems}");
    }
}

/// The paths of all values that people may set by name.
fn paths(path: &str, value: &Value, schema: &Value, root: &Value) -> Vec<String> {
    let (Some(object), Some(allowed)) = (value.as_object(), listed(resolved(schema, root))) else { return Vec::new() };
    let deeper = object.iter().flat_map(|(name, value)| {
        let path = format!("{path}.{name}");
        let inside = allowed.get(name).map(|schema| paths(&path, value, schema, root));
        [path].into_iter().chain(inside.into_iter().flatten())
    });
    deeper.collect()
}

#[test]
fn each_value_is_explained() {
    let text = &of_chart("values.yaml").text;
    let name = Regex::new("^( *)([A-Za-z]+):").unwrap();
    let (mut open, mut explained, mut before) = (Vec::<String>::new(), BTreeSet::new(), "");
    for line in text.lines() {
        if let Some(found) = name.captures(line) {
            open.truncate(found[1].len() / 2);
            open.push(found[2].to_owned());
            if before.trim_start().starts_with("# ") {
                explained.insert(format!(".{}", open.join(".")));
            }
        }
        before = line;
    }
    let schema = schema();
    let paths = paths("", &values(), &schema, &schema);
    assert!(paths.len() > 60, "only {} values", paths.len());
    let silent = paths.into_iter().filter(|path| !explained.contains(path));
    assert_none("values without a comment", silent.collect());
}
