//! Which replica a call prefers (rule call-15). Pure.
//!
//! All frontends prefer the same replica for the same application, because it knows its ADL already: rendezvous hashing
//! by the ADL's digest, so that a replica which comes or goes moves the applications of one replica only. A replica
//! that has more than its share of the calls that are under way is passed over: one application that is resized all the
//! time must not fill one replica while others are idle.
//!
//! Knows: addresses, numbers of calls. Must not know: connections, time.

use sha2::{Digest, Sha256};
use std::cmp::Reverse;
use std::net::SocketAddr;

/// A replica that could be asked.
#[derive(Clone, Copy, Debug)]
pub(super) struct Candidate {
    pub(super) address: SocketAddr,
    /// Calls of this frontend that it works on.
    pub(super) in_flight: usize,
    /// This call has been tried there.
    pub(super) is_tried: bool,
    /// It failed, or said that it has enough to do, and is left alone for a moment.
    pub(super) is_resting: bool,
    /// It is about to go.
    pub(super) is_terminating: bool,
}

/// The most calls that a replica may have, of `calls` that go to so many replicas: a quarter more than its share.
pub(super) fn bound(calls: usize, replicas: usize) -> usize {
    (calls * 5).div_ceil(replicas.max(1) * 4)
}

/// The candidate that a call about this application goes to. One that was tried, rests, or is about
/// to go, is better than none.
pub(super) fn preferred(application: &[u8], candidates: &[Candidate]) -> Option<SocketAddr> {
    let calls = candidates.iter().map(|candidate| candidate.in_flight).sum::<usize>() + 1;
    let bound = bound(calls, candidates.len());
    let order = |candidate: &&Candidate| {
        let is_full = candidate.in_flight >= bound;
        // Of those that have more than their share, the one that has least.
        let excess = if is_full { candidate.in_flight } else { 0 };
        let score = Reverse(score(application, candidate.address));
        (candidate.is_tried, candidate.is_resting, candidate.is_terminating, is_full, excess, score)
    };
    candidates.iter().min_by_key(order).map(|candidate| candidate.address)
}

/// How much an application prefers a replica: the same in every process.
fn score(application: &[u8], address: SocketAddr) -> [u8; 32] {
    Sha256::new().chain_update(application).chain_update(address.to_string()).finalize().into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn candidates(ports: impl IntoIterator<Item = u16>) -> Vec<Candidate> {
        let candidate = |port| Candidate {
            address: SocketAddr::from(([127, 0, 0, 1], port)),
            in_flight: 0,
            is_tried: false,
            is_resting: false,
            is_terminating: false,
        };
        ports.into_iter().map(candidate).collect()
    }

    #[test]
    fn applications_are_spread_and_a_replica_that_goes_moves_only_its_own() {
        let (all, fewer) = (candidates(1..=5), candidates(1..=4));
        let mut shares = BTreeMap::<_, usize>::new();
        for application in 0..1000_u32 {
            let application = application.to_be_bytes();
            let before = preferred(&application, &all).unwrap();
            *shares.entry(before).or_default() += 1;
            let after = preferred(&application, &fewer).unwrap();
            assert!(before == after || before.port() == 5, "{before} {after}");
        }
        assert!(shares.len() == 5 && shares.values().all(|share| (150..250).contains(share)), "{shares:?}");
    }

    #[test]
    fn what_was_tried_or_rests_or_has_too_much_to_do_comes_later() {
        type Edit = fn(&mut Candidate);
        let edits: [(&str, Edit); 4] = [
            ("goes", |candidate| candidate.is_terminating = true),
            ("tried", |candidate| candidate.is_tried = true),
            ("rests", |candidate| candidate.is_resting = true),
            ("busy", |candidate| candidate.in_flight = 10),
        ];
        let all = candidates(1..=3);
        let first = preferred(b"a", &all).unwrap();
        for (what, edit) in edits {
            let mut others = all.clone();
            others.iter_mut().filter(|candidate| candidate.address == first).for_each(edit);
            assert_ne!(preferred(b"a", &others), Some(first), "{what}");
            // There is no other.
            others.iter_mut().for_each(edit);
            assert_eq!(preferred(b"a", &others), Some(first), "{what}");
        }
        assert_eq!(preferred(b"a", &[]), None);
    }

    proptest! {
        #[test]
        fn no_replica_gets_more_than_a_quarter_above_its_share(replicas in 1_u16..8, calls in 1_usize..60) {
            let mut all = candidates(1..=replicas);
            for _ in 0..calls {
                let address = preferred(b"the same", &all).unwrap();
                all.iter_mut().filter(|candidate| candidate.address == address).for_each(|c| c.in_flight += 1);
            }
            let most = all.iter().map(|candidate| candidate.in_flight).max().unwrap();
            prop_assert!(most <= bound(calls, all.len()), "{most} of {calls}");
        }
    }
}
