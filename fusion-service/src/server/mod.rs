//! The compiler as a gRPC service (`streams.fusion.v1`), for any number of equal replicas.
//!
//! ```text
//! connection -> call (ticket from admission) -> intake (memory)
//!            -> service -> methods (request, cache)
//!                       -> steps (single_flight) -> worker (permit from admission) -> compiler
//! ```
//!
//! * The number of connections is bounded. `call` is a layer around every call: it reads how long the caller waits
//!   (`deadline`), and gives the call a `budget`, which the compiler asks for the time that is left. `answer` is the
//!   body of its answer, which a caller may read slowly.
//! * `intake` reads what a call sends, and expands it; `memory` bounds what calls take for that.
//! * `service` has the methods of the contract: `methods` checks and computes, `steps` takes a call to workers for that
//!   and has those who want the same share it (`single_flight`), `render` sends texts.
//! * `encoded` is an answer as it is sent, so that those who share it share its bytes.
//! * `request` refuses messages that break the contract; `errors` makes the status of a call that failed.
//! * `admission` bounds the number of calls and puts resizes first, by their `class` and then by the `place` in which
//!   they arrived; `work` is what they have of the workers. `cache` keeps results that the next call is likely to need,
//!   by the `digest` of what they are made from. `kept` is a compiled job with whose memory it is.
//! * `compiler` is the trait that the server needs, `library` implements it with the crate `streams_compiler`. The
//!   compiler runs on workers, never on the threads of the runtime.
//! * `direct` answers messages without a server, for programs that test the contract.
//! * `health` tells load balancers and the kubelet whether the server takes calls, `metrics` counts what it does;
//!   `questions` bounds the calls about health and reflection; `settings` are the values that a server starts with.
//!
//! Knows: tonic, the library's surface. Must not know: Kubernetes, anything that outlives the process.
//!
//! Invariants: every replica can answer every request. Caches change no result; they only decide whether the caller is
//! asked to send content again. Everything is bounded: calls, time, memory of the caches, sizes of messages. The life
//! cycle of a server is: serving, draining (health says no, calls in flight go on), cancelled (calls still in flight
//! end as `UNAVAILABLE`), ended.

pub mod direct;

mod admission;
mod answer;
mod budget;
mod cache;
mod call;
mod class;
mod compiler;
mod deadline;
mod digest;
mod encoded;
mod errors;
mod health;
mod intake;
mod kept;
mod library;
mod memory;
mod methods;
mod metrics;
mod place;
mod questions;
mod render;
mod request;
mod service;
mod settings;
mod single_flight;
mod steps;
#[cfg(test)]
mod tests;
mod work;

pub use settings::Settings;

use admission::{Admission, Capacity};
use anyhow::Context as _;
use cache::{CacheSizes, Caches};
use call::{CallLayer, Calls};
use class::PerClass;
use compiler::Compiler;
use health::Health;
use intake::Intake;
use library::Library;
use memory::Memory;
use methods::Methods;
use metrics::Metrics;
use questions::QuestionLayer;
use service::Service;
use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use steps::Steps;
use streams_process::connections;
use streams_process::http2::{self, Patience};
use streams_process::pages::{Pages, Readiness};
use streams_process::tls::Acceptor;
use streams_proto::fusion::v1::fusion_service_server::SERVICE_NAME;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinHandle;
use tokio::time;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tonic::service::{LayerExt, Routes};
use tonic::transport::server::Connected as _;

/// Bytes of the largest request: an ADL and a layout of the largest size each, and the other fields.
const LARGEST_REQUEST: usize = 192 << 20;
/// Bytes of the largest message to the services for health and reflection: names. No budget has them.
const LARGEST_QUESTION: usize = 4 << 10;
/// How long calls that were cancelled may take to notice.
const NOTICE: Duration = Duration::from_secs(3);

/// Serves until SIGTERM or SIGINT, then drains. A second signal ends it at once. Needs a tokio runtime with several
/// threads.
///
/// # Errors
///
/// An address cannot be bound, a file with a certificate cannot be read, or serving itself fails.
pub async fn run(settings: &Settings) -> anyhow::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut server = Server::start(settings, Library).await?;
    write_port(settings.port_file.as_deref(), server.address)?;
    if let Some(address) = server.http_address {
        write_port(settings.http_port_file.as_deref(), address)?;
    }
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
        error = server.failed() => return Err(error),
    }
    tokio::select! {
        () = server.stop(settings.drain, settings.grace) => {}
        _ = terminate.recv() => tracing::warn!("second signal: not waiting any longer"),
        _ = interrupt.recv() => tracing::warn!("second signal: not waiting any longer"),
    }
    Ok(())
}

/// A server that runs.
struct Server {
    address: SocketAddr,
    http_address: Option<SocketAddr>,
    health: Health,
    calls: Calls,
    stop_accepting: CancellationToken,
    stop_http: CancellationToken,
    grpc: JoinHandle<anyhow::Result<()>>,
    http: Option<JoinHandle<anyhow::Result<()>>>,
}

impl Server {
    /// Binds, and serves in the background.
    async fn start(settings: &Settings, compiler: impl Compiler) -> anyhow::Result<Self> {
        let listener = TcpListener::bind(settings.listen)
            .await
            .with_context(|| format!("cannot listen on {}", settings.listen))?;
        let address = listener.local_addr()?;
        let tls = settings.tls.clone().map(Acceptor::new).transpose().context("TLS")?;
        let secure = tls.is_some();

        let metrics = Arc::new(Metrics::new());
        let memory = Memory::new(settings.memory_bytes, Arc::clone(&metrics));
        let sizes = CacheSizes::divide(settings.cache_bytes);
        let caches = Arc::new(Caches::new(sizes, Some(memory.clone()), Arc::clone(&metrics)));
        let health = Health::new().await;
        let capacity = Capacity {
            workers: settings.workers.get(),
            tickets: PerClass {
                resize: settings.max_resizes.get(),
                render: settings.max_renders.get(),
                submit: settings.max_submits.get(),
                dry_run: settings.max_dry_runs.get(),
            },
        };
        let calls = Calls {
            admission: Admission::new(capacity, Arc::clone(&metrics)),
            memory,
            intake: Intake::new(settings.workers.get(), settings.arrival, Arc::clone(&metrics)),
            metrics: Arc::clone(&metrics),
            limits: settings.limits.clone(),
            longest: settings.longest_call,
            stall: settings.stall,
            shutdown: CancellationToken::new(),
            in_flight: TaskTracker::new(),
        };
        let methods = Methods::new(compiler, Arc::clone(&caches), Arc::clone(&metrics));
        let steps = Arc::new(Steps::new(methods, calls.admission.clone(), settings.longest_call));
        let stop_accepting = CancellationToken::new();
        let incoming = connections::accept(listener, settings.max_clients.get());
        // Health and reflection are in no budget: what they read is small, and they are few.
        let about_health = QuestionLayer::new(questions::HEALTH, settings);
        let about_services = QuestionLayer::new(questions::REFLECTION, settings);
        let v1 = reflection().build_v1()?.max_decoding_message_size(LARGEST_QUESTION);
        // grpcurl before 1.9.
        let v1alpha = reflection().build_v1alpha()?.max_decoding_message_size(LARGEST_QUESTION);
        let routes = Routes::default()
            .add_service(CallLayer(calls.clone()).named_layer(Service::new(steps)))
            .add_service(about_health.named_layer(health.service().max_decoding_message_size(LARGEST_QUESTION)))
            .add_service(about_services.named_layer(v1))
            .add_service(about_services.named_layer(v1alpha))
            .prepare();
        let transport = transport(settings);
        let stop = stop_accepting.clone().cancelled_owned();
        let grpc = tokio::spawn(async move {
            match tls {
                None => transport.serve(connections::greeted(incoming), |_| Some(routes.clone()), stop).await,
                Some(tls) => {
                    let address = |caller: &connections::Connection| {
                        Some(caller.connect_info().remote_addr()?.ip().to_canonical())
                    };
                    let incoming = connections::greeted(tls.accept(incoming, address, || {}));
                    transport.serve(incoming, |_| Some(routes.clone()), stop).await;
                }
            }
            Ok(())
        });

        let stop_http = CancellationToken::new();
        let mut http = None;
        let mut http_address = None;
        if let Some(listen) = settings.http_listen {
            let listener = TcpListener::bind(listen).await.with_context(|| format!("cannot listen on {listen}"))?;
            http_address = Some(listener.local_addr()?);
            let figures = move || {
                caches.measure();
                metrics.encode()
            };
            let serving = health.clone();
            let pages = Pages::new(figures, move || readiness(serving.is_serving()));
            let serving = pages.serve(listener, stop_http.clone().cancelled_owned());
            http = Some(tokio::spawn(async move { serving.await.context("HTTP") }));
        }
        tracing::info!(
            %address,
            http = http_address.map(tracing::field::display),
            tls = secure,
            workers = settings.workers,
            "serving"
        );
        Ok(Self { address, http_address, health, calls, stop_accepting, stop_http, grpc, http })
    }

    /// Waits until a listener ends although the server was not stopped.
    async fn failed(&mut self) -> anyhow::Error {
        let http = async {
            match &mut self.http {
                Some(task) => task.await,
                None => std::future::pending().await,
            }
        };
        let ended = tokio::select! {
            ended = &mut self.grpc => ended,
            ended = http => ended,
        };
        match ended {
            Ok(Err(error)) => error,
            Ok(Ok(())) => anyhow::anyhow!("the listener was closed"),
            Err(error) => anyhow::Error::new(error).context("the listener's task ended"),
        }
    }

    /// Sets the health to not serving and goes on as before for `drain`, then accepts nothing and lets calls in flight
    /// go on for `grace` (rule service-15).
    async fn stop(self, drain: Duration, grace: Duration) {
        tracing::info!("draining");
        self.health.set(false).await;
        time::sleep(drain).await;
        // Closes the listener, and each connection once its calls are answered.
        self.stop_accepting.cancel();
        self.calls.in_flight.close();
        if time::timeout(grace, self.calls.in_flight.wait()).await.is_err() {
            tracing::warn!(calls = self.calls.in_flight.len(), "cancelling calls in flight");
            self.calls.shutdown.cancel();
            let _ = time::timeout(NOTICE, self.calls.in_flight.wait()).await;
        }
        // Connections with a call that never ends, such as a watch on the health, are aborted.
        let abort = self.grpc.abort_handle();
        let _ = time::timeout(NOTICE / 10, self.grpc).await;
        abort.abort();
        self.stop_http.cancel();
        if let Some(http) = self.http {
            let abort = http.abort_handle();
            let _ = time::timeout(NOTICE / 10, http).await;
            abort.abort();
        }
        tracing::info!("stopped");
    }
}

/// The same answer as gRPC health, for clients that do not speak gRPC.
fn readiness(serving: bool) -> Readiness {
    Readiness { ready: serving, text: if serving { "ready\n" } else { "draining\n" }.to_owned() }
}

fn transport(settings: &Settings) -> http2::Server {
    // Whoever takes a request in says how fast it has to come.
    let mut transport = http2::Server::new(Patience { request: None, unread: settings.stall });
    transport
        .http2()
        .max_concurrent_streams(256)
        .max_header_list_size(16 << 10)
        // An ADL should not crawl in by 64 KiB a round trip.
        .initial_stream_window_size(1 << 20)
        .initial_connection_window_size(4 << 20)
        .keep_alive_interval(Duration::from_secs(30))
        .keep_alive_timeout(Duration::from_secs(20));
    transport
}

/// Only what is served here: the descriptor set has the whole contract.
fn reflection() -> tonic_reflection::server::Builder<'static> {
    tonic_reflection::server::Builder::configure()
        .register_encoded_file_descriptor_set(streams_proto::DESCRIPTOR_SET)
        .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
        // So that a caller who knows nothing can read the details of an error.
        .register_encoded_file_descriptor_set(tonic_types::pb::FILE_DESCRIPTOR_SET)
        .with_service_name(SERVICE_NAME)
        .with_service_name("grpc.health.v1.Health")
}

/// Writes a port so that a reader sees all of it or no file.
fn write_port(file: Option<&Path>, address: SocketAddr) -> anyhow::Result<()> {
    let Some(file) = file else { return Ok(()) };
    let mut new = file.as_os_str().to_owned();
    new.push(".new");
    fs::write(&new, format!("{}\n", address.port()))
        .and_then(|()| fs::rename(&new, file))
        .with_context(|| format!("cannot write {}", file.display()))
}
