//! The gRPC service: finds an export or import, has it changed, waits until this frontend shows it.
//!
//! Knows: the contract, objects of both kinds. Must not know: what may be changed ([`run_time`](crate::run_time)), how
//! a status is written.
//!
//! Invariants: whoever waits is answered by its deadline; a change that was begun goes on without its caller.

use super::{SubscriptionApi, errors, etag, requests, shown};
use crate::broker::Boards;
use crate::grpc::access::caller_of;
use crate::grpc::deadline;
use crate::grpc::places::{CallerName, Place, Places, turns_of};
use crate::long_objects::is_long;
use crate::run_time::{Problem, exports, imports};
use crate::status_changes::{Change, Changer, Unchanged};
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use streams_api::{Export, Import};
use streams_kubernetes::cluster::{Cluster, Object};
use streams_kubernetes::error::{definition, outdated};
use streams_kubernetes::watch::{Mirrored, Timings, Watch};
use streams_kubernetes::{Error, Key, object_names};
use streams_process::telemetry;
use streams_proto::subscription::v1::subscription_service_server::SubscriptionService;
use streams_proto::subscription::v1::{
    self as proto, GetExportRequest, GetExportResponse, GetImportRequest, GetImportResponse, ListExportsRequest,
    ListExportsResponse, ListImportsRequest, ListImportsResponse, UpdateExportRequest, UpdateExportResponse,
    UpdateImportRequest, UpdateImportResponse,
};
use tokio::time::{Instant, sleep_until};
use tonic::metadata::MetadataMap;
use tonic::{Request, Response, Status};
use tracing::{Instrument as _, Span};

/// The longest that a call takes, whatever the caller says.
const LONGEST_WAIT: Duration = Duration::from_secs(30);

/// Why an object is not changed.
enum Refused {
    /// The request cannot be read.
    Request(Status),
    /// It is another one than the caller has seen; its etag.
    Another(String),
    /// It is about to go.
    Going,
    /// What would come of it is not possible.
    Problem(Problem),
}

/// The error that there is no such object, by its namespace and name.
type Absent = fn(&str, &str) -> Status;
/// Makes a message of an object.
type Show<K, T> = fn(&K, &Boards) -> T;

impl<C: Cluster> SubscriptionApi<C> {
    /// What this frontend sees of a namespace can be relied on.
    fn sees(&self, namespace: &str) -> Result<(), Status> {
        let (mirrors, timings) = (&self.shared.mirrors, Timings::default());
        let health = [mirrors.jobs.health(timings), mirrors.exports.health(timings), mirrors.imports.health(timings)];
        let problems = health.into_iter().filter_map(|(kind, problem)| Some(format!("{kind}: {}", problem?)));
        problems.chain(mirrors.unread(namespace)).next().map_or(Ok(()), |problem| Err(errors::not_current(&problem)))
    }

    /// A place among the calls that need the API server.
    fn place(&self, key: &Key, caller: Option<&CallerName>) -> Result<Place, Status> {
        self.place_among(&self.shared.calls, &key.namespace, caller)
    }

    /// A place for a call about this namespace. Those of one namespace leave some to the others, and so do those of one
    /// caller of it.
    pub(super) fn place_among(
        &self,
        places: &Places,
        namespace: &str,
        caller: Option<&CallerName>,
    ) -> Result<Place, Status> {
        let has_any = self.has_any(namespace);
        let place = if has_any { places.take(namespace, None, caller) } else { places.take_for_nothing(caller) };
        place.map_err(|full| errors::too_many_calls(&full))
    }

    /// The namespace has exports or imports.
    pub(super) fn has_any(&self, namespace: &str) -> bool {
        let mirrors = &self.shared.mirrors;
        mirrors.exports.has_namespace(namespace) || mirrors.imports.has_namespace(namespace)
    }

    /// The object of this name: what the mirror shows; if it shows none, what the API server has: another frontend may
    /// have made it just now.
    async fn found<K: Object + Mirrored>(
        &self,
        mirror: &Watch<K>,
        key: &Key,
        caller: Option<&CallerName>,
        absent: Absent,
    ) -> Result<Arc<K>, Status> {
        if let Some(found) = mirror.get(key) {
            return Ok(found);
        }
        let _place = self.place(key, caller)?;
        let found = self.shared.statuses.cluster.get::<K>(key).await;
        let found = found.map_err(|error| errors::from_kubernetes(&Error::from(error), "name"))?;
        found.map(Arc::new).ok_or_else(|| absent(&key.namespace, &key.name))
    }

    /// What `show` makes of the object of this name; beside the threads that serve everybody if that takes long, and of
    /// the object as it is when its turn has come.
    async fn seen<K: Object + Mirrored, T: Send + 'static>(
        &self,
        mirror: &Watch<K>,
        (key, caller): (&Key, Option<&CallerName>),
        until: Instant,
        absent: Absent,
        show: Show<K, T>,
    ) -> Result<T, Status> {
        if mirror.kept(key).is_some_and(|kept| is_long(kept.octets())) {
            let (mirror, of) = (mirror.clone(), key.clone());
            let show = move |api: &Self, _: &str| mirror.get(&of).map(|object| show(&object, &api.shared.boards));
            let shown = self.listed(key.namespace.to_string(), caller, until, show).await?;
            return shown.ok_or_else(|| absent(&key.namespace, &key.name));
        }
        let work = self.found(mirror, key, caller, absent);
        let found = self.in_time(until, "the API server", work).await?;
        Ok(show(&found, &self.shared.boards))
    }

    /// What `show` makes of an object that was changed, and is in the mirror; beside the threads that serve everybody
    /// if that takes long, in turn with other changes.
    async fn shown<K: Mirrored, T: Send + 'static>(
        &self,
        mirror: &Watch<K>,
        (key, caller): (&Key, Option<&CallerName>),
        object: K,
        show: Show<K, T>,
    ) -> Result<T, Status> {
        if mirror.kept(key).is_none_or(|kept| !is_long(kept.octets())) {
            return Ok(show(&object, &self.shared.boards));
        }
        let turns = &self.shared.statuses.long_objects;
        self.in_turn(turns, &key.namespace, caller, move |api, _| show(&object, &api.shared.boards)).await
    }

    /// Does `work` as long as the caller waits and this frontend does not stop.
    pub(super) async fn in_time<T>(
        &self,
        until: Instant,
        what: &str,
        work: impl Future<Output = Result<T, Status>>,
    ) -> Result<T, Status> {
        tokio::select! {
            biased;
            done = work => done,
            () = self.shared.stopping.cancelled() => Err(errors::shutting_down()),
            () = sleep_until(until) => Err(errors::still_waiting(what)),
        }
    }

    /// Changes an object, and gives what is there then, with the place of the call. `field` is that of a problem, or of
    /// what the API server refuses.
    async fn changed<K: Object + Mirrored>(
        &self,
        mirror: &Watch<K>,
        (key, caller): (&Key, Option<&CallerName>),
        absent: Absent,
        change: &Change<K, Refused>,
        field: impl Fn(Option<&Problem>) -> String,
    ) -> Result<(K, Place), Status> {
        let (place, statuses) = (self.place(key, caller)?, &self.shared.statuses);
        let made = statuses.make(mirror, key, change).await;
        let made = made.map_err(|why| status_of(why, key, absent, &field))?;
        let decided = statuses.decided(mirror, key, made, change).await;
        let (again, made) = decided.map_err(|why| status_of(why, key, absent, &field))?;
        // What is there would be changed again: the API server took the write, and dropped what is new.
        if let Ok(Some(_)) = again {
            return Err(errors::definitions_outdated(&outdated(&definition::<K>(), "status.runTime")));
        }
        Ok((made, place))
    }

    async fn export_updated(
        &self,
        request: UpdateExportRequest,
        caller: Option<CallerName>,
        until: Instant,
    ) -> Result<proto::Export, Status> {
        let UpdateExportRequest { namespace, name, expected_etag, change: asked } = request;
        let key = key_of(&namespace, &name)?;
        let wanted = requests::of_export(asked.as_ref())?;
        self.sees(&key.namespace)?;
        let (whose, octets) = (turns_of(caller.as_ref()), wanted.octets());
        let change = move |export: &Export| {
            is_expected(&expected_etag, export, etag::of_export)?;
            exports::changed(export, &wanted).map_err(Refused::Problem)
        };
        let change = Change::new(change).by(Changer { group: Arc::clone(&whose), one: None }, octets);
        let field = |problem: Option<&Problem>| requests::field_of_export(asked.as_ref(), problem);
        let of = (&key, caller.as_ref());
        let work = async {
            let made = self.changed(&self.shared.mirrors.exports, of, errors::export_not_found, &change, field);
            let (export, _place) = made.await?;
            self.shared.boards.look_at_export(&key, &whose).await;
            self.shown(&self.shared.mirrors.exports, of, export, shown::export).await
        };
        self.in_time(until, "the properties to be stored and seen", work).await
    }

    async fn import_updated(
        &self,
        request: UpdateImportRequest,
        caller: Option<CallerName>,
        until: Instant,
    ) -> Result<proto::Import, Status> {
        let UpdateImportRequest { namespace, name, expected_etag, change: asked } = request;
        let key = key_of(&namespace, &name)?;
        // What is wrong in any case is told before anything is read.
        let octets = requests::of_import(asked.as_ref(), &streams_api::ImportedStreams::default())?.octets();
        self.sees(&key.namespace)?;
        let (mirrors, boards) = (&self.shared.mirrors, &self.shared.boards);
        let (asked, whose) = (Arc::new(asked), turns_of(caller.as_ref()));
        let (of_change, of_boards, of_key) = (Arc::clone(&asked), boards.clone(), key.clone());
        let change = move |import: &Import| {
            is_expected(&expected_etag, import, etag::of_import)?;
            let wanted = requests::of_import(Option::as_ref(&of_change), import.streams()).map_err(Refused::Request)?;
            let forbids = |import: &streams_broker::Import| of_boards.forbids_filters(&of_key.namespace, import);
            imports::changed(import, &wanted, forbids).map_err(Refused::Problem)
        };
        let change = Change::new(change).by(Changer { group: Arc::clone(&whose), one: None }, octets);
        let field = |problem: Option<&Problem>| requests::field_of_import(Option::as_ref(&asked), problem);
        let of = (&key, caller.as_ref());
        let work = async {
            let made = self.changed(&mirrors.imports, of, errors::import_not_found, &change, field);
            let (import, _place) = made.await?;
            boards.look_at_import(&key, &whose).await;
            self.shown(&mirrors.imports, of, import, shown::import).await
        };
        self.in_time(until, "the streams to be stored and seen", work).await
    }
}

/// How a caller is told that its object was not changed. `field` is that of a problem, or of what the API server
/// refuses.
fn status_of(
    why: Unchanged<Refused>,
    key: &Key,
    absent: Absent,
    field: &impl Fn(Option<&Problem>) -> String,
) -> Status {
    match why {
        Unchanged::Refused(Refused::Request(status)) => status,
        Unchanged::Refused(Refused::Another(etag)) => errors::etag_mismatch(&key.name, &etag),
        Unchanged::Refused(Refused::Problem(problem)) => errors::refused(&problem, &field(Some(&problem))),
        Unchanged::Refused(Refused::Going) | Unchanged::Gone => absent(&key.namespace, &key.name),
        Unchanged::Unread(error) | Unchanged::Failed(error) => errors::from_kubernetes(&error, &field(None)),
        Unchanged::Unseen => errors::still_waiting("this frontend to see the change, which is stored"),
        Unchanged::Undecided => Status::internal("what becomes of the object could not be decided"),
        Unchanged::Unknown => errors::shutting_down(),
    }
}

/// The object is not about to go, and is the one that the caller has seen, if that is said.
fn is_expected<K: kube::Resource>(expected: &str, object: &K, etag: fn(&K) -> String) -> Result<(), Refused> {
    if object.meta().deletion_timestamp.is_some() {
        return Err(Refused::Going);
    }
    let etag = etag(object);
    if expected.is_empty() || expected == etag { Ok(()) } else { Err(Refused::Another(etag)) }
}

/// When to answer somebody who waits as long as the header of the call says.
fn until<T>(call: &Request<T>) -> Instant {
    Instant::now() + deadline::wait_of(call).map_or(LONGEST_WAIT, |within| within.min(LONGEST_WAIT))
}

/// The key of an object that a request names.
fn key_of(namespace: &str, name: &str) -> Result<Key, Status> {
    check_namespace("namespace", namespace)?;
    check_name("name", name)?;
    Ok(Key::new(namespace, name))
}

/// Refuses what cannot be the name of an object.
pub(super) fn check_name(field: &str, value: &str) -> Result<(), Status> {
    object_names::check_object(value).map_err(|why| errors::invalid_request(field, why))
}

/// Refuses what cannot be the name of a namespace.
pub(super) fn check_namespace(field: &str, value: &str) -> Result<(), Status> {
    object_names::check_namespace(value).map_err(|why| errors::invalid_request(field, why))
}

/// The span of a change. It outlives the call, and is there before the request is looked at: it has no text that is no
/// name.
fn span(caller: &MetadataMap, method: &'static str, namespace: &str, name: &str) -> Span {
    let namespace = Some(namespace).filter(|name| object_names::check_namespace(name).is_ok());
    let name = Some(name).filter(|name| object_names::check_object(name).is_ok());
    let span = tracing::info_span!(
        "update",
        otel.kind = "server",
        rpc.system = "grpc",
        rpc.service = "streams.subscription.v1.SubscriptionService",
        rpc.method = method,
        namespace,
        name,
        trace_id = tracing::field::Empty,
    );
    telemetry::continue_request(&span, caller.as_ref());
    span
}

#[tonic::async_trait]
impl<C: Cluster> SubscriptionService for SubscriptionApi<C> {
    async fn get_export(&self, request: Request<GetExportRequest>) -> Result<Response<GetExportResponse>, Status> {
        let (caller, until) = (caller_of(&request), until(&request));
        let GetExportRequest { namespace, name } = request.into_inner();
        let key = key_of(&namespace, &name)?;
        self.sees(&namespace)?;
        let (mirror, of) = (&self.shared.mirrors.exports, (&key, caller.as_ref()));
        let export = self.seen(mirror, of, until, errors::export_not_found, shown::export).await?;
        Ok(Response::new(GetExportResponse { export: Some(export) }))
    }

    async fn list_exports(
        &self,
        request: Request<ListExportsRequest>,
    ) -> Result<Response<ListExportsResponse>, Status> {
        let (caller, until) = (caller_of(&request), until(&request));
        self.sees(&request.get_ref().namespace)?;
        self.exports_in_pages(request.into_inner(), caller.as_ref(), until).await.map(Response::new)
    }

    async fn update_export(
        &self,
        request: Request<UpdateExportRequest>,
    ) -> Result<Response<UpdateExportResponse>, Status> {
        let (caller, until) = (caller_of(&request), until(&request));
        let span = {
            let (metadata, asked) = (request.metadata(), request.get_ref());
            span(metadata, "UpdateExport", &asked.namespace, &asked.name)
        };
        let export = self.export_updated(request.into_inner(), caller, until).instrument(span).await?;
        Ok(Response::new(UpdateExportResponse { export: Some(export) }))
    }

    async fn get_import(&self, request: Request<GetImportRequest>) -> Result<Response<GetImportResponse>, Status> {
        let (caller, until) = (caller_of(&request), until(&request));
        let GetImportRequest { namespace, name } = request.into_inner();
        let key = key_of(&namespace, &name)?;
        self.sees(&namespace)?;
        let (mirror, of) = (&self.shared.mirrors.imports, (&key, caller.as_ref()));
        let import = self.seen(mirror, of, until, errors::import_not_found, shown::import).await?;
        Ok(Response::new(GetImportResponse { import: Some(import) }))
    }

    async fn list_imports(
        &self,
        request: Request<ListImportsRequest>,
    ) -> Result<Response<ListImportsResponse>, Status> {
        let (caller, until) = (caller_of(&request), until(&request));
        self.sees(&request.get_ref().namespace)?;
        self.imports_in_pages(request.into_inner(), caller.as_ref(), until).await.map(Response::new)
    }

    async fn update_import(
        &self,
        request: Request<UpdateImportRequest>,
    ) -> Result<Response<UpdateImportResponse>, Status> {
        let (caller, until) = (caller_of(&request), until(&request));
        let span = {
            let (metadata, asked) = (request.metadata(), request.get_ref());
            span(metadata, "UpdateImport", &asked.namespace, &asked.name)
        };
        let import = self.import_updated(request.into_inner(), caller, until).instrument(span).await?;
        Ok(Response::new(UpdateImportResponse { import: Some(import) }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tonic::Code;

    #[test]
    fn only_a_frontend_that_stops_says_so() {
        let key = Key::new("n", "a");
        let field = |_: Option<&Problem>| String::new();
        let code = |why| status_of(why, &key, errors::export_not_found, &field).code();
        assert_eq!((code(Unchanged::Undecided), code(Unchanged::Unknown)), (Code::Internal, Code::Unavailable));
    }
}
