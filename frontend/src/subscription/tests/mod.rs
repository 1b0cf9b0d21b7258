//! Calls over a fake API server, whose changes the mirrors show while a call waits.

mod at_once;
mod exports;
mod imports;
mod lists;
mod refusals;

use super::SubscriptionApi;
use crate::broker::Boards;
use crate::controllers::tests::LateMirrors;
use crate::mirrors::Mirrors;
use crate::status_changes::Turns;
use serde_json::{Value, json};
use std::future::Future;
use std::pin::pin;
use std::time::Duration;
use streams_api::{Export, ExportAtRunTime, Import, Job, StreamProperty};
use streams_kubernetes::Key;
use streams_kubernetes::metrics::Metrics;
use streams_kubernetes_fake::{Connection, Server};
use streams_proto::subscription::v1::subscription_service_server::SubscriptionService as _;
use streams_proto::subscription::v1::update_export_request::Change as OfExport;
use streams_proto::subscription::v1::update_import_request::Change as OfImport;
use streams_proto::subscription::v1::{
    self as proto, EditImportedStreams, EditProperties, GetExportRequest, GetImportRequest, ImportedStreams,
    NamedStream, Properties, Property, Subscription, UpdateExportRequest, UpdateImportRequest,
};
use tokio::time::sleep;
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
