//! What a leader that ends in order says to the next one, by an annotation of the Lease (rule call-32).
//!
//! ```text
//!  it releases the Lease ──► it stays for [`LINGER`] ──► it says what is left undone
//!                └── the next leader waits for its words, for a bounded time ──┘
//! ```
//!
//! Each leader of a Lease has a number, which only grows: `leaseTransitions`. Words count for the leader with the next
//! number, and for nobody else.
//!
//! Knows: the Lease and its annotations. Must not know: what is said, until when a leader leads.

use crate::error::{absent, is_conflict};
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use kube::api::PostParams;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// How long a leader stays after it has released the Lease: callers may come to it until they are led to the next one.
pub const LINGER: Duration = Duration::from_secs(20);
/// How long the next one waits for its words.
const AWAITED_FOR: Duration = Duration::from_secs(30);
/// How often words are written while others write the Lease as well.
const TRIES: usize = 5;

/// Has a [`Note`].
const ANNOTATION: &str = "streams.ibm.com/last-words";

/// What a leader knows of the words of the one before.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum LastWords {
    /// There are none, and there will be none: it has not ended in order.
    #[default]
    None,
    /// It has released the Lease, and has not spoken yet. Nobody waits any longer than that.
    Awaited {
        /// When nobody waits any more.
        until: Instant,
    },
    /// It has spoken.
    Said {
        /// What it has said.
        words: Arc<str>,
        /// It has not spoken earlier.
        not_before: Instant,
    },
}

/// A Lease that this replica has released, while the next leader waits for what it says (rule call-32).
#[derive(Debug)]
pub struct Released {
    pub(super) api: Api<Lease>,
    pub(super) name: String,
    pub(super) term: i32,
    pub(super) at: Instant,
}

impl Released {
    /// When that was asked for; nobody has led before.
    pub fn at(&self) -> Instant {
        self.at
    }

    /// Says to the next leader what `words` returns, or that there are none after all. It is asked after each look at
    /// the Lease: what was found later than that is not missing in what replaces this version. If nobody can hear it
    /// any more, nothing is said.
    ///
    /// # Errors
    /// The Lease cannot be read, or written.
    pub async fn say(self, words: impl Fn() -> Option<String>) -> kube::Result<()> {
        let mut tries_left = TRIES;
        loop {
            let Some(mut lease) = absent(self.api.get(&self.name).await)? else { return Ok(()) };
            let leads = term(&lease);
            if !(self.term..=self.term.saturating_add(1)).contains(&leads) {
                tracing::info!(leads, ended = self.term, "the leader changed again; nobody hears the last words");
                return Ok(());
            }
            match words() {
                Some(words) => write(&mut lease, self.term, Some(&words)),
                None => remove(&mut lease),
            }
            tries_left -= 1;
            match self.api.replace(&self.name, &PostParams::default(), &lease).await {
                // The next leader has renewed it meanwhile, which it does every few seconds.
                Err(error) if is_conflict(&error) && tries_left > 0 => {}
                said => return said.map(drop),
            }
        }
    }
}

/// What the annotation says.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Note {
    /// The number of whoever has written it.
    term: i32,
    /// Its words, if it has spoken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    words: Option<String>,
}

/// The number of the leader that this Lease is, or was, held by.
pub(super) fn term(lease: &Lease) -> i32 {
    lease.spec.as_ref().and_then(|spec| spec.lease_transitions).unwrap_or_default()
}

/// The leader of this number says this by the Lease; or that it will speak, if it says nothing.
pub(super) fn write(lease: &mut Lease, term: i32, words: Option<&str>) {
    let note = Note { term, words: words.map(str::to_owned) };
    // Numbers and texts can always be written.
    let Ok(note) = serde_json::to_string(&note) else { return };
    lease.metadata.annotations.get_or_insert_default().insert(ANNOTATION.to_owned(), note);
}

/// What is known at the moment at which this Lease was taken. What was said before is of no use: nobody knows what has
/// happened since.
pub(super) fn found(lease: &Lease, now: Instant) -> LastWords {
    match of_predecessor(lease) {
        Some(Note { words: None, .. }) => LastWords::Awaited { until: now + AWAITED_FOR },
        _ => LastWords::None,
    }
}

/// What the leader before has said by this Lease, whoever holds it now.
pub(super) fn said(lease: &Lease) -> Option<Arc<str>> {
    of_predecessor(lease)?.words.map(Arc::from)
}

/// Whether the leader before has spoken, or still says that it will.
pub(super) fn are_promised(lease: &Lease) -> bool {
    of_predecessor(lease).is_some()
}

/// Nobody has to read it again.
pub(super) fn remove(lease: &mut Lease) {
    if let Some(annotations) = &mut lease.metadata.annotations {
        annotations.remove(ANNOTATION);
    }
}

fn of_predecessor(lease: &Lease) -> Option<Note> {
    let text = lease.metadata.annotations.as_ref()?.get(ANNOTATION)?;
    let note: Note = serde_json::from_str(text).ok()?;
    (note.term.checked_add(1) == Some(term(lease))).then_some(note)
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::coordination::v1::LeaseSpec;

    fn lease(transitions: i32) -> Lease {
        let spec = LeaseSpec { lease_transitions: Some(transitions), ..LeaseSpec::default() };
        Lease { spec: Some(spec), ..Lease::default() }
    }

    #[test]
    fn words_count_for_the_next_leader_and_for_nobody_else() {
        let now = Instant::now();
        let awaited = LastWords::Awaited { until: now + AWAITED_FOR };
        // number of who has written, its words, number of who reads -> what it finds, what it hears later
        let table = [
            (4, None, 5, awaited, None),
            (4, None, 6, LastWords::None, None),
            (4, None, 4, LastWords::None, None),
            (4, Some("a"), 5, LastWords::None, Some("a")),
            (4, Some("a"), 6, LastWords::None, None),
            (i32::MAX, Some("a"), i32::MAX, LastWords::None, None),
        ];
        for (writer, words, reader, finds, hears) in table {
            let mut lease = lease(reader);
            write(&mut lease, writer, words);
            assert_eq!((found(&lease, now), said(&lease).as_deref()), (finds, hears), "{writer} {words:?} {reader}");
        }
        assert_eq!(found(&lease(1), now), LastWords::None);
    }

    #[test]
    fn what_somebody_has_spoilt_says_nothing() {
        for spoilt in ["", "4", "{}", r#"{"term":"4"}"#, r#"{"term":4,"words":3}"#] {
            let mut lease = lease(5);
            lease.metadata.annotations = Some([(ANNOTATION.to_owned(), spoilt.to_owned())].into());
            assert_eq!((found(&lease, Instant::now()), said(&lease)), (LastWords::None, None), "{spoilt}");
        }
    }
}
