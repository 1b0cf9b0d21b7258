//! The layer around the service: it prepares every call and records how it ended.
//!
//! When the head of a request arrives, before its body is read, the layer gives the call a ticket, a deadline, a
//! cancellation token and a span that continues the caller's trace; then it has the body taken in. When the answer
//! ends, in whatever way, it takes ticket and memory back and records method, status and duration.
//!
//! Knows: HTTP heads and trailers, methods, admission. Must not know: messages.
//!
//! Invariants (rule service-6): a call ends at its deadline even while its body is still arriving. When its answer has
//! ended or its caller has gone, its token is cancelled and its computation ends. A call that is cancelled because the
//! server shuts down gets a status that says so.

use super::admission::{Admission, Ticket};
use super::answer::{AnswerBody, Held, Observer, Patience};
use super::budget::CallBudget;
use super::class::CallClass;
use super::deadline::deadline;
use super::errors::Failure;
use super::intake::Intake;
use super::memory::{Memory, Share};
use super::metrics::Metrics;
use std::convert::Infallible;
use std::mem;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use streams_compiler::budget::Limits;
use streams_compiler::error::Error;
use streams_process::codes::code_name;
use streams_process::http2::{self, Clock};
use streams_process::telemetry;
use streams_proto::fusion::v1::fusion_service_server::SERVICE_NAME;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;
use tonic::body::Body;
use tonic::codegen::BoxFuture;
use tonic::{Code, Status};
use tower::{Layer, Service};
use tracing::{Instrument, Span, field};

/// The values that all calls share.
#[derive(Clone)]
pub(crate) struct Calls {
    pub(crate) admission: Admission,
    pub(crate) memory: Memory,
    pub(crate) intake: Intake,
    pub(crate) metrics: Arc<Metrics>,
    /// Bounds on sizes of every compilation.
    pub(crate) limits: Limits,
    /// The longest time a call may take.
    pub(crate) longest: Duration,
    /// How long a caller may read nothing of its answer.
    pub(crate) stall: Duration,
    /// Cancelled when calls in flight have to end.
    pub(crate) shutdown: CancellationToken,
    /// Calls in flight.
    pub(crate) in_flight: TaskTracker,
}

/// A call, for the code that works on it. The layer puts it into the extensions of the request.
#[derive(Clone)]
pub(crate) struct Call {
    pub(crate) class: CallClass,
    pub(crate) budget: CallBudget,
    shutdown: CancellationToken,
    metrics: Arc<Metrics>,
}

impl Call {
    /// The status that a caller gets for a failure.
    pub(crate) fn status(&self, failure: &Failure) -> Status {
        match failure {
            Failure::Compiler(Error::Cancelled) if self.shutdown.is_cancelled() => Failure::ShuttingDown.status(),
            Failure::Defect(defect) => {
                self.metrics.count_defect();
                tracing::error!(defect, "a defect of the compiler ended a request");
                failure.status()
            }
            _ => failure.status(),
        }
    }

    /// The failure of a call of which a task ended without a result.
    pub(crate) fn lost(&self) -> Failure {
        if self.shutdown.is_cancelled() { Failure::ShuttingDown } else { Failure::Defect("a task has no result") }
    }

    /// Waits until the call has to end, and says why.
    pub(crate) async fn ended(&self) -> Failure {
        self.budget.ended().await.into()
    }
}

/// Puts a [`Call`] into each request.
#[derive(Clone)]
pub(crate) struct CallLayer(pub(crate) Calls);

impl<S> Layer<S> for CallLayer {
    type Service = CallService<S>;

    fn layer(&self, inner: S) -> Self::Service {
        CallService { calls: self.0.clone(), inner }
    }
}

/// See [`CallLayer`].
#[derive(Clone)]
pub(crate) struct CallService<S> {
    calls: Calls,
    inner: S,
}

impl<S> Service<http::Request<Body>> for CallService<S>
where
    S: Service<http::Request<Body>, Response = http::Response<Body>, Error = Infallible> + Clone + Send + 'static,
    S::Future: Send + 'static,
{
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<http::Response<Body>, Infallible>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let Some((class, method)) = classify(request.uri().path()) else {
            return Box::pin(self.inner.call(request));
        };
        let mut answer = PendingAnswer::begin(&self.calls, method, request.headers());
        let call = match self.calls.begin(class, request.headers(), answer.began, &answer.cancellation) {
            Ok((call, ticket)) => {
                answer.ticket = Some(ticket);
                call
            }
            Err(failure) => {
                let response = answer.observe(failure.status().into_http());
                return Box::pin(async { Ok(response) });
            }
        };
        answer.patience.deadline = call.budget.deadline;
        let span = answer.span.clone();
        // The one that is ready takes this call.
        let spare = self.inner.clone();
        let inner = mem::replace(&mut self.inner, spare);
        let calls = self.calls.clone();
        Box::pin(
            async move {
                let response = tokio::select! {
                    biased;
                    response = calls.answer(inner, call.clone(), request, &mut answer.memory) => response,
                    failure = call.ended() => Err(failure),
                };
                Ok(answer.observe(response.unwrap_or_else(|failure| call.status(&failure).into_http())))
            }
            .instrument(span),
        )
    }
}

impl Calls {
    fn begin(
        &self,
        class: CallClass,
        headers: &http::HeaderMap,
        now: Instant,
        cancellation: &DropGuard,
    ) -> Result<(Call, Ticket), Failure> {
        let deadline =
            deadline(headers, now, self.longest).map_err(|message| Failure::malformed("grpc-timeout", message))?;
        let ticket = self.admission.enter(class)?;
        let cancellation = cancellation.token().clone();
        let budget = CallBudget {
            limits: self.limits.clone(),
            deadline: Some(deadline),
            cancellation,
            memory: None,
            place: Some(ticket.place.clone()),
            work: Some(Arc::clone(&ticket.work)),
            alone: false,
        };
        Ok((Call { class, budget, shutdown: self.shutdown.clone(), metrics: Arc::clone(&self.metrics) }, ticket))
    }

    /// Takes the request in and has the service answer it. `memory` gets what the call has taken.
    async fn answer<S>(
        &self,
        mut service: S,
        mut call: Call,
        request: http::Request<Body>,
        memory: &mut Option<Arc<Share>>,
    ) -> Result<http::Response<Body>, Failure>
    where
        S: Service<http::Request<Body>, Response = http::Response<Body>, Error = Infallible>,
        S::Future: Send + 'static,
    {
        let share = Arc::new(self.memory.share(call.class));
        let busy = || self.admission.overloaded(call.class).into();
        let (mut request, decode) = self.intake.receive(call.class, request, &share, busy).await?;
        *memory = Some(Arc::clone(&share));
        call.budget.memory = Some(Arc::clone(&share));
        request.extensions_mut().insert(call);
        match self.intake.begin(decode, &share, service.call(request)).await? {
            Ok(response) => Ok(response),
            Err(never) => match never {},
        }
    }
}

/// The method of the contract that a path names.
pub(crate) fn method(path: &str) -> Option<&str> {
    path.strip_prefix('/')?.strip_prefix(SERVICE_NAME)?.strip_prefix('/')
}

fn classify(path: &str) -> Option<(CallClass, &'static str)> {
    match method(path)? {
        "Submit" => Some((CallClass::Submit, "Submit")),
        "Resize" => Some((CallClass::Resize, "Resize")),
        "Render" => Some((CallClass::Render, "Render")),
        "Plan" => Some((CallClass::DryRun, "Plan")),
        "Explain" => Some((CallClass::DryRun, "Explain")),
        _ => None,
    }
}

/// A call that is not completely answered yet. Dropping it ends the call.
struct PendingAnswer {
    method: &'static str,
    began: Instant,
    span: Span,
    metrics: Arc<Metrics>,
    /// Not set before the status was sent.
    code: Option<Code>,
    patience: Patience,
    stream: Clock,
    ticket: Option<Ticket>,
    memory: Option<Arc<Share>>,
    cancellation: DropGuard,
    _in_flight: TaskTrackerToken,
}

impl PendingAnswer {
    fn begin(calls: &Calls, method: &'static str, headers: &http::HeaderMap) -> Self {
        let span = tracing::info_span!(
            "call",
            otel.name = format!("streams.fusion.v1.FusionService/{method}"),
            otel.kind = "server",
            rpc.system = "grpc",
            rpc.method = method,
            rpc.grpc.status_code = field::Empty,
            job = field::Empty,
            trace_id = field::Empty,
        );
        telemetry::continue_request(&span, headers);
        calls.metrics.call_began(method);
        Self {
            method,
            began: Instant::now(),
            span,
            metrics: Arc::clone(&calls.metrics),
            code: None,
            patience: Patience { deadline: None, stall: calls.stall },
            stream: Clock::current(),
            ticket: None,
            memory: None,
            cancellation: calls.shutdown.child_token().drop_guard(),
            _in_flight: calls.in_flight.token(),
        }
    }

    /// Follows the answer to its end.
    fn observe(mut self, mut response: http::Response<Body>) -> http::Response<Body> {
        self.note(response.headers());
        if let Some(memory) = self.memory.clone() {
            http2::hold(response.extensions_mut(), memory);
        }
        response.map(|body| {
            let (ticket, memory) = (self.ticket.take(), self.memory.take());
            let ended = self.cancellation.token().clone();
            Body::new(AnswerBody::new(Held::new(body, ticket, memory), self.patience, ended, self))
        })
    }
}

impl Observer for PendingAnswer {
    fn note(&mut self, headers: &http::HeaderMap) {
        if let Some(status) = Status::from_header_map(headers) {
            self.code = Some(status.code());
        }
    }

    fn fail(&mut self, code: Code) {
        self.code = Some(code);
    }
}

impl Drop for PendingAnswer {
    fn drop(&mut self) {
        // Without a status the caller went away, or did not read.
        let unsaid = if self.stream.is_over() { Code::DeadlineExceeded } else { Code::Cancelled };
        let code = self.code.unwrap_or(unsaid);
        let took = self.began.elapsed();
        self.metrics.call_ended(self.method, code_name(code), took);
        self.span.record("rpc.grpc.status_code", code as i32);
        let _entered = self.span.enter();
        tracing::info!(code = code_name(code), seconds = took.as_secs_f64(), "answered");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_without_a_result_is_a_defect_unless_the_server_goes_away() {
        for (goes_away, expected) in [(false, Code::Internal), (true, Code::Unavailable)] {
            let shutdown = CancellationToken::new();
            if goes_away {
                shutdown.cancel();
            }
            let metrics = Arc::new(Metrics::new());
            let call = Call { class: CallClass::Render, budget: CallBudget::default(), shutdown, metrics };
            assert_eq!(call.status(&call.lost()).code(), expected);
        }
    }
}
