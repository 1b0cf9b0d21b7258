//! What boards answer: what a PE is told of its routes, how an export or import stands, and why not.
//!
//! Knows: words and numbers. Must not know: how they are found out.

use crate::broker::facts::Problem;
use crate::broker::predecessors::LeftOut;
use streams_broker::{Matched, NoRoom, TooCostly, TooManyRoutes};

/// What a PE is to be told of its routes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Message {
    /// The words.
    pub(crate) text: String,
    /// Another number whenever the routes are others, also where the words are the same.
    pub(crate) version: u64,
    /// What it is about.
    pub(crate) says: Says,
}

/// What a PE is told of its routes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Says {
    /// All of them.
    All,
    /// That it should ask: there are too many for a message.
    Ask,
    /// That it should ask, and again a moment later: some are left out as long as its pod was not answered without them
    /// (rule import-11).
    AskTwice,
}

/// What the routes of a PE are made of now.
#[derive(Clone, Debug, Default)]
pub(crate) struct ToTell {
    pub(crate) matched: Matched,
    /// What is not in it yet.
    pub(crate) left_out: LeftOut,
}

/// Why nobody is told the routes of a PE.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Untold {
    /// Not now.
    #[error("which exports and imports of the namespace match is still being found out")]
    Unsettled,
    /// There are too many.
    #[error(transparent)]
    TooMany(#[from] TooManyRoutes),
}

/// Why an export or import is not connected as it might be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Limit {
    /// Its PE has too many routes.
    #[error(transparent)]
    TooManyRoutes(#[from] TooManyRoutes),
    /// What imports, or exports, of the namespace ask for takes too much memory.
    #[error(transparent)]
    NoRoom(#[from] NoRoom),
    /// Its subscription costs too much.
    #[error("the subscription {0}")]
    TooCostly(TooCostly),
}

/// How an export or import stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// Somebody is at the other end.
    Connected,
    /// Nobody is there.
    Alone,
    /// The board does not know it: its job is not there, or it is not the job's.
    Unknown,
    /// The board cannot know it.
    Malformed(Problem),
    /// A bound keeps it from some of those that it might be connected with.
    Limited {
        /// Whether somebody is at the other end.
        is_connected: bool,
        /// Which bound.
        limit: Limit,
    },
}
