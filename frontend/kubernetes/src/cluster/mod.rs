//! The interface to the cluster: everything that a reconciler asks of Kubernetes, or does to it.
//!
//! A reconciler reads mirrors ([`Watch`](super::watch::Watch)), which lag behind, and talks to a [`Cluster`], which
//! does not. The trait has the verbs of the API server, one call each, and besides them what a reconciler would
//! otherwise take from its surroundings: the time, and Events.
//!
//! ```text
//! reconcilers ── apply, create_or_match, replace_status_if_unchanged, delete (super::writer)
//!                   │
//!                Cluster ──┬── ApiServer      a client: the real cluster
//!                          └── Connection     in tests: a fake API server, of the crate streams-kubernetes-fake
//! ```
//!
//! What is more than one call, or a rule of ours, is built on top of the trait ([`writer`](super::writer)), so that
//! tests over the fake run the same code as the real cluster. The fake says on its first page what it assumes of an API
//! server; one table of cases holds for it and for a real one.
//!
//! Knows: the API machinery. Must not know: any kind of ours, mirrors, queues.
//!
//! Invariants:
//! * A method is one call. Whatever it returns, the call may have had its effect if the error is not an answer of the
//!   API server ([`kube::Error::Api`]): a connection may break after the request has arrived.
//! * Every write names its field manager.
//! * Nothing here is remembered from one call to the next.

mod api_server;

use k8s_openapi::jiff::Timestamp;
use kube::Resource;
use kube::api::{DeleteParams, ListParams};
use kube::core::ObjectMeta;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt::Debug;
use std::future::Future;
use std::ops::ControlFlow;
use std::time::Duration;

pub use self::api_server::{ApiServer, Reach};
use super::Key;
use super::events::Notice;

/// A kind of objects that can be read and written.
pub trait Object:
    Resource<DynamicType = (), Scope: Reach> + Clone + Debug + Serialize + DeserializeOwned + Send + Sync + 'static
{
}
impl<K> Object for K where
    K: Resource<DynamicType = (), Scope: Reach> + Clone + Debug + Serialize + DeserializeOwned + Send + Sync + 'static
{
}

/// What a server-side apply does with fields that another manager owns and that have another value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Conflicts {
    /// Nothing is written; the answer is a conflict (409).
    Fail,
    /// It takes the fields over.
    Force,
}

/// Objects of a page of a list of what anybody may make as large as it can be, and as often as he likes: some looks at
/// such pages are under way at the same time, and all of them have to fit into memory (rule call-24).
pub const SMALL_PAGE: u32 = 10;

/// The field manager in whose name something is written: one per controller, so that each field has one writer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Manager(pub &'static str);

/// The cluster, as a reconciler sees it. Cheap to clone; all clones are the same cluster.
///
/// Objects of a kind without namespaces have keys with an empty one.
pub trait Cluster: Clone + Send + Sync + 'static {
    /// The time.
    fn now(&self) -> Timestamp;

    /// How much time has passed since some moment: it goes on evenly, whatever becomes of the time of day.
    fn passed(&self) -> Duration;

    /// Whether there are about as many calls as can be made, or more, for what is in this namespace (rule call-25).
    fn is_crowded(&self, namespace: &str) -> bool;

    /// The same, or there were a moment ago: what only describes may be left for later (rule call-25).
    fn was_crowded(&self, namespace: &str) -> bool;

    /// Whether calls of this namespace fail, or take long, because of what they ask for, or did not long ago
    /// (rule call-23).
    fn is_in_trouble(&self, namespace: &str) -> bool;

    /// The object of this name; `None` if the API server says that there is none. One that cannot be read is an error
    /// of its own ([`kube::Error::SerdeError`]), here and wherever an answer has an object.
    fn get<K: Object>(&self, key: &Key) -> impl Future<Output = kube::Result<Option<K>>> + Send;

    /// The metadata of the object of this name; `None` if the API server says that there is none.
    fn get_metadata<K: Object>(&self, key: &Key) -> impl Future<Output = kube::Result<Option<ObjectMeta>>> + Send;

    /// The objects of a namespace, or of the cluster, that `selection` selects, by namespace and name. Long lists are
    /// read page by page. Those that cannot be read are left out.
    fn list<K: Object>(
        &self,
        namespace: Option<&str>,
        selection: &ListParams,
    ) -> impl Future<Output = kube::Result<Vec<K>>> + Send;

    /// Calls `look` with the same objects, page by page: never are there more of them in memory. A page has as many as
    /// `selection` says, or as a call can read of the largest.
    fn each_page<K: Object>(
        &self,
        namespace: Option<&str>,
        selection: &ListParams,
        mut look: impl FnMut(Vec<K>) + Send,
    ) -> impl Future<Output = kube::Result<()>> + Send {
        self.each_page_until(namespace, selection, move |page: Vec<K>| {
            look(page);
            ControlFlow::Continue(())
        })
    }

    /// The same until `look` has seen enough.
    fn each_page_until<K: Object>(
        &self,
        namespace: Option<&str>,
        selection: &ListParams,
        look: impl FnMut(Vec<K>) -> ControlFlow<()> + Send,
    ) -> impl Future<Output = kube::Result<()>> + Send;

    /// Creates the object in this namespace.
    fn create<K: Object>(
        &self,
        namespace: &str,
        manager: Manager,
        object: &K,
    ) -> impl Future<Output = kube::Result<K>> + Send;

    /// The same. Nobody reads of the answer more than that there is one, so little is sent back.
    fn create_unread<K: Object>(
        &self,
        namespace: &str,
        manager: Manager,
        object: &K,
    ) -> impl Future<Output = kube::Result<()>> + Send {
        async move { self.create(namespace, manager, object).await.map(|_| ()) }
    }

    /// Replaces the object but for its status. With a `resourceVersion`: if it is still that of the API server.
    fn replace<K: Object>(&self, manager: Manager, object: &K) -> impl Future<Output = kube::Result<K>> + Send;

    /// Replaces the status of the object and nothing else. With a `resourceVersion`: if it is still that of the API
    /// server.
    fn replace_status<K: Object>(&self, manager: Manager, object: &K) -> impl Future<Output = kube::Result<K>> + Send;

    /// Server-side apply: makes the fields that `desired` sets what it says, and removes those that this manager has
    /// set before and does not set any more, unless another one has set them as well. Creates the object if there is
    /// none.
    fn apply<K: Object>(
        &self,
        namespace: &str,
        manager: Manager,
        desired: &K,
        conflicts: Conflicts,
    ) -> impl Future<Output = kube::Result<K>> + Send;

    /// Merge patch (RFC 7396): `null` removes a field. With `metadata.resourceVersion` in it: if it is still that of
    /// the API server.
    fn merge<K: Object>(
        &self,
        manager: Manager,
        key: &Key,
        patch: &serde_json::Value,
    ) -> impl Future<Output = kube::Result<K>> + Send;

    /// Deletes the object, or begins to.
    fn delete<K: Object>(&self, key: &Key, parameters: &DeleteParams) -> impl Future<Output = kube::Result<()>> + Send;

    /// Tells people something about an object, as an Event. It never waits, and may be lost.
    fn announce<K: Object>(&self, about: &K, notice: &Notice);
}

/// [`Cluster::is_in_trouble`] of this cluster.
pub fn troubles_of<C: Cluster>(cluster: &C) -> impl Fn(&str) -> bool + Send + Sync + 'static + use<C> {
    let cluster = cluster.clone();
    move |namespace| cluster.is_in_trouble(namespace)
}
