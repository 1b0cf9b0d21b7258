//! Where the scheduler puts the pods of a job.

use super::fixture::{Fixture, JOB, WITHIN, with_system};
use anyhow::{Context as _, Result, ensure};
use integration_tests::sample;
use integration_tests::system::job::ObservedJob;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Api, ListParams, Patch, PatchParams};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use streams_api::{FusionOptions, ProcessingElement, condition, names};
use streams_control_plane::wait::eventually;
use streams_test_support::application::Sketch;

/// A row of operators, each in a PE of its own, with these tokens of co-location.
async fn submit(it: &Fixture, tokens: &[&[&str]]) -> Result<ObservedJob> {
    let operators: Vec<String> = (0..tokens.len()).map(|number| format!("O{number}")).collect();
    let mut row = Sketch::row(&operators.iter().map(String::as_str).collect::<Vec<_>>());
    for (operator, tokens) in operators.iter().zip(tokens) {
        let tokens: String = tokens.iter().map(|token| format!("<coLocation colocId='{token}'/>")).collect();
        row = row.of(operator).resources(&format!("<poolLocation poolIndex='0'/>{tokens}"));
    }
    std::fs::write(it.system.bundles().join("row.sab"), sample::bundle_of(&row.adl())?)?;
    let mut job = it.sample(JOB);
    job.spec.bundle.file = Some("row.sab".to_owned());
    job.spec.fusion = Some(FusionOptions { legacy: Some(true), ..FusionOptions::default() });
    let job = ObservedJob::create(&it.client, &job).await?;
    job.until_condition(condition::READY, true, WITHIN).await?;
    Ok(job)
}

/// The node of the pod of each PE.
async fn nodes(job: &ObservedJob) -> Result<BTreeMap<u64, String>> {
    let pods = job.list::<Pod>().await?.into_iter().filter(|pod| pod.metadata.deletion_timestamp.is_none());
    let node = |pod: Pod| {
        let id = pod.metadata.labels.as_ref().and_then(|labels| labels.get(names::LABEL_PE)?.parse().ok());
        Some((id?, pod.spec?.node_name?))
    };
    pods.map(|pod| node(pod).context("a pod without a node")).collect()
}

/// The scheduler counts a pod only if it matches all terms of the one that it looks for a node for.
#[tokio::test]
async fn pes_that_tokens_connect_share_a_node_and_come_back_to_it() -> Result<()> {
    with_system("together", async |it| {
        let all = Api::<Node>::all(it.client.clone()).list(&ListParams::default()).await?.items.len();
        ensure!(all > 1, "there is one node only");
        let tokens: [&[&str]; 6] = [&["a"], &["a", "b"], &["b"], &["b", "c"], &["c", "d"], &["d"]];
        let job = submit(it, &tokens).await?;
        let before = nodes(&job).await?;
        ensure!(before.len() == tokens.len(), "{before:?}");
        ensure!(before.values().collect::<BTreeSet<_>>().len() == 1, "{before:?}");
        let node = before.values().next().context("no pod")?;
        for id in [1, 5] {
            let name = names::processing_element(job.name(), id);
            let request = json!({"metadata": {"annotations": {names::ANNOTATION_RESTART_REQUESTED: "now"}}});
            let pes = job.api::<ProcessingElement>();
            pes.patch(&name, &PatchParams::default(), &Patch::Merge(request)).await?;
            eventually(&format!("PE {id} was restarted"), WITHIN, || async {
                let status = pes.get(&name).await?.status.unwrap_or_default();
                let is_again = status.created_launch_count == 2 && status.node_name.is_some();
                ensure!(is_again && condition::is_true(&status.conditions, condition::READY), "{status:?}");
                ensure!(status.node_name.as_ref() == Some(node), "it is on another node: {status:?}");
                Ok(())
            })
            .await?;
        }
        Ok(())
    })
    .await
}
