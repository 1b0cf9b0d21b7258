//! One trace shows a resize from its caller to the last pod, through both services and the objects between them
//! (rule name-11).

use super::fixture::{Moment, WITHIN, resize_of_clean, with_options, with_system};
use anyhow::{Context as _, Result, ensure};
use integration_tests::sample::CLEAN;
use integration_tests::system::job::ObservedJob;
use integration_tests::traces::Collector;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use kube::api::{Patch, PatchParams};
use opentelemetry_proto::tonic::trace::v1::Span;
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use serde_json::json;
use std::collections::BTreeMap;
use streams_api::{ProcessingElement, names};
use streams_control_plane::wait::eventually;
use streams_proto::elasticity::v1::ResizeRequest;
use streams_proto::elasticity::v1::resize_request::WaitFor;
use tonic::Request;

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";

/// The span of the caller.
const CALLER: &str = "b7ad6b7169203331";
/// What both client and server call a compilation for a resize.
const COMPILATION: &str = "streams.fusion.v1.FusionService/Resize";
/// The call for texts that did not come with the compilation, because they are many (rule service-34).
const RENDERING: &str = "streams.fusion.v1.FusionService/Render";

/// Whether the trace of the resize is whole, with so many pods that became ready: what is to be seen is there, and
/// hangs together.
fn is_whole(spans: &[Span], pods: usize) -> Result<()> {
    let named = |name: &str| spans.iter().filter(move |span| span.name == name).collect::<Vec<_>>();
    // span -> the span around it, where only one is right
    let expected = [
        ("resize", None),
        ("POST /apis/streams.ibm.com/v1/namespaces/{namespace}/streamsresizes", Some("resize")),
        ("wait for admission", Some("resize")),
        ("admit", None),
        ("GET /apis/streams.ibm.com/v1/namespaces/{namespace}/streamsprs/{name}", Some("admit")),
        ("wait in queue", None),
        ("compile", None),
        (COMPILATION, None),
        ("publish", None),
        ("POST /api/v1/namespaces/{namespace}/configmaps", None),
        ("act", None),
        ("PUT /apis/streams.ibm.com/v1/namespaces/{namespace}/streamsjobs/{name}/status", Some("act")),
        ("create pod", None),
        ("POST /api/v1/namespaces/{namespace}/pods", Some("create pod")),
        ("pod ready", None),
        ("roll-out", None),
    ];
    let by_id: BTreeMap<String, &Span> = spans.iter().map(|span| (hex::encode(&span.span_id), span)).collect();
    let around = |span: &Span| by_id.get(&hex::encode(&span.parent_span_id)).copied();
    for (name, parent) in expected {
        let found = named(name);
        ensure!(!found.is_empty(), "{name} is missing");
        for span in found.into_iter().filter(|_| parent.is_some()) {
            let around = around(span).map(|around| around.name.as_str());
            ensure!(around == parent, "{name} is within {around:?}, not {parent:?}");
        }
    }
    for span in spans {
        let parent = hex::encode(&span.parent_span_id);
        let is_known = by_id.contains_key(&parent) || parent == CALLER;
        ensure!(is_known, "{}: {parent} is not in the trace", span.name);
        ensure!(span.start_time_unix_nano <= span.end_time_unix_nano, "{} ends before it begins", span.name);
    }
    // Each call that was answered is within the try of the client, and the stages are within it.
    let answered = named(COMPILATION).into_iter().filter(|span| span.kind() == SpanKind::Server);
    let answered: Vec<_> = answered.collect();
    ensure!(!answered.is_empty(), "no span of the fusion service");
    for span in answered {
        let client = around(span).filter(|around| around.kind() == SpanKind::Client && around.name == span.name);
        ensure!(client.is_some(), "a call is not within its try");
    }
    // What a replica computes may be shared by several calls, and is within the first of them.
    let is_within_call = |span: &Span| {
        let shared = around(span).filter(|around| around.name == "shared resize");
        shared.and_then(around).is_some_and(|around| around.name == COMPILATION)
    };
    let stage = named("resize").into_iter().find(|span| is_within_call(span));
    ensure!(stage.is_some(), "no stage within the call");
    ensure!(named(RENDERING).is_empty(), "few texts are asked for again");
    ensure!(named("roll-out").len() == 1, "the roll-out ends once");
    let ready = named("pod ready").len();
    ensure!(ready == pods, "{ready} of {pods} pods became ready");
    Ok(())
}

/// What a PE carries, and what must not change when it is kept.
#[derive(Debug, PartialEq)]
struct Carried {
    trace: Option<String>,
    generation: Option<i64>,
}

/// The pod of the channel that the resize adds.
async fn new_pod(job: &ObservedJob) -> Result<Pod> {
    let status = job.pe("Clean[2]").await?.status.unwrap_or_default();
    Ok(job.api::<Pod>().get(&status.pod_name.context("no pod")?).await?)
}

/// A resize, as part of a trace.
fn resize_request(job: &ObservedJob) -> Result<Request<ResizeRequest>> {
    let mut request = Request::new(job.resize_request(&[(CLEAN, 3)], WaitFor::RolledOut));
    request.metadata_mut().insert("traceparent", parent().parse()?);
    request.set_timeout(WITHIN);
    Ok(request)
}

/// Where the caller is in the trace.
fn parent() -> String {
    format!("00-{TRACE}-{CALLER}-01")
}

/// By the operators of the PE.
async fn carried(job: &ObservedJob) -> Result<BTreeMap<String, Carried>> {
    let operators = job.operators().await?;
    let pes = job.list::<ProcessingElement>().await?.into_iter().map(|pe| {
        let operators = operators.get(&pe.spec.id).cloned().context("a PE without operators")?;
        let trace = pe.annotations().get(names::ANNOTATION_TRACE_PARENT);
        let trace = trace.and_then(|parent| parent.split('-').nth(1)).map(str::to_owned);
        Ok((operators, Carried { trace, generation: pe.metadata.generation }))
    });
    pes.collect()
}

#[tokio::test]
async fn a_resize_is_one_trace_from_the_caller_to_the_pods_and_those_that_are_kept_do_not_hear_of_it() -> Result<()> {
    let collector = Collector::default();
    let environment = collector.serve().await?;
    let environment = environment.each_ref().map(|(name, value)| (name.as_str(), value.as_str()));
    // One worker, so that keys wait for it.
    with_options("traces", &["--workers", "1"], &environment, async |it| {
        let job = it.submitted().await?;
        let (before, carried_before) = (Moment::of(&job).await?, carried(&job).await?);
        it.frontend()?.balancer().await?.resize(resize_request(&job)?).await?;

        let changed = Moment::of(&job).await?.since(&before)?;
        ensure!(changed == resize_of_clean(2, 3), "{changed:#?}");
        let carried_after = carried(&job).await?;
        for (operators, is) in &carried_after {
            if changed.kept.contains(operators) {
                ensure!(carried_before.get(operators) == Some(is), "{operators} is kept and was changed: {is:?}");
            } else {
                ensure!(is.trace.as_deref() == Some(TRACE), "{operators} is new and does not say why: {is:?}");
            }
        }
        for pod in job.list::<Pod>().await? {
            let trace = pod.annotations().get(names::ANNOTATION_TRACE_PARENT).context("a pod without a trace")?;
            let is_new = before.pods.0.values().all(|before| before.name != pod.name_any());
            ensure!(trace.contains(TRACE) == is_new, "{}: {trace}", pod.name_any());
        }
        let pods = changed.added.len() + changed.restarted.len();
        eventually("the collector has the trace of the resize", WITHIN, || async {
            is_whole(&collector.spans_of(TRACE), pods).with_context(|| format!("{:?}", collector.names_of(TRACE)))
        })
        .await?;
        // A PE costs about a dozen spans; what the resize costs as a whole is beside that.
        let cost = collector.spans_of(TRACE).len();
        ensure!(cost <= 20 * pods + 100, "{cost} spans for {pods} pods");

        // What happens to a pod afterwards is no part of the resize.
        let failing = new_pod(&job).await?;
        let fail = Patch::Merge(json!({"metadata": {"annotations": {"streams-test/fail": "3"}}}));
        job.api::<Pod>().patch(&failing.name_any(), &PatchParams::default(), &fail).await?;
        eventually("a pod that replaces one that failed has a trace of its own", WITHIN, || async {
            let pod = new_pod(&job).await?;
            ensure!(pod.name_any() != failing.name_any(), "it is not replaced yet");
            let trace = pod.annotations().get(names::ANNOTATION_TRACE_PARENT).context("a pod without a trace")?;
            let id = trace.split('-').nth(1).context("no trace id")?;
            let spans = collector.names_of(id);
            ensure!(id != TRACE && spans.contains("create pod"), "{trace}: {spans:?}");
            Ok(())
        })
        .await?;

        // Who edits the width afterwards is somebody else. So many texts have to be asked for.
        let region = job.region(CLEAN).await?.name_any();
        it.kubectl(&["scale", &format!("streamspr/{region}"), "--replicas=14"]).await?;
        job.settled(integration_tests::sample::Widths { clean: 14, ..Default::default() }, WITHIN).await?;
        let scaled = carried(&job).await?;
        let of_scale = scaled.get("Clean[3]").context("no PE of Clean[3]")?;
        let trace =
            of_scale.trace.as_deref().filter(|trace| *trace != TRACE).with_context(|| format!("{of_scale:?}"))?;
        eventually("the collector has the rendering", WITHIN, || async {
            let names = collector.names_of(trace);
            ensure!(names.contains(RENDERING), "{names:?}");
            Ok(())
        })
        .await
    })
    .await
}

#[tokio::test]
async fn without_a_collector_the_context_of_a_caller_goes_on_as_it_came() -> Result<()> {
    with_system("traces-carried", async |it| {
        let job = it.submitted().await?;
        it.frontend()?.balancer().await?.resize(resize_request(&job)?).await?;
        let pod = new_pod(&job).await?;
        let trace = pod.annotations().get(names::ANNOTATION_TRACE_PARENT);
        ensure!(trace == Some(&parent()), "{trace:?}");
        Ok(())
    })
    .await
}
