//! Applications for tests, in a form that is easy to write and to generate.

use crate::fuser::{
    FusionHostPool, FusionOperator, Graph, InputPortTraits, Label, Operators, OutputPortTraits, Symbol, Symbols,
    Threading, Traits,
};
use crate::logical::PoolLocation;
use crate::topology::{Channel, Connection, Node, Via};
use cranelift_entity::EntityRef;
use std::borrow::Cow;

#[derive(Clone, Debug, Default)]
pub(super) struct Sample {
    pub(super) operators: Vec<SampleOperator>,
    /// Source operator, target operator (positions), channel of splitter 0.
    pub(super) edges: Vec<(usize, usize, Option<u32>)>,
    /// Index, exclusive, hosts.
    pub(super) pools: Vec<(u64, bool, Vec<String>)>,
}

/// An operator with at most one port per direction, unless it says otherwise; by default it may be with anything.
#[derive(Clone, Debug)]
pub(super) struct SampleOperator {
    pub(super) index: u32,
    pub(super) name: String,
    pub(super) inputs: Vec<InputPortTraits>,
    pub(super) outputs: Vec<OutputPortTraits>,
    pub(super) co_locations: Vec<String>,
    pub(super) ex_locations: Vec<String>,
    pub(super) isolated: bool,
    pub(super) jvm: Option<String>,
    pub(super) region: Option<String>,
    pub(super) restartable: bool,
    pub(super) relocatable: bool,
    pub(super) single_threaded_on_outputs: bool,
    pub(super) threading: Threading,
    pub(super) host: Option<String>,
    pub(super) pool: Option<(u64, Option<u64>)>,
    pub(super) host_co_locations: Vec<String>,
    pub(super) host_ex_locations: Vec<String>,
    pub(super) host_isolated: bool,
    pub(super) channels: Vec<Channel>,
}

impl SampleOperator {
    pub(super) fn new(index: u32) -> Self {
        Self {
            index,
            name: format!("Op{index}"),
            inputs: Vec::new(),
            outputs: Vec::new(),
            co_locations: Vec::new(),
            ex_locations: Vec::new(),
            isolated: false,
            jvm: None,
            region: None,
            restartable: true,
            relocatable: true,
            single_threaded_on_outputs: true,
            threading: Threading::default(),
            host: None,
            pool: Some((0, None)),
            host_co_locations: Vec::new(),
            host_ex_locations: Vec::new(),
            host_isolated: false,
            channels: Vec::new(),
        }
    }
}

/// The channel of a region that is not nested.
pub(super) fn channel(region: u64, global: u32) -> Channel {
    Channel { region, local: global, local_max: 100, global, global_max: 100 }
}

impl Sample {
    /// Operators `0..count`, and these connections; ports where they are needed.
    pub(super) fn new(count: u32, edges: impl IntoIterator<Item = (usize, usize)>) -> Self {
        let mut sample = Self {
            operators: (0..count).map(SampleOperator::new).collect(),
            edges: edges.into_iter().map(|(source, target)| (source, target, None)).collect(),
            pools: vec![(0, false, Vec::new())],
        };
        for &(source, target, _) in &sample.edges {
            sample.operators[source].outputs = vec![OutputPortTraits::default()];
            sample.operators[target].inputs = vec![InputPortTraits::default()];
        }
        sample
    }

    /// 0 -> 1 -> 2 -> ...
    pub(super) fn chain(count: u32) -> Self {
        Self::new(count, (1..count as usize).map(|target| (target - 1, target)))
    }

    /// Changes some operators.
    pub(super) fn with(
        mut self,
        operators: impl IntoIterator<Item = usize>,
        change: impl Fn(&mut SampleOperator),
    ) -> Self {
        operators.into_iter().for_each(|position| change(&mut self.operators[position]));
        self
    }

    pub(super) fn with_pools(mut self, pools: &[(u64, bool, &[&str])]) -> Self {
        self.pools = (pools.iter())
            .map(|&(index, exclusive, hosts)| (index, exclusive, hosts.iter().map(|&host| host.to_owned()).collect()))
            .collect();
        self
    }

    /// The same application without some operators and their connections; ports stay.
    pub(super) fn without(&self, gone: impl Fn(&SampleOperator) -> bool) -> Self {
        let mut new_position = Vec::new();
        let mut operators = Vec::new();
        for operator in &self.operators {
            new_position.push((!gone(operator)).then_some(operators.len()));
            operators.extend((!gone(operator)).then(|| operator.clone()));
        }
        let edges = self.edges.iter().filter_map(|&(s, t, via)| Some((new_position[s]?, new_position[t]?, via)));
        Self { operators, edges: edges.collect(), pools: self.pools.clone() }
    }

    /// Each operator with traits of its own.
    pub(super) fn operators(&self, symbols: &mut Symbols) -> Operators<'_> {
        let mut operators = Operators::default();
        for operator in &self.operators {
            let mut ids = |ids: &[String]| ids.iter().map(|id| symbols.intern(id)).collect::<Box<[Symbol]>>();
            let (co_locations, ex_locations) = (ids(&operator.co_locations), ids(&operator.ex_locations));
            let (host_co, host_ex) = (ids(&operator.host_co_locations), ids(&operator.host_ex_locations));
            let mut label = |key: &str, value: &Option<String>| -> Box<[Label]> {
                let label = |value: &String| Label { key: symbols.intern(key), value: symbols.intern_set([&**value]) };
                value.iter().map(label).collect()
            };
            let traits = operators.add_traits(Traits {
                inputs: operator.inputs.iter().copied().collect(),
                outputs: operator.outputs.iter().copied().collect(),
                co_locations,
                ex_locations,
                isolated: operator.isolated,
                provisional: label("jvmArgs", &operator.jvm),
                soft_segregated: label("consistentRegionId", &operator.region),
                restartable: operator.restartable,
                relocatable: operator.relocatable,
                single_threaded_on_outputs: operator.single_threaded_on_outputs,
                threading: operator.threading,
                host: operator.host.as_ref().map(|host| symbols.intern(host)),
                pool: operator.pool.map(|(pool, in_pool)| PoolLocation { pool, in_pool }),
                host_co_locations: host_co,
                host_ex_locations: host_ex,
                host_isolated: operator.host_isolated,
                place: None,
            });
            let SampleOperator { index, name, channels, .. } = operator;
            operators.push(FusionOperator { index: *index, name, channels }, traits);
        }
        operators
    }

    pub(super) fn graph(&self) -> Graph<'_> {
        let mut symbols = Symbols::default();
        let operators = self.operators(&mut symbols);
        let pools = self.pools.iter().map(|(index, exclusive, hosts)| FusionHostPool {
            index: *index,
            exclusive: *exclusive,
            hosts: hosts.iter().map(|host| symbols.intern(host)).collect(),
        });
        let pools = pools.collect();
        let mut connections: Vec<Connection> = (self.edges.iter())
            .map(|&(source, target, channel)| {
                let via = channel.map(|channel| Via { splitter: 0, channel });
                Connection::new((Node::new(source), 0), (Node::new(target), 0), via)
            })
            .collect();
        connections.sort_unstable();
        connections.dedup();
        Graph::new(operators, pools, symbols, Cow::Owned(connections)).unwrap()
    }
}
