//! Which PEs wait, and for what, in their own words (rule job-40). Pure.
//!
//! Knows: what PEs say of themselves. Must not know: why anybody asks.

use std::collections::BTreeMap;
use std::fmt;
use streams_api::condition;

/// Ids that are listed for a reason.
const LISTED: usize = 10;
/// Reasons that are listed.
const REASONS: usize = 5;
/// Longest words of a PE, in bytes.
const WORDS_MAX: usize = 512;

/// Why a PE goes on with its older text for now (rule job-49).
pub(crate) const LATER: &str = "RestartedLater";

/// Why a PE has no pod although nothing but a correction of the spec or of the cluster helps (rules job-41 and pe-4).
const REFUSED: [&str; 4] = ["QuotaExceeded", "PodRefused", "CheckpointVolumeMissing", "CheckpointRepositoryUnknown"];

/// Whether nothing but a correction of the spec or of the cluster helps a PE that gives this reason.
pub(crate) fn needs_correction(reason: &str) -> bool {
    REFUSED.contains(&reason)
}

/// So many PEs.
pub(crate) fn pes(count: u64) -> String {
    if count == 1 { "1 PE".to_owned() } else { format!("{count} PEs") }
}

/// What a PE says of itself: reason and message of its condition `Ready`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Words {
    /// One word in CamelCase; empty if it says nothing yet.
    pub(crate) reason: String,
    /// One sentence.
    pub(crate) message: String,
}

impl Words {
    /// These words.
    pub(crate) fn of(reason: &str, message: &str) -> Self {
        Self { reason: reason.to_owned(), message: message.to_owned() }
    }
}

/// PEs by what they wait for.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Waits {
    by_reason: BTreeMap<String, Group>,
}

/// PEs that wait for the same reason.
#[derive(Clone, Debug, PartialEq)]
struct Group {
    /// The first of them.
    ids: Vec<u64>,
    count: usize,
    /// The words of the first.
    message: String,
}

impl Waits {
    /// Adds a PE. PEs come by ascending id.
    pub(crate) fn add(&mut self, id: u64, words: &Words) {
        let group = self.by_reason.entry(words.reason.clone()).or_insert_with(|| Group {
            ids: Vec::new(),
            count: 0,
            message: condition::cut(&words.message, WORDS_MAX).to_owned(),
        });
        group.count += 1;
        if group.ids.len() < LISTED {
            group.ids.push(id);
        }
    }

    /// How many they are.
    pub(crate) fn count(&self) -> usize {
        self.by_reason.values().map(|group| group.count).sum()
    }

    /// Whether nothing waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.by_reason.is_empty()
    }

    /// The message, and after it the PEs, if there are any; `what` says what is the matter with them.
    pub(crate) fn after(&self, message: &str, what: &str) -> String {
        if self.is_empty() { message.to_owned() } else { format!("{message}; {what}: {self}") }
    }

    /// The reason that is given first; empty if nothing waits.
    pub(crate) fn first_reason(&self) -> &str {
        self.in_order().first().map_or("", |(reason, _)| reason.as_str())
    }

    /// Those come first that need a correction, then by id; those that wait for others come last.
    fn in_order(&self) -> Vec<(&String, &Group)> {
        let mut groups: Vec<_> = self.by_reason.iter().collect();
        groups.sort_by_key(|(reason, group)| (*reason == LATER, !needs_correction(reason), group.ids.first().copied()));
        groups
    }

    /// The reason of the PEs that only a correction of the spec or of the cluster helps, and all that is waited for.
    pub(crate) fn refused(&self) -> Option<Words> {
        let reason = self.by_reason.keys().find(|reason| needs_correction(reason))?;
        Some(Words::of(reason, &self.to_string()))
    }
}

impl fmt::Display for Waits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let groups = self.in_order();
        for (number, (reason, group)) in groups.iter().take(REASONS).enumerate() {
            let separator = if number == 0 { "" } else { "; " };
            write!(f, "{separator}{group}")?;
            match (reason.as_str(), group.message.as_str()) {
                ("", "") => f.write_str(" (not looked at yet)")?,
                (reason, "") => write!(f, " ({reason})")?,
                (reason, message) => write!(f, " ({reason}): {message}")?,
            }
        }
        let more: usize = groups.iter().skip(REASONS).map(|(_, group)| group.count).sum();
        if more > 0 { write!(f, "; and {more} others") } else { Ok(()) }
    }
}

impl fmt::Display for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ids: Vec<_> = self.ids.iter().map(u64::to_string).collect();
        f.write_str(if self.count == 1 { "PE " } else { "PEs " })?;
        f.write_str(&ids.join(", "))?;
        match self.count - self.ids.len() {
            0 => Ok(()),
            more => write!(f, " and {more} more"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waits(pes: &[(u64, &str, &str)]) -> Waits {
        let mut waits = Waits::default();
        pes.iter().for_each(|(id, reason, message)| waits.add(*id, &Words::of(reason, message)));
        waits
    }

    #[test]
    fn it_is_said_which_pes_wait_for_what_and_what_needs_a_correction_comes_first() {
        let many: Vec<_> = (0..13).map(|id| (id, "PodPending", "it is slow")).collect();
        // PEs with their words -> text, reason of those that need a correction
        let table = [
            (waits(&[]), "", None),
            (waits(&[(3, "", "")]), "PE 3 (not looked at yet)", None),
            (waits(&[(3, "CreatingPod", "")]), "PE 3 (CreatingPod)", None),
            (
                waits(&[(1, "PodPending", "no node"), (2, "PodRefused", "of 2"), (4, "PodRefused", "of 4")]),
                "PEs 2, 4 (PodRefused): of 2; PE 1 (PodPending): no node",
                Some("PodRefused"),
            ),
            (waits(&many), "PEs 0, 1, 2, 3, 4, 5, 6, 7, 8, 9 and 3 more (PodPending): it is slow", None),
            (
                waits(&[(0, "A", ""), (1, "B", ""), (2, "C", ""), (3, "D", ""), (4, "E", ""), (5, "F", "")]),
                "PE 0 (A); PE 1 (B); PE 2 (C); PE 3 (D); PE 4 (E); and 1 others",
                None,
            ),
        ];
        for (waits, text, reason) in table {
            assert_eq!(waits.to_string(), text);
            assert_eq!(waits.refused().map(|words| words.reason).as_deref(), reason, "{text}");
        }
    }
}
