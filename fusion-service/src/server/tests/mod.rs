//! Tests of the server over real sockets, with a [compiler](toy) whose steps a test can stop.

mod calls;
mod contract;
mod dry_run;
mod flights;
mod kept;
mod library;
mod life;
mod load;
mod memory;
mod tls;
pub(crate) mod toy;

use super::compiler::Compiler;
use super::digest::Digest;
use super::{Server, Settings};
use bytes::Bytes;
use sha2::Digest as _;
use std::future::Future;
use std::net::{Ipv4Addr, SocketAddr};
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::{Duration, Instant};
use streams_compiler::budget::Limits;
use streams_proto::fusion::v1 as pb;
use streams_proto::fusion::v1::fusion_service_client::FusionServiceClient;
use tonic::Status;
use tonic::transport::Channel;
use toy::{Gate, Toy};

/// Longer than anything should take, even on a machine that does much else.
const LONG: Duration = Duration::from_secs(60);

type Client = FusionServiceClient<Channel>;

/// A server and the gate of its compiler, if that has one.
struct Replica {
    server: Server,
    gate: Arc<Gate>,
}

/// Settings with free ports and more of everything than a test needs.
fn settings() -> Settings {
    let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    Settings {
        listen: any,
        port_file: None,
        http_listen: Some(any),
        http_port_file: None,
        workers: count(2),
        max_submits: count(16),
        max_resizes: count(64),
        max_renders: count(64),
        max_dry_runs: count(8),
        max_clients: count(1024),
        longest_call: Duration::from_secs(600),
        arrival: LONG,
        stall: LONG,
        memory_bytes: 1536 << 20,
        cache_bytes: 1 << 30,
        drain: Duration::ZERO,
        grace: Duration::from_secs(25),
        tls: None,
        limits: Limits::default(),
    }
}

fn count(number: usize) -> NonZeroUsize {
    NonZeroUsize::new(number).unwrap()
}

/// Starts a replica.
async fn replica(settings: Settings) -> Replica {
    let gate = Arc::new(Gate::default());
    start(&settings, Toy { gate: Arc::clone(&gate) }, gate).await
}

async fn start(settings: &Settings, compiler: impl Compiler, gate: Arc<Gate>) -> Replica {
    Replica { server: Server::start(settings, compiler).await.unwrap(), gate }
}

impl Replica {
    async fn channel(&self) -> Channel {
        let url = format!("http://{}", self.server.address);
        tonic::transport::Endpoint::from_shared(url).unwrap().connect().await.unwrap()
    }

    async fn client(&self) -> Client {
        Client::new(self.channel().await).max_decoding_message_size(64 << 20)
    }

    /// A page over HTTP: status and body.
    async fn page(&self, path: &str) -> (String, String) {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        let mut stream = tokio::net::TcpStream::connect(self.server.http_address.unwrap()).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head.lines().next().unwrap().to_owned(), body.to_owned())
    }

    /// No worker works and nobody waits for one.
    async fn idle(&self) {
        eventually("the workers are idle", || {
            let admission = &self.server.calls.admission;
            admission.working() == Default::default() && admission.waiting() == Default::default()
        })
        .await;
    }

    async fn begun(&self, step: &str) {
        eventually(step, || self.gate.begun().iter().any(|begun| begun == step)).await;
    }
}

/// Waits for a condition.
async fn eventually(what: &str, condition: impl Fn() -> bool) {
    let deadline = Instant::now() + LONG;
    while !condition() {
        assert!(Instant::now() < deadline, "waited in vain: {what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// Waits for something that must happen.
async fn soon<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(LONG, what).await.expect("took too long")
}

/// Calls until it is answered: a machine that does much else may be too slow for the short times of a test.
async fn sooner_or_later(mut call: impl AsyncFnMut() -> Result<(), Status>) {
    soon(async { while call().await.is_err() {} }).await;
}

fn blob(content: &[u8]) -> pb::Blob {
    pb::Blob { sha256: Digest::of(content).to_bytes(), content: Some(Bytes::copy_from_slice(content)) }
}

/// The same without content.
fn lean(mut blob: pb::Blob) -> pb::Blob {
    blob.content = None;
    blob
}

fn compilation(job: &str, adl: &str) -> pb::Compilation {
    let mode = Some(pb::fusion::Mode::Legacy(pb::fusion::Legacy {}));
    pb::Compilation {
        adl: Some(blob(adl.as_bytes())),
        job_name: job.into(),
        job_id: 1,
        fusion: Some(pb::Fusion { mode, r#type: 0 }),
        ..Default::default()
    }
}

fn lean_compilation(job: &str, adl: &str) -> pb::Compilation {
    let compilation = compilation(job, adl);
    pb::Compilation { adl: compilation.adl.map(lean), ..compilation }
}

fn submit_request(job: &str, adl: &str) -> pb::SubmitRequest {
    pb::SubmitRequest { compilation: Some(compilation(job, adl)) }
}

async fn submit(client: &mut Client, job: &str, adl: &str) -> Result<pb::Plan, Status> {
    Ok(soon(client.submit(submit_request(job, adl))).await?.into_inner().plan.unwrap())
}

/// A resize of `P` that names its inputs by digest.
fn lean_resize(job: &str, adl: &str, layout: &[u8], width: i64) -> pb::ResizeRequest {
    pb::ResizeRequest {
        compilation: Some(lean_compilation(job, adl)),
        layout: Some(lean(blob(layout))),
        widths: vec![pb::RegionWidth { region: "P".into(), width }],
        ..Default::default()
    }
}

/// The same with the content of its inputs.
fn full_resize(job: &str, adl: &str, layout: &[u8], width: i64) -> pb::ResizeRequest {
    pb::ResizeRequest {
        compilation: Some(compilation(job, adl)),
        layout: Some(blob(layout)),
        ..lean_resize(job, adl, layout, width)
    }
}

fn render_request(job: &str, adl: &str, layout: &[u8], pe_ids: &[u64]) -> pb::RenderRequest {
    pb::RenderRequest {
        compilation: Some(compilation(job, adl)),
        layout: Some(blob(layout)),
        compiler: "toy".into(),
        pe_ids: pe_ids.to_vec(),
    }
}

/// All texts of a stream, checked against what it announces.
async fn texts(client: &mut Client, request: pb::RenderRequest) -> Result<Vec<(u64, Vec<u8>)>, Status> {
    use pb::render_response::Part;
    let mut stream = soon(client.render(request)).await?.into_inner();
    let mut texts: Vec<(pb::render_response::Start, Vec<u8>)> = Vec::new();
    while let Some(message) = soon(stream.message()).await? {
        match message.part.unwrap() {
            Part::Start(start) => texts.push((start, Vec::new())),
            Part::Chunk(chunk) => {
                assert!(!chunk.is_empty() && chunk.len() <= 256 << 10, "a chunk of {} bytes", chunk.len());
                texts.last_mut().unwrap().1.extend_from_slice(&chunk);
            }
        }
    }
    let checked = texts.into_iter().map(|(start, text)| {
        assert_eq!(start.size, text.len() as u64);
        assert_eq!(start.content_id, hex::encode(sha2::Sha256::digest(&text)));
        (start.pe_id, text)
    });
    Ok(checked.collect())
}
