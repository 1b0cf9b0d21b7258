//! Whole conversations: recorded byte for byte, with a client library, and with clients that mean harm.

mod client;
mod exchanges;
mod hostile;
mod limits;

use crate::{Counters, Found, Refusal, Repository, Server, Settings, Tenant};
use bytes::Bytes;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// A pod that may have bundles.
const POD: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
/// One that may not.
const FORBIDDEN: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 8));
/// One of which nothing is ever known.
const STRANGER: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 9));
/// One of which is known only after [`KNOWN_AFTER`] that it may.
const SOON_KNOWN: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 10));
const KNOWN_AFTER: Duration = Duration::from_secs(30);

/// The bundle `a.sab`, which is `pieces.sab` as well; `late.sab`, which is not there yet; `never.sab`, for which nobody
/// answers; `short.sab`, which ends before its end; `long.sab`, which does not end there.
struct Bundles {
    content: Bytes,
}

impl Repository for Bundles {
    /// The addresses 127.0.1.* are those of one tenant, all others are each another one's.
    fn tenant(&self, peer: IpAddr) -> Tenant {
        let name = peer.to_string();
        Some(if name.starts_with("127.0.1.") { "crowd".into() } else { name.into() })
    }

    async fn known(&self, peer: IpAddr) {
        match peer {
            STRANGER => std::future::pending().await,
            SOON_KNOWN => tokio::time::sleep(KNOWN_AFTER).await,
            _ => {}
        }
    }

    async fn find(&self, peer: IpAddr, name: &str) -> Result<Found, Refusal> {
        if matches!(peer, FORBIDDEN | STRANGER) {
            return Err(Refusal::Forbidden("no bundles are for this address".to_owned()));
        }
        match name {
            "a.sab" => Ok(Found::whole(self.content.clone())),
            "pieces.sab" => Ok(Found::pieces(self.content.len() as u64, std::io::Cursor::new(self.content.clone()))),
            "short.sab" => Ok(Found::pieces(10, &b"123"[..])),
            "long.sab" => Ok(Found::pieces(3, &b"1234567890"[..])),
            "late.sab" => Err(Refusal::NotNow("late.sab is being fetched".to_owned())),
            "never.sab" => std::future::pending().await,
            _ => Err(Refusal::Unknown(format!("there is no bundle {name}"))),
        }
    }

    async fn names(&self, peer: IpAddr) -> Result<Vec<String>, Refusal> {
        match peer {
            FORBIDDEN | STRANGER => Err(Refusal::Forbidden("no bundles are for this address".to_owned())),
            _ => Ok(vec!["a.sab".to_owned(), "late.sab".to_owned()]),
        }
    }
}

/// A server with a small bundle.
fn server(settings: Settings) -> Server<Bundles> {
    Server::new(Bundles { content: Bytes::from_static(b"PK\r\n\0\xff") }, settings, Counters::default())
}

/// A server on loopback.
struct Running {
    address: SocketAddr,
    counters: Counters,
    stop: CancellationToken,
    server: JoinHandle<()>,
}

impl Running {
    async fn start(settings: Settings, content: Bytes) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, counters, stop) = (listener.local_addr().unwrap(), Counters::default(), CancellationToken::new());
        let server = Server::new(Bundles { content }, settings, counters.clone());
        let stopped = stop.clone();
        let server = tokio::spawn(async move { server.serve(listener, stopped.cancelled()).await.unwrap() });
        Self { address, counters, stop, server }
    }

    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    /// A connection from another address of this host.
    async fn connect_from(&self, address: IpAddr) -> TcpStream {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind(SocketAddr::new(address, 0)).unwrap();
        socket.connect(self.address).await.unwrap()
    }

    /// The same from the address of this host with this last part, of the tenant that has many.
    async fn connect_of_crowd(&self, last: u8) -> TcpStream {
        self.connect_from(IpAddr::V4(Ipv4Addr::new(127, 0, 1, last))).await
    }

    async fn stop(self) {
        self.stop.cancel();
        self.server.await.unwrap();
    }
}

/// Waits until something holds.
async fn until(what: &str, holds: impl Fn() -> bool) {
    let mut waited = 0;
    while !holds() {
        tokio::time::sleep(Duration::from_millis(5)).await;
        waited += 1;
        assert!(waited < 4000, "{what}");
    }
}

/// Bytes that differ from each other.
fn large(length: usize) -> Bytes {
    (0..length).map(|at| (at.wrapping_mul(2_654_435_761) >> 11) as u8).collect::<Vec<_>>().into()
}

#[tokio::test]
async fn a_server_can_be_shared_by_tasks() {
    let server = Arc::new(server(Settings::default()));
    let (here, there) = tokio::io::duplex(64);
    let task = tokio::spawn(async move { server.converse(there, POD).await });
    drop(here);
    task.await.unwrap();
}
