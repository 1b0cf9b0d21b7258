//! Checkpoints in redis servers: where they are found, and that they stay where they are.

use super::fixture::{Fixture, JOB, WITHIN, with_system};
use anyhow::{Context as _, Result, ensure};
use integration_tests::sample::{CLEAN, Widths};
use integration_tests::system::job::ObservedJob;
use k8s_openapi::api::core::v1::{Pod, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::ResourceExt as _;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use streams_api::{Job, condition};
use streams_control_plane::wait::eventually;

/// Waits for the submission to say that it lacks servers; gives the words.
async fn lacks_servers(job: &ObservedJob, part: &str) -> Result<()> {
    eventually("the job says which servers it waits for", WITHIN, || async {
        let conditions = job.status().await?.conditions;
        let submitted = condition::get(&conditions, condition::SUBMITTED).context("no condition")?;
        ensure!(submitted.reason == "CheckpointServersMissing", "{submitted:?}");
        ensure!(submitted.message.contains(part), "{submitted:?}");
        Ok(())
    })
    .await
}

/// A headless Service with these servers, as a StatefulSet and the controllers of Kubernetes make it.
async fn serve(it: &Fixture, job: &ObservedJob, servers: &[&str]) -> Result<()> {
    let service = json!({
        "metadata": {"name": "redis"},
        "spec": {"clusterIP": "None", "ports": [{"port": 6379}]},
    });
    let services = job.api::<Service>();
    if services.get_opt("redis").await?.is_none() {
        services.create(&PostParams::default(), &serde_json::from_value(service)?).await?;
    }
    let endpoints: Vec<Value> = servers
        .iter()
        .zip(1..)
        .map(|(name, number)| json!({"hostname": name, "addresses": [format!("10.0.0.{number}")]}))
        .collect();
    let slice = json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
        "metadata": {"name": "redis-a", "labels": {"kubernetes.io/service-name": "redis"}},
        "addressType": "IPv4", "endpoints": endpoints,
    });
    let slice: EndpointSlice = serde_json::from_value(slice)?;
    let slices = kube::Api::<EndpointSlice>::namespaced(it.client.clone(), &it.namespace);
    slices.patch("redis-a", &PatchParams::apply("test").force(), &Patch::Apply(&slice)).await?;
    Ok(())
}

/// What the pods of the job are told of checkpoints.
async fn told(job: &ObservedJob) -> Result<BTreeSet<(String, String)>> {
    let pods = job.list::<Pod>().await?;
    let variable = |pod: &Pod, name: &str| {
        let container = pod.spec.as_ref()?.containers.first()?;
        container.env.iter().flatten().find(|variable| variable.name == name)?.value.clone()
    };
    pods.iter()
        .map(|pod| {
            let repository = variable(pod, "STREAMS_CHECKPOINT_REPOSITORY");
            let configuration = variable(pod, "STREAMS_CHECKPOINT_REPOSITORY_CONFIGURATION");
            repository.zip(configuration).with_context(|| format!("pod {} is told nothing", pod.name_any()))
        })
        .collect()
}

#[tokio::test]
async fn all_pes_are_told_of_the_redis_servers_that_were_there_at_the_submission() -> Result<()> {
    with_system("redis", async |it| {
        let mut job = it.sample(JOB);
        let redis = json!({"service": "redis", "replicaCount": 3, "shardCount": 1, "restrictedProperty": "password"});
        let options = json!({"checkpointRepository": {"redis": redis}});
        job.spec.processing_element = Some(serde_json::from_value(options)?);
        let job = ObservedJob::create(&it.client, &job).await?;
        lacks_servers(&job, "there is no Service redis").await?;
        serve(it, &job, &["redis-0", "redis-1"]).await?;
        lacks_servers(&job, "has 2 redis servers that are ready").await?;
        eventually("an Event tells it", WITHIN, || async {
            let events = job.events().await?;
            let is_told = |kind: &str, reason: &str| kind == "Warning" && reason == "CheckpointServersMissing";
            ensure!(events.iter().any(|(kind, reason, _)| is_told(kind, reason)), "{events:?}");
            Ok(())
        })
        .await?;
        serve(it, &job, &["redis-2", "redis-0", "redis-1"]).await?;
        job.settled(Widths::default(), WITHIN).await?;

        let group = |number: u64| {
            let server = format!("redis-{number}.redis.{}.svc:6379:password", it.namespace);
            json!({"servers": [server], "description": format!("redis#{number}")})
        };
        let expected = json!({"replicas": 3, "shards": 1, "replicaGroups": [group(0), group(1), group(2)]});
        let found = told(&job).await?;
        let [(repository, configuration)] = found.iter().collect::<Vec<_>>()[..] else {
            anyhow::bail!("pods are told different things: {found:?}");
        };
        ensure!(repository == "redis" && serde_json::from_str::<Value>(configuration)? == expected, "{configuration}");

        // A PE that starts later is told of the same servers, whatever the Service has by then.
        serve(it, &job, &["redis-7"]).await?;
        job.set_width(CLEAN, 3).await?;
        job.settled(Widths { clean: 3, ..Widths::default() }, WITHIN).await?;
        ensure!(told(&job).await? == found, "{:?}", told(&job).await?);

        // The job keeps its checkpoints where they are.
        let edit = json!({"spec": {"processingElement": {"checkpointRepository": {"redis": {"shardCount": 2}}}}});
        let refused = job.api::<Job>().patch(job.name(), &PatchParams::default(), &Patch::Merge(edit)).await;
        let message = refused.err().context("the edit was taken")?.to_string();
        ensure!(message.contains("cannot be added or changed once the job is submitted"), "{message}");
        job.api::<Service>().delete("redis", &DeleteParams::default()).await?;
        Ok(())
    })
    .await
}
