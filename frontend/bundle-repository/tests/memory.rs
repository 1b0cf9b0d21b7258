//! Memory that clients can make the server take, counted at every allocation; alone, because it counts them all.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test may panic")]

use peak_alloc::PeakAlloc;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;
use streams_bundle_repository::{Counters, Found, Refusal, Repository, Server, Settings, Tenant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

#[global_allocator]
static ALLOCATOR: PeakAlloc = PeakAlloc;

/// A bundle of a gibibyte, which is nowhere.
struct Huge;

impl Repository for Huge {
    fn tenant(&self, _: IpAddr) -> Tenant {
        None
    }

    async fn find(&self, _: IpAddr, _: &str) -> Result<Found, Refusal> {
        Ok(Found::pieces(1 << 30, tokio::io::repeat(7)))
    }

    async fn names(&self, _: IpAddr) -> Result<Vec<String>, Refusal> {
        Ok(Vec::new())
    }
}

/// As many clients that send this and read nothing.
async fn clients(address: SocketAddr, count: usize, bytes: &[u8]) -> Vec<TcpStream> {
    let mut clients = Vec::new();
    for _ in 0..count {
        let mut client = TcpStream::connect(address).await.unwrap();
        client.write_all(bytes).await.unwrap();
        clients.push(client);
    }
    clients
}

/// Waits until something holds.
async fn until(holds: impl Fn() -> bool) {
    for _ in 0..4000 {
        if holds() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("it does not come to that");
}

#[tokio::test]
async fn clients_take_a_bounded_amount_of_memory() {
    let settings = Settings {
        max_connections_per_peer: 1000,
        max_connections_per_stranger: 1000,
        max_transfers: 1000,
        max_transfers_per_peer: 1000,
        ..Settings::default()
    };
    let (piece, counters) = (settings.piece_bytes, Counters::default());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let server = Server::new(Huge, settings, counters.clone());
    let server = tokio::spawn(server.serve(listener, std::future::pending()));
    let used = |begin: usize| (ALLOCATOR.current_usage().saturating_sub(begin)) / 100;

    let begin = ALLOCATOR.current_usage();
    let reading_nothing = clients(address, 100, b"HGET apps a.sab\r\n").await;
    until(|| counters.running_transfers.get() == 100).await;
    let each = used(begin);
    println!("a client that does not read a bundle of 1 GiB: {each} bytes");
    assert!(each < piece + (32 << 10), "{each} bytes for a client that does not read");
    drop(reading_nothing);
    until(|| counters.connections.get() == 0).await;

    // The most that may be announced, and nothing of it.
    for announced in ["*64\r\n$16000\r\n", "*64\r\n", "*1\r\n$10", "x"] {
        let begin = ALLOCATOR.current_usage();
        let announcing = clients(address, 100, announced.as_bytes()).await;
        until(|| counters.connections.get() == 100).await;
        let each = used(begin);
        println!("a client that sends {announced:?}: {each} bytes");
        assert!(each < 24 << 10, "{each} bytes for {announced:?}");
        drop(announcing);
        until(|| counters.connections.get() == 0).await;
    }

    // More than may be announced ends the connection.
    for announced in ["*1000000\r\n", "*1\r\n$999999999\r\n"] {
        let mut client = TcpStream::connect(address).await.unwrap();
        client.write_all(announced.as_bytes()).await.unwrap();
        let mut reply = String::new();
        client.read_to_string(&mut reply).await.unwrap();
        assert!(reply.starts_with("-ERR Protocol error"), "{reply}");
    }
    server.abort();
}
