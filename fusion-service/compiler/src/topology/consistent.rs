//! Consistent regions (rules expansion-28 and expansion-29).
//!
//! An annotation of a composite declares a region, and each operator enters it by an annotation of its own. The search
//! takes start operators in the order of the walk. Each global channel of a parallel start operator has a region of its
//! own. A region has all operators that are reached downstream from its start operators, up to end operators and to
//! autonomous operators. Regions that share an operator are merged and have the smallest of their indexes.
//!
//! The search follows no operator twice. A region that reaches an operator again is merged with the region of that
//! operator, which has everything downstream already. So the search follows each connection once, however many channels
//! start.
//!
//! Splitters and mergers count like operators: streams that meet in one share a region, even if all operators behind it
//! are autonomous. There is one in every channel of what is around it, also where no operator is. [`PassedEnds`] has
//! channels that are passed together as one range, because a broadcast leads into all channels of a region at once. It
//! counts what it keeps, and the steps to it (rule expansion-33).
//!
//! Knows: operators, connections, splitters and mergers. Must not know: PEs, what a region does while it runs.

use super::annotation_text::resolve;
use super::connect::ReachedPorts;
use super::copies::Copies;
use super::links::{End, Links, Reach};
use super::order::{Numbered, Order};
use super::shape::Shape;
use super::texts::TextBudget;
use super::{AnnotationValue, Connection, ConsistentRegion, Node, Parameters, ResolvedAnnotation};
use crate::budget::{Budget, Limits, Pace};
use crate::error::{Error, Place, Problem, Problems, Stage, code, excerpt};
use crate::logical;
use crate::logical::{ConsistentEntry, OperatorId, OperatorKind};
use cranelift_entity::{EntityRef, SecondaryMap};
use spl_expression::java_float;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;
use std::sync::Arc;

/// An operator's part in a region.
#[derive(Debug)]
pub(super) struct Membership {
    /// Index of the region after merging.
    pub(super) region: u64,
    /// Its `consistentRegionEntry`.
    pub(super) annotation: ResolvedAnnotation,
    is_start: bool,
    is_trigger: bool,
}

/// The regions of an application at its widths.
#[derive(Default)]
pub(super) struct ConsistentRegions {
    /// By index, ascending.
    pub(super) regions: Vec<ConsistentRegion>,
    /// By node.
    pub(super) members: SecondaryMap<Node, Option<Arc<Membership>>>,
}

/// A `consistentRegion` annotation.
struct Declaration<'a> {
    index: u64,
    composite: OperatorId,
    annotation: &'a logical::Annotation,
}

/// A region before merging.
struct FoundRegion {
    index: u64,
    /// Position of its declaration.
    declaration: usize,
    /// Another region that it was merged with.
    merged: usize,
    /// Operators as written that start it.
    starts: BTreeSet<OperatorId>,
}

/// The state of the search.
struct RegionSearch<'r, 'a> {
    shape: &'r Shape<'a>,
    parameters: &'r Parameters,
    declarations: Vec<Declaration<'a>>,
    /// Exports with an annotation to take part in a region that were not reached yet, and where they are.
    exports: BTreeMap<OperatorId, Place>,
    found: Vec<FoundRegion>,
    problems: Problems,
}

/// What the search reads besides the shape.
pub(super) struct SearchGraph<'r, 's, 'a> {
    /// What lies behind the ports of operators.
    pub(super) links: &'r Links<'s, 'a>,
    /// What the output ports of primitive operators reach.
    pub(super) ports: &'r ReachedPorts,
    /// Nodes of operators.
    pub(super) copies: &'r Copies,
    /// The operator and global channel of every node.
    pub(super) numbered: &'r Numbered,
    /// Sorted.
    pub(super) connections: &'r [Connection],
}

/// Finds the regions.
pub(super) fn find(
    shape: &Shape<'_>,
    order: &Order,
    parameters: &Parameters,
    graph: &SearchGraph<'_, '_, '_>,
    texts: &mut TextBudget,
    budget: &Budget,
) -> Result<ConsistentRegions, Error> {
    let SearchGraph { copies, numbered, connections, .. } = *graph;
    let application = shape.application;
    let takes_part = |id: OperatorId| entry(shape, id).is_some();
    if !application.operators.keys().any(takes_part) {
        return Ok(ConsistentRegions::default());
    }
    let mut search = RegionSearch {
        shape,
        parameters,
        declarations: declarations(application),
        exports: exports(application),
        found: Vec::new(),
        problems: Problems::default(),
    };
    check_entries(shape, &search.declarations, &mut search.problems);
    let mut pace = budget.pace();
    let starts = search.starts(order, &mut pace)?;
    let mut region_of: SecondaryMap<Node, Option<usize>> = SecondaryMap::new();
    for (id, channel, region) in &starts {
        if let Some(node) = copies.node(*id, *channel) {
            search.join(&mut region_of, node, *region);
        }
    }
    let mut first: Vec<usize> = Vec::with_capacity(numbered.len() + 1);
    for at in 0..=numbered.len() {
        let from = first.last().copied().unwrap_or_default();
        let rest = connections.get(from..).unwrap_or_default();
        first.push(from + rest.iter().take_while(|connection| connection.source.index() < at).count());
    }
    let mut followed: SecondaryMap<Node, bool> = SecondaryMap::new();
    let mut between = PassedEnds::new(&budget.limits);
    for (id, channel, region) in starts {
        let mut stack: Vec<Node> = copies.node(id, channel).into_iter().collect();
        while let Some(node) = stack.pop() {
            let at = node.index();
            let is_end = numbered.get(at).and_then(|(_, id, _)| entry(shape, *id)).is_none_or(|entry| entry.is_end);
            if is_end || std::mem::replace(&mut followed[node], true) {
                continue;
            }
            search.pass(graph, &mut between, node, region, &mut pace)?;
            let range = first.get(at).copied().unwrap_or_default()..first.get(at + 1).copied().unwrap_or_default();
            for connection in connections.get(range).unwrap_or_default() {
                pace.step()?;
                let target = connection.target;
                if numbered.get(target.index()).is_some_and(|(_, id, _)| takes_part(*id)) {
                    search.join(&mut region_of, target, region);
                    if !followed[target] {
                        stack.push(target);
                    }
                }
            }
        }
    }
    search.check_triggers(&mut pace)?;
    let regions = search.describe(numbered, &region_of, texts, &mut pace)?;
    search.problems.into_result().map(|()| regions)
}

/// The value of a step. Keeps its problem if it has none.
fn kept<T>(result: Result<T, Problem>, problems: &mut Problems) -> Option<T> {
    result.map_err(|problem| problems.push(problem)).ok()
}

/// The splitters and mergers that the search has passed, each with the global channels outside of it.
struct PassedEnds {
    /// (Splitter or merger, first channel of a range) -> (channel after the last one, a region that has passed it).
    /// Ranges of one splitter or merger have no channel in common.
    ranges: BTreeMap<(u32, u32), (u32, usize)>,
    /// Ranges that were added, and the most that may be.
    added: u64,
    most_added: u64,
    /// Ends that were looked at, and the most that may be.
    steps: u64,
    most_steps: u64,
}

impl PassedEnds {
    fn new(limits: &Limits) -> Self {
        let (most_added, most_steps) = (limits.passed_ends(), limits.steps());
        Self { ranges: BTreeMap::new(), added: 0, most_added, steps: 0, most_steps }
    }

    /// Counts the steps of a look at ends, before it. It is one step to find that there are none.
    fn look_at(&mut self, ends: &[End], pace: &mut Pace<'_>) -> Result<(), Error> {
        let steps = ends.len().max(1);
        self.steps = self.steps.saturating_add(steps as u64);
        if self.steps > self.most_steps {
            let most = self.most_steps;
            let message = format!("the search for consistent regions takes more than {most} steps at these widths");
            return Err(Problem::new(Stage::Topology, message).into());
        }
        pace.steps(u32::try_from(steps).unwrap_or(u32::MAX))
    }

    /// A region passes a splitter or merger in these channels. Adds those that nothing has passed before to `new`, and
    /// the regions that have passed the others to `met`: all of these are one region from now on.
    fn pass(
        &mut self,
        synthetic: u32,
        channels: Range<u32>,
        region: usize,
        (met, new): (&mut Vec<usize>, &mut Vec<Range<u32>>),
    ) -> Result<(), Error> {
        let (mut first, mut beyond) = (channels.start, channels.end);
        // Channels of the range before this one are still to be looked up. Ranges are met from the last to the first.
        let mut open = channels.end;
        while let Some((&(_, start), &(end, other))) = self.ranges.range((synthetic, 0)..(synthetic, open)).next_back()
            && end > channels.start
        {
            met.push(other);
            if start <= channels.start && end >= channels.end {
                return Ok(());
            }
            if end < open {
                new.push(end..open);
            }
            (first, beyond, open) = (first.min(start), beyond.max(end), start);
            self.ranges.remove(&(synthetic, start));
            if open <= channels.start {
                break;
            }
        }
        if open > channels.start {
            new.push(channels.start..open);
        }
        if !new.is_empty() {
            self.added += 1;
            if self.added > self.most_added {
                let most = self.most_added;
                let message =
                    format!("the consistent regions pass more than {most} splitters and mergers at these widths");
                return Err(Problem::new(Stage::Topology, message).into());
            }
        }
        self.ranges.insert((synthetic, first), (beyond, region));
        Ok(())
    }
}

/// Whether there is a splitter or merger among the ends.
fn is_synthetic(ends: &[End]) -> bool {
    ends.iter().any(|end| matches!(end, End::Splitter(_) | End::Merger(_)))
}

fn entry<'a>(shape: &Shape<'a>, id: OperatorId) -> Option<&'a ConsistentEntry> {
    match &shape.application.operators[id].kind {
        OperatorKind::Primitive(primitive) => primitive.consistent.as_ref(),
        _ => None,
    }
}

/// Declared regions; of equal indexes the last.
fn declarations(application: &logical::Application) -> Vec<Declaration<'_>> {
    let mut declarations: BTreeMap<u64, Declaration<'_>> = BTreeMap::new();
    for (composite, operator) in application.operators.iter() {
        if let OperatorKind::Composite(_) = operator.kind {
            for annotation in operator.annotations.iter().filter(|annotation| annotation.tag == "consistentRegion") {
                if let Some(index) = annotation.index() {
                    declarations.insert(index, Declaration { index, composite, annotation });
                }
            }
        }
    }
    declarations.into_values().collect()
}

fn exports(application: &logical::Application) -> BTreeMap<OperatorId, Place> {
    let exports = application.operators.iter().filter(|(_, operator)| matches!(operator.kind, OperatorKind::Export(_)));
    let entries =
        exports.flat_map(|(id, operator)| operator.annotations.iter().map(move |annotation| (id, annotation)));
    let entries = entries.filter(|(_, annotation)| annotation.tag == "consistentRegionEntry");
    entries.map(|(id, annotation)| (id, annotation.place)).collect()
}

fn find_declaration(declarations: &[Declaration<'_>], index: u64) -> Option<usize> {
    declarations.binary_search_by_key(&index, |declaration| declaration.index).ok()
}

/// Reports operators that enter regions which nothing declares. It also works for an application with other problems.
pub(super) fn check(shape: &Shape<'_>, problems: &mut Problems) {
    check_entries(shape, &declarations(shape.application), problems);
}

fn check_entries(shape: &Shape<'_>, declarations: &[Declaration<'_>], problems: &mut Problems) {
    for (id, operator) in shape.application.operators.iter() {
        if let Some(entry) = entry(shape, id)
            && find_declaration(declarations, entry.region).is_none()
        {
            let name = excerpt(&operator.logical_name);
            let message = format!("{name}: no composite declares the consistent region {}", entry.region);
            let problem = Problem::new(Stage::Topology, message).code(code::INCONSISTENT);
            problems.push(problem.at(entry.place));
        }
    }
}

impl<'r, 'a> RegionSearch<'r, 'a> {
    fn declaration(&self, index: u64) -> Option<usize> {
        find_declaration(&self.declarations, index)
    }

    /// Start operators in the order of the walk, with their regions: (operator, global channel, region).
    fn starts(&mut self, order: &Order, pace: &mut Pace<'_>) -> Result<Vec<(OperatorId, u32, usize)>, Error> {
        let shape = self.shape;
        let mut starts = Vec::new();
        for id in shape.application.operators.keys() {
            if let Some(entry) = entry(shape, id).filter(|entry| entry.is_start) {
                for channel in 0..shape.scopes[shape.scope_of[id]].channels {
                    starts.push((order.walk_position(shape, id, channel, pace)?, id, channel, entry.region));
                }
            }
        }
        starts.sort_unstable();
        let mut known: HashMap<(u64, u32), usize> = HashMap::new();
        for (declaration, declared) in self.declarations.iter().enumerate() {
            known.insert((declared.index, 0), self.found.len());
            let merged = self.found.len();
            self.found.push(FoundRegion { index: declared.index, declaration, merged, starts: BTreeSet::new() });
        }
        let mut next = self.found.len() as u64;
        let mut found = Vec::with_capacity(starts.len());
        for (_, id, channel, region) in starts {
            let Some(declaration) = self.declaration(region) else { continue };
            let at = *known.entry((region, channel)).or_insert_with(|| {
                while self.declarations.binary_search_by_key(&next, |declaration| declaration.index).is_ok() {
                    next += 1;
                }
                let merged = self.found.len();
                self.found.push(FoundRegion { index: next, declaration, merged, starts: BTreeSet::new() });
                next += 1;
                merged
            });
            self.found[at].starts.insert(id);
            found.push((id, channel, at));
        }
        Ok(found)
    }

    /// Puts an operator into a region. If it is in another one already, merges the two.
    fn join(&mut self, region_of: &mut SecondaryMap<Node, Option<usize>>, node: Node, region: usize) {
        match region_of[node] {
            None => region_of[node] = Some(region),
            Some(other) => self.merge(region, other),
        }
    }

    /// Puts the splitters and mergers between an operator and what it feeds into its region.
    fn pass(
        &mut self,
        graph: &SearchGraph<'_, '_, '_>,
        between: &mut PassedEnds,
        node: Node,
        region: usize,
        pace: &mut Pace<'_>,
    ) -> Result<(), Error> {
        let Some((_, id, channel)) = graph.numbered.get(node.index()) else { return Ok(()) };
        let mut open: Vec<(&[End], Range<u32>)> = Vec::new();
        for Reach { ends, .. } in graph.ports.outputs[*id].iter().flatten() {
            between.look_at(ends, pace)?;
            self.check_exports(ends);
            if is_synthetic(ends) {
                open.push((ends, *channel..*channel + 1));
            }
        }
        let (mut met, mut new) = (Vec::new(), Vec::new());
        while let Some((ends, channels)) = open.pop() {
            for end in ends {
                pace.step()?;
                // The splitter or merger by a number of its own, the channels outside of it, what is behind it, and in
                // how many channels that is for each channel outside.
                let (synthetic, outside, behind, times) = match end {
                    End::Port(..) | End::Export(_) => continue,
                    End::Splitter(id) => {
                        let width = self.shape.width(self.shape.splitters[*id].region);
                        (id.index(), channels.clone(), graph.links.splitter(*id), width)
                    }
                    End::Merger(id) => {
                        let width = self.shape.width(self.shape.mergers[*id].region);
                        let outside = channels.start / width..(channels.end - 1) / width + 1;
                        (self.shape.splitters.len() + id.index(), outside, graph.links.merger(*id), 1)
                    }
                };
                let synthetic = u32::try_from(synthetic).unwrap_or(u32::MAX);
                between.pass(synthetic, outside, region, (&mut met, &mut new))?;
                for other in met.drain(..) {
                    self.merge(region, other);
                }
                if new.is_empty() {
                    // The search has followed this splitter or merger before.
                    continue;
                }
                between.look_at(&behind.ends, pace)?;
                self.check_exports(&behind.ends);
                let goes_on = is_synthetic(&behind.ends);
                for outside in new.drain(..).filter(|_| goes_on) {
                    between.look_at(&behind.ends, pace)?;
                    open.push((&behind.ends, outside.start * times..outside.end * times));
                }
            }
        }
        Ok(())
    }

    /// An Export cannot take part in a region that it is reached from (rule expansion-28). It is told of once.
    fn check_exports(&mut self, ends: &[End]) {
        if self.exports.is_empty() {
            return;
        }
        for end in ends {
            let End::Export(id) = end else { continue };
            let Some(place) = self.exports.remove(id) else { continue };
            let name = excerpt(&self.shape.application.operators[*id].logical_name);
            let message = format!("{name}: an Export cannot take part in a consistent region");
            self.problems.push(Problem::new(Stage::Topology, message).code(code::INCONSISTENT).at(place));
        }
    }

    fn merge(&mut self, one: usize, other: usize) {
        let (one, other) = (self.root(one), self.root(other));
        if one == other {
            return;
        }
        let (stays, goes) = if self.found[one].index < self.found[other].index { (one, other) } else { (other, one) };
        self.found[goes].merged = stays;
    }

    /// The region that a region was merged into.
    fn root(&mut self, mut region: usize) -> usize {
        while self.found[region].merged != region {
            let next = self.found[region].merged;
            self.found[region].merged = self.found[next].merged;
            region = next;
        }
        region
    }

    /// An operator-driven region may have one logical start operator, in any number of channels (rule expansion-30).
    fn check_triggers(&mut self, pace: &mut Pace<'_>) -> Result<(), Error> {
        // Once for each declaration: channels are many, and so may be the values of its annotation.
        let mut driven = Vec::with_capacity(self.declarations.len());
        for declaration in 0..self.declarations.len() {
            driven.push(self.value(declaration, "trigger", pace)? == Some("operatorDriven"));
        }
        let mut starts: BTreeMap<(bool, u64), (BTreeSet<OperatorId>, bool, usize)> = BTreeMap::new();
        for at in 0..self.found.len() {
            pace.steps(1 + u32::try_from(self.found[at].starts.len()).unwrap_or(u32::MAX / 2))?;
            let root = self.root(at);
            let declaration = self.found[at].declaration;
            // Counts the start operators of all merged regions, and those of all channels of the same declaration.
            for key in [(false, root as u64), (true, self.declarations[declaration].index)] {
                let (all, any_driven, _) = starts.entry(key).or_insert((BTreeSet::new(), false, declaration));
                all.extend(&self.found[at].starts);
                *any_driven |= driven.get(declaration).copied().unwrap_or_default();
            }
        }
        let mut reported = BTreeSet::new();
        for (starts, driven, declaration) in starts.into_values() {
            if !driven || starts.len() < 2 || !reported.insert(declaration) {
                continue;
            }
            let declaration = &self.declarations[declaration];
            let names: Vec<&str> =
                starts.iter().map(|id| self.shape.application.operators[*id].logical_name.as_str()).collect();
            let message = format!(
                "the operator-driven consistent region {} has several start operators: {}",
                declaration.index,
                excerpt(&names.join(", "))
            );
            let problem = Problem::new(Stage::Topology, message).code(code::SEVERAL_STARTS);
            self.problems.push(problem.at(declaration.annotation.place));
        }
        Ok(())
    }

    /// A value of a declaration, if it has one. Many declarations may refer to one long submission-time value.
    fn value(&self, declaration: usize, key: &str, pace: &mut Pace<'_>) -> Result<Option<&'r str>, Error> {
        let annotation = self.declarations[declaration].annotation;
        pace.steps(1 + u32::try_from(annotation.values.len()).unwrap_or(u32::MAX / 2))?;
        let text = annotation.values.iter().rev().find(|(other, _)| other == key);
        Ok(text.and_then(|(_, text)| resolve(&self.parameters.bindings, text, annotation).ok()))
    }

    fn describe(
        &mut self,
        numbered: &Numbered,
        region_of: &SecondaryMap<Node, Option<usize>>,
        texts: &mut TextBudget,
        pace: &mut Pace<'_>,
    ) -> Result<ConsistentRegions, Error> {
        let mut regions: BTreeMap<u64, ConsistentRegion> = BTreeMap::new();
        let mut members: SecondaryMap<Node, Option<Arc<Membership>>> = SecondaryMap::new();
        let mut known: HashMap<(OperatorId, usize), Option<Arc<Membership>>> = HashMap::new();
        let mut timeouts: HashMap<usize, Option<[String; 2]>> = HashMap::new();
        for (at, (_, id, _)) in numbered.iter().enumerate() {
            pace.step()?;
            let node = Node::new(at);
            let Some(region) = region_of.get(node).copied().flatten().map(|region| self.root(region)) else { continue };
            let membership = match known.get(&(*id, region)) {
                Some(membership) => membership.clone(),
                None => {
                    let declaration = self.found[region].declaration;
                    let timeouts = match timeouts.get(&declaration) {
                        Some(timeouts) => Option::clone(timeouts),
                        None => {
                            let read = self.timeouts(declaration, pace)?;
                            timeouts.insert(declaration, read.clone());
                            read
                        }
                    };
                    let membership = match timeouts {
                        Some(timeouts) => self.membership((*id, region), timeouts, texts, pace)?.map(Arc::new),
                        None => None,
                    };
                    known.insert((*id, region), membership.clone());
                    membership
                }
            };
            let Some(membership) = membership else { continue };
            let declaration = &self.declarations[self.found[region].declaration];
            let described = regions.entry(membership.region).or_insert_with(|| ConsistentRegion {
                index: membership.region,
                logical_index: declaration.index,
                declaration: Some(declaration.composite),
                members: Vec::new(),
            });
            described.members.push((node, membership.is_start, membership.is_trigger));
            members[node] = Some(membership);
        }
        Ok(ConsistentRegions { regions: regions.into_values().collect(), members })
    }

    /// `drainTimeout` and `resetTimeout` as Java writes 32-bit floats. They may be submission-time values.
    fn timeouts(&mut self, declaration: usize, pace: &mut Pace<'_>) -> Result<Option<[String; 2]>, Error> {
        let mut read = |key: &str| -> Result<Option<String>, Error> {
            let text = self.value(declaration, key, pace)?;
            pace.steps(text.map_or(0, |text| u32::try_from(text.len() >> 5).unwrap_or(u32::MAX)))?;
            let number = text.and_then(|text| text.trim().parse::<f32>().ok());
            if number.is_none() {
                let Declaration { index, annotation, .. } = &self.declarations[declaration];
                let what = if text.is_some() { "is no number" } else { "is missing" };
                let message = format!("consistent region {index}: its {key} {what}");
                self.problems.push(Problem::new(Stage::Topology, message).at(annotation.place));
            }
            Ok(number.map(java_float))
        };
        let (drain, reset) = (read("drainTimeout")?, read("resetTimeout")?);
        Ok(drain.zip(reset).map(|(drain, reset)| [drain, reset]))
    }

    /// The annotation of an operator in a region (rule expansion-31).
    fn membership(
        &mut self,
        (id, region): (OperatorId, usize),
        timeouts: [String; 2],
        texts: &mut TextBudget,
        pace: &mut Pace<'_>,
    ) -> Result<Option<Membership>, Error> {
        let Some(entry) = entry(self.shape, id) else { return Ok(None) };
        let annotation =
            logical::Annotation { tag: "consistentRegionEntry".to_owned(), values: Vec::new(), place: entry.place };
        let index = self.found[region].index;
        let logical_index = self.declarations[self.found[region].declaration].index;
        let text = |text: &str| AnnotationValue::Text(text.to_owned());
        let [drain, reset] = timeouts;
        let mut values = vec![
            ("index".to_owned(), AnnotationValue::Text(index.to_string())),
            ("logicalIndex".to_owned(), AnnotationValue::Text(logical_index.to_string())),
            ("drainTimeout".to_owned(), AnnotationValue::Text(drain)),
            ("resetTimeout".to_owned(), AnnotationValue::Text(reset)),
        ];
        values.extend(entry.is_start.then(|| ("isStartOfRegion".to_owned(), text("true"))));
        values.extend(entry.is_end.then(|| ("isEndOfRegion".to_owned(), text("true"))));
        let bindings = &self.parameters.bindings;
        let mut is_trigger = false;
        let problems = &mut self.problems;
        for (key, value) in &entry.values {
            pace.step()?;
            let Some(value) = kept(resolve(bindings, value, &annotation), problems) else { return Ok(None) };
            is_trigger |= key == "isTriggerOperator" && value == "true";
            texts.charge(key.len() + value.len() + TextBudget::PER_TEXT)?;
            values.push((key.clone(), AnnotationValue::Text(value.to_owned())));
        }
        if !entry.autonomous_inputs.is_empty() {
            let mut ports = Vec::with_capacity(entry.autonomous_inputs.len());
            for port in &entry.autonomous_inputs {
                pace.step()?;
                let Some(port) = kept(resolve(bindings, port, &annotation), problems) else { return Ok(None) };
                texts.charge(port.len() + TextBudget::PER_TEXT)?;
                ports.push(AnnotationValue::Text(port.to_owned()));
            }
            values.push(("autonomousInputPort".to_owned(), AnnotationValue::List(ports)));
        }
        let annotation = ResolvedAnnotation { tag: annotation.tag, values };
        Ok(Some(Membership { region: index, annotation, is_start: entry.is_start, is_trigger }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(streams_test_support::property_cases(256))]

        /// Ranges are the same as a map of channels.
        #[test]
        fn passed_channels(passes in prop::collection::vec((0..2_u32, 0..20_u32, 1..8_u32), 1..24)) {
            let mut ranges = PassedEnds::new(&Limits::default());
            let mut channels: HashMap<(u32, u32), usize> = HashMap::new();
            // What is one region, by ranges and by channels.
            let mut one: [Vec<usize>; 2] = [(0..passes.len()).collect(), (0..passes.len()).collect()];
            let merge = |labels: &mut Vec<usize>, a: usize, b: usize| {
                let (kept, gone) = (labels[a].min(labels[b]), labels[a].max(labels[b]));
                labels.iter_mut().filter(|label| **label == gone).for_each(|label| *label = kept);
            };
            for (region, &(synthetic, start, count)) in passes.iter().enumerate() {
                let (mut met, mut new) = (Vec::new(), Vec::new());
                ranges.pass(synthetic, start..start + count, region, (&mut met, &mut new)).unwrap();
                met.into_iter().for_each(|other| merge(&mut one[0], region, other));
                let mut vacant = Vec::new();
                for channel in start..start + count {
                    match channels.get(&(synthetic, channel)) {
                        Some(other) => merge(&mut one[1], region, *other),
                        None => vacant.push(channel),
                    }
                }
                channels.extend(vacant.iter().map(|channel| ((synthetic, *channel), region)));
                let mut new: Vec<u32> = new.into_iter().flatten().collect();
                new.sort_unstable();
                prop_assert_eq!(new, vacant);
                prop_assert_eq!(&one[0], &one[1]);
            }
        }
    }
}
