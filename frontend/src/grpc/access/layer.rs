//! Goes around a service: what a call says is read only if it is known who calls.

use super::Access;
use axum::response::{IntoResponse, Response};
use futures::future::BoxFuture;
use http::Request;
use http::header::AUTHORIZATION;
use std::convert::Infallible;
use std::task::{Context, Poll};
use tonic::body::Body;
use tonic::server::NamedService;
use tower::Service;

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

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        // The one that was asked whether it is ready.
        let waiting = self.service.clone();
        let mut service = std::mem::replace(&mut self.service, waiting);
        let (access, domain) = (self.access.clone(), self.domain);
        Box::pin(async move {
            if let Access::Reviewed(reviews) = access {
                match reviews.subject(request.headers(), request.extensions(), domain).await {
                    Ok(subject) => request.extensions_mut().insert(subject),
                    Err(status) => return Ok(status.into_http::<axum::body::Body>()),
                };
            }
            // Nothing behind has use for it.
            request.headers_mut().remove(AUTHORIZATION);
            service.call(request).await.map(IntoResponse::into_response)
        })
    }
}
