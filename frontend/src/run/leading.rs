//! What one replica does: it leads, brings its mirrors up to that moment, and then runs the controllers.
//!
//! Knows: the Lease, the mirrors, that the work may fail or panic. Must not know: what the controllers do, what every
//! replica serves.

use super::base::Base;
use super::hand_over::say;
use crate::controllers::{self, Dependencies};
use crate::mirrors::Mirrors;
use crate::options::RunOptions;
use anyhow::{Context as _, anyhow};
use futures::FutureExt as _;
use kube::Client;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::time::Duration;
use streams_kubernetes::error::with_causes;
use streams_kubernetes::leadership::{self, Leader, Released};
use streams_kubernetes::metrics::Metrics;
use streams_kubernetes::watch::Scope;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

/// When the mirrors are compared again with what the API server has, if that failed.
const CATCH_UP_AGAIN: Duration = Duration::from_secs(1);

/// Leads, as soon as the mirrors are filled and nobody else does, until the process is asked to stop. The Lease that
/// was released then, if there is one.
///
/// # Errors
/// The work failed, or leadership was lost.
pub(super) async fn lead(
    base: &Base,
    options: &RunOptions,
    dependencies: Dependencies,
) -> anyhow::Result<Option<Released>> {
    let Base { mirrors, client, metrics, asked_to_stop, .. } = base;
    tokio::select! {
        () = mirrors.synced() => {}
        () = asked_to_stop.cancelled() => return Ok(None),
    }
    tracing::info!("the mirrors are filled");
    let has_predecessor = base.lease.is_some();
    // On the heap: it is large, and whatever is put around it would need room on the stack for it.
    let controllers = Box::pin(async {
        if has_predecessor && !catch_up(mirrors, client, &options.scope(), asked_to_stop).await {
            return Ok(());
        }
        work(dependencies, asked_to_stop.clone(), options.calls().deadline).await
    });
    let Some(lease) = base.lease.clone() else {
        return without_lease(metrics, controllers).await.map(|()| None);
    };
    match leadership::acquire(client.clone(), lease, base.term.clone(), metrics, asked_to_stop).await {
        Some(leader) => while_leading(leader, controllers).await,
        None => Ok(None),
    }
}

/// Brings the mirrors up to the moment at which this process begins to lead. False if it is asked to stop before.
async fn catch_up(mirrors: &Mirrors, client: &Client, scope: &Scope, stop: &CancellationToken) -> bool {
    let caught_up = async {
        while let Err(error) = mirrors.catch_up(client, scope).await {
            tracing::warn!(error = with_causes(&error), "the mirrors cannot be compared; will try again");
            sleep(CATCH_UP_AGAIN).await;
        }
    };
    tokio::select! {
        () = caught_up => true,
        () = stop.cancelled() => false,
    }
}

/// Does the work of the leader in a process that leads as long as it does, until it ends by itself.
///
/// # Errors
/// The work failed.
async fn without_lease(metrics: &Metrics, work: impl Future<Output = anyhow::Result<()>>) -> anyhow::Result<()> {
    metrics.set_leader(true);
    let result = work.await;
    metrics.set_leader(false);
    result
}

/// Does the work of the leader until it ends by itself, then releases the Lease: also if it has failed, so that nobody
/// waits for its end, nor for what it would say.
///
/// # Errors
/// The work failed, or leadership was lost; then the work is dropped where it is.
pub(super) async fn while_leading(
    leader: Leader,
    work: impl Future<Output = anyhow::Result<()>>,
) -> anyhow::Result<Option<Released>> {
    let release = CancellationToken::new();
    // A task of its own: however long a step of the work takes, the Lease is renewed beside it.
    let holding = AbortOnDropHandle::new(tokio::spawn({
        let release = release.clone();
        async move { leader.hold(&release).await }
    }));
    let hold = async { holding.await?.context("leadership was lost") };
    let work = async {
        let result = work.await;
        release.cancel();
        Ok::<_, anyhow::Error>(result)
    };
    let (released, result) = tokio::try_join!(hold, work)?;
    match (released, result) {
        (Some(released), Err(error)) => {
            say(released, || None).await;
            Err(error)
        }
        (released, result) => result.map(|()| released),
    }
}

/// The controllers; they end when they are asked to stop and what they are at is finished. No call that is under way
/// takes longer than `finish`.
///
/// # Errors
/// A part of them has panicked.
async fn work(dependencies: Dependencies, stop: CancellationToken, finish: Duration) -> anyhow::Result<()> {
    unless_panicked(Box::pin(controllers::run(dependencies, stop, finish))).await
}

/// Does the work of the controllers. What has panicked is told already, and nothing of it is used any more.
///
/// # Errors
/// It has panicked.
async fn unless_panicked(controllers: impl Future<Output = ()>) -> anyhow::Result<()> {
    AssertUnwindSafe(controllers).catch_unwind().await.map_err(|_| anyhow!("the controllers have panicked"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::tasks::Tasks;
    use crate::run::tests::{holder, leader, note};
    use std::sync::Arc;

    #[tokio::test]
    async fn a_process_without_a_lease_says_that_it_leads_as_long_as_it_does() {
        let metrics = Metrics::new("test");
        let says = |leads: u8| metrics.text().unwrap().contains(&format!("\ntest_leader {leads}\n"));
        assert!(says(0));
        let work = async {
            assert!(says(1));
            Ok(())
        };
        without_lease(&metrics, work).await.unwrap();
        assert!(says(0));
    }

    #[tokio::test]
    async fn the_lease_is_given_up_when_controllers_panic() {
        let lease = Arc::default();
        let work = unless_panicked(async { panic!("on purpose") });
        let why = while_leading(leader(&lease).await, work).await.err().unwrap();
        assert_eq!((why.to_string().as_str(), holder(&lease)), ("the controllers have panicked", None));
        assert_eq!(note(&lease), "", "nobody waits for what it would say");
    }

    #[tokio::test]
    async fn the_lease_is_given_up_when_a_mirror_panics() {
        let (lease, stop) = (Arc::default(), CancellationToken::new());
        let leader = leader(&lease).await;
        let mut tasks = Tasks::default();
        tasks.background.spawn("a", async { panic!("on purpose") });
        let work = stop.clone().cancelled_owned().map(Ok);
        let lead = async { while_leading(leader, work).await.map(drop) };
        let unasked = tasks.unasked_end_beside(lead, &stop, Duration::from_secs(60)).await.unwrap();
        assert!(unasked.is_some());
        assert_eq!(holder(&lease), None);
    }
}
