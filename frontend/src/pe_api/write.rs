//! Changes the status of an object, so that the next read of this replica sees it (rule pe-api-3).
//!
//! The write is made only if nobody has written the object since it was read; else it is read again and decided again.
//! Then the mirror is waited for. Both together have less time than the runtime waits. A write that takes longer goes
//! on without whoever has asked for it, and the next change of the object waits for its end.

use super::refusal::Refusal;
use super::{MANAGER, reservations};
use crate::mirrors::Mirrors;
use futures::future::BoxFuture;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;
use streams_api::{Export, Import, ParallelRegion, ProcessingElement};
use streams_kubernetes::cluster::{Cluster, Object};
use streams_kubernetes::watch::{Mirrored, Watch};
use streams_kubernetes::writer::Writer;
use streams_kubernetes::{Error, Key};
use tokio::sync::OwnedMutexGuard;
use tokio::time::timeout;

/// How long a write may take, until the mirror has it: the runtime waits for a second.
pub(super) const WITHIN: Duration = Duration::from_millis(900);

/// How long the next change of an object waits until the mirror shows the one before, at most.
const SHOWN_WITHIN: Duration = Duration::from_secs(10);

/// What becomes of an object; nothing, if nothing is to change.
pub(super) type Change<'a, K> = &'a (dyn Fn(&K) -> Result<Option<K>, Refusal> + Send + Sync);

/// Writes objects of any cluster, and waits until the mirror shows them.
///
/// All methods fail if the object is gone, the change is refused, or nothing comes of it in time.
pub(super) trait Changes: Send + Sync {
    /// Changes the status of a PE.
    fn processing_element<'a>(
        &'a self,
        key: &'a Key,
        change: Change<'a, ProcessingElement>,
    ) -> BoxFuture<'a, Result<(), Refusal>>;

    /// Changes the status of a PE so that it has an endpoint of this name, after the name was reserved for it.
    fn add_endpoint<'a>(
        &'a self,
        pe: &'a ProcessingElement,
        endpoint: &'a str,
        change: Change<'a, ProcessingElement>,
    ) -> BoxFuture<'a, Result<(), Refusal>>;

    /// Changes the status of a PE so that it has no endpoint of this name, and gives the name back.
    fn remove_endpoint<'a>(
        &'a self,
        pe: &'a ProcessingElement,
        endpoint: &'a str,
        change: Change<'a, ProcessingElement>,
    ) -> BoxFuture<'a, Result<(), Refusal>>;

    /// Changes the status of an export.
    fn export<'a>(&'a self, key: &'a Key, change: Change<'a, Export>) -> BoxFuture<'a, Result<(), Refusal>>;

    /// Changes the status of an import.
    fn import<'a>(&'a self, key: &'a Key, change: Change<'a, Import>) -> BoxFuture<'a, Result<(), Refusal>>;

    /// Changes the width that a parallel region is to have.
    fn width<'a>(&'a self, region: &'a ParallelRegion, width: u32) -> BoxFuture<'a, Result<(), Refusal>>;
}

/// A cluster, and what is seen of it.
pub(super) struct ClusterChanges<C> {
    cluster: C,
    mirrors: Mirrors,
    turns: Turns,
}

impl<C> ClusterChanges<C> {
    /// Writes to this cluster, of which these mirrors are.
    pub(super) fn new(cluster: C, mirrors: Mirrors) -> Self {
        Self { cluster, mirrors, turns: Turns::default() }
    }
}

/// Whose turn it is to change an object: one change at a time. Nothing is kept of objects that nobody changes.
#[derive(Default)]
struct Turns(Mutex<HashMap<(String, Key), Weak<tokio::sync::Mutex<()>>>>);

/// The turn of one change. It lasts until what was written is known.
type Turn = OwnedMutexGuard<()>;

impl Turns {
    /// Waits until it is this change's turn.
    async fn take(&self, kind: &str, key: &Key) -> Turn {
        let turns = {
            let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            all.retain(|_, turns| turns.strong_count() > 0);
            let turns = all.entry((kind.to_owned(), key.clone())).or_default();
            turns.upgrade().unwrap_or_else(|| {
                let new = Arc::default();
                *turns = Arc::downgrade(&new);
                new
            })
        };
        turns.lock_owned().await
    }
}

impl<C: Cluster> Changes for ClusterChanges<C> {
    fn processing_element<'a>(
        &'a self,
        key: &'a Key,
        change: Change<'a, ProcessingElement>,
    ) -> BoxFuture<'a, Result<(), Refusal>> {
        Box::pin(self.change_status(&self.mirrors.processing_elements, key, change))
    }

    fn add_endpoint<'a>(
        &'a self,
        pe: &'a ProcessingElement,
        endpoint: &'a str,
        change: Change<'a, ProcessingElement>,
    ) -> BoxFuture<'a, Result<(), Refusal>> {
        let work = async move {
            let reservation = reservations::reserve(&self.cluster, pe, endpoint).await?;
            let changed = self.change_status(&self.mirrors.processing_elements, &Key::of(pe), change).await;
            // A write without an answer may still have its effect.
            if matches!(&changed, Err(refusal) if !matches!(refusal, Refusal::Later(_))) {
                reservation.release(&self.cluster).await;
            }
            changed
        };
        Box::pin(async move { timeout(WITHIN, work).await.unwrap_or_else(|_| Err(too_long())) })
    }

    fn remove_endpoint<'a>(
        &'a self,
        pe: &'a ProcessingElement,
        endpoint: &'a str,
        change: Change<'a, ProcessingElement>,
    ) -> BoxFuture<'a, Result<(), Refusal>> {
        let work = async move {
            // As it was before: one that is renewed while the endpoint is removed is needed for the next one.
            let reservation = reservations::find(&self.cluster, pe, endpoint).await?;
            self.change_status(&self.mirrors.processing_elements, &Key::of(pe), change).await?;
            if let Some(reservation) = reservation {
                reservation.release(&self.cluster).await;
            }
            Ok(())
        };
        Box::pin(async move { timeout(WITHIN, work).await.unwrap_or_else(|_| Err(too_long())) })
    }

    fn export<'a>(&'a self, key: &'a Key, change: Change<'a, Export>) -> BoxFuture<'a, Result<(), Refusal>> {
        Box::pin(self.change_status(&self.mirrors.exports, key, change))
    }

    fn import<'a>(&'a self, key: &'a Key, change: Change<'a, Import>) -> BoxFuture<'a, Result<(), Refusal>> {
        Box::pin(self.change_status(&self.mirrors.imports, key, change))
    }

    fn width<'a>(&'a self, region: &'a ParallelRegion, width: u32) -> BoxFuture<'a, Result<(), Refusal>> {
        let patch = json!({"metadata": {"uid": region.metadata.uid}, "spec": {"width": width}});
        Box::pin(async move { self.merged(&self.mirrors.parallel_regions, &Key::of(region), &patch).await })
    }
}

impl<C: Cluster> ClusterChanges<C> {
    /// Writes the object that `change` makes of the one that is there, with another status; nothing, if it makes none.
    ///
    /// # Errors
    /// `change` refuses; the object is gone; the API server refuses, or nothing comes of it in time.
    async fn change_status<K: Object + Mirrored>(
        &self,
        mirror: &Watch<K>,
        key: &Key,
        change: Change<'_, K>,
    ) -> Result<(), Refusal> {
        let work = self.write_status(mirror, key, change);
        timeout(WITHIN, work).await.unwrap_or_else(|_| Err(too_long()))
    }

    /// Merges `patch` into an object, and waits until the mirror shows that.
    ///
    /// # Errors
    /// The object is gone; the API server refuses, or nothing comes of it in time.
    async fn merged<K: Object + Mirrored>(&self, mirror: &Watch<K>, key: &Key, patch: &Value) -> Result<(), Refusal> {
        let work = async {
            let merged = self.cluster.merge::<K>(MANAGER, key, patch).await;
            let merged = merged.map_err(|error| match error {
                kube::Error::Api(status) if (400..500).contains(&status.code) && status.code != 429 => {
                    Refusal::Invalid(status.message)
                }
                error => Refusal::of(&error.into()),
            })?;
            mirror.shows(&merged).await;
            Ok(())
        };
        timeout(WITHIN, work).await.unwrap_or_else(|_| Err(too_long()))
    }

    /// Decides and writes when it is this change's turn.
    async fn write_status<K: Object + Mirrored>(
        &self,
        mirror: &Watch<K>,
        key: &Key,
        change: Change<'_, K>,
    ) -> Result<(), Refusal> {
        let gone = || Refusal::Absent(format!("{} {} is gone", K::kind(&()), key.name));
        let mut turn = self.turns.take(&K::kind(&()), key).await;
        let mut object = mirror.get(key).map(|object| K::clone(&object)).ok_or_else(gone)?;
        loop {
            let Some(wanted) = change(&object)? else { return Ok(()) };
            let task = write_to_its_end(self.cluster.clone(), mirror.clone(), key.clone(), wanted, turn);
            let Ok((written, back)) = tokio::spawn(task).await else { return Err(too_long()) };
            match written {
                Ok(()) => return Ok(()),
                Err(Error::Conflict { .. }) => {
                    let read = self.cluster.get::<K>(key).await.map_err(|error| Refusal::of(&error.into()))?;
                    let is_same = |now: &K| now.meta().uid == object.meta().uid;
                    object = read.filter(is_same).ok_or_else(gone)?;
                    turn = back;
                }
                Err(error) => return Err(Refusal::of(&error)),
            }
        }
    }
}

/// Writes a status, and waits until the mirror shows what has come of it. It goes on although whoever has asked for it
/// has given up: a write that was not waited for may still have its effect, and the next change of the object must not
/// be decided by what was there before.
async fn write_to_its_end<C: Cluster, K: Object + Mirrored>(
    cluster: C,
    mirror: Watch<K>,
    key: Key,
    wanted: K,
    turn: Turn,
) -> (Result<(), Error>, Turn) {
    let writer = Writer { cluster: &cluster, namespace: &key.namespace, manager: MANAGER };
    let written = writer.replace_status_if_unchanged(&wanted).await;
    let shown = match &written {
        Err(Error::Conflict { .. }) => None,
        Ok(written) => Some(written.clone()),
        // It may have had its effect.
        Err(_) => cluster.get::<K>(&key).await.ok().flatten(),
    };
    if let Some(shown) = shown {
        // The mirror may have stopped; whoever comes next may not wait for ever.
        let _ = timeout(SHOWN_WITHIN, mirror.shows(&shown)).await;
    }
    (written.map(|_| ()), turn)
}

fn too_long() -> Refusal {
    Refusal::Later("it takes too long".to_owned())
}
