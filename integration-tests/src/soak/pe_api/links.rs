//! The connections between the PEs of a job: one is there as long as both ends run and expect each other.
//!
//! Knows: who runs. Must not know: what anybody makes of it. Invariant: connections of a PE are counted as they are.

use super::topology::Topology;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use streams_api::Connectivity;
use tokio::sync::watch;

/// How many connections a PE has, and how many it should have.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Count {
    there: usize,
    all: usize,
    /// The network is broken: none of them is there.
    is_cut: bool,
    /// All PEs notice this at the same moment.
    pub(super) at_once: bool,
}

impl Count {
    /// What follows for the connectivity.
    pub(super) fn connectivity(self) -> Connectivity {
        match self.there() {
            there if there == self.all => Connectivity::Full,
            0 => Connectivity::None,
            _ => Connectivity::Partial,
        }
    }

    /// How many are there.
    pub(super) fn there(self) -> usize {
        if self.is_cut { 0 } else { self.there }
    }
}

/// A PE that runs.
#[derive(Debug)]
struct Station {
    /// Tells its launches apart.
    number: u64,
    expected: BTreeSet<String>,
    count: watch::Sender<Count>,
}

#[derive(Debug)]
struct Network {
    topology: Topology,
    stations: BTreeMap<String, Station>,
    launches: u64,
    is_cut: bool,
}

/// The connections of a job. Cheap to clone; all clones are the same.
#[derive(Debug, Clone)]
pub(super) struct Links(Arc<Mutex<Network>>);

/// A PE runs as long as this is there.
#[derive(Debug)]
pub(super) struct Presence {
    links: Links,
    operator: String,
    number: u64,
    /// How its connections are.
    pub(super) count: watch::Receiver<Count>,
}

impl Links {
    /// Nobody runs yet.
    pub(super) fn new(topology: Topology) -> Self {
        let network = Network { topology, stations: BTreeMap::new(), launches: 0, is_cut: false };
        Self(Arc::new(Mutex::new(network)))
    }

    /// PEs that start from now on have the connections of these widths.
    pub(super) fn change(&self, topology: Topology) {
        self.0.lock().topology = topology;
    }

    /// Whether an operator sends to others.
    pub(super) fn sends(&self, operator: &str) -> bool {
        !self.0.lock().topology.peers(operator).outputs.is_empty()
    }

    /// A PE starts.
    pub(super) fn enter(&self, operator: &str) -> Presence {
        let mut network = self.0.lock();
        network.leave(operator, None);
        let peers = network.topology.peers(operator);
        let expected: BTreeSet<String> = peers.inputs.into_iter().chain(peers.outputs).collect();
        let mut there = 0;
        for peer in &expected {
            if let Some(station) = network.stations.get(peer).filter(|station| station.expected.contains(operator)) {
                station.count.send_modify(|count| {
                    count.there += 1;
                    count.at_once = false;
                });
                there += 1;
            }
        }
        network.launches += 1;
        let number = network.launches;
        let count = Count { there, all: expected.len(), is_cut: network.is_cut, at_once: false };
        let (sender, count) = watch::channel(count);
        network.stations.insert(operator.to_owned(), Station { number, expected, count: sender });
        Presence { links: self.clone(), operator: operator.to_owned(), number, count }
    }

    /// The connectivity of an operator's PE, if it runs.
    pub(super) fn connectivity(&self, operator: &str) -> Option<Connectivity> {
        self.0.lock().stations.get(operator).map(|station| station.count.borrow().connectivity())
    }

    /// The network breaks or is mended, and everybody notices that at the same moment.
    pub(super) fn cut(&self, is_cut: bool) {
        let mut network = self.0.lock();
        network.is_cut = is_cut;
        for station in network.stations.values() {
            station.count.send_modify(|count| {
                count.is_cut = is_cut;
                count.at_once = true;
            });
        }
    }
}

impl Network {
    /// A PE ends: this launch of it, or any.
    fn leave(&mut self, operator: &str, launch: Option<u64>) {
        let is_meant = |station: &Station| launch.is_none_or(|number| station.number == number);
        if !self.stations.get(operator).is_some_and(is_meant) {
            return;
        }
        let Some(gone) = self.stations.remove(operator) else { return };
        for peer in &gone.expected {
            if let Some(station) = self.stations.get(peer).filter(|station| station.expected.contains(operator)) {
                station.count.send_modify(|count| {
                    count.there = count.there.saturating_sub(1);
                    count.at_once = false;
                });
            }
        }
    }
}

impl Drop for Presence {
    fn drop(&mut self) {
        self.links.0.lock().leave(&self.operator, Some(self.number));
    }
}

#[cfg(test)]
mod tests {
    use super::Links;
    use crate::sample::Widths;
    use crate::soak::pe_api::topology::Topology;
    use streams_api::Connectivity::{Full, None, Partial};

    #[test]
    fn a_connection_is_there_as_long_as_both_ends_are() {
        let widths = |model| Topology::Sensors(Widths { clean: 1, score: 1, model });
        let links = Links::new(widths(1));
        let is = |operator: &str| links.connectivity(operator);
        let clean = links.enter("Clean[0]");
        assert_eq!((is("Clean[0]"), is("Readings")), (Some(None), Option::None));
        let _readings = links.enter("Readings");
        assert_eq!((is("Clean[0]"), is("Readings")), (Some(Partial), Some(Full)));
        let window = links.enter("Score[0].Window");
        assert_eq!((is("Clean[0]"), is("Score[0].Window")), (Some(Full), Some(Partial)));
        links.cut(true);
        assert_eq!((is("Clean[0]"), clean.count.borrow().at_once), (Some(None), true));
        links.cut(false);

        // Another launch with other connections; the end of the one before is not its end.
        links.change(widths(2));
        let again = links.enter("Score[0].Window");
        drop(window);
        assert_eq!((is("Clean[0]"), again.count.borrow().all, clean.count.borrow().at_once), (Some(Full), 3, false));
        drop(again);
        assert_eq!((is("Clean[0]"), is("Score[0].Window")), (Some(Partial), Option::None));
    }
}
