//! TLS between the programs, and of callers, with certificates that are replaced while they run (rules call-26 and
//! elasticity-31).
//!
//! cert-manager and the kubelet put new files in the place of old ones long before these expire. They are looked at
//! again when a connection is made, once a second at most; connections that there are stay. What cannot be read, or
//! does not fit together, does not replace what is in use: it is told once, and looked at again. But who may sign
//! callers' certificates is renewed apart from the pair, and while that file cannot be used, nobody may: an authority
//! that was taken away must not be trusted because of what is wrong with anything else. Where callers are known by what
//! they have shown ([`Shown`]), that is verified again as long as they call: a connection lasts longer than a
//! certificate, and than the trust in who has signed it.
//!
//! Knows: PEM files, rustls. Must not know: what is said over the connections.
//!
//! Invariants: of what a caller shows nothing is verified that takes longer than a few signatures. Handshakes hold up
//! neither each other nor who accepts connections, and end when nobody accepts any more. Why they fail is told
//! (`failures`), but no caller fills the log.

mod failures;

use self::failures::Failures;
use anyhow::{Context as _, anyhow, ensure};
use futures::{Stream, StreamExt as _};
use parking_lot::Mutex;
use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::{self, PemObject as _};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{
    CertificateError, ClientConfig, ConfigBuilder, DigitallySignedStruct, DistinguishedName, Error, RootCertStore,
    ServerConfig, SignatureScheme, WantsVerifier,
};
use std::fmt::{self, Debug, Formatter};
use std::fs;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::{TlsAcceptor, TlsConnector, client, server};
use tokio_util::task::AbortOnDropHandle;

/// Files are not looked at more often.
const LOOK: Duration = Duration::from_secs(1);
/// How long a caller may take to say who it is.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// Callers that are at it at the same time; others wait.
const HANDSHAKES: usize = 1024;
/// Certificates that a caller may show beside its own. All ways through them to an authority are tried, which takes
/// seconds for some tens, and whoever shows them needs no key for that.
const INTERMEDIATES: usize = 4;
/// gRPC is spoken over HTTP/2 only.
const PROTOCOL: &[u8] = b"h2";

/// A certificate chain with its private key: files (PEM).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pair {
    /// The chain, the own certificate first.
    pub certificate: PathBuf,
    /// The private key.
    pub key: PathBuf,
}

/// Files of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerFiles {
    /// Who it is.
    pub pair: Pair,
    /// Certificates of those who may sign callers' certificates (PEM). If set, callers are asked for such a one. If the
    /// file is empty, or cannot be used any more, nobody may sign.
    pub client_authority: Option<PathBuf>,
}

/// Files of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientFiles {
    /// Certificates of those who may sign servers' certificates (PEM).
    pub authority: PathBuf,
    /// Who it is, for servers that ask.
    pub pair: Option<Pair>,
}

type Make<C> = Box<dyn Fn(&[Vec<u8>]) -> anyhow::Result<C> + Send + Sync>;

/// What is made of files, and made anew when their contents change.
struct Renewed<C> {
    files: Vec<PathBuf>,
    make: Make<C>,
    /// What counts while the files cannot be used. `None`: what counted before.
    otherwise: Option<Arc<C>>,
    /// Whether what was made of files is no more than that, which is no good news.
    is_nobody: fn(&C) -> bool,
    current: Mutex<Current<C>>,
}

struct Current<C> {
    contents: Vec<Vec<u8>>,
    made: Arc<C>,
    looked_at: Instant,
    is_failing: bool,
}

impl<C> Renewed<C> {
    fn new(files: Vec<PathBuf>, make: Make<C>) -> anyhow::Result<Self> {
        let contents = read(&files)?;
        let made = Arc::new(make(&contents).with_context(|| named(&files))?);
        let current = Mutex::new(Current { contents, made, looked_at: Instant::now(), is_failing: false });
        Ok(Self { files, make, otherwise: None, is_nobody: |_| false, current })
    }

    /// The same, which falls back to this while the files cannot be used, or say no more than this.
    fn or(self, otherwise: C, is_nobody: fn(&C) -> bool) -> Self {
        let renewed = Self { otherwise: Some(Arc::new(otherwise)), is_nobody, ..self };
        if is_nobody(&renewed.current.lock().made) {
            tracing::warn!(files = named(&renewed.files), "{NOBODY}");
        }
        renewed
    }

    fn current(&self) -> Arc<C> {
        let mut current = self.current.lock();
        if current.looked_at.elapsed() < LOOK {
            return Arc::clone(&current.made);
        }
        current.looked_at = Instant::now();
        let renewed = read(&self.files).and_then(|contents| {
            let is_new = contents != current.contents;
            Ok(is_new.then(|| (self.make)(&contents)).transpose()?.map(|made| (contents, made)))
        });
        match renewed {
            Ok(renewed) => {
                current.is_failing = false;
                if let Some((contents, made)) = renewed {
                    let files = named(&self.files);
                    if (self.is_nobody)(&made) {
                        tracing::warn!(files, "{NOBODY}");
                    } else {
                        tracing::info!(files, "new certificates");
                    }
                    (current.contents, current.made) = (contents, Arc::new(made));
                }
            }
            Err(error) => {
                if !std::mem::replace(&mut current.is_failing, true) {
                    let (files, error) = (named(&self.files), format!("{error:#}"));
                    match self.otherwise {
                        None => tracing::warn!(files, error, "new certificates cannot be used"),
                        Some(_) => tracing::warn!(files, error, "{NOBODY}"),
                    }
                }
                if let Some(otherwise) = &self.otherwise {
                    // Whatever can be read later is new, also what was there before.
                    (current.contents, current.made) = (Vec::new(), Arc::clone(otherwise));
                }
            }
        }
        Arc::clone(&current.made)
    }
}

fn read(files: &[PathBuf]) -> anyhow::Result<Vec<Vec<u8>>> {
    files.iter().map(|path| fs::read(path).with_context(|| format!("cannot read {}", path.display()))).collect()
}

fn named(files: &[PathBuf]) -> String {
    files.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ")
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

fn chain(pem: &[u8]) -> anyhow::Result<Vec<CertificateDer<'static>>> {
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    let chain = chain.map_err(unreadable).context("no certificate")?;
    ensure!(!chain.is_empty(), "no certificate");
    Ok(chain)
}

fn key(pem: &[u8]) -> anyhow::Result<PrivateKeyDer<'static>> {
    PrivateKeyDer::from_pem_slice(pem).map_err(unreadable).context("no private key")
}

/// The library says the bytes of the lines that are missing or wrong.
fn unreadable(error: pem::Error) -> anyhow::Error {
    match error {
        pem::Error::MissingSectionEnd { .. } => anyhow!("the end of it is missing"),
        pem::Error::IllegalSectionStart { .. } => anyhow!("a line that begins it is no such line"),
        pem::Error::NoItemsFound => anyhow!("there is none that is not encrypted"),
        error => error.into(),
    }
}

/// The library says of a key that it is none, whatever keeps it from being used.
fn unusable(error: Error) -> anyhow::Error {
    match error {
        Error::General(_) => {
            anyhow!("the key is none of those that can be used: P-256, P-384, Ed25519, RSA of 2048 to 4096 bits")
        }
        error => error.into(),
    }
}

fn roots(pem: &[u8]) -> anyhow::Result<Arc<RootCertStore>> {
    let mut roots = RootCertStore::empty();
    for authority in chain(pem)? {
        roots.add(authority).context("an authority that is none")?;
    }
    Ok(Arc::new(roots))
}

fn certified(contents: &[Vec<u8>]) -> anyhow::Result<CertifiedKey> {
    let [certificate, private] = contents else { return Err(anyhow!("no pair")) };
    let certified = CertifiedKey::from_der(chain(certificate)?, key(private)?, &provider());
    certified.map_err(unusable).context("certificate and key")
}

/// Said when no certificate of a caller is trusted.
const NOBODY: &str = "there is no authority of callers: no certificate is trusted";

/// Verifies certificates of callers.
#[derive(Debug)]
struct Callers {
    /// `None`: nobody may sign.
    trusting: Option<Arc<dyn ClientCertVerifier>>,
    /// Callers without a certificate are turned away.
    is_needed: bool,
    algorithms: WebPkiSupportedAlgorithms,
}

impl Callers {
    /// Trusts whom one of these has signed. A file that is there and empty says that nobody may sign.
    fn of(authority: &[u8], is_needed: bool) -> anyhow::Result<Self> {
        if authority.trim_ascii().is_empty() {
            return Ok(Self::trusting_nobody(is_needed));
        }
        let trusting = WebPkiClientVerifier::builder_with_provider(roots(authority)?, provider());
        let trusting = Some(trusting.build().context("authority of callers")?);
        Ok(Self { trusting, ..Self::trusting_nobody(is_needed) })
    }

    fn trusting_nobody(is_needed: bool) -> Self {
        Self { trusting: None, is_needed, algorithms: provider().signature_verification_algorithms }
    }
}

impl ClientCertVerifier for Callers {
    fn client_auth_mandatory(&self) -> bool {
        self.is_needed
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        match &self.trusting {
            Some(trusting) => trusting.root_hint_subjects(),
            None => &[],
        }
    }

    fn verify_client_cert(
        &self,
        own: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let trusting = self.trusting.as_ref().filter(|_| others.len() <= INTERMEDIATES);
        trusting.ok_or(CertificateError::UnknownIssuer)?.verify_client_cert(own, others, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signed, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signed, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

/// The side of a server, made of what is renewed.
struct Server {
    builder: ConfigBuilder<ServerConfig, WantsVerifier>,
    pair: Renewed<CertifiedKey>,
    /// By whom callers' certificates are verified, if callers are asked for them.
    callers: Option<Renewed<Callers>>,
    /// What was made last.
    made: Mutex<Option<Made>>,
}

struct Made {
    pair: Arc<CertifiedKey>,
    callers: Option<Arc<Callers>>,
    config: Arc<ServerConfig>,
}

impl Made {
    fn is_of(&self, pair: &Arc<CertifiedKey>, callers: Option<&Arc<Callers>>) -> bool {
        Arc::ptr_eq(&self.pair, pair) && self.callers.as_ref().map(Arc::as_ptr) == callers.map(Arc::as_ptr)
    }
}

impl Server {
    /// `is_needed`: callers without a certificate are turned away.
    fn new(files: ServerFiles, is_needed: bool) -> anyhow::Result<Self> {
        let builder = ServerConfig::builder_with_provider(provider()).with_safe_default_protocol_versions()?;
        let pair = Renewed::<CertifiedKey>::new(vec![files.pair.certificate, files.pair.key], Box::new(certified))?;
        let callers = files.client_authority.map(|authority| {
            let make = move |contents: &[Vec<u8>]| Callers::of(&contents.concat(), is_needed);
            let callers = Renewed::<Callers>::new(vec![authority], Box::new(make))?;
            let is_nobody = |callers: &Callers| callers.trusting.is_none();
            Ok::<_, anyhow::Error>(callers.or(Callers::trusting_nobody(is_needed), is_nobody))
        });
        Ok(Self { builder, pair, callers: callers.transpose()?, made: Mutex::default() })
    }

    /// For connections that are made now. Another one knows no sessions of those before: nobody takes up one whose
    /// certificate would not be trusted any more.
    fn config(&self) -> Arc<ServerConfig> {
        let (pair, callers) = (self.pair.current(), self.callers.as_ref().map(Renewed::current));
        let mut made = self.made.lock();
        if let Some(made) = made.as_ref().filter(|made| made.is_of(&pair, callers.as_ref())) {
            return Arc::clone(&made.config);
        }
        let builder = match &callers {
            Some(callers) => {
                let callers: Arc<Callers> = Arc::clone(callers);
                self.builder.clone().with_client_cert_verifier(callers)
            }
            None => self.builder.clone().with_no_client_auth(),
        };
        let mut config = builder.with_cert_resolver(Arc::new(SingleCertAndKey::from(Arc::clone(&pair))));
        config.alpn_protocols = vec![PROTOCOL.to_vec()];
        let config = Arc::new(config);
        *made = Some(Made { pair, callers, config: Arc::clone(&config) });
        config
    }
}

fn client_config(contents: &[Vec<u8>]) -> anyhow::Result<ClientConfig> {
    let config = ClientConfig::builder_with_provider(provider()).with_safe_default_protocol_versions()?;
    let [authority, pair @ ..] = contents else { return Err(anyhow!("no authority")) };
    let config = config.with_root_certificates(roots(authority)?);
    let mut config = match pair {
        [certificate, private] => {
            let config = config.with_client_auth_cert(chain(certificate)?, key(private)?);
            config.map_err(unusable).context("certificate and key")?
        }
        _ => config.with_no_client_auth(),
    };
    config.alpn_protocols = vec![PROTOCOL.to_vec()];
    Ok(config)
}

/// A connection that is secured.
pub type Secured<T> = server::TlsStream<T>;

/// The side of a server. Cheap to clone.
#[derive(Clone)]
pub struct Acceptor(Arc<Server>);

impl Debug for Acceptor {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("Acceptor").field(&self.0.pair.files).finish()
    }
}

impl Acceptor {
    /// Reads the files. A caller that is asked for a certificate and has none is turned away.
    ///
    /// # Errors
    /// A file cannot be read, or is not what it should be.
    pub fn new(files: ServerFiles) -> anyhow::Result<Self> {
        Ok(Self(Arc::new(Server::new(files, true)?)))
    }

    /// The same for a server that has other ways to know its callers: only those are turned away whose certificate is
    /// not trusted.
    ///
    /// # Errors
    /// A file cannot be read, or is not what it should be.
    pub fn asking(files: ServerFiles) -> anyhow::Result<Self> {
        Ok(Self(Arc::new(Server::new(files, false)?)))
    }

    /// Whether callers are asked for a certificate.
    #[must_use]
    pub fn asks(&self) -> bool {
        self.0.callers.is_some()
    }

    /// The certificate that a caller has shown on a connection, if it has.
    pub fn shown_on<T>(&self, connection: &Secured<T>) -> Option<Shown> {
        let (own, others) = connection.get_ref().1.peer_certificates()?.split_first()?;
        let (own, others) = (own.clone(), others.to_vec());
        Some(Shown { own, others, acceptor: self.clone(), verified: Mutex::default() })
    }

    /// Secures connections, many at the same time, each in a task of its own: what is computed for one holds up neither
    /// others nor whoever waits for them. Those on which that fails are closed, and `failed` is told of each. `address`
    /// says whose they are, for the log.
    pub fn accept<T>(
        self,
        incoming: impl Stream<Item = io::Result<T>>,
        address: impl Fn(&T) -> Option<IpAddr>,
        failed: impl Fn(),
    ) -> impl Stream<Item = io::Result<Secured<T>>>
    where
        T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let secured = incoming.map(move |connection| {
            let task = connection.map(|connection| {
                let address = address(&connection);
                (address, AbortOnDropHandle::new(tokio::spawn(handshake(self.0.config(), connection))))
            });
            async move {
                let (address, task) = match task {
                    Ok(task) => task,
                    Err(error) => return Ok(Err(error)),
                };
                match task.await {
                    Ok(Ok(secured)) => Ok(Ok(secured)),
                    Ok(Err(why)) => Err((address, why)),
                    Err(error) => Err((address, error.to_string())),
                }
            }
        });
        let failures = Failures::default();
        secured.buffer_unordered(HANDSHAKES).filter_map(move |secured| {
            let secured = match secured {
                Ok(secured) => Some(secured),
                Err((address, why)) => {
                    failures.tell(address, &why);
                    failed();
                    None
                }
            };
            async move { secured }
        })
    }
}

/// Secures a connection, or says why that fails.
async fn handshake<T>(config: Arc<ServerConfig>, connection: T) -> Result<Secured<T>, String>
where
    T: AsyncRead + AsyncWrite + Unpin,
{
    match timeout(HANDSHAKE, TlsAcceptor::from(config).accept(connection)).await {
        Ok(secured) => secured.map_err(|error| error.to_string()),
        Err(_) => Err(format!("not finished in {HANDSHAKE:?}")),
    }
}

/// The certificate that a caller has shown on its connection.
pub struct Shown {
    own: CertificateDer<'static>,
    /// What it has shown besides, up to an authority.
    others: Vec<CertificateDer<'static>>,
    acceptor: Acceptor,
    /// When it was verified last, and whether it was trusted.
    verified: Mutex<Option<(Instant, bool)>>,
}

impl Shown {
    /// The certificate itself, as DER.
    #[must_use]
    pub fn der(&self) -> &[u8] {
        &self.own
    }

    /// Whether it is valid now, and signed by those who may sign now. That is found out once a second at most.
    pub fn is_trusted(&self) -> bool {
        let mut verified = self.verified.lock();
        if let Some((at, is_trusted)) = *verified
            && at.elapsed() < LOOK
        {
            return is_trusted;
        }
        let is_trusted = self.is_trusted_at(UnixTime::now());
        *verified = Some((Instant::now(), is_trusted));
        is_trusted
    }

    fn is_trusted_at(&self, now: UnixTime) -> bool {
        let callers = self.acceptor.0.callers.as_ref().map(Renewed::current);
        callers.is_some_and(|callers| callers.verify_client_cert(&self.own, &self.others, now).is_ok())
    }
}

/// The side of a client. Cheap to clone.
#[derive(Clone)]
pub struct Connector {
    config: Arc<Renewed<ClientConfig>>,
    server: ServerName<'static>,
}

impl Debug for Connector {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Connector").field("files", &self.config.files).field("server", &self.server).finish()
    }
}

impl Connector {
    /// Reads the files. `server` is the name that a server must have a certificate for, whatever its address.
    ///
    /// # Errors
    /// A file cannot be read, or is not what it should be; the name is none.
    pub fn new(files: ClientFiles, server: &str) -> anyhow::Result<Self> {
        let pair = files.pair.map(|pair| [pair.certificate, pair.key]);
        let paths = std::iter::once(files.authority).chain(pair.into_iter().flatten()).collect();
        let server =
            ServerName::try_from(server.to_owned()).with_context(|| format!("'{server}' is no server name"))?;
        Ok(Self { config: Arc::new(Renewed::new(paths, Box::new(client_config))?), server })
    }

    /// Connects to the server at this address.
    ///
    /// # Errors
    /// It cannot be reached, or is not the one whose name is expected.
    pub async fn connect(&self, address: SocketAddr) -> io::Result<client::TlsStream<TcpStream>> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        TlsConnector::from(self.config.current()).connect(self.server.clone(), stream).await
    }
}

#[cfg(test)]
mod tests;
