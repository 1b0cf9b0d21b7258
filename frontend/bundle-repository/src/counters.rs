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

/// The ends that a figure tells apart, each with its word. Nothing can be counted that is not in the list.
macro_rules! ends {
    ($(#[$about:meta])* $name:ident { $($end:ident = $word:literal),+ $(,)? }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug)]
        pub(crate) enum $name {
            $($end),+
        }

        impl $name {
            const ALL: &'static [Self] = &[$(Self::$end),+];

            fn labels(self) -> EndLabels {
                match self {
                    $(Self::$end => EndLabels { end: $word }),+
                }
            }
        }
    };
}

ends! {
    /// How a request ends.
    RequestEnd { Answered = "answered", Refused = "refused", Malformed = "malformed" }
}

ends! {
    /// How it ends that a bundle is sent.
    TransferEnd { Done = "done", Broken = "broken" }
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
        for end in RequestEnd::ALL {
            counters.requests.get_or_create(&end.labels()).inc_by(0);
        }
        for end in TransferEnd::ALL {
            counters.transfers.get_or_create(&end.labels()).inc_by(0);
        }
        counters
    }
}

impl Counters {
    pub(crate) fn request(&self, end: RequestEnd) {
        self.requests.get_or_create(&end.labels()).inc();
    }

    pub(crate) fn transfer(&self, end: TransferEnd) {
        self.transfers.get_or_create(&end.labels()).inc();
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
