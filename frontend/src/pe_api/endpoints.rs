//! Ports that operators open under a name (rule pe-api-5). All calls of a request have the time of one write together.

use super::PeApi;
use super::arriving::{SHORT, Unread};
use super::bodies::Number;
use super::caller::Caller;
use super::refusal::Refusal;
use super::reservations::{ENDPOINTS_MAX, Registrant};
use super::write::within;
use crate::mirrors;
use crate::status_changes::{Change, Changer};
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::Json;
use k8s_openapi::api::core::v1::ServicePort;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;
use streams_api::{ProcessingElement, ProcessingElementSpec, UserEndpoint, names};
use streams_kubernetes::Key;
use utoipa::ToSchema;

/// Where an endpoint is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Endpoint {
    /// Name of the Service of the PE, with its namespace; not read.
    #[serde(default)]
    canonical_name: Option<String>,
    /// The port.
    port: u16,
    /// TCP or UDP.
    #[serde(default)]
    protocol: Option<String>,
}

/// The ports of a PE's Service, by name.
#[utoipa::path(
    get, path = "/api/endpoints/job/{job}/pe/{pe}",
    responses(
        (status = 200, body = Object, description = "ports of the Service, by name"),
        (status = 400, description = "there is no such job"),
        (status = 404, description = "there is no such PE, or no Service of it"),
    ),
)]
pub(super) async fn of_pe(
    State(api): State<PeApi>,
    caller: Caller,
    Path((job, pe)): Path<(String, String)>,
) -> Result<Json<BTreeMap<String, ServicePort>>, Refusal> {
    let (key, element) = api.pe(&caller, &job, Number::of_path_or_absent(&pe)?)?;
    let service = api.mirrors.services.get(&key);
    let service = service.ok_or_else(|| Refusal::Absent(format!("PE {pe} of job {job} has no Service yet")))?;
    let ports = service.spec.as_ref().and_then(|spec| spec.ports.clone()).unwrap_or_default();
    let mut named: BTreeMap<String, ServicePort> =
        ports.into_iter().filter_map(|port| Some((port.name.clone()?, port))).collect();
    for endpoint in element.status.iter().flat_map(|status| &status.endpoints) {
        let name = names::user_port(&endpoint.name);
        named.entry(name.clone()).or_insert_with(|| ServicePort {
            name: Some(name),
            port: endpoint.port.into(),
            protocol: Some(endpoint.protocol.clone()),
            ..ServicePort::default()
        });
    }
    Ok(Json(named))
}

/// Where the endpoint of a job is.
#[utoipa::path(
    get, path = "/api/endpoints/job/{job}/endpoint/{name}",
    responses(
        (status = 200, body = Endpoint),
        (status = 400, description = "there is no such job"),
        (status = 404, description = "no PE of the job has registered it"),
    ),
)]
pub(super) async fn of_job(
    State(api): State<PeApi>,
    caller: Caller,
    Path((job, name)): Path<(String, String)>,
) -> Result<Json<Endpoint>, Refusal> {
    api.job_or_rest(&caller, &job)?;
    let found = registered(&api, &caller, &job, &name);
    let (element, endpoint) = found.ok_or_else(|| Refusal::Absent(format!("job {job} has no endpoint {name}")))?;
    Ok(Json(Endpoint {
        canonical_name: Some(format!("{}.{}", element.spec.service_name(), caller.namespace)),
        port: endpoint.port,
        protocol: Some(endpoint.protocol),
    }))
}

/// A PE opens a port under a name. The same again changes nothing.
#[utoipa::path(
    put, path = "/api/endpoints/job/{job}/pe/{pe}/endpoint/{name}", request_body = Endpoint,
    responses(
        (status = 204, description = "registered"),
        (status = 400, description = "no such job; another PE has the name; the port is taken, or cannot be one"),
        (status = 403, description = "the caller is no PE of this job"),
        (status = 404, description = "there is no such PE"),
    ),
)]
pub(super) async fn register(
    State(api): State<PeApi>,
    caller: Caller,
    Path((job, pe, name)): Path<(String, String, String)>,
    body: Unread,
) -> Result<StatusCode, Refusal> {
    let pe = Number::of_path_or_absent(&pe)?;
    // A PE may be large: nobody has one while a body is long in coming.
    let key = shown_beside(&api, &caller, (&job, pe)).map(|element| Key::of(&*element))?;
    let (text, _memory) = body.text(SHORT).await?;
    let asked: Endpoint =
        serde_json::from_str(&text).map_err(|error| Refusal::Invalid(format!("the body is no endpoint: {error}")))?;
    let endpoint = endpoint(&name, &asked)?;
    within(registered_for(&api, &caller, (&job, pe), &key, endpoint)).await?;
    // The mirror has it; whoever asks next finds it, too.
    api.endpoint_names.look_at(&key);
    Ok(StatusCode::NO_CONTENT)
}

/// A PE of a job that the caller speaks beside.
fn shown_beside(api: &PeApi, caller: &Caller, (job, pe): (&str, u64)) -> Result<Arc<ProcessingElement>, Refusal> {
    let (_, element) = api.pe(caller, job, pe)?;
    caller.speaks_beside(&element).map(|()| element)
}

/// Registers an endpoint for a PE of a job, which has this key. A PE may be large: nobody has one during a call.
async fn registered_for(
    api: &PeApi,
    caller: &Caller,
    (job, pe): (&str, u64),
    key: &Key,
    endpoint: UserEndpoint,
) -> Result<(), Refusal> {
    let (name, by) = (&endpoint.name, caller.changer(job));
    let other = registered(api, caller, job, name).map(|(other, _)| (Key::of(&*other), other.spec.id));
    if let Some((other, id)) = other
        && id != pe
        && still_has(api, &other, name, &by).await?
    {
        return Err(Refusal::Invalid(format!("PE {id} of job {job} has endpoint {name} already")));
    }
    let plan = |found: &ProcessingElement| {
        let change = registration(found, &endpoint);
        let is_change = change(found).map(|changed| changed.is_some());
        (is_change, change, has(found, name), Registrant::of(found))
    };
    let mut planned = shown_beside(api, caller, (job, pe)).map(|element| plan(&element))?;
    // What is so already, or is refused, may be so only in the mirror.
    if !matches!(planned.0, Ok(true)) {
        planned = api.changes.newest(key, &by).await.map(|newest| plan(&newest))?;
    }
    let (is_change, change, has_name, element) = planned;
    if has_name {
        api.changes.processing_element(key, Change::new(change).by(by, 0)).await
    } else {
        // What is refused anyway reserves nothing.
        is_change?;
        api.changes.add_endpoint(&element, name, Change::new(change).by(by, 0)).await
    }
}

/// What becomes of this PE, as it was found, when it registers an endpoint.
fn registration(
    found: &ProcessingElement,
    endpoint: &UserEndpoint,
) -> impl Fn(&ProcessingElement) -> Result<Option<ProcessingElement>, Refusal> + Send + Sync + use<> {
    let (uid, has_name, endpoint) = (found.metadata.uid.clone(), has(found, &endpoint.name), endpoint.clone());
    move |before| {
        if before.metadata.uid != uid {
            let ProcessingElementSpec { id, job_name, .. } = &before.spec;
            return Err(Refusal::Absent(format!("PE {id} of job {job_name} is another one by now")));
        }
        if let Some(taken) = taken(before, &endpoint) {
            return Err(Refusal::Invalid(format!("port {} is {taken}", endpoint.port)));
        }
        let mut status = before.status.clone().unwrap_or_default();
        let endpoints = &mut status.endpoints;
        let count = endpoints.len();
        match endpoints.iter_mut().find(|other| other.name == endpoint.name) {
            Some(same) if *same == endpoint => return Ok(None),
            Some(other) => *other = endpoint.clone(),
            None if count >= ENDPOINTS_MAX => {
                return Err(Refusal::Invalid(format!("a PE has {ENDPOINTS_MAX} endpoints at most")));
            }
            // Somebody has given the name back meanwhile.
            None if has_name => return Err(Refusal::Later(format!("endpoint {} is being removed", endpoint.name))),
            None => endpoints.push(endpoint.clone()),
        }
        Ok(Some(ProcessingElement { status: Some(status), ..before.clone() }))
    }
}

/// Whether a PE has an endpoint of this name.
fn has(element: &ProcessingElement, name: &str) -> bool {
    element.status.iter().flat_map(|status| &status.endpoints).any(|endpoint| endpoint.name == name)
}

/// Whether a PE that the mirror shows with an endpoint of this name has it.
async fn still_has(api: &PeApi, element: &Key, name: &str, by: &Changer) -> Result<bool, Refusal> {
    match api.changes.newest(element, by).await {
        Ok(now) => Ok(has(&now, name)),
        Err(Refusal::Absent(_)) => Ok(false),
        Err(refusal) => Err(refusal),
    }
}

/// A PE closes a port that it has opened under a name.
#[utoipa::path(
    delete, path = "/api/endpoints/job/{job}/pe/{pe}/endpoint/{name}",
    responses(
        (status = 204, description = "gone"),
        (status = 400, description = "there is no such job, or no such endpoint"),
        (status = 403, description = "the caller is no PE of this job"),
        (status = 404, description = "there is no such PE"),
    ),
)]
pub(super) async fn unregister(
    State(api): State<PeApi>,
    caller: Caller,
    Path((job, pe, name)): Path<(String, String, String)>,
) -> Result<StatusCode, Refusal> {
    let (key, shown) = api.pe(&caller, &job, Number::of_path_or_absent(&pe)?)?;
    caller.speaks_beside(&shown)?;
    within(unregistered(&api, &key, shown, &name, caller.changer(&job))).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Removes an endpoint of a PE, as the mirror shows that.
async fn unregistered(
    api: &PeApi,
    key: &Key,
    shown: Arc<ProcessingElement>,
    name: &str,
    by: Changer,
) -> Result<(), Refusal> {
    // The mirror may not show yet what another replica has written.
    let element = match Some(shown).filter(|shown| has(shown, name)) {
        Some(shown) => shown,
        None => Arc::new(api.changes.newest(key, &by).await?),
    };
    let (uid, of_task) = (element.metadata.uid.clone(), name.to_owned());
    let change = move |before: &ProcessingElement| {
        let mut status = before.status.clone().unwrap_or_default();
        let count = status.endpoints.len();
        status.endpoints.retain(|endpoint| endpoint.name != of_task);
        if status.endpoints.len() == count || before.metadata.uid != uid {
            let ProcessingElementSpec { id, job_name, .. } = &before.spec;
            return Err(Refusal::Invalid(format!("PE {id} of job {job_name} has no endpoint {of_task}")));
        }
        Ok(Some(ProcessingElement { status: Some(status), ..before.clone() }))
    };
    // What is refused anyway costs no more calls.
    change(&element)?;
    let registrant = Registrant::of(&element);
    drop(element);
    api.changes.remove_endpoint(&registrant, name, Change::new(change).by(by, 0)).await
}

/// The PE of a job that has registered this name.
fn registered(api: &PeApi, caller: &Caller, job: &str, name: &str) -> Option<(Arc<ProcessingElement>, UserEndpoint)> {
    let job_key = Key::new(&caller.namespace, job);
    api.endpoint_names.find(&job_key, name).into_iter().find_map(|key| {
        let element = api.mirrors.processing_elements.get(&key)?;
        let is_of_job = element.spec.job_name == job && mirrors::job_of(&*element).as_ref() == Some(&job_key);
        let mut endpoints = element.status.iter().filter(|_| is_of_job).flat_map(|status| &status.endpoints);
        let found = endpoints.find(|endpoint| endpoint.name == name)?.clone();
        Some((element, found))
    })
}

/// The endpoint, if a Service can have such a port.
fn endpoint(name: &str, asked: &Endpoint) -> Result<UserEndpoint, Refusal> {
    if !names::is_endpoint(name) {
        let words = "lower-case letters, digits and single hyphens, at most 59, not a hyphen at the end";
        return Err(Refusal::Invalid(format!("the name of an endpoint has {words}: {}", name.escape_debug())));
    }
    if asked.port == 0 {
        return Err(Refusal::Invalid("a port is a number from 1 to 65535".to_owned()));
    }
    let protocol = asked.protocol.as_deref().unwrap_or("TCP").to_ascii_uppercase();
    if !matches!(&*protocol, "TCP" | "UDP") {
        return Err(Refusal::Invalid("the protocol of an endpoint is TCP or UDP".to_owned()));
    }
    Ok(UserEndpoint { name: name.to_owned(), port: asked.port, protocol })
}

/// Who has the port of the endpoint already, if not the endpoint itself.
fn taken(element: &ProcessingElement, endpoint: &UserEndpoint) -> Option<String> {
    let number = u32::from(endpoint.port);
    let is_of_system = match &*endpoint.protocol {
        "UDP" => matches!(number, 10_000 | 10_001),
        _ => number == 9_696 || element.spec.input_ports.iter().any(|port| 10_000 + port == number),
    };
    if is_of_system {
        return Some("a port of the runtime".to_owned());
    }
    let mut others = element.status.iter().flat_map(|status| &status.endpoints);
    let is_it = |other: &&UserEndpoint| {
        (other.port, &other.protocol) == (endpoint.port, &endpoint.protocol) && other.name != endpoint.name
    };
    others.find(is_it).map(|other| format!("that of endpoint {}", other.name))
}
