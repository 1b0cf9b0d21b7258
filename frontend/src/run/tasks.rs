//! What runs as long as the process does. What ends or panics unasked is noticed.
//!
//! Knows: tasks, and that leading goes on beside them. Must not know: what any of them does.

use anyhow::{Context as _, anyhow};
use std::future::Future;
use std::pin::pin;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

/// What runs as long as the process does.
#[derive(Default)]
pub(super) struct Tasks {
    /// Those that others call.
    pub(super) servers: JoinSet<anyhow::Result<()>>,
    /// All others.
    pub(super) background: JoinSet<()>,
}

impl Tasks {
    /// Leads until that ends. If a task ends before although nobody has asked for it, leading is asked to end: why is
    /// returned after it has, or has not for so long.
    ///
    /// # Errors
    /// What leads failed.
    pub(super) async fn unasked_end_beside(
        &mut self,
        lead: impl Future<Output = anyhow::Result<()>>,
        asked_to_stop: &CancellationToken,
        patience: Duration,
    ) -> anyhow::Result<Option<anyhow::Error>> {
        let mut lead = pin!(lead);
        let unasked = tokio::select! {
            result = &mut lead => return result.map(|()| None),
            unasked = self.unasked_end(asked_to_stop) => unasked,
        };
        tracing::error!(error = format!("{unasked:#}"), "this process ends, because a part of it does");
        asked_to_stop.cancel();
        match timeout(patience, lead).await {
            Ok(result) => result.context(format!("leading failed after {unasked:#}"))?,
            Err(_) => tracing::warn!("the lease was not released in time; others wait until it ends"),
        }
        Ok(Some(unasked))
    }

    /// Why one of them has ended although nobody asked for it.
    async fn unasked_end(&mut self, asked_to_stop: &CancellationToken) -> anyhow::Error {
        loop {
            let ended = tokio::select! {
                Some(ended) = self.servers.join_next() => ended.map_err(anyhow::Error::from).flatten(),
                Some(ended) = self.background.join_next() => ended.map_err(anyhow::Error::from),
                else => std::future::pending().await,
            };
            if !asked_to_stop.is_cancelled() {
                return ended.err().unwrap_or_else(|| anyhow!("a task ended that runs as long as the process"));
            }
            report(ended);
        }
    }

    /// Waits for the end of all.
    pub(super) async fn end(&mut self) {
        while let Some(ended) = self.servers.join_next().await {
            report(ended.map_err(anyhow::Error::from).flatten());
        }
        while let Some(ended) = self.background.join_next().await {
            report(ended.map_err(anyhow::Error::from));
        }
    }
}

fn report(result: anyhow::Result<()>) {
    if let Err(error) = result {
        tracing::warn!(error = format!("{error:#}"), "a task failed at the end");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt as _;
    use std::future::{pending, ready};
    use tokio::time::sleep;

    const PATIENCE: Duration = Duration::from_secs(60);

    #[tokio::test]
    async fn a_task_that_ends_unasked_is_noticed() {
        let fails = || async { Err(anyhow!("no port")) };
        // what ends -> part of why
        let table: [(fn(&mut Tasks), &str); 4] = [
            (|tasks| _ = tasks.background.spawn(async { panic!("on purpose") }), "on purpose"),
            (|tasks| _ = tasks.background.spawn(ready(())), "a task ended"),
            (|tasks| _ = tasks.servers.spawn(ready(Ok(()))), "a task ended"),
            (|tasks| _ = tasks.servers.spawn(async { panic!("on purpose") }), "on purpose"),
        ];
        for (end, expected) in table {
            let mut tasks = Tasks::default();
            tasks.background.spawn(pending());
            tasks.servers.spawn(pending());
            end(&mut tasks);
            let stop = CancellationToken::new();
            let why = tasks.unasked_end_beside(stop.clone().cancelled_owned().map(Ok), &stop, PATIENCE).await;
            let why = format!("{:#}", why.unwrap().unwrap());
            assert!(why.contains(expected) && stop.is_cancelled(), "{why}");
        }
        let mut tasks = Tasks::default();
        tasks.servers.spawn(fails());
        let why = tasks.unasked_end(&CancellationToken::new()).await;
        assert_eq!(why.to_string(), "no port");
    }

    #[tokio::test(start_paused = true)]
    async fn a_task_that_ends_as_asked_or_while_leading_fails_is_none_of_these() {
        let stop = CancellationToken::new();
        let mut tasks = Tasks::default();
        stop.cancel();
        tasks.background.spawn(ready(()));
        let lead = async {
            sleep(PATIENCE).await;
            Ok(())
        };
        assert!(tasks.unasked_end_beside(lead, &stop, PATIENCE).await.unwrap().is_none());
        let lead = async { Err(anyhow!("the lease is lost")) };
        assert!(tasks.unasked_end_beside(lead, &stop, PATIENCE).await.is_err());
        // Leading that does not end is left.
        let stop = CancellationToken::new();
        tasks.background.spawn(ready(()));
        assert!(tasks.unasked_end_beside(pending(), &stop, PATIENCE).await.unwrap().is_some());
    }
}
