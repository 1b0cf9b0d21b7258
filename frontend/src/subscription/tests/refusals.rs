//! Why calls are refused or end without an answer.

use super::{Cluster, EXPORT, edit_streams, number, of_export, of_import, set, why};
use crate::subscription::{CALLS_MAX, CALLS_OF_ONE_MAX};
use kube::Client;
use kube::client::Body;
use serde_json::json;
use std::convert::Infallible;
use std::future::pending;
use std::time::Duration;
use streams_api::Export;
use streams_kubernetes::watch::{Scope, Timings, trimmed};
use streams_kubernetes_fake::Fault;
use streams_proto::subscription::v1::subscription_service_server::SubscriptionService as _;
use streams_proto::subscription::v1::{
    GetExportRequest, GetImportRequest, ListExportsRequest, ListImportsRequest, UpdateExportRequest,
    UpdateImportRequest,
};
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;
use tonic::{Code, Request};
use tonic_types::StatusExt as _;

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

#[tokio::test]
async fn nothing_is_said_or_written_of_a_namespace_that_may_not_be_read() {
    let cluster = Cluster::new();
    // Whatever kind it is.
    cluster.mirrors.mirrors.pods.refuse("n");
    let (api, n, x) = (&cluster.api, || "n".to_owned(), || EXPORT.to_owned());
    let statuses = [
        api.get_export(Request::new(GetExportRequest { namespace: n(), name: x() })).await.map(drop),
        api.get_import(Request::new(GetImportRequest { namespace: n(), name: x() })).await.map(drop),
        api.list_exports(Request::new(ListExportsRequest { namespace: n(), ..Default::default() })).await.map(drop),
        api.list_imports(Request::new(ListImportsRequest { namespace: n(), ..Default::default() })).await.map(drop),
        api.update_export(Request::new(of_export(set(&[])))).await.map(drop),
        api.update_import(Request::new(of_import(edit_streams(None, Some("x"))))).await.map(drop),
    ];
    for status in statuses {
        let status = status.unwrap_err();
        assert_eq!((why(&status).0, why(&status).1.as_str()), (Code::Unavailable, "NOT_CURRENT"));
        assert!(status.message().contains("namespace n: Pod"), "{status:?}");
    }
    assert_eq!(cluster.connection.calls(), 0);
    cluster.mirrors.mirrors.pods.permit("n");
    cluster.mirrors.mirrors.pods.refuse("m");
    api.get_export(Request::new(GetExportRequest { namespace: n(), name: x() })).await.unwrap();
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
