//! Reads from a header how long a caller waits (rule service-6).
//!
//! Knows: `grpc-timeout` (gRPC over HTTP/2, "Timeout"). Must not know: what happens at a deadline.

use http::HeaderMap;
use std::time::{Duration, Instant};

/// tonic itself ends a call at the caller's time-out, as cancelled. The server ends it this much earlier, so that the
/// caller can read why.
const ANSWER: Duration = Duration::from_millis(5);

/// When a call that arrived `now` has to be answered: after the caller's time-out, but not after `most`. The error
/// names the value.
pub(crate) fn deadline(headers: &HeaderMap, now: Instant, most: Duration) -> Result<Instant, String> {
    let timeout = match headers.get("grpc-timeout") {
        None => most,
        Some(value) => {
            let text = value.to_str().unwrap_or_default();
            parse(text).ok_or_else(|| "malformed time-out".to_owned())?.saturating_sub(ANSWER).min(most)
        }
    };
    Ok(now + timeout)
}

/// At most eight digits and a unit.
fn parse(text: &str) -> Option<Duration> {
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    if digits.is_empty() || digits.len() > 8 || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let count: u64 = digits.parse().ok()?;
    Some(match unit {
        "H" => Duration::from_secs(count * 3600),
        "M" => Duration::from_secs(count * 60),
        "S" => Duration::from_secs(count),
        "m" => Duration::from_millis(count),
        "u" => Duration::from_micros(count),
        "n" => Duration::from_nanos(count),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_outs() {
        let cases = [
            ("1H", Some(Duration::from_secs(3600))),
            ("2M", Some(Duration::from_secs(120))),
            ("99999999S", Some(Duration::from_secs(99_999_999))),
            ("10m", Some(Duration::from_millis(10))),
            ("7u", Some(Duration::from_micros(7))),
            ("0n", Some(Duration::ZERO)),
            ("", None),
            ("S", None),
            ("10", None),
            ("-1S", None),
            ("+1S", None),
            ("1.5S", None),
            ("100000000S", None),
            ("1ä", None),
        ];
        for (text, expected) in cases {
            assert_eq!(parse(text), expected, "{text}");
        }
    }

    #[test]
    fn the_server_has_a_maximum_of_its_own() {
        let now = Instant::now();
        let most = Duration::from_secs(60);
        let of = |value: Option<&'static str>| {
            let headers =
                value.map(|v| (http::HeaderName::from_static("grpc-timeout"), http::HeaderValue::from_static(v)));
            deadline(&headers.into_iter().collect(), now, most).map(|deadline| deadline - now)
        };
        assert_eq!(of(None), Ok(most));
        assert_eq!(of(Some("1H")), Ok(most));
        assert_eq!(of(Some("1S")), Ok(Duration::from_millis(995)));
        assert_eq!(of(Some("1m")), Ok(Duration::ZERO));
        assert!(of(Some("soon")).is_err());
    }
}
