//! The API of external metrics (`external.metrics.k8s.io`), served by the test and registered at the API server as an
//! adapter such as that of Prometheus is.
//!
//! The API server passes requests on to it: an `APIService` names a Service, and this one stands for loopback.

use super::https;
use crate::support::control_plane;
use anyhow::{Context as _, Result, ensure};
use axum::Router;
use axum::extract::Request;
use axum::response::IntoResponse;
use http::StatusCode;
use http::header::CONTENT_TYPE;
use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{Service, ServicePort, ServiceSpec};
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::{APIService, APIServiceSpec, ServiceReference};
use kube::Client;
use kube::api::{Api, DeleteParams, ObjectMeta, PostParams};
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use streams_control_plane::wait::eventually;

const GROUP: &str = "external.metrics.k8s.io";
const VERSION: &str = "v1beta1";

/// What the metrics say: values by namespace, name and labels (`region=Clean`).
type Values = Arc<Mutex<BTreeMap<(String, String, String), u32>>>;

/// An adapter of metrics.
pub(super) struct MetricsApi {
    values: Values,
    _server: https::Server,
}

impl MetricsApi {
    /// Runs `body` with one that the API server knows. It is taken away again however `body` ends: an API whose server
    /// is gone spoils the discovery of everybody.
    pub(super) async fn with(namespace: &str, body: impl AsyncFnOnce(&Self) -> Result<()>) -> Result<()> {
        let client = control_plane().await?.client().await?;
        let values = Values::default();
        let answering = Arc::clone(&values);
        let router = Router::new().fallback(move |request: Request| {
            let values = Arc::clone(&answering);
            async move {
                match answer(&values, &request) {
                    Some(body) => ([(CONTENT_TYPE, "application/json")], body.to_string()).into_response(),
                    None => StatusCode::NOT_FOUND.into_response(),
                }
            }
        });
        // The name by which the API server knows a Service.
        let server = https::serve(&format!("metrics.{namespace}.svc"), router).await?;
        let port = server.address.port();
        let registered = register(&client, namespace, port, &server.certificate).await;
        let it = Self { values, _server: server };
        let result = match registered {
            Ok(()) => body(&it).await,
            Err(error) => Err(error),
        };
        let services = Api::<APIService>::all(client);
        let removed = services.delete(&format!("{VERSION}.{GROUP}"), &DeleteParams::default()).await;
        result?;
        removed.context("the metrics API stays registered").map(drop)
    }

    /// From now on the metric has this value.
    pub(super) fn says(&self, namespace: &str, metric: &str, labels: &str, value: u32) {
        let key = (namespace.to_owned(), metric.to_owned(), labels.to_owned());
        self.values.lock().insert(key, value);
    }
}

/// Tells the API server of it, and waits until it passes requests on.
async fn register(client: &Client, namespace: &str, port: u16, authority: &str) -> Result<()> {
    let service = Service {
        metadata: ObjectMeta { name: Some("metrics".to_owned()), ..ObjectMeta::default() },
        spec: Some(ServiceSpec {
            type_: Some("ExternalName".to_owned()),
            external_name: Some("127.0.0.1".to_owned()),
            ports: Some(vec![ServicePort { port: i32::from(port), ..ServicePort::default() }]),
            ..ServiceSpec::default()
        }),
        ..Service::default()
    };
    Api::<Service>::namespaced(client.clone(), namespace).create(&PostParams::default(), &service).await?;
    let api = APIService {
        metadata: ObjectMeta { name: Some(format!("{VERSION}.{GROUP}")), ..ObjectMeta::default() },
        spec: Some(APIServiceSpec {
            group: Some(GROUP.to_owned()),
            version: Some(VERSION.to_owned()),
            group_priority_minimum: 100,
            version_priority: 100,
            ca_bundle: Some(ByteString(authority.as_bytes().to_vec())),
            service: Some(ServiceReference {
                name: Some("metrics".to_owned()),
                namespace: Some(namespace.to_owned()),
                port: Some(i32::from(port)),
            }),
            ..APIServiceSpec::default()
        }),
        status: None,
    };
    let services = Api::<APIService>::all(client.clone());
    services.create(&PostParams::default(), &api).await?;
    eventually("the API of external metrics is available", super::fixture::WITHIN, || async {
        let status = services.get(&format!("{VERSION}.{GROUP}")).await?.status.unwrap_or_default();
        let conditions = status.conditions.unwrap_or_default();
        ensure!(conditions.iter().any(|c| c.type_ == "Available" && c.status == "True"), "{conditions:?}");
        Ok(())
    })
    .await
}

/// What the API has at the path of the request: its resources, or the value of a metric.
fn answer(values: &Values, request: &Request) -> Option<Value> {
    let url = reqwest::Url::parse(&format!("https://metrics{}", request.uri())).ok()?;
    let path: Vec<&str> = url.path().trim_matches('/').split('/').collect();
    let group_version = format!("{GROUP}/{VERSION}");
    match path[..] {
        ["apis", GROUP, VERSION] => {
            let resource =
                json!({"name": "metrics", "namespaced": true, "kind": "ExternalMetricValueList", "verbs": ["get"]});
            Some(json!({
                "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version, "resources": [resource],
            }))
        }
        ["apis", GROUP, VERSION, "namespaces", namespace, metric] => {
            let labels =
                url.query_pairs().find(|(name, _)| name == "labelSelector").map(|(_, value)| value.into_owned());
            let key = (namespace.to_owned(), metric.to_owned(), labels.unwrap_or_default());
            let value = *values.lock().get(&key)?;
            let item = json!({
                "metricName": metric, "metricLabels": {}, "timestamp": Timestamp::now(), "value": value.to_string(),
            });
            Some(json!({
                "kind": "ExternalMetricValueList", "apiVersion": group_version, "metadata": {}, "items": [item],
            }))
        }
        _ => None,
    }
}
