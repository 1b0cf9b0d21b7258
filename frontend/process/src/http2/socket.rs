//! A socket that takes what is written to it in time.
//!
//! Streams end by their clocks, but what ends them is written to the socket, behind what was begun to be written. If
//! the other end takes nothing, all of it stays in memory. So the connection ends.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

/// See the module. That it was flushed says that nothing is left which was begun to be written: HTTP/2 does so frame by
/// frame. So whoever takes a little now and then has to take a frame in that time.
pub(super) struct Moving<T> {
    socket: T,
    patience: Duration,
    /// Until when what was begun has to be written, if it was not at once.
    until: Option<Pin<Box<Sleep>>>,
}

impl<T> Moving<T> {
    pub(super) fn new(socket: T, patience: Duration) -> Self {
        Self { socket, patience, until: None }
    }

    fn in_time<R>(&mut self, context: &mut Context<'_>, done: Poll<io::Result<R>>) -> Poll<io::Result<R>> {
        if done.is_pending() {
            let until = self.until.get_or_insert_with(|| Box::pin(sleep(self.patience)));
            ready!(until.as_mut().poll(context));
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        done
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Moving<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_read(context, buffer)
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Moving<T> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.socket).poll_write(context, bytes);
        self.in_time(context, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.socket).poll_write_vectored(context, slices);
        self.in_time(context, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.socket).poll_flush(context);
        if flushed.is_ready() {
            self.until = None;
        }
        self.in_time(context, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let closed = Pin::new(&mut self.socket).poll_shutdown(context);
        self.in_time(context, closed)
    }
}
