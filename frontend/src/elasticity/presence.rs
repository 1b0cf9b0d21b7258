//! Whether a request is there that somebody waits for, withdraws or follows (rules elasticity-12 and elasticity-30).
//!
//! A mirror that does not show a request may be behind; and whoever may delete it may do so before the mirror shows it,
//! or between two looks at the mirror, which shows nothing of that. So a request that the mirror has not shown for a
//! while is asked for. What the API server does not have then is gone: it was there once, and no name comes back with
//! the same uid.
//!
//! Knows: uids. Must not know: what is waited for.
//!
//! Invariant: a request of which nothing was heard is not gone, whatever the mirror lacks.

use super::Elasticity;
use super::view::ClusterView;
use crate::grpc::places::CallerName;
use futures::FutureExt as _;
use futures::future::{BoxFuture, pending};
use kube::ResourceExt as _;
use std::time::Duration;
use streams_api::Resize;
use tokio::time::{Instant, sleep};
use tokio_util::task::AbortOnDropHandle;

/// How long a mirror is waited for before the API server is asked: mostly it is behind by much less.
const FIRST_PAUSE: Duration = Duration::from_secs(2);
/// The longest pause before it is asked again.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// What is known of whether a request is there.
pub(super) struct Presence {
    /// Ends when the request is known to be gone. None once it has ended, or the mirror has shown the request: what
    /// the mirror does not show any more is gone.
    asking: Option<BoxFuture<'static, ()>>,
}

impl Presence {
    /// Whether the request is gone, by whether the mirror shows it now.
    pub(super) fn is_gone(&mut self, is_shown: bool) -> bool {
        if is_shown {
            self.asking = None;
        }
        !is_shown && self.asking.is_none()
    }

    /// Whether it is known to be there or gone: the mirror has shown it, or it is gone.
    pub(super) fn is_decided(&self) -> bool {
        self.asking.is_none()
    }

    /// Waits until the API server says that a request which the mirror has not shown is gone. If the mirror has shown
    /// it, for ever: then the mirror tells it.
    pub(super) async fn gone_unseen(&mut self) {
        match &mut self.asking {
            Some(asking) => asking.await,
            None => pending().await,
        }
        self.asking = None;
    }
}

impl<V: ClusterView> Elasticity<V> {
    /// What is known of a request that is there, or was there just now, for a call that waits until `deadline`.
    pub(super) fn presence_of(&self, request: &Resize, caller: Option<&CallerName>, deadline: Instant) -> Presence {
        let (service, caller) = (self.clone(), caller.cloned());
        let (namespace, name) = (request.namespace().unwrap_or_default(), request.name_any());
        let uid = request.uid();
        let asking = async move {
            let mut pause = FIRST_PAUSE;
            loop {
                sleep(pause).await;
                pause = pause.saturating_mul(2).min(LONGEST_PAUSE);
                let (service, caller) = (service.clone(), caller.clone());
                let (namespace, name) = (namespace.clone(), name.clone());
                // A task: whoever does not read a stream must not keep its turn.
                let asked =
                    tokio::spawn(
                        async move { service.look_up(&namespace, &name, "", caller.as_ref(), deadline).await },
                    );
                let asked = AbortOnDropHandle::new(asked).await;
                if asked.is_ok_and(|found| found.is_ok_and(|found| found.is_none_or(|found| found.uid() != uid))) {
                    return;
                }
            }
        };
        Presence { asking: Some(asking.boxed()) }
    }
}
