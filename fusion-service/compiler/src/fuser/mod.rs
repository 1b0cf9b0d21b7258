//! Fusion: grouping operators into PEs.
//!
//! Fusion reads a [`Graph`]: operators with their [`Traits`], and connections. [`fuse`] makes a [`Partition`] of it for
//! a [`Fusion`]. [`fuse_sticky`] does the same for a job that runs already and leaves operators in their PEs;
//! [`fuse_anew`] leaves only those in closed PEs there. This module also computes what follows from a partition for
//! each PE: its ports ([`ports()`]) and how threads run through it ([`threads()`]).
//!
//! ```text
//! Graph --constraints--> Vec<Constraint> --units, rules--> Composition --fill--> Partition --ids, ports, threads-->
//! ```
//!
//! Input and output:
//!
//! * the input is `graph` with its `operators`, made by `from_topology`; `symbols` are numbers in place of its texts;
//! * `partition` is the result, `ids` gives its PEs their ids, and `automatic` computes the number of PEs where the job
//!   gives none.
//!
//! The demands of an application:
//!
//! * `constraints` lists them as data; `hosts` has the rules about hosts;
//! * `units` groups operators that must be together, and `rules` finds units that are alone or that no PE can hold
//!   (rules fusion-5 to fusion-9);
//! * `rules` decides from the list whether a unit may join a PE (rules fusion-10 to fusion-17); `host_bindings` records
//!   which units are bound to one host, and `host_sets` has the hosts that suit them;
//! * `composition` bundles the above for one application.
//!
//! How PEs are filled in manual mode (rules fusion-18 to fusion-21):
//!
//! * `fill` is the pass over all PEs, from scratch or around the operators that `sticky` leaves in their PEs;
//! * `work_list` has the units without a PE, at first in the order of a Java hash set (`hash_order`); `frontier` has
//!   those of them that are connected with the PE that is being filled.
//!
//! Afterwards, `ports` and `threads` compute what its PEs have, `decisions` names the constraints that decided it, and
//! `verify` checks it.
//!
//! Results of [`Fusion::Legacy`] and [`Fusion::Manual`] are those of the reference implementation, to the operator
//! (rule fusion-2); fusion types are additions.
//!
//! Knows: operators, constraints, connections. Must not know: XML, what operators do, why a job is fused, Kubernetes.
//!
//! Invariants: every operator is in exactly one PE; operators that must be together are in the same PE; results depend
//! on nothing but the arguments.

mod automatic;
mod composition;
mod constraints;
mod decisions;
mod fill;
mod from_topology;
mod frontier;
mod graph;
mod hash_order;
mod host_bindings;
mod host_sets;
mod hosts;
mod ids;
mod operators;
mod partition;
mod ports;
mod rules;
mod sticky;
mod symbols;
#[cfg(test)]
mod tests;
mod threads;
mod units;
pub mod verify;
mod work_list;

pub use automatic::{AutomaticFusion, Cpus, automatic};
pub use constraints::{Constraint, Demand, Mixed, Origin, Others, SameValue, constraints};
pub use decisions::{Cause, Decision, Decisions, Effect, decisions};
pub use graph::{FusionHostPool, Graph};
pub use hosts::{HostGroup, HostGroups};
pub use ids::{PeId, match_ids};
pub use operators::{FusionOperator, InputPortTraits, Label, Operators, OutputPortTraits, Threading, Traits, TraitsId};
pub use partition::{Partition, Pe};
pub use ports::{PeInput, PeOutput, PePorts, ports};
pub use sticky::{PartitionWithIds, RunningJob, fuse_anew, fuse_sticky};
pub use symbols::{Symbol, Symbols};
pub use threads::{OperatorThreads, ThreadedPort, threads};

use crate::budget::Budget;
use crate::error::{Error, Problem, Stage};
use composition::Composition;
use cranelift_entity::EntityRef;
use std::num::NonZeroU32;

/// How operators are grouped (rule fusion-1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fusion {
    /// Only operators that must be together share a PE: every unit is a PE (rule fusion-3).
    Legacy,
    /// Aims at a number of PEs, as far as the constraints allow (rule fusion-4). Automatic fusion is manual fusion with
    /// a computed number.
    Manual {
        /// Number of PEs to aim at.
        count: NonZeroU32,
        /// What parallel regions mean for it.
        kind: FusionType,
    },
}

/// What the channels of parallel regions mean for fusion (rule fusion-17).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FusionType {
    /// Nothing.
    #[default]
    NoChannelInfluence,
    /// Operators of a channel share PEs with operators of the same channel only.
    ChannelIsolation,
    /// Operators of different channels of a region never share a PE.
    ChannelExlocation,
}

impl FusionType {
    /// The type of this name in a job.
    pub fn parse(name: &str) -> Option<Self> {
        [Self::NoChannelInfluence, Self::ChannelIsolation, Self::ChannelExlocation]
            .into_iter()
            .find(|t| t.name() == name)
    }

    /// Its name in a job.
    pub fn name(self) -> &'static str {
        match self {
            Self::NoChannelInfluence => "noChannelInfluence",
            Self::ChannelIsolation => "channelIsolation",
            Self::ChannelExlocation => "channelExlocation",
        }
    }
}

impl Fusion {
    /// Manual fusion into `count` PEs. `count` may be larger than the number of operators (rule fusion-1).
    ///
    /// # Errors
    ///
    /// Stage `fusion-option`: `count` is below 1.
    pub fn manual(count: i128, kind: FusionType) -> Result<Self, Problem> {
        match u32::try_from(count.min(u32::MAX.into())).ok().and_then(NonZeroU32::new) {
            Some(count) => Ok(Self::Manual { count, kind }),
            None => Err(Problem::new(Stage::FusionOption, format!("requested number of PEs is invalid: {count}"))),
        }
    }

    /// The fusion type. [`Fusion::Legacy`] has none and counts as [`FusionType::NoChannelInfluence`].
    pub fn kind(self) -> FusionType {
        match self {
            Self::Legacy => FusionType::NoChannelInfluence,
            Self::Manual { kind, .. } => kind,
        }
    }
}

/// Groups the operators of an application from scratch.
///
/// # Errors
///
/// Stage `compose`: an operator names an unknown host pool or a place beyond the hosts that its pool declares,
/// operators may choose from too many hosts, or (code CDISR3200E) co-located operators have different JVM arguments. Or
/// the budget ends.
pub fn fuse(graph: &Graph, fusion: &Fusion, budget: &Budget) -> Result<Partition, Error> {
    let composition = Composition::new(graph, fusion.kind(), budget)?;
    let (operators, units) = (graph.operators().len(), &composition.units);
    match fusion {
        Fusion::Legacy => Ok(Partition::group(operators, units.len(), |node| units.of(node).index())),
        Fusion::Manual { count, .. } => {
            let filling =
                fill::fill(&composition, composition.host_bindings(budget)?, count.get(), Vec::new(), budget)?;
            Ok(Partition::group(operators, filling.containers, |node| filling.container_of[units.of(node)].index()))
        }
    }
}
