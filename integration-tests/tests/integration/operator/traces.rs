//! One trace shows a resize from its caller to the last pod, through both services and the objects between them
//! (rule name-11).

use super::fixture::{Moment, WITHIN, resize_of_clean, with_environment};
use anyhow::{Context as _, Result, ensure};
use integration_tests::sample::CLEAN;
use integration_tests::system::job::ObservedJob;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{TraceService, TraceServiceServer};
use opentelemetry_proto::tonic::collector::trace::v1::{ExportTraceServiceRequest, ExportTraceServiceResponse};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use streams_api::{ProcessingElement, names};
use streams_control_plane::wait::eventually;
use streams_proto::elasticity::v1::resize_request::WaitFor;
use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::{Request, Response, Status};

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";

/// Collects the names of spans by trace, as an OpenTelemetry collector does.
#[derive(Clone, Default)]
struct Collector(Arc<Mutex<BTreeMap<String, BTreeSet<String>>>>);

#[tonic::async_trait]
impl TraceService for Collector {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        let mut traces = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let resources = request.into_inner().resource_spans.into_iter();
        for span in resources.flat_map(|resource| resource.scope_spans).flat_map(|scope| scope.spans) {
            let id = span.trace_id.iter().map(|byte| format!("{byte:02x}")).collect();
            traces.entry(id).or_default().insert(span.name);
        }
        Ok(Response::new(ExportTraceServiceResponse::default()))
    }
}

impl Collector {
    /// Listens on a free port; gives the address for `OTEL_EXPORTER_OTLP_ENDPOINT`.
    async fn serve(&self) -> Result<String> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let endpoint = format!("http://{}", listener.local_addr()?);
        let server = tonic::transport::Server::builder().add_service(TraceServiceServer::new(self.clone()));
        tokio::spawn(server.serve_with_incoming(TcpListenerStream::new(listener)));
        Ok(endpoint)
    }

    fn spans_of(&self, trace: &str) -> BTreeSet<String> {
        let traces = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        traces.get(trace).cloned().unwrap_or_default()
    }
}

/// What a PE carries, and what must not change when it is kept.
#[derive(Debug, PartialEq)]
struct Carried {
    trace: Option<String>,
    generation: Option<i64>,
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
    let endpoint = collector.serve().await?;
    let environment = [("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint.as_str()), ("OTEL_BSP_SCHEDULE_DELAY", "100")];
    with_environment("traces", &environment, async |it| {
        let job = it.submitted().await?;
        let (before, carried_before) = (Moment::of(&job).await?, carried(&job).await?);
        let mut request = Request::new(job.resize_request(&[(CLEAN, 3)], WaitFor::RolledOut));
        request.metadata_mut().insert("traceparent", format!("00-{TRACE}-b7ad6b7169203331-01").parse()?);
        request.set_timeout(WITHIN);
        it.frontend()?.balancer().await?.resize(request).await?;

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
        let expected = [
            "resize",
            "compile",
            "streams.fusion.v1.FusionService/Resize",
            "publish",
            "streams.fusion.v1.FusionService/Render",
            "create pod",
        ];
        eventually("the collector has the spans of both services", WITHIN, || async {
            let spans = collector.spans_of(TRACE);
            let missing: Vec<_> = expected.iter().filter(|name| !spans.contains(**name)).collect();
            ensure!(missing.is_empty(), "{missing:?} are missing among {spans:?}");
            Ok(())
        })
        .await?;

        // Who edits the width afterwards is somebody else.
        let region = job.region(CLEAN).await?.name_any();
        it.kubectl(&["scale", &format!("streamspr/{region}"), "--replicas=4"]).await?;
        job.settled(integration_tests::sample::Widths { clean: 4, ..Default::default() }, WITHIN).await?;
        let scaled = carried(&job).await?;
        let of_scale = scaled.get("Clean[3]").context("no PE of Clean[3]")?;
        ensure!(of_scale.trace.is_some() && of_scale.trace.as_deref() != Some(TRACE), "{of_scale:?}");
        Ok(())
    })
    .await
}
