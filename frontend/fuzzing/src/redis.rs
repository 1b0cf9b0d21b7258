//! What a client may send to the bundle repository (rules repository-1 and repository-5).
//!
//! Input: the size of the pieces in which the rest arrives (one byte), then all that a client sends. What it checks:
//! the same requests are read however the bytes are cut; none is beyond the bounds; a connection answers each request
//! with one reply that another reader understands, until what comes is no request, or asks for a bundle that cannot be
//! had, which has no reply; then it ends.

use bytes::{Bytes, BytesMut};
use resp_rs::resp3::{Frame, parse_frame};
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;
use streams_bundle_repository::request::{Limits, next};
use streams_bundle_repository::{Counters, Found, Refusal, Repository, Server, Settings, Tenant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const LIMITS: Limits = Limits { bytes: 256, arguments: 6 };
/// Most bytes of a reply: an error, an echo, or what HELLO says.
const MAX_REPLY: usize = 1024;

/// Bundles of each kind.
struct Bundles;

impl Repository for Bundles {
    fn tenant(&self, _: IpAddr) -> Tenant {
        None
    }

    async fn find(&self, _: IpAddr, name: &str) -> Result<Found, Refusal> {
        match name {
            "a" => Ok(Found::whole(Bytes::from_static(b"\r\n$9\r\n"))),
            "b" => Ok(Found::pieces(5, &b"\r\n+1234567"[..])),
            "c" => Err(Refusal::NotNow("it is being fetched".to_owned())),
            _ => Err(Refusal::Unknown(format!("there is no bundle {name}"))),
        }
    }

    async fn names(&self, _: IpAddr) -> Result<Vec<String>, Refusal> {
        Ok(vec!["a".to_owned(), "b".to_owned()])
    }
}

/// Runs one input; panics when something does not hold.
pub fn run(data: &[u8]) {
    let Some((piece, data)) = data.split_first() else { return };
    let piece = usize::from(*piece).max(1);
    let (requests, fails) = read(data, data.len().max(1));
    assert_eq!(read(data, piece), (requests.clone(), fails), "in pieces of {piece}");
    for request in &requests {
        assert!(!request.is_empty() && request.len() <= LIMITS.arguments, "{request:?}");
        assert!(request.iter().map(Bytes::len).sum::<usize>() <= LIMITS.bytes, "{request:?}");
    }
    let replies = frames(converse(data, piece));
    let is_quit = |request: &[Bytes]| request.first().is_some_and(|word| word.eq_ignore_ascii_case(b"QUIT"));
    let mut ends = requests.iter().enumerate().filter(|(_, request)| is_quit(request) || is_left(request));
    let expected = match ends.next() {
        Some((at, request)) => at + usize::from(!is_left(request)),
        None => requests.len() + usize::from(fails),
    };
    assert_eq!(replies, expected, "replies to {requests:?}");
}

/// Whether it asks for a bundle that cannot be had.
fn is_left(request: &[Bytes]) -> bool {
    let [command, hash, name] = request else { return false };
    command.eq_ignore_ascii_case(b"HGET") && hash == "apps" && name != "a" && name != "b"
}

/// All requests, and whether what follows is none.
fn read(data: &[u8], piece: usize) -> (Vec<Vec<Bytes>>, bool) {
    let (mut buffer, mut requests) = (BytesMut::new(), Vec::new());
    for piece in data.chunks(piece) {
        // Nothing more is read than there is room for.
        for byte in piece {
            buffer.extend_from_slice(&[*byte]);
            assert!(buffer.len() <= LIMITS.bytes, "more is kept than a request may have");
            loop {
                match next(&mut buffer, &LIMITS) {
                    Ok(Some(request)) => requests.push(request),
                    Ok(None) => break,
                    Err(_) => return (requests, true),
                }
            }
        }
    }
    (requests, false)
}

/// All that a connection replies.
fn converse(data: &[u8], piece: usize) -> Bytes {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let settings = Settings {
            max_request_bytes: LIMITS.bytes,
            max_arguments: LIMITS.arguments,
            piece_bytes: 2,
            ..Settings::default()
        };
        let server = Server::new(Bundles, settings, Counters::default());
        let (here, there) = tokio::io::duplex(piece);
        let (mut read, mut write) = tokio::io::split(here);
        let mut replies = Vec::new();
        let client = async {
            tokio::join!(
                async {
                    // The server may have closed already.
                    let _ = write.write_all(data).await;
                    let _ = write.shutdown().await;
                },
                async {
                    read.read_to_end(&mut replies).await.unwrap();
                }
            );
        };
        let both = async { tokio::join!(server.converse(there, IpAddr::V4(Ipv4Addr::LOCALHOST)), client) };
        tokio::time::timeout(Duration::from_secs(3600 * 24), both).await.expect("a connection ends");
        replies.into()
    })
}

/// The number of replies, each of which is one frame.
fn frames(mut replies: Bytes) -> usize {
    let mut count = 0;
    while !replies.is_empty() {
        let before = replies.len();
        let (frame, rest) = parse_frame(replies).expect("a reply is a frame");
        assert!(before - rest.len() <= MAX_REPLY, "a reply of {} bytes", before - rest.len());
        assert!(!matches!(frame, Frame::Push(_)), "nobody asked for it");
        (count, replies) = (count + 1, rest);
    }
    count
}
