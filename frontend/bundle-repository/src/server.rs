//! All clients, and the end (rules repository-5 and repository-7).
//!
//! Knows: sockets. Must not know: what is said on them.

use crate::connection::Shared;
use crate::counters::Counters;
use crate::repository::Repository;
use crate::seats::Seat;
use crate::settings::Settings;
use socket2::{SockRef, TcpKeepalive};
use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

/// How long nothing is accepted when the system cannot: mostly because there are too many files.
const PAUSE: Duration = Duration::from_millis(100);
/// After how long without a sign of life the kernel asks whether a client is still there.
const KEEPALIVE: Duration = Duration::from_secs(60);

/// Serves a repository.
pub struct Server<R>(Arc<Shared<R>>);

impl<R: Repository> Server<R> {
    /// A server of this repository, within these bounds.
    pub fn new(repository: R, settings: Settings, counters: Counters) -> Self {
        Self(Arc::new(Shared::new(repository, settings, counters)))
    }

    /// Serves until `stop` ends: then nothing more is accepted, clients without a request are left, and the others have
    /// the time of grace to get their reply.
    ///
    /// # Errors
    /// When the listener has no address.
    pub async fn serve(self, listener: TcpListener, stop: impl Future<Output = ()> + Send) -> io::Result<()> {
        tracing::info!(address = %listener.local_addr()?, "serving bundles to PEs");
        let settings = &self.0.settings;
        let (stopped, mut connections) = (CancellationToken::new(), JoinSet::new());
        let mut stop = std::pin::pin!(stop);
        loop {
            tokio::select! {
                biased;
                () = &mut stop => break,
                Some(_) = connections.join_next() => {}
                accepted = listener.accept() => match accepted {
                    Ok((stream, address)) => self.accept(stream, address, &stopped, &mut connections),
                    Err(error) => {
                        tracing::debug!(%error, "a connection could not be accepted");
                        sleep(PAUSE).await;
                    }
                },
            }
        }
        drop(listener);
        stopped.cancel();
        let all = async { while connections.join_next().await.is_some() {} };
        if timeout(settings.grace, all).await.is_err() {
            tracing::info!(connections = connections.len(), "the time of grace is over");
            connections.shutdown().await;
        }
        Ok(())
    }

    /// Answers one client on a connection of any kind until it is gone.
    pub async fn converse(&self, stream: impl AsyncRead + AsyncWrite + Send + Unpin, peer: IpAddr) {
        self.0.converse(stream, peer, None, &CancellationToken::new()).await;
    }

    fn accept(
        &self,
        stream: TcpStream,
        address: SocketAddr,
        stopped: &CancellationToken,
        connections: &mut JoinSet<()>,
    ) {
        let peer = address.ip().to_canonical();
        let Some(seat) = self.0.seats.take(self.0.repository.tenant(peer), peer) else {
            self.0.counters.refused_connections.inc();
            // Without a word: a bootstrap would take it for its bundle. A client can bring this about as fast as it can
            // connect, so it is counted, and not in the log (rule repository-5).
            tracing::debug!(%peer, "a client is left, because there are too many connections");
            return;
        };
        if let Err(error) = prepare(&stream, &self.0.settings) {
            tracing::debug!(%peer, %error, "a connection could not be prepared");
            return;
        }
        connections.spawn(converse(Arc::clone(&self.0), stream, peer, seat, stopped.clone()));
    }
}

async fn converse<R: Repository>(
    shared: Arc<Shared<R>>,
    stream: TcpStream,
    peer: IpAddr,
    seat: Seat,
    stopped: CancellationToken,
) {
    shared.converse(stream, peer, Some(seat), &stopped).await;
}

fn prepare(stream: &TcpStream, settings: &Settings) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let socket = SockRef::from(stream);
    socket.set_send_buffer_size(settings.send_buffer_bytes)?;
    socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(KEEPALIVE))
}
