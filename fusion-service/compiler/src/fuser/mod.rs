//! Fusion: grouping operators into PEs.
//!
//! [`Graph`] is what fusion reads: operators with their [`Traits`], and connections. [`fuse`] turns it into a
//! [`Partition`] for a [`Fusion`]; [`fuse_sticky`] does the same for a job that runs already and leaves operators where
//! they are. What follows from a partition, PE by PE, is computed here too: which ports a PE has ([`ports()`]) and how
//! threads run through it ([`threads()`]).
//!
//! ```text
//! Graph --constraints--> Vec<Constraint> --units, rules--> Composition --fill--> Partition --ids, ports, threads-->
//! ```
//!
//! What goes in and comes out:
//!
//! * `operators` and `graph` are what is read, which `from_topology` makes; `symbols` stand for its texts;
//! * `partition` is the result, `ids` are those of its PEs, and `automatic` is the number of PEs where nobody gives
//!   one.
//!
//! What an application demands:
//!
//! * `constraints` is the list of it, as data; `hosts` has the rules about hosts;
//! * `units` are the operators that must be together, `rules` is what the list means for whether a unit may join a PE;
//! * `closures` follows which units are bound to one host; `composition` has all of these for one application.
//!
//! How PEs are filled in manual mode:
//!
//! * `fill` is the pass over all PEs, from scratch or around what `sticky` leaves in its place;
//! * `waiting` is its work list, which begins in `hash_order`; `chain` is what surrounds the PE that is being filled.
//!
//! What is said of a partition afterwards: its `ports` and `threads`, the `decisions` that led to it, and whether it is
//! right (`verify`).
//!
//! Results of [`Fusion::Legacy`] and [`Fusion::Manual`] are those of the reference implementation, to the operator
//! (rule fusion-2); fusion types are additions.
//!
//! Knows: operators, constraints, connections. Must not know: XML, what operators do, why a job is fused, Kubernetes.
//!
//! Invariants: every operator is in exactly one PE; operators that must be together are; a pure function of its
//! arguments.

mod automatic;
mod chain;
mod closures;
mod composition;
mod constraints;
mod decisions;
mod fill;
mod from_topology;
mod graph;
mod hash_order;
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
mod waiting;

pub use automatic::{Automatic, Cpus, automatic};
pub use constraints::{Constraint, Demand, Mixed, Origin, Others, SameValue, constraints};
pub use decisions::{Cause, Decision, Decisions, Effect, decisions};
pub use graph::{Graph, HostPool};
pub use hosts::{HostGroup, HostGroups};
pub use ids::{PeId, match_ids};
pub use operators::{InputPort, Label, Operator, Operators, OutputPort, Threading, Traits, TraitsId};
pub use partition::{Partition, Pe};
pub use ports::{PeInput, PeOutput, PePorts, ports};
pub use sticky::{Identified, Running, fuse_sticky};
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
    /// Only what must be together is: every unit is a PE (rule fusion-3).
    Legacy,
    /// A number of PEs, where the constraints allow (rule fusion-4). Automatic fusion is this with a computed number.
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
    /// Manual fusion into `count` PEs; fewer than one is a user error. More than a job can have operators is allowed
    /// (rule fusion-1).
    pub fn manual(count: i128, kind: FusionType) -> Result<Self, Problem> {
        match u32::try_from(count.min(u32::MAX.into())).ok().and_then(NonZeroU32::new) {
            Some(count) => Ok(Self::Manual { count, kind }),
            None => Err(Problem::new(Stage::FusionOption, format!("requested number of PEs is invalid: {count}"))),
        }
    }

    /// What it demands of parallel regions; with [`Fusion::Legacy`] always nothing.
    pub fn kind(self) -> FusionType {
        match self {
            Self::Legacy => FusionType::NoChannelInfluence,
            Self::Manual { kind, .. } => kind,
        }
    }
}

/// Groups the operators of an application from scratch.
///
/// Fails at stage `compose` for unknown host pools, for places beyond the hosts that a pool declares, and, with code
/// CDISR3200E, for co-located operators with different JVM arguments.
pub fn fuse(graph: &Graph, fusion: &Fusion, budget: &Budget) -> Result<Partition, Error> {
    let composition = Composition::new(graph, fusion.kind(), budget)?;
    let (operators, units) = (graph.operators().len(), &composition.units);
    match fusion {
        Fusion::Legacy => Ok(Partition::group(operators, units.len(), |node| units.of(node).index())),
        Fusion::Manual { count, .. } => {
            let filling = fill::fill(&composition, composition.closures(), count.get(), Vec::new(), budget)?;
            Ok(Partition::group(operators, filling.containers, |node| filling.container_of[units.of(node)].index()))
        }
    }
}
