//! What callers may send to the elasticity API and to the subscription API (rules elasticity-13 and import-9).
//!
//! Input: a byte that says what becomes of requests to resize, then calls. Of each: a byte, the length of what follows
//! in three bytes, and a message, which may be longer than any bound of the APIs. Of the byte, the lowest four bits say
//! which of the [`METHODS`] is called, the next two who calls; with [`REPAIR`] the message has names of what there is
//! where it has none, with [`BODY`] it is no message, but all that is sent. What it checks:
//!
//! * an error is one of those of the contract, with the details that this says, and fits into 8 KiB of trailers;
//! * what only reads, or is refused, writes nothing;
//! * the same read has the same answer; whoever asks again with a key hears of the same request; a change that was made
//!   is not made again by whoever has its etag; what is withdrawn stays so;
//! * page by page there is the same as at once;
//! * a stream tells once what a read shows, and ends where that has ended. Nothing changes while one is open, so what
//!   streams tell of changes is looked at by tests only.
//!
//! All that the listener does behind its bounds is done: tokens, rights, messages. The API server is the fake one, and
//! there is no fusion service. Boards have turns while a call waits, and are settled before the next one.
//!
//! Knows: the contracts. Must not know: how the APIs do anything.

mod api_server;
mod checks;
mod contract;
#[cfg(test)]
pub(crate) mod seeds;

use self::api_server::{ALL, NOBODY, SOME};
use self::checks::check;
use self::contract::{Contract, ELASTICITY, SUBSCRIPTION, Told};
use crate::cluster::{following, settle};
use axum::Router;
use axum::body::{Body, HttpBody as _};
use axum::http::{HeaderMap, Request};
use prost::Message;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::time::Duration;
use streams_frontend::grpc_apis::of_mirrors;
use streams_frontend::mirrors::Mirrors;
use streams_kubernetes::metrics::Metrics;
use streams_kubernetes_fake::Server;
use streams_proto::elasticity::v1::resize_request::DesiredWidth;
use streams_proto::elasticity::v1::{
    GetRegionRequest, GetResizeRequest, ListRegionsRequest, ResizeRequest, ResizeResponse, WatchRegionsRequest,
};
use streams_proto::subscription::v1::{GetExportRequest, GetImportRequest, UpdateExportRequest, UpdateImportRequest};
use tokio::time::{Instant, sleep};
use tonic::{Code, Status};
use tower::ServiceExt as _;

/// The lowest four bits of the byte of a call, and where those are that say who calls.
pub(crate) const METHOD: u8 = 15;
pub(crate) const CALLER: u32 = 4;
/// Names are put into the message.
pub(crate) const REPAIR: u8 = 1 << 6;
/// It is no message.
pub(crate) const BODY: u8 = 1 << 7;

/// All methods. The first ones are of the elasticity API.
pub(crate) const METHODS: [&str; 14] = [
    "Resize",
    "GetRegion",
    "ListRegions",
    "GetResize",
    "ListResizes",
    "Cancel",
    "WatchResize",
    "WatchRegions",
    "GetExport",
    "ListExports",
    "UpdateExport",
    "GetImport",
    "ListImports",
    "UpdateImport",
];
const OF_ELASTICITY: usize = 8;
const CALLERS: [&str; 4] = [ALL, ALL, SOME, NOBODY];

/// Most calls of an input.
const CALLS: usize = 6;
/// How long a caller waits, as it says, and longer than any answer takes.
const TIME: &str = "1S";
const WITHIN: Duration = Duration::from_secs(60);
/// Most bytes of trailers that many clients take, and what HTTP/2 counts of each beside its name and value.
const TRAILERS: usize = 8 << 10;
const FIELD: usize = 32;

/// A call.
#[derive(Clone, Debug)]
struct Call {
    method: &'static str,
    caller: &'static str,
    body: Vec<u8>,
    /// The message in it, if one can be read.
    message: Option<Vec<u8>>,
}

/// What a caller hears.
#[derive(Debug, PartialEq)]
struct Answer {
    code: Code,
    text: String,
    told: Told,
    messages: Vec<Vec<u8>>,
}

/// The APIs, and what they talk to.
struct Apis {
    server: Server,
    router: Router,
    mirrors: Vec<Box<dyn FnMut()>>,
    /// Gives a board its turn.
    turn: Box<dyn Fn() -> bool>,
    fate: u8,
    /// The version of the server that all have seen.
    seen: u64,
}

/// Runs one input; panics when something does not hold.
pub fn run(data: &[u8]) {
    let Some((fate, calls)) = data.split_first() else { return };
    let calls = read(calls);
    if calls.is_empty() {
        return;
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let mut apis = Apis::new(*fate);
        for call in calls {
            check(&mut apis, &call).await;
        }
    });
}

fn read(mut data: &[u8]) -> Vec<Call> {
    let mut calls = Vec::new();
    while calls.len() < CALLS
        && let Some((&[kind, high, middle, low], rest)) = data.split_first_chunk::<4>()
    {
        let length = usize::try_from(u32::from_be_bytes([0, high, middle, low])).unwrap();
        let (content, rest) = rest.split_at(length.min(rest.len()));
        calls.push(Call::of(kind, content));
        data = rest;
    }
    calls
}

impl Call {
    fn of(kind: u8, content: &[u8]) -> Self {
        let method = METHODS[usize::from(kind & METHOD) % METHODS.len()];
        let caller = CALLERS[usize::from(kind >> CALLER) % CALLERS.len()];
        if kind & BODY != 0 {
            return Self { method, caller, body: content.to_vec(), message: None };
        }
        let filled = filled(method, content);
        let message = filled.map(|filled| if kind & REPAIR != 0 { filled } else { content.to_vec() });
        let body = framed(message.as_deref().unwrap_or(content));
        Self { method, caller, body, message }
    }

    /// The same with another message.
    fn with(&self, message: &impl Message) -> Self {
        let message = message.encode_to_vec();
        Self { body: framed(&message), message: Some(message), ..self.clone() }
    }

    fn contract(&self) -> &'static Contract {
        if METHODS[..OF_ELASTICITY].contains(&self.method) { &ELASTICITY } else { &SUBSCRIPTION }
    }

    /// It is to change something.
    fn is_change(&self) -> bool {
        let is_dry_run = |message: &[u8]| ResizeRequest::decode(message).is_ok_and(|request| request.dry_run);
        match self.method {
            "Resize" => !self.message.as_deref().is_some_and(is_dry_run),
            method => ["Cancel", "UpdateExport", "UpdateImport"].contains(&method),
        }
    }
}

/// A message as gRPC sends it.
fn framed(message: &[u8]) -> Vec<u8> {
    let length = u32::try_from(message.len()).unwrap();
    [&[0][..], &length.to_be_bytes(), message].concat()
}

/// The messages of an answer.
fn unframed(mut data: &[u8]) -> Vec<Vec<u8>> {
    let mut messages = Vec::new();
    while let Some((&[flag, length @ ..], rest)) = data.split_first_chunk::<5>() {
        assert_eq!(flag, 0, "compressed, though nobody has asked for that");
        let length = usize::try_from(u32::from_be_bytes(length)).unwrap();
        let (message, rest) = rest.split_at_checked(length).expect("a whole message");
        messages.push(message.to_vec());
        data = rest;
    }
    assert!(data.is_empty(), "a part of a message");
    messages
}

/// The message with names of what there is where it has none; none, if it cannot be read. Messages of one form are one
/// case.
fn filled(method: &str, message: &[u8]) -> Option<Vec<u8>> {
    fn with<M: Message + Default>(message: &[u8], fill: impl FnOnce(&mut M)) -> Option<Vec<u8>> {
        let mut message = M::decode(message).ok()?;
        fill(&mut message);
        Some(message.encode_to_vec())
    }
    fn name(text: &mut String, otherwise: &str) {
        if text.is_empty() {
            otherwise.clone_into(text);
        }
    }
    match method {
        "Resize" => with::<ResizeRequest>(message, |request| {
            name(&mut request.namespace, "n");
            name(&mut request.job, "a");
            if request.regions.is_empty() {
                request.regions.push(DesiredWidth { width: 3, ..DesiredWidth::default() });
            }
            request.regions.iter_mut().for_each(|wanted| name(&mut wanted.region, "R"));
        }),
        "GetRegion" => with::<GetRegionRequest>(message, |request| {
            name(&mut request.namespace, "n");
            name(&mut request.job, "a");
            name(&mut request.region, "R");
        }),
        "GetResize" | "Cancel" | "WatchResize" => with::<GetResizeRequest>(message, |request| {
            let named = request.name.get_or_insert_default();
            name(&mut named.namespace, "n");
            if named.idempotency_key.is_empty() {
                name(&mut named.request, "a-request-0");
            } else {
                name(&mut named.job, "a");
            }
        }),
        "WatchRegions" => with::<WatchRegionsRequest>(message, |request| name(&mut request.namespace, "n")),
        "GetExport" => with::<GetExportRequest>(message, |request| {
            name(&mut request.namespace, "n");
            name(&mut request.name, "a-1-0");
        }),
        "UpdateExport" => with::<UpdateExportRequest>(message, |request| {
            name(&mut request.namespace, "n");
            name(&mut request.name, "a-1-0");
        }),
        "GetImport" => with::<GetImportRequest>(message, |request| {
            name(&mut request.namespace, "n");
            name(&mut request.name, "a-0-1");
        }),
        "UpdateImport" => with::<UpdateImportRequest>(message, |request| {
            name(&mut request.namespace, "n");
            name(&mut request.name, "a-0-1");
        }),
        _ => with::<ListRegionsRequest>(message, |request| name(&mut request.namespace, "n")),
    }
}

impl Apis {
    /// They need the runtime around.
    fn new(fate: u8) -> Self {
        let server = Server::new();
        api_server::fill(&server);
        let (metrics, connection) = (Metrics::new("fuzzing"), server.connect());
        let mirrors = Mirrors::new(&metrics);
        let (router, turn) = of_mirrors(connection.clone(), api_server::client(&connection), &mirrors, &metrics);
        let (mirrors, seen) = (following(&server, &mirrors), server.version());
        settle(&turn);
        Self { server, router, mirrors, turn: Box::new(turn), fate, seen }
    }

    /// Lets everybody see what was written.
    fn follow(&mut self) {
        while self.seen != self.server.version() {
            self.seen = self.server.version();
            api_server::decide(&self.server, self.fate);
            self.mirrors.iter_mut().for_each(|follow| follow());
        }
    }

    /// What a call is answered; others do their part while it waits.
    async fn answer(&mut self, call: &Call) -> Answer {
        let request = Request::post(format!("/{}/{}", call.contract().service, call.method))
            .header("content-type", "application/grpc")
            .header("te", "trailers")
            .header("grpc-timeout", TIME)
            .header("authorization", format!("Bearer {}", call.caller))
            .body(Body::from(call.body.clone()))
            .unwrap();
        let mut answered = pin!(sent(self.router.clone(), request));
        let until = Instant::now() + WITHIN;
        let (head, data) = loop {
            tokio::select! {
                biased;
                answered = &mut answered => break answered,
                () = sleep(Duration::from_millis(10)) => {
                    (self.turn)();
                    self.follow();
                }
            }
            assert!(Instant::now() < until, "{call:?}: no answer");
        };
        // What was written late is written before the next call.
        self.follow();
        settle(&*self.turn);
        let size: usize = head.iter().map(|(name, value)| name.as_str().len() + value.len() + FIELD).sum();
        let status = Status::from_header_map(&head).expect("a status");
        assert!(size <= TRAILERS, "{call:?}: {size} bytes of trailers: {status:?}");
        let told = call.contract().check(&status, call.message.is_some());
        let messages = unframed(&data);
        let is_stream = call.method.starts_with("Watch");
        let expected = usize::from(status.code() == Code::Ok);
        assert!(is_stream || messages.len() == expected, "{call:?}: {} messages, {status:?}", messages.len());
        Answer { code: status.code(), text: status.message().to_owned(), told, messages }
    }

    /// The same, of a call that is answered well and writes nothing.
    async fn answer_again(&mut self, call: &Call) -> Answer {
        let before = self.server.version();
        let answer = self.answer(call).await;
        assert_eq!(answer.code, Code::Ok, "{call:?}: {answer:?}");
        assert_eq!(self.server.version(), before, "{call:?}: something was written");
        answer
    }
}

/// Sends a request. Gives where the status is, and the bytes of the answer.
async fn sent(router: Router, request: Request<Body>) -> (HeaderMap, Vec<u8>) {
    let (head, mut body) = router.oneshot(request).await.expect("infallible").into_parts();
    let (mut data, mut trailers) = (Vec::new(), None);
    while let Some(frame) = poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await {
        match frame.expect("a frame").into_data() {
            Ok(part) => data.extend_from_slice(&part),
            Err(frame) => trailers = frame.into_trailers().ok(),
        }
    }
    (trailers.unwrap_or(head.headers), data)
}

impl Answer {
    /// The only message.
    fn message<M: Message + Default>(&self) -> M {
        M::decode(self.messages[0].as_slice()).expect("a message of this kind")
    }

    /// The request to resize that it names.
    fn request(&self) -> String {
        match self.code {
            Code::Ok => self.message::<ResizeResponse>().request,
            _ => self.told.metadata.get("request").cloned().unwrap_or_default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use streams_proto::subscription::v1::GetExportResponse;

    /// A call of who may do everything, which says nothing.
    fn call(method: &str) -> Call {
        let kind = METHODS.iter().position(|known| *known == method).expect("a method");
        Call::of(u8::try_from(kind).unwrap() | REPAIR, &[])
    }

    /// Else nothing of the rest would be seen.
    #[tokio::test(start_paused = true)]
    async fn a_call_of_each_method_gets_as_far_as_it_can() {
        for method in METHODS {
            // The streams end with the time of their callers, and the changes say nothing.
            let expected = match method {
                "WatchResize" | "WatchRegions" => Code::DeadlineExceeded,
                "UpdateExport" | "UpdateImport" => Code::InvalidArgument,
                _ => Code::Ok,
            };
            // The widths of requests are in force.
            let mut apis = Apis::new(2);
            let answer = apis.answer(&call(method)).await;
            assert_eq!(answer.code, expected, "{method}: {answer:?}");
        }
    }

    /// What is refused before it is looked at shows nothing of what it was made for.
    #[tokio::test(start_paused = true)]
    async fn the_calls_of_each_seed_get_as_far_as_they_should() {
        for (number, seed) in seeds::all().into_iter().enumerate() {
            // `fuzz/run` would cut it.
            assert!(seed.input.len() <= 128 << 10, "seed {number}: {} bytes", seed.input.len());
            let (fate, calls) = seed.input.split_first().expect("a fate");
            let (mut apis, mut codes) = (Apis::new(*fate), Vec::new());
            for call in read(calls) {
                codes.push(check(&mut apis, &call).await);
            }
            assert_eq!(codes, seed.codes, "seed {number}");
        }
    }

    /// A long export is looked at in a turn, and what it matches is tried in turns then.
    #[tokio::test(start_paused = true)]
    async fn what_a_long_export_matches_is_known_before_the_next_call() {
        let mut apis = Apis::new(0);
        for call in read(&seeds::long_texts().input[1..]) {
            check(&mut apis, &call).await;
        }
        let shown = apis.answer(&call("GetExport")).await.message::<GetExportResponse>().export.expect("an export");
        assert_eq!(shown.importers, ["a-0-1"]);
    }
}
