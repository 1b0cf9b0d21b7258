//! Warnings of nodes that an application names and that do not exist (rule placement-2). Pure.
//!
//! A node may join later, and nobody looks for it until the job is compiled again: what a warning says stays true, and
//! it is not shown once the PEs run that are to run there.
//!
//! Knows: plans. Must not know: how nodes are found.

use super::places::{host_pool, members};
use std::collections::{BTreeMap, BTreeSet};
use streams_proto::fusion::v1::{Plan, ProcessingElement, Warning};

/// Why a warning is given, and why a submission fails that names an address.
pub(in super::super) const HOST_NOT_FOUND: &str = "HostNotFound";
/// What is said before and after the name of a node.
const WORDS: (&str, &str) =
    ("there was no node ", " when the job was compiled; PEs that the application places there wait for it");
/// The same if the nodes could not be seen.
const WORDS_IF_UNSEEN: (&str, &str) = (
    "it could not be seen whether there was a node ",
    " when the job was compiled; if there is none, PEs that the application places there wait for it",
);
/// The same in the words of an earlier frontend, which jobs may have stored.
const EARLIER_WORDS: (&str, &str) = ("there is no node ", "; PEs that the application places there wait for it");

/// The hosts that a plan names.
pub(in super::super) fn named(plan: &Plan) -> BTreeSet<&str> {
    let placed = members(plan).filter_map(|pe| pe.placement.as_ref()?.host.as_deref());
    placed.chain(plan.host_pools.iter().flat_map(|pool| pool.hosts.iter().map(String::as_str))).collect()
}

/// No node has this name.
pub(in super::super) fn warning(host: &str) -> Warning {
    in_words(WORDS, host)
}

/// Whether a node has this name could not be seen. Because of the warning it is looked for once more.
pub(in super::super) fn unseen(host: &str) -> Warning {
    in_words(WORDS_IF_UNSEEN, host)
}

fn in_words((before, after): (&str, &str), host: &str) -> Warning {
    Warning { reason: HOST_NOT_FOUND.to_owned(), message: format!("{before}{host}{after}") }
}

/// Whether the warning is about the node of this name.
pub(in super::super) fn is_about(warning: &Warning, host: &str) -> bool {
    let name = |(before, after): (&str, &str)| warning.message.strip_prefix(before)?.strip_suffix(after);
    let mut names = [WORDS, WORDS_IF_UNSEEN, EARLIER_WORDS].into_iter().filter_map(name);
    warning.reason == HOST_NOT_FOUND && names.any(|name| name == host)
}

/// PEs that are to run on the node that a warning is about, or may, by the position of the warning.
pub(in super::super) fn waiting(plan: &Plan, warnings: &[Warning]) -> BTreeMap<usize, Vec<u64>> {
    let about_nodes = warnings.iter().enumerate().filter(|(_, warning)| warning.reason == HOST_NOT_FOUND);
    let pes = |warning: &Warning| {
        let waits = |pe: &&ProcessingElement| hosts(plan, pe).into_iter().any(|host| is_about(warning, host));
        members(plan).filter(waits).map(|pe| pe.id).collect()
    };
    about_nodes.map(|(at, warning)| (at, pes(warning))).collect()
}

/// The hosts that the pod of a PE may run on, if it may not on all.
fn hosts<'a>(plan: &'a Plan, pe: &'a ProcessingElement) -> Vec<&'a str> {
    let Some(placed) = &pe.placement else { return Vec::new() };
    let location = placed.pool.as_ref();
    let of_pool =
        location.and_then(|location| host_pool(plan, location.index)).map_or(&[][..], |pool| pool.hosts.as_slice());
    let place = location.and_then(|location| usize::try_from(location.in_pool_index?).ok());
    let of_pool = of_pool.iter().enumerate().filter(|(at, _)| place.is_none_or(|place| place == *at));
    placed.host.iter().chain(of_pool.map(|(_, host)| host)).map(String::as_str).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use streams_proto::fusion::v1::placement::Pool;
    use streams_proto::fusion::v1::{Fate, HostPool, Placement};

    #[test]
    fn a_warning_is_about_the_pes_that_are_to_run_on_its_node() {
        let placed = |id, fate: Fate, host: Option<&str>, in_pool_index: Option<Option<u64>>| {
            let host = host.map(str::to_owned);
            let pool = in_pool_index.map(|in_pool_index| Pool { index: 1, in_pool_index });
            let placement = Some(Placement { host, pool, ..Placement::default() });
            ProcessingElement { id, fate: fate.into(), placement, ..ProcessingElement::default() }
        };
        let hosts = ["node-1", "node-12"].map(str::to_owned).into();
        let plan = Plan {
            processing_elements: vec![
                placed(0, Fate::Added, Some("node-1"), None),
                placed(1, Fate::Kept, Some("node-12"), None),
                placed(2, Fate::Removed, Some("gone"), None),
                placed(3, Fate::Added, None, Some(None)),
                placed(4, Fate::Added, None, Some(Some(1))),
                placed(5, Fate::Added, None, None),
                // Words of the message are names that nodes may have.
                placed(6, Fate::Added, Some("node"), None),
                placed(7, Fate::Added, Some("application"), None),
            ],
            host_pools: vec![HostPool { index: 1, hosts, ..HostPool::default() }],
            ..Plan::default()
        };
        assert_eq!(named(&plan), ["application", "node", "node-1", "node-12"].into());
        let other = Warning { reason: "HostPoolSizeNotEnforced".to_owned(), message: "node-1".to_owned() };
        // As an earlier frontend has said it.
        let message = "there is no node node-12; PEs that the application places there wait for it".to_owned();
        let earlier = Warning { reason: HOST_NOT_FOUND.to_owned(), message };
        let warnings = [unseen("node-1"), other, warning("node-12"), warning("node-9"), earlier, warning("node")];
        let expected = [(0, vec![0, 3]), (2, vec![1, 3, 4]), (3, vec![]), (4, vec![1, 3, 4]), (5, vec![6])];
        assert_eq!(waiting(&plan, &warnings), expected.into());
    }
}
