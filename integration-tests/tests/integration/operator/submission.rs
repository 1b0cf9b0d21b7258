//! `kubectl apply` of a Job: what is there once it runs.

use super::fixture::{Fixture, JOB, WITHIN, with_system};
use anyhow::{Context as _, Result, ensure};
use integration_tests::sample::{self, Widths};
use integration_tests::system::job::ObservedJob;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Service};
use kube::ResourceExt as _;
use std::collections::{BTreeMap, BTreeSet};
use streams_api::{JobPhase, condition, names};

#[tokio::test]
async fn every_pe_runs_with_what_it_needs() -> Result<()> {
    with_system("submission", async |it| {
        let job = it.submitted().await?;
        check_status(&job).await?;
        let inventory = job.inventory().await?;
        for service in &inventory.services {
            check_service(service)?;
        }
        for pe in &inventory.processing_elements {
            let name = pe.name_any();
            let labels = names::pe_labels(JOB, pe.spec.id);
            let pod =
                inventory.pods.iter().find(|pod| pod.labels().get(names::LABEL_PE) == labels.get(names::LABEL_PE));
            check_pod(pod.with_context(|| format!("PE {name} has no pod"))?, &pe.spec.config_map.name)?;
            let service = inventory.services.iter().find(|service| service.name_any() == name);
            let ports = service.and_then(|service| service.spec.as_ref()?.ports.clone()).unwrap_or_default();
            let ports: BTreeSet<i32> = ports.into_iter().map(|port| port.port).collect();
            let inputs: BTreeSet<i32> =
                pe.spec.input_ports.iter().map(|id| 10_000 + i32::try_from(*id).unwrap_or(i32::MAX)).collect();
            ensure!(inputs.is_subset(&ports), "Service {name} has ports {ports:?}, the PE listens on {inputs:?}");
        }
        check_port_labels(&job, it).await
    })
    .await
}

async fn check_status(job: &ObservedJob) -> Result<()> {
    let status = job.status().await?;
    ensure!(status.phase == Some(JobPhase::Running), "phase {:?}", status.phase);
    ensure!(status.generation == Some(0) && status.job_id.is_some(), "{status:?}");
    ensure!(status.submission_attempts == 1, "{} attempts", status.submission_attempts);
    for (kind, expected) in [
        (condition::SUBMITTED, Some("True")),
        (condition::READY, Some("True")),
        (condition::PROGRESSING, Some("False")),
        (condition::RESIZE_REJECTED, None),
        (condition::RESIZE_DELAYED, None),
        (condition::DEGRADED, None),
    ] {
        let found = condition::get(&status.conditions, kind);
        // A condition that is bad news may be absent or False.
        let found = found.map(|condition| condition.status.as_str());
        ensure!(found == expected || (expected.is_none() && found == Some("False")), "{kind} is {found:?}");
    }
    let figures = status.statistics.context("no statistics")?;
    ensure!((figures.operators, figures.parallel_regions) == (12, 3), "{figures:?}");
    ensure!(status.fusion.as_ref().map(|fusion| fusion.mode.as_str()) == Some("legacy"), "{:?}", status.fusion);
    Ok(())
}

fn check_service(service: &Service) -> Result<()> {
    let name = service.name_any();
    let spec = service.spec.as_ref().context("a Service without spec")?;
    ensure!(spec.cluster_ip.as_deref() == Some("None"), "Service {name} is not headless");
    ensure!(spec.publish_not_ready_addresses == Some(true), "Service {name} hides PEs that are not ready");
    let selector = spec.selector.clone().unwrap_or_default();
    let expected = [names::LABEL_APP, names::LABEL_JOB, names::LABEL_PE];
    for label in expected {
        ensure!(selector.get(label) == service.labels().get(label), "Service {name} selects {selector:?}");
    }
    let more: Vec<_> = selector.keys().filter(|key| !expected.contains(&key.as_str())).collect();
    ensure!(more.iter().all(|key| *key == names::LABEL_SERVICE), "Service {name} selects by {more:?} as well");
    Ok(())
}

fn check_pod(pod: &Pod, text: &str) -> Result<()> {
    let name = pod.name_any();
    ensure!(
        pod.labels().get(names::LABEL_LAUNCH_COUNT).map(String::as_str) == Some("1"),
        "pod {name} is not the first"
    );
    let spec = pod.spec.as_ref().context("a pod without spec")?;
    ensure!(spec.restart_policy.as_deref() == Some("Never"), "pod {name} restarts its containers by itself");
    let mounted = serde_json::to_string(&spec.volumes)?;
    ensure!(mounted.contains(&format!("\"{text}\"")), "pod {name} does not mount {text}: {mounted}");
    Ok(())
}

/// Every input port of every PE can be found by its operator's label, and no label leads nowhere.
async fn check_port_labels(job: &ObservedJob, it: &Fixture) -> Result<()> {
    let map = job.api::<ConfigMap>().get(JOB).await?;
    let file = map.data.and_then(|mut data| data.remove("operator_port_labels.properties"));
    let file = file.context("the job's ConfigMap has no port labels")?;
    let id = job.status().await?.job_id.unwrap_or_default();
    let mut found = BTreeMap::<u64, BTreeSet<u32>>::new();
    for line in file.lines() {
        let wrong = || format!("in namespace {}: port label {line:?}", it.namespace);
        let (operator, pe) = line.split_once('=').with_context(wrong)?;
        ensure!(operator.starts_with(&format!("{id}.")) && operator.split('.').count() == 3, wrong());
        let (place, owner) = pe.split_once('@').with_context(wrong)?;
        let (pe, port) = place.split_once('.').with_context(wrong)?;
        ensure!(owner == id.to_string(), wrong());
        ensure!(found.entry(pe.parse()?).or_default().insert(port.parse()?), wrong());
    }
    let pes = job.inventory().await?.processing_elements;
    let listening = pes.iter().filter(|pe| !pe.spec.input_ports.is_empty());
    let ports = listening.map(|pe| (pe.spec.id, pe.spec.input_ports.iter().copied().collect())).collect();
    ensure!(found == ports, "labels lead to {found:?}, PEs listen on {ports:?}");
    Ok(())
}

/// What people start from.
const SAMPLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/samples/job.yaml");

#[tokio::test]
async fn the_sample_of_a_job_becomes_what_its_comments_say() -> Result<()> {
    with_system("submission", async |it| {
        it.kubectl(&["apply", "--filename", SAMPLE]).await?;
        let job = ObservedJob::new(&it.client, &it.namespace, JOB);
        job.until_condition(condition::READY, true, WITHIN).await?;
        let said = std::fs::read_to_string(SAMPLE)?;
        let pes = job.inventory().await?.processing_elements.len();
        ensure!(said.contains(&format!("need {pes} processing elements")), "there are {pes} PEs");
        let clean = job.region(sample::CLEAN).await?;
        ensure!(said.contains(&format!("streamspr/{} ", clean.name_any())), "Clean is {}", clean.name_any());
        ensure!(clean.spec.width == 3, "Clean has width {}", clean.spec.width);
        Ok(())
    })
    .await
}

#[tokio::test]
async fn jobs_of_a_namespace_have_numbers_and_widths_of_their_own() -> Result<()> {
    with_system("submission", async |it| {
        let mut wide = it.sample("wide");
        wide.spec.parallel_regions = vec![
            sample::initial_width("*", 1),
            sample::initial_width(sample::CLEAN, 3),
            sample::initial_width("*Model", 4),
        ];
        let wide = ObservedJob::create(&it.client, &wide).await?;
        let narrow = ObservedJob::create(&it.client, &it.sample("narrow")).await?;
        wide.settled(Widths { clean: 3, score: 1, model: 4 }, WITHIN).await?;
        narrow.settled(Widths::default(), WITHIN).await?;
        let ids = [wide.status().await?.job_id, narrow.status().await?.job_id];
        ensure!(ids[0].is_some() && ids[0] != ids[1], "{ids:?}");
        Ok(())
    })
    .await
}
