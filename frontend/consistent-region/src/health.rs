//! Whether the PEs of a region run and are connected, and which launch of each (rule consistent-region-2).

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// What is known of a PE and its pod. Who finds it out leaves out objects of other owners.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeFacts {
    /// The launch that the PE is in, from 1.
    pub launch: u32,
    /// The last launch of which the PE said that it is connected to all others, if it has not said otherwise since.
    pub connected: Option<u32>,
    /// How often it had lost connections in that launch, and had all of them again.
    pub interruptions: u32,
    /// Its pod, if there is one.
    pub pod: Option<PodFacts>,
}

impl PeFacts {
    /// Whether a region of this PE alone would be healthy.
    #[must_use]
    pub fn are_healthy(&self) -> bool {
        run_of(0, Some(*self)).is_ok()
    }
}

/// What is known of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PodFacts {
    /// The launch that the pod was made for.
    pub launch: u32,
    /// Whether it runs.
    pub is_running: bool,
    /// Whether it ran until somebody, or something, has deleted it: a roll-out, a drain of its node, a user.
    pub is_taken_away: bool,
}

/// Whether a region can be driven.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Health {
    /// All PEs run and are connected, in these launches.
    Healthy(Launches),
    /// At least this PE is not.
    Unhealthy(Cause),
}

/// Why a region is not healthy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The region has no PEs.
    NoPes,
    /// There is no such PE.
    NoPe(u64),
    /// The PE has no pod, or one of another launch.
    NoPod(u64),
    /// The pod of the PE does not run.
    NotRunning(u64),
    /// The pod of the PE was deleted while it ran, and nothing else is missing but connections.
    TakenAway(u64),
    /// The PE has not said in this launch that it is connected.
    NotConnected(u64),
    /// The PE is there now, and was not since the region was looked at last.
    WasMissing(u64),
}

impl fmt::Display for Cause {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoPes => write!(formatter, "the region has no PEs"),
            Self::NoPe(pe) => write!(formatter, "there is no PE {pe}"),
            Self::NoPod(pe) => write!(formatter, "PE {pe} has no pod of its launch"),
            Self::NotRunning(pe) => write!(formatter, "the pod of PE {pe} does not run"),
            Self::TakenAway(pe) => write!(formatter, "the pod of PE {pe} was deleted"),
            Self::NotConnected(pe) => write!(formatter, "PE {pe} is not connected to all others"),
            Self::WasMissing(pe) => write!(formatter, "PE {pe} was missing, or not connected, a moment ago"),
        }
    }
}

/// The health of the region of these PEs. What is not known is not healthy.
#[must_use]
pub fn health(pes: &BTreeSet<u64>, facts: impl Fn(u64) -> Option<PeFacts>) -> Health {
    if pes.is_empty() {
        return Health::Unhealthy(Cause::NoPes);
    }
    let (mut launches, mut worst): (BTreeMap<u64, Run>, Option<Cause>) = (BTreeMap::new(), None);
    for &pe in pes {
        match run_of(pe, facts(pe)) {
            Ok(run) => {
                launches.insert(pe, run);
            }
            Err(cause) if worst.is_none_or(|worst| cause.weight() > worst.weight()) => worst = Some(cause),
            Err(_) => {}
        }
    }
    worst.map_or(Health::Healthy(Launches(launches)), Health::Unhealthy)
}

impl Cause {
    /// Of several causes the one with the greatest weight is told, of the first PE that has it. Whoever is not
    /// connected may not be because another one is missing, and one whose pod was deleted may not be the only one that
    /// is missing.
    fn weight(self) -> u8 {
        match self {
            Self::WasMissing(_) => 0,
            Self::NotConnected(_) => 1,
            Self::TakenAway(_) => 2,
            Self::NoPes | Self::NoPe(_) | Self::NoPod(_) | Self::NotRunning(_) => 3,
        }
    }
}

/// The launch in which a PE is healthy.
fn run_of(pe: u64, facts: Option<PeFacts>) -> Result<Run, Cause> {
    let facts = facts.ok_or(Cause::NoPe(pe))?;
    let pod = facts.pod.filter(|pod| pod.launch == facts.launch).ok_or(Cause::NoPod(pe))?;
    if pod.is_taken_away {
        return Err(Cause::TakenAway(pe));
    }
    if !pod.is_running {
        return Err(Cause::NotRunning(pe));
    }
    if facts.connected != Some(facts.launch) {
        return Err(Cause::NotConnected(pe));
    }
    Ok(Run { launch: facts.launch, interruptions: facts.interruptions })
}

/// A launch, and how often its PE had lost connections in it. What was lost with them is as lost as with a pod, so
/// another number counts as another launch. As JSON it is `2`, or `2.1` after one interruption.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Run {
    launch: u32,
    interruptions: u32,
}

impl fmt::Display for Run {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}", self.launch)?;
        if self.interruptions == 0 { Ok(()) } else { write!(formatter, ".{}", self.interruptions) }
    }
}

impl Serialize for Run {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Run {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let (launch, interruptions) = text.split_once('.').unwrap_or((text.as_str(), "0"));
        match (launch.parse(), interruptions.parse()) {
            (Ok(launch), Ok(interruptions)) => Ok(Self { launch, interruptions }),
            _ => Err(D::Error::custom(format!("{text:?} is no launch"))),
        }
    }
}

/// The PEs of a region with the launch of each. As JSON it is grouped by launch, because most PEs are in their first
/// one: `{"1":[0,1,3],"2":[2]}`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(from = "BTreeMap<Run, Vec<u64>>", into = "BTreeMap<Run, Vec<u64>>")]
pub struct Launches(BTreeMap<u64, Run>);

impl Launches {
    /// The launch of a PE, if it belongs to the region.
    #[must_use]
    pub fn of(&self, pe: u64) -> Option<u32> {
        self.0.get(&pe).map(|run| run.launch)
    }

    /// The PEs.
    pub fn pes(&self) -> impl Iterator<Item = u64> + '_ {
        self.0.keys().copied()
    }

    /// Whether no PE was ever launched again, or has lost connections.
    #[must_use]
    pub fn are_first(&self) -> bool {
        self.0.values().all(|run| run.launch <= 1 && run.interruptions == 0)
    }
}

impl FromIterator<(u64, u32)> for Launches {
    fn from_iter<I: IntoIterator<Item = (u64, u32)>>(launches: I) -> Self {
        Self(launches.into_iter().map(|(pe, launch)| (pe, Run { launch, interruptions: 0 })).collect())
    }
}

impl From<BTreeMap<Run, Vec<u64>>> for Launches {
    fn from(grouped: BTreeMap<Run, Vec<u64>>) -> Self {
        Self(grouped.into_iter().flat_map(|(run, pes)| pes.into_iter().map(move |pe| (pe, run))).collect())
    }
}

impl From<Launches> for BTreeMap<Run, Vec<u64>> {
    fn from(launches: Launches) -> Self {
        let mut grouped: Self = Self::new();
        for (pe, run) in launches.0 {
            grouped.entry(run).or_default().push(pe);
        }
        grouped
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_region_is_healthy_if_every_pe_runs_and_is_connected_in_its_present_launch() {
        let pod = |launch, is_running| Some(PodFacts { launch, is_running, is_taken_away: false });
        let taken = |launch| Some(PodFacts { launch, is_running: false, is_taken_away: true });
        let facts = |launch, connected, pod| Some(PeFacts { launch, connected, interruptions: 0, pod });
        let first = facts(1, Some(1), pod(1, true));
        let healthy = |launches: [(u64, u32); 2]| Health::Healthy(launches.into_iter().collect());
        let unhealthy = Health::Unhealthy;
        // PE 3, PE 7 -> health
        let table = [
            ("both", first, first, healthy([(3, 1), (7, 1)])),
            ("launched again", facts(2, Some(2), pod(2, true)), first, healthy([(3, 2), (7, 1)])),
            ("no PE", first, None, unhealthy(Cause::NoPe(7))),
            ("no pod", facts(1, Some(1), None), first, unhealthy(Cause::NoPod(3))),
            ("pod of an earlier launch", facts(2, Some(2), pod(1, true)), first, unhealthy(Cause::NoPod(3))),
            ("pod does not run", facts(1, Some(1), pod(1, false)), first, unhealthy(Cause::NotRunning(3))),
            ("not connected", first, facts(1, None, pod(1, true)), unhealthy(Cause::NotConnected(7))),
            ("pod is deleted", facts(1, Some(1), taken(1)), first, unhealthy(Cause::TakenAway(3))),
            (
                "the other one",
                facts(1, None, pod(1, true)),
                facts(1, Some(1), taken(1)),
                unhealthy(Cause::TakenAway(7)),
            ),
            ("one failed", facts(1, Some(1), taken(1)), facts(1, None, pod(1, false)), unhealthy(Cause::NotRunning(7))),
            ("pod is deleted of another launch", facts(2, Some(2), taken(1)), first, unhealthy(Cause::NoPod(3))),
            ("connected before", first, facts(2, Some(1), pod(2, true)), unhealthy(Cause::NotConnected(7))),
        ];
        for (name, three, seven, expected) in table {
            let facts = |pe| if pe == 3 { three } else { seven };
            assert_eq!(health(&[3, 7].into(), facts), expected, "{name}");
        }
        assert_eq!(health(&BTreeSet::new(), |_| first), unhealthy(Cause::NoPes));
    }

    #[test]
    fn launches_are_written_by_launch() {
        let launches: Launches = [(0, 1), (2, 2), (1, 1)].into_iter().collect();
        let text = serde_json::to_string(&launches).unwrap();
        assert_eq!(text, r#"{"1":[0,1],"2":[2]}"#);
        assert_eq!(serde_json::from_str::<Launches>(&text).unwrap(), launches);
    }

    #[test]
    fn a_pe_that_has_lost_connections_in_between_is_another_one_and_that_is_stored() {
        let facts = |interruptions| {
            let pod = Some(PodFacts { launch: 2, is_running: true, is_taken_away: false });
            Some(PeFacts { launch: 2, connected: Some(2), interruptions, pod })
        };
        let of = |interruptions| match health(&[3].into(), |_| facts(interruptions)) {
            Health::Healthy(launches) => launches,
            Health::Unhealthy(cause) => panic!("{cause}"),
        };
        for (interruptions, expected) in [(0, r#"{"2":[3]}"#), (1, r#"{"2.1":[3]}"#), (12, r#"{"2.12":[3]}"#)] {
            let launches = of(interruptions);
            let text = serde_json::to_string(&launches).unwrap();
            assert_eq!((text.as_str(), launches.of(3)), (expected, Some(2)));
            assert_eq!(serde_json::from_str::<Launches>(&text).unwrap(), launches);
            assert_eq!(serde_json::from_value::<Launches>(serde_json::to_value(&launches).unwrap()).unwrap(), launches);
            assert_ne!(of(interruptions + 1), launches);
        }
        let once: Launches = serde_json::from_str(r#"{"1.1":[3]}"#).unwrap();
        assert!(!once.are_first());
        for wrong in [r#"{"one":[3]}"#, r#"{"1.":[3]}"#, r#"{"1.1.1":[3]}"#] {
            assert!(serde_json::from_str::<Launches>(wrong).is_err(), "{wrong}");
        }
    }
}
