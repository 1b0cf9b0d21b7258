//! From a topology and its PEs to a compiled job.

use super::element::{PodNeeds, pod_needs, processing_elements};
use super::ports::{self, InUse, KnownPorts};
use super::request::{Bound, CheckedFusion, Request, ResolvedFusion, Source, warnings};
use super::settled::{Earlier, Settled};
use super::{COMPILER, Compiled, ConsistentRegion, Plan, PlannedRegion, change, consistent, placement};
use crate::aadl::{Elements, Measure, Writer};
use crate::budget::Budget;
use crate::error::{Error, Problems};
use crate::fuser::{self, Automatic, Graph, Partition, Pe, PeId};
use crate::topology::Topology;
use cranelift_entity::{EntityRef, PrimaryMap};
use std::collections::BTreeSet;
use std::sync::Arc;

/// A job whose PEs and ports have numbers.
pub(super) struct Assembled<'b> {
    pub(super) bound: Bound,
    pub(super) elements: Elements,
    pub(super) found: Option<u32>,
    pub(super) automatic: Option<Automatic>,
    settled: Settled<'b>,
}

/// Which operators share a PE, and what the PEs are called.
pub(super) struct Grouping {
    pub(super) partition: Partition,
    pub(super) ids: PrimaryMap<Pe, PeId>,
    /// Number of PEs that automatic fusion found, now or at the submission.
    pub(super) found: Option<u32>,
    /// How it found it, if now.
    pub(super) automatic: Option<Automatic>,
}

/// Fuses a new job.
pub(super) fn from_scratch(
    bound: Bound,
    topology: Topology,
    fusion: &CheckedFusion,
    budget: &Budget,
) -> Result<Assembled<'static>, Error> {
    let topology = Arc::new(topology);
    let graph = Graph::from_topology(&topology)?;
    let ResolvedFusion { fusion, found, automatic } = fusion.resolve(&graph)?;
    let partition = fuser::fuse(&graph, &fusion, budget)?;
    let ids = partition.pes().map(|pe| pe.index() as u64).collect();
    let grouping = Grouping { partition, ids, found, automatic };
    Assembled::new(bound, &graph, grouping.elements(&topology), None, &InUse::default(), budget)
}

impl Grouping {
    /// The PEs, with nothing known about them.
    pub(super) fn elements(self, topology: &Arc<Topology>) -> Grouped<'static> {
        let Self { partition, ids, found, automatic } = self;
        let elements = Elements::new(Arc::clone(topology), partition, ids);
        Grouped { elements, found, automatic, settled: Settled::default() }
    }

    /// The same with what is known from a job whose operators were `earlier`.
    pub(super) fn elements_after<'b>(
        self,
        topology: &Arc<Topology>,
        before: &'b Compiled,
        earlier: &Earlier,
    ) -> Grouped<'b> {
        let Self { partition, ids, found, automatic } = self;
        let elements = Elements::again(Arc::clone(topology), partition, ids, &before.elements, earlier);
        let settled = Settled::find(before, earlier, &elements);
        Grouped { elements, found, automatic, settled }
    }
}

/// PEs, and what is known about them from before.
pub(super) struct Grouped<'b> {
    elements: Elements,
    found: Option<u32>,
    automatic: Option<Automatic>,
    settled: Settled<'b>,
}

impl<'b> Assembled<'b> {
    /// Numbers the ports and finds out about threads.
    pub(super) fn new(
        bound: Bound,
        graph: &Graph<'_>,
        grouped: Grouped<'b>,
        prior: Option<KnownPorts<'_>>,
        in_use: &InUse,
        budget: &Budget,
    ) -> Result<Self, Error> {
        let Grouped { mut elements, found, automatic, settled } = grouped;
        let open = unsettled(&elements, &settled);
        open.iter().for_each(|&pe| elements.forget(pe));
        ports::assign(&mut elements, &open, graph, prior.as_ref(), in_use, budget)?;
        let mut pace = budget.pace();
        for pe in open {
            pace.steps(u32::try_from(elements.members(pe).len()).unwrap_or(u32::MAX))?;
            let threads = fuser::threads(graph, elements.partition(), pe);
            elements.set_threads(pe, &threads);
        }
        Ok(Self { bound, elements, found, automatic, settled })
    }

    /// Measures the documents and collects what the plan says. All stages from here on look at the same PEs, so the
    /// problems of all are told.
    pub(super) fn finish(
        self,
        source: &Source,
        request: &Arc<Request>,
        prior: Option<change::Prior<'_>>,
        budget: &Budget,
    ) -> Result<Compiled, Error> {
        let known = prior.as_ref().and_then(|prior| prior.known(&self.elements));
        let writer = match &known {
            Some(known) => known.writer(budget),
            None => Writer::new(&self.elements, &request.job_name, request.job_id, budget),
        };
        let measured = writer.and_then(|writer| {
            let known = |position, pe| match self.settled.get(position) {
                Some((before, earlier)) => before.plan.elements.get(earlier).map(|element| element.measure()),
                None => known.as_ref()?.measure(pe),
            };
            let measures = writer.measure_all(&self.elements, known, budget)?;
            Ok((writer, measures))
        });
        let mut problems = Problems::default();
        match problems.keep(measured)? {
            Some((writer, measures)) => self.with_measures(source, request, writer, &measures, prior, budget),
            None => {
                problems.keep(self.around())?;
                Err(Error::Rejected(problems.into_vec()))
            }
        }
    }

    /// What the plan says around the documents: consistent regions, and what pods get.
    fn around(&self) -> Result<(Vec<ConsistentRegion>, Vec<PodNeeds>), Error> {
        let mut problems = Problems::default();
        let regions = problems.keep(consistent::consistent_regions(&self.elements, &self.bound.bindings))?;
        let needs = problems.keep(pod_needs(&self.elements, &unsettled(&self.elements, &self.settled)))?;
        problems.into_result()?;
        Ok((regions.unwrap_or_default(), needs.unwrap_or_default()))
    }

    /// The same where ids and sizes of the documents are known.
    pub(super) fn with_measures(
        self,
        source: &Source,
        request: &Arc<Request>,
        writer: Writer,
        measures: &[Measure],
        prior: Option<change::Prior<'_>>,
        budget: &Budget,
    ) -> Result<Compiled, Error> {
        let (consistent_regions, needs) = self.around()?;
        let Self { bound, elements, found, automatic, settled } = self;
        let mut list = processing_elements(&elements, &settled, measures, needs, budget)?;
        let topology = Arc::clone(elements.topology());
        let change = prior.map(|prior| change::change(prior, &elements, &settled, &mut list));
        let plan = Plan {
            compiler: COMPILER.to_owned(),
            adl: source.digest,
            application_name: topology.application.name.clone(),
            application_scope: topology.application.scope.clone(),
            regions: regions(&elements),
            host_pools: topology.host_pools.clone(),
            consistent_regions,
            isolated: placement::isolated(&elements),
            elements: list,
            automatic,
            change,
            warnings: warnings(request, &bound.bindings, Some(&topology)),
        };
        Ok(Compiled {
            source: source.clone(),
            request: Arc::clone(request),
            bindings: bound.bindings,
            elements,
            writer,
            found,
            plan,
        })
    }
}

/// PEs about which something has to be found out, ascending id.
fn unsettled(elements: &Elements, settled: &Settled<'_>) -> Vec<Pe> {
    elements.pes().iter().enumerate().filter(|(at, _)| settled.get(*at).is_none()).map(|(_, &pe)| pe).collect()
}

fn regions(elements: &Elements) -> Vec<PlannedRegion> {
    let topology = elements.topology();
    let touching = regions_touching_consistent_ones(topology);
    let mut shared: BTreeSet<u64> = BTreeSet::new();
    // By region: a channel of it, and the operators in that channel.
    let mut channels: Vec<(u64, u32, usize)> = Vec::new();
    for &pe in elements.pes() {
        let members = elements.members(pe);
        // An operator by itself shares nothing.
        if members.len() == 1 {
            continue;
        }
        channels.clear();
        for channel in members.iter().flat_map(|&node| &topology.operators[node].channels) {
            // Neighbours are mostly in the same regions.
            match channels.iter_mut().rev().find(|(region, _, _)| *region == channel.region) {
                Some((_, global, count)) => *count += usize::from(*global == channel.global),
                None => channels.push((channel.region, channel.global, 1)),
            }
        }
        shared.extend(channels.iter().filter(|(_, _, count)| *count < members.len()).map(|(region, _, _)| *region));
    }
    let planned = topology.regions.iter().map(|region| PlannedRegion {
        region: region.clone(),
        channels_have_own_pes: !shared.contains(&region.index),
        touches_consistent_region: touching.contains(&region.index),
    });
    planned.collect()
}

/// Parallel regions with operators of a consistent region inside, or connected to one that is.
fn regions_touching_consistent_ones(topology: &Topology) -> BTreeSet<u64> {
    let mut touching: BTreeSet<u64> = BTreeSet::new();
    // Mostly there are none, and then there is no need to look at every connection.
    if topology.consistent_regions.is_empty() {
        return touching;
    }
    for connection in &topology.connections {
        let (source, target) = (&topology.operators[connection.source], &topology.operators[connection.target]);
        if source.consistent_region.is_some() || target.consistent_region.is_some() {
            touching.extend(source.channels.iter().chain(&target.channels).map(|channel| channel.region));
        }
    }
    for operator in topology.operators.values().filter(|operator| operator.consistent_region.is_some()) {
        touching.extend(operator.channels.iter().map(|channel| channel.region));
    }
    touching
}
