//! Writes desired widths (rule elasticity-10): one width into the spec of its region, several as a request that the
//! job controller takes over as a whole ([`requested_widths`](streams_api::requested_widths)). Each is one
//! compare-and-swap.

use super::outcome::WrittenWidth;
use super::view::ClusterView;
use super::{Elasticity, errors};
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt};
use serde_json::Value;
use std::collections::BTreeSet;
use streams_api::requested_widths::home;
use streams_api::{Job, ParallelRegion, RequestedWidth, RequestedWidths, names};
use streams_kubernetes::ownership::is_controlled_by;
use streams_process::telemetry;
use streams_proto::elasticity::v1::resize_request::DesiredWidth;
use tokio::time::{Instant, timeout_at};
use tonic::Status;

/// How often a write is tried again after somebody else wrote the same region.
const MAX_CONFLICTS: usize = 5;

impl<V: ClusterView> Elasticity<V> {
    /// Writes desired widths of regions of a job, all of them or none. Preconditions are checked against what is
    /// written.
    pub(super) async fn write_desired(&self, job: &Job, desired: &[DesiredWidth]) -> Result<Vec<WrittenWidth>, Status> {
        let (namespace, name) = (job.namespace().unwrap_or_default(), job.name_any());
        let mirrored = self.view.regions(&namespace, Some(&name));
        let regions = || mirrored.iter().map(|region| &**region);
        for DesiredWidth { region, .. } in desired {
            find(job, regions(), region)?;
        }
        let request = RequestedWidths::read(regions());
        if let [one] = desired {
            let region = find(job, regions(), &one.region)?;
            // What is in a request already can only be changed by the next one.
            if request.is_none_or(|request| request.pending(region).is_none()) {
                return Ok(vec![self.write(region, one).await?]);
            }
        }
        self.request(job, desired).await
    }

    fn api(&self, namespace: &str) -> Api<ParallelRegion> {
        Api::namespaced(self.client.clone(), namespace)
    }

    /// Writes one width into the spec of its region.
    async fn write(&self, mirrored: &ParallelRegion, desired: &DesiredWidth) -> Result<WrittenWidth, Status> {
        let (api, name) = (self.api(&mirrored.namespace().unwrap_or_default()), mirrored.name_any());
        let trace = telemetry::trace_parent();
        let mut read = None;
        for _ in 0..=MAX_CONFLICTS {
            let current = read.as_ref().unwrap_or(mirrored);
            match check_expected(current, desired) {
                // The mirror may be behind what the caller has seen.
                Err(_) if read.is_none() => {}
                Err(refused) => return Err(refused),
                Ok(()) => {
                    let change = current.with_width(desired.width, trace.as_deref());
                    if let Some(region) = patch(&api, &name, change).await? {
                        return Ok(written(&region, desired));
                    }
                }
            }
            read = Some(api.get(&name).await.map_err(|error| from_kubernetes(&error))?);
        }
        Err(Status::aborted(format!("region {} is being changed by others all the time", desired.region)))
    }

    /// Writes several widths as a request. Waits until the one before was taken over.
    async fn request(&self, job: &Job, desired: &[DesiredWidth]) -> Result<Vec<WrittenWidth>, Status> {
        let api = self.api(&job.namespace().unwrap_or_default());
        let all = ListParams::default().labels(&format!("{}={}", names::LABEL_JOB, job.name_any()));
        let deadline = Instant::now() + self.longest_wait;
        let mut changes = self.view.changes();
        let mut conflicts = 0;
        while conflicts <= MAX_CONFLICTS {
            changes.mark_unchanged();
            // All of them as they are at one moment.
            let mut regions = api.list(&all).await.map_err(|error| from_kubernetes(&error))?.items;
            regions.retain(|region| is_controlled_by(&region.metadata, job));
            if let Some(former) = RequestedWidths::read(&regions)
                && let Some(region) = regions.iter().find(|region| former.pending(region).is_some())
            {
                match timeout_at(deadline, changes.changed()).await {
                    Ok(Ok(())) => continue,
                    Ok(Err(_)) => return Err(Status::unavailable("the server is shutting down")),
                    Err(_) => {
                        let region = &region.spec.name;
                        let message =
                            format!("an earlier request that names {region} was not taken over: no frontend leads?");
                        return Err(Status::unavailable(message));
                    }
                }
            }
            let mut widths = Vec::with_capacity(desired.len());
            let mut expected = Vec::with_capacity(desired.len());
            let mut is_any_new = false;
            for desired in desired {
                let region = find(job, &regions, &desired.region)?;
                check_expected(region, desired)?;
                widths.push(RequestedWidth::of(region, desired.width));
                let is_new = region.spec.width != desired.width;
                is_any_new |= is_new;
                let generation = region.metadata.generation.unwrap_or(0).saturating_add(i64::from(is_new));
                expected.push(WrittenWidth { object_generation: generation, ..written(region, desired) });
            }
            if !is_any_new {
                return Ok(expected);
            }
            // At least one region was found.
            let Some(home) = home(&regions) else { break };
            let request = RequestedWidths { widths, trace_parent: telemetry::trace_parent() };
            let request = serde_json::to_string(&request).map_err(|error| Status::internal(error.to_string()))?;
            let change = serde_json::json!({"metadata": {
                "resourceVersion": home.metadata.resource_version,
                "annotations": { names::ANNOTATION_REQUESTED_WIDTHS: request },
            }});
            if patch(&api, &home.name_any(), change).await?.is_some() {
                return Ok(expected);
            }
            conflicts += 1;
        }
        Err(Status::aborted(format!("the regions of {} are being changed by others all the time", job.name_any())))
    }
}

/// Changes a region; `None` when somebody else has changed it meanwhile.
async fn patch(api: &Api<ParallelRegion>, name: &str, change: Value) -> Result<Option<ParallelRegion>, Status> {
    let parameters =
        PatchParams { field_manager: Some(names::ELASTICITY_MANAGER.to_owned()), ..PatchParams::default() };
    match api.patch(name, &parameters, &Patch::Merge(&change)).await {
        Ok(written) => Ok(Some(written)),
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(None),
        Err(error) => Err(from_kubernetes(&error)),
    }
}

fn written(region: &ParallelRegion, desired: &DesiredWidth) -> WrittenWidth {
    WrittenWidth {
        object_name: region.name_any(),
        region: desired.region.clone(),
        width: desired.width,
        object_generation: region.metadata.generation.unwrap_or(0),
    }
}

fn check_expected(region: &ParallelRegion, desired: &DesiredWidth) -> Result<(), Status> {
    match desired.expected_width {
        Some(expected) if expected != region.spec.width => {
            Err(errors::width_mismatch(&desired.region, expected, region.spec.width))
        }
        _ => Ok(()),
    }
}

/// The region of a job with this logical name.
pub(super) fn find<'a>(
    job: &Job,
    regions: impl IntoIterator<Item = &'a ParallelRegion> + Clone,
    name: &str,
) -> Result<&'a ParallelRegion, Status> {
    let found = regions.clone().into_iter().find(|region| region.spec.name == name);
    found.ok_or_else(|| not_found(job, regions, name))
}

/// There is no such region among those of the job.
pub(super) fn not_found<'a>(job: &Job, regions: impl IntoIterator<Item = &'a ParallelRegion>, name: &str) -> Status {
    let known: BTreeSet<&str> = regions.into_iter().map(|region| region.spec.name.as_str()).collect();
    let namespace = job.namespace().unwrap_or_default();
    errors::region_not_found(&namespace, &job.name_any(), name, &known.into_iter().collect::<Vec<_>>())
}

fn from_kubernetes(error: &kube::Error) -> Status {
    match error {
        kube::Error::Api(status) if status.code == 404 => Status::not_found(status.message.clone()),
        kube::Error::Api(status) if status.code == 403 => Status::permission_denied(status.message.clone()),
        kube::Error::Api(status) if matches!(status.code, 400 | 422) => {
            errors::invalid_request("regions", &status.message)
        }
        error => Status::unavailable(format!("the Kubernetes API did not take the change: {error}")),
    }
}
