//! The shape of an application: its connections with splitters and mergers put in, before anything is copied (topology 4.2, 4.3).
//!
//! All channels of a region look alike, so the shape holds each of them once, as channel 0. A copy of an operator is named by the
//! operator and its *global channel*: a number with one digit per region around it, innermost least significant (topology 4.8).
//! Passing a splitter into channel `p` of a region of width `w` turns the global channel `g` into `g * w + p`; passing a merger out of
//! it turns `g` into `g / w`. This is all that expansion needs: nothing is copied until operators are made.
//!
//! Invariants of a shape that was built without problems: every link leads to a port that exists; every connection at the border of a
//! region goes through a splitter or merger; scopes of links agree (checked by [`super::links`]).

use super::lookup::{Ports, operators_by_index};
use super::widths::{self, Overrides};
use crate::budget::Limits;
use crate::error::{Problem, Problems, Stage, code, excerpt};
use crate::logical::submission::Bindings;
use crate::logical::{Application, Connection, OperatorId, OperatorKind, PortKind, SplitterKind};
use cranelift_entity::{EntityRef, PrimaryMap, SecondaryMap, entity_impl};
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

/// A region, or the outside of all regions, as a context of operators.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub(super) struct ScopeId(u32);
entity_impl!(ScopeId, "scope");

impl ScopeId {
    /// Outside all regions.
    pub(super) const ROOT: Self = Self(0);
}

/// A context of operators.
#[derive(Clone, Debug)]
pub(super) struct Scope {
    /// Position of its region in the application's table; none outside all regions.
    pub(super) region: Option<usize>,
    /// The context around it; itself for the root.
    pub(super) parent: ScopeId,
    /// Width of the region; 1 for the root.
    pub(super) width: u32,
    /// Number of its global channels: the product of all widths.
    pub(super) channels: u32,
}

/// A synthetic splitter.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct SplitterId(u32);
entity_impl!(SplitterId, "splitter");

/// A synthetic merger.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct MergerId(u32);
entity_impl!(MergerId, "merger");

/// What a link leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Far {
    /// A port of an operator as written.
    Operator(OperatorId),
    /// The input of a splitter, or one of its outputs.
    Splitter(SplitterId),
    /// One of the inputs of a merger, or its output.
    Merger(MergerId),
}

/// One end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Link {
    /// The other end.
    pub(super) to: Far,
    /// Position of its port.
    pub(super) port: u32,
    /// Kind of that port.
    pub(super) kind: PortKind,
}

/// Splits what arrives at an input port of a parallel operator.
#[derive(Debug)]
pub(super) struct Splitter {
    /// Position of the region.
    pub(super) region: usize,
    /// ADL index of the input port.
    pub(super) input_port: u64,
    /// How it splits.
    pub(super) kind: SplitterKind,
    /// Partitioning attributes.
    pub(super) attributes: Arc<[String]>,
    /// What feeds it.
    pub(super) input: Link,
    /// What it feeds, in each channel.
    pub(super) output: Link,
}

/// Merges what leaves an output port of a parallel operator.
#[derive(Debug)]
pub(super) struct Merger {
    /// Position of the region.
    pub(super) region: usize,
    /// What feeds it, in each channel.
    pub(super) input: Link,
    /// What it feeds.
    pub(super) output: Link,
}

/// Which side of a composite's port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    /// Towards the siblings. Primitives have only this one.
    Outside,
    /// Towards the contents.
    Inside,
}

/// A list of links, by number.
pub(super) type ListId = usize;

/// The shape of an application.
pub(super) struct Shape<'a> {
    pub(super) application: &'a Application,
    pub(super) scopes: PrimaryMap<ScopeId, Scope>,
    /// The context of each operator; that of a parallel operator is its own region.
    pub(super) scope_of: SecondaryMap<OperatorId, ScopeId>,
    /// The region that an operator introduces, by position.
    pub(super) region_of: SecondaryMap<OperatorId, Option<u32>>,
    /// Parallel operators in the order of the walk of topology 4.2.
    pub(super) parallel: Vec<OperatorId>,
    pub(super) splitters: PrimaryMap<SplitterId, Splitter>,
    pub(super) mergers: PrimaryMap<MergerId, Merger>,
    /// By region: its context, once it is processed.
    pub(super) scope_of_region: Vec<Option<ScopeId>>,
    links: Vec<Link>,
    lists: Vec<Range<usize>>,
    first_list: SecondaryMap<OperatorId, u32>,
}

impl<'a> Shape<'a> {
    /// Builds the shape for the widths in force. With problems (everything that is wrong with operators' indexes, connections, regions
    /// and widths) it is good for names and contexts of operators, not for following links.
    pub(super) fn build(
        application: &'a Application,
        overrides: &Overrides,
        bindings: &Bindings,
        limits: &Limits,
        problems: &mut Problems,
    ) -> Self {
        // What the walk finds is told before what is found where links are followed (adl 9).
        let mut found = Problems::default();
        let index = operators_by_index(application, &mut found);
        let root = Scope { region: None, parent: ScopeId::ROOT, width: 1, channels: 1 };
        let mut shape = Self {
            application,
            scopes: PrimaryMap::from_iter([root]),
            scope_of: SecondaryMap::with_capacity(application.operators.len()),
            region_of: SecondaryMap::with_default(None),
            parallel: Vec::new(),
            splitters: PrimaryMap::new(),
            mergers: PrimaryMap::new(),
            scope_of_region: vec![None; application.regions.len()],
            links: Vec::new(),
            lists: Vec::new(),
            first_list: SecondaryMap::new(),
        };
        for (position, region) in application.regions.iter().enumerate() {
            match index.get(&region.operator) {
                Some(id) if *id != application.main => shape.region_of[*id] = u32::try_from(position).ok(),
                _ => {
                    let message =
                        format!("parallel region {}: operator {} cannot be parallel", region.index, region.operator);
                    found.push(Problem::new(Stage::Topology, message).at(region.place));
                }
            }
        }
        shape.read_links(&index, &mut found);
        drop(index);
        shape.parallel = shape.walk();
        let mut resolved: Vec<Option<u32>> = vec![None; application.regions.len()];
        for id in shape.parallel.clone() {
            if let Some(position) = shape.region_of[id].map(|position| position as usize) {
                let (region, name) = (&application.regions[position], &application.operators[id].logical_name);
                match widths::resolve(region, name, application, overrides, bindings, limits) {
                    Ok(width) => resolved[position] = Some(width),
                    Err(problem) => problems.push(problem),
                }
                shape.insert(id, position, problems, &mut found);
            }
        }
        shape.enter_scopes(&resolved, problems);
        problems.extend(found.into_vec());
        shape
    }

    /// The links of one side of a port.
    pub(super) fn list(&self, id: OperatorId, kind: PortKind, position: usize, side: Side) -> ListId {
        let first = self.first_list[id] as usize;
        let inputs = match &self.application.operators[id].kind {
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
    pub(super) fn owners(&self) -> Vec<OperatorId> {
        let mut owners = vec![self.application.main; self.lists.len()];
        let ids: Vec<OperatorId> = self.application.operators.keys().collect();
        for (at, id) in ids.iter().enumerate() {
            let end = ids.get(at + 1).map_or(self.lists.len(), |next| self.first_list[*next] as usize);
            owners[self.first_list[*id] as usize..end].fill(*id);
        }
        owners
    }

    /// The context of a splitter's outputs.
    pub(super) fn inside(&self, region: usize) -> ScopeId {
        self.scope_of_region.get(region).copied().flatten().unwrap_or(ScopeId::ROOT)
    }

    /// The width of a region.
    pub(super) fn width(&self, region: usize) -> u32 {
        self.scopes[self.inside(region)].width
    }

    /// How many copies of an operator there are within one copy of its owner.
    pub(super) fn copies(&self, id: OperatorId) -> u32 {
        if self.region_of[id].is_some() { self.scopes[self.scope_of[id]].width } else { 1 }
    }

    fn read_links(&mut self, index: &HashMap<u64, OperatorId>, problems: &mut Problems) {
        let application = self.application;
        let index = &mut Ports::new(application, index);
        for (id, operator) in application.operators.iter() {
            self.first_list[id] = u32::try_from(self.lists.len()).unwrap_or(u32::MAX);
            match &operator.kind {
                OperatorKind::Composite(composite) => {
                    for port in &composite.inputs {
                        self.read_list(&port.incoming, index, problems);
                        self.read_list(&port.outgoing, index, problems);
                    }
                    for port in &composite.outputs {
                        self.read_list(&port.outgoing, index, problems);
                        self.read_list(&port.incoming, index, problems);
                    }
                }
                OperatorKind::Primitive(primitive) => {
                    let inputs = primitive.inputs.iter().map(|port| &port.port);
                    for port in inputs.chain(primitive.outputs.iter().map(|port| &port.port)) {
                        self.read_list(&port.connections, index, problems);
                    }
                }
                OperatorKind::Import(import) => {
                    for port in &import.outputs {
                        self.read_list(port, index, problems);
                    }
                }
                OperatorKind::Export(export) => {
                    for port in &export.inputs {
                        self.read_list(port, index, problems);
                    }
                }
            }
        }
    }

    fn read_list(&mut self, list: &[Connection], index: &mut Ports<'_>, problems: &mut Problems) {
        let start = self.links.len();
        for connection in list {
            let Connection { operator, port, kind, place } = *connection;
            let Some(id) = index.operators.get(&operator) else {
                let message = format!("a connection leads to operator {operator}, which does not exist");
                problems.push(Problem::new(Stage::Topology, message).code(code::INCONSISTENT).at(place));
                continue;
            };
            match index.position(*id, kind, port) {
                Some(port) => self.links.push(Link { to: Far::Operator(*id), port, kind }),
                None => {
                    let kind = if kind == PortKind::Input { "input" } else { "output" };
                    let name = excerpt(&self.application.operators[*id].logical_name);
                    let message = format!("a connection leads to {kind} port {port} of {name}, which does not exist");
                    problems.push(Problem::new(Stage::Topology, message).at(place));
                }
            }
        }
        self.lists.push(start..self.links.len());
    }

    /// Parallel operators in the order in which they are processed (topology 4.2): per composite its parallel primitives, then each
    /// nested composite with everything in it before the composite itself.
    fn walk(&self) -> Vec<OperatorId> {
        let mut order = Vec::new();
        let mut stack = vec![(self.application.main, 0)];
        while let Some((id, next)) = stack.pop() {
            let OperatorKind::Composite(composite) = &self.application.operators[id].kind else { continue };
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

    /// Puts splitters in front of a parallel operator and mergers behind it (topology 4.3). What is `missing` only matters where links
    /// are followed.
    fn insert(&mut self, id: OperatorId, region: usize, problems: &mut Problems, missing: &mut Problems) {
        let application = self.application;
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
                return;
            }
        };
        for (position, input_port) in inputs.into_iter().enumerate() {
            let range = self.lists[self.list(id, PortKind::Input, position, Side::Outside)].clone();
            let port = u32::try_from(position).unwrap_or(u32::MAX);
            let declared = application.regions[region].splitters.iter().find(|s| s.input_port == input_port);
            if declared.is_none() && !range.is_empty() {
                let name = excerpt(&operator.logical_name);
                let message =
                    format!("parallel region {name}: input port {input_port} is connected, but has no splitter");
                missing.push(Problem::new(Stage::Topology, message).at(application.regions[region].place));
            }
            let attributes: Arc<[String]> = declared.map_or_else(Default::default, |s| s.attributes.as_slice().into());
            for at in range {
                let input = self.links[at];
                let splitter = self.splitters.push(Splitter {
                    region,
                    input_port,
                    kind: declared.map_or(SplitterKind::RoundRobin, |s| s.kind),
                    attributes: attributes.clone(),
                    input,
                    output: Link { to: Far::Operator(id), port, kind: PortKind::Input },
                });
                let new = Link { to: Far::Splitter(splitter), port: 0, kind: PortKind::Input };
                self.relink(input, (id, port), new, problems);
                self.links[at] = Link { to: Far::Splitter(splitter), port: 0, kind: PortKind::Output };
            }
        }
        for position in 0..outputs {
            let port = u32::try_from(position).unwrap_or(u32::MAX);
            for at in self.lists[self.list(id, PortKind::Output, position, Side::Outside)].clone() {
                let output = self.links[at];
                let input = Link { to: Far::Operator(id), port, kind: PortKind::Output };
                let merger = self.mergers.push(Merger { region, input, output });
                let new = Link { to: Far::Merger(merger), port: 0, kind: PortKind::Output };
                self.relink(output, (id, port), new, problems);
                self.links[at] = Link { to: Far::Merger(merger), port: 0, kind: PortKind::Input };
            }
        }
    }

    /// Makes the far end of a connection point to the splitter or merger that now stands in it (topology 4.3, "Relink").
    fn relink(&mut self, end: Link, old: (OperatorId, u32), new: Link, problems: &mut Problems) {
        let is_old = |link: &Link| link.to == Far::Operator(old.0) && link.port == old.1;
        let application = self.application;
        let far = match end.to {
            Far::Splitter(splitter) => {
                let link = &mut self.splitters[splitter].input;
                if is_old(link) {
                    *link = new;
                    return;
                }
                None
            }
            Far::Merger(merger) => {
                let merger = &mut self.mergers[merger];
                let link = if end.kind == PortKind::Input { &mut merger.input } else { &mut merger.output };
                if is_old(link) {
                    *link = new;
                    return;
                }
                None
            }
            Far::Operator(id) => Some(id),
        };
        let operator = &application.operators[old.0];
        let name = excerpt(&operator.logical_name);
        let mut inconsistent = |message: String| {
            problems.push(Problem::new(Stage::Topology, message).code(code::INCONSISTENT).at(operator.place));
        };
        if let Some(id) = far {
            match &application.operators[id].kind {
                OperatorKind::Import(_) | OperatorKind::Export(_) => {
                    let far = excerpt(&application.operators[id].logical_name);
                    return inconsistent(format!("{far} is connected directly to the parallel operator {name}"));
                }
                OperatorKind::Primitive(_) | OperatorKind::Composite(_) => {}
            }
            let side = if end.kind == new.kind { Side::Inside } else { Side::Outside };
            let range = self.lists[self.list(id, end.kind, end.port as usize, side)].clone();
            if let Some(link) = self.links.get_mut(range).and_then(|links| links.iter_mut().find(|link| is_old(link))) {
                *link = new;
                return;
            }
        }
        inconsistent(format!("a connection of the parallel operator {name} is not known at its other end"));
    }

    /// Gives every operator its context. Operators come after their owners.
    fn enter_scopes(&mut self, widths: &[Option<u32>], problems: &mut Problems) {
        for (id, operator) in self.application.operators.iter() {
            let around = operator.owner.map_or(ScopeId::ROOT, |owner| self.scope_of[owner]);
            let Some(region) = self.region_of[id].map(|region| region as usize) else {
                self.scope_of[id] = around;
                continue;
            };
            let width = widths.get(region).copied().flatten().unwrap_or(1);
            let channels = self.scopes[around].channels.checked_mul(width);
            if channels.is_none() && problems.is_empty() {
                let message = format!("parallel region {}: too many channels", excerpt(&operator.logical_name));
                problems.push(Problem::new(Stage::Topology, message).at(operator.place));
            }
            let channels = channels.unwrap_or(1);
            let scope = Scope { region: Some(region), parent: around, width, channels };
            self.scope_of[id] = self.scopes.push(scope);
            self.scope_of_region[region] = Some(self.scope_of[id]);
        }
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
