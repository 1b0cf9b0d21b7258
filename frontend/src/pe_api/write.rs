//! Changes the status of an object, so that the next read of this replica sees it (rule pe-api-3).
//!
//! How a status is changed is the business of [`status_changes`]. All of it has less time than the runtime waits; a
//! write that takes longer goes on without whoever has asked for it.

use super::refusal::Refusal;
use super::{MANAGER, reservations};
use crate::mirrors::Mirrors;
use crate::status_changes::{self, StatusChanges, Unchanged};
use futures::future::BoxFuture;
use serde_json::{Value, json};
use std::time::Duration;
use streams_api::{Export, Import, ParallelRegion, ProcessingElement};
use streams_kubernetes::Key;
use streams_kubernetes::cluster::{Cluster, Object};
use streams_kubernetes::watch::{Mirrored, Watch};
use tokio::time::timeout;

/// How long a write may take, until the mirror has it: the runtime waits for a second.
pub(super) const WITHIN: Duration = Duration::from_millis(900);

/// What becomes of an object; nothing, if nothing is to change.
pub(super) type Change<'a, K> = status_changes::Change<'a, K, Refusal>;

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
    statuses: StatusChanges<C>,
}

impl<C: Cluster> ClusterChanges<C> {
    /// Writes to the cluster of these changes, of which these mirrors are.
    pub(super) fn new(mirrors: Mirrors, statuses: StatusChanges<C>) -> Self {
        Self { cluster: statuses.cluster.clone(), mirrors, statuses }
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
        let made = timeout(WITHIN, self.statuses.make(mirror, key, change)).await;
        made.map_err(|_| too_long())?.map(|_| ()).map_err(|why| refusal_of::<K>(key, why))
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
}

/// How a caller is told that the status of its object was not changed.
pub(super) fn refusal_of<K: Object>(key: &Key, why: Unchanged<Refusal>) -> Refusal {
    match why {
        Unchanged::Refused(refusal) => refusal,
        Unchanged::Gone => Refusal::Absent(format!("{} {} is gone", K::kind(&()), key.name)),
        Unchanged::Failed(error) => Refusal::of(&error),
        Unchanged::Unseen | Unchanged::Unknown => too_long(),
    }
}

pub(super) fn too_long() -> Refusal {
    Refusal::Later("it takes too long".to_owned())
}
