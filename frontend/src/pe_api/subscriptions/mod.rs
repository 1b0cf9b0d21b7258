//! Routes of PEs, and what they export and import, to be read and changed while they run (rule pe-api-6).
//!
//! | Module | What it does |
//! |---|---|
//! | `routes` | documents of routes, few at a time |
//! | [`exports`] | properties of exported streams |
//! | [`imports`] | subscriptions and filters |
//!
//! Knows: paths, objects of both kinds, the board. Must not know: what matches what, what may be changed
//! ([`run_time`](crate::run_time)).

pub(super) mod exports;
pub(super) mod imports;
mod routes;

pub(super) use self::routes::RouteDocuments;
use super::PeApi;
use super::bodies::Number;
use super::caller::Caller;
use super::refusal::Refusal;
use crate::broker::texts;
use axum::extract::{Path, State};
use axum::http::Method;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use std::sync::Arc;
use streams_api::ProcessingElement;
use streams_broker::Pe;
use streams_kubernetes::ownership::is_controlled_by;

/// Where the tuples of a PE's exports go, and where those of its imports come from.
#[utoipa::path(
    get, path = "/api/subscriptions/job/{job}/pe/{pe}",
    responses(
        (status = 200, body = Object, description = "the routes; empty ones, if nothing matches"),
        (status = 400, description = "there is no such job"),
        (status = 404, description = "there is no such PE"),
        (status = 503, description = "the routes are not known yet, or too many, or too much is asked for"),
    ),
)]
pub(super) async fn routes_of_pe(
    State(api): State<PeApi>,
    caller: Caller,
    method: Method,
    Path((job, pe)): Path<(String, String)>,
) -> Result<impl IntoResponse, Refusal> {
    // Nothing matches any more what a job has left behind. Its PEs keep the routes that they have if they hear 400.
    api.job(&caller, &job)?;
    // A pod that nobody knows yet must not be taken for somebody who may be told all: it asks when it starts.
    let caller = api.caller_soon(caller).await;
    let (_, element) = api.pe(&caller, &job, Number::of_path(&pe)?)?;
    let pe = Pe { job: Arc::from(&*job), id: element.spec.id };
    if !api.runs_known_text(&caller, &element) {
        return Err(Refusal::Later("it is not known yet which ports the pod has".to_owned()));
    }
    // It may be large, and the turn be long in coming.
    drop(element);
    let asker = api.callers.asker(caller.address);
    let speaker = caller.speaks_as(&job, pe.id).ok();
    let created = speaker.and_then(|speaker| speaker.pod_created);
    let made = api.route_documents.make(&api.boards, &caller.namespace, (&pe, created), asker).await;
    let (document, left_out) = made?;
    // Who asks for a head only has heard nothing. An answer counts when it is made.
    if method == Method::GET && speaker.is_some() {
        api.boards.has_answered(&caller.namespace, &pe, left_out);
    }
    Ok(([(CONTENT_TYPE, "application/json")], document))
}

impl PeApi {
    /// Whether it is known which text the pod of a PE runs, if the caller is one: it ends if it is told of an output
    /// port that it does not have (rule import-5).
    fn runs_known_text(&self, caller: &Caller, element: &ProcessingElement) -> bool {
        let pods = self.callers.pods(caller.address);
        let pods = pods.iter().filter_map(|pod| self.mirrors.pods.get(pod));
        let mut own = pods.filter(|pod| is_controlled_by(&pod.metadata, element));
        own.all(|pod| texts::is_known(&pod.metadata, element))
    }
}
