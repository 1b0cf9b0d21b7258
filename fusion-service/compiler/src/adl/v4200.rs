//! Primitives, imports and exports of the current dialect (rules language-9, language-10 and language-11), and
//! definitions of operators.

use super::composites::Leaf;
use super::parts::{
    checkpointing, environment, partitions, properties, resources, runtime_constants, threaded_port, trace_level,
};
use super::ports::ports;
use super::tables::{annotation, connections};
use super::values::{owned, token};
use super::xml::{Reader, Vocabulary, XmlElement};
use crate::error::Error;
use crate::logical::{
    ConnectionEnd, Export, Import, ImportedStreams, InputPort, NameImport, OperatorDefinition, OperatorKind,
    OutputPort, PartitionConstraints, Port, Primitive, Resources, Runtime, TraceLevel,
};
use std::sync::Arc;

/// `primitiveOperDefinition`.
pub(crate) fn definition<'a>(reader: &mut Reader<'a>, element: &XmlElement<'a>) -> Result<OperatorDefinition, Error> {
    let runtimes = [("SPL_CPlusPlus", Runtime::CPlusPlus), ("SPL_Java", Runtime::Java), ("Java", Runtime::Java)];
    let mut definition = OperatorDefinition {
        index: reader.required_index(element, "index"),
        kind: reader.required_token(element, "kind"),
        runtime: reader.choice(element, "runtimeType", &runtimes).unwrap_or(Runtime::CPlusPlus),
        toolkit: Some(reader.required_index(element, "toolkitIndex")),
        custom_metrics: Vec::new(),
        capabilities: Vec::new(),
    };
    definition_children(reader, element.vocabulary, &mut definition)?;
    Ok(definition)
}

/// What definitions of both dialects contain.
pub(crate) fn definition_children(
    reader: &mut Reader<'_>,
    vocabulary: Vocabulary,
    definition: &mut OperatorDefinition,
) -> Result<(), Error> {
    reader.children_of(vocabulary, |reader, child| {
        match child.name {
            "customMetricIndicies" => {
                definition.custom_metrics.clear();
                reader.children_of(vocabulary, |reader, child| {
                    if child.name == "customMetricIndex" {
                        definition.custom_metrics.push(reader.index_text(&child)?);
                    }
                    Ok(())
                })?;
            }
            "capability" => definition.capabilities.push(owned(reader.text()?)),
            _ => {}
        }
        Ok(())
    })
}

/// One of the three kinds of leaves.
pub(crate) fn leaf<'a>(reader: &mut Reader<'a>, element: &XmlElement<'a>) -> Result<Option<Leaf>, Error> {
    match element.name {
        "primitiveOperInstance" => primitive(reader, element).map(Some),
        "primitiveImportOperInstance" => import(reader, element).map(Some),
        "primitiveExportOperInstance" => export(reader, element).map(Some),
        _ => Ok(None),
    }
}

fn primitive<'a>(reader: &mut Reader<'a>, element: &XmlElement<'a>) -> Result<Leaf, Error> {
    let vocabulary = element.vocabulary;
    let mut primitive = Primitive {
        definition: reader.required_index(element, "definitionIndex"),
        optimized: element.boolean("optimized"),
        restartable: element.boolean("restartable"),
        relocatable: element.boolean("relocatable"),
        single_threaded_on_outputs: element.boolean("singleThreadedOnOutputs"),
        ..empty_primitive()
    };
    let mut annotations = Vec::new();
    let mut missing = vec!["resources", "runtimeConstants", "sharedObject"];
    reader.children_of(vocabulary, |reader, child| {
        missing.retain(|name| *name != child.name);
        match child.name {
            "inputPorts" => primitive.inputs = input_ports(reader, vocabulary)?,
            "outputPorts" => primitive.outputs = output_ports(reader, vocabulary)?,
            "envVars" => primitive.environment = environment(reader, &child)?,
            "resources" => primitive.resources = resources(reader, &child)?,
            "checkpointing" => primitive.checkpointing = checkpointing(reader, &child),
            "runtimeConstants" => primitive.runtime_constants = runtime_constants(reader, &child)?,
            "sharedObject" => shared_object(reader, &child, &mut primitive)?,
            "jvmArguments" => primitive.jvm_arguments = Some(jvm_arguments(reader, vocabulary)?),
            "partitions" => primitive.partition = partitions(reader, &child)?,
            "tracing" => primitive.trace_level = trace_level(reader, &child),
            "splAnnotation" => annotations.push(annotation(reader, &child)?),
            _ => {}
        }
        Ok(())
    })?;
    for child in missing {
        reader.lacks(element.place, element.name, child);
    }
    Ok(Leaf { kind: OperatorKind::Primitive(Box::new(primitive)), annotations, toolkit: None })
}

/// A primitive of which nothing is known. An absent `tracing` means `error` (rule language-9).
pub(crate) fn empty_primitive() -> Primitive {
    Primitive {
        definition: 0,
        class: String::new(),
        shared_object: Arc::default(),
        wrapper: Arc::default(),
        optimized: false,
        restartable: false,
        relocatable: false,
        single_threaded_on_outputs: false,
        trace_level: TraceLevel::Error,
        runtime_constants: Vec::new(),
        jvm_arguments: None,
        checkpointing: None,
        resources: Resources::default(),
        partition: PartitionConstraints::default(),
        consistent: None,
        environment: Vec::new(),
        inputs: Vec::new(),
        outputs: Vec::new(),
    }
}

fn shared_object<'a>(
    reader: &mut Reader<'a>,
    element: &XmlElement<'a>,
    primitive: &mut Primitive,
) -> Result<(), Error> {
    let vocabulary = element.vocabulary;
    primitive.class = reader.required_token(element, "class");
    let (mut wrapper, mut uri) = (None, None);
    reader.children_of(vocabulary, |reader, child| {
        match child.name {
            "wrapper" => wrapper = Some(token(&reader.text()?)),
            "uri" => uri = Some(owned(reader.text()?)),
            _ => {}
        }
        Ok(())
    })?;
    if wrapper.is_none() {
        reader.lacks(element.place, element.name, "wrapper");
    }
    if uri.is_none() {
        reader.lacks(element.place, element.name, "uri");
    }
    primitive.wrapper = wrapper.unwrap_or_default().into();
    primitive.shared_object = uri.unwrap_or_default().into();
    Ok(())
}

fn jvm_arguments(reader: &mut Reader<'_>, vocabulary: Vocabulary) -> Result<Vec<String>, Error> {
    reader.list(vocabulary, "jvmArgument", |reader, _| Ok(owned(reader.text()?)))
}

fn port<'a>(reader: &mut Reader<'a>, element: &XmlElement<'a>) -> Port {
    Port {
        index: reader.required_index(element, "index"),
        name: reader.required_token(element, "name"),
        tuple_type: reader.required_index(element, "tupleTypeIndex"),
        encoding: reader.word(element, "encoding", &["NBO", "LE", "BE"]),
        transport: reader.word(element, "transport", &["TCP"]),
        mutable: element.boolean("isMutable"),
        connections: Vec::new(),
    }
}

fn input_ports(reader: &mut Reader<'_>, vocabulary: Vocabulary) -> Result<Vec<InputPort>, Error> {
    ports(
        reader,
        vocabulary,
        "port",
        |reader, element| InputPort {
            port: port(reader, element),
            control: element.boolean("isControl"),
            threaded: None,
        },
        |reader, child, port| {
            match child.name {
                "connections" => port.port.connections = connections(reader, vocabulary)?,
                "threadedPort" => port.threaded = Some(threaded_port(reader, child)),
                _ => {}
            }
            Ok(())
        },
    )
}

fn output_ports(reader: &mut Reader<'_>, vocabulary: Vocabulary) -> Result<Vec<OutputPort>, Error> {
    ports(
        reader,
        vocabulary,
        "port",
        |reader, element| OutputPort {
            port: port(reader, element),
            stream_name: reader.required_name(element, "streamName"),
            viewable: element.boolean_or("viewable", true),
        },
        |reader, child, port| {
            if child.name == "connections" {
                port.port.connections = connections(reader, vocabulary)?;
            }
            Ok(())
        },
    )
}

/// The connections of each port of an import or export: nothing else of them matters (rule language-11).
pub(crate) fn plain_ports(reader: &mut Reader<'_>, vocabulary: Vocabulary) -> Result<Vec<Vec<ConnectionEnd>>, Error> {
    ports(
        reader,
        vocabulary,
        "port",
        |_, _| Vec::new(),
        |reader, child, port| {
            if child.name == "connections" {
                *port = connections(reader, vocabulary)?;
            }
            Ok(())
        },
    )
}

/// `nameBasedImport`.
pub(crate) fn name_import<'a>(reader: &mut Reader<'a>, element: &XmlElement<'a>) -> NameImport {
    NameImport {
        application_name: reader.required_token(element, "applicationName"),
        application_scope: element.optional_text("applicationScope"),
        stream_name: reader.required_token(element, "streamName"),
    }
}

fn import<'a>(reader: &mut Reader<'a>, element: &XmlElement<'a>) -> Result<Leaf, Error> {
    let vocabulary = element.vocabulary;
    let mut annotations = Vec::new();
    let (mut by_name, mut by_properties, mut outputs) = (None, None, Vec::new());
    reader.children_of(vocabulary, |reader, child| {
        match child.name {
            "outputPorts" => outputs = plain_ports(reader, vocabulary)?,
            "nameBasedImport" => by_name = Some(name_import(reader, &child)),
            "propertyBasedImport" => {
                by_properties = Some(ImportedStreams::ByProperties {
                    subscription: reader.required_text(&child, "subscription"),
                    application_scope: child.optional_text("applicationScope"),
                    // Only the older dialect numbers its imports.
                    index: 0,
                });
            }
            "splAnnotation" => annotations.push(annotation(reader, &child)?),
            _ => {}
        }
        Ok(())
    })?;
    let streams = match (by_properties, by_name) {
        (Some(by_properties), _) => by_properties,
        (None, Some(by_name)) => ImportedStreams::ByName(vec![by_name]),
        (None, None) => {
            reader.lacks(element.place, element.name, "nameBasedImport");
            ImportedStreams::ByName(Vec::new())
        }
    };
    let import = Import { streams, filter: element.optional_text("filter").map(Arc::from), outputs };
    Ok(Leaf { kind: OperatorKind::Import(Box::new(import)), annotations, toolkit: None })
}

fn export<'a>(reader: &mut Reader<'a>, element: &XmlElement<'a>) -> Result<Leaf, Error> {
    let vocabulary = element.vocabulary;
    let mut annotations = Vec::new();
    let mut export = Export {
        stream_name: element.optional_text("streamName"),
        allow_filter: element.boolean_or("allowFilter", true),
        // An unknown policy reads as `wait` (rule language-4).
        drop_connection: element.attribute("congestionPolicy").is_some_and(|policy| policy == "dropConnection"),
        properties: None,
        inputs: Vec::new(),
    };
    reader.children_of(vocabulary, |reader, child| {
        match child.name {
            "inputPorts" => export.inputs = plain_ports(reader, vocabulary)?,
            "properties" => export.properties = Some(properties(reader, &child)?),
            "splAnnotation" => annotations.push(annotation(reader, &child)?),
            _ => {}
        }
        Ok(())
    })?;
    Ok(Leaf { kind: OperatorKind::Export(Box::new(export)), annotations, toolkit: None })
}
