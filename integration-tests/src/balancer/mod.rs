//! A sample load balancer: reads a metric, and asks the elasticity API for widths.
//!
//! * [`metric`] — the metric, from the text that Prometheus scrapes;
//! * [`decision`] — pure: which width, with hysteresis;
//! * [`Balancer`] — asks, and does about each outcome what it asks for.
//!
//! It is there to be read and to be copied, and to make load (`--swing`). Whoever asks with the width that they have
//! seen as a precondition overwrites nobody's wish; whoever got no answer asks again with the same key; whoever hears
//! `RetryInfo` waits that long; every other trouble is over with the next look. Where the API asks who calls, it shows
//! a token, which it reads anew for each call, or a certificate, which it reads anew after each error, and connects
//! again: both are replaced before they expire.
//!
//! Knows: the contract in `proto/streams/elasticity/v1`. Must not know: Kubernetes, this project's programs.

pub mod decision;
pub mod metric;

use anyhow::{Context as _, Result, ensure};
use decision::{History, Wish};
use metric::Metric;
use std::error::Error;
use std::iter::successors;
use std::path::PathBuf;
use std::time::Duration;
use streams_proto::elasticity::v1::elasticity_service_client::ElasticityServiceClient;
use streams_proto::elasticity::v1::resize_request::{DesiredWidth, WaitFor};
use streams_proto::elasticity::v1::{GetRegionRequest, Region, ResizeRequest, ResizeResponse};
use tokio::time::Instant;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use tonic::{Code, Request, Status};
use tonic_types::StatusExt as _;

/// A look at a metric or a region takes milliseconds.
const LOOK_WITHIN: Duration = Duration::from_secs(5);
/// The bounds of a region, or its application, may change.
const REFUSED_FOR: Duration = Duration::from_secs(60);

/// Where the widths come from.
#[derive(Clone, Debug)]
pub enum Source {
    /// A metric at an address.
    Metric(reqwest::Url, Metric),
    /// The least and the greatest width in turn: for load.
    Swing,
}

/// Where the elasticity API is, and how a balancer and the API show each other who they are.
#[derive(Clone, Debug, Default)]
pub struct Address {
    /// A URL with http, which may be left out, or with https where there is TLS.
    pub url: String,
    /// A file with a token to show.
    pub token_file: Option<PathBuf>,
    /// Certificates of those who may sign that of the API (PEM), which is spoken to by https then.
    pub authority: Option<PathBuf>,
    /// The name that it is for; else the host of the URL.
    pub server_name: Option<String>,
    /// Certificate chain and private key (PEM) to show.
    pub pair: Option<(PathBuf, PathBuf)>,
}

impl Address {
    /// A connection, which need not be there yet, with files as they are now.
    fn connect(&self) -> Result<ElasticityServiceClient<Channel>> {
        let (scheme, rest) = self.url.split_once("://").unwrap_or(("http", &self.url));
        // Whoever names an authority does not mean plain text, in which a token could be read.
        let scheme = if self.authority.is_some() && scheme == "http" { "https" } else { scheme };
        ensure!(scheme != "https" || self.authority.is_some(), "{}: it is not said whom to trust (--tls-ca)", self.url);
        let mut endpoint = Endpoint::from_shared(format!("{scheme}://{rest}")).with_context(|| self.url.clone())?;
        if let Some(authority) = &self.authority {
            let pem = |file: &PathBuf| std::fs::read(file).with_context(|| file.display().to_string());
            let mut tls = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(pem(authority)?));
            if let Some(name) = &self.server_name {
                tls = tls.domain_name(name);
            }
            if let Some((certificate, key)) = &self.pair {
                tls = tls.identity(Identity::from_pem(pem(certificate)?, pem(key)?));
            }
            endpoint = endpoint.tls_config(tls)?;
        }
        Ok(ElasticityServiceClient::new(endpoint.connect_timeout(LOOK_WITHIN).connect_lazy()))
    }
}

/// A balancer of one region.
#[derive(Debug)]
pub struct Balancer {
    api: ElasticityServiceClient<Channel>,
    address: Address,
    http: reqwest::Client,
    region: GetRegionRequest,
    source: Source,
    wish: Wish,
    resize_within: Duration,
    history: History,
    begun: Instant,
    /// While this width was desired, that one was refused; until then it is not asked for again.
    refused: Option<(u32, u32, Instant)>,
    /// The request that was made without an answer.
    unanswered: Option<Unanswered>,
}

/// A request without an answer, and its key: asked for again, it is the same one.
#[derive(Clone, Debug, PartialEq)]
struct Unanswered {
    width: u32,
    expected: u32,
    key: String,
}

impl Unanswered {
    /// A request for this width of a region that has this one: that without an answer, if it wanted the same. If it
    /// expected something else, the region was changed since, be it by that request, and this one has a key of its own.
    fn again(before: Option<Self>, width: u32, expected: u32) -> Self {
        let same = before.filter(|before| (before.width, before.expected) == (width, expected));
        let new = || Self { width, expected, key: format!("balancer-{:032x}", fastrand::u128(..)) };
        same.unwrap_or_else(new)
    }
}

/// What became of a look.
#[derive(Debug)]
pub enum Outcome {
    /// The width is right.
    Nothing,
    /// It was asked for, and is in force after this time.
    Resized(u32, Box<ResizeResponse>, Duration),
    /// It was asked for, and something came in between; look again after this time, if the API says when.
    NotNow(String, Option<Duration>),
}

impl Balancer {
    /// A balancer of this region, at an API that need not be there yet.
    ///
    /// # Errors
    /// The address is none, or its files cannot be read.
    pub fn new(
        address: Address,
        region: GetRegionRequest,
        source: Source,
        wish: Wish,
        resize_within: Duration,
    ) -> Result<Self> {
        // Fails only if there is a provider already, which then serves as well.
        let _ = rustls::crypto::ring::default_provider().install_default();
        Ok(Self {
            api: address.connect()?,
            address,
            http: reqwest::Client::builder().no_proxy().timeout(LOOK_WITHIN).build()?,
            region,
            source,
            wish,
            resize_within,
            history: History::default(),
            begun: Instant::now(),
            refused: None,
            unanswered: None,
        })
    }

    /// Looks once, and asks for another width if need be.
    pub async fn look(&mut self) -> Outcome {
        let request = match self.signed(self.region.clone(), LOOK_WITHIN) {
            Ok(request) => request,
            Err(error) => return Outcome::NotNow(format!("{error:#}"), None),
        };
        let region = match self.api.get_region(request).await {
            Ok(region) => region.into_inner(),
            Err(status) => return self.not_now(&status),
        };
        let width = match self.width(&region).await {
            Ok(width) => width,
            // Without the metric nothing is known: the width stays.
            Err(error) => return Outcome::NotNow(format!("{error:#}"), None),
        };
        // It came into force, or somebody else wanted the same: in either case it is not asked for again.
        let is_done = |unanswered: &Unanswered| unanswered.width == region.desired_width;
        self.unanswered = self.unanswered.take().filter(|unanswered| !is_done(unanswered));
        let asked = Instant::now();
        let is_refused = |width: &u32| {
            self.refused.is_some_and(|(desired, refused, until)| {
                (desired, refused) == (region.desired_width, *width) && asked < until
            })
        };
        let Some(width) = width.filter(|width| !is_refused(width)) else { return Outcome::Nothing };
        match self.resize(&region, width).await {
            Ok(answer) => {
                self.refused = None;
                Outcome::Resized(width, Box::new(answer), asked.elapsed())
            }
            Err(status) => {
                if status.code() == Code::FailedPrecondition && reason(&status) == "REJECTED" {
                    self.refused = Some((region.desired_width, width, asked + REFUSED_FOR));
                }
                self.not_now(&status)
            }
        }
    }

    async fn width(&mut self, region: &Region) -> Result<Option<u32>> {
        let Source::Metric(address, metric) = &self.source else {
            let Wish { min, max, .. } = self.wish;
            return Ok(Some(if region.desired_width == max { min } else { max }));
        };
        let text = self.http.get(address.clone()).send().await?.error_for_status()?.text().await?;
        let value = metric.sum(&text)?;
        Ok(self.wish.width(value, region.desired_width, self.begun.elapsed(), &mut self.history))
    }

    async fn resize(&mut self, region: &Region, width: u32) -> Result<ResizeResponse, Status> {
        let desired = DesiredWidth {
            region: region.name.clone(),
            width,
            // Whoever has edited it meanwhile had a reason.
            expected_width: Some(region.desired_width),
        };
        let asked = Unanswered::again(self.unanswered.clone(), width, region.desired_width);
        let request = ResizeRequest {
            namespace: region.namespace.clone(),
            job: region.job.clone(),
            regions: vec![desired],
            wait_for: WaitFor::Committed.into(),
            idempotency_key: asked.key.clone(),
            ..ResizeRequest::default()
        };
        let signed = self.signed(request, self.resize_within);
        let request = signed.map_err(|error| Status::unauthenticated(format!("{error:#}")))?;
        // Before the call: whoever stops waiting for this look has no answer either.
        self.unanswered = Some(asked);
        let answer = self.api.resize(request).await;
        if !answer.as_ref().is_err_and(|status| leaves_open(status.code())) {
            self.unanswered = None;
        }
        answer.map(tonic::Response::into_inner)
    }

    /// A call with this message, which is answered in this time.
    fn signed<T>(&self, message: T, within: Duration) -> Result<Request<T>> {
        let mut request = Request::new(message);
        request.set_timeout(within);
        if let Some(file) = &self.address.token_file {
            let token = std::fs::read_to_string(file).with_context(|| format!("the token in {}", file.display()))?;
            let value = format!("Bearer {}", token.trim()).parse().context("that is no token")?;
            request.metadata_mut().insert("authorization", value);
        }
        Ok(request)
    }

    fn not_now(&mut self, status: &Status) -> Outcome {
        // A certificate may have been renewed; until it can be read, the old one is as good as any.
        if self.address.authority.is_some()
            && let Ok(api) = self.address.connect()
        {
            self.api = api;
        }
        let after = status.get_error_details().retry_info().and_then(|info| info.retry_delay);
        let reason = reason(status);
        let code = if reason.is_empty() { format!("{:?}", status.code()) } else { reason };
        Outcome::NotNow(format!("{code}: {}", with_causes(status)), after)
    }
}

/// Whether what became of a request is not said by an error of this code: an earlier call with its key may have stored
/// it, though this one was turned away.
fn leaves_open(code: Code) -> bool {
    !matches!(
        code,
        Code::InvalidArgument | Code::NotFound | Code::FailedPrecondition | Code::AlreadyExists | Code::Aborted
    )
}

/// What a status says. One that the own library makes, such as of a handshake that failed, says why only in its causes.
fn with_causes(status: &Status) -> String {
    let mut said = status.message().to_owned();
    for cause in successors(status.source(), |cause: &&(dyn Error + 'static)| (*cause).source()) {
        let cause = cause.to_string();
        if !said.contains(&cause) {
            said = format!("{said}: {cause}");
        }
    }
    said
}

fn reason(status: &Status) -> String {
    status.get_error_details().error_info().map(|info| info.reason.clone()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An answer to the request before would say nothing of the one that is meant, and another one has no such key.
    #[test]
    fn a_key_is_used_again_for_the_same_request_only() {
        let before = Unanswered { width: 3, expected: 2, key: "k".to_owned() };
        for (width, expected, is_same) in [(3, 2, true), (3, 4, false), (4, 2, false)] {
            let asked = Unanswered::again(Some(before.clone()), width, expected);
            assert_eq!((asked.width, asked.expected, asked.key == "k"), (width, expected, is_same));
        }
        assert_ne!(Unanswered::again(None, 3, 2).key, Unanswered::again(None, 3, 2).key);
    }

    #[test]
    fn what_the_own_library_says_is_told_with_its_causes() {
        let ended = std::io::Error::other("received fatal alert: CertificateExpired");
        let mut status = Status::unknown("transport error");
        status.set_source(std::sync::Arc::new(ended));
        assert_eq!(with_causes(&status), "transport error: received fatal alert: CertificateExpired");
        assert_eq!(with_causes(&Status::unavailable("later")), "later");
    }

    /// By the name of an authority TLS is meant, and by https an authority is needed.
    #[tokio::test]
    async fn an_address_says_whether_tls_is_spoken() {
        for (url, expected) in [("localhost:1", true), ("http://localhost:1", true), ("https://localhost:1", false)] {
            let address = Address { url: url.to_owned(), ..Address::default() };
            assert_eq!(address.connect().is_ok(), expected, "{url}");
        }
    }

    /// Without its key nobody finds the request that the first call has stored.
    #[test]
    fn a_key_is_kept_until_it_is_said_what_became_of_its_request() {
        use Code::{
            Aborted, AlreadyExists, Cancelled, DeadlineExceeded, FailedPrecondition, Internal, InvalidArgument,
            NotFound, PermissionDenied, ResourceExhausted, Unauthenticated, Unavailable, Unknown,
        };
        for code in [InvalidArgument, NotFound, FailedPrecondition, AlreadyExists, Aborted] {
            assert!(!leaves_open(code), "{code:?}");
        }
        let open = [DeadlineExceeded, Unavailable, ResourceExhausted, Internal, Unknown, Cancelled];
        for code in open.into_iter().chain([PermissionDenied, Unauthenticated]) {
            assert!(leaves_open(code), "{code:?}");
        }
    }
}
