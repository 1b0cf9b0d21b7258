//! Accepts connections, at most as many at once as there are places (rule service-16).
//!
//! Further connections wait in the queue of the kernel. That is bounded, too: the kernel refuses what does not fit.
//!
//! Knows: sockets. Must not know: the protocol on them.
//!
//! Invariants: a place is taken before a connection is accepted, and is free again when the connection is closed. When
//! file descriptors run out, the listener waits: it neither ends nor keeps a core busy.

use futures::{Stream, stream};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time;
use tonic::transport::server::{Connected, TcpConnectInfo};

/// How long to wait after a failure to accept.
const PAUSE: Duration = Duration::from_millis(100);

/// A connection with its place.
#[derive(Debug)]
pub(crate) struct Connection {
    stream: TcpStream,
    _place: OwnedSemaphorePermit,
}

/// Accepts connections, at most `places` at once. Never ends by itself.
pub(crate) fn accept(listener: TcpListener, places: usize) -> impl Stream<Item = io::Result<Connection>> {
    let places = Arc::new(Semaphore::new(places.min(Semaphore::MAX_PERMITS)));
    stream::unfold((listener, places), async |(listener, places)| {
        let place = Arc::clone(&places).acquire_owned().await.ok()?;
        loop {
            match listener.accept().await {
                Ok((stream, _)) => {
                    // Without it small answers wait for acknowledgements; it is not worth losing the connection over.
                    let _ = stream.set_nodelay(true);
                    return Some((Ok(Connection { stream, _place: place }), (listener, places)));
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection");
                    time::sleep(PAUSE).await;
                }
            }
        }
    })
}

impl Connected for Connection {
    type ConnectInfo = TcpConnectInfo;

    fn connect_info(&self) -> TcpConnectInfo {
        self.stream.connect_info()
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Connection {
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
    use futures::StreamExt;
    use std::pin::pin;

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
