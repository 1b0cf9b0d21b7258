//! What is called, and what is sent (rules call-15 and call-16).

use super::error::FusionError;
use super::replicas::{Endpoints, Lane, Replicas};
use super::tries::{Call, answer_of};
use crate::call_figures::MadeCalls;
use bytes::Bytes;
use std::sync::Arc;
use std::time::Duration;
use streams_kubernetes::stopwatch;
use streams_process::telemetry::{self, TraceContext};
use streams_process::tls::Connector;
use streams_proto::fusion::WORKED;
use streams_proto::fusion::v1::plan_request::What;
use streams_proto::fusion::v1::{
    Blob, Compilation, PlanRequest, PlanResponse, ResizeRequest, ResizeResponse, SubmitRequest, SubmitResponse,
};
use tokio::time::Instant;
use tonic::metadata::MetadataValue;
use tonic::{Request, Response};

/// Content up to this size is sent at once; above it, only when a replica asks.
const INLINE: usize = 16 << 10;
/// The longest AADL text that is accepted. A rendering has three in memory: the one that comes, one that waits, and the
/// one that is compressed (rule job-8).
pub(crate) const MAX_TEXT: usize = 16 << 20;
/// What an answer may have beside a plan: texts that came with it (rule call-16), and what users should know. A plan is
/// stored together with the latter and with more, so what is longer could not be stored either.
const BESIDE_PLAN: usize = (64 << 10) + (1 << 20);

/// How long calls may take, all attempts together, and how large answers may be.
#[derive(Clone, Debug)]
pub struct ClientOptions {
    /// `host:port` of replicas; a name may stand for several.
    pub addresses: Vec<String>,
    /// Replicas that somebody watches; while it knows of any, they count instead of the addresses.
    pub endpoints: Option<Endpoints>,
    /// Whom to trust, and who to be; plain text if not set.
    pub tls: Option<Connector>,
    /// A submission.
    pub submit_deadline: Duration,
    /// A resize.
    pub resize_deadline: Duration,
    /// A resize that has no answer after this time is asked of a second replica as well.
    pub hedge_after: Duration,
    /// Rendering of one call's PEs.
    pub render_deadline: Duration,
    /// The largest plan that is accepted, in bytes.
    pub max_plan: usize,
    /// The largest AADL text that is accepted, in bytes.
    pub max_text: usize,
    /// Where calls are counted.
    pub figures: MadeCalls,
}

impl ClientOptions {
    /// Default time-outs for these addresses.
    pub fn new(addresses: Vec<String>) -> Self {
        Self {
            addresses,
            endpoints: None,
            tls: None,
            submit_deadline: Duration::from_secs(60),
            resize_deadline: Duration::from_secs(30),
            hedge_after: Duration::from_secs(1),
            render_deadline: Duration::from_secs(120),
            max_plan: 64 << 20,
            max_text: MAX_TEXT,
            figures: MadeCalls::default(),
        }
    }

    /// The longest answer that is read.
    pub(super) fn max_answer(&self) -> usize {
        self.max_plan.saturating_add(BESIDE_PLAN)
    }
}

/// A client of the fusion service. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Client {
    replicas: Arc<Replicas>,
    options: Arc<ClientOptions>,
}

impl Client {
    /// A client; connects when first used.
    pub fn new(options: ClientOptions) -> Self {
        let replicas =
            Arc::new(Replicas::new(options.addresses.iter().cloned(), options.endpoints.clone(), options.tls.clone()));
        Self { replicas, options: Arc::new(options) }
    }

    /// Compiles a job for the first time. The ADL's content must be in the request; it is sent only if a replica asks
    /// for it.
    ///
    /// # Errors
    /// See [`FusionError`].
    pub async fn submit(&self, request: SubmitRequest) -> Result<SubmitResponse, FusionError> {
        let lean = SubmitRequest { compilation: request.compilation.clone().map(without_content) };
        let call = Call {
            method: "Submit",
            figures: self.options.figures.clone(),
            application: application(request.compilation.as_ref()),
            lane: Lane::Others,
            deadline: Instant::now() + self.options.submit_deadline,
            hedge_after: None,
            is_stream: false,
            max_answer: self.options.max_answer(),
        };
        // Replicas that do not answer, and those that have others to serve first, are waited for.
        let pause = stopwatch::pause();
        let answered = answer_of(&self.replicas, &call, |mut client, full, until| {
            let request = traced(if full { request.clone() } else { lean.clone() }, until);
            let begun = Instant::now();
            async move {
                let answer = client.submit(request).await?;
                let worked = worked(&answer, begun.elapsed());
                Ok((answer.into_inner(), worked))
            }
        })
        .await;
        drop(pause);
        let (answer, worked) = answered?;
        stopwatch::has_worked(worked);
        Ok(answer)
    }

    /// Compiles a running job for other widths. Contents of ADL and layout must be in the request.
    ///
    /// # Errors
    /// See [`FusionError`].
    pub async fn resize(&self, request: ResizeRequest) -> Result<ResizeResponse, FusionError> {
        let mut lean = request.clone();
        lean.compilation = lean.compilation.map(without_content);
        lean.layout = lean.layout.map(lean_blob);
        let call = Call {
            method: "Resize",
            figures: self.options.figures.clone(),
            application: application(request.compilation.as_ref()),
            lane: Lane::Resizes,
            deadline: Instant::now() + self.options.resize_deadline,
            hedge_after: Some(self.options.hedge_after),
            is_stream: false,
            max_answer: self.options.max_answer(),
        };
        answer_of(&self.replicas, &call, |mut client, full, until| {
            let request = traced(if full { request.clone() } else { lean.clone() }, until);
            async move { client.resize(request).await.map(Response::into_inner) }
        })
        .await
    }

    /// Plans a submission or a resize that is not carried out. Contents that are in the request are sent only if a
    /// replica asks for them.
    ///
    /// # Errors
    /// See [`FusionError`]; contents that are not in the request are [`FusionError::InputMissing`].
    pub async fn plan(&self, request: PlanRequest) -> Result<PlanResponse, FusionError> {
        let mut lean = request.clone();
        let compilation = match &mut lean.what {
            Some(What::Submit(submit)) => &mut submit.compilation,
            Some(What::Resize(resize)) => {
                resize.layout = resize.layout.take().map(lean_blob);
                &mut resize.compilation
            }
            None => &mut None,
        };
        *compilation = compilation.take().map(without_content);
        let call = Call {
            method: "Plan",
            figures: self.options.figures.clone(),
            application: application(compilation.as_ref()),
            lane: Lane::Others,
            deadline: Instant::now() + self.options.resize_deadline,
            hedge_after: None,
            is_stream: false,
            max_answer: self.options.max_answer(),
        };
        answer_of(&self.replicas, &call, |mut client, full, until| {
            let request = traced(if full { request.clone() } else { lean.clone() }, until);
            async move { client.plan(request).await.map(Response::into_inner) }
        })
        .await
    }

    pub(super) fn options(&self) -> &ClientOptions {
        &self.options
    }

    pub(super) fn replicas(&self) -> &Arc<Replicas> {
        &self.replicas
    }
}

/// A request with the remaining time and the trace context of the current span.
pub(super) fn traced<T>(message: T, deadline: Instant) -> Request<T> {
    let mut request = Request::new(message);
    request.set_timeout(deadline.saturating_duration_since(Instant::now()));
    if let Some(TraceContext { parent, state }) = telemetry::trace_context() {
        let fields = [(telemetry::TRACE_PARENT, Some(parent)), (telemetry::TRACE_STATE, state)];
        for (name, value) in fields {
            if let Some(Ok(value)) = value.map(MetadataValue::try_from) {
                request.metadata_mut().insert(name, value);
            }
        }
    }
    request
}

/// How long a replica has worked for this answer, which `took` so long; all of that, if it does not say.
fn worked<T>(answer: &Response<T>, took: Duration) -> Duration {
    let told = answer.metadata().get(WORKED).and_then(|told| told.to_str().ok()?.parse().ok());
    told.map_or(took, |told| Duration::from_millis(told).min(took))
}

pub(super) fn lean_blob(blob: Blob) -> Blob {
    let content = blob.content.filter(|content| content.len() <= INLINE);
    Blob { content, ..blob }
}

pub(super) fn without_content(mut compilation: Compilation) -> Compilation {
    compilation.adl = compilation.adl.map(lean_blob);
    compilation
}

/// Digest of the ADL, by which replicas are preferred.
pub(super) fn application(compilation: Option<&Compilation>) -> Bytes {
    compilation.and_then(|compilation| compilation.adl.as_ref()).map(|adl| adl.sha256.clone()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use streams_process::telemetry::testing;

    #[test]
    fn a_call_was_worked_on_as_long_as_the_replica_says_and_never_longer_than_it_took() {
        // what the replica says -> seconds, of an answer that took 5 s
        let table = [(None, 5), (Some("2000"), 2), (Some("0"), 0), (Some("90000"), 5), (Some("-1"), 5), (Some("x"), 5)];
        for (told, expected) in table {
            let mut answer = Response::new(());
            if let Some(told) = told {
                answer.metadata_mut().insert(WORKED, MetadataValue::from_static(told));
            }
            assert_eq!(worked(&answer, Duration::from_secs(5)), Duration::from_secs(expected), "{told:?}");
        }
    }

    #[test]
    fn a_call_carries_what_other_systems_keep_of_the_trace() {
        let _collected = testing::collect(&[]);
        let parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".to_owned();
        let span = tracing::info_span!("compile");
        telemetry::continue_context(&span, &TraceContext { parent, state: Some("rojo=1,congo=2".to_owned()) });
        let request = span.in_scope(|| traced((), Instant::now()));
        assert!(request.metadata().contains_key(telemetry::TRACE_PARENT));
        assert_eq!(request.metadata().get(telemetry::TRACE_STATE).unwrap(), "rojo=1,congo=2");
    }
}
