//! What fusion needs to know of an application: operators with their traits, and connections.

use super::operators::{FusionOperator, Operators, Traits, TraitsId};
use super::symbols::{Symbol, Symbols};
use crate::error::{Problem, Stage};
use crate::topology::{Connection, Node};
use cranelift_entity::{EntityRef, PrimaryMap};
use std::borrow::Cow;

/// A host pool.
#[derive(Clone, Debug)]
pub struct FusionHostPool {
    /// Index by which operators refer to it.
    pub index: u64,
    /// All operators of a PE are in it, or none.
    pub exclusive: bool,
    /// Explicit hosts, in order.
    pub hosts: Vec<Symbol>,
}

/// The application as fusion sees it.
///
/// Invariants, established by [`Graph::new`]: operators ascend by index, pools by index; connections are sorted and end
/// at operators and ports that exist; there are fewer than 2^32 of them.
#[derive(Clone, Debug)]
pub struct Graph<'a> {
    operators: Operators<'a>,
    pools: Vec<FusionHostPool>,
    symbols: Symbols,
    connections: Cow<'a, [Connection]>,
    /// Connections of operator `n` are `outgoing[n]..outgoing[n + 1]`.
    outgoing: Vec<u32>,
    /// Positions of the connections into operator `n` are at `incoming_start[n]..incoming_start[n + 1]`.
    incoming_start: Vec<u32>,
    incoming: Vec<u32>,
}

impl<'a> Graph<'a> {
    /// Checks the parts and indexes the connections. Takes time linear in their number.
    ///
    /// # Errors
    ///
    /// Stage `compose`: an invariant of [`Graph`] does not hold.
    pub fn new(
        operators: Operators<'a>,
        pools: Vec<FusionHostPool>,
        symbols: Symbols,
        connections: Cow<'a, [Connection]>,
    ) -> Result<Self, Problem> {
        let invalid = |message: String| Problem::new(Stage::Compose, message);
        let list = operators.list();
        if u32::try_from(list.len()).is_err() || u32::try_from(connections.len()).is_err() {
            return Err(invalid("too many operators or connections".to_owned()));
        }
        if let Some(pair) = list.as_values_slice().windows(2).find(|pair| pair[0].index >= pair[1].index) {
            return Err(invalid(format!("operator index {}: twice, or out of order", pair[1].index)));
        }
        if let Some(pair) = pools.windows(2).find(|pair| pair[0].index >= pair[1].index) {
            return Err(invalid(format!("host pool {}: twice, or out of order", pair[1].index)));
        }
        let mut outgoing = vec![0_u32; list.len() + 1];
        let mut incoming_start = vec![0_u32; list.len() + 1];
        for (position, connection) in connections.iter().enumerate() {
            let Some(source) = list.get(connection.source) else {
                return Err(invalid(format!("connection {position}: its source does not exist")));
            };
            let Some(target) = list.get(connection.target) else {
                return Err(invalid(format!(
                    "connection {position}, from operator {}: its target does not exist",
                    source.index
                )));
            };
            if connection.source_port as usize >= operators.traits(connection.source).outputs.len() {
                let (operator, port) = (source.index, connection.source_port);
                return Err(invalid(format!("connection {position}: operator {operator} has no output port {port}")));
            }
            if connection.target_port as usize >= operators.traits(connection.target).inputs.len() {
                let (operator, port) = (target.index, connection.target_port);
                return Err(invalid(format!("connection {position}: operator {operator} has no input port {port}")));
            }
            if position > 0 && connections[position - 1] > *connection {
                return Err(invalid(format!("connection {position}: out of order")));
            }
            outgoing[connection.source.index() + 1] += 1;
            incoming_start[connection.target.index() + 1] += 1;
        }
        for starts in [&mut outgoing, &mut incoming_start] {
            let mut sum = 0;
            for start in starts.iter_mut() {
                sum += *start;
                *start = sum;
            }
        }
        let mut incoming = vec![0_u32; connections.len()];
        let mut next = incoming_start.clone();
        for (position, connection) in (0_u32..).zip(connections.iter()) {
            let slot = &mut next[connection.target.index()];
            incoming[*slot as usize] = position;
            *slot += 1;
        }
        Ok(Self { operators, pools, symbols, connections, outgoing, incoming_start, incoming })
    }

    /// Operators, ascending index.
    pub fn operators(&self) -> &PrimaryMap<Node, FusionOperator<'a>> {
        self.operators.list()
    }

    /// The traits of an operator.
    pub fn traits(&self, operator: Node) -> &Traits {
        self.operators.traits(operator)
    }

    /// The number of the traits of an operator.
    pub(super) fn traits_id(&self, operator: Node) -> TraitsId {
        self.operators.traits_id(operator)
    }

    /// All traits. Equal traits may be in the map several times.
    pub(super) fn all_traits(&self) -> &PrimaryMap<TraitsId, Traits> {
        self.operators.all_traits()
    }

    /// Operators with traits that are `wanted`, ascending. Traits are asked once, not once per operator.
    pub(super) fn having(&self, wanted: impl Fn(&Traits) -> bool) -> impl Iterator<Item = (Node, &Traits)> {
        self.operators.having(wanted)
    }

    /// The host pool of this index.
    pub fn pool(&self, index: u64) -> Option<&FusionHostPool> {
        let position = self.pools.binary_search_by_key(&index, |pool| pool.index).ok()?;
        self.pools.get(position)
    }

    /// The text of a symbol.
    pub fn text(&self, symbol: Symbol) -> &str {
        self.symbols.text(symbol)
    }

    /// Connections that leave an operator, by output port.
    pub fn outgoing(&self, operator: Node) -> &[Connection] {
        let at = operator.index();
        &self.connections[self.outgoing[at] as usize..self.outgoing[at + 1] as usize]
    }

    /// Connections that enter an operator.
    pub fn incoming(&self, operator: Node) -> impl Iterator<Item = &Connection> {
        let at = operator.index();
        let range = self.incoming_start[at] as usize..self.incoming_start[at + 1] as usize;
        self.incoming[range].iter().map(|&position| &self.connections[position as usize])
    }

    /// Number of connections that enter or leave an operator.
    pub(crate) fn degree(&self, operator: Node) -> u32 {
        let at = operator.index();
        self.outgoing[at + 1] - self.outgoing[at] + self.incoming_start[at + 1] - self.incoming_start[at]
    }
}
