//! From a reference in a job to an application.
//!
//! Knows: the order in which what a reference names is looked for, and what proves that a job may have a bundle. Must
//! not know: how any of it is done.
//!
//! Invariants: a job gets a bundle from memory or from the store only if its own namespace, with its own Secret, has
//! shown within ten minutes that the server gives it (rule fetch-7), or if it is the very bundle that the job was
//! submitted with (rule fetch-14). What is fetched for a job that was submitted is kept only if it is that bundle, and
//! for a submission only if it is a bundle: what is none would take room that nobody gives back. A namespace whose
//! servers are slow leaves places to others (rules fetch-6 and repository-9).

use super::application::Application;
use super::contents::{Content, Contents};
use super::directory;
use super::error::BundleError;
use super::guard::{Lookup, SystemLookup};
use super::http::{Answer, Http, Query};
use super::options::FetchOptions;
use super::place::Place;
use super::places::Places;
use super::proofs::{PROVEN, Proof, ProofKey, Proofs};
use super::reference::{BundleLocation, shown, source};
use super::secret::BundleSecret;
use super::volume::Volume;
use reqwest::Certificate;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use streams_api::{BundleReference, PullPolicy};
use streams_kubernetes::stopwatch;
use tokio::sync::Semaphore;
use url::Url;

/// Which content of a bundle is good enough.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Wanted {
    /// What there is.
    Any,
    /// The one with this SHA-256.
    Digest(String),
    /// One whose ADL has this SHA-256: a job that was submitted by an earlier version knows no more.
    Adl(String),
}

/// A bundle in memory, and its place there (rule fetch-6).
pub(super) struct Held {
    /// The bundle.
    pub(super) content: Content,
    _turn: FetchTurn,
}

/// A bundle that a job may have.
struct Obtained {
    content: Content,
    source: Source,
}

/// Where it is from.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Source {
    /// It is kept already.
    Kept,
    /// The bundle directory.
    File,
    /// A server.
    Server,
}

/// The turn of a bundle that is fetched again, with a place in memory.
pub(super) struct FetchTurn(Place);

/// Fetches bundles. Cheap to clone.
#[derive(Clone)]
pub struct Fetcher {
    options: Arc<FetchOptions>,
    http: Http,
    /// Where the bundle directory is.
    directory: Volume,
    contents: Contents,
    proofs: Proofs,
    proven: Duration,
    /// Bundles that may be in memory besides those that are kept (rule fetch-6).
    places: Places,
    /// Those whose ADL is being taken out: one. No server can hold it up.
    unpacking: Arc<Semaphore>,
}

impl Fetcher {
    /// A fetcher with these options.
    ///
    /// # Errors
    /// When TLS cannot be set up, or the proxy cannot be used.
    pub fn new(options: FetchOptions) -> anyhow::Result<Self> {
        Self::with(options, Arc::new(SystemLookup), &[], PROVEN)
    }

    /// A fetcher that resolves names so, trusts these authorities too, and believes a proof for so long.
    pub(super) fn with(
        options: FetchOptions,
        lookup: Arc<dyn Lookup>,
        roots: &[Certificate],
        proven: Duration,
    ) -> anyhow::Result<Self> {
        let options = Arc::new(options);
        // As many as have places may wait for a volume, and as many may have given it up.
        let volume = || Volume::new(options.at_once.saturating_mul(2), options.time_out);
        let contents = Contents::new(options.cache_bytes, options.store.clone(), volume(), options.max_bytes);
        Ok(Self {
            http: Http::new(Arc::clone(&options), lookup, roots)?,
            directory: volume(),
            contents,
            proofs: Proofs::new(proven),
            proven,
            places: Places::new(options.at_once),
            unpacking: Arc::new(Semaphore::new(1)),
            options,
        })
    }

    /// Fetches the bundle of a job in `namespace` and takes the ADL out. `kubernetes` reads the Secret, if one is
    /// named.
    ///
    /// # Errors
    /// See [`BundleError`]: what the user must correct, and what may work later.
    pub async fn fetch(
        &self,
        bundle: &BundleReference,
        namespace: &str,
        kubernetes: &kube::Client,
    ) -> Result<Application, BundleError> {
        let place = self.places.acquire(namespace).await;
        let demand = Demand { bundle, namespace, wanted: &Wanted::Any, place: &place };
        let obtained = self.obtain(&demand, kubernetes).await?;
        let unpacked = self.unpack(bundle, obtained.content.clone(), &place).await;
        if unpacked.as_ref().is_err_and(|error| !error.is_transient()) {
            self.note_unusable(namespace, &obtained.content.sha256);
        }
        let application = unpacked?;
        if self.options.store.is_none() || obtained.source == Source::Kept {
            self.keep(&obtained).await?;
            return Ok(application);
        }
        // A volume may take its time, and the place has no room for the ADL as well (rule fetch-6).
        drop(application);
        self.keep(&obtained).await?;
        self.unpack(bundle, obtained.content, &place).await
    }

    /// Keeps a bundle that a job uses.
    ///
    /// # Errors
    /// When it cannot be stored; that may pass.
    async fn keep(&self, Obtained { content, source }: &Obtained) -> Result<(), BundleError> {
        match source {
            Source::Kept => Ok(()),
            Source::File => self.contents.store(content).await,
            Source::Server => self.contents.keep(content).await,
        }
    }

    /// A submission in `namespace` failed because of the bundle with this digest. Whoever corrects it, perhaps at the
    /// same URL, is not told so out of memory: the server is asked whether it has another one by now.
    pub fn note_unusable(&self, namespace: &str, sha256: &str) {
        self.proofs.note_unusable(namespace, sha256);
    }

    /// Waits until a bundle of this namespace may be fetched again.
    ///
    /// # Errors
    /// Too many wait already. It passes.
    pub(super) async fn turn(&self, namespace: &str) -> Result<FetchTurn, BundleError> {
        self.places.acquire_again(namespace).await.map(FetchTurn)
    }

    /// The bundle that a job in `namespace` was submitted with: from memory or the store, else from where the job says.
    /// `turn` is one of this namespace.
    ///
    /// # Errors
    /// See [`BundleError`]; among others when what is there now is another bundle (rule fetch-13).
    pub(super) async fn again(
        &self,
        turn: FetchTurn,
        bundle: &BundleReference,
        namespace: &str,
        kubernetes: &kube::Client,
        wanted: &Wanted,
    ) -> Result<Held, BundleError> {
        let kept = match wanted {
            Wanted::Digest(sha256) => self.contents.get(sha256, &turn.0).await,
            Wanted::Any | Wanted::Adl(_) => None,
        };
        let content = match kept {
            Some(content) => content,
            None => {
                let demand = Demand { bundle, namespace, wanted, place: &turn.0 };
                let obtained = self.obtain(&demand, kubernetes).await?;
                self.keep(&obtained).await?;
                obtained.content
            }
        };
        Ok(Held { content, _turn: turn })
    }

    /// The bundle from where the job says.
    async fn obtain(&self, demand: &Demand<'_>, kubernetes: &kube::Client) -> Result<Obtained, BundleError> {
        let Demand { bundle, namespace, .. } = demand;
        match source(bundle, &self.options)? {
            BundleLocation::File(file) => self.read(&file, demand).await,
            BundleLocation::Named(file, url) => match self.read(&file, demand).await {
                Err(of_file) if self.may_be_elsewhere(&of_file, demand) => {
                    let elsewhere = self.download(&url, true, None, demand).await;
                    // What the file lacks is not told by what the server says.
                    elsewhere.map_err(|error| if self.has_no_file(&of_file) { error } else { of_file })
                }
                read => read,
            },
            BundleLocation::Web(url) => {
                let secret = match &bundle.secret {
                    Some(name) => Some(self.secret(kubernetes, namespace, name, &url).await?),
                    None => None,
                };
                self.download(&url, false, secret.as_ref(), demand).await
            }
        }
    }

    /// Whether a bundle that has only a name is looked for at the base URL after this of its file. One that is
    /// submitted is not because its volume fails for now: it would be another one, and the job would be pinned to that.
    /// One that is pinned may be anywhere, and it does not matter where.
    fn may_be_elsewhere(&self, of_file: &BundleError, demand: &Demand<'_>) -> bool {
        self.has_no_file(of_file) || *demand.wanted != Wanted::Any
    }

    /// Whether this is said of a file that is not there.
    fn has_no_file(&self, of_file: &BundleError) -> bool {
        self.options.directory.is_none() || of_file.is_not_found()
    }

    /// Whether this is what is wanted.
    ///
    /// # Errors
    /// When it is another bundle; the message names both digests. The right one may come back.
    async fn check(&self, content: &Content, demand: &Demand<'_>) -> Result<(), BundleError> {
        let (was, is, what) = match demand.wanted {
            Wanted::Any => return Ok(()),
            Wanted::Digest(sha256) => (sha256, content.sha256.clone(), "the bundle"),
            Wanted::Adl(sha256) => (sha256, self.adl_of(content, demand).await?, "the ADL"),
        };
        if *was == is {
            return Ok(());
        }
        let title = demand.bundle.title().unwrap_or_default();
        Err(BundleError::unavailable(format!(
            "{title} was replaced: the job was submitted with {what} {was} (SHA-256), now it is {is}"
        )))
    }

    /// The bundle with this digest, which a job in `namespace` had before, if it is still in memory or in the store.
    ///
    /// # Errors
    /// When it is there and cannot be used.
    pub async fn kept(
        &self,
        bundle: &BundleReference,
        namespace: &str,
        sha256: &str,
    ) -> Result<Option<Application>, BundleError> {
        let place = self.places.acquire(namespace).await;
        match self.contents.get(sha256, &place).await {
            Some(content) => self.unpack(bundle, content, &place).await.map(Some),
            None => Ok(None),
        }
    }

    /// Takes the ADL out of a bundle. The turn for it lasts as long as the thread that does it.
    async fn unpack(
        &self,
        bundle: &BundleReference,
        content: Content,
        place: &Place,
    ) -> Result<Application, BundleError> {
        // Closed by nobody.
        let turn = stopwatch::aside(Arc::clone(&self.unpacking).acquire_owned()).await;
        Application::of(bundle, content, self.options.max_adl_bytes, &Place::new((turn, place.clone()))).await
    }

    /// SHA-256 of the ADL of a bundle.
    async fn adl_of(&self, content: &Content, demand: &Demand<'_>) -> Result<String, BundleError> {
        Ok(self.unpack(demand.bundle, content.clone(), demand.place).await?.adl_sha256)
    }

    /// What a file of the bundle directory has.
    async fn read(&self, file: &Path, demand: &Demand<'_>) -> Result<Obtained, BundleError> {
        let FetchOptions { directory, max_bytes, .. } = &*self.options;
        let bytes = directory::read(&self.directory, directory.as_deref(), file, *max_bytes).await?;
        let content = Content::of(bytes.into(), demand.place).await?;
        self.check(&content, demand).await?;
        Ok(Obtained { content, source: Source::File })
    }

    /// The Secret of a job, if its token may go to this URL.
    async fn secret(
        &self,
        kubernetes: &kube::Client,
        namespace: &str,
        name: &str,
        url: &Url,
    ) -> Result<BundleSecret, BundleError> {
        let secret = BundleSecret::read(kubernetes, namespace, name, &self.options.default_hosts()).await?;
        if secret.hosts.list(url) {
            return Ok(secret);
        }
        let host = url.host_str().unwrap_or_default();
        let host = url.port().map_or(host.to_owned(), |port| format!("{host}:{port}"));
        let why = match url.scheme() {
            "https" => format!("the key hosts of secret {} does not list {host}", secret.name),
            _ => format!("the token of secret {} goes to {host} by https only", secret.name),
        };
        Err(BundleError::permanent("BundleRefused", format!("{}: {why}", shown(url))))
    }

    /// What a URL has, by the rights of a namespace and its Secret.
    async fn download(
        &self,
        url: &Url,
        is_own: bool,
        secret: Option<&BundleSecret>,
        demand: &Demand<'_>,
    ) -> Result<Obtained, BundleError> {
        let key = ProofKey::new(demand.namespace, secret.map(|secret| &secret.identity), url);
        let proof = self.proofs.get(&key);
        if let Some(proof) = proof.as_ref().filter(|proof| proof.counts(self.proven))
            && demand.bundle.pull_policy == PullPolicy::IfNotPresent
            && *demand.wanted == Wanted::Any
            && !self.proofs.is_unusable(demand.namespace, &proof.sha256)
            && let Some(content) = self.contents.get(&proof.sha256, demand.place).await
        {
            return Ok(Obtained { content, source: Source::Kept });
        }
        let token = secret.map(|secret| (secret.token.as_str(), &secret.hosts));
        // Only what this very namespace was given with this very Secret: a 304 for it is worth as much as the bytes.
        let mut known = match proof {
            Some(proof) if self.contents.has(&proof.sha256).await => Some(proof),
            _ => None,
        };
        loop {
            let validator = known.as_ref().and_then(|proof| proof.validator.as_ref());
            let answer = self.http.get(&Query { url, is_own, token, validator }).await;
            match (answer, known.take()) {
                (Ok(Answer::Same), Some(proof)) => {
                    // If it was lost meanwhile, it is asked for unconditionally.
                    let Some(content) = self.contents.get(&proof.sha256, demand.place).await else { continue };
                    self.check(&content, demand).await?;
                    self.proofs.put(key, Proof::new(proof.sha256, proof.validator));
                    return Ok(Obtained { content, source: Source::Kept });
                }
                (Ok(Answer::Same), None) => {
                    return Err(BundleError::unavailable(format!("{} was not sent", shown(url))));
                }
                (Ok(Answer::New(bytes, validator)), _) => {
                    let content = Content::of(bytes, demand.place).await?;
                    self.check(&content, demand).await?;
                    self.proofs.put(key, Proof::new(content.sha256.clone(), validator));
                    return Ok(Obtained { content, source: Source::Server });
                }
                (Err(error), _) => {
                    if error.reason() != "BundleUnavailable" {
                        self.proofs.forget(&key);
                    }
                    return Err(error);
                }
            }
        }
    }
}

/// What is fetched, for whom.
struct Demand<'a> {
    bundle: &'a BundleReference,
    namespace: &'a str,
    wanted: &'a Wanted,
    place: &'a Place,
}
