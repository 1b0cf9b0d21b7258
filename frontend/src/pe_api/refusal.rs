//! Why something is not done, as the status code that the runtime reads (rule pe-api-2).

use crate::run_time::Problem;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use std::time::Duration;
use streams_kubernetes::Error;
use streams_kubernetes::error::with_causes;
use tokio::time::{Instant, sleep_until};

/// The runtime waits a second for an answer. What comes later is, for it, no answer, and it tries again.
pub(super) const TOO_LATE: Duration = Duration::from_millis(1_500);

/// Why something is not done. The text is the body of the answer.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum Refusal {
    /// The job is not there, or the request makes no sense: 400.
    #[error("{0}")]
    Invalid(String),
    /// Who asks may not: 403.
    #[error("{0}")]
    Forbidden(String),
    /// The job has no such thing: 404.
    #[error("{0}")]
    Absent(String),
    /// The body has more bytes than this: 413.
    #[error("the body has {0} bytes at most")]
    TooLong(usize),
    /// The body has a form that nobody reads: 415.
    #[error("the body must be {0}")]
    Media(&'static str),
    /// Not now: 503.
    #[error("{0}")]
    Later(String),
}

impl Refusal {
    /// A job that is not there.
    pub(crate) fn no_job(name: &str) -> Self {
        Self::Invalid(format!("there is no job {name}"))
    }

    /// The refusal, when the runtime does not wait for it any more: it tries again if it hears nothing, but not if it
    /// is told that something failed (rule pe-api-4).
    pub(super) async fn unheard(self, since: Instant) -> Self {
        sleep_until(since + TOO_LATE).await;
        self
    }

    /// The same of what may pass; what will be refused again is told at once.
    pub(super) async fn unheard_if_it_passes(self, since: Instant) -> Self {
        if matches!(self, Self::Later(_)) { self.unheard(since).await } else { self }
    }

    /// How the API server's answer to a write is told.
    pub(crate) fn of(error: &Error) -> Self {
        match error {
            Error::Refused { message, .. } => Self::Invalid(message.clone()),
            error => Self::Later(with_causes(error)),
        }
    }
}

impl From<Problem> for Refusal {
    fn from(problem: Problem) -> Self {
        Self::Invalid(problem.to_string())
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let status = match &self {
            Self::Invalid(_) => StatusCode::BAD_REQUEST,
            Self::Forbidden(_) => StatusCode::FORBIDDEN,
            Self::Absent(_) => StatusCode::NOT_FOUND,
            Self::TooLong(_) => StatusCode::PAYLOAD_TOO_LARGE,
            Self::Media(_) => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Self::Later(_) => StatusCode::SERVICE_UNAVAILABLE,
        };
        (status, [(header::CONTENT_TYPE, "text/plain; charset=utf-8")], self.to_string()).into_response()
    }
}
