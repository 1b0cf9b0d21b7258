//! A collector of traces, as OpenTelemetry's is, that keeps what it gets in memory.
//!
//! Knows: the protocol (OTLP over gRPC). Must not know: which spans there should be.

use anyhow::Result;
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{TraceService, TraceServiceServer};
use opentelemetry_proto::tonic::collector::trace::v1::{ExportTraceServiceRequest, ExportTraceServiceResponse};
use opentelemetry_proto::tonic::trace::v1::Span;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::{Request, Response, Status};

/// How long a service keeps spans before it sends them, in milliseconds, as `OTEL_BSP_SCHEDULE_DELAY` has it.
const SENT_AFTER: &str = "100";

/// Collects spans by trace.
#[derive(Clone, Default)]
pub struct Collector(Arc<Mutex<BTreeMap<String, Vec<Span>>>>);

#[tonic::async_trait]
impl TraceService for Collector {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        let mut traces = self.0.lock();
        let resources = request.into_inner().resource_spans.into_iter();
        for span in resources.flat_map(|resource| resource.scope_spans).flat_map(|scope| scope.spans) {
            traces.entry(hex::encode(&span.trace_id)).or_default().push(span);
        }
        Ok(Response::new(ExportTraceServiceResponse::default()))
    }
}

impl Collector {
    /// Listens on a free port of this machine until this program ends; gives what the environment of a service must
    /// have to send its spans there soon.
    ///
    /// # Errors
    /// When it cannot listen.
    pub async fn serve(&self) -> Result<[(String, String); 2]> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let endpoint = format!("http://{}", listener.local_addr()?);
        let server = tonic::transport::Server::builder().add_service(TraceServiceServer::new(self.clone()));
        tokio::spawn(server.serve_with_incoming(TcpListenerStream::new(listener)));
        Ok([
            ("OTEL_EXPORTER_OTLP_ENDPOINT".to_owned(), endpoint),
            ("OTEL_BSP_SCHEDULE_DELAY".to_owned(), SENT_AFTER.to_owned()),
        ])
    }

    /// The spans of a trace that have come so far. The trace is given by its id, in hexadecimal digits.
    pub fn spans_of(&self, trace: &str) -> Vec<Span> {
        let traces = self.0.lock();
        traces.get(trace).cloned().unwrap_or_default()
    }

    /// The names of these spans.
    pub fn names_of(&self, trace: &str) -> BTreeSet<String> {
        self.spans_of(trace).into_iter().map(|span| span.name).collect()
    }
}
