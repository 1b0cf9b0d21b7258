//! Exports and imports: whether somebody is at the other end (rule import-7).
//!
//! The job controller creates them from the plan. Their condition `Ready` says how they stand on the board.
//!
//! Knows: these two kinds. Must not know: jobs, plans, how PEs are told.
//!
//! Invariants:
//! * Of an object of a namespace that is not settled nothing is read, however many of them there are and however often
//!   they change.
//! * How a long object stands is found out beside the threads that serve everybody: it is read for that.

#[cfg(test)]
mod tests;

use crate::broker::answers::{Limit, Standing};
use crate::broker::{Boards, UntilSettled};
use crate::controllers::reconciler::{self, Next};
use crate::fair_semaphore::FairSemaphore;
use crate::mirrors::Mirrors;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use k8s_openapi::jiff::Timestamp;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;
use streams_api::{Export, Import, condition};
use streams_kubernetes::cluster::{Cluster, Manager, Object};
use streams_kubernetes::queue::{Outcome, Queue};
use streams_kubernetes::watch::{Mirrored, Watch};
use streams_kubernetes::writer::Writer;
use streams_kubernetes::{Error, Key};
use tokio::task::{JoinError, spawn_blocking};

/// Field manager of this controller.
const MANAGER: Manager = Manager("streams-standing-controller");
/// How soon to look again for a board that is not settled. Whoever settles it says so; this is in case nobody does.
const UNSETTLED: Duration = Duration::from_secs(60);
/// Octets of an object from which on it takes some 10 ms and more to find out how it stands.
const LONG: usize = 65_536;
/// Such objects that are looked at at the same time, each on a thread of its own: there are two processors where the
/// frontend usually runs.
const LONG_AT_ONCE: usize = 2;
/// Of one namespace: the other one is for others.
const LONG_AT_ONCE_OF_ONE: usize = 1;

/// What the condition says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Said {
    is_ready: bool,
    reason: &'static str,
    message: String,
}

impl Said {
    /// What is said of an export or import; `alone` if nobody is at the other end.
    fn of(standing: Standing, alone: &'static str) -> Self {
        let (is_ready, reason, message) = match standing {
            Standing::Connected => (true, "Connected", String::new()),
            Standing::Alone => (true, alone, String::new()),
            Standing::Unknown => (false, "NotOfJob", "it belongs to no job that is there".to_owned()),
            Standing::Malformed(problem) => (false, "Malformed", problem.to_string()),
            Standing::Limited { limit, .. } => {
                let reason = match limit {
                    Limit::TooManyRoutes(_) => "TooManyRoutes",
                    Limit::NoRoom(_) => "NoRoom",
                    Limit::TooCostly(_) => "TooCostly",
                };
                (false, reason, limit.to_string())
            }
        };
        Self { is_ready, reason, message }
    }
}

/// A kind whose objects say how they stand.
pub(crate) trait Stands: Object + Mirrored {
    /// Name of the controller in figures.
    const CONTROLLER: &'static str;

    /// How an object stands.
    fn said(&self, boards: &Boards) -> Said;

    /// The objects of the kind that a PE has.
    fn of_pe(boards: &Boards, pe: &Key) -> Vec<Key>;

    /// Where its objects are mirrored.
    fn mirror(mirrors: &Mirrors) -> &Watch<Self>;

    /// What its status has: the generation that was looked at, and the conditions.
    fn status(&mut self) -> (&mut Option<i64>, &mut Vec<Condition>);
}

impl Stands for Export {
    const CONTROLLER: &'static str = "export";

    fn said(&self, boards: &Boards) -> Said {
        Said::of(boards.export(self), "NoSubscribers")
    }

    fn of_pe(boards: &Boards, pe: &Key) -> Vec<Key> {
        boards.exports_of(pe)
    }

    fn mirror(mirrors: &Mirrors) -> &Watch<Self> {
        &mirrors.exports
    }

    fn status(&mut self) -> (&mut Option<i64>, &mut Vec<Condition>) {
        let status = self.status.get_or_insert_default();
        (&mut status.observed_generation, &mut status.conditions)
    }
}

impl Stands for Import {
    const CONTROLLER: &'static str = "import";

    fn said(&self, boards: &Boards) -> Said {
        Said::of(boards.import(self), "NoExports")
    }

    fn of_pe(boards: &Boards, pe: &Key) -> Vec<Key> {
        boards.imports_of(pe)
    }

    fn mirror(mirrors: &Mirrors) -> &Watch<Self> {
        &mirrors.imports
    }

    fn status(&mut self) -> (&mut Option<i64>, &mut Vec<Condition>) {
        let status = self.status.get_or_insert_default();
        (&mut status.observed_generation, &mut status.conditions)
    }
}

/// Queues the key of every object of the kind that changes, or whose PE has other routes. They are not in a hurry: what
/// they say changes nothing. Those that wait for their boards are queued when these are settled.
pub(crate) fn subscribe<K: Stands>(mirrors: &Mirrors, boards: &Boards, queue: &Queue<Key>) -> UntilSettled {
    let to = queue.clone();
    K::mirror(mirrors).subscribe(move |object| to.add_patient(Key::of(object)));
    let (to, of) = (queue.clone(), boards.clone());
    boards.subscribe(move |pe| K::of_pe(&of, pe).into_iter().for_each(|object| to.add_patient(object)));
    let to = queue.clone();
    UntilSettled::new(boards, move |object| to.add_patient(object))
}

/// Writes the status of objects of a kind.
pub(crate) struct StandingReconciler<C, K> {
    cluster: C,
    mirrors: Mirrors,
    boards: Boards,
    until_settled: UntilSettled,
    /// Turns of long objects.
    long_looks: FairSemaphore,
    kind: PhantomData<fn() -> K>,
}

impl<C, K> StandingReconciler<C, K> {
    /// A reconciler of the objects of these mirrors. Those whose boards are not settled wait there.
    pub(crate) fn new(cluster: C, mirrors: Mirrors, boards: Boards, until_settled: UntilSettled) -> Self {
        let long_looks = FairSemaphore::new(LONG_AT_ONCE, LONG_AT_ONCE_OF_ONE);
        Self { cluster, mirrors, boards, until_settled, long_looks, kind: PhantomData }
    }
}

/// A look at a long object panicked, or this frontend ends.
fn not_looked_at(error: JoinError) -> Error {
    Error::Call(kube::Error::Service(error.into()))
}

/// How an object stands.
pub(crate) enum StandingObservation<K> {
    /// What matches in its namespace is being found out.
    Unsettled,
    /// The object, what is to be said of it, and the time.
    Known { object: Arc<K>, said: Said, now: Timestamp },
}

/// What to do.
pub(crate) enum StandingDecision<K> {
    /// Say nothing until the board is settled.
    Wait,
    /// All is said.
    Nothing,
    /// The object with this status.
    Write(Box<K>),
}

impl<C: Cluster, K: Stands> reconciler::Reconciler for StandingReconciler<C, K> {
    type Answers = ();
    type Observation = StandingObservation<K>;
    type Decision = StandingDecision<K>;

    async fn observe(&self, key: &Key, (): &mut ()) -> Result<Option<StandingObservation<K>>, Error> {
        let Some(kept) = K::mirror(&self.mirrors).kept(key) else {
            self.until_settled.forget(key);
            return Ok(None);
        };
        // First: what is found out meanwhile is told.
        if !self.boards.is_settled(&key.namespace) {
            return Ok(Some(StandingObservation::Unsettled));
        }
        let is_long = kept.octets() >= LONG;
        let turn = if is_long { Some(self.long_looks.acquire(&key.namespace).await) } else { None };
        let (boards, namespace) = (self.boards.clone(), Arc::clone(&key.namespace));
        let look = move || {
            let _turn = turn;
            // Something may have come while others had their turns.
            let is_settled = boards.is_settled(&namespace);
            is_settled.then(|| kept.read().map(|object| (object.said(&boards), object)))
        };
        let looked = if is_long { spawn_blocking(look).await.map_err(not_looked_at)? } else { look() };
        let Some(found) = looked else { return Ok(Some(StandingObservation::Unsettled)) };
        Ok(found.map(|(said, object)| StandingObservation::Known { object, said, now: self.cluster.now() }))
    }

    fn decide(observed: &StandingObservation<K>) -> StandingDecision<K> {
        let StandingObservation::Known { object, said, now } = observed else { return StandingDecision::Wait };
        let meta = object.meta();
        if meta.deletion_timestamp.is_some() {
            return StandingDecision::Nothing;
        }
        let generation = meta.generation;
        let mut after = (**object).clone();
        let (observed, conditions) = after.status();
        let before = (*observed, conditions.clone());
        *observed = generation;
        let Said { is_ready, reason, message } = said;
        condition::set(conditions, condition::READY, *is_ready, reason, message, generation, *now);
        let is_new = before != (*observed, conditions.clone());
        if is_new { StandingDecision::Write(Box::new(after)) } else { StandingDecision::Nothing }
    }

    async fn act(
        &self,
        key: &Key,
        (): &mut (),
        _: StandingObservation<K>,
        decision: StandingDecision<K>,
    ) -> Result<Next, Error> {
        match decision {
            StandingDecision::Wait if self.until_settled.wait(key) => Ok(Next::Rest(Outcome::Patiently(UNSETTLED))),
            // It has been settled meanwhile.
            StandingDecision::Wait => Ok(Next::Observe),
            StandingDecision::Nothing => Ok(Next::Rest(Outcome::Done)),
            StandingDecision::Write(written) => {
                let writer = Writer { cluster: &self.cluster, namespace: &key.namespace, manager: MANAGER };
                writer.replace_status_if_unchanged(&*written).await?;
                Ok(Next::Rest(Outcome::Done))
            }
        }
    }
}
