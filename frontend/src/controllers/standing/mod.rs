//! Exports and imports: whether somebody is at the other end (rule import-7).
//!
//! The job controller creates them from the plan. Their condition `Ready` says how they stand on the board.
//!
//! Knows: these two kinds. Must not know: jobs, plans, how PEs are told.
//!
//! Invariants:
//! * Of an object of a namespace that is not settled nothing is read, however many of them there are and however often
//!   they change.
//! * Of a long object that somebody has written nothing is said until the board has looked at it: what is known of it
//!   is what it was before.
//! * How an object stands, the board says. Of the object itself no more is read than what was said last, unless
//!   something else is to be said. Of a long one both is done beside the threads that serve everybody
//!   ([`long_objects`]).
//!
//! [`long_objects`]: crate::long_objects

#[cfg(test)]
mod tests;

use crate::broker::answers::{Limit, Standing};
use crate::broker::predecessors::Side;
use crate::broker::{Boards, UntilSettled};
use crate::controllers::reconciler::{self, Next};
use crate::long_objects::LongObjects;
use crate::mirrors::Mirrors;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::jiff::Timestamp;
use serde::Deserialize;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;
use streams_api::{Export, Import, condition};
use streams_kubernetes::cluster::{Cluster, Manager, Object};
use streams_kubernetes::queue::{Outcome, Owner, Queue};
use streams_kubernetes::watch::{Kept, Mirrored, Watch};
use streams_kubernetes::writer::Writer;
use streams_kubernetes::{Error, Key};
use tokio::task::JoinError;

/// Field manager of this controller.
const MANAGER: Manager = Manager("streams-standing-controller");
/// How soon to look again for a board that is not settled. Whoever settles it says so; this is in case nobody does.
const UNSETTLED: Duration = Duration::from_secs(60);

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
    /// Which of the two kinds it is.
    const SIDE: Side;

    /// How an object stands.
    fn said(boards: &Boards, key: &Key) -> Said;

    /// The objects of the kind that a PE has.
    fn of_pe(boards: &Boards, pe: &Key) -> Vec<Key>;

    /// Where its objects are mirrored.
    fn mirror(mirrors: &Mirrors) -> &Watch<Self>;

    /// What its status has: the generation that was looked at, and the conditions.
    fn status(&mut self) -> (&mut Option<i64>, &mut Vec<Condition>);
}

impl Stands for Export {
    const CONTROLLER: &'static str = "export";
    const SIDE: Side = Side::Export;

    fn said(boards: &Boards, key: &Key) -> Said {
        Said::of(boards.export(key), "NoSubscribers")
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
    const SIDE: Side = Side::Import;

    fn said(boards: &Boards, key: &Key) -> Said {
        Said::of(boards.import(key), "NoExports")
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

/// Queues the key of every object of the kind that changes, that was looked at because of that later, or whose PE has
/// other routes. They are not in a hurry: what they say changes nothing. Those that wait for their boards are queued
/// when these are settled.
pub(crate) fn subscribe<K: Stands>(mirrors: &Mirrors, boards: &Boards, queue: &Queue<Key>) -> UntilSettled {
    let to = queue.clone();
    K::mirror(mirrors).subscribe(move |object| to.add_patient(Key::of(object)));
    let (to, of) = (queue.clone(), boards.clone());
    boards.subscribe(move |pe| K::of_pe(&of, pe).into_iter().for_each(|object| to.add_patient(object)));
    let to = queue.clone();
    boards.subscribe_to_late(move |side, object| {
        if side == K::SIDE {
            to.add_patient(object.clone());
        }
    });
    let to = queue.clone();
    UntilSettled::new(boards, move |object| to.add_patient(object))
}

/// Writes the status of objects of a kind.
pub(crate) struct StandingReconciler<C, K> {
    cluster: C,
    mirrors: Mirrors,
    boards: Boards,
    until_settled: UntilSettled,
    /// Where long objects are read.
    long_objects: LongObjects,
    kind: PhantomData<fn() -> K>,
}

impl<C, K> StandingReconciler<C, K> {
    /// A reconciler of the objects of these mirrors. Those whose boards are not settled wait there.
    pub(crate) fn new(cluster: C, mirrors: Mirrors, boards: Boards, until_settled: UntilSettled) -> Self {
        Self { cluster, mirrors, boards, until_settled, long_objects: LongObjects::new(), kind: PhantomData }
    }

    /// Does something with all of an object, which has so many octets.
    async fn about<T: Send + 'static>(
        &self,
        octets: usize,
        key: &Key,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Error> {
        let owner = Owner { namespace: Arc::clone(&key.namespace), object: Arc::default() };
        self.long_objects.about(octets, owner, work).await.map_err(not_looked_at)
    }
}

/// A look at a long object panicked, or this frontend ends.
fn not_looked_at(error: JoinError) -> Error {
    Error::Call(kube::Error::Service(error.into()))
}

/// What is read of an object to find out whether all is said of it.
#[derive(Deserialize)]
pub(crate) struct ReadObject {
    metadata: ReadMetadata,
    #[serde(default)]
    status: Option<ReadStatus>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ReadMetadata {
    generation: Option<i64>,
    deletion_timestamp: Option<Time>,
}

/// What was said last.
#[derive(Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ReadStatus {
    observed_generation: Option<i64>,
    conditions: Vec<Condition>,
}

/// How an object stands.
pub(crate) enum StandingObservation<K> {
    /// What matches in its namespace is being found out.
    Unsettled,
    /// The object waits for a look. The key is queued after it.
    Late,
    /// The object, what was read of it, what is to be said of it, and the time.
    Known { kept: Kept<K>, read: Box<ReadObject>, said: Said, now: Timestamp },
}

/// What to do.
pub(crate) enum StandingDecision {
    /// Say nothing until the board is settled.
    Wait,
    /// All is said that can be now.
    Nothing,
    /// This is to be said of it.
    Write(ReadStatus),
}

impl<C: Cluster, K: Stands> reconciler::Reconciler for StandingReconciler<C, K> {
    type Answers = ();
    type Observation = StandingObservation<K>;
    type Decision = StandingDecision;

    async fn observe(&self, key: &Key, (): &mut ()) -> Result<Option<StandingObservation<K>>, Error> {
        let Some(kept) = K::mirror(&self.mirrors).kept(key) else {
            self.until_settled.forget(key);
            return Ok(None);
        };
        let octets = kept.octets();
        // First: what is found out meanwhile is told.
        if !self.boards.is_settled(&key.namespace) {
            return Ok(Some(StandingObservation::Unsettled));
        }
        let (boards, of) = (self.boards.clone(), key.clone());
        let look = move || {
            // Something may have come while others had their turns.
            if !boards.is_settled(&of.namespace) {
                return Err(StandingObservation::Unsettled);
            }
            if boards.is_late(K::SIDE, &of) {
                return Err(StandingObservation::Late);
            }
            Ok(kept.read_part::<Box<ReadObject>>().map(|read| (kept, read, K::said(&boards, &of))))
        };
        match self.about(octets, key, look).await? {
            Err(not_now) => Ok(Some(not_now)),
            Ok(found) => Ok(found.map(|(kept, read, said)| {
                let now = self.cluster.now();
                StandingObservation::Known { kept, read, said, now }
            })),
        }
    }

    fn decide(observed: &StandingObservation<K>) -> StandingDecision {
        let (read, said, now) = match observed {
            StandingObservation::Unsettled => return StandingDecision::Wait,
            StandingObservation::Late => return StandingDecision::Nothing,
            StandingObservation::Known { read, said, now, .. } => (read, said, now),
        };
        let ReadMetadata { generation, deletion_timestamp } = &read.metadata;
        if deletion_timestamp.is_some() {
            return StandingDecision::Nothing;
        }
        let before = read.status.clone().unwrap_or_default();
        let mut after = ReadStatus { observed_generation: *generation, ..before.clone() };
        let Said { is_ready, reason, message } = said;
        condition::set(&mut after.conditions, condition::READY, *is_ready, reason, message, *generation, *now);
        if after == before { StandingDecision::Nothing } else { StandingDecision::Write(after) }
    }

    async fn act(
        &self,
        key: &Key,
        (): &mut (),
        observed: StandingObservation<K>,
        decision: StandingDecision,
    ) -> Result<Next, Error> {
        match decision {
            StandingDecision::Wait if self.until_settled.wait(key) => Ok(Next::Rest(Outcome::Patiently(UNSETTLED))),
            // It has been settled meanwhile.
            StandingDecision::Wait => Ok(Next::Observe),
            StandingDecision::Nothing => Ok(Next::Rest(Outcome::Done)),
            StandingDecision::Write(ReadStatus { observed_generation, conditions }) => {
                let StandingObservation::Known { kept, .. } = observed else { return Ok(Next::Observe) };
                let octets = kept.octets();
                let with_status = move || {
                    let mut object = Arc::unwrap_or_clone(kept.read()?);
                    let status = object.status();
                    (*status.0, *status.1) = (observed_generation, conditions);
                    Some(object)
                };
                if let Some(written) = self.about(octets, key, with_status).await? {
                    let writer = Writer { cluster: &self.cluster, namespace: &key.namespace, manager: MANAGER };
                    writer.replace_status_if_unchanged(&written).await?;
                }
                Ok(Next::Rest(Outcome::Done))
            }
        }
    }
}
