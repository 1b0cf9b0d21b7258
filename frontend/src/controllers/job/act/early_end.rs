//! A turn that ends early, because somebody waits for the next look (rule call-27).
//!
//! What of it no commit waits for, and what waits for calls of others, is left to that look, which comes at once and
//! decides anew. What has begun is done to its end. However often somebody is in a hurry, a turn now and then does
//! everything.
//!
//! Knows: that somebody is in a hurry, which actions a commit waits for. Must not know: who that is, and why.

use super::Actor;
use super::order::{is_deletion, is_over, may_be_put_off};
use crate::controllers::job::decide::{JobAction, has_abandoned};
use crate::controllers::job::observed::JobObservation;
use crate::controllers::job::observed::snapshot::JobSnapshot;
use crate::controllers::job::reconciler::JobReconciler;
use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use streams_kubernetes::cluster::Cluster;
use streams_kubernetes::gate::unless_it_waits;
use tokio_util::sync::CancellationToken;

/// Whether a turn may end early, and whether it does.
pub(super) struct EarlyEnd {
    /// Somebody is in a hurry since the job was looked at.
    hurry: CancellationToken,
    /// Of a job that runs, unless its turns have ended early for long enough.
    is_allowed: bool,
    /// No commit waits for a deletion.
    do_deletions_make_way: bool,
    /// Something was left to the next look.
    has_left: AtomicBool,
    /// Something was done that could have been left.
    has_done: AtomicBool,
}

impl EarlyEnd {
    /// Of the turn that begins.
    pub(super) fn of<C: Cluster>(
        reconciler: &JobReconciler<C>,
        snapshot: &JobSnapshot,
        observed: &JobObservation,
    ) -> Self {
        let (key, uid) = (&snapshot.key, snapshot.uid());
        let since = reconciler.memory.with(key, uid, |entry| entry.ended_early_since);
        let is_for_too_long = since.is_some_and(|since| is_over(since, observed.now));
        Self {
            hurry: reconciler.hurries.since_last_look(key, uid),
            is_allowed: observed.status.generation.is_some() && !is_for_too_long,
            do_deletions_make_way: !has_abandoned(observed),
            has_left: AtomicBool::new(false),
            has_done: AtomicBool::new(false),
        }
    }

    /// Something was left to the next look.
    pub(super) fn has_left(&self) -> bool {
        self.has_left.load(Ordering::Relaxed)
    }

    fn makes_way(&self, action: &JobAction) -> bool {
        if is_deletion(action) { self.do_deletions_make_way } else { may_be_put_off(action) }
    }
}

impl<C: Cluster> Actor<'_, C> {
    /// Does the work. It is left to the next look, `None`, if somebody is in a hurry before it has begun, or while it
    /// waits to be let in with its first call.
    pub(super) async fn unless_in_a_hurry<F: Future>(&self, work: F) -> Option<F::Output> {
        let EarlyEnd { hurry, is_allowed, .. } = &self.early_end;
        if !is_allowed {
            return Some(work.await);
        }
        let done = if hurry.is_cancelled() { None } else { unless_it_waits(work, hurry.cancelled()).await };
        if done.is_none() {
            self.early_end.has_left.store(true, Ordering::Relaxed);
        }
        done
    }

    /// The same for what carries this action out; what a commit waits for is always done.
    pub(super) async fn unless_it_makes_way<F: Future>(&self, action: &JobAction, work: F) -> Option<F::Output> {
        if !self.early_end.makes_way(action) {
            return Some(work.await);
        }
        let done = self.unless_in_a_hurry(work).await;
        if done.is_some() {
            self.early_end.has_done.store(true, Ordering::Relaxed);
        }
        done
    }

    /// Remembers since when turns end early. One that leaves nothing, and has not put off all that could be left, ends
    /// that.
    pub(super) fn note_early_end(&self, due: &[JobAction]) {
        let EarlyEnd { has_done, .. } = &self.early_end;
        let is_nothing_due = !due.iter().any(|action| self.early_end.makes_way(action));
        self.remember(|entry| {
            if self.early_end.has_left() {
                entry.rounds.end();
                entry.ended_early_since.get_or_insert(self.observed.now);
            } else if is_nothing_due || has_done.load(Ordering::Relaxed) {
                entry.ended_early_since = None;
            }
        });
    }
}
