//! Changes the status of an object, so that the next read of this replica sees it (rule pe-api-3).
//!
//! How a status is changed is the business of [`status_changes`]. All of it has less time than the runtime waits; a
//! write that takes longer goes on without whoever has asked for it. So does all that is done with the name of an
//! endpoint, from its reservation to its release: whoever goes away in between leaves nothing behind. And so does the
//! change of a width, which is no status: the next one of the region waits for its end.
//!
//! Any pod of a namespace may ask all the time. So of a PE the calls of few changes of a kind of objects are made at a
//! time, also what is only read for one; at the gate of these calls jobs take turns, and in each its PEs. A PE that
//! asks for much holds up itself.
//!
//! Calls for one kind may hang, of all namespaces. So those for each kind go to a cluster of their own, with a gate of
//! its own: calls for one kind wait for none for another.
//!
//! Knows: clusters, mirrors, whose turn it is. Must not know: HTTP, what is changed.

use super::refusal::Refusal;
use super::reservations::{ENDPOINTS_MAX, Registrant};
use super::unsettled::Unsettled;
use super::{MANAGER, reservations};
use crate::mirrors::Mirrors;
use crate::status_changes::{self, Changer, StatusChanges, Turn, Unchanged, is_shown};
use futures::future::BoxFuture;
use kube::core::Status;
use serde_json::json;
use std::time::Duration;
use streams_api::{Export, Import, ParallelRegion, ProcessingElement};
use streams_kubernetes::Key;
use streams_kubernetes::cluster::{Cluster, Object};
use streams_kubernetes::error::NOT_A_STATUS;
use streams_kubernetes::gate::{Asker, asked_by};
use streams_kubernetes::watch::{Mirrored, Watch};
use tokio::time::timeout;
use tracing::Instrument as _;

/// How long a write may take, until the mirror has it: the runtime waits for a second.
pub(super) const WITHIN: Duration = Duration::from_millis(900);

/// What becomes of an object; nothing, if nothing is to change.
pub(super) type Change<K> = status_changes::Change<K, Refusal>;

/// Writes objects of any cluster, and waits until the mirror shows them.
///
/// All methods fail if the object is gone, the change is refused, or nothing comes of it in time.
pub(super) trait Changes: Send + Sync {
    /// A PE as the API server has it now: the mirror may not show yet what another replica has written.
    fn newest<'a>(&'a self, key: &'a Key, by: &'a Changer) -> BoxFuture<'a, Result<ProcessingElement, Refusal>>;

    /// Changes the status of a PE.
    fn processing_element<'a>(
        &'a self,
        key: &'a Key,
        change: Change<ProcessingElement>,
    ) -> BoxFuture<'a, Result<(), Refusal>>;

    /// Changes the status of a PE so that it has an endpoint of this name, after the name was reserved for it. Of a PE,
    /// one is registered or given up at a time; nothing is reserved for the others.
    fn add_endpoint<'a>(
        &'a self,
        pe: &'a Registrant,
        endpoint: &'a str,
        change: Change<ProcessingElement>,
    ) -> BoxFuture<'a, Result<(), Refusal>>;

    /// Changes the status of a PE so that it has no endpoint of this name, and gives the name back.
    fn remove_endpoint<'a>(
        &'a self,
        pe: &'a Registrant,
        endpoint: &'a str,
        change: Change<ProcessingElement>,
    ) -> BoxFuture<'a, Result<(), Refusal>>;

    /// Changes the status of an export.
    fn export<'a>(&'a self, key: &'a Key, change: Change<Export>) -> BoxFuture<'a, Result<(), Refusal>>;

    /// Changes the status of an import.
    fn import<'a>(&'a self, key: &'a Key, change: Change<Import>) -> BoxFuture<'a, Result<(), Refusal>>;

    /// Changes the width that a parallel region with this uid is to have.
    fn width<'a>(
        &'a self,
        key: &'a Key,
        uid: Option<&'a str>,
        width: u32,
        by: &'a Changer,
    ) -> BoxFuture<'a, Result<(), Refusal>>;
}

/// A cluster, and what is seen of it. Each kind of objects has changes whose calls wait for none of another kind.
pub(super) struct ClusterChanges<C> {
    mirrors: Mirrors,
    /// Of PEs, with the names that are reserved for them.
    elements: StatusChanges<C>,
    exports: StatusChanges<C>,
    imports: StatusChanges<C>,
    /// Widths are no status; they take turns with each other in the same way.
    regions: StatusChanges<C>,
    unsettled: Unsettled,
}

impl<C: Cluster> ClusterChanges<C> {
    /// Writes to the cluster of which these mirrors are; `of_a_kind` makes what changes the objects of one kind.
    pub(super) fn new(mirrors: Mirrors, of_a_kind: impl Fn() -> StatusChanges<C>) -> Self {
        let unsettled = Unsettled::new(ENDPOINTS_MAX, &mirrors.processing_elements);
        let (elements, exports, imports, regions) = (of_a_kind(), of_a_kind(), of_a_kind(), of_a_kind());
        Self { mirrors, elements, exports, imports, regions, unsettled }
    }
}

impl<C: Cluster> Changes for ClusterChanges<C> {
    fn newest<'a>(&'a self, key: &'a Key, by: &'a Changer) -> BoxFuture<'a, Result<ProcessingElement, Refusal>> {
        let work = async move {
            let found = self.elements.read_for::<ProcessingElement>(key, by).await;
            let found = found.map_err(|error| Refusal::of(&error.into()))?;
            found.ok_or_else(|| Refusal::Absent(format!("ProcessingElement {} is gone", key.name)))
        };
        Box::pin(within(work))
    }

    fn processing_element<'a>(
        &'a self,
        key: &'a Key,
        change: Change<ProcessingElement>,
    ) -> BoxFuture<'a, Result<(), Refusal>> {
        Box::pin(change_status(&self.elements, &self.mirrors.processing_elements, key, change))
    }

    fn add_endpoint<'a>(
        &'a self,
        pe: &'a Registrant,
        endpoint: &'a str,
        change: Change<ProcessingElement>,
    ) -> BoxFuture<'a, Result<(), Refusal>> {
        let work = async move {
            let task = self.endpoint_task(pe, endpoint, change).await;
            to_its_end(task.asker(), task.register()).await
        };
        Box::pin(within(work))
    }

    fn remove_endpoint<'a>(
        &'a self,
        pe: &'a Registrant,
        endpoint: &'a str,
        change: Change<ProcessingElement>,
    ) -> BoxFuture<'a, Result<(), Refusal>> {
        let work = async move {
            let task = self.endpoint_task(pe, endpoint, change).await;
            to_its_end(task.asker(), task.unregister()).await
        };
        Box::pin(within(work))
    }

    fn export<'a>(&'a self, key: &'a Key, change: Change<Export>) -> BoxFuture<'a, Result<(), Refusal>> {
        Box::pin(change_status(&self.exports, &self.mirrors.exports, key, change))
    }

    fn import<'a>(&'a self, key: &'a Key, change: Change<Import>) -> BoxFuture<'a, Result<(), Refusal>> {
        Box::pin(change_status(&self.imports, &self.mirrors.imports, key, change))
    }

    fn width<'a>(
        &'a self,
        key: &'a Key,
        uid: Option<&'a str>,
        width: u32,
        by: &'a Changer,
    ) -> BoxFuture<'a, Result<(), Refusal>> {
        let work = async move {
            let turn = self.regions.turn::<ParallelRegion>(key, by).await;
            let (cluster, regions) = (self.regions.cluster.clone(), self.mirrors.parallel_regions.clone());
            let task = WidthTask { cluster, regions, turn, key: key.clone(), uid: uid.map(str::to_owned), width };
            to_its_end(by.asker(), task.write()).await
        };
        Box::pin(within(work))
    }
}

/// The width that a region is to have, whose turn it is.
struct WidthTask<C> {
    cluster: C,
    regions: Watch<ParallelRegion>,
    turn: Turn,
    key: Key,
    uid: Option<String>,
    width: u32,
}

impl<C: Cluster> WidthTask<C> {
    /// Writes it, unless it is so already, and waits until the mirror shows it. The turn lasts until then.
    async fn write(self) -> Result<(), Refusal> {
        let Self { cluster, regions, mut turn, key, uid, width } = self;
        let is_it = |region: &ParallelRegion| region.metadata.uid == uid;
        let has_it = |region: &ParallelRegion| is_it(region) && region.spec.width == width;
        // Also if the mirror shows it: another replica may have written another one.
        let is_so_here = regions.get(&key).is_some_and(|region| has_it(&region));
        let so_already = if is_so_here { region(&cluster, &key).await?.filter(has_it) } else { None };
        let there = match so_already {
            Some(there) => there,
            None => {
                let patch = json!({"metadata": {"uid": uid}, "spec": {"width": width}});
                let merged = cluster.merge::<ParallelRegion>(MANAGER, &key, &patch).await;
                match merged {
                    Ok(merged) => merged,
                    Err(kube::Error::Api(status)) if is_refusal(&status) => {
                        // Of another one of the name it says only that its uid cannot be changed.
                        let is_there = region(&cluster, &key).await?.is_some_and(|region| is_it(&region));
                        let gone = || Refusal::Absent(format!("ParallelRegion {} is gone", key.name));
                        return Err(if is_there { Refusal::Invalid(status.message) } else { gone() });
                    }
                    Err(error) => return Err(Refusal::of(&error.into())),
                }
            }
        };
        turn.end_calls();
        let is_shown = is_shown(&regions, &there).await;
        drop(turn);
        if is_shown { Ok(()) } else { Err(too_long()) }
    }
}

/// A region as the API server has it now.
async fn region<C: Cluster>(cluster: &C, key: &Key) -> Result<Option<ParallelRegion>, Refusal> {
    cluster.get::<ParallelRegion>(key).await.map_err(|error| Refusal::of(&error.into()))
}

/// Whether the API server does not do what it is asked for.
fn is_refusal(status: &Status) -> bool {
    (400..500).contains(&status.code) && status.code != 429 && status.reason != NOT_A_STATUS
}

/// What is done with the name of an endpoint of a PE, whose turn it is.
struct EndpointTask<C> {
    cluster: C,
    elements: Watch<ProcessingElement>,
    statuses: StatusChanges<C>,
    unsettled: Unsettled,
    turn: Turn,
    pe: Registrant,
    endpoint: String,
    change: Change<ProcessingElement>,
}

impl<C: Cluster> EndpointTask<C> {
    /// Who asks for its calls.
    fn asker(&self) -> Asker {
        self.change.changer().asker()
    }

    /// Reserves the name and writes the endpoint. If it was not written, the name is given back.
    async fn register(self) -> Result<(), Refusal> {
        let Self { cluster, elements, statuses, unsettled, turn, pe, endpoint, change } = self;
        let key = &pe.key;
        if !unsettled.begin(key, &endpoint, pe.endpoints) {
            let words = format!("too many names are reserved for PE {} that it does not have", pe.id);
            return Err(Refusal::Later(words));
        }
        let reserved = reservations::reserve(&cluster, &pe, &endpoint).await;
        let reservation = match reserved {
            Ok(reservation) => reservation,
            // It may have been reserved.
            Err(refusal @ Refusal::Later(_)) => return Err(refusal),
            Err(refusal) => {
                unsettled.settle(key, &endpoint);
                return Err(refusal);
            }
        };
        let made = statuses.make_in(turn, &elements, key, &change).await;
        match &made {
            Ok(_) | Err(Unchanged::Unseen) => unsettled.settle(key, &endpoint),
            Err(why) if is_unwritten(why) => {
                if reservation.release(&cluster).await {
                    unsettled.settle(key, &endpoint);
                }
            }
            // A write without an answer may still have its effect.
            Err(_) => {}
        }
        made.map(|_| ()).map_err(|why| refusal_of::<ProcessingElement>(key, why))
    }

    /// Removes the endpoint and gives the name back.
    async fn unregister(self) -> Result<(), Refusal> {
        let Self { cluster, elements, statuses, unsettled, turn, pe, endpoint, change } = self;
        let key = &pe.key;
        // As it was before: one that is renewed while the endpoint is removed is needed for the next one.
        let reservation = reservations::find(&cluster, &pe, &endpoint).await?;
        let made = statuses.make_in(turn, &elements, key, &change).await;
        match &made {
            Ok(_) | Err(Unchanged::Unseen) => {
                let is_released = match reservation {
                    Some(reservation) => reservation.release(&cluster).await,
                    None => true,
                };
                if is_released {
                    unsettled.settle(key, &endpoint);
                } else {
                    unsettled.add(key, &endpoint);
                }
            }
            Err(why) if is_unwritten(why) => {}
            Err(_) => unsettled.add(key, &endpoint),
        }
        made.map(|_| ()).map_err(|why| refusal_of::<ProcessingElement>(key, why))
    }
}

/// Whether it is certain that the status was not written.
fn is_unwritten(why: &Unchanged<Refusal>) -> bool {
    match why {
        Unchanged::Refused(_) | Unchanged::Gone | Unchanged::Unread(_) | Unchanged::Undecided => true,
        Unchanged::Failed(error) => !matches!(Refusal::of(error), Refusal::Later(_)),
        Unchanged::Unseen | Unchanged::Unknown => false,
    }
}

/// Waits for work, whose calls this one asks for, and that goes on if nobody waits for it any more.
async fn to_its_end(
    asker: Asker,
    work: impl Future<Output = Result<(), Refusal>> + Send + 'static,
) -> Result<(), Refusal> {
    tokio::spawn(asked_by(asker, work).in_current_span()).await.unwrap_or_else(|_| Err(too_long()))
}

impl<C: Cluster> ClusterChanges<C> {
    /// Waits until it is the turn of a PE. Until then nothing is done that would have to be undone.
    async fn endpoint_task(
        &self,
        pe: &Registrant,
        endpoint: &str,
        change: Change<ProcessingElement>,
    ) -> EndpointTask<C> {
        let turn = self.elements.turn::<ProcessingElement>(&pe.key, change.changer()).await;
        EndpointTask {
            cluster: self.elements.cluster.clone(),
            elements: self.mirrors.processing_elements.clone(),
            statuses: self.elements.clone(),
            unsettled: self.unsettled.clone(),
            turn,
            pe: pe.clone(),
            endpoint: endpoint.to_owned(),
            change,
        }
    }
}

/// Writes the object that `change` makes of the one that is there, with another status; nothing, if it makes none.
///
/// # Errors
/// `change` refuses; the object is gone; the API server refuses, or nothing comes of it in time.
async fn change_status<C: Cluster, K: Object + Mirrored>(
    statuses: &StatusChanges<C>,
    mirror: &Watch<K>,
    key: &Key,
    change: Change<K>,
) -> Result<(), Refusal> {
    let made = timeout(WITHIN, statuses.make(mirror, key, &change)).await;
    made.map_err(|_| too_long())?.map(|_| ()).map_err(|why| refusal_of::<K>(key, why))
}

/// Makes a change, and waits until the board has looked at what has come of it. Both have the time of one write: a look
/// that takes longer goes on, or has a turn (rule import-10).
///
/// # Errors
/// Those of the change; or one of both takes too long, though the change may have been made.
pub(super) async fn made_and_looked_at(
    change: impl Future<Output = Result<(), Refusal>>,
    look: impl Future<Output = ()>,
) -> Result<(), Refusal> {
    let work = async {
        change.await?;
        look.await;
        Ok(())
    };
    within(work).await
}

/// Does what has the time of one write: the runtime waits no longer.
///
/// # Errors
/// Those of `work`; or it takes too long, though what it has begun to write may go on.
pub(super) async fn within<T>(work: impl Future<Output = Result<T, Refusal>>) -> Result<T, Refusal> {
    timeout(WITHIN, work).await.unwrap_or_else(|_| Err(too_long()))
}

/// How a caller is told that the status of its object was not changed.
pub(super) fn refusal_of<K: Object>(key: &Key, why: Unchanged<Refusal>) -> Refusal {
    match why {
        Unchanged::Refused(refusal) => refusal,
        Unchanged::Gone => Refusal::Absent(format!("{} {} is gone", K::kind(&()), key.name)),
        Unchanged::Unread(error) | Unchanged::Failed(error) => Refusal::of(&error),
        Unchanged::Undecided => Refusal::Later("what becomes of it could not be decided".to_owned()),
        Unchanged::Unseen | Unchanged::Unknown => too_long(),
    }
}

pub(super) fn too_long() -> Refusal {
    Refusal::Later("it takes too long".to_owned())
}
