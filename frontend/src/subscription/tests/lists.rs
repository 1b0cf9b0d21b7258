//! Lists and long objects, and how callers of a namespace share them.

use super::{Cluster, asked, create_export, create_import, create_job, key, why};
use crate::grpc::subject::Subject;
use crate::subscription::SubscriptionApi;
use crate::subscription::lists::WAITING_OF_ONE_MAX;
use futures::poll;
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use streams_api::Export;
use streams_kubernetes_fake::{Connection, Server};
use streams_proto::subscription::v1::subscription_service_server::SubscriptionService as _;
use streams_proto::subscription::v1::update_export_request::Change as OfExport;
use streams_proto::subscription::v1::{
    EditProperties, GetExportRequest, ListExportsRequest, ListImportsRequest, Property, UpdateExportRequest,
    UpdateExportResponse,
};
use tokio::time::{Instant, sleep};
use tonic::{Code, Request, Response, Status};

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
    let turn = cluster.api.shared.lists.long_objects.hold("n").await;
    assert_eq!(list("m").await.unwrap(), 0);
    let begun = Instant::now();
    let status = list("n").await.unwrap_err();
    assert_eq!((why(&status).0, why(&status).1.as_str()), (Code::DeadlineExceeded, "STILL_WAITING"));
    assert_eq!(begun.elapsed().as_millis(), 1_900);
    drop(turn);
    assert_eq!(list("n").await.unwrap(), 1);
}

/// Exports at ports 0 and 1 of a PE, of which the second one is long.
fn short_and_long() -> Server {
    let server = Server::new();
    create_job(&server, "out", 1);
    for (port, letters) in [(0, 1), (1, 40_000)] {
        let property =
            |name: &str| json!({"name": name, "type": "rstring", "values": [format!("\"{}\"", "x".repeat(letters))]});
        let stream = json!({"exportOperName": "Out", "properties": [property("a"), property("b")]});
        create_export(&server, "out", 0, port, &json!({"type": "ByProperties", "stream": stream}));
    }
    server
}

/// Gives an export a property of two values of so many letters, within two seconds.
async fn update(
    api: SubscriptionApi<Connection>,
    name: &'static str,
    property: &'static str,
    letters: usize,
) -> Result<Response<UpdateExportResponse>, Status> {
    let value = format!("\"{}\"", "x".repeat(letters));
    let values = vec![value.clone(), value];
    let add = vec![Property { name: property.into(), r#type: "list<rstring>".into(), values }];
    let change = Some(OfExport::Edit(EditProperties { add, ..Default::default() }));
    let (namespace, name) = ("n".to_owned(), name.to_owned());
    let mut request = Request::new(UpdateExportRequest { namespace, name, change, expected_etag: String::new() });
    request.metadata_mut().insert("grpc-timeout", "2S".parse().unwrap());
    api.update_export(request).await
}

#[tokio::test(start_paused = true)]
async fn what_becomes_of_a_long_export_is_decided_in_turn() {
    let mut cluster = Cluster::of(short_and_long());
    let api = cluster.api.clone();
    let update = |name, property, letters| update(api.clone(), name, property, letters);
    // export, what it gets, how many letters that has twice
    let calls = [("out-0-0", "c", 1), ("out-0-0", "d", 40_000), ("out-0-1", "e", 1)];
    let calls = calls.map(|(name, property, letters)| update(name, property, letters));
    let after = update("out-0-1", "f", 1);
    let turn = cluster.api.shared.statuses.long_objects.hold("n").await;
    let mut codes = Vec::new();
    for call in calls {
        codes.push(cluster.answer(call).await.map_err(|status| status.code()).err());
    }
    // It is not even written.
    assert_eq!(codes, [None, Some(Code::DeadlineExceeded), Some(Code::DeadlineExceeded)]);
    assert_eq!(cluster.connection.writes(), 1);
    drop(turn);
    cluster.answer(after).await.unwrap();
    assert_eq!(cluster.connection.writes(), 2);
}

/// Whoever may read may ask for a thousand.
#[tokio::test(start_paused = true)]
async fn a_change_of_a_long_export_waits_for_no_list() {
    let mut cluster = Cluster::of(short_and_long());
    let _turn = cluster.api.shared.lists.long_objects.hold("n").await;
    let call = update(cluster.api.clone(), "out-0-1", "c", 1);
    let export = cluster.answer(call).await.unwrap().export.unwrap();
    assert_eq!((export.name, cluster.connection.writes()), ("out-0-1".to_owned(), 1));
}

#[tokio::test(start_paused = true)]
async fn a_long_export_waits_for_its_turn_as_a_list_does() {
    let cluster = Cluster::of(short_and_long());
    let get = async |name: &str| {
        let mut request = Request::new(GetExportRequest { namespace: "n".into(), name: name.into() });
        request.metadata_mut().insert("grpc-timeout", "2S".parse().unwrap());
        cluster.api.get_export(request).await.map(|answer| answer.into_inner().export.unwrap().name)
    };
    let turn = cluster.api.shared.lists.long_objects.hold("n").await;
    assert_eq!(get("out-0-0").await.unwrap(), "out-0-0");
    let status = get("out-0-1").await.unwrap_err();
    assert_eq!((why(&status).0, why(&status).1.as_str()), (Code::DeadlineExceeded, "STILL_WAITING"));
    drop(turn);
    assert_eq!(get("out-0-1").await.unwrap(), "out-0-1");
}

/// How it stands is of that moment, too.
#[tokio::test(start_paused = true)]
async fn a_long_export_is_shown_as_it_is_when_its_turn_has_come() {
    let mut cluster = Cluster::of(short_and_long());
    let (api, name) = (cluster.api.clone(), "out-0-1");
    let get = || api.get_export(Request::new(GetExportRequest { namespace: "n".into(), name: name.into() }));
    let turn = cluster.api.shared.lists.long_objects.hold("n").await;
    let mut call = get();
    assert!(poll!(&mut call).is_pending());
    cluster.server.edit::<Export>(&key(name), |export| export.spec.application_name = "Another".to_owned());
    cluster.mirrors.deliver_all();
    drop(turn);
    let shown = call.await.unwrap().into_inner().export.unwrap();
    assert_eq!(shown.application, "Another");
    // One that has gone by then is not shown.
    let turn = cluster.api.shared.lists.long_objects.hold("n").await;
    let mut call = get();
    assert!(poll!(&mut call).is_pending());
    cluster.server.remove::<Export>(&key(name));
    cluster.mirrors.deliver_all();
    drop(turn);
    let status = call.await.unwrap_err();
    assert_eq!((why(&status).0, why(&status).1.as_str()), (Code::NotFound, "EXPORT_NOT_FOUND"));
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
    let turn = lists.long_objects.hold("n").await;
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
