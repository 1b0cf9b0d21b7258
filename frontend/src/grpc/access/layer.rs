//! Goes around a service: what a call says is decoded only if it is known who calls, and all of it is there.
//!
//! While that is being found out, the bytes of the request are taken from the connection. There nobody would count
//! them, and they would be in front of the caller's other calls.
//!
//! Decoded, a message may take many times what it had as bytes. Since nothing has to be waited for any more, it is
//! counted before anything else is done ([`Guarded`](super::guarded::Guarded)).

use super::Access;
use crate::grpc::transport::REQUEST_MAX;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures::future::BoxFuture;
use http::Request;
use http::header::AUTHORIZATION;
use http_body::{Body as _, Frame, SizeHint};
use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll};
use tonic::Status;
use tonic::body::Body;
use tonic::server::NamedService;
use tower::Service;

/// Bytes of the longest body: a message, behind what gRPC says of it.
const LONGEST: usize = REQUEST_MAX + 5;

/// A service whose callers are known; its calls carry their [`Subject`](super::reviewer::Subject).
#[derive(Clone)]
pub(crate) struct Authenticated<S> {
    service: S,
    access: Access,
    domain: &'static str,
}

impl<S> Authenticated<S> {
    /// This service, for callers that `access` knows. `domain` is that of the details of its errors.
    pub(crate) fn new(service: S, access: Access, domain: &'static str) -> Self {
        Self { service, access, domain }
    }
}

impl<S: NamedService> NamedService for Authenticated<S> {
    const NAME: &'static str = S::NAME;
}

impl<S> Service<Request<Body>> for Authenticated<S>
where
    S: Service<Request<Body>, Error = Infallible> + Clone + Send + 'static,
    S::Response: IntoResponse,
    S::Future: Send + 'static,
{
    type Response = Response;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Response, Infallible>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.service.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        // The one that was asked whether it is ready.
        let waiting = self.service.clone();
        let mut service = std::mem::replace(&mut self.service, waiting);
        let (access, domain) = (self.access.clone(), self.domain);
        Box::pin(async move {
            let (mut parts, body) = request.into_parts();
            let mut body = ReadAhead::of(body);
            if let Access::Reviewed(reviews) = access {
                let subject = tokio::select! {
                    biased;
                    subject = reviews.subject(&parts.headers, &parts.extensions, domain) => subject,
                    broken = body.read_meanwhile() => Err(broken),
                };
                match subject {
                    Ok(subject) => parts.extensions.insert(subject),
                    Err(status) => return Ok(status.into_http::<axum::body::Body>()),
                };
            }
            if let Err(status) = body.read_all().await {
                return Ok(status.into_http::<axum::body::Body>());
            }
            // Nothing behind has use for it.
            parts.headers.remove(AUTHORIZATION);
            let request = Request::from_parts(parts, Body::new(body));
            service.call(request).await.map(IntoResponse::into_response)
        })
    }
}

/// The body of a request, of which a part may have been read already.
struct ReadAhead {
    parts: VecDeque<Bytes>,
    bytes: usize,
    rest: Body,
    is_over: bool,
}

impl ReadAhead {
    fn of(body: Body) -> Self {
        Self { parts: VecDeque::new(), bytes: 0, is_over: body.is_end_stream(), rest: body }
    }

    /// Reads what comes, and no more than what is too long for a request.
    ///
    /// # Errors
    /// It does not come.
    async fn read(&mut self) -> Result<(), Status> {
        while self.bytes <= LONGEST {
            match poll_fn(|context| self.poll_rest(context)).await {
                Some(Ok(part)) => {
                    self.bytes += part.len();
                    self.parts.push_back(part);
                }
                Some(Err(why)) => return Err(why),
                None => break,
            }
        }
        Ok(())
    }

    /// The same as long as something else is waited for. It never ends unless that fails; then why.
    async fn read_meanwhile(&mut self) -> Status {
        match self.read().await {
            Ok(()) => std::future::pending().await,
            Err(why) => why,
        }
    }

    /// Reads the rest.
    ///
    /// # Errors
    /// It does not come, or is too long.
    async fn read_all(&mut self) -> Result<(), Status> {
        self.read().await?;
        if self.bytes > LONGEST {
            return Err(Status::out_of_range(format!("the request is longer than {REQUEST_MAX} bytes")));
        }
        Ok(())
    }

    /// The next part from the connection. Whatever else there may be of a request is not for services.
    fn poll_rest(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Bytes, Status>>> {
        if self.is_over {
            return Poll::Ready(None);
        }
        let frame = std::task::ready!(Pin::new(&mut self.rest).poll_frame(context));
        let part = frame.and_then(|frame| frame.map(|frame| frame.into_data().ok()).transpose());
        self.is_over = !matches!(part, Some(Ok(_)));
        Poll::Ready(part)
    }
}

impl http_body::Body for ReadAhead {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        if let Some(part) = self.parts.pop_front() {
            return Poll::Ready(Some(Ok(Frame::data(part))));
        }
        self.poll_rest(context).map(|part| part.map(|part| part.map(Frame::data)))
    }

    fn is_end_stream(&self) -> bool {
        self.parts.is_empty() && (self.is_over || self.rest.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::default()
    }
}
