//! The graph of a topology.

use super::graph::{Graph, HostPool, InputPort, Label, Operator, OutputPort, Symbol, Symbols, Threading};
use crate::error::Problem;
use crate::logical::OperatorId;
use crate::topology::{Annotation, AnnotationValue, Node, Topology};
use cranelift_entity::packed_option::PackedOption;
use cranelift_entity::{PrimaryMap, SecondaryMap};
use std::borrow::Cow;

impl<'a> Graph<'a> {
    /// What fusion reads of a topology (fuser 1.2, 1.3). Connections are borrowed, not copied.
    ///
    /// Refuses, at stage `compose`, a topology that breaks its own invariants.
    pub fn from_topology(topology: &'a Topology) -> Result<Self, Problem> {
        let application = &topology.application;
        let mut symbols = Symbols::default();
        let jvm_arguments = symbols.intern("jvmArgs");
        let consistent_region = symbols.intern("consistentRegionId");
        // All channels of an operator have the same arguments.
        let mut jvm_arguments_of: SecondaryMap<OperatorId, PackedOption<Symbol>> = SecondaryMap::new();

        let mut operators: PrimaryMap<Node, Operator> = PrimaryMap::with_capacity(topology.operators.len());
        for physical in topology.operators.values() {
            let written = physical.primitive(application);
            let input = |port: usize| written.and_then(|written| written.inputs.get(port));
            let arguments = written.and_then(|written| written.jvm_arguments.as_ref()).map(|arguments| {
                let known = &mut jvm_arguments_of[physical.logical];
                let value = known.expand().unwrap_or_else(|| {
                    let none = arguments.is_empty().then_some("");
                    symbols.intern_set(arguments.iter().map(String::as_str).chain(none))
                });
                *known = value.into();
                Label { key: jvm_arguments, value }
            });
            let region = physical.consistent_region.map(|index| Label {
                key: consistent_region,
                value: symbols.intern_set([format!("region{index}").as_str()]),
            });
            let mut threading = Threading::default();
            physical.threading_model.iter().for_each(|model| threading.add(model));
            own_models(&physical.annotations).for_each(|model| threading.add(model));
            let mut ids = |texts: &[String]| -> Box<[Symbol]> {
                // Most operators have none.
                if texts.is_empty() { Box::default() } else { texts.iter().map(|text| symbols.intern(text)).collect() }
            };
            let (partition, resources) = (&physical.partition, &physical.resources);
            operators.push(Operator {
                index: physical.index,
                name: &physical.name,
                inputs: (physical.inputs.iter().enumerate())
                    .map(|(position, port)| InputPort {
                        threaded: input(position).is_some_and(|input| input.threaded.is_some()),
                        imported: (port.imports.as_ref())
                            .is_some_and(|imports| imports.by_properties.is_some() || !imports.by_name.is_empty()),
                    })
                    .collect(),
                outputs: physical.outputs.iter().map(|port| OutputPort { exported: port.export.is_some() }).collect(),
                co_locations: ids(&partition.co_locations),
                ex_locations: ids(&partition.ex_locations),
                isolated: partition.isolation,
                provisional: arguments.into_iter().collect(),
                soft_segregated: region.into_iter().collect(),
                restartable: written.is_none_or(|written| written.restartable),
                relocatable: written.is_none_or(|written| written.relocatable),
                single_threaded_on_outputs: written.is_none_or(|written| written.single_threaded_on_outputs),
                threading,
                host_co_locations: ids(&resources.co_locations),
                host_ex_locations: ids(&resources.ex_locations),
                host: resources.host.as_ref().map(|host| symbols.intern(host)),
                pool: resources.pool,
                host_isolated: resources.isolation,
                channels: &physical.channels,
                place: application.operators.get(physical.logical).map(|written| written.place),
            });
        }
        let pools = topology.host_pools.iter().map(|pool| HostPool {
            index: pool.index,
            exclusive: pool.exclusive,
            hosts: pool.hosts.iter().map(|host| symbols.intern(host)).collect(),
        });
        let pools = pools.collect();
        Self::new(operators, pools, symbols, Cow::Borrowed(&topology.connections))
    }
}

/// Models in the operator's own annotations, which only the older dialect leaves there (adl 8). They count besides the resolved one,
/// which is among them (fuser 7.1).
fn own_models(annotations: &[Annotation]) -> impl Iterator<Item = &str> {
    let values = annotations.iter().filter(|annotation| annotation.tag == "threading").flat_map(|a| &a.values);
    values.filter_map(|(key, value)| match value {
        AnnotationValue::Text(model) if key == "model" => Some(model.as_str()),
        _ => None,
    })
}
