//! Whether two PEs have the same document, said without writing them.
//!
//! A resize leaves most documents as they are. Comparing what a document is made from costs a fraction of writing and
//! hashing it. The answer may be a wrong "no", which costs time, but never a wrong "yes": this module compares
//! everything that [`super::document`] and [`super::operator`] read (rule aadl-20).

use super::elements::Elements;
use super::is_event_time;
use super::vocabulary::EVENT_TIME;
use crate::fuser::Pe;
use crate::logical::Application;
use crate::topology::{Connection, Node, Topology};
use cranelift_entity::PrimaryMap;
use std::sync::Arc;

/// Two generations of a job, and what every operator of the second was in the first.
#[derive(Clone, Copy, Debug)]
pub struct Generations<'g> {
    /// The first.
    pub before: &'g Topology,
    /// The second.
    pub now: &'g Topology,
    /// By operator of the second, if it was there.
    pub earlier: &'g PrimaryMap<Node, Option<Node>>,
}

impl Generations<'_> {
    /// What an operator was, if it is the very same.
    pub(super) fn same(&self, node: Node) -> Option<Node> {
        let earlier = self.earlier.get(node).copied().flatten()?;
        self.now.operators[node].is(&self.before.operators[earlier]).then_some(earlier)
    }
}

/// Whether what all documents of a job have in common is the same: what [`super::fragments`] reads besides operators.
pub fn same_job(a: &Elements, b: &Elements) -> bool {
    let (a, b) = (a.topology(), b.topology());
    Arc::ptr_eq(&a.application, &b.application)
        && a.data_directory == b.data_directory
        && a.display == b.display
        && a.host_pools == b.host_pools
}

/// Whether documents may name operators that are anywhere in the job: by event time (rule aadl-13).
pub fn refers_to_distant_operators(application: &Application) -> bool {
    application.operators.values().any(|operator| operator.annotations.iter().any(|a| a.tag == EVENT_TIME))
}

/// Whether two PEs of the same id have the same document, given that [`same_job`] holds.
pub fn same_document(a: &Elements, pe_a: Pe, b: &Elements, pe_b: Pe) -> bool {
    let (members_a, members_b) = (a.members(pe_a), b.members(pe_b));
    a.id(pe_a) == b.id(pe_b)
        && members_a.len() == members_b.len()
        && members_a.iter().zip(members_b).all(|(&node_a, &node_b)| same_operator(a, node_a, b, node_b))
}

fn same_operator(a: &Elements, node_a: Node, b: &Elements, node_b: Node) -> bool {
    let (one, other) = (&a.topology().operators[node_a], &b.topology().operators[node_b]);
    // All of it, written or not: so a field that is new counts before anybody has thought of it.
    one == other
        && a.flags(node_a) == b.flags(node_b)
        // These name operators that may be anywhere.
        && !one.annotations.iter().any(is_event_time)
        && same_inputs(a, node_a, b, node_b)
        && same_outputs(a, node_a, b, node_b)
}

fn same_inputs(a: &Elements, node_a: Node, b: &Elements, node_b: Node) -> bool {
    let ports = a.topology().operators[node_a].inputs.len() as u32;
    (0..ports).all(|port| {
        let (into_a, into_b) = (a.incoming(node_a, port), b.incoming(node_b, port));
        a.input_id(node_a, port) == b.input_id(node_b, port)
            && a.threaded_port(node_a, port) == b.threaded_port(node_b, port)
            && into_a.len() == into_b.len()
            && into_a.zip(into_b).all(|(x, y)| {
                let own = |e: &Elements, node| e.id(e.pe(node));
                let inter = own(a, x.source) != own(a, node_a);
                x.source_port == y.source_port
                    && x.via() == y.via()
                    && same_end(a, x.source, b, y.source)
                    && (!inter || a.output_id(x) == b.output_id(y))
            })
    })
}

fn same_outputs(a: &Elements, node_a: Node, b: &Elements, node_b: Node) -> bool {
    let ports = a.topology().operators[node_a].outputs.len() as u32;
    if !(0..ports).all(|port| a.direct_id(node_a, port) == b.direct_id(node_b, port)) {
        return false;
    }
    let (out_a, out_b) = (a.leaving(node_a), b.leaving(node_b));
    let same = |(x, y): (&Connection, &Connection)| {
        (x.source_port, x.target_port) == (y.source_port, y.target_port)
            && x.via() == y.via()
            && same_end(a, x.target, b, y.target)
            && a.input_id(x.target, x.target_port) == b.input_id(y.target, y.target_port)
            && a.output_id(x) == b.output_id(y)
    };
    out_a.len() == out_b.len() && out_a.iter().zip(out_b).all(same)
}

/// The same operator in the same PE, by number.
fn same_end(a: &Elements, node_a: Node, b: &Elements, node_b: Node) -> bool {
    let index = |e: &Elements, node| e.topology().operators[node].index;
    index(a, node_a) == index(b, node_b) && a.id(a.pe(node_a)) == b.id(b.pe(node_b))
}
