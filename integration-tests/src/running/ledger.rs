//! The tuples of a job, over all launches of its PEs.
//!
//! A double counts from 0 at each launch, and what it has counted goes with it. So the ledger keeps the last status of
//! each launch, at best the one that the double says at its end ([`Pes::ended`](super::pes::Pes::ended)), and adds up.
//!
//! Which tuples have arrived follows from their numbers. Of the numbers of a launch of a source that has ended, those
//! that have not arrived are lost; of one that runs, those below the highest that has arrived. The tuples above it are
//! on the way. So what has just happened shows as a loss until the tuples that are on the way have arrived.
//!
//! Of jobs without consistent regions: in one, numbers go back.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Sub;
use streams_pe_double::status::{SinkStatus, Status, arrivals};

/// The tuples of a job.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    /// The last status of each launch of a PE.
    launches: BTreeMap<(u64, u64), Launch>,
}

#[derive(Clone, Debug)]
struct Launch {
    status: Status,
    ended: bool,
}

/// Tuples, in numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tuples {
    /// By operators without inputs.
    pub made: u64,
    /// At operators without outputs, on each way from a source to one of them.
    pub arrived: u64,
    /// On each such way.
    pub lost: u64,
}

impl Sub for Tuples {
    type Output = Self;

    /// What has happened since `earlier`.
    fn sub(self, earlier: Self) -> Self {
        Self {
            made: self.made.saturating_sub(earlier.made),
            arrived: self.arrived.saturating_sub(earlier.arrived),
            lost: self.lost.saturating_sub(earlier.lost),
        }
    }
}

impl fmt::Display for Tuples {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} made, {} arrived, {} lost", self.made, self.arrived, self.lost)
    }
}

impl Ledger {
    /// Keeps what PEs that run say of themselves.
    pub fn running(&mut self, statuses: impl IntoIterator<Item = Status>) {
        for status in statuses {
            self.keep(status, false);
        }
    }

    /// Keeps what PEs have said at their end.
    pub fn ended(&mut self, statuses: impl IntoIterator<Item = Status>) {
        for status in statuses {
            self.keep(status, true);
        }
    }

    fn keep(&mut self, status: Status, ended: bool) {
        let known = self.launches.entry((status.pe, status.launch));
        let launch = known.or_insert_with(|| Launch { status: status.clone(), ended });
        // Nothing that a double said before its end is news afterwards.
        if ended || !launch.ended {
            *launch = Launch { status, ended };
        }
    }

    /// The tuples of the job until now.
    #[must_use]
    pub fn tuples(&self) -> Tuples {
        let arrivals = arrivals(self.launches.values().map(|launch| &launch.status));
        let mut ways: BTreeMap<Way<'_>, BTreeMap<u64, &SinkStatus>> = BTreeMap::new();
        for arrival in &arrivals {
            let (source, launch) = arrival.source.split_once('#').unwrap_or((&arrival.source, ""));
            let way = Way { source, path: &arrival.path, sink: &arrival.operator, port: arrival.port };
            ways.entry(way).or_default().insert(launch.parse().unwrap_or_default(), arrival);
        }
        let mut tuples = Tuples { arrived: arrivals.iter().map(|arrival| arrival.received).sum(), ..Tuples::default() };
        for ((pe, launch), Launch { status, ended }) in &self.launches {
            let has_ended = *ended || self.launches.range((*pe, launch + 1)..=(*pe, u64::MAX)).next().is_some();
            for operator in &status.operators {
                tuples.made += operator.made;
                let source = format!("{}/{}", status.job_id, operator.name);
                for (_, arrivals) in ways.iter().filter(|(way, _)| way.source == source) {
                    let arrival = arrivals.get(launch);
                    let (received, next) = arrival.map_or((0, 0), |arrival| (arrival.received, arrival.highest + 1));
                    let due = if has_ended { operator.made.max(next) } else { next };
                    tuples.lost += due.saturating_sub(received);
                }
            }
        }
        tuples
    }
}

/// The way of tuples from one source to one operator without outputs, in all launches of both.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Way<'a> {
    source: &'a str,
    path: &'a str,
    sink: &'a str,
    port: u32,
}

#[cfg(test)]
pub(crate) mod tests {
    use super::{Ledger, Tuples};
    use serde_json::json;
    use streams_pe_double::status::{OperatorStatus, Problems, RoutesStatus, SinkStatus, Status};

    /// What a PE of job 1 says: of operators, what they have made; of what has arrived at its sink from launches of the
    /// source `In`, how many and the highest.
    pub(crate) fn status(pe: u64, launch: u64, made: &[(&str, u64)], arrived: &[(u64, u64, u64)]) -> Status {
        let operator = |(name, made): &(&str, u64)| OperatorStatus {
            index: 0,
            name: (*name).to_owned(),
            made: *made,
            taken: 0,
            circled: 0,
            refused: 0,
        };
        let sink = |(launch, received, highest): &(u64, u64, u64)| SinkStatus {
            operator: "Out".to_owned(),
            port: 0,
            source: format!("1/In#{launch}"),
            path: "1:In".to_owned(),
            received: *received,
            highest: *highest,
            lost: highest + 1 - received,
            doubled: 0,
            late: 0,
        };
        let status = json!({
            "namespace": "n", "job": "j", "jobId": 1, "pe": pe, "launch": launch, "address": "127.0.0.1",
            "bundle": null, "started": true, "connectivity": "Full", "reported": null, "outputs": [], "inputs": [],
            "operators": made.iter().map(operator).collect::<Vec<_>>(),
            "sinks": arrived.iter().map(sink).collect::<Vec<_>>(),
            "routes": RoutesStatus::default(), "regions": {}, "problems": Problems::default(),
        });
        serde_json::from_value(status).unwrap()
    }

    /// A source, PE 0, and a sink, PE 1.
    fn source(launch: u64, made: u64) -> Status {
        status(0, launch, &[("In", made)], &[])
    }

    fn sink(launch: u64, arrived: &[(u64, u64, u64)]) -> Status {
        status(1, launch, &[("Out", 0)], arrived)
    }

    #[test]
    fn tuples_are_added_up_over_launches() {
        for (what, running, ended, made, arrived, lost) in [
            ("nothing", vec![], vec![], 0, 0, 0),
            ("two on the way", vec![source(1, 10), sink(1, &[(1, 8, 7)])], vec![], 10, 8, 0),
            ("a gap", vec![source(1, 10), sink(1, &[(1, 7, 8)])], vec![], 10, 7, 2),
            ("nothing has arrived", vec![source(1, 10), sink(1, &[])], vec![], 10, 0, 0),
            (
                "the source has restarted",
                vec![source(1, 9), source(2, 5), sink(1, &[(1, 8, 7), (2, 5, 4)])],
                vec![source(1, 10)],
                15,
                13,
                2,
            ),
            (
                "nothing of the first launch has arrived",
                vec![source(2, 5), sink(1, &[(2, 5, 4)])],
                vec![source(1, 3)],
                8,
                5,
                3,
            ),
            (
                "the sink has restarted",
                vec![source(1, 20), sink(1, &[(1, 4, 3)]), sink(2, &[(1, 8, 19)])],
                vec![sink(1, &[(1, 10, 9)])],
                20,
                18,
                2,
            ),
        ] {
            let mut ledger = Ledger::default();
            ledger.running(running.clone());
            ledger.ended(ended);
            assert_eq!(ledger.tuples(), Tuples { made, arrived, lost }, "{what}");
        }
    }

    #[test]
    fn what_is_said_at_the_end_counts_whatever_was_seen_before() {
        let mut ledger = Ledger::default();
        ledger.running([source(1, 4), sink(1, &[(1, 4, 3)])]);
        ledger.ended([source(1, 6)]);
        ledger.running([source(1, 5)]);
        let tuples = ledger.tuples();
        assert_eq!((tuples.made, tuples.arrived, tuples.lost), (6, 4, 2));
        ledger.running([source(2, 1), sink(1, &[(1, 6, 5), (2, 1, 0)])]);
        let later = ledger.tuples();
        assert_eq!((later.made, later.arrived, later.lost), (7, 7, 0), "they were on the way");
        assert_eq!(later - tuples, Tuples { made: 1, arrived: 3, lost: 0 });
        assert_eq!(later.to_string(), "7 made, 7 arrived, 0 lost");
    }
}
