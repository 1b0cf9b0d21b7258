//! What PEs have asked and told, and how they were answered.
//!
//! Knows: answers. Must not know: who asks, and when.

use crate::soak::figures::Durations;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// What is answered shortly before the end of a pod may be about a PE that is gone already.
const BEFORE_THE_END: Duration = Duration::from_secs(15);
/// Most words that are kept.
const KEPT: usize = 1_000;

/// What a PE asks or tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Question {
    Routes,
    JobName,
    Width,
    Connectivity,
    Messages,
    Drain,
    Report,
}

impl Question {
    pub(super) const ALL: [Self; 7] =
        [Self::Routes, Self::JobName, Self::Width, Self::Connectivity, Self::Messages, Self::Drain, Self::Report];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Routes => "routes",
            Self::JobName => "name of a job",
            Self::Width => "width",
            Self::Connectivity => "connectivity, a report",
            Self::Messages => "messages of a consistent region",
            Self::Drain => "a drain has begun",
            Self::Report => "checkpoint, a report",
        }
    }
}

/// How it was answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Answer {
    /// As it should be.
    Right,
    /// It is to be asked later.
    Later,
    /// Nobody answered within the second that the runtime waits.
    Missing,
    /// In another way, which these words say.
    Wrong(String),
}

/// Answers to one question.
#[derive(Debug, Clone, Default)]
pub(super) struct Answers {
    /// How long the right ones took.
    pub(super) right: Durations,
    pub(super) later: u64,
    pub(super) missing: u64,
}

/// All answers of some time.
#[derive(Debug, Clone, Default)]
pub(super) struct Asked {
    pub(super) answers: BTreeMap<Question, Answers>,
    /// From a change of the connectivity until the report of it was answered with 204, however often it was told.
    pub(super) known: Durations,
}

impl Asked {
    /// How many calls there were.
    pub(super) fn calls(&self) -> u64 {
        self.answers.values().map(|of| of.right.count() as u64 + of.later + of.missing).sum()
    }

    /// Right answers to a question.
    pub(super) fn right(&self, question: Question) -> u64 {
        self.answers.get(&question).map_or(0, |of| of.right.count() as u64)
    }
}

/// A wrong answer.
#[derive(Debug)]
struct Wrong {
    pod: String,
    at: Instant,
    words: String,
}

#[derive(Debug, Default)]
struct Counted {
    asked: Asked,
    wrong: Vec<Wrong>,
}

/// Counts answers.
#[derive(Debug, Default)]
pub(super) struct Tally(Mutex<Counted>);

impl Tally {
    /// An answer to the pod of this uid.
    pub(super) fn add(&self, pod: &str, question: Question, took: Duration, answer: Answer) {
        let mut counted = self.0.lock();
        let of = counted.asked.answers.entry(question).or_default();
        match answer {
            Answer::Right => of.right.add(took),
            Answer::Later => of.later += 1,
            Answer::Missing => of.missing += 1,
            Answer::Wrong(words) if counted.wrong.len() < KEPT => {
                let words = format!("{}: {words}", question.name());
                counted.wrong.push(Wrong { pod: pod.to_owned(), at: Instant::now(), words });
            }
            Answer::Wrong(_) => {}
        }
    }

    /// What a pod has told is known.
    pub(super) fn known(&self, after: Duration) {
        self.0.lock().asked.known.add(after);
    }

    /// A pod ends: what it was answered last counts for nothing.
    pub(super) fn forgive(&self, pod: &str) {
        let is_last = |wrong: &Wrong| wrong.pod == pod && wrong.at.elapsed() < BEFORE_THE_END;
        self.0.lock().wrong.retain(|wrong| !is_last(wrong));
    }

    /// All answers since this was asked last.
    pub(super) fn take(&self) -> Asked {
        std::mem::take(&mut self.0.lock().asked)
    }

    /// Wrong answers of the whole run, in words.
    pub(super) fn wrong(&self) -> Vec<String> {
        self.0.lock().wrong.iter().map(|wrong| wrong.words.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::{Answer, Question, Tally};
    use std::time::Duration;

    #[test]
    fn wrong_answers_are_forgiven_at_the_end_of_a_pod_only() {
        let tally = Tally::default();
        for (pod, answer) in
            [("a", Answer::Right), ("a", Answer::Missing), ("a", Answer::Wrong("404".to_owned())), ("b", Answer::Later)]
        {
            tally.add(pod, Question::Routes, Duration::from_millis(1), answer);
        }
        tally.forgive("b");
        assert_eq!(tally.wrong(), ["routes: 404"]);
        tally.forgive("a");
        assert!(tally.wrong().is_empty());
        let asked = tally.take();
        assert_eq!((asked.calls(), asked.right(Question::Routes), asked.right(Question::Width)), (3, 1, 0));
        assert_eq!(tally.take().calls(), 0);
    }
}
