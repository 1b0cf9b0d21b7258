//! What the engine is told, and what it wants to be reported.

use crate::frame::Wave;
use crate::peers::PortLabel;
use crate::status::ExportRoute;

/// What the engine is told beside tuples.
#[derive(Debug)]
pub(crate) enum Control {
    /// A route of an export changes.
    Route(Change),
    /// A message about a region.
    Region { region: u32, told: Told, text: String },
    /// A report about a region was taken or not.
    Reported { region: u32, taken: bool },
}

/// What a message about a region says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Told {
    /// What is to go through the region.
    Wave(Wave),
    /// Checkpoints that were still being written are written.
    Drained,
    /// The region gives up.
    Failed,
}

/// A route, as the runtime tells it: by the label of the own port, and where the other end is.
pub(crate) type RouteKey = (String, PortLabel);

/// What becomes of a route of an export.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// It is new.
    Add { port: u32, own: String, route: ExportRoute },
    /// It has another filter, if it is there.
    Filter { key: RouteKey, filter: String },
    /// It is no more.
    Remove { key: RouteKey },
}

/// What a PE reports of a region, or asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Report {
    /// A checkpoint.
    Checkpoint { region: u32, seq: u64 },
    /// A reset.
    Reset { region: u32, seq: u64, attempt: u64 },
    /// An operator with which the region starts has begun to drain it.
    DrainBegun { region: u32, seq: u64, operator: String },
    /// An operator wants the region to be reset.
    ResetWanted { region: u32, operator: String },
}
