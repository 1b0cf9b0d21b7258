//! Ports of the Services of PEs that operators have opened under a name (rules pe-api-5 and name-7). Pure.
//!
//! A PE registers what an operator opens in its own status; the job controller brings it into the Service. A PE can
//! register and unregister in a loop, and each change of its Service costs calls for which other jobs wait. So what a
//! Service has follows what is registered at once, but not again within [`PACE`]; then it follows with all that has
//! changed meanwhile.
//!
//! ```text
//!  status.endpoints ──► KnownEndpoints (memory): in force, since when ──► UserPorts (observation): ports, hashes
//! ```
//!
//! Knows: endpoints, time. Must not know: mirrors, how a Service looks.
//!
//! Invariants: what is in force is what the PE has registered now, or had registered less than [`PACE`] ago; nothing is
//! kept of a PE that has registered nothing for that long.

use crate::controllers::times::{after, distance};
use k8s_openapi::jiff::Timestamp;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use streams_api::{UserEndpoint, names};

/// Least time between two changes of the ports of one Service.
const PACE: Duration = Duration::from_secs(5);

/// Endpoints of PEs, by id; only of PEs that have any.
pub(in super::super) type Endpoints = BTreeMap<u64, Vec<UserEndpoint>>;
/// Hashes of desired Services with such ports, by generation and PE.
pub(in super::super) type Hashes = BTreeMap<(u64, u64), String>;

/// The ports that are wanted of Services, beside those of the system.
#[derive(Clone, Debug, Default)]
pub(crate) struct UserPorts {
    /// What is in force.
    pub(in super::super) endpoints: Arc<Endpoints>,
    /// Hashes of the Services that are wanted with it; of all others the generation has the hash.
    pub(in super::super) hashes: Arc<Hashes>,
    /// PEs of which something else is in force than when this process looked at the job first. That is no rewrite for
    /// another version of the frontend (rule job-45).
    pub(crate) changed: BTreeSet<u64>,
    /// When something that has changed comes into force.
    pub(crate) changes_at: Option<Timestamp>,
}

impl UserPorts {
    /// The endpoints that the Service of a PE has ports for.
    pub(in super::super) fn of(&self, pe: u64) -> &[UserEndpoint] {
        self.endpoints.get(&pe).map_or(&[], Vec::as_slice)
    }

    /// Hash of the Service that a generation wants for a PE; `plain` is that without such ports.
    pub(in super::super) fn service<'a>(&'a self, generation: u64, pe: u64, plain: &'a str) -> &'a str {
        self.hashes.get(&(generation, pe)).map_or(plain, String::as_str)
    }
}

/// What this process remembers of the endpoints of a job.
#[derive(Debug, Default)]
pub(crate) struct KnownEndpoints {
    /// `None`: the job was not looked at yet.
    in_force: Option<Arc<Endpoints>>,
    /// When what is in force of a PE has changed last.
    changed: BTreeMap<u64, Timestamp>,
    /// Digests of the plans and endpoints that hashes were computed for last.
    hashed: Option<(Vec<String>, Arc<Endpoints>, Arc<Hashes>)>,
}

impl KnownEndpoints {
    /// What is in force, given what is registered. The hashes are still to come.
    pub(in super::super) fn follow(&mut self, registered: &Endpoints, now: Timestamp) -> UserPorts {
        let Some(before) = self.in_force.clone() else {
            let endpoints = Arc::new(registered.clone());
            self.in_force = Some(Arc::clone(&endpoints));
            return UserPorts { endpoints, ..UserPorts::default() };
        };
        let is_recent = |at: &Timestamp| distance(*at, now) < PACE;
        let (mut endpoints, mut changes_at) = (before.clone(), None::<Timestamp>);
        let pes: BTreeSet<u64> = registered.keys().chain(before.keys()).copied().collect();
        for pe in pes.into_iter().filter(|pe| registered.get(pe) != before.get(pe)) {
            if let Some(at) = self.changed.get(&pe).copied().filter(is_recent) {
                let next_change = after(at, PACE);
                changes_at = Some(changes_at.map_or(next_change, |other| other.min(next_change)));
                continue;
            }
            self.changed.insert(pe, now);
            match registered.get(&pe) {
                Some(registered) => drop(Arc::make_mut(&mut endpoints).insert(pe, registered.clone())),
                None => drop(Arc::make_mut(&mut endpoints).remove(&pe)),
            }
        }
        self.changed.retain(|pe, at| endpoints.contains_key(pe) || is_recent(at));
        self.in_force = Some(Arc::clone(&endpoints));
        UserPorts { endpoints, hashes: Arc::default(), changed: self.changed.keys().copied().collect(), changes_at }
    }

    /// The hashes that were computed for these plans and endpoints, if those were the last.
    pub(in super::super) fn hashes(&self, plans: &[&str], endpoints: &Arc<Endpoints>) -> Option<Arc<Hashes>> {
        let (of_plans, of_endpoints, hashes) = self.hashed.as_ref()?;
        (of_plans == plans && of_endpoints == endpoints).then(|| Arc::clone(hashes))
    }

    /// Keeps the hashes that were computed for these plans and endpoints.
    pub(in super::super) fn keep(&mut self, plans: &[&str], endpoints: &Arc<Endpoints>, hashes: &Arc<Hashes>) {
        let plans = plans.iter().map(|plan| (*plan).to_owned()).collect();
        self.hashed = Some((plans, Arc::clone(endpoints), Arc::clone(hashes)));
    }
}

/// Name, protocol and number of the ports that a Service has for these endpoints, by name. Whoever may write the status
/// of a PE may write what no Service can have; that is left out, and of two with one name or number one of them.
pub(super) fn of_service(endpoints: &[UserEndpoint]) -> Vec<(String, &'static str, i32)> {
    let mut by_name: Vec<&UserEndpoint> = endpoints.iter().collect();
    by_name.sort_unstable_by_key(|endpoint| (&endpoint.name, endpoint.port, &endpoint.protocol));
    by_name.dedup_by_key(|endpoint| &endpoint.name);
    let ports = by_name.into_iter().filter_map(|UserEndpoint { name, port, protocol }| {
        let protocol = ["TCP", "UDP"].into_iter().find(|known| known == protocol)?;
        (names::is_endpoint(name) && *port > 0).then(|| (names::user_port(name), protocol, i32::from(*port)))
    });
    ports.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoint(name: &str, port: u16, protocol: &str) -> UserEndpoint {
        UserEndpoint { name: name.to_owned(), port, protocol: protocol.to_owned() }
    }

    fn registered(pes: &[(u64, u16)]) -> Endpoints {
        pes.iter().map(|(pe, port)| (*pe, vec![endpoint("a", *port, "TCP")])).collect()
    }

    fn at(millisecond: i64) -> Timestamp {
        Timestamp::from_millisecond(millisecond).unwrap()
    }

    #[test]
    fn what_is_in_force_follows_at_once_and_not_again_for_a_while() {
        let mut known = KnownEndpoints::default();
        // milliseconds, what is registered -> in force, changed, when more comes into force
        type Row<'a> = (i64, &'a [(u64, u16)], &'a [(u64, u16)], &'a [u64], Option<i64>);
        let table: [Row<'_>; 12] = [
            // What is found at first is no change.
            (0, &[(0, 80)], &[(0, 80)], &[], None),
            (1, &[(0, 80), (1, 81)], &[(0, 80), (1, 81)], &[1], None),
            (2, &[(0, 80), (1, 82)], &[(0, 80), (1, 81)], &[1], Some(5_001)),
            // Another PE does not wait for it.
            (3, &[(1, 83)], &[(1, 81)], &[0, 1], Some(5_001)),
            (5_000, &[(1, 84)], &[(1, 81)], &[0, 1], Some(5_001)),
            (5_001, &[(1, 84)], &[(1, 84)], &[0, 1], None),
            // PE 0 has nothing, and is forgotten.
            (5_003, &[(1, 84)], &[(1, 84)], &[1], None),
            // What comes and goes meanwhile never shows.
            (6_000, &[(1, 85)], &[(1, 84)], &[1], Some(10_001)),
            (7_000, &[(1, 84)], &[(1, 84)], &[1], None),
            // A clock was put back.
            (-1_800_000, &[(1, 86)], &[(1, 86)], &[1], None),
            (10_001, &[], &[], &[1], None),
            (15_001, &[], &[], &[], None),
        ];
        for (now, has, in_force, changed, changes_at) in table {
            let ports = known.follow(&registered(has), at(now));
            assert_eq!(*ports.endpoints, registered(in_force), "{now}");
            assert_eq!((ports.changed, ports.changes_at), (changed.iter().copied().collect(), changes_at.map(at)));
        }
        assert!(known.changed.is_empty(), "nothing is kept");
    }

    #[test]
    fn a_pe_that_registers_in_a_loop_changes_its_service_at_a_steady_pace() {
        let mut known = KnownEndpoints::default();
        known.follow(&Endpoints::new(), at(0));
        let mut changes = 0;
        let mut before = Arc::new(Endpoints::new());
        for turn in 1..=60_000_i64 {
            let has = if turn % 2 == 0 { registered(&[(3, 80)]) } else { Endpoints::new() };
            let now = known.follow(&has, at(turn)).endpoints;
            changes += i32::from(now != before);
            before = now;
        }
        assert_eq!(changes, 12, "once in 5 s, of 60");
    }

    #[test]
    fn hashes_are_those_of_the_same_plans_and_endpoints() {
        let mut known = KnownEndpoints::default();
        let (one, other) = (Arc::new(registered(&[(0, 80)])), Arc::new(registered(&[(0, 81)])));
        let hashes = Arc::new(Hashes::from([((1, 0), "h".to_owned())]));
        known.keep(&["p"], &one, &hashes);
        let is_known = |plans: &[&str], endpoints| known.hashes(plans, endpoints).is_some();
        assert!(is_known(&["p"], &one));
        assert!(!is_known(&["p", "q"], &one) && !is_known(&["p"], &other));
    }

    #[test]
    fn a_service_has_what_it_can_have_by_name() {
        let endpoints = [
            endpoint("web", 80, "TCP"),
            endpoint("a", 1, "UDP"),
            endpoint("web", 79, "TCP"),
            endpoint("Upper", 2, "TCP"),
            endpoint("b", 3, "SCTP"),
            endpoint("c", 0, "TCP"),
        ];
        let expected = [("usr-a", "UDP", 1), ("usr-web", "TCP", 79)];
        assert_eq!(of_service(&endpoints), expected.map(|(name, protocol, port)| (name.to_owned(), protocol, port)));
    }
}
