//! HTTP/2 as gRPC needs it of a server, and how long a caller may leave something undone (rules elasticity-27 and
//! service-29).
//!
//! Whoever sends an answer asks for more of it only when the caller has read what there was. If the caller reads
//! nothing, it asks for one piece, and an answer cannot end by itself. So each stream is a task with a [clock](Clock)
//! of its own, which ends the task: the stream is reset, and what the answer holds is given back.
//!
//! ```text
//! connections ──► sockets that move ──► HTTP/2 ──► task of a stream ──► service
//!                 (socket)                         (clock) ◄──────────── body of the answer: what was sent, and when
//!                                                    └─────────────────► body of the request: ends with the stream
//! ```
//!
//! Knows: HTTP/2, how long a caller waits and is waited for. Must not know: services, who calls.
//!
//! Invariants: a stream lasts until the last byte of its answer was written to the socket, its caller has gone, or its
//! clock says that it is over. What an answer holds ([`hold`]) is held until no byte of it is in a buffer of the
//! connection. What a connection has begun to write is written in time, or the connection ends.

mod answer;
mod clock;
mod request;
mod socket;
#[cfg(test)]
mod tests;

pub use answer::{PIECE, hold};
pub use clock::Clock;

use answer::Answer;
use clock::STREAM;
use futures::{Stream, StreamExt as _};
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::rt::Executor;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use request::Arriving;
use socket::Moving;
use std::convert::Infallible;
use std::future::Future;
use std::pin::pin;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tonic::body::Body;
use tower::{Service, ServiceExt as _};

/// How long a caller is waited for.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// How long its request may take to arrive. `None`: the service looks at that itself.
    pub request: Option<Duration>,
    /// How long it may leave a piece of an answer, or what was begun to be written to it, unread.
    pub unread: Duration,
}

/// Serves connections.
pub struct Server {
    patience: Patience,
    http2: http2::Builder<Streams>,
}

impl Server {
    /// A server with the settings of hyper.
    #[must_use]
    pub fn new(patience: Patience) -> Self {
        let mut http2 = http2::Builder::new(Streams { patience });
        http2.timer(TokioTimer::new());
        Self { patience, http2 }
    }

    /// Settings of each connection.
    pub fn http2(&mut self) -> &mut http2::Builder<Streams> {
        &mut self.http2
    }

    /// Serves until `stop` ends; then until the calls that are under way are answered. `admit` has the service for a
    /// connection, which lasts as long as that and its calls, or `None` if the connection is to be closed at once.
    pub async fn serve<T, E, S>(
        self,
        incoming: impl Stream<Item = Result<T, E>>,
        mut admit: impl FnMut(&T) -> Option<S>,
        stop: impl Future<Output = ()>,
    ) where
        T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
        S: Service<Request<Body>, Response = Response<Body>, Error = Infallible> + Clone + Send + 'static,
        S::Future: Send + 'static,
    {
        let Self { patience, http2 } = self;
        let graceful = GracefulShutdown::new();
        // The listener is closed before what is under way is waited for.
        {
            let mut incoming = pin!(incoming);
            let mut stop = pin!(stop);
            loop {
                let accepted = tokio::select! {
                    accepted = incoming.next() => accepted,
                    () = &mut stop => break,
                };
                let socket = match accepted {
                    Some(Ok(socket)) => socket,
                    Some(Err(_)) => continue,
                    None => break,
                };
                let Some(service) = admit(&socket) else { continue };
                let service = service_fn(move |request| answer(service.clone(), patience, request));
                let socket = TokioIo::new(Moving::new(socket, patience.unread));
                let connection = graceful.watch(http2.serve_connection(socket, service));
                tokio::spawn(async move {
                    if let Err(error) = connection.await {
                        tracing::debug!(%error, "a connection has broken");
                    }
                });
            }
        }
        graceful.shutdown().await;
    }
}

async fn answer<S>(service: S, patience: Patience, request: Request<Incoming>) -> Result<Response<Answer>, Infallible>
where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible>,
{
    let ended = STREAM.try_with(|(_, ended)| ended.clone()).unwrap_or_default();
    let request = request.map(|body| Body::new(Arriving::new(body, patience.request, ended)));
    Ok(Answer::of(service.oneshot(request).await?, Clock::current()))
}

/// Runs each stream of a connection as a task, which is dropped when its time is over: that resets the stream.
#[derive(Clone)]
pub struct Streams {
    patience: Patience,
}

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for Streams {
    fn execute(&self, stream: F) {
        let unread = self.patience.unread;
        tokio::spawn(clock::run(stream, unread));
    }
}
