//! The applications that the reference implementation was tested with, and what became of them there: numbers of
//! objects, widths, which PEs a resize leaves alone. The applications are in the conformance corpus; without it the
//! tests say so and pass.

use super::fixture::{Fixture, WITHIN, with, with_system};
use anyhow::{Context as _, Result, bail, ensure};
use integration_tests::sample;
use integration_tests::system::inventory::Inventory;
use integration_tests::system::job::ObservedJob;
use integration_tests::system::snapshot::Snapshot;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::ResourceExt as _;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;
use streams_api::{FusionOptions, Job, PePhase, names};
use streams_control_plane::wait::eventually;
use streams_proto::elasticity::v1::resize_request::WaitFor;
use streams_test_support::corpus;

const PARALLEL: &str = "apps.parallel.Parallel";

/// The ADL of an application of the corpus, if that is there.
fn application(name: &str) -> Result<Option<String>> {
    let file = corpus::folder().join("samples").join(format!("{name}.adl"));
    if !file.is_file() {
        println!("skipped: there is no {}", file.display());
        return Ok(None);
    }
    std::fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display())).map(Some)
}

fn manual(pes: u32) -> Option<FusionOptions> {
    Some(FusionOptions { manual: NonZeroU32::new(pes), ..FusionOptions::default() })
}

/// Creates a job of this ADL. `fields` go into its spec.
async fn submit(
    it: &Fixture,
    adl: &str,
    name: &str,
    fusion: Option<FusionOptions>,
    fields: &Value,
) -> Result<ObservedJob> {
    let bundle = format!("{name}.sab");
    std::fs::write(it.system.bundles().join(&bundle), sample::bundle_of(adl)?)?;
    let mut job = it.sample(name);
    job.spec.bundle.file = Some(bundle);
    job.spec.fusion = fusion;
    let mut whole = serde_json::to_value(&job)?;
    let spec = whole["spec"].as_object_mut().context("a job without spec")?;
    spec.extend(fields.as_object().context("no fields")?.clone());
    ObservedJob::create(&it.client, &serde_json::from_value(whole)?).await
}

/// Waits until a generation is rolled out and so many pods run; gives what is there.
async fn running(job: &ObservedJob, generation: u64, pes: usize) -> Result<Inventory> {
    eventually(&format!("{job:?}: generation {generation} has {pes} pods that run"), WITHIN, || async {
        let status = job.status().await?;
        let finished = status.rollout.as_ref().and_then(|rollout| rollout.finished_at.as_ref());
        ensure!(status.generation == Some(generation) && finished.is_some(), "{:?}", status.conditions);
        let inventory = job.inventory().await?;
        let found = [inventory.processing_elements.len(), inventory.services.len(), inventory.pods.len()];
        ensure!(found == [pes; 3], "PEs, Services and pods: {found:?}");
        let texts = inventory.config_maps_of(Some(names::PART_AADL)).count();
        let others = inventory.config_maps_of(None).count();
        ensure!((texts, others) == (pes, 1), "{texts} texts, {others} other ConfigMaps");
        let runs = |pe: &streams_api::ProcessingElement| {
            pe.status.as_ref().is_some_and(|status| status.phase == Some(PePhase::Running))
        };
        ensure!(inventory.processing_elements.iter().all(runs), "not all PEs run");
        Ok(inventory)
    })
    .await
}

fn snapshot(inventory: &Inventory) -> Result<Snapshot> {
    Snapshot::of(&inventory.pods, &inventory.processing_elements)
}

fn widths(inventory: &Inventory) -> BTreeMap<&str, u32> {
    inventory.regions.iter().map(|region| (region.spec.name.as_str(), region.spec.width)).collect()
}

fn regions(widths: [u32; 3]) -> BTreeMap<&'static str, u32> {
    ["Result.Region1", "Result.Region2", "Result.Region3"].into_iter().zip(widths).collect()
}

fn values(widths: [u32; 3]) -> Value {
    json!({"submissionTimeValues": {
        "width1": widths[0].to_string(), "width2": widths[1].to_string(), "width3": widths[2].to_string(),
    }})
}

async fn delete(job: &ObservedJob) -> Result<()> {
    job.api::<Job>().delete(job.name(), &DeleteParams::background()).await?;
    Ok(())
}

#[tokio::test]
async fn fusion_and_widths_at_submission() -> Result<()> {
    let Some(adl) = application(PARALLEL)? else { return Ok(()) };
    let exact = ["Result.Region1", "Result.Region2", "Result.Region3"].map(|alias| json!({"alias": alias, "width": 9}));
    let patterns = ["*Region1", "*Region2", "*Region3"].map(|name| json!({"name": name, "width": 6}));
    // name, manual fusion, fields of the spec, PEs, widths
    let table = [
        ("one", 1, json!({}), 1, [1, 1, 1]),
        ("three", 3, json!({}), 3, [1, 1, 1]),
        ("four", 4, json!({}), 4, [1, 1, 1]),
        ("twenty", 20, values([5, 6, 7]), 20, [5, 6, 7]),
        ("values", 1, values([2, 4, 6]), 1, [2, 4, 6]),
        ("aliases", 20, json!({"parallelRegions": exact}), 20, [9, 9, 9]),
        ("patterns", 1, json!({"parallelRegions": patterns}), 1, [6, 6, 6]),
        (
            "both",
            1,
            json!({
                "submissionTimeValues": {"width1": "3"},
                "parallelRegions": [{"name": "*Region2", "width": 7}],
            }),
            1,
            [3, 7, 1],
        ),
    ];
    with_system("vectors", async |it| {
        for (name, pes, fields, expected_pes, expected_widths) in &table {
            let job = submit(it, &adl, name, manual(*pes), fields).await?;
            let inventory = running(&job, 0, *expected_pes).await.with_context(|| format!("job {name}"))?;
            ensure!(widths(&inventory) == regions(*expected_widths), "{name}: {:?}", widths(&inventory));
            delete(&job).await?;
        }
        Ok(())
    })
    .await
}

/// A resize of the vectors with legacy fusion, from widths of 2, 5 and 4.
struct Vector {
    name: &'static str,
    region: &'static str,
    width: u32,
    pes: usize,
    /// The reference leaves their pods alone.
    unchanged: &'static [u64],
    added: std::ops::Range<u64>,
    restarted: &'static [u64],
    removed: &'static [u64],
}

#[tokio::test]
async fn resizes_touch_no_pod_that_the_reference_leaves_alone() -> Result<()> {
    let Some(adl) = application(PARALLEL)? else { return Ok(()) };
    let table = [
        Vector {
            name: "wider",
            region: "Result.Region1",
            width: 10,
            pes: 21,
            unchanged: &[1, 4, 10, 11, 12],
            added: 13..21,
            restarted: &[0, 2, 3, 5, 6, 7, 8, 9],
            removed: &[],
        },
        Vector {
            name: "narrower",
            region: "Result.Region3",
            width: 2,
            pes: 11,
            unchanged: &[0, 2, 5],
            added: 0..0,
            restarted: &[1, 3, 4, 6, 7, 8, 9, 10],
            removed: &[11, 12],
        },
    ];
    with_system("vectors", async |it| {
        let legacy = FusionOptions { legacy: Some(true), ..FusionOptions::default() };
        for vector in &table {
            let job = submit(it, &adl, vector.name, Some(legacy.clone()), &values([2, 5, 4])).await?;
            let before = snapshot(&running(&job, 0, 13).await?)?;
            it.resize(&job, &[(vector.region, vector.width)], WaitFor::RolledOut).await?;
            let after = snapshot(&running(&job, 1, vector.pes).await?)?;
            let changed = after.since(&before);
            let name = vector.name;
            ensure!(changed.added == vector.added.clone().collect::<Vec<_>>(), "{name}: {changed:?}");
            ensure!(changed.removed == vector.removed, "{name}: {changed:?}");
            ensure!(vector.unchanged.iter().all(|id| changed.kept.contains(id)), "{name}: {changed:?}");
            ensure!(changed.restarted.iter().all(|id| vector.restarted.contains(id)), "{name}: {changed:?}");
            let launches = after.launched_too_often_since(&before);
            ensure!(launches.is_empty(), "{name}: {launches:?}");
            delete(&job).await?;
        }
        Ok(())
    })
    .await
}

#[tokio::test]
async fn generations_follow_one_another() -> Result<()> {
    let Some(adl) = application(PARALLEL)? else { return Ok(()) };
    with_system("vectors", async |it| {
        let one = submit(it, &adl, "one-pe", manual(1), &json!({})).await?;
        running(&one, 0, 1).await?;
        it.resize(&one, &[("Result.Region2", 7)], WaitFor::RolledOut).await?;
        ensure!(widths(&running(&one, 1, 1).await?) == regions([1, 7, 1]), "Region2 has another width");

        let legacy = FusionOptions { legacy: Some(true), ..FusionOptions::default() };
        let many = submit(it, &adl, "many", Some(legacy), &json!({})).await?;
        running(&many, 0, 5).await?;
        for (generation, width) in [(1, 5), (2, 10)] {
            it.resize(&many, &[("Result.Region2", width)], WaitFor::RolledOut).await?;
            // One PE for each channel of the three regions, one for the source, one for the sink.
            running(&many, generation, width as usize + 4).await?;
        }
        Ok(())
    })
    .await
}

/// The reference gives each PE the whole requests of the job; here they are divided like its limits (rule pod-4).
#[tokio::test]
async fn resources_of_a_job_are_shared() -> Result<()> {
    let Some(adl) = application(PARALLEL)? else { return Ok(()) };
    with_system("vectors", async |it| {
        let resources = json!({"resources": {
            "limits": {"cpu": "16.0", "memory": "64Gi"}, "requests": {"cpu": "0.1", "memory": "100Mi"},
        }});
        let job = submit(it, &adl, "shared", manual(4), &resources).await?;
        for pod in &running(&job, 0, 4).await?.pods {
            let resources = pod.spec.as_ref().and_then(|spec| spec.containers.first()?.resources.clone());
            let expected = json!({
                "limits": {"cpu": "4", "memory": "16Gi"}, "requests": {"cpu": "25m", "memory": "25Mi"},
            });
            ensure!(serde_json::to_value(&resources)? == expected, "{}: {resources:?}", pod.name_any());
        }
        Ok(())
    })
    .await
}

/// Of an operator with `host("...")` and of one in a pool with a tag.
#[tokio::test]
async fn operators_go_where_the_application_wants_them() -> Result<()> {
    let hosts = application("apps.hostplacement.HostPlacement")?;
    let (Some(hosts), Some(pools)) = (hosts, application("apps.hostpools.HostPools")?) else { return Ok(()) };
    with_system("vectors", async |it| {
        let nodes: Api<Node> = Api::all(it.client.clone());
        let list = nodes.list(&ListParams::default()).await?.items;
        let names: Vec<String> = list.iter().map(kube::ResourceExt::name_any).take(2).collect();
        let [first, second] = names.as_slice() else { bail!("the cluster has {} nodes", names.len()) };

        let adl = hosts.replace("c0321.pok.hpc-ng.ibm.com", first).replace("c0323.pok.hpc-ng.ibm.com", second);
        let job = submit(it, &adl, "hosts", manual(1), &json!({})).await?;
        let inventory = running(&job, 0, 2).await?;
        let node = |pod: &Pod| pod.spec.as_ref().and_then(|spec| spec.node_name.clone());
        let found: BTreeSet<_> = inventory.pods.iter().filter_map(node).collect();
        ensure!(found == names.iter().cloned().collect(), "pods are on {found:?}, not on {names:?}");

        let tags = ["source_hosts", "sink_hosts"].map(|tag| format!("hostpool.streams.ibm.com/{tag}"));
        for (node, tag) in names.iter().zip(&tags) {
            let label = Patch::Merge(json!({"metadata": {"labels": {tag: ""}}}));
            nodes.patch(node, &PatchParams::default(), &label).await?;
        }
        let job = submit(it, &pools, "pools", manual(3), &json!({})).await?;
        let inventory = running(&job, 0, 3).await?;
        let pools: BTreeSet<_> = inventory.host_pools.iter().map(|pool| pool.spec.name.as_str()).collect();
        ensure!(pools == BTreeSet::from(["$default", "sink_hosts", "source_hosts"]), "{pools:?}");
        for (node, tag) in names.iter().zip(&tags) {
            let wants = |pod: &&Pod| {
                let affinity = pod.spec.as_ref().and_then(|spec| spec.affinity.as_ref());
                serde_json::to_string(&affinity).is_ok_and(|text| text.contains(tag))
            };
            let pod = inventory.pods.iter().find(wants).with_context(|| format!("no pod wants {tag}"))?;
            let runs_on = pod.spec.as_ref().and_then(|spec| spec.node_name.as_ref());
            ensure!(runs_on == Some(node), "{} runs on {runs_on:?}", pod.name_any());
        }
        Ok(())
    })
    .await
}

/// The reference runs a Deployment for each job with consistent regions; here the frontend drives them, so that there
/// is a Service for it.
#[tokio::test]
async fn a_consistent_region_has_an_object() -> Result<()> {
    let Some(adl) = application("apps.consistent.ConsistentRegion")? else { return Ok(()) };
    with("vectors", 1, &["--checkpoint-path=/checkpoints"], async |it| {
        let checkpoints = json!({"processingElement": serde_json::to_value(sample::checkpoints())?});
        let job = submit(it, &adl, "consistent", manual(1), &checkpoints).await?;
        eventually("the job has its region", WITHIN, || async {
            let inventory = job.inventory().await?;
            ensure!(inventory.consistent_regions.len() == 1, "{:?}", inventory.names());
            let runs = inventory.processing_elements.len() == 1 && inventory.pods.len() == 1;
            ensure!(runs, "{:?}", inventory.names());
            Ok(())
        })
        .await
    })
    .await
}
