//! Since which generation a job exports and imports at its ports (rules job-12 and import-5).
//!
//! Exports and imports are created before the generation is committed that has added them, and match nothing until it
//! is. By the object alone that could not be told: a later generation may restart the PE and leave the port as it was.
//! So the generation remembers it, and the object says it, from its creation on. That stays as it is while the port is
//! there, because whoever looks at jobs and at exports may see the commit before or after the export. It is only
//! replaced where a generation has taken the port away and a later one has it again while the object is still there;
//! by then the PE has lost the port.
//!
//! Knows: plans. Must not know: objects, who matches what.
//!
//! Invariant: of a port that has been there since the first generation nothing is kept, nor in plans of before this was
//! noted.

use super::places::members;
use crate::controllers::job::child::Port;
use prost::Message;
use std::collections::{BTreeMap, BTreeSet};
use streams_proto::fusion::v1::Plan;

/// What goes on at a port. Input and output ports are numbered apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum PortUse {
    /// It is exported.
    Export,
    /// It imports.
    Import,
}

/// The generations that have added ports at which a job exports or imports.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct AddedPorts(BTreeMap<(PortUse, Port), u64>);

/// A port, as it is stored.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct AddedPort {
    /// Id of the PE.
    #[prost(uint64, tag = "1")]
    pe_id: u64,
    /// Id of the port.
    #[prost(uint32, tag = "2")]
    port_id: u32,
    /// It is an input port.
    #[prost(bool, tag = "3")]
    imports: bool,
    /// The generation that has added it.
    #[prost(uint64, tag = "4")]
    generation: u64,
}

impl AddedPorts {
    /// Those of the generation of this number and plan, which follows one with this plan.
    pub(super) fn following(&self, previous: &Plan, plan: &Plan, number: u64) -> Self {
        let known: BTreeSet<_> = used(previous).collect();
        let added = used(plan).filter_map(|port| {
            let before = if known.contains(&port) { self.0.get(&port).copied()? } else { number };
            Some((port, before))
        });
        Self(added.collect())
    }

    /// The generation that has added the port; nothing, if it is the first one, or if that was not noted.
    pub(crate) fn since(&self, of: PortUse, port: Port) -> Option<u64> {
        self.0.get(&(of, port)).copied()
    }

    /// The stored form.
    pub(super) fn stored(&self) -> Vec<AddedPort> {
        let stored = |(&(of, port), &generation): (&(PortUse, Port), &u64)| AddedPort {
            pe_id: port.pe,
            port_id: port.id,
            imports: of == PortUse::Import,
            generation,
        };
        self.0.iter().map(stored).collect()
    }

    /// What was stored.
    pub(super) fn of_stored(stored: Vec<AddedPort>) -> Self {
        let added = stored.into_iter().map(|AddedPort { pe_id, port_id, imports, generation }| {
            let of = if imports { PortUse::Import } else { PortUse::Export };
            ((of, Port { pe: pe_id, id: port_id }), generation)
        });
        Self(added.collect())
    }
}

/// The ports at which a plan exports or imports.
fn used(plan: &Plan) -> impl Iterator<Item = (PortUse, Port)> {
    members(plan).flat_map(|pe| {
        let exports = pe.exports.iter().map(|port| (PortUse::Export, port.port_id));
        let imports = pe.imports.iter().map(|port| (PortUse::Import, port.port_id));
        exports.chain(imports).map(|(of, id)| (of, Port { pe: pe.id, id }))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use streams_proto::fusion::v1::{Export, Fate, Import, ProcessingElement};

    fn plan(pes: &[(u64, Fate, &[u32], &[u32])]) -> Plan {
        let pe = |(id, fate, exports, imports): &(u64, Fate, &[u32], &[u32])| ProcessingElement {
            id: *id,
            fate: *fate as i32,
            exports: exports.iter().map(|port_id| Export { port_id: *port_id, ..Export::default() }).collect(),
            imports: imports.iter().map(|port_id| Import { port_id: *port_id, ..Import::default() }).collect(),
            ..ProcessingElement::default()
        };
        Plan { processing_elements: pes.iter().map(pe).collect(), ..Plan::default() }
    }

    #[test]
    fn a_port_is_of_the_generation_that_has_added_it_as_long_as_it_is_there() {
        use Fate::{Added, Kept, Removed, Restarted};
        let none: &[u32] = &[];
        let plans = [
            plan(&[(0, Added, &[0], none), (1, Added, none, &[0])]),
            // A channel is added, another PE gets a second port.
            plan(&[(0, Kept, &[0], none), (1, Restarted, &[0], &[0, 1]), (2, Added, &[0], none)]),
            // All are restarted; one port is gone.
            plan(&[(0, Restarted, &[0], none), (1, Restarted, &[0], &[1]), (2, Restarted, &[0], none)]),
            // What was gone is back.
            plan(&[(0, Kept, &[0], none), (1, Restarted, &[0], &[0, 1]), (2, Removed, &[0], none)]),
        ];
        let mut added = vec![AddedPorts::default()];
        for (number, pair) in (1..).zip(plans.windows(2)) {
            let next = added.last().unwrap().following(&pair[0], &pair[1], number);
            assert_eq!(AddedPorts::of_stored(next.stored()), next);
            added.push(next);
        }
        let (export, import) = (PortUse::Export, PortUse::Import);
        // what, PE, port -> the generation that has added it, by generation
        let table = [
            (export, 0, 0, [None, None, None, None]),
            (import, 1, 0, [None, None, None, Some(3)]),
            (import, 1, 1, [None, Some(1), Some(1), Some(1)]),
            (export, 1, 0, [None, Some(1), Some(1), Some(1)]),
            (export, 2, 0, [None, Some(1), Some(1), None]),
        ];
        for (of, pe, id, expected) in table {
            let found: Vec<_> = added.iter().map(|added| added.since(of, Port { pe, id })).collect();
            assert_eq!(found, expected, "{of:?} {pe}.{id}");
        }
    }
}
