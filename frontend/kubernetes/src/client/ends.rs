//! How a try of a call ends: whether another one may come to something (rule call-2), and what it says of the API
//! server (rule call-23).

use super::Final;
use crate::gate::End;
use http::{Response, StatusCode};
use std::time::Duration;
use tower::BoxError;

/// A try took longer than it may.
#[derive(Debug, thiserror::Error)]
#[error("the API server did not answer within {0:?}")]
pub(super) struct TimedOut(pub(super) Duration);

/// How a try has ended. What the API server asks in turn, such as an admission webhook, shows as an internal error or
/// as time that runs out.
pub(super) fn end<B>(result: &Result<Response<B>, BoxError>) -> End {
    match result {
        Ok(response) => match response.status() {
            _ if response.extensions().get::<Final>().is_some() => End::Answered,
            StatusCode::INTERNAL_SERVER_ERROR | StatusCode::GATEWAY_TIMEOUT => End::FailedByItself,
            status if status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS => End::FailedLikeAll,
            _ => End::Answered,
        },
        Err(error) if error.is::<TimedOut>() => End::FailedByItself,
        Err(_) => End::FailedLikeAll,
    }
}

/// The try came to nothing, and another one may come to something.
pub(super) fn is_in_vain<B>(result: &Result<Response<B>, BoxError>) -> bool {
    match result {
        Ok(response) => may_pass(response.status()) && response.extensions().get::<Final>().is_none(),
        Err(_) => true,
    }
}

/// There are too many such calls (429): of all, or of those that a namespace may make.
pub(super) fn is_too_many<B>(result: &Result<Response<B>, BoxError>) -> bool {
    result.as_ref().is_ok_and(|response| response.status() == StatusCode::TOO_MANY_REQUESTS)
}

/// What is wrong may pass.
fn may_pass(status: StatusCode) -> bool {
    matches!(
        status,
        StatusCode::TOO_MANY_REQUESTS
            | StatusCode::INTERNAL_SERVER_ERROR
            | StatusCode::BAD_GATEWAY
            | StatusCode::SERVICE_UNAVAILABLE
            | StatusCode::GATEWAY_TIMEOUT
    )
}
