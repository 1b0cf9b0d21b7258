//! The parser against the logical models of the reference implementation (corpus, `logical/`): the application as
//! written, as the JSON view that the reference implementation has of it, without what nobody downstream reads; and the
//! real operators after expansion.

use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use streams_compiler::budget::Budget;
use streams_compiler::logical::{
    Annotation, Application, Attribute, ConnectionEnd, Import, ImportedStreams, OperatorId, OperatorKind, PortKind,
    Property, SplitterKind, Type, submission,
};
use streams_compiler::topology::{self, AnnotationValue, Parameters};
use streams_test_support::table::Set;

/// One run of the reference implementation: its name, the application, submission-time values, width overrides.
struct Run {
    name: String,
    application: Arc<Application>,
    parameters: Parameters,
}

fn runs(corpus: &Path) -> Vec<(PathBuf, Run)> {
    let index = std::fs::read_to_string(corpus.join("logical/INDEX.txt")).unwrap();
    let mut runs = Vec::new();
    for line in index.lines() {
        let mut fields = line.split('|').map(str::trim);
        let (name, file, arguments) = (fields.next().unwrap(), fields.next().unwrap(), fields.next().unwrap());
        let folder = if name.starts_with("syn.") { "samples/synthetic" } else { "samples" };
        let document = std::fs::read(corpus.join(folder).join(file)).unwrap();
        let application = Arc::new(streams_compiler::adl::parse(&document, &Budget::default()).expect(name));
        let pairs = |kind: &str| -> Vec<(String, String)> {
            let pair = |argument: &str| {
                let (name, value) = argument.strip_prefix(kind)?.split_once('=')?;
                Some((name.to_owned(), value.to_owned()))
            };
            arguments.split(' ').filter_map(pair).collect()
        };
        let given: BTreeMap<String, String> = pairs("S:").into_iter().collect();
        let bindings = submission::bind(&application, &given).expect(name);
        let widths = pairs("W:").into_iter().map(|(pattern, width)| (pattern, width.parse().unwrap())).collect();
        let parameters = Parameters { bindings, widths, ..Parameters::default() };
        runs.push((corpus.join("logical"), Run { name: name.to_owned(), application, parameters }));
    }
    runs
}

fn golden(folder: &Path, run: &Run, kind: &str) -> Option<Value> {
    let text = std::fs::read_to_string(folder.join(format!("{}.{kind}.json", run.name))).ok()?;
    Some(serde_json::from_str(&text).unwrap())
}

/// Applications are read as the reference implementation reads them.
pub(crate) fn applications(corpus: &Path) -> Set {
    let mut set = Set::new("logical models, as written");
    for (folder, run) in runs(corpus) {
        let Some(mut theirs) = golden(&folder, &run, "pre") else { continue };
        reduce(&mut theirs);
        set.add(&run.name, difference(&model(&run), &theirs));
    }
    set
}

/// The first line in which two values differ.
fn difference(ours: &Value, theirs: &Value) -> Option<String> {
    let [ours, theirs] = [ours, theirs].map(|value| serde_json::to_string_pretty(value).unwrap());
    let mut lines = ours.lines().zip(theirs.lines()).zip(1..);
    let other = || Some("one ends before the other".to_owned());
    (ours != theirs)
        .then(|| {
            lines.find(|((a, b), _)| a != b).map(|((a, b), n)| format!("line {n}: {a} instead of {b}")).or_else(other)
        })
        .flatten()
}

/// Leaves out what the compiler does not keep: source places, descriptions of composites, what only the view of the
/// reference implementation needs.
fn reduce(value: &mut Value) {
    match value {
        Value::Object(map) => {
            for key in [
                "sourceIndex",
                "sourceUris",
                "compositeOperDefs",
                "uri",
                "version",
                "portSelector",
                "width",
                "internal",
                "replicas",
            ] {
                map.remove(key);
            }
            // Of composites, imports and exports the definition does not matter.
            if map.contains_key("compositeOperators") || map.contains_key("params") {
                map.remove("definitionIndex");
            }
            if map.get("tag").is_some_and(|tag| tag == "view")
                && let Some(Value::Object(values)) = map.get_mut("keyValues")
            {
                values.remove("filter");
                values.remove("attributes");
            }
            if let Some(Value::Array(definitions)) = map.get_mut("primitiveOperDefs") {
                let kind = |definition: &Value| definition["kind"].as_str().unwrap_or_default().to_owned();
                definitions.retain(|definition| !kind(definition).starts_with("spl.adapter::Import"));
                definitions.retain(|definition| !kind(definition).starts_with("spl.adapter::Export"));
            }
            if map.contains_key("params") {
                for port in map.get_mut("outputPorts").and_then(Value::as_array_mut).into_iter().flatten() {
                    port.as_object_mut().unwrap().remove("tupleTypeSchema");
                }
                // Ports of imports and exports are known by position.
                for ports in ["inputPorts", "outputPorts"] {
                    for port in map.get_mut(ports).and_then(Value::as_array_mut).into_iter().flatten() {
                        port.as_object_mut().unwrap().remove("index");
                    }
                }
            }
            map.values_mut().for_each(reduce);
        }
        Value::Array(list) => list.iter_mut().for_each(reduce),
        _ => {}
    }
}

fn model(run: &Run) -> Value {
    let application = &run.application;
    let types = application
        .tuple_types
        .iter()
        .map(|t| json!({ "index": t.index, "type": tuple(t.attributes.as_deref().unwrap_or_default()) }));
    let definitions = application.definitions.iter().filter(|d| !d.kind.starts_with("spl.adapter::Import"));
    let definitions = definitions.filter(|d| !d.kind.starts_with("spl.adapter::Export"));
    let definitions = definitions.map(|d| json!({ "index": d.index, "kind": d.kind, "toolkitIndex": d.toolkit }));
    let regions = application.regions.iter().map(|region| {
        let splitters = region.splitters.iter().map(|splitter| {
            let kind = match splitter.kind {
                SplitterKind::RoundRobin => "RoundRobin",
                SplitterKind::Hash => "Hash",
                SplitterKind::Broadcast => "Broadcast",
            };
            json!({ "iPortIndex": splitter.input_port, "kind": kind, "attributes": splitter.attributes })
        });
        json!({ "index": region.index, "operIndex": region.operator, "splitters": splitters.collect::<Vec<_>>() })
    });
    let toolkits = application.toolkits.iter().map(|t| json!({ "index": t.index, "name": t.name }));
    json!({
        "tupleTypeDefs": types.collect::<Vec<_>>(),
        "primitiveOperDefs": definitions.collect::<Vec<_>>(),
        "parallelRegions": regions.collect::<Vec<_>>(),
        "toolkits": toolkits.collect::<Vec<_>>(),
        "mainComposite": operator(run, application.main),
    })
}

fn tuple(attributes: &[Attribute]) -> Value {
    json!({ "tuple": attributes.iter().map(|a| json!({ a.name.as_str(): type_of(&a.r#type) })).collect::<Vec<_>>() })
}

fn type_of(r#type: &Type) -> Value {
    let bounded = |kind: &str, mut inner: Value, bound: &Option<i64>| {
        if let Some(bound) = bound {
            inner["bound"] = json!(bound);
        }
        json!({ kind: inner })
    };
    match r#type {
        Type::Scalar(text) => json!(text),
        Type::List(element, bound) => bounded("list", json!({ "elementType": type_of(element) }), bound),
        Type::Set(element, bound) => bounded("set", json!({ "elementType": type_of(element) }), bound),
        Type::Map(key, value, bound) => {
            bounded("map", json!({ "keyType": type_of(key), "valueType": type_of(value) }), bound)
        }
        Type::Optional(inner) => json!({ "underlyingType": type_of(inner) }),
        Type::Tuple(attributes) => tuple(attributes),
    }
}

fn connections(list: &[ConnectionEnd]) -> Value {
    let one = |c: &ConnectionEnd| {
        let kind = if c.kind == PortKind::Input { "Input" } else { "Output" };
        json!({ "operIndex": c.operator, "portIndex": c.port, "portKind": kind })
    };
    Value::Array(list.iter().map(one).collect())
}

fn annotation(run: &Run, annotation: &Annotation) -> Value {
    let mut values = Map::new();
    for (key, text) in &annotation.values {
        if annotation.tag == "view" && (key == "filter" || key == "attributes") {
            continue;
        }
        let text = match text.submission_value {
            Some(index) => run.parameters.bindings.literal(index).unquoted().unwrap(),
            None => text.literal.as_str(),
        };
        values.insert(key.clone(), json!(text));
    }
    json!({ "tag": annotation.tag, "keyValues": values })
}

fn operator(run: &Run, id: OperatorId) -> Value {
    let application = &run.application;
    let operator = &application.operators[id];
    let mut view = Map::new();
    view.insert("index".into(), json!(operator.index));
    view.insert("name".into(), json!(operator.logical_name));
    let annotations: Vec<Value> = operator.annotations.iter().map(|a| annotation(run, a)).collect();
    match &operator.kind {
        OperatorKind::Composite(composite) => {
            let nested = |ids: &[OperatorId]| Value::Array(ids.iter().map(|id| self::operator(run, *id)).collect());
            for (key, ports) in [("inputPorts", &composite.inputs), ("outputPorts", &composite.outputs)] {
                let port = |p: &streams_compiler::logical::CompositePort| {
                    let (incoming, outgoing) = (connections(&p.incoming), connections(&p.outgoing));
                    json!({ "index": p.index, "incomingConnections": incoming, "outgoingConnections": outgoing })
                };
                view.insert(key.into(), Value::Array(ports.iter().map(port).collect()));
            }
            view.insert("compositeOperators".into(), nested(&composite.composites));
            view.insert("primitiveOperators".into(), nested(&composite.primitives));
            view.insert("annotations".into(), Value::Array(annotations));
            return Value::Object(view);
        }
        OperatorKind::Primitive(primitive) => {
            view.insert("definitionIndex".into(), json!(primitive.definition));
            let inputs = primitive.inputs.iter().map(|p| {
                let connections = connections(&p.port.connections);
                json!({ "index": p.port.index, "connections": connections, "isControl": p.control })
            });
            let outputs = primitive.outputs.iter().map(|p| {
                let connections = connections(&p.port.connections);
                let (index, schema, stream) = (p.port.index, p.port.tuple_type, &p.stream_name);
                json!({ "index": index, "tupleTypeSchema": schema, "connections": connections, "streamName": stream })
            });
            let (inputs, outputs): (Vec<_>, Vec<_>) = (inputs.collect(), outputs.collect());
            for (key, list) in [("inputPorts", inputs), ("outputPorts", outputs)] {
                if !list.is_empty() {
                    view.insert(key.into(), Value::Array(list));
                }
            }
        }
        OperatorKind::Import(import) => {
            let ports = import.outputs.iter().map(|list| json!({ "connections": connections(list) }));
            view.insert("inputPortCount".into(), json!(0));
            view.insert("outputPorts".into(), ports.collect());
            view.insert("params".into(), imported(import));
        }
        OperatorKind::Export(export) => {
            let ports = export.inputs.iter().map(|list| json!({ "connections": connections(list) }));
            view.insert("inputPorts".into(), ports.collect());
            let mut params = json!({ "allowFilter": export.allow_filter });
            if let Some(name) = &export.stream_name {
                params["streamId"] = json!(name);
            }
            if let Some(properties) = &export.properties {
                let value = |p: &Property| match p.r#type.starts_with("list") {
                    true => json!(p.values),
                    false => json!(p.values[0]),
                };
                params["properties"] = properties.iter().map(|p| (p.name.clone(), value(p))).collect();
            }
            view.insert("params".into(), params);
        }
    }
    if !annotations.is_empty() {
        view.insert("annotations".into(), Value::Array(annotations));
    }
    Value::Object(view)
}

fn imported(import: &Import) -> Value {
    let scope = |scope: &Option<String>| scope.clone().unwrap_or_else(|| "Default".to_owned());
    match &import.streams {
        ImportedStreams::ByProperties { subscription, application_scope, .. } => {
            json!({ "subscription": subscription, "applicationScope": scope(application_scope) })
        }
        ImportedStreams::ByName(names) => {
            let name = &names[0];
            json!({
                "applicationName": name.application_name,
                "streamId": name.stream_name,
                "applicationScope": scope(&name.application_scope),
            })
        }
    }
}

/// What the reference implementation says otherwise: `isStartOfRegion="false"` starts a region there (rule model-14).
const CORRECTED: [&str; 1] = ["syn.cc2"];

/// Operators after expansion are those of the reference implementation.
pub(crate) fn expansions(corpus: &Path) -> Set {
    let mut set = Set::new("logical models, expanded");
    for (folder, run) in runs(corpus) {
        let Some(theirs) = golden(&folder, &run, "post") else { continue };
        if CORRECTED.contains(&run.name.as_str()) {
            set.correct("isStartOfRegion=\"false\" does not start a consistent region (rule model-14)", &run.name);
            continue;
        }
        let topology = topology::expand(&run.application, &run.parameters, &Budget::default()).expect(&run.name);
        topology::verify(&topology).expect(&run.name);
        let mut expected = BTreeMap::new();
        primitives(&theirs["mainComposite"], &mut expected);
        let ours: BTreeMap<String, Value> = topology
            .operators
            .values()
            .map(|operator| {
                let streams: Vec<&str> = operator.outputs.iter().map(|port| port.stream_name.as_str()).collect();
                let written = &run.application.operators[operator.logical];
                let annotations = operator.annotations.iter().filter(|annotation| annotation.tag != "threading");
                let annotations: Vec<Value> = annotations.map(resolved).collect();
                let view = json!({
                    "logicalIndex": written.index,
                    "logicalName": written.logical_name,
                    "streams": streams,
                    "annotations": annotations,
                });
                (operator.name.clone(), view)
            })
            .collect();
        set.add(&run.name, difference(&json!(ours), &json!(expected)));
    }
    set
}

/// Real operators by physical name.
fn primitives(composite: &Value, found: &mut BTreeMap<String, Value>) {
    for nested in composite["compositeOperators"].as_array().unwrap() {
        primitives(nested, found);
    }
    for primitive in composite["primitiveOperators"].as_array().unwrap() {
        let name = primitive["name"].as_str().unwrap();
        let synthetic = primitive["sourceIndex"] == json!(-1);
        if synthetic || primitive.get("params").is_some() {
            continue;
        }
        let streams: Vec<&Value> =
            primitive["outputPorts"].as_array().into_iter().flatten().map(|port| &port["streamName"]).collect();
        let mut annotations = primitive.get("annotations").cloned().unwrap_or(json!([]));
        for annotation in annotations.as_array_mut().unwrap() {
            let view = annotation.as_object_mut().unwrap();
            view.remove("internal");
            // The prefix of its name is put on when operators are made.
            if view["tag"] == "view" {
                view["keyValues"].as_object_mut().unwrap().remove("name");
            }
        }
        let view = json!({
            "logicalIndex": primitive.get("logicalIndex").unwrap_or(&primitive["index"]),
            "logicalName": primitive.get("logicalName").unwrap_or(&primitive["name"]),
            "streams": streams,
            "annotations": annotations,
        });
        found.insert(name.to_owned(), view);
    }
}

fn resolved(annotation: &topology::ResolvedAnnotation) -> Value {
    let view = annotation.tag == "view";
    let kept = annotation.values.iter().filter(|(key, _)| !view || (key != "name" && key != "logicalName"));
    let values: Map<String, Value> = kept.map(|(key, value)| (key.clone(), value_of(value))).collect();
    json!({ "tag": annotation.tag, "keyValues": values })
}

fn value_of(value: &AnnotationValue) -> Value {
    match value {
        AnnotationValue::Text(text) => json!(text),
        AnnotationValue::List(list) => json!({ "list": list.iter().map(value_of).collect::<Vec<_>>() }),
        AnnotationValue::Tuple(values) => {
            let entries = values.iter().map(|(key, value)| json!({ key.as_str(): value_of(value) }));
            json!({ "tuple": entries.collect::<Vec<_>>() })
        }
    }
}
