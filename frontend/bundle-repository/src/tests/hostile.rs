//! Clients that mean harm, over real connections.

use super::{Running, large, until};
use crate::Settings;
use crate::counters::EndLabels;
use bytes::Bytes;
use std::net::IpAddr;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

#[tokio::test]
async fn connections_are_counted_per_address_and_in_all() {
    let settings = Settings { max_connections: 8, max_connections_per_peer: 2, ..Settings::default() };
    let running = Running::start(settings, Bytes::new()).await;
    let (mut first, _second) = (running.connect().await, running.connect().await);
    until("two connections", || running.counters.connections.get() == 2).await;
    let mut text = Vec::new();
    running.connect().await.read_to_end(&mut text).await.unwrap();
    assert_eq!(text, b"", "too many of one address: a word would be taken for a bundle");
    let other: IpAddr = "127.0.0.2".parse().unwrap();
    let mut third = running.connect_from(other).await;
    third.write_all(b"PING\r\n").await.unwrap();
    let mut pong = [0; 7];
    third.read_exact(&mut pong).await.unwrap();
    let mut others = Vec::new();
    for last in 3..8 {
        others.push(running.connect_from(IpAddr::from([127, 0, 0, last])).await);
    }
    text.clear();
    running.connect_from("127.0.0.8".parse().unwrap()).await.read_to_end(&mut text).await.unwrap();
    assert_eq!(text, b"", "too many in all");
    assert_eq!(running.counters.refused_connections.get(), 2);
    first.write_all(b"QUIT\r\n").await.unwrap();
    text.clear();
    first.read_to_end(&mut text).await.unwrap();
    assert_eq!(text, b"+OK\r\n");
    drop(first);
    until("one is gone", || running.counters.connections.get() == 7).await;
    let mut again = running.connect_from("127.0.0.8".parse().unwrap()).await;
    again.write_all(b"PING\r\n").await.unwrap();
    again.read_exact(&mut pong).await.unwrap();
    running.stop().await;
}

#[tokio::test]
async fn a_tenant_with_many_addresses_leaves_connections_and_transfers_to_others() {
    let settings = Settings { max_connections: 8, max_transfers: 4, ..Settings::default() };
    let running = Running::start(settings, large(32 << 20)).await;
    let (mut slow, mut waiting) = (running.connect_of_crowd(1).await, running.connect_of_crowd(2).await);
    let mut text = Vec::new();
    running.connect_of_crowd(3).await.read_to_end(&mut text).await.unwrap();
    assert_eq!(text, b"", "a quarter of the connections");
    slow.write_all(b"HGET apps a.sab\r\n").await.unwrap();
    until("it is sent", || running.counters.running_transfers.get() == 1).await;
    waiting.write_all(b"HGET apps a.sab\r\n").await.unwrap();
    let mut other = running.connect().await;
    other.write_all(b"HGET apps a.sab\r\n").await.unwrap();
    let mut bundle = vec![0; 11 + (32 << 20) + 2];
    other.read_exact(&mut bundle).await.unwrap();
    assert!(bundle.starts_with(b"$33554432\r\n") && bundle.ends_with(b"\r\n"));
    until("it was sent", || running.counters.running_transfers.get() == 1).await;
    let mut byte = [0];
    assert!(waiting.try_read(&mut byte).is_err(), "a quarter of the transfers");
    drop(slow);
    waiting.read_exact(&mut bundle).await.unwrap();
    running.stop().await;
}

#[tokio::test]
async fn who_never_reads_is_left() {
    let settings = Settings { stalled: Duration::from_millis(200), ..Settings::default() };
    let running = Running::start(settings, large(64 << 20)).await;
    for name in ["a.sab", "pieces.sab"] {
        let mut client = running.connect().await;
        client.write_all(format!("HGET apps {name}\r\n").as_bytes()).await.unwrap();
        let broken = EndLabels { end: "broken" };
        let before = running.counters.transfers.get_or_create(&broken).get();
        until("it is left", || running.counters.transfers.get_or_create(&broken).get() > before).await;
    }
    until("no connection", || running.counters.connections.get() == 0).await;
    assert_eq!(running.counters.running_transfers.get(), 0);
    running.stop().await;
}

#[tokio::test]
async fn who_writes_without_reading_is_left() {
    let settings = Settings { stalled: Duration::from_millis(200), ..Settings::default() };
    let running = Running::start(settings, large(1 << 20)).await;
    let mut client = running.connect().await;
    // Ends when the server closes, because what is not read fills all buffers in between.
    let request = b"HGET apps a.sab\r\n".repeat(1000);
    while client.write_all(&request).await.is_ok() {}
    until("no connection", || running.counters.connections.get() == 0).await;
    running.stop().await;
}

#[tokio::test]
async fn one_address_does_not_have_all_transfers() {
    let settings = Settings { max_transfers: 8, max_transfers_per_peer: 1, ..Settings::default() };
    let running = Running::start(settings, large(32 << 20)).await;
    let mut slow = running.connect().await;
    slow.write_all(b"HGET apps a.sab\r\n").await.unwrap();
    until("it is sent", || running.counters.running_transfers.get() == 1).await;
    let mut second = running.connect().await;
    second.write_all(b"HGET apps a.sab\r\n").await.unwrap();
    let mut text = Vec::new();
    second.read_to_end(&mut text).await.unwrap();
    assert_eq!(text, b"", "it is left");
    let mut other = running.connect_from("127.0.0.2".parse().unwrap()).await;
    other.write_all(b"HGET apps a.sab\r\n").await.unwrap();
    let mut text = vec![0; 11 + (32 << 20) + 2];
    other.read_exact(&mut text).await.unwrap();
    assert!(text.starts_with(b"$33554432\r\n") && text.ends_with(b"\r\n"));
    drop(slow);
    running.stop().await;
}

#[tokio::test]
async fn bytes_at_random_end_no_server() {
    let settings = Settings { idle: Duration::from_millis(200), max_connections_per_peer: 64, ..Settings::default() };
    let running = Running::start(settings, Bytes::from_static(b"bundle")).await;
    let noise = large(1 << 20);
    for piece in noise.chunks(16 << 10) {
        let mut client = running.connect().await;
        // The server may have closed already.
        let _ = client.write_all(piece).await;
    }
    until("no connection", || running.counters.connections.get() == 0).await;
    let mut client = running.connect().await;
    client.write_all(b"PING\r\n").await.unwrap();
    let mut pong = [0; 7];
    client.read_exact(&mut pong).await.unwrap();
    assert_eq!(&pong, b"+PONG\r\n");
    running.stop().await;
}

#[tokio::test]
async fn a_server_that_stops_answers_what_was_asked() {
    let content = large(32 << 20);
    let running = Running::start(Settings::default(), content.clone()).await;
    let (mut idle, mut busy) = (running.connect().await, running.connect().await);
    busy.write_all(b"HGET apps a.sab\r\nPING\r\n").await.unwrap();
    until("both are there", || {
        running.counters.connections.get() == 2 && running.counters.running_transfers.get() == 1
    })
    .await;
    let (address, stopping) = (running.address, tokio::spawn(running.stop()));
    let mut text = Vec::new();
    idle.read_to_end(&mut text).await.unwrap();
    assert_eq!(text, b"", "who asks nothing is left at once");
    assert!(tokio::net::TcpStream::connect(address).await.is_err(), "nothing more is accepted");
    busy.read_to_end(&mut text).await.unwrap();
    assert!(text.len() == 11 + content.len() + 2, "the bundle is sent to its end, then the connection ends");
    stopping.await.unwrap();
}

#[tokio::test]
async fn grace_has_an_end() {
    let settings = Settings { grace: Duration::from_millis(50), ..Settings::default() };
    let running = Running::start(settings, large(32 << 20)).await;
    let mut client = running.connect().await;
    client.write_all(b"HGET apps a.sab\r\n").await.unwrap();
    let counters = running.counters.clone();
    until("it is sent", || counters.running_transfers.get() == 1).await;
    running.stop().await;
    assert_eq!((counters.connections.get(), counters.running_transfers.get()), (0, 0));
}
