//! How long a caller waits, as it says itself (rule elasticity-11).
//!
//! A call that ends by the transport's own clock says nothing. So the service ends its waits a moment before: the
//! caller hears what is still missing. What was done with a call before it came to its service has taken some of the
//! caller's time.

use super::arrival::Arrival;
use http::{Extensions, HeaderMap};
use std::time::Duration;
use tonic::Request;

/// The header of gRPC: at most eight digits and a unit.
const HEADER: &str = "grpc-timeout";
/// The part of its time in which the answer travels back.
const SHARE_OF_THE_WAY: u32 = 20;
const SHORTEST_WAY: Duration = Duration::from_millis(20);
const LONGEST_WAY: Duration = Duration::from_millis(500);

/// How long the service may still wait for a caller; `None` if the caller does not say.
pub(crate) fn wait_of<T>(call: &Request<T>) -> Option<Duration> {
    rest(call.metadata().as_ref(), call.extensions())
}

/// The same of a call whose message was not read.
pub(crate) fn rest(headers: &HeaderMap, extensions: &Extensions) -> Option<Duration> {
    let all = time_of(headers)?;
    let way = (all / SHARE_OF_THE_WAY).clamp(SHORTEST_WAY, LONGEST_WAY);
    let passed = extensions.get::<Arrival>().map(|arrival| arrival.at.elapsed()).unwrap_or_default();
    Some(all.saturating_sub(way).saturating_sub(passed))
}

/// How long a caller waits, as its headers say it; `None` if they do not.
pub(crate) fn time_of(headers: &HeaderMap) -> Option<Duration> {
    parse(headers.get(HEADER)?.to_str().ok()?)
}

fn parse(text: &str) -> Option<Duration> {
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    if digits.len() > 8 || !digits.bytes().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    let number: u64 = digits.parse().ok()?;
    Some(match unit {
        "H" => Duration::from_secs(number * 3600),
        "M" => Duration::from_secs(number * 60),
        "S" => Duration::from_secs(number),
        "m" => Duration::from_millis(number),
        "u" => Duration::from_micros(number),
        "n" => Duration::from_nanos(number),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;
    use tokio::time::Instant;

    #[tokio::test(start_paused = true)]
    async fn the_service_stops_waiting_a_moment_before_the_caller() {
        let table = [
            ("1H", Some(3_599_500)),
            ("2M", Some(119_500)),
            ("10S", Some(9_500)),
            ("2000m", Some(1_900)),
            ("100000u", Some(80)),
            ("1n", Some(0)),
            ("99999999H", Some(359_999_996_400_000 - 500)),
            ("", None),
            ("S", None),
            ("5", None),
            ("-1S", None),
            ("123456789S", None),
            ("1\u{e9}", None),
        ];
        for (header, expected) in table {
            let mut call = Request::new(());
            if let Ok(value) = header.parse() {
                call.metadata_mut().insert(HEADER, value);
            }
            assert_eq!(wait_of(&call).map(|wait| wait.as_millis()), expected, "{header}");
            // What was done with it before has taken so long.
            let at = Instant::now();
            call.extensions_mut().insert(Arrival { at, from: Ipv4Addr::LOCALHOST.into(), connection: 1 });
            tokio::time::advance(Duration::from_millis(200)).await;
            let expected = expected.map(|expected: u128| expected.saturating_sub(200));
            assert_eq!(wait_of(&call).map(|wait| wait.as_millis()), expected, "{header}");
        }
        assert_eq!(wait_of(&Request::new(())), None);
    }
}
