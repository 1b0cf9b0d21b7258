//! The client against replicas that fail in every way the contract knows. The replicas are real gRPC servers with
//! scripted answers. `hedges` has what is asked of two replicas at a time, `faulty` what comes of one with a defect and
//! of something in between.

mod faulty;
mod hedges;

use super::preference::{Candidate, preferred};
use super::rest::REST;
use super::{Client, ClientOptions, FusionError, RenderedText};
use bytes::Bytes;
use futures::StreamExt;
use sha2::{Digest, Sha256};
use std::collections::{BTreeSet, HashMap};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use streams_kubernetes::metrics::Metrics;
use streams_kubernetes::stopwatch;
use streams_process::telemetry::testing;
use streams_process::tls::{Acceptor, ClientFiles, Connector, Pair, ServerFiles};
use streams_proto::fusion::v1::fusion_service_server::{FusionService, FusionServiceServer};
use streams_proto::fusion::v1::render_response::{Part, Start};
use streams_proto::fusion::v1::{
    Blob, Compilation, ExplainRequest, ExplainResponse, Plan, PlanRequest, PlanResponse, RenderRequest, RenderResponse,
    ResizeRequest, ResizeResponse, SubmitRequest, SubmitResponse,
};
use tokio::io::AsyncReadExt;
use tokio_stream::wrappers::{ReceiverStream, TcpListenerStream};
use tonic::codec::CompressionEncoding;
use tonic::{Code, Request, Response, Status};
use tonic_types::{ErrorDetails, StatusExt};
use tracing::Instrument;

/// What a replica does.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Behaviour {
    Good,
    /// Does not have the ADL until it is sent.
    Forgetful,
    Unavailable,
    Overloaded,
    /// Overloaded for a moment when it is asked first.
    Busy,
    Rejecting,
    Silent,
    /// Answers after a while.
    Slow,
    /// Answers when a replica that failed has rested.
    Slower,
    /// Takes a while to say that it is overloaded for a moment. When it is asked again it is slower still.
    BusyThenSlower,
    /// Cannot answer, and takes longer than a slow one to say so.
    FailsLate,
    /// Is lost as soon as it has a request.
    Dies,
    /// Fails inside.
    Defect,
    /// Refuses every request, and does not say why.
    Refusing,
    /// Has another compiler than is asked for.
    OtherCompiler,
    /// Answers with more than the client takes.
    Huge,
    /// The same, in a few bytes while it is compressed.
    HugeUnpacked,
    /// Ends the stream of texts in the middle of the second one.
    BreaksOff,
    /// Sends another text than announced.
    Corrupt,
}

struct ScriptedReplica {
    behaviour: Behaviour,
    calls: Arc<AtomicUsize>,
}

fn status(code: Code, reason: &str) -> Status {
    let info = ErrorDetails::with_error_info(reason, streams_proto::fusion::ERROR_DOMAIN, HashMap::new());
    Status::with_error_details(code, reason, info)
}

/// Has enough to do for so long.
fn overloaded(length: Duration) -> Status {
    let mut details = ErrorDetails::with_error_info("OVERLOADED", "d", HashMap::new());
    details.set_retry_info(Some(length));
    Status::with_error_details(Code::ResourceExhausted, "full", details)
}

impl ScriptedReplica {
    async fn common(&self, compilation: Option<&Compilation>) -> Result<(), Status> {
        let is_first = self.calls.fetch_add(1, Ordering::SeqCst) == 0;
        let content = compilation.and_then(|c| c.adl.as_ref()).and_then(|adl| adl.content.as_ref());
        match self.behaviour {
            Behaviour::Forgetful if content.is_none() => Err(status(Code::FailedPrecondition, "INPUT_MISSING")),
            Behaviour::Unavailable => Err(Status::unavailable("going away")),
            Behaviour::Defect => Err(Status::internal("a panic")),
            Behaviour::Refusing => Err(Status::invalid_argument("no")),
            Behaviour::OtherCompiler => Err(status(Code::FailedPrecondition, "OTHER_COMPILER")),
            Behaviour::Overloaded => Err(overloaded(Duration::from_secs(20))),
            Behaviour::Busy if is_first => Err(overloaded(Duration::from_millis(100))),
            Behaviour::Rejecting => {
                let metadata = HashMap::from([("stage".to_owned(), "topology".to_owned())]);
                let details = ErrorDetails::with_error_info("APPLICATION_REJECTED", "d", metadata);
                Err(Status::with_error_details(Code::InvalidArgument, "unknown host pool 3", details))
            }
            Behaviour::Silent => std::future::pending().await,
            Behaviour::Slow => {
                tokio::time::sleep(SLOW).await;
                Ok(())
            }
            Behaviour::BusyThenSlower if is_first => {
                tokio::time::sleep(SLOW).await;
                Err(overloaded(Duration::from_millis(100)))
            }
            Behaviour::Slower | Behaviour::BusyThenSlower => {
                tokio::time::sleep(REST + SLOW).await;
                Ok(())
            }
            Behaviour::FailsLate => {
                tokio::time::sleep(LATE).await;
                Err(Status::unavailable("going away"))
            }
            _ => Ok(()),
        }
    }
}

fn text_of(pe_id: u64) -> Vec<u8> {
    format!("<pe id='{pe_id}'/>").repeat(100).into_bytes()
}

#[tonic::async_trait]
impl FusionService for ScriptedReplica {
    async fn submit(&self, request: Request<SubmitRequest>) -> Result<Response<SubmitResponse>, Status> {
        self.common(request.get_ref().compilation.as_ref()).await?;
        // Bytes that cannot be compressed, from a generator of random numbers.
        let random =
            std::iter::successors(Some(1_u32), |n| Some(n.wrapping_mul(1_664_525).wrapping_add(1_013_904_223)));
        let layout: Vec<u8> = match self.behaviour {
            Behaviour::Huge => random.map(|n| n.to_be_bytes()[0]).take(3 * MAX_PLAN).collect(),
            Behaviour::HugeUnpacked => vec![0; 3 * MAX_PLAN],
            _ => Vec::new(),
        };
        let plan = Plan { layout: layout.into(), ..Plan::default() };
        Ok(Response::new(SubmitResponse { plan: Some(plan), warnings: vec![] }))
    }

    async fn resize(&self, request: Request<ResizeRequest>) -> Result<Response<ResizeResponse>, Status> {
        self.common(request.get_ref().compilation.as_ref()).await?;
        Ok(Response::new(ResizeResponse::default()))
    }

    type RenderStream = ReceiverStream<Result<RenderResponse, Status>>;

    async fn render(&self, request: Request<RenderRequest>) -> Result<Response<Self::RenderStream>, Status> {
        self.common(request.get_ref().compilation.as_ref()).await?;
        let (sender, receiver) = tokio::sync::mpsc::channel(1);
        let behaviour = self.behaviour;
        tokio::spawn(async move {
            for (position, pe_id) in request.into_inner().pe_ids.into_iter().enumerate() {
                let text = text_of(pe_id);
                let content_id = hex::encode(Sha256::digest(&text));
                let start = Start { pe_id, content_id, size: text.len() as u64 };
                let _ = sender.send(Ok(RenderResponse { part: Some(Part::Start(start)) })).await;
                for (number, chunk) in text.chunks(100).enumerate() {
                    if behaviour == Behaviour::BreaksOff && position == 1 && number == 1 {
                        return;
                    }
                    let mut chunk = chunk.to_vec();
                    if behaviour == Behaviour::Corrupt {
                        chunk[0] = b'x';
                    }
                    let _ = sender.send(Ok(RenderResponse { part: Some(Part::Chunk(chunk.into())) })).await;
                }
            }
        });
        Ok(Response::new(ReceiverStream::new(receiver)))
    }

    async fn plan(&self, _: Request<PlanRequest>) -> Result<Response<PlanResponse>, Status> {
        Err(Status::unimplemented("the frontend does not ask"))
    }

    async fn explain(&self, _: Request<ExplainRequest>) -> Result<Response<ExplainResponse>, Status> {
        Err(Status::unimplemented("the frontend does not ask"))
    }
}

/// Longer than anything should take, even on a machine that does much else.
const LONG: Duration = Duration::from_secs(60);

/// The largest plan that clients take: more comes with it, 1 MiB or so.
const MAX_PLAN: usize = 1 << 20;

/// After this time a resize is asked of a second replica.
const HEDGE: Duration = Duration::from_millis(50);
/// How long a slow replica takes.
const SLOW: Duration = Duration::from_millis(400);
/// How long a replica takes that fails late.
const LATE: Duration = Duration::from_millis(600);

/// Starts replicas and a client of them; also returns how often each was called.
async fn client_of(behaviours: &[Behaviour]) -> (Client, Vec<Arc<AtomicUsize>>) {
    client_within(behaviours, LONG).await
}

/// The same, with this time for each call.
async fn client_within(behaviours: &[Behaviour], deadline: Duration) -> (Client, Vec<Arc<AtomicUsize>>) {
    let (client, calls, _) = client_of_first(behaviours, deadline).await;
    (client, calls)
}

/// The same, and an application that prefers the replicas in this order. Which one an application prefers follows from
/// the ports, which are others each time.
async fn client_of_first(behaviours: &[Behaviour], deadline: Duration) -> (Client, Vec<Arc<AtomicUsize>>, u8) {
    client_that_hedges(behaviours, deadline, HEDGE).await
}

/// The same, with a second replica that is asked after this time.
async fn client_that_hedges(
    behaviours: &[Behaviour],
    deadline: Duration,
    hedge_after: Duration,
) -> (Client, Vec<Arc<AtomicUsize>>, u8) {
    let mut addresses = Vec::new();
    let mut calls = Vec::new();
    for &behaviour in behaviours {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        addresses.push(listener.local_addr().unwrap());
        let count = Arc::new(AtomicUsize::new(0));
        calls.push(Arc::clone(&count));
        if behaviour == Behaviour::Dies {
            tokio::spawn(die(listener, count));
            continue;
        }
        let service = FusionServiceServer::new(ScriptedReplica { behaviour, calls: count })
            .accept_compressed(CompressionEncoding::Zstd)
            .send_compressed(CompressionEncoding::Zstd);
        let server = tonic::transport::Server::builder().add_service(service);
        tokio::spawn(server.serve_with_incoming(TcpListenerStream::new(listener)));
    }
    let mut options = ClientOptions::new(addresses.iter().map(ToString::to_string).collect());
    options.submit_deadline = deadline;
    options.resize_deadline = deadline;
    options.hedge_after = hedge_after;
    options.render_deadline = deadline;
    options.max_plan = MAX_PLAN;
    let candidate = |&address: &SocketAddr| Candidate {
        address,
        in_flight: 0,
        is_tried: false,
        is_resting: false,
        is_terminating: false,
    };
    let candidates: Vec<_> = addresses.iter().map(candidate).collect();
    let prefers_this_order = |application: &u8| {
        let adl = compilation_of(*application).and_then(|compilation| compilation.adl).unwrap();
        (0..addresses.len()).all(|at| preferred(&adl.sha256, &candidates[at..]) == addresses.get(at).copied())
    };
    let application = (0..=u8::MAX).find(prefers_this_order).unwrap();
    (Client::new(options), calls, application)
}

/// Breaks each connection once the first request has begun to come through it.
async fn die(listener: tokio::net::TcpListener, calls: Arc<AtomicUsize>) {
    while let Ok((mut connection, _)) = listener.accept().await {
        let calls = Arc::clone(&calls);
        tokio::spawn(async move {
            // The preface of HTTP/2 and the settings are less than that, a request is more.
            let mut request = [0_u8; 256];
            if connection.read_exact(&mut request).await.is_ok() {
                calls.fetch_add(1, Ordering::SeqCst);
            }
        });
    }
}

/// A compilation of one of many applications: each prefers one replica or another.
fn compilation_of(application: u8) -> Option<Compilation> {
    let content = Bytes::from(vec![application; 100_000]);
    let sha256 = Bytes::from(Sha256::digest(&content).to_vec());
    Some(Compilation { adl: Some(Blob { sha256, content: Some(content) }), ..Compilation::default() })
}

fn compilation() -> Option<Compilation> {
    compilation_of(b'x')
}

fn submission() -> SubmitRequest {
    SubmitRequest { compilation: compilation() }
}

async fn texts(client: &Client, pe_ids: Vec<u64>) -> Result<Vec<RenderedText>, FusionError> {
    texts_of(client, b'x', pe_ids).await
}

async fn texts_of(client: &Client, application: u8, pe_ids: Vec<u64>) -> Result<Vec<RenderedText>, FusionError> {
    let request = RenderRequest { compilation: compilation_of(application), pe_ids, ..RenderRequest::default() };
    client.render(request).collect::<Vec<_>>().await.into_iter().collect()
}

#[tokio::test]
async fn content_is_sent_only_when_it_is_missing() {
    let (client, calls) = client_of(&[Behaviour::Forgetful]).await;
    client.submit(submission()).await.unwrap();
    assert_eq!(calls[0].load(Ordering::SeqCst), 2, "first the digest, then the content");
}

#[tokio::test]
async fn the_replica_that_lacks_content_gets_it_and_no_other() {
    let (client, calls) = client_of(&[Behaviour::Forgetful, Behaviour::Forgetful]).await;
    client.submit(submission()).await.unwrap();
    let mut calls: Vec<_> = calls.iter().map(|calls| calls.load(Ordering::SeqCst)).collect();
    calls.sort_unstable();
    assert_eq!(calls, [0, 2]);
}

#[tokio::test]
async fn another_replica_answers_for_one_that_cannot() {
    for bad in [Behaviour::Unavailable, Behaviour::Overloaded, Behaviour::Dies] {
        loop {
            let (client, calls, application) = client_of_first(&[bad, Behaviour::Good], LONG).await;
            let begun = Instant::now();
            for _ in 0..2 {
                client.submit(SubmitRequest { compilation: compilation_of(application) }).await.unwrap();
            }
            if begun.elapsed() < REST {
                let calls: Vec<_> = calls.iter().map(|calls| calls.load(Ordering::SeqCst)).collect();
                assert_eq!(calls, [1, 2], "a replica that failed is left alone");
                break;
            }
        }
    }
}

#[tokio::test]
async fn a_submission_goes_on_elsewhere_when_a_replica_is_silent() {
    let (client, calls, application) =
        client_of_first(&[Behaviour::Silent, Behaviour::Good], Duration::from_secs(10)).await;
    let begun = Instant::now();
    let submitted = client.submit(SubmitRequest { compilation: compilation_of(application) });
    let (answer, worked) = stopwatch::measure(move || begun.elapsed(), submitted).await;
    answer.unwrap();
    let calls: Vec<_> = calls.iter().map(|calls| calls.load(Ordering::SeqCst)).collect();
    assert_eq!(calls, [1, 1]);
    assert!(worked < begun.elapsed() / 2, "{worked:?}: the silent one was only waited for");
}

#[tokio::test]
async fn a_rendering_is_no_work_while_the_replica_says_nothing() {
    let (client, _) = client_of(&[Behaviour::Silent]).await;
    let begun = Instant::now();
    let rendered = tokio::time::timeout(Duration::from_millis(300), texts(&client, vec![0]));
    let (texts, worked) = stopwatch::measure(move || begun.elapsed(), rendered).await;
    assert!(texts.is_err() && worked < begun.elapsed() / 2, "{worked:?}: it was only waited for");
}

#[tokio::test]
async fn every_try_is_a_span_that_says_of_whom_why_and_what_came_of_it() {
    use Behaviour::{Forgetful, Good, Rejecting, Silent, Unavailable};
    // replicas -> by number: contents are sent, another one works on it already, outcome
    type Row = (&'static [Behaviour], &'static [(&'static str, &'static str, &'static str)]);
    let table: [Row; 4] = [
        (&[Good], &[("false", "false", "answered")]),
        (&[Forgetful], &[("false", "false", "content missing"), ("true", "false", "answered")]),
        (&[Rejecting], &[("false", "false", "refused")]),
        (&[Unavailable, Unavailable], &[("false", "false", "failed"), ("false", "false", "failed")]),
    ];
    for (behaviours, expected) in table {
        let collected = testing::collect(&["streams_frontend"]);
        let (client, _) = client_of(behaviours).await;
        let call = client.submit(submission()).instrument(tracing::info_span!("compile"));
        let has_tried = async {
            while collected.spans().iter().filter(|span| span.kind == "Client").count() < expected.len() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        // A call that is never answered is tried again and again.
        tokio::select! {
            _ = call => {}
            () = has_tried => {}
        }
        let spans = collected.spans();
        let tries: Vec<_> = spans.iter().filter(|span| span.kind == "Client").collect();
        for (number, span) in tries.iter().enumerate() {
            assert_eq!(
                (span.name.as_str(), span.parent.as_deref()),
                ("streams.fusion.v1.FusionService/Submit", Some("compile"),)
            );
            assert_eq!(span.attribute("number"), Some((number + 1).to_string().as_str()));
            assert_eq!(span.attribute("server.address"), Some("127.0.0.1"));
            assert!(span.attribute("server.port").is_some(), "{span:?}");
        }
        let seen =
            tries.iter().map(|span| ["with_content", "hedge", "outcome"].map(|key| span.attribute(key).unwrap()));
        let seen: Vec<_> = seen.map(|[content, hedge, outcome]| (content, hedge, outcome)).collect();
        assert_eq!(seen.get(..expected.len()), Some(expected), "{spans:#?}");
    }
    let collected = testing::collect(&["streams_frontend"]);
    let (client, _) = client_of(&[Unavailable, Unavailable]).await;
    let call = client.submit(submission()).instrument(tracing::info_span!("compile"));
    assert!(tokio::time::timeout(Duration::from_millis(400), call).await.is_err());
    let spans = collected.spans();
    let waits: Vec<_> = spans.iter().filter(|span| span.name == "wait for replica").collect();
    assert!(!waits.is_empty() && waits.iter().all(|span| span.parent.as_deref() == Some("compile")), "{spans:#?}");
    assert!(waits.iter().any(|span| span.took >= Duration::from_millis(50)), "{waits:#?}");
    let collected = testing::collect(&["streams_frontend"]);
    let (client, _, application) = client_of_first(&[Silent, Good], LONG).await;
    let request = ResizeRequest { compilation: compilation_of(application), ..ResizeRequest::default() };
    client.resize(request).instrument(tracing::info_span!("compile")).await.unwrap();
    let spans = collected.spans();
    let tries = spans.iter().filter(|span| span.kind == "Client");
    let ends = tries.map(|span| ["hedge", "outcome"].map(|key| span.attribute(key).unwrap()));
    assert_eq!(ends.collect::<BTreeSet<_>>(), BTreeSet::from([["false", "given up"], ["true", "answered"]]));
}

#[tokio::test]
async fn a_request_that_ends_replicas_is_not_sent_to_all_of_them() {
    let (client, calls) = client_of(&[Behaviour::Dies; 4]).await;
    let error = client.submit(submission()).await.unwrap_err();
    assert!(matches!(error, FusionError::ReplicasLost(_)) && error.is_transient(), "{error:?}");
    assert_eq!(calls.iter().map(|calls| calls.load(Ordering::SeqCst)).sum::<usize>(), 2);
}

#[tokio::test]
async fn a_request_at_which_replicas_fail_inside_is_not_sent_to_all_and_they_go_on_with_others() {
    let (client, calls) = client_of(&[Behaviour::Defect; 4]).await;
    let error = client.submit(submission()).await.unwrap_err();
    assert!(matches!(error, FusionError::Internal(_)) && error.is_transient(), "{error:?}");
    assert_eq!(calls.iter().map(|calls| calls.load(Ordering::SeqCst)).sum::<usize>(), 2);
    let (client, calls) = client_of(&[Behaviour::Defect]).await;
    client.submit(submission()).await.unwrap_err();
    assert_eq!(calls[0].load(Ordering::SeqCst), 2, "it is tried once more where there is only one");

    // None of them is left alone.
    let (client, calls, application) = client_of_first(&[Behaviour::Defect; 3], LONG).await;
    for round in 1..=2 {
        client.submit(SubmitRequest { compilation: compilation_of(application) }).await.unwrap_err();
        let calls: Vec<_> = calls.iter().map(|calls| calls.load(Ordering::SeqCst)).collect();
        assert_eq!(calls, [round, round, 0]);
    }
}

#[tokio::test]
async fn a_replica_that_fails_inside_where_another_one_answers_is_left_alone() {
    // the second replica, whether it takes the application
    for (second, is_good) in [(Behaviour::Good, true), (Behaviour::Rejecting, false)] {
        loop {
            let (client, calls, application) = client_of_first(&[Behaviour::Defect, second], LONG).await;
            let begun = Instant::now();
            for _ in 0..2 {
                let answer = client.submit(SubmitRequest { compilation: compilation_of(application) }).await;
                assert_eq!(answer.is_ok(), is_good);
            }
            if begun.elapsed() < REST {
                let calls: Vec<_> = calls.iter().map(|calls| calls.load(Ordering::SeqCst)).collect();
                assert_eq!(calls, [1, 2]);
                break;
            }
        }
    }
}

#[tokio::test]
async fn a_compiler_that_no_replica_has_is_not_looked_for_again_and_again() {
    use Behaviour::{Good, OtherCompiler, Unavailable};
    let (client, calls, application) = client_of_first(&[OtherCompiler, OtherCompiler], LONG).await;
    let begun = Instant::now();
    for round in 1..=2 {
        let error = texts_of(&client, application, vec![0]).await.unwrap_err();
        assert!(matches!(error, FusionError::OtherCompiler(_)), "{error:?}");
        let calls: Vec<_> = calls.iter().map(|calls| calls.load(Ordering::SeqCst)).collect();
        assert_eq!(calls, [round, round], "nobody is left alone");
    }
    assert!(begun.elapsed() < LONG / 2, "{:?}", begun.elapsed());
    // Somebody has it, or may have it.
    let (client, calls, application) = client_of_first(&[OtherCompiler, Good], LONG).await;
    texts_of(&client, application, vec![0]).await.unwrap();
    assert_eq!(calls[0].load(Ordering::SeqCst), 1);
    // On a busy machine the first one has to be reached within half of it.
    let (client, calls, application) = client_of_first(&[OtherCompiler, Unavailable], Duration::from_secs(4)).await;
    let error = texts_of(&client, application, vec![0]).await.unwrap_err();
    assert!(error.is_transient(), "{error:?}");
    assert_eq!(calls[0].load(Ordering::SeqCst), 1);
    assert!(calls[1].load(Ordering::SeqCst) > 1);
}

#[tokio::test]
async fn an_answer_that_is_larger_than_any_plan_may_be_is_final() {
    for huge in [Behaviour::Huge, Behaviour::HugeUnpacked] {
        let (client, calls, application) = client_of_first(&[huge, huge], LONG).await;
        let error = client.submit(SubmitRequest { compilation: compilation_of(application) }).await.unwrap_err();
        assert!(matches!(error, FusionError::TooLarge(_)) && !error.is_transient(), "{error:?}");
        assert!(error.to_string().contains("use fewer PEs"), "{error}");
        let calls: Vec<_> = calls.iter().map(|calls| calls.load(Ordering::SeqCst)).collect();
        assert_eq!(calls, [1, 1]);
    }
}

#[tokio::test]
async fn a_rejection_is_final() {
    let (client, calls) = client_of(&[Behaviour::Rejecting, Behaviour::Rejecting]).await;
    let error = client.submit(submission()).await.unwrap_err();
    assert!(matches!(&error, FusionError::Rejected { stage, .. } if stage == "topology"), "{error:?}");
    assert_eq!(calls.iter().map(|c| c.load(Ordering::SeqCst)).sum::<usize>(), 1);
}

#[tokio::test]
async fn nobody_there_is_transient() {
    let mut options = ClientOptions::new(vec!["127.0.0.1:1".to_owned()]);
    options.submit_deadline = Duration::from_millis(400);
    let error = Client::new(options).submit(submission()).await.unwrap_err();
    assert!(error.is_transient(), "{error:?}");
}

#[tokio::test]
async fn a_silent_replica_is_not_waited_for_beyond_the_deadline() {
    let (client, _) = client_within(&[Behaviour::Silent], Duration::from_millis(300)).await;
    let request = ResizeRequest { compilation: compilation(), ..ResizeRequest::default() };
    let error = client.resize(request).await.unwrap_err();
    assert!(matches!(error, FusionError::DeadlineExceeded(_)), "{error:?}");
}

#[tokio::test]
async fn texts_arrive_whole_and_in_order() {
    let (client, _) = client_of(&[Behaviour::Good]).await;
    let texts = texts(&client, vec![3, 1, 2]).await.unwrap();
    assert_eq!(texts.iter().map(|t| t.pe_id).collect::<Vec<_>>(), [3, 1, 2]);
    assert!(texts.iter().all(|t| t.text == text_of(t.pe_id)));
}

#[tokio::test]
async fn a_broken_stream_goes_on_elsewhere() {
    let (client, calls, application) = client_of_first(&[Behaviour::BreaksOff, Behaviour::Good], LONG).await;
    let found = texts_of(&client, application, vec![0, 1, 2, 3]).await.unwrap();
    assert_eq!(found.iter().map(|t| t.pe_id).collect::<Vec<_>>(), [0, 1, 2, 3], "each once");
    assert!(calls[0].load(Ordering::SeqCst) > 0);
}

#[tokio::test]
async fn a_text_that_is_not_the_announced_one_is_refused() {
    let (client, _) = client_of(&[Behaviour::Corrupt]).await;
    let error = texts(&client, vec![0]).await.unwrap_err();
    assert!(matches!(error, FusionError::Internal(_)), "{error:?}");
}

#[tokio::test]
async fn time_in_which_texts_are_not_taken_does_not_count() {
    // Few texts, each taken after a long time: their calls have that much more time on a busy machine.
    let deadline = Duration::from_secs(3);
    let (client, calls) = client_within(&[Behaviour::Good], deadline).await;
    let request = RenderRequest { compilation: compilation(), pe_ids: (0..5).collect(), ..RenderRequest::default() };
    let (begun, mut texts, mut found) = (Instant::now(), client.render(request), Vec::new());
    while let Some(text) = texts.next().await {
        found.push(text.unwrap().pe_id);
        tokio::time::sleep(deadline / 2).await;
    }
    assert_eq!(found, (0..5).collect::<Vec<_>>());
    assert!(begun.elapsed() > deadline && calls[0].load(Ordering::SeqCst) > 1, "no call waited for the reader");
}

#[tokio::test]
async fn a_text_that_is_larger_than_any_may_be_is_final() {
    let (client, _) = client_of(&[Behaviour::Good]).await;
    let client = Client::new(ClientOptions { max_text: text_of(0).len() - 1, ..client.options().clone() });
    let error = texts(&client, vec![0]).await.unwrap_err();
    assert!(matches!(error, FusionError::TooLarge(_)) && !error.is_transient(), "{error:?}");
}

#[tokio::test]
async fn replicas_are_called_over_tls_by_who_trusts_them() {
    let directory = tempfile::tempdir().unwrap();
    let pair = |who: &str| {
        let file = |ending: &str| directory.path().join(format!("{who}.{ending}"));
        let signed = rcgen::generate_simple_self_signed(["fusion-service".to_owned()]).unwrap();
        let pair = Pair { certificate: file("pem"), key: file("key") };
        std::fs::write(&pair.certificate, signed.cert.pem()).unwrap();
        std::fs::write(&pair.key, signed.signing_key.serialize_pem()).unwrap();
        pair
    };
    let (own, other) = (pair("own"), pair("other"));
    let serve = async |pair: &Pair| {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let service = ScriptedReplica { behaviour: Behaviour::Good, calls: Arc::default() };
        let service = FusionServiceServer::new(service).accept_compressed(CompressionEncoding::Zstd);
        let acceptor = Acceptor::new(ServerFiles { pair: pair.clone(), client_authority: None }).unwrap();
        let incoming = acceptor.accept(TcpListenerStream::new(listener), |_| None, || {});
        tokio::spawn(tonic::transport::Server::builder().add_service(service).serve_with_incoming(incoming));
        address
    };
    let (first, second, stranger) = (serve(&own).await, serve(&own).await, serve(&other).await);

    let call = async |addresses: [&String; 2], authority: Option<&Pair>, deadline: Duration| {
        let mut options = ClientOptions::new(addresses.map(String::clone).to_vec());
        options.tls = authority.map(|pair| {
            let files = ClientFiles { authority: pair.certificate.clone(), pair: None };
            Connector::new(files, "fusion-service").unwrap()
        });
        options.submit_deadline = deadline;
        Client::new(options).submit(submission()).await
    };
    call([&first, &second], Some(&own), LONG).await.unwrap();
    // Whoever is not trusted keeps nobody from asking others.
    call([&first, &stranger], Some(&own), LONG).await.unwrap();
    call([&first, &stranger], Some(&other), LONG).await.unwrap();
    // Where nobody is trusted the call ends, long before its time is over, and says why.
    let begun = Instant::now();
    let error = call([&first, &second], Some(&other), LONG).await.unwrap_err();
    assert!(begun.elapsed() < LONG / 2, "{error}");
    assert!(matches!(&error, FusionError::Unavailable(why) if why.contains("certificate")), "{error:?}");
    call([&first, &second], None, Duration::from_secs(1)).await.unwrap_err();
}

#[tokio::test]
async fn each_try_is_counted_by_how_it_ends() {
    use Behaviour::*;
    // behaviours -> codes of the tries
    let table: [(&[Behaviour], &[&str]); 3] =
        [(&[Good], &["OK"]), (&[Forgetful], &["FAILED_PRECONDITION", "OK"]), (&[Rejecting], &["INVALID_ARGUMENT"])];
    for (behaviours, expected) in table {
        let (client, _) = client_of(behaviours).await;
        let metrics = Metrics::new("test");
        client.options().figures.register(&metrics);
        let _ = client.submit(submission()).await;
        let text = metrics.text().unwrap();
        for code in expected {
            let method = "streams.fusion.v1.FusionService/Submit";
            let labels = format!(r#"{{rpc_method="{method}",rpc_response_status_code="{code}"}}"#);
            let line = format!("\ntest_rpc_client_call_duration_seconds_count{labels} 1\n");
            assert!(text.contains(&line), "{line}{text}");
        }
    }
}
