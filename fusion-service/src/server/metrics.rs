//! The metrics of the server, for Prometheus.
//!
//! Knows: names, labels and buckets, kinds of calls. Must not know: where the figures come from.

use super::class::CallClass;
use prometheus_client::encoding::text;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::{Family, MetricConstructor};
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Registry, Unit};
use std::time::Duration;

/// Labels are known at compile time, so no caller can make a new series.
type Labels<const N: usize> = [(&'static str, &'static str); N];

/// The metrics of one server.
#[derive(Debug)]
pub(crate) struct Metrics {
    registry: Registry,
    calls: Family<Labels<2>, Counter>,
    call_seconds: Family<Labels<1>, Histogram, Buckets>,
    calls_in_flight: Family<Labels<1>, Gauge>,
    stage_seconds: Family<Labels<1>, Histogram, Buckets>,
    waiting: Family<Labels<1>, Gauge>,
    busy: Family<Labels<1>, Gauge>,
    refused: Family<Labels<1>, Counter>,
    lent: Counter,
    rides: Family<Labels<1>, Counter>,
    defects: Counter,
    lookups: Family<Labels<2>, Counter>,
    cached_bytes: Family<Labels<1>, Gauge>,
    rendered_bytes: Counter,
    memory_limit: Gauge,
    memory_taken: Family<Labels<1>, Gauge>,
    memory_waiting: Family<Labels<1>, Gauge>,
    memory_refused: Family<Labels<1>, Counter>,
}

/// From a cached plan to a submission of the largest job.
#[derive(Clone, Debug)]
struct Buckets;

impl MetricConstructor<Histogram> for Buckets {
    fn new_metric(&self) -> Histogram {
        Histogram::new([
            0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 180.0,
        ])
    }
}

impl Metrics {
    pub(crate) fn new() -> Self {
        let mut metrics = Self {
            registry: Registry::with_prefix("fusion"),
            calls: Family::default(),
            call_seconds: Family::new_with_constructor(Buckets),
            calls_in_flight: Family::default(),
            stage_seconds: Family::new_with_constructor(Buckets),
            waiting: Family::default(),
            busy: Family::default(),
            refused: Family::default(),
            lent: Counter::default(),
            rides: Family::default(),
            defects: Counter::default(),
            lookups: Family::default(),
            cached_bytes: Family::default(),
            rendered_bytes: Counter::default(),
            memory_limit: Gauge::default(),
            memory_taken: Family::default(),
            memory_waiting: Family::default(),
            memory_refused: Family::default(),
        };
        let build = Info::new([("version", env!("CARGO_PKG_VERSION"))]);
        let r = &mut metrics.registry;
        r.register("build", "The program", build);
        r.register("calls", "Answered calls by method and status", metrics.calls.clone());
        let help = "Time from the head of a request to the end of its answer";
        r.register_with_unit("call_duration", help, Unit::Seconds, metrics.call_seconds.clone());
        r.register("calls_in_flight", "Calls not answered yet", metrics.calls_in_flight.clone());
        let help = "Time of calls by what it went to: taking requests in, waiting, each kind of work";
        r.register_with_unit("stage_duration", help, Unit::Seconds, metrics.stage_seconds.clone());
        r.register("queue_depth", "Requests waiting for a worker", metrics.waiting.clone());
        r.register("workers_busy", "Workers by what they work on", metrics.busy.clone());
        r.register("refused_calls", "Calls refused because their queue was full", metrics.refused.clone());
        r.register("lent_cores", "Cores of idle workers that helped a resize", metrics.lent.clone());
        let help = "Waits for a result that another call computed already, by what it was";
        r.register("rides", help, metrics.rides.clone());
        r.register("defects", "Defects of the compiler that a request met", metrics.defects.clone());
        r.register("cache_lookups", "Look-ups by cache and result", metrics.lookups.clone());
        r.register_with_unit("cache", "Estimated size of the caches", Unit::Bytes, metrics.cached_bytes.clone());
        let help = "Bytes of AADL documents rendered";
        r.register_with_unit("rendered", help, Unit::Bytes, metrics.rendered_bytes.clone());
        let help = "Memory that calls may take together";
        r.register_with_unit("call_memory_limit", help, Unit::Bytes, metrics.memory_limit.clone());
        let help = "Memory that calls have taken";
        r.register_with_unit("call_memory", help, Unit::Bytes, metrics.memory_taken.clone());
        r.register("call_memory_queue_depth", "Calls waiting for memory", metrics.memory_waiting.clone());
        let help = "Calls refused because there was no memory for them";
        r.register("call_memory_refused_calls", help, metrics.memory_refused.clone());
        // So that an alert sees the first one of each class.
        for class in CallClass::ALL {
            metrics.refused.get_or_create(&[("class", class.name())]).inc_by(0);
            metrics.memory_refused.get_or_create(&[("class", class.name())]).inc_by(0);
        }
        metrics
    }

    /// The text that Prometheus reads.
    pub(crate) fn encode(&self) -> Result<String, std::fmt::Error> {
        let mut text = String::new();
        text::encode(&mut text, &self.registry)?;
        Ok(text)
    }

    pub(crate) fn call_began(&self, method: &'static str) {
        self.calls_in_flight.get_or_create(&[("method", method)]).inc();
    }

    pub(crate) fn call_ended(&self, method: &'static str, code: &'static str, took: Duration) {
        self.calls_in_flight.get_or_create(&[("method", method)]).dec();
        self.calls.get_or_create(&[("method", method), ("code", code)]).inc();
        self.call_seconds.get_or_create(&[("method", method)]).observe(took.as_secs_f64());
    }

    /// How long one stage of a request took.
    pub(crate) fn stage(&self, stage: &'static str, took: Duration) {
        self.stage_seconds.get_or_create(&[("stage", stage)]).observe(took.as_secs_f64());
    }

    pub(crate) fn waiting(&self, class: &'static str, count: usize) {
        self.waiting.get_or_create(&[("class", class)]).set(signed(count as u64));
    }

    pub(crate) fn busy(&self, class: &'static str, count: usize) {
        self.busy.get_or_create(&[("class", class)]).set(signed(count as u64));
    }

    pub(crate) fn refused(&self, class: &'static str) {
        self.refused.get_or_create(&[("class", class)]).inc();
    }

    pub(crate) fn count_lent(&self, cores: usize) {
        self.lent.inc_by(cores as u64);
    }

    /// From now on calls may wait for others of this kind.
    pub(crate) fn has_rides(&self, kind: &'static str) {
        self.rides.get_or_create(&[("of", kind)]).inc_by(0);
    }

    /// A call waits for what another one computes.
    pub(crate) fn rode(&self, kind: &'static str) {
        self.rides.get_or_create(&[("of", kind)]).inc();
    }

    /// How often that was so. Tests use it to see that a call waits.
    #[cfg(test)]
    pub(crate) fn rides(&self, kind: &'static str) -> u64 {
        self.rides.get_or_create(&[("of", kind)]).get()
    }

    pub(crate) fn memory_limit(&self, bytes: u64) {
        self.memory_limit.set(signed(bytes));
    }

    pub(crate) fn memory_taken(&self, class: &'static str, bytes: u64) {
        self.memory_taken.get_or_create(&[("class", class)]).set(signed(bytes));
    }

    pub(crate) fn memory_waiting(&self, class: &'static str, count: usize) {
        self.memory_waiting.get_or_create(&[("class", class)]).set(signed(count as u64));
    }

    pub(crate) fn memory_refused(&self, class: &'static str) {
        self.memory_refused.get_or_create(&[("class", class)]).inc();
    }

    pub(crate) fn count_defect(&self) {
        self.defects.inc();
    }

    pub(crate) fn count_lookup(&self, cache: &'static str, hit: bool) {
        let result = if hit { "hit" } else { "miss" };
        self.lookups.get_or_create(&[("cache", cache), ("result", result)]).inc();
    }

    pub(crate) fn cached_bytes(&self, cache: &'static str, bytes: u64) {
        self.cached_bytes.get_or_create(&[("cache", cache)]).set(signed(bytes));
    }

    pub(crate) fn rendered(&self, bytes: u64) {
        self.rendered_bytes.inc_by(bytes);
    }
}

fn signed(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_readable_by_prometheus() {
        let metrics = Metrics::new();
        metrics.call_began("Submit");
        metrics.call_ended("Submit", "OK", Duration::from_millis(3));
        metrics.stage("queue", Duration::from_millis(1));
        metrics.count_lookup("plan", true);
        let text = metrics.encode().unwrap();
        for line in [
            r#"fusion_calls_total{method="Submit",code="OK"} 1"#,
            r#"fusion_calls_in_flight{method="Submit"} 0"#,
            r#"fusion_call_duration_seconds_bucket{le="0.005",method="Submit"} 1"#,
            r#"fusion_stage_duration_seconds_count{stage="queue"} 1"#,
            r#"fusion_cache_lookups_total{cache="plan",result="hit"} 1"#,
        ] {
            assert!(text.lines().any(|l| l == line), "no '{line}' in\n{text}");
        }
    }

    #[test]
    fn refusals_of_each_class_are_counted_from_zero_on() {
        let metrics = Metrics::new();
        metrics.refused("resize");
        let text = metrics.encode().unwrap();
        for class in ["resize", "render", "submit", "dry_run"] {
            let refused = u64::from(class == "resize");
            for line in [
                format!("fusion_refused_calls_total{{class=\"{class}\"}} {refused}"),
                format!("fusion_call_memory_refused_calls_total{{class=\"{class}\"}} 0"),
            ] {
                assert!(text.lines().any(|l| l == line), "no '{line}' in\n{text}");
            }
        }
    }
}
