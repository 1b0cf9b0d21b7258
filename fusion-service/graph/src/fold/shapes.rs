//! What is alike in an outline, and how much is inside of what.

use super::super::drawing::{ClusterId, Mark, Node, NodeId, NodeKind};
use super::super::outline::Outline;
use cranelift_entity::SecondaryMap;
use std::collections::HashMap;

/// What folding compares: made once.
pub(super) struct Shapes {
    pub(super) clusters: SecondaryMap<ClusterId, u32>,
    pub(super) nodes: SecondaryMap<NodeId, u32>,
    pub(super) inside: SecondaryMap<ClusterId, Inside>,
    /// Clusters around.
    pub(super) depth: SecondaryMap<ClusterId, usize>,
}

/// Numbers of what is inside a cluster, or a node itself.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Inside {
    pub(super) nodes: usize,
    pub(super) operators: usize,
    /// Operators that a resize adds.
    pub(super) added: usize,
    /// Operators that it removes.
    pub(super) removed: usize,
}

impl Inside {
    pub(super) fn of(node: &Node) -> Self {
        let operator = usize::from(node.kind == NodeKind::Operator);
        let marked = |mark| if node.mark == Some(mark) { operator } else { 0 };
        Self { nodes: 1, operators: operator, added: marked(Mark::Added), removed: marked(Mark::Removed) }
    }

    fn add(&mut self, other: Self) {
        self.nodes += other.nodes;
        self.operators += other.operators;
        self.added += other.added;
        self.removed += other.removed;
    }
}

impl Shapes {
    pub(super) fn of(outline: &Outline) -> Self {
        let mut known: HashMap<Vec<u64>, u32> = HashMap::new();
        let mut intern = |shape: Vec<u64>| -> u32 {
            let next = known.len() as u32;
            *known.entry(shape).or_insert(next)
        };
        let mark = |mark: Option<Mark>| mark.map_or(0, |mark| mark as u64 + 1);
        let mut shapes = Self {
            clusters: SecondaryMap::with_capacity(outline.clusters.len()),
            nodes: SecondaryMap::with_capacity(outline.nodes.len()),
            inside: SecondaryMap::with_capacity(outline.clusters.len()),
            depth: SecondaryMap::with_capacity(outline.clusters.len()),
        };
        let mut inside: SecondaryMap<ClusterId, Vec<u32>> = SecondaryMap::with_capacity(outline.clusters.len());
        for (id, node) in &outline.nodes {
            let shape = intern(vec![0, node.item.kind as u64, node.origin, mark(node.item.mark)]);
            shapes.nodes[id] = shape;
            if let Some(parent) = node.item.parent {
                inside[parent].push(shape);
                shapes.inside[parent].add(Inside::of(&node.item));
            }
        }
        for (id, cluster) in &outline.clusters {
            shapes.depth[id] = cluster.item.parent.map_or(0, |parent| shapes.depth[parent] + 1);
        }
        // Those inside come later.
        for (id, cluster) in outline.clusters.iter().rev() {
            let mut children = std::mem::take(&mut inside[id]);
            children.sort_unstable();
            let own = [1, cluster.item.kind as u64, cluster.origin, mark(cluster.item.mark)];
            let shape = intern(own.into_iter().chain(children.into_iter().map(u64::from)).collect());
            shapes.clusters[id] = shape;
            if let Some(parent) = cluster.item.parent {
                inside[parent].push(shape);
                let own = shapes.inside[id];
                shapes.inside[parent].add(own);
            }
        }
        shapes
    }
}
