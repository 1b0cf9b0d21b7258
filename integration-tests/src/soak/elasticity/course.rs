//! Where the time of a request goes until its generation is committed: what the services do for it, as their traces
//! tell it.
//!
//! ```text
//! some requests, each a trace of its own -> spans, from the begin of the request -> medians of all requests
//! ```
//!
//! Knows: spans of the two services. Must not know: which there should be.

use super::background::submissions;
use super::latency::{ask, settle, settled_job};
use super::{ElasticityOptions, Lane};
use crate::soak::figures::Durations;
use crate::system::System;
use crate::traces::Collector;
use anyhow::{Context as _, Result};
use opentelemetry_proto::tonic::trace::v1::Span;
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::AtomicUsize;
use std::time::Duration;
use streams_control_plane::ControlPlane;
use streams_control_plane::progress::Progress;
use streams_control_plane::wait::eventually;
use streams_proto::elasticity::v1::resize_request::WaitFor;

/// Requests that are looked at, at most.
const REQUESTS: usize = 40;
/// What happens more often than that in one request is one step, from the first begin to the last end.
const OFTEN: usize = 10;
/// The span of a whole request.
const REQUEST: &str = "resize";
/// How soon the spans of a request are there after its answer.
const SENT_WITHIN: Duration = Duration::from_secs(20);

/// What the services do for a request, in the order in which it begins.
#[derive(Debug)]
pub(super) struct Course {
    pub(super) lane: Lane,
    pub(super) requests: usize,
    pub(super) steps: Vec<Step>,
}

/// What happens in at least half of the requests. Times are from the begin of the request.
#[derive(Debug, Default)]
pub(super) struct Step {
    pub(super) name: String,
    /// In so many requests.
    pub(super) requests: usize,
    /// So often in all of them together.
    pub(super) times: usize,
    pub(super) begins: Durations,
    pub(super) ends: Durations,
}

/// Looks at requests to a job, one after the other.
pub(super) async fn measure(
    control_plane: &ControlPlane,
    system: &System,
    collector: &Collector,
    options: &ElasticityOptions,
    lane: Lane,
) -> Result<Course> {
    let job = settled_job(control_plane, lane.shape, options, "course").await?;
    let mut balancer = system.frontend()?.balancer().await?;
    let count = lane.times.min(REQUESTS);
    let progress = Progress::begin(format!("{count} requests that are traced"));
    let mut traces = Vec::new();
    let submitted = AtomicUsize::new(0);
    let requests = async {
        for number in 1..=count {
            let width = lane.shape.clean + u32::from(!number.is_multiple_of(2));
            let trace = format!("{number:032x}");
            let parent = format!("00-{trace}-{number:016x}-01");
            ask(&mut balancer, &job, width, WaitFor::Committed, options.within, Some(&parent)).await?;
            ask(&mut balancer, &job, width, WaitFor::RolledOut, options.within, None).await?;
            settle(&job, width, lane, options.within).await?;
            traces.push(trace);
            progress.at(format!("{number} done"));
        }
        anyhow::Ok(())
    };
    tokio::select! {
        done = requests => done?,
        error = submissions(control_plane, system.bundles(), lane.background, &submitted) => {
            return Err(error.context("the submissions beside it"));
        }
    }
    progress.done();
    let mut requests = Vec::new();
    for trace in &traces {
        eventually("the spans of the request are there", SENT_WITHIN, || async {
            request_of(&collector.spans_of(trace)).map(drop)
        })
        .await?;
        requests.push(by_name(collector.spans_of(trace))?);
    }
    let mut steps = steps(&requests);
    steps.retain(|step| step.requests * 2 >= count);
    steps.sort_by_key(|step| (step.begins.percentiles([50]), Reverse(step.ends.percentiles([50]))));
    Ok(Course { lane, requests: count, steps })
}

fn request_of(spans: &[Span]) -> Result<&Span> {
    // The compiler has a stage of this name, which is within another span.
    let outermost = |span: &&Span| span.name == REQUEST && span.kind() == SpanKind::Server;
    spans.iter().find(outermost).context("no span of the whole request")
}

/// Begin and end of everything that began before the request was answered, from the begin of the request.
type ByName = BTreeMap<String, Vec<(Duration, Duration)>>;

fn by_name(mut spans: Vec<Span>) -> Result<ByName> {
    spans.sort_by_key(|span| (span.start_time_unix_nano, Reverse(span.end_time_unix_nano)));
    let request = request_of(&spans)?;
    let (begin, end) = (request.start_time_unix_nano, request.end_time_unix_nano);
    let since = |nanoseconds: u64| Duration::from_nanos(nanoseconds.saturating_sub(begin));
    let mut by_name = ByName::new();
    for span in spans.iter().filter(|span| (begin..=end).contains(&span.start_time_unix_nano)) {
        let name = match span.kind() {
            SpanKind::Server => format!("{} (server)", span.name),
            _ => span.name.clone(),
        };
        let times = (since(span.start_time_unix_nano), since(span.end_time_unix_nano));
        by_name.entry(name).or_default().push(times);
    }
    Ok(by_name)
}

/// The steps of all requests. What one of them has often is one step, the rest is a step for each time.
fn steps(requests: &[ByName]) -> Vec<Step> {
    let mut steps = Vec::new();
    let names: BTreeSet<&String> = requests.iter().flat_map(BTreeMap::keys).collect();
    for name in names {
        let of_name: Vec<&[(Duration, Duration)]> =
            requests.iter().filter_map(|request| request.get(name).map(Vec::as_slice)).collect();
        let most = of_name.iter().map(|times| times.len()).max().unwrap_or(0);
        let step = |of: &dyn Fn(&[(Duration, Duration)]) -> Option<(Duration, Duration, usize)>| {
            let mut step = Step { name: name.clone(), ..Step::default() };
            for (begin, end, times) in of_name.iter().filter_map(|times| of(times)) {
                step.requests += 1;
                step.times += times;
                step.begins.add(begin);
                step.ends.add(end);
            }
            step
        };
        if most > OFTEN {
            steps.push(step(&|times| {
                let (first, _) = times.first()?;
                let last = times.iter().map(|(_, end)| *end).max()?;
                Some((*first, last, times.len()))
            }));
        } else {
            steps
                .extend((0..most).map(|number| step(&|times| times.get(number).map(|(begin, end)| (*begin, *end, 1)))));
        }
    }
    steps
}
