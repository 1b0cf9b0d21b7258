//! TLS between the programs, and of callers, with certificates that are replaced while they run (rules call-26 and
//! elasticity-31).
//!
//! cert-manager and the kubelet put new files in the place of old ones long before these expire. They are looked at
//! again when a connection is made, once a second at most; connections that there are stay. What cannot be read, or
//! does not fit together, does not replace what is in use: it is told once, and looked at again. Where callers are
//! known by what they have shown ([`Shown`]), that is verified again as long as they call: a connection lasts longer
//! than a certificate, and than the trust in who has signed it.
//!
//! Knows: PEM files, rustls. Must not know: what is said over the connections.

use anyhow::{Context as _, anyhow, ensure};
use futures::{Stream, StreamExt as _};
use parking_lot::Mutex;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use std::fmt::{self, Debug, Formatter};
use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::{TlsAcceptor, TlsConnector, client, server};

/// Files are not looked at more often.
const LOOK: Duration = Duration::from_secs(1);
/// How long a caller may take to say who it is.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// Callers that are at it at the same time; others wait.
const HANDSHAKES: usize = 1024;
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
    /// Certificates of those who may sign callers' certificates (PEM). If set, callers are asked for such a one.
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
        Ok(Self { files, make, current })
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
                    tracing::info!(files = named(&self.files), "new certificates");
                    (current.contents, current.made) = (contents, Arc::new(made));
                }
            }
            Err(error) => {
                if !std::mem::replace(&mut current.is_failing, true) {
                    let error = format!("{error:#}");
                    tracing::warn!(files = named(&self.files), error, "new certificates cannot be used");
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
    let chain: Vec<_> = CertificateDer::pem_slice_iter(pem).collect::<Result<_, _>>().context("no certificate")?;
    ensure!(!chain.is_empty(), "no certificate");
    Ok(chain)
}

fn key(pem: &[u8]) -> anyhow::Result<PrivateKeyDer<'static>> {
    PrivateKeyDer::from_pem_slice(pem).context("no private key")
}

fn roots(pem: &[u8]) -> anyhow::Result<Arc<RootCertStore>> {
    let mut roots = RootCertStore::empty();
    for authority in chain(pem)? {
        roots.add(authority).context("an authority that is none")?;
    }
    Ok(Arc::new(roots))
}

/// What a server makes of its files.
struct Serving {
    config: Arc<ServerConfig>,
    /// By whom callers' certificates are verified, if callers are asked for them.
    callers: Option<Arc<dyn ClientCertVerifier>>,
}

/// `is_needed`: callers without a certificate are turned away.
fn serving(contents: &[Vec<u8>], is_needed: bool) -> anyhow::Result<Serving> {
    let callers = contents.get(2).map(|authority| verifier(authority, is_needed)).transpose()?;
    let config = ServerConfig::builder_with_provider(provider()).with_safe_default_protocol_versions()?;
    let config = match &callers {
        Some(callers) => config.with_client_cert_verifier(Arc::clone(callers)),
        None => config.with_no_client_auth(),
    };
    let [certificate, private, ..] = contents else { return Err(anyhow!("no pair")) };
    let mut config = config.with_single_cert(chain(certificate)?, key(private)?).context("certificate and key")?;
    config.alpn_protocols = vec![PROTOCOL.to_vec()];
    Ok(Serving { config: Arc::new(config), callers })
}

fn verifier(authority: &[u8], is_needed: bool) -> anyhow::Result<Arc<dyn ClientCertVerifier>> {
    let verifier = WebPkiClientVerifier::builder_with_provider(roots(authority)?, provider());
    let verifier = if is_needed { verifier } else { verifier.allow_unauthenticated() };
    verifier.build().context("authority of callers")
}

fn client_config(contents: &[Vec<u8>]) -> anyhow::Result<ClientConfig> {
    let config = ClientConfig::builder_with_provider(provider()).with_safe_default_protocol_versions()?;
    let [authority, pair @ ..] = contents else { return Err(anyhow!("no authority")) };
    let config = config.with_root_certificates(roots(authority)?);
    let mut config = match pair {
        [certificate, private] => {
            config.with_client_auth_cert(chain(certificate)?, key(private)?).context("certificate and key")?
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
pub struct Acceptor(Arc<Renewed<Serving>>);

impl Debug for Acceptor {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("Acceptor").field(&self.0.files).finish()
    }
}

impl Acceptor {
    /// Reads the files. A caller that is asked for a certificate and has none is turned away.
    ///
    /// # Errors
    /// A file cannot be read, or is not what it should be.
    pub fn new(files: ServerFiles) -> anyhow::Result<Self> {
        Self::of(files, true)
    }

    /// The same for a server that has other ways to know its callers: only those are turned away whose certificate is
    /// not trusted.
    ///
    /// # Errors
    /// A file cannot be read, or is not what it should be.
    pub fn asking(files: ServerFiles) -> anyhow::Result<Self> {
        Self::of(files, false)
    }

    fn of(files: ServerFiles, is_needed: bool) -> anyhow::Result<Self> {
        let paths = [files.pair.certificate, files.pair.key].into_iter().chain(files.client_authority).collect();
        let make = move |contents: &[Vec<u8>]| serving(contents, is_needed);
        Ok(Self(Arc::new(Renewed::new(paths, Box::new(make))?)))
    }

    /// The certificate that a caller has shown on a connection, if it has.
    pub fn shown_on<T>(&self, connection: &Secured<T>) -> Option<Shown> {
        let (own, others) = connection.get_ref().1.peer_certificates()?.split_first()?;
        let (own, others) = (own.clone(), others.to_vec());
        Some(Shown { own, others, acceptor: self.clone(), verified: Mutex::default() })
    }

    /// Secures connections, many at the same time. Those on which that fails are closed.
    pub fn accept<T>(self, incoming: impl Stream<Item = io::Result<T>>) -> impl Stream<Item = io::Result<Secured<T>>>
    where
        T: AsyncRead + AsyncWrite + Unpin,
    {
        let secured = incoming.map(move |connection| {
            let config = Arc::clone(&self.0.current().config);
            async move {
                let connection = match connection {
                    Ok(connection) => connection,
                    Err(error) => return Some(Err(error)),
                };
                let failed = match timeout(HANDSHAKE, TlsAcceptor::from(config).accept(connection)).await {
                    Ok(Ok(secured)) => return Some(Ok(secured)),
                    Ok(Err(error)) => error.to_string(),
                    Err(_) => format!("not finished in {HANDSHAKE:?}"),
                };
                tracing::debug!(error = failed, "a caller's TLS handshake failed");
                None
            }
        });
        secured.buffer_unordered(HANDSHAKES).filter_map(|connection| async { connection })
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
        let serving = self.acceptor.0.current();
        let verified = serving.callers.as_ref().map(|by| by.verify_client_cert(&self.own, &self.others, now));
        verified.is_some_and(|verified| verified.is_ok())
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
mod tests {
    use super::*;
    use futures::stream;
    use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
    use std::path::Path;
    use tempfile::TempDir;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    const NAME: &str = "fusion-service";
    /// For what takes milliseconds.
    const SOON: Duration = Duration::from_secs(30);

    struct Authority(CertifiedIssuer<'static, KeyPair>);

    impl Authority {
        fn new() -> Self {
            let mut params = CertificateParams::new(Vec::new()).unwrap();
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
            Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
        }

        /// Signs a pair for a name and puts it into files.
        fn sign(&self, name: &str, pair: &Pair) {
            let key = KeyPair::generate().unwrap();
            let certificate = CertificateParams::new([name.to_owned()]).unwrap().signed_by(&key, &self.0).unwrap();
            fs::write(&pair.certificate, certificate.pem()).unwrap();
            fs::write(&pair.key, key.serialize_pem()).unwrap();
        }

        fn write(&self, path: &Path) {
            fs::write(path, self.0.pem()).unwrap();
        }
    }

    /// Files of a server and of a client, all signed by one authority.
    struct Files {
        directory: TempDir,
        authority: Authority,
    }

    impl Files {
        fn new() -> Self {
            let files = Self { directory: tempfile::tempdir().unwrap(), authority: Authority::new() };
            files.authority.sign(NAME, &files.pair("server"));
            files.authority.sign("frontend", &files.pair("client"));
            files.authority.write(&files.path("ca.pem"));
            files
        }

        fn path(&self, name: &str) -> PathBuf {
            self.directory.path().join(name)
        }

        fn pair(&self, who: &str) -> Pair {
            Pair { certificate: self.path(&format!("{who}.pem")), key: self.path(&format!("{who}.key")) }
        }

        fn server(&self, asks: bool) -> ServerFiles {
            ServerFiles { pair: self.pair("server"), client_authority: asks.then(|| self.path("ca.pem")) }
        }

        fn connector(&self, shows: bool) -> Connector {
            let pair = shows.then(|| self.pair("client"));
            Connector::new(ClientFiles { authority: self.path("ca.pem"), pair }, NAME).unwrap()
        }
    }

    /// Answers with one byte on each connection that can be secured.
    async fn serve(acceptor: Acceptor) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let incoming = stream::unfold(listener, async |listener| {
            let accepted = listener.accept().await.map(|(stream, _)| stream);
            Some((accepted, listener))
        });
        let secured = acceptor.accept(incoming);
        tokio::spawn(async move {
            let mut secured = std::pin::pin!(secured);
            while let Some(Ok(mut stream)) = secured.next().await {
                tokio::spawn(async move {
                    let _ = stream.write_all(b"1").await;
                    let _ = stream.shutdown().await;
                });
            }
        });
        address
    }

    /// Whether a server is trusted and answers. With TLS 1.3 a client learns only by reading that it is turned away.
    async fn answers(connector: &Connector, address: SocketAddr) -> Result<(), String> {
        let exchange = async {
            let mut stream = connector.connect(address).await?;
            stream.read_u8().await
        };
        timeout(SOON, exchange).await.unwrap().map(drop).map_err(|error| error.to_string())
    }

    /// Waits until it is so.
    async fn until(connector: &Connector, address: SocketAddr, expected: bool) {
        let begun = Instant::now();
        while answers(connector, address).await.is_ok() != expected {
            assert!(begun.elapsed() < SOON, "it stays {}", !expected);
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_server_is_trusted_by_authority_and_name_and_so_is_a_client_where_it_is_asked() {
        let (files, strangers) = (Files::new(), Files::new());
        let open = serve(Acceptor::new(files.server(false)).unwrap()).await;
        let needing = serve(Acceptor::new(files.server(true)).unwrap()).await;
        let asking = serve(Acceptor::asking(files.server(true)).unwrap()).await;
        // connector, server, whether it answers
        let other_name = ClientFiles { authority: files.path("ca.pem"), pair: None };
        let other_name = Connector::new(other_name, "another-service").unwrap();
        let stranger = ClientFiles { authority: files.path("ca.pem"), pair: Some(strangers.pair("client")) };
        let stranger = || Connector::new(stranger.clone(), NAME).unwrap();
        let table = [
            ("trusts", files.connector(false), open, true),
            ("shows itself unasked", files.connector(true), open, true),
            ("trusts another authority", strangers.connector(false), open, false),
            ("expects another name", other_name, open, false),
            ("shows itself", files.connector(true), needing, true),
            ("shows nothing", files.connector(false), needing, false),
            ("was signed by another authority", stranger(), needing, false),
            ("shows itself, and need not", files.connector(true), asking, true),
            ("shows nothing, and need not", files.connector(false), asking, true),
            ("was signed by another authority, and need not show it", stranger(), asking, false),
        ];
        for (what, connector, address, expected) in table {
            let answer = answers(&connector, address).await;
            assert_eq!(answer.is_ok(), expected, "{what}: {answer:?}");
        }
        // What is not TLS at all does not disturb others.
        let mut plain = TcpStream::connect(open).await.unwrap();
        plain.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.unwrap();
        answers(&files.connector(false), open).await.unwrap();
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn files_that_are_replaced_count_for_new_connections() {
        let files = Files::new();
        let address = serve(Acceptor::new(files.server(true)).unwrap()).await;
        let connector = files.connector(true);
        answers(&connector, address).await.unwrap();

        // Another authority signs both; as long as not both sides have all of it, they do not trust each other.
        let next = Authority::new();
        next.sign(NAME, &files.pair("server"));
        until(&connector, address, false).await;
        next.sign("frontend", &files.pair("client"));
        next.write(&files.path("ca.pem"));
        until(&connector, address, true).await;
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn files_that_cannot_be_used_replace_nothing() {
        let files = Files::new();
        let Acceptor(server) = Acceptor::new(files.server(false)).unwrap();
        let before = server.current();
        let certificate = fs::read(files.pair("server").certificate).unwrap();
        let other = Files::new();
        type Spoil<'a> = &'a dyn Fn(&Path);
        let spoils: [(&str, Spoil<'_>); 3] = [
            ("gone", &|path| fs::remove_file(path).unwrap()),
            ("no certificate", &|path| fs::write(path, "-----BEGIN").unwrap()),
            ("of another key", &|path| {
                fs::copy(other.pair("server").certificate, path).unwrap();
            }),
        ];
        for (what, spoil) in spoils {
            spoil(&files.pair("server").certificate);
            lately(&server);
            assert!(Arc::ptr_eq(&server.current(), &before), "{what}");
            assert!(server.current.lock().is_failing, "{what}");
        }
        fs::write(files.pair("server").certificate, certificate).unwrap();
        lately(&server);
        assert!(Arc::ptr_eq(&server.current(), &before), "nothing is new");
        assert!(!server.current.lock().is_failing);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn what_was_shown_is_trusted_as_long_as_it_is_valid_and_its_authority_may_sign() {
        let files = Files::new();
        let acceptor = Acceptor::asking(files.server(true)).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, connector) = (listener.local_addr().unwrap(), files.connector(true));
        let connecting = tokio::spawn(async move { connector.connect(address).await });
        let incoming = stream::iter([listener.accept().await.map(|(stream, _)| stream)]);
        let mut secured = std::pin::pin!(acceptor.clone().accept(incoming));
        let connection = secured.next().await.unwrap().unwrap();
        let _caller = connecting.await.unwrap().unwrap();
        let shown = acceptor.shown_on(&connection).unwrap();
        // The certificate is for the years 1975 to 4095.
        for (seconds, expected) in [(0, false), (1_000_000_000, true), (70_000_000_000, false)] {
            let now = UnixTime::since_unix_epoch(Duration::from_secs(seconds));
            assert_eq!(shown.is_trusted_at(now), expected, "{seconds}");
        }
        assert!(shown.is_trusted());
        Authority::new().write(&files.path("ca.pem"));
        lately(&acceptor.0);
        assert!(shown.is_trusted(), "it is not verified each time");
        *shown.verified.lock() = None;
        assert!(!shown.is_trusted());
    }

    /// As if it had last been looked at longer ago.
    fn lately<C>(renewed: &Renewed<C>) {
        let mut current = renewed.current.lock();
        current.looked_at = current.looked_at.checked_sub(LOOK).unwrap();
    }

    #[test]
    fn what_is_wrong_with_files_at_the_start_is_said_with_their_names() {
        let (files, other) = (Files::new(), Files::new());
        let pair = Pair { certificate: files.pair("server").certificate, key: other.pair("server").key };
        let nowhere = Pair { certificate: "/nowhere/c".into(), key: "/nowhere/k".into() };
        for (pair, expected) in [(nowhere, "/nowhere/c"), (pair, "server.key")] {
            let error = Acceptor::new(ServerFiles { pair, client_authority: None }).unwrap_err();
            assert!(format!("{error:#}").contains(expected), "{error:#}");
        }
        fs::write(files.path("empty.pem"), "").unwrap();
        let empty = ClientFiles { authority: files.path("empty.pem"), pair: None };
        let error = Connector::new(empty, NAME).unwrap_err();
        assert!(format!("{error:#}").contains("empty.pem"), "{error:#}");
        let named = ClientFiles { authority: files.path("ca.pem"), pair: None };
        assert!(Connector::new(named, "no name").unwrap_err().to_string().contains("'no name'"));
    }
}
