//! The elasticity API as a load balancer sees it: preconditions, errors with details, reflection, health
//! (rules elasticity-9 and elasticity-13).

use super::fixture::{Moment, WITHIN, reason, until_taken, with_system};
use super::quota::{Limited, Quota};
use anyhow::{Context as _, Result, ensure};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use integration_tests::sample::{CLEAN, SCORE};
use integration_tests::system::job::ObservedJob;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use serde_json::json;
use std::time::Duration;
use streams_api::resize::RESIZES_MAX;
use streams_api::{Job, Resize};
use streams_control_plane::process::serves_grpc;
use streams_control_plane::wait::eventually;
use streams_proto::elasticity::v1::resize_request::WaitFor;
use streams_proto::elasticity::v1::{GetRegionRequest, ListRegionsRequest, ResizeRequest};
use tonic::Code;
use tonic_types::StatusExt as _;

const DOMAIN: &str = "elasticity.streams.ibm.com";

#[tokio::test]
async fn a_wrong_request_is_refused_with_code_reason_and_place_and_changes_nothing() -> Result<()> {
    with_system("elasticity", async |it| {
        let job = it.submitted().await?;
        let before = Moment::of(&job).await?;
        let stranger = ObservedJob::new(&it.client, &it.namespace, "stranger");
        let request = |job: &ObservedJob, region, width| job.resize_request(&[(region, width)], WaitFor::RolledOut);
        let expecting = |expected_width| {
            let mut request = request(&job, CLEAN, 3);
            request.regions[0].expected_width = Some(expected_width);
            request
        };
        let one_is_wrong = {
            let mut request = job.resize_request(&[(CLEAN, 3), (SCORE, 3)], WaitFor::RolledOut);
            request.regions[1].expected_width = Some(7);
            request
        };
        let early = ResizeRequest { expected_generation: Some(4), ..request(&job, CLEAN, 3) };
        let accepted = ResizeRequest { wait_for: WaitFor::Accepted.into(), ..expecting(7) };
        let twice = job.resize_request(&[(CLEAN, 3), (CLEAN, 4)], WaitFor::RolledOut);
        let none = job.resize_request(&[], WaitFor::RolledOut);
        let half = job.resize_request(&[(CLEAN, 3), ("Nowhere", 3)], WaitFor::RolledOut);
        // request -> code, reason, what the message names
        let table = [
            (request(&stranger, CLEAN, 3), Code::NotFound, "JOB_NOT_FOUND", "stranger"),
            (request(&job, "Nowhere", 3), Code::NotFound, "REGION_NOT_FOUND", "Clean, Score, Score.Model"),
            (half, Code::NotFound, "REGION_NOT_FOUND", "Nowhere"),
            (request(&job, CLEAN, 0), Code::InvalidArgument, "INVALID_WIDTH", "regions[0].width"),
            (request(&job, CLEAN, 10_001), Code::InvalidArgument, "INVALID_WIDTH", "10001"),
            (twice, Code::InvalidArgument, "INVALID_REQUEST", "regions[1].region"),
            (none, Code::InvalidArgument, "INVALID_REQUEST", "regions"),
            (one_is_wrong, Code::FailedPrecondition, "WIDTH_MISMATCH", "Score is 2, not 7"),
            (expecting(7), Code::FailedPrecondition, "WIDTH_MISMATCH", "is 2, not 7"),
            (early, Code::FailedPrecondition, "GENERATION_MISMATCH", "generation 0 of the job is committed, not 4"),
            (accepted, Code::FailedPrecondition, "WIDTH_MISMATCH", "is 2, not 7"),
        ];
        let balancer = it.frontend()?.balancer().await?;
        for (request, code, reason, named) in table {
            let request: ResizeRequest = request;
            let what = format!("{:?} of {}", request.regions, request.job);
            let answer = until_taken(balancer.clone(), request, WITHIN).await;
            let status = answer.err().with_context(|| format!("{what} was taken"))?;
            let details = status.get_error_details();
            let info = details.error_info().with_context(|| format!("{what}: no details in {status:?}"))?;
            ensure!(status.code() == code && info.reason == reason && info.domain == DOMAIN, "{what}: {status:?}");
            ensure!(status.message().contains(named), "{what}: {}", status.message());
            match code {
                Code::NotFound => ensure!(details.resource_info().is_some(), "{what}: which resource?"),
                Code::InvalidArgument => ensure!(details.bad_request().is_some(), "{what}: which field?"),
                _ => {}
            }
        }
        // The precondition that holds, last: nothing of the above has changed the width.
        let answer = until_taken(balancer, expecting(2), WITHIN).await?;
        ensure!(answer.generation == Some(1), "{answer:?}");
        let changed = Moment::of(&job).await?.since(&before)?;
        ensure!(changed == super::fixture::resize_of_clean(2, 3), "{changed:#?}");
        Ok(())
    })
    .await
}

/// Whoever asks again with the same key asks about the same request; with another content the key is refused.
#[tokio::test]
async fn a_key_is_one_request() -> Result<()> {
    with_system("elasticity", async |it| {
        let job = it.submitted().await?;
        let keyed = |width, wait_for| ResizeRequest {
            idempotency_key: "balancer-1/17".to_owned(),
            regions: job.resize_request(&[(CLEAN, width)], wait_for).regions,
            ..job.resize_request(&[], wait_for)
        };
        let balancer = it.frontend()?.balancer().await?;
        let resize = |width, wait_for| until_taken(balancer.clone(), keyed(width, wait_for), WITHIN);
        let planned = resize(3, WaitFor::Planned).await?;
        ensure!(planned.generation == Some(1), "{planned:?}");
        let first = resize(3, WaitFor::RolledOut).await?;
        ensure!(
            first.request == planned.request && first.request.starts_with(&format!("{}-", job.name())),
            "{first:?}"
        );
        ensure!(first.generation == Some(1) && first.changes.is_some_and(|changes| changes.added == 1), "{first:?}");
        let other = resize(4, WaitFor::RolledOut).await.err().context("the key was taken twice")?;
        ensure!((other.code(), reason(&other).as_str()) == (Code::AlreadyExists, "KEY_REUSED"), "{other:?}");
        // Another generation comes; the request still says what it did itself.
        let later = it.resize(&job, &[(SCORE, 3)], WaitFor::RolledOut).await?;
        ensure!(later.generation == Some(2) && later.request != first.request, "{later:?}");
        let again = resize(3, WaitFor::RolledOut).await?;
        ensure!((again.generation, again.changes) == (first.generation, first.changes), "{again:?}");
        ensure!(again.request == first.request && job.status().await?.generation == Some(2), "{again:?}");
        ensure!(job.list::<Resize>().await?.len() == 2, "requests that nobody made");
        Ok(())
    })
    .await
}

/// The API server does not take a request, for a reason of its own.
#[tokio::test]
async fn a_request_that_the_namespace_does_not_take_is_refused_with_the_reason() -> Result<()> {
    with_system("elasticity", async |it| {
        let job = it.submitted().await?;
        let asked = async || {
            let request = job.resize_request(&[(CLEAN, 3)], WaitFor::Committed);
            let answer = until_taken(it.frontend()?.balancer().await?, request, WITHIN).await;
            answer.err().context("it was taken")
        };
        let quota = Quota::none(it, Limited::Requests).await?;
        // The API server counts against a quota as soon as it has heard of it itself.
        eventually("requests are refused", WITHIN, || async {
            let status = asked().await?;
            ensure!(
                (status.code(), reason(&status).as_str()) == (Code::ResourceExhausted, "QUOTA_EXCEEDED"),
                "{status:?}"
            );
            ensure!(status.get_error_details().retry_info().is_some(), "{status:?}");
            ensure!(status.message().contains("exceeded quota: hold"), "{status:?}");
            Ok(())
        })
        .await?;
        quota.lift().await?;

        let finalizers = |names: &[&str]| Patch::Merge(json!({"metadata": {"finalizers": names}}));
        let patch = async |names| job.api::<Job>().patch(job.name(), &PatchParams::default(), &finalizers(names)).await;
        patch(&["streams-test/lingers"]).await?;
        let namespaces: Api<Namespace> = Api::all(it.client.clone());
        namespaces.delete(&it.namespace, &DeleteParams::default()).await?;
        let status = asked().await?;
        // The job goes with its namespace.
        let goes = job.api::<Job>().get(job.name()).await?.metadata.deletion_timestamp.is_some();
        let said = (status.code(), reason(&status));
        ensure!(
            said == (Code::FailedPrecondition, "NAMESPACE_TERMINATING".to_owned())
                || (goes && said == (Code::NotFound, "JOB_NOT_FOUND".to_owned())),
            "{status:?}"
        );
        patch(&[]).await?;
        Ok(())
    })
    .await
}

/// Whoever makes up a key for each call stores no object for each.
#[tokio::test]
async fn there_are_no_more_requests_of_a_job_than_are_kept() -> Result<()> {
    with_system("elasticity", async |it| {
        let job = it.submitted().await?;
        let keyed = |key: &str| ResizeRequest {
            idempotency_key: key.to_owned(),
            ..job.resize_request(&[(CLEAN, 3)], WaitFor::RolledOut)
        };
        let balancer = it.frontend()?.balancer().await?;
        let first = until_taken(balancer.clone(), keyed("first"), WITHIN).await?;
        // Each is refused, and kept.
        let wrong = json!({
            "apiVersion": "streams.ibm.com/v1", "kind": "Resize", "metadata": {"generateName": "many-"},
            "spec": {"jobName": job.name(), "regions": [{"name": CLEAN, "width": 2}], "expectedGeneration": 99},
        });
        let wrong: Resize = serde_json::from_value(wrong)?;
        let (api, parameters) = (job.api::<Resize>(), PostParams::default());
        let creating = stream::iter(1..RESIZES_MAX).map(|_| api.create(&parameters, &wrong));
        creating.buffer_unordered(16).try_for_each(|_| async { Ok(()) }).await?;
        let refused = eventually("no more are taken", WITHIN, || async {
            let answer = balancer.clone().resize(keyed(&format!("{:x}", fastrand::u64(..)))).await;
            let status = answer.err().context("it was taken")?;
            ensure!(reason(&status) == "TOO_MANY_REQUESTS", "{status:?}");
            ensure!(
                status.get_error_details().retry_info().and_then(|info| info.retry_delay) > Some(Duration::ZERO),
                "{status:?}"
            );
            Ok(status)
        })
        .await?;
        ensure!(refused.code() == Code::ResourceExhausted, "{refused:?}");
        let before = api.list_metadata(&ListParams::default()).await?.items.len();
        for number in 0..20 {
            let answer = until_taken(balancer.clone(), keyed(&format!("another-{number}")), WITHIN).await;
            let status = answer.err().context("one more was taken")?;
            ensure!(reason(&status) == "TOO_MANY_REQUESTS", "{status:?}");
        }
        let after = api.list_metadata(&ListParams::default()).await?.items.len();
        ensure!(after == before, "{before} objects became {after}");
        let again = until_taken(balancer, keyed("first"), WITHIN).await?;
        ensure!((again.request, again.generation) == (first.request, first.generation), "another request");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_job_without_a_generation_cannot_be_resized() -> Result<()> {
    with_system("elasticity", async |it| {
        let mut job = it.sample("nothing");
        job.spec.bundle.file = Some("nothing.sab".to_owned());
        let job = ObservedJob::create(&it.client, &job).await?;
        job.until_condition("Submitted", false, super::fixture::WITHIN).await?;
        let request = job.resize_request(&[(CLEAN, 3)], WaitFor::Accepted);
        let answer = until_taken(it.frontend()?.balancer().await?, request, WITHIN).await;
        let status = answer.err().context("it was taken")?;
        ensure!((status.code(), reason(&status).as_str()) == (Code::FailedPrecondition, "NOT_SUBMITTED"), "{status:?}");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn regions_are_shown() -> Result<()> {
    with_system("elasticity", async |it| {
        let job = it.submitted().await?;
        let mut balancer = it.frontend()?.balancer().await?;
        let (namespace, name) = (it.namespace.clone(), job.name().to_owned());
        let list = ListRegionsRequest { namespace: namespace.clone(), ..ListRegionsRequest::default() };
        let regions = balancer.list_regions(list).await?.into_inner().regions;
        let shown = regions.iter().map(|region| (region.name.as_str(), region.desired_width, region.applied_width));
        let expected = [("Clean", 2, Some(2)), ("Score", 2, Some(2)), ("Score.Model", 2, Some(2))];
        ensure!(shown.clone().eq(expected), "{:?}", shown.collect::<Vec<_>>());
        let get = GetRegionRequest { namespace, job: name, region: CLEAN.to_owned() };
        let region = balancer.get_region(get).await?.into_inner();
        ensure!(region.rolled_out && region.generation == Some(0) && region.rejection.is_empty(), "{region:?}");
        ensure!(Some(region.object_name) == job.region(CLEAN).await?.metadata.name);
        Ok(())
    })
    .await
}

#[tokio::test]
async fn grpcurl_needs_no_files() -> Result<()> {
    with_system("elasticity", async |it| {
        let job = it.submitted().await?;
        for frontend in it.system.frontends() {
            serves_grpc(frontend.elasticity(), "streams.elasticity.v1.ElasticityService").await?;
        }
        for address in it.system.fusion_addresses() {
            serves_grpc(address, "streams.fusion.v1.FusionService").await?;
        }
        let services = it.grpcurl(&[], &["list"]).await?;
        for service in ["streams.elasticity.v1.ElasticityService", "grpc.health.v1.Health"] {
            ensure!(services.lines().any(|line| line == service), "{services}");
        }
        let service = it.grpcurl(&[], &["describe", "streams.elasticity.v1.ElasticityService"]).await?;
        for call in ["rpc Resize", "rpc GetRegion", "rpc ListRegions", "rpc GetResize", "rpc ListResizes", "rpc Cancel", "rpc WatchResize"] {
            ensure!(service.contains(call), "{service}");
        }
        let request = format!(
            r#"{{"namespace": "{}", "job": "{}", "regions": [{{"region": "Clean", "width": 3}}], "wait_for": "WAIT_FOR_ROLLED_OUT"}}"#,
            it.namespace,
            job.name()
        );
        let answer = it.grpcurl(&["-d", &request], &["streams.elasticity.v1.ElasticityService/Resize"]).await?;
        let answer: serde_json::Value = serde_json::from_str(&answer)?;
        ensure!(answer["generation"] == "1" && answer["regions"][0]["appliedWidth"] == 3, "{answer}");
        ensure!(answer["changes"]["added"] == 1, "{answer}");
        // The details of an error, in words: reflection knows their types as well.
        let request = request.replace("\"width\": 3", "\"width\": 0");
        let refused = it.grpcurl(&["-d", &request], &["streams.elasticity.v1.ElasticityService/Resize"]).await;
        let said = refused.err().context("width 0 was taken")?.to_string();
        for detail in [r#""reason": "INVALID_WIDTH""#, r#""field": "regions[0].width""#] {
            ensure!(said.contains(detail), "{detail} is missing: {said}");
        }
        Ok(())
    })
    .await
}
