//! Metrics of PEs: launches and ends.

use super::decide::LaunchReason;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use streams_api::TerminationOutcome;
use streams_kubernetes::metrics::Metrics;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct LaunchLabels {
    reason: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct EndLabels {
    outcome: &'static str,
}

/// Counters. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Counters {
    launches: Family<LaunchLabels, Counter>,
    ends: Family<EndLabels, Counter>,
}

impl Counters {
    /// Counters at zero, registered with the metrics of the process.
    pub(crate) fn new(metrics: &Metrics) -> Self {
        let counters = Self { launches: Family::default(), ends: Family::default() };
        metrics.register("pe_launches", "Pods that were asked for, by why", counters.launches.clone());
        metrics.register("pe_pods_ended", "Pods of PEs that ended, by how", counters.ends.clone());
        // So that an alert sees the first one of each.
        for outcome in ENDS.iter().copied() {
            counters.ends.get_or_create(&EndLabels { outcome: name(outcome) }).inc_by(0);
        }
        counters
    }

    pub(super) fn launched(&self, reason: LaunchReason) {
        self.launches.get_or_create(&LaunchLabels { reason: reason.name() }).inc();
    }

    pub(super) fn ended(&self, outcome: TerminationOutcome) {
        self.ends.get_or_create(&EndLabels { outcome: name(outcome) }).inc();
    }
}

/// Says the word of each end, and lists them: an end that is not listed has no word.
macro_rules! ends {
    ($($outcome:ident = $word:literal),+ $(,)?) => {
        /// How pods end.
        const ENDS: &[TerminationOutcome] = &[$(TerminationOutcome::$outcome),+];

        fn name(outcome: TerminationOutcome) -> &'static str {
            match outcome {
                $(TerminationOutcome::$outcome => $word),+
            }
        }
    };
}

ends! {
    Failed = "failed",
    Completed = "completed",
    Deleted = "deleted",
    Lost = "lost",
    Suspended = "suspended",
    Stopped = "stopped",
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_of_each_kind_are_counted_from_zero_on() {
        let metrics = Metrics::new("test");
        let counters = Counters::new(&metrics);
        counters.ended(TerminationOutcome::Lost);
        let text = metrics.text().unwrap();
        for (outcome, count) in
            [("failed", 0), ("completed", 0), ("deleted", 0), ("lost", 1), ("suspended", 0), ("stopped", 0)]
        {
            let line = format!("\ntest_pe_pods_ended_total{{outcome=\"{outcome}\"}} {count}\n");
            assert!(text.contains(&line), "{line}{text}");
        }
        assert_eq!(text.matches("\ntest_pe_pods_ended_total{").count(), ENDS.len(), "{text}");
    }
}
