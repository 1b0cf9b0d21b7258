//! Times, with a clock that is moved on.

use super::{POD, SOON_KNOWN, STRANGER, server};
use crate::Settings;
use std::net::IpAddr;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{Instant, sleep};

/// What a client gets for a request, and after how many seconds its connection ends.
async fn seconds(settings: Settings, request: &[u8], drips: bool) -> (String, u64) {
    let server = server(settings);
    let (mut here, there) = tokio::io::duplex(4096);
    let begin = Instant::now();
    let talk = async {
        here.write_all(request).await.unwrap();
        // A byte now and then: activity, but no request.
        while drips && here.write_all(b"x").await.is_ok() {
            sleep(Duration::from_secs(1)).await;
        }
        let mut text = Vec::new();
        here.read_to_end(&mut text).await.unwrap();
        String::from_utf8(text).unwrap()
    };
    let server = async {
        server.converse(there, POD).await;
        begin.elapsed().as_secs()
    };
    tokio::join!(talk, server)
}

#[tokio::test(start_paused = true)]
async fn everything_has_a_time_by_which_it_ends() {
    let times = || Settings {
        idle: Duration::from_secs(10),
        answer: Duration::from_secs(20),
        transfer: Duration::from_secs(40),
        stalled: Duration::from_secs(80),
        ..Settings::default()
    };
    assert_eq!(seconds(times(), b"", false).await, (String::new(), 10), "nothing is asked");
    assert_eq!(seconds(times(), b"PI", true).await, (String::new(), 10), "a request that does not end");
    assert_eq!(seconds(times(), b"PING\r\n", false).await, ("+PONG\r\n".to_owned(), 10), "nothing more is asked");
    assert_eq!(seconds(times(), b"HGET apps never.sab\r\n", false).await, (String::new(), 20), "nobody answers");
    let late = "-TRYAGAIN the repository does not answer, try again\r\n".to_owned();
    assert_eq!(seconds(times(), b"HSTRLEN apps never.sab\r\n", false).await, (late, 30), "who looks is told");
}

#[tokio::test(start_paused = true)]
async fn a_bundle_is_sent_within_a_time() {
    let settings =
        Settings { transfer: Duration::from_secs(40), stalled: Duration::from_secs(80), ..Settings::default() };
    let server = server(settings);
    let (mut here, there) = tokio::io::duplex(1);
    let begin = Instant::now();
    let read = async {
        here.write_all(b"HGET apps pieces.sab\r\n").await.unwrap();
        let mut text = Vec::new();
        // A byte every ten seconds is progress, but not enough.
        while let Ok(byte) = here.read_u8().await {
            text.push(byte);
            sleep(Duration::from_secs(10)).await;
        }
        text
    };
    let (text, ()) = tokio::join!(read, server.converse(there, POD));
    assert!(text.starts_with(b"$6\r\n") && text.len() < 12, "{text:?}");
    assert!(begin.elapsed() < Duration::from_secs(60));
}

#[tokio::test(start_paused = true)]
async fn who_waits_for_a_transfer_waits_no_longer_than_that() {
    let settings = Settings {
        max_transfers: 0,
        transfer_wait: Duration::from_secs(20),
        idle: Duration::from_secs(1),
        ..Settings::default()
    };
    assert_eq!(seconds(settings, b"HGET apps a.sab\r\n", false).await, (String::new(), 20));
}

/// What a client gets that asks from this address, and after how many seconds its connection ends.
async fn asked_from(peer: IpAddr, request: &[u8]) -> (String, u64) {
    let settings = Settings { known: Duration::from_secs(60), idle: Duration::from_secs(1), ..Settings::default() };
    let server = server(settings);
    let (mut here, there) = tokio::io::duplex(4096);
    let begin = Instant::now();
    let talk = async {
        here.write_all(request).await.unwrap();
        let mut text = Vec::new();
        here.read_to_end(&mut text).await.unwrap();
        String::from_utf8_lossy(&text).into_owned()
    };
    let (text, ()) = tokio::join!(talk, server.converse(there, peer));
    (text, begin.elapsed().as_secs())
}

#[tokio::test(start_paused = true)]
async fn who_is_not_known_yet_waits_until_it_is_or_is_left() {
    let refused = "-NOPERM no bundles are for this address\r\n";
    // who asks -> what it gets, and when its connection ends
    let table: [(IpAddr, &[u8], &str, u64); 4] = [
        (SOON_KNOWN, b"HGET apps long.sab\r\n", "$3\r\n123\r\n", 31),
        (SOON_KNOWN, b"HLEN apps\r\n", ":2\r\n", 31),
        (STRANGER, b"HGET apps long.sab\r\n", "", 60),
        (STRANGER, b"HLEN apps\r\n", refused, 61),
    ];
    for (peer, request, text, seconds) in table {
        assert_eq!(asked_from(peer, request).await, (text.to_owned(), seconds), "{peer} {}", request.escape_ascii());
    }
}

#[tokio::test(start_paused = true)]
async fn who_goes_while_it_waits_is_left_at_once() {
    for request in [&b"HGET apps never.sab\r\n"[..], b"HSTRLEN apps never.sab\r\nPING\r\n"] {
        let server = server(Settings::default());
        let (mut here, there) = tokio::io::duplex(4096);
        let begin = Instant::now();
        let talk = async {
            here.write_all(request).await.unwrap();
            sleep(Duration::from_secs(5)).await;
            drop(here);
        };
        tokio::join!(talk, server.converse(there, POD));
        assert_eq!(begin.elapsed().as_secs(), 5);
    }
}

#[tokio::test(start_paused = true)]
async fn who_waits_for_a_transfer_and_goes_is_left_at_once() {
    let server = server(Settings { max_transfers: 0, ..Settings::default() });
    let (mut here, there) = tokio::io::duplex(4096);
    let begin = Instant::now();
    let talk = async {
        here.write_all(b"HGET apps a.sab\r\n").await.unwrap();
        sleep(Duration::from_secs(5)).await;
        drop(here);
    };
    tokio::join!(talk, server.converse(there, POD));
    assert_eq!(begin.elapsed().as_secs(), 5);
}
