//! The shape of an application: its [`super::wiring`] at the widths in force, before anything is copied.
//!
//! All channels of a region have the same structure, so the shape holds it once, as channel 0. A copy of an operator is
//! identified by the operator and its *global channel*: a number with one digit per region around it, innermost least
//! significant (rule expansion-5). A splitter into channel `p` of a region of width `w` turns the global channel `g`
//! into `g * w + p`. A merger out of the region turns `g` into `g / w`. The expansion needs no more than that: nothing
//! is copied until operators are made.
//!
//! Invariants of a shape that was built without problems: those of its wiring. [`super::links`] checks that the scopes
//! of links agree.

use super::Channel;
use super::widths::{self, Integers, Overrides};
use super::wiring::{ListId, Side, Wiring};
use crate::budget::Budget;
use crate::error::{Error, Problem, Problems, Stage, excerpt};
use crate::logical::submission::Bindings;
use crate::logical::{Application, OperatorId, PortKind};
use cranelift_entity::{PrimaryMap, SecondaryMap, entity_impl};
use smallvec::SmallVec;
use std::ops::Deref;
use std::sync::Arc;

/// A region, or the outside of all regions, as a context of operators.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub(super) struct ScopeId(u32);
entity_impl!(ScopeId, "scope");

impl ScopeId {
    /// Outside all regions.
    pub(super) const ROOT: Self = Self(0);
}

/// A context of operators.
#[derive(Clone, Debug)]
pub(super) struct Scope {
    /// Position of its region in the application's table; none outside all regions.
    pub(super) region: Option<usize>,
    /// The context around it; itself for the root.
    pub(super) parent: ScopeId,
    /// Width of the region; 1 for the root.
    pub(super) width: u32,
    /// Number of its global channels: the product of all widths.
    pub(super) channels: u32,
}

/// The shape of an application: its wiring, at the widths in force.
pub(super) struct Shape<'a> {
    pub(super) application: &'a Application,
    pub(super) wiring: Arc<Wiring>,
    pub(super) scopes: PrimaryMap<ScopeId, Scope>,
    /// The context of each operator; that of a parallel operator is its own region.
    pub(super) scope_of: SecondaryMap<OperatorId, ScopeId>,
    /// By region: its context, once the walk has entered it.
    pub(super) scope_of_region: Vec<Option<ScopeId>>,
}

impl Deref for Shape<'_> {
    type Target = Wiring;

    fn deref(&self) -> &Wiring {
        &self.wiring
    }
}

impl<'a> Shape<'a> {
    /// Builds the shape for the widths in force. It reuses the wiring of an earlier expansion that had no problems, if
    /// there is one. It adds all problems of indexes, connections, regions and widths. A shape with problems has the
    /// names and contexts of operators, but its links must not be followed.
    ///
    /// # Errors
    ///
    /// The budget ends.
    pub(super) fn build(
        application: &'a Application,
        wiring: Option<Arc<Wiring>>,
        overrides: &Overrides<i128>,
        bindings: &Bindings,
        problems: &mut Problems,
        budget: &Budget,
    ) -> Result<Self, Error> {
        // Problems that the walk finds are reported before those of links (rule expansion-32).
        let mut found = Problems::default();
        let mut resolved: Vec<Option<u32>> = vec![None; application.regions.len()];
        let (mut pace, mut integers) = (budget.pace(), Integers::new(bindings));
        let mut resolve = |id: OperatorId, position: usize, problems: &mut Problems| -> Result<(), Error> {
            let (region, name) = (&application.regions[position], &application.operators[id].logical_name);
            let said = overrides.of(name, &mut pace)?;
            let (integers, pace) = (&mut integers, &mut pace);
            let width = widths::resolve(region, name, application, said, integers, &budget.limits, pace);
            if let Some(width) = problems.keep(width)? {
                resolved[position] = Some(width);
            }
            Ok(())
        };
        let wiring = match wiring {
            Some(wiring) => {
                for (id, position) in wiring.parallel_regions() {
                    resolve(id, position, problems)?;
                }
                wiring
            }
            None => Arc::new(Wiring::new(application, problems, &mut found, budget, resolve)?),
        };
        let root = Scope { region: None, parent: ScopeId::ROOT, width: 1, channels: 1 };
        let mut shape = Self {
            application,
            wiring,
            scopes: PrimaryMap::from_iter([root]),
            scope_of: SecondaryMap::with_capacity(application.operators.len()),
            scope_of_region: vec![None; application.regions.len()],
        };
        shape.enter_scopes(&resolved, problems);
        problems.extend(found.into_vec());
        Ok(shape)
    }

    /// The links of one side of a port.
    pub(super) fn list(&self, id: OperatorId, kind: PortKind, position: usize, side: Side) -> ListId {
        self.wiring.list(self.application, (id, kind, position), side)
    }

    /// The context of a splitter's outputs.
    pub(super) fn inside(&self, region: usize) -> ScopeId {
        self.scope_of_region.get(region).copied().flatten().unwrap_or(ScopeId::ROOT)
    }

    /// The width of a region.
    pub(super) fn width(&self, region: usize) -> u32 {
        self.scopes[self.inside(region)].width
    }

    /// How many copies of an operator there are within one copy of its owner.
    pub(super) fn copies(&self, id: OperatorId) -> u32 {
        if self.wiring.region_of[id].is_some() { self.scopes[self.scope_of[id]].width } else { 1 }
    }

    /// The channels that an operator is in, given its global channel, innermost first (rules expansion-4 and
    /// expansion-5).
    pub(super) fn channels_of(&self, id: OperatorId, channel: u32) -> SmallVec<[Channel; 2]> {
        let mut channels = SmallVec::new();
        let (mut scope, mut global) = (&self.scopes[self.scope_of[id]], channel);
        while let Some(region) = scope.region {
            let local = global % scope.width;
            channels.push(Channel {
                region: self.application.regions[region].index,
                local,
                local_max: scope.width,
                global,
                global_max: scope.channels,
            });
            global /= scope.width;
            scope = &self.scopes[scope.parent];
        }
        channels
    }

    /// Gives every operator its context. Operators come after their owners.
    fn enter_scopes(&mut self, widths: &[Option<u32>], problems: &mut Problems) {
        for (id, operator) in self.application.operators.iter() {
            let around = operator.owner.map_or(ScopeId::ROOT, |owner| self.scope_of[owner]);
            let Some(region) = self.wiring.region_of[id].map(|region| region as usize) else {
                self.scope_of[id] = around;
                continue;
            };
            let width = widths.get(region).copied().flatten().unwrap_or(1);
            let channels = self.scopes[around].channels.checked_mul(width);
            if channels.is_none() && problems.is_empty() {
                let message = format!("parallel region {}: too many channels", excerpt(&operator.logical_name));
                problems.push(Problem::new(Stage::Topology, message).at(operator.place));
            }
            let channels = channels.unwrap_or(1);
            let scope = Scope { region: Some(region), parent: around, width, channels };
            self.scope_of[id] = self.scopes.push(scope);
            self.scope_of_region[region] = Some(self.scope_of[id]);
        }
    }
}
