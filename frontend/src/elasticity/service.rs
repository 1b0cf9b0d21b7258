//! The gRPC service: checks a request, writes the widths, waits.

use super::{
    errors,
    observed::Observed,
    outcome::{self, Outcome, Written},
};
use crate::{
    api::{Job, ParallelRegion, names, parallel_region::WIDTH_MAX},
    telemetry,
};
use kube::{
    Api, Client,
    api::{Patch, PatchParams},
};
use std::{collections::BTreeSet, sync::Arc, time::Duration};
use streams_proto::elasticity::v1::{
    GetRegionRequest, ListRegionsRequest, ListRegionsResponse, Region, ResizeRequest, ResizeResponse,
    elasticity_service_server::ElasticityService, resize_request::DesiredWidth, resize_request::WaitFor,
};
use tokio::time::{Instant, timeout_at};
use tonic::{Request, Response, Status};
use tracing::Instrument;

/// Field manager of `spec.width` written by this API.
const FIELD_MANAGER: &str = "streams-elasticity";
/// Regions in one request.
const MAX_REGIONS: usize = 256;
/// How often a write is tried again after somebody else wrote the same region.
const MAX_CONFLICTS: usize = 5;

/// The service.
pub struct Elasticity<O> {
    client: Client,
    observed: Arc<O>,
    longest_wait: Duration,
}

impl<O: Observed> Elasticity<O> {
    /// A service that writes with `client` and sees through `observed`; no request waits longer than `longest_wait`.
    pub fn new(client: Client, observed: Arc<O>, longest_wait: Duration) -> Self {
        Self { client, observed, longest_wait }
    }

    fn job(&self, namespace: &str, name: &str) -> Result<Arc<Job>, Status> {
        self.observed.job(namespace, name).ok_or_else(|| errors::job_not_found(namespace, name))
    }

    /// The object of a region of a job.
    fn object(&self, namespace: &str, job: &str, region: &str) -> Result<Arc<ParallelRegion>, Status> {
        let regions = self.observed.regions(namespace, Some(job));
        if let Some(found) = regions.iter().find(|r| r.spec.name == region) {
            return Ok(Arc::clone(found));
        }
        let known: BTreeSet<&str> = regions.iter().map(|r| r.spec.name.as_str()).collect();
        Err(errors::region_not_found(namespace, job, region, &known.into_iter().collect::<Vec<_>>()))
    }

    /// Writes one desired width. The precondition is checked against the object that is written.
    async fn write(&self, namespace: &str, object: &ParallelRegion, desired: &DesiredWidth) -> Result<Written, Status> {
        let api: Api<ParallelRegion> = Api::namespaced(self.client.clone(), namespace);
        let name = object.metadata.name.clone().unwrap_or_default();
        let mut current = object.clone();
        for _ in 0..=MAX_CONFLICTS {
            if let Some(expected) = desired.expected_width.filter(|expected| *expected != current.spec.width) {
                return Err(errors::width_mismatch(&desired.region, expected, current.spec.width));
            }
            let trace = telemetry::trace_parent();
            let is_new = i64::from(current.spec.width != desired.width);
            let generation = current.metadata.generation.map(|before| before.saturating_add(is_new).to_string());
            let patch = serde_json::json!({
                "metadata": {
                    "resourceVersion": current.metadata.resource_version,
                    // The controllers go on with the trace of the caller; a former one ends here.
                    "annotations": {
                        names::ANNOTATION_TRACE_PARENT: trace,
                        names::ANNOTATION_TRACE_GENERATION: generation.filter(|_| trace.is_some()),
                    },
                },
                "spec": { "width": desired.width },
            });
            let parameters = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
            match api.patch(&name, &parameters, &Patch::Merge(&patch)).await {
                Ok(written) => {
                    return Ok(Written {
                        object_name: name,
                        region: desired.region.clone(),
                        width: desired.width,
                        object_generation: written.metadata.generation.unwrap_or(0),
                    });
                }
                Err(kube::Error::Api(status)) if status.code == 409 => {
                    current = api.get(&name).await.map_err(|error| from_kubernetes(&error))?;
                }
                Err(error) => return Err(from_kubernetes(&error)),
            }
        }
        Err(Status::aborted(format!("region {} is being changed by others all the time", desired.region)))
    }

    async fn resize_traced(&self, request: ResizeRequest) -> Result<Response<ResizeResponse>, Status> {
        check(&request)?;
        let wait_for = match WaitFor::try_from(request.wait_for) {
            Ok(WaitFor::Unspecified) => WaitFor::Committed,
            Ok(wait_for) => wait_for,
            Err(_) => return Err(errors::invalid_request("wait_for", "unknown value")),
        };
        let (namespace, name) = (request.namespace.as_str(), request.job.as_str());
        let job = self.job(namespace, name)?;
        let status = job.status.clone().unwrap_or_default();
        let before = status.generation;
        if before.is_none() {
            let condition = crate::api::condition::get(&status.conditions, crate::api::condition::SUBMITTED);
            let why = condition.map_or("it was not looked at yet", |c| c.message.as_str());
            return Err(errors::not_submitted(name, why));
        }
        // All regions are looked up before the first is written.
        let mut objects = Vec::with_capacity(request.regions.len());
        for desired in &request.regions {
            let object = self.object(namespace, name, &desired.region)?;
            if let Some(expected) = desired.expected_width.filter(|expected| *expected != object.spec.width) {
                return Err(errors::width_mismatch(&desired.region, expected, object.spec.width));
            }
            objects.push(object);
        }
        let mut written = Vec::with_capacity(objects.len());
        for (object, desired) in objects.iter().zip(&request.regions) {
            written.push(self.write(namespace, object, desired).await?);
        }
        tracing::info!(widths = ?written.iter().map(|w| (&w.region, w.width)).collect::<Vec<_>>(), "widths desired");
        match self.wait(namespace, name, before, &written, wait_for).await? {
            Outcome::Done { generation, changes } => {
                let job = self.observed.job(namespace, name);
                let objects = self.observed.regions(namespace, Some(name));
                let regions = request.regions.iter().filter_map(|desired| {
                    let object = objects.iter().find(|o| o.spec.name == desired.region)?;
                    let mut region = outcome::region(object, job.as_deref());
                    if wait_for == WaitFor::Accepted {
                        // The mirror may be behind the write.
                        region.desired_width = desired.width;
                    }
                    Some(region)
                });
                Ok(Response::new(ResizeResponse { regions: regions.collect(), generation, changes }))
            }
            Outcome::Rejected { message, stage, code } => {
                Err(errors::rejected(&message, stage.as_deref(), code.as_deref()))
            }
            Outcome::Superseded { region, wanted, now } => Err(errors::superseded(&region, wanted, now)),
            Outcome::Gone(message) => Err(Status::not_found(message)),
            Outcome::Waiting(what) => Err(Status::internal(format!("ended while waiting for {what}"))),
        }
    }

    async fn wait(
        &self,
        namespace: &str,
        job: &str,
        before: Option<u64>,
        written: &[Written],
        wait_for: WaitFor,
    ) -> Result<Outcome, Status> {
        let deadline = Instant::now() + self.longest_wait;
        let mut changes = self.observed.changes();
        loop {
            changes.mark_unchanged();
            let regions = self.observed.regions(namespace, Some(job));
            let observed = self.observed.job(namespace, job);
            match outcome::judge(written, before, wait_for, observed.as_deref(), &regions) {
                Outcome::Waiting(what) => match timeout_at(deadline, changes.changed()).await {
                    Ok(Ok(())) => {}
                    Ok(Err(_)) => return Err(Status::unavailable("the server is shutting down")),
                    Err(_) => {
                        let message = format!("still waiting for {what}; the widths stay desired");
                        return Err(Status::deadline_exceeded(message));
                    }
                },
                outcome => return Ok(outcome),
            }
        }
    }
}

fn from_kubernetes(error: &kube::Error) -> Status {
    match error {
        kube::Error::Api(status) if status.code == 404 => Status::not_found(status.message.clone()),
        kube::Error::Api(status) if status.code == 403 => Status::permission_denied(status.message.clone()),
        kube::Error::Api(status) if (400..500).contains(&status.code) => {
            errors::invalid_request("regions", &status.message)
        }
        error => Status::unavailable(format!("the Kubernetes API did not take the change: {error}")),
    }
}

/// Checks what can be checked without looking at the cluster.
fn check(request: &ResizeRequest) -> Result<(), Status> {
    for (field, value) in [("namespace", &request.namespace), ("job", &request.job)] {
        check_name(field, value)?;
    }
    if request.regions.is_empty() || request.regions.len() > MAX_REGIONS {
        return Err(errors::invalid_request("regions", &format!("between 1 and {MAX_REGIONS} regions are needed")));
    }
    let mut seen = BTreeSet::new();
    for (position, DesiredWidth { region, width, .. }) in request.regions.iter().enumerate() {
        if region.is_empty() {
            return Err(errors::invalid_request(&format!("regions[{position}].region"), "a name is needed"));
        }
        if !seen.insert(region) {
            let message = format!("{region} is named twice");
            return Err(errors::invalid_request(&format!("regions[{position}].region"), &message));
        }
        if !(1..=WIDTH_MAX).contains(width) {
            let message = format!("width {width} of {region} is not between 1 and {WIDTH_MAX}");
            return Err(errors::invalid_width(&format!("regions[{position}].width"), &message));
        }
    }
    Ok(())
}

fn check_name(field: &str, value: &str) -> Result<(), Status> {
    if value.is_empty() || value.len() > 253 {
        return Err(errors::invalid_request(field, "a name is needed"));
    }
    Ok(())
}

#[tonic::async_trait]
impl<O: Observed> ElasticityService for Elasticity<O> {
    async fn resize(&self, request: Request<ResizeRequest>) -> Result<Response<ResizeResponse>, Status> {
        let ResizeRequest { namespace, job, .. } = request.get_ref();
        let span = tracing::info_span!("resize", otel.kind = "server", %namespace, %job);
        if let Some(Ok(trace)) = request.metadata().get(telemetry::TRACE_PARENT).map(|value| value.to_str()) {
            telemetry::continue_trace(&span, trace);
        }
        self.resize_traced(request.into_inner()).instrument(span).await
    }
    async fn get_region(&self, request: Request<GetRegionRequest>) -> Result<Response<Region>, Status> {
        let GetRegionRequest { namespace, job, region } = request.into_inner();
        for (field, value) in [("namespace", &namespace), ("job", &job), ("region", &region)] {
            check_name(field, value)?;
        }
        let owner = self.job(&namespace, &job)?;
        let object = self.object(&namespace, &job, &region)?;
        Ok(Response::new(outcome::region(&object, Some(&owner))))
    }

    async fn list_regions(
        &self,
        request: Request<ListRegionsRequest>,
    ) -> Result<Response<ListRegionsResponse>, Status> {
        let ListRegionsRequest { namespace, job } = request.into_inner();
        check_name("namespace", &namespace)?;
        let job = Some(job).filter(|job| !job.is_empty());
        if let Some(job) = &job {
            self.job(&namespace, job)?;
        }
        let mut objects = self.observed.regions(&namespace, job.as_deref());
        objects.sort_by(|a, b| (&a.spec.job_name, &a.spec.name).cmp(&(&b.spec.job_name, &b.spec.name)));
        let regions = objects.iter().map(|object| {
            let owner = self.observed.job(&namespace, &object.spec.job_name);
            outcome::region(object, owner.as_deref())
        });
        Ok(Response::new(ListRegionsResponse { regions: regions.collect() }))
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
        ResizeRequest { namespace: "n".into(), job: "j".into(), regions: regions.collect(), wait_for: 0 }
    }

    #[test]
    fn bad_requests_are_refused_before_anything_is_written() {
        let mut nameless = request(&[("R", 1)]);
        nameless.job = String::new();
        let table = [
            (request(&[("R", 0)]), "INVALID_WIDTH", "regions[0].width"),
            (request(&[("R", 1), ("S", 10_001)]), "INVALID_WIDTH", "regions[1].width"),
            (request(&[]), "INVALID_REQUEST", "regions"),
            (request(&[("R", 1), ("R", 2)]), "INVALID_REQUEST", "regions[1].region"),
            (request(&[("", 1)]), "INVALID_REQUEST", "regions[0].region"),
            (nameless, "INVALID_REQUEST", "job"),
        ];
        for (request, reason, field) in table {
            let status = check(&request).unwrap_err();
            let details = status.get_error_details();
            assert_eq!(status.code(), tonic::Code::InvalidArgument);
            assert_eq!(details.error_info().unwrap().reason, reason);
            assert_eq!(details.bad_request().unwrap().field_violations[0].field, field);
        }
        assert!(check(&request(&[("R", 1), ("S", 10_000)])).is_ok());
    }
}
