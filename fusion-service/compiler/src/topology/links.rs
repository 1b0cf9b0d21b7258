//! Finds what each port reaches through composites, and counts connections before any are made (rule expansion-14).
//!
//! Links are followed once per list of links of the shape, not once per copy. Composite ports vanish. Between two ports
//! of primitive operators only mergers and splitters remain, which change the channel. For each point on the way, the
//! search counts the connections and splitters behind it. So a product of widths is refused before memory is spent on
//! it.
//!
//! Documents are not trusted: their links may form circles or multiply at every step. The search refuses circles,
//! counts products with saturation, and bounds the number of ends that it remembers. It also counts the steps that it
//! takes to make connections: a broadcast repeats what is behind it in every channel, also ends that become nothing.
//!
//! Knows: links as written, widths. Must not know: copies of operators.

use super::shape::{ScopeId, Shape};
use super::wiring::{Link, LinkTarget, MergerId, Side, SplitterId};
use crate::budget::{Budget, Limits, Pace};
use crate::error::{Error, Problem, Problems, Stage, code, excerpt};
use crate::logical::{OperatorId, OperatorKind, PortKind, SplitterKind};
use cranelift_entity::EntityRef;

/// Where a link ends once composites are passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum End {
    /// An input port of a real operator, by position.
    Port(OperatorId, u32),
    /// An Export.
    Export(OperatorId),
    /// A splitter.
    Splitter(SplitterId),
    /// A merger.
    Merger(MergerId),
}

/// What lies behind a point, over all channels.
#[derive(Clone, Debug, Default)]
pub(super) struct Reach {
    /// Where links end.
    pub(super) ends: Vec<End>,
    /// Connections, also through splitters.
    pub(super) connections: u64,
    /// Destinations that are reached without a splitter. A broadcast does not count as a splitter here.
    pub(super) destinations: u64,
    /// Splitters of the topology, nested ones too.
    pub(super) splitters: u64,
    /// The same, each counted as often as there are splitters that it is under, itself included.
    pub(super) nested_splitters: u64,
    /// Channels of these splitters, with or without connections.
    pub(super) channels: u64,
    /// Steps that a walk over the ends takes, and over those behind them, where connections or splitters are: one for
    /// each end in each channel.
    pub(super) steps: u64,
    /// Splitters below each other.
    pub(super) depth: u32,
    /// Whether an Export is reached without a splitter.
    pub(super) exports: bool,
}

/// Most splitters that may be nested in each other. No application needs more.
const DEPTH: u32 = 256;

/// A point from which links are followed: a list of links, the outputs of a splitter, or the output of a merger.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Point(usize);

/// The links of a shape as a graph of points.
#[derive(Clone, Copy)]
struct PointGraph<'s, 'a> {
    shape: &'s Shape<'a>,
}

/// What lies behind every point that matters.
pub(super) struct Links<'s, 'a> {
    shape: &'s Shape<'a>,
    net: PointGraph<'s, 'a>,
    owners: Vec<OperatorId>,
    downstream: PointSearch<Reach>,
    upstream: PointSearch<Upstream>,
    most: u64,
    remembered: u64,
}

/// Mergers on the way upstream.
#[derive(Clone, Debug, Default)]
struct Upstream {
    /// Positions of their regions, in order.
    mergers: Vec<usize>,
    /// Whether only composites are before the first merger.
    fed_by_merger: bool,
}

impl<'s> PointGraph<'s, '_> {
    fn of_splitter(self, id: SplitterId) -> Point {
        Point(self.shape.list_count() + id.number())
    }

    fn of_merger(self, id: MergerId) -> Point {
        Point(self.shape.list_count() + self.shape.splitters.len() + id.number())
    }

    /// The links that lead on from a point, downstream or upstream.
    fn links(self, point: Point, downstream: bool) -> &'s [Link] {
        let shape = self.shape;
        let Some(splitter) = point.0.checked_sub(shape.list_count()) else { return shape.links(point.0) };
        if let Some(splitter) = shape.splitters.get(SplitterId::new(splitter)) {
            return std::slice::from_ref(if downstream { &splitter.output } else { &splitter.input });
        }
        let merger = shape.mergers.get(MergerId::new(splitter - shape.splitters.len()));
        merger.map_or(&[], |merger| std::slice::from_ref(if downstream { &merger.output } else { &merger.input }))
    }

    /// The point that a link leads to, if it goes on from there.
    fn next(self, link: Link, downstream: bool) -> Option<Point> {
        match link.to {
            LinkTarget::Splitter(id) => Some(self.of_splitter(id)),
            LinkTarget::Merger(id) => Some(self.of_merger(id)),
            LinkTarget::Operator(id) => match self.shape.application.operators[id].kind {
                OperatorKind::Composite(_) => {
                    // Into an input port from outside, or out of an output port; upstream the other way round.
                    let side = if (link.kind == PortKind::Input) == downstream { Side::Inside } else { Side::Outside };
                    Some(Point(self.shape.list(id, link.kind, link.port as usize, side)))
                }
                _ => None,
            },
        }
    }
}

impl<'s, 'a> Links<'s, 'a> {
    pub(super) fn new(shape: &'s Shape<'a>, limits: &Limits) -> Self {
        let points = shape.list_count() + shape.splitters.len() + shape.mergers.len();
        Self {
            shape,
            net: PointGraph { shape },
            owners: shape.owners(shape.application),
            downstream: PointSearch::new(points),
            upstream: PointSearch::new(points),
            most: limits.connections,
            remembered: 0,
        }
    }

    /// What lies behind each connection of an output port of a primitive or import, in the order of the ADL.
    pub(super) fn follow_output(
        &mut self,
        id: OperatorId,
        position: usize,
        budget: &Budget,
    ) -> Result<Vec<Reach>, Error> {
        let list = self.shape.list(id, PortKind::Output, position, Side::Outside);
        let shape = self.shape;
        let mut reached = Vec::with_capacity(shape.links(list).len());
        self.downstream_of(Point(list), budget)?;
        for link in shape.links(list) {
            let mut reach = Reach::default();
            self.add(&mut reach, *link, shape.scope_of[id], id)?;
            reached.push(reach);
        }
        Ok(reached)
    }

    /// What is behind the outputs of a splitter, in each channel. The splitter must have been followed to.
    pub(super) fn splitter(&self, id: SplitterId) -> &Reach {
        self.downstream.value(self.net.of_splitter(id).0)
    }

    /// What is behind a merger that was followed to.
    pub(super) fn merger(&self, id: MergerId) -> &Reach {
        self.downstream.value(self.net.of_merger(id).0)
    }

    /// The regions (by position) of the mergers met on the way upstream from an input port, per connection of the ADL.
    pub(super) fn mergers_before(
        &mut self,
        id: OperatorId,
        position: usize,
        budget: &Budget,
    ) -> Result<Vec<Vec<usize>>, Error> {
        let list = self.shape.list(id, PortKind::Input, position, Side::Outside);
        self.upstream_of(Point(list), budget)?;
        let shape = self.shape;
        shape.links(list).iter().map(|link| Ok(self.before(*link))).collect()
    }

    /// Whether a splitter is fed by a merger, possibly through composites (rule expansion-18).
    pub(super) fn fed_by_merger(&mut self, id: SplitterId, budget: &Budget) -> Result<bool, Error> {
        let point = self.net.of_splitter(id);
        self.upstream_of(point, budget)?;
        Ok(self.upstream.value(point.0).fed_by_merger)
    }

    /// The context of the links of a point, and an operator to blame.
    fn context(&self, point: Point) -> (ScopeId, OperatorId) {
        let shape = self.shape;
        let main = shape.application.main;
        let Some(splitter) = point.0.checked_sub(shape.list_count()) else {
            let owner = self.owners.get(point.0).copied().unwrap_or(main);
            return (shape.scope_of[owner], owner);
        };
        let blame = |link: &Link| match link.to {
            LinkTarget::Operator(id) => id,
            _ => main,
        };
        if let Some(splitter) = shape.splitters.get(SplitterId::new(splitter)) {
            return (shape.inside(splitter.region), blame(&splitter.output));
        }
        match shape.mergers.get(MergerId::new(splitter - shape.splitters.len())) {
            Some(merger) => (shape.scopes[shape.inside(merger.region)].parent, blame(&merger.input)),
            None => (ScopeId::ROOT, main),
        }
    }

    fn downstream_of(&mut self, point: Point, budget: &Budget) -> Result<(), Error> {
        let mut pace = budget.pace();
        let net = self.net;
        let order = self.downstream.finish(
            point.0,
            |point, next| {
                let links = net.links(Point(point), true).iter();
                next.extend(links.filter_map(|link| net.next(*link, true)).map(|point| point.0));
            },
            &mut pace,
        );
        let mut problems = Problems::default();
        for point in order.map_err(|stopped| self.circle(stopped))? {
            let point = Point(point);
            let (scope, blame) = self.context(point);
            let mut reach = Reach::default();
            for link in self.net.links(point, true) {
                problems.keep(self.add(&mut reach, *link, scope, blame))?;
            }
            self.remembered += reach.ends.len() as u64;
            if self.remembered > self.most || reach.depth > DEPTH {
                return Err(self.too_many());
            }
            self.downstream.set(point.0, reach);
        }
        problems.into_result()
    }

    /// Adds what is behind a link. All points behind it are known.
    fn add(&self, reach: &mut Reach, link: Link, scope: ScopeId, blame: OperatorId) -> Result<(), Error> {
        let shape = self.shape;
        let inconsistent = |message: &str| {
            let operator = &shape.application.operators[blame];
            let message = format!("{}: {message}", excerpt(&operator.logical_name));
            Error::from(Problem::new(Stage::Topology, message).code(code::INCONSISTENT).at(operator.place))
        };
        let crosses = || inconsistent("a connection crosses the border of a parallel region");
        match link.to {
            LinkTarget::Operator(id) => {
                if shape.scope_of[id] != scope {
                    return Err(crosses());
                }
                match (&shape.application.operators[id].kind, link.kind) {
                    (OperatorKind::Primitive(_), PortKind::Input) => {
                        reach.end(End::Port(id, link.port));
                        reach.destinations = reach.destinations.saturating_add(1);
                        reach.connections = reach.connections.saturating_add(1);
                    }
                    (OperatorKind::Export(_), _) => {
                        reach.end(End::Export(id));
                        reach.exports = true;
                    }
                    (OperatorKind::Composite(_), _) => {
                        let Some(point) = self.net.next(link, true) else { return Ok(()) };
                        let behind = self.downstream.value(point.0);
                        if reach.ends.len() as u64 + behind.ends.len() as u64 > self.most {
                            return Err(self.too_many());
                        }
                        reach.ends.extend_from_slice(&behind.ends);
                        reach.steps = reach.steps.saturating_add(behind.steps);
                        reach.merge(behind, 1, true);
                    }
                    (OperatorKind::Primitive(_) | OperatorKind::Import(_), _) => {
                        return Err(inconsistent("a connection leads to an output where an input is needed"));
                    }
                }
            }
            LinkTarget::Merger(id) => {
                if shape.inside(shape.mergers[id].region) != scope {
                    return Err(crosses());
                }
                reach.end(End::Merger(id));
                reach.enter(self.merger(id), 1);
                reach.merge(self.merger(id), 1, true);
            }
            LinkTarget::Splitter(id) => {
                let splitter = &shape.splitters[id];
                if shape.scopes[shape.inside(splitter.region)].parent != scope {
                    return Err(crosses());
                }
                let behind = self.splitter(id);
                if behind.exports {
                    return Err(inconsistent("a stream enters a parallel region and is exported there"));
                }
                reach.end(End::Splitter(id));
                let broadcast = splitter.kind == SplitterKind::Broadcast;
                let width = shape.width(splitter.region);
                reach.enter(behind, width);
                reach.merge(behind, width, broadcast);
                if !broadcast {
                    reach.add_splitter(behind, width);
                }
            }
        }
        Ok(())
    }

    fn upstream_of(&mut self, point: Point, budget: &Budget) -> Result<(), Error> {
        let mut pace = budget.pace();
        let net = self.net;
        let order = self.upstream.finish(
            point.0,
            |point, next| {
                let links = net.links(Point(point), false).iter();
                next.extend(links.filter_map(|link| net.next(*link, false)).map(|point| point.0));
            },
            &mut pace,
        );
        for point in order.map_err(|stopped| self.circle(stopped))? {
            let mut upstream = Upstream::default();
            for link in self.net.links(Point(point), false) {
                let mut before = self.before(*link);
                if upstream.mergers.len() as u64 + before.len() as u64 > self.most {
                    return Err(self.too_many());
                }
                upstream.mergers.append(&mut before);
                upstream.fed_by_merger |= match (link.to, self.net.next(*link, false)) {
                    (LinkTarget::Merger(_), _) => true,
                    (LinkTarget::Operator(_), Some(point)) => self.upstream.value(point.0).fed_by_merger,
                    _ => false,
                };
            }
            self.remembered += upstream.mergers.len() as u64;
            if self.remembered > self.most {
                return Err(self.too_many());
            }
            self.upstream.set(point, upstream);
        }
        Ok(())
    }

    /// Regions of the mergers on the way upstream from a link (rule expansion-19).
    fn before(&self, link: Link) -> Vec<usize> {
        let mut mergers = Vec::new();
        if let LinkTarget::Merger(id) = link.to {
            mergers.push(self.shape.mergers[id].region);
        }
        if let Some(point) = self.net.next(link, false) {
            mergers.extend_from_slice(&self.upstream.value(point.0).mergers);
        }
        mergers
    }

    fn circle(&self, stopped: SearchFailure) -> Error {
        match stopped {
            SearchFailure::Budget(error) => error,
            SearchFailure::Circle(point) => {
                let operator = &self.shape.application.operators[self.context(Point(point)).1];
                let name = excerpt(&operator.logical_name);
                let message = format!("{name}: connections between composites lead in a circle");
                Problem::new(Stage::Topology, message).code(code::INCONSISTENT).at(operator.place).into()
            }
        }
    }

    fn too_many(&self) -> Error {
        let message = format!("the connections of the application multiply beyond the limit of {}", self.most);
        Problem::new(Stage::Topology, message).into()
    }
}

impl Reach {
    /// Whether a walk goes on from here. Behind other ends there is nothing to make.
    fn leads_on(&self) -> bool {
        self.connections > 0 || self.splitters > 0 || self.exports
    }

    /// Adds an end, and the step to it.
    fn end(&mut self, end: End) {
        self.ends.push(end);
        self.steps = self.steps.saturating_add(1);
    }

    /// Adds the steps of what is behind an end, `times` over.
    fn enter(&mut self, behind: &Self, times: u32) {
        if behind.leads_on() {
            self.steps = self.steps.saturating_add(behind.steps.saturating_mul(times.into()));
        }
    }

    /// Adds the numbers of what is behind, `times` over.
    fn merge(&mut self, behind: &Self, times: u32, transparent: bool) {
        let times = u64::from(times);
        let add = |to: &mut u64, from: u64| *to = to.saturating_add(from.saturating_mul(times));
        add(&mut self.connections, behind.connections);
        add(&mut self.splitters, behind.splitters);
        add(&mut self.nested_splitters, behind.nested_splitters);
        add(&mut self.channels, behind.channels);
        self.depth = self.depth.max(behind.depth);
        if transparent {
            add(&mut self.destinations, behind.destinations);
            self.exports |= behind.exports;
        }
    }

    /// Adds a splitter that has what is behind in each of its channels. Those splitters were added before.
    fn add_splitter(&mut self, behind: &Self, width: u32) {
        let add = |to: &mut u64, more: u64| *to = to.saturating_add(more);
        add(&mut self.splitters, 1);
        // Each splitter behind is now under one more.
        add(&mut self.nested_splitters, behind.splitters.saturating_mul(width.into()).saturating_add(1));
        add(&mut self.channels, width.into());
        self.depth = self.depth.max(behind.depth + 1);
    }
}

/// Depth-first search over points, with a memory.
struct PointSearch<T> {
    states: Vec<PointState<T>>,
    nothing: T,
}

enum PointState<T> {
    Unknown,
    /// On the path of the search.
    Open,
    /// All points behind it are known.
    Ready,
    Known(T),
}

/// Why a search ended early. It marks the points on its path as having nothing behind them, so that each circle is
/// reported once.
enum SearchFailure {
    Circle(usize),
    Budget(Error),
}

impl<T: Default> PointSearch<T> {
    fn new(points: usize) -> Self {
        Self { states: std::iter::repeat_with(|| PointState::Unknown).take(points).collect(), nothing: T::default() }
    }

    fn set(&mut self, point: usize, value: T) {
        if let Some(state) = self.states.get_mut(point) {
            *state = PointState::Known(value);
        }
    }

    fn value(&self, point: usize) -> &T {
        match self.states.get(point) {
            Some(PointState::Known(value)) => value,
            _ => &self.nothing,
        }
    }

    /// The points behind `start` that are not known yet, and itself, each after all behind it.
    fn finish(
        &mut self,
        start: usize,
        mut successors: impl FnMut(usize, &mut Vec<usize>),
        pace: &mut Pace<'_>,
    ) -> Result<Vec<usize>, SearchFailure> {
        let mut order = Vec::new();
        let mut stack = vec![(start, false)];
        let mut next = Vec::new();
        while let Some((point, left)) = stack.pop() {
            pace.step().map_err(SearchFailure::Budget)?;
            let Some(state) = self.states.get_mut(point) else { continue };
            if left {
                *state = PointState::Ready;
                order.push(point);
            } else if let PointState::Unknown = state {
                *state = PointState::Open;
                stack.push((point, true));
                successors(point, &mut next);
                for point in next.drain(..).rev() {
                    match self.states.get(point) {
                        Some(PointState::Unknown) => stack.push((point, false)),
                        Some(PointState::Open) => {
                            for state in self.states.iter_mut().filter(|state| matches!(state, PointState::Open)) {
                                *state = PointState::Ready;
                            }
                            return Err(SearchFailure::Circle(point));
                        }
                        _ => {}
                    }
                }
            }
        }
        Ok(order)
    }
}
