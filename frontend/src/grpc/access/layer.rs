//! Goes around a service: what a call says is decoded only if it is known who calls, and all of it is there.
//!
//! While that is being found out, the bytes of the request are taken from the connection. There nobody would count
//! them, and they would be in front of the caller's other calls. They are copied into blocks: whatever comes from a
//! connection keeps all of what was read with it, of which its caller may have made it a small part.
//!
//! Decoded, a message may take many times what it had as bytes. Since nothing has to be waited for any more, it is
//! counted before anything else is done ([`Guarded`](super::guarded::Guarded)).

use super::Access;
use crate::grpc::transport::{BLOCK, REQUEST_MAX};
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

/// A service whose callers are known; its calls carry their [`Subject`](crate::grpc::subject::Subject).
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
    /// What was read, in blocks as they are counted. All but the last one are full.
    blocks: VecDeque<Vec<u8>>,
    bytes: usize,
    rest: Body,
    is_over: bool,
}

impl ReadAhead {
    fn of(body: Body) -> Self {
        Self { blocks: VecDeque::new(), bytes: 0, is_over: body.is_end_stream(), rest: body }
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
                    self.keep(&part);
                }
                Some(Err(why)) => return Err(why),
                None => break,
            }
        }
        Ok(())
    }

    fn keep(&mut self, mut part: &[u8]) {
        while !part.is_empty() {
            let last = self.blocks.back_mut().filter(|last| last.len() < BLOCK);
            let Some(last) = last else {
                self.blocks.push_back(Vec::with_capacity(BLOCK));
                continue;
            };
            let (now, later) = part.split_at(part.len().min(BLOCK - last.len()));
            last.extend_from_slice(now);
            part = later;
        }
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
        if let Some(block) = self.blocks.pop_front() {
            return Poll::Ready(Some(Ok(Frame::data(block.into()))));
        }
        self.poll_rest(context).map(|part| part.map(|part| part.map(Frame::data)))
    }

    fn is_end_stream(&self) -> bool {
        self.blocks.is_empty() && (self.is_over || self.rest.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::body::Body as AnyBody;
    use std::sync::Arc;

    /// What was read from a connection at once. A part of it is of the request.
    struct Read {
        all: Vec<u8>,
        _there: Arc<()>,
    }

    impl AsRef<[u8]> for Read {
        fn as_ref(&self) -> &[u8] {
            &self.all
        }
    }

    #[tokio::test]
    async fn what_is_kept_of_a_request_is_what_is_counted_of_it() {
        // bytes of each part -> bytes of each block
        let table: [(&[usize], &[usize]); 5] = [
            (&[], &[]),
            (&[1, 0, 1], &[2]),
            (&[1; 100], &[100]),
            (&[BLOCK - 1, 2, BLOCK - 1, 1], &[BLOCK, BLOCK, 1]),
            (&[3 * BLOCK + 5], &[BLOCK, BLOCK, BLOCK, 5]),
        ];
        for (sent, expected) in table {
            let there = Arc::new(());
            let part = |bytes: &usize| {
                let read = Read { all: (0..=255).cycle().take(bytes + BLOCK).collect(), _there: Arc::clone(&there) };
                Bytes::from_owner(read).slice(..*bytes)
            };
            let parts: Vec<Bytes> = sent.iter().map(part).collect();
            let whole = parts.concat();
            let parts = tokio_stream::iter(parts.into_iter().map(Ok::<_, Status>));
            let mut body = ReadAhead::of(Body::new(AnyBody::from_stream(parts)));
            body.read_all().await.unwrap();
            assert_eq!(Arc::strong_count(&there), 1, "{expected:?}: what was read is kept");
            assert_eq!(body.blocks.iter().map(Vec::len).collect::<Vec<_>>(), expected);
            assert!(body.blocks.iter().all(|block| block.capacity() == BLOCK));
            assert_eq!(axum::body::to_bytes(AnyBody::new(body), usize::MAX).await.unwrap(), whole);
        }
    }
}
