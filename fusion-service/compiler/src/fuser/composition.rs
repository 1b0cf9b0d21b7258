//! An application prepared for fusion: its constraints, units and rules.

use super::FusionType;
use super::constraints::constraints;
use super::graph::Graph;
use super::host_bindings::HostBindings;
use super::hosts::HostGroups;
use super::rules::Rules;
use super::units::{Unit, Units};
use crate::budget::Budget;
use crate::error::{Error, Problems};

pub(super) struct Composition<'a> {
    pub(super) graph: &'a Graph<'a>,
    pub(super) hosts: HostGroups,
    pub(super) units: Units,
    pub(super) rules: Rules,
}

impl<'a> Composition<'a> {
    /// Finds host groups, units and rules.
    ///
    /// # Errors
    ///
    /// Stage `compose`: an operator names a host pool or host that does not exist, no PE can hold a unit (rule
    /// fusion-9), or operators may choose from too many hosts. Or the budget ends.
    pub(super) fn new(graph: &'a Graph<'a>, kind: FusionType, budget: &Budget) -> Result<Self, Error> {
        budget.check()?;
        let mut problems = Problems::default();
        let hosts = HostGroups::find(graph, &mut problems, budget)?;
        let constraints = constraints(graph, &hosts, kind, budget)?;
        budget.check()?;
        let units = Units::new(graph, &constraints);
        let rules = problems.keep(Rules::new(graph, &units, &hosts, &constraints, budget))?;
        let Some(rules) = rules.filter(|_| problems.is_empty()) else {
            return Err(Error::Rejected(problems.into_vec()));
        };
        Ok(Self { graph, hosts, units, rules })
    }

    /// The bindings by host groups, before units share PEs.
    ///
    /// # Errors
    ///
    /// Stage `compose`: the hosts that suit units are too many. Or the budget ends.
    pub(super) fn host_bindings(&self, budget: &Budget) -> Result<HostBindings<'a>, Error> {
        HostBindings::new(self.graph, &self.units, Some(&self.hosts), &self.rules, budget)
    }

    /// Bindings without those of host groups. They only follow which units share a PE.
    ///
    /// # Errors
    ///
    /// The budget ends.
    pub(super) fn host_bindings_without_groups(&self, budget: &Budget) -> Result<HostBindings<'a>, Error> {
        HostBindings::new(self.graph, &self.units, None, &self.rules, budget)
    }

    /// Hash code of a unit (rule fusion-18).
    pub(super) fn hash(&self, unit: Unit) -> u32 {
        self.units
            .operators(unit)
            .iter()
            .fold(31, |sum: u32, &node| sum.wrapping_add(self.graph.operators()[node].index.wrapping_add(31)))
    }

    /// Number of connections that begin or end in a unit.
    pub(super) fn degree(&self, unit: Unit) -> u32 {
        self.units.operators(unit).iter().fold(0, |sum: u32, &node| sum.saturating_add(self.graph.degree(node)))
    }
}
