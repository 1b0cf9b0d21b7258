//! The gRPC service: checks a request, has the widths written, waits.

use super::desired_widths::{find, not_found};
use super::outcome::{self, ResizeOutcome, WrittenWidth};
use super::view::ClusterView;
use super::{Elasticity, MOST_WAITING, deadline, errors};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use streams_api::parallel_region::WIDTH_MAX;
use streams_api::{Job, RequestedWidths};
use streams_process::telemetry;
use streams_proto::elasticity::v1::elasticity_service_server::ElasticityService;
use streams_proto::elasticity::v1::resize_request::{DesiredWidth, WaitFor};
use streams_proto::elasticity::v1::{
    GetRegionRequest, ListRegionsRequest, ListRegionsResponse, Region, ResizeRequest, ResizeResponse,
};
use tokio::time::{Instant, timeout_at};
use tonic::{Request, Response, Status};
use tracing::Instrument;

/// Regions in one request.
const MAX_REGIONS: usize = 256;

impl<V: ClusterView> Elasticity<V> {
    fn job(&self, namespace: &str, name: &str) -> Result<Arc<Job>, Status> {
        self.view.job(namespace, name).ok_or_else(|| errors::job_not_found(namespace, name))
    }

    /// `within` is how long the caller waits.
    async fn resize_traced(
        &self,
        request: ResizeRequest,
        within: Option<Duration>,
    ) -> Result<Response<ResizeResponse>, Status> {
        check(&request)?;
        let deadline = Instant::now() + within.map_or(self.longest_wait, |within| within.min(self.longest_wait));
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
            let condition = streams_api::condition::get(&status.conditions, streams_api::condition::SUBMITTED);
            let why = condition.map_or("it was not looked at yet", |c| c.message.as_str());
            return Err(errors::not_submitted(name, why));
        }
        let Ok(_place) = self.waiting.try_acquire() else { return Err(errors::too_many_waiting(MOST_WAITING)) };
        let written = self.write_desired(&job, &request.regions).await?;
        tracing::info!(widths = ?written.iter().map(|w| (&w.region, w.width)).collect::<Vec<_>>(), "widths desired");
        match self.wait(namespace, name, before, &written, wait_for, deadline).await? {
            ResizeOutcome::Done { generation, changes } => {
                let job = self.view.job(namespace, name);
                let objects = self.view.regions(namespace, Some(name));
                let resize = RequestedWidths::read(objects.iter().map(|object| &**object));
                let regions = request.regions.iter().filter_map(|desired| {
                    let object = objects.iter().find(|o| o.spec.name == desired.region)?;
                    let mut region = outcome::region(object, job.as_deref(), resize.as_ref());
                    if wait_for == WaitFor::Accepted {
                        // The mirror may be behind the write.
                        region.desired_width = desired.width;
                    }
                    Some(region)
                });
                Ok(Response::new(ResizeResponse { regions: regions.collect(), generation, changes }))
            }
            ResizeOutcome::Rejected { message, stage, code } => {
                Err(errors::rejected(&message, stage.as_deref(), code.as_deref()))
            }
            ResizeOutcome::Superseded { region, wanted, now } => Err(errors::superseded(&region, wanted, now)),
            ResizeOutcome::Gone { region: None } => Err(errors::job_not_found(namespace, name)),
            ResizeOutcome::Gone { region: Some(region) } => {
                let regions = self.view.regions(namespace, Some(name));
                Err(not_found(&job, regions.iter().map(|region| &**region), &region))
            }
            ResizeOutcome::Waiting(what) => Err(Status::internal(format!("ended while waiting for {what}"))),
        }
    }

    async fn wait(
        &self,
        namespace: &str,
        job: &str,
        before: Option<u64>,
        written: &[WrittenWidth],
        wait_for: WaitFor,
        deadline: Instant,
    ) -> Result<ResizeOutcome, Status> {
        let mut changes = self.view.changes();
        loop {
            changes.mark_unchanged();
            let regions = self.view.regions(namespace, Some(job));
            let observed = self.view.job(namespace, job);
            match outcome::assess(written, before, wait_for, observed.as_deref(), &regions) {
                ResizeOutcome::Waiting(what) => tokio::select! {
                    biased;
                    () = self.stopping.cancelled() => return Err(errors::shutting_down(&what)),
                    changed = timeout_at(deadline, changes.changed()) => match changed {
                        Ok(Ok(())) => {}
                        Ok(Err(_)) => return Err(errors::shutting_down(&what)),
                        Err(_) => return Err(errors::still_waiting(&what)),
                    },
                },
                outcome => return Ok(outcome),
            }
        }
    }
}

/// Checks what can be checked without looking at the cluster (rule elasticity-9).
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
impl<V: ClusterView> ElasticityService for Elasticity<V> {
    async fn resize(&self, request: Request<ResizeRequest>) -> Result<Response<ResizeResponse>, Status> {
        let ResizeRequest { namespace, job, .. } = request.get_ref();
        let span = tracing::info_span!("resize", otel.kind = "server", %namespace, %job);
        if let Some(Ok(trace)) = request.metadata().get(telemetry::TRACE_PARENT).map(|value| value.to_str()) {
            telemetry::continue_trace(&span, trace);
        }
        let within = deadline::wait_of(request.metadata());
        self.resize_traced(request.into_inner(), within).instrument(span).await
    }

    async fn get_region(&self, request: Request<GetRegionRequest>) -> Result<Response<Region>, Status> {
        let GetRegionRequest { namespace, job, region } = request.into_inner();
        for (field, value) in [("namespace", &namespace), ("job", &job), ("region", &region)] {
            check_name(field, value)?;
        }
        let owner = self.job(&namespace, &job)?;
        let regions = self.view.regions(&namespace, Some(&job));
        let object = find(&owner, regions.iter().map(|region| &**region), &region)?;
        let resize = RequestedWidths::read(regions.iter().map(|region| &**region));
        Ok(Response::new(outcome::region(object, Some(&owner), resize.as_ref())))
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
        let mut objects = self.view.regions(&namespace, job.as_deref());
        objects.sort_by(|a, b| (&a.spec.job_name, &a.spec.name).cmp(&(&b.spec.job_name, &b.spec.name)));
        let of_jobs = objects.chunk_by(|a, b| a.spec.job_name == b.spec.job_name).flat_map(|of_job| {
            let owner = of_job.first().and_then(|region| self.view.job(&namespace, &region.spec.job_name));
            let resize = RequestedWidths::read(of_job.iter().map(|region| &**region));
            of_job.iter().map(move |object| outcome::region(object, owner.as_deref(), resize.as_ref()))
        });
        Ok(Response::new(ListRegionsResponse { regions: of_jobs.collect() }))
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
