//! The older dialect (rule language-17): operators are described twice, logically in the tree of composites and
//! physically under `pes`.
//!
//! Both parts may come in any order, so the physical part is kept as [`Pe`]s and merged into the tree at the end
//! ([`merge()`]).
//!
//! Knows: elements of this dialect. Must not know: what they mean together.

mod merge;

pub(crate) use merge::merge;

use super::composites::Leaf;
use super::parts::{checkpointing, properties, resources, runtime_constants, threaded_port, trace_level};
use super::ports::ports;
use super::tables::{annotation, connections};
use super::v4200::{definition_children, empty_primitive, name_import, plain_ports};
use super::values::token;
use super::xml::{Reader, Vocabulary, XmlElement};
use crate::error::{Error, Place};
use crate::logical::{
    Checkpointing, Export, Import, ImportedStreams, InputPort, NameImport, OperatorDefinition, OperatorKind,
    OutputPort, Port, Resources, Runtime, Text, ThreadedPortSettings, TraceLevel,
};
use std::sync::Arc;

/// `operDefinition`. Its runtime is ignored; its toolkit is that of an instance.
pub(crate) fn definition<'a>(reader: &mut Reader<'a>, element: &XmlElement<'a>) -> Result<OperatorDefinition, Error> {
    let mut definition = OperatorDefinition {
        index: reader.required_index(element, "index"),
        kind: reader.required_token(element, "kind"),
        runtime: Runtime::CPlusPlus,
        toolkit: None,
        custom_metrics: Vec::new(),
        capabilities: Vec::new(),
    };
    definition_children(reader, element.vocabulary, &mut definition)?;
    Ok(definition)
}

/// The logical part of a leaf: its `kind` decides what it is.
pub(crate) fn leaf<'a>(reader: &mut Reader<'a>, element: &XmlElement<'a>) -> Result<Option<Leaf>, Error> {
    if element.name != "primitiveOperInstance" {
        return Ok(None);
    }
    let vocabulary = element.vocabulary;
    let kind = reader.required_token(element, "kind");
    let mut toolkit = None;
    let mut annotations = Vec::new();
    let mut kind = match kind.as_str() {
        "spl.adapter::Import" => {
            let streams = ImportedStreams::ByName(Vec::new());
            OperatorKind::Import(Box::new(Import { streams, filter: None, outputs: Vec::new() }))
        }
        "spl.adapter::Export" => OperatorKind::Export(Box::new(Export {
            stream_name: None,
            allow_filter: true,
            drop_connection: false,
            properties: None,
            inputs: Vec::new(),
        })),
        _ => {
            toolkit = Some(reader.required_index(element, "toolkitIndex"));
            OperatorKind::Primitive(Box::new(empty_primitive()))
        }
    };
    reader.children_of(vocabulary, |reader, child| {
        match (child.name, &mut kind) {
            ("inputPorts", OperatorKind::Primitive(primitive)) => {
                primitive.inputs = logical_ports(reader, vocabulary)?
                    .into_iter()
                    .map(|port| InputPort { port, control: false, threaded: None })
                    .collect();
            }
            ("outputPorts", OperatorKind::Primitive(primitive)) => {
                primitive.outputs = logical_ports(reader, vocabulary)?
                    .into_iter()
                    .map(|port| OutputPort { port, stream_name: String::new(), viewable: true })
                    .collect();
            }
            ("outputPorts", OperatorKind::Import(import)) => import.outputs = plain_ports(reader, vocabulary)?,
            ("inputPorts", OperatorKind::Export(export)) => export.inputs = plain_ports(reader, vocabulary)?,
            ("splAnnotation", _) => annotations.push(annotation(reader, &child)?),
            _ => {}
        }
        Ok(())
    })?;
    Ok(Some(Leaf { kind, annotations, toolkit }))
}

fn logical_ports(reader: &mut Reader<'_>, vocabulary: Vocabulary) -> Result<Vec<Port>, Error> {
    ports(
        reader,
        vocabulary,
        "port",
        |reader, element| Port {
            index: reader.required_index(element, "index"),
            name: String::new(),
            tuple_type: 0,
            encoding: "LE".to_owned(),
            transport: "TCP".to_owned(),
            mutable: false,
            connections: Vec::new(),
        },
        |reader, child, port| {
            if child.name == "connections" {
                port.connections = connections(reader, vocabulary)?;
            }
            Ok(())
        },
    )
}

/// A `pe` of the physical part.
pub(crate) struct Pe {
    index: u64,
    optimized: bool,
    restartable: bool,
    relocatable: bool,
    wrapper: Arc<str>,
    uri: Arc<str>,
    trace_level: TraceLevel,
    operators: Vec<PeOperator>,
    inputs: Vec<PePort>,
    outputs: Vec<PePort>,
}

struct PeOperator {
    place: Place,
    index: u64,
    class: String,
    definition: u64,
    single_threaded_on_outputs: bool,
    restartable: Option<bool>,
    relocatable: Option<bool>,
    resources: Resources,
    checkpointing: Option<Checkpointing>,
    runtime_constants: Vec<(String, Text)>,
    inputs: Vec<PhysicalPort>,
    outputs: Vec<PhysicalPort>,
}

struct PhysicalPort {
    name: String,
    mutable: bool,
    tuple_type: u64,
    control: bool,
    threaded: Option<ThreadedPortSettings>,
    stream_name: String,
    viewable: bool,
}

struct PePort {
    encoding: String,
    transport: String,
    /// Operator and port behind it.
    operator: Option<(u64, u64)>,
    imports: Vec<Imported>,
    filter: Option<Arc<str>>,
    export: Option<Exported>,
}

struct Imported {
    place: Place,
    operator: String,
    index: u64,
    source: ImportSource,
}

enum ImportSource {
    Name(NameImport),
    Properties { subscription: String, application_scope: Option<String> },
}

struct Exported {
    place: Place,
    operator: String,
    export: Export,
}

/// `pe`.
pub(crate) fn pe<'a>(reader: &mut Reader<'a>, element: &XmlElement<'a>) -> Result<Pe, Error> {
    let vocabulary = element.vocabulary;
    let mut pe = Pe {
        index: reader.required_index(element, "index"),
        optimized: element.boolean("optimized"),
        restartable: element.boolean("restartable"),
        relocatable: element.boolean("relocatable"),
        wrapper: Arc::default(),
        uri: Arc::default(),
        trace_level: TraceLevel::Error,
        operators: Vec::new(),
        inputs: Vec::new(),
        outputs: Vec::new(),
    };
    let mut executable = false;
    reader.children_of(vocabulary, |reader, child| {
        match child.name {
            "executable" => {
                executable = true;
                reader.children_of(vocabulary, |reader, child| {
                    match child.name {
                        "wrapper" => pe.wrapper = token(&reader.text()?).into(),
                        "executableUri" => pe.uri = reader.text()?.into(),
                        _ => {}
                    }
                    Ok(())
                })?;
            }
            "operInstances" => {
                pe.operators.clear();
                reader.children_of(vocabulary, |reader, child| {
                    if child.name == "operInstance" {
                        pe.operators.push(pe_operator(reader, &child)?);
                    }
                    Ok(())
                })?;
            }
            "tracing" => pe.trace_level = trace_level(reader, &child),
            "inputPorts" => pe.inputs = pe_ports(reader, vocabulary, "inputPort")?,
            "outputPorts" => pe.outputs = pe_ports(reader, vocabulary, "outputPort")?,
            _ => {}
        }
        Ok(())
    })?;
    if !executable {
        reader.lacks(element.place, element.name, "executable");
    }
    Ok(pe)
}

fn pe_operator<'a>(reader: &mut Reader<'a>, element: &XmlElement<'a>) -> Result<PeOperator, Error> {
    let vocabulary = element.vocabulary;
    let mut operator = PeOperator {
        place: element.place,
        index: reader.required_index(element, "index"),
        class: reader.required_token(element, "class"),
        definition: reader.required_index(element, "definitionIndex"),
        single_threaded_on_outputs: element.boolean("singleThreadedOnOutputs"),
        restartable: element.attribute("restartable").map(|_| element.boolean("restartable")),
        relocatable: element.attribute("relocatable").map(|_| element.boolean("relocatable")),
        resources: Resources::default(),
        checkpointing: None,
        runtime_constants: Vec::new(),
        inputs: Vec::new(),
        outputs: Vec::new(),
    };
    let mut missing = vec!["resources", "runtimeConstants"];
    reader.children_of(vocabulary, |reader, child| {
        missing.retain(|name| *name != child.name);
        match child.name {
            "resources" => operator.resources = resources(reader, &child)?,
            "checkpointing" => operator.checkpointing = checkpointing(reader, &child),
            "runtimeConstants" => operator.runtime_constants = runtime_constants(reader, &child)?,
            "inputPorts" => operator.inputs = physical_ports(reader, vocabulary, "inputPort")?,
            "outputPorts" => operator.outputs = physical_ports(reader, vocabulary, "outputPort")?,
            _ => {}
        }
        Ok(())
    })?;
    for child in missing {
        reader.lacks(element.place, element.name, child);
    }
    Ok(operator)
}

fn physical_ports(reader: &mut Reader<'_>, vocabulary: Vocabulary, name: &str) -> Result<Vec<PhysicalPort>, Error> {
    ports(
        reader,
        vocabulary,
        name,
        |reader, element| PhysicalPort {
            name: reader.required_token(element, "name"),
            mutable: element.boolean("isMutable"),
            tuple_type: reader.required_index(element, "tupleTypeIndex"),
            control: element.boolean("isControl"),
            threaded: None,
            stream_name: match name {
                "outputPort" => reader.required_token(element, "streamName"),
                _ => String::new(),
            },
            viewable: element.boolean_or("viewable", true),
        },
        |reader, child, port| {
            if child.name == "threadedPort" {
                port.threaded = Some(threaded_port(reader, child));
            }
            Ok(())
        },
    )
}

fn pe_ports(reader: &mut Reader<'_>, vocabulary: Vocabulary, name: &str) -> Result<Vec<PePort>, Error> {
    let port_index = if name == "inputPort" { "iportIndex" } else { "oportIndex" };
    ports(
        reader,
        vocabulary,
        name,
        |reader, element| PePort {
            encoding: reader.word(element, "encoding", &["NBO", "LE", "BE"]),
            transport: reader.word(element, "transport", &["TCP"]),
            operator: None,
            imports: Vec::new(),
            filter: None,
            export: None,
        },
        |reader, child, port| {
            match child.name {
                "importedStreams" => {
                    port.filter = child.optional_text("filter").map(Arc::from);
                    port.imports = imported_streams(reader, vocabulary)?;
                }
                "exportedStream" => port.export = Some(exported_stream(reader, child)?),
                "operInstanceConnection" => {
                    let operator = reader.required_index(child, "operInstanceIndex");
                    port.operator = Some((operator, reader.required_index(child, port_index)));
                }
                _ => {}
            }
            Ok(())
        },
    )
}

fn imported_streams(reader: &mut Reader<'_>, vocabulary: Vocabulary) -> Result<Vec<Imported>, Error> {
    let mut imports = Vec::new();
    reader.children_of(vocabulary, |reader, child| {
        let source = match child.name {
            "nameBasedImport" => ImportSource::Name(name_import(reader, &child)),
            "propertyBasedImport" => ImportSource::Properties {
                subscription: reader.required_text(&child, "subscription"),
                application_scope: child.optional_text("applicationScope"),
            },
            _ => return Ok(()),
        };
        imports.push(Imported {
            place: child.place,
            operator: reader.required_token(&child, "importOperName"),
            index: reader.required_index(&child, "index"),
            source,
        });
        Ok(())
    })?;
    Ok(imports)
}

fn exported_stream<'a>(reader: &mut Reader<'a>, element: &XmlElement<'a>) -> Result<Exported, Error> {
    let vocabulary = element.vocabulary;
    let mut export = Export {
        stream_name: element.optional_text("name"),
        allow_filter: element.boolean_or("allowFilter", true),
        drop_connection: false,
        properties: None,
        inputs: Vec::new(),
    };
    let operator = reader.required_token(element, "exportOperName");
    reader.children_of(vocabulary, |reader, child| {
        if child.name == "properties" {
            export.properties = Some(properties(reader, &child)?);
        }
        Ok(())
    })?;
    Ok(Exported { place: element.place, operator, export })
}
