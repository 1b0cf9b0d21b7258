//! Memory: what calls take of it, whom it is refused, and that callers who are slow give it back.

use super::*;
use crate::server::class::{CallClass, PerClass};
use crate::server::memory::SMALL;
use prost::Message;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use streams_proto::fusion::v1::fusion_service_client::FusionServiceClient;
use tokio::task::JoinSet;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Code;
use tonic::codec::CompressionEncoding;
use tonic_types::StatusExt;
use tower::ServiceExt;

const MIB: usize = 1 << 20;

/// A resize that brings a layout of so many bytes.
fn large_resize(job: &str, bytes: usize) -> pb::ResizeRequest {
    let mut layout = b"layout ".to_vec();
    layout.resize(bytes, b'x');
    full_resize(job, "1 1", &layout, 2)
}

/// The body of a request, byte by byte as it is sent.
struct Sent {
    bytes: Option<Bytes>,
    /// Else it stays open.
    ends: bool,
}

impl http_body::Body for Sent {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<http_body::Frame<Bytes>, Status>>> {
        match self.bytes.take() {
            Some(bytes) => Poll::Ready(Some(Ok(http_body::Frame::data(bytes)))),
            None if self.ends => Poll::Ready(None),
            None => Poll::Pending,
        }
    }
}

/// The status that a resize with this body gets, which has no answer.
async fn send(replica: &Replica, body: Sent) -> Status {
    let url = format!("http://{}/streams.fusion.v1.FusionService/Resize", replica.server.address);
    let request = http::Request::post(url).header("content-type", "application/grpc").header("te", "trailers");
    let request = request.body(tonic::body::Body::new(body)).unwrap();
    let answer = soon(replica.channel().await.oneshot(request)).await.unwrap();
    Status::from_header_map(answer.headers()).unwrap()
}

/// The answer to a message of which nothing was read.
fn unread(
    endpoint: tonic::transport::Endpoint,
    method: &str,
    message: &[u8],
) -> impl Future<Output = http::Response<tonic::body::Body>> + use<> {
    let mut framed = vec![0];
    framed.extend_from_slice(&u32::try_from(message.len()).unwrap().to_be_bytes());
    framed.extend_from_slice(message);
    let url = format!("{}streams.fusion.v1.FusionService/{method}", endpoint.uri());
    let request = http::Request::post(&url).header("content-type", "application/grpc").header("te", "trailers");
    let body = tonic::body::Body::new(Sent { bytes: Some(framed.into()), ends: true });
    let request = request.body(body).unwrap();
    async move { soon(endpoint.connect().await.unwrap().oneshot(request)).await.unwrap() }
}

/// The server has nothing of any call.
pub(super) async fn released(replica: &Replica) {
    eventually("all memory was given back", || replica.server.calls.memory.taken().0 == 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flood_of_large_resizes_stays_within_the_memory_and_lets_small_ones_through() {
    let bytes = 12 * SMALL;
    let replica = replica(Settings { memory_bytes: bytes, workers: count(4), ..settings() }).await;
    let mut client = replica.client().await;
    let layout = submit(&mut client, "job", "1 1").await.unwrap().layout;
    replica.gate.hold("restore");
    let mut flood = JoinSet::new();
    let large = large_resize("large", 3 * MIB);
    for _ in 0..40 {
        let (mut client, large) = (replica.client().await, large.clone());
        flood.spawn(async move { soon(client.resize(large)).await.map(drop) });
    }
    // Others find no memory, and are not kept waiting for what may take long.
    let mut refused = 0;
    while refused < 20 {
        let status = soon(flood.join_next()).await.unwrap().unwrap().unwrap_err();
        assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
        assert_eq!(status.get_details_error_info().unwrap().reason, "OVERLOADED");
        assert!(status.get_details_retry_info().unwrap().retry_delay.unwrap() >= Duration::from_millis(100));
        refused += 1;
    }
    eventually("large ones are worked on", || replica.gate.begun().iter().any(|step| step == "restore large")).await;
    // A small one is not refused.
    let resize = {
        let mut client = client.clone();
        tokio::spawn(async move { soon(client.resize(lean_resize("job", "1 1", &layout, 2))).await.map(drop) })
    };
    eventually("the small one is taken in", || {
        resize.is_finished() || replica.server.calls.admission.waiting().resize > 0
    })
    .await;
    replica.gate.release("restore");
    resize.await.unwrap().unwrap();
    let mut answered = 0;
    while let Some(ended) = soon(flood.join_next()).await {
        match ended.unwrap() {
            Ok(()) => answered += 1,
            Err(status) => assert_eq!(status.code(), Code::ResourceExhausted, "{status}"),
        }
    }
    assert!(answered > 0);
    released(&replica).await;
    let (_, most) = replica.server.calls.memory.taken();
    assert!(most <= bytes && most > bytes / 2, "{most} of {bytes}");
    let (_, metrics) = replica.page("/metrics").await;
    for line in [
        format!("fusion_call_memory_limit_bytes {bytes}"),
        r#"fusion_call_memory_bytes{class="resize"} 0"#.to_owned(),
        r#"fusion_call_memory_queue_depth{class="resize"} 0"#.to_owned(),
    ] {
        assert!(metrics.lines().any(|l| l == line), "no '{line}' in\n{metrics}");
    }
    let refused = r#"fusion_call_memory_refused_calls_total{class="resize"} "#;
    let refused = metrics.lines().find_map(|line| line.strip_prefix(refused));
    assert!(refused.is_some_and(|count| count != "0"), "{metrics}");
    // Large ones were decoded elsewhere.
    assert!(metrics.contains(r#"fusion_stage_duration_seconds_count{stage="decode"}"#), "{metrics}");
    client.resize(large).await.unwrap();
}

/// Calls until the answer is anything but to come again. Gives the code of that, and how often it was told to.
async fn patient(mut client: Client, request: pb::ResizeRequest) -> (Code, usize) {
    let mut refusals = 0;
    loop {
        match soon(client.resize(request.clone())).await {
            Ok(_) => return (Code::Ok, refusals),
            Err(status) if status.code() != Code::ResourceExhausted => return (status.code(), refusals),
            Err(status) => {
                refusals += 1;
                tokio::time::sleep(status.get_details_retry_info().unwrap().retry_delay.unwrap()).await;
            }
        }
    }
}

/// Room for two large ones.
const FOR_TWO: u64 = 3 * SMALL;

/// A resize that takes 10 MiB, most of it for its many values: unlike content, nobody has to compute their digest.
fn valued_resize(job: &str) -> pb::ResizeRequest {
    let mut request = large_resize(job, 10);
    let values = (0..25_000).map(|number| (format!("v{number}"), "1".to_owned()));
    request.compilation.get_or_insert_default().submission_values = values.collect();
    request
}

#[tokio::test(flavor = "multi_thread")]
async fn more_large_resizes_than_there_is_memory_for_are_all_answered() {
    use CompressionEncoding::{Gzip, Zstd};
    let broken = |request: pb::ResizeRequest| pb::ResizeRequest { layout: Some(blob(&[0; 10])), ..request };
    let whole = |request: pb::ResizeRequest| request;
    type Change = fn(pb::ResizeRequest) -> pb::ResizeRequest;
    // Who sends a compressed message is never told to come again: as long as it waits, it holds little.
    let cases: [(&str, Option<CompressionEncoding>, Change, Code, bool); 4] = [
        ("plain", None, whole, Code::Ok, true),
        ("broken", None, broken, Code::InvalidArgument, true),
        ("gzip", Some(Gzip), whole, Code::Ok, false),
        ("zstd", Some(Zstd), whole, Code::Ok, false),
    ];
    for (name, compression, change, expected, may_be_refused) in cases {
        let replica = replica(Settings { memory_bytes: FOR_TWO, workers: count(2), ..settings() }).await;
        let mut callers = JoinSet::new();
        for number in 0..8 {
            let client = replica.client().await;
            let client = compression.into_iter().fold(client, Client::send_compressed);
            callers.spawn(patient(client, change(valued_resize(&format!("large {number}")))));
        }
        for (code, refusals) in soon(callers.join_all()).await {
            assert_eq!(code, expected, "{name}");
            assert!(may_be_refused || refusals == 0, "{name}: {refusals}");
        }
        released(&replica).await;
        let (_, most) = replica.server.calls.memory.taken();
        assert!(most <= FOR_TWO && most > FOR_TWO / 3, "{name}: {most} of {FOR_TWO}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn tiny_messages_that_become_large_keep_nobody_out() {
    let replica = replica(Settings { memory_bytes: FOR_TWO, workers: count(4), ..settings() }).await;
    let mut client = replica.client().await;
    let layout = submit(&mut client, "job", "1 1").await.unwrap().layout;
    replica.gate.hold("restore");
    let mut flood = JoinSet::new();
    for number in 0..20 {
        let mut client = replica.client().await.send_compressed(CompressionEncoding::Zstd);
        let large = valued_resize(&format!("large {number}"));
        flood.spawn(async move { soon(client.resize(large)).await.map(drop) });
    }
    // Two are worked on and eight wait; the others hear soon that they should come again.
    for _ in 0..10 {
        let status = soon(flood.join_next()).await.unwrap().unwrap().unwrap_err();
        assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
    }
    soon(client.resize(lean_resize("job", "1 1", &layout, 2))).await.unwrap();
    // A large one that comes as it is has its turn, although the others came before.
    let plain = tokio::spawn(patient(client, valued_resize("plain")));
    replica.gate.release("restore");
    assert_eq!(plain.await.unwrap().0, Code::Ok);
    while flood.join_next().await.is_some() {}
    released(&replica).await;
    let (_, most) = replica.server.calls.memory.taken();
    assert!(most <= FOR_TWO, "{most} of {FOR_TWO}");
}

#[tokio::test(flavor = "multi_thread")]
async fn who_announces_much_and_sends_nothing_is_not_waited_for() {
    let arrival = Duration::from_millis(300);
    let replica = replica(Settings { arrival, ..settings() }).await;
    let began = Instant::now();
    // The head of a message of 160 MiB, and then nothing.
    let status = send(&replica, Sent { bytes: Some(Bytes::from_static(&[0, 10, 0, 0, 0])), ends: false }).await;
    assert_eq!((status.code(), status.message()), (Code::DeadlineExceeded, "the request arrives too slowly"));
    // If all of it came, it would have 20 s.
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    released(&replica).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn large_submissions_leave_memory_for_resizes() {
    let replica = replica(Settings { memory_bytes: 12 * SMALL, workers: count(4), ..settings() }).await;
    replica.gate.hold("parse");
    let mut flood = JoinSet::new();
    for number in 0..8 {
        let mut client = replica.client().await;
        let adl = format!("1 1 {number}{}", " ".repeat(3 * MIB));
        flood.spawn(async move { submit(&mut client, "large", &adl).await.map(drop) });
    }
    // Four fit and two wait for them; the others are told so.
    for _ in 0..2 {
        let status = soon(flood.join_next()).await.unwrap().unwrap().unwrap_err();
        assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
    }
    let mut client = replica.client().await;
    let resize = tokio::spawn(async move { soon(client.resize(large_resize("job", MIB))).await.map(drop) });
    eventually("a resize is worked on", || replica.server.calls.admission.working().resize == 1).await;
    replica.gate.release("parse");
    resize.await.unwrap().unwrap();
    while flood.join_next().await.is_some() {}
    released(&replica).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn hostile_messages_are_refused_before_they_are_decoded() {
    let bytes = 2 * SMALL;
    let replica = replica(Settings { memory_bytes: bytes, ..settings() }).await;
    let plain = replica.client().await;
    let zstd = replica.client().await.send_compressed(CompressionEncoding::Zstd);
    let gzip = replica.client().await.send_compressed(CompressionEncoding::Gzip);
    let widths =
        |count| pb::ResizeRequest { widths: vec![pb::RegionWidth::default(); count], ..large_resize("job", 10) };
    let ids = pb::ResizeRequest { pe_ids_in_use: vec![1; 1_200_000], ..large_resize("job", 10) };
    let cases = [
        ("more entries than there is memory for", plain.clone(), widths(150_000)),
        ("numbers", plain.clone(), ids),
        ("a few bytes that become many", zstd.clone(), large_resize("job", 20 * MIB)),
        ("the same with gzip", gzip.clone(), large_resize("job", 20 * MIB)),
        ("a few bytes that become many entries", zstd, widths(150_000)),
        ("larger than all memory", plain, large_resize("job", 20 * MIB)),
    ];
    for (name, client, request) in cases {
        assert!(request.encoded_len() < 192 * MIB);
        let status = soon(client.max_encoding_message_size(usize::MAX).resize(request)).await.unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument, "{name}: {status}");
        let violations = status.get_details_bad_request().unwrap().field_violations;
        assert!(violations[0].description.contains("memory"), "{name}: {violations:?}");
        released(&replica).await;
        let (_, most) = replica.server.calls.memory.taken();
        assert!(most <= bytes, "{name}: {most}");
    }
    // Both compressions, when they are honest.
    for mut client in [gzip, replica.client().await.send_compressed(CompressionEncoding::Zstd)] {
        soon(client.resize(large_resize("job", MIB))).await.unwrap();
    }
    released(&replica).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_read_to_its_end_is_refused_before_it_is_decoded() {
    let replica = replica(settings()).await;
    // A group that nobody knows, in it what looks like a compilation that does not end, and then many entries.
    let group: &[u8] = b"\xfb\x01\x0a\x01\xff\xfc\x01";
    let entries = b"\x32\x00".repeat(150_000);
    let layout_without_end: &[u8] = b"\x12\xff\x01";
    let cases: [(&str, Vec<u8>, u64, &str); 2] = [
        ("a group", [group, &entries].concat(), 150_000 * 112, "compilation"),
        ("no end", [&entries, layout_without_end].concat(), 0, ""),
    ];
    for (name, message, least, field) in cases {
        let mut framed = vec![0];
        framed.extend_from_slice(&u32::try_from(message.len()).unwrap().to_be_bytes());
        framed.extend_from_slice(&message);
        let status = send(&replica, Sent { bytes: Some(framed.into()), ends: true }).await;
        assert_eq!(status.code(), Code::InvalidArgument, "{name}: {status}");
        let violations = status.get_details_bad_request().unwrap().field_violations;
        assert!(violations[0].field.starts_with(field), "{name}: {violations:?}");
        let (_, most) = replica.server.calls.memory.taken();
        assert!(most >= least, "{name}: {most} of {least}");
        released(&replica).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_has_memory_until_the_last_of_its_readers_has_it() {
    let replica = replica(Settings { workers: count(2), ..settings() }).await;
    replica.gate.hold("submit");
    let request = submit_request("job", "25000 1").encode_to_vec();
    let url = format!("http://{}", replica.server.address);
    let endpoint = tonic::transport::Endpoint::from_shared(url).unwrap().initial_stream_window_size(64 << 10);
    let calls: Vec<_> = (0..8).map(|_| unread(endpoint.clone(), "Submit", &request)).collect();
    let calls = tokio::spawn(futures::future::join_all(calls));
    eventually("all share it", || replica.server.calls.metrics.rides("submit") == 7).await;
    let requests = replica.server.calls.memory.taken().0;
    replica.gate.release("submit");
    let answers = soon(calls).await.unwrap();
    // About two megabytes.
    let answer = replica.server.calls.memory.taken().0 - requests;
    assert!(answer > MIB as u64 && answer < 3 * MIB as u64, "{answer}");
    let mut answers = answers.into_iter();
    let last = answers.next();
    drop(answers);
    eventually("one of them has not read it", || replica.server.calls.in_flight.len() == 1).await;
    assert!(replica.server.calls.memory.taken().0 > answer);
    drop(last);
    released(&replica).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_for_which_there_is_no_memory_is_refused() {
    let replica = replica(Settings { memory_bytes: 2 * SMALL, ..settings() }).await;
    let mut client = replica.client().await;
    let others = [SMALL, SMALL - MIB as u64].map(|bytes| (replica.server.calls.memory.share(CallClass::Resize), bytes));
    for (share, bytes) in &others {
        share.take(*bytes).await.unwrap();
    }
    submit(&mut client, "small", "10 1").await.unwrap();
    let status = submit(&mut client, "job", "25000 1").await.unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
    assert_eq!(status.get_details_error_info().unwrap().reason, "OVERLOADED");
    drop(others);
    submit(&mut client, "job", "25000 1").await.unwrap();
    released(&replica).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_does_not_end_gives_back_its_memory() {
    let arrival = Duration::from_millis(300);
    let replica = replica(Settings { arrival, max_resizes: count(1), ..settings() }).await;
    // The message is there, but not the end of the request.
    let (messages, unsent) = tokio::sync::mpsc::channel(1);
    messages.send(large_resize("slow", MIB)).await.unwrap();
    let path = http::uri::PathAndQuery::from_static("/streams.fusion.v1.FusionService/Resize");
    let mut raw = tonic::client::Grpc::new(replica.channel().await);
    raw.ready().await.unwrap();
    let codec = tonic_prost::ProstCodec::<pb::ResizeRequest, pb::ResizeResponse>::default();
    let request = tonic::Request::new(ReceiverStream::new(unsent));
    let status = soon(raw.client_streaming(request, path, codec)).await.unwrap_err();
    assert_eq!((status.code(), status.message()), (Code::DeadlineExceeded, "the request arrives too slowly"));
    drop(messages);
    released(&replica).await;
    assert_eq!(replica.server.calls.admission.working(), PerClass::default());
    // Its ticket is free, too.
    eventually("the call has ended", || replica.server.calls.in_flight.is_empty()).await;
    let mut client = replica.client().await;
    sooner_or_later(async || client.resize(large_resize("next", 10)).await.map(drop)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_nobody_reads_holds_nothing_for_long() {
    let stall = Duration::from_secs(1);
    let replica = replica(Settings { stall, workers: count(1), max_renders: count(1), ..settings() }).await;
    let mut client = replica.client().await;
    // One text that is larger than what may wait in memory, so that rendering waits for the reader.
    let adl = "2 40000000";
    let layout = submit(&mut client, "job", adl).await.unwrap().layout;
    released(&replica).await;
    // The caller has room for little that it has not read.
    let url = format!("http://{}", replica.server.address);
    let endpoint = tonic::transport::Endpoint::from_shared(url).unwrap();
    let channel = endpoint.initial_stream_window_size(64 << 10).connect().await.unwrap();
    let mut slow = FusionServiceClient::new(channel).max_decoding_message_size(64 << 20);
    let mut stream = soon(slow.render(render_request("job", adl, &layout, &[0, 1]))).await.unwrap().into_inner();
    released(&replica).await;
    replica.idle().await;
    // Its ticket is free while the caller could still read.
    let small = submit(&mut client, "small", "1 10").await.unwrap().layout;
    sooner_or_later(async || texts(&mut client, render_request("small", "1 10", &small, &[0])).await.map(drop)).await;
    let end = soon(async {
        loop {
            match stream.message().await {
                Ok(Some(_)) => {}
                other => return other,
            }
        }
    });
    // The stream is reset.
    assert_eq!(end.await.unwrap_err().code(), Code::Cancelled);
}

#[tokio::test(flavor = "multi_thread")]
async fn who_leaves_the_end_of_an_answer_unread_has_not_read_it() {
    let stall = Duration::from_millis(100);
    let replica = replica(Settings { stall, ..settings() }).await;
    // Room for a byte, which is enough for the transport to take all of a small answer.
    let url = format!("http://{}", replica.server.address);
    let endpoint = tonic::transport::Endpoint::from_shared(url).unwrap().initial_stream_window_size(1);
    let answer = unread(endpoint, "Submit", &submit_request("job", "1 10").encode_to_vec()).await;
    eventually("the call has ended", || replica.server.calls.in_flight.is_empty()).await;
    let (_, metrics) = replica.page("/metrics").await;
    let line = r#"fusion_calls_total{method="Submit",code="DEADLINE_EXCEEDED"} 1"#;
    assert!(metrics.lines().any(|l| l == line), "no '{line}' in\n{metrics}");
    released(&replica).await;
    drop(answer);
}

#[tokio::test(flavor = "multi_thread")]
async fn who_waits_for_an_answer_is_not_taken_for_one_who_does_not_read() {
    let stall = Duration::from_secs(2);
    let replica = replica(Settings { stall, workers: count(1), ..settings() }).await;
    let mut client = replica.client().await;
    let layout = submit(&mut client, "job", "1 10").await.unwrap().layout;
    replica.gate.hold("render");
    let reading = {
        let mut client = client.clone();
        tokio::spawn(async move { texts(&mut client, render_request("job", "1 10", &layout, &[0])).await })
    };
    replica.begun("render job").await;
    let began = Instant::now();
    eventually("it could have been taken away", || began.elapsed() > 2 * stall).await;
    replica.gate.release("render");
    assert_eq!(reading.await.unwrap().unwrap().len(), 1);
}
