//! The trait that all reconcilers implement: observe, decide, act.
//!
//! ```text
//!  mirrors ─┐
//!           ├─ observe ─► Observed ─ decide ─► Decision ─ act ─► calls to the cluster ─┐
//!  answers ─┘                                                                          │
//!     ▲                                                                                │
//!     └────────────────────────── what the API server answered ◄───────────────────────┘
//! ```
//!
//! * *Observe* reads the mirrors, and what the API server has answered since the reconcile began, into plain values.
//! * *Decide* is a pure function of these values. All that is decided is decided there, and it is
//!   tested as a table.
//! * *Act* carries the decision out, through the interface to the cluster
//!   ([`Cluster`](streams_kubernetes::cluster::Cluster)), and keeps what the API server answers.
//!
//! [`reconcile`] repeats the three until nothing is left to do now. Tests run the same three functions over a fake
//! cluster and let the process die at each of its calls.
//!
//! Knows: the order of the three. Must not know: any kind of objects. Invariant: [`Reconciler::Answers`] ends with the
//! reconcile. What a controller remembers beyond it may be lost at any time (rules job-1 and pe-9).

use std::future::Future;
use std::time::Duration;
use streams_kubernetes::queue::Outcome;
use streams_kubernetes::{Error, Key};

/// Most rounds of one reconcile. One that needs more has very much to do, or two actions that undo each other.
pub(crate) const ROUNDS_MAX: usize = 16;
/// How soon to look again after [`ROUNDS_MAX`] rounds.
const SOON: Duration = Duration::from_secs(1);

/// What follows an action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Something was recorded, or the API server answered a question: observe again at once.
    Observe,
    /// Nothing is left to do now.
    Rest(Outcome),
}

/// Brings the objects of one kind to what their specs want.
pub(crate) trait Reconciler: Send + Sync + 'static {
    /// What the API server has answered during one reconcile. It begins empty and ends with the reconcile.
    type Answers: Default + Send;
    /// Plain values: everything that a decision depends on.
    type Observation: Send + Sync;
    /// What to do.
    type Decision: Send + Sync;

    /// Observes one object and what belongs to it. `None` if there is nothing to reconcile.
    ///
    /// # Errors
    /// An object could not be read. [`Error::Conflict`]: it is known to be another one than the mirror shows.
    fn observe(
        &self,
        key: &Key,
        answers: &mut Self::Answers,
    ) -> impl Future<Output = Result<Option<Self::Observation>, Error>> + Send;

    /// What to do next. Pure: the same observation gives the same decision.
    fn decide(observed: &Self::Observation) -> Self::Decision;

    /// Carries the decision out.
    ///
    /// # Errors
    /// A call failed. The next reconcile does the rest.
    fn act(
        &self,
        key: &Key,
        answers: &mut Self::Answers,
        observed: Self::Observation,
        decision: Self::Decision,
    ) -> impl Future<Output = Result<Next, Error>> + Send;

    /// A reconcile has come to [`ROUNDS_MAX`] rounds. Whether nothing comes of them: people are told of a defect then.
    fn is_in_vain(&self, _: &Key) -> bool {
        true
    }
}

/// Observes, decides and acts for one object until nothing is left to do now.
///
/// After a conflict (rule call-4), also one that is known before anything is decided, the object is looked at again:
/// the mirror may have shown the other write before, or may be one that has stopped, and then nothing else would wake
/// the controller.
///
/// # Errors
/// A call failed, in [`Reconciler::observe`] or [`Reconciler::act`].
pub(crate) async fn reconcile<R: Reconciler>(reconciler: &R, key: &Key) -> Result<Outcome, Error> {
    let mut answers = R::Answers::default();
    for _ in 0..ROUNDS_MAX {
        let observed = match reconciler.observe(key, &mut answers).await {
            Ok(Some(observed)) => observed,
            Ok(None) => return Ok(Outcome::Done),
            Err(error) if error.is_conflict() => return Ok(Outcome::Conflict),
            Err(error) => return Err(error),
        };
        let decision = R::decide(&observed);
        match reconciler.act(key, &mut answers, observed, decision).await {
            Ok(Next::Observe) => {}
            Ok(Next::Rest(outcome)) => return Ok(outcome),
            Err(error) if error.is_conflict() => return Ok(Outcome::Conflict),
            Err(error) => return Err(error),
        }
    }
    if reconciler.is_in_vain(key) {
        tracing::warn!(%key, "no end after {ROUNDS_MAX} rounds");
    } else {
        tracing::debug!(%key, "no end after {ROUNDS_MAX} rounds yet");
    }
    Ok(Outcome::Again(SOON))
}
