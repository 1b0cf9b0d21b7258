//! Makes a compiled job from a topology and its PEs.

use super::change::Prior;
use super::element::{PodNeeds, pod_needs, processing_elements};
use super::plan_texts::{PlanTexts, bytes_of};
use super::request::{BoundRequest, CheckedFusion, Request, ResolvedFusion, Source, warnings};
use super::{
    COMPILER, Compiled, Plan, PlannedConsistentRegion, PlannedElement, PlannedRegion, Warning, consistent, placement,
};
use crate::aadl::{Measure, Measuring, Writer};
use crate::budget::{Budget, Limits};
use crate::elements::{Elements, InUse, PriorPorts};
use crate::error::{Error, Problem, Problems};
use crate::fuser::{self, AutomaticFusion, Graph, Partition, Pe, PeId};
use crate::logical::{HostPool, OperatorId};
use crate::topology::{ChangedOperatorNames, Topology};
use cranelift_entity::{EntityRef, EntitySet, PrimaryMap};
use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

/// A job whose PEs and ports have numbers.
pub(super) struct Assembled<'b> {
    pub(super) bound: BoundRequest,
    pub(super) elements: Elements,
    pub(super) automatic_count: Option<u32>,
    pub(super) automatic: Option<AutomaticFusion>,
    pub(super) prior: Prior<'b>,
}

/// Which operators share a PE, and the ids of the PEs.
pub(super) struct Grouping {
    pub(super) partition: Partition,
    pub(super) ids: PrimaryMap<Pe, PeId>,
    /// The number of PEs that automatic fusion computed, now or at the submission.
    pub(super) automatic_count: Option<u32>,
    /// The figures of automatic fusion, if it computed the number now.
    pub(super) automatic: Option<AutomaticFusion>,
}

/// Consistent regions, and what the pods of changed PEs need.
type ConsistentRegionsAndNeeds = (Vec<PlannedConsistentRegion>, Vec<PodNeeds>);

/// The parts of a plan that do not depend on the documents of its PEs.
struct PartsBesideDocuments {
    consistent_regions: Vec<PlannedConsistentRegion>,
    /// PEs that do not know their documents yet.
    elements: Vec<PlannedElement>,
    /// The names of the operators that a resize changes; none if there was no generation before.
    operators: Option<ChangedOperatorNames>,
    regions: Vec<PlannedRegion>,
    isolated: Vec<(String, u64)>,
    warnings: Vec<Warning>,
}

/// These parts, or why there are none. Problems of consistent regions and of what pods need, which come first, are
/// reported together with those of documents; others only if the documents have none.
type Beside = Result<Result<PartsBesideDocuments, Error>, Error>;

/// Fuses a new job.
pub(super) fn from_scratch(
    bound: BoundRequest,
    topology: Topology,
    fusion: &CheckedFusion,
    budget: &Budget,
) -> Result<Assembled<'static>, Error> {
    let topology = Arc::new(topology);
    let graph = Graph::from_topology(&topology, budget)?;
    let ResolvedFusion { fusion, automatic_count, automatic } = fusion.resolve(&graph)?;
    let partition = fuser::fuse(&graph, &fusion, budget)?;
    let ids = partition.pes().map(|pe| pe.index() as u64).collect();
    let grouping = Grouping { partition, ids, automatic_count, automatic };
    grouping.assemble(bound, &topology, &graph, Prior::None, None, budget)
}

impl Grouping {
    /// Numbers the PEs of a job without a generation before it. Ports keep the ids that `ports` has for them.
    pub(super) fn assemble<'b>(
        self,
        bound: BoundRequest,
        topology: &Arc<Topology>,
        graph: &Graph<'_>,
        prior: Prior<'b>,
        ports: Option<&dyn PriorPorts>,
        budget: &Budget,
    ) -> Result<Assembled<'b>, Error> {
        let Self { partition, ids, automatic_count, automatic } = self;
        let mut elements = Elements::new(Arc::clone(topology), partition, ids, budget)?;
        elements.number(&prior.open(&elements), graph, ports, &InUse::default(), budget)?;
        Ok(Assembled { bound, elements, automatic_count, automatic, prior })
    }
}

impl Assembled<'_> {
    /// Measures the documents and makes the plan.
    ///
    /// # Errors
    ///
    /// All stages from here on read the same PEs, so the error holds the problems of all of these stages.
    pub(super) fn finish(self, source: &Source, request: &Arc<Request>, budget: &Budget) -> Result<Compiled, Error> {
        let before = self.prior.job().map(|predecessor| (&predecessor.job.writer, predecessor.generations));
        let writer = Writer::new(&self.elements, &request.job_name, request.job_id, before, budget);
        // Most of the plan does not depend on the documents: one helper makes it while others measure.
        let beside = OnceLock::new();
        let measured = writer.and_then(|writer| {
            let known = |position| Some(self.prior.job()?.unchanged(position)?.measure());
            let measures = match Measuring::new(&writer, &self.elements, known, budget) {
                None => writer.measure_all(&self.elements, known, budget)?,
                Some(measuring) => {
                    let begun = AtomicBool::new(false);
                    budget.share(&|may_go_on| {
                        if !begun.swap(true, Ordering::Relaxed) {
                            let _ = beside.set(self.beside_documents(request, budget));
                        }
                        measuring.work(may_go_on);
                    });
                    measuring.finish()?
                }
            };
            Ok((writer, measures))
        });
        let beside = beside.into_inner();
        let mut problems = Problems::default();
        match problems.keep(measured)? {
            Some((writer, measures)) => {
                let parts = beside.unwrap_or_else(|| self.beside_documents(request, budget))??;
                self.complete(source, request, writer, &measures, parts, budget)
            }
            None => {
                let needs = || self.consistent_regions_and_needs(budget).map(drop);
                problems.keep(beside.map_or_else(needs, |beside| beside.map(drop)))?;
                Err(Error::Rejected(problems.into_vec()))
            }
        }
    }

    /// The parts of the plan whose problems are reported together with those of documents.
    fn consistent_regions_and_needs(&self, budget: &Budget) -> Result<ConsistentRegionsAndNeeds, Error> {
        let mut problems = Problems::default();
        let regions = problems.keep(consistent::consistent_regions(&self.elements, &self.bound.bindings, budget))?;
        let needs = problems.keep(pod_needs(&self.elements, &self.prior.open(&self.elements), budget))?;
        problems.into_result()?;
        Ok((regions.unwrap_or_default(), needs.unwrap_or_default()))
    }

    /// Makes everything of the plan but what depends on the documents.
    fn beside_documents(&self, request: &Request, budget: &Budget) -> Beside {
        Ok(self.parts(request, self.consistent_regions_and_needs(budget)?, budget))
    }

    fn parts(
        &self,
        request: &Request,
        (consistent_regions, needs): ConsistentRegionsAndNeeds,
        budget: &Budget,
    ) -> Result<PartsBesideDocuments, Error> {
        let (elements, topology) = (&self.elements, self.elements.topology());
        let unchanged = |position| self.prior.job().and_then(|predecessor| predecessor.unchanged(position));
        let list = processing_elements(elements, unchanged, needs, budget)?;
        let operators = self.prior.changed_operators();
        check_texts(topology, &consistent_regions, operators.as_ref(), &budget.limits)?;
        Ok(PartsBesideDocuments {
            consistent_regions,
            elements: list,
            operators,
            regions: regions(elements, budget)?,
            isolated: placement::isolated(elements, &budget.limits)?,
            warnings: warnings(request, &self.bound.bindings, Some(topology), budget)?,
        })
    }

    /// Makes the plan from known ids and sizes of the documents.
    pub(super) fn with_measures(
        self,
        source: &Source,
        request: &Arc<Request>,
        writer: Writer,
        measures: &[Measure],
        budget: &Budget,
    ) -> Result<Compiled, Error> {
        let parts = self.beside_documents(request, budget)??;
        self.complete(source, request, writer, measures, parts, budget)
    }

    fn complete(
        self,
        source: &Source,
        request: &Arc<Request>,
        writer: Writer,
        measures: &[Measure],
        parts: PartsBesideDocuments,
        budget: &Budget,
    ) -> Result<Compiled, Error> {
        let Self { bound, elements, automatic_count, automatic, prior } = self;
        let PartsBesideDocuments { consistent_regions, elements: mut list, operators, regions, isolated, warnings } =
            parts;
        for (element, measure) in list.iter_mut().zip(measures) {
            element.set_measure(*measure);
        }
        let topology = Arc::clone(elements.topology());
        let change = prior.change(&elements, &mut list, operators, budget)?;
        let plan = Plan {
            compiler: COMPILER.to_owned(),
            adl: source.digest,
            dialect: topology.application.dialect,
            application_name: topology.application.name.clone(),
            application_scope: topology.application.scope.clone(),
            regions,
            host_pools: topology.host_pools.clone(),
            consistent_regions,
            isolated,
            elements: list,
            automatic,
            change,
            warnings,
        };
        Ok(Compiled {
            source: source.clone(),
            request: Arc::clone(request),
            bindings: bound.bindings,
            elements,
            writer,
            automatic_count,
            plan,
        })
    }
}

/// Bounds the texts of a plan that are not those of its PEs.
fn check_texts(
    topology: &Topology,
    consistent_regions: &[PlannedConsistentRegion],
    operators: Option<&ChangedOperatorNames>,
    limits: &Limits,
) -> Result<(), Problem> {
    let mut texts = PlanTexts::new(limits);
    for HostPool { name, hosts, tags, .. } in &topology.host_pools {
        texts.add(bytes_of([name].into_iter().chain(hosts).chain(tags).map(String::as_str)))?;
    }
    texts.add(bytes_of(topology.regions.iter().map(|region| region.name.as_str())))?;
    let members = consistent_regions.iter().flat_map(|region| &region.members);
    texts.add(bytes_of(members.map(|member| member.operator.as_str())))?;
    if let Some(ChangedOperatorNames { added, changed, removed }) = operators {
        texts.add(bytes_of([added, changed, removed].into_iter().flatten().map(String::as_str)))?;
    }
    Ok(())
}

fn regions(elements: &Elements, budget: &Budget) -> Result<Vec<PlannedRegion>, Error> {
    /// So many regions are looked through, the last first: neighbours are mostly in the same.
    const NEAR: usize = 8;
    let topology = elements.topology();
    let touching = regions_touching_consistent_ones(topology, budget)?;
    let mut shared: BTreeSet<u64> = BTreeSet::new();
    // By region: one of its channels, and the number of operators in that channel.
    let mut channels: Vec<(u64, u32, usize)> = Vec::new();
    // Where each region is there: one PE may have operators of very many.
    let mut positions: HashMap<u64, usize> = HashMap::new();
    let mut pace = budget.pace();
    for &pe in elements.pes() {
        let members = elements.members(pe);
        // A PE with one operator shares nothing.
        if members.len() == 1 {
            continue;
        }
        channels.clear();
        positions.clear();
        for channel in members.iter().flat_map(|&node| &topology.operators[node].channels) {
            pace.step()?;
            let far = channels.len().saturating_sub(NEAR);
            let near = channels.iter().skip(far).rposition(|(region, _, _)| *region == channel.region);
            let known = near.map(|near| far + near).or_else(|| positions.get(&channel.region).copied());
            match known.and_then(|known| channels.get_mut(known)) {
                Some((_, global, count)) => *count += usize::from(*global == channel.global),
                None => {
                    positions.insert(channel.region, channels.len());
                    channels.push((channel.region, channel.global, 1));
                }
            }
        }
        shared.extend(channels.iter().filter(|(_, _, count)| *count < members.len()).map(|(region, _, _)| *region));
    }
    let planned = topology.regions.iter().map(|region| PlannedRegion {
        region: region.clone(),
        channels_have_own_pes: !shared.contains(&region.index),
        touches_consistent_region: touching.contains(&region.index),
    });
    Ok(planned.collect())
}

/// Parallel regions with operators of a consistent region inside, or connected to one that is.
///
/// All copies of an operator are in the same regions, so connections only mark operators as written, and the regions
/// around each of these are looked at once. There may be 20 million connections, with hundreds of regions around them.
pub(super) fn regions_touching_consistent_ones(topology: &Topology, budget: &Budget) -> Result<BTreeSet<u64>, Error> {
    let mut touching: BTreeSet<u64> = BTreeSet::new();
    // Most jobs have no consistent region. Then the connections need not be searched.
    if topology.consistent_regions.is_empty() {
        return Ok(touching);
    }
    let operators = &topology.operators;
    let mut pace = budget.pace();
    let mut marked: EntitySet<OperatorId> = EntitySet::with_capacity(topology.application.operators.len());
    for connection in &topology.connections {
        pace.step()?;
        let (source, target) = (&operators[connection.source], &operators[connection.target]);
        if source.consistent_region.is_some() || target.consistent_region.is_some() {
            marked.insert(source.logical);
            marked.insert(target.logical);
        }
    }
    for operator in operators.values().filter(|operator| operator.consistent_region.is_some()) {
        pace.step()?;
        marked.insert(operator.logical);
    }
    for operator in operators.values() {
        pace.step()?;
        // The first copy counts for all others.
        if marked.remove(operator.logical) {
            pace.steps(u32::try_from(operator.channels.len()).unwrap_or(u32::MAX))?;
            touching.extend(operator.channels.iter().map(|channel| channel.region));
        }
    }
    Ok(touching)
}
