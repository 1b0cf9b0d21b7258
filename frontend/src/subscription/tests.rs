//! Calls over a fake API server, whose changes the mirrors show while a call waits.

use super::lists::WAITING_OF_ONE_MAX;
use super::{CALLS_MAX, CALLS_OF_ONE_MAX, MANAGER, SubscriptionApi};
use crate::broker::Boards;
use crate::controllers::tests::LateMirrors;
use crate::grpc::access::reviewer::Subject;
use crate::mirrors::Mirrors;
use crate::status_changes::Turns;
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use std::convert::Infallible;
use std::future::{Future, pending};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use streams_api::{Export, ExportAtRunTime, Import, Job, StreamProperty};
use streams_kubernetes::Key;
use streams_kubernetes::metrics::Metrics;
use streams_kubernetes::watch::{Scope, Timings, trimmed};
use streams_kubernetes_fake::{Connection, Fault, Server, Verb};
use streams_proto::subscription::v1::subscription_service_server::SubscriptionService as _;
use streams_proto::subscription::v1::update_export_request::Change as OfExport;
use streams_proto::subscription::v1::update_import_request::Change as OfImport;
use streams_proto::subscription::v1::{
    self as proto, EditImportedStreams, EditProperties, GetExportRequest, GetImportRequest, ImportedStreams,
    ListExportsRequest, ListImportsRequest, NamedStream, Properties, Property, Reset, Standing, Subscription,
    UpdateExportRequest, UpdateImportRequest,
};
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;
use tonic::{Code, Request, Response, Status};
use tonic_types::StatusExt as _;

/// The export of job `out`, and the import of job `in` that gets it.
const EXPORT: &str = "out-1-10";
const IMPORT: &str = "in-0-2";

/// An API over a fake API server.
pub(crate) fn an_api() -> SubscriptionApi<Connection> {
    Cluster::new().api
}

struct Cluster {
    server: Server,
    connection: Connection,
    mirrors: LateMirrors,
    stopping: CancellationToken,
    api: SubscriptionApi<Connection>,
}

impl Cluster {
    fn new() -> Self {
        let server = Server::new();
        create_job(&server, "out", 1);
        create_job(&server, "in", 2);
        let properties = json!([{"name": "kind", "type": "rstring", "values": ["\"a\""]}]);
        let stream = json!({"exportOperName": "Out", "properties": properties, "allowFilter": true});
        create_export(&server, "out", 1, 10, &json!({"type": "ByProperties", "stream": stream}));
        create_import(&server, "in", 0, 2, &asked("kind == \"a\""));
        Self::of(server)
    }

    fn of(server: Server) -> Self {
        let mirrors = Mirrors::new(&Metrics::new("test"));
        let boards = Boards::of(&mirrors);
        let mirrors = LateMirrors::fill(&server, mirrors);
        let (connection, stopping) = (server.connect(), CancellationToken::new());
        let shown = mirrors.mirrors.clone();
        let api = SubscriptionApi::new(connection.clone(), shown, boards, Turns::default(), stopping.clone());
        Self { server, connection, mirrors, stopping, api }
    }

    /// The answer to a call; the mirrors show what it has written while it waits.
    async fn answer<T>(&mut self, call: impl Future<Output = Result<Response<T>, Status>>) -> Result<T, Status> {
        let mut call = pin!(call);
        loop {
            tokio::select! {
                biased;
                answer = &mut call => return answer.map(Response::into_inner),
                () = sleep(Duration::from_millis(1)) => { self.mirrors.deliver_all(); }
            }
        }
    }

    async fn update_export(&mut self, request: UpdateExportRequest) -> Result<proto::Export, Status> {
        let api = self.api.clone();
        let answer = self.answer(api.update_export(Request::new(request))).await?;
        Ok(answer.export.unwrap())
    }

    async fn update_import(&mut self, request: UpdateImportRequest) -> Result<proto::Import, Status> {
        let api = self.api.clone();
        let answer = self.answer(api.update_import(Request::new(request))).await?;
        Ok(answer.import.unwrap())
    }

    async fn export(&mut self) -> proto::Export {
        let (api, request) = (self.api.clone(), GetExportRequest { namespace: "n".into(), name: EXPORT.into() });
        self.answer(api.get_export(Request::new(request))).await.unwrap().export.unwrap()
    }

    async fn import(&mut self) -> proto::Import {
        let (api, request) = (self.api.clone(), GetImportRequest { namespace: "n".into(), name: IMPORT.into() });
        self.answer(api.get_import(Request::new(request))).await.unwrap().import.unwrap()
    }

    /// What the API server has of the export that was set at run time.
    fn stored(&self) -> Option<Vec<String>> {
        let export = self.server.get::<Export>(&key(EXPORT)).unwrap();
        Some(names_of(&export.status?.run_time?.properties))
    }

    /// A PE adds a property, unseen by anybody here.
    fn somebody_adds(server: &Server, name: &str) {
        server.edit::<Export>(&key(EXPORT), |export| {
            let mut properties = export.properties().unwrap().to_vec();
            let property =
                StreamProperty { name: name.into(), property_type: "int64".into(), values: vec!["1".into()] };
            properties.push(property);
            export.status.get_or_insert_default().run_time = Some(ExportAtRunTime { properties });
        });
    }
}

fn key(name: &str) -> Key {
    Key::new("n", name)
}

fn names_of(properties: &[StreamProperty]) -> Vec<String> {
    properties.iter().map(|property| format!("{}={}", property.name, property.values.join(","))).collect()
}

fn create_job(server: &Server, name: &str, id: u64) {
    let job: Job = serde_json::from_value(json!({
        "apiVersion": "streams.ibm.com/v1", "kind": "Job", "metadata": {"name": name, "namespace": "n"},
        "spec": {"bundle": {"file": "a.sab"}}, "status": {"jobId": id, "generation": 0},
    }))
    .unwrap();
    server.create(&job);
}

/// What every object of a job has.
fn object(server: &Server, kind: &str, job: &str, pe: u64, port: u32, more: &Value) -> Value {
    let owner = server.get::<Job>(&key(job)).unwrap();
    let mut spec = json!({
        "jobName": job, "jobId": owner.status.unwrap().job_id, "applicationName": "A", "applicationScope": "Default",
        "peId": pe, "portId": port,
    });
    spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let owner = json!({
        "apiVersion": "streams.ibm.com/v1", "kind": "Job", "name": job, "uid": owner.metadata.uid, "controller": true,
    });
    let metadata = json!({"name": format!("{job}-{pe}-{port}"), "namespace": "n", "ownerReferences": [owner]});
    json!({"apiVersion": "streams.ibm.com/v1", "kind": kind, "metadata": metadata, "spec": spec})
}

fn create_export(server: &Server, job: &str, pe: u64, port: u32, more: &Value) {
    let export: Export = serde_json::from_value(object(server, "Export", job, pe, port, more)).unwrap();
    server.create(&export);
}

fn create_import(server: &Server, job: &str, pe: u64, port: u32, streams: &Value) {
    let more = json!({"portIndex": port, "streams": streams});
    let import: Import = serde_json::from_value(object(server, "Import", job, pe, port, &more)).unwrap();
    server.create(&import);
}

fn asked(subscription: &str) -> Value {
    let import = json!({
        "subscription": subscription, "applicationScope": "Default", "importOperName": "In", "index": 3,
    });
    json!({"propertyBasedImport": import})
}

fn property(name: &str, kind: &str, value: &str) -> Property {
    Property { name: name.into(), r#type: kind.into(), values: vec![value.into()] }
}

fn number(name: &str, value: &str) -> Property {
    property(name, "int64", value)
}

fn set(properties: &[Property]) -> Option<OfExport> {
    Some(OfExport::Set(Properties { properties: properties.to_vec() }))
}

fn edit(remove: &[&str], replace: &[Property], add: &[Property]) -> Option<OfExport> {
    let remove = remove.iter().map(|name| (*name).to_owned()).collect();
    Some(OfExport::Edit(EditProperties { remove, replace: replace.to_vec(), add: add.to_vec() }))
}

fn of_export(change: Option<OfExport>) -> UpdateExportRequest {
    UpdateExportRequest { namespace: "n".into(), name: EXPORT.into(), expected_etag: String::new(), change }
}

fn of_import(change: Option<OfImport>) -> UpdateImportRequest {
    UpdateImportRequest { namespace: "n".into(), name: IMPORT.into(), expected_etag: String::new(), change }
}

fn subscribe(expression: &str) -> Option<Subscription> {
    Some(Subscription { expression: expression.into(), ..Subscription::default() })
}

fn edit_streams(subscription: Option<Subscription>, filter: Option<&str>) -> Option<OfImport> {
    Some(OfImport::Edit(EditImportedStreams { subscription, filter: filter.map(str::to_owned) }))
}

fn set_streams(named: &[&str], subscription: Option<Subscription>, filter: &str) -> Option<OfImport> {
    let named = named.iter().map(|stream| NamedStream { stream: (*stream).into(), ..NamedStream::default() });
    Some(OfImport::Set(ImportedStreams { named_streams: named.collect(), subscription, filter: filter.into() }))
}

fn shown(properties: Option<Properties>) -> Vec<String> {
    let each = |property: Property| format!("{}={}", property.name, property.values.join(","));
    properties.unwrap().properties.into_iter().map(each).collect()
}

/// Code, reason and the field at fault, if one is named.
fn why(status: &Status) -> (Code, String, String) {
    let details = status.get_error_details();
    let field = details.bad_request().map(|bad| bad.field_violations[0].field.clone()).unwrap_or_default();
    (status.code(), details.error_info().unwrap().reason.clone(), field)
}

fn metadata(status: &Status, name: &str) -> String {
    status.get_error_details().error_info().unwrap().metadata.get(name).cloned().unwrap_or_default()
}

#[tokio::test(start_paused = true)]
async fn properties_are_set_edited_and_reset() {
    // what was set before, change -> properties afterwards, whether that is written
    let extra = || number("n", "1");
    let kind = || property("kind", "rstring", "\"a\"");
    let table: [(Option<OfExport>, Option<OfExport>, &[&str], bool); 9] = [
        (None, set(&[extra()]), &["n=1"], true),
        (None, set(&[]), &[], true),
        (None, set(&[kind()]), &["kind=\"a\""], false),
        (None, edit(&[], &[], &[extra()]), &["kind=\"a\"", "n=1"], true),
        (None, edit(&["kind"], &[], &[extra()]), &["n=1"], true),
        (set(&[extra(), kind()]), edit(&["kind"], &[number("n", "2")], &[number("m", "3")]), &["n=2", "m=3"], true),
        (set(&[extra()]), edit(&[], &[extra()], &[]), &["n=1"], false),
        (set(&[extra()]), Some(OfExport::Reset(Reset {})), &["kind=\"a\""], true),
        (None, Some(OfExport::Reset(Reset {})), &["kind=\"a\""], false),
    ];
    for (first, change, expected, is_written) in table {
        let mut cluster = Cluster::new();
        if first.is_some() {
            cluster.update_export(of_export(first.clone())).await.unwrap();
        }
        let (writes, before) = (cluster.connection.writes(), cluster.export().await);
        cluster.server.inspect(|call| assert!(!call.verb.is_write() || call.manager == MANAGER.0, "{call}"));
        let answer = cluster.update_export(of_export(change.clone())).await.unwrap();
        assert_eq!(shown(answer.properties.clone()), expected, "{first:?} {change:?}");
        assert_eq!(cluster.connection.writes() - writes, usize::from(is_written), "{first:?} {change:?}");
        assert_eq!(before.etag != answer.etag, is_written, "{first:?} {change:?}");
        assert_eq!(shown(answer.application_properties.clone()), ["kind=\"a\""]);
        let is_reset = matches!(change, Some(OfExport::Reset(_)));
        assert_eq!(cluster.stored().is_some(), !is_reset && (is_written || first.is_some()), "{change:?}");
        assert_eq!(answer.changed_at_run_time, cluster.stored().is_some(), "{change:?}");
        // The board of this replica knows it already.
        let is_matched = expected.contains(&"kind=\"a\"");
        assert_eq!((answer.importer_count, answer.importers.len()), (is_matched.into(), is_matched.into()));
        assert_eq!(answer.standing() == Standing::Connected, is_matched, "{answer:?}");
        assert_eq!(cluster.export().await, answer, "what is read after a change is what was answered");
    }
}

#[tokio::test(start_paused = true)]
async fn properties_that_cannot_be_are_refused_with_their_place_and_nothing_is_written() {
    use Code::{FailedPrecondition as Failed, InvalidArgument as Invalid};
    let many: Vec<Property> = (0..1_025).map(|position| number(&format!("p{position}"), "1")).collect();
    let (n, m) = (|| number("n", "1"), || number("m", "1"));
    // change -> code, reason, field
    let table = [
        (None, Invalid, "INVALID_REQUEST", "change"),
        (set(&[n(), number("", "1")]), Invalid, "INVALID_REQUEST", "set.properties[1].name"),
        (set(&[n(), number(&"x".repeat(1_025), "1")]), Invalid, "INVALID_REQUEST", "set.properties[1].name"),
        (set(&[property("n", &"x".repeat(65), "1")]), Invalid, "INVALID_REQUEST", "set.properties[0].type"),
        (set(&[number("n", &"1".repeat(65_537))]), Invalid, "INVALID_REQUEST", "set.properties[0].values[0]"),
        (set(&many), Invalid, "INVALID_REQUEST", "set.properties"),
        (set(&[n(), m(), n()]), Invalid, "INVALID_PROPERTY", "set.properties[2]"),
        (set(&[n(), number("m", "one")]), Invalid, "INVALID_PROPERTY", "set.properties[1]"),
        (set(&[property("n", "int", "1")]), Invalid, "INVALID_PROPERTY", "set.properties[0]"),
        (edit(&[], &[], &[]), Invalid, "INVALID_REQUEST", "edit"),
        (edit(&["kind"], &[], &[property("kind", "int64", "1")]), Invalid, "INVALID_REQUEST", "edit.add[0]"),
        (edit(&["kind", "kind"], &[], &[]), Invalid, "INVALID_REQUEST", "edit.remove[1]"),
        (edit(&[], &[property("kind", "int64", "x")], &[]), Invalid, "INVALID_PROPERTY", "edit.replace[0]"),
        (edit(&[], &[], &[n(), number("m", "x")]), Invalid, "INVALID_PROPERTY", "edit.add[1]"),
        (edit(&[], &[], &[n(), property("kind", "int64", "1")]), Failed, "PROPERTY_EXISTS", ""),
        (edit(&[], &[n()], &[]), Failed, "PROPERTY_NOT_FOUND", ""),
        (edit(&["kind", "n"], &[], &[]), Failed, "PROPERTY_NOT_FOUND", ""),
    ];
    let mut cluster = Cluster::new();
    for (change, code, reason, field) in table {
        let status = cluster.update_export(of_export(change.clone())).await.unwrap_err();
        assert_eq!(why(&status), (code, reason.to_owned(), field.to_owned()), "{status:?}");
    }
    // What somebody else has spoiled is nobody's field.
    cluster.server.edit::<Export>(&key(EXPORT), |export| {
        let malformed = StreamProperty { name: "x".into(), property_type: "int64".into(), values: vec![] };
        export.status.get_or_insert_default().run_time = Some(ExportAtRunTime { properties: vec![malformed] });
    });
    cluster.mirrors.deliver_all();
    let status = cluster.update_export(of_export(edit(&[], &[], &[n()]))).await.unwrap_err();
    assert_eq!(why(&status), (Invalid, "INVALID_PROPERTY".to_owned(), "edit".to_owned()));
    assert_eq!(metadata(&status, "property"), "x");
    let export = cluster.export().await;
    assert_eq!((export.standing(), export.problem.contains("property x")), (Standing::Malformed, true), "{export:?}");
    assert_eq!(cluster.connection.writes(), 0);
    cluster.update_export(of_export(edit(&["x"], &[], &[n()]))).await.unwrap();
    assert_eq!(cluster.stored(), Some(vec!["n=1".to_owned()]));
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_is_exported_by_its_name_has_no_properties() {
    let server = Server::new();
    create_job(&server, "out", 1);
    create_export(&server, "out", 1, 10, &json!({"type": "ByName", "stream": {"exportOperName": "Out", "name": "s"}}));
    let mut cluster = Cluster::of(server);
    let export = cluster.export().await;
    assert_eq!((export.properties, export.application_properties, export.stream.as_deref()), (None, None, Some("s")));
    for change in [set(&[]), edit(&["n"], &[], &[]), Some(OfExport::Reset(Reset {}))] {
        let status = cluster.update_export(of_export(change)).await.unwrap_err();
        assert_eq!(why(&status).1, "EXPORTED_BY_NAME", "{status:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn subscriptions_and_filters_are_set_edited_and_reset() {
    let a = "kind == \"a\"";
    // changes -> subscription, filter, streams by name, whether somebody sends, whether it was changed at run time
    type Row<'a> = (Vec<Option<OfImport>>, Option<&'a str>, &'a str, &'a [&'a str], bool, bool);
    let back = || Some(OfImport::Reset(Reset {}));
    let table: [Row<'_>; 12] = [
        (vec![edit_streams(subscribe("n > 1"), None)], Some("n > 1"), "", &[], false, true),
        (vec![edit_streams(None, Some("x == 1"))], Some(a), "x == 1", &[], true, true),
        (vec![edit_streams(None, Some("x == 1")), edit_streams(None, Some(""))], Some(a), "", &[], true, true),
        (vec![edit_streams(None, Some("x == 1")), edit_streams(None, Some(" \t"))], Some(a), "", &[], true, true),
        (vec![edit_streams(None, Some("hash < -1.5"))], Some(a), "hash < -1.5", &[], true, true),
        (
            vec![edit_streams(subscribe("n"), Some("x")), edit_streams(subscribe(a), None)],
            Some(a),
            "x",
            &[],
            true,
            true,
        ),
        (vec![set_streams(&["s", "t"], None, "")], None, "", &["s", "t"], false, true),
        (vec![set_streams(&["s"], subscribe(a), "x")], Some(a), "x", &["s"], true, true),
        (vec![set_streams(&["s"], None, "x"), edit_streams(subscribe(a), None)], Some(a), "x", &["s"], true, true),
        (vec![set_streams(&["s"], None, "x"), back()], Some(a), "", &[], true, false),
        (vec![back()], Some(a), "", &[], true, false),
        (vec![set_streams(&[], subscribe(a), "")], Some(a), "", &[], true, false),
    ];
    for (changes, subscription, filter, named, is_sent, is_changed) in table {
        let mut cluster = Cluster::new();
        let mut answer = cluster.import().await;
        for change in &changes {
            answer = cluster.update_import(of_import(change.clone())).await.unwrap();
        }
        let streams = answer.streams.clone().unwrap();
        let asked = streams.subscription.as_ref().map(|asked| &*asked.expression);
        assert_eq!((asked, &*streams.filter), (subscription, filter), "{changes:?}");
        let names: Vec<&str> = streams.named_streams.iter().map(|named| &*named.stream).collect();
        assert_eq!(names, named, "{changes:?}");
        assert_eq!((answer.exporter_count, answer.standing() == Standing::Connected), (is_sent.into(), is_sent));
        assert_eq!(answer.exporters.len(), usize::from(is_sent), "{changes:?}");
        assert_eq!(answer.application_streams.clone().unwrap().subscription.unwrap().expression, a);
        // What a request does not say is as before, or as if an application had not said it.
        let scopes = streams.named_streams.iter().map(|named| &*named.application_scope);
        let mut scopes = scopes.chain(streams.subscription.iter().map(|asked| &*asked.application_scope));
        assert!(scopes.all(|scope| scope == "Default"), "{streams:?}");
        assert_eq!(cluster.import().await, answer, "what is read after a change is what was answered");
        let stored = cluster.server.get::<Import>(&key(IMPORT)).unwrap().status.and_then(|status| status.run_time);
        assert_eq!((stored.is_some(), answer.changed_at_run_time), (is_changed, is_changed), "{changes:?}");
    }
    // The operator and the place among the imports stay as well.
    let mut cluster = Cluster::new();
    cluster.update_import(of_import(edit_streams(subscribe("n > 1"), None))).await.unwrap();
    let stored = cluster.server.get::<Import>(&key(IMPORT)).unwrap();
    let subscription = stored.streams().property_based_import.clone().unwrap();
    assert_eq!((&*subscription.import_oper_name, subscription.index), ("In", 3));
}

#[tokio::test(start_paused = true)]
async fn streams_that_cannot_be_are_refused_with_their_place_and_nothing_is_written() {
    let long = "x".repeat(65_537);
    // change -> reason, field, offset in the text
    let table = [
        (None, "INVALID_REQUEST", "change", ""),
        (edit_streams(None, None), "INVALID_REQUEST", "edit", ""),
        (edit_streams(subscribe("n >"), None), "INVALID_EXPRESSION", "edit.subscription.expression", "3"),
        (edit_streams(subscribe(""), None), "INVALID_EXPRESSION", "edit.subscription.expression", "0"),
        (edit_streams(subscribe(&long), None), "INVALID_REQUEST", "edit.subscription.expression", ""),
        (edit_streams(subscribe("n"), Some("a = 1")), "INVALID_EXPRESSION", "edit.filter", "2"),
        (edit_streams(None, Some("a == b")), "INVALID_EXPRESSION", "edit.filter", "2"),
        (edit_streams(None, Some("a == 1 && true")), "INVALID_EXPRESSION", "edit.filter", "10"),
        (set_streams(&["s"], None, "false"), "INVALID_EXPRESSION", "set.filter", "0"),
        (set_streams(&["s"], None, "(int64)a == 1"), "INVALID_EXPRESSION", "set.filter", "0"),
        (edit_streams(None, Some(&long)), "INVALID_REQUEST", "edit.filter", ""),
        (set_streams(&[], subscribe("1 == )"), ""), "INVALID_EXPRESSION", "set.subscription.expression", "5"),
        (set_streams(&["s", ""], None, ""), "INVALID_REQUEST", "set.named_streams[1].stream", ""),
        (set_streams(&vec!["s"; 1_025], None, ""), "INVALID_REQUEST", "set.named_streams", ""),
    ];
    let mut cluster = Cluster::new();
    for (change, reason, field, offset) in table {
        let status = cluster.update_import(of_import(change)).await.unwrap_err();
        assert_eq!(why(&status), (Code::InvalidArgument, reason.to_owned(), field.to_owned()), "{status:?}");
        assert_eq!(metadata(&status, "offset"), offset, "{status:?}");
    }
    assert_eq!(cluster.connection.writes(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_filter_is_forbidden_by_what_sends_to_the_port_after_the_change() {
    let (a, b) = ("kind == \"a\"", "kind == \"b\"");
    // changes, of which the last sets a filter -> whether it is forbidden. The export, whose kind is "a", forbids
    // filters.
    let table: [(&[Option<OfImport>], bool); 8] = [
        (&[edit_streams(None, Some("x"))], true),
        (&[edit_streams(subscribe(b), Some("x"))], false),
        (&[edit_streams(subscribe(b), None), edit_streams(subscribe(a), Some("x"))], true),
        (&[edit_streams(subscribe(b), None), edit_streams(None, Some("x"))], false),
        (&[set_streams(&["s"], None, "x")], false),
        (&[set_streams(&["s"], None, ""), set_streams(&["s"], subscribe(a), "x")], true),
        // A filter that stays is not set.
        (&[edit_streams(subscribe(b), Some("x")), edit_streams(subscribe(a), None)], false),
        // What sends nothing only because of the filter before does not allow another one.
        (
            &[edit_streams(subscribe(b), Some("x")), edit_streams(subscribe(a), None), edit_streams(None, Some("y"))],
            true,
        ),
    ];
    for (changes, is_forbidden) in table {
        let mut cluster = Cluster::new();
        cluster.server.edit::<Export>(&key(EXPORT), |export| export.spec.stream.allow_filter = false);
        cluster.mirrors.deliver_all();
        let Some((last, before)) = changes.split_last() else { continue };
        for change in before {
            cluster.update_import(of_import(change.clone())).await.unwrap();
        }
        let writes = cluster.connection.writes();
        let answer = cluster.update_import(of_import(last.clone())).await;
        assert_eq!(answer.is_err(), is_forbidden, "{changes:?}: {answer:?}");
        assert_eq!(cluster.connection.writes() - writes, usize::from(!is_forbidden), "{changes:?}");
        if let Err(status) = answer {
            assert_eq!((why(&status).0, why(&status).1.as_str()), (Code::FailedPrecondition, "FILTER_FORBIDDEN"));
            assert_eq!(metadata(&status, "export"), EXPORT, "{changes:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn who_has_not_seen_the_last_change_does_not_overwrite_it() {
    let mut cluster = Cluster::new();
    let seen = cluster.export().await.etag;
    // A condition is nothing that callers want.
    cluster.server.edit::<Export>(&key(EXPORT), |export| {
        export.status.get_or_insert_default().observed_generation = Some(7);
    });
    cluster.mirrors.deliver_all();
    let expecting = |etag: &str, value: &str| UpdateExportRequest {
        expected_etag: etag.to_owned(),
        ..of_export(set(&[number("n", value)]))
    };
    let first = cluster.update_export(expecting(&seen, "1")).await.unwrap();
    let status = cluster.update_export(expecting(&seen, "2")).await.unwrap_err();
    assert_eq!((why(&status).0, why(&status).1.as_str()), (Code::FailedPrecondition, "ETAG_MISMATCH"));
    assert_eq!(metadata(&status, "etag"), first.etag);
    assert_eq!(cluster.stored(), Some(vec!["n=1".to_owned()]));
    cluster.update_export(expecting(&first.etag, "2")).await.unwrap();
    assert_eq!(cluster.stored(), Some(vec!["n=2".to_owned()]));
    // The same of imports.
    let seen = cluster.import().await.etag;
    let expecting = |change| UpdateImportRequest { expected_etag: seen.clone(), ..of_import(change) };
    cluster.update_import(expecting(edit_streams(None, Some("x")))).await.unwrap();
    let status = cluster.update_import(expecting(Some(OfImport::Reset(Reset {})))).await.unwrap_err();
    assert_eq!(why(&status).1, "ETAG_MISMATCH");
}

#[tokio::test(start_paused = true)]
async fn what_a_pe_writes_at_the_same_time_is_not_lost() {
    let add = || edit(&[], &[], &[number("n", "2")]);
    // the change, whether it says what it has seen, what the PE adds -> properties stored, or the reason
    let table: [(Option<OfExport>, bool, &str, Result<&[&str], &str>); 5] = [
        (add(), false, "pe", Ok(&["kind=\"a\"", "pe=1", "n=2"])),
        (add(), false, "n", Err("PROPERTY_EXISTS")),
        (add(), true, "pe", Err("ETAG_MISMATCH")),
        (set(&[number("n", "2")]), false, "pe", Ok(&["n=2"])),
        (set(&[number("n", "2")]), true, "pe", Err("ETAG_MISMATCH")),
    ];
    for (change, says_what_it_has_seen, added, expected) in table {
        let mut cluster = Cluster::new();
        let etag = cluster.export().await.etag;
        let expected_etag = if says_what_it_has_seen { etag } else { String::new() };
        let (server, name) = (cluster.server.clone(), added.to_owned());
        let once = std::sync::Once::new();
        cluster.connection.meanwhile(move |call| {
            if call.verb == Verb::ReplaceStatus {
                once.call_once(|| Cluster::somebody_adds(&server, &name));
            }
            Box::pin(async {})
        });
        let answer = cluster.update_export(UpdateExportRequest { expected_etag, ..of_export(change.clone()) }).await;
        let stored = cluster.stored().unwrap();
        match expected {
            Ok(expected) => {
                assert_eq!((shown(answer.unwrap().properties), &*stored), (stored.clone(), &*strings(expected)))
            }
            Err(reason) => {
                assert_eq!(why(&answer.unwrap_err()).1, reason, "{change:?}");
                assert_eq!(stored, strings(&["kind=\"a\"", &format!("{added}=1")]), "{change:?}");
            }
        }
    }
}

fn strings(of: &[&str]) -> Vec<String> {
    of.iter().map(|text| (*text).to_owned()).collect()
}

#[tokio::test(start_paused = true)]
async fn what_the_mirror_does_not_show_yet_counts() {
    // Another replica has written; this one is asked for what it still shows, by somebody who has seen the other's.
    let mut cluster = Cluster::new();
    Cluster::somebody_adds(&cluster.server, "pe");
    let back = cluster.update_export(of_export(set(&[property("kind", "rstring", "\"a\"")]))).await.unwrap();
    assert_eq!((shown(back.properties), cluster.stored()), (strings(&["kind=\"a\""]), Some(strings(&["kind=\"a\""]))));
    // One that was made just now is there.
    cluster.mirrors.deliver_all();
    create_import(&cluster.server, "in", 5, 0, &asked("1 == 1"));
    let (api, name) = (cluster.api.clone(), "in-5-0");
    let found = api.get_import(Request::new(GetImportRequest { namespace: "n".into(), name: name.into() })).await;
    let found = found.unwrap().into_inner().import.unwrap();
    assert_eq!((&*found.name, found.standing()), (name, Standing::NotOfJob), "the board does not know it yet");
    let request = UpdateImportRequest { name: name.into(), ..of_import(edit_streams(None, Some("x"))) };
    assert_eq!(cluster.update_import(request).await.unwrap().streams.unwrap().filter, "x");
    // One that is gone is gone.
    cluster.server.remove::<Export>(&key(EXPORT));
    let status = cluster.update_export(of_export(set(&[]))).await.unwrap_err();
    assert_eq!((why(&status).0, why(&status).1.as_str()), (Code::NotFound, "EXPORT_NOT_FOUND"));
}

#[tokio::test(start_paused = true)]
async fn what_is_not_there_is_named() {
    let mut cluster = Cluster::new();
    let (n, x) = (|| "n".to_owned(), || "x".to_owned());
    let api = cluster.api.clone();
    let statuses = [
        api.get_export(Request::new(GetExportRequest { namespace: n(), name: x() })).await.map(|_| ()),
        api.get_import(Request::new(GetImportRequest { namespace: n(), name: x() })).await.map(|_| ()),
        cluster.update_export(UpdateExportRequest { name: x(), ..of_export(set(&[])) }).await.map(|_| ()),
        cluster
            .update_import(UpdateImportRequest { name: x(), ..of_import(edit_streams(None, Some(""))) })
            .await
            .map(|_| ()),
        api.list_exports(Request::new(ListExportsRequest { namespace: n(), job: x(), ..Default::default() }))
            .await
            .map(|_| ()),
        api.list_imports(Request::new(ListImportsRequest { namespace: n(), job: x(), ..Default::default() }))
            .await
            .map(|_| ()),
    ];
    let kinds = ["Export", "Import", "Export", "Import", "Job", "Job"];
    for (status, kind) in statuses.into_iter().zip(kinds) {
        let status = status.unwrap_err();
        let details = status.get_error_details();
        let named = details.resource_info().unwrap();
        assert_eq!((status.code(), &*named.resource_name), (Code::NotFound, "n/x"), "{status:?}");
        assert!(named.resource_type.ends_with(kind), "{status:?}");
        assert_eq!(details.error_info().unwrap().reason, format!("{}_NOT_FOUND", kind.to_uppercase()));
    }
    let table = [
        ("", "x", "namespace"),
        ("n", "", "name"),
        ("n", "a/b", "name"),
        ("n", "..", "name"),
        ("..%2f", "x", "namespace"),
        ("n.m", "x", "namespace"),
    ];
    for (namespace, name, field) in table {
        let request = GetExportRequest { namespace: namespace.into(), name: name.into() };
        let status = api.get_export(Request::new(request)).await.unwrap_err();
        assert_eq!(why(&status), (Code::InvalidArgument, "INVALID_REQUEST".to_owned(), field.to_owned()));
    }
}

#[tokio::test(start_paused = true)]
async fn lists_come_in_pages_by_job_pe_and_port() {
    let server = Server::new();
    let by_name = json!({"type": "ByName", "stream": {"exportOperName": "Out", "name": "s"}});
    for (job, id) in [("b", 1), ("a", 2)] {
        create_job(&server, job, id);
        for (pe, port) in [(10, 0), (9, 1), (9, 0)] {
            create_export(&server, job, pe, port, &by_name);
            create_import(&server, job, pe, port, &asked("n"));
        }
    }
    let cluster = Cluster::of(server);
    let all = ["a-9-0", "a-9-1", "a-10-0", "b-9-0", "b-9-1", "b-10-0"];
    // job, size of a page -> pages
    for (job, size, expected) in
        [("", 4, vec![&all[..4], &all[4..]]), ("b", 2, vec![&all[3..5], &all[5..]]), ("", 0, vec![&all])]
    {
        let (mut exports, mut imports, mut tokens) = (Vec::new(), Vec::new(), (String::new(), String::new()));
        loop {
            let request =
                ListExportsRequest { namespace: "n".into(), job: job.into(), page_size: size, page_token: tokens.0 };
            let answer = cluster.api.list_exports(Request::new(request)).await.unwrap().into_inner();
            exports.push(answer.exports.into_iter().map(|export| export.name).collect::<Vec<_>>());
            tokens.0 = answer.next_page_token;
            let request =
                ListImportsRequest { namespace: "n".into(), job: job.into(), page_size: size, page_token: tokens.1 };
            let answer = cluster.api.list_imports(Request::new(request)).await.unwrap().into_inner();
            imports.push(answer.imports.into_iter().map(|import| import.name).collect::<Vec<_>>());
            tokens.1 = answer.next_page_token;
            if tokens.0.is_empty() && tokens.1.is_empty() {
                break;
            }
            // A token is good for its list only.
            let request = ListImportsRequest {
                namespace: "n".into(),
                job: job.into(),
                page_size: 1,
                page_token: tokens.0.clone(),
            };
            let status = cluster.api.list_imports(Request::new(request)).await.unwrap_err();
            assert_eq!(why(&status), (Code::InvalidArgument, "INVALID_REQUEST".to_owned(), "page_token".to_owned()));
        }
        assert_eq!(exports, expected, "{job} {size}");
        assert_eq!(imports, expected, "{job} {size}");
    }
}

#[tokio::test(start_paused = true)]
async fn lists_of_a_namespace_take_turns_as_long_as_their_callers_wait() {
    let cluster = Cluster::new();
    let list = async |namespace: &str| {
        let mut request = Request::new(ListExportsRequest { namespace: namespace.into(), ..Default::default() });
        request.metadata_mut().insert("grpc-timeout", "2S".parse().unwrap());
        cluster.api.list_exports(request).await.map(|answer| answer.into_inner().exports.len())
    };
    let turn = cluster.api.shared.lists.turns.acquire("n").await;
    assert_eq!(list("m").await.unwrap(), 0);
    let begun = Instant::now();
    let status = list("n").await.unwrap_err();
    assert_eq!((why(&status).0, why(&status).1.as_str()), (Code::DeadlineExceeded, "STILL_WAITING"));
    assert_eq!(begun.elapsed().as_millis(), 1_900);
    drop(turn);
    assert_eq!(list("n").await.unwrap(), 1);
}

#[tokio::test(start_paused = true)]
async fn callers_of_a_namespace_take_turns_with_their_lists_and_so_many_wait() {
    let cluster = Cluster::new();
    let list = |caller: &str| {
        let mut request = Request::new(ListExportsRequest { namespace: "n".into(), ..Default::default() });
        request.extensions_mut().insert(Arc::new(Subject::called(caller)));
        let api = cluster.api.clone();
        async move { api.list_exports(request).await.map(|answer| answer.into_inner().exports.len()) }
    };
    let lists = &cluster.api.shared.lists;
    let turn = lists.turns.acquire("n").await;
    // One of them has half of what its namespace may have, which leaves some to others.
    let of_me: Vec<_> = (0..WAITING_OF_ONE_MAX / 2).map(|_| tokio::spawn(list("me"))).collect();
    while lists.waiting.taken() < of_me.len() {
        sleep(Duration::from_millis(1)).await;
    }
    let status = list("me").await.unwrap_err();
    assert_eq!((why(&status).0, why(&status).1.as_str()), (Code::ResourceExhausted, "TOO_MANY_CALLS"));
    let of_you = tokio::spawn(list("you"));
    while lists.waiting.taken() == of_me.len() {
        sleep(Duration::from_millis(1)).await;
    }
    drop(turn);
    assert_eq!(of_you.await.unwrap().unwrap(), 1);
    let answered = of_me.iter().filter(|list| list.is_finished()).count();
    assert!(answered < of_me.len() / 2, "{answered} of another caller were in front of it");
    for list in of_me {
        assert_eq!(list.await.unwrap().unwrap(), 1);
    }
    assert_eq!(lists.waiting.taken(), 0);
    // What is made up shares what one namespace may have.
    let made_up: Vec<_> = (0..WAITING_OF_ONE_MAX).map(|_| lists.waiting.take_for_nothing(None).ok().unwrap()).collect();
    let request = Request::new(ListImportsRequest { namespace: "nobodys".into(), ..Default::default() });
    let status = cluster.api.list_imports(request).await.unwrap_err();
    assert_eq!((why(&status).0, why(&status).1.as_str()), (Code::ResourceExhausted, "TOO_MANY_CALLS"));
    drop(made_up);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_said_or_written_by_mirrors_that_are_too_old() {
    let cluster = Cluster::new();
    // A watch whose API server says nothing.
    let exports = cluster.mirrors.mirrors.exports.clone();
    let silent = tower::service_fn(|_: http::Request<Body>| pending::<Result<http::Response<Body>, Infallible>>());
    let (client, stop) = (Client::new(silent, "n"), CancellationToken::new());
    tokio::spawn(async move {
        exports.run(client, Scope::All, None, trimmed::custom_resource, Timings::default(), stop).await;
    });
    sleep(Duration::from_secs(45)).await;
    cluster
        .api
        .list_exports(Request::new(ListExportsRequest { namespace: "n".into(), ..Default::default() }))
        .await
        .unwrap();
    sleep(Duration::from_secs(10)).await;
    let (api, n, x) = (&cluster.api, || "n".to_owned(), || EXPORT.to_owned());
    let statuses = [
        api.get_export(Request::new(GetExportRequest { namespace: n(), name: x() })).await.map(|_| ()),
        api.get_import(Request::new(GetImportRequest { namespace: n(), name: x() })).await.map(|_| ()),
        api.list_exports(Request::new(ListExportsRequest { namespace: n(), ..Default::default() })).await.map(|_| ()),
        api.list_imports(Request::new(ListImportsRequest { namespace: n(), ..Default::default() })).await.map(|_| ()),
        api.update_export(Request::new(of_export(set(&[])))).await.map(|_| ()),
        api.update_import(Request::new(of_import(edit_streams(None, Some("x"))))).await.map(|_| ()),
    ];
    for status in statuses {
        let status = status.unwrap_err();
        assert_eq!((why(&status).0, why(&status).1.as_str()), (Code::Unavailable, "NOT_CURRENT"));
        assert!(status.get_error_details().retry_info().is_some());
    }
    assert_eq!(cluster.connection.calls(), 0);
}

#[tokio::test(start_paused = true)]
async fn what_the_api_server_answers_has_a_reason() {
    // code and words of the API server -> code, reason, whether asking again may help
    let table = [
        (403, "a policy", Code::PermissionDenied, "NOT_PERMITTED", false),
        (422, "status.runTime: too many", Code::InvalidArgument, "INVALID_REQUEST", false),
        (413, "too large", Code::InvalidArgument, "INVALID_REQUEST", false),
        (429, "later", Code::Unavailable, "NOT_TAKEN", true),
        (500, "no leader", Code::Unavailable, "NOT_TAKEN", true),
    ];
    for (answer, words, code, reason, again) in table {
        let mut cluster = Cluster::new();
        cluster.server.refuse(move |call| {
            let status = json!({"status": "Failure", "message": words, "code": answer});
            call.verb.is_write().then(|| serde_json::from_value(status).unwrap())
        });
        let status = cluster.update_export(of_export(set(&[]))).await.unwrap_err();
        assert_eq!((why(&status).0, why(&status).1.as_str()), (code, reason), "{status:?}");
        assert_eq!(status.get_error_details().retry_info().is_some(), again, "{status:?}");
        assert!(status.message().contains(words), "{status:?}");
        assert_eq!(cluster.stored(), None);
    }
    // Nobody knows what has come of it, and the next one sees it.
    for has_effect in [false, true] {
        let mut cluster = Cluster::new();
        cluster.connection.fail(Fault { after: 0, of_writes: true, has_effect, is_last: false });
        let status = cluster.update_export(of_export(set(&[]))).await.unwrap_err();
        assert_eq!(why(&status).1, "NOT_TAKEN");
        assert_eq!(cluster.stored().is_some(), has_effect);
        cluster.update_export(of_export(set(&[]))).await.unwrap();
        assert_eq!(cluster.stored(), Some(Vec::new()));
    }
    // The definitions are of an earlier version.
    let mut cluster = Cluster::new();
    cluster.server.does_not_declare::<Export>(&["status", "runTime"], false);
    let status = cluster.update_export(of_export(set(&[number("n", "1")]))).await.unwrap_err();
    assert_eq!((why(&status).0, why(&status).1.as_str()), (Code::FailedPrecondition, "DEFINITIONS_OUTDATED"));
}

#[tokio::test(start_paused = true)]
async fn a_call_ends_with_the_time_of_its_caller_or_with_this_frontend() {
    // Mirrors show nothing of what is written here. What the caller says -> milliseconds until the answer
    for (header, expected) in [(Some("2S"), 1_900), (Some("1H"), 10_000), (None, 10_000)] {
        let cluster = Cluster::new();
        let mut request = Request::new(of_export(set(&[])));
        if let Some(header) = header {
            request.metadata_mut().insert("grpc-timeout", header.parse().unwrap());
        }
        let begun = Instant::now();
        let status = cluster.api.update_export(request).await.unwrap_err();
        assert_eq!((why(&status).0, why(&status).1.as_str()), (Code::DeadlineExceeded, "STILL_WAITING"));
        assert_eq!(begun.elapsed().as_millis(), expected, "{header:?}");
        assert_eq!(cluster.stored(), Some(Vec::new()), "it was written");
    }
    // An API server that does not answer.
    let cluster = Cluster::new();
    cluster.connection.meanwhile(|_| Box::pin(sleep(Duration::from_secs(3_600))));
    let begun = Instant::now();
    let status = cluster.api.update_export(Request::new(of_export(set(&[])))).await.unwrap_err();
    assert_eq!((why(&status).1.as_str(), begun.elapsed().as_secs()), ("STILL_WAITING", 30));
    // This frontend is to stop.
    let cluster = Cluster::new();
    let (stopping, begun) = (cluster.stopping.clone(), Instant::now());
    tokio::spawn(async move {
        sleep(Duration::from_secs(1)).await;
        stopping.cancel();
    });
    let status = cluster.api.update_export(Request::new(of_export(set(&[])))).await.unwrap_err();
    assert_eq!((why(&status).0, why(&status).1.as_str()), (Code::Unavailable, "SHUTTING_DOWN"));
    assert!(status.get_error_details().retry_info().is_some() && begun.elapsed().as_secs() == 1);
}

#[tokio::test(start_paused = true)]
async fn a_namespace_leaves_some_calls_to_the_others() {
    let mut cluster = Cluster::new();
    let calls = cluster.api.shared.calls.clone();
    let of_others = |namespace: &str, count| -> Vec<_> {
        (0..count).map(|_| calls.take(namespace, None, None).ok().unwrap()).collect()
    };
    // who has how many -> whether a change in the namespace `n` is taken
    for (namespace, count, is_taken) in [("m", CALLS_OF_ONE_MAX, true), ("n", CALLS_OF_ONE_MAX, false), ("n", 1, true)]
    {
        let others = of_others(namespace, count);
        let (before, answer) = (cluster.connection.calls(), cluster.update_export(of_export(set(&[]))).await);
        match answer {
            Ok(_) => assert!(is_taken, "{namespace} {count}"),
            Err(status) => {
                assert!(!is_taken, "{namespace} {count}: {status:?}");
                assert_eq!((why(&status).0, why(&status).1.as_str()), (Code::ResourceExhausted, "TOO_MANY_CALLS"));
                assert!(status.get_error_details().retry_info().is_some());
                assert_eq!(cluster.connection.calls(), before, "nothing is asked");
            }
        }
        drop(others);
    }
    assert_eq!(of_others("n", CALLS_OF_ONE_MAX).len(), CALLS_OF_ONE_MAX, "whoever was answered makes room");
    let all: Vec<_> = (0..CALLS_MAX).flat_map(|at| of_others(&format!("m{at}"), 1)).collect();
    let status = cluster.update_export(of_export(set(&[]))).await.unwrap_err();
    assert!(status.message().contains("in all"), "{status:?}");
    drop(all);
}
