//! Who calls the gRPC services, and whether they may (rules elasticity-29 and elasticity-31).
//!
//! ```text
//!  call ── Authenticated ───────────► message is read ──► Guarded ─────────────► service
//!           whose certificate, or token, is it?            may it do this?
//!               │                                              │
//!               └──► tokens: Answers ──┐      ┌── rights: Answers
//!                                      ▼      ▼
//!                                     Reviewer: TokenReview, SubjectAccessReview of the API server
//! ```
//!
//! | Module | What it does |
//! |---|---|
//! | [`layer`] | goes around every service of the listener: nobody comes further who is not known |
//! | [`guarded`] | a service that is reached only by saying which right a method takes |
//! | [`token`] | pure: the token of a call |
//! | [`answers`] | keeps answers for a while, asks for each once, a few at a time |
//! | [`reviewer`] | asks the API server |
//! | [`errors`] | statuses with `google.rpc` details |
//!
//! Knows: gRPC, users and rights of Kubernetes. Must not know: which methods there are, what they do.
//!
//! Invariants: with [`Access::Reviewed`], no message is decoded before its sender is known, and no method is carried
//! out before the API server has said that the sender may. Somebody is the same caller by a certificate and by a token
//! of the same name, in all that callers share. What was answered is kept for a short time only, and never is a token
//! kept, only what stands for it. Whoever makes up tokens takes places of its own connection and turns of its own
//! address, and none of those whose tokens were good. Whoever asks for what it may not takes its own turns. A call
//! waits for all of its rights together, and for nothing when this frontend is to stop.

mod answers;
mod errors;
pub(crate) mod guarded;
pub(crate) mod layer;
pub(crate) mod reviewer;
#[cfg(test)]
mod tests;
mod token;

use self::answers::{Answers, KeptFor, Line, LineBounds, Unanswered};
use self::reviewer::{Reviewer, Right};
use self::token::{Digest, Unusable};
use super::arrival::Arrival;
use super::certificate::{Certificate, Unshown};
use super::deadline;
use super::places::CallerName;
use super::subject::Subject;
use http::{Extensions, HeaderMap};
use std::sync::Arc;
use std::time::Duration;
use streams_kubernetes::queue::Owner;
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;
use tonic::{Request, Status};

/// How long it counts whose token one is, and that it is nobody's. What was good once is known for longer: if it is
/// asked about again, that is not behind tokens that nobody knows.
const TOKENS: KeptFor = KeptFor {
    yes: Duration::from_secs(60),
    no: Duration::from_secs(5),
    known: Duration::from_secs(600),
    most: 4_096,
    most_no: 4_096,
};
/// The same for what somebody may, and may not.
const RIGHTS: KeptFor = KeptFor {
    yes: Duration::from_secs(30),
    no: Duration::from_secs(5),
    known: Duration::from_secs(30),
    most: 16_384,
    most_no: 4_096,
};

/// How long a turn lasts after a `no`.
const REST: Duration = Duration::from_millis(100);
/// What is asked about tokens that nobody knows, by the addresses that they come from, of which the parts are their
/// connections. There are places for all 128 connections that an address may have (rule elasticity-27), whatever the
/// others ask for; and if all of them ask for nobody's tokens, each has a turn within 6.4 s, and the time for which the
/// API server is asked. A turn that rests is one of the four: so little is asked however many addresses make up tokens.
const STRANGERS: LineBounds =
    LineBounds { at_once: 4, at_once_of_one: 2, waiting: 32 << 10, waiting_of_part: 64, rest: REST };
/// What is asked about callers that are known, by their names.
const KNOWN: LineBounds =
    LineBounds { at_once: 8, at_once_of_one: 4, waiting: 4_096, waiting_of_part: 4_096, rest: REST };

/// The longest that a call waits until it is known who calls, and then until it is known whether they may.
const LONGEST: Duration = Duration::from_secs(10);

/// Who may call. Cheap to clone; all clones are the same.
#[derive(Clone)]
pub(crate) enum Access {
    /// Whoever reaches the listener.
    Open,
    /// Whoever has shown a certificate or has a token of the cluster, and there the rights that a method takes.
    Reviewed(Arc<Reviews>),
}

/// What is known of callers.
pub(crate) struct Reviews {
    reviewer: Arc<dyn Reviewer>,
    tokens: Answers<Digest, Arc<Subject>>,
    rights: Answers<(Arc<Subject>, Right), ()>,
    strangers: Line,
    known: Line,
    stopping: CancellationToken,
}

/// Until when a call waits.
#[derive(Clone, Copy)]
struct Patience {
    until: Instant,
    /// The time is the caller's.
    is_callers: bool,
}

impl Patience {
    /// From now on, for a caller that waits `within` if it says so.
    fn of(within: Option<Duration>) -> Self {
        let is_callers = within.is_some_and(|within| within <= LONGEST);
        Self { until: Instant::now() + within.unwrap_or(LONGEST).min(LONGEST), is_callers }
    }

    /// Why there is no answer when it is over.
    fn late(self) -> Unanswered {
        if self.is_callers { Unanswered::Late } else { Unanswered::Failed("it takes too long".to_owned()) }
    }
}

impl Access {
    /// Only callers that this reviewer knows may do anything. Once `stopping` is cancelled, no call waits any more.
    pub(crate) fn reviewed(reviewer: Arc<dyn Reviewer>, stopping: CancellationToken) -> Self {
        Self::Reviewed(Arc::new(Reviews {
            reviewer,
            tokens: Answers::new(TOKENS),
            rights: Answers::new(RIGHTS),
            strangers: Line::new(STRANGERS),
            known: Line::new(KNOWN),
            stopping,
        }))
    }
}

/// The name of whoever makes this call, if it was asked who that is.
pub(crate) fn caller_of<T>(call: &Request<T>) -> Option<CallerName> {
    call.extensions().get::<Arc<Subject>>().map(|subject| subject.name.clone())
}

impl Reviews {
    /// Who makes a call. `domain` is that of the errors of its service.
    ///
    /// As in the API server, the certificate of the connection is looked at first. If it says who calls, a token does
    /// not matter; if not, it is as if there were none.
    ///
    /// # Errors
    /// There is no token, it is nobody's, or that is not known now.
    async fn subject(
        &self,
        headers: &HeaderMap,
        extensions: &Extensions,
        domain: &str,
    ) -> Result<Arc<Subject>, Status> {
        let shown = extensions.get::<Arc<Certificate>>().map(|certificate| certificate.owner());
        let worthless = match shown {
            Some(Ok(owner)) => return Ok(Arc::clone(owner)),
            Some(Err(why)) => Some(why),
            None => None,
        };
        let audiences = self.reviewer.audiences();
        let token = token::of(headers).map_err(|why| match (why, worthless) {
            (Unusable::Missing, Some(worthless)) => errors::worthless(domain, worthless),
            (Unusable::Missing, None) if extensions.get::<Unshown>().is_some() => errors::unshown(domain, audiences),
            _ => errors::unauthenticated(domain, why, audiences),
        })?;
        let digest = token.digest();
        let before = self.tokens.known(&digest);
        let (line, of) = match &before {
            Some(subject) => (&self.known, of_caller(subject)),
            None => (&self.strangers, extensions.get::<Arrival>().map(of_connection).unwrap_or_default()),
        };
        let review = || Arc::clone(&self.reviewer).whose(token);
        let what = "the API server to say whose token this is";
        let patience = Patience::of(deadline::rest(headers, extensions));
        let found = self.in_time(patience, self.tokens.ask(digest, line, of, review)).await;
        match found.map_err(|why| errors::unanswered(domain, what, &why))? {
            Some(subject) => Ok(subject),
            None => Err(errors::unauthenticated(domain, Unusable::Nobodys, audiences)),
        }
    }

    /// Whether somebody has a right.
    async fn may(&self, subject: &Arc<Subject>, right: &Right, patience: Patience) -> Result<bool, Unanswered> {
        let review = || Arc::clone(&self.reviewer).may(Arc::clone(subject), right.clone());
        let key = (Arc::clone(subject), right.clone());
        let asked = self.rights.ask(key, &self.known, of_caller(subject), review);
        Ok(self.in_time(patience, asked).await?.is_some())
    }

    /// What comes of this as long as the call waits, and this frontend does not stop.
    async fn in_time<T>(
        &self,
        patience: Patience,
        asked: impl Future<Output = Result<T, Unanswered>>,
    ) -> Result<T, Unanswered> {
        tokio::select! {
            biased;
            found = timeout_at(patience.until, asked) => found.unwrap_or_else(|_| Err(patience.late())),
            () = self.stopping.cancelled() => Err(Unanswered::Stopping),
        }
    }
}

/// Whose turns a question about a caller that is known takes.
fn of_caller(subject: &Subject) -> Owner {
    Owner { namespace: Arc::clone(&subject.name.0), object: Arc::default() }
}

/// The same of one that is not: those of its address, in which its connections take turns.
fn of_connection(arrival: &Arrival) -> Owner {
    Owner { namespace: arrival.from.to_string().into(), object: arrival.connection.to_string().into() }
}
