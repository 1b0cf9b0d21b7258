//! How one process reaches the server, and how that fails.
//!
//! Knows: the port, calls and their faults. Must not know: what a call does at the server.

use crate::error::broken;
use crate::kind::Kind;
use crate::select;
use crate::server::{Announced, Call, Server, Verb, delivered, id, value};
use crate::state::State;
use futures::future::BoxFuture;
use k8s_openapi::jiff::Timestamp;
use kube::Resource;
use kube::api::{DeleteParams, ListParams};
use kube::core::{ObjectMeta, PartialObjectMeta};
use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::fmt;
use std::ops::ControlFlow;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use streams_kubernetes::Key;
use streams_kubernetes::cluster::{Cluster, Conflicts, Manager, Object};
use streams_kubernetes::events::Notice;
use streams_kubernetes::gate::begins;

/// A call that fails although nothing is wrong with it.
#[derive(Clone, Copy, Debug)]
pub struct Fault {
    /// So many calls before it do not fail.
    pub after: usize,
    /// Only writes count, and fail.
    pub of_writes: bool,
    /// The call has its effect, and the answer is lost; otherwise it does not arrive.
    pub has_effect: bool,
    /// No later call arrives either: the process has died.
    pub is_last: bool,
}

type Meanwhile = Arc<dyn Fn(&Call) -> BoxFuture<'static, ()> + Send + Sync>;

/// The port of one process to the server. Cheap to clone; all clones are the same connection.
#[derive(Clone)]
pub struct Connection {
    server: Server,
    link: Arc<Mutex<LinkState>>,
}

#[derive(Default)]
struct LinkState {
    calls: usize,
    writes: usize,
    fault: Option<Fault>,
    is_broken: bool,
    is_crowded: bool,
    meanwhile: Option<Meanwhile>,
    largest_page: usize,
    pages: usize,
}

/// What becomes of a call.
enum Delivery {
    Answered,
    Unanswered,
    Lost,
}

impl Server {
    /// A connection of one process.
    pub fn connect(&self) -> Connection {
        Connection::new(self.clone())
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Connection")
    }
}

impl Connection {
    pub(crate) fn new(server: Server) -> Self {
        Self { server, link: Arc::default() }
    }

    /// The server at the other end.
    pub fn server(&self) -> &Server {
        &self.server
    }

    /// A call of the future fails.
    pub fn fail(&self, fault: Fault) {
        self.link.lock().fault = Some(fault);
    }

    /// No call fails that has not failed yet. Says whether one that was asked for has.
    pub fn stop_failing(&self) -> bool {
        let mut link = self.link.lock();
        link.fault.take().is_none()
    }

    /// Whether the process has died.
    pub fn is_broken(&self) -> bool {
        self.link.lock().is_broken
    }

    /// Lets something happen before each call arrives: until it is over, the call waits to be let in. It may use the
    /// server, and other connections.
    pub fn meanwhile(&self, meanwhile: impl Fn(&Call) -> BoxFuture<'static, ()> + Send + Sync + 'static) {
        self.link.lock().meanwhile = Some(Arc::new(meanwhile));
    }

    /// Nothing happens before its calls any more.
    pub fn alone(&self) {
        self.link.lock().meanwhile = None;
    }

    /// Says from now on whether there are more calls than can be made.
    pub fn crowd(&self, is_crowded: bool) {
        self.link.lock().is_crowded = is_crowded;
    }

    /// Calls until now.
    pub fn calls(&self) -> usize {
        self.link.lock().calls
    }

    /// Writes until now.
    pub fn writes(&self) -> usize {
        self.link.lock().writes
    }

    /// How many objects the largest page had that was read until now.
    pub fn largest_page(&self) -> usize {
        self.link.lock().largest_page
    }

    /// How many pages were read until now.
    pub fn pages(&self) -> usize {
        self.link.lock().pages
    }

    /// Makes a call: others may go first, then it has its effect, and then its answer arrives.
    async fn call<T>(
        &self,
        call: Call,
        effect: impl FnOnce(&mut State) -> Result<T, kube::Error> + Send,
    ) -> kube::Result<T> {
        YieldOnce::default().await;
        let meanwhile = self.link.lock().meanwhile.clone();
        if let Some(meanwhile) = meanwhile {
            meanwhile(&call).await;
        }
        begins();
        let passage = self.link.lock().pass(&call);
        if matches!(passage, Delivery::Lost) {
            return Err(broken());
        }
        let result = match self.server.admit(&call) {
            Ok(()) => effect(&mut self.server.state()),
            Err(refused) => Err(refused),
        };
        if matches!(passage, Delivery::Unanswered) { Err(broken()) } else { result }
    }
}

impl LinkState {
    fn pass(&mut self, call: &Call) -> Delivery {
        if self.is_broken {
            return Delivery::Lost;
        }
        self.calls += 1;
        self.writes += usize::from(call.verb.is_write());
        let Some(fault) = &mut self.fault else { return Delivery::Answered };
        if fault.of_writes && !call.verb.is_write() {
            return Delivery::Answered;
        }
        if let Some(after) = fault.after.checked_sub(1) {
            fault.after = after;
            return Delivery::Answered;
        }
        let fault = *fault;
        self.fault = None;
        self.is_broken = fault.is_last;
        if fault.has_effect { Delivery::Unanswered } else { Delivery::Lost }
    }
}

/// Lets other futures go first, once.
#[derive(Default)]
struct YieldOnce {
    is_over: bool,
}

impl Future for YieldOnce {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if std::mem::replace(&mut self.is_over, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    }
}

fn of<K: Object>(verb: Verb, key: Key, manager: &str, body: Option<Value>) -> Call {
    Call { verb, kind: Kind::of::<K>().name, key, manager: manager.to_owned(), body }
}

/// An object of an answer.
fn read<K: Resource<DynamicType = ()> + DeserializeOwned>(object: Value) -> kube::Result<K> {
    delivered(object).readable()
}

fn named<K: Object>(namespace: &str, object: &K) -> Key {
    Key::new(namespace, object.meta().name.as_deref().unwrap_or_default())
}

impl Cluster for Connection {
    fn now(&self) -> Timestamp {
        self.server.now()
    }

    fn passed(&self) -> Duration {
        self.server.now().duration_since(Timestamp::UNIX_EPOCH).try_into().unwrap_or_default()
    }

    fn is_crowded(&self, _: &str) -> bool {
        self.link.lock().is_crowded
    }

    fn was_crowded(&self, namespace: &str) -> bool {
        self.is_crowded(namespace)
    }

    fn is_in_trouble(&self, _: &str) -> bool {
        false
    }

    async fn get<K: Object>(&self, key: &Key) -> kube::Result<Option<K>> {
        let found = self.call(of::<K>(Verb::Get, key.clone(), "", None), |state| {
            Ok(state.objects.get(&id::<K>(key)).map(|stored| stored.object.clone()))
        });
        found.await?.map(read).transpose()
    }

    async fn get_metadata<K: Object>(&self, key: &Key) -> kube::Result<Option<ObjectMeta>> {
        let found = self.call(of::<K>(Verb::Get, key.clone(), "", None), |state| {
            Ok(state.objects.get(&id::<K>(key)).map(|stored| stored.object.clone()))
        });
        Ok(found.await?.map(read::<PartialObjectMeta<K>>).transpose()?.map(|found| found.metadata))
    }

    async fn list<K: Object>(&self, namespace: Option<&str>, selection: &ListParams) -> kube::Result<Vec<K>> {
        let key = Key::new(namespace.unwrap_or_default(), "");
        let kind = Kind::of::<K>();
        let (labels, fields) = (selection.label_selector.clone(), selection.field_selector.clone());
        let found = self.call(of::<K>(Verb::List, key, "", None), |state| {
            let is_there = |of: &Key| namespace.is_none_or(|namespace| &*of.namespace == namespace);
            let of_kind = state.objects.iter().filter(|(id, _)| id.kind == kind && is_there(&id.key));
            let selected = of_kind.map(|(_, stored)| &stored.object).filter(|object| {
                labels.as_ref().is_none_or(|labels| select::by_labels(labels, object))
                    && fields.as_ref().is_none_or(|fields| select::by_fields(fields, object))
            });
            Ok(selected.cloned().collect::<Vec<_>>())
        });
        Ok(found.await?.into_iter().filter_map(|object| read(object).ok()).collect())
    }

    /// All pages are of one call: nothing happens between them.
    async fn each_page_until<K: Object>(
        &self,
        namespace: Option<&str>,
        selection: &ListParams,
        mut look: impl FnMut(Vec<K>) -> ControlFlow<()> + Send,
    ) -> kube::Result<()> {
        let all = self.list(namespace, selection).await?;
        let size = selection.limit.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(usize::MAX).max(1);
        let mut left = all.into_iter().peekable();
        loop {
            let page: Vec<K> = left.by_ref().take(size).collect();
            {
                let mut link = self.link.lock();
                link.largest_page = link.largest_page.max(page.len());
                link.pages += 1;
            }
            if look(page).is_break() || left.peek().is_none() {
                return Ok(());
            }
        }
    }

    async fn create<K: Object>(&self, namespace: &str, Manager(manager): Manager, object: &K) -> kube::Result<K> {
        let (key, body) = (named(namespace, object), value(object));
        let call = of::<K>(Verb::Create, key.clone(), manager, Some(body.clone()));
        self.call(call, |state| state.create(&id::<K>(&key), manager, body)).await.and_then(read)
    }

    async fn replace<K: Object>(&self, Manager(manager): Manager, object: &K) -> kube::Result<K> {
        let (key, body) = (Key::of(object), value(object));
        let call = of::<K>(Verb::Replace, key.clone(), manager, Some(body.clone()));
        self.call(call, |state| state.replace(&id::<K>(&key), manager, body)).await.and_then(read)
    }

    async fn replace_status<K: Object>(&self, Manager(manager): Manager, object: &K) -> kube::Result<K> {
        let (key, body) = (Key::of(object), value(object));
        let call = of::<K>(Verb::ReplaceStatus, key.clone(), manager, Some(body.clone()));
        self.call(call, |state| state.replace_status(&id::<K>(&key), manager, body)).await.and_then(read)
    }

    async fn apply<K: Object>(
        &self,
        namespace: &str,
        Manager(manager): Manager,
        desired: &K,
        conflicts: Conflicts,
    ) -> kube::Result<K> {
        let (key, body) = (named(namespace, desired), value(desired));
        let call = of::<K>(Verb::Apply, key.clone(), manager, Some(body.clone()));
        self.call(call, |state| state.apply(&id::<K>(&key), manager, body, conflicts)).await.and_then(read)
    }

    async fn merge<K: Object>(&self, Manager(manager): Manager, key: &Key, patch: &Value) -> kube::Result<K> {
        let call = of::<K>(Verb::Merge, key.clone(), manager, Some(patch.clone()));
        self.call(call, |state| state.merge(&id::<K>(key), manager, patch)).await.and_then(read)
    }

    async fn delete<K: Object>(&self, key: &Key, parameters: &DeleteParams) -> kube::Result<()> {
        let body = serde_json::to_value(parameters).map_err(kube::Error::SerdeError)?;
        let call = of::<K>(Verb::Delete, key.clone(), "", Some(body));
        self.call(call, |state| state.delete(&id::<K>(key), parameters)).await
    }

    fn announce<K: Object>(&self, about: &K, notice: &Notice) {
        if !self.is_broken() {
            let kind = Kind::of::<K>().name;
            self.server.announce(Announced { kind, about: Key::of(about), notice: notice.clone() });
        }
    }
}
