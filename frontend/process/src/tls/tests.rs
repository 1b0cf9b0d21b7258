//! Who is trusted over real connections, and what becomes of files that are replaced.

use super::*;
use futures::stream;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use std::path::Path;
use std::pin::Pin;
use std::sync::mpsc::{self, Receiver};
use std::task::{Context, Poll};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, ReadBuf, duplex};
use tokio::net::TcpListener;

const NAME: &str = "fusion-service";
/// For what takes milliseconds.
const SOON: Duration = Duration::from_secs(30);

struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    fn new() -> Self {
        Self(CertifiedIssuer::self_signed(Self::params("authority"), KeyPair::generate().unwrap()).unwrap())
    }

    /// One of this name that may sign because this one may.
    fn intermediate(&self, name: &str) -> Self {
        let key = KeyPair::generate().unwrap();
        Self(CertifiedIssuer::signed_by(Self::params(name), key, &self.0).unwrap())
    }

    fn params(name: &str) -> CertificateParams {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        params
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
    let secured = acceptor.accept(incoming, |_| None, || {});
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
    let before = server.config();
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
        lately(&server.pair);
        assert!(Arc::ptr_eq(&server.config(), &before), "{what}");
        assert!(server.pair.current.lock().is_failing, "{what}");
    }
    fs::write(files.pair("server").certificate, certificate).unwrap();
    lately(&server.pair);
    assert!(Arc::ptr_eq(&server.config(), &before), "nothing is new");
    assert!(!server.pair.current.lock().is_failing);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_shown_is_trusted_as_long_as_it_is_valid_and_its_authority_may_sign() {
    let files = Files::new();
    let acceptor = Acceptor::asking(files.server(true)).unwrap();
    let shown = shown(&acceptor, files.connector(true)).await;
    // The certificate is for the years 1975 to 4095.
    for (seconds, expected) in [(0, false), (1_000_000_000, true), (70_000_000_000, false)] {
        let now = UnixTime::since_unix_epoch(Duration::from_secs(seconds));
        assert_eq!(shown.is_trusted_at(now), expected, "{seconds}");
    }
    assert!(shown.is_trusted());
    Authority::new().write(&files.path("ca.pem"));
    lately(acceptor.0.callers.as_ref().unwrap());
    assert!(shown.is_trusted(), "it is not verified each time");
    *shown.verified.lock() = None;
    assert!(!shown.is_trusted());
}

/// What this client shows to this server.
async fn shown(acceptor: &Acceptor, connector: Connector) -> Shown {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let connecting = tokio::spawn(async move { connector.connect(address).await });
    let incoming = stream::iter([listener.accept().await.map(|(stream, _)| stream)]);
    let mut secured = std::pin::pin!(acceptor.clone().accept(incoming, |_| None, || {}));
    let connection = secured.next().await.unwrap().unwrap();
    let _caller = connecting.await.unwrap().unwrap();
    acceptor.shown_on(&connection).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_authority_that_was_taken_away_is_not_trusted_whatever_else_is_wrong() {
    type Spoil<'a> = &'a dyn Fn(&Path);
    let spoils: [(&str, Spoil<'_>); 4] = [
        ("gone", &|path| fs::remove_file(path).unwrap()),
        ("empty", &|path| fs::write(path, "\n").unwrap()),
        ("half of it", &|path| fs::write(path, "-----BEGIN CERTIFICATE-----\nMIIB").unwrap()),
        ("another", &|path| Authority::new().write(path)),
    ];
    for (what, spoil) in spoils {
        let (files, now) = (Files::new(), UnixTime::now());
        let acceptor = Acceptor::asking(files.server(true)).unwrap();
        let shown = shown(&acceptor, files.connector(true)).await;
        assert!(shown.is_trusted_at(now), "{what}");
        let (server, path) = (&acceptor.0, files.path("ca.pem"));
        let (callers, authority) = (server.callers.as_ref().unwrap(), fs::read(&path).unwrap());
        let before = server.config();
        fs::remove_file(files.pair("server").key).unwrap();
        spoil(&path);
        lately(&server.pair);
        lately(callers);
        assert!(!shown.is_trusted_at(now), "{what}");
        assert!(!Arc::ptr_eq(&server.config(), &before), "{what}: handshakes still trust it");
        fs::write(&path, authority).unwrap();
        lately(callers);
        assert!(shown.is_trusted_at(now), "{what}, and there again");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_empty_file_of_authorities_trusts_nobody_from_the_start() {
    let files = Files::new();
    fs::write(files.path("empty.pem"), "").unwrap();
    let server = || ServerFiles { client_authority: Some(files.path("empty.pem")), ..files.server(false) };
    let needing = serve(Acceptor::new(server()).unwrap()).await;
    let asking = serve(Acceptor::asking(server()).unwrap()).await;
    let table = [(needing, true, false), (needing, false, false), (asking, true, false), (asking, false, true)];
    for (address, shows, expected) in table {
        let answer = answers(&files.connector(shows), address).await;
        assert_eq!(answer.is_ok(), expected, "needed: {}, shown: {shows}: {answer:?}", address == needing);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_caller_shows_so_many_certificates_beside_its_own() {
    for (number, expected) in [(0, true), (INTERMEDIATES, true), (INTERMEDIATES + 1, false)] {
        let files = Files::new();
        let (mut signer, mut others) = (Authority::new(), String::new());
        signer.write(&files.path("callers.pem"));
        for at in 0..number {
            signer = signer.intermediate(&format!("intermediate {at}"));
            others.insert_str(0, &signer.0.pem());
        }
        let pair = files.pair("client");
        signer.sign("frontend", &pair);
        let own = fs::read_to_string(&pair.certificate).unwrap();
        fs::write(&pair.certificate, own + &others).unwrap();
        let server = ServerFiles { client_authority: Some(files.path("callers.pem")), ..files.server(false) };
        let address = serve(Acceptor::new(server).unwrap()).await;
        let answer = answers(&files.connector(true), address).await;
        assert_eq!(answer.is_ok(), expected, "{number}: {answer:?}");
    }
}

/// A connection, of which the first read keeps its thread until the other end of this has gone.
struct Stalling(DuplexStream, Option<Receiver<()>>);

impl AsyncRead for Stalling {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if let Some(stalled) = self.1.take() {
            let _ = stalled.recv();
        }
        Pin::new(&mut self.0).poll_read(context, buffer)
    }
}

impl AsyncWrite for Stalling {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_handshake_that_computes_for_ever_keeps_no_other_from_being_made() {
    let files = Files::new();
    let acceptor = Acceptor::new(files.server(false)).unwrap();
    let (until, stalled) = mpsc::channel();
    let ((_first, first), (second, other)) = (duplex(64 << 10), duplex(64 << 10));
    let incoming = stream::iter([Ok(Stalling(first, Some(stalled))), Ok(Stalling(other, None))]);
    let accepting = tokio::spawn(async move {
        let mut secured = std::pin::pin!(acceptor.accept(incoming, |_| None, || {}));
        secured.next().await.is_some_and(|secured| secured.is_ok())
    });
    let Connector { config, server } = files.connector(false);
    let connecting = TlsConnector::from(config.current()).connect(server, second);
    let _connection = timeout(SOON, connecting).await.expect("the other is in the way").unwrap();
    assert!(timeout(SOON, accepting).await.expect("the other is in the way").unwrap());
    drop(until);
}

#[tokio::test]
async fn handshakes_end_with_who_accepts_and_those_that_fail_are_told() {
    let files = Files::new();
    let acceptor = Acceptor::new(files.server(false)).unwrap();
    let failed = Mutex::new(0);
    let ((mut silent, first), (mut plain, second)) = (duplex(1 << 10), duplex(1 << 10));
    plain.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.unwrap();
    let incoming = stream::iter([Ok(first), Ok(second)]).chain(stream::pending());
    let mut secured = Box::pin(acceptor.accept(incoming, |_| None, || *failed.lock() += 1));
    let mut heard = Vec::new();
    tokio::select! {
        _ = secured.next() => panic!("somebody is secured"),
        read = timeout(SOON, plain.read_to_end(&mut heard)) => {
            read.expect("it is kept").unwrap();
        }
    }
    while *failed.lock() == 0 {
        assert!(futures::poll!(secured.next()).is_pending());
        tokio::task::yield_now().await;
    }
    drop(secured);
    assert_eq!(timeout(SOON, silent.read(&mut [0])).await.expect("it is kept").unwrap(), 0);
    assert_eq!(*failed.lock(), 1);
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
    // key, what is said of it
    let of_p256 = fs::read_to_string(files.pair("server").key).unwrap();
    let table = [
        ("-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n", "P-256"),
        (of_p256.get(..40).unwrap(), "the end of it is missing"),
        ("-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n", "not encrypted"),
    ];
    for (key, expected) in table {
        fs::write(files.path("other.key"), key).unwrap();
        let pair = Pair { certificate: files.pair("server").certificate, key: files.path("other.key") };
        let error = Acceptor::new(ServerFiles { pair, client_authority: None }).unwrap_err();
        assert!(format!("{error:#}").contains(expected), "{error:#}");
    }
    let named = ClientFiles { authority: files.path("ca.pem"), pair: None };
    assert!(Connector::new(named, "no name").unwrap_err().to_string().contains("'no name'"));
}
