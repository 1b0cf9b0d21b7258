//! Finds out what matches, namespace by namespace, where whoever was told of a change has not (rule import-10).
//!
//! ```text
//!  line ─► turn: trials of a namespace ─► tried, on a thread that makes way ─► learnt ─┬─► not settled: looks, line
//!                                                                                      └─► settled: told
//! ```
//!
//! In a turn some of the exports and imports are looked at that wait for it, on a thread as fast as others. One that
//! takes longer than a turn, or for which a turn would have to wait, is looked at beside the turns, after those of
//! other namespaces that do.
//!
//! Knows: what is to be tried, whose turn it is. Must not know: who is told, what was changed.
//!
//! Invariants:
//! * A thread that makes way for others has no lock: nobody waits for it. It has copies of what it tries. A turn in
//!   which nothing is to be tried needs none.
//! * The lock of a namespace is held for about [`LEARNT_AT_A_TIME`] outcomes, to take [`TRIALS`], or to put what was
//!   read.
//! * Whoever waits for a namespace is told in a turn of it that finds it settled. So a namespace that was not settled
//!   has such a turn, whoever settled it.
//! * No turn waits for a look that takes longer than a turn, whoever looks. A namespace that waits for one has its next
//!   turn after it: who looks beside the turns is the one who waits until nobody else reads a long object of the
//!   namespace, and asks for that turn.
//! * Who looks beside the turns waits so once before each turn that he asks for, and for few: of the callers who read
//!   long objects of a namespace themselves one at a time reads, or waits for that; the others wait elsewhere.

#[cfg(test)]
mod tests;

use crate::broker::allowance::SLICE;
use crate::broker::boards::Boards;
use crate::broker::shared_namespace::SharedNamespace;
use std::sync::Arc;
use streams_broker::{Trial, Tried};
use streams_process::background;
use tokio::task::{JoinError, spawn_blocking};
use tokio_util::sync::CancellationToken;

/// Pairs that are taken at a time.
const TRIALS: usize = 512;
/// Outcomes that a board learns at a time: it takes some 50 µs.
const LEARNT_AT_A_TIME: usize = 64;

/// A namespace whose turn it is.
struct Turn {
    name: Arc<str>,
    /// `None`: it is gone.
    namespace: Option<Arc<SharedNamespace>>,
    looks: Looks,
}

/// What is still to be looked at of a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Looks {
    None,
    /// First something that fits into a turn, or what a job exports and imports is to be listed.
    InTurn,
    /// First something that takes longer than a turn, or what a turn would have to wait for.
    Long,
}

impl Boards {
    /// Settles namespaces, one slice of each at a time, until it is stopped. It ends before only if something is wrong
    /// with this program.
    pub(crate) async fn settle(&self, stop: &CancellationToken) {
        tokio::select! {
            () = self.settle_in_turns(stop) => {}
            () = self.look_at_long_ones(stop) => {}
        }
    }

    async fn settle_in_turns(&self, stop: &CancellationToken) {
        loop {
            while !stop.is_cancelled()
                && let Some((turn, trials)) = self.next_turn()
            {
                let tried = tried_in_background(trials).await;
                let boards = self.clone();
                let ended = match tried.map(|tried| self.is_settled_by(&turn, tried)) {
                    Ok(is_settled) if is_settled || turn.looks == Looks::InTurn => {
                        spawn_blocking(move || boards.end(&turn, is_settled)).await
                    }
                    Ok(_) => Ok(()),
                    Err(error) => Err(error),
                };
                if let Err(error) = ended {
                    tracing::error!(%error, "boards are not settled any more");
                    return;
                }
            }
            tokio::select! {
                () = self.shared.is_any_unsettled.notified() => {}
                () = stop.cancelled() => return,
            }
        }
    }

    /// The turn of one namespace, and what takes longer than a turn, for whoever has no task that settles. Whether
    /// there was something to do.
    pub(crate) fn settle_a_slice(&self) -> bool {
        let had_a_turn = self.settle_in_a_turn();
        let mut had_a_look = false;
        while let Some(name) = self.next_long() {
            self.look_at_long(&name);
            had_a_look = true;
        }
        had_a_turn || had_a_look
    }

    fn settle_in_a_turn(&self) -> bool {
        let Some((turn, trials)) = self.next_turn() else { return false };
        let is_settled = self.is_settled_by(&turn, tried_in_a_slice(trials));
        self.end(&turn, is_settled);
        true
    }

    /// Looks at what takes longer than a turn, so that only those wait for it who have such objects themselves.
    async fn look_at_long_ones(&self, stop: &CancellationToken) {
        loop {
            while !stop.is_cancelled()
                && let Some(name) = self.next_long()
            {
                let boards = self.clone();
                if let Err(error) = spawn_blocking(move || boards.look_at_long(&name)).await {
                    tracing::error!(%error, "long exports and imports are not looked at any more");
                    return;
                }
            }
            tokio::select! {
                () = self.shared.is_any_long.notified() => {}
                () = stop.cancelled() => return,
            }
        }
    }

    /// The next namespace with something that takes longer than a turn.
    fn next_long(&self) -> Option<Arc<str>> {
        self.long_line().next()
    }

    /// What comes of the look is tried and told in turns like others.
    fn look_at_long(&self, name: &Arc<str>) {
        self.look_at_waiting(name, true);
        self.have_a_turn(name);
    }

    /// The namespace whose turn it is, and what is to be tried there.
    fn next_turn(&self) -> Option<(Turn, Vec<Trial>)> {
        let name = self.line().next()?;
        let namespace = self.namespaces().get(&name).cloned();
        let taken = namespace.as_ref().map(|namespace| {
            let namespace = namespace.lock();
            (namespace.board.trials(TRIALS), namespace.next_to_look_at(), !namespace.waiting_jobs.is_empty())
        });
        let (trials, next, has_jobs) = taken.unwrap_or_default();
        let looks = match next {
            None if !has_jobs => Looks::None,
            Some(object) if self.is_beyond_turns(&name, &object) => Looks::Long,
            _ => Looks::InTurn,
        };
        Some((Turn { name, namespace, looks }, trials))
    }

    /// Takes over what came of a turn. Whether all is known now; if not, the namespace will have another turn.
    fn is_settled_by(&self, turn: &Turn, tried: Vec<Tried>) -> bool {
        let Some(namespace) = &turn.namespace else { return true };
        let mut tried = tried.into_iter().peekable();
        while tried.peek().is_some() {
            let mut namespace = namespace.lock();
            let changes = namespace.board.learn(tried.by_ref().take(LEARNT_AT_A_TIME));
            let touched = namespace.numbered(changes, &self.shared.last_version);
            namespace.untold.extend(touched);
        }
        let mut namespace = namespace.lock();
        let (is_settled, is_tried) = (namespace.is_settled(), namespace.board.is_settled());
        if !is_settled {
            namespace.forget_old();
        }
        drop(namespace);
        let has_more = match turn.looks {
            Looks::None => !is_settled,
            Looks::InTurn => true,
            Looks::Long => {
                self.long_line().join(&turn.name);
                self.shared.is_any_long.notify_one();
                !is_tried
            }
        };
        if has_more {
            self.line().join(&turn.name);
        }
        is_settled
    }

    /// Tells all if the turn found the namespace settled, and looks at what waits for that.
    fn end(&self, turn: &Turn, is_settled: bool) {
        if is_settled {
            self.tell_all(turn);
        }
        if turn.looks == Looks::InTurn {
            self.look_at_waiting(&turn.name, false);
        }
    }

    /// Tells all that have waited for the namespace.
    fn tell_all(&self, turn: &Turn) {
        if let Some(namespace) = &turn.namespace {
            // If it is not settled any more, it has another turn.
            let untold = std::mem::take(&mut namespace.lock().untold);
            self.tell(&turn.name, untold);
        }
        self.tell_settled(&turn.name);
    }
}

/// What comes of the first of these, on a thread that makes way for others. Where nothing is to be tried, nobody waits
/// for such a thread: PEs may be waiting for the turn.
async fn tried_in_background(trials: Vec<Trial>) -> Result<Vec<Tried>, JoinError> {
    if trials.is_empty() { Ok(Vec::new()) } else { background::spawn(move || tried_in_a_slice(trials)).await }
}

/// What comes of the first of these, as many as a slice has room for.
fn tried_in_a_slice(trials: Vec<Trial>) -> Vec<Tried> {
    let mut steps = 0;
    let each = trials.into_iter().map_while(|trial| {
        let tried = (steps < SLICE).then(|| trial.run())?;
        steps += tried.steps();
        Some(tried)
    });
    each.collect()
}
