//! Why handshakes fail, in the log: of each address once a minute at most, and of so many addresses. Whoever fails
//! again and again does not fill the log, and an operator who asks why a caller is not answered finds its address.
//!
//! Knows: addresses, time. Must not know: TLS.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// An address is not told of more often.
const PAUSE: Duration = Duration::from_secs(60);
/// Addresses that are told of in that time. A caller may have as many as it likes.
const ADDRESSES: usize = 64;
/// Characters of a reason: it may quote what a caller has shown.
const LONGEST: usize = 300;

/// Of whom was told lately.
#[derive(Debug, Default)]
pub(super) struct Failures(Mutex<HashMap<Option<IpAddr>, Instant>>);

impl Failures {
    /// A handshake with somebody at this address, if it is known, has failed.
    pub(super) fn tell(&self, address: Option<IpAddr>, why: &str) {
        const MESSAGE: &str = "a caller's TLS handshake failed";
        let error: String = why.chars().take(LONGEST).collect();
        let is_due = self.is_due(address, Instant::now());
        let address = address.map(tracing::field::display);
        if is_due {
            tracing::info!(address, error, "{MESSAGE}");
        } else {
            tracing::debug!(address, error, "{MESSAGE}");
        }
    }

    /// Whether it is to be told of this address now.
    fn is_due(&self, address: Option<IpAddr>, now: Instant) -> bool {
        let mut told = self.0.lock();
        let is_recent = |at: &Instant| now.saturating_duration_since(*at) < PAUSE;
        if told.get(&address).is_some_and(is_recent) {
            return false;
        }
        if told.len() >= ADDRESSES {
            told.retain(|_, at| is_recent(at));
        }
        let is_due = told.len() < ADDRESSES;
        if is_due {
            told.insert(address, now);
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    #[test]
    fn of_an_address_it_is_told_once_in_a_while_and_of_so_many_addresses() {
        let (failures, begun) = (Failures::default(), Instant::now());
        let address = |number: usize| Some(IpAddr::from(Ipv4Addr::from_bits(u32::try_from(number).unwrap())));
        let second = Duration::from_secs(1);
        // who, when, whether it is told
        let table = [
            (None, Duration::ZERO, true),
            (None, second, false),
            (address(1), second, true),
            (address(1), PAUSE, false),
            (None, PAUSE, true),
            (address(1), PAUSE + second, true),
        ];
        for (who, after, expected) in table {
            assert_eq!(failures.is_due(who, begun + after), expected, "{who:?} after {after:?}");
        }
        let failures = Failures::default();
        let is_told = |number: usize, after: Duration| failures.is_due(address(number), begun + after);
        for (after, expected) in [(Duration::ZERO, ADDRESSES), (second, 0), (PAUSE, ADDRESSES)] {
            let told = (0..=ADDRESSES).filter(|number| is_told(*number, after)).count();
            assert_eq!(told, expected, "after {after:?}");
        }
    }
}
