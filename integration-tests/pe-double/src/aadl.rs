//! What a double reads of the document of a PE: operators, how they are connected, and ports.
//!
//! Knows: the vocabulary of the document as its readers rely on it. Must not know: how it is written.

use anyhow::{Context as _, Result, bail};
use roxmltree::{Document, Node};
use serde::{Deserialize, Serialize};
use std::str::FromStr;

/// Namespace of most elements.
const APPLICATION: &str = "http://www.ibm.com/xmlns/prod/streams/application";
/// Namespace of what a PE has of its own.
const AUGMENTED: &str = "http://www.ibm.com/xmlns/prod/streams/application/augmented";
/// Namespace of annotations.
const PHYSICAL: &str = "http://www.ibm.com/xmlns/prod/streams/application/physical";

/// Namespace of the attributes of a tuple.
const TUPLE: &str = "http://www.ibm.com/xmlns/prod/streams/spl/tupleType";
/// Types of attributes that are whole numbers.
const INTEGERS: [&str; 8] = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"];

/// A splitter and one of its channels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Lane {
    /// Number of the splitter in its port.
    pub(crate) splitter: u32,
    /// Number of the channel.
    pub(crate) channel: u32,
}

/// An output of an operator: the whole port, or one channel of a splitter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Origin {
    /// Index of the operator.
    pub(crate) operator: u32,
    /// Its output port.
    pub(crate) port: u32,
    /// The channel, behind a splitter.
    pub(crate) lane: Option<Lane>,
}

/// An input port of an operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Destination {
    /// Index of the operator.
    pub(crate) operator: u32,
    /// Its input port.
    pub(crate) port: u32,
}

/// A PE.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pe {
    /// Its id.
    pub(crate) id: u64,
    /// The id of its job.
    pub(crate) job_id: u64,
    /// The name of its job.
    pub(crate) job: String,
    /// Its operators.
    pub(crate) operators: Vec<Operator>,
    /// Its input ports.
    pub(crate) inputs: Vec<InputPort>,
    /// Its output ports.
    pub(crate) outputs: Vec<OutputPort>,
}

/// An operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Operator {
    /// Its index, unique in the job.
    pub(crate) index: u32,
    /// Its name.
    pub(crate) name: String,
    /// Its name without channels.
    pub(crate) logical_name: String,
    /// What is connected to each of its input ports.
    pub(crate) inputs: Vec<Vec<Origin>>,
    /// Its output ports.
    pub(crate) outputs: Vec<Branch>,
    /// The consistent region that it is in.
    pub(crate) region: Option<RegionEntry>,
}

/// Where tuples go from an output port or from a channel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Branch {
    /// Operators of the same PE that get all of them.
    pub(crate) local: Vec<Destination>,
    /// Splitters that each get all of them.
    pub(crate) splitters: Vec<Splitter>,
}

/// Gives each tuple to one of its channels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Splitter {
    /// Its number in the port.
    pub(crate) index: u32,
    /// By key rather than one after the other.
    pub(crate) by_key: bool,
    /// Its channels, in order.
    pub(crate) channels: Vec<Branch>,
}

/// Membership of a consistent region.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RegionEntry {
    /// The index of the region.
    pub(crate) index: u32,
    /// The region starts with this operator.
    pub(crate) start: bool,
    /// The operator may begin to drain the region.
    pub(crate) trigger: bool,
    /// Input ports that the region does not reach.
    pub(crate) autonomous: Vec<u32>,
}

/// An input port of a PE.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct InputPort {
    /// Its id.
    pub(crate) id: u32,
    /// What is behind it.
    pub(crate) destination: Destination,
    /// PEs of the job that send to it, with their output ports.
    pub(crate) peers: Vec<(u64, u32)>,
    /// It imports streams.
    pub(crate) imports: bool,
}

/// An output port of a PE.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OutputPort {
    /// Its id.
    pub(crate) id: u32,
    /// What is before it.
    pub(crate) origin: Origin,
    /// The input ports of operators behind its connections. The PEs that have them are looked up when it connects.
    pub(crate) peers: Vec<Destination>,
    /// It exports a stream.
    pub(crate) exports: bool,
    /// The names of those attributes of its tuples that are whole numbers.
    pub(crate) integers: Vec<String>,
}

/// Reads a document.
///
/// # Errors
/// When it is no XML or lacks what a PE relies on.
pub(crate) fn parse(text: &str) -> Result<Pe> {
    let document = Document::parse(text).context("the document of the PE is no XML")?;
    let root = document.root_element();
    if !root.has_tag_name((AUGMENTED, "augmentedPE")) {
        bail!("the document of the PE begins with {}", root.tag_name().name());
    }
    let all = |list: &str, namespace: &'static str, name: &'static str| {
        let lists = root.children().filter(|node| node.has_tag_name((AUGMENTED, list))).collect::<Vec<_>>();
        lists.into_iter().flat_map(move |list| children(list, namespace, name)).collect::<Vec<_>>()
    };
    Ok(Pe {
        id: number(root, "id")?,
        job_id: number(root, "jobId")?,
        job: attribute(root, "jobName")?.to_owned(),
        operators: all("operInstances", APPLICATION, "operInstance")
            .into_iter()
            .map(operator)
            .collect::<Result<_>>()?,
        inputs: all("inputPorts", AUGMENTED, "inputPort").into_iter().map(input_port).collect::<Result<_>>()?,
        outputs: all("outputPorts", AUGMENTED, "outputPort").into_iter().map(output_port).collect::<Result<_>>()?,
    })
}

fn operator(node: Node<'_, '_>) -> Result<Operator> {
    let ports = |list: &str, name: &'static str| {
        let list = node.children().find(|node| node.has_tag_name((APPLICATION, list)));
        list.into_iter().flat_map(move |list| children(list, APPLICATION, name))
    };
    let region = children(node, PHYSICAL, "annotation")
        .find(|annotation| annotation.attribute("tag") == Some("consistentRegionEntry"));
    Ok(Operator {
        index: number(node, "index")?,
        name: attribute(node, "name")?.to_owned(),
        logical_name: attribute(node, "logicalName")?.to_owned(),
        inputs: ports("inputPorts", "inputPort").map(origins).collect::<Result<_>>()?,
        outputs: ports("outputPorts", "outputPort").map(branch).collect::<Result<_>>()?,
        region: region.map(region_entry).transpose()?,
    })
}

/// What is connected to an input port of an operator.
fn origins(node: Node<'_, '_>) -> Result<Vec<Origin>> {
    let connections = ["interPeConnection", "intraPeConnection"].map(|name| children(node, APPLICATION, name));
    connections.into_iter().flatten().map(origin).collect()
}

/// The operator port that an element names, with the channel if there is one.
fn origin(node: Node<'_, '_>) -> Result<Origin> {
    let lane = match (node.attribute("splitterIndex"), node.attribute("channelIndex")) {
        (Some(_), Some(_)) => {
            Some(Lane { splitter: number(node, "splitterIndex")?, channel: number(node, "channelIndex")? })
        }
        _ => None,
    };
    Ok(Origin { operator: number(node, "operInstanceIndex")?, port: number(node, "oportIndex")?, lane })
}

fn branch(node: Node<'_, '_>) -> Result<Branch> {
    Ok(Branch {
        local: children(node, APPLICATION, "intraPeConnection").map(destination).collect::<Result<_>>()?,
        splitters: children(node, APPLICATION, "splitter").map(splitter).collect::<Result<_>>()?,
    })
}

fn splitter(node: Node<'_, '_>) -> Result<Splitter> {
    let mut channels: Vec<(u32, Branch)> = Vec::new();
    for channel in children(node, APPLICATION, "parallelChannel") {
        channels.push((number(channel, "index")?, branch(channel)?));
    }
    channels.sort_by_key(|(index, _)| *index);
    if channels.iter().zip(0..).any(|((index, _), position)| *index != position) || channels.is_empty() {
        bail!("the channels of a splitter are not numbered from 0");
    }
    Ok(Splitter {
        index: number(node, "index")?,
        by_key: attribute(node, "kind")? == "Hash",
        channels: channels.into_iter().map(|(_, branch)| branch).collect(),
    })
}

fn destination(node: Node<'_, '_>) -> Result<Destination> {
    Ok(Destination { operator: number(node, "operInstanceIndex")?, port: number(node, "iportIndex")? })
}

fn region_entry(annotation: Node<'_, '_>) -> Result<RegionEntry> {
    let attributes = || annotation.descendants().filter(|node| node.has_tag_name((APPLICATION, "attr")));
    let value = |key: &str| {
        attributes().find(|node| node.attribute("key") == Some(key)).and_then(|node| node.attribute("value"))
    };
    let index = value("index").context("an annotation consistentRegionEntry has no index")?;
    let autonomous = attributes().filter(|node| node.attribute("key") == Some("autonomousInputPort"));
    let autonomous = autonomous.flat_map(|node| node.descendants()).filter_map(|node| node.attribute("value"));
    Ok(RegionEntry {
        index: index.parse().with_context(|| format!("a consistent region has the index {index:?}"))?,
        start: value("isStartOfRegion") == Some("true"),
        trigger: value("isTriggerOperator") == Some("true"),
        autonomous: autonomous.filter_map(|port| port.parse().ok()).collect(),
    })
}

fn input_port(node: Node<'_, '_>) -> Result<InputPort> {
    let behind = child(node, "operInstanceConnection")?;
    let peers = children(child(node, "staticConnections")?, AUGMENTED, "staticConnection");
    let imports = node.children().find(|node| node.has_tag_name((AUGMENTED, "importedStreams")));
    Ok(InputPort {
        id: number(node, "id")?,
        destination: destination(behind)?,
        peers: peers.map(|peer| Ok((number(peer, "peId")?, number(peer, "oportId")?))).collect::<Result<_>>()?,
        imports: imports.is_some_and(|imports| imports.has_children()),
    })
}

fn output_port(node: Node<'_, '_>) -> Result<OutputPort> {
    let peers = children(child(node, "staticConnections")?, AUGMENTED, "staticConnection");
    let destination = |peer| {
        Ok(Destination { operator: number(peer, "iOperInstanceIndex")?, port: number(peer, "iOperInstancePortIndex")? })
    };
    let attributes = node.descendants().filter(|node| node.has_tag_name((TUPLE, "attr")));
    let integers = attributes.filter(|node| node.attribute("type").is_some_and(|of| INTEGERS.contains(&of)));
    Ok(OutputPort {
        id: number(node, "id")?,
        origin: origin(child(node, "operInstanceConnection")?)?,
        peers: peers.map(destination).collect::<Result<_>>()?,
        exports: node.children().any(|node| node.has_tag_name((AUGMENTED, "exportedStream"))),
        integers: integers.filter_map(|node| node.attribute("name")).map(str::to_owned).collect(),
    })
}

fn children<'a, 'i: 'a>(
    node: Node<'a, 'i>,
    namespace: &'static str,
    name: &'static str,
) -> impl Iterator<Item = Node<'a, 'i>> {
    node.children().filter(move |child| child.has_tag_name((namespace, name)))
}

fn child<'a, 'i>(node: Node<'a, 'i>, name: &str) -> Result<Node<'a, 'i>> {
    let child = node.children().find(|child| child.has_tag_name((AUGMENTED, name)));
    child.with_context(|| format!("{} has no {name}", node.tag_name().name()))
}

fn attribute<'a>(node: Node<'a, '_>, name: &str) -> Result<&'a str> {
    node.attribute(name).with_context(|| format!("{} has no attribute {name}", node.tag_name().name()))
}

fn number<N: FromStr>(node: Node<'_, '_>, name: &str) -> Result<N> {
    let text = attribute(node, name)?;
    text.parse().ok().with_context(|| format!("{name} of {} is {text:?}", node.tag_name().name()))
}
