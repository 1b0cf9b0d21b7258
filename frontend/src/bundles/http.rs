//! Asking servers for bundles (rules fetch-5, fetch-8, fetch-11 and fetch-12).
//!
//! Knows: requests, redirects, what answers mean. Must not know: Secrets, caches, who asks.
//!
//! Invariants, at every hop: scheme and address are checked before anything is sent; the token goes to listed hosts
//! only, and once it was held back it is not sent any more; user and password of a URL go no further than its host. A
//! body is never larger in memory than a bundle may be.

use super::addresses::AddressRules;
use super::error::BundleError;
use super::guard::{Barred, Guard, Lookup};
use super::hosts::Hosts;
use super::options::FetchOptions;
use super::proofs::Validator;
use super::reference::{check_scheme, shown, without_user};
use bytes::Bytes;
use futures::StreamExt;
use reqwest::header::{ACCEPT, AUTHORIZATION, ETAG, HeaderValue, IF_NONE_MATCH, LOCATION};
use reqwest::{Certificate, Client, Proxy, Response, StatusCode};
use rustls::CertificateError;
use std::error::Error as _;
use std::sync::Arc;
use std::time::Duration;
use url::Url;

/// How long a connection may take (rule fetch-5).
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
const MAX_REDIRECTS: usize = 5;
/// Media type that makes the GitHub contents API send the file itself.
const MEDIA_TYPE: &str = "application/vnd.github.v3.raw";
/// Bodies of at most this size are copied if they have taken much more room than they need.
const COPIED: usize = 8 << 20;

/// What to ask for.
pub(super) struct Query<'a> {
    /// Where.
    pub(super) url: &'a Url,
    /// Whether whoever runs the frontend chose the host: then it is asked whatever its address is.
    pub(super) is_own: bool,
    /// A token, and where it may go.
    pub(super) token: Option<(&'a str, &'a Hosts)>,
    /// What the server called what is there already.
    pub(super) validator: Option<&'a Validator>,
}

/// What a server answers.
#[derive(Debug)]
pub(super) enum Answer {
    /// What is there already is what the server has.
    Same,
    /// This.
    New(Bytes, Option<Validator>),
}

/// Asks servers. Cheap to clone.
#[derive(Clone)]
pub(super) struct Http {
    options: Arc<FetchOptions>,
    guard: Guard,
    /// Connects to what the guard permits.
    guarded: Client,
    /// Connects to anything: for the base URL of the frontend.
    free: Client,
}

impl Http {
    /// With these options, names resolved by `lookup`, and certificates of authorities besides those of the system.
    ///
    /// # Errors
    /// When TLS cannot be set up, or the proxy cannot be used.
    pub(super) fn new(
        options: Arc<FetchOptions>,
        lookup: Arc<dyn Lookup>,
        roots: &[Certificate],
    ) -> anyhow::Result<Self> {
        // Fails only if there is a provider already, which then serves as well.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let guard = Guard::new(AddressRules::new(&options.allowed, &options.denied), lookup, &options.api_server);
        let client = || -> anyhow::Result<reqwest::ClientBuilder> {
            let client = Client::builder()
                .connect_timeout(CONNECT_TIMEOUT)
                .redirect(reqwest::redirect::Policy::none())
                .referer(false)
                .no_proxy()
                .tls_certs_merge(roots.iter().cloned())
                .user_agent(concat!("streams-operator/", env!("CARGO_PKG_VERSION")));
            Ok(match &options.proxy {
                Some(proxy) => client.proxy(Proxy::all(proxy.clone())?),
                None => client,
            })
        };
        let guarded = match &options.proxy {
            // Only the name of the proxy is resolved here; it resolves the others.
            Some(_) => client()?,
            None => client()?.dns_resolver(Arc::new(guard.clone())),
        };
        let (guarded, free) = (guarded.build()?, client()?.build()?);
        Ok(Self { options, guard, guarded, free })
    }

    /// Asks for a bundle.
    ///
    /// # Errors
    /// When it may not be asked for there, or is not given.
    pub(super) async fn get(&self, query: &Query<'_>) -> Result<Answer, BundleError> {
        let time_out = self.options.time_out;
        tokio::time::timeout(time_out, self.follow(query)).await.unwrap_or_else(|_| {
            let seconds = time_out.as_secs_f64();
            Err(BundleError::unavailable(format!("{} was not fetched within {seconds} s", shown(query.url))))
        })
    }

    /// Asks, and goes where redirects lead.
    async fn follow(&self, query: &Query<'_>) -> Result<Answer, BundleError> {
        let mut url = query.url.clone();
        let mut token = query.token;
        let mut is_own = query.is_own;
        for _ in 0..=MAX_REDIRECTS {
            // What went elsewhere in between was led back by somebody else.
            token = token.filter(|(_, hosts)| hosts.list(&url));
            is_own = is_own && url.origin() == query.url.origin();
            let etag = query.validator.and_then(|validator| validator.etag_for(&url));
            let client = self.client(query, &url, is_own).await?;
            let response = self.ask(client, query, &url, token.map(|(token, _)| token), etag).await?;
            let Some(next) = redirect(&response) else {
                return self.answer(query, &url, etag.is_some(), response).await;
            };
            let next = url.join(&next).map_err(|_| refused(query.url, "is redirected to what is not a URL"))?;
            let keeps_user = next.origin() == url.origin() && token.is_none();
            url = if keeps_user { next } else { without_user(next) };
        }
        Err(refused(query.url, &format!("is redirected more than {MAX_REDIRECTS} times")))
    }

    /// Who may connect to a URL: anybody, or what the guard permits.
    async fn client(&self, query: &Query<'_>, url: &Url, is_own: bool) -> Result<&Client, BundleError> {
        if is_own {
            return Ok(&self.free);
        }
        check_scheme(url, &self.options).map_err(|error| match url == query.url {
            true => error,
            false => refused(query.url, &format!("is redirected to an address by {}, use https", url.scheme())),
        })?;
        self.guard.check_literal(url).await.map_err(|barred| self.barred(query.url, &barred))?;
        Ok(&self.guarded)
    }

    /// Sends one request.
    async fn ask(
        &self,
        client: &Client,
        query: &Query<'_>,
        url: &Url,
        token: Option<&str>,
        etag: Option<&str>,
    ) -> Result<Response, BundleError> {
        let mut request = client.get(url.clone()).header(ACCEPT, MEDIA_TYPE);
        if let Some(token) = token {
            let mut value = HeaderValue::try_from(format!("token {token}"))
                .map_err(|_| BundleError::transient("SecretInvalid", "the token has characters that no header has"))?;
            value.set_sensitive(true);
            request = request.header(AUTHORIZATION, value);
        }
        if let Some(etag) = etag {
            request = request.header(IF_NONE_MATCH, etag);
        }
        request.send().await.map_err(|error| self.trouble(query.url, error))
    }

    /// What an answer means that is no redirect.
    async fn answer(
        &self,
        query: &Query<'_>,
        url: &Url,
        conditional: bool,
        response: Response,
    ) -> Result<Answer, BundleError> {
        let (status, asked) = (response.status(), query.url);
        if status == StatusCode::NOT_MODIFIED && conditional {
            return Ok(Answer::Same);
        }
        // Other answers of success, like that it is being made, come without the bundle.
        if ![StatusCode::OK, StatusCode::NON_AUTHORITATIVE_INFORMATION].contains(&status) {
            let message = format!("{} cannot be fetched: the server answers {status}", shown(asked));
            let temporary = [StatusCode::REQUEST_TIMEOUT, StatusCode::TOO_MANY_REQUESTS].contains(&status);
            return Err(match status {
                StatusCode::NOT_FOUND | StatusCode::GONE => BundleError::not_found(message),
                _ if status.is_client_error() && !temporary => BundleError::permanent("BundleRefused", message),
                _ => BundleError::unavailable(message),
            });
        }
        let max_bytes = self.options.max_bytes;
        let announced = response.content_length();
        if announced.is_some_and(|length| length > max_bytes as u64) {
            return Err(BundleError::too_large(&shown(asked), max_bytes));
        }
        let etag = response.headers().get(ETAG).and_then(|etag| etag.to_str().ok());
        let validator = etag.and_then(|etag| Validator::new(url, etag));
        // Never moved while it grows, which would take twice the memory. What is not written takes none.
        let capacity = announced.and_then(|length| usize::try_from(length).ok()).unwrap_or(max_bytes);
        let mut body = Vec::with_capacity(capacity);
        let mut chunks = response.bytes_stream();
        while let Some(chunk) = chunks.next().await {
            let chunk = chunk.map_err(|error| self.trouble(asked, error))?;
            if body.len() + chunk.len() > max_bytes {
                return Err(BundleError::too_large(&shown(asked), max_bytes));
            }
            body.extend_from_slice(&chunk);
        }
        Ok(Answer::New(fitting(body), validator))
    }

    /// Why there is no answer. What is at an address is said as little as possible: people can make the frontend ask
    /// inside the cluster.
    fn trouble(&self, asked: &Url, error: reqwest::Error) -> BundleError {
        let error = error.without_url();
        if let Some(barred) = causes(&error).find_map(|cause| cause.downcast_ref::<Barred>()) {
            return self.barred(asked, barred);
        }
        let tls = causes(&error).find_map(tls_problem);
        tracing::debug!(error = ?error, bundle = %shown(asked), "a bundle cannot be fetched");
        let why = match tls {
            Some(problem) => problem,
            None if error.is_timeout() => "no answer in time",
            None if error.is_connect() => "no connection to its host",
            None => "the connection broke",
        };
        BundleError::unavailable(format!("{} cannot be fetched: {why}", shown(asked)))
    }

    fn barred(&self, asked: &Url, barred: &Barred) -> BundleError {
        match barred {
            Barred::Refused => refused(asked, &format!("cannot be fetched: {barred}")),
            Barred::NoAddress | Barred::Unknown => {
                BundleError::unavailable(format!("{} cannot be fetched: {barred}", shown(asked)))
            }
        }
    }
}

/// A body in as much room as it needs. It may be kept for long, and where a server does not announce the length, room
/// was taken for the largest one: pages of that stay with a small body, and all of it counts where memory is not
/// overcommitted.
fn fitting(mut body: Vec<u8>) -> Bytes {
    if body.capacity() <= body.len() + body.len() / 8 {
        return body.into();
    }
    if body.len() <= COPIED {
        return Bytes::copy_from_slice(&body);
    }
    // The room of a large one gets smaller where it is.
    body.shrink_to_fit();
    body.into()
}

/// What an error comes from, and what that comes from.
fn causes<'a>(error: &'a reqwest::Error) -> impl Iterator<Item = &'a (dyn std::error::Error + 'static)> {
    std::iter::successors(error.source(), |cause: &&'a (dyn std::error::Error + 'static)| (*cause).source())
}

/// The problem of TLS, if this is one, without what a certificate says. Some layers hide it inside I/O errors.
fn tls_problem(cause: &(dyn std::error::Error + 'static)) -> Option<&'static str> {
    let mut inner = cause;
    loop {
        if let Some(problem) = inner.downcast_ref::<rustls::Error>() {
            return Some(match problem {
                rustls::Error::InvalidCertificate(problem) => match problem {
                    CertificateError::UnknownIssuer => "its certificate is from an authority that is not known",
                    CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
                        "its certificate is for another host"
                    }
                    CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
                        "its certificate has expired"
                    }
                    _ => "its certificate is not valid",
                },
                _ => "it speaks no TLS that is understood",
            });
        }
        inner = inner.downcast_ref::<std::io::Error>()?.get_ref()?;
    }
}

fn refused(asked: &Url, why: &str) -> BundleError {
    BundleError::permanent("BundleRefused", format!("{} {why}", shown(asked)))
}

/// Where an answer leads, if it is a redirect.
fn redirect(response: &Response) -> Option<String> {
    let follows = [
        StatusCode::MOVED_PERMANENTLY,
        StatusCode::FOUND,
        StatusCode::SEE_OTHER,
        StatusCode::TEMPORARY_REDIRECT,
        StatusCode::PERMANENT_REDIRECT,
    ];
    let location = response.headers().get(LOCATION).filter(|_| follows.contains(&response.status()))?;
    location.to_str().ok().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_that_is_kept_has_no_room_that_it_does_not_need() {
        // length, room -> room afterwards
        for (length, room, expected) in [
            (3, COPIED, 3),
            (0, COPIED, 0),
            (COPIED, COPIED, COPIED),
            (COPIED + 1, 2 * COPIED, COPIED + 1),
            (COPIED, COPIED + COPIED / 8, COPIED + COPIED / 8),
        ] {
            let mut body = Vec::with_capacity(room);
            body.resize(length, 7);
            let body = fitting(body);
            assert!(body.len() == length && body.iter().all(|byte| *byte == 7), "{length} of {room}");
            assert_eq!(bytes::BytesMut::from(body).capacity(), expected, "{length} of {room}");
        }
    }
}
