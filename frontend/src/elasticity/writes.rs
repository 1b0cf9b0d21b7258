//! Writes for callers (rule elasticity-10): requests are stored, and withdrawn, a few at a time.
//!
//! A call of the API server is a connection of its own. A thousand callers who ask at the same moment would open a
//! thousand of them, and whatever else is to be written, for whatever namespace, would be behind what they ask for.
//!
//! The calls of a namespace may be slow, because of an admission webhook of it. So they pass a gate, like those of
//! controllers (rule call-23), and nobody else waits for those of namespaces in trouble, however many there are, once
//! it is known of these. It is a gate of its own: what controllers have to do is not before what callers want, nor
//! behind it. What is read after a write that was refused passes it, too: where a quota is used up, each write is
//! answered at once, and reads may not be.
//!
//! Knows: whose a write is. Must not know: what is written.
//!
//! Invariants: namespaces take turns, and within one the callers that are known; else the jobs that they ask about do.
//! What has begun has its turn in its namespace until it is answered, also if nobody waits for it any more. Whoever
//! hears no answer hears whether anything was sent.

use super::Elasticity;
use super::view::ClusterView;
use crate::fair_semaphore::FairSemaphore;
use crate::grpc::places::CallerName;
use std::sync::Arc;
use streams_kubernetes::Key;
use streams_kubernetes::gate::{Gate, Limits, Pass};
use streams_kubernetes::metrics::Metrics;
use streams_kubernetes::queue::Owner;
use tokio::time::{Instant, timeout_at};
use tracing::Instrument as _;

/// Requests that are stored at the same time, in all and of one namespace.
pub(super) const STORED_AT_ONCE: usize = 8;
pub(super) const STORED_AT_ONCE_OF_ONE: usize = 4;
/// Requests that are withdrawn at the same time, in all and of one namespace.
pub(super) const WITHDRAWN_AT_ONCE: usize = 4;
const WITHDRAWN_AT_ONCE_OF_ONE: usize = 2;

/// Whose turn it is. Cheap to clone; all clones are the same.
#[derive(Clone)]
pub(super) struct Writes {
    pub(super) storing: WriteTurns,
    /// Those who withdraw what waits are not behind those who ask for more.
    withdrawing: WriteTurns,
}

/// Whose turn it is to write one thing.
#[derive(Clone)]
pub(super) struct WriteTurns {
    /// Those of one namespace, in which callers, or jobs, take turns.
    pub(super) of_namespace: FairSemaphore,
    /// Those of all namespaces.
    gate: Gate,
}

impl WriteTurns {
    fn new(at_once: usize, of_one: usize, metrics: &Metrics) -> Self {
        let gate = Gate::new(Limits::of(at_once), metrics);
        Self { of_namespace: FairSemaphore::new(usize::MAX, of_one), gate }
    }
}

/// The calls of the API server that something to be written takes, one after the other: each passes the gate.
pub(super) struct WriteCalls {
    gate: Gate,
    namespace: Arc<str>,
    /// Of the first one.
    pass: Option<Pass>,
}

impl WriteCalls {
    /// Makes the next one, once it is its turn.
    pub(super) async fn make<F: Future>(&mut self, call: F) -> F::Output {
        let pass = match self.pass.take() {
            Some(pass) => pass,
            None => self.gate.wait(&self.namespace).await,
        };
        pass.make(call).await
    }
}

/// What is to be done.
#[derive(Clone, Copy)]
pub(super) enum Write {
    Store,
    Withdraw,
}

/// Why there is no answer.
#[derive(Debug)]
pub(super) enum Unanswered {
    /// The time of the caller was over before it was its turn: nothing was sent.
    NotSent,
    /// This frontend is to stop, and nothing was sent.
    Stopping,
    /// It was sent, and the time of the caller is over.
    Late,
    /// It was sent perhaps, and came to no end: this frontend stops, or what sent it has panicked.
    Lost,
}

impl Writes {
    /// Nothing is written.
    pub(super) fn new(metrics: &Metrics) -> Self {
        Self {
            storing: WriteTurns::new(STORED_AT_ONCE, STORED_AT_ONCE_OF_ONE, metrics),
            withdrawing: WriteTurns::new(WITHDRAWN_AT_ONCE, WITHDRAWN_AT_ONCE_OF_ONE, metrics),
        }
    }
}

impl<V: ClusterView> Elasticity<V> {
    /// What the API server answers to something that is written about this job, once it is the turn of the caller.
    ///
    /// # Errors
    /// There is no answer before `deadline`, or this frontend is to stop before anything was sent.
    pub(super) async fn write<T: Send + 'static, W: Future<Output = T> + Send + 'static>(
        &self,
        write: Write,
        job: &Key,
        caller: Option<&CallerName>,
        deadline: Instant,
        written: impl FnOnce(WriteCalls) -> W,
    ) -> Result<T, Unanswered> {
        let WriteTurns { of_namespace, gate } = match write {
            Write::Store => &self.writes.storing,
            Write::Withdraw => &self.writes.withdrawing,
        };
        let object = caller.map_or_else(|| Arc::clone(&job.name), |CallerName(name)| Arc::clone(name));
        let owner = Owner { namespace: Arc::clone(&job.namespace), object };
        let turn = async {
            let turn = of_namespace.acquire_for(owner).await;
            (turn, gate.wait(&job.namespace).await)
        };
        let (turn, pass) = tokio::select! {
            biased;
            turn = timeout_at(deadline, turn) => turn.map_err(|_| Unanswered::NotSent)?,
            () = self.stopping.cancelled() => return Err(Unanswered::Stopping),
        };
        let calls = WriteCalls { gate: gate.clone(), namespace: Arc::clone(&job.namespace), pass: Some(pass) };
        let written = written(calls);
        let written = async move {
            let _held = turn;
            written.await
        };
        match timeout_at(deadline, tokio::spawn(written.in_current_span())).await {
            Ok(answer) => answer.map_err(|_| Unanswered::Lost),
            Err(_) => Err(Unanswered::Late),
        }
    }
}
