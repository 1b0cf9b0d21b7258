//! What runs as long as the process does. What ends or panics unasked is noticed.
//!
//! Knows: tasks, and that leading goes on beside them. Must not know: what any of them does.

use anyhow::{Context as _, anyhow};
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::pin;
use std::time::Duration;
use tokio::task::{self, JoinError, JoinSet};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

/// What runs as long as the process does.
#[derive(Default)]
pub(super) struct Tasks {
    /// Those that others call.
    pub(super) servers: Named<anyhow::Result<()>>,
    /// All others.
    pub(super) background: Named<()>,
}

/// Tasks, and for people what each of them is.
pub(super) struct Named<T> {
    tasks: JoinSet<T>,
    names: BTreeMap<task::Id, &'static str>,
}

impl<T> Default for Named<T> {
    fn default() -> Self {
        Self { tasks: JoinSet::new(), names: BTreeMap::new() }
    }
}

impl<T: Send + 'static> Named<T> {
    /// Begins a task.
    pub(super) fn spawn(&mut self, name: &'static str, task: impl Future<Output = T> + Send + 'static) {
        let id = self.tasks.spawn(task).id();
        self.names.insert(id, name);
    }

    /// What the next one ends with, and its name; nothing if there is none.
    async fn join_next(&mut self) -> Option<(&'static str, Result<T, JoinError>)> {
        let ended = self.tasks.join_next_with_id().await?;
        let (id, result) = match ended {
            Ok((id, result)) => (id, Ok(result)),
            Err(error) => (error.id(), Err(error)),
        };
        Some((self.names.remove(&id).unwrap_or_default(), result))
    }
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
                Some((name, ended)) = self.servers.join_next() => (name, flat(ended)),
                Some((name, ended)) = self.background.join_next() => (name, ended.map_err(anyhow::Error::from)),
                else => std::future::pending().await,
            };
            let (name, ended) = ended;
            if !asked_to_stop.is_cancelled() {
                let why = ended.err().unwrap_or_else(|| anyhow!("it runs as long as the process"));
                return why.context(format!("the task {name:?} ended"));
            }
            report(name, ended);
        }
    }

    /// Waits for the end of all; calls this when nobody is served any more.
    pub(super) async fn end(&mut self, is_quiet: impl FnOnce()) {
        while let Some((name, ended)) = self.servers.join_next().await {
            report(name, flat(ended));
        }
        is_quiet();
        while let Some((name, ended)) = self.background.join_next().await {
            report(name, ended.map_err(anyhow::Error::from));
        }
    }

    /// The names of those that have not ended.
    pub(super) fn left(&self) -> Vec<&'static str> {
        self.servers.names.values().chain(self.background.names.values()).copied().collect()
    }
}

fn flat(ended: Result<anyhow::Result<()>, JoinError>) -> anyhow::Result<()> {
    ended.map_err(anyhow::Error::from).flatten()
}

fn report(name: &str, result: anyhow::Result<()>) {
    if let Err(error) = result {
        tracing::warn!(task = name, error = format!("{error:#}"), "a task failed at the end");
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
            (|tasks| tasks.background.spawn("a", async { panic!("on purpose") }), "on purpose"),
            (|tasks| tasks.background.spawn("a", ready(())), "the task \"a\" ended"),
            (|tasks| tasks.servers.spawn("a", ready(Ok(()))), "the task \"a\" ended"),
            (|tasks| tasks.servers.spawn("a", async { panic!("on purpose") }), "on purpose"),
        ];
        for (end, expected) in table {
            let mut tasks = Tasks::default();
            tasks.background.spawn("b", pending());
            tasks.servers.spawn("c", pending());
            end(&mut tasks);
            let stop = CancellationToken::new();
            let why = tasks.unasked_end_beside(stop.clone().cancelled_owned().map(Ok), &stop, PATIENCE).await;
            let why = format!("{:#}", why.unwrap().unwrap());
            assert!(why.contains(expected) && stop.is_cancelled(), "{why}");
        }
        let mut tasks = Tasks::default();
        tasks.servers.spawn("a", fails());
        let why = tasks.unasked_end(&CancellationToken::new()).await;
        assert_eq!(format!("{why:#}"), "the task \"a\" ended: no port");
    }

    #[tokio::test(start_paused = true)]
    async fn a_task_that_ends_as_asked_or_while_leading_fails_is_none_of_these() {
        let stop = CancellationToken::new();
        let mut tasks = Tasks::default();
        stop.cancel();
        tasks.background.spawn("a", ready(()));
        let lead = async {
            sleep(PATIENCE).await;
            Ok(())
        };
        assert!(tasks.unasked_end_beside(lead, &stop, PATIENCE).await.unwrap().is_none());
        let lead = async { Err(anyhow!("the lease is lost")) };
        assert!(tasks.unasked_end_beside(lead, &stop, PATIENCE).await.is_err());
        // Leading that does not end is left.
        let stop = CancellationToken::new();
        tasks.background.spawn("a", ready(()));
        assert!(tasks.unasked_end_beside(pending(), &stop, PATIENCE).await.unwrap().is_some());
    }
}
