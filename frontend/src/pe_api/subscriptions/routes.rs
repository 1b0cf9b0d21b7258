//! Documents of routes, for whoever asks (rule pe-api-11).
//!
//! Most PEs have few routes: their document is made at once. A PE may have thousands, and a document of megabytes: few
//! of these are made at the same time, on threads that make way for everything else, and what nobody has read yet is
//! counted.
//!
//! Knows: boards, who asks. Must not know: paths.
//!
//! Invariants: nobody waits for the board of a namespace while a document is made of many routes. Whoever asks takes no
//! other's turn and leaves memory to others, whatever namespace it asks about.

use super::super::callers::Asker;
use super::super::memory::{Bounds, Memory, holding};
use super::super::refusal::Refusal;
use crate::broker::Boards;
use crate::broker::answers::{ToTell, Untold};
use crate::broker::predecessors::LeftOut;
use crate::fair_semaphore::FairSemaphore;
use axum::body::Bytes;
use k8s_openapi::jiff::Timestamp;
use std::time::Duration;
use streams_broker::Pe;
use streams_process::background;
use tokio::task::{JoinError, spawn_blocking};
use tokio::time::timeout;

/// Documents of many routes that are made at the same time, in all and for one namespace.
const AT_ONCE: usize = 2;
const AT_ONCE_OF_ONE: usize = 1;
/// How long somebody waits for its turn. It asks again within a minute.
const TURN_WITHIN: Duration = Duration::from_secs(5);

/// Memory of documents that were not read yet: 256 MiB in all, and of one address twice what the longest document has.
/// What is not longer than a block is not counted.
const UNREAD: Bounds = Bounds { what: "routes", block: 16 << 10, blocks: 16 << 10, blocks_of_address: 1_536 };

/// Makes documents of routes. Cheap to clone; all clones are the same.
#[derive(Clone)]
pub(in super::super) struct RouteDocuments {
    /// Whose turn it is to have one made of many routes.
    pub(in super::super) turns: FairSemaphore,
    /// The memory of those that were not read yet.
    pub(in super::super) unread: Memory,
}

impl Default for RouteDocuments {
    fn default() -> Self {
        Self { turns: FairSemaphore::new(AT_ONCE, AT_ONCE_OF_ONE), unread: Memory::new(UNREAD) }
    }
}

impl RouteDocuments {
    /// The routes of a PE, as PEs read them, for its pod, which was created then; and what is not in them yet. The
    /// memory is counted until they were sent.
    ///
    /// # Errors
    /// They are not known yet, or too many; there is no time or memory for them now.
    pub(super) async fn make(
        &self,
        boards: &Boards,
        namespace: &str,
        (pe, created): (&Pe, Option<Timestamp>),
        asker: Asker,
    ) -> Result<(Bytes, LeftOut), Refusal> {
        let (document, left_out) = if boards.has_few_routes(namespace, pe).map_err(untold)? {
            let ToTell { matched, left_out } = boards.to_tell(namespace, pe, created).map_err(untold)?;
            (matched.routes().document(), left_out)
        } else {
            self.of_many(boards, namespace, (pe, created), &asker).await?
        };
        if document.len() <= UNREAD.block {
            return Ok((document.into(), left_out));
        }
        let mut share = self.unread.share(asker);
        share.add(document.len())?;
        Ok((holding(document.into_bytes(), share), left_out))
    }

    /// The document of many routes, when it is the turn of who asks. What has begun goes on without it.
    async fn of_many(
        &self,
        boards: &Boards,
        namespace: &str,
        (pe, created): (&Pe, Option<Timestamp>),
        asker: &Asker,
    ) -> Result<(String, LeftOut), Refusal> {
        let turn = timeout(TURN_WITHIN, self.turns.acquire_for(asker.owner())).await;
        let turn = turn.map_err(|_| Refusal::Later("other routes are put together first, try again".to_owned()))?;
        let (boards, namespace, pe) = (boards.clone(), namespace.to_owned(), pe.clone());
        // Who makes way for others must not have the lock of a board meanwhile.
        let taken = spawn_blocking(move || (boards.to_tell(&namespace, &pe, created), turn)).await;
        let (to_tell, turn) = taken.map_err(lost)?;
        let ToTell { matched, left_out } = to_tell.map_err(untold)?;
        let made = background::spawn(move || {
            let _turn = turn;
            let mut document = matched.routes().document();
            document.shrink_to_fit();
            document
        });
        Ok((made.await.map_err(lost)?, left_out))
    }
}

/// The PE keeps the routes that it has.
fn untold(why: Untold) -> Refusal {
    Refusal::Later(why.to_string())
}

fn lost(_: JoinError) -> Refusal {
    Refusal::Later("the routes could not be put together".to_owned())
}
