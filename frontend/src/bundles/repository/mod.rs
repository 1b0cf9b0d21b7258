//! Serving PEs the bundles of their jobs (the rules of `docs/rules/repository.md`).
//!
//! The bootstrap of a PE asks for a bundle by name, at an address of the frontend, once: whatever else it gets ends it.
//! So a request waits here for what may pass. Whose pod asks is told by its address, and what the job was submitted
//! with is recorded in its status: that bundle, with the same SHA-256, is what the pod gets.
//!
//! | Module | Subject |
//! |---|---|
//! | [`submitted`] | what a job's status says of its bundle |
//! | [`shelf`] | bundles on disk, by digest, within a bound |
//! | [`flights`] | one download for all who wait for it |
//! | [`reading`] | how much of the disk a namespace keeps from others, because its PEs read it |
//!
//! Knows: what is recorded of a submitted job, how its bundle is had again. Must not know: which pod has which address,
//! the protocol, what becomes of it that a pod is told why it does not get its bundle.
//!
//! Invariants: a pod gets no other bundle than that of its job. However many pods ask at once, a bundle is fetched once
//! (rule repository-9), and the disk that is used has a bound (rule repository-10). A pod that asks waits no longer
//! than [`RepositoryOptions::patience`].

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
use tokio::time::{Instant, sleep_until, timeout_at};

/// How soon it is looked again for what nobody tells of.
const AGAIN: Duration = Duration::from_secs(1);

/// Bounds of what is served.
#[derive(Clone, Debug)]
pub struct RepositoryOptions {
    /// Directory for bundles that are served; it need not outlive the process, and nothing in it has a name.
    pub directory: PathBuf,
    /// Bytes of bundles there.
    pub max_bytes: u64,
    /// How long a PE waits for a bundle that is being fetched, or that cannot be had at first.
    pub patience: Duration,
    /// Bounds of connections.
    pub server: Settings,
}

impl Default for RepositoryOptions {
    fn default() -> Self {
        Self {
            directory: std::env::temp_dir(),
            max_bytes: 1 << 30,
            patience: Duration::from_secs(600),
            server: Settings::default(),
        }
    }
}

impl RepositoryOptions {
    /// How long it may take, from the request of a pod until it has its bundle or is left.
    pub fn longest(&self) -> Duration {
        self.server.longest()
    }
}

/// The pods that ask.
pub trait Pods: Send + Sync + 'static {
    /// Waits until a job is known that has the pod with this address; for ever, if there is none.
    fn known(&self, address: IpAddr) -> impl Future<Output = ()> + Send;

    /// The job that has the pod with this address now.
    fn job_at(&self, address: IpAddr) -> Option<Arc<Job>>;

    /// Why nothing is known of the pod with this address, if that may pass: its namespace may not be read (rule
    /// call-33).
    fn unread(&self, _: IpAddr) -> Option<String> {
        None
    }

    /// Whether some namespace may not be read: whose pod it is that nobody knows is not known then.
    fn is_any_unread(&self) -> bool {
        false
    }

    /// The names by which the pods with this address were made to ask, whatever their job says by now.
    fn names_at(&self, address: IpAddr) -> Vec<String>;

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

/// Why a pod has not got its bundle.
enum Missed {
    /// It does not get it.
    Refused(Refusal),
    /// It may get it from this time on. The words say what it waits for.
    Until(Instant, String),
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

    /// The job of a pod (rule repository-2).
    fn job(&self, peer: IpAddr) -> Result<Arc<Job>, Refusal> {
        let nobodys = || format!("no job is known to have a pod with the address {peer}");
        let refusal = || match self.pods.unread(peer) {
            Some(why) => Refusal::NotNow(why),
            None if self.pods.is_any_unread() => {
                Refusal::NotNow(format!("{}, and some namespaces may not be read", nobodys()))
            }
            None => Refusal::Forbidden(nobodys()),
        };
        self.pods.job_at(peer).ok_or_else(refusal)
    }

    /// What the job of a pod was submitted with.
    fn submitted(&self, peer: IpAddr, job: &Job) -> Option<Submitted> {
        Submitted::of(job, self.pods.names_at(peer))
    }

    /// What the job of a pod was submitted with, if the pod may ask for it by this name. Nothing else is kept of the
    /// job while the bundle is waited for: the job may change meanwhile, and so may the names.
    fn asked(&self, peer: IpAddr, name: &str) -> Result<Submitted, Missed> {
        let job = self.job(peer).map_err(|refusal| match self.pods.unread(peer) {
            Some(why) => Missed::Until(Instant::now() + AGAIN, why),
            None => Missed::Refused(refusal),
        })?;
        let not_yet = || Missed::Until(Instant::now() + AGAIN, not_submitted(&job));
        let submitted = self.submitted(peer, &job).ok_or_else(not_yet)?;
        let Submitted { namespace, job, names, .. } = &submitted;
        if !names.iter().any(|known| known == name) {
            return Err(Missed::Refused(Refusal::Unknown(format!("job {namespace}/{job} has no bundle {name}"))));
        }
        Ok(Submitted { names: Vec::new(), ..submitted })
    }

    /// The bundle of this name, as it can be had now; what is being fetched is waited for.
    async fn look(&self, peer: IpAddr, name: &str, deadline: Instant) -> Result<Found, Missed> {
        let submitted = self.asked(peer, name)?;
        let namespace = submitted.namespace.clone();
        let bundle = self.bundle(peer, submitted, deadline).await?;
        let reader = self.sources.reading.begin(&namespace, bundle.sha256(), bundle.length());
        let reader = reader.map_err(|too_much| Missed::Until(Instant::now() + AGAIN, too_much.to_string()))?;
        self.pods.answered(peer, Ok(()));
        Ok(Found::pieces(bundle.length(), bundle.read(reader)))
    }

    /// The bundle of the job that has the pod with this address, on disk.
    async fn bundle(
        &self,
        peer: IpAddr,
        mut submitted: Submitted,
        deadline: Instant,
    ) -> Result<Arc<StoredBundle>, Missed> {
        if let Some(sha256) = self.sources.digests.get(&submitted.key()) {
            submitted.wanted = Wanted::Digest(sha256);
        }
        if let Wanted::Digest(sha256) = &submitted.wanted
            && let Some(bundle) = self.sources.shelf.get(sha256)
        {
            return Ok(bundle);
        }
        let shown = format!("{}/{}", submitted.namespace, submitted.job);
        let not_now = |why: &str| format!("the bundle of job {shown} cannot be had now: {why}");
        let (key, sources) = (submitted.key(), Arc::clone(&self.sources));
        let landing = self.sources.flights.join(key.clone(), || async move { sources.fetch(&submitted).await });
        match timeout_at(deadline, landing).await {
            Ok(Ok(bundle)) => Ok(bundle),
            Ok(Err(error)) => {
                self.pods.answered(peer, Err(&error));
                Err(Missed::Until(self.sources.flights.free_at(&key), not_now(&error.to_string())))
            }
            // It is not known yet whether it can be had.
            Err(_) => Err(Missed::Until(deadline, not_now("it is being fetched"))),
        }
    }
}

fn not_submitted(job: &Job) -> String {
    format!("job {} has no bundle yet", job.metadata.name.as_deref().unwrap_or_default())
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

    async fn known(&self, peer: IpAddr) {
        self.pods.known(peer).await;
    }

    fn find(&self, peer: IpAddr, name: &str) -> impl Future<Output = Result<Found, Refusal>> + Send {
        // Now it is asked for; the rest begins when it is known whose pod asks.
        let known_by = Instant::now() + self.options.server.known;
        async move {
            let deadline = Instant::now() + self.options.patience;
            loop {
                match self.look(peer, name, deadline).await {
                    Ok(found) => return Ok(found),
                    // The mirrors may show who had the address before. A bootstrap asks once.
                    Err(Missed::Refused(_)) if Instant::now() < known_by => {
                        sleep_until(known_by.min(Instant::now() + AGAIN)).await;
                    }
                    Err(Missed::Refused(refusal)) => return Err(refusal),
                    Err(Missed::Until(at, why)) if at >= deadline => return Err(Refusal::NotNow(why)),
                    Err(Missed::Until(at, _)) => sleep_until(at).await,
                }
            }
        }
    }

    async fn names(&self, peer: IpAddr) -> Result<Vec<String>, Refusal> {
        let job = self.job(peer)?;
        let submitted = self.submitted(peer, &job).ok_or_else(|| Refusal::NotNow(not_submitted(&job)))?;
        Ok(submitted.names)
    }
}
