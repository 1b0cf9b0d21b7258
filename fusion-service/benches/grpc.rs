//! What a call adds to the compiler: resizes of a job that is at hand, by the library and over gRPC.
//!
//! `cargo bench -p fusion-service --bench grpc` starts the program, submits each application, and asks for one resize
//! after the other, as a frontend does that prefers the replica that knows the job: digests instead of contents. The
//! library does the same resizes in this process. Both take turns, so that what the machine does besides meets both.
//! What a call adds at 99 % is the goal, which criterion does not measure; figures that were kept are in
//! `docs/measurements/compiler.md`. Applications are the sample, and two of the conformance corpus if it is there.

#![allow(clippy::expect_used, reason = "a benchmark may panic")]

use bytes::Bytes;
use sha2::{Digest, Sha256};
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};
use streams_compiler::budget::Budget;
use streams_compiler::plan::{Compiled, FusionOption, JobState, Policy, Request, Source, resize, submit};
use streams_proto::fusion::v1 as pb;
use streams_proto::fusion::v1::fusion_service_client::FusionServiceClient;
use streams_test_support::corpus;
use tonic::transport::Channel;

/// Resizes that are measured of each application.
const TIMES: usize = 1_000;
/// Resizes before those.
const WARM: usize = 50;
/// How long the program may take to listen.
const LONG: Duration = Duration::from_secs(60);
/// Bytes of the largest answer.
const LARGEST_ANSWER: usize = 64 << 20;

const SAMPLE: &[u8] = include_bytes!("../../integration-tests/applications/sensors/demo.sensors.Sensors.adl");

/// The program; killed when dropped.
struct Served(Child);

impl Served {
    fn start(port_file: &Path) -> Self {
        let mut program = Command::new(env!("CARGO_BIN_EXE_fusion-service"));
        program.args(["serve", "--listen", "127.0.0.1:0", "--port-file"]).arg(port_file);
        Self(program.stdin(Stdio::null()).stderr(Stdio::null()).spawn().expect("the program starts"))
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The same application for the library and for the service.
struct Job {
    library: Compiled,
    compilation: pb::Compilation,
    layout: Vec<u8>,
    region: String,
    width: u32,
}

impl Job {
    async fn submit(adl: Vec<u8>, pes: Option<u64>, client: &mut FusionServiceClient<Channel>) -> Self {
        let fusion = pes.map_or(FusionOption::Legacy, |pes| FusionOption::Manual(pes.into()));
        let request = Request { job_name: "bench".to_owned(), job_id: 1, fusion, ..Request::default() };
        let budget = Budget::default();
        let source = Source::parse(&adl, &budget).expect("the application is well-formed");
        let library = submit(&source, &Arc::new(request), &budget).expect("the application compiles");
        let mode = pes.map_or(pb::fusion::Mode::Legacy(pb::fusion::Legacy {}), pb::fusion::Mode::Manual);
        let sent = pb::Compilation {
            adl: Some(pb::Blob { content: Some(Bytes::from(adl.clone())), ..digest(&adl) }),
            job_name: "bench".to_owned(),
            job_id: 1,
            fusion: Some(pb::Fusion { mode: Some(mode), r#type: 0 }),
            ..pb::Compilation::default()
        };
        let answer = client.submit(pb::SubmitRequest { compilation: Some(sent.clone()) }).await;
        let plan = answer.expect("it is submitted").into_inner().plan.expect("an answer has a plan");
        let regions = &library.plan().regions;
        let region = &regions[regions.len() / 2].region;
        let (region, width) = (region.name.clone(), region.width);
        let compilation = pb::Compilation { adl: Some(digest(&adl)), ..sent };
        Self { library, compilation, layout: plan.layout.to_vec(), region, width }
    }

    /// A width that the one before was not.
    fn next_width(&self, time: usize) -> i64 {
        i64::from(self.width) + 1 + i64::from(time % 2 == 1)
    }

    fn by_the_library(&self, time: usize) -> Duration {
        let widths = [(self.region.clone(), i128::from(self.next_width(time)))];
        let begin = Instant::now();
        let resized = resize(&self.library, &widths, Policy::Sticky, &JobState::default(), &Budget::default());
        let took = begin.elapsed();
        drop(resized.expect("it is resized"));
        took
    }

    async fn over_grpc(&self, time: usize, client: &mut FusionServiceClient<Channel>) -> Duration {
        let width = pb::RegionWidth { region: self.region.clone(), width: self.next_width(time) };
        let message = pb::ResizeRequest {
            compilation: Some(self.compilation.clone()),
            layout: Some(digest(&self.layout)),
            widths: vec![width],
            ..pb::ResizeRequest::default()
        };
        let begin = Instant::now();
        let answer = client.resize(message).await;
        let took = begin.elapsed();
        drop(answer.expect("it is resized"));
        took
    }
}

fn digest(content: &[u8]) -> pb::Blob {
    pb::Blob { sha256: Bytes::from(Sha256::digest(content).to_vec()), content: None }
}

/// The sample, and what the corpus has: name, ADL, PEs of manual fusion.
fn applications() -> Vec<(&'static str, Vec<u8>, Option<u64>)> {
    let mut all = vec![("sample", SAMPLE.to_vec(), None)];
    match corpus::benchmarks() {
        Some(folder) => {
            for (name, pes) in [("pipeline-100", Some(10)), ("channels-1000", Some(10))] {
                all.extend(fs::read(folder.join(format!("{name}.adl"))).ok().map(|adl| (name, adl, pes)));
            }
        }
        None => eprintln!("no corpus: its applications are not measured"),
    }
    all
}

/// Milliseconds that so many of a hundred took at most.
fn percentile(sorted: &[Duration], percent: usize) -> f64 {
    let at = (sorted.len() * percent).div_ceil(100).saturating_sub(1);
    sorted.get(at).map_or(0.0, Duration::as_secs_f64) * 1e3
}

#[tokio::main]
async fn main() {
    let directory = tempfile::tempdir().expect("a directory");
    let port_file = directory.path().join("port");
    let _served = Served::start(&port_file);
    let begin = Instant::now();
    let port = loop {
        if let Some(port) = fs::read_to_string(&port_file).ok().and_then(|text| text.trim().parse::<u16>().ok()) {
            break port;
        }
        assert!(begin.elapsed() < LONG, "the program does not listen");
        tokio::time::sleep(Duration::from_millis(5)).await;
    };
    let client = FusionServiceClient::connect(format!("http://127.0.0.1:{port}")).await.expect("the program answers");
    let mut client = client.max_decoding_message_size(LARGEST_ANSWER);
    println!(
        "| application | library, 50 % | 99 % | over gRPC, 50 % | 99 % | added at 99 % |\n|---|---|---|---|---|---|"
    );
    for (name, adl, pes) in applications() {
        let job = Job::submit(adl, pes, &mut client).await;
        let (mut library, mut grpc) = (Vec::new(), Vec::new());
        for time in 0..WARM + TIMES {
            let took = (job.by_the_library(time), job.over_grpc(time, &mut client).await);
            if time >= WARM {
                library.push(took.0);
                grpc.push(took.1);
            }
        }
        library.sort_unstable();
        grpc.sort_unstable();
        let [median, most] = [50, 99].map(|percent| (percentile(&library, percent), percentile(&grpc, percent)));
        let added = most.1 - most.0;
        println!("| {name} | {:.2} | {:.2} | {:.2} | {:.2} | {added:.2} |", median.0, most.0, median.1, most.1);
    }
}
