//! Properties of the expansion that hold for every application.

use super::sketch::Expand;
use crate::budget::Budget;
use crate::topology::{Identity, Numbering, Topology, difference, relabel, verify};
use proptest::prelude::*;
use std::collections::BTreeMap;
use streams_test_support::generated;

/// Connections by what they connect, whatever the numbers.
fn edges(topology: &Topology) -> Vec<(Identity, u32, Identity, u32, Option<u32>)> {
    let identity = |node| topology.operators[node].identity(&topology.application);
    let edge = |c: &crate::topology::Connection| {
        (identity(c.source), c.source_port, identity(c.target), c.target_port, c.via().map(|via| via.channel))
    };
    let mut edges: Vec<_> = topology.connections.iter().map(edge).collect();
    edges.sort();
    edges
}

proptest! {
    #![proptest_config(streams_test_support::property_cases(48))]

    #[test]
    fn expansions_are_sound(sketch in generated::composites()) {
        let topology = sketch.expand().unwrap();
        prop_assert_eq!(verify(&topology), Ok(()));
        // Fresh numbers have no gaps, and there is one operator per channel.
        let indexes: Vec<u32> = topology.operators.values().map(|operator| operator.index).collect();
        prop_assert_eq!(&indexes, &(0..u32::try_from(indexes.len()).unwrap()).collect::<Vec<_>>());
        let mut copies: BTreeMap<_, u32> = BTreeMap::new();
        for operator in topology.operators.values() {
            *copies.entry(operator.logical).or_default() += 1;
        }
        for operator in topology.operators.values() {
            let expected = operator.channels.first().map_or(1, |channel| channel.global_max);
            prop_assert_eq!(copies[&operator.logical], expected, "{}", operator.name);
        }
    }

    #[test]
    fn the_same_input_gives_the_same_topology(sketch in generated::composites()) {
        prop_assert_eq!(sketch.expand().unwrap().to_string(), sketch.expand().unwrap().to_string());
    }

    #[test]
    fn a_resize_keeps_numbers_and_structure(sketch in generated::composites(), width in 1..5_i128, which in 0..8_usize) {
        let prior = sketch.expand().unwrap();
        let numbering = Numbering::of(&prior);
        prop_assert_eq!(relabel(sketch.expand().unwrap(), &numbering).to_string(), prior.to_string());
        let Some(region) = prior.regions.get(which % prior.regions.len().max(1)) else { return Ok(()) };
        let fresh = sketch.clone().override_width(&region.name, width).expand().unwrap();
        let wanted = edges(&fresh);
        let result = relabel(fresh, &numbering);
        let changes = difference(&prior, &result, &Budget::default()).unwrap();
        prop_assert_eq!(verify(&result), Ok(()));
        prop_assert_eq!(edges(&result), wanted);
        let after = Numbering::of(&result);
        let before: BTreeMap<_, _> = numbering.operators.iter().cloned().collect();
        let kept = after.operators.iter().filter(|(identity, _)| before.contains_key(identity)).count();
        for (identity, index) in &after.operators {
            prop_assert!(before.get(identity).is_none_or(|known| known == index));
        }
        prop_assert_eq!(after.operators.len(), kept + changes.added.len());
        prop_assert_eq!(before.len(), kept + changes.removed.len());
        // And back: everything that stayed has the number it had.
        let back = relabel(sketch.expand().unwrap(), &after);
        prop_assert_eq!(verify(&back), Ok(()));
        prop_assert_eq!(edges(&back), edges(&prior));
    }
}
