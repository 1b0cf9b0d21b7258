//! Rounds of a job that follow each other without an end, and of which nothing comes.
//!
//! A job that many callers resize takes a step with each round, and has another one due: generation after generation is
//! proposed and committed. So the number of rounds says nothing. It does where as many as several reconciles have at
//! most follow each other, and the job has committed nothing by them, and numbered no request: two actions undo each
//! other.
//!
//! Knows: what stays the same meanwhile. Must not know: what a round does. Pure.

use crate::controllers::reconciler::ROUNDS_MAX;

/// So many reconciles in a row without an end, of which nothing comes, are a defect.
const RECONCILES: usize = 5;

/// Rounds in a row.
#[derive(Debug, Default)]
pub(crate) struct Rounds {
    /// What the job had come to at the last one.
    come_to: Option<ComeTo>,
    in_vain: usize,
}

/// The committed generation, and the greatest number of a request.
pub(crate) type ComeTo = (Option<u64>, u64);

impl Rounds {
    /// A round is over, before which the job had come to this, and asks for the next one at once.
    pub(crate) fn go_on(&mut self, come_to: ComeTo) {
        if self.come_to.replace(come_to) != Some(come_to) {
            self.in_vain = 0;
        }
        self.in_vain += 1;
    }

    /// Nothing is left to do now; or somebody waits for the next round, and what was left to that says nothing.
    pub(crate) fn end(&mut self) {
        *self = Self::default();
    }

    /// Nothing comes of them.
    pub(crate) fn are_in_vain(&self) -> bool {
        self.in_vain >= RECONCILES * ROUNDS_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_are_in_vain_when_many_follow_each_other_and_the_job_comes_to_nothing_else() {
        let same = |_: usize| -> Option<ComeTo> { Some((Some(4), 7)) };
        // what the job has come to at each round, or that the round is the last one -> whether they are in vain
        let table: [(&str, usize, fn(usize) -> Option<ComeTo>, bool); 6] = [
            ("one reconcile", 16, same, false),
            ("four of them", 64, same, false),
            ("five of them", 80, same, true),
            ("each commits", 800, |round| Some((Some(round as u64 / 5), 7)), false),
            ("each numbers requests", 800, |round| Some((Some(4), round as u64 / 40)), false),
            ("each tenth one is the last one", 800, |round| (round % 10 != 0).then_some((Some(4), 7)), false),
        ];
        for (what, count, come_to, expected) in table {
            let mut rounds = Rounds::default();
            for round in 0..count {
                match come_to(round) {
                    Some(come_to) => rounds.go_on(come_to),
                    None => rounds.end(),
                }
            }
            assert_eq!(rounds.are_in_vain(), expected, "{what}");
        }
    }
}
