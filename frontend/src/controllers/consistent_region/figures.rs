//! The metrics of consistent regions (rule consistent-region-12).

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use std::sync::Arc;
use streams_consistent_region::Figures;
use streams_kubernetes::Key;
use streams_kubernetes::metrics::Metrics;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Labels {
    namespace: String,
    consistent_region: String,
}

impl Labels {
    fn of(key: &Key) -> Self {
        Self { namespace: key.namespace.to_string(), consistent_region: key.name.to_string() }
    }
}

/// How a figure is read.
type Read = fn(&Figures) -> i64;

/// Name, help, and where the figure is. Times of single events are gauges of milliseconds, as those who read the
/// metrics of the runtime expect.
const FIGURES: [(&str, &str, Read); 8] = [
    ("average_drain_time_milliseconds", "Average time of the last 10 checkpoints of a consistent region", |figures| {
        count(figures.average_drain_time_milliseconds)
    }),
    ("average_reset_time_milliseconds", "Average time of the last 10 resets of a consistent region", |figures| {
        count(figures.average_reset_time_milliseconds)
    }),
    (
        "last_consistent_state_time_milliseconds",
        "When the last checkpoint of a consistent region was completed, since 1970",
        |figures| count(figures.last_consistent_state_time_milliseconds),
    ),
    (
        "last_reset_time_milliseconds",
        "When the last reset of a consistent region was completed, since 1970",
        |figures| count(figures.last_reset_time_milliseconds),
    ),
    ("last_completed_drain_seq_id", "Last completed checkpoint of a consistent region; -1: none", |figures| {
        figures.last_completed_drain_seq_id
    }),
    ("last_completed_reset_seq_id", "Checkpoint that a consistent region last went back to; -1: none", |figures| {
        figures.last_completed_reset_seq_id
    }),
    (
        "state",
        "0 started, 1 processing, 2 unhealthy, 3 draining, 4 resetting, 5 too many resets, 6 checkpoint pending",
        |figures| figures.state.into(),
    ),
    ("n_current_reset_attempts", "Resets of a consistent region begun since its last checkpoint", |figures| {
        figures.n_current_reset_attempts.into()
    }),
];

fn count(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Figures of the regions that this replica drives. Cheap to clone; all clones are the same.
#[derive(Clone)]
pub(crate) struct RegionFigures {
    families: Arc<[Family<Labels, Gauge>]>,
}

impl RegionFigures {
    /// Figures among these metrics.
    pub(crate) fn among(metrics: &Metrics) -> Self {
        let registered = FIGURES.iter().map(|(name, help, _)| {
            let family = Family::default();
            metrics.register(&format!("consistent_region_{name}"), help, Family::clone(&family));
            family
        });
        Self { families: registered.collect() }
    }

    /// Shows the figures of a region.
    pub(super) fn show(&self, region: &Key, figures: &Figures) {
        let labels = Labels::of(region);
        for (family, (_, _, read)) in self.families.iter().zip(FIGURES) {
            family.get_or_create(&labels).set(read(figures));
        }
    }

    /// The region is gone.
    pub(super) fn remove(&self, region: &Key) {
        let labels = Labels::of(region);
        for family in &*self.families {
            family.remove(&labels);
        }
    }
}
