//! Why a resize adds, restarts or removes a PE: the first thing that explains it (rule layout-12).
//!
//! Knows: the PEs before and now. Must not know: how the compiler decides whether a PE restarts, which depends on the
//! ids of its document.

use super::Compiled;
use crate::budget::Pace;
use crate::elements::Elements;
use crate::error::{Error, excerpt};
use crate::fuser::Pe;
use crate::phrase::listed;
use crate::topology::{IgnoredCounts, Node, Topology};
use get_size2::GetSize;
use std::fmt::{self, Display, Formatter};

/// Why a PE is added, restarted or removed. Its text is a clause for people.
#[derive(Clone, Debug, PartialEq, Eq, GetSize)]
pub enum Reason {
    /// Added: it holds these operators.
    Holds(SomeOperators),
    /// Restarted: it takes in these operators.
    TakesIn(SomeOperators),
    /// Restarted: these operators are gone or in another PE.
    NoLongerHolds(SomeOperators),
    /// Restarted: an operator sees another number of channels.
    Channels {
        /// Name of the operator.
        operator: String,
        /// Name of the parallel region.
        region: String,
        /// Channels before.
        before: u32,
        /// Channels now.
        now: u32,
    },
    /// Restarted: an operator has another name.
    Renamed {
        /// Name now.
        operator: String,
        /// Name before.
        before: String,
    },
    /// Restarted: it is connected to these operators of other PEs, and was not.
    ConnectedTo(SomeOperators),
    /// Restarted: it was connected to these operators of other PEs.
    NoLongerConnectedTo(SomeOperators),
    /// Restarted: something else in its document.
    DocumentChanged,
    /// Removed: all its operators are gone; these.
    NoLongerExist(SomeOperators),
    /// Removed: what is left of its operators is elsewhere; these.
    InOtherElements(SomeOperators),
}

/// Operators: the names of the first ones, and the number of all.
#[derive(Clone, Debug, PartialEq, Eq, GetSize)]
pub struct SomeOperators {
    first: Vec<String>,
    count: usize,
}

impl SomeOperators {
    pub(super) fn new<'a>(names: impl ExactSizeIterator<Item = &'a str>) -> Self {
        const MOST: usize = 3;
        let count = names.len();
        Self { first: names.take(MOST).map(excerpt).collect(), count }
    }
}

impl Display for SomeOperators {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(&listed(&self.first, self.count))
    }
}

impl Display for Reason {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Holds(operators) => write!(f, "holds {operators}"),
            Self::TakesIn(operators) => write!(f, "takes in {operators}"),
            Self::NoLongerHolds(operators) => write!(f, "no longer holds {operators}"),
            Self::Channels { operator, region, before, now } => {
                write!(f, "{operator}: {now} channels instead of {before} in the parallel region {region}")
            }
            Self::Renamed { operator, before } => write!(f, "{operator} was called {before}"),
            Self::ConnectedTo(operators) => write!(f, "is connected to {operators}"),
            Self::NoLongerConnectedTo(operators) => write!(f, "is no longer connected to {operators}"),
            Self::DocumentChanged => f.write_str("its document changed"),
            Self::NoLongerExist(operators) => {
                let verb = if operators.count == 1 { "exists" } else { "exist" };
                write!(f, "{operators} no longer {verb}")
            }
            Self::InOtherElements(operators) => {
                let now = if operators.count == 1 { "is in another PE" } else { "are in other PEs" };
                write!(f, "{operators} {now}")
            }
        }
    }
}

impl Reason {
    /// A reason as text; no text where there is none.
    pub fn describe(reason: Option<&Self>) -> String {
        reason.map_or_else(String::new, Self::to_string)
    }

    /// Why a PE with operators of these names is added.
    pub(super) fn of_added(operators: &[String]) -> Self {
        Self::Holds(SomeOperators::new(operators.iter().map(String::as_str)))
    }

    /// Why the PE of this id restarts. None if one of the generations does not have it. `ignored` are the numbers of
    /// channels that are not observed now.
    ///
    /// # Errors
    ///
    /// The budget ends.
    pub(super) fn of_restarted(
        before: &Compiled,
        now: &Elements,
        id: u64,
        ignored: &IgnoredCounts,
        pace: &mut Pace<'_>,
    ) -> Result<Option<Self>, Error> {
        let (Some(old), Some(new)) = (before.elements().find(id), now.find(id)) else { return Ok(None) };
        let (then, today) = (before.topology(), now.topology());
        // Both ascend by operator index.
        let (had, has) = (before.elements().members(old), now.members(new));
        pace.steps(u32::try_from(8 * (had.len() + has.len())).unwrap_or(u32::MAX))?;
        let find = |members: &[Node], topology: &Topology, index: u32| {
            let found = members.binary_search_by_key(&index, |&node| topology.operators[node].index).ok()?;
            members.get(found).copied()
        };
        let operators = has.iter().map(|&node| &today.operators[node]);
        let gained: Vec<&str> =
            operators.filter(|o| find(had, then, o.index).is_none()).map(|operator| operator.name.as_str()).collect();
        if !gained.is_empty() {
            return Ok(Some(Self::TakesIn(SomeOperators::new(gained.into_iter()))));
        }
        let operators = had.iter().map(|&node| &then.operators[node]);
        let lost: Vec<&str> =
            operators.filter(|o| find(has, today, o.index).is_none()).map(|operator| operator.name.as_str()).collect();
        if !lost.is_empty() {
            return Ok(Some(Self::NoLongerHolds(SomeOperators::new(lost.into_iter()))));
        }
        for &node in has {
            let operator = &today.operators[node];
            let Some(earlier) = find(had, then, operator.index).map(|node| &then.operators[node]) else { continue };
            pace.steps(u32::try_from(operator.channels.len()).unwrap_or(u32::MAX))?;
            if let Some((was, channel)) = ignored.difference(&earlier.channels, &operator.channels) {
                let region = today.regions.binary_search_by_key(&channel.region, |region| region.index);
                let region = region.ok().and_then(|position| today.regions.get(position));
                return Ok(Some(Self::Channels {
                    operator: excerpt(&operator.name),
                    region: region.map_or(String::new(), |region| excerpt(&region.name)),
                    before: was.local_max,
                    now: channel.local_max,
                }));
            }
            if operator.name != earlier.name {
                return Ok(Some(Self::Renamed { operator: excerpt(&operator.name), before: excerpt(&earlier.name) }));
            }
        }
        Ok(Some(Self::of_peers(before, now, old, new, pace)?.unwrap_or(Self::DocumentChanged)))
    }

    /// The operators of other PEs that this PE is newly connected to, or is not connected to any more.
    fn of_peers(
        before: &Compiled,
        now: &Elements,
        old: Pe,
        new: Pe,
        pace: &mut Pace<'_>,
    ) -> Result<Option<Self>, Error> {
        let (had, has) = (connected(before.elements(), old, pace)?, connected(now, new, pace)?);
        let without = |all: &[(u32, &str)], index: u32| all.binary_search_by_key(&index, |(index, _)| *index).is_err();
        let new: Vec<&str> = has.iter().filter(|(index, _)| without(&had, *index)).map(|(_, name)| *name).collect();
        if !new.is_empty() {
            return Ok(Some(Self::ConnectedTo(SomeOperators::new(new.into_iter()))));
        }
        let gone: Vec<&str> = had.iter().filter(|(index, _)| without(&has, *index)).map(|(_, name)| *name).collect();
        Ok((!gone.is_empty()).then(|| Self::NoLongerConnectedTo(SomeOperators::new(gone.into_iter()))))
    }

    /// Why the PE of this id is removed. None if there was none.
    pub(super) fn of_removed(before: &Compiled, now: &Elements, id: u64) -> Option<Self> {
        let pe = before.elements().find(id)?;
        let then = before.topology();
        let today = now.topology().operators.as_values_slice();
        let members = before.elements().members(pe);
        let stay: Vec<&str> = (members.iter().map(|&node| &then.operators[node]))
            .filter(|operator| today.binary_search_by_key(&operator.index, |today| today.index).is_ok())
            .map(|operator| operator.name.as_str())
            .collect();
        if stay.is_empty() {
            let all = members.iter().map(|&node| then.operators[node].name.as_str());
            return Some(Self::NoLongerExist(SomeOperators::new(all)));
        }
        Some(Self::InOtherElements(SomeOperators::new(stay.into_iter())))
    }
}

/// Index and name of the operators of other PEs that a PE is connected to, ascending index.
fn connected<'e>(elements: &'e Elements, pe: Pe, pace: &mut Pace<'_>) -> Result<Vec<(u32, &'e str)>, Error> {
    let operators = &elements.topology().operators;
    let mut others: Vec<Node> = Vec::new();
    for connection in elements.members(pe).iter().flat_map(|&node| elements.connections_of(node)) {
        pace.step()?;
        let ends = [connection.source, connection.target];
        others.extend(ends.into_iter().filter(|&end| elements.partition().pe(end) != pe));
    }
    others.sort_unstable();
    others.dedup();
    Ok(others.into_iter().map(|node| (operators[node].index, operators[node].name.as_str())).collect())
}
