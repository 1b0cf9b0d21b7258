//! The gRPC service: checks a request, has an object made for it, and has what becomes of that waited for.
//!
//! Knows: the contract, the mirrors. Must not know: how widths come into force.
//!
//! Invariants: whoever waits is answered by its deadline, and when this frontend is to stop; what can be refused
//! without looking at the cluster is refused first.

use super::outcome::{self, ResizeOutcome};
use super::requests::{self, Unmade};
use super::view::ClusterView;
use super::{Elasticity, ended, errors};
use crate::grpc::access::caller_of;
use crate::grpc::deadline;
use crate::grpc::places::{self, CallerName};
use crate::grpc::transport::hold;
use futures::StreamExt as _;
use futures::stream::BoxStream;
use kube::ResourceExt as _;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use streams_api::parallel_region::WIDTH_MAX;
use streams_api::{Job, JobStatus, Resize};
use streams_kubernetes::{Key, object_names};
use streams_process::telemetry;
use streams_proto::elasticity::v1::elasticity_service_server::ElasticityService;
use streams_proto::elasticity::v1::resize_request::{DesiredWidth, Policy, WaitFor};
use streams_proto::elasticity::v1::{
    CancelRequest, CancelResponse, GetRegionRequest, GetResizeRequest, GetResizeResponse, ListRegionsRequest,
    ListRegionsResponse, ListResizesRequest, ListResizesResponse, Region, ResizeRequest, ResizeResponse,
    WatchRegionsRequest, WatchRegionsResponse, WatchResizeRequest, WatchResizeResponse,
};
use tokio::time::Instant;
use tonic::{Code, Request, Response, Status};
use tracing::Instrument;

/// Regions in one request.
pub(super) const MAX_REGIONS: usize = 256;
/// Characters of the name of a region (schema).
const REGION_NAME_MAX: usize = 1024;

impl<V: ClusterView> Elasticity<V> {
    /// What is seen of a namespace can be relied on.
    ///
    /// # Errors
    /// The frontend may not read it (rule call-33).
    pub(super) fn sees(&self, namespace: &str) -> Result<(), Status> {
        self.view.unread(namespace).map_or(Ok(()), |why| Err(errors::not_current(&why)))
    }

    pub(super) fn job(&self, namespace: &str, name: &str) -> Result<Arc<Job>, Status> {
        let job = self.view.job(namespace, name).ok_or_else(|| errors::job_not_found(namespace, name, ""))?;
        match job.metadata.deletion_timestamp {
            None => Ok(job),
            Some(_) => Err(errors::job_goes(namespace, name, "")),
        }
    }

    /// When to answer at last somebody who waits so long (rule elasticity-11).
    pub(super) fn deadline(&self, within: Option<Duration>) -> Instant {
        Instant::now() + within.map_or(self.longest_wait, |within| within.min(self.longest_wait))
    }

    /// The job of a request, if it has the regions.
    fn job_for(&self, key: &Key, request: &ResizeRequest) -> Result<Arc<Job>, Status> {
        let job = self.job(&key.namespace, &key.name)?;
        let none = JobStatus::default();
        let status = job.status.as_ref().unwrap_or(&none);
        if status.generation.is_none() {
            let condition = streams_api::condition::get(&status.conditions, streams_api::condition::SUBMITTED);
            let why = condition.map_or("it was not looked at yet", |c| c.message.as_str());
            return Err(errors::not_submitted(&key.name, why));
        }
        // The job may have many more regions than are wanted.
        let mut unknown: BTreeSet<&str> = request.regions.iter().map(|wanted| wanted.region.as_str()).collect();
        for known in &status.applied_widths {
            if unknown.is_empty() {
                break;
            }
            unknown.remove(known.region.as_str());
        }
        match request.regions.iter().find(|wanted| unknown.contains(wanted.region.as_str())) {
            Some(unknown) => Err(ended::not_found(key, &ended::known_regions(Some(status)), &unknown.region, "")),
            None => Ok(job),
        }
    }

    /// `within` is how long the caller waits.
    async fn resize_traced(
        &self,
        request: ResizeRequest,
        caller: Option<CallerName>,
        within: Option<Duration>,
    ) -> Result<Response<ResizeResponse>, Status> {
        let wait_for = check(&request)?;
        self.sees(&request.namespace)?;
        let deadline = self.deadline(within);
        let key = Key::new(&request.namespace, &request.job);
        let job = self.job_for(&key, &request)?;
        if request.dry_run {
            return self.foresee(&key, &job, &request, caller.as_ref(), deadline).await.map(Response::new);
        }
        // Whoever asks again: what is known is said whatever waits, and nothing more is asked of the cluster.
        let shown = self.shown(&key, &job, &request);
        let is_decided = shown.as_ref().is_some_and(|shown| is_decided(shown, wait_for, &job));
        let waiting =
            if is_decided { None } else { Some(self.place_of_wait(&key, shown.as_ref(), caller.as_ref())?) };
        let (made, place) = match shown {
            Some(shown) => (shown, waiting.is_some().then(|| self.backlog.follow(&key, Instant::now()))),
            None => {
                let place = self.backlog.enter(&key, Instant::now()).map_err(errors::behind)?;
                match self.requested(&key, &job, &request, caller.as_ref(), deadline).await {
                    Ok(made) => (made, Some(place)),
                    Err(Unmade::Refused(status)) => {
                        // It waited for no turn.
                        place.uncount();
                        return Err(status);
                    }
                    Err(Unmade::NotStored(status)) => {
                        // Whoever hears no answer has not had its turn.
                        if !matches!(status.code(), Code::Unavailable | Code::DeadlineExceeded) {
                            place.serve(None);
                        }
                        return Err(status);
                    }
                }
            }
        };
        // They may be large, and the job change often, while the request is waited for.
        drop((job, request));
        let answer = self.wait(&key, made, caller.as_ref(), place, wait_for, deadline).await;
        drop(waiting);
        answer.map(Response::new)
    }

    /// A place among the calls that wait, for one about a new request of a job, or about one that is shown.
    fn place_of_wait(
        &self,
        key: &Key,
        shown: Option<&Resize>,
        caller: Option<&CallerName>,
    ) -> Result<places::Place, Status> {
        self.waiting.take(&key.namespace, Some(&key.name), caller).map_err(|full| match shown {
            Some(shown) => errors::too_many_waiting_for(&shown.name_any(), &full),
            None => errors::too_many_waiting("requests", &full),
        })
    }

    /// The region of a job with this name. No others are read, but for the one that may have a request of an earlier
    /// release (rule elasticity-5). It takes a while ([`Elasticity::look_off_thread`]).
    fn region_now(&self, key: &Key, name: &str) -> Result<Region, Status> {
        let Some(object) = self.view.region(&key.namespace, &key.name, name) else {
            let job = self.view.job(&key.namespace, &key.name);
            let known = ended::known_regions(job.as_ref().and_then(|job| job.status.as_ref()));
            if known.contains(&name) {
                return Err(errors::region_not_seen(&key.name, name));
            }
            return Err(ended::not_found(key, &known, name, ""));
        };
        let home = self.view.first_region(&key.namespace, &key.name);
        let objects: Vec<_> = [Arc::clone(&object)].into_iter().chain(home).collect();
        Ok(self.sight(&key.namespace, &key.name, &objects).region(&object))
    }
}

/// Whether it is known already what becomes of a request, as far as somebody waits for it.
fn is_decided(request: &Resize, wait_for: WaitFor, job: &Job) -> bool {
    let none = JobStatus::default();
    let outcome = outcome::assess(request, wait_for, job.status.as_ref().unwrap_or(&none));
    !matches!(outcome, ResizeOutcome::Waiting(_))
}

/// Checks what can be checked without looking at the cluster (rule elasticity-9).
fn check(request: &ResizeRequest) -> Result<WaitFor, Status> {
    check_namespace("namespace", &request.namespace)?;
    check_name("job", &request.job)?;
    if request.regions.is_empty() || request.regions.len() > MAX_REGIONS {
        return Err(errors::invalid_request("regions", &format!("between 1 and {MAX_REGIONS} regions are needed")));
    }
    let mut seen = BTreeSet::new();
    for (position, DesiredWidth { region, width, expected_width }) in request.regions.iter().enumerate() {
        check_region(&format!("regions[{position}].region"), region)?;
        if !seen.insert(region) {
            let message = format!("{region} is named twice");
            return Err(errors::invalid_request(&format!("regions[{position}].region"), &message));
        }
        if !(1..=WIDTH_MAX).contains(width) {
            let message = format!("width {width} of {region} is not between 1 and {WIDTH_MAX}");
            return Err(errors::invalid_width(&format!("regions[{position}].width"), &message));
        }
        if let Some(expected) = expected_width.filter(|expected| !(1..=WIDTH_MAX).contains(expected)) {
            let message = format!("no width of {region} is ever {expected}: it is between 1 and {WIDTH_MAX}");
            return Err(errors::invalid_width(&format!("regions[{position}].expected_width"), &message));
        }
    }
    requests::check_key("idempotency_key", &request.idempotency_key)?;
    if request.expected_generation.is_some_and(|generation| i64::try_from(generation).is_err()) {
        return Err(errors::invalid_request("expected_generation", "no generation is ever that high"));
    }
    if Policy::try_from(request.policy).is_err() {
        return Err(errors::invalid_request("policy", "unknown value"));
    }
    match WaitFor::try_from(request.wait_for) {
        Ok(WaitFor::Unspecified) => Ok(WaitFor::Committed),
        Ok(wait_for) => Ok(wait_for),
        Err(_) => Err(errors::invalid_request("wait_for", "unknown value")),
    }
}

/// Refuses what cannot be the name of an object.
pub(super) fn check_name(field: &str, value: &str) -> Result<(), Status> {
    object_names::check_object(value).map_err(|why| errors::invalid_request(field, why))
}

/// Refuses what cannot be the name of a namespace.
pub(super) fn check_namespace(field: &str, value: &str) -> Result<(), Status> {
    object_names::check_namespace(value).map_err(|why| errors::invalid_request(field, why))
}

/// Refuses what cannot be the name of a region: that is the logical name of an operator.
fn check_region(field: &str, value: &str) -> Result<(), Status> {
    if value.is_empty() || value.chars().nth(REGION_NAME_MAX).is_some() {
        return Err(errors::invalid_request(field, &format!("a name of 1 to {REGION_NAME_MAX} characters is needed")));
    }
    Ok(())
}

#[tonic::async_trait]
impl<V: ClusterView> ElasticityService for Elasticity<V> {
    type WatchResizeStream = BoxStream<'static, Result<WatchResizeResponse, Status>>;
    type WatchRegionsStream = BoxStream<'static, Result<WatchRegionsResponse, Status>>;

    async fn resize(&self, request: Request<ResizeRequest>) -> Result<Response<ResizeResponse>, Status> {
        let ResizeRequest { namespace, job, .. } = request.get_ref();
        // The request is looked at within the span, which outlives the call: it has no text that is no name.
        let namespace = Some(namespace.as_str()).filter(|name| object_names::check_namespace(name).is_ok());
        let job = Some(job.as_str()).filter(|name| object_names::check_object(name).is_ok());
        let span = tracing::info_span!(
            "resize",
            otel.kind = "server",
            rpc.system = "grpc",
            rpc.service = "streams.elasticity.v1.ElasticityService",
            rpc.method = "Resize",
            namespace,
            job,
            trace_id = tracing::field::Empty,
        );
        telemetry::continue_request(&span, request.metadata().as_ref());
        let (caller, within) = (caller_of(&request), deadline::wait_of(&request));
        self.resize_traced(request.into_inner(), caller, within).instrument(span).await
    }

    async fn get_region(&self, request: Request<GetRegionRequest>) -> Result<Response<Region>, Status> {
        let (caller, deadline) = (caller_of(&request), self.deadline(deadline::wait_of(&request)));
        let GetRegionRequest { namespace, job, region } = request.into_inner();
        check_namespace("namespace", &namespace)?;
        check_name("job", &job)?;
        check_region("region", &region)?;
        self.sees(&namespace)?;
        self.job(&namespace, &job)?;
        let key = Key::new(&namespace, &job);
        let look = move |service: &Self| service.region_now(&key, &region);
        self.look_off_thread(&namespace, caller.as_ref(), deadline, look).await?.map(Response::new)
    }

    async fn list_regions(
        &self,
        request: Request<ListRegionsRequest>,
    ) -> Result<Response<ListRegionsResponse>, Status> {
        let (caller, deadline) = (caller_of(&request), self.deadline(deadline::wait_of(&request)));
        let request = request.into_inner();
        // A page is bounded by itself.
        let is_whole = request.page_size == 0;
        // Nothing of the request waits that is not known to be short.
        let asked = self.page_of_regions(request)?;
        let place = || self.place_among(&self.lists, &asked.namespace, asked.job.as_deref(), caller.as_ref());
        let place = is_whole.then(place).transpose();
        let place = place.map_err(|full| errors::too_many_lists(&full))?;
        let namespace = asked.namespace.clone();
        let look = move |service: &Self| service.regions_in(asked);
        let list = self.look_off_thread(&namespace, caller.as_ref(), deadline, look).await?;
        let mut answer = Response::new(list.ok_or_else(errors::too_many_regions)?);
        hold(&mut answer, place);
        Ok(answer)
    }

    async fn get_resize(&self, request: Request<GetResizeRequest>) -> Result<Response<GetResizeResponse>, Status> {
        let (caller, deadline) = (caller_of(&request), self.deadline(deadline::wait_of(&request)));
        let found = self.named(request.into_inner().name, caller.as_ref(), deadline).await?;
        Ok(Response::new(GetResizeResponse { resize: Some(self.state_of(&found)) }))
    }

    async fn list_resizes(
        &self,
        request: Request<ListResizesRequest>,
    ) -> Result<Response<ListResizesResponse>, Status> {
        let (caller, deadline) = (caller_of(&request), self.deadline(deadline::wait_of(&request)));
        let asked = self.page_of_requests(request.into_inner())?;
        let namespace = asked.namespace.clone();
        let look = move |service: &Self| service.requests_in(asked);
        self.look_off_thread(&namespace, caller.as_ref(), deadline, look).await.map(Response::new)
    }

    async fn cancel(&self, request: Request<CancelRequest>) -> Result<Response<CancelResponse>, Status> {
        let (caller, deadline) = (caller_of(&request), self.deadline(deadline::wait_of(&request)));
        let found = self.named(request.into_inner().name, caller.as_ref(), deadline).await?;
        let cancelled = self.withdraw(found, caller.as_ref(), deadline).await?;
        Ok(Response::new(CancelResponse { resize: Some(cancelled) }))
    }

    async fn watch_resize(
        &self,
        request: Request<WatchResizeRequest>,
    ) -> Result<Response<Self::WatchResizeStream>, Status> {
        let (caller, deadline) = (caller_of(&request), self.deadline(deadline::wait_of(&request)));
        let found = self.named(request.into_inner().name, caller.as_ref(), deadline).await?;
        Ok(Response::new(self.follow_resize(found, caller.as_ref(), deadline)?.boxed()))
    }

    async fn watch_regions(
        &self,
        request: Request<WatchRegionsRequest>,
    ) -> Result<Response<Self::WatchRegionsStream>, Status> {
        let (caller, deadline) = (caller_of(&request), self.deadline(deadline::wait_of(&request)));
        let WatchRegionsRequest { namespace, job } = request.into_inner();
        let job = self.scope(&namespace, job)?;
        Ok(Response::new(self.follow_regions(namespace, job, caller.as_ref(), deadline)?.boxed()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tonic_types::StatusExt;

    fn request(widths: &[(&str, u32)]) -> ResizeRequest {
        let regions = widths.iter().map(|(region, width)| DesiredWidth {
            region: (*region).to_owned(),
            width: *width,
            expected_width: None,
        });
        ResizeRequest { namespace: "n".into(), job: "j".into(), regions: regions.collect(), ..Default::default() }
    }

    #[test]
    fn bad_requests_are_refused_before_anything_is_written() {
        let named = |namespace: &str, job: &str| {
            let (namespace, job) = (namespace.to_owned(), job.to_owned());
            ResizeRequest { namespace, job, ..request(&[("R", 1)]) }
        };
        let expecting = |width| {
            let mut request = request(&[("R", 1)]);
            request.regions[0].expected_width = Some(width);
            request
        };
        let long_key = ResizeRequest { idempotency_key: "k".repeat(257), ..request(&[("R", 1)]) };
        let odd_policy = ResizeRequest { policy: 9, ..request(&[("R", 1)]) };
        let late = ResizeRequest { expected_generation: Some(1 << 63), ..request(&[("R", 1)]) };
        let odd_wait = ResizeRequest { wait_for: 9, ..request(&[("R", 1)]) };
        let table = [
            (long_key, "INVALID_REQUEST", "idempotency_key"),
            (odd_policy, "INVALID_REQUEST", "policy"),
            (late, "INVALID_REQUEST", "expected_generation"),
            (odd_wait, "INVALID_REQUEST", "wait_for"),
            (request(&[("R", 0)]), "INVALID_WIDTH", "regions[0].width"),
            (request(&[("R", 1), ("S", 10_001)]), "INVALID_WIDTH", "regions[1].width"),
            (expecting(0), "INVALID_WIDTH", "regions[0].expected_width"),
            (expecting(10_001), "INVALID_WIDTH", "regions[0].expected_width"),
            (request(&[]), "INVALID_REQUEST", "regions"),
            (request(&[("R", 1), ("R", 2)]), "INVALID_REQUEST", "regions[1].region"),
            (request(&[("", 1)]), "INVALID_REQUEST", "regions[0].region"),
            (request(&[("R", 1), (&"é".repeat(1025), 1)]), "INVALID_REQUEST", "regions[1].region"),
            (named("n", ""), "INVALID_REQUEST", "job"),
            (named("n", "?watch=true"), "INVALID_REQUEST", "job"),
            (named("n", "a/b"), "INVALID_REQUEST", "job"),
            (named("n", &"a".repeat(254)), "INVALID_REQUEST", "job"),
            (named("", "j"), "INVALID_REQUEST", "namespace"),
            (named("n.m", "j"), "INVALID_REQUEST", "namespace"),
            (named("n/pods", "j"), "INVALID_REQUEST", "namespace"),
        ];
        for (request, reason, field) in table {
            let status = check(&request).unwrap_err();
            let details = status.get_error_details();
            assert_eq!(status.code(), tonic::Code::InvalidArgument);
            assert_eq!(details.error_info().unwrap().reason, reason);
            assert_eq!(details.bad_request().unwrap().field_violations[0].field, field);
        }
        assert!(check(&request(&[("R", 1), ("S", 10_000)])).is_ok() && check(&expecting(10_000)).is_ok());
        assert!(check(&request(&[(&"é".repeat(1024), 1)])).is_ok());
        assert!(check(&named(&"n".repeat(63), &["j"; 127].join("."))).is_ok());
    }
}
