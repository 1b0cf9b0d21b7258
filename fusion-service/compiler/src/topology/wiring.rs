//! Puts splitters and mergers into the links of an application, once for all channels (rule expansion-13).
//!
//! Knows: the application as written. Must not know: widths. So all generations of a job have the same wiring.
//!
//! Invariant of a wiring that was made without problems: every link leads to a port that exists; every connection at
//! the border of a region goes through a splitter or merger.

use super::lookup::{PortLookup, operators_by_index};
use crate::budget::{Budget, Pace};
use crate::error::{Error, Problem, Problems, Stage, code, excerpt};
use crate::heap::{flat_secondary_map, primary_map, share};
use crate::logical::{
    Application, ConnectionEnd, LogicalSplitter, OperatorId, OperatorKind, ParallelRegion, PortKind, SplitterKind,
};
use cranelift_entity::{EntityRef, PrimaryMap, SecondaryMap, entity_impl};
use get_size2::GetSize;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

/// A synthetic splitter.
#[derive(Clone, Copy, PartialEq, Eq, Hash, GetSize)]
pub(super) struct SplitterId(u32);
entity_impl!(SplitterId, "splitter");

/// A synthetic merger.
#[derive(Clone, Copy, PartialEq, Eq, Hash, GetSize)]
pub(super) struct MergerId(u32);
entity_impl!(MergerId, "merger");

/// What a link leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, GetSize)]
pub(super) enum LinkTarget {
    /// A port of an operator as written.
    Operator(OperatorId),
    /// The input of a splitter, or one of its outputs.
    Splitter(SplitterId),
    /// One of the inputs of a merger, or its output.
    Merger(MergerId),
}

/// One end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, GetSize)]
pub(super) struct Link {
    /// The other end.
    pub(super) to: LinkTarget,
    /// Position of its port.
    pub(super) port: u32,
    /// Kind of that port.
    pub(super) kind: PortKind,
}

/// Splits what arrives at an input port of a parallel operator.
#[derive(Debug, GetSize)]
pub(super) struct WiredSplitter {
    /// Position of the region.
    pub(super) region: usize,
    /// ADL index of the input port.
    pub(super) input_port: u64,
    /// How it splits.
    pub(super) kind: SplitterKind,
    /// Partitioning attributes.
    #[get_size(size_fn = share)]
    pub(super) attributes: Arc<[String]>,
    /// What feeds it.
    pub(super) input: Link,
    /// What it feeds, in each channel.
    pub(super) output: Link,
}

/// Merges what leaves an output port of a parallel operator.
#[derive(Debug, GetSize)]
pub(super) struct WiredMerger {
    /// Position of the region.
    pub(super) region: usize,
    /// What feeds it, in each channel.
    pub(super) input: Link,
    /// What it feeds.
    pub(super) output: Link,
}

/// A side of a composite's port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    /// Towards the siblings. Primitives have only this one.
    Outside,
    /// Towards the contents.
    Inside,
}

/// A list of links, by number.
pub(super) type ListId = usize;

/// The links of an application.
#[derive(Debug, GetSize)]
pub(super) struct Wiring {
    /// The region that an operator introduces, by position.
    #[get_size(size_fn = flat_secondary_map)]
    pub(super) region_of: SecondaryMap<OperatorId, Option<u32>>,
    /// Parallel operators in the order of rule expansion-8.
    pub(super) parallel: Vec<OperatorId>,
    #[get_size(size_fn = primary_map)]
    pub(super) splitters: PrimaryMap<SplitterId, WiredSplitter>,
    #[get_size(size_fn = primary_map)]
    pub(super) mergers: PrimaryMap<MergerId, WiredMerger>,
    links: Vec<Link>,
    lists: Vec<Range<usize>>,
    #[get_size(size_fn = flat_secondary_map)]
    first_list: SecondaryMap<OperatorId, u32>,
}

impl Wiring {
    /// Reads the links. Calls `visit` for each parallel operator with the position of its region, before it puts
    /// splitters and mergers around the operator. Adds all problems of indexes and connections. Those of `found` come
    /// after all others.
    ///
    /// # Errors
    ///
    /// The budget ends, or the error of `visit`.
    pub(super) fn new(
        application: &Application,
        problems: &mut Problems,
        found: &mut Problems,
        budget: &Budget,
        mut visit: impl FnMut(OperatorId, usize, &mut Problems) -> Result<(), Error>,
    ) -> Result<Self, Error> {
        let mut pace = budget.pace();
        let index = operators_by_index(application, found);
        let mut wiring = Self {
            region_of: SecondaryMap::with_default(None),
            parallel: Vec::new(),
            splitters: PrimaryMap::new(),
            mergers: PrimaryMap::new(),
            links: Vec::new(),
            lists: Vec::new(),
            first_list: SecondaryMap::new(),
        };
        for (position, region) in application.regions.iter().enumerate() {
            match index.get(&region.operator) {
                Some(id) if *id != application.main => wiring.region_of[*id] = u32::try_from(position).ok(),
                _ => {
                    let message =
                        format!("parallel region {}: operator {} cannot be parallel", region.index, region.operator);
                    found.push(Problem::new(Stage::Topology, message).at(region.place));
                }
            }
        }
        wiring.read_links(application, &index, found, &mut pace)?;
        wiring.parallel = wiring.walk(application);
        let mut far = FarEnds::default();
        for (id, position) in wiring.parallel_regions().collect::<Vec<_>>() {
            visit(id, position, problems)?;
            wiring.insert(application, (id, position), &mut far, problems, found, &mut pace)?;
        }
        Ok(wiring)
    }

    /// Parallel operators in the order of the walk, with the positions of their regions.
    pub(super) fn parallel_regions(&self) -> impl Iterator<Item = (OperatorId, usize)> {
        self.parallel.iter().filter_map(|id| Some((*id, self.region_of[*id]? as usize)))
    }

    /// The links of one side of a port.
    pub(super) fn list(
        &self,
        application: &Application,
        (id, kind, position): (OperatorId, PortKind, usize),
        side: Side,
    ) -> ListId {
        let first = self.first_list[id] as usize;
        let inputs = match &application.operators[id].kind {
            OperatorKind::Composite(composite) => {
                let port = if kind == PortKind::Input { position } else { composite.inputs.len() + position };
                return first + 2 * port + usize::from(side == Side::Inside);
            }
            OperatorKind::Primitive(primitive) if kind == PortKind::Output => primitive.inputs.len(),
            _ => 0,
        };
        first + inputs + position
    }

    /// The links of a list.
    pub(super) fn links(&self, list: ListId) -> &[Link] {
        self.lists.get(list).and_then(|range| self.links.get(range.clone())).unwrap_or_default()
    }

    /// Number of lists.
    pub(super) fn list_count(&self) -> usize {
        self.lists.len()
    }

    /// The operator that a list belongs to, for every list.
    pub(super) fn owners(&self, application: &Application) -> Vec<OperatorId> {
        let mut owners = vec![application.main; self.lists.len()];
        let ids: Vec<OperatorId> = application.operators.keys().collect();
        for (at, id) in ids.iter().enumerate() {
            let end = ids.get(at + 1).map_or(self.lists.len(), |next| self.first_list[*next] as usize);
            owners[self.first_list[*id] as usize..end].fill(*id);
        }
        owners
    }

    fn read_links(
        &mut self,
        application: &Application,
        index: &HashMap<u64, OperatorId>,
        problems: &mut Problems,
        pace: &mut Pace<'_>,
    ) -> Result<(), Error> {
        let index = &mut PortLookup::new(application, index);
        for (id, operator) in application.operators.iter() {
            pace.step()?;
            self.first_list[id] = u32::try_from(self.lists.len()).unwrap_or(u32::MAX);
            match &operator.kind {
                OperatorKind::Composite(composite) => {
                    for port in &composite.inputs {
                        self.read_list(&port.incoming, index, problems, pace)?;
                        self.read_list(&port.outgoing, index, problems, pace)?;
                    }
                    for port in &composite.outputs {
                        self.read_list(&port.outgoing, index, problems, pace)?;
                        self.read_list(&port.incoming, index, problems, pace)?;
                    }
                }
                OperatorKind::Primitive(primitive) => {
                    let inputs = primitive.inputs.iter().map(|port| &port.port);
                    for port in inputs.chain(primitive.outputs.iter().map(|port| &port.port)) {
                        self.read_list(&port.connections, index, problems, pace)?;
                    }
                }
                OperatorKind::Import(import) => {
                    for port in &import.outputs {
                        self.read_list(port, index, problems, pace)?;
                    }
                }
                OperatorKind::Export(export) => {
                    for port in &export.inputs {
                        self.read_list(port, index, problems, pace)?;
                    }
                }
            }
        }
        Ok(())
    }

    fn read_list(
        &mut self,
        list: &[ConnectionEnd],
        index: &mut PortLookup<'_>,
        problems: &mut Problems,
        pace: &mut Pace<'_>,
    ) -> Result<(), Error> {
        let start = self.links.len();
        for connection in list {
            pace.step()?;
            let ConnectionEnd { operator, port, kind, place } = *connection;
            let Some(id) = index.operators.get(&operator) else {
                let message = format!("a connection leads to operator {operator}, which does not exist");
                problems.push(Problem::new(Stage::Topology, message).code(code::INCONSISTENT).at(place));
                continue;
            };
            match index.position(*id, kind, port) {
                Some(port) => self.links.push(Link { to: LinkTarget::Operator(*id), port, kind }),
                None => {
                    let kind = if kind == PortKind::Input { "input" } else { "output" };
                    let name = excerpt(&index.application.operators[*id].logical_name);
                    let message = format!("a connection leads to {kind} port {port} of {name}, which does not exist");
                    problems.push(Problem::new(Stage::Topology, message).at(place));
                }
            }
        }
        self.lists.push(start..self.links.len());
        Ok(())
    }

    /// Parallel operators in the order in which they are processed (rule expansion-8): per composite its parallel
    /// primitives, then each nested composite with everything in it before the composite itself.
    fn walk(&self, application: &Application) -> Vec<OperatorId> {
        let mut order = Vec::new();
        let mut stack = vec![(application.main, 0)];
        while let Some((id, next)) = stack.pop() {
            let OperatorKind::Composite(composite) = &application.operators[id].kind else { continue };
            if next == 0 {
                order.extend(composite.primitives.iter().filter(|id| self.region_of[**id].is_some()));
            }
            if let Some(child) = composite.composites.get(next) {
                stack.push((id, next + 1));
                stack.push((*child, 0));
            } else if self.region_of[id].is_some() {
                order.push(id);
            }
        }
        order
    }

    /// Puts splitters in front of a parallel operator and mergers behind it (rule expansion-13). Problems in `missing`
    /// only matter if links are followed.
    fn insert(
        &mut self,
        application: &Application,
        (id, region): (OperatorId, usize),
        far: &mut FarEnds,
        problems: &mut Problems,
        missing: &mut Problems,
        pace: &mut Pace<'_>,
    ) -> Result<(), Error> {
        let operator = &application.operators[id];
        let (inputs, outputs): (Vec<u64>, usize) = match &operator.kind {
            OperatorKind::Composite(composite) => {
                (composite.inputs.iter().map(|port| port.index).collect(), composite.outputs.len())
            }
            OperatorKind::Primitive(primitive) => {
                (primitive.inputs.iter().map(|port| port.port.index).collect(), primitive.outputs.len())
            }
            OperatorKind::Import(_) | OperatorKind::Export(_) => {
                let message = format!("{}: an Import or Export cannot be parallel", excerpt(&operator.logical_name));
                problems.push(Problem::new(Stage::Topology, message).code(code::INCONSISTENT).at(operator.place));
                return Ok(());
            }
        };
        let declared = DeclaredSplitters::of(&application.regions[region], pace)?;
        for (position, input_port) in inputs.into_iter().enumerate() {
            let range = self.lists[self.list(application, (id, PortKind::Input, position), Side::Outside)].clone();
            let port = u32::try_from(position).unwrap_or(u32::MAX);
            pace.step()?;
            let declared = declared.at(input_port);
            if declared.is_none() && !range.is_empty() {
                let name = excerpt(&operator.logical_name);
                let message =
                    format!("parallel region {name}: input port {input_port} is connected, but has no splitter");
                missing.push(Problem::new(Stage::Topology, message).at(application.regions[region].place));
            }
            for at in range {
                pace.step()?;
                let input = self.links[at];
                let splitter = self.splitters.push(WiredSplitter {
                    region,
                    input_port,
                    kind: declared.map_or(SplitterKind::RoundRobin, |(kind, _)| *kind),
                    attributes: declared.map_or_else(Default::default, |(_, attributes)| Arc::clone(attributes)),
                    input,
                    output: Link { to: LinkTarget::Operator(id), port, kind: PortKind::Input },
                });
                let new = Link { to: LinkTarget::Splitter(splitter), port: 0, kind: PortKind::Input };
                self.relink(application, input, (id, port), new, far, problems);
                self.links[at] = Link { to: LinkTarget::Splitter(splitter), port: 0, kind: PortKind::Output };
            }
        }
        for position in 0..outputs {
            let port = u32::try_from(position).unwrap_or(u32::MAX);
            for at in self.lists[self.list(application, (id, PortKind::Output, position), Side::Outside)].clone() {
                pace.step()?;
                let output = self.links[at];
                let input = Link { to: LinkTarget::Operator(id), port, kind: PortKind::Output };
                let merger = self.mergers.push(WiredMerger { region, input, output });
                let new = Link { to: LinkTarget::Merger(merger), port: 0, kind: PortKind::Output };
                self.relink(application, output, (id, port), new, far, problems);
                self.links[at] = Link { to: LinkTarget::Merger(merger), port: 0, kind: PortKind::Input };
            }
        }
        Ok(())
    }

    /// Makes the far end of a connection lead to the splitter or merger that was put into the connection.
    fn relink(
        &mut self,
        application: &Application,
        end: Link,
        old: (OperatorId, u32),
        new: Link,
        ends: &mut FarEnds,
        problems: &mut Problems,
    ) {
        let is_old = |link: &Link| link.to == LinkTarget::Operator(old.0) && link.port == old.1;
        let far = match end.to {
            LinkTarget::Splitter(splitter) => {
                let link = &mut self.splitters[splitter].input;
                if is_old(link) {
                    *link = new;
                    return;
                }
                None
            }
            LinkTarget::Merger(merger) => {
                let merger = &mut self.mergers[merger];
                let link = if end.kind == PortKind::Input { &mut merger.input } else { &mut merger.output };
                if is_old(link) {
                    *link = new;
                    return;
                }
                None
            }
            LinkTarget::Operator(id) => Some(id),
        };
        let operator = &application.operators[old.0];
        let name = || excerpt(&operator.logical_name);
        let mut inconsistent = |message: String| {
            problems.push(Problem::new(Stage::Topology, message).code(code::INCONSISTENT).at(operator.place));
        };
        if let Some(id) = far {
            match &application.operators[id].kind {
                OperatorKind::Import(_) | OperatorKind::Export(_) => {
                    let far = excerpt(&application.operators[id].logical_name);
                    let name = name();
                    return inconsistent(format!("{far} is connected directly to the parallel operator {name}"));
                }
                OperatorKind::Primitive(_) | OperatorKind::Composite(_) => {}
            }
            let side = if end.kind == new.kind { Side::Inside } else { Side::Outside };
            let list = self.list(application, (id, end.kind, end.port as usize), side);
            let links = self.links.get_mut(self.lists[list].clone()).unwrap_or_default();
            if let Some(link) = ends.find(list, links, old) {
                *link = new;
                return;
            }
        }
        let name = name();
        inconsistent(format!("a connection of the parallel operator {name} is not known at its other end"));
    }
}

/// The splitters that a region declares, by input port; of several for one port the first.
struct DeclaredSplitters(HashMap<u64, (SplitterKind, Arc<[String]>)>);

impl DeclaredSplitters {
    fn of(region: &ParallelRegion, pace: &mut Pace<'_>) -> Result<Self, Error> {
        let mut splitters = HashMap::with_capacity(region.splitters.len());
        for LogicalSplitter { input_port, kind, attributes } in &region.splitters {
            pace.step()?;
            splitters.entry(*input_port).or_insert_with(|| (*kind, Arc::from(attributes.as_slice())));
        }
        Ok(Self(splitters))
    }

    fn at(&self, input_port: u64) -> Option<&(SplitterKind, Arc<[String]>)> {
        self.0.get(&input_port)
    }
}

/// Finds the far ends of connections, also in lists with very many links.
///
/// Relies on this: the links of a list may become links to splitters and mergers, but none comes to lead to a port.
#[derive(Default)]
struct FarEnds(HashMap<ListId, FarList>);

/// The links of a list that lead to ports, by port.
struct FarList {
    /// The first of each port that may still lead there.
    first: HashMap<(OperatorId, u32), usize>,
    /// By position: the next of the same port.
    next: Vec<Option<usize>>,
}

impl FarEnds {
    /// Links of a list that is searched from its beginning each time.
    const FEW: usize = 32;

    /// The first of the `links` of a list that leads to a port.
    fn find<'l>(&mut self, list: ListId, links: &'l mut [Link], port: (OperatorId, u32)) -> Option<&'l mut Link> {
        let leads_there = |link: &Link| link.to == LinkTarget::Operator(port.0) && link.port == port.1;
        if links.len() <= Self::FEW {
            return links.iter_mut().find(|link| leads_there(link));
        }
        let FarList { first, next } = self.0.entry(list).or_insert_with(|| FarList::of(links));
        let at = first.get_mut(&port)?;
        while !links.get(*at).is_some_and(leads_there) {
            *at = next.get(*at).copied().flatten()?;
        }
        links.get_mut(*at)
    }
}

impl FarList {
    fn of(links: &[Link]) -> Self {
        let (mut first, mut next) = (HashMap::new(), vec![None; links.len()]);
        for (at, link) in links.iter().enumerate().rev() {
            if let LinkTarget::Operator(id) = link.to {
                next[at] = first.insert((id, link.port), at);
            }
        }
        Self { first, next }
    }
}

impl SplitterId {
    /// Its number.
    pub(super) fn number(self) -> usize {
        self.index()
    }
}

impl MergerId {
    /// Its number.
    pub(super) fn number(self) -> usize {
        self.index()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whatever is looked for, and in whatever order: a list with an index gives what looking through it gives.
    #[test]
    fn far_ends_are_found_in_their_order() {
        let port = |number: usize| (OperatorId::new(number % 3), u32::try_from(number / 3 % 2).unwrap_or_default());
        for length in [0, 1, FarEnds::FEW, FarEnds::FEW + 1, 200] {
            let link = |number: usize| {
                let (operator, port) = port(number);
                Link { to: LinkTarget::Operator(operator), port, kind: PortKind::Input }
            };
            let mut links: Vec<Link> = (0..length).map(|at| link(at * at + at / 5)).collect();
            let (mut ends, mut splitters) = (FarEnds::default(), 0);
            for step in 0..2 * length + 10 {
                let port = port(step * 7);
                let expected =
                    links.iter().position(|link| link.to == LinkTarget::Operator(port.0) && link.port == port.1);
                let before = links.clone();
                let found = ends.find(0, &mut links, port).map(|link| {
                    splitters += 1;
                    *link = Link { to: LinkTarget::Splitter(SplitterId(splitters)), ..*link };
                });
                assert_eq!(found.is_some(), expected.is_some(), "{length} {step}");
                let changed = links.iter().zip(&before).position(|(now, before)| now != before);
                assert_eq!(changed, expected, "{length} {step}");
                // The operator of the list is parallel itself.
                if step % 5 == 0
                    && let Some(link) = links.get_mut(step % length.max(1))
                {
                    link.to = LinkTarget::Merger(MergerId(0));
                }
            }
        }
    }

    #[test]
    fn of_several_splitters_of_a_port_the_first_counts() {
        let splitter = |input_port, kind, attribute: &str| LogicalSplitter {
            input_port,
            kind,
            attributes: vec![attribute.to_owned()],
        };
        let region = ParallelRegion {
            index: 0,
            operator: 0,
            width: crate::logical::Width::Absent,
            splitters: vec![
                splitter(1, SplitterKind::Hash, "a"),
                splitter(0, SplitterKind::Broadcast, "b"),
                splitter(1, SplitterKind::RoundRobin, "c"),
            ],
            replicate_tags: Vec::new(),
            place: crate::error::Place { line: 1, column: 1 },
        };
        let declared = DeclaredSplitters::of(&region, &mut Budget::default().pace()).unwrap();
        let at = |port| declared.at(port).map(|(kind, attributes)| (*kind, attributes[0].as_str()));
        assert_eq!(at(0), Some((SplitterKind::Broadcast, "b")));
        assert_eq!(at(1), Some((SplitterKind::Hash, "a")));
        assert_eq!(at(2), None);
    }
}
