//! What the doubles of a test see: documents, names, and an operator that answers what the test says and keeps what it
//! was asked.

use anyhow::{Context as _, Result, ensure};
use axum::Router;
use axum::body::{Bytes, to_bytes};
use axum::extract::{ConnectInfo, Request as HttpRequest, State};
use axum::http::StatusCode;
use axum::http::header::{CONTENT_TYPE, HOST};
use clap::Parser as _;
use parking_lot::{Mutex, MutexGuard};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};
use std::time::{Duration, Instant};
use streams_compiler::budget::Budget;
use streams_compiler::plan::{Compiled, FusionOption, PortLabel, Request, Source, submit};
use streams_pe_double::{API_PORT, BUNDLE_PORT, Double, Options, ROUTES_PORT, Status};
use streams_test_support::application::Sketch;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, UdpSocket};

/// For what takes milliseconds on an idle machine.
pub(crate) const SOON: Duration = Duration::from_secs(20);
/// The namespace of all jobs.
pub(crate) const NAMESPACE: &str = "ns";
/// Bytes of the bundle, with what would end a text.
const BUNDLE: &[u8] = b"PK\x03\x04\r\n\0$-1\r\n";

/// Answers by method and path; what is not listed is 404.
pub(crate) type Answers = HashMap<String, (u16, String)>;

/// Calls, each as `METHOD http://HOST/PATH CONTENT-TYPE BODY`.
pub(crate) type Calls = Vec<String>;

#[derive(Default)]
pub(crate) struct Operator {
    pub(crate) answers: Mutex<Answers>,
    pub(crate) calls: Mutex<Calls>,
    /// By path: the other ends of the connections by which it was called.
    connections: Mutex<BTreeMap<String, BTreeSet<SocketAddr>>>,
    asked_for_bundles: Mutex<Vec<u8>>,
    bundle_requests: AtomicU32,
    /// What is said instead of a bundle.
    instead_of_bundle: Mutex<Option<Vec<u8>>>,
}

/// Jobs, names and an operator.
pub(crate) struct World {
    network: [u8; 3],
    directory: TempDir,
    hosts: Mutex<BTreeMap<String, IpAddr>>,
    pub(crate) operator: Arc<Operator>,
    next_address: AtomicU8,
}

/// A job whose documents are there.
pub(crate) struct Job {
    pub(crate) name: String,
    /// By id of the PE: the names of its operators.
    pub(crate) pes: BTreeMap<u64, Vec<String>>,
}

impl Job {
    /// The PE that has an operator.
    pub(crate) fn pe_of(&self, operator: &str) -> Result<u64> {
        let found = self.pes.iter().find(|(_, operators)| operators.iter().any(|name| name == operator));
        found.map(|(id, _)| *id).with_context(|| format!("no {operator} in {:?}", self.pes))
    }
}

impl World {
    pub(crate) async fn new() -> Result<Self> {
        static NEXT: AtomicU8 = AtomicU8::new(0);
        let process = u8::try_from(std::process::id() % 128).unwrap_or_default();
        let network = [127, 100 + process, NEXT.fetch_add(1, Ordering::Relaxed)];
        let world = Self {
            network,
            directory: tempfile::tempdir()?,
            hosts: Mutex::default(),
            operator: Arc::default(),
            next_address: AtomicU8::new(10),
        };
        let service = world.address(2);
        world.name(format!("streams-api.{NAMESPACE}"), service)?;
        let router = Router::new().fallback(answer).with_state(Arc::clone(&world.operator));
        let listener = TcpListener::bind((service, API_PORT)).await?;
        let router = router.into_make_service_with_connect_info::<SocketAddr>();
        tokio::spawn(async move { axum::serve(listener, router).await });
        let listener = TcpListener::bind((service, BUNDLE_PORT)).await?;
        tokio::spawn(serve_bundles(listener, Arc::clone(&world.operator)));
        Ok(world)
    }

    fn address(&self, last: u8) -> IpAddr {
        let [first, second, third] = self.network;
        Ipv4Addr::new(first, second, third, last).into()
    }

    /// A name leads to an address.
    fn name(&self, name: String, address: IpAddr) -> Result<()> {
        let mut hosts = lock(&self.hosts);
        hosts.insert(name, address);
        let text: String = hosts.iter().map(|(name, address)| format!("{address} {name}\n")).collect();
        fs::write(self.directory.path().join("part"), text)?;
        Ok(fs::rename(self.directory.path().join("part"), self.directory.path().join("hosts"))?)
    }

    /// Compiles a job and writes what its pods have.
    pub(crate) fn job(&self, name: &str, id: u64, sketch: &Sketch, fusion: FusionOption) -> Result<Job> {
        let budget = Budget::default();
        let source = Source::parse(sketch.adl().as_bytes(), &budget).map_err(|error| anyhow::anyhow!("{error:?}"))?;
        let request = Arc::new(Request { job_name: name.to_owned(), job_id: id, fusion, ..Request::default() });
        let compiled = submit(&source, &request, &budget).map_err(|error| anyhow::anyhow!("{error:?}"))?;
        self.write(name, id, &compiled)?;
        self.answer(format!("GET /api/state/job/by-id/{id}/name"), 200, name);
        // Whoever calls for regions of any job asks the same operator.
        self.name(format!("streams-{name}-consistentregion-api.{NAMESPACE}"), self.address(2))?;
        let elements = compiled.plan().elements.iter();
        Ok(Job { name: name.to_owned(), pes: elements.map(|pe| (pe.id, pe.operators.clone())).collect() })
    }

    fn write(&self, job: &str, id: u64, compiled: &Compiled) -> Result<()> {
        let elements = &compiled.plan().elements;
        let ports = elements.iter().flat_map(|pe| pe.port_labels.iter().map(|port| (pe.id, port)));
        let label = |(pe, port): (u64, &PortLabel)| {
            format!("{id}.{}.{}={pe}.{}@{id}\n", port.operator_index, port.operator_port, port.port_id)
        };
        let labels: String = ports.map(label).collect();
        for pe in elements {
            let root = self.root(job, pe.id);
            fs::create_dir_all(root.join("etc/config/pe"))?;
            fs::create_dir_all(root.join("etc/config/job"))?;
            let mut text = Vec::new();
            compiled.render(pe.id, &mut text, &Budget::default())?;
            fs::write(root.join("etc/config/pe/aadl.xml"), text)?;
            fs::write(root.join("etc/config/job/operator_port_labels.properties"), &labels)?;
        }
        Ok(())
    }

    fn root(&self, job: &str, pe: u64) -> PathBuf {
        self.directory.path().join(format!("{job}-{pe}"))
    }

    /// What the operator answers from now on.
    pub(crate) fn answer(&self, call: String, status: u16, body: &str) {
        lock(&self.operator.answers).insert(call, (status, body.to_owned()));
    }

    /// Calls until now that contain a text.
    pub(crate) fn calls(&self, part: &str) -> Calls {
        lock(&self.operator.calls).iter().filter(|call| call.contains(part)).cloned().collect()
    }

    /// How many connections there were by which a path was called.
    pub(crate) fn connections(&self, path: &str) -> usize {
        lock(&self.operator.connections).get(path).map_or(0, BTreeSet::len)
    }

    /// What was written to the bundle server.
    pub(crate) fn asked_for_bundles(&self) -> Vec<u8> {
        lock(&self.operator.asked_for_bundles).clone()
    }

    /// How often somebody asked for a bundle.
    pub(crate) fn bundle_requests(&self) -> u32 {
        self.operator.bundle_requests.load(Ordering::Relaxed)
    }

    /// From now on this is what is said instead of a bundle; then the connection ends.
    pub(crate) fn answer_bundles(&self, said: &[u8]) {
        *lock(&self.operator.instead_of_bundle) = Some(said.to_vec());
    }

    /// Starts a PE at a new address, as another pod would.
    pub(crate) async fn start(&self, job: &Job, pe: u64, launch: u64, more: &[&str]) -> Result<Double> {
        let address = self.address(self.next_address.fetch_add(1, Ordering::Relaxed));
        let (namespace, name) = (NAMESPACE, &job.name);
        self.answer(format!("PUT /api/state/job/{name}/pe/{pe}/connectivity"), 204, "");
        let root = self.root(name, pe);
        let arguments = [
            format!("--address={address}"),
            format!("--hosts={}", self.directory.path().join("hosts").display()),
            format!("--root={}", root.display()),
            format!("--namespace={namespace}"),
            format!("--job={name}"),
            format!("--pe={pe}"),
            format!("--launch={launch}"),
            "--sab=app.sab".to_owned(),
            "--cache-ms=200".to_owned(),
            format!("--checkpoints={}", self.directory.path().join("checkpoints").display()),
        ];
        let arguments = arguments.iter().map(String::as_str).chain(more.iter().copied());
        let options = Options::try_parse_from(["pe-double"].into_iter().chain(arguments))?;
        let double = Double::start(&options).await?;
        self.name(format!("{name}-{pe}.{namespace}"), address)?;
        Ok(double)
    }

    /// Starts all PEs of a job.
    pub(crate) async fn start_all(&self, job: &Job, more: &[&str]) -> Result<BTreeMap<u64, Double>> {
        let mut doubles = BTreeMap::new();
        for pe in job.pes.keys() {
            doubles.insert(*pe, self.start(job, *pe, 1, more).await?);
        }
        Ok(doubles)
    }

    /// Sends a datagram to a PE.
    pub(crate) async fn tell(&self, double: &Double, port: u16, message: &[u8]) -> Result<()> {
        let socket = UdpSocket::bind((self.address(2), 0)).await?;
        socket.send_to(message, (double.status().address, port)).await?;
        Ok(())
    }

    /// Sends a message about routes.
    pub(crate) async fn tell_routes(&self, double: &Double, message: &str) -> Result<()> {
        self.tell(double, ROUTES_PORT, message.as_bytes()).await
    }
}

/// Locks, also after a test has failed.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock()
}

async fn answer(
    State(operator): State<Arc<Operator>>,
    ConnectInfo(from): ConnectInfo<SocketAddr>,
    request: HttpRequest,
) -> (StatusCode, String) {
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    lock(&operator.connections).entry(path.clone()).or_default().insert(from);
    let [host, kind] = [HOST, CONTENT_TYPE].map(|name| {
        let value = request.headers().get(name).and_then(|value| value.to_str().ok());
        value.unwrap_or_default().to_owned()
    });
    let body: Bytes = to_bytes(request.into_body(), 1 << 20).await.unwrap_or_default();
    let body = String::from_utf8_lossy(&body).into_owned();
    lock(&operator.calls).push(format!("{method} http://{host}{path} {kind} {body}").trim_end().to_owned());
    let answer = lock(&operator.answers).get(&format!("{method} {path}")).cloned();
    let (status, body) = answer.unwrap_or((404, String::new()));
    (StatusCode::from_u16(status).unwrap_or_default(), body)
}

async fn serve_bundles(listener: TcpListener, operator: Arc<Operator>) {
    while let Ok((mut stream, _)) = listener.accept().await {
        let operator = Arc::clone(&operator);
        tokio::spawn(async move {
            let mut bytes = [0; 1024];
            let length = stream.read(&mut bytes).await.unwrap_or_default();
            *lock(&operator.asked_for_bundles) = bytes[..length].to_vec();
            operator.bundle_requests.fetch_add(1, Ordering::Relaxed);
            let bundle = || [format!("${}\r\n", BUNDLE.len()).as_bytes(), BUNDLE, b"\r\n"].concat();
            let answer = lock(&operator.instead_of_bundle).clone().unwrap_or_else(bundle);
            let _ = stream.write_all(&answer).await;
        });
    }
}

/// Waits until a status is as it should be, and gives it.
pub(crate) async fn reaches(double: &Double, what: &str, is: impl Fn(&Status) -> bool) -> Result<Status> {
    let since = Instant::now();
    loop {
        let status = double.status();
        if is(&status) {
            return Ok(status);
        }
        let seen = || serde_json::to_string_pretty(&status).unwrap_or_default();
        ensure!(since.elapsed() < SOON, "{what}: not within {SOON:?}; last seen: {}", seen());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Waits until so many calls were made.
pub(crate) async fn called(world: &World, part: &str, times: usize) -> Result<Calls> {
    let since = Instant::now();
    loop {
        let calls = world.calls(part);
        if calls.len() >= times {
            return Ok(calls);
        }
        let all = lock(&world.operator.calls).join("\n");
        ensure!(since.elapsed() < SOON, "not {times} calls with {part:?} within {SOON:?}; there were\n{all}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// What has arrived at the only sink of a PE from the only source: received, lost, doubled.
pub(crate) fn arrived(status: &Status) -> (u64, u64, u64) {
    let sum = |count: fn(&streams_pe_double::status::SinkStatus) -> u64| status.sinks.iter().map(count).sum();
    (sum(|sink| sink.received), sum(|sink| sink.lost), sum(|sink| sink.doubled))
}

/// What a map has for a key.
pub(crate) fn of(doubles: &BTreeMap<u64, Double>, pe: u64) -> Result<&Double> {
    doubles.get(&pe).with_context(|| format!("no PE {pe}"))
}
