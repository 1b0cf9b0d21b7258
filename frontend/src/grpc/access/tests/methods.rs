//! No method of any service is carried out for whoever has no token, or no right: all that the contract has are tried.

use super::{Fake, How, reason};
use crate::call_figures::ServedCalls;
use crate::elasticity::Elasticity;
use crate::elasticity::tests::a_service;
use crate::elasticity::tests::asking::{made_up, over_slow};
use crate::grpc::access::Access;
use crate::grpc::access::guarded::Guarded;
use crate::grpc::server::{self, Services};
use crate::grpc::subject::Subject;
use crate::grpc::transport::{self, BLOCK, Bounds, REQUEST_MAX};
use crate::mirrors::Mirrors;
use crate::subscription::tests::an_api;
use axum::body::Body as AnyBody;
use futures::stream::FuturesUnordered;
use futures::{FutureExt as _, StreamExt as _};
use http::HeaderValue;
use http::header::AUTHORIZATION;
use prost::Message as _;
use prost_types::field_descriptor_proto::Type;
use prost_types::{DescriptorProto, FileDescriptorSet};
use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use streams_proto::elasticity::v1::elasticity_service_client::ElasticityServiceClient;
use streams_proto::elasticity::v1::elasticity_service_server::ElasticityService;
use streams_proto::elasticity::v1::resize_request::DesiredWidth;
use streams_proto::elasticity::v1::{
    CancelRequest, GetRegionRequest, GetResizeRequest, ListRegionsRequest, ResizeName, ResizeRequest,
    WatchResizeRequest,
};
use streams_proto::{DESCRIPTOR_SET, elasticity, subscription};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tonic::body::Body;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Status};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus as Told;
use tonic_health::pb::health_client::HealthClient;
use tonic_reflection::pb::v1::ServerReflectionRequest;
use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
use tonic_types::StatusExt as _;
use tower::ServiceExt as _;

/// Services of the contract that the frontend does not serve.
const OF_OTHERS: &str = "streams.fusion.v1.FusionService";

/// All methods of the frontend, and which right each takes.
const RIGHTS: [(&str, &str, &str); 14] = [
    ("streams.elasticity.v1.ElasticityService/Cancel", "update", "streamsprs/scale"),
    ("streams.elasticity.v1.ElasticityService/GetRegion", "get", "streamsprs"),
    ("streams.elasticity.v1.ElasticityService/GetResize", "get", "streamsresizes"),
    ("streams.elasticity.v1.ElasticityService/ListRegions", "list", "streamsprs"),
    ("streams.elasticity.v1.ElasticityService/ListResizes", "list", "streamsresizes"),
    ("streams.elasticity.v1.ElasticityService/Resize", "update", "streamsprs/scale"),
    ("streams.elasticity.v1.ElasticityService/WatchRegions", "watch", "streamsprs"),
    ("streams.elasticity.v1.ElasticityService/WatchResize", "watch", "streamsresizes"),
    ("streams.subscription.v1.SubscriptionService/GetExport", "get", "streamsexports"),
    ("streams.subscription.v1.SubscriptionService/GetImport", "get", "streamsimports"),
    ("streams.subscription.v1.SubscriptionService/ListExports", "list", "streamsexports"),
    ("streams.subscription.v1.SubscriptionService/ListImports", "list", "streamsimports"),
    ("streams.subscription.v1.SubscriptionService/UpdateExport", "patch", "streamsexports/status"),
    ("streams.subscription.v1.SubscriptionService/UpdateImport", "patch", "streamsimports/status"),
];

const RESIZE: &str = "streams.elasticity.v1.ElasticityService/Resize";

/// Methods whose requests name another request, and their namespace with it.
const NAMING: [&str; 3] = ["Cancel", "GetResize", "WatchResize"];

/// The services of the frontend over a job and what it exports, for callers that this reviewer knows.
pub(super) fn services(access: &Access) -> Services {
    Services::new(access.clone())
        .with(a_service().into_server(access.clone()), elasticity::ERROR_DOMAIN)
        .with(an_api().into_server(access.clone()), subscription::ERROR_DOMAIN)
}

/// The methods of the contract, each with what this makes of all types of messages and the name of that of its request.
fn methods<T>(make: impl Fn(&BTreeMap<String, &DescriptorProto>, &str) -> T) -> BTreeMap<String, T> {
    let set = FileDescriptorSet::decode(DESCRIPTOR_SET).unwrap();
    let mut messages = BTreeMap::new();
    for file in &set.file {
        collect(&mut messages, &format!(".{}", file.package()), &file.message_type);
    }
    let mut methods = BTreeMap::new();
    for file in &set.file {
        for service in &file.service {
            for method in &service.method {
                let path = format!("{}.{}/{}", file.package(), service.name(), method.name());
                if !path.starts_with(OF_OTHERS) {
                    methods.insert(path, make(&messages, method.input_type()));
                }
            }
        }
    }
    methods
}

fn collect<'a>(all: &mut BTreeMap<String, &'a DescriptorProto>, scope: &str, messages: &'a [DescriptorProto]) {
    for message in messages {
        let name = format!("{scope}.{}", message.name());
        collect(all, &name, &message.nested_type);
        all.insert(name, message);
    }
}

/// A message of this type, encoded.
fn filled(messages: &BTreeMap<String, &DescriptorProto>, name: &str, depth: usize) -> Vec<u8> {
    let Some(message) = messages.get(name) else { return Vec::new() };
    let mut bytes = Vec::new();
    for field in message.field.iter().filter(|field| field.oneof_index.is_none()) {
        let value = match field.r#type() {
            Type::String => b"n".to_vec(),
            Type::Message if depth > 0 => filled(messages, field.type_name(), depth - 1),
            _ => continue,
        };
        let (number, length) = (u8::try_from(field.number()).unwrap(), u8::try_from(value.len()).unwrap());
        assert!(number < 16 && length < 128, "{name}.{}", field.name());
        // Tag and length are a byte each.
        bytes.extend([number << 3 | 2, length]);
        bytes.extend(value);
    }
    bytes
}

/// A call whose message is this.
fn request(path: &str, token: Option<&str>, message: &[u8]) -> http::Request<Body> {
    let length = u32::try_from(message.len()).unwrap().to_be_bytes();
    let frame = [&[0], &length[..], message].concat();
    let mut request = http::Request::post(format!("/{path}")).body(Body::new(AnyBody::from(frame))).unwrap();
    request.headers_mut().insert("content-type", HeaderValue::from_static("application/grpc"));
    if let Some(token) = token {
        request.headers_mut().insert(AUTHORIZATION, format!("Bearer {token}").parse().unwrap());
    }
    request
}

/// How a call ends whose message is this.
async fn call(services: &Services, path: &str, token: Option<&str>, message: &[u8]) -> Option<Status> {
    let answer = services.routes.clone().oneshot(request(path, token, message)).await.unwrap();
    // An error has no message before it: it is in the headers.
    Status::from_header_map(answer.headers())
}

/// The same through a listener, by this connection.
async fn call_through(channel: Channel, path: &str, token: Option<&str>, message: &[u8]) -> Option<Code> {
    let answer = channel.oneshot(request(path, token, message)).await.unwrap();
    Status::from_header_map(answer.headers()).map(|status| status.code())
}

/// A connection to these services, behind a listener where an address has so many blocks of 16 KiB.
async fn connect(services: Services, blocks: usize) -> Channel {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    // A quarter of them.
    let bounds = Bounds { blocks: 4 * blocks, ..Bounds::default() };
    let never = std::future::pending();
    tokio::spawn(transport::serve(listener, None, services.routes, bounds, ServedCalls::default(), never));
    Endpoint::from_shared(format!("http://{address}")).unwrap().connect().await.unwrap()
}

/// The texts that a message of this type may have, each by the numbers of the fields that lead to it.
fn texts(messages: &BTreeMap<String, &DescriptorProto>, name: &str) -> Vec<Vec<u8>> {
    let mut texts = Vec::new();
    for field in messages.get(name).into_iter().flat_map(|message| &message.field) {
        let within = match field.r#type() {
            Type::String => vec![Vec::new()],
            Type::Message => self::texts(messages, field.type_name()),
            _ => continue,
        };
        let number = u8::try_from(field.number()).unwrap();
        texts.extend(within.into_iter().map(|rest| [vec![number], rest].concat()));
    }
    texts
}

/// A message in which the text that these fields lead to is sent as each of these, one after the other.
fn sending(fields: &[u8], texts: &[&str]) -> Vec<u8> {
    let Some((last, before)) = fields.split_last() else { return Vec::new() };
    let bytes: Vec<u8> = texts.iter().flat_map(|text| field(*last, text.as_bytes())).collect();
    before.iter().rev().fold(bytes, |bytes, number| field(*number, &bytes))
}

fn field(number: u8, content: &[u8]) -> Vec<u8> {
    assert!(number < 16, "a tag is a byte");
    let mut bytes = vec![number << 3 | 2];
    prost::encode_length_delimiter(content.len(), &mut bytes).unwrap();
    bytes.extend(content);
    bytes
}

#[tokio::test]
async fn no_method_is_for_whoever_has_no_token_or_not_the_right() {
    let rights: BTreeMap<_, _> = RIGHTS.iter().map(|(path, verb, resource)| (*path, (*verb, *resource))).collect();
    // All texts of the messages are `n`.
    let methods = methods(|messages, request| filled(messages, request, 3));
    assert_eq!(methods.keys().map(String::as_str).collect::<BTreeSet<_>>(), rights.keys().copied().collect());
    let all: Vec<_> = RIGHTS.iter().map(|(_, verb, resource)| format!("me {verb} {resource} n")).collect();
    let fake = Fake::new(&all.iter().map(String::as_str).collect::<Vec<_>>());
    let services = services(&fake.access());
    for (path, message) in &methods {
        let (verb, resource) = rights[path.as_str()];
        let name = path.split('.').nth(1).unwrap();
        // token, message -> code, reason
        let table: [(Option<&str>, &[u8], Code, &str); 5] = [
            (None, message, Code::Unauthenticated, "NO_TOKEN"),
            (None, b"no message", Code::Unauthenticated, "NO_TOKEN"),
            (Some("bad"), message, Code::Unauthenticated, "INVALID_TOKEN"),
            (Some("you"), message, Code::PermissionDenied, "ACCESS_DENIED"),
            (Some("me"), &[], Code::InvalidArgument, "INVALID_REQUEST"),
        ];
        for (token, message, code, expected) in table {
            let status = call(&services, path, token, message).await.unwrap();
            assert_eq!((status.code(), reason(&status).as_str()), (code, expected), "{path} {token:?}");
            let details = status.get_error_details();
            let info = details.error_info().unwrap();
            assert_eq!(info.domain, format!("{name}.streams.ibm.com"), "{path}");
            if code == Code::PermissionDenied {
                let said = |key: &str| info.metadata.get(key).map(String::as_str);
                assert_eq!((said("verb"), said("resource")), (Some(verb), Some(resource)), "{path}");
                assert_eq!((said("user"), said("namespace")), (Some("you"), Some("n")), "{path}");
            }
            if token.is_none() {
                assert_eq!(info.metadata["audience"], "us");
            }
            if code == Code::InvalidArgument {
                let is_naming = NAMING.iter().any(|method| path.ends_with(&format!("/{method}")));
                let field = if is_naming { "name.namespace" } else { "namespace" };
                assert_eq!(details.bad_request().unwrap().field_violations[0].field, field, "{path}");
            }
        }
        let status = call(&services, path, Some("me"), message).await;
        let is_refused = status.as_ref().is_some_and(|status| {
            matches!(status.code(), Code::Unauthenticated | Code::PermissionDenied | Code::Unimplemented)
        });
        assert!(!is_refused, "{path}: {status:?}");
    }
    // Whoever does not ask for tokens asks for nothing.
    let open = super::Fake::new(&[]);
    let services = self::services(&Access::Open);
    for (path, message) in &methods {
        for token in [None, Some("bad")] {
            let status = call(&services, path, token, message).await;
            let code = status.as_ref().map(Status::code);
            assert!(!matches!(code, Some(Code::Unauthenticated | Code::PermissionDenied)), "{path}: {status:?}");
        }
    }
    assert!(open.asked().is_empty());
}

#[tokio::test]
async fn a_call_that_nobody_has_authenticated_is_refused_by_the_guard_as_well() {
    let fake = Fake::new(&[]);
    let guarded = Guarded::new(a_service(), fake.access(), elasticity::ERROR_DOMAIN);
    let request = ListRegionsRequest { namespace: "n".to_owned(), ..ListRegionsRequest::default() };
    let status = guarded.list_regions(Request::new(request)).await.unwrap_err();
    assert_eq!((status.code(), fake.asked().len()), (Code::Unauthenticated, 0));
}

#[tokio::test]
async fn health_and_reflection_are_for_everybody() {
    let fake = Fake::new(&[]);
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let (services, stop) = (services(&fake.access()), std::future::pending());
    tokio::spawn(server::serve(listener, services, || None, CancellationToken::new(), stop, Duration::ZERO));
    let channel = Endpoint::from_shared(format!("http://{address}")).unwrap().connect().await.unwrap();
    HealthClient::new(channel.clone()).check(HealthCheckRequest::default()).await.unwrap();
    let request = ServerReflectionRequest::default();
    let asked = tokio_stream::iter([request]);
    ServerReflectionClient::new(channel.clone()).server_reflection_info(asked).await.unwrap();
    let mut client = ElasticityServiceClient::new(channel);
    let region = GetRegionRequest { namespace: "n".to_owned(), ..GetRegionRequest::default() };
    assert_eq!(client.get_region(region).await.unwrap_err().code(), Code::Unauthenticated);
    assert!(fake.asked().is_empty());
}

#[tokio::test]
async fn health_says_the_same_of_the_whole_server_as_of_its_services() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let is_blind = Arc::new(AtomicBool::new(true));
    let seen = Arc::clone(&is_blind);
    let too_old = move || seen.load(Ordering::SeqCst).then(|| "a watch is silent".to_owned());
    let (stop, stopped) = oneshot::channel();
    let (stopped, services) = (stopped.map(drop), services(&Access::Open));
    let grace = Duration::from_secs(20);
    tokio::spawn(server::serve(listener, services, too_old, CancellationToken::new(), stopped, grace));
    let channel = Endpoint::from_shared(format!("http://{address}")).unwrap().connect().await.unwrap();
    let mut client = HealthClient::new(channel);
    let mut streams = Vec::new();
    for service in ["", "streams.elasticity.v1.ElasticityService", "streams.subscription.v1.SubscriptionService"] {
        let asked = HealthCheckRequest { service: service.to_owned() };
        assert_eq!(client.check(asked.clone()).await.unwrap().into_inner().status(), Told::NotServing, "{service}");
        streams.push(client.watch(asked).await.unwrap().into_inner());
    }
    let mut hear = async || {
        let mut heard = Vec::new();
        for stream in &mut streams {
            heard.push(stream.next().await.map(|said| said.unwrap().status()));
        }
        heard
    };
    assert_eq!(hear().await, [Some(Told::NotServing); 3]);
    is_blind.store(false, Ordering::SeqCst);
    assert_eq!(hear().await, [Some(Told::Serving); 3]);
    stop.send(()).unwrap();
    assert_eq!(hear().await, [Some(Told::NotServing); 3], "before the end");
    assert_eq!(hear().await, [None; 3]);
}

/// A text of a MiB may be followed by a short one in its place, and lists of few bytes take many times that.
#[tokio::test]
async fn a_request_is_counted_as_it_is_in_memory_while_its_call_waits() {
    let fake = Fake::new(&[]);
    // 10 MiB.
    let channel = connect(services(&fake.access()), 640).await;
    let long = "a".repeat(REQUEST_MAX - 100);
    let long = long.as_str();
    let resize = |namespace: &str, jobs: &[&str], regions: usize| {
        let message = [sending(&[1], &[namespace]), sending(&[2], jobs), field(3, &[]).repeat(regions)].concat();
        assert!(message.len() <= REQUEST_MAX);
        let channel = channel.clone();
        async move { call_through(channel, RESIZE, Some("me"), &message).await.unwrap() }
    };
    for (namespace, jobs) in [("m", vec![long]), ("o", vec![long, "x"])] {
        // It is known then who calls.
        assert_eq!(resize("n", &jobs, 0).await, Code::PermissionDenied);
        fake.how.send_replace(How::NotAtAll);
        let mut calls: FuturesUnordered<_> = (0..3).map(|_| resize(namespace, &jobs, 0)).collect();
        assert_eq!(calls.next().await, Some(Code::ResourceExhausted), "{namespace}");
        fake.how.send_replace(How::AtOnce);
        assert_eq!(calls.collect::<Vec<_>>().await, [Code::PermissionDenied; 2]);
        assert_eq!(resize(namespace, &jobs, 0).await, Code::PermissionDenied);
    }
    assert_eq!(resize("m", &[], 100_000).await, Code::ResourceExhausted);
}

/// prost keeps the room of the longest text that a field had.
#[tokio::test]
async fn each_text_of_a_request_counts_though_a_shorter_one_follows_it() {
    const BLOCKS: usize = 16;
    let channel = connect(services(&Access::Open), BLOCKS).await;
    // It may arrive, and there is no room for three of it.
    let long = "a".repeat(BLOCKS / 2 * BLOCK);
    let long = long.as_str();
    let methods = methods(texts);
    assert!(methods.values().all(|texts| !texts.is_empty()));
    for (path, texts) in &methods {
        for fields in texts {
            let code = async |message: Vec<u8>| call_through(channel.clone(), path, None, &message).await;
            let short = sending(fields, &["n", "n"]);
            assert_ne!(code(short).await, Some(Code::ResourceExhausted), "{path} {fields:?}");
            // Within its message, and with a message that is sent again.
            let again = [sending(fields, &[long]), sending(fields, &["n"])].concat();
            for message in [sending(fields, &[long, "n"]), again] {
                assert_eq!(code(message).await, Some(Code::ResourceExhausted), "{path} {fields:?}");
            }
        }
    }
}

#[tokio::test]
async fn requests_that_are_compressed_are_not_taken() {
    let services = services(&Access::Open);
    for (path, message) in methods(|messages, request| filled(messages, request, 3)) {
        for encoding in ["gzip", "zstd"] {
            let mut request = request(&path, None, &message);
            request.headers_mut().insert("grpc-encoding", HeaderValue::from_static(encoding));
            let answer = services.routes.clone().oneshot(request).await.unwrap();
            let status = Status::from_header_map(answer.headers()).unwrap();
            assert_eq!(status.code(), Code::Unimplemented, "{path} {encoding}");
        }
    }
}

/// The job `flow` has the regions R0, R1 and R2, which are the objects flow-0, flow-1 and flow-2, and a request for R0,
/// flow-x.
#[tokio::test]
async fn a_right_for_single_objects_is_for_calls_about_these() {
    let rights = [
        "me update streamsprs/scale n flow-0",
        "me update streamsprs/scale n flow-2",
        "me get streamsprs n flow-0",
        "me get streamsresizes n flow-x",
        "me watch streamsresizes n flow-x",
    ];
    let resize = |regions: &[&str], dry_run| {
        let regions =
            regions.iter().map(|region| DesiredWidth { region: (*region).to_owned(), width: 3, expected_width: None });
        let (namespace, job) = ("n".to_owned(), "flow".to_owned());
        ResizeRequest { namespace, job, regions: regions.collect(), dry_run, ..ResizeRequest::default() }
    };
    let named = |request: &str, key: &str| {
        let (namespace, job) = ("n".to_owned(), "flow".to_owned());
        Some(ResizeName { namespace, job, request: request.to_owned(), idempotency_key: key.to_owned() })
    };
    let region = |name: &str| {
        let (namespace, job) = ("n".to_owned(), "flow".to_owned());
        GetRegionRequest { namespace, job, region: name.to_owned() }
    };
    for user in ["me", "you"] {
        let fake = Fake::new(&rights);
        let guarded = Guarded::new(a_service(), fake.access(), elasticity::ERROR_DOMAIN);
        let mut heard = Vec::new();
        macro_rules! call {
            ($method:ident($request:expr)) => {{
                let mut call = Request::new($request);
                call.extensions_mut().insert(Arc::new(Subject::called(user)));
                heard.push(match guarded.$method(call).await {
                    Ok(_) => "OK".to_owned(),
                    Err(status) => reason(&status),
                });
            }};
        }
        // Nobody answers calls that write, and nobody foresees.
        call!(resize(resize(&["R0"], false)));
        call!(resize(resize(&["R0", "R2"], false)));
        call!(resize(resize(&["R0"], true)));
        call!(get_region(region("R0")));
        call!(get_resize(GetResizeRequest { name: named("flow-x", "") }));
        call!(watch_resize(WatchResizeRequest { name: named("flow-x", "") }));
        call!(cancel(CancelRequest { name: named("flow-x", "") }));
        let expected = ["NOT_TAKEN", "NOT_TAKEN", "NOT_FORESEEN", "OK", "OK", "OK", "NOT_TAKEN"];
        let refused = ["ACCESS_DENIED"; 7];
        assert_eq!(heard, if user == "me" { expected } else { refused }, "{user}");
        heard.clear();
        // One of several is missing; there is no such thing, which only those hear who could see it; none, or too many,
        // are named; a list.
        call!(resize(resize(&["R0", "R1"], false)));
        call!(resize(resize(&["R0", "R9"], false)));
        call!(resize(resize(&[], false)));
        call!(resize(resize(&["R0"; 257], false)));
        call!(get_region(region("R1")));
        call!(get_region(region("R9")));
        call!(get_resize(GetResizeRequest { name: named("flow-y", "") }));
        call!(get_resize(GetResizeRequest { name: named("", "key") }));
        call!(list_regions(ListRegionsRequest { namespace: "n".to_owned(), ..ListRegionsRequest::default() }));
        assert_eq!(heard, ["ACCESS_DENIED"; 9], "{user}");
    }
}

/// What this user hears who withdraws a request of the namespace that nobody has made.
async fn withdrawn(guarded: &Guarded<Elasticity<Mirrors>>, user: &str) -> String {
    let mut call = Request::new(CancelRequest { name: made_up("n") });
    call.extensions_mut().insert(Arc::new(Subject::called(user)));
    reason(&guarded.cancel(call).await.unwrap_err())
}

/// A tenant makes as many service accounts as it likes.
#[tokio::test(start_paused = true)]
async fn callers_without_rights_use_up_no_look_ups_of_those_who_may_withdraw() {
    let fake = Fake::new(&["you update streamsprs/scale n"]);
    let (slow, service) = over_slow();
    let guarded = Guarded::new(service, fake.access(), elasticity::ERROR_DOMAIN);
    let users: Vec<String> = (0..7).map(|number| format!("nobody{number}")).collect();
    let calls = (0..64).flat_map(|_| &users).map(|user| withdrawn(&guarded, user));
    let mut flood: FuturesUnordered<_> = calls.collect();
    let shortly = Duration::from_secs(1);
    while let Ok(Some(answer)) = timeout(shortly, flood.next()).await {
        assert_eq!(answer, "TOO_MANY_LOOKUPS");
    }
    let (waiting, asked) = (flood.len(), slow.asked());
    assert!(waiting < 64 && asked == 2, "{waiting} {asked}");
    let mut mine = Box::pin(withdrawn(&guarded, "you"));
    assert!(timeout(shortly, mine.as_mut()).await.is_err());
    assert_eq!(slow.asked(), asked + 1, "it waits for none of them");
    slow.answers.send_replace(true);
    assert_eq!(mine.await, "RESIZE_NOT_FOUND");
    let answers: Vec<_> = flood.collect().await;
    assert_eq!(answers, vec!["ACCESS_DENIED"; waiting]);
}
