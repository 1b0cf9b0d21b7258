//! What PEs are told, and the bytes that tell it (rules consistent-region-6 and consistent-region-7).
//!
//! Names, order and separators are those that the runtime of PEs reads.

use serde::ser::SerializeStruct;
use serde::{Serialize, Serializer};
use std::collections::BTreeMap;
use std::fmt;

/// Bytes that a PE reads of a datagram. What is longer would be cut, and then be no document, which ends the PE.
const DATAGRAM_MAX: usize = 128;

/// What the PEs of a region are told. `Display` writes the text that PEs read by position.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Message {
    /// Come to rest and take a checkpoint.
    TriggerDrain {
        /// Number of the checkpoint.
        sequence: u64,
    },
    /// Go back to a checkpoint.
    TriggerReset {
        /// Number of the checkpoint; 0 is the initial state.
        sequence: u64,
        /// The attempt.
        attempt: u32,
    },
    /// Process tuples.
    ResumeSubmission {
        /// Number of the next checkpoint.
        sequence: u64,
        /// The checkpoint to delete, if it is not 0.
        retired: u64,
        /// Whether the last checkpoint is still being written.
        is_pending: bool,
    },
    /// The checkpoint is complete that was still written when tuples were processed again.
    Drained {
        /// Number of the checkpoint.
        sequence: u64,
    },
    /// No attempt to reset is left.
    ResetFailed {
        /// The checkpoint that a reset would go back to.
        sequence: u64,
    },
}

impl Message {
    /// The type of the message.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::TriggerDrain { .. } => "triggerDrain",
            Self::TriggerReset { .. } => "triggerReset",
            Self::ResumeSubmission { .. } => "resumeSubmission",
            Self::Drained { .. } => "drained",
            Self::ResetFailed { .. } => "resetFailed",
        }
    }
}

impl fmt::Display for Message {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TriggerDrain { sequence } | Self::Drained { sequence } | Self::ResetFailed { sequence } => {
                write!(formatter, "seqId={sequence}")
            }
            Self::TriggerReset { sequence, attempt } => write!(formatter, "seqId={sequence};resetAttempt={attempt}"),
            Self::ResumeSubmission { sequence, retired, is_pending } => {
                write!(formatter, "seqId={sequence};retId={retired};pendCkpt={}", u8::from(*is_pending))
            }
        }
    }
}

impl Serialize for Message {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut document = serializer.serialize_struct("Message", 2)?;
        document.serialize_field("type", self.kind())?;
        document.serialize_field("message", &self.to_string())?;
        document.end()
    }
}

/// What a PE is told by all of its regions, by their indexes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Document {
    messages: BTreeMap<u64, Message>,
}

impl Document {
    /// Of these regions, with the message of each for the PE (`State::message_for`).
    pub fn of(messages: impl IntoIterator<Item = (u64, Option<Message>)>) -> Self {
        let messages = messages.into_iter().filter_map(|(region, message)| Some((region, message?)));
        Self { messages: messages.collect() }
    }

    /// Whether no region has something to say. A PE that asks then is told that there is no document.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    /// The message of one region.
    #[must_use]
    pub fn message(&self, region: u64) -> Option<Message> {
        self.messages.get(&region).copied()
    }

    /// The document, as a PE gets it when it asks.
    #[must_use]
    pub fn json(&self) -> String {
        // Texts under numbers can always be written.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// The datagram that tells the PE at once: the whole document. There is none if there is nothing to say, or if the
    /// document is too long; then the PE sees it when it asks next.
    #[must_use]
    pub fn datagram(&self) -> Option<String> {
        if self.is_empty() {
            return None;
        }
        Some(self.json()).filter(|json| json.len() <= DATAGRAM_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DRAIN: Message = Message::TriggerDrain { sequence: 3 };
    const RESET: Message = Message::TriggerReset { sequence: 2, attempt: 0 };
    const RESUME: Message = Message::ResumeSubmission { sequence: 4, retired: 2, is_pending: false };
    const PENDING: Message = Message::ResumeSubmission { sequence: 4, retired: 2, is_pending: true };

    #[test]
    fn messages_have_the_form_that_pes_read() {
        let table = [
            (DRAIN, r#"{"type":"triggerDrain","message":"seqId=3"}"#),
            (RESET, r#"{"type":"triggerReset","message":"seqId=2;resetAttempt=0"}"#),
            (RESUME, r#"{"type":"resumeSubmission","message":"seqId=4;retId=2;pendCkpt=0"}"#),
            (PENDING, r#"{"type":"resumeSubmission","message":"seqId=4;retId=2;pendCkpt=1"}"#),
            (Message::Drained { sequence: 3 }, r#"{"type":"drained","message":"seqId=3"}"#),
            (Message::ResetFailed { sequence: 3 }, r#"{"type":"resetFailed","message":"seqId=3"}"#),
        ];
        for (message, expected) in table {
            assert_eq!(serde_json::to_string(&message).unwrap(), expected);
        }
    }

    #[test]
    fn a_datagram_is_the_whole_document_or_none() {
        let both =
            r#"{"0":{"type":"triggerDrain","message":"seqId=3"},"10":{"type":"triggerDrain","message":"seqId=3"}}"#;
        // regions with their messages -> document, whether it fits into a datagram
        let table: [(&[(u64, Option<Message>)], &str, bool); 5] = [
            (&[], "{}", false),
            (&[(0, None)], "{}", false),
            (&[(7, Some(DRAIN)), (8, None)], r#"{"7":{"type":"triggerDrain","message":"seqId=3"}}"#, true),
            (&[(10, Some(DRAIN)), (0, Some(DRAIN))], both, true),
            (
                &[(0, Some(RESUME)), (1, Some(RESET))],
                r#"{"0":{"type":"resumeSubmission","message":"seqId=4;retId=2;pendCkpt=0"},"1":{"type":"triggerReset","message":"seqId=2;resetAttempt=0"}}"#,
                false,
            ),
        ];
        for (regions, json, fits) in table {
            let document = Document::of(regions.iter().copied());
            assert_eq!(document.json(), json);
            assert_eq!(document.is_empty(), json == "{}");
            assert_eq!(document.datagram(), fits.then(|| json.to_owned()), "{json}");
        }
    }

    #[test]
    fn the_document_of_one_region_always_fits() {
        // PEs read sequence ids as signed numbers of 64 bits.
        let most = u64::try_from(i64::MAX).unwrap();
        let longest = Message::ResumeSubmission { sequence: most, retired: most, is_pending: true };
        let datagram = Document::of([(9_999_999_999, Some(longest))]).datagram().unwrap();
        assert!((110..=DATAGRAM_MAX).contains(&datagram.len()), "{datagram}");
    }
}
