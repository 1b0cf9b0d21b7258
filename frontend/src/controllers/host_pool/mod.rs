//! Host pools: what a pool says of itself.
//!
//! The job controller makes host pools from the plan; pods refer to them. A pool that promises more than Kubernetes can
//! keep says so (rule placement-5).
//!
//! Knows: host pools. Must not know: jobs, pods.

use std::sync::Arc;

use k8s_openapi::jiff::Timestamp;
use kube::Api;

use crate::controllers::Context;
use streams_api::{HostPool, HostPoolStatus, condition};
use streams_kubernetes::{
    Error, Key,
    apply::replace_status_if_unchanged,
    queue::{Outcome, Queue},
};

/// Field manager of the host pool controller.
const MANAGER: &str = "streams-host-pool-controller";

/// Lets every change of a pool wake its key.
pub(crate) fn subscribe(context: &Context, pools: &Queue<Key>) {
    context.mirrors.host_pools.wake(pools, |pool| [Key::of(pool)]);
}

/// Brings the status of a pool up to date.
///
/// # Errors
/// The status could not be written.
#[tracing::instrument(skip_all, fields(pool = %key))]
pub(crate) async fn reconcile(context: Arc<Context>, key: Key) -> Result<Outcome, Error> {
    let Some(pool) = context.mirrors.host_pools.get(&key) else { return Ok(Outcome::Done) };
    let after = status(&pool, Timestamp::now());
    if pool.metadata.deletion_timestamp.is_some() || pool.status.as_ref() == Some(&after) {
        return Ok(Outcome::Done);
    }
    let mut written = (*pool).clone();
    written.status = Some(after);
    let api: Api<HostPool> = Api::namespaced(context.client.clone(), &key.namespace);
    match replace_status_if_unchanged(&api, MANAGER, &written).await {
        Ok(_) => Ok(Outcome::Done),
        Err(error) if error.is_conflict() => Ok(Outcome::Done),
        Err(error) => Err(error),
    }
}

/// What the pool should say of itself; pure.
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

#[cfg(test)]
mod tests {
    use super::*;
    use streams_api::HostPoolSpec;

    #[test]
    fn a_size_without_hosts_is_a_warning() {
        // size, hosts -> warning
        let table = [(None, vec![], false), (Some(2), vec![], true), (Some(2), vec!["a".to_owned()], false)];
        for (size, hosts, expected) in table {
            let pool = HostPool::new("flow-0", HostPoolSpec { size, hosts, ..HostPoolSpec::default() });
            let status = status(&pool, Timestamp::UNIX_EPOCH);
            assert_eq!(condition::is_true(&status.conditions, condition::WARNING), expected);
        }
    }
}
