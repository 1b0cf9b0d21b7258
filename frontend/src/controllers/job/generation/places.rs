//! Where the PEs of a generation must run, which of them it moves, and which of them must be together (rules
//! placement-7 and placement-9). Pure.
//!
//! PEs with a token of co-location in common, or with the same index of a host pool without hosts, run on one node. So
//! do PEs that only others connect: with the tokens `x`, `x` and `y`, and `y`, all three do. They are a group.
//!
//! For the scheduler a group has one label, which is that of one of the tokens: so a group with one token needs nothing
//! more than the label of the token. The rule says why it is one.
//!
//! Knows: plans. Must not know: objects, what the scheduler is told.

use crate::controllers::token_labels::{Kind, key, pool_index};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use streams_proto::fusion::v1::{Fate, HostPool, Plan, ProcessingElement};

/// The groups of a generation, as far as labels of tokens do not say them by themselves.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Groups {
    /// Key of the label of its group, by id of the PE. PEs are left out whose only token has this label.
    pub(super) labels: BTreeMap<u64, String>,
    /// PEs that must move: they are in a group with others now that they were not put together with. Those that are
    /// restarted anyway are among them: if that is taken back before they are, they must move all the same.
    pub(super) moved: BTreeSet<u64>,
}

/// PEs that are connected by tokens.
#[derive(Default)]
struct Group<'a> {
    /// Keys of the labels of all tokens.
    tokens: BTreeSet<String>,
    pes: Vec<&'a ProcessingElement>,
}

/// The PEs that the plan has; those it removes are left out.
pub(in super::super) fn members(plan: &Plan) -> impl Iterator<Item = &ProcessingElement> {
    plan.processing_elements.iter().filter(|pe| pe.fate() != Fate::Removed)
}

/// The name of the node that has this address; a name stays as it is.
pub(in super::super) fn node<'a>(host: &'a str, nodes: &'a BTreeMap<String, String>) -> &'a str {
    nodes.get(host).map_or(host, String::as_str)
}

/// The host pool with this index, if the plan has it.
pub(super) fn host_pool(plan: &Plan, index: u64) -> Option<&HostPool> {
    let pools = &plan.host_pools;
    let sorted = pools.binary_search_by_key(&index, |pool| pool.index).ok().and_then(|at| pools.get(at));
    sorted.or_else(|| pools.iter().find(|pool| pool.index == index))
}

/// Where a PE must run: its host, tokens and isolation, its place in a pool, and hosts, tags and mode of that.
pub(super) fn place<'a>(
    plan: &'a Plan,
    nodes: &'a BTreeMap<String, String>,
    pe: &'a ProcessingElement,
) -> impl PartialEq + use<'a> {
    let placed = pe.placement.as_ref();
    let tokens = placed.map_or((&[][..], &[][..]), |placed| (&placed.co_locations, &placed.ex_locations));
    let isolation = placed.and_then(|placed| placed.isolation.as_ref());
    let host = placed.and_then(|placed| placed.host.as_deref()).map(|host| node(host, nodes));
    let pool = placed.and_then(|placed| placed.pool.as_ref()).map(|location| {
        let pool = host_pool(plan, location.index);
        let hosts: Vec<&str> = pool.iter().flat_map(|pool| &pool.hosts).map(|host| node(host, nodes)).collect();
        (location, hosts, pool.map(|pool| (&pool.tags, pool.exclusive)))
    });
    (host, tokens, isolation, pool)
}

/// Keys of the labels of the tokens by which a PE is together with others.
pub(super) fn tokens(plan: &Plan, pe: &ProcessingElement) -> BTreeSet<String> {
    let Some(placed) = &pe.placement else { return BTreeSet::new() };
    let index = placed.pool.as_ref().and_then(|location| {
        let index = location.in_pool_index?;
        let pool = host_pool(plan, location.index)?;
        pool.hosts.is_empty().then(|| key(Kind::PoolIndex, &pool_index(location.index, index)))
    });
    placed.co_locations.iter().map(|token| key(Kind::CoLocation, token)).chain(index).collect()
}

/// The groups of a plan. `is_put_by` has the keys of the labels by which the pod of a PE was put together with others,
/// `stays` whether the pod goes on if the group has such a label. As few of those move as possible: a group has the
/// label by which most of them were put.
pub(super) fn groups(
    plan: &Plan,
    is_put_by: impl Fn(&ProcessingElement) -> BTreeSet<String>,
    stays: impl Fn(&ProcessingElement) -> bool,
) -> Groups {
    let mut found = Groups::default();
    if !members(plan).any(has_several_tokens) {
        // Each group has one token.
        return found;
    }
    let (groups, all_tokens) = connected(plan);
    let mut taken: BTreeSet<String> = BTreeSet::new();
    for group in groups.iter().filter(|group| group.tokens.len() > 1) {
        let mut votes: BTreeMap<&str, usize> = group.tokens.iter().map(|token| (token.as_str(), 0)).collect();
        let put: Vec<_> = group.pes.iter().map(|pe| is_put_by(pe)).collect();
        let counted = group.pes.iter().zip(&put).filter(|(pe, _)| stays(pe));
        for label in counted.flat_map(|(_, put)| put) {
            let count = votes.entry(label.as_str()).or_default();
            *count = count.saturating_add(1);
        }
        // The label of a token that the plan has is that of the group with this token. One that it does not have any
        // more stays with one group, if that has fallen apart.
        let is_free =
            |label: &str| group.tokens.contains(label) || (!all_tokens.contains_key(label) && !taken.contains(label));
        let free = votes.into_iter().filter(|(label, _)| is_free(label));
        let Some((label, _)) = free.max_by_key(|(label, votes)| (*votes, Reverse(*label))) else { continue };
        let label = label.to_owned();
        for (pe, put) in group.pes.iter().zip(&put) {
            if !tokens(plan, pe).iter().eq([&label]) {
                found.labels.insert(pe.id, label.clone());
            }
            if !put.is_empty() && !put.contains(&label) {
                found.moved.insert(pe.id);
            }
        }
        taken.insert(label);
    }
    found
}

fn has_several_tokens(pe: &ProcessingElement) -> bool {
    pe.placement.as_ref().is_some_and(|placed| {
        let is_in_place = placed.pool.as_ref().is_some_and(|location| location.in_pool_index.is_some());
        placed.co_locations.len().saturating_add(usize::from(is_in_place)) > 1
    })
}

/// All groups, in an order that follows from the plan, and which of them has a token.
fn connected(plan: &Plan) -> (Vec<Group<'_>>, BTreeMap<String, usize>) {
    let mut groups: BTreeMap<usize, Group<'_>> = BTreeMap::new();
    let mut of_token: BTreeMap<String, usize> = BTreeMap::new();
    for (number, pe) in members(plan).enumerate() {
        let tokens = tokens(plan, pe);
        if tokens.is_empty() {
            continue;
        }
        let joined: BTreeSet<usize> = tokens.iter().filter_map(|token| of_token.get(token).copied()).collect();
        // What is joined to the largest of them is written once more; so no token is written often.
        let size = |number: &usize| groups.get(number).map_or(0, |group| group.tokens.len());
        let into = joined.iter().copied().max_by_key(size).unwrap_or(number);
        let mut group = groups.remove(&into).unwrap_or_default();
        for other in joined.into_iter().filter(|other| *other != into).filter_map(|other| groups.remove(&other)) {
            of_token.extend(other.tokens.iter().map(|token| (token.clone(), into)));
            group.tokens.extend(other.tokens);
            group.pes.extend(other.pes);
        }
        of_token.extend(tokens.iter().map(|token| (token.clone(), into)));
        group.tokens.extend(tokens);
        group.pes.push(pe);
        groups.insert(into, group);
    }
    (groups.into_values().collect(), of_token)
}

#[cfg(test)]
mod tests {
    use super::*;
    use streams_proto::fusion::v1::Placement;
    use streams_proto::fusion::v1::placement::Pool;

    fn label(token: &str) -> String {
        match token.strip_prefix("index ") {
            Some(index) => key(Kind::PoolIndex, &format!("1[{index}]")),
            None => key(Kind::CoLocation, token),
        }
    }

    /// A PE with these tokens; `index 3` is the place 3 in a pool without hosts.
    fn pe(id: u64, tokens: &[&str]) -> ProcessingElement {
        let co_locations = tokens.iter().filter(|token| !token.starts_with("index ")).map(|token| (*token).to_owned());
        let index = tokens.iter().find_map(|token| token.strip_prefix("index ")?.parse().ok());
        let placement = Placement {
            co_locations: co_locations.collect(),
            pool: index.map(|index| Pool { index: 1, in_pool_index: Some(index) }),
            ..Placement::default()
        };
        ProcessingElement { id, fate: Fate::Added.into(), placement: Some(placement), ..ProcessingElement::default() }
    }

    /// The label by which each PE is put, and those that move.
    fn put(pes: &[(&[&str], &[&str])]) -> (Vec<String>, Vec<u64>) {
        let pool = HostPool { index: 1, ..HostPool::default() };
        let listed = (0..).zip(pes).map(|(id, (tokens, _))| pe(id, tokens)).collect();
        let plan = Plan { processing_elements: listed, host_pools: vec![pool], ..Plan::default() };
        let put_by = |pe: &ProcessingElement| {
            let (_, put_by) = pes[usize::try_from(pe.id).unwrap()];
            put_by.iter().map(|token| label(token)).collect()
        };
        let Groups { mut labels, moved } = groups(&plan, put_by, |_| true);
        let of = |pe: &ProcessingElement| {
            let own: Vec<String> = tokens(&plan, pe).into_iter().collect();
            labels.remove(&pe.id).unwrap_or_else(|| own.join(" "))
        };
        (plan.processing_elements.iter().map(of).collect(), moved.into_iter().collect())
    }

    #[test]
    fn pes_that_only_others_connect_are_together_and_as_few_as_possible_move() {
        // tokens of each PE, and labels by which its pod was put -> by which it is put, those that move
        type Pes<'a> = &'a [(&'a [&'a str], &'a [&'a str])];
        let table: [(Pes<'_>, &[&str], &[u64]); 14] = [
            (&[(&["x"], &[]), (&["x"], &[]), (&["y"], &[]), (&[], &[])], &["x", "x", "y", ""], &[]),
            // They are as they were, so nobody moves: the one has come, which connects them.
            (&[(&["x"], &["x"]), (&["x", "y"], &[])], &["x", "x"], &[]),
            (&[(&["y"], &["y"]), (&["x", "y"], &[])], &["y", "y"], &[]),
            (&[(&["x"], &["x"]), (&["x", "y"], &[]), (&["y"], &["y"]), (&["y"], &["y"])], &["y"; 4], &[0]),
            (&[(&["x"], &["x"]), (&["x"], &["x"]), (&["x", "y"], &[]), (&["y"], &["y"])], &["x"; 4], &[3]),
            // Through several others.
            (&[(&["a"], &["a"]), (&["c"], &[]), (&["b", "c"], &[]), (&["a", "b"], &[])], &["a"; 4], &[]),
            (&[(&["a", "b"], &["a"]), (&["c", "d"], &["a"]), (&["b", "c"], &["a"])], &["a"; 3], &[]),
            // It has lost the PE that connected it.
            (&[(&["x"], &["x"]), (&["y"], &["x"])], &["x", "y"], &[]),
            (&[(&["y"], &["x"]), (&["y", "z"], &["x"]), (&["z"], &["x"])], &["x"; 3], &[]),
            (&[(&["y"], &["x"]), (&["y", "z"], &["x"]), (&["x"], &["x"])], &["z", "z", "x"], &[0, 1]),
            (&[(&["y", "z"], &["x"]), (&["a", "b"], &["x"]), (&["b"], &["b"])], &["x", "b", "b"], &[1]),
            // Written by an earlier frontend: by whatever most of them have.
            (&[(&["x", "y"], &["x", "y"]), (&["y"], &["y"]), (&["y", "z"], &["y", "z"])], &["y"; 3], &[]),
            (
                &[(&["x", "index 3"], &[]), (&["index 3"], &["index 3"]), (&["index 4"], &[])],
                &["index 3", "index 3", "index 4"],
                &[],
            ),
            (&[(&["x", "index 3"], &["x"]), (&["x"], &["x"]), (&["index 3"], &[])], &["x"; 3], &[]),
        ];
        for (pes, expected, expected_moved) in table {
            let expected = expected.iter().map(|token| if token.is_empty() { String::new() } else { label(token) });
            let (found, moved) = put(pes);
            assert_eq!((found, &moved[..]), (expected.collect(), expected_moved), "{pes:?}");
        }
        let (found, moved) = put(&[(&["x"], &[]), (&["x", "y"], &[]), (&["y"], &[])]);
        assert!(found.iter().all(|label| *label == found[0]) && moved.is_empty(), "{found:?} {moved:?}");
        assert!([label("x"), label("y")].contains(&found[0]));
    }

    #[test]
    fn an_index_of_a_pool_with_hosts_puts_nobody_together() {
        let hosts = vec!["a".to_owned(), "b".to_owned()];
        let pools = vec![HostPool { index: 1, hosts, ..HostPool::default() }];
        let plan = Plan { processing_elements: vec![pe(0, &["x", "index 1"])], host_pools: pools, ..Plan::default() };
        assert_eq!(tokens(&plan, &plan.processing_elements[0]), [label("x")].into());
        assert_eq!(groups(&plan, |_| BTreeSet::new(), |_| true), Groups::default());
    }
}
