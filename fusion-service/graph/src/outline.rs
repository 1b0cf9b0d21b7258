//! Everything that could be drawn, before folding makes it fit.
//!
//! An outline has the clusters and nodes of a [`super::Drawing`]. It adds the origin of each in the application and its
//! number among members of the same origin. Connections are not stored, because there may be millions: the view walks
//! through them. Views make outlines, [`super::fold`] draws them.

use super::drawing::{Cluster, ClusterId, ClusterKind, Mark, Node, NodeId, NodeKind};
use cranelift_entity::{PrimaryMap, SecondaryMap};
use std::collections::HashMap;

/// All that a view could draw.
#[derive(Debug, Default)]
pub(super) struct Outline {
    pub(super) clusters: PrimaryMap<ClusterId, Outlined<Cluster>>,
    pub(super) nodes: PrimaryMap<NodeId, Outlined<Node>>,
    places: HashMap<(Option<ClusterId>, ClusterKey), ClusterId>,
    texts: HashMap<String, u64>,
}

/// A cluster or node with what folding needs to know.
#[derive(Debug)]
pub(super) struct Outlined<T> {
    pub(super) item: T,
    /// Things of one kind beside each other are alike if this and all that is inside agree.
    pub(super) origin: u64,
    /// Which of its like it is: channel, PE id.
    pub(super) number: Option<u64>,
    /// Of a cluster, the mark that all operators inside have; of a node its own.
    pub(super) inside: Option<Mark>,
}

/// What a cluster stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum ClusterKey {
    /// A composite, by ADL index.
    Composite(u64),
    /// A region, by ADL index.
    Region(u64),
    /// A channel of a region.
    Channel(u64, u32),
    /// A PE, by id.
    Element(u64),
}

impl ClusterKey {
    fn kind(self) -> ClusterKind {
        match self {
            Self::Composite(_) => ClusterKind::Composite,
            Self::Region(_) => ClusterKind::Region,
            Self::Channel(..) => ClusterKind::Channel,
            Self::Element(_) => ClusterKind::Element,
        }
    }

    fn origin(self) -> u64 {
        match self {
            Self::Composite(index) | Self::Region(index) | Self::Channel(index, _) => index,
            // PEs are alike if their operators are.
            Self::Element(_) => 0,
        }
    }

    fn number(self) -> Option<u64> {
        match self {
            Self::Composite(_) | Self::Region(_) => None,
            Self::Channel(_, channel) => Some(channel.into()),
            Self::Element(id) => Some(id),
        }
    }
}

/// A connection of an outline.
#[derive(Clone, Copy, Debug)]
pub(super) struct Connection {
    pub(super) source: NodeId,
    pub(super) source_port: u32,
    pub(super) target: NodeId,
    pub(super) target_port: u32,
    pub(super) split: bool,
    pub(super) when: When,
}

/// When a connection exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum When {
    /// Before the resize.
    Before,
    /// After it, or there is none.
    Now,
}

impl Outline {
    /// The cluster of this key within `parent`; made, with what `describe` says about it, where it is not there.
    pub(super) fn cluster(
        &mut self,
        parent: Option<ClusterId>,
        key: ClusterKey,
        describe: impl FnOnce() -> Description,
    ) -> ClusterId {
        *self.places.entry((parent, key)).or_insert_with(|| {
            let Description { label, details, tooltip, mark } = describe();
            let item = Cluster { parent, kind: key.kind(), label, details, tooltip, mark };
            self.clusters.push(Outlined { item, origin: key.origin(), number: key.number(), inside: None })
        })
    }

    /// Adds a node.
    pub(super) fn node(&mut self, item: Node, origin: u64, number: Option<u64>) -> NodeId {
        let inside = item.mark;
        self.nodes.push(Outlined { item, origin, number, inside })
    }

    /// The cluster that is around the PE that `inner` is in, or is; `inner` itself outside of PEs.
    pub(super) fn outside_element(&self, inner: Option<ClusterId>) -> Option<ClusterId> {
        let around = std::iter::successors(inner, |&cluster| self.clusters[cluster].item.parent);
        let element = around.into_iter().find(|&cluster| self.clusters[cluster].item.kind == ClusterKind::Element);
        element.map_or(inner, |element| self.clusters[element].item.parent)
    }

    /// Marks clusters that have no mark of their own: as added or removed if everything inside is.
    pub(super) fn derive_marks(&mut self) {
        let mut inside: SecondaryMap<ClusterId, Option<Inside>> = SecondaryMap::with_capacity(self.clusters.len());
        // Imports and exports do not run: they are never restarted.
        for node in self.nodes.values().filter(|node| node.item.kind == NodeKind::Operator) {
            if let Some(parent) = node.item.parent {
                inside[parent] = Some(Inside::and(inside[parent], node.item.mark));
            }
        }
        for (id, cluster) in self.clusters.iter_mut().rev() {
            let Some(Inside(mark)) = inside[id] else { continue };
            cluster.inside = mark;
            if cluster.item.kind != ClusterKind::Element {
                cluster.item.mark = mark.filter(|mark| matches!(mark, Mark::Added | Mark::Removed));
            }
            if let Some(parent) = cluster.item.parent {
                inside[parent] = Some(Inside::and(inside[parent], mark));
            }
        }
    }

    /// A number for a text: the same for the same.
    pub(super) fn text(&mut self, text: &str) -> u64 {
        let next = self.texts.len() as u64;
        *self.texts.entry(text.to_owned()).or_insert(next)
    }
}

/// The mark of all that is inside a cluster, if it is the same.
#[derive(Clone, Copy)]
struct Inside(Option<Mark>);

impl Inside {
    fn and(known: Option<Self>, mark: Option<Mark>) -> Self {
        match known {
            None => Self(mark),
            Some(Self(known)) => Self(known.filter(|known| Some(*known) == mark)),
        }
    }
}

/// What is written at a cluster.
#[derive(Debug, Default)]
pub(super) struct Description {
    pub(super) label: String,
    pub(super) details: Vec<String>,
    pub(super) tooltip: Vec<String>,
    pub(super) mark: Option<Mark>,
}
