//! Tasks that end with whoever started them.

use std::future::Future;
use std::sync::{Arc, OnceLock};
use tokio::task::JoinHandle;
use tokio_util::sync::{CancellationToken, DropGuard};

/// Starts tasks, until its owner is gone, or one of them ends them all.
#[derive(Clone, Debug)]
pub(crate) struct Scope {
    token: CancellationToken,
    /// Why one of them has ended all.
    why: Arc<OnceLock<String>>,
}

/// Whoever has it owns the tasks of a scope: they end when it is dropped.
#[derive(Debug)]
pub(crate) struct Owner {
    scope: Scope,
    _guard: DropGuard,
}

impl Owner {
    /// Waits until one of the tasks has ended all, and says why.
    pub(crate) async fn ended(&self) -> String {
        self.scope.token.cancelled().await;
        self.scope.why.get().cloned().unwrap_or_default()
    }
}

impl Scope {
    /// A scope and its owner.
    pub(crate) fn new() -> (Self, Owner) {
        let token = CancellationToken::new();
        let scope = Self { token: token.clone(), why: Arc::default() };
        (scope.clone(), Owner { scope, _guard: token.drop_guard() })
    }

    /// Ends all tasks.
    pub(crate) fn end(&self, why: String) {
        // The first reason counts.
        let _ = self.why.set(why);
        self.token.cancel();
    }

    /// Starts a task.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) -> JoinHandle<()> {
        let token = self.token.clone();
        tokio::spawn(async move {
            token.run_until_cancelled(task).await;
        })
    }
}

#[cfg(test)]
mod tests {
    use super::Scope;
    use std::future::pending;

    #[tokio::test]
    async fn a_task_can_end_all_and_the_first_reason_counts() {
        let (scope, owner) = Scope::new();
        let other = scope.spawn(pending());
        let ending = scope.clone();
        scope.spawn(async move {
            ending.end("one".to_owned());
            ending.end("another".to_owned());
        });
        assert_eq!(owner.ended().await, "one");
        other.await.unwrap();
    }
}
