//! Tests of fusion as a whole: examples worked out by hand, and properties of generated applications.

mod decisions;
mod errors;
mod examples;
mod properties;
mod reference;
mod sample;
mod sticky;
mod threads;

use super::{Fusion, FusionType, Graph, Partition, fuse, verify};
use crate::budget::Budget;
use cranelift_entity::EntityRef;
use sample::Sample;

fn manual(count: i128) -> Fusion {
    Fusion::manual(count, FusionType::NoChannelInfluence).unwrap()
}

/// Fuses, checks the result, and gives it as `{0,2} {1}`, by operator index.
fn fused(sample: &Sample, fusion: Fusion) -> String {
    let graph = sample.graph();
    let partition = fuse(&graph, &fusion, &Budget::default()).unwrap();
    assert_eq!(verify::violations(&graph, &fusion, &partition), Vec::<String>::new());
    text(&graph, &partition)
}

fn text(graph: &Graph, partition: &Partition) -> String {
    let index = |node: &crate::topology::Node| graph.operators()[*node].index.to_string();
    let pes = partition.pes().map(|pe| {
        assert!(pe.index() < partition.len());
        format!("{{{}}}", partition.operators(pe).iter().map(index).collect::<Vec<_>>().join(","))
    });
    pes.collect::<Vec<_>>().join(" ")
}
