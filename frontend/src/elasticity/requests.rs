//! Requests as objects (rule elasticity-10): makes a `Resize`, or finds the one that an earlier call with the same key
//! has made. One call of the API server. The object outlives the call, the caller and this process.

use super::errors;
use kube::api::PostParams;
use kube::{Api, Client, ResourceExt as _};
use streams_api::resize::{KEY_MAX, name_of_key};
use streams_api::{DesiredWidth, Job, Resize, ResizePolicy, ResizeSpec, names};
use streams_kubernetes::ownership::{controlled_by, is_controlled_by};
use streams_process::telemetry;
use streams_proto::elasticity::v1::ResizeRequest;
use streams_proto::elasticity::v1::resize_request::Policy;
use tonic::Status;

/// Makes the object for a request to resize this job, or finds it.
pub(super) async fn make(client: &Client, job: &Job, request: &ResizeRequest) -> Result<Resize, Status> {
    let api: Api<Resize> = Api::namespaced(client.clone(), &job.namespace().unwrap_or_default());
    let wanted = object(job, request);
    let parameters = PostParams { field_manager: Some(names::ELASTICITY_MANAGER.to_owned()), ..PostParams::default() };
    match api.create(&parameters, &wanted).await {
        Err(kube::Error::Api(status)) if status.code == 409 && wanted.metadata.name.is_some() => {
            let found = find(client, job, request).await?;
            found.ok_or_else(|| Status::unavailable("the request with this key is just being deleted"))
        }
        made => made.map_err(|error| from_kubernetes(&error)),
    }
}

/// The object that the key of a request names, if there is one.
pub(super) async fn find(client: &Client, job: &Job, request: &ResizeRequest) -> Result<Option<Resize>, Status> {
    let wanted = object(job, request);
    let Some(name) = &wanted.metadata.name else { return Ok(None) };
    match get(client, &job.namespace().unwrap_or_default(), name).await? {
        Some(found) if found.spec != wanted.spec || !is_controlled_by(&found.metadata, job) => {
            Err(errors::key_reused(name))
        }
        found => Ok(found),
    }
}

/// The object. Everything that the job controller needs to look at it at once is in it.
pub(super) fn object(job: &Job, request: &ResizeRequest) -> Resize {
    let mut object = Resize::new("", spec(job, request));
    let meta = &mut object.metadata;
    meta.name = None;
    meta.owner_references = Some(vec![controlled_by(job)]);
    meta.labels = Some([(names::LABEL_JOB.to_owned(), job.name_any())].into());
    meta.annotations =
        telemetry::trace_parent().map(|trace| [(names::ANNOTATION_TRACE_PARENT.to_owned(), trace)].into());
    if request.idempotency_key.is_empty() {
        meta.generate_name = Some(format!("{}-", job.name_any()));
    } else {
        meta.name = Some(name_of_key(job, &request.idempotency_key));
    }
    object
}

/// The request of this name, as the API server has it.
pub(super) async fn get(client: &Client, namespace: &str, name: &str) -> Result<Option<Resize>, Status> {
    let api: Api<Resize> = Api::namespaced(client.clone(), namespace);
    api.get_opt(name).await.map_err(|error| from_kubernetes(&error))
}

/// Refuses a key that is too long.
pub(super) fn check_key(field: &str, key: &str) -> Result<(), Status> {
    if key.len() > KEY_MAX {
        return Err(errors::invalid_request(field, &format!("a key has at most {KEY_MAX} bytes")));
    }
    Ok(())
}

fn spec(job: &Job, request: &ResizeRequest) -> ResizeSpec {
    let regions = request.regions.iter().map(|desired| DesiredWidth {
        name: desired.region.clone(),
        width: desired.width,
        expected_width: desired.expected_width,
    });
    ResizeSpec {
        job_name: job.name_any(),
        regions: regions.collect(),
        expected_generation: request.expected_generation,
        policy: match request.policy() {
            Policy::Unspecified | Policy::Sticky => ResizePolicy::Sticky,
            Policy::Rebalance => ResizePolicy::Rebalance,
        },
    }
}

pub(super) fn from_kubernetes(error: &kube::Error) -> Status {
    match error {
        kube::Error::Api(status) if status.code == 404 => Status::not_found(status.message.clone()),
        kube::Error::Api(status) if status.code == 403 => Status::permission_denied(status.message.clone()),
        kube::Error::Api(status) if matches!(status.code, 400 | 422) => {
            errors::invalid_request("regions", &status.message)
        }
        error => Status::unavailable(format!("the Kubernetes API did not take the request: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use streams_api::{BundleReference, JobSpec};

    #[test]
    fn a_request_with_a_key_has_its_name_and_another_one_gets_one() {
        let job = |uid: &str| {
            let mut job = Job::new("flow", JobSpec::of(BundleReference::default()));
            job.metadata.uid = Some(uid.to_owned());
            job
        };
        let keyed = ResizeRequest { idempotency_key: "k".into(), ..ResizeRequest::default() };
        let meta = object(&job("u1"), &keyed).metadata;
        assert_eq!((meta.name.as_deref(), meta.generate_name), (Some("flow-9d96789a340ffdb657e9"), None));
        let meta = object(&job("u1"), &ResizeRequest::default()).metadata;
        assert_eq!((meta.name, meta.generate_name.as_deref()), (None, Some("flow-")));
    }
}
