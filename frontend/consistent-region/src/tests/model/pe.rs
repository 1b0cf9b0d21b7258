//! PEs of the model: what the runtime does with messages and markers, as far as the protocol goes.
//!
//! Sources (start operators) send tuples to one sink. The state of a source is how many tuples it has sent, the state
//! of the sink is how many it has got of each source. Tuples have numbers, so that the sink sees when one is missing
//! or comes twice.

use crate::event::{Member, Progress};
use crate::message::Message;
use std::collections::BTreeMap;

/// Most sources of a model.
const SOURCES_MAX: usize = 2;

/// The state of the operators of a PE, which checkpoints hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Content {
    /// Tuples of each source: sent, or received.
    pub(super) tuples: [u8; SOURCES_MAX],
    /// Whether a tuple was missing, or came twice.
    pub(super) is_wrong: bool,
}

/// What goes from a source to the sink, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Item {
    Tuple(u8),
    Drain(u64),
    Reset { sequence: u64, attempt: u32 },
    Resume { retired: u64 },
}

/// What a PE sends to the frontend.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Call {
    Report(Member, Progress),
    Drain(Member, u64),
}

/// A PE.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Pe {
    pub(super) member: Member,
    pub(super) is_running: bool,
    /// It does not run because somebody has deleted its pod.
    pub(super) is_taken_away: bool,
    /// A source: to the sink.
    pub(super) is_connected: bool,
    /// How often it has lost that connection in this launch.
    pub(super) interruptions: u32,
    /// The same of its earlier launches.
    earlier_interruptions: Vec<u32>,
    /// It was launched again, and has not gone back to a checkpoint.
    pub(super) must_reset: bool,
    pub(super) is_paused: bool,
    /// It was told to go on, and waits to hear that its checkpoint is complete. Until then its operator does not drain.
    pub(super) is_waiting: bool,
    pub(super) content: Content,
    /// The checkpoints, which outlive the PE.
    pub(super) checkpoints: BTreeMap<u64, Content>,
    /// A checkpoint that is written while tuples are processed.
    pub(super) writing: Option<(u64, Content)>,
    /// The message that it has seen last: it does nothing when it sees it again.
    pub(super) seen: Option<Message>,
    /// Number of the checkpoint of the next drain.
    pub(super) sequence: u64,
    /// Number of the drain that it has resumed from.
    resumed: u64,
    retired: u64,
    /// A reset was the last thing that it did: what it then is told to delete it keeps.
    has_reset: bool,
    /// The attempt of the reset that it takes part in, or has taken part in since it drained last.
    attempt: Option<u32>,
    /// Markers of this drain, or reset.
    drains: u8,
    resets: u8,
}

/// What a PE does besides changing itself.
#[derive(Default)]
pub(super) struct Effects {
    pub(super) items: Vec<Item>,
    pub(super) calls: Vec<Call>,
    /// What must never happen.
    pub(super) violation: Option<&'static str>,
}

impl Pe {
    pub(super) fn new(pe: u64) -> Self {
        Self {
            member: Member { pe, launch: 1 },
            is_running: true,
            is_taken_away: false,
            is_connected: true,
            interruptions: 0,
            earlier_interruptions: Vec::new(),
            must_reset: false,
            is_paused: false,
            is_waiting: false,
            content: Content::default(),
            checkpoints: BTreeMap::new(),
            writing: None,
            seen: None,
            sequence: 1,
            resumed: 0,
            retired: 0,
            has_reset: false,
            attempt: None,
            drains: 0,
            resets: 0,
        }
    }

    pub(super) fn launch_again(&mut self) {
        let member = Member { launch: self.member.launch + 1, ..self.member };
        let checkpoints = std::mem::take(&mut self.checkpoints);
        let mut earlier_interruptions = std::mem::take(&mut self.earlier_interruptions);
        earlier_interruptions.push(self.interruptions);
        let new = Self::new(member.pe);
        *self = Self { member, checkpoints, earlier_interruptions, must_reset: true, is_paused: true, ..new };
    }

    /// What is told last of the connection in this launch: whether it is there, and how often it was lost.
    pub(super) fn connections(&self, launch: u32) -> (bool, u32) {
        let earlier = usize::try_from(launch).ok().and_then(|launch| self.earlier_interruptions.get(launch - 1));
        earlier.map_or((self.is_connected, self.interruptions), |interruptions| (true, *interruptions))
    }

    pub(super) fn crash(&mut self) {
        self.is_running = false;
        self.writing = None;
    }

    fn checkpoint(&mut self, sequence: u64, is_asynchronous: bool, effects: &mut Effects) {
        self.is_paused = true;
        self.has_reset = false;
        self.attempt = None;
        self.drains = 0;
        let progress = if is_asynchronous {
            self.writing = Some((sequence, self.content));
            Progress::BlockingCheckpointDone { sequence }
        } else {
            self.checkpoints.insert(sequence, self.content);
            Progress::CheckpointDone { sequence }
        };
        effects.calls.push(Call::Report(self.member, progress));
    }

    /// What was written while tuples were processed is complete.
    pub(super) fn finish_writing(&mut self, effects: &mut Effects) {
        if let Some((sequence, content)) = self.writing.take() {
            self.checkpoints.insert(sequence, content);
            effects.calls.push(Call::Report(self.member, Progress::CheckpointDone { sequence }));
        }
    }

    fn go_back(&mut self, sequence: u64, attempt: u32, effects: &mut Effects) {
        self.is_paused = true;
        self.must_reset = false;
        self.has_reset = true;
        self.writing = None;
        (self.drains, self.resets) = (0, 0);
        self.content = match self.checkpoints.get(&sequence) {
            Some(content) => *content,
            None if sequence == 0 => Content::default(),
            None => {
                effects.violation = Some("a PE goes back to a checkpoint that it does not have");
                Content::default()
            }
        };
        effects.calls.push(Call::Report(self.member, Progress::ResetDone { sequence, attempt }));
    }

    fn delete(&mut self, sequence: u64) {
        if sequence > 0 && !self.has_reset {
            self.checkpoints.remove(&sequence);
        }
    }

    /// A source sees a message.
    pub(super) fn see(&mut self, message: Message, is_asynchronous: bool) -> Effects {
        let mut effects = Effects::default();
        self.seen = Some(message);
        match message {
            Message::TriggerDrain { .. } if self.must_reset => {}
            Message::TriggerDrain { sequence } => {
                self.sequence = sequence;
                self.checkpoint(sequence, is_asynchronous, &mut effects);
                effects.items.push(Item::Drain(sequence));
            }
            Message::TriggerReset { attempt, .. } if self.attempt.is_some_and(|known| known >= attempt) => {}
            Message::TriggerReset { sequence, attempt } => {
                self.attempt = Some(attempt);
                self.go_back(sequence, attempt, &mut effects);
                effects.items.push(Item::Reset { sequence, attempt });
            }
            Message::ResumeSubmission { sequence, retired, is_pending } => {
                self.resumed = self.sequence;
                self.sequence = sequence;
                self.retired = retired;
                self.is_paused = false;
                self.is_waiting = is_pending;
                effects.items.push(Item::Resume { retired });
                if !is_pending {
                    self.delete(retired);
                }
            }
            Message::Drained { sequence } => {
                if sequence != self.resumed || self.is_paused {
                    effects.violation = Some("a PE is told of the end of a checkpoint that it has not resumed from");
                }
                self.is_waiting = false;
                self.delete(self.retired);
            }
            Message::ResetFailed { .. } => {}
        }
        effects
    }

    /// A source drains because its operator wants it.
    pub(super) fn drain(&mut self, is_asynchronous: bool) -> Effects {
        let mut effects = Effects::default();
        let sequence = self.sequence;
        effects.calls.push(Call::Drain(self.member, sequence));
        effects.items.push(Item::Drain(sequence));
        self.checkpoint(sequence, is_asynchronous, &mut effects);
        effects
    }

    /// The sink takes what a source has sent.
    pub(super) fn receive(&mut self, source: usize, item: Item, sources: u8, is_asynchronous: bool) -> Effects {
        let mut effects = Effects::default();
        match item {
            Item::Tuple(number) => {
                self.content.is_wrong |= number != self.content.tuples[source] + 1;
                self.content.tuples[source] = number;
            }
            Item::Drain(sequence) => {
                self.drains += 1;
                if self.drains == sources && !self.must_reset {
                    self.checkpoint(sequence, is_asynchronous, &mut effects);
                }
            }
            Item::Reset { sequence, attempt } if self.attempt.is_none_or(|known| known <= attempt) => {
                if self.attempt != Some(attempt) {
                    self.attempt = Some(attempt);
                    self.resets = 0;
                }
                self.resets += 1;
                if self.resets == sources {
                    self.go_back(sequence, attempt, &mut effects);
                }
            }
            Item::Reset { .. } => {}
            Item::Resume { retired } => {
                if self.is_paused {
                    self.is_paused = false;
                    self.delete(retired);
                }
            }
        }
        effects
    }
}
