//! A layer under the frontend's client that does to each call what a referee, another process, says.
//!
//! It belongs to the program `frontend-with-faults` of this package, which is the frontend but for this layer. The
//! program that is shipped is made of the crate `streams-frontend`, which has nothing of it and does not depend on this
//! package: no feature, option or variable can bring it in.
//!
//! For every try of a call the layer connects to the referee's Unix socket, says method and URI in a line, and does
//! what the line that comes back says ([`Verdict`]). Without a referee that answers, the program ends.

use axum::body::Body as AnyBody;
use axum::body::{Bytes, HttpBody};
use futures::StreamExt as _;
use futures::future::BoxFuture;
use http::{Request, Response};
use kube::client::Body;
use nix::sys::signal::{self, Signal};
use serde::{Deserialize, Serialize};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::UnixStream;
use tower::{BoxError, Layer, Service};

/// Environment variable with the path of the referee's socket.
pub const SOCKET: &str = "STREAMS_TEST_REFEREE";

/// A try of a call, as the referee is told of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Asked {
    /// The HTTP method.
    pub method: String,
    /// Path and query.
    pub uri: String,
}

/// What becomes of a try.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Verdict {
    /// Nothing special.
    Pass,
    /// The process is killed before the request is sent.
    DieBefore,
    /// The process is killed when the answer has come.
    DieAfter,
    /// The process stops before the request is sent, and sends it when somebody lets it go on.
    Freeze,
    /// The server answers with this status and does nothing.
    Status(u16),
    /// The connection breaks before the request is sent.
    Reset,
    /// The server does what it is asked to do, and the connection breaks before it answers.
    LoseAnswer,
    /// Nobody answers.
    Hang,
    /// The answer of a watch comes later by so many milliseconds, piece by piece: what it feeds is stale.
    Late(u64),
    /// The watch breaks off after so many pieces.
    BreakOff(usize),
}

/// Puts [`Faults`] around a client.
#[derive(Debug, Clone)]
pub struct FaultLayer {
    socket: Arc<PathBuf>,
}

impl FaultLayer {
    /// A layer that asks the referee at this socket.
    pub fn new(socket: &Path) -> Self {
        Self { socket: Arc::new(socket.to_owned()) }
    }
}

impl<S> Layer<S> for FaultLayer {
    type Service = Faults<S>;

    fn layer(&self, inner: S) -> Faults<S> {
        Faults { inner, socket: Arc::clone(&self.socket) }
    }
}

/// A client whose calls fail as the referee says.
#[derive(Debug)]
pub struct Faults<S> {
    inner: S,
    socket: Arc<PathBuf>,
}

impl<S, B> Service<Request<Body>> for Faults<S>
where
    S: Service<Request<Body>, Response = Response<B>>,
    S::Future: Send + 'static,
    S::Error: Into<BoxError>,
    B: HttpBody<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    type Response = Response<AnyBody>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Response<AnyBody>, BoxError>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let asked = Asked { method: request.method().to_string(), uri: request.uri().to_string() };
        let socket = Arc::clone(&self.socket);
        // A future does nothing before it is polled.
        let answer = self.inner.call(request);
        Box::pin(async move {
            let verdict = match ask(&socket, &asked).await {
                Ok(verdict) => verdict,
                Err(_) => die(),
            };
            if verdict == Verdict::Freeze {
                let _ = signal::raise(Signal::SIGSTOP);
            }
            match verdict {
                Verdict::Pass | Verdict::Freeze | Verdict::Late(_) | Verdict::BreakOff(_) => {
                    let answer = answer.await.map_err(Into::into)?;
                    Ok(answer.map(|body| disturbed(AnyBody::new(body), verdict)))
                }
                Verdict::DieBefore => die(),
                Verdict::DieAfter => {
                    let _ = whole(answer).await;
                    die()
                }
                Verdict::LoseAnswer => {
                    whole(answer).await?;
                    Err(io::Error::from(io::ErrorKind::ConnectionReset).into())
                }
                Verdict::Reset => Err(io::Error::from(io::ErrorKind::ConnectionReset).into()),
                Verdict::Hang => std::future::pending().await,
                Verdict::Status(code) => {
                    let status = serde_json::json!({
                        "kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Injected",
                        "message": "a fault that a test injects", "code": code,
                    });
                    let response = Response::builder().status(code).header("content-type", "application/json");
                    Ok(response.body(AnyBody::from(status.to_string()))?)
                }
            }
        })
    }
}

/// The request has been sent and the answer read: the server has done what it was asked to do.
async fn whole<B, E>(answer: impl Future<Output = Result<Response<B>, E>>) -> Result<(), BoxError>
where
    B: HttpBody<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
    E: Into<BoxError>,
{
    let body = answer.await.map_err(Into::into)?.into_body();
    axum::body::to_bytes(AnyBody::new(body), usize::MAX).await?;
    Ok(())
}

/// The answer of a watch, disturbed.
fn disturbed(body: AnyBody, verdict: Verdict) -> AnyBody {
    let pieces = body.into_data_stream();
    match verdict {
        Verdict::Late(milliseconds) => AnyBody::from_stream(pieces.then(move |piece| async move {
            tokio::time::sleep(Duration::from_millis(milliseconds)).await;
            piece
        })),
        Verdict::BreakOff(after) => {
            let reset =
                futures::stream::once(async { Err(axum::Error::new(io::Error::from(io::ErrorKind::ConnectionReset))) });
            AnyBody::from_stream(pieces.take(after).chain(reset))
        }
        _ => AnyBody::from_stream(pieces),
    }
}

async fn ask(socket: &Path, asked: &Asked) -> io::Result<Verdict> {
    let mut stream = BufReader::new(UnixStream::connect(socket).await?);
    let mut line = serde_json::to_vec(asked)?;
    line.push(b'\n');
    stream.write_all(&line).await?;
    let mut answer = String::new();
    stream.read_line(&mut answer).await?;
    Ok(serde_json::from_str(&answer)?)
}

/// As `kill -9` does: nothing is tidied up.
fn die() -> ! {
    let _ = signal::raise(Signal::SIGKILL);
    std::process::abort()
}
