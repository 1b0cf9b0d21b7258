//! Figures of a frontend at a moment, from its `/metrics`: calls, how long keys waited in queues, and the work on them.

use anyhow::{Context as _, Result};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

const WITHIN: Duration = Duration::from_secs(20);
const CALLS: &str = "streams_frontend_kubernetes_calls_total";
const WAITS: &str = "streams_frontend_queue_wait_seconds_bucket";
const WORKED: &str = "streams_frontend_work_duration_seconds_sum";

/// Figures at a moment, or of the time between two.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Figures {
    /// Calls by verb and resource.
    pub(super) calls: BTreeMap<(String, String), u64>,
    /// By queue: upper bounds of waits in seconds, and how many keys waited no longer.
    waits: BTreeMap<String, Vec<(f64, u64)>>,
    /// By queue: seconds of work on its keys.
    worked: BTreeMap<String, f64>,
}

impl Figures {
    /// What the frontend says now.
    pub(super) async fn of(http: SocketAddr) -> Result<Self> {
        let client = reqwest::Client::builder().no_proxy().timeout(WITHIN).build()?;
        let text = client.get(format!("http://{http}/metrics")).send().await?.error_for_status()?.text().await?;
        Self::read(&text)
    }

    fn read(text: &str) -> Result<Self> {
        let mut figures = Self::default();
        for line in text.lines() {
            let Some((name, rest)) = line.split_once('{') else { continue };
            let (labels, value) = rest.rsplit_once("} ").with_context(|| format!("no figure: {line}"))?;
            let label = |key: &str| {
                let (_, rest) = labels.split_once(&format!("{key}=\""))?;
                rest.split_once('"').map(|(value, _)| value.to_owned())
            };
            let count = || value.parse::<f64>().map(|count| count as u64).with_context(|| format!("no number: {line}"));
            if name == CALLS
                && let (Some(verb), Some(resource)) = (label("verb"), label("resource"))
            {
                *figures.calls.entry((verb, resource)).or_default() += count()?;
            } else if name == WAITS
                && let (Some(queue), Some(bound)) = (label("queue"), label("le"))
            {
                let bound = if bound == "+Inf" { f64::INFINITY } else { bound.parse()? };
                figures.waits.entry(queue).or_default().push((bound, count()?));
            } else if name == WORKED
                && let Some(queue) = label("queue")
            {
                figures.worked.insert(queue, value.parse()?);
            }
        }
        Ok(figures)
    }

    /// What has been added since a moment.
    pub(super) fn since(&self, before: &Self) -> Self {
        let calls = self.calls.iter().map(|(call, count)| {
            (call.clone(), count.saturating_sub(before.calls.get(call).copied().unwrap_or_default()))
        });
        let waits = self.waits.iter().map(|(queue, buckets)| {
            let then = before.waits.get(queue);
            let count = |bound: f64| {
                let bucket = then.and_then(|then| then.iter().find(|(other, _)| *other == bound));
                bucket.map_or(0, |(_, count)| *count)
            };
            (queue.clone(), buckets.iter().map(|(bound, now)| (*bound, now.saturating_sub(count(*bound)))).collect())
        });
        let worked = self
            .worked
            .iter()
            .map(|(queue, seconds)| (queue.clone(), seconds - before.worked.get(queue).copied().unwrap_or_default()));
        Self {
            calls: calls.filter(|(_, count)| *count > 0).collect(),
            waits: waits.collect(),
            worked: worked.collect(),
        }
    }

    /// Calls that are no watch.
    pub(super) fn total(&self) -> u64 {
        self.calls.iter().filter(|((verb, _), _)| verb != "watch").map(|(_, count)| count).sum()
    }

    /// Seconds of work on the keys of a queue.
    pub(super) fn worked(&self, queue: &str) -> f64 {
        self.worked.get(queue).copied().unwrap_or_default()
    }

    /// By queue: how many keys waited, and the bounds that 50, 99 and all per cent of them did not exceed, in seconds.
    pub(super) fn waits(&self) -> Vec<(String, u64, [f64; 3])> {
        let of = |(queue, buckets): (&String, &Vec<(f64, u64)>)| {
            let all = buckets.last().map_or(0, |(_, count)| *count);
            let bound = |part: u64| {
                let needed = (all * part).div_ceil(100);
                buckets.iter().find(|(_, count)| *count >= needed).map_or(f64::INFINITY, |(bound, _)| *bound)
            };
            (all > 0).then(|| (queue.clone(), all, [50, 99, 100].map(bound)))
        };
        self.waits.iter().filter_map(of).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# HELP x\n\
        streams_frontend_kubernetes_calls_total{verb=\"patch\",resource=\"services\",code=\"200\"} 7\n\
        streams_frontend_kubernetes_calls_total{verb=\"patch\",resource=\"services\",code=\"409\"} 2\n\
        streams_frontend_kubernetes_calls_total{verb=\"watch\",resource=\"pods\",code=\"200\"} 3\n\
        streams_frontend_queue_wait_seconds_bucket{le=\"0.001\",queue=\"job\"} 5\n\
        streams_frontend_queue_wait_seconds_bucket{le=\"0.002\",queue=\"job\"} 9\n\
        streams_frontend_queue_wait_seconds_bucket{le=\"+Inf\",queue=\"job\"} 10\n\
        streams_frontend_work_duration_seconds_sum{queue=\"job\"} 1.5\n\
        streams_frontend_leader 1\n";

    #[test]
    fn calls_are_summed_over_their_answers_and_watches_are_none() {
        let figures = Figures::read(TEXT).unwrap();
        assert_eq!(figures.calls[&("patch".to_owned(), "services".to_owned())], 9);
        assert_eq!(figures.total(), 9);
        assert_eq!(figures.since(&figures).total(), 0);
    }

    #[test]
    fn waits_are_bounds_of_buckets() {
        let figures = Figures::read(TEXT).unwrap();
        assert_eq!(figures.waits(), [("job".to_owned(), 10, [0.001, f64::INFINITY, f64::INFINITY])]);
        let later = Figures::read(&TEXT.replace("} 10", "} 12").replace("} 9\n", "} 11\n")).unwrap();
        assert_eq!(later.since(&figures).waits(), [("job".to_owned(), 2, [0.002, 0.002, 0.002])]);
        assert!(figures.since(&figures).waits().is_empty());
        assert_eq!((figures.worked("job"), later.since(&figures).worked("job"), figures.worked("pe")), (1.5, 0.0, 0.0));
    }
}
