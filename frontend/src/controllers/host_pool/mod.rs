//! The host pool controller: writes the status of host pools.
//!
//! The job controller creates host pools from the plan, and pods are placed by them. A pool whose size cannot be
//! enforced gets a warning in its status (rule placement-5). One that has nothing to say is not in a hurry in a crowd
//! (rule call-25), and nobody waits for what a pool says (rule call-22).
//!
//! Knows: host pools. Must not know: jobs, pods.

#[cfg(test)]
mod tests;

use crate::controllers::reconciler::{self, Next};
use crate::controllers::times::age;
use crate::mirrors::Mirrors;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use std::sync::Arc;
use std::time::Duration;
use streams_api::{HostPool, HostPoolStatus, condition};
use streams_kubernetes::cluster::{Cluster, Manager};
use streams_kubernetes::gate::Priority;
use streams_kubernetes::queue::{Outcome, Queue};
use streams_kubernetes::writer::Writer;
use streams_kubernetes::{Error, Key};

/// Field manager of the host pool controller.
const MANAGER: Manager = Manager("streams-host-pool-controller");

/// How long a pool that was just created says nothing in a crowd, if it has nothing to say but that it was looked at
/// (rule call-25).
const UNSAID_IN_A_CROWD: Duration = Duration::from_secs(180);
/// How soon it is looked at again: there may be no crowd by then.
const LOOK_AGAIN: Duration = Duration::from_secs(10);

/// Queues the key of every pool that changes.
pub(crate) fn subscribe(mirrors: &Mirrors, pools: &Queue<Key>) {
    mirrors.host_pools.wake(pools, |pool| [Key::of(pool)]);
}

/// Writes the status of host pools.
pub(crate) struct HostPoolReconciler<C> {
    pub(crate) cluster: C,
    pub(crate) mirrors: Mirrors,
}

/// What is looked at.
pub(crate) struct HostPoolObservation {
    pool: Arc<HostPool>,
    now: Timestamp,
    /// There are about as many calls as can be made, or more, or were a moment ago (rule call-25).
    is_crowded: bool,
}

/// What to write.
pub(crate) struct HostPoolDecision {
    status: HostPoolStatus,
    /// It is written after this time.
    after: Duration,
}

impl<C: Cluster> reconciler::Reconciler for HostPoolReconciler<C> {
    type Answers = ();
    type Observation = HostPoolObservation;
    type Decision = Option<HostPoolDecision>;

    async fn observe(&self, key: &Key, (): &mut ()) -> Result<Option<HostPoolObservation>, Error> {
        let pool = self.mirrors.host_pools.get(key);
        let (now, is_crowded) = (self.cluster.now(), self.cluster.was_crowded(&key.namespace));
        Ok(pool.map(|pool| HostPoolObservation { pool, now, is_crowded }))
    }

    fn decide(HostPoolObservation { pool, now, is_crowded }: &HostPoolObservation) -> Option<HostPoolDecision> {
        let status = status(pool, *now);
        let is_new = pool.metadata.deletion_timestamp.is_none() && pool.status.as_ref() != Some(&status);
        let after = if *is_crowded { left(pool, &status, *now) } else { Duration::ZERO };
        is_new.then_some(HostPoolDecision { status, after })
    }

    async fn act(
        &self,
        key: &Key,
        (): &mut (),
        HostPoolObservation { pool, .. }: HostPoolObservation,
        decision: Option<HostPoolDecision>,
    ) -> Result<Next, Error> {
        let Some(HostPoolDecision { status, after }) = decision else { return Ok(Next::Rest(Outcome::Done)) };
        if !after.is_zero() {
            return Ok(Next::Rest(Outcome::Again(after)));
        }
        let mut written = (*pool).clone();
        written.status = Some(status);
        let writer = Writer { cluster: &self.cluster, namespace: &key.namespace, manager: MANAGER };
        Priority::Telling.of(writer.replace_status_if_unchanged(&written)).await?;
        Ok(Next::Rest(Outcome::Done))
    }
}

/// How long a pool says nothing yet in a crowd; pure. A warning, and that it is gone, is said at once.
fn left(pool: &HostPool, after: &HostPoolStatus, now: Timestamp) -> Duration {
    let said = pool.status.as_ref().map_or(&[][..], |status| &status.conditions);
    let Some(Time(created)) = pool.metadata.creation_timestamp else { return Duration::ZERO };
    if said != after.conditions {
        return Duration::ZERO;
    }
    let Some(age) = age(created, now) else { return Duration::ZERO };
    UNSAID_IN_A_CROWD.saturating_sub(age).min(LOOK_AGAIN)
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
