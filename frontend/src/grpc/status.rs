//! Statuses with `google.rpc` details. Their texts are cut, so that all of a status fits into trailers.

use std::collections::HashMap;
use std::time::Duration;
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt as _};

/// Longest text of a status, in bytes. It is in the trailers up to three times, once as percent-encoded text, and many
/// clients take no more than 8 KiB of them.
const LONGEST: usize = 1024;

/// When a caller may come back to a server that has no room, or to another one.
pub(crate) const LATER: Duration = Duration::from_secs(1);

/// The reason of an error of the service with this domain. Metadata without a value is left out.
pub(crate) fn details(domain: &str, reason: &str, metadata: &[(&str, &str)]) -> ErrorDetails {
    let known = metadata.iter().filter(|(_, value)| !value.is_empty());
    let metadata: HashMap<_, _> = known.map(|(k, v)| ((*k).to_owned(), bounded(v))).collect();
    ErrorDetails::with_error_info(reason, domain, metadata)
}

/// The beginning of a text that is too long for trailers.
pub(crate) fn bounded(text: &str) -> String {
    if text.len() <= LONGEST {
        return text.to_owned();
    }
    format!("{} ...", &text[..text.floor_char_boundary(LONGEST)])
}

/// A status whose texts fit into trailers.
pub(crate) fn status(code: Code, message: &str, details: ErrorDetails) -> Status {
    Status::with_error_details(code, bounded(message), details)
}

/// Bytes that a status takes of the trailers of an answer.
#[cfg(test)]
pub(crate) fn size_in_trailers(status: &Status) -> usize {
    use base64::Engine as _;
    let encoded = |text: &str| text.bytes().map(|b| if b.is_ascii_alphanumeric() { 1 } else { 3 }).sum::<usize>();
    let details = base64::engine::general_purpose::STANDARD_NO_PAD.encode(status.details()).len();
    encoded(status.message()) + details
}
