//! Figures of a server, for a registry of Prometheus (rule repository-8).
//!
//! Knows: what is counted. Must not know: how figures are named as a whole, and asked for.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;

/// How something ended.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct EndLabels {
    /// A word.
    pub end: &'static str,
}

/// Every figure of a server. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Counters {
    /// Connections that are open.
    pub connections: Gauge,
    /// Connections that were refused because there were too many.
    pub refused_connections: Counter,
    /// Requests, by their end: `answered`, `refused` (an error was replied), `malformed`.
    pub requests: Family<EndLabels, Counter>,
    /// Bundles that are being sent.
    pub running_transfers: Gauge,
    /// Bundles that were sent, by their end: `done`, `broken`.
    pub transfers: Family<EndLabels, Counter>,
    /// Bytes of bundles that were sent.
    pub sent_bytes: Counter,
}

impl Default for Counters {
    /// At zero, with each end: so an alert sees the first one of each.
    fn default() -> Self {
        let counters = Self {
            connections: Gauge::default(),
            refused_connections: Counter::default(),
            requests: Family::default(),
            running_transfers: Gauge::default(),
            transfers: Family::default(),
            sent_bytes: Counter::default(),
        };
        for end in ["answered", "refused", "malformed"] {
            counters.requests.get_or_create(&EndLabels { end }).inc_by(0);
        }
        for end in ["done", "broken"] {
            counters.transfers.get_or_create(&EndLabels { end }).inc_by(0);
        }
        counters
    }
}

impl Counters {
    pub(crate) fn request(&self, end: &'static str) {
        self.requests.get_or_create(&EndLabels { end }).inc();
    }

    pub(crate) fn transfer(&self, end: &'static str) {
        self.transfers.get_or_create(&EndLabels { end }).inc();
    }
}

/// One more of something, as long as this is kept.
pub(crate) struct Counted(Gauge);

impl Counted {
    pub(crate) fn new(gauge: &Gauge) -> Self {
        gauge.inc();
        Self(gauge.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.dec();
    }
}
