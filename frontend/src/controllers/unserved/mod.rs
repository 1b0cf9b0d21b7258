//! Exports, imports and consistent regions: they say that nothing acts on them yet.
//!
//! The job controller creates them from the plan. Until something connects streams and drives regions, their condition
//! `Ready` is false with the reason `NotServed`, so that nobody waits in vain.
//!
//! Knows: these three kinds. Must not know: jobs, plans.

#[cfg(test)]
mod tests;

use crate::controllers::reconciler::{self, Next};
use crate::mirrors::Mirrors;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use k8s_openapi::jiff::Timestamp;
use std::marker::PhantomData;
use std::sync::Arc;
use streams_api::{ConsistentRegion, Export, Import, condition};
use streams_kubernetes::cluster::{Cluster, Manager, Object};
use streams_kubernetes::queue::{Outcome, Queue};
use streams_kubernetes::watch::{Mirrored, Watch};
use streams_kubernetes::writer::Writer;
use streams_kubernetes::{Error, Key};

/// Field manager of this controller.
const MANAGER: Manager = Manager("streams-unserved-controller");
/// Why such an object is not ready.
const REASON: &str = "NotServed";

/// A kind that nothing acts on yet.
pub(crate) trait Unserved: Object + Mirrored {
    /// Name of the controller in figures.
    const CONTROLLER: &'static str;
    /// Why its objects are not ready.
    const MESSAGE: &'static str;

    /// Where its objects are mirrored.
    fn mirror(mirrors: &Mirrors) -> &Watch<Self>;

    /// What its status has: the generation that was looked at, and the conditions.
    fn status(&mut self) -> (&mut Option<i64>, &mut Vec<Condition>);
}

impl Unserved for Export {
    const CONTROLLER: &'static str = "export";
    const MESSAGE: &'static str = "nothing connects the stream to its subscribers yet";

    fn mirror(mirrors: &Mirrors) -> &Watch<Self> {
        &mirrors.exports
    }

    fn status(&mut self) -> (&mut Option<i64>, &mut Vec<Condition>) {
        let status = self.status.get_or_insert_default();
        (&mut status.observed_generation, &mut status.conditions)
    }
}

impl Unserved for Import {
    const CONTROLLER: &'static str = "import";
    const MESSAGE: &'static str = "nothing connects exported streams to the port yet";

    fn mirror(mirrors: &Mirrors) -> &Watch<Self> {
        &mirrors.imports
    }

    fn status(&mut self) -> (&mut Option<i64>, &mut Vec<Condition>) {
        let status = self.status.get_or_insert_default();
        (&mut status.observed_generation, &mut status.conditions)
    }
}

impl Unserved for ConsistentRegion {
    const CONTROLLER: &'static str = "consistent_region";
    const MESSAGE: &'static str = "nothing drives the region yet: its PEs wait";

    fn mirror(mirrors: &Mirrors) -> &Watch<Self> {
        &mirrors.consistent_regions
    }

    fn status(&mut self) -> (&mut Option<i64>, &mut Vec<Condition>) {
        let status = self.status.get_or_insert_default();
        (&mut status.observed_generation, &mut status.conditions)
    }
}

/// Queues the key of every object of the kind that changes.
pub(crate) fn subscribe<K: Unserved>(mirrors: &Mirrors, queue: &Queue<Key>) {
    K::mirror(mirrors).wake(queue, |object| [Key::of(object)]);
}

/// Writes the status of a kind that nothing acts on yet.
pub(crate) struct UnservedReconciler<C, K> {
    cluster: C,
    mirrors: Mirrors,
    kind: PhantomData<fn() -> K>,
}

impl<C, K> UnservedReconciler<C, K> {
    /// A reconciler of the objects of these mirrors.
    pub(crate) fn new(cluster: C, mirrors: Mirrors) -> Self {
        Self { cluster, mirrors, kind: PhantomData }
    }
}

/// The object, and the time.
pub(crate) struct UnservedObservation<K> {
    object: Arc<K>,
    now: Timestamp,
}

impl<C: Cluster, K: Unserved> reconciler::Reconciler for UnservedReconciler<C, K> {
    type Answers = ();
    type Observation = UnservedObservation<K>;
    /// The object with its status, if that is to be written.
    type Decision = Option<K>;

    async fn observe(&self, key: &Key, (): &mut ()) -> Result<Option<UnservedObservation<K>>, Error> {
        let object = K::mirror(&self.mirrors).get(key);
        Ok(object.map(|object| UnservedObservation { object, now: self.cluster.now() }))
    }

    fn decide(UnservedObservation { object, now }: &UnservedObservation<K>) -> Option<K> {
        let meta = object.meta();
        if meta.deletion_timestamp.is_some() {
            return None;
        }
        let generation = meta.generation;
        let mut after = (**object).clone();
        let (observed, conditions) = after.status();
        let before = (*observed, conditions.clone());
        *observed = generation;
        condition::set(conditions, condition::READY, false, REASON, K::MESSAGE, generation, *now);
        let is_new = before != (*observed, conditions.clone());
        is_new.then_some(after)
    }

    async fn act(&self, key: &Key, (): &mut (), _: UnservedObservation<K>, decision: Option<K>) -> Result<Next, Error> {
        if let Some(written) = decision {
            let writer = Writer { cluster: &self.cluster, namespace: &key.namespace, manager: MANAGER };
            writer.replace_status_if_unchanged(&written).await?;
        }
        Ok(Next::Rest(Outcome::Done))
    }
}
