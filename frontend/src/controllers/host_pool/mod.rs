//! The host pool controller: writes the status of host pools.
//!
//! The job controller creates host pools from the plan, and pods are placed by them. A pool whose size cannot be
//! enforced gets a warning in its status (rule placement-5).
//!
//! Knows: host pools. Must not know: jobs, pods.

#[cfg(test)]
mod tests;

use crate::controllers::reconciler::{self, Next};
use crate::mirrors::Mirrors;
use k8s_openapi::jiff::Timestamp;
use std::sync::Arc;
use streams_api::{HostPool, HostPoolStatus, condition};
use streams_kubernetes::cluster::{Cluster, Manager};
use streams_kubernetes::queue::{Outcome, Queue};
use streams_kubernetes::writer::Writer;
use streams_kubernetes::{Error, Key};

/// Field manager of the host pool controller.
const MANAGER: Manager = Manager("streams-host-pool-controller");

/// Queues the key of every pool that changes.
pub(crate) fn subscribe(mirrors: &Mirrors, pools: &Queue<Key>) {
    mirrors.host_pools.wake(pools, |pool| [Key::of(pool)]);
}

/// Writes the status of host pools.
pub(crate) struct HostPoolReconciler<C> {
    pub(crate) cluster: C,
    pub(crate) mirrors: Mirrors,
}

/// The pool, and the time.
pub(crate) struct HostPoolObservation {
    pool: Arc<HostPool>,
    now: Timestamp,
}

impl<C: Cluster> reconciler::Reconciler for HostPoolReconciler<C> {
    type Answers = ();
    type Observation = HostPoolObservation;
    /// The status, if it is to be written.
    type Decision = Option<HostPoolStatus>;

    async fn observe(&self, key: &Key, (): &mut ()) -> Result<Option<HostPoolObservation>, Error> {
        let pool = self.mirrors.host_pools.get(key);
        Ok(pool.map(|pool| HostPoolObservation { pool, now: self.cluster.now() }))
    }

    fn decide(HostPoolObservation { pool, now }: &HostPoolObservation) -> Option<HostPoolStatus> {
        let after = status(pool, *now);
        let is_new = pool.metadata.deletion_timestamp.is_none() && pool.status.as_ref() != Some(&after);
        is_new.then_some(after)
    }

    async fn act(
        &self,
        key: &Key,
        (): &mut (),
        HostPoolObservation { pool, .. }: HostPoolObservation,
        decision: Option<HostPoolStatus>,
    ) -> Result<Next, Error> {
        let Some(status) = decision else { return Ok(Next::Rest(Outcome::Done)) };
        let mut written = (*pool).clone();
        written.status = Some(status);
        let writer = Writer { cluster: &self.cluster, namespace: &key.namespace, manager: MANAGER };
        writer.replace_status_if_unchanged(&written).await?;
        Ok(Next::Rest(Outcome::Done))
    }
}

/// The status that the pool should have; pure.
fn status(pool: &HostPool, now: Timestamp) -> HostPoolStatus {
    let mut status = pool.status.clone().unwrap_or_default();
    let generation = pool.metadata.generation;
    status.observed_generation = generation;
    match pool.spec.size.filter(|_| pool.spec.hosts.is_empty()) {
        Some(size) => {
            let message = format!("the number of hosts ({size}) is not enforced: the pool names no hosts");
            condition::set(
                &mut status.conditions,
                condition::WARNING,
                true,
                "SizeNotEnforced",
                &message,
                generation,
                now,
            );
        }
        None => {
            condition::remove(&mut status.conditions, condition::WARNING);
        }
    }
    status
}
