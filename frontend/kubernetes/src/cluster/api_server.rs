//! The real cluster, through a client. Objects are read as they are delivered ([`Delivered`]): what somebody has made
//! of one of them keeps no other one from being read.
//!
//! Knows: the client, the gate, the term of the leader. Must not know: what objects mean.
//!
//! Invariants: a write of a controller is not sent once the term is over; every call passes the gate.

use super::{Cluster, Conflicts, Manager, Object};
use crate::Key;
use crate::client::PAGE;
use crate::delivered::Delivered;
use crate::error::{NOT_A_STATUS, absent, with_causes};
use crate::events::{Events, Notice};
use crate::gate::Gate;
use crate::leadership::Term;
use crate::object_names::{check_namespace, check_object};
use futures::FutureExt as _;
use http::header::ACCEPT;
use http::{HeaderValue, StatusCode};
use k8s_openapi::jiff::Timestamp;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::core::{ClusterResourceScope, NamespaceResourceScope, ObjectMeta, PartialObjectMeta, Request, Status};
use kube::{Api, Client, Resource, ResourceExt};
use serde::de::IgnoredAny;
use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::ops::ControlFlow;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

/// The form of an answer that has the metadata of an object only.
const METADATA_ONLY: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";

/// The API server behind a client and a gate, and the publisher of Events. Cheap to clone.
#[derive(Clone)]
pub struct ApiServer {
    client: Client,
    events: Events,
    gate: Gate,
    /// Nothing is written once it has ended.
    term: Term,
}

/// A write was not sent.
#[derive(Debug, thiserror::Error)]
#[error("this process does not lead any more")]
struct Deposed;

impl fmt::Debug for ApiServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ApiServer")
    }
}

impl ApiServer {
    /// The cluster of this client. Its calls pass this gate.
    pub fn new(client: Client, events: Events, gate: Gate) -> Self {
        Self { client, events, gate, term: Term::endless() }
    }

    /// The same for who writes only while this process leads: once the term has ended no write is begun, nor one that
    /// was begun tried again (rule call-12).
    #[must_use]
    pub fn while_leading(self, term: Term) -> Self {
        Self { term, ..self }
    }

    /// Writes something of this namespace, as soon as a call may be made. The call is on the heap: whatever waits for a
    /// write would have room for it several times, and so would everything that waits for that.
    fn write<'a, T: 'a>(
        &'a self,
        namespace: &'a str,
        call: impl Future<Output = kube::Result<T>> + Send + 'a,
    ) -> impl Future<Output = kube::Result<T>> + Send + 'a {
        let call = self.term.bound(call).boxed();
        async move {
            let written = self.gate.call(namespace, call).await;
            written.unwrap_or_else(|| Err(kube::Error::Service(Deposed.into())))
        }
    }

    fn api<K: Object>(&self, namespace: Option<&str>) -> Api<Delivered<K>> {
        <K::Scope as Reach>::api(self.client.clone(), namespace.unwrap_or_default())
    }

    /// Sends what `make` makes of the URL of the objects of a kind and this object. kube marks its calls by what they
    /// are made as, and so are these.
    async fn send<K: Object>(
        &self,
        namespace: &str,
        made_as: &'static str,
        object: &K,
        make: impl FnOnce(Request, Vec<u8>) -> Result<http::Request<Vec<u8>>, kube::core::request::Error>,
    ) -> kube::Result<K> {
        let body = serde_json::to_vec(object).map_err(kube::Error::SerdeError)?;
        let resource = Request::new(self.api::<K>(Some(namespace)).resource_url());
        let mut request = make(resource, body).map_err(kube::Error::BuildRequest)?;
        request.extensions_mut().insert(made_as);
        self.write(namespace, self.client.request::<Delivered<K>>(request)).await?.readable()
    }
}

/// Where the objects of a kind are: in namespaces, or in the cluster.
pub trait Reach {
    /// The objects of a namespace; those of the cluster, if the kind has no namespaces.
    fn api<K: Resource<DynamicType = (), Scope = Self>>(client: Client, namespace: &str) -> Api<K>;
}

impl Reach for NamespaceResourceScope {
    fn api<K: Resource<DynamicType = (), Scope = Self>>(client: Client, namespace: &str) -> Api<K> {
        if namespace.is_empty() { Api::all(client) } else { Api::namespaced(client, namespace) }
    }
}

impl Reach for ClusterResourceScope {
    fn api<K: Resource<DynamicType = (), Scope = Self>>(client: Client, _: &str) -> Api<K> {
        Api::all(client)
    }
}

/// Whether there can be an object of this key. Some keys come of what others have written (rule call-31).
fn can_exist(Key { namespace, name }: &Key) -> bool {
    (namespace.is_empty() || check_namespace(namespace).is_ok()) && check_object(name).is_ok()
}

/// Whoever lists objects goes on without one that cannot be read.
fn left_out(error: &kube::Error) {
    tracing::debug!(error = with_causes(error), "an object is left out of a list");
}

fn by(Manager(manager): Manager) -> PostParams {
    PostParams { field_manager: Some(manager.to_owned()), ..PostParams::default() }
}

fn patch_by(Manager(manager): Manager) -> PatchParams {
    PatchParams { field_manager: Some(manager.to_owned()), ..PatchParams::default() }
}

impl Cluster for ApiServer {
    fn now(&self) -> Timestamp {
        Timestamp::now()
    }

    fn passed(&self) -> Duration {
        static BEGUN: LazyLock<Instant> = LazyLock::new(Instant::now);
        BEGUN.elapsed()
    }

    fn is_crowded(&self, namespace: &str) -> bool {
        self.gate.is_crowded(namespace)
    }

    fn was_crowded(&self, namespace: &str) -> bool {
        self.gate.was_crowded(namespace)
    }

    fn is_in_trouble(&self, namespace: &str) -> bool {
        self.gate.is_in_trouble(namespace)
    }

    async fn get<K: Object>(&self, key: &Key) -> kube::Result<Option<K>> {
        if !can_exist(key) {
            return Ok(None);
        }
        let api = self.api(Some(&key.namespace));
        let found = absent(self.gate.call(&key.namespace, api.get(&key.name)).await)?;
        found.map(Delivered::readable).transpose()
    }

    async fn get_metadata<K: Object>(&self, key: &Key) -> kube::Result<Option<ObjectMeta>> {
        if !can_exist(key) {
            return Ok(None);
        }
        // kube asks for the metadata of this type, and for nothing else.
        let api: Api<Delivered<PartialObjectMeta<K>>> = <K::Scope as Reach>::api(self.client.clone(), &key.namespace);
        let found = absent(self.gate.call(&key.namespace, api.get(&key.name)).await)?;
        Ok(found.map(Delivered::readable).transpose()?.map(|found| found.metadata))
    }

    async fn list<K: Object>(&self, namespace: Option<&str>, selection: &ListParams) -> kube::Result<Vec<K>> {
        let mut all = Vec::new();
        self.each_page(namespace, selection, |page| all.extend(page)).await?;
        Ok(all)
    }

    async fn each_page_until<K: Object>(
        &self,
        namespace: Option<&str>,
        selection: &ListParams,
        mut look: impl FnMut(Vec<K>) -> ControlFlow<()> + Send,
    ) -> kube::Result<()> {
        let api = self.api::<K>(namespace);
        let mut parameters = selection.clone().limit(selection.limit.unwrap_or(PAGE));
        loop {
            let page = self.gate.call(namespace.unwrap_or_default(), api.list(&parameters)).await?;
            let read = page.items.into_iter().map(Delivered::readable);
            let goes_on = look(read.filter_map(|item| item.inspect_err(left_out).ok()).collect()).is_continue();
            match page.metadata.continue_.filter(|token| goes_on && !token.is_empty()) {
                Some(token) => parameters = parameters.continue_token(&token),
                None => return Ok(()),
            }
        }
    }

    async fn create<K: Object>(&self, namespace: &str, manager: Manager, object: &K) -> kube::Result<K> {
        self.send(namespace, "create", object, |resource, body| resource.create(&by(manager), body)).await
    }

    async fn create_unread<K: Object>(&self, namespace: &str, manager: Manager, object: &K) -> kube::Result<()> {
        let body = serde_json::to_vec(object).map_err(kube::Error::SerdeError)?;
        let resource = Request::new(self.api::<K>(Some(namespace)).resource_url());
        let mut request = resource.create(&by(manager), body).map_err(kube::Error::BuildRequest)?;
        request.headers_mut().insert(ACCEPT, HeaderValue::from_static(METADATA_ONLY));
        let answer = self.write(namespace, self.client.request_text(request)).await?;
        if is_object(&answer) { Ok(()) } else { Err(no_object()) }
    }

    async fn replace<K: Object>(&self, manager: Manager, object: &K) -> kube::Result<K> {
        let Key { namespace, name } = Key::of(object);
        self.send(&namespace, "replace", object, |resource, body| resource.replace(&name, &by(manager), body)).await
    }

    async fn replace_status<K: Object>(&self, manager: Manager, object: &K) -> kube::Result<K> {
        let Key { namespace, name } = Key::of(object);
        let make = |resource: Request, body| resource.replace_subresource("status", &name, &by(manager), body);
        self.send(&namespace, "replace_status", object, make).await
    }

    async fn apply<K: Object>(
        &self,
        namespace: &str,
        manager: Manager,
        desired: &K,
        conflicts: Conflicts,
    ) -> kube::Result<K> {
        let parameters = PatchParams { force: conflicts == Conflicts::Force, ..patch_by(manager) };
        let (api, name) = (self.api::<K>(Some(namespace)), desired.name_any());
        self.write(namespace, api.patch(&name, &parameters, &Patch::Apply(desired))).await?.readable()
    }

    async fn merge<K: Object>(&self, manager: Manager, key: &Key, patch: &serde_json::Value) -> kube::Result<K> {
        let api = self.api::<K>(Some(&key.namespace));
        self.write(&key.namespace, api.patch(&key.name, &patch_by(manager), &Patch::Merge(patch))).await?.readable()
    }

    async fn delete<K: Object>(&self, key: &Key, parameters: &DeleteParams) -> kube::Result<()> {
        let resource = Request::new(self.api::<K>(Some(&key.namespace)).resource_url());
        let mut request = resource.delete(&key.name, parameters).map_err(kube::Error::BuildRequest)?;
        request.extensions_mut().insert("delete");
        // The answer has the object, or how the deletion went. Nobody reads it.
        self.write(&key.namespace, self.client.request_text(request)).await.map(|_| ())
    }

    fn announce<K: Object>(&self, about: &K, notice: &Notice) {
        self.events.publish(about, notice);
    }
}

/// Whether an answer that nobody reads is an object. Something in between may answer with a page, as if all were well.
fn is_object(answer: &str) -> bool {
    serde_json::from_str::<BTreeMap<String, IgnoredAny>>(answer).is_ok_and(|fields| fields.contains_key("metadata"))
}

/// Nobody knows what has become of a write that was answered so (rule call-4).
fn no_object() -> kube::Error {
    let status = Status::failure("the answer is no object of the API server", NOT_A_STATUS);
    kube::Error::Api(status.with_code(StatusCode::BAD_GATEWAY.as_u16()).boxed())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::SMALL_PAGE;
    use crate::error::{is_no_status, is_unanswered};
    use crate::events::Reporter;
    use crate::gate::Limits;
    use crate::metrics::Metrics;
    use axum::body::Body;
    use k8s_openapi::api::core::v1::{ConfigMap, Pod};
    use parking_lot::Mutex;
    use std::sync::Arc;

    /// A method, a URL, and the form of the answer that is asked for.
    type Call = (String, String, Option<String>);

    /// A cluster that answers this, and what it was asked.
    fn cluster(status: u16, answer: &'static str) -> (ApiServer, Arc<Mutex<Vec<Call>>>) {
        let asked = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&asked);
        let server = tower::service_fn(move |request: http::Request<kube::client::Body>| {
            let accept = request.headers().get(ACCEPT).map(|accept| accept.to_str().unwrap().to_owned());
            log.lock().push((request.method().to_string(), request.uri().to_string(), accept));
            let answer = http::Response::builder().status(status).body(Body::from(answer)).unwrap();
            async { Ok::<_, kube::Error>(answer) }
        });
        let (client, metrics) = (Client::new(server, "n"), Metrics::new("test"));
        let reporter = Reporter { controller: "c".into(), instance: "i".into() };
        let (events, _) = Events::new(client.clone(), reporter, &metrics);
        (ApiServer::new(client, events, Gate::new(Limits::of(1), &metrics)), asked)
    }

    #[tokio::test]
    async fn of_what_nobody_reads_the_metadata_are_asked_for() {
        let (cluster, asked) = cluster(201, r#"{"kind": "PartialObjectMetadata", "metadata": {"name": "a"}}"#);
        cluster.create_unread("a", Manager("m"), &ConfigMap::default()).await.unwrap();
        let url = "/api/v1/namespaces/a/configmaps?&fieldManager=m".to_owned();
        assert_eq!(*asked.lock(), [("POST".to_owned(), url, Some(METADATA_ONLY.to_owned()))]);
    }

    #[tokio::test]
    async fn what_is_answered_without_an_object_was_not_created_as_far_as_is_known() {
        // the answer, as of a success -> it is known that the object is there
        let table = [
            (r#"{"kind": "PartialObjectMetadata", "metadata": {"name": "a"}}"#, true),
            (r#"{"metadata": {"managedFields": 7}, "data": 7}"#, true),
            ("<html>\n</html>", false),
            ("", false),
            ("null", false),
            ("[]", false),
            ("{}", false),
            (r#"{"status": "ok"}"#, false),
        ];
        for (answer, expected) in table {
            let (cluster, _) = cluster(200, answer);
            let created = cluster.create_unread("a", Manager("m"), &ConfigMap::default()).await;
            assert_eq!(created.is_ok(), expected, "{answer}: {created:?}");
            assert!(created.is_ok() || created.is_err_and(|error| is_no_status(&error) && is_unanswered(&error)));
        }
    }

    #[tokio::test]
    async fn who_does_not_lead_any_more_reads_and_writes_nothing() {
        let (cluster, asked) = cluster(200, r#"{"metadata": {"name": "a"}}"#);
        let term = Term::endless();
        let cluster = cluster.while_leading(term.clone());
        let (key, manager) = (Key::new("n", "a"), Manager("m"));
        let map = ConfigMap {
            metadata: ObjectMeta { namespace: Some("n".into()), name: Some("a".into()), ..ObjectMeta::default() },
            ..ConfigMap::default()
        };
        let pod = Pod { metadata: map.metadata.clone(), ..Pod::default() };
        for leads in [true, false] {
            if !leads {
                term.over();
            }
            for written in [
                cluster.create("n", manager, &map).await.map(|_| ()),
                cluster.create_unread("n", manager, &map).await,
                cluster.replace(manager, &map).await.map(|_| ()),
                cluster.replace_status(manager, &pod).await.map(|_| ()),
                cluster.apply("n", manager, &map, Conflicts::Force).await.map(|_| ()),
                cluster.merge::<ConfigMap>(manager, &key, &serde_json::json!({})).await.map(|_| ()),
                cluster.delete::<ConfigMap>(&key, &DeleteParams::default()).await,
            ] {
                assert_eq!(written.is_ok(), leads, "{written:?}");
            }
            assert!(cluster.get::<ConfigMap>(&key).await.unwrap().is_some());
            let methods = std::mem::take(&mut *asked.lock());
            let methods: Vec<_> = methods.iter().map(|(method, ..)| method.as_str()).collect();
            let expected: &[_] =
                if leads { &["POST", "POST", "PUT", "PUT", "PATCH", "PATCH", "DELETE", "GET"] } else { &["GET"] };
            assert_eq!(methods, expected);
        }
    }

    #[tokio::test]
    async fn what_no_object_can_be_called_is_not_there() {
        let (cluster, asked) = cluster(200, r#"{"metadata": {"name": "a"}}"#);
        // namespace, name -> whether it is asked for
        let table = [
            ("n", "a", true),
            ("", "a", true),
            ("n", "?watch=true&x", false),
            ("n", "a#b", false),
            ("n", "..", false),
            ("n", "", false),
            ("n/x", "a", false),
        ];
        for (namespace, name, expected) in table {
            let key = Key::new(namespace, name);
            let found = cluster.get::<ConfigMap>(&key).await.unwrap().is_some();
            let found_metadata = cluster.get_metadata::<ConfigMap>(&key).await.unwrap().is_some();
            assert_eq!((found, found_metadata), (expected, expected), "{key}");
            assert_eq!(std::mem::take(&mut *asked.lock()).len(), if expected { 2 } else { 0 }, "{key}");
        }
    }

    #[tokio::test]
    async fn a_page_of_a_list_has_as_many_objects_as_whoever_reads_it_has_room_for() {
        let (server, asked) = cluster(200, r#"{"kind":"PodList","apiVersion":"v1","metadata":{},"items":[]}"#);
        // what is asked for -> objects of a page
        let table = [(ListParams::default(), PAGE), (ListParams::default().limit(SMALL_PAGE), 10)];
        for (selection, expected) in table {
            server.each_page(Some("n"), &selection, |_: Vec<Pod>| {}).await.unwrap();
            let urls: Vec<_> = std::mem::take(&mut *asked.lock()).into_iter().map(|(_, url, _)| url).collect();
            assert_eq!(urls.len(), 1, "{urls:?}");
            assert!(urls[0].split(['?', '&']).any(|part| part == format!("limit={expected}")), "{urls:?}");
        }
    }

    #[tokio::test]
    async fn who_has_seen_enough_of_a_list_reads_no_further_page() {
        let list = r#"{"kind":"PodList","apiVersion":"v1","metadata":{"continue":"more"},"items":[]}"#;
        for pages in [1, 3] {
            let (server, asked) = cluster(200, list);
            let mut seen = 0;
            let look = |_: Vec<Pod>| {
                seen += 1;
                if seen < pages { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            };
            server.each_page_until(Some("n"), &ListParams::default(), look).await.unwrap();
            assert_eq!(asked.lock().len(), pages);
        }
    }

    #[tokio::test]
    async fn what_others_have_made_of_an_object_keeps_no_other_one_from_being_read() {
        let list = r#"{"kind":"ConfigMapList","apiVersion":"v1","metadata":{},"items":[
            {"metadata":{"name":"a","managedFields":[{"manager":"m","time":"9999-12-31T23:59:59Z"}]}},
            {"metadata":{"name":"b"},"data":7}, {"metadata":{"name":"c"}}]}"#;
        let (server, _) = cluster(200, list);
        let listed = server.list::<ConfigMap>(Some("n"), &ListParams::default()).await.unwrap();
        assert_eq!(listed.iter().map(ResourceExt::name_any).collect::<Vec<_>>(), ["a", "c"]);

        let (server, _) = cluster(200, r#"{"kind":"ConfigMap","metadata":{"name":"b"},"data":7}"#);
        let key = Key::new("n", "b");
        let map = ConfigMap {
            metadata: ObjectMeta { name: Some("b".into()), ..ObjectMeta::default() },
            ..ConfigMap::default()
        };
        let manager = Manager("m");
        for answer in [
            server.get::<ConfigMap>(&key).await.map(|_| ()),
            server.create("n", manager, &map).await.map(|_| ()),
            server.replace(manager, &map).await.map(|_| ()),
            server.apply("n", manager, &map, Conflicts::Force).await.map(|_| ()),
            server.merge::<ConfigMap>(manager, &key, &serde_json::json!({})).await.map(|_| ()),
        ] {
            let error = answer.unwrap_err();
            assert!(matches!(error, kube::Error::SerdeError(_)), "{error:?}");
            assert!(error.to_string().contains("ConfigMap b cannot be read"), "{error}");
        }
        // What nobody reads of it is of no concern.
        assert_eq!(
            server.get_metadata::<ConfigMap>(&key).await.unwrap().and_then(|meta| meta.name).as_deref(),
            Some("b")
        );
        server.delete::<ConfigMap>(&key, &DeleteParams::default()).await.unwrap();
    }
}
