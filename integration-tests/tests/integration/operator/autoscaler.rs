//! Autoscalers that resize regions through the sub-resource `scale`: the HPA of kube-controller-manager, by the sample
//! manifest (rule elasticity-6).

use super::fixture::{Fixture, WITHIN, with_system};
use super::metrics_api::MetricsApi;
use anyhow::{Context as _, Result, ensure};
use integration_tests::sample::{CLEAN, MODEL, SCORE, Widths};
use integration_tests::system::job::ObservedJob;
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, ListParams, PostParams};
use std::collections::BTreeSet;
use streams_control_plane::wait::eventually;

/// What people start from.
const SAMPLE: &str = include_str!("../../../../deploy/samples/hpa.yaml");
/// The metric of the sample, and how much of it a channel is to have.
const METRIC: &str = "sensors_backlog";
const PER_CHANNEL: u32 = 1000;

/// An HPA as the sample has it, for another region, which does not wait before it makes that smaller.
async fn autoscaler(it: &Fixture, job: &ObservedJob, region: &str) -> Result<String> {
    let mut hpa: HorizontalPodAutoscaler = serde_saphyr::from_str(SAMPLE)?;
    let spec = hpa.spec.as_mut().context("no spec")?;
    let target = &mut spec.scale_target_ref;
    let clean = job.region(CLEAN).await?.metadata.name.context("no name")?;
    ensure!(target.name == clean, "the sample is about {}, but {CLEAN} is {clean}", target.name);
    let name = job.region(region).await?.metadata.name.context("no name")?;
    hpa.metadata.name = Some(name.clone());
    target.name.clone_from(&name);
    let behavior = spec.behavior.as_mut().context("no behavior")?;
    behavior.scale_down.as_mut().context("no scaleDown")?.stabilization_window_seconds = Some(0);
    let external = spec.metrics.as_mut().and_then(|metrics| metrics.first_mut()?.external.as_mut());
    let selector = external.context("no external metric")?.metric.selector.as_mut().context("no selector")?;
    selector.match_labels = Some([("region".to_owned(), region.to_owned())].into());
    let autoscalers = Api::<HorizontalPodAutoscaler>::namespaced(it.client.clone(), &it.namespace);
    autoscalers.create(&PostParams::default(), &hpa).await?;
    Ok(name)
}

/// What the HPA says of itself, for failures.
async fn says(it: &Fixture, name: &str) -> Result<String> {
    let api = Api::<HorizontalPodAutoscaler>::namespaced(it.client.clone(), &it.namespace);
    let conditions = api.get(name).await?.status.and_then(|status| status.conditions).unwrap_or_default();
    let of = |c: k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscalerCondition| {
        format!("{}={} ({})", c.type_, c.status, c.message.unwrap_or_default())
    };
    Ok(conditions.into_iter().map(of).collect::<Vec<_>>().join(", "))
}

/// The HPA has asked for this width. Then the job rolls it out.
async fn asks_for(it: &Fixture, job: &ObservedJob, region: &str, hpa: &str, width: u32) -> Result<()> {
    eventually(&format!("the HPA asks for width {width} of {region}"), WITHIN, || async {
        let desired = job.region(region).await?.spec.width;
        ensure!(desired == width, "it is {desired}; {}", says(it, hpa).await?);
        Ok(())
    })
    .await
}

/// Operators of the PEs whose pods the selector of the region finds.
async fn selected(job: &ObservedJob, region: &str) -> Result<BTreeSet<String>> {
    let selector = job.region(region).await?.status.and_then(|status| status.selector).context("no selector")?;
    let pods = job.api::<Pod>().list(&ListParams::default().labels(&selector)).await?.items;
    let operators = job.operators().await?;
    let of = |pod: &Pod| -> Result<String> {
        let label = pod.metadata.labels.as_ref().and_then(|labels| labels.get("streams.ibm.com/pe"));
        let id: u64 = label.context("a pod without PE")?.parse()?;
        operators.get(&id).cloned().context("a pod of no PE")
    };
    pods.iter().map(of).collect()
}

#[tokio::test]
async fn the_hpa_of_kubernetes_resizes_regions_by_a_metric() -> Result<()> {
    with_system("autoscaler", async |it| {
        let job = it.submitted().await?;
        MetricsApi::with(&it.namespace, async |metrics| {
            let says = |region: &str, channels: u32| {
                metrics.says(&it.namespace, METRIC, &format!("region={region}"), channels * PER_CHANNEL);
            };
            says(CLEAN, 4);
            says(SCORE, 2);
            // The channels of one have PEs of their own, those of the other have several each.
            let clean = autoscaler(it, &job, CLEAN).await?;
            let score = autoscaler(it, &job, SCORE).await?;
            asks_for(it, &job, CLEAN, &clean, 4).await?;
            job.settled(Widths { clean: 4, ..Widths::default() }, WITHIN).await?;
            says(SCORE, 3);
            asks_for(it, &job, SCORE, &score, 3).await?;
            job.settled(Widths { clean: 4, score: 3, ..Widths::default() }, WITHIN).await?;
            says(CLEAN, 2);
            says(SCORE, 2);
            asks_for(it, &job, CLEAN, &clean, 2).await?;
            asks_for(it, &job, SCORE, &score, 2).await?;
            job.settled(Widths::default(), WITHIN).await?;
            Ok(())
        })
        .await
    })
    .await
}

#[tokio::test]
async fn a_selector_finds_the_pods_of_the_channels_or_none() -> Result<()> {
    with_system("selectors", async |it| {
        let job = it.submitted().await?;
        let channels = |width: u32| (0..width).map(|channel| format!("Clean[{channel}]")).collect::<BTreeSet<_>>();
        ensure!(selected(&job, CLEAN).await? == channels(2));
        let mut selectors = BTreeSet::new();
        for region in [SCORE, MODEL] {
            ensure!(selected(&job, region).await?.is_empty(), "{region} selects pods");
            selectors.insert(job.region(region).await?.status.and_then(|status| status.selector));
        }
        ensure!(selectors.len() == 2, "two regions with one selector: {selectors:?}");
        // As kubectl and the HPA read it.
        let region = job.region(SCORE).await?.metadata.name.context("no name")?;
        let path = format!("/apis/streams.ibm.com/v1/namespaces/{}/streamsprs/{region}/scale", it.namespace);
        let scale: serde_json::Value = serde_json::from_str(&it.kubectl(&["get", "--raw", &path]).await?)?;
        ensure!(scale["status"]["selector"].as_str().is_some_and(|s| s.contains("none-of-region-")), "{scale}");

        job.set_width(CLEAN, 3).await?;
        job.settled(Widths { clean: 3, ..Widths::default() }, WITHIN).await?;
        eventually("the selector finds the new channel", WITHIN, || async {
            let found = selected(&job, CLEAN).await?;
            ensure!(found == channels(3), "{found:?}");
            Ok(())
        })
        .await
    })
    .await
}
