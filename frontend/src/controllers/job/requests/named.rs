//! Requests that the status of a job names by their numbers, and the mirror may not show with them yet.

use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt as _;
use std::collections::{BTreeMap, BTreeSet};
use streams_api::{JobStatus, Resize};

/// Most requests that are asked for one by one, and not as pages of all that the job has.
const ASKED_ONE_BY_ONE: usize = 16;

/// What the API server has said of such requests.
#[derive(Debug, Default)]
pub(crate) struct NamedRequests {
    /// Numbers that no request has: it is gone, and none gets its number again.
    pub(crate) gone: BTreeSet<u64>,
    /// Names of requests that it has, until the mirror shows them.
    pub(crate) found: BTreeSet<String>,
    /// Numbers that it was asked for last.
    pub(crate) asked: BTreeSet<u64>,
    /// Until when that holds.
    pub(crate) until: Option<Timestamp>,
    /// Names of requests by their numbers, which stay: of those that were open when they were seen last.
    names: BTreeMap<u64, String>,
}

/// Names of these requests by their numbers, as far as they are open.
pub(crate) fn names_of<'a>(requests: impl Iterator<Item = &'a Resize>) -> BTreeMap<u64, String> {
    let open = requests.filter(|request| !request.phase().is_final());
    open.filter_map(|request| Some((request.status.as_ref()?.number?, request.name_any()))).collect()
}

impl NamedRequests {
    /// These are open now; of others those are still known that the status names.
    pub(crate) fn note_open(&mut self, mut open: BTreeMap<u64, String>, named: &BTreeSet<u64>) {
        self.names.retain(|number, _| named.contains(number));
        self.names.append(&mut open);
    }

    /// The names of the requests with these numbers, if they are few and all are known.
    pub(crate) fn names(&self, numbers: &BTreeSet<u64>) -> Option<Vec<String>> {
        if numbers.len() > ASKED_ONE_BY_ONE {
            return None;
        }
        numbers.iter().map(|number| self.names.get(number).cloned()).collect()
    }
}

/// The requests that the proposal has, and those that commits were for and do not say so yet.
pub(crate) fn named(status: &JobStatus) -> BTreeSet<u64> {
    let proposed = status.proposal.iter().flat_map(|proposal| &proposal.resizes);
    proposed.chain(status.committed_resizes.iter().flat_map(|committed| &committed.resizes)).copied().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_asked_for_by_name_that_are_few_and_were_seen() {
        let name = |number: u64| (number, format!("r{number}"));
        let mut requests = NamedRequests::default();
        requests.note_open((1..=20).map(name).collect(), &BTreeSet::new());
        requests.note_open([name(30)].into(), &(1..=18).collect());
        // numbers -> whether all of them are known
        let table: [(Vec<u64>, bool); 6] = [
            (vec![1], true),
            ((1..=16).collect(), true),
            ((1..=17).collect(), false),
            (vec![18, 30], true),
            (vec![18, 19], false),
            (vec![31], false),
        ];
        for (numbers, expected) in table {
            let names: Vec<_> = numbers.iter().map(|number| name(*number).1).collect();
            let known = requests.names(&numbers.iter().copied().collect());
            assert_eq!(known, expected.then_some(names), "{numbers:?}");
        }
    }
}
