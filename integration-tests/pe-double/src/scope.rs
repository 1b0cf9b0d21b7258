//! Tasks that end with whoever started them.

use std::future::Future;
use tokio::task::JoinHandle;
use tokio_util::sync::{CancellationToken, DropGuard};

/// Starts tasks, until its owner is gone.
#[derive(Clone, Debug)]
pub(crate) struct Scope(CancellationToken);

/// Whoever has it owns the tasks of a scope: they end when it is dropped.
#[derive(Debug)]
pub(crate) struct Owner {
    _guard: DropGuard,
}

impl Scope {
    /// A scope and its owner.
    pub(crate) fn new() -> (Self, Owner) {
        let token = CancellationToken::new();
        (Self(token.clone()), Owner { _guard: token.drop_guard() })
    }

    /// Starts a task.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) -> JoinHandle<()> {
        let token = self.0.clone();
        tokio::spawn(async move {
            token.run_until_cancelled(task).await;
        })
    }
}
