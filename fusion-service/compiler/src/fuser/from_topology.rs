//! Makes the graph that fusion reads from a topology.
//!
//! The channels of one logical operator differ in little that fusion reads. The expansion resolved the rest once, and
//! the channels share it. So comparing a few references shows whether two channels have the same traits, and most
//! traits are made once. Where they are not, because every channel is in another consistent region, for example, texts
//! that channels share are still looked at once: they may be long.
//!
//! Knows: the topology, the application. Must not know: modes of fusion.

use super::graph::{FusionHostPool, Graph};
use super::operators::{
    FusionOperator, InputPortTraits, Label, Operators, OutputPortTraits, Threading, Traits, TraitsId,
};
use super::symbols::{Symbol, Symbols};
use crate::budget::{Budget, Pace};
use crate::error::Error;
use crate::logical::{Application, OperatorId};
use crate::topology::{self, AnnotationValue, ResolvedAnnotation, Topology};
use cranelift_entity::packed_option::PackedOption;
use cranelift_entity::{PrimaryMap, SecondaryMap};
use std::borrow::Cow;
use std::sync::Arc;

impl<'a> Graph<'a> {
    /// Makes the graph. Connections are borrowed, not copied.
    ///
    /// # Errors
    ///
    /// Stage `compose`: the topology breaks its own invariants. Or the budget ends.
    pub fn from_topology(topology: &'a Topology, budget: &Budget) -> Result<Self, Error> {
        let mut reader = TraitsReader::new(&topology.application);
        let mut operators = Operators::with_capacity(topology.operators.len());
        // The traits made last for each logical operator, and the channel that they were made for.
        let mut latest: SecondaryMap<OperatorId, PackedOption<TraitsId>> = SecondaryMap::new();
        let mut made_for: PrimaryMap<TraitsId, &topology::PhysicalOperator> = PrimaryMap::new();
        let mut pace = budget.pace();
        for physical in topology.operators.values() {
            pace.step()?;
            let physical: &topology::PhysicalOperator = physical;
            let latest = &mut latest[physical.logical];
            let known = latest.expand().filter(|&id| have_same_traits(made_for[id], physical));
            let traits = match known {
                Some(known) => known,
                None => {
                    let before = latest.expand().map(|id| (made_for[id], &operators.all_traits()[id]));
                    let traits = reader.traits(physical, before, &mut pace)?;
                    made_for.push(physical);
                    operators.add_traits(traits)
                }
            };
            *latest = traits.into();
            let operator = FusionOperator { index: physical.index, name: &physical.name, channels: &physical.channels };
            operators.push(operator, traits);
        }
        let mut symbols = reader.symbols;
        let pools = topology.host_pools.iter().map(|pool| {
            let hosts = intern_all(&pool.hosts, &mut symbols, &mut pace)?;
            Ok(FusionHostPool { index: pool.index, exclusive: pool.exclusive, hosts })
        });
        let pools = pools.collect::<Result<_, Error>>()?;
        Ok(Self::new(operators, pools, symbols, Cow::Borrowed(&topology.connections))?)
    }
}

/// The symbols of texts, which may be long.
fn intern_all<S: FromIterator<Symbol>>(
    texts: &[String],
    symbols: &mut Symbols,
    pace: &mut Pace<'_>,
) -> Result<S, Error> {
    const BYTES_A_STEP: usize = 256;
    let symbol = |text: &String| {
        pace.steps(u32::try_from(1 + text.len() / BYTES_A_STEP).unwrap_or(u32::MAX))?;
        Ok(symbols.intern(text))
    };
    texts.iter().map(symbol).collect()
}

/// Whether two channels of one logical operator certainly have the same traits. If not, they may still be equal.
fn have_same_traits(one: &topology::PhysicalOperator, other: &topology::PhysicalOperator) -> bool {
    let imported = |(one, other): (&topology::PhysicalInputPort, &topology::PhysicalInputPort)| {
        is_imported(one) == is_imported(other)
    };
    let exported = |(one, other): (&topology::PhysicalOutputPort, &topology::PhysicalOutputPort)| {
        one.export.is_some() == other.export.is_some()
    };
    one.logical == other.logical
        && Arc::ptr_eq(&one.partition, &other.partition)
        && Arc::ptr_eq(&one.resources, &other.resources)
        && one.consistent_region == other.consistent_region
        && one.threading_model == other.threading_model
        && (Arc::ptr_eq(&one.annotations, &other.annotations)
            || own_models(&one.annotations).eq(own_models(&other.annotations)))
        && one.inputs.len() == other.inputs.len()
        && one.inputs.iter().zip(&other.inputs).all(imported)
        && one.outputs.len() == other.outputs.len()
        && one.outputs.iter().zip(&other.outputs).all(exported)
}

/// Makes traits. [`have_same_traits`] compares everything that it reads of an operator.
struct TraitsReader<'a> {
    application: &'a Application,
    symbols: Symbols,
    jvm_arguments: Symbol,
    consistent_region: Symbol,
    /// All channels of an operator have the same arguments.
    jvm_arguments_of: SecondaryMap<OperatorId, PackedOption<Symbol>>,
}

impl<'a> TraitsReader<'a> {
    fn new(application: &'a Application) -> Self {
        let mut symbols = Symbols::default();
        let jvm_arguments = symbols.intern("jvmArgs");
        let consistent_region = symbols.intern("consistentRegionId");
        Self { application, symbols, jvm_arguments, consistent_region, jvm_arguments_of: SecondaryMap::new() }
    }

    /// The traits of an operator. Those of a channel `before` have the symbols of the texts that both share.
    fn traits(
        &mut self,
        physical: &topology::PhysicalOperator,
        before: Option<(&topology::PhysicalOperator, &Traits)>,
        pace: &mut Pace<'_>,
    ) -> Result<Traits, Error> {
        let symbols = &mut self.symbols;
        let written = physical.primitive(self.application);
        let input = |port: usize| written.and_then(|written| written.inputs.get(port));
        let arguments = written.and_then(|written| written.jvm_arguments.as_ref()).map(|arguments| {
            let known = &mut self.jvm_arguments_of[physical.logical];
            let value = known.expand().unwrap_or_else(|| {
                let none = arguments.is_empty().then_some("");
                symbols.intern_set(arguments.iter().map(String::as_str).chain(none))
            });
            *known = value.into();
            Label { key: self.jvm_arguments, value }
        });
        let region = physical.consistent_region.map(|index| Label {
            key: self.consistent_region,
            value: symbols.intern_set([format!("region{index}").as_str()]),
        });
        let mut threading = Threading::default();
        physical.threading_model.iter().for_each(|model| threading.add(model));
        own_models(&physical.annotations).for_each(|model| threading.add(model));
        let (partition, resources) = (&physical.partition, &physical.resources);
        let mut ids = |texts: &[String]| intern_all::<Box<[Symbol]>>(texts, symbols, pace);
        let same_partition = before.filter(|(other, _)| Arc::ptr_eq(&other.partition, partition));
        let [co_locations, ex_locations] = match same_partition {
            Some((_, same)) => [same.co_locations.clone(), same.ex_locations.clone()],
            None => [ids(&partition.co_locations)?, ids(&partition.ex_locations)?],
        };
        let same_resources = before.filter(|(other, _)| Arc::ptr_eq(&other.resources, resources));
        let (host, host_co_locations, host_ex_locations) = match same_resources {
            Some((_, same)) => (same.host, same.host_co_locations.clone(), same.host_ex_locations.clone()),
            None => {
                let host = ids(resources.host.as_slice())?.first().copied();
                (host, ids(&resources.co_locations)?, ids(&resources.ex_locations)?)
            }
        };
        Ok(Traits {
            inputs: (physical.inputs.iter().enumerate())
                .map(|(position, port)| InputPortTraits {
                    threaded: input(position).is_some_and(|input| input.threaded.is_some()),
                    imported: is_imported(port),
                })
                .collect(),
            outputs: physical.outputs.iter().map(|port| OutputPortTraits { exported: port.export.is_some() }).collect(),
            co_locations,
            ex_locations,
            isolated: partition.isolation,
            provisional: arguments.into_iter().collect(),
            soft_segregated: region.into_iter().collect(),
            restartable: written.is_none_or(|written| written.restartable),
            relocatable: written.is_none_or(|written| written.relocatable),
            single_threaded_on_outputs: written.is_none_or(|written| written.single_threaded_on_outputs),
            threading,
            host_co_locations,
            host_ex_locations,
            host,
            pool: resources.pool,
            host_isolated: resources.isolation,
            place: self.application.operators.get(physical.logical).map(|written| written.place),
        })
    }
}

fn is_imported(port: &topology::PhysicalInputPort) -> bool {
    port.imports.as_ref().is_some_and(|imports| imports.by_properties.is_some() || !imports.by_name.is_empty())
}

/// Models in the operator's own annotations, which only the older dialect leaves there. They count besides the resolved
/// one, which is among them (rule element-9).
fn own_models(annotations: &[ResolvedAnnotation]) -> impl Iterator<Item = &str> {
    let values = annotations.iter().filter(|annotation| annotation.tag == "threading").flat_map(|a| &a.values);
    values.filter_map(|(key, value)| match value {
        AnnotationValue::Text(model) if key == "model" => Some(model.as_str()),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::logical::submission::bind;
    use crate::logical::{PartitionConstraints, PoolLocation, Resources};
    use crate::topology::{EvaluatedImports, EvaluatedNameImport, Node, Parameters, expand};
    use std::collections::BTreeMap;

    /// An application, and two channels of one operator in it that differ in their names only.
    fn telemetry() -> (Topology, [Node; 2]) {
        let document = include_bytes!("../../../tests/applications/telemetry.adl");
        let application = Arc::new(crate::adl::parse(document, &Budget::default()).unwrap());
        let bindings = bind(&application, &BTreeMap::new()).unwrap();
        let parameters = Parameters { bindings, ..Parameters::default() };
        let mut topology = expand(&application, &parameters, &Budget::default()).unwrap();
        let operators = &topology.operators;
        let plain = |one: &topology::PhysicalOperator| {
            let input = one.inputs.first().is_some_and(|input| input.imports.is_none());
            input && one.outputs.first().is_some_and(|output| output.export.is_none())
        };
        let channels = operators.iter().filter(|(_, one)| plain(one)).filter_map(|(first, one)| {
            let mut others = operators.iter().filter(|(node, other)| *node > first && other.logical == one.logical);
            others.next().map(|(second, _)| [first, second])
        });
        let [first, second] = channels.min().unwrap();
        let (one, other) = (topology.operators[first].clone(), topology.operators[second].to_mut());
        (other.resources, other.partition) = (one.resources.clone(), one.partition.clone());
        other.consistent_region = one.consistent_region;
        (topology, [first, second])
    }

    fn model(tag: &str, key: &str) -> Arc<[ResolvedAnnotation]> {
        let value = (key.to_owned(), AnnotationValue::Text("manual".to_owned()));
        [ResolvedAnnotation { tag: tag.to_owned(), values: vec![value] }].into()
    }

    fn imports(by_name: Vec<EvaluatedNameImport>) -> Option<Box<EvaluatedImports>> {
        Some(Box::new(EvaluatedImports { by_name, ..EvaluatedImports::default() }))
    }

    /// Changes one channel; says whether the channels still share their traits, having checked that every operator has
    /// its own.
    fn share_traits(change: impl Fn(&mut topology::PhysicalOperator)) -> bool {
        let (mut topology, [first, second]) = telemetry();
        change(topology.operators[second].to_mut());
        let budget = Budget::default();
        let graph = Graph::from_topology(&topology, &budget).unwrap();
        let mut reader = TraitsReader::new(&topology.application);
        for (node, physical) in &topology.operators {
            let traits = reader.traits(physical, None, &mut budget.pace()).unwrap();
            assert_eq!(*graph.traits(node), traits, "{}", physical.name);
        }
        graph.traits_id(first) == graph.traits_id(second)
    }

    #[test]
    fn channels_share_traits_unless_fusion_sees_a_difference() {
        type Change = fn(&mut topology::PhysicalOperator);
        let seen: [(&str, Change); 9] = [
            ("partition", |o| {
                o.partition = Arc::new(PartitionConstraints { isolation: true, ..PartitionConstraints::default() })
            }),
            ("host isolation", |o| o.resources = Arc::new(Resources { isolation: true, ..Resources::default() })),
            ("pool", |o| {
                let pool = Some(PoolLocation { pool: 0, in_pool: Some(1) });
                o.resources = Arc::new(Resources { pool, ..Resources::default() });
            }),
            ("consistent region", |o| o.consistent_region = Some(3)),
            ("threading model", |o| o.threading_model = Some("dedicated".into())),
            ("threading annotation", |o| o.annotations = model("threading", "model")),
            ("import", |o| {
                let text = String::new;
                o.inputs[0].imports = imports(vec![EvaluatedNameImport {
                    operator_name: text(),
                    application_name: text(),
                    application_scope: text(),
                    stream_name: text(),
                }]);
            }),
            ("export", |o| {
                o.outputs[0].export = Some(Box::new(topology::EvaluatedExport {
                    operator_name: String::new(),
                    name: None,
                    allow_filter: true,
                    drop_connection: false,
                    properties: None,
                }));
            }),
            ("port", |o| o.inputs.push(topology::PhysicalInputPort::default())),
        ];
        for (what, change) in seen {
            assert!(!share_traits(change), "{what}");
        }
        let unseen: [(&str, Change); 4] = [
            ("nothing", |_| ()),
            ("runtime constants", |o| o.runtime_constants = [("a".to_owned(), None)].into()),
            ("other annotation", |o| o.annotations = model("view", "model")),
            ("import of nothing", |o| o.inputs[0].imports = imports(Vec::new())),
        ];
        for (what, change) in unseen {
            assert!(share_traits(change), "{what}");
        }
    }

    #[test]
    fn long_texts_are_read_within_the_budget_and_once_if_channels_share_them() {
        // More than half of the steps between two looks at the budget.
        let long = || "x".repeat(1_200_000);
        type Give = fn(&mut topology::PhysicalOperator, String);
        let places: [(&str, Give); 2] = [
            ("PE", |o, id| {
                o.partition = Arc::new(PartitionConstraints { ex_locations: vec![id], ..Default::default() });
            }),
            ("host", |o, host| o.resources = Arc::new(Resources { host: Some(host), ..Default::default() })),
        ];
        for (what, give) in places {
            let (mut topology, [first, second]) = telemetry();
            give(topology.operators[first].to_mut(), long());
            let one = topology.operators[first].clone();
            let other = topology.operators[second].to_mut();
            (other.partition, other.resources) = (one.partition.clone(), one.resources.clone());
            other.consistent_region = Some(3);
            let cancelled = Budget::cancelled();
            let read = |topology: &Topology| Graph::from_topology(topology, &cancelled).map(|_| ());
            assert_eq!(read(&topology), Ok(()), "{what}");
            give(topology.operators[second].to_mut(), long());
            assert_eq!(read(&topology), Err(Error::Cancelled), "{what}");
        }
    }
}
