//! Serving PEs the bundles of their jobs (the rules of `docs/rules/repository.md`).
//!
//! The bootstrap of a PE asks for a bundle by name, at an address of the frontend. Whose pod asks is told by its
//! address, and what the job was submitted with is recorded in its status: that bundle, with the same SHA-256, is what
//! the pod gets, or an error.
//!
//! | Module | Subject |
//! |---|---|
//! | [`submitted`] | what a job's status says of its bundle |
//! | [`shelf`] | bundles on disk, by digest, within a bound |
//! | [`flights`] | one download for all who wait for it |
//!
//! Knows: what is recorded of a submitted job, how its bundle is had again. Must not know: which pod has which address,
//! the protocol, what becomes of it that a pod is told why it does not get its bundle.
//!
//! Invariants: a pod gets no other bundle than that of its job. However many pods ask at once, a bundle is fetched once
//! (rule repository-9), and the disk that is used has a bound (rule repository-10).

mod flights;
mod reading;
mod shelf;
mod submitted;

use self::flights::Flights;
use self::reading::Reading;
use self::shelf::{Shelf, StoredBundle};
use self::submitted::Submitted;
use super::error::BundleError;
use super::fetcher::{Fetcher, Wanted};
use moka::sync::Cache;
use std::io;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use streams_api::Job;
use streams_bundle_repository::{Counters, Found, Refusal, Repository, Server, Settings, Tenant};
use streams_kubernetes::metrics::Metrics;
use tokio::net::TcpListener;
use tokio::time::timeout;

/// Bounds of what is served.
#[derive(Clone, Debug)]
pub struct RepositoryOptions {
    /// Directory for bundles that are served; it need not outlive the process, and nothing in it has a name.
    pub directory: PathBuf,
    /// Bytes of bundles there.
    pub max_bytes: u64,
    /// How long a PE waits for a bundle that is being fetched before it is told to ask again.
    pub patience: Duration,
    /// Bounds of connections.
    pub server: Settings,
}

impl Default for RepositoryOptions {
    fn default() -> Self {
        Self {
            directory: std::env::temp_dir(),
            max_bytes: 1 << 30,
            patience: Duration::from_secs(10),
            server: Settings::default(),
        }
    }
}

/// The pods that ask.
pub trait Pods: Send + Sync + 'static {
    /// The job that has the pod with this address now.
    fn job_at(&self, address: IpAddr) -> Option<Arc<Job>>;

    /// The pod with this address asked for the bundle of its job, and was given it, or was told that it cannot be had,
    /// for this reason (rule repository-11). It blocks nobody, and may be called as often as pods ask.
    fn answered(&self, address: IpAddr, outcome: Result<(), &BundleError>);
}

/// The bundles of submitted jobs, for their PEs.
pub struct BundleRepository<P> {
    pods: P,
    sources: Arc<Sources>,
    options: RepositoryOptions,
}

/// Where bundles are had from.
struct Sources {
    fetcher: Fetcher,
    kubernetes: kube::Client,
    shelf: Shelf,
    reading: Reading,
    flights: Flights<FlightKey, Arc<StoredBundle>>,
    /// Digests of bundles that were found by their ADL.
    digests: Cache<FlightKey, String>,
}

/// How many digests are known.
const DIGESTS: u64 = 1024;

/// Whose download it is: the rights of one job are no other's.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct FlightKey {
    namespace: String,
    job_uid: String,
    wanted: Wanted,
}

/// Registers the figures of a repository.
pub fn counters(metrics: &Metrics) -> Counters {
    let counters = Counters::default();
    metrics.register("repository_connections", "Connections of PEs that are open", counters.connections.clone());
    metrics.register(
        "repository_refused_connections",
        "Connections that were refused because there were too many",
        counters.refused_connections.clone(),
    );
    metrics.register("repository_requests", "Requests of PEs, by their end", counters.requests.clone());
    metrics.register(
        "repository_running_transfers",
        "Bundles that are being sent to PEs",
        counters.running_transfers.clone(),
    );
    metrics.register("repository_transfers", "Bundles that were sent to PEs, by their end", counters.transfers.clone());
    metrics.register("repository_sent_bytes", "Bytes of bundles that were sent to PEs", counters.sent_bytes.clone());
    counters
}

impl<P: Pods> BundleRepository<P> {
    /// What these pods are served: bundles that this fetcher has or gets, with Secrets that `kubernetes` reads.
    pub fn new(fetcher: Fetcher, kubernetes: kube::Client, options: RepositoryOptions, pods: P) -> Self {
        let shelf = Shelf::new(options.directory.clone(), options.max_bytes);
        let (reading, flights, digests) = (Reading::new(options.max_bytes), Flights::new(), Cache::new(DIGESTS));
        let sources = Arc::new(Sources { fetcher, kubernetes, shelf, reading, flights, digests });
        Self { pods, sources, options }
    }

    /// Serves PEs until `stop` ends.
    ///
    /// # Errors
    /// When the listener has no address.
    pub async fn serve(
        self,
        listener: TcpListener,
        counters: Counters,
        stop: impl Future<Output = ()> + Send,
    ) -> io::Result<()> {
        let settings = self.options.server.clone();
        Server::new(self, settings, counters).serve(listener, stop).await
    }

    /// What the job of a pod was submitted with (rule repository-2).
    fn submitted(&self, peer: IpAddr) -> Result<Submitted, Refusal> {
        let job = (self.pods.job_at(peer))
            .ok_or_else(|| Refusal::Forbidden(format!("no job is known to have a pod with the address {peer}")))?;
        Submitted::of(&job).ok_or_else(|| {
            let name = job.metadata.name.as_deref().unwrap_or_default();
            Refusal::NotNow(format!("job {name} has no bundle yet"))
        })
    }

    /// The bundle of the job that has the pod with this address, on disk.
    async fn bundle(&self, peer: IpAddr, mut submitted: Submitted) -> Result<Arc<StoredBundle>, Refusal> {
        if let Some(sha256) = self.sources.digests.get(&submitted.key()) {
            submitted.wanted = Wanted::Digest(sha256);
        }
        if let Wanted::Digest(sha256) = &submitted.wanted
            && let Some(bundle) = self.sources.shelf.get(sha256)
        {
            self.pods.answered(peer, Ok(()));
            return Ok(bundle);
        }
        let shown = format!("{}/{}", submitted.namespace, submitted.job);
        let (key, sources) = (submitted.key(), Arc::clone(&self.sources));
        let landing = self.sources.flights.join(key, || async move { sources.fetch(&submitted).await });
        let not_now = |why: String| Refusal::NotNow(format!("the bundle of job {shown} cannot be had now: {why}"));
        match timeout(self.options.patience, landing).await {
            Ok(outcome) => {
                self.pods.answered(peer, outcome.as_ref().map(|_| ()));
                outcome.map_err(|error| not_now(error.to_string()))
            }
            // It is not known yet whether it can be had.
            Err(_) => Err(not_now("it is being fetched".to_owned())),
        }
    }
}

impl Submitted {
    fn key(&self) -> FlightKey {
        FlightKey { namespace: self.namespace.clone(), job_uid: self.uid.clone(), wanted: self.wanted.clone() }
    }
}

impl Sources {
    /// Has the bundle on disk that a job was submitted with.
    async fn fetch(&self, submitted: &Submitted) -> Result<Arc<StoredBundle>, BundleError> {
        let Submitted { namespace, job, bundle, wanted, .. } = submitted;
        let on_shelf = || match wanted {
            Wanted::Digest(sha256) => self.shelf.get(sha256),
            Wanted::Any | Wanted::Adl(_) => None,
        };
        let outcome = async {
            // Somebody else may have had it since it was looked for.
            if let Some(bundle) = on_shelf() {
                return Ok(bundle);
            }
            let turn = self.fetcher.turn(namespace).await?;
            // Another job with this bundle may have had its turn before.
            if let Some(bundle) = on_shelf() {
                return Ok(bundle);
            }
            let held = self.fetcher.again(turn, bundle, namespace, &self.kubernetes, wanted).await?;
            if matches!(wanted, Wanted::Adl(_)) {
                self.digests.insert(submitted.key(), held.content.sha256.clone());
            }
            self.shelf.put(&held.content).await
        };
        outcome.await.inspect_err(|error| {
            tracing::warn!(job = %format_args!("{namespace}/{job}"), reason = error.reason(), %error, "PEs wait for their bundle");
        })
    }
}

impl<P: Pods> Repository for BundleRepository<P> {
    fn tenant(&self, peer: IpAddr) -> Tenant {
        self.pods.job_at(peer)?.metadata.namespace.as_deref().map(Arc::from)
    }

    async fn find(&self, peer: IpAddr, name: &str) -> Result<Found, Refusal> {
        let submitted = self.submitted(peer)?;
        if !submitted.names.iter().any(|known| known == name) {
            let Submitted { namespace, job, .. } = &submitted;
            return Err(Refusal::Unknown(format!("job {namespace}/{job} has no bundle {name}")));
        }
        let namespace = submitted.namespace.clone();
        let bundle = self.bundle(peer, submitted).await?;
        let reader = self.sources.reading.begin(&namespace, bundle.sha256(), bundle.length());
        let reader = reader.map_err(|too_much| Refusal::NotNow(too_much.to_string()))?;
        Ok(Found::pieces(bundle.length(), bundle.read(reader)))
    }

    async fn names(&self, peer: IpAddr) -> Result<Vec<String>, Refusal> {
        Ok(self.submitted(peer)?.names)
    }
}
