//! A PE that does its worst from its one address: it writes its connectivity in loops, over connections that it keeps
//! if the frontend does, and opens as many others as it can.

use super::line::Lines;
use super::pe::{Identity, service};
use anyhow::Result;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use streams_api::Connectivity;
use tokio::io::AsyncReadExt as _;
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout, timeout_at};

/// Connections over which it writes.
const WRITERS: usize = 32;
/// How many connections it opens at the same time.
const OPENERS: usize = 16;
/// A connection that is open after this time is kept.
const CLOSED_WITHIN: Duration = Duration::from_millis(50);
/// How long a connection may take.
const CONNECTED_WITHIN: Duration = Duration::from_secs(1);
/// After a call that failed.
const PAUSE: Duration = Duration::from_millis(5);
/// How often the last word is tried.
const TRIES: usize = 20;

/// What came of it.
#[derive(Debug, Default)]
pub(super) struct Attack {
    /// Connections that were opened, and those of them that were closed at once.
    pub(super) opened: AtomicU64,
    pub(super) closed: AtomicU64,
    /// Writes that were answered with 204, and all others.
    pub(super) written: AtomicU64,
    pub(super) refused: AtomicU64,
}

impl Attack {
    fn add(to: &AtomicU64) {
        to.fetch_add(1, Ordering::Relaxed);
    }
}

/// Does so until then.
///
/// # Errors
/// When it cannot call anybody.
pub(super) async fn attack(identity: &Identity, lines: &Lines, until: Instant) -> Result<Arc<Attack>> {
    let attack = Arc::new(Attack::default());
    let line = lines.open(identity.address, service(identity), WRITERS)?;
    let path = path(identity);
    let mut tasks = JoinSet::new();
    for number in 0..WRITERS {
        let (attack, line, path) = (Arc::clone(&attack), line.clone(), path.clone());
        tasks.spawn(async move {
            let mut is_full = number % 2 == 0;
            while Instant::now() < until {
                is_full = !is_full;
                let state = if is_full { Connectivity::Full } else { Connectivity::Partial };
                match line.put(&path, format!("\"{state:?}\"")).await {
                    Some(reply) if reply.status == 204 => Attack::add(&attack.written),
                    _ => {
                        Attack::add(&attack.refused);
                        sleep(PAUSE).await;
                    }
                }
            }
        });
    }
    for _ in 0..OPENERS {
        let (attack, from, to) = (Arc::clone(&attack), identity.address, lines.frontend());
        tasks.spawn(async move {
            let mut kept = JoinSet::new();
            while Instant::now() < until {
                let Ok(Ok(mut stream)) = timeout(CONNECTED_WITHIN, connect(from, to)).await else {
                    sleep(PAUSE).await;
                    continue;
                };
                Attack::add(&attack.opened);
                match timeout(CLOSED_WITHIN, stream.read(&mut [0])).await {
                    Ok(_) => Attack::add(&attack.closed),
                    Err(_) => {
                        kept.spawn(async move {
                            let _ = timeout_at(until.into(), stream.read(&mut [0])).await;
                        });
                    }
                }
                while kept.try_join_next().is_some() {}
            }
        });
    }
    while tasks.join_next().await.is_some() {}
    Ok(attack)
}

/// What the PE tells at last: how it is. All that it has told before has its turn before.
///
/// # Errors
/// When it cannot call anybody.
pub(super) async fn make_good(identity: &Identity, lines: &Lines, is: Connectivity) -> Result<bool> {
    let line = lines.open(identity.address, service(identity), 0)?;
    for _ in 0..TRIES {
        if line.put(&path(identity), format!("\"{is:?}\"")).await.is_some_and(|reply| reply.status == 204) {
            return Ok(true);
        }
        sleep(PAUSE).await;
    }
    Ok(false)
}

fn path(identity: &Identity) -> String {
    format!("/api/state/job/{}/pe/{}/connectivity", identity.job, identity.pe)
}

async fn connect(from: IpAddr, to: SocketAddr) -> std::io::Result<TcpStream> {
    let socket = if to.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    socket.bind((from, 0).into())?;
    socket.connect(to).await
}
