//! Who calls the gRPC services, and whether they may (rule elasticity-29).
//!
//! ```text
//!  call ── Authenticated ───────────► message is read ──► Guarded ─────────────► service
//!           whose token is it?                             may it do this?
//!               │                                              │
//!               └──► tokens: Answers ──┐      ┌── rights: Answers
//!                                      ▼      ▼
//!                                     Reviewer: TokenReview, SubjectAccessReview of the API server
//! ```
//!
//! | Module | What it does |
//! |---|---|
//! | [`layer`] | goes around every service of the listener: nobody without a good token comes further |
//! | [`guarded`] | a service that is reached only by saying which right a method takes |
//! | [`token`] | pure: the token of a call |
//! | [`answers`] | keeps answers for a while, asks for each once, a few at a time |
//! | [`reviewer`] | asks the API server |
//! | [`errors`] | statuses with `google.rpc` details |
//!
//! Knows: gRPC, users and rights of Kubernetes. Must not know: which methods there are, what they do.
//!
//! Invariants: with [`Access::Reviewed`], no message is read before its sender is known, and no method is carried out
//! before the API server has said that the sender may. What was answered is kept for a short time only, and never is a
//! token kept, only what stands for it. Whoever makes up tokens takes places and turns of its own address, and none of
//! those whose tokens were good.

mod answers;
mod errors;
pub(crate) mod guarded;
pub(crate) mod layer;
pub(crate) mod reviewer;
#[cfg(test)]
mod tests;
mod token;

use self::answers::{Answers, KeptFor, Line, Unanswered};
use self::reviewer::{Reviewer, Right, Subject};
use self::token::Digest;
use super::arrival::Arrival;
use super::deadline;
use super::places::CallerName;
use http::{Extensions, HeaderMap};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;
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

/// Tokens that nobody knows: reviews at the same time, in all and of one address, and those that wait, a quarter of
/// them at most of one address.
const STRANGERS: usize = 4;
const STRANGERS_OF_ONE: usize = 1;
const STRANGERS_WAITING: usize = 256;
/// How long the turn of a token lasts that turns out to be nobody's: so little comes of making up many.
const REST: Duration = Duration::from_millis(100);
/// What is asked about callers that are known: at the same time, in all and of one caller, and what waits, a quarter of
/// it at most of one caller.
const KNOWN: usize = 8;
const KNOWN_OF_ONE: usize = 4;
const KNOWN_WAITING: usize = 4_096;

/// The longest that a call waits until it is known who calls, or whether they may.
const LONGEST: Duration = Duration::from_secs(10);

/// Who may call. Cheap to clone; all clones are the same.
#[derive(Clone)]
pub(crate) enum Access {
    /// Whoever reaches the listener.
    Open,
    /// Whoever has a token of the cluster, and there the rights that a method takes.
    Reviewed(Arc<Reviews>),
}

/// What is known of callers.
pub(crate) struct Reviews {
    reviewer: Arc<dyn Reviewer>,
    tokens: Answers<Digest, Arc<Subject>>,
    rights: Answers<(Arc<Subject>, Right), ()>,
    strangers: Line,
    known: Line,
}

impl Access {
    /// Only callers that this reviewer knows may do anything.
    pub(crate) fn reviewed(reviewer: Arc<dyn Reviewer>) -> Self {
        Self::Reviewed(Arc::new(Reviews {
            reviewer,
            tokens: Answers::new(TOKENS),
            rights: Answers::new(RIGHTS),
            strangers: Line::new(STRANGERS, STRANGERS_OF_ONE, STRANGERS_WAITING, REST),
            known: Line::new(KNOWN, KNOWN_OF_ONE, KNOWN_WAITING, Duration::ZERO),
        }))
    }
}

/// The name of whoever makes this call, if it was asked for a token.
pub(crate) fn caller_of<T>(call: &Request<T>) -> Option<CallerName> {
    call.extensions().get::<Arc<Subject>>().map(|subject| subject.name.clone())
}

impl Reviews {
    /// Whose token a call has. `domain` is that of the errors of its service.
    ///
    /// # Errors
    /// There is none, it is nobody's, or that is not known now.
    async fn subject(
        &self,
        headers: &HeaderMap,
        extensions: &Extensions,
        domain: &str,
    ) -> Result<Arc<Subject>, Status> {
        let audiences = self.reviewer.audiences();
        let token = token::of(headers).map_err(|why| errors::unauthenticated(domain, why, audiences))?;
        let digest = token.digest();
        let before = self.tokens.known(&digest);
        let (line, of) = match &before {
            Some(subject) => (&self.known, subject.name.0.to_string()),
            None => (&self.strangers, extensions.get::<Arrival>().map(|a| a.from.to_string()).unwrap_or_default()),
        };
        let review = || Arc::clone(&self.reviewer).whose(token);
        let what = "the API server to say whose token this is";
        let found = in_time(deadline::rest(headers, extensions), self.tokens.ask(digest, line, &of, review));
        match found.await.map_err(|why| errors::unanswered(domain, what, &why))? {
            Some(subject) => Ok(subject),
            None => Err(errors::unauthenticated(domain, token::Unusable::Nobodys, audiences)),
        }
    }

    /// Whether somebody has a right. `within` is how long it waits.
    async fn may(&self, subject: &Arc<Subject>, right: &Right, within: Option<Duration>) -> Result<bool, Unanswered> {
        let review = || Arc::clone(&self.reviewer).may(Arc::clone(subject), right.clone());
        let key = (Arc::clone(subject), right.clone());
        let found = in_time(within, self.rights.ask(key, &self.known, &subject.name.0, review)).await?;
        Ok(found.is_some())
    }
}

/// What comes of this as long as the caller waits, which is `within` if it says so.
async fn in_time<T>(
    within: Option<Duration>,
    asked: impl Future<Output = Result<T, Unanswered>>,
) -> Result<T, Unanswered> {
    let is_callers = within.is_some_and(|within| within <= LONGEST);
    let late = || if is_callers { Unanswered::Late } else { Unanswered::Failed("it takes too long".to_owned()) };
    timeout(within.unwrap_or(LONGEST).min(LONGEST), asked).await.unwrap_or_else(|_| Err(late()))
}
