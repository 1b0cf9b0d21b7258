//! The program as a process: ports, signals, exit status, logs, traces.
use super::program;
use nix::sys::signal;
use nix::unistd::Pid;
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{TraceService, TraceServiceServer};
use opentelemetry_proto::tonic::collector::trace::v1::{ExportTraceServiceRequest, ExportTraceServiceResponse};
use opentelemetry_proto::tonic::trace::v1::Span;
use parking_lot::Mutex;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use sha2::{Digest, Sha256};
use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};
use streams_proto::fusion::v1 as pb;
use streams_proto::fusion::v1::fusion_service_client::FusionServiceClient;
use tempfile::TempDir;
use tonic::transport::{Identity, ServerTlsConfig};
use tonic::{Request, Response, Status};

const ADL: &[u8] = include_bytes!("../../../integration-tests/applications/sensors/demo.sensors.Sensors.adl");
/// Longer than anything should take, even on a machine that does much else.
const LONG: Duration = Duration::from_secs(60);

/// A server as a process; killed when dropped.
struct Served {
    child: Child,
    directory: TempDir,
}

impl Served {
    fn start(options: &[&str], variables: &[(&str, &str)]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let child = program()
            .args(["serve", "--listen", "127.0.0.1:0", "--port-file"])
            .arg(directory.path().join("port"))
            .args(options)
            .env_clear()
            .envs(variables.iter().copied())
            .stdin(Stdio::null())
            .stderr(fs::File::create(directory.path().join("log")).unwrap())
            .spawn()
            .unwrap();
        Self { child, directory }
    }

    /// The gRPC port, once it is open.
    async fn port(&mut self) -> u16 {
        let file = self.directory.path().join("port");
        wait("the port", || fs::read_to_string(&file).ok()?.trim().parse().ok()).await
    }

    async fn client(&mut self) -> FusionServiceClient<tonic::transport::Channel> {
        let port = self.port().await;
        FusionServiceClient::connect(format!("http://127.0.0.1:{port}")).await.unwrap()
    }

    fn log(&self) -> String {
        fs::read_to_string(self.directory.path().join("log")).unwrap()
    }

    async fn end(&mut self, signal: signal::Signal) -> ExitStatus {
        signal::kill(Pid::from_raw(self.child.id().try_into().unwrap()), signal).unwrap();
        self.ended().await
    }

    async fn ended(&mut self) -> ExitStatus {
        let child = &mut self.child;
        wait("the end", || child.try_wait().unwrap()).await
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

async fn wait<T>(what: &str, mut condition: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + LONG;
    loop {
        if let Some(value) = condition() {
            return value;
        }
        assert!(Instant::now() < deadline, "waited in vain: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// A submission, as part of a trace.
fn submit() -> Request<pb::SubmitRequest> {
    submit_in(TRACE)
}

fn submit_in(trace: &str) -> Request<pb::SubmitRequest> {
    let sha256 = Sha256::digest(ADL).to_vec().into();
    let compilation = pb::Compilation {
        adl: Some(pb::Blob { sha256, content: Some(ADL.into()) }),
        job_name: "sensors".into(),
        fusion: Some(pb::Fusion { mode: Some(pb::fusion::Mode::Manual(3)), r#type: 0 }),
        ..Default::default()
    };
    let mut request = Request::new(pb::SubmitRequest { compilation: Some(compilation) });
    let parent = format!("00-{trace}-{PARENT}-01");
    request.metadata_mut().insert("traceparent", parent.parse().unwrap());
    request
}

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const PARENT: &str = "b7ad6b7169203331";

#[tokio::test]
async fn it_serves_until_it_is_told_to_end() {
    for signal in [signal::Signal::SIGTERM, signal::Signal::SIGINT] {
        let mut served = Served::start(&["--log-format", "json"], &[]);
        let plan = served.client().await.submit(submit()).await.unwrap().into_inner().plan.unwrap();
        assert_eq!(plan.processing_elements.len(), 3);
        assert!(served.end(signal).await.success(), "{}", served.log());

        let events: Vec<serde_json::Value> =
            served.log().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let answered = events.iter().find(|event| event["message"] == "answered").unwrap();
        assert_eq!(answered["code"], "OK");
        assert_eq!(answered["span"]["job"], "sensors");
        assert_eq!(answered["span"]["trace_id"], TRACE);
        assert_eq!(events.last().unwrap()["message"], "stopped");
    }
}

/// As somebody with grpcurl: the server says what it has, and a question needs no digests and no layout.
#[tokio::test]
async fn it_answers_who_only_wants_to_know() {
    use pb::{explain_request, plan_request};
    use tonic_reflection::pb::v1::ServerReflectionRequest;
    use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
    use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
    use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;
    let mut served = Served::start(&[], &[]);
    let port = served.port().await;
    let endpoint = tonic::transport::Endpoint::from_shared(format!("http://127.0.0.1:{port}")).unwrap();
    let mut reflection = ServerReflectionClient::new(endpoint.connect().await.unwrap());
    for method in ["Plan", "Explain"] {
        let symbol = MessageRequest::FileContainingSymbol(format!("streams.fusion.v1.FusionService.{method}"));
        let request = ServerReflectionRequest { host: String::new(), message_request: Some(symbol) };
        let answers = reflection.server_reflection_info(tokio_stream::once(request)).await.unwrap();
        let answer = answers.into_inner().message().await.unwrap().unwrap().message_response;
        assert!(matches!(answer, Some(MessageResponse::FileDescriptorResponse(_))), "{answer:?}");
    }

    let mut client = served.client().await;
    let mut compilation = submit().into_inner().compilation.unwrap();
    compilation.adl.as_mut().unwrap().sha256.clear();
    let resize = pb::ResizeRequest {
        compilation: Some(compilation),
        widths: vec![pb::RegionWidth { region: "Clean".into(), width: 5 }],
        ..Default::default()
    };
    let what = Some(plan_request::What::Resize(resize.clone()));
    let answer = client.plan(pb::PlanRequest { what, include_plan: false }).await.unwrap().into_inner();
    let summary = answer.summary.unwrap();
    assert!(answer.plan.is_none() && summary.added_operators > 0 && !summary.restarted.is_empty(), "{summary:?}");
    let what = Some(explain_request::What::Resize(resize));
    let text = client.explain(pb::ExplainRequest { what }).await.unwrap().into_inner().text;
    assert!(text.contains("Clean") && text.contains("2 -> 5") && text.contains("because"), "{text}");
}

#[tokio::test]
async fn a_port_that_is_taken_is_named_in_one_line() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let output = program().args(["serve", "--listen", &address]).stdin(Stdio::null()).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(text.lines().count(), 1, "{text}");
    assert!(text.starts_with("error: ") && text.contains(&address), "{text}");
}

#[tokio::test]
async fn a_file_that_cannot_be_written_is_named() {
    let file = Path::new("/nowhere/port");
    let output = program()
        .args(["serve", "--log", "off", "--listen", "127.0.0.1:0", "--port-file"])
        .arg(file)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8(output.stderr).unwrap().contains("/nowhere/port"));
}

/// Collects spans as an OpenTelemetry collector does.
#[derive(Clone, Default)]
struct Collector {
    spans: Arc<Mutex<Vec<Span>>>,
}

#[tonic::async_trait]
impl TraceService for Collector {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        let resources = request.into_inner().resource_spans.into_iter();
        let spans = resources.flat_map(|resource| resource.scope_spans).flat_map(|scope| scope.spans);
        self.spans.lock().extend(spans);
        Ok(Response::new(ExportTraceServiceResponse::default()))
    }
}

impl Collector {
    /// Listens on a free port of this machine, with TLS if it is to; gives the port.
    async fn serve(&self, tls: Option<ServerTlsConfig>) -> u16 {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let server = tonic::transport::Server::builder();
        let mut server = match tls {
            Some(tls) => server.tls_config(tls).unwrap(),
            None => server,
        };
        let serving = server
            .add_service(TraceServiceServer::new(self.clone()))
            .serve_with_incoming(tokio_stream::wrappers::TcpListenerStream::new(listener));
        tokio::spawn(serving);
        port
    }

    /// Has a server with these variables take calls, and returns all its spans.
    async fn traced(
        &self,
        variables: &[(&str, &str)],
        calls: impl AsyncFnOnce(FusionServiceClient<tonic::transport::Channel>),
    ) -> Vec<Span> {
        let mut served = Served::start(&[], variables);
        calls(served.client().await).await;
        // Ends only when the last spans are sent.
        assert!(served.end(signal::Signal::SIGTERM).await.success(), "{}", served.log());
        self.spans.lock().drain(..).collect()
    }
}

/// Has a server that sends its traces take calls, and returns all its spans.
async fn traced(calls: impl AsyncFnOnce(FusionServiceClient<tonic::transport::Channel>)) -> Vec<Span> {
    let collector = Collector::default();
    let address = format!("http://127.0.0.1:{}", collector.serve(None).await);
    collector.traced(&[("OTEL_EXPORTER_OTLP_ENDPOINT", &address)], calls).await
}

#[tokio::test]
async fn a_collector_with_a_certificate_gets_the_spans() {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    let key = KeyPair::generate().unwrap();
    let certificate = CertificateParams::new(vec!["localhost".to_owned()]).unwrap().signed_by(&key, &authority);
    let identity = Identity::from_pem(certificate.unwrap().pem(), key.serialize_pem());
    let directory = tempfile::tempdir().unwrap();
    let known = directory.path().join("authorities.pem");
    fs::write(&known, authority.pem()).unwrap();
    let collector = Collector::default();
    let port = collector.serve(Some(ServerTlsConfig::new().identity(identity))).await;
    for (variable, scheme) in [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "https://"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", ""),
        ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "https://"),
    ] {
        let address = format!("{scheme}localhost:{port}");
        let variables = [(variable, address.as_str()), ("SSL_CERT_FILE", known.to_str().unwrap())];
        let spans = collector.traced(&variables, async |mut client| drop(client.submit(submit()).await.unwrap())).await;
        assert!(spans.iter().any(|span| span.name == SUBMIT), "{variable} {address}: {spans:?}");
    }
}

const SUBMIT: &str = "streams.fusion.v1.FusionService/Submit";

#[tokio::test]
async fn a_trace_crosses_the_service() {
    let spans = traced(async |mut client| drop(client.submit(submit()).await.unwrap())).await;
    let find =
        |name: &str| spans.iter().find(|span| span.name == name).unwrap_or_else(|| panic!("no span {name}: {spans:?}"));
    let call = find(SUBMIT);
    assert_eq!((hex::encode(&call.trace_id), hex::encode(&call.parent_span_id)), (TRACE.into(), PARENT.into()));
    for (name, around) in [
        ("shared submit", SUBMIT),
        ("shared application", "shared submit"),
        ("parse", "shared application"),
        ("submit", "shared submit"),
    ] {
        let (span, around) = (find(name), find(around));
        assert_eq!((&span.trace_id, &span.parent_span_id), (&call.trace_id, &around.span_id), "{name}");
    }
    // Sending them is not traced.
    assert_eq!(spans.len(), 5, "{spans:?}");
}

#[tokio::test]
async fn who_rides_along_points_to_what_it_waits_for() {
    let spans = traced(async |client| {
        // So often that some of them are at the same time.
        for round in 0..16 {
            let calls = (0..4).map(|number| {
                let (mut client, trace) = (client.clone(), format!("{:032x}", 16 * round + number + 1));
                async move { client.submit(submit_in(&trace)).await }
            });
            futures::future::try_join_all(calls).await.unwrap();
        }
    })
    .await;
    let rides: Vec<&Span> = spans.iter().filter(|span| span.name == "ride").collect();
    assert!(!rides.is_empty(), "{spans:?}");
    for ride in rides {
        let [link] = &ride.links[..] else { panic!("{ride:?}") };
        let shared = spans.iter().find(|span| span.span_id == link.span_id).unwrap();
        assert!(shared.name.starts_with("shared ") && shared.trace_id == link.trace_id, "{shared:?}");
        assert_ne!(shared.trace_id, ride.trace_id);
        let call = spans.iter().find(|span| span.span_id == ride.parent_span_id).unwrap();
        assert!(call.trace_id == ride.trace_id, "{call:?}");
    }
}
