//! Counts of what the copies of operators have. A count knows whose share is the largest: when it is above a limit,
//! whoever chose the widths wants to know where.

use crate::error::{Problem, Stage, excerpt};
use crate::logical::{Application, OperatorId};

/// A count over operators.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Count {
    total: u64,
    /// The largest share, and whose it is. Of several, the first one's.
    largest: Option<(u64, OperatorId)>,
}

impl Count {
    /// Adds the share of an operator, all of it: `each` so many `times`.
    pub(super) fn add(&mut self, id: OperatorId, each: u64, times: u64) {
        let share = each.saturating_mul(times);
        self.total = self.total.saturating_add(share);
        if share > 0 && self.largest.is_none_or(|(largest, _)| share > largest) {
            self.largest = Some((share, id));
        }
    }

    pub(super) fn total(&self) -> u64 {
        self.total
    }

    /// Refuses more than `most` of `what` (rule expansion-33).
    pub(super) fn check(&self, application: &Application, what: &str, most: u64) -> Result<(), Problem> {
        if self.total <= most {
            return Ok(());
        }
        let count = self.total;
        let largest = self.largest.map(|(share, id)| (share, &application.operators[id]));
        let whose = largest.map_or_else(String::new, |(share, operator)| {
            format!(", {share} of them of {}", excerpt(&operator.logical_name))
        });
        let message =
            format!("the application has {count} {what} at these widths{whose}; at most {most} are supported");
        let problem = Problem::new(Stage::Topology, message);
        Err(match largest {
            Some((_, operator)) => problem.at(operator.place),
            None => problem,
        })
    }
}
