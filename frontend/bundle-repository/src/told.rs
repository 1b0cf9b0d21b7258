//! What of clients people are told in the log (rule repository-5).
//!
//! A client is left, or breaks a transfer off, as often as it likes, and a line takes time of a thread. So there are
//! few lines in a minute, and fewer for the clients of one tenant, so that those of others are told, too.
//!
//! Knows: tenants, times. Must not know: what is told.
//!
//! Invariant: what is kept is bounded by the lines of a minute.

use crate::repository::Tenant;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::time::Duration;
use tokio::time::Instant;

/// Lines of a minute, in all and for one tenant.
const MOST: u32 = 60;
const MOST_OF_ONE: u32 = 10;
const MINUTE: Duration = Duration::from_secs(60);
/// Bytes of a text that a client has said, or that has it.
const TEXT: usize = 256;

/// The lines of this minute.
#[derive(Default)]
pub(crate) struct Told(Mutex<Option<Minute>>);

struct Minute {
    begun: Instant,
    all: u32,
    of: HashMap<Tenant, u32>,
}

impl Told {
    /// There is something to be told of a client of this tenant. Whether it is, as not much else was.
    pub(crate) fn has_room(&self, tenant: &Tenant, now: Instant) -> bool {
        let mut minute = self.0.lock();
        let minute = match &mut *minute {
            Some(minute) if now.duration_since(minute.begun) < MINUTE => minute,
            over => over.insert(Minute { begun: now, all: 0, of: HashMap::new() }),
        };
        let of_one = minute.of.get(tenant).copied().unwrap_or_default();
        if minute.all >= MOST || of_one >= MOST_OF_ONE {
            return false;
        }
        minute.all += 1;
        minute.of.insert(tenant.clone(), of_one + 1);
        true
    }
}

/// As much of a text as is told.
pub(crate) fn beginning(text: &str) -> &str {
    text.get(..text.floor_char_boundary(TEXT)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenant_whose_clients_are_left_all_the_time_leaves_lines_to_others() {
        let (told, begun) = (Told::default(), Instant::now());
        for minute in 0..2 {
            let now = begun + MINUTE * minute;
            let lines = |tenant: Tenant| (0..1_000).filter(|_| told.has_room(&tenant, now)).count();
            let counts = [lines(None), lines(Some("a".into())), lines(None), lines(Some("b".into()))];
            assert_eq!(counts, [10, 10, 0, 10], "{minute}");
            let others = (0..1_000).map(|number| lines(Some(format!("n{number}").into()))).sum::<usize>();
            let kept = told.0.lock().as_ref().map(|minute| minute.of.len());
            assert_eq!((others, kept), (30, Some(6)), "{minute}");
        }
    }

    #[test]
    fn a_text_is_cut_between_characters() {
        assert_eq!(beginning("demo.sab"), "demo.sab");
        assert_eq!(beginning(&format!("a{}", "\u{e9}".repeat(16 << 10))).len(), TEXT - 1);
    }
}
