//! Makes the outlines of an application as it runs: operators in composites and channels, or operators in PEs.

use super::boundary::Boundary;
use super::drawing::{ClusterId, Mark, Node, NodeId, NodeKind};
use super::fold::fold;
use super::outline::{ClusterKey, Connection, Description, Outline};
use super::subject::{DrawnOperator, Element, Subject};
use super::text::{last_part, long, shortened, wrapped};
use super::{Drawing, DrawingLimits};
use std::collections::{BTreeMap, BTreeSet};
use streams_compiler::budget::Budget;
use streams_compiler::error::Error;
use streams_compiler::fuser::PeId;
use streams_compiler::logical::{Application, OperatorId};
use streams_compiler::phrase::counted;
use streams_compiler::plan::Placement;
use streams_compiler::topology::PhysicalOperator;

/// The physical graph: composites, regions and channels around operators.
pub(super) fn physical(subject: &Subject<'_>, limits: DrawingLimits, budget: &Budget) -> Result<Drawing, Error> {
    draw(subject, "physical graph", limits, budget, Vec::new(), |outline, drawn| {
        let mut around = None;
        for enclosure in enclosures(subject, drawn.operator) {
            around = Some(match enclosure {
                Enclosure::Composite(id) => {
                    let composite = &subject.application().operators[id];
                    outline.cluster(around, ClusterKey::Composite(composite.index), || Description {
                        label: super::text::short(&composite.name),
                        tooltip: vec![long(&composite.logical_name)],
                        ..Description::default()
                    })
                }
                Enclosure::Region(region) => region_cluster(outline, around, subject, region),
                Enclosure::Channel(region, channel) => channel_cluster(outline, around, region, channel),
            });
        }
        around
    })
}

/// The fused graph: PEs around operators, and regions and channels around PEs where no PE has operators of several,
/// inside of PEs otherwise.
pub(super) fn fused(subject: &Subject<'_>, limits: DrawingLimits, budget: &Budget) -> Result<Drawing, Error> {
    let shared = shared_regions(subject);
    draw(subject, "fused graph", limits, budget, empty_elements(subject), |outline, drawn| {
        let (mut outside, mut inside) = (Vec::new(), Vec::new());
        for enclosure in enclosures(subject, drawn.operator) {
            match enclosure {
                Enclosure::Composite(_) => {}
                Enclosure::Region(region) if !shared.contains(&region) => outside.push(enclosure),
                // Its channels say what region they are of.
                Enclosure::Region(_) => {}
                Enclosure::Channel(region, _) if !shared.contains(&region) => outside.push(enclosure),
                Enclosure::Channel(..) => inside.push(enclosure),
            }
        }
        let mut around = None;
        for enclosure in outside {
            around = match enclosure {
                Enclosure::Composite(_) => around,
                Enclosure::Region(region) => Some(region_cluster(outline, around, subject, region)),
                Enclosure::Channel(region, channel) => Some(channel_cluster(outline, around, region, channel)),
            };
        }
        let id = drawn.element;
        around = Some(
            outline
                .cluster(around, ClusterKey::Element(id), || describe_element(subject, id, subject.elements.get(&id))),
        );
        for enclosure in inside {
            let Enclosure::Channel(region, channel) = enclosure else { continue };
            around = Some(outline.cluster(around, ClusterKey::Channel(region, channel), || {
                let name = subject.region(region).map_or("", |region| region.name.as_str());
                Description {
                    label: format!("{}[{channel}]", shortened(last_part(name, "."), 20)),
                    tooltip: vec![format!("channel {channel} of {}", long(name))],
                    ..Description::default()
                }
            }));
        }
        around
    })
}

fn draw(
    subject: &Subject<'_>,
    view: &str,
    limits: DrawingLimits,
    budget: &Budget,
    others: Vec<Node>,
    mut place: impl FnMut(&mut Outline, &DrawnOperator<'_>) -> Option<ClusterId>,
) -> Result<Drawing, Error> {
    let mut outline = Outline::default();
    let mut nodes: Vec<NodeId> = Vec::with_capacity(subject.operators.len());
    let mut boundary = Boundary::default();
    let mut pace = budget.pace();
    for drawn in &subject.operators {
        pace.step()?;
        let parent = place(&mut outline, drawn);
        let operator = drawn.operator;
        let node = subject.node(drawn, last_part(&operator.name, "."));
        let written = &subject.application().operators[operator.logical];
        // Of a parallel primitive, the last channel is in its own name.
        let own = subject.region_of(written.index).is_some();
        let number = operator.channels.first().filter(|_| own).map(|channel| u64::from(channel.local));
        let node = outline.node(Node { parent, ..node }, written.index, number);
        nodes.push(node);
        boundary.note(subject, drawn, node, outline.outside_element(parent));
    }
    boundary.add_nodes(subject, &mut outline);
    for node in others {
        outline.node(node, 0, None);
    }
    outline.derive_marks();
    budget.check()?;
    let connections = |to: &mut dyn FnMut(Connection)| {
        subject.connections(&nodes, to);
        boundary.connections(to);
    };
    fold(&outline, &connections, subject.title(view), subject.notes(), limits, budget)
}

/// What is around an operator, step by step.
#[derive(Clone, Copy, Debug)]
enum Enclosure {
    Composite(OperatorId),
    /// ADL index.
    Region(u64),
    /// ADL index, channel. Only of parallel composites: the one operator of a parallel primitive needs no box.
    Channel(u64, u32),
}

/// Outermost first.
fn enclosures(subject: &Subject<'_>, operator: &PhysicalOperator) -> Vec<Enclosure> {
    let application = subject.application();
    let mut enclosures = Vec::new();
    if let Some(region) = subject.region_of(application.operators[operator.logical].index) {
        enclosures.push(Enclosure::Region(region.index));
    }
    for owner in owners(application, operator.logical) {
        let region = subject.region_of(application.operators[owner].index);
        let channel = region.and_then(|region| operator.channels.iter().find(|c| c.region == region.index));
        match channel {
            Some(channel) => {
                enclosures.push(Enclosure::Channel(channel.region, channel.local));
                enclosures.push(Enclosure::Region(channel.region));
            }
            None => enclosures.push(Enclosure::Composite(owner)),
        }
    }
    enclosures.reverse();
    enclosures
}

/// Composites around an operator without the main one, from the inside out.
pub(super) fn owners(application: &Application, operator: OperatorId) -> impl Iterator<Item = OperatorId> + '_ {
    std::iter::successors(application.operators[operator].owner, |&owner| application.operators[owner].owner)
        .filter(|&owner| owner != application.main)
}

/// Regions of which some PE has operators of more than one channel, or others too; with all regions inside.
fn shared_regions(subject: &Subject<'_>) -> BTreeSet<u64> {
    type Channels = Vec<(u64, u32)>;
    let outermost_first = |drawn: &DrawnOperator<'_>| -> Channels {
        drawn.operator.channels.iter().rev().map(|channel| (channel.region, channel.local)).collect()
    };
    // What the channels of all operators of a PE begin with.
    let mut common: BTreeMap<PeId, Channels> = BTreeMap::new();
    for drawn in &subject.operators {
        let channels = outermost_first(drawn);
        common
            .entry(drawn.element)
            .and_modify(|common| {
                let same = common.iter().zip(&channels).take_while(|(a, b)| a == b).count();
                common.truncate(same);
            })
            .or_insert(channels);
    }
    let mut shared = BTreeSet::new();
    for drawn in &subject.operators {
        let own = common.get(&drawn.element).map_or(0, Vec::len);
        shared.extend(drawn.operator.channels.iter().rev().skip(own).map(|channel| channel.region));
    }
    for drawn in &subject.operators {
        let regions = drawn.operator.channels.iter().rev().map(|channel| channel.region);
        shared.extend(regions.skip_while(|region| !shared.contains(region)).collect::<Vec<_>>());
    }
    shared
}

fn region_cluster(outline: &mut Outline, around: Option<ClusterId>, subject: &Subject<'_>, region: u64) -> ClusterId {
    outline.cluster(around, ClusterKey::Region(region), || subject.describe_region(region))
}

fn channel_cluster(outline: &mut Outline, around: Option<ClusterId>, region: u64, channel: u32) -> ClusterId {
    outline.cluster(around, ClusterKey::Channel(region, channel), || Description {
        label: format!("channel {channel}"),
        ..Description::default()
    })
}

fn describe_element(subject: &Subject<'_>, id: PeId, element: Option<&Element<'_>>) -> Description {
    let mut details = Vec::new();
    let mut tooltip = Vec::new();
    let Some(element) = element else { return Description { label: format!("PE {id}"), ..Description::default() } };
    if let Some(placement) = element.placement {
        details.extend(describe_placement(subject, placement));
    }
    if let Some(reason) = element.reason.filter(|_| element.mark != Some(Mark::Added)) {
        let reason = reason.to_string();
        details.extend(wrapped(&reason, 2));
        tooltip.push(long(&reason));
    }
    tooltip.push(counted(element.operators, "operator"));
    if let Some(bytes) = element.bytes {
        tooltip.push(format!("document of {bytes} bytes"));
    }
    Description { label: format!("PE {id}"), details, tooltip, mark: element.mark }
}

/// PEs that are gone although all their operators are still there.
fn empty_elements(subject: &Subject<'_>) -> Vec<Node> {
    let drawn: BTreeSet<PeId> = subject.operators.iter().map(|drawn| drawn.element).collect();
    let empty = subject.elements.iter().filter(|(id, _)| !drawn.contains(id));
    let node = empty.map(|(id, element)| {
        let Description { label, details, tooltip, mark } = describe_element(subject, *id, Some(element));
        Node { parent: None, kind: NodeKind::Element, label, details, tooltip, mark, inputs: 0, outputs: 0 }
    });
    node.collect()
}

fn describe_placement(subject: &Subject<'_>, placement: &Placement) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(host) = &placement.host {
        lines.push(format!("host {}", shortened(host, 36)));
    }
    if let Some(location) = placement.pool {
        let pools = &subject.now.topology().host_pools;
        let pool = pools.iter().find(|pool| pool.index == location.pool);
        let name = pool.map_or_else(|| location.pool.to_string(), |pool| shortened(&pool.name, 30));
        lines.push(match location.in_pool {
            Some(at) => format!("host pool {name}[{at}]"),
            None => format!("host pool {name}"),
        });
    }
    if placement.isolation.is_some() {
        lines.push("host alone".to_owned());
    }
    for (ids, what) in [(&placement.co_locations, "same host as"), (&placement.ex_locations, "not on host of")] {
        if !ids.is_empty() {
            lines.push(format!("{what} {}", shortened(&ids.join(", "), 30)));
        }
    }
    lines
}
