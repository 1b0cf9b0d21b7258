//! Logs and traces of the process, and trace contexts that are carried by objects.
//!
//! Events of `tracing` go to standard error, as lines for people or as JSON. Spans also go to an OpenTelemetry
//! collector, if one of the standard variables `OTEL_EXPORTER_OTLP_ENDPOINT` and `OTEL_EXPORTER_OTLP_TRACES_ENDPOINT`
//! names it ([`collector`]). Without a collector no span has an id; the trace context that came with a request is kept
//! beside its span then, and goes on as it came (rule name-11).
//!
//! Spans of the level INFO are steps. Those of the level DEBUG are details, of which there may be many: they are made
//! with a collector only, and only so many of one trace are sent ([`detail`]). A span may be made when what it shows is
//! over ([`past`]).
//!
//! Lines of libraries that do not know what is secret are in no log that does not ask for them by name ([`lines`]), and
//! in no trace.
//!
//! Knows: tracing, OpenTelemetry. Must not know: what is traced.
//!
//! Invariants: nothing here can fail the work that is traced; without a collector nothing is sent anywhere. A collector
//! that is slow or gone holds nothing up: a bounded number of spans waits for it (`OTEL_BSP_MAX_QUEUE_SIZE`), and
//! others are dropped.

mod collector;
mod detail;
mod lines;
mod past;
#[cfg(any(test, feature = "testing"))]
pub mod testing;

use self::collector::Collector;
use self::detail::{Exported, is_exported};
use self::past::Past;
use anyhow::Context as _;
use clap::{Args, ValueEnum};
use http::HeaderMap;
use opentelemetry::propagation::{Extractor, TextMapPropagator};
use opentelemetry::trace::{SpanContext, TraceContextExt, TracerProvider};
use opentelemetry::{Context, KeyValue};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::{SdkTracer, SdkTracerProvider};
use std::collections::HashMap;
use std::env;
use std::io::{self, IsTerminal};
use std::time::Duration;
use tracing::level_filters::LevelFilter;
use tracing::{Span, Subscriber, dispatcher};
use tracing_opentelemetry::OpenTelemetrySpanExt;
use tracing_subscriber::filter::{FilterExt, FilterFn};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer, Registry};

/// How long the end of the process waits for the collector.
const LAST_SPANS: Duration = Duration::from_secs(5);
/// The field of a W3C trace context, in HTTP and in gRPC.
pub const TRACE_PARENT: &str = "traceparent";
/// The field beside it with what systems before this one keep of the trace; handed on as it came.
pub const TRACE_STATE: &str = "tracestate";
/// Longest such field that is handed on, in bytes. The W3C asks for that much at least.
const STATE_MAX: usize = 512;
/// Entries of it that are longer go first, if it is too long.
const STATE_ENTRY_MAX: usize = 128;

/// What telemetry has to know of a program.
#[derive(Clone, Copy, Debug)]
pub struct Program {
    /// Its name in traces, unless the environment says another one.
    pub name: &'static str,
    /// Its version in traces.
    pub version: &'static str,
    /// What it logs unless it is asked for something else: a level, or `target=level` pairs.
    pub log: &'static str,
    /// Libraries that write answers of others into their lines, with what is secret of them: whatever is asked for,
    /// they are not logged unless they are named, and nothing of them is in a trace. A name is the beginning of a
    /// target.
    pub talkative: &'static [&'static str],
    /// Crates whose spans are exported down to the level of debugging; of other crates, what is worth a line in a log.
    pub detailed: &'static [&'static str],
}

/// Options of logs.
#[derive(Clone, Debug, Args)]
pub struct Options {
    /// What is logged: a level, or `target=level` pairs, comma separated
    #[arg(long, env = "RUST_LOG", value_name = "FILTER")]
    pub log: Option<String>,

    /// Form of a line of the log
    #[arg(long, env = "LOG_FORMAT", value_enum, default_value_t = Format::Text)]
    pub log_format: Format,
}

/// Form of a line of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For people
    Text,
    /// A JSON object
    Json,
}

/// Logs and traces that are being written.
#[derive(Debug)]
#[must_use = "the last spans are sent when this is stopped"]
pub struct Telemetry {
    collector: Option<SdkTracerProvider>,
}

impl Telemetry {
    /// Starts writing logs, and sending traces in the name of `program` if the environment names a collector. Needs a
    /// tokio runtime.
    ///
    /// # Errors
    /// The filter cannot be read, or the address of the collector; the process has a subscriber already.
    pub fn start(options: &Options, program: Program) -> anyhow::Result<Self> {
        let filter = options.log.as_deref().unwrap_or(program.log);
        let harmless = FilterFn::new(lines::are_harmless_or_named(program.talkative, filter));
        // By itself it leaves out no level.
        let harmless = harmless.with_max_level_hint(LevelFilter::TRACE);
        let filter = EnvFilter::try_new(filter).with_context(|| format!("--log {filter}"))?;
        let lines = tracing_subscriber::fmt::layer().with_writer(io::stderr);
        let lines = match options.log_format {
            Format::Text => lines.with_ansi(io::stderr().is_terminal()).boxed(),
            Format::Json => lines.json().flatten_event(true).with_span_list(true).boxed(),
        };
        let collector = Collector::of_environment();
        let collector = collector.map(|collector| provider(&collector, program)).transpose()?;
        let spans = collector.as_ref().map(|collector| {
            let exported = Exported::new(program.detailed, program.talkative);
            sent(collector.tracer(program.name), exported)
        });
        let kept = collector.is_none().then(kept_contexts);
        tracing_subscriber::registry()
            .with(spans)
            .with(kept)
            .with(lines.with_filter(filter.and(harmless)))
            .try_init()
            .context("logs cannot be written")?;
        Ok(Self { collector })
    }

    /// Sends the last spans, or gives up after a few seconds.
    pub async fn stop(self) {
        let Some(collector) = self.collector else { return };
        // It blocks, and the tasks that send need this thread.
        let sent = tokio::task::spawn_blocking(move || collector.shutdown_with_timeout(LAST_SPANS)).await;
        if let Ok(Err(error)) = sent {
            tracing::warn!(error = %error, "the last spans were not sent");
        }
    }
}

/// Makes spans that are sent to the collector in the name of the program.
fn provider(collector: &Collector, program: Program) -> anyhow::Result<SdkTracerProvider> {
    let exporter = collector.exporter()?;
    let resource = Resource::builder();
    // The standard variable goes before the name of the program.
    let resource =
        if env::var_os("OTEL_SERVICE_NAME").is_some() { resource } else { resource.with_service_name(program.name) };
    let resource = resource.with_attribute(KeyValue::new("service.version", program.version)).build();
    Ok(SdkTracerProvider::builder().with_resource(resource).with_batch_exporter(Past(exporter)).build())
}

/// Sends what is chosen of spans by this tracer.
fn sent<S>(tracer: SdkTracer, exported: Exported) -> impl Layer<S>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    tracing_opentelemetry::layer().with_tracer(tracer).with_filter(exported)
}

/// The context that a request came with, beside the span of the request. Used without a collector only.
#[derive(Clone)]
struct CameWith(TraceContext);

/// A W3C trace context.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TraceContext {
    /// Trace and span: `traceparent`.
    pub parent: String,
    /// What other systems keep of the trace: `tracestate`.
    pub state: Option<String>,
}

/// Does nothing by itself: has the spans exist that contexts are kept beside, also where logs leave them out.
struct KeptContexts;

impl<S: Subscriber> Layer<S> for KeptContexts {}

fn kept_contexts<S>() -> impl Layer<S>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    let filter = FilterFn::new(|metadata| metadata.is_span() && is_exported(metadata, &[]));
    KeptContexts.with_filter(filter.with_max_level_hint(LevelFilter::INFO))
}

/// The trace context of the current span in the form of W3C (`traceparent`), to be kept in an annotation or sent.
/// Without a collector, that of the request that the span or one around it continues; nothing if there is none (rule
/// name-11).
pub fn trace_parent() -> Option<String> {
    trace_context().map(|context| context.parent)
}

/// [`trace_parent`] with what belongs to it.
pub fn trace_context() -> Option<TraceContext> {
    let span = Span::current();
    text(&span.context()).or_else(|| {
        let kept = span.with_subscriber(|(id, subscriber)| {
            let span = subscriber.downcast_ref::<Registry>()?.span(id)?;
            span.scope().find_map(|span| span.extensions().get::<CameWith>().map(|CameWith(kept)| kept.clone()))
        });
        kept.flatten()
    })
}

fn text(context: &Context) -> Option<TraceContext> {
    let mut fields = HashMap::new();
    TraceContextPropagator::new().inject_context(context, &mut fields);
    let state = fields.remove(TRACE_STATE).filter(|state| !state.is_empty());
    fields.remove(TRACE_PARENT).map(|parent| TraceContext { parent, state })
}

/// Makes the span a part of the trace that an object carries.
pub fn continue_trace(span: &Span, trace_parent: &str) {
    continue_from(span, remote(&carried(trace_parent)));
}

/// The same, for an object that carries all of the context.
pub fn continue_context(span: &Span, context: &TraceContext) {
    let mut fields = carried(&context.parent);
    fields.extend(context.state.as_deref().and_then(bounded).map(|state| (TRACE_STATE.to_owned(), state)));
    continue_from(span, remote(&fields));
}

/// Makes a span of what is over, in the trace that an object carries, whatever this thread is at work for. `make` is
/// not called without a collector, nor if the object carries no trace.
pub fn add_to_trace(trace_parent: &str, make: impl FnOnce() -> Span) {
    if !is_sent() {
        return;
    }
    let context = remote(&carried(trace_parent));
    if context.span().span_context().is_valid() {
        let _at_work_for_it = context.attach();
        drop(make());
    }
}

/// How many details of the trace that an object carries were left out, because there were too many (rule name-11).
pub fn details_left_out(trace_parent: &str) -> u64 {
    let trace = span_context(&remote(&carried(trace_parent))).trace_id();
    dispatcher::get_default(|subscriber| subscriber.downcast_ref().map(|sent: &Exported| sent.left_out(trace)))
        .unwrap_or_default()
}

/// Whether there is a collector.
fn is_sent() -> bool {
    dispatcher::get_default(|subscriber| subscriber.is::<Exported>())
}

/// Has the span point to the trace that an object carries. It is not a part of it: that trace is over (rule name-11).
pub fn link_trace(span: &Span, trace_parent: &str) {
    span.add_link(span_context(&remote(&carried(trace_parent))));
}

/// Makes the span a part of the trace that a request carries in its headers (`traceparent`, `tracestate`).
pub fn continue_request(span: &Span, headers: &HeaderMap) {
    let Some(parent) = headers.get(TRACE_PARENT).and_then(|value| value.to_str().ok()) else { return };
    // It may be in several lines, which are one list.
    let lines: Option<Vec<&str>> = headers.get_all(TRACE_STATE).iter().map(|line| line.to_str().ok()).collect();
    let state = lines.map(|lines| lines.join(",")).filter(|state| !state.is_empty());
    continue_context(span, &TraceContext { parent: parent.to_owned(), state });
}

/// A `tracestate` as it is handed on: unchanged, or without some of its entries if it is too long, as the W3C says:
/// long ones first, then the last ones, which are the oldest.
fn bounded(state: &str) -> Option<String> {
    if state.len() <= STATE_MAX {
        return Some(state.to_owned());
    }
    let mut kept = String::new();
    for entry in state.split(',').filter(|entry| entry.len() <= STATE_ENTRY_MAX) {
        if kept.len() + entry.len() + 1 > STATE_MAX {
            break;
        }
        if !kept.is_empty() {
            kept.push(',');
        }
        kept.push_str(entry);
    }
    (!kept.is_empty()).then_some(kept)
}

fn carried(trace_parent: &str) -> HashMap<String, String> {
    HashMap::from([(TRACE_PARENT.to_owned(), trace_parent.to_owned())])
}

fn span_context(context: &Context) -> SpanContext {
    context.span().span_context().clone()
}

fn remote(carrier: &dyn Extractor) -> Context {
    TraceContextPropagator::new().extract_with_context(&Context::new(), carrier)
}

/// A field `trace_id` of the span, if it has one, is filled in: logs can be found by it even where there is no
/// collector.
fn continue_from(span: &Span, context: Context) {
    let remote = span_context(&context);
    if remote.is_valid() {
        span.record("trace_id", tracing::field::display(remote.trace_id()));
        // Fails only without a collector.
        if span.set_parent(context.clone()).is_err() {
            keep(span, &context);
        }
    }
}

/// Keeps the context beside the span.
fn keep(span: &Span, context: &Context) {
    let Some(kept) = text(context) else { return };
    span.with_subscriber(|(id, subscriber)| {
        let span = subscriber.downcast_ref::<Registry>().and_then(|registry| registry.span(id));
        if let Some(span) = span {
            span.extensions_mut().replace(CameWith(kept));
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use opentelemetry_sdk::trace::SpanData;
    use std::thread;
    use std::time::SystemTime;

    const CALLER: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    #[test]
    fn without_a_collector_a_context_goes_on_as_it_came_to_what_is_done_for_the_request_and_to_nothing_else() {
        // Logs that leave all spans out.
        let logs = tracing_subscriber::fmt::layer().with_writer(io::sink).with_filter(EnvFilter::new("error"));
        let subscriber = tracing_subscriber::registry().with(kept_contexts()).with(logs);
        let _subscribed = testing::subscribe(subscriber);
        let of_request = tracing::info_span!("request");
        continue_trace(&of_request, CALLER);
        let within = of_request.in_scope(|| tracing::info_span!("within"));
        let invisible = within.in_scope(|| tracing::trace_span!("invisible"));
        let (other, another) = (tracing::info_span!("other"), within.in_scope(|| tracing::info_span!("another")));
        let of_another = CALLER.replace('b', "c");
        continue_trace(&another, &of_another);
        let caller = || Some(CALLER.to_owned());
        let table =
            [(&of_request, caller()), (&within, caller()), (&other, None), (&another, Some(of_another.clone()))];
        for (span, expected) in table {
            assert_eq!(span.in_scope(trace_parent), expected, "{span:?}");
        }
        assert!(invisible.is_disabled());
        assert_eq!(within.in_scope(|| invisible.in_scope(trace_parent)), caller());
        assert_eq!(trace_parent(), None);
    }

    #[test]
    fn what_comes_later_points_to_a_trace_and_is_not_in_it() {
        let spans = exported(|| {
            continue_trace(&tracing::info_span!("part"), CALLER);
            link_trace(&tracing::info_span!("later"), CALLER);
        });
        let caller = span_context(&remote(&carried(CALLER))).trace_id();
        let seen = spans.iter().map(|span| {
            let links: Vec<_> = span.links.iter().map(|link| link.span_context.trace_id() == caller).collect();
            (span.name.as_ref(), span.span_context.trace_id() == caller, links)
        });
        assert_eq!(seen.collect::<Vec<_>>(), [("part", true, vec![]), ("later", false, vec![true])]);
    }

    /// Does `work` with a collector; the spans that it gets.
    fn exported(work: impl FnOnce()) -> Vec<SpanData> {
        let collected = testing::collect(&["streams_process"]);
        work();
        collected.ended()
    }

    fn names(spans: &[SpanData]) -> Vec<&str> {
        spans.iter().map(|span| span.name.as_ref()).collect()
    }

    #[test]
    fn details_are_sent_within_a_trace_that_is_recorded_and_begin_none() {
        let not_recorded = CALLER.replace("-01", "-00");
        // how the step begins -> what is sent
        let table: [(Option<&str>, &[&str]); 3] =
            [(None, &["detail", "step"]), (Some(CALLER), &["detail", "step"]), (Some(&not_recorded), &[])];
        for (continued, expected) in table {
            let spans = exported(|| {
                drop(tracing::debug_span!("alone"));
                let step = tracing::info_span!("step");
                if let Some(trace) = continued {
                    continue_trace(&step, trace);
                }
                step.in_scope(|| drop(tracing::debug_span!("detail")));
                step.in_scope(|| drop(tracing::debug_span!(target: "another_crate", "detail of another crate")));
            });
            assert_eq!(names(&spans), expected, "{continued:?}");
        }
    }

    #[test]
    fn nothing_of_a_library_that_writes_whole_answers_is_sent() {
        let collected = testing::collect_with(Exported::new(&["library"], &["library"]));
        tracing::info_span!("work").in_scope(|| {
            tracing::warn!(target: "library::client", "an answer with a key");
            drop(tracing::info_span!(target: "library", "call", answer = "with a token"));
            drop(tracing::debug_span!(target: "library", "detail", answer = "with a token"));
            tracing::warn!(target: "program", "nothing secret");
        });
        let sent: Vec<_> = collected.spans().into_iter().map(|span| (span.name, span.lines)).collect();
        assert_eq!(sent, [("work".to_owned(), vec!["nothing secret".to_owned()])]);
    }

    #[test]
    fn a_span_of_what_is_over_begins_where_that_began_and_belongs_where_it_is_said_to_belong() {
        let before = SystemTime::now();
        let waited = Duration::from_secs(60);
        let spans = exported(|| {
            let elsewhere = tracing::info_span!("elsewhere");
            let wait = || tracing::debug_span!("wait", took_ns = 60_000_000_000_i64, queue = "jobs");
            elsewhere.in_scope(|| add_to_trace(CALLER, wait));
            elsewhere.in_scope(|| add_to_trace("nonsense", || tracing::info_span!("of no trace")));
        });
        assert_eq!(names(&spans), ["wait", "elsewhere"]);
        let wait = &spans[0];
        assert!(wait.start_time <= SystemTime::now() - waited && wait.start_time >= before - waited, "{wait:?}");
        assert!(wait.end_time >= before, "{wait:?}");
        assert_eq!(wait.parent_span_id, span_context(&remote(&carried(CALLER))).span_id());
        assert!(!wait.attributes.iter().any(|attribute| attribute.key.as_str() == "took_ns"), "{wait:?}");
        assert!(wait.attributes.iter().any(|attribute| attribute.key.as_str() == "queue"), "{wait:?}");
    }

    #[test]
    fn a_trace_of_too_many_details_keeps_its_steps_and_says_how_many_details_are_missing() {
        let spans = exported(|| {
            for _ in 0..2 {
                let step = tracing::info_span!("step");
                continue_trace(&step, CALLER);
                step.in_scope(|| (0..detail::MOST_DETAILS).for_each(|_| drop(tracing::debug_span!("detail"))));
            }
            assert_eq!(details_left_out(CALLER), u64::from(detail::MOST_DETAILS));
            let another = tracing::info_span!("another");
            another.in_scope(|| drop(tracing::debug_span!("detail of another")));
        });
        let count = |name: &str| spans.iter().filter(|span| span.name == name).count();
        assert_eq!((count("step"), count("detail")), (2, detail::MOST_DETAILS as usize));
        assert_eq!((count("another"), count("detail of another")), (1, 1));
    }

    #[test]
    fn without_a_collector_no_detail_is_made() {
        let logs = tracing_subscriber::fmt::layer().with_writer(io::sink).with_filter(EnvFilter::new("info"));
        let subscriber = tracing_subscriber::registry().with(kept_contexts()).with(logs);
        let _subscribed = testing::subscribe(subscriber);
        let step = tracing::info_span!("step");
        continue_trace(&step, CALLER);
        step.in_scope(|| {
            // Subscribers of other tests may have the span made; this one does not ask for it.
            let detail = tracing::debug_span!("detail");
            let interest = |detail| dispatcher::get_default(|subscriber| subscriber.register_callsite(detail));
            assert!(detail.metadata().map(interest).is_none_or(|interest| interest.is_never()));
            add_to_trace(CALLER, || panic!("it would go nowhere"));
        });
        assert_eq!(details_left_out(CALLER), 0);
    }

    #[test]
    fn a_thread_that_sends_nothing_does_not_answer_for_one_that_does() {
        let make = || drop(tracing::info_span!("made by both"));
        let spans = exported(|| {
            thread::spawn(make).join().unwrap();
            make();
        });
        assert_eq!(names(&spans), ["made by both"]);
    }

    #[test]
    fn a_trace_context_survives_being_kept_as_text() {
        let provider = SdkTracerProvider::builder().build();
        let subscriber =
            tracing_subscriber::registry().with(tracing_opentelemetry::layer().with_tracer(provider.tracer("test")));
        let _subscribed = testing::subscribe(subscriber);
        let text = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        let headers = [("traceparent", text)]
            .map(|(name, value)| (http::HeaderName::from_static(name), http::HeaderValue::from_static(value)));
        let by_object = tracing::info_span!("continued");
        continue_trace(&by_object, text);
        let by_request = tracing::info_span!("continued");
        continue_request(&by_request, &HeaderMap::from_iter(headers));
        for span in [by_object, by_request] {
            let kept = span.in_scope(trace_parent).unwrap();
            assert_eq!(kept.split('-').nth(1), text.split('-').nth(1), "{kept}");
        }
    }

    const STATE: &str = "congo=t61rcWkgMzE,rojo=00f067aa0ba902b7";

    fn headers(states: &[&str]) -> HeaderMap {
        let states = states.iter().map(|state| (TRACE_STATE, *state));
        let fields = [(TRACE_PARENT, CALLER)].into_iter().chain(states);
        fields.map(|(name, value)| (http::HeaderName::from_static(name), value.parse().unwrap())).collect()
    }

    #[test]
    fn what_other_systems_keep_of_a_trace_goes_on_as_it_came_with_a_collector_and_without() {
        let long =
            |count: usize| (0..count).map(|number| format!("k{number}=0123456789")).collect::<Vec<_>>().join(",");
        let entry = format!("long={}", "x".repeat(200));
        // lines of the header -> what is handed on
        let wide =
            |count: usize| (0..count).map(|number| format!("k{number:02}={}", "x".repeat(46))).collect::<Vec<_>>();
        let (ten, twenty) = (wide(10).join(","), wide(20).join(","));
        let table: [(&[&str], Option<String>); 8] = [
            (&[], None),
            (&[STATE], Some(STATE.to_owned())),
            (&["congo=t61rcWkgMzE", "rojo=00f067aa0ba902b7"], Some(STATE.to_owned())),
            // No list has more than 32 entries.
            (&[&long(60)], Some(long(32))),
            (&[&twenty], Some(ten)),
            (&[&format!("{entry},{}", long(30))], Some(long(30))),
            (&[&format!("long={}", "x".repeat(600))], None),
            (&["no list"], None),
        ];
        for with_collector in [true, false] {
            let _collected = with_collector.then(|| testing::collect(&[]));
            let _subscribed =
                (!with_collector).then(|| testing::subscribe(tracing_subscriber::registry().with(kept_contexts())));
            for (states, expected) in &table {
                let of_request = tracing::info_span!("request");
                continue_request(&of_request, &headers(states));
                let within = of_request.in_scope(|| tracing::info_span!("within"));
                let context = within.in_scope(trace_context).unwrap();
                assert_eq!(context.state, *expected, "{states:?} {with_collector}");
                assert!(context.state.is_none_or(|state| state.len() <= STATE_MAX));
                let by_object = tracing::info_span!("by object");
                continue_context(&by_object, &within.in_scope(trace_context).unwrap());
                assert_eq!(by_object.in_scope(trace_context).unwrap().state, *expected, "{states:?} {with_collector}");
            }
        }
    }

    #[test]
    fn what_is_no_trace_context_is_ignored() {
        for text in ["", "nonsense", "00-nonsense-01", "00-00000000000000000000000000000000-b7ad6b7169203331-01"] {
            assert!(!span_context(&remote(&carried(text))).is_valid(), "{text}");
        }
        assert_eq!(trace_parent(), None);
    }
}
