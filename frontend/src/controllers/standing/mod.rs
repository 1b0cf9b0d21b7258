//! Exports and imports: whether somebody is at the other end (rule import-7).
//!
//! The job controller creates them from the plan. Their condition `Ready` says how they stand on the board.
//!
//! Knows: these two kinds. Must not know: jobs, plans, how PEs are told.

#[cfg(test)]
mod tests;

use crate::broker::Boards;
use crate::broker::answers::{Limit, Standing};
use crate::controllers::reconciler::{self, Next};
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

/// Field manager of this controller.
const MANAGER: Manager = Manager("streams-standing-controller");
/// How soon to look again for a board that is not settled.
const SOON: Duration = Duration::from_secs(1);

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

    fn mirror(mirrors: &Mirrors) -> &Watch<Self> {
        &mirrors.imports
    }

    fn status(&mut self) -> (&mut Option<i64>, &mut Vec<Condition>) {
        let status = self.status.get_or_insert_default();
        (&mut status.observed_generation, &mut status.conditions)
    }
}

/// Queues the key of every object of the kind that changes, or whose PE has other routes. They are not in a hurry: what
/// they say changes nothing.
pub(crate) fn subscribe<K: Stands>(mirrors: &Mirrors, boards: &Boards, queue: &Queue<Key>) {
    let to = queue.clone();
    K::mirror(mirrors).subscribe(move |object| to.add_patient(Key::of(object)));
    let (to, of) = (queue.clone(), boards.clone());
    boards.subscribe(move |pe| of.objects_of(pe).into_iter().for_each(|object| to.add_patient(object)));
}

/// Writes the status of objects of a kind.
pub(crate) struct StandingReconciler<C, K> {
    cluster: C,
    mirrors: Mirrors,
    boards: Boards,
    kind: PhantomData<fn() -> K>,
}

impl<C, K> StandingReconciler<C, K> {
    /// A reconciler of the objects of these mirrors.
    pub(crate) fn new(cluster: C, mirrors: Mirrors, boards: Boards) -> Self {
        Self { cluster, mirrors, boards, kind: PhantomData }
    }
}

/// The object, what is to be said of it, whether that is known, and the time.
pub(crate) struct StandingObservation<K> {
    object: Arc<K>,
    is_settled: bool,
    said: Said,
    now: Timestamp,
}

impl<C: Cluster, K: Stands> reconciler::Reconciler for StandingReconciler<C, K> {
    type Answers = ();
    type Observation = StandingObservation<K>;
    /// The object with its status, if that is to be written.
    type Decision = Option<K>;

    async fn observe(&self, key: &Key, (): &mut ()) -> Result<Option<StandingObservation<K>>, Error> {
        let object = K::mirror(&self.mirrors).get(key);
        // First: what is found out meanwhile is told.
        let is_settled = self.boards.is_settled(&key.namespace);
        Ok(object.map(|object| StandingObservation {
            is_settled,
            said: object.said(&self.boards),
            object,
            now: self.cluster.now(),
        }))
    }

    fn decide(StandingObservation { object, is_settled, said, now }: &StandingObservation<K>) -> Option<K> {
        let meta = object.meta();
        if meta.deletion_timestamp.is_some() || !is_settled {
            return None;
        }
        let generation = meta.generation;
        let mut after = (**object).clone();
        let (observed, conditions) = after.status();
        let before = (*observed, conditions.clone());
        *observed = generation;
        let Said { is_ready, reason, message } = said;
        condition::set(conditions, condition::READY, *is_ready, reason, message, generation, *now);
        let is_new = before != (*observed, conditions.clone());
        is_new.then_some(after)
    }

    async fn act(
        &self,
        key: &Key,
        (): &mut (),
        observed: StandingObservation<K>,
        decision: Option<K>,
    ) -> Result<Next, Error> {
        if !observed.is_settled {
            return Ok(Next::Rest(Outcome::Again(SOON)));
        }
        if let Some(written) = decision {
            let writer = Writer { cluster: &self.cluster, namespace: &key.namespace, manager: MANAGER };
            writer.replace_status_if_unchanged(&written).await?;
        }
        Ok(Next::Rest(Outcome::Done))
    }
}
