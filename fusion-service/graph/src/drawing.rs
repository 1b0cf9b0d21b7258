//! A drawing: nodes with ports, edges, clusters in clusters, and marks for what a resize does. It has neither
//! coordinates nor a format.
//!
//! Invariants: a cluster comes after the cluster around it; every cluster holds a node, itself or in a cluster inside;
//! edges are sorted, one per pair of ports; texts are printable (see [`super::text::printable`]).

use cranelift_entity::{EntityRef, PrimaryMap, entity_impl};

/// A cluster of a [`Drawing`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClusterId(u32);
entity_impl!(ClusterId, "cluster");

/// A node of a [`Drawing`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(u32);
entity_impl!(NodeId, "node");

/// A picture of an application.
#[derive(Clone, Debug)]
pub struct Drawing {
    /// What it shows, in one line.
    pub title: String,
    /// More about it: numbers, and what was left out.
    pub notes: Vec<String>,
    /// Clusters; those around come first.
    pub clusters: PrimaryMap<ClusterId, Cluster>,
    /// Nodes.
    pub nodes: PrimaryMap<NodeId, Node>,
    /// Edges, sorted.
    pub edges: Vec<Edge>,
}

/// A box around nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cluster {
    /// The cluster around it.
    pub parent: Option<ClusterId>,
    /// What it stands for.
    pub kind: ClusterKind,
    /// Its name.
    pub label: String,
    /// Short remarks, a line each.
    pub details: Vec<String>,
    /// What else there is to say, a line each.
    pub tooltip: Vec<String>,
    /// What a resize does to it.
    pub mark: Option<Mark>,
}

/// Kinds of clusters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ClusterKind {
    /// A composite operator.
    Composite,
    /// A parallel region.
    Region,
    /// A channel of a parallel region.
    Channel,
    /// A PE.
    Element,
}

/// A box.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// The cluster that it is in.
    pub parent: Option<ClusterId>,
    /// What it stands for.
    pub kind: NodeKind,
    /// Its name.
    pub label: String,
    /// Short remarks, a line each.
    pub details: Vec<String>,
    /// What else there is to say, a line each.
    pub tooltip: Vec<String>,
    /// What a resize does to it.
    pub mark: Option<Mark>,
    /// Number of input ports; 1 for many.
    pub inputs: u32,
    /// Number of output ports; 1 for many.
    pub outputs: u32,
}

/// An operator with more ports on a side is drawn with one for all of them.
pub(super) const MOST_PORTS: u32 = 10;

/// Kinds of nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum NodeKind {
    /// A primitive operator.
    Operator,
    /// An Import: streams of other jobs.
    Import,
    /// An Export: streams for other jobs.
    Export,
    /// Several members of a cluster that are not drawn one by one.
    Folded,
    /// A PE that is removed because its operators are in others now.
    Element,
}

/// What a resize does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Mark {
    /// Goes on running.
    Kept,
    /// Runs in a PE that is replaced.
    Restarted,
    /// New.
    Added,
    /// Gone.
    Removed,
}

impl Mark {
    /// All marks, in the order of a legend.
    pub const ALL: [Self; 4] = [Self::Kept, Self::Restarted, Self::Added, Self::Removed];

    /// The word for it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Kept => "kept",
            Self::Restarted => "restarted",
            Self::Added => "added",
            Self::Removed => "removed",
        }
    }

    /// A sign for it that needs no colour.
    pub fn sign(self) -> char {
        match self {
            Self::Kept => '=',
            Self::Restarted => '~',
            Self::Added => '+',
            Self::Removed => '\u{2212}',
        }
    }
}

/// A port of a node, by position.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct End {
    /// Node.
    pub node: NodeId,
    /// Position among its inputs or outputs.
    pub port: u32,
}

/// A stream from an output port to an input port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Edge {
    /// Where it begins.
    pub source: End,
    /// Where it ends.
    pub target: End,
    /// What a resize does to it: never restarted.
    pub mark: Option<Mark>,
    /// It leaves through a splitter.
    pub split: bool,
    /// Number of connections that it stands for.
    pub count: u32,
}

impl Cluster {
    /// Its label and, in a difference, a word for what becomes of it.
    pub fn heading(&self) -> String {
        match self.mark {
            Some(mark) => format!("{} · {} {}", self.label, mark.sign(), mark.word()),
            None => self.label.clone(),
        }
    }
}

impl Node {
    /// Its label and, in a difference, a sign for what becomes of it.
    pub fn heading(&self) -> String {
        match self.mark {
            Some(mark) => format!("{} {}", mark.sign(), self.label),
            None => self.label.clone(),
        }
    }
}

impl Drawing {
    /// Clusters around a cluster or node whose cluster is `inner`, from the inside out, `inner` included.
    pub fn around(&self, inner: Option<ClusterId>) -> impl Iterator<Item = ClusterId> + '_ {
        std::iter::successors(inner, |&cluster| self.clusters[cluster].parent)
    }

    /// Whether it shows a resize.
    pub fn is_difference(&self) -> bool {
        self.nodes.values().any(|node| node.mark.is_some())
    }
}

/// A cluster or a node, as a member of the cluster around it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Member {
    Cluster(ClusterId),
    Node(NodeId),
}

/// The members of each cluster, in order.
#[derive(Debug)]
pub(super) struct Contents {
    clusters: Vec<Vec<ClusterId>>,
    nodes: Vec<Vec<NodeId>>,
}

impl Contents {
    pub(super) fn of(drawing: &Drawing) -> Self {
        let count = drawing.clusters.len() + 1;
        let mut contents = Self { clusters: vec![Vec::new(); count], nodes: vec![Vec::new(); count] };
        for (id, cluster) in &drawing.clusters {
            contents.clusters[slot(cluster.parent)].push(id);
        }
        for (id, node) in &drawing.nodes {
            contents.nodes[slot(node.parent)].push(id);
        }
        contents
    }

    /// Clusters in a cluster, or at the outside.
    pub(super) fn clusters(&self, within: Option<ClusterId>) -> &[ClusterId] {
        &self.clusters[slot(within)]
    }

    /// Nodes in a cluster, or at the outside.
    pub(super) fn nodes(&self, within: Option<ClusterId>) -> &[NodeId] {
        &self.nodes[slot(within)]
    }
}

/// What a walk through nested clusters comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Visit {
    Begin(ClusterId),
    Node(NodeId),
    End,
}

/// Walks through all clusters and nodes as they are nested, with the depth of each step. Clusters may be nested as deep
/// as composites are: nothing recurses.
pub(super) fn walk(drawing: &Drawing, mut visit: impl FnMut(Visit, usize)) {
    let contents = Contents::of(drawing);
    contents.nodes(None).iter().for_each(|&node| visit(Visit::Node(node), 0));
    let mut open = vec![contents.clusters(None).iter()];
    while let Some(clusters) = open.last_mut() {
        let Some(&cluster) = clusters.next() else {
            open.pop();
            if let Some(depth) = open.len().checked_sub(1) {
                visit(Visit::End, depth);
            }
            continue;
        };
        visit(Visit::Begin(cluster), open.len() - 1);
        contents.nodes(Some(cluster)).iter().for_each(|&node| visit(Visit::Node(node), open.len()));
        open.push(contents.clusters(Some(cluster)).iter());
    }
}

/// 0 is the outside.
fn slot(cluster: Option<ClusterId>) -> usize {
    cluster.map_or(0, |cluster| cluster.index() + 1)
}
