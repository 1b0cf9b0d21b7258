//! The JSON form of a case (rule service-25).

use super::MalformedCase;
use cranelift_entity::EntityRef;
use serde::Deserialize;
use std::borrow::Cow;
use std::collections::BTreeMap;
use streams_compiler::budget::Limits;
use streams_compiler::error::{Problem, Stage, excerpt};
use streams_compiler::fuser::{
    Fusion, FusionHostPool, FusionOperator, FusionType, Graph, InputPortTraits, Label, Operators, OutputPortTraits,
    Symbol, Symbols, Threading, Traits,
};
use streams_compiler::logical::PoolLocation;
use streams_compiler::topology::{Connection, Node, Via};

/// A case: a graph, and how to fuse it. Other keys are ignored.
#[derive(Deserialize)]
pub(super) struct Case<'a> {
    mode: Mode,
    #[serde(borrow)]
    topology: TopologyForm<'a>,
}

/// `legacy` or `manual:N`.
#[derive(Deserialize)]
#[serde(try_from = "String")]
enum Mode {
    Legacy,
    Manual(i64),
}

impl TryFrom<String> for Mode {
    type Error = String;

    fn try_from(mode: String) -> Result<Self, String> {
        match (mode.as_str(), mode.strip_prefix("manual:").map(str::parse)) {
            ("legacy", _) => Ok(Self::Legacy),
            (_, Some(Ok(count))) => Ok(Self::Manual(count)),
            _ => Err(format!("mode {} is neither legacy nor manual:N", excerpt(&mode))),
        }
    }
}

/// A text of the line, not copied.
#[derive(Deserialize, PartialEq, Eq, PartialOrd, Ord)]
#[serde(transparent)]
struct CaseText<'a>(#[serde(borrow)] Cow<'a, str>);

type CaseTexts<'a> = Box<[CaseText<'a>]>;

#[derive(Deserialize)]
struct TopologyForm<'a> {
    #[serde(borrow)]
    nodes: Vec<NodeForm<'a>>,
    pools: Vec<PoolForm<'a>>,
}

#[derive(Deserialize)]
struct NodeForm<'a> {
    idx: u32,
    #[serde(borrow)]
    name: CaseText<'a>,
    r#in: Box<[InputForm]>,
    out: Box<[OutputForm]>,
    coloc: CaseTexts<'a>,
    exloc: CaseTexts<'a>,
    iso: bool,
    prov: BTreeMap<CaseText<'a>, CaseTexts<'a>>,
    softseg: BTreeMap<CaseText<'a>, CaseTexts<'a>>,
    host: Option<CaseText<'a>>,
    pool: Option<(u64, Option<u64>)>,
    hcol: CaseTexts<'a>,
    hex: CaseTexts<'a>,
    hiso: bool,
    rst: bool,
    rloc: bool,
    #[serde(rename = "stOut")]
    st_out: bool,
    thr: CaseTexts<'a>,
}

#[derive(Deserialize)]
struct InputForm {
    i: u32,
    tp: bool,
    imp: bool,
    c: Box<[LinkForm]>,
}

#[derive(Deserialize)]
struct OutputForm {
    i: u32,
    exp: bool,
    c: Box<[LinkForm]>,
}

/// Source operator and port, destination operator and port, splitter, channel.
type LinkForm = (u32, u32, u32, u32, Option<u32>, Option<u32>);

#[derive(Deserialize)]
struct PoolForm<'a> {
    idx: u64,
    excl: bool,
    #[serde(borrow)]
    hosts: CaseTexts<'a>,
}

fn malformed(message: impl Into<String>) -> MalformedCase {
    MalformedCase { column: None, message: message.into() }
}

impl<'a> Case<'a> {
    pub(super) fn parse(line: &'a [u8]) -> Result<Self, MalformedCase> {
        const MOST: usize = 200;
        serde_json::from_slice(line).map_err(|error| {
            let text = error.to_string();
            let text = text.rsplit_once(" at line ").map_or(text.as_str(), |(text, _)| text);
            let message = text.chars().take(MOST).map(|c| if c.is_control() { ' ' } else { c }).collect();
            MalformedCase { column: Some(error.column()), message }
        })
    }

    /// More operators or connections than are fused.
    pub(super) fn over_limit(&self, limits: &Limits) -> Option<Problem> {
        let nodes = &self.topology.nodes;
        let connections: usize = nodes.iter().flat_map(|node| &node.out).map(|port| port.c.len()).sum();
        let refuse = |count: usize, what: &str, limit: u64| {
            (count as u64 > limit)
                .then(|| Problem::new(Stage::Topology, format!("{count} {what}; the limit is {limit}")))
        };
        refuse(nodes.len(), "operators", limits.operators)
            .or_else(|| refuse(connections, "connections", limits.connections))
    }

    /// How to fuse it.
    pub(super) fn fusion(&self) -> Result<Fusion, Problem> {
        match self.mode {
            Mode::Legacy => Ok(Fusion::Legacy),
            Mode::Manual(count) => Fusion::manual(count.into(), FusionType::NoChannelInfluence),
        }
    }

    /// The graph.
    pub(super) fn graph(&self) -> Result<Graph<'_>, MalformedCase> {
        let mut symbols = Symbols::default();
        let mut nodes: Vec<&NodeForm> = self.topology.nodes.iter().collect();
        nodes.sort_by_key(|node| node.idx);
        let mut operators = Operators::with_capacity(nodes.len());
        for node in &nodes {
            let traits = operators.add_traits(traits(node, &mut symbols)?);
            operators.push(FusionOperator { index: node.idx, name: &node.name.0, channels: &[] }, traits);
        }
        let mut pools: Vec<FusionHostPool> = (self.topology.pools.iter())
            .map(|pool| FusionHostPool {
                index: pool.idx,
                exclusive: pool.excl,
                hosts: pool.hosts.iter().map(|host| symbols.intern(&host.0)).collect(),
            })
            .collect();
        pools.sort_by_key(|pool| pool.index);
        let connections = connections(&nodes)?;
        Graph::new(operators, pools, symbols, Cow::Owned(connections)).map_err(|problem| malformed(problem.message))
    }
}

fn traits(node: &NodeForm, symbols: &mut Symbols) -> Result<Traits, MalformedCase> {
    let in_order = |ports: &mut dyn Iterator<Item = u32>| ports.zip(0..).all(|(index, position)| index == position);
    if !in_order(&mut node.r#in.iter().map(|port| port.i)) || !in_order(&mut node.out.iter().map(|port| port.i)) {
        return Err(malformed(format!("operator {}: ports do not count from 0", node.idx)));
    }
    let mut threading = Threading::default();
    node.thr.iter().for_each(|model| threading.add(&model.0));
    let mut set = |texts: &[CaseText]| -> Box<[Symbol]> { texts.iter().map(|text| symbols.intern(&text.0)).collect() };
    let (co_locations, ex_locations) = (set(&node.coloc), set(&node.exloc));
    let (host_co_locations, host_ex_locations) = (set(&node.hcol), set(&node.hex));
    let mut labels = |sets: &BTreeMap<CaseText, CaseTexts>| -> Box<[Label]> {
        let label = |(key, values): (&CaseText, &CaseTexts)| Label {
            key: symbols.intern(&key.0),
            value: symbols.intern_set(values.iter().map(|value| &*value.0)),
        };
        sets.iter().map(label).collect()
    };
    let (provisional, soft_segregated) = (labels(&node.prov), labels(&node.softseg));
    Ok(Traits {
        inputs: node.r#in.iter().map(|port| InputPortTraits { threaded: port.tp, imported: port.imp }).collect(),
        outputs: node.out.iter().map(|port| OutputPortTraits { exported: port.exp }).collect(),
        co_locations,
        ex_locations,
        isolated: node.iso,
        provisional,
        soft_segregated,
        restartable: node.rst,
        relocatable: node.rloc,
        single_threaded_on_outputs: node.st_out,
        threading,
        host: node.host.as_ref().map(|host| symbols.intern(&host.0)),
        pool: node.pool.map(|(pool, in_pool)| PoolLocation { pool, in_pool }),
        host_co_locations,
        host_ex_locations,
        host_isolated: node.hiso,
        place: None,
    })
}

/// The connections that are listed at either end, once each.
fn connections(nodes: &[&NodeForm]) -> Result<Vec<Connection>, MalformedCase> {
    let position = |index: u32, at: u32| {
        let position = nodes.binary_search_by_key(&index, |node| node.idx).map(Node::new);
        position
            .map_err(|_| malformed(format!("operator {at}: connection with operator {index}, which does not exist")))
    };
    let mut connections = Vec::new();
    for node in nodes {
        let entering = node.r#in.iter().flat_map(|port| port.c.iter().map(|c| (c, (c.2, c.3) == (node.idx, port.i))));
        let leaving = node.out.iter().flat_map(|port| port.c.iter().map(|c| (c, (c.0, c.1) == (node.idx, port.i))));
        for (&(source, source_port, target, target_port, splitter, channel), ends_here) in entering.chain(leaving) {
            if !ends_here {
                return Err(malformed(format!("operator {}: connection of another port in its list", node.idx)));
            }
            let via = match (splitter, channel) {
                (None, None) => None,
                (Some(splitter), Some(channel)) if splitter != u32::MAX => Some(Via { splitter, channel }),
                _ => return Err(malformed(format!("operator {}: connection with half a splitter", node.idx))),
            };
            let (source, target) = (position(source, node.idx)?, position(target, node.idx)?);
            connections.push(Connection::new((source, source_port), (target, target_port), via));
        }
    }
    connections.sort_unstable();
    connections.dedup();
    Ok(connections)
}
