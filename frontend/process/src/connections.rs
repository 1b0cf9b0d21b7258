//! Accepts connections over which gRPC is spoken, at most as many at once as there are places (rules service-16 and
//! elasticity-8).
//!
//! Further connections wait in the queue of the kernel. That is bounded, too: the kernel refuses what does not fit.
//!
//! The transport asks a caller now and then whether it is still there, but only after the caller has said what it
//! speaks. A connection on which nothing comes would keep its place for ever, so it is closed ([`greeted`]).
//!
//! Knows: sockets, how long the first words of the protocol are. Must not know: the protocol.
//!
//! Invariants: a place is taken before a connection is accepted, and is free again when the connection is closed. When
//! file descriptors run out, the listener waits: it neither ends nor keeps a core busy.

use futures::{Stream, StreamExt, stream};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time;
use tokio::time::Sleep;
use tonic::transport::server::{Connected, TcpConnectInfo};

/// How long to wait after a failure to accept.
const PAUSE: Duration = Duration::from_millis(100);

/// How long a caller may take to begin to speak.
const GREETING: Duration = Duration::from_secs(10);
/// Bytes with which HTTP/2 begins.
const GREETING_BYTES: usize = 24;

/// A connection with its place, and with what is held as long as it lasts.
#[derive(Debug)]
pub struct Connection<H = ()> {
    stream: TcpStream,
    held: H,
    _place: OwnedSemaphorePermit,
}

impl Connection {
    /// The same, which holds this from now on.
    pub fn holding<H>(self, held: H) -> Connection<H> {
        let Self { stream, _place, .. } = self;
        Connection { stream, held, _place }
    }
}

impl<H> Connection<H> {
    /// What it holds.
    pub fn held(&self) -> &H {
        &self.held
    }
}

/// Accepts connections, at most `places` at once. Never ends by itself.
pub fn accept(listener: TcpListener, places: usize) -> impl Stream<Item = io::Result<Connection>> {
    let places = Arc::new(Semaphore::new(places.min(Semaphore::MAX_PERMITS)));
    stream::unfold((listener, places), async |(listener, places)| {
        let place = Arc::clone(&places).acquire_owned().await.ok()?;
        loop {
            match listener.accept().await {
                Ok((stream, _)) => {
                    // Without it small answers wait for acknowledgements; it is not worth losing the connection over.
                    let _ = stream.set_nodelay(true);
                    return Some((Ok(Connection { stream, held: (), _place: place }), (listener, places)));
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection");
                    time::sleep(PAUSE).await;
                }
            }
        }
    })
}

/// Ends connections on which a caller does not begin to speak in time.
pub fn greeted<T>(incoming: impl Stream<Item = io::Result<T>>) -> impl Stream<Item = io::Result<Greeted<T>>> {
    incoming.map(|connection| connection.map(Greeted::new))
}

/// See [`greeted`].
pub struct Greeted<T> {
    stream: T,
    /// Of the greeting, bytes that have not come yet.
    missing: usize,
    /// `None` when all of it has come.
    until: Option<Pin<Box<Sleep>>>,
}

impl<T> Greeted<T> {
    fn new(stream: T) -> Self {
        Self { stream, missing: GREETING_BYTES, until: Some(Box::pin(time::sleep(GREETING))) }
    }
}

impl<T> Greeted<T> {
    /// The connection.
    pub fn get_ref(&self) -> &T {
        &self.stream
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Greeted<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(context, buffer);
        let Some(until) = &mut self.until else { return read };
        if read.is_pending() {
            ready!(until.as_mut().poll(context));
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        self.missing = self.missing.saturating_sub(buffer.filled().len() - before);
        if self.missing == 0 {
            self.until = None;
        }
        read
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Greeted<T> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

impl<H> Connected for Connection<H> {
    type ConnectInfo = TcpConnectInfo;

    fn connect_info(&self) -> TcpConnectInfo {
        self.stream.connect_info()
    }
}

impl<H: Unpin> AsyncRead for Connection<H> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<H: Unpin> AsyncWrite for Connection<H> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::pin::pin;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    #[tokio::test(start_paused = true)]
    async fn a_caller_has_to_begin_to_speak() {
        // Bytes that come at once, and whether the connection is kept.
        for (bytes, kept) in [(0, false), (1, false), (23, false), (24, true), (100, true)] {
            let (mut caller, server) = tokio::io::duplex(1024);
            let mut server = Greeted::new(server);
            caller.write_all(&vec![b'x'; bytes]).await.unwrap();
            server.read_exact(&mut vec![0; bytes]).await.unwrap();
            let rest = time::timeout(2 * GREETING, server.read_u8()).await;
            assert_eq!(rest.is_err(), kept, "{bytes}");
            if let Ok(ended) = rest {
                assert_eq!(ended.unwrap_err().kind(), io::ErrorKind::TimedOut, "{bytes}");
            }
        }
    }

    #[tokio::test]
    async fn one_has_to_go_before_another_is_accepted() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let _clients = [TcpStream::connect(address).await.unwrap(), TcpStream::connect(address).await.unwrap()];
        let mut connections = pin!(accept(listener, 1));
        let first = connections.next().await.unwrap().unwrap();
        assert!(futures::poll!(connections.next()).is_pending());
        drop(first);
        connections.next().await.unwrap().unwrap();
    }
}
